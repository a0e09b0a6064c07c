"""The document as pydantic models, and the one registry of verbs: the language's single source of truth.

The models validate node trees (nodes.py), not plain data, so that a field knows where it stands: `step.node` is
the mapping it came from, `step.at("stop")` the node of one field. Reader, checker, interpreter, editor schema and
docs all take the list of verbs from `VERBS`. A new verb is one class here with its `@verb`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    PrivateAttr,
    Tag,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import PydanticCustomError

from sglspec.document.fields import (
    TEMPLATE_MARK,
    Alias,
    Editor,
    ExprField,
    FilledMapOf,
    Flag,
    FlagField,
    IntoField,
    ItemsField,
    JsonField,
    ListOf,
    MapOf,
    Name,
    NamedMapOf,
    NameField,
    NameOfBranch,
    NameOfInput,
    NameOfParam,
    NullField,
    Number,
    OneOf,
    OptionalTargetField,
    Param,
    PlainField,
    Target,
    TargetField,
    Text,
    TextField,
    TextsField,
    Value,
    ValueField,
    WordOption,
    as_scalar,
    each,
    not_empty,
    one_or_many,
    to_name,
    to_plain,
    to_text,
    to_value,
    wrong,
)
from sglspec.document.nodes import Mapping, Node, Scalar, Sequence

LANGUAGE_VERSION = "v1"
TYPE_WORDS = ("string", "integer", "number", "boolean", "array", "object", "image", "video", "messages", "any")
TYPE_WORDS_LATER = ("image", "video")
TYPE_WORD = OneOf(TYPE_WORDS, later=TYPE_WORDS_LATER)
TAG = "verb:"
"""Prefix of union tags. pydantic puts tags into error locations; no key of ours can start so."""


class Model(BaseModel):
    """Base of everything that a mapping node becomes. Closed: an unknown key is an error."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True
    )

    _node: Mapping = PrivateAttr()

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(value, Mapping):
            raise wrong(cls.expected(), value)
        model = handler({entry.key.text: entry.value for entry in value.entries})
        model._node = value
        return model

    @classmethod
    def expected(cls) -> str:
        return "a mapping"

    # like nodes, models compare by identity: two equal steps at two places are two steps
    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def node(self) -> Mapping:
        return self._node

    def at(self, key: str) -> Node:
        """The node of a field, or the whole mapping when the author did not write it."""
        return self._node.get(key) or self._node

    def key(self, key: str) -> Node:
        """The key's own node, or the whole mapping."""
        return self._node.key(key) or self._node


def structure(message: str, **context: Any) -> PydanticCustomError:
    """An error of a whole step; `key` in the context names the key to point at."""
    return PydanticCustomError("structure", message, context)  # type: ignore[arg-type]


def missing(message: str, **context: Any) -> PydanticCustomError:
    return PydanticCustomError("missing_key", message, context)  # type: ignore[arg-type]


class Step(Model):
    """A step with a verb. Every mapping step may carry `id` and `note`."""

    VERB: ClassVar[str] = ""

    id: PlainField | None = Field(None, description="A name for this step in traces and tests.")
    note: PlainField | None = Field(None, description="A remark; it has no effect.")

    @classmethod
    def expected(cls) -> str:
        return "a step"

    @property
    def verb_node(self) -> Node:
        return self.key(self.VERB)


