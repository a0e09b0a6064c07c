"""Fixtures that several folders use."""

from tests.engine.conftest import default_model, tiny_llama, tiny_model, tokenizer_folder

__all__ = ["default_model", "tiny_llama", "tiny_model", "tokenizer_folder"]
