"""`--engine`: what it takes, what it refuses, and that it reaches the engine."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields

import pytest

from sglspec.backends import open_backend
from sglspec.backends.local import LocalBackend
from sglspec.backends.switches import engine_settings, split_switches
from sglspec.diagnostics import SpecError
from sglspec_engine.config import EngineConfig

from .conftest import HELLO, environment

PROGRAM = """\
sglspec: v1
outputs: [word, number]
steps:
  - "red: warm. blue: cold. grey: dull. gold: bright. red: warm. blue: cold. teal:"
  - gen: word
    max_tokens: 4
  - gen: number
    regex: "abcdef ghijkl [0-9]"
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "prefix_cahe=off",
            "There is no engine setting `prefix_cahe`.\nhelp: Did you mean `prefix_cache`? Known: threads,",
        ),
        ("x=1", "There is no engine setting `x`.\nhelp: Known: threads, "),
        ("order=fcsf", "`order` takes fcfs, prefix or random, not `fcsf`.\nhelp: Did you mean `fcfs`?"),
        ("forks=nonsense", "`forks` takes together or sequential, not `nonsense`."),
        ("forced=of", "`forced` takes on or off, not `of`.\nhelp: Did you mean `off`?"),
        ("threads=two", "`threads` takes a whole number or auto, not `two`."),
        ("step_tokens=1.5", "`step_tokens` takes a whole number, not `1.5`."),
        ("step_tokens=auto", "`step_tokens` takes a whole number, not `auto`."),
        ("step_tokens=99999999999999999999", "`step_tokens` takes a whole number, not "),
        ("grammar_timeout=nan", "`grammar_timeout` takes a number, not `nan`."),
        ("step_tokens=0", "The engine cannot be set like this: step_tokens must be at least 1."),
        ("threads=-1", "The engine cannot be set like this: threads must be at least 1 where it is given."),
        ("device=", "`device` takes a name."),
        ("forced", "`forced` is no engine setting.\nhelp: Write `name=value`, with commas between several."),
        ("forced=off,", "An empty text is no engine setting."),
        ("", "An empty text is no engine setting."),
        ("forced=off,forced=on", "The engine setting `forced` is given twice.\nhelp: Leave one of them out."),
        ("a\x1b[31mb\n=1", "There is no engine setting `a\\x1b[31mb`."),
        ("order=a\x07b", "`order` takes fcfs, prefix or random, not `a\\x07b`."),
        ("grammar_workers=100000", "The engine cannot be set like this: grammar_workers must be at most 256."),
        ("max_context=99999999999", "The engine cannot be set like this: max_context must be at most 2,147,483,647."),
        ("grammar_timeout=1000000", "The engine cannot be set like this: grammar_timeout must be at most 86,400."),
    ],
)
def test_what_is_refused(cli, write, text, message):
    write("hello.yaml", HELLO)
    done = cli("run", "hello.yaml", "--engine", text)
    assert (done.code, done.out) == (2, "")
    assert f"error S610: {message}" in done.err
    done = cli("serve", "--port", "0", "--engine", text)
    assert done.code == 2
    assert f"error S610: {message}" in done.err


def test_a_refusal_is_in_the_json_face_too(cli, write):
    write("hello.yaml", HELLO)
    done = cli("run", "hello.yaml", "--json", "--engine", "order=none")
    assert done.code == 2
    assert json.loads(done.out)["error"]["code"] == "S610"


def test_a_backend_without_an_engine(cli, write):
    write("hello.yaml", HELLO)
    write("replies.yaml", "country: France\n")
    for command in (("run", "hello.yaml"), ("serve", "--port", "0")):
        done = cli(*command, "--backend", "scripted:replies.yaml", "--engine", "forced=off")
        assert done.code == 2
        assert "error S610: The backend `scripted` has no engine, so there is nothing to set in it." in done.err


