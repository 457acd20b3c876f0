"""kbo in Ax 1.3: its Client and its storage."""

from __future__ import annotations

import json
import math

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

from kbo import acquisition, audit
from kbo.confidence import FixedWidth, MartingaleMixture, NoiseBounds
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.kernels import freeze
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP
from kbo.optimize import Certified, Constraint, Hypothesis, Practical, Safe
from kbo.regression import KernelRidge
from kbo.space import Float, Int, Space

pytest.importorskip("ax")

from ax.adapter.registry import Generators
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig, StorageConfig
from ax.core.observation import ObservationFeatures
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

BOX = [
    RangeParameterConfig("a", (-5.0, 10.0), "float"),
    RangeParameterConfig("b", (0.0, 15.0), "float"),
]
FLOAT = RangeParameterConfig("lr", (1e-4, 1e-1), "float", scaling="log")
INT = RangeParameterConfig("k", (1, 5), "int")
MANY = RangeParameterConfig("k", (0, 400), "int")
CHOICE = ChoiceParameterConfig("act", ["relu", "tanh", "gelu"], "str", False)
LETTER = ChoiceParameterConfig("c", ["a", "b", "z"], "str", False)
MIXED = [FLOAT, INT, CHOICE, ChoiceParameterConfig("one", ["only"], "str", False)]
BOX_SPACE = Space({"a": (-5.0, 10.0), "b": (0.0, 15.0)})
MIXED_SPACE = Space({"lr": Float(1e-4, 1e-1, log=True), "k": Int(1, 5), "act": CHOICE.values})
POINT = {"a": 7.0, "b": 12.0}
MIXED_POINT = {"lr": 3e-3, "k": 4, "act": "tanh"}


def matern(*lengthscales: float) -> ScaleKernel:
    dimension = len(lengthscales) if len(lengthscales) > 1 else None
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=dimension))
    kernel.base_kernel.lengthscale = torch.tensor(lengthscales)
    kernel.outputscale = 1.0
    return kernel


def rough(noise_std: float | None = 5.0, norm_bound: float = 600.0, **options) -> Certified:
    """A setting for Branin."""
    return Certified(matern(0.3), noise_std, norm_bound=norm_bound, **options)


def started(
    parameters=BOX, objective="-loss", limits=None, relations=None, storage=None, **options
) -> Client:
    """A client; n_initial is for a practical setting, other options are for the strategy."""
    if "n_initial" in options:
        options["setting"] = Practical(n_initial=options.pop("n_initial"))
    client = Client(storage_config=storage, random_seed=0)
    client.configure_experiment(parameters=parameters, parameter_constraints=relations, name="test")
    client.configure_optimization(objective=objective, outcome_constraints=limits)
    client.set_generation_strategy(kbo_ax.generation_strategy(**options))
    return client


def run(client: Client, n_trials: int, function, sem=None) -> list[dict]:
    """Points of new trials, completed with the loss, or with all outcomes, that the function returns."""
    points = []
    for _ in range(n_trials):
        ((number, point),) = client.get_next_trials(1).items()
        points.append(point)
        outcome = function(**point)
        if not isinstance(outcome, dict):
            outcome = {"loss": outcome if sem is None else (outcome, sem)}
        client.complete_trial(number, outcome)
    return points


def branin(a: float, b: float) -> float:
    """The function, with three minima of about 0.398."""
    bowl = (b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6) ** 2
    return bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10


def tuning(lr: float, k: int, act: str, one: str = "only") -> float:
    return (math.log10(lr) + 2) ** 2 / 4 + (k - 3) ** 2 / 4 + 0.4 * CHOICE.values.index(act)


def memory(a: float, b: float) -> float:
    return a + b / 2 + 3


def outcomes(a: float, b: float) -> dict[str, float]:
    """The best values of Branin that keep memory <= 8 are about 0.4."""
    return {"loss": branin(a, b), "memory": memory(a, b)}


def again(client: Client, tmp_path) -> Client:
    client.save_to_json_file(str(tmp_path / "ax.json"))
    return Client.load_from_json_file(str(tmp_path / "ax.json"))


def learned(client: Client):
    return client._generation_strategy.current_node.learned(client._experiment)


