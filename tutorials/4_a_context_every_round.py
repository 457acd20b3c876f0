# %% [markdown]
# # A context every round
#
# Often the best choice depends on something that you observe but do not choose: the
# weather, the customer, the patient, the load on a server. Each round shows such a
# *context*, you choose an *action*, and you observe its reward, for this action and
# this context only. That is a contextual bandit.
#
# kbo needs no special classes for this. The kernel compares pairs of context and
# action, the posterior learns a function of both, and in each round only the pairs with
# the current context are compared. Observations in one context also inform about
# similar contexts, so a round is useful even if its context never occurs again.

# %%
import math
import os
import time

import matplotlib.pyplot as plt
import torch
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel

import kbo
from experiments.problems import Chessboard, ClassificationBandit
from kbo import bandit
from kbo.acquisition import KernelUCB
from kbo.bandit import play
from kbo.confidence import MartingaleMixture
from kbo.models import NystromGP
from kbo.regression import GreedyDictionary

QUICK = bool(os.environ.get("KBO_TUTORIAL_QUICK"))  # shorter loops, for automatic tests
torch.manual_seed(0)
plt.rcParams.update({"figure.dpi": 150, "font.size": 9})
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"  # safe for the colour-blind
GREY = "#7f7f7f"
LEGEND = {"loc": "outside lower center", "frameon": False}

# %% [markdown]
# ## The loop
#
# `Chessboard` is a small test problem. A context $x$ between 0 and 1 is random, and
# there are ten actions $a$, also numbers. The reward is 1 on three fields of a 4 by 4
# board, 0.5 on three others, and 0 elsewhere, with noise 0.1. `arms()` begins a round:
# it returns the ten pairs $(x, a)$.
#
# A method comes from `bandit.make`. EK-UCB has a sketched posterior, so the cost of a
# round does not grow with the number of rounds (the third tutorial is about sketches).
# The whole loop:

# %%
problem = Chessboard(seed=0)
numbers = {"noise_std": problem.noise_std, "norm_bound": problem.norm_bound}
numbers |= {"kernel": problem.kernel, "delta": 0.1}
method = bandit.make("ek-ucb", **numbers, ridge=10, multiplier=0.1)

state, total = method.state(), 0.0
rounds = 200 if QUICK else 1000
for _ in range(rounds):
    arms = problem.arms()  # the context is shown
    i = method.choose(state, arms)
    reward = problem.observe(arms[i : i + 1])
    state.update(arms[i : i + 1], reward)
    total += float(reward)
print(state)
print(f"mean reward {total / rounds:.2f}")

# %% [markdown]
# The figure shows the mean of the posterior over all pairs, next to the true rewards.

# %%
axis = torch.linspace(0, 0.999, 80, dtype=torch.double)
pairs = torch.cartesian_prod(axis, axis)
figure, panels = plt.subplots(1, 2, figsize=(9, 3.9), sharey=True, layout="constrained")
fields = {"mean reward, truth": problem.mean(pairs), "learned": state.predict(pairs)[0]}
for axes, (name, field) in zip(panels, fields.items(), strict=True):
    Z = field.reshape(len(axis), len(axis)).T
    style = {"vmin": 0, "vmax": 1, "cmap": "cividis", "shading": "nearest"}
    drawn = axes.pcolormesh(axis, axis, Z, **style)
    for a in problem.actions[:, 0]:
        axes.axhline(float(a), color="white", lw=0.4, alpha=0.6)
    axes.set(xlabel="context x", aspect="equal", xlim=(0, 1), ylim=(-0.01, 1))
    axes.set_title(name, loc="left")
panels[0].set_ylabel("action a (lines: the ten there are)")
figure.colorbar(drawn, ax=panels, label="reward")
plt.show()

# %% [markdown]
# The mean is accurate on the good fields and inaccurate on the others, because an
# action is no longer chosen once its upper bound is low.
#
# ## Comparison with other methods
#
# `play` is the same loop, with a count of the *regret*: how much less than the best
# action of each round was chosen, without noise. Two problems with the same seed have
# the same contexts and noise. K-UCB has an exact posterior.

