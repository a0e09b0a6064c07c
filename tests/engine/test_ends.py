"""How a text ends: all options together, against the rules written out."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from sglspec_engine.constrain import Constraint
from sglspec_engine.sample import Sampler
from sglspec_engine.types import EngineError, GenRequest, Sampling, TextSegment
from tests.engine.drive import Oracle, collect, ids_of, running

WORDS = ["yes", "yes sir", "no", "nobody knows", "a b c", "the the", "123", "1234567", "aaab", "x\ny"]
STOPS = ["e", " ", "s", "th", "no", "12", "a", "aa", "\n", "in", "er", "the t"]
PATTERNS = ["[0-9]{2}", r"\s[a-z]", "(e|o)[rnm]?"]


@dataclass
class Ended:
    """The outcome by the rules. reason None: a dead end."""

    reason: str | None
    text: str = ""
    matched: str | int | None = None
    generated: int = 0


def by_the_rules(
    oracle: Oracle, prompt: list[int], request: GenRequest, language: set[bytes] | None, constraint: Constraint | None
) -> Ended:
    """One token after the other, each with a full forward, a look at every token and a search of the whole text. Which tokens may follow is the constraint's own (its tests are elsewhere)."""
    vocabulary, eos = oracle.vocabulary, set(oracle.loaded.eos_ids)
    stops = eos | set(request.stop_token_ids)
    ids, raw, generated = list(prompt), b"", 0
    sampler = Sampler(request.sampling, request.noise_key, vocabulary.size, prompt)

    def ended(reason: str, matched: str | int | None = None, text: bytes | None = None) -> Ended:
        return Ended(reason, (raw if text is None else text).decode("utf-8", "ignore"), matched, generated)

    while True:
        longer = language is not None and any(word.startswith(raw) and word != raw for word in language)
        if language is not None and raw in language and not longer:
            return ended("constraint")
        if generated >= request.max_tokens:
            return ended("length")
        allowed = constraint.allowed() if constraint else np.ones(vocabulary.size, dtype=np.bool_)
        early = generated < request.min_tokens
        banned = stops if early else eos - set(request.stop_token_ids) if request.ignore_eos else set()
        allowed[list(banned)] = False
        row = oracle.logits(ids)[-1].numpy()
        if language is not None:
            complete = raw in language
            if not (set(np.flatnonzero(allowed)) - eos if complete else allowed.any()):
                return ended("constraint") if complete else Ended(None)
            known = row[: vocabulary.size].copy()
            if request.ignore_eos:
                known[list(eos)] = -np.inf
            if complete and not early and not allowed[int(known.argmax())]:
                return ended("constraint")
        chosen = sampler.choose(row, len(ids), allowed)
        generated += 1
        kept = chosen in request.stop_token_ids and request.keep_stop
        last = chosen in stops and generated > request.min_tokens
        if last and not kept:
            return ended("stop", chosen) if chosen in request.stop_token_ids else ended("end")
        ids.append(chosen)
        sampler.record(chosen)
        if constraint is not None:
            constraint.advance(chosen)
        before, raw = len(raw), raw + vocabulary.token_bytes[chosen]
        if last:
            return ended("stop", chosen)
        found = _match(raw, before, request) if generated >= request.min_tokens else None
        if found is not None:
            begin, end = found
            text = raw[: end if request.keep_stop else begin]
            return ended("stop", raw[begin:end].decode("utf-8", "ignore"), text)


def _match(raw: bytes, before: int, request: GenRequest) -> tuple[int, int] | None:
    """The first stop that is complete behind `before`, the longest of those."""
    for end in range(before + 1, len(raw) + 1):
        begins = [end - len(stop) for one in request.stop if raw[:end].endswith(stop := one.encode())]
        for begin in range(end):
            with_text = raw[begin:end].decode("utf-8", "replace")
            if any(re.fullmatch(pattern, with_text) for pattern in request.stop_patterns):
                begins.append(begin)
        if begins:
            return min(begins), end
    return None


@pytest.mark.parametrize("seed", range(4))
async def test_all_ends_together(seed: int, tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    rng = random.Random(seed)
    eos = sorted(oracle.loaded.eos_ids)
    seen: set[tuple[str | None, bool]] = set()
    async with running(tiny_llama, forced=rng.random() < 0.5) as engine:
        common = [engine.vocabulary.encode_content(text, after="text")[0] for text in ("e", "a", "no", " the", "1")]
        for case in range(70):
            words = rng.sample(WORDS, 4) if rng.random() < 0.6 else None
            likely = [(id, rng.choice([0.0, 4.0, 9.0])) for id in {*rng.sample(common, 3), rng.choice(eos)}]
            request = GenRequest(
                max_tokens=rng.choice([0, 1, 3, 9]),
                min_tokens=rng.choice([0, 0, 1, 2, 4]),
                stop=tuple(rng.sample(STOPS, rng.choice([0, 0, 1, 3]))),
                stop_token_ids=tuple(rng.sample([*common, *eos], rng.choice([0, 0, 1, 2]))),
                stop_patterns=tuple(rng.sample(PATTERNS, rng.choice([0, 0, 1]))),
                keep_stop=rng.random() < 0.4,
                ignore_eos=rng.random() < 0.4,
                grammar="start: " + " | ".join(f'"{w}"'.replace("\n", "\\n") for w in words) if words else None,
                sampling=Sampling(rng.choice([0.0, 1.5]), logit_bias=tuple(likely)),
                noise_key=case,
            )
            session = engine.open()
            await session.extend([TextSegment(f"Case {case}: ")])
            prompt = ids_of(session)
            constraint = engine._grammars.compile(request.grammar).result().copy() if request.grammar else None
            language = {w.encode() for w in words} if words else None
            expected = by_the_rules(oracle, prompt, request, language, constraint)
            seen.add((expected.reason, words is not None))
            options = {name: getattr(request, name) for name in request.__slots__}
            if expected.reason is None:
                with pytest.raises(EngineError, match="not complete"):
                    await collect(session, **options)
                assert ids_of(session) == prompt
                continue
            finish, tokens = await collect(session, **options)
            found = Ended(finish.reason, finish.text, finish.matched, finish.usage.generated_tokens)
            assert found == expected, request
            if not engine.vocabulary.control_ids.intersection(ids_of(session)[len(prompt) :]):
                assert session.text() == f"Case {case}: {finish.text}"
            assert len(tokens) == expected.generated
            await session.close()
    assert {reason for reason, _ in seen} >= {"stop", "end", "length", "constraint"}
