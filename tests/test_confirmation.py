"""Confirmation of a few candidates: its intervals, its choices, and what ends it."""

import io
import itertools
import math
import random
import re
from dataclasses import replace

import pytest
from scipy.integrate import quad

import kbo
from experiments.guarantees import confirmation as confirmation_figures
from kbo._base.streams import AboveBar
from kbo.confidence.repeated import bounded_mean, median, median_bounds
from kbo.errors import AnotherProblem, InvalidInput, JournalError, TooManyFailures
from kbo.optimize.confirmation.confirmation import Finalist
from kbo.optimize.confirmation.race import Race
from kbo.optimize.result import result_of
from tests.commands import kbo as command

CANDIDATES = [{"x": 0.3}, {"x": 0.35}, {"x": 0.9}]


def noisy(seed=0, level=0.05):
    rng = random.Random(seed)
    return lambda params: (params["x"] - 0.3) ** 2 + level * (1 + params["x"]) * rng.gauss(0, 1)


def averaged_likelihood_ratio(s, n):
    """The average over p in (0, 1/2) of the likelihood of s values of n below a point, over that of fair coins."""
    return 2 * quad(lambda p: (2 * p) ** s * (2 * (1 - p)) ** (n - s), 0, 0.5)[0]


@pytest.mark.parametrize("alpha", [0.3, 0.025, 0.002])
def test_a_bound_of_the_median_is_the_last_value_that_the_averaged_likelihood_ratio_keeps(alpha):
    for n in (1, 5, 10, 11, 40, 81, 200):
        values = list(range(n))
        refuted = [s for s in range((n + 1) // 2) if averaged_likelihood_ratio(s, n) >= 1 / alpha]
        expected = (refuted[-1], n - 1 - refuted[-1]) if refuted else (-math.inf, math.inf)
        assert median_bounds(values[::-1], alpha, alpha) == expected


def test_few_values_say_nothing_and_equal_ones_are_their_median():
    assert median_bounds([1.0] * 8, 0.01, 0.01) == (-math.inf, math.inf)
    assert median_bounds([1.0] * 9, 0.01, 0.01) == (1.0, 1.0)
    assert bounded_mean([], 0.05, -1.0, 3.0) == (-1.0, 3.0)
    assert [median([4.0, 1.0]), median([1.7e308, 1.7e308])] == [2.5, 1.7e308]


def test_the_wealth_of_a_gambler_is_that_of_the_definition():
    x, alpha = [0.2, 0.9, 0.4, 0.7, 1.0, 0.8] * 5, 0.1
    lower, upper = bounded_mean(x, alpha, 0.0, 1.0)
    for m, sign, level in ((lower, 1, 2 / alpha), (upper, -1, 2 / alpha)):
        wealth, seen = 1.0, []
        for t, one in enumerate(x, 1):
            means = [(0.5 + sum(seen[: i + 1])) / (i + 2) for i in range(len(seen))]
            variance = (0.25 + sum((a - b) ** 2 for a, b in zip(seen, means, strict=True))) / t
            bet = math.sqrt(2 * math.log(2 / alpha) / (variance * t * math.log(t + 1)))
            wealth *= 1 + sign * min(bet, 0.5 / (m if sign > 0 else 1 - m)) * (one - m)
            seen.append(one)
        assert wealth == pytest.approx(level, rel=1e-6)


def test_the_best_is_found_and_the_others_get_few_evaluations():
    found = kbo.confirm(noisy(), CANDIDATES, 300, tolerance=0.05)
    assert found.confirmed
    assert found.largest_lead <= 0.05
    assert found.best.params["x"] in (0.3, 0.35)
    assert len(found.finalists[2].values) < 15
    assert "of the best of these 3, with 95%" in str(found)
    assert sum(len(one.values) for one in found.finalists) == found.evaluations < 300


def test_the_least_and_the_largest_are_sought_alike():
    options = {"budget": 60, "tolerance": 0.01}
    least = kbo.confirm(noisy(1), CANDIDATES, **options)
    objective = noisy(1)
    largest = kbo.confirm(lambda p: -objective(p), CANDIDATES, **options, maximize=True)
    for one, other in zip(least.finalists, largest.finalists, strict=True):
        assert list(other.values) == [-y for y in one.values]
    assert largest.largest_lead == least.largest_lead


def test_a_confirmation_continues_from_its_journal(tmp_path):
    path = tmp_path / "confirm.jsonl"

    def confirmed(budget, seed=0, candidates=CANDIDATES):
        return kbo.confirm(noisy(seed), candidates, budget, tolerance=1e-4, journal=path)

    first = confirmed(12)
    more = confirmed(20, seed=5)
    assert (first.evaluations, more.evaluations) == (12, 20)
    assert more.finalists[0].values[: len(first.finalists[0].values)] == first.finalists[0].values
    assert str(confirmed(20)) == str(more)
    with pytest.raises(AnotherProblem):
        confirmed(20, candidates=CANDIDATES[:2])
    with pytest.raises(JournalError, match="confirmation"):
        kbo.report.write(path)


def test_values_wait_for_earlier_evaluations_of_the_same_candidate():
    race = Race({"a": {"x": 0.1}, "b": {"x": 0.2}}, False, 0.1, None, None)
    trials = [race.begin() for _ in range(4)]
    race.run.complete(trials[2], 5.0)
    race.run.complete(trials[1], 2.0)
    assert [list(one.values) for one in race.finalists()] == [[], [2.0]]
    race.run.complete(trials[0], 1.0)
    assert [list(one.values) for one in race.finalists()] == [[1.0, 5.0], [2.0]]


def test_delta_is_shared_among_the_ways_in_which_a_statement_can_be_wrong():
    """The good side of the best candidate has delta / 2, the bad sides of the two others delta / 4 each."""
    candidates = {"a": {"x": 0.1}, "b": {"x": 0.2}, "c": {"x": 0.3}}
    values = [1.0, 2.0, 1.5, 0.7, 1.2, 1.9, 1.1, 1.3, 1.4, 1.6, 0.9]  # so many that levels matter
    for maximize, levels in ((False, (0.05, 0.025)), (True, (0.025, 0.05))):
        race = Race(candidates, maximize, 0.1, None, None)
        for value in values:
            race.run.complete(race.run.begin({"candidate": "b"}), value)
        finalist = race.finalists()[1]
        assert (finalist.lower, finalist.upper) == median_bounds(values, *levels)


FAST = ("values 0 and 1, no range declared", "values 0 and 1, range declared")
RACES = [
    pytest.param(race, id=race.name, marks=() if race.name in FAST else pytest.mark.thorough)
    for race in confirmation_figures.RACES
]


@pytest.mark.parametrize("race", RACES)
def test_no_statement_is_wrong_whatever_the_noise(race):
    """A part of the figures of docs/reliability.md: a statement is true, or none is made; delta allows 5%."""
    found = [race.run(seed, 200) for seed in range(8)]
    # more than 2 has a probability of less than 0.6%
    assert sum(race.wrong(one, race.stated()) for one in found) <= 2
    if "no range" in race.name:
        assert not any(one.confirmed or math.isfinite(one.largest_lead) for one in found)


def test_values_that_repeat_need_a_range_and_the_race_ends_when_that_is_clear():
    rng = random.Random(0)
    options = {"candidates": CANDIDATES, "budget": 500, "tolerance": 0.2}
    found = kbo.confirm(lambda params: float(rng.random() < params["x"]), **options)
    assert (found.largest_lead, found.confirmed) == (math.inf, False)
    assert found.evaluations < 60
    assert "give value_range, the least and the largest possible value" in str(found)
    same = kbo.confirm(lambda params: round(params["x"], 1), **options)
    assert same.confirmed  # without noise all values of a candidate are the same


def test_an_interrupt_keeps_what_is_known_and_losses_are_told(tmp_path):
    objective, count = noisy(), itertools.count()

    def interrupted(params):
        if next(count) == 10:
            raise KeyboardInterrupt
        return objective(params)

    options = {"tolerance": 1e-3, "journal": tmp_path / "confirm.jsonl"}
    found = kbo.confirm(interrupted, CANDIDATES, 200, **options)
    assert found.stopped == "interrupted before its end"
    assert found.evaluations == 10
    whole = kbo.confirm(objective, CANDIDATES, 60, **options)
    assert (whole.evaluations, whole.selected) == (60, 1)
    assert "that losing 1 of them did not depend on their values" in str(whole)


def test_a_value_outside_its_range_is_an_error_also_later(tmp_path):
    options = {"value_range": (0, 1), "journal": tmp_path / "confirm.jsonl"}
    for _ in range(2):
        with pytest.raises(InvalidInput, match=r"value_range is \(0.0, 1.0\), and a value was 1.5"):
            kbo.confirm(lambda params: 1.5, CANDIDATES, 20, tolerance=0.1, **options)


def test_statements_are_rounded_so_that_they_stay_true():
    found = kbo.confirm(noisy(), CANDIDATES, 60, tolerance=1e-4, delta=0.004)
    assert "with 99.6%" in str(found)
    assert float(re.search(r"within (\S+) of", str(found)).group(1)) >= found.largest_lead
    assert str(found).splitlines()[-3:] == list(map(str, found.finalists))
    narrow = Finalist("a", {"x": 0.1}, [1.2346], 1.23456, 1.23464)
    assert (
        str(narrow) == "a: median 1.235, mean 1.235 of 1 evaluation, bounds 1.234 to 1.235: x=0.1"
    )
    assert "bound at least 1.234:" in str(replace(narrow, upper=math.inf))
    assert "bound at most 1.235:" in str(replace(narrow, lower=-math.inf))


def test_a_tolerance_that_is_not_reached_comes_with_the_budget_and_the_tolerance_that_would_do():
    few = kbo.confirm(noisy(), CANDIDATES, 12, tolerance=0.01)
    assert few.stopped.endswith(
        "not reached: give a larger budget (--budget, or kbo tune --confirm)"
    )
    found = kbo.confirm(noisy(), CANDIDATES, 60, tolerance=0.01)
    advice = re.search(r"a budget of about (\d+) .*, or a tolerance of (\S+)", found.stopped)
    assert float(advice.group(2)) >= found.largest_lead
    enough = kbo.confirm(noisy(), CANDIDATES, 2 * int(advice.group(1)), tolerance=0.01)
    assert enough.confirmed
    assert enough.evaluations > 60
    assert "would have been seen" in str(found)


def test_the_answer_is_one_plain_line_and_each_fact_another():
    few, several, enough = (
        kbo.confirm(noisy(), CANDIDATES, budget, tolerance=tolerance)
        for budget, tolerance in ((12, 1e-4), (60, 1e-4), (300, 0.05))
    )
    answers = [str(found).splitlines()[0] for found in (few, several, enough)]
    assert answers == [
        "Not decided: each candidate needs more evaluations.",
        "Not decided between candidate 1 and candidate 0.",
        f"Now the best: {enough.best.name}.",
    ]
    for found in (few, several, enough):
        assert "inf" not in str(found)
        assert all(";" not in line for line in str(found).splitlines())


def measuring(*heat):
    """A noisy objective that measures the given heat, or none."""
    value = noisy()
    return lambda params: (value(params), dict(zip(["heat"], heat, strict=False)))


def test_an_answer_says_in_how_many_new_evaluations_a_trial_breaks_limits():
    limit = kbo.Constraint("heat", upper=0.5)
    result = kbo.minimize(measuring(0.2), {"x": (0.0, 1.0)}, 8, constraints=[limit])
    options = {"budget": 200, "tolerance": 0.2}
    hot = result.confirm(measuring(0.78), **options)
    n = len(hot.best.values)
    assert hot.statement.startswith(
        f"Now the best: {hot.best.name}, but it breaks heat <= 0.5 in {n} of {n} new evaluations."
    )
    other = next(finalist for finalist in hot.finalists if finalist is not hot.best)
    n = len(other.values)
    assert f"\n{other.name} breaks heat <= 0.5 in {n} of {n} new evaluations." in hot.statement
    kept = result.confirm(measuring(0.2), **options)
    assert f"All {kept.evaluations} new evaluations keep heat <= 0.5." in kept.statement
    silent = result.confirm(measuring(), **options)
    n = len(silent.best.values)
    assert f"{silent.best.name} has no measurement of heat in {n} of {n} new" in silent.statement
    assert "keep" not in silent.statement


def test_the_share_that_may_not_have_been_seen_is_the_least_whole_percentage_that_is_true():
    found = kbo.confirm(noisy(), CANDIDATES, 60, tolerance=0.01)
    sentence = r"Any one kind of result that makes up more than (\d+)% .* would have been seen"
    share = int(re.search(sentence, str(found)).group(1))
    n = len(found.best.values)
    assert (1 - share / 100) ** n <= 0.05 / 3 < (1 - (share - 1) / 100) ** n


def test_failures_end_it_and_arguments_are_checked():
    with pytest.raises(TooManyFailures, match="5 evaluations failed in a row"):
        kbo.confirm(lambda params: math.nan, CANDIDATES, 20, tolerance=0.1)
    with pytest.raises(InvalidInput, match="candidates"):
        kbo.confirm(noisy(), CANDIDATES[:1], 20, tolerance=0.1)
    with pytest.raises(InvalidInput, match="tolerance"):
        kbo.confirm(noisy(), CANDIDATES, 20, tolerance=0.0)


def test_a_result_confirms_the_trials_that_may_be_best():
    result = kbo.minimize(noisy(3, 0.1), {"x": (0.0, 1.0)}, 12)
    finalists = result.optimizer.insight.finalists()
    assert finalists[0].params == result.params
    assert len(finalists) <= 5
    best = result.confirm(noisy(4, 0.1), 40, tolerance=0.1).best
    assert best.name in [f"trial {trial.number}" for trial in finalists]
    exact = kbo.minimize(lambda params: (params["x"] - 0.3) ** 2, {"x": (0.0, 1.0)}, 12)
    with pytest.raises(InvalidInput, match="nothing to confirm"):
        exact.confirm(noisy(), 20, tolerance=0.1)


def test_without_a_model_the_finalists_are_the_trials_with_the_best_values():
    for method, n in (("random", 8), ("ucb", 3)):
        optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, method=method)
        for i in range(n):
            optimizer.tell({"x": i / n}, [5.0, 3.0, 8.0, 1.0, 9.0, 2.0, 7.0, 4.0][i])
        values = [trial.value for trial in optimizer.insight.finalists()]
        assert values == sorted(trial.value for trial in optimizer.trials)[:5]


def steep_run(setting):
    """The result of 20 trials and 4 repetitions, and the objective: noise 0.2, values from 1 to 125."""
    rng = random.Random(0)

    def steep(params):
        return 10 ** (3 * abs(params["x"] - 0.3)) + 0.2 * rng.gauss(0, 1)

    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, setting=setting)
    for x in [*(i / 20 for i in range(20)), 0.3, 0.3, 0.3, 0.3]:
        optimizer.tell({"x": x}, steep({"x": x}))
    return result_of(optimizer, "", None), steep