class TextStep(BaseModel):
    """A piece of text, the only step that is not a mapping."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    text: Text

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        text = to_text(value)
        return cls.model_construct(text=text)

    @property
    def node(self) -> Scalar:
        return self.text.node


@dataclass(frozen=True, slots=True)
class Verb:
    """One entry of the registry. `ready` is false for verbs that this build accepts but cannot run yet;
    `snippet` is the body that an editor inserts."""

    name: str
    model: type[Step]
    summary: str
    ready: bool
    snippet: str


VERBS: dict[str, Verb] = {}
S = TypeVar("S", bound=type[Step])


def verb(name: str, summary: str, *, snippet: str, ready: bool = True) -> Callable[[S], S]:
    def register(model: S) -> S:
        model.VERB = name
        VERBS[name] = Verb(name, model, summary, ready, snippet)
        return model

    return register


def _step_tag(value: Any) -> str | None:
    if isinstance(value, Scalar):
        return TAG + "text"
    if isinstance(value, Mapping):
        found = next((key for key in value.names() if key in VERBS), None)
        return TAG + found if found else None
    return None


StepList = Annotated[list["AnyStep"], BeforeValidator(one_or_many)]
OnError = Annotated[str, OneOf(("fail", "skip", "keep"))]


class Role(Step):
    """A message. `steps` is its content; one plain text is a message that loses its outer blank lines."""

    steps: StepList

    @property
    def is_single_text(self) -> bool:
        return isinstance(self.at(self.VERB), Scalar)


@verb("system", "A system message.", snippet="system: ${1:You are a helpful assistant.}")
class System(Role):
    steps: StepList = Field(alias="system", description="The message: a text, or a list of steps.")


@verb("user", "A user message.", snippet="user: ${1:text}")
class User(Role):
    steps: StepList = Field(alias="user", description="The message: a text, or a list of steps.")


@verb("assistant", "An assistant message, usually with a gen inside.", snippet="assistant:\n  - gen: ${1:answer}")
class Assistant(Role):
    steps: StepList = Field(alias="assistant", description="The message: a text, or a list of steps.")


@verb("messages", "Append a history of messages.", snippet="messages: ${1:history}")
class Messages(Step):
    messages: ExprField = Field(description="An expression: a list of {role, content}.")


@verb("raw", "A piece of text without templating.", snippet="raw: ${1:text}")
class Raw(Step):
    raw: TextField = Field(description="The text, taken as it is.")


@verb("image", "An image in the message.", snippet="image: ${1:path}", ready=False)
class Image(Step):
    image: ValueField = Field(description="The image.")


@verb("video", "A video in the message.", snippet="video: ${1:path}", ready=False)
class Video(Step):
    video: ValueField = Field(description="The video.")
    frames: Annotated[Param, Number(integer=True, low=1)] | None = Field(None, description="How many frames to take.")


class Decl(Model):
    """A declaration of an input or a field: a type word (`essay: string`) or a mapping."""

    type: Annotated[str, TYPE_WORD] | None = Field(None, description="The type.")
    items: Decl | None = Field(None, description="The type of a list's items.")
    properties: MapOf[Decl] | None = Field(None, description="An object's fields, required unless `optional`.")
    enum: JsonField | None = Field(None, description="The only values allowed.")
    default: JsonField | None = Field(None, description="Used when the input is not given.")
    optional: FlagField | None = Field(None, description="May be left out; then it is null.")
    secret: FlagField | None = Field(None, description="Masked everywhere; only tools and callees may see it.")
    title: PlainField | None = Field(None, description="A short label.")
    description: PlainField | None = Field(None, description="What it is.")
    examples: JsonField | None = Field(None, description="Example values.")
    minLength: Annotated[Param, Number(integer=True, low=0)] | None = Field(None, description="Least characters.")
    maxLength: Annotated[Param, Number(integer=True, low=0)] | None = Field(None, description="Most characters.")
    pattern: PlainField | None = Field(None, description="A regular expression that the text contains.")
    format: PlainField | None = Field(None, description="A JSON Schema format.")
    minimum: Annotated[Param, Number()] | None = Field(None, description="Least value.")
    maximum: Annotated[Param, Number()] | None = Field(None, description="Greatest value.")
    exclusiveMinimum: Annotated[Param, Number()] | None = Field(None, description="The value is above this.")
    exclusiveMaximum: Annotated[Param, Number()] | None = Field(None, description="The value is below this.")
    multipleOf: Annotated[Param, Number(low=0, low_open=True)] | None = Field(None, description="A multiple of this.")
    minItems: Annotated[Param, Number(integer=True, low=0)] | None = Field(None, description="Least items.")
    maxItems: Annotated[Param, Number(integer=True, low=0)] | None = Field(None, description="Most items.")

    _written: Node = PrivateAttr()

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(value, Mapping):
            model = handler({entry.key.text: entry.value for entry in value.entries})
            model._node = value
        elif isinstance(value, Scalar):
            if value.value is None and value.text == "":
                raise PydanticCustomError("missing_text", "a type is missing here", {"what": "type"})
            word = TYPE_WORD.read(value)
            model = cls.model_construct(type=word)
            model._node = Mapping((), value.range)
        else:
            raise wrong("a type word or a declaration", value)
        model._written = value
        return model

    @property
    def written(self) -> Node:
        """The node as the author wrote it: a type word or a mapping."""
        return self._written


class Sampling(Model):
    """Sampling options: those of a `gen`, and the program's `defaults`."""

    max_tokens: Annotated[Param, Number(integer=True, low=0)] | None = Field(
        None, description="At most this many tokens (256)."
    )
    min_tokens: Annotated[Param, Number(integer=True, low=0)] | None = Field(
        None, description="No stop and no end before this many tokens."
    )
    temperature: Annotated[Param, Number(low=0)] | None = Field(
        None, description="Randomness; 0 (the default) always takes the likeliest token."
    )
    top_p: Annotated[Param, Number(low=0, high=1, low_open=True)] | None = Field(
        None, description="Sample only from the likeliest tokens that make up this share."
    )
    top_k: Annotated[Param, Number(integer=True, low=1)] | None = Field(
        None, description="Sample only from this many likeliest tokens."
    )
    min_p: Annotated[Param, Number(low=0, high=1)] | None = Field(
        None, description="Drop tokens less likely than this share of the likeliest."
    )
    frequency_penalty: Annotated[Param, Number(low=-2, high=2)] | None = Field(
        None, description="Lower tokens by how often they were generated."
    )
    presence_penalty: Annotated[Param, Number(low=-2, high=2)] | None = Field(
        None, description="Lower tokens that were generated at all."
    )
    repetition_penalty: Annotated[Param, Number(low=0, low_open=True)] | None = Field(
        None, description="Divide the score of tokens that are already in the context."
    )
    seed: Annotated[Param, Number(integer=True, low=0)] | None = Field(None, description="This step's own seed.")
    logit_bias: JsonField | None = Field(None, description="Token id → number added to its score.")
    stop: TextsField | None = Field(None, description="End the text before any of these.")
    stop_token_ids: JsonField | None = Field(None, description="End the text at any of these token ids.")
    stop_regex: TextsField | None = Field(None, description="End the text at a match of any of these patterns.")
    keep_stop: Annotated[Param, Flag()] | None = Field(
        None, description="Keep the stop text in the value and the context."
    )
    ignore_eos: Annotated[Param, Flag()] | None = Field(None, description="Do not end at the model's end token.")
    n: Annotated[Param, Number(integer=True, low=1, high=256)] | None = Field(None, description="How many candidates.")
    keep: Annotated[Param, WordOption(("first", "best"))] | None = Field(
        None, description="Which candidate the context goes on with."
    )
    logprobs: Annotated[Param, Number(integer=True, low=0, high=20)] | None = Field(
        None, description="Report this many alternatives per token."
    )


