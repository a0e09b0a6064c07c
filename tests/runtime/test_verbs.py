"""Each verb, run with scripted replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sglspec.backends.base import Method, Scores, Segment, Session, TextSegment
from sglspec.backends.scripted import ScriptedBackend, ScriptedSession, script_of
from sglspec.runtime import limits
from sglspec.runtime.run import RunOptions
from tests.runtime.fake import FakeBackend, Run, program, run_scripted, start, steps

CHAT = "  - assistant:\n      - "


async def outcome(text: str, replies: dict[str, Any] | None = None, given: dict[str, Any] | None = None, **top: str):
    result = await run_scripted(steps(text, **top), given, replies, seed=1)
    assert result.error is None, result.error
    return result


async def test_text_pieces_join_with_nothing_between():
    result = await outcome('- "a"\n- "b "\n- |\n  c\n- gen: x\n', {"x": "!"})
    assert result.text == "ab c\n!"
    assert result.outputs == {"x": "!"}


async def test_raw_is_not_rendered():
    result = await outcome('- raw: "{{ x }} {% if %}"')
    assert result.text == "{{ x }} {% if %}"


async def test_texts_say_where_they_come_from():
    source = """
- raw: '{'
- 'a{{ q }}'
- gen: g
- '{{ g }}'
- set: {l: ["{{ q }}", b], o: {k: "{{ g }}"}, t: "b{{ q }}"}
- '{{ l[0] }}'
- '{{ o.k }}'
- '{{ t }}'
"""
    run = start(steps(source, inputs="{q: string}"), {"q": "Q"}, ScriptedBackend({"g": "G"}))
    written = [("{", "author"), ("a", "author"), ("Q", "input"), ("G", "generated")]
    assert await origins(run) == [*written, ("Q", "input"), ("G", "generated"), ("bQ", "input")]


async def test_a_history_comes_from_where_its_list_does():
    history = [{"role": "user", "content": "a"}]
    source = "- messages: h\n- messages: \"[{'role': 'user', 'content': 'b'}]\""
    run = start(steps(source, inputs="{h: messages}"), {"h": history}, ScriptedBackend({}))
    assert await origins(run) == [("a", "input"), ("b", "author")]


async def origins(run: Run) -> list[tuple[str, str]]:
    """The texts that a run wrote, and where they come from."""
    return [(e.data["text"], e.data["origin"]) async for e in run.events() if e.type == "text"]


async def test_roles_make_messages():
    result = await outcome("- system: Be brief.\n- user: Hi\n- assistant:\n    - gen: a\n", {"a": "Hello"})
    assert result.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
    ]


async def test_a_message_of_one_text_loses_outer_blank_lines_of_its_source():
    text = "- user: |\n\n\n    first\n\n    last  \n\n- gen: a\n"
    result = await outcome(text, {"a": "x"})
    assert result.messages[0]["content"] == "first\n\nlast  "


async def test_but_keeps_those_of_inserted_values():
    text = '- user: "{{ essay }}"\n- gen: a\n'
    result = await outcome(text, {"a": "x"}, {"essay": "\n\nbody\n\n"}, inputs="{essay: string}")
    assert result.messages[0]["content"] == "\n\nbody\n\n"


async def test_a_message_of_a_list_is_exact():
    result = await outcome('- user:\n    - "\\n\\na\\n"\n- gen: a\n', {"a": "x"})
    assert result.messages[0]["content"] == "\n\na\n"


async def test_numbers_as_text_keep_their_source():
    result = await outcome("- 007\n- 1.0\n- true\n")
    assert result.text == "0071.0true"


async def test_inserted_values_are_never_rendered_again():
    result = await outcome('- "{{ x }}"', None, {"x": "{{ 1 + 1 }} {% if %}"}, inputs="{x: string}")
    assert result.text == "{{ 1 + 1 }} {% if %}"


async def test_gen_in_a_chat_outside_a_role_is_a_turn_of_its_own():
    result = await outcome("- user: Hi\n- gen: a\n", {"a": "Hello"})
    assert result.messages[-1] == {"role": "assistant", "content": "Hello"}


async def test_select_keeps_the_type_of_its_choice():
    result = await outcome('- "n = "\n- select: n\n  from: [1, 2, true]\n', {"n": 2})
    assert result.outputs == {"n": 2}
    assert result.text == "n = 2"
    assert result.meta["n"]["index"] == 1


@pytest.mark.parametrize("written", ["", "length_normalized", "greedy", "unconditional", "sum"])
async def test_select_compares_by_its_method(written: str):
    asked: list[str] = []
    written_by: list[str] = []

    class Scored(ScriptedSession):
        async def extend(self, segments: Sequence[Segment]) -> None:
            written_by.extend(segment.origin for segment in segments if isinstance(segment, TextSegment))
            await super().extend(segments)

        async def score(self, choices: Sequence[str], method: Method, label: str = "") -> Scores:
            asked.append(method)
            return await super().score(choices, method, label)

    class Scoring(ScriptedBackend):
        async def open(self, label: str = "", caller: Session | None = None) -> Session:
            return Scored(script_of(self.replies, label, caller))

    line = f"- {{select: c, from: ['{{{{ q }}}}', y]{f', method: {written}' if written else ''}}}"
    program = steps(line, inputs="{q: string}")
    assert (await start(program, {"q": "x"}, Scoring({"c": "y"})).wait()).outputs == {"c": "y"}
    assert asked == [written or "length_normalized"]
    assert written_by == ["input"], "what a choice says may come from an input"


async def test_select_from_an_expression():
    result = await outcome(
        '- "x"\n- select: n\n  from: words\n',
        {"n": "b"},
        {"words": ["a", "b"]},
        inputs="{words: {type: array, items: string}}",
    )
    assert result.outputs == {"n": "b"}


async def test_set_keeps_types_and_binds_from_top_to_bottom():
    result = await outcome('- set: {a: 3, b: "{{ a + 1 }}", c: "n{{ b }}", d: [1, "{{ b }}"], e: {k: "{{ a }}"}}')
    assert result.outputs == {"a": 3, "b": 4, "c": "n4", "d": [1, 4], "e": {"k": 3}}


async def test_capture_binds_the_text_of_its_steps():
    result = await outcome('- "a"\n- capture: c\n  do:\n    - "b"\n    - gen: x\n- "d"\n', {"x": "X"})
    assert result.outputs == {"x": "X", "c": "bX"}
    assert result.text == "abXd"


@pytest.mark.parametrize(("n", "text"), [(1, "one"), (2, "two"), (3, "many")])
async def test_if_else_chain(n: int, text: str):
    source = '- if: n == 1\n  then: ["one"]\n  else:\n    if: n == 2\n    then: ["two"]\n    else: ["many"]\n'
    result = await outcome(source, None, {"n": n}, inputs="{n: integer}")
    assert result.text == text


async def test_match_compares_as_text():
    source = '- match: n\n  cases:\n    1: "one"\n    true: "yes"\n  else: "other"\n'
    assert (await outcome(source, None, {"n": 1}, inputs="{n: any}")).text == "one"
    assert (await outcome(source, None, {"n": True}, inputs="{n: any}")).text == "yes"
    assert (await outcome(source, None, {"n": "z"}, inputs="{n: any}")).text == "other"


async def test_for_gives_loop_and_its_variable_dies():
    source = '- for: x\n  in: [a, b, c]\n  do:\n    - "{{ loop.index }}/{{ loop.length }}{{ x }}{% if not loop.last %},{% endif %}"\n'
    result = await outcome(source)
    assert result.text == "1/3a,2/3b,3/3c"
    assert result.outputs == {}


async def test_nested_loops_restore_loop():
    source = '- for: x\n  in: [a, b]\n  do:\n    - for: y\n      in: [1, 2]\n      do: "{{ loop.index }}"\n    - "[{{ loop.index }}]"\n'
    assert (await outcome(source)).text == "12[1]12[2]"


async def test_break_and_continue():
    source = """
