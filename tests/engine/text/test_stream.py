"""TextStream against a one-shot oracle, for any cutting of the bytes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglspec_engine.text.stream import TextStream
from sglspec_engine.types import EngineError

ALPHABET = "ab\n é😀"
STOPS = st.lists(st.text(ALPHABET, min_size=1, max_size=4), max_size=4)


def one_shot(data: bytes, stops: list[str], keep: bool) -> tuple[str, str | None, int]:
    """(text, matched, surviving bytes): the stop whose end comes first; of those, the one that begins first."""
    ends = [(data.find(s.encode()) + len(s.encode()), -len(s.encode()), s) for s in stops if s.encode() in data]
    if not ends:
        return data.decode("utf-8", "ignore"), None, len(data)
    end, _, stop = min(ends)
    surviving = end if keep else end - len(stop.encode())
    return data[:surviving].decode("utf-8", "ignore"), stop, surviving


def cut(data: bytes, borders: list[int]) -> list[bytes]:
    points = [0, *sorted(min(b, len(data)) for b in borders), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(points)]


@settings(max_examples=400, deadline=None)
@given(
    text=st.text(ALPHABET, max_size=30),
    stops=STOPS,
    keep=st.booleans(),
    borders=st.lists(st.integers(0, 60), max_size=12),
)
def test_equals_the_one_shot_result(text: str, stops: list[str], keep: bool, borders: list[int]) -> None:
    stream = TextStream(stops, keep)
    shown = [stream.push(chunk) for chunk in cut(text.encode(), borders)]
    shown.append(stream.finish())
    assert ("".join(shown), stream.matched, stream.surviving_bytes) == one_shot(text.encode(), stops, keep)
    assert stream.text == "".join(shown)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=24), borders=st.lists(st.integers(0, 24), max_size=8))
def test_bytes_that_are_no_text(data: bytes, borders: list[int]) -> None:
    stream = TextStream()
    shown = "".join([*(stream.push(chunk) for chunk in cut(data, borders)), stream.finish()])
    assert shown == data.decode("utf-8", "ignore")
    assert stream.surviving_bytes == len(data)


@settings(max_examples=200, deadline=None)
@given(text=st.text(ALPHABET, max_size=30), stops=STOPS)
def test_no_part_of_a_stop_is_ever_shown(text: str, stops: list[str]) -> None:
    stream, shown = TextStream(stops), ""
    for byte in text.encode():
        shown += stream.push(bytes([byte]))
        if stream.matched is not None:
            break
    final = one_shot(text.encode(), stops, False)[0]
    assert final.startswith(shown)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data(), text=st.text(min_size=1, max_size=24), keep=st.booleans())
def test_all_of_unicode(data: st.DataObject, text: str, keep: bool) -> None:
    """Stops out of the text itself, beginnings of them too, over every plane: what was shown is what stays."""
    places = st.integers(0, len(text) - 1)
    stops = data.draw(st.lists(st.tuples(places, st.integers(1, 5)).map(lambda p: text[p[0] : sum(p)]), max_size=3))
    stops += data.draw(st.lists(st.text(min_size=1, max_size=2).map(lambda more: text[-1] + more), max_size=2))
    final, matched, _ = one_shot(text.encode(), stops, keep)
    stream, shown = TextStream(stops, keep), ""
    for chunk in cut(text.encode(), data.draw(st.lists(st.integers(0, 96), max_size=20))):
        shown += stream.push(chunk)
        assert final.startswith(shown)
    shown += stream.finish()
    assert (shown, stream.matched) == (final, matched)
    assert shown.count("\ufffd") <= text.count("\ufffd")


def test_a_stop_across_and_inside_pushes() -> None:
    stream = TextStream(["END"])
    assert [stream.push(b"one E"), stream.push(b"N"), stream.push(b"D two")] == ["one ", "", ""]
    assert (stream.matched, stream.surviving_bytes, stream.finish(), stream.text) == ("END", 4, "", "one ")
    assert stream.push(b"more") == ""


def test_what_looked_like_a_stop_is_shown_once_it_is_none() -> None:
    stream = TextStream(["aab"])
    assert [stream.push(b"aa"), stream.push(b"ac"), stream.push(b"aa"), stream.finish()] == ["", "aaac", "", "aa"]


def test_the_stop_that_is_complete_first_wins() -> None:
    stream = TextStream(["abcd", "bc"])
    assert stream.push(b"abcd") == "a"
    assert stream.matched == "bc"


def test_the_longest_of_those_complete_together_wins() -> None:
    stream = TextStream(["\n", "x\n"], keep_stop=True)
    assert stream.push(b"ax\nb") == "ax\n"
    assert (stream.matched, stream.surviving_bytes) == ("x\n", 3)


def test_half_characters_are_held_back_and_dropped_at_the_end() -> None:
    smile = "😀".encode()
    stream = TextStream()
    assert [stream.push(smile[:2]), stream.push(smile[2:] + smile[:3]), stream.finish()] == ["", "😀", ""]
    assert stream.surviving_bytes == 7


def test_a_replacement_character_that_the_bytes_spell_stays() -> None:
    assert TextStream().push("�".encode()) == "�"


def test_an_unarmed_push_completes_no_stop() -> None:
    stream = TextStream(["\n", "ab"])
    assert stream.push(b"x\n", armed=False) == "x\n"
    assert stream.push(b"a", armed=False) == ""
    assert stream.push(b"b") == ""
    assert stream.matched == "ab"


def test_an_unarmed_stop_does_not_match_later() -> None:
    stream = TextStream(["ab"])
    assert stream.push(b"ab", armed=False) == "ab"
    assert stream.push(b"c") == "c"
    assert stream.matched is None


def test_stops_as_bytes() -> None:
    stream = TextStream([b"\xff\x00"])
    assert stream.push(b"a\xff\x00b") == "a"
    assert stream.surviving_bytes == 1


@pytest.mark.parametrize("stops", [[""], ["a", b""]])
def test_an_empty_stop_is_refused(stops: list[str | bytes]) -> None:
    with pytest.raises(EngineError):
        TextStream(stops)
