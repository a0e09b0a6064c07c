"""The local backend behind the protocols that programs see."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglspec.backends.base import (
    Backend,
    EngineError,
    GenRequest,
    RoleClose,
    RoleOpen,
    Session,
    TextSegment,
    TokenBackend,
    TokenSession,
)
from sglspec.backends.local import LocalBackend, open_local
from tests.engine import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build(tmp_path_factory.mktemp("local"))


async def text_of(session: Session, request: GenRequest) -> str:
    return "".join([delta.text async for delta in session.generate(request)])


async def test_a_small_program(folder: Path) -> None:
    backend: Backend = await open_local(folder, threads=1)
    assert isinstance(backend, Backend)
    assert backend.model_name == folder.name
    assert backend.capabilities.chat
    assert backend.capabilities.concat_kv
    backend.require_chat()
    session = await backend.open("main")
    assert isinstance(session, Session)
    await session.extend([RoleOpen("user"), TextSegment("Hi"), RoleClose(), RoleOpen("assistant")])
    branches = await session.fork(2)
    texts = [await text_of(branch, GenRequest(max_tokens=5)) for branch in branches]
    assert texts[0] == texts[1]
    scores = await session.score(["yes", "no"], "length_normalized", label="x")
    assert scores.index in (0, 1)
    await session.concat(branches, "concat")
    assert session.text().endswith(texts[0] * 2)
    assert session.trace()[-1].origin == "generated"
    for one in (*branches, session):
        await one.close()
    await backend.close()
    with pytest.raises(EngineError):
        await text_of(await backend.open(), GenRequest())


async def test_options_that_mean_nothing(folder: Path) -> None:
    for options in ({"nonsense": 1}, {"step_tokens": 0}):
        with pytest.raises(EngineError) as caught:
            await open_local(folder, **options)
        assert caught.value.kind == "unsupported"


async def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        await open_local(tmp_path / "nowhere")


async def test_no_template(tmp_path: Path) -> None:
    path = tiny.build(tmp_path / "plain")
    tiny.write_tokenizer(path, template=None)
    backend = await open_local(path)
    assert isinstance(backend, LocalBackend)
    assert not backend.capabilities.chat
    with pytest.raises(EngineError) as caught:
        backend.require_chat()
    assert caught.value.kind == "no_template"
    await backend.close()


async def test_contexts_of_tokens(folder: Path) -> None:
    backend: Backend = await open_local(folder, threads=1)
    assert isinstance(backend, TokenBackend)
    text = "Hello <|im_end|> again"
    data, control = backend.encode(text), backend.encode(text, control=True)
    end = backend.encode("<|im_end|>", control=True)[-1]
    assert end in control
    assert end not in data
    assert "".join(backend.token_text(id) for id in data) == text
    assert backend.token_text(end) == "<|im_end|>"
    assert b"".join(backend.token_bytes(id) for id in data).decode() == text
    assert backend.token_bytes(end) == b""
    session = await backend.open_tokens(data)
    assert isinstance(session, TokenSession)
    assert session.text() == text
    reading = await session.read(1, top=1)
    assert [place.token and place.token.id for place in reading.places] == [*data[1:], None]
    assert not await backend.flush()
    await session.close()
    assert await backend.flush()
    with pytest.raises(EngineError, match="no token"):
        await backend.open_tokens([backend.vocabulary_size()])
    assert await backend.flush(), "the session that was refused is closed"
    assert backend.max_context() == 512
    await backend.close()


async def test_bos_is_written_once(tmp_path: Path) -> None:
    folder = tiny.write_tokenizer(tiny.build(tmp_path), "metaspace")
    backend = await open_local(folder, threads=1)
    bos = backend.encode("")
    assert len(bos) == 1
    name = backend.token_text(bos[0])
    assert backend.encode(f"{name}Hello", control=True) == backend.encode("Hello", control=True)
    assert backend.encode(f"{name}Hello").count(bos[0]) == 1
    await backend.close()
