"""Did you mean …?"""

from __future__ import annotations

import pytest

from sglspec.diagnostics.suggest import nearest

VERBS = ["system", "user", "assistant", "gen", "select", "set", "for", "fork", "while", "max_tokens", "min_tokens"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("usr", "user"),
        ("User", "user"),
        ("sytsem", "system"),
        ("asistant", "assistant"),
        ("assistent", "assistant"),
        ("geN", "gen"),
        ("gne", "gen"),
        ("max_token", "max_tokens"),
        ("nax_tokens", "max_tokens"),
        ("wile", "while"),
        ("fro", "for"),
        ("x", None),
        ("", None),
        ("generate", None),
        ("zzzz", None),
        ("s" * 1000, None),
    ],
)
def test_nearest(word: str, expected: str | None) -> None:
    assert nearest(word, VERBS) == expected


def test_the_same_start_wins_then_the_earlier() -> None:
    assert nearest("cat", ["bat", "car"]) == "car"
    assert nearest("cat", ["hat", "bat"]) == "hat"


def test_the_word_itself_is_no_suggestion() -> None:
    assert nearest("user", ["user"]) is None
    assert nearest("anything", []) is None
