"""kbo in Ax 1.3: its Client and its storage."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path

import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from gpytorch.kernels import (
    AdditiveKernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)

from kbo import acquisition, audit, space
from kbo.confidence import FixedWidth, MartingaleMixture, NoiseBounds
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.kernels import freeze
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP
from kbo.optimize import Certified, Constraint, Hypothesis, Practical, Safe
from kbo.regression import KernelRidge

pytest.importorskip("ax")

from ax.adapter.registry import Generators
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig, StorageConfig
from ax.core.parameter import ChoiceParameter, FixedParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MinTrials
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from ax.storage.sqa_store.db import create_all_tables, get_engine, init_engine_and_session_factory

import kbo.integrations.ax as kbo_ax
from kbo.integrations.ax.history import rounded
from kbo.integrations.ax.kernels import build_kernel, describe_kernel
from tests.parts import once
from tests.processes import python

MIXTURE = {"noise_std": 0.2, "norm_bound": 3.0, "delta": 0.1}
BOX = [
    RangeParameterConfig(name="a", parameter_type="float", bounds=(-5.0, 10.0)),
    RangeParameterConfig(name="b", parameter_type="float", bounds=(0.0, 15.0)),
]
FLOAT = RangeParameterConfig(name="lr", parameter_type="float", bounds=(1e-4, 1e-1), scaling="log")
INT = RangeParameterConfig(name="k", parameter_type="int", bounds=(1, 5))
MANY = RangeParameterConfig(name="k", parameter_type="int", bounds=(0, 400))
CHOICE = ChoiceParameterConfig(
    name="act", parameter_type="str", values=["relu", "tanh", "gelu"], is_ordered=False
)
FIXED = ChoiceParameterConfig(name="one", parameter_type="str", values=["only"], is_ordered=False)
MIXED = [FLOAT, INT, CHOICE, FIXED]


def matern(*lengthscales: float, scale: float = 1.0) -> ScaleKernel:
    kernel = ScaleKernel(
        MaternKernel(nu=2.5, ard_num_dims=len(lengthscales) if len(lengthscales) > 1 else None)
    )
    kernel.base_kernel.lengthscale = torch.tensor(lengthscales)
    kernel.outputscale = scale
    return kernel


def rough(noise_std: float | None = 5.0, **options) -> Certified:
    """A setting for Branin."""
    return Certified(matern(0.3), noise_std, norm_bound=600.0, **options)


def started(
    parameters=BOX,
    objective="-loss",
    limits=None,
    relations=None,
    storage=None,
    n_initial=None,
    **options,
) -> Client:
    if n_initial is not None:
        options["setting"] = Practical(n_initial=n_initial)
    client = Client(storage_config=storage, random_seed=0)
    client.configure_experiment(parameters=parameters, parameter_constraints=relations, name="test")
    client.configure_optimization(objective=objective, outcome_constraints=limits)
    client.set_generation_strategy(kbo_ax.generation_strategy(**options))
    return client


def run(client: Client, trials: int, function, sem=None) -> list[dict]:
    """Points of so many trials, each completed with the loss, or with all outcomes, that the function returns."""
    points = []
    for _ in range(trials):
        ((number, point),) = client.get_next_trials(1).items()
        points.append(point)
        value = function(**point)
        known = (
            value if isinstance(value, dict) else {"loss": value if sem is None else (value, sem)}
        )
        client.complete_trial(number, known)
    return points


def branin(a: float, b: float) -> float:
    """The function, with three minima of about 0.398."""
    bowl = (b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6) ** 2
    return bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10


def tuning(lr: float, k: int, act: str, one: str = "only") -> float:
    return (
        (math.log10(lr) + 2) ** 2 / 4
        + (k - 3) ** 2 / 4
        + {"relu": 0.0, "tanh": 0.4, "gelu": 0.8}[act]
    )


def again(client: Client, tmp_path) -> Client:
    client.save_to_json_file(str(tmp_path / "ax.json"))
    return Client.load_from_json_file(str(tmp_path / "ax.json"))


def distance(p: dict, q: dict) -> float:
    return max(abs(p[name] - q[name]) for name in p)


# Resuming

TRIALS, BEGUN, N_INITIAL = 11, 9, 5


def database(folder) -> StorageConfig:
    return StorageConfig(url=f"sqlite:///{folder}/ax.db")


def begin(folder: str) -> None:
    init_engine_and_session_factory(url=database(folder).url, force_init=True)
    create_all_tables(get_engine())
    client = started(storage=database(folder), n_initial=N_INITIAL)
    run(client, BEGUN, branin)
    client.save_to_json_file(f"{folder}/ax.json")


def begin_and_die(folder: str) -> None:
    """In a process that gets killed."""
    code = f"import os; from tests.test_ax import begin; begin({folder!r}); os.kill(os.getpid(), {signal.SIGKILL})"
    killed = python("-c", code, cwd=Path(__file__).parent.parent, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr


@pytest.fixture(scope="module")
def uninterrupted() -> list[dict]:
    return run(started(n_initial=N_INITIAL), TRIALS, branin)


@pytest.mark.keeps(
    r"file .*ax\.db", "Ax keeps the connection to its database until the process ends"
)
@pytest.mark.parametrize("make", once([begin, begin_and_die]))
def test_a_stored_run_continues_exactly_as_if_it_had_not_been(make, tmp_path, uninterrupted):
    make(str(tmp_path))
    from_json = Client.load_from_json_file(str(tmp_path / "ax.json"))
    assert run(from_json, TRIALS - BEGUN, branin) == uninterrupted[BEGUN:]
    from_database = Client.load_from_database("test", storage_config=database(tmp_path))
    assert run(from_database, 1, branin) == uninterrupted[BEGUN : BEGUN + 1]


def test_minimisation_minimises_and_maximisation_maximises(uninterrupted):
    found = [branin(**point) for point in uninterrupted]
    sobol = [branin(**point) for point in run(started(n_initial=TRIALS), TRIALS, branin)]
    largest = [
        branin(**p)
        for p in run(started(objective="loss", method="amm-ucb", n_initial=5), 9, branin)
    ]
    assert min(found) < min(sobol) - 1
    assert max(largest) > max(sobol) + 50
    assert max(found[N_INITIAL:]) < max(largest) / 2


@pytest.mark.parametrize(
    ("method", "noise"), [("kernel-ts", 5.0), ("bkb", 5.0), ("kernel-ts-adaptive", None)]
)
def test_other_methods_resume_and_change_from_trial_to_trial(method, noise, tmp_path):
    setting = rough(noise) if noise else rough(None, noise_upper=20.0)
    client, other = (started(method=method, setting=setting, seed=seed) for seed in (3, 4))
    points = run(client, 3, branin)
    if method != "bkb":  # which draws nothing
        assert points[1] != points[2] != run(other, 3, branin)[2]
    assert again(client, tmp_path).get_next_trials(1) == client.get_next_trials(1)
    assert ("at most 20" in kbo_ax.guarantee(client)) == (noise is None)


# Pending, failed and abandoned trials


@pytest.mark.parametrize("method", ["ucb", "kernel-ts"])
def test_pending_trials_differ(method):
    client = started(method=method, n_initial=4)
    run(client, 5, branin)
    points = list(client.get_next_trials(3).values())
    assert len(points) == 3
    assert all(distance(p, q) > 1e-2 for i, p in enumerate(points) for q in points[:i])


def test_a_model_goes_on_with_new_trials():
    limits = [Constraint("m", upper=0.5, noise_std=0.1, norm_bound=3.0)]
    client = started(limits=["m <= 0.5"], setting=rough(), constraints=limits)
    node = client._generation_strategy.current_node

    def outcomes(a, b):
        return {"loss": branin(a, b), "m": 0.0}

    run(client, 3, outcomes)
    optimizer = node.learned(client._experiment).optimizer
    run(client, 1, outcomes)
    assert node.learned(client._experiment).optimizer is optimizer
    assert len(optimizer.trials) == 4


def test_what_failed_or_was_abandoned_is_avoided_and_mentioned():
    client = started(setting=rough(), method="amm-ucb")
    run(client, 3, branin)
    assert "failed" not in kbo_ax.guarantee(client)
    before = kbo_ax.interval(client, {"a": 1.0, "b": 1.0})
    ((failed, first),) = client.get_next_trials(1).items()
    client.mark_trial_failed(failed)
    ((abandoned, second),) = client.get_next_trials(1).items()
    client.mark_trial_abandoned(abandoned)
    ((_, third),) = client.get_next_trials(1).items()
    assert min(distance(first, second), distance(first, third), distance(second, third)) > 0.5
    assert "failed, abandoned or stopped early: 2" in kbo_ax.guarantee(client)
    assert kbo_ax.interval(client, {"a": 1.0, "b": 1.0}) == before


# Certified units


def by_hand(client: Client, kernel, features, point, noise_std: float, norm_bound: float):
    """Interval from the client's data, by nothing of the integration."""
    trials = [t for t in client._experiment.trials.values() if t.status.is_completed]
    X = torch.stack([features(t.arm.parameters) for t in trials])
    y = torch.tensor(
        client._experiment.lookup_data().df.sort_values("trial_index")["mean"].tolist()
    ).double()
    confidence = MartingaleMixture(noise_std, norm_bound, 0.1, "dmm")
    state = KernelRidge(kernel, confidence.mixture_ridge)
    state.update(X, y)
    x = features(point).unsqueeze(0)
    lower, upper = confidence.interval(state, x)
    return float(lower), float(state.predict(x)[0]), float(upper)


