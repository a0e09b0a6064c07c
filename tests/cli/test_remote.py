"""`sglspec deploy`, `programs` and `runs`, against a server in a process of its own, and against servers that misbehave."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from sglspec.cli import follow
from sglspec.server.access.keyfile import KeyFile
from sglspec.server.access.keys import new_key
from sglspec.server.runs.feed import TERMINAL

from .conftest import HELLO, TYPED, command, environment

FAILS = "sglspec: v1\nname: fails\nsteps:\n  - fail: No more salt.\n"
WAITS = "sglspec: v1\nname: waits\nsteps:\n  - gen: story\n"
RUN = f"run_{'0' * 28}"


@dataclass(frozen=True)
class Place:
    """A server: its address, the key, a file with the key."""

    url: str
    key: str
    file: Path

    @property
    def options(self) -> tuple[str, ...]:
        return "--server", self.url, "--api-key-file", str(self.file)

    def post(self, path: str, **settings: Any) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.key}", "Prefer": "respond-async"}
        return httpx.post(self.url + path, json=settings, headers=headers).json()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "replies.yaml").write_text(f"country: fast France\nstory: {'long ' * 1000}\n")
    (folder / "hello.sglspec.yaml").write_text(HELLO)
    token, key = new_key("alice", ["programs:read", "programs:write", "runs:read", "runs:write", "run:adhoc"])
    KeyFile(folder / "keys").add(key)
    (folder / "key.txt").write_text(f"{token}\n")
    arguments = ("hello.sglspec.yaml", "--port", "0", "--backend", "scripted:replies.yaml", "--keys-file", "keys")
    server = subprocess.Popen(
        command("serve", *arguments, runner="slow"),
        cwd=folder, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert server.stderr is not None
    line = server.stderr.readline()
    assert "listening on" in line, line + server.stderr.read()
    yield Place(line.split()[-1], token, folder / "key.txt")
    server.kill()
    server.wait()
    server.stderr.close()


def test_deploy_stores_a_version_and_moves_an_alias(cli, write, place) -> None:
    write("tips.yaml", HELLO.replace("hello", "tips"))
    dry = cli("deploy", "tips.yaml", "--dry-run", *place.options)
    assert (dry.code, dry.out, dry.err) == (0, "", "sglspec: tips can be stored\n")
    assert cli("programs", "get", "tips", *place.options).code == 2
    done = cli("deploy", "tips.yaml", "--alias", "prod", *place.options)
    assert (done.code, done.out) == (0, "tips@1\n")
    assert done.err == "sglspec: tips@1 is new\nsglspec: tips@prod is tips@1 now\n"
    again = cli("deploy", "tips.yaml", "--json", *place.options)
    face = json.loads(again.out)
    assert (face["version"], face["new"], face["alias"]) == (1, False, None)
    changed = cli("deploy", "-", "--name", "tips", *place.options, stdin=HELLO + "  - more\n")
    assert changed.out == "tips@2\n"
    found = json.loads(cli("programs", "get", "tips@prod", *place.options).out)
    assert (found["version"], found["inputs"]) == (1, ["city"])
    assert cli("programs", "get", "tips@1", "--source", *place.options).out == HELLO.replace("hello", "tips")


def test_errors_of_the_server_point_into_the_local_file(cli, write, place) -> None:
    write("wrong.yaml", "sglspec: v1\nname: wrong\nsteps:\n  - genn: story\n")
    for more in ((), ("--dry-run",)):
        done = cli("deploy", "wrong.yaml", *more, *place.options)
        local = cli("check", "wrong.yaml")
        assert (done.code, done.out) == (1, "")
        assert done.err == local.out
        assert "4 |   - genn: story" in done.err


PARTS = {
    "letter/main.yaml": "sglspec: v1\nname: letter\nuse: {part: ./in/part.yaml}\noutputs: [how]\nsteps:\n"
    "  - call: part\n    into: {how: how}\n",
    "letter/in/part.yaml": "sglspec: v1\ndefs: {texts: {tone: {file: ../tone.md}}}\n"
    'outputs: {how: "{{ texts.tone }}"}\nsteps: [x]\n',
    "letter/tone.md": "warm",
}


def test_deploy_sends_the_files_that_the_document_uses(cli, write, place) -> None:
    for name, text in PARTS.items():
        write(name, text)
    first = cli("deploy", "letter/main.yaml", *place.options)
    write("letter/tone.md", "cool")
    second = cli("deploy", "letter/main.yaml", *place.options)
    assert (first.out, second.out) == ("letter@1\n", "letter@2\n")
    for version, tone in ((1, "warm"), (2, "cool")):
        run = place.post(f"/v1/programs/letter@{version}/runs")["id"]
        result = json.loads(cli("runs", "get", run, "--result", "--wait", "5", *place.options).out)
        assert result["outputs"] == {"how": tone}
    face = json.loads(cli("programs", "get", "letter", *place.options).out)
    assert face["files"] == ["in/part.yaml", "tone.md"]


def test_errors_in_a_file_that_was_sent_are_shown_there(cli, write, place) -> None:
    for name, text in PARTS.items():
        write(name, text)
    write("letter/in/part.yaml", "sglspec: v1\nsteps:\n  - genn: story\n")
    done = cli("deploy", "letter/main.yaml", "--dry-run", *place.options)
    assert (done.code, done.err) == (1, cli("check", "letter/main.yaml").out)
    assert "letter/in/part.yaml:3:5" in done.err
    assert "3 |   - genn: story" in done.err


def test_files_of_other_folders_are_not_sent(cli, write, place) -> None:
    for name, text in PARTS.items():
        write(name, text.replace("../tone.md", "../../tone.md"))
    write("tone.md", "cold")
    done = cli("deploy", "letter/main.yaml", *place.options)
    assert (done.code, done.out) == (1, "")
    assert "letter/in/part.yaml:2:" in done.err
    assert "S121" in done.err
    assert cli("deploy", "letter/main.yaml", "--root", ".", "--dry-run", *place.options).code == 0
    missing = cli("deploy", "letter/in/part.yaml", "--root", ".", "--dry-run", *place.options)
    assert (missing.code, missing.err) == (0, "sglspec: the program can be stored\n")


def test_errors_of_a_folder_that_is_served(cli, write) -> None:
    for name, text in PARTS.items():
        write(name.replace(".yaml", ".sglspec.yaml"), text.replace("part.yaml", "part.sglspec.yaml"))
    write("letter/in/part.sglspec.yaml", PARTS["letter/in/part.yaml"].replace("../tone.md", "../tune.md"))
    done = cli("serve", "letter", "--port", "0")
    assert done.code == 2
    assert "letter/in/part.sglspec.yaml:2:" in done.err
    assert "../tune.md" in done.err
    assert "2 | defs:" in done.err


def test_warnings_do_not_keep_it_from_being_stored(cli, write, place) -> None:
    write("unused.yaml", HELLO.replace("hello", "unused").replace("inputs:", "inputs:\n  idle: {type: string}"))
    done = cli("deploy", "unused.yaml", *place.options)
    assert (done.code, done.out) == (0, "unused@1\n")
    assert "unused.yaml:4:3: warning W302" in done.err


def test_programs_are_listed_and_archived(cli, write, place) -> None:
    write("gone.yaml", HELLO.replace("hello", "gone"))
    assert cli("deploy", "gone.yaml", *place.options).code == 0
    rows = [line.split() for line in cli("programs", "ls", *place.options).out.splitlines()]
    assert rows[0] == ["NAME", "VERSION", "CREATED", "DIGEST"]
    assert ["gone", "1"] in [row[:2] for row in rows]
    done = cli("programs", "rm", "gone", *place.options)
    assert (done.code, done.out, done.err) == (0, "", "sglspec: gone is archived\n")
    names = [face["name"] for face in json.loads(cli("programs", "ls", "--json", *place.options).out)]
    assert "gone" not in names
    assert "hello" in names
    assert "gone " in cli("programs", "ls", "--archived", *place.options).out
    assert cli("programs", "rm", "never-there", *place.options).code == 2


def test_a_run_that_succeeds(cli, place) -> None:
    run = place.post("/v1/programs/hello/runs")["id"]
    done = cli("runs", "events", run, *place.options)
    events = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert (events[0]["type"], events[-1]["type"]) == ("run.queued", "run.succeeded")
    rest = cli("runs", "events", run, "--after", "1", *place.options)
    assert rest.out == "".join(done.out.splitlines(keepends=True)[2:])
    nothing = cli("runs", "events", run, "--after", str(len(events) - 1), *place.options)
    assert (nothing.code, nothing.out) == (0, "")
    assert json.loads(cli("runs", "get", run, *place.options).out)["status"] == "succeeded"
    result = json.loads(cli("runs", "get", run, "--result", "--wait", "5", *place.options).out)
    assert result["outputs"] == {"country": "fast France"}
    rows = cli("runs", "ls", "--program", "hello", "--status", "succeeded", *place.options).out.splitlines()
    assert rows[0].split() == ["ID", "STATUS", "PROGRAM", "CREATED", "ENDED"]
    assert rows[1].split()[:3] == [run, "succeeded", "hello@1"]
    assert json.loads(cli("runs", "ls", "--limit", "1", "--json", *place.options).out)[0]["id"] == run


def test_running_a_program_of_the_server(cli, place) -> None:
    done = cli("run", "hello", *place.options)
    assert (done.code, done.out, done.err) == (0, "fast France\n", "")
    face = json.loads(
        cli("run", "hello@1", "--json", "--seed", str(2**64 - 1), "--set", "city=Rome", *place.options).out
    )
    assert (face["text"], face["seed"]) == ("Rome is the capital of fast France", 2**64 - 1)
    shown = cli("run", "hello", "--stream", "text", "--set", "city=@@Oslo", *place.options)
    assert (shown.code, shown.out) == (0, "@Oslo is the capital of fast France\n")
    events = [json.loads(line) for line in cli("run", "hello", "--stream", "events", *place.options).out.splitlines()]
    assert (events[0]["type"], events[-1]["type"]) == ("run.queued", "run.succeeded")


def test_running_a_document_on_the_server(cli, write, place) -> None:
    for name, text in PARTS.items():
        write(name, text)
    write("inputs.json", '{"city": "Bonn"}')
    assert cli("run", "letter/main.yaml", *place.options).out == "warm\n"
    typed = cli("run", "-", "--set", "count=3", "--json", *place.options, stdin=TYPED)
    assert json.loads(typed.out)["outputs"] == {"count": 3, "tags": [], "note": "none"}
    sent = cli("run", "-", "--input", "inputs.json", "--stream", "text", *place.options, stdin=HELLO)
    assert sent.out == "Bonn is the capital of fast France\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("never-there",), 2, "404"),
        (("hello", "--set", "town=Rome"), 2, "S403"),
        (("hello", "--set", "city:=3"), 2, "S401"),
        (("needs.yaml",), 2, "help: Give it with `--set NAME=…`"),
        (("missing.yaml",), 2, "S100"),
        (("wrong.yaml",), 1, "wrong.yaml:4:5"),
        (("fails.yaml",), 3, "fails.yaml:4:5: error S701"),
        (("hello", "--backend", "local"), 2, "--backend"),
        (("hello", "--trace", "t.json"), 2, "--trace"),
        (("hello", "--profile"), 2, "--profile"),
    ],
)
def test_runs_on_a_server_that_do_not_succeed(cli, write, place, arguments, code, said) -> None:
    write("wrong.yaml", "sglspec: v1\nname: wrong\nsteps:\n  - genn: story\n")
    write("fails.yaml", FAILS)
    write("needs.yaml", "sglspec: v1\ninputs: {town: string}\nsteps: ['{{ town }}']\n")
    done = cli("run", *arguments, *place.options)
    assert (done.code, done.out) == (code, "")
    assert said in done.err


def test_a_key_needs_a_server(cli, place) -> None:
    assert cli("run", "hello", "--api-key-file", str(place.file)).code == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_on_a_server_that_is_interrupted(cli, write, place, tmp_path, number) -> None:
    write("waits.yaml", WAITS)
    process = subprocess.Popen(
        command("run", "waits.yaml", "--stream", "text", *place.options),
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.read(4) == b"long"
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert b"long" in out
    assert err.decode() == f"sglspec: {'interrupted' if number == signal.SIGINT else 'terminated'}\n"
    (last,) = json.loads(cli("runs", "ls", "--limit", "1", "--json", *place.options).out)
    assert last["status"] == "cancelled"


def test_a_run_that_fails(cli, write, place) -> None:
    write("fails.yaml", FAILS)
    assert cli("deploy", "fails.yaml", *place.options).code == 0
    run = place.post("/v1/programs/fails/runs")["id"]
    done = cli("runs", "events", run, *place.options)
    assert done.code == 3
    assert json.loads(done.out.splitlines()[-1])["error"]["code"] == "S701"
    assert cli("runs", "get", run, *place.options).code == 3


def test_a_run_that_is_cancelled_while_its_events_are_read(cli, write, place, tmp_path) -> None:
    write("waits.yaml", WAITS)
    assert cli("deploy", "waits.yaml", *place.options).code == 0
    run = place.post("/v1/programs/waits/runs")["id"]
    reader = subprocess.Popen(
        command("runs", "events", run, *place.options), stdout=subprocess.PIPE, text=True, cwd=tmp_path,
        env=environment(),
    )  # fmt: skip
    assert reader.stdout is not None
    assert '"run.queued"' in reader.stdout.readline()  # while it goes on
    assert cli("runs", "get", run, *place.options).code == 0
    done = cli("runs", "cancel", run, *place.options)
    assert done.code == 0
    assert json.loads(done.out)["id"] == run
    rest, _ = reader.communicate(timeout=120)
    assert json.loads(rest.splitlines()[-1])["type"] == "run.cancelled"
    assert reader.returncode == 3


def test_ctrl_c_says_where_to_go_on(cli, write, place, tmp_path) -> None:
    write("waits.yaml", WAITS)
    assert cli("deploy", "waits.yaml", *place.options).code == 0
    run = place.post("/v1/programs/waits/runs")["id"]
    reader = subprocess.Popen(
        command("runs", "events", run, *place.options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=tmp_path, env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # what runs in the background ignores it
    )  # fmt: skip
    assert reader.stdout is not None
    reader.stdout.readline()
    os.kill(reader.pid, signal.SIGINT)
    _, err = reader.communicate(timeout=120)
    assert reader.returncode == 130
    assert "goes on behind it" in err
    assert "Traceback" not in err
    assert json.loads(cli("runs", "get", run, *place.options).out)["cancel_requested"] is False
    cli("runs", "cancel", run, *place.options)


def test_keys(cli, place, tmp_path) -> None:
    missing = cli("programs", "ls", "--server", place.url)
    assert missing.code == 2
    assert "401" in missing.err
    assert "--api-key-file" in missing.err
    given = cli("programs", "ls", SGLSPEC_SERVER=place.url, SGLSPEC_API_KEY=place.key)
    assert given.code == 0
    for text in ("", "two words", "k\u00e9y", place.key + "\n" + place.key):
        (tmp_path / "bad").write_text(text)
        done = cli("programs", "ls", "--server", place.url, "--api-key-file", "bad")
        assert done.code == 2
        assert place.key not in done.err
    assert cli("programs", "ls", "--api-key-file", "nowhere").code == 2
    done = cli("programs", "ls", "--api-key-file", place.key)
    assert done.code == 2
    assert place.key not in done.out + done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("programs", "ls", "--server", "ftp://127.0.0.1"),
        ("programs", "ls", "--server", "127.0.0.1:8080"),
        ("programs", "ls", "--server", "http://user:hidden@127.0.0.1"),
        ("programs", "ls", "--server", "http://127.0.0.1:999999"),
        ("programs", "ls", "--server", "http://127.0.0.1/?q=hidden"),
        ("programs", "ls", "--server", "http://[::1"),
        ("programs", "ls", "--server", "http://127.0.0.1\r\nX-Hidden: hidden"),
        ("programs", "ls", "--server", ""),
        ("programs", "get", "../keys"),
        ("programs", "get", "a@b/c"),
        ("programs", "rm", "a@1"),
        ("runs", "get", "1"),
        ("runs", "cancel", f"{RUN}/../x"),
        ("runs", "events", RUN, "--after", "x"),
        ("runs", "ls", "--limit", "0"),
        ("runs", "ls", "--program", "A"),
        ("deploy", "nowhere.yaml"),
        ("deploy", "x.yaml", "--alias", "1"),
        ("deploy", "x.yaml", "--name", "A"),
    ],
)
def test_wrong_usage(cli, arguments) -> None:
    done = cli(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "hidden" not in done.err


Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Fake:
    """A server that gives prepared answers, one after the other; the last one again and again."""

    answers: list[Answer] = field(default_factory=list)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Generator[Fake]:
    state = Fake()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.asked.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
            status, headers, body = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("SGLSPEC_SERVER", state.url)
    monkeypatch.setenv("SGLSPEC_API_KEY", "sgs_secret")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def problem(status: int, code: str, detail: str = "", **headers: str) -> Answer:
    body = {"title": "A title", "status": status, "code": code, "detail": detail}
    return status, headers, json.dumps(body).encode()


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (problem(404, "not-found", "There is no such program."), 2, "There is no such program."),
        (problem(403, "forbidden"), 2, "scope"),
        (problem(429, "rate-limited"), 4, "429"),
        (problem(503, "busy"), 5, "503"),
        (problem(500, "internal"), 5, "500"),
        ((502, {}, b"<html>Bad gateway</html>"), 5, "not as a server of sglspec"),
        ((200, {}, b"<html>Hello</html>"), 5, "not that of a server of sglspec"),
        ((200, {}, b"[" * 100_000), 5, "not that of a server of sglspec"),
        ((200, {"Content-Length": "100"}, b"{}"), 5, "cannot be asked"),
        ((404, {}, b'{"title": 1, "errors": 7}'), 2, "404"),
    ],
)
def test_what_a_server_refuses(cli, fake, answer, code, says) -> None:
    fake.answers = [answer]
    done = cli("programs", "get", "hello")
    assert (done.code, done.out) == (code, "")
    assert "error S614: " in done.err
    assert says in done.err


def test_a_busy_server_is_asked_again(cli, fake) -> None:
    fake.answers = [problem(503, "busy", **{"Retry-After": "0"}), (200, {}, b'{"name": "hello"}')]
    assert cli("programs", "get", "hello").code == 0
    fake.answers, fake.asked = [problem(503, "busy", **{"Retry-After": "0"})], []
    assert cli("programs", "get", "hello").code == 5
    assert len(fake.asked) == 3


def test_a_redirect_is_not_followed(cli, fake) -> None:
    fake.answers = [(302, {"Location": f"{fake.url}/elsewhere"}, b"")]
    done = cli("programs", "get", "hello")
    assert done.code == 2
    assert [path for _, path, _ in fake.asked] == ["/v1/programs/hello"]
    assert fake.asked[0][2]["authorization"] == "Bearer sgs_secret"
    assert "/elsewhere" in done.err
    assert "secret" not in done.err


def test_nobody_listens(cli) -> None:
    done = cli("programs", "ls", "--server", "http://127.0.0.1:1")
    assert done.code == 5
    assert "The server at http://127.0.0.1:1 cannot be asked" in done.err


def test_https_wants_a_certificate(cli, fake) -> None:
    done = cli("programs", "ls", "--server", fake.url.replace("http", "https"))
    assert done.code == 5
    assert fake.asked == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_certificate_has_to_be_trusted_and_of_the_name(cli, tmp_path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"data": [], "next": null}')

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that does not trust it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    trusted = str(tmp_path / "cert.pem")
    try:
        unknown = cli("programs", "ls", "--server", f"https://localhost:{server.server_port}")
        known = cli("programs", "ls", "--server", f"https://localhost:{server.server_port}", SSL_CERT_FILE=trusted)
        another = cli("programs", "ls", "--server", f"https://127.0.0.1:{server.server_port}", SSL_CERT_FILE=trusted)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert (unknown.code, known.code, another.code) == (5, 0, 5)
    assert "its certificate is not valid" in unknown.err
    assert "127.0.0.1" in another.err


def test_a_key_in_the_clear_is_warned_of(cli) -> None:
    done = cli("programs", "ls", "--server", "http://0.0.0.0:1", SGLSPEC_API_KEY="sgs_secret")
    assert done.code == 5
    assert "not https" in done.err
    assert "secret" not in done.err


def test_pages_are_read_until_the_last(cli, fake) -> None:
    fake.answers = [
        (200, {}, b'{"data": [{"name": "a"}], "next": "a"}'),
        (200, {}, b'{"data": [{"name": "b"}], "next": "a"}'),
    ]
    assert json.loads(cli("programs", "ls", "--json").out) == [{"name": "a"}, {"name": "b"}]
    assert [path.partition("?")[2] for _, path, _ in fake.asked] == ["limit=100", "limit=100&after=a"]


def test_nothing_of_a_server_acts_on_a_terminal(terminal, fake, write) -> None:
    evil = "\x1b]0;owned\x07\x9b31m\u202ered"
    face = {"name": evil, "version": 1, "created_at": evil, "digest": evil, "text": evil}
    fake.answers = [(200, {}, json.dumps({**face, "data": [face], "next": None}).encode())]
    write("a.yaml", HELLO)
    shown = terminal("programs", "get", "hello", NO_COLOR="1").out + terminal("programs", "ls", NO_COLOR="1").out
    shown += terminal("programs", "get", "hello", "--source", NO_COLOR="1").out
    shown += terminal("deploy", "a.yaml", NO_COLOR="1").out
    error = {"code": evil, "message": evil, "file": evil, "help": evil, "range": {"start": {"line": 10**30}}}
    body = {"title": evil, "code": "invalid-program", "detail": evil}
    fake.answers = [(422, {}, json.dumps(body | {"errors": [error]}).encode()), (422, {}, json.dumps(body).encode())]
    shown += terminal("deploy", "a.yaml", NO_COLOR="1").out + terminal("deploy", "a.yaml", NO_COLOR="1").out
    assert shown.count("red") >= 8
    assert not set(shown) & {"\x1b", "\x07", "\x9b", "\u202e"}


def event(number: int, type: str, **more: Any) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, type.encode(), json.dumps({"type": type, **more}).encode())


def stream(*events: bytes) -> Answer:
    return 200, {"Content-Type": "text/event-stream; charset=utf-8"}, b"retry: 1\n\n: ping\n\n" + b"".join(events)


def types(out: str) -> list[str]:
    return [json.loads(line)["type"] for line in out.splitlines()]


RUNNING: Answer = (200, {}, b'{"status": "running"}')
ENDED: Answer = (200, {}, b'{"status": "succeeded"}')


def test_a_stream_that_breaks_is_gone_on_with(cli, fake) -> None:
    fake.answers = [
        stream(event(0, "run.queued"), event(1, "run.started"), b'id: 2\nevent: delta\ndata: {"type": "del'),
        RUNNING,
        problem(503, "stopping"),
        RUNNING,
        stream(event(1, "run.started"), event(2, "delta"), event(3, "run.succeeded"), event(4, "never")),
    ]
    done = cli("runs", "events", RUN)
    assert done.code == 0
    assert types(done.out) == ["run.queued", "run.started", "delta", "run.succeeded"]
    asked = [headers.get("last-event-id") for _, path, headers in fake.asked if path.endswith("/events")]
    assert asked == [None, "1", "1"]


def test_a_connection_that_is_reset_is_made_again(cli, fake) -> None:
    status, headers, body = stream(event(0, "run.queued"))
    cut = status, {**headers, "Transfer-Encoding": "chunked"}, b"%x\r\n%s" % (len(body) + 10, body)
    fake.answers = [cut, stream(event(1, "run.aborted"))]
    done = cli("runs", "events", RUN)
    assert types(done.out) == ["run.queued", "run.aborted"]
    assert done.code == 4


def test_a_stream_that_never_goes_on_is_given_up(cli, fake, monkeypatch) -> None:
    fake.answers = [stream(event(0, "run.queued")), *[RUNNING, stream()] * follow.TRIES, RUNNING]
    done = cli("runs", "events", RUN)
    assert done.code == 5
    assert types(done.out) == ["run.queued"]
    assert "`--after 0` goes on behind it" in done.err


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (event(0, "run.succeeded"), 0),
        (event(0, "run.failed", error={"code": "S705", "message": "x"}), 4),
        (event(0, "run.failed", error={"code": "S613", "message": "x"}), 5),
        (event(0, "run.failed", error="odd"), 3),
        (event(0, "run.cancelled"), 3),
        (event(0, "run.expired"), 4),
    ],
)
def test_how_a_run_ended_is_the_exit_code(cli, fake, last, code) -> None:
    fake.answers = [stream(last)]
    assert cli("runs", "events", RUN).code == code


def test_an_answer_that_is_no_stream(cli, fake) -> None:
    fake.answers = [ENDED]
    assert cli("runs", "events", RUN).code == 5
    fake.answers = [problem(404, "not-found", "There is no such run.")]
    assert cli("runs", "events", RUN).code == 2


def test_the_ends_are_those_of_the_server() -> None:
    assert set(TERMINAL) == follow.ENDS


def test_asking_a_server_loads_nothing_heavy(fake, tmp_path) -> None:
    fake.answers = [(200, {}, b"{}")]
    code = (
        "import sys\nfrom sglspec.cli import main\ncode = main(['programs', 'get', 'hello'])\n"
        "print(code, [m for m in ('torch', 'fastapi', 'sqlalchemy', 'asyncio', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment(), check=False
    )
    assert done.stdout == "{}\n0 []\n"
