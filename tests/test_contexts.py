"""Contexts, sets of choices, branches and tables in a run: what is given stays, the rest is chosen for it."""

import pandas as pd
import pytest
import torch
from gpytorch.kernels import MaternKernel

import kbo
from kbo import report
from kbo.optimize.search.search import Search
from kbo.optimize.search.subspace import Subspace
from kbo.report.figures.slices import slice_of
from kbo.space import Space

PLANE = {"x": (0.0, 1.0), "c": (0.0, 1.0)}
PAIRS = [(0, 1), (0, 1)]
MIXED = {
    "rate": kbo.Float(1e-4, 1e-1, log=True),
    "n": kbo.Int(1, 40, log=True),
    "kind": ["a", "b", "c"],
    **PLANE,
}
BRANCHES = [
    {"model": ["svm", "forest"], "seed": 3},
    kbo.When("model", "svm", {"C": kbo.Float(1e-3, 1e3, log=True)}),
    kbo.When("model", "forest", {"depth": (2, 12), "share": kbo.Float(0.1, 0.9, step=0.2)}),
]
CANDIDATES = pd.DataFrame(
    {
        "metal": ["Fe", "Ni", "Cu"] * 4,
        "ligands": [*range(4)] * 3,
        "pH": [i / 2 for i in range(12)],
        "lab": "A",
    }
)


def certified():
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.5
    return kbo.Certified(kernel, noise_std=0.1, norm_bound=3.0)


def learn(optimizer, rounds, seed=0):
    """Minimise (x - c)^2 in random contexts c."""
    chance = torch.Generator().manual_seed(seed)
    for _ in range(rounds):
        c = float(torch.rand((), generator=chance))
        params = optimizer.ask(context={"c": c})
        assert params["c"] == c
        optimizer.tell(
            params, (params["x"] - c) ** 2 + 0.02 * float(torch.randn((), generator=chance))
        )
    return optimizer


def test_the_optimum_of_every_context_is_learnt():
    contexts, optimizer = (0.1, 0.3, 0.5, 0.7, 0.9), kbo.Optimizer(PLANE)
    assert optimizer.best({"c": 0.5}) is None
    learn(optimizer, 30)
    best = [optimizer.best({"c": c}) for c in contexts]
    assert [b["c"] for b in best] == list(contexts)
    assert (
        sum((b["x"] - b["c"]) ** 2 for b in best) / 5 < 0.025
    )  # 0.08 for the same x in all contexts
    assert set(optimizer.best()) == {"x", "c"}


@pytest.mark.parametrize("context", [{"rate": 3e-3, "n": 40}, {"n": 1, "kind": "c", "x": 0.1}])
def test_contexts_of_every_kind_stay_exactly_as_given(context):
    optimizer = kbo.Optimizer(MIXED, setting=kbo.Practical(n_initial=3))
    for i in range(4):
        suggested = optimizer.suggest(context=context)
        params = optimizer.ask(context=context)
        assert params == optimizer.space.canonical(params) | context
        assert suggested == params
        optimizer.tell(params, params["x"] + 0.1 * i)
    assert len({tuple(trial.params.values()) for trial in optimizer.trials}) > 2
    best = optimizer.best(context)
    assert best == best | context


def test_a_list_space_has_contexts_by_index():
    optimizer = kbo.Optimizer([(0, 1), (-2, 2)], setting=certified())
    for value in (0.3, 0.1, 1.7):
        params = optimizer.ask(context={1: value})
        assert isinstance(params, list)
        assert params[1] == value
        optimizer.tell(params, params[0])
    assert optimizer.best({0: 0.25})[0] == 0.25
    assert optimizer.ask(context={1: 0.5}, choices=[{0: 0.5}]) == [0.5, 0.5]


def test_the_best_of_a_context_has_the_largest_lower_bound_there():
    optimizer = learn(kbo.Optimizer(PLANE, setting=certified(), seed=2), 15)

    def bound(params):  # of a minimum, the pessimistic end is the upper one
        return optimizer.interval({**params, "c": 0.8})[2]

    grid = [{"x": i / 100} for i in range(101)]
    assert bound(optimizer.best({"c": 0.8})) <= min(map(bound, grid)) + 1e-3
    assert bound(optimizer.best({"c": 0.8}, choices=grid[::10])) == min(map(bound, grid[::10]))