@pytest.mark.parametrize("objective", ["-loss", "loss"])
def test_certified_data_are_not_cut(objective):
    kernel = matern(0.1)
    client = started(
        objective=objective, setting=Certified(kernel, noise_std=1.0, norm_bound=500.0)
    )
    for i, value in enumerate([0.9, 1.0, 1.1, 1.0, 0.95, 1.05, -100.0, 120.0]):
        client.complete_trial(
            client.attach_trial({"a": -5.0 + 2 * i, "b": 2.0 * i}), {"loss": value}
        )

    def features(parameters) -> torch.Tensor:
        return torch.tensor([(parameters["a"] + 5) / 15, parameters["b"] / 15], dtype=torch.float64)

    for point in ({"a": 7.0, "b": 12.0}, {"a": 9.0, "b": 14.0}):
        expected = by_hand(client, kernel, features, point, 1.0, 500.0)
        assert kbo_ax.interval(client, point) == pytest.approx(expected, rel=1e-7)
        assert abs(expected[1]) > 40
    assert "attached, perhaps with values that were known before: 8" in kbo_ax.guarantee(client)


KBO_SPACE = space.Space(
    {"lr": space.Float(1e-4, 1e-1, log=True), "k": space.Int(1, 5), "act": CHOICE.values}
)


