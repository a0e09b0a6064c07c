"""A headless Chromium, spoken to over its debugging pipe: no driver, no other package."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

PATH = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Tab:
    """One page. What it logs as an error, and what it throws, is kept in `errors`."""

    def __init__(self, write: Any) -> None:
        self.errors: list[str] = []
        self._write = write
        self._session: str | None = None
        self._count = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}

    async def call(self, method: str, **parameters: Any) -> Any:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        future = self._answers[self._count] = asyncio.get_running_loop().create_future()
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return await asyncio.wait_for(future, 60)

    def hear(self, message: dict[str, Any]) -> None:
        if (future := self._answers.pop(message.get("id", 0), None)) is not None:
            if "error" in message:
                future.set_exception(RuntimeError(str(message["error"])))
            else:
                future.set_result(message["result"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(message["params"]["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.errors.append(message["params"]["entry"]["text"])

    async def attach(self) -> None:
        made = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")

    async def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, script: str, seconds: float = 30.0) -> Any:
        """Wait until an expression holds."""
        end = asyncio.get_running_loop().time() + seconds
        while not (value := await self.run(script)):
            assert asyncio.get_running_loop().time() < end, (script, await self.run("document.body.innerText"))
            await asyncio.sleep(0.05)
        return value

    async def picture(self, path: Path) -> None:
        shot = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))


@asynccontextmanager
async def tab(folder: Path, width: int = 1000, height: int = 900) -> AsyncGenerator[Tab, None]:
    assert PATH is not None
    to_read, write = os.pipe()
    read, to_write = os.pipe()
    shell = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", shell, PATH, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--remote-debugging-pipe", f"--user-data-dir={folder}", f"--window-size={width},{height}",
        pass_fds=(to_read, to_write), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_read)
    os.close(to_write)
    page = Tab(write)
    rest = b""

    def heard() -> None:
        nonlocal rest
        data = os.read(read, 1 << 20)
        if not data:
            asyncio.get_running_loop().remove_reader(read)
        *whole, rest = (rest + data).split(b"\0")
        for message in whole:
            page.hear(json.loads(message))

    asyncio.get_running_loop().add_reader(read, heard)
    try:
        await page.attach()
        # a window cannot be as narrow as a telephone
        await page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        yield page
    finally:
        asyncio.get_running_loop().remove_reader(read)
        process.terminate()
        await process.wait()
        os.close(write)
        os.close(read)
