"""Fixtures that several folders use, and settings for all property tests."""

from hypothesis import settings

from tests.engine.conftest import default_model, tiny_llama, tiny_model, tokenizer_folder

# The same examples in every run: a failure is found again by whoever looks for it.
settings.register_profile("same-examples", derandomize=True, deadline=None)
settings.load_profile("same-examples")

__all__ = ["default_model", "tiny_llama", "tiny_model", "tokenizer_folder"]
