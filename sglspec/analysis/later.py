"""What the language has and this build does not run (S220), each with what does the same today."""

from __future__ import annotations

VERBS = {
    "call": "Run the other program by itself, and give its outputs to this one as inputs.",
    "include": "Write its steps here.",
    "image": "Describe in text what it shows: this build reads text only.",
    "video": "Describe in text what it shows: this build reads text only.",
}
KEYS = {
    "use": "Write everything into this document.",
    "defs": "Write schemas and patterns where they are used. YAML repeats a part with `&name` and `*name`.",
}
TEXTS = "Bind the text with a `set` step: `set: {rules: Be brief.}`."

__all__ = ["KEYS", "TEXTS", "VERBS"]
