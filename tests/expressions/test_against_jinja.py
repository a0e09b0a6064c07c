"""Where our language and Jinja2 mean the same, they give the same. Properties over generated templates."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from sglspec.expressions import (
    EvaluationError,
    ExpressionSyntaxError,
    Value,
    evaluate,
    parse_expression,
    parse_template,
    render,
    value_to_text,
)
from tests.expressions.scopes import PlainScope, text_of

VALUES: dict[str, Value] = {
    "i": 7,
    "j": -2,
    "f": 2.5,
    "s": "Tea for 2",
    "t": "",
    "xs": [3, 1, 2],
    "ws": ["b", "A", "c", "b"],
    "o": {"a": 1, "b": [1, "x"]},
    "yes": True,
    "no": False,
}

JINJA = SandboxedEnvironment(
    undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)


def _combine(*parts: Any) -> st.SearchStrategy[str]:
    strategies = [st.just(part) if isinstance(part, str) else part for part in parts]
    return st.tuples(*strategies).map("".join)


def _number(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        _combine("(", inner, st.sampled_from([" + ", " - ", " * ", " / ", " // ", " % "]), inner, ")"),
        _combine("(", inner, ")"),
        _combine("-", inner),
        _combine("(", inner, " if ", inner, " > ", inner, " else ", inner, ")"),
        _combine("(", inner, " | abs)"),
        _combine("(", inner, " | round(1))"),
        _combine("([", inner, ", ", inner, "] | sum)"),
        _combine("([", inner, ", ", inner, "] | max)"),
        _combine("([", inner, ", ", inner, "] | sort | first)"),
    )


def _text(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        _combine("(", inner, " ~ ", inner, ")"),
        _combine("(", inner, " + ", inner, ")"),
        _combine("(", inner, " * 2)"),
        _combine("(", inner, st.sampled_from([" | upper", " | lower", " | title", " | trim", " | reverse"]), ")"),
        _combine("(", inner, " | replace('a', 'bb'))"),
        _combine("(", inner, " | replace('e', '', 1))"),
        _combine("(", inner, " | truncate(4, true, '.', 0))"),
        _combine("(", inner, " | truncate(5))"),
        _combine("(", inner, " | indent(2, true))"),
        _combine("([", inner, ", ", inner, "] | join('-'))"),
        _combine("(", inner, " or ", inner, ")"),
        _combine("(", inner, " and ", inner, ")"),
        _combine("('%s=%5s' | format(", inner, ", ", inner, "))"),
        _combine("(", inner, ")[1:]"),
        _combine("(", inner, ")[::-2]"),
    )


NUMBERS = st.recursive(
    st.sampled_from(["0", "1", "42", "2.5", "1e3", "i", "j", "f", "xs[0]", "o.a", "(xs | length)", "o['b'][0]"]),
    _number,
    max_leaves=6,
)
TEXTS = st.recursive(
    st.sampled_from(["'a'", '"it\'s"', "s", "t", "ws[1]", "'é\\n x'", "o.b.1", "'a b-c (d)'"]), _text, max_leaves=6
)
BOOLEANS = st.recursive(
    st.one_of(
        _combine(NUMBERS, st.sampled_from([" == ", " != ", " < ", " >= "]), NUMBERS),
        _combine(TEXTS, st.sampled_from([" == ", " < ", " in ", " not in "]), TEXTS),
        _combine(NUMBERS, st.sampled_from([" in xs", " not in xs"])),
        _combine("0 < ", NUMBERS, " < 10"),
        _combine(TEXTS, st.sampled_from([" is string", " is none", " is not defined", " is mapping"])),
        st.sampled_from(["yes", "no", "true", "i is odd", "i is divisibleby 7", "ws is sequence", "'x' in o"]),
    ),
    lambda inner: st.one_of(
        _combine("(", inner, st.sampled_from([" and ", " or "]), inner, ")"), _combine("not ", inner)
    ),
    max_leaves=4,
)
LISTS = st.one_of(
    _combine("[", NUMBERS, ", ", TEXTS, "]"),
    st.sampled_from(
        [
            "xs | sort",
            "ws | sort",
            "ws | sort(reverse=true, case_sensitive=true)",
            "ws | unique | list",
            "xs | batch(2) | list",
            "xs | slice(2) | list",
            "xs | map('abs') | list",
            "xs | select('odd') | list",
            "xs | reject('gt', 2) | list",
            "ws | map('upper') | list",
            "[o, o] | map(attribute='b.0') | list",
            "range(1, 9, 3) | list",
            "xs + [4]",
            "xs[1:] + xs[:-1]",
            "o | items | list",
            "[s, t] | reverse | list",
            "(1, 'a', [i])",
        ]
    ),
)
EXPRESSIONS = st.one_of(NUMBERS, TEXTS, BOOLEANS, LISTS)


def _plain(value: Any) -> Any:
    """Tuples are lists here."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


