"""JSON Schemas as constraints: which keywords are enforced, and a walk that refuses all others with their place.

The list is our own, because llguidance passes over keywords that it does not know; what it cannot enforce as it stands
is rewritten (rewrite.py). `$ref` reaches into the same schema only; nothing is ever fetched.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, cast

from sglspec.analysis.drafts import NAMES, Draft, draft_of, validator_class
from sglspec.analysis.formats import FORMATS, NUMBER_FORMATS
from sglspec.analysis.grammar import STUCK, ConstraintError, json_grammar, verdict
from sglspec.analysis.regexes import check_pattern
from sglspec.analysis.rewrite import rewrite
from sglspec.analysis.subschemas import MANY, NAMED, ONE, Pointer, Schema, resolve, walk

MAX_SCHEMAS = 2_000
"""Sub-schemas of one schema."""
MAX_REFS = 200
MAX_NESTING = 48
MAX_LENGTH = 1_000_000
MAX_OPTIONAL = 400
"""Properties of one object that need not be there: each may follow each other, and beyond this llguidance gives up."""
MAX_SUSPECTS = 100

ASSERTIONS = frozenset(
    {
        "type", "enum", "const", "$ref", "required", "minProperties", "maxProperties", "minItems", "maxItems",
        "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
        "multipleOf", "uniqueItems", "minContains", "maxContains", "dependentRequired",
    }
)  # fmt: skip
REMARKS = frozenset(
    {
        "$schema", "$comment", "$anchor", "title", "description", "default", "examples", "readOnly", "writeOnly",
        "deprecated", "contentMediaType", "contentEncoding",
        # of editors, forms and OpenAPI
        "comment", "example", "readonly", "links", "self", "markdownDescription", "enumNames", "enumDescriptions",
        "markdownEnumDescriptions", "deprecationMessage", "errorMessage", "defaultSnippets", "externalDocs", "xml",
    }
)  # fmt: skip
CONTENTS = ("contentMediaType", "contentEncoding")
KNOWN = ASSERTIONS | REMARKS | frozenset((*ONE, *MANY, *NAMED))


def check_schema(schema: Schema, *, lenient: bool = False, generated: bool = False) -> Schema:
    """The schema in the form that the grammar takes (rewrite.py). Refuses one that cannot be enforced: ConstraintError
    with a pointer, S503 not a schema, S504 a keyword, S501/S502 a pattern, S505 limits or nothing that matches.
    `generated`: it comes from declarations, so its form is known to be right."""
    _bounded(schema)
    draft = _draft(schema)
    if not generated:
        _valid(schema, draft)
    subschemas = list(walk(schema))
    refs = [p for p, s in subschemas if "$ref" in s]
    if len(refs) > MAX_REFS:
        raise ConstraintError("S505", f"more than {MAX_REFS} references", pointer=(*refs[MAX_REFS], "$ref"))
    for pointer, subschema in subschemas:
        _keywords(subschema, pointer, draft)
        _reference(schema, subschema, pointer)
    _no_endless_references(schema, subschemas)
    return _compiled(schema, subschemas, lenient)


def objects_without_required(schema: Schema) -> Pointer | None:
    """The first place where fields are declared but none is required: models then love to answer `{}`."""
    for pointer, found in walk(schema):
        if found.get("properties") and not found.get("required") and "minProperties" not in found:
            return pointer
    return None


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


def _draft(schema: Schema) -> Draft:
    draft = draft_of(schema)
    if draft is None:
        message = f"the JSON Schema version `{schema['$schema']}` is not known"
        raise ConstraintError("S503", message, f"Leave `$schema` out, or name {NAMES}.", pointer=("$schema",))
    return draft


def _valid(schema: Schema, draft: Draft) -> None:
    """Against the meta-schema of its version; bundled, never fetched."""
    validator = validator_class(draft)
    errors: list[Any] = list(validator(validator.META_SCHEMA).iter_errors(schema))
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


def _keywords(schema: Schema, pointer: Pointer, draft: Draft) -> None:
    for key, value in schema.items():
        here = (*pointer, key)
        if key in ("$id", "id") and isinstance(value, str):
            _identifier(schema, pointer, key)
        elif not _known(key) or (key in CONTENTS and draft.contents):
            raise _unsupported(key, here)
        elif key == "pattern":
            _pattern(str(value), here)
        elif key == "patternProperties":
            for name in cast("Schema", value):
                _pattern(name, (*here, name), at_key=True)
        elif key == "format":
            _format(schema, here)
        elif key == "properties" and len(set(value) - set(schema.get("required", ()))) > MAX_OPTIONAL:
            help = "Make some of them `required`."
            raise ConstraintError(
                "S505", f"more than {MAX_OPTIONAL} optional properties", help, pointer=here, at_key=True
            )
        elif key in ("minLength", "maxLength", "minItems", "maxItems") and cast("int", value) > MAX_LENGTH:
            raise ConstraintError("S505", f"`{key}` is above {MAX_LENGTH:,}", pointer=here)


def _known(key: str) -> bool:
    return key in KNOWN or (key.startswith(("x-", "_")) and key != "x-guidance")


def _identifier(schema: Schema, pointer: Pointer, key: str) -> None:
    """A name of its own moves where the references below it begin; without any it is a remark."""
    if pointer and any("$ref" in sub for _, sub in walk(schema)):
        message = f"references below an `{key}` of its own are not supported"
        raise ConstraintError("S504", message, "Leave it out.", pointer=(*pointer, key), at_key=True)


def _format(schema: Schema, here: Pointer) -> None:
    name, kinds = schema["format"], schema.get("type")
    listed = [kinds] if isinstance(kinds, str) else cast("list[str]", kinds or [])
    if name in FORMATS or (name in NUMBER_FORMATS and set(listed) & {"integer", "number"}):
        return
    if listed and "string" not in listed and name not in NUMBER_FORMATS:
        return  # formats of texts say nothing about other values
    close = get_close_matches(str(name), FORMATS, 1)
    help = f"Did you mean `{close[0]}`?" if close else "Known: " + ", ".join(FORMATS) + "."
    raise ConstraintError("S504", f"the format `{name}` cannot be enforced", help, pointer=here)


def _unsupported(key: str, here: Pointer) -> ConstraintError:
    known = [k for k in KNOWN if not k.startswith("$")]
    help = None
    if key == "nullable":
        message = "`nullable` is not JSON Schema"
        help = 'Write `type: [string, "null"]`.'
    elif key in CONTENTS:
        message = f"the keyword `{key}` cannot be enforced"
        help = "Leave it out, or `$schema`: in 2020-12 it is a remark."
    elif key in _NEVER:
        message = f"the keyword `{key}` is not supported"
    else:
        message = f"`{key}` is no keyword of JSON Schema that we know"
        close = get_close_matches(key, known, 1)
        help = "Remarks can use `description`, or a key that starts with `x-`."
        if close:
            help = f"Did you mean `{close[0]}`?"
    return ConstraintError("S504", message, help, pointer=here, at_key=True)


_NEVER = (
    "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor",
    "$vocabulary", "$id", "id", "x-guidance",
)  # fmt: skip


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


def _compiled(schema: Schema, subschemas: list[tuple[Pointer, Schema]], lenient: bool) -> Schema:
    """The rewritten schema, once llguidance takes it."""
    apart = False
    found = rewrite(schema, lenient=lenient)
    reason = verdict(json_grammar(found, lenient=lenient))
    if reason is not None and _ONE_OF in reason:
        apart = True
        found = rewrite(schema, lenient=lenient, apart=True)
        reason = verdict(json_grammar(found, lenient=lenient))
    if reason is None:
        return found
    if any(word in reason for word in _LIMITS):
        raise ConstraintError("S505", f"this schema cannot be enforced: {reason}", pointer=())
    pointer, part, reason = _culprit(schema, subschemas, lenient, apart) or ((), schema, reason)
    raise _refused(reason, pointer, part)


_ONE_OF = "oneOf constraints are not supported"
_LIMITS = ("too large", "too many expressions", "too many states", "limit", "too deep")
_BLAMED = (
    (_ONE_OF, ("oneOf",)),
    ("min/maxProperties", ("minProperties", "maxProperties")),
    ("patternProperty", ("patternProperties",)),
    ("multipleOf", ("multipleOf",)),
    (" range", ("format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    ("regex", ("pattern", "format", "minLength", "maxLength")),
    ("", ("$ref", "enum", "const", "allOf", "anyOf", "required", "items", "properties")),
)
"""What llguidance's reason speaks of → the keywords that may be meant."""


