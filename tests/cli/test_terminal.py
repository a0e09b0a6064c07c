"""What a terminal gets that a pipe does not."""

from __future__ import annotations

import json
import re

import pytest

from .conftest import FORK, HELLO

RUN = ("run", "program.yaml", "--backend", "scripted:replies.yaml")


@pytest.fixture
def shown(terminal, write):
    def run(text: str, replies: str, *arguments: str, **more):
        write("program.yaml", text)
        write("replies.yaml", replies)
        return terminal(*RUN, *arguments, **more)

    return run


def plain(text: str) -> str:
    return re.sub("\x1b\\[[0-9;]*[mK]|\r", "", text)


def test_prompt_and_generation_are_told_apart(shown):
    done = shown(HELLO, "country: France\n")
    assert done.code == 0
    assert done.out == "\x1b[2mParis\x1b[0m\x1b[2m is the capital of \x1b[0mFrance\n"


def test_roles_are_headings(shown):
    text = "sglspec: v1\nsteps:\n  - user: Hello.\n  - gen: answer\n"
    done = shown(text, "answer: Hi.\n")
    assert plain(done.out) == "user\nHello.\n\nassistant\nHi.\n"
    assert "\x1b[1muser\x1b[0m" in done.out


def test_outputs_that_were_not_just_shown_follow(shown):
    text = HELLO.replace("outputs: [country]", 'outputs: {length: "{{ country | length }}"}')
    done = shown(text, "country: France\n")
    assert plain(done.out) == 'Paris is the capital of France\n\noutputs\n{\n  "length": 6\n}\n'


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour(shown, env):
    done = shown(HELLO, "country: France\n", **env)
    assert done.out == "Paris is the capital of France\n"


@pytest.mark.parametrize("stream", ["text", "none"])
def test_escape_sequences_of_the_model_are_removed(shown, stream):
    reply = 'country: "a\\e[31mb\\e]0;title\\ac\\x9b2Jd\\re"\n'
    done = shown(HELLO, reply, "--stream", stream, NO_COLOR="1")
    assert done.out.endswith("abcde\n")
    assert "\x1b" not in done.out


def test_json_on_a_terminal_streams_nothing(shown):
    done = shown(HELLO, "country: France\n", "--json")
    assert json.loads(done.out)["outputs"] == {"country": "France"}


def test_errors_are_coloured(shown):
    done = shown("sglspec: v1\nsteps:\n  - gen: x\n    max_token: 3\n", "{}\n")
    assert done.code == 1
    assert "\x1b[1;31m" in done.out


def test_warnings_are_one_line(shown):
    done = shown(HELLO.replace("{{ city }}", "It"), "country: France\n", NO_COLOR="1")
    assert done.out.startswith("1 warning; see: sglspec check program.yaml\n")


def test_a_fork_shows_how_many_branches_are_done(shown):
    done = shown(FORK, "tip: [fast, move daily, sleep enough]\n", runner="slow")
    assert done.code == 0
    assert "of 3 branches done" in done.out
    blocks = plain(done.out)
    for number in (1, 2, 3):
        assert f"┌ branch {number} of 3\n│ user\n│ One tip on" in blocks
