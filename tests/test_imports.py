"""Imports follow the contract; ``import kbo`` is quick and changes no setting."""

import subprocess
import sys

import pytest

import kbo

PROBE = """
import sys, warnings
import botorch, gpytorch, linear_operator, torch
from botorch.models import SingleTaskGP  # SciPy, which these load, sets filters of its own
from botorch.optim import optimize_acqf

def settings():
    found = {
        "torch.dtype": torch.get_default_dtype(),
        "torch.device": torch.get_default_device(),
        "torch.threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "torch.deterministic": torch.are_deterministic_algorithms_enabled(),
        "torch.cudnn": (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark),
        "torch.matmul": torch.get_float32_matmul_precision(),
        "torch.grad": torch.is_grad_enabled(),
        "torch.random": torch.get_rng_state().tolist(),
        "warnings": list(warnings.filters),
    }
    for module in (gpytorch.settings, linear_operator.settings, botorch.settings):
        for name, setting in vars(module).items():
            values = vars(setting) if isinstance(setting, type) else {"value": setting}
            for key, value in values.items():
                if isinstance(value, (bool, int, float, str, type(None))):
                    found[f"{module.__name__}.{name}.{key}"] = value
    return found

before = settings()
import kbo
assert "kbo.optimize" not in sys.modules, "import kbo is not lazy"
for name in kbo.__all__:
    getattr(kbo, name)
after = settings()
changed = [name for name in before if before[name] != after[name]]
assert not changed, changed
print(*sys.modules)
"""


def test_import_changes_no_global_setting_and_loads_no_optional_library():
    loaded = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True).stdout.split()
    assert "kbo" in loaded
    heavy = {"ax", "optuna", "ray", "pandas", "matplotlib", "typer", "cvxpy", "sklearn"}
    assert not heavy & set(loaded)


def test_import_loads_no_other_module_until_a_name_is_used():
    code = "import sys; before = set(sys.modules); import kbo; print(*set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {name.split(".")[0] for name in loaded} <= {"kbo", *sys.stdlib_module_names}
    assert not [name for name in loaded if name.startswith("kbo.")]


def test_every_public_name_is_listed_and_found():
    assert set(kbo.__all__) <= set(dir(kbo))
    for name in kbo.__all__:
        assert getattr(kbo, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kbo.nothing


def test_imports_follow_the_contract():
    pytest.importorskip("importlinter")
    from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

    assert lint_imports(no_cache=True) == EXIT_STATUS_SUCCESS
