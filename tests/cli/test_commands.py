"""The small commands, and what no command may do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from .conftest import HELLO, environment

HEAVY = ("torch", "transformers", "numpy", "fastapi", "asyncio")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["check", "hello.yaml"],
        ["check", "--help"],
        ["doctor", "--help"],
        ["batch", "--help"],
        ["test", "--help"],
        ["explain", "S201"],
    ],
)
def test_light_commands_load_nothing_heavy(write, tmp_path, arguments):
    write("hello.yaml", HELLO)
    code = (
        "import sys\nfrom sglspec.cli import main\n"
        f"code = main({arguments!r})\n"
        f"print(code, [m for m in {(*HEAVY, 'rich')!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment(), check=False
    )
    assert done.stderr == "0 []\n"


def test_importing_the_package_does_nothing():
    code = "import sys, sglspec\nprint([m for m in sys.modules if m.startswith('sglspec')], sglspec.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=False)
    assert done.stdout.startswith("['sglspec'] ")


@pytest.mark.parametrize("arguments", [[], ["models"], ["nonsense"], ["run"], ["run", "a.yaml", "--nonsense"]])
def test_wrong_usage(cli, arguments):
    done = cli(*arguments)
    assert done.code == 2
    assert "Usage:" in done.out + done.err


def test_help_names_every_command(cli):
    done = cli("--help")
    assert done.code == 0
    for name in ("run", "check", "test", "batch", "schema", "models", "explain", "serve", "doctor", "version"):
        assert f"\n  {name} " in done.out
    assert cli("run", "-h").out == cli("run", "--help").out


def test_version(cli):
    done = cli("version")
    assert done.out.startswith("sglspec ")
    assert done.out == cli("--version").out
    details = json.loads(cli("version", "--json").out)
    assert details["language"] == "v1"
    assert set(details) == {"sglspec", "language", "python", "packages"}


def test_schema(cli):
    assert json.loads(cli("schema").out)["title"] == "sglspec v1"


def test_explain(cli, terminal):
    page = cli("explain", "S201").out
    assert page.startswith("# S201")
    assert cli("explain", "unknown-key").out == page
    assert "\x1b[" in terminal("explain", "S201").out


def test_explain_of_an_unknown_code(cli):
    done = cli("explain", "unknwn-key")
    assert done.code == 2
    assert "Did you mean unknown-key?" in done.err


def test_models_ls(cli, tmp_path):
    done = cli("models", "ls", SGLSPEC_HOME=str(tmp_path))
    assert done.code == 0
    assert "smollm2-135m-instruct  no " in done.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["no-such-model"], "S601"), (["smollm2-135m-instruct", "--from", "nowhere.whl"], "S602")],
)
def test_models_pull_that_fails(cli, tmp_path, arguments, says):
    done = cli("models", "pull", *arguments, SGLSPEC_HOME=str(tmp_path))
    assert done.code == 5
    assert says in done.err
    assert done.out == ""


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "example.org", "::"])
def test_serve_listens_on_this_machine_only(cli, host):
    done = cli("serve", "--host", host)
    assert done.code == 2
    assert "loopback" in done.err


@pytest.mark.parametrize("port", ["70000", "x", "-1"])
def test_serve_port(cli, port):
    done = cli("serve", "--port", port)
    assert done.code == 2
    assert f"{port!r} is not a whole number from 0 to 65535." in done.err


def test_format_of_check(cli):
    done = cli("check", "--format", "xml", "a.yaml")
    assert done.code == 2
    assert "'xml' is not text, json, sarif or github." in done.err


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("run", "sglspec run [OPTIONS] SPEC"),
        ("check", "sglspec check [OPTIONS] PATH..."),
        ("explain", "sglspec explain [OPTIONS] CODE"),
        ("models pull", "sglspec models pull [OPTIONS] NAME"),
        ("models ls", "sglspec models ls [OPTIONS]"),
        ("serve", "sglspec serve [OPTIONS] PATH..."),
    ],
)
def test_help_is_in_our_words(cli, command, usage):
    done = cli(*command.split(), "--help")
    assert done.out.startswith(f"Usage: {usage}\n")
    assert not re.search("[<>{}]|range|list\\[", done.out)


def test_help_of_arguments(cli):
    assert re.search(r"^  PATH\.\.\.  Documents,", cli("check", "--help").out, re.MULTILINE)


def rows_of(done):
    return {row["name"]: row for row in json.loads(done.out)["engine"]}


def test_doctor_without_a_model(cli, tmp_path):
    done = cli("doctor", SGLSPEC_HOME=str(tmp_path))
    assert (done.code, done.err) == (0, "")
    assert re.search(r"^torch +\d", done.out, re.MULTILINE)
    assert re.search(r"^model +none: neither given nor installed$", done.out, re.MULTILINE)
    assert re.search(r"^attention +cpu +the model runs on the CPU$", done.out, re.MULTILINE)
    done = cli("doctor", "--json", "--engine", "attention=reference,threads=3", SGLSPEC_HOME=str(tmp_path))
    assert rows_of(done)["attention"] == {"name": "attention", "value": "reference", "reason": "as configured"}
    assert rows_of(done)["threads"]["value"] == "3"
    assert {"weights", "max_kv_bytes", "device", "dtype", "processor"} <= set(rows_of(done))


def test_doctor_with_a_model(cli, tiny_llama):
    done = cli("doctor", "--json", "--model", str(tiny_llama), "--engine", "weights=plain,probe=off")
    rows = rows_of(done)
    assert (rows["linear"]["value"], rows["fused"]["value"]) == ("15 plain", "0")
    assert rows["probe"]["value"] == "off"
    done = cli("doctor", "--json", "--model", str(tiny_llama), "--engine", "weights=fp32")
    assert (rows_of(done)["fused"]["value"], rows_of(done)["weights"]["value"]) == ("2", "fp32")


def test_doctor_with_a_model_that_is_not_here(cli):
    done = cli("doctor", "--json", "--model", "./nowhere")
    assert done.code == 5
    assert [d["code"] for d in json.loads(done.out)["diagnostics"]] == ["S602"]
    assert "attention" in rows_of(done)
    assert "There is no model folder `./nowhere`" in done.err


def test_doctor_with_a_setting_that_does_not_work_here(cli, tmp_path):
    done = cli("doctor", "--engine", "device=nowhere", SGLSPEC_HOME=str(tmp_path))
    assert done.code == 5
    assert "error S605: There is no device 'nowhere' here" in done.err
    assert cli("doctor", "--engine", "device", SGLSPEC_HOME=str(tmp_path)).code == 2


def test_doctor_without_torch(process, write, tmp_path):
    write("site/sitecustomize.py", "import sys\nsys.modules['torch'] = None\n")
    path = os.pathsep.join(["site", os.environ.get("PYTHONPATH", "")])
    done = process("doctor", PYTHONPATH=path, SGLSPEC_HOME=str(tmp_path))
    assert done.code == 5
    assert "error S607: The local engine needs the package `torch`, which is not installed.\n" in done.err
    assert "pip install 'sglspec[local]'" in done.err
    assert done.out.startswith("sglspec ")