def parameters_of(client: Client) -> list[dict]:
    return [trial.arm.parameters for trial in client._experiment.trials.values()]


def least_distance(points: list[dict]) -> float:
    pairs = [(p, q) for i, p in enumerate(points) for q in points[:i]]
    return min(max(abs(p[name] - q[name]) for name in p) for p, q in pairs)


# Resuming


@pytest.fixture(scope="module")
def uninterrupted() -> list[dict]:
    return run(started(n_initial=5), 11, branin)


@pytest.mark.keeps(
    r"file .*ax\.db", "Ax keeps the connection to its database until the process ends"
)
def test_a_stored_run_continues_exactly_as_if_it_had_not_been(tmp_path, uninterrupted):
    storage = StorageConfig(url=f"sqlite:///{tmp_path}/ax.db")
    init_engine_and_session_factory(url=storage.url, force_init=True)
    create_all_tables(get_engine())
    client = started(storage=storage, n_initial=5)
    run(client, 9, branin)
    loaded = again(client, tmp_path)
    assert run(loaded, 2, branin) == uninterrupted[9:]
    from_database = Client.load_from_database("test", storage_config=storage)
    assert run(from_database, 1, branin) == uninterrupted[9:10]


def test_minimisation_minimises_and_maximisation_maximises(uninterrupted):
    found = [branin(**point) for point in uninterrupted]
    sobol = [branin(**point) for point in run(started(n_initial=11), 11, branin)]
    upwards = started(objective="loss", method="amm-ucb", n_initial=5)
    largest = max(branin(**point) for point in run(upwards, 9, branin))
    assert min(found) < min(sobol) - 1
    assert largest > max(sobol) + 50
    assert max(found[5:]) < largest / 2


@pytest.mark.parametrize(("method", "noise"), [("bkb", 5.0), ("kernel-ts-adaptive", None)])
def test_other_methods_resume_and_change_from_trial_to_trial(method, noise, tmp_path):
    setting = rough(noise, noise_upper=None if noise else 20.0)
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
    assert least_distance(points) > 1e-2


def test_a_model_goes_on_with_new_trials():
    limits = [Constraint("memory", upper=8.0, noise_std=0.1, norm_bound=60.0)]
    client = started(limits=["memory <= 8"], setting=rough(), constraints=limits)
    run(client, 3, outcomes)
    optimizer = learned(client).optimizer
    run(client, 1, outcomes)
    assert learned(client).optimizer is optimizer
    assert len(optimizer.trials) == 4


def test_what_failed_or_was_abandoned_is_avoided_and_mentioned():
    client = started(setting=rough(), method="amm-ucb")
    run(client, 3, branin)
    assert "failed" not in kbo_ax.guarantee(client)
    before = kbo_ax.interval(client, POINT)
    points = []
    for end in (client.mark_trial_failed, client.mark_trial_abandoned, lambda number: None):
        ((number, point),) = client.get_next_trials(1).items()
        end(number)
        points.append(point)
    assert least_distance(points) > 0.5
    assert "failed, abandoned or stopped early: 2" in kbo_ax.guarantee(client)
    assert kbo_ax.interval(client, POINT) == before


def test_intermediate_values_never_reach_a_bound():
    client = started(setting=rough())
    run(client, 3, branin)
    before = kbo_ax.interval(client, POINT)
    (number,) = client.get_next_trials(1)
    client.attach_data(number, {"loss": 2.0}, progression=1)
    assert kbo_ax.interval(client, POINT) == before
    client.mark_trial_early_stopped(number)
    assert kbo_ax.interval(client, POINT) == before
    (pruned,) = learned(client).optimizer.run.trials.pruned
    assert pruned.reports == [(1, 2.0)]
    assert "failed, abandoned or stopped early: 1" in kbo_ax.guarantee(client)


# Certified units


def by_hand(client: Client, space: Space, kernel, numbers, point, outcome="loss", delta=0.1):
    """Interval from the client's data, by nothing of the integration."""
    data = client._experiment.lookup_data().df
    values = data[data["metric_name"] == outcome].sort_values("trial_index")["mean"]
    points = [{name: p[name] for name in point} for p in parameters_of(client)[: len(values)]]
    confidence = MartingaleMixture(*numbers, delta, "dmm")
    state = KernelRidge(kernel, confidence.mixture_ridge)
    state.update(space.features(space.units(points)), torch.tensor(values.tolist()).double())
    x = space.features(space.units([point]))
    lower, upper = confidence.interval(state, x)
    return pytest.approx((float(lower), float(state.predict(x)[0]), float(upper)), rel=1e-7)


