"""The experiments of the chaining paper at tiny sizes, and the speed of chaining."""

import math

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from kbo.cli import app
from kbo.experiments.bench import chaining as chaining_bench
from kbo.experiments.papers import catalogue as papers
from kbo.experiments.papers import chaining, chaining_studies
from kbo.experiments.papers import chaining_problems as chaining_games
from kbo.experiments.papers.chaining_problems import ALGORITHM, PROBLEMS, PROVED, RANDOM, UNION


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def reproduce(out, *arguments):
    done = CliRunner().invoke(app, ["reproduce", "chaining", *arguments, "--quick", "-q", "-j", "1", "-o", str(out)])
    assert done.exit_code == 0, done.output
    return done.stdout, out / "chaining-quick"


def is_picture(path):
    return path.read_bytes().startswith(b"\x89PNG")


def test_there_are_two_figures_and_two_studies():
    assert papers.paper("chaining") is chaining.PAPER
    assert set(chaining.PAPER.figures) == {1, 2}
    assert set(chaining.PAPER.studies) == {"size", "coverage"}


def test_exploration_terms_are_drawn_and_only_algorithm_1_gives_the_surest_point_nothing(out):
    printed, folder = reproduce(out, "--figure", "1")
    assert is_picture(folder / "figure1.png")
    least = {
        line.split(",")[0]: float(line.split()[-2]) for line in printed.splitlines() if line.startswith(("ch", "gp"))
    }
    assert least[ALGORITHM] == 0 < least[UNION] <= least[PROVED]


def test_simple_regret_comes_with_pairs_and_the_rounds_it_took(out):
    printed, folder = reproduce(out, "--figure", "2")
    assert is_picture(folder / "figure2.png")
    table = pd.read_csv(folder / "figure2.csv")
    assert len(table) == len(PROBLEMS) * 4 * 2 * 2  # methods, seeds, rounds
    shown = table[(table["problem"] == "gp-draw") & (table["method"] == RANDOM) & (table["round"] == 6)]["best"]
    (line,) = (line for line in printed.splitlines() if line.startswith(f"gp-draw     {RANDOM} ") and "±" in line)
    assert chaining_games.with_error(shown.mean(), shown.sem()) in line
    counts = [
        line.split()[-3:] for line in printed.splitlines() if line.startswith(PROBLEMS) and len(line.split()) == 8
    ]
    assert len(counts) == len(PROBLEMS) * 2
    assert all(sum(map(int, count)) == 2 for count in counts)
    assert f"| gp-draw | {RANDOM} |" in (folder / "figure2.md").read_text(encoding="utf-8")


def test_a_simple_regret_counts_as_reached_when_half_of_the_seeds_are_there():
    best = {0: [0.9, 0.4, 0.4], 1: [0.9, 0.9, 0.15], 2: [0.9, 0.9, 0.9]}
    rows = pd.DataFrame(
        {"problem": "p", "method": "m", "seed": seed, "round": t, "best": value}
        for seed, values in best.items()
        for t, value in enumerate(values, start=1)
    )
    assert chaining._reached(rows)[1] == ("p", "m", "3", "-", "-", "-")
    assert chaining._reached(rows[rows["seed"] < 2])[1] == ("p", "m", "2", "3", "-", "-")


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_game_is_thinned_and_all_methods_begin_with_the_same_points(problem):
    games = {method: chaining_games.play(problem, method, 1, 50, 7, 3) for method in (ALGORITHM, PROVED, UNION, RANDOM)}
    for rows in games.values():
        assert [row["round"] for row in rows] == [3, 6, 7]
        assert all(set(row) == {"round", "best", "cumulative", "cpu_seconds"} for row in rows)
        assert rows[0]["best"] >= rows[-1]["best"] >= 0
    # The best of the initial points is known to everybody.
    world = chaining_games.world(problem, 1, 50)
    generator = torch.Generator().manual_seed(3_000_000_001)
    initial = [int(torch.randint(50, (), generator=generator)) for _ in range(10)]
    values = world.mean(world.fixed_arms)
    known = float(values.max() - values[initial].max())
    assert all(rows[0]["best"] <= known for rows in games.values())


def test_every_seed_plays_with_the_kernel_of_its_own_world(monkeypatch):
    kernels = []
    make = chaining_games.recipes.make
    monkeypatch.setattr(
        chaining_games.recipes, "make", lambda name, k, *a, **b: kernels.append(k) or make(name, k, *a, **b)
    )
    for seed in (0, 1):
        chaining_games.play("himmelblau", UNION, seed, 200, 1, 1)
    lengthscales = [chaining_games.world("himmelblau", seed, 200).lengthscale for seed in (0, 1)]
    assert [float(kernel.lengthscale) for kernel in kernels] == pytest.approx(lengthscales)
    assert lengthscales[0] != lengthscales[1]


def test_sizes_are_a_picture_and_a_line_for_every_method(out):
    printed, folder = reproduce(out, "--study", "size")
    assert is_picture(folder / "size.png")
    assert len(pd.read_csv(folder / "size.csv")) == 9
    assert sum(line.startswith(("20 ", "40 ", "80 ")) for line in printed.splitlines()) == 9


def test_proved_bounds_hold_where_algorithm_1_leaves_the_surest_point_outside(out):
    printed, _ = reproduce(out, "--study", "coverage")
    assert sum(line.split()[-6:-4] == ["4", "0"] for line in printed.splitlines() if line) == 2
    rows = {row["method"]: row for row in chaining_studies.watch(1, 1, 30, 3)}
    assert rows[ALGORITHM]["outside"] > 0
    assert math.isinf(rows[ALGORITHM]["closest"])
    for name in (PROVED, UNION):
        assert rows[name]["outside"] == 0
        assert rows[name]["closest"] < 1
        assert rows[name]["excess"] < 0 < rows[name]["half"]


def test_an_iteration_agrees_with_dense_matrices_and_a_chain_takes_time_and_memory():
    (row,) = chaining_bench.BENCHES[0].run(torch.device("cpu"), quick=True)
    assert row.kbo < 0.3
    assert row.other > 0
    found = chaining_bench.chain(torch.device("cpu"), 12_000, 1, on_host=True, on_threads=1)
    assert found["wall"] > 0
    assert found["memory"] >= 0  # beyond what the process took before
