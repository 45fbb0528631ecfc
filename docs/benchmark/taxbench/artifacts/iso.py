"""Successive releases of a small operating system as ISO images, made here with the real tools: mksquashfs and xorriso.

Five ISOs stood in the study that this benchmark repeats. These need no network: a kernel, an initial file system and a
few packages beside a squashfs of programs, libraries and texts. From release to release some files change in part,
a few are replaced, one comes and one goes. The same seed, scale and versions of both tools give the same bytes.

Unfair to stores like ours: a file in a squashfs is compressed with its neighbours, so that a small change rewrites a
block of up to 128 KiB. That is how such images are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from taxbench.artifacts.index import SourceError
from taxbench.artifacts.manifest import Manifest, describe
from taxbench.artifacts.synthetic import source_tree

FAMILY = "iso"
MIB = 1 << 20
PROGRAMS = 24
PROGRAM_BYTES = MIB // 2
TEXT_BYTES = 6 * MIB
KERNEL_BYTES = 5 * MIB
PACKAGES = 6
PACKAGE_BYTES = MIB // 2
BEGAN_S = 1_767_225_600
"""2026-01-01: every file and image has this time, and a day more with each release."""
DAY_S = 86_400
TIMEOUT_S = 600.0

Rng = np.random.Generator


def build(place: Path, seed: int, scale: float, count: int, on_file: Callable[[str, int], None]) -> Manifest:
    """Makes so many releases below `place`.

    # Errors
    `SourceError` when a tool is missing or fails.
    """
    tools = {name: shutil.which(name) for name in ("mksquashfs", "xorriso")}
    missing = [name for name, path in tools.items() if path is None]
    if missing:
        raise SourceError(f"--artifact-source iso needs {', '.join(missing)} (apt install squashfs-tools xorriso)")
    rng = np.random.default_rng([seed, *FAMILY.encode()])
    artifacts = []
    with tempfile.TemporaryDirectory(prefix="taxbench-iso-", dir=place) as scratch:
        system = _first(rng, scale)
        for order in range(count):
            if order:
                _next(rng, system, order)
            target = place / FAMILY / f"{FAMILY}-1.{order}.0.iso"
            target.parent.mkdir(parents=True, exist_ok=True)
            _image(Path(scratch) / str(order), system, target, BEGAN_S + order * DAY_S)
            artifacts.append(describe(place, target, FAMILY, f"1.{order}.0", order))
            on_file(target.name, target.stat().st_size)
    parameters = {"seed": str(seed), "scale": str(scale), "count": str(count)} | {
        name: _version(name) for name in sorted(tools)
    }
    return Manifest(source=FAMILY, parameters=parameters, artifacts=artifacts)


def _first(rng: Rng, scale: float) -> dict[str, bytes]:
    """The files of the first release, by their paths; what is below `root/` goes into the squashfs."""
    files = {f"root/usr/bin/program-{n:02d}": _program(rng, int(PROGRAM_BYTES * scale)) for n in range(PROGRAMS)}
    files |= {f"root/usr/share/{name}": text for name, text in source_tree(rng, int(TEXT_BYTES * scale)).items()}
    files["boot/vmlinuz"] = rng.bytes(int(KERNEL_BYTES * scale))
    files |= {f"apks/package-{n}.apk": rng.bytes(int(PACKAGE_BYTES * scale)) for n in range(PACKAGES)}
    return files


def _next(rng: Rng, files: dict[str, bytes], order: int) -> None:
    """The release after it: a rebuilt kernel, programs that change in part, a package that is replaced."""
    files["boot/vmlinuz"] = rng.bytes(len(files["boot/vmlinuz"]))
    programs = sorted(path for path in files if "/bin/" in path)
    for path in rng.choice(programs, size=max(1, len(programs) // 6), replace=False):
        content = bytearray(files[str(path)])
        for at in rng.integers(0, max(1, len(content) - 64), 12):
            content[at : at + 64] = rng.bytes(64)
        files[str(path)] = bytes(content)
    packages = sorted(path for path in files if path.startswith("apks/"))
    replaced = packages[order % len(packages)]
    files[replaced] = rng.bytes(len(files[replaced]))
    texts = sorted(path for path in files if path.startswith("root/usr/share/"))
    del files[texts[order % len(texts)]]
    files[f"root/usr/share/news-{order}.txt"] = b"".join(b"release %d, change %d\n" % (order, n) for n in range(400))
    files["root/etc/release"] = b"1.%d.0\n" % order


def _program(rng: Rng, size: int) -> bytes:
    """Bytes as machine code has them: instructions from a small set, with operands that seldom repeat."""
    opcodes = rng.integers(0, 256, 96, dtype=np.uint8)
    code = np.empty(size // 4 * 4, dtype=np.uint8).reshape(-1, 4)
    code[:, 0] = opcodes[np.minimum(rng.zipf(1.3, len(code)) - 1, len(opcodes) - 1)]
    code[:, 1] = rng.integers(0, 32, len(code), dtype=np.uint8)
    code[:, 2] = rng.integers(0, 256, len(code), dtype=np.uint8)
    code[:, 3] = 0
    return code.tobytes()


def _image(scratch: Path, files: dict[str, bytes], target: Path, made_s: int) -> None:
    for path, content in files.items():
        file = scratch / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    root, image = scratch / "root", scratch / "image"
    image.mkdir()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(made_s), "TZ": "UTC"}
    squashed = image / "root.squashfs"
    # One processor, because two give blocks in an order of their own.
    flags = ["-noappend", "-all-root", "-no-progress", "-quiet", "-no-exports", "-processors", "1"]
    _call(["mksquashfs", str(root), str(squashed), *flags], environment)
    for name in ("boot", "apks"):
        (scratch / name).rename(image / name)
    for entry in [image, *sorted(image.rglob("*"))]:
        os.utime(entry, (made_s, made_s))
    partial = target.with_name(target.name + ".part")
    partial.unlink(missing_ok=True)
    _call(["xorriso", "-as", "mkisofs", "-quiet", "-r", "-V", "TAXBENCH", "-o", str(partial), str(image)], environment)
    partial.rename(target)
    shutil.rmtree(scratch)


def _call(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise SourceError(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-400:]}")


def _version(tool: str) -> str:
    """The first line that a tool says about itself."""
    done = subprocess.run([tool, "-version"], capture_output=True, text=True, timeout=20, check=False)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "version" in line.lower()]
    return lines[0].strip() if lines else "unknown"
