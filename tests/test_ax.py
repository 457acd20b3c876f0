"""kbo in Ax 1.3: its Client and its storage."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import AdditiveKernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel

from kbo import acquisition, audit
from kbo.confidence import MartingaleMixture
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.models import KernelRidgeGP
from kbo.optimize import Certified, Constraint, Hypothesis, Practical
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
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from ax.storage.sqa_store.db import create_all_tables, get_engine, init_engine_and_session_factory

import kbo.integrations.ax as kbo_ax
from kbo.integrations.ax.history import rounded

BOX = [
    RangeParameterConfig("a", (-5.0, 10.0), "float"),
    RangeParameterConfig("b", (0.0, 15.0), "float"),
]
FLOAT = RangeParameterConfig("lr", (1e-4, 1e-1), "float", scaling="log")
INT = RangeParameterConfig("k", (1, 5), "int")
LETTER = ChoiceParameterConfig("c", ["a", "b", "z"], "str", False)
MIXED = [FLOAT, INT, LETTER, ChoiceParameterConfig("one", ["only"], "str", False)]
MIXED_SPACE = Space({"lr": Float(1e-4, 1e-1, log=True), "k": Int(1, 5), "c": LETTER.values})
POINT = {"a": 7.0, "b": 12.0}
MIXED_POINT = {"lr": 3e-3, "k": 4, "c": "b"}


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
    """A client; other options are for the strategy, by default of a practical setting."""
    options = {"setting": Practical(n_initial=4), **options}
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


def tuning(lr: float, k: int, c: str, one: str = "only") -> float:
    return (math.log10(lr) + 2) ** 2 / 4 + (k - 3) ** 2 / 4 + 0.4 * LETTER.values.index(c)


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


def least_distance(points: list[dict]) -> float:
    pairs = [(p, q) for i, p in enumerate(points) for q in points[:i]]
    return min(max(abs(p[name] - q[name]) for name in p) for p, q in pairs)


@pytest.mark.keeps(
    r"file .*ax\.db", "Ax keeps the connection to its database until the process ends"
)
def test_a_stored_run_continues_exactly_as_if_it_had_not_been(tmp_path):
    storage = StorageConfig(url=f"sqlite:///{tmp_path}/ax.db")
    init_engine_and_session_factory(url=storage.url, force_init=True)
    create_all_tables(get_engine())
    uninterrupted = started(method="kernel-ts")  # which draws
    client = started(method="kernel-ts", storage=storage)
    assert run(client, 5, branin) == run(uninterrupted, 5, branin)
    from_database = Client.load_from_database("test", storage_config=storage)
    expected = run(uninterrupted, 2, branin)
    assert run(again(client, tmp_path), 2, branin) == expected
    assert run(from_database, 1, branin) == expected[:1]


# Failed and abandoned trials


def test_trials_without_a_final_value_are_avoided_mentioned_and_never_reach_a_bound():
    client = started(setting=rough(), method="amm-ucb")
    run(client, 3, branin)
    before = kbo_ax.interval(client, POINT)
    points = []
    for end in (client.mark_trial_failed, client.mark_trial_abandoned, lambda number: None):
        ((number, point),) = client.get_next_trials(1).items()
        end(number)
        points.append(point)
    assert least_distance(points) > 0.5
    client.attach_data(number, {"loss": 2.0}, progression=1)
    assert kbo_ax.interval(client, POINT) == before
    client.mark_trial_early_stopped(number)
    assert kbo_ax.interval(client, POINT) == before
    (pruned,) = learned(client).optimizer.run.trials.pruned
    assert pruned.reports == [(1, 2.0)]
    assert "failed, abandoned or stopped early: 3" in kbo_ax.guarantee(client)


def test_no_trial_is_repeated_where_ax_stops_trials_early():
    for has_curves in (False, True):
        client = started()
        for _ in range(8):
            for number, point in client.get_next_trials(1).items():
                if has_curves:
                    client.attach_data(number, {"loss": branin(**point) + 1}, progression=1)
                    client.attach_data(number, {"loss": branin(**point)}, progression=2)
                client.complete_trial(
                    number, raw_data=None if has_curves else {"loss": branin(**point)}
                )
        arms = [trial.arm.name for trial in client._experiment.trials.values()]
        assert (len(set(arms)) == len(arms)) == has_curves


def test_an_experiment_without_a_feasible_trial_is_not_audited():
    client = started(limits=["loss2 <= 0"])
    for number, point in client.get_next_trials(3).items():
        client.complete_trial(number, {"loss": branin(**point), "loss2": 1.0})
    with pytest.raises(InvalidInput, match=r"none of the 3 trials .* keeps all"):
        audit(client)


# Certified units


def by_hand(client: Client, kernel):
    """Interval at MIXED_POINT from the client's data, by nothing of the integration."""
    values = client._experiment.lookup_data().df.sort_values("trial_index")["mean"].tolist()
    arms = [trial.arm.parameters for trial in client._experiment.trials.values()]
    points = [{name: arm[name] for name in MIXED_POINT} for arm in [*arms, MIXED_POINT]]
    X = MIXED_SPACE.features(MIXED_SPACE.units(points))
    confidence = MartingaleMixture(0.1, 40.0, 0.1, "dmm")
    state = KernelRidge(kernel, confidence.mixture_ridge)
    state.update(X[:-1], torch.tensor(values).double())
    lower, upper = confidence.interval(state, X[-1:])
    return pytest.approx((float(lower), float(state.predict(X[-1:])[0]), float(upper)), rel=1e-7)


