"""Text → nodes → models, with every structural complaint at its line and column."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from sglspec.diagnostics import Diagnostic, Range, Report
from sglspec.diagnostics.suggest import nearest
from sglspec.document.model import LANGUAGE_VERSION, TAG, VERBS, Case, Decl, Limits, Sampling, Spec
from sglspec.document.nodes import Mapping, Node, Scalar, Sequence, Source, pointer_of, pointers
from sglspec.document.positions import locate_range
from sglspec.document.read import parse
from sglspec.document.remainder import remainder

FAMILIAR = {
    "generate": "gen", "prompt": "user", "message": "user", "human": "user", "ai": "assistant", "bot": "assistant",
    "text": "raw", "choose": "select", "choices": "from", "options": "from", "repeat": "while", "loop": "for",
    "foreach": "for", "each": "for", "parallel": "fork", "branch": "fork", "switch": "match", "case": "cases",
    "let": "set", "assign": "set", "var": "set", "assert": "check", "error": "fail", "raise": "fail", "exit": "return",
    "elif": "else", "steps": "do", "body": "do", "until": "while", "max_iterations": "max", "json": "fields",
    "json_schema": "schema", "pattern": "regex", "max_new_tokens": "max_tokens", "stop_sequences": "stop",
    "temp": "temperature", "output": "outputs", "input": "inputs", "params": "inputs", "parameters": "inputs",
    "program": "steps", "max_length": "maxLength", "min_length": "minLength", "required": "optional",
    "version": "sglspec", "choices_method": "method", "str": "string", "int": "integer",
    "float": "number", "bool": "boolean", "list": "array", "dict": "object", "map": "object",
}  # fmt: skip
"""Words of other tools → ours, for "did you mean"."""

CODES = {
    "extra_forbidden": "S201", "missing": "S202", "missing_key": "S202", "wrong_value": "S203", "unknown_word": "S203",
    "takes_nothing": "S203", "missing_text": "S206", "missing_steps": "S206", "bad_name": "S211",
    "append_name": "S306", "out_of_range": "S212", "structure": "S213", "empty_list": "S215",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Document:
    """A document that is structurally sound. `root` is the node tree, `spec` the models over it."""

    source: Source
    root: Mapping
    spec: Spec

    @cached_property
    def _pointers(self) -> dict[int, str]:
        return pointers(self.root)

    def pointer(self, node: Node) -> str:
        """The JSON pointer of a node or a key; "" for one that is not of this document."""
        return self._pointers.get(id(node), "")

    def diagnostic(self, code: str, message: str, node: Node, **more: Any) -> Diagnostic:
        """A diagnostic at a node."""
        place = node.range
        return Diagnostic(
            code, sentence(message), file=self.source.name, range=place, pointer=self.pointer(node), **more
        )

    def diagnostic_in(self, code: str, message: str, scalar: Scalar, start: int, end: int, **more: Any) -> Diagnostic:
        """A diagnostic at code points `start` to `end` of a scalar's text."""
        place: Range = locate_range(self.source, scalar, start, max(end, start + 1))
        pointer = self.pointer(scalar)
        return Diagnostic(code, sentence(message), file=self.source.name, range=place, pointer=pointer, **more)

    @cached_property
    def name(self) -> str:
        """The program's name: its own, or the file's stem."""
        if self.spec.name:
            return self.spec.name
        stem = self.source.name.replace("\\", "/").rsplit("/", 1)[-1].split(".", 1)[0]
        return stem or "program"


@dataclass(frozen=True, eq=False)
class Partial:
    """What is left of a document with faults in its structure; see `remainder.Remainder`."""

    document: Document
    lost: frozenset[str]
    names_known: bool


def load_document(source: Source, report: Report) -> Document | None:
    """Read and validate. None when the report has errors."""
    document = read_document(source, report)
    return document if isinstance(document, Document) else None


def read_document(source: Source, report: Report) -> Document | Partial | None:
    """Read and validate. With faults in the structure the rest of the document, if there is any to look at."""
    root = parse(source, report)
    if root is None:
        return None
    if not isinstance(root, Mapping):
        report.add(_at(source, root, root, "S203", "a program is a mapping with `sglspec: v1` and `steps`"))
        return None
    if not _version_ok(source, root, report):
        return None
    try:
        spec = Spec.model_validate(root)
    except ValidationError as error:
        for loc, problem in _causes(error):
            report.add(_diagnostic(source, root, loc, problem))
        return _rest(source, root, error)
    return None if report.has_errors else Document(source, root, spec)


def _rest(source: Source, root: Mapping, error: ValidationError) -> Partial | None:
    problems = [(tuple(p["loc"]), p["type"]) for p in error.errors(include_url=False, include_input=False)]
    rest = remainder(root, problems, TAG)
    if rest is None:
        return None
    try:
        return Partial(Document(source, rest.root, Spec.model_validate(rest.root)), rest.lost, rest.names_known)
    except ValidationError:
        return None


