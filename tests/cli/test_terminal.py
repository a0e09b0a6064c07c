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
    for number, topic in enumerate(("food", "movement", "sleep"), start=1):
        assert f"┌ branch {number} of 3: {topic}\n│ user\n│ One tip on {topic}.\n" in blocks


AFTER = (
    FORK
    + """\
  - user: Sum up.
  - assistant:
      - "{{ tip | join(', ') }}: "
      - gen: summary
"""
)


def test_the_main_line_waits_for_the_boxes_which_come_in_order(shown):
    # the first branch takes longest, and the main line opens two messages before it is done
    replies = "tip: [slow and slower, a b, fast]\nsummary: fast\n"
    done = shown(AFTER.replace("outputs: [tip]", "outputs: [summary]"), replies, runner="slow")
    text = re.sub(r"[0-9] of 3 branches done …", "", plain(done.out))
    order = ["Two things", "branch 1", "slow and slower", "branch 2", "a b", "branch 3", "Sum up.", "assistant\nslow"]
    places = [text.rindex(part) if part.startswith("assistant") else text.index(part) for part in order]
    assert places == sorted(places)
    assert text.endswith("user\nSum up.\n\nassistant\nslow and slower, a b, fast: fast\n")


def test_long_lines_in_a_box_are_wrapped(shown):
    tip = "one two three four five six seven eight nine ten eleven twelve " + "x" * 50
    done = shown(FORK, f"tip: ['{tip}', b, c]\n", COLUMNS="40")
    lines = plain(done.out).splitlines()
    box = lines[lines.index("┌ branch 1 of 3: food") : lines.index("└")]
    assert box[5:] == [
        "│ one two three four five six seven",
        "│ eight nine ten eleven twelve",
        "│ " + "x" * 38,
        "│ " + "x" * 12,
    ]


def test_a_title_fits_on_its_line(shown):
    done = shown(FORK.replace("[food, movement, sleep]", f"['{'long ' * 30}', '日本語']"), "tip: b\n", COLUMNS="50")
    titles = [line for line in plain(done.out).splitlines() if line.startswith("┌")]
    assert titles == ["┌ branch 1 of 2: long long long long long long lo…", "┌ branch 2 of 2: 日本語"]


NESTED = """\
sglspec: v1
steps:
  - "Before. "
  - fork:
      left:
        - "Left. "
        - fork: [n]
          do: []
      right:
        - "Right."
  - "After."
""".replace("fork: [n]\n          do: []", "fork: n\n          in: [1, {a: 2}]\n          do: ['N {{ n }}.']")


def test_forks_in_branches_are_boxes_in_boxes(shown):
    done = shown(NESTED, "{}\n", NO_COLOR="1")
    assert done.out == (
        "Before. \n"
        "\n┌ branch 1 of 2: left\n"
        "│ Left.\n│\n"
        "│ ┌ branch 1 of 2: 1\n│ │ N 1.\n│ └\n│\n"
        '│ ┌ branch 2 of 2: {"a": 2}\n│ │ N {"a": 2}.\n│ └\n'
        "└\n"
        "\n┌ branch 2 of 2: right\n│ Right.\n└\n"
        "\nAfter.\n"
    )


def test_a_failed_branch_says_why(shown):
    text = FORK.replace("- gen: tip", "- fail: 'No {{ topic }}.'\n      - set: {tip: x}") + "    on_error: skip\n"
    text = text.replace("[food, movement, sleep]", "[food]").replace("outputs: [tip]\n", "")
    done = shown(text, "{}\n", NO_COLOR="1", COLUMNS="30")
    assert "│ One tip on food.\n└ failed: No food.\n" in done.out


ROWS = '{"n": 1}\n{"n": "one"}\n\n{"n": 2}\n{"n": 3}'
SLOW = "sglspec: v1\ninputs: {n: integer}\nsteps:\n  - gen: a\n"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ((), ["0/4 rows …", "1/4 rows, 9 rows/s …", "3/4 rows, 1 failed, 9 rows/s …"]),
        (("--limit", "3"), ["0/3 rows …", "1/3 rows, 9 rows/s …", "3/3 rows, 1 failed, 9 rows/s …"]),
        (
            ("--shard", "1/1", "-o", "out.jsonl"),
            ["0/4 rows …", "3/4 rows, 2 of them from before, 1 failed, 9 rows/s …"],
        ),
        (("--shard", "1/2"), ["0 rows …"]),
    ],
)
def test_how_far_a_batch_is(terminal, write, process, options: tuple[str, ...], shown: list[str]):
    """A row takes longer than the line stays as it is; the one that is refused takes no time."""
    write("spec.yaml", SLOW)
    write("rows.jsonl", ROWS)
    write("replies.yaml", "a: word\n")
    command = ("batch", "spec.yaml", "rows.jsonl", "--backend", "scripted:replies.yaml")
    if "-o" in options:
        process(*command, "-o", "out.jsonl", "--limit", "2")
    done = terminal(*command, "--concurrency", "1", *options, runner="slow")
    lines = [re.sub(r"[0-9.]+ rows/s", "9 rows/s", line) for line in re.findall(r"\x1b\[2m(.*?)\x1b\[0m", done.out)]
    assert [line for line in shown if line not in lines] == [], lines
    # a result does not go on in the line
    assert not re.search(r"\x1b\[0m\{", done.out)
