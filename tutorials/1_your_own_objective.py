# %% [markdown]
# # Your own objective with guarantees
#
# You have something to tune. Every evaluation takes long, and its result is noisy. This
# tutorial finds a good setting, states how good it is, and explains what this statement
# assumes.
#
# The example: a machine needs energy for every part that it makes, and how much depends
# on its speed. A test run at one speed takes an hour. It gives the energy in kJ per
# part, as a difference from the data sheet, with a scatter of 0.2 kJ. Which speed
# between 20 and 120 m/min needs the least?

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel

import kbo
from experiments.problems import RKHSBandit
from kbo.acquisition import CMMUCB
from kbo.confidence import UnknownNorm, candidate_gap, norm_lower_bound
from kbo.models import KernelRidgeGP

QUICK = bool(os.environ.get("KBO_TUTORIAL_QUICK"))  # shorter loops, for automatic tests
torch.manual_seed(0)
plt.rcParams.update({"figure.dpi": 150, "font.size": 9})
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#7f7f7f"  # safe for the colour-blind

# %% [markdown]
# We need a machine for the example. In your work this part is a training script, an
# instrument or a simulator. Here it is a function that we know, so that we can check
# afterwards whether the statements of kbo were true.

# %%
kernel = MaternKernel(nu=2.5).double().requires_grad_(False)
kernel.lengthscale = 0.2
centres = torch.tensor([[0.12], [0.38], [0.63], [0.90]], dtype=torch.double)
weights = torch.tensor([1.2, -1.1, -2.6, 1.5], dtype=torch.double)


def unit(speed):
    """Speeds as a column of numbers between 0 and 1."""
    return (torch.as_tensor(speed, dtype=torch.double).reshape(-1, 1) - 20) / 100


def truth(speed):
    """Energy without noise, which is unknown in practice."""
    return kernel(unit(speed), centres).to_dense() @ weights


def measure(params):
    """One test run: kJ per part more than the data sheet says."""
    return float(truth(params["speed"])) + 0.2 * float(torch.randn(()))


# %% [markdown]
# ## Five lines
#
# A run needs an objective, bounds and a number of trials.

# %%
bounds = {"speed": (20.0, 120.0)}
result = kbo.minimize(measure, bounds, n_trials=20)
print(result)

# %% [markdown]
# How to read this:
#
# * **Best** is the recommended trial. It is not always the trial with the best observed
#   value, because that value was partly luck.
# * **Value** is the estimate of the objective there, without noise, and the range in
#   which it is with 90%.
# * **More?** says whether more trials are worth it.
# * **Matters** and **Ranges** say which parameters have a visible effect, and where
#   their best values are.
# * **Certain?** says what is guaranteed. Here this is nothing: kernel and noise were
#   estimated from the same 20 values.
#
# `result.summary(full=True)` has the details.
# All of this is also available as attributes. Since we know the function, we can
# compare.

# %%
speeds = torch.linspace(20, 120, 401, dtype=torch.double)
best = float(truth(speeds).min())


def check(result):
    """Compare a result with the truth."""
    there = float(truth(result.params["speed"]))
    inside = "inside" if result.lower <= there <= result.upper else "OUTSIDE"
    interval = f"[{result.lower:.3f}, {result.upper:.3f}]"
    print(f"truth at the recommended speed {there:.3f}, {inside} {interval}")
    print(f"true regret {there - best:.3f}; the gap is {result.gap.value:.3f}")


check(result)

# %% [markdown]
# The practical setting is good for finding optima. Its interval may be right or wrong;
# there is no guarantee.
#
# ## The certified setting
#
# A bound at points that were never measured must assume something about the function.
# In the certified setting you give the assumptions, and the bounds are theorems under
# them. Four things are needed.
#
# **`kernel`** says how smooth the function is, and on what length it changes. It acts
# on the *unit cube*: kbo scales every number to $[0, 1]$ first (after its logarithm if
# it is on a log scale). Our lengthscale 0.2 means 20 m/min. If you are unsure, choose
# the safe direction: rougher (a smaller `nu`), or a shorter lengthscale. For the usual
# kernels in $d$ dimensions, a lengthscale $s$ times shorter is also correct if the norm
# bound is $s^{d/2}$ times as large.
#
# **`noise_std`** is the scatter of one evaluation, in units of the objective: here 0.2
# kJ. It must be large enough for every setting. To know it, repeat one setting twenty
# times *before* the run. The standard deviation of twenty values can easily be a
# quarter too small, so add a third. The noise need not be Gaussian, but its tails must
# be no heavier (*sub-Gaussian*). Noise with mean zero that stays within $\pm s$ counts
# as $s$.
#
# **`norm_bound`** bounds the size of the function in the kernel's own norm, in units of
# the objective. If the kernel has $k(x, x) = 1$, then $|f(x)| \le \|f\|$ everywhere, so
# the norm is at least the largest value, and it is larger for functions that vary
# quickly. There are three ways to obtain it:
#
# * from a model of the objective. If $f = \sum_i w_i k(\cdot, z_i)$, the norm is
#   $\sqrt{w^\top K w}$ with $K_{ij} = k(z_i, z_j)$;
# * from similar objectives that you measured well before;
# * from data of an earlier run, with `norm_lower_bound` (see below). It is a lower
#   bound, so take a multiple of it.
#
# The prior mean is zero, and kbo does not rescale values in this setting. If the values
# of the objective are around 50, subtract 50 (fixed in advance, not computed from the
# data). This is why our machine reports a difference from the data sheet.
#
# **`delta`** is the probability that the bounds fail although the assumptions are true.
#
# Too large a `noise_std` or `norm_bound` is safe: the bounds become wider and stay
# valid. A value that is too small is not safe.

