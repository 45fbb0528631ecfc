"""`deltaweir delta` and `deltaweir inspect` on files with deflate streams in them, as real tools make them."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from delta_file_v1 import decode_file
from delta_v1 import MalformedDeltaError

from outside.archives import damaged, dump, picture, plain_tar, tar_gz, tree, wheel
from outside.content import MIB, noise
from outside.server import BINARY

SEED = 41


def deltaweir(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [str(BINARY), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert not check or done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def unpacked(folder: Path, version: int) -> Path:
    """A release as files on a disk, all of the same age."""
    for name, content in tree(SEED, 12, 60_000, version):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (1_795_000_000, 1_795_000_000))
    return folder


def by_gnu_tar(folder: Path, version: int) -> bytes:
    out = folder / "out.tar.gz"
    names = sorted(path.name for path in unpacked(folder, version).iterdir())
    subprocess.run(["tar", "--sort=name", "--owner=0", "--group=0", "-czf", out, "-C", folder, *names], check=True)
    return out.read_bytes()


def by_dpkg(folder: Path, version: int) -> bytes:
    unpacked(folder / "tree", version)
    control = folder / "tree" / "DEBIAN" / "control"
    control.parent.mkdir()
    control.write_text(
        f"Package: sample\nVersion: 1.{version}\nArchitecture: all\nMaintainer: n <n@example.com>\nDescription: one\n"
    )
    out = folder / "out.deb"
    subprocess.run(["dpkg-deb", "-Zgzip", "--root-owner-group", "--build", folder / "tree", out], check=True)
    return out.read_bytes()


def by_jar(folder: Path, version: int) -> bytes:
    out = folder / "out.jar"
    subprocess.run(["jar", "--create", "--file", out, "-C", unpacked(folder / "tree", version), "."], check=True)
    return out.read_bytes()


def by_info_zip(folder: Path, version: int) -> bytes:
    out = folder / "out.zip"
    subprocess.run(["zip", "-q", "-r", "-9", out, "."], cwd=unpacked(folder / "tree", version), check=True)
    return out.read_bytes()


def by_python(_folder: Path, version: int) -> bytes:
    return wheel(SEED, 12, 60_000, version)


def by_gnu_tar_of_wheels(folder: Path, version: int) -> bytes:
    (folder / "wheels").mkdir()
    for number in range(4):
        path = folder / "wheels" / f"package_{number}.whl"
        path.write_bytes(wheel(SEED + number, 12, 30_000, version))
        os.utime(path, (1_795_000_000, 1_795_000_000))
    out = folder / "out.tar.gz"
    subprocess.run(["tar", "--sort=name", "--owner=0", "--group=0", "-czf", out, "-C", folder, "wheels"], check=True)
    return out.read_bytes()


def by_python_of_tgz(_folder: Path, version: int) -> bytes:
    """As a CI system packs what a job made: everything compressed, whatever it is."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(4):
            member = zipfile.ZipInfo(f"package_{number}.tgz", (2026, 11, 23, 12, 0, 0))
            archive.writestr(member, tar_gz(SEED + number, 6, 30_000, version), zipfile.ZIP_DEFLATED)
    return out.getvalue()


TOOLS: dict[str, tuple[str, Callable[[Path, int], bytes]]] = {
    "wheel": ("python3", by_python),
    "tar.gz": ("tar", by_gnu_tar),
    "deb": ("dpkg-deb", by_dpkg),
    "jar": ("jar", by_jar),
    "zip": ("zip", by_info_zip),
    "layer.tar.gz": ("tar", by_gnu_tar_of_wheels),
    "artifact.zip": ("python3", by_python_of_tgz),
}
NESTED = {"layer.tar.gz": "zip", "artifact.zip": "gzip"}
"""Archives of archives, and the container of the inner ones."""
THERE = [kind for kind, (tool, _) in TOOLS.items() if shutil.which(tool)]
assert {"wheel", "tar.gz", "deb"} <= set(THERE), "every Debian has their tools"


