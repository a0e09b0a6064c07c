"""Running the `tests` of a document: inputs in, scripted replies or a model, expectations on what comes out."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast
from xml.etree import ElementTree

from sglspec.analysis.program import Program, reply_keys
from sglspec.backends.base import Backend
from sglspec.backends.scripted import ScriptedBackend
from sglspec.diagnostics import Diagnostic, Related, SpecError
from sglspec.diagnostics.render import render_text
from sglspec.document.model import Call, Case, Gen, Select, Tool
from sglspec.document.nodes import Mapping as MappingNode
from sglspec.document.nodes import Node, Scalar, Sequence, to_python
from sglspec.expressions import Budget, EvaluationError, Expression, Origin, Value, evaluate, parse_expression, truthy
from sglspec.expressions.values import to_json
from sglspec.runtime.events import keyed
from sglspec.runtime.result import Result
from sglspec.runtime.run import Run, RunOptions, start
from sglspec.tools import Tools

# XML 1.0, section 2.2
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LONGEST = 400
"""Characters of a value in a message."""

OpenModel = Callable[[str | None], Awaitable[Backend]]
"""Gives the backend of a model by its name; None is the host's default. Raises SpecError where there is none."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One entry of `tests`. `name` is its own, or says which one it is."""

    program: Program
    case: Case
    name: str

    @property
    def file(self) -> str:
        return self.program.document.source.name

    @property
    def tags(self) -> list[str]:
        found: Any = to_python(self.case.tags.node) if self.case.tags is not None else []
        return [str(tag) for tag in (cast("list[Any]", found) if isinstance(found, list) else [found])]

    @property
    def scripted(self) -> bool:
        """Whether it brings its replies and needs no model."""
        return self.case.replies is not None

    def matches(self, word: str) -> bool:
        """Whether its name, file or one of its tags holds the word."""
        return any(word.lower() in text.lower() for text in (self.name, self.file, *self.tags))


@dataclass(frozen=True, slots=True)
class Outcome:
    """problems: why it failed; none when it passed. result: None when the run was refused. seconds: it took."""

    trial: Trial
    problems: tuple[Diagnostic, ...]
    result: Result | None
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.problems


def trials_of(program: Program) -> list[Trial]:
    """The tests of a program, in order."""
    cases = program.spec.tests or ()
    return [Trial(program, case, case.name or f"test {number}") for number, case in enumerate(cases, 1)]


async def run_trial(trial: Trial, open_model: OpenModel, seed: int = 0, tools: Tools | None = None) -> Outcome:
    """Run one test: on its replies if it has some, else on its model, the program's, or the default one, with the
    tools that a host offers.

    Raises SpecError when the model cannot be opened: that says nothing about the test.
    """
    if trial.scripted:
        replies = {name: to_python(value.node) for name, value in (trial.case.replies or {}).items()}
        backend: Backend = ScriptedBackend(replies)
    else:
        backend = await open_model(trial.case.model or trial.program.spec.model)
    inputs = {name: to_python(value.node) for name, value in (trial.case.inputs or {}).items()}
    began = time.perf_counter()
    try:
        run = start(trial.program, inputs, backend, RunOptions(seed, tools=tools))
    except SpecError as error:
        return Outcome(trial, error.diagnostics, None, time.perf_counter() - began)
    result = await run.wait()
    seconds = time.perf_counter() - began
    return Outcome(trial, tuple(_Judge(trial, run, result).problems()), result, seconds)


def junit_xml(outcomes: Iterable[Outcome]) -> bytes:
    """The outcomes in the format that CI systems read: a suite for each document."""
    suites = ElementTree.Element("testsuites", name="sglspec")
    by_file: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_file.setdefault(outcome.trial.file, []).append(outcome)
    for file, group in by_file.items():
        failures = sum(not outcome.passed for outcome in group)
        counts = {"tests": str(len(group)), "failures": str(failures), "errors": "0"}
        suite = ElementTree.SubElement(suites, "testsuite", {"name": _xml(file), **counts})
        for outcome in group:
            name, seconds = _xml(outcome.trial.name), f"{outcome.seconds:.3f}"
            case = ElementTree.SubElement(suite, "testcase", classname=_xml(file), name=name, time=seconds)
            if outcome.problems:
                first = outcome.problems[0]
                failure = ElementTree.SubElement(case, "failure", type=first.code, message=_xml(first.message))
                failure.text = _xml(render_text(outcome.problems, {file: outcome.trial.program.document.source.text}))
    return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)


def _xml(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)


