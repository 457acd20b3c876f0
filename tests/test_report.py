"""Pages of runs: numbers equal the optimiser's, guarantees are stated as they are, nothing is fetched."""

import math
import random
from html.parser import HTMLParser

import pytest
from gpytorch.kernels import MaternKernel, RBFKernel

import kbo
from kbo import report
from kbo.errors import InvalidInput, JournalError
from kbo.optimize.result import result_of
from kbo.optimize.run import journal
from kbo.optimize.run.events import Tell
from kbo.report import replay, summary
from kbo.report.record import Record, optimizer_of

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
        self.ids += [named["id"]] if "id" in named else []
        self.images += [named] if tag == "img" else []
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


def matern() -> MaternKernel:
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.3
    return kernel


def certified(norm_bound=3.0, kernel=None) -> kbo.Certified:
    return kbo.Certified(kernel or matern(), noise_std=0.1, norm_bound=norm_bound)


def optimizer_for(bounds=LINE, setting=None, **options) -> kbo.Optimizer:
    return kbo.Optimizer(bounds, setting=setting, **{"method": "amm-ucb", **options})


MIXED = {
    "x": (0.0, 2.0),
    "n": kbo.Int(1, 4),
    "lr": kbo.Float(1e-4, 1.0, log=True),
    "act": ["relu", "tanh"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def practical(folder):
    generator = random.Random(1)

    def failing(params):
        if params["act"] == "tanh" and params["n"] == 4:
            raise ValueError("diverged")
        return math.sin(3 * params["x"]) + generator.gauss(0, 0.1) + 0.1 * params["n"]

    path = folder / "tune-branin.jsonl"
    kbo.minimize(failing, MIXED, 16, journal=path, method="amm-ucb")
    return path


@pytest.fixture(scope="module")
def proved(folder):
    generator = random.Random(2)
    path = folder / "proved.jsonl"
    options = {"setting": certified(), "method": "amm-ucb", "journal": path}
    kbo.maximize(lambda x: math.sin(3 * x[0]) + generator.gauss(0, 0.1), [(0, 2)], 12, **options)
    return path


def test_the_numbers_of_a_practical_page_are_the_optimisers_and_none_is_called_guaranteed(
    practical, folder
):
    page = Page(report.write(practical, folder / "practical.html"))
    optimizer = Record.of(practical).optimizer
    result = result_of(optimizer, "", None)
    n_failed = len(optimizer.run.trials.failed)
    assert n_failed > 0
    lines = summary.lines(result)
    for text in (
        *(text for label, text in lines if label not in ("Trials", "Certain?", "Details")),
        result.guarantee[1:],
        "Not guaranteed",
        "was partly luck",
        f"{n_failed} failed",
        "ValueError: diverged",
        f"kbo tune branin --trials 36 --method amm-ucb --seed 0 --journal {practical}",
    ):
        assert " ".join(text.split()) in page.text
    # Without a guarantee the gap is too wide to be of use.
    assert "Optimality gap" not in page.text
    assert "(guaranteed" not in page.text
    assert 'class="guaranteed"' not in page.source
    slices = [image for image in page.images if "along the parameter" in image["alt"]]
    assert len(slices) == len(MIXED)


def test_a_certified_page_has_bounds_with_the_kernel_and_says_that_they_are_missing_without(
    proved, folder
):
    page = Page(report.write(proved, folder / "with.html", kernel=matern()))
    optimizer = Record.of(proved, matern()).optimizer
    for text in (
        summary.value(result_of(optimizer, "", None)),
        f"(trial {optimizer.recommended().number})",
        "Certified: the interval holds for all rounds and points at once",
        f"kbo.maximize(..., n_trials=32, journal='{proved}')",
    ):
        assert text in page.text
    bare = Page(report.write(proved, folder / "without.html"))
    assert "only a fingerprint" in bare.text
    assert "kernel=kernel" in bare.text
    assert "(guaranteed" not in bare.text
    assert "Optimality gap" not in bare.text
    assert len(bare.images) == 1


def test_the_replay_has_the_bounds_of_every_moment(proved):
    moments = report.history(proved, matern(), most_gaps=2)
    header, events = journal.read(proved)
    observed = [event for event in events if isinstance(event, Tell)]
    again = optimizer_of(header, matern())
    assert len(moments) == len(observed) == 12
    for k, (moment, event) in enumerate(zip(moments, observed, strict=True), 1):
        params = events[2 * k - 1].params  # after the event of the session
        before = again.interval(params)
        again.tell(params, event.value)
        best = again.recommended()
        assert moment.expected == (before and (before[0] - 0.2, before[2] + 0.2))
        assert (moment.trial, moment.value, moment.finished) == (event.number, event.value, k)
        assert moment.recommended == best.number
        assert (moment.lower, moment.mean, moment.upper) == again.interval(best.params)
        assert moment.best == max(e.value for e in observed[:k])
    assert [m.gap is not None for m in moments].count(True) == 2
    assert moments[-1].gap == Record.of(proved, matern()).optimizer.gap().value


def test_values_in_another_order_belong_to_their_trials():
    optimizer = optimizer_for({"n": kbo.Int(1, 2)}, certified(), maximize=True)
    for n in (1, 1, 2):
        optimizer.run.begin({"n": n})
    optimizer.tell({"n": 2}, 1.0)
    optimizer.tell({"n": 1}, 0.2)
    moments = report.history(optimizer)
    assert [(m.trial, m.value, m.finished) for m in moments] == [(2, 1.0, 1), (1, 0.2, 2)]
    assert [m.recommended for m in moments] == [2, 2]


def test_slices_are_intervals_of_the_optimiser():
    optimizer = optimizer_for(MIXED, certified(kernel=RBFKernel().double()), maximize=True)
    for i in range(6):
        x = i / 3
        act = MIXED["act"][i % 2]
        optimizer.tell({"x": x, "n": 1 + i % 4, "lr": 10 ** -(i / 2), "act": act}, x)
    best = optimizer.recommended().params
    for name in MIXED:
        band = report.slice_of(optimizer, name)
        for i in {0, len(band.values) // 3, len(band.values) - 1}:
            expected = optimizer.interval({**best, name: band.values[i]})
            assert (band.lower[i], band.mean[i], band.upper[i]) == pytest.approx(expected, abs=1e-9)
        assert all(low <= high for low, high in zip(band.lower, band.upper, strict=True))
    assert report.slice_of(optimizer, "n").values == [1, 2, 3, 4]
    words = "parameter must be one of 'x', 'n', 'lr', 'act', got 'y'"
    with pytest.raises(InvalidInput, match=words):
        report.slice_of(optimizer, "y")


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda axes: report.draw_width(axes, []), "no "),
        (lambda axes: report.draw_miscoverage(axes, []), "no "),
        (lambda axes: report.draw_band(axes, kbo.Optimizer(LINE), "x"), "no bound"),
    ],
)
def test_pictures_are_refused_where_there_is_nothing(draw, says):
    _, axes = report.picture()
    with pytest.raises(InvalidInput, match=says):
        draw(axes)


