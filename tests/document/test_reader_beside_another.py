"""Our YAML reader beside another one for YAML 1.2, ruamel.yaml: what both take means the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode

from sglspec.diagnostics import Report, SpecError
from sglspec.document.nodes import to_python
from sglspec.document.read import parse, source_from_text
from tests.document.untidy import Untidy, tree
from tests.fuzz.run import document

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [
    path
    for folder in ("examples", "specs", "tests/rules", "tests/wrong", "tests/editor")
    for path in sorted((ROOT / folder).rglob("*.yaml"))
]


class _Core(SafeConstructor):
    """Dates are no part of the core schema, and keys are texts."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        for key, _ in node.value:
            if isinstance(key, ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep=deep)


_Core.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)
ELSEWHERE = re.compile("[\x85\u2028\u2029]|[0-9]_|0b")
"""What ruamel.yaml reads as YAML 1.1 does: more line breaks, and more ways to write numbers."""


def theirs(text: str) -> Any:
    reader = YAML(typ="safe", pure=True)
    reader.Constructor = _Core
    return reader.load(text)


def ours(text: str) -> Any:
    """The document's data; None when it cannot be read."""
    try:
        node = parse(source_from_text(text, "t.yaml"), Report())
    except SpecError:
        return None
    return None if node is None else to_python(node)


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same; the keys that `<<` brings may come first or last."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_our_documents(path: Path) -> None:
    text = path.read_text("utf-8")
    mine = ours(text)
    assert mine is None or same(mine, theirs(text))


def test_untidy_documents() -> None:
    taken = 0
    for seed in range(300):
        random = Random(seed)
        text = Untidy(random).document(tree(random))
        mine = ours(text)
        taken += mine is not None
        assert mine is None or same(mine, theirs(text)), text
    assert taken > 270


def test_mutated_documents() -> None:
    """What both read, both read alike; and hardly anything is read by us alone."""
    both = alone = 0
    for number in range(600):
        text, name = document(2, number)
        if not isinstance(text, str) or name.endswith(".json") or len(text) > 5_000 or ELSEWHERE.search(text):
            continue
        mine = ours(text)
        if mine is None:
            continue
        try:
            other = theirs(text)
        except YAMLError:
            alone += 1  # a tab between a key and its value, for one
            continue
        both += 1
        assert same(mine, other), text
    assert both > 200
    assert alone <= both // 50