# %%
gram = kernel(centres, centres).to_dense()
norm = float((weights @ gram @ weights).sqrt())
print(f"the true norm is {norm:.2f}; the norm bound is 4")

setting = kbo.Certified(kernel, noise_std=0.2, norm_bound=4.0, delta=0.05)
result = kbo.minimize(measure, bounds, n_trials=20, setting=setting)
print(result)
check(result)

# %% [markdown]
# The interval is wider now, because the statement is stronger: it holds for every
# function with that norm, for all speeds and after all trials at once, with probability
# 95%. You may look at it as often as you like.
#
# If an assumption is wrong, nothing is certified. kbo cannot check the assumptions for
# you, but sometimes the data contradict them; see below.
#
# ## Looking at the bounds
#
# `kbo.Optimizer` has the steps of this loop: `ask` returns a setting, `tell` records
# its value, and in between you can look at everything.

# %%
optimizer = kbo.Optimizer(bounds, setting=setting, seed=1)
few, more = (4, 12) if QUICK else (5, 30)
figure, panels = plt.subplots(1, 2, figsize=(9, 3.9), sharey=True, layout="constrained")
for axes, n in zip(panels, (few, more), strict=True):
    while len(optimizer.completed()) < n:
        params = optimizer.ask()
        optimizer.tell(params, measure(params))
    intervals = [optimizer.interval({"speed": float(s)}) for s in speeds[::2]]
    lower, mean, upper = zip(*intervals, strict=True)
    trials, chosen = optimizer.completed(), optimizer.recommended()
    low, value, high = optimizer.interval(chosen.params)
    style = {"color": BLUE, "alpha": 0.18, "lw": 0}
    axes.fill_between(speeds[::2], lower, upper, label="certified band", **style)
    axes.plot(speeds[::2], mean, color=BLUE, lw=1.2, label="estimate")
    axes.plot(speeds, truth(speeds), color="black", ls="--", lw=1.2, label="truth")
    tried = [trial.params["speed"] for trial in trials]
    values = [trial.value for trial in trials]
    axes.scatter(tried, values, s=14, color=GREY, label="measured")
    interval = [[value - low], [high - value]]
    style = {"fmt": "o", "ms": 5, "capsize": 4, "color": ORANGE}
    where = chosen.params["speed"]
    axes.errorbar(where, value, interval, label="recommended, its interval", **style)
    axes.set_title(
        f"after {n} test runs: gap {optimizer.gap().value:.2f} kJ", loc="left"
    )
    axes.set_xlabel("speed in m/min")
panels[0].set_ylabel("energy against data sheet, kJ per part")
LEGEND = {"loc": "outside lower center", "frameon": False}
figure.legend(*panels[0].get_legend_handles_labels(), ncols=5, **LEGEND)
plt.show()

# %% [markdown]
# With few measurements the band is wide where nothing was measured: there it shows only
# what a norm of 4 allows. Later the band is narrow near the optimum and stays wide
# elsewhere, because a bad speed need not be known precisely.
#
# ## Stop when it is good enough
#
# The optimality gap is the difference between the pessimistic bound of the recommended
# speed and the most optimistic bound of any speed. Because the bounds hold after all
# trials at once, you may check the gap after every trial and stop when it is small,
# without a correction. `n_trials` is then only an upper limit.

# %%
gaps, left = [], []


def watch(trial, result):
    """Called after every trial."""
    gaps.append(result.gap.value)
    left.append(float(truth(result.params["speed"])) - best)


