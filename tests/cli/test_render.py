"""`sglspec render`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .conftest import FORK, HELLO

CHAT = """\
sglspec: v1
inputs: {city: string}
steps:
  - system: Be brief.
  - user: What about {{ city }}?
  - assistant:
      - "Well, "
      - gen: answer
  - user: Say "{{ answer }}" again, or not?
  - select: again
    from: ["yes", "no"]
  - if: again == "yes"
    then:
      - user: Why?
      - gen: reason
        fields: {text: string}
"""


def test_text_without_a_model(cli, write):
    write("t.yaml", CHAT)
    done = cli("render", "t.yaml", "--set", "city=⟨answer⟩")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "-- system --\nBe brief.\n-- user --\nWhat about ⟨answer⟩?\n-- assistant --\nWell, ⟨answer⟩\n"
        '-- user --\nSay "⟨answer⟩" again, or not?\n-- assistant --\n⟨again⟩\n-- user --\nWhy?\n-- assistant --\n⟨reason⟩\n'
    )


def test_pieces_tell_data_from_blanks(cli, write):
    write("t.yaml", CHAT)
    found = json.loads(cli("render", "t.yaml", "--set", "city=⟨answer⟩", "--json").out)
    (context,) = found["contexts"]
    assert (found["model"], found["error"], context["branch"], context["tokens"]) == (None, None, "", None)
    assert context["messages"][1]["pieces"] == [
        {"kind": "author", "text": "What about "},
        {"kind": "input", "text": "⟨answer⟩"},
        {"kind": "author", "text": "?"},
    ]
    assert context["messages"][3]["pieces"][1] == {"kind": "blank", "text": "⟨answer⟩"}


def test_replies(cli, write):
    write("t.yaml", CHAT)
    write("r.yaml", "answer: [Nice.]\nagain: 'no'\n")
    done = cli("render", "t.yaml", "--set", "city=Lyon", "--replies", "r.yaml")
    assert done.code == 0
    assert "Well, Nice.\n" in done.out
    assert done.out.endswith('Say "Nice." again, or not?\n-- assistant --\nno\n')
    write("bad.yaml", "again: perhaps\n")
    assert cli("render", "t.yaml", "--set", "city=Lyon", "--replies", "bad.yaml").code == 3
    assert cli("render", "t.yaml", "--set", "city=Lyon", "--replies", "missing.yaml").code == 2


def test_branches(cli, write):
    write("t.yaml", FORK)
    done = cli("render", "t.yaml")
    assert done.out.count("How does one stay healthy?") == 1
    assert "== branch 0.2 ==\n-- user --\nOne tip on sleep.\n-- assistant --\n⟨tip⟩\n" in done.out


def test_a_program_that_needs_the_value(cli, write):
    """What comes before is shown, then what stopped it."""
    write("t.yaml", "sglspec: v1\nsteps:\n  - Hi\n  - gen: n\n    type: integer\n  - 'Next: {{ n + 1 }}'\n")
    done = cli("render", "t.yaml")
    assert done.code == 3
    assert done.out == "-- text --\nHi⟨n⟩\n"
    assert "S7" in done.err


def test_faults(cli, write):
    write("t.yaml", HELLO)
    write("wrong.yaml", "sglspec: v1\nsteps: [{gem: x}]\n")
    assert cli("render", "wrong.yaml").code == 1
    assert cli("render", "t.yaml", "--set", "town=x").code == 2
    assert cli("render", "t.yaml", "--model", "no-such-model").code == 5
    assert cli("render", "-", stdin=HELLO).out == "-- text --\nParis is the capital of ⟨country⟩\n"


@pytest.mark.model
def test_with_a_model(cli, write, default_model):
    """Control tokens are marked, and the counts add up to what the model's own tokenizer says."""
    write("t.yaml", CHAT)
    done = cli("render", "t.yaml", "--set", "city=Lyon", "--model", str(default_model))
    assert done.code == 0, done.err
    assert "⟦<|im_start|>⟧user\nWhat about Lyon?⟦<|im_end|>⟧\n" in done.out
    found = json.loads(cli("render", "t.yaml", "--set", "city=Lyon", "--model", str(default_model), "--json").out)
    (context,) = found["contexts"]
    assert context["tokens"] == sum(message["tokens"] for message in context["messages"])
    assert {"kind": "control", "text": "<|im_start|>"} in context["messages"][0]["pieces"]


def test_no_torch(write):
    write("t.yaml", HELLO)
    code = "import sys; from sglspec.cli import main; main(['render', 't.yaml']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=write("x", "").parent, capture_output=True, timeout=60)
