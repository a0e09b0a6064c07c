"""What the language has and this build does not run (S220), each with what does the same today."""

from __future__ import annotations

VERBS = {
    "tool": "Run the tool outside, and give its result to the program as an input.",
    "call": "Run the other program by itself, and give its outputs to this one as inputs.",
    "include": "Write its steps here.",
    "messages": "Repeat over it: `for: m`, `in: history`, and in `do` for each role a step such as "
    '`{if: m.role == "user", then: {user: "{{ m.content }}"}}`.',
    "image": "Describe in text what it shows: this build reads text only.",
    "video": "Describe in text what it shows: this build reads text only.",
    "scratch": "Use a fork of one named branch, whose text is dropped: `fork: {aside: [...]}`.",
}
KEYS = {
    "use": "Write everything into this document.",
    "defs": "Write schemas and patterns where they are used. YAML repeats a part with `&name` and `*name`.",
}
TEXTS = "Bind the text with a `set` step: `set: {rules: Be brief.}`."

__all__ = ["KEYS", "TEXTS", "VERBS"]
