"""What a document defines in `defs`: texts, patterns and schemas, those that stand in files included."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sglspec.analysis.constraints import ConstraintError, regex_constraint
from sglspec.analysis.declarations import nearest
from sglspec.diagnostics import Report, SpecError
from sglspec.document.fields import Text
from sglspec.document.files import Files, Folder, Found, PathFault
from sglspec.document.load import Document, Tree
from sglspec.document.model import TextDef
from sglspec.document.nodes import Mapping, Node, Scalar, to_python
from sglspec.document.read import parse

_ENDINGS = (".json", ".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a document's paths start from. `files` is None where nothing is read: what is in them stays unknown."""

    files: Files | None = None
    folder: Folder | None = None


NOWHERE = Place()


@dataclass(slots=True)
class Definitions:
    """texts, patterns: by name, with something in place of one that has a mistake; schemas: those of files, by path."""

    document: Document
    report: Report
    place: Place
    texts: dict[str, str] = field(default_factory=dict[str, str])
    patterns: dict[str, str] = field(default_factory=dict[str, str])
    schemas: dict[str, Any] = field(default_factory=dict[str, Any])
    _trees: dict[str, Tree | None] = field(default_factory=dict[str, "Tree | None"])

    def __post_init__(self) -> None:
        defs = self.document.spec.defs
        if defs is None:
            return
        for name, text in defs.texts.items():
            self.texts[name] = self._text(text)
        for name, pattern in defs.regexes.items():
            self.patterns[name] = pattern.source if self._is_pattern(pattern) else "x"
        for schema in defs.schemas.values():
            if not isinstance(schema.node, Mapping):
                self._written(schema.node)

    def schema(self, node: Scalar) -> tuple[Tree, Node] | None:
        """What `schema: name` or `schema: ./path` means, and the file that it stands in. None for what is not known;
        a message says why."""
        if _is_path(node.text):
            return self._from_file(node)
        defs = self.document.spec.defs
        known = defs.schemas if defs is not None else {}
        if node.text in known:
            return self._written(known[node.text].node)
        close = nearest(node.text, list(known))
        help = f"Did you mean `{close}`?" if close else None
        if help is None:
            names = ", ".join(known)
            help = f"Defined are: {names}." if names else "Define it: `defs: {schemas: {name: {type: object, …}}}`."
            help += " The path of a file begins with `./`."
        self._fault("S323", f"`defs` has no schema `{node.text}`", node, help)
        return None

    def _written(self, node: Node) -> tuple[Tree, Node] | None:
        """An entry of `defs.schemas`."""
        if isinstance(node, Mapping):
            return self.document, node
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return self._from_file(node)
        self._fault("S503", "a JSON Schema is a mapping, or the path of a file with one", node)
        return None

    def _from_file(self, node: Scalar) -> tuple[Tree, Node] | None:
        if node.text not in self._trees:
            self._trees[node.text] = self._tree(node)
        tree = self._trees[node.text]
        return (tree, tree.root) if tree is not None else None

    def _tree(self, node: Scalar) -> Tree | None:
        found = self._find(node.text, node)
        if found is None or self.place.files is None:
            return None
        try:
            source = self.place.files.read(found, self.document.user(node))
            root = parse(source, self.report)
        except PathFault as fault:
            self._fault(fault.code, fault.message, node, fault.help)
            return None
        except SpecError as error:
            self.report.extend(error.diagnostics)
            return None
        if root is None:
            return None
        tree = Tree(source, root)
        if not isinstance(root, Mapping):
            self.report.add(tree.diagnostic("S503", "a JSON Schema is a mapping", root))
            return None
        self.schemas[node.text] = to_python(root)
        return tree

    def _text(self, text: TextDef) -> str:
        if text.text is not None:
            return text.text.source
        node = text.at("file")
        found = self._find(text.file, node)
        if found is None or self.place.files is None:
            return ""
        try:
            return self.place.files.read(found, self.document.user(node)).text.replace("\r\n", "\n").removesuffix("\n")
        except PathFault as fault:
            self._fault(fault.code, fault.message, node, fault.help)
        except SpecError as error:
            self.report.extend(error.diagnostics)
        return ""

    def _find(self, path: str, node: Node) -> Found | None:
        if self.place.files is None:
            return None
        try:
            return self.place.files.find(self.place.folder, path)
        except PathFault as fault:
            self._fault(fault.code, fault.message, node, fault.help)
            return None

    def _is_pattern(self, pattern: Text) -> bool:
        node = pattern.node
        if node.style in ("literal", "folded") and pattern.source.endswith("\n"):
            end = len(pattern.source)
            message = "the pattern ends with the line break that the block adds"
            help = "Write `|-`, or put the pattern into single quotes."
            self.report.add(self.document.diagnostic_in("S502", message, node, end - 1, end, help=help))
            return False
        try:
            regex_constraint(pattern.source)
        except ConstraintError as error:
            start = error.start or 0
            end = error.end or start + 1
            self.report.add(self.document.diagnostic_in(error.code, error.message, node, start, end, help=error.help))
            return False
        return True

    def _fault(self, code: str, message: str, node: Node, help: str | None = None) -> None:
        self.report.add(self.document.diagnostic(code, message, node, help=help))


def _is_path(text: str) -> bool:
    return "/" in text or "\\" in text or text.startswith(".") or text.endswith(_ENDINGS)


__all__ = ["NOWHERE", "Definitions", "Place"]
