"""Objects of JSON texts have each key once, whatever the grammar leaves open."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglspec_engine.config import EngineConfig
from sglspec_engine.constrain import Grammars
from sglspec_engine.keys import Keys, Place
from sglspec_engine.model.load import load_model
from sglspec_engine.text.tokens import Vocabulary
from sglspec_engine.types import Sampling, TextSegment
from tests.engine.drive import collect, running

NAMES = st.sampled_from(["a", "b", 'a"', "\\", "é", "a,b", "{", ""])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), NAMES),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(st.tuples(NAMES, inner), max_size=4).map(lambda pairs: Pairs(pairs)),
    ),
    max_leaves=12,
)


class Pairs:
    """An object whose keys may be there twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs

    def twice(self) -> bool:
        return any(count > 1 for count in Counter(name for name, _ in self.pairs).values())


def written(value: Any, escape: bool) -> str:
    if isinstance(value, Pairs):
        inside = (f"{json.dumps(name, ensure_ascii=escape)}:{written(one, escape)}" for name, one in value.pairs)
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(one, escape) for one in value) + "]"
    return json.dumps(value, ensure_ascii=escape)


def twice(value: Any) -> bool:
    if isinstance(value, Pairs):
        return value.twice() or any(twice(one) for _, one in value.pairs)
    return isinstance(value, list) and any(map(twice, value))


@given(VALUES, st.booleans(), st.integers(1, 7))
def test_a_key_that_comes_again_is_seen_wherever_the_text_is_cut(value: Any, escape: bool, size: int) -> None:
    data = written(value, escape).encode()
    place, seen = Place(), False
    for start in range(0, len(data), size):
        place, again = place.after(data[start : start + size])
        seen |= again
    assert seen == twice(value)
    assert place == Place()


def test_a_key_can_be_spelled_in_many_ways() -> None:
    assert Place().after(rb'{"a": 1, "\u0061"')[1]
    assert Place().after(rb'{"a/b": 1, "a\/b"')[1]
    assert not Place().after(rb'{"a": 1, "\\u0061"')[1]


@pytest.fixture(scope="module")
def vocabulary(tiny_llama: Path) -> Vocabulary:
    return load_model(tiny_llama).vocabulary


@pytest.mark.parametrize(
    "text",
    [
        '{"ab": 1, "a',
        '{"ab": 1, "ab',
        '{"ab": 1, ',
        '{"ab": 1, "',
        '{"ab": "x',
        '{"ab": [{"b": 1}, {"c": 2, "',
        '{"ab": [1, 2',
        r'{"ab": 1, "\u006',
        r'{"a\"b": 1, "a\\',
        r'{"a\"b": 1, "a',
        "{",
        "",
    ],
)
def test_no_token_writes_a_key_again(vocabulary: Vocabulary, text: str) -> None:
    """Against every token there is, one by one, as far as JSON may go on with it."""
    place, _ = Place().after(text.encode())
    allowed = np.array([begins_json(text.encode() + data) for data in vocabulary.token_bytes])
    table = vocabulary.token_bytes
    expected = [id for id in np.flatnonzero(allowed) if place.after(table[id])[1]]
    assert sorted(set(Keys(vocabulary).repeated(place, allowed))) == expected


def begins_json(data: bytes) -> bool:
    """Nearly: it has no escape that there is not."""
    return not re.search(rb"\\(?![\"\\/bfnrtu]|$)|\\u(?![0-9a-fA-F]{0,4}$|[0-9a-fA-F]{4})", data)


def drawn(vocabulary: Vocabulary, schema: dict[str, Any], count: int, seed: int) -> str:
    """A text of so many tokens that a schema allows, at random; no object ends while it may go on."""
    ends = frozenset({vocabulary.size - 1})
    constraint = (
        Grammars(vocabulary, ends, EngineConfig()).compile("start: %json " + json.dumps(schema)).result().copy()
    )
    rng, out = random.Random(seed), b""
    goes_on = np.array([b"}" not in data and data != b"" for data in vocabulary.token_bytes])
    for _ in range(count):
        allowed = constraint.allowed()
        ids = np.flatnonzero(allowed & goes_on) if (allowed & goes_on).any() else np.flatnonzero(allowed)
        id = int(rng.choice(ids))
        if id in ends:
            break
        constraint.advance(id)
        out += vocabulary.token_bytes[id]
    return out.decode()


def keys_of(pattern: str) -> dict[str, Any]:
    return {"type": "object", "patternProperties": {pattern: {"type": "null"}}, "additionalProperties": False}


@pytest.mark.parametrize("seed", range(5))
def test_what_is_generated_has_each_key_once(vocabulary: Vocabulary, seed: int) -> None:
    """Short keys of three letters come again soon."""
    text = drawn(vocabulary, keys_of("^[a-c]+$"), 300, seed)
    found = re.findall(r'"([a-c]+)"', text)
    assert len(found) == len(set(found)) > 8, text


def test_where_every_key_is_there_the_text_goes_on_with_one_of_them(vocabulary: Vocabulary) -> None:
    """A constraint never ends in nothing; the check of the value says what is wrong with it."""
    text = drawn(vocabulary, keys_of("^[ab]$"), 60, 0)
    assert len(re.findall(r'"[ab]"', text)) > 2


async def test_a_model_writes_no_key_twice(tiny_llama: Path) -> None:
    grammar = "start: %json " + json.dumps(keys_of("^[a-c]+$"))
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Give JSON:")])
        branches = await session.fork(8)
        for key, branch in enumerate(branches):
            finish, _ = await collect(
                branch, grammar=grammar, max_tokens=100, noise_key=key, sampling=Sampling(temperature=1.0)
            )
            found = re.findall(r'"([a-c]+)"', finish.text)
            assert len(found) == len(set(found)), finish.text
