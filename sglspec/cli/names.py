"""Names of what a server has. What has not their form is not even asked for, so an address is never built of it."""

from __future__ import annotations

import re

from sglspec.cli.options import wrong

_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
_VERSION = re.compile(r"[0-9]{1,9}|sha256:[0-9a-f]{64}|[a-z][a-z0-9-]{0,62}")
_RUN = re.compile(r"run_[0-9a-f]{28}")


def program_name(text: str, option: str) -> str:
    if not _NAME.fullmatch(text):
        raise wrong("A name has 1 to 63 characters: a-z, 0-9 and -, a letter first.", option)
    return text


def program_reference(text: str, option: str) -> str:
    name, at, version = text.partition("@")
    program_name(name, option)
    if at and not _VERSION.fullmatch(version):
        raise wrong("Behind the @ stands a number, sha256:DIGEST, or an alias.", option)
    return text


def is_reference(text: str) -> bool:
    """Whether a text has the form of `NAME` or `NAME@VERSION`. Paths of documents have a dot or a slash."""
    name, at, version = text.partition("@")
    return bool(_NAME.fullmatch(name)) and (not at or bool(_VERSION.fullmatch(version)))


def run_id(text: str, option: str) -> str:
    if not _RUN.fullmatch(text):
        raise wrong("A run's id is run_ and 28 digits or letters from a to f.", option)
    return text
