"""What the language has and this build does not run (S220), each with what does the same today."""

from __future__ import annotations

VERBS = {
    "image": "Describe in text what it shows: this build reads text only.",
    "video": "Describe in text what it shows: this build reads text only.",
}

__all__ = ["VERBS"]
