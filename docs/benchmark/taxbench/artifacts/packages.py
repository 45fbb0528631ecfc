"""Real packages through their ordinary clients: `pip download`, `npm pack`, `apt-get download`.

The clients bring their own configuration, so no registry is named here. A package is stored as it is shipped, or, by
default, as the plain tar of its content: shipped archives are compressed, and what a registry or a backup keeps is not
always.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from taxbench.artifacts.index import SourceError
from taxbench.artifacts.manifest import Artifact, Manifest, describe, natural_order, write_whole

CLIENT_TIMEOUT_S = 600.0
VERSION = re.compile(r"[A-Za-z0-9.+~:_-]+")

OnPackage = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Ecosystem:
    """One package client: how it lists versions, fetches one, and how the fetched file opens into a tar."""

    name: str
    client: str
    list_versions: Callable[[str], list[str]]
    download: Callable[[str, str, Path], Path]
    unpack: Callable[[Path], bytes]


def _run(arguments: list[str], cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        raise SourceError(f"the client {arguments[0]!r} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"{' '.join(arguments)} took more than {CLIENT_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        raise SourceError(f"{' '.join(arguments)} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def _only_file(directory: Path, what: str) -> Path:
    files = sorted(path for path in directory.iterdir() if path.is_file())
    if len(files) != 1:
        raise SourceError(f"{what} left {len(files)} files, one was expected")
    return files[0]


def _pip_versions(package: str) -> list[str]:
    text = _run([sys.executable, "-m", "pip", "index", "versions", package])
    match = re.search(r"^Available versions:\s*(.+)$", text, re.MULTILINE)
    return [v.strip() for v in match.group(1).split(",")] if match else []


def _pip_download(package: str, version: str, into: Path) -> Path:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(into),
        f"{package}=={version}",
    ]
    _run(pip)
    return _only_file(into, "pip download")


def _npm_versions(package: str) -> list[str]:
    found = json.loads(_run(["npm", "view", package, "versions", "--json"]))
    return [str(v) for v in found] if isinstance(found, list) else [str(found)]


def _npm_pack(package: str, version: str, into: Path) -> Path:
    _run(["npm", "pack", "--silent", f"{package}@{version}"], cwd=into)
    return _only_file(into, "npm pack")


def _apt_versions(package: str) -> list[str]:
    lines = _run(["apt-cache", "madison", package]).splitlines()
    return [
        parts[1].strip()
        for parts in (line.split("|") for line in lines)
        if len(parts) == 3 and "Sources" not in parts[2]
    ]


def _apt_download(package: str, version: str, into: Path) -> Path:
    _run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", f"{package}={version}"], cwd=into)
    return _only_file(into, "apt-get download")


def plain_tar(members: dict[str, bytes]) -> bytes:
    """A tar of the members in name order with fixed times: equal content gives equal bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted(members):
            info = tarfile.TarInfo(name)
            info.size = len(members[name])
            archive.addfile(info, io.BytesIO(members[name]))
    return out.getvalue()


def _unpack_pypi(path: Path) -> bytes:
    if path.suffix == ".whl" or path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return plain_tar({name: archive.read(name) for name in archive.namelist() if not name.endswith("/")})
    return gzip.decompress(path.read_bytes())


def _unpack_tgz(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def _unpack_deb(path: Path) -> bytes:
    """The data member of a .deb. `dpkg-deb` knows every compression; without it xz and gz are read here."""
    if shutil.which("dpkg-deb"):
        return subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", str(path)], capture_output=True, check=True, timeout=CLIENT_TIMEOUT_S
        ).stdout
    data = path.read_bytes()
    at = 8
    while at + 60 <= len(data):
        name, size = data[at : at + 16].decode().strip().rstrip("/"), int(data[at + 48 : at + 58])
        content = data[at + 60 : at + 60 + size]
        if name == "data.tar.xz":
            return lzma.decompress(content)
        if name == "data.tar.gz":
            return gzip.decompress(content)
        at += 60 + size + size % 2
    raise SourceError(f"{path.name}: no data member that can be read without dpkg-deb")


ECOSYSTEMS: dict[str, Ecosystem] = {
    "pypi": Ecosystem("pypi", "pip", _pip_versions, _pip_download, _unpack_pypi),
    "npm": Ecosystem("npm", "npm", _npm_versions, _npm_pack, _unpack_tgz),
    "debian": Ecosystem("debian", "apt-get", _apt_versions, _apt_download, _unpack_deb),
}


def choose_versions(available: list[str], wanted: list[str], count: int) -> list[str]:
    """The wanted versions, or the newest `count` final releases, oldest first.

    # Errors
    `SourceError` when a wanted version is not there, or there are fewer than two to choose from.
    """
    missing = [version for version in wanted if version not in available]
    if missing:
        raise SourceError(f"versions {', '.join(missing)} are not available; newest: {', '.join(available[:8])}")
    final = [v for v in available if VERSION.fullmatch(v) and not re.search(r"rc|alpha|beta|dev|canary|-|\d[ab]\d", v)]
    pool = wanted or final or available
    chosen = sorted(dict.fromkeys(pool), key=natural_order)
    chosen = chosen if wanted else chosen[-count:]
    if not chosen:
        raise SourceError("no version is available")
    return chosen


def build(
    ecosystem: Ecosystem,
    package: str,
    directory: Path,
    count: int,
    versions: list[str] | None = None,
    unpacked: bool = True,
    reuse: bool = False,
    on_package: OnPackage | None = None,
) -> Manifest:
    """Fetches versions of one package and describes them, oldest first."""
    available = ecosystem.list_versions(package)
    if ecosystem.name == "debian" and versions is None:
        chosen = sorted(dict.fromkeys(available), key=natural_order)[-count:]
        if not chosen:
            raise SourceError(f"apt knows no version of {package}")
    else:
        chosen = choose_versions(available, versions or [], count)
    family = re.sub(r"[^A-Za-z0-9.]+", "-", f"{ecosystem.name}-{package}").strip("-")
    artifacts: list[Artifact] = []
    for order, version in enumerate(chosen):
        plain_name = re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{family}-{version}.tar")
        path = directory / family / plain_name
        if not (reuse and unpacked and path.is_file()):
            with tempfile.TemporaryDirectory(prefix="taxbench-") as scratch:
                shipped = ecosystem.download(package, version, Path(scratch))
                content = ecosystem.unpack(shipped) if unpacked else shipped.read_bytes()
                path = path if unpacked else directory / family / shipped.name
                write_whole(path, [content])
        artifacts.append(describe(directory, path, family, version, order, "open"))
        if on_package is not None:
            on_package(path.name, artifacts[-1].size)
    parameters = {"package": package, "versions": ",".join(chosen), "unpacked": str(unpacked).lower()}
    return Manifest(source=ecosystem.name, parameters=parameters, artifacts=artifacts)
