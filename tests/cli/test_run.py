"""`sglspec run`: what is printed where, and with which exit code."""

from __future__ import annotations

import json
import os

import pytest

from sglspec import models
from sglspec.backends import local
from sglspec.backends.base import EngineError, TraceToken
from sglspec.backends.scripted import ScriptedSession

from .conftest import FORK, HELLO, TYPED

SCRIPTED = ("--backend", "scripted:replies.yaml")


@pytest.fixture
def hello(cli, write):
    write("hello.sglspec.yaml", HELLO)
    write("replies.yaml", "country: France\n")

    def run(*arguments: str, **more):
        return cli("run", "hello.sglspec.yaml", *SCRIPTED, *arguments, **more)

    return run


def run_text(cli, write, text: str, *arguments: str, replies: str = "{}\n", **more):
    write("program.yaml", text)
    write("replies.yaml", replies)
    return cli("run", "program.yaml", *SCRIPTED, *arguments, **more)


def steps(*lines: str) -> str:
    return "sglspec: v1\nsteps:\n" + "".join(f"  {line}\n" for line in lines)


def test_one_text_is_printed_as_it_is(hello):
    done = hello()
    assert (done.code, done.out, done.err) == (0, "France\n", "")


def test_several_outputs_are_one_object(cli, write):
    done = run_text(cli, write, TYPED, "--set", "count=2")
    assert json.loads(done.out) == {"count": 2, "tags": [], "note": "none"}


def test_one_output_that_is_no_text_is_an_object(cli, write):
    done = run_text(cli, write, steps("- set: {n: 3}"))
    assert json.loads(done.out) == {"n": 3}


def test_json_is_the_whole_result(hello):
    done = hello("--json", "--seed", "7")
    result = json.loads(done.out)
    assert done.code == 0
    assert result["status"] == "succeeded"
    assert result["outputs"] == {"country": "France"}
    assert result["seed"] == 7
    assert set(result) == {
        "status", "outputs", "variables", "text", "messages", "meta", "usage", "seed", "error"
    }  # fmt: skip


def test_json_of_a_failed_run(cli, write):
    done = run_text(cli, write, steps("- set: {n: 3}", "- fail: not today"), "--json")
    result = json.loads(done.out)
    assert done.code == 3
    assert result["status"] == "failed"
    assert result["error"]["code"] == "S701"
    assert result["variables"] == {"n": 3}
    assert "S701" in done.err


def test_json_of_a_document_with_errors(cli, write):
    done = run_text(cli, write, steps("- gen: x", "  max_token: 3"), "--json")
    answer = json.loads(done.out)
    assert done.code == 1
    assert answer["status"] == "refused"
    assert answer["error"]["code"] == answer["diagnostics"][0]["code"] == "S201"


def test_document_with_errors(cli, write):
    done = run_text(cli, write, steps("- gen: x", "  max_token: 3"))
    assert done.code == 1
    assert done.out == ""
    assert "program.yaml:4:5" in done.err
    assert "^^^" in done.err


def test_failing_run_points_into_the_document(cli, write):
    done = run_text(cli, write, steps("- set: {n: 3}", "- check: n == 4"))
    assert done.code == 3
    assert done.out == ""
    assert "program.yaml:4:" in done.err
    assert "S702" in done.err
    assert "n == 4" in done.err.split("S702")[1]


def test_a_limit(cli, write):
    text = "sglspec: v1\nlimits: {iterations: 3}\nsteps:\n  - set: {n: 0}\n  - while: n < 9\n    max: 100\n    do:\n      - set: {n: '{{ n + 1 }}'}\n"
    done = run_text(cli, write, text)
    assert done.code == 4
    assert "S705" in done.err
    assert json.loads(done.out) == {"n": 3}


def test_a_time_limit(process, write):
    text = HELLO.replace("steps:", "limits: {seconds: 0.2}\nsteps:")
    done = run_text(process, write, text, replies="country: a long long long answer\n", runner="slow")
    assert done.code == 4
    assert "S706" in done.err


