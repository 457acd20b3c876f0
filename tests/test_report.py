"""Pages of runs: numbers equal the optimiser's, guarantees are stated as they are, nothing is fetched."""

import math
import random
from html.parser import HTMLParser

import pytest
from gpytorch.kernels import MaternKernel, RBFKernel

import kbo
from kbo import report
from kbo.errors import InvalidInput, JournalError
from kbo.optimize.insight import importance
from kbo.optimize.result import result_of
from kbo.optimize.run import journal
from kbo.optimize.run.events import Tell
from kbo.optimize.run.journal_file import read_whole
from kbo.report import summary
from kbo.report.header import optimizer_of
from kbo.report.record import Record

pytest.importorskip("matplotlib")

VOID = {"meta", "link", "img", "br"}
EVIL = '<script>alert("x")</script> & <img src="http://evil.example/x.png">'
LINE = {"x": (0.0, 1.0)}


class Page(HTMLParser):
    """Elements, attributes and text of a page that is valid and needs no other file."""

    def __init__(self, path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.open, self.tags, self.ids, self.images, self.words, self.attributes = (
            [] for _ in range(6)
        )
        self.tables: list[list[int]] = []  # for each table the number of cells of its rows
        self.feed(self.source)
        self.close()
        self.text = " ".join(" ".join(self.words).split())
        self.check()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        named = dict(attrs)
        if "id" in named:
            self.ids.append(named["id"])
        if tag == "img":
            self.images.append(named)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append(0)
        if tag in ("th", "td"):
            self.tables[-1][-1] += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    def values_of(self, *names):
        return [value for name, value in self.attributes if name in names]

    def check(self):
        assert self.source.startswith('<!DOCTYPE html>\n<html lang="en">')
        assert self.open == []
        assert not {"script", "iframe", "object", "embed", "form"} & set(self.tags)
        assert len(self.ids) == len(set(self.ids))
        assert set(self.values_of("aria-labelledby")) <= set(self.ids)
        assert not any(name.startswith("on") for name, _ in self.attributes)
        sources = self.values_of("src", "href", "srcset", "action")
        assert all(source.startswith("data:") for source in sources)
        assert "url(" not in self.source
        assert "@import" not in self.source
        assert all(i["alt"].strip() and i["width"] and i["height"] for i in self.images)
        # Every row has as many cells as the header.
        assert all(len(set(cells)) == 1 for cells in self.tables)
        assert len(self.source.encode()) < 1.5e6


def certified(norm_bound=3.0):
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.3
    return kbo.Certified(kernel, noise_std=0.1, norm_bound=norm_bound)


MIXED = {"x": (0.0, 2.0), "n": kbo.Int(1, 4), "act": ["relu", "tanh"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def practical(folder):
    noise = random.Random(1)

    def failing(params):
        if params["n"] == 4:
            raise ValueError("diverged")
        return math.sin(3 * params["x"]) + noise.gauss(0, 0.1) + 0.1 * params["n"]

    path = folder / "tune-branin.jsonl"
    kbo.minimize(failing, MIXED, 12, journal=path, method="amm-ucb")
    return path


@pytest.fixture(scope="module")
def proved(folder):
    """A certified run of 8 trials: its journal and its kernel."""
    noise = random.Random(2)
    path = folder / "proved.jsonl"
    setting = certified()
    options = {"setting": setting, "method": "amm-ucb", "journal": path}
    kbo.maximize(lambda x: math.sin(3 * x[0]) + noise.gauss(0, 0.1), [(0, 2)], 8, **options)
    return path, setting.kernel


def test_a_practical_page_has_failures_slices_and_explanations_and_calls_no_number_guaranteed(
    practical, folder
):
    page = Page(report.write(practical, folder / "practical.html"))
    optimizer = Record.of(practical).optimizer
    n_failed = len(optimizer.run.trials.failed)
    assert n_failed > 0
    for text in (
        result_of(optimizer, "", None).guarantee[1:],
        "Not guaranteed",
        f"{n_failed} failed",
        "ValueError: diverged",
        f"with the journal {practical} continues the run",
    ):
        assert text in page.text
    # Without a guarantee the gap is too wide to be of use.
    assert "Optimality gap" not in page.text
    assert "(guaranteed" not in page.text
    assert 'class="guaranteed"' not in page.source
    slices = [image for image in page.images if "along the parameter" in image["alt"]]
    assert len(slices) == len(MIXED)
    explanations = [optimizer.explain(trial.number) for trial in optimizer.trials]
    assert page.values_of("title") == [str(explanation) for explanation in explanations]


def test_a_certified_page_has_bounds_with_the_kernel_and_says_that_they_are_missing_without(
    proved, folder
):
    path, kernel = proved
    page = Page(report.write(path, folder / "with.html", kernel=kernel))
    for text in (
        summary.recommended_value(result_of(Record.of(path, kernel).optimizer, "", None)),
        "Certified: the interval holds for all rounds and points at once",
    ):
        assert text in page.text
    bare = Page(report.write(path, folder / "without.html"))
    assert "only a fingerprint" in bare.text
    assert "(guaranteed" not in bare.text
    assert "Optimality gap" not in bare.text


def test_the_replay_has_the_bounds_of_every_moment(proved):
    path, kernel = proved
    moments = report.history(Record.of(path, kernel))
    contents = read_whole(path)
    header, events = contents.header, contents.events
    observed = [event for event in events if isinstance(event, Tell)]
    again = optimizer_of(header, kernel)
    assert len(moments) == len(observed) == 8
    for k, (moment, event) in enumerate(zip(moments, observed, strict=True), 1):
        params = events[2 * k - 1].params  # after the event of the session
        again.tell(params, event.value)
        best = again.recommended()
        assert (moment.trial, moment.value, moment.finished) == (event.number, event.value, k)
        assert moment.recommended == best.number
        assert (moment.lower, moment.mean, moment.upper) == again.interval(best.params)


def test_a_page_computes_the_shares_of_the_parameters_once(practical, monkeypatch, folder):
    computed = []
    shapley_shares = importance.shapley_shares

    def counted(*arguments):
        computed.append(arguments)
        return shapley_shares(*arguments)

    monkeypatch.setattr(importance, "shapley_shares", counted)
    report.write(practical, folder / "page.html")
    assert len(computed) == 1


def test_slices_are_intervals_of_the_optimiser(practical):
    optimizer = Record.of(practical).optimizer
    best = optimizer.recommended().params
    for name in MIXED:
        band = report.slice_of(optimizer, name)
        for i in {0, len(band.values) // 3, len(band.values) - 1}:
            expected = optimizer.interval({**best, name: band.values[i]})
            assert (band.lower[i], band.mean[i], band.upper[i]) == pytest.approx(expected, abs=1e-9)
    assert report.slice_of(optimizer, "n").values == [1, 2, 3, 4]
    with pytest.raises(InvalidInput, match="parameter must be one of 'x', 'n', 'act', got 'y'"):
        report.slice_of(optimizer, "y")


def test_markup_in_a_run_is_shown_as_text(folder):
    optimizer = kbo.Optimizer({EVIL: (0.0, 1.0), "$\\frac": [EVIL, "$x"]}, setting=certified())
    optimizer.tell({EVIL: 0.5, "$\\frac": EVIL}, 1.0)
    optimizer.fail({EVIL: 0.6, "$\\frac": "$x"}, f"ValueError: {EVIL}")
    page = Page(report.write(optimizer, folder / "evil.html", title=EVIL))
    assert f"failed: ValueError: {EVIL}" in page.text
    assert len(page.images) == page.source.count('src="data:image/svg+xml;base64,')


def test_a_page_says_how_to_go_on_without_a_journal_and_why_parameters_are_not_drawn(folder):
    optimizer = kbo.Optimizer(MIXED)
    optimizer.tell(optimizer.ask(), 1.0)
    page = Page(report.write(optimizer, folder / "few.html"))
    assert "Not drawn: x, n, act, since there are too few trials for a model." in page.text
    assert "<code>result.optimizer.save(&#39;run.jsonl&#39;)</code>" in page.source
    assert "`" not in page.text
    assert "evaluated once" in page.text
    random_search = kbo.minimize(lambda x: x["x"], LINE, 3, method="random")
    page = Page(report.write(random_search, folder / "random.html"))
    assert "Not drawn: x, since the method 'random' has no model." in page.text
    assert "no: the method 'random' has no model" in page.text


def test_a_page_of_several_objectives_calls_the_marked_trial_balanced(folder):
    objectives = [kbo.Minimize("cost"), kbo.Maximize("yield")]
    optimizer = kbo.Optimizer(LINE, objectives=objectives)
    for x in (0.1, 0.4, 0.5, 0.6, 0.9):
        optimizer.tell({"x": x}, {"cost": x, "yield": x**0.5})
    page = Page(report.write(optimizer, folder / "objectives.html"))
    assert "Balanced parameters" in page.text
    assert page.source.count("balanced</td>") == 1
    assert "recommended</td>" not in page.source


@pytest.mark.parametrize(
    ("values", "options", "texts"),
    [
        ([], {}, ["1 trial, of which 1 pending.", "No trial has returned a value yet."]),
        ([None] * 3, {}, ["3 of 4 trials failed"]),
        ([5, -5] * 4, {"setting": certified(0.5)}, ["The data contradict the assumptions."]),
        ([1.0] * 250, {"method": "random"}, ["50 best values and the last 50 trials"]),
    ],
    ids=["none", "failed", "contradicted", "long"],
)
def test_runs_with_little_or_much_in_them_have_sensible_pages(values, options, texts, folder):
    optimizer = kbo.Optimizer(LINE, **options)
    for i, value in enumerate(values):
        x = {"x": i / len(values)}
        optimizer.fail(x, f"reason {i}") if value is None else optimizer.tell(x, value)
    if not optimizer.setting.certified:
        optimizer.begin()
    page = Page(report.write(optimizer, folder / "odd.html"))
    for text in texts:
        assert text in page.text
    assert page.tags.count("tr") <= 3 + 50 + 50 + 5
    assert "(guaranteed" not in page.text


def test_what_cannot_be_reported_is_an_error_in_words(proved, practical, folder):
    path, kernel = proved
    odd = folder / "odd.jsonl"
    contents = read_whole(path)
    journal.write(odd, contents.header, [*contents.events, Tell(number=99, value=1.0)])
    for run, options, words in (
        (odd, {}, "does not fit"),
        (path, {"page": path}, r"must be a \.html file"),
        (path, {"kernel": RBFKernel().double()}, "another problem"),
        (practical, {"kernel": kernel}, "do not pass kernel"),
    ):
        with pytest.raises((InvalidInput, JournalError), match=words):
            report.write(run, **{"page": folder / "nothing.html", **options})
    assert not (folder / "nothing.html").exists()
