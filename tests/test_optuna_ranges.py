"""KBOSampler and kbo audit in studies whose ranges differ, and with parameters that are fixed from outside."""

import logging
import math
import statistics
from random import Random

import pytest
from gpytorch.kernels import MaternKernel

optuna = pytest.importorskip("optuna")

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # noqa: E402
from optuna.samplers import PartialFixedSampler, TPESampler  # noqa: E402
from optuna.trial import TrialState, create_trial  # noqa: E402

import kbo  # noqa: E402
from kbo.errors import InvalidInput  # noqa: E402
from kbo.integrations.optuna import KBOSampler  # noqa: E402
from kbo.integrations.optuna.ranges import contains, nearest, ranges_of, union  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.ERROR)

UNIT = FloatDistribution(0, 1)


def practical(**options):
    return KBOSampler(seed=0, n_startup_trials=4, **options)


def certified(norm_bound=4.0):
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.3
    return KBOSampler(seed=0, setting=kbo.Certified(kernel, 0.05, norm_bound))


def studied(*parts, sampler=None):
    """A study of objectives, each with its number of trials."""
    study = optuna.create_study(sampler=sampler or practical())
    for objective, n_trials in parts:
        study.optimize(objective, n_trials=n_trials)
    return study


def bowl(low=0.0, high=1.0, target=1.5):
    def objective(trial):
        x = trial.suggest_float("x", low, high)
        return (x - target) ** 2 + (trial.suggest_float("y", 0.0, 1.0) - 0.2) ** 2

    return objective


def dependent(trial):
    top = trial.suggest_float("top", 0.0, 1.0)
    other = trial.suggest_float("other", 0.0, 1.0 - top)
    return 4 * (other - 0.3) ** 2 + 0.02 * (top - 0.4) ** 2


def leaves(trial):
    depth = trial.suggest_int("depth", 2, 9)
    return abs(trial.suggest_int("leaves", 2, 2**depth) - 120) / 100 + 0.01 * depth


def chosen_by_the_model(study):
    """Names of the parameters that the sampler published for each trial."""
    return [set(trial.system_attrs.get("kbo:chosen", ())) for trial in study.trials]


def inside_their_ranges(study):
    return all(
        contains(d, t.params[name]) for t in study.trials for name, d in t.distributions.items()
    )


def logged(caplog):
    return [record.getMessage() for record in caplog.records]


# The union of ranges


def real(low, high, step=None):
    return FloatDistribution(low, high, step=step)


def log(low, high):
    return FloatDistribution(low, high, log=True)


def whole(low, high, step=1):
    return IntDistribution(low, high, step=step)


def log_whole(low, high):
    return IntDistribution(low, high, log=True)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (real(0, 1), real(0.5, 2), real(0, 2)),
        (log(1, 9), log(2, 90), log(1, 90)),
        (real(0, 1), log(1, 9), real(0, 9)),
        (real(1, 9), log(2, 8), log(1, 9)),
        (real(0, 1, 0.1), real(0.3, 2, 0.1), real(0, 2, 0.1)),
        (real(0, 1, 0.1), real(0.25, 1.25, 0.1), real(0, 1.25)),
        (real(0, 1, 0.1), real(0, 1, 0.2), real(0, 1)),
        (real(0, 1, 0.1), real(1.2, 1.2), real(0, 1.2, 0.1)),
        (whole(2, 10, 4), whole(4, 16, 6), whole(2, 16, 2)),
        (whole(2, 10, 2), whole(4, 4), whole(2, 10, 2)),
        (log_whole(1, 10), log_whole(5, 50), log_whole(1, 50)),
        (whole(3, 3), whole(7, 7), whole(3, 7, 4)),
        (whole(0, 3), real(0.5, 5), real(0, 5)),
    ],
)
def test_the_union_of_ranges_contains_both_on_the_scale_of_the_second(first, second, expected):
    joined = union([first, second])
    assert joined == expected
    for end in (first.low, first.high, second.low, second.high):
        assert contains(joined, end)
        assert nearest(joined, end) == pytest.approx(end)
        assert contains(second, nearest(second, end))