def test_every_setting_of_the_engine_can_be_written():
    plain = EngineConfig()
    written = {}
    for field in fields(EngineConfig):
        value = getattr(plain, field.name)
        written[field.name] = "auto" if value is None else str(value).lower()
    assert EngineConfig(**engine_settings(written)) == plain


def test_values_of_their_own_type():
    given = {"forced": False, "threads": None, "grammar_timeout": 3, "order": "random", "device": "cpu"}
    assert engine_settings(given) == given
    for name, value in (("forced", 0), ("threads", True), ("step_tokens", 1.0), ("order", None), ("device", 3)):
        with pytest.raises(SpecError) as caught:
            engine_settings({name: value})
        assert [d.code for d in caught.value.diagnostics] == ["S610"]


def test_settings_may_be_spread_and_none_is_given_twice():
    assert split_switches(["order=fcfs, forced=off", "weights = fp32"]) == {
        "order": "fcfs", "forced": "off", "weights": "fp32",
    }  # fmt: skip
    with pytest.raises(SpecError, match="`order` is given twice"):
        split_switches(["order=fcfs", "order = fcfs"])


def test_reading_settings_loads_nothing_heavy():
    code = (
        "import sys\nfrom sglspec.backends import switches\nprint([m for m in ('torch', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=False)
    assert done.stdout == "[]\n"


async def test_the_python_interface_takes_a_mapping(tiny_llama):
    backend = await open_backend("local", str(tiny_llama), {"order": "fcfs", "forced": False})
    assert isinstance(backend, LocalBackend)
    try:
        config = backend.engine.config
        assert (config.order, config.forced, config.prefix_cache) == ("fcfs", False, True)
    finally:
        await backend.close()
    with pytest.raises(SpecError):
        await open_backend("scripted", None, {"order": "fcfs"})


def test_switches_reach_the_engine_and_change_no_outputs(cli, write, tiny_llama):
    write("program.yaml", PROGRAM)

    def run(*switches):
        done = cli("run", "program.yaml", "--json", "--seed", "1", "--model", str(tiny_llama), *switches)
        assert done.code == 0, done.err
        return json.loads(done.out)

    default = run("--engine", "weights=fp32")
    other = run("--engine", "weights=plain,forced=off", "--engine", "prefix_cache=off,step_tokens=5")
    assert other["outputs"] == default["outputs"]
    assert default["usage"]["forced_tokens"] > 5
    assert default["usage"]["generated_tokens"] == other["usage"]["generated_tokens"]


WIDE = """\
sglspec: v1
outputs: [x]
steps:
  - "Once upon a time"
  - fork: 64
    do:
      - " branch {{ loop.index }} says:"
      - gen: x
        max_tokens: TOKENS
        ignore_eos: true
"""
TOKEN = 2 * 2 * 2 * 16 * 4
"""Bytes of a token's keys and values in the tiny model: layers × both × heads × width × float32."""


@pytest.mark.parametrize(
    ("slots", "tokens", "code", "status"),
    [(60, 8, 0, "succeeded"), (60, 90, 4, "failed"), (3, 8, 4, "failed"), (1, 8, 4, "failed")],
)
def test_a_wide_fork_in_little_memory_ends_in_order(cli, write, tiny_llama, slots, tokens, code, status):
    """64 branches where all fit one after the other, where none can end, and where not even the text before them has
    room: outputs or a diagnostic with its place, never a traceback."""
    write("wide.yaml", WIDE.replace("TOKENS", str(tokens)))
    engine = f"max_kv_bytes={slots * TOKEN}"
    done = cli("run", "wide.yaml", "--json", "--seed", "1", "--model", str(tiny_llama), "--engine", engine)
    result = json.loads(done.out)
    assert (done.code, result["status"]) == (code, status), done.err
    assert "Traceback" not in done.err
    if status == "succeeded":
        assert len(result["outputs"]["x"]) == 64
    else:
        assert result["error"]["code"] == "S712"
        assert result["error"]["range"]["start"]["line"] in (5, 8)
