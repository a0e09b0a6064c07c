"""Branches joined by moving what was computed for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sglspec_engine.agreement import divergence
from sglspec_engine.engine import Engine
from sglspec_engine.session import Session
from sglspec_engine.types import EngineError, RoleClose, RoleOpen, TextSegment
from tests.engine import tiny
from tests.engine.drive import collect, ids_of, running, turn


async def joined(engine: Engine, mode: str) -> tuple[Session, list[Session]]:
    """Three branches with text and generations, joined."""
    session = engine.open()
    await session.extend([*turn("List"), RoleOpen("assistant"), RoleClose()])
    branches = await session.fork(3)
    for i, branch in enumerate(branches):
        await branch.extend([RoleOpen("user"), TextSegment(f"item {i} of the list"), RoleClose()])
        await branch.extend([RoleOpen("assistant")])
    await asyncio.gather(*(collect(b, max_tokens=4 + i, ignore_eos=True) for i, b in enumerate(branches)))
    for branch in branches:
        await branch.extend([RoleClose()])
    await session.concat(branches, mode)  # pyright: ignore[reportArgumentType]
    return session, branches


async def text_branches(session: Session, *texts: str, max_tokens: int = 4) -> list[Session]:
    """Branches that write a text and generate."""
    branches = await session.fork(len(texts))
    for branch, text in zip(branches, texts, strict=True):
        await branch.extend([TextSegment(text)])
        await collect(branch, max_tokens=max_tokens, ignore_eos=True)
    return branches


async def recomputed(engine: Engine, session: Session) -> Session:
    """A session with the same context, computed anew."""
    again = engine.open()
    again._context = session._context
    await again._compute()
    assert again._lease.ids == session._lease.ids == ids_of(session)
    return again


def layer_keys(session: Session, layer: int) -> torch.Tensor:
    return torch.cat([k for k, _ in session._lease.views(layer, 0)], dim=1)


@pytest.mark.parametrize(
    "architecture", ["llama", "qwen3", "mistral", "phi3", "gpt_oss", "gemma2", "smollm3", "gemma3_text"]
)
async def test_keys_are_those_of_the_new_positions(architecture: str, tiny_model: Callable[[str], Path]) -> None:
    """In the first layer exactly; deeper ones differ, because the branches did not see each other."""
    async with running(tiny_model(architecture), debug=True, weights="fp32") as engine:
        session, branches = await joined(engine, "concat_kv")
        exact, _ = await joined(engine, "concat")
        assert session.text() == exact.text()
        assert ids_of(session) == list(session._context.ids) == session._lease.ids
        again = await recomputed(engine, session)
        assert torch.allclose(layer_keys(session, 0), layer_keys(again, 0), atol=1e-5)
        first = branches[0]._lease.length
        assert torch.allclose(layer_keys(session, 1)[:, :first], layer_keys(again, 1)[:, :first], atol=1e-4)
        assert not torch.allclose(layer_keys(session, 1)[:, first:], layer_keys(again, 1)[:, first:], atol=1e-3)


async def test_nothing_is_computed_again_and_no_exact_context_finds_it(tiny_llama: Path) -> None:
    async with running(tiny_llama, debug=True) as engine:
        session = engine.open()
        await session.extend([*turn("List"), RoleOpen("assistant"), RoleClose()])
        branches = await session.fork(2)
        for i, branch in enumerate(branches):
            await branch.extend(turn(f"item {i} of the list"))
            await branch._compute()
        before = engine.metrics.embedded_tokens
        await session.concat(branches, "concat_kv")
        assert engine.metrics.embedded_tokens == before
        joined_ids = ids_of(session)
        await session.extend([RoleOpen("assistant")])
        finish, _ = await collect(session, max_tokens=3, ignore_eos=True)
        assert finish.usage.reused_tokens == len(joined_ids)
        await session.close()
        exact = engine.open()
        await exact.extend([*turn("List"), RoleOpen("assistant"), RoleClose()])
        await exact.extend([*turn("item 0 of the list"), *turn("item 1 of the list"), RoleOpen("assistant")])
        assert ids_of(exact)[: len(joined_ids)] == joined_ids
        finish, _ = await collect(exact, max_tokens=3, ignore_eos=True)
        assert finish.usage.reused_tokens < branches[0]._lease.length + 8
        for one in (exact, *branches):
            await one.close()
        await engine.check()
        assert engine.pool.live_bytes == 0


async def test_a_join_goes_on_like_any_context(tiny_llama: Path) -> None:
    async with running(tiny_llama, debug=True) as engine:
        session, _ = await joined(engine, "concat_kv")
        trace = session.trace()
        assert {t.origin for t in trace} == {"scaffold", "author", "generated"}
        assert sum(t.origin == "generated" for t in trace) == 4 + 5 + 6
        await session.extend([*turn("more"), RoleOpen("assistant")])
        forks = await session.fork(2)
        texts = [(await collect(fork, max_tokens=5, ignore_eos=True))[0].text for fork in forks]
        assert texts[0] == texts[1]


@pytest.fixture(scope="module")
def with_bos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama whose texts begin with a control token."""
    folder = tiny.build(tmp_path_factory.mktemp("bos"))
    return tiny.write_tokenizer(folder, "metaspace")


