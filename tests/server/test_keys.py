"""Where keys are kept: in a file, in the environment, in the store; and how a server learns of changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from sglspec.diagnostics import SpecError
from sglspec.server.access import ring as rings
from sglspec.server.access.keyfile import KeyFile, keys_of
from sglspec.server.access.keys import TOKEN, Key, new_key
from sglspec.server.access.ring import KeyRing
from sglspec.server.access.stored import open_keys


def test_a_key() -> None:
    token, key = new_key("alice", ["models", "runs:read"])
    other, _ = new_key("alice", ["models"])
    assert TOKEN.fullmatch(token)
    assert token != other
    assert key.scopes == ("runs:read", "models")
    assert key.opens(token)
    assert not key.opens(other)
    assert not key.opens("é")
    assert token not in repr(key)
    assert token.rsplit("_", 1)[1] not in repr(key)


def test_where_keys_are_kept(tmp_path: Path) -> None:
    for place in (KeyFile(tmp_path / "keys.jsonl"), open_keys(str(tmp_path / "store.db"))):
        token, first = new_key("alice", ["models"], expires=5e9, requests=10, runs=2)
        _, second = new_key("bob", ["admin"])
        place.add(first)
        place.add(second)
        assert place.load() == [first, second]
        assert place.revoke(first.id)
        assert not place.revoke("0" * 12)
        revoked, kept = place.load()
        assert revoked.ended
        assert not kept.ended
        assert place.revoke(first.id)
        assert place.load()[0].revoked == revoked.revoked
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert token.encode() not in stored
    assert token.rsplit("_", 1)[1].encode() not in stored
    assert (tmp_path / "keys.jsonl").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "change",
    [
        {"id": "x"},
        {"digest": "abc"},
        {"digest": None},
        {"owner": ""},
        {"owner": 1},
        {"scopes": "models"},
        {"scopes": ["everything"]},
        {"created": "today"},
        {"created": True},
        {"runs": "2"},
        {"only_from": "10.0.0.0/8"},
    ],
)
def test_a_line_that_is_no_key(tmp_path: Path, change: dict) -> None:
    """A word that is not known may be a limit: the file is refused, not the word left out."""
    file = KeyFile(tmp_path / "keys")
    file.add(new_key("alice", ["models"])[1])
    face = json.loads(file.path.read_text()) | change
    file.path.write_text(f"\n{json.dumps(face)}\n")
    with pytest.raises(SpecError, match="line 2 is no key"):
        file.load()


@pytest.mark.parametrize("text", ["x", "[]", "{", "null", "\x00", "[" * 100_000])
def test_a_file_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(SpecError, match="line 1 is no key"):
        KeyFile(path).load()
    with pytest.raises(SpecError, match="There is no file"):
        KeyFile(tmp_path / "other").load()
    with pytest.raises(SpecError, match="cannot be read"):
        KeyFile(tmp_path).load()


def test_keys_of_the_environment() -> None:
    first, _ = new_key("a", [])
    second, _ = new_key("b", [])
    found = keys_of(f" {first},{second}\n")
    assert [key.opens(token) for key, token in zip(found, (first, second), strict=True)] == [True, True]
    assert all("admin" not in key.scopes for key in found)
    assert keys_of("") == []
    with pytest.raises(SpecError) as caught:
        keys_of(f"{first} hunter2")
    assert "entry 2" in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_a_ring_learns_of_changes(monkeypatch) -> None:
    token, key = new_key("alice", ["models"])
    kept: list[Key] = []
    looks = 0

    async def source() -> Sequence[Key]:
        nonlocal looks
        looks += 1
        return list(kept)

    now = [0.0]
    monkeypatch.setattr(rings.time, "monotonic", lambda: now[0])
    ring = KeyRing([source])
    assert not await ring.locked()
    kept.append(key)
    now[0] = 3.0
    assert await ring.locked()
    assert await ring.find(token) == key
    other, added = new_key("bob", ["models"])
    kept.append(added)
    now[0] = 3.1
    assert await ring.find(other) is None  # it was looked for a moment ago
    now[0] = 3.3
    assert await ring.find(other) == added
    kept.clear()
    now[0] = 9.0
    assert await ring.find(token) is None
    assert await ring.locked(), "a server that had keys stays closed"
    before = looks
    for _ in range(1000):
        assert await ring.find(f"sgs_{'0' * 12}_{'0' * 64}") is None
    assert looks == before
