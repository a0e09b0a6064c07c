"""The byte table of a vocabulary: which bytes each id adds to a text."""

from __future__ import annotations

import re

from sglspec_engine.text.files import TokenizerFiles, byte_alphabet

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


def byte_table(files: TokenizerFiles) -> list[bytes]:
    """Bytes per id, length = highest id + 1. Special control tokens and holes are b""."""
    size = 1 + max([*files.pieces, *(t.id for t in files.added)], default=-1)
    table = [b""] * size
    if files.kind == "bytes":
        letters = {char: byte for byte, char in byte_alphabet().items()}
        for i, piece in files.pieces.items():
            table[i] = _from_alphabet(piece, letters)
    else:
        for i, piece in files.pieces.items():
            match = _BYTE.match(piece) if files.byte_fallback else None
            table[i] = bytes([int(match[1], 16)]) if match else piece.replace(files.space, " ").encode()
    for token in files.added:
        # Added tokens are spelled in plain text, whatever the vocabulary's alphabet is.
        text = token.content.replace(files.space, " ") if token.is_blank and files.space else token.content
        table[token.id] = b"" if token.special else text.encode()
    return table


def _from_alphabet(piece: str, letters: dict[str, int]) -> bytes:
    """A byte-level piece as bytes; a piece with a foreign character (an unlisted control) is plain text."""
    values = [letters.get(char) for char in piece]
    known = [v for v in values if v is not None]
    return bytes(known) if len(known) == len(values) else piece.encode()
