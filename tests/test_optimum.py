"""What a run computes is the least that it can: every token once in its place. Counted where the model embeds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglspec.analysis.plan import plan
from sglspec.backends.base import Asked, Observable, Observed, Session
from sglspec.backends.local import LocalBackend, ModelMarkup, open_local
from sglspec.runtime.optimum import optimal_tokens
from sglspec.runtime.result import Result
from sglspec.runtime.run import RunOptions, execute
from tests.engine import tiny
from tests.runtime.fake import program
from tests.test_end_to_end import DOCUMENTS, checked, inputs_of

PROGRAMS = {
    "branches that write at random": """
  - "Facts about some things, each of them short. "
  - fork: t
    in: [sun, rain, wind, snow]
    do:
      - "about {{ t }}:"
      - gen: x
        temperature: 0.7
        max_tokens: 12
  - "Sum: {{ x | join(', ') }}"
  - gen: y
    max_tokens: 5
""",
    "choices in branches": """
  - "Facts about some things, each of them short. "
  - fork: t
    in: [sun, rain, wind]
    do:
      - "Is the {{ t }} good or bad? It is "
      - select: x
        from: [good, bad, neither good nor bad]
      - " because"
      - gen: y
        max_tokens: 5
""",
    "choices without a context, twice": """
  - "Facts. The sun is "
  - select: a
    from: [good, bad, neither good nor bad]
    method: unconditional
  - " and the rain is "
  - select: b
    from: [good, bad, neither good nor bad]
    method: unconditional
  - " and"
  - gen: c
    max_tokens: 3
""",
    "branches of branches": """
  - "Facts about some things, each of them short. "
  - fork: t
    in: [sun, rain]
    do:
      - "{{ t }}: "
      - fork: u
        in: [now, then, "no"]
        do:
          - "and {{ u }}"
          - gen: x
            max_tokens: 4
      - "{{ x | join }} so"
      - gen: z
        max_tokens: 4
""",
    "joined text": """
  - "Facts about some things, each of them short. "
  - fork: t
    in: [sun, rain]
    do:
      - " {{ t }}: "
      - gen: x
        max_tokens: 6
    join: concat
  - " So"
  - gen: y
    max_tokens: 4
""",
    "joined keys": """
  - "Facts about some things, each of them short. "
  - fork: t
    in: [sun, rain]
    do:
      - " {{ t }}: "
      - gen: x
        max_tokens: 6
    join: concat_kv
  - " So"
  - gen: y
    max_tokens: 4
""",
    "a loop": """
  - set: {k: 0}
  - "Count "
  - while: k < 4
    max: 6
    do:
      - "{{ k }}:"
      - gen: x
        max_tokens: 4
      - set: {k: "{{ k + 1 }}"}
""",
    "an object": """
  - user: A name and an age.
  - gen: x
    max_tokens: 90
    fields:
      first_name: {type: string, maxLength: 6}
      age_in_years: {type: integer, minimum: 0, maximum: 99}
""",
    "a stop in the middle": """
  - "Facts about "
  - gen: x
    max_tokens: 20
    stop_regex: "[a-e][a-z]"
  - " and"
  - gen: y
    max_tokens: 3
""",
    "thinking": """
  - user: Think about the sun.
  - gen: x
    reasoning: {open: "<think>", close: "</think>", budget: 6}
    max_tokens: 14
  - user: More.
  - gen: y
    max_tokens: 4
""",
}


LOOSE = 4
"""Tokens by which a plan may be off: it counts each text by itself."""


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with room for every example."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tiny._COMMON, "max_position_embeddings", 4096)
        return tiny.build(tmp_path_factory.mktemp("roomy"))


async def measured(backend: LocalBackend, document: object, inputs: dict[str, object]) -> tuple[Result, int, int]:
    """The result, what went through the embedding, and the least that could."""
    observed = Observed()
    opened = backend.open

    async def open_observed(label: str = "", caller: Session | None = None) -> Session:
        session = await opened(label, caller)
        assert isinstance(session, Observable)
        session.observe(observed)
        return session

    backend.open = open_observed  # type: ignore[method-assign]
    try:
        result = await execute(document, inputs, backend, RunOptions(seed=0))  # type: ignore[arg-type]
    finally:
        backend.open = opened  # type: ignore[method-assign]
    return result, backend.engine.metrics.embedded_tokens, optimal_tokens(observed.asked)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name.split(".")[0])
async def test_an_example_computes_nothing_twice(path: Path, roomy: Path) -> None:
    backend = await open_local(roomy, weights="fp32", threads=1)
    try:
        result, computed, optimum = await measured(backend, checked(path), inputs_of(path))
        assert result.status == "succeeded", result.error
        assert computed == optimum == result.usage.computed_tokens
        ahead = plan(checked(path), inputs_of(path), ModelMarkup.load(roomy))
        assert ahead.computed is not None
        assert ahead.computed.least - LOOSE <= optimum
        assert ahead.computed.most is None or optimum <= ahead.computed.most + LOOSE
    finally:
        await backend.close()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("healing", [True, False])
async def test_a_program_computes_nothing_twice(name: str, healing: bool, roomy: Path) -> None:
    backend = await open_local(roomy, weights="fp32", threads=1, healing=healing)
    try:
        result, computed, optimum = await measured(backend, program(f"sglspec: v1\nsteps:{PROGRAMS[name]}"), {})
        assert result.status == "succeeded", result.error
        assert computed == optimum == result.usage.computed_tokens
    finally:
        await backend.close()


async def test_without_a_cache_an_example_computes_more(roomy: Path) -> None:
    """The optimum is of what was asked, not of what was done."""
    [path] = [path for path in DOCUMENTS if path.name.startswith("04")]
    found: list[tuple[int, int]] = []
    for cache in (True, False):
        backend = await open_local(roomy, weights="fp32", threads=1, prefix_cache=cache)
        try:
            await measured(backend, checked(path), inputs_of(path))
            before = backend.engine.metrics.embedded_tokens
            result, computed, optimum = await measured(backend, checked(path), inputs_of(path))
            assert result.status == "succeeded"
            found.append((computed - before, optimum))
        finally:
            await backend.close()
    (again, optimum), (anew, same) = found
    assert again < optimum == same <= anew


def test_the_nodes_of_a_trie() -> None:
    asked = [Asked((1, 2, 3)), Asked((1, 2, 4, 5)), Asked((1, 2)), Asked((1, 2, 3)), Asked((7,))]
    assert optimal_tokens(asked) == 6
    assert optimal_tokens([]) == 0
    # what a join has copied is not computed, and contexts behind different joins share nothing
    assert (
        optimal_tokens([*asked, Asked((1, 2, 3, 9), 1, 3), Asked((1, 2, 3, 9, 9), 1, 3), Asked((1, 2, 3, 9), 2, 3)])
        == 9
    )
