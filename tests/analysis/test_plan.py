"""What a plan says before a run: bounds that no run exceeds, and exact numbers where nothing is left to decide."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sglspec.analysis import load_program
from sglspec.analysis.plan import Cost, Plan, Range, plan
from sglspec.analysis.plan.state import Clock, latest
from sglspec.analysis.program import Program
from sglspec.backends.scripted import ScriptedBackend
from sglspec.diagnostics import Report, SpecError
from sglspec.document.read import read_source, source_from_text
from sglspec.runtime.run import RunOptions, execute, start
from tests.runtime.fake import program
from tests.test_end_to_end import DOCUMENTS, checked, inputs_of
from tests.test_language_rules import CASES, source_of


def planned(text: str, **given: Any) -> Plan:
    return plan(program(f"sglspec: v1\n{text}"), given)


def counts(found: Plan) -> dict[str, str]:
    """What is not nothing."""
    names = ("generated", "generations", "selections", "branches", "calls", "tools", "depth")
    said = {name: str(getattr(found.cost, name)) for name in names}
    return {name: number for name, number in said.items() if number != "0"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("steps: [x, {gen: a}]", {"generated": "≤ 256", "generations": "1"}, id="a gen"),
        pytest.param("defaults: {max_tokens: 9}\nsteps: [x, {gen: a}, {gen: b, max_tokens: 5}]", {"generated": "≤ 14", "generations": "2"}, id="defaults"),
        pytest.param("steps: [x, {gen: a, max_tokens: 5, n: 4, temperature: 1}]", {"generated": "≤ 20", "generations": "4"}, id="candidates"),
        pytest.param(
            "steps: [x, {gen: a, max_tokens: 5, temperature: 1, retry: {max: 3, until: a != ''}}]", {"generated": "≤ 15", "generations": "≤ 3"}, id="attempts"
        ),
        pytest.param("steps: [x, {for: i, in: [1, 2, 3], do: {gen: a, max_tokens: 5}}]", {"generated": "≤ 15", "generations": "3"}, id="a list"),
        pytest.param("inputs: {l: array}\nsteps: [x, {for: i, in: l, do: {gen: a, max_tokens: 5}}]", {"generated": "?", "generations": "?"}, id="an input's list"),
        pytest.param(
            "inputs: {l: {type: array, maxItems: 4}}\nsteps: [x, {fork: i, in: l, do: ['{{ i }}', {gen: a, max_tokens: 5}]}]",
            {"generated": "≤ 20", "generations": "≤ 4", "branches": "≤ 4", "depth": "≤ 1"},
            id="a declared bound",
        ),
        pytest.param(
            "steps: [x, {fork: i, in: [a, b], do: ['{{ i }}', {fork: j, in: [a, b, c], do: ['{{ j }}', {gen: y, max_tokens: 5}]}]}]",
            {"generated": "≤ 30", "generations": "6", "branches": "8", "depth": "2"},
            id="nested",
        ),
        pytest.param(
            "inputs: {n: integer}\nsteps: [x, {fork: '{{ n }}', do: [{gen: y, max_tokens: 5, temperature: 1}, {fork: 2, do: [{gen: z, max_tokens: 1, temperature: 1}]}]}]",
            {"generated": "?", "generations": "?", "branches": "?", "depth": "≤ 2"},
            id="an unknown width",
        ),
        pytest.param(
            "steps:\n  - x\n  - {gen: g, max_tokens: 2}\n  - fork: {p: [{gen: a, max_tokens: 3}], q: [{gen: b, max_tokens: 4}]}\n  - fork: t\n    in: a | lines\n    do: ['{{ t }}', {gen: c, max_tokens: 1}]",
            {"generated": "?", "generations": "≥ 3", "branches": "≥ 2", "depth": "1"},
            id="a list that was generated",
        ),
        pytest.param(
            "steps:\n  - x\n  - fork: t\n    in: [a, b, c]\n    do: ['{{ t }}', {gen: c, max_tokens: 1}]\n  - fork: u\n    in: c\n    do: ['{{ u }}', {gen: d, max_tokens: 1}]",
            {"generated": "≤ 6", "generations": "6", "branches": "6", "depth": "1"},
            id="as many as were gathered",
        ),
        pytest.param(
            "steps: [x, {set: {k: 0}}, {while: k < 3, max: 9, do: [{gen: a, max_tokens: 2}, {set: {k: '{{ k + 1 }}'}}]}]", {"generated": "≤ 6", "generations": "3"}, id="rounds that are known"
        ),
        pytest.param("steps: [x, {set: {a: ''}}, {while: a != 'x', max: 7, do: [{gen: a, max_tokens: 2}]}]", {"generated": "≤ 14", "generations": "≤ 7"}, id="rounds up to max"),
        pytest.param(
            "steps: [x, {select: s, from: [a, b]}, {if: s == 'a', then: [{gen: y, max_tokens: 3}, {return: }], else: {gen: y, max_tokens: 5}}, {gen: z, max_tokens: 1}]",
            {"generated": "≤ 6", "generations": "≤ 2", "selections": "1"},
            id="one way or the other",
        ),
        pytest.param("inputs: {b: {type: boolean, default: true}}\nsteps: [x, {if: b, then: {gen: y, max_tokens: 3}, else: {gen: y, max_tokens: 5}}]", {"generated": "≤ 3", "generations": "1"}, id="a way that is known"),
        pytest.param(
            "steps: [x, {for: i, in: [1, 2, 3, 4], do: [{gen: y, max_tokens: 3}, {if: i == 2, then: {break: }}]}]", {"generated": "≤ 6", "generations": "2"}, id="a break that is known"
        ),
        pytest.param(
            "steps: [x, {for: i, in: [1, 2, 3, 4], do: [{gen: y, max_tokens: 3}, {if: y == 'a', then: {break: }}]}]", {"generated": "≤ 12", "generations": "≤ 4"}, id="a break that may be"
        ),
        pytest.param(
            "steps: [x, {scratch: [y, {gen: a, max_tokens: 4}], export: [a]}, '{{ a }}', {tool: calculator, with: {expression: '1'}, into: r}]",
            {"generated": "≤ 4", "generations": "1", "branches": "1", "tools": "1", "depth": "1"},
            id="an aside and a tool",
        ),
    ],
)  # fmt: skip
def test_bounds(text: str, expected: dict[str, str]) -> None:
    assert counts(planned(text)) == expected


def test_inputs_make_it_exact() -> None:
    text = "inputs: {l: array, n: {type: integer, default: 3}}\nsteps: [x, {fork: i, in: l, do: ['{{ i }}', {gen: a, max_tokens: '{{ n }}'}]}]"
    assert counts(planned(text))["branches"] == "?"
    found = planned(text, l=["a", "b"])
    assert counts(found) == {"generated": "≤ 6", "generations": "2", "branches": "2", "depth": "1"}
    assert found.inputs == {"l": "given", "n": "default"}
    assert planned(text, l=["a"] * 5, n=7).cost.generated == Range(0, 35)
    with pytest.raises(SpecError) as wrong:
        planned(text, m=1, n="x")
    assert {problem.code for problem in wrong.value.diagnostics} == {"S401", "S403"}


def test_what_waits_for_what() -> None:
    found = planned(
        """steps:
  - One.
  - fork: t
    in: [a, b]
    do: ["{{ t }}", {gen: x, max_tokens: 30}]
  - scratch: [y, {gen: aside, max_tokens: 90}]
  - gen: beside
    max_tokens: 10
  - "{{ x | join }}"
  - gen: behind
    max_tokens: 5
