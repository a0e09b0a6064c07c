"""A run's inputs from `--input` and `--set`. They are data: nothing here looks for templates in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglspec.cli.complain import Refused, Texts
from sglspec.cli.exits import USAGE
from sglspec.cli.options import wrong
from sglspec.cli.stdin import MAX_BYTES, StandardInput

if TYPE_CHECKING:
    from sglspec.analysis.program import Program
    from sglspec.diagnostics import Diagnostic
    from sglspec.document.model import Decl, Sampling
    from sglspec.document.nodes import Node, Source


def read_inputs(
    program: Program, files: Sequence[str], settings: Sequence[str], stdin: StandardInput, texts: Texts
) -> dict[str, Any]:
    """What was given, by name, checked against the program's declarations.

    Files first, in order, then `--set`, in order; what comes later wins. Raises Refused (exit code 2) with every
    diagnostic, and typer's usage errors for arguments that cannot be read as such.
    """
    from sglspec.analysis.inputs import bind_inputs

    given, problems = read_given(program.inputs, files, settings, stdin, texts)
    if not problems:
        problems = bind_inputs(program.spec, given)[1]
    if any(problem.severity == "error" for problem in problems):
        raise Refused(USAGE, problems)
    return given


def read_settings(
    program: Program, files: Sequence[str], settings: Sequence[str], stdin: StandardInput, texts: Texts
) -> dict[str, Any]:
    """The same for inputs that are only some of those that a run needs."""
    from sglspec.analysis.inputs import bind_some

    given, problems = read_given(program.inputs, files, settings, stdin, texts)
    if problems := problems or bind_some(program.spec, given):
        raise Refused(USAGE, problems)
    return given


def read_given(
    declared: Mapping[str, Decl], files: Sequence[str], settings: Sequence[str], stdin: StandardInput, texts: Texts
) -> tuple[dict[str, Any], list[Diagnostic]]:
    """What files and settings say, and which settings cannot be read."""
    from sglspec.diagnostics import Diagnostic, sentence

    given: dict[str, Any] = {}
    for file in files:
        given |= _mapping(file, stdin, texts)
    problems: list[Diagnostic] = []
    for setting in settings:
        name, value, problem = _setting(setting, declared, stdin, texts)
        given[name] = value
        if problem is not None:
            problems.append(Diagnostic("S401", sentence(f"input `{name}`: {problem}")))
    return given, problems


def _mapping(file: str, stdin: StandardInput, texts: Texts) -> dict[str, Any]:
    """The object that a `--input` names."""
    from sglspec.diagnostics import Diagnostic, SpecError
    from sglspec.document.nodes import Mapping as MappingNode
    from sglspec.document.nodes import to_python
    from sglspec.document.read import read_source

    try:
        if file == "-":
            source = text_source(stdin.read("--input -"), StandardInput.NAME)
        else:
            source = read_source(file)
        node = _parsed(source, texts)
    except SpecError as error:
        raise Refused(USAGE, error.diagnostics) from None
    if not isinstance(node, MappingNode):
        message = "Inputs are a mapping of names to values."
        raise Refused(USAGE, [Diagnostic("S203", message, file=source.name, range=node.range)])
    return to_python(node)


def _setting(
    setting: str, declared: Mapping[str, Decl], stdin: StandardInput, texts: Texts
) -> tuple[str, Any, str | None]:
    """Name and value of a `--set`, and what is wrong with the value."""
    name, equals, given = setting.partition("=")
    if not equals or name in ("", ":"):
        raise wrong(f"{setting!r} is not of the form name=value.", "--set")
    if name.endswith(":"):
        return name[:-1], _json(name[:-1], given, texts), None
    text = _text(name, given, stdin)
    if name not in declared:  # the check of all inputs says so, and what may have been meant
        return name, text, None
    from sglspec.analysis.inputs import coerce_text

    try:
        return name, coerce_text(declared[name], text), None
    except ValueError as error:
        return name, None, str(error)


def read_options(options: Sequence[str], texts: Texts) -> Sampling | None:
    """What `--sampling` gives; values as YAML reads them."""
    if not options:
        return None
    from sglspec.analysis.runoptions import read_sampling
    from sglspec.diagnostics import SpecError
    from sglspec.document.read import source_from_text

    lines: list[str] = []
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name.isidentifier() or len(option.splitlines()) > 1:
            raise wrong(f"{option[:40]!r} is not NAME=VALUE in one line, such as temperature=0.7.", "--sampling")
        lines.append(f"{name}: {value}\n")
    try:
        return read_sampling(texts.keep(source_from_text("".join(lines), "--sampling", "yaml")))
    except SpecError as error:
        raise Refused(USAGE, error.diagnostics) from None


def _json(name: str, text: str, texts: Texts) -> Any:
    """`name:=json`, by the strict reader: no duplicate keys, no NaN, and a column for a mistake."""
    from sglspec.diagnostics import SpecError
    from sglspec.document.nodes import to_python
    from sglspec.document.read import source_from_text

    try:
        return to_python(_parsed(source_from_text(text, f"--set {name}", "json"), texts))
    except SpecError as error:
        raise Refused(USAGE, error.diagnostics) from None


def _text(name: str, given: str, stdin: StandardInput) -> str:
    """The text of a `--set`: itself, a file's (`@file`, `@-`), or itself with an @ in front (`@@`)."""
    if given.startswith("@@"):
        return given[1:]
    if not given.startswith("@"):
        return given
    where = given[1:]
    if where == "-":
        data = stdin.read(f"--set {name}=@-")
    else:
        data = _file(name, where)
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise wrong(f"`{name}`: {where!r} is not UTF-8 text (byte {error.start}).", "--set") from None


def _file(name: str, where: str) -> bytes:
    """What `--set name=@where` names."""
    if not where:
        message = f"`{name}=@` names no file. Write `{name}=@FILE` for the text of a file, `{name}=@@` for an @."
        raise wrong(message, "--set")
    try:
        with Path(where).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) <= MAX_BYTES:
            return data
        reason = f"{where!r} is longer than {MAX_BYTES:,} bytes"
    except FileNotFoundError:
        reason = f"there is no file {where!r}"
    except IsADirectoryError:
        reason = f"{where!r} is a folder, not a file"
    except PermissionError:
        reason = f"you may not read {where!r}"
    except (OSError, ValueError) as error:
        reason = f"{where!r} cannot be read: {getattr(error, 'strerror', None) or error}"
    raise wrong(f"`{name}`: {reason}.", "--set")


def text_source(data: bytes, name: str) -> Source:
    """A document without a file name to tell its format: JSON when it is JSON, otherwise YAML."""
    import json

    from sglspec.document.read import source_from_text

    if data.lstrip().startswith((b"{", b"[")):
        try:
            json.loads(data)
            return source_from_text(data, name, "json")
        except (ValueError, RecursionError):
            pass  # YAML's flow style begins alike, and its reader has a message for what is neither
    return source_from_text(data, name, "yaml")


def _parsed(source: Source, texts: Texts) -> Node:
    from sglspec.diagnostics import Report, SpecError
    from sglspec.document.read import parse

    report = Report(source.name)
    node = parse(texts.keep(source), report)
    report.raise_errors()
    if node is None:
        raise SpecError(*report.sorted())
    return node
