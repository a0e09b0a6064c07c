"""What the documentation shows works against a server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "server.md").read_text("utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet(address: str, number: int, capsys: pytest.CaptureFixture[str]):
    code = SNIPPETS[number].replace("http://127.0.0.1:8080", address)
    assert address in code
    exec(compile(code, "server.md", "exec"), {"__name__": "snippet"})
    assert capsys.readouterr().out.strip()


def test_there_are_snippets():
    assert any("import sglang" in code for code in SNIPPETS)
    assert any("from openai" in code for code in SNIPPETS)
