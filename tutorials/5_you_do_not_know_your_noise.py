# %% [markdown]
# # You do not know your noise
#
# The bounds of the earlier tutorials need the noise level of an observation. Often it
# is unknown. This tutorial shows the effect of a wrong noise level, how the residuals
# of the fit bound it while data arrive, and how to optimise with these bounds. It also
# shows when they fail.

# %%
import os

import matplotlib.pyplot as plt
import torch
from botorch.optim import optimize_acqf

from experiments.problems import RKHSBandit, StreamingBandit
from kbo import AdaptiveRidge, KernelRidge, bandit
from kbo.acquisition import InflatedThompsonSampling, KernelUCB
from kbo.confidence import (
    AdaptiveMixture,
    AdaptiveSelfNormalized,
    FixedWidth,
    MixtureNoiseBounds,
    NoiseBounds,
    SelfNormalized,
)
from kbo.models import AdaptiveRidgeGP

N_RUNS = 40
N_ROUNDS = 1000
N_STEPS = 25
if os.environ.get("KBO_TUTORIAL_QUICK"):  # shorter loops, for automatic tests
    N_RUNS = 4
    N_ROUNDS = 150
    N_STEPS = 3
torch.manual_seed(0)
LOOK = {"figure.dpi": 150, "font.size": 9, "figure.constrained_layout.use": True}
plt.style.use(["tableau-colorblind10", LOOK])

# %% [markdown]
# ## A wrong noise level
#
# The problem `StreamingBandit` has 100 arms on a line, a Gaussian kernel, a function of
# norm 2.06 (the norm bound is 5) and noise of level 0.1. We give a bound the levels 1,
# 0.1 and 0.01. A run fails if the function is outside the band at any arm after 10, 30,
# 100 or 300 observations at random points. At most one run of ten may fail.

# %%
NOISE = 0.1
NORM = 5.0
DELTA = 0.1
kernel = StreamingBandit().kernel
arms = StreamingBandit().fixed_arms
truth = StreamingBandit().mean(arms)


def observe(n, seed, noise="gaussian"):
    """Observations at n random points; the seeds of points and noise must differ."""
    generator = torch.Generator().manual_seed(1000 + seed)
    X = torch.rand(n, 1, generator=generator, dtype=torch.double)
    return X, StreamingBandit(seed=seed, noise=noise).observe(X)


def new_state(noise_std):
    """An empty posterior with the ridge that belongs to a noise level."""
    return KernelRidge(kernel, (noise_std / NORM) ** 2)


def fails(noise_std, seed, noise="gaussian"):
    """Whether the function leaves the self-normalised band of a run at any moment."""
    X, y = observe(300, seed, noise)
    state = new_state(noise_std)
    for n in (10, 30, 100, 300):
        new = slice(state.n, n)
        state.update(X[new], y[new])
        lower, upper = SelfNormalized(noise_std, NORM, DELTA).interval(state, arms)
        if bool(((truth < lower) | (truth > upper)).any()):
            return True
    return False


X, y = observe(100, seed=1)
figure, panels = plt.subplots(1, 3, figsize=(9, 3.3), sharey=True)
for axes, noise_std in zip(panels, (1.0, 0.1, 0.01), strict=True):
    n_failed = sum(fails(noise_std, seed) for seed in range(N_RUNS))
    print(f"given {noise_std:g}: {n_failed} of {N_RUNS} runs fail")
    state = new_state(noise_std)
    state.update(X, y)
    lower, upper = SelfNormalized(noise_std, NORM, DELTA).interval(state, arms)
    axes.scatter(X, y, s=7, color="C2", label="observed")
    axes.fill_between(arms[:, 0], lower, upper, alpha=0.4, label="band")
    axes.plot(arms, truth, "k--", label="truth")
    n_outside = int(((truth < lower) | (truth > upper)).sum())
    axes.set_title(f"given {noise_std:g}: outside at {n_outside} of 100")
    axes.set(xlabel="x", ylim=(-2.3, 2.3))
handles, labels = axes.get_legend_handles_labels()
figure.legend(handles, labels, loc="outside lower center", ncols=3)
plt.show()

# %% [markdown]
# A noise level ten times too large is safe, but the band is wide. With one ten times
# too small, the band fails in every run, without a warning. In the right panel it is so
# narrow that it is hardly visible.
#
# ## Bounds from the residuals
#
# The residuals of a fit are noise plus the error of the fit. The norm bound limits the
# error, so the residuals bound the noise level from both sides, for all rounds at once.
# `AdaptiveRidge` is a posterior that updates such bounds after every observation and
# adapts its ridge. There are two classes. `NoiseBounds` is the theorem of Durand,
# Maillard and Pineau (2018) without slack. `MixtureNoiseBounds` bounds the noise by a
# martingale mixture. We give only that the noise level is at most 1.

