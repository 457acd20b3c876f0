"""Attacks on workers: what objectives leave behind, what they print, how they end."""

import sys

import numpy as np
import pytest
import torch

import kbo
from kbo.workers.here import Here

BOX = [(0.0, 1.0)] * 2
SETTINGS = {
    "gradient mode": (torch.is_grad_enabled, lambda: torch.set_grad_enabled(False)),
    "inference mode": (torch.is_inference_mode_enabled, lambda: _infer(True)),
    "default dtype": (torch.get_default_dtype, lambda: torch.set_default_dtype(torch.float16)),
    "default device": (torch.get_default_device, lambda: torch.set_default_device("meta")),
    "threads": (torch.get_num_threads, lambda: torch.set_num_threads(torch.get_num_threads() + 1)),
    "errors of numpy": (np.geterr, lambda: np.seterr(all="raise")),
}
ENDS = {"returns": lambda: None, "raises": lambda: 1 / 0, "is interrupted": lambda: _interrupt()}


def _interrupt():
    raise KeyboardInterrupt


_guards = []


def _infer(mode):
    _guards.append(torch.inference_mode(mode))
    _guards[-1].__enter__()


def bowl(x):
    return (x[0] - 0.3) ** 2 + (x[1] - 0.6) ** 2


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_that_an_objective_leaves_behind_are_restored(setting, end):
    read, change = SETTINGS[setting]

    def objective(x):
        change()
        ENDS[end]()
        return bowl(x)

    before = read()
    kept = []
    try:
        result = kbo.minimize(objective, BOX, 7, max_failures=9, on_trial=lambda *_: kept.append(read() == before))
        after = read()
    finally:
        _reset()
    expected = {"returns": "complete", "raises": "failed", "is interrupted": "pending"}[end]
    assert {trial.status for trial in result.trials} == {expected}
    assert all(kept)
    assert after == before


def _reset():
    """Undo what a test may have left, so that only this one fails."""
    _infer(False)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_num_threads(THREADS)
    np.seterr(**ERRORS)


THREADS, ERRORS = torch.get_num_threads(), np.geterr()


def test_settings_that_threads_leave_behind_are_restored_at_the_end():
    def objective(x):
        torch.set_default_dtype(torch.float64)
        return bowl(x)

    try:
        kbo.minimize(objective, BOX, 3, workers=kbo.Threads(2))
        assert torch.get_default_dtype() == torch.float32
    finally:
        _reset()


def interrupted_in(name, call):
    """Interrupt a call before the first line of PyTorch's functions of a name; return whether it was."""

    def trace(frame, event, arg):
        code = frame.f_code
        if code.co_name != name or not code.co_filename.endswith("grad_mode.py"):
            return None
        sys.settrace(None)
        raise KeyboardInterrupt

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize("engine", ["optimizer", Here()])
def test_an_interrupt_inside_no_grad_leaves_gradients_on(engine):
    def objective(x):
        with torch.no_grad():
            return bowl(x)

    optimizer = kbo.Optimizer(BOX)
    for _ in range(6):
        params = optimizer.ask()
        optimizer.tell(params, bowl(params))
    run = optimizer.ask if engine == "optimizer" else lambda: kbo.minimize(objective, BOX, 1, workers=engine)
    try:
        interrupted = interrupted_in("__exit__", run)
        assert interrupted or engine != "optimizer"  # minimize itself ends with what it has
        assert torch.is_grad_enabled()
    finally:
        _reset()
