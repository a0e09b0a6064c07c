"""Random programs: every way in which a context grows, branches, waits, ends and fails.

A case is a function of its random generator alone, so a run can be repeated from its number. Every program ends well
unless it `fails` on purpose, and stays below `CONTEXT` tokens unless that is its purpose.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CONTEXT = 2400
"""Tokens that a context may hold, for these programs."""

TEXT = "the quick brown fox jumps over a lazy dog and then some more of that same text again 7 times é 世界"
WORDS = TEXT.split()
STARTS = [" ".join(random.Random(i).choices(WORDS, k=12 + 9 * i)) for i in range(5)]
"""What programs begin with: few enough that they meet in the cache."""
PATTERNS = ["[a-z]{1,6}", "(yes|no|maybe)", "[0-9]{4}-[0-9]{2}", "(ab|cd){1,5}x?", "[A-Z][a-z]{2,9}"]
STOPS: list[Any] = [".", "e", ["\n", " "], ["the", "th", "a"], "zz"]
FAULTS = ("context", "tokens", "branches", "check", "fail", "schema", "cut", "choices")


@dataclass(frozen=True, slots=True)
class Case:
    """A document (JSON), its inputs, the seed of its run. fails: it holds a step that cannot succeed."""

    text: str
    inputs: dict[str, Any]
    seed: int
    fails: bool


def case(rng: random.Random) -> Case:
    """A program. One in five fails on purpose."""
    fault = rng.choice(FAULTS) if rng.random() < 0.2 else None
    writer = _Writer(rng, fault, rng.randint(0, 1))
    start = rng.choice(STARTS)
    if rng.random() < 0.3:
        steps = [{"user": start}, {"gen": "opening", "max_tokens": 3}, *writer.turns(0, ["opening"])]
    else:
        steps = [start, *writer.pieces(0, [])]
    steps.append({"set": {"done": True}})
    document: dict[str, Any] = {"sglspec": "v1", "inputs": {"big": "string", "wrong": "object"}, "steps": steps}
    if writer.limits:
        document["limits"] = writer.limits
    inputs = {"big": " ".join(rng.choices(WORDS, k=CONTEXT)), "wrong": {"type": "object", "no-such-keyword": 1}}
    return Case(json.dumps(document, indent=1), inputs, rng.getrandbits(63), fault is not None)


@dataclass(slots=True)
class _Writer:
    """Writes steps. fault: the failing step that is still to be put somewhere. joined: how deep the forks lie that
    may be joined by concatenation; on one level only, so that contexts do not grow beyond the model. names: how many
    were used."""

    rng: random.Random
    fault: str | None
    joined: int
    names: int = 0
    limits: dict[str, int] = field(default_factory=dict[str, int])

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def turns(self, depth: int, seen: list[str]) -> list[Any]:
        """Steps of a chat: user messages, each with what follows it."""
        steps: list[Any] = []
        for _ in range(self.rng.randint(1, 2)):
            steps.append({"user": self.text(seen)})
            if self.rng.random() < 0.5:
                steps.append({"assistant": self.pieces(max(1, depth), seen)})
            else:
                steps.append(self.gen(seen))
        if depth < 2 and self.rng.random() < 0.5:
            steps.append(self.fork(depth, seen, self.turns))
        return steps

    def pieces(self, depth: int, seen: list[str]) -> list[Any]:
        """Steps without roles. seen: names that are bound here; what these steps bind for sure is added."""
        makers = [self.gen, self.gen, self.gen, self.select, self.select]
        if depth < 2:
            makers += [self.loop, self.branch, self.rounds]
            makers += [lambda seen: self.fork(depth, seen, self.pieces)] * 3
        steps: list[Any] = []
        for _ in range(self.rng.randint(1, 4 - depth)):
            steps.append(self.text(seen))
            steps.append(self.rng.choice(makers)(seen))
        if self.fault is not None and self.rng.random() < 0.5:
            self.put_fault(steps)
        return steps

    def text(self, seen: list[str]) -> str:
        """A few words, sometimes with a value: of a fork that may still run, too."""
        words = " ".join(self.rng.choices(WORDS, k=self.rng.randint(1, 10)))
        if seen and self.rng.random() < 0.3:
            words += " {{ str(" + self.rng.choice(seen) + ") | truncate(24) }}"
        return f" {words}:"

    def gen(self, seen: list[str]) -> dict[str, Any]:
        """A generation: free, with stops, sampled, or constrained."""
        rng, name = self.rng, self.name()
        step: dict[str, Any] = {"gen": name, "max_tokens": rng.choice([1, 2, 5, 12, 30])}
        kinds = [
            "free",
            "free",
            "stop",
            "pattern",
            "sampled",
            "several",
            "again",
            "regex",
            "fresh",
            "fields",
            "integer",
        ]
        kind = rng.choice(kinds)
        if kind == "stop":
            step["stop"] = rng.choice(STOPS)
        elif kind == "sampled":
            step |= {"temperature": 0.9, "top_p": 0.95, "seed": rng.randint(0, 99), "ignore_eos": rng.random() < 0.5}
        elif kind == "pattern":
            step |= {"stop_regex": rng.choice(["[aeiou]{2}", r"\s[a-z]", "(x|qu)+e?"]), "temperature": 1.3}
        elif kind == "several":
            step |= {
                "n": rng.choice([1, 2, 3]),
                "keep": rng.choice(["first", "best"]),
                "temperature": 1.1,
                "max_tokens": 8,
            }
        elif kind == "again":
            step |= {"retry": {"max": 20, "until": f"len({name}) > 6"}, "temperature": 1.2, "max_tokens": 6}
            step["ignore_eos"] = True
        elif kind == "regex":
            step |= {"regex": rng.choice(PATTERNS), "max_tokens": 24}
        elif kind == "fresh":  # nobody has compiled this one before
            step |= {"regex": f"[a-z]{{1,4}}-{rng.randint(0, 10**6)}", "max_tokens": 24}
        elif kind == "fields":
            step |= {"fields": {"ok": "boolean", "size": {"enum": ["S", "M", "L"]}}, "max_tokens": 60}
        elif kind == "integer":
            step |= {"regex": "-?[1-9][0-9]{0,4}", "max_tokens": 12}
        seen.append(name)
        return step

    def select(self, seen: list[str]) -> dict[str, Any]:
        """A choice."""
        choices = [" " + " ".join(self.rng.choices(WORDS, k=self.rng.randint(1, 4))) for _ in range(5)]
        method = self.rng.choice(["length_normalized", "greedy", "unconditional", "sum"])
        name = self.name()
        seen.append(name)
        return {"select": name, "from": sorted(set(choices)), "method": method}

    def loop(self, seen: list[str]) -> dict[str, Any]:
        """A loop over a few items."""
        item, inner = self.name(), list(seen)
        return {
            "for": item,
            "in": ["x", "y", "z"][: self.rng.randint(1, 3)],
            "do": [self.text([item]), self.gen(inner)],
        }

    def rounds(self, seen: list[str]) -> dict[str, Any]:
        """A loop that ends by what was generated, or after so many rounds."""
        probe = self.gen(seen)
        name = probe["gen"]
        go_on = {"while": f"len(str({name})) < 6", "max": 3, "on_max": "stop", "do": [self.text(seen), dict(probe)]}
        return {"capture": self.name(), "do": [probe, go_on]}

    def branch(self, seen: list[str]) -> dict[str, Any]:
        """A condition on what was generated."""
        if not seen:
            return self.gen(seen)
        condition = f"len(str({self.rng.choice(seen)})) > {self.rng.randint(0, 12)}"
        return {"if": condition, "then": [self.gen(list(seen))], "else": [self.text(seen), self.gen(list(seen))]}

    def fork(self, depth: int, seen: list[str], inside: Callable[[int, list[str]], list[Any]]) -> dict[str, Any]:
        """Branches by number, by item or by name; gathered or joined."""
        rng = self.rng
        kind = rng.choice(["number", "items", "named"])
        step: dict[str, Any] = {}
        if kind == "named":
            parts = [(self.name(), list(seen)) for _ in range(2)]
            step["fork"] = {name: inside(depth + 1, own) for name, own in parts}
            bound = [name for _, own in parts for name in own[len(seen) :]]
        else:
            own = list(seen)
            if kind == "number":
                step["fork"] = rng.choice([2, 3, 5])
            else:
                step |= {"fork": self.name(), "in": ["one", "two", "three"]}
            step["do"] = inside(depth + 1, own)
            bound = own[len(seen) :]
        if depth == self.joined and rng.random() < 0.5:
            step["join"] = "concat"
        step["on_error"] = rng.choice(["fail", "skip", "keep"])
        if rng.random() < 0.2:
            bound = [self.name()]
            step["into"] = bound[0]
        seen += bound
        return step

    def put_fault(self, steps: list[Any]) -> None:
        """The step that cannot succeed, somewhere in a list of steps without roles."""
        fault, self.fault = self.fault, None
        name = self.name()
        found: list[Any] = {
            "context": [" {{ big }}", {"gen": name}],
            "tokens": [{"gen": name, "max_tokens": 50, "ignore_eos": True}],
            "branches": [{"fork": f"{name}_item", "in": "range(big | length)", "do": [{"gen": name, "max_tokens": 2}]}],
            "check": [{"set": {name: 1}}, {"check": f"{name} > 1"}],
            "fail": [{"fail": "This program fails."}],
            "schema": [{"gen": name, "schema": "{{ wrong }}"}],
            "cut": [{"gen": name, "fields": {"a": "string", "b": "string"}, "max_tokens": 3}],
            "choices": [{"select": name, "from": ["yes", "{{ big }}"]}],
        }[fault or "fail"]
        if fault == "tokens":
            self.limits["tokens"] = 20
        if fault == "branches":
            self.limits["branches"] = 10
        at = self.rng.randint(0, len(steps))
        steps[at:at] = found
