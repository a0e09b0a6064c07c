"""The documentation is checked like code: its examples check, and its tables say what the code has.

After a change of the library: `SGLSPEC_UPDATE_GOLDEN=1 pytest tests/test_docs.py` writes docs/functions.md anew.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from sglspec.analysis import load_program
from sglspec.analysis.regexes import MAX_NESTING, MAX_PATTERN, MAX_REPEAT
from sglspec.analysis.schemas import ASSERTIONS, FORMATS, MANY, NAMED, NUMBER_FORMATS, ONE
from sglspec.diagnostics import Report, SpecError
from sglspec.diagnostics.codes import CODES
from sglspec.diagnostics.render import render_text
from sglspec.document import bounds
from sglspec.document.load import keys_of
from sglspec.document.model import VERBS, Decl, Limits, Sampling, Spec
from sglspec.document.read import source_from_text
from sglspec.expressions import LIBRARY, SCOPE_FUNCTIONS, TESTS
from sglspec.expressions.function import Function
from sglspec.expressions.library_format import FORMAT
from sglspec.expressions.library_lists import LISTS
from sglspec.expressions.library_numbers import NUMBERS
from sglspec.expressions.library_regex import REGEX
from sglspec.expressions.library_text import TEXT
from sglspec.runtime.limits import Bounds
from sglspec.runtime.result import Result
from sglspec.runtime.threads import MOST
from sglspec.runtime.tool import LONGEST
from sglspec.tools import GROUP, MAX_RESULT, load_tools
from sglspec_engine.config import EngineConfig
from tests.runtime.fake import FakeBackend

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "examples" / "README.md"]
LANGUAGE = (ROOT / "docs" / "language.md").read_text("utf-8")
FUNCTIONS = ROOT / "docs" / "functions.md"
BLOCK = re.compile(r"(?:<!-- wrong: (?P<wrong>\w+) -->\n+)?^```yaml\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A YAML block: a whole document, or a list of steps. `wrong` is the code that it is marked with."""

    page: str
    line: int
    text: str
    wrong: str | None

    @property
    def document(self) -> str:
        return self.text if self.text.startswith("sglspec:") else f"sglspec: v1\nsteps:\n{self.text}"


def blocks() -> list[Block]:
    found: list[Block] = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start("text")) + 1
            found.append(Block(str(page.relative_to(ROOT)), line, match["text"], match["wrong"]))
    return found


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.page}:{block.line}")
def test_an_example_checks(block: Block):
    assert block.text.startswith(("sglspec: v1\n", "- ")), "a whole document or a list of steps"
    report = Report(block.page)
    try:
        load_program(source_from_text(block.document, "example.yaml"), report, roots=[ROOT / "examples"])
    except SpecError as error:
        report.extend(error.diagnostics)
    problems = report.sorted()
    assert {p.code for p in problems} == ({block.wrong} if block.wrong else set()), problems


def test_there_are_examples():
    pages = {block.page for block in blocks()}
    assert {"README.md", "docs/language.md"} <= pages
    assert any(block.wrong for block in blocks())


