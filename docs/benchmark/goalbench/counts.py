"""`python -m goalbench.counts`: the work of lines 1 and 2 in counts, of one build or of several in turn.

Seconds differ by a tenth between two runs on a machine that others use; faults, calls and bytes hardly do. Each round
runs every build once, so that what drifts meets them all. A cell is the median of the rounds: for each request of
line 1, with CPU in ms, and for each gigabyte of line 2, with CPU in s.

Run it as root: a server is not dumpable, and the kernel shows the calls of such a process to nobody else
(`CAP_SYS_PTRACE`). `goalbench` itself counts none and needs no such right.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from goalbench.served import Load, Round, Timed, parts, small_requests
from taxbench.admin import AdminError
from taxbench.servers.deltaweir import find_binary
from taxbench.servers.target import TargetError
from taxbench.studies.bench import StudyError

SEED = 20_260_119
STUDIES = {1: small_requests, 2: parts}
COLUMNS = ("CPU", "faults", "switches", "reads", "writes", "bytes written")


def of_line(line: int, binary: Path, seed: int, place: Path) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Each kind of work of a line, and the figures of [`COLUMNS`]."""
    with tempfile.TemporaryDirectory(dir=place) as here:
        timed: list[Timed] = []
        for name, _ in STUDIES[line](Round(binary, Path(here), Load(), seed, timed)):
            work = timed[-1]
            units, cpu = (work.payload_bytes / 1e9, work.cpu_s) if line == 2 else (work.operations, work.cpu_s * 1000)
            seen = work.seen
            counts = (cpu, seen.faults, seen.switches, seen.reads, seen.writes, seen.written)
            yield f"{name} of line {line}", tuple(count / units for count in counts)


def render(found: dict[tuple[str, int], list[tuple[float, ...]]]) -> str:
    lines = [f"| work | build | {' | '.join(COLUMNS)} |", f"|---|---:|{'---:|' * len(COLUMNS)}"]
    works = list(dict.fromkeys(work for work, _ in found))
    for (work, build), rounds in sorted(found.items(), key=lambda cell: (works.index(cell[0][0]), cell[0][1])):
        cells = (f"{median(column):.4g}" for column in zip(*rounds, strict=True))
        lines.append(f"| {work} | {build + 1} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="goalbench.counts", description=__doc__)
    parser.add_argument(
        "--binary", action="append", help="a server; several are run in turn (default: the release build)"
    )
    parser.add_argument("--lines", type=int, nargs="*", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--place", type=Path, help="where stores are made (default: the system's temporary directory)")
    options = parser.parse_args(arguments)
    found: dict[tuple[str, int], list[tuple[float, ...]]] = defaultdict(list)
    try:
        binaries = [find_binary(binary) for binary in options.binary or [""]]
        with tempfile.TemporaryDirectory(prefix="goalbench-", dir=options.place) as place:
            for number in range(options.rounds):
                for line in options.lines:
                    for build, binary in enumerate(binaries):
                        for work, figures in of_line(line, binary, SEED + number, Path(place)):
                            found[work, build].append(figures)
    except (TargetError, AdminError, StudyError, OSError) as error:
        print(f"goalbench.counts: {error}", file=sys.stderr)
        return 2
    print(render(found), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
