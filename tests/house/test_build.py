"""The build script: which commit a binary says it is made of."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from house.test_rules import ROOT

SCRIPT = ROOT / "proxy" / "build.rs"


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build script, compiled."""
    made = tmp_path_factory.mktemp("build") / "build-script"
    subprocess.run(["rustc", "--edition=2024", "-o", made, SCRIPT], check=True, timeout=120)
    return made


def git(folder: Path, *arguments: str) -> str:
    """A command of git in a folder, without the caller's settings."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    command = ["git", *who, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


def sources(folder: Path) -> Path:
    """A folder as a tarball leaves it."""
    (folder / "proxy").mkdir(parents=True)
    shutil.copy(SCRIPT, folder / "proxy" / "build.rs")
    return folder


def checkout(folder: Path) -> str:
    """Makes a repository of a folder, and gives its commit."""
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    return git(folder, "rev-parse", "HEAD")


def commit_of(script: Path, root: Path, profile: str = "release", told: str | None = None) -> str:
    """What the script says."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "CARGO_MANIFEST_DIR": str(root / "proxy"),
        "PROFILE": profile,
    }
    environment |= {} if told is None else {"DELTAWEIR_COMMIT": told}
    said = subprocess.run([script], env=environment, check=True, capture_output=True, text=True).stdout
    (line,) = [line for line in said.splitlines() if "rustc-env" in line]
    return line.removeprefix("cargo::rustc-env=DELTAWEIR_COMMIT=")


def test_a_release_of_a_checkout_names_its_commit_and_the_build_may_name_another(script: Path, tmp_path: Path) -> None:
    root = sources(tmp_path / "sources")
    commit = checkout(root)
    assert commit_of(script, root) == commit
    assert commit_of(script, root, told="v1") == "v1"
    assert commit_of(script, root, told="") == commit
    assert commit_of(script, root, profile="debug") == "unknown"


def test_a_tarball_has_no_commit_not_even_inside_another_repository(script: Path, tmp_path: Path) -> None:
    root = sources(tmp_path / "other" / "sources")
    assert commit_of(script, root) == "unknown"
    checkout(tmp_path / "other")
    assert commit_of(script, root) == "unknown"
    assert commit_of(script, root, told="v1") == "v1"


def test_a_worktree_names_its_own_commit(script: Path, tmp_path: Path) -> None:
    root = sources(tmp_path / "sources")
    checkout(root)
    git(root, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    (tmp_path / "side" / "more").write_text("x")
    git(tmp_path / "side", "add", ".")
    git(tmp_path / "side", "commit", "--quiet", "--message", "second")
    assert commit_of(script, tmp_path / "side") == git(tmp_path / "side", "rev-parse", "HEAD")