class Retry(Model):
    """`retry` of a gen."""

    max: Annotated[Param, Number(integer=True, low=1, high=100)] = Field(description="At most this many attempts.")
    until: ExprField | None = Field(None, description="An expression over the new value that is to be true.")

    @classmethod
    def expected(cls) -> str:
        return "a mapping with `max` and `until`"


@verb("gen", "Generate text with the model.", snippet="gen: ${1:answer}")
class Gen(Sampling, Step):
    gen: OptionalTargetField = Field(description="The variable for the value; empty for none.")
    regex: TextField | None = Field(None, description="The whole text matches this regular expression.")
    fields: MapOf[Decl] | None = Field(None, description="A JSON object with exactly these fields, all of them.")
    # `schema` is a method of pydantic models
    schema_: JsonField | None = Field(None, alias="schema", description="A JSON Schema for the value.")
    grammar: TextField | None = Field(None, description="A grammar in the Lark dialect.")
    type: Annotated[str, OneOf(("integer", "number", "boolean", "json", "quoted"))] | None = Field(
        None, description="Generate a value of this type."
    )
    pretty: FlagField | None = Field(None, description="Indented JSON instead of compact JSON.")
    lenient: FlagField | None = Field(None, description="Enforce what can be enforced, validate the rest afterwards.")
    retry: Retry | None = Field(None, description="Try again until a condition holds: {max, until}.")
    reasoning: JsonField | None = Field(
        None, description="The model thinks before it answers: the name of a parser, or {open, close, budget}."
    )

    @model_validator(mode="after")
    def _one_constraint(self) -> Self:
        given = [key for key in self.node.names() if key in CONSTRAINTS]
        if len(given) > 1:
            raise structure(
                "`{key}` and `{other}` exclude each other: one constraint per gen", key=given[1], other=given[0]
            )
        return self


