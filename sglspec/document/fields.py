"""The types of the document's fields: how a node becomes a text, an expression, a value, a name, a number.

Each type is a small class that keeps its node (so that a message can point at it) and an annotated alias for
pydantic. The alias also carries an `Editor` mark: the JSON Schema fragment that editors see (schema.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, BeforeValidator, PlainValidator, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from sglspec.document.nodes import Mapping, Node, Scalar, Sequence

T = TypeVar("T")
KEY = "[key]"
"""The end of pydantic's error location for a key of a mapping."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
TEMPLATE_MARK = re.compile(r"\{\{|\{%")

RESERVED = frozenset({
    "true", "false", "null", "none", "True", "False", "None", "and", "or", "not", "in", "is", "if", "else", "loop",
    "texts",
})  # fmt: skip
"""Words that expressions use themselves; a variable of that name could never be read."""


@dataclass(frozen=True, slots=True, eq=False)
class Editor:
    """Mark for the editor schema: the JSON Schema fragment of an annotated field type."""

    schema: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A template: text with `{{ }}`. `source` is the text after YAML, CRLF already LF."""

    source: str
    node: Scalar


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """A bare expression."""

    source: str
    node: Scalar


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A literal, a template, or lists and mappings of them."""

    node: Node


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """What `in` and `from` take: an expression, or a literal list whose texts are templates."""

    expr: Expr | None
    literal: Sequence | None
    node: Node


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A variable to bind; `append` for `name[]`."""

    name: str
    append: bool
    node: Scalar


@dataclass(frozen=True, slots=True, eq=False)
class Into:
    """`into: x`, `into: x[]` (target), or `into: {mine: theirs}` (picks: own name → the other side's name)."""

    target: Target | None
    picks: tuple[tuple[Target, str], ...]
    node: Node


Setting = int | float | bool | str


@dataclass(frozen=True, slots=True, eq=False)
class Param:
    """An option that is a number, true or false, or a word: a literal (`value`), an explicit null (value None), or a
    template.

    `check` turns a rendered value into the option's value or raises ValueError with a readable message.
    """

    value: Setting | None
    template: Text | None
    node: Scalar
    check: Callable[[object], Setting]


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """One text or a list of texts (templates), or an explicit null (`items` empty, `reset` true)."""

    items: tuple[Text, ...]
    reset: bool
    node: Node


def kind_of(node: Node) -> str:
    """The author's word for what stands here."""
    match node:
        case Mapping():
            return "a mapping"
        case Sequence():
            return "a list"
        case Scalar(value=None):
            return "nothing"
        case Scalar(value=bool()):
            return f"the boolean {node.text}"
        case Scalar(value=int() | float()):
            return f"the number {node.text}"
        case Scalar():
            return "a text"


def wrong(expected: str, node: object) -> PydanticCustomError:
    found = kind_of(node) if isinstance(node, (Mapping, Sequence, Scalar)) else "something else"
    return PydanticCustomError(
        "wrong_value", "expected {expected}, found {found}", {"expected": expected, "found": found}
    )


def missing_text() -> PydanticCustomError:
    return PydanticCustomError("missing_text", 'a text is missing here (an empty one is written "")')


def as_scalar(node: object, expected: str) -> Scalar:
    if not isinstance(node, Scalar):
        raise wrong(expected, node)
    return node


def to_text(node: object) -> Text:
    scalar = as_scalar(node, "a text")
    if scalar.value is None:
        raise missing_text()
    return Text(scalar.text, scalar)


def to_plain(node: object) -> str:
    """A text that is no template (descriptions, names)."""
    scalar = as_scalar(node, "a text")
    if scalar.value is None:
        raise missing_text()
    return scalar.text


def to_expr(node: object) -> Expr:
    scalar = as_scalar(node, "an expression")
    if scalar.value is None:
        raise PydanticCustomError("missing_text", "an expression is missing here")
    return Expr(scalar.text, scalar)


def to_value(node: object) -> Value:
    if not isinstance(node, (Mapping, Sequence, Scalar)):
        raise wrong("a value", node)
    return Value(node)


def to_items(node: object) -> Items:
    if isinstance(node, Sequence):
        return Items(None, node, node)
    if isinstance(node, Mapping):
        raise wrong("an expression or a list", node)
    if isinstance(node, Scalar) and node.value is None:
        raise PydanticCustomError("missing_text", "a list is missing here")
    expr = to_expr(node)
    return Items(expr, None, expr.node)


def check_name(text: str, what: str = "name") -> str:
    if not NAME.match(text):
        raise PydanticCustomError(
            "bad_name",
            "`{text}` is not a valid {what}: use letters, digits and _, not starting with a digit",
            {"text": text, "what": what},
        )
    if text in RESERVED:
        raise PydanticCustomError(
            "bad_name", "`{text}` is a word of the expression language, choose another name", {"text": text}
        )
    return text


def to_target(node: object) -> Target:
    scalar = as_scalar(node, "a variable name")
    if scalar.value is None:
        raise PydanticCustomError("missing_text", "a variable name is missing here")
    text = scalar.text.lower() if isinstance(scalar.value, bool) else scalar.text  # `TRUE` is a word like `true`
    append = text.endswith("[]")
    return Target(check_name(text[:-2] if append else text, "variable name"), append, scalar)


def to_optional_target(node: object) -> Target | None:
    if isinstance(node, Scalar) and node.value is None and node.text in ("", "null", "~", "Null", "NULL"):
        return None
    return to_target(node)


def to_name(node: object) -> Target:
    target = to_target(node)
    if target.append:
        raise PydanticCustomError("append_name", "`[]` cannot be used here", {})
    return target


def each(parts: Iterable[tuple[tuple[str | int, ...], Callable[[], T]]]) -> list[T]:
    """What the parts of a value are, each read by its function. Raises for all that are wrong, with their places."""
    found: list[T] = []
    faults: list[InitErrorDetails] = []
    for place, read in parts:
        try:
            found.append(read())
        except PydanticCustomError as fault:
            faults.append({"type": fault, "loc": place, "input": None})
    if faults:
        raise ValidationError.from_exception_data("parts", faults)
    return found


def to_into(node: object) -> Into:
    if isinstance(node, Mapping):
        names = [((e.key.text, KEY), partial(to_target, e.key)) for e in node.entries]
        theirs = [((e.key.text,), partial(_to_part, e.value)) for e in node.entries]
        read = cast("list[Any]", each([*names, *theirs]))
        return Into(None, tuple(zip(read[: len(names)], read[len(names) :], strict=True)), node)
    target = to_target(node)
    return Into(target, (), target.node)


def _to_part(node: object) -> str:
    return check_name(as_scalar(node, "a name").text)


def to_texts(node: object) -> Texts:
    if isinstance(node, Sequence):
        items = each(((at,), partial(to_text, item)) for at, item in enumerate(node.items))
        return Texts(tuple(items), False, node)
    scalar = as_scalar(node, "a text or a list of texts")
    if scalar.value is None:
        return Texts((), True, scalar)
    return Texts((Text(scalar.text, scalar),), False, scalar)


def to_flag(node: object) -> bool:
    scalar = as_scalar(node, "true or false")
    if not isinstance(scalar.value, bool):
        raise wrong("true or false", scalar)
    return scalar.value


def to_null(node: object) -> None:
    if isinstance(node, Scalar) and node.value is None:
        return
    raise PydanticCustomError("takes_nothing", "this step takes no value")


def to_json(node: object) -> Value:
    """A literal JSON value (defaults, examples, JSON Schemas): never a template."""
    return to_value(node)


@dataclass(frozen=True, slots=True)
class Number:
    """Annotation for a numeric option: `Annotated[Param, Number(integer=True, low=0)]`."""

    integer: bool = False
    low: float | None = None
    high: float | None = None
    low_open: bool = False

    @property
    def expected(self) -> str:
        what = "a whole number" if self.integer else "a number"
        if self.low is not None and self.high is not None and self.low_open:
            return f"{what} above {self.low:g} and at most {self.high:g}"
        if self.low is not None and self.high is not None:
            return f"{what} from {self.low:g} to {self.high:g}"
        if self.low is not None:
            return f"{what} above {self.low:g}" if self.low_open else f"{what} of at least {self.low:g}"
        return what

    @property
    def editor(self) -> Editor:
        schema: dict[str, Any] = {
            "type": ["integer" if self.integer else "number", "string", "null"],
            "pattern": TEMPLATE_MARK.pattern,
        }
        if self.low is not None:
            schema["exclusiveMinimum" if self.low_open else "minimum"] = self.low
        if self.high is not None:
            schema["maximum"] = self.high
        schema["patternErrorMessage"] = f"Expected {self.expected}."
        return Editor(schema)

    def check(self, value: object) -> int | float | bool:
        """The option's value; ValueError with a readable message for anything else."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"expected {self.expected}")
        if self.integer and not (isinstance(value, int) or value.is_integer()):
            raise ValueError(f"expected {self.expected}, found {_shown(value)}")
        below = self.low is not None and (value < self.low or (self.low_open and value == self.low))
        if below or (self.high is not None and value > self.high):
            raise ValueError(f"expected {self.expected}, found {_shown(value)}")
        return int(value) if self.integer else value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(lambda node: read_param(node, self.check, self.expected))


@dataclass(frozen=True, slots=True)
class Flag:
    """Annotation for an option that is true or false: `Annotated[Param, Flag()]`."""

    @property
    def editor(self) -> Editor:
        return Editor(
            {
                "type": ["boolean", "string", "null"],
                "pattern": TEMPLATE_MARK.pattern,
                "errorMessage": "Expected true or false.",
            }
        )

    def check(self, value: object) -> bool:
        """The option's value; ValueError with a readable message for anything else."""
        if not isinstance(value, bool):
            raise ValueError("expected true or false")
        return value

    def read(self, node: object) -> Param:
        return _open_param(node, self.check, "true or false") or Param(
            to_flag(node), None, cast(Scalar, node), self.check
        )

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)


