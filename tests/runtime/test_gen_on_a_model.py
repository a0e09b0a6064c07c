"""Options of `gen` in programs on a tiny model: what the engine does is what the program sees."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sglspec.backends.local import LocalBackend, open_local
from sglspec.runtime.result import Result
from sglspec.runtime.run import RunOptions, start
from tests.engine import tiny
from tests.runtime.fake import steps


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backend(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalBackend]:
    opened = await open_local(tiny.build(tmp_path_factory.mktemp("gen")), threads=1, weights="fp32")
    yield opened
    await opened.engine.check()
    await opened.close()


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def run(backend: LocalBackend, text: str, **top: str) -> Result:
    result = await start(steps(text, **top), {}, backend, RunOptions(seed=5)).wait()
    assert result.error is None, result.error
    return result


async def generated(backend: LocalBackend, **options: Any) -> tuple[str, dict[str, Any], str]:
    """The text behind `Once`, its `meta`, and the context with a `|` behind it."""
    step = json.dumps({"gen": "a", "max_tokens": 12, **options})
    result = await run(backend, f"- 'Once '\n- {step}\n- '|'")
    return result.outputs["a"], result.meta["a"], result.text


async def test_no_tokens_say_what_would_have_come(backend: LocalBackend) -> None:
    value, meta, text = await generated(backend, max_tokens=0, logprobs=3)
    assert (value, text, meta["finish"]) == ("", "Once |", "length")
    (entry,) = meta["tokens"]
    assert entry["text"] == "" and len(entry["top"]) == 3
    assert entry["logprob"] == entry["top"][0]["logprob"] == max(one["logprob"] for one in entry["top"])
    assert meta["usage"]["generated_tokens"] == 0 and meta["usage"]["prompt_tokens"] > 0


async def test_a_stop_across_tokens_and_what_follows_it(backend: LocalBackend) -> None:
    """Stops of three characters, most of which lie in two or three tokens."""
    whole, meta, _ = await generated(backend)
    texts = [token["text"] for token in meta["tokens"]]
    assert len([one for one in texts if one]) > 4
    for place in range(0, len(whole) - 3, 3):
        stop = whole[place : place + 3]
        value, meta, text = await generated(backend, stop=["never there", stop])
        assert value == whole[: whole.index(stop)]
        assert text == f"Once {value}|"
        assert (meta["finish"], meta["matched"]) == ("stop", stop)
        value, _, text = await generated(backend, stop=stop, keep_stop=True)
        assert value == whole[: whole.index(stop)] + stop
        assert text == f"Once {value}|"


async def test_min_tokens_beside_a_constraint(backend: LocalBackend) -> None:
    """It goes on where it may, and ends before where nothing may follow."""
    short, meta, _ = await generated(backend, regex="[a-z]+")
    assert meta["finish"] == "constraint" and len(meta["tokens"]) < 9
    longer, meta, _ = await generated(backend, regex="[a-z]+", min_tokens=9)
    assert len(meta["tokens"]) >= 9 and longer.startswith(short)
    value, meta, _ = await generated(backend, regex="[ab]", min_tokens=9)
    assert value in ("a", "b") and meta["finish"] == "constraint"


async def test_a_bias_decides_and_penalties_come_behind_it(backend: LocalBackend) -> None:
    """Frequency is charged for each time, presence once; both see what the bias made of the scores."""
    ids = [i for i, text in enumerate(backend.engine.vocabulary.token_bytes) if text in (b"F", b"G")]
    bias = {str(i): 100 for i in ids}
    value, _, _ = await generated(backend, logit_bias={str(ids[0]): 100})
    assert value.endswith("FFFFFFFFFF")
    value, _, _ = await generated(backend, logit_bias=bias, presence_penalty=2)
    other, _, _ = await generated(backend, logit_bias=bias, frequency_penalty=2, presence_penalty=0)
    assert {*value[-10:]} == {*other[-10:]} == {"F", "G"}
    assert abs(other.count("F") - other.count("G")) <= 1
    value, _, _ = await generated(backend, logit_bias={str(ids[0]): 100}, stop_token_ids=[ids[0]], min_tokens=3)
    assert "F" not in value


async def test_meta_of_gathered_and_added_texts_has_their_tokens(backend: LocalBackend) -> None:
    result = await run(
        backend,
        """
- "Once "
- fork: i
  in: [1, 2]
  do:
    - "{{ i }}"
    - {gen: x, max_tokens: "{{ i }}", ignore_eos: true}
    - {gen: "l[]", max_tokens: 3, ignore_eos: true}
- {gen: "l[]", max_tokens: 4, ignore_eos: true}
- set: {of_x: "{{ meta(x) }}", of_l: "{{ meta(l) }}"}
""",
    )
    of_x, of_l = result.outputs["of_x"], result.outputs["of_l"]
    assert [len(one["tokens"]) for one in of_x] == [1, 2]
    assert [len(one["tokens"]) for one in of_l] == [3, 3, 4]
    for metas, values in ((of_x, result.outputs["x"]), (of_l, result.outputs["l"])):
        assert ["".join(token["text"] for token in one["tokens"]) for one in metas] == values


async def test_a_stop_inside_of_a_constraint_says_so(backend: LocalBackend) -> None:
    program = steps("- 'Once '\n- {gen: a, fields: {x: integer}, stop: x}")
    result = await start(program, {}, backend, RunOptions()).wait()
    assert result.error is not None and result.error.code == "S709"
    assert "The stop 'x' ended the text before it was complete" in result.error.message


async def test_choices_are_compared_by_length_unless_told(backend: LocalBackend) -> None:
    scores: dict[str, list[float]] = {}
    for method in ("", ", method: length_normalized", ", method: sum", ", method: greedy", ", method: unconditional"):
        result = await run(backend, f"- 'Once '\n- {{select: s, from: [b, 'a wor has'], id: one{method}}}")
        scores[method] = [one["score"] for one in result.meta["s"]["scores"]]
    assert scores[""] == scores[", method: length_normalized"]
    assert len({tuple(found) for found in scores.values()}) == 4