@pytest.mark.parametrize("other", [CategoricalDistribution([1, 2, 3]), real(1, 2)])
def test_choices_that_differ_have_no_union(other):
    with pytest.raises(InvalidInput, match="differ from trial to trial"):
        union([CategoricalDistribution([1, 2]), other])


@pytest.mark.parametrize(
    ("ends", "whole_range", "latest"),
    [
        ([(0, 1), (0, 1), (1, 2)], real(0, 2), real(0, 2)),
        ([(0, 1), *[(1, 2)] * 5], real(0, 2), real(1, 2)),
        ([(0, 1), *[(1.5, 1.5)] * 5], real(0, 1.5), real(1.5, 1.5)),
        ([(1.5, 1.5)] * 2, None, None),
    ],
)
def test_the_latest_ranges_are_those_of_the_next_trial_and_settled_if_they_agree(
    ends, whole_range, latest
):
    trials = [
        create_trial(state=TrialState.FAIL, params={"x": low}, distributions={"x": real(low, high)})
        for low, high in ends
    ]
    settled = {"x"} if latest != whole_range else set()
    expected = tuple({} if d is None else {"x": d} for d in (whole_range, latest))
    assert ranges_of(trials)[:3] == (*expected, settled)


# Studies whose ranges change


def test_a_study_goes_on_with_a_wider_range():
    study = studied((bowl(), 12), (bowl(high=2.0), 12))
    assert all(names == {"x", "y"} for names in chosen_by_the_model(study)[1:])
    assert statistics.median(t.value for t in study.trials[-6:]) < 0.05  # at random 0.6
    best = study.sampler.recommended(study)
    assert abs(best.params["x"] - 1.5) < 0.2
    low, _, high = study.sampler.interval(study, {"x": 0.2, "y": 0.2})
    assert low - 0.3 <= 1.69 <= high + 0.3
    resumed = studied()
    resumed.add_trials(study.trials)
    assert resumed.sampler.recommended(resumed).number == best.number


@pytest.mark.parametrize("change", [(2.0, 3.0), (1.0, 1.0)], ids=["moved", "one value"])
def test_proposals_lie_inside_the_range_of_their_trial(change):
    first = bowl(target=1.0)
    study = studied((first, 7), (bowl(*change, target=1.0), 6), (first, 2))
    assert inside_their_ranges(study)
    assert all(names == {"x", "y"} for names in chosen_by_the_model(study)[8:])
    assert study.sampler.interval(study, {"x": 1.0, "y": 0.2}) is not None


@pytest.mark.parametrize(("objective", "best"), [(dependent, 0.02), (leaves, 0.2)])
def test_a_range_may_depend_on_another_parameter(objective, best):
    study = studied((objective, 18))
    assert inside_their_ranges(study)
    assert study.best_value < best
    recommended = study.sampler.recommended(study)
    assert recommended.value < best
    assert study.sampler.interval(study, recommended.params) is not None


@pytest.mark.parametrize(
    "distributions",
    [
        [whole(1, 8), whole(3, 31, 4), whole(2, 5)],
        [log(1e-4, 1e-2), log(1e-3, 1.0), log(1e-4, 1e-2)],
        [real(0, 1, 0.25), real(0.1, 0.7, 0.2), real(-1, 1)],
        [log_whole(1, 100), log_whole(7, 7), log_whole(5, 1000)],
    ],
    ids=["int", "log", "step", "log-int"],
)
def test_ranges_of_every_kind_may_differ_in_every_trial(distributions):
    study = studied()
    for d in 2 * distributions:
        trial = study.ask({"x": d, "y": UNIT})
        study.tell(trial, math.log(2 + trial.params["x"]) + trial.params["y"])
    assert inside_their_ranges(study)
    assert {type(trial.params["x"]) for trial in study.trials} == {type(distributions[0].low)}
    assert all("x" in names for names in chosen_by_the_model(study)[4:])
    assert study.sampler.interval(study, study.trials[0].params) is not None


