"""What `sglspec check` needs for a document of a thousand lines, beyond its start: CPU time in milliseconds.

Usage: python -m benchmarks.check [--lines 1000] [--rounds 9] [--limit 250] [--profile]

Three commands, several processes each, least and median: Python alone, `check` of a document of two lines (the
start), and `check` of the long one. The difference of the last two is what the lines cost; above --limit the
exit code is 1.
--profile shows instead, in one process, which functions the time goes to.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.cli_start import cpu_ms
from sglspec.analysis import load_program
from sglspec.diagnostics import Report
from sglspec.document.read import source_from_text

HEAD = """\
sglspec: v1
name: long
inputs:
  essay: string
  topics: {type: array, items: string}
outputs: [verdict]
steps:
  - set: {verdict: null, count: 0}
"""
PART = """\
  # Part NN
  - user: |
      Essay:
      {{ essay }}

      Part NN of it, {{ topics | length }} topics: {{ topics | join(', ') | upper }}
  - assistant:
      - "Answer:"
      - select: kind_NN
        from: ["yes", "no", maybe]
      - gen: text_NN
        stop: ["\\n", END]
        max_tokens: 96
        temperature: 0.7
  - if: kind_NN == "yes" and count < 10
    then:
      - set: {count: "{{ count + 1 }}"}
      - user: "More about {{ text_NN | truncate(40) }}."
      - gen: more_NN
        regex: "[A-Z][a-z]{1,20}( [a-z]{1,12}){0,8}[.]"
    else:
      - set: {more_NN: "{{ text_NN }}"}
  - fork: topic_NN
    in: topics
    do:
      - user: "{{ topic_NN }} in {{ more_NN }}?"
      - gen: judged_NN
        fields:
          summary: {type: string, maxLength: 200}
          grade: {enum: [A, B, C, D, F]}
  - for: item_NN
    in: judged_NN
    do:
      - user: "{{ loop.index }}. {{ item_NN.summary }} {% if item_NN.grade == 'A' %}well done{% endif %}"
      - gen: verdict
"""


def document(lines: int) -> str:
    """A program of at least so many lines, of all sorts of steps."""
    text, number = HEAD, 0
    while text.count("\n") < lines:
        number += 1
        text += PART.replace("NN", str(number))
    return text


def profile(text: str) -> None:
    """The functions that take longest."""
    load_program(source_from_text(HEAD + "  - user: x\n", "warm.yaml"), Report())
    run = cProfile.Profile()
    run.runcall(load_program, source_from_text(text, "long.yaml"), Report())
    pstats.Stats(run).sort_stats("tottime").print_stats(35)


def main() -> int:
    """See the module docstring."""
    parser = argparse.ArgumentParser(description="CPU time of `sglspec check` for a long document.")
    parser.add_argument("--lines", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--limit", type=float, default=250.0, help="milliseconds that the lines may cost")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    text = document(options.lines)
    report = Report()
    load_program(source_from_text(text, "long.yaml"), report)
    report.raise_errors()
    if options.profile:
        profile(text)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        short, long = Path(folder) / "short.yaml", Path(folder) / "long.yaml"
        short.write_text("sglspec: v1\nsteps: Hello\n", "utf-8")
        long.write_text(text, "utf-8")
        check = [sys.executable, "-m", "sglspec", "check"]
        commands = {
            "python alone": [sys.executable, "-c", "pass"],
            "start": [*check, str(short)],
            f"check of {text.count(chr(10))} lines": [*check, str(long)],
        }
        least: dict[str, float] = {}
        for name, command in commands.items():
            times = [cpu_ms(command) for _ in range(options.rounds)]
            least[name] = min(times)
            print(f"{name:<24} least {min(times):5.0f} ms   median {statistics.median(times):5.0f} ms")
    _, start, whole = least.values()
    print(f"{'the lines alone':<24} least {whole - start:5.0f} ms   at most {options.limit:.0f} ms")
    return 1 if whole - start > options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
