"""Answers of a run in the units of its objective, and audits of the histories of other tools."""

import math
import random
import re
import warnings
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR

import pandas as pd
import pytest
import torch

import kbo
from kbo._base.terminal import beside, bounded, confidence_level, rounded, rounded_up
from kbo.optimize.confirmation.confirmation import Finalist
from kbo.optimize.insight.answers import Answers
from kbo.optimize.insight.comparison import Estimate
from kbo.optimize.insight.credible_sets import CredibleSet, open_choices
from kbo.optimize.insight.outlier import Outlier
from kbo.optimize.result import result_of
from kbo.optimize.run.table import format_params
from kbo.report import advice, summary
from kbo.workers.call import CallOutcome
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
    draws = -optimizer.insight.report_surrogate().draws(features, 4000, generator(1))
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
    assert found.n_inside[1] == 30
    hidden = advice.what_matters(found.effects).split("; ")[1]
    assert hidden.startswith("not certain yet: unused (at most ")
    assert "20 more trials (10 minutes) " in advice.more_trials(found)
    assert open_choices(found.effects) == []


def test_a_run_does_not_stop_while_several_options_may_be_the_best():
    rng = random.Random(0)
    offsets = {"a": 0.0, "b": 0.01, "c": 0.6, "d": 0.9}

    def objective(params):
        return (params["x"] - 0.3) ** 2 + offsets[params["c"]] + 0.1 * rng.gauss(0, 1)

    optimizer = told(objective, {"x": (0.0, 1.0), "c": list("abcd")}, 16)
    found = optimizer.insight.answers(tolerance=100.0)
    assert open_choices(found.effects) == ["c"]
    assert found.decision == "undecided"
    assert advice.more_trials(found).endswith(
        "; it is not certain yet which c is best: stop if any of them will do"
    )


def test_a_run_stops_where_equally_good_options_leave_nothing_to_gain():
    space = {"n": kbo.Int(0, 6), "c": list("abd")}
    optimizer = kbo.Optimizer(space, setting=kbo.Practical(noise_std=0.0))
    for n in range(7):
        for c in "abd":
            optimizer.tell({"n": n, "c": c}, 4.0 + n if c == "a" else 3.0)
    found = optimizer.insight.answers()
    assert open_choices(found.effects) == ["c"]  # b and d are equally good
    assert (found.gain.upper, found.decision) == (0.0, "stop")


def test_a_run_does_not_stop_while_an_option_with_own_parameters_was_hardly_tried():
    space = [
        {"model": ["a", "b"]},
        kbo.When("model", "a", {"x": (0.0, 1.0)}),
        kbo.When("model", "b", {"y": (0.0, 1.0)}),
    ]
    optimizer = kbo.Optimizer(space)
    for number in range(12):
        optimizer.tell({"model": "a", "x": number / 11}, number / 11)
    for number in range(4):
        found = optimizer.insight.answers(tolerance=100.0)
        assert found.decision == "undecided"
        assert found.hardly_tried == ["model = b"]
        assert "; hardly tried so far: model = b: stop if you can do" in advice.more_trials(found)
        optimizer.tell({"model": "b", "y": number / 3}, 2.0 + number / 3)
    found = optimizer.insight.answers(tolerance=100.0)
    assert (found.hardly_tried, found.decision) == ([], "stop")


def test_a_whole_number_from_zero_or_one_on_has_no_lower_edge():
    for low, edge in ((0, ""), (1, ""), (2, "lower")):
        space = {"layers": kbo.Int(low, low + 9), "z": (0.0, 1.0)}
        found = told(lambda p: p["layers"], space, 12).insight.answers()
        assert by_name(found)["layers"].edge == edge
        found = told(lambda p: -p["layers"], space, 12).insight.answers()
        assert by_name(found)["layers"].edge == "upper"


