"""The files that release/build.sh makes around a binary: archive, Debian package, list of components, unit.

The binary is a stand-in, but where the unit is held against the server's own system calls."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from outside.server import BINARY, ROOT, until
from release.test_install import STAND_IN, VERSION

TARGET = "aarch64-unknown-linux-musl"
NAME = f"deltaweir-{VERSION}-linux-aarch64"
UNIT = ROOT / "release" / "deltaweir.service"
EXPOSURE_MAX = 15
"""Tenths of `systemd-analyze security`'s scale of 0 to 10; a unit without hardening has 96."""


def build(out: Path, target: str = TARGET, content: str = STAND_IN) -> Path:
    """release/build.sh around the stand-in, or another one."""
    out.mkdir(exist_ok=True)
    binary = out / "stand-in"
    binary.write_text(content)
    binary.chmod(0o755)
    settings = os.environ | {"RELEASE_OUT": str(out), "RELEASE_BINARY": str(binary)}
    subprocess.run([ROOT / "release/build.sh", target], env=settings, check=True, capture_output=True, text=True)
    binary.unlink()
    return out


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what was made."""
    return build(tmp_path_factory.mktemp("release") / "out")


@pytest.fixture(scope="module")
def bom(built: Path) -> Any:
    """The list of components."""
    return json.loads((built / f"{NAME}.cdx.json").read_text())


def test_a_build_makes_an_archive_a_package_and_a_list_of_components(built: Path) -> None:
    names = {path.name for path in built.iterdir()}
    assert names == {f"{NAME}.tar.gz", f"{NAME}.cdx.json", f"deltaweir_{VERSION}_arm64.deb"}
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        inside = {member.name.removeprefix(f"{NAME}/"): member for member in archive if member.isfile()}
    assert set(inside) == {
        "LICENSE",
        "README.md",
        "completions/deltaweir.bash",
        "completions/deltaweir.fish",
        "completions/deltaweir.zsh",
        "deltaweir",
        "deltaweir.cdx.json",
        "deltaweir.service",
        "deltaweir.toml",
        "man/deltaweir.1",
    }
    assert inside["deltaweir"].mode == 0o755
    assert {(member.uid, member.gid) for member in inside.values()} == {(0, 0)}


def test_the_same_commit_gives_the_same_files(built: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "again")
    for path in built.iterdir():
        first, second = (hashlib.sha256((folder / path.name).read_bytes()).hexdigest() for folder in (built, again))
        assert first == second, path.name


def test_a_binary_for_another_processor_takes_its_man_pages_from_the_one_that_runs_here(tmp_path: Path) -> None:
    foreign = "not a program of this machine"
    with pytest.raises(subprocess.CalledProcessError) as refused:
        build(tmp_path / "alone", TARGET, foreign)
    assert "build this machine's own target first" in refused.value.stderr
    out = build(tmp_path / "both", "x86_64-unknown-linux-musl")
    build(out, TARGET, foreign)
    with tarfile.open(out / f"{NAME}.tar.gz") as archive:
        page = archive.extractfile(f"{NAME}/man/deltaweir.1")
        binary = archive.extractfile(f"{NAME}/deltaweir")
        assert page and binary
        assert (page.read(), binary.read()) == (b"a page\n", foreign.encode())


def test_the_package_says_what_it_is_and_guards_its_configuration(built: Path, tmp_path: Path) -> None:
    package = built / f"deltaweir_{VERSION}_arm64.deb"

    def asked(*arguments: str) -> str:
        return subprocess.run(["dpkg-deb", *arguments], check=True, capture_output=True, text=True).stdout

    assert asked("--field", str(package), "Package", "Version", "Architecture", "Depends") == (
        f"Package: deltaweir\nVersion: {VERSION}\nArchitecture: arm64\nDepends: adduser\n"
    )
    listed = {line.split()[-1]: line.split()[:2] for line in asked("--contents", str(package)).splitlines()}
    assert listed["./usr/bin/deltaweir"] == ["-rwxr-xr-x", "root/root"]
    assert listed["./etc/deltaweir/deltaweir.toml"] == ["-rw-r-----", "root/root"]
    assert listed["./lib/systemd/system/deltaweir.service"] == ["-rw-r--r--", "root/root"]
    assert listed["./usr/share/man/man1/deltaweir.1.gz"] == ["-rw-r--r--", "root/root"]
    assert listed["./usr/share/bash-completion/completions/deltaweir"] == ["-rw-r--r--", "root/root"]
    asked("--control", str(package), str(tmp_path / "control"))
    assert (tmp_path / "control" / "conffiles").read_text() == "/etc/deltaweir/deltaweir.toml\n"
    for script in ("postinst", "prerm", "postrm"):
        subprocess.run(["sh", "-n", tmp_path / "control" / script], check=True)


def test_the_shipped_configuration_can_be_used(tmp_path: Path) -> None:
    text = (ROOT / "release" / "deltaweir.toml").read_text().replace("/var/lib/deltaweir", str(tmp_path))
    shown = "\n".join(
        line.removeprefix("# ") if re.match(r"# (\[|\w+ = )", line) else line for line in text.splitlines()
    )
    for name in ("cert.pem", "key.pem"):
        shown = shown.replace(f"/etc/deltaweir/{name}", str(tmp_path / name))
    pem = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=x",
    ]
    pem += ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(pem, check=True, capture_output=True)
    for name in ("access-key-id", "secret-access-key"):
        (tmp_path / name).write_text("AKIDSHIPPEDEXAMPLE0123456789ABCDEFGHIJKL")
        (tmp_path / name).chmod(0o600)
        shown = shown.replace(f"/etc/deltaweir/{name}", str(tmp_path / name))
    for name, content in {"as it stands": text, "with its comments": shown}.items():
        path = tmp_path / "deltaweir.toml"
        path.write_text(content)
        command = [str(BINARY), "config", "check", "--config", str(path)]
        done = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr}"
    assert "[[users]]" in shown.splitlines()


def test_the_unit_is_hardened_and_well_formed(tmp_path: Path) -> None:
    analyze = ["systemd-analyze", "security", "--offline=true", "--no-pager"]
    done = subprocess.run(
        [*analyze, f"--threshold={EXPOSURE_MAX}", str(UNIT)], capture_output=True, text=True, check=False
    )
    print(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    bare = tmp_path / "bare.service"
    bare.write_text("[Service]\nExecStart=/bin/true\n")
    refused = subprocess.run([*analyze, f"--threshold={EXPOSURE_MAX}", str(bare)], capture_output=True, check=False)
    assert refused.returncode != 0, "the measure refuses nothing"
    unit = tmp_path / "deltaweir.service"
    unit.write_text(UNIT.read_text().replace("/usr/bin/deltaweir", "/bin/true"))
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    # Units that this one comes after may be missing on this machine; only its own lines count.
    assert [line for line in checked.stderr.splitlines() if "deltaweir.service" in line] == []


def groups(*names: str) -> set[str]:
    """System calls of systemd's groups, with the groups that these hold."""
    calls: set[str] = set()
    for name in names:
        told = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True, capture_output=True, text=True)
        for line in told.stdout.splitlines()[1:]:
            entry = line.strip()
            if entry.startswith("@"):
                calls |= groups(entry)
            elif entry and not entry.startswith("#"):
                calls.add(entry)
    return calls


