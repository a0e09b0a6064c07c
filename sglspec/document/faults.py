"""What is wrong with a document's structure: pydantic's errors in the author's words, each at its line and column."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from sglspec.diagnostics import MAX_REPORTED, Diagnostic, Report, sentence
from sglspec.document import advice
from sglspec.document.familiar import FAMILIAR, READY, guess, guess_key, offered, step_keys, users_of, verbs_help
from sglspec.document.fields import KEY
from sglspec.document.model import (
    LANGUAGE_VERSION,
    TAG,
    VERBS,
    Case,
    Decl,
    Defs,
    Gen,
    Limits,
    Model,
    Retry,
    Sampling,
    Spec,
    Step,
    StepsDef,
    TextDef,
    Use,
)
from sglspec.document.nodes import Mapping, Node, Scalar, Sequence, Source, pointers

CODES = {
    "extra_forbidden": "S201", "missing": "S202", "missing_key": "S202", "wrong_value": "S203", "unknown_word": "S203",
    "takes_nothing": "S203", "missing_text": "S206", "missing_steps": "S206", "bad_name": "S211",
    "append_name": "S306", "out_of_range": "S212", "structure": "S213", "empty_list": "S215",
}  # fmt: skip

DEFINING: dict[Any, type[Model]] = {"use": Use, "defs": Defs}

Location = tuple[Any, ...]


@dataclass(slots=True)
class Faults:
    """Turns faults into diagnostics. After the first MAX_REPORTED nobody reads the help, so there is none."""

    source: Source
    root: Node
    report: Report
    count: int = 0
    places: dict[int, str] | None = field(default=None)

    def add(self, node: Node, code: str, message: str, help: str | None = None) -> None:
        if self.places is None:
            self.places = pointers(self.root)
        pointer = self.places.get(id(node), "")
        self.count += 1
        self.report.add(
            Diagnostic(code, sentence(message), file=self.source.name, range=node.range, pointer=pointer, help=help)
        )

    def version(self, node: Node) -> None:
        """The language version is not one that this build knows."""
        text = node.text if isinstance(node, Scalar) else ""
        if text[:1] == "v" and text[1:].isdigit():
            message = f"this build knows language version {LANGUAGE_VERSION}, the document wants {text}"
            help = f"Install an sglspec that knows {text}, or rewrite the document for {LANGUAGE_VERSION}."
        else:
            message = f"the language version is written {LANGUAGE_VERSION}"
            help = f"Write `sglspec: {LANGUAGE_VERSION}`."
        self.add(node, "S200", message, help)

    def all(self, error: ValidationError) -> None:
        """Everything that pydantic found."""
        for loc, problem in _causes(error, self.root):
            self._one(loc, problem)

    def _one(self, loc: Location, problem: Any) -> None:
        kind: str = problem["type"]
        context: dict[str, Any] = problem.get("ctx") or {}
        node, parents = walk(self.root, loc)
        if kind in ("union_tag_not_found", "union_tag_invalid"):
            self._not_a_step(node, parents)
        elif kind == "extra_forbidden":
            self._unknown_key(loc, parents, node)
        elif kind == "missing":
            self._missing_key(str(loc[-1]), node)
        else:
            help = self._help(kind, loc, context, node, parents) if self.count < MAX_REPORTED else None
            self.add(
                _place(kind, context, node, parents, _last_key(loc)), CODES.get(kind, "S203"), str(problem["msg"]), help
            )

    def _help(self, kind: str, loc: Location, context: dict[str, Any], node: Node, parents: list[Node]) -> str | None:
        if "help" in context:
            return str(context["help"])
        key = _last_key(loc)
        text = str(context.get("text", ""))
        match kind:
            case "unknown_word":
                known = context["choices"]
                help = advice.generation_type(text) if "quoted" in known else advice.type_word(key, text)
                close = guess(text, list(known))
                return help or (f"Did you mean `{close}`?" if close else None)
            case "wrong_value":
                return advice.wrong_value(key, parents[-1] if parents else None, node, str(context["expected"]))
            case "bad_name":
                return advice.bad_name(key, text)
            case "missing_text" if context.get("what") == "type":
                return f"Write `{key}: string`."
            case "empty_list":
                return advice.EMPTY.get(key, f"Write the steps below `{key}:`, for example `- gen: answer`.")
            case "takes_nothing":
                return f"Write `{key}:` alone."
            case "missing_text" | "missing_steps":
                if parents and isinstance(parents[-1], Sequence):
                    return "Write something behind the `-`, or remove it."
                return advice.MISSING.get(key)
            case _:
                return None

    def _not_a_step(self, node: Node, parents: list[Node]) -> None:
        if isinstance(node, Sequence):
            self.add(node, "S204", "a list cannot be a step", "Take its items one level up.")
            return
        if not isinstance(node, Mapping) or not node.entries:
            self.add(node, "S204", "a step is a text or a mapping with a verb", verbs_help())
            return
        first = node.entries[0].key
        if self.count >= MAX_REPORTED:
            self.add(first, "S204", f"`{first.text}` is not a step")
            return
        help = advice.not_a_step(node)
        strange = [entry.key for entry in node.entries if entry.key.text not in step_keys()]
        guesses = [(key, guess(key.text, READY)) for key in strange]
        culprit, meant = next(((key, found) for key, found in guesses if found), (first, None))
        if help is not None:
            self.add(first, "S204", f"`{first.text}` is not a step", help)
            return
        if not strange:
            lone = advice.lone_key(first.text, _before(node, parents))
            message, help = lone or ("this step has no verb", verbs_help())
            self.add(first, "S204", message, help)
            return
        help = f"Did you mean `{meant}`?" if meant else verbs_help()
        if culprit.text.startswith("-") and culprit.text[1:] in VERBS:
            help = f"A space is missing: write `- {culprit.text[1:]}: …`."
        if meant is None and len(node.entries) == 1 and isinstance(node.entries[0].value, Scalar):
            help = f"If this is a text with a colon, put it in quotes. {verbs_help()}"
        self.add(culprit, "S204", f"`{culprit.text}` is not a step", help)

    def _unknown_key(self, loc: Location, parents: list[Node], node: Node) -> None:
        parent = parents[-1] if parents else self.root
        name = str(loc[-1])
        key = (parent.key(name) if isinstance(parent, Mapping) else None) or node
        model = model_at(loc)
        verb = getattr(model, "VERB", "")
        if verb and name in VERBS:
            message = f"`{verb}` and `{name}` are two steps"
            self.add(key, "S205", message, f"One step, one verb: start a new line with `- {name}:`.")
            return
        where = f"`{verb}`" if verb else ("a declaration" if model is Decl else "this place")
        message = f"`{name}` does not exist at the top level" if model is Spec else f"{where} has no key `{name}`"
        help = self._key_help(name, model, parent, node) if self.count < MAX_REPORTED else None
        self.add(key, "S201", message, help)

    def _key_help(self, name: str, model: type[Model], parent: Node, node: Node) -> str:
        kind = parent.get("type") if isinstance(parent, Mapping) else None
        meant = guess_key(name, model, kind.text if isinstance(kind, Scalar) else "")
        if model is Decl and (help := advice.declaration_key(name, meant, node)) is not None:
            return help
        if model is Gen and isinstance(parent, Mapping) and (help := advice.generation_key(name, parent)) is not None:
            return help
        users = users_of(name) if issubclass(model, Step) else []
        if meant and not name.startswith("-") and (not users or name in FAMILIAR):
            return f"Did you mean `{meant}`?"
        known = "Known here: " + ", ".join(offered(model)) + "."
        if name.startswith("-") and name[1:] in VERBS:
            return f"A space is missing: write `- {name[1:]}: …`."
        if model is Spec and name in VERBS:
            # `messages` at the top is the habit of another format, not our verb
            shown = f"`- {name}: …`" if VERBS[name].ready and name != "messages" else "`- user: …`"
            return f"Steps stand below `steps:`, for example {shown}."
        users = users or users_of(name)
        return f"`{name}` belongs to {', '.join(f'`{user}`' for user in users[:3])}. {known}" if users else known

    def _missing_key(self, name: str, node: Node) -> None:
        place, message = node, f"`{name}` is missing"
        if isinstance(node, Mapping):
            verb = _verb_key(node)
            if verb is not None and node is not self.root:
                message = f"`{verb.text}` needs `{name}`"
            place = node.entries[0].key if node is self.root else (verb or node)
        self.add(place, "S202", message, advice.MISSING.get(name))


def _causes(error: ValidationError, root: Node) -> list[tuple[Location, Any]]:
    """pydantic's errors without those that another one causes: a misspelt key (`than` for `then`) also makes `then`
    missing, and `for: i in items` or `select: [a, b]` hold what is missing in `in` and `from`."""
    problems = [(tuple(p["loc"]), p) for p in error.errors(include_url=False, include_input=False)]
    incomplete = {loc[:-1] for loc, problem in problems if problem["type"] == "missing"}
    meant: set[Location] = set()
    for loc, problem in problems:
        if loc[:-1] not in incomplete:
            continue
        if problem["type"] == "extra_forbidden" and (key := guess_key(str(loc[-1]), model_at(loc))):
            meant.add((*loc[:-1], key))
        elif problem["type"] in ("bad_name", "wrong_value") and loc[-1] in ("for", "select"):
            node, _ = walk(root, loc)
            if isinstance(node, Sequence) or (isinstance(node, Scalar) and " in " in node.text):
                meant |= {(*loc[:-1], "in"), (*loc[:-1], "from")}
    return [(loc, p) for loc, p in problems if not (p["type"] == "missing" and loc in meant)]


def walk(root: Node, loc: Location) -> tuple[Node, list[Node]]:
    """The node that a pydantic location names, and its ancestors. Union tags are skipped (model.TAG); a list
    index over something that is no list is the single step that stands for a list of one, and a list may be one of
    `defs.steps` in its short form."""
    node, parents = root, list[Node]()
    if loc[-1:] == (KEY,):
        node, parents = walk(root, loc[:-1])
        holder = parents[-1] if parents else None
        return (holder.key(loc[-2]) if isinstance(holder, Mapping) else None) or node, parents
    for part in loc:
        if isinstance(part, str) and part.startswith(TAG):
            continue
        following: Node | None = None
        if isinstance(node, Mapping) and isinstance(part, str):
            following = node.get(part)
        elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
            following = node.items[part]
        elif isinstance(part, int) or (part == "steps" and isinstance(node, Sequence)):
            continue
        if following is None:
            break
        parents.append(node)
        node = following
    return node, parents


def model_at(loc: Location) -> type[Model]:
    """The model whose key is wrong: the innermost union tag or model field on the way."""
    model: type[Model] = Spec
    for part in loc[:-1]:
        if isinstance(part, str) and part.startswith(TAG):
            entry = VERBS.get(part.removeprefix(TAG))
            model = entry.model if entry else model
        elif part in ("inputs", "fields", "properties", "items") or (part == "params" and model is StepsDef):
            model = Decl
        elif part in DEFINING and model is Spec:
            model = DEFINING[part]
        elif model is Defs and part in ("texts", "steps"):
            model = TextDef if part == "texts" else StepsDef
        elif part == "defaults" and model is Spec:
            model = Sampling
        elif part == "retry" and model is Gen:
            model = Retry
        elif part in ("limits", "tests") and model is Spec:
            model = Limits if part == "limits" else Case
    return model


def _place(kind: str, context: dict[str, Any], node: Node, parents: list[Node], key: str) -> Node:
    """Where a message points: at the value, or at the key that the fault is about."""
    if "key" in context and isinstance(node, Mapping):
        name = str(context["key"])
        return (node.get(name) if kind == "bad_name" else node.key(name)) or node
    if isinstance(node, Mapping) and kind in ("structure", "missing_key"):
        return _verb_key(node) or node
    if kind in ("missing_text", "missing_steps", "takes_nothing") and isinstance(node, Scalar) and node.value is None:
        parent = parents[-1] if parents else None
        if isinstance(parent, Mapping) and parent.get(key) is node:
            return parent.key(key) or node
    return node


def _last_key(loc: Location) -> str:
    return next((str(p) for p in reversed(loc) if isinstance(p, str) and not p.startswith(TAG)), "")


def _verb_key(node: Mapping) -> Scalar | None:
    return next((entry.key for entry in node.entries if entry.key.text in VERBS), None)


def _before(node: Node, parents: list[Node]) -> Node | None:
    """The item above an item of a list."""
    items = parents[-1].items if parents and isinstance(parents[-1], Sequence) else ()
    at = next((index for index, item in enumerate(items) if item is node), 0)
    return items[at - 1] if at else None
