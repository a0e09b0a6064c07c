"""A short soak of the server; `make streams` is the long one."""

from __future__ import annotations

from tests.soak.server import soak


async def test_many_streams_and_more_requests_than_places() -> None:
    measured = await soak(streams=30, seconds=4, rate=10)
    assert measured["streams"] == 30
    assert measured["refused"] == 90
