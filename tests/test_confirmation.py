"""Confirmation of a few candidates: its intervals, its choices, and what ends it."""

import copy
import io
import itertools
import math
import random
import re

import numpy as np
import pytest
from scipy.integrate import quad

import kbo
from experiments.guarantees import confirmation as confirmation_figures
from kbo._base.streams import AboveBar
from kbo._base.terminal import rounded_up
from kbo.confidence.repeated.mean import bounded_mean
from kbo.confidence.repeated.median import median, median_bounds
from kbo.errors import AnotherProblem, InvalidInput, JournalError, TooManyFailures
from kbo.optimize.insight.confirmation import _Confirming
from tests.commands import kbo as command

CANDIDATES = [{"x": 0.3}, {"x": 0.35}, {"x": 0.9}]


def noisy(seed=0, level=0.05):
    rng = random.Random(seed)
    return lambda params: (params["x"] - 0.3) ** 2 + level * (1 + params["x"]) * rng.gauss(0, 1)


def averaged_likelihood_ratio(s, n):
    """The average over p in (0, 1/2) of the likelihood of s values of n below a point, over that of fair coins."""
    return 2 * quad(lambda p: (2 * p) ** s * (2 * (1 - p)) ** (n - s), 0, 0.5)[0]


@pytest.mark.parametrize("alpha", [0.3, 0.025, 0.002])
@pytest.mark.parametrize("n", [1, 5, 10, 11, 40, 81, 200])
def test_a_bound_of_the_median_is_the_last_value_that_the_averaged_likelihood_ratio_does_not_refute(
    n, alpha
):
    values = list(range(n))
    refuted = [s for s in range((n + 1) // 2) if averaged_likelihood_ratio(s, n) >= 1 / alpha]
    lower, upper = median_bounds(values[::-1], alpha, alpha)
    if not refuted:
        assert (lower, upper) == (-math.inf, math.inf)
    else:
        assert (lower, upper) == (refuted[-1], n - 1 - refuted[-1])


def test_both_sides_of_a_median_have_their_own_level():
    x = [0.3, -0.1, 0.8, 0.5, 0.2, 0.4, 0.1, 0.6, 0.7, 0.9, 1.1, 0.0]
    lower, upper = median_bounds(x, 0.01, 0.1)
    assert (lower, upper) == (median_bounds(x, 0.01, 0.5)[0], median_bounds(x, 0.5, 0.1)[1])
    assert (-upper, -lower) == median_bounds([-one for one in x], 0.1, 0.01)
    assert [1e300 * one for one in (lower, upper)] == list(
        median_bounds([1e300 * one for one in x], 0.01, 0.1)
    )


def test_few_values_say_nothing_and_equal_ones_are_their_median():
    assert all(median_bounds([1.0] * n, 0.01, 0.01) == (-math.inf, math.inf) for n in range(9))
    assert median_bounds([1.0] * 9, 0.01, 0.01) == (1.0, 1.0)
    assert bounded_mean([], 0.05, -1.0, 3.0) == (-1.0, 3.0)
    assert [median([3.0, 1.0, 2.0]), median([4.0, 1.0]), median([1.7e308, 1.7e308])] == [
        2.0,
        2.5,
        1.7e308,
    ]


MEDIANS = {
    "gaussian": (lambda rng, n: rng.normal(2.0, 3.0, n), (2.0, 2.0)),
    "without a mean": (lambda rng, n: rng.standard_cauchy(n), (0.0, 0.0)),
    "skewed": (lambda rng, n: rng.lognormal(0.0, 1.5, n), (1.0, 1.0)),
    "diverging": (lambda rng, n: rng.normal(size=n) + 1e9 * (rng.random(n) < 0.05), (0.066, 0.066)),
    "whole numbers": (lambda rng, n: rng.poisson(2.0, n), (2.0, 2.0)),
    "fair coins": (lambda rng, n: rng.integers(0, 2, n), (0.0, 1.0)),
}


@pytest.mark.parametrize("name", MEDIANS)
def test_the_bounds_of_a_median_hold_for_all_numbers_of_values_at_once_whatever_the_distribution(
    name,
):
    draw, (least, largest) = MEDIANS[name]
    rng, runs, alpha = np.random.default_rng(0), 150, 0.1
    missed = 0
    for _ in range(runs):
        x = draw(rng, 60).tolist()
        bounds = [median_bounds(x[:n], alpha, alpha) for n in range(1, 61)]
        missed += not all(lower <= least and upper >= largest for lower, upper in bounds)
    assert missed <= 2 * alpha * runs


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda rng: (rng.random(60) < 0.9) * 1.0, 0.9),
        (lambda rng: (rng.random(60) < 0.02) * 1.0, 0.02),
        (lambda rng: rng.beta(0.2, 0.6, 60), 0.25),
    ],
    ids=["mostly one", "mostly zero", "u-shaped"],
)
def test_the_intervals_of_all_numbers_of_values_hold_at_once(draw, mean):
    rng, missed, alpha = np.random.default_rng(0), 0, 0.2
    for _ in range(150):
        x = draw(rng).tolist()
        found = [bounded_mean(x[:n], alpha, 0.0, 1.0) for n in range(1, 60)]
        missed += not all(lower <= mean <= upper for lower, upper in found)
    assert missed <= 150 * alpha


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
    assert found.within <= 0.05
    assert found.best.params["x"] in (0.3, 0.35)
    assert len(found.finalists[2].values) < 15
    assert re.match(
        r"candidate \d is within 0\.0\d+ of the best of these 3, with 95%, if", str(found)
    )
    assert sum(len(one.values) for one in found.finalists) == found.evaluations < 300