@pytest.mark.parametrize("objective", ["-loss", "loss"])
def test_certified_bounds_are_those_of_the_raw_data(objective, tmp_path):
    kernel = matern(0.4, 0.6, 1.0, 1.1, 1.2)
    setting = Certified(kernel, noise_std=0.1, norm_bound=40.0)
    client = started(MIXED, objective=objective, setting=setting)
    points = run(client, 4, tuning)
    assert all(set(p) == {"lr", "k", "c", "one"} and type(p["k"]) is int for p in points)
    interval = kbo_ax.interval(client, MIXED_POINT)
    assert interval == by_hand(client, kernel)
    assert interval[0] < tuning(**MIXED_POINT) < interval[2]
    assert kbo_ax.guarantee(client).startswith("certified: the interval holds")
    loaded = again(client, tmp_path)
    assert kbo_ax.interval(loaded, MIXED_POINT) == interval
    # A value far from the others is not cut.
    number = loaded.attach_trial({**MIXED_POINT, "one": "only"})
    loaded.complete_trial(number, {"loss": -3.0})
    interval = kbo_ax.interval(loaded, MIXED_POINT)
    assert interval == by_hand(loaded, kernel)
    assert interval[1] < -2
    assert "attached, perhaps with values that were known before: 1" in kbo_ax.guarantee(loaded)


def test_hypotheses_and_kernels_are_stored_to_the_last_digit(tmp_path):
    kernels = [
        matern(0.2, 0.7),
        AdditiveKernel(RBFKernel(active_dims=[0]), MaternKernel(nu=0.5, active_dims=[1])),
        ScaleKernel(RBFKernel(active_dims=[0]) * MaternKernel(nu=1.5, ard_num_dims=2)),
    ]
    listed = [Hypothesis(kernel, 1.0, 900.0) for kernel in kernels]
    of_memory = [Hypothesis(matern(0.5), 0.5, norm) for norm in (60.0, 90.0)]
    limit = Constraint("memory", upper=8.0, kernel=of_memory)
    client = started(limits=["memory <= 8"], setting=Certified(listed), constraints=[limit])
    run(client, 3, outcomes)
    assert "1 - 0.05" in kbo_ax.guarantee(client)
    assert "another one of 3 hypotheses" in kbo_ax.guarantee(client)
    assert kbo_ax.feasibility(client).certified
    loaded = again(client, tmp_path)
    for outcome in ("loss", "memory"):
        stored = kbo_ax.interval(loaded, POINT, outcome)
        assert stored == kbo_ax.interval(client, POINT, outcome)
    assert loaded.get_next_trials(1) == client.get_next_trials(1)


def same_value(client: Client) -> None:
    client.complete_trial(0, {"loss": client._experiment.data.df["mean"][0]})


def other_metric(client: Client) -> None:
    for value in (1.0, 2.0):
        client.attach_data(0, {"time": value})
        kbo_ax.interval(client, POINT)


def standard_error(client: Client) -> None:
    client.attach_data(1, {"loss": (client._experiment.data.df["mean"][1], 0.1)})


