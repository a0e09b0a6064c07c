"""A server, as the commands that ask one see it: where it is, the key, one request after the other.

Plain `http.client`: it follows no redirects, so the key goes to the address that was named and nowhere else.
"""

from __future__ import annotations

import os
import re
import ssl
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import typer

from sglspec.cli.complain import Refused, Texts
from sglspec.cli.exits import UNAVAILABLE
from sglspec.cli.options import wrong
from sglspec.cli.refusal import read_json, refusal, refused
from sglspec.cli.streams import note, printable, put, to_json

DEFAULT = "http://127.0.0.1:8080"
SECONDS = 60.0
"""How long a server may say nothing."""
TRIES = 3
"""Requests before a server that is busy, and says when it will not be, is given up."""
MAX_BYTES = 64_000_000
"""The largest answer that is read."""

_URL = re.compile(r"https?://[A-Za-z0-9._~:\[\]/%-]+")
_KEY = re.compile(r"[!-~]{1,1000}")
_LOOPBACK = re.compile(r"localhost|127\.[0-9.]+|::1")
_MAX_PAUSE = 5.0


@dataclass(frozen=True, slots=True)
class Remote:
    """secure, host, port, path: of the server's address. key: None for a server without keys."""

    secure: bool
    host: str
    port: int | None
    path: str
    key: str | None

    def ask(
        self, method: str, path: str, query: Mapping[str, str | None] | None = None, *,
        headers: Mapping[str, str] | None = None, body: tuple[str, bytes] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:  # fmt: skip
        """The status and body of an answer that is no error. body: its media type and its bytes; names: of the
        files in it, as for `diagnostics`.

        Every request of ours may be repeated: one that finds the server busy is, after the time that it asks for.
        Raises Refused."""
        known = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(known)}" if known else path
        sent = {**(headers or {}), **({} if body is None else {"Content-Type": body[0]})}
        attempt = 1
        while True:
            with self.request(method, target, sent, None if body is None else body[1]) as answer:
                data = answer.read(MAX_BYTES + 1)
                if answer.length and len(data) <= MAX_BYTES:
                    raise IncompleteRead(data)
            if len(data) > MAX_BYTES:
                raise refused(UNAVAILABLE, f"The server's answer has more than {MAX_BYTES // 1_000_000} MB.")
            if answer.status < 300:
                return answer.status, data
            pause = answer.headers.get("Retry-After", "")
            if attempt == TRIES or answer.status not in (429, 503) or not re.fullmatch("[0-9]{1,6}", pause):
                raise refusal(answer.status, data, answer.headers.get("Location"), names)
            time.sleep(min(float(pause), _MAX_PAUSE))
            attempt += 1

    def json(
        self, method: str, path: str, query: Mapping[str, str | None] | None = None, *,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The JSON object of an answer. Raises Refused."""
        return object_of(self.ask(method, path, query, headers=headers)[1])

    @contextmanager
    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Generator[HTTPResponse]:
        """An answer, whatever its status, while it is read. Raises Refused when there is none, and when it breaks."""
        try:
            with self.connection() as connection:
                yield self.send(connection, method, target, headers, body)
        except (OSError, HTTPException) as error:
            raise self.unreachable(error) from None

    @contextmanager
    def connection(self) -> Generator[HTTPConnection]:
        if self.secure:
            context = ssl.create_default_context()
            connection = HTTPSConnection(self.host, self.port, timeout=SECONDS, context=context)
        else:
            connection = HTTPConnection(self.host, self.port, timeout=SECONDS)
        try:
            yield connection
        finally:
            connection.close()

    def send(
        self,
        connection: HTTPConnection,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
    ) -> HTTPResponse:
        """The head of the answer. Raises OSError, HTTPException."""
        with_key = {"Authorization": f"Bearer {self.key}"} if self.key is not None else {}
        connection.request(method, self.path + target, body, {**headers, **with_key})
        return connection.getresponse()

    def unreachable(self, error: Exception) -> Refused:
        help = "Start one with `sglspec serve`, or say with `--server` where it is."
        if isinstance(error, ssl.SSLCertVerificationError):
            help = "SSL_CERT_FILE can name a file with the certificate of who signed it."
            reason = f"its certificate is not valid: {error.verify_message}"
        elif isinstance(error, TimeoutError):
            reason = f"it said nothing for {SECONDS:g} seconds"
        elif isinstance(error, HTTPException):
            reason = "it does not answer as HTTP has it"
        else:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        host = f"[{self.host}]" if ":" in self.host else self.host
        address = f"{'https' if self.secure else 'http'}://{host}{f':{self.port}' if self.port else ''}{self.path}"
        return refused(UNAVAILABLE, f"The server at {address} cannot be asked: {printable(reason).rstrip('.')}.", help)


def object_of(body: bytes) -> dict[str, Any]:
    """Raises Refused."""
    found = read_json(body)
    if not isinstance(found, dict):
        raise refused(UNAVAILABLE, "The server's answer is not that of a server of sglspec.")
    return found  # pyright: ignore[reportUnknownVariableType]


def remote(server: str | None, key_file: Path | None) -> Remote:
    """What the options and the environment name. A usage error when that is wrong."""
    option = "--server" if server is not None or not os.environ.get("SGLSPEC_SERVER") else "SGLSPEC_SERVER"
    url = server if server is not None else os.environ.get("SGLSPEC_SERVER") or DEFAULT
    shape = wrong("A server's address reads like https://sglspec.example.org or http://127.0.0.1:8080.", option)
    if not _URL.fullmatch(url):  # the text may hold a password, so it is not repeated
        raise shape
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise shape from None
    if not host:
        raise shape
    key = _key(key_file)
    if key is not None and parts.scheme == "http" and not _LOOPBACK.fullmatch(host):
        note("sglspec: warning: this address is not https, so everybody on the way can read the key")
    return Remote(parts.scheme == "https", host, port, parts.path.rstrip("/"), key)


def _key(file: Path | None) -> str | None:
    """Messages never repeat it, not even where it stands in place of the file's name."""
    if file is None:
        key, option = os.environ.get("SGLSPEC_API_KEY", "").strip(), "SGLSPEC_API_KEY"
        if not key:
            return None
    else:
        option = "--api-key-file"
        if file.name.startswith("sgs_") and not file.exists():
            raise wrong("This looks like a key. Give the name of a file that holds it.", option)
        try:
            with file.open("rb") as source:
                key = source.read(2000).decode("ascii", "replace").strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no name of a file"
            raise wrong(f"The file {str(file)!r} cannot be read: {reason}.", option) from None
    if not _KEY.fullmatch(key):
        raise wrong("There is no key in it: one line of visible ASCII characters.", option)
    return key


@contextmanager
def complaining(texts: Texts | None = None) -> Generator[None]:
    """What a server refuses is shown, and ends the command."""
    try:
        yield
    except Refused as refusal:
        (texts or Texts()).complain(refusal.diagnostics)
        raise typer.Exit(refusal.code) from None


def show(text: str) -> None:
    """Print what a server sent: as it is, but nothing that a terminal would obey."""
    put(printable(text) if sys.stdout.isatty() else text)


def show_json(value: Any, *, indent: int | None = 2) -> None:
    show(to_json(value, indent=indent))


def cell(face: Mapping[str, Any], name: str) -> str:
    """A value in a table."""
    value = face.get(name)
    return "-" if value is None or value == "" else str(value)


def moment(face: Mapping[str, Any], name: str) -> str:
    """A time in a table, without fractions of seconds."""
    return re.sub(r"\.[0-9]+", "", cell(face, name))
