"""How many rows run at a time, by what their plans say that they hold at most."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import sglspec
from sglspec.backends.base import Role
from sglspec.backends.markup import Piece
from sglspec.batches.memory import Room
from sglspec.batches.source import Row
from tests.runtime.fake import FakeBackend, Usage, program

HEAD = "sglspec: v1\ninputs: {n: integer, q: {type: string, default: q}, about: {type: string, default: ''}}\nsteps:\n"
ROUNDS = HEAD + "  - '{{ q }}'\n  - for: i\n    in: range(n)\n    do: [{gen: 'a[]', max_tokens: 10}]\n"
OPTION = HEAD + "  - '{{ q }}'\n  - gen: a\n    max_tokens: '{{ n }}'\n"
WAYS = (
    HEAD + "  - '{{ q }}'\n  - if: n > 5\n    then: [{gen: a, max_tokens: 50}]\n    else: [{gen: a, max_tokens: 5}]\n"
)
SHARED = HEAD + "  - '{{ about }} {{ q }}'\n  - {gen: a, max_tokens: 10}\n"
UNBOUND = HEAD + "  - {gen: words, schema: {type: array, items: {type: string}}, max_tokens: 9}\n  - for: w\n    in: words\n    do: [{gen: 'a[]', max_tokens: 10}]\n"  # fmt: skip


class Letters:
    """A token for each character."""

    name = "letters"

    def require_chat(self) -> None:
        return

    def start(self) -> list[Piece]:
        return []

    def open(self, role: Role, *, first: bool) -> list[Piece]:
        return []

    def close(self, role: Role) -> list[Piece]:
        return []

    def trims(self, role: Role) -> tuple[bool, bool]:
        return False, False

    def count(self, pieces: Sequence[Piece]) -> int:
        return sum(len(piece.text) for piece in pieces)


class Small(FakeBackend):
    """Has memory for so many tokens. most: rows that ran at a time."""

    def __init__(self, kv_tokens: int) -> None:
        super().__init__({"a": "x"})
        self.kv_tokens = kv_tokens
        self.markup = Letters()
        self.most = 0

    async def open(self, label: str = "", caller: object = None):
        session = await super().open(label)
        self.most = max(self.most, self.open_sessions)
        return session


def row(**inputs: object) -> Row:
    return Row(1, "0" * 64, inputs, {})


@pytest.mark.parametrize(
    ("text", "few", "many"), [(ROUNDS, 1 + 2 * 10, 1 + 9 * 10), (OPTION, 1 + 2, 1 + 9), (WAYS, 1 + 5, 1 + 50)]
)
def test_what_a_row_holds_is_known_from_its_inputs(text: str, few: int, many: int):
    room = Room(program(text), Small(100))
    assert [room.need(row(n=n)).own for n in (2, 9)] == [few, many]


def test_a_row_that_is_larger_than_the_memory_still_runs():
    room = Room(program(ROUNDS), Small(100))
    need = room.need(row(n=1000))
    assert need.own == 100 and room.has([need]) and not room.has([need, need])


def test_what_rows_begin_with_is_held_once():
    room = Room(program(SHARED), Small(200))
    about = "A long text that all rows have in common."
    first, second, third = (room.need(row(n=1, q=q, about=about)) for q in "abc")
    beginning = len(about + " ")
    assert first.own == beginning + 1 + 10
    assert (second.own, second.shared) == (third.own, third.shared) == (11, beginning)
    fit = (200 - beginning) // 11
    assert room.has([second] * fit) and not room.has([second] * (fit + 1))
    assert not room.has([first, *[second] * (fit - 1)])


def test_where_nothing_bounds_a_part_it_counts_with_its_least():
    """What was generated is written again: how long that is nobody knows."""
    text = HEAD + "  - {gen: a, max_tokens: 30}\n  - '{{ a }} and'\n  - {gen: b, max_tokens: 40}\n"
    assert Room(program(text), Small(200)).need(row(n=1)).own == 30 + len(" and") + 40


def test_where_nothing_bounds_a_row_those_before_it_count():
    room = Room(program(UNBOUND), Small(200))
    assert room.need(row(n=1)).own == 0
    room.ended(Usage(computed_tokens=40))
    assert room.need(row(n=1)).own == 40


def test_a_row_that_does_not_fit_needs_nothing():
    room = Room(program(ROUNDS), Small(100))
    assert room.need(row(n="many")).own == 0


@pytest.mark.parametrize(("kv_tokens", "most"), [(15, 1), (45, 3), (1000, 8)])
async def test_so_many_rows_run_at_a_time(kv_tokens: int, most: int):
    backend = Small(kv_tokens)
    rows = ({"n": 1, "q": q} for q in "abcdefghijklmnop")
    batch = sglspec.load(SHARED).abatch(rows, on=backend, columns={}, concurrency=8)
    found = [one.status async for one in batch]
    assert found == ["succeeded"] * 16 and backend.most == most