# %%
X, y = observe(N_ROUNDS, seed=2)
figure, axes = plt.subplots(figsize=(6.5, 3.7))
for colour, kind in (("C0", NoiseBounds), ("C1", MixtureNoiseBounds)):
    bounds = kind(NORM, DELTA, upper=1.0)
    state = AdaptiveRidge(KernelRidge(kernel, bounds.ridge), bounds)
    lower = []
    upper = []
    for x, value in zip(X.split(1), y.split(1), strict=True):
        state.update(x, value)
        lower.append(state.schedule.lower)
        upper.append(state.schedule.upper)
    axes.plot(upper, color=colour, label=kind.__name__)
    axes.plot(lower, color=colour)
    print(state.schedule)
axes.axhline(NOISE, color="black", ls="--", label="true level")
axes.set(xlabel="observations", ylabel="upper and lower bound of the noise level")
axes.set(yscale="log", ylim=(0.01, 1.2))
axes.legend()
plt.show()
print(state.schedule.guarantee)

# %% [markdown]
# Both hold. The mixture needs far fewer observations before its upper bound improves,
# and it is narrower. It costs more: it evaluates twelve ridges after every observation,
# while the ridge of `NoiseBounds` rarely changes.
#
# ## With unknown noise
#
# `bandit.make` makes methods by name. "dmm-ucb" is given a noise level, here the true
# one and then its upper bound 1. The adaptive methods are given only that it is at most
# 1. Regret is how much less than the best arm was chosen, without noise.

# %%
compared = {
    "dmm-ucb, given 0.1": bandit.make("dmm-ucb", kernel, 0.1, NORM, DELTA),
    "dmm-ucb, given 1": bandit.make("dmm-ucb", kernel, 1.0, NORM, DELTA),
    "dmm-ucb-adaptive": bandit.make(
        "dmm-ucb-adaptive", kernel, None, NORM, DELTA, noise_upper=1.0
    ),
    "kernel-ucb-adaptive": bandit.make(
        "kernel-ucb-adaptive", kernel, None, NORM, DELTA, noise_upper=1.0
    ),
}
print(f"regret                first 100   all {N_ROUNDS} rounds")
for name, method in compared.items():
    rows = list(bandit.play(method, StreamingBandit(seed=0), N_ROUNDS, seed=500))
    early = rows[99]["cumulative"]
    print(f"{name:20s} {early:10.1f} {rows[-1]['cumulative']:10.1f}")

# %% [markdown]
# In the end the adaptive methods have more regret than with the true level, and far
# less than with its upper bound. Most of it comes before the upper bound improves.
# "kernel-ucb-adaptive", with `NoiseBounds`, needs longer for that than the mixture. In
# only a hundred evaluations it learns too little about the noise, and only a better
# `noise_upper` helps.
#
# With `noise_upper=None`, or `upper=None` of the bounds, nothing is assumed at first.
# The upper bound is infinite, and so are the confidence bounds. Then points are chosen
# by their standard deviation, which fills the space, until there is a finite bound. It
# may be far too large at first. So if you know any upper bound, give it.
#
# ## In a BoTorch loop
#
# `AdaptiveRidgeGP` is the model. It takes noise bounds instead of a ridge. The
# confidence has no numbers of its own: it reads them from the model, so they are always
# consistent. `AdaptiveSelfNormalized` goes with `NoiseBounds`, `AdaptiveMixture` (CMM
# by default) with `MixtureNoiseBounds`. Here in two dimensions, after 300 observations
# at random points. The function has norm 3; the norm bound is 4.

# %%
plane = RKHSBandit("matern52", 0.3, dim=2, norm=3.0, noise_std=NOISE, seed=3)
axis = torch.linspace(0, 1, 51, dtype=torch.double)
grid = torch.cartesian_prod(axis, axis)
square = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
train_X = torch.rand(300, 2, dtype=torch.double)
train_Y = plane.observe(train_X).unsqueeze(-1)
print(f"the best value is {float(plane.mean(grid).max()):.2f}")
pairs = (
    (NoiseBounds, AdaptiveSelfNormalized()),
    (MixtureNoiseBounds, AdaptiveMixture()),
)
for kind, confidence in pairs:
    bounds = kind(4.0, DELTA, upper=1.0)
    model = AdaptiveRidgeGP(train_X, train_Y, plane.kernel, bounds)
    for _ in range(N_STEPS):
        acquisition = KernelUCB(model, confidence)
        x, _ = optimize_acqf(acquisition, square, q=1, num_restarts=2, raw_samples=32)
        model = model.condition_on_observations(x, plane.observe(x).unsqueeze(-1))
    row, lower = confidence.argmax_lower(model.state, grid)
    value = float(plane.mean(grid[row : row + 1]))
    print(f"{kind.__name__}: noise at most {model.state.schedule.upper:.3f}", end="; ")
    print(f"recommends a point of value {value:.2f}, lower bound {lower:.2f}")

