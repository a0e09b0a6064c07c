"""The sampling options of a `gen`: those that are wrong together or in shape.

A run says the same of values that it alone knows; ranges of single numbers are the model's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from sglspec.analysis.constraints import ConstraintError
from sglspec.analysis.places import find, report_constraint
from sglspec.analysis.reasoning import ReasoningError, read_reasoning
from sglspec.analysis.regexes import check_stop_sizes, stop_pattern
from sglspec.diagnostics import Report
from sglspec.document.fields import TEMPLATE_MARK, Param, Setting, Text, Texts
from sglspec.document.load import Tree
from sglspec.document.model import Gen, Sampling
from sglspec.document.nodes import Mapping, Node, Scalar, Sequence

DEFAULT_MAX_TOKENS = 256
MAX_BIAS = 100
MAX_TOKEN_ID = 2**31 - 1
"""No vocabulary comes near; which ids a model has is known when it is there."""
NUMBERS = (
    "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty",
    "repetition_penalty", "seed", "n", "logprobs",
)  # fmt: skip
"""Options that are numbers."""
FLAGS = ("keep_stop", "ignore_eos")
"""Options that are true or false."""
_ESCAPES = ("\\n", "\\t", "\\r", "\\n\\n", "\\r\\n")
_UNKNOWN = object()


class SamplingError(ValueError):
    """Options that cannot be used so, with help."""

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.message, self.help = message, help


# -- values --------------------------------------------------------------------------------------------------------


def token_id(value: object) -> int:
    """One of `stop_token_ids`. Raises SamplingError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_TOKEN_ID:
        raise SamplingError(f"a token id is a whole number from 0 to {MAX_TOKEN_ID:,}")
    return value


def biased_id(word: str) -> int:
    """A key of `logit_bias`. Raises SamplingError."""
    digits = word.isascii() and word.isdigit() and len(word) <= len(str(MAX_TOKEN_ID))
    if not digits or int(word) > MAX_TOKEN_ID:
        help = "Tokens are named by their number in the model's vocabulary."
        raise SamplingError(f"`{word[:40]}` is not a token id", help)
    return int(word)


def bias(value: object) -> float:
    """A value of `logit_bias`. Raises SamplingError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > MAX_BIAS:
        raise SamplingError(f"a bias is a number from -{MAX_BIAS} to {MAX_BIAS}")
    return float(value)


def token_ids(value: object) -> tuple[int, ...]:
    """`stop_token_ids`, null for none. Raises SamplingError."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise SamplingError("`stop_token_ids` is a list of token ids")
    return tuple(token_id(item) for item in cast("list[Any]", value))


def biases(value: object) -> tuple[tuple[int, float], ...]:
    """`logit_bias`, null for none. Raises SamplingError."""
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise SamplingError("`logit_bias` is a mapping of token ids to numbers")
    return tuple((biased_id(str(word)), bias(amount)) for word, amount in cast("dict[Any, Any]", value).items())


def check_counts(least: int, most: int) -> None:
    """`min_tokens` beside `max_tokens`. Raises SamplingError."""
    if least > most:
        message = f"`min_tokens` ({least}) is more than `max_tokens` ({most})"
        raise SamplingError(message, "Raise `max_tokens`, or lower `min_tokens`.")


def check_budget(budget: int | None, most: int) -> None:
    """The `budget` of thinking beside `max_tokens`. Raises SamplingError."""
    if budget is not None and budget + 1 >= most:  # the closing tag is a token at least
        message = f"a `budget` of {budget} leaves nothing of `max_tokens` ({most}) for the answer"
        raise SamplingError(message, "Raise `max_tokens`: it counts the thinking, its tags and the answer.")


def check_chance(wanted: str, temperature: object) -> None:
    """`n` and `retry` ask for different texts, which only chance can give. Raises SamplingError."""
    if not temperature:
        message = f"at temperature 0 every text would be the same, so `{wanted}` changes nothing"
        raise SamplingError(message, "Add a `temperature` above 0, for example 0.8.")