def test_the_default_tolerance_is_a_quarter_of_a_given_noise_however_bad_the_worst_parameters_are():
    result, steep = steep_run(kbo.Practical(noise_std=0.2))
    confirmed = result.confirm(steep, 80)
    assert confirmed.tolerance == pytest.approx(0.25 * 0.2)
    assert "A difference of up to 0.05 counts as none." in str(confirmed)


def test_a_fitted_noise_level_is_that_at_the_recommended_parameters():
    result, steep = steep_run(kbo.Practical())
    surrogate = result.settled.insight.report_surrogate()
    assert surrogate.transform.power == 2  # so the noise of targets means more in bad values
    assert result.assumptions["noise_std"] == pytest.approx(0.2, rel=0.25)
    assert "fitted" in result.account["noise"]
    assert surrogate.noise_std == pytest.approx(0.2, rel=0.25)
    assert result.confirm(steep, 30).tolerance == 0.25 * result.assumptions["noise_std"]


def test_lines_take_the_place_of_a_progress_bar():
    stream, drawn = io.StringIO(), []
    above = AboveBar(stream, lambda: drawn.append(stream.getvalue()))
    print("one", "two", file=above)
    above.writelines(["part ", "and rest\n"])
    assert stream.getvalue() == "\r\x1b[Kone two\n\r\x1b[Kpart and rest\n"
    assert len(drawn) == 2


