"""The house stands as the contract says, and importing kbo is cheap and changes nothing."""

import subprocess
import sys

import pytest

PROBE = """
import sys, warnings, torch, gpytorch, linear_operator, botorch, scipy.special, scipy.sparse  # set filters of their own
def state():
    settings = {}
    for library in (gpytorch.settings, linear_operator.settings, botorch.settings):
        for name, item in vars(library).items():
            if isinstance(item, type):
                plain = {k: v for k, v in vars(item).items() if isinstance(v, (int, float, bool, str))}
                settings[library.__name__, name] = plain
    return (torch.get_default_dtype(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(),
            torch.random.initial_seed(), list(warnings.filters), settings)
before = state()
import kbo
assert "kbo.optimize" not in sys.modules, "import kbo is not lazy"
for name in kbo.__all__:
    getattr(kbo, name)
assert state() == before, "importing kbo changed a global setting"
print(*sys.modules)
"""


def test_import_changes_no_global_setting_and_loads_no_optional_library():
    loaded = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True).stdout.split()
    assert "kbo" in loaded
    heavy = {"ax", "optuna", "ray", "pandas", "matplotlib", "typer", "cvxpy", "sklearn"}
    assert not heavy & set(loaded)


def test_imports_follow_the_contract():
    pytest.importorskip("importlinter")
    from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

    assert lint_imports(no_cache=True) == EXIT_STATUS_SUCCESS
