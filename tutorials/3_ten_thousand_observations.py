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
from functools import partial

import matplotlib.pyplot as plt
import torch
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel, RBFKernel

from kbo import KernelRidge, NystromRidge, bandit
from kbo.acquisition import CMMUCB
from kbo.bandit.method import Method
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

QUICK = bool(os.environ.get("KBO_TUTORIAL_QUICK"))  # shorter loops, for automatic tests
N = 2000 if QUICK else 10_000
torch.manual_seed(13)
plt.rcParams.update({"figure.dpi": 150, "font.size": 9})
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
BLUE, ORANGE = "#0072b2", "#d55e00"  # safe for the colour-blind
PINK, GREY = "#cc79a7", "#7f7f7f"
LEGEND = {"loc": "outside lower center", "frameon": False}

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
SCATTER, NORM, DELTA = 0.5, 12.0, 0.05  # given to kbo
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
# called inducing points). With
# $m$ places, a new observation costs $O(m^2)$, which does not grow with the number of
# observations. `NystromRidge` takes a kernel, a ridge and a rule that chooses the
# dictionary.
#
# The simplest rule is `GreedyDictionary`. It adds the place of an observation to the
# dictionary if the dictionary does not explain it well: if the unexplained part of its
# prior variance (which is 1 here) is above a threshold. The boat visits new parts of
# the lake all the time, so a dictionary chosen at the beginning would not be enough.
#
# We add the soundings one by one. After each we compute the depth in the middle of the
# lake and measure the time.


# %%
middle = torch.full((1, 2), 0.5, dtype=torch.double)


