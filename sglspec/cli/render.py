"""`sglspec render`: what the model would see."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sglspec.cli.complain import Refused, Texts
from sglspec.cli.exits import backend_code, run_code
from sglspec.cli.options import DocumentArgument, InputOption, RootOption, SettingOption, folders
from sglspec.cli.stdin import StandardInput
from sglspec.cli.streams import printable, put, to_json

if TYPE_CHECKING:
    from sglspec.backends.rendering import Message, Recorded, RenderingBackend
    from sglspec.runtime.result import Result


def render(
    spec: DocumentArgument,
    settings: SettingOption = None,
    inputs: InputOption = None,
    replies: Annotated[
        str | None, typer.Option(metavar="FILE", help="Replies for generations, as `--backend scripted:FILE` takes.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Show this model's chat template and count its tokens; weights are not read."
        ),
    ] = None,
    root: RootOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print what the model would see, with a blank for each text that it would write.

    Nothing is generated: a generation without a reply is shown as ⟨name⟩, and a select takes its first choice.
    """
    texts = Texts()
    try:
        backend, result, name = _rendered(spec, inputs or (), settings or (), replies, model, folders(root), texts)
    except Refused as refusal:
        texts.complain(refusal.diagnostics)
        raise typer.Exit(refusal.code) from None
    shown = [context for context in backend.contexts if context.branch == "" or _says_something(context)]
    if json:
        put(to_json(_as_dict(backend, shown, result, name)))
    else:
        put("\n".join(line for context in shown for line in _lines(backend, context)) or "(nothing)")
    if result.error is not None:
        texts.complain([result.error])
    raise typer.Exit(run_code(result.status, result.error))


def _rendered(
    spec: str, inputs: Any, settings: Any, replies: str | None, model: str | None, roots: tuple[Path, ...], texts: Texts
) -> tuple[RenderingBackend, Result, str]:
    import asyncio

    from sglspec.backends import open_rendering
    from sglspec.cli.documents import load
    from sglspec.cli.inputs import read_inputs
    from sglspec.diagnostics import SpecError
    from sglspec.runtime.run import RunOptions, start

    stdin = StandardInput()
    program = load(spec, stdin, texts, roots=roots)
    given = read_inputs(program, inputs, settings, stdin, texts)
    try:
        backend = open_rendering(Path(replies) if replies is not None else None, model)
    except SpecError as error:
        raise Refused(backend_code(error.diagnostics), error.diagnostics) from None

    async def run() -> Result:
        return await start(program, given, backend, RunOptions(seed=0)).wait()

    return backend, asyncio.run(run()), program.name


def _says_something(context: Recorded) -> bool:
    """Whether a branch adds text. Candidates of one generation (`n`, `retry`) are contexts too, and add blanks only."""
    kinds = {piece.kind for message in context.messages for piece in message.pieces}
    return bool(kinds - {"blank", "generated"})


def _counts(backend: RenderingBackend, context: Recorded) -> list[int | None]:
    """Tokens that each message adds to its context."""
    count = backend.markup.count
    sums = [count(context.before)]
    pieces = list(context.before)
    for message in context.messages:
        pieces += message.pieces
        sums.append(count(pieces))
    return [None if b is None or a is None else b - a for a, b in pairwise(sums)]


def _lines(backend: RenderingBackend, context: Recorded) -> list[str]:
    lines: list[str] = []
    if context.branch:
        lines.append(f"== branch {context.branch} ==")
    for message, tokens in zip(context.messages, _counts(backend, context), strict=True):
        size = "" if tokens is None else f", {tokens} token{'' if tokens == 1 else 's'}"
        lines += [f"-- {message.role or 'text'}{size} --", _text(message)]
    return lines


def _text(message: Message) -> str:
    """Content as it is; control tokens in their own brackets."""
    shown = (f"⟦{piece.text}⟧" if piece.kind == "control" else piece.text for piece in message.pieces)
    return printable("".join(shown))


def _as_dict(backend: RenderingBackend, shown: list[Recorded], result: Result, name: str) -> dict[str, Any]:
    contexts: list[dict[str, Any]] = []
    for context in shown:
        messages = [
            {
                "role": message.role,
                "tokens": tokens,
                "pieces": [{"kind": piece.kind, "text": piece.text} for piece in message.pieces],
            }
            for message, tokens in zip(context.messages, _counts(backend, context), strict=True)
        ]
        tokens = backend.markup.count(context.pieces)
        contexts.append({"branch": context.branch, "tokens": tokens, "messages": messages})
    error = result.error.as_dict() if result.error is not None else None
    return {"program": name, "model": backend.markup.name, "contexts": contexts, "error": error}
