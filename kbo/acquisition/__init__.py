"""BoTorch acquisition functions over the models of kbo: the rule of posterior x confidence x rule."""

from kbo.acquisition.ucb import AMMUCB, CMMUCB, DMMUCB, KernelUCB

__all__ = ["AMMUCB", "CMMUCB", "DMMUCB", "KernelUCB"]
