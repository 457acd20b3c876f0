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
from gpytorch.kernels import MaternKernel, PolynomialKernel

import kbo
from kbo import report
from kbo.errors import InvalidInput
from tests.parts import once

pytest.importorskip("matplotlib")

SPACE = {"x": (0.0, 1.0), "lr": kbo.Float(1e-4, 1.0, log=True), "kind": ["a", "b"]}


def additive(params):
    return params["x"] + 0.25 * math.log10(params["lr"])


@pytest.fixture(scope="module")
def result():
    return kbo.minimize(additive, SPACE, 12, setting=kbo.Practical(noise_std=0.0))


def at_random(function, space, count=40):
    optimizer = kbo.Optimizer(space, setting=kbo.Practical(noise_std=0.0))
    generator = random.Random(0)
    for _ in range(count):
        unit = torch.tensor([generator.random() for _ in range(optimizer.space.dimension)])
        params = optimizer.space.params(unit)
        optimizer.tell(params, function(params))
    return optimizer


def test_importance_of_an_additive_function_is_that_of_its_terms():
    """Both terms have the same variance: a uniform x, and a uniform logarithm of the same range."""
    entries = report.importance(at_random(additive, SPACE))
    expected = {"x": 0.5, "lr": 0.5, "kind": 0.0}
    assert entries[-1].name == "kind"
    for entry in entries:
        value, low, high = entry.share
        assert low <= value <= high
        assert value == pytest.approx(expected[entry.name], abs=0.03)


def test_importance_divides_what_two_parameters_explain_together():
    product = at_random(lambda p: (p[0] - 0.5) * (p[1] - 0.5), [(0, 1), (0, 1)])
    for entry in report.importance(product):
        assert entry.share.value == pytest.approx(0.5, abs=0.03)


def test_importance_without_random_features_has_no_interval_and_is_the_same_in_every_call():
    setting = kbo.Certified(PolynomialKernel(2).double(), 0.1, 3.0)
    optimizer = kbo.Optimizer([(0, 1)], setting=setting)
    optimizer.tell([0.2], 0.3)
    optimizer.tell([0.8], 0.5)
    (entry,) = report.importance(optimizer)
    value, low, high = entry.share
    assert low == value == high == pytest.approx(1, abs=1e-3)
    assert report.importance(optimizer) == [entry]


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


def test_the_axis_of_a_whole_number_has_ticks_at_whole_numbers():
    run = kbo.minimize(lambda p: p["layers"], {"layers": kbo.Int(1, 3), "rate": (0.0, 1.0)}, 8)
    _, axes = report.picture()
    report.draw_band(axes, run, "layers")
    assert all(place == round(place) for place in axes.get_xticks())


@pytest.mark.parametrize("group", once(["overview", "contours", "bounds"]))
def test_every_kind_of_figure_is_drawn(result, group):
    """The overview has history, importance and slices."""
    figure = result.plot(group)
    assert figure.subfigs
    figure.savefig(io.BytesIO())


@pytest.mark.parametrize("group", ["front", "limits", "curves"])
def test_a_kind_of_figure_without_data_is_refused(result, group):
    with pytest.raises(InvalidInput, match=f"nothing to draw for '{group}'"):
        result.plot(group)


def test_an_unknown_kind_is_refused(result):
    words = "what must be one of 'front', 'history', 'limits', 'slices'"
    with pytest.raises(InvalidInput, match=words):
        result.plot("slice")


def test_runs_with_reports_have_curves(tmp_path):
    optimizer = kbo.Optimizer([(0.0, 1.0)], method="random")
    trials = [optimizer.begin() for _ in range(3)]
    for step in range(5):
        for begun in trials:
            optimizer.report(begun, 1 / (1 + step), step=step)
    optimizer.tell(trials[0], 0.2)
    optimizer.tell(trials[1], 0.3)
    optimizer.prune(trials[2])
    page = report.write(optimizer, tmp_path / "run.html").read_text()
    assert all(text in page for text in ("Learning curves", "1 stopped early"))
    _, axes = report.picture()
    report.draw_curves(axes, optimizer)
    assert {line.get_label() for line in axes.lines} >= {"recommended", "stopped early"}


def test_the_page_has_figures_for_dark_pages_and_the_trials_as_csv_known_ones_too(tmp_path):
    space = {name: SPACE[name] for name in ("x", "lr")}
    known = pd.DataFrame({"x": [0.25], "lr": [0.1], "value": [0.25]})
    run = kbo.minimize(additive, space, 8, evaluated=known)
    page = report.write(run, tmp_path / "run.html").read_text()
    assert page.count("known result") == 2
    assert "the budget of 8 trials is used." in page
    content = re.search(r'href="data:text/csv;base64,(.*?)" download', page)[1]
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(content).decode())))
    assert [float(row["value"]) for row in rows] == [trial.value for trial in run.trials]
    for image in re.findall(r'src="data:image/svg\+xml;base64,(.*?)"', page):
        drawing = base64.b64decode(image).decode()
        assert "@media (prefers-color-scheme: dark)" in drawing
        drawn = drawing.replace(re.search(r"<style>.*?</style>", drawing, re.DOTALL)[0], "")
        assert not {"#000000", "#ffffff"} & set(re.findall(r"#[0-9a-f]{6}", drawn))
    # What was found comes before bounds and assumptions.
    headings = re.findall(r'<h2 id="(\w+)">', page)
    assert headings == ["result", "pictures", "trials", "guarantee", "resume"]


def test_a_certified_result_is_plotted_with_its_own_kernel():
    setting = kbo.Certified(MaternKernel(nu=2.5).double(), 0.1, 3.0)
    result = kbo.minimize(lambda p: p[0], [(0.0, 1.0)], 6, setting=setting)
    assert result.plot("slices").subfigs


def test_measured_quantities_are_drawn_with_their_limits():
    constraints = [kbo.Constraint("memory", upper=0.5), kbo.Constraint("objective", lower=0.1)]

    def objective(params):
        return params["x"], {"memory": 1 - params["x"]}

    result = kbo.minimize(objective, {"x": (0.0, 1.0)}, 8, constraints=constraints)
    panels = result.plot("limits").get_axes()
    assert [axes.get_ylabel() for axes in panels] == ["memory", "objective"]
    dots = [len(collection.get_offsets()) for collection in panels[0].collections]
    assert sum(dots) == 9  # of all trials, and the ring of the recommended one