def _culprit(
    root: Schema, subschemas: list[tuple[Pointer, Schema]], lenient: bool, apart: bool
) -> tuple[Pointer, Schema, str] | None:
    """The innermost part that is refused by itself too, and why. Only parts that fail at once are looked for: limits
    are not, so this costs a few milliseconds each."""
    suspects = [*reversed(subschemas)]
    suspects.sort(key=lambda found: "$ref" in found[1])  # what it leads to comes first
    for pointer, subschema in suspects[:MAX_SUSPECTS]:
        try:
            reason = verdict(json_grammar(rewrite(root, subschema, lenient=lenient, apart=apart), lenient=lenient))
        except ConstraintError:
            continue
        if reason is not None and not any(word in reason for word in _LIMITS) and reason != STUCK:
            return pointer, subschema, reason
    return None


def _refused(reason: str, pointer: Pointer, schema: Schema) -> ConstraintError:
    if reason.startswith("Unsatisfiable schema") or reason == STUCK:
        detail = reason.removeprefix("Unsatisfiable schema: ")
        message = "nothing can match this schema" + (f": {detail}" if detail != STUCK else "")
        return ConstraintError("S505", message, pointer=pointer)
    key = next((k for mark, keys in _BLAMED if mark in reason for k in keys if k in schema), None)
    if key == "oneOf":
        message = "this `oneOf` cannot be enforced: its alternatives may overlap"
        help = "Write `anyOf`, or use `lenient: true`, which checks it afterwards."
        return ConstraintError("S504", message, help, pointer=(*pointer, key), at_key=True)
    what = f"this `{key}`" if key else "this schema"
    place = (*pointer, key) if key else pointer
    short = " ".join(reason.split())[:200]
    return ConstraintError("S504", f"{what} cannot be enforced: {short}", pointer=place, at_key=key is not None)