def after_its_bound_was_read(client: Client) -> None:
    kbo_ax.interval(client, POINT)
    client.attach_data(2, {"loss": 0.5})


def there_and_back(client: Client) -> None:
    value = client._experiment.data.df["mean"][0]
    client.attach_data(0, {"loss": 0.5})
    kbo_ax.interval(client, POINT)
    client.attach_data(0, {"loss": value})


@pytest.mark.parametrize(
    ("change", "is_certified"),
    [
        (same_value, True),
        (other_metric, True),
        (standard_error, False),
        (after_its_bound_was_read, False),
        (there_and_back, False),
    ],
)
def test_a_value_that_is_overwritten_removes_the_guarantee(change, is_certified, tmp_path):
    client = started(setting=rough())
    run(client, 3, branin)
    change(client)
    for _ in range(3):
        guarantee = kbo_ax.guarantee(client)
        assert guarantee.startswith("certified" if is_certified else "not certified")
        assert ("trials with values that were overwritten" in guarantee) != is_certified
        client = again(client, tmp_path)
        run(client, 1, branin)


def test_a_value_that_a_complete_trial_lacks_at_first_removes_the_guarantee():
    client = started(setting=rough())
    run(client, 1, branin)
    client.get_next_trials(1)
    client.complete_trial(1)
    run(client, 1, branin)
    client.attach_data(1, {"loss": 0.5})
    assert "trials with values that were overwritten" in kbo_ax.guarantee(client)


@pytest.mark.parametrize("scale", [1.0, 1e-7, 1e-14])
def test_a_value_that_storage_rounds_is_not_overwritten(scale, tmp_path):
    client = started(setting=rough())
    run(client, 4, lambda a, b: (branin(a, b) * scale, scale / 3))
    for _ in range(2):
        assert kbo_ax.guarantee(client).startswith("certified")
        client = again(client, tmp_path)
        run(client, 1, lambda a, b: (branin(a, b) * scale, scale / 3))


def test_what_has_no_answer_is_refused():
    client = started(MIXED, setting=Certified(matern(0.7), noise_std=0.1, norm_bound=6.0))
    with pytest.raises(InvalidInput, match="no bound yet"):
        kbo_ax.interval(client, MIXED_POINT)
    assert kbo_ax.guarantee(client).startswith("none")
    run(client, 1, tuning)
    with pytest.raises(InvalidInput, match="parameter 'k': expected a number in"):
        kbo_ax.interval(client, {**MIXED_POINT, "k": 9})
    online = started(setting=rough(None, noise_upper=0.5), method="dmm-ucb-adaptive")
    with pytest.raises(InvalidInput, match="standard error of 7"):
        run(online, 2, branin, sem=7.0)
    with pytest.raises(RefutedAssumptions):
        run(started(setting=rough(0.1, 1.0)), 3, branin)


# Standard errors


def test_standard_errors_say_how_noise_differs_and_zeros_that_there_is_none():
    for errors, words in (
        ([0.5, None, 0.5, 0.5], "of a value with the error bar 0.5, fitted"),
        ([0.0] * 4, "none"),
    ):
        client = started(setting=Practical(n_initial=3))
        for sem in errors:
            run(client, 1, branin, sem)
        assert kbo_ax.guarantee(client).startswith("practical, not certified")
        assert words in learned(client).optimizer.insight.surrogate().account()["noise"]


def test_a_diverged_run_does_not_wipe_out_the_others():
    values = [0.51, 0.62, 0.4, 1e14]
    stored = rounded(dict(enumerate([*values, 0.0])))
    assert [stored[i] for i in range(4)] == pytest.approx(values, rel=1e-9)


# Search spaces that are changed


def replace(client: Client, parameter) -> None:
    """Change a parameter of the search space, and keep its others and its constraints."""
    space = client._experiment.search_space
    parameters = {**space.parameters, parameter.name: parameter}
    client._experiment.search_space = SearchSpace(
        list(parameters.values()), space.parameter_constraints
    )


def letters(*values: str) -> ChoiceParameter:
    text = ParameterType.STRING
    return ChoiceParameter("c", text, list(values), is_ordered=False, sort_values=False)