def test_the_command_line_confirms(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = """import random
bounds = {"x": (0.0, 1.0)}
def objective(params):
    return (params["x"] - 0.3) ** 2 + 0.1 * random.gauss(0, 1)
"""
    (tmp_path / "train.py").write_text(script)
    tuned = command("tune", "train.py", "-n", "12", "-q", "--confirm", "20").stdout
    assert "confirmation  " in tuned
    done = command("confirm", "train.py", "--budget", "80", "-q", "--tolerance", "0.2").stdout
    assert "of the best of these" in done
    assert "tune-train-confirm.jsonl" in done


def test_the_command_line_says_which_limits_the_new_evaluations_break(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = """import random
import kbo
bounds = {"x": (0.0, 1.0)}
constraints = [kbo.Constraint("heat", upper=0.5)]
def objective(params):
    return (params["x"] - 0.3) ** 2 + 0.1 * random.gauss(0, 1), {"heat": 0.2}
"""
    (tmp_path / "train.py").write_text(script)
    command("tune", "train.py", "-n", "12", "-q")
    (tmp_path / "train.py").write_text(script.replace("0.2}", "0.78}"))
    done = command("confirm", "train.py", "--budget", "80", "-q", "--tolerance", "0.3").stdout
    assert re.search(r"breaks heat <= 0.5 in (\d+) of \1 new evaluations", done)
