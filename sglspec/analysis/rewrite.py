"""A JSON Schema in the form that llguidance enforces.

All drafts become one form: no remarks, only definitions that are used, references to them, `prefixItems` for tuples.
Keywords that llguidance does not know are said in others where that is possible: `not` by the opposite of each part
(the opposite of "all of these" is "one of their opposites"), `if` as two cases, `dependentRequired` as "absent, or
these are there", a `oneOf` whose alternatives overlap as "this one and none of the others".

What cannot be said raises ConstraintError (S504) with its place; with `lenient` it is left out, and checked afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from sglspec.analysis import ecma
from sglspec.analysis import items as listed
from sglspec.analysis.drafts import LATEST, Draft, draft_of
from sglspec.analysis.formats import NUMBER_FORMATS, format_schema
from sglspec.analysis.grammar import ConstraintError
from sglspec.analysis.regexes import escape
from sglspec.analysis.subschemas import Pointer, Schema, resolve

_KINDS = ("null", "boolean", "number", "string", "array", "object")
_NO_LIST = {"type": [kind for kind in _KINDS if kind != "array"]}
_COPIED = frozenset(
    {
        "type", "enum", "const", "required", "maxProperties", "minItems", "maxItems", "minLength", "maxLength",
        "minimum", "maximum", "multipleOf",
    }
)  # fmt: skip
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "maxProperties")
_MAX_ALTERNATIVES = 8
"""Alternatives of a `oneOf` whose overlap is taken apart, and keys whose absence is written out."""
_MAX_CHAIN = 32
"""Nesting of what an opposite is made of, references included."""
_MAX_WORK = 2_000
"""Sub-schemas whose opposites are made."""
_MAX_WORDS = 2_000
"""Characters of the texts that a `not` leaves out."""


class _CannotSay(Exception):
    """A schema whose opposite our keywords cannot express."""


def rewrite(root: Schema, part: Schema | None = None, *, lenient: bool = False, apart: bool = False) -> Schema:
    """The whole schema, or a `part` of it as a schema of its own. apart: take every `oneOf` apart that can be."""
    return _Rewriter(root, draft_of(root) or LATEST, lenient, apart).whole(root if part is None else part)


class _Rewriter:
    def __init__(self, root: Schema, draft: Draft, lenient: bool, apart: bool) -> None:
        self.root = root
        self.draft = draft
        self.lenient = lenient
        self.apart = apart
        self.names: dict[int, str] = {}
        self.waiting: list[tuple[str, Any]] = []
        self.work = 0

    def whole(self, part: Schema) -> Schema:
        if part is self.root:
            self.names[id(part)] = "#"
        out = self.schema(part, ())
        if isinstance(out, bool):  # a reference to `true` or `false`
            out = {"allOf": [out]}
        found = cast("Schema", out)
        definitions: Schema = {}
        while self.waiting:
            name, target = self.waiting.pop()
            definitions[name] = self.schema(target, ("$defs", name))
        return {**found, "$defs": definitions} if definitions else found

    def schema(self, value: Any, at: Pointer) -> Any:
        """One sub-schema. `at` is for messages."""
        if not isinstance(value, dict):
            return value
        schema = cast("Schema", value)
        if "$ref" in schema and self.draft.ref_alone:
            return self.reference(schema["$ref"])
        out: Schema = {}
        also: list[Any] = []
        for key in schema:
            self.keyword(key, schema, (*at, key), out, also)
        if also:
            out["allOf"] = [*out.get("allOf", ()), *also]
        return out

    def keyword(self, key: str, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        """One keyword: into `out`, or as a schema of its own into `also`."""
        value = schema[key]
        handler = _HANDLERS.get(key)
        if key in _COPIED:
            # llguidance takes 2.0 for no count
            out[key] = int(value) if key in _COUNTS and isinstance(value, float) else value
        elif handler is not None:
            try:
                handler(self, schema, at, out, also)
            except _CannotSay:
                if not self.lenient:
                    raise _cannot(key, at) from None

    # -- references ----------------------------------------------------------------------------------------------

    def reference(self, reference: str) -> Any:
        target: Any = resolve(self.root, reference)
        if isinstance(target, bool):
            return target
        name = self.names.get(id(target))
        if name is None:
            name = self.names[id(target)] = f"d{len(self.names)}"
            self.waiting.append((name, target))
        return {"$ref": "#" if name == "#" else f"#/$defs/{name}"}

    def ref(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        target = self.reference(schema["$ref"])
        if isinstance(target, dict):
            out.update(cast("Schema", target))
        else:
            also.append(target)

    # -- keywords that are written anew --------------------------------------------------------------------------

    def exclusive(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        key = cast("str", at[-1])
        value = schema[key]
        if not isinstance(value, bool):
            out[key] = value
            return
        bound = "minimum" if key == "exclusiveMinimum" else "maximum"
        if value and bound in schema:
            also.append({key: schema[bound]})

    def format(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        name, kinds = schema["format"], _kinds(schema)
        if name in NUMBER_FORMATS or kinds is None or "string" in kinds:
            also.append(format_schema(name))

    def properties(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        out["properties"] = {name: self.schema(sub, (*at, name)) for name, sub in schema["properties"].items()}

    def patterns(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        found: Schema = {}
        for name, sub in schema["patternProperties"].items():
            value, key = self.schema(sub, (*at, name)), ecma.plain(name)
            found[key] = {"allOf": [found[key], value]} if key in found else value
        out["patternProperties"] = found

    def pattern(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        out["pattern"] = ecma.plain(schema["pattern"])

    def additional(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        out["additionalProperties"] = self.schema(schema["additionalProperties"], at)

    def min_properties(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        """At least one of a closed set is "this one is there, or that one"."""
        names = [n for n, sub in schema.get("properties", {}).items() if sub is not False]
        closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
        if schema["minProperties"] == 1 and closed and not schema.get("required"):
            also.append({"anyOf": [{"required": [name]} for name in names]})
        else:
            out["minProperties"] = int(schema["minProperties"])

    def items(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        items = schema["items"]
        if isinstance(items, list):
            out["prefixItems"] = self.list(cast("list[Any]", items), at)
            if "additionalItems" in schema:
                out["items"] = self.schema(schema["additionalItems"], (*at[:-1], "additionalItems"))
        else:
            out["items"] = self.schema(items, at)

    def prefix_items(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        out["prefixItems"] = self.list(schema["prefixItems"], at)

    def any_of(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        also.append({"anyOf": self.list(schema["anyOf"], at)})

    def all_of(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        also.extend(self.list(schema["allOf"], at))

    def one_of(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        """As it is: llguidance sees for itself whether alternatives exclude each other. If not, taken apart."""
        found = self.list(schema["oneOf"], at)
        if self.apart and 1 < len(found) <= _MAX_ALTERNATIVES:
            try:
                also.append({"anyOf": self.one_by_one(schema["oneOf"], found)})
                return
            except _CannotSay:
                pass
        also.append({"oneOf": found})

    def one_by_one(self, sources: list[Any], found: list[Any]) -> list[Any]:
        """Each alternative without the others."""
        opposites = [self.opposite(source) for source in sources]
        return [
            {"allOf": [one, *(o for j, o in enumerate(opposites) if j != i and o is not True)]}
            for i, one in enumerate(found)
        ]

    def list(self, schemas: Iterable[Any], at: Pointer) -> list[Any]:
        return [self.schema(sub, (*at, i)) for i, sub in enumerate(schemas)]

    def negation(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        also.append(self.opposite(schema["not"]))

    def condition(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        if "then" not in schema and "else" not in schema:
            return
        then, other = schema.get("then", True), schema.get("else", True)
        wanted, unwanted = self.schema(schema["if"], at), self.opposite(schema["if"])
        also.append(
            {
                "anyOf": [
                    {"allOf": [wanted, self.schema(then, (*at[:-1], "then"))]},
                    {"allOf": [unwanted, self.schema(other, (*at[:-1], "else"))]},
                ]
            }
        )

    def dependencies(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        needs: Schema = schema[cast("str", at[-1])]
        if len(needs) > _MAX_ALTERNATIVES:
            raise _CannotSay
        for name, needed in needs.items():
            if needed == []:
                continue
            names = cast("list[str]", needed) if isinstance(needed, list) else None
            there: Any = self.schema(needed, (*at, name)) if names is None else {"required": names}
            also.append({"anyOf": [{"properties": {name: False}}, there]})

    def names_of_properties(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        wanted: Any = schema["propertyNames"]
        if wanted is True or wanted == {}:
            return
        pattern = _names_pattern(wanted)
        if pattern is None or schema.get("properties") or schema.get("patternProperties"):
            raise _CannotSay
        value = self.schema(schema.get("additionalProperties", True), at)
        also.append({"patternProperties": {pattern: value}, "additionalProperties": False})

    def unique(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        most = schema.get("maxItems", listed.MOST_LISTS)
        if not schema["uniqueItems"] or most <= 1:
            return
        items = schema.get("items")
        if isinstance(items, dict) and set(cast("Schema", items)) == {"$ref"}:
            items = resolve(self.root, str(cast("Schema", items)["$ref"]))
        values = None if "prefixItems" in schema else listed.few_values(items)
        found = values and listed.without_repetition(values, int(schema.get("minItems", 0)), int(most))
        self.work += len(found or ())
        if not found or self.work > _MAX_WORK:
            raise _CannotSay
        also.append({"anyOf": [_NO_LIST, {"enum": found}]})

    def contains(self, schema: Schema, at: Pointer, out: Schema, also: list[Any]) -> None:
        least = schema.get("minContains", 1) if not self.draft.ref_alone else 1
        most = schema.get("maxContains") if not self.draft.ref_alone else None
        nested = "'contains'" in repr(schema["contains"])  # each would be there as often as there are places
        if most is not None or least > 1 or nested:
            raise _CannotSay
        if least == 1:
            found = listed.with_one(self.schema(schema["contains"], at), int(schema.get("maxItems", listed.MOST_LISTS)))
            if found is None:
                raise _CannotSay
            also.append({"anyOf": [_NO_LIST, *found]})

    # -- opposites -----------------------------------------------------------------------------------------------

    def opposite(self, value: Any, chain: int = 0) -> Any:
        """A schema that fits exactly what `value` does not. Raises _CannotSay."""
        if not isinstance(value, dict):
            return not value
        schema = cast("Schema", value)
        self.work += 1
        if chain > _MAX_CHAIN or self.work > _MAX_WORK:
            raise _CannotSay
        if "$ref" in schema:
            if len(schema) > 1 and not self.draft.ref_alone:
                raise _CannotSay
            return self.opposite(resolve(self.root, schema["$ref"]), chain + 1)
        parts: list[Any] = []
        for key in schema:
            if key in _COPIED or key in _HANDLERS:
                parts.append(self.opposite_of(key, schema, chain + 1))
        parts = [part for part in parts if part is not False]
        if any(part is True for part in parts):
            return True
        return parts[0] if len(parts) == 1 else {"anyOf": parts} if parts else False

    def opposite_of(self, key: str, schema: Schema, chain: int) -> Any:
        value = schema[key]
        if key == "type":
            return _other_kinds(_kinds(schema) or set())
        if key in ("enum", "const"):
            return _other_values(value if key == "enum" else [value])
        if key == "required":
            absent: list[Any] = [{"type": "object", "properties": {name: False}} for name in value]
            return {"anyOf": absent} if absent else False
        if key == "properties":
            opposites = {name: self.opposite(sub, chain) for name, sub in value.items()}
            wrong: list[Any] = [
                {"type": "object", "required": [name], "properties": {name: sub}}
                for name, sub in opposites.items()
                if sub is not False
            ]
            return {"anyOf": wrong} if wrong else False
        if key == "not":
            return self.schema(value, ())
        if key in ("anyOf", "allOf"):
            opposites = [self.opposite(sub, chain) for sub in value]
            return {"allOf" if key == "anyOf" else "anyOf": opposites}
        if key in _OPPOSITE_BOUNDS and not self.draft.boolean_bounds:
            return _OPPOSITE_BOUNDS[key](value)
        raise _CannotSay


Handler = Callable[[_Rewriter, Schema, Pointer, Schema, list[Any]], None]
_HANDLERS: dict[str, Handler] = {
    "$ref": _Rewriter.ref,
    "exclusiveMinimum": _Rewriter.exclusive,
    "exclusiveMaximum": _Rewriter.exclusive,
    "format": _Rewriter.format,
    "properties": _Rewriter.properties,
    "patternProperties": _Rewriter.patterns,
    "pattern": _Rewriter.pattern,
    "additionalProperties": _Rewriter.additional,
    "minProperties": _Rewriter.min_properties,
    "items": _Rewriter.items,
    "prefixItems": _Rewriter.prefix_items,
    "anyOf": _Rewriter.any_of,
    "allOf": _Rewriter.all_of,
    "oneOf": _Rewriter.one_of,
    "not": _Rewriter.negation,
    "if": _Rewriter.condition,
    "dependencies": _Rewriter.dependencies,
    "dependentRequired": _Rewriter.dependencies,
    "dependentSchemas": _Rewriter.dependencies,
    "propertyNames": _Rewriter.names_of_properties,
    "uniqueItems": _Rewriter.unique,
    "contains": _Rewriter.contains,
}
_OPPOSITE_BOUNDS: dict[str, Callable[[Any], Any]] = {
    "minLength": lambda n: {"type": "string", "maxLength": n - 1} if n > 0 else False,
    "maxLength": lambda n: {"type": "string", "minLength": n + 1},
    "minItems": lambda n: {"type": "array", "maxItems": n - 1} if n > 0 else False,
    "maxItems": lambda n: {"type": "array", "minItems": n + 1},
    "minimum": lambda n: {"type": "number", "exclusiveMaximum": n},
    "maximum": lambda n: {"type": "number", "exclusiveMinimum": n},
    "exclusiveMinimum": lambda n: {"type": "number", "maximum": n},
    "exclusiveMaximum": lambda n: {"type": "number", "minimum": n},
}


def _cannot(key: str, at: Pointer) -> ConstraintError:
    return ConstraintError(
        "S504",
        f"this `{key}` cannot be enforced while generating",
        "`lenient: true` generates what can be enforced and checks the rest afterwards.",
        pointer=at,
        at_key=True,
    )


def _kinds(schema: Schema) -> set[str] | None:
    """The types a schema names, None when it names none."""
    kinds = schema.get("type")
    return None if kinds is None else {kinds} if isinstance(kinds, str) else set(cast("list[str]", kinds))


def _other_kinds(kinds: set[str]) -> Any:
    if "integer" in kinds and "number" not in kinds:
        raise _CannotSay
    others = [kind for kind in _KINDS if kind not in kinds]
    return {"type": others} if others else False


def _other_values(values: list[Any]) -> Any:
    """Everything but a few texts, booleans and null. Numbers, lists and objects have no such form."""
    if any(isinstance(v, (list, dict)) or (isinstance(v, (int, float)) and not isinstance(v, bool)) for v in values):
        raise _CannotSay
    parts: list[Any] = []
    kinds = [k for k in _KINDS if k not in ("null", "boolean", "string")]
    if None not in values:
        kinds.append("null")
    parts.append({"type": kinds})
    left = [b for b in (True, False) if not any(v is b for v in values)]
    if left:
        parts.append({"enum": left})
    words = [v for v in values if isinstance(v, str)]
    if sum(map(len, words)) > _MAX_WORDS:
        raise _CannotSay
    parts.append({"type": "string", "pattern": f"^(?s:{_other_words(words)})$"} if words else {"type": "string"})
    return {"anyOf": parts}


def _other_words(words: list[str]) -> str:
    """A pattern for every text but these: it ends before a word does, goes on behind one, or leaves all of them at
    some character."""
    starts = {word[:i] for word in words for i in range(len(word) + 1)}
    parts: list[str] = []
    for start in sorted(starts):
        following = sorted({s[len(start)] for s in starts if len(s) == len(start) + 1 and s.startswith(start)})
        leaving = "[^" + "".join(escape(char) for char in following) + "].*" if following else ".+"
        parts.append(escape(start) + leaving)
        if start not in words:
            parts.append(escape(start))
    return "|".join(parts)


def _names_pattern(wanted: Any) -> str | None:
    """A pattern for the names of properties, None when there is no such pattern."""
    if not isinstance(wanted, dict):
        return None
    schema = {k: v for k, v in cast("Schema", wanted).items() if k != "type" or v != "string"}
    if set(schema) == {"pattern"}:
        return ecma.plain(schema["pattern"])
    if set(schema) == {"enum"}:
        return "^(?:" + "|".join(escape(v) for v in schema["enum"] if isinstance(v, str)) + ")$"
    if schema and set(schema) <= {"minLength", "maxLength"}:
        return f"^(?s:.{{{schema.get('minLength', 0)},{schema.get('maxLength', '')}}})$"
    return None


__all__ = ["rewrite"]
