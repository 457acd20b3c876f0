"""Ray Tune through its own OptunaSearch."""

import signal
import tempfile

import pytest

pytest.importorskip("optuna")
ray = pytest.importorskip("ray")
tune = pytest.importorskip("ray.tune")
pytestmark = pytest.mark.keeps("file .*socket:", "Ray opens connections when it needs them")

from ray.tune.search.optuna import OptunaSearch  # noqa: E402

from kbo.integrations.optuna import KBOSampler  # noqa: E402


@pytest.fixture(scope="module")
def cluster():
    """A Ray of its own, whatever else runs on the machine; its sockets need a short path."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
        yield
        ray.shutdown()


@pytest.fixture
def handlers():
    """Puts back the signal handlers that Ray Tune leaves."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def trainable():
    """A function that is pickled by value: workers need not import what the tests do."""

    def train(config):
        tune.report({"loss": (config["lr"] - 0.3) ** 2 + abs(config["width"] - 4) / 10 + (config["act"] == "relu")})

    return train


def test_tune_runs_two_trials_at_once(cluster, tmp_path, handlers):
    sampler = KBOSampler(seed=0)
    search = OptunaSearch(metric="loss", mode="min", sampler=sampler)
    space = {"lr": tune.uniform(0.0, 1.0), "width": tune.randint(1, 9), "act": tune.choice(["relu", "tanh"]), "k": 3}
    config = tune.TuneConfig(search_alg=search, num_samples=12, max_concurrent_trials=2, reuse_actors=True)
    run = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    results = tune.Tuner(trainable(), param_space=space, tune_config=config, run_config=run).fit()
    configs = {(r.config["lr"], r.config["width"], r.config["act"]) for r in results}
    assert results.num_errors == 0
    assert len(configs) >= 9
    assert all(0 <= lr <= 1 and width in range(1, 9) for lr, width, _ in configs)
    best = results.get_best_result("loss", "min")
    assert best.metrics["loss"] < 0.2
    lower, _, upper = sampler.interval(search._ot_study, best.config)
    assert lower < upper


def test_a_saved_search_is_restored_with_its_sampler_and_its_failures(tmp_path):
    space = OptunaSearch.convert_search_space({"lr": tune.uniform(0.0, 1.0)})
    search = OptunaSearch(space, metric="loss", mode="max", sampler=KBOSampler(seed=1, n_startup_trials=3))
    for i in range(7):
        config = search.suggest(str(i))
        if i == 5:
            search.on_trial_complete(str(i), error=True)
        else:
            search.on_trial_complete(str(i), {"loss": -((config["lr"] - 0.3) ** 2), "training_iteration": 1})
    search.save(str(tmp_path / "search.pkl"))
    restored = OptunaSearch(space, metric="loss", mode="max")
    restored.restore(str(tmp_path / "search.pkl"))
    assert isinstance(restored._ot_study.sampler, KBOSampler)
    assert restored.suggest("next") == search.suggest("next")
