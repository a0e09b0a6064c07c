"""Options and arguments in our own words: how they are shown, read and refused."""

from __future__ import annotations

import signal
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer
from typer.core import TyperCommand

from sglspec.cli.exits import TERMINATED
from sglspec.cli.streams import results_only

if TYPE_CHECKING:
    from sglspec.tools import Tools

Choice = TypeVar("Choice", bound=StrEnum)

EngineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        metavar="NAME=VALUE,…",
        help="Settings of the local engine, such as prefix_cache=off,order=fcfs. Can be repeated.",
    ),
]

DocumentArgument = Annotated[str, typer.Argument(metavar="SPEC", help="The document; - reads it from standard input.")]
SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="An input, read as its declared type. name:=JSON, name=@FILE, name=@- (standard input), name=@@text "
        "for a text that begins with @. Can be repeated; wins over --input.",
    ),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="FILE", help="A YAML or JSON mapping of inputs; - is standard input."),
]
DocumentPaths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="Documents, folders with *.sglspec.yaml/.yml/.json in them, or -."),
]
RootOption = Annotated[
    list[str] | None,
    typer.Option(
        "--root",
        metavar="FOLDER",
        help="A folder whose files documents may use, beside that of the document itself. Can be repeated.",
    ),
]
CheckOption = Annotated[bool, typer.Option("--check", help="Change nothing; exit code 1 if something would change.")]
DiffOption = Annotated[bool, typer.Option("--diff", help="Change nothing; print what would change.")]
ToolsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        metavar="MODULE",
        help="Offer the tools of a Python module, a dotted name or a path that ends in .py. Can be repeated. "
        "Its code runs.",
    ),
]
McpOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mcp",
        metavar="NAME=SERVER",
        help="Offer the tools of an MCP server as NAME.tool: a command that is started, or a URL. Can be repeated.",
    ),
]
SamplingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sampling",
        metavar="NAME=VALUE",
        help="An option of `gen`, such as temperature=0.7, where the document's steps do not say it. Can be repeated; "
        "wins over its `defaults`.",
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="URL", help="The server; SGLSPEC_SERVER if left out, or else http://127.0.0.1:8080."
    ),
]
ApiKeyOption = Annotated[
    Path | None,
    typer.Option("--api-key-file", metavar="FILE", help="A file with the key; SGLSPEC_API_KEY if left out."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def host_tools(
    modules: Sequence[str] | None, servers: Sequence[str] | None, *, installed: bool = True
) -> Generator[Tools]:
    """The tools of the modules and MCP servers that were named, and of installed packages. Servers end when it is left,
    and until then what tools print goes to standard error. A usage error when they cannot be had."""
    from sglspec.tools import ToolsFault, load_tools

    with ExitStack() as stack:
        stack.enter_context(results_only())
        option = "--mcp"
        try:
            found = ()
            if servers:
                from sglspec.mcp_tools import McpServers, parse_server

                named = [parse_server(text) for text in servers]
                if len(dict(named)) < len(named):
                    raise wrong("Two servers have the same name.", option)
                stack.enter_context(_ending_by_exception())
                found = stack.enter_context(McpServers(dict(named))).tools
            option = "--tools"
            tools = load_tools(modules or (), found, installed=installed)
        except ToolsFault as fault:
            message = str(fault)
            raise wrong(f"{message[:1].upper()}{message[1:]}.", option) from None
        yield tools


@contextmanager
def _ending_by_exception() -> Generator[None]:
    """SIGTERM ends the command, not the process at once: what it started is ended, too."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def is_folder(path: str) -> bool:
    """Whether a path is that of a folder. One that cannot be looked at is none."""
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):  # a name that is too long
        return False


def folders(roots: Sequence[str] | None) -> tuple[Path, ...]:
    """The folders that `--root` names."""
    for root in roots or ():
        if not is_folder(root):
            raise wrong(f"{root!r} is not a folder.", "--root")
    return tuple(Path(root) for root in roots or ())


def wrong(message: str, option: str) -> typer.BadParameter:
    """A usage error (exit code 2) about the value of an option. `message` is a sentence."""
    return typer.BadParameter(message, param_hint=option)


def whole_number(text: str, option: str, low: int, high: int, range_name: str) -> int:
    """The number that an option was given. `range_name` is how the range reads: "0 to 65535"."""
    digits = text.strip()
    # more digits than the largest number has are not even read
    if digits.isascii() and digits.isdigit() and len(digits.lstrip("0")) <= len(str(high)):
        value = int(digits)
        if low <= value <= high:
            return value
    raise wrong(f"{_short(text)} is not a whole number from {range_name}.", option)


def one_of(kind: type[Choice], text: str, option: str) -> Choice:
    """The word that an option was given."""
    try:
        return kind(text)
    except ValueError:
        *words, last = (str(item) for item in kind)
        raise wrong(f"{_short(text)} is not {', '.join(words)} or {last}.", option) from None


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")


class Command(TyperCommand):
    """A command whose usage line and help show arguments as we name them, whatever typer's version makes of it."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *(param.metavar or "" for param in self.get_params(ctx) if _is_argument(param))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            if _is_argument(param):
                rows["Arguments"].append((param.metavar or record[0], record[1]))
            else:
                rows["Options"].append(record)
        for title, records in rows.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _is_argument(param: Any) -> bool:
    return param.param_type_name == "argument"
