"""The programs that come with sglspec: without warnings, laid out, with tests that pass, and offered by the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglspec.analysis import load_program
from sglspec.backends.base import Backend
from sglspec.diagnostics import Report
from sglspec.document.edit import format_source
from sglspec.document.read import read_source
from sglspec.server.offer import builtin, read
from sglspec.testing import run_trial, trials_of
from sglspec.tools import Tools

SPECS = sorted((Path(__file__).parents[1] / "specs").iterdir())


async def no_model(name: str | None) -> Backend:
    raise AssertionError(f"the model {name!r} was asked for")


def test_the_server_offers_all_of_them() -> None:
    assert builtin() == SPECS
    assert list(read(SPECS, Tools())) == [file.name.split(".", 1)[0] for file in SPECS]


@pytest.mark.parametrize("file", SPECS, ids=lambda file: file.name)
async def test_a_program_that_comes_with_sglspec(file: Path) -> None:
    source = read_source(file)
    report = Report(str(file))
    program = load_program(source, report, Tools())
    assert program is not None and report.sorted() == []
    assert format_source(source, report) == source.text
    assert program.spec.description is not None
    trials = trials_of(program)
    assert trials
    for trial in trials:
        assert (await run_trial(trial, no_model)).problems == ()