def stream(state, X, y, every=N // 40):
    """Add the observations one by one: how many there are, ms per step and m so far."""
    log, start = [], time.process_time()
    for i in range(len(X)):
        state.update(X[i : i + 1], y[i : i + 1])
        state.predict(middle)
        if (i + 1) % every == 0:
            now = time.process_time()
            log.append((i + 1, 1e3 * (now - start) / every, getattr(state, "m", None)))
            start = now
    return log


sketch = NystromRidge(kernel, RIDGE, GreedyDictionary(1e-3))
sketched_log = stream(sketch, X, y)
exact_log = stream(KernelRidge(kernel, RIDGE), X[: N // 4], y[: N // 4])
for name, log in (("sketch", sketched_log), ("exact", exact_log)):
    (first, early, _), (last, late, _) = log[0], log[-1]
    print(f"{name:6s} up to n = {first}: {early:.2f} ms a step", end="; ")
    print(f"at n = {last}: {late:.2f} ms a step")
print(sketch)

# %%
figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
styles = ((sketched_log, BLUE, "sketch"), (exact_log, ORANGE, "exact, stopped"))
for log, colour, name in styles:
    n, ms, _ = zip(*log, strict=True)
    panels[0].plot(n, ms, color=colour, lw=1.6, label=name)
panels[0].set(xlabel="soundings n", ylabel="CPU time per step, ms", ylim=(0, None))
panels[0].set_title("a step of the sketch stays cheap", loc="left")
panels[0].legend(frameon=False)
n, _, m = zip(*sketched_log, strict=True)
panels[1].plot(n, m, color=BLUE, lw=1.6)
panels[1].set(xlabel="soundings n", ylabel="places in the dictionary m", ylim=(0, None))
panels[1].set_title("the dictionary grows with the area seen", loc="left")
plt.show()

# %% [markdown]
# The dictionary grows in proportion to the part of the lake that was seen, not to the
# number of soundings. A second round over the same lake adds almost no places. A step
# of the exact posterior costs $O(n^2)$, so we stopped it early.

# %%
before = sketch.m
again = sketch.fork()  # an independent copy
again.update(X, sound(X))
print(f"n = {again.n}, m = {before} -> {again.m}")

# %% [markdown]
# ## Is it the same answer?
#
# With every fourth sounding of the first pass an exact posterior is still possible.
# Here it is next to a sketch of the same data.

# %%
part = slice(None, None, 4)
exact = KernelRidge(kernel, RIDGE)
exact.update(X[part], y[part])
small = NystromRidge(kernel, RIDGE, GreedyDictionary(1e-3))
small.update(X[part], y[part])
mean, variance = exact.predict(grid)
sketched_mean, sketched_variance = small.predict(grid)
ratio = (sketched_variance / variance).sqrt()
print(f"n = {exact.n}, m = {small.m}")
print(f"typical standard deviation {float(variance.sqrt().mean()):.4f} m")
print(f"largest difference of means {float((sketched_mean - mean).abs().max()):.4f} m")
print(
    f"ratio of standard deviations {float(ratio.min()):.4f} to {float(ratio.max()):.4f}"
)

all_mean, _ = sketch.predict(grid)
for name, guess in ((f"{exact.n} soundings", mean), (f"all {N}, sketched", all_mean)):
    error = float((guess - bed).square().mean().sqrt())
    print(f"error of the map from {name}: {100 * error:.1f} cm")

# %% [markdown]
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


def mean_width(state):
    """The mean width of the certified interval over the grid, in metres."""
    lower, upper = cmm.interval(state, grid)
    return float((upper - lower).mean())


print("          m  missed share  residual norm  off exact mean  width of CMM")
for m in (10, 30, 100, 300):
    state = NystromRidge(kernel, RIDGE, FixedDictionary.pivoted(kernel, X[part], m))
    state.update(X[part], y[part])
    share, norm_left = (
        float(state.error.trace) / state.n,
        state.error.norm(),
    )
    off = float((state.predict(grid)[0] - mean).abs().max())
    print(f"sketch  {m:3d}  {share:12.1e}  {norm_left:13.3f}", end="  ")
    print(f"{off:12.4f} m  {mean_width(state):10.2f} m")
print(
    f"exact   {'-':>3s}  {0:12.1e}  {0:13.3f}  {0:12.4f} m  {mean_width(exact):10.2f} m"
)

# %% [markdown]
# A small dictionary is enough for a good map, but not for a narrow certified interval.
# For the mean, the dictionary must explain most of the data; a bound must cover the
# worst function that the dictionary might miss. So choose the threshold according to
# the purpose. For a map, about a thousandth of the prior variance was small enough. For
# bounds `bandit.make("sketched-cmm", ...)` uses $0.01\,\sigma^2 / B^2$, with the noise
# $\sigma$ and the norm bound $B$; here:

# %%
method = bandit.make("sketched-cmm", kernel, SCATTER, NORM, DELTA)
limited = method.state().dictionary
unlimited = GreedyDictionary(limited.threshold)
for dictionary in (limited, unlimited, GreedyDictionary(1e-3)):
    tight = NystromRidge(kernel, RIDGE, dictionary)
    stream(tight, X[part], y[part])
    print(f"threshold {dictionary.threshold:.1e}, limit {dictionary.most}", end=": ")
    print(f"m = {tight.m}, limit reached: {tight.dictionary.capped}", end=", ")
    print(f"width of CMM {mean_width(tight):.2f} m")

# %% [markdown]
# Note the first line. The method accepts at most 500 places, so that a step stays
# cheap. Here they were used up before the boat reached the east, and a full dictionary
# accepts no more. A coarse threshold that covers the whole lake is far better than a
# fine one that covers a part. `dictionary.capped` is true in this case. We continue
# with $10^{-3}$.
#
# ## A bad dictionary: wide but valid
#
# The martingale-mixture bounds (AMM, DMM, CMM) include `error.norm()`. So they are
# valid *for any dictionary*: a bad one makes them wide, not wrong. As a test, we choose
# a dictionary from the western 40% of the lake only. We look along a line from west to
# east.

# %%
line = torch.stack([axis, torch.full_like(axis, 0.5)], -1)
west = X[part][X[part][:, 0] < 0.4]
states = {
    "exact": exact,
    f"greedy, {small.m} places": small,
    "100 places in the west": NystromRidge(
        kernel, RIDGE, FixedDictionary.pivoted(kernel, west, 100)
    ),
}
bad = states["100 places in the west"]
bad.update(X[part], y[part])

figure, panels = plt.subplots(1, 3, figsize=(9, 3.6), sharey=True, layout="constrained")
for axes, (name, state) in zip(panels, states.items(), strict=True):
    lower, upper = cmm.interval(state, line)
    there, spread = state.predict(line)
    inside = bool(((lower <= truth(line)) & (truth(line) <= upper)).all())
    style = {"color": BLUE, "alpha": 0.18, "lw": 0, "label": "CMM band"}
    axes.fill_between(axis, lower, upper, **style)
    style = {"color": ORANGE, "alpha": 0.5, "lw": 0, "label": "mean ± 2 sd"}
    margin = 2 * spread.sqrt()
    axes.fill_between(axis, there - margin, there + margin, **style)
    axes.plot(axis, truth(line), color="black", ls="--", lw=1.2, label="truth")
    axes.set(xlabel="km from the west bank")
    axes.set_title(name, loc="left")
    print(f"{name:24s} truth inside the CMM band: {inside}", end="; ")
    off = ((there - truth(line)).abs() / spread.sqrt()).max()
    print(f"mean off by up to {float(off):.1f} sd")
panels[0].set_ylabel("m deeper than 12 m")
figure.legend(*panels[0].get_legend_handles_labels(), ncols=3, **LEGEND)
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
print(f"{'':20s}" + "".join(f"{name:>26s}" for name in states))
for name, bound in bounds.items():
    answers = [
        "nothing" if bound.guarantee_on(s) is None else "proved"
        for s in states.values()
    ]
    print(f"{name:20s}" + "".join(f"{answer:>26s}" for answer in answers))
print(cmm.guarantee_on(bad))

# %% [markdown]
# The first three include the residual and hold on every dictionary. The width of EK-UCB
# is proved while the residual stays below a number that is fixed in advance (here the
# ridge); that of BKB if the dictionary guarantees accurate leverages, which only
# `LeverageResampling.for_horizon` does. "Proved" always means: if the norm is at most
# `NORM` and the noise at most `SCATTER`.
#
# ## The variance far from the dictionary
#
# Sketches have a well-known problem. If the features are used as the complete model
# (*subset of regressors*, SoR), the variance far from the dictionary goes to zero: the
# model is certain where there are no data, and an optimiser that uses it does not
# explore. kbo uses the *deterministic training conditional* (DTC), which adds the
# variance at $x$ that the features leave out. SoR takes three lines, so we compare
# both.

# %%
rbf = RBFKernel().double().requires_grad_(False)
rbf.lengthscale = 0.1
seen = 0.5 * torch.rand(60, 1, dtype=torch.double)
noisy = torch.sin(12 * seen[:, 0]) + 0.1 * torch.randn(60, dtype=torch.double)
x = torch.linspace(0, 1, 201, dtype=torch.double).unsqueeze(-1)

dictionary = FixedDictionary.pivoted(rbf, seen, 6)
full, dtc = KernelRidge(rbf, 0.01), NystromRidge(rbf, 0.01, dictionary)
full.update(seen, noisy)
dtc.update(seen, noisy)

Z, z = dtc.sketch.features(seen), dtc.sketch.features(x)  # [m n] and [m 201]
M = Z @ Z.T + 0.01 * torch.eye(dtc.m)
sor = 0.01 * (z * torch.linalg.solve(M, z)).sum(0)

(m_exact, v_exact), (m_dtc, v_dtc) = full.predict(x), dtc.predict(x)
cases = {
    "exact": (m_exact, v_exact, GREY),
    f"DTC, {dtc.m} places": (m_dtc, v_dtc, BLUE),
    f"SoR, {dtc.m} places": (m_dtc, sor, ORANGE),
}
figure, panels = plt.subplots(1, 3, figsize=(9, 3.2), sharey=True, layout="constrained")
for axes, (name, (centre, v, colour)) in zip(panels, cases.items(), strict=True):
    style = {"color": colour, "alpha": 0.25, "lw": 0, "label": "mean ± 3 sd"}
    axes.fill_between(x[:, 0], centre - 3 * v.sqrt(), centre + 3 * v.sqrt(), **style)
    axes.plot(x[:, 0], torch.sin(12 * x[:, 0]), color="black", ls="--", lw=1.2)
    axes.scatter(seen[:, 0], noisy, s=6, color="black")
    axes.set(xlabel="x")
    axes.set_title(name, loc="left")
panels[0].set_ylabel("f(x); dashed: truth, dots: observed")
plt.show()
far = x[:, 0] > 0.9
for name, (_, v, _) in cases.items():
    print(f"{name:14s} sd beyond x = 0.9: {float(v[far].sqrt().mean()):.4f}", end="; ")
    print(f"least ratio to the exact sd {float((v / v_exact).sqrt().min()):.4f}")

# %% [markdown]
# Where nothing was observed, the standard deviation of DTC is that of the exact
# posterior. But note the last column: at some points its standard deviation is a little
# *smaller* than the exact one. It is an approximation, not an upper bound. This is why
# a bound on a sketch has to add the residual.
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
thin = slice(None, None, N // (400 if QUICK else 1000))
dictionaries = {
    "pivoted": FixedDictionary.pivoted(kernel, X[part], 100),
    "greedy": GreedyDictionary(0.01),
    "KORS, 1": OnlineRowSampling(RIDGE, gamma=1.0),
    "KORS, 10": OnlineRowSampling(RIDGE, gamma=10.0),
    "BKB": LeverageResampling(5.0),
    "BBKB": BatchedResampling(5.0, growth=3.0),
}
print("           m   CPU time  missed share  width of CMM  error of the map")
for name, dictionary in dictionaries.items():
    state, start = NystromRidge(kernel, RIDGE, dictionary), time.process_time()
    for i in range(len(X[thin])):
        state.update(X[thin][i : i + 1], y[thin][i : i + 1])
    seconds, share = time.process_time() - start, float(state.error.trace) / state.n
    error = float((state.predict(grid)[0] - bed).square().mean().sqrt())
    print(f"{name:8s} {state.m:3d}  {seconds:7.2f} s  {share:12.1e}", end="  ")
    print(f"{mean_width(state):10.2f} m  {100 * error:13.1f} cm")

# %% [markdown]
# The maps are equally good: all of these dictionaries are large enough for a mean. BKB
# rebuilds its sketch after every observation. With $n$ distinct places that costs $O(n
# m^2)$ each time, too much for ten thousand; BBKB rebuilds seldom.
#
# ## The same place again
#
# Ten thousand observations can have few distinct places. Suppose that there are forty
# moored buoys that measure all the time. Observations at one place are kept as a count
# and a mean, so even the exact posterior is small then, and no sketch is needed.

# %%
buoys = torch.rand(40, 2, dtype=torch.double)
visits = buoys[torch.randint(40, (N,))]
depths = sound(visits)
start = time.process_time()
counted = KernelRidge(kernel, RIDGE)
counted.update(visits, depths)
print(counted, f"{time.process_time() - start:.2f} s")

at_buoys = NystromRidge(kernel, RIDGE, FixedDictionary(buoys))
at_buoys.update(visits, depths)
same = (counted.predict(grid)[0] - at_buoys.predict(grid)[0]).abs().max()
print(at_buoys, f"largest difference of means {float(same):.0e}")

# %% [markdown]
# ## The deepest place
#
# `NystromGP` is the same posterior as a BoTorch model. It takes 5000 soundings, and
# then the boat sails to where the depth *could* be greatest: the place with the largest
# upper bound. `condition_on_observations` continues with the dictionary and extends it.
# At each place the boat stays for 25 soundings.

# %%
half = slice(None, None, 2)
model = NystromGP(X[half], y[half, None], kernel, RIDGE, GreedyDictionary(1e-3))
square = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
best = float(bed.max())
print(model.state)

start = time.process_time()
for step in range(3 if QUICK else 8):
    acquisition = CMMUCB(model, noise_std=SCATTER, norm_bound=NORM, delta=DELTA)
    x, _ = optimize_acqf(acquisition, square, q=1, num_restarts=2, raw_samples=32)
    stay = x.expand(25, -1)
    model = model.condition_on_observations(stay, sound(stay).unsqueeze(-1))
    gap = candidate_gap(cmm, model.state, grid)
    left = best - float(bed[gap.recommended])
    print(f"step {step}  at ({x[0, 0]:.2f}, {x[0, 1]:.2f})", end="  ")
    print(f"gap {gap.value:.2f} m, true regret {left:.2f} m")
print(model.state, f"{time.process_time() - start:.1f} s")

# %% [markdown]
# The gap bounds how much deeper other places of the grid can be than the recommended
# one, if the norm bound and the scatter are right. It decreases slowly, and
# not at every step, because a few more soundings change little after thousands. It is
# far larger than the true regret, because it covers the worst lake with that norm; a
# part of it is due to the sketch (see the table above).
#
# ## Forty places at once
#
# Sometimes a whole survey must be planned before the boat leaves. `choose_batch` picks
# places from a list. After each choice it adds a hypothetical observation with the
# expected value: the mean stays, and the variance shrinks, so later choices are
# elsewhere. (In a BoTorch loop, `q=40` or `X_pending` do this.)
#
# A `Method` is a function that makes an empty posterior, a bound and a rule, by default
# the largest upper bound. `bandit.make` makes the named ones, and the next cell makes
# another: AMM on a sketch. AMM is wider than CMM and faster, because it uses one ridge
# only. We start with a hundred soundings.

# %%
amm = MartingaleMixture(SCATTER, NORM, DELTA, kind="amm")
method = Method(partial(NystromRidge, kernel, RIDGE, GreedyDictionary(1e-3)), amm)
state = method.state()
first = torch.randperm(N)[:100]
state.update(X[first], y[first])

waves, start = [], time.process_time()
for _ in range(3):
    rows = method.choose_batch(state, grid, 40)
    state.update(grid[rows], sound(grid[rows]))
    waves.append(grid[rows])
    gap = candidate_gap(amm, state, grid)
    recommended = gap.recommended
    left = best - float(bed[recommended])
    print(f"{len(set(rows))} different places", end="; ")
    print(f"gap {gap.value:.2f} m, true regret {left:.2f} m")
print(f"{time.process_time() - start:.1f} s")

lower, upper = amm.interval(state, grid)
inside = bool(((lower <= bed) & (bed <= upper)).all())
print(f"truth inside the band on the whole grid: {inside}")

# %%
figure, panels = plt.subplots(1, 2, figsize=(9, 4.1), sharey=True, layout="constrained")
fields = {"the map after three batches": state.predict(grid)[0], "truth": bed}
levels = range(math.floor(float(bed.min())), math.ceil(float(bed.max())) + 1)
for axes, (name, field) in zip(panels, fields.items(), strict=True):
    Z = field.reshape(len(axis), len(axis)).T
    drawn = axes.contourf(axis, axis, Z, levels=levels, cmap="cividis", extend="both")
    limits = {"xlim": (-0.02, 1.02), "ylim": (-0.02, 1.02)}
    axes.set(xlabel="km east", aspect="equal", **limits)
    axes.set_title(name, loc="left")
panels[0].set_ylabel("km north")
figure.colorbar(drawn, ax=panels, label="m deeper than 12 m")
panels[0].scatter(*X[first].T, s=5, color="black", label="first pass")
marks = {
    "1st batch": ("o", "#56b4e9"),
    "2nd batch": ("s", PINK),
    "3rd batch": ("D", ORANGE),
}
for places, (name, (mark, colour)) in zip(waves, marks.items(), strict=True):
    style = {"s": 18, "marker": mark, "color": colour, "edgecolors": "white", "lw": 0.5}
    panels[0].scatter(*places.T, label=name, **style)
style = {"marker": "*", "s": 170, "color": "white", "edgecolors": "black"}
panels[0].scatter(*grid[recommended], label="recommended", zorder=3, **style)
figure.legend(*panels[0].get_legend_handles_labels(), ncols=5, **LEGEND)
plt.show()

# %% [markdown]
# The bounds also hold for places that were chosen in batches: they allow every choice
# that depends only on earlier observations. They guarantee that the deepest place of
# the grid is deeper than the recommended one by at most the gap. They do not predict
# how many batches are needed to make the gap small.
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