# %%
SEEDS = range(1 if QUICK else 3)
compared = {
    "random": (GREY, ":", 1.3, {}),
    "k-ucb": (ORANGE, "-", 3.5, {"ridge": 10, "multiplier": 0.1}),
    "ek-ucb": (BLUE, "-", 1.3, {"ridge": 10, "multiplier": 0.1}),
    "ek-ucb, its own width": (GREEN, "-.", 1.3, {"ridge": 10}),
}
figure, axes = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
for name, (colour, dashes, thick, options) in compared.items():
    curves, seconds = [], 0.0
    for seed in SEEDS:
        chosen = bandit.make(name.split(",")[0], **numbers, **options)
        rows = list(play(chosen, Chessboard(seed=seed), rounds, seed=seed))
        curves.append(torch.tensor([row["cumulative"] for row in rows]))
        seconds += rows[-1]["cpu_seconds"] / len(SEEDS)
    ends = ", ".join(f"{float(curve[-1]):.1f}" for curve in curves)
    anchors = f"; m = {rows[-1]['m']}" if "m" in rows[-1] else ""
    print(f"{name:22s} regret {ends}; {seconds:.2f} s a run{anchors}")
    for i, curve in enumerate(curves):
        style = {"color": colour, "ls": dashes, "lw": thick}
        axes.plot(range(1, rounds + 1), curve, label="" if i else name, **style)
axes.set(xlabel="round", ylabel="regret so far", ylim=(0, None))
axes.set_title(f"Chessboard, {len(SEEDS)} seeds each", loc="left")
figure.legend(ncols=4, **LEGEND)
plt.show()

# %% [markdown]
# Here the sketch has the same regret as the exact posterior and is faster. The last
# line is EK-UCB with the width of its theorem instead of `multiplier=0.1`. It explores
# far more.
#
# `multiplier=0.1` means *mean + 0.1 √leverage*, with leverage = variance / ridge. This
# is a heuristic, and `guarantee_on` says so:

# %%
own = bandit.make("ek-ucb", **numbers, ridge=10)
print("with 0.1:", method.confidence.guarantee_on(state))
print("its own width:", own.confidence.guarantee_on(state))

# %% [markdown]
# Read the condition in the second sentence. The rewards of a chessboard have edges, and
# no function with edges has a finite norm for a Gaussian kernel. So the condition fails
# for every norm bound, and no method has a guarantee here. The problem has a nominal
# `norm_bound` of 1 because methods need a value.
#
# ## A classifier with only right or wrong as feedback
#
# A context can have many numbers. `ClassificationBandit` shows a handwritten digit (ten
# principal components of the picture); the actions are the ten classes; the reward is 1
# for the right one, else 0, and one answer in ten is reported the wrong way round.
# After a wrong guess the right class stays unknown.

# %%
digits = ClassificationBandit("digits", seed=0)
numbers_ = {"noise_std": digits.noise_std, "norm_bound": digits.norm_bound}
method = bandit.make(
    "ek-ucb", digits.kernel, **numbers_, delta=0.1, ridge=0.3, multiplier=0.3
)
T, window = (300, 100) if QUICK else (3000, 250)
rows = list(play(method, digits, T))
right = torch.tensor([row["regret"] == 0 for row in rows]).double()
share = right.unfold(0, window, 1).mean(-1)
anchors = torch.tensor([row["m"] for row in rows])

figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
panels[0].plot(range(window, T + 1), share, color=BLUE, lw=1.5)
panels[0].axhline(0.1, color=GREY, ls=":", label="random guess")
panels[0].set(xlabel="round", ylabel=f"right among the last {window}", ylim=(0, 1))
panels[0].legend(frameon=False)
panels[1].plot(range(1, T + 1), anchors, color=BLUE, lw=1.5)
panels[1].set(xlabel="round", ylabel="places in the dictionary m", ylim=(0, None))
plt.show()
print(f"right among the last {window}: {float(share[-1]):.0%}", end="; ")
print(f"{rows[-1]['cpu_seconds']:.1f} s, m = {rows[-1]['m']}")

# %% [markdown]
# With so many numbers in a context the dictionary reaches its limit of 500. A limit
# keeps rounds cheap. It may reduce accuracy, and bounds that include the residual
# become wider.
#
# ## Ask and tell, with a context
#
# In your own program the contexts come from outside. The example is an ice-cream stand.
# Every morning there is a weather forecast, then a price is chosen, and in the evening
# the profit is known. The stand is simulated, so that we can check the results.


