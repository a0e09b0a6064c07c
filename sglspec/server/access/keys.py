"""API keys: what one is, and what a key may do.

A key is `sgs_ID_SECRET`. The secret has 256 random bits, so its SHA-256 is all that has to be stored: slow hashes are
for passwords, which can be guessed; this cannot. The id is no secret: it stands in lists and logs.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

Scope = Literal["programs:read", "programs:write", "runs:read", "runs:write", "run:adhoc", "models", "metrics", "admin"]
"""What a key can be allowed to do. admin: everything, and it sees what belongs to others."""
Need = Literal["public"] | Scope
"""What an address asks for. public: no key at all."""
SCOPES: tuple[Scope, ...] = get_args(Scope)
OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
TOKEN = re.compile(r"sgs_([0-9a-f]{12})_[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Key:
    """digest: SHA-256 of the whole key, in hex; owner: whose runs it starts and sees: two keys of one owner see the
    same; times in seconds since 1970; requests: a minute; runs: at once, those that wait included; None: no limit."""

    id: str
    digest: str
    owner: str
    scopes: tuple[Scope, ...]
    created: float
    expires: float | None = None
    revoked: float | None = None
    requests: int | None = None
    runs: int | None = None

    @property
    def ended(self) -> bool:
        return self.revoked is not None or (self.expires is not None and self.expires <= time.time())

    def opens(self, token: str) -> bool:
        """Whether it is this key. How long that takes tells nothing."""
        return hmac.compare_digest(digest_of(token), self.digest)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a request may do, and in whose name. key: its key's id."""

    owner: str
    scopes: frozenset[Scope]
    key: str = ""
    runs: int | None = None

    def may(self, need: Need) -> bool:
        return need == "public" or need in self.scopes or "admin" in self.scopes

    def sees(self, owner: str) -> bool:
        """Whether what belongs to this owner is there for it."""
        return owner == self.owner or "admin" in self.scopes


EVERYTHING = Grant("", frozenset(SCOPES))
"""What every request may do on a server without keys."""


def new_key(
    owner: str,
    scopes: Iterable[Scope],
    *,
    expires: float | None = None,
    requests: int | None = None,
    runs: int | None = None,
) -> tuple[str, Key]:
    """A new key: the text that its user gets, and what is kept of it."""
    id = secrets.token_hex(6)
    token = f"sgs_{id}_{secrets.token_hex(32)}"
    wanted = frozenset(scopes)
    ordered: tuple[Scope, ...] = tuple(scope for scope in SCOPES if scope in wanted)
    return token, Key(id, digest_of(token), owner, ordered, time.time(), expires, None, requests, runs)


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def id_of(token: str) -> str | None:
    """The id of what looks like a key."""
    match = TOKEN.fullmatch(token)
    return None if match is None else match[1]


__all__ = ["EVERYTHING", "OWNER", "SCOPES", "TOKEN", "Grant", "Key", "Need", "Scope", "digest_of", "id_of", "new_key"]