"""
    )
    nodes = {node.label: node for node in found.every()}
    fork, reader, aside = nodes["fork t in […]"], nodes['"{{ x | join }}"'], nodes["scratch"]
    assert reader.waits == (fork.id,) and fork.awaited == (reader.id,)
    assert aside.awaited == (-1,)
    assert nodes["gen beside"].waits == ()
    assert found.in_a_row == 90, "the aside takes longer than all the rest"
    assert [one.tokens for one in found.critical] == [90]
    assert fork.shared is not None and fork.shared.text == Range(4, 4)


@pytest.mark.parametrize(
    "option", ["top_p: '{{ x[0] }}'", "keep_stop: '{{ x[0] == 1 }}'", "logit_bias: {3: '{{ x[0] }}'}"]
)
def test_every_option_of_a_generation_is_waited_for(option: str) -> None:
    found = planned(
        f"""steps:
  - fork: t
    in: [1, 2]
    do: {{set: {{x: "{{{{ t / 2 }}}}"}}}}
  - {{gen: reader, {option}}}
"""
    )
    nodes = {node.label: node for node in found.every()}
    assert nodes["gen reader"].waits == (nodes["fork t in […]"].id,)


@pytest.mark.parametrize(("n", "branches"), [("", "?"), (", n: 1", "1"), (", n: 3, temperature: 1", "3")])
def test_candidates_are_a_list_whose_length_is_known(n: str, branches: str) -> None:
    text = f"steps: [{{gen: a{n}}}, {{fork: i, in: a, do: ['{{{{ i }}}}', {{gen: b, max_tokens: 1}}]}}]"
    if not n:
        text = text.replace("in: a", "in: 'lines(a)'")
    assert counts(planned(text))["branches"] == branches


def test_the_critical_path_goes_through_the_slowest_branch() -> None:
    found = planned(
        """steps:
  - x
  - gen: a
    max_tokens: 10
  - fork: {p: [{gen: b, max_tokens: 20}], q: [{gen: c, max_tokens: 30}, {gen: d, max_tokens: 1}]}
  - "{{ b }}"
  - for: i
    in: [1, 2]
    do: [{gen: e, max_tokens: 3}]
