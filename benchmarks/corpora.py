"""Schemas with instances that others collected, read from the folder that SGLSPEC_CORPORA names."""

from __future__ import annotations

import gzip
import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DRAFTS = {
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A schema with instances: (what it is, the value, whether it is valid)."""

    name: str
    schema: dict[str, Any]
    instances: list[tuple[str, Any, bool]]


def corpora() -> Path | None:
    """The folder with the corpora, None where there is none."""
    folder = Path(os.environ.get("SGLSPEC_CORPORA", ""))
    return folder if (folder / "maskbench-sample.jsonl.gz").is_file() else None


def maskbench(folder: Path, every: int = 1) -> Iterator[Case]:
    """Every so many of the sample's schemas."""
    with gzip.open(folder / "maskbench-sample.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in itertools.islice(file, 0, None, every):
            row = json.loads(line)
            instances = [(f"{i}", test["data"], test["valid"]) for i, test in enumerate(row["tests"])]
            yield Case(row["id"], row["schema"], instances)


def official(folder: Path, every: int = 1) -> Iterator[Case]:
    """Every so many of the official suite's schemas, each said to be of its draft."""
    with gzip.open(folder / "json-schema-test-suite.jsonl.gz", "rt", encoding="utf-8") as file:
        groups = ((row["file"], group) for row in map(json.loads, file) for group in row["groups"])
        for name, group in itertools.islice(groups, 0, None, every):
            if isinstance(group["schema"], dict):
                schema = {"$schema": _DRAFTS[name.split("/")[0]], **group["schema"]}
                instances = [(t["description"], t["data"], t["valid"]) for t in group["tests"]]
                yield Case(f"{name}: {group['description']}", schema, instances)