@pytest.mark.parametrize("objective", ["-loss", "loss"])
def test_certified_data_are_not_cut(objective):
    kernel = matern(0.1)
    client = started(objective=objective, setting=Certified(kernel, 1.0, norm_bound=500.0))
    for i, value in enumerate([0.9, 1.0, 1.1, 1.0, 0.95, 1.05, -100.0, 120.0]):
        number = client.attach_trial({"a": -5.0 + 2 * i, "b": 2.0 * i})
        client.complete_trial(number, {"loss": value})
    for point in (POINT, {"a": 9.0, "b": 14.0}):
        interval = kbo_ax.interval(client, point)
        assert interval == by_hand(client, BOX_SPACE, kernel, (1.0, 500.0), point)
        assert abs(interval[1]) > 40
    assert "attached, perhaps with values that were known before: 8" in kbo_ax.guarantee(client)


def test_certified_bounds_are_those_of_the_raw_data(tmp_path):
    kernel = matern(0.4, 0.6, 1.0, 1.1, 1.2)
    client = started(MIXED, setting=Certified(kernel, noise_std=0.1, norm_bound=4.0))
    points = run(client, 5, tuning)
    assert all(set(p) == {"lr", "k", "act", "one"} and type(p["k"]) is int for p in points)
    interval = kbo_ax.interval(client, MIXED_POINT)
    assert interval == by_hand(client, MIXED_SPACE, kernel, (0.1, 4.0), MIXED_POINT)
    assert interval[0] < tuning(**MIXED_POINT) < interval[2]
    assert kbo_ax.guarantee(client).startswith("certified: the interval holds")
    assert kbo_ax.interval(again(client, tmp_path), MIXED_POINT) == interval


def test_hypotheses_are_stored_to_the_last_digit(tmp_path):
    numbers = ((0.2, 700.0), (0.3, 600.0), (0.9, 0.1))
    listed = [Hypothesis(matern(length), 1.0, norm) for length, norm in numbers]
    of_memory = [Hypothesis(matern(0.5), 0.5, norm) for norm in (60.0, 90.0)]
    limit = Constraint("memory", upper=8.0, kernel=of_memory)
    client = started(limits=["memory <= 8"], setting=Certified(listed), constraints=[limit])
    run(client, 5, outcomes)
    assert "another one of 3 hypotheses" in kbo_ax.guarantee(client)
    loaded = again(client, tmp_path)
    for outcome in ("loss", "memory"):
        stored = kbo_ax.interval(loaded, POINT, outcome)
        assert stored == kbo_ax.interval(client, POINT, outcome)
    assert kbo_ax.feasibility(loaded) is not None
    assert loaded.get_next_trials(1) == client.get_next_trials(1)


def same_value(client: Client) -> None:
    client.complete_trial(0, {"loss": client._experiment.data.df["mean"][0]})


def standard_error(client: Client) -> None:
    client.attach_data(3, {"loss": (client._experiment.data.df["mean"][3], 0.1)})


def after_its_bound_was_read(client: Client) -> None:
    kbo_ax.interval(client, POINT)
    client.attach_data(4, {"loss": 0.5})


def twice(client: Client) -> None:
    for value in (0.5, 0.7):
        client.attach_data(1, {"loss": value})
        run(client, 1, branin)


@pytest.mark.parametrize("change", [same_value, standard_error, after_its_bound_was_read, twice])
def test_a_value_that_is_overwritten_removes_the_guarantee(change, tmp_path):
    client = started(setting=rough())
    run(client, 5, branin)
    change(client)
    is_certified = change is same_value
    for resumed in (client, again(client, tmp_path)):
        guarantee = kbo_ax.guarantee(resumed)
        assert guarantee.startswith("certified" if is_certified else "not certified")
        assert ("with values that were overwritten later" in guarantee) != is_certified