def tuning_features(parameters) -> torch.Tensor:
    u = (math.log10(parameters["lr"]) + 4) / 3
    hot = [float(parameters["act"] == option) / math.sqrt(2) for option in CHOICE.values]
    features = torch.tensor([u, (parameters["k"] - 1) / 4, *hot], dtype=torch.float64)
    named = {name: parameters[name] for name in ("lr", "k", "act")}
    torch.testing.assert_close(features, KBO_SPACE.features(KBO_SPACE.unit(named).unsqueeze(0))[0])
    return features


def test_certified_bounds_are_those_of_the_raw_data(tmp_path):
    kernel = matern(0.4, 0.6, 1.0, 1.1, 1.2)
    client = started(MIXED, setting=Certified(kernel, noise_std=0.1, norm_bound=4.0))
    points = run(client, 5, tuning)
    assert all(set(p) == {"lr", "k", "act", "one"} and type(p["k"]) is int for p in points)
    point = {"lr": 3e-3, "k": 4, "act": "tanh"}
    interval = kbo_ax.interval(client, point)
    expected = by_hand(client, kernel, tuning_features, point, 0.1, 4.0)
    assert interval == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert interval[0] < tuning(**point) < interval[2]
    assert kbo_ax.guarantee(client).startswith("certified: the interval holds")
    assert kbo_ax.interval(again(client, tmp_path), point) == interval


def test_hypotheses_are_stored_to_the_last_digit(tmp_path):
    listed = [
        Hypothesis(matern(length), 1.0, norm)
        for length, norm in ((0.2, 700.0), (0.3, 600.0), (0.9, 0.1))
    ]
    limit = Constraint(
        "memory", upper=8.0, kernel=[Hypothesis(matern(0.5), 0.5, norm) for norm in (60.0, 90.0)]
    )
    options = {"setting": Certified(listed), "constraints": [limit]}
    client = started(objective="loss", limits=["memory <= 8"], **options)
    run(client, 5, lambda a, b: {"loss": -branin(a, b), "memory": memory(a, b)})
    assert "another one of 3 hypotheses" in kbo_ax.guarantee(client)
    loaded, point = again(client, tmp_path), {"a": 7.0, "b": 12.0}
    assert kbo_ax.interval(loaded, point) == kbo_ax.interval(client, point)
    assert kbo_ax.interval(loaded, point, "memory") == kbo_ax.interval(client, point, "memory")
    assert kbo_ax.feasibility(loaded) is not None
    assert loaded.get_next_trials(1) == client.get_next_trials(1)


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (
            lambda client: client.complete_trial(
                0, {"loss": client._experiment.data.df["mean"][0]}
            ),
            True,
        ),
        (
            lambda client: client.attach_data(
                3, {"loss": (client._experiment.data.df["mean"][3], 0.1)}
            ),
            False,
        ),
        (
            lambda client: (
                kbo_ax.interval(client, {"a": 0.0, "b": 0.0}),
                client.attach_data(4, {"loss": 0.5}),
            ),
            False,
        ),
        (
            lambda client: [
                client.attach_data(1, {"loss": x}) or run(client, 1, branin) for x in (0.5, 0.7)
            ],
            False,
        ),
    ],
    ids=["same value", "standard error", "after its bound was read", "back again"],
)
def test_a_value_that_is_overwritten_removes_the_guarantee(change, kept, tmp_path):
    client = started(setting=rough())
    run(client, 5, branin)
    change(client)
    for found in (client, again(client, tmp_path)):
        said = kbo_ax.guarantee(found)
        assert said.startswith("certified" if kept else "not certified")
        assert kept or "with values that were overwritten later" in said


def test_intermediate_values_never_reach_a_bound():
    client = started(setting=rough())
    run(client, 3, branin)
    before = kbo_ax.interval(client, {"a": 0.5, "b": 1.0})
    (number,) = client.get_next_trials(1)
    client.attach_data(number, {"loss": 2.0}, progression=1)
    assert kbo_ax.interval(client, {"a": 0.5, "b": 1.0}) == before
    client.mark_trial_early_stopped(number)
    assert kbo_ax.interval(client, {"a": 0.5, "b": 1.0}) == before
    (pruned,) = client._generation_strategy.current_node.learned(
        client._experiment
    ).optimizer.run.trials.pruned
    assert pruned.reports == [(1, 2.0)]
    assert "failed, abandoned or stopped early: 1" in kbo_ax.guarantee(client)


def test_what_has_no_answer_is_refused():
    client = started(MIXED, setting=Certified(matern(0.7), noise_std=0.1, norm_bound=6.0))
    point = {"lr": 3e-3, "k": 4, "act": "tanh"}
    with pytest.raises(InvalidInput, match="no bound yet"):
        kbo_ax.interval(client, point)
    assert kbo_ax.guarantee(client).startswith("none")
    run(client, 1, tuning)
    with pytest.raises(InvalidInput, match="parameter 'k': expected a number in"):
        kbo_ax.interval(client, {**point, "k": 9})
    with pytest.raises(InvalidInput, match="no strategy of kbo"):
        kbo_ax.interval(Client(), {})
    online = started(
        MIXED, setting=Certified(matern(0.7), None, 6.0, noise_upper=0.5), method="dmm-ucb-adaptive"
    )
    with pytest.raises(InvalidInput, match="standard error of 7"):
        run(online, 2, tuning, sem=7.0)
    with pytest.raises(RefutedAssumptions):
        run(started(setting=Certified(matern(0.3), noise_std=0.1, norm_bound=1.0)), 3, branin)


