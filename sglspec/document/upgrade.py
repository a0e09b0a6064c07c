"""`upgrade`: documents in older or other spellings, rewritten to the language of this build.

Only what is certain is changed: words that mean the same elsewhere, and spellings that differ in case, in `-` and `_`,
or in a plural. Every change is an edit of a key or a value in its place. A round of changes may uncover mistakes that
the next one mends; what is kept in the end is the text with the fewest mistakes in its structure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from sglspec.diagnostics import Range, Report
from sglspec.document.advice import LIST_TYPE
from sglspec.document.edit import Edit, edited
from sglspec.document.familiar import FAMILIAR, READY, ROLES, certain, certain_key, step_keys
from sglspec.document.faults import Location, model_at, walk
from sglspec.document.model import LANGUAGE_VERSION, TYPE_WORDS, Decl, Spec
from sglspec.document.nodes import Entry, Mapping, Node, Scalar, Source
from sglspec.document.read import parse

_MAX_ROUNDS = 20
_VERSIONS = frozenset({"1", "1.0", "v1.0", "1.0.0", "v1.0.0", LANGUAGE_VERSION})


def upgrade_source(source: Source, report: Report) -> str | None:
    """The document's text with what is certain changed, or None when it cannot be read; then `report` says why."""
    root = parse(source, report)
    if root is None:
        return None
    if not isinstance(root, Mapping):
        return source.text
    problems = _problems(root)
    best, fewest = source.text, len(problems)
    for _ in range(_MAX_ROUNDS):
        edits = list(_edits(source, root, problems))
        source = edited(source, edits)
        root = parse(source, Report(source.name)) if edits else None
        if not isinstance(root, Mapping):
            break
        problems = _problems(root)
        if len(problems) < fewest:
            best, fewest = source.text, len(problems)
    return best


@dataclass(frozen=True, slots=True)
class _Problem:
    kind: str
    place: Location


def _problems(root: Mapping) -> list[_Problem]:
    """What is wrong with the structure; the version counts as one."""
    version = root.get("sglspec")
    found: list[_Problem] = []
    if not (isinstance(version, Scalar) and version.value == LANGUAGE_VERSION):
        found.append(_Problem("version", ()))
    try:
        Spec.model_validate(root)
    except ValidationError as error:
        problems: list[Any] = error.errors(include_url=False, include_input=False)
        found += [_Problem(problem["type"], tuple(problem["loc"])) for problem in problems]
    return found


def _edits(source: Source, root: Mapping, problems: list[_Problem]) -> Iterator[Edit]:
    for problem in problems:
        node, parents = walk(root, problem.place)
        match problem.kind:
            case "version":
                yield from _version(source, root)
            case "extra_forbidden":
                parent = parents[-1] if parents else root
                entry = parent.entry(str(problem.place[-1])) if isinstance(parent, Mapping) else None
                if isinstance(parent, Mapping) and entry is not None:
                    yield from _key(parent, entry, problem.place)
            case "union_tag_not_found" | "union_tag_invalid" if isinstance(node, Mapping):
                yield from _step(node)
            case "unknown_word" if isinstance(node, Scalar):
                yield from _type(node, str(problem.place[-1]))
            case _:
                pass


def _version(source: Source, root: Mapping) -> Iterator[Edit]:
    entry = root.entry("sglspec")
    if entry is None:
        if not root.entries or root.get("steps") is None:
            return
        first = root.entries[0].key
        written = f'"sglspec": "{LANGUAGE_VERSION}"' if source.format == "json" else f"sglspec: {LANGUAGE_VERSION}"
        flow = source.text[source.offset(root.range.start) :].startswith("{")
        start = first.range.start
        yield Edit(Range(start, start), written + (", " if flow else "\n" + " " * (start.column - 1)))
    elif isinstance(entry.value, Scalar) and entry.value.text.lower() in _VERSIONS:
        yield _rewritten(entry.value, LANGUAGE_VERSION, text=True)


def _key(parent: Mapping, entry: Entry, place: Location) -> Iterator[Edit]:
    """A key that does not exist, and that is called otherwise here."""
    model = model_at(place)
    name = entry.key.text
    if model is Decl and name in ("required", "nullable"):
        if isinstance(entry.value, Scalar) and isinstance(entry.value.value, bool) and parent.get("optional") is None:
            optional = entry.value.value == (name == "nullable")
            yield _rewritten(entry.key, "optional")
            yield _rewritten(entry.value, str(optional).lower())
        return
    kind = parent.get("type")
    meant = certain_key(name, model, kind.text if isinstance(kind, Scalar) else "")
    if meant is not None and parent.get(meant) is None:
        yield _rewritten(entry.key, meant)


def _step(node: Mapping) -> Iterator[Edit]:
    """A step whose verb has another name, or is a `role` with its `content`."""
    names = node.names()
    role = node.get("role")
    if names == ["role", "content"] and isinstance(role, Scalar) and role.text.lower() in ROLES:
        first, second = node.entries
        verb = _rewritten(first.key, ROLES[role.text.lower()])
        yield Edit(Range(first.key.range.start, second.key.range.end), verb.text)
        return
    for entry in node.entries:
        meant = None if entry.key.text in step_keys() else certain(entry.key.text, READY)
        if meant is not None:
            yield _rewritten(entry.key, meant)
            return


def _type(node: Scalar, key: str) -> Iterator[Edit]:
    """`str` for `string`; `string?` and `list[string]` where a whole declaration may stand."""
    word = certain(node.text, TYPE_WORDS)
    if word is not None:
        yield _rewritten(node, word, text=True)
        return
    if key in ("type", "items") or node.style not in ("plain", "json"):
        return
    listed = LIST_TYPE.match(node.text)
    if node.text.endswith("?") and node.text[:-1] in TYPE_WORDS:
        yield Edit(node.range, _declaration(node, ("type", node.text[:-1]), ("optional", True)))
    elif listed is not None:
        inner = (listed[1] or listed[2]).lower()
        inner = FAMILIAR.get(inner, inner)
        if inner in TYPE_WORDS:
            yield Edit(node.range, _declaration(node, ("type", "array"), ("items", inner)))


def _declaration(node: Scalar, *entries: tuple[str, str | bool]) -> str:
    """A mapping on one line, in the manner of its document."""
    quote = '"' if node.style == "json" else ""
    shown = [f"{quote}{k}{quote}: {'true' if v is True else f'{quote}{v}{quote}'}" for k, v in entries]
    return "{" + ", ".join(shown) + "}"


def _rewritten(node: Scalar, word: str, *, text: bool = False) -> Edit:
    """Another word in the quotes of the old one; `text`: in JSON a word needs them even if the old one had none."""
    quoted = node.style in ("double", "single") or (node.style == "json" and (text or not _literal(node)))
    quote = "'" if node.style == "single" else '"' if quoted else ""
    return Edit(node.range, f"{quote}{word}{quote}")


def _literal(node: Node) -> bool:
    return isinstance(node, Scalar) and not isinstance(node.value, str)
