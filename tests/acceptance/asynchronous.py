"""Regret after 80 trials with 4 at a time, against one at a time: ``python -m tests.acceptance.asynchronous [SEEDS]``.

The workers are simulated: a trial takes between .8 and 1.2 units of time, and values are reported in that order.
"""

import heapq
import random
import statistics
import sys

from botorch.test_functions import Ackley, Rosenbrock

import kbo
from experiments.problems.tuning import NoisyFunction, branin, hartmann6, levy

FUNCTIONS = {
    "branin": branin,
    "hartmann6": hartmann6,
    # The optimum is not at the centre, the first point of every run.
    "ackley": lambda seed: NoisyFunction(
        "ackley", Ackley(dim=5, bounds=[(-24.0, 32.0)] * 5), 0.3, seed
    ),
    "levy": levy,
    "rosenbrock": lambda seed: NoisyFunction("rosenbrock", Rosenbrock(dim=4), 10.0, seed),
}
TRIALS = 80


def regret(problem, workers, seed):
    """Return the regret of the recommended parameters, of the function without noise."""
    optimizer, clock = kbo.Optimizer(problem.space, seed=seed), random.Random(seed)
    running, now = [], 0.0
    while len(optimizer.completed()) < TRIALS:
        while len(running) < min(workers, TRIALS - len(optimizer.completed())):
            heapq.heappush(
                running, (now + clock.uniform(0.8, 1.2), len(optimizer.trials), optimizer.begin())
            )
        now, _, trial = heapq.heappop(running)
        optimizer.tell(trial, problem(trial.params))
    return problem.noiseless(optimizer.recommended().params) - problem.optimum


def main(seeds):
    """Print mean regrets and the ratio of geometric means for each function."""
    print(
        "| function | one at a time | 4 at a time | of medians | of geometric means |\n|---|---|---|---|---|"
    )
    for name, make in FUNCTIONS.items():
        found = {
            q: [max(regret(make(seed=seed), q, seed), 1e-12) for seed in range(seeds)]
            for q in (1, 4)
        }
        one, four = found[1], found[4]
        medians = statistics.median(four) / statistics.median(one)
        means = statistics.geometric_mean(four) / statistics.geometric_mean(one)
        shown = (f"{statistics.median(values):.3g}" for values in (one, four))
        print(f"| {name} | {' | '.join(shown)} | {medians:.2f} | {means:.2f} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
