"""JSON by schema."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema

from benchmarks.workloads.base import Answer, Case, Ids, Texts, Workload
from sglspec_engine.engine import Engine
from sglspec_engine.types import Finish, GenRequest, TextSegment

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 24},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "city": {"type": "string", "maxLength": 24},
        "member": {"type": "boolean"},
    },
    "required": ["name", "age", "city", "member"],
    "additionalProperties": False,
}
_LAYOUT = {"whitespace_flexible": False, "item_separator": ",[ ]?", "key_separator": ":[ ]?"}


@dataclass(frozen=True)
class Json(Case):
    """texts: the prompts. new: tokens an object may take at most."""

    texts: tuple[str, ...]
    new: int

    async def ours(self, engine: Engine) -> Answer:
        """All objects at once; says how many are valid and how many of their tokens were forced."""
        done = await asyncio.gather(*(self._one(engine, text) for text in self.texts))
        right = sum(valid(finish.text) for finish, _ in done)
        generated = sum(finish.usage.generated_tokens for finish, _ in done)
        forced = sum(finish.usage.forced_tokens for finish, _ in done)
        return Answer(tuple(ids for _, ids in done), {"valid": right, "generated": generated, "forced": forced})

    async def unconstrained(self, engine: Engine, lengths: Sequence[int]) -> Answer:
        """As many tokens without a constraint, after other texts of the same length."""
        pairs = zip(self.texts, lengths, strict=True)
        found = await asyncio.gather(*(_free(engine, f"Again {text}", count) for text, count in pairs))
        return Answer(tuple(() for _ in found), {"generated": sum(found)})

    async def _one(self, engine: Engine, text: str) -> tuple[Finish, Ids]:
        session = engine.open()
        grammar = "start: %json " + json.dumps({**SCHEMA, "x-guidance": _LAYOUT})
        ids: list[int] = []
        try:
            await session.extend([TextSegment(text)])
            async for delta in session.generate(GenRequest(max_tokens=self.new, grammar=grammar)):
                ids += [token.id for token in delta.tokens]
                if delta.finish is not None:
                    return delta.finish, tuple(ids)
        finally:
            await session.close()
        raise AssertionError("a generation without an end")


async def _free(engine: Engine, text: str, count: int) -> int:
    session = engine.open()
    found = 0
    try:
        await session.extend([TextSegment(text)])
        async for delta in session.generate(GenRequest(max_tokens=count, ignore_eos=True)):
            found += len(delta.tokens)
    finally:
        await session.close()
    return found


class JsonSchema(Workload):
    """What a constraint costs, and what forced tokens save."""

    name = "json"
    title = "8 JSON objects with 4 fields by schema"

    def case(self, texts: Texts, variant: int, quick: bool) -> Json:
        """See `Workload.case`."""
        count = 2 if quick else 8
        what = "Describe a person as a JSON object with name, age, city and member.\nJSON: "
        return Json(tuple(f"{variant}. {texts.exactly(24, f'{i}.')} {what}" for i in range(count)), 96)


def valid(text: str) -> bool:
    """Whether a text is JSON under the schema."""
    try:
        jsonschema.validate(json.loads(text), SCHEMA)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True