def test_missing_document(cli):
    done = cli("run", "nowhere.yaml")
    assert done.code == 2
    assert "S100" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--backend", "nonsense"), 5, "S601"),
        (("--model", "no-such-model"), 5, "S601"),
        (("--model", "./no-such-folder"), 5, "S602"),
        (("--backend", "scripted:missing.yaml"), 2, "S100"),
    ],
)
def test_backend_that_cannot_be_opened(cli, write, tmp_path, arguments, code, says):
    write("hello.yaml", HELLO)
    done = cli("run", "hello.yaml", *arguments, SGLSPEC_HOME=str(tmp_path))
    assert done.code == code
    assert says in done.err
    assert done.out == ""


def test_model_that_is_not_here_names_the_command(cli, write, tmp_path):
    write("hello.yaml", HELLO)
    done = cli("run", "hello.yaml", SGLSPEC_HOME=str(tmp_path))
    assert done.code == 5
    assert "sglspec models pull" in done.err


@pytest.mark.parametrize(("model", "says"), [("gpt-4", "S601"), ("./nowhere", "S602")])
def test_a_wrong_model_of_the_document_has_its_place(cli, write, tmp_path, model, says):
    write("hello.yaml", HELLO.replace("steps:", f"model: {model}\nsteps:"))
    assert cli("check", "hello.yaml").code == 0
    done = cli("run", "hello.yaml", SGLSPEC_HOME=str(tmp_path))
    assert done.code == 5
    assert done.err.startswith(f"hello.yaml:6:8: error {says}: There is no model")
    done = cli("run", "hello.yaml", "--model", model, SGLSPEC_HOME=str(tmp_path))
    assert done.err.startswith(f"error {says}: There is no model")


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_without_the_packages_of_the_local_engine(process, write, package):
    """A folder on the path whose sitecustomize makes a package missing."""
    write("hello.yaml", HELLO)
    write("replies.yaml", "country: France\n")
    write("model/config.json", "{}")
    write("model/tokenizer.json", "{}")
    write("model/model.safetensors", "")
    write("site/sitecustomize.py", f"import sys\nsys.modules[{package!r}] = None\n")
    path = os.pathsep.join(["site", os.environ.get("PYTHONPATH", "")])
    done = process("run", "hello.yaml", "--model", "./model", PYTHONPATH=path)
    assert (done.code, done.out) == (5, "")
    assert f"error S607: The local engine needs the package `{package}`, which is not installed.\n" in done.err
    assert "pip install 'sglspec[local]'" in done.err
    done = process("run", "hello.yaml", *SCRIPTED, PYTHONPATH=path)
    assert (done.code, done.out) == (0, "France\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineError("unsupported", "this model is odd"), "S605"),
        (EngineError("template", "this template is odd"), "S603"),
        (OSError(5, "Input/output error"), "S608"),
        (ImportError("libfoo.so is missing"), "S607"),
    ],
)
def test_every_failure_to_open_a_model_is_a_message(cli, write, monkeypatch, error, code):
    async def fail(path):
        raise error

    monkeypatch.setattr(local, "open_local", fail)
    monkeypatch.setattr(models, "resolve", lambda reference: reference)
    write("hello.yaml", HELLO)
    done = cli("run", "hello.yaml", "--json")
    assert done.code == 5
    assert f"error {code}: " in done.err
    message = json.loads(done.out)["error"]["message"]
    assert message[0].isupper()
    assert message.endswith(".")


def test_model_of_the_document_is_used(cli, write, tmp_path):
    write("hello.yaml", HELLO.replace("steps:", "model: ./a-folder\nsteps:"))
    done = cli("run", "hello.yaml", SGLSPEC_HOME=str(tmp_path))
    assert "./a-folder" in done.err
    done = cli("run", "hello.yaml", "--model", "./b-folder", SGLSPEC_HOME=str(tmp_path))
    assert "./b-folder" in done.err


def test_events_are_one_object_a_line(hello):
    done = hello("--stream", "events")
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "run.started"
    assert [e["type"] for e in events if e["type"].startswith("run.")] == ["run.started", "run.succeeded"]
    assert events[-1]["outputs"] == {"country": "France"}


def test_events_of_a_failed_run(cli, write):
    done = run_text(cli, write, steps("- fail: no"), "--stream", "events")
    assert done.code == 3
    assert json.loads(done.out.splitlines()[-1])["type"] == "run.failed"


def test_stream_none(hello):
    assert hello("--stream", "none").out == "France\n"


def test_stream_text_in_a_pipe_has_no_colours(hello):
    done = hello("--stream", "text")
    assert done.out == "Paris is the capital of France\n"
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize("kind", ["text", "events"])
def test_json_and_a_stream_exclude_each_other(hello, kind):
    done = hello("--json", "--stream", kind)
    assert done.code == 2


