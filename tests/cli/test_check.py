"""`sglspec check`."""

from __future__ import annotations

import json

from tests.engine import tiny

from .conftest import FORK, HELLO

WRONG = "sglspec: v1\nsteps:\n  - gen: x\n    max_token: 3\n"
WARNED = HELLO.replace("{{ city }}", "It")


def test_clean_document(cli, write):
    write("hello.yaml", HELLO)
    done = cli("check", "hello.yaml")
    assert (done.code, done.out, done.err) == (0, "1 document, no problems\n", "")


def test_errors_go_to_standard_output(cli, write):
    write("wrong.yaml", WRONG)
    done = cli("check", "wrong.yaml")
    assert done.code == 1
    assert "wrong.yaml:4:5" in done.out
    assert "S201" in done.out
    assert "`max_tokens`" in done.out
    assert done.out.splitlines()[-1] == "1 error"
    assert done.err == ""


def test_several_documents_and_folders(cli, write):
    write("a/one.sglspec.yaml", HELLO)
    write("a/b/two.sglspec.yml", WRONG)
    write("a/b/three.sglspec.json", json.dumps({"sglspec": "v1", "steps": ["x"]}))
    write("a/other.yaml", WRONG)
    write("a/.hidden/four.sglspec.yaml", WRONG)
    write("five.txt", HELLO)
    done = cli("check", "a", "five.txt")
    assert done.code == 1
    assert done.out.splitlines()[-1] == "4 documents, 1 with errors"
    assert "a/b/two.sglspec.yml:4:5" in done.out


def test_json(cli, write):
    write("wrong.yaml", WRONG)
    write("hello.yaml", HELLO)
    done = cli("check", "--format", "json", "wrong.yaml", "hello.yaml")
    (found,) = json.loads(done.out)
    assert done.code == 1
    assert (found["code"], found["file"], found["range"]["start"]) == ("S201", "wrong.yaml", {"line": 4, "column": 5})
    assert json.loads(cli("check", "--format", "json", "hello.yaml").out) == []


def test_json_is_capped_like_text(cli, write):
    write("many.yaml", "sglspec: v1\nsteps:\n" + "".join(f"  - '{{{{ nobody{n} }}}}'\n" for n in range(70)))
    done = cli("check", "--format", "json", "many.yaml")
    assert done.code == 1
    assert len(json.loads(done.out)) == 50
    assert "20 more" in done.err


def test_warnings(cli, write):
    write("warned.yaml", WARNED)
    done = cli("check", "warned.yaml")
    assert done.code == 0
    assert "W302" in done.out
    assert cli("check", "--strict", "warned.yaml").code == 1


def test_standard_input(cli):
    done = cli("check", "-", stdin=WRONG)
    assert done.code == 1
    assert "<stdin>:4:5" in done.out


def test_unreadable(cli, write, tmp_path):
    write("wrong.yaml", WRONG)
    (tmp_path / "empty").mkdir()
    assert cli("check", "nowhere.yaml", "wrong.yaml").code == 2
    assert cli("check", "empty").code == 2
    assert cli("check").code == 2
    assert cli("check", "--format", "xml", "wrong.yaml").code == 2


def test_colours_on_a_terminal_only(cli, terminal, write):
    write("wrong.yaml", WRONG)
    assert "\x1b[" in terminal("check", "wrong.yaml").out
    assert "\x1b[" not in terminal("check", "wrong.yaml", NO_COLOR="1").out
    assert "\x1b[" not in cli("check", "wrong.yaml").out


JOIN = "sglspec: v1\nsteps:\n  - fork: 2\n    do: '{{ loop.index }}'\n    join: concat_kv\n"


def test_a_backend_tells_what_it_cannot_do(cli, write, tmp_path):
    write("chat.yaml", FORK)
    write("join.yaml", JOIN)
    write("wrong.yaml", WRONG)
    write("replies.yaml", "{}")
    assert cli("check", "--backend", "scripted:replies.yaml", "join.yaml", "chat.yaml").code == 0
    tiny.write_tokenizer(tiny.build(tmp_path / "fixed", "gpt2"), template=None)
    done = cli("check", "--model", "fixed", "join.yaml", "chat.yaml", "wrong.yaml")
    assert done.code == 1
    assert "join.yaml:5:11: error S606" in done.out
    assert "chat.yaml:" in done.out and "S604" in done.out
    assert "S201" in done.out
    assert done.out.splitlines()[-1] == "3 documents, 3 with errors"


def test_a_backend_that_is_none(cli, write):
    write("hello.yaml", HELLO)
    done = cli("check", "--backend", "cloud", "hello.yaml")
    assert (done.code, done.out) == (5, "")
    assert "S601" in done.err


USING = "sglspec: v1\nuse: {part: ../parts/part.yaml}\nsteps: [{include: part}]\n"


def test_files_of_a_granted_folder(cli, write):
    write("own/main.yaml", USING)
    write("parts/part.yaml", "sglspec: v1\nsteps: hello\n")
    assert "S121" in cli("check", "own/main.yaml").out
    done = cli("check", "--root", "parts", "own/main.yaml")
    assert (done.code, done.out) == (0, "1 document, no problems\n")
    assert cli("run", "--backend", "scripted:", "--root", "parts", "own/main.yaml", "--json").code == 0
    assert "hello" in cli("render", "--root", "parts", "own/main.yaml").out
    assert cli("check", "--root", "nowhere", "own/main.yaml").code == 2


def test_standard_input_stands_in_the_first_root(cli, write):
    write("parts/part.yaml", "sglspec: v1\nsteps: hello\n")
    text = USING.replace("../parts/", "./")
    assert "S121" in cli("check", "-", stdin=text).out
    assert cli("check", "--root", "parts", "-", stdin=text).code == 0


def test_a_mistake_in_a_document_that_two_use_is_shown_once_with_its_text(cli, write):
    for name in ("one", "two"):
        write(f"{name}.yaml", "sglspec: v1\nuse: {part: ./part.yaml}\nsteps: [{include: part}]\n")
    write("part.yaml", WRONG)
    done = cli("check", "one.yaml", "two.yaml")
    assert done.out.count("S201") == 1
    assert "part.yaml:4:5" in done.out and "4 |     max_token: 3" in done.out


def test_faces_for_code_review(cli, write):
    write("wrong.yaml", WRONG)
    done = cli("check", "--format", "sarif", "wrong.yaml")
    (found,) = json.loads(done.out)["runs"][0]["results"]
    assert (done.code, found["ruleId"]) == (1, "S201")
    done = cli("check", "--format", "github", "wrong.yaml")
    assert done.code == 1
    assert done.out.startswith("::error file=wrong.yaml,line=4,col=5,endLine=4,endColumn=13,title=S201::")
    write("hello.yaml", HELLO)
    assert cli("check", "--format", "github", "hello.yaml").out == ""
