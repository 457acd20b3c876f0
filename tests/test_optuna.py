"""KBOSampler in Optuna's studies: spaces, failures, several workers, kills, bounds, several objectives."""

import copy
import itertools
import math
import pickle
import statistics
import threading

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

optuna = pytest.importorskip("optuna")

from optuna.distributions import (  # noqa: E402
    CategoricalDistribution,
    FloatDistribution,
)
from optuna.samplers import RandomSampler  # noqa: E402
from optuna.trial import TrialState, create_trial  # noqa: E402

import kbo  # noqa: E402
from kbo.errors import InvalidInput  # noqa: E402
from kbo.integrations.optuna import KBOSampler  # noqa: E402
from kbo.optimize.run.run import Run  # noqa: E402
from tests.processes import PATIENCE  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.ERROR)

UNIT = FloatDistribution(0.0, 1.0)
MINIMA = ["minimize", "minimize"]


def quick(**options):
    return KBOSampler(seed=0, n_startup_trials=4, **options)


def certified(**numbers):
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.3
    return kbo.Certified(kernel, **{"noise_std": 0.1, "norm_bound": 4.0, **numbers})


def sure(seed=0, **numbers):
    return KBOSampler(seed=seed, setting=certified(**numbers))


def run(objective, n_trials, sampler=None, directions=("minimize",), **options):
    study = optuna.create_study(sampler=sampler or quick(), directions=directions, **options)
    study.optimize(objective, n_trials=n_trials)
    return study


def several(objective, n_trials, sampler=None, **options):
    return run(objective, n_trials, sampler, **{"directions": MINIMA, **options})


def continued(study, sampler, **options):
    """A study with the finished trials of another one."""
    twin = optuna.create_study(sampler=sampler, **options)
    twin.add_trials([trial for trial in study.trials if trial.state.is_finished()])
    return twin


def params(study):
    return [trial.params for trial in study.get_trials(deepcopy=False)]


def mixed(trial):
    x = trial.suggest_float("x", -2.0, 3.0)
    n = trial.suggest_int("n", 1, 64, log=True)
    c = trial.suggest_categorical("c", ["a", "b", None])
    return (x - 1) ** 2 + abs(n - 8) / 8 + (c != "b")


def bowl(trial):
    x = trial.suggest_float("x", 0.0, 1.0)
    return (x - 0.3) ** 2 + (trial.suggest_float("y", 0.0, 1.0) - 0.8) ** 2


def line(trial):
    return math.sin(5 * trial.suggest_float("x", 0.0, 1.0))


def finished(x, value, state=TrialState.COMPLETE, **options):
    return create_trial(
        state=state, value=value, params={"x": x}, distributions={"x": UNIT}, **options
    )


def least_gap(points):
    return min(abs(a - b) for a, b in itertools.combinations(points, 2))


# Spaces


def test_values_are_inside_on_the_grid_and_of_the_right_type_for_every_distribution():
    choices = ["a", None, True, 2.5, 7]

    def objective(trial):
        x = trial.suggest_float("float", -3.0, 5.0)
        trial.suggest_float("log", 1e-5, 10.0, log=True)
        trial.suggest_float("step", 0.1, 0.9, step=0.2)
        trial.suggest_float("one", 2.0, 2.0)
        n = trial.suggest_int("intlog", 1, 1000, log=True)
        trial.suggest_int("intstep", 3, 27, step=4)
        choice = trial.suggest_categorical("choice", choices)
        return x**2 + abs(math.log(n / 30)) + (choice is not None)

    study = run(objective, 18, KBOSampler(seed=0, n_startup_trials=14))
    for trial in study.trials:
        for name, d in trial.distributions.items():
            value = trial.params[name]
            assert d._contains(d.to_internal_repr(value)), (name, value)
            assert isinstance(d, CategoricalDistribution) or type(value) is type(d.low)
        # All but the first come from the model.
        searched = trial.system_attrs.get("kbo:chosen", {}).keys()
        assert trial.number == 0 or searched == trial.params.keys() - {"one"}
    assert {repr(p["choice"]) for p in params(study)} == set(map(repr, choices))
    assert {round(p["step"], 9) for p in params(study)} == {0.1, 0.3, 0.5, 0.7, 0.9}


# Directions, seeds, resuming


def test_minimising_finds_the_minimum_and_maximising_the_maximum_better_than_at_random():
    at_random = statistics.median(run(bowl, 12, RandomSampler(seed=s)).best_value for s in range(9))
    low = run(bowl, 12)
    assert low.best_value < 0.1 * at_random
    assert params(run(lambda trial: -bowl(trial), 12, directions=["maximize"])) == params(low)