def test_a_search_space_may_be_changed_between_trials_and_all_of_them_are_data(caplog, tmp_path):
    def function(c, k, x=0.5):
        return (k - 3) ** 2 / 9 + (c != "z") + x

    client = started([INT, LETTER])
    run(client, 5, function)
    n_trials = 5
    for new in (
        RangeParameter("k", ParameterType.INT, 2, 3),
        RangeParameter("k", ParameterType.INT, 1, 20, log_scale=True),
        FixedParameter("k", ParameterType.INT, 9),
        letters("a", "b"),
        letters("a", "b", "z", "e"),
        RangeParameter("x", ParameterType.FLOAT, 0.0, 1.0, backfill_value=0.5),
        FixedParameter("c", ParameterType.STRING, "new"),
    ):
        if new.name == "x":
            client = again(client, tmp_path)
            client._experiment.add_parameters_to_search_space([new])
        else:
            replace(client, new)
        (point,) = run(client, 1, function)
        n_trials += 1
        assert new.validate(point[new.name])
        assert len(learned(client).optimizer.completed()) == n_trials
        assert kbo_ax.interval(client, point) is not None
        if new.name != "x":
            assert new.validate(kbo_ax.recommended(client)[1][new.name])
    audited = str(audit(client))
    assert f"{n_trials} trials" in audited
    assert "left out" not in audited + caplog.text


def test_ranges_that_are_narrowed_keep_constraints_and_trials_that_end_later(tmp_path):
    client = started(relations=["a + b <= 12"])
    run(client, 4, branin)
    pending = client.get_next_trials(max_trials=2)
    replace(client, RangeParameter("a", ParameterType.FLOAT, 2.0, 4.0))
    client = again(client, tmp_path)
    points = run(client, 1, branin)
    for number, point in pending.items():
        client.complete_trial(number, {"loss": branin(**point)})
    points += run(client, 1, branin)
    assert all(2 <= point["a"] <= 4 and point["a"] + point["b"] <= 12 for point in points)
    assert len(learned(client).optimizer.completed()) == 8
    replace(client, RangeParameter("a", ParameterType.FLOAT, 9.5, 9.6))
    for call in (kbo_ax.recommended, audit):
        with pytest.raises(InvalidInput, match=r"no (complete )?trial .*inside the search space"):
            call(client)


def test_trials_outside_a_changed_search_space_are_named_once_where_they_cannot_be_used(caplog):
    client = started(setting=rough())
    run(client, 3, branin)
    replace(client, RangeParameter("a", ParameterType.FLOAT, 2.0, 4.0))
    run(client, 2, branin)
    assert caplog.text.count("left out of the model") == 1


# Contexts


def test_fixed_features_are_a_context_and_batches_are_trials_of_their_own():
    client = started([FLOAT, INT], setting=Practical(n_initial=3))
    run(client, 4, lambda lr, k: (math.log10(lr) + 2) ** 2 + k)
    fixed = ObservationFeatures(parameters={"k": 5})
    strategy = client._generation_strategy
    (generated,) = strategy.gen(client._experiment, n=2, fixed_features=fixed)[0]
    assert [arm.parameters["k"] for arm in generated.arms] == [5, 5]
    assert len({arm.parameters["lr"] for arm in generated.arms}) == 2


# Strategies of one's own, and storage


def test_a_strategy_of_ones_own_is_stored_with_its_kernel(tmp_path):
    options = {"kernel": matern(0.3, 0.4), "ridge": 0.01}
    config = ModelConfig(botorch_model_class=KernelRidgeGP, model_options=options)
    optimizer = {"optimizer_kwargs": {"num_restarts": 2, "raw_samples": 32}}
    own = GeneratorSpec(
        Generators.BOTORCH_MODULAR,
        generator_kwargs={
            "surrogate_spec": SurrogateSpec(model_configs=[config]),
            "botorch_acqf_class": acquisition.DMMUCB,
            "botorch_acqf_options": {"noise_std": 5.0, "norm_bound": 600.0, "delta": 0.1},
        },
        generator_gen_kwargs={"model_gen_options": optimizer},
    )
    client = started()
    run(client, 2, branin, 0.5)
    node = GenerationNode(name="own", generator_specs=[own])
    client.set_generation_strategy(GenerationStrategy(nodes=[node]))
    run(client, 1, branin, 0.5)
    loaded = again(client, tmp_path)
    run(loaded, 1, branin)
    kernel = loaded._generation_strategy.adapter.botorch_model.covar_module
    assert kernel.base_kernel.lengthscale.tolist() == [pytest.approx([0.3, 0.4])]