CONSTRAINTS = ("regex", "fields", "schema", "grammar", "type")


@verb("select", "Choose the likeliest of some texts.", snippet='select: ${1:choice}\nfrom: ["${2:yes}", "${3:no}"]')
class Select(Step):
    select: OptionalTargetField = Field(description="The variable for the chosen value; empty for none.")
    choices: ItemsField = Field(alias="from", description="The choices: a list, or an expression that gives one.")
    method: Annotated[str, OneOf(("length_normalized", "greedy", "unconditional", "sum"))] | None = Field(
        None, description="How choices are compared (length_normalized)."
    )


@verb("set", "Bind variables to values.", snippet="set: {${1:name}: ${2:value}}")
class Set(Step):
    set: FilledMapOf[ValueField] = Field(description="Name → value, bound from top to bottom.")


@verb("capture", "Bind the text that some steps append.", snippet="capture: ${1:name}\ndo:\n  - ${2:text}")
class Capture(Step):
    capture: TargetField = Field(description="The variable for the text.")
    do: StepList = Field(description="The steps.")


@verb("if", "Do steps when a condition holds.", snippet="if: ${1:condition}\nthen:\n  - ${2:text}")
class If(Step):
    condition: ExprField = Field(alias="if", description="An expression that is true or false.")
    then: StepList = Field(description="Steps when it is true.")
    orelse: StepList | None = Field(None, alias="else", description="Steps when it is false.")


@verb("match", "Choose steps by a value.", snippet="match: ${1:value}\ncases:\n  ${2:case}:\n    - ${3:text}")
class Match(Step):
    subject: ExprField = Field(alias="match", description="An expression; its text is compared with the cases.")
    cases: FilledMapOf[StepList] = Field(description="Text → steps.")
    orelse: StepList | None = Field(None, alias="else", description="Steps when no case matches.")


@verb("for", "Repeat steps for each item of a list.", snippet="for: ${1:item}\nin: ${2:items}\ndo:\n  - ${3:text}")
class For(Step):
    var: NameField = Field(alias="for", description="The variable for the item.")
    items: ItemsField = Field(alias="in", description="A list, or an expression that gives one.")
    do: StepList = Field(description="The steps.")


@verb(
    "while", "Repeat steps while a condition holds.", snippet="while: ${1:condition}\nmax: ${2:8}\ndo:\n  - ${3:text}"
)
class While(Step):
    condition: ExprField = Field(alias="while", description="An expression that is true or false.")
    do: StepList = Field(description="The steps.")
    max: Annotated[Param, Number(integer=True, low=1)] = Field(description="At most this many rounds.")
    on_max: Annotated[str, OneOf(("fail", "stop"))] | None = Field(
        None, description="What happens at `max` when the condition is still true (fail)."
    )


@verb("break", "Leave the nearest loop.", snippet="break:")
class Break(Step):
    value: NullField = Field(alias="break", description="Takes no value.")


@verb("continue", "Go on with the nearest loop's next round.", snippet="continue:")
class Continue(Step):
    value: NullField = Field(alias="continue", description="Takes no value.")


def _fork_tag(value: Any) -> str:
    if isinstance(value, Mapping):
        return TAG + "branches"
    if isinstance(value, Scalar) and (not isinstance(value.value, str) or TEMPLATE_MARK.search(value.text)):
        return TAG + "count"
    return TAG + "variable"


ForkSpec = Annotated[
    Annotated[Target, PlainValidator(to_name), Tag(TAG + "variable")]
    | Annotated[Param, Number(integer=True, low=0), Tag(TAG + "count")]
    | Annotated[NamedMapOf[NameOfBranch, StepList], AfterValidator(not_empty), Tag(TAG + "branches")],
    Discriminator(_fork_tag),
]


