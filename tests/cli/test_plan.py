"""`sglspec plan`, `run --profile` and the timeline in `--trace`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from sglspec.analysis.plan import plan
from sglspec.cli.plans.graph import dot, graph, mermaid
from sglspec.cli.plans.svg import svg
from sglspec.cli.plans.text import text
from tests.runtime.fake import program
from tests.test_end_to_end import DOCUMENTS, checked

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
JUDGE = next(path for path in DOCUMENTS if path.name.startswith("04"))

NASTY = """sglspec: v1
name: nasty
inputs: {l: {type: array, items: string, default: ["a\\"]; x", "<b>&amp;</b>"]}}
steps:
  - "Quotes \\" and ' and \\\\ and <tags> & {{ '{' }}braces} ]] --> %% ; # \\u0007 bell\\n\\n{{ l | join }}"
  - fork: i
    in: l
    do: ["{{ i }} <script>alert(1)</script> ]]> \\" }} -->", {gen: x, max_tokens: 2}]
  - if: "'\\"<&>' in x[0]"
    then: ["{{ x }}", {gen: y, regex: '"<&>\\\\]'}]
"""

TREE = """\
essay-judge: a chat
inputs: essay ?, dimensions default

├─ system                                       35 characters
├─ user                                         ≥ 51 characters
├─ assistant
│  └─ select related                            2 choices
├─ if related == "no"
│  └─ then
│     └─ return                                 × ≤ 1
├─ fork dimension in dimensions                 × ≤ 1  3 branches  share ≥ 88 characters
│  ├─ user                                      × ≤ 3  ≤ 66 characters
│  └─ assistant                                 × ≤ 3
│     ├─ "Judgment:"                            × ≤ 3  9 characters
│     └─ gen judgment                           × ≤ 3  ≤ 96 tokens
├─ user                                         × ≤ 1  16 characters
├─ assistant                                    × ≤ 1
│  ├─ "{{ judgment | join(' ') }} In summary,"  × ≤ 1  ≥ 12 characters  waits for the fork dimension in dimensions at line 29
│  └─ gen summary                               × ≤ 1  ≤ 256 tokens
├─ user                                         × ≤ 1  54 characters
└─ gen grade                                    × ≤ 1  ≤ 256 tokens  fields, compiled when the run starts

generations     ≤ 5, ≤ 800 tokens
in a row        ≤ 608 tokens: judgment 96 → summary 256 → grade 256
selections      1
branches        ≤ 3, ≤ 1 deep
constraints     1 compiled when the run starts, 0 when they are reached
at best         ≥ 86 characters of text, ≤ 5 of choices, ≤ 800 generated tokens
all runs share  42 characters
"""


def test_the_tree_of_the_essay_judge(cli: Any) -> None:
    done = cli("plan", str(JUDGE))
    assert (done.code, done.err) == (0, "")
    assert done.out == TREE


def test_inputs_count(cli: Any) -> None:
    done = cli("plan", str(JUDGE), "--set", 'dimensions=["a", "b", "c", "d", "e"]', "--set", "essay=Short.")
    assert "branches        ≤ 5, ≤ 1 deep" in done.out
    assert "inputs: essay given, dimensions given" in done.out
    assert "user                                         57 characters" in done.out
    wrong = cli("plan", str(JUDGE), "--set", "dimension=x")
    assert wrong.code == 2 and "S403" in wrong.err


def test_json_is_the_whole_plan(cli: Any) -> None:
    face = json.loads(cli("plan", str(JUDGE), "--format", "json").out)
    assert face["bounds"]["branches"] == {"least": 0, "most": 3}
    assert face["bounds"]["generated"] == {"least": 0, "most": 800}
    assert face["bounds"]["in_a_row"] == 608 and face["bounds"]["computed"] is None
    assert face["inputs"] == {"essay": "unknown", "dimensions": "default"}

    def every(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [one for step in steps for one in [step, *every(step["children"])]]

    steps = every(face["steps"])
    fork = next(step for step in steps if step["kind"] == "fork")
    assert fork["step"] == "/steps/4/fork" and fork["width"] == {"least": 3, "most": 3}
    [reader] = [step for step in steps if step.get("waits")]
    assert reader["waits"] == [fork["id"]] and fork["awaited"] == [reader["id"]]
    assert [one["tokens"] for one in face["critical"]] == [96, 256, 256]


def test_a_model_counts(cli: Any, tiny_llama: Path) -> None:
    done = cli("plan", str(JUDGE), "--model", str(tiny_llama), "--set", "essay=Short.")
    assert done.code == 0, done.err
    assert "tokens computed:" in done.out and "characters" not in done.out
    assert cli("plan", str(JUDGE), "--model", "nothing-here").code == 5


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name.split(".")[0])
def test_every_format_of_every_example(path: Path) -> None:
    found = plan(checked(path))
    ids = {box.id for box in graph(found).boxes}
    assert all({one, other} <= ids for one, other, _ in graph(found).edges)
    assert {one for one, _, _ in graph(found).edges} | {other for _, other, _ in graph(found).edges} == ids
    root = ElementTree.fromstring(svg(found))
    assert len(root.findall(".//{*}rect")) == len(ids)
    assert len(text(found).splitlines()) > 5
    assert dot(found).count(" -> ") == mermaid(found).count("> s") + mermaid(found).count("> finish")


def test_texts_cannot_leave_their_place() -> None:
    found = plan(program(NASTY))
    picture = ElementTree.fromstring(svg(found))
    shown = "".join(picture.itertext())
    assert "if '\"<&>' in x[0]" in shown and "\x07" not in shown
    assert picture.findall(".//{*}script") == []
    for line in mermaid(found).splitlines()[1:]:
        assert re.fullmatch(
            r'  (?:\w+(?:\(\[|\[|\{\{)"[^"\[\]{}()|]*"(?:\]\)|\]|\}\})|\w+ (?:-->|==>|-\. waits \.->) \w+)', line
        ), line
    for line in dot(found).splitlines()[2:-1]:
        assert re.fullmatch(r'  \w+ (?:\[label="(?:[^"\\]|\\.)*"(?:, shape=\w+)?\]|-> \w+(?: \[[\w=, ]+\])?);', line), (
            line
        )
    assert all(ord(c) >= 32 for line in text(found).splitlines() for c in line)


def test_the_edges_of_a_graph() -> None:
    found = plan(
        program(
            """sglspec: v1
steps:
  - x
  - gen: a
  - if: a == ""
    then: {return: }
  - fork: {p: {gen: b}, q: [{gen: c}, {gen: d}]}
  - gen: e
  - "{{ b }}"
  - gen: f
"""
        )
    )
    names = {-1: "start", -2: "end"} | {node.id: node.label for node in found.every() if node.id >= 0}
    edges = {(names[one], names[other], kind) for one, other, kind in graph(found).edges}
    assert edges == {
        ("start", "gen a", "next"), ("gen a", 'if a == ""', "next"), ('if a == ""', "return", "next"),
        ("return", "end", "next"), ('if a == ""', "fork", "next"), ("fork", "gen b", "starts"),
        ("fork", "gen c", "starts"), ("gen c", "gen d", "next"), ("fork", "gen e", "next"),
        ("gen e", '"{{ b }}"', "next"), ('"{{ b }}"', "gen f", "next"), ("gen f", "end", "next"),
        ("fork", '"{{ b }}"', "waits"),
    }  # fmt: skip


def test_wrong_usage(cli: Any, write: Any) -> None:
    assert "is not text, mermaid, dot, json or svg" in cli("plan", str(JUDGE), "--format", "png").err
    write("bad.yaml", "sglspec: v1\nsteps: [{gen: x, max_token: 2}]")
    done = cli("plan", "bad.yaml")
    assert done.code == 1 and "S201" in done.err and done.out == ""


# -- what a run spends -------------------------------------------------------------------------------------------

FORK = """sglspec: v1
name: tips
outputs: [sum]
steps:
  - Two things.
  - fork: topic
    in: [food, sleep]
    do:
      - "On {{ topic }}: "
      - gen: tip
        max_tokens: 4
  - "{{ tip | join }}"
  - tool: calculator
    with: {expression: 1 + 1}
    into: two
  - gen: sum
    regex: "[a-z]{3}"
"""


def run_profiled(cli: Any, write: Any, model: Path, *more: str) -> Any:
    write("tips.sglspec.yaml", FORK)
    done = cli("run", "tips.sglspec.yaml", "--model", str(model), "--engine", "weights=fp32,threads=1", *more)
    assert done.code == 0, done.err
    return done


def test_a_profile_is_the_tree_with_what_happened(cli: Any, write: Any, tiny_llama: Path) -> None:
    done = run_profiled(cli, write, tiny_llama, "--profile")
    tree = re.sub(r"[\d,.]+ (ms|s)\b", r"N \1", done.err)
    tree = re.sub(r"from [\d,.]+ to", "from N to", re.sub(r" +", " ", tree))
    assert "tips: N s\n" in tree
    assert re.search(r"├─ fork topic in \[…\] N ms \d+ computed, 0 reused\n", tree)
    assert re.search(r"│ ├─ \[1\.0 food\] from N to N ms \d+ computed, \d+ reused 4 generated\n", tree)
    assert re.search(r"│ └─ gen tip 2 × N ms \d+ computed, \d+ reused 8 generated\n", tree)
    assert "waited N ms\n" in tree and "├─ tool calculator N ms\n" in tree
    assert re.search(r"└─ gen sum N ms \d+ computed, \d+ reused \d+ generated", tree)
    computed, best = re.search(r"computed (\d+) tokens\nat best (\d+) tokens", tree).groups()  # type: ignore[union-attr]
    assert computed == best


def test_a_profile_in_the_result(cli: Any, write: Any, tiny_llama: Path) -> None:
    done = run_profiled(cli, write, tiny_llama, "--profile", "--json")
    assert done.err == ""
    face = json.loads(done.out)
    profile, usage = face["profile"], face["usage"]
    assert profile["computed_tokens"] == profile["optimal_tokens"] == usage["computed_tokens"]
    assert profile["compiled"]["constraints"] == 1
    steps = {step["label"]: step for step in profile["steps"]}
    assert steps["gen tip"]["times"] == 2 and steps["gen tip"]["generated_tokens"] == 8
    for name in ("computed_tokens", "generated_tokens", "forced_tokens"):
        assert sum(step.get(name, 0) for step in profile["steps"]) == usage[name]
    assert [line["branch"] for line in profile["branches"]] == ["", "1.0", "1.1"]
    assert sum(line.get("computed_tokens", 0) for line in profile["branches"]) == usage["computed_tokens"]
    assert "profile" not in json.loads(run_profiled(cli, write, tiny_llama, "--json").out)


def test_a_profile_without_a_model(cli: Any, write: Any) -> None:
    write("tips.sglspec.yaml", FORK)
    write("replies.yml", "tip: x\ncalculator: 2\nsum: abc\n")
    done = cli("run", "tips.sglspec.yaml", "--backend", "scripted:replies.yml", "--profile", "--json")
    profile = json.loads(done.out)["profile"]
    assert profile["optimal_tokens"] is None and profile["computed_tokens"] == 0
    assert [step["label"] for step in profile["steps"]] == [
        "fork topic in […]",
        "gen tip",
        "tool calculator",
        "gen sum",
    ]


def test_the_trace_is_a_timeline(cli: Any, write: Any, tmp_path: Path, tiny_llama: Path) -> None:
    run_profiled(cli, write, tiny_llama, "--trace", "trace.json")
    content = json.loads((tmp_path / "trace.json").read_text("utf-8"))
    assert {"tokens", "branches", "events", "traceEvents", "displayTimeUnit"} <= {*content}
    events = content["traceEvents"]
    named = [event for event in events if event["ph"] == "M"]
    tracks = {event["tid"]: event["args"]["name"] for event in named if event["name"] == "thread_name"}
    assert list(tracks.values()) == ["main", "1.0", "1.1", "constraints"]
    timed = [event for event in events if event["ph"] != "M"]
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    assert all(isinstance(event["ts"], int) and event["ts"] >= 0 for event in timed)
    spans = [event for event in timed if event["ph"] == "X"]
    assert all(isinstance(event["dur"], int) and event["dur"] >= 0 and event["tid"] in tracks for event in spans)
    kinds = {(tracks[event["tid"]], event["cat"]) for event in spans}
    assert kinds == {
        ("main", "run"), ("main", "fork"), ("main", "wait"), ("main", "tool"), ("main", "gen"),
        ("1.0", "branch"), ("1.0", "gen"), ("1.1", "branch"), ("1.1", "gen"), ("constraints", "compile"),
    }  # fmt: skip
    for track in tracks:
        assert_nested([(event["ts"], event["ts"] + event["dur"]) for event in spans if event["tid"] == track])
    flows: dict[int, list[str]] = {}
    for event in timed:
        if event["ph"] in ("s", "f"):
            flows.setdefault(event["id"], []).append(event["ph"])
    assert list(flows.values()) == [["s", "f"], ["s", "f"]]


def assert_nested(spans: list[tuple[int, int]]) -> None:
    """Of two spans of a track one holds the other, or they do not meet."""
    open_until: list[int] = []
    for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        assert not open_until or end <= open_until[-1]
        open_until.append(end)