def _shown(value: float) -> str:
    """A number as its author may have written it."""
    return str(value) if isinstance(value, int) else f"{value:g}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """Annotation for a closed set of words: `Annotated[str, OneOf(("fail", "skip"))]`."""

    words: tuple[str, ...]
    later: tuple[str, ...] = ()
    """Words of the language that this build does not run: they are read, and no message or editor offers them."""

    @property
    def offered(self) -> list[str]:
        return [word for word in self.words if word not in self.later]

    @property
    def editor(self) -> Editor:
        return Editor({"enum": self.offered})

    def read(self, node: object) -> str:
        expected = "one of " + ", ".join(self.offered)
        scalar = as_scalar(node, expected)
        if scalar.value is None and scalar.text == "":
            raise PydanticCustomError("missing_text", "a word is missing here: {expected}", {"expected": expected})
        if scalar.text not in self.words or scalar.value is None:
            raise PydanticCustomError(
                "unknown_word",
                "expected one of {words}, found `{text}`",
                {"words": ", ".join(self.offered), "text": scalar.text, "choices": self.offered},
            )
        return scalar.text

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)


@dataclass(frozen=True, slots=True)
class WordOption:
    """Annotation for an option that is one of some words: `Annotated[Param, WordOption(("first", "best"))]`."""

    words: tuple[str, ...]

    @property
    def editor(self) -> Editor:
        template = {"type": "string", "pattern": TEMPLATE_MARK.pattern}
        message = f"Expected one of {', '.join(self.words)}."
        return Editor({"anyOf": [{"enum": [*self.words, None]}, template], "errorMessage": message})

    def check(self, value: object) -> str:
        """The option's value; ValueError with a readable message for anything else."""
        if not isinstance(value, str) or value not in self.words:
            raise ValueError(f"expected one of {', '.join(self.words)}")
        return value

    def read(self, node: object) -> Param:
        word = OneOf(self.words)
        opened = _open_param(node, self.check, "one of " + ", ".join(self.words))
        return opened or Param(word.read(node), None, cast(Scalar, node), self.check)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)


