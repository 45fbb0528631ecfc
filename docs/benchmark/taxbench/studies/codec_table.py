"""The codec table: ratio, encode and decode MB/s per core, and peak memory of delta codecs, each run as a command.

Ours against xdelta3, `zstd --patch-from`, bsdiff and plain zstd, on the same pairs. Speeds are per core: bytes of the
target divided by user plus system time, so start-up and file reading are in them, for everybody alike. Unfair to bsdiff
and to the high levels, which are built for files that are sent a thousand times.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from taxbench.bundle import Bundle, write_json
from taxbench.records import SCHEMA_VERSION, Strict
from taxbench.statistics import Interval, bootstrap
from taxbench.studies.bench import StudyBench, StudyError, versions

FAMILIES = ("tar", "sql", "shifted", "disk")
COMMAND_TIMEOUT_S = 600.0

LAUNCHER = (
    "import os,sys,json\n"
    "pid=os.fork()\n"
    "if pid==0:\n"
    " try:\n"
    "  null=os.open(os.devnull,os.O_RDWR)\n"
    "  os.dup2(null,0);os.dup2(null,1)\n"
    "  os.execvp(sys.argv[1],sys.argv[1:])\n"
    " finally:\n"
    "  os._exit(127)\n"
    "_,status,use=os.wait4(pid,0)\n"
    "print(json.dumps([os.waitstatus_to_exitcode(status),use.ru_utime+use.ru_stime,use.ru_maxrss]))\n"
)
"""Forks from a small process: a child's peak memory starts at its parent's, and ours is large."""


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec as two commands. `{base}`, `{target}`, `{delta}` and `{out}` are replaced by paths."""

    name: str
    level: str
    encode: tuple[str, ...]
    decode: tuple[str, ...]


class CodecRow(Strict):
    """One codec on one pair. MB are decimal; memory in bytes."""

    codec: str
    level: str
    data: str
    target_bytes: int
    delta_bytes: int
    ratio: float
    encode_mb_s: Interval
    decode_mb_s: Interval
    encode_peak_bytes: int
    decode_peak_bytes: int
    repeats: int


class AblationRow(Strict):
    """What one idea of our codec adds, by leaving out those that come after it."""

    data: str
    step: str
    bytes: int
    ratio: float


class CodecTable(Strict):
    """`studies/codec_table.json`."""

    schema_version: int = SCHEMA_VERSION
    rows: list[CodecRow]
    ablations: list[AblationRow]
    missing: list[str] = Field(description="codecs that are not available here")


def codecs(binary: Path | None) -> list[Codec]:
    """Every codec of the table, ours first."""
    found: list[Codec] = []
    if binary is not None:
        ours = f"{binary} delta"
        for effort in ("fast", "balanced", "high", "max"):
            encode = f"{ours} encode --effort {effort} {{base}} {{target}} {{delta}}"
            found.append(_codec("deltaweir", effort, encode, f"{ours} decode {{base}} {{delta}} {{out}}"))
    for level in ("1", "9"):
        encode = f"xdelta3 -e -f -q -{level} -s {{base}} {{target}} {{delta}}"
        found.append(_codec("xdelta3", level, encode, "xdelta3 -d -f -q -s {base} {delta} {out}"))
    for level in ("1", "3", "19"):
        encode = f"zstd -{level} -q -f --single-thread --patch-from={{base}} {{target}} -o {{delta}}"
        decode = "zstd -d -q -f --patch-from={base} {delta} -o {out}"
        found.append(_codec("zstd --patch-from", level, encode, decode))
    found.append(_codec("bsdiff", "", "bsdiff {base} {target} {delta}", "bspatch {base} {out} {delta}"))
    for level in ("1", "3", "19"):
        encode = f"zstd -{level} -q -f --single-thread {{target}} -o {{delta}}"
        found.append(_codec("zstd", level, encode, "zstd -d -q -f {delta} -o {out}"))
    return found


def _codec(name: str, level: str, encode: str, decode: str) -> Codec:
    return Codec(name, level, tuple(encode.split()), tuple(decode.split()))


def run(bench: StudyBench, bundle: Bundle, place: Path) -> None:
    """Every codec on every pair, up to the profile's repeats, as long as the codec's time budget for the pair lasts."""
    ours = bench.binary if bench.binary is not None and has_delta_command(bench.binary) else None
    rows: list[CodecRow] = []
    ablations: list[AblationRow] = []
    missing: set[str] = set() if ours else {"deltaweir delta (this build has no such command)"}
    targets_bytes = 0
    for family in FAMILIES:
        base, target = (c.path for c in versions(bench.seed, family, bench.profile.codec_bytes, 2, place / "data"))
        targets_bytes += target.stat().st_size
        for codec in codecs(ours):
            if shutil.which(codec.encode[0]) is None or shutil.which(codec.decode[0]) is None:
                missing.add(codec.name)
                continue
            rows.append(_measure(codec, family, base, target, place, bench))
        if ours is not None:
            ablations += _ablations(ours, family, base, target, place)
    if ours is not None and shutil.which("zstd"):
        ablations += _batched(place, targets_bytes)
    table = CodecTable(rows=rows, ablations=ablations, missing=sorted(missing))
    write_json(bundle.root / "studies" / "codec_table.json", table)


