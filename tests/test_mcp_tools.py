"""Tools of MCP servers, with a server that is written with the official package."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglspec.mcp_tools import McpServers, parse_server, schema_parameters
from sglspec.runtime.result import Result
from sglspec.runtime.run import RunOptions, start
from sglspec.tools import MAX_RESULT, Tool, Tools, ToolsFault
from tests.cli.conftest import environment
from tests.runtime.fake import FakeBackend, SpecError, program

SERVER = Path(__file__).parent / "mcp_server.py"


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


def ended(mark: Path) -> bool:
    """Whether the server that wrote the mark is gone."""
    try:
        os.kill(int(mark.read_text()), 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServers]:
    mark = tmp_path_factory.mktemp("server") / "mark"
    with McpServers({"things": [sys.executable, str(SERVER), str(mark)]}) as found:
        yield found
    assert ended(mark)


async def run(servers: McpServers, step: str, **top: str) -> Result:
    head = "".join(f"{key}: {value}\n" for key, value in top.items())
    tools = Tools(servers.tools)
    checked = program(f"sglspec: v1\n{head}steps:\n  - {step}\n", tools=tools)
    return await start(checked, {}, FakeBackend({}), RunOptions(tools=tools)).wait()


def error_of(result: Result) -> tuple[str, str]:
    assert result.error is not None
    return result.error.code, result.error.message


async def test_what_tools_give(servers: McpServers):
    names = [tool.name for tool in servers.tools]
    assert names == [f"things.{one}" for one in ("weather", "shout", "picture", "odd_name", "sleep", "long", "leave")]
    result = await run(servers, "{tool: things.weather, with: {city: Lyon, days: '2'}, into: w}")
    assert result.variables == {"w": {"city": "Lyon", "degrees": 22.5}}
    result = await run(servers, "{tool: things.shout, with: {text: 7}, into: t}")
    assert result.variables == {"t": "7 {{ 1 + 1 }}"}
    result = await run(servers, "{tool: things.picture, into: p}")
    assert result.variables["p"][0]["text"] == "a dot" and result.variables["p"][1]["mimeType"] == "image/png"


async def test_what_goes_wrong(servers: McpServers):
    code, message = error_of(await run(servers, "{tool: things.odd_name}"))
    assert code == "S716" and "nothing works" in message
    result = await run(servers, "{tool: things.odd_name, into: x, on_error: keep}")
    assert result.status == "succeeded" and result.variables["x"]["error"]["code"] == "S716"
    code, message = error_of(await run(servers, f"{{tool: things.long, with: {{count: {MAX_RESULT + 1}}}}}"))
    assert code == "S716" and "10,000,000 characters" in message


async def test_a_timeout_cancels_the_call_and_a_server_may_be_gone(mark: Path):
    with McpServers({"things": [sys.executable, str(SERVER), str(mark)]}) as servers:
        assert error_of(await run(servers, "{tool: things.sleep, timeout: 0.2}"))[0] == "S717"
        await told(mark)
        assert error_of(await run(servers, "{tool: things.leave}"))[0] == "S716"
    assert ended(mark)


async def told(mark: Path) -> None:
    for _ in range(500):
        if mark.with_suffix(".cancelled").exists():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the server was not told")


def test_arguments_are_checked_before_a_run(servers: McpServers):
    tools = Tools(servers.tools)
    for step, code in (
        ("{tool: things.weather}", "S406"),
        ("{tool: things.weather, with: {city: Lyon, day: 1}}", "S406"),
        ("{tool: things.weather, with: {city: Lyon, days: 0}}", "S408"),
        ("{tool: things.weather, with: {city: Lyon, days: soon}}", "S408"),
        ("{tool: things.wether, with: {city: Lyon}}", "S320"),
    ):
        with pytest.raises(SpecError) as error:
            program(f"sglspec: v1\nsteps:\n  - {step}\n", tools=tools)
        assert [problem.code for problem in error.value.diagnostics] == [code]


@pytest.mark.parametrize(
    ("schema", "value", "converted"),
    [
        ({"type": "string"}, 3, "3"),
        ({"type": "integer"}, "3", 3),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "boolean"}, "True", True),
        ({"$ref": "#/$defs/word"}, "a", "a"),
        ({"$ref": "https://example.com/schema"}, "a", "a"),  # never fetched
        ({"type": "nonsense"}, "a", "a"),
        (True, [1], [1]),
    ],
)
def test_arguments_by_a_schema(schema: Any, value: Any, converted: Any):
    found = schema_parameters({"properties": {"x": schema}, "$defs": {"word": {"type": "string"}}, "required": ["x"]})
    assert found["x"].convert(value) == converted and found["x"].required


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "integer"}, "geheim", 'it does not keep `type: "integer"`'),
        ({"type": "array", "items": {"minimum": 1}}, [1, 0], "at 1: it does not keep `minimum: 1`"),
        ({"$ref": "#/$defs/word"}, [], 'it does not keep `type: "string"`'),
    ],
)
def test_what_does_not_fit_is_said_without_the_value(schema: Any, value: Any, message: str):
    found = schema_parameters({"properties": {"x": schema}, "$defs": {"word": {"type": "string"}}})
    with pytest.raises(ValueError) as problem:
        found["x"].convert(value)
    assert str(problem.value) == message


def test_servers_that_cannot_be_used(tmp_path: Path):
    for target in (["no-such-command-anywhere"], [sys.executable, "-c", "print('hello')"], "http://127.0.0.1:1/mcp"):
        with pytest.raises(ToolsFault, match="the MCP server `x`"), McpServers({"x": target}):
            pass
    for text in ("things", "=x", "a b=x", "x=", "x='"):
        with pytest.raises(ToolsFault):
            parse_server(text)
    assert parse_server("x=uvx 'my server' --flag") == ("x", ["uvx", "my server", "--flag"])
    assert parse_server("x=https://example.com/mcp?a=b") == ("x", "https://example.com/mcp?a=b")


def test_a_server_over_http(mark: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(SERVER), str(mark), str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(3000):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.01)
        with McpServers({"web": f"http://127.0.0.1:{port}/mcp"}) as found:
            weather = next(tool for tool in found.tools if tool.name == "web.weather")
            assert asyncio.run(_call(weather, city="Lyon")) == {"city": "Lyon", "degrees": 21.5}
    finally:
        process.kill()
        process.wait()


async def _call(tool: Tool, **arguments: Any) -> Any:
    return await tool.function(**arguments)


def test_from_the_command_line(mark: Path, tmp_path: Path):
    spec = tmp_path / "ask.yaml"
    spec.write_text("sglspec: v1\nsteps:\n  - {tool: things.weather, with: {city: Lyon}, into: w}\n")
    given = f"things={sys.executable} {SERVER} {mark}"

    def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sglspec", *arguments], capture_output=True, text=True, env=environment(), check=False
        )  # fmt: skip

    assert cli("check", str(spec), "--mcp", given).returncode == 0
    assert ended(mark)
    spec.write_text(spec.read_text().replace("city", "town"))
    done = cli("check", str(spec), "--mcp", given)
    assert done.returncode == 1 and "S406" in done.stdout
    done = cli("check", str(spec), "--mcp", "x=no-such-command-anywhere")
    assert done.returncode == 2 and "MCP server" in done.stderr


def test_nothing_is_imported_before_it_is_used():
    code = "import sys, sglspec.cli.run, sglspec.mcp_tools; print('mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout == "False\n"
