"""Every tutorial runs as a script, without a display, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts import once

TUTORIALS = sorted((Path(__file__).parent.parent / "tutorials").glob("*.py"))


@pytest.mark.parametrize("script", once(TUTORIALS), ids=lambda script: script.stem)
def test_a_tutorial_runs(script, tmp_path):
    environment = {**os.environ, "KBO_TUTORIAL_QUICK": "1", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


def test_there_are_tutorials():
    assert len(TUTORIALS) >= 2
