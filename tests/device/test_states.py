"""Posteriors on a device: what they wait for, what they refuse, and how much memory a large set takes."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kbo import AdaptiveRidge, KernelRidge, NoiseBounds, NystromRidge
from kbo.errors import InvalidInput
from kbo.experiments.bench.operations import Operations
from kbo.regression import (
    BatchedResampling,
    BatchView,
    FixedDictionary,
    GreedyDictionary,
    Hypothetical,
    LeverageResampling,
    OnlineRowSampling,
    sampling,
    track,
)
from tests.laws.states import matern, unit_square

Z = unit_square(30, 2)
RULES = {
    "fixed": FixedDictionary(Z),
    "greedy": GreedyDictionary(0.1),
    "online": OnlineRowSampling(0.1, 1.0),
    "batched": BatchedResampling(growth=1e9),
}
STATES = {
    "exact": lambda: KernelRidge(matern(2.5), 0.1),
    **{name: lambda rule=rule: NystromRidge(matern(2.5), 0.1, rule) for name, rule in RULES.items()},
}


@pytest.fixture(params=STATES)
def state(request, device):
    found = STATES[request.param]()
    X = unit_square(60, 1).to(device)
    found.update(X, X.sum(-1))
    return found


@pytest.fixture
def reads(device):
    """Return the number of reads of the device by some work."""
    if device.type == "cpu":
        pytest.skip("nothing is waited for on the CPU")

    def count(work) -> int:
        with Operations(device) as seen:
            work()
        return seen.syncs.total()

    return count


def test_an_observation_reads_the_device_twice(state, device, reads):
    """Once for itself and once for its numbers; more where it becomes an anchor or a dictionary is drawn."""
    X, points = unit_square(60, 1).to(device), Z.to(device)
    tracked, batch = track(state, points), BatchView(state, points)
    tracked.predict()
    for x in (X[:1], X[5:6]):
        m = getattr(state, "m", 0)
        found = reads(lambda x=x: (tracked.update(x, x.sum(-1)), tracked.predict()))
        assert found <= 2 + 2 * (getattr(state, "m", 0) - m)
    assert reads(lambda: batch.observe(3)) <= 2


def test_answers_read_the_device_to_test_the_points_alone(state, device, reads):
    points = Z.to(device)
    state.at()
    assert reads(lambda: state.predict(points)) == 1
    assert reads(lambda: state.covariance(points, points)) == 1
    assert reads(lambda: (state.log_det(), state.quad(), state.rss(), state.effective_dimension())) == 0
    assert reads(lambda: state.sample(torch.cat([points] * 100), 1)) <= 5
    view = Hypothetical(state, points[:3])
    assert reads(lambda: view.predict(points)) == 2  # a factor too


def adaptive(name: str) -> AdaptiveRidge:
    return AdaptiveRidge(STATES[name](), NoiseBounds(5.0, 0.1, upper=1.0))


REFUSED = {
    "points": lambda state, X, other: state.update(other(X), X[:, 0]),
    "one observation": lambda state, X, other: state.update(other(X[:1]), other(X[:1, 0])),
    "targets": lambda state, X, other: state.update(X, other(X[:, 0])),
    "weights": lambda state, X, other: state.update(X, X[:, 0], other(torch.ones_like(X[:, 0]))),
    "predict": lambda state, X, other: state.predict(other(X)),
    "covariance": lambda state, X, other: state.covariance(X, other(X)),
    "hypothetical points": lambda state, X, other: Hypothetical(state, other(X)),
    "hypothetical targets": lambda state, X, other: Hypothetical(state, X, other(X[:, 0])),
    "tracked": lambda state, X, other: track(state, other(X)),
    "of tracked points": lambda state, X, other: track(state, X).predict(other(X)),
    "draw": lambda state, X, other: sampling.draw_path(state, other(X)),
}


@pytest.mark.parametrize("call", REFUSED)
@pytest.mark.parametrize(
    "make", [STATES["exact"], STATES["fixed"], lambda: adaptive("exact"), lambda: adaptive("fixed")]
)
def test_what_is_on_another_device_is_refused_and_changes_nothing(make, call, device):
    state, X, other = make(), unit_square(9, 1).to(device), "meta" if device.type == "cpu" else "cpu"
    state.update(X, X.sum(-1))
    before = state.predict(X)[0]
    with pytest.raises(InvalidInput, match=f"is on {other} but the data are on" if other == "cpu" else "meta"):
        REFUSED[call](state, X, lambda tensor: tensor.to(other))
    assert state.n == 9
    assert torch.equal(state.predict(X)[0], before)


class Memory(TorchDispatchMode):
    """The largest result of an operation inside, in numbers; views of larger ones do not count."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.numel = max([self.numel, *(t.numel() for t in tree_leaves(out) if isinstance(t, torch.Tensor))])
        return out


def test_large_sets_are_scored_and_drawn_from_in_blocks(state, device, monkeypatch):
    block, X = 60_000, unit_square(40_000, 3).to(device)
    expected = state.predict(X)
    for module in ("exact.one_ridge", "sketch.one_ridge", "sampling"):
        monkeypatch.setattr(f"kbo.regression.{module}.block_of", lambda on_cpu, device: block)
    with Memory() as inside:
        mean, variance = state.predict(X)
        sampling.centred_draws(state, X)
    assert inside.numel <= X.numel()  # the points themselves, and nothing that grows faster
    torch.testing.assert_close((mean, variance), expected, rtol=1e-9, atol=1e-9)


def test_a_new_dictionary_reads_a_fixed_number_of_times(device, reads):
    """Whatever the number of observations."""
    found = []
    for n in (60, 240):
        state = NystromRidge(matern(2.5), 0.1, LeverageResampling(2.0))
        X = unit_square(n, 1).to(device)
        state.update(X, X.sum(-1))
        found.append(reads(lambda state=state, X=X: state.update(X[:1] + 0.1, X[:1].sum(-1))))
    assert max(found) <= 7