# -- documents -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SamplingChecker:
    """Checks the options of a `gen`, or the `defaults` of a document (then `options` is those)."""

    document: Tree
    report: Report
    options: Sampling
    defaults: Sampling | None

    def check(self) -> None:
        options = self.options
        self._token_counts()
        if isinstance(options, Gen):
            self._candidates(options)
            if options.reasoning is not None:
                self._reasoning(options.reasoning.node)
        if options.stop_regex is not None:
            self._stop_patterns(options.stop_regex)
        for text in options.stop.items if options.stop is not None else ():
            if text.source == "":
                help = "Leave it out: an empty text is everywhere."
                self._fault(SamplingError("a stop text is empty", help), text.node)
            self._escape_without_quotes(text)
        if options.logit_bias is not None:
            self._logit_bias(options.logit_bias.node)
        if options.stop_token_ids is not None:
            self._token_ids(options.stop_token_ids.node)

    def _literal(self, name: str, default: Setting | None = None) -> Any:
        """A literal option with the defaults below it; _UNKNOWN when it is a template."""
        param = given(self.options, self.defaults, name)
        if param is None:
            return default
        return _UNKNOWN if param.template is not None else default if param.value is None else param.value

    def _token_counts(self) -> None:
        most, least = self._literal("max_tokens", DEFAULT_MAX_TOKENS), self._literal("min_tokens", 0)
        own = next((p for p in (self.options.min_tokens, self.options.max_tokens) if p is not None), None)
        if own is None or _UNKNOWN in (most, least):
            return
        try:
            check_counts(least, most)
        except SamplingError as error:
            self._fault(error, own.node)

    def _candidates(self, gen: Gen) -> None:
        if last_given(gen, None, "keep") is not None and last_given(gen, self.defaults, "n") is None:
            message = "`keep` goes with `n`"
            self.report.add(
                self.document.diagnostic("S213", message, gen.key("keep"), help="Add `n`, or leave it out.")
            )
        many = self._literal("n")
        wanted = "n" if isinstance(many, int) and many > 1 else "retry" if gen.retry is not None else None
        if wanted is not None:
            try:
                check_chance(wanted, self._literal("temperature"))
            except SamplingError as error:
                self._fault(error, gen.node.key(wanted) or gen.verb_node)

    def _reasoning(self, node: Node) -> None:
        try:
            reasoning = read_reasoning(node)
        except ReasoningError as error:
            self._fault(SamplingError(error.message, error.help), error.node)
            return
        most = self._literal("max_tokens", DEFAULT_MAX_TOKENS)
        if reasoning is None or most is _UNKNOWN:
            return
        try:
            check_budget(reasoning.budget, most)
        except SamplingError as error:
            self._fault(error, find(node, ("budget",)))

    def _stop_patterns(self, patterns: Texts) -> None:
        sizes: list[int] = []
        for pattern in patterns.items:
            if TEMPLATE_MARK.search(pattern.source):
                continue  # read when it is reached
            try:
                sizes.append(stop_pattern(pattern.source)[1])
            except ConstraintError as error:
                report_constraint(self.report, self.document, error, pattern.node)
        try:
            check_stop_sizes(sizes)
        except ConstraintError as error:
            report_constraint(self.report, self.document, error, patterns.node)

    def _escape_without_quotes(self, text: Text) -> None:
        """`stop: \\n` is a backslash and an n: YAML reads escapes inside double quotes only."""
        if text.node.style in ("plain", "single") and text.source in _ESCAPES:
            message = f"without double quotes `{text.source}` is a backslash and a letter"
            help = f'Write "{text.source}" in double quotes.'
            self.report.add(self.document.diagnostic("W103", message, text.node, severity="warning", help=help))

    def _logit_bias(self, node: Node) -> None:
        if not isinstance(node, Mapping):
            if not _open(node):
                self._fault(SamplingError("`logit_bias` is a mapping of token ids to numbers"), node)
            return
        for entry in node.entries:
            try:
                biased_id(entry.key.text)
            except SamplingError as error:
                self._fault(error, entry.key)
            if not _is_template(entry.value):
                try:
                    bias(entry.value.value if isinstance(entry.value, Scalar) else None)
                except SamplingError as error:
                    self._fault(error, entry.value)

    def _token_ids(self, node: Node) -> None:
        if not isinstance(node, Sequence):
            if not _open(node):
                self._fault(SamplingError("`stop_token_ids` is a list of token ids"), node)
            return
        for item in node.items:
            if not _is_template(item):
                try:
                    token_id(item.value if isinstance(item, Scalar) else None)
                except SamplingError as error:
                    self._fault(error, item)

    def _fault(self, error: SamplingError, node: Node) -> None:
        self.report.add(self.document.diagnostic("S507", error.message, node, help=error.help))


def given(options: Sampling, defaults: Sampling | None, name: str) -> Param | None:
    """An option as the step says it, or else the defaults; None when nobody does."""
    own: Param | None = getattr(options, name)
    return own if own is not None or defaults is None else getattr(defaults, name)


def last_given(options: Sampling, defaults: Sampling | None, name: str) -> Param | None:
    """As `given`, and None where null resets it."""
    param = given(options, defaults, name)
    return None if param is None or (param.template is None and param.value is None) else param


def _is_template(node: Node) -> bool:
    """Whether a value is known only in a run."""
    return isinstance(node, Scalar) and isinstance(node.value, str) and TEMPLATE_MARK.search(node.value) is not None


def holds_template(node: Node) -> bool:
    """Whether a value or a part of it is known only in a run."""
    if isinstance(node, Mapping):
        return any(_is_template(entry.value) for entry in node.entries)
    return any(_is_template(item) for item in node.items) if isinstance(node, Sequence) else _is_template(node)


def _open(node: Node) -> bool:
    """Whether there is nothing to check yet: null, or a template."""
    return _is_template(node) or (isinstance(node, Scalar) and node.value is None)


__all__ = [
    "DEFAULT_MAX_TOKENS",
    "FLAGS",
    "NUMBERS",
    "SamplingChecker",
    "SamplingError",
    "biases",
    "check_budget",
    "check_chance",
    "check_counts",
    "holds_template",
    "last_given",
    "token_ids",
]
