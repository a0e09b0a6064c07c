"""Models for the engine's tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sglspec.diagnostics import SpecError
from sglspec.models import resolve
from tests.engine import tiny

DEFAULT_MODEL = "smollm2-135m-instruct"


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    """What a test draws from torch without a generator of its own is the same in every run."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """architecture → the folder of a tiny random model, built once."""
    built: dict[str, Path] = {}

    def get(architecture: str) -> Path:
        if architecture not in built:
            built[architecture] = tiny.build(tmp_path_factory.mktemp(architecture), architecture)
        return built[architecture]

    return get


@pytest.fixture(scope="session")
def tiny_llama(tiny_model: Callable[[str], Path]) -> Path:
    """The folder of a tiny llama."""
    return tiny_model("llama")


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """kind → a folder with only that tiny tokenizer ("byte_level", "metaspace", "unigram")."""
    made: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in made:
            made[kind] = tiny.write_tokenizer(tmp_path_factory.mktemp(kind), kind)
        return made[kind]

    return get


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The real model's folder. Without it the test is skipped, unless SGLSPEC_TEST_MODEL=require."""
    try:
        return resolve(DEFAULT_MODEL)
    except SpecError as error:
        if os.environ.get("SGLSPEC_TEST_MODEL") == "require":
            raise
        pytest.skip(f"{error}; sglspec models pull {DEFAULT_MODEL}")
