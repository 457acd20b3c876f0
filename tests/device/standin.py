"""``import tests.device.standin`` makes ``torch.device("standin")``: a second device that needs no hardware.

It applies CUDA's rules: operands of two devices, numbers and indices of the CPU, generators, conversion to NumPy.
Compiled at the first import, about half a minute with g++ and ninja. Imports wait for a compilation in another process,
as long as that lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from pathlib import Path
from typing import Any

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


def build_directory() -> Path:
    """Return the folder of the compiled module, one for each version of Python and PyTorch."""
    extensions = os.environ.get("TORCH_EXTENSIONS_DIR", "~/.cache/torch_extensions")
    version = f"py{sys.version_info.major}{sys.version_info.minor}_torch{torch.__version__}"
    return Path(extensions).expanduser() / f"kbo_standin_{version}"


def compiled() -> Any:
    """Return the compiled module.

    PyTorch's own lock is a file, which a killed compilation leaves behind, and then later ones would wait for ever.
    The system releases the lock around it when its process ends, so a file that is found under it is left over.
    """
    directory = build_directory()
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "process.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (directory / "lock").unlink(missing_ok=True)
        source = Path(__file__).with_suffix(".cpp")
        return load(
            "kbo_standin",
            [str(source)],
            extra_cflags=["-O1", "-w"],
            build_directory=str(directory),
        )


torch.utils.rename_privateuse1_backend("standin")
_backend = compiled()
torch._register_device_module("standin", Backend)
torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
DEVICE = torch.device("standin", 0)
