"""Keys without a database: a file with one JSON object a line, and keys in an environment variable."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from sglspec.diagnostics import Diagnostic, SpecError
from sglspec.server.access.keys import OWNER, SCOPES, Key, Scope, digest_of, id_of

VARIABLE = "SGLSPEC_API_KEYS"
MAX_BYTES = 16 * 1_048_576
_HELP = "`sglspec keys create OWNER --keys-file FILE` writes such lines."
_NUMBERS = ("expires", "revoked", "requests", "runs")


class KeyFile:
    """Holds hashes only. It may be changed while a server reads it: every change is a new file in its place."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> list[Key]:
        """Raises SpecError (S613) for a file that cannot be read, S100 where there is none."""
        try:
            data = self.path.read_bytes()[: MAX_BYTES + 1]
        except FileNotFoundError:
            message = f"There is no file `{self.path}`."
            raise SpecError(Diagnostic("S613", message, help=_HELP)) from None
        except OSError as error:
            raise self._wrong(f"it cannot be read: {error.strerror}") from None
        if len(data) > MAX_BYTES:
            raise self._wrong(f"it has more than {MAX_BYTES:,} bytes")
        lines = data.decode("utf-8", "replace").splitlines()
        keys = [self._key(number, line) for number, line in enumerate(lines, 1) if line.strip()]
        if len({key.id for key in keys}) != len(keys):
            raise self._wrong("two of its keys have the same id")
        return keys

    def add(self, key: Key) -> None:
        """Raises SpecError (S613)."""
        self._write([*(self.load() if self.path.exists() else []), key])

    def revoke(self, id: str) -> bool:
        """Whether there was such a key. One that is revoked already stays as it is. Raises SpecError (S613)."""
        keys = self.load()
        now = time.time()
        self._write(replace(key, revoked=key.revoked or now) if key.id == id else key for key in keys)
        return any(key.id == id for key in keys)

    def _write(self, keys: Iterable[Key]) -> None:
        try:
            handle, name = tempfile.mkstemp(prefix=".sglspec-keys-", dir=self.path.absolute().parent)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(key)) + "\n" for key in keys)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
        except OSError as error:
            raise self._wrong(f"it cannot be written: {error.strerror}") from None

    def _key(self, number: int, line: str) -> Key:
        try:
            face = json.loads(line)
        except (ValueError, RecursionError):
            face = None
        key = _read_key(cast("dict[str, Any]", face)) if isinstance(face, dict) else None
        if key is None:
            raise self._wrong(f"line {number} is no key")
        return key

    def _wrong(self, reason: str) -> SpecError:
        return SpecError(Diagnostic("S613", f"The file of keys `{self.path}` cannot be used: {reason}.", help=_HELP))


def keys_of(text: str) -> list[Key]:
    """Whole keys, as SGLSPEC_API_KEYS has them, separated by commas or spaces; they may do everything but `admin`.

    Raises SpecError (S613); the message does not repeat them.
    """
    keys: list[Key] = []
    for number, token in enumerate(filter(None, re.split(r"[,\s]+", text)), 1):
        id = id_of(token)
        if id is None:
            message = f"{VARIABLE}: entry {number} is not a key of the form `sgs_ID_SECRET`."
            raise SpecError(Diagnostic("S613", message, help="`sglspec keys create OWNER` makes one."))
        scopes: tuple[Scope, ...] = tuple(scope for scope in SCOPES if scope != "admin")
        keys.append(Key(id, digest_of(token), f"env-{id}", scopes, 0.0))
    return keys


def _read_key(face: dict[str, Any]) -> Key | None:
    id, digest, owner = (face.get(name) for name in ("id", "digest", "owner"))
    created, scopes = face.get("created"), face.get("scopes")
    if not (isinstance(id, str) and re.fullmatch(r"[0-9a-f]{12}", id)):
        return None
    if not (isinstance(digest, str) and re.fullmatch(r"[0-9a-f]{64}", digest)):
        return None
    if not (isinstance(owner, str) and OWNER.fullmatch(owner)) or not _is_number(created):
        return None
    if not isinstance(scopes, list) or any(scope not in SCOPES for scope in cast("list[Any]", scopes)):
        return None
    numbers = {name: face.get(name) for name in _NUMBERS}
    if any(value is not None and not _is_number(value) for value in numbers.values()):
        return None
    # a word that is not known may be a limit that is not known: such a key opens nothing
    if set(face) - {"id", "digest", "owner", "scopes", "created", *_NUMBERS}:
        return None
    return Key(id, digest, owner, tuple(cast("list[Any]", scopes)), float(cast(float, created)), **cast(Any, numbers))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


__all__ = ["VARIABLE", "KeyFile", "keys_of"]
