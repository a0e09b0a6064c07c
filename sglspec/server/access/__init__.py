"""Who may do what: API keys, where they are kept, and the gate before every address."""

from __future__ import annotations

from dataclasses import dataclass, field

from sglspec.server.access.hosts import Hosts
from sglspec.server.access.ring import KeyRing


@dataclass(frozen=True, slots=True)
class Access:
    """keys: who may use a server; hosts: by which names."""

    keys: KeyRing = field(default_factory=KeyRing)
    hosts: Hosts = field(default_factory=Hosts)


__all__ = ["Access"]
