# %% [markdown]
# # Ten thousand noisy observations
#
# A Gaussian process with $n$ observations stores $n^2$ numbers, and its first
# factorisation takes of the order of $n^3$ operations. This is fast for a thousand
# observations and too slow for ten thousand. This tutorial adds ten thousand
# observations to a posterior of kbo, one after the other, and shows the effect on
# accuracy and on the guarantees.
#
# The example: a boat maps the bed of a lake. Once a second its echo sounder gives the
# depth, with a scatter of half a metre. In three hours that makes ten thousand
# soundings. We want a map of the depth and the deepest place.

# %%
import math
import os
import time

import matplotlib.pyplot as plt
import torch
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel

from kbo import KernelRidge, NystromRidge
from kbo.acquisition import CMMUCB
from kbo.confidence import (
    BKB,
    EKUCB,
    FixedWidth,
    ImprovedGPUCB,
    MartingaleMixture,
    SelfNormalized,
    candidate_gap,
)
from kbo.models import NystromGP
from kbo.regression import (
    BatchedResampling,
    FixedDictionary,
    GreedyDictionary,
    LeverageResampling,
    OnlineRowSampling,
)

N = 10_000
N_STOPS = 8
if os.environ.get("KBO_TUTORIAL_QUICK"):  # shorter loops, for automatic tests
    N = 2000
    N_STOPS = 3
torch.manual_seed(13)
LOOK = {"figure.dpi": 150, "font.size": 9, "figure.constrained_layout.use": True}
plt.style.use(["tableau-colorblind10", LOOK])

# %% [markdown]
# The lake is a square of one kilometre. We simulate one with a known bed, so that every
# result can be checked. Its values are metres deeper than 12 m: the prior mean of kbo
# is zero, so a constant near the middle is subtracted in advance. As in the first
# tutorial the function is a sum of kernels, because then its norm is known.

# %%
kernel = MaternKernel(nu=2.5).double().requires_grad_(False)
kernel.lengthscale = 0.4  # km
centres = torch.rand(30, 2, dtype=torch.double)
weights = 2 * torch.randn(30, dtype=torch.double)
norm = float((weights @ kernel(centres, centres).to_dense() @ weights).sqrt())
SCATTER = 0.5
NORM = 12.0
DELTA = 0.05
RIDGE = SCATTER**2
print(f"the true norm is {norm:.2f}; the norm bound is {NORM:g}")


def truth(X):
    """Metres deeper than 12 m, without noise, at positions [n 2] in km."""
    return kernel(X, centres).to_dense() @ weights


def sound(X):
    """Noisy soundings at these positions."""
    return truth(X) + SCATTER * torch.randn(len(X), dtype=torch.double)


# The boat goes up and down the lake, and slowly eastwards.
east = torch.linspace(0, 1, N, dtype=torch.double)
north = 0.5 - 0.5 * torch.cos(2 * math.pi * 25 * east)
wind = 0.01 * torch.randn(N, 2, dtype=torch.double)
X = (torch.stack([east, north], -1) + wind).clamp(0, 1)
y = sound(X)

axis = torch.linspace(0, 1, 41, dtype=torch.double)
grid = torch.cartesian_prod(axis, axis)
bed = truth(grid)

# %% [markdown]
# ## A posterior that stays small
#
# A sketch represents every observation by a few chosen places, its *dictionary* (also
# called inducing points). With $m$ places, a new observation costs $O(m^2)$, which does
# not grow with the number of observations. `NystromRidge` takes a kernel, a ridge and a
# rule that chooses the dictionary.
#
# The simplest rule is `GreedyDictionary`. It adds the place of an observation to the
# dictionary if the dictionary does not explain it well: if the unexplained part of its
# prior variance (which is 1 here) is above a threshold. The boat visits new parts of
# the lake all the time, so a dictionary chosen at the beginning would not be enough.
#
# We add the soundings one by one. After each we compute the depth in the middle of the
# lake. The exact posterior does the same for comparison, up to a quarter of the data.


# %%
middle = torch.full((1, 2), 0.5, dtype=torch.double)


