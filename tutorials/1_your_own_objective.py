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

import matplotlib.pyplot as plt
import torch
from gpytorch.kernels import MaternKernel

import kbo
import kbo.report

QUICK = bool(os.environ.get("KBO_TUTORIAL_QUICK"))  # shorter loops, for automatic tests
torch.manual_seed(0)
LOOK = {"figure.dpi": 150, "font.size": 9, "figure.constrained_layout.use": True}
plt.style.use(["tableau-colorblind10", LOOK])

# %% [markdown]
# We need a machine for the example. In your work this part is a training script, an
# instrument or a simulator. Here it is a function that we know, so that we can check
# afterwards whether the statements of kbo were true.

# %%
kernel = MaternKernel(nu=2.5).double().requires_grad_(False)
kernel.lengthscale = 0.2
centres = torch.tensor([[0.12], [0.38], [0.63], [0.90]], dtype=torch.double)
weights = torch.tensor([1.2, -1.1, -2.6, 1.5], dtype=torch.double)


def truth(speed):
    """Energy without noise, which is unknown in practice."""
    speed = torch.as_tensor(speed, dtype=torch.double).reshape(-1, 1)
    return kernel((speed - 20) / 100, centres).to_dense() @ weights


def measure(params):
    """One test run: kJ per part more than the data sheet says."""
    noise = 0.2 * torch.randn(())
    return float(truth(params["speed"]) + noise)


# %% [markdown]
# ## Three lines
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
# `result.summary(full=True)` has the details. All of this is also available as
# attributes. Since we know the function, we can compare.

# %%
speeds = torch.linspace(20, 120, 401, dtype=torch.double)
least_energy = float(truth(speeds).min())


def check(result):
    """Compare a result with the truth."""
    energy = float(truth(result.params["speed"]))
    print(f"interval [{result.lower:.2f}, {result.upper:.2f}], truth {energy:.2f}")
    print(f"gap {result.gap.value:.2f}, true regret {energy - least_energy:.2f}")


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
# * from data of an earlier run, with `kbo.confidence.norm_lower_bound`. It is below the
#   true norm with probability $1 - \delta$, so take a multiple of it.
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
# The interval is wider, because the statement is stronger: it holds for every function
# with that norm, for all speeds and after all trials at once, with probability 95%. You
# may look at it as often as you like.
#
# ## Looking at the bounds
#
# `kbo.Optimizer` has the steps of this loop: `ask` returns a setting, `tell` records
# its value, and in between you can look at everything.

# %%
optimizer = kbo.Optimizer(bounds, setting=setting, seed=1)
figure, panels = plt.subplots(1, 2, figsize=(9, 3.9), sharey=True)
for axes, n_trials in zip(panels, (5, 30), strict=True):
    while len(optimizer.completed()) < n_trials:
        params = optimizer.ask()
        optimizer.tell(params, measure(params))
    kbo.report.draw_band(axes, optimizer, "speed")
    axes.plot(speeds, truth(speeds), "k--", label="truth")
    gap = optimizer.gap().value
    axes.set(title=f"after {n_trials} test runs: gap {gap:.2f} kJ", ylim=(-4.5, 4.5))
handles, labels = axes.get_legend_handles_labels()
figure.legend(handles, labels, loc="outside lower center", ncols=5)
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
target = 0.6
if QUICK:
    target = 1.2
result = kbo.minimize(measure, bounds, n_trials=80, setting=setting, stop_at_gap=target)
print(result)
check(result)

# %% [markdown]
# The true regret is smaller than the gap, as it must be. The gap is conservative: it
# covers the worst function with that norm.
#
# On a continuous range the most optimistic bound is *searched* for, from many starts.
# For this kernel, kbo then proves how much larger it can be, and the result states both
# numbers. Over whole numbers and choices (up to 10 000 settings) it is exact.
#
# ## When an assumption is wrong
#
# The bounds come from the set of all functions that the assumptions allow and that fit
# the data. If this set is empty, at least one assumption is wrong (or something of
# probability at most `delta` has happened). kbo then stops with `RefutedAssumptions`
# instead of showing an interval. The next example gives a norm bound, a noise level and
# another norm bound that are too small.

# %%
n_trials = 40
if QUICK:
    n_trials = 15
claims = {
    "norm 2 instead of 3.1": kbo.Certified(kernel, 0.2, 2.0, delta=0.05),
    "noise 0.02 instead of 0.2": kbo.Certified(kernel, 0.02, 4.0, delta=0.05),
    "norm 2.9 instead of 3.1": kbo.Certified(kernel, 0.2, 2.9, delta=0.05),
}
for claim, wrong_setting in claims.items():
    try:
        kbo.minimize(measure, bounds, n_trials, setting=wrong_setting)
        print(f"{claim}: not noticed in {n_trials} trials\n")
    except kbo.RefutedAssumptions as error:
        print(f"{claim}: {error}\n")

# %% [markdown]
# In both messages, `n` is the number of observations that were enough. With a norm below
# `norm_at_least` no function fits these data, if kernel and noise are right. It is
# *not* an estimate of the norm. The data cannot show whether norm, noise or kernel is
# wrong.
#
# The last line is important. An assumption that is only slightly wrong is not noticed,
# and then the guarantee does not hold although there is no error. So the absence of an
# error is no confirmation: data can refute a norm bound but never prove one.
#
# ## What to remember
#
# * Practical: you give no assumptions, optima are good, and there is no guarantee.
# * Certified: you give kernel, noise and norm bound. If they are right, every interval
#   that is ever shown holds, all of them at once, with probability $1 - \delta$.
# * A refuted assumption raises an exception that you can catch. An assumption that is
#   not refuted may still be wrong.
#
# [Tutorial 7](7_a_tuning_run) keeps a run in a journal, so that no expensive trial is
# lost; [integrations](../integrations.md) shows the same bounds in a BoTorch loop.
# [Tutorial 2](2_your_own_bound) builds a bound of your own.
