"""Answers of a run in the units of its objective, and audits of the histories of other tools."""

import math
import random
import warnings
from decimal import ROUND_CEILING, ROUND_FLOOR

import pandas as pd
import pytest
import torch

import kbo
from kbo.optimize.insight import importance
from kbo.optimize.insight.answers import Answers
from kbo.optimize.insight.comparison import Estimate
from kbo.optimize.insight.credible_sets import CredibleSet, Effect, open_choices
from kbo.report import summary
from tests.commands import kbo as command

LINE = {"x": (0.0, 1.0)}
SPACE = {"x": (0.0, 1.0), "unused": (0.0, 1.0), "c": ["a", "b"]}


def told(objective, space, n, **options):
    """An optimiser after trials that it has chosen."""
    optimizer = kbo.Optimizer(space, seed=1, **options)
    for _ in range(n):
        params = optimizer.ask()
        optimizer.tell(params, objective(params), seconds=30.0)
    return optimizer


@pytest.fixture(scope="module")
def optimizer():
    """A run with noise, in which x = 0.3 and c = b are the best; tests only read it."""
    rng = random.Random(0)
    costs = {"a": 0.5, "b": 0.0}
    return told(lambda p: (p["x"] - 0.3) ** 2 + costs[p["c"]] + 0.02 * rng.gauss(0, 1), SPACE, 30)


def by_name(answers):
    return {effect.name: effect for effect in answers.effects}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_draws_have_the_means_and_widths_of_the_intervals_and_are_joint(optimizer):
    units = torch.rand(6, 3, generator=generator(), dtype=torch.float64)
    units[1] = units[0] + 1e-4
    features = optimizer.space.features(units)
    draws = -optimizer.insight.description().draws(features, 4000, generator(1))
    low, mean, high = optimizer.insight.intervals(units)
    torch.testing.assert_close(draws.median(0).values, mean, rtol=0.1, atol=0.02)
    width = draws.quantile(0.95, 0) - draws.quantile(0.05, 0)
    torch.testing.assert_close(width, high - low, rtol=0.1, atol=0.02)
    assert float((draws[:, 0] - draws[:, 1]).abs().max()) < 0.1 * float((high - low)[0])


def test_what_matters_is_told_and_which_values_are_as_good(optimizer):
    found = optimizer.insight.answers(tolerance=0.02)
    effects = by_name(found)
    assert {name for name, effect in effects.items() if effect.visible} == {"c", "x"}
    assert effects["c"].good == effects["c"].range == CredibleSet(("b",), False, False)
    x = optimizer.recommended().params["x"]
    low, high = effects["x"].good.values
    assert low < x < high
    for value in (low, high):
        assert (value - 0.3) ** 2 - (x - 0.3) ** 2 < 0.03
    low, high = effects["x"].range.values
    assert low <= 0.3 <= high
    assert 0.02 < high - low < 0.5
    low, high = effects["unused"].range.values
    assert high - low > 0.5
    assert found.seconds == pytest.approx(20 * 30)
    assert found.inside[1] == 30
    assert found == optimizer.insight.answers(tolerance=0.02)
    hidden = summary.importance(found.effects).split("; ")[1]
    assert hidden.startswith("not certain yet: unused (at most ")
    assert "20 more trials (10 minutes) " in summary.more_trials(found)
    assert open_choices(found.effects) == []
    ranges = summary.ranges(found.effects)
    assert "c b" in ranges
    assert ("for unused" in ranges) == effects["unused"].range.all


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
    ("x", "sign", "edge"),
    [
        (kbo.Float(2.0, 3.0), 1, "lower"),
        (kbo.Ordinal([1, 2, 4, 6]), -1, "upper"),
        (kbo.Int(1, 60), -1, "upper"),
        (kbo.Float(20.0, 90.0, step=1.0), 1, "lower"),
    ],
)
def test_a_value_at_a_bound_with_better_ones_beyond_is_told(x, sign, edge):
    found = told(lambda p: sign * p["x"], {"x": x, "z": (0.0, 1.0)}, 14).insight.answers()
    assert by_name(found)["x"].edge == edge
    sentence = f"; x is at its {edge} bound, widen it if you can"
    assert summary.ranges(found.effects).endswith(sentence)
    assert sentence not in summary.ranges(found.effects, has_bounds=False)