def add_one_by_one(state, rows):
    """Add these soundings and return the CPU time, in seconds."""
    start = time.process_time()
    for i in rows:
        state.update(X[i : i + 1], y[i : i + 1])
        state.predict(middle)
    return time.process_time() - start


sketch = NystromRidge(kernel, RIDGE, GreedyDictionary(1e-3))
exact = KernelRidge(kernel, RIDGE)
block = N // 8
for start in range(0, N, block):
    rows = range(start, start + block)
    milliseconds = 1000 * add_one_by_one(sketch, rows) / block
    print(f"n = {sketch.n:5d}, m = {sketch.m:3d}: {milliseconds:.2f} ms a step", end="")
    if sketch.n <= N // 4:
        milliseconds = 1000 * add_one_by_one(exact, rows) / block
        print(f", exact {milliseconds:.2f} ms", end="")
    print()

# %% [markdown]
# A step of the exact posterior costs $O(n^2)$; a step of the sketch stays cheap. The
# dictionary grows in proportion to the part of the lake that was seen, not to the
# number of soundings. A second round over the same lake adds almost no places:

# %%
again = sketch.fork()  # an independent copy
again.update(X, sound(X))
print(f"n = {again.n}, m = {sketch.m} -> {again.m}")

# %% [markdown]
# ## Is it the same answer?
#
# With every fourth sounding of the first round an exact posterior is still possible.
# Here it is next to a sketch of the same data.

# %%
X_part = X[::4]
y_part = y[::4]
exact = KernelRidge(kernel, RIDGE)
exact.update(X_part, y_part)
small = NystromRidge(kernel, RIDGE, GreedyDictionary(1e-3))
small.update(X_part, y_part)


def map_error(state):
    """Root mean square error of the map, in centimetres."""
    mean, _ = state.predict(grid)
    return 100 * float((mean - bed).square().mean().sqrt())


mean, variance = exact.predict(grid)
small_mean, small_variance = small.predict(grid)
ratio = (small_variance / variance).sqrt()
largest_difference = float((small_mean - mean).abs().max())
print(f"n = {exact.n}, m = {small.m}")
print(f"typical standard deviation {float(variance.sqrt().mean()):.3f} m")
print(f"largest difference of means {largest_difference:.3f} m")
print(f"smallest ratio of standard deviations {float(ratio.min()):.2f}")
print(f"largest ratio of standard deviations {float(ratio.max()):.2f}")
print(f"error of the exact map {map_error(exact):.1f} cm")
print(f"error of the sketched map {map_error(small):.1f} cm")
print(f"error of the map from all {N} soundings {map_error(sketch):.1f} cm")

# %% [markdown]
# At some places the standard deviation of the sketch is a little *smaller* than the
# exact one. It is an approximation, not an upper bound.
#
# ## What the sketch leaves out
#
# You can know this without an exact posterior: the state itself computes what its
# dictionary leaves out. Let $K$ be the kernel matrix of the observations and $\tilde K$
# the one that the sketch works with. $E = K - \tilde K$ is never negative, and two
# numbers describe it:
#
# * `error.trace` is its trace: the unexplained variance, summed over all observations.
#   Divided by $n$ it is the average share of the prior variance that is missed.
# * `error.norm()` is a bound of its largest eigenvalue. It enters the confidence bounds
#   below.
#
# The table is for fixed dictionaries of several sizes. `FixedDictionary.pivoted`
# chooses places well spread over points that you give it.

# %%
cmm = MartingaleMixture(SCATTER, NORM, DELTA, kind="cmm")


def describe(name, state):
    """Print what the sketch leaves out, and the accuracy of map and interval."""
    lower, upper = cmm.interval(state, grid)
    print(f"{name:13s} {float(state.error.trace) / state.n:12.1e}", end="")
    print(f"  {state.error.norm():13.3f}  {map_error(state):13.1f} cm", end="")
    print(f"  {float((upper - lower).mean()):12.2f} m")


