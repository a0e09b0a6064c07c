"""Stored programs: a name has versions, which never change, and aliases, which move between them."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import Connection, Row, Select, func, select, update

from sglspec.server.storage.statements import add
from sglspec.server.storage.tables import aliases, document_files, documents, programs, versions

Format = Literal["yaml", "json"]
NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Document:
    """A program's text, byte for byte as it came, and the files that it uses: texts by path from its folder.

    digest: SHA-256 of the text; of one with files, of a list as `sha256sum` writes it: the text without a name, then
    the files by path."""

    digest: str
    format: Format
    source: bytes
    files: MappingABC[str, str] = field(default_factory=dict[str, str])

    @staticmethod
    def of(source: bytes, format: Format, files: MappingABC[str, str] | None = None) -> Document:
        digest = _sha256(source)
        files = dict(sorted((files or {}).items()))
        if files:
            lines = [(digest, ""), *((_sha256(text.encode("utf-8")), path) for path, text in files.items())]
            digest = _sha256("".join(f"{digest}  {path}\n" for digest, path in lines).encode("utf-8"))
        return Document(f"sha256:{digest}", format, source, files)


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a program. archived: whether the program takes no more runs."""

    name: str
    version: int
    digest: str
    created: float
    archived: bool = False


@dataclass(frozen=True, slots=True)
class Alias:
    name: str
    alias: str
    version: int
    revision: int
    updated: float


Condition = int | Literal["new", "old"] | None
"""What an alias must be: at this revision, not there yet, there already, or anything."""


class Conflict(Exception):
    """An alias is not at the revision that the caller saw."""


def save_document(connection: Connection, document: Document) -> None:
    new = add(connection, documents, digest=document.digest, format=document.format, source=document.source)
    if new and document.files:
        rows = [
            {"digest": document.digest, "path": path, "source": text.encode()} for path, text in document.files.items()
        ]
        connection.execute(document_files.insert(), rows)


def document(connection: Connection, digest: str) -> Document | None:
    row = connection.execute(select(documents).where(documents.c.digest == digest)).one_or_none()
    if row is None:
        return None
    query = select(document_files.c.path, document_files.c.source).where(document_files.c.digest == digest)
    files = {path: bytes(text).decode() for path, text in connection.execute(query)}
    return Document(row.digest, row.format, bytes(row.source), dict(sorted(files.items())))


def save(connection: Connection, name: str, document: Document) -> tuple[Version, bool]:
    """The version with this text, and whether it is new. A new one is the latest; an archived program is back."""
    now = time.time()
    save_document(connection, document)
    add(connection, programs, name=name, latest=0, created=now, updated=now, archived=None)
    # the row is locked from here on: two that save at the same time get two numbers
    connection.execute(update(programs).where(programs.c.name == name).values(archived=None))
    if (found := find(connection, name, document.digest)) is not None:
        return found, False
    latest = connection.execute(select(programs.c.latest).where(programs.c.name == name)).scalar_one() + 1
    connection.execute(update(programs).where(programs.c.name == name).values(latest=latest, updated=now))
    connection.execute(versions.insert().values(name=name, version=latest, digest=document.digest, created=now))
    return Version(name, latest, document.digest, now), True


def find(connection: Connection, name: str, which: str | None = None) -> Version | None:
    """which: a number, a digest or an alias; the latest version when None."""
    query = _versions().where(versions.c.name == name)
    if which is None:
        query = query.where(versions.c.version == programs.c.latest)
    elif which.isascii() and which.isdigit():
        if len(which) > 9:
            return None
        query = query.where(versions.c.version == int(which))
    elif DIGEST.fullmatch(which):
        query = query.where(versions.c.digest == which)
    else:
        named = select(aliases.c.version).where(aliases.c.name == name, aliases.c.alias == which)
        query = query.where(versions.c.version == named.scalar_subquery())
    row = connection.execute(query).one_or_none()
    return None if row is None else _version(row)


def latest(connection: Connection, after: str, limit: int, archived: bool = False) -> list[Version]:
    """The latest version of each program, by name, those after a name."""
    query = _versions().where(versions.c.version == programs.c.latest, programs.c.name > after)
    query = query.where(programs.c.archived.is_not(None) if archived else programs.c.archived.is_(None))
    return [_version(row) for row in connection.execute(query.order_by(programs.c.name).limit(limit))]


def history(connection: Connection, name: str, below: int, limit: int) -> list[Version]:
    """The versions of a program with numbers below one, newest first."""
    query = _versions().where(versions.c.name == name, versions.c.version < below)
    return [_version(row) for row in connection.execute(query.order_by(versions.c.version.desc()).limit(limit))]


def archive(connection: Connection, name: str) -> bool:
    """Whether there was such a program."""
    done = (
        update(programs).where(programs.c.name == name).values(archived=func.coalesce(programs.c.archived, time.time()))
    )
    return connection.execute(done).rowcount == 1


def alias(connection: Connection, name: str, alias: str) -> Alias | None:
    row = connection.execute(select(aliases).where(aliases.c.name == name, aliases.c.alias == alias)).one_or_none()
    return None if row is None else Alias(*row)


def aliases_of(connection: Connection, name: str) -> list[Alias]:
    rows = connection.execute(select(aliases).where(aliases.c.name == name).order_by(aliases.c.alias))
    return [Alias(*row) for row in rows]


def move_alias(connection: Connection, name: str, alias: str, version: int, condition: Condition = None) -> Alias:
    """Point an alias at a version. Raises Conflict, and the transaction is taken back."""
    now = time.time()
    if add(connection, aliases, name=name, alias=alias, version=version, revision=1, updated=now):
        if condition not in (None, "new"):
            raise Conflict
        return Alias(name, alias, version, 1, now)
    if condition == "new":
        raise Conflict
    move = update(aliases).where(aliases.c.name == name, aliases.c.alias == alias)
    if isinstance(condition, int):
        move = move.where(aliases.c.revision == condition)
    moved = move.values(version=version, revision=aliases.c.revision + 1, updated=now).returning(aliases)
    row = connection.execute(moved).one_or_none()
    if row is None:
        raise Conflict
    return Alias(*row)


def drop_alias(connection: Connection, name: str, alias: str) -> bool:
    return connection.execute(aliases.delete().where(aliases.c.name == name, aliases.c.alias == alias)).rowcount == 1


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _versions() -> Select[*tuple[Any, ...]]:
    fields = versions.c.name, versions.c.version, versions.c.digest, versions.c.created, programs.c.archived
    return select(*fields).join(programs, programs.c.name == versions.c.name)


def _version(row: Row[*tuple[Any, ...]]) -> Version:
    name, version, digest, created, archived = row
    return Version(name, version, digest, created, archived is not None)


__all__ = [
    "DIGEST",
    "NAME",
    "Alias",
    "Condition",
    "Conflict",
    "Document",
    "Format",
    "Version",
    "alias",
    "aliases_of",
    "archive",
    "document",
    "drop_alias",
    "find",
    "history",
    "latest",
    "move_alias",
    "save",
    "save_document",
]
