"""Data that were read before: a value that is overwritten later may have been selected by its noise."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ax.adapter.base import Adapter
from ax.adapter.data_utils import ExperimentData
from ax.adapter.transforms.base import Transform
from ax.core.base_trial import BaseTrial
from ax.core.observation import ObservationFeatures
from ax.core.search_space import SearchSpace

_SEEN = "kbo:seen"
_DIGITS = 6  # of the largest value, since Ax stores ten decimals


class Seen(Transform):
    """Changes nothing, and keeps with every point that it sees proposed which data there were.

    A record has the ``last`` trial with data, those before it ``without``, and a digest of each column of the data.
    """

    no_op_for_experiment_data = True

    def __init__(
        self,
        search_space: SearchSpace | None = None,
        experiment_data: ExperimentData | None = None,
        adapter: Adapter | None = None,
        config: Any = None,
    ) -> None:
        super().__init__(search_space, experiment_data, adapter, config)
        self._columns: dict[str, dict[tuple[Any, ...], float]] = {}
        self._record: dict[str, Any] | None = None
        if experiment_data is not None and len(data := experiment_data.observation_data):
            rows = [tuple(row) for row in data.index]
            self._columns = {" ".join(map(str, c)): dict(zip(rows, data[c].tolist(), strict=True)) for c in data}
            known = {int(row[0]) for row in rows}
            without = sorted(set(range(max(known))) - known)
            self._record = {"last": max(known), "without": without, "digests": self._digests(max(known), without)}

    def untransform_observation_features(
        self, observation_features: list[ObservationFeatures]
    ) -> list[ObservationFeatures]:
        """Return the points with the record of the data."""
        for features in observation_features if self._record else ():
            features.metadata = {**(features.metadata or {}), _SEEN: self._record}
        return observation_features

    def note(self, newest: BaseTrial) -> None:
        """Keep the record with the newest trial, as long as there is no later point; unless it has one of these."""
        noted = newest.run_metadata.get(_SEEN, [])
        if self._record and not any(
            (one["last"], one["without"]) == (self._record["last"], self._record["without"]) for one in noted
        ):
            newest.update_run_metadata({_SEEN: [*noted, self._record]})

    def overwritten(self, trials: Iterable[BaseTrial]) -> int:
        """The number of records with these trials which the present data contradict."""
        count = 0
        for trial in trials:
            runs = [run.candidate_metadata_by_arm_signature or {} for run in trial.generator_runs]
            records = [one[_SEEN] for run in runs for one in run.values() if one and _SEEN in one]
            for record in [*trial.run_metadata.get(_SEEN, []), *records]:
                now = self._digests(record["last"], record["without"])
                count += any(now.get(column) != digest for column, digest in record["digests"].items())
        return count

    def _digests(self, last: int, without: Iterable[int]) -> dict[str, str]:
        """The digest of each column at the trials up to the last."""
        left_out = set(without)
        return {
            name: _digest({row: y for row, y in column.items() if row[0] <= last and row[0] not in left_out})
            for name, column in self._columns.items()
        }


def _digest(column: Mapping[tuple[Any, ...], float]) -> str:
    """A digest of numbers, to ``_DIGITS`` digits of the largest."""
    largest = max((abs(y) for y in column.values() if math.isfinite(y)), default=0.0)
    unit = 10.0 ** (math.floor(math.log10(largest)) - _DIGITS) if largest else 1.0
    rounded = [(row, round(y / unit) if math.isfinite(y) else str(y)) for row, y in sorted(column.items())]
    return hashlib.sha256(repr(rounded).encode()).hexdigest()[:16]
