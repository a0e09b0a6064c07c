"""Templates that want too much: each must end in a diagnostic, in little time and memory.

Run as a program it goes through all of them under a limit on its memory and prints one JSON line for each.
"""

from __future__ import annotations

import json
import resource
import sys
import time

from sglspec.expressions import EvaluationError, ExpressionSyntaxError, Value, parse_template, render
from tests.expressions.scopes import PlainScope

LIMIT = "S253"

# name, template, the code of the syntax error or the cause of the evaluation error
CASES: list[tuple[str, str, str]] = [
    # Texts that grow
    ("repeat", "{{ 'x' * 10**9 }}", LIMIT),
    ("repeat-concat", "{{ 'x' * 9999999 ~ 'x' * 9999999 }}", LIMIT),
    ("add-texts", "{{ big + big + big }}", LIMIT),
    ("repeat-wide", "{{ '😀' * 9000000 }}", LIMIT),
    ("join", "{{ (['x'] * 10**8) | join }}", LIMIT),
    ("join-separator", "{{ (['x'] * 200000) | join('y' * 100000) }}", LIMIT),
    ("join-big", "{{ ([big] * 100) | join }}", LIMIT),
    ("replace-empty", "{{ ('a' * 1000) | replace('', 'x' * 100000) }}", LIMIT),
    ("replace-grow", "{{ big | replace('q', 'qqqq') }}", LIMIT),
    ("format-width", "{{ '%1000000000d' | format(1) }}", LIMIT),
    ("format-precision", "{{ '%.1000000000f' | format(1.5) }}", LIMIT),
    ("format-many", "{{ ('%1000d' * 60000) | format(1) }}", "S406"),
    ("format-star", "{{ '%*d' | format(10**9, 1) }}", "S406"),
    ("percent", "{{ '%1000000000d' % 1 }}", "S408"),
    ("center", "{{ 'x' | center(10**9) }}", "S304"),
    ("indent", "{{ 'x' | indent(10**9) }}", LIMIT),
    ("indent-lines", r"{{ ('\n' * 100000) | indent(1000) }}", LIMIT),
    ("indent-text", r"{{ ('a\n' * 100000) | indent('x' * 100000) }}", LIMIT),
    ("quote-lines", r"{{ ('a\n' * 100000) | quote('x' * 100000) }}", LIMIT),
    ("bullets", r"{{ ['\n' * 100000] | bullets('x' * 100000) }}", LIMIT),
    ("truncate-end", "{{ big | truncate(3, end='y' * 10**8) }}", LIMIT),
    ("upper-wide", "{{ ('é' * 9000000) | upper }}", LIMIT),
    ("upper-longer", "{{ ('ΐ' * 4000000) | upper }}", LIMIT),
    ("title", "{{ ('aB ' * 400000) | title }}", LIMIT),
    ("json-escapes", "{{ ('\\\\' * 5000000) | to_json | to_json }}", LIMIT),
    ("json-indent", "{{ ([[[[[[[1]]]]]]] * 100000) | to_json(16) }}", LIMIT),
    ("slice-text", "{% for i in range(9999) %}{{ (big[1:])[:-1] | len }}{% endfor %}", LIMIT),
    ("regex-replace", "{{ ('a' * 100000) | regex_replace('a', 'b' * 100000) }}", LIMIT),
    ("regex-replace-empty", "{{ ('a' * 100000) | regex_replace('', 'b' * 1000) }}", LIMIT),
    ("output", "{% for i in range(90000) %}{{ big }}{% endfor %}", LIMIT),
    # Lists that grow
    ("range", "{{ range(10**12) }}", LIMIT),
    ("range-down", "{{ range(10**12, 0, -1) }}", LIMIT),
    ("repeat-list", "{{ [1] * 10**9 }}", LIMIT),
    ("split", "{{ ('a ' * 900000) | split }}", LIMIT),
    ("split-separator", "{{ ('a,' * 900000) | split(',') }}", LIMIT),
    ("split-wide", "{{ ('a\u2003' * 900000) | split }}", LIMIT),
    ("lines", r"{{ ('\n' * 900000) | lines }}", LIMIT),
    ("list", "{{ big | list }}", LIMIT),
    ("join-text", "{{ big | join(',') }}", LIMIT),
    ("batch", "{{ [1] | batch(10**9, 0) }}", LIMIT),
    ("slice", "{{ [1] | slice(10**9) }}", LIMIT),
    ("zip", "{{ zip(range(99999), range(99999), range(99999), range(99999)) }}", LIMIT),
    ("flatten", "{{ ([range(1000)] * 10000) | flatten }}", LIMIT),
    ("flatten-deep", "{{ ([[range(1000)] * 100] * 1000) | flatten(64) }}", LIMIT),
    ("enumerate", "{{ range(400000) | enumerate }}", LIMIT),
    ("sort", "{{ range(200000) | sort(reverse=true) | sort }}", LIMIT),
    ("sort-texts", "{{ ([big, big2] * 1000) | sort }}", LIMIT),
    ("unique-lists", "{{ ([range(1000)] * 10000) | unique }}", LIMIT),
    ("group", "{{ ([{'a': range(1000)}] * 10000) | group_by('a') }}", LIMIT),
    ("map", "{{ range(300000) | map('str') }}", LIMIT),
    ("map-range", "{{ ([100000] * 1000) | map('range') }}", LIMIT),
    ("map-map", "{{ ([['a'] * 1000] * 1000) | map('map', 'upper') }}", LIMIT),
    ("find-all", "{{ ('a' * 900000) | regex_findall('a') }}", LIMIT),
    ("numbers", "{{ ('1 ' * 900000) | numbers }}", LIMIT),
    ("literal", "{{ [" + "1," * 200_000 + "] }}", LIMIT),
    ("literal-tokens", "{{ [" + "1," * 6_000 + "] }}", LIMIT),
    # Numbers that grow
    ("power", "{{ 10**10**10 }}", LIMIT),
    ("power-float", "{{ 10.0 ** 400 }}", "S408"),
    ("product", "{{ 9223372036854775807 * 9223372036854775807 }}", LIMIT),
    ("sum", "{{ ([9223372036854775807] * 3) | sum }}", LIMIT),
    ("digits", "{{ " + "9" * 5000 + " }}", "S251"),
    ("digits-json", "{{ ('9' * 100000) | from_json }}", "S408"),
    ("digits-text", "{{ ('9' * 300) | int }}", LIMIT),
    ("digits-find", "{{ ('9' * 100000) | numbers }}", "S408"),
    ("exp", "{{ exp(1000) }}", "S408"),
    ("round", "{{ 1.5 | round(10**9) }}", LIMIT),
    # Work
    ("loops", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", LIMIT),
    ("loops-short", "{% for a in range(999) %}{% for b in range(999) %}x{% endfor %}{% endfor %}", LIMIT),
    ("loops-filter", "{% for a in range(400000) if false %}{% endfor %}", LIMIT),
    ("compare-texts", "{% for i in range(9000) %}{{ big == big2 }}{% endfor %}", LIMIT),
    ("order-texts", "{% for i in range(9000) %}{{ big < big2 }}{% endfor %}", LIMIT),
    ("search-text", "{% for i in range(9000) %}{{ 'zz' in big }}{% endfor %}", LIMIT),
    ("search-list", "{% for i in range(9000) %}{{ 'z' in range(9999) }}{% endfor %}", LIMIT),
    ("count-text", "{% for i in range(9000) %}{{ big | replace('z', '') | len }}{% endfor %}", LIMIT),
    ("strip", "{{ big | strip('abcdefghijklmnop' * 1000) | strip('q' * 1000) | strip('z' * 9999) }}", LIMIT),
    ("regex-classic", "{{ ('a' * 9000000) | regex_search('(a+)+$b') }}", LIMIT),
    ("regex-states", "{{ ('ab' * 400000) | regex_findall('[ab]*a[ab]{200}c') }}", LIMIT),
    ("regex-restart", "{{ ('x' * 100000) | regex_findall('x*y|x') }}", LIMIT),
    ("regex-large", r"{{ 'a' | regex_search('(\\pL{1,100}){1,9}') }}", LIMIT),
    ("regex-nested", "{{ 'a' | regex_search('((a{100}){100}){100}') }}", LIMIT),
    ("regex-long", "{{ 'a' | regex_search('a?' * 5000) }}", LIMIT),
    ("regex-groups", "{{ 'a' | regex_search('(a)' * 100) }}", LIMIT),
    # Values that are larger than they look
    ("laughs", "{{ laughs }}", LIMIT),
    ("laughs-equal", "{{ laughs == laughs2 }}", LIMIT),
    ("laughs-unique", "{{ [laughs, laughs2] | unique }}", LIMIT),
    ("laughs-sort", "{{ [laughs, laughs2] | sort }}", LIMIT),
    ("laughs-flatten", "{{ laughs | flatten(64) }}", LIMIT),
    ("laughs-contains", "{{ [laughs] | contains(laughs2) }}", LIMIT),
    ("deep", "{{ deep }}", LIMIT),
    ("deep-equal", "{{ deep == deep2 }}", LIMIT),
    ("deep-sort", "{{ [deep, deep2] | sort }}", LIMIT),
    ("json-deep", "{{ ('[' * 100000) | from_json }}", LIMIT),
    ("json-deep-objects", "{{ ('{\"a\":' * 1000 ~ '1' ~ '}' * 1000) | from_json }}", LIMIT),
    ("json-wide", "{{ ('[' ~ '[],' * 900000 ~ '1]') | from_json }}", LIMIT),
    ("json-infinity", "{{ '1e999' | from_json }}", "S408"),
    # Nesting and chains
    ("parentheses", "{{ " + "(" * 65 + "1" + ")" * 65 + " }}", LIMIT),
    ("parentheses-many", "{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}", LIMIT),
    ("brackets", "{{ " + "[" * 2000 + "]" * 2000 + " }}", LIMIT),
    ("objects", "{{ " + "{'a':" * 70 + "1" + "}" * 70 + " }}", LIMIT),
    ("subscripts", "{{ x" + "[0" * 70 + "]" * 70 + " }}", LIMIT),
    ("calls", "{{ " + "len(" * 70 + "x" + ")" * 70 + " }}", LIMIT),
    ("arguments", "{{ x" + " | default(x" * 70 + ")" * 70 + " }}", LIMIT),
    ("attributes", "{{ a" + ".b" * 2400 + " }}", LIMIT),
    ("sum-chain", "{{ 1" + "+1" * 2400 + " }}", LIMIT),
    ("filter-chain", "{{ x" + "|upper" * 2400 + " }}", LIMIT),
    ("nots", "{{ " + "not " * 4000 + "x }}", LIMIT),
    ("signs", "{{ " + "-" * 4000 + "1 }}", LIMIT),
    ("conditionals", "{{ 1" + " if 1 else 1" * 1000 + " }}", LIMIT),
    ("tags", "{% if 1 %}" * 70 + "{% endif %}" * 70, LIMIT),
    ("loops-deep", "{% for x in y %}" * 70 + "{% endfor %}" * 70, LIMIT),
    ("many-tags", "{{ 'a' }}" * 3000, LIMIT),
    ("long", "{{ x }}" + "a" * 70_000, LIMIT),
    ("unclosed", "{{ '" + "a" * 60_000, "S251"),
    ("openers", "{{ " * 20_000, "S250"),
    ("raws", "{% raw %}" * 7_000, "S250"),
    # Ways out of the language
    ("class", "{{ ''.__class__ }}", "S408"),
    ("class-item", "{{ ''['__class__'] }}", "S408"),
    ("mro", "{{ [].__class__.__mro__[1].__subclasses__() }}", "S252"),
    ("attribute-path", "{{ [1] | map(attribute='__class__.__mro__') }}", "S408"),
    ("attr", "{{ '' | attr('__class__') }}", "S304"),
    ("format-method", "{{ '{0.__class__}'.format(1) }}", "S252"),
    ("format-map", "{{ '{a}'.format_map({}) }}", "S252"),
    ("format-attribute", "{{ '{0.__class__}' | format(1) }}", "S406"),
    ("format-name", "{{ '%(__class__)s' | format(a=1) }}", "S406"),
    ("self", "{{ self.__init__ }}", "S301"),
    ("globals", "{{ range.__globals__ }}", "S301"),
    ("lipsum", "{{ lipsum(n=100000) }}", "S304"),
    ("cycler", "{{ cycler.__init__.__globals__.os.popen('id').read() }}", "S252"),
    ("namespace", "{{ namespace(a=1) }}", "S304"),
    ("map-dunder", "{{ [1] | map('__class__') }}", "S304"),
    ("test-dunder", "{{ 1 is __class__ }}", "S304"),
    ("import", "{% import 'os' as os %}", "S252"),
    ("include", "{% include '/etc/passwd' %}", "S252"),
    ("null-byte", "{{ \0 }}", "S251"),
]


def scope() -> PlainScope:
    """Values that are dangerous to walk."""
    values: dict[str, Value] = {"x": "1", "big": "q" * 5_000_000, "big2": "q" * 4_999_999 + "r"}
    for name, seed in (("laughs", 1), ("laughs2", 1)):
        value: Value = [seed]
        for _ in range(60):
            value = [value, value]
        values[name] = value
    for name in ("deep", "deep2"):
        value = []
        for _ in range(5000):
            value = [value]
        values[name] = value
    return PlainScope(values)


def outcome(template: str, values: PlainScope) -> str:
    """The code of the syntax error, or the cause of the evaluation error; "ok" where there is none."""
    try:
        render(parse_template(template), values)
    except ExpressionSyntaxError as error:
        return error.code
    except EvaluationError as error:
        return error.cause or error.code
    return "ok"


def main() -> None:
    values = scope()
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
    for name, template, _ in CASES:
        start = time.process_time()
        result = outcome(template, values)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) // 1024
        line = {"name": name, "outcome": result, "seconds": time.process_time() - start, "megabytes": grown}
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
