# %% [markdown]
# # Your own bound
#
# In kbo a confidence bound is a class with one method. It gets a posterior and some
# points, and returns a lower and an upper bound of the function there. This tutorial
# writes one from scratch, tests whether it holds, and compares it with the bounds of
# kbo.

# %%
import math
import os

import matplotlib.pyplot as plt
import torch
from botorch.optim import optimize_acqf
from scipy.stats import binomtest

from experiments.problems import RKHSBandit
from kbo import KernelRidge
from kbo.acquisition import KernelUCB
from kbo.confidence import (
    Confidence,
    FixedWidth,
    MartingaleMixture,
    SelfNormalized,
    WidthConfidence,
)
from kbo.confidence.certificate import certify
from kbo.models import KernelRidgeGP, NystromGP
from kbo.regression import FixedDictionary, NystromRidge

QUICK = bool(os.environ.get("KBO_TUTORIAL_QUICK"))  # shorter loops, for automatic tests
torch.manual_seed(0)
plt.rcParams.update({"figure.dpi": 150, "font.size": 9})
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"  # safe for the colour-blind
PINK, GREY = "#cc79a7", "#7f7f7f"

# %% [markdown]
# ## The input of a bound
#
# `interval(state, X)` is the whole interface: `state` is a posterior
# (`kbo.regression.Posterior`), `X` are points of shape `[... d]`, and the two results
# have shape `[...]`. The state provides a few numbers. With the ridge $\alpha$, the
# kernel matrix $K$ and the targets $y$ of the $n$ observations:
#
# | in code | what it is |
# |---|---|
# | `state.predict(X)[0]` | mean $k(x)^\top (K + \alpha I)^{-1} y$ |
# | `state.predict(X)[1]` | variance $k(x, x) - k(x)^\top (K + \alpha I)^{-1} k(x)$ |
# | `state.ridge`, `state.n` | $\alpha$ and $n$ |
# | `state.at().log_det()` | $\ln\det(I + K / \alpha)$, twice the information gain |
# | `state.at().quad()` | $y^\top (I + K / \alpha)^{-1} y$, misfit of the data |
# | `state.error.norm()` | error of an approximate kernel matrix; 0 if exact |
#
# The simplest bound changes another one. Suppose that you know the range of the
# function: a proportion is between 0 and 1. Then every bound may be clamped to this
# range, and the clamped bound holds whenever the first one does.


# %%
class KnownRange(Confidence):
    """A given bound, clamped to the known range of the function."""

    def __init__(self, bound, least, most):
        self.bound, self.least, self.most = bound, least, most
        self.delta = bound.delta
        if bound.guarantee:
            self.guarantee = f"{bound.guarantee}, and it lies in [{least:g}, {most:g}]"

    def interval(self, state, X):
        """Lower and upper bound [...] at X [... d]."""
        lower, upper = self.bound.interval(state, X)
        return lower.clamp(self.least, self.most), upper.clamp(self.least, self.most)

    def objections(self, state):
        """Reasons why nothing is proved on this posterior: those of the given bound first."""
        return self.bound.objections(state) or super().objections(state)


# %% [markdown]
# `guarantee` is a sentence that states what is proved. It is `None` if nothing is
# proved, and then every report of kbo says so. `objections` lists the reasons why the
# statement does not hold on a posterior, for example one whose ridge was chosen from
# the data. If a bound is computed from another one, it also has the objections of that
# bound: where nothing is proved about the inner bound, nothing is proved about the
# outer one.
#
# ## A bound from scratch
#
# Many bounds are `mean ± width · standard deviation`. For these there is
# `WidthConfidence`, which needs only the width. Let us derive one. The mean at $x$ is a
# weighted sum of the targets, $w^\top y$. Let $\|f\| \le B$, and let the noise be
# $\sigma$-sub-Gaussian.
#
# * The variance is a minimum: $v = \min_w \|k_x - \sum_i w_i k_{x_i}\|^2 + \alpha
#   |w|^2$, and the weights of the mean attain it. So without noise the mean is wrong by
#   at most $B \sqrt{v}$, and $|w| \le \sqrt{v / \alpha}$.
# * The noise adds $w^\top \varepsilon$. **If the points were chosen without looking at
#   the values**, $w$ is fixed, and $|w^\top \varepsilon| \le \sigma |w| \sqrt{2
#   \ln(2/\delta)}$ with probability $1 - \delta$.
#
# Together: width $= B + \sigma \sqrt{2 \ln(2/\delta) / \alpha}$. (Vakili et al. 2021
# have this bound.) It holds at one point in one round. For $m$ points and all rounds at
# once, divide $\delta$ among them: each point after $n$ observations gets $6 \delta /
# (\pi^2 n^2 m)$.


