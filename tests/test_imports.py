"""``import kbo`` is quick, changes no setting and loads no library that is not used."""

import importlib
import pkgutil

import kbo
from tests.processes import python

SETTINGS = """
import warnings
import botorch, gpytorch, linear_operator, torch
from botorch.models import SingleTaskGP  # SciPy, which these load, sets filters of its own
from botorch.optim import optimize_acqf

def settings():
    found = {
        "torch.dtype": torch.get_default_dtype(),
        "torch.device": torch.get_default_device(),
        "torch.threads": torch.get_num_threads(),
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

torch.set_default_device("meta")  # nothing can be computed on it
before = settings()
import kbo, kbo.acquisition
for name in kbo.__all__:
    getattr(kbo, name)
after = settings()
print([name for name in before if before[name] != after[name]])
print(len(kbo.minimize(lambda x: x[0], [(0.0, 1.0)], 7).trials))
"""


def test_an_import_changes_no_global_setting_and_none_disturbs_it():
    assert python("-c", SETTINGS).stdout == "[]\n7\n"


HEAVY = "botorch ax optuna matplotlib pandas ray typer cvxpy sklearn networkx scipy.stats rich"
LOADED = f"""
import sys, warnings
before, filters = set(sys.modules), list(warnings.filters)
import kbo
assert warnings.filters == filters
print(*{{name.partition(".")[0] for name in set(sys.modules) - before}} - sys.stdlib_module_names)
import kbo.cli.app
print("torch" in sys.modules, "numpy" in sys.modules)

def loaded():
    print([name for name in "{HEAVY}".split() if name in sys.modules])

def objective(params):
    return (params["x"] - 0.3) ** 2

from gpytorch.kernels import RBFKernel
bounds = {{"x": (0.0, 1.0)}}
kbo.minimize(objective, bounds, 9, progress=False)
setting = kbo.Certified(RBFKernel().double(), 0.1, 2.0)
kbo.minimize(objective, bounds, 4, progress=False, setting=setting)
loaded()
sys.argv = ["kbo", "tune", "parabola.py", "--trials", "8", "--quiet"]
from kbo.__main__ import main
try:
    main()
except SystemExit as end:
    loaded()
"""
SCRIPT = """
bounds = {"x": (0.0, 1.0)}

def objective(params):
    return (params["x"] - 0.3) ** 2
"""


def test_libraries_are_loaded_where_they_are_used_and_not_before(tmp_path):
    (tmp_path / "parabola.py").write_text(SCRIPT)
    lines = python("-c", LOADED, cwd=tmp_path).stdout.splitlines()
    assert set(lines[0].split()) == {"kbo", "lazy_loader"}
    assert lines[1:3] == ["False False", "['typer']"]
    assert lines[-1] == "['typer']"


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
    lambda: import_module("kbo.optimize.run.table").frame([]),
    lambda: import_module("kbo.optimize.tracking").MLflow(),
    lambda: import_module("kbo.optimize.tracking").WandB(),
    lambda: import_module("kbo.confidence").cone_program(None, None, None),
    lambda: import_module("experiments.sweep"),
    lambda: import_module("kbo.integrations.ax"),
    lambda: import_module("kbo.integrations.optuna"),
    lambda: import_module("kbo.cli.examples").digits({}),
    lambda: import_module("experiments.problems").random_graphs(1, seed=0),
    lambda: sys.modules.update(pandas=kbo, pyarrow=kbo) or import_module("kbo._base.plotting"),
    lambda: import_module("kbo.workers.ray"),
):
    try:
        use()
    except kbo.MissingExtra as error:
        print(str(error).partition(": ")[2])
sys.argv = ["kbo"]
import_module("kbo.__main__").main()
"""
EXTRAS = "cli cli cli mlflow wandb certify experiments ax optuna cli experiments cli ray"


def test_a_missing_library_is_named_with_its_extra_and_a_platform_without_fork_imports_everything():
    done = python("-c", HIDDEN, check=False)
    expected = [f"pip install 'kbo[{extra}]'" for extra in EXTRAS.split()]
    assert done.stdout.splitlines() == expected, done.stderr
    assert done.returncode == 1
    assert done.stderr == "error: the command line needs typer: pip install 'kbo[cli]'\n"


def test_every_name_that_a_module_lists_exists_and_others_are_attribute_errors():
    """Also in modules that import their names when they are first used."""
    assert set(kbo.__all__) <= set(dir(kbo))
    assert not hasattr(kbo, "no_such_name")
    for found in pkgutil.walk_packages(kbo.__path__, "kbo."):
        if found.name == "kbo.__main__":
            continue
        module = importlib.import_module(found.name)
        listed = {*dir(module), *getattr(module, "__all__", ())}
        assert [name for name in listed if not hasattr(module, name)] == []
        assert not hasattr(module, "no_such_name")
