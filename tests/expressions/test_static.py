"""What is known about a template without running it."""

from __future__ import annotations

import pytest

from sglspec.expressions import (
    ExpressionSyntaxError,
    NameUse,
    Segment,
    Value,
    ast,
    looks_like_expression,
    parse_expression,
    parse_template,
    render,
)
from sglspec.expressions.names import children
from tests.expressions.scopes import PlainScope, text_of


def test_names_come_with_their_places_in_order() -> None:
    template = parse_template("a {{ x }} {% if y > x %}{{ z.w[i] | join(sep) }}{% endif %}")
    assert [(use.name, use.start, use.end) for use in template.names] == [
        ("x", 5, 6),
        ("y", 16, 17),
        ("x", 20, 21),
        ("z", 27, 28),
        ("i", 31, 32),
        ("sep", 41, 44),
    ]
    assert template.functions == ("join",)


LOOPS = [
    ("{% for x in xs %}{{ x }}{{ y }}{{ loop.index }}{% endfor %}", ["xs", "y"]),
    ("{% for x in x %}{{ x }}{% endfor %}{{ x }}", ["x", "x"]),
    ("{% for a, b in xs if a %}{{ b }}{% else %}{{ a }}{% endfor %}", ["xs", "a"]),
    ("{% for x in xs %}{% for y in x %}{{ x }}{{ y }}{% endfor %}{{ y }}{% endfor %}", ["xs", "y"]),
    ("{{ loop.index }}", ["loop"]),
    ("{{ texts.rules }}", ["texts"]),
    ("{{ null }}{{ true }}{{ 'x' }}", []),
    ("{{ {'a': b}.a }}", ["b"]),
]


@pytest.mark.parametrize(("template", "names"), LOOPS)
def test_variables_of_loops_are_not_free(template: str, names: list[str]) -> None:
    assert [use.name for use in parse_template(template).names] == names


GUARDS = [
    ("x is defined", [True]),
    ("x is not defined", [True]),
    ("x is none", [False]),
    ("x | default('a')", [True]),
    ("default(x, y)", [True, False]),
    ("default(value=x, default_value=y)", [True, False]),
    ("x.a[0].b | default('a')", [True]),
    ("x[i] | default('a')", [True, False]),
    ("(x | upper) | default('a')", [False]),
    ("x if x is defined else y", [True, True, False]),
    ("y if x is not defined else x", [False, True, True]),
    ("x is defined and x > 1", [True, True]),
    ("x > 1 and x is defined", [False, True]),
    ("x is not defined or x > 1", [True, True]),
    ("x is defined or x > 1", [True, False]),
    ("not x is defined or x", [True, True]),
    ("(x is defined and y is defined) and x + y", [True, True, True, True]),
]


@pytest.mark.parametrize(("expression", "guarded"), GUARDS)
def test_guarded_uses(expression: str, guarded: list[bool]) -> None:
    assert [use.guarded for use in parse_expression(expression).names] == guarded


def test_an_if_guards_its_branches() -> None:
    template = parse_template("{% if x is defined %}{{ x }}{% else %}{{ x }}{% endif %}{{ x }}")
    assert [use.guarded for use in template.names] == [True, True, False, False]
    template = parse_template("{% if x is undefined %}{{ x }}{% elif y %}{{ x }}{% else %}{{ x }}{% endif %}")
    assert [use.guarded for use in template.names if use.name == "x"] == [True, False, True, True]


def test_meta_takes_a_name() -> None:
    expression = parse_expression("meta(answer).finish == 'stop'")
    assert expression.names == (NameUse("answer", 5, 11, meta=True),)
    assert expression.functions == ("meta",)


def test_single_is_exactly_one_insertion() -> None:
    assert parse_template("{{ x }}").single is not None
    assert parse_template("{{- x -}}").single is not None
    assert parse_template("\n{{ x }}\n", message=True).single is not None
    for text in (
        "",
        "x",
        " {{ x }}",
        "{{ x }}\n",
        "{{ x }}{{ y }}",
        "{% if x %}{% endif %}",
        "{% raw %}{{ x }}{% endraw %}",
    ):
        assert parse_template(text).single is None


def test_constant_templates() -> None:
    assert parse_template("plain text }} and {# this #}").is_constant
    assert parse_template("{% raw %}{{ x }}{% endraw %}").is_constant
    assert not parse_template("{{ 1 }}").is_constant


