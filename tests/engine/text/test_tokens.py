"""Vocabulary: ids equal the model's own tokenizer for ordinary text, and content never becomes a control token."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from sglspec_engine.text.tokens import Control, Vocabulary
from sglspec_engine.types import EngineError

KINDS = ("byte_level", "metaspace", "unigram")
TEXTS = [
    "",
    " ",
    "   ",
    "hello",
    " hello",
    "  two spaces",
    "trailing  ",
    "a\nb\n\n\nc",
    "\t\ttabs\r\n",
    "The answer is 42, or 3.14!",
    '{"key": ["value", 1, null]}',
    "你好，世界。今天天气很好",
    "naïve café Größe über",
    "😀👍🏽👨‍👩‍👧‍👦",
    "مرحبا بالعالم",
    "e\u0301 combining and \u00a0 no-break",
    "\u2581 the space sign itself",
    "\x00\x1f control characters \x7f",
    "def f(x):\n    return x  # comment",
]
# Unicode text, salted with pieces that tokenizers treat in special ways.
PIECES = st.one_of(
    st.text(max_size=12), st.sampled_from([" ", "  ", "    ", "\n", "▁", "<", ">", "|", "table", "sep", "0x0A"])
)
ANY_TEXT = st.lists(PIECES, max_size=8).map("".join)
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Loaded:
    """A vocabulary beside the untouched tokenizer it was read from."""

    def __init__(self, path: Path) -> None:
        self.vocabulary = Vocabulary.load(path)
        self.oracle = Tokenizer.from_file(str(path / "tokenizer.json"))
        self.texts = [self.vocabulary.describe(i) for i in sorted(self.vocabulary.control_ids)]
        rows = json.loads((path / "tokenizer.json").read_text())["added_tokens"]
        self.added = [row["content"] for row in rows if row["content"].strip("▁ \n")]

    def reference(self, text: str) -> list[int]:
        return self.oracle.encode(text, add_special_tokens=False).ids

    def is_ordinary(self, text: str) -> bool:
        return not any(token in text for token in self.added)


@pytest.fixture(scope="module", params=KINDS)
def loaded(request: pytest.FixtureRequest, tokenizer_folder: Callable[[str], Path]) -> Loaded:
    return Loaded(tokenizer_folder(request.param))


@pytest.fixture(scope="module")
def real(default_model: Path) -> Loaded:
    return Loaded(default_model)


def check_equal(loaded: Loaded, text: str) -> None:
    if loaded.is_ordinary(text):
        assert loaded.vocabulary.encode_content(text) == loaded.reference(text)


def check_harmless(loaded: Loaded, text: str) -> None:
    for after in ("start", "text", Control(0)):
        assert loaded.vocabulary.control_ids.isdisjoint(loaded.vocabulary.encode_content(text, after=after))


@pytest.mark.parametrize("text", TEXTS)
def test_ids_equal_the_tokenizers(loaded: Loaded, text: str) -> None:
    assert loaded.is_ordinary(text)
    check_equal(loaded, text)


@QUICK
@given(text=ANY_TEXT)
def test_ids_equal_the_tokenizers_for_any_text(loaded: Loaded, text: str) -> None:
    check_equal(loaded, text)


def test_every_added_token_is_ordinary_text_as_content(loaded: Loaded) -> None:
    for token in loaded.added:
        for text in (token, f"a{token}b", f" {token} ", token * 3, f"{token[:-1]}{token}", f"\n{token}\n"):
            check_harmless(loaded, text)


@QUICK
@given(data=st.data())
def test_no_text_yields_a_control_token(loaded: Loaded, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.one_of(PIECES, st.sampled_from(loaded.added)), max_size=8)))
    check_harmless(loaded, text)


@QUICK
@given(data=st.data())
def test_scaffold_ids_equal_the_tokenizers(loaded: Loaded, data: st.DataObject) -> None:
    tokens = [t for t in loaded.added if t in loaded.texts]
    text = "".join(data.draw(st.lists(st.one_of(PIECES, st.sampled_from(tokens)), max_size=8)))
    # White space at a swallowing token is covered by a case of its own: the two sides differ on exotic characters.
    if "<|eats|>" not in text and "<unk>" not in text:
        assert loaded.vocabulary.encode_scaffold(text) == loaded.reference(text)


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS)
def test_real_ids_equal_the_tokenizers(real: Loaded, text: str) -> None:
    check_equal(real, text)


@pytest.mark.model
@QUICK
@given(text=ANY_TEXT)
def test_real_ids_equal_the_tokenizers_for_any_text(real: Loaded, text: str) -> None:
    check_equal(real, text)
    # This vocabulary has no piece for some bytes that only unassigned characters need; the tokenizer drops those.
    known = {value[0] for value in real.vocabulary.token_bytes if len(value) == 1}
    expected = bytes(byte for byte in text.encode() if byte in known)
    assert real.vocabulary.decode_bytes(real.vocabulary.encode_content(text)) == expected


@pytest.mark.model
def test_real_vocabulary_covers_every_printable_character(real: Loaded) -> None:
    known = {value[0] for value in real.vocabulary.token_bytes if len(value) == 1}
    unused = ("Cn", "Co", "Cs", "Cc")
    missing = [
        c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in unused and not set(c.encode()) <= known
    ]
    assert missing == []


@pytest.mark.model
def test_real_added_tokens_are_ordinary_text_as_content(real: Loaded) -> None:
    assert len(real.added) == 17
    for token in real.added:
        for text in (token, f"a{token}b", f" {token} ", token * 3):
            check_harmless(real, text)
            assert real.vocabulary.decode_bytes(real.vocabulary.encode_content(text)) == text.encode()


@QUICK
@given(text=ANY_TEXT)
def test_byte_level_bytes_are_the_text(tokenizer_folder: Callable[[str], Path], text: str) -> None:
    vocabulary = Vocabulary.load(tokenizer_folder("byte_level"))
    assert vocabulary.decode_bytes(vocabulary.encode_content(text)) == text.encode()


@pytest.mark.parametrize("text", [t for t in TEXTS if "▁" not in t])
def test_metaspace_bytes_are_the_text_with_its_first_space(tokenizer_folder: Callable[[str], Path], text: str) -> None:
    vocabulary = Vocabulary.load(tokenizer_folder("metaspace"))
    prefix = b"" if not text or text.startswith(" ") else b" "
    assert vocabulary.decode_bytes(vocabulary.encode_content(text)) == prefix + text.encode()
    assert vocabulary.decode_bytes(vocabulary.encode_content(text, after="text")) == text.encode()


def test_neighbouring_texts_are_encoded_in_one_piece(loaded: Loaded) -> None:
    vocabulary = loaded.vocabulary
    assert vocabulary.encode(["The ans", "", "wer is", " 4", "2"]) == vocabulary.encode_content("The answer is 42")


def test_the_first_space_depends_on_what_stands_before(tokenizer_folder: Callable[[str], Path]) -> None:
    vocabulary = Vocabulary.load(tokenizer_folder("metaspace"))
    start = vocabulary.control("<s>")
    assert start is not None
    assert vocabulary.decode_bytes(vocabulary.encode(["the"])) == b" the"
    assert vocabulary.decode_bytes(vocabulary.encode([start, "the"])) == b"the"
    assert vocabulary.decode_bytes(vocabulary.encode(["the"], after=start)) == b"the"
    always = Vocabulary.load(tokenizer_folder("unigram"))
    end = always.control("</s>")
    assert end is not None
    assert always.decode_bytes(always.encode([end, "the"])) == b" the"
    assert always.decode_bytes(always.encode(["the"], after="text")) == b"the"


def test_a_token_that_swallows_white_space(tokenizer_folder: Callable[[str], Path]) -> None:
    loaded = Loaded(tokenizer_folder("byte_level"))
    vocabulary = loaded.vocabulary
    text = "a <|eats|> \n b"
    assert vocabulary.encode_scaffold(text) == loaded.reference(text)
    eats = vocabulary.control("<|eats|>")
    assert eats is not None
    assert vocabulary.encode([" \n b"], after=eats) == vocabulary.encode_content("b")


def test_control_tokens_add_their_text_only_if_they_are_not_special(tokenizer_folder: Callable[[str], Path]) -> None:
    vocabulary = Vocabulary.load(tokenizer_folder("byte_level"))
    think, end = vocabulary.control("ünï<x>"), vocabulary.control("<|im_end|>")
    assert think is not None and end is not None
    assert vocabulary.token_bytes[think.id] == "ünï<x>".encode()
    assert vocabulary.token_bytes[end.id] == b""
    assert vocabulary.describe(end.id) == "<|im_end|>"
    assert end.id in vocabulary.special_ids and think.id not in vocabulary.special_ids
    assert {end.id, think.id} <= vocabulary.control_ids


def test_runs_of_spaces_in_the_added_table_are_text(tokenizer_folder: Callable[[str], Path]) -> None:
    loaded = Loaded(tokenizer_folder("metaspace"))
    assert 259 not in loaded.vocabulary.control_ids
    assert loaded.vocabulary.token_bytes[259] == b"  "


def test_unknown_characters(tokenizer_folder: Callable[[str], Path]) -> None:
    vocabulary = Vocabulary.load(tokenizer_folder("unigram"))
    assert vocabulary.encode_content("the ☃") == Loaded(tokenizer_folder("unigram")).reference("the ☃")
    assert 2 in vocabulary.encode_content("☃")
    assert 2 not in vocabulary.encode_content("<unk>")
    assert 2 not in vocabulary.control_ids


def test_a_missing_byte_does_not_become_the_unknown_token(
    tmp_path: Path, tokenizer_folder: Callable[[str], Path]
) -> None:
    """Some byte-level vocabularies lack a byte and name their end-of-text token as the unknown one."""
    document = json.loads((tokenizer_folder("byte_level") / "tokenizer.json").read_text())
    del document["model"]["vocab"]["Ą"]  # the byte 0x04
    document["model"]["unk_token"] = "<|endoftext|>"
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    assert Loaded(tmp_path).reference("\x04") == [0]
    vocabulary = Vocabulary.load(tmp_path)
    assert 0 in vocabulary.control_ids
    assert vocabulary.encode_content("a\x04b") == vocabulary.encode_content("ab")


def test_bos_and_end(tokenizer_folder: Callable[[str], Path]) -> None:
    metaspace = Vocabulary.load(tokenizer_folder("metaspace"))
    assert (metaspace.adds_bos, metaspace.bos_id, metaspace.start_parts()) == (True, 1, [Control(1)])
    assert metaspace.eos_ids == {2}
    byte_level = Vocabulary.load(tokenizer_folder("byte_level"))
    assert (byte_level.adds_bos, byte_level.start_parts()) == (False, [])


def test_plain_text_with_bos_equals_the_tokenizers(tokenizer_folder: Callable[[str], Path]) -> None:
    folder = tokenizer_folder("metaspace")
    vocabulary, oracle = Vocabulary.load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = vocabulary.encode([*vocabulary.start_parts(), "Paris"])
    assert ids[0] == oracle.encode("Paris").ids[0] == 1
    assert ids.count(1) == 1


def test_end_ids_come_from_the_generation_config_and_the_tokenizer(
    tmp_path: Path, tokenizer_folder: Callable[[str], Path]
) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tokenizer_folder("byte_level") / name).read_bytes())
    (tmp_path / "config.json").write_text('{"eos_token_id": 7}')
    assert Vocabulary.load(tmp_path).eos_ids == {2, 7}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [0, 5]}')
    assert Vocabulary.load(tmp_path).eos_ids == {0, 2, 5}


def test_half_a_surrogate_pair_is_refused(loaded: Loaded) -> None:
    with pytest.raises(EngineError) as caught:
        loaded.vocabulary.encode_content("a\ud800b")
    assert caught.value.kind == "unsupported"


@pytest.mark.parametrize(
    "change",
    [
        {"model": None},
        {"model": {"type": "WordPiece", "vocab": {"a": 0}}},
        {"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": 10**12}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}, "added_tokens": []},
        {"model": {"type": "Unigram", "vocab": [["a"], 3]}},
        {"added_tokens": [{"id": "x", "content": "y"}]},
        {"added_tokens": "no"},
        {"pre_tokenizer": None, "decoder": None},
        {"pre_tokenizer": {"type": "Nonsense"}},
    ],
)
def test_damaged_tokenizers_are_refused(
    tmp_path: Path, tokenizer_folder: Callable[[str], Path], change: dict[str, object]
) -> None:
    document = json.loads((tokenizer_folder("byte_level") / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(document | change))
    with pytest.raises(EngineError) as caught:
        Vocabulary.load(tmp_path)
    assert caught.value.kind == "unsupported"


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no tokenizer\.json"):
        Vocabulary.load(tmp_path)