@settings(max_examples=600, deadline=None)
@given(EXPRESSIONS)
def test_expressions_have_the_value_that_jinja_gives(text: str) -> None:
    try:
        expected = JINJA.compile_expression(text, undefined_to_none=False)(**VALUES)
    except (ZeroDivisionError, OverflowError):
        expected = EvaluationError
    try:
        value = evaluate(parse_expression(text), PlainScope(VALUES))
    except EvaluationError as error:
        assert expected is EvaluationError or error.is_limit or "finite" in error.message
        return
    assert value == _plain(expected)
    assert type(value) is type(_plain(expected))


WORDS = st.sampled_from(
    ["text", "  two words ", "", "- {{ s }}", "{{ i }} and {{ ws | join(', ') }}.", "}} %} {", "\t{{ s }}"]
)


def _line(text: str) -> str:
    return text + "\n"


def _block(parts: tuple[str, str, list[str], list[str] | None]) -> str:
    pad, opening, body, otherwise = parts
    word = opening.split()[0]
    text = f"{pad}{{% {opening} %}}\n" + "".join(body)
    if otherwise is not None:
        text += f"{pad}{{% else %}}\n" + "".join(otherwise)
    return text + f"{pad}{{% end{word} %}}\n"


OPENINGS = st.sampled_from(
    [
        "if yes",
        "if no",
        "if i > 3 and t",
        "for x in xs",
        "for x in []",
        "for x in ws if x != 'b'",
        "for k, v in o | items",
    ]
)
PADS = st.sampled_from(["", "  ", "\t"])
LINES = st.recursive(
    WORDS.map(_line),
    lambda inner: st.tuples(PADS, OPENINGS, st.lists(inner, max_size=3), st.none() | st.lists(inner, max_size=2)).map(
        _block
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(LINES, max_size=5).map("".join), st.booleans())
def test_tag_lines_vanish_as_with_trim_and_lstrip(template: str, cut: bool) -> None:
    template = template[:-1] if cut else template
    assert text_of(template, VALUES) == JINJA.from_string(template).render(**VALUES)


def _stripped_block(parts: tuple[str, list[str]]) -> str:
    opening, body = parts
    return f"{{%- {opening} -%}}{''.join(body)}{{%- end{opening.split()[0]} -%}}"


INLINE = st.recursive(
    st.sampled_from(["a", " ", "\n", "{{ i }}", "{{- s }}", "{{ s -}}", " {{- s -}} ", "}", "b \n "]),
    lambda inner: st.tuples(st.sampled_from(["if yes", "if no", "for x in xs"]), st.lists(inner, max_size=3)).map(
        _stripped_block
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(INLINE, max_size=6).map("".join))
def test_control_marks_strip_as_in_jinja(template: str) -> None:
    expected = SandboxedEnvironment(keep_trailing_newline=True).from_string(template).render(**VALUES)
    assert text_of(template, VALUES) == expected


FRAGMENTS = st.sampled_from(
    [
        "{{",
        "}}",
        "{%",
        "%}",
        "{%-",
        "-%}",
        "{{{",
        "raw",
        "endraw",
        "if",
        "elif",
        "else",
        "endif",
        "for",
        "in",
        "endfor",
        "set",
        "not",
        "and",
        "or",
        "is",
        "x",
        "y",
        "loop",
        ".",
        ",",
        ":",
        "|",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "=",
        "==",
        "+",
        "-",
        "*",
        "/",
        "//",
        "**",
        "%",
        "~",
        "<",
        ">",
        "!",
        "?",
        "$",
        "&",
        "'",
        '"',
        "\\",
        "1",
        "2.5",
        "'a'",
        "upper",
        "join(",
        "default",
        "map(",
        "meta(",
        "é",
        "😀",
        "�",
        "\x00",
    ]
) | st.sampled_from([" ", "\n", "\t", "text "])


@settings(max_examples=800, deadline=None)
@given(st.lists(FRAGMENTS, max_size=25).map("".join) | st.text(max_size=40))
def test_any_text_parses_or_gets_a_place(text: str) -> None:
    for parse in (parse_template, parse_expression):
        try:
            parsed = parse(text)
        except ExpressionSyntaxError as error:
            assert 0 <= error.start <= error.end <= max(1, len(text))
            assert error.message
            continue
        for use in parsed.names:
            assert text[use.start : use.end] == use.name


@settings(max_examples=600, deadline=None)
@given(st.lists(FRAGMENTS, max_size=12).map(lambda parts: "{{ " + " ".join(parts) + " }}"))
def test_what_parses_evaluates_or_gets_a_place(text: str) -> None:
    try:
        template = parse_template(text)
    except ExpressionSyntaxError:
        return
    try:
        render(template, PlainScope({"x": 1, "y": ["a", {"b": None}]}))
    except EvaluationError as error:
        assert 0 <= error.start < error.end <= len(text)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_values_survive_a_round_trip_through_json(value: Any) -> None:
    scope = PlainScope({"x": value})
    assert evaluate(parse_expression("x | to_json | from_json == x"), scope) is True
    assert evaluate(parse_expression("x | to_json"), scope) == json.dumps(value, ensure_ascii=False)
    text = value_to_text(value)
    assert text == (value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False))
    segments = render(parse_template("{{ x }}"), scope)
    assert "".join(segment.text for segment in segments) == text
