"""Public chat templates, in our own words, with the three kinds of tokenizers: ids equal apply_chat_template's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglspec_engine.text.chat import ChatTemplate
from sglspec_engine.text.tokens import Vocabulary
from sglspec_engine.types import EngineError, Role
from tests.engine.templates import ANEW, TOKENS, write

Messages = list[tuple[Role, str]]

KINDS = ("byte_level", "metaspace", "unigram")
CONTENTS = [
    "Hello!",
    " a leading space",
    "a trailing space ",
    "\n\nlines around\n\n",
    "two\nlines\n\n\nand more",
    "😀👍🏽 emoji",
    "你好，请用中文回答。",
    "naïve café Größe",
    '{"json": [1, 2, {"a": "b"}]}',
    "    indented\n\tand a tab",
    "{{ not a template }} {% if %}",
    "<b>markup</b> & &amp;",
    "x",
]


def conversations(name: str, chat: ChatTemplate) -> Iterator[Messages]:
    """Random ones that the template takes, with every beginning of each."""
    source = random.Random(name)
    for _ in range(12):
        whole: Messages = []
        if "system" in chat.roles and source.random() < 0.6:
            whole.append(("system", source.choice(CONTENTS)))
        for n in range(source.randrange(1, 7)):
            whole.append(("user" if n % 2 == 0 else "assistant", source.choice(CONTENTS)))
            yield list(whole)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TOKENS)
def test_ids_equal_apply_chat_template(tmp_path: Path, name: str, kind: str) -> None:
    from transformers import AutoTokenizer

    folder = write(tmp_path, name, kind)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    vocabulary = Vocabulary.load(folder)
    chat = ChatTemplate.load(folder, vocabulary)
    for messages in conversations(name, chat):
        rows = [{"role": role, "content": content} for role, content in messages]
        for generate in {False, messages[-1][0] == "user"}:
            text = tokenizer.apply_chat_template(rows, tokenize=False, add_generation_prompt=generate)
            expected = tokenizer(text, add_special_tokens=False)["input_ids"]
            assert vocabulary.encode(chat.parts(messages, generate=generate)) == expected, (messages, generate)


@pytest.mark.parametrize("name", TOKENS)
def test_which_templates_are_rendered_anew(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, name, "byte_level")
    chat = ChatTemplate.load(folder, Vocabulary.load(folder))
    assert (chat.anew("system") or chat.anew("user")) == (name in ANEW)
    assert ("system" in chat.roles) == (name not in ("gemma-2", "mistral-v0.1"))
    if "system" not in chat.roles:
        with pytest.raises(EngineError, match="has no system messages"):
            chat.open("system", first=True)
