"""Debian's PostgreSQL with a data directory of its own, on loopback; restarted and crashed on demand."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from outside.server import free_port, until

INSTALLED = Path("/usr/lib/postgresql")
VERSION_MIN = 15


def binaries() -> Path:
    """The programs of the newest PostgreSQL that is installed."""
    versions = [int(path.name) for path in INSTALLED.glob("*") if path.name.isdigit()]
    newest = max(versions, default=0)
    assert newest >= VERSION_MIN, f"PostgreSQL {VERSION_MIN} or later must be installed (apt-get install postgresql)"
    return INSTALLED / str(newest) / "bin"


@dataclass
class Postgres:
    """One database server. It refuses to run as root, so root runs it as the user that Debian made for it."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="dw-postgres-")))
    """Not below pytest's own folder, which another user may not enter."""
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What `storage.catalog` says."""
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.folder / "log"

    def make(self) -> Postgres:
        """Makes the data directory; its order of text is not the order of bytes, to see that nothing depends on it."""
        self.log.touch()
        if os.getuid() == 0:
            for path in (self.folder, self.log):
                shutil.chown(path, "postgres")
        locale = ["--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"]
        command = [str(binaries() / "initdb"), "-D", str(self.folder / "data"), "--username=postgres", "--auth=trust"]
        done = subprocess.run(self._as_server([*command, *locale, "--no-sync"]), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return self

    def start(self) -> Postgres:
        """Starts it and waits until it takes connections. Flushing is off: nothing here takes the machine's power."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "max_connections": "200",
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [str(binaries() / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port), *flags]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._as_server(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )
        until(self._ready, 60, f"PostgreSQL takes connections ({self.log})", interval_s=0.1)
        return self

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: connections are cut and everything is written; SIGQUIT: as if it had crashed. Nothing happens when it
        has ended already."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(60)

    def remove(self) -> None:
        """Ends it and removes what it wrote."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-2000:]
        command = [str(binaries() / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def _as_server(self, command: list[str]) -> list[str]:
        if os.getuid() != 0:
            return command
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--", *command]
