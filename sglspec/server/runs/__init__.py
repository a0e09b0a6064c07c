"""Runs of this process: a queue, slots to run in, their events, and how each one ends."""

from __future__ import annotations

from sglspec.server.runs.live import LiveRun, Order, Outcome
from sglspec.server.runs.manager import Keeping, Runs

__all__ = ["Keeping", "LiveRun", "Order", "Outcome", "Runs"]
