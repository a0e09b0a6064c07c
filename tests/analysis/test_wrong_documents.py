"""Wrong documents: one mistake each, one message, at the place that `§` marks."""

from __future__ import annotations

import pytest

from sglspec.analysis import load_program
from sglspec.diagnostics import Report
from sglspec.document.read import source_from_text

MARK = "§"
HEAD = "sglspec: v1\n"

ROWS: list[tuple[str, str, str]] = [
    # -- names -------------------------------------------------------------------------------------------------
    ("unknown name", "S301", "inputs: {essay: string}\nsteps:\n  - 'Read {{ §esay }}'\n"),
    ("unknown name in a condition", "S301", "steps:\n  - gen: x\n  - if: §y == '1'\n    then: [a]\n"),
    ("unknown name in a stop", "S301", "steps:\n  - gen: x\n    stop: '{{ §sep }}'\n"),
    ("unknown name in an option", "S301", "steps:\n  - gen: x\n    max_tokens: '{{ §size }}'\n"),
    ("unknown name in a block", "S301", "steps:\n  - |-\n    Two lines,\n    then {{ §nobody }}.\n"),
    ("unknown name in a value", "S301", "steps:\n  - set: {a: 1}\n  - set: {b: '{{ §c + 1 }}'}\n"),
    ("unknown guarded name", "S301", "steps:\n  - set: {total: 1}\n  - \"{{ §totl | default('x') }}\"\n"),
    ("unknown name in an output value", "S301", "outputs: {a: '{{ §b }}'}\nsteps:\n  - gen: a\n"),
    ("unknown name in while", "S301", "steps:\n  - while: §done == false\n    max: 2\n    do: [a]\n"),
    ("bound later", "S302", "steps:\n  - '{{ §x }}'\n  - gen: x\n"),
    ("bound in one arm", "S302", "inputs: {a: boolean}\nsteps:\n  - if: a\n    then:\n      - gen: x\n  - ' {{ §x }}'\n"),
    ("bound in some cases", "S302", "inputs: {a: string}\nsteps:\n  - match: a\n    cases:\n      b: {gen: x}\n    else: ' '\n  - '{{ §x }}'\n"),
    ("bound in while", "S302", "steps:\n  - while: loop.index < 3\n    max: 3\n    do:\n      - gen: x\n  - ' {{ §x }}'\n"),
    ("bound in for", "S302", "inputs: {xs: array}\nsteps:\n  - for: i\n    in: xs\n    do: ['{{ i }}', {gen: x}]\n  - ' {{ §x }}'\n"),
    ("bound by an earlier round", "S302", "steps:\n  - while: loop.index < 3\n    max: 3\n    do:\n      - '{{ §x }}'\n      - gen: x\n"),
    ("for may be left before", "S302", "steps:\n  - for: i\n    in: [1, 2]\n    do:\n      - if: i == 1\n        then: {break: }\n      - gen: x\n  - '{{ §x }}'\n"),
    ("loop variable outside", "S301", "steps:\n  - for: i\n    in: [1]\n    do: ['{{ i }}']\n  - '{{ §i }}'\n"),
    ("fork variable outside", "S301", "steps:\n  - fork: i\n    in: [1]\n    do: ['{{ i }}', {gen: x}]\n  - '{{ x }} {{ §i }}'\n"),
    ("loop outside", "S301", "steps:\n  - 'Round {{ §loop.index }}'\n"),
    ("name inside records", "S301", "steps:\n  - fork: 2\n    do: ['{{ loop.index }}', {gen: x}]\n    into: all\n  - '{{ §x }}{{ all }}'\n"),
    ("meta of an input", "S301", "inputs: {a: string}\nsteps:\n  - '{{ meta(§a) }}'\n"),
    ("meta of nothing", "S301", "steps:\n  - gen: x\n  - '{{ meta(§y) }}'\n"),
    ("unknown function", "S304", "steps:\n  - '{{ §uper(\"a\") }}'\n"),
    ("secret in a prompt", "S308", "inputs:\n  key: {type: string, secret: true}\nsteps:\n  - 'Use {{ §key }}'\n"),
    ("secret in a condition", "S308", "inputs:\n  key: {type: string, secret: true}\nsteps:\n  - if: §key == 'a'\n    then: [b]\n"),
    # -- binding -----------------------------------------------------------------------------------------------
    ("gen into an input", "S303", "inputs: {a: string}\nsteps:\n  - '{{ a }}'\n  - gen: §a\n"),
    ("set an input", "S303", "inputs: {a: string}\nsteps:\n  - '{{ a }}'\n  - set: {§a: 1}\n"),
    ("loop variable is an input", "S303", "inputs: {a: string}\nsteps:\n  - '{{ a }}'\n  - for: §a\n    in: [1]\n    do: ['b']\n"),
    ("loop variable is bound", "S303", "steps:\n  - gen: a\n  - for: §a\n    in: [1]\n    do: ['{{ a }}']\n"),
    ("nested loops share", "S303", "steps:\n  - for: a\n    in: [1]\n    do:\n      - for: §a\n        in: [2]\n        do: ['{{ a }}']\n"),
    ("fork variable is bound", "S303", "steps:\n  - gen: a\n  - fork: §a\n    in: [1]\n    do: ['{{ a }}']\n"),
    ("binding a loop variable", "S303", "steps:\n  - for: a\n    in: [1]\n    do:\n      - '{{ a }}'\n      - gen: §a\n"),
    ("gather over a variable", "S305", "steps:\n  - gen: a\n  - fork: 2\n    do:\n      - '{{ loop.index }}'\n      - gen: §a\n"),
    ("gather over what another fork gathered", "S305", "steps:\n  - fork: 2\n    do: ['{{ loop.index }}', {gen: a}]\n  - fork: 2\n    do: ['{{ loop.index }}', {gen: §a}]\n"),
    ("two named branches bind one name", "S305", "steps:\n  - fork:\n      pros: [a, {gen: x}]\n      cons: [b, {gen: §x}]\n"),
    ("gather in a loop over a later set", "S305", "steps:\n  - for: i\n    in: [1, 2]\n    do:\n      - fork: 2\n        do: ['{{ loop.index }}{{ i }}', {gen: §a}]\n      - set: {a: null}\n"),
    ("append and bind", "S306", "steps:\n  - gen: a[]\n  - gen: §a\n"),
    ("append and set", "S306", "steps:\n  - gen: a[]\n  - set: {§a: [1]}\n"),
    ("name[] for a loop variable", "S306", "steps:\n  - for: §a[]\n    in: [1]\n    do: [b]\n"),
    ("bad name in set", "S211", "steps:\n  - set: {§my name: 1}\n"),
    ("reserved name in set", "S211", "steps:\n  - set: {§loop: 1}\n"),
    # -- outputs -----------------------------------------------------------------------------------------------
    ("unknown output", "S307", "outputs: [§b]\nsteps:\n  - gen: a\n"),
    ("output of a loop variable", "S307", "outputs: [§i]\nsteps:\n  - for: i\n    in: [1]\n    do: ['{{ i }}']\n"),
    ("output twice", "S214", "outputs: [a, §a]\nsteps:\n  - gen: a\n"),
    ("return of an unknown output", "S307", "outputs: [a]\nsteps:\n  - gen: a\n  - return: {§b: 1}\n"),
    ("return of an input", "S307", "inputs: {a: string}\nsteps:\n  - '{{ a }}'\n  - return: {§a: 1}\n"),
    ("return without outputs of what nobody binds", "S307", "steps:\n  - gen: a\n  - return: {§b: 1}\n"),
    # -- texts and values --------------------------------------------------------------------------------------
    ("value is a name", "S256", "inputs: {topic: string}\nsteps:\n  - set: {subject: §topic}\n"),
    ("value is an operation", "S256", "steps:\n  - set: {i: 0}\n  - set: {i: §i + 1}\n"),
    ("value is a filter", "S256", "inputs: {topic: string}\nsteps:\n  - set: {b: §topic | upper}\n"),
    ("value is a field", "S256", "steps:\n  - gen: a\n    fields: {b: string}\n  - set: {c: §a.b}\n"),
    ("quoted value is a name", "S256", "inputs: {topic: string}\nsteps:\n  - set: {subject: §\"topic\"}\n"),
    ("returned name", "S256", "outputs: [a]\nsteps:\n  - gen: a\n  - return: {a: §a}\n"),
    ("output value is a name", "S256", "outputs: {b: §a}\nsteps:\n  - gen: a\n"),
    ("list item is a name", "W202", "inputs: {topic: string}\nsteps:\n  - '{{ topic }}'\n  - for: i\n    in: [§topic, other]\n    do: ['{{ i }}']\n"),
    ("choice is a name", "W202", "inputs: {yes: string}\nsteps:\n  - '{{ yes }}'\n  - select: a\n    from: [§yes, no]\n"),
    ("unclosed braces", "S250", "steps:\n  - 'a §{{ b'\n"),
    ("unclosed if", "S250", "steps:\n  - 'a {% §if true %} b'\n"),
    ("one equals sign", "S251", "steps:\n  - gen: a\n  - if: a §= 'b'\n    then: [c]\n"),
    ("macro", "S252", "steps:\n  - '{% §macro f() %}{% endmacro %}'\n"),
    ("three braces", "S254", "steps:\n  - gen: a\n  - '§{{{ a }}}'\n"),
    ("braces in an expression", "S255", "steps:\n  - gen: a\n  - if: a == §{{ a }}\n    then: [c]\n"),
    ("option is half a text", "S203", "inputs: {n: integer}\nsteps:\n  - gen: a\n    max_tokens: §'1{{ n }}'\n"),
    ("syntax in a JSON-like text", "S251", "steps:\n  - \"a\\tb {{ 1 §+ }}\"\n"),
    # -- structure ---------------------------------------------------------------------------------------------
    ("text outside of a message", "S209", "steps:\n  - user: a\n  - §b\n  - assistant: c\n"),
    ("raw outside of a message", "S209", "steps:\n  - user: a\n  - §raw: b\n"),
    ("text in a branch of a chat", "S209", "steps:\n  - user: a\n  - fork: 2\n    do: [§'{{ loop.index }}', {gen: x}]\n"),
    ("gen after an assistant message", "S209", "steps:\n  - user: a\n  - assistant: b\n  - §gen: c\n"),
    ("gen after gen", "S209", "steps:\n  - user: a\n  - gen: b\n  - §gen: c\n"),
    ("select after gen", "S209", "steps:\n  - user: a\n  - gen: b\n  - §select: c\n    from: [x, y]\n"),
    ("gen in a loop of a chat", "S209", "steps:\n  - user: a\n  - for: i\n    in: [1, 2]\n    do:\n      - §gen: b\n      - set: {c: '{{ i }}'}\n"),
    ("gen after one arm", "S209", "inputs: {a: boolean}\nsteps:\n  - user: x\n  - if: a\n    then:\n      - assistant: y\n  - §gen: b\n"),
    ("role in role", "S208", "steps:\n  - user:\n      - a\n      - §assistant: b\n"),
    ("role in a fork in a role", "S208", "steps:\n  - assistant:\n      - fork: 2\n        do:\n          - §user: '{{ loop.index }}'\n"),
    ("role in capture", "S208", "steps:\n  - capture: a\n    do:\n      - §user: b\n"),
    ("gen in capture in a chat", "S209", "steps:\n  - user: x\n  - capture: a\n    do:\n      - §gen: b\n"),
    ("break outside", "S210", "steps:\n  - a\n  - §break:\n"),
    ("continue outside", "S210", "steps:\n  - a\n  - §continue:\n"),
    ("break out of a fork", "S210", "steps:\n  - for: i\n    in: [1]\n    do:\n      - fork: 2\n        do:\n          - '{{ i }}{{ loop.index }}'\n          - §break:\n"),
    ("continue out of a capture", "S210", "steps:\n  - for: i\n    in: [1]\n    do:\n      - capture: a\n        do:\n          - '{{ i }}'\n          - §continue:\n"),
    ("return out of a fork", "S210", "steps:\n  - fork: 2\n    do:\n      - '{{ loop.index }}'\n      - §return:\n"),
    ("return out of a capture", "S210", "steps:\n  - capture: a\n    do:\n      - b\n      - §return:\n"),
    ("duplicate id", "S214", "steps:\n  - gen: a\n    id: x\n  - gen: b\n    id: §x\n"),
    ("unreachable", "W301", "steps:\n  - a\n  - return:\n  - §b\n  - c\n"),
    ("unreachable after both arms", "W301", "inputs: {a: boolean}\nsteps:\n  - if: a\n    then: {return: }\n    else: {fail: no}\n  - §gen: b\n"),
    ("unreachable after continue", "W301", "steps:\n  - for: i\n    in: [1]\n    do:\n      - '{{ i }}'\n      - continue:\n      - §gen: b\n"),
    ("unused input", "W302", "inputs: {§a: string}\nsteps:\n  - b\n"),
    ("unused text", "W303", "defs: {texts: {a: x, §b: y}}\nsteps:\n  - '{{ texts.a }}'\n"),
    ("unused pattern", "W303", "defs: {regexes: {a: x, §b: y}}\nsteps:\n  - {gen: x, regex: '{{ a }}'}\n"),
    ("unused schema", "W303", "defs: {schemas: {a: {type: object}, §b: {type: object}}}\nsteps:\n  - {gen: x, schema: a}\n"),
    ("unused list of steps", "W303", "defs: {steps: {a: [x], §b: [y]}}\nsteps:\n  - include: a\n"),
    ("newline before gen", "W201", "steps:\n  - §|\n    A text\n  - gen: a\n"),
    ("newline before select in a message", "W201", "steps:\n  - assistant:\n      - §>\n        A text\n      - select: a\n        from: [b, c]\n"),
    ("a comment of Jinja", "W203", "steps:\n  - 'A §{# b #} c'\n"),
    ("a comment over lines in a message", "W203", "steps:\n  - user: |\n      A\n      §{# b\n      c #}\n  - gen: x\n"),
    ("gen after a loop that may not run", "S209", "inputs: {xs: array}\nsteps:\n  - user: a\n  - gen: b\n  - for: i\n    in: xs\n    do:\n      - user: '{{ i }}'\n  - §gen: c\n"),
    ("gen after a loop that may be left", "S209", "steps:\n  - user: a\n  - gen: b\n  - for: i\n    in: [1]\n    do:\n      - if: i == 1\n        then: {break: }\n      - user: c\n  - §gen: d\n"),
    ("gen after a fork that may add nothing", "S209", "steps:\n  - user: a\n  - gen: b\n  - fork: 2\n    do:\n      - user: '{{ loop.index }}'\n    join: concat\n    on_error: skip\n  - §gen: c\n"),
    # -- candidates and stops ----------------------------------------------------------------------------------
    ("n without chance", "S507", "steps:\n  - gen: a\n    §n: 2\n"),
    ("n at temperature 0", "S507", "steps:\n  - gen: a\n    temperature: 0\n    §n: 2\n"),
    ("n at a temperature that is reset", "S507", "defaults: {temperature: 1}\nsteps:\n  - gen: a\n    temperature: null\n    §n: 2\n"),
    ("n from the defaults without chance", "S507", "defaults: {n: 2}\nsteps:\n  - §gen: a\n"),
    ("retry without chance", "S507", "steps:\n  - gen: a\n    §retry: {max: 2}\n"),
    ("retry without max", "S202", "steps:\n  - gen: a\n    temperature: 1\n    retry: §{until: a == 'x'}\n"),
    ("retry that is no mapping", "S203", "steps:\n  - gen: a\n    temperature: 1\n    retry: §3\n"),
    ("retry with an unknown key", "S201", "steps:\n  - gen: a\n    temperature: 1\n    retry: {max: 2, §while: a}\n"),
    ("retry that reads an unknown name", "S301", "steps:\n  - gen: a\n    temperature: 1\n    retry: {max: 2, until: §b == 1}\n"),
    ("keep without n", "S213", "steps:\n  - gen: a\n    temperature: 1\n    §keep: best\n"),
    ("top_p of zero", "S212", "steps:\n  - gen: a\n    top_p: §0\n"),
    ("n out of range", "S212", "steps:\n  - gen: a\n    temperature: 1\n    n: §0\n"),
    ("stop pattern that does not parse", "S501", "steps:\n  - gen: a\n    stop_regex: 'a§(b'\n"),
    ("stop pattern with an anchor", "S502", "steps:\n  - gen: a\n    stop_regex: [x, §^Q]\n"),
    ("stop pattern with an anchor behind", "S502", "steps:\n  - gen: a\n    stop_regex: Q§$\n"),
    ("stop pattern with a boundary", "S502", "steps:\n  - gen: a\n    stop_regex: §\\bQ\n"),
    ("stop pattern of a property", "S502", "steps:\n  - gen: a\n    stop_regex: §\\p{Lu}\n"),
    ("stop pattern that is everywhere", "S505", "steps:\n  - gen: a\n    stop_regex: §a*\n"),
    ("stop pattern that is too large", "S505", "steps:\n  - gen: a\n    stop_regex: §a{2000}\n"),
    ("stop patterns that are too large together", "S505", "steps:\n  - gen: a\n    stop_regex: §['a{300}', 'b{300}']\n"),
    # -- not yet -----------------------------------------------------------------------------------------------
    ("tool", "S320", "steps:\n  - tool: §t\n    into: x\n  - '{{ x }}'\n"),
    ("call", "S321", "steps:\n  - call: §t\n    into: {a: b}\n  - '{{ a }}'\n"),
    ("include", "S321", "steps:\n  - include: §t\n"),
    ("messages of a text", "S408", "inputs: {h: string}\nsteps:\n  - messages: §h\n"),
    ("messages in a message", "S208", "inputs: {h: messages}\nsteps:\n  - user:\n      - §messages: h\n"),
    ("export of what is not there", "S301", "steps:\n  - scratch: [a, {gen: x}]\n    export: [§y]\n  - gen: z\n"),
    ("what a scratch keeps", "S301", "steps:\n  - scratch: [a, {gen: x}]\n  - '{{ §x }}'\n"),
    ("tool without an argument", "S406", "steps:\n  - §tool: calculator\n"),
    ("tool with another argument", "S406", "steps:\n  - tool: calculator\n    with: {expression: a, §n: 1}\n"),
    ("tool with a wrong argument", "S408", "steps:\n  - tool: calculator\n    with: {expression: §[1]}\n"),
    ("image", "S220", "steps:\n  - user:\n      - §image: a.png\n"),
    ("grammar without a rule", "S508", "steps:\n  - gen: a\n    grammar: 'start: §b'\n"),
    ("grammar's second line", "S508", "steps:\n  - gen: a\n    grammar: |\n      start: /a/ b\n      b: c | §d\n      c: /c/\n"),
    ("grammar not closed", "S508", "steps:\n  - gen: a\n    grammar: |\n      start: (\"a\" | \"b\"§\n"),
    ("grammar's pattern", "S502", "steps:\n  - gen: a\n    grammar: |\n      start: a\n      a: /a§\\b/\n"),
    ("grammar's flags", "S502", "steps:\n  - gen: a\n    grammar: 'start: /a/§m'\n"),
    ("grammar's schema", "S504", "steps:\n  - gen: a\n    grammar: 'start: %json {\"type\": \"string\", §\"maxLenght\": 1}'\n"),
    ("grammar's reference", "S503", "steps:\n  - gen: a\n    grammar: 'start: %json {§\"$ref\": \"http://127.0.0.1/x\"}'\n"),
    ("grammar with a file", "S508", "steps:\n  - gen: a\n    grammar: |\n      start: x\n      §%import ./x.lark\n"),
    ("grammar with a token", "S508", "steps:\n  - gen: a\n    grammar: 'start: §<|im_end|>'\n"),
    ("grammar with another", "S508", "steps:\n  - gen: a\n    grammar: 'start: §@other'\n"),
    ("grammar with settings", "S508", "steps:\n  - gen: a\n    grammar: |\n      §%llguidance {\"allow_invalid_utf8\": true}\n      start: /a/\n"),
    ("grammar with an attribute", "S508", "steps:\n  - gen: a\n    grammar: 'start[§temperature=0.5]: /a/'\n"),
    ("grammar that never ends", "S505", "steps:\n  - gen: a\n    grammar: '§start: start /a/'\n"),
    ("grammar around a value", "S508", "inputs: {v: string}\nsteps:\n  - gen: a\n    grammar: 'start: {{ v }} §b'\n"),
    ("reasoning parser", "S507", "steps:\n  - gen: a\n    reasoning: §qwen4\n"),
    ("reasoning key", "S507", "steps:\n  - gen: a\n    reasoning: {parser: qwen3, §bugdet: 3}\n"),
    ("reasoning budget", "S507", "steps:\n  - gen: a\n    max_tokens: 9\n    reasoning: {parser: qwen3, budget: §9}\n"),
    ("use", "S121", "use: {x: §./x.yaml}\nsteps:\n  - gen: a\n"),
    ("image input", "S220", "inputs: {a: §image}\nsteps:\n  - '{{ a }}'\n"),
    ("half a schema", "S203", "inputs: {s: object}\nsteps:\n  - gen: a\n    schema: §'x {{ s }}'\n"),
    ("schema by name", "S323", "steps:\n  - gen: a\n    schema: §person\n"),
    # -- types -------------------------------------------------------------------------------------------------
    ("choice as a condition", "S404", "steps:\n  - select: a\n    from: ['yes', 'no']\n  - if: §a\n    then: [b]\n"),
    ("negated choice as a condition", "S404", "steps:\n  - select: a\n    from: ['yes', 'no']\n  - if: not §a\n    then: [b]\n"),
    ("choice in and", "S404", "inputs: {b: boolean}\nsteps:\n  - select: a\n    from: ['yes', 'no']\n  - check: b and §a\n"),
    ("enum field as a condition", "S404", "steps:\n  - gen: a\n    fields: {ok: {enum: ['yes', 'no']}}\n  - if: §a.ok\n    then: [b]\n"),
    ("enum input as a condition", "S404", "inputs: {a: {enum: [x, y]}}\nsteps:\n  - if: §a\n    then: [b]\n"),
    ("impossible choice", "S405", "steps:\n  - select: a\n    from: ['yes', 'no']\n  - if: a == §\"maybe\"\n    then: [b]\n"),
    ("impossible choice in a template", "S405", "steps:\n  - select: a\n    from: ['yes', 'no']\n  - \"{% if a == §'Yes' %}b{% endif %}\"\n"),
    ("impossible choice in a list", "S405", "steps:\n  - select: a\n    from: ['yes', 'no']\n  - if: a in ['no', §'nope']\n    then: [b]\n"),
    ("impossible case", "S405", "steps:\n  - select: a\n    from: [Calculate, Finish]\n  - match: a\n    cases:\n      Calculate: b\n      §finish: c\n"),
    ("boolean against text", "S405", "steps:\n  - gen: a\n    type: boolean\n  - if: a == §\"true\"\n    then: [b]\n"),
    ("integer against text", "S405", "steps:\n  - gen: a\n    type: integer\n  - if: a == §'3'\n    then: [b]\n"),
    ("text against number", "S405", "steps:\n  - gen: a\n  - if: a == §3\n    then: [b]\n"),
    ("gathered list against text", "S405", "steps:\n  - fork: 2\n    do: ['{{ loop.index }}', {gen: a}]\n  - if: a == §'b'\n    then: [c]\n"),
    ("for over a text", "S408", "steps:\n  - gen: a\n  - for: i\n    in: §a\n    do: ['{{ i }}']\n"),
    ("fork over a number", "S408", "inputs: {n: integer}\nsteps:\n  - fork: i\n    in: §n\n    do: ['{{ i }}']\n"),
    # -- inputs and fields -------------------------------------------------------------------------------------
    ("default of the wrong type", "S408", "inputs: {a: {type: integer, default: §x}}\nsteps:\n  - '{{ a }}'\n"),
    ("default outside the enum", "S408", "inputs: {a: {enum: [x, y], default: §z}}\nsteps:\n  - '{{ a }}'\n"),
    ("default of the wrong items", "S408", "inputs: {a: {type: array, items: string, default: §[1]}}\nsteps:\n  - '{{ a }}'\n"),
    ("items of a text", "S213", "inputs: {a: {type: string, §items: string}}\nsteps:\n  - '{{ a }}'\n"),
    ("minimum of a text", "S213", "inputs: {a: {type: string, §minimum: 1}}\nsteps:\n  - '{{ a }}'\n"),
    ("bounds the wrong way", "S212", "inputs: {a: {type: string, minLength: 3, maxLength: §2}}\nsteps:\n  - '{{ a }}'\n"),
    ("empty enum", "S215", "inputs: {a: {enum: §[]}}\nsteps:\n  - '{{ a }}'\n"),
    ("enum twice", "S214", "inputs: {a: {enum: [x, §x]}}\nsteps:\n  - '{{ a }}'\n"),
    ("enum is no list", "S203", "inputs: {a: {enum: §x}}\nsteps:\n  - '{{ a }}'\n"),
    ("enum is a mapping", "S203", "inputs: {a: {type: string, enum: §{b: c}, default: x}}\nsteps:\n  - '{{ a }}'\n"),
    ("bounds of a default the wrong way", "S212", "inputs: {a: {type: integer, minimum: 9, maximum: §1, default: 3}}\nsteps:\n  - '{{ a }}'\n"),
    ("bounds of a field the wrong way", "S212", "steps:\n  - gen: a\n    fields: {b: {type: integer, minimum: 9, maximum: §1}}\n"),
    ("optional field", "S213", "steps:\n  - gen: a\n    fields: {b: {type: string, §optional: true}}\n"),
    ("pattern of an input", "S501", "inputs: {a: {type: string, pattern: §(x}}\nsteps:\n  - '{{ a }}'\n"),
    ("optional and default", "S213", "inputs: {a: {type: string, optional: true, §default: x}}\nsteps:\n  - '{{ a }}'\n"),
    ("default in a field", "S213", "steps:\n  - gen: a\n    fields: {b: {type: string, §default: x}}\n"),
    ("image field", "S203", "steps:\n  - gen: a\n    fields: {b: §image}\n"),
    # -- constraints -------------------------------------------------------------------------------------------
    ("regex that does not parse", "S501", "steps:\n  - gen: a\n    regex: 'x§(y'\n"),
    ("regex with look-ahead", "S502", "steps:\n  - gen: a\n    regex: 'a§(?=b)'\n"),
    ("regex with a boundary", "S502", "steps:\n  - gen: a\n    regex: \"a§\\\\b\"\n"),
    ("regex around a value", "S501", "inputs: {a: string}\nsteps:\n  - gen: x\n    regex: '{{ a }}§(b|c'\n"),
    ("regex behind a value", "S502", "inputs: {a: string}\nsteps:\n  - gen: x\n    regex: '[{{ a }}]+ {{ a }}§\\b'\n"),
    ("limit as a template", "S203", "inputs: {a: integer}\nlimits: {tokens: §'{{ a }}'}\nsteps:\n  - '{{ a }}'\n"),
    ("secret for a tool", "S320", "inputs: {k: {type: string, secret: true}}\nsteps:\n  - tool: §t\n    with: {key: '{{ k }}'}\n"),
    ("secret as an output", "S308", "inputs: {k: {type: string, secret: true}}\noutputs: [§k]\nsteps: a\n"),
    ("regex in a block", "S502", "steps:\n  - gen: a\n    regex: |\n      §abc\n".replace("§abc", "abc§")),
    ("regex that matches nothing", "S505", "steps:\n  - gen: a\n    regex: '§[^\\s\\S]'\n"),
    ("regex too large", "S505", "steps:\n  - gen: a\n    regex: '§(a{1000}){1000}'\n"),
    ("field pattern", "S502", "steps:\n  - gen: a\n    fields:\n      b: {type: string, pattern: 'x§\\1'}\n"),
    ("field format", "S504", "steps:\n  - gen: a\n    fields:\n      b: {type: string, format: §dat}\n"),
    ("schema that is none", "S503", "steps:\n  - gen: a\n    schema:\n      type: object\n      required: [foo]\n      properties: {foo: §\"bar\"}\n"),
    ("schema of an unknown type", "S503", "steps:\n  - gen: a\n    schema: {type: §text}\n"),
    ("schema with a typo", "S504", "steps:\n  - gen: a\n    schema: {type: string, §maxLenght: 3}\n"),
    ("schema keyword", "S504", "steps:\n  - gen: a\n    schema: {type: array, §uniqueItems: true}\n"),
    ("overlapping oneOf", "S504", "steps:\n  - gen: a\n    schema: {§oneOf: [{pattern: a}, {pattern: b}]}\n"),
    ("remote reference", "S503", "steps:\n  - gen: a\n    schema: {$ref: §'https://example.com/x.json'}\n"),
    ("file reference", "S503", "steps:\n  - gen: a\n    schema: {$ref: §'file:///etc/passwd'}\n"),
    ("reference to nothing", "S503", "steps:\n  - gen: a\n    schema: {$ref: §'#/$defs/x'}\n"),
    ("reference to itself", "S503", "steps:\n  - gen: a\n    schema: {$ref: §'#'}\n"),
    ("schema that nothing matches", "S505", "steps:\n  - gen: a\n    schema: §{type: integer, minimum: 3, maximum: 2}\n"),
    ("schema without required", "W501", "steps:\n  - gen: a\n    schema:\n      type: object\n      §properties: {b: {type: string}}\n"),
    ("pretty text", "S213", "steps:\n  - gen: a\n    §pretty: true\n"),
    ("null as choices", "S206", "steps:\n  - select: a\n    §from: null\n"),
    ("null as a list", "S206", "steps:\n  - for: a\n    §in: ~\n    do: [b]\n"),
    ("no choices", "S506", "steps:\n  - select: a\n    from: §[]\n"),
    ("equal choices", "S506", "steps:\n  - select: a\n    from: ['1', §1]\n"),
    ("null choice", "S506", "steps:\n  - select: a\n    from: [x, §null]\n"),
    ("empty choice", "S506", "steps:\n  - select: a\n    from: [x, §'']\n"),
    # -- sampling ----------------------------------------------------------------------------------------------
    ("reasoning budget and a tag", "S507", "steps:\n  - gen: a\n    max_tokens: 9\n    reasoning: {parser: qwen3, budget: §8}\n"),
    ("min above max", "S507", "steps:\n  - gen: a\n    min_tokens: §20\n    max_tokens: 10\n"),
    ("min above the default max", "S507", "steps:\n  - gen: a\n    min_tokens: §300\n"),
    ("empty stop", "S507", "steps:\n  - gen: a\n    stop: ['x', §'']\n"),
    ("stop without quotes", "W103", "steps:\n  - gen: a\n    stop: §\\n\n"),
    ("bias without ids", "S507", "steps:\n  - gen: a\n    logit_bias: {§yes: 5}\n"),
    ("bias out of range", "S507", "steps:\n  - gen: a\n    logit_bias: {7: §500}\n"),
    ("bias of no token", "S507", "steps:\n  - gen: a\n    logit_bias: {§99999999999: 5}\n"),
    ("stop id of no token", "S507", "steps:\n  - gen: a\n    stop_token_ids: [2, §4294967296]\n"),
    ("stop ids", "S507", "steps:\n  - gen: a\n    stop_token_ids: [2, §x]\n"),
    ("identical branches", "W502", "steps:\n  - A\n  - §fork: 2\n    do:\n      - gen: a\n"),
    # -- tests -------------------------------------------------------------------------------------------------
    ("test with an unknown input", "S403", "inputs: {a: string}\nsteps: ['{{ a }}']\ntests:\n  - inputs: {a: x, §b: y}\n"),
    ("test with a wrong input", "S401", "inputs: {a: integer}\nsteps: ['{{ a }}']\ntests:\n  - inputs: {a: §x}\n"),
    ("test without an input", "S402", "inputs: {a: integer}\nsteps: ['{{ a }}']\ntests:\n  - §name: x\n"),
    ("test with an unknown reply", "S301", "steps:\n  - gen: a\ntests:\n  - replies: {§b: x}\n"),
    ("test that expects an unknown name", "S301", "steps:\n  - gen: a\ntests:\n  - expect: [a == 'x', §b == 'y']\n"),
    ("test that expects nonsense", "S251", "steps:\n  - gen: a\ntests:\n  - expect: [a §= 'x']\n"),
    ("test with a bad error code", "S203", "steps:\n  - gen: a\ntests:\n  - error: §E700\n"),
    # -- more of flow ------------------------------------------------------------------------------------------
    ("loop value", "S256", "steps:\n  - for: i\n    in: [1]\n    do:\n      - '{{ i }}'\n      - set: {n: §loop.index}\n"),
    ("one unbound name, one message", "S302", "inputs: {a: boolean}\nsteps:\n  - if: a\n    then: {gen: x}\n  - '{{ §x }} {{ x }}'\n  - '{{ x }}'\n"),
    ("narrowed by not", "S302", "steps:\n  - while: loop.index < 2\n    max: 2\n    do: {gen: x}\n  - if: x is not defined\n    then: ['{{ §x }}']\n"),
    ("gen after a loop that ends with gen", "S209", "steps:\n  - for: i\n    in: [1]\n    do:\n      - user: '{{ i }}'\n      - gen: a\n  - §gen: b\n"),
    ("gen after a break behind an answer", "S209", "steps:\n  - for: i\n    in: [1]\n    do:\n      - user: '{{ i }}'\n      - gen: a\n      - if: i == 1\n        then: {break: }\n      - user: more\n  - §gen: b\n"),
    ("gen after a concatenated fork", "S209", "steps:\n  - user: x\n  - fork: 2\n    do:\n      - user: '{{ loop.index }}'\n      - gen: a\n    join: concat\n  - §gen: b\n"),
    # -- what mutated documents found ----------------------------------------------------------------------------
    ("null as a condition", "S206", "steps:\n  - §if: null\n    then: a\n"),
    ("a boolean as a variable", "S211", "steps:\n  - gen: §TRUE\n"),
    ("a space in a variable", "S211", "steps:\n  - gen: §\" x\"\n"),
    ("a name that a fault hides, in quotes", "S201", "steps: [{scratch: [{capture: x, §fro: a, do: [b]}], export: [\"x\"]}, \"{{ x }}\"]\n"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "marked"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_one_mistake_one_message(code: str, marked: str) -> None:
    text = HEAD + marked
    offset = text.index(MARK)
    text = text.replace(MARK, "")
    before = text[:offset]
    report = Report()
    program = load_program(source_from_text(text, "t.yaml"), report)
    found = report.sorted()
    assert [d.code for d in found] == [code], found
    place = found[0].range
    assert place is not None
    assert (place.start.line, place.start.column) == (before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)
    assert (program is None) == (found[0].severity == "error")
    assert found[0].pointer != "" or code == "S209"
    for sentence in (found[0].message, found[0].help or "None."):
        assert not sentence[0].islower() and sentence[-1] in ".!?", sentence
    if code == "S220":
        assert found[0].help, "what to do instead"


def test_there_are_enough_rows() -> None:
    assert len(ROWS) >= 80
    assert len({row[0] for row in ROWS}) == len(ROWS)


def test_an_argument_of_a_parameter_whose_enum_is_no_list() -> None:
    text = (
        "sglspec: v1\ndefs:\n  steps:\n    l:\n      params: {q: {type: integer, enum: 2}}\n      steps: ['{{ q }}']\n"
        "steps:\n  - include: l\n    with: {q: 3}\n"
    )
    report = Report("a.yaml")
    assert load_program(source_from_text(text, "a.yaml"), report) is None
    (found,) = report.sorted()
    assert found.range is not None and found.range.start.line == 5
