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

    def query(self, sql: str) -> str:
        """What `psql` prints for a statement, without decoration."""
        command = [str(binaries() / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        done = subprocess.run([*command, "-XAtqc", sql], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def standby(self) -> Postgres:
        """A hot standby that replicates asynchronously, running."""
        standby = Postgres()
        standby.log.touch()
        if os.getuid() == 0:
            for path in (standby.folder, standby.log):
                shutil.chown(path, "postgres")
        command = [str(binaries() / "pg_basebackup"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        command += ["-D", str(standby.folder / "data"), "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
        done = subprocess.run(standby._as_server(command), capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        standby.start()
        until(lambda: self.query("SELECT count(*) FROM pg_stat_replication") == "1", 60, "the standby replicates")
        return standby

    def caught_up(self, standby: Postgres) -> bool:
        """Whether a standby has applied all that was committed here."""
        here = self.query("SELECT pg_current_wal_lsn()")
        return standby.query(f"SELECT pg_last_wal_replay_lsn() >= '{here}'") == "t"

    def lag_behind(self, primary: Postgres) -> None:
        """This standby gets nothing more from its primary."""
        self.query("ALTER SYSTEM SET primary_conninfo = ''")
        self.query("SELECT pg_reload_conf()")
        until(lambda: primary.query("SELECT count(*) FROM pg_stat_replication") == "0", 60, "replication has ended")

    def promote(self) -> None:
        """This standby is a primary from now on."""
        assert self.query("SELECT pg_promote(true, 60)") == "t"

    def keep(self, name: str) -> None:
        """Copies the data directory; the server is stopped."""
        shutil.copytree(self.folder / "data", self.folder / name, symlinks=True)
        self._own(self.folder / name)

    def put_back(self, name: str) -> None:
        """Puts the copy in the place of the data directory; the server is stopped."""
        shutil.rmtree(self.folder / "data")
        (self.folder / name).rename(self.folder / "data")

    @staticmethod
    def _own(folder: Path) -> None:
        if os.getuid() == 0:
            for path in (folder, *folder.rglob("*")):
                shutil.chown(path, "postgres", "postgres")

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-2000:]
        command = [str(binaries() / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def _as_server(self, command: list[str]) -> list[str]:
        if os.getuid() != 0:
            return command
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--", *command]
