"""`deltaweir delta`: files to a delta and back, without a server, checked by the independent decoder."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from delta_file_v1 import decode_file
from delta_v1 import MalformedDeltaError

from outside.content import MIB, noise, release
from outside.server import BINARY

GIB = 1024 * MIB

PEAK = (
    "import os,sys\n"
    "pid=os.fork()\n"
    "if pid==0: os.execv(sys.argv[1],sys.argv[1:])\n"
    "_,status,use=os.wait4(pid,0)\n"
    "print(use.ru_maxrss*1024)\n"
    "sys.exit(os.waitstatus_to_exitcode(status))\n"
)
"""Forks from a small process: a child's peak memory starts at its parent's, and that of the tests is large."""


def run(*arguments: object, check: bool = True, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    command = [str(BINARY), "delta", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert not check or done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two releases: 9 MiB of noise with scattered changes and an insertion, and text that only compresses."""
    folder = tmp_path_factory.mktemp("pair")
    base, target = folder / "base", folder / "target"
    base.write_bytes(release(77, 9 * MIB, 0))
    target.write_bytes(release(77, 9 * MIB, 1) + b"it was not so before\n" * 250_000)
    return base, target


@pytest.fixture(scope="module")
def delta(pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("delta") / "delta"
    run("encode", *pair, out)
    return out


@pytest.mark.parametrize("effort", ["fast", "balanced", "high", "max"])
def test_both_decoders_give_the_target_back(pair: tuple[Path, Path], tmp_path: Path, effort: str) -> None:
    base, target = pair
    delta, out = tmp_path / "delta", tmp_path / "out"
    run("encode", "--effort", effort, base, target, delta)
    assert delta.stat().st_size < target.stat().st_size // 20
    run("decode", base, delta, out)
    assert out.read_bytes() == target.read_bytes()
    assert decode_file(base.read_bytes(), delta.read_bytes()) == target.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["delta", "out"]


@pytest.mark.parametrize(
    "base,target",
    [
        (b"", b""),
        (b"", b"x"),
        (b"base", b""),
        (b"", noise(3, 5 * MIB)),
        (b"same" * MIB, b"same" * MIB),
        (b"x", b"y" * 99),
    ],
    ids=["both-empty", "one-byte", "empty-target", "noise-without-base", "same", "only-compresses"],
)
def test_files_at_the_edges_come_back(base: bytes, target: bytes, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("base", "target", "delta", "out")]
    paths[0].write_bytes(base)
    paths[1].write_bytes(target)
    run("encode", *paths[:3])
    run("decode", paths[0], paths[2], paths[3])
    assert paths[3].read_bytes() == target
    assert decode_file(base, paths[2].read_bytes()) == target
    assert paths[2].stat().st_size <= 88 + len(target) + 24 * (len(target) // (4 * MIB) + 1)


def test_another_base_is_refused_before_anything_is_written(
    pair: tuple[Path, Path], delta: Path, tmp_path: Path
) -> None:
    content = bytearray(pair[0].read_bytes())
    content[4 * MIB] ^= 1
    out = tmp_path / "out"
    out.write_bytes(b"what was there")
    for other in (bytes(content), bytes(content[:-1]), b""):
        wrong = tmp_path / "wrong"
        wrong.write_bytes(other)
        refused = run("decode", wrong, delta, out, check=False)
        assert refused.returncode == 1
        assert "not the base" in refused.stderr
        with pytest.raises(MalformedDeltaError):
            decode_file(other, delta.read_bytes())
        wrong.unlink()
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
        assert out.read_bytes() == b"what was there"


def test_a_damaged_delta_is_refused_and_leaves_nothing_behind(
    pair: tuple[Path, Path], delta: Path, tmp_path: Path
) -> None:
    whole = delta.read_bytes()
    damaged = {
        "magic": b"X" + whole[1:],
        "version": whole[:4] + b"\x04" + whole[5:],
        "head": whole[:60] + bytes([whole[60] ^ 4]) + whole[61:],
        "digest": whole[:64] + bytes([whole[64] ^ 1]) + whole[65:],
        "middle": whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :],
        "end": whole[:-1] + bytes([whole[-1] ^ 1]),
        "cut": whole[:-1],
        "longer": whole + b"\0",
        "empty": b"",
    }
    broken = tmp_path / "broken"
    for name, content in damaged.items():
        broken.write_bytes(content)
        refused = run("decode", pair[0], broken, tmp_path / "out", check=False)
        assert refused.returncode == 1, name
        assert "not a usable delta" in refused.stderr, name
        assert [path.name for path in tmp_path.iterdir()] == ["broken"], name


def test_info_says_what_a_delta_consists_of(pair: tuple[Path, Path], delta: Path) -> None:
    base, target = pair
    told = json.loads(run("info", "--json", delta).stdout)
    assert (told["base_bytes"], told["target_bytes"]) == (base.stat().st_size, target.stat().st_size)
    assert told["base_sha256"] == hashlib.sha256(base.read_bytes()).hexdigest()
    assert told["target_sha256"] == hashlib.sha256(target.read_bytes()).hexdigest()
    assert told["segments"]["delta"] >= 2
    assert told["segments"]["zstd"] >= 1
    assert sum(told["segments"].values()) == -(-target.stat().st_size // (4 * MIB))
    totals = told["totals"]
    parts = [totals[name] for name in ("framing_bytes", "instruction_bytes_stored", "sub_bytes_stored")]
    # What is not counted are the few bytes in which every delta says how long its streams are.
    uncounted = told["delta_bytes"] - sum(parts) - totals["literal_bytes_stored"]
    assert 0 <= uncounted <= 64 * told["segments"]["delta"]
    assert totals["copies"] > 0
    assert "base_sha256" in run("info", delta).stdout
    assert run("info", base, check=False).returncode == 1


def test_content_that_moved_in_a_base_longer_than_a_window_is_found(tmp_path: Path) -> None:
    base, target, delta, out = (tmp_path / name for name in ("base", "target", "delta", "out"))
    pieces = [noise(seed, 20 * MIB) for seed in range(8)]
    base.write_bytes(b"".join(pieces))
    target.write_bytes(pieces[7] + b"and then" + pieces[0] + pieces[5][3 * MIB :])
    run("encode", "--effort", "fast", base, target, delta)
    assert delta.stat().st_size < MIB // 16
    run("decode", base, delta, out)
    assert out.read_bytes() == target.read_bytes()


def test_what_cannot_be_read_or_written_is_said(pair: tuple[Path, Path], tmp_path: Path) -> None:
    base, target = pair
    for arguments in (
        ("encode", base, tmp_path / "none", tmp_path / "out"),
        ("encode", base, tmp_path, tmp_path / "out"),
        ("encode", base, target, tmp_path / "no-folder" / "out"),
        ("decode", base, tmp_path / "none", tmp_path / "out"),
        ("info", tmp_path / "none"),
    ):
        failed = run(*arguments, check=False)
        assert failed.returncode == 1, arguments
        assert failed.stderr.startswith("deltaweir: "), arguments
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("effort", ["balanced", "max"])
def test_eight_gib_take_less_than_one_of_memory(tmp_path: Path, effort: str) -> None:
    base, target, delta, out = (tmp_path / name for name in ("base", "target", "delta", "out"))
    places = [GIB // 2, 3 * GIB + 17, 6 * GIB + 4095, 8 * GIB - 40 * MIB]
    pieces = [release(seed, 32 * MIB, 0) for seed in range(4)]
    with base.open("wb") as file:
        file.truncate(8 * GIB)
        for place, piece in zip(places, pieces, strict=True):
            file.seek(place)
            file.write(piece)
    # The same pieces, changed and two gigabytes from where they were.
    with target.open("wb") as file:
        file.truncate(8 * GIB)
        for number, place in enumerate(places):
            file.seek((place + 2 * GIB) % (8 * GIB))
            file.write(release(number, 32 * MIB, 1)[: 8 * GIB - file.tell()])
    peaks = {}
    for command in (("encode", "--effort", effort, base, target, delta), ("decode", base, delta, out)):
        launched = [sys.executable, "-I", "-S", "-c", PEAK, str(BINARY), "delta", *map(str, command)]
        done = subprocess.run(launched, capture_output=True, text=True, timeout=3000, check=False)
        assert done.returncode == 0, done.stderr
        peaks[command[0]] = int(done.stdout.splitlines()[-1])
    assert all(100 * MIB < peak < GIB for peak in peaks.values()), peaks
    assert delta.stat().st_size < 8 * MIB
    assert digest(out) == digest(target)


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
