"""What a `gen` asks for: its constraint, checked without a model."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, cast

from sglspec.analysis.constraints import (
    Constraint,
    ConstraintError,
    fields_constraint,
    grammar_constraint,
    regex_constraint,
    schema_constraint,
    type_constraint,
)
from sglspec.analysis.definitions import Definitions
from sglspec.analysis.grammar import Step as PointerStep
from sglspec.analysis.inserted import early_faults
from sglspec.analysis.places import find, report_constraint
from sglspec.analysis.sampling import last_given
from sglspec.analysis.schemas import objects_without_required
from sglspec.analysis.types import ANY, BOOLEAN, INTEGER, NUMBER, STRING, Type, array, of_decl, of_schema
from sglspec.diagnostics import Report
from sglspec.document.fields import TEMPLATE_MARK, Text
from sglspec.document.load import Document, Tree
from sglspec.document.model import Gen
from sglspec.document.nodes import Mapping, Node, Scalar, to_python
from sglspec.expressions import ast
from sglspec.expressions.syntax import Template

Compile = Callable[[str], Constraint]

_WORD_TYPES = {"integer": INTEGER, "number": NUMBER, "boolean": BOOLEAN, "quoted": STRING, "json": ANY}


@dataclass(slots=True)
class GenChecker:
    """Checks every `gen` of a document; `constraints` collects what is known before a run."""

    document: Document
    report: Report
    constraints: dict[Gen, Constraint]
    definitions: Definitions
    faulty: Collection[Gen] = ()
    """Those whose `fields` have a fault already: that nothing matches them is no news."""

    def value_type(self, gen: Gen) -> Type:
        """Compiles the constraint and says what type the variable has."""
        single = self._constraint(gen)
        if last_given(gen, self.document.spec.defaults, "n") is None:  # null in the step resets it
            return single
        # A candidate that breaks its constraint is null.
        return array(replace(single, nullable=True) if single is not STRING or gen.regex or gen.grammar else single)

    def _constraint(self, gen: Gen) -> Type:
        """Compiles the constraint and says what type a generated value has."""
        self._json_options(gen)
        if gen.regex is not None:
            self._regex(gen, gen.regex)
            return STRING
        if gen.grammar is not None:
            self._text(gen, gen.grammar, grammar_constraint)
            return STRING
        if gen.fields is not None:
            if not gen.fields:
                help = "Name what to generate: `fields: {answer: string}`."
                message = "`fields` names nothing to generate"
                self.report.add(self.document.diagnostic("S215", message, gen.key("fields"), help=help))
                return Type("object")
            pretty, lenient = bool(gen.pretty), bool(gen.lenient)
            try:
                self.constraints[gen] = fields_constraint(gen.fields, pretty=pretty, lenient=lenient)
            except ConstraintError as error:
                if error.code != "S505" or gen not in self.faulty:
                    self._fault(error, gen.at("fields"), fields=True)
            return Type("object", fields={name: of_decl(decl) for name, decl in gen.fields.items()}, closed=True)
        if gen.schema_ is not None:
            return self._schema(gen, gen.schema_.node)
        if gen.type is not None:
            self.constraints[gen] = type_constraint(gen.type, pretty=bool(gen.pretty))
            return _WORD_TYPES[gen.type]
        return STRING

    # -- constraints ---------------------------------------------------------------------------------------------

    def _json_options(self, gen: Gen) -> None:
        makes_json = gen.fields is not None or gen.schema_ is not None or gen.type == "json"
        for name in ("pretty", "lenient"):
            if getattr(gen, name) is not None and not makes_json:
                message = f"`{name}` goes with `fields` and `schema`"
                self.report.add(self.document.diagnostic("S213", message, gen.key(name), help="Leave it out."))

    def _regex(self, gen: Gen, regex: Text) -> None:
        if (
            regex.node.style in ("literal", "folded")
            and regex.source.endswith("\n")
            and not TEMPLATE_MARK.search(regex.source)
        ):
            end = len(regex.source)
            message = "the pattern ends with the line break that the block adds"
            help = "Write `|-`, or put the pattern into single quotes."
            self.report.add(self.document.diagnostic_in("S502", message, regex.node, end - 1, end, help=help))
            return
        self._text(gen, regex, regex_constraint)

    def _text(self, gen: Gen, text: Text, compiled: Compile) -> None:
        """A constraint that is a text of its own. With inserted values it is compiled when it is reached."""
        if TEMPLATE_MARK.search(text.source):
            return
        try:
            self.constraints[gen] = compiled(text.source)
        except ConstraintError as error:
            self._fault(error, text.node)

    def inserted(self, gen: Gen, text: Text, template: Template) -> None:
        """What the author wrote around inserted values is checked now, in every branch. With nothing to insert but
        patterns of `defs` the constraint is known."""
        compiled = regex_constraint if text is gen.regex else grammar_constraint
        faults = early_faults(template.body, compiled, grammar=text is gen.grammar)
        if not faults and template.is_constant:
            self.constraints[gen] = compiled("".join(part.text for part in template.body if isinstance(part, ast.Text)))
        for error, start, end in faults:
            self.report.add(
                self.document.diagnostic_in(error.code, error.message, text.node, start, end, help=error.help)
            )

    def _schema(self, gen: Gen, node: Node) -> Type:
        if not isinstance(node, Mapping):
            if isinstance(node, Scalar) and TEMPLATE_MARK.search(node.text):
                pass  # a value: compiled when it is reached
            elif isinstance(node, Scalar) and isinstance(node.value, str):
                found = self.definitions.schema(node)
                return self._schema_of(gen, *found) if found is not None else ANY
            else:
                self.report.add(self.document.diagnostic("S503", "a JSON Schema is a mapping", node))
            return ANY
        return self._schema_of(gen, self.document, node)

    def _schema_of(self, gen: Gen, tree: Tree, node: Node) -> Type:
        """A schema that stands at a node of this document, or of another file."""
        schema = cast("dict[str, Any]", to_python(node))
        try:
            self.constraints[gen] = schema_constraint(schema, pretty=bool(gen.pretty), lenient=bool(gen.lenient))
        except ConstraintError as error:
            self._fault(error, node, tree=tree)
            return ANY
        loose = objects_without_required(schema)
        if loose is not None:
            help = "Add `required: [...]`, or use `fields`, where every field is required."
            message = "no field of this schema is required, so `{}` satisfies it"
            place = find(node, (*loose, "properties"), at_key=True)
            self.report.add(tree.diagnostic("W501", message, place, severity="warning", help=help))
        return of_schema(schema)

    def _fault(self, error: ConstraintError, node: Node, *, fields: bool = False, tree: Tree | None = None) -> None:
        """Point at the part of the document, or of another file, that the error speaks of."""
        if fields:
            error.pointer = _without_properties(error.pointer)
        report_constraint(self.report, tree or self.document, error, node)


def _without_properties(pointer: tuple[PointerStep, ...]) -> tuple[PointerStep, ...]:
    """`fields` leaves out the level that a schema calls `properties`."""
    return pointer[1:] if pointer[:1] == ("properties",) else pointer
