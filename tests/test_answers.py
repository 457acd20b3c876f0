"""Answers of a run in the units of its objective, and audits of the histories of other tools."""

import csv
import math
import random
import warnings
from decimal import ROUND_CEILING, ROUND_FLOOR

import pytest
import torch

import kbo
from kbo.optimize.insight import importance
from kbo.optimize.insight.answers import Answers
from kbo.optimize.insight.comparison import Estimate
from kbo.optimize.insight.credible_sets import CredibleSet, Effect, open_choices
from kbo.report import summary
from tests.commands import kbo as command


def told(objective, space, n=25, **options):
    """An optimiser after trials that it has chosen."""
    optimizer = kbo.Optimizer(space, seed=1, **options)
    for _ in range(n):
        params = optimizer.ask()
        optimizer.tell(params, objective(params), seconds=30.0)
    return optimizer


def noisy():
    rng = random.Random(0)
    return lambda p: (p["x"] - 0.3) ** 2 + {"a": 0.5, "b": 0.0}[p["c"]] + 0.02 * rng.gauss(0, 1)


SPACE = {"x": (0.0, 1.0), "unused": (0.0, 1.0), "c": ["a", "b"]}


def test_draws_have_the_means_and_widths_of_the_intervals_and_are_joint():
    optimizer = told(noisy(), SPACE)
    belief, units = (
        optimizer.insight.description(),
        torch.rand(6, 3, generator=torch.Generator().manual_seed(0)).double(),
    )
    units[1] = units[0] + 1e-4
    draws = -belief.draws(optimizer.space.features(units), 4000, torch.Generator().manual_seed(1))
    low, mean, high = optimizer.insight.intervals(units)
    torch.testing.assert_close(draws.median(0).values, mean, rtol=0.1, atol=0.02)
    torch.testing.assert_close(
        draws.quantile(0.95, 0) - draws.quantile(0.05, 0), high - low, rtol=0.1, atol=0.02
    )
    assert float((draws[:, 0] - draws[:, 1]).abs().max()) < 0.1 * float((high - low)[0])


def test_what_matters_is_told_and_which_values_are_as_good():
    optimizer = told(noisy(), SPACE, 30)
    found = optimizer.insight.answers(tolerance=0.02)
    by_name = {one.name: one for one in found.effects}
    assert [one.visible for one in (by_name["c"], by_name["x"], by_name["unused"])] == [
        True,
        True,
        False,
    ]
    assert by_name["c"].good == by_name["c"].range == CredibleSet(("b",), False, False)
    x = optimizer.recommended().params["x"]
    low, high = by_name["x"].good.values
    assert low < x < high
    for value in (low, high):
        assert (value - 0.3) ** 2 - (x - 0.3) ** 2 < 0.03
    low, high = by_name["x"].range.values
    assert low <= 0.3 <= high
    assert 0.02 < high - low < 0.5
    low, high = by_name["unused"].range.values
    assert high - low > 0.5
    assert found.seconds == pytest.approx(20 * 30)
    assert found.inside[1] == 30
    assert found == optimizer.insight.answers(tolerance=0.02)
    assert (
        summary.importance(found.effects)
        .split("; ")[1]
        .startswith("not certain yet: unused (at most ")
    )
    assert "20 more trials (10 minutes) " in summary.more_trials(found)
    assert "c b" in summary.ranges(found.effects)
    assert open_choices(found.effects) == []
    assert ("for unused" in summary.ranges(found.effects)) == by_name["unused"].range.all


def test_a_run_does_not_stop_while_several_options_may_be_the_best():
    rng = random.Random(0)
    offsets = {"a": 0.0, "b": 0.01, "c": 0.6, "d": 0.9}
    objective = lambda p: (p["x"] - 0.3) ** 2 + offsets[p["c"]] + 0.1 * rng.gauss(0, 1)  # noqa: E731
    optimizer = told(objective, {"x": (0.0, 1.0), "c": list("abcd")}, 20)
    found = optimizer.insight.answers(tolerance=100.0)
    assert open_choices(found.effects) == ["c"]
    assert found.decision == "undecided"
    assert summary.more_trials(found).endswith("; it is not certain yet which c is best")
    one = [effect for effect in found.effects if effect.name == "x"]
    assert open_choices(one) == []


