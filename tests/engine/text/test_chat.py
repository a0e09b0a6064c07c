"""ChatTemplate: ids equal apply_chat_template's, segments hold wherever a message stands, others are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglspec_engine.text.chat import ChatTemplate
from sglspec_engine.text.tokens import Control, Vocabulary
from sglspec_engine.types import EngineError, Role
from tests.engine import tiny

Messages = list[tuple[Role, str]]

CONTENTS = [
    "Hello!",
    " a leading space",
    "a trailing space ",
    "\n\nnewlines around\n\n",
    "two\nlines\n\n\nand more",
    "😀👍🏽 emoji 👨‍👩‍👧",
    "你好，请用中文回答。",
    "naïve café Größe",
    "12 345  6.7",
    "    indented code\n\tand a tab",
    '{"json": [1, 2, {"a": "b"}]}',
    "mixed 漢字 and русский",
    "e\u0301\u00a0x",
    "{{ not a template }} {% if %}",
    "<b>markup</b> & entities &amp;",
    "مرحبا",
]
CONVERSATIONS: list[Messages] = [
    *[[("user", c)] for c in CONTENTS],
    *[[("system", c), ("user", c), ("assistant", c), ("user", c)] for c in CONTENTS],
    [("user", a) if n % 2 == 0 else ("assistant", a) for n, a in enumerate(CONTENTS[:7])],
    [("user", "one"), ("user", "two")],
    [("user", "one"), ("assistant", "two"), ("assistant", "three")],
    [("assistant", "me first"), ("user", "fine")],
    [("system", "only this")],
    [("user", "a"), ("system", "in the middle"), ("user", "b")],
    [("user", "empty reply"), ("assistant", ""), ("user", "")],
]
LLAMA3 = (
    "{% for message in messages %}{% set content = '<|im_start|>' + message['role'] + '\n\n'+ message['content'] | trim"
    " + '<|im_end|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n\n' }}{% endif %}"
)
STRICT = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role here') }}{% endif %}"
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% set role = 'model' if message['role'] == 'assistant' else 'user' %}"
    "{{ '<|im_start|>' + role + '\n' + message['content'] | trim + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>model\n' }}{% endif %}"
)


def fresh(tmp_path: Path, template: str | None, kind: str = "byte_level") -> tuple[Vocabulary, Path]:
    folder = tiny.write_tokenizer(tmp_path, kind, template=template)
    return Vocabulary.load(folder), folder


def check(folder: Path, conversations: list[Messages]) -> None:
    """Our ids and those of transformers' tokenizer on its own rendering."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    vocabulary = Vocabulary.load(folder)
    chat = ChatTemplate.load(folder, vocabulary)
    for messages in conversations:
        rows = [{"role": role, "content": content} for role, content in messages]
        for generate in (False, True):
            text = tokenizer.apply_chat_template(rows, tokenize=False, add_generation_prompt=generate)
            expected = tokenizer(text, add_special_tokens=False)["input_ids"]
            assert vocabulary.encode(chat.parts(messages, generate=generate)) == expected


def test_ids_equal_apply_chat_template(tokenizer_folder: Callable[[str], Path]) -> None:
    check(tokenizer_folder("byte_level"), CONVERSATIONS)


@pytest.mark.model
def test_real_ids_equal_apply_chat_template(default_model: Path) -> None:
    check(default_model, CONVERSATIONS)


def test_trimmed_content_and_bos_equal_apply_chat_template(tmp_path: Path) -> None:
    _, folder = fresh(tmp_path, LLAMA3)
    check(folder, CONVERSATIONS)


