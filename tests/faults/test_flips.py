"""A flipped bit never changes a value silently, and never gives an error that kbo did not write."""

from tests.faults import REPEATS
from tests.faults.flips import run


def test_flipped_bits_are_noticed_or_harmless(tmp_path):
    for name, counts in run(80 * REPEATS, REPEATS, tmp_path).items():
        assert set(counts) <= {"noticed", "harmless"}, (name, counts)
        assert counts["noticed"] > 0