"""
    )
    labels = {node.id: node.label for node in found.every()}
    assert [(labels[one.node], one.tokens, one.times) for one in found.critical] == [
        ("gen a", 10, 1), ("gen c", 30, 1), ("gen d", 1, 1), ("gen e", 3, 2),
    ]  # fmt: skip
    assert found.in_a_row == 47


def test_the_path_through_rounds_that_are_not_known() -> None:
    found = planned(
        "steps: [x, {gen: a, max_tokens: 9}, {while: a != 'x', max: 5, do: [{gen: a, max_tokens: 2}]}, {gen: b, max_tokens: 1}]"
    )
    assert [(one.tokens, one.times) for one in found.critical] == [(9, 1), (2, 5), (1, 1)]
    assert found.in_a_row == 20
    endless = planned("inputs: {l: array}\nsteps: [x, {for: i, in: l, do: {gen: a, max_tokens: 2}}]")
    assert endless.in_a_row is None
    assert [(one.tokens, one.times) for one in endless.critical] == [(2, None)]


def test_text_is_counted_as_far_as_it_is_known() -> None:
    found = planned("inputs: {who: string}\nsteps: ['Hello, {{ who }}! ', {gen: a, max_tokens: 4}, ' Bye.']")
    assert found.unit == "characters" and found.computed is None
    assert found.cost.text == Range(9, None), "what nothing follows is not computed"
    assert planned(
        "inputs: {who: string}\nsteps: ['Hello, {{ who }}! ', {gen: a, max_tokens: 4}]", who="Ada"
    ).cost.text == Range(12, 12)
    assert found.beginning == len("Hello, ")


def test_steps_that_write_nothing_do_not_end_the_common_beginning() -> None:
    lines = "[{set: {n: 1}}, 'Question: ', {check: n == 1}, 'is {{ q }}{{ n }}?']"
    assert planned(f"inputs: {{q: string}}\nsteps: {lines}").beginning == len("Question: is ")


def test_a_chat_is_counted_with_its_template(tokenizer_folder: Any) -> None:
    from sglspec.backends.local import ModelMarkup

    markup = ModelMarkup.load(tokenizer_folder("byte_level"))
    text = "sglspec: v1\nsteps: [{system: Short.}, {user: Hi there.}, {gen: a, max_tokens: 5}]"
    found = plan(program(text), {}, markup)
    prompt = "<|im_start|>system\nShort.<|im_end|>\n<|im_start|>user\nHi there.<|im_end|>\n<|im_start|>assistant\n"
    pieces = [*markup.open("system", first=True)]
    assert found.unit == "tokens" and found.computed is not None
    assert found.cost.text.exact == found.computed.least
    assert found.computed.most == found.cost.text.least + 5
    assert 15 < found.cost.text.least < len(prompt)
    assert pieces


def test_constraints_that_are_compiled() -> None:
    found = planned(
        "inputs: {d: integer}\nsteps: [x, {gen: a, type: integer}, {gen: b, regex: '[0-9]{{ d }}'}, {gen: c, regex: '{{ a }}'}, {gen: d2}]"
    )
    assert found.constraints == (2, 1)
    assert [node.constraint for node in found.every() if node.constraint] == [
        "type, compiled when the run starts",
        "regex, compiled when the run starts",
        "regex, compiled when it is reached",
    ]


USE = """sglspec: v1
inputs: {items: {type: array, items: string}}
outputs: [mark]
steps:
  - "Say: "
  - fork: i
    in: items
    do: ["{{ i }}", {gen: x, max_tokens: 4}]
  - "{{ x | join }}"
  - select: mark
    from: [1, 2]
