"""Stored things as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from sglspec.server.storage.programs import Alias, Version
from sglspec.server.storage.runs import RunRow


def moment(seconds: float | None) -> str | None:
    """Seconds since 1970 as RFC 3339, in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def run_face(row: RunRow) -> dict[str, Any]:
    """The state of a run. It tells nothing of its inputs and outputs."""
    here = f"/v1/runs/{row.id}"
    return {
        "id": row.id,
        "status": row.state,
        "program": {"name": row.program, "version": row.version, "digest": row.digest},
        "mode": row.mode,
        "seed": int(row.seed) if int(row.seed) < 2**53 else row.seed,
        "created_at": moment(row.created),
        "started_at": moment(row.started),
        "ended_at": moment(row.ended),
        "deadline": moment(row.deadline),
        "cancel_requested": row.cancel is not None and not row.ended_already,
        "usage": None if row.usage is None else json.loads(row.usage),
        "error": None if row.error is None else json.loads(row.error),
        "urls": {name: f"{here}/{name}" for name in ("events", "result", "trace", "cancel")},
    }


def version_face(version: Version) -> dict[str, Any]:
    return {
        "name": version.name,
        "version": version.version,
        "digest": version.digest,
        "created_at": moment(version.created),
        "archived": version.archived,
    }


def alias_face(alias: Alias) -> dict[str, Any]:
    return {
        "name": alias.name,
        "alias": alias.alias,
        "version": alias.version,
        "revision": alias.revision,
        "updated_at": moment(alias.updated),
    }


__all__ = ["alias_face", "moment", "run_face", "version_face"]