@pytest.mark.parametrize(
    "x",
    [
        kbo.Float(2.0, 3.0),
        kbo.Int(1, 6),
        kbo.Ordinal([1, 2, 4, 6]),
        kbo.Int(1, 60),
        kbo.Float(20.0, 90.0, step=1.0),
    ],
)
@pytest.mark.parametrize(("sign", "edge"), [(1, "lower"), (-1, "upper")])
def test_a_value_at_a_bound_with_better_ones_beyond_is_told(sign, edge, x):
    found = told(lambda p: sign * p["x"], {"x": x, "z": (0.0, 1.0)}, 20).insight.answers()
    assert {one.name: one.edge for one in found.effects}["x"] == edge
    sentence = f"; x is at its {edge} bound, widen it if you can"
    assert summary.ranges(found.effects).endswith(sentence)
    assert sentence not in summary.ranges(found.effects, has_bounds=False)


def test_points_that_break_constraints_bring_nothing():
    space = {"x": (0.0, 1.0), "z": (0.0, 1.0)}
    optimizer = told(
        lambda p: -(p["x"] + p["z"]), space, 25, constraints=[kbo.Linear({"x": 1, "z": 1}, upper=1)]
    )
    optimizer.tell({"x": 0.99, "z": 0.98}, -1.97)  # a known result that is not allowed
    found = optimizer.insight.answers()
    assert found.more.value < 0.05
    best = optimizer.recommended().params
    for one, other in (("x", "z"), ("z", "x")):
        good = {e.name: e for e in found.effects}[one].good
        assert good is None or good.values[1] + best[other] <= 1.05
    limited = kbo.Optimizer({"x": (0.0, 1.0)}, constraints=[kbo.Constraint("m", upper=0.5)], seed=0)
    for i in range(20):
        limited.tell({"x": i / 19}, (i / 19 + 0.01 * (-1) ** i, {"m": 1 - i / 19}))
    found = limited.insight.answers()
    assert found.more.value < 0.1
    assert found.effects[0].range.values[0] > 0.4


def test_a_declared_range_bounds_the_gain_and_large_numbers_are_no_error():
    rng = random.Random(0)
    objective = lambda p: max(0.0, min(1.0, 0.01 + (p["x"] - 0.3) ** 2 + 0.02 * rng.gauss(0, 1)))  # noqa: E731
    optimizer = told(objective, {"x": (0.0, 1.0)}, value_range=(0.0, 1.0))
    assert (
        optimizer.insight.answers().more.value
        <= optimizer.interval(optimizer.recommended().params)[1]
    )
    large = told(lambda p: 1e200 * (p["x"] - 0.3) ** 2, {"x": (0.0, 1.0)}, 12)
    assert "nan" not in summary.more_trials(large.insight.answers())


@pytest.mark.parametrize("sign", [1, -1])
def test_a_gain_beyond_zero_where_no_value_was_asks_for_a_range(sign):
    answers = Answers(
        None, Estimate(0.042, 0.0, 0.1), "go on", None, 0.01, [], (0, 0), beyond_zero=True
    )
    assert "beyond 0: if no value can be there, give value_range" in summary.more_trials(answers)
    optimizer = told(lambda p: sign * (0.05 + p["x"]), {"x": (0.0, 1.0)}, 10, maximize=sign < 0)
    assert not optimizer.insight.answers().beyond_zero


