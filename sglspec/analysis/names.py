"""Reading and binding names: what is unknown, what has no value yet, what may not be bound."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sglspec.analysis.declarations import nearest
from sglspec.analysis.scopes import Place, State
from sglspec.analysis.sites import Site, every_step, own_sites, sites
from sglspec.analysis.types import ANY, LOOP, STRING, Type, array, of_decl
from sglspec.diagnostics import MAX_REPORTED, Related, Report
from sglspec.document.advice import bad_name
from sglspec.document.fields import NAME, RESERVED, Target
from sglspec.document.load import Document
from sglspec.document.model import AnyStep, Decl, For, Fork, Scratch
from sglspec.document.nodes import Node, Scalar
from sglspec.expressions import ast
from sglspec.expressions.names import NameUse


@dataclass(frozen=True, slots=True)
class Visible(Collection[str]):
    """Names from several places, looked up where they are: copying them for every value would take too long."""

    parts: tuple[Collection[str], ...]

    def __contains__(self, name: object) -> bool:
        return any(name in part for part in self.parts)

    def __iter__(self) -> Iterator[str]:
        return iter(set[str]().union(*self.parts))

    def __len__(self) -> int:
        return len(set[str]().union(*self.parts))


@dataclass(slots=True)
class Names:
    """The names of one program. `read` collects the inputs that something reads."""

    document: Document
    report: Report
    inputs: Mapping[str, Type]
    secrets: frozenset[str]
    bound_in: Mapping[str, Node]
    """Every name that some step binds in the main scope, with the first place."""
    hidden_in: Mapping[str, Node]
    """Names that are bound only inside branches whose fork brings back records."""
    kept_in: Mapping[str, Node]
    """Names that are bound only inside a `scratch` that does not export them."""
    loop_variables: Mapping[str, Node]
    appending: frozenset[str]
    texts: Mapping[str, Type] = field(default_factory=dict[str, Type])
    """Those of `defs`; read as `texts.name`."""
    patterns: frozenset[str] = frozenset()
    """Regexes of `defs`, which are no values."""
    outside: frozenset[str] = frozenset()
    """Variables of the program, seen from a list of `defs.steps`, which has names of its own."""
    read: set[str] = field(default_factory=set[str])
    secrets_allowed: bool = False
    """In `with` of a tool, and for a secret input in that of a call or include."""

    @staticmethod
    def of(
        document: Document,
        report: Report,
        steps: list[AnyStep],
        declared: Mapping[str, Decl],
        texts: Iterable[str] = (),
        patterns: Iterable[str] = (),
        outside: frozenset[str] = frozenset(),
    ) -> Names:
        """The names of a list of steps that sees these inputs."""
        bound: dict[str, Node] = {}
        appending: set[str] = set()
        for site in sites(steps):
            bound.setdefault(site.name, site.node)
        hidden: dict[str, Node] = {}
        kept: dict[str, Node] = {}
        loops: dict[str, Node] = {}
        for step in every_step(steps):
            for site in own_sites(step):
                if site.append:
                    appending.add(site.name)
                if site.name not in bound:
                    hidden.setdefault(site.name, site.node)
            if isinstance(step, Scratch):
                for site in sites(step.scratch):
                    if site.name not in bound:
                        kept.setdefault(site.name, site.node)
            elif isinstance(step, For):
                loops.setdefault(step.var.name, step.var.node)
            elif isinstance(step, Fork) and isinstance(step.spec, Target):
                loops.setdefault(step.spec.name, step.spec.node)
        inputs = {name: of_decl(decl) for name, decl in declared.items()}
        secrets = frozenset(name for name, decl in declared.items() if decl.secret)
        of_texts = dict.fromkeys(texts, STRING)
        return Names(
            document, report, inputs, secrets, bound, hidden, kept, loops, frozenset(appending), of_texts,
            frozenset(patterns), outside,
        )  # fmt: skip

    # -- reading -------------------------------------------------------------------------------------------------

    def visible(self, state: State, place: Place) -> Visible:
        loop = ("loop",) if place.loop else ()
        return Visible((self.inputs, state.seen, self.appending, place.locals, loop))

    def type_of(self, name: str, state: State) -> Type:
        if name in self.appending:
            return array()
        if name == "loop":
            return LOOP
        if name == "texts":
            return Type("object", fields=self.texts)
        return state.bound.get(name) or self.inputs.get(name) or ANY

    def check_use(self, use: NameUse, node: Scalar, state: State, place: Place, *, at_end: bool = False) -> None:
        """One name in a text or expression. `at_end`: outputs, where what this run did not bind is null."""
        name = use.name
        if name == "loop":
            if not place.loop:
                self._fault("S301", "`loop` exists inside `for`, `while` and `fork` only", use, node)
            return
        if name == "texts":
            if not self.texts:
                help = "Define one at the top level: `defs: {texts: {rules: Be brief.}}`."
                self._fault("S323", "this document has no `texts` in its `defs`", use, node, help)
            elif use.meta:
                self._fault("S301", "`texts` are the author's: only what was generated has `meta`", use, node)
            return
        if name in self.inputs:
            self.read.add(name)
            if name in self.secrets and not self.secrets_allowed:
                help = "A secret may be used only in `with` of a tool, or for a secret input of a callee."
                self._fault("S308", f"the secret input `{name}` would end up in the program's text", use, node, help)
            elif use.meta:
                self._fault("S301", f"`{name}` is an input: only what was generated has `meta`", use, node)
            return
        if name in state.bound or name in self.appending or state.muted:
            return
        if name not in state.seen and name not in self.bound_in:
            self._unknown(use, node, state, place)
        elif not use.guarded and not at_end:
            self._maybe_unbound(use, node, state)
            state.assume(name)  # one message is enough

    def _unknown(self, use: NameUse, node: Scalar, state: State, place: Place) -> None:
        name = use.name
        if name in self.loop_variables:
            message = f"`{name}` is the variable of a loop or fork and lives in its `do` only"
            self._fault("S301", message, use, node, related=self._first(self.loop_variables[name]))
            return
        if name in self.kept_in:
            message = f"`{name}` is bound inside a `scratch` that does not export it"
            help = f"Add it to its `export: [{name}]`."
            self._fault("S301", message, use, node, help, self._first(self.kept_in[name]))
            return
        if name in self.hidden_in:
            message = f"`{name}` is bound inside a fork that brings back records"
            help = f"Read it from the records of `into`, for example `reviews[0].{name}`."
            self._fault("S301", message, use, node, help, self._first(self.hidden_in[name]))
            return
        if self.report.count >= MAX_REPORTED:
            self._fault("S301", f"nothing binds the name `{name}`", use, node)
            return
        visible = sorted(self.visible(state, place))
        close = nearest(name, visible) or nearest(name, sorted(self.bound_in.keys() - set(visible)))
        help = f"Did you mean `{close}`?" if close else None
        if close is not None:
            self.read.add(close)  # a typo in the only use of an input is one mistake
        if name in self.patterns:
            message = f"`{name}` is a pattern of `defs`, and those stand alone in `regex` and `stop_regex`"
            self._fault("S301", message, use, node, f"Write `{{{{ {name} }}}}` in one of these, without anything else.")
            return
        if help is None and name in self.outside:
            message = f"`{name}` is a variable of the program, and these steps have names of their own"
            help = f'Declare it as one of their `params`, and give it with `with: {{{name}: "{{{{ {name} }}}}"}}`.'
            self._fault("S301", message, use, node, help)
            return
        if help is None and _is_compared(node.text, use):
            quote = '"' if node.style == "single" else "'"
            help = f"For the text itself write {quote}{name}{quote}, in quotes."
        elif help is None:
            help = "Known here: " + ", ".join(visible[:12]) + "." if visible else "Nothing is bound before this step."
        self._fault("S301", f"nothing binds the name `{name}`", use, node, help)

    def _maybe_unbound(self, use: NameUse, node: Scalar, state: State) -> None:
        name, first = use.name, self.bound_in.get(use.name)
        if name in state.seen:
            message = f"`{name}` does not have a value on every path to here"
        elif first is not None and first.range.start > node.range.start:
            message = f"`{name}` has no value yet: it is bound later"
        else:
            message = f"`{name}` has no value here: no path leads here from where it is bound"
        help = f"Start with `- set: {{{name}: null}}`, or write `{name} | default('…')`, or ask `{name} is defined`."
        self._fault("S302", message, use, node, help, self._first(first))

    def _first(self, node: Node | None) -> tuple[Related, ...]:
        return (Related("bound here", node.range),) if node is not None else ()

    def _fault(
        self,
        code: str,
        message: str,
        use: NameUse,
        node: Scalar,
        help: str | None = None,
        related: tuple[Related, ...] = (),
    ) -> None:
        self.report.add(
            self.document.diagnostic_in(code, message, node, use.start, use.end, help=help, related=related)
        )

    # -- binding -------------------------------------------------------------------------------------------------

    def bind(self, site: Site, type: Type, state: State, place: Place, *, empties: bool = False) -> None:
        """A step binds a name. `empties`: `set: {name: []}`, the one plain binding of an appending name."""
        name = site.name
        if self._refused(site, place):
            return
        if site.append:
            return
        if name in self.appending:
            if not empties:
                message = f"`{name}` collects values with `{name}[]`, it cannot be bound as a single value too"
                help = f"Write `{name}[]`, or empty the list with `set: {{{name}: []}}`."
                self.report.add(self.document.diagnostic("S306", message, site.node, help=help))
            return
        state.bind(name, type, site.binder)

    def _refused(self, site: Site, place: Place) -> bool:
        name = site.name
        if name in self.inputs:
            message = f"`{name}` is an input, and inputs are read-only"
            self.report.add(self.document.diagnostic("S303", message, site.node, help="Choose another name."))
            return True
        if name in place.locals:
            message = f"`{name}` is the variable of the loop or fork around it"
            self.report.add(self.document.diagnostic("S303", message, site.node, help="Choose another name."))
            return True
        return False

    def local(self, variable: Target, state: State, place: Place) -> None:
        """A loop or fork takes a variable: it may not reuse a name."""
        name = variable.name
        if name in self.inputs:
            what, first = "an input", None
        elif name in place.locals:
            what, first = "the variable of a loop or fork around this one", self.loop_variables.get(name)
        elif name in state.seen or name in self.appending:
            what, first = "bound already", self.bound_in.get(name)
        else:
            return
        message = f"the loop variable `{name}` is {what}"
        help = "Choose another name: a loop's variable lives in its `do` only."
        related = self._first(first)
        self.report.add(self.document.diagnostic("S303", message, variable.node, help=help, related=related))

    def gathers(self, step: Fork, inner: Iterable[Site], before: State) -> None:
        """The names that come back from branches must be free in the parent, but for this fork's earlier rounds."""
        for site in inner:
            held = before.seen.get(site.name, frozenset())
            if site.append or site.name in self.inputs or held <= {id(step)}:
                continue
            message = f"the fork would gather `{site.name}` over a variable that exists already"
            help = "Use another name inside the fork, or `into:` to bring the branches back as records."
            related = self._first(self.bound_in.get(site.name))
            self.report.add(self.document.diagnostic("S305", message, site.node, help=help, related=related))

    def good(self, name: str, node: Node) -> bool:
        """Whether a text that the model takes as it is, is a name."""
        if NAME.match(name) and name not in RESERVED:
            return True
        message = f"`{name}` is not a valid variable name: use letters, digits and _, not starting with a digit"
        if name in RESERVED:
            message = f"`{name}` is a word of the expression language, choose another name"
        self.report.add(self.document.diagnostic("S211", message, node, help=bad_name("set", name)))
        return False


def _is_compared(text: str, use: NameUse) -> bool:
    """Whether a name stands behind `==` or `!=`, or in a list: where a word is mostly meant as a text."""
    return text[: use.start].rstrip().endswith(("==", "!=", "[", ","))


def narrowed(test: ast.Expr) -> tuple[set[str], set[str]]:
    """The variables that have a value when a condition is true, and those when it is false (`x is defined`)."""
    match test:
        case ast.Test(value=ast.Name(name=name), test="defined" | "undefined" as word, negated=negated):
            found = {name}
            return (found, set()) if (word == "defined") != negated else (set(), found)
        case ast.Unary(op="not", operand=operand):
            if_true, if_false = narrowed(operand)
            return if_false, if_true
        case ast.Logical(op=op, operands=operands):
            sides = [narrowed(operand) for operand in operands]
            if op == "and":
                return set[str]().union(*(side[0] for side in sides)), set()
            return set(), set[str]().union(*(side[1] for side in sides))
        case _:
            return set(), set()


__all__ = ["Names", "narrowed"]