def answers(address: str) -> bool:
    """Whether somebody listens there."""
    try:
        urllib.request.urlopen(address, timeout=30).close()
    except OSError:
        return False
    return True


def test_the_unit_allows_every_system_call_that_the_server_makes(tmp_path: Path) -> None:
    filters = re.findall(r"^SystemCallFilter=(~?)(.+)$", UNIT.read_text(), re.MULTILINE)
    assert filters == [("", "@system-service"), ("~", "@privileged")]
    allowed = groups("@system-service", "@default") - groups("@privileged")
    calls, log = tmp_path / "calls", tmp_path / "log"
    command = ["strace", "-f", "-qq", "-c", "-o", str(calls), str(BINARY), "demo"]
    settings = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    with log.open("wb") as to:
        demo = subprocess.Popen(command, env=settings, stdout=to, stderr=to, start_new_session=True)
    try:
        found = until(lambda: re.search(r"^Console: (http://\S+)$", log.read_text(), re.MULTILINE), 120, "it serves")
        until(lambda: answers(found[1]), 60, "the console answers")
        os.killpg(demo.pid, signal.SIGINT)
        demo.wait(60)
    finally:
        if demo.poll() is None:
            os.killpg(demo.pid, signal.SIGKILL)
            demo.wait(30)
    made = {line.split()[-1] for line in calls.read_text().splitlines()[2:-2]}
    assert {"accept4", "futex", "prlimit64"} <= made, made
    # `execve` of the program itself comes before a unit's filter binds what follows.
    # SQLite gives its files to the owner of the folder when root runs it, and only then.
    expected = {"total", "fchown"} if os.geteuid() == 0 else {"total"}
    assert made - allowed - expected == set()