def diverging(value_range=None, maximize=False):
    """An optimiser after trials of an error rate with a long tail of bad values, some of them stopped early."""
    sign = -1 if maximize else 1
    rng = random.Random(5)
    span = None if value_range is None else tuple(sorted(sign * end for end in value_range))
    space = {
        "lr": kbo.Float(1e-4, 1.0, log=True),
        "width": kbo.Int(4, 128, log=True),
        "z": (0.0, 1.0),
    }
    optimizer = kbo.Optimizer(space, seed=0, maximize=maximize, value_range=span)
    for _ in range(30):
        params = {"lr": 10 ** rng.uniform(-4, 0), "width": rng.randint(4, 128), "z": rng.random()}
        value = (
            0.03
            + 0.01 * (math.log10(params["lr"]) + 2) ** 2
            + 0.002 * abs(params["width"] - 60) ** 0.5
        )
        if params["lr"] > 0.2:
            value = 0.5 + 0.45 * rng.random()
        optimizer.tell(params, sign * min(0.95, value * (1 + 0.1 * rng.gauss(0, 1))))
    return optimizer


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("value_range", [None, (0.0, 1.0)])
def test_all_numbers_of_a_report_are_inside_the_limits_of_the_intervals(
    value_range, maximize, monkeypatch
):
    """Importance, draws, comparisons and forecasts come from values that `predict` can return as well."""
    taken = []
    shares = importance.shapley_shares
    monkeypatch.setattr(
        importance,
        "shapley_shares",
        lambda values, *others: taken.append(values) or shares(values, *others),
    )
    optimizer = diverging(value_range, maximize)
    values = [abs(trial.value) for trial in optimizer.trials]
    worst = 2 * max(values) - min(values)
    least = -math.inf
    if value_range is not None:
        least, worst = 0.0, min(worst, 1.0)
    answers = optimizer.insight.answers()
    assert kbo.report.importance(optimizer)
    points = torch.rand(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    features = optimizer.space.features(points)
    belief = optimizer.insight.description()
    taken += [
        belief.draws(features, 100, torch.Generator().manual_seed(0)),
        belief.transform.inverse(belief.posterior.predict(features)[0]),
    ]
    for numbers in taken:
        assert float(-numbers.min()) <= worst + 1e-9
        assert float(-numbers.max()) >= least - 1e-9
    if value_range is not None:
        _, mean, _ = optimizer.interval(optimizer.recommended().params)
        assert answers.more.upper <= abs(mean) + 0.05
        assert abs(optimizer.insight.compare({"lr": 0.9, "width": 4, "z": 0.5}).upper) <= 1.0


def test_a_choice_may_have_many_options_and_numbers_among_them():
    options = [f"run {i}" for i in range(40)]
    found = told(
        lambda p: float(p["c"] != "run 7"), {"c": options, "n": [16, 32, 64]}, 45
    ).insight.answers()
    effect = {one.name: one for one in found.effects}["n"]
    assert not effect.range.ranged
    assert str(CredibleSet((16, 64), False, False)) == "16 or 64"
    assert {one.name: one for one in found.effects}["c"].range.values == ("run 7",)


def test_the_first_trial_is_compared_in_words():
    worse = summary.first_trial(Estimate(0.5, 0.4, 0.6))
    assert worse == "worse than the recommended parameters, by 0.5 [0.4, 0.6]"
    better = summary.first_trial(Estimate(-0.5, -0.6, -0.4))
    assert better == "better than the recommended parameters, by 0.5 [0.4, 0.6]"
    unclear = summary.first_trial(Estimate(0.1, -0.4, 0.6))
    assert unclear == "not visibly different from the recommended parameters"
    assert not summary.first_trial(None)


@pytest.mark.parametrize(
    ("decision", "gain", "sentence"),
    [
        (
            "stop",
            Estimate(0.001, 0, 0.005),
            "20 more trials would improve it by less than 0.1, too little to matter: stop",
        ),
        ("go on", Estimate(0.5, 0.2, 0.9), "20 more trials would improve it by about 0.5: go on"),
        (
            "undecided",
            Estimate(0.2, 0, 0.9),
            "undecided: 20 more trials may improve it by nothing or up to 0.9, 0.2 on average",
        ),
    ],
)
def test_the_decision_about_more_trials_is_one_sentence(decision, gain, sentence):
    answers = Answers(None, gain, decision, None, 0.1, [], (0, 0))
    assert summary.more_trials(answers) == sentence


@pytest.mark.parametrize(("visible", "hidden"), [(0, 3), (2, 0), (1, 2), (7, 3)])
def test_every_parameter_is_either_important_or_not_visible_yet(visible, hidden):
    values = CredibleSet((0.25, 0.5), True, False)
    effects = []
    for number in range(visible + hidden):
        is_visible = number < visible
        share = Estimate(1 / (visible + hidden), 0.0, 1.0)
        effects.append(Effect(f"p{number}", share, is_visible, False, values, values, ""))
    sentence = summary.importance(effects)
    assert ("not certain" in sentence or "unknown" in sentence) == (hidden > 0)
    assert ("p0 (" in sentence) == (visible > 0)
    assert "p0 0.25 to 0.5" in summary.ranges(effects)  # also of a small effect
    assert ("and 3 others" in sentence) == (visible == 7)


@pytest.mark.parametrize(
    ("number", "width", "shown"),
    [
        (0.01401, 0.031, "0.014"),
        (123456, 2300, "123500"),
        (1e300, 2e299, "1.00e+300"),
        (-1e40, 1.0, "-1e+40"),
        (0.5, math.inf, "0.5"),
    ],
)
def test_numbers_have_two_digits_of_the_width_of_their_interval(number, width, shown):
    assert summary.rounded(number, width) == shown
    assert float(summary.rounded(number, width, ROUND_FLOOR)) <= number
    assert float(summary.rounded(number, width, ROUND_CEILING)) >= number


def test_a_run_stops_when_little_is_expected_of_more_trials():
    result = kbo.minimize(lambda x: (x[0] - 0.3) ** 2, [(0.0, 1.0)], 60, stop_when=0.01, seed=0)
    assert len(result.trials) < 60
    assert "20 more trials are expected to improve the value by" in result.stopped
    assert result.answers.more.value <= 0.01
    assert result.predict([0.3]) == result.optimizer.interval([0.3])


def rows(n=30, seed=0):
    rng = random.Random(seed)
    for number in range(n):
        lr, layers = 10 ** rng.uniform(-4, -1), rng.randint(1, 4)
        value = (math.log10(lr) + 2.5) ** 2 + 0.1 * abs(layers - 2) + 0.05 * rng.gauss(0, 1)
        yield {"number": number + 100, "lr": lr, "layers": layers, "loss": value, "seed": 3}


def table(path, rows):
    rows = list(rows)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_table_is_audited(tmp_path):
    path = table(tmp_path / "trials.csv", rows())
    found = kbo.audit(path)
    best = min(rows(), key=lambda row: row["loss"])
    assert found.reported == (best["number"], pytest.approx(best["loss"]))
    space = found.result.optimizer.space
    assert set(space.parameters) == {"lr", "layers"}  # seed is constant
    assert space.parameters["lr"].log
    assert found.likely in range(100, 130)
    assert "ranges are those of the trials" in str(found)
    assert "bound, widen it" not in str(found)
    assert "Matters" in str(found)
    given = kbo.audit(path, bounds={"lr": kbo.Float(1e-5, 1, log=True), "layers": kbo.Int(1, 9)})
    assert "ranges are" not in str(given)
    upside_down = kbo.audit(path, maximize=True)
    assert upside_down.reported[0] == max(rows(), key=lambda row: row["loss"])["number"]
    page = tmp_path / "page.html"
    printed = command("audit", path, "--target", "loss", "--to", page).stdout
    assert str(found).splitlines()[1] in printed
    text = page.read_text()
    assert "trials.csv" in text
    assert "Trials of the table" in text
    assert (
        f"<td>{found.likely}</td>" in text.replace(' class="number"', "")
        or f">{found.likely}<" in text
    )
    assert "Resuming the run" not in text


def test_rows_of_a_table_that_cannot_be_used_are_counted(tmp_path):
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(
        {
            0: [0.1 * i for i in range(12)],
            "c": ["a", None] * 6,
            "value": [float(i) for i in range(12)],
        }
    )
    found = kbo.audit(table)
    assert (
        "6 trials, 6 rows left out (the first is row 1: it has no c); no parameter, since it has one"
        in str(found)
    )
    states = table.drop(columns="c").assign(
        state=["FINISHED"] * 10 + ["FAILED"] * 2, number=range(50, 62)
    )
    again = pd.concat(
        [states[:5], states[5:].reset_index(drop=True)]
    )  # an index that is not unique
    found = kbo.audit(again, maximize=True)
    assert found.reported == (59, 9.0)
    assert "10 trials, 2 rows left out" in str(found)
    assert "logarithmic" not in str(found)
    with pytest.raises(kbo.InvalidInput, match="has no column z"):
        kbo.audit(states, bounds={"z": (0.0, 1.0)})
    outside = kbo.audit(states, bounds={"0": (0.0, 0.75)})
    assert len(outside.result.trials) == 8


def test_a_column_that_counts_the_rows_is_no_parameter():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(
        {
            "run": range(7, 27),
            "x": [0.05 * i for i in range(20)],
            "value": [(i - 8) ** 2 for i in range(20)],
        }
    )
    found = kbo.audit(table)
    assert set(found.result.params) == {"x"}
    assert "it counts the rows: run" in str(found)
    with pytest.raises(kbo.InvalidInput, match="no row has a value"):
        kbo.audit(table.assign(state="FAILED"))


def test_options_that_are_no_plain_values_are_shown_as_text():
    optuna = pytest.importorskip("optuna")
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))

    def objective(trial):
        with warnings.catch_warnings(action="ignore"):  # that a storage cannot keep them
            return len(trial.suggest_categorical("layers", [(8, 8), (4,)])) + trial.suggest_float(
                "x", 0, 1
            )

    study.optimize(objective, 20)
    assert kbo.audit(study).result.params["layers"] == "(4,)"


