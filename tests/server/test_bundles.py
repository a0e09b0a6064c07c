"""Programs of several files: sent with their files, or served from a folder; stored, and run without what they came
from."""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sglspec.diagnostics import SpecError
from sglspec.document.files import MAX_FILES
from sglspec.server.offer import offer, read
from sglspec.server.storage import programs as table
from sglspec.server.storage import runs as run_table
from sglspec.server.storage.database import Database, database_at
from sglspec.server.storage.programs import Document
from sglspec.tools import Tools
from tests.server.test_batches import until_ended
from tests.server.test_storage import new_run

MAIN = """\
sglspec: v1
name: letter
use:
  greet: ./parts/greet.sglspec.yaml
defs:
  texts:
    rules: {file: ./rules.md}
outputs: [how]
steps:
  - "{{ texts.rules }} "
  - call: greet
    into: {how: how}
"""
GREET = """\
sglspec: v1
defs:
  texts:
    tone: {file: ../tone.md}
outputs: {how: "{{ texts.tone }}"}
steps: ["x"]
"""
FILES = {"parts/greet.sglspec.yaml": GREET, "rules.md": "Be brief.\n", "tone.md": "warm\n"}
PROGRAMS, RUN = "/v1/programs", "/v1/programs/letter/runs"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the program, one of its parts beside it and the other above."""
    write(tmp_path / "served", {"letter.sglspec.yaml": MAIN, **FILES})
    return tmp_path / "served"


async def serve(folder: Path, database: Database) -> None:
    """What `sglspec serve FOLDER` stores."""
    await offer(database, read(await asyncio.to_thread(listed, folder), Tools(), [folder]))


def listed(folder: Path) -> list[Path]:
    return list(folder.rglob("letter.sglspec.yaml"))


async def test_a_program_is_sent_with_its_files(make_app, client_of, database) -> None:
    async with client_of(make_app(database=database)) as client:
        first = await client.post(PROGRAMS, json={"spec": MAIN, "files": FILES | {"idle.md": "not used"}})
        again = await client.post(PROGRAMS, json={"spec": MAIN, "files": FILES})
        edited = await client.post(PROGRAMS, json={"spec": MAIN, "files": FILES | {"tone.md": "cool\n"}})
        bundle = await client.get("/v1/programs/letter@1/bundle")
        source = await client.get("/v1/programs/letter@1/source")
        face = (await client.get("/v1/programs/letter")).json()
        runs = [(await client.post(f"/v1/programs/letter@{n}/runs")).json() for n in (1, 2)]
    assert (first.status_code, again.status_code, edited.status_code) == (201, 200, 201)
    assert (again.json()["version"], edited.json()["version"]) == (1, 2)
    assert bundle.json() == {"spec": MAIN, "files": FILES} and source.text == MAIN
    assert face["files"] == sorted(FILES)
    assert [run["outputs"] for run in runs] == [{"how": "warm"}, {"how": "cool"}]
    assert runs[0]["text"] == "Be brief. "


def test_the_digest_is_that_of_a_list_of_digests() -> None:
    def line(text: str, path: str) -> str:
        return f"{hashlib.sha256(text.encode()).hexdigest()}  {path}\n"

    listed = line(MAIN, "") + "".join(line(text, path) for path, text in sorted(FILES.items()))
    assert Document.of(MAIN.encode(), "yaml", FILES).digest == f"sha256:{hashlib.sha256(listed.encode()).hexdigest()}"
    assert Document.of(MAIN.encode(), "yaml").digest == f"sha256:{hashlib.sha256(MAIN.encode()).hexdigest()}"


async def test_files_in_their_other_forms_are_the_same(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        stored = await client.post(PROGRAMS, json={"spec": MAIN, "files": FILES})
        other = {f"./{path}": text for path, text in reversed(FILES.items())} | {"./rules.md": "\ufeffBe brief.\n"}
        again = await client.post(PROGRAMS, json={"spec": MAIN, "files": other})
    assert (again.status_code, again.json()["digest"]) == (200, stored.json()["digest"])


async def test_a_dry_run_tells_the_digest_and_stores_nothing(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        dry = await client.post(f"{PROGRAMS}?dry_run=true", json={"spec": MAIN, "files": FILES | {"idle.md": ""}})
        page = await client.get(PROGRAMS)
        stored = await client.post(PROGRAMS, json={"spec": MAIN, "files": FILES})
    assert (dry.json()["ok"], dry.json()["digest"]) == (True, stored.json()["digest"])
    assert page.json()["data"] == []


async def test_a_program_that_comes_with_a_run_or_a_check(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        body = {"spec": MAIN, "files": FILES}
        runs = [await client.post("/v1/runs", json=body | {"seed": n}) for n in range(2)]
        edited = await client.post("/v1/runs", json={"spec": MAIN, "files": FILES | {"tone.md": "cool"}})
        check = await client.post("/v1/check", json=body)
    assert [run.json()["outputs"] for run in (*runs, edited)] == [{"how": "warm"}] * 2 + [{"how": "cool"}]
    assert (check.json()["ok"], check.json()["diagnostics"]) == (True, [])


async def test_errors_are_in_the_file_that_has_them(make_app, client_of) -> None:
    wrong = FILES | {"parts/greet.sglspec.yaml": GREET.replace("../tone.md", "../../tone.md")}
    async with client_of(make_app()) as client:
        answer = await client.post(PROGRAMS, json={"spec": MAIN.replace("./rules.md", "./rule.md"), "files": wrong})
        check = await client.post("/v1/check", json={"spec": MAIN, "files": wrong})
        alone = await client.post("/v1/check", json={"spec": MAIN})
    found = {(d["code"], d["file"], d["range"]["start"]["line"]) for d in answer.json()["errors"]}
    assert (answer.status_code, found) == (422, {("S121", "parts/greet.sglspec.yaml", 4), ("S100", "spec", 7)})
    assert [(d["code"], d["file"]) for d in check.json()["diagnostics"]] == [("S121", "parts/greet.sglspec.yaml")]
    assert [d["code"] for d in alone.json()["diagnostics"]] == ["S121", "S121"]


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({"spec": MAIN, "files": []}, "S203", "/files"),
        ({"spec": MAIN, "files": {"a": 1}}, "S203", "/files"),
        ({"spec": MAIN, "files": {"/etc/passwd": "x"}}, "S120", "/files"),
        ({"spec": MAIN, "files": {"C:/x": "x"}}, "S120", "/files"),
        ({"spec": MAIN, "files": {"a\\b": "x"}}, "S120", "/files"),
        ({"spec": MAIN, "files": {"a\nb": "x"}}, "S120", "/files"),
        ({"spec": MAIN, "files": {"": "x"}}, "S120", "/files"),
        ({"spec": MAIN, "files": {"a": "x", "./a": "x"}}, "S120", "/files"),
        ({"spec": MAIN, "files": {str(n): "" for n in range(MAX_FILES + 1)}}, "S109", "/files"),
        ({"spec": MAIN, "file": {}}, "S201", ""),
        ({"spec": 7}, "S203", "/spec"),
    ],
)
async def test_bodies_that_are_no_bundle(make_app, client_of, body: dict[str, Any], code: str, pointer: str) -> None:
    async with client_of(make_app()) as client:
        answer = await client.post(PROGRAMS, json=body)
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["code"], error["pointer"], error["file"]) == (400, code, pointer, "body")


async def test_a_file_of_the_server_is_not_read(make_app, client_of, tmp_path, monkeypatch) -> None:
    write(tmp_path, FILES)
    monkeypatch.chdir(tmp_path)
    async with client_of(make_app()) as client:
        for files in ({}, {"rules.md": "x"}, {f"../{tmp_path.name}/tone.md": "x"}):
            answer = await client.post("/v1/check", json={"spec": MAIN, "files": files})
            assert not answer.json()["ok"]
            assert {d["code"] for d in answer.json()["diagnostics"]} <= {"S100", "S121"}


async def test_a_text_that_is_no_text(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        nul = await client.post("/v1/check", json={"spec": MAIN, "files": FILES | {"rules.md": "a\0"}})
        large = await client.post("/v1/check", json={"spec": MAIN, "files": FILES | {"rules.md": "a" * 1_100_000}})
        huge = await client.post(PROGRAMS, json={"spec": MAIN, "files": FILES | {"rules.md": "a" * 2_100_000}})
    faults = [[(d["code"], d["file"]) for d in answer.json()["diagnostics"]] for answer in (nul, large)]
    assert faults == [[("S113", "rules.md")], [("S109", "rules.md")]]
    assert huge.status_code == 413


async def test_a_folder_is_served_and_stored(make_app, client_of, place, folder) -> None:
    first = database_at(place)
    await serve(folder, first)
    await serve(folder, first)
    write(folder, {"tone.md": "cool\n"})
    await serve(folder, first)
    await first.close()
    for name in FILES:
        (folder / name).unlink()
    async with client_of(make_app(database=database_at(place))) as client:
        versions = (await client.get("/v1/programs/letter/versions")).json()["data"]
        runs = [(await client.post(f"/v1/programs/letter@{n}/runs")).json()["outputs"] for n in (1, 2)]
        sent = await client.post(PROGRAMS, json={"spec": MAIN, "files": FILES})
    assert [version["version"] for version in versions] == [2, 1]
    assert runs == [{"how": "warm"}, {"how": "cool"}]
    assert (sent.status_code, sent.json()["version"]) == (200, 1)


async def test_a_program_in_a_folder_of_the_folder(make_app, client_of, database, tmp_path) -> None:
    main = MAIN.replace("./parts", "../parts").replace("./rules.md", "../rules.md")
    write(tmp_path, {"in/letter.sglspec.yaml": main, **FILES})
    await serve(tmp_path, database)
    async with client_of(make_app(database=database)) as client:
        run = (await client.post(RUN)).json()
        bundle = (await client.get("/v1/programs/letter/bundle")).json()
    assert run["outputs"] == {"how": "warm"}
    assert bundle["files"] == {f"../{path}": text for path, text in FILES.items()}


def test_files_outside_of_the_folder_are_refused(folder, tmp_path) -> None:
    write(tmp_path, {"secret.md": "secret"})
    write(folder, {"letter.sglspec.yaml": MAIN.replace("./rules.md", "../secret.md")})
    (folder / "tone.md").unlink()
    (folder / "tone.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(SpecError) as error:
        read([folder / "letter.sglspec.yaml"], Tools(), [folder])
    found = [(problem.code, problem.file) for problem in error.value.diagnostics]
    main, part = str(folder / "letter.sglspec.yaml"), str(folder / "parts" / "greet.sglspec.yaml")
    assert sorted(found) == [("S121", main), ("S121", part)]


async def test_a_run_that_another_process_left(make_app, listening, place) -> None:
    """The files are there for who takes it over."""
    dead = database_at(place)
    document = Document.of(MAIN.encode(), "yaml", FILES)
    await dead.write(partial(table.save, name="letter", document=document))
    await dead.write(partial(run_table.renew, owner="dead", expires=0.0))
    row = new_run(
        owner="dead", digest=document.digest, program="letter", version=1, request='{"inputs":{},"trace":false}'
    )
    run = await dead.write(partial(run_table.create, row=row, document=document, once=None))
    await dead.close()
    async with listening(make_app(database=database_at(place))) as client:
        face = (await client.get(f"/v1/runs/{run}", headers={"Prefer": "wait=20"})).json()
        result = (await client.get(f"/v1/runs/{run}/result")).json()
    assert (face["status"], face["program"]["digest"]) == ("succeeded", document.digest)
    assert result["outputs"] == {"how": "warm"}


async def test_rows_of_a_batch(make_app, listening) -> None:
    async with listening(make_app()) as client:
        await client.post(PROGRAMS, json={"spec": MAIN, "files": FILES})
        batch = (await client.post("/v1/batches", json={"program": "letter", "rows": [{}, {}]})).json()["id"]
        await until_ended(client, batch)
        output = (await client.get(f"/v1/batches/{batch}/output")).text
    assert output.count('"outputs":{"how":"warm"}') == 2
