"""KBOSampler and kbo audit in studies whose ranges differ, and with parameters that are fixed from outside."""

import statistics

import pytest
from gpytorch.kernels import MaternKernel

optuna = pytest.importorskip("optuna")

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # noqa: E402
from optuna.samplers import PartialFixedSampler  # noqa: E402

import kbo  # noqa: E402
from kbo.errors import InvalidInput  # noqa: E402
from kbo.integrations.optuna import KBOSampler  # noqa: E402
from kbo.integrations.optuna.ranges import contains, nearest, union  # noqa: E402

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


def chosen_by_the_model(study):
    """Names of the parameters that the sampler published for each trial."""
    return [set(trial.system_attrs.get("kbo:chosen", ())) for trial in study.trials]


def inside_their_ranges(study):
    return all(
        contains(d, t.params[name]) for t in study.trials for name, d in t.distributions.items()
    )


# The union of ranges


def real(low, high, step=None):
    return FloatDistribution(low, high, step=step)


def log(low, high):
    return FloatDistribution(low, high, log=True)


def whole(low, high, step=1):
    return IntDistribution(low, high, step=step)


def test_the_union_of_ranges_contains_both_on_the_scale_of_the_second():
    for first, second, expected in (
        (log(1, 9), log(2, 90), log(1, 90)),
        (real(0, 1), log(1, 9), real(0, 9)),
        (real(1, 9), log(2, 8), log(1, 9)),
        (real(0, 1, 0.1), real(0.3, 2, 0.1), real(0, 2, 0.1)),
        (real(0, 1, 0.1), real(0.25, 1.25, 0.1), real(0, 1.25)),
        (whole(2, 10, 4), whole(4, 16, 6), whole(2, 16)),
        (whole(3, 3), whole(7, 7), whole(3, 7)),
        (whole(0, 3), real(0.5, 5), real(0, 5)),
    ):
        joined = union([first, second])
        assert joined == expected
        for end in (first.low, first.high, second.low, second.high):
            assert contains(joined, end)
            assert nearest(joined, end) == pytest.approx(end)
            assert contains(second, nearest(second, end))
    with pytest.raises(InvalidInput, match="differ from trial to trial"):
        union([CategoricalDistribution([1, 2]), CategoricalDistribution([1, 2, 3])])


# Studies whose ranges change


def test_a_study_goes_on_with_a_wider_range():
    study = studied((bowl(), 8), (bowl(high=2.0), 8))
    assert all(names == {"x", "y"} for names in chosen_by_the_model(study)[1:])
    assert statistics.median(t.value for t in study.trials[-4:]) < 0.05  # at random 0.6
    best = study.sampler.recommended(study)
    assert abs(best.params["x"] - 1.5) < 0.2
    low, _, high = study.sampler.interval(study, {"x": 0.2, "y": 0.2})
    assert low - 0.3 <= 1.69 <= high + 0.3
    resumed = studied()
    resumed.add_trials(study.trials)
    assert resumed.sampler.recommended(resumed).number == best.number
    # The range becomes smaller: the best trial of all is outside, the recommended one inside.
    study.optimize(bowl(high=1.0), n_trials=5)
    assert study.best_trial.params["x"] > 1.0
    assert study.sampler.recommended(study).params["x"] <= 1.0
    assert study.sampler.interval(study, study.best_trial.params) is not None


def test_a_range_may_depend_on_another_parameter_also_for_the_audit():
    def leaves(trial):
        depth = trial.suggest_int("depth", 2, 9)
        return abs(trial.suggest_int("leaves", 2, 2**depth) - 120) / 100 + 0.01 * depth

    study = studied((leaves, 18))
    assert inside_their_ranges(study)
    recommended = study.sampler.recommended(study)
    assert recommended.value < 0.2
    assert study.sampler.interval(study, recommended.params) is not None
    assert set(kbo.audit(study).result.params) == {"depth", "leaves"}


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
    same_recommended = (
        study.sampler.recommended(study).number == other.sampler.recommended(other).number
    )
    return same_recommended and study.ask(distributions).params == other.ask(distributions).params


def test_earlier_trials_have_the_value_that_an_added_parameter_had_or_are_left_out(caplog):
    was = {"z": -2.0}  # outside of its present range
    study = studied((without_z, 5), (with_z, 4), sampler=practical(was=was))
    assert values_of_z(study)[:5] == [-2.0] * 5
    assert len(values_of_z(study)) == 9
    assert caplog.text == ""
    assert inside_their_ranges(study)
    assert goes_on_alike(study, was)
    study.sampler = practical()
    assert len(values_of_z(study)) == 4
    assert caplog.text.count("parameter 'z' was added in trial 5, and trials that lack it") == 1
    assert "KBOSampler(was={'z': value})" in caplog.text
    assert "5 left out (without z, added later: 0, 1, 2, 3, 4)" in str(kbo.audit(study))