# Standard errors


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ([0.5] * 3 + [2.0], "of a value with the error bar 0.5, fitted"),
        ([0.5, None, 0.5, 0.5], "of a value with the error bar 0.5, fitted"),
        ([0.0] * 4, "noise: none"),
    ],
)
def test_standard_errors_say_how_noise_differs_and_zeros_that_there_is_none(errors, words):
    client = started(n_initial=3)
    for sem in errors:
        ((number, point),) = client.get_next_trials(1).items()
        client.complete_trial(
            number, {"loss": branin(**point) if sem is None else (branin(**point), sem)}
        )
    said = kbo_ax.guarantee(client)
    assert said.startswith("practical, not certified")
    assert words in said


# Search spaces that are changed


def changed(client: Client, change: str) -> None:
    experiment = client._experiment
    b = experiment.search_space.parameters["b"]
    if change == "disabled":
        experiment.disable_parameters_in_search_space({"a": 3.0})
    elif change == "added":
        new = RangeParameter("c", ParameterType.FLOAT, 0.0, 1.0, backfill_value=0.5)
        experiment.add_parameters_to_search_space([new])
    elif change == "fixed":
        experiment.search_space = SearchSpace([FixedParameter("a", ParameterType.FLOAT, 3.0), b])
    else:
        low, high = {"narrower": (2.0, 4.0), "wider": (-5.0, 20.0)}[change]
        experiment.search_space = SearchSpace(
            [RangeParameter("a", ParameterType.FLOAT, low, high), b]
        )


@pytest.mark.parametrize("change", ["disabled", "added", "fixed", "narrower", "wider"])
def test_a_search_space_may_be_changed_between_trials(change, tmp_path):
    def function(a, b, c=0.5):
        return branin(a, b) + c

    client = started(n_initial=4)
    run(client, 8, function)
    changed(client, change)
    if change in ("fixed", "narrower"):
        client = again(client, tmp_path)
    points = run(client, 3, function)
    low, high = {
        "disabled": (3, 3),
        "fixed": (3, 3),
        "narrower": (2, 4),
        "wider": (-5, 20),
        "added": (-5, 10),
    }[change]
    assert all(low <= point["a"] <= high for point in points)
    node = client._generation_strategy.current_node
    assert len(node.learned(client._experiment).trials) == 11
    assert kbo_ax.interval(client, points[-1]) is not None
    index, _ = kbo_ax.recommended(client)
    assert index in range(11)
    assert "11 trials" in str(audit(client))
    assert "left out" not in str(audit(client))


TEXT = ParameterType.STRING
WHOLE = ParameterType.INT


@pytest.mark.parametrize(
    "new",
    [
        ChoiceParameter("c", TEXT, ["a", "b"], is_ordered=False, sort_values=False),
        ChoiceParameter("c", TEXT, ["a", "b", "z", "e"], is_ordered=False, sort_values=False),
        FixedParameter("c", TEXT, "b"),
        FixedParameter("c", TEXT, "new"),
        ChoiceParameter("o", WHOLE, [1, 2], is_ordered=True, sort_values=True),
        ChoiceParameter("o", WHOLE, [1, 2, 4, 8, 16], is_ordered=True, sort_values=True),
        RangeParameter("k", WHOLE, 2, 3),
        RangeParameter("k", WHOLE, 1, 20, log_scale=True),
        FixedParameter("k", WHOLE, 9),
    ],
    ids=lambda new: f"{new.name} {type(new).__name__}",
)
def test_options_and_scales_may_be_changed_and_all_trials_are_data(new, caplog):
    choice = ChoiceParameterConfig(
        name="c", parameter_type="str", values=["a", "b", "z"], is_ordered=False
    )
    order = ChoiceParameterConfig(
        name="o", parameter_type="int", values=[1, 2, 4, 8], is_ordered=True
    )

    def function(c, o, k):
        return (k - 3) ** 2 / 9 + (c != "z") + 0.1 * o

    client = started([INT, choice, order], n_initial=4)
    run(client, 8, function)
    experiment = client._experiment
    parameters = {**experiment.search_space.parameters, new.name: new}
    experiment.search_space = SearchSpace(list(parameters.values()))
    points = run(client, 3, function)
    for point in points:
        assert new.validate(point[new.name])
    model = client._generation_strategy.current_node.learned(experiment)
    assert len(model.optimizer.completed()) == 11
    assert "left out" not in caplog.text
    _, params = kbo_ax.recommended(client)
    assert new.validate(params[new.name])
    assert kbo_ax.interval(client, points[-1]) is not None


def test_trials_that_end_after_the_search_space_was_narrowed_are_data():
    client = started(n_initial=4)
    run(client, 6, branin)
    pending = client.get_next_trials(max_trials=2)
    changed(client, "narrower")
    points = run(client, 1, branin)
    for index, parameters in pending.items():
        client.complete_trial(index, raw_data={"loss": branin(**parameters)})
    points += run(client, 1, branin)
    assert all(2 <= point["a"] <= 4 for point in points)
    model = client._generation_strategy.current_node.learned(client._experiment)
    assert len(model.optimizer.completed()) == 10