"""
MAIN = """sglspec: v1
inputs: {l: {type: array, default: [a, b]}}
use: {judge: ./judge.sglspec.yaml}
defs:
  steps:
    ask:
      params: {n: integer}
      steps: ["{{ n }}?", {gen: answer, max_tokens: "{{ n }}"}]
steps:
  - Begin.
  - call: judge
    with: {items: "{{ l }}"}
    into: {m: mark}
  - include: ask
    with: {n: 7}
    into: {one: answer}
  - include: ask
    with: {n: 9}
  - "{{ m }}"
"""


def used(folder: Path) -> Program:
    (folder / "judge.sglspec.yaml").write_text(USE, encoding="utf-8")
    (folder / "main.sglspec.yaml").write_text(MAIN, encoding="utf-8")
    report = Report("main")
    found = load_program(read_source(folder / "main.sglspec.yaml"), report)
    report.raise_errors()
    assert found is not None
    return found


def test_calls_and_includes(tmp_path: Path) -> None:
    main = used(tmp_path)
    found = plan(main)
    assert counts(found) == {
        "generated": "≤ 24",
        "generations": "4",
        "selections": "1",
        "branches": "3",
        "calls": "1",
        "depth": "2",
    }
    assert found.in_a_row == 16, "the call runs beside both of them"
    nodes = found.every()
    call = next(node for node in nodes if node.kind == "call")
    assert [node.label for node in nodes if node.waits == (call.id,)] == ['"{{ m }}"']
    inside = [node for node in call.every() if node.kind == "gen"]
    assert [(node.file or "").endswith("judge.sglspec.yaml") for node in inside] == [True]
    asked = [str(node.tokens) for node in nodes if node.label == "gen answer"]
    assert asked == ["≤ 7", "≤ 9"], "each place counts for itself"
    assert str(plan(main, {"l": ["a"] * 5}).cost.branches) == "6"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name.split(".")[0])
def test_every_example_has_a_plan(path: Path) -> None:
    for given in ({}, inputs_of(path)):
        found = plan(checked(path), given)
        assert (found.cost.generations + found.cost.selections).most != 0
        ids = [node.id for node in found.every() if node.id >= 0]
        assert ids == sorted(ids) and {*ids} <= {*found.keys.values()}
    assert found.in_a_row is not None


async def test_no_run_exceeds_the_plan() -> None:
    """Branches and rounds as a scripted run counts them."""
    text = """inputs: {l: array}