def test_the_recommended_trial_is_inside_the_latest_ranges_and_the_best_one_anywhere():
    study = studied((bowl(high=2.0), 10), (bowl(high=1.0), 6))
    assert study.best_trial.params["x"] > 1.0
    assert study.sampler.recommended(study).params["x"] <= 1.0
    assert study.sampler.interval(study, study.best_trial.params) is not None


def test_the_audit_has_a_parameter_whose_range_depends_on_another():
    audit = kbo.audit(studied((dependent, 20), sampler=TPESampler(seed=0)))
    assert set(audit.result.params) == {"top", "other"}
    assert "other" in str(audit)


# Parameters that come and go


def with_z(trial):
    return bowl(target=0.5)(trial) + (trial.suggest_float("z", 0.0, 1.0) - 0.7) ** 2


def without_z(trial):
    return bowl(target=0.5)(trial) + 0.49  # as z = 0


def values_of_z(study):
    return [ended.params["z"] for ended in study.sampler.replayed(study).trials]


def goes_on_alike(study, was):
    """Whether another process proposes and recommends the same."""
    other = studied(sampler=practical(was=was))
    other.add_trials(study.trials)
    distributions = study.trials[-1].distributions
    same_proposal = study.ask(distributions).params == other.ask(distributions).params
    recommended = {s.sampler.recommended(s).number for s in (study, other)}
    return same_proposal and len(recommended) == 1


@pytest.mark.parametrize("value", [0.25, -2.0])
def test_earlier_trials_have_the_value_that_an_added_parameter_had(value, caplog):
    was = {"z": value}
    study = studied((without_z, 8), (with_z, 6), sampler=practical(was=was))
    assert values_of_z(study)[:8] == [value] * 8
    assert len(values_of_z(study)) == 14
    assert caplog.text == ""
    assert "left out" not in str(kbo.audit(study))
    assert inside_their_ranges(study)
    assert goes_on_alike(study, was)


def test_trials_before_an_added_parameter_are_left_out_and_named_once(caplog):
    study = studied((without_z, 8), (with_z, 6))
    assert len(values_of_z(study)) == 6
    (message,) = logged(caplog)
    assert "parameter 'z' was added in trial 8, and trials that lack it are left out" in message
    assert "KBOSampler(was={'z': value})" in message
    assert "8 left out (without z, added later: 0, 1, 2, 3, 4, ...)" in str(kbo.audit(study))


@pytest.mark.parametrize(("was", "value"), [({"z": 0.0}, 0.0), ({}, 0.5)])
def test_later_trials_are_proposed_for_the_value_that_a_dropped_parameter_has(was, value, caplog):
    study = studied((with_z, 10), (without_z, 8), sampler=practical(was=was))
    assert values_of_z(study)[10:] == [value] * 8
    assert [trial.system_attrs["kbo:chosen"]["z"] for trial in study.trials[-3:]] == [value] * 3
    assert ("which is a guess: give the value that it has now" in caplog.text) == (not was)
    assert ("the latest trials count as z=0.5" in str(kbo.audit(study))) == (not was)
    assert "z" in study.best_trial.params  # it was better with z free
    assert "z" not in study.sampler.recommended(study).params
    assert goes_on_alike(study, was)


def test_parameters_that_depend_on_a_number_are_neither_added_nor_dropped():
    def network(trial):
        n_layers = trial.suggest_int("n_layers", 1, 3)
        widths = [trial.suggest_int(f"width {i}", 1, 9) for i in range(n_layers)]
        return abs(sum(widths) - 12) / 12

    study = studied((network, 20), sampler=KBOSampler(seed=0))
    assert len(study.sampler.replayed(study).trials) == 20
    assert "added" not in str(kbo.audit(study))