def test_a_value_at_a_bound_with_better_ones_beyond_is_told():
    space = {"x": kbo.Float(2.0, 3.0), "z": (0.0, 1.0)}
    found = told(lambda p: p["x"], space, 12).insight.answers()
    assert by_name(found)["x"].edge == "lower"
    sentence = "; x is at its lower bound, widen it if you can"
    assert advice.ranges(found.effects).endswith(sentence)
    assert sentence not in advice.ranges(found.effects, has_bounds=False)
    stop = replace(found, decision="stop")
    assert advice.decision(stop) == "stop, or widen x"
    assert advice.more_trials(stop).endswith(": stop, or widen x")
    undecided = replace(found, decision="undecided")
    assert advice.decision(undecided) == "undecided"
    words = {"act": kbo.Ordinal(["relu", "tanh"]), "z": (0.0, 1.0)}
    found = told(lambda p: float(p["act"] == "tanh"), words, 12).insight.answers()
    assert by_name(found)["act"].edge == ""
    optimizer = kbo.Optimizer(LINE, setting=kbo.Practical(noise_std=0.0))
    for number in range(14):
        x = 0.981 * number / 13  # the last one is close to the bound
        optimizer.tell({"x": x}, -x)
    assert by_name(optimizer.insight.answers())["x"].edge == "upper"


def error(params):
    """An error rate with a long tail of bad values."""
    if params["x"] > 0.9:
        return 2.0
    return 0.5 + params["x"] / 2 if params["x"] > 0.7 else 0.03 + 0.1 * (params["x"] - 0.3) ** 2


@pytest.mark.parametrize(("value_range", "sign"), [((0.0, 1.0), 1), ((-1.0, 0.0), -1)])
def test_no_number_is_beyond_the_limits_of_the_intervals(value_range, sign, tmp_path):
    options = {"maximize": sign < 0, "value_range": value_range, "journal": tmp_path / "j"}
    optimizer = kbo.Optimizer(LINE, **options)
    for number in range(20):
        trial = optimizer.run.begin({"x": 0.95 - number / 21})
        optimizer.run.end(CallOutcome(trial.number, value=sign * error(trial.params)))
    assert "2, which is outside the value_range" in optimizer.trials[0].failure
    optimizer.close()
    optimizer = kbo.Optimizer(LINE, **options)
    units = torch.rand(200, 1, generator=generator(), dtype=torch.float64)
    draws = sign * -optimizer.insight.report_surrogate().draws(units, 100, generator())
    for numbers in (draws, *optimizer.insight.intervals(units)):
        assert value_range[0] <= float(numbers.min()) <= float(numbers.max()) <= value_range[1]
    # No gain is larger than the recommended value, which is at least 0.
    ends = optimizer.interval(optimizer.recommended().params)
    assert optimizer.insight.answers(effects=False).gain.upper <= max(map(abs, ends)) + 0.01
    assert abs(optimizer.insight.compare({"x": 0.9}).upper) <= 1.0
    optimizer.close()


def test_differences_gains_and_effects_are_told_in_words():
    worse = "worse than the recommended parameters, by 0.50 [0.40, 0.60]"
    assert advice.first_trial(Estimate(0.4, 0.5, 0.6)) == worse
    unclear = "not visibly different from the recommended parameters"
    assert advice.first_trial(Estimate(-0.4, 0.1, 0.6)) == unclear
    for decision, gain, sentence in (
        (
            "stop",
            Estimate(0, 0.001, 0.005),
            "0.001 on average, too little to matter (0.1 or less): stop",
        ),
        (
            "undecided",
            Estimate(0, 0.2, 0.9),
            "by nothing or up to 0.9, 0.2 on average (0.1 or less does not matter); stop if 0.2 is not worth them, "
            "else go on",
        ),
    ):
        answers = Answers(None, gain, decision, None, 0.1, [], (0, 0))
        assert advice.more_trials(answers).endswith(sentence)
    beyond = Answers(None, gain, "go on", None, 0.1, [], (0, 0), beyond_zero=True)
    assert "part of this may be beyond 0: if no value can be there" in advice.more_trials(beyond)
    assert "begin a new run with value_range" in advice.more_trials(beyond)
    assert "begin a new run" not in advice.more_trials(beyond, has_bounds=False)
    nothing = Answers(None, Estimate(0, 0, 0), "stop", None, 0.0, [], (0, 0))
    assert advice.more_trials(nothing).endswith("by 0 on average, too little to matter: stop")
    shown = {(0.01401, 0.031): "0.014", (123456, 2300): "123500", (1e300, 2e299): "1.00e+300"}
    for (number, width), text in shown.items():
        assert rounded(number, width) == text
        assert float(rounded(number, width, ROUND_FLOOR)) <= number
        assert float(rounded(number, width, ROUND_CEILING)) >= number


NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]\d+)?")


def numbers_in(text):
    return [float(number) for number in NUMBER.findall(text)]


