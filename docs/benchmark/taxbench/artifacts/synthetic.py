"""Seeded synthetic families: every kind of change a delta store meets, in sizes that fit a coffee break.

The same seed and scale give the same bytes everywhere. Each generator's docstring says what it stands for and what
it is unfair about. Sizes at scale 1.0 add up to about 90 MB.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from taxbench.artifacts.manifest import Artifact, Expectation, Manifest, describe, write_whole

MIB = 1 << 20
DEFAULT_SEED = 20_231_107
SMALL_OBJECT_MIN_BYTES = 1 << 10
SMALL_OBJECT_MAX_BYTES = 64 << 10

Rng = np.random.Generator
OnFile = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of data: how many versions, about how large each is at scale 1.0, and what to expect of it."""

    name: str
    suffix: str
    versions: int
    version_bytes: int
    expectation: Expectation
    generate: Callable[[Rng, int, int], Iterator[bytes]]


def _words(rng: Rng, size: int) -> bytes:
    """Text with a skewed vocabulary, about `size` bytes: compresses roughly 3:1, like source code and logs."""
    vocabulary = [bytes(rng.integers(97, 123, rng.integers(2, 11), dtype=np.uint8)) for _ in range(2000)]
    count = size // 6 + 16
    picks = np.minimum(rng.zipf(1.4, count) - 1, len(vocabulary) - 1)
    lines = [b" ".join(vocabulary[i] for i in picks[at : at + 12]) for at in range(0, count, 12)]
    return b"\n".join(lines)[:size]


def source_tree(rng: Rng, size: int) -> dict[str, bytes]:
    """Files of source code by their paths, about `size` bytes together."""
    files: dict[str, bytes] = {}
    left = size
    while left > 0:
        length = min(left, int(rng.integers(2_000, 60_000)))
        files[f"pkg/mod_{len(files) % 17:02d}/file_{len(files):04d}.src"] = _words(rng, length)
        left -= length
    return files


