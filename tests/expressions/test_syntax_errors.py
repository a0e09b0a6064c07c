"""What does not parse: code, the exact text that the error points at, and words of the message."""

from __future__ import annotations

import pytest

from sglspec.expressions import ExpressionSyntaxError, parse_expression, parse_template

# template, code, the text pointed at, its offset, a part of message or help
TEMPLATES = [
    ("a {{ x", "S250", "{{", 2, "never closed"),
    ("a {% if x", "S250", "{%", 2, "never closed"),
    ("{{ x }} {{ y", "S250", "{{", 8, "`}}`"),
    ("{{ x {{ y }}", "S250", "{{", 0, "never closed"),
    ("{{ }}", "S250", "{{ }}", 0, "Nothing stands between"),
    ("a{{}}", "S250", "{{}}", 1, "raw"),
    ("{{{ x }}}", "S254", "{{{", 0, "Three braces"),
    ("ab {{{x}}}", "S254", "{{{", 3, "two"),
    ("{{ x } and more", "S250", "}", 5, "`}}`"),
    ("{{ x %}", "S250", "%}", 5, "`}}`"),
    ("{% if x }}", "S250", "}}", 8, "`%}`"),
    ("{% if x %}a", "S250", "if", 3, "{% endif %}"),
    ("{% for x in y %}a", "S250", "for", 3, "{% endfor %}"),
    ("a{% endif %}", "S250", "endif", 4, "closes nothing"),
    ("{% if x %}{% endfor %}", "S250", "endfor", 13, "{% endif %}"),
    ("{% else %}", "S250", "else", 3, "outside"),
    ("{% for x in y %}{% elif z %}{% endfor %}", "S250", "elif", 19, "outside an `{% if %}`"),
    ("{% if x %}{% else %}{% else %}{% endif %}", "S250", "else", 23, "after"),
    ("{% if x %}{% else if y %}{% endif %}", "S250", "if y", 18, "{% elif"),
    ("{% if %}a{% endif %}", "S250", "{% if %}", 0, "not complete"),
    ("{% for x y %}{% endfor %}", "S250", "y", 9, "`in`"),
    ("{% for in y %}{% endfor %}", "S250", "in", 7, "for x in items"),
    ("{% for x in %}{% endfor %}", "S250", "in", 9, "Nothing follows"),
    ("{% for loop in y %}{% endfor %}", "S250", "loop", 7, "cannot be"),
    ("{% for a, a in y %}{% endfor %}", "S250", "a", 10, "twice"),
    ("{% for x.y in z %}{% endfor %}", "S250", ".", 8, "name"),
    ("{% for x in y recursive %}{% endfor %}", "S252", "recursive", 14, "recursive"),
    ("{% set x = 1 %}", "S252", "set", 3, "`set` step"),
    ("{% macro f() %}{% endmacro %}", "S252", "macro", 3, "include"),
    ("{% include 'x' %}", "S252", "include", 3, "texts"),
    ("{% import 'x' as y %}", "S252", "import", 3, "use"),
    ("{% extends 'x' %}", "S252", "extends", 3, "texts"),
    ("{% block x %}{% endblock %}", "S252", "block", 3, "no `{% block %}`"),
    ("{% call f() %}{% endcall %}", "S252", "call", 3, "no `{% call %}`"),
    ("{% filter upper %}{% endfilter %}", "S252", "filter", 3, "{{ value | filter }}"),
    ("{% with x = 1 %}{% endwith %}", "S252", "with", 3, "`set`"),
    ("{% endset %}", "S252", "endset", 3, "endset"),
    ("{% raw %}x", "S250", "{% raw %}", 0, "endraw"),
    ("x{% endraw %}", "S250", "endraw", 4, "raw"),
    ("{% elseif x %}", "S250", "elseif", 3, "{% elif"),
    ("{% end %}", "S250", "end", 3, "{% endif %}"),
    ("{% 1 %}", "S250", "{% 1 %}", 0, "must be followed"),
    ("{% %}", "S250", "{% %}", 0, "must be followed"),
    ("{% if x = 1 %}{% endif %}", "S251", "=", 8, "`==`"),
    ("{{ x = 1 }}", "S251", "=", 5, "`==`"),
    ("{{ my name }}", "S251", "name", 6, "no spaces"),
    ("{{ it's }}", "S251", "'", 5, "no closing"),
    ("{{ 'abc }} text\nit's {{ x }}", "S251", "'", 3, "no closing"),
    ("{{ a, b }}", "S251", ",", 4, "[a, b]"),
    ("{{ ( }}", "S251", "(", 3, "never closed"),
    ("{{ [1, 2 }}", "S251", "[", 3, "never closed"),
    ("{{ (1] }}", "S251", "]", 5, "wants `)`"),
    ("{{ 1) }}", "S251", ")", 4, "closes nothing"),
    ("{{ x + }}", "S251", "+", 5, "missing after `+`"),
    ("{{ | upper }}", "S251", "|", 3, "cannot start"),
    ("{{ x | }}", "S251", "|", 5, "missing"),
    ("{{ x. }}", "S251", ".", 4, "missing"),
    ("{{ not }}", "S251", "not", 3, "missing"),
    ("{{ x | default 'a' }}", "S251", "a", 15, "default('a')"),
    ("{{ x.upper() }}", "S252", "upper(", 5, "x | upper"),
    ("{{ f(x)(y) }}", "S252", "(", 7, "library"),
    ("{{ join(*x) }}", "S252", "(", 7, "unpacked"),
    ("{{ x | nosuch }}", "S304", "nosuch", 7, "no function"),
    ("{{ x | uper }}", "S304", "uper", 7, "`upper`"),
    ("{{ nosuch(x) }}", "S304", "nosuch", 3, "no function"),
    ("{{ x | tojson }}", "S304", "tojson", 7, "to_json"),
    ("{{ x is nosuch }}", "S304", "nosuch", 8, "no test"),
    ("{{ x is upper }}", "S304", "upper", 8, "x | upper"),
    ("{{ x | map('nosuch') }}", "S304", "'nosuch'", 11, "no function"),
    ("{{ x | select('nosuch') }}", "S304", "'nosuch'", 14, "no test"),
    ("{{ x | upper(1) }}", "S406", "upper(1)", 7, "at most one"),
    ("{{ x | replace('a') }}", "S406", "replace('a')", 7, "`new`"),
    ("{{ x | join(sep=',') }}", "S406", "join(sep=',')", 7, "no argument `sep`"),
    ("{{ x | join(',', d='') }}", "S406", "join(',', d='')", 7, "twice"),
    ("{{ x | map }}", "S406", "map", 7, "map('upper')"),
    ("{{ x | map(y) }}", "S406", "y", 11, "between quotes"),
    ("{{ x | map('replace', 'a') }}", "S406", "'replace', 'a')", 11, "`new`"),
    ("{{ x is odd(1) }}", "S406", "odd", 8, "no argument"),
    ("{{ x is divisibleby }}", "S406", "divisibleby", 8, "one argument"),
    ("{{ meta('x') }}", "S406", "meta('x')", 3, "name of one variable"),
    ("{{ messages(1) }}", "S406", "messages(1)", 3, "no arguments"),
    ("{{ x | regex_search('(') }}", "S501", "'('", 20, "wrong pattern"),
    ("{{ x | regex_search('(?=a)') }}", "S502", "'(?=a)'", 20, "Lookahead"),
    ("{{ 'a' 'b' }}", "S251", "'b'", 7, "comma or `~`"),
    ("é你😀 {{ x | nosuch }}", "S304", "nosuch", 11, "no function"),
]


