"""Figures of runs: numbers that can be computed otherwise, and marks that stay where they are seen."""

import base64
import csv
import io
import math
import random
import re

import pandas as pd
import pytest
import torch
from gpytorch.kernels import MaternKernel

import kbo
from kbo import report
from kbo.errors import InvalidInput
from tests.parts import once

pytest.importorskip("matplotlib")

SPACE = {"x": (0.0, 1.0), "lr": kbo.Float(1e-4, 1.0, log=True), "kind": ["a", "b"]}


def additive(params):
    return params["x"] + 0.25 * math.log10(params["lr"])


def at_random(function, space):
    optimizer = kbo.Optimizer(space, setting=kbo.Practical(noise_std=0.0))
    generator = random.Random(0)
    for _ in range(40):
        unit = torch.tensor([generator.random() for _ in range(optimizer.space.dimension)])
        params = optimizer.space.params(unit)
        optimizer.tell(params, function(params))
    return optimizer


def test_importance_of_a_sum_is_that_of_its_terms_and_of_a_product_is_divided():
    """Both terms have the same variance: a uniform x, and a uniform logarithm of the same range."""
    entries = report.importance(at_random(additive, SPACE))
    expected = {"x": 0.5, "lr": 0.5, "kind": 0.0}
    assert entries[-1].name == "kind"
    for entry in entries:
        low, value, high = entry.share
        assert low <= value <= high
        assert value == pytest.approx(expected[entry.name], abs=0.03)
    product = at_random(lambda p: (p[0] - 0.5) * (p[1] - 0.5), [(0, 1), (0, 1)])
    for entry in report.importance(product):
        assert entry.share.value == pytest.approx(0.5, abs=0.03)


def test_trials_without_a_value_keep_their_crosses_when_an_outlier_is_cut():
    optimizer = kbo.Optimizer([(-1.0, 1.0)], method="random")
    for i in range(20):
        optimizer.tell([i / 40], 1e6 if i == 5 else i / 40 - 0.2)
    optimizer.fail([0.9], "diverged")
    optimizer.prune(optimizer.run.begin([0.95]))
    _, axes = report.picture()
    report.draw_history(axes, optimizer)
    assert axes.get_ylim()[1] < 10
    crosses = {entry.get_label(): entry for entry in axes.collections}
    for label in ("failed", "pruned"):
        (place,) = crosses[label].get_offset_transform().transform(crosses[label].get_offsets())
        assert place[1] == pytest.approx(axes.bbox.y1)
        assert place[0] <= axes.bbox.x1
    assert "1 trial outside the frame" in axes.get_title("right")


@pytest.mark.parametrize("group", once(["slices", "overview", "contours"]))
def test_every_kind_of_figure_is_drawn(group):
    """The overview has history, importance and slices."""
    setting = kbo.Certified(MaternKernel(nu=2.5).double(), 0.1, 3.0)
    run = kbo.minimize(lambda p: p[0] + p[1], [(0.0, 1.0)] * 2, 4, setting=setting)
    figure = run.plot(group)
    figure.savefig(io.BytesIO())


def test_a_figure_without_data_or_of_an_unknown_kind_is_refused():
    run = kbo.minimize(lambda p: p[0], [(0.0, 1.0)], 1)
    for group in ("front", "limits", "curves"):
        with pytest.raises(InvalidInput, match=f"nothing to draw for '{group}'"):
            run.plot(group)
    with pytest.raises(InvalidInput, match="what must be one of 'front', 'history'"):
        run.plot("slice")


def test_the_page_has_figures_for_dark_pages_and_the_trials_as_csv_known_ones_too(tmp_path):
    known = pd.DataFrame({"x": [0.25], "value": [0.25]})
    run = kbo.minimize(lambda p: p["x"], {"x": (0.0, 1.0)}, 2, evaluated=known)
    page = report.write(run, tmp_path / "run.html").read_text()
    content = re.search(r'href="data:text/csv;base64,(.*?)" download', page)[1]
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(content).decode())))
    assert [float(row["value"]) for row in rows] == [trial.value for trial in run.trials]
    for image in re.findall(r'src="data:image/svg\+xml;base64,(.*?)"', page):
        drawing = base64.b64decode(image).decode()
        assert "@media (prefers-color-scheme: dark)" in drawing
        drawn = re.sub(r"<style>.*?</style>", "", drawing, flags=re.DOTALL)
        assert not re.findall("#000000|#ffffff", drawn)


def test_measured_quantities_are_drawn_with_their_limits():
    constraints = [kbo.Constraint("memory", upper=0.5), kbo.Constraint("objective", lower=0.1)]

    def objective(params):
        return params["x"], {"memory": 1 - params["x"]}

    result = kbo.minimize(objective, {"x": (0.0, 1.0)}, 8, constraints=constraints)
    panels = result.plot("limits").get_axes()
    assert [axes.get_ylabel() for axes in panels] == ["memory", "objective"]
    dots = [len(collection.get_offsets()) for collection in panels[0].collections]
    assert sum(dots) == 9  # of all trials, and the ring of the recommended one