def test_the_search_reaches_the_best_of_the_free_coordinates_and_leaves_the_others_alone():
    peak = torch.tensor([0.3, 0.9, 0.6, 0.2], dtype=torch.float64)
    scored = []

    def score(U):
        scored.append(U)
        return -(U - peak).square().sum(-1)

    space = Space([(0.0, 1.0)] * 4)
    starts = torch.rand(3, 4, dtype=torch.float64)
    search = Search(space, Subspace(space, {1: 0.5}), starts, 0, torch.Generator().manual_seed(0))
    expected = torch.tensor([0.3, 0.5, 0.6, 0.2], dtype=torch.float64)
    torch.testing.assert_close(search.argmax_point(score), expected, rtol=0, atol=5e-3)
    assert bool((torch.cat(scored)[:, 1] == 0.5).all())
    assert float(search.argmax_point(score, lambda U: 0)[1]) == 0.5
    for useless in (lambda U: U, lambda U: U.sum(-1) * torch.nan):
        with pytest.raises(kbo.InvalidInput, match=r"a score must be a tensor \[n\]"):
            search.argmax_point(useless)


def test_choices_that_change_are_chosen_from_exactly():
    optimizer = learn(kbo.Optimizer(PLANE, setting=certified(), seed=1), 12)
    generator = torch.Generator().manual_seed(5)
    for features in torch.rand(3, 6, 2, generator=generator, dtype=torch.float64):
        choices = [dict(zip("xc", row, strict=True)) for row in features.tolist()]
        surrogate = optimizer.insight.surrogate()
        confidence = surrogate.method.confidence
        params = optimizer.ask(choices=choices)
        assert params == choices[confidence.argmax_upper(surrogate.posterior, features)[0]]
        optimizer.tell(params, 0.0)
    near, far = {"x": 0.31}, {"x": 0.97}
    assert optimizer.best({"c": 0.3}, choices=[far, near]) == {"x": 0.31, "c": 0.3}


def test_same_seed_and_events_give_the_same_points_also_across_a_reopening(tmp_path):
    whole = learn(kbo.Optimizer(PLANE, seed=3), 8)
    first = learn(kbo.Optimizer(PLANE, seed=3, journal=tmp_path / "j"), 8)
    assert first.trials == whole.trials
    first.close()
    again = kbo.Optimizer(PLANE, seed=3, journal=tmp_path / "j")
    choices = [{"x": 0.1, "c": 0.2}, {"x": 0.7, "c": 0.2}]
    for given in ({"context": {"c": 0.25}}, {}, {"choices": choices}):
        assert again.ask(**given) == whole.ask(**given)
    assert again.best({"c": 0.4}) == whole.best({"c": 0.4})


def test_a_pending_point_comes_first_only_where_it_fits(tmp_path):
    first = kbo.Optimizer(PLANE, journal=tmp_path / "j")
    morning, evening = (first.ask(context={"c": c}) for c in (0.1, 0.9))
    first.close()
    second = kbo.Optimizer(PLANE, journal=tmp_path / "j")
    fresh = second.ask(context={"c": 0.5})
    assert fresh["c"] == 0.5
    assert second.ask(choices=[{"x": 0.5, "c": 0.5}, {"x": 0.25, "c": 0.5}])["c"] == 0.5
    assert second.ask(choices=[{"x": 0.5, "c": 0.5}, evening]) == evening
    assert [t.status for t in second.trials] == ["pending"] * 4
    assert second.ask(context={"c": 0.9}) != evening  # handed out once
    assert second.ask() == morning


REFUSED = [
    (PLANE, {"context": {"d": 1.0}}, r"no parameter 'd'; the parameters are \['x', 'c'\]"),
    (PLANE, {"context": {"c": 1.5}}, r"parameter 'c': expected a number in \[0, 1\], got 1.5"),
    (PLANE, {"context": {"c": 0.5, "x": 0.5}}, "fixes all parameters.*tell"),
    (PLANE, {"choices": [{"x": 0.5}]}, r"lacks \['c'\]"),
    (PLANE, {"choices": [{"x": 0.5, "c": 2.0}]}, "choices: parameter 'c'"),
    (PLANE, {"context": {"c": 0.5}, "choices": [{"x": 0.5, "c": 0.6}]}, "contradicts the context"),
    (BRANCHES, {"choices": [{"model": "forest", "seed": 3, "depth": 4}]}, r"lacks \['share'\]"),
    (BRANCHES, {"choices": [{"model": "svm", "seed": 3, "C": 1, "depth": 4}]}, "params must have"),
    (CANDIDATES, {"context": {"metal": "Fe", "pH": 1.0}}, "no row of the table"),
]