HEADER = f"{'places':13s} missed share  residual norm  error of the map  width of CMM"
print(HEADER)
for m in (10, 30, 100, 300):
    dictionary = FixedDictionary.pivoted(kernel, X_part, m)
    state = NystromRidge(kernel, RIDGE, dictionary)
    state.update(X_part, y_part)
    describe(f"fixed: {m}", state)
describe("exact", exact)

# %% [markdown]
# A small dictionary is enough for a good map, but not for a narrow certified interval.
# For the mean, the dictionary must explain most of the data; a bound must cover the
# worst function that the dictionary might miss. So choose the threshold according to
# the purpose. For a map, about a thousandth of the prior variance was small enough. For
# bounds `bandit.make("sketched-cmm", ...)` uses $0.01\,\sigma^2 / B^2$, with the noise
# $\sigma$ and the norm bound $B$, and at most 500 places. If `dictionary.capped` is
# true, this limit was reached and later places were refused. Then take a larger
# threshold, so that the dictionary covers the whole lake.
#
# ## A bad dictionary: wide but valid
#
# The martingale-mixture bounds (AMM, DMM, CMM) include `error.norm()`. So they are
# valid *for any dictionary*: a bad one makes them wide, not wrong. As a test, we choose
# a dictionary from the western 40% of the lake only. We look along a line from west to
# east.

# %%
line = torch.stack([axis, torch.full_like(axis, 0.5)], -1)
west = X_part[X_part[:, 0] < 0.4]
bad = NystromRidge(kernel, RIDGE, FixedDictionary.pivoted(kernel, west, 100))
bad.update(X_part, y_part)
states = {"exact": exact, "greedy": small, "100 places in the west": bad}

figure, panels = plt.subplots(1, 3, figsize=(9, 3.6), sharey=True)
for axes, (name, state) in zip(panels, states.items(), strict=True):
    lower, upper = cmm.interval(state, line)
    mean, variance = state.predict(line)
    std = variance.sqrt()
    axes.fill_between(axis, lower, upper, alpha=0.2, label="CMM band")
    low = mean - 2 * std
    high = mean + 2 * std
    axes.fill_between(axis, low, high, alpha=0.5, label="mean ± 2 sd")
    axes.plot(axis, truth(line), "k--", label="truth")
    axes.set(title=name, xlabel="km from the west bank")
    off = float(((mean - truth(line)).abs() / std).max())
    print(f"{name}: the mean is off by up to {off:.1f} sd")
panels[0].set_ylabel("m deeper than 12 m")
handles, labels = axes.get_legend_handles_labels()
figure.legend(handles, labels, loc="outside lower center", ncols=3)
plt.show()

# %% [markdown]
# With the western dictionary the band is hardly narrower than $|f| \le 12$, which
# follows from the norm bound alone. This is so in the west as well, because an error of
# the sketch anywhere affects the fit everywhere. The standard deviation does not show
# this error: the mean is off by many of its own standard deviations.
#
# Some bounds hold on a given state and others do not. `guarantee_on(state)` returns a
# sentence that states what is proved on this posterior, or None.

# %%
bounds = {
    "martingale mixture": cmm,
    "self-normalised": SelfNormalized(SCATTER, NORM, DELTA),
    "IGP-UCB": ImprovedGPUCB(SCATTER, NORM, DELTA, eta=2 / N),
    "EK-UCB": EKUCB(SCATTER, NORM, DELTA, projection=RIDGE),
    "BKB": BKB(SCATTER, NORM, DELTA),
    "mean ± 2 sd": FixedWidth(2.0),
}
for name, bound in bounds.items():
    proved = [label for label, state in states.items() if bound.guarantee_on(state)]
    print(f"{name:18s} proved on: {', '.join(proved) or 'nothing'}")
print(cmm.guarantee_on(bad))

