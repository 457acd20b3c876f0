import logging
import signal

import pytest
import torch
from hypothesis import settings

settings.register_profile("kbo", derandomize=True, deadline=None, max_examples=10)
settings.load_profile("kbo")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(scope="session", params=DEVICES)
def device(request) -> torch.device:
    return torch.device(request.param)


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
