"""An MCP server without manners, by hand: `python stdio_server.py MARK [MODE]` writes its process id to the file MARK.

MODE: `noisy` writes lines that are no messages; `deaf` goes on when its input ends and when it is told to stop; `dies`
ends at once; `wrong` lists tools that are none.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

MODE = sys.argv[2] if len(sys.argv) > 2 else ""
NAMES = ("echo", "fail", "rubbish", "wrong", "never", "die")


def send(number: int, **what: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": number, **what}), flush=True)


def call(number: int, name: str, arguments: dict[str, Any]) -> None:
    match name:
        case "fail":
            send(number, error={"code": -32000, "message": "out of paper"})
        case "wrong":
            send(number, result={"content": "none"})
        case "never":
            return
        case "die":
            os._exit(3)
        case _:
            if name == "rubbish":
                print("no message\n{\n[1]", flush=True)
            text = f"{name} {arguments.get('text', '')}"
            send(number, result={"content": [{"type": "text", "text": text}]})


def tools() -> dict[str, Any]:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    if MODE == "wrong":
        return {"tools": [{"name": 5}]}
    return {"tools": [{"name": name, "inputSchema": schema} for name in NAMES]}


def main() -> None:
    Path(sys.argv[1]).write_text(str(os.getpid()))
    if MODE == "dies":
        sys.exit(3)
    if MODE == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "noisy":
        print("Welcome!\n{", flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        number = message.get("id")
        match message["method"]:
            case _ if number is None:
                continue
            case "initialize":
                about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "odd", "version": "1"}}
                send(number, result={"protocolVersion": message["params"]["protocolVersion"], **about})
            case "tools/list":
                send(number, result=tools())
            case "tools/call":
                call(number, message["params"]["name"], message["params"].get("arguments") or {})
            case _:
                send(number, error={"code": -32601, "message": "unknown"})
    if MODE == "deaf":
        signal.pause()


main()