def test_a_number_that_is_rounded_up_is_not_smaller_than_it_is():
    for number in (1e-323, 0.01049, 0.0, 1.0000000000005, 123.0, 1.5e300, math.inf):
        assert number <= float(rounded_up(number, 2)) <= 1.1 * number
    assert [rounded_up(number, 2) for number in (0.01049, 123.0)] == ["0.011", "130"]


def test_a_confidence_level_is_rounded_down_and_never_100_percent():
    deltas = (0.05, 0.07, 0.125, 0.004, 0.05 / 3, 1e-6, 1e-300)
    levels = ["95%", "93%", "87.5%", "99.6%", "98.33%", "99.9999%", "99.9999999999%"]
    assert list(map(confidence_level, deltas)) == levels
    optimizer = told(lambda params: params["x"], LINE, 5, setting=kbo.Practical(delta=0.004))
    assert result_of(optimizer, "", None).sure == "99.6%"


def test_an_interval_without_an_end_has_four_digits_rounded_outwards():
    assert bounded(-math.inf, 1.23456, math.inf) == "1.235 [-inf, inf]"
    assert bounded(1.23456, 2.34567, math.inf) == "2.346 [1.234, inf]"
    assert bounded(-math.inf, 2.34567, 3.45611) == "2.346 [-inf, 3.457]"


def test_a_rounded_number_stays_inside_its_rounded_interval_and_on_its_side_of_a_limit():
    chance = random.Random(0)
    for _ in range(3000):
        number = chance.gauss(0, 1) * 10 ** chance.randint(-3, 5)
        width = abs(number) * 10 ** chance.uniform(-5, 1)
        lower = number - width * chance.random()
        upper = number + width * chance.random()
        value, low, high = numbers_in(bounded(lower, number, upper).replace("[", " "))
        assert low <= value <= high, (lower, number, upper)
        value = float(format_params({"x": number}).removeprefix("x="))
        low, high = numbers_in(str(CredibleSet((lower, upper), True, False)))
        assert low <= value <= high, (lower, number, upper)
        limit = lower if chance.random() < 0.5 else upper
        assert (float(beside(number, limit)) < limit) == (number < limit)
        question = summary.in_question(Outlier(3, upper + 2 * width, lower, upper, True), range(4))
        _, value, low, high = numbers_in(question)
        assert value > high > low, question
        gain = Answers(None, Estimate(width, 0, 0), "stop", None, 1.001 * width, [], (0, 0))
        _, value, tolerance = numbers_in(advice.more_trials(gain))
        assert value <= tolerance


def test_the_values_of_a_front_without_noise_are_certain_and_have_no_coverage():
    for noise_std, exact in ((0.0, True), (0.1, False)):
        setting = kbo.Practical(noise_std=noise_std)
        goals = ["cost", kbo.Minimize("time", noise_std=noise_std)]
        optimizer = kbo.Optimizer(LINE, setting=setting, objectives=goals)
        for number in range(8):
            optimizer.tell({"x": number / 7}, {"cost": number / 7, "time": (number / 7 - 0.8) ** 2})
        printed = optimizer.summary()
        assert ("Certain?  yes, the values: the objectives have no noise" in printed) == exact
        assert ("nominally 90%" not in printed) == exact
        assert "optimizer.insight.front().choose(limits=...) picks one" in printed
        assert optimizer.insight.front().choose(limits={"cost": 0.5})


def test_the_ways_to_check_the_best_trial_are_those_of_its_reader(tmp_path):
    journal = tmp_path / "run.jsonl"
    optimizer = kbo.Optimizer(LINE, setting=kbo.Practical(noise_std=0.1), journal=journal)
    for number in range(8):
        optimizer.tell({"x": number / 7}, (number / 7) ** 2)
    assert "evaluate the best ones again, and tell their results: tri" in optimizer.summary()
    optimizer.close()
    audited = str(kbo.audit(journal))
    assert f"`kbo confirm SCRIPT --journal {journal}`" in audited
    assert f"`kbo tell {journal} TRIAL VALUE --again`" in audited
    table = pd.DataFrame({"x": [i / 7 for i in range(8)], "value": [i * i for i in range(8)]})
    assert "kbo confirm SCRIPT" not in str(kbo.audit(table))


