# %% [markdown]
# # A limit that must never be broken
#
# This tutorial tunes the two gains of a PI controller, which controls a real heater. A
# batch is spoilt if the temperature ever rises by more than 45 °C. So no trial may do
# this, not even the first ones. `kbo.Safe` begins with gains that are known to be safe.
# It tries other gains only when the bounds prove that they are safe too.

# %%
import itertools
import os

import matplotlib.pyplot as plt
import numpy as np
import torch

import kbo
from experiments.problems.rkhs import stationary_kernel

QUICK = bool(os.environ.get("KBO_TUTORIAL_QUICK"))  # shorter, for automatic tests
N_TRIALS = 6 if QUICK else 60
plt.rcParams.update({"figure.dpi": 150, "font.size": 9})
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#7f7f7f"  # safe for the colour-blind

# %% [markdown]
# ## The plant
#
# The heater reacts slowly and with a delay. The temperature should rise to 40 °C above
# the room, and the controller sees the difference from this target. If gains are too
# large, the temperature overshoots. `respond` simulates many gains at once.


# %%
def respond(kp, ki, gain, lag, delay, minutes=60, step=0.1):
    kp, ki = np.broadcast_arrays(np.asarray(kp, float), np.asarray(ki, float))
    warmth, integral = np.zeros(kp.shape), np.zeros(kp.shape)
    pipe, course = [np.zeros(kp.shape)] * round(delay / step), []
    for _ in range(round(minutes / step)):
        error = 40 - warmth
        integral = integral + ki * error * step
        pipe.append(kp * error + integral)
        warmth = warmth + step * (gain * pipe.pop(0) - warmth) / lag
        course.append(warmth)
    return np.stack(course)


def summary(course):
    """Mean error in °C relative to 8 °C, and overshoot in °C."""
    return np.abs(40 - course).mean(0) - 8, course.max(0) - 40


# %% [markdown]
# The numbers of the real plant are unknown, and its thermometer has an error of 0.1 °C.

# %%
PLANT = {"gain": 1.05, "lag": 9.5, "delay": 3.1}
NOISE = 0.1
rng = np.random.default_rng(0)


def run_batch(params):
    error, overshoot = summary(respond(params["kp"], params["ki"], **PLANT))
    return error + NOISE * rng.normal(), {"overshoot": overshoot + NOISE * rng.normal()}


# %% [markdown]
# ## Which numbers are needed
#
# A guarantee needs assumptions: a kernel, the noise level, and for each quantity a
# bound $B$ of its norm in the function space of the kernel. The norm bound is the
# hardest one to know. It limits how fast a quantity can change. Data cannot prove it,
# because a function may change quickly where nothing was measured.
#
# Here we use knowledge about the plant. Engineers know its three numbers to within 5%.
# So we simulate the corners of this family of plants. The run may choose only among 27
# x 27 gains, so only the values of the quantities at these gains matter. Among all
# functions with these values, the smoothest one has the norm $\sqrt{y^\top K^{-1} y}$,
# with the kernel matrix $K$ of the 729 points. We can compute this number. We take the
# largest one of the corners and add a tenth, because other plants of the family may
# have a larger norm.
#
# This is reasonable, but it is no proof. A plant outside the family, or with a defect
# that the model does not have, may have a larger norm. Data can only refute the bound:
# if no function of norm $B$ explains them, the run ends.

# %%
kernel = stationary_kernel("matern32", 1.0)
bounds = {"kp": kbo.Float(0.5, 1.8, step=0.05), "ki": kbo.Float(0.05, 0.18, step=0.005)}
unit = torch.cartesian_prod(*[torch.linspace(0, 1, 27, dtype=torch.float64)] * 2)
kp, ki = 0.5 + 1.3 * unit[:, 0].numpy(), 0.05 + 0.13 * unit[:, 1].numpy()
K = kernel(unit).to_dense()


def norms(**plant):
    """Norms of error and overshoot on the grid."""
    y = torch.tensor(np.stack(summary(respond(kp, ki, **plant)), -1))
    return (y * torch.linalg.solve(K, y)).sum(0).sqrt()