def test_two_points_are_compared():
    result = kbo.minimize(lambda p: (p["x"] - 0.3) ** 2, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, 12)
    worse = result.compare({"x": 0.9, "y": 0.5})
    assert worse.lower <= 0.36 <= worse.upper
    assert worse.probability > 0.99
    same = result.compare(result.params)
    assert (same.value, same.probability) == (0.0, 0.5)
    with pytest.raises(kbo.InvalidInput):
        result.compare({"x": 2.0, "y": 0.0})


def test_a_journal_is_audited(tmp_path):
    result = kbo.minimize(noisy(), SPACE, 12, seed=0, journal=tmp_path / "run.jsonl")
    found = kbo.audit(tmp_path / "run.jsonl")
    assert found.result.params == result.params
    assert (found.result.lower, found.result.upper) == (result.lower, result.upper)


def test_a_study_of_optuna_is_audited_with_conditions_and_pruned_trials(tmp_path):
    optuna = pytest.importorskip("optuna")
    rng = random.Random(0)

    def objective(trial):
        if trial.suggest_categorical("optimizer", ["sgd", "adam"]) == "sgd":
            value = (trial.suggest_float("momentum", 0, 1) - 0.9) ** 2 + 0.3
        else:
            value = (trial.suggest_float("beta", 0, 1) - 0.5) ** 2
        trial.report(value, 1)
        if value > 0.4:
            raise optuna.TrialPruned
        return value + 0.05 * rng.gauss(0, 1)

    storage = f"sqlite:///{tmp_path}/studies.db"
    for name in ("one", "two"):
        study = optuna.create_study(
            storage=storage, study_name=name, sampler=optuna.samplers.RandomSampler(seed=1)
        )
        study.optimize(objective, 30)
    found = kbo.audit(tmp_path / "studies.db", study="two")
    assert found.reported == (study.best_trial.number, study.best_value)
    chosen = study.trials[found.likely]
    assert found.result.params == chosen.params
    assert found.result.params["optimizer"] == "adam"
    assert " pruned" in str(found).splitlines()[0]
    assert str(kbo.audit(study)) == str(found)
    with pytest.raises(kbo.InvalidInput, match="has the studies one, two: name one"):
        kbo.audit(storage)
    with pytest.raises(kbo.InvalidInput, match="no trial that ended has parameters"):
        kbo.audit(optuna.create_study())


