"""The single-VM run: package and binary go up by `scp`, `taxbench local` runs over `ssh`, the bundle comes back."""

from __future__ import annotations

import shlex
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from taxbench.cloud.lifecycle import CloudError

PACKAGE_ROOT = Path(__file__).resolve().parents[2]
REMOTE_DIR = "/opt/taxbench"
BOOT_TIMEOUT_S = 600.0
RUN_TIMEOUT_S = 6 * 3600.0
SHORT_TIMEOUT_S = 900.0
SHIPPED = ("taxbench", "pyproject.toml", "constraints.txt")
INSTALL = "tar xzf taxbench.tgz && python3 -m venv venv && venv/bin/pip install -q -c constraints.txt ."


@dataclass(frozen=True)
class Shell:
    """`ssh` and `scp` to one machine. Host keys are accepted once and kept beside the results."""

    address: str
    known_hosts: Path
    user: str = "root"
    ssh: str = "ssh"
    scp: str = "scp"
    options: tuple[str, ...] = field(
        default=("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new", "-o", "ConnectTimeout=10")
    )

    def run(self, command: str, timeout_s: float = SHORT_TIMEOUT_S) -> str:
        """# Errors
        `CloudError` when the command fails or takes too long.
        """
        return self._call([self.ssh, *self._flags(), f"{self.user}@{self.address}", command], timeout_s)

    def send(self, source: Path, target: str) -> None:
        self._call(
            [self.scp, "-q", *self._flags(), str(source), f"{self.user}@{self.address}:{target}"], SHORT_TIMEOUT_S
        )

    def fetch(self, source: str, target: Path) -> None:
        self._call(
            [self.scp, "-q", *self._flags(), f"{self.user}@{self.address}:{source}", str(target)], SHORT_TIMEOUT_S
        )

    def _flags(self) -> list[str]:
        return [*self.options, "-o", f"UserKnownHostsFile={self.known_hosts}"]

    def _call(self, arguments: list[str], timeout_s: float) -> str:
        try:
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise CloudError(f"{arguments[0]} took more than {timeout_s:.0f} s") from error
        except OSError as error:
            raise CloudError(f"cannot run {arguments[0]}: {error}") from error
        if done.returncode != 0:
            raise CloudError(f"{arguments[0]} to {self.address} exited {done.returncode}: {done.stderr.strip()[-800:]}")
        return done.stdout


def await_boot(shell: Shell, timeout_s: float = BOOT_TIMEOUT_S, pause_s: float = 5.0) -> None:
    """Waits until the first-boot script has left its mark.

    # Errors
    `CloudError` with the last failure after the timeout.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            shell.run(f"test -f {REMOTE_DIR}/ready", 30.0)
            return
        except CloudError as error:
            if time.monotonic() > deadline:
                raise CloudError(f"the machine did not come up in {timeout_s:.0f} s; last: {error}") from error
            time.sleep(pause_s)


def smoke(
    shell: Shell, binary: Path, run_id: str, arguments: list[str], results: Path, on_step: Callable[[str], None]
) -> Path:
    """Ships, runs, and brings the bundle home. A run with fatal findings still brings its bundle home, then fails.

    # Errors
    `CloudError` when a step fails.
    """
    results.mkdir(parents=True, exist_ok=True)
    on_step("waiting for the machine")
    await_boot(shell)
    on_step("sending the package and the binary")
    send_package(shell)
    shell.send(binary, f"{REMOTE_DIR}/deltaweir")
    on_step("installing")
    shell.run(f"cd {REMOTE_DIR} && chmod +x deltaweir && {INSTALL}")
    on_step("running (this takes a while)")
    command = ["venv/bin/python", "-m", "taxbench", "local", "--binary", "./deltaweir", "--run-id", run_id, *arguments]
    said = run_there(shell, shlex.join(command))
    on_step("fetching the bundle")
    return bring_home(shell, run_id, said, results)


def send_package(shell: Shell) -> None:
    """Packs this package and sends it.

    # Errors
    `CloudError` when it does not arrive.
    """
    with tempfile.TemporaryDirectory(prefix="taxbench-ship-") as scratch:
        archive = Path(scratch) / "taxbench.tgz"
        with tarfile.open(archive, "w:gz") as tar:
            for name in SHIPPED:
                tar.add(PACKAGE_ROOT / name, name, filter=_without_caches)
        shell.send(archive, f"{REMOTE_DIR}/taxbench.tgz")


def run_there(shell: Shell, command: str) -> str:
    """Runs a command of the package; its exit code, which is no error here.

    # Errors
    `CloudError` when the machine cannot be reached.
    """
    line = f"cd {REMOTE_DIR} && {command} --json > run.json 2> run.log; echo exit=$?"
    return shell.run(line, RUN_TIMEOUT_S).strip().rpartition("exit=")[2]


def bring_home(shell: Shell, run_id: str, said: str, results: Path) -> Path:
    """Fetches a run's bundle.

    # Errors
    `CloudError` when there is none, and when the run ended with a fatal finding: then its bundle is here.
    """
    home = results / f"{run_id}.tgz"
    try:
        shell.fetch(f"{REMOTE_DIR}/results/{run_id}/{run_id}.tgz", home)
    except CloudError as error:
        log = shell.run(f"tail -c 1500 {REMOTE_DIR}/run.log", 60.0)
        raise CloudError(f"the run left no bundle (exit {said}): {log}") from error
    if said != "0":
        raise CloudError(f"the run ended with exit {said}; its bundle is {home}")
    return home


def _without_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in member.name or member.name.endswith(".pyc") else member
