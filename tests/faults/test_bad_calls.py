"""Public functions with one bad argument: they work, or refuse it by name."""

import importlib
import inspect

import numpy as np
import pytest

from tests.faults import REPEATS, bad_calls

MODULES = "acquisition confidence confidence.chaining models bandit regression"
LEFT_OUT = """
AllRidges PosteriorAt Audit Bandit Confirmation Confidence Dictionary Error Metric NoiseLevel Posterior PosteriorModel
RidgeSchedule Rule StreamingGP SubGaussian View WidthConfidence Candidate Certificate Columns Function CandidateGap
Provenance Limit LeastSquares LowRankPosteriorAt Moments ParetoSet PriorAt Facts NamedMethod Result Rounding
RunningTrial SamplePath AdaptiveSelfNormalized ThompsonSampling UniformChoice UpperBound clamped names register
warn_below_precision
"""
"""Base classes; what only holds values; and what takes no arguments or those of kbo alone."""


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # some texts are taken for paths of files to write


def faults(calls):
    verdicts = {case: bad_calls.verdict(*case) for case in calls}
    return [
        f"{call.name}({argument}={bad}): {verdict}"
        for (call, argument, bad), verdict in verdicts.items()
        if verdict not in ("works", "refused")
    ]


def test_the_table_has_every_public_function():
    listed = set(LEFT_OUT.split())
    for call in bad_calls.calls():
        listed.update(call.name.partition(", ")[0].split("."))
    for name in ["kbo", *(f"kbo.{module}" for module in MODULES.split())]:
        module = importlib.import_module(name)
        public = {name: getattr(module, name) for name in module.__all__}
        for name, value in public.items():
            if callable(value) and not (
                inspect.isclass(value) and issubclass(value, BaseException)
            ):
                assert name in listed, f"{name} lacks a line in bad_calls.py"


def test_an_object_for_any_argument_is_refused_by_name_or_works():
    calls = bad_calls.calls()
    assert faults((call, argument, "object") for call in calls for argument in call.values) == []


def test_numbers_of_numpy_work_as_those_of_python():
    kinds = {bool: np.bool_, int: np.int64, float: np.longdouble}  # none is one of Python
    wrong = []
    for call in bad_calls.calls():
        for argument, value in call.values.items():
            if type(value) not in kinds or argument == "observation_noise":  # also a tensor
                continue
            given = call.arguments() | {argument: kinds[type(value)](value)}
            try:
                call.function(**given)
            except Exception as error:
                wrong.append(f"{call.name}({argument}={value}): {error!r}")
    assert wrong == []


@pytest.mark.faults
def test_a_bad_argument_is_refused_by_name_or_works():
    """Some of the calls, at random; ``python -m tests.faults.bad_calls 64`` makes all."""
    assert faults(bad_calls.cases(len(bad_calls.BAD), most=3000 * REPEATS)) == []


@pytest.mark.faults
def test_the_valid_calls_are_valid():
    """Otherwise a call that is refused for another reason would count as refused for the bad argument."""
    for call in bad_calls.calls():
        if call.values.keys() & {"path", "client"}:  # whose valid value is a bad one
            continue
        assert bad_calls.finite(call.function(**call.arguments())), call.name