# %%
class Planned(WidthConfidence):
    """Bounds of the function at some points, for observations planned in advance."""

    def __init__(self, noise_std, norm_bound, delta, n_points):
        self.noise_std, self.norm_bound = noise_std, norm_bound
        self.delta, self.n_points = delta, n_points
        self.guarantee = (
            f"holds for all rounds and {n_points} points at once with probability at "
            f"least 1 - {delta:g}, if observations are planned without looking at "
            f"values, the noise is {noise_std:g}-sub-Gaussian and the norm of the "
            f"function is at most {norm_bound:g}"
        )

    def share(self, state):
        """Share of delta for one point after the observations so far."""
        return 6 * self.delta / (math.pi**2 * max(state.n, 1) ** 2 * self.n_points)

    def width(self, state):
        """Multiplier of the standard deviation."""
        noise = self.noise_std * math.sqrt(2 * math.log(2 / self.share(state)))
        return self.norm_bound + noise / math.sqrt(state.ridge)


# %% [markdown]
# The problems of kbo have a known norm: here it is exactly 5, in one dimension.

# %%
NOISE, NORM, DELTA = 0.2, 5.0, 0.1
RIDGE = NOISE**2
grid = torch.linspace(0, 1, 201, dtype=torch.double).unsqueeze(-1)


def random_problem(seed):
    """A function of norm NORM with Matern 5/2 kernel and Gaussian noise."""
    numbers = {"lengthscale": 0.15, "dim": 1, "norm": NORM, "noise_std": NOISE}
    return RKHSBandit(kernel="matern52", **numbers, seed=seed)


problem = random_problem(5)
truth = problem.mean(grid)
X = torch.rand(30, 1, dtype=torch.double)
y = problem.observe(X)
state = KernelRidge(problem.kernel, RIDGE)
state.update(X, y)

planned = Planned(NOISE, NORM, DELTA, n_points=len(grid))
lower, upper = planned.interval(state, grid)
print(planned)
inside = bool(((lower <= truth) & (truth <= upper)).all())
print(f"width {planned.width(state):.2f}, truth inside everywhere: {inside}")

early = KernelRidge(problem.kernel, RIDGE)
early.update(X[:3], y[:3])
# With k(x, x) = 1 no function of norm 5 has values beyond 5.
for bound in (planned, KnownRange(planned, -NORM, NORM)):
    lower, upper = bound.interval(early, grid)
    width, name = float((upper - lower).mean()), type(bound).__name__
    print(f"{name:10s} after 3 observations: mean width of the interval {width:.2f}")

# %% [markdown]
# ## Does it hold?
#
# A proof can be wrong, and so can code. So test the bound with many random functions,
# points and noises. A run *fails* if the function is outside the band anywhere on the
# grid at any of several moments. This is the meaning of "for all points and moments at
# once". Counting single points would give a much smaller rate.
#
# The count is itself uncertain, so we print an exact 95% interval for the failure
# probability.

# %%
MOMENTS = (1, 2, 4, 8, 16, 32)


def exact(problem, X):
    """An empty exact posterior."""
    return KernelRidge(problem.kernel, RIDGE)


def fails(bound, seed, posterior):
    """Whether the function is outside the band of a random run at any moment."""
    problem = random_problem(seed)
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(MOMENTS[-1], 1, generator=generator, dtype=torch.double)
    values, f = problem.observe(points), problem.mean(grid)
    state, n = posterior(problem, points), 0
    for moment in MOMENTS:
        state.update(points[n:moment], values[n:moment])
        n = moment
        lower, upper = bound.interval(state, grid)
        if bool(((f < lower) | (f > upper)).any()):
            return True
    return False