# %%
def expected(temperature, price):
    """Expected profit of a day in euros."""
    customers = 20 + 9 * max(temperature - 10, 0)
    willing = 1 / (1 + math.exp((price - 1.4 - 0.07 * temperature) / 0.35))
    return customers * willing * (price - 0.8)


def best_price(temperature):
    """The best price, to the cent."""
    prices = [1 + i / 100 for i in range(401)]
    return max(prices, key=lambda price: expected(temperature, price))


def forecast():
    """The temperature of tomorrow."""
    return round(12 + 20 * float(torch.rand(())), 1)


# %% [markdown]
# The temperature is a parameter like any other: it has bounds, which define its scale.
# The only difference is that `ask(context=...)` fixes it.

# %%
bounds = {"temperature": (10.0, 35.0), "price": (1.0, 5.0)}
stand = kbo.Optimizer(bounds, maximize=True, seed=0)
days = 20 if QUICK else 60
lost = []
for day in range(days):
    temperature = forecast()
    params = stand.ask(context={"temperature": temperature})
    value = expected(**params)
    stand.tell(params, value + 8 * float(torch.randn(())))
    lost.append(expected(temperature, best_price(temperature)) - value)
    if day % 10 == 0:
        print(
            f"day {day:2d}: {temperature:4.1f} °C, price {params['price']:.2f}", end=""
        )
        print(f", {lost[-1]:6.2f} € less than the best price would give")
third = days // 3
first, last = sum(lost[:third]) / third, sum(lost[-third:]) / third
print(f"lost a day: {first:.2f} € in the first third, {last:.2f} € in the last")

# %% [markdown]
# `best(context=...)` is the setting with the best pessimistic bound in a context, which
# may be a new one. (`recommended()` compares all trials with each other. With contexts
# this is not useful: it would recommend hot weather.)

# %%
temperatures = [12, 16, 20, 24, 28, 32]
print("  °C   price   best   expected profit   interval           possible")
chosen = []
for temperature in temperatures:
    params = stand.best(context={"temperature": temperature})
    low, mean, high = stand.interval(params)
    ideal = best_price(temperature)
    chosen.append(params["price"])
    print(f"  {temperature}   {params['price']:5.2f}   {ideal:4.2f}", end="   ")
    print(f"{expected(**params):15.1f}   [{low:6.1f}, {high:6.1f}]", end="   ")
    print(f"{expected(temperature, ideal):8.1f}")

figure, axes = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
warmth = torch.linspace(10, 35, 60).tolist()
axes.plot(
    warmth, [best_price(t) for t in warmth], "--", color="black", label="best price"
)
trials = [trial.params for trial in stand.completed()]
tried = [(params["temperature"], params["price"]) for params in trials]
style = {
    "c": range(len(tried)),
    "cmap": "Blues",
    "edgecolors": GREY,
    "lw": 0.4,
    "s": 22,
}
dots = axes.scatter(*zip(*tried, strict=True), label="tried", **style)
axes.plot(temperatures, chosen, "o", color=ORANGE, ms=6, label="best(context)")
figure.colorbar(dots, label="day")
axes.set(xlabel="temperature, °C", ylabel="price, €")
figure.legend(ncols=3, **LEGEND)
plt.show()

# %% [markdown]
# This is the practical setting: kernel, noise and norm are estimated, and the intervals
# have no guarantee.
#
# ## Choices that change
#
# Sometimes not every action is available. `choices=` lists the available ones, without
# the parameters of the context; the one with the largest upper bound is chosen. Suppose
# that there are only a few price tags each day.

# %%
for tags in ([1.5, 2.0, 2.5, 3.0], [2.0, 3.5], [1.5, 4.5]):
    choices = [{"price": tag} for tag in tags]
    context = {"temperature": 26.0}
    params = stand.ask(context=context, choices=choices)
    stand.tell(params, expected(**params) + 8 * float(torch.randn(())))
    cautious = stand.best(context=context, choices=choices)
    ideal = max(tags, key=lambda tag: expected(26.0, tag))
    print(
        f"tags {tags}: tried {params['price']}, best {cautious['price']}",
        end=", ",
    )
    print(f"truly best {ideal}")

# %% [markdown]
# ## With a guarantee
#
# The certified setting works the same with contexts (see the first tutorial for its
# assumptions): the intervals hold for all days, contexts and prices at once. The
# context may come from any source, even from an adversary, if it is fixed before the
# noise of that day. Here the true profit is a sum of kernels, so that its norm is
# known; profit is in units of 100 € above an ordinary day.