@pytest.mark.parametrize("roles", [False, True], ids=["text", "messages"])
async def test_branches_of_an_empty_context_bring_its_beginning_once(
    roles: bool, tiny_llama: Path, with_bos: Path
) -> None:
    async with running(tiny_llama if roles else with_bos, debug=True) as engine:
        joins: list[Session] = []
        for mode in ("concat_kv", "concat"):
            session = engine.open()
            branches = await session.fork(3)
            for i, branch in enumerate(branches[1:]):
                await branch.extend(turn(f"item {i}") if roles else [TextSegment(f"item {i}.\n")])
                await branch._compute()
            before = engine.metrics.embedded_tokens
            await session.concat(branches, mode)  # pyright: ignore[reportArgumentType]
            assert engine.metrics.embedded_tokens == before
            joins.append(session)
        joined, exact = joins
        assert joined.text() == exact.text()
        assert joined.text().count("<|im_start|>system" if roles else "<s>") == 1
        again = await recomputed(engine, joined)
        assert torch.allclose(layer_keys(joined, 0), layer_keys(again, 0), atol=1e-5)


async def test_nested_joins_of_an_empty_context(with_bos: Path) -> None:
    """A join that was a first text becomes a later one: it brings no beginning along then."""
    async with running(with_bos, debug=True) as engine:
        session = engine.open()
        outer = await session.fork(2)
        for branch in outer:
            await branch.concat(await text_branches(branch, "one: ", "two: "), "concat_kv")
        await session.concat(outer, "concat_kv")
        parts = [part.text().removeprefix("<s>") for part in outer]
        assert session.text() == "<s>" + "".join(parts)
        again = await recomputed(engine, session)
        assert torch.allclose(layer_keys(session, 0), layer_keys(again, 0), atol=1e-5)
        exact = engine.open()
        await exact.concat(outer, "concat")
        assert exact.text() == session.text()


async def test_a_join_in_a_branch_and_a_join_after_a_join(tiny_llama: Path) -> None:
    async with running(tiny_llama, debug=True) as engine:
        session = engine.open()
        await session.extend([TextSegment("List.\n")])
        outer = await session.fork(2)
        for branch in outer:
            await branch.concat(await text_branches(branch, " one", " two"), "concat_kv")
            await branch.extend([TextSegment(" so\n")])
        await session.concat(outer, "concat_kv")
        await session.concat(await text_branches(session, " more", " yet"), "concat_kv")
        again = await recomputed(engine, session)
        assert torch.allclose(layer_keys(session, 0), layer_keys(again, 0), atol=1e-5)
        for one in (again, session, *outer):
            await one.close()


async def test_branches_that_add_nothing(tiny_llama: Path) -> None:
    async with running(tiny_llama, debug=True) as engine:
        session = engine.open()
        await session.extend([TextSegment("List.\n")])
        before, lease = session._context, session._lease
        await session.concat([], "concat_kv")
        await session.concat(await session.fork(2), "concat_kv")
        assert session._context is before and session._lease is lease
        branches = await session.fork(3)
        await branches[1].extend([TextSegment(" one")])
        await session.concat(branches, "concat_kv")
        assert session.text().endswith("List.\n one")
        empty = engine.open()
        await empty.concat(await empty.fork(2), "concat_kv")
        assert empty.text() == ""


async def test_an_open_message_goes_on_in_the_branches(tiny_llama: Path) -> None:
    async with running(tiny_llama, debug=True) as engine:
        session = engine.open()
        await session.extend([*turn("List"), RoleOpen("assistant"), TextSegment("So:\n")])
        await session.concat(await text_branches(session, " one", " two"), "concat_kv")
        await session.extend([RoleClose()])
        assert session.text().endswith("<|im_end|>\n")


