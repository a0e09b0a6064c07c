"""`sglspec keys`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglspec.server.access.keys import TOKEN


@pytest.mark.parametrize("place", ["--store", "--keys-file"])
def test_create_list_revoke(cli, tmp_path: Path, place: str) -> None:
    where = (place, str(tmp_path / "place"))
    made = cli("keys", "create", "alice", "--scope", "models,runs:read", "--expires", "90d", *where)
    assert made.code == 0
    token = made.out.strip()
    assert TOKEN.fullmatch(token)
    assert token not in made.err
    full = cli("keys", "create", "bob", "--json", "--max-runs", "3", "--requests-per-minute", "60", *where)
    face = json.loads(full.out)
    assert TOKEN.fullmatch(face["key"])
    assert (face["max_runs"], face["requests_per_minute"]) == (3, 60)
    assert face["scopes"] == ["programs:read", "runs:read", "runs:write", "models"]
    listed = cli("keys", "list", *where)
    assert [line.split()[1:3] for line in listed.out.splitlines()[1:]] == [["alice", "valid"], ["bob", "valid"]]
    assert token not in listed.out
    id = token.split("_")[1]
    assert cli("keys", "revoke", id, *where).code == 0
    states = {item["owner"]: item["state"] for item in json.loads(cli("keys", "list", "--json", *where).out)}
    assert states == {"alice": "revoked", "bob": "valid"}
    assert cli("keys", "revoke", "0" * 12, *where).code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "alice"),
        ("create", "a b", "--keys-file", "k"),
        ("create", "alice", "--scope", "everything", "--keys-file", "k"),
        ("create", "alice", "--expires", "soon", "--keys-file", "k"),
        ("create", "alice", "--max-runs", "0", "--keys-file", "k"),
        ("create", "alice", "--store", "s", "--keys-file", "k"),
        ("list", "--keys-file", "missing"),
        ("list",),
        ("revoke", f"sgs_{'0' * 12}_{'0' * 64}", "--keys-file", "k"),
    ],
)
def test_wrong_usage(cli, tmp_path: Path, monkeypatch, arguments: tuple[str, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SGLSPEC_STORE", raising=False)
    done = cli("keys", *arguments)
    assert done.code in (2, 5)
    assert done.out == ""
    assert "0000" not in done.err
    assert list(tmp_path.iterdir()) == []