def count(name, bound, posterior=exact, runs=30 if QUICK else 200):
    """Print how many of the runs fail."""
    failed = sum(fails(bound, seed, posterior) for seed in range(runs))
    low, high = binomtest(failed, runs).proportion_ci(0.95, method="exact")
    verdict = "too narrow" if low > DELTA else "not refuted"
    rate = f"{100 * low:4.1f}% to {100 * high:5.1f}%"
    print(f"{name:32s} {failed:3d} of {runs} runs fail: {rate}, {verdict}")


count("planned", planned)
count("mean +- 2 standard deviations", FixedWidth(2.0))
count("mean +- 3 standard deviations", FixedWidth(3.0))
count("norm bound 2 instead of 5", Planned(NOISE, 2.0, DELTA, len(grid)))

# %% [markdown]
# Our bound does not fail once: it covers the worst function, and random ones are
# easier. Two standard deviations, which are often drawn in figures, fail in nearly
# every run, and three in most. They are valid for something else: *one* point at *one*
# moment, for a function *drawn from the Gaussian-process prior*. Such a draw rarely has
# values beyond 3. A function of norm 5 may reach 5.
#
# In the last line the norm bound is much too small, so nothing is proved, and yet the
# test finds no failure. The other term of the width is so large that it hides the
# mistake on these functions. A test like this can show that a bound is wrong. It cannot
# show that it is right for functions that were not drawn. This needs a proof.
#
# ## The same bound on a sketch
#
# A sketched posterior represents all data by the features of a few points, its
# *dictionary*. The cost of a step then does not grow with the data. The class
# `NystromRidge` has the same interface, so every bound runs on it. That does not make
# every bound *valid* on it.

# %%


def sketched(m):
    """A function that makes empty posteriors, with m of the points as dictionary."""

    def posterior(problem, X):
        dictionary = FixedDictionary.pivoted(problem.kernel, X, m)
        return NystromRidge(problem.kernel, RIDGE, dictionary)

    return posterior


RUNS = 20 if QUICK else 100
for m in (2, 4, 8, 16):
    count(f"planned, dictionary of {m}", planned, sketched(m), RUNS)

# %% [markdown]
# On small dictionaries it fails far too often: our sentence in `guarantee` does not say
# that the state must be exact. The derivation used that the variance measures all of
# the error. On a sketch it does not. The sketch replaces every observed $k_{x_i}$ by
# its image in the sketch, and what that leaves out of the kernel matrix, $E = K -
# \tilde K$, is missing from the variance. The parts left out contribute at most $B
# \sqrt{\|E\|} \, |w| \le B \sqrt{\|E\| \, v / \alpha}$ to the error of the mean. So we
# add this term. The state provides a bound of $\|E\|$: `error.norm()`. It is zero on
# exact states, so one class serves both. `covers` tells `guarantee_on` that the theorem
# holds on a sketch too.


# %%
class PlannedAnywhere(Planned):
    """``Planned`` with the error of the sketch: valid on every state."""

    covers = frozenset({"sketch"})

    def width(self, state):
        """Multiplier of the standard deviation."""
        error = state.error.norm()
        return super().width(state) + self.norm_bound * math.sqrt(error / state.ridge)


anywhere = PlannedAnywhere(NOISE, NORM, DELTA, n_points=len(grid))
for m in (2, 4, 8, 16):
    count(f"with the error, dictionary of {m}", anywhere, sketched(m), RUNS)

# %% [markdown]
# Now no run fails with any dictionary, as the proof says. The bound is wider, and its
# width decreases quickly with the size of the dictionary.

