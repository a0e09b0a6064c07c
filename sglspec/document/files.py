"""The files that a document may name: those inside of folders that the host grants, and no others.

A path is relative to the document that says it, has forward slashes, and stays inside of a granted folder whatever `..`
and symbolic links it holds.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sglspec.diagnostics import Related
from sglspec.document.nodes import Source
from sglspec.document.read import read_source, source_from_text

MAX_FILES = 100
"""Different files that one program may read."""

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_GRANT = "Whoever runs the document grants folders; on the command line with `--root FOLDER`."

_SEND = "Send it along, under its path from the document's folder."

_NO_FOLDER = (
    "A document from standard input reads files with `--root FOLDER`; one that is sent to a server brings them along. "
    "Or write what it needs into the document."
)


class PathFault(Exception):
    """A path that cannot be followed. `code`: S100, S109, S120, S121."""

    def __init__(self, code: str, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.help = help


@dataclass(frozen=True, slots=True)
class Folder:
    """Where the paths of a document start from. `name` is what messages call it, "" for the place where we are; `key`
    is the same from the folder of the document that was started."""

    path: Path
    name: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A file that may be read; `path` has no symbolic links left. `name`, `key`: as for folders."""

    path: Path
    name: str
    key: str

    @property
    def folder(self) -> Folder:
        return Folder(self.path.parent, posixpath.dirname(self.name), posixpath.dirname(self.key))


class Files:
    """What may be read from a disk, and what was."""

    def __init__(self, source: Source, roots: Sequence[Path] = ()) -> None:
        """The folder of a document that is a file is granted. One that is not stands in the first of `roots`."""
        own = source.path.parent.resolve() if source.path is not None else None
        granted = [root.resolve() for root in roots]
        self._roots = [own, *granted] if own is not None else granted
        name = posixpath.dirname(source.name.replace("\\", "/")) if own is not None else ""
        self.start: Folder | None = Folder(self._roots[0], name) if self._roots else None
        self._known: dict[Found, Source] = {}
        self.users: dict[str, Related] = {}
        """Where each file is named first, by what messages call it."""

    @property
    def sources(self) -> list[Source]:
        """Everything that was read."""
        return list({source.name: source for source in self._known.values()}.values())

    @property
    def names(self) -> dict[str, str]:
        """What messages call the files that were read, by their paths from the document's folder."""
        return {found.key: source.name for found, source in self._known.items()}

    def bundle(self) -> dict[str, str]:
        """The texts of everything that was read, by their paths from the document's folder: what `Bundle` takes.

        Raises PathFault (S121) where symbolic links make two files go by one path.
        """
        texts: dict[str, str] = {}
        for found, source in self._known.items():
            if texts.setdefault(found.key, source.text) != source.text:
                message = f"symbolic links lead from `{found.key}` to two files"
                raise PathFault("S121", message, "Put copies in place of the links.")
        return texts

    def find(self, folder: Folder | None, path: str) -> Found:
        """The file that a path means. Raises PathFault."""
        _check_form(path)
        if folder is None:
            raise PathFault("S121", f"this document may read no files, and `{path}` is one", _NO_FOLDER)
        try:
            real = (folder.path / path).resolve()
        except (OSError, RuntimeError, ValueError):  # links in a circle, a name that is too long
            raise PathFault("S100", f"`{path}` cannot be found") from None
        if not any(real.is_relative_to(root) for root in self._roots):
            raise PathFault("S121", f"`{path}` is outside of the folders that this document may read", _GRANT)
        name, key = (posixpath.normpath(posixpath.join(start, path)) for start in (folder.name, folder.key))
        try:
            if real.is_dir():
                raise PathFault("S100", f"`{path}` is a folder, not a file")
            if not real.is_file():
                message = f"there is no file `{path}`"
                raise PathFault("S100", message, f"Paths are relative to this document: `{name}` does not exist.")
        except OSError:
            raise PathFault("S100", f"`{path}` cannot be read") from None
        return Found(real, name, key)

    def read(self, found: Found, user: Related | None = None) -> Source:
        """The file's text, read once; `user` is where it is named. Raises PathFault, SpecError for one that is no text
        or too big."""
        if user is not None:
            self.users.setdefault(found.name, user)
        known = self._known.get(found)
        if known is not None:
            return known
        if len(self._known) >= MAX_FILES:
            raise PathFault("S109", f"this program reads more than {MAX_FILES} files")
        self._known[found] = self._open(found)
        return self._known[found]

    def _open(self, found: Found) -> Source:
        return read_source(found.path, found.name)


class Bundle(Files):
    """Files that came with a document: texts by their paths from its folder. Nothing is read from a disk."""

    def __init__(self, source: Source, texts: Mapping[str, str]) -> None:
        super().__init__(source)
        self.start = Folder(Path(), "") if texts else None
        self._texts = texts

    def find(self, folder: Folder | None, path: str) -> Found:
        _check_form(path)
        if folder is None:
            raise PathFault("S121", f"this document may read no files, and `{path}` is one", _NO_FOLDER)
        name = posixpath.normpath(posixpath.join(folder.name, path))
        if name in self._texts:
            return Found(Path(name), name, name)
        if name.startswith("../"):
            raise PathFault("S121", f"`{path}` is outside of the files that came with this document", _SEND)
        help = f"Paths are relative to this document: `{name}` is none of the files that came with it."
        raise PathFault("S100", f"there is no file `{path}`", help)

    def _open(self, found: Found) -> Source:
        return source_from_text(self._texts[found.name], found.name)


def check_key(path: str) -> str:
    """Where a file of a bundle is from the document's folder, in the one form that it has. Raises PathFault (S120)."""
    _check_form(path)
    return posixpath.normpath(path)


def _check_form(path: str) -> None:
    if not path.strip():
        raise PathFault("S120", "a path is missing here", "Write one such as `./judge.sglspec.yaml`.")
    if "\\" in path:
        shown = path.replace("\\", "/")
        raise PathFault("S120", "a path has forward slashes, on every system", f"Write `{shown}`.")
    if _ADDRESS.match(path) or path.startswith("//"):
        message = f"`{path}` is an address, and documents read files beside them only"
        raise PathFault("S120", message, "Save the file beside this document, and write its path: `./name.yaml`.")
    if path.startswith(("/", "~")):
        message = f"`{path}` is absolute, and paths are relative to this document"
        raise PathFault("S120", message, "Write where it is from here, for example `./parts/judge.sglspec.yaml`.")
    if any(ord(character) < 32 for character in path):
        raise PathFault("S120", "a path has no control characters in it")


__all__ = ["MAX_FILES", "Bundle", "Files", "Folder", "Found", "PathFault", "check_key"]