@pytest.mark.parametrize(("bounds", "given", "says"), REFUSED)
def test_restrictions_that_do_not_fit_the_space_are_refused_and_leave_no_trace(bounds, given, says):
    optimizer = kbo.Optimizer(bounds)
    for ask in (optimizer.ask, lambda context=None, **more: optimizer.best(context, **more)):
        with pytest.raises(kbo.InvalidInput, match=says):
            ask(**given)
    assert optimizer.trials == []


# Branches and tables


def objective(params):
    assert params["seed"] == 3
    if params["model"] == "svm":
        assert set(params) == {"model", "seed", "C"}
        return abs(params["C"] - 10) ** 0.1
    return 0.1 * abs(params["depth"] - 5) + (params["share"] - 0.3) ** 2


def test_a_run_over_branches_is_recorded_resumed_and_reported(tmp_path):
    path = tmp_path / "run.jsonl"
    options = {"setting": kbo.Practical(n_initial=3), "seed": 1}
    once = kbo.minimize(objective, BRANCHES, n_trials=7, **options)
    kbo.minimize(objective, BRANCHES, n_trials=5, journal=path, **options)
    result = kbo.minimize(objective, BRANCHES, n_trials=7, journal=path, **options)
    assert [t.params for t in result.trials] == [t.params for t in once.trials]
    assert result.params["model"] == "forest"
    optimizer = report.Record.of(path).optimizer
    with pytest.raises(kbo.InvalidInput, match="'C' is not active at"):
        slice_of(optimizer, "C")
    assert "seed" not in [entry.name for entry in report.importance(result)]


def test_contexts_and_choices_know_which_parameters_are_active():
    optimizer, svm = kbo.Optimizer(BRANCHES), {"model": "svm", "C": 1}
    assert set(optimizer.ask(context={"model": "svm", "depth": 4})) == {"model", "seed", "C"}
    assert optimizer.ask(context={"model": "forest", "depth": 4})["depth"] == 4
    assert optimizer.ask(context={"seed": 3}, choices=[svm]) == svm | {"seed": 3}


def test_only_rows_of_a_table_are_evaluated_each_once_and_the_gap_is_exact(tmp_path):
    def yield_of(row):
        return abs(row["pH"] - 3.1) + (row["metal"] == "Fe") + 0.1 * row["ligands"]

    rows, path = CANDIDATES.to_dict("records"), tmp_path / "run.jsonl"
    options = {"journal": path, "setting": kbo.Practical(noise_std=0.0, n_initial=3)}
    kbo.minimize(yield_of, CANDIDATES, n_trials=7, **options)
    result = kbo.minimize(yield_of, CANDIDATES, n_trials=12, **options)
    assert sorted([trial.params for trial in result.trials], key=rows.index) == rows
    assert result.params == min(rows, key=yield_of)
    assert result.gap.exact
    space = report.Record.of(path).space
    assert space.params(space.unit(rows[5])) == rows[5]
    optimizer = kbo.Optimizer(CANDIDATES)
    assert optimizer.ask(context={"metal": "Cu", "ligands": 1})["pH"] == 2.5
    assert optimizer.ask(choices=[rows[3]])["pH"] == 1.5
    with pytest.raises(kbo.InvalidInput, match="must be a row of the table"):
        optimizer.tell({**rows[0], "pH": 0.25}, 1.0)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (pd.concat([CANDIDATES, CANDIDATES[4:5]]), "row 4 again as row 12"),
        (CANDIDATES.replace({"pH": {1.0: None}}), "no value in row 2, column 'pH'"),
        (CANDIDATES.set_axis(["a", "b", "a", "c"], axis=1), "several columns of one name"),
        (CANDIDATES.assign(when=pd.Timestamp("2026-01-01")), "column 'when': constant must be"),
    ],
)
def test_tables_that_are_no_set_of_candidates_are_refused(table, says):
    with pytest.raises(kbo.InvalidInput, match=says):
        Space(table)
