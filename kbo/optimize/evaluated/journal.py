"""Known results from the journal of another run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kbo.errors import InvalidInput, JournalError
from kbo.optimize.evaluated.given import GivenResults, Row, examples
from kbo.optimize.objectives.objective import Objective, main_of, recorded_objectives
from kbo.optimize.run.events import Ask, Change, Correct, Event, Fail, Prune, Remove, Tell
from kbo.optimize.run.journal import read
from kbo.space import Params


def results_of_journal(path: Path, maximize: bool, objectives: Sequence[Objective]) -> GivenResults:
    """Return the completed trials of a journal of any space, and a sentence about the other trials.

    Args:
        path: The journal.
        maximize: Whether larger values are better.
        objectives: Several objectives; none if there is one.

    Raises:
        InvalidInput: The journal cannot be read, or is of a run with other objectives.
    """
    try:
        header, events = read(path)
    except JournalError as error:
        raise InvalidInput(f"evaluated: {error}") from error
    recorded = recorded_objectives(header)
    if _directions(recorded) != _directions(objectives):
        texts = ", ".join(map(str, recorded)) or "one objective"
        raise InvalidInput(f"evaluated: {path} is of a run with other objectives: {texts}.")
    if not objectives and header.get("maximize") != maximize:
        raise InvalidInput(
            f"evaluated: {path} is of a run that {'minimises' if maximize else 'maximises'}."
        )
    ends = _Ends()
    for event in events:
        ends.add(event)
    rows = []
    for number, (value, measured) in ends.returned.items():
        if recorded:  # perhaps in another order
            measured = {main_of(recorded): value, **measured}
            value = measured.pop(main_of(objectives))
        rows.append(Row(f"trial {number}", ends.params[number], (value, measured)))
    left_out = []
    if ends.unfinished:
        trials = [f"Trial {number}: {status}." for number, status in ends.unfinished.items()]
        left_out.append(f"{len(trials)} trials of {path}, which have no value. {examples(trials)}")
    return GivenResults(rows, left_out)


class _Ends:
    """The outcomes of the trials of a journal, by number, collected from its events.

    ``Trials`` cannot be used here: it has parameters in the last space of the journal, where some trials have no place.

    Attributes:
        params: The parameters. A parameter that was added by a change of the space has the value that ``was`` gives it.
        returned: For trials with a value: the value after the last correction, and the other measurements.
        unfinished: The status of the other trials, in words.
    """

    def __init__(self) -> None:
        self.params: dict[int, Params] = {}
        self.returned: dict[int, tuple[float, dict[str, float]]] = {}
        self.unfinished: dict[int, str] = {}

    def add(self, event: Event) -> None:
        """Apply an event."""
        match event:
            case Ask():
                self.params[event.number] = event.params
                self.unfinished[event.number] = "pending"
            case Change():
                for number, params in self.params.items():
                    if isinstance(params, dict):
                        self.params[number] = {**event.was, **params}
            case Fail():
                self.unfinished[event.number] = "failed"
            case Prune():
                self.unfinished[event.number] = "stopped early"
            case Remove():
                self.unfinished[event.number] = "removed"
                self.returned.pop(event.number, None)
            case Tell() | Correct():
                self.unfinished.pop(event.number, None)
                self.returned[event.number] = (event.value, event.measured)


def _directions(objectives: Sequence[Objective]) -> dict[str, bool]:
    """Return whether each of several objectives is maximised, by its name."""
    return {objective.name: objective.maximize for objective in objectives}