target, budget = (1.2, 30) if QUICK else (0.6, 80)
result = kbo.minimize(
    measure, bounds, budget, setting=setting, stop_at_gap=target, on_trial=watch
)
print(result)
check(result)

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
numbers = range(1, len(gaps) + 1)
curves = {
    "optimality gap (known during the run)": (gaps, BLUE),
    "true regret (unknown in practice)": (left, ORANGE),
}
for name, (values, colour) in curves.items():
    axes.step(numbers, values, where="mid", color=colour, lw=1.6, label=name)
axes.axhline(target, color=GREY, ls=":", lw=1.2, label=f"stop_at_gap = {target:g}")
axes.set(xlabel="trial", ylabel="kJ per part", ylim=(0, None))
axes.set_title("certified gap and true regret after every trial", loc="left")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# The true loss is smaller than the gap, as it must be. The gap is conservative: it
# covers the worst function with that norm.
#
# One thing is not a theorem. On a continuous range the most optimistic bound is
# *searched* for, from many starts. Over whole numbers and choices (up to 10 000
# settings) it is exact, and the result states which of the two it is.
#
# ## When an assumption is wrong
#
# The bounds come from the set of all functions that the assumptions allow and that fit
# the data. If this set is empty, at least one assumption is wrong (or something of
# probability at most `delta` has happened). kbo then stops with `RefutedAssumptions`
# instead of showing an interval. The next example gives a norm bound that is too small.

# %%
wrong = kbo.Certified(kernel, noise_std=0.2, norm_bound=2.0, delta=0.05)
try:
    kbo.minimize(measure, bounds, n_trials=40, setting=wrong)
except kbo.RefutedAssumptions as error:
    print(error)
    print(error.figures)
    print(f"{len(error.trials)} trials were made and are kept")

# %% [markdown]
# The figures say what was assumed and after how many observations it was refuted.
# With a norm below `norm_at_least` no function fits these data, if kernel and noise are
# right. It is *not* an estimate of the norm. Often it is only a little above the bound
# that was refuted, because the run stops at the first contradiction.
#
# Other wrong assumptions have the same effect: no allowed function fits the data, so a
# larger norm would be needed. The data cannot show whether norm, noise or kernel is
# wrong.

# %%
too_smooth = MaternKernel(nu=2.5).double().requires_grad_(False)
too_smooth.lengthscale = 2.0
claims = {
    "norm 2 instead of 3.1": (kernel, 0.2, 2.0),
    "noise 0.02 instead of 0.2": (kernel, 0.02, 4.0),
    "lengthscale 2 instead of 0.2": (too_smooth, 0.2, 4.0),
    "norm 2.9 instead of 3.1": (kernel, 0.2, 2.9),
}
budget = 15 if QUICK else 40
for claim, (its_kernel, noise_std, norm_bound) in claims.items():
    setting_ = kbo.Certified(its_kernel, noise_std, norm_bound, delta=0.05)
    try:
        kbo.minimize(measure, bounds, budget, setting=setting_)
        print(f"{claim:30s} not noticed in {budget} trials")
    except kbo.RefutedAssumptions as error:
        print(f"{claim:30s} refuted after {error.figures['n']} trials")

# %% [markdown]
# The last line is important. An assumption that is only slightly wrong is not noticed,
# and then the guarantee does not hold although there is no error. So the absence of an
# error is no confirmation: data can refute a norm bound but never prove one.
#
# Data can, however, bound the norm from below. `norm_lower_bound` is below the true
# norm with probability $1 - \delta$, after all trials at once. `UnknownNorm` uses it:
# it starts with a small norm bound and doubles whenever the data refute it.

# %%
trials = result.trials  # of the run above
state = kbo.KernelRidge(kernel, ridge=0.2**2)
confidence = UnknownNorm(noise_std=0.2, delta=0.05)
print("  n  norm at least  in force")
for n, trial in enumerate(trials, start=1):
    value = torch.tensor([trial.value], dtype=torch.double)
    state.update(unit(trial.params["speed"]), value)
    if n in (1, 3, 5, 10, 20, 40, len(trials)):
        least = float(norm_lower_bound(state, noise_std=0.2, delta=0.05))
        print(f"{n:3d}  {least:13.2f}  {confidence.norm_bound_on(state):8.2f}")

# %% [markdown]
# The lower bound stays below the true norm of 3.1, and far below it when there are few
# data. In this run the doubled guess is above the true norm. This is not certain: a
# function can have a peak where nothing was measured. So intervals of `UnknownNorm`
# have no guarantee of their own; they hold as long as the current guess is large
# enough. Use it to find a norm bound for the next run, or to optimise without a
# guarantee. The practical setting does something similar.
#
# ## A journal
#
# Test runs are expensive, so no result should be lost. With `journal=...` every trial
# is on disk before the next one begins. The next cell interrupts a run after six
# trials, as Ctrl-C would, and makes the same call again.