@verb(
    "fork", "Run branches in parallel from here.", snippet="fork: ${1:item}\nin: ${2:items}\ndo:\n  - gen: ${3:answer}"
)
class Fork(Step):
    spec: ForkSpec = Field(alias="fork", description="A variable (with `in`), a count, or named branches.")
    items: ItemsField | None = Field(None, alias="in", description="A list, or an expression that gives one.")
    do: StepList | None = Field(None, description="The steps of each branch.")
    join: Annotated[str, OneOf(("gather", "concat", "concat_kv"))] | None = Field(
        None, description="What becomes of the branches (gather)."
    )
    fallback: Annotated[str, OneOf(("concat",))] | None = Field(
        None, description="Used where the backend has no concat_kv."
    )
    into: TargetField | None = Field(None, description="Gather records into this variable instead.")
    on_error: OnError | None = Field(None, description="What a failing branch means (fail).")

    @property
    def branches(self) -> dict[str, list[AnyStep]] | None:
        return self.spec if isinstance(self.spec, dict) else None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        named = isinstance(self.spec, dict)
        if named and self.do is not None:
            raise structure("a fork with named branches has no `do`: each branch holds its own steps", key="do")
        if isinstance(self.spec, Target) and self.items is None:
            message = "`fork: {name}` needs `in`: the list whose items the branches get"
            raise missing(message, name=self.spec.name, help="Add the list: `in: [a, b]`.")
        if not isinstance(self.spec, Target) and self.items is not None:
            raise structure("`in` needs a variable: write `fork: item`", key="in")
        if isinstance(self.spec, Param) and self.spec.value is None and self.spec.template is None:
            help = "Write `fork: 3`, or `fork: item`, and below it `in: [a, b]`."
            raise missing("`fork` needs a variable, a count or named branches", help=help)
        if not named and self.do is None:
            help = "Add `do:`, and below it the steps, for example `- gen: answer`."
            raise missing("a fork needs `do`: the steps of its branches", help=help)
        if self.fallback is not None and self.join != "concat_kv":
            raise structure("`fallback` only goes with `join: concat_kv`", key="fallback")
        return self


@verb("scratch", "Steps whose text is thrown away.", snippet="scratch:\n  - gen: ${1:x}\nexport: [${1:x}]")
class Scratch(Step):
    scratch: StepList = Field(description="The steps.")
    export: ListOf[NameField] | None = Field(None, description="Variables that come back.")


@verb("call", "Run another program.", snippet="call: ${1:alias}\nwith: {}\ninto: ${2:result}")
class Call(Step):
    call: PlainField = Field(description="The alias of the program.")
    args: MapOf[ValueField] | None = Field(None, alias="with", description="Its inputs.")
    into: IntoField | None = Field(None, description="Where its outputs go.")
    on_error: OnError | None = Field(None, description="What a failure means (fail).")


@verb("include", "Insert a named list of steps.", snippet="include: ${1:name}")
class Include(Step):
    include: PlainField = Field(description="A name of `defs.steps` or an alias.")
    args: MapOf[ValueField] | None = Field(None, alias="with", description="Its params.")
    into: IntoField | None = Field(None, description="Where its variables go.")


@verb("tool", "Call a tool that the host registered.", snippet="tool: ${1:name}\nwith: {}\ninto: ${2:result}")
class Tool(Step):
    tool: PlainField = Field(description="The tool's name.")
    args: MapOf[ValueField] | None = Field(None, alias="with", description="Its arguments.")
    into: IntoField | None = Field(None, description="Where its result goes.")
    timeout: Annotated[Param, Number(low=0, low_open=True)] | None = Field(None, description="Seconds.")
    on_error: OnError | None = Field(None, description="What a failure means (fail).")


@verb("return", "End the program.", snippet="return:")
class Return(Step):
    values: MapOf[ValueField] | None = Field(None, alias="return", description="Outputs to set; the others are null.")

    @model_validator(mode="before")
    @classmethod
    def _null_means_nothing(cls, value: Any) -> Any:
        if isinstance(value, dict):
            given = value.get("return")  # type: ignore[reportUnknownMemberType]
            if isinstance(given, Scalar) and given.value is None:
                return {**value, "return": None}  # type: ignore[reportUnknownArgumentType]
        return value  # type: ignore[reportUnknownVariableType]


@verb("fail", "End the program with an error.", snippet="fail: ${1:message}")
class Fail(Step):
    fail: TextField = Field(description="The message.")


@verb("check", "Fail unless a condition holds.", snippet="check: ${1:condition}\nmessage: ${2:what is wrong}")
class Check(Step):
    check: ExprField = Field(description="An expression that must be true.")
    message: TextField | None = Field(None, description="What to say when it is not.")


