"""JSON Schemas as constraints: which keywords are enforced, and a walk that refuses all others with their place.

The list is our own, because llguidance passes over keywords that it does not know. `$ref` reaches into the same
schema only; nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, cast

from sglspec.analysis.grammar import STUCK, ConstraintError, Step, json_grammar, verdict
from sglspec.analysis.regexes import check_pattern

Schema = dict[str, Any]
Pointer = tuple[Step, ...]

MAX_SCHEMAS = 2_000
"""Sub-schemas of one schema."""
MAX_REFS = 200
MAX_NESTING = 48
MAX_LENGTH = 1_000_000

ONE = ("additionalProperties", "additionalItems", "items")
MANY = ("anyOf", "allOf", "oneOf", "prefixItems")
NAMED = ("properties", "patternProperties", "$defs", "definitions")
ASSERTIONS = frozenset(
    {
        "type", "enum", "const", "$ref", "required", "minProperties", "maxProperties", "minItems", "maxItems",
        "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
        "multipleOf",
    }
)  # fmt: skip
ANNOTATIONS = frozenset(
    {
        "$schema", "$comment", "$anchor", "title", "description", "default", "examples", "readOnly", "writeOnly",
        "deprecated", "contentMediaType", "contentEncoding",
    }
)  # fmt: skip
ENFORCED = ASSERTIONS | ANNOTATIONS | frozenset(ONE) | frozenset(MANY) | frozenset(NAMED)
CHECKABLE = frozenset(
    {
        "not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems", "propertyNames",
        "dependentRequired", "dependentSchemas", "dependencies",
    }
)  # fmt: skip
"""What `lenient: true` cannot enforce but checks afterwards."""
CHECKABLE_ONE = ("not", "if", "then", "else", "contains", "propertyNames")
FORMATS = (
    "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri",
)  # fmt: skip
DRAFT_7 = ("http://json-schema.org/draft-07/schema", "https://json-schema.org/draft-07/schema")
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def check_schema(schema: Schema, *, lenient: bool = False, generated: bool = False) -> None:
    """Refuses a schema that cannot be enforced. Raises ConstraintError with a pointer: S503 not a schema, S504 a
    keyword, S501/S502 a pattern, S505 limits or nothing that matches. `generated`: it comes from declarations, so
    its form is known to be right."""
    _bounded(schema)
    if not generated:
        _valid(schema)
    subschemas = list(walk(schema))
    refs = [p for p, s in subschemas if "$ref" in s]
    if len(refs) > MAX_REFS:
        raise ConstraintError("S505", f"more than {MAX_REFS} references", pointer=(*refs[MAX_REFS], "$ref"))
    for pointer, subschema in subschemas:
        _keywords(subschema, pointer, lenient)
        _reference(schema, subschema, pointer)
    _no_endless_references(schema, subschemas)
    _compiles(schema, subschemas, lenient)


def walk(schema: Schema) -> Iterator[tuple[Pointer, Schema]]:
    """Every sub-schema that is a mapping, with its pointer, parents first."""
    waiting: list[tuple[Pointer, Any]] = [((), schema)]
    while waiting:
        pointer, current = waiting.pop()
        if not isinstance(current, dict):
            continue
        found = cast("Schema", current)
        yield pointer, found
        children: list[tuple[Pointer, Any]] = []
        for key, value in found.items():
            if key in ONE or key in CHECKABLE_ONE:
                if isinstance(value, list):  # `items` of draft 7
                    children += [((*pointer, key, i), v) for i, v in enumerate(cast("list[Any]", value))]
                else:
                    children.append(((*pointer, key), value))
            elif key in MANY and isinstance(value, list):
                children += [((*pointer, key, i), v) for i, v in enumerate(cast("list[Any]", value))]
            elif (key in NAMED or key in ("dependentSchemas", "dependencies")) and isinstance(value, dict):
                children += [((*pointer, key, k), v) for k, v in cast("Schema", value).items()]
        waiting.extend(reversed(children))


def objects_without_required(schema: Schema) -> Pointer | None:
    """The first place where fields are declared but none is required: models then love to answer `{}`."""
    for pointer, found in walk(schema):
        if found.get("properties") and not found.get("required") and "minProperties" not in found:
            return pointer
    return None


def resolve(schema: Schema, reference: str) -> Any:
    """What a local reference points at. KeyError when there is nothing."""
    current: Any = schema
    if reference == "#":
        return current
    for raw in reference.removeprefix("#/").split("/"):
        part = _unquote(raw).replace("~1", "/").replace("~0", "~")
        if isinstance(current, list):
            items = cast("list[Any]", current)
            if not part.isdigit() or int(part) >= len(items):
                raise KeyError(reference)
            current = items[int(part)]
        elif isinstance(current, dict) and part in current:
            current = cast("Schema", current)[part]
        else:
            raise KeyError(reference)
    return current


def _unquote(text: str) -> str:
    from urllib.parse import unquote

    return unquote(text)


def _bounded(schema: Schema) -> None:
    """Depth and size first: everything after this may recurse."""
    waiting: list[tuple[Pointer, Any]] = [((), schema)]
    count = 0
    while waiting:
        pointer, value = waiting.pop()
        if len(pointer) > MAX_NESTING:
            raise ConstraintError("S505", f"the schema is nested more than {MAX_NESTING} deep", pointer=pointer[:8])
        if isinstance(value, dict):
            count += 1
            if count > MAX_SCHEMAS:
                raise ConstraintError("S505", f"the schema has more than {MAX_SCHEMAS:,} parts", pointer=pointer)
            waiting += [((*pointer, str(k)), v) for k, v in cast("Schema", value).items()]
        elif isinstance(value, list):
            waiting += [((*pointer, i), v) for i, v in enumerate(cast("list[Any]", value))]


def _valid(schema: Schema) -> None:
    """Against the meta-schema of the draft that the schema names (2020-12 without one); bundled, never fetched."""
    from jsonschema import Draft7Validator, Draft202012Validator

    named = schema.get("$schema", DRAFT_2020)
    if str(named).rstrip("#") in DRAFT_7:
        metaschema = Draft7Validator(Draft7Validator.META_SCHEMA)
    elif str(named).rstrip("#") == DRAFT_2020:
        metaschema = Draft202012Validator(Draft202012Validator.META_SCHEMA)
    else:
        message = f"the JSON Schema version `{named}` is not known"
        raise ConstraintError("S503", message, "Leave `$schema` out, or name draft 7 or 2020-12.", pointer=("$schema",))
    errors: list[Any] = list(metaschema.iter_errors(schema))  # pyright: ignore[reportUnknownMemberType]
    if errors:
        worst = max(errors, key=lambda e: len(e.absolute_path))
        pointer = tuple(worst.absolute_path)
        raise ConstraintError("S503", _meta_message(worst, pointer), pointer=pointer)


def _meta_message(error: Any, pointer: Pointer) -> str:
    what = f"`{pointer[-1]}`" if pointer else "the schema"
    if error.validator == "type":
        kinds: Any = error.validator_value
        wanted = " or ".join(_KINDS.get(k, k) for k in ([kinds] if isinstance(kinds, str) else kinds))
        return f"this is not a JSON Schema: {what} must be {wanted}"
    if pointer and pointer[-1] == "type" and not isinstance(error.instance, list):
        return f"this is not a JSON Schema: there is no type `{error.instance}`"
    return f"this is not a JSON Schema: {what}: {str(error.message)[:160]}"


_KINDS = {
    "object": "a mapping", "array": "a list", "string": "a text", "integer": "a whole number", "number": "a number",
    "boolean": "true or false", "null": "null",
}  # fmt: skip


def _keywords(schema: Schema, pointer: Pointer, lenient: bool) -> None:
    for key, value in schema.items():
        here = (*pointer, key)
        if key == "$id" and not pointer:
            continue
        if key in CHECKABLE and lenient:
            continue
        if key not in ENFORCED and not (key.startswith("x-") and key != "x-guidance"):
            raise _unsupported(key, here, lenient)
        if key == "pattern":
            _pattern(str(value), here)
        elif key == "patternProperties":
            for name in cast("Schema", value):
                _pattern(name, (*here, name), at_key=True)
        elif key == "format" and value not in FORMATS:
            close = get_close_matches(str(value), FORMATS, 1)
            help = f"Did you mean `{close[0]}`?" if close else "Known: " + ", ".join(FORMATS) + "."
            raise ConstraintError("S504", f"the format `{value}` cannot be enforced", help, pointer=here)
        elif key in ("minLength", "maxLength", "minItems", "maxItems") and cast("int", value) > MAX_LENGTH:
            raise ConstraintError("S505", f"`{key}` is above {MAX_LENGTH:,}", pointer=here)


def _unsupported(key: str, here: Pointer, lenient: bool) -> ConstraintError:
    known = [k for k in ENFORCED if not k.startswith("$")]
    if key in CHECKABLE:
        message = f"the keyword `{key}` cannot be enforced while generating"
        help = "`lenient: true` generates what can be enforced and checks the rest afterwards."
    elif key == "nullable":
        message = "`nullable` is not JSON Schema"
        help = 'Write `type: [string, "null"]`.'
    elif key in ("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$dynamicAnchor", "$id", "x-guidance"):
        message, help = f"the keyword `{key}` is not supported", None
    else:
        message = f"`{key}` is no keyword of JSON Schema that we know"
        close = get_close_matches(key, known, 1)
        help = "Remarks can use `description`, or a key that starts with `x-`."
        if close:
            help = f"Did you mean `{close[0]}`?"
    return ConstraintError("S504", message, help, pointer=here, at_key=True)


def _pattern(pattern: str, pointer: Pointer, at_key: bool = False) -> None:
    try:
        check_pattern(pattern)
    except ConstraintError as error:
        raise ConstraintError(
            error.code, error.message, error.help, start=error.start, end=error.end, pointer=pointer, at_key=at_key
        ) from None


def _reference(root: Schema, schema: Schema, pointer: Pointer) -> None:
    reference = schema.get("$ref")
    if reference is None:
        return
    here = (*pointer, "$ref")
    if reference != "#" and not str(reference).startswith("#/"):
        message = f"the reference `{reference}` leaves the schema; nothing is fetched"
        raise ConstraintError("S503", message, "Copy the part into `$defs` and write `#/$defs/name`.", pointer=here)
    try:
        target = resolve(root, str(reference))
    except KeyError:
        names = [*cast("Schema", root.get("$defs") or {}), *cast("Schema", root.get("definitions") or {})]
        close = get_close_matches(str(reference).rsplit("/", 1)[-1], names, 1)
        home = "$defs" if "$defs" in root else "definitions"
        help = f"Did you mean `#/{home}/{close[0]}`?" if close else None
        raise ConstraintError("S503", f"the reference `{reference}` points at nothing", help, pointer=here) from None
    if not isinstance(target, (dict, bool)):
        raise ConstraintError("S503", f"the reference `{reference}` does not point at a schema", pointer=here)


def _no_endless_references(root: Schema, subschemas: list[tuple[Pointer, Schema]]) -> None:
    """A value can be finite only if following what is required ends somewhere (least fixpoint over sub-schemas)."""
    if not any("$ref" in schema for _, schema in subschemas):
        return
    for pointer, schema in subschemas:
        if "$ref" in schema and _chases_itself(root, schema):
            raise ConstraintError("S503", "this reference leads back to itself", pointer=(*pointer, "$ref"))
    finite: set[int] = set()
    changed = True
    while changed:
        before = len(finite)
        for _, schema in reversed(subschemas):
            if id(schema) not in finite and _ends(root, schema, finite):
                finite.add(id(schema))
        changed = len(finite) > before
    if id(root) not in finite:
        raise ConstraintError("S505", "nothing can match this schema: what it requires never ends", pointer=())


def _chases_itself(root: Schema, start: Schema) -> bool:
    """Whether a chain of references and alternatives at one and the same place comes back to where it began."""
    waiting, seen = [start], set[int]()
    while waiting:
        current = waiting.pop()
        following: list[Any] = [v for key in ("anyOf", "allOf", "oneOf") for v in current.get(key, ())]
        following += [current[key] for key in ("not", "if", "then", "else") if key in current]
        if "$ref" in current:
            following.append(resolve(root, current["$ref"]))
        for schema in following:
            if schema is start:
                return True
            if isinstance(schema, dict) and id(cast("Schema", schema)) not in seen:
                seen.add(id(cast("Schema", schema)))
                waiting.append(cast("Schema", schema))
    return False


def _ends(root: Schema, schema: Schema, finite: set[int]) -> bool:
    def ok(value: Any) -> bool:
        return id(cast("Schema", value)) in finite if isinstance(value, dict) else value is not False

    if "$ref" in schema and not ok(resolve(root, schema["$ref"])):
        return False
    if not all(ok(s) for s in schema.get("allOf", ())):
        return False
    for key in ("anyOf", "oneOf"):
        if key in schema and not any(ok(s) for s in schema[key]):
            return False
    kinds = schema.get("type")
    if kinds == "object" or (kinds is None and "properties" in schema):
        properties = schema.get("properties", {})
        return all(ok(properties.get(name, True)) for name in schema.get("required", ()))
    if kinds == "array" and schema.get("minItems", 0) > 0:
        first = schema.get("prefixItems", ())[: schema["minItems"]]
        rest = schema.get("items", True) if len(first) < schema["minItems"] else True
        return all(ok(s) for s in first) and (isinstance(rest, list) or ok(rest))
    return True


def _compiles(schema: Schema, subschemas: list[tuple[Pointer, Schema]], lenient: bool) -> None:
    reason = verdict(json_grammar(plain(schema), lenient=lenient))
    if reason is None:
        return
    if "oneOf" in reason:
        raise ConstraintError(
            "S504",
            "this `oneOf` cannot be enforced: its alternatives may overlap",
            "Write `anyOf`, or use `lenient: true`, which checks it afterwards.",
            pointer=_first_one_of(schema, subschemas),
            at_key=True,
        )
    if reason.startswith("Unsatisfiable schema") or reason == STUCK:
        detail = reason.removeprefix("Unsatisfiable schema: ")
        message = "nothing can match this schema" + (f": {detail}" if detail != STUCK else "")
        raise ConstraintError("S505", message, pointer=())
    code = "S505" if "too large" in reason or "limit" in reason else "S504"
    raise ConstraintError(code, f"this schema cannot be enforced: {reason}", pointer=())


def plain(schema: Schema) -> Schema:
    """The schema without what only names it: an `$id` would become a base for references."""
    return {key: value for key, value in schema.items() if key not in ("$id", "$schema")}


def _first_one_of(root: Schema, subschemas: list[tuple[Pointer, Schema]]) -> Pointer:
    shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
    places = [(pointer, schema) for pointer, schema in subschemas if "oneOf" in schema]
    for pointer, schema in reversed(places):
        if "oneOf" in (verdict(json_grammar({**shared, "oneOf": schema["oneOf"]})) or ""):
            return (*pointer, "oneOf")
    return (*places[0][0], "oneOf") if places else ()
