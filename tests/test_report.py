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


class Page(HTMLParser):
    """Elements, attributes and text of a page."""

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


def checked(path) -> Page:
    """Return the page after checks that it is valid and needs no other file."""
    page = Page(path)
    assert page.source.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert page.open == []
    assert not {"script", "iframe", "object", "embed", "form"} & set(page.tags)
    assert len(page.ids) == len(set(page.ids))
    for name, value in page.attributes:
        assert not name.startswith("on")
        if name in ("src", "href", "srcset", "action"):
            assert value.startswith("data:")
    assert "url(" not in page.source
    assert "@import" not in page.source
    assert all(image["alt"].strip() and image["width"] and image["height"] for image in page.images)
    assert all(len(set(cells)) == 1 for cells in page.tables), (
        "every row has as many cells as the header"
    )
    labels = [value for name, value in page.attributes if name == "aria-labelledby"]
    assert set(labels) <= set(page.ids)
    assert len(page.source.encode()) < 1.5e6
    return page


def matern() -> MaternKernel:
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.3
    return kernel


def certified(**changes) -> kbo.Certified:
    return kbo.Certified(matern(), **{"noise_std": 0.1, "norm_bound": 3.0, **changes})


def wave(seed: int = 0):
    generator = random.Random(seed)
    return lambda x: (
        math.sin(3 * (x["x"] if isinstance(x, dict) else x[0])) + generator.gauss(0, 0.1)
    )


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
    path = folder / "tune-branin.jsonl"
    objective = wave(1)

    def failing(params):
        if params["act"] == "tanh" and params["n"] == 4:
            raise ValueError("diverged")
        return objective(params) + 0.1 * params["n"]

    kbo.minimize(failing, MIXED, 16, journal=path, method="amm-ucb")
    return path


@pytest.fixture(scope="module")
def proved(folder):
    path = folder / "proved.jsonl"
    kbo.maximize(wave(2), [(0.0, 2.0)], 12, setting=certified(), method="amm-ucb", journal=path)
    return path


@pytest.fixture(scope="module")
def certified_page(proved, folder):
    """The page of a certified run with its kernel."""
    return checked(report.write(proved, folder / "with.html", kernel=matern()))


def test_the_numbers_of_a_practical_page_are_the_optimisers_and_none_is_called_guaranteed(
    practical, folder
):
    page = checked(report.write(practical, folder / "practical.html"))
    optimizer = Record.of(practical).optimizer
    result = result_of(optimizer, "", None)
    for label, sentence in summary.lines(result):
        if label not in ("Trials", "Certain?", "Details"):
            assert " ".join(sentence.split()) in page.text
    for text in (result.guarantee[1:], "Not guaranteed", "was partly luck"):
        assert text in page.text
    for text in (
        "Optimality gap",
        "(guaranteed",
    ):  # without a guarantee the gap is too wide to be of use
        assert text not in page.text
    assert 'class="guaranteed"' not in page.source
    assert optimizer.run.trials.failed
    assert f"{len(optimizer.run.trials.failed)} failed" in page.text
    assert "ValueError: diverged" in page.text
    slices = [image for image in page.images if "along the parameter" in image["alt"]]
    assert len(slices) == len(MIXED)
    assert (
        f"kbo tune branin --trials 36 --method amm-ucb --seed 0 --journal {practical}" in page.text
    )


def test_a_certified_page_has_bounds_with_the_kernel_and_says_that_they_are_missing_without(
    proved, certified_page, folder
):
    best = (optimizer := Record.of(proved, matern()).optimizer).recommended()
    result = result_of(optimizer, "", None)
    for text in (
        summary.value(result),
        f"(trial {best.number})",
        "Certified: the interval holds for all rounds and points at once",
    ):
        assert text in certified_page.text
    bare = checked(report.write(proved, folder / "without.html"))
    assert "only a fingerprint" in bare.text
    assert "kernel=kernel" in bare.text
    assert "(guaranteed" not in bare.text
    assert "Optimality gap" not in bare.text
    assert len(bare.images) == 1
    with pytest.raises(JournalError, match="another problem"):
        report.write(proved, folder / "no.html", kernel=RBFKernel().double())


