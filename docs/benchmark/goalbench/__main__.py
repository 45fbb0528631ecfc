"""`python -m goalbench`: measures the goals and prints them, then how the store grows.

Exit code 0 when everything that was asked for could be measured, whether it meets its goal or not; 2 otherwise.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from codecbench.codecs import TooSlowError

from goalbench import codec, gigabytes, peer, releases, replicas, size, table
from goalbench.goals import GOALS, Check, Found, Report, Size, line
from goalbench.served import STUDIES, Load, Round, Study
from taxbench import machine
from taxbench.admin import AdminError
from taxbench.artifacts.index import SourceError
from taxbench.bundle import write_json
from taxbench.progress import Reporter
from taxbench.servers.deltaweir import REPOSITORY, find_binary
from taxbench.servers.target import TargetError
from taxbench.statistics import bootstrap
from taxbench.studies.bench import StudyError

RESULTS = REPOSITORY / "results" / "goals"
EXAMPLES = REPOSITORY / "target" / "release" / "examples"
SEED = 20_260_119
SIZES = (10_000, 100_000)
LARGE = 1_000_000
NATIVE = REPOSITORY / ".bench-data" / "codec"
"""Where `make bench-codec` keeps what it fetches."""
ALL_STUDIES = (
    *peer.STUDIES,
    *STUDIES,
    Study("native releases", releases.stored, 11, rounds_max=1),
    Study("replicas", replicas.several, 12),
    Study("files of gigabytes", gigabytes.successive, 14, rounds_max=1),
)
IDLE_LINE = 6


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="goalbench", description=__doc__)
    found.add_argument("--lines", type=int, nargs="*", help="only these lines (default: all)")
    found.add_argument("--rounds", type=int, default=5, help="rounds of each line; the interval is over them")
    found.add_argument("--sizes", type=int, nargs="*", help=f"objects of the growth table (default: {SIZES})")
    found.add_argument("--large", action="store_true", help=f"{LARGE:,} objects, too: half an hour more")
    found.add_argument("--object-bytes", type=int, default=size.OBJECT_BYTES, help="length of each of these objects")
    found.add_argument("--unpacked", action="store_true", help="leave the content of these objects in the catalog")
    found.add_argument("--no-recovery", action="store_true", help="leave the catalogs of these stores whole")
    found.add_argument("--binary", default="", help="the server (default: the release build)")
    found.add_argument("--examples", type=Path, default=EXAMPLES, help="where fill_store and bench_codec are")
    found.add_argument("--out", type=Path, default=RESULTS, help="where results.json and report.md go")
    found.add_argument("--place", type=Path, help="where stores are made (default: the system's temporary directory)")
    found.add_argument("--json", action="store_true", help="print the report as JSON, and no progress")
    return found


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    wanted = set(options.lines) if options.lines is not None else {goal.number for goal in GOALS}
    reporter = Reporter(options.json)
    try:
        for number in wanted:
            line(number)
        report, complete = run(options, wanted, reporter)
    except (KeyError, TargetError, OSError) as error:
        print(f"goalbench: {error}", file=sys.stderr)
        return 2
    write_json(options.out / "results.json", report)
    (options.out / "report.md").write_text(table.render(report))
    print(report.model_dump_json() if options.json else table.render(report), end="")
    return 0 if complete else 2


def run(options: argparse.Namespace, wanted: set[int], reporter: Reporter) -> tuple[Report, bool]:
    """Everything that is wanted; whether all of it could be measured."""
    binary = find_binary(options.binary)
    noise = machine.NoiseMeter.begin()
    found: list[Found] = []
    with tempfile.TemporaryDirectory(prefix="goalbench-", dir=options.place) as scratch:
        place = Path(scratch)
        for study in ALL_STUDIES:
            if study.numbers() & wanted:
                found += studied(study, binary, place, options.rounds, reporter)
        found += alone(options.examples / "bench_codec", wanted, place, options.rounds, reporter)
        sizes = list(options.sizes if options.sizes is not None else SIZES) + ([LARGE] if options.large else [])
        windows = size.Windows(
            object_bytes=options.object_bytes, packs=not options.unpacked, recovers=not options.no_recovery
        )
        growth, trouble = grown(binary, options.examples / "fill_store", place, sizes, windows, reporter)
    if IDLE_LINE in wanted:
        found += idle_of(growth, trouble)
    report = Report(
        commit=commit(),
        machine=machine.facts(REPOSITORY),
        noise=noise.read(),
        rounds=options.rounds,
        found=[one for one in found if one.line in wanted],
        growth=growth,
    )
    return report, not trouble and all(one.interval is not None for one in found)


def studied(study: Study, binary: Path, place: Path, rounds: int, reporter: Reporter) -> list[Found]:
    """A study's lines over its rounds. Where it fails, its lines say why."""
    values: dict[str, list[float]] = defaultdict(list)
    try:
        for number in range(min(rounds, study.rounds_max)):
            reporter.say(f"{study.name}: round {number + 1} of {min(rounds, study.rounds_max)}")
            with tempfile.TemporaryDirectory(dir=place) as here:
                round_ = Round(binary, Path(here), Load(), SEED + number)
                for name, value in study.measure(round_):
                    values[name].append(value)
    except (StudyError, TargetError, AdminError, SourceError, OSError, subprocess.SubprocessError) as error:
        return [Found(line=number, name=c.name, why_not=str(error)[:200]) for number, c in checks_of(study)]
    return [of_values(*study.place_of(name), several) for name, several in values.items()]


