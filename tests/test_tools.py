"""Tools of a host: how functions become tools, and where they come from."""

from __future__ import annotations

import functools
from enum import Enum
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, Field

from sglspec import tools
from sglspec.tools import MAX_RESULT, ToolError, Tools, ToolsFault, load_tools, make_tool, result_value, tool


class Unit(Enum):
    c = "c"
    f = "f"


class Place(BaseModel):
    city: str
    zip: int = 0


class Strange:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        raise KeyError("strange")


def broken(value: int) -> int:
    raise KeyError(f"the value is {value}")


def convert(annotation: Any, value: Any) -> Any:
    def function(x: Any) -> None: ...

    function.__annotations__["x"] = annotation
    return make_tool(function).parameters["x"].convert(value)


@pytest.mark.parametrize(
    ("annotation", "value", "converted"),
    [
        (int, "3", 3),
        (int, 3.0, 3),
        (float, 3, 3.0),
        (bool, "yes", True),
        (str, 3, "3"),
        (str | None, None, None),
        (list[int], ["1", 2], [1, 2]),
        (set[str], ["a", "a"], {"a"}),
        (Unit, "f", Unit.f),
        (Place, {"city": "Lyon", "zip": "69000"}, Place(city="Lyon", zip=69000)),
        (Annotated[int, Field(ge=0)], 0, 0),
        (Any, {"a": [1]}, {"a": [1]}),
    ],
)
def test_arguments_are_converted(annotation: Any, value: Any, converted: Any):
    assert convert(annotation, value) == converted


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (int, "three", "input should be a valid integer, unable to parse string as an integer"),
        (int, None, "input should be a valid integer"),
        (str, ["a"], "input should be a valid string"),
        (Annotated[int, Field(ge=0)], -1, "input should be greater than or equal to 0"),
        (list[int], [1, "b"], "at 1: input should be a valid integer, unable to parse string as an integer"),
        (Place, {"zip": 1}, "at city: field required"),
        (Annotated[int, AfterValidator(broken)], 7, "its check failed with KeyError"),
    ],
)
def test_what_does_not_fit_is_said_without_the_value(annotation: Any, value: Any, message: str):
    with pytest.raises(ValueError) as problem:
        convert(annotation, value)
    assert str(problem.value) == message


def test_required_and_unknown_arguments():
    def weather(city: str, days: int = 1, *, unit: str = "c") -> None: ...

    def anything(x: int, **rest: Any) -> None: ...

    closed = make_tool(weather)
    assert (closed.name, closed.missing(["days"]), closed.unknown(["city", "day"])) == ("weather", ["city"], ["day"])
    assert make_tool(anything).unknown(["y"]) == []


@pytest.mark.parametrize("function", [lambda *x: x, lambda x, /: x, functools.partial(print), 3, lambda: 0])
def test_what_cannot_be_a_tool(function: Any):
    with pytest.raises(ToolsFault):
        make_tool(function)


def test_types_that_cannot_be_read():
    def unknown(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def unusable(x: int) -> None: ...

    def pattern(x: Annotated[str, Field(pattern="(")]) -> None: ...

    def recursive(x: list[Strange]) -> None: ...

    unusable.__annotations__["x"] = object()
    for function in (unknown, unusable, pattern, recursive):
        with pytest.raises(ToolsFault):
            make_tool(function)


def test_results_are_json():
    assert result_value({"a": (1, Unit.c), 2: Place(city="Lyon")}) == {"a": [1, "c"], "2": {"city": "Lyon", "zip": 0}}
    loop: list[Any] = []
    loop.append(loop)
    for wrong in (object(), float("nan"), float("inf"), "\ud800", b"\xff", loop, 10**5000):
        with pytest.raises(ToolError, match="no JSON value"):
            result_value(wrong)
    with pytest.raises(ToolError, match="more than 10,000,000 characters"):
        result_value("x" * MAX_RESULT)


MODULE = """
from __future__ import annotations
from dataclasses import dataclass
from sglspec.tools import tool

@dataclass
class Point:
    x: int

@tool
def shift(point: Point) -> Point:
    return Point(point.x + 1)

@tool(name="web.search")
async def search(words: str) -> list[str]:
    return words.split()

def helper(): ...
"""


def test_a_module_given_by_its_path(tmp_path: Path):
    path = tmp_path / "my_tools.py"
    path.write_text(MODULE)
    host = load_tools([str(path)])
    assert host.names() == ["calculator", "shift", "web.search"]
    shift, search = host.find("shift"), host.find("web.search")
    assert shift is not None and search is not None
    assert (shift.is_async, search.is_async) == (False, True)
    assert result_value(shift.function(point=shift.parameters["point"].convert({"x": "1"}))) == {"x": 2}
    with pytest.raises(ToolsFault, match="there are two tools `shift`"):
        load_tools([str(path), str(path)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "has no tools"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError"),
        ("def", "cannot be loaded: SyntaxError"),
        ("raise SystemExit('no')", "cannot be loaded: SystemExit: no"),
        ("from sglspec.tools import tool\n@tool\ndef calculator(): ...", "two tools `calculator`"),
        ("from sglspec.tools import tool\n@tool(name='a b')\ndef f(): ...", "'a b' is not a name"),
    ],
)
def test_modules_that_do_not_load(tmp_path: Path, text: str, message: str):
    path = tmp_path / "t.py"
    path.write_text(text)
    with pytest.raises(ToolsFault, match=message):
        load_tools([str(path)])
    with pytest.raises(ToolsFault, match="cannot be loaded: FileNotFoundError"):
        load_tools([str(tmp_path / "none.py")])
    with pytest.raises(ToolsFault, match="cannot be loaded: ModuleNotFoundError"):
        load_tools(["no.such.module"])


def test_installed_tools_are_loaded_when_asked_for(monkeypatch: pytest.MonkeyPatch):
    entries = [
        EntryPoint("calc", "sglspec.tools:calculator", "sglspec.tools"),
        EntryPoint("broken", "sglspec.tools:nothing", "sglspec.tools"),
    ]
    monkeypatch.setattr(tools, "entry_points", lambda group: entries if group == "sglspec.tools" else [])
    assert Tools().names() == ["calculator"]
    host = Tools(installed=True)
    assert host.names() == ["broken", "calc", "calculator"]
    found = host.find("calc")
    assert found is not None and found.name == "calc" and found.function(expression="1 + 1") == 2
    assert host.find("other") is None
    with pytest.raises(ToolsFault, match="the tool `broken` cannot be loaded: AttributeError"):
        host.find("broken")


def test_a_marked_function_stays_a_function():
    @tool
    def double(x: int) -> int:
        return 2 * x

    assert double(3) == 6 and make_tool(double).name == "double"
