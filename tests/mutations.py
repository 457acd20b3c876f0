"""Hand-made faults, each of which the tests must find: ``make mutations``, or ``python -m tests.mutations WORD ..``.

Every fault replaces one piece of text in one file of a copy of the project; the tests named beside it, all part of
``make test``, must then fail. Words select the faults whose file, new text or device contains one of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Fault(NamedTuple):
    """A piece of text ``old`` of a file of kbo, what replaces it, arguments of pytest, and the device of the tests."""

    file: str
    old: str
    new: str
    tests: str
    device: str = "cpu"


LAWS = "tests/laws/test_states.py -k"
REFILL = "tests/laws/test_refill.py -k"
BOUNDS = "tests/laws/test_confidences.py -k"
MEASURED = "tests/test_constraints.py -k"
KNOWN = "tests/test_known_constraints.py -k"
SAFE = "tests/test_safe_setting.py -k"

FAULTS = [
    # Exact posteriors
    Fault(
        "regression/exact/one_ridge.py",
        "else self.ridge / data.counts[start:stop]",
        "else self.ridge",
        f"{LAWS} repeated_points",
    ),
    Fault(
        "regression/exact/one_ridge.py",
        "self.ridge**2 * (solved.square() / self.data.counts)",
        "self.ridge**2 * solved.square()",
        f"{LAWS} along_a_stream",
    ),
    Fault(
        "regression/exact/one_ridge.py",
        "self.ridge / self.data.counts * inverse_diagonal",
        "self.ridge * inverse_diagonal",
        f"{LAWS} repeated_points",
    ),
    Fault(
        "regression/exact/one_ridge.py",
        "return self.data.within + self.ridge * self.factor.z",
        "return self.ridge * self.factor.z",
        f"{LAWS} repeated_points",
    ),
    Fault(
        "regression/exact/observations.py",
        "within = (counts * (y - mean[index]) ** 2).sum()",
        "within = ((y - mean[index]) ** 2).sum()",
        f"{LAWS} thousands_of_pulls",
    ),
    Fault(
        "regression/exact/state.py",
        "if self.data.layout != layout:",
        "if self.data.layout < layout:",
        f"{LAWS} repeated_points",
    ),
    Fault(
        "regression/exact/state.py",
        "= self.data.trace + trace, max",
        "= trace, max",
        f"{BOUNDS} bkb",
    ),
    Fault(
        "regression/resolvent.py",
        "form = ((Wp * self.p).sum(0) + s.square().sum(0))",
        "form = (Wp * self.p).sum(0)",
        f"{LAWS} every_ridge_is_exact",
    ),
    # Sketched posteriors and dictionaries
    Fault(
        "regression/sketch/one_ridge.py",
        "(prior - z.square().sum(0)).clamp_min(0).add(p.square().sum(0), alpha=self.ridge)",
        "self.ridge * p.square().sum(0)",
        f"{LAWS} equals_the_dense",
    ),
    Fault(
        "regression/sketch/all_ridges.py",
        "self.quad(at) - at.ridges * self.solved_square(at)",
        "self.quad(at)",
        f"{LAWS} equals_the_dense",
    ),
    Fault(
        "regression/sketch/follow.py",
        "alpha=factor)",
        "alpha=abs(factor))",
        f"{LAWS} tracked_points",
    ),
    Fault(
        "regression/sketch/error.py",
        "total, start = total + self._norms[start, size], start + size",
        "total, start = max(total, self._norms[start, size]), start + size",
        "tests/test_sketched.py -k residual",
    ),
    Fault(
        "regression/sketch/dictionary.py",
        "return point.weight * point.residual > self.threshold and",
        "return point.weight * point.residual > 2 * self.threshold and",
        "tests/test_dictionaries.py -k greedy",
    ),
    Fault(
        "regression/sketch/leverage.py",
        "self.gamma * (1 + self.eps) * g / (g + self.mu / point.weight)",
        "self.gamma * g / (g + self.mu / point.weight)",
        "tests/test_dictionaries.py -k online",
    ),
    Fault(
        "regression/sketch/leverage.py",
        "return 1 - (1 - once) ** sketch.rows.counts",
        "return once",
        "tests/test_dictionaries.py -k resampling",
    ),
    Fault(
        "regression/sketch/leverage.py",
        "return 1 + self._spent > self.growth",
        "return self._spent > self.growth",
        "tests/test_dictionaries.py -k batched",
    ),
    Fault(
        "optimize/optimizer.py",
        "self._best + self._allowed(fresh)",
        "self._allowed(fresh)",
        "tests/test_practical.py -k search_starts",
    ),
    Fault(
        "optimize/focus.py",
        "argsort(descending=True).argsort()",
        "argsort().argsort()",
        "tests/test_practical.py -k focused",
    ),
    # Views, copies and memories
    Fault(
        "regression/sketch/stream.py",
        "log1p((count - weight) * residual / ridge)",
        "log1p((count - 1) * residual / ridge)",
        f"{LAWS} weights",
    ),
    Fault(
        "regression/views/hypothetical.py",
        "covariance + ridge * (1 / weights).diag_embed()",
        "covariance + ridge * torch.ones_like(weights).diag_embed()",
        f"{LAWS} hypothetical",
    ),
    Fault(
        "regression/views/hypothetical.py",
        "(self.targets - self.inner.predict(self.P)[0])",
        "self.targets",
        f"{LAWS} hypothetical",
    ),
    Fault(
        "regression/views/hypothetical.py",
        "        noise = noise * self.weights.rsqrt()\n",
        "",
        f"{LAWS} drawn_functions",
    ),
    Fault(
        "regression/views/hypothetical.py",
        "self.state.fork_frozen(), self.P, self.targets, self.weights)",
        "self.state.fork_frozen(), self.P, self.targets)",
        f"{LAWS} drawn_functions",
    ),
    Fault(
        "regression/views/hypothetical.py",
        "self.P = P.clone()",
        "self.P = P",
        f"{REFILL} hypothetical",
    ),
    Fault(
        "regression/views/batch.py",
        "return self.inner.predict(X)[0], self.after.predict(X)[1]",
        "return self.after.predict(X)",
        "tests/test_methods.py -k freezes_means",
    ),
    Fault(
        "regression/views/tracked.py",
        "self._points = points.detach().clone()",
        "self._points = points.detach()",
        f"{REFILL} tracked",
    ),
    Fault(
        "regression/views/tracked.py",
        "return same and not X.requires_grad and torch.equal(X, points)",
        "return same and not X.requires_grad",
        f"{REFILL} tracked",
    ),
    Fault(
        "regression/views/adaptive_ridge.py",
        "if self._schedule.ridge != self.state.ridge:",
        "if self._schedule.ridge > self.state.ridge:",
        "tests/test_adaptive.py -k ridge_moves",
    ),
    Fault(
        "stateful.py",
        "return copy.copy(value) if isinstance(value, list | set | Lock) else value\n",
        "return value\n",
        f"{LAWS} fork",
    ),
    Fault(
        "stateful.py",
        "return value.clone() if isinstance(value, Tensor) else copy.copy(value)",
        "return value",
        f"{REFILL} saved",
    ),
    # Confidences
    Fault(
        "confidence/widths.py",
        "torch.as_tensor(log_det) + 2 * math.log(1 / delta))\n    return",
        "torch.as_tensor(log_det) + math.log(1 / delta))\n    return",
        f"{BOUNDS} self-normalised",
    ),
    Fault(
        "confidence/widths.py",
        "level**2 * t**2 * math.pi**4",
        "level * t**2 * math.pi**4",
        "tests/test_chaining.py -k constants",
    ),
    Fault(
        "confidence/self_normalized.py",
        "return log_det + missed,",
        "return log_det,",
        f"{BOUNDS} on_a_sketch",
    ),
    Fault(
        "confidence/mixture/radius.py",
        " + state.residual_log_det(ridges)",
        "",
        f"{BOUNDS} on_a_sketch",
    ),
    Fault(
        "confidence/mixture/radius.py",
        "rounded_down: bool = True",
        "rounded_down: bool = False",
        "tests/test_rounding.py -k lower_bound",
    ),
    Fault(
        "confidence/mixture/dual.py",
        "while bounds[row := int(bounds.argmax())] > least:",
        "while bounds[row := int(bounds.argmax())] > least and best < 0:",
        f"{BOUNDS} bound_of_the_exact_mixture",
    ),
    Fault(
        "confidence/noise/bounds.py",
        "(math.pi * (j + 1)) ** 2",
        "(math.pi * (j + 2)) ** 2",
        "tests/test_noise.py -k every_step",
    ),
    Fault(
        "confidence/noise/bounds.py",
        " + state.residual_log_det(ridges)",
        "",
        "tests/test_noise.py -k every_step",
    ),
    Fault(
        "confidence/noise/energy.py",
        "return t - spread, t + spread + 2 * L",
        "return t - spread, t + spread",
        "tests/test_noise.py -k every_step",
    ),
    Fault(
        "confidence/noise/energy.py",
        "(2 + math.exp(-3 * g)) / 3",
        "(1 + math.exp(-2 * g)) / 2",
        "tests/test_noise.py -k class_of_noise",
    ),
    Fault(
        "confidence/mixture/radius.py",
        " for cost in costs) / len(costs))",
        " for cost in costs))",
        "tests/laws/test_confidences.py -k scales",
    ),
    Fault(
        "confidence/noise/fit.py",
        "math.sqrt(max(fit.ridge / 2, fit.error) / fit.t)",
        "math.sqrt(fit.ridge / 2 / fit.t)",
        "tests/test_noise.py -k every_step",
    ),
    # Covers
    Fault(
        "covers/metric.py",
        "return radius * radius + self.slack",
        "return radius * radius - self.slack",
        "tests/test_covers.py -k exactly_the_radius",
    ),
    Fault(
        "covers/greedy.py",
        "        alive[new] = False\n",
        "        alive[best] = False\n",
        "tests/test_covers.py -k brute_force",
    ),
    Fault(
        "covers/chain.py",
        "self._order = torch.cat([self._order, new])",
        "self._order = torch.cat([new, self._order])",
        "tests/test_covers.py -k chains_are_those",
    ),
    # Spaces, journals, recipes, models, acquisition functions
    Fault(
        "models/streaming.py",
        "copy.deepcopy(self._likelihood, {id(ridge): self.ridge})",
        "copy.deepcopy(self._likelihood)",
        "tests/botorch/test_fitting.py",
    ),
    Fault(
        "models/base.py",
        "return X if transform is None else transform.preprocess_transform(X)",
        "return self.transform_inputs(X)",
        "tests/botorch/test_guest.py -k perturbed",
    ),
    Fault(
        "models/streaming.py",
        "        self._own_likelihood()._apply(fn)\n",
        "",
        "tests/botorch/test_fitting.py -k limits_and_priors",
    ),
    Fault(
        "models/streaming.py",
        "built is None or hyperparameters != built[0]",
        "built is None",
        "tests/test_models.py -k changed_hyper_parameter",
    ),
    Fault(
        "models/base.py",
        "if not math.isfinite(total):",
        "if total > math.inf:",
        "tests/test_models.py -k posterior_at_bad_points",
    ),
    Fault(
        "acquisition/ucb.py",
        "self._conditioned[0] != state.version",
        "not state.version",
        "tests/test_acquisition.py -k follow_a_changed_model",
    ),
    Fault(
        "regression/views/hypothetical.py",
        "factor[0].requires_grad or not torch.is_grad_enabled()",
        "factor[0].requires_grad",
        "tests/test_models.py -k gradients_after_values_without",
    ),
    Fault(
        "models/gps.py",
        "if mode and not self.training:",
        "if mode:",
        "tests/botorch/test_fitting.py -k keeps_its_anchors",
    ),
    Fault(
        "models/gps.py",
        "yield _Term(-0.5 * (missed",
        "yield _Term(-0.0 * (missed",
        "tests/botorch/test_fitting.py -k collapsed",
    ),
    Fault("recipes/pareto.py", " - itself.long()", "", "tests/test_pareto.py"),
    Fault("recipes/pareto.py", "~front & (_count", "(_count", "tests/test_pareto.py"),
    Fault(
        "integrations/optuna/study.py",
        "(event.result, event.measured)",
        "event.result",
        "tests/test_optuna.py -k certified_constraints",
    ),
    Fault(
        "acquisition/constrained.py",
        "torch.stack(slacks).amin(0)",
        "torch.stack(slacks).amax(0)",
        "tests/test_constrained_acquisition.py",
    ),
    Fault(
        "space/parameters.py",
        "a, b = self.low - 0.5, self.low + len(self.options) - 0.5",
        "a, b = self.low, self.high",
        "tests/test_space.py",
    ),
    Fault(
        "space/parameters.py",
        "x = self.low * (self.high / self.low) ** u if self.log",
        "x = self.low * (self.high / self.low) ** u if not self.log",
        "tests/test_space.py",
    ),
    Fault(
        "space/parameters.py",
        "return self.low * (self.high / self.low) ** u if self.log",
        "return self.low * (self.high / self.low) ** u if not self.log",
        f"{KNOWN} sum_is_of_the_values",
    ),
    Fault("space/constraints.py", "low - rounding, high + rounding", "low, high", f"{KNOWN} rounding_errors"),
    Fault("space/program.py", "(row - margin) / scale", "(row + margin) / scale", f"{KNOWN} cannot_be_satisfied"),
    Fault(
        "space/feasible.py",
        "        found[outside] = points[outside]\n",
        "",
        f"{KNOWN} narrow_sets",
    ),
    Fault(
        "space/feasible.py",
        "        found[left[inside]] = candidates[inside]\n",
        "",
        f"{KNOWN} uniform",
    ),
    Fault(
        "optimize/proposal.py",
        "    points = points[restriction.satisfies(points)]\n",
        "",
        f"{KNOWN} every_point_of_a_run",
    ),
    Fault(
        "optimize/inference.py",
        "return max(allowed, key=lambda trial: merits",
        "return max(complete, key=lambda trial: merits",
        f"{KNOWN} never_recommended",
    ),
    Fault("space/space.py", "active[:, j] & torch.isin(", "torch.isin(", "tests/test_space.py -k active_parameters"),
    Fault(
        "space/space.py",
        "torch.where(active[:, i], arc if p.columns == 1 else part, 0.0)",
        "part",
        "tests/test_space.py -k exactly_where",
    ),
    Fault(
        "space/parameters.py",
        "(self.index(u).to(u) / (len(self.options) - 1))",
        "(self.index(u).to(u) / len(self.options))",
        "tests/test_space.py -k equal_cells",
    ),
    Fault(
        "optimize/proposal.py",
        "above = 1 + z * math.sqrt(math.pi / 2)",
        "above = 1 - z * math.sqrt(math.pi / 2)",
        "tests/test_conditional.py -k improvement",
    ),
    Fault(
        "integrations/optuna/space.py",
        "in active for each in lacking",
        "not in active for each in lacking",
        "tests/test_conversions.py -k show_in_the_trials",
    ),
    Fault(
        "confidence/widths.py",
        "2 * math.log(n_points / delta)))",
        "math.log(n_points / delta)))",
        "tests/test_tilting.py",
    ),
    Fault("confidence/widths.py", "/ 2 - math.log(2)))", "/ 2))", "tests/test_gaussian.py"),
    Fault(
        "optimize/journal.py",
        "self._file.truncate(self._size)\n        return",
        "pass\n        return",
        "tests/test_journal.py -k truncated",
    ),
    Fault("optimize/events.py", "if sealed != text:", "if False:", "tests/test_faults.py -k unnoticed"),
    Fault("optimize/guarded.py", "if self._torn:", "if False:", "tests/test_faults.py -k interrupt"),
    Fault("optimize/run.py", "t.starts - t.released >= MOST_STARTS", "False", "tests/test_faults.py -k lost_twice"),
    Fault(
        "optimize/practical.py",
        "best_observed if self.exact else cautious_mean",
        "cautious_mean",
        "tests/test_practical.py -k without_noise",
    ),
    Fault(
        "optimize/learner.py",
        "abs(y - value) <= _ROUNDING * (max(self._y) - min(self._y))",
        "True",
        "tests/test_practical.py -k one_repetition",
    ),
    Fault(
        "optimize/recommendation.py", "values.amax(-1) -", "values.mean(-1) -", "tests/test_recommendation.py -k sure"
    ),
    Fault("optimize/model.py", "+ part * pair[0].log_slope(y)", "", "tests/test_practical.py -k skewed_noise"),
    Fault("optimize/region.py", "else max(self.radius, START)", "else self.radius", "tests/test_region.py -k grows"),
    Fault("optimize/proposal.py", ").clamp(low, high)", ").clamp(0, 1)", "tests/test_region.py -k valley"),
    Fault("optimize/belief.py", "confidence.in_turn(search.number)", "confidence", "tests/test_practical.py -k batch"),
    Fault("optimize/targets.py", "above - 1, below - 1", "1 - above, below - 1", "tests/test_targets.py -k densities"),
    Fault("optimize/proposal.py", "+ probability(features)", "", "tests/test_constrained_rules.py -k best_feasible"),
    Fault(
        "optimize/targets.py", "power=power, below=power", "power=power", "tests/test_constrained_rules.py -k bijection"
    ),
    Fault(
        "checks.py",
        "if (largest := max(map(abs, targets))) > most:",
        "if (largest := max(map(abs, targets))) == math.inf:",
        "tests/laws/test_extremes.py -k nan",
    ),
    Fault(
        "experiments/sweep/cells.py",
        "and _sealed(content) != content:",
        "and not _sealed(content):",
        "tests/test_experiments.py -k flipped",
    ),
    Fault(
        "optimize/pruning.py",
        "(1 + 1 / n + leverage)",
        "(1 / n + leverage)",
        "tests/test_pruning.py -k prediction_interval",
    ),
    Fault(
        "optimize/pruning.py",
        "> _PRUNED * len(known)",
        "> 99 * len(known)",
        "tests/test_pruning.py -k will_not_be_the_best",
    ),
    Fault(
        "optimize/loop.py",
        "[self._recorded(outcome) for outcome in outcomes]",
        "map(self._recorded, outcomes)",
        "tests/test_workers.py -k arrive_together",
    ),
    Fault(
        "optimize/run.py",
        "self._trials.unfinished(params.number).number",
        "params.number",
        "tests/test_journal.py -k has_ended",
    ),
    Fault(
        "optimize/run.py",
        "number = self._expect(params, asked=False).number\n        return",
        "number = self._number_of(params)\n        return",
        "tests/test_known.py -k ended_at",
    ),
    Fault("optimize/trials.py", "event.reason), event.measured", "event.reason), {}", f"{MEASURED} failed_trial_has"),
    Fault("optimize/constrained.py", "one.belief.proved(ways) is not None for", "True for", f"{MEASURED} remove"),
    Fault("optimize/inference.py", "one.belief.proved() is None for", "False for", f"{MEASURED} remove_that"),
    Fault(
        "optimize/infeasible.py", "if float(least[row]) >= 0:", "if float(least[row]) < 0:", f"{MEASURED} infeasible"
    ),
    Fault("optimize/certified.py", "delta=self.delta / outputs", "delta=self.delta", f"{MEASURED} says_that"),
    Fault("optimize/certified.py", "return -largest >= constraint.limit", "return False", f"{MEASURED} no_probability"),
    Fault("workers/call.py", "trial.end()", "pass", "tests/test_workers.py -k reports_after"),
    Fault(
        "workers/child.py",
        "fcntl.fcntl(parent_pipe, fcntl.F_SETOWN, -os.getpgrp())",
        "pass",
        "tests/test_workers.py -k busy_worker",
    ),
    Fault(
        "optimize/loop.py",
        "begin(**next(iter(first), {}))",
        "begin()",
        "tests/test_known.py -k run_begins",
    ),
    Fault(
        "optimize/pruning.py",
        "if twin.starts != trials[number].starts:",
        "if False:",
        "tests/test_pruning.py -k started_again",
    ),
    Fault(
        "optimize/pruning.py",
        "len(trial.reports) < self._most and self._pruner",
        "self._pruner",
        "tests/test_pruning.py -k last_step",
    ),
    Fault(
        "optimize/optimizer.py",
        "matched = {} if self.setting.certified else",
        "matched =",
        "tests/test_pruning.py -k certifies_nothing",
    ),
    Fault(
        "optimize/known.py",
        ".returned)) for trial in trials if not trial.asked",
        ".returned)) for trial in trials",
        "tests/test_known.py -k recorded_once",
    ),
    Fault(
        "problems/bbob.py",
        "heavy = _GAUSS_TO_T3 / float(",
        "heavy = 1.0 / float(",
        "tests/test_bbob.py -k promised",
    ),
    Fault(
        "experiments/tuning/comparison.py",
        "if trial in checkpoints or improved:",
        "if trial in checkpoints:",
        "tests/test_tuning.py -k better_than_all",
    ),
    Fault(
        "experiments/tuning/ranks.py",
        "(mine > other) + 0.5 * (mine == other)",
        "(mine > other)",
        "tests/test_ranks.py -k by_hand",
    ),
    Fault(
        "experiments/tuning/ranks.py",
        "np.tensordot(weights, lost, 1) / np.tensordot(weights, met.astype(float), 1)",
        "np.tensordot(weights, lost, 1) / weights.sum(-1)[:, None, None]",
        "tests/test_ranks.py -k few_runs",
    ),
    # Devices: a copy to the host forgotten, a generator and numbers and an index of the wrong device
    Fault("covers/greedy.py", "table = near.cpu().numpy()", "table = near.numpy()", "tests/test_covers.py", "standin"),
    Fault(
        "regression/numerics.py",
        "generator=generator, dtype=covariance.dtype).to(covariance.device)",
        "generator=generator, dtype=covariance.dtype, device=covariance.device)",
        "tests/test_thompson.py tests/test_sketched.py",
        "standin",
    ),
    Fault(
        "regression/exact/one_ridge.py",
        "torch.eye(self.data.rows, dtype=self.data.X.dtype, device=self.data.X.device)",
        "torch.eye(self.data.rows, dtype=self.data.X.dtype)",
        f"{LAWS} formulas",
        "standin",
    ),
    Fault(
        "regression/exact/observations.py",
        "index = torch.tensor(group, device=X.device)",
        "index = torch.tensor(group)",
        f"{LAWS} repeated_points",
        "standin",
    ),
    # Reports
    Fault("report/sensitivity.py", "/ (2 * variance)", "/ variance", "tests/test_figures.py -k additive"),
    Fault("report/sensitivity.py", "(b * (mixed - a))", "(a * (mixed - a))", "tests/test_figures.py -k additive"),
    Fault("report/figures/timeline.py", "if moment <= start", "if moment < start", "tests/test_figures.py -k lanes"),
    Fault(
        "experiments/draw/lines.py",
        ', "transform": axes.get_xaxis_transform()}',
        "}",
        "tests/test_figures.py -k keep_their_crosses",
    ),
    Fault(
        "report/live.py",
        'if host in ("127.0.0.1", "localhost") else',
        "if host else",
        "tests/test_live.py -k this_machine_only",
    ),
    # Safe exploration
    Fault(
        "recipes/safe.py",
        "limit.certain(self.points[rows]), ",
        "limit.possible(self.points[rows]), ",
        "tests/test_safe.py -k every_point_is_safe",
    ),
    Fault("recipes/safe.py", "(self._slack >= 0).all(0)", "(self._slack >= 0).any(0)", f"{SAFE} every_limit"),
    Fault("optimize/exploration.py", "if len(known) < self._n_limits:", "if not known:", f"{SAFE} every_limit"),
    Fault("optimize/exploration.py", " and one.belief.proved()", "", f"{SAFE} add_nothing"),
    Fault(
        "optimize/exploration.py",
        "        if self._refuted is not None:\n",
        "        if False:\n",
        f"{SAFE} measured_to_be_unsafe",
    ),
]


def main(words: list[str]) -> int:
    """Apply each fault, run its tests, and print what became of it; the exit status is the number of survivors."""
    texts = [(fault, fault.file + fault.new + fault.device) for fault in FAULTS]
    chosen = [fault for fault, text in texts if not words or any(word in text for word in words)]
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("kbo", "tests"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        for number, fault in enumerate(chosen, 1):
            verdict = attempt(fault, copy)
            survived += verdict != "killed"
            print(f"{number:2d}/{len(chosen)} {verdict:9s} {fault.file}: {fault.new.strip()[:80]!r}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} faults were found.")
    return survived


def attempt(fault: Fault, copy: Path) -> str:
    """Whether the tests of a fault fail on the copy with it: killed, survived, or what went wrong."""
    file = copy / "kbo" / fault.file
    text = file.read_text("utf-8") if file.exists() else ""
    if text.count(fault.old) != 1:
        return f"{text.count(fault.old)} places"
    file.write_text(text.replace(fault.old, fault.new), "utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *fault.tests.split()]
    environment = {**os.environ, "PYTHONPATH": str(copy), "KBO_TEST_DEVICE": fault.device}
    try:
        run = subprocess.run(command, cwd=copy, capture_output=True, env=environment)
    finally:
        file.write_text(text, "utf-8")
    return {0: "survived", 1: "killed", 5: "no tests"}.get(run.returncode, f"error {run.returncode}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