def test_every_answer_prints_as_a_sentence_with_rounded_numbers():
    chance = random.Random(0)
    goals = ["cost", kbo.Maximize("yield")]
    optimizer = kbo.Optimizer(LINE, objectives=goals, seed=0)
    for number in range(8):
        x = number / 7
        measured = {"cost": x + chance.gauss(0, 0.01), "yield": x - x * x}
        optimizer.tell({"x": x}, measured)
    front = result_of(optimizer, "", None).front
    assert len(str(front).splitlines()) == len(front.points) + 1
    assert "one number for the whole front (its hypervolume), larger" in summary.hypervolume(front)
    extent = summary.front_extent(front, range(8))
    for name in ("cost", "yield"):
        low, high = numbers_in(extent.partition(f"{name} ")[2])[:2]
        for point in front.points:
            assert low <= numbers_in(str(point.values[name]))[0] <= high, extent
    single = told(lambda params: params["x"] + chance.gauss(0, 0.1), LINE, 8)
    answers = single.insight.answers()
    texts = [str(front), str(front.balanced), str(front.hypervolume)]
    texts += [str(answers), str(answers.gain), str(answers.effects[0]), str(single.gap())]
    texts.append(str(single.insight.compare({"x": 0.9})))
    texts.append(str(Finalist("a", {"x": 0.123456789}, [1.123456789], -math.inf, math.inf)))
    texts.append(str(Outlier(3, 9.5123456, 1.123456, 2.123456, True)))
    for text in texts:
        assert not re.search(r"\w\(\w+=", text), text
        assert not re.search(r"\d\.\d{8}", text), text
    assert texts[-1] == (
        "trial 3 has 9.512, the other trials predict 1.1 to 2.2 (90%): probably a mistake"
    )


def test_exact_values_on_a_front_have_no_probability():
    for repeated, n_intervals in (([], 2), ([3], 0)):
        optimizer = kbo.Optimizer(LINE, objectives=["cost", "waste"])
        for number in [*range(8), *repeated]:
            x = number / 7
            optimizer.tell({"x": x}, {"cost": x + 1, "waste": 1 - x * x})
        result = result_of(optimizer, "", None)
        balanced = dict(summary.lines(result))["Balanced"]
        assert balanced.count("(90%)") == n_intervals


def test_a_gain_whose_upper_end_is_beyond_zero_is_told_unless_a_range_excludes_it():
    values = [0.34, 0.14, 0.065, 0.09, 0.24, 0.34]
    for value_range, is_beyond in ((None, True), ((0.0, 1.0), False)):
        setting = kbo.Practical(noise_std=0.0)
        optimizer = kbo.Optimizer(LINE, setting=setting, value_range=value_range)
        for number, value in enumerate(values):
            optimizer.tell({"x": number / 5}, value)
        found = optimizer.insight.answers(effects=False)
        assert found.gain.value < 0.065
        assert found.beyond_zero == is_beyond


def test_a_run_whose_limits_no_trial_keeps_says_so_first_and_advises_nothing(tmp_path):
    def objective(params):
        return (params["x"] - 0.3) ** 2, {"m": params["x"] + 5, "n": params["x"]}

    limits = [kbo.Constraint("m", upper=3), kbo.Constraint("n", lower=0.0)]
    result = kbo.minimize(objective, LINE, 12, constraints=limits)
    closest = min(result.trials, key=lambda trial: trial.params["x"])
    first, *others = str(result).splitlines()
    start = f"no trial kept m <= 3; the closest is trial {closest.number} with m = 5: if"
    assert first.startswith(f"Limits    {start}")
    assert result.answers is None
    assert not any(line.startswith(("Limits", "More?")) for line in others)
    page = kbo.report.write(result, tmp_path / "page.html").read_text()
    assert f"Limits: {start.replace('<', '&lt;')}" in page
    assert "More trials?" not in page
    together = [kbo.Constraint("m", upper=5.5), kbo.Constraint("n", lower=0.6)]
    result = kbo.minimize(objective, LINE, 12, constraints=together)
    assert "no trial kept m <= 5.5 and n >= 0.6 together; the closest is trial" in str(result)


