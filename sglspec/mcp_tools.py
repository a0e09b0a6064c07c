"""Tools of MCP servers (Model Context Protocol), through the official package `mcp`.

    with McpServers({"files": ["mcp-server-files", "/data"]}) as servers:
        program = sglspec.load("ask.sglspec.yaml", tools=servers.tools)

A tool is called `server.tool`. Nothing of `mcp` is imported before a server is asked for.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shlex
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from pydantic import ValidationError as InvalidData
from referencing import Registry

from sglspec.tools import Parameter, Tool, ToolError, ToolsFault

CONNECTING = 30.0
"""Seconds that a server has to start and to list its tools."""
_CLOSING = 15.0
_MAX_TOOLS = 10_000
_SERVER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")

Target = str | Sequence[str]
"""The URL of a server (streamable HTTP), or a command with its arguments (standard input and output)."""


def parse_server(text: str) -> tuple[str, Target]:
    """NAME=URL, or NAME=COMMAND with arguments as in a shell, which is not used. Raises ToolsFault."""
    name, _, rest = text.partition("=")
    if not _SERVER.match(name) or not rest.strip():
        raise ToolsFault(f"{text!r} is not of the form NAME=COMMAND or NAME=URL")
    if rest.startswith(("http://", "https://")):
        return name, rest
    try:
        return name, shlex.split(rest)
    except ValueError as error:
        raise ToolsFault(f"the command of the MCP server `{name}` cannot be read: {error}") from None


class McpServers:
    """Connections to servers, by name; while it is entered `tools` are theirs. Leaving it ends the servers it started.

    They live on an event loop of their own, so that tools can be called from any other, or several. Entering raises
    ToolsFault for a server that cannot be reached. A server gets no more of the environment than it needs to start.
    """

    def __init__(self, servers: Mapping[str, Target]) -> None:
        for name in servers:
            if not _SERVER.match(name):
                raise ToolsFault(f"{name!r} is not a name for a server")
        self._servers = servers
        self.tools: tuple[Tool, ...] = ()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._problem: Exception | None = None
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> McpServers:
        if not self._servers:
            return self
        try:
            import mcp  # noqa: F401 # pyright: ignore[reportUnusedImport]
        except ImportError:
            raise ToolsFault("MCP servers need the package `mcp`: run `pip install 'sglspec[mcp]'`") from None
        self._thread = threading.Thread(target=self._run, name="sglspec-mcp", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            self._thread.join()
            raise ToolsFault(str(self._problem)) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is None:
            return
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_CLOSING)
        self._thread = None

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # also what closing a server that is gone raises: nobody waits for it
            self._problem = self._problem or ToolsFault(f"an MCP server failed: {_reason(error)}")
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with AsyncExitStack() as stack:
            stack.enter_context(_quiet())
            found: list[Tool] = []
            for name, target in self._servers.items():
                try:
                    async with asyncio.timeout(CONNECTING):
                        found += await self._connect(name, target, stack)
                except TimeoutError:
                    self._problem = ToolsFault(f"the MCP server `{name}` did not answer within {CONNECTING:g} seconds")
                    return
                except Exception as error:  # whatever transports, processes and servers fail with
                    self._problem = ToolsFault(f"the MCP server `{name}` cannot be used: {_reason(error)}")
                    return
            self.tools = tuple(found)
            self._ready.set()
            await self._stop.wait()

    async def _connect(self, name: str, target: Target, stack: AsyncExitStack) -> list[Tool]:
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client

        if isinstance(target, str):
            client = Client(target)
        else:
            command, *arguments = target
            parameters = StdioServerParameters(command=command, args=arguments)
            client = Client(stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr))
        await stack.enter_async_context(client)
        found: dict[str, Tool] = {}
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor)
            for one in page.tools:
                tool = self._tool(name, target, client, one.name, one.input_schema)
                if tool.name in found:
                    raise ToolsFault(f"it has two tools `{tool.name}`")
                found[tool.name] = tool
            cursor = page.next_cursor
            if not cursor or len(found) > _MAX_TOOLS:
                return list(found.values())

    def _tool(self, server: str, target: Target, client: Any, name: str, schema: Mapping[str, Any]) -> Tool:
        from mcp import MCPError

        async def call(**arguments: Any) -> Any:
            if self._loop is None or self._loop.is_closed():
                raise ToolError("its server has been ended")
            asked = asyncio.run_coroutine_threadsafe(client.call_tool(name, arguments), self._loop)
            try:
                # where the caller leaves, the server is told
                return _value(await asyncio.wrap_future(asked))
            except (MCPError, InvalidData) as error:
                raise ToolError(_reason(error)) from None

        parameters = schema_parameters(schema)
        further = schema.get("additionalProperties")
        about = json.dumps([target, schema], sort_keys=True, default=str)
        own = f"{server}.{_NO_NAME.sub('_', name)}"
        return Tool(own, call, parameters, True, further is True or isinstance(further, dict), about)


@contextmanager
def _quiet() -> Generator[None]:
    """A server that writes anything but the protocol is no reason for a traceback where nobody keeps a log."""
    handler, logger = logging.NullHandler(), logging.getLogger("mcp")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def schema_parameters(schema: Mapping[str, Any]) -> dict[str, Parameter]:
    """The arguments that a JSON Schema of an object describes."""
    properties = cast("dict[str, Any]", schema.get("properties") or {})
    required = cast("list[str]", schema.get("required") or [])
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return {name: Parameter(_converter(one, shared), name in required) for name, one in properties.items()}


def _converter(schema: Any, shared: Mapping[str, Any]) -> Callable[[Any], Any]:
    whole = {**shared, **cast("dict[str, Any]", schema)} if isinstance(schema, dict) else schema
    validator: Any = None
    try:
        Draft202012Validator.check_schema(whole)
        validator = Draft202012Validator(whole, registry=Registry())  # an empty one: nothing is ever fetched
    except SchemaError:
        pass  # the server knows what it takes

    def convert(value: Any) -> Any:
        value = _like(whole, value)
        try:
            problem = next(validator.iter_errors(value), None) if validator is not None else None
        except Exception:  # a reference that leads nowhere
            return value
        if problem is not None:
            raise ValueError(_fault(problem))
        return value

    return convert


def _like(schema: Any, value: Any) -> Any:
    """A number where text is expected is its text, and a text that is one where a number or a truth value is."""
    kind: Any = cast("dict[str, Any]", schema).get("type") if isinstance(schema, dict) else None
    if kind == "string" and isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    if kind in ("integer", "number", "boolean") and isinstance(value, str):
        try:
            found = json.loads(value.strip().lower() if kind == "boolean" else value)
        except (ValueError, RecursionError):
            return value
        return found if isinstance(found, int | float) else value
    return value


def _fault(problem: ValidationError) -> str:
    """What is wrong, without the value, which may be a secret."""
    rule = json.dumps(problem.validator_value, default=str)
    rule = rule if len(rule) <= 100 else rule[:99] + "…"
    place = ".".join(str(part) for part in problem.absolute_path)
    return f"{f'at {place}: ' if place else ''}it does not keep `{problem.validator}: {rule}`"


def _value(result: Any) -> Any:
    """What a call gave: the structured content, else the text, else all pieces of content. Raises ToolError."""
    texts = [piece.text for piece in result.content if piece.type == "text"]
    if result.is_error:
        raise ToolError("\n".join(texts) or "the server says no more")
    if result.structured_content is not None:
        return result.structured_content
    if len(texts) == len(result.content):
        return "\n".join(texts)
    return [piece.model_dump(mode="json", by_alias=True, exclude_none=True) for piece in result.content]


def _reason(error: BaseException) -> str:
    """The first exception of a group, as a clause."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, InvalidData):
        return "what it says does not keep the protocol"
    text = str(error).strip().rstrip(".")
    own = isinstance(error, ToolsFault) or type(error).__name__ == "MCPError"
    return text if own and text else f"{type(error).__name__}{f': {text}' if text else ''}"


__all__ = ["McpServers", "Target", "parse_server", "schema_parameters"]
