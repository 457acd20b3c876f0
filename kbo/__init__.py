"""kbo: Bayesian optimisation with guarantees, at scale, on PyTorch, GPyTorch and BoTorch."""

from kbo.regression import KernelRidge

__all__ = ["KernelRidge"]
