"""The page of a tuning run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kbo.errors import KboError, RefutedAssumptions
from kbo.optimize import Optimizer, Result
from kbo.optimize.loop import format_params, result_of
from kbo.report import figures as gallery
from kbo.report import markup
from kbo.report import trials as ledger
from kbo.report.record import Record
from kbo.report.replay import NOISE_MARGIN, Moment, history, surprises
from kbo.report.resume import continuation
from kbo.space import Choice

_WORDS = {"certified": "certified setting (what the bounds assume is given)",
          "practical": "practical setting (kernel, noise and norm are estimated)"}  # fmt: skip

_FEW = 0.05
"""Part of the values that may surprise: so many miss twice the noise level even where the function is known."""


@dataclass(frozen=True)
class _Known:
    """What a page says of a run.

    Attributes:
        record: The run.
        result: What was found; None where bounds cannot be computed.
        trouble: Why they cannot, in words.
        refuted: Whether that is because the data contradict the assumptions.
        moments: The run replayed; empty where it cannot be.
    """

    record: Record
    result: Result | None
    trouble: str
    refuted: bool
    moments: list[Moment]

    @property
    def recommended(self) -> int | None:
        """Number of the recommended trial."""
        best = self.record.optimizer.recommended() if self.result and self.record.optimizer else None
        return None if best is None else best.number

    @property
    def certified(self) -> bool:
        """Whether the bounds are guaranteed."""
        return self.result is not None and self.result.certified


def page(record: Record, title: str) -> str:
    """The whole page of a run."""
    known = _look(record)
    sections = [
        markup.section("found", "What was found", *_found(known)),
        markup.section("guarantee", "What is guaranteed", *_guarantee(known)),
        markup.section("course", "How it went", *_course(known)),
        markup.section("parameters", "What each parameter does", *_parameters(known)),
        markup.section("check", "Do the assumptions fit the data?", *_check(known)),
        markup.section("failures", "Failures", *ledger.failures(record)),
        markup.section("trials", "Trials", *ledger.tables(record, known.recommended)),
        markup.section("continue", "Going on", *continuation(record)),
    ]
    return markup.page(title, _lead(record), sections)


def _look(record: Record) -> _Known:
    if record.optimizer is None:
        return _Known(record, None, record.obstacle, False, [])
    try:
        result = result_of(record.optimizer, "", None)
    except KboError as error:
        return _Known(record, None, str(error), isinstance(error, RefutedAssumptions), history(record))
    return _Known(record, result, "", False, history(record))


def _lead(record: Record) -> str:
    header, trials = record.header, record.trials
    goal = "Maximised" if record.maximize else "Minimised"
    setting = _WORDS.get(str(header.get("setting")), "unknown setting")
    counts = [f"{len(found)} {status}" for status in ("complete", "failed", "pending")
              if (found := record.with_status(status))]  # fmt: skip
    count = f"{len(trials)} trial{'s' * (len(trials) != 1)}" + (f": {', '.join(counts)}." if counts else ".")
    what = f"{goal} by {header.get('method')} in the {setting}, seed {header.get('seed')}."
    return markup.paragraph(what, "lead") + markup.paragraph(" ".join(filter(None, [count, _dates(record)])), "lead")


def _dates(record: Record) -> str:
    """When it ran, as far as the journal knows."""
    times = [event["time"] for event in record.events if isinstance(event.get("time"), (int, float))]
    try:
        first, last = (f"{datetime.fromtimestamp(f(times), UTC):%Y-%m-%d %H:%M}" for f in (min, max))
    except (ValueError, OverflowError, OSError):  # no times, or some that are none
        return ""
    return f"{first} UTC." if first == last else f"{first} to {last} UTC."


def _found(known: _Known) -> list[str]:
    record, result = known.record, known.result
    observed = record.best()
    if observed is None:
        what = "No trial has returned a value yet." if record.trials else "Nothing has been tried yet."
        return [markup.paragraph(what)]
    flatters = "The luckiest value flatters itself: noise makes it look better than its setting is."
    best = markup.card(
        "Best observed value",
        markup.number(observed.value),
        markup.paragraph(f"Trial {observed.number}. {flatters}"),
        markup.paragraph(format_params(observed.params), "soft"),
    )
    if result is None or result.params is None:
        return [markup.cards(best)]
    return [markup.cards(_recommended(known, result), _gap(result), best), _exactly(result.params)]


def _recommended(known: _Known, result: Result) -> str:
    if result.lower is None or result.upper is None:
        words = f"Trial {known.recommended}, the best observed value; there is no bound to choose by yet."
    else:
        held = "guaranteed, see below" if result.certified else "not guaranteed, see below"
        words = (
            f"Between {result.lower:.4g} and {result.upper:.4g} ({held}). Trial {known.recommended}, the one with the "
            "best pessimistic bound; the value is the posterior mean there, without noise."
        )
    return markup.card("Value at the recommended setting", f"{result.value:.4g}", markup.paragraph(words))


def _gap(result: Result) -> str:
    if result.gap is None:
        return ""
    how = "over all settings" if result.gap_exact else "as far as a search from many starts found"
    words = f"The optimum is at most this much better than the recommended setting, {how}."
    if not result.certified:
        words = f"If the bounds were right: {words[0].lower()}{words[1:]} A rule of thumb, not a guarantee."
    return markup.card("Optimality gap", f"{result.gap:.4g}", markup.paragraph(words))


def _exactly(params: Any) -> str:
    entries = params if isinstance(params, dict) else {f"x{i}": value for i, value in enumerate(params)}
    return (
        "<h3>Recommended setting</h3>"
        + markup.definitions(entries)
        + markup.more("All digits", markup.code(json.dumps(params)))
    )


def _guarantee(known: _Known) -> list[str]:
    if known.result is None:
        kind = "The data contradict the assumptions." if known.refuted else "There are no bounds on this page."
        return [markup.paragraph(f"{kind} {known.trouble}", "warn"), *_how_to_get_bounds(known.record)]
    result = known.result
    words = result.guarantee
    said = markup.paragraph(f"{words[0].upper()}{words[1:]}.", "held" if result.certified else "warn")
    if not result.assumptions:
        return [said]
    return [
        said,
        *_given_up(known, result),
        "<h3>The numbers behind the bounds</h3>",
        markup.definitions(_numbers(known, result)),
    ]


def _given_up(known: _Known, result: Result) -> list[str]:
    """What holds and what does not, one by one."""
    numbers = result.assumptions
    if result.certified:
        return [markup.bullets([
            "What is said here holds together: for all settings and all moments of the run that the guarantee names.",
            "It rests on what was given: where an assumption is wrong, the intervals may be. Data that refute the "
            "assumptions would be reported here.",
        ])]  # fmt: skip
    if known.record.header.get("setting") != "practical":
        return []
    return [markup.bullets([
        "Given up: the kernel was fitted to the data that it judges.",
        f"Given up: the noise level, {numbers['noise_std']:.4g}, was fitted to the same data.",
        f"Given up: the norm bound, {numbers['norm_bound']:.4g}, is a guess: data can refute one, never prove it.",
        "To have a guarantee, give all three: kbo.Certified(kernel, noise_std, norm_bound).",
    ])]  # fmt: skip


def _numbers(known: _Known, result: Result) -> dict[str, Any]:
    numbers, optimizer = result.assumptions, known.record.optimizer
    entries = {
        "kernel": numbers["kernel"],
        "noise level (units of the objective)": numbers["noise_std"],
        "norm bound (units of the objective)": numbers["norm_bound"],
        "probability that bounds may fail": numbers["delta"],
        "where they come from": numbers["from"],
    }
    if not result.certified:
        entries["probability that bounds may fail"] = f"{numbers['delta']:g}, nominal"
    state = optimizer.belief.state if optimizer else None
    if state is not None:
        entries |= {"ridge (units of the kernel)": state.ridge, "observations": state.n}
    return entries | {f"lengthscale of {name}": value for name, value in _lengthscales(optimizer).items()}


def _lengthscales(optimizer: Optimizer | None) -> dict[str, float]:
    """Lengthscales of a kernel that has one per feature, in units of each parameter's range."""
    state = optimizer.belief.state if optimizer else None
    found = getattr(getattr(state, "kernel", None), "lengthscale", None)
    if optimizer is None or found is None or found.numel() != optimizer.space.columns:
        return {}
    columns = []
    for name, p in optimizer.space.parameters.items():
        columns += [f"{name} = {option}" for option in p.options] if isinstance(p, Choice) else [name]
    return dict(zip(columns, found.flatten().tolist(), strict=True))


