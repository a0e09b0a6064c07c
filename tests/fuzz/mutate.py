"""Documents made wrong, or odd, in one to four places: all that is chosen follows from the random generator."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import yaml

from sglspec.diagnostics import Report, SpecError
from sglspec.document.nodes import to_python
from sglspec.document.read import parse, source_from_text
from tests.fuzz.seeds import Seed, seeds
from tests.fuzz.words import (
    CHARACTERS,
    EXPRESSIONS,
    KEYS,
    MARKS,
    NUMBERS,
    OPERATORS,
    PATTERNS,
    SCALARS,
    TEMPLATES,
    VALUES,
    VERBS,
)

LONGEST = 2_000
"""Characters of a document to start from; the time for longer ones is better spent on more of the short ones."""
_WORD = re.compile(r"[A-Za-z_$][\w$-]*")
_HOLE = re.compile(r"(\{\{|\{%)(.*?)(\}\}|%\})", re.DOTALL)
_FIELD = re.compile(r"^(\s*(?:- )?(?:if|while|match|check|in|from|for|until)): *(.+)$", re.MULTILINE)


def mutated(random: Random) -> tuple[str | bytes, str]:
    """A document and a name for it; the ending of the name says how it is to be read."""
    seed = random.choice(_short())
    text: str = seed.text
    if random.random() < 0.35:
        text, suffix = _as_tree(random, seed)
    else:
        suffix = seed.format
    for _ in range(random.choice((0, 1, 1, 1, 1, 1, 2, 3))):
        text = random.choice(TEXT)(random, text)
    if random.random() < 0.06:
        return _bytes(random, text.encode("utf-8", "surrogatepass")), f"t.{suffix}"
    return text, f"t.{suffix}"


def _short() -> list[Seed]:
    return [seed for seed in seeds() if len(seed.text) <= LONGEST]


# Bytes, characters and lines


def _bytes(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    kind = random.randrange(6)
    if kind == 0:
        return data[:at] + bytes([random.randrange(256)]) + data[at + random.randrange(2) :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return b"\xef\xbb\xbf" + data
    if kind == 3:
        return data.decode("utf-8", "replace").encode(random.choice(("utf-16", "utf-32", "utf-16-le")))
    if kind == 4:
        return (
            data[:at] + random.choice((b"\0", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80")) + data[at:]
        )
    return data.replace(b"\n", random.choice((b"\r\n", b"\r")))


def _character(random: Random, text: str) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] + random.choice(CHARACTERS) + text[at + random.choice((0, 0, 0, 1)) :]


def _cut(random: Random, text: str) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] + text[at + random.choice((1, 1, 2, 5, 30)) :]


def _mark(random: Random, text: str) -> str:
    """Punctuation of YAML and of templates."""
    at = random.randrange(len(text) + 1)
    return text[:at] + random.choice(MARKS) + text[at:]


def _line(random: Random, text: str) -> str:
    lines = text.split("\n")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(7):
        case 0:
            del lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = " " * random.choice((1, 2, 4)) + lines[at]
        case 4:
            lines[at] = lines[at].removeprefix("  ")
        case 5:
            lines[at : at + 2] = [" ".join(lines[at : at + 2])]
        case _:
            lines[at] = (
                "\t" + lines[at] if random.random() < 0.3 else lines[at] + random.choice((" # c", "  ", "\r", ":"))
            )
    return "\n".join(lines)


def _splice(random: Random, text: str) -> str:
    """A piece of another document."""
    lines, others = text.split("\n"), random.choice(_short()).text.split("\n")
    at, start = random.randrange(len(lines) + 1), random.randrange(len(others))
    lines[at:at] = others[start : start + random.randint(1, 8)]
    return "\n".join(lines)


def _step(random: Random, text: str, step: str) -> str:
    """One more step, among those of the program where they are found. step: its lines, without an indentation."""
    lines = text.split("\n")
    head = next((at for at, line in enumerate(lines) if line.startswith("steps:")), None)
    first = (
        next((line for line in lines[head + 1 :] if line.lstrip().startswith("- ")), None) if head is not None else None
    )
    if head is None or first is None:
        return text
    indent = first[: len(first) - len(first.lstrip())]
    places = [at for at in range(head + 1, len(lines)) if lines[at].startswith(f"{indent}- ")]
    after = (
        at
        for at in range(head + 1, len(lines))
        if lines[at].strip() and not lines[at].startswith((f"{indent}- ", f"{indent} "))
    )
    places.append(next(after, len(lines)))
    at = random.choice(places)
    lines[at:at] = [indent + line for line in step.split("\n")]
    return "\n".join(lines)


# Words, numbers, expressions


def _replaced(random: Random, text: str, pattern: re.Pattern[str], words: Callable[[], str]) -> str:
    found = list(pattern.finditer(text))
    if not found:
        return text
    one = random.choice(found)
    return text[: one.start()] + words() + text[one.end() :]


def _word(random: Random, text: str) -> str:
    """A word becomes another one: of the language, or of this document."""
    own = _WORD.findall(text)
    return _replaced(random, text, _WORD, lambda: random.choice((random.choice(KEYS), random.choice(own or KEYS))))


def _misspelt(random: Random, text: str) -> str:
    def slip(word: str) -> str:
        at = random.randrange(len(word))
        return random.choice(
            (word[:at] + word[at + 1 :], word[:at] + word[at] * 2 + word[at + 1 :], word.upper(), word + "s")
        )

    found = list(_WORD.finditer(text))
    if not found:
        return text
    one = random.choice(found)
    return text[: one.start()] + slip(one[0]) + text[one.end() :]


def _number(random: Random, text: str) -> str:
    return _replaced(random, text, re.compile(r"\b\d+(?:\.\d+)?\b"), lambda: random.choice(NUMBERS))


def _scalar(random: Random, text: str) -> str:
    """What follows a `key: ` becomes something else."""
    return _replaced(random, text, re.compile(r"(?<=: )[^\n,}\]]+"), lambda: random.choice(SCALARS))


def expression(random: Random, depth: int = 0) -> str:
    """An expression that is right more often than not."""
    if depth > 3 or random.random() < 0.3:
        return random.choice(EXPRESSIONS)
    match random.randrange(9):
        case 0 | 1:
            return f"{expression(random, depth + 1)} {random.choice(OPERATORS)} {expression(random, depth + 1)}"
        case 2 | 3:
            return f"{expression(random, depth + 1)} | {random.choice(_functions())}"
        case 4:
            arguments = ", ".join(expression(random, depth + 1) for _ in range(random.randrange(4)))
            return f"{random.choice(_functions())}({arguments})"
        case 5:
            return f"({expression(random, depth + 1)})"
        case 6:
            return f"{expression(random, depth + 1)}[{expression(random, depth + 1)}]"
        case 7:
            return "[" + ", ".join(expression(random, depth + 1) for _ in range(random.randrange(4))) + "]"
        case _:
            parts = [expression(random, depth + 1) for _ in range(3)]
            return f"{parts[0]} if {parts[1]} else {parts[2]}"


def _functions() -> list[str]:
    from sglspec.expressions import LIBRARY

    return [*LIBRARY, "transcript", "messages", "meta", "nothing"]


def _expression(random: Random, text: str) -> str:
    """A new expression in the place of one, or of a value."""
    made = expression(random)
    if random.random() < 0.3:
        made = random.choice(
            ("(" * 70 + made + ")" * 70, made * 40, made[:-1], made.replace(" ", "\n"), f"{made} é 😀")
        )
    if random.random() < 0.5:
        found = list(_FIELD.finditer(text))
        if found:
            one = random.choice(found)
            return text[: one.start(2)] + random.choice((made, json.dumps(made), f"'{made}'")) + text[one.end(2) :]
    if random.random() < 0.5:
        return _replaced(random, text, _HOLE, lambda: "{{ " + made + " }}")
    return _step(random, text, f"- {json.dumps('{{ ' + made + ' }}', ensure_ascii=False)}")


def _template(random: Random, text: str) -> str:
    made = random.choice(TEMPLATES)
    if random.random() < 0.3:
        made *= random.choice((2, 70, 3000))
    if random.random() < 0.5:
        return _replaced(random, text, _HOLE, lambda: made)
    block = "\n    ".join(made.split("\n"))
    return _step(random, text, random.choice((f"- {json.dumps(made)}", f"- user: |\n    {block}")))


def _constraint(random: Random, text: str) -> str:
    """A generation with an odd constraint."""
    key, value = random.choice(PATTERNS)
    block = "\n    ".join(value.split("\n"))
    shown = random.choice((json.dumps(value), f"|\n    {block}")) if key in ("regex", "grammar") else value
    return _step(random, text, f"- gen: odd\n  {key}: {shown}")


# Anchors, depth, size


def _aliases(random: Random, text: str) -> str:
    match random.randrange(6):
        case 0:
            return "x-a: &a [x, x, x]\nx-b: &b [*a, *a, *a]\nx-c: &c [*b, *b, *b]\nx-d: [*c, *c]\n" + text
        case 1:
            return _replaced(random, text, re.compile(r"(?<=: )(?=\S)"), lambda: "&x ")
        case 2:
            return _step(random, text, "- &s {gen: y}\n- *s\n- <<: *s\n  max_tokens: 3")
        case 3:
            return "x-a: &a {<<: *a}\n" + text
        case 4:
            return "x-a: &a {b: 1}\nx-b: &b {<<: *a}\nx-c: {<<: [*a, *b]}\n" + text
        case _:
            count = random.choice((3, 120))
            return _step(random, text, "\n".join(f"- &n{i} [*n{i - 1}]" if i else "- &n0 [x]" for i in range(count)))


def _deep(random: Random, text: str) -> str:
    depth = random.choice((5, 20, 40, 55, 64, 300, 5_000))
    match random.randrange(5):
        case 0:
            return _step(random, text, "- " + "[" * depth + "x" + "]" * depth)
        case 1:
            return _step(random, text, "- " + "{if: true, then: " * depth + "x" + "}" * depth)
        case 2:
            return _step(random, text, "- set: {v: " + '{"a": ' * depth + "1" + "}" * depth + "}")
        case 3:
            lines = [f"{'  ' * i}- {{for: i{i}, in: [1], do: [" for i in range(min(depth, 70))]
            return _step(random, text, "\n".join([*lines, "x", "]}" * len(lines)]))
        case _:
            schema = '{"type": "array", "items": ' * depth + '{"type": "string"}' + "}" * depth
            return _step(random, text, f"- gen: v\n  schema: {schema}")


def _large(random: Random, text: str) -> str:
    match random.randrange(5):
        case 0:
            return text + "# " + "x" * random.choice((1_000, 1_000, 100_000, 1_100_000)) + "\n"
        case 1:
            return _step(random, text, "\n".join(["- x"] * random.choice((50, 50, 50, 1_000))))
        case 2:
            choices = ", ".join(f"c{i}" for i in range(random.choice((50, 50, 600))))
            return _step(random, text, f"- select: s\n  from: [{choices}]")
        case 3:
            steps = [
                f"- set: {{v{i}: '{{{{ v{i - 1} }}}}'}}" if i else "- set: {v0: 1}"
                for i in range(random.choice((20, 20, 200)))
            ]
            return _step(random, text, "\n".join(steps))
        case _:
            return _step(random, text, "- '" + "x{{ 1 }}" * random.choice((10, 10, 1_000, 9_000)) + "'")


TEXT: tuple[Callable[[Random, str], str], ...] = (
    _character, _cut, _mark, _line, _splice, _word, _word, _word, _misspelt, _number, _scalar, _scalar,
    *(_expression,) * 4, _template, _template, *(_constraint,) * 3, _aliases, _deep, _large,
)  # fmt: skip


# Trees


def _as_tree(random: Random, seed: Seed) -> tuple[str, str]:
    """The document as data, changed there, and written in another way."""
    try:
        node = parse(source_from_text(seed.text, f"t.{seed.format}"), Report())
    except SpecError:
        node = None
    if node is None:
        return seed.text, seed.format
    tree: Any = to_python(node)
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        tree = _changed(random, tree)
    match random.randrange(4):
        case 0:
            return json.dumps(tree, ensure_ascii=random.random() < 0.5, indent=random.choice((None, 2))), "json"
        case 1:
            return json.dumps(tree, ensure_ascii=False, indent=random.choice((None, 2))), "yaml"
        case _:
            try:
                flow = random.choice((None, None, False))
                return yaml.safe_dump(tree, allow_unicode=True, sort_keys=False, default_flow_style=flow), "yaml"
            except ValueError:
                return json.dumps(tree), "yaml"


def _value(random: Random) -> Any:
    """One of the values, as an object of its own: it may be changed later."""
    return deepcopy(random.choice(VALUES))


def _changed(random: Random, tree: Any) -> Any:
    """One change in one place of the tree."""
    places: list[tuple[Any, Any]] = []
    waiting = [tree]
    for node in waiting:  # grows while it is walked
        keys = node.keys() if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            places.append((node, key))
            waiting.append(node[key])
    if not places:
        return _value(random)
    node, key = random.choice(places)
    match random.randrange(10):
        case 0:
            del node[key]
        case 1:
            node[key] = _value(random)
        case 2:
            other, there = random.choice(places)
            node[key] = deepcopy(other[there])
        case 3:
            node[key] = [node[key]]
        case 4:
            node[key] = {random.choice(KEYS): node[key]}
        case 5 if isinstance(node, dict):
            entries = [(random.choice(KEYS) if name == key else name, value) for name, value in node.items()]
            node.clear()
            node.update(entries)
        case 6 if isinstance(node, dict):
            node[random.choice(KEYS)] = _value(random)
        case 7 if isinstance(node, list):
            node.insert(random.randrange(len(node) + 1), {random.choice(VERBS): _value(random)})
        case 8 if isinstance(node, dict):
            entries = list(node.items())
            random.shuffle(entries)
            node.clear()
            node.update(entries)
        case _:
            if isinstance(node[key], str):
                node[key] = "{{ " + expression(random) + " }}" if random.random() < 0.6 else expression(random)
            else:
                node[key] = str(node[key])
    return tree
