"""Kernels and synchronisations of the steps on the stand-in for a GPU, and the least times that data sheets allow.

``python -m tests.device.counts`` prints the table of docs/performance.md; words select the steps whose name has one of
them, with the lines of kbo that wait for the device.
"""

from __future__ import annotations

import sys

import torch

from kbo.experiments.bench.device import SHEETS, count, table
from kbo.experiments.bench.steps import Setup, steps
from tests.device.standin import DEVICE


def main(words: list[str]) -> None:
    """Print the table, or the lines of some steps."""
    if not words:
        for dtype in (torch.float64, torch.float32):
            print(f"{dtype}\n{table(Setup(DEVICE, dtype), SHEETS)}\n")
    setup = Setup(DEVICE)
    for name, make in steps(setup).items():
        if any(word in name for word in words):
            counted = count(make(), DEVICE)
            print(f"{name}: {len(counted.kernels)} kernels")
            for kind, events in (("waits", counted.syncs), ("uploads", counted.uploads)):
                for (operator, line), times in events.most_common():
                    print(f"  {times:4d} {kind:7s} {operator:22s} {line}")


if __name__ == "__main__":
    main(sys.argv[1:])
