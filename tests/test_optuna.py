"""KBOSampler in Optuna's studies: spaces, failures, several workers, kills, bounds, several objectives."""

import copy
import itertools
import math
import os
import pickle
import statistics
import threading
import time
from pathlib import Path

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

optuna = pytest.importorskip("optuna")

from optuna.distributions import (  # noqa: E402
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import PartialFixedSampler, RandomSampler  # noqa: E402
from optuna.trial import TrialState, create_trial  # noqa: E402

import kbo  # noqa: E402
from kbo.errors import InvalidInput  # noqa: E402
from kbo.integrations.optuna import KBOSampler  # noqa: E402
from kbo.integrations.optuna.space import SearchSpace  # noqa: E402
from kbo.optimize.run.run import Run  # noqa: E402
from tests.processes import PATIENCE, started, wait_until  # noqa: E402

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


def run(objective, n_trials, sampler=None, directions=("minimize",), catch=(), **options):
    study = optuna.create_study(sampler=sampler or quick(), directions=directions, **options)
    study.optimize(objective, n_trials=n_trials, catch=catch)
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
        reals = [
            x,
            trial.suggest_float("log", 1e-5, 10.0, log=True),
            trial.suggest_float("step", 0.1, 0.95, step=0.2),
            trial.suggest_float("one", 2.0, 2.0),
        ]
        n = trial.suggest_int("intlog", 1, 1000, log=True)
        wholes = [n, trial.suggest_int("int", -4, 4), trial.suggest_int("intstep", 3, 30, step=4)]
        choice = trial.suggest_categorical("choice", choices)
        trial.suggest_categorical("only", ["this"])
        assert {type(value) for value in reals} == {float}
        assert {type(value) for value in wholes} == {int}
        return x**2 + abs(math.log(n / 30)) + (choice is not None)

    study = run(objective, 18, KBOSampler(seed=0, n_startup_trials=14))
    searched = {"float", "log", "step", "int", "intstep", "intlog", "choice"}
    for trial in study.trials:
        for name, d in trial.distributions.items():
            assert d._contains(d.to_internal_repr(trial.params[name])), (name, trial.params[name])
        # All but the first come from the model.
        assert trial.number == 0 or trial.system_attrs["kbo:chosen"].keys() == searched
    assert {repr(p["choice"]) for p in params(study)} == set(map(repr, choices))
    assert {round(p["step"], 9) for p in params(study)} == {0.1, 0.3, 0.5, 0.7, 0.9}
    assert study.sampler.interval(study, study.best_params) is not None


def test_encoding_and_decoding_are_inverse_and_the_features_are_in_the_order_of_the_names():
    odd = ["a", None, True, float("nan"), (1, 2)]
    with pytest.warns(UserWarning, match="Choices for a categorical"):
        choice = CategoricalDistribution(odd)
    with pytest.warns(UserWarning, match="Choices for a categorical"):
        equal = CategoricalDistribution([(1,), (1,)])
    space = SearchSpace(
        {
            "z": FloatDistribution(-1.0, 1.0, step=0.25),
            "b": choice,
            "a": FloatDistribution(1e-3, 10.0, log=True),
            "m": IntDistribution(2, 11, step=3),
            "k": IntDistribution(1, 9, log=True),
        }
    )
    assert list(space.distributions) == ["a", "b", "k", "m", "z"]
    for option, text in zip(odd, ["'a'", "None", "True", "nan", "(1, 2)"], strict=True):
        values = {"a": 0.02, "b": option, "k": 3, "m": 8, "z": -0.75}
        encoded = space.encode(values)
        assert encoded == values | {"b": text}
        assert repr(space.decode(encoded)) == repr(values)
    for wrong in ({"m": 7}, {"a": 20.0}, {"b": "c"}, {"k": "no"}):
        with pytest.raises(InvalidInput, match="is not in"):
            space.encode(wrong)
    options = SearchSpace({"b": equal}).space.parameters["b"].options
    assert options == ("(1,) (0)", "(1,) (1)")
    plain = SearchSpace({"b": CategoricalDistribution(["a", None, True, 2.5])})
    for values in ({"b": True}, {"b": None}):
        assert plain.encode(values) == plain.decode(values) == values


def test_a_fixed_parameter_and_a_pruner_of_many_brackets_are_no_obstacle():
    fixed = run(bowl, 6, PartialFixedSampler({"x": 0.25}, quick()))
    assert {p["x"] for p in params(fixed)} == {0.25}

    def stepwise(trial):
        value = bowl(trial)
        for step in range(9):
            trial.report(value + 1 / (1 + step), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    # The brackets of trials come from the name of the study.
    pruner = optuna.pruners.HyperbandPruner(1, 9, 3)
    study = run(stepwise, 14, pruner=pruner, study_name="brackets")
    assert {t.state for t in study.trials} == {TrialState.COMPLETE, TrialState.PRUNED}
    assert len(study.trials) == 14


# Directions, seeds, resuming


def test_minimising_finds_the_minimum_and_maximising_the_maximum_better_than_at_random():
    at_random = statistics.median(run(bowl, 16, RandomSampler(seed=s)).best_value for s in range(9))
    low = run(bowl, 16)
    assert low.best_value < 0.1 * at_random
    assert params(run(lambda trial: -bowl(trial), 16, directions=["maximize"])) == params(low)


def test_choices_follow_from_the_seed_and_go_on_with_a_copy_of_the_sampler():
    first, again, other = (run(mixed, 7, KBOSampler(seed=s, n_startup_trials=5)) for s in (3, 3, 4))
    assert params(first) == params(again)
    assert all(a != b for a, b in zip(params(first), params(other), strict=True))
    assert params(run(bowl, 2, KBOSampler())) != params(run(bowl, 2, KBOSampler()))
    expected = first.ask()
    mixed(expected)
    for clone in (pickle.loads(pickle.dumps(first.sampler)), copy.deepcopy(first.sampler)):
        trial = continued(first, clone).ask()
        mixed(trial)
        assert trial.params == expected.params


# Processes and threads


def work(storage, trials, seed=0, hold=0.0):
    """Work on a study of x with x <= 0.5, also in another process."""

    def objective(trial):
        value = mixed(trial)
        trial.set_constraint("x", trial.params["x"] - 0.5)
        trial.set_user_attr("process", os.getpid())
        time.sleep(hold)
        return value

    sampler = KBOSampler(seed=seed, n_startup_trials=5)
    options = {"study_name": "shared", "storage": storage, "load_if_exists": True}
    return run(objective, trials, sampler, **options)


@pytest.mark.thorough
def test_a_killed_process_leaves_a_pending_trial_and_a_study_that_continues(tmp_path):
    storage = f"sqlite:///{tmp_path}/study.db"
    whole = params(work(None, 9, 2))
    study = work(storage, 8, 2)
    code = f"from tests.test_optuna import work; work({storage!r}, 7, 2, {2 * PATIENCE})"
    with started("-c", code, cwd=Path(__file__).parent.parent) as victim:

        def begun():
            attributes = [t.user_attrs for t in study.get_trials(deepcopy=False)]
            return {a.get("process", os.getpid()) for a in attributes} != {os.getpid()}

        wait_until(lambda: begun() or victim.poll() is not None)
        assert victim.poll() is None
        study.optimize(mixed, n_trials=2)
    work(storage, 2, 2)
    states = [t.state for t in study.trials]
    assert states == [TrialState.COMPLETE] * 8 + [TrialState.RUNNING] + [TrialState.COMPLETE] * 4
    assert params(study)[:9] == whole  # the ninth was chosen by a process that has loaded the study
    assert params(study)[8] not in params(study)[9:]


def test_threads_share_a_sampler():
    barrier = threading.Barrier(2, timeout=PATIENCE)

    def together(trial):
        value = mixed(trial)
        barrier.wait()
        return value

    study = optuna.create_study(sampler=quick())
    study.optimize(together, n_trials=12, n_jobs=2)
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 12
    for a, b in itertools.combinations(study.trials, 2):
        if max(a.datetime_start, b.datetime_start) < min(a.datetime_complete, b.datetime_complete):
            assert a.params != b.params


def test_samplers_without_a_common_lock_that_choose_at_the_same_time_stay_apart():
    study = run(line, 3, sure())
    others = [copy.copy(study) for _ in range(2)]
    for seed in range(3):
        barrier = threading.Barrier(2, timeout=PATIENCE)
        chosen = []

        def ask(other, barrier=barrier, chosen=chosen):
            barrier.wait()
            trial = other.ask()
            chosen.append(trial.suggest_float("x", 0.0, 1.0))
            barrier.wait()
            other.tell(trial, math.sin(5 * trial.params["x"]))

        threads = []
        for other in others:
            other.sampler = sure(seed)
            threads.append(threading.Thread(target=ask, args=(other,)))
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(chosen) == 2
        assert least_gap(chosen) > 0.01, (seed, chosen)


# Pending trials


def test_running_trials_are_pending_when_another_sampler_or_the_user_chose_them():
    study = run(line, 3, sure())
    alone = study.ask().relative_params["x"]
    twin = continued(study, sure())
    twin.enqueue_trial({"x": alone})
    assert twin.ask().suggest_float("x", 0.0, 1.0) == alone
    assert abs(twin.ask().suggest_float("x", 0.0, 1.0) - alone) > 0.02


def test_trials_are_pending_from_the_moment_they_are_chosen_until_they_stop_running():
    study = run(line, 4, sure())
    trials = [study.ask() for _ in range(3)]
    # Nothing was asked for yet, so only what was chosen can be seen.
    assert not any(trial.params for trial in trials)
    assert least_gap([trial.relative_params["x"] for trial in trials]) > 0.02
    study.tell(trials[0], line(trials[0]))
    study.tell(trials[1], state=TrialState.FAIL)  # before it asked for anything
    study.tell(trials[2], state=TrialState.FAIL)
    fresh = continued(study, sure())
    assert study.ask().relative_params == fresh.ask().relative_params


# Failures and what else trials can be


def test_failed_pruned_and_infinite_trials_are_failures_and_bounds_never_rest_on_them():
    study = run(line, 6, sure())
    failed = study.ask().relative_params["x"]
    interval = study.sampler.interval(study, {"x": 0.5})
    study.add_trial(finished(failed, None, TrialState.FAIL))
    study.add_trial(finished(0.5, None, TrialState.PRUNED, intermediate_values={3: -100.0}))
    study.add_trial(finished(0.4, math.inf))
    assert study.sampler.interval(study, {"x": 0.5}) == interval
    guarantee = study.sampler.guarantee(study)
    assert guarantee.startswith("not certified: ")
    assert (
        "trials failed or pruned: 3; trials that KBOSampler did not propose in this " in guarantee
    )
    assert "perhaps with values that were known before: 3; " in guarantee
    for _ in range(3):  # there is no going back to where it failed
        assert abs(study.ask().relative_params["x"] - failed) > 0.01


def test_a_pruned_trial_counts_by_its_last_report():
    means = []
    for report in (1.06, 1.5):
        study = optuna.create_study(sampler=quick(setting=kbo.Practical(noise_std=0.01)))
        for x in (0.05, 0.2, 0.35, 0.5, 0.65, 0.8):
            values = {step: abs(x - 0.3) + 1 / step for step in range(1, 5)}
            study.add_trial(finished(x, abs(x - 0.3), intermediate_values=values))
        reports = {1: report, 2: math.nan}
        study.add_trial(finished(0.95, None, TrialState.PRUNED, intermediate_values=reports))
        means.append(study.sampler.interval(study, {"x": 0.9})[1])
    assert means[0] < means[1] - 0.1
    assert study.ask().relative_params["x"] < 0.6


@pytest.mark.parametrize("setting", [kbo.Practical(), certified()], ids=["practical", "certified"])
def test_a_model_goes_on_with_new_trials_and_begins_anew_after_other_ones(setting):
    study = run(line, 4, KBOSampler(seed=0, setting=setting))
    optimizer = study.sampler.replayed(study).optimizer
    study.optimize(line, n_trials=1)
    assert study.sampler.replayed(study).optimizer is optimizer
    assert len(optimizer.trials) == 5
    assert study.sampler.replayed(run(line, 1)).optimizer is not optimizer


def test_an_interrupt_while_trials_are_learned_changes_nothing_later(monkeypatch):
    study = run(line, 7, KBOSampler(seed=0))
    study.sampler.recommended(study)
    study.optimize(line, n_trials=1)
    complete = Run.complete
    left = [1]

    def interrupted(*arguments):
        if left.pop():
            raise KeyboardInterrupt
        return complete(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "complete", interrupted)
        with pytest.raises(KeyboardInterrupt):
            study.sampler.recommended(study)
    study.optimize(line, n_trials=3)
    assert study.sampler.recommended(study).number == KBOSampler(seed=0).recommended(study).number


def test_enqueued_trials_are_tried_completed_and_used():
    study = run(bowl, 5)
    for enqueued in ({"x": 0.31, "y": 0.79}, {"x": 0.5}, {"x": 7.0}):
        study.enqueue_trial(enqueued)
    with pytest.warns(UserWarning, match="out of range"):  # which Optuna allows
        study.optimize(bowl, n_trials=4)
    assert study.trials[5].params == {"x": 0.31, "y": 0.79}
    assert study.trials[6].params["x"] == 0.5
    assert abs(study.trials[6].params["y"] - 0.8) < 0.3  # chosen for that x
    assert study.trials[7].params["x"] == 7.0
    assert study.sampler.recommended(study).number != 7


# Bounds


def test_bounds_that_are_certified_say_so_and_hold_and_others_do_not():
    def noisy(trial):
        x, y = (trial.suggest_float(name, 0.0, 1.0) for name in "yx")
        return math.sin(3 * x) + y + 0.1 * (-1) ** trial.number

    kernel = RBFKernel(ard_num_dims=2).double()
    kernel.lengthscale = torch.tensor([[1.0, 0.8]])  # in the order of the names: x, y
    sampler = KBOSampler(seed=0, setting=kbo.Certified(kernel, noise_std=0.1, norm_bound=8.0))
    study = run(noisy, 12, sampler, directions=["maximize"])
    for i in range(5):
        x, y = i / 4, (2 - i) ** 2 / 4
        lower, mean, upper = sampler.interval(study, {"x": x, "y": y})
        assert lower <= mean <= upper
        assert lower <= math.sin(3 * y) + x <= upper
    assert sampler.guarantee(study).startswith("certified")
    practical = run(bowl, 8)
    assert practical.sampler.guarantee(practical).startswith("practical, not certified")
    empty = optuna.create_study(sampler=KBOSampler(seed=0))
    assert empty.sampler.guarantee(empty).startswith("none")
    assert empty.sampler.interval(empty, {"x": 0.5}) is None
    with pytest.raises(InvalidInput, match="no trial of the study is complete"):
        empty.sampler.recommended(empty)
    with pytest.raises(InvalidInput, match=r"'x'.*is not in"):
        practical.sampler.interval(practical, {"x": 3.0})
    with pytest.raises(InvalidInput, match="expected values of the study's parameters"):
        practical.sampler.interval(practical, {"z": 3.0})


@pytest.mark.parametrize(("direction", "lucky"), [("minimize", -0.4), ("maximize", 0.4)])
def test_the_recommended_trial_is_not_the_best_value(direction, lucky):
    study = optuna.create_study(sampler=sure(noise_std=0.5), direction=direction)
    trials = [finished(0.1, 0.0), finished(0.5, -2.5 * lucky)]
    study.add_trials([*trials * 20, finished(0.9, lucky)])
    assert study.best_trial.params == {"x": 0.9}
    assert study.sampler.recommended(study).params == {"x": 0.1}


def copied(study):
    storage = optuna.storages.InMemoryStorage()
    name = study.study_name
    optuna.copy_study(from_study_name=name, from_storage=study._storage, to_storage=storage)
    return optuna.load_study(study_name=name, storage=storage, sampler=study.sampler)


def enqueued(study):
    study.enqueue_trial({"x": 0.5})
    study.optimize(line, n_trials=1)


def with_sampler(sampler):
    def change(study):
        own = study.sampler
        study.sampler = sampler
        study.optimize(line, n_trials=1)
        study.sampler = own

    return change


def chosen_elsewhere(study):
    study.add_trials([trial for trial in run(line, 6, sure()).trials if trial.value < 0])


PROPOSED_HERE = {
    "a copy": copied,
    "enqueued": enqueued,
    "another seed": with_sampler(sure(1)),
}
FROM_ELSEWHERE = {
    "chosen trials of another study": chosen_elsewhere,
    "later trials of the same sampler": lambda study: study.add_trials(
        run(line, 6, study.sampler).trials[4:]
    ),
    "own trials again": lambda study: study.add_trials(study.trials[:1]),
    "another sampler": with_sampler(RandomSampler(seed=0)),
}


@pytest.mark.parametrize("change", [*PROPOSED_HERE, *FROM_ELSEWHERE])
def test_only_trials_that_were_proposed_in_the_study_keep_the_guarantee(change):
    study = run(line, 4, sure())
    study = (PROPOSED_HERE | FROM_ELSEWHERE)[change](study) or study
    guarantee = study.sampler.guarantee(study)
    assert guarantee.startswith("certified" if change in PROPOSED_HERE else "not certified")
    words = "that KBOSampler did not propose in this study"
    assert (words in guarantee) == (change in FROM_ELSEWHERE)


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
    listed = run(limited, 8, quick(constraints_func=excess_of))
    assert params(named)[:8] == params(listed)
    assert named.trials[3].constraints.keys() == {"excess", "free"}
    assert listed.trials[3].system_attrs["constraints"] == tuple(excess_of(listed.trials[3]))
    near = [t for t in named.trials[6:] if t.constraints["excess"] < 0.05 and t.value < -1.1]
    assert len(near) >= 3
    best = named.sampler.recommended(named)
    assert best.constraints["excess"] <= 0
    assert best.value < -1.0
    assert set(named.sampler.feasibility(named).bounds) == {"excess", "free"}
    free = run(limited, 5)
    assert free.sampler.feasibility(free) is None
    resumed = optuna.create_study(sampler=quick())
    resumed.add_trials(named.trials[:9])
    resumed.optimize(limited_by_name, n_trials=3)
    assert params(resumed) == params(named)
    pending = [resumed.ask().relative_params for _ in range(2)]
    assert math.dist(*(point.values() for point in pending)) > 1e-3


def test_failed_pruned_and_incomplete_trials_of_constrained_studies():
    def fragile(trial):
        value = limited(trial)
        if trial.number == 5:
            return value  # without a constraint
        trial.set_constraint("excess", trial.user_attrs["excess"])
        if trial.number == 6:
            raise ArithmeticError("no")
        if trial.number == 7:
            trial.report(value, 1)
            raise optuna.TrialPruned
        return value

    study = run(fragile, 12, catch=ArithmeticError)
    assert len(study.trials) == 12
    best = study.sampler.recommended(study)
    assert best.number not in (5, 6, 7)
    assert best.constraints["excess"] <= 0
    clash = optuna.create_study(sampler=KBOSampler(seed=0))
    clash.add_trial(finished(0.5, 1.0, constraints={"objective": 1.0}))
    with pytest.raises(InvalidInput, match="that is the name of the value"):
        clash.ask().suggest_float("x", 0.0, 1.0)


def test_certified_constraints_are_certified():
    def objective(trial):
        trial.set_constraint("c", line(trial) - 0.5 + 1e-6 * trial.number)
        return trial.params["x"] + 1e-6 * trial.number

    known = [kbo.Constraint("c", upper=0.0, noise_std=0.01, norm_bound=6.0)]
    setting = certified(noise_std=0.01, norm_bound=2.0)
    sampler = KBOSampler(seed=0, setting=setting, constraints=known)
    study = run(objective, 12, sampler, directions=["maximize"])
    feasibility = sampler.feasibility(study)
    assert feasibility.certified
    assert feasibility.kept
    assert feasibility.bounds["c"][2] <= 0
    assert line(sampler.recommended(study)) <= 0.5
    study.add_trial(finished(0.5, 0.5, constraints={"c": 0.0}))  # perhaps selected by its noise
    assert not sampler.feasibility(study).certified
    words = "'c': the certified setting needs its own noise_std and norm_bound"
    with pytest.raises(InvalidInput, match=words):
        run(objective, 3, KBOSampler(seed=0, setting=setting))


# What is refused, and what runs

SAFE = kbo.Safe(RBFKernel(), 0.1, 1.0, start=[{"x": 0.5}])
NUMBERED = kbo.Constraint("c", upper=0.0, norm_bound=1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "dmm-ucbb"}, "did you mean"),
        ({"method": "igp-ucb"}, "n_trials"),
        ({"method": "gp-ucb"}, "finite sets"),
        ({"seed": 1.5}, "seed must be"),
        ({"n_startup_trials": 1}, "n_startup_trials must be"),
        ({"n_startup_trials": 5, "setting": certified()}, "n_startup_trials is for the practical"),
        ({"method": "chaining-ucb"}, "certified setting"),
        ({"setting": SAFE}, "for kbo.minimize and kbo.Optimizer"),
        ({"constraints_func": [0.0]}, "constraints_func must be a function"),
        ({"constraints": [kbo.Constraint("c", upper=1.0)]}, r"at most 0, .*upper=1.0"),
        ({"constraints": [lambda params: True]}, "those that Optuna measures"),
        ({"constraints": [NUMBERED]}, "norm_bound and kernel are for"),
        (
            {"constraints_func": excess_of, "setting": certified()},
            "numbers for each of its constraints",
        ),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_at_once(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        KBOSampler(**arguments)


def alternating(trial):
    return trial.suggest_float("xy"[trial.number % 2], 0, 1)


ARD = kbo.Certified(RBFKernel(ard_num_dims=2), 0.1, 1.0)


@pytest.mark.parametrize(
    ("objective", "setting", "message"),
    [
        (lambda trial: trial.suggest_float("x", -1e308, 1e308), None, "parameter 'x': .*float64"),
        (lambda trial: trial.suggest_categorical("x", range(20_000)), None, "'x': .*20000 columns"),
        (alternating, certified(), "same parameters"),
        (line, ARD, "2 lengthscales for 1 columns"),
        (lambda trial: 10 * line(trial), certified(norm_bound=0.5), "refute"),
    ],
)
def test_studies_that_cannot_be_modelled_are_refused(objective, setting, message):
    with pytest.raises(kbo.KboError, match=message):
        run(objective, 30, KBOSampler(seed=0, setting=setting))


@pytest.mark.parametrize(
    ("arguments", "has_bound"),
    [
        ({"method": "igp-ucb", "n_trials": 6}, True),
        ({"method": "random"}, False),
        ({"setting": certified(norm_bound=20.0), "method": "kernel-ts"}, True),
        (
            {"setting": certified(norm_bound=20.0, noise_std=None), "method": "dmm-ucb-adaptive"},
            False,
        ),
        ({"setting": kbo.Practical(n_initial=3)}, True),
    ],
)
def test_methods_and_settings_of_every_kind_run(arguments, has_bound):
    study = run(line, 6, KBOSampler(seed=0, **arguments))
    assert len({p["x"] for p in params(study)}) >= 4
    assert (study.sampler.interval(study, {"x": 0.5}) is not None) == has_bound


# Several objectives


def two_bowls_at(x, y):
    away = (x - y) ** 2
    return x**2 + away, (1 - x) ** 2 + away


def two_bowls(trial):
    """The front is where x = y; a share of 1/6 of the unit square lies above it."""
    x = trial.suggest_float("x", 0.0, 1.0)
    return two_bowls_at(x, trial.suggest_float("y", 0.0, 1.0))


def noisy_bowls(trial, noise_std=0.05):
    noise = noise_std * torch.randn(2, generator=torch.Generator().manual_seed(trial.number))
    first, second = two_bowls(trial)
    return first + float(noise[0]), second + float(noise[1])


def name_values(study, *names):
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        study.set_metric_names(names)


def dominated_share(points):
    """The share of the unit square that is worse than a point: by its left ends, from left to right."""
    share = 0.0
    lowest = 1.0
    for x, y in sorted(points):
        if x < 1.0 and y < lowest:
            share += (1.0 - x) * (lowest - y)
            lowest = y
    return share


def test_the_front_is_found_with_fewer_trials_than_by_random_search():
    missing = {KBOSampler: 0.0, RandomSampler: 0.0}
    for sampler, seed in itertools.product(missing, range(2)):
        study = several(two_bowls, 30, sampler(seed=seed))
        missing[sampler] += 5 / 6 - dominated_share(t.values for t in study.best_trials)
    assert 0 < missing[KBOSampler] / 2 < 0.03
    assert missing[KBOSampler] < missing[RandomSampler] / 2


def test_directions_are_those_of_the_study():
    def mirrored(trial):
        first, second = two_bowls(trial)
        return -first, second

    expected = several(two_bowls, 10)
    study = several(mirrored, 10, directions=["maximize", "minimize"])
    assert params(study) == params(expected)
    front = study.sampler.front(study)
    assert [objective.maximize for objective in front.objectives] == [True, False]
    means = [point.values["values_0"].mean for point in front.points]
    assert max(means) <= 0.1
    assert min(means) < -0.1
    again = several(two_bowls, 10, study.sampler)  # other directions than in the last study
    assert params(again) == params(expected)


def test_the_trials_of_a_front_are_those_of_the_study_and_the_balanced_one_is_recommended():
    study = optuna.create_study(directions=MINIMA, sampler=quick())
    name_values(study, "error", "seconds")
    study.optimize(noisy_bowls, n_trials=13)
    front = study.sampler.front(study)
    assert len(front.points) > 2
    for point in front.points:
        assert params(study)[point.trial.number] == point.trial.params
        for index, name in enumerate(["error", "seconds"]):
            interval = study.sampler.interval(study, point.trial.params, objective=index)
            assert interval == pytest.approx(tuple(point.values[name]))
    assert study.sampler.recommended(study).number == front.balanced.trial.number
    assert study.trials[front.choose(limits={"error": 0.3}).trial.number].state.is_finished()
    assert "not certified" in study.sampler.guarantee(study)


def test_a_resumed_study_of_several_objectives_goes_on_as_if_it_had_not_stopped(tmp_path):
    whole = several(two_bowls, 9)
    options = {"storage": f"sqlite:///{tmp_path}/study.db", "study_name": "two"}
    several(two_bowls, 6, **options)
    study = optuna.load_study(sampler=quick(), **options)
    study.optimize(two_bowls, n_trials=3)
    assert params(study) == params(whole)
    assert study.sampler.front(study) is not None


def test_a_study_without_a_front_has_none():
    empty = optuna.create_study(directions=MINIMA, sampler=quick())
    two = several(two_bowls, 2)
    for study in (empty, two, run(bowl, 6)):
        assert study.sampler.front(study) is None
    assert two.sampler.recommended(two).number in (0, 1)


def test_trials_that_lack_one_of_the_values_have_failed_and_nothing_else_is_lost():
    def lost(trial):
        first, second = two_bowls(trial)
        if trial.number == 8:
            raise optuna.TrialPruned
        incomplete = {5: (first, math.nan), 6: (math.inf, second), 7: (first, -math.inf)}
        return incomplete.get(trial.number, (first, second))

    study = several(lost, 13)
    states = [trial.state for trial in study.trials]
    assert states[5] == TrialState.FAIL  # by Optuna
    assert states[8] == TrialState.PRUNED
    assert states.count(TrialState.COMPLETE) == 11
    trials = study.sampler.replayed(study).optimizer.run.trials
    assert [trial.number for trial in trials.failed] == [5, 6, 7, 8]
    assert len(trials.complete) == 9
    assert not {5, 6, 7, 8} & {p.trial.number for p in study.sampler.front(study).points}


def test_the_front_keeps_constraints():
    def limited_front(trial):
        values = two_bowls(trial)
        trial.set_constraint("x", trial.params["x"] - 0.5)
        return values

    study = several(limited_front, 14)
    front = study.sampler.front(study)
    assert len(front.points) > 2
    assert all(point.trial.params["x"] <= 0.5 for point in front.points)
    assert study.sampler.feasibility(study).kept
    by_function = several(two_bowls, 7, quick(constraints_func=lambda t: [t.params["x"] - 0.5]))
    assert params(by_function) == params(study)[:7]


def test_a_reference_is_where_the_front_begins_to_count():
    reference = {"values_0": 0.5, "values_1": 0.4}
    study = several(two_bowls, 14, quick(reference=reference))
    assert study.sampler.front(study).reference == reference
    counting = [t for t in study.trials[8:] if t.values[0] <= 0.5 and t.values[1] <= 0.4]
    assert len(counting) >= 4
    partial = quick(reference={"values_1": 0.4})
    level = partial.front(study).reference
    assert level == {"values_0": quick().front(study).reference["values_0"], "values_1": 0.4}


@pytest.mark.parametrize(
    ("options", "names", "message"),
    [
        ({"method": "random"}, [], "no bounds, which the search for a front needs"),
        ({"setting": certified()}, [], "certified setting needs numbers for each of several"),
        ({"reference": [1.0, 1.0]}, [], "a dict with numbers for some of the objectives"),
        ({"reference": {"values_1": math.nan}}, [], "reference of 'values_1'"),
        ({"reference": {"values_2": 1.0}}, [], "numbers for some of the objectives"),
        ({}, ["objective", "size"], "set_metric_names: an objective cannot be called 'objective'"),
        ({}, ["size", "size"], "set_metric_names: objectives: there are two called 'size'"),
    ],
)
def test_what_does_not_suit_several_objectives_is_refused_before_a_trial_is_paid_for(
    options, names, message
):
    sampler = KBOSampler(seed=0, **options)
    study = optuna.create_study(directions=MINIMA, sampler=sampler)
    if names:
        name_values(study, *names)
    paid = []
    values = [1.0, 2.0]
    trial = create_trial(values=values, params={"x": 0.5}, distributions={"x": UNIT})
    for call in (
        lambda: study.optimize(lambda trial: paid.append(trial) or (1.0, 1.0), n_trials=2),
        lambda: sampler.sample_independent(study, trial, "x", UNIT),
        lambda: sampler.sample_relative(study, trial, {}),
        lambda: sampler.infer_relative_search_space(study, trial),
        lambda: sampler.interval(study, {"x": 0.5}),
        lambda: sampler.recommended(study),
        lambda: sampler.front(study),
    ):
        with pytest.raises(InvalidInput, match=message):
            call()
    assert not paid


def test_a_reference_is_refused_for_one_objective_and_no_other_objective_is_known():
    with pytest.raises(InvalidInput, match="reference is for several objectives"):
        run(bowl, 1, KBOSampler(seed=0, reference={"values_0": 1.0}))
    study = several(two_bowls, 6)
    point = params(study)[0]
    with pytest.raises(InvalidInput, match="objective must be a whole number from 0 to 1, got 2"):
        study.sampler.interval(study, point, 2)
    with pytest.raises(InvalidInput, match="give objective=0 to 1"):  # not that of the first one
        study.sampler.interval(study, point)
    guarantee = study.sampler.guarantee(study)
    assert "values_0: " in guarantee
    assert "values_1: " in guarantee


def test_a_constraint_may_not_have_the_name_of_an_objective():
    def confused(trial):
        trial.set_constraint("values_1", -1.0)
        return two_bowls(trial)

    with pytest.raises(InvalidInput, match="constraint 'values_1': that is the name of the value"):
        several(confused, 3)


def test_the_audit_names_the_best_trials_that_are_luck():
    study = several(lambda trial: noisy_bowls(trial, 0.2), 40, RandomSampler(seed=1))
    audit = kbo.audit(study)
    assert sorted(audit.observed) == sorted(trial.number for trial in study.best_trials)
    assert 0 < len(audit.lucky) < len(audit.observed)
    on_front = {audit.names[point.trial.number] for point in audit.result.front.points}
    assert set(audit.lucky) == set(audit.observed) - on_front
    true = {trial.number: two_bowls_at(**trial.params) for trial in study.trials}
    shares = [dominated_share(true[n] for n in numbers) for numbers in (on_front, audit.observed)]
    assert shares[0] > shares[1]
    for text in (
        f"Optuna has {len(audit.observed)} trials that no other dominates",
        f"others dominate {len(audit.lucky)} of them",
        "(trial",
        "hypervolume",
    ):
        assert text in str(audit)


def test_without_noise_the_best_trials_are_no_luck():
    audit = kbo.audit(several(two_bowls, 20))
    assert audit.lucky == []
    on_front = {audit.names[point.trial.number] for point in audit.result.front.points}
    assert on_front == set(audit.observed)
    few = kbo.audit(several(two_bowls, 3))
    assert few.result.front is None
    assert "trials that no other dominates" in str(few)
