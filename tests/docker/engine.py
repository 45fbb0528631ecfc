"""A Docker Engine: the one that runs already, or one started for the test with its data in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from outside.server import ROOT, until

FLAGS = ("--iptables=false", "--ip6tables=false", "--bridge=none", "--exec-opt", "native.cgroupdriver=cgroupfs")
"""Leaves the machine's packet filter alone; `host` and networks that Compose makes are enough here."""


@dataclass
class Engine:
    """The `docker` command pointed at one engine."""

    folder: Path
    """Everything a daemon of ours writes is below; short, since a socket's path is."""
    host: str = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    daemon: subprocess.Popen[bytes] | None = None
    tried: list[str] = field(default_factory=list)

    def variables(self) -> dict[str, str]:
        """The environment of every command. Debian's client comes first: it can ask for BuildKit without a plugin."""
        return os.environ | {
            "PATH": f"/usr/bin:{os.environ.get('PATH', '')}",
            "DOCKER_HOST": self.host,
            "DOCKER_CONFIG": str(self.folder / "client"),
            "DOCKER_BUILDKIT": "1",
            "COMPOSE_DOCKER_CLI_BUILD": "1",
        }

    def run(
        self, *command: str, check: bool = True, timeout_s: float = 300, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command that finds the engine."""
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=self.variables() | dict(variables or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert not check or done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}"
        return done

    def docker(self, *arguments: str, check: bool = True, timeout_s: float = 300) -> str:
        """`docker …` and what it prints."""
        return self.run("docker", *arguments, check=check, timeout_s=timeout_s).stdout.strip()

    def inspect(self, name: str) -> Any:
        """What the engine knows of a container or an image."""
        return json.loads(self.docker("inspect", name))[0]

    def answers(self) -> bool:
        """Whether the engine is there."""
        return self.run("docker", "version", check=False, timeout_s=20).returncode == 0

    def start(self) -> Engine:
        """Takes the engine that runs, or starts one; fails with everything that was tried and its error."""
        if self.answers():
            return self
        if shutil.which("dockerd", path=self.variables()["PATH"]) is None:
            pytest.fail("no Docker Engine runs and dockerd is not installed: tests/docker/setup.sh", pytrace=False)
        self.host = f"unix://{self.folder / 'sock'}"
        for driver in ((), ("--storage-driver=vfs",)):
            if self._launch(driver):
                return self
        pytest.fail("dockerd does not run on this machine (does it run as root?):\n" + "\n".join(self.tried), False)

    def _launch(self, driver: tuple[str, ...]) -> bool:
        log = self.folder / "dockerd.log"
        folders = ("--data-root", str(self.folder / "data"), "--exec-root", str(self.folder / "exec"))
        command = ["dockerd", *folders, "--pidfile", str(self.folder / "pid"), "--host", self.host, *FLAGS, *driver]
        with log.open("wb") as output:
            daemon = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        try:
            until(lambda: daemon.poll() is not None or self.answers(), 60, "dockerd answers or ends")
        except AssertionError as error:
            self.tried.append(str(error))
        if daemon.poll() is None and self.answers():
            self.daemon = daemon
            return True
        daemon.kill()
        daemon.wait(30)
        ending = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
        self.tried.append(f"{' '.join(command)}\n  ended with {daemon.returncode}:\n{ending}")
        return False

    def stop(self) -> None:
        """Ends a daemon of ours, and with it what it started and mounted; an engine that ran before goes on."""
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.send_signal(signal.SIGTERM)
            try:
                self.daemon.wait(60)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait(30)
        for line in Path("/proc/mounts").read_text().splitlines():
            place = line.split()[1]  # the engine leaves the network namespace of `host` behind
            if place.startswith(f"{self.folder}/"):
                subprocess.run(["umount", place], check=True)
