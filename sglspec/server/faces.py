"""Stored things as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from sglspec.server.storage.batches import Batch, BatchRow
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


def batch_face(batch: Batch, counts: dict[str, int] | None = None) -> dict[str, Any]:
    """The state of a batch. counts: of its rows by status."""
    here = f"/v1/batches/{batch.id}"
    face: dict[str, Any] = {
        "id": batch.id,
        "status": batch.state,
        "program": {"name": batch.program, "version": batch.version, "digest": batch.digest},
        "seed": int(batch.seed) if int(batch.seed) < 2**53 else batch.seed,
        "created_at": moment(batch.created),
        "started_at": moment(batch.started),
        "ended_at": moment(batch.ended),
        "cancel_requested": batch.cancel and not batch.ended_already,
        "rows": batch.rows,
        "error": None if batch.error is None else json.loads(batch.error),
        "urls": {name: f"{here}/{name}" for name in ("output", "errors", "cancel")},
    }
    return face if counts is None else face | {"counts": counts}


def batch_row_face(row: BatchRow) -> dict[str, Any]:
    """A row that is done."""
    head = {"row": row.row, "custom_id": row.custom_id, "run_id": row.run, "status": row.status}
    return head | json.loads(row.result or "{}")


__all__ = ["alias_face", "batch_face", "batch_row_face", "moment", "run_face", "version_face"]
