"""The share of public names whose types pyright knows in full, which ``make lint`` keeps from falling.

The rest are mostly classes of GPyTorch, which declares no types, and functions that take them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

LEAST = 0.96


def main() -> int:
    bin = Path(sys.executable).parent  # pyright asks the first python of the path for the libraries
    path = os.pathsep.join([str(bin), os.environ["PATH"]])
    command = [str(bin / "pyright"), "--verifytypes", "kbo", "--ignoreexternal", "--outputjson"]
    run = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    found = json.loads(run.stdout)["typeCompleteness"]
    print(
        f"types of {found['completenessScore']:.2%} of the public names are known, at least {LEAST:.0%} are expected"
    )
    if found["completenessScore"] >= LEAST:
        return 0
    for symbol in found["symbols"]:
        if symbol["isExported"] and not symbol["isTypeKnown"] and symbol["diagnostics"]:
            print(symbol["name"], symbol["diagnostics"][0]["message"], sep=": ")
    return 1


if __name__ == "__main__":
    sys.exit(main())