def test_a_run_stops_when_little_is_expected_of_more_trials():
    result = kbo.minimize(lambda x: (x[0] - 0.3) ** 2, [(0.0, 1.0)], 60, stop_when=0.05, seed=0)
    assert len(result.trials) < 60
    assert "20 more trials are expected to improve the value by" in result.stopped
    assert result.answers.gain.value <= 0.05


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
    noise = random.Random(0)
    noisy = kbo.minimize(lambda p: (p["x"] - 0.3) ** 2 + noise.gauss(0, 0.1), LINE, 9)
    assert noisy.compare(noisy.params) == (0.0, 0.0, 0.0, 0.5)
    assert str(noisy.compare(noisy.params)) == "no difference"
    found = kbo.audit(path).result
    assert (found.params, found.lower) == (result.params, result.lower)


# Audits of tables


def losses():
    rng = random.Random(0)
    for number in range(16):
        lr, layers = 10 ** rng.uniform(-4, -1), rng.randint(1, 4)
        value = (math.log10(lr) + 2.5) ** 2 + 0.1 * abs(layers - 2) + 0.05 * rng.gauss(0, 1)
        names = {"number": number + 100, "run": number + 7, "seed": 3}
        yield {**names, "lr": lr, "layers": layers, "loss": value}


def test_a_table_is_audited(tmp_path):
    table = pd.DataFrame(losses())
    path = tmp_path / "trials.csv"
    table.to_csv(path, index=False)
    found = kbo.audit(path)
    best = table.loc[table.loss.idxmin()]
    assert found.reported == (best.number, pytest.approx(best.loss))
    space = found.result.optimizer.space
    assert set(space.parameters) == {"lr", "layers"}  # seed is constant, run counts the rows
    assert space.parameters["lr"].log
    assert found.likely in range(100, 116)
    assert "ranges are those of the trials" in str(found)
    assert "run (it counts the rows)" in str(found)
    assert "bound, widen it" not in str(found)
    page = tmp_path / "page.html"
    printed = command("audit", path, "--target", "loss", "--to", page).stdout
    assert str(found).splitlines()[1] in printed
    text = page.read_text().replace(' class="number"', "")
    assert "Trials of the table" in text
    assert f"<td>{found.likely}</td>" in text


def test_rows_of_a_table_that_cannot_be_used_are_counted():
    values = [float(i) for i in range(12)]
    table = pd.DataFrame({0: [0.1 * i for i in range(12)], "c": ["a", None] * 6, "value": values})
    found = str(kbo.audit(table))
    assert "6 trials, 6 rows left out (the first is row 1: it has no c); columns that are" in found
    states = table.drop(columns="c").assign(
        state=["FINISHED"] * 10 + ["FAILED"] * 2, number=range(50, 62)
    )
    again = pd.concat([states[:5], states[5:].reset_index(drop=True)])  # an index not unique
    found = kbo.audit(again, maximize=True)
    assert found.reported == (59, 9.0)
    assert len(found.result.trials) == 10
    with pytest.raises(kbo.InvalidInput, match="has no column z"):
        kbo.audit(states, bounds={"z": (0.0, 1.0)})
    outside = kbo.audit(states, bounds={"0": (0.0, 0.75)})
    assert len(outside.result.trials) == 8


SPEEDS = [100, 103, 107, 109, 112, 118, 121, 126]


def table_of_speeds(path, speeds, separator=",", value=str):
    lines = [f"{speed}{separator}{value(0.5 * i)}" for i, speed in enumerate(speeds)]
    path.write_text("\n".join([f"speed{separator}value", "", *lines]))
    return path


@pytest.mark.parametrize("wrong", ["fast", "1O9"])
def test_a_mistyped_number_in_a_table_is_refused_with_its_line(tmp_path, wrong):
    speeds = [*SPEEDS[:3], wrong, *SPEEDS[4:]]
    path = table_of_speeds(tmp_path / "speeds.csv", speeds)
    for history, place in ((path, "line 6"), (pd.read_csv(path), "row 3")):
        message = f"speed: 7 of 8 entries are numbers, and '{wrong}' in {place} is not: correct it"
        with pytest.raises(kbo.InvalidInput, match=message):
            kbo.audit(history)
    found = kbo.audit(path, bounds={"speed": [*SPEEDS, wrong]})
    assert [trial.params["speed"] for trial in found.result.trials] == speeds
    found = kbo.audit(path, bounds={"speed": (100, 126)})
    assert "1 row left out (the first is line 6: parameter 'speed': " in found.history.remark
    texts = kbo.audit(table_of_speeds(path, ["slow", "fast", 109, "fast"]))
    assert len(texts.result.trials) == 4