def test_points_that_break_constraints_bring_nothing():
    limit = kbo.Linear({"x": 1, "z": 1}, upper=1)
    space = {"x": (0.0, 1.0), "z": (0.0, 1.0)}
    linear = told(lambda p: -(p["x"] + p["z"]), space, 25, constraints=[limit])
    linear.tell({"x": 0.99, "z": 0.98}, -1.97)  # a known result that is not allowed
    found = linear.insight.answers()
    assert found.more.value < 0.05
    best = linear.recommended().params
    for name, other in (("x", "z"), ("z", "x")):
        good = by_name(found)[name].good
        assert good is None or good.values[1] + best[other] <= 1.05
    limited = kbo.Optimizer(LINE, constraints=[kbo.Constraint("m", upper=0.5)], seed=0)
    for i in range(20):
        limited.tell({"x": i / 19}, (i / 19 + 0.01 * (-1) ** i, {"m": 1 - i / 19}))
    found = limited.insight.answers()
    assert found.more.value < 0.1
    assert found.effects[0].range.values[0] > 0.4


def sentence_of(gain, decision, **options):
    return summary.more_trials(Answers(None, gain, decision, None, 0.1, [], (0, 0), **options))


def test_a_gain_beyond_zero_where_no_value_was_asks_for_a_range():
    text = sentence_of(Estimate(0.042, 0.0, 0.1), "go on", beyond_zero=True)
    assert "beyond 0: if no value can be there, give value_range" in text
    optimizer = told(lambda p: -0.05 - p["x"], LINE, 8, maximize=True)
    assert not optimizer.insight.answers().beyond_zero


@pytest.mark.parametrize(("value_range", "sign"), [(None, 1), ((-1.0, 0.0), -1)])
def test_all_numbers_of_a_report_are_inside_the_limits_of_the_intervals(
    value_range, sign, monkeypatch
):
    """Importance, draws, comparisons and forecasts come from values that `predict` can return as well."""
    taken = []
    shares = importance.shapley_shares

    def recording(values, *others):
        taken.append(values)
        return shares(values, *others)

    monkeypatch.setattr(importance, "shapley_shares", recording)
    rng = random.Random(5)
    space = {
        "lr": kbo.Float(1e-4, 1.0, log=True),
        "width": kbo.Int(4, 128, log=True),
        "z": (0.0, 1.0),
    }
    optimizer = kbo.Optimizer(space, seed=0, maximize=sign < 0, value_range=value_range)
    values = []
    for _ in range(30):  # an error rate with a long tail of bad values
        params = {"lr": 10 ** rng.uniform(-4, 0), "width": rng.randint(4, 128), "z": rng.random()}
        value = 0.03 + 0.01 * (math.log10(params["lr"]) + 2) ** 2
        value += 0.002 * abs(params["width"] - 60) ** 0.5
        if params["lr"] > 0.2:
            value = 0.5 + 0.45 * rng.random()
        values.append(min(0.95, value * (1 + 0.1 * rng.gauss(0, 1))))
        optimizer.tell(params, sign * values[-1])
    worst = 2 * max(values) - min(values)
    least = -math.inf
    if value_range is not None:
        least, worst = 0.0, min(worst, 1.0)
    answers = optimizer.insight.answers()
    surrogate = optimizer.insight.description()
    units = torch.rand(200, 3, generator=generator(), dtype=torch.float64)
    features = optimizer.space.features(units)
    taken.append(surrogate.draws(features, 100, generator()))
    taken.append(surrogate.transform.inverse(surrogate.posterior.predict(features)[0]))
    for numbers in taken:
        assert float(-numbers.min()) <= worst + 1e-9
        assert float(-numbers.max()) >= least - 1e-9
    if value_range is not None:
        _, mean, _ = optimizer.interval(optimizer.recommended().params)
        assert answers.more.upper <= abs(mean) + 0.05
        assert abs(optimizer.insight.compare({"lr": 0.9, "width": 4, "z": 0.5}).upper) <= 1.0


def test_a_choice_may_have_many_options_and_numbers_among_them():
    options = [f"run {i}" for i in range(40)]
    optimizer = kbo.Optimizer({"c": options, "n": [16, 32, 64]})
    for i in range(45):
        params = {"c": options[i % 40], "n": [16, 32, 64][i % 3]}
        optimizer.tell(params, float(i % 40 != 7))
    effects = by_name(optimizer.insight.answers())
    assert not effects["n"].range.ranged
    assert str(CredibleSet((16, 64), False, False)) == "16 or 64"
    assert effects["c"].range.values == ("run 7",)


@pytest.mark.parametrize(
    ("difference", "sentence"),
    [
        (Estimate(0.5, 0.4, 0.6), "worse than the recommended parameters, by 0.5 [0.4, 0.6]"),
        (Estimate(-0.5, -0.6, -0.4), "better than the recommended parameters, by 0.5 [0.4, 0.6]"),
        (Estimate(0.1, -0.4, 0.6), "not visibly different from the recommended parameters"),
        (None, ""),
    ],
)
def test_the_first_trial_is_compared_in_words(difference, sentence):
    assert summary.first_trial(difference) == sentence