# %%
figure, panels = plt.subplots(1, 3, figsize=(9, 3.4), sharey=True, layout="constrained")
cases = {"8 points": sketched(8), "12 points": sketched(12), "exact": exact}
for axes, (name, posterior) in zip(panels, cases.items(), strict=True):
    view = posterior(problem, X)
    view.update(X, y)
    lower, upper = anywhere.interval(view, grid)
    style = {"color": BLUE, "alpha": 0.18, "lw": 0, "label": "with the error added"}
    axes.fill_between(grid[:, 0], lower, upper, **style)
    for bound in planned.interval(view, grid):
        axes.plot(grid[:, 0], bound, color=ORANGE, lw=1.2, label="without it")
    axes.plot(grid[:, 0], truth, color="black", ls="--", lw=1.2, label="truth")
    axes.scatter(X[:, 0], y, s=10, color=GREY, label="observed")
    if name != "exact":
        Z = view.anchors[:, 0]
        axes.plot(Z, [-9.6] * len(Z), "^", ms=5, color=GREEN, label="dictionary")
    axes.set(xlabel="x", ylim=(-10, 10))
    axes.set_title(name, loc="left")
panels[0].set_ylabel("f(x)")
handles, names = panels[0].get_legend_handles_labels()
unique = dict(zip(names, handles, strict=True))
LEGEND = {"loc": "outside lower center", "frameon": False, "columnspacing": 1.2}
figure.legend(unique.values(), unique.keys(), ncols=5, **LEGEND)
plt.show()

# %% [markdown]
# ## In an optimiser
#
# `KernelUCB` takes any bound and any model of kbo. Gradients come from autograd through
# `predict`, so there is nothing to add.

# %%
unit = torch.tensor([[0.0], [1.0]], dtype=torch.double)
start = X[:3], y[:3].unsqueeze(-1)
dictionary = FixedDictionary(torch.linspace(0, 1, 12, dtype=torch.double).unsqueeze(-1))
models = {
    "exact": KernelRidgeGP(*start, problem.kernel, RIDGE),
    "sketched": NystromGP(*start, problem.kernel, RIDGE, dictionary),
}
for name, model in models.items():
    for _ in range(5 if QUICK else 20):
        acquisition = KernelUCB(model, anywhere)
        x, _ = optimize_acqf(acquisition, unit, q=1, num_restarts=2, raw_samples=32)
        model = model.condition_on_observations(x, problem.observe(x).unsqueeze(-1))
    recommended, _ = anywhere.argmax_lower(model.state, grid)
    value, best = float(truth[recommended]), float(truth.max())
    print(f"{name:9s} recommends a point of value {value:.2f}; the best is {best:.2f}")

# %% [markdown]
# It works, but read the guarantee again: *if observations are planned without looking
# at values*. An optimiser does look. Its points depend on the noise, so the weights $w$
# do as well, and the second step of our proof fails. The bound is then only a
# heuristic. The bounds below are valid for points that depend on all earlier
# observations.
#
# ## Against the bounds of kbo
#
# All on the same 30 observations.

# %%
bounds = {
    "self-normalised": (SelfNormalized(NOISE, NORM, DELTA), PINK, "-"),
    "planned (ours)": (planned, GREY, "-."),
    "AMM": (MartingaleMixture(NOISE, NORM, DELTA, kind="amm"), GREEN, "-"),
    "CMM": (MartingaleMixture(NOISE, NORM, DELTA, kind="cmm"), ORANGE, "-"),
    "DMM": (MartingaleMixture(NOISE, NORM, DELTA, kind="dmm"), BLUE, "--"),
}
figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
for name, (bound, colour, dashes) in bounds.items():
    lower, upper = bound.interval(state, grid)
    style = {"color": colour, "ls": dashes, "lw": 1.4}
    axes.plot(grid[:, 0], lower, label=name, **style)
    axes.plot(grid[:, 0], upper, **style)
    print(f"{name:16s} mean width of the interval {float((upper - lower).mean()):.2f}")
axes.plot(grid[:, 0], truth, color="black", lw=1.6, label="truth")
axes.scatter(X[:, 0], y, s=14, color="black", marker="x", lw=1, label="observed")
axes.set(xlabel="x", ylabel="f(x)")
axes.set_title(f"δ = {DELTA:g}, {state.n} observations", loc="left")
figure.legend(ncols=7, **LEGEND)
plt.show()