def test_a_narrowed_search_space_without_a_trial_recommends_none_and_says_so():
    client = started(n_initial=4)
    run(client, 6, lambda a, b: branin(a, b))
    b = client._experiment.search_space.parameters["b"]
    a = RangeParameter("a", ParameterType.FLOAT, 30.0, 31.0)
    client._experiment.search_space = SearchSpace([a, b])
    for call in (kbo_ax.recommended, audit):
        with pytest.raises(InvalidInput, match=r"no (complete )?trial .*inside the search space"):
            call(client)


def test_parameters_of_a_value_that_a_fixed_parameter_does_not_have_are_left_out():
    kind = ChoiceParameterConfig(
        name="kind",
        parameter_type="str",
        values=["near", "far"],
        is_ordered=False,
        dependent_parameters={"near": ["k"]},
    )

    def function(kind, lr, k=3):
        return k + (kind == "far") + lr

    client = started([kind, INT, FLOAT], n_initial=4)
    run(client, 8, function)
    client._experiment.disable_parameters_in_search_space({"kind": "far"})
    model = client._generation_strategy.current_node.learned(client._experiment)
    assert "k" not in model.optimizer.space.parameters


def test_ranges_that_are_narrowed_beside_constraints_on_parameters_are_kept():
    client = started(n_initial=4, relations=["a + b <= 12"])
    run(client, 6, branin)
    space, b = client._experiment.search_space, client._experiment.search_space.parameters["b"]
    a = RangeParameter("a", ParameterType.FLOAT, 2.0, 4.0)
    client._experiment.search_space = SearchSpace([a, b], space.parameter_constraints)
    points = run(client, 2, branin)
    assert all(2 <= point["a"] <= 4 and point["a"] + point["b"] <= 12 for point in points)
    assert len(client._generation_strategy.current_node.learned(client._experiment).trials) == 8


def test_trials_outside_a_changed_search_space_are_named_once_where_they_cannot_be_used(caplog):
    client = started(setting=Certified(matern(0.3), 5.0, norm_bound=600.0))
    run(client, 5, branin)
    changed(client, "narrower")
    with caplog.at_level("WARNING", logger="kbo"):
        run(client, 2, branin)
    said = [
        record.getMessage()
        for record in caplog.records
        if "left out of the model" in record.getMessage()
    ]
    assert len(said) == 1
    assert said[0].startswith("trials [")


# Discrete spaces


def test_arms_are_pulled_again():
    arms = ChoiceParameterConfig(
        name="c", parameter_type="str", values=["a", "b", "z"], is_ordered=False
    )
    client = started(
        [INT, arms], setting=Certified(matern(0.3), noise_std=0.3, norm_bound=8.0), method="amm-ucb"
    )
    noise = torch.Generator().manual_seed(0)
    points = run(
        client,
        24,
        lambda k, c: (k - 3) ** 2 / 2 + (c != "b") + 0.3 * float(torch.randn((), generator=noise)),
    )
    pulled = [tuple(sorted(point.items())) for point in points]
    assert max(pulled, key=pulled.count) == (("c", "b"), ("k", 3))
    assert pulled.count((("c", "b"), ("k", 3))) > 3
    assert len(client._generation_strategy.current_node.learned(client._experiment).trials) == 24


# Analyses


def cards(collection) -> list:
    return [
        leaf
        for card in collection
        for leaf in (cards(card.children) if hasattr(card, "children") else [card])
    ]


def test_analyses_have_the_model_of_ax_and_trials_do_not():
    client = started(MIXED, n_initial=5)
    run(client, 6, tuning)
    assert client._generation_strategy.adapter is None
    found = cards(client.compute_analyses(display=False))
    assert not [card.title for card in found if "Error" in type(card).__name__]
    assert any("Cross Validation" in card.title for card in found)
    assert client._generation_strategy.adapter is not None
    client.get_next_trials(1)
    run(client, 1, tuning)
    assert client._generation_strategy.adapter is None, "a model of earlier data"


# Strategies of one's own, and storage


def test_five_lines_of_ones_own(tmp_path):
    kbo_ax.register()  # can be repeated
    options = {"kernel": matern(0.3, 0.4), "noise_bounds": NoiseBounds(600.0, 0.1, upper=5.0)}
    config = ModelConfig(botorch_model_class=AdaptiveRidgeGP, model_options=options)
    own = GeneratorSpec(
        Generators.BOTORCH_MODULAR,
        generator_kwargs={
            "surrogate_spec": SurrogateSpec(model_configs=[config]),
            "botorch_acqf_class": acquisition.DMMUCB,
            "botorch_acqf_options": {"noise_std": 5.0, "norm_bound": 600.0, "delta": 0.1},
        },
        generator_gen_kwargs={
            "model_gen_options": {"optimizer_kwargs": {"num_restarts": 2, "raw_samples": 32}}
        },
    )
    start = GeneratorSpec(Generators.SOBOL, generator_kwargs={"seed": 0})
    transition = [MinTrials(2, transition_to="own")]
    nodes = [GenerationNode(name="start", generator_specs=[start], transition_criteria=transition)]
    client = started()
    client.set_generation_strategy(
        GenerationStrategy(nodes=[*nodes, GenerationNode(name="own", generator_specs=[own])])
    )
    run(client, 3, branin, 0.5)
    loaded = again(client, tmp_path)
    run(loaded, 1, branin)
    kernel = loaded._generation_strategy.adapter.botorch_model.covar_module
    assert kernel.base_kernel.lengthscale.tolist() == [pytest.approx([0.3, 0.4])]