def test_what_has_no_answer_is_refused():
    client = started(MIXED, setting=Certified(matern(0.7), noise_std=0.1, norm_bound=6.0))
    with pytest.raises(InvalidInput, match="no bound yet"):
        kbo_ax.interval(client, MIXED_POINT)
    assert kbo_ax.guarantee(client).startswith("none")
    run(client, 1, tuning)
    with pytest.raises(InvalidInput, match="parameter 'k': expected a number in"):
        kbo_ax.interval(client, {**MIXED_POINT, "k": 9})
    with pytest.raises(InvalidInput, match="no strategy of kbo"):
        kbo_ax.interval(Client(), {})
    online = started(setting=rough(None, noise_upper=0.5), method="dmm-ucb-adaptive")
    with pytest.raises(InvalidInput, match="standard error of 7"):
        run(online, 2, branin, sem=7.0)
    with pytest.raises(RefutedAssumptions):
        run(started(setting=rough(0.1, 1.0)), 3, branin)


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
        run(client, 1, branin, sem)
    guarantee = kbo_ax.guarantee(client)
    assert guarantee.startswith("practical, not certified")
    assert words in guarantee


@pytest.mark.parametrize(("sem", "noise_std"), [(0.0, 0.0), (0.3, None)])
def test_objectives_have_no_noise_if_the_errors_of_all_are_zero(sem, noise_std):
    def measured(a, b):
        values = trade_off(a, b)
        return {"error": (values["error"], 0.0), "throughput": (values["throughput"], sem)}

    client = started(objective="-error, throughput", n_initial=4)
    run(client, 3, measured)
    assert learned(client).optimizer.setting.noise_std == noise_std


def test_a_diverged_run_does_not_wipe_out_the_others():
    values = [0.51, 0.62, 0.4, 1e14]
    stored = rounded(dict(enumerate([*values, math.nan, 0.0])))
    assert [stored[i] for i in range(4)] == pytest.approx(values, rel=1e-9)


# Search spaces that are changed

TEXT = ParameterType.STRING
WHOLE = ParameterType.INT
REAL = ParameterType.FLOAT
ORDER = ChoiceParameterConfig("o", [1, 2, 4, 8], "int", True)


def replace(client: Client, *parameters) -> None:
    """Change parameters of the search space, and keep its others and its constraints."""
    space = client._experiment.search_space
    changed = {**space.parameters, **{p.name: p for p in parameters}}
    client._experiment.search_space = SearchSpace(
        list(changed.values()), space.parameter_constraints
    )


def narrow(client: Client, low: float = 2.0, high: float = 4.0) -> None:
    replace(client, RangeParameter("a", REAL, low, high))


@pytest.mark.parametrize(
    "new",
    [
        ChoiceParameter("c", TEXT, ["a", "b"], is_ordered=False, sort_values=False),
        ChoiceParameter("c", TEXT, ["a", "b", "z", "e"], is_ordered=False, sort_values=False),
        FixedParameter("c", TEXT, "new"),
        ChoiceParameter("o", WHOLE, [1, 2], is_ordered=True, sort_values=True),
        ChoiceParameter("o", WHOLE, [1, 2, 4, 8, 16], is_ordered=True, sort_values=True),
        RangeParameter("k", WHOLE, 2, 3),
        RangeParameter("k", WHOLE, 1, 20, log_scale=True),
        FixedParameter("k", WHOLE, 9),
        "disabled",
        "added",
    ],
    ids=lambda new: f"{new.name} {type(new).__name__}" if hasattr(new, "name") else new,
)
def test_a_search_space_may_be_changed_between_trials_and_all_of_them_are_data(
    new, caplog, tmp_path
):
    def function(c, o, k, x=0.5):
        return (k - 3) ** 2 / 9 + (c != "z") + 0.1 * o + x

    client = started([INT, LETTER, ORDER], n_initial=4)
    run(client, 6, function)
    if new == "disabled":
        new = FixedParameter("c", TEXT, "b")
        client._experiment.disable_parameters_in_search_space({"c": "b"})
    elif new == "added":
        new = RangeParameter("x", REAL, 0.0, 1.0, backfill_value=0.5)
        client._experiment.add_parameters_to_search_space([new])
    else:
        replace(client, new)
    if new.name == "k":
        client = again(client, tmp_path)
    points = run(client, 2, function)
    _, recommended = kbo_ax.recommended(client)
    assert all(new.validate(point[new.name]) for point in points)
    assert new.name == "x" or new.validate(recommended[new.name])
    assert len(learned(client).optimizer.completed()) == 8
    assert kbo_ax.interval(client, points[-1]) is not None
    assert "8 trials" in str(audit(client))
    assert "left out" not in str(audit(client)) + caplog.text


