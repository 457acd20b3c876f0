"""BoTorch acquisition functions over the models of kbo: the rule of posterior x confidence x rule."""

from kbo.acquisition import input_constructors  # registers with BoTorch
from kbo.acquisition.thompson import InflatedPosteriorSampling, InflatedThompsonSampling, inflated_draws
from kbo.acquisition.ucb import AMMUCB, CMMUCB, DMMUCB, ChainingUCB, KernelUCB

__all__ = [
    "AMMUCB",
    "CMMUCB",
    "DMMUCB",
    "ChainingUCB",
    "InflatedPosteriorSampling",
    "InflatedThompsonSampling",
    "KernelUCB",
    "inflated_draws",
    "input_constructors",
]
