"""`scratch`: an aside of which the text is dropped and the exported variables come back."""

from __future__ import annotations

from dataclasses import dataclass

from sglspec.document.model import Scratch
from sglspec.document.nodes import Node
from sglspec.runtime.fork import Branch, Branching, RunSteps, open_lines
from sglspec.runtime.frame import Frame
from sglspec.runtime.scope import Bound, Gathered


@dataclass(slots=True, eq=False)
class Aside(Branching):
    """A fork of one, whose exports are the parent's own variables then."""

    step: Scratch

    @property
    def node(self) -> Node:
        return self.step.verb_node

    def values(self) -> dict[str, Bound]:
        scope = self.branches[0].frame.scope
        # Not bound only in a run that stopped before.
        return {target.name: scope.get(target.name) or Bound(None) for target in self.step.export or ()}


async def run_scratch(frame: Frame, step: Scratch, run_steps: RunSteps) -> None:
    names = [target.name for target in step.export or ()]
    await frame.ready(names)
    # Nothing is awaited between the fork and the registration, so that no cancellation can lose the session.
    (child,) = await open_lines(frame, 1, step.verb_node)
    gathered = Gathered()
    frame.scope.expect(names, gathered)
    frame.emit("fork.opened", step.verb_node, fork=child.path.rsplit(".", 1)[0], width=1)
    aside = Aside(frame, [Branch(step.scratch, child)], gathered, run_steps, step)
    frame.joins.append(aside)
    await aside.begin()


__all__ = ["run_scratch"]