@pytest.mark.parametrize(("was", "value"), [({"z": 0.0}, 0.0), ({}, 0.5)])
def test_later_trials_are_proposed_for_the_value_that_a_dropped_parameter_has(was, value, caplog):
    study = studied((with_z, 8), (without_z, 6), sampler=practical(was=was))
    assert values_of_z(study)[8:] == [value] * 6
    assert study.trials[-1].system_attrs["kbo:chosen"]["z"] == value
    assert ("which is a guess: give the value that it has now" in caplog.text) == (not was)
    assert "z" in study.best_trial.params  # it was better with z free
    assert "z" not in study.sampler.recommended(study).params
    assert goes_on_alike(study, was)


def test_parameters_that_depend_on_a_number_are_neither_added_nor_dropped():
    def network(trial):
        n_layers = trial.suggest_int("n_layers", 1, 3)
        widths = [trial.suggest_int(f"width {i}", 1, 9) for i in range(n_layers)]
        return abs(sum(widths) - 12) / 12

    study = studied((network, 12), sampler=KBOSampler(seed=0))
    assert len(study.sampler.replayed(study).trials) == 12


def test_values_that_a_parameter_cannot_have_had_are_refused():
    study = optuna.create_study(sampler=KBOSampler(seed=0, was={"z": -1.0}))
    with pytest.raises(InvalidInput, match="was: z = -1 has no place on the logarithmic scale of"):
        study.optimize(lambda trial: trial.suggest_float("z", 0.1, 1.0, log=True), n_trials=3)
    with pytest.raises(InvalidInput, match="was is for the practical setting"):
        KBOSampler(setting=certified()._setting, was={"z": 0.0})


# Values from outside


@pytest.mark.filterwarnings("ignore:Fixed parameter x")
def test_values_near_a_range_are_data_and_those_far_away_are_named_once(caplog):
    study = studied()
    for x in (0.1, 0.4, 0.7, 0.9, 1.2, 9.0, 1e6):
        study.enqueue_trial({"x": x})
        study.optimize(lambda t: (t.suggest_float("x", 0.0, 1.0) - 1.2) ** 2, n_trials=1)
    assert study.sampler.recommended(study).params == {"x": 1.2}
    assert study.sampler.interval(study, {"x": 1.15}) is not None
    for number, x in ((5, 9.0), (6, 1e6)):
        words = (
            f"trial {number} is left out of the model: its parameters {{'x': {x}}} have no place"
        )
        assert caplog.text.count(words) == 1
    assert caplog.text.count("left out") == 2
    assert "2 left out (far outside the ranges of the others: 5, 6)" in str(kbo.audit(study))


@pytest.mark.parametrize(
    ("sampler", "most"), [(KBOSampler(seed=1), 0.05), (certified(), 0.3)], ids=["own", "certified"]
)
def test_the_model_knows_what_a_partial_fixed_sampler_fixes(sampler, most):
    def objective(trial):
        return (trial.suggest_float("y", 0.0, 1.0) - trial.suggest_float("x", 0.0, 1.0)) ** 2

    study = studied((objective, 16), sampler=sampler)
    study.sampler = PartialFixedSampler({"x": 0.9}, PartialFixedSampler({"x": 0.3}, sampler))
    study.optimize(objective, n_trials=3)
    latest = study.trials[-3:]
    assert [trial.params["x"] for trial in latest] == [0.9] * 3
    assert min(abs(trial.params["y"] - 0.9) for trial in latest) < most
    assert "that KBOSampler did not propose" not in sampler.guarantee(study)


# The certified setting


@pytest.mark.filterwarnings("ignore:Fixed parameter x")
def test_the_certified_setting_takes_narrower_ranges_and_names_wider_ones_and_values_outside(
    caplog,
):
    study = studied((bowl(0.0, 2.0), 3), (bowl(1.0, 1.6), 3), sampler=certified(20.0))
    assert inside_their_ranges(study)
    assert study.sampler.guarantee(study).startswith("certified")
    before = study.sampler.interval(study, {"x": 0.5, "y": 0.5})
    study.enqueue_trial({"x": 2.2})
    study.optimize(bowl(0.0, 2.0), n_trials=1)
    assert study.sampler.interval(study, {"x": 0.5, "y": 0.5}) == before
    assert "trial 6 is left out" in caplog.text
    words = r"whole range of each parameter from the first trial on.*trial 0 has 'x'"
    with pytest.raises(InvalidInput, match=words):
        study.optimize(bowl(0.0, 3.0), n_trials=2)
