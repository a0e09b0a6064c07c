"""What is put into documents: the words of the language, and what readers tend to stumble over."""

from __future__ import annotations

from typing import Any

from sglspec.document.familiar import FAMILIAR
from sglspec.document.model import TYPE_WORDS, Case, Decl, Limits, Retry, Sampling, Spec
from sglspec.document.model import VERBS as _VERBS

VERBS = [*_VERBS]
_MODELS = (Spec, Case, Decl, Limits, Retry, Sampling, *_VERBS.values())
KEYS = sorted(
    {
        *(field.alias or name for model in _MODELS for name, field in getattr(model, "model_fields", {}).items()),
        *VERBS, *TYPE_WORDS, *FAMILIAR, *FAMILIAR.values(), "x-own", "<<", "$ref", "", "a b", "7", "null", "true", "é", "loop",
    }
)  # fmt: skip

CHARACTERS = [
    "\0", "\x01", "\x1b[31m", "\x7f", "\x85", "\xa0", "\u200b", "\u2028", "\u2029", "\u202e", "\ufeff", "\ufffd", "\uffff", "\ud800",
    "\udfff", "\U0001f600", "e\u0301", "\u0130", "ß", "ﬁ", "字", "\U0010ffff", "\t", "\r", "\x0b", "\x0c", " ", '"', "'", "\\",
    "\\u0000", "\\ud800", "\\uD83D\\uDE00", "\\x", "\\U00110000", "\U000e0041", "١", "²", "Ⅷ",
]  # fmt: skip

MARKS = [
    ": ", ":", "- ", "-", "? ", "? x\n: y\n", "[", "]", "{", "}", ",", " #", "#", "|\n", "|-", "|+\n", "|2\n", ">-\n", ">", "!", "!!str ", "!x ",
    "&a ", "*a", "<<: ", "---\n", "...\n", "%YAML 1.1\n", "@", "`", "{{", "}}", "{%", "%}", "{{ ", " }}", "{% if %}", "{% endif %}", "{#",
    "#}", "{{{", "}}}", '"', "'", '""', "''", "\\", "\n", "\n\n", "\n  ", "~", "=", "==", "$", "\n\t", "''' ", '"""', "//", "/*",
]  # fmt: skip

NUMBERS = [
    "0", "-0", "-1", "1e999", "-1e999", "1e-999", "9" * 30, "9" * 5000, "0x1f", "0o17", "1_000", "1.", ".5", "+1", "007", ".inf", "-.inf",
    ".nan", "1e5", "9007199254740993", "18446744073709551616", "0.1", "1.0", "2147483648", "1:30", "2026-11-30", "٣", "1e", "0b1", "--1",
]  # fmt: skip

SCALARS = [
    *NUMBERS[:20], "~", "null", "yes", "no", "on", "TRUE", "x", '""', "''", "[]", "{}", "[x, y]", "{x: y}", "{{ x }}", '"{{ x }}"',
    '"{{ x | nope }}"', "'{% if x %}a{% endif %}'", "|", ">-", "- x", "*x", "&x", "!!int 3", "a: b", "a #b", "@x", "`x`", "%x", "x[]", "x[0]",
    "string", "list[string]", "string?", "./x.json", "{file: ./x.md}", "x == y", '"no" == x', "loop.index < 3", "x is defined",
]  # fmt: skip

EXPRESSIONS = [
    "x", "y", "a.b.c", "x[0]", "x[-1]", "x[1:2]", "loop.index", "loop", "1", "-1", "1.5", "1e400", "9" * 400, "'a'", '"a"', "'\\u00e9'",
    "'\\ud800'", "true", "null", "none", "True", "[]", "{}", "{'a': 1}", "[1, 'a', null]", "x is defined", "x is not none", "not x",
    "messages()", "transcript()", "meta(x).tokens", "meta(x)", "range(10)", "range(10 ** 9)", "x.y()", "x.__class__", "self", "texts.a", "'%s' % x",
    "x if y", "1 < 2 < 3", "x in [1, 2]", "x ~ y", "x ** 99", "'a' * 9", "x | map('upper')", "x | select('equalto', 1)", "a = b", "a b", "(", "é",
    "x | join(', ')", "x | regex_search('(a+)+$')", "x | regex_search('[')", "x | truncate(3)", "inputs.x", "loop.length > 2 and x", "1 / 0", "",
]  # fmt: skip

OPERATORS = [
    "+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">", "<=", ">=", "and", "or", "in", "not in", "|", "is", "&&", "=", ",", ".", "?", "===",
]  # fmt: skip

