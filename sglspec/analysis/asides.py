"""`scratch`: a fork of one whose text is dropped; what it exports comes back as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglspec.analysis.declarations import nearest
from sglspec.analysis.forks import check_depth
from sglspec.analysis.sites import sites
from sglspec.analysis.types import ANY
from sglspec.document.model import Scratch

if TYPE_CHECKING:
    from sglspec.analysis.flow import Flow


def walk_scratch(flow: Flow, step: Scratch) -> None:
    check_depth(flow, step)
    end = flow.inside(step.scratch, flow.state.part(), flow.place.in_scratch())
    inner = {site.name for site in sites(step.scratch)}
    exported: set[str] = set()
    for site in sites([step]):
        name = site.name
        if name in exported:
            flow.report.add(flow.document.diagnostic("S214", f"`{name}` is exported twice", site.node))
            continue
        exported.add(name)
        if name not in inner:
            close = nearest(name, sorted(inner))
            help = f"Did you mean `{close}`?" if close else None
            message = f"no step of this `scratch` binds `{name}`"
            flow.report.add(flow.document.diagnostic("S301", message, site.node, help=help))
        elif name in flow.names.inputs:
            continue  # the step inside that binds it has the message
        elif name not in end.bound and not site.append and end.alive and not end.muted:
            message = f"`{name}` does not have a value on every path through this `scratch`"
            help = f"Start the `scratch` with `- set: {{{name}: null}}`."
            flow.report.add(flow.document.diagnostic("S302", message, site.node, help=help))
        flow.names.bind(site, end.bound.get(name, ANY), flow.state, flow.place)


__all__ = ["walk_scratch"]
