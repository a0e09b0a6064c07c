"""Declarations of inputs and fields that contradict themselves."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping as MappingABC

from sglspec.analysis.declarations import BOUNDS, check_input, type_of
from sglspec.analysis.grammar import ConstraintError
from sglspec.analysis.inputs import fill
from sglspec.analysis.regexes import check_pattern
from sglspec.analysis.schemas import FORMATS
from sglspec.diagnostics import Report
from sglspec.document.advice import flow
from sglspec.document.fields import Param
from sglspec.document.load import Document
from sglspec.document.model import Decl
from sglspec.document.nodes import Mapping, Node, Scalar, Sequence, to_python

ALLOWED = {
    "items": ("array",), "properties": ("object",),
    "minLength": ("string",), "maxLength": ("string",), "pattern": ("string",), "format": ("string",),
    "minItems": ("array", "messages"), "maxItems": ("array", "messages"),
    "minimum": ("integer", "number"), "maximum": ("integer", "number"), "exclusiveMinimum": ("integer", "number"),
    "exclusiveMaximum": ("integer", "number"), "multipleOf": ("integer", "number"),
}  # fmt: skip
INPUTS_ONLY = ("default", "secret", "examples")
PAIRS = (
    ("minLength", "maxLength"), ("minItems", "maxItems"), ("minimum", "maximum"), ("minimum", "exclusiveMaximum"),
    ("exclusiveMinimum", "maximum"), ("exclusiveMinimum", "exclusiveMaximum"),
)  # fmt: skip


class DeclChecker:
    """Checks declarations; `fields` are those of a `gen`, which a model fills in."""

    def __init__(self, document: Document, report: Report) -> None:
        self.document = document
        self.report = report
        self.faults = 0

    def check_all(self, decls: MappingABC[str, Decl], *, fields: bool) -> bool:
        """Whether all of them are in order."""
        before = self.faults
        for decl in decls.values():
            if fields and decl.optional:
                message = "the fields of a `gen` are all generated, so none of them is `optional`"
                help = "Leave it out. Inside of a field of type `object`, properties may be optional."
                self._fault("S213", message, decl.key("optional"), help)
            self.check(decl, fields=fields)
        return self.faults == before

    def check(self, decl: Decl, *, fields: bool, inner: bool = False) -> None:
        if decl.type in ("image", "video"):
            place = decl.at("type") if isinstance(decl.written, Mapping) else decl.written
            if fields:
                self._fault("S203", f"a field cannot be {decl.type}: models write text", place)
            else:
                help = "Take a text instead: write `string`."
                self._fault("S220", f"inputs of type `{decl.type}` are not yet in this build", place, help)
            return
        before = self.faults
        self._keys_fit(decl)
        self._bounds(decl)
        if fields:
            self._field_only(decl)
            if decl.properties is not None and not decl.properties:
                help = "Name what to generate: `properties: {answer: string}`."
                self._fault("S215", "`properties` names nothing to generate", decl.key("properties"), help)
        self._enum(decl)
        self._text(decl, fields)
        if decl.secret and inner:
            self._fault("S213", "only a whole input can be `secret`", decl.key("secret"))
        if decl.optional and decl.default is not None:
            self._fault("S213", "`optional` and `default` exclude each other", decl.key("default"))
        if decl.items is not None:
            self.check(decl.items, fields=fields, inner=True)
        for child in (decl.properties or {}).values():
            self.check(child, fields=fields, inner=True)
        if decl.default is not None and not fields and self.faults == before:
            self._default(decl, decl.default.node)
        if decl.examples is not None and self.faults == before:
            self._examples(decl, decl.examples.node)

    def _keys_fit(self, decl: Decl) -> None:
        kind = type_of(decl)
        for key, kinds in ALLOWED.items():
            if decl.node.key(key) is not None and kind not in kinds and kind != "any":
                help = f"`{key}` goes with the type {' or '.join(kinds[:2])}."
                self._fault("S213", f"`{key}` means nothing for the type `{kind}`", decl.key(key), help)
        if kind == "any" and decl.type is None and decl.enum is None and isinstance(decl.written, Mapping):
            given = next((key for key in (*BOUNDS, "pattern", "format") if decl.node.key(key) is not None), None)
            if given is not None:
                help = f"Add `type: {ALLOWED[given][0]}`."
                self._fault("S202", f"`{given}` needs a `type`", decl.key(given), help)

    def _bounds(self, decl: Decl) -> None:
        for name in BOUNDS:
            param: Param | None = getattr(decl, name)
            if param is not None and param.value is None:
                self._fault("S203", f"`{name}` is a literal number", param.node)
        for low, high in PAIRS:
            least, most = _value(decl, low), _value(decl, high)
            if least is None or most is None:
                continue
            if least > most:
                self._fault("S212", f"`{low}` ({least:g}) is more than `{high}` ({most:g})", decl.at(high))
            elif "exclusive" in low + high and least == most:
                self._fault("S212", f"no number is within `{low}` and `{high}` ({most:g})", decl.at(high))
            elif decl.type == "integer" and _first(low, least) > _last(high, most):
                self._fault("S212", f"no whole number is within `{low}` and `{high}`", decl.at(high))

    def _field_only(self, decl: Decl) -> None:
        for name in INPUTS_ONLY:
            if decl.node.key(name) is not None and name != "examples":
                self._fault("S213", f"a field to generate has no `{name}`", decl.key(name), "Leave it out.")

    def _enum(self, decl: Decl) -> None:
        if decl.enum is None:
            return
        node = decl.enum.node
        if not isinstance(node, Sequence):
            shown = flow(node) if isinstance(node, Scalar) and node.value is not None else "a, b"
            self._fault("S203", "`enum` is a list of values", node, f"Write `enum: [{shown}]`.")
            return
        if not node.items:
            self._fault("S215", "`enum` is empty: nothing would be allowed", node)
        seen: set[str] = set()
        plain = decl.model_copy(update={"enum": None})
        for item in node.items:
            value = to_python(item)
            whole = isinstance(value, float) and value.is_integer()
            same = json.dumps(int(value) if whole else value, sort_keys=True)
            if same in seen:
                self._fault("S214", f"the value `{_shown(item)}` is there twice", item, "Leave one of them out.")
            seen.add(same)
            problem = check_input(plain, value) if decl.type is not None else None
            if problem is not None:
                self._fault("S408", f"this value does not fit the declaration: {problem}", item)

    def _text(self, decl: Decl, fields: bool) -> None:
        if fields:
            return  # the constraint's own check speaks about these
        if decl.pattern is not None:
            try:
                check_pattern(decl.pattern)
            except ConstraintError as error:
                place = decl.at("pattern")
                if isinstance(place, Scalar) and error.start is not None:
                    end = error.end or error.start + 1
                    self.faults += 1
                    self.report.add(
                        self.document.diagnostic_in(error.code, error.message, place, error.start, end, help=error.help)
                    )
                else:
                    self._fault(error.code, error.message, place, error.help)
        if decl.format is not None and decl.format not in FORMATS:
            help = "Known: " + ", ".join(FORMATS) + "."
            self._fault("S504", f"the format `{decl.format}` is not known", decl.at("format"), help)

    def _default(self, decl: Decl, node: Node) -> None:
        problem = check_input(decl, fill(decl, to_python(node)))
        if problem is not None:
            help = None
            if isinstance(node, Scalar) and node.value is None:
                help = "For an input that may be left out, write `optional: true` instead of a default of null."
            self._fault("S408", f"the default does not fit the declaration: {problem}", node, help)

    def _examples(self, decl: Decl, node: Node) -> None:
        if not isinstance(node, Sequence):
            shown = flow(node) if isinstance(node, Scalar) and node.value is not None else "a, b"
            self._fault("S203", "`examples` is a list of values", node, f"Write `examples: [{shown}]`.")
            return
        for item in node.items:
            problem = check_input(decl, fill(decl, to_python(item)))
            if problem is not None:
                self._fault("S408", f"the example does not fit the declaration: {problem}", item)

    def _fault(self, code: str, message: str, node: Node, help: str | None = None) -> None:
        self.faults += 1
        self.report.add(self.document.diagnostic(code, message, node, help=help))


def _first(name: str, bound: float) -> int:
    """The least whole number within a lower bound."""
    return math.floor(bound) + 1 if name == "exclusiveMinimum" else math.ceil(bound)


def _last(name: str, bound: float) -> int:
    """The greatest whole number within an upper bound."""
    return math.ceil(bound) - 1 if name == "exclusiveMaximum" else math.floor(bound)


def _value(decl: Decl, name: str) -> float | None:
    param: Param | None = getattr(decl, name)
    return param.value if param is not None and isinstance(param.value, int | float) else None


def _shown(node: Node) -> str:
    return node.text if isinstance(node, Scalar) else "…"
