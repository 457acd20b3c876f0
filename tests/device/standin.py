"""``import tests.device.standin`` makes ``torch.device("standin")``: a second device that needs no hardware.

It applies CUDA's rules: operands of two devices, numbers and indices of the CPU, generators, conversion to NumPy.
Compiled at the first import, about half a minute with g++ and ninja.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch
from torch.utils.cpp_extension import load


class Backend:
    """``torch.standin``: the functions that torch expects of the module of a device."""

    is_available = staticmethod(lambda: True)
    is_initialized = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    current_device = staticmethod(lambda: 0)
    set_device = staticmethod(lambda device: None)
    synchronize = staticmethod(lambda device=None: None)
    _is_in_bad_fork = staticmethod(lambda: False)
    manual_seed_all = staticmethod(lambda seed: _backend.seed(seed % 2**64))
    get_rng_state = staticmethod(lambda device=0: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, device=0: torch.set_rng_state(state))
    device = staticmethod(lambda device: contextlib.nullcontext())
    get_amp_supported_dtype = staticmethod(lambda: [torch.float16, torch.bfloat16])


torch.utils.rename_privateuse1_backend("standin")
_backend = load(
    "kbo_standin", [str(Path(__file__).with_suffix(".cpp"))], extra_cflags=["-O1", "-w"]
)
torch._register_device_module("standin", Backend)
torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
DEVICE = torch.device("standin", 0)
