"""The scripts of this folder, with fewer faults: flipped bits, and faults of parallel runs."""

import os
import random
import sys

import pytest

from tests.faults import REPEATS, flips, parallel

pytestmark = pytest.mark.faults


def test_flipped_bits_are_noticed_or_harmless(tmp_path):
    for name, counts in flips.run(80 * REPEATS, REPEATS, tmp_path).items():
        assert set(counts) <= {"noticed", "harmless"}, (name, counts)
        assert counts["noticed"] > 0


@pytest.mark.skipif(sys.platform != "linux", reason="it finds the processes of a run in /proc")
@pytest.mark.parametrize("fault", parallel.FAULTS)
def test_a_parallel_run_survives_its_faults(fault, tmp_path):
    if fault == "full disk" and os.geteuid() != 0:
        pytest.skip("only root mounts file systems")
    wrong, message = parallel.once(fault, random.Random(REPEATS), tmp_path)
    assert not wrong, message
