"""Documents as nobody should write them, and as YAML allows: random trees in random layouts, full of comments."""

from __future__ import annotations

from random import Random
from typing import Any

TEXTS = [
    "a", "two words", "yes", "null", "7", "1.50", "{{ x }}", "a: b", "it's", 'say "so"', "back\\slash", "- dash", "# no",
    "ends.", "Why?", "a, b", "[x]", "tail ", " lead", "é ü", "", "x\ny", "x\n\n  y\nz\n", "\n", "\nx\n\n\n", "~", "&a", "*b",
    "%p", "@at", "`tick`", "key:", "100 g", "long " * 30, "{a}", "tab\there", "!", "|", ">", "<<", "=", "on", "2026-01-02",
]  # fmt: skip
VALUES = [None, True, False, 0, -3, 2.5, 1e3]
KEYS = ["a", "b", "key", "steps", "two words", "x-y", "no", "it's", "7", "ключ", "$ref", "<<x", "", "a: b"]


def tree(random: Random, depth: int = 0) -> Any:
    kind = random.random()
    if depth == 0 or (depth < 4 and kind < 0.5):
        if depth == 0 or kind < 0.3:
            keys = random.sample(KEYS, random.randint(0 if depth else 1, 4))
            return {key: tree(random, depth + 1) for key in keys}
        return [tree(random, depth + 1) for _ in range(random.randint(0, 4))]
    return random.choice(TEXTS) if kind < 0.85 else random.choice(VALUES)


class Untidy:
    """Writes a tree. Each comment has a number of its own."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.comments = 0

    def document(self, value: Any) -> str:
        head = self.filler(0) + self.random.choice(["", "", "---\n", "%YAML 1.2\n---  # start\n"])
        return head + self.block(value, 0) + self.random.choice(["", "...\n"])

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def comment(self) -> str:
        self.comments += 1
        return f"#{self.random.choice(['', ' ', '!'])}c{self.comments}{self.random.choice(['', '  '])}"

    def filler(self, indent: int) -> str:
        """Lines without meaning."""
        lines: list[str] = []
        while self.maybe(0.2):
            column = max(0, indent + self.random.choice([-2, -1, 0, 0, 1, 3]))
            lines.append(self.random.choice(["", "  ", " " * column + self.comment()]))
        return "".join(line + "\n" for line in lines)

    def tail(self) -> str:
        """The end of a line."""
        blank = " " * self.random.choice([0, 0, 2])
        return (" " * self.random.randint(1, 3) + self.comment() if self.maybe(0.15) else blank) + "\n"

    def block(self, value: Any, indent: int) -> str:
        out = ""
        items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        for key, item in items:
            out += self.filler(indent) + " " * indent
            out += "-" if key is None else self.scalar(key, key=True) + ":"
            out += self.value(item, indent, in_list=key is None)
        return out

    def value(self, value: Any, indent: int, *, in_list: bool) -> str:
        if isinstance(value, (dict, list)) and value and self.maybe(0.7):
            inner = indent + self.random.randint(1, 4)
            if isinstance(value, list) and not in_list and self.maybe(0.3):
                inner = indent
            if in_list and self.maybe(0.6):
                space = self.random.randint(1, 3)
                rest = self.block(value, indent + 1 + space)
                if not rest.lstrip(" ").startswith(("#", "\n")) and not rest.startswith("\n"):
                    return " " * space + rest.lstrip(" ")
                return self.tail() + rest
            return self.tail() + self.block(value, inner)
        if isinstance(value, str) and "\n" in value and self.maybe(0.8):
            return self.block_scalar(value, indent)
        if value is None and self.maybe(0.5):
            return self.tail()
        space = " " * self.random.randint(1, 2)
        if self.maybe(0.1):
            space = self.tail() + self.filler(indent + 2) + " " * (indent + 2)
        return space + self.flow(value, indent) + self.tail()

    def block_scalar(self, text: str, indent: int) -> str:
        depth = self.random.randint(1, 4)
        body = text.rstrip("\n")
        if not body:
            return f" {self.quoted(text)}\n"
        trailing = len(text) - len(body)
        chomp = "-" if trailing == 0 else "+" if trailing > 1 or self.maybe(0.3) else ""
        first = body.lstrip("\n")[:1]
        digit = str(depth) if first == " " or self.maybe(0.3) else ""
        lines = [" " * (indent + depth) + line if line else "" for line in body.split("\n")]
        header = f" |{digit}{chomp}" + ("  " + self.comment() if self.maybe(0.2) else "")
        return "\n".join([header, *lines]) + "\n" * (max(trailing, 1) if chomp == "+" else self.random.randint(1, 3))

    def flow(self, value: Any, indent: int) -> str:
        if not isinstance(value, (dict, list)):
            return self.scalar(value)
        opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
        parts: list[str] = []
        items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        for key, item in items:
            inner = self.flow(item, indent)
            parts.append(inner if key is None else f"{self.scalar(key, key=True)}: {inner}")
        broken = self.maybe(0.3)
        out = opening
        for number, part in enumerate(parts):
            out += ("," if number else "") + (
                self.tail() + " " * (indent + 3) if broken else self.random.choice(["", " "])
            )
            out += part
        return out + (self.tail() + " " * (indent + 1) if broken else self.random.choice(["", " "])) + closing

    def scalar(self, value: Any, *, key: bool = False) -> str:
        if not isinstance(value, str):
            return (
                {None: "null", True: "true", False: "false"}.get(value, repr(value))
                if value is None or isinstance(value, bool)
                else repr(value)
            )
        plain = value.replace(" ", "").replace("-", "").isalpha() and value.strip() == value and value.isascii()
        if plain and value not in ("null", "- dash") and "\n" not in value and self.maybe(0.6):
            return value
        return self.quoted(value)

    def quoted(self, text: str) -> str:
        if "\n" not in text and "\t" not in text and self.maybe(0.5):
            return "'" + text.replace("'", "''") + "'"
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        return f'"{escaped}"'
