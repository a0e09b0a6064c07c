"""Tools: functions of the host that a program may call by name, and the list of those that a host offers.

    from sglspec.tools import ToolError, tool

    @tool
    def weather(city: str, days: int = 1) -> dict[str, float]:
        ...

A module of such functions is given with `--tools MODULE`; an installed package names each tool as an entry point of the
group `sglspec.tools`. Annotations say what the arguments are; pydantic converts and checks them.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, get_type_hints, overload

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from sglspec.calculator import calculate

GROUP = "sglspec.tools"
"""The group of entry points; the name of each is the tool's name, its value `module:function`."""
MAX_RESULT = 10_000_000
"""Characters of a result as JSON."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")
_MARK = "__sglspec_tool__"
F = TypeVar("F", bound=Callable[..., Any])


class ToolError(Exception):
    """Raised by a tool that cannot do what it was asked; the message goes to the program as it is."""


class ToolsFault(Exception):
    """A tool that cannot be registered, or a module of tools that cannot be loaded. The message is a clause."""


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(*, name: str) -> Callable[[F], F]: ...
def tool(function: F | None = None, /, *, name: str | None = None) -> F | Callable[[F], F]:
    """Mark a function (plain or async) as a tool of its module. `name`: instead of the function's own."""

    def mark(function: F) -> F:
        setattr(function, _MARK, name or function.__name__)
        return function

    return mark if function is None else mark(function)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument, and whether it has to be given. `convert` gives the argument from a value of a program; it raises
    ValueError, which does not repeat the value."""

    convert: Callable[[Any], Any]
    required: bool


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A function with a name. `is_async`: awaited on the loop; others run in a thread. `open`: takes any argument.
    `about`: what tells it from another of its name, where that is not in the function's file."""

    name: str
    function: Callable[..., Any]
    parameters: Mapping[str, Parameter]
    is_async: bool
    open: bool
    about: str = ""

    def missing(self, given: Collection[str]) -> list[str]:
        """The required arguments that are not among these."""
        return [name for name, one in self.parameters.items() if one.required and name not in given]

    def unknown(self, given: Iterable[str]) -> list[str]:
        """Those of these arguments that the tool does not have."""
        return [] if self.open else [name for name in given if name not in self.parameters]

    def fingerprint(self) -> str:
        """What changes when the tool does: `about`, or the text of the file that the function is in."""
        if self.about or self.function in BUILT_IN.values():
            return self.about
        try:
            file = inspect.getsourcefile(inspect.unwrap(self.function))
            return Path(file).read_text("utf-8", "replace") if file is not None else ""
        except (OSError, TypeError):  # no file, as with what was typed in
            return ""


def make_tool(function: Callable[..., Any], name: str | None = None) -> Tool:
    """A tool of any function. Raises ToolsFault when it cannot be one."""
    own: str = name or getattr(function, _MARK, None) or getattr(function, "__name__", "")
    if not _NAME.match(own):
        raise ToolsFault(f"{own!r} is not a name for a tool")
    if not inspect.isroutine(function):
        raise ToolsFault(f"the tool `{own}` is no function")
    try:
        signature = inspect.signature(function)
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:  # annotations are code: they fail with whatever they like
        raise ToolsFault(f"the tool `{own}` has a signature that cannot be read: {error_text(error)}") from None
    parameters: dict[str, Parameter] = {}
    open = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            open = True
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise ToolsFault(f"the tool `{own}` has the positional argument `{parameter.name}`: tools take names only")
        else:
            required = parameter.default is parameter.empty
            parameters[parameter.name] = Parameter(_converter(own, parameter.name, hints), required)
    is_async = inspect.iscoroutinefunction(function)
    return Tool(own, function, parameters, is_async, open)


def _converter(tool: str, name: str, hints: Mapping[str, Any]) -> Callable[[Any], Any]:
    adapter = _adapter(tool, name, hints)

    def convert(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_input=False, include_context=False)
            raise ValueError("; ".join(_fault_text(fault) for fault in faults[:3])) from None
        except (Exception, SystemExit) as error:  # validators are the tool's code; its words may repeat the value
            raise ValueError(f"its check failed with {type(error).__name__}") from None

    return convert


def _adapter(tool: str, name: str, hints: Mapping[str, Any]) -> TypeAdapter[Any]:
    annotation = hints.get(name, Any)
    try:
        try:
            # a number where text is expected is its text, as everywhere in the language
            return TypeAdapter(annotation, config=ConfigDict(coerce_numbers_to_str=True))
        except PydanticUserError as error:
            if error.code != "type-adapter-config-unused":
                raise
            return TypeAdapter(annotation)  # a model has a configuration of its own
    except Exception as error:  # types bring code of their own
        message = error.message if isinstance(error, PydanticUserError) else error_text(error)
        raise ToolsFault(f"the argument `{name}` of the tool `{tool}` has no usable type: {message}") from None


