"""``import kbo`` is quick, changes no setting and loads no library that is not used."""

import importlib
import pkgutil

import pytest

import kbo
from tests.processes import python

PROBE = """
import sys, warnings
before, filters = set(sys.modules), list(warnings.filters)
import kbo
loaded = set(sys.modules) - before
own = {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names}
assert own == {"kbo", "lazy_loader"}, f"import kbo is not lazy: {own}"
assert warnings.filters == filters
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
import kbo.acquisition
assert set(kbo.acquisition.__all__) <= set(dir(kbo.acquisition)), "names are listed when they are first used"
for name in kbo.__all__:
    getattr(kbo, name)
after = settings()
changed = [name for name in before if before[name] != after[name]]
assert not changed, changed
kbo.minimize(lambda x: x[0], [(0, 1)], 12, progress=False)
print(*sys.modules)
"""


def test_import_changes_no_global_setting_and_neither_it_nor_a_run_loads_what_it_does_not_use():
    loaded = set(python("-c", PROBE).stdout.split())
    heavy = {
        "ax",
        "optuna",
        "ray",
        "pandas",
        "matplotlib",
        "typer",
        "cvxpy",
        "sklearn",
        "networkx",
        "scipy.stats",
        "rich",
    }
    assert "kbo" in loaded
    assert not heavy & loaded


LOADED = """
import sys
import kbo
from gpytorch.kernels import RBFKernel

def loaded():
    return [name for name in {heavy!r} if name in sys.modules]

def objective(params):
    return (params["x"] - 0.3) ** 2

bounds = {{"x": (0.0, 1.0)}}
kernel = RBFKernel().double()
print(loaded())
kbo.minimize(objective, bounds, 9, progress=False)
print(loaded())
kbo.minimize(objective, bounds, 4, progress=False, setting=kbo.Certified(kernel, 0.1, 2.0))
print(loaded())
kbo.models.KernelRidgeGP
kbo.acquisition.KernelUCB
print(loaded())
"""

HEAVY = ["botorch", "ax", "optuna", "matplotlib", "pandas", "ray", "typer", "cvxpy", "sklearn"]


def test_botorch_is_loaded_where_a_model_or_an_acquisition_function_is_used_and_not_before():
    lines = python("-c", LOADED.format(heavy=HEAVY)).stdout.splitlines()
    assert lines == ["[]", "[]", "[]", "['botorch']"]


SCRIPT = """
bounds = {"x": (0.0, 1.0)}

def objective(params):
    return (params["x"] - 0.3) ** 2
"""

TUNED = """
import sys
from kbo.__main__ import main
sys.argv = ["kbo", "tune", "parabola.py", "--trials", "8", "--quiet"]
try:
    main()
except SystemExit as end:
    print(end.code, [name for name in {heavy!r} if name in sys.modules])
"""


def test_kbo_tune_loads_matplotlib_for_its_picture_and_nothing_else_that_it_does_not_use(tmp_path):
    (tmp_path / "parabola.py").write_text(SCRIPT)
    lines = python("-c", TUNED.format(heavy=HEAVY), cwd=tmp_path).stdout.splitlines()
    assert lines[-1] == "0 ['matplotlib', 'typer']"


def test_the_help_of_the_command_line_loads_no_pytorch():
    shown = python(
        "-c", "import sys, kbo.cli.app; print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    assert shown.stdout.split() == ["False", "False"]


HIDDEN = """
import os, sys, torch, gpytorch, botorch
del os.register_at_fork  # a platform without fork
import kbo, kbo.optimize.run.journal
from importlib import import_module
sys.modules |= dict.fromkeys(
    "typer jinja2 matplotlib pandas pyarrow cvxpy ax optuna ray sklearn networkx mlflow wandb".split()
)
for use in (
    lambda: import_module("kbo.cli.app"),
    lambda: import_module("kbo.report").write,
    lambda: import_module("kbo.optimize.table").frame([]),
    lambda: import_module("kbo.optimize.tracking").MLflow(),
    lambda: import_module("kbo.optimize.tracking").WandB(),
    lambda: import_module("kbo.confidence").cone_program(None, None, None),
    lambda: import_module("experiments.sweep"),
    lambda: import_module("kbo.integrations.ax"),
    lambda: import_module("kbo.integrations.optuna"),
    lambda: import_module("kbo.cli.examples").digits({}),
    lambda: import_module("experiments.problems").random_graphs(1, seed=0),
    lambda: sys.modules.update(pandas=kbo, pyarrow=kbo) or import_module("kbo._base.drawing"),
    lambda: import_module("kbo.workers.ray"),
):
    try:
        use()
    except kbo.MissingExtra as error:
        print(str(error).partition(": ")[2], end="; ")
sys.argv = ["kbo"]
import_module("kbo.__main__").main()
"""


def test_a_missing_library_is_named_with_its_extra_and_a_platform_without_fork_imports_everything():
    done = python("-c", HIDDEN, check=False)
    extras = [
        "cli",
        "cli",
        "cli",
        "mlflow",
        "wandb",
        "certify",
        "experiments",
        "ax",
        "optuna",
        "cli",
        "experiments",
    ]
    extras += ["cli", "ray"]
    assert done.stdout == "".join(f"pip install 'kbo[{extra}]'; " for extra in extras), done.stderr
    assert (done.returncode, done.stderr) == (
        1,
        "error: the command line needs typer: pip install 'kbo[cli]'\n",
    )


def test_every_public_name_is_listed_and_found():
    assert set(kbo.__all__) <= set(dir(kbo))
    for name in kbo.__all__:
        assert getattr(kbo, name) is not None
    assert kbo.report.write is not None  # which a star import leaves out: it needs an extra
    with pytest.raises(AttributeError, match="nothing"):
        _ = kbo.nothing


def test_every_name_that_a_module_lists_exists_and_others_are_attribute_errors():
    """Also in modules that import their names when they are first used."""
    names = ["kbo", *(found.name for found in pkgutil.walk_packages(kbo.__path__, "kbo."))]
    for name in names:
        if name.endswith("__main__"):
            continue
        module = importlib.import_module(name)
        listed = {*dir(module), *getattr(module, "__all__", ())}
        assert [name for name in listed if not hasattr(module, name)] == []
        lazy = vars(module).get("__getattr__")
        if lazy is not None:
            assert [
                name for name in module.__all__ if lazy(name) is not getattr(module, name)
            ] == []
        for unknown in ("joint", "no_such_name"):
            assert unknown in listed or not hasattr(module, unknown)