def test_the_least_and_the_largest_are_sought_alike():
    objective = noisy(1)
    least = kbo.confirm(objective, CANDIDATES, 60, tolerance=0.01)
    objective = noisy(1)
    largest = kbo.confirm(
        lambda params: -objective(params), CANDIDATES, 60, tolerance=0.01, maximize=True
    )
    assert [one.values for one in largest.finalists] == [
        [-y for y in one.values] for one in least.finalists
    ]
    assert largest.within == least.within


@pytest.mark.parametrize("value_range", [None, (0.0, 1.0)])
def test_statements_are_wrong_in_at_most_delta_of_runs(value_range):
    """The candidates are nearly as good as each other, of different noise, and each run ends as soon as it may."""
    wrong, runs, tolerance = 0, 60, 0.02
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        noise = {0: 0.01, 1: 0.1, 2: 0.03}

        def objective(params, rng=rng, noise=noise):
            mean = 0.5 + 0.021 * params["k"]
            return float(np.clip(mean + noise[params["k"]] * rng.normal(), mean - 0.4, mean + 0.4))

        candidates = [{"k": k} for k in range(3)]
        options = {"tolerance": tolerance, "delta": 0.2, "value_range": value_range}
        found = kbo.confirm(objective, candidates, 150, **options)
        wrong += found.best is not None and 0.021 * found.best.params["k"] > found.within
    assert wrong <= 0.2 * runs


def test_a_confirmation_continues_from_its_journal(tmp_path):
    def calls(objective, made):
        def called(params):
            made.append(params)
            return objective(params)

        return called

    made, path = [], tmp_path / "confirm.jsonl"
    first = kbo.confirm(calls(noisy(), made), CANDIDATES, 12, tolerance=1e-4, journal=path)
    more = kbo.confirm(calls(noisy(5), made), CANDIDATES, 20, tolerance=1e-4, journal=path)
    assert len(made) == more.evaluations == 20
    assert first.evaluations == 12
    assert more.finalists[0].values[: len(first.finalists[0].values)] == first.finalists[0].values
    again = kbo.confirm(calls(noisy(), made), CANDIDATES, 20, tolerance=1e-4, journal=path)
    assert (len(made), str(again)) == (20, str(more))
    with pytest.raises(AnotherProblem):
        kbo.confirm(noisy(), CANDIDATES[:2], 20, tolerance=1e-4, journal=path)
    with pytest.raises(JournalError, match="confirmation"):
        kbo.report.write(path)


