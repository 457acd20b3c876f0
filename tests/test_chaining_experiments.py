"""The experiments of the chaining paper at tiny sizes, and the speed of chaining."""

import math

import pandas as pd
import pytest
import torch

from experiments.bench import chaining as chaining_bench
from experiments.papers import chaining
from experiments.papers.chaining import ALGORITHM, PROVED, RANDOM, UNION
from tests.commands import experiment


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def reproduce(out, *arguments):
    done = experiment("papers.chaining", *arguments, "--quick", "-q", "-j", "1", "-o", out)
    return done.stdout, out / "chaining-quick"


def is_picture(path):
    return path.read_bytes().startswith(b"\x89PNG")


def test_exploration_terms_are_drawn_and_only_algorithm_1_gives_the_surest_point_nothing(out):
    printed, folder = reproduce(out, "--figure", "1")
    assert is_picture(folder / "figure1.png")
    rows = [line for line in printed.splitlines() if line.startswith(("ch", "gp"))]
    least = {line.split(",")[0]: float(line.split()[-2]) for line in rows}
    assert least[ALGORITHM] == 0 < min(least[UNION], least[PROVED])


def test_rows_are_thinned_and_methods_know_the_problem_of_their_seed():
    for method in (ALGORITHM, PROVED, UNION, RANDOM):
        rows = chaining.problem("gp-draw", 50, 7, every=3).cell(method, 1).run()
        assert [row["round"] for row in rows] == [3, 6, 7]
    problem = chaining.problem("himmelblau", 200, 1)
    known = []
    for seed in (0, 1):
        method = problem.make("dmm-ucb", seed)
        environment = problem.environment(seed)
        lengthscale = float(environment.kernel.lengthscale)
        assert float(method.posterior().kernel.lengthscale) == lengthscale
        assert method.confidence.norm_bound == environment.norm_bound
        known.append((lengthscale, environment.norm_bound))
    assert known[0] != known[1]


def test_sizes_and_coverage_are_studied_and_proved_bounds_hold_where_algorithm_1_does_not(out):
    printed, folder = reproduce(out, "--study", "size")
    assert is_picture(folder / "size.png")
    assert len(pd.read_csv(folder / "size.csv")) == 9
    assert sum(line.startswith(("20 ", "40 ", "80 ")) for line in printed.splitlines()) == 9
    printed, _ = reproduce(out, "--study", "coverage")
    assert sum(line.split()[-6:-4] == ["4", "0"] for line in printed.splitlines() if line) == 2
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
