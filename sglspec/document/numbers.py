"""What an unquoted piece of YAML means: the core schema of YAML 1.2.2 (§ 10.3.2), and the numbers we refuse."""

from __future__ import annotations

import math
import re

from sglspec.document.bounds import MAX_INTEGER
from sglspec.document.nodes import Primitive

_WORDS: dict[str, Primitive] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NUMBER_START = frozenset("+-.0123456789")
_MAX_DIGITS = len(str(MAX_INTEGER))


class NumberError(ValueError):
    """A number that cannot be represented; the text of the error is for the author."""


def resolve_plain(text: str) -> Primitive:
    """The value of an unquoted scalar: null, a boolean, a number, or the text itself.

    Raises NumberError for whole numbers beyond ±2^53 and for numbers that are not finite.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    if _INTEGER.fullmatch(text):
        return integer(text)
    if _OCTAL.fullmatch(text):
        return _checked(text[2:], 8)
    if _HEX.fullmatch(text):
        return _checked(text[2:], 16)
    if _FLOAT.fullmatch(text):
        return decimal(text)
    if _NOT_FINITE.fullmatch(text):
        raise NumberError("Infinity and not-a-number are not values here.")
    return text


def integer(text: str) -> int:
    """A decimal whole number, within ±2^53."""
    return _checked(text, 10)


def decimal(text: str) -> float:
    """A number with a fraction or an exponent, finite."""
    value = float(text)
    if not math.isfinite(value):
        raise NumberError("This number is too large to be represented.")
    return value


def _checked(text: str, base: int) -> int:
    # Python refuses to convert thousands of decimal digits, and is slow on hexadecimal ones: count first.
    digits = text.lstrip("+-").lstrip("0")
    longest = {8: 18, 10: _MAX_DIGITS, 16: 14}[base]
    value = int(text, base) if len(digits) <= longest else MAX_INTEGER + 1
    if abs(value) > MAX_INTEGER:
        raise NumberError("This whole number is too large: beyond 9007199254740992 programs disagree about it.")
    return value