def test_values_wait_for_earlier_evaluations_of_the_same_candidate():
    confirming = _Confirming({"a": {"x": 0.1}, "b": {"x": 0.2}}, False, 0.1, None, None)
    trials = [confirming.begin() for _ in range(4)]
    confirming.run.complete(trials[2], 5.0)
    confirming.run.complete(trials[1], 2.0)
    assert [list(one.values) for one in confirming.finalists()] == [[], [2.0]]
    confirming.run.complete(trials[0], 1.0)
    assert [list(one.values) for one in confirming.finalists()] == [[1.0, 5.0], [2.0]]


@pytest.mark.parametrize("maximize", [False, True])
def test_delta_is_shared_among_the_ways_in_which_a_statement_can_be_wrong(maximize):
    """The good side of the best candidate has delta / 2, the bad sides of the two others delta / 4 each."""
    confirming = _Confirming(
        {"a": {"x": 0.1}, "b": {"x": 0.2}, "c": {"x": 0.3}}, maximize, 0.1, None, None
    )
    values = [
        1.0,
        2.0,
        1.5,
        0.7,
        1.2,
        1.9,
        1.1,
        1.3,
        1.4,
        1.6,
        0.9,
    ]  # so many that the levels matter
    for value in values:
        trial = confirming.run.begin({"candidate": "b"})
        confirming.run.complete(trial, value)
    levels = (0.025, 0.05) if maximize else (0.05, 0.025)
    assert (confirming.finalists()[1].lower, confirming.finalists()[1].upper) == median_bounds(
        values, *levels
    )


FAST = [race for race in confirmation_figures.RACES if race.value_range is None]


