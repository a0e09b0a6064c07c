"""What broke other engines in public, as far as no other test is about it, and that the list of all of it is kept up.

README.md in this folder has the list.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from sglspec.analysis.constraints import regex_constraint, schema_constraint
from sglspec.analysis.grammar import matches
from sglspec_engine.types import EngineError, Sampling, TextSegment
from tests.engine import tiny
from tests.engine.drive import collect, ids_of, running

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"`(tests/[\w/]+\.(?:py|yaml))(?:::(\w+))?`")

GRAMMARS: dict[str, str] = {
    "alternatives in Chinese": regex_constraint("你好世界|你好吗|再见，朋友").grammar,
    "characters of many bytes": regex_constraint("[一-龥]{3}🙂{2}é").grammar,
    "the byte 0": regex_constraint(r"a\x00b(c|d)").grammar,
    "the empty text": regex_constraint("").grammar,
    "keys and values that begin with signs": schema_constraint(
        {"type": "object", "properties": {"/": {"const": ">a"}, "€": {"enum": ["/b", ""]}}, "required": ["/", "€"],
         "additionalProperties": False}
    ).grammar,
    "the empty object": schema_constraint({"type": "object", "additionalProperties": False}).grammar,
    "a tag that could be a control token": regex_constraint("<think>(yes|no)</think>").grammar,
    "an array that must not end early": schema_constraint({"type": "array", "items": {"enum": [1, 2]}, "minItems": 4, "maxItems": 4}).grammar,
}  # fmt: skip


@pytest.mark.parametrize("name", GRAMMARS)
async def test_texts_that_grammars_of_others_broke_at(tiny_llama: Path, name: str) -> None:
    """Greedy and sampled: the text matches, streams as it ends, and is the same with forced tokens one by one."""
    grammar = GRAMMARS[name]
    found: list[list[str]] = []
    for forced in (True, False):
        async with running(tiny_llama, forced=forced) as engine:
            texts: list[str] = []
            for key in range(4):
                session = engine.open()
                await session.extend([TextSegment("Q:")])
                before = session.text()
                sampling = Sampling(temperature=1.3 if key else 0.0)
                finish, tokens = await collect(
                    session, grammar=grammar, max_tokens=120, noise_key=key, sampling=sampling
                )
                assert finish.reason in ("constraint", "end")
                assert matches(grammar, finish.text)
                assert "".join(token.text for token in tokens) == finish.text
                assert session.text() == before + finish.text
                texts.append(finish.text)
                await session.close()
            found.append(texts)
    assert found[0] == found[1]


def test_a_bound_of_length_leaves_escapes_writable() -> None:
    grammar = schema_constraint({"type": "string", "maxLength": 2, "pattern": "^[^a]"}).grammar
    for text in (r'"\n"', r'"\"\\"', r'"é\t"', '"b"'):
        assert matches(grammar, text), text
    for text in (r'"\n\n\n"', '"a"', '"bbb"', r'"a"'):
        assert not matches(grammar, text), text


async def test_what_is_refused_leaves_everybody_else_alone(tiny_llama: Path) -> None:
    """A schema or a pattern that does not compile killed servers; here it is the error of its own request."""
    bad = [
        "start: /(/",
        "start: %json {",
        'start: "a',
        "start: b",
        'start: %json {"type": 7}',
        "start: /(?=a)/",
        "",
        "\x00",
    ]
    async with running(tiny_llama) as engine:

        async def attempt(grammar: str) -> str:
            session = engine.open()
            await session.extend([TextSegment("Q")])
            with pytest.raises(EngineError) as caught:
                await collect(session, grammar=grammar)
            await session.close()
            return caught.value.kind

        async def story() -> list[int]:
            session = engine.open()
            await session.extend([TextSegment("Once")])
            _, tokens = await collect(session, max_tokens=24, ignore_eos=True)
            await session.close()
            return [token.id for token in tokens]

        alone = await story()
        beside, *kinds = await asyncio.gather(story(), *(attempt(grammar) for grammar in bad))
        assert beside == alone
        assert set(kinds) == {"constraint"}


async def test_a_text_begins_with_one_bos_whatever_it_spells(tmp_path: Path) -> None:
    """A template or a text that brings BOS along made two of it in many engines."""
    tiny.build(tmp_path)
    tiny.write_tokenizer(tmp_path, "metaspace")
    async with running(tmp_path) as engine:
        bos = engine.vocabulary.bos_id
        assert bos is not None
        for text in ("Hello", "<s>Hello", "<s><s>"):
            session = engine.open()
            await session.extend([TextSegment(text)])
            await collect(session, max_tokens=1, ignore_eos=True)
            prompt = ids_of(session)[:-1]
            assert prompt[0] == bos
            assert bos not in prompt[1:], "content became a control token"
            await session.close()


def test_the_list_names_tests_that_are_there() -> None:
    text = (Path(__file__).parent / "README.md").read_text("utf-8")
    named = ROW.findall(text)
    assert len(named) > 60
    sources: dict[str, str] = {}
    for path, function in named:
        source = sources.setdefault(path, (ROOT / path).read_text("utf-8"))
        assert not function or re.search(rf"def {function}\(", source), f"{path}::{function}"


def rows() -> list[list[str]]:
    text = (Path(__file__).parent / "README.md").read_text("utf-8")
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]


def test_every_row_of_the_list_has_a_test_or_a_reason() -> None:
    table: Any = [row for row in rows() if row[0] not in ("where", "---")]
    assert len(table) > 60
    for where, what, answer in table:
        assert where, what
        assert what, where
        assert ROW.search(answer) or len(answer) > 40, f"{where}: neither a test nor a reason"
