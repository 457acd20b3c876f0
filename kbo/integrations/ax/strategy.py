"""A generation strategy of Ax: points that fill the space, then a method of kbo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from ax.adapter.data_utils import DataLoaderConfig
from ax.adapter.registry import GENERATOR_KEY_TO_GENERATOR_SETUP, Generators
from ax.adapter.transforms.choice_encode import ChoiceToNumericChoice
from ax.adapter.transforms.log import Log
from ax.adapter.transforms.logit import Logit
from ax.adapter.transforms.remove_fixed import RemoveFixed
from ax.adapter.transforms.winsorize import Winsorize
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MinTrials
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig

from kbo import checks, devices, recipes
from kbo.errors import InvalidInput
from kbo.integrations.ax.constraints import Supported
from kbo.integrations.ax.models import CertifiedGP, MethodSampling, MethodUCB, PracticalGP, SeededAcquisition
from kbo.integrations.ax.seen import Seen
from kbo.integrations.ax.storage import StoredDigits, build_kernel, describe_kernel
from kbo.integrations.settings import resolved
from kbo.optimize import Certified, Constraint, Practical
from kbo.optimize.belief import Setting
from kbo.optimize.constraint import measured_only

# One number per parameter; scaling and one-hot columns are the model's, which leaves discrete ones discrete.
_TRANSFORMS = [Supported, Seen, StoredDigits, RemoveFixed, ChoiceToNumericChoice, Log, Logit]

# Starts of the search for the largest bound; Ax's own 20 and 1024 hardly find more, and "cmm-ucb" is expensive.
_SEARCH = {"num_restarts": 8, "raw_samples": 256}

_N_INITIAL = 6  # observations before the first fit, as in ``kbo.minimize`` for two parameters


def generation_strategy(
    method: str | None = None,
    *,
    setting: Setting | None = None,
    n_initial: int | None = None,
    n_trials: int | None = None,
    constraints: Sequence[Constraint] = (),
    seed: int = 0,
    device: str | torch.device | None = None,
) -> GenerationStrategy:
    """Points that fill the space until there are ``n_initial`` observations, then a method of kbo.

    For one objective, minimised or maximised, with any ``outcome_constraints`` on single outcomes, each of which has a
    model of its own, in any search space of ranges and choices. What cannot be is refused before the first trial. The
    strategy survives Ax's
    JSON and SQL storage, and the next point is a function of seed and data, so a resumed run continues as if it had
    never stopped. Running and abandoned trials are not proposed again, except in spaces that are all discrete; failed
    ones may be, as is Ax's convention.

    * ``Practical()``: kernel, noise level and norm bound are estimated from all data whenever there are new ones.
      Values far on the bad side are cut first, by Ax's ``Winsorize``. Where all values come with a standard error, the
      largest one is the noise level.
    * ``Certified(...)``: raw outcomes and a fixed kernel; outcomes are not rescaled. The kernel sees numbers scaled to
      [0, 1] (logarithmic parameters in their logarithm) and choices without an order as one-hot columns of length
      1/sqrt(2), in the order of the parameters. Choices with an order count as numbers, or by their ranks; Ax takes
      two options to have one.

    Args:
        method: A name of ``kbo.recipes.names()``; by default "ucb" (practical setting) or "dmm-ucb" (certified).
        setting: As in ``kbo.minimize``; ``Practical()`` by default.
        n_initial: Observations before the method takes over; by default those of the setting, else 6 in the
            practical setting, and 1 in the certified one, whose bounds hold from the start.
        n_trials: The planned number of trials, if the method needs it ("igp-ucb").
        constraints: The outcome constraints again with the numbers that the certified setting needs, such as
            ``[kbo.Constraint("memory", upper=8.0, noise_std=0.1, norm_bound=20.0)]``. delta is shared equally among the
            outcomes.
        seed: Seed of every random choice.
        device: Where models and their search are, such as "cuda"; the CPU by default.

    Raises:
        InvalidInput: An unknown method, one that the setting does not allow, a kernel that cannot be stored, or a
            device that is not there.

    Example:
        >>> client = Client()
        >>> client.configure_experiment([RangeParameterConfig(name="x", parameter_type="float", bounds=(0.0, 1.0))])
        >>> client.configure_optimization(objective="-loss")
        >>> client.set_generation_strategy(kbo.integrations.ax.generation_strategy(seed=0))
    """
    setting, method = resolved(setting, method, n_trials)
    measured, others = measured_only(constraints)
    if others or (measured and not setting.certified):
        raise InvalidInput(
            "constraints are kbo.Constraint for kbo.Certified(...), got "
            f"{checks.shown((others or measured)[0])}: outcome constraints belong to client.configure_optimization, "
            "constraints on parameters to client.configure_experiment."
        )
    if isinstance(setting, Certified):
        setting = replace(setting, kernel=build_kernel(describe_kernel(setting.kernel)))
    elif type(setting) is not Practical:
        raise InvalidInput(f"Ax has a model and a search of its own: pass kbo.Practical, not {type(setting).__name__}.")
    recipe = recipes.get(method)
    if not recipe.has_bounds:
        raise InvalidInput(
            f"method {method!r} has no model: use a node of Ax with Generators.UNIFORM or Generators.SOBOL."
        )
    seed = checks.seed(seed)
    if n_initial is None:
        n_initial = (setting.n_initial or _N_INITIAL) if isinstance(setting, Practical) else 1
    n_initial = checks.whole("n_initial", n_initial, 1)
    name, certified = f"kbo {method}", setting.certified
    given = sorted(map(str, measured)) if certified else None
    supported = {"Supported": {"method": method, "draws": recipe.draws, "given": given}}
    transforms = [Supported, Seen, *GENERATOR_KEY_TO_GENERATOR_SETUP["Sobol"].transforms]
    filters = {"transforms": transforms, "transform_configs": supported}
    design = GenerationNode(
        name="Sobol",
        generator_specs=[GeneratorSpec(Generators.SOBOL, generator_kwargs={"seed": seed, **filters})],
        transition_criteria=[
            MinTrials(n_initial, transition_to=name, use_all_trials_in_exp=True, count_only_trials_with_data=True)
        ],
    )
    kind = CertifiedGP if certified else PracticalGP
    configs = {
        name: [
            ModelConfig(
                botorch_model_class=kind, model_options={"method": method, "setting": one, "n_trials": n_trials}
            )
        ]
        for name, one in _settings(setting, measured).items()
    }
    spec = GeneratorSpec(
        Generators.BOTORCH_MODULAR,
        generator_kwargs={
            "torch_device": devices.device("device", device),
            "surrogate_spec": SurrogateSpec(model_configs=configs.pop(""), metric_to_model_configs=configs),
            "botorch_acqf_class": MethodSampling if recipe.draws else MethodUCB,
            "botorch_acqf_options": {"seed": seed} if recipe.draws else {},
            "acquisition_class": SeededAcquisition,
            "acquisition_options": {"seed": seed},
            "transforms": _TRANSFORMS + ([] if certified else [Winsorize]),
            "transform_configs": supported,
            "expand_model_space": False,  # or features, and with them the kernel, would follow the data
            "fit_tracking_metrics": False,  # the assumptions are about the objective and the constraints
            # An intermediate value is one of another function.
            "data_loader_config": DataLoaderConfig(fit_only_completed_map_metrics=True),
        },
        generator_gen_kwargs={"model_gen_options": {"optimizer_kwargs": dict(_SEARCH)}},
    )
    return GenerationStrategy(name=name, nodes=[design, GenerationNode(name=name, generator_specs=[spec])])


def _settings(setting: Setting, constraints: Sequence[Constraint]) -> dict[str, Setting]:
    """The setting of each constraint by its name, and under "" that of the objective, to be stored."""
    outputs = 1 + len(constraints)
    found: dict[str, Setting] = {"": setting.shared(outputs)}
    for c in constraints:
        kernel = None if c.kernel is None else build_kernel(describe_kernel(c.kernel))
        found[c.name] = setting.of(replace(c, kernel=kernel), outputs)
    return found