- for: x
  in: [1, 2, 3, 4]
  do:
    - if: x == 2
      then: {continue: }
    - if: x == 4
      then: {break: }
    - "{{ x }}"
"""
    assert (await outcome(source)).text == "13"


async def test_while_counts_and_stops():
    source = '- set: {n: 0}\n- while: n < 3\n  max: 5\n  do:\n    - set: {n: "{{ n + 1 }}"}\n    - "{{ loop.index }}"\n'
    assert (await outcome(source)).text == "123"


async def test_while_that_ends_exactly_at_max_succeeds():
    source = '- set: {n: 0}\n- while: n < 3\n  max: 3\n  do:\n    - set: {n: "{{ n + 1 }}"}\n'
    assert (await outcome(source)).outputs == {"n": 3}


async def test_while_at_max():
    source = '- set: {n: 0}\n- while: n < 9\n  max: 3\n  ON_MAX\n  do:\n    - set: {n: "{{ n + 1 }}"}\n'
    failed = await run_scripted(steps(source.replace("  ON_MAX\n", "")))
    assert failed.error is not None and failed.error.code == "S704"
    assert (await outcome(source.replace("ON_MAX", "on_max: stop"))).outputs == {"n": 3}


@pytest.mark.parametrize(
    ("leave", "after"), [("break", ["go", "a1", "end"]), ("continue", ["go", "a1", "go", "a2", "end"])]
)
async def test_leaving_a_loop_from_inside_a_message_ends_the_message(leave: str, after: list[str]):
    source = f"""
