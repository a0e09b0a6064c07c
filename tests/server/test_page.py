"""The page at `/`, in a real browser: programs, a form, a run as it happens, stopping, keys, hostile values."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.server.chromium import PATH, tab
from tests.server.test_access import Keys

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
PROGRAM = """\
sglspec: v1
name: tips
description: Two tips on a topic.
inputs:
  topic: {type: string, minLength: 1}
  tone: {enum: [short, long], default: short}
  count: {type: integer, default: 2}
  loud: {type: boolean, default: false}
  tags: {type: array, items: string, default: []}
outputs: [tip]
steps:
  - "Tips on {{ topic }}, {{ tone }}, {{ count }}, {{ loud }}, {{ tags }}: "
  - fork: area
    in: [food, sleep]
    do:
      - "For {{ area }}: "
      - gen: tip
"""
YAML = {"Content-Type": "application/yaml"}

pytestmark = pytest.mark.skipif(PATH is None, reason="there is no chromium here")


async def fill(page, name: str, value: str) -> None:
    await page.run(
        f"(() => {{ const label = [...document.querySelectorAll('#inputs label')].find(l => l.textContent.startsWith({name!r}));"
        f"const field = document.getElementById(label.htmlFor); field.value = {value!r};"
        "field.dispatchEvent(new Event('input')); })()"
    )


async def test_a_run_from_its_form(make_app, listening, tmp_path: Path) -> None:
    app = make_app(replies={"tip": [f"eat {EVIL}", "sleep well"]})
    async with listening(app) as client, tab(tmp_path / "chromium", width=400) as page:
        assert (await client.post("/v1/programs", content=PROGRAM, headers=YAML)).status_code == 201
        answer = await client.get("/")
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        await page.call("Page.navigate", url=str(client.base_url))
        await page.until("document.querySelectorAll('#programs button').length === 1")
        await page.run("document.querySelector('#programs button').click()")
        await page.until("document.querySelectorAll('#inputs .field').length === 5")
        await fill(page, "topic", EVIL)
        await fill(page, "tags", '["a", "b"]')
        await page.run("document.querySelector('#inputs button').click()")
        await page.until("document.getElementById('state').textContent === 'Done.'")
        text = await page.run("document.body.innerText")
        assert await page.run("document.documentElement.scrollWidth <= window.innerWidth")
        if place := os.environ.get("SGLSPEC_SCREENSHOT"):
            await page.picture(Path(place))
        assert await page.run("document.title") == "sglspec"
        assert await page.run("document.querySelectorAll('main img, main script').length") == 0
        assert text.count(f"eat {EVIL}") >= 2, text
        assert "Branch 1.0" in text and "Branch 1.1" in text
        assert "['a', 'b']" in text or '["a", "b"]' in text or '["a","b"]' in text
        assert await page.run("document.getElementById('stop').hidden")
        assert page.errors == []


async def test_stopping_a_run(make_app, listening, stuck, tmp_path: Path) -> None:
    app = make_app(stuck())
    async with listening(app) as client, tab(tmp_path / "chromium") as page:
        await client.post("/v1/programs?name=long", content="sglspec: v1\nsteps: [Once, {gen: story}]\n", headers=YAML)
        await page.call("Page.navigate", url=str(client.base_url))
        await page.until("!!document.querySelector('#programs button')")
        await page.run("document.querySelector('#programs button').click()")
        await page.until("!!document.querySelector('#inputs button')")
        await page.run("document.querySelector('#inputs button').click()")
        await page.until("document.getElementById('branches').innerText.includes('Once')")
        await page.run("document.getElementById('stop').click()")
        await page.until("document.getElementById('state').textContent === 'Stopped.'")
        (run,) = (await client.get("/v1/runs")).json()["data"]
        assert run["status"] == "cancelled"
        assert page.errors == []


async def test_a_key_stays_in_memory(make_app, listening, tmp_path: Path) -> None:
    keys = Keys()
    token = keys.new("programs:read", "models")["Authorization"].removeprefix("Bearer ")
    async with listening(make_app(access=keys.access())) as client, tab(tmp_path / "chromium") as page:
        await page.call("Page.navigate", url=str(client.base_url))
        await page.until("document.getElementById('locked')?.hidden === false")
        for given, done in (
            ("sgs_wrong", "document.getElementById('problem').textContent"),
            (token, "!document.getElementById('choose').hidden"),
        ):
            await page.run(f"document.getElementById('key').value = {given!r}")
            await page.run("document.querySelector('#key-form button').click()")
            await page.until(done)
        assert await page.run(
            "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
        ) == (f'[{{}},{{}},"","{client.base_url}/"]')
        assert token not in await page.run("document.documentElement.outerHTML")
        await page.call("Page.reload")
        await page.until("document.getElementById('locked')?.hidden === false")