def test_the_list_of_components_has_what_cargo_links_and_what_it_pins(bom: Any) -> None:
    command = ["cargo", "tree", "--locked", "-p", "proxy", "-e", "normal,no-proc-macro", "--target", TARGET]
    tree = subprocess.run(
        [*command, "--prefix=none", "--format={p}"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    linked = {" ".join(line.split()[:2]).replace(" v", "@") for line in tree.splitlines() if line}
    listed = {f"{one['name']}@{one['version']}": one for one in bom["components"]}
    required = {name for name, one in listed.items() if one["scope"] == "required"}
    assert {"zstd-sys", "aws-lc-sys", "libsqlite3-sys"} <= {name.split("@")[0] for name in required}
    assert linked - {f"proxy@{VERSION}"} - required == set()
    ours = {one["name"] for one in bom["components"] if "hashes" not in one}
    assert ours <= {path.parent.name for path in ROOT.glob("*/Cargo.toml")}, "a crate without a checksum"
    assert [name for name, one in listed.items() if not one.get("licenses")] == []
    references = {one["bom-ref"] for one in bom["components"]} | {"deltaweir"}
    assert {one["ref"] for one in bom["dependencies"]} == references
    assert {name for one in bom["dependencies"] for name in one["dependsOn"]} <= references


@pytest.mark.long
def test_the_list_of_components_keeps_to_cyclonedx(built: Path) -> None:
    tools = Path(os.environ.get("RELEASE_TOOLS", ROOT / ".tools" / "release"))
    subprocess.run([ROOT / "release/tools.sh", "python"], check=True)
    check = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read())
sys.exit(str(error) if error else 0)
"""

    def verdict(text: str) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [tools / "python/bin/python", "-c", check]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    text = (built / f"{NAME}.cdx.json").read_text()
    assert verdict(text).returncode == 0, verdict(text).stderr
    assert verdict(text.replace('"required"', '"perhaps"', 1)).returncode == 1, "the check refuses nothing"


def test_actionlint_has_nothing_to_say_about_the_workflows(tmp_path: Path) -> None:
    tools = Path(os.environ.get("RELEASE_TOOLS", ROOT / ".tools" / "release"))
    subprocess.run([ROOT / "release/tools.sh", "actionlint"], check=True)

    def verdict(*paths: Path) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [tools / "bin/actionlint", "-shellcheck=", "-no-color", *paths]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert len(workflows) == 2
    assert verdict(*workflows).stdout == ""
    wrong = tmp_path / "wrong.yml"
    shutil.copy(workflows[0], wrong)
    wrong.write_text(wrong.read_text().replace("runs-on:", "run-on:"))
    assert verdict(wrong).returncode == 1, "the check refuses nothing"


def test_the_workflows_call_the_repositorys_own_commands() -> None:
    runs = "\n".join(
        line
        for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
        for line in path.read_text().splitlines()
        if not line.lstrip().startswith("#")
    )
    makefile = (ROOT / "Makefile").read_text()
    called = set(re.findall(r"\bmake ([a-z-]+)", runs))
    assert {"test", "release", "release-test"} <= called
    for target in called:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    # An action is pinned by its commit: a tag can be moved under everybody's feet.
    assert all(re.search(r"@[0-9a-f]{40}\b", line) for line in runs.splitlines() if "uses:" in line)