- for: n
  in: [1, 2]
  do:
    - user: go
    - assistant:
        - "a{{{{ n }}}}"
        - {leave}:
        - "never"
- user: end
"""
    result = await run_scripted(steps(source))
    assert result.error is None
    assert [message["content"] for message in result.messages] == after
    assert result.text.count("</>") == len(after)


async def test_return_from_inside_a_message_ends_the_message():
    result = await outcome('- user: go\n- assistant:\n    - "a"\n    - return:\n')
    assert [message["content"] for message in result.messages] == ["go", "a"]
    assert result.text.endswith("a</>\n")


async def test_appending_variables():
    source = (
        '- for: x\n  in: [1, 2]\n  do:\n    - gen: "tips[]"\n- set: {"tips[]": end}\n- "{{ tips | join(\',\') }}"\n'
    )
    result = await outcome(source, {"tips": ["a", "b"]})
    assert result.outputs == {"tips": ["a", "b", "end"]}
    assert result.text == "aba,b,end"


async def test_appending_list_is_empty_at_the_start_and_can_be_emptied():
    source = '- "{{ tips | length }}"\n- set: {"tips[]": 1}\n- set: {tips: []}\n- set: {"tips[]": 2}\n'
    result = await outcome(source)
    assert result.outputs == {"tips": [2]}
    assert result.text == "0"


async def test_return_ends_the_program():
    source = '- "a"\n- gen: x\n- if: x == "stop"\n  then:\n    - return:\n- gen: y\n'
    result = await outcome(source, {"x": "stop"}, outputs="[x, y]")
    assert result.outputs == {"x": "stop", "y": None}


async def test_return_with_values_makes_the_others_null():
    source = '- gen: x\n- if: x == "stop"\n  then:\n    - return: {y: "{{ x }}!"}\n- gen: y\n'
    result = await outcome(source, {"x": "stop"}, outputs="[x, y]")
    assert result.outputs == {"x": None, "y": "stop!"}


async def test_outputs_may_be_values():
    result = await outcome("- gen: x\n", {"x": "ab"}, outputs='{size: "{{ x | length }}", text: "<{{ x }}>", fixed: 3}')
    assert result.outputs == {"size": 2, "text": "<ab>", "fixed": 3}


async def test_fail_and_check_speak_in_the_authors_words():
    failed = await run_scripted(steps("- fail: no {{ 1 + 1 }} way"))
    assert failed.error is not None
    assert (failed.error.code, failed.error.message) == ("S701", "no 2 way")
    failed = await run_scripted(steps("- check: 1 > 2\n  message: too small"))
    assert failed.error is not None
    assert (failed.error.code, failed.error.message) == ("S702", "too small")
    failed = await run_scripted(steps("- check: 1 > 2"))
    assert failed.error is not None and "1 > 2" in failed.error.message
    assert failed.error.range is not None and failed.error.range.start.line == 3


@pytest.mark.parametrize(
    ("gen", "reply", "value"),
    [
        ("type: integer", "42", 42),
        ("type: number", "-1.5", -1.5),
        ("type: boolean", "true", True),
        ("type: json", '{"a":[1]}', {"a": [1]}),
        ("type: quoted", '"a\\nb"', "a\nb"),
        ("regex: '[0-9]{3}'", "123", "123"),
        ("fields: {name: string, age: {type: integer, minimum: 0}}", '{"name":"A","age":3}', {"name": "A", "age": 3}),
        ("schema: {type: array, items: {type: integer}}", "[1,2]", [1, 2]),
        ("type: integer", 7, 7),
        ("fields: {name: string}", {"name": "A"}, {"name": "A"}),
    ],
)
async def test_typed_values(gen: str, reply: Any, value: Any):
    result = await outcome(f'- "x"\n- gen: v\n  {gen}\n', {"v": reply})
    assert result.outputs == {"v": value}


@pytest.mark.parametrize(
    ("gen", "reply"),
    [("type: integer", "4x"), ("regex: '[0-9]'", "12"), ("fields: {a: integer}", '{"a":"x"}'), ("type: integer", "x"),
     ("fields: {a: integer}", {"a": "x"}), ("stop: END", "text END")],
)  # fmt: skip
async def test_a_reply_that_breaks_its_constraint_is_an_error(gen: str, reply: Any):
    result = await run_scripted(steps(f'- "x"\n- gen: v\n  {gen}\n'), {}, {"v": reply})
    assert result.error is not None and result.error.code == "S711"


@pytest.mark.parametrize(
    ("gen", "reply", "code"),
    [
        ("type: integer", "123", "S708"),
        ("schema: {type: number}", "1.5", "S708"),
        ("type: json", '{"a": 1}', "S708"),
        ("regex: '[0-9]+'", "123", None),
        ("grammar: 'start: /[a-z]+/'", "abc", None),
    ],
)
async def test_json_that_max_tokens_cuts_is_an_error_even_where_it_parses(gen: str, reply: str, code: str | None):
    """`12` of `123` is a number too, and a wrong one."""
    backend = FakeBackend({"a": reply})
    checked = steps(f"- gen: a\n  max_tokens: 2\n  {gen}")
    result = await start(checked, {}, backend, RunOptions()).wait()
    assert (result.error.code if result.error else None) == code
    backend = FakeBackend({"a": reply})
    checked = steps(f"- gen: a\n  {gen}")
    assert (await start(checked, {}, backend, RunOptions()).wait()).error is None


async def test_a_regex_takes_inserted_values_as_they_are_written():
    checked = steps("- \"x\"\n- gen: v\n  regex: '{{ word }}[0-9]'\n", inputs="{word: string}")
    good = await run_scripted(checked, {"word": "a.b"}, {"v": "a.b1"})
    assert good.outputs == {"v": "a.b1"}
    bad = await run_scripted(checked, {"word": "a.b"}, {"v": "axb1"})
    assert bad.error is not None and bad.error.code == "S711"


async def test_a_schema_may_be_an_input():
    checked = steps('- "x"\n- gen: v\n  schema: "{{ s }}"\n', inputs="{s: object}")
    good = await run_scripted(checked, {"s": {"type": "integer"}}, {"v": "3"})
    assert good.outputs == {"v": 3}
    bad = await run_scripted(checked, {"s": {"type": "nonsense"}}, {"v": "3"})
    assert bad.error is not None
    assert (bad.error.code, bad.error.cause) == ("S707", "S503")


async def test_replies_run_out():
    result = await run_scripted(steps("- gen: a\n- gen: b\n"), {}, {"a": "x"})
    assert result.error is not None and result.error.code == "S710"
    assert result.error.range is not None and result.error.range.start.line == 4
    assert result.variables == {"a": "x"}


async def test_evaluation_errors_have_a_place_inside_the_text():
    source = "sglspec: v1\ninputs: {n: any}\nsteps:\n  - user: |\n      Hello\n      {{ n + 1 }}\n  - gen: a\n"
    result = await run_scripted(program(source), {"n": "x"}, {"a": "x"})
    assert result.error is not None and result.error.code == "S707"
    assert result.error.range is not None
    assert (result.error.range.start.line, result.error.range.start.column) == (6, 10)


async def test_messages_and_transcript_functions():
    source = """
