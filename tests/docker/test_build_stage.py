"""What the Dockerfile's build stage begins with is a workspace that cargo takes. `smoke.py` compiles it for real."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from outside.server import ROOT

DOCKERFILE = ROOT / "docker" / "Dockerfile"


def copied_before_the_first_run() -> list[tuple[str, str]]:
    """(source, target) of every COPY of the build stage that stands before its first RUN."""
    stage = DOCKERFILE.read_text().partition("AS build\n")[2].partition("\nRUN ")[0]
    return [(source, found[2]) for found in re.finditer(r"^COPY (.+) (\S+)$", stage, re.MULTILINE)
            for source in found[1].split()]  # fmt: skip


def test_the_empty_crates_are_a_workspace_that_cargo_takes(tmp_path: Path) -> None:
    copies = copied_before_the_first_run()
    manifests = {source for source, _ in copies if source.endswith("/Cargo.toml")}
    assert manifests == {str(path.relative_to(ROOT)) for path in ROOT.glob("*/Cargo.toml")}
    for source, target in copies:
        (tmp_path / target).mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, tmp_path / target)
    subprocess.run(["docker/empty-crates.sh"], cwd=tmp_path, check=True)
    # Reads every manifest and the lock file, as a build does before it compiles anything.
    command = ["cargo", "tree", "--quiet", "--locked", "--offline", "--package", "proxy"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("proxy v")


def test_what_sources_include_from_outside_their_crate_is_copied() -> None:
    included = {
        (path.parent / found[1]).resolve().relative_to(ROOT)
        for crate in ROOT.glob("*/Cargo.toml")
        for path in (crate.parent / "src").rglob("*.rs")
        for found in re.finditer(
            r'include_(?:str|bytes)!\("(\.\./[^"]+)"\)', path.read_text().partition("#[cfg(test)]")[0]
        )
    }
    outside = {str(path) for path in included if not (ROOT / path.parts[0] / "Cargo.toml").exists()}
    assert outside, "nothing was found: the pattern is out of date"
    assert {path for path in outside if f"COPY {path} {Path(path).parent}/\n" not in DOCKERFILE.read_text()} == set()


def test_what_the_build_stage_copies_is_sent_to_the_engine() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    sources = {
        source
        for found in re.finditer(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
        for source in found[1].split()
    }
    assert {source for source in sources if not sent & {source, source.partition("/")[0]}} == set()