def _how_to_get_bounds(record: Record) -> list[str]:
    if record.header.get("setting") != "certified" or record.optimizer is not None or record.path is None:
        return []
    call = (
        "import kbo.report\n\n"
        f"kbo.report.write({str(record.path)!r}, {str(record.path.with_suffix('.html'))!r}, kernel=kernel)"
    )
    text = "From Python, with the kernel of the run, the page has them; kbo.report.write(optimizer, path) does as well:"
    return [
        markup.paragraph(text),
        markup.code(call),
        markup.definitions({
            "fingerprint of the kernel": record.header.get("kernel"),
            "noise level given": record.header.get("noise_std"),
            "norm bound given": record.header.get("norm_bound"),
            "probability that bounds may fail": record.header.get("delta"),
        }),
    ]  # fmt: skip


def _course(known: _Known) -> list[str]:
    moments, told = known.moments, len(known.record.with_status("complete"))
    shown = [gallery.of_values(known.record, known.recommended), *gallery.over_time(moments, known.certified)]
    note = ""
    if shown[1:] and len(moments) < told:
        note = markup.paragraph(f"Bounds over time are those after {len(moments)} of the {told} values.", "soft")
    troubled = next((m for m in moments if m.trouble), None)
    if troubled is not None:
        note += markup.paragraph(f"From the time of trial {troubled.trial} there were no bounds.", "warn")
    return [markup.pictures(*shown), note]


def _parameters(known: _Known) -> list[str]:
    optimizer, result = known.record.optimizer, known.result
    if optimizer is None or result is None or result.lower is None:
        return []
    more = gallery.left_out(optimizer)
    note = markup.paragraph(f"{more} more parameters are not drawn.", "soft") if more else ""
    return [markup.pictures(*gallery.along_parameters(optimizer, result.certified)), note]


def _check(known: _Known) -> list[str]:
    outside, expected = surprises(known.moments)
    if not expected:
        return []
    verdict = (
        f"Before each of {expected} values was told, an interval of the objective was at hand. {outside} of the values "
        f"({100 * outside / expected:.0f}%) missed it by more than {NOISE_MARGIN:g} noise levels. "
    )
    if outside <= max(1, _FEW * expected):
        verdict += "That is as few as it should be: nothing here speaks against kernel and noise level."
    else:
        verdict += (
            f"More than {100 * _FEW:.0f}% says that the noise level or the norm bound is too small, or that the "
            "kernel is wrong, at least early in the run."
        )
    return [markup.paragraph(verdict), markup.pictures(gallery.of_surprises(known.moments))]
