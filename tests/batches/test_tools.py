"""Tools in a batch: rows run again when a tool that they may call has changed."""

from __future__ import annotations

from pathlib import Path

import sglspec
from sglspec.tools import load_tools
from tests.runtime.fake import FakeBackend

SPEC = """
sglspec: v1
inputs: {q: string}
outputs: [a]
steps:
  - tool: double
    with: {text: "{{ q }}"}
    into: a
"""
TOOLS = """
from sglspec.tools import tool
@tool
def double(text: str) -> str:
    return text * 2
"""
OTHER = """
from sglspec.tools import tool
@tool
def other(): ...
"""


def test_a_changed_tool_changes_the_rows(tmp_path: Path):
    file, unused, out = tmp_path / "tools.py", tmp_path / "unused.py", tmp_path / "out.jsonl"
    file.write_text(TOOLS)
    unused.write_text(OTHER)

    def run() -> list[str]:
        program = sglspec.load(SPEC, tools=load_tools([str(file), str(unused)]))
        return [row.outputs["a"] for row in program.batch([{"q": "x"}, {"q": "y"}], on=FakeBackend({}), output=out)]

    assert run() == ["xx", "yy"]
    unused.write_text(OTHER + "# changed\n")
    assert run() == []
    file.write_text(TOOLS.replace("* 2", "* 3"))
    assert run() == ["xxx", "yyy"]
