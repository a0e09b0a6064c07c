"""What goes wrong in templates and expressions: at parse time, and at run time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ExpressionSyntaxError(Exception):
    """A template or expression that does not parse.

    `start` and `end` are code-point offsets into the text that was given to the parser.
    """

    code: str
    message: str
    start: int
    end: int
    help: str | None = None

    def __str__(self) -> str:
        return f"{self.code} at {self.start}: {self.message}"


@dataclass
class EvaluationError(Exception):
    """A template or expression that fails on the data it meets.

    `code` is S707; `cause` is the underlying code where there is one: S406 for wrong arguments, S408 for a value
    of the wrong type, S301 for a name without a value, S501/S502 for a regular expression, S253 for a limit.
    """

    code: str
    message: str
    start: int
    end: int
    help: str | None = None
    cause: str | None = None

    def __str__(self) -> str:
        return f"{self.code} at {self.start}: {self.message}"

    @property
    def is_limit(self) -> bool:
        """True when the budget ran out, as opposed to wrong data."""
        return self.cause == "S253"


class Problem(Exception):
    """A failure that does not know its place yet; the evaluator adds the place and raises `EvaluationError`."""

    def __init__(self, message: str, help: str | None = None, cause: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.help = help
        self.cause = cause


class ArgumentProblem(Problem):
    """A value that a function cannot take. The message continues the function's name: "needs text, but …"."""

    def __init__(self, message: str, help: str | None = None, cause: str = "S408") -> None:
        super().__init__(message, help, cause)