@pytest.mark.parametrize(
    ("was", "words"),
    [
        ({"z": -1.0}, r"was: z = -1 has no place on the logarithmic scale of"),
        ({"z": "low"}, r"was: 'z'"),
        ({"c": "d"}, r"was: parameter 'c': 'd' is not in"),
        ([("z", 1.0)], "was"),
    ],
)
def test_values_that_a_parameter_cannot_have_had_are_refused(was, words):
    def objective(trial):
        trial.suggest_categorical("c", ["a", "b"])
        return trial.suggest_float("z", 0.1, 1.0, log=True)

    with pytest.raises(InvalidInput, match=words):
        studied((objective, 3), sampler=KBOSampler(seed=0, was=was))


def test_the_certified_setting_refuses_values_of_parameters_that_trials_lack():
    with pytest.raises(InvalidInput, match="was is for the practical setting"):
        KBOSampler(setting=certified()._setting, was={"z": 0.0})


# Values from outside


@pytest.mark.filterwarnings("ignore:Fixed parameter x")
def test_values_near_a_range_are_data_and_those_far_away_are_named_once(caplog):
    def evaluate(*xs):
        for x in xs:
            study.enqueue_trial({"x": x})
            study.optimize(lambda t: (t.suggest_float("x", 0.0, 1.0) - 1.2) ** 2, n_trials=1)

    study = studied()
    evaluate(0.1, 0.3, 0.5, 0.7, 0.9, 1.2)
    assert study.sampler.recommended(study).params == {"x": 1.2}
    assert study.sampler.interval(study, {"x": 1.15}) is not None
    with caplog.at_level(logging.WARNING, logger="kbo"):
        evaluate(9.0, 1e6)
        for _ in range(2):
            assert study.sampler.recommended(study).params == {"x": 1.2}
    (message,) = logged(caplog)
    assert "trial 6 and others like it are left out of the model: x = 9.0 is far outside" in message
    assert "2 left out (far outside the ranges of the others: 6, 7)" in str(kbo.audit(study))
    assert 0 <= study.ask({"x": UNIT}).params["x"] <= 1


def test_choices_that_changed_are_named_once_in_the_log_and_by_the_audit(caplog):
    study = studied()
    options = CategoricalDistribution(["a", "b"])
    more = CategoricalDistribution(["a", "b", "c"])
    for i in range(8):
        params = {"x": i / 8, "c": "ab"[i % 2]}
        distributions = {"x": UNIT, "c": options if i < 4 else more}
        study.add_trial(create_trial(value=i / 8, params=params, distributions=distributions))
    with caplog.at_level(logging.WARNING, logger="kbo"):
        trial = study.ask({"x": UNIT, "c": more})
    assert trial.params["c"] in "abc"
    assert sum("parameter 'c' is left out of the model" in text for text in logged(caplog)) == 1
    assert "parameter 'c' is left out: its choices differ" in str(kbo.audit(study))


@pytest.mark.parametrize(
    ("sampler", "most", "kind"),
    [(KBOSampler(seed=1), 0.05, "practical"), (certified(), 0.3, "certified")],
    ids=["practical", "certified"],
)
def test_the_model_knows_what_a_partial_fixed_sampler_fixes(sampler, most, kind):
    def objective(trial):
        return (trial.suggest_float("y", 0.0, 1.0) - trial.suggest_float("x", 0.0, 1.0)) ** 2

    study = studied((objective, 16), sampler=sampler)
    for inner, outer in (({"x": 0.9}, {}), ({"x": 0.3}, {"x": 0.9})):
        study.sampler = PartialFixedSampler(outer, PartialFixedSampler(inner, sampler))
        study.optimize(objective, n_trials=3)
        latest = study.trials[-3:]
        assert [trial.params["x"] for trial in latest] == [0.9] * 3
        assert min(abs(trial.params["y"] - 0.9) for trial in latest) < most
    assert sampler.interval(study, {"x": 0.9, "y": 0.9}) is not None
    assert sampler.guarantee(study).startswith(kind)
    study.sampler = PartialFixedSampler({"x": 0.5, "y": 0.5}, sampler)
    study.optimize(objective, n_trials=1)
    assert study.trials[-1].params == {"x": 0.5, "y": 0.5}