TEMPLATES = [
    "{{ x }}", "{{x}}", "{{ x", "x }}", "{{ }}", "{{{ x }}}", "{{- x -}}", "{% if x %}a{% elif y %}b{% else %}c{% endif %}", "{% if x %}",
    "{% endif %}", "{% for i in x %}{{ i }}{{ loop.index }}{% else %}-{% endfor %}", "{% for a, b in x %}{{ a }}{% endfor %}", "{% for x in y recursive %}{% endfor %}",
    "{% raw %}{{ x }}{% endraw %}", "{% raw %}", "{% set x = 1 %}", "{% macro f() %}{% endmacro %}", "{% include 'a' %}", "{# no #}", "{{ '}}' }}",
    "{{ \"a\" 'b' }}", "{{ x\n}}", "a\n  {% if x %}\nb\n  {% endif %}\nc", "{% if x %}\n{% endif %}", "{{ (x }}", "{{ x) }}", "{{ [x, }}", "{% else %}",
    "{%- if x -%} a {%- endif -%}", "{%+ if x %}{% endif %}", "{{ x|upper|lower }}", "{{ {'a': {'b': 1}} }}", "{{ '\\' }}", "{{ 'é😀' ~ x }}", "{{ x }}" * 3, "<|im_start|>",
]  # fmt: skip

PATTERNS = [
    ("regex", "(a|b)*c"), ("regex", "("), ("regex", "a{1000}"), ("regex", "((a{100}){100}){100}"), ("regex", "(?=a)b"), ("regex", "\\d+(?P<x>a)"), ("regex", "[z-a]"),
    ("regex", "\\p{L}+"), ("regex", "a**"), ("regex", ""), ("regex", "$^"), ("regex", "(a+)+b"), ("regex", "\\u00e9\\x{1F600}"), ("regex", "{{ x }}"), ("regex", "[^\\s\\S]"),
    ("regex", "(?i)straße"), ("regex", "\\"), ("regex", "a{,3}"), ("regex", "a{3,1}"), ("regex", "\\1"), ("regex", "(?:" * 60 + "a" + ")" * 60),
    ("grammar", 'start: "a" | "b"'), ("grammar", 'start: "a" start'), ("grammar", 'start: start "a"'), ("grammar", "start: x\nx: x"), ("grammar", "start: /(/"),
    ("grammar", "start: nothing"), ("grammar", ""), ("grammar", 'begin: "a"'), ("grammar", 'start: "a"~3'), ("grammar", "start: WORD\n%import common.WORD"),
    ("grammar", 'start: "{{ x }}"'), ("grammar", "start: /a{{ x }}/"), ("grammar", 'start: "a" {% if x %}"b"{% endif %}'), ("grammar", "start: \"a\nb\""), ("grammar", "start: (("),
    ("grammar", 'start: A\nA: "a" A'), ("grammar", "start: <[1]>"), ("grammar", "%llguidance {}\nstart: /a/"), ("grammar", 'start: %json {"type": "strin"}'), ("grammar", "// c\nstart: /a/i"),
    ("schema", "{type: object, properties: {a: {$ref: '#/$defs/a'}}, $defs: {a: {$ref: '#'}}}"), ("schema", "{$ref: '#/nope'}"), ("schema", "{type: strin}"), ("schema", "true"),
    ("schema", "{type: string, pattern: '(', format: nope}"), ("schema", "{allOf: [{type: string}, {type: integer}]}"), ("schema", "{enum: []}"), ("schema", "{minimum: 5, maximum: 1}"),
    ("schema", "{type: object, patternProperties: {'(': {}}}"), ("schema", "{oneOf: [{}, {}]}"), ("schema", "{not: {}}"), ("schema", "{multipleOf: 0.1}"), ("schema", "{const: {a: [1, null]}}"),
    ("schema", "./none.json"), ("schema", "'{{ x }}'"), ("schema", "[1]"), ("schema", "{type: array, minItems: 5, maxItems: 2}"), ("schema", "{type: string, maxLength: 1e9}"),
    ("schema", "{type: [string, 'null'], minLength: -1}"), ("schema", "{$ref: 'https://example.com/x'}"), ("schema", "{if: {}, then: {}}"), ("schema", "{items: [{}, {}]}"),
    ("fields", "{}"), ("fields", "{a: {enum: [1, 1]}}"), ("fields", "{a: {type: array, items: {properties: {b: {}}}}}"), ("fields", "{a: strin}"), ("fields", "{a: {minimum: 3, maximum: 2}}"),
    ("fields", "{'': string, 'a b': {type: string, pattern: '['}}"), ("type", "intger"), ("type", "quoted"), ("reasoning", "{open: a, close: b, budget: 999}"), ("stop_regex", "'('"),
    ("stop_regex", "['a*', '']"), ("logit_bias", "{x: 1}"), ("n", "0"), ("n", "2"), ("retry", "{max: 3, until: odd == 1}"), ("keep", "best"), ("max_tokens", "'{{ x }}'"), ("stop", "['', '\\n']"),
]  # fmt: skip

VALUES: list[Any] = [
    None, True, False, 0, -1, 3, 1.5, 10**30, "", "x", "no", "{{ x }}", "x == 1", "x[]", "string", [], {}, ["a", "b"], [1, None], {"a": 1}, {"gen": "x"}, [{"gen": "x"}],
    [{"user": "a"}, {"gen": "y"}], {"type": "string"}, {"file": "./a.md"}, "a\nb\n", "\n", " lead", "tail ", "\ud800", "\0", "\u2028", "x" * 300, {"": ""}, [[[[]]]],
    {"if": "x", "then": ["a"]}, {"fork": 2, "do": [{"gen": "z"}]}, {"role": "user", "content": "a"}, "é😀",
]  # fmt: skip
