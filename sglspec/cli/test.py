"""`sglspec test`: run the tests that documents hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sglspec.cli.complain import Refused, Texts, once
from sglspec.cli.documents import documents, read_document
from sglspec.cli.exits import FAULT, NO, OK, backend_code, document_code
from sglspec.cli.options import (
    EngineOption,
    McpOption,
    RootOption,
    ToolsOption,
    folders,
    host_tools,
    whole_number,
    wrong,
)
from sglspec.cli.stdin import StandardInput
from sglspec.cli.streams import output, put

if TYPE_CHECKING:
    from sglspec.backends import Backend
    from sglspec.testing import Outcome, Trial
    from sglspec.tools import Tools


def test(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH...", help="Documents, or folders with *.sglspec.yaml/.yml/.json; . if left out."),
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Option("-k", metavar="WORD", help="Only tests with this in their name, file or tags. Can be repeated."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model for tests without replies, whatever they say.")
    ] = None,
    engine: EngineOption = None,
    tools: ToolsOption = None,
    mcp: McpOption = None,
    root: RootOption = None,
    seed: Annotated[str, typer.Option(metavar="NUMBER", help="The seed of every run.")] = "0",
    junit: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also write the outcomes as JUnit XML, for CI systems.")
    ] = None,
) -> None:
    """Run the tests of documents. Exit code 1 if one fails.

    Tests with replies run without a model, the others on theirs.
    """
    import asyncio

    number = whole_number(seed, "--seed", 0, 2**64 - 1, "0 to 2^64 - 1")
    if junit in ("", "-"):
        raise wrong("Name a file.", "--junit")
    texts = Texts()
    try:
        trials = _trials(paths or ["."], words or [], folders(root), texts)
        with host_tools(tools, mcp) as host:
            outcomes = asyncio.run(_Session(model, tuple(engine or ()), number, host, texts).run(trials))
    except Refused as refusal:
        texts.complain(refusal.diagnostics)
        raise typer.Exit(refusal.code) from None
    put(_summary(outcomes))
    if junit is not None:
        _write_junit(Path(junit), outcomes)
    if any(problem.code == "S799" for outcome in outcomes for problem in outcome.problems):
        raise typer.Exit(FAULT)
    raise typer.Exit(OK if all(outcome.passed for outcome in outcomes) else NO)


def _trials(paths: list[str], words: list[str], roots: tuple[Path, ...], texts: Texts) -> list[Trial]:
    """The tests of all documents. Raises Refused when a document has errors."""
    from sglspec.analysis import load_program
    from sglspec.diagnostics import Report, SpecError
    from sglspec.testing import trials_of

    stdin = StandardInput()
    trials: list[Trial] = []
    problems: list[Any] = []
    for file in dict.fromkeys(file for path in paths for file in documents(path)):
        try:
            source = texts.keep(read_document(file, "test -", stdin))
            report = Report(source.name)
            program = load_program(source, report, roots=roots)
            texts.keep_all(report)
        except SpecError as error:
            problems += error.diagnostics
            continue
        problems += [problem for problem in report.sorted() if problem.severity == "error"]
        trials += trials_of(program) if program is not None else []
    if problems:
        raise Refused(document_code(problems), once(problems))
    chosen = [trial for trial in trials if not words or any(trial.matches(word) for word in words)]
    if not chosen:
        message = "No document has `tests`." if not trials else f"None of {len(trials)} tests matches."
        raise wrong(message, "-k" if trials else "PATH")
    return chosen


class _Session:
    """Runs tests one after another, each model opened once. A line is printed for each as it ends."""

    def __init__(self, model: str | None, engine: tuple[str, ...], seed: int, tools: Tools, texts: Texts) -> None:
        self._model = model
        self._engine = engine
        self._seed = seed
        self._tools = tools
        self._texts = texts
        self._opened: dict[str | None, Backend] = {}

    async def run(self, trials: list[Trial]) -> list[Outcome]:
        from sglspec.diagnostics import SpecError
        from sglspec.testing import run_trial

        outcomes: list[Outcome] = []
        try:
            for trial in trials:
                outcome = await run_trial(trial, self._open, self._seed, self._tools)
                outcomes.append(outcome)
                self._show(outcome)
        except SpecError as error:
            raise Refused(backend_code(error.diagnostics), error.diagnostics) from None
        finally:
            for backend in self._opened.values():
                await backend.close()
        return outcomes

    async def _open(self, model: str | None) -> Backend:
        from sglspec.backends import open_backend
        from sglspec.backends.switches import split_switches

        name = self._model or model
        if name not in self._opened:
            self._opened[name] = await open_backend(None, name, split_switches(self._engine))
        return self._opened[name]

    def _show(self, outcome: Outcome) -> None:
        trial = outcome.trial
        put(f"{'ok  ' if outcome.passed else 'FAIL'} {trial.file}: {trial.name}")
        if not outcome.passed:
            put(self._texts.render(outcome.problems, output()))


def _summary(outcomes: list[Outcome]) -> str:
    passed = sum(outcome.passed for outcome in outcomes)
    files = len({outcome.trial.file for outcome in outcomes})
    failed = f", {len(outcomes) - passed} failed" if passed < len(outcomes) else ""
    return f"{passed} passed{failed}, in {files} document{'' if files == 1 else 's'}"


def _write_junit(path: Path, outcomes: list[Outcome]) -> None:
    from sglspec.testing import junit_xml

    try:
        path.write_bytes(junit_xml(outcomes))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise wrong(f"{str(path)!r} cannot be written: {reason}.", "--junit") from None