@pytest.mark.parametrize(
    ("decision", "gain", "sentence"),
    [
        (
            "stop",
            (0.001, 0, 0.005),
            "would improve it by less than 0.1, too little to matter: stop",
        ),
        ("go on", (0.5, 0.2, 0.9), "20 more trials would improve it by about 0.5: go on"),
        ("undecided", (0.2, 0, 0.9), "may improve it by nothing or up to 0.9, 0.2 on average"),
    ],
)
def test_the_decision_about_more_trials_is_one_sentence(decision, gain, sentence):
    assert sentence_of(Estimate(*gain), decision).endswith(sentence)


@pytest.mark.parametrize(("visible", "hidden"), [(0, 3), (2, 0), (7, 3)])
def test_every_parameter_is_either_important_or_not_visible_yet(visible, hidden):
    values = CredibleSet((0.25, 0.5), True, False)
    share = Estimate(1 / (visible + hidden), 0.0, 1.0)
    effects = [
        Effect(f"p{number}", share, number < visible, False, values, values, "")
        for number in range(visible + hidden)
    ]
    assert summary.good_values([]) == ""
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


def test_two_points_are_compared_and_a_journal_is_audited(tmp_path):
    path = tmp_path / "run.jsonl"
    result = kbo.minimize(lambda p: (p["x"] - 0.3) ** 2, LINE, 9, journal=path)
    worse = result.compare({"x": 0.9})
    assert worse.lower <= 0.36 <= worse.upper
    assert worse.probability > 0.99
    same = result.compare(result.params)
    assert (same.value, same.probability) == (0.0, 0.5)
    with pytest.raises(kbo.InvalidInput):
        result.compare({"x": 2.0})
    found = kbo.audit(path).result
    assert found.params == result.params
    assert (found.lower, found.upper) == (result.lower, result.upper)


# Audits of tables


def losses(n=16):
    rng = random.Random(0)
    for number in range(n):
        lr, layers = 10 ** rng.uniform(-4, -1), rng.randint(1, 4)
        value = (math.log10(lr) + 2.5) ** 2 + 0.1 * abs(layers - 2) + 0.05 * rng.gauss(0, 1)
        yield {"number": number + 100, "lr": lr, "layers": layers, "loss": value, "seed": 3}


def test_a_table_is_audited(tmp_path):
    table = pd.DataFrame(losses())
    path = tmp_path / "trials.csv"
    table.to_csv(path, index=False)
    found = kbo.audit(path)
    best = table.loc[table.loss.idxmin()]
    assert found.reported == (best.number, pytest.approx(best.loss))
    space = found.result.optimizer.space
    assert set(space.parameters) == {"lr", "layers"}  # seed is constant
    assert space.parameters["lr"].log
    assert found.likely in range(100, 116)
    assert "ranges are those of the trials" in str(found)
    assert "bound, widen it" not in str(found)
    assert "Matters" in str(found)
    given = {"lr": kbo.Float(1e-5, 1, log=True), "layers": kbo.Int(1, 9)}
    upside_down = kbo.audit(path, maximize=True, bounds=given)
    assert upside_down.reported[0] == table.loc[table.loss.idxmax()].number
    assert "ranges are" not in str(upside_down)
    page = tmp_path / "page.html"
    printed = command("audit", path, "--target", "loss", "--to", page).stdout
    assert str(found).splitlines()[1] in printed
    text = page.read_text().replace(' class="number"', "")
    assert "trials.csv" in text
    assert "Trials of the table" in text
    assert f"<td>{found.likely}</td>" in text
    assert "Resuming the run" not in text


def test_rows_of_a_table_that_cannot_be_used_are_counted():
    values = [float(i) for i in range(12)]
    table = pd.DataFrame({0: [0.1 * i for i in range(12)], "c": ["a", None] * 6, "value": values})
    found = str(kbo.audit(table))
    assert "6 trials, 6 rows left out (the first is row 1: it has no c); no parameter" in found
    states = table.drop(columns="c").assign(
        state=["FINISHED"] * 10 + ["FAILED"] * 2, number=range(50, 62)
    )
    again = pd.concat([states[:5], states[5:].reset_index(drop=True)])  # an index not unique
    found = kbo.audit(again, maximize=True)
    assert found.reported == (59, 9.0)
    assert "10 trials, 2 rows left out" in str(found)
    assert "logarithmic" not in str(found)
    with pytest.raises(kbo.InvalidInput, match="has no column z"):
        kbo.audit(states, bounds={"z": (0.0, 1.0)})
    outside = kbo.audit(states, bounds={"0": (0.0, 0.75)})
    assert len(outside.result.trials) == 8


