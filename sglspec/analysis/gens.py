"""What a `gen` asks for: its constraint and its sampling options, checked without a model."""

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
from sglspec.analysis.reasoning import ReasoningError, read_reasoning
from sglspec.analysis.regexes import check_stop_sizes, stop_pattern
from sglspec.analysis.schemas import objects_without_required
from sglspec.analysis.types import ANY, BOOLEAN, INTEGER, NUMBER, STRING, Type, array, of_decl, of_schema
from sglspec.diagnostics import Report
from sglspec.document.fields import TEMPLATE_MARK, Param, Text, Texts
from sglspec.document.load import Document, Tree
from sglspec.document.model import Gen, Sampling
from sglspec.document.nodes import Mapping, Node, Scalar, Sequence, to_python
from sglspec.expressions import ast
from sglspec.expressions.syntax import Template

DEFAULT_MAX_TOKENS = 256
MAX_BIAS = 100
MAX_TOKEN_ID = 2**31 - 1
"""No vocabulary comes near; which ids a model has is known when it is there."""
_ESCAPES = ("\\n", "\\t", "\\r", "\\n\\n", "\\r\\n")

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
        if not gives_list(gen, self.document.spec.defaults):
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

    def sampling(self, options: Sampling, defaults: Sampling | None) -> None:
        """Options that are wrong together or in shape. Ranges of single numbers are the model's business."""
        self._token_counts(options, defaults)
        if isinstance(options, Gen) and options.reasoning is not None:
            self._reasoning(options, options.reasoning.node, defaults)
        self._candidates(options, defaults)
        if options.stop_regex is not None:
            self._stop_patterns(options.stop_regex)
        for text in options.stop.items if options.stop is not None else ():
            if text.source == "":
                self._sampling_fault("a stop text is empty", text.node, "Leave it out: an empty text is everywhere.")
            self._escape_without_quotes(text)
        if options.logit_bias is not None:
            self._logit_bias(options.logit_bias.node)
        if options.stop_token_ids is not None:
            self._token_ids(options.stop_token_ids.node)

    def _candidates(self, options: Sampling, defaults: Sampling | None) -> None:
        """`n` and `retry` ask for different texts, which only chance can give."""
        if options.keep is not None and _last(options, defaults, "n") is None:
            message = "`keep` goes with `n`"
            self.report.add(
                self.document.diagnostic("S213", message, options.key("keep"), help="Add `n`, or leave it out.")
            )
        if not isinstance(options, Gen):
            return
        many = _literal(options, defaults, "n")
        wanted = "n" if isinstance(many, int) and many > 1 else "retry" if options.retry is not None else None
        if wanted is not None and not _literal(options, defaults, "temperature"):
            node = options.node.key(wanted) or options.verb_node
            message = f"at temperature 0 every text would be the same, so `{wanted}` changes nothing"
            self._sampling_fault(message, node, "Add a `temperature` above 0, for example 0.8.")

    def _reasoning(self, gen: Gen, node: Node, defaults: Sampling | None) -> None:
        try:
            reasoning = read_reasoning(node)
        except ReasoningError as error:
            self._sampling_fault(error.message, error.node, error.help)
            return
        most = _literal(gen, defaults, "max_tokens")
        most = DEFAULT_MAX_TOKENS if most is None else most
        if reasoning is None or reasoning.budget is None or not isinstance(most, int):
            return
        if reasoning.budget + 1 >= most:  # the closing tag is a token at least
            message = f"a `budget` of {reasoning.budget} leaves nothing of `max_tokens` ({most}) for the answer"
            help = "Raise `max_tokens`: it counts the thinking, its tags and the answer."
            self._sampling_fault(message, find(node, ("budget",)), help)

    def _stop_patterns(self, patterns: Texts) -> None:
        sizes: list[int] = []
        for pattern in patterns.items:
            if TEMPLATE_MARK.search(pattern.source):
                continue  # read when it is reached
            try:
                sizes.append(stop_pattern(pattern.source)[1])
            except ConstraintError as error:
                self._fault(error, pattern.node)
        try:
            check_stop_sizes(sizes)
        except ConstraintError as error:
            self._fault(error, patterns.node)

    def _escape_without_quotes(self, text: Text) -> None:
        """`stop: \\n` is a backslash and an n: YAML reads escapes inside double quotes only."""
        if text.node.style in ("plain", "single") and text.source in _ESCAPES:
            message = f"without double quotes `{text.source}` is a backslash and a letter"
            help = f'Write "{text.source}" in double quotes.'
            self.report.add(self.document.diagnostic("W103", message, text.node, severity="warning", help=help))

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
        tree = tree or self.document
        pointer = _without_properties(error.pointer) if fields else error.pointer
        place = find(node, pointer, at_key=error.at_key)
        if isinstance(place, Scalar) and error.start is not None:
            end = error.end if error.end is not None else error.start + 1
            self.report.add(tree.diagnostic_in(error.code, error.message, place, error.start, end, help=error.help))
        else:
            self.report.add(tree.diagnostic(error.code, error.message, place, help=error.help))

    # -- sampling ------------------------------------------------------------------------------------------------

    def _token_counts(self, options: Sampling, defaults: Sampling | None) -> None:
        most, least = _literal(options, defaults, "max_tokens"), _literal(options, defaults, "min_tokens")
        most = DEFAULT_MAX_TOKENS if most is None else most
        if most is _UNKNOWN or least is _UNKNOWN or least is None:
            return
        own = next((p for p in (options.min_tokens, options.max_tokens) if p is not None), None)
        if own is not None and cast("int", least) > cast("int", most):
            message = f"`min_tokens` ({least}) is more than `max_tokens` ({most})"
            self._sampling_fault(message, own.node, "Raise `max_tokens`, or lower `min_tokens`.")

    def _logit_bias(self, node: Node) -> None:
        if not isinstance(node, Mapping):
            if not (isinstance(node, Scalar) and node.value is None):
                self._sampling_fault("`logit_bias` is a mapping of token ids to numbers", node)
            return
        for entry in node.entries:
            word = entry.key.text
            digits = word.isascii() and word.isdigit() and len(word) <= len(str(MAX_TOKEN_ID))
            if not digits or int(word) > MAX_TOKEN_ID:
                help = "Tokens are named by their number in the model's vocabulary."
                self._sampling_fault(f"`{word[:40]}` is not a token id", entry.key, help)
            value = entry.value.value if isinstance(entry.value, Scalar) else None
            if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > MAX_BIAS:
                self._sampling_fault(f"a bias is a number from -{MAX_BIAS} to {MAX_BIAS}", entry.value)

    def _token_ids(self, node: Node) -> None:
        if isinstance(node, Scalar) and node.value is None:
            return
        if not isinstance(node, Sequence):
            self._sampling_fault("`stop_token_ids` is a list of token ids", node)
            return
        for item in node.items:
            value = item.value if isinstance(item, Scalar) else None
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_TOKEN_ID:
                self._sampling_fault(f"a token id is a whole number from 0 to {MAX_TOKEN_ID:,}", item)

    def _sampling_fault(self, message: str, node: Node, help: str | None = None) -> None:
        self.report.add(self.document.diagnostic("S507", message, node, help=help))