# %%
kernel = MaternKernel(nu=2.5).double().requires_grad_(False)
kernel.lengthscale = 0.5  # of the ranges of temperature and price
centres = torch.tensor(
    [[0.1, 0.2], [0.3, 0.4], [0.6, 0.5], [0.8, 0.8], [0.9, 0.3], [0.2, 0.9]]
).double()
weights = torch.tensor([0.6, 0.8, 1.1, 1.4, -0.9, -1.2]).double()
norm = float((weights @ kernel(centres, centres).to_dense() @ weights).sqrt())
print(f"the true norm is {norm:.2f}; the norm bound is 3")


def profit(U):
    """Hundreds of euros above an ordinary day, at (temperature, price) in [0, 1]^2."""
    return kernel(U, centres).to_dense() @ weights


setting = kbo.Certified(kernel, noise_std=0.1, norm_bound=3.0, delta=0.05)
unit = {"temperature": (0.0, 1.0), "price": (0.0, 1.0)}
stand = kbo.Optimizer(unit, setting=setting, maximize=True, seed=0)
for _ in range(10 if QUICK else 40):
    params = stand.ask(context={"temperature": float(torch.rand(()))})
    U = torch.tensor([list(params.values())]).double()
    stand.tell(params, float(profit(U)) + 0.1 * float(torch.randn(())))

belief = stand.insight.surrogate()
confidence, state = belief.reported, belief.posterior
print(confidence.guarantee_on(state))
for temperature in (0.2, 0.5, 0.9):
    params = stand.best(context={"temperature": temperature})
    low, mean, high = stand.interval(params)
    true = float(profit(torch.tensor([list(params.values())]).double()))
    print(f"temperature {temperature}: price {params['price']:.2f}", end=", ")
    print(f"interval [{low:.2f}, {high:.2f}], truth {true:.2f}")

# %% [markdown]
# ## In a BoTorch loop
#
# If you have a BoTorch loop, the context is a column like any other, and
# `fixed_features` of `optimize_acqf` fixes it. Here every customer is a round. Two
# thousand earlier rounds with random prices are available, so we use the sketched
# model.

# %%
record = torch.rand(2000, 2, dtype=torch.double)
values = (profit(record) + 0.1 * torch.randn(2000).double()).unsqueeze(-1)
model = NystromGP(record, values, kernel, ridge=0.01, dictionary=GreedyDictionary(1e-3))
confidence = MartingaleMixture(noise_std=0.1, norm_bound=3.0, delta=0.05)
square = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
fine = torch.linspace(0, 1, 201, dtype=torch.double)


def loss(U):
    """Regret of one (temperature, price) against the best price."""
    options = torch.stack([U[0, 0].expand(len(fine)), fine], -1)
    return float((profit(options).max() - profit(U)).clamp_min(0))


lost, start = [], time.process_time()
for _ in range(5 if QUICK else 30):
    x, _ = optimize_acqf(
        KernelUCB(model, confidence),
        square,
        q=1,
        num_restarts=2,
        raw_samples=16,
        fixed_features={0: float(torch.rand(()))},
    )
    y = profit(x) + 0.1 * torch.randn(1).double()
    model = model.condition_on_observations(x, y.unsqueeze(-1))
    lost.append(loss(x))
at_random = sum(loss(U) for U in record[:200].split(1)) / 200
print(f"lost a round: {at_random:.3f} at random, {sum(lost) / len(lost):.3f} now")
print(model.state, f"{time.process_time() - start:.1f} s")
print(confidence.guarantee_on(model.state))

# %% [markdown]
# The guarantee holds on the sketch as on exact posteriors. `KernelRidgeGP` is the exact
# model; the loop is the same.
#
# ## What to remember
#
# * A context is a part of the point. The kernel defines which contexts are similar.
# * Finite actions: `bandit.make(...)`, then `choose` among the pairs of the round and
#   `update`. Your own program: `ask(context=...)`, `tell`, `best(context=...)`, and
#   `choices=` when they change. BoTorch: `fixed_features`.
# * A multiplier is a heuristic without a guarantee. Martingale mixtures have one, if
#   the norm bound is true; for rewards with edges no norm bound is true.
