"""What a program needs of a backend and of the host, told before anything runs."""

from __future__ import annotations

from collections.abc import Iterator

from sglspec.analysis.program import Program
from sglspec.analysis.tooluse import unknown_tool
from sglspec.backends.base import Backend, EngineError
from sglspec.diagnostics import Diagnostic, sentence
from sglspec.document.model import Fork, Tool
from sglspec.runtime.frame import ENGINE_CODES, Shared

FALLBACK = "With `fallback: concat` beside it, the text of the branches is computed anew instead."


def unmet(program: Program, backend: Backend) -> Iterator[Diagnostic]:
    """A diagnostic for each thing that the program asks for and the backend cannot do (S603, S604, S606)."""
    document = program.document
    if program.chats():
        try:
            backend.require_chat()
        except EngineError as problem:
            code = ENGINE_CODES.get(problem.kind, "S713")
            yield document.diagnostic(code, sentence(str(problem)), program.spec.key("steps"))
    if backend.capabilities.concat_kv:
        return
    for owner, step in program.expanded(calls=True):
        if isinstance(step, Fork) and step.join == "concat_kv" and step.fallback is None:
            message = f"the backend cannot do `join: concat_kv` with the model `{backend.model_name}`"
            yield owner.document.diagnostic("S606", message, step.at("join"), help=FALLBACK)


def unknown_tools(program: Program, shared: Shared) -> Iterator[Diagnostic]:
    """S320 for each tool that the host does not offer, where tools are to run."""
    if shared.backend.capabilities.tools:
        for owner, step in program.expanded(calls=True):
            if isinstance(step, Tool) and (problem := unknown_tool(owner.document, step, shared.tools)):
                yield problem
