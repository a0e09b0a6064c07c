"""The schemas of what clients of other protocols send say what the readers take: the same keys, the same bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from sglspec.backends.base import Capabilities
from sglspec.backends.scripted import ScriptedBackend
from sglspec.runtime.limits import Bounds
from sglspec.server.compat import schemas
from sglspec.server.compat.fields import Fields, Refused
from sglspec.server.compat.grammars import Grammars
from sglspec.server.compat.openai_requests import read_chat, read_completion
from sglspec.server.compat.sglang_requests import read_generate
from tests.server.compat.test_hostile import CHAT, GENERATE, GOOD, LEGACY, WRONG_GENERATE, WRONG_PARAMS, WRONG_SHARED

SCHEMAS = {CHAT: schemas.CHAT, LEGACY: schemas.COMPLETION, GENERATE: schemas.GENERATE}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
FULL: dict[str, dict[str, Any]] = {
    CHAT: GOOD[CHAT]
    | {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
        "response_format": FORMAT,
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    LEGACY: GOOD[LEGACY] | {"response_format": FORMAT, "stream": True, "stream_options": {}},
    GENERATE: GOOD[GENERATE],
}
RANGE = re.compile(r"must be (a whole number from|from|above) ")


class Constrained(ScriptedBackend):
    """A backend that takes constraints."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(grammar=True)


async def read(address: str, body: dict[str, Any]) -> None:
    """Raises Refused."""
    backend = Constrained({})
    if address == GENERATE:
        await read_generate(body, backend, Grammars(), Bounds(), False)
        return
    fields = Fields(body)
    fields.get("model")
    if address == CHAT:
        await read_chat(fields, backend, Grammars(), Bounds())
    else:
        await read_completion(fields, backend, Grammars(), Bounds(), False)


def within(schema: Any, place: str) -> set[str]:
    """The keys of the objects at a place such as `messages[0].content[0]`."""
    name, _, rest = place.partition(".")
    found: set[str] = set()
    for one in objects(schema):
        if not place:
            found |= set(one["properties"])
        elif (key := name.partition("[")[0]) in one["properties"]:
            found |= within(one["properties"][key], rest)
    return found


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """The objects that a schema allows, lists of them, too."""
    for one in [schema, *schema.get("anyOf", ())]:
        if "properties" in one:
            yield one
    for one in schema.get("anyOf", ()):
        yield from objects(one)
    if "items" in schema:
        yield from objects(schema["items"])


@pytest.mark.parametrize("address", SCHEMAS)
async def test_the_keys_are_those_that_are_read(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused whatever it says is not in the schema."""
    asked: dict[str, set[str]] = {}
    refused: dict[str, set[str]] = {}
    done, refuse = Fields.done, Fields.refuse

    def ends(self: Fields) -> None:
        asked.setdefault(self._within, set()).update(self._known)
        done(self)

    def refuses(self: Fields, names: Any, *more: Any) -> None:
        names = list(names)
        refused.setdefault(self._within, set()).update(names)
        refuse(self, names, *more)

    monkeypatch.setattr(Fields, "done", ends)
    monkeypatch.setattr(Fields, "refuse", refuses)
    await read(address, FULL[address])
    assert len(asked) == {CHAT: 6, LEGACY: 4, GENERATE: 2}[address]
    for place, names in asked.items():
        known = within(SCHEMAS[address], place)
        if place == "" and address == CHAT:
            known -= {"inputs"}  # of programs
        assert known == names - refused.get(place, set()), place


def bounds() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    for address, schema in SCHEMAS.items():
        for name, one in schema["properties"].items():
            yield from ((address, "", name, option) for option in [one, *one.get("anyOf", ())])
    params = schemas.GENERATE["properties"]["sampling_params"]["anyOf"][0]["anyOf"][0]
    for name, one in params["properties"].items():
        yield GENERATE, "sampling_params", name, one


NUMBERS = [row for row in bounds() if "maximum" in row[3]]


@pytest.mark.parametrize(("address", "within", "name", "schema"), NUMBERS)
async def test_the_bounds_are_those_that_are_read(address: str, within: str, name: str, schema: dict[str, Any]) -> None:
    low = schema["minimum"] if "minimum" in schema else schema["exclusiveMinimum"]
    step = 1 if "integer" in schema["type"] else 2**-20
    for value, good in ((low, "minimum" in schema), (low - step, False), (schema["maximum"], True),
                        (schema["maximum"] + step, False)):  # fmt: skip
        body = GOOD[address] | {"logprobs": True} if name == "top_logprobs" else dict(GOOD[address])
        if name == "max_completion_tokens":
            del body["max_tokens"]
        body |= {within: {name: value}} if within else {name: value}
        try:
            await read(address, body)
            said = ""
        except Refused as refusal:
            said = refusal.message
        assert bool(RANGE.search(said)) != good, (value, said)
        assert jsonschema.Draft202012Validator(SCHEMAS[address]).is_valid(body) == good


def test_good_requests_fit_and_most_wrong_ones_do_not() -> None:
    """Those that fit are wrong for reasons beyond a schema: constraints, vocabularies, what goes together."""
    validators = {address: jsonschema.Draft202012Validator(schema) for address, schema in SCHEMAS.items()}
    for address, validator in validators.items():
        validator.check_schema(validator.schema)
        for good in (GOOD[address], FULL[address]):
            validator.validate(good)
    wrong = [(GENERATE, GOOD[GENERATE] | one) for one in WRONG_GENERATE]
    wrong += [(GENERATE, GOOD[GENERATE] | {"sampling_params": one}) for one in WRONG_PARAMS]
    wrong += [(address, GOOD[address] | one) for one in WRONG_SHARED for address in (CHAT, LEGACY)]
    fitting = [json.dumps(body)[:200] for address, body in wrong if validators[address].is_valid(body)]
    assert len(fitting) < len(wrong) / 4, fitting
