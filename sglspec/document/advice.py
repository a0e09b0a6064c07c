"""What to write instead: help for the mistakes that authors really make, each with a line that is right."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from sglspec.document.familiar import FAMILIAR, READY, ROLES, users_of
from sglspec.document.fields import NAME, RESERVED
from sglspec.document.model import TYPE_WORDS, VERBS
from sglspec.document.nodes import Mapping, Node, Scalar, Sequence
from sglspec.document.yaml_place import quoted

MAX_SHOWN = 60
_PLAIN = re.compile(r"[A-Za-z0-9_.][\w .!?;/()+-]*\Z")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*(?:\[\])?)\s*[=:]\s*(\S.*)\Z", re.DOTALL)
_OPERATION = re.compile(r"[A-Za-z_]\w*(?:\.\w+|\s*[-+*/|]\s*\w+)+\Z")
_EACH = re.compile(r"([A-Za-z_]\w*)\s+in\s+(\S.*)\Z", re.DOTALL)
LIST_TYPE = re.compile(r"(?:(?:list|array)\s*[\[<(]\s*(\w+)\s*[\])>]|(\w+)\[\])\Z", re.IGNORECASE)
_DECLARATION = "a type word or a declaration"

_FIXED = ("tokens", "branches", "depth", "iterations", "seconds")
"""Numbers that are no templates."""

MISSING = {
    "max": "Add `max: 10`: at most so many rounds or attempts.",
    "from": 'Add the choices: `from: ["yes", "no"]`.',
    "in": "Add the list: `in: [a, b]`.",
    "then": "Add `then:`, and below it the steps, for example `- gen: answer`.",
    "do": "Add `do:`, and below it the steps, for example `- gen: answer`.",
    "steps": "Add `steps:`, and below it the steps, for example `- gen: answer`.",
    "cases": "Add `cases:`, and below it one line per value, for example `yes: Good.`",
}
"""Required keys → how to add them."""

_BOUNDS = {
    "minimum": "integer", "maximum": "integer", "exclusiveMinimum": "number", "exclusiveMaximum": "number",
    "multipleOf": "integer", "minLength": "string", "maxLength": "string", "format": "string", "items": "array",
    "minItems": "array", "maxItems": "array",
}  # fmt: skip
"""Bounds that `gen` takes in a schema only → the type that they are about."""

_NO_TYPE_OF_GEN = {
    "string": "Without `type` the value is a text. `type: quoted` is one in quotes, as in JSON.",
    "object": "Write `fields:`, and below it one line per field, for example `title: string`.",
    "array": "Write `schema: {type: array, items: {type: string}}`.",
}
"""Types of declarations that are no `type` of a `gen` → what to write there."""

EMPTY = {
    "set": "Write `set: {name: value}`.",
    "cases": "Write one line per value, for example `yes: Good.`",
    "fork": "Write a variable, a number, or one line per branch, for example `pros: Name an advantage.`",
}
"""Keys of mappings that want an entry → how to write one. The others hold steps."""


def flow(node: Node) -> str:
    """A node as YAML on one line, shortened where it is long."""
    shown = _flow(node)
    if len(shown) <= MAX_SHOWN and "\n" not in shown:
        return shown
    return {Sequence: "[…]", Mapping: "{…}", Scalar: "…"}[type(node)]


def _flow(node: Node) -> str:
    match node:
        case Scalar(value=str(), style="plain"):
            return node.text
        case Scalar(value=str()):
            return json.dumps(node.text, ensure_ascii=False)
        case Scalar():
            return node.text or "null"
        case Sequence():
            return "[" + ", ".join(_flow(item) for item in node.items[:20]) + "]"
        case Mapping():
            return "{" + ", ".join(f"{e.key.text}: {_flow(e.value)}" for e in node.entries[:20]) + "}"


def written(text: str) -> str:
    """A text as a value in YAML: in quotes where it may need them."""
    return text if _PLAIN.match(text) else quoted(text)


def wrong_value(key: str, parent: Node | None, node: Node, expected: str) -> str | None:
    """Help for a value of the wrong kind: under `key` of `parent`, where `expected` would be right."""
    if expected == _DECLARATION:
        return _declaration(key, node)
    special = _SPECIAL.get(key)
    if special is not None and (key not in VERBS or (isinstance(parent, Mapping) and _verb(parent) == key)):
        help = special(node)
        if help is not None:
            return help
    if "text" in expected and isinstance(node, Mapping) and len(node.entries) == 1:
        entry = node.entries[0]
        return f'A colon makes a mapping. Put the text in quotes: `"{entry.key.text}: …"`.'
    if "text" in expected and isinstance(node, Sequence):
        return "A list is not a text. Put the text in quotes if it starts with `[`."
    if expected == "an expression" and not isinstance(node, Scalar):
        if key == "messages":
            return "Write the messages as steps, `- user: …`, or the list as an expression in quotes."
        shown = flow(node)
        return f"An expression that starts with a bracket needs quotes: {quoted(shown)}" if "…" not in shown else None
    if expected == "an expression or a list":
        return MISSING.get(key)
    if "number" in expected and isinstance(node, Scalar) and isinstance(node.value, str):
        if node.style in ("single", "double", "json"):
            return "Write the number without quotes."
        if key in _FIXED:
            return None
        if (NAME.match(node.text) and node.text not in RESERVED) or _OPERATION.match(node.text):
            return f'For the value of a variable write "{{{{ {node.text} }}}}".'
    return None


def _verb(node: Mapping) -> str | None:
    return next((name for name in node.names() if name in VERBS), None)


def _listed(node: Node, verb: str, name: str, key: str) -> str | None:
    return f"Write `{verb}: {name}`, and below it `{key}: {flow(node)}`." if isinstance(node, Sequence) else None


def _gen(node: Node) -> str | None:
    if not isinstance(node, Mapping):
        return None
    named = next((e.value for e in node.entries if e.key.text in ("name", "var", "variable", "into", "to")), None)
    name = named.text if isinstance(named, Scalar) and NAME.match(named.text) else "answer"
    rest = [e for e in node.entries if e.value is not named]
    options = ", ".join(f"`{e.key.text}: {flow(e.value)}`" for e in rest[:3])
    return f"Write `gen: {name}`, and its options below it" + (f": {options}." if options else ".")


def _set(node: Node) -> str | None:
    if isinstance(node, Scalar) and (match := _ASSIGNMENT.match(node.text)) and len(node.text) <= MAX_SHOWN:
        return f"Write `set: {{{match[1]}: {match[2]}}}`."
    return "Write `set: {name: value}`."


def _inputs(node: Node) -> str | None:
    names = _names(node)
    return f"Write `inputs: {{{', '.join(f'{name}: string' for name in names or ['topic'])}}}`."


def _outputs(node: Node) -> str | None:
    return f"Write `outputs: [{', '.join(_names(node) or ['answer'])}]`."


def _names(node: Node) -> list[str]:
    nodes = node.items if isinstance(node, Sequence) else (node,)
    words = [n.text for n in nodes if isinstance(n, Scalar) and NAME.match(n.text)]
    return words if len(words) == len(nodes) and len(words) <= 6 else []


_SPECIAL: dict[str, Callable[[Node], str | None]] = {
    "fork": lambda node: _listed(node, "fork", "item", "in"),
    "for": lambda node: _listed(node, "for", "item", "in"),
    "select": lambda node: _listed(node, "select", "choice", "from"),
    "gen": _gen,
    "set": _set,
    "inputs": _inputs,
    "outputs": _outputs,
    "return": lambda _: "Write `return: {answer: …}`, with names of outputs, or `return:` alone.",
    "cases": lambda _: "Write one line per value, for example `yes: Good.`",
}


def _declaration(key: str, node: Node) -> str | None:
    """`tags: [a, b]` where a declaration stands."""
    if not isinstance(node, Sequence):
        return None
    if len(node.items) == 1 and isinstance(node.items[0], Scalar) and node.items[0].text in TYPE_WORDS:
        return f"Write `{key}: {{type: array, items: {node.items[0].text}}}`."
    if node.items and all(isinstance(item, Scalar) for item in node.items):
        return f"Write `{key}: {{enum: {flow(node)}}}` for one of these, or `{key}: {{type: array}}` for a list."
    return f"Write `{key}: {{type: array}}` for a list."


def generation_key(name: str, step: Mapping) -> str | None:
    """Help for a key of declarations and schemas that stands in `gen` itself."""
    value, kind = step.get(name), step.get("type")
    if value is None:
        return None
    if name == "enum":
        variable = step.get("gen")
        shown = variable.text if isinstance(variable, Scalar) and NAME.match(variable.text) else "answer"
        return f"Write `select: {shown}`, and below it `from: {flow(value)}`."
    if name == "properties":
        return "Write `fields:`, and below it one line per field, for example `title: string`."
    if name not in _BOUNDS:
        return None
    word = kind.text if isinstance(kind, Scalar) and kind.text in TYPE_WORDS else _BOUNDS[name]
    place = " in place of `type`" if kind is not None else ""
    return f"Write `schema: {{type: {word}, {name}: {flow(value)}}}`{place}."


def generation_type(text: str) -> str | None:
    """Help for a type of declarations that is no `type` of a `gen`."""
    return _NO_TYPE_OF_GEN.get(FAMILIAR.get(text, text))


def type_word(key: str, text: str) -> str | None:
    """`list[string]`, `string[]` and `string?` where a type word stands."""
    if text.endswith("?") and text[:-1] in TYPE_WORDS:
        return f"Write `{key}: {{type: {text[:-1]}, optional: true}}`."
    match = LIST_TYPE.match(text)
    if match is None:
        return None
    items = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}.get(
        (match[1] or match[2]).lower(), match[1] or match[2]
    )
    return f"Write `{key}: {{type: array, items: {items}}}`."


def bad_name(key: str, text: str) -> str | None:
    """`for: i in items`, `gen: my answer`."""
    each = _EACH.match(text)
    if each is not None and key in ("for", "fork") and len(text) <= MAX_SHOWN:
        return f"Write `{key}: {each[1]}`, and below it `in: {each[2]}`."
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    if name != text and len(text) <= MAX_SHOWN and NAME.match(name) and name not in RESERVED:
        return f"Write `{key}: {name}`." if key in VERBS and key != "set" else f"Write `{name}`."
    return None


def declaration_key(name: str, meant: str | None, value: Node) -> str | None:
    """Help for a key that a declaration does not have; `meant` is the right one, if there is one."""
    if name == "required" or (name == "optional" and meant is None):
        if isinstance(value, Scalar) and value.value is False:
            return "Write `optional: true` instead."
        return "Leave `required` out: everything is required unless it says `optional: true`."
    if name.lower() in ("nullable", "null"):
        return "Write `optional: true`: what is not given is null."
    if meant is None:
        return None
    return f"Write `{meant}: {flow(value)}`."


def lone_key(name: str, before: Node | None) -> tuple[str, str] | None:
    """A step that has keys of a step, but no verb: `- else: …`. `before` is the step above it. Message and help."""
    verbs = users_of(name)
    if not verbs or len(verbs) == len(READY):
        return None
    above = _verb(before) if isinstance(before, Mapping) else None
    if above in verbs:
        help = f"It belongs to the `{above}` above: leave out its `- `, and write `{name}:` right below `{above}:`."
    else:
        shown = ", ".join(f"`{verb}`" for verb in verbs)
        help = f"It belongs to a step with {shown}: write it there, below the verb and without `- `."
    return f"`{name}` is not a step of its own", help


def not_a_step(node: Mapping) -> str | None:
    """Other ways to write steps: `role` and `content`, `type` and `name`."""
    role, content = node.get("role"), node.get("content") or node.get("text")
    if isinstance(role, Scalar) and role.text.lower() in ROLES:
        return f"Write `{ROLES[role.text.lower()]}: {flow(content) if content is not None else '…'}`."
    for key in ("type", "step", "verb", "action", "kind", "op", "name"):
        word = node.get(key)
        if isinstance(word, Scalar) and word.text in READY:
            named = next((node.get(k) for k in ("name", "var", "variable", "into") if k != key and node.get(k)), None)
            return f"The verb is the key: write `{word.text}: {flow(named) if named is not None else '…'}`."
    until = node.get("until")
    if isinstance(until, Scalar):
        return f"Write `while: not ({flow(until)})`, with `max` and `do` below it."
    return None
