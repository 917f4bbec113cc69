"""Notes below a ranking: reasons for every plan, certainty of the order, and assumptions of the figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.table import Table

from meshwright.reports.basis import basis
from meshwright.reports.insisted import describe_insisted, insisted_words
from meshwright.reports.plan_evidence import promise_words, short_runs
from meshwright.reports.plans import chance
from meshwright.reports.tables import fitted, table
from meshwright.reports.units import percent, seconds, significant
from planner.training.confidence import Confidence
from planner.training.measured_runs import code_base, kind_words
from planner.training.prediction import Prediction
from planner.training.proven import BEYOND
from planner.training.search import SearchResult
from planner.training.shortlist import SAFE
from simulator.setting import Setting
from simulator.uncertainty import chance_to_fit, kind_of, model_errors, over_promised

KINDS = {"experts": "models with experts", "hybrids": "hybrid models", "dense": "dense models"}
"""Words for kinds of models."""

EVEN = 5e-4
"""Gap of two steps below which they are printed as one."""
NAMED = 5
"""Unproven mechanisms that are named of a plan; ``--json`` has all."""


def verdict(result: SearchResult, prediction: Prediction, more: bool = True) -> list[Table | str]:
    """Reasons, distinguishability and basis; with ``more`` near duplicates and what each rule removed."""
    headings = ("rank", "shown as", "near duplicates") if more else ("rank", "shown as")
    reasons = [row[: len(headings)] for row in reason_rows(result)]
    parts: list[Table | str] = [table(headings, reasons, left=len(headings))] if reasons else []
    parts += [*order_words(result, prediction, more), *_insisted(prediction), basis(result)]
    return [*parts, table(("removed by rule", "candidates"), removed_rows(result))] if more else parts


def _insisted(prediction: Prediction) -> list[str]:
    """Rules of the release that plans break because the user set them aside."""
    described = (describe_insisted(prediction.setting, plan) for plan in prediction.plans)
    return insisted_words((f"Rank {rank}", report) for rank, report in enumerate(described, start=1))


def removed_rows(result: SearchResult) -> list[Sequence[str]]:
    """Number of candidates removed by every rule, and of scored candidates."""
    rows: list[Sequence[str]] = [[name, f"{count:,}"] for name, count in result.removed.items() if count]
    return [*rows, ["scored", f"{result.scored:,}"], ["all", f"{result.candidates:,}"]]


def reason_rows(result: SearchResult) -> list[Sequence[str]]:
    """Reason for every plan, and its near duplicates."""
    return [
        [str(number), ", ".join(row.families), ", ".join(row.also)]
        for number, row in enumerate(result.rows, start=1)
    ]


ODDS = "best: chance of being the fastest of these plans. loss: expected time over the fastest."
RUNS = "runs: measured runs with the plan's rarest mechanism."
"""What the columns of a ranking say that are no quantities of a step."""


def band_words(sources: int) -> str:
    """What the column of bands says, and on how many sources its width rests."""
    if not sources:
        return "±: 90 % band of the step."
    return f"±: 90 % band of the step, from {sources} source{'s' * (sources > 1)} that nothing was fitted to."


def order_words(result: SearchResult, prediction: Prediction, more: bool = True) -> list[str]:
    """Certainty of the order of the plans."""
    words: list[str] = []
    trust = prediction.confidence
    if trust is None:
        return words
    band = band_words(trust.sources)
    words.append(" ".join((band, ODDS, RUNS) if more else (band, RUNS)))
    close_to_first = ~trust.differs
    numbers = [str(number) for number, close in enumerate(close_to_first.tolist()[1:], 2) if close]
    if numbers:
        half = float(trust.ratio_half_width[close_to_first].max())
        words.append(
            f"Rank {', '.join(numbers)}: too close to the fastest to tell apart (90 % bands of their ratios: "
            f"up to ± {percent(half, 0)})."
        )
    return [*words, *unproven_words(trust, prediction.setting), *left_out_words(result)]


def expected_words(prediction: Prediction) -> list[str]:
    """What the first plan is expected to take, where best measured runs fell short of first choices."""
    setting = prediction.setting
    longer = over_promised(setting)
    if longer == 1:
        return []
    return [
        f"Expect {seconds(longer * float(prediction.step.time[0]))}: measured bests of "
        f"{KINDS[kind_of(setting.model)]} took {longer:.2f} times a search's first choice."
    ]


def given_up(prediction: Prediction) -> str:
    """What the first plan gives up to a faster one, and why it goes first; empty where none is faster."""
    if not prediction.step.time[0] > prediction.step.time.min():
        return ""
    even = model_errors().difference.even
    confidence, times = prediction.confidence, prediction.step.time
    fastest, gap = int(np.argmin(times)), float(times[0] / times.min()) - 1
    capacity = prediction.setting.cluster.device.memory_bytes
    fits = chance_to_fit(prediction.memory.peak, capacity, prediction.setting)
    reasons = []
    if fits[0] >= SAFE > fits[fastest]:
        reasons.append(f"fits with {chance(float(fits[fastest]))} only")
    if (
        confidence is not None
        and confidence.evidence[fastest].unproven
        and not confidence.evidence[0].unproven
    ):
        reasons.append("is unproven")
    if reasons:
        slower = f"{percent(gap)} slower than" if gap >= EVEN else "as fast as"
        return f"Rank 1 is {slower} rank {fastest + 1}, which {' and '.join(reasons)}."
    kind = "measured plan" if confidence is not None and not confidence.evidence[0].unproven else "plan"
    return (
        f"Rank 1 is the simplest {kind} within {percent(even, 0)} of the fastest; "
        "a predicted gap of that size says nothing about the order."
    )


def headline(prediction: Prediction) -> str:
    """The first plan in two lines: what it reaches, how sure that is, and how many plans are as good."""
    confidence = prediction.confidence
    as_good = 0 if confidence is None else int((~confidence.differs[1:]).sum())
    others = f"{as_good} other{'s are' if as_good > 1 else ' is'} as good within error."
    sentences = filter(None, [*expected_words(prediction), others if as_good else "", given_up(prediction)])
    return "\n".join(fitted(first_words(prediction), list(sentences)))


def first_words(prediction: Prediction) -> list[str]:
    """The first plan with step, band, figures of merit, evidence and chance to fit: parts of a sentence."""
    merit, confidence, plan = prediction.metrics, prediction.confidence, prediction.plans.plan(0)
    capacity = prediction.setting.cluster.device.memory_bytes
    fits = float(chance_to_fit(prediction.memory.peak[:1], capacity, prediction.setting)[0])
    band = "" if confidence is None else f" ± {percent(float(confidence.half_width[0]), 0)}"
    figures = [
        f"{percent(float(merit.model_flops_utilisation[0]), 0)} MFU",
        f"{significant(float(merit.usd_per_million_tokens[0]))} $/Mtok",
        f"fits in {chance(fits).removesuffix(' %')} of 100",
    ]
    if confidence is not None:
        figures.insert(2, short_runs(confidence))
    return [f"{plan.describe()}: {seconds(float(merit.step_time_s[0]))}{band}", *figures]


def unproven_words(confidence: Confidence, setting: Setting) -> list[str]:
    """Plans that rest on mechanisms without a measured run, and runs near them that took far longer."""
    words = []
    where = f"{code_base(setting.framework.name)} on {setting.cluster.device.generation.name}"
    kind = kind_words(setting.model)
    if confidence.evidence and confidence.evidence[0].nowhere:
        return [f"All plans are unproven: no run of {where} with {kind} is measured."]
    lacking: dict[tuple[str, ...], list[str]] = {}
    for rank, evidence in enumerate(confidence.evidence, start=1):
        if evidence.unproven:
            lacking.setdefault(evidence.unproven, []).append(str(rank))
    for names, ranks in lacking.items():
        named = list(names[:NAMED]) + [f"and {len(names) - NAMED} more"] * (len(names) > NAMED)
        words.append(
            f"Rank {', '.join(ranks)}: unproven, no measured run of {where} with {kind} used "
            f"{', '.join(named)}."
        )
    words += beyond_words(confidence)
    if confidence.evidence and confidence.evidence[0].far_from_runs:
        words.append(
            f"All plans are unproven: no run of {where} trained experts of about these widths in this number "
            "format."
        )
    off = confidence.evidence[0].near_error if confidence.evidence else None
    if off is not None and off.too_fast:
        words.append(
            f"All plans are predicted too fast: {off.runs} runs of {where} with this number format and "
            f"models of about these widths ({', '.join(off.models[:NAMED])}) took "
            f"{percent(off.error, 0)} longer than predicted in the median."
        )
    return words


def left_out_words(result: SearchResult) -> list[str]:
    """How many plans a search for proven ones left out because they promise too much."""
    count, keeps = result.removed.get(BEYOND), result.space.constraints.keeps
    if not count or keeps is None or not len(result.plans):
        return []
    plans = "1 plan promises" if count == 1 else f"{count:,} plans promise"
    return [
        f"{plans} a shorter step than {seconds(keeps.shortest_s)}, which is far beyond what a run near them "
        f"reached; --proven leaves them out."
    ]


def beyond_words(confidence: Confidence) -> list[str]:
    """Plans that promise far more than any run near them reached."""
    promises = [evidence.promise for evidence in confidence.evidence]
    beyond = [(rank, each) for rank, each in enumerate(promises, start=1) if each and each.beyond]
    if not beyond:
        return []
    ranks = ", ".join(str(rank) for rank, _ in beyond)
    first, promise = beyond[0]
    return [f"Rank {ranks}: faster than any run near. Rank {first} promises {promise_words(promise)}."]
