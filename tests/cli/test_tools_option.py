"""`--tools`, of `run`, `check`, `test` and `serve`."""

from __future__ import annotations

import json

TOOLS = "from sglspec.tools import tool\n@tool\ndef twice(x: int) -> int:\n    return 2 * x\n"
TWICE = "sglspec: v1\nsteps:\n  - {tool: twice, with: {x: 3}, into: y}\n"
SUM = "sglspec: v1\nsteps:\n  - {tool: calculator, with: {expression: 1 + 1}, into: y}\n"


def test_check_without_a_host_warns(cli, write):
    write("t.yaml", TWICE)
    done = cli("check", "t.yaml")
    assert done.code == 0 and "warning S320: Nobody registered the tool `twice`" in done.out
    assert cli("check", "--strict", "t.yaml").code == 1


def test_check_with_a_host_knows_names_and_arguments(cli, write):
    write("t.yaml", TWICE)
    write("tools.py", TOOLS)
    assert (done := cli("check", "--tools", "tools.py", "t.yaml")).code == 0, done.out
    write("u.yaml", TWICE.replace("twice", "thrice"))
    done = cli("check", "--tools", "tools.py", "u.yaml")
    assert done.code == 1 and "error S320" in done.out and "`twice`" in done.out
    write("v.yaml", TWICE.replace("x: 3", "x: three"))
    done = cli("check", "--tools", "tools.py", "v.yaml")
    assert done.code == 1 and "error S408" in done.out and "v.yaml:3:29" in done.out


def test_run_without_the_tool(cli, write):
    write("t.yaml", TWICE)
    done = cli("run", "t.yaml")
    assert done.code == 1 and "error S320" in done.err


def test_a_script_answers_for_tools(cli, write):
    write("t.yaml", TWICE)
    write("replies.yaml", "twice: 7\n")
    done = cli("run", "--backend", "scripted:replies.yaml", "--json", "t.yaml")
    assert done.code == 0 and json.loads(done.out)["outputs"] == {"y": 7}
    write("replies.yaml", "{}\n")
    done = cli("run", "--backend", "scripted:replies.yaml", "t.yaml")
    assert done.code == 3 and "S710" in done.err


def test_modules_that_cannot_be_had(cli, write):
    write("t.yaml", SUM)
    for command in (["run", "t.yaml"], ["check", "t.yaml"], ["serve"]):
        done = cli(*command, "--tools", "no_such_module")
        assert done.code == 2 and "--tools" in done.err and "no_such_module" in done.err, done


def test_what_tools_print_is_no_result(cli, write):
    noisy = "import sys\nprint('loading')\n" + TOOLS.replace(
        "    return", "    print('calling'); sys.stdout.buffer.write(b'bytes'); sys.stdout.flush()\n    return"
    )
    write("tools.py", noisy)
    write("t.yaml", TWICE + "tests:\n  - {expect: [y == 6]}\n")
    done = cli("run", "--tools", "tools.py", "--json", "t.yaml")
    assert json.loads(done.out)["outputs"] == {"y": 6}
    assert all(word in done.err for word in ("loading", "calling", "bytes"))
    done = cli("run", "--tools", "tools.py", "--stream", "events", "t.yaml")
    assert json.loads(done.out.splitlines()[-1])["type"] == "run.succeeded"
    assert all(json.loads(line) for line in done.out.splitlines())
    assert cli("check", "--tools", "tools.py", "--format", "json", "t.yaml").out == "[]\n"
    done = cli("test", "--tools", "tools.py", "t.yaml")
    assert done.out == "ok   t.yaml: test 1\n1 passed, in 1 document\n"
