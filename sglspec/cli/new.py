"""`sglspec new`: a document to start from."""

from __future__ import annotations

import errno
import os
import re
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from sglspec.cli.documents import ENDINGS
from sglspec.cli.exits import USAGE
from sglspec.cli.options import wrong
from sglspec.cli.streams import note, put

TEMPLATES = {
    "chat": "two turns of a chat",
    "classify": "one of several answers",
    "extract": "a JSON object out of a text",
    "judge": "several looks at a text at once, then a verdict",
    "loop": "try until it is right",
}


def new(
    path: Annotated[
        str | None, typer.Argument(metavar="[PATH]", help="The file to write; .sglspec.yaml is added to a bare name.")
    ] = None,
    template: Annotated[
        str, typer.Option(metavar="NAME", help="What to start from: " + ", ".join(TEMPLATES) + ".")
    ] = "chat",
    list_: Annotated[bool, typer.Option("--list", help="List the templates.")] = False,
) -> None:
    """Write a document to start from, - to standard output. A file that is there is never overwritten."""
    if list_:
        put("".join(f"{name:10}{what}\n" for name, what in TEMPLATES.items()))
        return
    if template not in TEMPLATES:
        raise wrong(f"There is no template {template!r}. Known: {', '.join(TEMPLATES)}.", "--template")
    if not path:
        raise wrong("Name the file to write, for example `sglspec new hello`.", "PATH")
    if path == "-":
        put(text_of(template, template))
        return
    if path.endswith((".json", "/")):
        raise wrong(f"{path!r} is no name for a YAML document.", "PATH")
    file = Path(path if Path(path).suffix in (".yaml", ".yml") else path + ENDINGS[0])
    try:
        _write(file, text_of(template, file.name.split(".", 1)[0]))
    except FileExistsError:
        note(f"sglspec: {file} is there already, and stays as it is")
        raise typer.Exit(USAGE) from None
    except (OSError, ValueError) as error:
        raise wrong(f"{str(file)!r} cannot be written: {getattr(error, 'strerror', None) or error}.", "PATH") from None
    put(str(file))


def _write(file: Path, text: str) -> None:
    """All of it, in folders that are made where they are missing, or nothing."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    with file.open("x", encoding="utf-8") as out:
        try:
            out.write(text)
            out.flush()
        except BaseException:
            file.unlink()
            raise


def text_of(template: str, name: str) -> str:
    """A template's document, with a name of its own where the file's name can be one."""
    text = resources.files("sglspec").joinpath("templates", f"{template}.sglspec.yaml").read_text("utf-8")
    usable = re.fullmatch("[a-z][a-z0-9-]*", name)
    return text.replace(f"name: {template}\n", f"name: {name}\n", 1) if usable else text