steps:
  - x
  - fork: i
    in: l
    do:
      - "{{ i }}"
      - for: j
        in: [1, 2, 3]
        do: [{gen: "g[]", max_tokens: 5}, {if: "g | length > 1", then: {break: }}]
      - if: g[0] == "a"
        then: [{fork: 2, do: [{gen: h, max_tokens: 1}]}]
"""
    replies: Mapping[str, Any] = {"g": ["a", "b", "c", "d", "e", "f"], "h": "z"}
    main = program(f"sglspec: v1\n{text}")
    given = {"l": ["p", "q"]}
    result = await execute(main, given, ScriptedBackend(replies), RunOptions(seed=0))
    assert result.status == "succeeded", result.error
    found = plan(main, given)
    assert found.cost.generations == Range(2, 10) and found.cost.branches == Range(2, 6)


async def test_no_run_of_a_rule_exceeds_its_plan() -> None:
    """The small programs of the language's rules, on their replies: what happens is within the bounds."""
    compared = 0
    for case in CASES:
        report = Report("rule.yaml")
        try:
            main = load_program(source_from_text(source_of(case)[0], "rule.yaml"), report)
            if main is None or report.has_errors:
                continue
            given = case.get("inputs") or {}
            run = start(main, given, ScriptedBackend(case.get("replies") or {}), RunOptions(seed=0))
        except SpecError:
            continue
        result, cost = await run.wait(), plan(main, given).cost
        types = [event.type for event in run.log.events]
        for started, bound in (
            (types.count("generated"), cost.generations),
            (types.count("selected"), cost.selections),
            (types.count("branch.started") + types.count("call.started"), cost.branches),
        ):
            assert bound.most is None or started <= bound.most, (case["rule"], started, bound)
        if result.status == "succeeded":
            assert types.count("selected") >= cost.selections.least
            assert types.count("branch.started") + types.count("call.started") >= cost.branches.least
        compared += 1
    assert compared > 200


def test_many_rounds_take_no_time() -> None:
    loops = (
        "steps:\n  - x\n"
        + "".join(
            f"{'  ' * d}  - for: i{d}\n{'  ' * d}    in: '[1] * 0 + range(40)'\n{'  ' * d}    do:\n" for d in range(5)
        )
        + f"{'  ' * 5}  - gen: a\n{'  ' * 5}    max_tokens: 2\n"
    )
    loops = loops.replace("'[1] * 0 + range(40)'", "range(40)")
    found = planned(loops)
    assert found.cost.generations == Range(40**5, 40**5)
    assert found.in_a_row == 2 * 40**5


def test_ranges() -> None:
    assert [
        str(one) for one in (Range(), Range(2, 2), Range(1, 3), Range(0, None), Range(2, None), Range(0, 12_000))
    ] == ["0", "2", "≤ 3", "?", "≥ 2", "≤ 12,000"]
    assert Range(1, 2) + Range(1, None) == Range(2, None)
    assert Range(1, None) * Range() == Range() and Range(2, 3) * Range(4, 5) == Range(8, 15)
    assert Range(1, 2) | Range(5, 7) == Range(1, 7)
    assert (Cost(depth=Range(1, 1)) + Cost(depth=Range(2, 2))).depth == Range(2, 2)
    assert (Cost(generated=Range(0, 4), depth=Range(1, 1)) * Range.exactly(3)) == Cost(
        generated=Range(0, 12), depth=Range(1, 1)
    )
    clock = Clock().after((1,), 3).after((1,), 3).after((2,), None)
    assert [(link.key, link.times) for link in clock.path()] == [((1,), 2), ((2,), 1)]
    assert latest([Clock(), clock, Clock().after((3,), 10**9)]) is clock
