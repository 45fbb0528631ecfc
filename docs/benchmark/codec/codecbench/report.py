"""Tables and verdicts from raw results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import exp, log

from codecbench.codecs import Result


def geometric_mean(values: Iterable[float]) -> float:
    logs = [log(value) for value in values]
    return exp(sum(logs) / len(logs))


@dataclass(frozen=True)
class Goal:
    """A figure of ours over one of a peer's, as a geometric mean over families of pairs."""

    codec: str
    peer: str
    families: tuple[str, ...]
    ratio_min: float
    speed_min: float


GOALS = (
    Goal("balanced", "zstd-1", ("native",), 2.2, 1.0),
    Goal("fast", "zstd-1", ("native",), 1.5, 1.4),
    Goal("balanced", "xdelta3", ("native",), 2.0, 20.0),
    Goal("fast", "xdelta3", ("native",), 2.0, 20.0),
    Goal("balanced", "zstd-1", ("source", "zip"), 1.5, 1.2),
    Goal("balanced", "zstd-1", ("database",), 1.2, 0.9),
    Goal("max", "bsdiff", ("native",), 0.9, 5.0),
)
DECODE_MB_S_MIN = 1300.0


def table(results: list[Result]) -> str:
    """Ratio @ encode MB/s (decode MB/s, memory MiB), a row for each pair and a column for each codec."""
    codecs = list(dict.fromkeys(result.codec for result in results))
    pairs = list(dict.fromkeys((result.family, result.pair) for result in results))
    by_place = {(result.pair, result.codec): result for result in results}

    def cell(result: Result | None) -> str:
        if result is None:
            return ""
        memory_mib = result.memory_bytes / (1 << 20)
        return f"{result.ratio:.2f} @ {result.encode_mb_s:.4g} ({result.decode_mb_s:.4g}; {memory_mib:.0f} MiB)"

    lines = ["| pair (MB) | " + " | ".join(codecs) + " |", "| --- |" + " ---: |" * len(codecs)]
    for family, pair in pairs:
        size_mb = next(result.target_bytes for result in results if result.pair == pair) / 1e6
        cells = [cell(by_place.get((pair, codec))) for codec in codecs]
        lines.append(f"| {family}: {pair} ({size_mb:.1f}) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdicts(results: list[Result]) -> list[str]:
    """Each goal with what was reached; a goal without data on both sides says so."""
    lines = []
    for goal in GOALS:
        ours = {
            result.pair: result for result in results if result.codec == goal.codec and result.family in goal.families
        }
        peers = {
            result.pair: result for result in results if result.codec == goal.peer and result.family in goal.families
        }
        both = sorted(ours.keys() & peers.keys())
        where = " and ".join(goal.families)
        if not both:
            lines.append(f"- {goal.codec} against {goal.peer} over {where}: not measured")
            continue

        def mean(
            figure: Callable[[Result], float],
            ours: dict[str, Result] = ours,
            peers: dict[str, Result] = peers,
            both: list[str] = both,
        ) -> float:
            return geometric_mean(figure(ours[pair]) / figure(peers[pair]) for pair in both)

        ratio, speed = mean(lambda result: result.ratio), mean(lambda result: result.encode_mb_s)
        verdict = "reached" if ratio >= goal.ratio_min and speed >= goal.speed_min else "missed"
        lines.append(
            f"- {goal.codec} against {goal.peer} over {where} ({len(both)} pairs): "
            f"ratio {ratio:.2f}x (goal {goal.ratio_min}x), speed {speed:.2f}x (goal {goal.speed_min}x): **{verdict}**"
        )
    for codec in ("fast", "balanced"):
        decoding = [result.decode_mb_s for result in results if result.codec == codec and result.family == "native"]
        if decoding:
            mean_mb_s = geometric_mean(decoding)
            verdict = "reached" if mean_mb_s >= DECODE_MB_S_MIN else "missed"
            lines.append(
                f"- {codec} decodes native code at {mean_mb_s:.0f} MB/s (goal {DECODE_MB_S_MIN:.0f}): **{verdict}**"
            )
    return lines


def unstable(results: list[Result]) -> list[str]:
    """Cells whose repeats differ by more than a fifth: their speed is not to be quoted."""
    return [
        f"- {result.pair} / {result.codec}: encode {min(result.encode_user_s):.3f} to {max(result.encode_user_s):.3f} s"
        for result in results
        if len(result.encode_user_s) > 1
        and max(result.encode_user_s) > 0.05
        and max(result.encode_user_s) > 1.2 * min(result.encode_user_s)
    ]


def measured_at(results: list[Result]) -> str:
    """How many cells were measured at which commit."""
    counts = Counter(result.commit for result in results)
    return "- cells measured at: " + ", ".join(f"{commit or 'unknown'} ({count})" for commit, count in counts.items())


def markdown(results: list[Result], machine: dict[str, object]) -> str:
    facts = "\n".join(f"- {name}: {value}" for name, value in machine.items())
    parts = [
        "# Codec benchmark",
        "Ratio @ encode MB/s (decode MB/s; memory beyond the inputs for ours, peak resident for commands). "
        "User CPU time of one core, median of the repeats.",
        table(results),
        "## Goals\n\n" + "\n".join(verdicts(results)),
    ]
    wavering = unstable(results)
    if wavering:
        parts.append("## Unstable\n\n" + "\n".join(wavering))
    parts.append("## Machine\n\n" + facts + "\n" + measured_at(results))
    return "\n\n".join(parts) + "\n"