KERNELS = [
    RBFKernel(),
    matern(0.3, 0.2, 0.7, scale=2.0),
    AdditiveKernel(
        ScaleKernel(RBFKernel(active_dims=[0, 2])), MaternKernel(nu=0.5, active_dims=[1])
    ),
    ScaleKernel(ProductKernel(RBFKernel(active_dims=[0]), MaternKernel(nu=1.5, ard_num_dims=3))),
]


def test_kernels_survive_to_the_last_digit():
    X = torch.rand(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for kernel in KERNELS:
        stored = build_kernel(json.loads(json.dumps(describe_kernel(kernel))))
        torch.testing.assert_close(
            freeze(stored, X)(X, X), freeze(kernel, X)(X, X), rtol=1e-14, atol=1e-14
        )
        assert describe_kernel(stored) == describe_kernel(build_kernel(describe_kernel(stored)))


# What is refused


class Own(Practical):
    """A setting that only its author has."""


CERTIFIED = {"noise_std": 0.1, "norm_bound": 1.0}
KNOWN = [Constraint("acc", lower=1.0, noise_std=0.1, norm_bound=3.0)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "dmm"}, "unknown method"),
        ({"method": "igp-ucb"}, "n_trials"),
        ({"method": "cmm-ucb-doubling"}, "certified setting"),
        (
            {"setting": Certified(ScaleKernel(PeriodicKernel()), **CERTIFIED)},
            "cannot store .* PeriodicKernel",
        ),
        ({"setting": Own()}, "cannot store a Own"),
        ({"seed": 0.5}, "seed"),
        (
            {"setting": Safe(matern(1.0), 0.1, 1.0, start=[{"lr": 0.01}])},
            "for kbo.minimize and kbo.Optimizer",
        ),
        ({"constraints": [Constraint("m", upper=1.0)]}, "configure_optimization"),
        ({"objective": "2*acc - loss"}, "objectives that are single outcomes"),
        ({"objective": "-loss, 2*acc + size"}, "objectives that are single outcomes"),
        ({"objective": "-objective, acc"}, "an objective cannot be called 'objective'"),
        ({"objective": "-loss, acc", "method": "random"}, "no bounds"),
        (
            {"objective": "-loss, acc", "limits": ["acc >= 0.9 * baseline"]},
            "'acc >= 0.9 \\* baseline': kbo has limits on single outcomes",
        ),
        ({"limits": ["acc >= 0.9 * baseline"]}, "single outcomes"),
        ({"limits": ["acc + size >= 0.9"]}, "single outcomes"),
        ({"limits": ["acc >= 1"], "setting": rough()}, r"got \[\] for \['acc >= 1'\]"),
        (
            {"limits": ["acc >= 2"], "setting": rough(), "constraints": KNOWN},
            "got .*acc >= 1.* for .*acc >= 2",
        ),
        ({"setting": rough(), "constraints": KNOWN}, r"got \['acc >= 1'\] for \[\]"),
    ],
)
def test_what_cannot_be_is_refused_before_a_trial_is_paid_for(options, words):
    with pytest.raises(InvalidInput, match=words):
        started([FLOAT], **options).get_next_trials(1)


# Outcome constraints


def memory(a: float, b: float) -> float:
    return a + b / 2 + 3


def outcomes(a: float, b: float) -> dict[str, float]:
    """The best values of Branin that keep memory <= 8 are about 0.4."""
    return {"loss": branin(a, b), "memory": memory(a, b)}


@pytest.fixture(scope="module")
def constrained() -> Client:
    client = started(limits=["memory <= 8"], n_initial=5)
    run(client, 12, outcomes)
    return client


def test_limits_are_kept_and_the_recommended_trial_keeps_them(constrained):
    number, point = kbo_ax.recommended(constrained)
    assert constrained._experiment.trials[number].arm.parameters == point
    assert memory(**point) <= 8
    assert branin(**point) < 4
    later = [t.arm.parameters for t in constrained._experiment.trials.values()][6:]
    assert sum(memory(**p) < 8.5 for p in later) >= 4
    known = kbo_ax.feasibility(constrained)
    assert known.probability > 0.5
    assert not known.certified
    assert known.bounds["memory"] == pytest.approx(
        [memory(**point)] * 3
    )  # its trials showed that there is no noise
    assert kbo_ax.interval(constrained, point, "memory")[1] == pytest.approx(
        memory(**point), abs=0.5
    )
    with pytest.raises(InvalidInput, match="outcome must be one of 'loss', 'memory'"):
        kbo_ax.interval(constrained, point, "speed")


def test_a_constrained_run_resumes_with_its_pending_trials(constrained, tmp_path):
    loaded = again(constrained, tmp_path)
    first, second = (client.get_next_trials(2) for client in (constrained, loaded))
    assert first == second
    assert distance(*first.values()) > 1e-2
    assert kbo_ax.recommended(loaded) == kbo_ax.recommended(constrained)