def has_delta_command(binary: Path) -> bool:
    """Whether a build offers `delta encode`; the table names ours as missing where it does not."""
    done = subprocess.run([str(binary), "delta", "encode", "--help"], capture_output=True, timeout=20, check=False)
    return done.returncode == 0


def _measure(codec: Codec, family: str, base: Path, target: Path, place: Path, bench: StudyBench) -> CodecRow:
    delta, out = place / "delta", place / "out"
    paths = {"base": str(base), "target": str(target), "delta": str(delta), "out": str(out)}
    encode_s: list[float] = []
    decode_s: list[float] = []
    encode_peak, decode_peak, spent_s = 0, 0, 0.0
    while len(encode_s) < bench.profile.codec_repeats and (not encode_s or spent_s < bench.profile.codec_budget_s):
        delta.unlink(missing_ok=True)
        out.unlink(missing_ok=True)
        seconds, peak = launch([part.format(**paths) for part in codec.encode])
        encode_s.append(seconds)
        encode_peak = max(encode_peak, peak)
        seconds, peak = launch([part.format(**paths) for part in codec.decode])
        decode_s.append(seconds)
        decode_peak = max(decode_peak, peak)
        spent_s += encode_s[-1] + decode_s[-1]
        if out.read_bytes() != target.read_bytes():
            raise StudyError(f"{codec.name} {codec.level} did not give {family} back")
    size, stored = target.stat().st_size, delta.stat().st_size
    encode = bootstrap([size / 1e6 / max(s, 1e-3) for s in encode_s])
    decode = bootstrap([size / 1e6 / max(s, 1e-3) for s in decode_s])
    assert encode is not None and decode is not None, "measured at least once"
    return CodecRow(
        codec=codec.name,
        level=codec.level,
        data=family,
        target_bytes=size,
        delta_bytes=stored,
        ratio=round(size / max(stored, 1), 4),
        encode_mb_s=encode,
        decode_mb_s=decode,
        encode_peak_bytes=encode_peak,
        decode_peak_bytes=decode_peak,
        repeats=len(encode_s),
    )


def launch(arguments: list[str]) -> tuple[float, int]:
    """Runs a command; gives its CPU seconds (user plus system) and its peak resident memory in bytes.

    # Errors
    `StudyError` when it fails.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LAUNCHER, *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    try:
        status, cpu_s, peak_kib = json.loads(done.stdout)
    except ValueError as error:
        raise StudyError(f"{arguments[0]}: {done.stderr[-300:]}") from error
    if status != 0:
        raise StudyError(f"{' '.join(arguments[:4])} exited {status}: {done.stderr[-300:]}")
    return float(cpu_s), int(peak_kib) * 1024


def _ablations(binary: Path, family: str, base: Path, target: Path, place: Path) -> Iterator[AblationRow]:
    """What matching alone leaves, and what coding its streams adds, from `delta info --json` of a balanced delta."""
    delta = place / f"ablation-{family}"
    launch([str(binary), "delta", "encode", "--effort", "balanced", str(base), str(target), str(delta)])
    done = subprocess.run(
        [str(binary), "delta", "info", "--json", str(delta)], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        raise StudyError(f"delta info failed: {done.stderr[-300:]}")
    yield from ablations_of(json.loads(done.stdout), family, target.stat().st_size, delta.stat().st_size)


def ablations_of(info: dict[str, Any], family: str, target_bytes: int, delta_bytes: int) -> Iterator[AblationRow]:
    """The ablation rows that a `delta info` report supports.

    Matching alone leaves instructions, differences and literals; only the instructions have no uncoded form to count.
    """
    found = {**info, **info.get("totals", {})}
    raw = sum(int(found.get(name, 0)) for name in ("instruction_bytes_stored", "sub_bytes", "literal_bytes"))
    for step, count in (("matches only", raw), ("and entropy coding", delta_bytes)):
        ratio = round(target_bytes / max(count, 1), 4)
        yield AblationRow(data=family, step=step, bytes=count, ratio=ratio)


def _batched(place: Path, targets_bytes: int) -> Iterator[AblationRow]:
    """What batching would still find: the deltas of all pairs, one after another, compressed once more by zstd."""
    batch, packed = place / "batch", place / "batch.zst"
    batch.write_bytes(b"".join(path.read_bytes() for path in sorted(place.glob("ablation-*"))))
    launch(["zstd", "-19", "-q", "-f", str(batch), "-o", str(packed)])
    for step, path in (("all deltas", batch), ("and batching", packed)):
        count = path.stat().st_size
        yield AblationRow(data="all", step=step, bytes=count, ratio=round(targets_bytes / max(count, 1), 4))
