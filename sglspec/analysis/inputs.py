"""Binding a run's inputs: defaults, null for what is optional, and one message for everything that does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from sglspec.analysis.declarations import check_input, coerce_text, nearest, type_of
from sglspec.diagnostics import Diagnostic, sentence
from sglspec.document.model import Decl, Spec
from sglspec.document.nodes import to_python

__all__ = ["bind", "bind_inputs", "bind_some", "check_input", "coerce_text", "secret_texts", "type_of"]


def bind_inputs(spec: Spec, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Diagnostic]]:
    """Every declared input with its value, and what is wrong: S401 wrong type, S402 missing, S403 unknown.

    The diagnostics have no place in the document: what is wrong is the input.
    """
    values, problems = bind(spec.inputs, given)
    return values, [replace(problem, pointer="") for problem in problems]


def bind(declared: Mapping[str, Decl], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Diagnostic]]:
    """The same for any declarations. The `pointer` of a problem is the input's name."""
    problems: list[Diagnostic] = []
    values: dict[str, Any] = {}
    for name in given:
        if name not in declared:
            problems.append(_unknown(name, list(declared)))
    for name, decl in declared.items():
        if name in given and not (given[name] is None and _has_fallback(decl)):
            value = fill(decl, given[name])
            message = check_input(decl, value)
            if message is not None and decl.secret:
                message = "it does not fit its declaration"  # the details show the value
            if message is not None:
                problems.append(Diagnostic("S401", sentence(f"input `{name}`: {message}"), pointer=name))
            values[name] = value
        elif decl.default is not None:
            values[name] = to_python(decl.default.node)
        elif decl.optional:
            values[name] = None
        else:
            problems.append(_missing(name, decl))
    return values, problems


def bind_some(spec: Spec, given: Mapping[str, Any]) -> list[Diagnostic]:
    """What is wrong with inputs of which more are to come: S401 and S403."""
    return [problem for problem in bind_inputs(spec, given)[1] if problem.code != "S402"]


def secret_texts(spec: Spec, values: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts in secret inputs, the longest first. Shorter ones than MIN_SECRET are not told from other text."""
    waiting = [values[name] for name, decl in spec.inputs.items() if decl.secret]
    found: set[str] = set()
    for value in waiting:  # grows while it is walked
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, list):
            waiting += cast("list[Any]", value)
        elif isinstance(value, dict):
            waiting += cast("dict[str, Any]", value).values()
    return tuple(sorted((text for text in found if len(text) >= MIN_SECRET), key=len, reverse=True))


MIN_SECRET = 4


def fill(decl: Decl, value: Any) -> Any:
    """The value with the defaults of absent properties put in."""
    if isinstance(value, dict) and decl.properties is not None:
        out = {**cast("dict[str, Any]", value)}
        for name, inner in decl.properties.items():
            if name in out:
                out[name] = fill(inner, out[name])
            elif inner.default is not None:
                out[name] = to_python(inner.default.node)
        return out
    if isinstance(value, list) and decl.items is not None:
        items = cast("list[Any]", value)
        return [fill(decl.items, item) for item in items]
    return cast("Any", value)


def _has_fallback(decl: Decl) -> bool:
    """An explicit null means the same as not given (language.md § 11), unless null is itself a declared default."""
    return decl.optional is True or decl.default is not None


def _unknown(name: str, names: list[str]) -> Diagnostic:
    close = nearest(name, names)
    if close is not None:
        help = f"Did you mean `{close}`?"
    else:
        help = "The program's inputs are: " + ", ".join(names) + "." if names else "The program has no inputs."
    return Diagnostic("S403", f"The program has no input `{name}`.", help=help)


def _missing(name: str, decl: Decl) -> Diagnostic:
    about = f" ({decl.description.strip()})" if decl.description else ""
    kind = type_of(decl)
    example = name + ("=…" if kind in ("string", "any", "integer", "number", "boolean") else ":=JSON")
    return Diagnostic("S402", f"The input `{name}` is missing{about}.", help=f"Give it with `--set {example}`.")
