# pyright: basic
"""Loading a model folder: the one place, with the attention adapter, that meets transformers.

Safetensors only, no code of the model's own, nothing fetched. torch and transformers are imported when a model is
loaded, not before.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglspec_engine.model.compat import Compatibility, check_folder, check_model
from sglspec_engine.text.chat import ChatTemplate
from sglspec_engine.text.files import read_json
from sglspec_engine.text.tokens import Vocabulary
from sglspec_engine.types import EngineError


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready for inference, and what its folder says about text.

    model: the transformers model, in evaluation mode, without gradients. config: its text configuration.
    chat: the chat template, or the error to raise when a program uses roles. eos_ids: ids that end a generation
    (the folder's, and the template's turn end). max_context: positions the model was made for, in tokens.
    report: the compatibility report (its problems are empty, or the model would not have loaded).
    """

    model: Any
    config: Any
    vocabulary: Vocabulary
    chat: ChatTemplate | EngineError
    eos_ids: frozenset[int]
    max_context: int
    name: str
    report: Compatibility


def load_model(
    path: Path, *, dtype: str = "float32", attn_implementation: str = "eager", device: str = "cpu"
) -> LoadedModel:
    """Load the Hugging Face folder `path`.

    `dtype` is a torch floating type by name. `attn_implementation` is a name that transformers knows (register one
    first). Raises EngineError("unsupported") with the reason for a model that cannot be run right.
    """
    raw = read_json(path / "config.json")
    check_folder(raw).require()
    vocabulary = Vocabulary.load(path)
    config, report = _configuration(path)
    rows = getattr(config, "vocab_size", 0)
    if vocabulary.size > rows:
        raise EngineError("unsupported", f"the tokenizer has {vocabulary.size} tokens but the model only {rows}")
    model = _move(_weights(path, dtype, attn_implementation), device_called(device))
    chat = _chat(path, vocabulary)
    turn_end = chat.turn_end_ids if isinstance(chat, ChatTemplate) else frozenset()
    return LoadedModel(
        model=model,
        config=model.config.get_text_config(),
        vocabulary=vocabulary,
        chat=chat,
        eos_ids=vocabulary.eos_ids | turn_end,
        max_context=int(getattr(config, "max_position_embeddings", 0) or 0) or _no_context(),
        name=_name(path),
        report=report,
    )


def compatibility(path: Path) -> Compatibility:
    """The report on a model folder, without reading its weights. EngineError if the folder cannot be read."""
    first = check_folder(read_json(path / "config.json"))
    return first if first.problems else _report(path)[1]


def _configuration(path: Path) -> tuple[Any, Compatibility]:
    config, report = _report(path)
    report.require()
    return config, report


def _report(path: Path) -> tuple[Any, Compatibility]:
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(path, trust_remote_code=False, local_files_only=True)
        text = config.get_text_config()
        model_class: Any = transformers.AutoModelForCausalLM._model_mapping[type(config)]
    except (KeyError, ValueError, OSError) as error:
        raise EngineError("unsupported", f"transformers has no text model for {path.name}: {_line(error)}") from None
    return text, check_model(text, model_class)


def _weights(path: Path, dtype: str, attn_implementation: str) -> Any:
    import transformers

    kind = type_called(dtype)
    try:
        with _quiet():
            loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
                path,
                dtype=kind,
                attn_implementation=attn_implementation,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
            )
    except Exception as error:  # the libraries share no base class for what a damaged file makes them raise
        raise EngineError("unsupported", f"the model in {path.name} cannot be loaded: {_line(error)}") from None
    model, info = loaded
    absent = sorted(info.get("missing_keys", ())) + sorted(str(key) for key in info.get("mismatched_keys", ()))
    if absent:
        raise EngineError("unsupported", f"the model in {path.name} lacks weights ({absent[0]}, {len(absent)} in all)")
    return model.eval().requires_grad_(False)


def _move(model: Any, device: Any) -> Any:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:  # too little memory there
        why = "it has too little memory" if "memory" in str(error) else "torch refuses it"
        raise EngineError("unsupported", f"the model cannot be put on device {device}: {why}") from None


def type_called(name: str) -> Any:
    """torch's floating type called `name`. Raises EngineError("unsupported") for anything else."""
    import torch

    kind = getattr(torch, name, None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise EngineError("unsupported", f"{name!r} is not a floating type")
    return kind


def device_called(name: str) -> Any:
    """The device called `name`. Raises EngineError("unsupported") for one that is not here."""
    import torch

    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        which = "`cpu` is always there, `cuda` where torch was built for it and finds a device"
        raise EngineError("unsupported", f"there is no device {name!r} here; {which}") from None
    if device.type == "meta":
        raise EngineError("unsupported", "nothing can be computed on the device 'meta'")
    return device


def _chat(path: Path, vocabulary: Vocabulary) -> ChatTemplate | EngineError:
    """A model without a usable template still serves programs without roles."""
    try:
        return ChatTemplate.load(path, vocabulary)
    except EngineError as error:
        return error


def _name(path: Path) -> str:
    """The store's name for the model, else the folder's."""
    try:
        name = json.loads((path / "sglspec.json").read_bytes())["name"]
        return name if isinstance(name, str) else path.name
    except (OSError, ValueError, KeyError, TypeError):
        return path.resolve().name


def _no_context() -> int:
    raise EngineError("unsupported", "the model does not say how long its context may be")


def _line(error: BaseException) -> str:
    """The first line of a message: the libraries append pages of advice."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """No progress bars on the terminal while loading."""
    from transformers.utils import logging

    was = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was:
            logging.enable_progress_bar()