class _Judge:
    """Compares a run with what its test expects."""

    def __init__(self, trial: Trial, run: Run, result: Result) -> None:
        self._trial = trial
        self._case = trial.case
        self._document = trial.program.document
        self._run = run
        self._result = result
        inputs = {name: value for name, value in run.inputs.items() if name not in result.variables}
        self._view = _View(inputs | result.variables | result.outputs, result)

    def problems(self) -> list[Diagnostic]:
        ending = self._ending()
        if ending is not None:
            return [ending]
        found: list[Diagnostic] = []
        if self._case.expect is not None:
            node = self._case.expect.node
            for item in node.items if isinstance(node, Sequence) else (node,):
                assert isinstance(item, Scalar)  # checked before
                problem = self._expectation(item)
                found += [problem] if problem is not None else []
        return found + self._calls()

    def _ending(self) -> Diagnostic | None:
        """What is wrong with how the run ended."""
        error, expected = self._result.error, self._case.error
        if expected is None:
            return error if error is None or error.code != "S711" else self._with_reply(error)
        node = self._case.at("error")
        if error is None:
            help = _values(self._result.outputs)
            return self._problem(f"the run succeeded, and `{expected}` was expected", node, help or None)
        if any(_is_of(code, expected) for code in (error.code, error.cause) if code is not None):
            return None
        return replace(
            self._problem(f"the run ended with {error.code}, and `{expected}` was expected", node),
            help=f"{error.code}: {error.message}",
        )

    def _with_reply(self, error: Diagnostic) -> Diagnostic:
        """A reply that breaks its constraint, with the place of the reply where that is known."""
        replies = self._case.at("replies")
        if not isinstance(replies, MappingNode) or error.file != self._document.source.name:
            return error
        keys: list[str] = []
        for program, step in self._trial.program.expanded():
            if program.document is self._document and isinstance(step, Gen | Select | Tool | Call):
                keys += reply_keys(step) if self._document.pointer(step.verb_node) == error.pointer else []
        for key in keys:
            if (reply := replies.get(key)) is not None:
                return replace(error, related=(Related("the reply", reply.range), *error.related))
        return error

    def _expectation(self, node: Scalar) -> Diagnostic | None:
        expression = parse_expression(node.text)
        try:
            if truthy(evaluate(expression, self._view, Budget())):
                return None
        except EvaluationError as error:
            message = f"the expectation cannot be evaluated: {error.message}"
            place = node, error.start, error.end
            return self._document.diagnostic_in("S720", message, *place, help=self._read(expression))
        return self._problem("the expectation does not hold", node, self._read(expression))

    def _read(self, expression: Expression) -> str | None:
        """The value of every name that an expression reads."""
        names = dict.fromkeys(use.name for use in expression.names)
        return _values({name: self._view.lookup(name)[0] for name in names}) or None

    def _calls(self) -> list[Diagnostic]:
        if self._case.calls is None:
            return []
        ran = self._ran()
        expected: Any = to_python(self._case.calls.node)
        wrong = {name: ran[name] for name, count in expected.items() if ran[name] != count}
        if not wrong:
            return []
        names = ", ".join(f"`{name}`" for name in wrong)
        return [self._problem(f"the counts of {names} are others", self._case.at("calls"), _values(wrong))]

    def _ran(self) -> Counter[str]:
        """How often steps ran, by every key that a reply for them may have."""
        ran: Counter[str] = Counter()
        keys: dict[tuple[str, str], list[str]] = {}
        for program, step in self._trial.program.expanded(calls=True):
            if isinstance(step, Tool | Call):
                file = "" if program is self._trial.program else program.document.source.name
                keys[file, program.document.pointer(step.verb_node)] = reply_keys(step)
        for event in self._run.log.events:
            if event.type in ("generated", "selected"):
                ran[str(keyed(event))] += 1
            elif event.type in ("tool.started", "call.started"):
                aliases = f"{event.data['call']}." if "call" in event.data else ""
                ran.update(aliases + key for key in keys[event.data.get("file", ""), event.step])
        return ran

    def _problem(self, message: str, node: Node, help: str | None = None) -> Diagnostic:
        return self._document.diagnostic("S720", message, node, help=help)


class _View:
    """Outputs, then variables, then inputs, as expressions see them. Names that the run did not bind are null."""

    def __init__(self, names: Mapping[str, Any], result: Result) -> None:
        self._names = names
        self._result = result

    def lookup(self, name: str) -> tuple[Value, Origin]:
        return self._names.get(name), "author"

    def meta(self, name: str) -> Value:
        return self._result.meta.get(name)

    def messages(self) -> Value:
        return [{**message} for message in self._result.messages]

    def transcript(self) -> str:
        return self._result.text


def _is_of(code: str, expected: str) -> bool:
    """Whether a code is the expected one, or of the expected family."""
    return code == expected or (expected.endswith("xx") and code.startswith(expected[:2]))


def _values(values: Mapping[str, Any]) -> str:
    """`name = value`, one a line."""
    return "\n".join(f"{name} = {_shown(value)}" for name, value in values.items())


def _shown(value: Any) -> str:
    text = to_json(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
