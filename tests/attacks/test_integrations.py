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
