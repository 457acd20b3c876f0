"""Guarantees in Ax and Optuna after data that the method did not ask for, or that changed."""

from __future__ import annotations

import pytest
from gpytorch.kernels import MaternKernel

import kbo

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)


def certified():
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.3
    return kbo.Certified(kernel, noise_std=0.5, norm_bound=2.0)


# Optuna


def study_of(n_trials=4, storage=None, sampler=None):
    from kbo.integrations.optuna import KBOSampler

    sampler = sampler or KBOSampler(setting=certified(), seed=0)
    study = optuna.create_study(sampler=sampler, storage=storage)
    study.optimize(bowl, n_trials=n_trials)
    return study


def bowl(trial):
    return (trial.suggest_float("x", 0.0, 1.0) - 0.3) ** 2


def honest(study):
    return study


def enqueued(study):
    study.enqueue_trial({"x": 0.5})
    study.optimize(bowl, n_trials=1)
    return study


def another_sampler(study):
    study.sampler = type(study.sampler)(setting=certified(), seed=1)
    study.optimize(bowl, n_trials=2)
    return study


def copied_study(study):
    storage = optuna.storages.InMemoryStorage()
    optuna.copy_study(from_study_name=study.study_name, from_storage=study._storage, to_storage=storage)
    return optuna.load_study(study_name=study.study_name, storage=storage, sampler=study.sampler)


def chosen_trials_of_another_study(study):
    other = study_of(6)
    study.add_trials([trial for trial in other.trials if trial.value < 0.05])
    return study


def chosen_trials_of_the_same_sampler(study):
    other = study_of(6, sampler=study.sampler)
    study.add_trials(other.trials[len(study.trials) :])
    return study


def own_trials_again(study):
    study.add_trials(study.trials[:1])
    return study


def trials_of_another_sampler(study):
    sampler, study.sampler = study.sampler, optuna.samplers.RandomSampler(seed=0)
    study.optimize(bowl, n_trials=1)
    study.sampler = sampler
    return study


@pytest.mark.parametrize("change", [honest, enqueued, another_sampler, copied_study])
def test_trials_that_the_sampler_proposed_in_the_study_keep_the_guarantee(change):
    study = change(study_of())
    assert study.sampler.guarantee(study).startswith("certified")


@pytest.mark.parametrize(
    "change",
    [
        chosen_trials_of_another_study,
        chosen_trials_of_the_same_sampler,
        own_trials_again,
        trials_of_another_sampler,
    ],
)
def test_trials_from_elsewhere_remove_the_guarantee(change):
    study = change(study_of())
    said = study.sampler.guarantee(study)
    assert said.startswith("not certified")
    assert "that KBOSampler did not propose in this study" in said


# Ax


def client_of(n_trials=5):
    configs, kbo_ax = ax_parts()
    client = configs.Client(random_seed=0)
    box = [configs.RangeParameterConfig(name="x", parameter_type="float", bounds=(0.0, 1.0))]
    client.configure_experiment(parameters=box, name="test")
    client.configure_optimization(objective="-loss")
    client.set_generation_strategy(kbo_ax.generation_strategy(setting=certified(), n_initial=2))
    for _ in range(n_trials):
        completed(client)
    return client


def ax_parts():
    pytest.importorskip("ax")
    from ax.api import client as configs

    import kbo.integrations.ax as kbo_ax

    return configs, kbo_ax


def completed(client):
    ((number, point),) = client.get_next_trials(1).items()
    client.complete_trial(number, {"loss": 1 / 3 + point["x"]})
    return number


def stored(client, tmp_path):
    client.save_to_json_file(str(tmp_path / "ax.json"))
    return type(client).load_from_json_file(str(tmp_path / "ax.json"))


def same_value_again(client, kbo_ax):
    client.complete_trial(0, {"loss": client._experiment.data.df["mean"][0]})


def first_of_the_filling_points(client, kbo_ax):
    client.complete_trial(0, {"loss": 0.5})


def last_but_one(client, kbo_ax):
    client.attach_data(3, {"loss": 0.5})


def standard_error(client, kbo_ax):
    client.attach_data(3, {"loss": (client._experiment.data.df["mean"][3], 0.1)})


def last_after_its_bound_was_read(client, kbo_ax):
    kbo_ax.interval(client, {"x": 0.5})
    client.attach_data(4, {"loss": 0.5})


def back_again(client, kbo_ax):
    client.attach_data(1, {"loss": 0.5})
    completed(client)
    client.attach_data(1, {"loss": 0.7})


@pytest.mark.parametrize(
    ("change", "kept", "saved"),
    [
        (same_value_again, True, False),
        (same_value_again, True, True),
        (first_of_the_filling_points, False, False),
        (last_but_one, False, True),
        (standard_error, False, False),
        (last_after_its_bound_was_read, False, True),
        (back_again, False, False),
    ],
)
def test_a_value_that_is_overwritten_in_ax_removes_the_guarantee(change, kept, saved, tmp_path):
    _, kbo_ax = ax_parts()
    client = stored(client_of(), tmp_path) if saved else client_of()
    assert kbo_ax.guarantee(client).startswith("certified") or change is last_after_its_bound_was_read
    change(client, kbo_ax)
    said = kbo_ax.guarantee(stored(client, tmp_path) if saved else client)
    assert said.startswith("certified" if kept else "not certified")
    assert kept or "with values that were overwritten later" in said