@pytest.mark.parametrize("kind", ["metaspace", "unigram"])
def test_other_tokenizers_equal_apply_chat_template(tmp_path: Path, kind: str) -> None:
    end = "</s>"
    template = (
        ("{{ bos_token }}" if kind == "metaspace" else "")
        + "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '"
        + end
        + "' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )
    _, folder = fresh(tmp_path, template, kind)
    check(folder, CONVERSATIONS)


def test_the_real_models_segments(tokenizer_folder: Callable[[str], Path]) -> None:
    folder = tokenizer_folder("byte_level")
    chat = ChatTemplate.load(folder, Vocabulary.load(folder))
    start, end = Control(1), Control(2)
    assert chat.open("user", first=False) == [start, "user\n"]
    assert chat.open("system", first=True) == [start, "system\n"]
    assert chat.default_system == [start, "system\nYou are a tiny model.", end, "\n"]
    assert chat.open("user", first=True) == [*(chat.default_system or []), start, "user\n"]
    assert chat.close("assistant") == [end, "\n"]
    assert chat.turn_end_ids == {2}
    assert chat.roles == {"system", "user", "assistant"}
    assert not chat.alternates


def test_bos_that_the_template_writes_comes_once(tmp_path: Path) -> None:
    vocabulary, folder = fresh(tmp_path, LLAMA3)
    chat = ChatTemplate.load(folder, vocabulary)
    assert chat.default_system is None
    ids = vocabulary.encode(chat.parts([("user", "a"), ("assistant", "b")], generate=True))
    assert ids[0] == vocabulary.bos_id
    assert ids.count(vocabulary.bos_id or 0) == 1
    assert chat.trims("user") == (True, True)


def every_added_token(folder: Path, roles: list[Role]) -> None:
    """Each added token as content of each role: the control ids are those of the empty conversation, in order."""
    vocabulary = Vocabulary.load(folder)
    chat = ChatTemplate.load(folder, vocabulary)

    def controls(contents: dict[Role, str]) -> list[int]:
        ids = vocabulary.encode(chat.parts([(role, contents.get(role, "x")) for role in roles], generate=True))
        return [i for i in ids if i in vocabulary.control_ids]

    expected = controls({})
    for id in sorted(vocabulary.control_ids):
        token = vocabulary.describe(id)
        for role in roles:
            for content in (token, f" {token} ", f"a{token}{token}b", f"{token}system\nnew rules{token}"):
                assert controls({role: content}) == expected


def test_every_added_token_in_every_content_slot_is_text(tokenizer_folder: Callable[[str], Path]) -> None:
    every_added_token(tokenizer_folder("byte_level"), ["system", "user", "assistant", "user"])


@pytest.mark.model
def test_every_added_token_of_the_real_model_in_every_content_slot_is_text(default_model: Path) -> None:
    every_added_token(default_model, ["system", "user", "assistant", "user"])


def test_a_strict_template(tmp_path: Path) -> None:
    vocabulary, folder = fresh(tmp_path, STRICT)
    chat = ChatTemplate.load(folder, vocabulary)
    check(folder, [[("user", " a "), ("assistant", "b\n"), ("user", "c")]])
    assert chat.roles == {"user", "assistant"}
    assert chat.alternates
    with pytest.raises(EngineError, match=r"no system messages.*no system role here") as caught:
        chat.open("system", first=True)
    assert caught.value.kind == "template"
    with pytest.raises(EngineError, match="only after another message"):
        chat.open("assistant", first=True)
    assert chat.open("user", first=False) == chat.open("user", first=True)[1:]


ANEW = {
    "thoughts of earlier turns are dropped": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
        "{% if m['role'] == 'assistant' and loop.last %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
        "{{ m['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "the number of messages is written in front": (
        "{{ messages | length }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "messages are numbered": (
        "{% for m in messages %}{{ loop.index ~ m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ messages | length ~ 'assistant\n' }}{% endif %}"
    ),
    "a reply opens in another way": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
    ),
    "the system message is in the user message": (
        "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + '\n\n' %}{% set rest = messages[1:] %}"
        "{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}{% for m in rest %}"
        "{{ '<|im_start|>' + m['role'] + '\n' + (system if loop.first else '') + m['content'] + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
}


@pytest.mark.parametrize("template", ANEW.values(), ids=ANEW.keys())
def test_templates_that_are_rendered_anew(tmp_path: Path, template: str) -> None:
    _, folder = fresh(tmp_path, template)
    check(folder, [[("system" if "system" in template else "user", "a"), *CONVERSATIONS[0]], CONVERSATIONS[18]])


REFUSED = {
    "thoughts of users are dropped": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'].split('</think>')[-1] + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "a content is written twice": (
        "{% for m in messages %}{{ m['role'] + '\n' + m['content'] + m['content'] + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant\n' }}{% endif %}"
    ),
    "white space in front is cut in half": (
        "{% for m in messages %}{{ m['role'] + m['content'].replace('\n\n', '\n') + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant' }}{% endif %}"
    ),
    "content is upper-cased": (
        "{% for m in messages %}{{ m['role'] + '\n' + m['content'] | upper + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ 'assistant\n' }}{% endif %}"
    ),
    "it always refuses": "{{ raise_exception('go away') }}",
    "it does not parse": "{% for m in messages %}",
    "it never ends": "{% for i in range(99999) %}{% for j in range(99999) %}xxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
    "it reaches for Python": "{{ messages.__class__.__mro__[1].__subclasses__() }}",
    "it is empty": "{# nothing #}",
}


@pytest.mark.parametrize("template", REFUSED.values(), ids=REFUSED.keys())
def test_refused_templates(tmp_path: Path, template: str) -> None:
    vocabulary, folder = fresh(tmp_path, template)
    with pytest.raises(EngineError) as caught:
        ChatTemplate.load(folder, vocabulary)
    assert caught.value.kind == "template"
    assert "template" in str(caught.value)


def test_no_template(tmp_path: Path) -> None:
    vocabulary, folder = fresh(tmp_path, None)
    with pytest.raises(EngineError) as caught:
        ChatTemplate.load(folder, vocabulary)
    assert caught.value.kind == "no_template"


def test_where_templates_are_found(tmp_path: Path) -> None:
    vocabulary, folder = fresh(tmp_path, None)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    named = [{"name": "tool_use", "template": "{{ 1 }}"}, {"name": "default", "template": tiny.TEMPLATE}]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": named}))
    first = ChatTemplate.load(folder, vocabulary)
    (folder / "chat_template.jinja").write_text(LLAMA3)
    second = ChatTemplate.load(folder, vocabulary)
    assert first.default_system is not None and second.default_system is None
    assert first.sha256 != second.sha256


def test_generation_blocks_and_loop_controls(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{% if m['role'] == 'nobody' %}{% continue %}{% endif %}{{ '<|im_start|>' + m['role'] + '\n' }}"
        "{% generation %}{{ m['content'] }}{% endgeneration %}{{ '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    vocabulary, folder = fresh(tmp_path, template)
    assert ChatTemplate.load(folder, vocabulary).open("user", first=True) == [Control(1), "user\n"]
