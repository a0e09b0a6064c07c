"""Parts of values: `x.name`, `x[0]`, `x['name']`."""

from __future__ import annotations

from sglspec.expressions.errors import Problem
from sglspec.expressions.library import LIBRARY
from sglspec.expressions.values import Value, describe


def part_by_name(value: Value, name: str) -> Value:
    """`value.name`: an absent property reads as null."""
    if isinstance(value, dict):
        return value.get(name)
    if value is None:
        raise Problem(f"null has no `{name}`.", f"Write `… .{name} | default('…')` where it may be missing.", "S408")
    hint = f"Write `x | {name}`." if name in LIBRARY else None
    if isinstance(value, list):
        hint = hint or f"An item is `x[0].{name}`; of all items, `x | map(attribute='{name}')`."
    raise Problem(f"`.{name}` takes a part of an object, and this is {describe(value)}.", hint, "S408")


def part_at(value: Value, index: Value) -> Value:
    """`value[index]`: a number for lists and texts, a name for objects."""
    if isinstance(value, dict):
        if isinstance(index, bool) or not isinstance(index, int | str):
            raise Problem(f"A part of an object is named by text, not by {describe(index)}.", None, "S408")
        return value.get(str(index))
    if value is None:
        raise Problem("null has no parts.", "`default` gives a value for null: `x | default([])`.", "S408")
    if not isinstance(value, list | str):
        raise Problem(f"{describe(value)} has no parts.".capitalize(), None, "S408")
    if isinstance(index, bool) or not isinstance(index, int):
        whole = "a list" if isinstance(value, list) else "text"
        raise Problem(f"A part of {whole} is named by a whole number, not by {describe(index)}.", None, "S408")
    if not -len(value) <= index < len(value):
        count = f"{len(value)} {'items' if isinstance(value, list) else 'characters'}"
        help = "Counting starts at 0; `first` and `last` give null where there is none."
        raise Problem(f"There is no item {index}: there are {count}.", help, "S408")
    return value[index]
