# %% [markdown]
# # A tuning run from start to end
#
# A network is trained with several trials at a time, within a given time. Then we look
# at what was found: as a table, in figures, and on a page that can be sent to others.

# %%
import os
import tempfile
from pathlib import Path

import kbo
import kbo.report

QUICK = bool(os.environ.get("KBO_TUTORIAL_QUICK"))  # shorter, for automatic tests
FOLDER = Path(tempfile.mkdtemp())

# %% [markdown]
# ## The objective
#
# It takes a dict of parameters and returns the validation error. With a second argument
# it gets the running trial, to which it reports the error after every epoch; the
# reports are kept with the trial. It imports what it needs itself, since it runs in
# processes of its own.


# %%
def objective(params, trial):
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    X, y = load_digits(return_X_y=True)
    X_train, X_valid, y_train, y_valid = train_test_split(
        X / 16, y, test_size=0.5, random_state=0, stratify=y
    )
    network = MLPClassifier(
        (params["units"],),
        activation=params["activation"],
        alpha=params["alpha"],
        learning_rate_init=params["lr"],
        batch_size=params["batch"],
    )
    for epoch in range(5):
        network.partial_fit(X_train, y_train, classes=range(10))
        error = 1 - network.score(X_valid, y_valid)
        trial.report(error, step=epoch)
    return error


# %% [markdown]
# ## The space
#
# Numbers on a linear or a logarithmic scale, options with an order (`kbo.Ordinal`) and
# without one (a list).

# %%
bounds = {
    "lr": kbo.Float(1e-4, 1e-1, log=True),
    "alpha": kbo.Float(1e-6, 1e-1, log=True),
    "units": kbo.Int(8, 128, log=True),
    "batch": kbo.Ordinal([16, 32, 64, 128]),
    "activation": ["relu", "tanh"],
}

# %% [markdown]
# ## The run
#
# Two trials at a time, each in a process of its own, for so many seconds. Every event
# goes to the journal, so that the same call continues a run that was interrupted. In a
# notebook the progress bar is one of the notebook.

# %%
result = kbo.minimize(
    objective,
    bounds,
    n_trials=8 if QUICK else 40,
    time_budget=15,
    workers=2,
    timeout=30,
    journal=FOLDER / "digits.jsonl",
    progress=True,
)
result

# %% [markdown]
# The result names the recommended parameters, an interval for the error there, and how
# certain the choice is. Training is random, so the trial with the best observed value
# need not be the best one. In this setting kernel and noise are estimated, so the
# interval has no guarantee, which the last lines say.
#
# ## The trials as a table
#
# `to_csv` and `to_parquet` write the same table.

# %%
frame = result.to_frame()
frame.sort_values("value").head(5)

# %%
frame.groupby("params.activation")["value"].agg(["count", "min", "median"])

# %% [markdown]
# ## Figures
#
# The overview has the values with the interval of the recommended setting, the
# importance of the parameters, and the error along the two most important ones.

# %%
result.plot()

# %% [markdown]
# Importance is the share of a parameter in the variation of the objective over the
# whole space. The shares add up to 100%. Where few trials were made, the model knows
# little, which the intervals show.

# %%
result.plot("contours")

# %%
result.plot("curves")

# %% [markdown]
# ## A page for others
#
# One HTML file with all figures, all trials (also as CSV), the bounds and what they
# assume. `kbo.report.Live()` as `on_trial` serves such a page while a run goes on.

# %%
page = kbo.report.write(result, FOLDER / "digits.html", title="digits")
print(f"{page.stat().st_size / 1e3:.0f} kB")

# %% [markdown]
# ## More trials
#
# The same call with a larger number continues from the journal, here for two more
# trials. `on_trial` is called after each; returning True ends the run.

# %%
done = sum(trial.status != "pending" for trial in result.trials)
more = kbo.minimize(
    objective,
    bounds,
    n_trials=done + 2,
    workers=2,
    journal=FOLDER / "digits.jsonl",
    on_trial=lambda trial, result: print(f"trial {trial.number}: {trial.value}"),
)
print(more)