def test_plain_text_may_be_longer_than_a_template() -> None:
    assert parse_template("x" * 500_000).is_constant
    with pytest.raises(ExpressionSyntaxError, match="64 KB"):
        parse_template("x" * 70_000 + "{{ x }}")
    with pytest.raises(ExpressionSyntaxError, match="64 KB"):
        parse_template("你" * 30_000 + "{{ x }}")


def test_braces_around_a_whole_expression_are_tolerated() -> None:
    text = "  {{ topic == 'x' }} "
    expression = parse_expression(text)
    assert isinstance(expression.root, ast.Compare)
    assert [(use.name, text[use.start : use.end]) for use in expression.names] == [("topic", "topic")]


SPANS = [
    "(a + b) * c",
    "a.b[0].c | join(', ') | upper",
    "x is not divisibleby 3",
    "x is divisibleby(3)",
    "[1, (2), {'k': v}]",
    "f if (g) else ((h))",
    "not (a and b) or c",
    "a ~ (b ~ c)",
    "max(a, (b))",
    "-(a)",
    "a[1:(2)]",
    "a < (b) < c",
    "()",
    "x.0.1",
]


@pytest.mark.parametrize("text", SPANS)
def test_places_cover_the_whole_expression_and_nest(text: str) -> None:
    root = parse_expression(text).root
    assert text[root.start : root.end] == text

    def check(node: ast.Expr) -> None:
        for child in children(node):
            assert node.start <= child.start < child.end <= node.end
            check(child)

    check(root)


VISIBLE = {"topic", "i", "a", "notes"}

LOOKALIKES = [
    ("topic", True),
    ("i + 1", True),
    ("topic | upper", True),
    ("a.b", True),
    ("a[0]", True),
    ("upper(topic)", True),
    ("not topic", True),
    ("topic == 'x'", True),
    ("topic ~ '!'", True),
    ("'x' if topic else 'y'", True),
    ("topic and notes", True),
    ("len(notes) > loop.index", True),
    ("Topic", False),
    ("the topic", False),
    ("topic: x", False),
    ("topic (draft)", False),
    ("topic, notes", False),
    ("topic or something", False),
    ("topic.", False),
    ("- topic", False),
    ("[topic]", False),
    ("'topic'", False),
    ("{{ topic }}", False),
    ("well-known", False),
    ("a well-known topic", False),
    ("3 + 4", False),
    ("42", False),
    ("", False),
    ("topic\n", False),
    ("I am a cat", False),
    ("What is i?", False),
]


@pytest.mark.parametrize(("text", "expected"), LOOKALIKES)
def test_looks_like_expression(text: str, expected: bool) -> None:
    assert looks_like_expression(text, VISIBLE) is expected


SEGMENTS = [
    ("a {{ i }} b", [("a ", "author"), ("I", "input"), (" b", "author")]),
    ("{{ i }}{{ i }}", [("II", "input")]),
    ("{{ g ~ i }}", [("GI", "generated")]),
    ("{{ t ~ i }}", [("TI", "tool")]),
    ("{{ 'x' }}", [("x", "author")]),
    ("{{ i if g else 'x' }}", [("I", "generated")]),
    ("{% if g %}x{% endif %}", [("x", "author")]),
    ("{% for c in g | list %}{{ c }}{{ loop.index }}{% endfor %}", [("G", "generated"), ("1", "author")]),
    ("{{ g | len }}", [("1", "generated")]),
    ("{{ transcript() }}", [("USER: hello", "generated")]),
    ("{{ i }}{{ e }}x", [("I", "input"), ("x", "author")]),
    ("", []),
]


@pytest.mark.parametrize(("template", "expected"), SEGMENTS)
def test_segments_carry_the_least_trusted_origin(template: str, expected: list[tuple[str, str]]) -> None:
    scope = PlainScope(
        {"i": "I", "g": "G", "t": "T", "e": ""}, {"i": "input", "g": "generated", "t": "tool", "e": "generated"}
    )
    segments = render(parse_template(template), scope)
    assert [(segment.text, segment.origin) for segment in segments] == expected
    assert all(isinstance(segment, Segment) for segment in segments)


def test_inserted_text_is_never_rendered_again() -> None:
    values: dict[str, Value] = {"x": "{{ secret }}{% if %}{% raw %}", "secret": "no"}
    assert text_of("{{ x }}|{{ x | upper }}|{{ [x] }}", values) == (
        '{{ secret }}{% if %}{% raw %}|{{ SECRET }}{% IF %}{% RAW %}|["{{ secret }}{% if %}{% raw %}"]'
    )
