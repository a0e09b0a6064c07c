"""Commands on files that cannot be read or written: a diagnostic, an exit code, and nothing lost."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

UNTIDY = b"sglspec: 1\nsteps:\n- generate:   a\n"
READERS = ("check", "fmt", "upgrade", "test", "render", "plan")


def make(name: str) -> Callable[[Path], None]:
    contents = {
        "binary": bytes(range(128, 256)) * 20,
        "empty": b"",
        "blank": b"\n\n# nothing\n",
        "latin1": b"sglspec: v1\nsteps: caf\xe9\n",
        "utf16": "sglspec: v1\n".encode("utf-16"),
        "nul": b'sglspec: v1\nsteps: "a\0b"\n',
        "large": b"sglspec: v1\nsteps:\n" + b"- gen:   a\n" * 1_000_000,
        "two": b"---\na: 1\n---\nb: 2\n",
    }

    def write(path: Path) -> None:
        if name == "missing":
            return
        if name == "loop":
            path.symlink_to(path.name)
        elif name == "dangling":
            path.symlink_to("nowhere")
        else:
            path.write_bytes(contents[name])

    return write


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize(
    ("kind", "code", "says"),
    [
        ("missing", 2, "S100"),
        ("loop", 2, "S100"),
        ("dangling", 2, "S100"),
        ("binary", 1, "S113"),
        ("latin1", 1, "S113"),
        ("utf16", 1, "S113"),
        ("nul", 1, "S113"),
        ("empty", 1, "S112"),
        ("blank", 1, "S112"),
        ("large", 1, "S109"),
        ("two", 1, "S105"),
    ],
)
def test_what_cannot_be_read(cli, tmp_path: Path, command: str, kind: str, code: int, says: str):
    path = tmp_path / "x.yaml"
    make(kind)(path)
    before = path.read_bytes() if path.is_file() else None
    done = cli(command, "x.yaml")
    assert (done.code, says in done.out + done.err) == (code, True), done
    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("path", ["", "n" * 300, "x.yaml/y.yaml"])
def test_paths_that_are_none(cli, tmp_path: Path, command: str, path: str):
    (tmp_path / "x.yaml").write_bytes(UNTIDY)
    (tmp_path / "y.sglspec.yaml").write_bytes(UNTIDY)
    done = cli(command, path)
    assert done.code == 2 and done.err + done.out, done
    # an empty path is not the folder where we are
    assert (tmp_path / "y.sglspec.yaml").read_bytes() == UNTIDY


@pytest.mark.parametrize("command", READERS)
def test_standard_input(cli, command: str):
    assert cli(command, "-", stdin="").code == 1
    assert cli(command, "-", stdin="sglspec: v1\nsteps: [x, {gen: a}]\n").code == (2 if command == "test" else 0)
    test = "sglspec: v1\nsteps: [{gen: a}]\ntests:\n  - {replies: {a: b}, expect: [a == 'b']}\n"
    if command == "test":
        assert cli(command, "-", stdin=test).out == "ok   <stdin>: test 1\n1 passed, in 1 document\n"
    if command in ("check", "fmt", "upgrade"):
        assert cli(command, "-", "-", stdin=test).code == 2


@pytest.mark.parametrize("command", ["fmt", "upgrade"])
@pytest.mark.parametrize("fails", ["mkstemp", "fsync", "chmod", "replace"])
def test_what_cannot_be_written_stays(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, fails: str):
    """A folder that may not be written, a disk that is full."""

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    place = {"mkstemp": tempfile, "fsync": os}.get(fails, Path)
    path = tmp_path / "x.yaml"
    path.write_bytes(UNTIDY)
    with monkeypatch.context() as patch:
        patch.setattr(place, fails, fail)
        done = cli(command, "x.yaml")
    assert done.code == 2 and "`x.yaml` cannot be written: No space left on device." in done.err, done
    assert [one.name for one in tmp_path.iterdir()] == ["x.yaml"] and path.read_bytes() == UNTIDY
    assert cli(command, "x.yaml").code == 0 and path.read_bytes() != UNTIDY


def test_what_is_no_regular_file_is_not_replaced(cli, tmp_path: Path):
    path = tmp_path / "x.yaml"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(UNTIDY,), daemon=True)
    writer.start()
    done = cli("fmt", "x.yaml")
    writer.join(10)
    assert done.code == 2 and "it is no regular file" in done.err, done
    assert path.is_fifo()


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("there.yaml", "is there already"),
        ("folder.yaml", "is there already"),
        ("loop.yaml", "is there already"),
        ("dangling.yaml", "is there already"),
        ("there.yaml/x", "Not a directory"),
        ("there.yaml/in/x", "Not a directory"),
        ("n" * 300, "File name too long"),
        ("x.json", "no name for a YAML document"),
        ("in/", "no name for a YAML document"),
        ("", "Name the file"),
    ],
)
def test_new_overwrites_nothing(cli, tmp_path: Path, path: str, says: str):
    (tmp_path / "there.yaml").write_bytes(UNTIDY)
    (tmp_path / "folder.yaml").mkdir()
    for kind in ("loop", "dangling"):
        make(kind)(tmp_path / f"{kind}.yaml")
    before = sorted(tmp_path.iterdir())
    done = cli("new", path)
    assert (done.code, done.out, says in done.err) == (2, "", True), done
    assert sorted(tmp_path.iterdir()) == before and (tmp_path / "there.yaml").read_bytes() == UNTIDY


def test_new_leaves_no_half_a_file(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sglspec.cli.new.text_of", lambda *_: "a text that cannot be written: \ud800")
    done = cli("new", "x")
    assert done.code == 2 and "cannot be written" in done.err
    assert list(tmp_path.iterdir()) == []


def test_folders_and_models_with_long_names(cli, tmp_path: Path):
    (tmp_path / "x.yaml").write_text("sglspec: v1\nsteps: [{gen: a}]\n")
    long = "n" * 300
    for arguments, code in (
        (("render", "x.yaml", "--root", long), 2),
        (("render", "x.yaml", "--replies", long), 2),
        (("serve", long), 2),
        (("run", "x.yaml", "--model", long), 5),
        (("batch", "x.yaml", long, "--backend", "scripted"), 2),
        (("test", "x.yaml", "--junit", long), 2),
    ):
        done = cli(*arguments)
        assert (done.code, "S799" in done.err) == (code, False), done


def test_outcomes_are_told_though_the_report_cannot_be_written(cli, tmp_path: Path):
    (tmp_path / "x.yaml").write_text("sglspec: v1\nsteps: [{gen: a}]\ntests: [{replies: {a: b}}]\n")
    done = cli("test", "x.yaml", "--junit", "no/folder.xml")
    assert done.code == 2 and "1 passed" in done.out and "cannot be written" in done.err


@pytest.mark.parametrize("kind", ["folder", "pipe", "here"])
def test_results_go_to_regular_files_only(cli, tmp_path: Path, kind: str):
    """A device or a pipe would be read for the results that are in it, without end."""
    (tmp_path / "x.yaml").write_text("sglspec: v1\nsteps: [{gen: a}]\n")
    (tmp_path / "rows.jsonl").write_text("{}\n")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    output = "." if kind == "here" else kind
    done = cli("batch", "x.yaml", "rows.jsonl", "--backend", "scripted", "-o", output)
    assert (done.code, "no regular file" in done.err) == (2, True), done


def test_a_column_for_an_input_is_looked_for_before_anything_runs(cli, tmp_path: Path):
    (tmp_path / "x.yaml").write_text('sglspec: v1\ninputs: {q: string}\nsteps: ["{{ q }}"]\n')
    (tmp_path / "rows.csv").write_text("p\na\n")
    done = cli("batch", "x.yaml", "rows.csv", "--backend", "scripted", "--map", "q=zz", "-o", "out.jsonl")
    assert (done.code, "column `zz`" in done.err) == (2, True), done
    assert not (tmp_path / "out.jsonl").exists()


def test_inputs_without_end(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sglspec.cli.inputs.MAX_BYTES", 1000)
    monkeypatch.setattr("sglspec.cli.stdin.MAX_BYTES", 1000)
    (tmp_path / "x.yaml").write_text('sglspec: v1\ninputs: {q: string}\nsteps: ["{{ q }}"]\n')
    for given, text in (("q=@/dev/zero", ""), ("q=@-", "y" * 1001)):
        done = cli("run", "x.yaml", "--backend", "scripted", "--set", given, stdin=text)
        assert (done.code, "longer than 1,000 bytes" in done.err) == (2, True), done
