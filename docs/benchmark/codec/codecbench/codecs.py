"""What is measured: our efforts and the papers' codecs by the crate's example, other programs as commands.

CPU is user time. For commands that includes their start and reading the files, a few milliseconds; system time is
kept beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from codecbench.pairs import Pair

OURS = ("fast", "balanced", "high", "max")
PAPERS = ("gdelta", "gdelta-entropy", "gdelta-batched", "ddelta", "edelta")
# Longest time of one command. bsdiff sorts a disk image that is mostly zeros for hours.
SECONDS_MAX = 1200


@dataclass
class Result:
    """One codec on one pair; raw samples of every repeat."""

    codec: str
    pair: str
    family: str
    base_bytes: int
    target_bytes: int
    delta_bytes: int
    encode_user_s: list[float] = field(default_factory=list)
    encode_system_s: list[float] = field(default_factory=list)
    decode_user_s: list[float] = field(default_factory=list)
    decode_system_s: list[float] = field(default_factory=list)
    memory_bytes: int = 0
    facts: dict[str, int] = field(default_factory=dict)
    commit: str = ""

    @property
    def ratio(self) -> float:
        return self.target_bytes / self.delta_bytes

    @property
    def encode_mb_s(self) -> float:
        return self.target_bytes / 1e6 / max(median(self.encode_user_s), 1e-3)

    @property
    def decode_mb_s(self) -> float:
        return self.target_bytes / 1e6 / max(median(self.decode_user_s), 1e-3)

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"ratio": self.ratio, "encode_mb_s": self.encode_mb_s, "decode_mb_s": self.decode_mb_s}


def median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


@dataclass(frozen=True)
class Peer:
    """A program that encodes and decodes files."""

    name: str
    encode: Callable[[Path, Path, Path], list[str]]
    decode: Callable[[Path, Path, Path], list[str]]
    repeats_max: int = 5

    @property
    def available(self) -> bool:
        here = Path()
        return all(shutil.which(command(here, here, here)[0]) for command in (self.encode, self.decode))


def xdelta3(*options: str) -> tuple[Callable[[Path, Path, Path], list[str]], Callable[[Path, Path, Path], list[str]]]:
    def encode(base: Path, target: Path, delta: Path) -> list[str]:
        return ["xdelta3", "-e", "-f", "-q", *options, "-s", str(base), str(target), str(delta)]

    def decode(base: Path, delta: Path, out: Path) -> list[str]:
        return ["xdelta3", "-d", "-f", "-q", "-s", str(base), str(delta), str(out)]

    return encode, decode


def zstd(level: int) -> tuple[Callable[[Path, Path, Path], list[str]], Callable[[Path, Path, Path], list[str]]]:
    common = ["zstd", "-q", "-f", "--single-thread", "--no-check", "--long=31"]

    def encode(base: Path, target: Path, delta: Path) -> list[str]:
        # Files above 2^27 bytes need a longer window than zstd takes by itself; below, `--patch-from` alone chooses it.
        options = common if max(base.stat().st_size, target.stat().st_size) > 1 << 27 else common[:-1]
        return [*options, f"-{level}", f"--patch-from={base}", str(target), "-o", str(delta)]

    def decode(base: Path, delta: Path, out: Path) -> list[str]:
        return ["zstd", "-q", "-f", "-d", "--long=31", f"--patch-from={base}", str(delta), "-o", str(out)]

    return encode, decode


def bsdiff() -> tuple[Callable[[Path, Path, Path], list[str]], Callable[[Path, Path, Path], list[str]]]:
    return (
        lambda base, target, delta: ["bsdiff", str(base), str(target), str(delta)],
        lambda base, delta, out: ["bspatch", str(base), str(out), str(delta)],
    )


PEERS = (
    Peer("xdelta3", *xdelta3()),
    # A source window that covers the base and the strongest secondary compression.
    Peer("xdelta3-best", *xdelta3("-9", "-S", "djw", "-B", str(1 << 28)), repeats_max=1),
    *(Peer(f"zstd-{level}", *zstd(level), repeats_max=5 if level < 19 else 1) for level in (1, 3, 9, 19)),
    Peer("bsdiff", *bsdiff(), repeats_max=1),
)


def run_ours(example: Path, codec: str, pair: Pair, repeats: int) -> Result:
    """One of the crate's codecs; the example verifies what it decodes."""
    command = [str(example), codec, str(pair.base), str(pair.target), str(repeats)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(printed)
    result = found["result"]
    return Result(
        codec=codec,
        pair=pair.name,
        family=pair.family,
        base_bytes=found["base_bytes"],
        target_bytes=found["target_bytes"],
        delta_bytes=result["delta_bytes"],
        encode_user_s=found["encode_cpu_s"],
        decode_user_s=found["decode_cpu_s"],
        memory_bytes=result["memory_bytes"],
        facts={"index_bytes": result["index_bytes"], **(result["facts"] or {})},
    )


class TooSlowError(Exception):
    """A program was ended because it had taken longer than `SECONDS_MAX`."""


def timed(command: list[str]) -> tuple[float, float, int]:
    """User and system seconds and peak resident bytes of one command; raises when it fails, or takes too long."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    ended = threading.Event()

    def end() -> None:
        ended.set()
        process.kill()

    limit = threading.Timer(SECONDS_MAX, end)
    limit.start()
    _, status, usage = os.wait4(process.pid, 0)
    limit.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    if ended.is_set():
        raise TooSlowError(command[0])
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_utime, usage.ru_stime, usage.ru_maxrss * 1024


def run_peer(peer: Peer, pair: Pair, repeats: int, scratch: Path) -> Result:
    """A program, with what it decodes compared to the target."""
    delta, out = scratch / "delta", scratch / "out"
    sizes = pair.base.stat().st_size, pair.target.stat().st_size
    result = Result(peer.name, pair.name, pair.family, *sizes, delta_bytes=0)
    for _ in range(min(repeats, peer.repeats_max)):
        user_s, system_s, memory = timed(peer.encode(pair.base, pair.target, delta))
        result.encode_user_s.append(user_s)
        result.encode_system_s.append(system_s)
        result.memory_bytes = max(result.memory_bytes, memory)
        user_s, system_s, _ = timed(peer.decode(pair.base, delta, out))
        result.decode_user_s.append(user_s)
        result.decode_system_s.append(system_s)
    result.delta_bytes = delta.stat().st_size
    if out.read_bytes() != pair.target.read_bytes():
        raise ValueError(f"{peer.name} on {pair.name}: decoding gave something else")
    delta.unlink()
    out.unlink()
    return result
