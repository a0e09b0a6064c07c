"""Where programs, runs and batches are kept: SQLite or Postgres."""

from __future__ import annotations
