"""KBOSampler in Optuna's studies: spaces, failures, several workers, kills, bounds; and BoTorchSampler."""

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


def run(objective, n_trials, sampler=None, direction="minimize", **options):
    study = optuna.create_study(
        sampler=sampler or KBOSampler(seed=0, n_startup_trials=4), direction=direction
    )
    study.optimize(objective, n_trials=n_trials, **options)
    return study


def params(study):
    return [trial.params for trial in study.get_trials(deepcopy=False)]


def mixed(trial):
    x = trial.suggest_float("x", -2.0, 3.0)
    n = trial.suggest_int("n", 1, 64, log=True)
    c = trial.suggest_categorical("c", ["a", "b", None])
    return (x - 1) ** 2 + abs(n - 8) / 8 + (c != "b")


def bowl(trial):
    return (trial.suggest_float("x", 0.0, 1.0) - 0.3) ** 2 + (
        trial.suggest_float("y", 0.0, 1.0) - 0.8
    ) ** 2


def line(trial):
    return math.sin(5 * trial.suggest_float("x", 0.0, 1.0))


def certified(**numbers):
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.3
    return kbo.Certified(kernel, **{"noise_std": 0.1, "norm_bound": 4.0, **numbers})


def finished(x, value, state=TrialState.COMPLETE, **options):
    return create_trial(
        state=state, value=value, params={"x": x}, distributions={"x": UNIT}, **options
    )


# Spaces


def test_values_are_inside_on_the_grid_and_of_the_right_type_for_every_distribution():
    choices = ["a", None, True, 2.5, 7]

    def objective(trial):
        found = {
            "float": trial.suggest_float("float", -3.0, 5.0),
            "log": trial.suggest_float("log", 1e-5, 10.0, log=True),
            "step": trial.suggest_float("step", 0.1, 0.95, step=0.2),
            "int": trial.suggest_int("int", -4, 4),
            "intstep": trial.suggest_int("intstep", 3, 30, step=4),
            "intlog": trial.suggest_int("intlog", 1, 1000, log=True),
            "choice": trial.suggest_categorical("choice", choices),
            "one": trial.suggest_float("one", 2.0, 2.0),
            "only": trial.suggest_categorical("only", ["this"]),
        }
        assert all(isinstance(found[name], float) for name in ("float", "log", "step", "one"))
        assert all(type(found[name]) is int for name in ("int", "intstep", "intlog"))
        return (
            found["float"] ** 2
            + abs(math.log(found["intlog"] / 30))
            + (found["choice"] is not None)
        )

    study = run(objective, 20, KBOSampler(seed=0, n_startup_trials=14))
    for trial in study.trials:
        for name, d in trial.distributions.items():
            assert d._contains(d.to_internal_repr(trial.params[name])), (name, trial.params[name])
    assert {repr(t.params["choice"]) for t in study.trials} == {repr(c) for c in choices}
    assert {round(t.params["step"], 9) for t in study.trials} == {0.1, 0.3, 0.5, 0.7, 0.9}
    chosen = [
        t.system_attrs["kbo:chosen"].keys() for t in study.trials[1:]
    ]  # all but the first come from the model
    assert all(
        names == {"float", "log", "step", "int", "intstep", "intlog", "choice"} for names in chosen
    )
    assert study.sampler.interval(study, study.best_params) is not None


def test_encoding_and_decoding_are_inverse_and_the_features_are_in_the_order_of_the_names():
    odd = ["a", None, True, float("nan"), (1, 2)]
    with pytest.warns(UserWarning, match="Choices for a categorical"):
        choice = CategoricalDistribution(odd)
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
    texts = ["'a'", "None", "True", "nan", "(1, 2)"]
    for option, text in zip(odd, texts, strict=True):
        values = {"a": 0.02, "b": option, "k": 3, "m": 8, "z": -0.75}
        encoded = space.encode(values)
        assert encoded == values | {"b": text}
        assert repr(space.decode(encoded)) == repr(values)
    for wrong in ({"m": 7}, {"a": 20.0}, {"b": "c"}, {"k": "no"}):
        with pytest.raises(InvalidInput, match="is not in"):
            space.encode(wrong)
    with pytest.warns(UserWarning, match="Choices for a categorical"):
        equal = SearchSpace({"b": CategoricalDistribution([(1,), (1,)])})
    assert equal.space.parameters["b"].options == ("(1,) (0)", "(1,) (1)")
    plain = SearchSpace({"b": CategoricalDistribution(["a", None, True, 2.5])})
    assert plain.encode({"b": True}) == {"b": True}
    assert plain.decode({"b": None}) == {"b": None}


