"""BoTorch acquisition functions over the models of kbo: the rule of posterior x confidence x rule."""

from kbo.acquisition.thompson import InflatedPosteriorSampling, InflatedThompsonSampling
from kbo.acquisition.ucb import AMMUCB, CMMUCB, DMMUCB, KernelUCB

__all__ = ["AMMUCB", "CMMUCB", "DMMUCB", "InflatedPosteriorSampling", "InflatedThompsonSampling", "KernelUCB"]
