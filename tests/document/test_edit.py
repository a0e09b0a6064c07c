"""`fmt`: the layout of documents. What must hold for every document, and what it does to a few."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from sglspec.diagnostics import Report, SpecError
from sglspec.document.edit import MeaningChanged, format_source, same
from sglspec.document.nodes import Node, Source
from sglspec.document.read import parse, source_from_text

from .untidy import Untidy, tree

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("examples", "specs", "tests/rules", "tests/wrong", "tests/editor", "tests/corpus")
DOCUMENTS = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".yaml", ".yml", ".json") and "package" not in path.name
]


def fmt(text: str, name: str = "t.yaml") -> str:
    report = Report()
    formatted = format_source(source_from_text(text, name), report)
    assert formatted is not None, report.sorted()
    return formatted


def read(source: Source) -> Node:
    node = parse(source, Report())
    assert node is not None
    return node


def comments(text: str) -> Counter[str]:
    return Counter(match.rstrip() for match in re.findall(r"#[ !]?c\d+", text))


def test_there_are_documents():
    assert len(DOCUMENTS) > 90


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_our_documents(path: Path):
    source = source_from_text(path.read_bytes(), path.name)
    report = Report()
    text = format_source(source, report)
    if text is None:
        assert report.has_errors
        return
    assert not report.has_errors
    assert same(read(source), read(source_from_text(text, path.name)))
    assert fmt(text, path.name) == text


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if "examples" in path.parts], ids=lambda path: path.name)
def test_examples_are_formatted(path: Path):
    text = path.read_text("utf-8")
    assert fmt(text, path.name) == text


@pytest.mark.parametrize("block", range(10))
def test_untidy_documents(block: int):
    """Same values, same comments, and once is enough."""
    readable = 0
    for seed in range(100 * block, 100 * block + 100):
        random = Random(seed)
        source = source_from_text(Untidy(random).document(tree(random)), "t.yaml")
        if parse(source, Report()) is None:
            continue
        readable += 1
        once = fmt(source.text)
        assert same(read(source), read(source_from_text(once, "t.yaml"))), seed
        assert comments(once) == comments(source.text), seed
        assert fmt(once) == once, seed
        assert fmt(source.text.replace("\n", "\r\n")) == once.replace("\n", "\r\n"), seed
    assert readable > 90


PIECES = [
    " ", "\n", "  ", "\n\n", " # c", "- ", ": ", "? ", "[", "]", "{", "}", ",", '"', "'", "|+\n", "|2-\n", ">-\n", "&a ", "*a",
    "&a\n", "\t", "...\n", "---\n", "<<: ", "\\", "\r\n", "é",
]  # fmt: skip


@pytest.mark.parametrize("block", range(5))
def test_damaged_documents(block: int):
    """Whatever can still be read keeps its meaning; whatever cannot is refused with a place."""
    texts = [path.read_text("utf-8") for path in DOCUMENTS if path.suffix == ".yaml" and path.stat().st_size < 4000]
    for seed in range(200 * block, 200 * block + 200):
        random = Random(seed)
        lines = random.choice(texts).split("\n")
        start = random.randrange(len(lines))
        text = "\n".join(lines[start : start + random.randint(3, 25)])
        for _ in range(random.randint(1, 6)):
            at = random.randrange(len(text) + 1)
            text = text[:at] + random.choice(["", *PIECES]) + text[at + random.choice([0, 0, 3]) :]
        try:
            source = source_from_text(text, "t.yaml")
            report = Report()
            formatted = format_source(source, report)
        except (SpecError, MeaningChanged):
            continue
        if formatted is None:
            assert all(problem.range is not None for problem in report.sorted()), seed
            continue
        assert fmt(formatted) == formatted, seed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("steps:\n- gen:   x\n", "steps:\n  - gen: x\n"),
        ("a:\n      b: 1\n      c:\n         - 1\n", "a:\n  b: 1\n  c:\n    - 1\n"),
        ("a: [1,2]\nb: {x: 1,y: 2}\n", "a: [1, 2]\nb: {x: 1, y: 2}\n"),
        ("a: [ ]\nb: { }\n", "a: []\nb: {}\n"),
        ("a: [\n 1, 2]\n", "a:\n  - 1\n  - 2\n"),
        ("\n\na: 1\n\n\n\nb: 2\n\n", "a: 1\n\nb: 2\n"),
        ("a: 1", "a: 1\n"),
        ("a: 'x'\nb: \"it is\"\nc: 'y: z'\n", 'a: x\nb: it is\nc: "y: z"\n'),
        ("a: 'no'\nb: '7'\nc: 'null'\n", 'a: "no"\nb: "7"\nc: "null"\n'),
        ("a: 'say \"so\"'\nb: 'C:\\new'\n", "a: 'say \"so\"'\nb: 'C:\\new'\n"),
        ("a: ['x', 'z']\nb: ['x', 'no']\n", 'a: [x, z]\nb: ["x", "no"]\n'),
        ("a: ['x, y']\nb:\n- 'x, y'\n", 'a: ["x, y"]\nb:\n  - x, y\n'),
        ("a: |\n      x\n        y\n\n\nb: 1\n", "a: |\n  x\n    y\n\nb: 1\n"),
        ("a: |+\n    x\n\n\nb: 1\n", "a: |+\n  x\n\n\nb: 1\n"),
        ("a:\n  - |4\n       x\n", "a:\n  - |2\n     x\n"),
        ("a: >-   # why\n   x\n   y\n", "a: >-   # why\n  x\n  y\n"),
        ("a: |\n  x", "a: |-\n  x\n"),
        ("a: |\n      \n    \nb: 1\n", "a: |\n\nb: 1\n"),
        ("- |\n      \n", "- |-\n"),
        ('a: &x "y z"\nb: "y z"\n', 'a: &x "y z"\nb: y z\n'),
        ("a: x\xa0\nb: \u2028\n", "a: x\xa0\nb: \u2028\n"),
        ("a: x   # y\xa0\n", "a: x   # y\xa0\n"),
        ("a: one\n    two\nb: 1\n", "a: one\n  two\nb: 1\n"),
        ('a: "one \\\n     two"\n', 'a: "one \\\n  two"\n'),
        ("a: &x {b: 1}\nc:\n  <<: *x\n  d: *x\n", "a: &x {b: 1}\nc:\n  <<: *x\n  d: *x\n"),
        ("a: &x\n    b: 1\nc: [*x , 1]\n", "a: &x\n  b: 1\nc: [*x, 1]\n"),
        ("? a\n: b\n", "a: b\n"),
        ("- - 1\n  - 2\n-\n  a: 1\n", "- - 1\n  - 2\n- a: 1\n"),
        ("a: 1   # one\n#two\n  # three\nb: 2\n", "a: 1   # one\n#two\n# three\nb: 2\n"),
        ("a:\n    - 1\n    # in the list\n# outside\nb: 2\n", "a:\n  - 1\n  # in the list\n# outside\nb: 2\n"),
        ("a: # why\n    b\n", "a: # why\n  b\n"),
        ("a: [1, # one\n 2]\n", "a:\n  - 1 # one\n  - 2\n"),
        ("---\na: 1\n...\n", "---\na: 1\n"),
        ("\ufeffa:  1\r\nb: |\r\n    x\r\n", "a: 1\r\nb: |\r\n  x\r\n"),
        ("b: 1\na: 2\n", "b: 1\na: 2\n"),
    ],
)  # fmt: skip
def test_yaml(before: str, after: str):
    assert fmt(before) == after
    assert fmt(after) == after


def test_a_long_list_gets_a_line_for_each_item():
    words = [f"word{number}" for number in range(20)]
    assert fmt(f"a:  [{','.join(words)}]\n") == "a:\n" + "".join(f"  - {word}\n" for word in words)
    assert fmt(f"a:  [{','.join(words[:10])}]\n") == f"a: [{', '.join(words[:10])}]\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"a":1,"b":[1,2]}', '{"a": 1, "b": [1, 2]}\n'),
        ('{\n"a":1.50,\n  "b":["\\u00e9",  {}]}\n', '{\n  "a": 1.50,\n  "b": ["\\u00e9", {}]\n}\n'),
        ('{"a": [\n]}', '{\n  "a": []\n}\n'),
        ('{"a": "' + "x" * 120 + '"}', '{\n  "a": "' + "x" * 120 + '"\n}\n'),
    ],
)
def test_json(before: str, after: str):
    assert fmt(before, "t.json") == after
    assert fmt(after, "t.json") == after


def test_a_document_that_cannot_be_read():
    report = Report()
    assert format_source(source_from_text("a: [1\r\nb: 2\r\n", "t.yaml"), report) is None
    assert [problem.range is not None for problem in report.sorted()] == [True]


def test_one_and_true_are_different():
    assert not same(read(source_from_text("a: 1", "t")), read(source_from_text("a: true", "t")))
    assert not same(read(source_from_text("a: 1", "t")), read(source_from_text("a: 1.0", "t")))
    assert not same(read(source_from_text("{a: 1, b: 2}", "t")), read(source_from_text("{b: 2, a: 1}", "t")))


def test_words_that_are_texts_on_purpose_keep_their_quotes() -> None:
    """Without them `- break` looks as if its colon was forgotten (W204)."""
    text = 'sglspec: v1\nsteps:\n  - "break"\n  - {user: "a"}\n'
    assert fmt(text) == 'sglspec: v1\nsteps:\n  - "break"\n  - {user: a}\n'
    assert fmt('sglspec: v1\nsteps: ["a", "return"]\n') == 'sglspec: v1\nsteps: ["a", "return"]\n'
    assert fmt('sglspec: v1\nsteps: ["a", "returns"]\n') == "sglspec: v1\nsteps: [a, returns]\n"