# The certified setting


def test_the_certified_setting_takes_narrower_ranges_and_names_wider_ones_before_a_trial_is_paid_for():
    study = studied((bowl(0.0, 2.0), 4), (bowl(1.0, 1.6), 4), sampler=certified(20.0))
    assert inside_their_ranges(study)
    assert study.sampler.guarantee(study).startswith("certified")
    paid = []
    words = r"whole range of each parameter from the first trial on.*trial 0 has 'x'"
    with pytest.raises(InvalidInput, match=words):
        study.optimize(lambda trial: paid.append(bowl(0.0, 3.0)(trial)) or 1.0, n_trials=6)
    assert len(paid) <= 1


@pytest.mark.filterwarnings("ignore:Fixed parameter x")
def test_the_certified_setting_leaves_values_outside_its_ranges_out_and_says_so(caplog):
    study = studied((bowl(), 4), sampler=certified(20.0))
    before = study.sampler.interval(study, {"x": 0.5, "y": 0.5})
    study.enqueue_trial({"x": 1.2})
    with caplog.at_level(logging.WARNING, logger="kbo"):
        study.optimize(bowl(), n_trials=1)
        assert study.sampler.interval(study, {"x": 0.5, "y": 0.5}) == before
    assert "trial 4 and others like it are left out" in caplog.text


# How often the intervals are right

FORMER = -2.5
"""The value of a parameter while it is not suggested."""


def ranges_of_scenario(scenario, solution):
    """The ranges of three parameters before and after the change; None for one that is not suggested."""
    first = [(-5.0, 5.0)] * 3
    later = [(-5.0, 5.0)] * 3
    if scenario == "widened":  # the optimum is outside at first
        for i in (0, 1):
            first[i] = (0.0, 5.0) if solution[i] < 0 else (-5.0, 0.0)
    if scenario == "narrowed":
        for i in (0, 1):
            centre = min(max(solution[i], -3.75), 3.75)
            later[i] = (centre - 1.25, centre + 1.25)
    if scenario == "added":
        first[2] = None
    if scenario == "dropped":
        later[2] = None
    return first, later


@pytest.mark.thorough
@pytest.mark.parametrize("scenario", ["widened", "narrowed", "added", "dropped"])
def test_intervals_hold_the_true_value_in_studies_that_change(scenario):
    """At 20 random points of the latest ranges and at the recommended trial, in 24 studies of 60 trials."""
    pytest.importorskip("cocoex")
    from experiments.problems import BBOB

    at_random = []
    at_recommended = []
    for function in range(1, 49, 2):
        noise = "gauss" if function < 24 else "gauss-0.5"
        problem = BBOB(function % 24, 3, 1, noise, seed=1)
        first, later = ranges_of_scenario(scenario, problem.solution)

        def objective(ranges, problem=problem):
            def evaluate(trial):
                x = [FORMER] * 3
                for i, ends in enumerate(ranges):
                    if ends is not None:
                        x[i] = trial.suggest_float(f"x{i}", *ends)
                return problem(x)

            return evaluate

        sampler = KBOSampler(seed=1, was={"x2": FORMER})
        study = studied((objective(first), 20), (objective(later), 40), sampler=sampler)
        random = Random(function % 24)
        suggested = {f"x{i}": ends for i, ends in enumerate(later) if ends is not None}
        points = [
            {name: random.uniform(*ends) for name, ends in suggested.items()} for _ in range(20)
        ]
        hits = []
        for params in (sampler.recommended(study).params, *points):
            low, _, high = sampler.interval(study, params)
            truth = problem.noiseless([params.get(f"x{i}", FORMER) for i in range(3)])
            hits.append(low <= truth <= high)
        at_recommended.append(hits[0])
        at_random += hits[1:]
    assert 0.8 < statistics.mean(at_random) < 0.97
    assert statistics.mean(at_recommended) > 0.65  # 0.77 in 48 studies that do not change