# %% [markdown]
# All but ours hold for every point of the axis and for points chosen in any way. The
# self-normalised bound and AMM have one ridge; DMM takes the best of five ridges at
# every point; CMM the best of all. So CMM is never wider than DMM, which is never wider
# than AMM here, since the ridge of AMM is one of the five.
#
# ## A bound with a certificate
#
# AMM, DMM and CMM come from one set of functions: those with norm at most $B$ that pass
# the data at a distance of at most $R$, $|f(X) - y| \le R$. CMM is the exact maximum
# over this set. That can be proved for any single number by showing a function of the
# set that reaches it. `certify` finds this function.

# %%
cmm = bounds["CMM"][0]
lower, upper = cmm.interval(state, grid)
k = problem.kernel
figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
style = {"color": GREY, "alpha": 0.2, "lw": 0, "label": "CMM band"}
axes.fill_between(grid[:, 0], lower, upper, **style)
axes.scatter(X[:, 0], y, s=14, color="black", marker="x", lw=1, label="observed")
for place, side, colour in ((0.3, "upper", ORANGE), (0.85, "lower", BLUE)):
    x = torch.tensor([place], dtype=torch.double)
    proof = certify(cmm, state, x, side)
    print(f"{side} bound at {place}: {proof.bound:.6f}, certified: {proof.certified}")
    print(f"  attained {proof.attained:.6f} by a function of norm {proof.norm:.6f}")
    print(f"  and misfit {proof.misfit:.6f}, where R is {proof.radius:.6f}")
    f = k(grid, proof.centres).to_dense() @ proof.weights
    name = f"attains the {side} bound at {place}"
    axes.plot(grid[:, 0], f, color=colour, lw=1.6, label=name)
    axes.plot(place, proof.bound, "o", ms=7, mfc="none", mew=1.6, color=colour)
axes.set(xlabel="x", ylabel="f(x)")
axes.set_title("two functions of the set that touch the band", loc="left")
figure.legend(ncols=4, **LEGEND)
plt.show()

# %% [markdown]
# Each function stays inside the band, touches it at its circle and uses all that is
# allowed: the whole norm and the whole misfit. No bound that is derived from this set
# can be tighter at these points. You need not rely on the search that found the bound:
# the function proves it from one side, and its dual solution `proof.ridge` from the
# other.
#
# ## A sketch can only widen CMM
#
# On a sketch, CMM adds the error $E$ by itself, as we did above. So the sketched band
# contains the exact one for any dictionary, and holds whenever the exact one does.

# %%
figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
style = {"color": ORANGE, "alpha": 0.3, "lw": 0, "label": "exact CMM"}
axes.fill_between(grid[:, 0], lower, upper, **style)
styles = {4: (GREY, ":"), 8: (BLUE, "--"), 12: (GREEN, "-."), 16: (PINK, "-")}
for m, (colour, dashes) in styles.items():
    sketch = sketched(m)(problem, X)
    sketch.update(X, y)
    low, high = cmm.interval(sketch, grid)
    contains = bool((low <= lower + 1e-9).all() and (high >= upper - 1e-9).all())
    excess = float((high - low).mean() / (upper - lower).mean() - 1)
    print(f"{m:2d} points: contains the exact band {contains}, {excess:.0%} wider")
    style = {"color": colour, "ls": dashes, "lw": 1.4}
    axes.plot(grid[:, 0], low, label=f"{m} points", **style)
    axes.plot(grid[:, 0], high, **style)
axes.scatter(X[:, 0], y, s=14, color="black", marker="x", lw=1, label="observed")
axes.set(xlabel="x", ylabel="f(x)")
axes.set_title("the sketched bands contain the exact one", loc="left")
figure.legend(ncols=6, **LEGEND)
plt.show()

# %% [markdown]
# With 4 dictionary points the band is hardly narrower than $|f| \le 5$, which follows
# from the norm bound alone. Take as many points as the time for a step allows.
#
# ## What to remember
#
# * A bound is `interval(state, X)`, or only `width(state)`. It then runs on every
#   posterior and in every optimiser.
# * State in `guarantee` what is proved, including how points may be chosen and on which
#   states it holds.
# * Count failures of whole runs, not of points. A test finds bounds that are too
#   narrow; only a proof shows that a bound is wide enough.