AnyStep = Annotated[
    Annotated[TextStep, Tag(TAG + "text")]
    | Annotated[System, Tag(TAG + "system")]
    | Annotated[User, Tag(TAG + "user")]
    | Annotated[Assistant, Tag(TAG + "assistant")]
    | Annotated[Messages, Tag(TAG + "messages")]
    | Annotated[Raw, Tag(TAG + "raw")]
    | Annotated[Image, Tag(TAG + "image")]
    | Annotated[Video, Tag(TAG + "video")]
    | Annotated[Gen, Tag(TAG + "gen")]
    | Annotated[Select, Tag(TAG + "select")]
    | Annotated[Set, Tag(TAG + "set")]
    | Annotated[Capture, Tag(TAG + "capture")]
    | Annotated[If, Tag(TAG + "if")]
    | Annotated[Match, Tag(TAG + "match")]
    | Annotated[For, Tag(TAG + "for")]
    | Annotated[While, Tag(TAG + "while")]
    | Annotated[Break, Tag(TAG + "break")]
    | Annotated[Continue, Tag(TAG + "continue")]
    | Annotated[Fork, Tag(TAG + "fork")]
    | Annotated[Scratch, Tag(TAG + "scratch")]
    | Annotated[Call, Tag(TAG + "call")]
    | Annotated[Include, Tag(TAG + "include")]
    | Annotated[Tool, Tag(TAG + "tool")]
    | Annotated[Return, Tag(TAG + "return")]
    | Annotated[Fail, Tag(TAG + "fail")]
    | Annotated[Check, Tag(TAG + "check")],
    Discriminator(_step_tag),
]


class Use(Model):
    """An entry of `use`: a path, or a path with inputs that are bound."""

    path: PlainField = Field(description="The other document, relative to this one: `./judge.sglspec.yaml`.")
    args: MapOf[ValueField] | None = Field(None, alias="with", description="Inputs that every use has.")

    _place: Node = PrivateAttr()

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(value, Mapping):
            model = handler({entry.key.text: entry.value for entry in value.entries})
            model._node = value
            model._place = model.at("path")
        elif isinstance(value, Scalar):
            model = cls.model_construct(path=to_plain(value), args=None)
            model._node = Mapping((), value.range)
            model._place = value
        else:
            raise wrong("a path, or a mapping with `path` and `with`", value)
        return model

    @property
    def place(self) -> Node:
        """The node of the path."""
        return self._place


class TextDef(Model):
    """An entry of `defs.texts`: a text as it stands, or that of a file."""

    file: PlainField = Field(description="The file, relative to this document: `./prompt.md`.")

    _text: Text | None = PrivateAttr(None)

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(value, Mapping):
            model = handler({entry.key.text: entry.value for entry in value.entries})
            model._node = value
        elif isinstance(value, Scalar):
            model = cls.model_construct(file="")
            model._text = to_text(value)
            model._node = Mapping((), value.range)
        else:
            raise wrong("a text, or `{file: ./prompt.md}`", value)
        return model

    @property
    def text(self) -> Text | None:
        """The text that stands here; None for one of a file."""
        return self._text


class StepsDef(Model):
    """An entry of `defs.steps`: a list of steps, or one with `params`."""

    params: NamedMapOf[NameOfParam, Decl] = Field(
        default_factory=dict, description="Name → type or declaration, given by `with`."
    )
    description: PlainField | None = Field(None, description="What the steps do.")
    steps: StepList = Field(description="The steps.")

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(value, Mapping):
            model = handler({entry.key.text: entry.value for entry in value.entries})
            model._node = value
        elif isinstance(value, Sequence):
            model = handler({"steps": value})
            model._node = Mapping((), value.range)
        else:
            raise wrong("a list of steps, or a mapping with `params` and `steps`", value)
        return model


class Defs(Model):
    """What a document defines to use it in several places."""

    schemas: NamedMapOf[Name, JsonField] = Field(
        default_factory=dict, description="Name → JSON Schema, or the path of one."
    )
    regexes: NamedMapOf[Name, TextField] = Field(default_factory=dict, description="Name → regular expression.")
    texts: NamedMapOf[Name, TextDef] = Field(
        default_factory=dict, description="Name → text or {file: path}; read as texts.name."
    )
    steps: NamedMapOf[Name, StepsDef] = Field(default_factory=dict, description="Name → steps for `include`.")


