"""Error bars that come with values: how they weigh, and where they come from."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

import kbo
from kbo.errors import InvalidInput
from kbo.optimize.surrogates.fitting import Loss


def kernel():
    made = RBFKernel().double()
    made.lengthscale = 0.3
    return made


def told(setting, values):
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, setting=setting)
    for x, value in values:
        optimizer.tell({"x": x}, value)
    return optimizer


POINTS = [(0.1, 1.0), (0.9, 0.7), (0.5, 0.4), (0.3, 0.2), (0.7, 0.5), (0.2, 0.6), (0.8, 0.3)]


@pytest.mark.parametrize(
    "setting",
    [
        kbo.Certified(kernel(), 0.2, 2.0, completion_independent_of_noise=True),
        kbo.Practical(noise_std=0.2),
    ],
)
def test_a_mean_with_its_standard_error_is_its_repetitions(setting):
    """Four values at a point, with the noise given, say as much as their mean with half of the noise as its error."""
    four = [0.35, 0.45, 0.3, 0.5]
    single = told(setting, [*POINTS, *((0.4, y) for y in four)])
    mean = told(setting, [*POINTS, (0.4, (sum(four) / 4, {"sem": 0.1}))])
    X = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(1)
    one, other = (optimizer.insight.surrogate().posterior for optimizer in (single, mean))
    if setting.certified:
        assert all(
            torch.allclose(*pair, atol=1e-10)
            for pair in zip(one.predict(X), other.predict(X), strict=True)
        )
        assert "weight" in mean.insight.surrogate().guarantee().text
    locations, counts = other.locations
    assert float(counts[locations[:, 0] == 0.4]) == pytest.approx(4.0)


def test_a_certified_error_bar_of_none_or_nearly_none_is_a_small_one():
    setting = kbo.Certified(kernel(), 0.2, 2.0)
    zero, small = (told(setting, [*POINTS, (0.4, (0.4, {"sem": sem}))]) for sem in (0.0, 1e-4))
    assert zero.interval({"x": 0.4}) == small.interval({"x": 0.4})
    assert math.isfinite(zero.gap().value)


def test_methods_that_bound_the_noise_take_no_error_bars():
    setting = kbo.Certified(kernel(), None, 2.0)
    values = [(x, (y, {"sem": 0.01})) for x, y in POINTS]
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, setting=setting, method="dmm-ucb-adaptive")
    for x, value in values:
        optimizer.tell({"x": x}, value)
    assert not optimizer.insight.surrogate().posterior.provenance.weighted


def test_the_density_with_relative_noise_is_that_of_the_dense_formula():
    generator = torch.Generator().manual_seed(0)
    X, y = (
        torch.rand(7, 2, generator=generator).double(),
        torch.randn(7, generator=generator).double(),
    )
    ratios, errors = (
        torch.rand(7, generator=generator).double() + 0.2,
        torch.rand(7, generator=generator).double(),
    )
    loss, theta = (
        Loss(X, y, errors=errors, ratios=ratios, with_bowl=False),
        np.array([0.1, -0.4, -1.2]),
    )
    numeric = [(loss(theta + h)[0] - loss(theta - h)[0]) / 2e-5 for h in 1e-5 * np.eye(3)]
    assert loss(theta)[1] == pytest.approx(numeric, abs=1e-5)
    decay = math.sqrt(5) * np.linalg.norm(
        (X[:, None] - X[None]).numpy() / np.exp(theta[:2]), axis=-1
    )
    K = (1 + decay + decay**2 / 3) * np.exp(-decay) + np.diag(
        np.exp(theta[2]) * ratios.numpy() + errors.numpy() ** 2
    )
    inverse, ones = np.linalg.inv(K), np.ones(7)
    constant = ones @ inverse @ y.numpy() / (ones @ inverse @ ones)
    rest = y.numpy() - constant
    likelihood = -(rest @ inverse @ rest + np.linalg.slogdet(K)[1] + 7 * math.log(2 * math.pi)) / 2
    away = theta - loss.means
    assert loss(theta)[0] == pytest.approx(away @ loss.precision @ away / 2 - likelihood)


def test_a_lucky_value_with_a_large_error_bar_is_not_recommended():
    values = [(x, ((x - 0.4) ** 2, {"sem": 0.01})) for x in np.linspace(0, 1, 12).tolist()]
    optimizer = told(None, [*values, (0.95, (-0.5, {"sem": 2.0}))])
    assert abs(optimizer.recommended().params["x"] - 0.4) < 0.1
    assert "error bar" in optimizer.insight.description().account()["noise"]
    assert optimizer.insight.surrogate().noiseless is False
    believed = told(None, [*values, (0.95, -0.5)]).interval({"x": 0.95})
    assert believed[1] < optimizer.interval({"x": 0.95})[1]


@pytest.mark.parametrize("sem", [-0.1, math.inf, 1e200, "small"])
def test_what_is_no_error_bar_is_a_failure(sem):
    optimizer = told(None, [(0.5, (1.0, {"sem": sem}))])
    assert "standard error" in optimizer.trials[0].failure


def test_an_unknown_error_bar_is_none_and_a_huge_one_says_nothing():
    for sem in (None, math.nan):
        assert told(None, [(0.5, (1.0, {"sem": sem}))]).trials[0].measured == {}
    huge = [(0.6, (5.0, {"sem": 1e100}))]
    plain, certified = (
        told(None, [*POINTS, *huge]),
        told(kbo.Certified(kernel(), 0.2, 2.0), [*POINTS, *huge]),
    )
    assert math.isfinite(plain.interval({"x": 0.6})[1])
    assert certified.interval({"x": 0.6}) == told(
        kbo.Certified(kernel(), 0.2, 2.0), POINTS
    ).interval({"x": 0.6})


def test_a_constraint_has_another_name():
    with pytest.raises(InvalidInput, match="standard error"):
        kbo.Constraint("sem", upper=1.0)


def test_runs_with_error_bars_continue_from_their_journal(tmp_path):
    rng = np.random.default_rng(0)

    def objective(params):
        return (params["x"] - 0.3) ** 2 + 0.1 * rng.normal(), {"sem": 0.02 + 0.2 * params["x"]}

    kbo.minimize(objective, {"x": (0.0, 1.0)}, 12, journal=tmp_path / "run.jsonl")
    one, other = (kbo.Optimizer({"x": (0.0, 1.0)}, journal=None) for _ in range(2))
    one.load(tmp_path / "run.jsonl")
    for trial in one.trials:
        other.tell({"x": trial.params["x"]}, (trial.value, trial.measured))
    assert one.suggest() == other.suggest()
    frame = kbo.Optimizer({"x": (0.0, 1.0)})
    rows = [{"x": t.params["x"], "value": t.value, "sem": t.measured["sem"]} for t in one.trials]
    for row in rows:
        frame.run.add({"x": row["x"]}, (row["value"], {"sem": row["sem"]}))
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(rows)
    known = kbo.minimize(objective, {"x": (0.0, 1.0)}, 1, evaluated=table).trials[:12]
    assert [trial.measured for trial in known] == [trial.measured for trial in frame.trials]
    assert kbo.audit(table).result.trials[3].measured == {"sem": rows[3]["sem"]}


def test_error_bars_of_optuna_and_ax_count_for_each_trial():
    optuna = pytest.importorskip("optuna")
    study = optuna.create_study()
    for x, y in POINTS:
        attributes = (
            {"user_attrs": {"sem": 0.1 + x}} if x < 0.5 else {"user_attrs": {"sem": math.nan}}
        )
        distributions = {"x": optuna.distributions.FloatDistribution(0, 1)}
        study.add_trial(
            optuna.trial.create_trial(
                value=y, params={"x": x}, distributions=distributions, **attributes
            )
        )
    found = [trial.measured for trial in kbo.audit(study).result.trials]
    assert found == [{"sem": 0.1 + x} if x < 0.5 else {} for x, _ in POINTS]
    api = pytest.importorskip("ax.api.client")
    from ax.api.configs import RangeParameterConfig

    client = api.Client()
    client.configure_experiment(
        [RangeParameterConfig(name="x", parameter_type="float", bounds=(0.0, 1.0))]
    )
    client.configure_optimization(objective="-loss")
    for i, (x, y) in enumerate(POINTS):
        index = client.attach_trial({"x": x})
        client.complete_trial(index, raw_data={"loss": (y, 0.1 * (1 + i)) if i else y})
    errors = [trial.measured.get("sem") for trial in kbo.audit(client).result.trials]
    assert errors == [None, *(pytest.approx(0.1 * (1 + i)) for i in range(1, len(POINTS)))]
