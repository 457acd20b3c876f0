import os

import pytest
import torch
from hypothesis import settings

from tests.independence import _independent  # noqa: F401
from tests.parts import pytest_report_header  # noqa: F401

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