def test_ranges_that_are_narrowed_keep_constraints_and_trials_that_end_later(tmp_path):
    client = started(n_initial=4, relations=["a + b <= 12"])
    run(client, 6, branin)
    pending = client.get_next_trials(max_trials=2)
    narrow(client)
    client = again(client, tmp_path)
    points = run(client, 1, branin)
    for number, point in pending.items():
        client.complete_trial(number, {"loss": branin(**point)})
    points += run(client, 1, branin)
    assert all(2 <= point["a"] <= 4 and point["a"] + point["b"] <= 12 for point in points)
    assert len(learned(client).optimizer.completed()) == 10
    narrow(client, 9.5, 9.6)
    for call in (kbo_ax.recommended, audit):
        with pytest.raises(InvalidInput, match=r"no (complete )?trial .*inside the search space"):
            call(client)


def test_parameters_of_a_value_that_a_fixed_parameter_does_not_have_are_left_out():
    kind = ChoiceParameterConfig("kind", ["near", "far"], "str", False, {"near": ["k"]})
    client = started([kind, INT, FLOAT], n_initial=4)
    run(client, 5, lambda kind, lr, k=3: k + (kind == "far") + lr)
    client._experiment.disable_parameters_in_search_space({"kind": "far"})
    assert "k" not in learned(client).optimizer.space.parameters


def test_trials_outside_a_changed_search_space_are_named_once_where_they_cannot_be_used(caplog):
    client = started(setting=rough())
    run(client, 5, branin)
    narrow(client)
    with caplog.at_level("WARNING", logger="kbo"):
        run(client, 2, branin)
    messages = [record.getMessage() for record in caplog.records]
    (message,) = [text for text in messages if "left out of the model" in text]
    assert message.startswith("trials [")


# Discrete spaces, conditions, constraints on parameters, contexts


def test_arms_are_pulled_again():
    noise = torch.Generator().manual_seed(0)

    def function(k, c):
        return (k - 3) ** 2 / 2 + (c != "b") + 0.3 * float(torch.randn((), generator=noise))

    setting = Certified(matern(0.3), noise_std=0.3, norm_bound=8.0)
    client = started([INT, LETTER], setting=setting, method="amm-ucb")
    pulled = [tuple(sorted(point.items())) for point in run(client, 24, function)]
    best = (("c", "b"), ("k", 3))
    assert max(pulled, key=pulled.count) == best
    assert pulled.count(best) > 3
    assert len(learned(client).trials) == 24


def test_constraints_on_parameters_hold():
    parameters = [FLOAT, MANY, CHOICE, *BOX]
    relations = ["a + b <= 6", "a <= b", "k + b <= 300"]
    client = started(parameters, relations=relations, n_initial=5)
    points = run(client, 7, lambda **point: -point["a"] - point["k"])
    excesses = []
    for constraint in kbo_ax.from_parameters(parameters, relations).constraints:
        weights = constraint.weights.items()
        sums = [sum(weight * point[name] for name, weight in weights) for point in points]
        excesses.append(max(sums) - constraint.upper)
    assert -0.5 < max(excesses) < 1e-9


def test_conditional_parameters_and_ranges_with_steps_are_searched():
    kinds = ChoiceParameterConfig(
        "kind", ["svm", "forest"], "str", False, {"svm": ["lr"], "forest": ["depth"]}
    )
    depth = RangeParameterConfig("depth", (2, 12), "int", 5)
    tenths = RangeParameterConfig("part", (0.0, 1.0), "float", 0.1)

    def function(kind, part, lr=0.01, depth=2):
        return (math.log10(lr) + 2) ** 2 + depth / 12 + part

    client = started([kinds, FLOAT, depth, tenths], n_initial=4)
    points = run(client, 7, function)
    expected = {frozenset({"kind", "part", name}) for name in ("lr", "depth")}
    assert {frozenset(point) for point in points} == expected
    assert {point["depth"] for point in points if "depth" in point} <= {2, 7, 12}
    number, best = kbo_ax.recommended(client)
    assert best == parameters_of(client)[number]