@pytest.mark.parametrize("race", FAST, ids=lambda race: race.name)
def test_no_statement_is_wrong_whatever_the_noise(race):
    """A part of the figures of docs/reliability.md: a statement is true, or none is made; delta allows 5%."""
    found = [race.run(seed, 200) for seed in range(8)]
    assert (
        sum(race.wrong(one, race.stated()) for one in found) <= 2
    )  # more has a probability of less than 0.6%
    if "no range" in race.name:
        assert not any(one.confirmed or math.isfinite(one.within) for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("race", confirmation_figures.RACES, ids=lambda race: race.name)
def test_at_most_delta_of_300_statements_are_wrong(race):
    found = [race.run(seed) for seed in range(300)]
    assert sum(race.wrong(one, race.stated()) for one in found) <= 300 * confirmation_figures.DELTA


def test_values_that_repeat_need_a_range_and_the_race_ends_when_that_is_clear():
    rng = random.Random(0)
    found = kbo.confirm(
        lambda params: float(rng.random() < params["x"]), CANDIDATES, 500, tolerance=0.2
    )
    assert (found.best is not None, found.within, found.confirmed) == (True, math.inf, False)
    assert found.evaluations < 60
    text = str(found)
    assert re.match(
        r"no statement can be made after \d+ evaluations: \d+ of \d+ values of candidate \d are [01],",
        text,
    )
    assert "give value_range, the least and the largest possible value" in text
    same = kbo.confirm(lambda params: round(params["x"], 1), CANDIDATES, 500, tolerance=0.2)
    assert same.confirmed  # without noise all values of a candidate are the same


def test_a_divergence_is_named_where_it_is_rare_and_where_it_was_seen():
    race = next(race for race in confirmation_figures.RACES if "diverge" in race.name)
    found = race.run(0)
    best = found.best
    assert best.params == {"candidate": 0}
    assert max(best.values) > 50
    n = len(best.values)
    text = str(found)
    assert "this is about their medians, which half of the evaluations exceed" in text
    share = int(
        re.search(
            rf"its {n} evaluations need not show what happens in less than (\d+)% of them", text
        ).group(1)
    )
    delta = 0.05 / len(found.finalists)
    assert (1 - share / 100) ** n <= delta < (1 - (share - 1) / 100) ** n
    assert re.search(
        r"but by the mean candidate [1-4] is better by [\d.]+ so far: where means count, give value_range",
        text,
    )
    gaussian = next(race for race in confirmation_figures.RACES if race.name == "better by 1").run(
        0
    )
    assert "by the mean" not in str(gaussian)


def test_an_interrupt_keeps_what_is_known_and_losses_are_told(tmp_path):
    objective, count = noisy(), itertools.count()

    def interrupted(params):
        if next(count) == 30:
            raise KeyboardInterrupt
        return objective(params)

    path = tmp_path / "confirm.jsonl"
    found = kbo.confirm(interrupted, CANDIDATES, 200, tolerance=1e-3, journal=path)
    assert found.stopped == "interrupted before its end"
    assert found.evaluations == 30
    whole = kbo.confirm(objective, CANDIDATES, 60, tolerance=1e-3, journal=path)
    assert (whole.evaluations, whole.selected) == (60, 1)
    assert "losing 1 of them did not depend on their values" in str(whole)


def test_a_value_outside_its_range_is_an_error_also_later(tmp_path):
    path = tmp_path / "confirm.jsonl"
    for _ in range(2):
        with pytest.raises(InvalidInput, match=r"value_range is \(0.0, 1.0\), and a value was 1.5"):
            kbo.confirm(
                lambda params: 1.5, CANDIDATES, 20, tolerance=0.1, value_range=(0, 1), journal=path
            )
    with pytest.raises(InvalidInput, match="finite width"):
        kbo.confirm(noisy(), CANDIDATES, 20, tolerance=0.1, value_range=(-1e308, 1e308))


def test_statements_are_rounded_so_that_they_stay_true():
    found = kbo.confirm(noisy(), CANDIDATES, 60, tolerance=1e-4, delta=0.004)
    assert "with 99.6%" in str(found)
    assert float(re.search(r"within (\S+) of", str(found)).group(1)) >= found.within
    assert [rounded_up(x, 2) for x in (0.01049, 0.5, 0.0, 123.0, 0.999)] == [
        "0.011",
        "0.5",
        "0",
        "1.3e+02",
        "1",
    ]


def test_failures_end_it_and_arguments_are_checked():
    with pytest.raises(TooManyFailures, match="5 evaluations failed in a row"):
        kbo.confirm(lambda params: math.nan, CANDIDATES, 20, tolerance=0.1)
    for given in (
        {"candidates": CANDIDATES[:1]},
        {"candidates": [1, 2]},
        {"tolerance": 0.0},
        {"delta": 1.5},
    ):
        with pytest.raises(InvalidInput, match=next(iter(given))):
            kbo.confirm(
                **{
                    "objective": noisy(),
                    "candidates": CANDIDATES,
                    "budget": 9,
                    "tolerance": 0.1,
                    **given,
                }
            )


def test_a_result_confirms_the_trials_that_may_be_best():
    result = kbo.minimize(noisy(3, 0.1), {"x": (0.0, 1.0)}, 15)
    finalists = result.optimizer.insight.finalists()
    assert next(iter(finalists.values())) == result.params
    assert len(finalists) <= 5
    found = result.confirm(noisy(4, 0.1), 80, tolerance=0.1)
    assert found.best.name in finalists
    exact = kbo.minimize(lambda params: (params["x"] - 0.3) ** 2, {"x": (0.0, 1.0)}, 12)
    with pytest.raises(InvalidInput, match="nothing to confirm"):
        exact.confirm(noisy(), 20, tolerance=0.1)


def test_lines_take_the_place_of_a_progress_bar():
    stream, drawn = io.StringIO(), []
    above = AboveBar(stream, lambda: drawn.append(stream.getvalue()))
    print("one", "two", file=above)
    above.writelines(["part ", "and rest\n"])
    assert stream.getvalue() == "\r\x1b[Kone two\n\r\x1b[Kpart and rest\n"
    assert len(drawn) == 2
    assert copy.copy(above).getvalue() == stream.getvalue()


def test_the_command_line_confirms(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = 'import random\nbounds = {"x": (0.0, 1.0)}\n'
    script += (
        "def objective(params):\n    return (params['x'] - 0.3) ** 2 + 0.1 * random.gauss(0, 1)\n"
    )
    (tmp_path / "train.py").write_text(script)
    tuned = command("tune", "train.py", "-n", "12", "-q", "--confirm", "20").stdout
    assert "confirmation   " in tuned
    done = command("confirm", "train.py", "-n", "80", "-q", "--tolerance", "0.2").stdout
    assert "of the best of these" in done
    assert "tune-train-confirm.jsonl" in done
