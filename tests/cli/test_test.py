"""`sglspec test`."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree

import pytest

from .conftest import environment

PROGRAM = """\
sglspec: v1
inputs: {n: {type: integer, default: 3}}
steps:
  - "Capital: "
  - gen: city
  - check: city != "Berlin"
tests:
"""
GOOD = """\
  - name: a good one
    tags: [quick]
    replies: {city: Paris}
    expect:
      - city == "Paris" and n == 3
      - messages() == [] and endswith(transcript(), "Paris")
      - meta(city).finish == "end"
    calls: {city: 1}
"""


@pytest.fixture
def tested(cli, write):
    def run(tests: str, *arguments: str):
        write("a.sglspec.yaml", PROGRAM + tests)
        return cli("test", ".", *arguments)

    return run


def test_a_test_that_passes(tested):
    done = tested(GOOD)
    assert (done.code, done.out) == (0, "ok   a.sglspec.yaml: a good one\n1 passed, in 1 document\n")


@pytest.mark.parametrize(
    ("test", "says"),
    [
        ('replies: {city: Paris}\n    expect: [city == "Lyon" and n == 3]', 'help: city = "Paris"\nn = 3\n'),
        ("replies: {city: Paris}\n    expect: [from_json(city) == n]", "cannot be evaluated"),
        ("replies: {city: Paris}\n    calls: {city: 2}", "help: city = 1\n"),
        ("replies: {city: Paris}\n    error: S702", "The run succeeded, and `S702` was expected."),
        ("replies: {city: Berlin}\n    error: S703", "The run ended with S702, and `S703` was expected."),
        ("replies: {city: Berlin}", "error S702: The check"),
        ("replies: {}", "error S710: The script has no reply for `city`"),
    ],
)
def test_a_test_that_fails(tested, test: str, says: str):
    done = tested(f"  - name: one\n    {test}\n" + GOOD)
    assert done.code == 1
    assert says in done.out
    assert done.out.startswith("FAIL a.sglspec.yaml: one\na.sglspec.yaml:")
    assert done.out.endswith("ok   a.sglspec.yaml: a good one\n1 passed, 1 failed, in 1 document\n")


@pytest.mark.parametrize("error", ["S702", "S7xx"])
def test_an_error_that_is_expected(tested, error: str):
    assert tested(f"  - replies: {{city: Berlin}}\n    error: {error}\n").code == 0


def test_the_code_that_caused_an_error_counts(cli, write):
    steps = 'sglspec: v1\nsteps:\n  - gen: x\n  - "{{ (x | from_json).y }}"\n'
    write("a.sglspec.yaml", steps + "tests:\n  - {replies: {x: '3'}, error: S408}\n")
    assert cli("test", "a.sglspec.yaml").code == 0


def test_some_of_the_tests(tested):
    more = "  - name: another\n    replies: {city: Berlin}\n"
    assert tested(GOOD + more, "-k", "QUICK").code == 0
    assert tested(GOOD + more, "-k", "another").code == 1
    done = tested(GOOD + more, "-k", "nothing")
    assert (done.code, done.out) == (2, "")
    assert "None of 2 tests matches." in done.err


def test_no_tests(tested):
    done = tested("  []\n")
    assert done.code == 2
    assert "No document has `tests`." in done.err


def test_documents_with_errors_run_no_test(tested):
    done = tested(GOOD + "  - calls: {town: 1}\n  - calls: {city: -1}\n  - tags: [1]\n")
    assert (done.code, done.out) == (1, "")
    for says in ("no step is named `town`", "a count is a whole number from 0", "`tags` is a list of words"):
        assert says[1:] in done.err


def test_a_model_that_is_not_here(tested):
    done = tested("  - expect: [city]\n", "--model", "nothing-of-this-name")
    assert done.code == 5
    assert "S601" in done.err


def test_junit(tested, tmp_path):
    tested(
        '  - name: "b\\u0007"\n    replies: {city: "a\\u0007"}\n    expect: [city == "b"]\n' + GOOD,
        "--junit",
        "out.xml",
    )
    suite = ElementTree.fromstring((tmp_path / "out.xml").read_bytes())[0]
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("a.sglspec.yaml", "2", "1")
    bad, good = suite
    assert (bad.get("name"), bad[0].get("type"), len(good)) == ("b\N{REPLACEMENT CHARACTER}", "S720", 0)


def test_scripted_tests_load_nothing_heavy(write, tmp_path):
    write("a.sglspec.yaml", PROGRAM + GOOD)
    code = (
        "import sys\nfrom sglspec.cli import main\ncode = main(['test', '.'])\n"
        "print(code, [m for m in ('torch', 'transformers', 'numpy') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment(), check=False
    )
    assert done.stderr == "0 []\n"