def test_direction_constraints_and_storages_of_optuna_are_kept():
    optuna = pytest.importorskip("optuna")
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage, study_name="one", direction="maximize")
    distributions = {"x": optuna.distributions.FloatDistribution(0, 1)}
    for i in range(20):
        x = i / 19
        trial = optuna.trial.create_trial(
            value=-((x - 0.8) ** 2),
            params={"x": x},
            distributions=distributions,
            constraints={"memory": x - 0.5},
        )
        study.add_trial(trial)
    found = kbo.audit(storage)
    assert str(found) == str(kbo.audit(study))
    assert found.result.optimizer.maximize
    assert [str(limit) for limit in found.result.optimizer.constraints] == ["memory <= 0"]
    assert found.reported[0] == found.likely == 9
    optuna.create_study(storage=storage, study_name="two")
    assert str(kbo.audit(storage, study="one")) == str(found)
    with pytest.raises(kbo.InvalidInput, match="has the studies one, two: name one"):
        kbo.audit(storage)
    with pytest.raises(kbo.InvalidInput, match=r"history must be a optuna.*Study, got"):
        kbo.audit(study.trials[0])


def test_the_table_of_a_study_of_optuna_is_audited():
    optuna = pytest.importorskip("optuna")
    rng = random.Random(0)

    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        kind = trial.suggest_categorical("kind", ["a", "b"])
        if x > 0.9:
            raise optuna.TrialPruned
        return -((x - 0.3) ** 2) - (kind == "a") + 0.01 * rng.gauss(0, 1)

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=1))
    study.optimize(objective, 30)
    found = kbo.audit(study.trials_dataframe(), maximize=True)
    assert found.reported == (study.best_trial.number, study.best_value)
    assert found.result.params == study.trials[found.likely].params
    assert "rows left out" in str(found)
    assert "left out, since they are no parameters" not in str(found)


