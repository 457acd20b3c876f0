"""One posterior in several threads: every answer is that of some moment between two updates."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading

import pytest
import torch

from kbo import KernelRidge, NystromRidge
from kbo.confidence import MartingaleMixture
from kbo.regression import GreedyDictionary, LeverageResampling, track
from tests.laws.states import rbf, unit_square

X, Z = unit_square(30, 0), unit_square(30, 1)  # fewer than 32: no error norm that depends on when it was read
Y = X.sin().sum(-1)
BOUND = MartingaleMixture(0.3, 20.0, 0.1, "dmm")

MAKE = {
    "exact": lambda: KernelRidge(rbf(), 0.1),
    "tracked": lambda: track(KernelRidge(rbf(), 0.1), Z),
    "greedy": lambda: NystromRidge(rbf(), 0.1, GreedyDictionary()),
    "resampled": lambda: NystromRidge(rbf(), 0.1, LeverageResampling(2.0)),
}

READ = {
    "predict": lambda state: state.predict(Z)[0],
    "ridges": lambda state: state.predict(Z, [0.05, 0.5])[1].flatten(),
    "bound": lambda state: torch.cat(BOUND.interval(state, Z)),
    "error": lambda state: state.residual_norm().reshape(1),
    "fork": lambda state: state.fork().predict(Z)[0],
}


@pytest.fixture(autouse=True)
def switched_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("kind", MAKE)
def test_answers_during_updates_are_those_of_a_moment_between_them(kind, read):
    moments, serial, state = [], MAKE[kind](), MAKE[kind]()
    for i in range(len(X)):
        serial.update(X[i : i + 1], Y[i : i + 1])
        moments.append(READ[read](serial).clone())
    state.update(X[:1], Y[:1])
    found, raised, done = [], [], threading.Event()

    def work() -> None:
        while not done.is_set() and not raised:
            try:
                found.append(READ[read](state))
            except Exception as error:
                raised.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(1, len(X)):
        state.update(X[i : i + 1], Y[i : i + 1])
    done.set()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]
    expected = torch.stack(moments)
    for one in found:
        assert float((expected - one).abs().amax(-1).min()) < 1e-9


FORKED = """
import os, signal, threading, torch, kbo
from tests.laws.states import rbf, unit_square

state, X = kbo.KernelRidge(rbf(), 0.1), unit_square(5, 0)
state.update(X, X[:, 0])
held, done = threading.Event(), threading.Event()

def hold():
    with state.lock:
        held.set()
        done.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(10)
    state.predict(X)
    os._exit(0)
status = os.waitpid(pid, 0)[1]
done.set()
assert status == 0, status
"""


def test_a_forked_child_does_not_wait_for_a_thread_that_it_lacks():
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], check=True, timeout=120)


@pytest.mark.parametrize("copied", [KernelRidge.fork, copy.deepcopy, lambda state: pickle.loads(pickle.dumps(state))])
def test_copies_have_a_lock_of_their_own(copied):
    state = KernelRidge(rbf(), 0.1)
    assert copied(state).lock is not state.lock


def test_a_platform_without_fork_imports_everything():
    command = "import os, torch, gpytorch, botorch; del os.register_at_fork; import kbo.optimize.journal"
    subprocess.run([sys.executable, "-c", command], check=True, timeout=120)