def test_a_column_that_counts_the_rows_is_no_parameter():
    xs = [0.1 * i for i in range(10)]
    values = [(i - 4) ** 2 for i in range(10)]
    found = kbo.audit(pd.DataFrame({"run": range(7, 17), "x": xs, "value": values}))
    assert set(found.result.params) == {"x"}
    assert "it counts the rows: run" in str(found)


@pytest.mark.parametrize(
    ("history", "message"),
    [
        (3, "history must be a study of Optuna"),
        ("nowhere.csv", "there is no file"),
        ("nowhere.db", "there is no file"),
        ("notes.md", "there is no file"),
        ("a,b\n1,2", "name that of the values"),
        ("a,value\n1,2\n1,3", "no column has two values"),
        ("a,value\n,2", "no row has a value"),
        ("a,value,state\n1,2,FAILED\n2,3,FAILED", "no row has a value"),
    ],
)
def test_what_cannot_be_audited_is_refused(history, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if isinstance(history, str) and "\n" in history:
        (tmp_path / "table.csv").write_text(history)
        history = "table.csv"
    with pytest.raises(kbo.InvalidInput, match=message):
        kbo.audit(history)


# Audits of Optuna and Ax


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
    optuna.create_study(storage=storage, study_name="one")
    sampler = optuna.samplers.RandomSampler(seed=1)
    study = optuna.create_study(storage=storage, study_name="two", sampler=sampler)
    study.optimize(objective, 20)
    found = kbo.audit(tmp_path / "studies.db", study="two")
    assert found.reported == (study.best_trial.number, study.best_value)
    assert found.result.params == study.trials[found.likely].params
    assert found.result.params["optimizer"] == "adam"
    assert " pruned" in str(found).splitlines()[0]
    assert str(kbo.audit(study)) == str(found)
    with pytest.raises(kbo.InvalidInput, match="has the studies one, two: name one"):
        kbo.audit(storage)
    with pytest.raises(kbo.InvalidInput, match="no trial that ended has parameters"):
        kbo.audit(storage, study="one")
    with pytest.raises(kbo.InvalidInput, match=r"history must be a optuna.*Study, got"):
        kbo.audit(study.trials[0])


def test_direction_constraints_options_and_error_bars_of_optuna_are_kept():
    optuna = pytest.importorskip("optuna")
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage, direction="maximize")
    with warnings.catch_warnings(action="ignore"):  # that a storage cannot keep tuples
        distributions = {
            "x": optuna.distributions.FloatDistribution(0, 1),
            "layers": optuna.distributions.CategoricalDistribution([(8, 8), (4,)]),
        }
        for i in range(10):
            x = i / 9
            options = {
                "params": {"x": x, "layers": [(8, 8), (4,)][i % 2]},
                "constraints": {"memory": x - 0.5},
                "user_attrs": {"sem": 0.01 if i > 2 else math.nan},
            }
            value = -((x - 0.8) ** 2) - 0.01 * (i % 2)
            study.add_trial(
                optuna.trial.create_trial(value=value, distributions=distributions, **options)
            )
        found = kbo.audit(storage)
    optimizer = found.result.optimizer
    assert optimizer.maximize
    assert [str(limit) for limit in optimizer.constraints] == ["memory <= 0"]
    assert found.reported[0] == found.likely == 4
    assert found.result.params["layers"] == "(8, 8)"
    errors = [trial.measured.get("sem") for trial in found.result.trials]
    assert errors == [None] * 3 + [0.01] * 7


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
    study.optimize(objective, 16)
    found = kbo.audit(study.trials_dataframe(), maximize=True)
    assert found.reported == (study.best_trial.number, study.best_value)
    assert found.result.params == study.trials[found.likely].params
    assert "rows left out" in str(found)
    assert "left out, since they are no parameters" not in str(found)


def test_an_experiment_of_ax_is_audited_with_its_error_bars(tmp_path):
    api = pytest.importorskip("ax.api.client")
    from ax.api.configs import RangeParameterConfig

    client = api.Client()
    parameter = RangeParameterConfig(name="x", parameter_type="float", bounds=(0.0, 1.0))
    client.configure_experiment([parameter])
    client.configure_optimization(objective="-loss")
    for i in range(8):
        loss = (i / 7 - 0.3) ** 2 + 0.01 * (-1) ** i
        index = client.attach_trial({"x": i / 7})
        client.complete_trial(index, {"loss": (loss, 0.01 * i) if i else loss})
    client.save_to_json_file(str(tmp_path / "client.json"))
    found = kbo.audit(tmp_path / "client.json")
    assert found.reported == (3, pytest.approx((3 / 7 - 0.3) ** 2 - 0.01))
    assert str(kbo.audit(client)).splitlines()[1:] == str(found).splitlines()[1:]
    errors = [trial.measured.get("sem") for trial in found.result.trials]
    assert errors == [None, *(pytest.approx(0.01 * i) for i in range(1, 8))]
