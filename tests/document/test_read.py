"""Files and bytes: decoding, formats, the size limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglspec.diagnostics import Diagnostic, Position, Report, SpecError
from sglspec.document.bounds import MAX_BYTES
from sglspec.document.nodes import Source, to_python
from sglspec.document.read import parse, read_source, source_from_text


def refused(data: str | bytes) -> Diagnostic:
    with pytest.raises(SpecError) as caught:
        source_from_text(data, "t.yaml")
    (found,) = caught.value.diagnostics
    assert found.file == "t.yaml"
    return found


@pytest.mark.parametrize(
    ("name", "expected"), [("a.json", "json"), ("a.JSON", "json"), ("a.yaml", "yaml"), ("a", "yaml"), ("json", "yaml")]
)
def test_the_name_decides_the_format(name: str, expected: str) -> None:
    assert source_from_text("{}", name).format == expected


def test_the_format_can_be_given() -> None:
    source = source_from_text("{a: 1}", "<stdin>", "json")
    report = Report()
    assert parse(source, report) is None
    assert [d.code for d in report.sorted()] == ["S102"]


def test_a_json_file_is_strict_and_a_yaml_file_may_hold_json(tmp_path: Path) -> None:
    for name, ok in (("a.yaml", True), ("a.json", False)):
        path = tmp_path / name
        path.write_text('{"a": [1, 2,]}')
        assert (parse(read_source(path), Report()) is not None) == ok


def test_a_file_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes("\ufeffa: 'é'\r\nb: 1\r\n".encode())
    source = read_source(path)
    assert (source.name, source.text, source.format) == (str(path), "a: 'é'\r\nb: 1\r\n", "yaml")


def test_line_breaks_of_old() -> None:
    source = source_from_text("a: 1\rb: [\r\n", "t.yaml")
    report = Report()
    assert parse(source, report) is None
    assert [d.range.start.line for d in report.sorted() if d.range] == [3]


def test_whatever_cannot_be_read_has_a_place() -> None:
    for data in ("a" * (MAX_BYTES + 1), "a: 1".encode("utf-16"), b"a: \xff", "a: \0"):
        assert refused(data).range is not None


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, word in ((tmp_path / "none.yaml", "no file"), (tmp_path, "folder"), ("a\0b", "cannot be read")):
        with pytest.raises(SpecError) as caught:
            read_source(path)
        assert caught.value.diagnostics[0].code == "S100"
        assert word in caught.value.diagnostics[0].message


def test_bytes_that_are_not_utf8() -> None:
    found = refused("é: 1\nb: é".encode() + b"\xff\xfe")
    assert found.code == "S113"
    assert "0xFF" in found.message
    assert found.range is not None
    assert found.range.start == Position(2, 5)


def test_bytes_that_are_not_utf8_behind_line_breaks_of_old() -> None:
    found = refused(b"a: 1\rb: 2\r\nc: 3\rd: \xff")
    assert found.range is not None
    assert (found.range.start.line, found.range.start.column) == (4, 4)


def test_utf16() -> None:
    assert "UTF-16" in refused("a: 1".encode("utf-16")).message


def test_surrogates_in_bytes() -> None:
    assert refused(b"a: \xed\xa0\x80").code == "S113"


def test_surrogates_in_text() -> None:
    report = Report()
    assert parse(source_from_text("a: \ud800", "t.yaml"), report) is None
    assert [d.code for d in report.sorted()] == ["S113"]


def test_nul() -> None:
    found = refused("a: 1\nb: \0")
    assert found.code == "S113"
    assert found.range is not None
    assert found.range.start == Position(2, 4)


def test_the_size_limit(tmp_path: Path) -> None:
    head = "a: "
    assert source_from_text(head + "x" * (MAX_BYTES - len(head)), "t.yaml")
    assert source_from_text("\ufeff".encode() + b"x" * MAX_BYTES, "t.yaml")
    assert refused("x" * (MAX_BYTES + 1)).code == "S109"
    assert refused(b"x" * (MAX_BYTES + 1)).code == "S109"
    assert refused("é" * (MAX_BYTES // 2 + 1)).code == "S109"
    path = tmp_path / "big.yaml"
    path.write_bytes(b"x" * (10 * MAX_BYTES))
    with pytest.raises(SpecError) as caught:
        read_source(path)
    assert caught.value.diagnostics[0].code == "S109"


def test_a_source_made_by_hand_is_limited_too() -> None:
    report = Report()
    assert parse(Source("t.json", "x" * (MAX_BYTES + 1), "json"), report) is None
    assert [d.code for d in report.sorted()] == ["S109"]


def test_lints_do_not_stop_the_tree() -> None:
    report = Report()
    node = parse(source_from_text("user: Use C # not Java", "t.yaml"), report)
    assert node is not None
    assert to_python(node) == {"user": "Use C"}
    assert [d.severity for d in report.sorted()] == ["warning"]


def test_earlier_reports_do_not_matter() -> None:
    report = Report()
    report.add(Diagnostic("S300", "from elsewhere"))
    assert parse(source_from_text("a: 1", "t.yaml"), report) is not None


def test_offsets_and_positions_of_a_source() -> None:
    source = Source("t", "ab\n\nc", "yaml")
    assert [source.position(i) for i in range(6)] == [
        Position(1, 1),
        Position(1, 2),
        Position(1, 3),
        Position(2, 1),
        Position(3, 1),
        Position(3, 2),
    ]
    assert [source.offset(source.position(i)) for i in range(6)] == list(range(6))
    assert source.position(99) == Position(3, 2)
    assert source.offset(Position(99, 99)) == 5