def checks_of(study: Study) -> Iterator[tuple[int, Check]]:
    for number in sorted(study.numbers()):
        for check in line(number).checks:
            yield number, check


def alone(example: Path, wanted: set[int], place: Path, rounds: int, reporter: Reporter) -> list[Found]:
    """The codec's lines. One round of line 10: bsdiff takes its time, and sizes do not vary."""
    found = []
    for number, measure, most in ((9, codec.against_zstd, rounds), (10, codec.against_bsdiff, 1)):
        if number not in wanted:
            continue
        values: dict[str, list[float]] = defaultdict(list)
        try:
            for count in range(most):
                reporter.say(f"{line(number).work}: round {count + 1} of {most}")
                pairs = codec.pairs(NATIVE)
                for name, value in measure(example, pairs, place):
                    values[name].append(value)
        except (codec.NotHereError, TooSlowError, subprocess.CalledProcessError, OSError) as error:
            found += [Found(line=number, name=c.name, why_not=str(error)[:200]) for c in line(number).checks]
            continue
        found += [of_values(number, name, several) for name, several in values.items()]
    return found


def grown(
    binary: Path, fill: Path, place: Path, sizes: Sequence[int], windows: size.Windows, reporter: Reporter
) -> tuple[list[Size], str]:
    """The store at each size, and what went wrong, if anything did."""
    found: list[Size] = []
    for objects in sorted(set(sizes)):
        reporter.say(f"{objects:,} objects")
        try:
            with tempfile.TemporaryDirectory(dir=place) as here:
                found.append(size.measure(binary, fill, Path(here), objects, windows))
        except (StudyError, TargetError, AdminError, OSError, subprocess.TimeoutExpired) as error:
            reporter.say(f"{objects:,} objects were not measured: {error}")
            return found, str(error)[:200]
    return found, ""


def idle_of(growth: Sequence[Size], trouble: str) -> list[Found]:
    """Line 6, at the largest size there is."""
    checks = line(IDLE_LINE).checks
    if not growth:
        return [Found(line=IDLE_LINE, name=check.name, why_not=trouble or "no size was asked for") for check in checks]
    figures = max(growth, key=lambda size: size.objects).figures
    names = {"CPU": "idle CPU s in 10 s", "RSS": "RSS × its bound"}
    return [Found(line=IDLE_LINE, name=check.name, interval=figures[names[check.name]]) for check in checks]


def of_values(number: int, name: str, values: Sequence[float]) -> Found:
    return Found(line=number, name=line(number).check(name).name, interval=bootstrap(values))


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
