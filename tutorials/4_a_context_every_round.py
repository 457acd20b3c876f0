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

import matplotlib.pyplot as plt
import torch
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel

import kbo
from experiments.problems import Chessboard
from kbo import bandit
from kbo.acquisition import KernelUCB
from kbo.confidence import MartingaleMixture
from kbo.models import KernelRidgeGP

N_ROUNDS = 1000
N_DAYS = 60
N_CERTIFIED = 40
if os.environ.get("KBO_TUTORIAL_QUICK"):  # shorter loops, for automatic tests
    N_ROUNDS = 200
    N_DAYS = 20
    N_CERTIFIED = 10
torch.manual_seed(0)
LOOK = {"figure.dpi": 150, "font.size": 9, "figure.constrained_layout.use": True}
plt.style.use(["tableau-colorblind10", LOOK])

# %% [markdown]
# ## Ask and tell, with a context
#
# The example is an ice-cream stand. Every morning there is a weather forecast, then a
# price is chosen, and in the evening the profit is known. The stand is simulated, so
# that we can check the results.


# %%
def expected_profit(temperature, price):
    """Expected profit of a day in euros."""
    customers = 20 + 9 * max(temperature - 10, 0)
    buyers = customers / (1 + math.exp((price - 1.4 - 0.07 * temperature) / 0.35))
    return buyers * (price - 0.8)


def sell(temperature, price):
    """Profit of one day in euros."""
    return expected_profit(temperature, price) + 8 * float(torch.randn(()))


def best_price(temperature):
    """The best price, to the cent."""
    prices = torch.arange(1, 5, 0.01).tolist()
    return max(prices, key=lambda price: expected_profit(temperature, price))


# %% [markdown]
# The temperature is a parameter like any other: it has bounds, which define its scale.
# The only difference is that `ask(context=...)` fixes it.

# %%
bounds = {"temperature": (10.0, 35.0), "price": (1.0, 5.0)}
stand = kbo.Optimizer(bounds, maximize=True, seed=0)
losses = []
for _ in range(N_DAYS):
    temperature = round(12 + 20 * float(torch.rand(())), 1)  # the forecast
    params = stand.ask(context={"temperature": temperature})
    stand.tell(params, sell(**params))
    possible = expected_profit(temperature, best_price(temperature))
    losses.append(possible - expected_profit(**params))
third = N_DAYS // 3
print(f"lost a day in the first third: {sum(losses[:third]) / third:.2f} €")
print(f"lost a day in the last third: {sum(losses[-third:]) / third:.2f} €")

# %% [markdown]
# `best(context=...)` is the setting with the best pessimistic bound in a context, which
# may be a new one. (`recommended()` compares all trials with each other. With contexts
# this is not useful: it would recommend hot weather.)

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.6))
for day, trial in enumerate(stand.completed()):
    shade = str(0.9 - 0.6 * day / N_DAYS)  # later days are darker
    axes.plot(trial.params["temperature"], trial.params["price"], "o", color=shade)
for temperature in (12.0, 16.0, 20.0, 24.0, 28.0, 32.0):
    params = stand.best(context={"temperature": temperature})
    lower, _, upper = stand.interval(params)
    profit = expected_profit(**params)
    print(f"{temperature} °C: price {params['price']:.2f}", end=", ")
    print(f"profit between {lower:.0f} and {upper:.0f} €, truth {profit:.0f} €")
    axes.plot(temperature, params["price"], "s", color="C1")
warmth = torch.linspace(10, 35, 60).tolist()
axes.plot(warmth, [best_price(temperature) for temperature in warmth], "--", color="C0")
axes.set(xlabel="temperature, °C", ylabel="price, €")
axes.set_title("grey: tried prices; orange: best(context=...); dashed: best prices")
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
context = {"temperature": 26.0}
for tags in ([1.5, 2.0, 2.5, 3.0], [2.0, 3.5], [1.5, 4.5]):
    choices = [{"price": tag} for tag in tags]
    params = stand.ask(context=context, choices=choices)
    stand.tell(params, sell(**params))
    best = stand.best(context=context, choices=choices)
    truly_best = max(tags, key=lambda tag: expected_profit(26.0, tag))
    print(f"tags {tags}: tried {params['price']}", end=", ")
    print(f"best {best['price']}, truly best {truly_best}")

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


def mean_profit(X):
    """Hundreds of euros above an ordinary day, at (temperature, price) in [0, 1]^2."""
    return kernel(X, centres).to_dense() @ weights


def noisy_profit(X):
    """Profits of one day each, with a scatter of 10 euros."""
    return mean_profit(X) + 0.1 * torch.randn(len(X)).double()


setting = kbo.Certified(kernel, noise_std=0.1, norm_bound=3.0, delta=0.05)
unit_bounds = {"temperature": (0.0, 1.0), "price": (0.0, 1.0)}
stand = kbo.Optimizer(unit_bounds, setting=setting, maximize=True, seed=0)
for _ in range(N_CERTIFIED):
    params = stand.ask(context={"temperature": float(torch.rand(()))})
    X = torch.tensor([[params["temperature"], params["price"]]]).double()
    stand.tell(params, float(noisy_profit(X)))

