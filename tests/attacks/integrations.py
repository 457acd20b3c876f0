"""Sequences in studies of Optuna and experiments of Ax."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

import kbo
from tests.attacks.functions import Function, radial
from tests.attacks.play import COPIES, Play, outside

DELTA = 1e-3
GRID = [i / 8 for i in range(9)]


class Loss:
    """A function of one number at the edge of its norm bound, its noise, and the certified setting."""

    def __init__(self, play: Play) -> None:
        self.play = play
        name = play.pick("rbf", "matern32", "matern52")
        self.sigma, self.B, self.signs = (
            play.pick(0.01, 0.3),
            play.pick(1.0, 2.0),
            play.pick(True, False),
        )
        kernel, values = radial(name, 0.3)
        self.f = Function(values, np.array(GRID)[:, None], self.B, play.rng)
        self.setting = kbo.Certified(kernel, self.sigma, self.B, DELTA)
        play.moves.append(
            f"{name} kernel, sigma={self.sigma}, B={self.B}, {'signs' if self.signs else 'Gaussian'}"
        )

    def true(self, x: float) -> float:
        """Return the value without noise."""
        return float(self.f(np.array([[x]]))[0])

    def noise(self) -> float:
        """Return the noise of one evaluation."""
        return float(self.play.noise(1, self.sigma, self.signs)[0])

    def __call__(self, x: float) -> float:
        return self.true(x) + self.noise()

    def outside(self, bounds: list[Any]) -> bool:
        """Return whether an interval on the grid is wrong, or a number NaN."""
        lower, middle, upper = np.array(bounds).T
        return bool(np.isnan(middle).any()) or outside(
            lower, upper, self.f(np.array(GRID)[:, None])
        )


def in_optuna(play: Play) -> None:
    """Play one sequence in a study of Optuna."""
    import optuna

    from kbo.integrations.optuna import KBOSampler

    loss, rng = Loss(play), play.rng
    seed = rng.randrange(1000)

    def sampler(seed: int) -> Any:
        return KBOSampler(setting=loss.setting, seed=seed)

    def objective(trial: Any) -> float:
        return loss(trial.suggest_float("x", 0.0, 1.0))

    study: Any = optuna.create_study(sampler=sampler(seed))

    def more() -> None:
        study.optimize(objective, n_trials=rng.randint(1, 3))

    def enqueued() -> None:
        study.enqueue_trial({"x": rng.random()})
        more()

    def failing() -> None:
        """Trials whose failure depends on their noise, at one point."""
        x = rng.random()

        def selected(trial: Any) -> float:
            e, x = loss.noise(), trial.suggest_float("x", 0.0, 1.0)
            if e < 0:
                raise optuna.TrialPruned
            return loss.true(x) + e

        for _ in range(20):
            study.enqueue_trial({"x": x})
        study.optimize(selected, n_trials=20)

    def own_again(of: Any = study) -> None:
        worst = max(of.trials, key=lambda t: abs((t.value or 0.0) - loss.true(t.params["x"])))
        study.add_trials([worst] * 60)

    def of_another_study() -> None:
        other = optuna.create_study(sampler=sampler(seed + 1))
        other.optimize(objective, n_trials=6)
        own_again(other)

    def of_random_sampler() -> None:
        study.sampler = optuna.samplers.RandomSampler(seed=seed)
        more()
        study.sampler = sampler(seed)

    def copied() -> None:
        study.sampler = COPIES["pickle"](study.sampler)

    moves = [
        more,
        *(play.pick(more, more, more, copied, enqueued) for _ in range(rng.randint(1, 3))),
    ]
    play.all(moves, 1, [own_again, of_another_study, failing, of_random_sampler])

    def wrong() -> bool:
        found = [study.sampler.interval(study, {"x": x}) for x in GRID]
        return None not in found and loss.outside(found)

    play.judge(
        "Optuna", DELTA, lambda: study.sampler.guarantee(study).startswith("certified"), wrong
    )


def in_ax(play: Play) -> None:
    """Play one sequence in an experiment of Ax."""
    from ax.api.client import Client
    from ax.api.configs import RangeParameterConfig

    import kbo.integrations.ax as kbo_ax

    loss, rng = Loss(play), play.rng
    client = Client(random_seed=rng.randrange(1000))
    client.configure_experiment(
        [RangeParameterConfig(name="x", parameter_type="float", bounds=(0.0, 1.0))], name="test"
    )
    client.configure_optimization(objective="-loss")
    client.set_generation_strategy(kbo_ax.generation_strategy(setting=loss.setting))
    box, done = [client], []

    def more() -> None:
        for number, point in box[0].get_next_trials(1).items():
            box[0].complete_trial(number, {"loss": loss(float(point["x"]))})
            done.append(number)

    def saved() -> None:
        with tempfile.TemporaryDirectory() as folder:
            box[0].save_to_json_file(f"{folder}/ax.json")
            box[0] = Client.load_from_json_file(f"{folder}/ax.json")

    def again() -> None:
        getattr(box[0], play.pick("complete_trial", "attach_data"))(
            play.pick(*done[:-1]), {"loss": 20 * loss.B}
        )

    def attached() -> None:
        x = rng.random()
        for _ in range(40):
            number = box[0].attach_trial({"x": x})
            box[0].complete_trial(
                number, {"loss": loss.true(x) + 3 * loss.sigma * (1 + 0.01 * rng.random())}
            )

    def failing() -> None:
        for number in box[0].get_next_trials(1):
            box[0].mark_trial_failed(number)

    def other_value_at_once() -> None:
        more()
        kbo_ax.interval(box[0], {"x": 0.5})
        box[0].attach_data(done[-1], {"loss": -20 * loss.B})

    moves = [more, more, more, *(play.pick(more, more, saved) for _ in range(rng.randint(1, 2)))]
    play.all(moves, 3, [again, again, other_value_at_once, attached, failing])

    def wrong() -> bool:
        return loss.outside([kbo_ax.interval(box[0], {"x": x}) for x in GRID])

    play.judge("Ax", DELTA, lambda: kbo_ax.guarantee(box[0]).startswith("certified"), wrong)
