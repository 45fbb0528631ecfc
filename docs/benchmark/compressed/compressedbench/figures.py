"""What the raw values of a run over the store come to: sums by family, shares, speeds, and the goals they meet."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

RANGE_LEN = 65_536
PEER_NAMES = ("xdelta3", "zstd-19", "bsdiff")
HEAD = (
    "| family | pairs | MB | stored | first objects | PUT MB/s | converter CPU s/GB | GET cold MB/s | of plain "
    "| GET warm MB/s | of plain | 64 KiB cold ms | warm ms | xdelta3 | zstd --patch-from | bsdiff |\n"
    "| --- |" + " --: |" * 15 + "\n"
)


@dataclass(frozen=True)
class Pair:
    """One pair's raw values; seconds are the fastest of a few, but for PUT and converter, which happen once."""

    effort: str
    family: str
    package: str
    tuned: bool
    base_bytes: int
    target_bytes: int
    base_stored_bytes: int
    stored_bytes: int
    reason: str
    put_s: float
    converter_cpu_s: float
    plain_cold_s: float
    plain_warm_s: float
    get_cold_s: float
    get_warm_s: float
    range_cold_s: float
    range_warm_s: float
    peers: dict[str, int | None] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def speed_mb_s(rows: list[Pair], seconds: str, size: str = "target_bytes") -> float:
    """All bytes by all seconds: a long file counts for what it is."""
    whole = float(sum(getattr(row, size) for row in rows))
    return whole / 1e6 / max(float(sum(getattr(row, seconds) for row in rows)), 1e-9)


def of_plain(rows: list[Pair], kind: str) -> float:
    """The speed of successors as a share of that of the objects before them, which are stored as they came."""
    return speed_mb_s(rows, f"get_{kind}_s") / max(speed_mb_s(rows, f"plain_{kind}_s", "base_bytes"), 1e-9)


def peer_share(rows: list[Pair], peer: str) -> float | None:
    """Another program's deltas, as a share of the files it had an answer for; `None` when it had none."""
    told = [(row.peers[peer], row.target_bytes) for row in rows if row.peers.get(peer) is not None]
    return sum(delta or 0 for delta, _ in told) / sum(size for _, size in told) if told else None


def stored_share(rows: list[Pair]) -> float:
    return sum(row.stored_bytes for row in rows) / sum(row.target_bytes for row in rows)


def line(name: str, rows: list[Pair]) -> str:
    """One line of the table. A range's latency is the worst of all."""

    def percent(share: float | None) -> str:
        return "–" if share is None else f"{100 * share:.1f} %"

    size = sum(row.target_bytes for row in rows)
    cells = [
        name,
        str(len(rows)),
        f"{size / 1e6:.1f}",
        percent(stored_share(rows)),
        percent(sum(row.base_stored_bytes for row in rows) / sum(row.base_bytes for row in rows)),
        f"{speed_mb_s(rows, 'put_s'):.0f}",
        f"{sum(row.converter_cpu_s for row in rows) / (size / 1e9):.0f}",
        f"{speed_mb_s(rows, 'get_cold_s'):.0f}",
        f"{of_plain(rows, 'cold'):.2f}×",
        f"{speed_mb_s(rows, 'get_warm_s'):.0f}",
        f"{of_plain(rows, 'warm'):.2f}×",
        f"{1000 * max(row.range_cold_s for row in rows):.0f}",
        f"{1000 * max(row.range_warm_s for row in rows):.0f}",
    ]
    return "| " + " | ".join([*cells, *(percent(peer_share(rows, peer)) for peer in PEER_NAMES)]) + " |\n"


def by_family(rows: list[Pair]) -> dict[str, list[Pair]]:
    families: dict[str, list[Pair]] = {}
    for row in rows:
        families.setdefault(row.family, []).append(row)
    return families


def goals(rows: list[Pair]) -> list[tuple[str, bool]]:
    """The goals of the issue that one client can see, and whether they are met."""
    worst = max(by_family(rows).items(), key=lambda one: stored_share(one[1]))
    slowest = max(rows, key=lambda row: row.range_cold_s)
    share = stored_share(rows)
    return [
        (f"successors take at most 15 % in sum: {100 * share:.1f} %", share <= 0.15),
        (f"no family takes over 40 %: {worst[0]} {100 * stored_share(worst[1]):.1f} %", stored_share(worst[1]) <= 0.4),
        (f"whole GETs at 60 MB/s: {speed_mb_s(rows, 'get_cold_s'):.0f} cold", speed_mb_s(rows, "get_cold_s") >= 60),
        (f"at 0.3 of a plain object's speed: {of_plain(rows, 'cold'):.2f}", of_plain(rows, "cold") >= 0.3),
        (
            f"the last 64 KiB within 100 ms cold: {1000 * slowest.range_cold_s:.0f} ms ({slowest.package})",
            slowest.range_cold_s <= 0.1,
        ),
        (
            f"within 50 ms warm: {1000 * max(row.range_warm_s for row in rows):.0f} ms",
            max(row.range_warm_s for row in rows) <= 0.05,
        ),
    ]


def render(results: dict[str, Any]) -> str:
    """The report."""
    rows = [Pair(**row) for row in results["pairs"]]
    efforts = {row.effort: [of for of in rows if of.effort == row.effort] for row in rows}
    out = (
        "# Successors of compressed files in the store\n\n"
        f"Seed {results['seed']}, {results['build']} build, {results['cores']} cores, one client. Shares are of the "
        f"newer release's own bytes. Peak memory of the server: {results['peak_bytes'] / 2**20:.0f} MiB.\n\n"
    )
    if len(efforts) > 1:
        out += "## By effort\n\n" + HEAD.replace("| family |", "| effort |")
        out += "".join(line(effort, of) for effort, of in efforts.items()) + "\n"
    for effort, of in efforts.items():
        out += f"## {effort}\n\n" + HEAD
        out += "".join(line(family, one) for family, one in by_family(of).items()) + line("sum", of) + "\n"
        out += "".join(f"- {'met' if met else 'not met'}: {goal}\n" for goal, met in goals(of)) + "\n"
    if rows:
        effort, of = next(iter(efforts.items()))
        out += f"## Pairs at {effort}\n\n" + HEAD.replace("| family |", "| package |")
        out += "".join(line(f"{row.family} {row.package}" + (" (tuned on)" if row.tuned else ""), [row]) for row in of)
    if results["failed"]:
        out += "\n## Not measured\n\n"
        out += "".join(f"- {row['family']} {row['package']}: {row['error']}\n" for row in results["failed"])
    return out
