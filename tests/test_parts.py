"""Functions of the caller in place of parts of the practical setting."""

import pickle
import re
from dataclasses import replace

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

import kbo
from kbo import report
from kbo.optimize import Fitted, fit_values
from kbo.optimize.targets import Targets
from kbo.report.record import Record

BOUNDS = [(0.0, 1.0), (0.0, 1.0)]


def bowl(x):
    return (x[0] - 0.3) ** 2 + x[1]


def smooth(X, y, noise_std):
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.5
    return replace(fit_values(X, y, noise_std), kernel=kernel)


def expected_improvement(confidence, posterior, search):
    best = posterior.predict(search.space.features(search.starts))[0].max()
    normal = torch.distributions.Normal(0.0, 1.0)

    def score(features):
        mean, variance = posterior.predict(features)
        z = (mean - best) / variance.sqrt()
        return variance.sqrt() * (z * normal.cdf(z) + normal.log_prob(z).exp())

    return search.argmax(score)


def latest(posterior, features, values):
    return torch.arange(len(values))


REPLACED = kbo.Practical(model=smooth, search=expected_improvement, recommend=latest)


def run(setting, n=9, **options):
    optimizer = kbo.Optimizer(BOUNDS, setting=setting, **options)
    for _ in range(n):
        x = optimizer.ask()
        optimizer.tell(x, bowl(x))
    return optimizer


def test_each_part_is_the_function_that_was_given():
    optimizer = run(REPLACED)
    assert isinstance(optimizer.belief().fitted.kernel, RBFKernel)
    assert optimizer.recommended().number == 8
    plain = run(kbo.Practical(model=smooth, recommend=latest))
    assert plain.ask() != optimizer.ask()
    assert optimizer.ask(context={1: 0.25})[1] == 0.25
    choices = [[0.1, 0.9], [0.3, 0.2], [0.9, 0.1]]
    assert optimizer.ask(choices=choices) in choices


def test_functions_are_named_in_journals_and_texts_and_survive_pickling(tmp_path):
    path, other = tmp_path / "run.jsonl", kbo.Practical(model=smooth, search=expected_improvement)
    run(REPLACED, 3, journal=path).close()
    assert run(REPLACED, 3, journal=path).trials[3].params == run(REPLACED, 6).trials[3].params
    with pytest.raises(kbo.JournalError, match=re.escape("recommend: only in the journal: 'tests.test_parts.latest'")):
        kbo.Optimizer(BOUNDS, setting=other, journal=path)
    assert "search=tests.test_parts.expected_improvement" in repr(REPLACED)
    assert pickle.loads(pickle.dumps(REPLACED)) == REPLACED
    assert "pass its optimiser" in Record.of(path).obstacle
    page = report.write(run(REPLACED, 8), tmp_path / "run.html").read_text("utf-8")
    assert "model=tests.test_parts.smooth, search=tests.test_parts.expected_improvement" in page


@pytest.mark.parametrize(
    ("part", "found", "expected"),
    [
        ("model", None, "must return a kbo.optimize.Fitted, for example"),
        (
            "model",
            Fitted(MaternKernel(ard_num_dims=3).double(), 0.1, Targets()),
            "must return a kernel on the 2 features",
        ),
        ("search", torch.tensor([0.5]), "must return a point [2] of the unit cube"),
        ("search", torch.tensor([0.5, torch.nan]), "must return a point [2] of the unit cube"),
        ("search", [0.5, 0.5], "must return a point [2] of the unit cube"),
        ("recommend", torch.zeros(3), "must return a finite number for each trial, a tensor [6]"),
        ("recommend", torch.full((6,), torch.nan), "must return a finite number for each trial, a tensor [6]"),
    ],
)
def test_an_unusable_answer_is_refused_by_the_name_of_the_part(part, found, expected):
    def own(*arguments):
        return found

    optimizer = run(kbo.Practical(noise_std=0, **{part: own}), 6)
    use = optimizer.recommended if part == "recommend" else optimizer.suggest
    with pytest.raises(kbo.InvalidInput, match=rf"{part} \(tests\.test_parts\..*{re.escape(expected)}"):
        use()


def test_a_search_among_choices_returns_one_of_them():
    def own(confidence, posterior, search):
        return torch.full((2,), 0.5, dtype=torch.float64)

    with pytest.raises(kbo.InvalidInput, match=re.escape("one of the points search.restriction.choices")):
        run(kbo.Practical(noise_std=0, search=own), 6).ask(choices=[[0.1, 0.9], [0.3, 0.2]])


@pytest.mark.parametrize("part", ["model", "search", "recommend"])
@pytest.mark.parametrize("value", [3, "ei", lambda *a: None, object()])
def test_a_part_is_a_function_with_a_name(part, value):
    with pytest.raises(kbo.InvalidInput, match=f"{part} must be a function with a name"):
        kbo.Practical(**{part: value})


@pytest.mark.parametrize("bad", [{"kernel": None}, {"noise_std": 0.0}, {"targets": None}])
def test_what_was_fitted_is_checked(bad):
    with pytest.raises(kbo.InvalidInput, match=f"{next(iter(bad))} of Fitted must be"):
        Fitted(**{"kernel": MaternKernel(), "noise_std": 0.1, "targets": Targets(), **bad})


def test_parts_are_refused_where_they_would_have_no_effect():
    with pytest.raises(kbo.InvalidInput, match="no model: leave out model, search, recommend"):
        kbo.Optimizer(BOUNDS, setting=REPLACED, method="random")
    ax = pytest.importorskip("kbo.integrations.ax")
    with pytest.raises(kbo.InvalidInput, match="leave out model, search, recommend of Practical"):
        ax.generation_strategy(setting=REPLACED)