def _release(rng: Rng, files: dict[str, bytes]) -> dict[str, bytes]:
    """The next release: one file in twenty edited in a few lines, one added, one dropped."""
    names = sorted(files)
    changed = dict(files)
    for name in rng.choice(names, max(1, len(names) // 20), replace=False):
        content = bytearray(changed[str(name)])
        for _ in range(3):
            at = int(rng.integers(0, len(content)))
            content[at:at] = _words(rng, int(rng.integers(20, 200)))
        changed[str(name)] = bytes(content)
    changed[f"pkg/added_{int(rng.integers(0, 1 << 30)):08x}.src"] = _words(rng, 4_000)
    del changed[str(names[int(rng.integers(0, len(names)))])]
    return changed


def _tar(files: dict[str, bytes], mtime: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(files):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(files[name]), mtime
            archive.addfile(info, io.BytesIO(files[name]))
    return out.getvalue()


def _zip(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), files[name], zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _releases(rng: Rng, size: int, versions: int) -> Iterator[tuple[int, dict[str, bytes]]]:
    files = source_tree(rng, size)
    for number in range(versions):
        yield 1_700_000_000 + number * 86_400, files
        files = _release(rng, files)


def versioned_tar(rng: Rng, size: int, versions: int) -> Iterator[bytes]:
    """Releases of a source tree as plain tar: the kind case. Unfair: real trees change in fewer, larger places."""
    for mtime, files in _releases(rng, size, versions):
        yield _tar(files, mtime)


def versioned_zip(rng: Rng, size: int, versions: int) -> Iterator[bytes]:
    """The same as zip: members compressed one by one, so untouched members stay byte-equal."""
    for _, files in _releases(rng, size * 3, versions):
        yield _zip(files)


def tar_gz(rng: Rng, size: int, versions: int) -> Iterator[bytes]:
    """The same as tar.gz: one edit changes every byte behind it. Nobody's delta helps; it must only do no harm."""
    for mtime, files in _releases(rng, size * 3, versions):
        yield gzip.compress(_tar(files, mtime), compresslevel=6, mtime=0)


def sql_dump(rng: Rng, size: int, versions: int) -> Iterator[bytes]:
    """Nightly dumps of one table: 1 % of rows updated in place, 2 % appended."""
    note = _words(rng, 400_000).replace(b"\n", b" ")

    def row(number: int) -> bytes:
        at = int(rng.integers(0, len(note) - 80))
        cents = int(rng.integers(1, 10_000_000))
        return b"INSERT INTO orders VALUES (%d,%d,'%s');\n" % (number, cents, note[at : at + int(rng.integers(20, 80))])

    rows = [row(n) for n in range(size // 88)]
    for _ in range(versions):
        yield b"BEGIN;\n" + b"".join(rows) + b"COMMIT;\n"
        for number in rng.integers(0, len(rows), max(1, len(rows) // 100)):
            rows[int(number)] = row(int(number))
        rows += [row(len(rows) + n) for n in range(max(1, len(rows) // 50))]


def disk_image(rng: Rng, size: int, versions: int) -> Iterator[bytes]:
    """A VM disk: a third text, a third random, a third zeros; a snapshot rewrites scattered 4 KiB blocks (0.5 %)."""
    third = size // 3 // 4096 * 4096
    image = bytearray(_words(rng, third).ljust(third, b"\0") + rng.bytes(third) + bytes(third))
    for _ in range(versions):
        yield bytes(image)
        for block in rng.integers(0, len(image) // 4096, max(1, len(image) // 4096 // 200)):
            image[int(block) * 4096 : int(block) * 4096 + 4096] = rng.bytes(4096)


def shifted_binary(rng: Rng, size: int, versions: int) -> Iterator[bytes]:
    """A program whose code moves: instructions from a small set with absolute addresses in them, so an insertion shifts
    the bytes and adds a constant to every address behind it. Unfair: real linkers move functions in larger pieces."""
    count = size // 8
    opcodes = rng.integers(0, 256, (512, 4), dtype=np.uint8)
    choice = np.minimum(rng.zipf(1.3, count) - 1, 511)
    targets = rng.integers(0, size, count).astype("<u4")
    for _ in range(versions):
        code = np.empty((len(choice), 8), dtype=np.uint8)
        code[:, :4] = opcodes[choice]
        code[:, 4:] = targets.view(np.uint8).reshape(-1, 4)
        yield code.tobytes()
        for _ in range(4):
            at, grown = int(rng.integers(0, len(choice))), int(rng.integers(8, 64))
            targets = (targets + np.where(targets > at * 8, grown * 8, 0)).astype("<u4")
            choice = np.insert(choice, at, rng.integers(0, 512, grown))
            targets = np.insert(targets, at, rng.integers(0, size, grown).astype("<u4")).astype("<u4")


def drifting_checkpoint(rng: Rng, size: int, versions: int) -> Iterator[bytes]:
    """Model checkpoints: most layers frozen, the rest of the float32 weights drift in their low mantissa bits."""
    layers = 12
    weights = rng.normal(0, 0.05, (layers, size // 4 // layers)).astype("<f4")
    for _ in range(versions):
        yield weights.tobytes()
        for layer in range(layers - 4, layers):
            drift = rng.normal(1.0, 1e-4, weights.shape[1])
            weights[layer] *= np.asarray(drift, dtype="<f4")


def json_logs(rng: Rng, size: int, versions: int) -> Iterator[bytes]:
    """Log files with unique ids: nothing in common between versions but their shape. Only compression helps."""
    for version in range(versions):
        lines: list[bytes] = []
        length = 0
        while length < size:
            record = {
                "ts": 1_700_000_000_000 + version * 10**9 + len(lines) * 37,
                "id": rng.bytes(12).hex(),
                "level": ("info", "info", "info", "warn", "error")[int(rng.integers(0, 5))],
                "latency_us": int(rng.integers(100, 90_000)),
                "path": f"/v1/items/{int(rng.integers(0, 99_999))}",
            }
            lines.append(json.dumps(record).encode() + b"\n")
            length += len(lines[-1])
        yield b"".join(lines)


def random_bytes(rng: Rng, size: int, versions: int) -> Iterator[bytes]:
    """The negative control: nothing may shrink it and nothing may be spent on it."""
    for _ in range(versions):
        yield rng.bytes(size)


def exact_duplicates(rng: Rng, size: int, versions: int) -> Iterator[bytes]:
    """The same bytes under other names. Random content, so that only deduplication can help."""
    content = rng.bytes(size)
    for _ in range(versions):
        yield content


def small_objects(rng: Rng, size: int, versions: int) -> Iterator[bytes]:
    """Objects of 1 to 64 KiB, log-uniform: requests, not bytes, are what they cost. `size` is not used."""
    del size
    text = _words(rng, 4 * SMALL_OBJECT_MAX_BYTES)
    for _ in range(versions):
        length = int(np.exp(rng.uniform(np.log(SMALL_OBJECT_MIN_BYTES), np.log(SMALL_OBJECT_MAX_BYTES))))
        at = int(rng.integers(0, len(text) - length))
        yield rng.bytes(16) + text[at : at + length - 16]


FAMILIES: tuple[Family, ...] = (
    Family("tar", ".tar", 5, 4 * MIB, "similar", versioned_tar),
    Family("zip", ".zip", 3, 2 * MIB, "open", versioned_zip),
    Family("targz", ".tar.gz", 2, 2 * MIB, "incompressible", tar_gz),
    Family("sql", ".sql", 4, 4 * MIB, "similar", sql_dump),
    Family("disk", ".img", 3, 6 * MIB, "similar", disk_image),
    Family("shifted", ".bin", 3, 3 * MIB, "similar", shifted_binary),
    Family("checkpoint", ".ckpt", 2, 4 * MIB, "open", drifting_checkpoint),
    Family("logs", ".json", 2, 2 * MIB, "compressible", json_logs),
    Family("random", ".rnd", 2, 4 * MIB, "incompressible", random_bytes),
    Family("duplicate", ".dup", 2, 3 * MIB, "duplicate", exact_duplicates),
    Family("small", ".obj", 64, SMALL_OBJECT_MAX_BYTES, "small", small_objects),
)


def family_named(name: str) -> Family:
    """# Errors
    `KeyError` with the known names when there is no such family.
    """
    for family in FAMILIES:
        if family.name == name:
            return family
    raise KeyError(f"no synthetic family {name!r}; there are {', '.join(f.name for f in FAMILIES)}")


def build(
    directory: Path,
    seed: int = DEFAULT_SEED,
    scale: float = 1.0,
    names: list[str] | None = None,
    versions_max: int = 0,
    on_file: OnFile | None = None,
) -> Manifest:
    """Generates the families into `directory` and describes them.

    `scale` multiplies sizes (small objects keep theirs and change in number). `versions_max` 0 keeps every version.
    """
    artifacts: list[Artifact] = []
    for family in FAMILIES if names is None else [family_named(name) for name in names]:
        rng = np.random.default_rng([seed, *family.name.encode()])
        versions = max(2, round(family.versions * scale)) if family.expectation == "small" else family.versions
        if versions_max and family.expectation != "small":
            versions = min(versions, versions_max)
        size = max(64 << 10, int(family.version_bytes * scale))
        for order, content in enumerate(family.generate(rng, size, versions)):
            path = directory / family.name / f"{family.name}-1.{order}.0{family.suffix}"
            write_whole(path, [content])
            artifacts.append(describe(directory, path, family.name, f"1.{order}.0", order, family.expectation))
            if on_file is not None:
                on_file(path.name, len(content))
    parameters = {
        "seed": str(seed),
        "scale": str(scale),
        "families": ",".join(names or []),
        "versions_max": str(versions_max),
    }
    return Manifest(source="synthetic", parameters=parameters, artifacts=artifacts)
