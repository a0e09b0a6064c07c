"""One walk over the steps: compiles every text, follows every path, and reports what cannot be meant."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sglspec.analysis import later
from sglspec.analysis.asides import walk_scratch
from sglspec.analysis.choices import check_choices, check_listed
from sglspec.analysis.comparisons import check_comparisons, check_truth, kind_words
from sglspec.analysis.comparisons import walk as walk_expression
from sglspec.analysis.constants import constant_value
from sglspec.analysis.declarations import nearest
from sglspec.analysis.forks import walk_fork
from sglspec.analysis.gens import GenChecker
from sglspec.analysis.infer import NUMERIC, infer
from sglspec.analysis.lints import no_comment, step_as_text
from sglspec.analysis.names import Names, narrowed
from sglspec.analysis.operations import check_loop, check_operations
from sglspec.analysis.paths import known, walk_for, walk_if, walk_match, walk_while
from sglspec.analysis.program import CompiledValue, Constant, ListValue, MapValue, Rendered
from sglspec.analysis.reuse import Reuse, walk_call, walk_include
from sglspec.analysis.sampling import FLAGS, NUMBERS, SamplingChecker, holds_template
from sglspec.analysis.scopes import Ending, Place, State
from sglspec.analysis.sites import Site, own_sites, set_key
from sglspec.analysis.texts import Compiler, expressions_of
from sglspec.analysis.tooluse import walk_tool
from sglspec.analysis.types import (
    ANY,
    STRING,
    Lookup,
    Type,
    array,
    join_types,
    of_all,
    of_value,
)
from sglspec.diagnostics import Report
from sglspec.document.fields import TEMPLATE_MARK, Expr, Items, Param
from sglspec.document.load import Document
from sglspec.document.model import (
    VERBS,
    AnyStep,
    Break,
    Call,
    Capture,
    Check,
    Continue,
    Fail,
    For,
    Fork,
    Gen,
    If,
    Image,
    Include,
    Match,
    Messages,
    Raw,
    Return,
    Role,
    Sampling,
    Scratch,
    Select,
    Set,
    TextStep,
    Tool,
    Video,
    While,
)
from sglspec.document.nodes import Node, Scalar
from sglspec.document.nodes import Sequence as SequenceNode
from sglspec.expressions import ast
from sglspec.expressions.syntax import Expression, Template
from sglspec.tools import Tools

SCALARS = ("string", "boolean", *NUMERIC)
"""Kinds of values that are written as they are where a text is wanted."""


@dataclass(slots=True)
class Flow:
    """The walker. `state` and `place` are those of the step that is being looked at."""

    document: Document
    report: Report
    names: Names
    gens: GenChecker
    tools: Tools
    host_known: bool
    """Whether `tools` are all that the host offers."""
    reuse: Reuse
    patterns: Mapping[str, str]
    """Regexes of `defs`."""
    state: State = field(default_factory=State)
    place: Place = field(default_factory=Place)
    compiler: Compiler = field(init=False)
    used: set[str] = field(default_factory=set[str])
    """Names read so far; a fork looks at what its branches read."""
    at_end: bool = False
    endings: list[Ending] = field(default_factory=list[Ending])
    """Every `return` so far."""

    def __post_init__(self) -> None:
        self.compiler = Compiler(self.document, self.report, self._use)

    # -- texts and expressions -----------------------------------------------------------------------------------

    def _use(self, compiled: Template | Expression, node: Scalar) -> None:
        for use in compiled.names:
            self.used.add(use.name)
            self.names.check_use(use, node, self.state, self.place, at_end=self.at_end)
        if isinstance(compiled, Template):
            for expr, lookup, role in expressions_of(compiled.body, self.lookup):
                self._meant(expr, node, lookup)
                if role == "condition":
                    self.types(check_truth(expr, lookup), node)
                elif role == "list":
                    self.types(check_loop(expr, lookup), node)
        else:
            self._meant(compiled.root, node, self.lookup)

    def _meant(self, expr: ast.Expr, node: Scalar, lookup: Lookup) -> None:
        """What cannot be meant of an expression, whatever its values are."""
        self.types(check_comparisons(expr, lookup), node)
        self.types(list(check_operations(expr, lookup)), node)
        self._texts(expr, node)

    def _texts(self, expr: ast.Expr, node: Scalar) -> None:
        """`texts.name` names a text that is there."""
        known = self.names.texts
        for part in walk_expression(expr) if known else ():
            if isinstance(part, ast.Attribute) and part.value == ast.Name(part.value.start, part.value.end, "texts"):
                if part.name in known:
                    continue
                close = nearest(part.name, list(known))
                help = f"Did you mean `{close}`?" if close else f"Defined are: {', '.join(known)}."
                message = f"`defs` has no text `{part.name}`"
                end = part.name_start + len(part.name)
                self.report.add(self.document.diagnostic_in("S323", message, node, part.name_start, end, help=help))

    @contextmanager
    def own_loop(self) -> Generator[None]:
        """What reads `loop` in here reads that of a loop inside of the fork around."""
        outside = "loop" in self.used
        yield
        if not outside:
            self.used.discard("loop")

    def lookup(self, name: str) -> Type:
        return self.names.type_of(name, self.state)

    def types(self, problems: list[Any], node: Scalar) -> None:
        for p in problems:
            if not self.state.muted:
                self.report.add(self.document.diagnostic_in(p.code, p.message, node, p.start, p.end, help=p.help))

    def condition(self, expr: Expr) -> Expression | None:
        compiled = self.compiler.expression(expr)
        if compiled is not None:
            self.types(check_truth(compiled.root, self.lookup), expr.node)
        return compiled

    def value(self, node: Node) -> Type:
        """A value field: its type."""
        compiled = self.compiler.value(node, self.names.visible(self.state, self.place))
        return self.type_of(compiled) if compiled is not None else ANY

    def type_of(self, compiled: CompiledValue) -> Type:
        match compiled:
            case Constant(value=value):
                return of_value(value)
            case ListValue(items=items):
                types = [self.type_of(item) for item in items]
                return array(of_all(types))
            case MapValue(entries=entries):
                return Type("object", fields={key: self.type_of(item) for key, item in entries})
            case _:
                single = compiled.template.single
                return infer(single.root, self.lookup) if single is not None else STRING

    def option(self, param: Param | None, name: str, kinds: tuple[str, ...] = NUMERIC) -> None:
        """An option that may be a template; then its value must be of one of these kinds."""
        compiled = self.compiler.param(param)
        if compiled is None or param is None:
            return
        type = infer(compiled.root, self.lookup)
        if type.kind not in ("any", "null", *kinds) and not type.nullable and not self.state.muted:
            wanted = {"boolean": "true or false", "string": "a text"}.get(kinds[0], "a number")
            message = f"`{name}` needs {wanted}, and this is {kind_words(type)}"
            help = None
            if type.kind == "array":
                branches = "For a branch per item write `fork: item`, and below it `in: …`."
                help = branches if name == "fork" else "`len` counts the items of a list."
            elif type.kind == "string" and kinds is NUMERIC:
                help = "`int` and `float` turn text into a number."
            self.report.add(self.document.diagnostic("S408", message, param.node, help=help))
            return
        value = constant_value(compiled.root)
        if value is not None and not self.state.muted:
            try:
                param.check(value)
            except ValueError as error:
                self.report.add(self.document.diagnostic("S408", f"`{name}`: {error}", param.node))

    def params(self, options: Sampling) -> None:
        for name in NUMBERS:
            self.option(getattr(options, name), name)
        for name in FLAGS:
            self.option(getattr(options, name), name, ("boolean",))
        self.option(options.keep, "keep", ("string",))
        for value in (options.logit_bias, options.stop_token_ids):
            if value is not None and holds_template(value.node):
                kind, name = ("object", "logit_bias") if value is options.logit_bias else ("array", "stop_token_ids")
                self._needs(name, self.value(value.node), (kind,), value.node)
        self.compiler.texts(options.stop, self.names.visible(self.state, self.place))
        self.compiler.texts(options.stop_regex, inserts=self.patterns)
        for text in options.stop.items if options.stop is not None else ():
            template = self.compiler.templates.get(text)
            if template is not None and template.single is not None:
                type = infer(template.single.root, self.lookup)
                self._needs("stop", type, (*SCALARS, "array"), text.node)
                self._needs("stop", type.items or ANY, SCALARS, text.node, "texts")

    # -- steps ---------------------------------------------------------------------------------------------------

    def block(self, steps: list[AnyStep]) -> None:
        """A list of steps, from the current state on."""
        muted = self.state.muted
        for index, step in enumerate(steps):
            if not self.state.alive and not self.state.muted:
                message = "this step is never reached"
                help = "The steps before it always leave: remove it, or put a condition around what leaves."
                if index == 0:
                    help = "The condition, case or list that leads here never does: change it, or remove the step."
                node = step.verb_node if not isinstance(step, TextStep) else step.node
                self.report.add(self.document.diagnostic("W301", message, node, severity="warning", help=help))
            if not self.state.alive:
                self.state.alive = self.state.muted = True
            self.step(step)
        if self.state.muted and not muted:
            self.state.alive = self.state.muted = False

    def inside(self, steps: list[AnyStep], state: State, place: Place) -> State:
        """Walks a block from another state; the walker is back where it was afterwards. Returns the block's end."""
        before, here = self.state, self.place
        self.state, self.place = state, place
        self.block(steps)
        end = self.state
        self.state, self.place = before, here
        return end

    def step(self, step: AnyStep) -> None:
        if not isinstance(step, TextStep) and not VERBS[step.VERB].ready:
            message = f"`{step.VERB}` is not yet in this build"
            self.report.add(self.document.diagnostic("S220", message, step.verb_node, help=later.VERBS[step.VERB]))
        match step:
            case TextStep():
                self.compiler.text(step.text)
                no_comment(self.document, self.report, step.text)
                step_as_text(self.document, self.report, step.text.node)
            case Role():
                if step.is_single_text and isinstance(step.steps[0], TextStep):
                    self.compiler.text(step.steps[0].text, message=True)
                    no_comment(self.document, self.report, step.steps[0].text)
                else:
                    self.block(step.steps)
            case Raw():
                pass
            case Gen():
                self._gen(step)
            case Select():
                self._select(step)
            case Set():
                self._set(step)
            case Capture():
                self._capture(step)
            case If():
                walk_if(self, step)
            case Match():
                walk_match(self, step)
            case For():
                walk_for(self, step)
            case While():
                walk_while(self, step)
            case Fork():
                walk_fork(self, step)
            case Scratch():
                walk_scratch(self, step)
            case Tool():
                walk_tool(self, step)
            case Messages():
                self._messages(step)
            case Break() | Continue() | Return() | Fail():
                self._leave(step)
            case Check():
                self._check(step)
            case Include():
                walk_include(self, step)
            case Call():
                walk_call(self, step)
            case Image():
                self.value(step.image.node)
            case Video():
                self.value(step.video.node)
            case _:
                pass

    def _bind(self, step: AnyStep, type: Type) -> None:
        for site in own_sites(step):
            self.names.bind(site, type, self.state, self.place)

    def _gen(self, step: Gen) -> None:
        for text in (step.regex, step.grammar):
            inserts = self.patterns if text is step.regex else None
            template = self.compiler.text(text, inserts=inserts) if text is not None else None
            if text is not None and template is not None and TEMPLATE_MARK.search(text.source):
                self.gens.inserted(step, text, template)
        if step.schema_ is not None and isinstance(step.schema_.node, Scalar):
            self._inserted_schema(step.schema_.node)
        self.params(step)
        SamplingChecker(self.document, self.report, step, self.document.spec.defaults).check()
        self._bind(step, self.gens.value_type(step))
        if step.retry is not None:
            self.option(step.retry.max, "max")
            if step.retry.until is not None:
                self.condition(step.retry.until)

    def _inserted_schema(self, node: Scalar) -> None:
        """`schema: "{{ input }}"`: a value that is a schema."""
        if not TEMPLATE_MARK.search(node.text):
            return
        compiled = self.compiler.value(node, ())
        if isinstance(compiled, Rendered) and compiled.template.single is None:
            help = "Write exactly one `{{ … }}`, with nothing around it."
            self.report.add(self.document.diagnostic("S203", "a schema is a mapping, not a text", node, help=help))
        elif compiled is not None:
            self._needs("schema", self.type_of(compiled), ("object",), node)

    def _select(self, step: Select) -> None:
        compiled = self.compiler.items(step.choices, self.names.visible(self.state, self.place))
        type = ANY
        if isinstance(compiled, ListValue):
            type = check_choices(self.document, self.report, step, compiled, self.type_of)
        elif compiled is not None:
            check_listed(self.document, self.report, step, compiled)
            listed = infer(compiled.root, self.lookup)
            node = step.choices.node
            self._needs("from", listed, ("array",), node)
            type = listed.items or ANY
            self._needs("from", type, SCALARS, node, "texts, numbers or true/false")
        self._bind(step, type)

    def _set(self, step: Set) -> None:
        for key, value in step.set.items():
            node = set_key(step, key)
            type = self.value(value.node)
            if self.names.good(key.removesuffix("[]"), node):
                site = Site(key.removesuffix("[]"), key.endswith("[]"), node, id(step))
                empties = isinstance(value.node, SequenceNode) and not value.node.items
                self.names.bind(site, type, self.state, self.place, empties=empties)

    def _capture(self, step: Capture) -> None:
        self.state = self.inside(step.do, self.state, self.place.in_capture())
        self._bind(step, STRING)

    def _check(self, step: Check) -> None:
        compiled = self.condition(step.check)
        if step.message is not None:
            self.compiler.text(step.message)
        if compiled is not None:
            for name in narrowed(compiled.root)[0]:
                known(self, self.state, name)
            if isinstance(compiled.root, ast.Literal) and not compiled.root.value:
                self.state.alive = False  # it always fails

    def _messages(self, step: Messages) -> None:
        compiled = self.compiler.expression(step.messages)
        if compiled is not None:
            self._needs("messages", infer(compiled.root, self.lookup), ("array",), step.messages.node)

    # -- lists -----------------------------------------------------------------------------------------------

    def items(self, items: Items) -> tuple[Type, bool | None]:
        """The type of one item, and whether there is one; None where only the run knows."""
        compiled = self.compiler.items(items, self.names.visible(self.state, self.place))
        if isinstance(compiled, ListValue):
            types = [self.type_of(item) for item in compiled.items]
            joined = types[0] if types else ANY
            for type in types[1:]:
                joined = join_types(joined, type)
            return joined, bool(types)
        if compiled is None:
            return ANY, None
        listed = infer(compiled.root, self.lookup)
        self._needs("in", listed, ("array",), items.node)
        return listed.items or ANY, bool(compiled.root.items) if isinstance(compiled.root, ast.ListLit) else None

    def _needs(self, key: str, type: Type, kinds: tuple[str, ...], node: Node, wanted: str | None = None) -> None:
        """A value whose type is known is of one of these kinds."""
        if type.kind not in ("any", "null", *kinds) and not type.nullable and not self.state.muted:
            wanted = wanted or {"array": "a list", "object": "an object"}.get(kinds[0], "a text or a list of texts")
            message = f"`{key}` needs {wanted}, and this is {kind_words(type)}"
            self.report.add(self.document.diagnostic("S408", message, node))

    def _leave(self, step: Break | Continue | Return | Fail) -> None:
        match step:
            case Return():
                values = {name: self.value(value.node) for name, value in (step.values or {}).items()}
                if self.place.sealed is not None:
                    self._misplaced(step, f"`return` cannot leave a `{self.place.sealed}`")
                elif not self.state.muted:
                    self.endings.append(Ending(self.state.part(), values if step.values is not None else None))
            case Fail():
                self.compiler.text(step.fail)
            case _:
                self._jump(step)
        self.state.alive = False

    def _jump(self, step: Break | Continue) -> None:
        around = self.place.around
        if around is None:
            self._misplaced(step, f"`{step.VERB}` stands outside of any loop")
        elif around in ("capture", "scratch") or (around == "fork" and isinstance(step, Break)):
            help = "`continue` ends the branch." if around == "fork" else None
            self._misplaced(step, f"`{step.VERB}` cannot leave a `{around}`", help)
        elif self.place.jumps is not None and not self.state.muted:
            jumps = self.place.jumps
            (jumps.breaks if isinstance(step, Break) else jumps.continues).append(self.state.part())

    def _misplaced(self, step: Break | Continue | Return, message: str, help: str | None = None) -> None:
        self.report.add(self.document.diagnostic("S210", message, step.verb_node, help=help))