@pytest.mark.parametrize(("template", "code", "pointed", "offset", "words"), TEMPLATES)
def test_template(template: str, code: str, pointed: str, offset: int, words: str) -> None:
    with pytest.raises(ExpressionSyntaxError) as caught:
        parse_template(template)
    error = caught.value
    assert (error.code, error.start) == (code, offset), error
    assert template[error.start : error.end].strip("'\"") == pointed.strip("'\"")
    assert words in f"{error.message} {error.help}"


EXPRESSIONS = [
    ("", "S251", 0, "empty"),
    ("  ", "S251", 0, "empty"),
    ("x = 1", "S251", 2, "`==`"),
    ("a && b", "S251", 2, "`and`"),
    ("a || b", "S251", 2, "`or`"),
    ("!a", "S251", 0, "`not`"),
    ("a === b", "S251", 2, "`==`"),
    ("a !== b", "S251", 2, "`!=`"),
    ("a ? b : c", "S251", 2, "if condition else"),
    ("$x", "S251", 0, "{{ topic }}"),
    ("x; y", "S251", 1, "one expression"),
    ("a AND b", "S251", 2, "`and`"),
    ("“x”", "S251", 0, "straight"),
    ("{{ x }} == 1", "S255", 0, "without braces"),
    ("x == {{ y }}", "S255", 5, "without braces"),
    ("x }}", "S255", 2, "without braces"),
    ("{% if x %}", "S255", 0, "without braces"),
    ("x == 'a {{ y }}'", "S255", 5, "`~`"),
    ("{{ x }}{{ y }}", "S255", 0, "without braces"),
    ("x }", "S251", 2, "closes nothing"),
    ("(x", "S251", 0, "never closed"),
    ("x ==", "S251", 2, "missing"),
    ("007", "S251", 0, "starts with 0"),
    ("3px", "S251", 0, "neither"),
    ("99999999999999999999", "S251", 0, "too large"),
    ("1e999", "S251", 0, "too large"),
    (r"'\ud800'", "S251", 1, "half"),
    ("x is 'a'", "S251", 5, "`==`"),
    ("[x for x in y]", "S251", 3, "map("),
    ("x.y()", "S252", 2, "methods"),
    ("x.get('a')", "S252", 2, "default"),
    ("x[1, 2]", "S251", 1, "One index"),
    ('topic == "x" else', "S251", 13, "does not belong"),
    ("x @ y", "S251", 2, "`@`"),
]


@pytest.mark.parametrize(("expression", "code", "offset", "words"), EXPRESSIONS)
def test_expression(expression: str, code: str, offset: int, words: str) -> None:
    with pytest.raises(ExpressionSyntaxError) as caught:
        parse_expression(expression)
    error = caught.value
    assert (error.code, error.start) == (code, offset), error
    assert 0 <= error.start <= error.end
    assert words in f"{error.message} {error.help}"