def _fault_text(fault: Any) -> str:
    place = ".".join(str(part) for part in fault["loc"])
    message: str = fault["msg"]
    message = message[:1].lower() + message[1:]
    return f"at {place}: {message}" if place else message


def error_text(error: BaseException) -> str:
    """What a tool failed with, as a clause: a ToolError's own words, of anything else its type, too."""
    try:
        text = str(error)
    except Exception:  # its words are the tool's code
        text = ""
    name = type(error).__name__
    whole = text if isinstance(error, ToolError) else f"{name}: {text}" if text else name
    return whole.encode("utf-8", "backslashreplace").decode()


def result_value(result: Any) -> Any:
    """What a tool returned, as a value of the language: JSON, nothing else. Raises ToolError."""
    kind = type(result).__name__
    if isinstance(result, Iterator | Coroutine):  # an iterator may have no end
        if isinstance(result, Coroutine):
            result.close()
        raise ToolError(f"it returned something that is no JSON value ({kind})")
    try:
        value = to_jsonable_python(result)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except Exception:  # serializers of models are the tool's code
        raise ToolError(f"it returned something that is no JSON value ({kind})") from None
    if len(text) > MAX_RESULT:
        raise ToolError(f"it returned more than {MAX_RESULT:,} characters")
    return value


def calculator(expression: str) -> int | float:
    """The value of an arithmetic expression."""
    try:
        return calculate(expression)
    except ValueError as error:
        raise ToolError(str(error)) from None


BUILT_IN: Mapping[str, Callable[..., Any]] = {"calculator": calculator}


class Tools:
    """The tools that a host offers, the built-in ones always among them.

    `installed`: also those that installed packages name as entry points; each is imported when it is first asked for.
    """

    def __init__(self, tools: Iterable[Tool] = (), *, installed: bool = False) -> None:
        self._tools: dict[str, Tool] = {}
        for one in tools:
            if one.name in self._tools or one.name in BUILT_IN:
                raise ToolsFault(f"there are two tools `{one.name}`")
            self._tools[one.name] = one
        self._installed = installed
        self._entries: dict[str, EntryPoint] | None = None

    def find(self, name: str) -> Tool | None:
        """The tool of that name. Raises ToolsFault when an installed one cannot be loaded."""
        if name not in self._tools and name in BUILT_IN:
            self._tools[name] = make_tool(BUILT_IN[name])
        elif name not in self._tools and (entry := self._entry_points().get(name)) is not None:
            self._tools[name] = make_tool(_loaded(f"the tool `{name}`", entry.load), name)
        return self._tools.get(name)

    def names(self) -> list[str]:
        return sorted({*BUILT_IN, *self._tools, *self._entry_points()})

    def _entry_points(self) -> dict[str, EntryPoint]:
        if self._entries is None:
            found = entry_points(group=GROUP) if self._installed else ()
            self._entries = {entry.name: entry for entry in found}
        return self._entries


def load_tools(modules: Sequence[str], more: Iterable[Tool] = (), *, installed: bool = True) -> Tools:
    """The tools of these modules (a dotted name, or a path that ends in .py), `more`, and those of installed packages.
    The modules' code runs. Raises ToolsFault."""
    return Tools((*(one for module in modules for one in _of_module(module)), *more), installed=installed)


def _of_module(name: str) -> Iterator[Tool]:
    module = _loaded(f"the module `{name}`", lambda: _module(name))
    contents: dict[str, Any] = module.__dict__
    marked = [value for value in contents.values() if inspect.isroutine(value) and hasattr(value, _MARK)]
    if not marked:
        raise ToolsFault(f"the module `{name}` has no tools: mark its functions with `@sglspec.tools.tool`")
    yield from (make_tool(function) for function in dict.fromkeys(marked))


def _module(name: str) -> ModuleType:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(f"{GROUP}.{Path(name).stem}", name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _loaded(what: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except (Exception, SystemExit) as error:  # the operator's code: it fails with whatever it likes
        raise ToolsFault(f"{what} cannot be loaded: {error_text(error)}") from None


__all__ = [
    "GROUP", "Parameter", "Tool", "ToolError", "Tools", "ToolsFault", "calculator", "error_text", "load_tools",
    "make_tool", "result_value", "tool",
]  # fmt: skip
