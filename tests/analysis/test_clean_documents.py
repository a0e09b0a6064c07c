"""Right documents: no message at all, and a program that holds everything compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglspec.analysis import Program, load_program
from sglspec.analysis.program import Constant, ListValue, Rendered
from sglspec.diagnostics import Report
from sglspec.document.model import Gen, Set, While
from sglspec.document.read import read_source, source_from_text
from tests.effort import calls_of

EXAMPLES = Path(__file__).parents[2] / "examples"
HEAD = "sglspec: v1\n"

CLEAN: list[tuple[str, str]] = [
    ("if and else bind", "inputs: {a: boolean}\nsteps:\n  - if: a\n    then: {gen: x}\n    else: {set: {x: null}}\n  - '{{ x }}'\n"),
    ("the other arm leaves", "inputs: {a: boolean}\nsteps:\n  - if: a\n    then: {gen: x}\n    else: {fail: no}\n  - '{{ x }}'\n"),
    ("every case binds", "inputs: {a: string}\nsteps:\n  - match: a\n    cases:\n      b: {gen: x}\n      c: {gen: x}\n  - '{{ x }}'\n"),
    ("for over a literal list", "steps:\n  - for: i\n    in: [1, 2]\n    do:\n      - '{{ i }}'\n      - gen: x\n  - '{{ x }}'\n"),
    ("for over a list expression", "steps:\n  - for: i\n    in: '[1, 2]'\n    do:\n      - '{{ i }}'\n      - gen: x\n  - '{{ x }}'\n"),
    ("loops one after the other", "steps:\n  - for: i\n    in: [1]\n    do: ['{{ i }}']\n  - for: i\n    in: [2]\n    do: ['{{ i }}']\n  - set: {i: 3}\n  - '{{ i }}'\n"),
    ("set first", "steps:\n  - set: {x: null}\n  - while: x == null\n    max: 3\n    do: {gen: x}\n  - '{{ x }}'\n"),
    ("guards", "inputs: {a: boolean}\nsteps:\n  - if: a\n    then: {gen: x}\n  - \"{{ x | default('n') }}{{ x if x is defined }}{% if x is defined %}{{ x }}{% endif %}\"\n  - if: x is defined and x != 'y'\n    then: ['{{ x }}']\n"),
    ("continue skips", "steps:\n  - for: i\n    in: [1, 2]\n    do:\n      - if: i == 1\n        then: {continue: }\n        else: {gen: x}\n      - '{{ x }}{{ i }}'\n"),
    ("earlier round", "steps:\n  - while: loop.index < 3\n    max: 3\n    do:\n      - \"{{ x | default('') }}\"\n      - gen: x\n"),
    ("a path that left held the name", "inputs: {a: boolean}\nsteps:\n  - if: a\n    then: [{gen: x}, {return: }]\n  - fork: 2\n    do: ['{{ loop.index }}', {gen: x}]\n  - '{{ x[0] }}'\n"),
    ("appending", "steps:\n  - while: loop.index < 3\n    max: 3\n    do: {gen: 'tips[]'}\n  - set: {all: '{{ tips }}'}\n  - set: {tips: []}\n  - '{{ all }}{{ tips | len }}'\n"),
    ("fork appends", "steps:\n  - gen: tips[]\n  - fork: 2\n    do: ['{{ loop.index }}', {gen: 'tips[]'}]\n  - \"{{ tips | join(' ') }}\"\n"),
    ("fork gathers in rounds", "steps:\n  - for: i\n    in: [1, 2]\n    do:\n      - fork: 2\n        do: ['{{ loop.index }}{{ i }}', {gen: a}]\n      - '{{ a[0] }}'\n"),
    ("nested forks", "steps:\n  - fork: i\n    in: [1, 2]\n    do:\n      - fork: j\n        in: [3, 4]\n        do: ['{{ i }}{{ j }}', {gen: a}]\n      - '{{ a[0] }}'\n  - '{{ a[0][1] }}'\n"),
    ("named branches", "steps:\n  - fork:\n      pros: [P, {gen: pros}]\n      cons: [C, {gen: cons}]\n  - '{{ pros }}{{ cons }}'\n"),
    ("named branches as records", "steps:\n  - fork:\n      pros: [P, {gen: x}]\n      cons: [C, {gen: x}]\n    into: r\n  - '{{ r.pros.x }}{{ r.cons.x }}'\n"),
    ("records over a bound name", "steps:\n  - gen: x\n  - fork: 2\n    do: ['{{ loop.index }}', {gen: x}]\n    into: rs\n  - '{{ rs[0].x }}{{ x }}'\n"),
    ("continue ends a branch", "steps:\n  - fork: i\n    in: [1, 2]\n    do:\n      - if: i == 1\n        then: {continue: }\n      - gen: x\n  - '{{ x }}'\n"),
    ("branches draw at random", "steps:\n  - A\n  - fork: 3\n    do:\n      - gen: x\n        temperature: 0.8\n"),
    ("branches draw by default", "defaults: {temperature: 1}\nsteps:\n  - A\n  - fork: 3\n    do: {gen: x}\n"),
    ("capture", "steps:\n  - capture: x\n    do: [A, {gen: y}]\n  - '{{ x }}{{ y }}'\n"),
    ("capture in a message", "steps:\n  - user: A\n  - assistant:\n      - capture: x\n        do: [B, {gen: y}]\n  - user: '{{ x }}'\n  - gen: z\n"),
    ("a second answer on purpose", "steps:\n  - user: A\n  - gen: x\n  - assistant: {gen: y}\n"),
    ("answers in a loop", "steps:\n  - for: i\n    in: [1, 2]\n    do:\n      - user: '{{ i }}'\n      - gen: x\n"),
    ("an arm with an answer leaves", "inputs: {a: boolean}\nsteps:\n  - user: A\n  - if: a\n    then:\n      - assistant: no\n      - return:\n  - gen: x\n"),
    ("two user messages", "steps:\n  - user: A\n  - user: B\n  - gen: x\n"),
    ("fork in an open message", "steps:\n  - user: A\n  - assistant:\n      - fork: 2\n        do: ['{{ loop.index }}', {gen: x}]\n      - '{{ x[0] }}'\n"),
    ("gathering leaves the parent's turn", "steps:\n  - user: A\n  - fork: i\n    in: [1]\n    do:\n      - user: '{{ i }}'\n      - gen: x\n  - gen: y\n"),
    ("outputs as values", "inputs: {a: string}\noutputs: {b: '{{ x | upper }}', c: 3, d: ['{{ a }}', yes]}\nsteps:\n  - if: a == 'x'\n    then: {gen: x}\n"),
    ("outputs that only return sets", "outputs: [a]\nsteps:\n  - return: {a: 1}\n"),
    ("an input as output", "inputs: {a: string}\noutputs: [a]\nsteps: [x]\n"),
    ("return without outputs", "steps:\n  - if: 1 < 2\n    then: {return: {x: 1}}\n  - gen: x\n"),
    ("a fork that surely ends with the user", "steps:\n  - user: A\n  - gen: x\n  - fork: 2\n    do:\n      - user: '{{ loop.index }}'\n    join: concat\n  - gen: y\n"),
    ("a fork over a list that surely ends with the user", "steps:\n  - user: A\n  - gen: x\n  - fork: i\n    in: [1, 2]\n    do:\n      - user: '{{ i }}'\n    join: concat\n  - gen: y\n"),
    ("a loop that surely ends with the user", "steps:\n  - user: A\n  - gen: x\n  - for: i\n    in: [1, 2]\n    do:\n      - user: '{{ i }}'\n  - gen: y\n"),
    ("a loop over a list expression that surely ends with the user", "steps:\n  - user: A\n  - gen: x\n  - for: i\n    in: '[1, 2]'\n    do:\n      - user: '{{ i }}'\n  - gen: y\n"),
    ("such loops in a loop", "steps:\n  - user: A\n  - for: j\n    in: [1, 2]\n    do:\n      - gen: x\n      - for: i\n        in: [1, 2]\n        do:\n          - user: '{{ i }}{{ j }}'\n"),
    ("braces of comments on purpose", "steps:\n  - '{% raw %}{# a #}{% endraw %}'\n  - \"{{ '{# a #}' }} a {# b\"\n"),
    ("one value twice as text and number", "inputs: {a: {enum: [1, '1', true]}}\nsteps: ['{{ a }}']\n"),
    ("values that are plain texts", "inputs: {topic: string}\nsteps:\n  - '{{ topic }}'\n  - set: {a: the topic, b: topics, c: \"{{ 'topic' }}\", d: a topic + more, e: '- topic', f: 1 + 1}\n"),
    ("strip keeps no newline", "steps:\n  - |-\n    A\n  - gen: x\n  - |+\n    B\n\n  - gen: y\n  - \"C\\n\"\n  - gen: z\n"),
    ("booleans as choices", "steps:\n  - select: x\n    from: [true, false]\n  - if: x\n    then: [a]\n"),
    ("a choice may be empty in an enum", "inputs: {a: {enum: ['', x]}}\nsteps:\n  - if: a\n    then: [b]\n"),
    ("comparing what may be null", "inputs: {a: {type: integer, optional: true}}\nsteps:\n  - if: a == null or a == 3\n    then: [b]\n"),
    ("a variable that changes its type", "steps:\n  - set: {n: 0}\n  - while: n != 'done'\n    max: 3\n    do: {gen: n}\n"),
    ("choices from an expression", "inputs: {xs: {type: array, items: string}}\nsteps:\n  - select: x\n    from: xs\n"),
    ("choices that are templates", "inputs: {a: string}\nsteps:\n  - select: x\n    from: ['{{ a }}', b]\n"),
    ("template options", "inputs: {n: integer, s: {type: array, items: string}}\nsteps:\n  - gen: x\n    max_tokens: '{{ n }}'\n    stop: '{{ s }}'\n  - fork: '{{ n }}'\n    do: ['{{ loop.index }}', {gen: y}]\n"),
    ("a pattern with an inserted value", "inputs: {a: string}\nsteps:\n  - gen: x\n    regex: '{{ a }}(b|c)'\n"),
    ("meta", "steps:\n  - gen: x\n  - '{{ meta(x).finish }}'\n"),
    ("a whole schema", "steps:\n  - gen: x\n    schema:\n      $schema: https://json-schema.org/draft/2020-12/schema\n      $id: https://example.com/x\n      type: object\n      properties: {a: {$ref: '#/$defs/a'}}\n      required: [a]\n      $defs: {a: {type: string, pattern: '^a+$', maxLength: 5}}\n"),
    ("a schema that is an input", "inputs: {s: object}\nsteps:\n  - gen: x\n    schema: '{{ s }}'\n"),
    ("an optional property of a field", "steps:\n  - gen: x\n    fields:\n      a: {type: string, description: d, examples: [x]}\n      b: {type: array, items: {type: object, properties: {c: {type: integer, optional: true}}}, maxItems: 3}\n  - '{{ x.b[0].c }}'\n"),
    ("tests", "inputs: {a: {type: string, default: x}}\noutputs: [b]\nsteps:\n  - '{{ a }}'\n  - gen: b\n    id: first\ntests:\n  - name: t\n    replies: {first: y}\n    expect: [b == 'y', a == 'x']\n  - error: S7xx\n    replies: {b: [p, q]}\n"),
    ("bare expression in braces", "steps:\n  - gen: x\n  - if: \"{{ x == 'a' }}\"\n    then: [b]\n"),
    ("names of properties are free", "inputs: {a: {type: object, properties: {if: string, loop: integer}}}\nsteps: ['{{ a.loop }}']\n"),
    ("loop in a while condition", "steps:\n  - while: loop.index <= 2\n    max: 5\n    do: [x]\n"),
]  # fmt: skip


def load(text: str) -> tuple[Program | None, Report]:
    report = Report()
    return load_program(source_from_text(text, "t.yaml"), report), report


@pytest.mark.parametrize("text", [row[1] for row in CLEAN], ids=[row[0] for row in CLEAN])
def test_no_message(text: str) -> None:
    program, report = load(HEAD + text)
    assert report.sorted() == []
    assert program is not None


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.sglspec.*")), ids=lambda path: path.name)
def test_examples_are_clean(path: Path) -> None:
    report = Report()
    program = load_program(read_source(path), report)
    assert report.sorted() == []
    assert program is not None


def test_react_is_clean_and_without_its_tool_it_is_not() -> None:
    text = Path(__file__).with_name("react.yaml").read_text()
    program, report = load(text)
    assert program is not None and report.sorted() == []
    program, report = load(text.replace("tool: calculator", "tool: search"))
    assert program is not None
    found = [(d.code, d.severity, d.pointer) for d in report.sorted()]
    assert found == [("S320", "warning", "/steps/2/do/8/cases/Calculate/tool")]


def test_a_program_holds_what_was_compiled() -> None:
    program, _ = load(
        HEAD + "inputs: {n: integer}\nsteps:\n  - set: {a: [1, '{{ n }}', x]}\n  - user: |\n      Hello {{ n }}\n\n"
        "  - gen: b[]\n    type: integer\n    max_tokens: '{{ n }}'\n    stop: ['.', '{{ a }}']\n"
        "  - while: n > loop.index\n    max: 3\n    do: {set: {c: '{{ b }}'}}\n"
    )
    assert program is not None
    assert (program.chat, program.bindable, program.appending) == (True, ("a", "b", "c"), frozenset({"b"}))
    bind, message, gen, loop = program.spec.steps
    assert isinstance(bind, Set) and isinstance(gen, Gen) and isinstance(loop, While)
    value = program.values[bind.set["a"].node]
    assert isinstance(value, ListValue)
    number, template, text = value.items
    assert isinstance(number, Constant) and number.value == 1
    assert isinstance(template, Rendered) and template.template.single is not None
    assert isinstance(text, Constant) and text.value == "x"
    assert program.constraints[gen].parse("12") == 12
    assert gen.max_tokens is not None and isinstance(program.values[gen.max_tokens.node], Rendered)
    assert gen.stop is not None and all(text in program.templates for text in gen.stop.items)
    assert program.expressions[loop.condition].names[0].name == "n"
    piece = message.steps[0]  # type: ignore[union-attr]
    assert program.templates[piece.text].is_message  # type: ignore[union-attr]


def test_a_thousand_lines_are_checked_quickly() -> None:
    block = (
        "  - user: |\n      Question {{ topic }} and {{ a | default('none') }}?\n"
        "  - assistant:\n      - 'Answer: '\n      - gen: a\n        stop: '.'\n        max_tokens: 20\n"
        "  - select: s\n    from: ['yes', 'no']\n    id: i%d\n"
        "  - if: s == 'yes'\n    then:\n      - user: 'More {{ a }}'\n      - gen: b\n        regex: '[a-z]+ %d'\n"
        "    else:\n      - set: {b: '{{ a | upper }}'}\n  - set: {c: '{{ b }}'}\n"
    ).replace("  - select: s", "  - user: x\n  - select: s")
    text = HEAD + "inputs: {topic: string}\nsteps:\n" + "".join(block % (i, i) for i in range(56))
    assert text.count("\n") >= 1000
    load(text.replace("i0", "i00"))
    (program, report), calls = calls_of(lambda: load(text))
    assert program is not None, report.sorted()[:3]
    assert calls < 700_000


def test_deep_loops_do_not_multiply() -> None:
    text = HEAD + "steps:\n"
    indent = "  "
    for depth in range(14):
        text += (
            f"{indent}- for: v{depth}\n{indent}  in: [1, 2]\n{indent}  do:\n{indent}    - user: '{{{{ v{depth} }}}}'\n"
        )
        indent += "    "
    text += f"{indent}- gen: x\n"
    (program, report), calls = calls_of(lambda: load(text))
    assert program is not None, report.sorted()
    assert calls < 60_000


@pytest.mark.parametrize(
    "text",
    [
        "steps:\n  - set: {" + ", ".join(f"abcdefgh{i}: 1" for i in range(2000)) + "}\n"
        + "".join(f"  - '{{{{ abcdefghx{i} }}}}'\n" for i in range(300)),
        "steps:\n" + "".join(f"  - gne{i}: a\n" for i in range(5000)),
        "steps: [x]\n" + "".join(f"k{i}: a\n" for i in range(5000)),
        "inputs:\n" + "".join(f"  k{i}: strng\n" for i in range(5000)) + "steps: [x]\n",
        "inputs:\n  a: {enum: [" + ", ".join(f"a{i}" for i in range(5000)) + "]}\nsteps: ['{{ a }}']\n",
        "steps:\n  - set: {" + ", ".join(f"a{i}: b c" for i in range(5000)) + "}\n",
        "steps:\n  - |\n    " + "{{ nobody }} " * 1000 + "\n",
        "steps:\n" + "".join("  - '" + "{{ 1 + }} " * 400 + "'\n" for _ in range(10)),
    ],
    ids=["unknown names", "no steps", "unknown keys", "unknown types", "a long enum", "a long set", "one text", "syntax"],
)  # fmt: skip
def test_many_faults_and_long_lists_are_cheap(text: str) -> None:
    _, calls = calls_of(lambda: load(HEAD + text))
    assert calls < 4_000_000