def _open_param(node: object, check: Callable[[object], Setting], expected: str) -> Param | None:
    """An option that is null or a template, None where it is a literal."""
    scalar = as_scalar(node, expected)
    if scalar.value is None:
        return Param(None, None, scalar, check)
    if isinstance(scalar.value, str) and TEMPLATE_MARK.search(scalar.value):
        return Param(None, Text(scalar.text, scalar), scalar, check)
    return None


def read_param(node: object, check: Callable[[object], Setting], expected: str) -> Param:
    opened = _open_param(node, check, expected)
    if opened is not None:
        return opened
    scalar = as_scalar(node, expected)
    if isinstance(scalar.value, (str, bool)):
        raise wrong(expected, scalar)
    try:
        return Param(check(scalar.value), None, scalar, check)
    except ValueError as problem:
        raise PydanticCustomError("out_of_range", "{problem}", {"problem": str(problem)}) from None


TEXT_SCHEMA: dict[str, Any] = {
    "type": ["string", "number", "boolean"],
    "errorMessage": "Expected a text. Put it in quotes or use `|` for several lines.",
}

TextField = Annotated[Text, PlainValidator(to_text), Editor(TEXT_SCHEMA)]
PlainField = Annotated[str, PlainValidator(to_plain), Editor(TEXT_SCHEMA)]
ExprField = Annotated[
    Expr,
    PlainValidator(to_expr),
    Editor(
        {
            "type": ["string", "boolean", "number"],
            "errorMessage": "Expected an expression. Put it in quotes if it begins with `[` or `{`.",
        }
    ),
]
ValueField = Annotated[Value, PlainValidator(to_value), Editor({})]
JsonField = Annotated[Value, PlainValidator(to_json), Editor({})]
ItemsField = Annotated[
    Items,
    PlainValidator(to_items),
    Editor(
        {
            "type": ["string", "array", "number", "boolean"],
            "errorMessage": "Expected a list, or an expression that gives one.",
        }
    ),
]
TargetField = Annotated[
    Target,
    PlainValidator(to_target),
    Editor(
        {"type": "string", "pattern": r"^[A-Za-z_][A-Za-z0-9_]*(\[\])?$", "patternErrorMessage": "Not a variable name."}
    ),
]
OptionalTargetField = Annotated[
    Target | None,
    PlainValidator(to_optional_target),
    Editor(
        {
            "type": ["string", "null"],
            "pattern": r"^[A-Za-z_][A-Za-z0-9_]*(\[\])?$",
            "patternErrorMessage": "Not a variable name.",
        }
    ),
]
NameField = Annotated[
    Target,
    PlainValidator(to_name),
    Editor({"type": "string", "pattern": r"^[A-Za-z_][A-Za-z0-9_]*$", "patternErrorMessage": "Not a variable name."}),
]
IntoField = Annotated[
    Into,
    PlainValidator(to_into),
    Editor(
        {
            "type": ["string", "object"],
            "errorMessage": "Expected a variable, or a mapping from variables to the names of what comes back.",
        }
    ),
]
TextsField = Annotated[
    Texts,
    PlainValidator(to_texts),
    Editor(
        {
            "type": ["string", "array", "number", "boolean", "null"],
            "items": TEXT_SCHEMA,
            "errorMessage": "Expected a text or a list of texts.",
        }
    ),
]
FlagField = Annotated[
    bool, PlainValidator(to_flag), Editor({"type": "boolean", "errorMessage": "Expected true or false."})
]
NullField = Annotated[
    None, PlainValidator(to_null), Editor({"type": "null", "errorMessage": "This step takes no value."})
]


