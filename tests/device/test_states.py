"""What is refused on a device, and how much memory a large set takes."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import kbo
from kbo import AdaptiveRidge, KernelRidge, NoiseBounds, NystromRidge
from kbo.errors import InvalidInput
from kbo.regression import FixedDictionary, FixedPoints, Hypothetical
from tests.laws.states import matern, unit_square

STATES = {
    "exact": lambda: KernelRidge(matern(2.5), 0.1),
    "sketch": lambda: NystromRidge(matern(2.5), 0.1, FixedDictionary(unit_square(30, 2))),
    "adaptive": lambda: AdaptiveRidge(STATES["exact"](), NoiseBounds(5.0, 0.1, upper=1.0)),
}
REFUSED = [
    lambda state, X, other: state.update(other(X), X[:, 0]),
    lambda state, X, other: state.update(X, other(X[:, 0])),
    lambda state, X, other: state.update(X, X[:, 0], other(torch.ones_like(X[:, 0]))),
    lambda state, X, other: state.predict(other(X)),
    lambda state, X, other: state.at().covariance(X, other(X)),
    lambda state, X, other: Hypothetical(state, other(X)),
    lambda state, X, other: Hypothetical(state, X, other(X[:, 0])),
    lambda state, X, other: FixedPoints(state, X).predict(other(X)),
    lambda state, X, other: state.at().draw_function(other(X)),
]


@pytest.mark.parametrize("make", STATES.values(), ids=STATES)
def test_what_is_on_another_device_is_refused_and_changes_nothing(make, device):
    state = make()
    X = unit_square(9, 1).to(device)
    other, message = "cpu", "is on cpu but the data are on"
    if device.type == "cpu":
        other, message = "meta", "meta"
    state.update(X, X.sum(-1))
    before = state.predict(X)[0]
    for call in REFUSED:
        with pytest.raises(InvalidInput, match=message):
            call(state, X, lambda tensor: tensor.to(other))
        assert state.n == 9
        assert torch.equal(state.predict(X)[0], before)


class Memory(TorchDispatchMode):
    """The largest result of an operation inside, in numbers; views of larger ones do not count."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return out


@pytest.mark.parametrize("name", ["exact", "sketch"])
def test_large_sets_are_scored_and_drawn_from_in_blocks(name, device, monkeypatch):
    state, X, Z = STATES[name](), unit_square(6, 1).to(device), unit_square(4_000, 3).to(device)
    state.update(X, X.sum(-1))
    expected = state.predict(Z)
    for module in ("exact.kernel_ridge", "spectral_ridges", "sketch.nystrom", "sampling"):
        monkeypatch.setattr(f"kbo.regression.{module}.block_of", lambda on_cpu, device: 6_000)
    with Memory() as inside:
        found = state.predict(Z)
        state.at().draw(Z)
    assert inside.numel <= Z.numel()  # the points themselves, and nothing that grows faster
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("wanted", ["cuda:7", "gpu", "meta", 0.5])
def test_a_device_that_is_not_there_is_named_with_those_that_are(wanted):
    message = rf"device must be one that can be used here \(cpu.*{wanted!s}"
    with pytest.raises(InvalidInput, match=message):
        kbo.minimize(sum, [(0.0, 1.0)], 1, device=wanted)
