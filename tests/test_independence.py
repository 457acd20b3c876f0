"""A test that changes what other tests share fails by name, and the tests after it do not notice."""

import re
from pathlib import Path

import pytest

from tests.processes import environment, python

LEAKS = {
    "gradient mode": "torch.set_grad_enabled(False)",
    "inference mode": "KEPT.append(torch.inference_mode()); KEPT[-1].__enter__()",
    "default dtype": "torch.set_default_dtype(torch.float64)",
    "default device": "torch.set_default_device('meta')",
    "errors of numpy": "np.seterr(all='raise')",
    "threads of torch": "torch.set_num_threads(torch.get_num_threads() + 1)",
    "warning filters": "warnings.simplefilter('ignore')",
    "log levels": "logging.getLogger('kbo').setLevel(logging.DEBUG)",
    "signal handlers": "signal.signal(signal.SIGTERM, lambda number, frame: None)",
    "timers": "signal.signal(signal.SIGALRM, lambda number, frame: None); signal.setitimer(signal.ITIMER_REAL, 6000)",
    "blocked signals": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})",
    "environment": "os.environ['KBO_LEFT'] = '1'",
    "working directory": "os.chdir('/')",
    "file ": "KEPT.append(open(__file__))",
    "process ": "KEPT.append(subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE))",
    "thread ": "KEPT.append(threading.Event()); threading.Thread(target=KEPT[-1].wait, daemon=True).start()",
}
BEGINNING = """
import logging, os, random, signal, subprocess, sys, threading, warnings
import numpy as np
import torch
from tests.independence import _independent

KEPT = []

def test_draw():
    torch.randn(3), np.random.rand(3), random.random()
"""
END = """
def test_none_of_it_is_seen():
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    assert torch.get_default_dtype() == torch.float32
    assert "KBO_LEFT" not in os.environ and os.getcwd() != "/"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert logging.getLogger("kbo").level == logging.NOTSET
    drawn = torch.randn(3), np.random.rand(3), random.random()
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    assert torch.equal(drawn[0], torch.randn(3)) and drawn[2] == random.random()
    assert (drawn[1] == np.random.rand(3)).all()
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> str:
    """What pytest says of a file with a test for each leak, and one after them."""
    tests = [f"def test_{place}():\n    {leak}\n" for place, leak in enumerate(LEAKS.values())]
    path = tmp_path_factory.mktemp("leaks") / "test_leaks.py"
    path.write_text("\n".join([BEGINNING, *tests, END]))
    root = str(Path(__file__).parent.parent)
    changed = environment(KBO_TEST_SECONDS_TO_END="0.2", COLUMNS="2000", PYTHONPATH=root)
    # The last test looks at what the others leave.
    options = ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:random_order", "-rA"]
    command = ["-m", "pytest", *options, "--rootdir", path.parent, path]
    return python(*command, cwd=path.parent, env=changed, check=False).stdout


def test_a_leak_fails_the_test_that_made_it_and_the_others_start_from_the_same_seeds(said):
    for place, kind in enumerate(LEAKS):
        (line,) = re.findall(rf"^ERROR test_leaks.py::test_{place} .*$", said, re.MULTILINE)
        assert kind in line.partition("share: ")[2], line
    assert "PASSED test_leaks.py::test_none_of_it_is_seen" in said, said
    assert "ERROR test_leaks.py::test_draw" not in said
