"""What a program will do, before it runs: contexts, branches, waits, shared beginnings, and bounds on all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sglspec.analysis.inputs import bind_inputs, bind_some, fill
from sglspec.analysis.plan.beginning import Beginning
from sglspec.analysis.plan.known import declared
from sglspec.analysis.plan.ranges import Cost, Length, Range
from sglspec.analysis.plan.state import Clock, Key, State
from sglspec.analysis.plan.texts import Sizes
from sglspec.analysis.plan.tree import Builder, PlanNode
from sglspec.analysis.plan.walk import Walk
from sglspec.analysis.program import Program
from sglspec.backends.base import RoleClose, RoleOpen, Segment
from sglspec.backends.markup import Markup, NoMarkup
from sglspec.diagnostics import SpecError
from sglspec.document.nodes import to_python


@dataclass(frozen=True, slots=True)
class Stretch:
    """Part of the critical path: `times` generations of a step in a row, of at most `tokens` each."""

    node: int
    tokens: int | None
    times: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """unit: what text is counted in, `tokens` or `characters`; inputs: name → `given`, `default` or `unknown`; cost: of
    a run, at most; beginning: the text that all runs begin with; length: of the main context at its end; in_a_row,
    critical: the most tokens that are generated one after the other, and by what; constraints: how many are compiled
    when the run starts, and when they are reached; keys: the id of each step at its place; computed: the least that a
    run can compute, in tokens, None without a model."""

    program: str
    chat: bool
    unit: str
    model: str | None
    inputs: Mapping[str, str]
    nodes: tuple[PlanNode, ...]
    cost: Cost
    beginning: int
    length: Length
    in_a_row: int | None
    critical: tuple[Stretch, ...]
    constraints: tuple[int, int]
    keys: Mapping[Key, int]

    @property
    def computed(self) -> Range | None:
        if self.unit != "tokens":
            return None
        return self.cost.text + self.cost.choices + self.cost.generated

    def every(self) -> list[PlanNode]:
        """All nodes, in the order of the document."""
        return [node for one in self.nodes for node in one.every()]

    def as_dict(self) -> dict[str, Any]:
        return {
            "program": self.program,
            "model": self.model,
            "chat": self.chat,
            "unit": self.unit,
            "inputs": dict(self.inputs),
            "bounds": {
                **self.cost.as_dict(),
                "computed": None if self.computed is None else self.computed.as_dict(),
                "in_a_row": self.in_a_row,
            },
            "beginning": self.beginning,
            "length": self.length.as_dict(),
            "critical": [{"id": one.node, "tokens": one.tokens, "times": one.times} for one in self.critical],
            "constraints": {"at_start": self.constraints[0], "when_reached": self.constraints[1]},
            "steps": [node.as_dict() for node in self.nodes],
        }


def plan(program: Program, given: Mapping[str, Any] | None = None, markup: Markup | None = None) -> Plan:
    """The plan of a program. given: inputs, all or some; one that is not given has its default. markup: a model's, to
    count in its tokens. Raises SpecError (S401, S403) for inputs that do not fit."""
    names, how = _inputs(program, given or {})
    sizes = Sizes(markup or NoMarkup())
    appended: dict[str, Any] = {name: [] for name in program.appending}
    walk = Walk(program, sizes, State(values={**names, **appended}))
    end = walk.program_end()
    builder = Builder(program, walk.found)
    nodes = builder.build()
    kinds = [node.constraint for one in nodes for node in one.every() if node.constraint is not None]
    ahead = sum("run starts" in kind for kind in kinds)
    return Plan(
        program=program.name,
        chat=program.chat,
        unit=sizes.unit,
        model=sizes.markup.name,
        inputs=how,
        nodes=nodes,
        cost=end.cost,
        beginning=beginning_of(program, {}, sizes)[1],
        length=end.length,
        in_a_row=end.clock.tokens,
        critical=_critical(end.clock, builder),
        constraints=(ahead, len(kinds) - ahead),
        keys=builder.ids,
    )


def _inputs(program: Program, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """What is known of each input, and why."""
    spec = program.spec
    if problems := bind_some(spec, given):
        raise SpecError(*problems)
    bound, missing = bind_inputs(spec, given)
    if not missing:
        return bound, {name: "given" if name in given else "default" for name in spec.inputs}
    names: dict[str, Any] = {}
    how: dict[str, str] = {}
    for name, decl in spec.inputs.items():
        if name in given:
            names[name], how[name] = fill(decl, given[name]), "given"
        elif decl.default is not None:
            names[name], how[name] = to_python(decl.default.node), "default"
        else:
            names[name], how[name] = declared(decl), "unknown"
    return names, how


def beginning_of(program: Program, known: Mapping[str, Any], sizes: Sizes) -> tuple[tuple[Segment, ...], int]:
    """What runs with these inputs begin with, and its size. Raises EngineError for a chat template without use."""
    segments = tuple(Beginning(program, known).of(program.spec.steps))
    state = State()
    for segment in segments:
        if isinstance(segment, RoleOpen):
            sizes.open(state, segment.role)
        elif isinstance(segment, RoleClose):
            sizes.close(state)
        else:
            sizes.write(state, [segment.text], True)
    sizes.flush(state)
    return segments, state.length.text.least


def _critical(clock: Clock, builder: Builder) -> tuple[Stretch, ...]:
    return tuple(Stretch(builder.ids[link.key], link.tokens, link.times) for link in clock.path())


__all__ = ["Cost", "Length", "Plan", "PlanNode", "Range", "Stretch", "beginning_of", "plan"]