def test_a_fixed_parameter_and_a_pruner_of_many_brackets_are_no_obstacle():
    study = run(bowl, 8, PartialFixedSampler({"x": 0.25}, KBOSampler(seed=0, n_startup_trials=3)))
    assert {p["x"] for p in params(study)} == {0.25}

    def stepwise(trial):
        value = bowl(trial)
        for step in range(9):
            trial.report(value + 1 / (1 + step), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    pruner = optuna.pruners.HyperbandPruner(
        1, 9, 3
    )  # which takes the brackets of trials from the name of the study
    study = optuna.create_study(
        sampler=KBOSampler(seed=0, n_startup_trials=3), pruner=pruner, study_name="brackets"
    )
    study.optimize(stepwise, n_trials=14)
    assert {t.state for t in study.trials} == {TrialState.COMPLETE, TrialState.PRUNED}
    assert len(study.trials) == 14


# Directions, seeds, resuming


def test_minimising_finds_the_minimum_and_maximising_the_maximum_better_than_at_random():
    at_random = statistics.median(run(bowl, 16, RandomSampler(seed=s)).best_value for s in range(9))
    low = run(bowl, 16)
    assert low.best_value < 0.1 * at_random
    assert params(run(lambda trial: -bowl(trial), 16, direction="maximize")) == params(low)


def test_choices_follow_from_the_seed_and_go_on_with_a_copy_of_the_sampler():
    first, again, other = (run(mixed, 9, KBOSampler(seed=s, n_startup_trials=5)) for s in (3, 3, 4))
    assert params(first) == params(again)
    assert all(a != b for a, b in zip(params(first), params(other), strict=True))
    assert params(run(bowl, 2, KBOSampler())) != params(run(bowl, 2, KBOSampler()))
    mixed(expected := first.ask())
    for clone in (pickle.loads(pickle.dumps(first.sampler)), copy.deepcopy(first.sampler)):
        twin = optuna.create_study(sampler=clone)
        twin.add_trials(first.get_trials(states=(TrialState.COMPLETE,)))
        mixed(trial := twin.ask())
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
    study = optuna.create_study(
        study_name="shared", storage=storage, sampler=sampler, load_if_exists=True
    )
    study.optimize(objective, n_trials=trials)
    return study


def worker(storage, *arguments):
    code = f"from tests.test_optuna import work; work({storage!r}, *{arguments})"
    return started("-c", code, cwd=Path(__file__).parent.parent)


def await_trial(process, study):
    """Wait until another process evaluates a trial of the study."""

    def begun():
        here = {t.user_attrs.get("process", os.getpid()) for t in study.get_trials(deepcopy=False)}
        return here != {os.getpid()} or process.poll() is not None

    wait_until(begun)
    assert process.poll() is None


@pytest.mark.thorough
def test_a_killed_process_leaves_a_pending_trial_and_a_study_that_continues(tmp_path):
    whole = params(work(None, 9, 2))
    study = work(storage := f"sqlite:///{tmp_path}/study.db", 8, 2)
    with worker(storage, 7, 2, 2 * PATIENCE) as victim:
        await_trial(victim, study)
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

    study = run(together, 12, n_jobs=2)
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 12
    for a, b in itertools.combinations(study.trials, 2):
        if max(a.datetime_start, b.datetime_start) < min(a.datetime_complete, b.datetime_complete):
            assert a.params != b.params


def test_samplers_without_a_common_lock_that_choose_at_the_same_time_stay_apart():
    study = run(line, 3, KBOSampler(seed=0, setting=certified()))
    others = [copy.copy(study) for _ in range(2)]
    for round_ in range(3):
        barrier, chosen = threading.Barrier(2, timeout=PATIENCE), []
        for other in others:
            other.sampler = KBOSampler(seed=round_, setting=certified())

        def ask(other, barrier=barrier, chosen=chosen):
            barrier.wait()
            chosen.append((trial := other.ask()).suggest_float("x", 0.0, 1.0))
            barrier.wait()
            other.tell(trial, math.sin(5 * trial.params["x"]))

        threads = [threading.Thread(target=ask, args=(other,)) for other in others]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(chosen) == 2
        assert gaps(chosen)[0] > 0.01, (round_, chosen)


# Pending trials


def gaps(points):
    return [abs(a - b) for i, a in enumerate(points) for b in points[:i]]


def test_running_trials_are_pending_when_another_sampler_or_the_user_chose_them():
    study = run(line, 3, KBOSampler(seed=0, setting=certified()))
    alone = study.ask().relative_params["x"]
    twin = optuna.create_study(sampler=KBOSampler(seed=0, setting=certified()))
    twin.add_trials(study.get_trials(states=(TrialState.COMPLETE,)))
    twin.enqueue_trial({"x": alone})
    assert twin.ask().suggest_float("x", 0.0, 1.0) == alone
    assert abs(twin.ask().suggest_float("x", 0.0, 1.0) - alone) > 0.02


def test_trials_are_pending_from_the_moment_they_are_chosen_until_they_stop_running():
    study = run(line, 4, KBOSampler(seed=0, setting=certified()))
    trials = [study.ask() for _ in range(3)]
    assert not any(
        trial.params for trial in trials
    )  # nothing was asked for yet, so only what was chosen can be seen
    assert min(gaps([trial.relative_params["x"] for trial in trials])) > 0.02
    study.tell(trials[0], line(trials[0]))
    study.tell(trials[1], state=TrialState.FAIL)  # before it asked for anything
    study.tell(trials[2], state=TrialState.FAIL)
    fresh = optuna.create_study(sampler=KBOSampler(seed=0, setting=certified()))
    fresh.add_trials(study.trials)
    assert study.ask().relative_params == fresh.ask().relative_params


# Failures and what else trials can be


def test_failed_pruned_and_infinite_trials_are_failures_and_bounds_never_rest_on_them():
    study = run(line, 6, KBOSampler(seed=0, setting=certified()))
    sampler, before = study.sampler, study.ask().relative_params
    interval = sampler.interval(study, {"x": 0.5})
    study.add_trial(finished(before["x"], None, TrialState.FAIL))
    study.add_trial(finished(0.5, None, TrialState.PRUNED, intermediate_values={3: -100.0}))
    study.add_trial(finished(0.4, math.inf))
    assert sampler.interval(study, {"x": 0.5}) == interval
    said = sampler.guarantee(study)
    assert said.startswith("not certified: ")
    assert "trials failed or pruned: 3; trials that KBOSampler did not propose in this " in said
    assert "perhaps with values that were known before: 3; " in said
    for _ in range(3):  # there is no going back to where it failed
        assert abs(study.ask().relative_params["x"] - before["x"]) > 0.01


def test_a_pruned_trial_counts_by_its_last_report():
    def next_after(report):
        study = optuna.create_study(
            sampler=KBOSampler(seed=0, setting=kbo.Practical(noise_std=0.01))
        )
        for x in (0.05, 0.2, 0.35, 0.5, 0.65, 0.8):
            values = {step: abs(x - 0.3) + 1 / step for step in range(1, 5)}
            study.add_trial(finished(x, abs(x - 0.3), intermediate_values=values))
        study.add_trial(
            finished(0.95, None, TrialState.PRUNED, intermediate_values={1: report, 2: math.nan})
        )
        return study.sampler.interval(study, {"x": 0.9}), study.ask().relative_params["x"]

    (good, _), (bad, far) = next_after(1.06), next_after(1.5)
    assert good[1] < bad[1] - 0.1
    assert far < 0.6


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
    complete, left = Run.complete, [1]

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
    study.enqueue_trial({"x": 0.31, "y": 0.79})
    study.enqueue_trial({"x": 0.5})
    study.enqueue_trial({"x": 7.0})  # outside, which Optuna allows and warns about
    with pytest.warns(UserWarning, match="out of range"):
        study.optimize(bowl, n_trials=5)
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
    study = run(noisy, 12, sampler, direction="maximize")
    for i in range(5):
        x, y = i / 4, (2 - i) ** 2 / 4
        lower, mean, upper = sampler.interval(study, {"x": x, "y": y})
        assert lower <= mean <= upper
        assert lower <= math.sin(3 * y) + x <= upper
    assert sampler.guarantee(study).startswith("certified")
    practical, none = run(bowl, 8), optuna.create_study(sampler=KBOSampler(seed=0))
    assert practical.sampler.guarantee(practical).startswith("practical, not certified")
    assert none.sampler.guarantee(none).startswith("none")
    assert none.sampler.interval(none, {"x": 0.5}) is None
    with pytest.raises(InvalidInput, match="no trial of the study is complete"):
        none.sampler.recommended(none)
    for wrong, words in (
        ({"x": 3.0}, r"'x'.*is not in"),
        ({"z": 3.0}, "expected values of the study's parameters"),
    ):
        with pytest.raises(InvalidInput, match=words):
            practical.sampler.interval(practical, wrong)


@pytest.mark.parametrize(("direction", "lucky"), [("minimize", -0.4), ("maximize", 0.4)])
def test_the_recommended_trial_is_not_the_best_value(direction, lucky):
    study = optuna.create_study(
        sampler=KBOSampler(seed=0, setting=certified(noise_std=0.5)), direction=direction
    )
    bad = -2.5 * lucky
    study.add_trials(
        [finished(x, value) for x, value in ((0.1, 0.0), (0.5, bad)) for _ in range(20)]
        + [finished(0.9, lucky)]
    )
    assert study.best_trial.params == {"x": 0.9}
    assert study.sampler.recommended(study).params == {"x": 0.1}


def copied(study):
    storage = optuna.storages.InMemoryStorage()
    optuna.copy_study(
        from_study_name=study.study_name, from_storage=study._storage, to_storage=storage
    )
    return optuna.load_study(study_name=study.study_name, storage=storage, sampler=study.sampler)


def enqueued(study):
    study.enqueue_trial({"x": 0.5})
    study.optimize(line, n_trials=1)


def with_sampler(sampler):
    def change(study):
        own, study.sampler = study.sampler, sampler
        study.optimize(line, n_trials=1)
        study.sampler = own

    return change


PROPOSED_HERE = {
    "a copy": copied,
    "enqueued": enqueued,
    "another seed": with_sampler(KBOSampler(seed=1, setting=certified())),
}
FROM_ELSEWHERE = {
    "chosen trials of another study": lambda study: study.add_trials(
        [t for t in run(line, 6, KBOSampler(seed=0, setting=certified())).trials if t.value < 0]
    ),
    "later trials of the same sampler": lambda study: study.add_trials(
        run(line, 6, study.sampler).trials[4:]
    ),
    "own trials again": lambda study: study.add_trials(study.trials[:1]),
    "another sampler": with_sampler(RandomSampler(seed=0)),
}


@pytest.mark.parametrize("change", [*PROPOSED_HERE, *FROM_ELSEWHERE])
def test_only_trials_that_were_proposed_in_the_study_keep_the_guarantee(change):
    study = run(line, 4, KBOSampler(seed=0, setting=certified()))
    study = (PROPOSED_HERE | FROM_ELSEWHERE)[change](study) or study
    said = study.sampler.guarantee(study)
    assert said.startswith("certified" if change in PROPOSED_HERE else "not certified")
    assert ("that KBOSampler did not propose in this study" in said) == (change in FROM_ELSEWHERE)


# Constraints


def limited(trial):
    """The best value is at (1, 1), the best possible one on the line x + y = 1.2, with a kink at (0.4, 0.8)."""
    x, y = (trial.suggest_float(name, 0.0, 1.0) for name in "xy")
    return -x - y + abs(x - 0.4) / 2, x + y - 1.2


def limited_by_name(trial):
    value, excess = limited(trial)
    trial.set_constraint("excess", excess)
    trial.set_constraint("free", -1.0)
    return value


def limited_by_function(trial):
    value, excess = limited(trial)
    trial.set_user_attr("excess", excess)
    return value


def excess_of(trial):
    return [trial.user_attrs["excess"], -1.0]


def test_constraints_are_kept_however_they_are_reported_and_shared_with_other_workers():
    named = run(limited_by_name, 12)
    listed = run(
        limited_by_function, 8, KBOSampler(seed=0, n_startup_trials=4, constraints_func=excess_of)
    )
    assert params(named)[:8] == params(listed)
    assert named.trials[3].constraints.keys() == {"excess", "free"}
    assert listed.trials[3].system_attrs["constraints"] == tuple(excess_of(listed.trials[3]))
    assert (
        sum(trial.constraints["excess"] < 0.05 and trial.value < -1.1 for trial in named.trials[6:])
        >= 3
    )
    best = named.sampler.recommended(named)
    assert best.constraints["excess"] <= 0
    assert best.value < -1.0
    assert set(named.sampler.feasibility(named).bounds) == {"excess", "free"}
    free = run(lambda trial: limited(trial)[0], 8)
    assert free.sampler.feasibility(free) is None
    resumed = optuna.create_study(sampler=KBOSampler(seed=0, n_startup_trials=4))
    resumed.add_trials(named.trials[:9])
    resumed.optimize(limited_by_name, n_trials=3)
    assert params(resumed) == params(named)
    pending = [resumed.ask().relative_params for _ in range(2)]
    assert math.dist(*(point.values() for point in pending)) > 1e-3


def test_failed_pruned_and_incomplete_trials_of_constrained_studies():
    def fragile(trial):
        x, _ = limited(trial)
        if trial.number == 5:
            return x  # without a constraint
        trial.set_constraint("excess", trial.params["x"] + trial.params["y"] - 1.2)
        if trial.number == 6:
            raise ArithmeticError("no")
        if trial.number == 7:
            trial.report(x, 1)
            raise optuna.TrialPruned
        return x

    study = run(fragile, 14, catch=(ArithmeticError,))
    assert len(study.trials) == 14
    assert study.sampler.recommended(study).number not in (5, 6, 7)
    assert study.sampler.recommended(study).constraints["excess"] <= 0
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
    study = run(
        objective, 12, KBOSampler(seed=0, setting=setting, constraints=known), direction="maximize"
    )
    best = study.sampler.recommended(study)
    found = study.sampler.feasibility(study)
    assert found.certified
    assert found.kept
    assert found.bounds["c"][2] <= 0
    assert line(best) <= 0.5
    study.add_trial(finished(0.5, 0.5, constraints={"c": 0.0}))  # perhaps selected by its noise
    assert not study.sampler.feasibility(study).certified
    with pytest.raises(
        InvalidInput, match="'c': the certified setting needs its own noise_std and norm_bound"
    ):
        run(objective, 3, KBOSampler(seed=0, setting=setting))


# What is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "dmm-ucbb"}, "did you mean"),
        ({"method": "igp-ucb"}, "n_trials"),
        ({"method": "gp-ucb"}, "finite sets"),
        ({"seed": 1.5}, "seed must be"),
        ({"n_startup_trials": 1}, "n_startup_trials must be"),
        (
            {"n_startup_trials": 5, "setting": certified()},
            "n_startup_trials is for the practical setting",
        ),
        ({"method": "chaining-ucb"}, "certified setting"),
        (
            {"setting": kbo.Safe(RBFKernel(), 0.1, 1.0, start=[{"x": 0.5}])},
            "for kbo.minimize and kbo.Optimizer",
        ),
        ({"constraints_func": [0.0]}, "constraints_func must be a function"),
        ({"constraints": [kbo.Constraint("c", upper=1.0)]}, r"at most 0, .*upper=1.0"),
        ({"constraints": [lambda params: True]}, "those that Optuna measures"),
        (
            {"constraints": [kbo.Constraint("c", upper=0.0, norm_bound=1.0)]},
            "norm_bound and kernel are for",
        ),
        (
            {"constraints_func": lambda trial: [0.0], "setting": certified()},
            "numbers for each of its constraints",
        ),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_at_once(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        KBOSampler(**arguments)


@pytest.mark.parametrize(
    ("objective", "options", "message"),
    [
        (lambda trial: trial.suggest_float("x", -1e308, 1e308), {}, "parameter 'x': .*float64"),
        (
            lambda trial: trial.suggest_categorical("x", range(20_000)),
            {},
            "parameter 'x': .*20000 columns",
        ),
        (
            lambda trial: trial.suggest_float("xy"[trial.number % 2], 0, 1),
            {"setting": certified()},
            "same parameters",
        ),
        (
            line,
            {"setting": kbo.Certified(RBFKernel(ard_num_dims=2), 0.1, 1.0)},
            "2 lengthscales for 1 columns",
        ),
        (lambda trial: 10 * line(trial), {"setting": certified(norm_bound=0.5)}, "refute"),
    ],
)
def test_studies_that_cannot_be_modelled_are_refused(objective, options, message):
    with pytest.raises(kbo.KboError, match=message):
        run(objective, 30, KBOSampler(seed=0, **options))


def test_methods_and_settings_of_every_kind_run():
    for arguments in (
        {"method": "igp-ucb", "n_trials": 8},
        {"method": "random"},
        {"method": "kernel-ts"},
        {"setting": certified(norm_bound=20.0), "method": "kernel-ts"},
        {"setting": certified(norm_bound=20.0, noise_std=None), "method": "dmm-ucb-adaptive"},
        {"setting": kbo.Practical(n_initial=3)},
    ):
        study = run(line, 8, KBOSampler(seed=0, **arguments))
        assert len({p["x"] for p in params(study)}) >= 4
        assert (study.sampler.interval(study, {"x": 0.5}) is None) == (
            arguments.get("method") in ("random", "dmm-ucb-adaptive")
        )


# BoTorchSampler


# Several objectives


MINIMA = ["minimize", "minimize"]


def quick():
    return KBOSampler(seed=0, n_startup_trials=4)


def several(objective, n_trials, sampler=None, directions=MINIMA, **options):
    study = optuna.create_study(directions=directions, sampler=sampler or quick(), **options)
    study.optimize(objective, n_trials=n_trials)
    return study


def two_bowls(trial):
    """The front is where x = y; a share of 1/6 of the unit square lies above it."""
    x = trial.suggest_float("x", 0.0, 1.0)
    y = trial.suggest_float("y", 0.0, 1.0)
    away = (x - y) ** 2
    return x**2 + away, (1 - x) ** 2 + away


def noisy_bowls(trial, noise_std=0.05):
    rng = torch.Generator().manual_seed(trial.number)
    noise = noise_std * torch.randn(2, generator=rng)
    return tuple(value + float(error) for value, error in zip(two_bowls(trial), noise, strict=True))


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
    for sampler in missing:
        for seed in range(3):
            study = several(two_bowls, 30, sampler(seed=seed))
            missing[sampler] += 5 / 6 - dominated_share(t.values for t in study.best_trials)
    assert 0 < missing[KBOSampler] / 3 < 0.03
    assert missing[KBOSampler] < missing[RandomSampler] / 2


def test_directions_are_those_of_the_study():
    def mirrored(trial):
        first, second = two_bowls(trial)
        return -first, second

    expected = several(two_bowls, 12)
    study = several(mirrored, 12, directions=["maximize", "minimize"])
    assert params(study) == params(expected)
    front = study.sampler.front(study)
    assert [objective.maximize for objective in front.objectives] == [True, False]
    assert all(point.values["values_0"].mean <= 0.1 for point in front.points)
    assert any(point.values["values_0"].mean < -0.1 for point in front.points)
    again = several(two_bowls, 12, study.sampler)  # other directions than in the last study
    assert params(again) == params(expected)


def test_the_trials_of_a_front_are_those_of_the_study_and_the_balanced_one_is_recommended():
    def failing(trial):
        values = noisy_bowls(trial)
        if trial.number == 1:
            raise ValueError("no value")
        return values

    study = optuna.create_study(directions=MINIMA, sampler=quick())
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        study.set_metric_names(["error", "seconds"])
    study.optimize(failing, n_trials=15, catch=ValueError)
    front = study.sampler.front(study)
    assert len(front.points) > 2
    for point in front.points:
        trial = study.trials[point.trial.number]
        assert trial.state == TrialState.COMPLETE
        assert trial.params == point.trial.params
        for index, name in enumerate(["error", "seconds"]):
            interval = study.sampler.interval(study, trial.params, objective=index)
            assert interval == pytest.approx(tuple(point.values[name]))
    assert study.sampler.recommended(study).number == front.balanced.trial.number
    assert study.trials[front.choose(limits={"error": 0.3}).trial.number].state.is_finished()
    assert "not certified" in study.sampler.guarantee(study)


def test_a_resumed_study_of_several_objectives_goes_on_as_if_it_had_not_stopped(tmp_path):
    whole = several(two_bowls, 12)
    options = {"storage": f"sqlite:///{tmp_path}/study.db", "study_name": "two"}
    several(two_bowls, 7, **options)
    study = optuna.load_study(sampler=quick(), **options)
    study.optimize(two_bowls, n_trials=5)
    assert params(study) == params(whole)
    assert study.sampler.front(study) is not None


def test_a_study_without_a_front_has_none():
    assert quick().front(optuna.create_study(directions=MINIMA)) is None
    study = several(two_bowls, 2)
    assert study.sampler.front(study) is None
    assert study.sampler.recommended(study).number in (0, 1)
    one = run(bowl, 8)
    assert one.sampler.front(one) is None


def lost(trial):
    """Values of which some are no numbers, infinite, or missing."""
    first, second = two_bowls(trial)
    if trial.number == 5:
        return first, math.nan
    if trial.number == 6:
        return math.inf, second
    if trial.number == 7:
        return first, -math.inf
    if trial.number == 8:
        raise optuna.TrialPruned
    return first, second


def test_trials_that_lack_one_of_the_values_have_failed_and_nothing_else_is_lost():
    study = several(lost, 16)
    states = [trial.state for trial in study.trials]
    assert states[5] == TrialState.FAIL  # by Optuna
    assert states[8] == TrialState.PRUNED
    assert states.count(TrialState.COMPLETE) == 14
    trials = study.sampler.replayed(study).optimizer.run.trials
    assert [trial.number for trial in trials.failed] == [5, 6, 7, 8]
    assert len(trials.complete) == 12
    assert not {5, 6, 7, 8} & {p.trial.number for p in study.sampler.front(study).points}


def test_the_front_keeps_constraints():
    def limited(trial):
        values = two_bowls(trial)
        trial.set_constraint("x", trial.params["x"] - 0.5)
        return values

    study = several(limited, 20)
    front = study.sampler.front(study)
    assert len(front.points) > 2
    assert all(point.trial.params["x"] <= 0.5 for point in front.points)
    assert study.sampler.feasibility(study).kept
    by_function = several(
        two_bowls,
        20,
        KBOSampler(seed=0, n_startup_trials=4, constraints_func=lambda t: [t.params["x"] - 0.5]),
    )
    assert params(by_function) == params(study)


def test_a_reference_is_where_the_front_begins_to_count():
    reference = {"values_0": 0.5, "values_1": 0.4}
    study = several(two_bowls, 16, KBOSampler(seed=0, n_startup_trials=4, reference=reference))
    front = study.sampler.front(study)
    assert front.reference == reference
    later = study.trials[8:]
    counting = [t for t in later if t.values[0] <= 0.5 and t.values[1] <= 0.4]
    assert len(counting) >= 5
    partial = KBOSampler(seed=0, n_startup_trials=4, reference={"values_1": 0.4})
    study = several(two_bowls, 8, partial)
    level = partial.front(study).reference
    assert level["values_1"] == 0.4
    assert level["values_0"] == several_reference(study)


def several_reference(study):
    """The value of the first objective where the hypervolume begins without a reference."""
    return quick().front(study).reference["values_0"]


@pytest.mark.parametrize(
    ("options", "names", "message"),
    [
        ({"method": "random"}, None, "no bounds, which the search for a front needs"),
        ({"setting": certified()}, None, "certified setting needs numbers for each of several"),
        ({"reference": [1.0, 1.0]}, None, "a dict with numbers for some of the objectives"),
        ({"reference": {"values_1": math.nan}}, None, "reference of 'values_1'"),
        ({"reference": {"values_2": 1.0}}, None, "numbers for some of the objectives"),
        ({}, ["objective", "size"], "set_metric_names: an objective cannot be called 'objective'"),
        ({}, ["size", "size"], "set_metric_names: objectives: there are two called 'size'"),
    ],
)
def test_what_does_not_suit_several_objectives_is_refused_before_a_trial_is_paid_for(
    options, names, message
):
    study = optuna.create_study(directions=MINIMA, sampler=KBOSampler(seed=0, **options))
    if names is not None:
        with pytest.warns(optuna.exceptions.ExperimentalWarning):
            study.set_metric_names(names)
    paid = []
    with pytest.raises(InvalidInput, match=message):
        study.optimize(lambda trial: paid.append(trial) or (1.0, 1.0), n_trials=2)
    assert not paid


def test_a_reference_is_refused_for_one_objective_and_no_other_objective_is_known():
    with pytest.raises(InvalidInput, match="reference is for several objectives"):
        run(bowl, 1, KBOSampler(seed=0, reference={"values_0": 1.0}))
    study = several(two_bowls, 6)
    params = study.trials[0].params
    with pytest.raises(InvalidInput, match="objective must be a whole number from 0 to 1, got 2"):
        study.sampler.interval(study, params, 2)
    with pytest.raises(InvalidInput, match="give objective=0 to 1"):  # not that of the first one
        study.sampler.interval(study, params)
    guarantee = study.sampler.guarantee(study)
    assert "values_0: " in guarantee
    assert "values_1: " in guarantee


def test_a_constraint_may_not_have_the_name_of_an_objective():
    def confused(trial):
        trial.set_constraint("values_1", -1.0)
        return two_bowls(trial)

    with pytest.raises(InvalidInput, match="constraint 'values_1': that is the name of the value"):
        several(confused, 3)


def test_more_than_four_objectives_are_allowed_with_a_warning(caplog):
    def five(trial):
        x = trial.suggest_float("x", 0.0, 1.0)
        return [(x - k / 4) ** 2 for k in range(5)]

    study = several(five, 7, directions=["minimize"] * 5)
    assert "with 5 objectives nearly every trial is on the front" in caplog.text
    assert len(study.sampler.front(study).objectives) == 5


def test_the_audit_names_the_best_trials_that_are_luck():
    study = several(lambda trial: noisy_bowls(trial, 0.2), 40, RandomSampler(seed=1))
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        study.set_metric_names(["error", "seconds"])
    audit = kbo.audit(study)
    assert sorted(audit.observed) == sorted(trial.number for trial in study.best_trials)
    assert 0 < len(audit.lucky) < len(audit.observed)
    on_front = {audit.names[point.trial.number] for point in audit.result.front.points}
    assert set(audit.lucky) == set(audit.observed) - on_front
    true = {trial.number: two_bowls_at(**trial.params) for trial in study.trials}
    assert dominated_share(true[n] for n in on_front) > dominated_share(
        true[n] for n in audit.observed
    )
    text = str(audit)
    assert f"Optuna has {len(audit.observed)} trials that no other dominates" in text
    assert f"others dominate {len(audit.lucky)} of them" in text
    assert "(trial" in text
    assert "hypervolume" in text


def two_bowls_at(x, y):
    return two_bowls(optuna.trial.FixedTrial({"x": x, "y": y}))


def test_without_noise_the_best_trials_are_no_luck():
    study = several(two_bowls, 20)
    audit = kbo.audit(study)
    assert audit.lucky == []
    on_front = {audit.names[point.trial.number] for point in audit.result.front.points}
    assert on_front == set(audit.observed)
    few = kbo.audit(several(two_bowls, 3))
    assert few.result.front is None
    assert "trials that no other dominates" in str(few)
