"""A test that changes what other tests share fails by name, and each starts from the same seeds."""

import re
from pathlib import Path

from tests.processes import environment, python

LEAKS = {
    "default dtype": "torch.set_default_dtype(torch.float64)",
    "default device": "torch.set_default_device('meta')",
    "gradient mode": "torch.set_grad_enabled(False)",
    "blocked signals": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})",
    "warning filters": "warnings.simplefilter('ignore')",
    "file ": "KEPT.append(open(__file__))",
    "process ": "KEPT.append(subprocess.Popen(['cat'], stdin=subprocess.PIPE))",
    "thread ": "threading.Thread(target=threading.Event().wait, daemon=True).start()",
}
BEGINNING = """
import signal, subprocess, threading, warnings
import torch
from tests.independence import _independent

KEPT = []
NUMBERS = []

def test_draw():
    NUMBERS.append(torch.rand(()))

def test_draw_again():
    assert NUMBERS == [torch.rand(())]
"""


def test_a_leak_fails_the_test_that_made_it(tmp_path):
    tests = [f"def test_{place}():\n    {leak}\n" for place, leak in enumerate(LEAKS.values())]
    path = tmp_path / "test_leaks.py"
    path.write_text("\n".join([BEGINNING, *tests]))
    root = str(Path(__file__).parent.parent)
    changed = environment(KBO_TEST_SECONDS_TO_END="0.2", COLUMNS="2000", PYTHONPATH=root)
    options = ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:random_order", "-rA"]
    command = ["-m", "pytest", *options, "--rootdir", tmp_path, path]
    said = python(*command, cwd=tmp_path, env=changed, check=False).stdout
    for place, kind in enumerate(LEAKS):
        (line,) = re.findall(rf"^ERROR test_leaks.py::test_{place} .*$", said, re.MULTILINE)
        assert kind in line.partition("share: ")[2], line
    assert said.count("\nERROR test_leaks") == len(LEAKS)
    assert said.count("\nPASSED test_leaks") == len(LEAKS) + 2
