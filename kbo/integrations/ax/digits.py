"""Outcomes to the digits that survive Ax's storage, so that a run that is resumed sees what it saw before."""

from __future__ import annotations

import math

import numpy as np
from ax.adapter.data_utils import ExperimentData
from ax.adapter.transforms.base import Transform

_DECIMALS, _DIGITS = 10, 12
"""Ax stores ten decimals, and reading them back may miss the last bit of a number."""

_SMALL = 1e-3
"""Outcomes that are all smaller than this are left alone: storage keeps too few of their digits to agree on."""


class StoredDigits(Transform):
    """Rounds outcomes and standard errors to ten decimals and to twelve digits, each by itself."""

    def transform_experiment_data(self, experiment_data: ExperimentData) -> ExperimentData:
        """The data to these digits."""
        data = experiment_data.observation_data
        for column in data.columns:
            if column[0] in ("mean", "sem"):
                data[column] = _rounded(data[column].to_numpy(dtype=float))
        return ExperimentData(arm_data=experiment_data.arm_data, observation_data=data)


def _rounded(values: np.ndarray) -> np.ndarray:
    finite = np.abs(values[np.isfinite(values)])
    if not len(finite) or finite.max() < _SMALL:
        return values
    return np.array([_round(value) for value in values.tolist()])


def _round(value: float) -> float:
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, min(_DECIMALS, _DIGITS - 1 - math.floor(math.log10(abs(value)))))