for temperature in (0.2, 0.5, 0.9):
    params = stand.best(context={"temperature": temperature})
    lower, _, upper = stand.interval(params)
    X = torch.tensor([[temperature, params["price"]]]).double()
    print(f"temperature {temperature}: price {params['price']:.2f}", end=", ")
    print(f"interval [{lower:.2f}, {upper:.2f}], truth {float(mean_profit(X)):.2f}")

# %% [markdown]
# ## In a BoTorch loop
#
# If you have a BoTorch loop, the context is a column like any other, and
# `fixed_features` of `optimize_acqf` fixes it. We start with ten days of random prices.

# %%
X = torch.rand(10, 2, dtype=torch.double)
model = KernelRidgeGP(X, noisy_profit(X).unsqueeze(-1), kernel, ridge=0.1**2)
confidence = MartingaleMixture(noise_std=0.1, norm_bound=3.0, delta=0.05)
square = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
for _ in range(N_CERTIFIED):
    x, _ = optimize_acqf(
        KernelUCB(model, confidence),
        square,
        q=1,
        num_restarts=2,
        raw_samples=16,
        fixed_features={0: float(torch.rand(()))},
    )
    model = model.condition_on_observations(x, noisy_profit(x).unsqueeze(-1))
chosen = model.train_inputs[0][10:]
random_prices = torch.rand(len(chosen), dtype=torch.double)
at_random = torch.stack([chosen[:, 0], random_prices], -1)
print(f"mean profit at the chosen prices {float(mean_profit(chosen).mean()):.2f}")
print(f"mean profit at random prices {float(mean_profit(at_random).mean()):.2f}")

# %% [markdown]
# ## The loop of a bandit
#
# With a finite set of actions and many rounds, use `kbo.bandit`. `Chessboard` is a
# small test problem. A context $x$ between 0 and 1 is random, and there are ten actions
# $a$, also numbers. The reward is 1 on three fields of a 4 by 4 board, 0.5 on three
# others, and 0 elsewhere, with noise 0.1. `arms()` begins a round: it returns the ten
# pairs $(x, a)$.
#
# A method comes from `bandit.make`. EK-UCB has a sketched posterior, so the cost of a
# round does not grow with the number of rounds (the third tutorial is about sketches).
# The whole loop:

# %%
problem = Chessboard(seed=0)
assumptions = {"noise_std": 0.1, "norm_bound": 1.0, "delta": 0.1}
method = bandit.make("ek-ucb", problem.kernel, **assumptions, ridge=10, multiplier=0.1)
state = method.state()
total = 0.0
for _ in range(N_ROUNDS):
    arms = problem.arms()  # the context is shown
    i = method.choose(state, arms)
    reward = problem.observe(arms[i : i + 1])
    state.update(arms[i : i + 1], reward)
    total += float(reward)
print(state)
print(f"mean reward {total / N_ROUNDS:.2f}")

# %% [markdown]
# `play` is the same loop, with a count of the *regret*: how much less than the best
# action of each round was chosen, without noise. Two problems with the same seed have
# the same contexts and noise. K-UCB has an exact posterior. The last line is EK-UCB
# with the width of its theorem instead of `multiplier=0.1`.

# %%
compared = {
    "random": bandit.make("random", problem.kernel, **assumptions),
    "k-ucb": bandit.make(
        "k-ucb", problem.kernel, **assumptions, ridge=10, multiplier=0.1
    ),
    "ek-ucb": method,
    "ek-ucb, its own width": bandit.make(
        "ek-ucb", problem.kernel, **assumptions, ridge=10
    ),
}
for name, method in compared.items():
    *_, last = bandit.play(method, Chessboard(seed=0), N_ROUNDS, seed=0)
    print(f"{name:22s} regret {last['cumulative']:6.1f}")
for name in ("ek-ucb", "ek-ucb, its own width"):
    print(f"{name}: {compared[name].confidence.guarantee_on(state)}")

# %% [markdown]
# Here the sketch has the same regret as the exact posterior. EK-UCB with its own width
# explores far more.
#
# `multiplier=0.1` means *mean + 0.1 √leverage*, with leverage = variance / ridge. This
# is a heuristic, and its guarantee is None. Read the condition in the last line. The
# rewards of a chessboard have edges, and no function with edges has a finite norm for a
# Gaussian kernel. So the condition fails for every norm bound, and no method has a
# guarantee here. The norm bound of 1 is nominal: methods need a value.
#
# ## What to remember
#
# * A context is a part of the point. The kernel defines which contexts are similar.
# * Your own program: `ask(context=...)`, `tell`, `best(context=...)`, and `choices=`
#   when they change. BoTorch: `fixed_features`. Finite actions: `bandit.make(...)`,
#   then `choose` among the pairs of the round and `update`.
# * A multiplier is a heuristic without a guarantee. Martingale mixtures have one, if
#   the norm bound is true; for rewards with edges no norm bound is true.
