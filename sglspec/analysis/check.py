"""The whole static check of one document, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sglspec.analysis.cases import CaseChecker
from sglspec.analysis.chat import ChatChecker, is_chat
from sglspec.analysis.declcheck import DeclChecker
from sglspec.analysis.definitions import NOWHERE, Definitions, Place
from sglspec.analysis.flow import Flow
from sglspec.analysis.gens import GenChecker
from sglspec.analysis.lists import given_back, in_order, nesting, too_deep, variables_at_end
from sglspec.analysis.names import Names
from sglspec.analysis.newlines import last_newlines
from sglspec.analysis.outputs import check_outputs
from sglspec.analysis.program import CompiledValue, Program, Routine, Used
from sglspec.analysis.reuse import Reuse, check_bound
from sglspec.analysis.sampling import SamplingChecker
from sglspec.analysis.sites import every_step, sites
from sglspec.analysis.unused import check_unused
from sglspec.diagnostics import Related, Report
from sglspec.document.fields import Expr, Param, Text
from sglspec.document.load import Document
from sglspec.document.model import AnyStep, Decl, Gen, Spec, StepsDef, TextStep
from sglspec.document.nodes import Mapping as MappingNode
from sglspec.document.nodes import Node
from sglspec.expressions.syntax import Expression, Template
from sglspec.tools import Tools


def check(
    document: Document,
    report: Report,
    tools: Tools | None = None,
    used: Mapping[str, Used | None] | None = None,
    place: Place = NOWHERE,
) -> Program | None:
    """Every static check. None when the report has errors; warnings alone give a program.

    used: the programs of `use`, None for one with errors; place: where the document's paths start from.
    """
    spec = document.spec
    everything = [*spec.steps, *(step for listed in _lists(spec).values() for step in listed.steps)]
    _ids(document, report, everything)
    _limits(document, report)
    faulty = _declarations(document, report, everything)
    definitions = Definitions(document, report, place)
    reuse = Reuse({}, {alias: one for alias, one in (used or {}).items() if one is not None})
    reuse.faulty |= spec.use.keys() - reuse.used.keys()
    gens = GenChecker(document, report, {}, definitions, faulty)
    walks = _Walks(document, report, tools, definitions, reuse, gens)
    walks.lists()
    chat = is_chat(spec.steps, reuse.target)
    if chat:
        ChatChecker(document, report, reuse.target).check(spec.steps)
    flow = walks.flow(spec.steps, spec.inputs)
    if spec.defaults is not None:
        flow.params(spec.defaults)
        SamplingChecker(document, report, spec.defaults, None).check()
    for alias, use in spec.use.items():
        check_bound(flow, alias, use, reuse.used.get(alias))
    flow.block(spec.steps)
    last_newlines(document, report, spec.steps)
    outputs = check_outputs(document, report, flow)
    routine = walks.routine(flow, spec.steps, spec.inputs, {}, chat)
    names = flow.names
    _patterns(document, report, [names, *(one.names for one in walks.flows)])
    program = Program(
        document, walks.templates, walks.expressions, walks.values, gens.constraints, chat, routine, reuse.lists,
        reuse.used, definitions.texts, definitions.schemas, outputs,
    )  # fmt: skip
    bound = [*names.bound_in, *names.hidden_in]
    types = variables_at_end(flow) | outputs
    cases = CaseChecker(program, report, bound, types, all_known=not reuse.faulty)
    for case in spec.tests or ():
        cases.check(case)
    _unused(document, report, walks)
    if not report.has_errors and not reuse.faulty:
        check_unused(document, report)
    return None if report.has_errors else program


def _lists(spec: Spec) -> Mapping[str, StepsDef]:
    return spec.defs.steps if spec.defs is not None else {}


def _declarations(document: Document, report: Report, steps: list[AnyStep]) -> set[Gen]:
    """Checks inputs, params and fields. Returns the generations with a fault in their fields."""
    decls = DeclChecker(document, report)
    decls.check_all(document.spec.inputs, fields=False)
    for listed in _lists(document.spec).values():
        decls.check_all(listed.params, fields=False)
    faulty: set[Gen] = set()
    for step in every_step(steps):
        if isinstance(step, Gen) and step.fields is not None and not decls.check_all(step.fields, fields=True):
            faulty.add(step)
    return faulty


@dataclass(slots=True)
class _Walks:
    """The lists of steps of a document, each with names of its own."""

    document: Document
    report: Report
    tools: Tools | None
    definitions: Definitions
    reuse: Reuse
    gens: GenChecker
    flows: list[Flow] = field(default_factory=list[Flow])
    of_list: dict[StepsDef, Flow] = field(default_factory=dict[StepsDef, Flow])
    templates: dict[Text, Template] = field(default_factory=dict[Text, Template])
    expressions: dict[Expr, Expression] = field(default_factory=dict[Expr, Expression])
    values: dict[Node, CompiledValue] = field(default_factory=dict[Node, CompiledValue])

    def flow(self, steps: list[AnyStep], inputs: Mapping[str, Decl], outside: frozenset[str] = frozenset()) -> Flow:
        definitions = self.definitions
        names = Names.of(self.document, self.report, steps, inputs, definitions.texts, definitions.patterns, outside)
        tools, known = self.tools or Tools(installed=True), self.tools is not None
        flow = Flow(self.document, self.report, names, self.gens, tools, known, self.reuse, definitions.patterns)
        self.flows.append(flow)
        return flow

    def lists(self) -> None:
        """Those of `defs.steps`, included ones before those that include them."""
        spec = self.document.spec
        written = _lists(spec)
        self._two_meanings(written)
        variables = frozenset(site.name for site in sites(spec.steps)) if written else frozenset[str]()
        for name in in_order(self.document, self.report, written, self.reuse):
            listed = written[name]
            for param in listed.params:
                if param in spec.inputs:
                    mapping = listed.at("params")
                    node = (mapping.key(param) if isinstance(mapping, MappingNode) else None) or mapping
                    message = f"the param `{param}` is an input of this document, which included steps see anyway"
                    self.report.add(self.document.diagnostic("S303", message, node, help="Choose another name."))
            inputs = {**spec.inputs, **listed.params}
            flow = self.of_list[listed] = self.flow(listed.steps, inputs, variables)
            flow.block(listed.steps)
            last_newlines(self.document, self.report, listed.steps)
            roles = is_chat(listed.steps, self.reuse.target)
            self.reuse.lists[name] = self.routine(flow, listed.steps, inputs, listed.params, roles)

    def _two_meanings(self, written: Mapping[str, StepsDef]) -> None:
        """A name of `defs.steps` that is an alias of `use` too."""
        node = self.document.spec.defs.at("steps") if self.document.spec.defs is not None else None
        for name in written.keys() & self.document.spec.use.keys():
            key = node.key(name) if isinstance(node, MappingNode) else None
            message = f"`{name}` is an alias of `use` too, and `include` takes both"
            self.report.add(
                self.document.diagnostic("S214", message, key or self.document.root, help="Choose another name.")
            )

    def routine(
        self,
        flow: Flow,
        steps: list[AnyStep],
        inputs: Mapping[str, Decl],
        params: Mapping[str, Decl],
        roles: bool,
    ) -> Routine:
        """What was found about a list that is walked."""
        self.templates |= flow.compiler.templates
        self.expressions |= flow.compiler.expressions
        self.values |= flow.compiler.values
        too_deep(self.document, self.report, steps, self.reuse)
        bindable, deep = tuple(flow.names.bound_in), 1 + nesting(steps, self.reuse)
        return Routine(steps, inputs, params, bindable, flow.names.appending, given_back(flow), roles, deep)


def _ids(document: Document, report: Report, steps: list[AnyStep]) -> None:
    first: dict[str, Node] = {}
    for step in every_step(steps):
        if isinstance(step, TextStep) or step.id is None:
            continue
        node = step.at("id")
        if step.id in first:
            related = (Related("first used here", first[step.id].range),)
            message = f"the id `{step.id}` is used twice"
            report.add(document.diagnostic("S214", message, node, related=related))
        first.setdefault(step.id, node)


def _patterns(document: Document, report: Report, names: list[Names]) -> None:
    """Patterns have names that nothing else has: in `regex` it would not be known which one is meant."""
    defs = document.spec.defs
    node = defs.at("regexes") if defs is not None else None
    for name in defs.regexes if defs is not None else ():
        for one in names:
            first = one.bound_in.get(name) or one.loop_variables.get(name)
            if name in one.inputs or first is not None:
                key = node.key(name) if isinstance(node, MappingNode) else None
                message = f"the pattern `{name}` has the name of a variable or input"
                related = (Related("this one", first.range),) if first is not None else ()
                help = "Choose another name."
                report.add(
                    document.diagnostic("S303", message, key or node or document.root, help=help, related=related)
                )
                break


def _limits(document: Document, report: Report) -> None:
    limits = document.spec.limits
    for name in ("tokens", "branches", "depth", "iterations", "seconds") if limits is not None else ():
        param: Param | None = getattr(limits, name)
        if param is not None and param.template is not None:
            help = f"Write a number: `{name}: 1000`."
            report.add(document.diagnostic("S203", f"`{name}` takes a number, not a template", param.node, help=help))


def _unused(document: Document, report: Report, walks: _Walks) -> None:
    """Inputs and params that nothing reads."""
    if walks.reuse.faulty & _lists(document.spec).keys():
        return  # lists that nobody walked may read them
    everywhere = set[str]().union(*(flow.names.read | flow.compiler.words for flow in walks.flows))
    mapping = document.root.get("inputs")
    for name in document.spec.inputs:
        if name not in everywhere and name not in walks.definitions.patterns:
            _is_unused(document, report, "input", name, mapping or document.root)
    for listed, flow in walks.of_list.items():
        for name in listed.params:
            if name not in flow.names.read | flow.compiler.words:
                _is_unused(document, report, "param", name, listed.at("params"))


def _is_unused(document: Document, report: Report, what: str, name: str, mapping: Node) -> None:
    key = (mapping.key(name) if isinstance(mapping, MappingNode) else None) or mapping
    message = f"nothing reads the {what} `{name}`"
    help = f"Insert it with `{{{{ {name} }}}}`, or remove it."
    report.add(document.diagnostic("W302", message, key, severity="warning", help=help))


__all__ = ["check"]