def test_joined_text_is_shown_once(cli, write):
    text = (
        "sglspec: v1\nsteps:\n  - Facts.\n  - fork: planet\n    in: [Mars, Venus]\n    do: ['{{ planet }} is red.']\n"
    )
    done = run_text(cli, write, text + "    join: concat\n  - Done.\n", "--stream", "text")
    assert done.out == (
        "Facts.\n\n┌ branch 1 of 2: Mars\n│ Mars is red.\n└\n\n┌ branch 2 of 2: Venus\n│ Venus is red.\n└\n\nDone.\n"
    )


@pytest.mark.parametrize("seed", ["-1", "18446744073709551616", "x", "", "9" * 5000])
def test_bad_seed(hello, seed):
    done = hello("--seed", seed)
    assert done.code == 2
    assert "is not a whole number from 0 to 2^64 - 1.\n" in done.err


def test_the_largest_seed(hello):
    assert json.loads(hello("--json", "--seed", "18446744073709551615").out)["seed"] == 2**64 - 1


def test_a_seed_of_ours_survives_every_reader_of_json(hello):
    assert all(json.loads(hello("--json").out)["seed"] < 2**53 for _ in range(8))


def test_bad_stream(hello):
    done = hello("--stream", "foo")
    assert done.code == 2
    assert "'foo' is not text, events or none.\n" in done.err


def test_trace(hello, tmp_path):
    done = hello("--trace", "trace.json", "--seed", "5")
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    assert (done.code, done.out) == (0, "France\n")
    assert (trace["program"], trace["model"], trace["seed"], trace["status"]) == ("hello", "scripted", 5, "succeeded")
    assert trace["tokens"] == []
    assert trace["branches"] == {}
    assert trace["events"][-1]["type"] == "run.succeeded"


def test_trace_holds_the_tokens_of_branches(cli, write, tmp_path, monkeypatch):
    monkeypatch.setattr(ScriptedSession, "trace", lambda self: [TraceToken(1, self.text()[-1:], "author")])
    topics = ", ".join(str(number) for number in range(11))
    run_text(cli, write, FORK.replace("food, movement, sleep", topics), "--trace", "trace.json", replies="tip: x\n")
    branches = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["branches"]
    assert list(branches) == [f"1.{index}" for index in range(11)]
    assert branches["1.10"] == [{"id": 1, "text": "\n", "origin": "author"}]


def test_trace_of_a_failed_run(cli, write, tmp_path):
    run_text(cli, write, steps("- fail: no"), "--trace", "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["status"] == "failed"


@pytest.mark.parametrize("path", ["nowhere/trace.json", "-", ""])
def test_trace_that_cannot_be_written(hello, path):
    done = hello("--trace", path)
    assert done.code == 2
    assert done.out == ""


def test_fault_of_sglspec(process, write, tmp_path):
    done = run_text(process, write, HELLO, replies="country: x\n", runner="fault", TMPDIR=str(tmp_path))
    assert done.code == 70
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) == 1
    report = next(tmp_path.glob("sglspec-fault-*.txt"))
    assert str(report) in done.err
    assert "something that nobody expected" in report.read_text(encoding="utf-8")


def test_fault_while_streaming_does_not_hang(process, write, tmp_path):
    done = run_text(
        process, write, HELLO, "--stream", "events", replies="country: x\n", runner="fault", TMPDIR=str(tmp_path)
    )
    assert done.code == 70


