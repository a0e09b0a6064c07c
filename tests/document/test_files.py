"""Which files a document may name, and which it may not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sglspec.document import files
from sglspec.document.files import Bundle, Files, PathFault
from sglspec.document.read import read_source, source_from_text


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """own/main.yaml, own/in/a.yaml and b.yaml in it; other/c.yaml; secret.yaml outside of all."""
    for name in ("own/main.yaml", "own/in/a.yaml", "own/b.yaml", "other/c.yaml", "secret.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, "utf-8")
    return tmp_path


def of_main(tree: Path, *roots: str) -> Files:
    return Files(read_source(tree / "own" / "main.yaml", "own/main.yaml"), [tree / root for root in roots])


def read(opened: Files, path: str) -> tuple[str, str]:
    """The name of a file in messages, and its text; or the code of why it cannot be read."""
    try:
        found = opened.find(opened.start, path)
        return found.name, opened.read(found).text
    except PathFault as fault:
        return fault.code, ""


def test_the_own_folder_and_below(tree: Path) -> None:
    opened = of_main(tree)
    assert read(opened, "./b.yaml") == read(opened, "b.yaml") == ("own/b.yaml", "own/b.yaml")
    assert read(opened, "./in/a.yaml") == read(opened, "in/.././in//a.yaml") == ("own/in/a.yaml", "own/in/a.yaml")
    assert read(opened, "../own/b.yaml") == ("own/b.yaml", "own/b.yaml")
    assert [source.name for source in opened.sources] == ["own/b.yaml", "own/in/a.yaml"]


def test_nothing_else(tree: Path) -> None:
    for path in ("../secret.yaml", "../other/c.yaml", "in/../../secret.yaml", "..", "../../../../etc/passwd"):
        assert read(of_main(tree), path) == ("S121", "")


def test_whether_a_file_outside_is_there_is_not_told(tree: Path) -> None:
    assert read(of_main(tree), "../secret.yaml") == read(of_main(tree), "../nothing.yaml")


def test_folders_that_are_granted(tree: Path) -> None:
    opened = of_main(tree, "other")
    assert read(opened, "../other/c.yaml") == ("other/c.yaml", "other/c.yaml")
    assert read(opened, "../secret.yaml") == ("S121", "")
    # a root is no place that paths start from, when the document has one
    assert read(opened, "./c.yaml") == ("S100", "")


def test_a_text_stands_in_the_first_root(tree: Path) -> None:
    text = source_from_text("x", "posted.yaml")
    opened = Files(text, [tree / "other", tree / "own"])
    assert read(opened, "./c.yaml") == ("c.yaml", "other/c.yaml")
    assert read(opened, "../own/b.yaml") == ("../own/b.yaml", "own/b.yaml")
    assert read(Files(text), "./c.yaml") == ("S121", "")


def test_symbolic_links_count_by_where_they_lead(tree: Path) -> None:
    (tree / "own" / "out.yaml").symlink_to(tree / "secret.yaml")
    (tree / "own" / "door").symlink_to(tree / "other")
    (tree / "own" / "inside.yaml").symlink_to(tree / "own" / "in" / "a.yaml")
    (tree / "own" / "round").symlink_to("round")
    opened = of_main(tree)
    assert read(opened, "./out.yaml") == read(opened, "./door/c.yaml") == ("S121", "")
    assert read(opened, "./inside.yaml") == ("own/inside.yaml", "own/in/a.yaml")
    assert read(opened, "./round")[0] in ("S100", "S121")
    assert read(of_main(tree, "other"), "./door/c.yaml") == ("own/door/c.yaml", "other/c.yaml")


def test_a_root_may_be_a_link(tree: Path) -> None:
    (tree / "link").symlink_to(tree / "other")
    assert read(of_main(tree, "link"), "../other/c.yaml") == ("other/c.yaml", "other/c.yaml")


@pytest.mark.parametrize(
    "path",
    ["", " ", "/etc/passwd", "//host/x", "~/x", "C:/x", "c:x", "file:///x", "http://x/y", "in\\a.yaml", "a\nb", "a\0b"],
)
def test_forms_that_are_refused(tree: Path, path: str) -> None:
    assert read(of_main(tree), path) == ("S120", "")


def test_what_is_no_file(tree: Path) -> None:
    os.mkfifo(tree / "own" / "pipe")
    opened = of_main(tree)
    assert [read(opened, path)[0] for path in ("./pipe", "./in", "./nothing", "x" * 5000)] == ["S100"] * 4


def test_so_many_files_and_no_more(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 1)
    opened = of_main(tree)
    assert read(opened, "./b.yaml") == read(opened, "./in/../b.yaml") == ("own/b.yaml", "own/b.yaml")
    assert read(opened, "./in/a.yaml") == ("S109", "")


def test_what_was_read_is_found_again_in_a_bundle(tree: Path) -> None:
    """By whatever path, and below files that were found that way."""
    (tree / "own" / "linked").symlink_to(tree / "own" / "in")
    opened = of_main(tree, "other")
    paths = ["./b.yaml", "../own/b.yaml", "in/a.yaml", "linked/a.yaml", "../other/c.yaml"]
    for path in paths:
        read(opened, path)
    above = opened.find(opened.find(opened.start, "in/a.yaml").folder, "../b.yaml")
    opened.read(above)
    bundle = opened.bundle()
    assert sorted(bundle) == ["../other/c.yaml", "../own/b.yaml", "b.yaml", "in/a.yaml", "linked/a.yaml"]
    assert opened.names["../own/b.yaml"] == "own/b.yaml"
    packed = Bundle(source_from_text("x", "spec"), bundle)
    assert [read(packed, path)[1] for path in paths] == [read(opened, path)[1] for path in paths]
    assert packed.find(packed.find(packed.start, "in/a.yaml").folder, "../b.yaml").name == "b.yaml"
    assert [read(packed, path)[0] for path in ("./c.yaml", "../c.yaml", "/b.yaml")] == ["S100", "S121", "S120"]
    assert read(Bundle(source_from_text("x", "spec"), {}), "./b.yaml") == ("S121", "")


def test_two_files_that_links_bring_to_one_path(tree: Path) -> None:
    """`in/x.yaml` is a link to `b.yaml`, beside which stands a `c.yaml`; so does one in `in`."""
    for name in ("own/c.yaml", "own/in/c.yaml"):
        (tree / name).write_text(name)
    (tree / "own" / "in" / "x.yaml").symlink_to(tree / "own" / "b.yaml")
    opened = of_main(tree)
    opened.read(opened.find(opened.start, "in/c.yaml"))
    assert opened.bundle() == {"in/c.yaml": "own/in/c.yaml"}
    opened.read(opened.find(opened.find(opened.start, "in/x.yaml").folder, "./c.yaml"))
    with pytest.raises(PathFault, match="two files"):
        opened.bundle()