def test_the_page_says_how_to_resume_the_run(proved, certified_page):
    assert f"kbo.maximize(..., n_trials=32, journal='{proved}')" in certified_page.text


def test_the_replay_has_the_bounds_of_every_moment(proved):
    moments = report.history(proved, matern(), most_gaps=2)
    header, events = journal.read(proved)
    observed = [event for event in events if isinstance(event, Tell)]
    again = optimizer_of(header, matern())
    assert len(moments) == len(observed) == 12
    for k, (moment, event) in enumerate(zip(moments, observed, strict=True), 1):
        params = events[2 * k - 1].params  # after the event of the session
        before = again.interval(params)
        assert moment.expected == (before and (before[0] - 0.2, before[2] + 0.2))
        again.tell(params, event.value)
        best = again.recommended()
        assert (moment.trial, moment.value, moment.recommended) == (
            event.number,
            event.value,
            best.number,
        )
        assert (moment.lower, moment.mean, moment.upper) == again.interval(best.params)
        assert moment.finished == k
        assert moment.best == max(e.value for e in observed[:k])
    assert [m.gap is not None for m in moments].count(True) == 2
    assert moments[-1].gap == Record.of(proved, matern()).optimizer.gap().value


def test_values_in_another_order_belong_to_their_trials():
    optimizer = kbo.Optimizer(
        {"n": kbo.Int(1, 2)}, setting=certified(), method="amm-ucb", maximize=True
    )
    for n in (1, 1, 2):
        optimizer.run.begin({"n": n})
    optimizer.tell({"n": 2}, 1.0)
    optimizer.tell({"n": 1}, 0.2)
    moments = report.history(optimizer)
    assert [(m.trial, m.value, m.finished) for m in moments] == [(2, 1.0, 1), (1, 0.2, 2)]
    assert [m.recommended for m in moments] == [2, 2]


def test_slices_are_intervals_of_the_optimiser():
    setting = kbo.Certified(RBFKernel().double(), 0.1, 3.0)
    optimizer = kbo.Optimizer(MIXED, setting=setting, method="amm-ucb", maximize=True)
    generator = random.Random(0)
    for _ in range(6):
        x, act = 2 * generator.random(), generator.choice(["relu", "tanh"])
        optimizer.tell(
            {
                "x": x,
                "n": generator.randint(1, 4),
                "lr": 10 ** generator.uniform(-4, 0),
                "act": act,
            },
            x,
        )
    best = optimizer.recommended().params
    for name in MIXED:
        found = report.slice_of(optimizer, name)
        for i in {0, len(found.values) // 3, len(found.values) - 1}:
            wanted = optimizer.interval({**best, name: found.values[i]})
            assert (found.lower[i], found.mean[i], found.upper[i]) == pytest.approx(
                wanted, abs=1e-9
            )
        assert all(low <= high for low, high in zip(found.lower, found.upper, strict=True))
    assert report.slice_of(optimizer, "n").values == [1, 2, 3, 4]
    with pytest.raises(
        InvalidInput, match="parameter must be one of 'x', 'n', 'lr', 'act', got 'y'"
    ):
        report.slice_of(optimizer, "y")


def test_pictures_are_refused_where_there_is_nothing():
    _, axes = report.picture()
    for call, says in (
        (lambda: report.draw_width(axes, []), "no "),
        (lambda: report.draw_miscoverage(axes, []), "no "),
        (lambda: report.draw_band(axes, kbo.Optimizer({"x": (0.0, 1.0)}), "x"), "no bound"),
    ):
        with pytest.raises(InvalidInput, match=says):
            call()


def test_markup_in_a_run_is_shown_as_text(folder):
    bounds = {EVIL: (0.0, 1.0), "$\\frac": [EVIL, "$x", "plain"]}
    optimizer = kbo.Optimizer(
        bounds, setting=kbo.Certified(RBFKernel().double(), 0.1, 2.0), method="amm-ucb"
    )
    optimizer.tell({EVIL: 0.5, "$\\frac": EVIL}, 1.0)
    optimizer.tell({EVIL: 0.7, "$\\frac": "$x"}, 0.5)
    optimizer.fail({EVIL: 0.6, "$\\frac": "plain"}, f"ValueError: {EVIL}")
    page = checked(report.write(optimizer, folder / "evil.html", title=EVIL))
    assert " ".join(EVIL.split()) in page.text
    assert f"failed: ValueError: {EVIL}" in page.text
    assert len(page.images) == page.source.count('src="data:image/svg+xml;base64,')


@pytest.mark.parametrize(
    ("values", "options", "texts"),
    [
        ([], {}, ["0 trials, 1 pending.", "No trial has returned a value yet."]),
        ([0.25], {}, ["the best one observed", "too few trials"]),
        ([None] * 3, {}, ["3 of 4 trials failed"]),
        (
            [5 * math.sin(9 * i / 8) for i in range(8)],
            {"setting": certified(norm_bound=0.5)},
            ["The data contradict the assumptions.", "norm_bound"],
        ),
        (
            [None if i % 50 == 7 else math.sin(i) for i in range(250)],
            {"method": "random"},
            ["250 trials, 1 pending, 5 failed", "50 best values and the last 50 trials"],
        ),
    ],
    ids=["none", "one", "failed", "contradicted", "long"],
)
def test_runs_with_little_or_much_in_them_have_sensible_pages(values, options, texts, folder):
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, **{"method": "amm-ucb", **options})
    for i, value in enumerate(values):
        x = {"x": i / len(values)}
        optimizer.fail(x, f"reason {i}") if value is None else optimizer.tell(x, value)
    if not optimizer.setting.certified:
        optimizer.begin()
    page = checked(report.write(optimizer, folder / "odd.html"))
    assert all(text in page.text for text in texts)
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
    assert moments[-2].trial == complete[10].number
    assert moments[-1].trial == complete[-1].number
    best = record.optimizer.recommended()
    assert (moments[-1].lower, moments[-1].mean, moments[-1].upper) == record.optimizer.interval(
        best.params
    )


