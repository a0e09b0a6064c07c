"""What `include` and `call` hand over: the values of `with`, and those that `use` has bound."""

from __future__ import annotations

from collections.abc import Mapping

from sglspec.analysis.inputs import bind
from sglspec.document.fields import Value as Written
from sglspec.document.model import Call, Decl, Include
from sglspec.document.nodes import Mapping as MappingNode
from sglspec.document.nodes import Node
from sglspec.runtime.frame import Frame
from sglspec.runtime.scope import Bound


async def arguments(
    frame: Frame, step: Include | Call, declared: Mapping[str, Decl], bound: Mapping[str, Written]
) -> dict[str, Bound]:
    """Every declared input with its value, defaults included. Raises S707 for one that does not fit."""
    given: dict[str, Bound] = {}
    for name, value in {**bound, **(step.args or {})}.items():
        given[name] = Bound(*await frame.value_at(value.node))
    values, problems = bind(declared, {name: one.value for name, one in given.items()})
    for problem in problems:
        raise frame.data_error(problem.code, problem.message, _place(step, problem.pointer, bound))
    return {name: Bound(value, given[name].origin if name in given else "author") for name, value in values.items()}


def _place(step: Include | Call, name: str, bound: Mapping[str, Written]) -> Node:
    """Where the value of an input is written."""
    if name in bound:
        return bound[name].node
    mapping = step.at("with")
    return (mapping.get(name) if isinstance(mapping, MappingNode) else None) or step.verb_node


__all__ = ["arguments"]