def test_choices_follow_from_the_seed_and_go_on_with_a_copy_of_the_sampler():
    first, other = (run(mixed, 6, KBOSampler(seed=s, n_startup_trials=5)) for s in (3, 4))
    assert all(a != b for a, b in zip(params(first), params(other), strict=True))
    expected = first.ask()
    mixed(expected)
    for clone in (pickle.loads(pickle.dumps(first.sampler)), copy.deepcopy(first.sampler)):
        trial = continued(first, clone).ask()
        mixed(trial)
        assert trial.params == expected.params


def test_samplers_without_a_common_lock_that_choose_at_the_same_time_stay_apart():
    study = run(line, 3, sure())
    barrier = threading.Barrier(2, timeout=PATIENCE)
    chosen = []

    def ask(other):
        barrier.wait()
        trial = other.ask()
        chosen.append(trial.suggest_float("x", 0.0, 1.0))
        barrier.wait()

    threads = []
    for _ in range(2):
        other = copy.copy(study)
        other.sampler = sure()
        threads.append(threading.Thread(target=ask, args=(other,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert least_gap(chosen) > 0.01


# Pending trials


def test_running_trials_are_pending_from_the_moment_they_are_chosen_until_they_stop_running():
    study = run(line, 3, sure())
    trials = [study.ask() for _ in range(3)]
    # Nothing was asked for yet, so only what was chosen can be seen.
    assert not any(trial.params for trial in trials)
    points = [trial.relative_params["x"] for trial in trials]
    assert least_gap(points) > 0.02
    study.tell(trials[0], line(trials[0]))
    study.tell(trials[1], state=TrialState.FAIL)  # before it asked for anything
    twin = continued(study, sure())
    twin.enqueue_trial({"x": points[2]})
    assert twin.ask().suggest_float("x", 0.0, 1.0) == points[2]
    assert study.ask().relative_params == twin.ask().relative_params


# Failures and what else trials can be


def test_failed_pruned_and_infinite_trials_are_failures_and_bounds_never_rest_on_them():
    study = run(line, 4, sure())
    failed = study.ask().relative_params["x"]
    interval = study.sampler.interval(study, {"x": 0.5})
    study.add_trial(finished(failed, None, TrialState.FAIL))
    study.add_trial(finished(0.5, None, TrialState.PRUNED, intermediate_values={3: -100.0}))
    study.add_trial(finished(0.4, math.inf))
    assert study.sampler.interval(study, {"x": 0.5}) == interval
    (pruned,) = study.sampler.replayed(study).optimizer.run.trials.pruned
    assert pruned.reports == [(3, -100.0)]
    guarantee = study.sampler.guarantee(study)
    assert guarantee.startswith("not certified: ")
    assert "trials failed or pruned: 3; " in guarantee
    for _ in range(3):  # there is no going back to where it failed
        assert abs(study.ask().relative_params["x"] - failed) > 0.01


def test_an_interrupt_while_trials_are_learned_changes_nothing_later(monkeypatch):
    study = run(line, 7, KBOSampler(seed=0))
    study.sampler.recommended(study)
    study.optimize(line, n_trials=1)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Run, "complete", interrupted)
        with pytest.raises(KeyboardInterrupt):
            study.sampler.recommended(study)
    study.optimize(line, n_trials=3)
    assert study.sampler.recommended(study).number == KBOSampler(seed=0).recommended(study).number


# Bounds


def test_bounds_that_are_certified_say_so_and_hold():
    def noisy(trial):
        x, y = (trial.suggest_float(name, 0.0, 1.0) for name in "yx")
        return math.sin(3 * x) + y + 0.1 * (-1) ** trial.number

    kernel = RBFKernel(ard_num_dims=2).double()
    kernel.lengthscale = torch.tensor([[1.0, 0.8]])  # in the order of the names: x, y
    sampler = KBOSampler(seed=0, setting=kbo.Certified(kernel, noise_std=0.1, norm_bound=8.0))
    study = run(noisy, 8, sampler, directions=["maximize"])
    for i in range(5):
        x, y = i / 4, (2 - i) ** 2 / 4
        lower, mean, upper = sampler.interval(study, {"x": x, "y": y})
        assert lower <= mean <= upper
        assert lower <= math.sin(3 * y) + x <= upper
    assert sampler.guarantee(study).startswith("certified")
    with pytest.raises(InvalidInput, match="expected values of the study"):
        sampler.interval(study, {"z": 3.0})
    empty = optuna.create_study(sampler=KBOSampler(seed=0))
    assert empty.sampler.guarantee(empty).startswith("none")
    assert empty.sampler.interval(empty, {"x": 0.5}) is None
    with pytest.raises(InvalidInput, match="no trial of the study is complete"):
        empty.sampler.recommended(empty)


def with_another_sampler(study, sampler):
    own = study.sampler
    study.sampler = sampler
    study.optimize(line, n_trials=1)
    study.sampler = own


def enqueued(study):
    study.enqueue_trial({"x": 0.5})
    study.optimize(line, n_trials=1)


@pytest.mark.parametrize(
    ("change", "is_from_here"),
    [
        (enqueued, True),
        (lambda study: with_another_sampler(study, sure(1)), True),
        (lambda study: with_another_sampler(study, RandomSampler(seed=0)), False),
        (lambda study: study.add_trials(study.trials[:1]), False),
    ],
)
def test_only_trials_that_were_proposed_in_the_study_keep_the_guarantee(change, is_from_here):
    study = run(line, 4, sure())
    change(study)
    storage = optuna.storages.InMemoryStorage()
    name = study.study_name
    optuna.copy_study(from_study_name=name, from_storage=study._storage, to_storage=storage)
    for present in (study, optuna.load_study(study_name=name, storage=storage)):
        guarantee = study.sampler.guarantee(present)
        assert guarantee.startswith("certified" if is_from_here else "not certified")


# Constraints


def limited(trial):
    """The best value is at (1, 1), the best possible one on the line x + y = 1.2, with a kink at (0.4, 0.8)."""
    x, y = (trial.suggest_float(name, 0.0, 1.0) for name in "xy")
    trial.set_user_attr("excess", x + y - 1.2)
    return -x - y + abs(x - 0.4) / 2


def limited_by_name(trial):
    value = limited(trial)
    trial.set_constraint("excess", trial.user_attrs["excess"])
    trial.set_constraint("free", -1.0)
    return value


def excess_of(trial):
    return [trial.user_attrs["excess"], -1.0]


def test_constraints_are_kept_however_they_are_reported_and_shared_with_other_workers():
    named = run(limited_by_name, 12)
    listed = run(limited, 6, quick(constraints_func=excess_of))
    assert params(named)[:6] == params(listed)
    assert listed.trials[3].system_attrs["constraints"] == tuple(excess_of(listed.trials[3]))
    near = [t for t in named.trials[6:] if t.constraints["excess"] < 0.05 and t.value < -1.1]
    assert len(near) >= 3
    resumed = optuna.create_study(sampler=quick())
    resumed.add_trials(named.trials[:11])
    assert resumed.ask().relative_params == params(named)[11]
    point = {"x": 0.5, "y": 0.5}
    ranges = {"x": UNIT, "y": UNIT}
    named.add_trial(create_trial(value=-9.0, params=point, distributions=ranges))  # no constraint
    best = named.sampler.recommended(named)
    assert best.constraints["excess"] <= 0
    assert best.value < -1.0
    assert set(named.sampler.feasibility(named).bounds) == {"excess", "free"}
    free = run(bowl, 2)
    assert free.sampler.feasibility(free) is None
    free.add_trial(finished(0.5, 1.0, constraints={"objective": 1.0}))
    with pytest.raises(InvalidInput, match="that is the name of the value"):
        free.ask().suggest_float("x", 0.0, 1.0)


def test_certified_constraints_are_certified():
    def objective(trial):
        trial.set_constraint("c", line(trial) - 0.5 + 1e-6 * trial.number)
        return trial.params["x"] + 1e-6 * trial.number

    known = [kbo.Constraint("c", upper=0.0, noise_std=0.01, norm_bound=6.0)]
    setting = certified(noise_std=0.01, norm_bound=2.0)
    sampler = KBOSampler(seed=0, setting=setting, constraints=known)
    study = run(objective, 8, sampler, directions=["maximize"])
    feasibility = sampler.feasibility(study)
    assert feasibility.certified
    assert feasibility.kept
    assert feasibility.bounds["c"][2] <= 0
    assert line(sampler.recommended(study)) <= 0.5
    study.add_trial(finished(0.5, 0.5, constraints={"c": 0.0}))  # perhaps selected by its noise
    assert not sampler.feasibility(study).certified
    with pytest.raises(InvalidInput, match="'c': the certified setting needs its own noise_std"):
        run(objective, 3, KBOSampler(seed=0, setting=setting))


# What is refused, and what runs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "dmm-ucbb"}, "did you mean"),
        ({"n_startup_trials": 1}, "n_startup_trials must be"),
        ({"n_startup_trials": 5, "setting": certified()}, "n_startup_trials is for the practical"),
        ({"constraints_func": [0.0]}, "constraints_func must be a function"),
        ({"constraints": [kbo.Constraint("c", upper=1.0)]}, r"at most 0, .*upper=1.0"),
        ({"constraints_func": excess_of, "setting": certified()}, "numbers for each of its"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_at_once(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        KBOSampler(**arguments)


# Several objectives


def two_bowls(trial):
    """The front is where x = y."""
    x = trial.suggest_float("x", 0.0, 1.0)
    away = (x - trial.suggest_float("y", 0.0, 1.0)) ** 2
    return x**2 + away, (1 - x) ** 2 + away


def noisy_bowls(trial, noise_std=0.05):
    noise = noise_std * torch.randn(2, generator=torch.Generator().manual_seed(trial.number))
    first, second = two_bowls(trial)
    return first + float(noise[0]), second + float(noise[1])


def test_directions_are_those_of_the_study_which_goes_on_as_if_it_had_not_stopped(tmp_path):
    def mirrored(trial):
        first, second = two_bowls(trial)
        return -first, second

    whole = several(two_bowls, 9)
    options = {"storage": f"sqlite:///{tmp_path}/study.db", "study_name": "two"}
    several(mirrored, 7, directions=["maximize", "minimize"], **options)
    study = optuna.load_study(sampler=quick(), **options)
    study.optimize(mirrored, n_trials=2)
    assert params(study) == params(whole)
    front = study.sampler.front(study)
    assert [objective.maximize for objective in front.objectives] == [True, False]
    means = [point.values["values_0"].value for point in front.points]
    assert max(means) <= 0.1
    assert min(means) < -0.1
    # The sampler may go on with a study of other directions.
    assert params(several(two_bowls, 6, study.sampler)) == params(whole)[:6]


def test_the_trials_of_a_front_are_those_of_the_study_and_the_balanced_one_is_recommended():
    study = optuna.create_study(directions=MINIMA, sampler=quick(reference={"error": 0.9}))
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        study.set_metric_names(["error", "seconds"])
    study.optimize(noisy_bowls, n_trials=2)
    assert study.sampler.front(study) is None
    study.optimize(lambda trial: (two_bowls(trial)[0], math.inf), n_trials=1)  # has failed
    study.optimize(noisy_bowls, n_trials=7)
    front = study.sampler.front(study)
    assert front.reference["error"] == 0.9
    assert len(front.points) > 1
    for point in front.points:
        assert params(study)[point.trial.number] == point.trial.params
        for index, name in enumerate(["error", "seconds"]):
            interval = study.sampler.interval(study, point.trial.params, objective=index)
            assert interval == pytest.approx(tuple(point.values[name]))
        assert point.trial.number != 2
    assert study.sampler.recommended(study).number == front.balanced.trial.number
    guarantee = study.sampler.guarantee(study)
    for text in ("not certified", "error: ", "seconds: "):
        assert text in guarantee
    with pytest.raises(InvalidInput, match="objective must be a whole number from 0 to 1, got 2"):
        study.sampler.interval(study, point.trial.params, 2)
    with pytest.raises(InvalidInput, match="give objective=0 to 1"):  # not that of the first one
        study.sampler.interval(study, point.trial.params)


def test_what_does_not_suit_several_objectives_is_refused_before_a_trial_is_paid_for():
    paid = []
    for options, message in (
        ({"method": "random"}, "no bounds, which the search for a front needs"),
        ({"setting": certified()}, "certified setting needs numbers for each of several"),
        ({"reference": {"values_2": 1.0}}, "numbers for some of the objectives"),
    ):
        sampler = KBOSampler(seed=0, **options)
        study = optuna.create_study(directions=MINIMA, sampler=sampler)
        with pytest.raises(InvalidInput, match=message):
            study.optimize(lambda trial: paid.append(trial) or (1.0, 1.0), n_trials=2)
        assert not paid
        with pytest.raises(InvalidInput, match=message):
            sampler.front(study)


def test_the_audit_names_the_best_trials_that_are_luck():
    study = several(lambda trial: noisy_bowls(trial, 0.2), 30, RandomSampler(seed=1))
    audit = kbo.audit(study)
    assert sorted(audit.observed) == sorted(trial.number for trial in study.best_trials)
    assert 0 < len(audit.lucky) < len(audit.observed)
    on_front = {audit.history.names[point.trial.number] for point in audit.result.front.points}
    assert set(audit.lucky) == set(audit.observed) - on_front
    assert f"others dominate {len(audit.lucky)} of them" in str(audit)