def test_markup_in_a_run_is_shown_as_text(folder):
    bounds = {EVIL: (0.0, 1.0), "$\\frac": [EVIL, "$x", "plain"]}
    optimizer = optimizer_for(bounds, certified(2.0, RBFKernel().double()))
    optimizer.tell({EVIL: 0.5, "$\\frac": EVIL}, 1.0)
    optimizer.tell({EVIL: 0.7, "$\\frac": "$x"}, 0.5)
    optimizer.fail({EVIL: 0.6, "$\\frac": "plain"}, f"ValueError: {EVIL}")
    page = Page(report.write(optimizer, folder / "evil.html", title=EVIL))
    assert f"failed: ValueError: {EVIL}" in page.text
    assert len(page.images) == page.source.count('src="data:image/svg+xml;base64,')


@pytest.mark.parametrize(
    ("values", "options", "texts"),
    [
        ([], {}, ["1 trial, of which 1 pending.", "No trial has returned a value yet."]),
        ([0.25], {}, ["the best one observed", "too few trials"]),
        ([None] * 3, {}, ["3 of 4 trials failed"]),
        (
            [5 * math.sin(9 * i / 8) for i in range(8)],
            {"setting": certified(0.5)},
            ["The data contradict the assumptions.", "norm_bound"],
        ),
        (
            [None if i % 50 == 7 else math.sin(i) for i in range(250)],
            {"method": "random"},
            [
                "251 trials, of which 250 known results, 1 pending, 5 failed",
                "50 best values and the last 50 trials",
            ],
        ),
    ],
    ids=["none", "one", "failed", "contradicted", "long"],
)
def test_runs_with_little_or_much_in_them_have_sensible_pages(values, options, texts, folder):
    optimizer = optimizer_for(**options)
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


