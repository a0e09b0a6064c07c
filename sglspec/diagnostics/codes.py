"""The table of diagnostic codes: code → slug and title. The long text of each is a page in `pages/`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """One stable code. Codes are never reused for another meaning."""

    code: str
    slug: str
    title: str


def _table(*rows: tuple[str, str, str]) -> dict[str, Code]:
    return {code: Code(code, slug, title) for code, slug, title in rows}


CODES: dict[str, Code] = _table(
    # S1xx reading
    ("S100", "unreadable", "The file cannot be read"),
    ("S101", "yaml-syntax", "Not valid YAML"),
    ("S102", "json-syntax", "Not valid JSON"),
    ("S103", "duplicate-key", "A key is written twice in one mapping"),
    ("S104", "tag", "YAML tags are not allowed"),
    ("S105", "several-documents", "More than one YAML document in a file"),
    ("S106", "merge", "A merge key that is not allowed"),
    ("S107", "alias", "An alias that cannot be resolved"),
    ("S108", "number", "A number that cannot be represented"),
    ("S109", "document-limit", "The document is larger than the limits"),
    ("S110", "key-not-text", "A key is not a piece of text"),
    ("S111", "tab", "A tab where YAML wants spaces"),
    ("S112", "empty-document", "The document is empty"),
    ("S113", "character", "A character or encoding that is not allowed"),
    ("S120", "path", "A path that is not relative with forward slashes"),
    ("S121", "outside", "A file outside of the folders that may be read"),
    ("S122", "use-circle", "Documents that use one another in a circle"),
    # S2xx structure and syntax
    ("S200", "language-version", "The language version is missing or unknown"),
    ("S201", "unknown-key", "A key that does not exist here"),
    ("S202", "missing-key", "A required key is missing"),
    ("S203", "wrong-value", "A value of the wrong kind"),
    ("S204", "unknown-step", "A step without a known verb"),
    ("S205", "two-verbs", "One step with two verbs"),
    ("S206", "missing-text", "A text is missing"),
    ("S207", "unquoted-braces", "Braces without quotes became a YAML mapping"),
    ("S208", "role-in-role", "A message inside a message"),
    ("S209", "chat-structure", "Text or generation at a place where a chat has none"),
    ("S210", "misplaced-flow", "break, continue or return where it cannot stand"),
    ("S211", "bad-name", "Not a valid name"),
    ("S212", "out-of-range", "A number outside its allowed range"),
    ("S213", "exclusive-keys", "Keys that exclude each other"),
    ("S214", "duplicate", "The same thing is given twice"),
    ("S215", "empty", "Something that must not be empty"),
    ("S220", "not-yet", "Not yet in this build"),
    ("S250", "template-syntax", "A template that does not parse"),
    ("S251", "expression-syntax", "An expression that does not parse"),
    ("S252", "construct", "A construct that templates do not have"),
    ("S253", "template-limit", "A template or expression larger than the limits"),
    ("S254", "triple-braces", "Three braces"),
    ("S255", "braces-in-expression", "Braces inside a bare expression"),
    ("S256", "looks-like-expression", "A text that looks like an expression"),
    # S3xx names and flow
    ("S301", "unknown-name", "A name that nothing binds"),
    ("S302", "maybe-unbound", "A name that is not bound on every path"),
    ("S303", "rebinding", "A name that may not be bound here"),
    ("S304", "unknown-function", "An unknown function or filter"),
    ("S305", "gather-clash", "A fork gathers over a name that exists"),
    ("S306", "append-name", "An appending name used in another way"),
    ("S307", "unknown-output", "An output that the program does not have"),
    ("S308", "secret", "A secret input outside a tool or call"),
    ("S320", "unknown-tool", "A tool that nobody registered"),
    ("S321", "unknown-program", "A program or list of steps that is not there"),
    ("S322", "include-circle", "Steps that include themselves"),
    ("S323", "unknown-definition", "A text or schema that `defs` does not have"),
    # S4xx types
    ("S401", "input-type", "An input value of the wrong type"),
    ("S402", "missing-input", "A required input is missing"),
    ("S403", "unknown-input", "An input that the program does not declare"),
    ("S404", "choice-as-condition", "A chosen text used as a condition"),
    ("S405", "impossible-comparison", "A comparison that can never be true"),
    ("S406", "function-arguments", "A function or tool called with wrong arguments"),
    ("S407", "unknown-type", "An unknown type word"),
    ("S408", "wrong-type", "A value of the wrong type"),
    ("S409", "unknown-field", "A field that the value does not have"),
    ("S410", "bound-input", "An input that is given although it is bound"),
    ("S411", "bad-row", "A row of a batch that cannot be read"),
    ("S412", "no-examples", "Rows that cannot serve as examples"),
    # S5xx constraints
    ("S501", "regex-syntax", "A regular expression that does not parse"),
    ("S502", "regex-dialect", "A regular expression outside our dialect"),
    ("S503", "bad-schema", "Not a valid JSON Schema"),
    ("S504", "schema-keyword", "A JSON Schema keyword that cannot be enforced"),
    ("S505", "constraint-limit", "A constraint that is too large or matches nothing"),
    ("S506", "bad-choices", "Choices that cannot be chosen from"),
    ("S507", "sampling", "A sampling option that cannot be used so"),
    ("S508", "grammar", "A grammar that cannot be used"),
    # S6xx backends and limits
    ("S601", "unknown-backend", "An unknown backend or model reference"),
    ("S602", "missing-model", "The model is not on this machine"),
    ("S603", "chat-template", "A chat template that cannot be used so"),
    ("S604", "no-chat-template", "A chat on a model without a chat template"),
    ("S605", "unsupported-model", "A model that the engine cannot run right"),
    ("S606", "capability", "The backend cannot do this"),
    ("S607", "missing-dependency", "An optional package is not installed"),
    ("S608", "bad-model-file", "A model file that is damaged or not allowed"),
    ("S609", "address", "The server cannot listen on this address"),
    ("S610", "engine-setting", "A setting that the engine does not have or take"),
    ("S611", "store", "The server's store cannot be opened"),
    ("S612", "offer", "A document that the server cannot start with"),
    ("S613", "keys", "Keys that the server cannot use"),
    ("S614", "server", "A server that does not do what it is asked"),
    ("S620", "another-model", "A used program wants another model"),
    # S7xx run time
    ("S701", "fail", "The program failed on purpose"),
    ("S702", "check", "A check did not hold"),
    ("S703", "match", "No case matched"),
    ("S704", "while-max", "A while loop reached its maximum"),
    ("S705", "limit", "A limit of the run was reached"),
    ("S706", "timeout", "The run took too long"),
    ("S707", "evaluation", "A template or expression failed"),
    ("S708", "cut-off", "Constrained text was cut off"),
    ("S709", "constraint-failed", "A constraint could not be satisfied"),
    ("S710", "no-reply", "A scripted run has no reply left"),
    ("S711", "bad-reply", "A scripted reply breaks its constraint"),
    ("S712", "context-full", "The context is longer than the model takes"),
    ("S713", "backend-failed", "The backend failed"),
    ("S714", "cancelled", "The run was cancelled"),
    ("S715", "retry-max", "No attempt of a generation was good enough"),
    ("S716", "tool-failed", "A tool failed"),
    ("S717", "tool-timeout", "A tool took too long"),
    ("S718", "deadline", "The run's deadline passed"),
    ("S719", "lost", "The server that ran it has ended"),
    ("S720", "expectation", "A test did not end as it expects"),
    ("S799", "internal", "A fault in sglspec"),
    # W… lints
    ("W101", "comment-cuts-text", "A # cut a text short"),
    ("W102", "anchor-eats-text", "An anchor that nothing uses swallowed text"),
    ("W103", "escape-in-text", "A backslash escape inside double quotes"),
    ("W201", "newline-before-gen", "A block's last newline right before a generation"),
    ("W202", "list-looks-like-expression", "A text in a list that looks like an expression"),
    ("W203", "no-comment", "A comment that the model will read"),
    ("W204", "step-as-text", "A text that is the name of a step"),
    ("W205", "braces-in-key", "Braces in a key, which is no template"),
    ("W301", "unreachable", "Steps that are never reached"),
    ("W302", "unused-input", "An input that nothing reads"),
    ("W303", "unused-definition", "A definition that nothing uses"),
    ("W501", "schema-without-required", "A schema whose fields are all optional"),
    ("W502", "identical-branches", "A fork whose branches cannot differ"),
)
