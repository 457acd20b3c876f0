import logging
import os
import signal

import pytest
import torch
from hypothesis import settings

settings.register_profile("kbo", derandomize=True, deadline=None, max_examples=10)
settings.load_profile("kbo")

DEVICE = os.environ.get("KBO_TEST_DEVICE", "cpu")
if DEVICE == "standin":
    import tests.device.standin  # noqa: F401


@pytest.fixture(scope="session", params=[DEVICE])
def device(request) -> torch.device:
    """Return the device of ``KBO_TEST_DEVICE``; it is a part of the name of every test that takes it."""
    return torch.empty(0, device=request.param).device


def pytest_collection_modifyitems(items) -> None:
    for item in items:
        if "device" in item.fixturenames:
            item.add_marker("device")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _interruptible() -> None:
    """Ctrl-C raises, whatever handler Ray Tune left behind, and in the background of a shell too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _level_of_the_log():
    """The level that a command of an earlier test has set does not hold for the next one."""
    yield
    logging.getLogger("kbo").setLevel(logging.NOTSET)