def test_a_long_practical_run_is_replayed_in_part_and_ends_with_what_is_known(
    practical, monkeypatch
):
    monkeypatch.setattr(replay, "MOST_FITTED", 11)
    record = Record.of(practical)
    moments = report.history(record, most=4)
    complete = record.with_status("complete")
    assert len(moments) == 5
    assert [m.trial for m in moments[-2:]] == [complete[10].number, complete[-1].number]
    latest = moments[-1]
    best = record.optimizer.recommended()
    assert (latest.lower, latest.mean, latest.upper) == record.optimizer.interval(best.params)


def test_values_outside_their_range_are_counted():
    optimizer = optimizer_for([(0.0, 1.0)], certified(30.0), maximize=True)
    for _ in range(30):
        optimizer.tell([0.5], 1.0)
    assert report.miscoverage(report.history(optimizer)) == (0, 29)
    optimizer.tell([0.5], -1.0)
    assert report.miscoverage(report.history(optimizer)) == (1, 30)


def test_what_cannot_be_reported_is_an_error_in_words(proved, practical, folder):
    torn = folder / "torn.jsonl"
    torn.write_text(proved.read_text().replace('"tell"', '"te', 1))
    odd = folder / "odd.jsonl"
    header, events = journal.read(proved)
    journal.write(odd, header, [*events, Tell(number=99, value=1.0)])
    for run, options, words in (
        (folder / "none.jsonl", {}, "cannot read the journal"),
        (folder, {}, "cannot read the journal"),
        (torn, {}, "line 4 .* damaged"),
        (odd, {}, "does not fit"),
        (proved, {"page": proved}, r"must be a \.html file"),
        (proved, {"kernel": RBFKernel().double()}, "another problem"),
        (practical, {"kernel": matern()}, "do not pass kernel"),
        (kbo.Optimizer(LINE), {"page": None}, "pass its path"),
    ):
        with pytest.raises((InvalidInput, JournalError), match=words):
            report.write(run, **{"page": folder / "nothing.html", **options})
    assert not (folder / "nothing.html").exists()


def test_the_table_of_trials_says_which_strategy_chose_a_trial_and_why(tmp_path):
    optimizer = kbo.Optimizer(LINE, setting=kbo.Practical(noise_std=0.1))
    optimizer.run.add({"x": 0.2}, 0.5)
    known = Page(report.write(optimizer, tmp_path / "known.html"))
    assert "chosen by" not in known.words
    for _ in range(9):
        params = optimizer.ask()
        optimizer.tell(params, (params["x"] - 0.3) ** 2)
    page = Page(report.write(optimizer, tmp_path / "run.html"))
    assert optimizer.explain(0) is None
    explanations = [optimizer.explain(number) for number in range(1, 10)]
    titles = page.values_of("title")
    assert titles == [str(explanation) for explanation in explanations]
    assert "expected value" in titles[-1]
    assert {"chosen by", *(explanation.strategy for explanation in explanations)} <= {*page.words}