# %% [markdown]
# Both find a good point. But `NoiseBounds` learned nothing about the noise from 325
# observations, so its lower bound there is useless. In two dimensions there is more to
# fit, and whatever the function could explain cannot be counted as noise. The bound of
# the mixture is useful.
#
# The confidence also scales the draws of Thompson sampling, which chooses the maximiser
# of a random function. A guarantee needs *inflated* draws, whose spread is that of a
# confidence band; plain draws have the spread of the posterior. Each point of a batch
# has a draw of its own. (`InflatedPosteriorSampling` is for a finite set of points.)

# %%
# The ridge is noise^2 / 4^2, so plain draws, of prior variance 4^2, spread 4 times.
spreads = {"inflated": confidence, "plain": FixedWidth(4.0)}
for name, spread in spreads.items():
    sampling = InflatedThompsonSampling(model, spread, seed=1)
    batch, _ = optimize_acqf(
        sampling, square, q=4, num_restarts=2, raw_samples=32, sequential=True
    )
    values = ", ".join(f"{value:.2f}" for value in plane.mean(batch).tolist())
    print(f"values of a batch of {name} draws: {values}")
    print(f"  guarantee: {sampling.guarantee}")

# %% [markdown]
# The inflated batch explores more. The plain one is nearer the maximum: after so many
# observations little exploration is needed, but this is not proved.
#
# ## Noise outside the assumptions
#
# Noise bounds assume more than sub-Gaussian noise: its standard deviation must be its
# sub-Gaussian constant. Then its fourth moment is at most that of a Gaussian of the
# same level, $E \xi^4 \le 3 \sigma^4$. Take noise of rare spikes: 0 in 98% of the
# rounds, else $\pm 0.71$. Its standard deviation is again 0.1. We give that the level
# is at most 0.2, and count the runs in which the bounds are wrong on either side.
#
# The residuals can show this. The ratio of their fourth moment to their squared
# variance estimates $E \xi^4 / \sigma^4$.

# %%
for noise in ("gaussian", "spikes"):
    wrong = {NoiseBounds: 0, MixtureNoiseBounds: 0}
    refuted = 0
    ratios = []
    for seed in range(N_RUNS // 2):
        X, y = observe(250, seed, noise)
        for kind in wrong:
            bounds = kind(NORM, DELTA, upper=0.2)
            state = AdaptiveRidge(KernelRidge(kernel, bounds.ridge), bounds)
            state.update(X, y)
            if not state.schedule.lower <= NOISE <= state.schedule.upper:
                wrong[kind] += 1
            if state.schedule.refuted:
                refuted += 1
        mean, _ = state.predict(X)
        residuals = y - mean
        ratio = residuals.pow(4).mean() / residuals.square().mean() ** 2
        ratios.append(float(ratio))
    print(f"{noise}, {N_RUNS // 2} runs:", end=" ")
    for kind, n_wrong in wrong.items():
        print(f"{kind.__name__} wrong in {n_wrong}", end=", ")
    print(f"refuted in {refuted}, ratios {min(ratios):.1f} to {max(ratios):.1f}")

# %% [markdown]
# At most one run of ten may fail, if the assumption holds. With Gaussian noise none
# does. With spikes the mixture is wrong in most runs, on either side: before the first
# spike the noise appears very small, and a spike makes it appear large. `NoiseBounds`
# are wrong less often, as they are less tight. In a few runs the lower bound ends above
# the upper one. Then an assumption is false (or this is the one run in ten), and every
# confidence that uses these bounds raises `RefutedAssumptions`.
#
# But most wrong bounds are not detected in this way. So check the residuals: if the
# ratio is clearly above 3, the assumption is in doubt.
#
# Noise of mean zero that stays within $\pm s$ is $s$-sub-Gaussian. This is enough for
# the bounds with a given noise level, so we give them 0.71.

# %%
n_failed = sum(fails(0.71, seed, "spikes") for seed in range(N_RUNS))
print(f"given 0.71: {n_failed} of {N_RUNS} runs fail")

# %% [markdown]
# This band is wide, and it is proved.
#
# ## What to remember
#
# * A noise level that is too large makes bounds wide. One that is too small makes them
#   invalid, usually without a warning.
# * Noise bounds and `AdaptiveRidge`, or methods "...-adaptive", bound it online. They
#   need a norm bound, a burn-in, and noise whose standard deviation is its sub-Gaussian
#   constant.
# * `MixtureNoiseBounds` with `AdaptiveMixture` have the shortest burn-in; `NoiseBounds`
#   are cheaper and depend a little less on the assumption.
# * Check the residuals. If the tails are heavy, give a bound the range of the noise.
