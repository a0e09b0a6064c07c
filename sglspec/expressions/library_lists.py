"""Library functions over lists and objects."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from sglspec.expressions.errors import ArgumentProblem
from sglspec.expressions.function import (
    Context,
    Function,
    as_integer,
    as_list,
    as_object,
    as_text,
    folded,
    function,
    item_at,
)
from sglspec.expressions.values import Value, compare, describe, key_of, truthy


def len_(ctx: Context, value: Value) -> Value:
    """How many characters, items or entries the value has."""
    if isinstance(value, str | list | dict):
        return len(value)
    raise ArgumentProblem(f"needs text, a list or an object, and this is {describe(value)}.")


def range_(ctx: Context, start: Value, stop: Value = None, step: Value = 1) -> Value:
    """The whole numbers from `start` up to, not including, `stop`; with one argument from 0 up to it."""
    first = 0 if stop is None else as_integer(start)
    last = as_integer(start if stop is None else stop)
    by = as_integer(step)
    if by == 0:
        raise ArgumentProblem("needs a step that is not 0.")
    count = max(0, -((first - last) // by) if by > 0 else -((last - first) // -by))
    ctx.budget.items(count)
    return list(range(first, last, by))


def enumerate_(ctx: Context, value: Value, start: Value = 0) -> Value:
    """Pairs of a number and an item."""
    items = as_list(value)
    ctx.budget.items(len(items), 4)
    return [[number, item] for number, item in enumerate(items, as_integer(start))]


def zip_(ctx: Context, value: Value, *more: Value) -> Value:
    """The first items of all lists together, then the second ones, …; the lists are equally long."""
    lists = [as_list(part) for part in (value, *more)]
    if len({len(part) for part in lists}) > 1:
        lengths = ", ".join(str(len(part)) for part in lists)
        raise ArgumentProblem(f"needs lists of one length, and these have {lengths} items.", "Cut one: `x[:3]`.")
    ctx.budget.items(len(lists[0]), 3 + len(lists))
    return [list(parts) for parts in zip(*lists, strict=True)]


def batch(ctx: Context, value: Value, linecount: Value, fill_with: Value = None) -> Value:
    """Lists of `linecount` items each; the last one is shorter, or filled with `fill_with`."""
    items, size = as_list(value), as_integer(linecount, 1)
    ctx.budget.items(len(items), 4)
    rows = [items[at : at + size] for at in range(0, len(items), size)]
    if rows and fill_with is not None:
        missing = size - len(rows[-1])
        ctx.budget.items(missing)
        rows[-1] = rows[-1] + [fill_with] * missing
    return list(rows)


def slice_(ctx: Context, value: Value, slices: Value, fill_with: Value = None) -> Value:
    """The list cut into `slices` lists of nearly the same length."""
    items, count = as_list(value), as_integer(slices, 1)
    ctx.budget.items(count, 3)
    ctx.budget.items(len(items))
    each, extra = divmod(len(items), count)
    rows: list[Value] = []
    at = 0
    for number in range(count):
        size = each + (number < extra)
        row = items[at : at + size]
        if fill_with is not None and number >= extra:
            row.append(fill_with)
        rows.append(row)
        at += size
    return rows


def list_(ctx: Context, value: Value) -> Value:
    """The value as a list: a list as it is, the characters of a text, the keys of an object."""
    if isinstance(value, list | str | dict):
        ctx.budget.items(len(value), 3)
        return list(value)
    raise ArgumentProblem(f"needs a list, text or an object, and this is {describe(value)}.")


def first(ctx: Context, value: Value) -> Value:
    """The first item (or character); null if there is none."""
    return _ends(value)[0] if _ends(value) else None


def last(ctx: Context, value: Value) -> Value:
    """The last item (or character); null if there is none."""
    return _ends(value)[-1] if _ends(value) else None


def _ends(value: Value) -> str | list[Value]:
    if isinstance(value, str | list):
        return value
    raise ArgumentProblem(f"needs a list or text, and this is {describe(value)}.")


def flatten(ctx: Context, value: Value, levels: Value = 1) -> Value:
    """The items of the lists inside the list, as one list; one level deep unless told."""
    items = as_list(value)
    for _ in range(as_integer(levels, 0, 64)):
        if not any(isinstance(item, list) for item in items):
            break
        ctx.budget.items(sum(len(item) if isinstance(item, list) else 1 for item in items), 2)
        items = [part for item in items for part in (item if isinstance(item, list) else [item])]
    return items


def compact(ctx: Context, value: Value) -> Value:
    """The list without its nulls."""
    return [item for item in _copied(ctx, value) if item is not None]


def sort(
    ctx: Context, value: Value, reverse: Value = False, case_sensitive: Value = False, attribute: Value = None
) -> Value:
    """The list from the smallest to the largest; capital and small letters count alike unless `case_sensitive`."""
    items = _copied(ctx, list(value) if isinstance(value, dict) else value)
    paths: list[Value] = [None] if attribute is None else [attribute]
    if isinstance(attribute, str):
        paths = list(attribute.split(","))
    keys = [[_key(ctx, item, path, case_sensitive) for path in paths] for item in items]
    ctx.budget.items(len(items), 4 * len(paths) + 4 * len(items).bit_length())
    order = sorted(range(len(items)), key=_order(ctx, keys), reverse=truthy(reverse))
    return [items[at] for at in order]


def unique(ctx: Context, value: Value, case_sensitive: Value = False, attribute: Value = None) -> Value:
    """The list without repetitions; the first of equal items stays."""
    seen: set[object] = set()
    kept: list[Value] = []
    for item in _copied(ctx, value):
        ctx.budget.charge(4)
        key = key_of(_key(ctx, item, attribute, case_sensitive), ctx.budget)
        if key not in seen:
            seen.add(key)
            kept.append(item)
    return kept


def most_common(ctx: Context, value: Value) -> Value:
    """The item that occurs most often, the first of several; nulls do not count; null for an empty list."""
    counts: dict[object, int] = {}
    firsts: dict[object, Value] = {}
    for item in _copied(ctx, value):
        if item is None:
            continue
        ctx.budget.charge(4)
        key = key_of(item, ctx.budget)
        counts[key] = counts.get(key, 0) + 1
        firsts.setdefault(key, item)
    # max() takes the first of equal ones, and dicts keep the order of insertion.
    return firsts[max(counts, key=lambda key: counts[key])] if counts else None


def map_(
    ctx: Context,
    value: Value,
    name: Value = None,
    *args: Value,
    attribute: Value = None,
    default: Value = None,
    **named: Value,
) -> Value:
    """What a function makes of every item (`map('upper')`), or an attribute of every item (`map(attribute='a.b')`)."""
    items = _copied(ctx, value)
    if name is None:
        if attribute is None:
            raise ArgumentProblem("needs the name of a function, or `attribute='…'`.", cause="S406")
        return [default if (part := item_at(item, attribute)) is None else part for item in items]
    if attribute is not None:
        named["attribute"] = attribute
    if default is not None:
        named["default"] = default
    function_name = as_text(name)
    mapped: list[Value] = []
    for item in items:
        ctx.budget.charge(24)
        mapped.append(ctx.apply(function_name, (item, *args), named))
    return mapped


def select(ctx: Context, value: Value, name: Value = None, *args: Value, attribute: Value = None) -> Value:
    """The items for which a test holds (`select('odd')`, `select('==', 1)`); without one, those that count as true."""
    return _selected(ctx, value, name, args, attribute, True)


def reject(ctx: Context, value: Value, name: Value = None, *args: Value, attribute: Value = None) -> Value:
    """The items for which a test does not hold."""
    return _selected(ctx, value, name, args, attribute, False)


def _selected(
    ctx: Context, value: Value, name: Value, args: Sequence[Value], attribute: Value, wanted: bool
) -> list[Value]:
    kept: list[Value] = []
    for item in _copied(ctx, value):
        ctx.budget.charge(24)
        part = item if attribute is None else item_at(item, attribute)
        holds = truthy(part) if name is None else ctx.test(as_text(name), part, args)
        if holds == wanted:
            kept.append(item)
    return kept


def group_by(
    ctx: Context, value: Value, attribute: Value, default: Value = None, case_sensitive: Value = False
) -> Value:
    """Pairs of a value of the attribute and the list of items that have it, in the order of those values."""
    groups: dict[object, list[Value]] = {}
    sort_keys: dict[object, Value] = {}
    names: dict[object, Value] = {}
    for item in _copied(ctx, value):
        ctx.budget.charge(8)
        own = item_at(item, attribute)
        own = default if own is None else own
        alike = own if case_sensitive or not isinstance(own, str) else folded(ctx, own).lower()
        key = key_of(alike, ctx.budget)
        groups.setdefault(key, []).append(item)
        sort_keys.setdefault(key, alike)
        names.setdefault(key, own)
    keys = list(groups)
    ctx.budget.items(len(keys), 4 + 4 * len(keys).bit_length())
    order = sorted(range(len(keys)), key=_order(ctx, [[sort_keys[key]] for key in keys]))
    return [[names[keys[at]], list(groups[keys[at]])] for at in order]


def all_(ctx: Context, value: Value) -> Value:
    """True if every item counts as true."""
    return all(map(truthy, _copied(ctx, value)))


def any_(ctx: Context, value: Value) -> Value:
    """True if an item counts as true."""
    return any(map(truthy, _copied(ctx, value)))


def keys(ctx: Context, value: Value) -> Value:
    """The keys of the object, in order."""
    ctx.budget.items(len(as_object(value)))
    return list(as_object(value))


def values(ctx: Context, value: Value) -> Value:
    """The values of the object, in order."""
    ctx.budget.items(len(as_object(value)))
    return list(as_object(value).values())


def items(ctx: Context, value: Value) -> Value:
    """Pairs of a key and its value."""
    ctx.budget.items(len(as_object(value)), 4)
    return [[key, part] for key, part in as_object(value).items()]


def default(ctx: Context, value: Value, default_value: Value = "", boolean: Value = False) -> Value:
    """`default_value` where the value is null or not there (with `boolean`, also where it counts as false)."""
    return default_value if value is None or (truthy(boolean) and not truthy(value)) else value


def _copied(ctx: Context, value: Value) -> list[Value]:
    ctx.budget.items(len(as_list(value)), 2)
    return list(as_list(value))


def _key(ctx: Context, item: Value, path: Value, case_sensitive: Value) -> Value:
    """What an item is sorted or compared by."""
    ctx.budget.charge(1)
    part = item if path is None else item_at(item, path)
    if isinstance(part, str) and not truthy(case_sensitive):
        return folded(ctx, part).lower()
    return part


def _order(ctx: Context, keys: list[list[Value]]) -> Callable[[int], Any]:
    def before(left: int, right: int) -> int:
        for a, b in zip(keys[left], keys[right], strict=True):
            order = compare(a, b, ctx.budget)
            if order:
                return order
        return 0

    return functools.cmp_to_key(before)


LISTS: tuple[Function, ...] = (
    function(len_, "integer", "['a', 'b'] | len", 2, aliases=("length",)),
    function(range_, "array", "range(3)", [0, 1, 2]),
    function(enumerate_, "array", "['a', 'b'] | enumerate(1)", [[1, "a"], [2, "b"]]),
    function(zip_, "array", "zip([1, 2], ['a', 'b'])", [[1, "a"], [2, "b"]]),
    function(batch, "array", "[1, 2, 3] | batch(2)", [[1, 2], [3]]),
    function(slice_, "array", "[1, 2, 3] | slice(2)", [[1, 2], [3]]),
    function(list_, "array", "'abc' | list", ["a", "b", "c"]),
    function(first, "any", "['a', 'b'] | first", "a"),
    function(last, "any", "['a', 'b'] | last", "b"),
    function(flatten, "array", "[[1], [2, [3]]] | flatten", [1, 2, [3]]),
    function(compact, "array", "['a', null, 'b'] | compact", ["a", "b"]),
    function(sort, "array", "['b', 'A', 'c'] | sort", ["A", "b", "c"]),
    function(unique, "array", "['a', 'b', 'A'] | unique", ["a", "b"]),
    function(most_common, "any", "['a', 'b', 'b'] | most_common", "b", aliases=("vote",)),
    function(map_, "array", "['a', 'b'] | map('upper')", ["A", "B"], names="function"),
    function(select, "array", "[1, 2, 3] | select('odd')", [1, 3], names="test"),
    function(reject, "array", "[1, 2, 3] | reject('odd')", [2], names="test"),
    function(
        group_by,
        "array",
        "[{'k': 'b', 'n': 1}, {'k': 'a', 'n': 2}] | group_by('k')",
        [["a", [{"k": "a", "n": 2}]], ["b", [{"k": "b", "n": 1}]]],
    ),
    function(all_, "boolean", "[true, 1, 'x'] | all", True),
    function(any_, "boolean", "[false, 0, ''] | any", False),
    function(keys, "array", "{'a': 1, 'b': 2} | keys", ["a", "b"]),
    function(values, "array", "{'a': 1, 'b': 2} | values", [1, 2]),
    function(items, "array", "{'a': 1, 'b': 2} | items", [["a", 1], ["b", 2]]),
    function(default, "any", "null | default('none')", "none"),
)