async def test_a_text_that_melts_into_the_one_before_is_refused(tiny_llama: Path) -> None:
    async with running(tiny_llama, debug=True) as engine:
        vocabulary = engine.vocabulary
        start, end = next(
            (word[:at], word[at:])
            for word in ("information", "the", "and", "in")
            for at in range(1, len(word))
            if len(vocabulary.encode_content(word)) < len(vocabulary.encode_content(word[:at])) + 1
        )
        session = engine.open()
        await session.extend([TextSegment(start)])
        branches = await session.fork(2)
        for branch in branches:
            await branch.extend([TextSegment(end)])
        before = session.text()
        with pytest.raises(EngineError) as caught:
            await session.concat(branches, "concat_kv")
        assert caught.value.kind == "unsupported"
        assert session.text() == before
        await session.concat(branches, "concat")
        assert session.text() == before + end + end


async def test_a_model_whose_keys_cannot_be_moved(tiny_model: Callable[[str], Path]) -> None:
    async with running(tiny_model("gpt2"), debug=True) as engine:
        assert not engine.joins_keys
        session = engine.open()
        await session.extend([TextSegment("List.\n")])
        branches = await text_branches(session, " one", " two")
        with pytest.raises(EngineError) as caught:
            await session.concat(branches, "concat_kv")
        assert caught.value.kind == "unsupported"
        await session.concat(branches, "concat")


@pytest.mark.parametrize("stage", ["compute", "join", "measure"])
async def test_a_cancelled_join_leaves_nothing_behind(
    stage: str, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tiny_llama, debug=True, measure_joins=True) as engine:
        session = engine.open()
        await session.extend([TextSegment("List.\n")])
        branches = await text_branches(session, " one", " two")
        before = session.text()
        joining = asyncio.ensure_future(session.concat(branches, "concat_kv"))
        asked = getattr(engine, stage)

        def ask_and_leave(*request: Any) -> Any:
            joining.cancel()
            return asked(*request)

        monkeypatch.setattr(engine, stage, ask_and_leave)
        with pytest.raises(asyncio.CancelledError):
            await joining
        assert session.text() == before
        for one in (session, *branches):
            await one.close()
        await engine.check()
        assert engine.pool.live_bytes == 0 and engine.pool.live_leases == 0


async def test_memory_that_is_short_for_a_join(tiny_llama: Path) -> None:
    """The context is as it was, and nothing is held."""
    async with running(tiny_llama, debug=True) as engine:
        per_token = engine.pool.layout.bytes_per_token
    async with running(tiny_llama, debug=True, max_kv_bytes=160 * per_token) as engine:
        session = engine.open()
        await session.extend([TextSegment("List.\n" * 10)])
        branches = await text_branches(session, " one" * 8, " two" * 8)
        before = session.text()
        with pytest.raises(EngineError) as caught:
            await session.concat(branches, "concat_kv")
        assert caught.value.kind == "limit"
        assert session.text() == before
        for one in (session, *branches):
            await one.close()
        assert engine.pool.live_bytes == 0


async def test_how_far_a_join_is_from_an_exact_context(tiny_llama: Path) -> None:
    async with running(tiny_llama, debug=True) as engine:
        session = engine.open()
        await session.extend([TextSegment("List.\n")])
        assert await session.concat(await text_branches(session, " one", " two"), "concat_kv") is None
        unmeasured, _ = await collect(session, max_tokens=6, ignore_eos=True)
    async with running(tiny_llama, debug=True, measure_joins=True) as engine:
        session = engine.open()
        await session.extend([TextSegment("List.\n")])
        branches = await text_branches(session, " one", " two")
        before = session.usage.computed_tokens
        several = await session.concat(branches, "concat_kv")
        assert several is not None and several > 1e-3
        assert session.usage.computed_tokens > before
        # A branch that is alone was computed where it stands: its join is exact.
        alone = engine.open()
        await alone.extend([TextSegment("List.\n")])
        single = await alone.concat(await text_branches(alone, " one"), "concat_kv")
        assert single is not None and single < 1e-9
        measured, _ = await collect(session, max_tokens=6, ignore_eos=True)
        assert measured.text == unmeasured.text
        assert await alone.concat([], "concat") is None


def test_divergence() -> None:
    """KL of (1/2, 1/2) from (1/4, 3/4) is ln 2 - ln 3 / 2."""
    even, uneven = torch.tensor([0.0, 0.0]), torch.log(torch.tensor([0.25, 0.75]))
    assert divergence(even, uneven) == pytest.approx(0.143841, abs=1e-6)
    assert divergence(even, even) == 0.0