def _at(source: Source, root: Node, node: Node, code: str, message: str, help: str | None = None) -> Diagnostic:
    place = node.range
    return Diagnostic(code, sentence(message), file=source.name, range=place, pointer=pointer_of(root, node), help=help)


def sentence(text: str) -> str:
    """A message as a sentence: a capital first (unless a name comes first) and a full stop."""
    text = text[:1].upper() + text[1:]
    return text if text[-1:] in ".!?" else f"{text}."


def _version_ok(source: Source, root: Mapping, report: Report) -> bool:
    node = root.get("sglspec")
    if node is None:
        close = nearest("sglspec", root.names())
        place = root.key(close) if close else (root.entries[0].key if root.entries else root)
        report.add(
            _at(source, root, place or root, "S200", "the document does not say its language version",
                f"Write `sglspec: {LANGUAGE_VERSION}` as the first line.")
        )  # fmt: skip
        return False
    if isinstance(node, Scalar) and node.value == LANGUAGE_VERSION:
        return True
    text = node.text if isinstance(node, Scalar) else ""
    if text[:1] == "v" and text[1:].isdigit():
        message = f"this build knows language version {LANGUAGE_VERSION}, the document wants {text}"
        help = f"Install an sglspec that knows {text}, or rewrite the document for {LANGUAGE_VERSION}."
    else:
        message = f"the language version is written {LANGUAGE_VERSION}"
        help = f"Write `sglspec: {LANGUAGE_VERSION}`."
    report.add(_at(source, root, node, "S200", message, help))
    return False


def _causes(error: ValidationError) -> list[tuple[tuple[Any, ...], Any]]:
    """pydantic's errors without those that a misspelt key causes: `than` for `then` also makes `then` missing."""
    problems = [(tuple(p["loc"]), p) for p in error.errors(include_url=False, include_input=False)]
    meant: set[tuple[Any, ...]] = set()
    for loc, problem in problems:
        if problem["type"] == "extra_forbidden" and (guess := _guess(str(loc[-1]), keys_of(_model_at(loc)))):
            meant.add((*loc[:-1], guess))
    return [(loc, p) for loc, p in problems if not (p["type"] == "missing" and loc in meant)]


def _walk(root: Node, loc: tuple[Any, ...]) -> tuple[Node, list[Node]]:
    """The node that a pydantic location names, and its ancestors. Union tags are skipped (model.TAG); a list
    index over something that is no list is the single step that stands for a list of one."""
    node, parents = root, list[Node]()
    for part in loc:
        if isinstance(part, str) and part.startswith(TAG):
            continue
        following: Node | None = None
        if isinstance(node, Mapping) and isinstance(part, str):
            following = node.get(part)
        elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
            following = node.items[part]
        elif isinstance(part, int):
            continue
        if following is None:
            break
        parents.append(node)
        node = following
    return node, parents


def _diagnostic(source: Source, root: Mapping, loc: tuple[Any, ...], problem: Any) -> Diagnostic:
    kind: str = problem["type"]
    context: dict[str, Any] = problem.get("ctx") or {}
    node, parents = _walk(root, loc)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return _not_a_step(source, root, node)
    if kind == "extra_forbidden":
        return _unknown_key(source, root, loc, parents, node)
    if kind == "missing":
        return _missing_key(source, root, loc, node)
    message = str(problem["msg"])
    help: str | None = None
    place: Node = node
    if "key" in context and isinstance(node, Mapping):
        key = node.key(str(context["key"]))
        place = (node.get(str(context["key"])) if kind == "bad_name" else key) or node
    elif kind == "bad_name" and isinstance(node, Mapping):
        inside = [m for m in (node, node.get("inputs"), node.get("fork")) if isinstance(m, Mapping)]
        place = next((e.key for m in inside for e in m.entries if e.key.text == context.get("text")), node)
    elif isinstance(node, Mapping) and kind in ("structure", "missing_key"):
        place = _verb_key(node) or node
    if kind in ("missing_text", "missing_steps", "takes_nothing") and isinstance(node, Scalar) and node.value is None:
        place = _key_of(node, parents) or node
    if kind == "unknown_word":
        close = _guess(str(context["text"]), list(context["choices"]))
        help = f"Did you mean `{close}`?" if close else None
    if kind == "wrong_value":
        help = _wrong_value_help(node, context)
    return _at(source, root, place, CODES.get(kind, "S203"), message, help)


