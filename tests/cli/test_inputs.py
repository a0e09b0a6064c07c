"""`--set` and `--input`."""

from __future__ import annotations

import json
import re

import pytest

from .conftest import HELLO, TYPED

TYPED_RUN = ("run", "typed.yaml", "--backend", "scripted")


@pytest.fixture
def typed(cli, write):
    """Run the document of typed inputs; gives its outputs, or the whole outcome when it fails."""
    write("typed.yaml", TYPED)

    def run(*arguments: str, **more):
        done = cli(*TYPED_RUN, *arguments, **more)
        return json.loads(done.out) if done.code == 0 else done

    return run


def test_values_are_read_as_the_declared_type(typed):
    assert typed("--set", "count=3", "--set", 'tags=["a"]', "--set", "note=7") == {
        "count": 3,
        "tags": ["a"],
        "note": "7",
    }


def test_json_values(typed):
    assert typed("--set", "count:=4", "--set", 'tags:=["b", "c"]')["tags"] == ["b", "c"]


@pytest.mark.parametrize("value", ["{{ 1 + 1 }}", "a=b", "x:=y", "", "line\nbreak", "{% raw %}"])
def test_values_are_data(typed, value):
    assert typed("--set", "count=1", "--set", f"note={value}")["note"] == value


def test_text_of_a_file(typed, write):
    write("note.txt", "from a file\n")
    assert typed("--set", "count=1", "--set", "note=@note.txt")["note"] == "from a file\n"


def test_number_from_a_file(typed, write):
    write("count.txt", "12\n")
    assert typed("--set", "count=@count.txt")["count"] == 12


def test_text_from_standard_input(typed):
    assert typed("--set", "count=1", "--set", "note=@-", stdin="piped é")["note"] == "piped é"


def test_doubled_at_is_one(typed):
    assert typed("--set", "count=1", "--set", "note=@@home")["note"] == "@home"


def test_later_wins_and_set_wins_over_input(typed, write):
    write("a.yaml", "count: 1\nnote: a\n")
    write("b.json", '{"count": 2}')
    given = ("--set", "note=x", "--input", "a.yaml", "--input", "b.json", "--set", "note=y")
    assert typed(*given) == {"count": 2, "tags": [], "note": "y"}


@pytest.mark.parametrize("text", ["count: 5\n", '{"count": 5}', '{"count":\t5}'])
def test_input_from_standard_input(typed, text):
    assert typed("--input", "-", stdin=text)["count"] == 5


def test_unknown_name_is_refused_with_a_suggestion(typed):
    done = typed("--set", "count=1", "--set", "nots=x")
    assert done.code == 2
    assert "S403" in done.err
    assert "`note`" in done.err
    assert done.out == ""


def test_all_problems_are_reported(typed):
    done = typed("--set", "nots=x")
    assert done.code == 2
    assert "S402" in done.err
    assert "S403" in done.err


@pytest.mark.parametrize("setting", ["count=three", "count=1.5", "count=true", "tags=a"])
def test_wrong_type(typed, setting):
    done = typed("--set", "count=1", "--set", setting)
    assert done.code == 2
    assert "S401" in done.err


@pytest.mark.parametrize("text", ["{", "NaN", '{"a": 1, "a": 2}'])
def test_bad_json_points_at_the_argument(typed, text):
    done = typed("--set", f"count:={text}")
    assert done.code == 2
    assert "--set count:1:" in done.err


@pytest.mark.parametrize("setting", ["count", "=3", ":=3"])
def test_setting_without_name_or_value(typed, setting):
    done = typed("--set", setting)
    assert done.code == 2
    assert "name=value" in done.err


def test_standard_input_is_read_once(typed):
    done = typed("--input", "-", "--set", "note=@-", stdin="count: 1")
    assert done.code == 2
    assert "read by --input - already" in done.err


def test_document_and_input_cannot_share_standard_input(cli):
    done = cli("run", "-", "--input", "-", "--backend", "scripted", stdin=TYPED)
    assert done.code == 2
    assert "read by SPEC already" in done.err


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.yaml", None, "S100"),
        ("list.yaml", "- 1\n", "mapping of names"),
        ("broken.yaml", "a: [1\n", "broken.yaml:"),
    ],
)
def test_unreadable_input_file(typed, write, name, content, says):
    if content is not None:
        write(name, content)
    done = typed("--input", name)
    assert done.code == 2
    assert says in done.err


def test_unreadable_file_of_a_setting(typed, tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for file, says in (
        ("missing.txt", "`note`: there is no file 'missing.txt'."),
        (".", "`note`: '.' is a folder, not a file."),
        ("", "`note=@` names no file. Write `note=@FILE` for"),
        ("bytes", "`note`: 'bytes' is not UTF-8 text (byte 0)."),
    ):
        done = typed("--set", f"note=@{file}")
        assert done.code == 2
        assert says in done.err


def test_messages_are_sentences(typed):
    done = typed("--set", "count:='x'".replace("'", '"'), "--set", "nots=x")
    assert re.findall(r"error (S4\d\d: .*)", done.err) == [
        "S403: The program has no input `nots`.",
        'S401: Input `count`: expected a whole number, found the text "x".',
    ]
    assert "error S402: The input `count` is missing.\n" in typed().err
    assert "error S401: Input `count`: expected a whole number, found" in typed("--set", "count=x").err


def test_null(typed, write):
    """For a text, null is a text; in JSON, and for other types, it stands for the default."""
    assert typed("--set", "count=1", "--set", "note=null")["note"] == "null"
    assert typed("--set", "count=1", "--set", "note:=null", "--set", "tags=null")["note"] == "none"
    write("a.yaml", "count: null\n")
    assert "S401" in typed("--input", "a.yaml").err


def test_document_from_standard_input(cli, write):
    write("replies.yaml", "country: France\n")
    done = cli("run", "-", "--backend", "scripted:replies.yaml", stdin=HELLO)
    assert (done.code, done.out) == (0, "France\n")