def test_fixed_features_are_a_context_and_batches_are_trials_of_their_own():
    client = started([FLOAT, INT], n_initial=3)
    run(client, 4, lambda lr, k: (math.log10(lr) + 2) ** 2 + k)
    fixed = ObservationFeatures(parameters={"k": 5})
    strategy = client._generation_strategy
    (generated,) = strategy.gen(client._experiment, n=2, fixed_features=fixed)[0]
    assert [arm.parameters["k"] for arm in generated.arms] == [5, 5]
    assert len({arm.parameters["lr"] for arm in generated.arms}) == 2


# Analyses


def cards(collection) -> list:
    leaves = []
    for card in collection:
        leaves += cards(card.children) if hasattr(card, "children") else [card]
    return leaves


def test_analyses_have_the_model_of_ax_and_trials_do_not():
    client = started([FLOAT, INT], n_initial=5)
    strategy = client._generation_strategy
    run(client, 6, lambda lr, k: tuning(lr, k, "relu"))
    assert strategy.adapter is None
    computed = cards(client.compute_analyses(display=False))
    assert not [card.title for card in computed if "Error" in type(card).__name__]
    assert any("Cross Validation" in card.title for card in computed)
    assert strategy.adapter is not None
    client.get_next_trials(1)
    run(client, 1, lambda lr, k: tuning(lr, k, "relu"))
    assert strategy.adapter is None, "a model of earlier data"


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
    nodes = [
        GenerationNode(name="start", generator_specs=[start], transition_criteria=transition),
        GenerationNode(name="own", generator_specs=[own]),
    ]
    client = started()
    client.set_generation_strategy(GenerationStrategy(nodes=nodes))
    run(client, 3, branin, 0.5)
    loaded = again(client, tmp_path)
    run(loaded, 1, branin)
    kernel = loaded._generation_strategy.adapter.botorch_model.covar_module
    assert kernel.base_kernel.lengthscale.tolist() == [pytest.approx([0.3, 0.4])]


KERNELS = [
    RBFKernel(),
    matern(0.3, 0.2, 0.7),
    AdditiveKernel(
        ScaleKernel(RBFKernel(active_dims=[0, 2])), MaternKernel(nu=0.5, active_dims=[1])
    ),
    ScaleKernel(ProductKernel(RBFKernel(active_dims=[0]), MaternKernel(nu=1.5, ard_num_dims=3))),
]


def test_kernels_survive_to_the_last_digit():
    X = torch.rand(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    KERNELS[1].outputscale = 2.0
    for kernel in KERNELS:
        stored = build_kernel(json.loads(json.dumps(describe_kernel(kernel))))
        expected = freeze(kernel, X)(X, X)
        torch.testing.assert_close(freeze(stored, X)(X, X), expected, rtol=1e-14, atol=1e-14)
        assert describe_kernel(stored) == describe_kernel(build_kernel(describe_kernel(stored)))


# What is refused


class Own(Practical):
    """A setting that only its author has."""


PERIODIC = Certified(ScaleKernel(PeriodicKernel()), noise_std=0.1, norm_bound=1.0)
SAFE = Safe(matern(1.0), 0.1, 1.0, start=[{"lr": 0.01}])
KNOWN = {
    "setting": rough(),
    "constraints": [Constraint("acc", lower=1.0, noise_std=0.1, norm_bound=3.0)],
}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "dmm"}, "unknown method"),
        ({"method": "igp-ucb"}, "n_trials"),
        ({"method": "cmm-ucb-doubling"}, "certified setting"),
        ({"setting": PERIODIC}, "cannot store .* PeriodicKernel"),
        ({"setting": Own()}, "cannot store a Own"),
        ({"seed": 0.5}, "seed"),
        ({"setting": SAFE}, "for kbo.minimize and kbo.Optimizer"),
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
        ({"limits": ["acc >= 2"], **KNOWN}, "got .*acc >= 1.* for .*acc >= 2"),
        (KNOWN, r"got \['acc >= 1'\] for \[\]"),
    ],
)
def test_what_cannot_be_is_refused_before_a_trial_is_paid_for(options, words):
    with pytest.raises(InvalidInput, match=words):
        started([FLOAT], **options).get_next_trials(1)


