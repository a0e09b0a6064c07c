"""The formats in which models write the thinking before an answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags around the thinking. lead, tail: what the model writes inside of them, gap: what it writes between the
    closing tag and the answer."""

    open: str
    close: str
    lead: str = ""
    tail: str = ""
    gap: str = ""


_THINK = Tags("<think>", "</think>", "\n", "\n", "\n\n")

PARSERS = {
    "deepseek-r1": _THINK,
    "glm45": Tags("<think>", "</think>", gap="\n"),
    "kimi": Tags("◁think▷", "◁/think▷"),
    "kimi_k2": Tags("<think>", "</think>"),
    "mistral": Tags("[THINK]", "[/THINK]"),
    "qwen3": _THINK,
}
"""By the names that authors write: those of SGLang's reasoning parsers."""
KEYS = ("parser", "open", "close", "budget")
"""Of the mapping that `reasoning` may be."""