# %%
calls = 0


def interrupted(params):
    """The machine, with Ctrl-C during the seventh run."""
    global calls
    calls += 1
    if calls == 7:
        raise KeyboardInterrupt
    return measure(params)


with tempfile.TemporaryDirectory() as folder:
    journal = Path(folder) / "run.jsonl"
    rest = {"n_trials": 10, "setting": setting, "journal": journal}
    first = kbo.minimize(interrupted, bounds, **rest)
    print(f"{len(first.trials)} trials begun; {first.stopped}")
    second = kbo.minimize(interrupted, bounds, **rest)
    print(f"{len(second.trials)} trials; {second.stopped}; {calls} calls in all")
    print(f"the first six are the same: {first.trials[:6] == second.trials[:6]}")
    try:
        kbo.minimize(measure, {"speed": (20.0, 200.0)}, **rest)
    except kbo.JournalError as error:
        print(f"another problem is refused: ...{str(error).split(journal.name)[-1]}")

# %% [markdown]
# Only the trial that was running is repeated. A run that is killed with `kill -9`
# continues in the same way.
#
# ## In a BoTorch loop
#
# You can keep an existing BoTorch loop. `KernelRidgeGP` is a BoTorch model with a fixed
# kernel, and `CMMUCB` is an acquisition function: the upper end of the exact
# martingale-mixture bound. BoTorch maximises. The problem has two parameters now, and a
# norm that we know.

# %%
numbers = {"lengthscale": 0.4, "dim": 2, "norm": 5.0, "noise_std": 0.1}
problem = RKHSBandit(kernel="matern52", **numbers, seed=2)
square = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
axis = torch.linspace(0, 1, 41, dtype=torch.double)
grid = torch.cartesian_prod(axis, axis)

X = torch.rand(4, 2, dtype=torch.double)
model = KernelRidgeGP(X, problem.observe(X).unsqueeze(-1), problem.kernel, ridge=0.1**2)
for step in range(6 if QUICK else 26):
    acquisition = CMMUCB(model, noise_std=0.1, norm_bound=6.0, delta=0.05)
    x, value = optimize_acqf(acquisition, square, q=1, num_restarts=2, raw_samples=32)
    model = model.condition_on_observations(x, problem.observe(x).unsqueeze(-1))
    if step % 5 == 0:
        gap = candidate_gap(acquisition.confidence, model.state, grid)
        x1, x2 = grid[gap.recommended].tolist()
        print(f"step {step:2d}  recommended ({x1:.2f}, {x2:.2f})  gap {gap.value:.2f}")

# %% [markdown]
# `condition_on_observations` does not rebuild anything; a new row costs $O(n^2)$.
# `candidate_gap` is exact over the points that it gets, here a grid. Bounds are
# computed from `model.state`, in the units of the model.

# %%
lower, upper = acquisition.confidence.interval(model.state, grid)
visited = model.train_inputs[0]
figure, panels = plt.subplots(1, 2, figsize=(9, 3.9), sharey=True, layout="constrained")
fields = {"truth": problem.mean(grid), "width of the certified interval": upper - lower}
for axes, (name, field) in zip(panels, fields.items(), strict=True):
    Z = field.reshape(len(axis), len(axis)).T
    figure.colorbar(axes.contourf(axis, axis, Z, levels=14, cmap="cividis"), ax=axes)
    style = {"s": 14, "color": "white", "edgecolors": "black", "lw": 0.7}
    axes.scatter(*visited.T, label="evaluated", **style)
    style = {"marker": "*", "s": 170, "color": ORANGE, "edgecolors": "white"}
    axes.scatter(*grid[int(lower.argmax())], label="recommended", zorder=3, **style)
    axes.set(xlabel="$x_1$", aspect="equal", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set_title(name, loc="left")
panels[0].set_ylabel("$x_2$")
figure.legend(*panels[0].get_legend_handles_labels(), ncols=2, **LEGEND)
plt.show()

# %%
field = problem.mean(grid)
inside = float(((lower <= field) & (field <= upper)).double().mean())
print(f"the true function is inside the band at {100 * inside:.0f}% of the grid")
there, best = float(field[lower.argmax()]), float(field.max())
print(f"truth at the recommended point {there:.2f}, best on the grid {best:.2f}")

# %% [markdown]
# ## What to remember
#
# * Practical: you give no assumptions, optima are good, and there is no guarantee.
# * Certified: you give kernel, noise and norm bound. If they are right, every interval
#   that is ever shown holds, all of them at once, with probability $1 - \delta$.
# * A refuted assumption raises an exception that you can catch. An assumption that is
#   not refuted may still be wrong.
#
# The second tutorial builds a bound of your own.