# Outcome constraints


@pytest.fixture(scope="module")
def constrained() -> Client:
    client = started(limits=["memory <= 8"], n_initial=5)
    run(client, 12, outcomes)
    return client


def test_limits_are_kept_and_the_recommended_trial_keeps_them(constrained):
    points = parameters_of(constrained)
    number, point = kbo_ax.recommended(constrained)
    assert point == points[number]
    assert memory(**point) <= 8
    assert branin(**point) < 4
    assert sum(memory(**later) < 8.5 for later in points[6:]) >= 4
    feasibility = kbo_ax.feasibility(constrained)
    assert feasibility.probability > 0.5
    assert not feasibility.certified
    # Its trials showed that there is no noise.
    assert feasibility.bounds["memory"] == pytest.approx([memory(**point)] * 3)
    mean = kbo_ax.interval(constrained, point, "memory")[1]
    assert mean == pytest.approx(memory(**point), abs=0.5)
    with pytest.raises(InvalidInput, match="outcome must be one of 'loss', 'memory'"):
        kbo_ax.interval(constrained, point, "speed")


def test_a_constrained_run_resumes_with_its_pending_trials(constrained, tmp_path):
    loaded = again(constrained, tmp_path)
    first, second = (client.get_next_trials(2) for client in (constrained, loaded))
    assert first == second
    assert least_distance(list(first.values())) > 1e-2
    assert kbo_ax.recommended(loaded) == kbo_ax.recommended(constrained)


def test_certified_constraints_share_delta_and_are_certified(tmp_path):
    noisy = Constraint("memory", upper=8.0, noise_std=0.5, norm_bound=60.0, kernel=matern(0.5, 0.4))
    client = started(limits=["2 * memory <= 16"], setting=rough(1.0), constraints=[noisy])
    run(client, 7, outcomes)
    assert "1 - 0.05" in kbo_ax.guarantee(client)
    loaded = again(client, tmp_path)
    interval = kbo_ax.interval(loaded, POINT, "memory")
    numbers = (0.5, 60.0)
    assert interval == by_hand(client, BOX_SPACE, noisy.kernel, numbers, POINT, "memory", 0.05)
    feasibility = kbo_ax.feasibility(loaded)
    _, best = kbo_ax.recommended(loaded)
    assert feasibility.certified
    assert feasibility.probability == pytest.approx(0.9)
    assert feasibility.kept == (feasibility.bounds["memory"][2] <= 8)
    assert memory(**best) <= 8
    (failed,) = loaded.get_next_trials(1)
    loaded.mark_trial_failed(failed)
    after = kbo_ax.feasibility(loaded)
    assert (after.certified, after.probability) == (False, None)


# BoTorch's table of constructors

MIXTURE = {"noise_std": 0.2, "norm_bound": 3.0, "delta": 0.1}
GRID = torch.linspace(0, 1, 9).double().unsqueeze(-1)
INPUTS = {
    acquisition.KernelUCB: {"confidence": FixedWidth(2.0)},
    acquisition.AMMUCB: MIXTURE,
    acquisition.DMMUCB: MIXTURE,
    acquisition.CMMUCB: MIXTURE,
    acquisition.ChainingUCB: {"points": GRID, "delta": 0.1},
    acquisition.InflatedThompsonSampling: {"confidence": FixedWidth(1.0), "seed": 5},
}


