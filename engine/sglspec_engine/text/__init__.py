"""Text and tokens: vocabularies, chat templates, streaming. Importable without torch."""