def _wrong_value_help(node: Node, context: dict[str, Any]) -> str | None:
    expected = str(context.get("expected", ""))
    if "text" in expected and isinstance(node, Mapping) and len(node.entries) == 1:
        entry = node.entries[0]
        return f'A colon makes a mapping. Put the text in quotes: `"{entry.key.text}: …"`.'
    if "text" in expected and isinstance(node, Sequence):
        return "A list is not a text. Put the text in quotes if it starts with `[`."
    if "number" in expected and isinstance(node, Scalar) and isinstance(node.value, str):
        return "Write the number without quotes." if node.style in ("single", "double", "json") else None
    return None


def _verb_key(node: Mapping) -> Scalar | None:
    return next((entry.key for entry in node.entries if entry.key.text in VERBS), None)


def _key_of(node: Node, parents: list[Node]) -> Node | None:
    parent = parents[-1] if parents else None
    if isinstance(parent, Mapping):
        return next((entry.key for entry in parent.entries if entry.value is node), None)
    return None


def _not_a_step(source: Source, root: Mapping, node: Node) -> Diagnostic:
    if isinstance(node, Sequence):
        return _at(source, root, node, "S204", "a list cannot be a step", "Take its items one level up.")
    if not isinstance(node, Mapping) or not node.entries:
        return _at(source, root, node, "S204", "a step is a text or a mapping with a verb", _verbs_help())
    first = node.entries[0].key
    guess = next((g for key in node.names() if (g := _guess(key, list(VERBS)))), None)
    culprit = next((e.key for e in node.entries if _guess(e.key.text, list(VERBS))), first)
    fields = _step_fields()
    if guess is None and all(key in fields for key in node.names()):
        return _at(source, root, first, "S204", "this step has no verb", _verbs_help())
    help = f"Did you mean `{guess}`?" if guess else _verbs_help()
    if guess is None and len(node.entries) == 1 and isinstance(node.entries[0].value, Scalar):
        help = f"If this is a text with a colon, put it in quotes. {_verbs_help()}"
    return _at(source, root, culprit, "S204", f"`{culprit.text}` is not a step", help)


def _verbs_help() -> str:
    return "A step starts with one of: " + ", ".join(VERBS) + "."


def _step_fields() -> set[str]:
    return {key for entry in VERBS.values() for key in keys_of(entry.model)} - set(VERBS)


def keys_of(model: type[Any]) -> list[str]:
    """The keys that authors write for a model's fields."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _guess(word: str, candidates: list[str]) -> str | None:
    if (familiar := FAMILIAR.get(word)) in candidates:
        return familiar
    lowered = word.lower().replace("-", "_")
    return lowered if lowered in candidates else nearest(lowered, candidates)


def _model_at(loc: tuple[Any, ...]) -> type[Any]:
    """The model whose key is wrong: the innermost union tag or model field on the way."""
    model: type[Any] = Spec
    for part in loc[:-1]:
        if isinstance(part, str) and part.startswith(TAG):
            entry = VERBS.get(part.removeprefix(TAG))
            model = entry.model if entry else model
        elif part in ("inputs", "fields", "properties", "items") or (model is Decl and part == "items"):
            model = Decl
        elif part == "defaults" and model is Spec:
            model = Sampling
        elif part in ("limits", "tests") and model is Spec:
            model = Limits if part == "limits" else Case
    return model


def _unknown_key(source: Source, root: Mapping, loc: tuple[Any, ...], parents: list[Node], node: Node) -> Diagnostic:
    parent = parents[-1] if parents else root
    name = str(loc[-1])
    key = (parent.key(name) if isinstance(parent, Mapping) else None) or node
    model = _model_at(loc)
    known = keys_of(model)
    verb = getattr(model, "VERB", "")
    if verb and name in VERBS:
        return _at(
            source, root, key, "S205", f"`{verb}` and `{name}` are two steps",
            f"One step, one verb: start a new line with `- {name}:`.",
        )  # fmt: skip
    guess = _guess(name, known)
    where = f"`{verb}`" if verb else ("a declaration" if model is Decl else "this place")
    message = f"`{name}` does not exist at the top level" if model is Spec else f"{where} has no key `{name}`"
    if guess:
        help = f"Did you mean `{guess}`?"
    else:
        users = [v.name for v in VERBS.values() if name in keys_of(v.model)]
        help = f"`{name}` belongs to {', '.join(users[:3])}. " if users else ""
        help += "Known here: " + ", ".join(known) + "."
    return _at(source, root, key, "S201", message, help)


def _missing_key(source: Source, root: Mapping, loc: tuple[Any, ...], node: Node) -> Diagnostic:
    name = str(loc[-1])
    if isinstance(node, Mapping):
        verb = _verb_key(node)
        if node is root:
            return _at(source, root, node.entries[0].key, "S202", f"`{name}` is missing")
        message = f"`{verb.text}` needs `{name}`" if verb else f"`{name}` is missing"
        return _at(source, root, verb or node, "S202", message)
    return _at(source, root, node, "S202", f"`{name}` is missing")


__all__ = ["Document", "Partial", "keys_of", "load_document", "read_document"]
