"""Two consecutive releases of every drawn package, fetched by its ecosystem's own client. Nothing is fetched twice."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from compressedbench.lists import CARGO, MAVEN, Draw

STABLE = re.compile(r"v?\d+(\.\d+)*$")
COMMAND_S_MAX = 300


def pair(draw: Draw, data: Path) -> tuple[Path, Path]:
    """The files of the older and the newer release; a later run measures the same two."""
    directory = data / draw.family / re.sub(r"[^\w.@-]", "_", draw.package)
    directory.mkdir(parents=True, exist_ok=True)
    noted = directory / "versions.json"
    if not noted.exists():
        noted.write_text(json.dumps(VERSIONS[draw.family](draw.package)))
    older, newer = (fetched(draw, version, directory) for version in json.loads(noted.read_text()))
    return older, newer


def fetched(draw: Draw, version: str, directory: Path) -> Path:
    """One release's file, as it was published."""
    place = directory / re.sub(r"[^\w.+-]", "_", version)
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            part = place.with_suffix(place.suffix + ".part")
            shutil.copyfile(FETCH[draw.family](draw.package, version, Path(scratch)), part)
            part.rename(place)
    return place


def run(*command: str, folder: Path | None = None) -> str:
    """What a client prints."""
    done = subprocess.run(
        command,
        cwd=folder,
        check=True,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=COMMAND_S_MAX,
    )
    return done.stdout


def newest_two(versions: list[str]) -> list[str]:
    """The last two that are no pre-releases, of a list in ascending order."""
    return [version for version in versions if STABLE.match(version)][-2:]


def pypi_versions(package: str) -> list[str]:
    listing = run(sys.executable, "-m", "pip", "index", "versions", package)
    found = re.search(r"Available versions: (.*)", listing)
    assert found, listing[:200]
    return newest_two(found[1].split(", ")[::-1])


def pypi(package: str, version: str, scratch: Path) -> Path:
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest")
    run(*pip, str(scratch), f"{package}=={version}")
    return next(scratch.glob("*.whl"))


def npm_versions(package: str) -> list[str]:
    view = json.loads(run("npm", "view", package, "versions", "dist-tags.latest", "--json"))
    versions = newest_two([version for version in view["versions"] if STABLE.match(version)])
    latest = view["dist-tags.latest"]
    stable = [version for version in view["versions"] if STABLE.match(version)]
    return stable[stable.index(latest) - 1 :][:2] if latest in stable else versions


def npm(package: str, version: str, scratch: Path) -> Path:
    run("npm", "pack", "--silent", f"{package}@{version}", folder=scratch)
    return next(scratch.glob("*.tgz"))


def maven(package: str, version: str, scratch: Path) -> Path:
    get = ("mvn", "--quiet", "--batch-mode", f"-Dmaven.repo.local={scratch}", "dependency:get", "-Dtransitive=false")
    run(*get, f"-Dartifact={package}:{version}", folder=scratch)
    group, artifact = package.split(":")
    return scratch / group.replace(".", "/") / artifact / version / f"{artifact}-{version}.jar"


def go_versions(package: str) -> list[str]:
    return newest_two(run("go", "list", "-m", "-versions", package).split()[1:])


def go(package: str, version: str, scratch: Path) -> Path:
    told = json.loads(run("go", "mod", "download", "-json", f"{package}@{version}", folder=scratch))
    return Path(told["Zip"])


def cargo(package: str, version: str, scratch: Path) -> Path:
    (scratch / "src").mkdir()
    (scratch / "src" / "lib.rs").touch()
    manifest = '[package]\nname = "scratch"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n'
    (scratch / "Cargo.toml").write_text(f'{manifest}{package} = "={version}"\n[workspace]\n')
    run("cargo", "fetch", "--quiet", folder=scratch)
    cache = Path.home() / ".cargo" / "registry" / "cache"
    return next(cache.glob(f"*/{package}-{version}.crate"))


def debian_versions(package: str) -> list[str]:
    offered = [line.split("|")[1].strip() for line in run("apt-cache", "madison", package).splitlines()]
    return list(dict.fromkeys(offered))[:2][::-1]


def debian(package: str, version: str, scratch: Path) -> Path:
    run("apt-get", "download", "-qq", f"{package}={version}", folder=scratch)
    return next(scratch.glob("*.deb"))


VERSIONS: dict[str, Callable[[str], list[str]]] = {
    "pypi": pypi_versions,
    "npm": npm_versions,
    "maven": lambda package: list(MAVEN[package]),
    "go": go_versions,
    "cargo": lambda package: list(CARGO[package]),
    "debian": debian_versions,
}
FETCH: dict[str, Callable[[str, str, Path], Path]] = {
    "pypi": pypi,
    "npm": npm,
    "maven": maven,
    "go": go,
    "cargo": cargo,
    "debian": debian,
}