def test_output_is_utf8_whatever_the_locale(process, write):
    done = run_text(
        process, write, HELLO, replies="country: 日本 🎌\n", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    assert (done.code, done.out) == (0, "日本 🎌\n")


def test_piped_model_text_is_untouched(process, write):
    done = run_text(process, write, HELLO, replies='country: "a\\e[31mred"\n')
    assert done.out == "a\x1b[31mred\n"


def test_half_characters_are_refused(cli, write):
    done = run_text(cli, write, TYPED, "--set", "count=1", "--set", 'note:="\\ud800"')
    assert done.code == 2
    assert "S113" in done.err


def test_branches_come_as_blocks(process, write):
    done = run_text(
        process, write, FORK, "--stream", "text", replies="tip: [eat well, move daily, sleep enough]\n", runner="slow"
    )
    assert done.code == 0
    for number, (topic, tip) in enumerate(
        [("food", "eat well"), ("movement", "move daily"), ("sleep", "sleep enough")], start=1
    ):
        block = f"┌ branch {number} of 3: {topic}\n│ user\n│ One tip on {topic}.\n│\n│ assistant\n│ {tip}\n└"
        assert block in done.out


def test_a_text_that_is_too_long_for_the_model(cli, write, tiny_llama):
    write("long.yaml", "sglspec: v1\ninputs: {big: string}\nsteps:\n  - '{{ big }}'\n  - gen: x\n")
    done = cli("run", "long.yaml", "--model", str(tiny_llama), "--set", "big=" + "word " * 600)
    assert done.code == 4
    assert "error S712: The context has " in done.err
    assert "long.yaml:5:" in done.err
    assert "Traceback" not in done.err


def test_thinking_is_shown_in_events_only(cli, write):
    text = steps("- 'Q: '", "- {gen: a, reasoning: qwen3}")
    replies = 'a: "<think>so many</think>four"\n'
    assert run_text(cli, write, text, replies=replies).out == "four\n"
    assert "many" not in run_text(cli, write, text, "--stream", "text", replies=replies).out
    lines = run_text(cli, write, text, "--stream", "events", replies=replies).out.splitlines()
    thinking = [json.loads(line) for line in lines if '"thinking"' in line]
    assert [event["text"] for event in thinking] == ["so many"]
    result = json.loads(run_text(cli, write, text, "--json", replies=replies).out)
    assert result["meta"]["a"]["reasoning"] == "so many"


def test_called_programs_are_boxes(cli, write):
    write("part.yaml", "sglspec: v1\nsteps: [{user: Inside.}, {gen: x}]\n")
    write("main.yaml", "sglspec: v1\nuse: {part: ./part.yaml}\nsteps: [before, {call: part}, ' after', {call: part}]\n")
    write("replies.yml", "part.x: [one, two]\n")
    done = cli("run", "main.yaml", "--backend", "scripted:replies.yml", "--stream", "text")
    boxes = [f"┌ call part\n│ user\n│ Inside.\n│\n│ assistant\n│ {text}\n└\n" for text in ("one", "two")]
    assert done.out == f"before\n\n{boxes[0]}\n after\n\n{boxes[1]}", done.out


def test_options_of_the_run(cli, write):
    """They stand between `defaults` and steps: here the stop of the run is found in the replies of `a` and `c`."""
    text = "sglspec: v1\ndefaults: {stop: '!'}\nsteps:\n  - {gen: a}\n  - {gen: b, stop: '?'}\n"
    replies = "a: x!\nb: y!\n"
    assert run_text(cli, write, text, replies=replies).code != 0
    done = run_text(cli, write, text, "--sampling", 'stop=["\\n"]', "--sampling", "min_p=", replies=replies)
    assert json.loads(done.out) == {"a": "x!", "b": "y!"}
    done = run_text(cli, write, text, "--sampling", "stop_regex=x", "--sampling", "stop=", replies=replies)
    assert "holds the stop 'x'" in done.err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["temprature=1"], "--sampling:1:1: error S201: This place has no key `temprature`."),
        (["top_k=3", "temperature=-1"], "--sampling:2:14: error S212: Expected a number of at least 0, found -1."),
        (["stop={{ x }}"], "error S"),
        (["stop='{{ x }}'"], "--sampling:1:7: error S203: `stop` of a run is a value, not a template."),
        (["n=2"], "--sampling:1:1: error S213: `n` makes a variable a list"),
        (["min_tokens=9", "max_tokens=3"], "error S507: `min_tokens` (9) is more than `max_tokens` (3)."),
        (["logit_bias={x: 1}"], "--sampling:1:14: error S507: `x` is not a token id."),
        (["top_k=3", "top_k=4"], "--sampling:2:1: error S103"),
        (["top_k"], "is not NAME=VALUE in one line"),
        (["- a=3"], "is not NAME=VALUE in one line"),
        (["top_k=3\nseed: 4"], "is not NAME=VALUE in one line"),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
def test_options_of_the_run_that_are_wrong(hello, given: list[str], says: str):
    done = hello(*[word for option in given for word in ("--sampling", option)])
    assert done.code == 2
    assert says in done.err