_UNKNOWN = object()


def gives_list(options: Sampling, defaults: Sampling | None) -> bool:
    """Whether the variable is a list of candidates: `n` is given, and the step does not reset it with null."""
    return _last(options, defaults, "n") is not None


def _last(options: Sampling, defaults: Sampling | None, name: str) -> Param | None:
    """The option as the step or the defaults give it; None when nobody does, or the last one says null."""
    for layer in (options, defaults):
        param: Param | None = getattr(layer, name) if layer is not None else None
        if param is not None:
            return None if param.template is None and param.value is None else param
    return None


def _literal(options: Sampling, defaults: Sampling | None, name: str) -> object:
    """A literal option with the defaults below it; None when nobody set it, _UNKNOWN when it is a template."""
    for layer in (options, defaults):
        param: Param | None = getattr(layer, name) if layer is not None else None
        if param is not None:
            return param.value if param.template is None else _UNKNOWN
    return None


def find(node: Node, pointer: tuple[PointerStep, ...], *, at_key: bool = False) -> Node:
    """The node at the end of a pointer, or the last one on the way that exists; with `at_key` its key."""
    current: Node = node
    last_key: Node | None = None
    for part in pointer:
        following: Node | None = None
        key: Node | None = None
        if isinstance(current, Mapping):
            following, key = current.get(str(part)), current.key(str(part))
        elif isinstance(current, Sequence) and isinstance(part, int) and part < len(current.items):
            following = current.items[part]
        if following is None:
            return last_key or current if at_key else current
        current, last_key = following, key
    return (last_key or current) if at_key else current


def _without_properties(pointer: tuple[PointerStep, ...]) -> tuple[PointerStep, ...]:
    """`fields` leaves out the level that a schema calls `properties`."""
    return pointer[1:] if pointer[:1] == ("properties",) else pointer
