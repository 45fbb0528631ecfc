"""nginx before the replicas, with the configuration we ship (docker/nginx.conf) at other addresses."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outside.server import ROOT, free_port, until

CONFIGURATION = ROOT / "docker" / "nginx.conf"


def find_nginx() -> str:
    """The nginx command. Debian keeps it where ordinary users' PATH does not look."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    assert found, "nginx must be installed (apt-get install nginx-light)"
    return found


@dataclass
class Balancer:
    """One nginx process over some ports of this machine."""

    folder: Path
    replicas: Sequence[int]
    timeout_s: float = 60
    """How long a replica may be silent."""
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> Balancer:
        """Starts it and waits until it listens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "nginx.conf"
        config.write_text(self._configuration())
        errors = self.folder / "error.log"
        self.process = subprocess.Popen(
            [find_nginx(), "-p", str(self.folder), "-c", str(config), "-e", str(errors)], stdin=subprocess.DEVNULL
        )
        until(self._listens, 20, "nginx listens")
        return self

    def stop(self) -> None:
        """Ends it; nothing happens when it has ended already."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "error.log").read_text(errors="replace")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _configuration(self) -> str:
        """The shipped file; what depends on the place is replaced, and each of it must be there to be replaced."""
        text = CONFIGURATION.read_text()
        for number, port in enumerate(self.replicas, 1):
            text = replaced(text, f"server replica-{number}:9000 ", f"server 127.0.0.1:{port} ", 1)
        text = replaced(text, "listen 9000;", f"listen 127.0.0.1:{self.port};", 1)
        text = replaced(text, " /tmp/", f" {self.folder}/", 6)
        text = replaced(text, "error_log stderr", f"error_log {self.folder}/error.log", 1)
        text = replaced(text, "_timeout 60s;", f"_timeout {self.timeout_s:g}s;", 2)
        # Workers drop root; a folder of root's own would refuse them.
        return f"user root;\n{text}" if getpass.getuser() == "root" else text


def replaced(text: str, old: str, new: str, count: int) -> str:
    """The text with every `old` replaced; there must be `count`."""
    assert text.count(old) == count, f"{CONFIGURATION} has {text.count(old)} times {old!r}"
    return text.replace(old, new)
