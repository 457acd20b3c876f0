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


def test_a_platform_without_fork_imports_everything():
    command = "import os, torch, gpytorch, botorch; del os.register_at_fork; import kbo.optimize.journal"
    subprocess.run([sys.executable, "-c", command], check=True, timeout=120)


HIDDEN = """
import sys, kbo
from importlib import import_module
sys.modules |= dict.fromkeys(
    "typer jinja2 matplotlib pandas pyarrow ax optuna ray sklearn networkx mlflow wandb".split()
)
for use in (
    lambda: import_module("kbo.cli"),
    lambda: import_module("kbo.report"),
    lambda: import_module("kbo.optimize.table").frame([]),
    lambda: import_module("kbo.optimize.tracking").MLflow(),
    lambda: import_module("kbo.optimize.tracking").WandB(),
    lambda: import_module("kbo.experiments"),
    lambda: import_module("kbo.integrations.ax"),
    lambda: import_module("kbo.integrations.optuna"),
    lambda: kbo.problems.DigitsMLP()({}),
    lambda: kbo.problems.random_graphs(1, seed=0),
    lambda: sys.modules.update(pandas=kbo, pyarrow=kbo) or import_module("kbo.experiments.draw"),
    lambda: import_module("kbo.workers.ray"),
):
    try:
        use()
    except kbo.MissingExtra as error:
        print(error)
sys.argv = ["kbo"]
import_module("kbo.__main__").main()
"""


def test_a_missing_library_is_named_with_its_extra():
    done = subprocess.run([sys.executable, "-c", HIDDEN], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "the command line needs typer: pip install 'kbo[cli]'",
        "kbo.report needs jinja2, matplotlib, pandas: pip install 'kbo[cli]'",
        "a table of trials needs pandas: pip install 'kbo[cli]'",
        "kbo.optimize.tracking.MLflow needs mlflow: pip install 'kbo[mlflow]'",
        "kbo.optimize.tracking.WandB needs wandb: pip install 'kbo[wandb]'",
        "kbo.experiments needs pandas, pyarrow: pip install 'kbo[cli]'",
        "kbo.integrations.ax needs ax: pip install 'kbo[ax]'",
        "kbo.integrations.optuna needs optuna: pip install 'kbo[optuna]'",
        "this problem needs sklearn: pip install 'kbo[cli]'",
        "kbo.problems.graphs needs networkx: pip install 'kbo[graphs]'",
        "kbo.experiments.draw needs matplotlib: pip install 'kbo[cli]'",
        "kbo.workers.ray needs ray: pip install 'kbo[ray]'",
    ], done.stderr
    assert (done.returncode, done.stderr) == (1, "error: the command line needs typer: pip install 'kbo[cli]'\n")


def test_a_run_loads_no_library_that_it_does_not_use():
    code = "import sys, kbo; kbo.minimize(lambda x: x[0], [(0, 1)], 12, progress=False); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"sklearn", "pandas", "matplotlib", "cvxpy", "networkx", "scipy.stats", "rich"} & set(loaded)


def test_every_public_name_is_listed_and_found():
    assert set(kbo.__all__) <= set(dir(kbo))
    for name in kbo.__all__:
        assert getattr(kbo, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kbo.nothing


def test_names_that_are_imported_when_they_are_first_used_are_listed_before():
    code = "import kbo.acquisition as a; print(*set(a.__all__) - set(dir(a)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.split()


def test_imports_follow_the_contract():
    pytest.importorskip("importlinter")
    # In a process of its own, since it disables the loggers that exist.
    check = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
