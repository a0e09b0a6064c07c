"""From a source to a checked program, with every other document that it uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sglspec.analysis.check import check
from sglspec.analysis.definitions import Place
from sglspec.analysis.program import Program, Used
from sglspec.analysis.reuse import MAX_NESTING
from sglspec.diagnostics import Diagnostic, Range, Related, Report, SpecError
from sglspec.document.files import Files, Folder, Found, PathFault
from sglspec.document.load import Document, Partial, read_document
from sglspec.document.model import Use
from sglspec.document.nodes import Node, Source
from sglspec.tools import Tools


def load_program(
    source: Source,
    report: Report,
    tools: Tools | None = None,
    roots: Sequence[Path] = (),
    files: Files | None = None,
) -> Program | None:
    """Reads, validates and checks. None when the report has errors.

    tools: what the host offers; when None, a tool that is not known is a warning. roots: folders whose files the
    document may use, beside its own folder if it is a file; one that is not stands in the first of them. files: what
    it may use instead of that; afterwards they know what it did use.
    """
    files = Files(source, roots) if files is None else files
    found = Report(source.name)
    loader = _Loader(found, tools, files)
    own = Found(source.path.resolve(), source.name, source.name) if source.path is not None else None
    program = loader.load(source, files.start, (own,) if own is not None else ())
    if program is not None:
        _models(program, found)
    report.texts |= {one.name: one.text for one in files.sources}
    report.extend(_with_users(found.sorted(), files.users))
    return None if report.has_errors else program


def _with_users(diagnostics: Iterable[Diagnostic], users: Mapping[str, Related]) -> Iterator[Diagnostic]:
    """The first of each other file says which document uses that."""
    said: set[str] = set()
    for one in diagnostics:
        user = users.get(one.file or "")
        if user is not None and one.file is not None and one.file not in said:
            said.add(one.file)
            one = replace(one, related=(*one.related, user))
        yield one


@dataclass(slots=True)
class _Loader:
    report: Report
    tools: Tools | None
    files: Files
    programs: dict[Found, Program | None] = field(default_factory=dict[Found, "Program | None"])

    def load(self, source: Source, folder: Folder | None, chain: tuple[Found, ...]) -> Program | None:
        """A document and what it uses. `chain`: the files that lead to it, itself included."""
        before = Report(source.name)
        document = read_document(source, before)
        self.report.extend(before.sorted())
        if isinstance(document, Partial):
            rest = document.document
            _check_rest(document, self._all_used(rest, folder, chain), source, self.report)
        if not isinstance(document, Document):
            return None
        used = self._all_used(document, folder, chain)
        own = Report(source.name)
        program = check(document, own, self.tools, used, Place(self.files, folder))
        self.report.extend(own.sorted())
        return program

    def _all_used(self, document: Document, folder: Folder | None, chain: tuple[Found, ...]) -> dict[str, Used | None]:
        return {alias: self._used(document, alias, use, folder, chain) for alias, use in document.spec.use.items()}

    def _used(
        self, document: Document, alias: str, use: Use, folder: Folder | None, chain: tuple[Found, ...]
    ) -> Used | None:
        try:
            found = self.files.find(folder, use.path)
            circle = next((index for index, one in enumerate(chain) if one.path == found.path), None)
            if circle is not None:
                names = [one.name for one in (*chain[circle:], found)]
                message = f"documents use one another in a circle: {' → '.join(names)}"
                raise PathFault("S122", message, "Move what both need into a third document.")
            if len(chain) >= MAX_NESTING:
                raise PathFault("S122", f"documents use one another more than {MAX_NESTING} deep")
            if found not in self.programs:
                source = self.files.read(found, document.user(use.place))
                self.programs[found] = self.load(source, found.folder, (*chain, found))
            program = self.programs[found]
        except PathFault as fault:
            self._fault(document, fault, use.place)
            return None
        except SpecError as error:
            self.report.extend(error.diagnostics)
            return None
        return Used(alias, program, use.args or {}) if program is not None else None

    def _fault(self, document: Document, fault: PathFault, node: Node) -> None:
        self.report.add(document.diagnostic(fault.code, fault.message, node, help=fault.help))


def _models(program: Program, report: Report) -> None:
    """All programs of a run share one model."""
    wanted = program.spec.model
    for one in program.all():
        for alias, used in one.used.items():
            model = used.program.spec.model
            if model is not None and model != wanted:
                other = f"the program runs on `{wanted}`" if wanted is not None else "the program names none"
                message = f"`{alias}` wants the model `{model}`, and {other}: a run has one model"
                help = "Write the same `model` in both, or leave it out in the other one."
                report.add(one.document.diagnostic("S620", message, one.spec.use[alias].place, help=help))


SURE = frozenset(
    {
        "S208", "S210", "S211", "S212", "S213", "S214", "S215", "S250", "S251", "S252", "S253", "S254", "S255", "S301",
        "S303", "S304", "S307", "S308", "S321", "S322", "S401", "S402", "S403", "S406", "S410", "S501", "S502", "S503",
        "S504", "S505", "S506", "S507", "S508",
    }
)  # fmt: skip
"""What is wrong whatever stands elsewhere; for those below see `_waits`."""

_NAMES = ("S301", "S307", "S321", "S403")
_GIVEN = ("S401", "S402", "S403")
"""What is given to an input or param, which may be declared in a part that is left out."""
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _check_rest(partial: Partial, used: Mapping[str, Used | None], source: Source, report: Report) -> None:
    """The errors of a document whose structure has faults: those that cannot come from what is left out."""
    found = Report(source.name)
    check(partial.document, found, used=used)
    for problem in found.sorted():
        place = problem.range
        if problem.code not in SURE or place is None:
            continue
        text = source.text[source.offset(place.start) : source.offset(place.end)].strip("\"'")
        if not _waits(partial, problem.code, place, text):
            report.add(problem)


def _waits(partial: Partial, code: str, place: Range, text: str) -> bool:
    """Whether an error may come from what is left out. `text`: what stands at its place."""
    if code in _NAMES and text in partial.lost:
        return True
    if code == "S301" and not partial.names_known:
        return True
    if code in ("S213", "S402") and any(_within(place, thinned) for thinned in partial.thinned):
        return True
    if code == "S401" and not partial.lost.isdisjoint(_WORD.findall(text)):
        return True
    declared = [node.range for key in ("inputs", "defs", "use") if (node := partial.document.root.get(key)) is not None]
    return code in _GIVEN and any(_within(thinned, one) for thinned in partial.thinned for one in declared)


def _within(inner: Range, outer: Range) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


__all__ = ["load_program"]