def test_an_experiment_of_ax_is_audited(tmp_path):
    pytest.importorskip("ax")
    from ax.api.client import Client
    from ax.api.configs import RangeParameterConfig

    client = Client()
    client.configure_experiment(
        [RangeParameterConfig(name="x", parameter_type="float", bounds=(0.0, 1.0))]
    )
    client.configure_optimization(objective="-loss")
    for i in range(12):
        index = client.attach_trial({"x": i / 11})
        client.complete_trial(index, {"loss": (i / 11 - 0.3) ** 2 + 0.01 * (-1) ** i})
    client.save_to_json_file(str(tmp_path / "client.json"))
    found = kbo.audit(tmp_path / "client.json")
    assert found.reported == (3, pytest.approx((3 / 11 - 0.3) ** 2 - 0.01))
    assert str(kbo.audit(client)).splitlines()[1:] == str(found).splitlines()[1:]


@pytest.mark.parametrize(
    ("history", "message"),
    [
        (3, "history must be a study of Optuna"),
        ("nowhere.csv", "there is no file"),
        ("nowhere.db", "there is no file"),
        ("notes.md", "there is no file"),
        ("other.csv", "name that of the values"),
        ("constant.csv", "no column has two values"),
        ("empty.csv", "no row has a value"),
    ],
)
def test_what_cannot_be_audited_is_refused(history, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table("other.csv", [{"a": 1, "b": 2}])
    table("constant.csv", [{"a": 1, "value": 2}, {"a": 1, "value": 3}])
    table("empty.csv", [{"a": "", "value": 2}])
    with pytest.raises(kbo.InvalidInput, match=message):
        kbo.audit(history)