K = TypeVar("K")


def sequence_items(node: object) -> list[Node]:
    """For `list[X]` fields: a list node becomes its items."""
    if isinstance(node, Sequence):
        return list(node.items)
    raise wrong("a list", node)


def mapping_items(node: object) -> dict[str, Node]:
    """For `dict[str, X]` fields: a mapping node becomes its entries."""
    if isinstance(node, Mapping):
        return {entry.key.text: entry.value for entry in node.entries}
    raise wrong("a mapping", node)


def not_empty(entries: dict[str, T]) -> dict[str, T]:
    """For mappings that mean nothing without an entry."""
    if not entries:
        raise PydanticCustomError("empty_list", "at least one entry is needed here")
    return entries


def one_or_many(node: object) -> list[Node]:
    """For step lists: one step or a list of steps."""
    if isinstance(node, Sequence):
        if not node.items:
            raise PydanticCustomError("empty_list", "at least one step is needed here")
        return list(node.items)
    if isinstance(node, Scalar) and node.value is None:
        raise PydanticCustomError("missing_steps", 'steps or a text are missing here (an empty text is written "")')
    if isinstance(node, (Scalar, Mapping)):
        return [node]
    raise wrong("a step or a list of steps", node)


ListOf = Annotated[list[T], BeforeValidator(sequence_items)]
MapOf = Annotated[dict[str, T], BeforeValidator(mapping_items)]
Name = Annotated[str, AfterValidator(check_name)]
NameOfInput = Annotated[str, AfterValidator(partial(check_name, what="input name"))]
NameOfParam = Annotated[str, AfterValidator(partial(check_name, what="parameter name"))]
NameOfBranch = Annotated[str, AfterValidator(partial(check_name, what="branch name"))]
Alias = Annotated[str, AfterValidator(partial(check_name, what="alias"))]
FilledMapOf = Annotated[dict[str, T], BeforeValidator(mapping_items), AfterValidator(not_empty)]
NamedMapOf = Annotated[dict[K, T], BeforeValidator(mapping_items)]
"""`MapOf` whose keys are names of some sort; each bad one is reported."""