# %% [markdown]
# The first three include the residual and hold on every dictionary. The width of EK-UCB
# is proved while the residual stays below a number that is fixed in advance (here the
# ridge); that of BKB if the dictionary guarantees accurate leverages, which only
# `LeverageResampling.for_horizon` does. "Proved" always means: if the norm is at most
# `NORM` and the noise at most `SCATTER`.
#
# ## Which dictionary?
#
# * `FixedDictionary.pivoted(kernel, X, m)`: if you know beforehand where observations
#   will be.
# * `GreedyDictionary(threshold)`: a good first choice otherwise. Nothing is random, and
#   the unexplained part of each observation is at most the threshold.
# * `OnlineRowSampling(mu, gamma)`, the KORS of EK-UCB: a place is added at random, with
#   a higher probability where the variance is larger. `mu` is usually the ridge. A
#   large `gamma` adds nearly every place.
# * `LeverageResampling(q)`, of BKB: the dictionary is sampled again after every
#   observation, so old places may be removed. For few observations, or few distinct
#   ones.
# * `BatchedResampling(q, growth)`, of BBKB: the same, but it is sampled again only when
#   the variances have changed enough.
#
# The comparison uses a thousand soundings at equal distances on the route.

# %%
dictionaries = {
    "pivoted": FixedDictionary.pivoted(kernel, X_part, 100),
    "greedy": GreedyDictionary(0.01),
    "KORS, 1": OnlineRowSampling(RIDGE, gamma=1.0),
    "KORS, 10": OnlineRowSampling(RIDGE, gamma=10.0),
    "BKB": LeverageResampling(5.0),
    "BBKB": BatchedResampling(5.0, growth=3.0),
}
print(HEADER)
for name, dictionary in dictionaries.items():
    state = NystromRidge(kernel, RIDGE, dictionary)
    add_one_by_one(state, range(0, N, 10))
    describe(f"{name}: {state.m}", state)

# %% [markdown]
# The maps are equally good: all of these dictionaries are large enough for a mean. BKB
# rebuilds its sketch after every observation. With $n$ distinct places that costs $O(n
# m^2)$ each time, too much for ten thousand; BBKB rebuilds seldom.
#
# If ten thousand observations have few distinct places, such as forty moored buoys, no
# sketch is needed: observations at one place are kept as a count and a mean, so even
# the exact posterior is small.
#
# ## The deepest place
#
# `NystromGP` is the same posterior as a BoTorch model. It takes 5000 soundings, and
# then the boat sails to where the depth *could* be greatest: the place with the largest
# upper bound. `condition_on_observations` continues with the dictionary and extends it.
# At each place the boat stays for 25 soundings.

# %%
model = NystromGP(X[::2], y[::2, None], kernel, RIDGE, GreedyDictionary(1e-3))
square = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
for _ in range(N_STOPS):
    acquisition = CMMUCB(model, noise_std=SCATTER, norm_bound=NORM, delta=DELTA)
    x, _ = optimize_acqf(acquisition, square, q=1, num_restarts=4, raw_samples=32)
    stop = x.expand(25, -1)
    model = model.condition_on_observations(stop, sound(stop).unsqueeze(-1))
    gap = candidate_gap(cmm, model.state, grid)
    regret = float(bed.max() - bed[gap.recommended])
    print(f"at ({x[0, 0]:.2f}, {x[0, 1]:.2f})", end=": ")
    print(f"gap {gap.value:.2f} m, true regret {regret:.2f} m")
print(model.state)

# %% [markdown]
# The gap bounds how much deeper other places of the grid can be than the recommended
# one, if the norm bound and the scatter are right. It decreases slowly, because a few
# more soundings change little after thousands. It is far larger than the true regret,
# because it covers the worst lake with that norm; a part of it is due to the sketch
# (see the first table).
#
# A survey that must be planned before the boat leaves can ask for several places at
# once by `q=40` or `X_pending`. The bounds hold for places that were chosen in batches
# too: they allow every choice that depends only on earlier observations.
#
# ## What to remember
#
# * Many places: `NystromRidge` or `NystromGP` with `GreedyDictionary`. Many repeats of
#   a few places: the exact posterior is small already.
# * `error.trace / n` is the share of the prior variance that the dictionary misses.
# * Mixture and self-normalised bounds hold on every dictionary, and a bad one only
#   makes them wide. For any other bound use `guarantee_on(state)`.
# * A small dictionary is enough for a good map; tight bounds need a larger one.
#
# The fourth tutorial is about contexts: conditions that you observe but do not choose.
