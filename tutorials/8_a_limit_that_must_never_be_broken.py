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

N_TRIALS = 60
if os.environ.get("KBO_TUTORIAL_QUICK"):  # shorter, for automatic tests
    N_TRIALS = 6
LOOK = {"figure.dpi": 150, "font.size": 9, "figure.constrained_layout.use": True}
plt.style.use(["tableau-colorblind10", LOOK])

# %% [markdown]
# ## The plant
#
# The heater reacts slowly and with a delay. The temperature should rise to 40 °C above
# the room, and the controller sees the difference from this target. If gains are too
# large, the temperature overshoots. `respond` simulates many gains at once.


# %%
def respond(kp, ki, gain, lag, delay):
    """Temperatures above the room [600 n] of n controllers, every 0.1 minutes."""
    step = 0.1
    temperature = np.zeros_like(kp)
    integral = np.zeros_like(kp)
    delayed = [np.zeros_like(kp)] * round(delay / step)
    temperatures = []
    for _ in range(600):
        error = 40 - temperature
        integral = integral + ki * error * step
        delayed.append(kp * error + integral)
        heat = gain * delayed.pop(0)
        temperature = temperature + step * (heat - temperature) / lag
        temperatures.append(temperature)
    return np.stack(temperatures)


def error_and_overshoot(kp, ki, **plant):
    """Mean error relative to 8 °C and overshoot, in °C [n 2]."""
    temperatures = respond(kp, ki, **plant)
    error = np.abs(40 - temperatures).mean(0) - 8
    return np.stack([error, temperatures.max(0) - 40], -1)


# %% [markdown]
# The numbers of the real plant are unknown, and its thermometer has an error of 0.1 °C.

# %%
PLANT = {"gain": 1.05, "lag": 9.5, "delay": 3.1}
NOISE = 0.1
rng = np.random.default_rng(0)


def true_values(params):
    """Mean error relative to 8 °C, and overshoot, without noise."""
    return error_and_overshoot(np.array(params["kp"]), np.array(params["ki"]), **PLANT)


def run_batch(params):
    """Measured error and overshoot of one batch."""
    error, overshoot = true_values(params) + NOISE * rng.normal(size=2)
    return error, {"overshoot": overshoot}


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
axis = torch.linspace(0, 1, 27, dtype=torch.double)
unit = torch.cartesian_prod(axis, axis)
kp = 0.5 + 1.3 * unit[:, 0].numpy()
ki = 0.05 + 0.13 * unit[:, 1].numpy()
K = kernel(unit).to_dense()


def norms(gain, lag, delay):
    """Norms of error and overshoot on the grid [2]."""
    y = torch.tensor(error_and_overshoot(kp, ki, gain=gain, lag=lag, delay=delay))
    return (y * torch.linalg.solve(K, y)).sum(0).sqrt()


corners = itertools.product((0.95, 1.05), (9.5, 10.5), (2.85, 3.15))
corner_norms = torch.stack([norms(*corner) for corner in corners])
error_bound, overshoot_bound = (1.1 * corner_norms.amax(0)).tolist()
print(f"error: {error_bound:.0f}, overshoot: {overshoot_bound:.0f}")
print(f"the real plant, which the run does not know: {norms(**PLANT).numpy().round()}")

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

true_error, true_overshoot = error_and_overshoot(kp, ki, **PLANT).T
_, panels = plt.subplots(1, 3, figsize=(9, 3), sharey=True)
for axes, n_trials in zip(panels, (1, N_TRIALS // 6, N_TRIALS), strict=True):
    while len(optimizer.completed()) < n_trials:
        params = optimizer.ask()
        optimizer.tell(params, run_batch(params))
    axes.tricontourf(kp, ki, true_overshoot, [5.0, 99.0], colors=["lightgrey"])
    safe_points = optimizer.safe_points()
    for point in safe_points:
        axes.plot(point["kp"], point["ki"], "s", color="C4", ms=2)
    for trial in optimizer.completed():
        axes.plot(trial.params["kp"], trial.params["ki"], "x", color="C1", ms=4)
    axes.set_title(f"after {n_trials} trials: {len(safe_points)} safe points")
    axes.set_xlabel("proportional gain")
panels[0].set_ylabel("integral gain")
plt.show()
overshoots = [true_values(trial.params)[1] for trial in optimizer.completed()]
print(f"largest overshoot of {N_TRIALS} trials: {max(overshoots):.2f} °C, limit 5 °C")

# %% [markdown]
# Grey gains really break the limit; the run does not know this. Blue points of the grid
# are certain to be safe. Crosses are trials. The safe set grows from the start towards
# the border, and no trial was beyond the border.

# %% [markdown]
# ## What was found
#
# `gap` says how much better other gains in the safe set can be than the recommended
# ones, and whether more points can still be added to the set.

# %%
best = optimizer.recommended()
print(best.params)
print(optimizer.insight.feasibility())
print(f"mean error at the start: {8 + true_values(start)[0]:.2f} °C")
print(f"mean error, recommended: {8 + true_values(best.params)[0]:.2f} °C")
print(f"least mean error: {8 + true_error[true_overshoot <= 5.0].min():.2f} °C")
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
