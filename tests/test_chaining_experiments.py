"""The experiments of the chaining paper at tiny sizes, and the speed of chaining."""

import math

import torch

from experiments.bench import chaining as chaining_bench
from experiments.papers import chaining
from experiments.papers.chaining import ALGORITHM, PROVED, UNION
from tests.commands import experiment


def test_proved_bounds_hold_where_algorithm_1_does_not(tmp_path):
    options = ("--study", "coverage", "--quick", "-q", "-j", "1", "-o", tmp_path)
    printed = experiment("papers.chaining", *options).stdout.splitlines()
    assert sum(line.split()[-6:-4] == ["4", "0"] for line in printed if line) == 2
    rows = {row["method"]: row for row in chaining.watch(1, 30, 3)}
    assert rows[ALGORITHM]["outside"] > 0
    assert math.isinf(rows[ALGORITHM]["closest"])
    for name in (PROVED, UNION):
        assert rows[name]["outside"] == 0
        assert rows[name]["closest"] < 1
        assert rows[name]["excess"] < 0 < rows[name]["half"]


def test_an_iteration_agrees_with_dense_matrices_and_a_chain_takes_time_and_memory():
    cpu = torch.device("cpu")
    (row,) = chaining_bench.BENCHES[0].run(cpu, quick=True)
    assert min(row.kbo, row.other) > 0
    wall, memory = chaining_bench.chain(cpu, 1_000, 1, 600.0, on_host=True, on_threads=1)
    assert wall.kbo > 0
    assert memory.kbo >= 0  # beyond what the process took before