def test_values_outside_their_range_are_counted():
    optimizer = kbo.Optimizer(
        [(0.0, 1.0)], setting=certified(norm_bound=30.0), method="amm-ucb", maximize=True
    )
    for _ in range(30):
        optimizer.tell([0.5], 1.0)
    assert report.miscoverage(report.history(optimizer)) == (0, 29)
    optimizer.tell([0.5], -1.0)
    assert report.miscoverage(report.history(optimizer)) == (1, 30)


def test_what_cannot_be_reported_is_an_error_in_words(proved, practical, folder):
    (torn := folder / "torn.jsonl").write_text(proved.read_text().replace('"tell"', '"te', 1))
    header, events = journal.read(proved)
    journal.write(odd := folder / "odd.jsonl", header, [*events, Tell(number=99, value=1.0)])
    for run, options, words in (
        (folder / "none.jsonl", {}, "cannot read the journal"),
        (folder, {}, "cannot read the journal"),
        (torn, {}, "line 4 .* damaged"),
        (odd, {}, "does not fit"),
        (proved, {"page": proved}, r"must be a \.html file"),
        (practical, {"kernel": matern()}, "do not pass kernel"),
        (kbo.Optimizer({"x": (0.0, 1.0)}), {"page": None}, "pass its path"),
    ):
        with pytest.raises((InvalidInput, JournalError), match=words):
            report.write(run, **{"page": folder / "nothing.html", **options})
    assert not (folder / "nothing.html").exists()


def test_the_table_of_trials_says_which_strategy_chose_a_trial_and_why(tmp_path):
    known = {"x": 0.2}
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, setting=kbo.Practical(noise_std=0.1))
    optimizer.run.add(known, 0.5)
    for _ in range(9):
        params = optimizer.ask()
        optimizer.tell(params, (params["x"] - 0.3) ** 2)
    page = checked(report.write(optimizer, tmp_path / "run.html"))
    explanations = [optimizer.explain(number) for number in range(10)]
    assert explanations[0] is None
    titles = [value for name, value in page.attributes if name == "title"]
    assert titles == [str(explanation) for explanation in explanations[1:]]
    assert "expected value" in titles[-1]
    assert "chosen by" in page.words
    for explanation in explanations[1:]:
        assert explanation.strategy in page.words
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)})
    optimizer.run.add(known, 0.5)
    assert "chosen by" not in checked(report.write(optimizer, tmp_path / "known.html")).words