@functools.cache
def releases(kind: str, folder: Path) -> tuple[Path, Path]:
    """Two of them."""
    made = []
    for version in range(2):
        work = folder / f"{kind}-{version}"
        work.mkdir()
        path = folder / f"package-1.{version}.{kind}"
        path.write_bytes(TOOLS[kind][1](work, version))
        made.append(path)
    return made[0], made[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("releases")


@pytest.mark.parametrize("kind", THERE)
def test_the_next_release_is_a_small_delta_and_both_decoders_give_it_back(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    base, target = releases(kind, folder)
    delta, out = tmp_path / "delta", tmp_path / "out"
    deltaweir("delta", "encode", base, target, delta)
    assert delta.stat().st_size < target.stat().st_size * 0.1
    assert delta.read_bytes()[4] == 2, "the version that has views"
    told = json.loads(deltaweir("--json", "delta", "info", delta).stdout)
    assert told["segments"]["view"] >= 1
    assert told["totals"]["view_bytes_stored"] < told["totals"]["view_bytes"]
    deltaweir("delta", "decode", base, delta, out)
    assert out.read_bytes() == target.read_bytes()
    assert decode_file(base.read_bytes(), delta.read_bytes()) == target.read_bytes()


@pytest.mark.parametrize("container", ["png", "pg_dump"])
def test_streams_in_pieces_make_a_small_delta_of_version_3(tmp_path: Path, container: str) -> None:
    base, target, delta, out = (tmp_path / name for name in ("base", "target", "delta", "out"))
    for version, path in enumerate((base, target)):
        content = picture(SEED, 400, version) if container == "png" else dump(SEED, 7, 300_000, version)
        path.write_bytes(content)
    deltaweir("delta", "encode", base, target, delta)
    whole = delta.read_bytes()
    assert len(whole) < target.stat().st_size * 0.15
    assert whole[4] == 3, "the version that has gaps"
    deltaweir("delta", "decode", base, delta, out)
    assert out.read_bytes() == target.read_bytes()
    assert decode_file(base.read_bytes(), whole) == target.read_bytes()
    delta.write_bytes(whole[:4] + b"\x02" + whole[5:])
    assert "unknown coding" in deltaweir("delta", "decode", base, delta, tmp_path / "none", check=False).stderr
    found = json.loads(deltaweir("--json", "inspect", target, "--base", base).stdout)
    assert set(found["containers"]) == {container}
    assert max(stream.get("gaps", 0) for stream in found["streams"]) > 3
    assert f"{container}: {len(found['streams'])} streams" in deltaweir("inspect", target).stdout


def test_a_release_is_a_small_delta_over_its_unpacked_tree_too(tmp_path: Path) -> None:
    base, target, delta, out = (tmp_path / name for name in ("tree.tar", "target.whl", "delta", "out"))
    base.write_bytes(plain_tar(SEED, 12, 60_000, 0))
    target.write_bytes(wheel(SEED, 12, 60_000, 0))
    deltaweir("delta", "encode", base, target, delta)
    assert delta.stat().st_size < target.stat().st_size * 0.1
    deltaweir("delta", "decode", base, delta, out)
    assert out.read_bytes() == target.read_bytes()


def test_where_views_do_not_pay_the_file_is_one_that_older_releases_read(tmp_path: Path) -> None:
    base, target, delta = (tmp_path / name for name in ("base", "target", "delta"))
    pairs = {
        "no streams": (noise(1, MIB), noise(1, MIB) + b"more"),
        "the same streams": (wheel(SEED, 12, 60_000, 0), wheel(SEED, 12, 60_000, 0)[:-1]),
        "nothing in common": (noise(2, MIB), gzip.compress(noise(3, MIB), mtime=0)),
    }
    for name, contents in pairs.items():
        for path, content in zip((base, target), contents, strict=True):
            path.write_bytes(content)
        deltaweir("delta", "encode", base, target, delta)
        assert delta.read_bytes()[4] == 1, name
        assert decode_file(contents[0], delta.read_bytes()) == contents[1], name


def test_streams_that_cross_segments_come_back(tmp_path: Path) -> None:
    base, target, delta, out = (tmp_path / name for name in ("base", "target", "delta", "out"))
    for version, path in enumerate((base, target)):
        path.write_bytes(tar_gz(SEED, 10, 60_000, version, level=1, data_len=16 * MIB))
    assert target.stat().st_size > 8 * MIB, "three segments"
    deltaweir("delta", "encode", base, target, delta)
    assert delta.stat().st_size < target.stat().st_size * 0.1
    deltaweir("delta", "decode", base, delta, out)
    assert out.read_bytes() == target.read_bytes()


@pytest.mark.parametrize("kind", THERE)
def test_damaged_archives_come_back_and_take_no_more_than_they_are(folder: Path, tmp_path: Path, kind: str) -> None:
    base, target = releases(kind, folder)
    broken, delta, out = tmp_path / "broken", tmp_path / "delta", tmp_path / "out"
    for seed in range(6):
        content = damaged(target.read_bytes(), seed) if seed else target.read_bytes()[: target.stat().st_size // 2]
        broken.write_bytes(content)
        for pair in ((base, broken), (broken, target)):
            deltaweir("delta", "encode", *pair, delta)
            deltaweir("delta", "decode", pair[0], delta, out)
            assert out.read_bytes() == pair[1].read_bytes(), seed
            assert delta.stat().st_size < pair[1].stat().st_size + 200, seed
        assert json.loads(deltaweir("--json", "inspect", broken, "--base", base).stdout)["bytes"] == len(content)


def test_a_damaged_view_is_refused_by_both_decoders(folder: Path, tmp_path: Path) -> None:
    base, target = releases("wheel", folder)
    delta, broken = tmp_path / "delta", tmp_path / "broken"
    deltaweir("delta", "encode", base, target, delta)
    whole = delta.read_bytes()
    for number in range(24):
        at = 56 + number * (len(whole) - 57) // 24
        content = whole[:at] + bytes([whole[at] ^ (1 << number % 8)]) + whole[at + 1 :]
        broken.write_bytes(content)
        refused = deltaweir("delta", "decode", base, broken, tmp_path / "out", check=False)
        assert (refused.returncode, "not a usable delta" in refused.stderr) == (1, True), at
        with pytest.raises(MalformedDeltaError):
            decode_file(base.read_bytes(), content)
    as_first = whole[:4] + b"\x01" + whole[5:]
    broken.write_bytes(as_first)
    assert "unknown coding" in deltaweir("delta", "decode", base, broken, tmp_path / "out", check=False).stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", THERE)
def test_inspect_shows_every_stream_that_the_tool_wrote(folder: Path, kind: str) -> None:
    base, target = releases(kind, folder)
    found = json.loads(deltaweir("--json", "inspect", target, "--base", base).stdout)
    content = target.read_bytes()
    assert found["bytes"] == len(content)
    for stream in found["streams"]:
        start = stream["offset"]
        plain = zlib.decompressobj(-15).decompress(content[start : start + stream["compressed_bytes"]])
        assert len(plain) == stream["plain_bytes"]
        assert 0 <= stream["predicted_percent"] <= 100
    if zipfile.is_zipfile(target):
        with zipfile.ZipFile(target) as archive:
            sizes = sorted(
                one.compress_size for one in archive.infolist() if one.compress_type and one.compress_size > 48
            )
        assert sorted(one["compressed_bytes"] for one in found["streams"]) == sizes
        assert found["containers"]["zip"]["streams"] == len(sizes)
    else:
        assert found["containers"]["gzip"]["streams"] == len(found["streams"]) > 0
    nested = {name: sums["streams"] for one in found["streams"] for name, sums in one.get("nested", {}).items()}
    assert set(nested) == ({NESTED[kind]} if kind in NESTED else set())
    longest = max(found["streams"], key=lambda stream: int(stream["plain_bytes"]))
    if kind not in NESTED:  # of compressed bytes, every encoder makes the same literals
        assert longest["encoder"].startswith("zlib ")
        assert longest["replayed_percent"] > 99
    assert longest["predicted_percent"] > 50
    taken = sum(stream["compressed_bytes"] for stream in found["streams"])
    assert found["outside_bytes"] == len(content) - taken
    assert (
        f"zip: {len(found['streams'])} streams" in (shown := deltaweir("inspect", target).stdout) or "gzip: " in shown
    )


@pytest.mark.parametrize("level", [1, 4, 6, 9])
def test_inspect_recognises_the_level_that_zlib_was_told(tmp_path: Path, level: int) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(plain_tar(SEED, 12, 60_000, 0), level, mtime=0))
    (stream,) = json.loads(deltaweir("--json", "inspect", path).stdout)["streams"]
    assert (stream["encoder"], stream["replayed_percent"]) == (f"zlib {level}", 100.0)
    assert "predicted_percent" not in stream


def test_a_file_named_like_a_blob_is_shown_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / hashlib.md5(b"a name").hexdigest()
    path.write_bytes(wheel(SEED, 3, 5000, 0))
    assert "zip: 3 streams" in deltaweir("inspect", path).stdout
    missing = deltaweir("inspect", tmp_path / "none", check=False)
    assert (missing.returncode, missing.stderr.startswith("deltaweir: the file")) == (1, True)


PEAK = (
    "import os,sys\n"
    "pid=os.fork()\n"
    "if pid==0: os.execv(sys.argv[1],sys.argv[1:])\n"
    "_,status,use=os.wait4(pid,0)\n"
    "print(use.ru_maxrss*1024, file=sys.stderr)\n"
    "sys.exit(os.waitstatus_to_exitcode(status))\n"
)


def bomb(plain_len: int) -> bytes:
    """A gzip member whose text is a thousand times as long as it."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed:
        for _ in range(plain_len // MIB):
            packed.write(bytes(MIB))
    return out.getvalue()


def test_bombs_take_bounded_memory(tmp_path: Path) -> None:
    """Streams of two gigabytes of zeros, and a thousand that overlap."""
    base, target, delta, out = (tmp_path / name for name in ("base", "target", "delta", "out"))
    one = bomb(2048 * MIB)
    header = b"PK\x03\x04\x14\0\0\0\x08\0" + bytes(16) + b"\0\0\0\0"
    overlapping = header * 1000 + one[10:100_000]
    base.write_bytes(one + overlapping)
    target.write_bytes(overlapping + one[:-9] + b"other")
    for arguments in (
        ("delta", "encode", base, target, delta),
        ("delta", "decode", base, delta, out),
        ("inspect", target, "--base", base),
    ):
        command = ["python3", "-I", "-S", "-c", PEAK, str(BINARY), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert 0 < int(done.stderr.splitlines()[-1]) < 1024 * MIB
    assert out.read_bytes() == target.read_bytes()