def sections() -> dict[str, str]:
    """Heading of the third level → the section below it; a heading may name several things."""
    found: dict[str, str] = {}
    for part in re.split(r"^### ", LANGUAGE, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        for name in heading.split(", "):
            found[name] = re.split(r"^## ", body, flags=re.MULTILINE)[0]
    return found


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_has_a_section_with_an_example(name: str):
    section = sections()[name]
    examples = [match["text"] for match in BLOCK.finditer(section)]
    assert any(re.search(rf"^ *(- |\{{|- \{{)?{name}:", example, re.MULTILINE) for example in examples)
    assert ("Not yet in this build." in section) != VERBS[name].ready


@pytest.mark.parametrize(
    "names",
    [
        [key for key in keys_of(Spec) if key != "use"],
        keys_of(Decl),
        keys_of(Limits),
        keys_of(Sampling),
        [key for verb in VERBS.values() for key in keys_of(verb.model)],
        list(Result("succeeded").as_dict()),
        sorted({code[:2] + "xx" for code in CODES if code[0] == "S"}),
    ],
    ids=["top level", "declarations", "limits", "sampling", "keys of steps", "results", "families"],
)
def test_every_key_is_in_the_page(names: list[str]):
    assert [name for name in names if not re.search(rf"`{re.escape(name)}[`:]", LANGUAGE)] == []


def test_the_limits_table():
    defaults = Bounds()
    for name in keys_of(Limits):
        assert re.search(rf"^\| `{name}` \|.*\| {getattr(defaults, name):,.0f} \|$", LANGUAGE, re.MULTILINE), name
    for number in (bounds.MAX_DEPTH, bounds.MAX_NODES, bounds.MAX_ALIASES):
        assert f"{number:,}" in LANGUAGE


def test_every_setting_of_the_engine_is_in_its_page():
    table = (ROOT / "docs" / "engine.md").read_text("utf-8").split("## Settings\n", 1)[1].split("\n## ", 1)[0]
    rows = "\n".join(line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `"))
    assert [field.name for field in fields(EngineConfig) if f"`{field.name}`" not in rows] == []


def test_the_example_of_a_tool_is_one(tmp_path: Path):
    page = (ROOT / "docs" / "tools.md").read_text("utf-8")
    block = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert block is not None
    (tmp_path / "shop.py").write_text(block[1], "utf-8")
    found = load_tools([str(tmp_path / "shop.py")]).find("stock")
    assert found is not None and found.function(item="apple") == {"count": 3, "enough": True}
    for number in (MAX_RESULT, MOST, LONGEST):
        assert f"{number:,}" in page
    group, entry = re.findall(r"```toml\n\[project.entry-points.\"(.*?)\"\]\nstock = \"(.*?)\"", page)[0]
    assert group == GROUP and entry.endswith(":stock")


def test_the_programs_of_the_page_of_tools_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """One after another, without a model; the server of the page stands for one that is here."""

    async def open_fake(*_: object) -> FakeBackend:
        return FakeBackend({})

    monkeypatch.setattr("sglspec.api.open_backend", open_fake)
    page = (ROOT / "docs" / "tools.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    document = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert document is not None
    order = document[1] + "  - {tool: stock, with: {item: '{{ item }}', least: '{{ least }}'}, into: found}\n"
    Path("order.sglspec.yaml").write_text(order, "utf-8")
    ask = "sglspec: v1\ninputs: {question: string}\nsteps:\n  - {tool: files.echo, with: {text: '{{ question }}'}, into: said}\n"
    Path("ask.sglspec.yaml").write_text(ask, "utf-8")
    server = f'["{sys.executable}", "{ROOT / "tests" / "cli" / "stdio_server.py"}", "mark"]'
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        runnable = block.replace('["uvx", "mcp-server-files", "/data"]', server)
        assert ("uvx" in block) == (server in runnable)
        exec(compile(runnable, "tools.md", "exec"), names)
        if "order" in block:
            assert names["program"].run({"item": "apple"}).outputs["found"] == {"count": 3, "enough": True}
    assert capsys.readouterr().out == "{'said': 'echo How many files are there?'}\n"


def test_what_constraints_take():
    """The keywords, formats and bounds that the page lists are those of the code."""
    part = LANGUAGE.split("#### JSON Schema\n", 1)[1].split("\n### ", 1)[0]
    words = set(re.findall(r"`([$\w-]+)`", part))
    for name in (*ASSERTIONS, *ONE, *MANY, *NAMED, *FORMATS, *NUMBER_FORMATS):
        assert name in words, name
    part = LANGUAGE.split("#### Regular expressions\n", 1)[1].split("\n#### ", 1)[0]
    for number in (MAX_PATTERN, MAX_REPEAT, MAX_NESTING):
        assert f"{number:,}" in part


# -- the table of functions --------------------------------------------------------------------------------------

HEAD = """# Functions

Every function can be written in two ways: `length(xs)` is `xs | length`. As a filter, its first argument is the value
before `|`. Filters that Jinja has take Jinja's arguments. In the examples, the part after `→` is the value.

This page is written by `tests/test_docs.py` from the library itself.
"""


def cell(code: str) -> str:
    """Code in a cell of a table."""
    shown = code.replace("\n", "\\n").replace("|", "\\|")
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def table(title: str, functions: tuple[Function, ...]) -> str:
    lines = [f"\n## {title}\n", "| function | what it gives | example |", "| --- | --- | --- |"]
    for function in functions:
        also = "".join(f" (also {cell(alias)})" for alias in function.aliases)
        expression, value = function.example
        example = f"{cell(expression)} → {cell(json.dumps(value, ensure_ascii=False))}"
        lines.append(f"| {cell(function.signature)}{also} | {function.doc.replace('|', chr(92) + '|')} | {example} |")
    return "\n".join(lines) + "\n"


def functions_page() -> str:
    """docs/functions.md, from the library."""
    parts = [HEAD]
    parts.append(table("Text", TEXT + FORMAT))
    parts.append(table("Lists, objects and choosing", LISTS))
    parts.append(table("Numbers and conversion", NUMBERS))
    parts.append(table("Patterns", REGEX))
    lines = ["\n## The run itself\n", "| function | what it gives |", "| --- | --- |"]
    for name, doc in SCOPE_FUNCTIONS.items():
        call = "meta(name)" if name == "meta" else f"{name}()"
        lines.append(f"| `{call}` | {doc} |")
    parts.append("\n".join(lines) + "\n")
    names = ", ".join(cell(name) for name in TESTS)
    parts.append(f"\n## Tests\n\nAfter `is` and `is not`, and by name in `select` and `reject`: {names}.\n")
    parts.append("\n`x is defined` means that `x` is bound and not null.\n")
    return "".join(parts)


def test_the_page_of_functions_is_that_of_the_library():
    page = functions_page()
    if os.environ.get("SGLSPEC_UPDATE_GOLDEN"):
        FUNCTIONS.write_text(page, "utf-8")
    assert FUNCTIONS.read_text("utf-8") == page


def test_every_function_is_in_it():
    page = functions_page()
    assert [name for name in (*LIBRARY, *SCOPE_FUNCTIONS) if f"`{name}" not in page] == []
    assert "functions.md" in LANGUAGE


def test_the_sample_of_check_is_what_it_prints():
    readme = (ROOT / "README.md").read_text("utf-8")
    sample = re.search(r"\$ cat (\S+)\n(.*?)\n\n\$ sglspec check \1\n(.*?)```", readme, re.DOTALL)
    assert sample is not None
    report = Report(sample[1])
    load_program(source_from_text(sample[2] + "\n", sample[1]), report)
    assert render_text(report.sorted(), {sample[1]: sample[2]}) == sample[3]