- user: Hi
- assistant: {gen: a}
- user:
    - "{{ messages() | length }} {{ messages()[1].content }}"
- gen: b
"""
    result = await outcome(source, {"a": "Hello", "b": "x"})
    assert result.messages[2]["content"] == "3 Hello"


async def test_default_outputs_are_all_variables_but_not_inputs():
    result = await outcome(
        "- set: {a: 1}\n- if: x\n  then:\n    - set: {b: 2}\n", None, {"x": False}, inputs="{x: boolean}"
    )
    assert result.outputs == {"a": 1, "b": None}


async def test_iteration_limit():
    source = "sglspec: v1\nlimits: {iterations: 2}\nsteps:\n  - for: x\n    in: [1, 2, 3]\n    do: a\n"
    result = await run_scripted(program(source))
    assert result.error is not None and result.error.code == "S705"


LOOPS = "- for: a\n  in: range(9)\n  do:\n    - for: b\n      in: range(9)\n      do:\n        - "


@pytest.mark.parametrize(
    ("bound", "step", "message"),
    [
        ("MAX_STEPS", "x", "The run took more than 80 steps."),
        ("MAX_CHARACTERS", "x", "The run wrote more than 80 characters."),
        ("MAX_CHARACTERS", "set: {x: '{{ [a] }}'}", "The run wrote more than 80 characters."),
        ("MAX_CHARACTERS", "set: {x: {key: text}}", "The run wrote more than 80 characters."),
    ],
)
async def test_what_costs_no_tokens_is_bounded(monkeypatch, bound, step, message):
    monkeypatch.setattr(limits, bound, 80)
    result = await run_scripted(steps(LOOPS + step + "\n"))
    assert result.error is not None
    assert (result.error.code, result.error.message) == ("S705", message)
    monkeypatch.setattr(limits, bound, 1000)
    assert (await run_scripted(steps(LOOPS + step + "\n"))).status == "succeeded"


async def test_seed_is_reported():
    assert (await outcome("- a\n")).seed == 1
    assert 0 <= (await run_scripted(steps("- a\n"))).seed < 2**64
