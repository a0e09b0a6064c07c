"""Text → nodes → models, with every structural complaint at its line and column."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from sglspec.diagnostics import Diagnostic, Range, Related, Report, sentence
from sglspec.diagnostics.suggest import nearest
from sglspec.document.familiar import keys_of
from sglspec.document.faults import Faults
from sglspec.document.model import LANGUAGE_VERSION, Spec
from sglspec.document.nodes import Mapping, Node, Scalar, Source, pointers
from sglspec.document.positions import Locator
from sglspec.document.read import parse
from sglspec.document.remainder import remainder


@dataclass(frozen=True, eq=False)
class Tree:
    """The nodes of a file, and what is to be said about them."""

    source: Source
    root: Node

    @cached_property
    def _pointers(self) -> dict[int, str]:
        return pointers(self.root)

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self.source)

    def pointer(self, node: Node) -> str:
        """The JSON pointer of a node or a key; "" for one that is not of this document."""
        return self._pointers.get(id(node), "")

    def diagnostic(self, code: str, message: str, node: Node, **more: Any) -> Diagnostic:
        """A diagnostic at a node."""
        place = node.range
        return Diagnostic(
            code, sentence(message), file=self.source.name, range=place, pointer=self.pointer(node), **more
        )

    def diagnostic_in(self, code: str, message: str, scalar: Scalar, start: int, end: int, **more: Any) -> Diagnostic:
        """A diagnostic at code points `start` to `end` of a scalar's text."""
        place: Range = self._locator.range(scalar, start, max(end, start + 1))
        pointer = self.pointer(scalar)
        return Diagnostic(code, sentence(message), file=self.source.name, range=place, pointer=pointer, **more)

    def user(self, node: Node) -> Related:
        """For what is wrong in a file that a node names."""
        return Related("used here", node.range, self.source.name)


@dataclass(frozen=True, eq=False)
class Document(Tree):
    """A document that is structurally sound. `root` is the node tree, `spec` the models over it."""

    root: Mapping
    spec: Spec

    @cached_property
    def name(self) -> str:
        """The program's name: its own, or the file's stem."""
        if self.spec.name:
            return self.spec.name
        stem = self.source.name.replace("\\", "/").rsplit("/", 1)[-1].split(".", 1)[0]
        return stem or "program"


@dataclass(frozen=True, eq=False)
class Partial:
    """What is left of a document with faults in its structure; see `remainder.Remainder`."""

    document: Document
    lost: frozenset[str]
    names_known: bool
    thinned: tuple[Range, ...]


def load_document(source: Source, report: Report) -> Document | None:
    """Read and validate. None when the report has errors."""
    document = read_document(source, report)
    return document if isinstance(document, Document) else None


def read_document(source: Source, report: Report) -> Document | Partial | None:
    """Read and validate. With faults in the structure the rest of the document, if there is any to look at."""
    root = parse(source, report)
    if root is None:
        return None
    faults = Faults(source, root, report)
    if not isinstance(root, Mapping):
        help = f"Begin with `sglspec: {LANGUAGE_VERSION}`, and write the steps below `steps:`."
        faults.add(root, "S203", "a program is a mapping with `sglspec: v1` and `steps`", help)
        return None
    if not _version_ok(root, faults):
        return None
    try:
        spec = Spec.model_validate(root)
    except ValidationError as error:
        faults.all(error)
        return _rest(source, root, error)
    return None if report.has_errors else Document(source, root, spec)


def _rest(source: Source, root: Mapping, error: ValidationError) -> Partial | None:
    problems = [(tuple(p["loc"]), p["type"]) for p in error.errors(include_url=False, include_input=False)]
    rest = remainder(root, problems)
    if rest is None:
        return None
    try:
        document = Document(source, rest.root, Spec.model_validate(rest.root))
    except ValidationError:
        return None
    return Partial(document, rest.lost, rest.names_known, rest.thinned)


def _version_ok(root: Mapping, faults: Faults) -> bool:
    node = root.get("sglspec")
    if node is None:
        close = nearest("sglspec", root.names())
        place = root.key(close) if close else (root.entries[0].key if root.entries else root)
        help = f"Write `sglspec: {LANGUAGE_VERSION}` as the first line."
        faults.add(place or root, "S200", "the document does not say its language version", help)
        return False
    if isinstance(node, Scalar) and node.value == LANGUAGE_VERSION:
        return True
    faults.version(node)
    return False


__all__ = ["Document", "Partial", "Tree", "keys_of", "load_document", "read_document", "sentence"]
