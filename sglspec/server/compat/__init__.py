"""Protocols of others: clients of SGLang and of OpenAI work against this server."""