def test_a_table_with_decimal_commas_is_audited(tmp_path):
    plain = kbo.audit(table_of_speeds(tmp_path / "plain.csv", SPEEDS))
    values = [trial.value for trial in plain.result.trials]
    for separator in ";\t":
        path = table_of_speeds(
            tmp_path / "commas.csv", SPEEDS, separator, lambda x: str(x).replace(".", ",")
        )
        found = kbo.audit(path)
        assert [trial.value for trial in found.result.trials] == values
        assert found.result.params == plain.result.params


def test_missing_entries_of_a_table_are_written_in_many_ways(tmp_path):
    missing = ["", "NA", "NaN", "None", "null"]
    lines = [f"{word},{number},0.5" for number, word in enumerate(missing)]
    lines += [f"{word},9,{number}" for number, word in enumerate(["none", "adam", "adam"])]
    (tmp_path / "table.csv").write_text("\n".join(["kind,layers,value", *lines]))
    found = kbo.audit(tmp_path / "table.csv")
    assert [trial.params["kind"] for trial in found.result.trials] == ["none", "adam", "adam"]
    assert "5 rows left out (the first is line 2: it has no kind)" in found.history.remark
    assert "layers (it has one value)" in found.history.remark


class Columns:
    """A table of another library, such as Polars."""

    columns = ("a", "value")


def test_what_cannot_be_audited_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = {
        3: "history must be a study of Optuna",
        Columns(): "history must be a study of Optuna",
        "a,b\n1,2": "name that of the values",
        "a,value,state\n1,2,FAILED": "no row has a value",
    }
    for history, message in refused.items():
        (tmp_path / "table.csv").write_text(str(history))
        given = "table.csv" if "\n" in str(history) else history
        with pytest.raises(kbo.InvalidInput, match=message):
            kbo.audit(given)


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
    study.optimize(objective, 12)
    found = kbo.audit(tmp_path / "studies.db", study="two")
    assert found.reported == (study.best_trial.number, study.best_value)
    assert found.result.params == study.trials[found.likely].params
    assert found.result.params["optimizer"] == "adam"
    assert " stopped early" in str(found).splitlines()[0]
    with pytest.raises(kbo.InvalidInput, match="has the studies one, two: name one"):
        kbo.audit(storage)


def test_direction_constraints_options_and_error_bars_of_optuna_are_kept():
    optuna = pytest.importorskip("optuna")
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage, direction="maximize")
    layers = [(8, 8), (4,)]
    with warnings.catch_warnings(action="ignore"):  # that a storage cannot keep tuples
        for i in range(10):
            x = i / 9
            study.add_trial(
                optuna.trial.create_trial(
                    params={"x": x, "layers": layers[i % 2]},
                    distributions={
                        "x": optuna.distributions.FloatDistribution(0, 1),
                        "layers": optuna.distributions.CategoricalDistribution(layers),
                    },
                    value=-((x - 0.8) ** 2) - 0.01 * (i % 2),
                    constraints={"memory": x - 0.5},
                    user_attrs={"sem": 0.01 if i > 2 else math.nan},
                )
            )
        found = kbo.audit(study)
    optimizer = found.result.optimizer
    assert optimizer.maximize
    assert [str(limit) for limit in optimizer.constraints] == ["memory <= 0"]
    assert found.reported[0] == found.likely == 4
    assert "trial 4, which also has the best observed value: " in str(found)
    assert found.result.params["layers"] == "(8, 8)"
    errors = [trial.measured.get("sem") for trial in found.result.trials]
    assert errors == [None] * 3 + [0.01] * 7


def test_the_table_of_a_study_of_optuna_is_audited():
    optuna = pytest.importorskip("optuna")
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=1))
    study.optimize(lambda trial: -((trial.suggest_float("x", 0, 1) - 0.3) ** 2), 8)
    found = kbo.audit(study.trials_dataframe(), maximize=True)
    assert found.reported == (study.best_trial.number, study.best_value)
    assert found.result.params == study.trials[found.likely].params


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
    for history in (tmp_path / "client.json", client):
        found = kbo.audit(history)
        assert found.reported == (3, pytest.approx((3 / 7 - 0.3) ** 2 - 0.01))
        errors = [trial.measured.get("sem") for trial in found.result.trials]
        assert errors == [None, *(pytest.approx(0.01 * i) for i in range(1, 8))]