corners = itertools.product((0.95, 1.05), (9.5, 10.5), (2.85, 3.15))
family = [norms(gain=gain, lag=lag, delay=delay) for gain, lag, delay in corners]
error_bound, overshoot_bound = (1.1 * torch.stack(family).amax(0)).tolist()
print(f"error: {error_bound:.0f}, overshoot: {overshoot_bound:.0f}")
print(f"the real plant, which only the author knows: {norms(**PLANT).numpy().round()}")

# %% [markdown]
# ## The run
#
# The start is a cautious controller that has been in use. Prior means are 0, so both
# quantities are given relative to plausible values: the error relative to 8 °C, the
# temperature relative to its target. `scale` is about the square of the range of
# values. It influences only how tight the bounds are.

# %%
start = {"kp": 1.0, "ki": 0.08}
setting = kbo.Safe(kernel, NOISE, error_bound, start=[start], delta=0.1, scale=100.0)
limit = kbo.Constraint(
    "overshoot", upper=5.0, noise_std=NOISE, norm_bound=overshoot_bound
)
optimizer = kbo.Optimizer(bounds, setting=setting, constraints=[limit])

marks, safe = [1, N_TRIALS // 6, N_TRIALS // 2, N_TRIALS], {}
for n in range(1, N_TRIALS + 1):
    params = optimizer.ask()
    optimizer.tell(params, run_batch(params))
    if n in marks:
        safe[n] = optimizer.safe_points()

# %% [markdown]
# ## The safe set
#
# Grey gains really break the limit; the run does not know this. Blue points of the grid
# are certain to be safe. Crosses are trials. The safe set grows from the start towards
# the border, and no trial was beyond the border.

# %%
true_error, true_overshoot = summary(respond(kp, ki, **PLANT))
tried = np.array([[t.params["kp"], t.params["ki"]] for t in optimizer.trials])

figure, panels = plt.subplots(1, 4, figsize=(9, 2.5), sharey=True, layout="constrained")
for panel, n in zip(panels, marks, strict=True):
    panel.tricontourf(kp, ki, true_overshoot, [5.0, 99.0], colors=[GREY], alpha=0.5)
    points = np.array([[p["kp"], p["ki"]] for p in safe[n]])
    panel.scatter(*points.T, s=9, marker="s", color=BLUE, alpha=0.5, linewidths=0)
    panel.scatter(*tried[:n].T, s=14, marker="x", color=ORANGE, linewidths=0.8)
    panel.set(title=f"after {n}: {len(points)} safe points", xlabel="proportional gain")
panels[0].set_ylabel("integral gain")
plt.show()

# %%
worst = max(float(summary(respond(*row, **PLANT))[1]) for row in tried)
print(f"largest overshoot of {len(tried)} trials: {worst:.2f} °C, limit 5 °C")
assert worst <= 5.0

# %% [markdown]
# ## What was found
#
# `gap` says how much better other gains in the safe set can be than the recommended
# ones, and whether more points can still be added to the set.

# %%
best = optimizer.recommended()
error = float(summary(respond(best.params["kp"], best.params["ki"], **PLANT))[0])
at_start = float(summary(respond(start["kp"], start["ki"], **PLANT))[0])
optimum = true_error[true_overshoot <= 5.0].min()
print(best.params)
print(optimizer.insight.feasibility())
for name, value in {
    "start": at_start,
    "recommended": error,
    "optimum": optimum,
}.items():
    print(f"mean error, {name}: {8 + value:.2f} °C")
gap = optimizer.gap()
print(f"gap {gap.value:.2f} °C {gap.scope}")

# %% [markdown]
# ## When the assumptions are wrong
#
# With an eighth of the norm bound the guarantee would not be true. Here the data
# contradict the bound soon, and the run ends. This need not happen in time: with a norm
# bound that is too small and not refuted yet, kbo may call points safe that are not. So
# choose the norm bound with care, and leave a margin to the limit.

# %%
careless = kbo.Constraint(
    "overshoot", upper=5.0, noise_std=NOISE, norm_bound=overshoot_bound / 8
)
try:
    kbo.minimize(run_batch, bounds, 40, setting=setting, constraints=[careless])
    print("not refuted")
except kbo.RefutedAssumptions as refuted:
    print(refuted)
