"""Public functions with one bad argument: they work, or refuse it by name."""

import importlib
import inspect

import pytest

from tests.faults import REPEATS, bad_calls

MODULES = [
    "kbo",
    *(
        f"kbo.{name}"
        for name in (
            "acquisition",
            "confidence",
            "confidence.chaining",
            "models",
            "bandit",
            "regression",
        )
    ),
]
LEFT_OUT = """
AllRidges PosteriorAt Audit Bandit Confirmation Confidence Dictionary Error Metric NoiseLevel Posterior PosteriorModel
RidgeSchedule Rule
StreamingGP SubGaussian View WidthConfidence Candidate Certificate Columns Function Gap Provenance Limit
LowRankPosteriorAt Moments ParetoSet PriorAt Facts NamedMethod Result Rounding RunningTrial SamplePath
AdaptiveSelfNormalized ThompsonSampling UniformChoice UpperBound clamped names register warn_below_precision
"""
"""Base classes; what only holds values; and what takes no arguments or those of kbo alone."""


def faults(calls):
    found = [
        (f"{call.name}({argument}={bad})", bad_calls.verdict(call, argument, bad))
        for call, argument, bad in calls
    ]
    return [f"{name}: {verdict}" for name, verdict in found if verdict not in ("works", "refused")]


def test_the_table_has_every_public_function():
    there = {word for call in bad_calls.calls() for word in call.name.split(".")} | set(
        LEFT_OUT.split()
    )
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            value = getattr(module, name)
            error = inspect.isclass(value) and issubclass(value, BaseException)
            assert not callable(value) or error or name in there, (
                f"{module.__name__}.{name} lacks a line in bad_calls.py"
            )


def test_an_object_for_any_argument_is_refused_by_name_or_works(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert not faults(
        (call, argument, "object") for call in bad_calls.calls() for argument in call.values
    )


@pytest.mark.faults
def test_a_bad_argument_is_refused_by_name_or_works(monkeypatch, tmp_path):
    """Some of the calls, at random; ``python -m tests.faults.bad_calls 64`` makes all."""
    monkeypatch.chdir(tmp_path)  # some texts are taken for paths of files to write
    assert not faults(bad_calls.cases(len(bad_calls.BAD), seed=0, most=3000 * REPEATS))


@pytest.mark.faults
def test_the_valid_calls_are_valid():
    """Otherwise a call that is refused for another reason would count as refused for the bad argument."""
    for call in bad_calls.calls():
        if call.values.keys() & {"path", "client"}:  # whose valid value is a bad one
            continue
        assert bad_calls.finite(call.function(**call.arguments())), call.name
