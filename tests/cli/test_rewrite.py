"""`sglspec fmt`, `sglspec upgrade` and `sglspec new`."""

from __future__ import annotations

import os
import stat

import pytest

from sglspec.cli.new import TEMPLATES

UNTIDY = "sglspec: v1\nsteps:\n- 'x'   # why\n- gen:  y\n"
TIDY = "sglspec: v1\nsteps:\n  - x   # why\n  - gen: y\n"
BROKEN = "sglspec: v1\nsteps: [\n"
OLD = "sglspec: 1\nsteps:\n  - x  # why\n  - generate: y\n"
NEW = "sglspec: v1\nsteps:\n  - x  # why\n  - gen: y\n"


@pytest.mark.parametrize(("command", "before", "after"), [("fmt", UNTIDY, TIDY), ("upgrade", OLD, NEW)])
def test_in_place(cli, write, command, before, after):
    path = write("a.sglspec.yaml", before)
    write("sub/b.sglspec.yaml", after)
    path.chmod(0o640)
    done = cli(command, ".")
    assert (done.code, done.out) == (0, "")
    assert done.err == f"1 of 2 documents {'formatted' if command == 'fmt' else 'upgraded'}\n"
    assert path.read_text() == after
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(item.name for item in path.parent.iterdir()) == ["a.sglspec.yaml", "sub"]
    assert cli(command, "--check", ".").code == 0


@pytest.mark.parametrize(("command", "before", "after"), [("fmt", UNTIDY, TIDY), ("upgrade", OLD, NEW)])
def test_standard_input(cli, command, before, after):
    done = cli(command, "-", stdin=before)
    assert (done.code, done.out, done.err) == (0, after, "")


@pytest.mark.parametrize(("command", "before"), [("fmt", UNTIDY), ("upgrade", OLD)])
def test_check_and_diff_change_nothing(cli, write, command, before):
    path = write("a.yaml", before)
    checked = cli(command, "--check", "a.yaml")
    assert (checked.code, checked.out) == (1, "a.yaml\n")
    shown = cli(command, "--diff", "a.yaml")
    assert shown.code == 0
    assert shown.out.startswith("--- a.yaml\n+++ a.yaml\n@@ ")
    assert cli(command, "--diff", "--check", "a.yaml").code == 1
    assert path.read_text() == before


@pytest.mark.parametrize("command", ["fmt", "upgrade"])
def test_broken_documents_stay(cli, write, command):
    broken, other = write("broken.yaml", BROKEN), write("other.yaml", UNTIDY if command == "fmt" else OLD)
    done = cli(command, "broken.yaml", "other.yaml")
    assert done.code == 1
    assert "broken.yaml:3:1" in done.err
    assert broken.read_text() == BROKEN
    assert other.read_text() == (TIDY if command == "fmt" else NEW)
    assert cli(command, "missing.yaml").code == 2
    assert cli(command, "-", stdin=BROKEN).out == ""


def test_a_link_stays_a_link(cli, write, tmp_path):
    path = write("real/a.yaml", UNTIDY)
    (tmp_path / "link.yaml").symlink_to(path)
    assert cli("fmt", "link.yaml").code == 0
    assert (tmp_path / "link.yaml").is_symlink()
    assert path.read_text() == TIDY


def test_line_ends_and_byte_order_mark(cli, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + TIDY.replace("\n", "\r\n").encode())
    assert cli("fmt", "--check", "a.yaml").code == 1
    assert cli("fmt", "a.yaml").code == 0
    assert path.read_bytes() == TIDY.replace("\n", "\r\n").encode()
    assert cli("fmt", "--check", "a.yaml").code == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(cli, write):
    path = write("sub/a.yaml", UNTIDY)
    path.parent.chmod(0o500)
    done = cli("fmt", "sub/a.yaml")
    path.parent.chmod(0o700)
    assert done.code == 2
    assert "cannot be written" in done.err
    assert path.read_text() == UNTIDY


def test_new(cli, tmp_path):
    done = cli("new", "hello", "--template", "extract")
    assert (done.code, done.out) == (0, "hello.sglspec.yaml\n")
    text = (tmp_path / "hello.sglspec.yaml").read_text()
    assert "\nname: hello\n" in text
    again = cli("new", "hello.sglspec.yaml")
    assert again.code == 2
    assert "there already" in again.err
    assert (tmp_path / "hello.sglspec.yaml").read_text() == text
    assert cli("new", "x", "--template", "nothing").code == 2
    assert cli("new").code == 2
    assert cli("new", "a/folder/x").out == "a/folder/x.sglspec.yaml\n"
    assert "name: x\n" in (tmp_path / "a" / "folder" / "x.sglspec.yaml").read_text()
    assert cli("new", "-", "--template", "judge").out.startswith("sglspec: v1\nname: judge\n")
    assert not (tmp_path / "-.sglspec.yaml").exists()
    assert [line.split()[0] for line in cli("new", "--list").out.splitlines()] == list(TEMPLATES)


@pytest.mark.parametrize("template", TEMPLATES)
def test_templates(cli, template):
    """They check without a warning, are formatted, and run."""
    file = f"{template}.sglspec.yaml"
    assert cli("new", template, "--template", template).code == 0
    assert cli("check", "--strict", file).code == 0
    assert cli("fmt", "--check", file).code == 0
    assert cli("render", file).code == 0
