"""Stop patterns: where a match is complete first, whatever the bytes were cut into."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglspec_engine.text.patterns import StopPattern
from sglspec_engine.text.stream import TextStream
from sglspec_engine.types import EngineError


def first_match(pattern: str, text: str) -> tuple[int, int] | None:
    """The slow way: the first end at which some match is complete, and the earliest beginning of those."""
    for end in range(1, len(text) + 1):
        for start in range(end):
            if re.fullmatch(pattern, text[start:end]):
                return start, end
    return None


def streamed(pattern: str, pieces: list[bytes], **options: Any) -> tuple[str, list[str], str | None]:
    """The text, the parts it was shown in, and what matched."""
    stream = TextStream((), patterns=[pattern], **options)
    shown = [stream.push(piece) for piece in pieces]
    shown.append(stream.finish())
    return stream.text, shown, stream.matched


PATTERNS = st.recursive(
    st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", r"\d", "é", r"\.", r"[a-c\]]"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0}", "{1,2}", "{0,3}", "{2,}", "*?"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
        inner.map(lambda one: f"(?i:{one})"),
    ),
    max_leaves=6,
)


@given(PATTERNS, st.text("abcABé1.]\n", max_size=14), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=600, deadline=None, derandomize=True)
def test_a_pattern_stops_where_its_first_match_is_complete(pattern: str, text: str, random: Any, keep: bool) -> None:
    if re.fullmatch(pattern, ""):
        with pytest.raises(EngineError, match="empty text"):
            StopPattern(pattern)
        return
    data = text.encode()
    cuts = sorted(random.sample(range(len(data) + 1), min(3, len(data))))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    found, shown, matched = streamed(pattern, pieces, keep_stop=keep)
    expected = first_match(pattern, text)
    if expected is None:
        assert (found, matched) == (text, None)
    else:
        start, end = expected
        assert matched == text[start:end]
        assert found == text[: end if keep else start]
    assert "".join(shown) == found


def test_what_may_become_a_match_is_held_back_and_no_more() -> None:
    stream = TextStream((), patterns=[r"\n+Q\d"])
    assert [stream.push(piece) for piece in (b"one\n", b"\n", b"two", b"\nQ", b"u\n\nQ", b"7 more")] == [
        "one", "", "\n\ntwo", "", "\nQu", "",
    ]  # fmt: skip
    assert stream.matched == "\n\nQ7"
    assert stream.surviving_bytes == len(b"one\n\ntwo\nQu")


def test_stops_of_both_kinds_watch_together() -> None:
    stream = TextStream(["END"], patterns=[r"\d{3}"])
    assert stream.push(b"a12 EN 345") == "a12 EN "
    assert stream.matched == "345"
    stream = TextStream(["END"], patterns=[r"E.D!"])
    assert stream.push(b"a END!") == "a "
    assert stream.matched == "END"


@pytest.mark.parametrize("pattern", [r"(?s)a.b", r"(?is)A.B", r"(?i:A)\n(?s:.)?b", r"\x61\u000ab"])
def test_flags_and_escapes(pattern: str) -> None:
    assert streamed(pattern, [b"xa\nb"])[::2] == ("x", "a\nb")


def test_flags_end_with_their_group() -> None:
    assert streamed(r"(?i:a(?-i:b))c", [b"ABc AbC Abc"])[2] == "Abc"


def test_a_match_below_the_least_length_does_not_count() -> None:
    stream = TextStream((), patterns=["ab"])
    assert stream.push(b"ab", armed=False) + stream.push(b"cab", armed=True) == "abc"
    assert stream.matched == "ab"


def test_characters_that_the_bytes_break_off() -> None:
    stream = TextStream((), patterns=["é!"])
    assert [stream.push(b) for b in (b"x\xc3", b"\xa9", b"?", b"\xff", b"\xc3\xa9!")] == ["x", "", "é?", "", ""]
    assert (stream.text, stream.matched) == ("xé?", "é!")


@pytest.mark.parametrize("pattern", ["(", "a)", "*a", "a{2", "[a", "\\", "(?=a)", r"\q", "(a{99}){99}"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(EngineError, match="stop pattern") as error:
        StopPattern(pattern)
    assert error.value.kind == "unsupported"


def test_nested_repetition_takes_linear_time() -> None:
    found = streamed(r"(?:a+)+(?:a*)*b", [b"a" * 3_000, b"c"])
    assert found[0] == "a" * 3_000 + "c"


def test_what_a_character_costs_is_bounded() -> None:
    """Optional parts one after the other reach each other for free; each state is still looked at once."""
    found = streamed(r"(?:a?){400}Q", [b"a" * 500])
    assert found[0] == "a" * 500
    with pytest.raises(EngineError, match="too large together"):
        TextStream((), patterns=[r"(?:a?){300}Q"] * 8)
