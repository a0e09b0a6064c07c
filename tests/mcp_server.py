"""A small MCP server, started by tests: `python mcp_server.py MARK` writes its process id to the file MARK."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ContentBlock, ImageContent, TextContent
from pydantic import BaseModel, Field

server = MCPServer("things")
mark = Path(sys.argv[1])


class Weather(BaseModel):
    city: str
    degrees: float


@server.tool()
def weather(city: str, days: Annotated[int, Field(ge=1)] = 1) -> Weather:
    return Weather(city=city, degrees=20.5 + days)


@server.tool(structured_output=False)
def shout(text: str) -> str:
    return f"{text.upper()} {{{{ 1 + 1 }}}}"


@server.tool(structured_output=False)
def picture() -> list[ContentBlock]:
    return [TextContent(type="text", text="a dot"), ImageContent(type="image", data="AAAA", mime_type="image/png")]


@server.tool(name="odd/name")
def odd() -> None:
    raise ToolError("nothing works")


@server.tool()
async def sleep() -> str:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        mark.with_suffix(".cancelled").write_text("yes")
        raise
    return "late"


@server.tool(structured_output=False)
def long(count: int) -> str:
    return "x" * count


@server.tool()
def leave() -> str:
    os._exit(3)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        mark.write_text(str(os.getpid()))
        server.run("stdio")
