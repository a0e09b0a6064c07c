"""The arithmetic of the built-in tool."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglspec.calculator import MAX_BITS, MAX_LENGTH, MAX_NESTING, calculate


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 2", 4),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("10 - 4 - 3", 3),
        ("7 / 2", 3.5),
        ("6 / 3", 2),
        ("7 // 2", 3),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("2 ** 3 ** 2", 512),
        ("-2 ** 2", -4),
        ("2 ** -1", 0.5),
        ("9 ** 0.5", 3),
        ("0.1 + 0.2", 0.3),
        ("1 / 3 * 3", 1),
        ("1.5e3", 1500),
        (".5 + 3.", 3.5),
        ("1,234,567 + 1", 1234568),
        ("12 × 3 ÷ 4 − 1 =", 8),
        ("2 ^ 10", 1024),
        ("--+1", 1),
        (" 1\n+\t1 ", 2),
    ],
)
def test_values(text: str, value: float):
    found = calculate(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a number is missing at column 1"),
        ("2 +", "a number is missing at column 4"),
        ("2 + x", "a number is missing at column 5, found 'x'"),
        ("1 2", "'2' is not expected at column 3"),
        ("1,2", "',' is not expected at column 2"),
        ("(1 + 2", "`)` is missing at column 7"),
        ("__import__('os')", "a number is missing at column 1, found '_'"),
        ("1 / 0", "division by zero"),
        ("1 % (2 - 2)", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("(-8) ** 0.5", "a root of a negative number is not a number"),
        ("().__class__", "a number is missing at column 2, found ')'"),
        ("(1).real", "'.' is not expected at column 4"),
        ("٣ + 1", "a number is missing at column 1, found '٣'"),
        ("1 + ３", "a number is missing at column 5, found '３'"),
        ("2²", "'²' is not expected at column 2"),
        ("1_000", "'_' is not expected at column 2"),
        ("0x10", "'x' is not expected at column 2"),
        ("1e5e5", "'e' is not expected at column 4"),
        ("inf", "a number is missing at column 1, found 'i'"),
        ("1; 2", "';' is not expected at column 2"),
        ("1 == 1", "'=' is not expected at column 3"),
        ("1\0", "'\\x00' is not expected at column 2"),
        ("\ud800", "a number is missing at column 1, found '\\ud800'"),
    ],
)
def test_what_is_wrong_and_where(text: str, message: str):
    with pytest.raises(ValueError) as problem:
        calculate(text)
    assert str(problem.value) == message


@pytest.mark.parametrize(
    "text",
    [
        "9 ** 9 ** 9",
        "2 ** (10 ** 9)",
        "(1 / 3) ** 100000",
        "(-1) ** (2 ** 70)",
        "*".join(["9" * 90] * 20),
        "1e309",
        "1e99999999999999999999",
        "10 ** 400 / 3",
        "1e300 ** 1.5",
        "(" * (MAX_NESTING + 1) + "1" + ")" * (MAX_NESTING + 1),
        "-" * (MAX_NESTING + 1) + "1",
        "2" + " ** 1" * (MAX_NESTING + 1),
        "1" * (MAX_LENGTH + 1),
    ],
)
def test_bounds(text: str):
    with pytest.raises(ValueError, match=r"too large|nested deeper|at most|longer than"):
        calculate(text)


def test_the_largest_number_can_be_written():
    assert calculate(f"2 ** {MAX_BITS - 1}") == 2 ** (MAX_BITS - 1)


Tree = int | tuple["Tree", str, "Tree"]
trees: st.SearchStrategy[Tree] = st.recursive(
    st.integers(0, 999), lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner), max_leaves=12
)


def written(tree: Tree) -> str:
    return str(tree) if isinstance(tree, int) else f"({written(tree[0])} {tree[1]} {written(tree[2])})"


def exact(tree: Tree) -> Fraction:
    if isinstance(tree, int):
        return Fraction(tree)
    left, right = exact(tree[0]), exact(tree[2])
    match tree[1]:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            return left / right


@given(trees)
def test_the_same_as_exact_fractions(tree: Tree):
    try:
        value = exact(tree)
    except ZeroDivisionError:
        with pytest.raises(ValueError, match="division by zero"):
            calculate(written(tree))
        return
    assert calculate(written(tree)) == (value.numerator if value.denominator == 1 else float(value))