# What is refused


KNOWN = [Constraint("acc", lower=1.0, noise_std=0.1, norm_bound=3.0)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"setting": Certified(PeriodicKernel(), 0.1, norm_bound=1.0)}, "cannot store .* Periodic"),
        ({"constraints": [Constraint("m", upper=1.0)]}, "configure_optimization"),
        ({"objective": "2*acc - loss"}, "objectives that are single outcomes"),
        ({"objective": "-objective, acc"}, "an objective cannot be called 'objective'"),
        ({"objective": "-loss, acc", "method": "random"}, "no bounds"),
        ({"limits": ["acc >= 0.9 * baseline"]}, "single outcomes"),
        (
            {"limits": ["acc >= 2"], "setting": rough(), "constraints": KNOWN},
            "got .*acc >= 1.* for .*acc >= 2",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_a_trial_is_paid_for(options, words):
    with pytest.raises(InvalidInput, match=words):
        started([FLOAT], **options).get_next_trials(1)


# Outcome constraints


def test_limits_are_kept_and_a_constrained_run_resumes_with_its_pending_trials(tmp_path):
    client = started(limits=["memory <= 8"])
    points = run(client, 9, outcomes)
    number, point = kbo_ax.recommended(client)
    assert point == points[number]
    assert memory(**point) <= 8
    assert branin(**point) < 4
    assert sum(memory(**later) < 8.5 for later in points[5:]) >= 3
    feasibility = kbo_ax.feasibility(client)
    assert feasibility.probability > 0.5
    assert not feasibility.certified
    # Its trials showed that there is no noise.
    assert feasibility.bounds["memory"] == pytest.approx([memory(**point)] * 3)
    with pytest.raises(InvalidInput, match="outcome must be one of 'loss', 'memory'"):
        kbo_ax.interval(client, point, "speed")
    loaded = again(client, tmp_path)
    pending = client.get_next_trials(2)
    assert loaded.get_next_trials(2) == pending
    assert least_distance(list(pending.values())) > 1e-2
    assert kbo_ax.recommended(loaded) == (number, point)


# Several objectives


def trade_off(a: float, b: float) -> dict[str, float]:
    """The front is where b = 0: square laws of the error and of the throughput, in x from 0 to 1."""
    x = (a + 5) / 15
    away = b / 15
    throughput = 100 * (1 - (1 - x) ** 2 - away)
    return {"error": x**2 + away, "throughput": throughput, "memory": x + away}


def test_the_front_of_two_objectives_lies_within_thresholds_and_limits(tmp_path):
    limits = ["error <= 0.5", "throughput >= 40", "memory <= 0.65"]
    client = started(objective="-error, throughput", limits=limits)
    points = run(client, 10, trade_off)
    front = kbo_ax.front(client)
    assert front.reference == {"error": 0.5, "throughput": 40.0}
    assert len(front.points) > 2
    for point in front.points:
        assert point.trial.params == points[point.trial.number]
        values = trade_off(**point.trial.params)
        assert values.pop("memory") <= 0.65
        for name, value in values.items():
            lower, _, upper = point.values[name]
            assert lower - 1e-6 <= value <= upper + 1e-6
    index, recommended = kbo_ax.recommended(client)
    assert index == front.balanced.trial.number
    assert kbo_ax.feasibility(client).kept
    with pytest.raises(InvalidInput, match="outcome must be one of 'error', 'throughput'"):
        kbo_ax.interval(client, recommended)  # the first one is no answer to a question about all
    for text in ("not certified", "error: ", "throughput: "):
        assert text in kbo_ax.guarantee(client)
    on_front = {point.trial.number for point in front.points}
    observed = {entry[2] for entry in client.get_pareto_frontier(use_model_predictions=False)}
    assert observed & on_front
    assert client.get_pareto_frontier()  # by the model of Ax
    audited = audit(client)
    assert {audited.history.names[p.trial.number] for p in audited.result.front.points} == on_front
    assert "Ax has" in str(audited)
    assert kbo_ax.front(again(client, tmp_path)).hypervolume == front.hypervolume
