"""The arena against a naive one: a set of slots per span, and values that name their owner."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglspec_engine.kv.arena import Arena, KVLayout, LayerShape, Span

LAYOUT = KVLayout((LayerShape(2, 3, 5), LayerShape(1, 4, 4)), torch.float32, torch.device("cpu"))
STEP = st.tuples(
    st.sampled_from(
        ["take", "take", "follow", "extend", "shrink", "split", "free", "compact", "compact a piece", "join"]
    ),
    st.integers(0, 9999),
)


def paint(arena: Arena, span: Span, marks: list[int]) -> None:
    row = torch.tensor(marks, dtype=torch.float32)[None, :, None]
    for tensor in (*arena.keys, *arena.values):
        tensor[:, span.start : span.end] = row


def assert_painted(arena: Arena, span: Span, marks: list[int]) -> None:
    row = torch.tensor(marks, dtype=torch.float32)[None, :, None]
    for tensor in (*arena.keys, *arena.values):
        found = tensor[:, span.start : span.end]
        assert torch.equal(found, row.expand_as(found))


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=60))
def test_random_operations(steps: list[tuple[str, int]]) -> None:
    arena = Arena(LAYOUT, 128, poison=True)
    live: list[tuple[Span, list[int]]] = []
    marks = iter(range(10**6))
    for act, number in steps:
        span, old = live[number % len(live)] if live else (None, [])
        size = 1 + number % 37
        if act in ("take", "follow"):
            found = arena.allocate(size, span if act == "follow" else None)
            if found is not None:
                live.append((found, [next(marks) for _ in range(size)]))
                paint(arena, *live[-1])
        elif act == "compact":
            arena.compact()
            if arena.free:
                hole = arena.allocate(arena.free)
                assert hole is not None, "after compaction everything free is in one piece"
                arena.release(hole)
        elif act == "compact a piece":
            for _ in range(40):
                if len(arena._holes) < 2:
                    break
                arena.compact(number % 9 + 1)
                arena.check(s for s, _ in live)
            assert len(arena._holes) < 2
        elif span is None:
            continue
        elif act == "join":
            behind = next(((s, m) for s, m in live if s.start == span.end), None)
            if behind is not None and arena.join(span, behind[0]):
                old += behind[1]
                live = [entry for entry in live if entry[0] is not behind[0]]
        elif act == "extend":
            if arena.extend(span, size):
                old += [next(marks) for _ in range(size)]
                paint(arena, span, old)
        elif act == "shrink":
            keep = 1 + number % span.length
            arena.shrink(span, keep)
            del old[keep:]
        elif act == "split" and span.length > 1:
            at = 1 + number % (span.length - 1)
            live.append((arena.split(span, at), old[:at]))
            del old[:at]
        elif act == "free":
            arena.release(span)
            live = [entry for entry in live if entry[0] is not span]
        arena.check(s for s, _ in live)
        assert arena.used == sum(len(m) for _, m in live)
        for one, expected in live:
            assert one.length == len(expected)
            assert_painted(arena, one, expected)


def test_freed_slots_are_poisoned_and_a_span_cannot_be_freed_twice() -> None:
    arena = Arena(LAYOUT, 16, poison=True)
    span = arena.allocate(8)
    assert span is not None
    paint(arena, span, list(range(8)))
    arena.release(span)
    assert all(bool(t[:, :8].isnan().all()) for t in (*arena.keys, *arena.values))
    with pytest.raises(KeyError):
        arena.release(span)


def test_a_tail_continues_where_its_prefix_ends() -> None:
    arena = Arena(LAYOUT, 64)
    first, second = arena.allocate(8), arena.allocate(8)
    assert first is not None and second is not None
    arena.shrink(first, 5)
    tail = arena.allocate(3, first)
    assert tail is not None and tail.start == first.end
    after = arena.allocate(4, second)
    assert after is not None and after.start == second.end