DEFAULT_BRANCHES = 256
DEFAULT_DEPTH = 8
"""What `limits` says where the document does not."""


class Limits(Model):
    """The program's own bounds; a host may lower them further."""

    tokens: Annotated[Param, Number(integer=True, low=1)] | None = Field(None, description="Generated tokens (100000).")
    branches: Annotated[Param, Number(integer=True, low=1)] | None = Field(None, description="Branches started (256).")
    depth: Annotated[Param, Number(integer=True, low=1)] | None = Field(None, description="Depth of forks (8).")
    iterations: Annotated[Param, Number(integer=True, low=1)] | None = Field(
        None, description="Rounds per loop (10000)."
    )
    seconds: Annotated[Param, Number(low=0, low_open=True)] | None = Field(None, description="Seconds per run (600).")


class Case(Model):
    """One test in the document."""

    name: PlainField | None = Field(None, description="The test's name.")
    inputs: MapOf[JsonField] | None = Field(None, description="Inputs of the run.")
    replies: MapOf[JsonField] | None = Field(None, description="Scripted replies by variable or step id.")
    expect: JsonField | None = Field(None, description="Expressions that must be true.")
    error: PlainField | None = Field(None, description="The code of the error that is expected.")
    calls: JsonField | None = Field(None, description="How often steps are expected to run.")
    model: PlainField | None = Field(None, description="The model for this test.")
    tags: JsonField | None = Field(None, description="Words to select tests by.")


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """`outputs`: names, or name → value. Whether the names are good is checked with what the steps bind."""

    names: tuple[Target, ...]
    values: tuple[tuple[Target, Value], ...] | None
    node: Node


def _output(node: object) -> Target:
    scalar = as_scalar(node, "a name")
    return Target(scalar.text, False, scalar)


def to_outputs(node: object) -> Outputs:
    if isinstance(node, Sequence):
        names = each(((at,), partial(_output, item)) for at, item in enumerate(node.items))
        return Outputs(tuple(names), None, node)
    if isinstance(node, Mapping):
        pairs = tuple((_output(entry.key), to_value(entry.value)) for entry in node.entries)
        return Outputs(tuple(name for name, _ in pairs), pairs, node)
    raise wrong("a list of names, or a mapping of names to values", node)


SLUG = re.compile(r"[a-z][a-z0-9-]{0,62}\Z")


def check_slug(text: str) -> str:
    if not SLUG.match(text):
        message = "`{text}` is not a valid program name: use a-z, 0-9 and -, starting with a letter"
        close = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63]
        help = f"Write `name: {close}`." if SLUG.match(close) else "For example `name: essay-judge`."
        raise PydanticCustomError("bad_name", message, {"text": text, "help": help})
    return text


class Spec(Model):
    """A whole document."""

    sglspec: PlainField = Field(description="The language version: v1.")
    name: Annotated[PlainField, AfterValidator(check_slug)] | None = Field(
        None, description="The program's name: a-z, 0-9 and -."
    )
    version: PlainField | None = Field(None, description="Your own version of the program.")
    description: PlainField | None = Field(None, description="What the program does.")
    inputs: NamedMapOf[NameOfInput, Decl] = Field(default_factory=dict, description="Name → type or declaration.")
    outputs: Annotated[Outputs, PlainValidator(to_outputs), Editor({"type": ["array", "object"]})] | None = Field(
        None, description="What a run gives back: names, or name → value."
    )
    model: PlainField | None = Field(None, description="The model to run on; the host may choose another.")
    defaults: Sampling | None = Field(None, description="Sampling defaults for every gen.")
    use: NamedMapOf[Alias, Use] = Field(
        default_factory=dict, description="Alias → path of another document, or {path, with}."
    )
    defs: Defs | None = Field(None, description="Reusable schemas, regexes, texts and steps.")
    limits: Limits | None = Field(None, description="Bounds of a run.")
    steps: StepList = Field(description="The program.")
    tests: ListOf[Case] | None = Field(None, description="Tests.")
    schema_uri: JsonField | None = Field(None, alias="$schema", description="For editors; ignored at run time.")

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(value, Mapping):
            raise wrong("a mapping with `sglspec: v1` and `steps`", value)
        model = handler({e.key.text: e.value for e in value.entries if not e.key.text.startswith("x-")})
        model._node = value
        return model
