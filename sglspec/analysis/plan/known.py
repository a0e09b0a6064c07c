"""Values that are known before a run: what follows from the document and from inputs that are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import sglspec.expressions as ev
from sglspec.analysis.inputs import fill
from sglspec.analysis.plan.ranges import UNKNOWN, Range
from sglspec.analysis.program import CompiledValue, Constant, ListValue, Program, Rendered
from sglspec.document.fields import Items, Param
from sglspec.document.model import Decl, Gen, Sampling
from sglspec.document.nodes import to_python
from sglspec.expressions import ast
from sglspec.expressions.names import reads_of_template
from sglspec.expressions.syntax import Expression, Template


class Unknown:
    """Only a run will tell. length: of a list, as far as that is known."""

    def __init__(self, length: Range = UNKNOWN) -> None:
        self.length = length


NOTHING = Unknown()


@dataclass(frozen=True, slots=True)
class Values:
    """Evaluation with the names that are known."""

    program: Program
    names: Mapping[str, Any]

    def evaluate(self, compiled: Expression) -> Any:
        """The value, an Unknown where it is not known yet or cannot be had."""
        root = compiled.root
        if isinstance(root, ast.Name) and isinstance(found := self.names.get(root.name), Unknown):
            return found
        if not self._knows((use.name for use in compiled.names), compiled.functions):
            return NOTHING
        try:
            return ev.evaluate(compiled, self._view)
        except ev.EvaluationError:  # a run will say so
            return NOTHING

    def text(self, template: Template) -> tuple[list[str], bool]:
        """The parts of a text that are known, and whether those are all of it."""
        if self._knows((use.name for use in template.names), template.functions):
            rendered = self._render(template)
            return ([], False) if rendered is None else ([rendered] if rendered else [], True)
        found = [""]
        for statement in template.body:
            reads = reads_of_template([statement])
            known = self._knows((use.name for use in reads.names), reads.functions)
            part = replace(template, body=(statement,), single=None, ends_in_tag_line=False)
            rendered = self._render(part) if known else None
            if rendered is None:
                found.append("")
            else:
                found[-1] += rendered
        return [text for text in found if text], False

    def _render(self, template: Template) -> str | None:
        try:
            return "".join(segment.text for segment in ev.render(template, self._view))
        except ev.EvaluationError:  # a run will say so
            return None

    def value(self, compiled: CompiledValue) -> Any:
        """A value field."""
        match compiled:
            case Constant(value=value):
                return value
            case Rendered(template=template):
                if template.single is not None:
                    return self.evaluate(template.single)
                parts, whole = self.text(template)
                return "".join(parts) if whole else NOTHING
            case ListValue(items=items):
                found = [self.value(item) for item in items]
                unknown = any(isinstance(one, Unknown) for one in found)
                return Unknown(Range.exactly(len(found))) if unknown else found
            case _:
                pairs = {key: self.value(item) for key, item in compiled.entries}
                return NOTHING if any(isinstance(one, Unknown) for one in pairs.values()) else pairs

    def items(self, items: Items) -> Any:
        """What `in` and `from` give: a list, or an Unknown."""
        if items.expr is not None:
            found = self.evaluate(self.program.expressions[items.expr])
        else:
            found = self.value(self.program.values[items.node])
        return cast(Any, found) if isinstance(found, (list, Unknown)) else NOTHING

    def option(self, param: Param | None, default: int | None) -> int | None:
        """A numeric option; None where it is not known."""
        if param is None:
            return default
        value = param.value
        if param.template is not None:
            value = self.value(self.program.values[param.node])
            if isinstance(value, Unknown):
                return None
        return default if value is None else int(value) if isinstance(value, (int, float)) else None

    def sampling(self, step: Gen, name: str, default: int | None) -> int | None:
        """An option of a `gen`: its own, else the document's."""
        layers: list[Sampling | None] = [step, self.program.spec.defaults]
        given = (getattr(layer, name) for layer in layers if layer is not None)
        return self.option(next((param for param in given if param is not None), None), default)

    @property
    def _view(self) -> _View:
        return _View({**self.names, "texts": dict(self.program.texts)})

    def _knows(self, names: Iterable[str], functions: Iterable[str]) -> bool:
        own = (self.names.get(name, NOTHING) for name in names if name != "texts")
        known = not any(isinstance(value, Unknown) for value in own)
        return known and not {*functions} & {*ev.SCOPE_FUNCTIONS}


class _View:
    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def lookup(self, name: str) -> tuple[ev.Value, ev.Origin]:
        return self._names[name], "input"

    def meta(self, name: str) -> ev.Value:
        raise KeyError(name)

    def messages(self) -> ev.Value:
        return []

    def transcript(self) -> str:
        return ""


def declared(decl: Decl) -> Unknown:
    """What a declaration says of an input that is not given."""
    least, most = (None if one is None else one.value for one in (decl.minItems, decl.maxItems))
    return Unknown(Range(int(least or 0), None if most is None else int(most)))


def bound_inputs(inputs: Mapping[str, Decl], given: Mapping[str, Any]) -> dict[str, Any]:
    """Every input with its value, defaults included."""
    names: dict[str, Any] = {}
    for name, decl in inputs.items():
        value = given.get(name)
        if isinstance(value, Unknown):
            names[name] = value
        elif value is not None:
            names[name] = fill(decl, value)
        elif decl.default is not None:
            names[name] = to_python(decl.default.node)
        else:
            names[name] = None if decl.optional else declared(decl)
    return names


__all__ = ["NOTHING", "Unknown", "Values", "bound_inputs", "declared"]
