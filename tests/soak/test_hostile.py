"""While a hostile constraint is compiled, other programs go on; `python -m tests.soak.hostile` says how fast."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglspec.backends.local import open_local
from sglspec.runtime import requests
from sglspec_engine import constrain
from tests.soak.hostile import GRAMMARS, REGEXES, SCHEMAS, Streams, attempts, streaming, write, write_by_grammar

STREAMS = 8
PIECES = 2
"""Texts that every stream must get while something is compiled, before that begins."""


class Gate:
    """Lets work begin, in a thread of its own, once every stream has got more texts. passed: how often it did."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._loop = threading.get_ident()
        self.passed = 0

    def wraps(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same work behind this gate."""

        def gated(*args: Any, **options: Any) -> Any:
            assert threading.get_ident() != self._loop, "this would hold up all programs"
            enough = [count + PIECES for count in self._streams.pieces]
            opened = self._streams.when(lambda pieces: all(a >= b for a, b in zip(pieces, enough, strict=True)))
            assert opened.wait(60), "the streams stand still"
            self.passed += 1
            return work(*args, **options)

        return gated


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Callable[[Streams], Gate]:
    """Puts a gate before all that compiles in a run."""

    def put(streams: Streams) -> Gate:
        found = Gate(streams)
        for name in ("regex_constraint", "schema_constraint", "grammar_constraint"):
            monkeypatch.setattr(requests, name, found.wraps(getattr(requests, name)))
        monkeypatch.setattr(constrain.Grammars, "_compile", found.wraps(constrain.Grammars._compile))
        return found

    return put


async def test_streams_go_on_while_constraints_of_inputs_are_compiled(
    tiny_llama: Path, gate: Callable[[Streams], Gate]
) -> None:
    backend = await open_local(tiny_llama)
    try:
        async with streaming(backend, STREAMS) as beside:
            behind = gate(beside)
            for name in ("patterns", "pattern", "long"):
                assert (await write(backend, {"schema": "{{ s }}"}, s=SCHEMAS[name])).outcome in (
                    "succeeded",
                    "S708 in its run",
                )
            assert behind.passed == 6  # beside the event loop, then for the engine
            assert (await write(backend, {"schema": "{{ s }}"}, s=SCHEMAS["to itself"])).outcome == "S707 in its run"
            assert (await write(backend, {"regex": "{{ s }}[ab]*a[ab]{13}"}, s="x")).outcome in (
                "succeeded",
                "S708 in its run",
            )
            assert (await write(backend, {"grammar": 'start: "{{ s }}" /[ab]{3}/'}, s="x")).outcome == "succeeded"
            assert (
                behind.passed == 6 + 2 + 2 + 2
            )  # what is refused is tried when the program starts and where it is used
    finally:
        await backend.close()


async def test_streams_go_on_while_the_engine_compiles(tiny_llama: Path, gate: Callable[[Streams], Gate]) -> None:
    """What no check has seen, too."""
    backend = await open_local(tiny_llama)
    try:
        async with streaming(backend, STREAMS) as beside:
            behind = gate(beside)
            for name in ("states", "nested stars"):
                assert (await write(backend, {"regex": REGEXES[name]})).outcome in ("succeeded", "S708 in its run")
            for name in ("ambiguous", "endless", "optional", "remote", "deep"):
                assert (await write_by_grammar(backend, GRAMMARS[name])).outcome.startswith(
                    ("refused: ", "constraint", "length")
                )
            assert behind.passed == 7
    finally:
        await backend.close()


async def test_all_that_is_hostile_has_a_name(tiny_llama: Path) -> None:
    """The checks alone refuse some; nothing is tried twice."""
    backend = await open_local(tiny_llama)
    try:
        names = attempts(backend)
        assert len(names) == 1 + len(REGEXES) + 2 * len(SCHEMAS) + len(GRAMMARS)
        for name in ("repeated", "deep", "two repetitions", "look-ahead"):
            assert (await names[f"regex: {name}"]()).outcome.endswith("in its check")
        for name in ("to itself", "remote", "a file"):
            assert (await names[f"schema: {name}"]()).outcome == "S503 in its check"
    finally:
        await backend.close()
