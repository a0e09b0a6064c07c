"""Which names this server answers to, and which pages may speak to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.?)(?::[0-9]{1,5})?")
_ORIGIN = re.compile(r"https?://(.+)", re.IGNORECASE)
ANY = "*"


class Hosts:
    """Loopback names always; those that are given, and the address that a connection came in on, where there are keys.

    Without keys whoever can connect can run programs. So connections that came in over a network are refused then, also
    where somebody else's command line let the socket listen there. A name that resolves to 127.0.0.1 for a moment (DNS
    rebinding) would let any web page talk to this server as if it were its own: browsers then send that name as `Host`.
    A page of another site that posts here sends its `Origin`.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(name.lower().strip("[]") for name in names)

    def knows(self, authority: str, here: str | None, locked: bool) -> bool:
        """Whether a `Host` is one of ours. here: the address that the connection came in on."""
        match = _AUTHORITY.fullmatch(authority)
        if match is None:
            return False
        name = match[1].lower()
        bare = name.strip("[]").rstrip(".")
        if name == "localhost" or _is_local(name):
            return True
        return locked and (bare == (here or "").lower() or bare in self._names or ANY in self._names)

    def takes(self, origin: str, here: str | None, locked: bool) -> bool:
        """Whether a page of this origin may speak to us."""
        match = _ORIGIN.fullmatch(origin)
        if match is None:
            return False
        # that any name is allowed for us does not allow the pages of all sites
        return Hosts(self._names - {ANY}).knows(match[1], here, locked)


def is_loopback(host: str) -> bool:
    """Whether a name or an address can only mean this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_local(name: str) -> bool:
    return name == "[::1]" or bool(re.fullmatch(r"127(\.[0-9]{1,3}){3}", name))


__all__ = ["ANY", "Hosts", "is_loopback"]
