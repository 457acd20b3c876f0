# %% [markdown]
# # A tuning run from start to end
#
# This tutorial tunes the training of a network, with several trials at a time and
# within a given time. Then it shows the result as a table, in figures, and on a page
# that you can send to others.

# %%
import os
import tempfile
from pathlib import Path

import kbo
import kbo.report

N_TRIALS = 40
if os.environ.get("KBO_TUTORIAL_QUICK"):  # shorter, for automatic tests
    N_TRIALS = 8
FOLDER = Path(tempfile.mkdtemp())

# %% [markdown]
# ## The objective
#
# The objective takes a dict of parameters and returns the validation error. Its second
# argument is the running trial, to which it reports the error after every epoch; the
# reports are stored with the trial. The imports are inside the function, because it
# runs in other processes.


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
# The space has numbers on a linear or a logarithmic scale, and options with an order
# (`kbo.Ordinal`) or without one (a list).

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
# We run two trials at a time, each in its own process, for the given number of seconds.
# Every event is stored in the journal, so the same call continues a run that was
# interrupted. In a notebook the progress bar is a widget.

# %%
result = kbo.minimize(
    objective,
    bounds,
    n_trials=N_TRIALS,
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
# interval has no guarantee. The last lines say this.
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
# whole space. The shares add up to 100%. The intervals show how certain the model is:
# they are wide where there are few trials.

# %%
result.plot("contours")

# %%
result.plot("curves")

# %% [markdown]
# ## A page for others
#
# `kbo.report.write` makes one HTML file with all figures, all trials (also as CSV), the
# bounds and what they assume. `kbo.report.Live()` as `on_trial` shows such a page
# during a run.

# %%
page = kbo.report.write(result, FOLDER / "digits.html", title="digits")
print(f"{page.stat().st_size / 1e3:.0f} kB")

# %% [markdown]
# ## More trials
#
# The same call with a larger number continues from the journal, here for two more
# trials. `on_trial` is called after each trial; if it returns True, the run ends.


# %%
def show(trial, result):
    print(f"trial {trial.number}: {trial.value}")


more = kbo.minimize(
    objective,
    bounds,
    n_trials=len(result.trials) + 2,
    workers=2,
    journal=FOLDER / "digits.jsonl",
    on_trial=show,
)
print(more)
