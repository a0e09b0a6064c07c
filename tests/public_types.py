"""`python -m tests.public_types`: whether type checkers of others know every type of the public API. For `make lint`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import sglspec

MODULES = ("sglspec.api.", "sglspec.tools.", "sglspec.mcp_tools.")


def is_public(name: str) -> bool:
    """A name of the package itself, or what a public module holds."""
    module, _, last = name.rpartition(".")
    return (module == "sglspec" and last in sglspec.__all__) or name.startswith(MODULES)


def main(pyright: str) -> int:
    arguments = [pyright, "--verifytypes", "sglspec", "--ignoreexternal", "--outputjson"]
    # pyright looks for the package where the first `python` of PATH does
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})
    symbols: list[dict[str, Any]] = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    public = [one for one in symbols if one["isExported"] and is_public(one["name"])]
    wrong = [one for one in public if not one["isTypeKnown"] or one["isTypeAmbiguous"]]
    for one in wrong:
        print(one["name"], *(fault["message"] for fault in one["diagnostics"]), sep="\n  ", file=sys.stderr)
    print(f"{len(public)} public names, {len(wrong)} whose types are not known whole")
    return bool(wrong) or not public


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else str(Path(sys.executable).with_name("pyright"))))
