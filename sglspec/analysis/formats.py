"""What `format` means: for most formats a pattern of our own, for the others llguidance's reading.

RFC 3339 for dates and times, RFC 1123 for host names, RFC 4291 for addresses, RFC 6901 for pointers.
"""

from __future__ import annotations

from typing import Any

_NATIVE = ("duration", "email", "ipv4", "uuid", "uri")

_YEAR_WITH_29 = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_YEAR_WITH_29}-02-29)"
)
# a leap second is the last of a day in UTC; written in another zone it is refused
_TIME = (
    "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+\\-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
    "|23:59:60(?:\\.[0-9]+)?(?:[Zz]|[+\\-]00:00))"
)
# two hyphens in the third and fourth place are for encoded names, which no pattern can check
_LABEL = (
    "[A-Za-z0-9](?:[A-Za-z0-9]|[A-Za-z0-9\\-]{1,2}[A-Za-z0-9]"
    "|[A-Za-z0-9\\-](?:[A-Za-z0-9][A-Za-z0-9\\-]|-[A-Za-z0-9])[A-Za-z0-9\\-]{0,58}[A-Za-z0-9])?"
)
_POINTER = "(?:/(?:[^~/]|~[01])*)*"


def _ipv6() -> str:
    group = "[0-9A-Fa-f]{1,4}"
    byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
    last = f"(?:{group}:{group}|{byte}(?:\\.{byte}){{3}})"
    forms = [f"(?:{group}:){{6}}{last}"]
    for left in range(6):  # groups before `::`, at most
        before = f"(?:{group}(?::{group}){{0,{left - 1}}})?" if left else ""
        after = 5 - left
        forms.append(f"{before}::(?:{group}:){{{after}}}{last}")
    forms += [f"(?:{group}(?::{group}){{0,5}})?::{group}", f"(?:{group}(?::{group}){{0,6}})?::"]
    return "(?:" + "|".join(forms) + ")"


_PATTERNS: dict[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}[Tt]{_TIME}",
    "hostname": f"{_LABEL}(?:\\.{_LABEL})*",
    "ipv6": _ipv6(),
    "json-pointer": _POINTER,
    "relative-json-pointer": f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})",
}
_NUMBERS: dict[str, dict[str, Any]] = {
    "int32": {"minimum": -(2**31), "maximum": 2**31 - 1},
    "int64": {"minimum": -(2**63) + 1024, "maximum": 2**63 - 1024},  # llguidance counts in floating point
    "float": {},
    "double": {},
}

FORMATS = (*_NATIVE, *_PATTERNS)
"""Formats of texts."""
NUMBER_FORMATS = tuple(_NUMBERS)
"""Formats of numbers, as OpenAPI has them."""


def format_schema(name: str) -> dict[str, Any]:
    """A schema that says the same as `format: name`, in keywords that llguidance enforces."""
    if name in _NUMBERS:
        return _NUMBERS[name]
    if name in _NATIVE:
        return {"format": name}
    bound = {"maxLength": 253} if name == "hostname" else {}
    return {"pattern": f"^(?:{_PATTERNS[name]})$", **bound}


__all__ = ["FORMATS", "NUMBER_FORMATS", "format_schema"]