@pytest.mark.parametrize("kind", INPUTS, ids=lambda kind: kind.__name__)
def test_constructors_pass_on_direction_and_pending_points(kind):
    X = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(-1)
    pending = torch.tensor([[0.3]], dtype=torch.float64)
    inputs = {
        "model": KernelRidgeGP(X, X.square(), matern(0.3), 0.04),
        "posterior_transform": ScalarizedPosteriorTransform(torch.tensor([-1.0]).double()),
        "X_pending": pending,
        "training_data": None,
        "bounds": None,
        **INPUTS[kind],
    }
    construct = get_acqf_input_constructor(kind)
    acqf = kind(**construct(**inputs))
    assert acqf.weight == -1
    assert torch.equal(acqf.X_pending, pending)
    assert acqf(torch.tensor([[[0.1]]], dtype=torch.float64)).isfinite().all()
    with pytest.raises(InvalidInput, match="one outcome"):
        construct(**inputs, constraints=[lambda y: y])


# Several objectives


def trade_off(a: float, b: float) -> dict[str, float]:
    """The front is where b = 0: square laws of the error and of the throughput, in x from 0 to 1."""
    x = (a + 5) / 15
    away = b / 15
    throughput = 100 * (1 - (1 - x) ** 2 - away)
    return {"error": x**2 + away, "throughput": throughput, "memory": x + away}


@pytest.fixture(scope="module")
def traded() -> Client:
    limits = ["error <= 0.5", "throughput >= 40", "memory <= 0.65"]
    client = started(objective="-error, throughput", limits=limits, n_initial=5)
    run(client, 14, trade_off)
    return client


def test_the_front_of_two_objectives_lies_within_thresholds_and_limits(traded):
    front = kbo_ax.front(traded)
    points = parameters_of(traded)
    assert front.reference == {"error": 0.5, "throughput": 40.0}
    assert len(front.points) > 3
    for point in front.points:
        assert point.trial.params == points[point.trial.number]
        values = trade_off(**point.trial.params)
        assert values.pop("memory") <= 0.65
        for name, value in values.items():
            lower, _, upper = point.values[name]
            assert lower - 1e-6 <= value <= upper + 1e-6
    later = [trade_off(**point) for point in points[8:]]
    assert sum(values["error"] <= 0.5 and values["throughput"] >= 40 for values in later) >= 4
    index, recommended = kbo_ax.recommended(traded)
    assert index == front.balanced.trial.number
    assert kbo_ax.feasibility(traded).kept
    with pytest.raises(InvalidInput, match="outcome must be one of 'error', 'throughput'"):
        kbo_ax.interval(traded, recommended)  # the first one is no answer to a question about all
    lower, _, upper = kbo_ax.interval(traded, recommended, "throughput")
    assert lower - 1e-6 <= trade_off(**recommended)["throughput"] <= upper + 1e-6
    for text in ("not certified", "error: ", "throughput: "):
        assert text in kbo_ax.guarantee(traded)


def test_ax_knows_the_front_and_an_audit_has_both(traded):
    on_front = {point.trial.number for point in kbo_ax.front(traded).points}
    observed = {entry[2] for entry in traded.get_pareto_frontier(use_model_predictions=False)}
    assert len(observed) > 3
    assert observed & on_front
    assert traded.get_pareto_frontier()
    audited = audit(traded)
    assert {audited.names[p.trial.number] for p in audited.result.front.points} == on_front
    assert "Ax has" in str(audited)
    assert "trials that no other dominates" in str(audited)


def test_a_run_of_two_objectives_resumes(traded, tmp_path):
    resumed = again(traded, tmp_path)
    assert resumed.get_next_trials(2) == traded.get_next_trials(2)
    assert kbo_ax.front(resumed).hypervolume == kbo_ax.front(traded).hypervolume


def test_objectives_and_thresholds_may_be_changed_between_trials():
    client = started(objective="-error, throughput", limits=["error <= 0.5"], n_initial=4)
    run(client, 5, trade_off)
    front = kbo_ax.front(client)
    assert front.reference["error"] == 0.5
    directions = ["error (smaller is better)", "throughput (larger is better)"]
    assert [str(objective) for objective in front.objectives] == directions
    client.configure_optimization(objective="throughput, memory")
    run(client, 1, trade_off)
    assert [o.name for o in kbo_ax.front(client).objectives] == ["throughput", "memory"]
    client.configure_optimization(objective="-error")
    run(client, 1, trade_off)
    assert kbo_ax.front(client) is None
    index, _ = kbo_ax.recommended(client)
    errors = [trade_off(**point)["error"] for point in parameters_of(client)]
    assert errors[index] == min(errors)