def test_certified_constraints_share_delta_and_are_certified(tmp_path):
    noisy = Constraint("memory", upper=8.0, noise_std=0.5, norm_bound=60.0, kernel=matern(0.5, 0.4))
    options = {
        "setting": Certified(matern(0.3), noise_std=1.0, norm_bound=600.0),
        "constraints": [noisy],
    }
    client = started(objective="loss", limits=["2 * memory <= 16"], **options)
    run(client, 7, lambda a, b: {"loss": -branin(a, b), "memory": memory(a, b)})
    assert "1 - 0.05" in kbo_ax.guarantee(client)
    point = {"a": 7.0, "b": 12.0}
    loaded, bound = again(client, tmp_path), MartingaleMixture(0.5, 60.0, 0.05, "dmm")
    state = KernelRidge(noisy.kernel, bound.mixture_ridge)
    trials = [trial.arm.parameters for trial in client._experiment.trials.values()]
    X = torch.tensor(
        [[(p["a"] + 5) / 15, p["b"] / 15] for p in [*trials, point]], dtype=torch.float64
    )
    state.update(X[:-1], torch.tensor([memory(**p) for p in trials], dtype=torch.float64))
    lower, upper = (float(side) for side in bound.interval(state, X[-1:]))
    assert kbo_ax.interval(loaded, point, "memory")[::2] == pytest.approx((lower, upper), rel=1e-7)
    known, (_, best) = kbo_ax.feasibility(loaded), kbo_ax.recommended(loaded)
    assert known.certified
    assert known.probability == pytest.approx(0.9)
    assert known.kept == (known.bounds["memory"][2] <= 8)
    assert memory(**best) <= 8
    (failed,) = loaded.get_next_trials(1)
    loaded.mark_trial_failed(failed)
    after = kbo_ax.feasibility(loaded)
    assert (after.certified, after.probability) == (False, None)


# BoTorch's table of constructors

INPUTS = {
    acquisition.KernelUCB: {"confidence": FixedWidth(2.0)},
    acquisition.AMMUCB: MIXTURE,
    acquisition.DMMUCB: MIXTURE,
    acquisition.CMMUCB: MIXTURE,
    acquisition.ChainingUCB: {
        "points": torch.linspace(0, 1, 9).double().unsqueeze(-1),
        "delta": 0.1,
    },
    acquisition.InflatedThompsonSampling: {"confidence": FixedWidth(1.0), "seed": 5},
}


@pytest.mark.parametrize(
    ("kind", "options"), INPUTS.items(), ids=lambda value: getattr(value, "__name__", "")
)
def test_constructors_pass_on_direction_and_pending_points(kind, options):
    X = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(-1)
    model = KernelRidgeGP(X, X.square(), matern(0.3), 0.04)
    transform = ScalarizedPosteriorTransform(torch.tensor([-1.0], dtype=torch.float64))
    pending = torch.tensor([[0.3]], dtype=torch.float64)
    given = {
        "posterior_transform": transform,
        "X_pending": pending,
        "training_data": None,
        "bounds": None,
    }
    acqf = kind(**get_acqf_input_constructor(kind)(model=model, **given, **options))
    assert acqf.weight == -1
    assert torch.equal(acqf.X_pending, pending)
    assert acqf(torch.tensor([[[0.1]]], dtype=torch.float64)).isfinite().all()
    with pytest.raises(InvalidInput, match="one outcome"):
        get_acqf_input_constructor(kind)(model=model, **given, **options, constraints=[lambda y: y])


def test_a_diverged_run_does_not_wipe_out_the_others():
    values = dict(enumerate([0.51, 0.62, 0.4, 1e14, math.nan, 0.0]))
    assert [rounded(values)[i] for i in range(4)] == pytest.approx(
        [0.51, 0.62, 0.4, 1e14], rel=1e-9
    )


@pytest.mark.parametrize(
    ("parameters", "relations"),
    [
        (BOX, ["a + b <= 6", "a <= b"]),
        ([FLOAT, MANY, CHOICE, *BOX], ["a + b <= 6", "k + b <= 300"]),
    ],
)
def test_constraints_on_parameters_hold(parameters, relations):
    client = started(parameters, relations=relations, n_initial=5)
    space = kbo_ax.from_parameters(parameters, relations)
    for point in run(client, 8, lambda **found: -found["a"] - found.get("k", 0)):
        exceeded = [
            sum(w * point[name] for name, w in c.weights.items()) - c.upper
            for c in space.constraints
        ]
        assert max(exceeded) < 1e-9
    assert max(exceeded) > -0.5


def test_conditional_parameters_and_ranges_with_steps_are_searched():
    kinds = ChoiceParameterConfig(
        "kind", ["svm", "forest"], "str", False, {"svm": ["lr"], "forest": ["depth"]}
    )
    depth = RangeParameterConfig("depth", (2, 12), "int", 5)
    tenths = RangeParameterConfig("part", (0.0, 1.0), "float", 0.1)
    client = started([kinds, FLOAT, depth, tenths], n_initial=4)
    points = run(
        client,
        9,
        lambda kind, part, lr=0.01, depth=2: (math.log10(lr) + 2) ** 2 + depth / 12 + part,
    )
    assert {frozenset(point) for point in points} == {
        frozenset({"kind", "part", n}) for n in ("lr", "depth")
    }
    assert {point["depth"] for point in points if "depth" in point} <= {2, 7, 12}
    number, best = kbo_ax.recommended(client)
    assert best == client._experiment.trials[number].arm.parameters


