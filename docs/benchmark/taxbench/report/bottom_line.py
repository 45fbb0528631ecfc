"""The paragraph that a reader takes home, made from the numbers: what it saves, what it costs, where it pays.

Nothing here is a fixed verdict: a sentence about a difference is written only when its interval says that there is one.
"""

from __future__ import annotations

from taxbench.names import COMPRESSION, COMPRESSION_ENCRYPTION, PASSTHROUGH, mode_title
from taxbench.report.numbers import significant
from taxbench.statistics import Interval
from taxbench.summary import BreakEven, Headline, Summary

SPEEDS = (("uploads", "put"), ("cold downloads", "cold_get"), ("warm downloads", "warm_get"))


def bottom_line(summary: Summary) -> str:
    """One paragraph; empty when the run has no mode to speak of."""
    rows = {row.mode: row for row in summary.headline}
    chosen = next((rows[mode] for mode in (COMPRESSION, COMPRESSION_ENCRYPTION) if mode in rows), None)
    if chosen is None:
        return ""
    sentences = [_stored(chosen), _speeds(chosen), _processor(chosen, rows.get(PASSTHROUGH))]
    sentences += [_pays(row) for row in summary.break_even if row.mode == chosen.mode]
    if "encryption" in rows:
        sentences.append(_speeds(rows["encryption"]))
    sentences.append(_condition(summary))
    return " ".join(sentence for sentence in sentences if sentence)


def _stored(row: Headline) -> str:
    ratio = row.stored_ratio
    if ratio is None:
        return ""
    return f"With {mode_title(row.mode)}, {_percent(ratio.median)} of this data's bytes are stored."


def _speeds(row: Headline) -> str:
    """Which speeds differ from passthrough's, and by how much. Without an interval, that nothing can be said."""
    told, same, unknown = [], [], []
    for words, name in SPEEDS:
        ratio: Interval | None = getattr(row, f"{name}_to_passthrough")
        if ratio is None:
            continue
        if ratio.excludes(1):
            told.append(f"{words} at {ratio.median:.2f}×")
        elif ratio.low is None or ratio.high is None:
            unknown.append(words)
        else:
            same.append(words)
    mode = mode_title(row.mode).capitalize()
    if not told and not same:
        return (
            f"One trial says nothing about the speed of {mode_title(row.mode)} in {_listed(unknown)}."
            if unknown
            else ""
        )
    if not told:
        return f"{mode} shows no difference from passthrough's speed in {_listed(same)}."
    rest = f"; {_listed(same)} show no difference" if same else ""
    return f"{mode} runs {_listed(told)} of passthrough's speed{rest}."


def _listed(parts: list[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _processor(row: Headline, reference: Headline | None) -> str:
    if reference is None or row.put_cpu_s_per_gb is None or reference.put_cpu_s_per_gb is None:
        return ""
    ours, theirs = row.put_cpu_s_per_gb, reference.put_cpu_s_per_gb
    if ours.low is None or ours.high is None or theirs.low is None or theirs.high is None:
        return ""
    if ours.low <= theirs.high and theirs.low <= ours.high:
        return "An upload shows no difference from passthrough's in processor time."
    direction = "more" if ours.low > theirs.high else "less"
    extra = significant(abs(ours.median - theirs.median))
    return f"An upload takes {extra} s of processor per GB {direction} than passthrough's."


def _pays(row: BreakEven) -> str:
    link = (
        f"It uploads faster on links below {significant(row.link_mbit_s)} Mbit/s"
        if row.link_mbit_s is not None
        else "It uploads faster on no link"
    )
    price = (
        f"is the cheaper store above ${significant(row.usd_per_gb_month)} per GB and month"
        if row.usd_per_gb_month is not None
        else "is the cheaper store at no price"
    )
    return f"{link} and {price}."


def _condition(summary: Summary) -> str:
    """What stands against using these numbers, in the order of its weight."""
    if summary.fatal:
        return "Fatal findings: these numbers may not be used."
    if not summary.publishable:
        return "The machine was not quiet: measure again before you quote any of this."
    if any(finding.code == "single-machine" for finding in summary.findings):
        return "Client and server shared one machine: ratios count, absolutes do not."
    return ""


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