def test_fixed_features_are_a_context_and_batches_are_trials_of_their_own():
    from ax.core.observation import ObservationFeatures

    client = started([FLOAT, INT], n_initial=3)
    run(client, 4, lambda lr, k: (math.log10(lr) + 2) ** 2 + k)
    strategy, experiment = client._generation_strategy, client._experiment
    fixed = ObservationFeatures(parameters={"k": 5})
    (generated,) = strategy.gen(experiment, n=2, fixed_features=fixed)[0]
    assert [arm.parameters["k"] for arm in generated.arms] == [5, 5]
    assert len({arm.parameters["lr"] for arm in generated.arms}) == 2


# Several objectives


def trade_off(a: float, b: float) -> dict[str, float]:
    """The front is where b = 0: a square law of the error, and one of the throughput, in x from 0 to 1."""
    x = (a + 5) / 15
    away = b / 15
    return {
        "error": x**2 + away,
        "throughput": 100 * (1 - (1 - x) ** 2 - away),
        "memory": x + away,
    }


THRESHOLDS = ["error <= 0.5", "throughput >= 40"]


@pytest.fixture(scope="module")
def traded() -> Client:
    limits = [*THRESHOLDS, "memory <= 0.65"]
    client = started(objective="-error, throughput", limits=limits, n_initial=5)
    run(client, 16, trade_off)
    return client


def test_the_front_of_two_objectives_lies_within_thresholds_and_limits(traded):
    front = kbo_ax.front(traded)
    assert front.reference == {"error": 0.5, "throughput": 40.0}
    assert len(front.points) > 3
    for point in front.points:
        parameters = traded._experiment.trials[point.trial.number].arm.parameters
        assert point.trial.params == parameters
        assert trade_off(**parameters)["memory"] <= 0.65
        for name, value in trade_off(**parameters).items():
            if name != "memory":
                lower, _, upper = point.values[name]
                assert lower - 1e-6 <= value <= upper + 1e-6
    later = [trial.arm.parameters for trial in traded._experiment.trials.values()][8:]
    counting = [
        p
        for p in map(lambda p: trade_off(**p), later)
        if p["error"] <= 0.5 and p["throughput"] >= 40
    ]
    assert len(counting) >= 5
    index, parameters = kbo_ax.recommended(traded)
    assert index == front.balanced.trial.number
    assert kbo_ax.feasibility(traded).kept
    with pytest.raises(InvalidInput, match="outcome must be one of 'error', 'throughput'"):
        kbo_ax.interval(traded, parameters)  # the first one is no answer to a question about all
    lower, _, upper = kbo_ax.interval(traded, parameters, "throughput")
    assert lower - 1e-6 <= trade_off(**parameters)["throughput"] <= upper + 1e-6
    for text in ("not certified", "error: ", "throughput: "):
        assert text in kbo_ax.guarantee(traded)


def test_ax_knows_the_front(traded):
    observed = {entry[2] for entry in traded.get_pareto_frontier(use_model_predictions=False)}
    assert len(observed) > 3
    assert observed & {point.trial.number for point in kbo_ax.front(traded).points}
    assert traded.get_pareto_frontier()


def test_a_run_of_two_objectives_resumes(traded, tmp_path):
    resumed = again(traded, tmp_path)
    assert resumed.get_next_trials(2) == traded.get_next_trials(2)
    assert kbo_ax.front(resumed).hypervolume == kbo_ax.front(traded).hypervolume


def test_an_audit_of_two_objectives(traded):
    audited = audit(traded)
    assert audited.result.front is not None
    on_front = {audited.names[point.trial.number] for point in audited.result.front.points}
    assert on_front == {point.trial.number for point in kbo_ax.front(traded).points}
    assert "Ax has" in str(audited)
    assert "trials that no other dominates" in str(audited)


def test_objectives_and_thresholds_may_be_changed_between_trials():
    client = started(objective="-error, throughput", limits=THRESHOLDS[:1], n_initial=4)
    run(client, 6, trade_off)
    front = kbo_ax.front(client)
    assert front.reference["error"] == 0.5
    assert [str(o) for o in front.objectives] == [
        "error (smaller is better)",
        "throughput (larger is better)",
    ]
    client.configure_optimization(objective="throughput, memory")
    run(client, 1, trade_off)
    assert [o.name for o in kbo_ax.front(client).objectives] == ["throughput", "memory"]
    client.configure_optimization(objective="-error")
    run(client, 1, trade_off)
    assert kbo_ax.front(client) is None
    index, _ = kbo_ax.recommended(client)
    data = {i: trade_off(**t.arm.parameters)["error"] for i, t in client._experiment.trials.items()}
    assert data[index] == min(data.values())


@pytest.mark.parametrize(("sems", "noise_std"), [((0.0, 0.0), 0.0), ((0.0, 0.3), None)])
def test_objectives_have_no_noise_if_the_errors_of_all_are_zero(sems, noise_std):
    client = started(objective="-error, throughput", n_initial=4)

    def measured(a, b):
        values = trade_off(a, b)
        return {
            name: (values[name], sem)
            for name, sem in zip(["error", "throughput"], sems, strict=True)
        }

    run(client, 3, measured)
    model = client._generation_strategy.current_node.learned(client._experiment)
    assert model.optimizer.setting.noise_std == noise_std
