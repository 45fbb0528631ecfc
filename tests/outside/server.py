"""The server as a process: started on free loopback ports in a folder of its own, killed, drained, asked."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outside.metrics import Metrics

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = Path(os.environ.get("DELTAWEIR_TEST_BINARY", ROOT / "target" / "debug" / "deltaweir"))

ACCESS_KEY_ID = "AKIATESTSOUTSIDE0001"
SECRET_ACCESS_KEY = "outside/tests+secret0123456789ABCDEFabcd"
REGION = "us-east-1"

Value = str | int | float | bool | Sequence[str]
"""What a TOML key may hold here."""


@dataclass(frozen=True)
class Mode:
    """How a bucket stores what it is given."""

    compression: str
    encryption: str = "off"

    @property
    def name(self) -> str:
        """`delta`, `delta-aes256`: usable in a bucket's name."""
        return self.compression if self.encryption == "off" else f"{self.compression}-{self.encryption}"


MODES = tuple(
    Mode(compression, encryption) for compression in ("off", "zstd", "delta") for encryption in ("off", "aes256")
)
OFF, OFF_SEALED, ZSTD, ZSTD_SEALED, DELTA, DELTA_SEALED = MODES


PORTS = (10_240, 32_000)
"""Below those that Linux gives to clients, so that no connection of a test takes the port of a server that restarts."""


def ports_of(worker: str) -> Iterator[int]:
    """The ports of a process of tests, in turn, without end: of pytest's worker `gw1` others than of `gw0`, and from a
    place that differs from one run to the next."""
    workers = 8
    share = (PORTS[1] - PORTS[0]) // workers
    first = PORTS[0] + share * (int(worker.removeprefix("gw") or 0) % workers)
    return itertools.cycle(first + (os.getpid() * 61 + number) % share for number in range(share))


_ports = ports_of(os.environ.get("PYTEST_XDIST_WORKER", ""))


def free_port() -> int:
    """A port nobody listens on now, and that no other server of this run has been given for a long time."""
    for port in itertools.islice(_ports, 1_000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a thousand ports in a row are taken")


def toml(tables: Mapping[str, Mapping[str, Value]]) -> str:
    """TOML of flat tables. JSON's strings, numbers, booleans and lists of strings are TOML's too."""
    lines: list[str] = []
    for table, keys in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def until(condition: Any, timeout_s: float, what: str, interval_s: float = 0.02) -> Any:
    """Asks until the answer is true, and gives it; fails with `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        if answer := condition():
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(interval_s)


@dataclass
class Server:
    """One data directory and, while it runs, the process that serves it."""

    folder: Path
    """Everything it writes is below: data, configuration, output."""
    tables: dict[str, dict[str, Value]] = field(default_factory=dict)
    """TOML tables beyond the ones every server here has; keys given here win."""
    more_config: str = ""
    """TOML put behind the tables, for what is no flat table."""
    environment: dict[str, str] = field(default_factory=dict)
    credentials: bool = True
    """Whether it is told the key pair above; otherwise it makes one."""
    binary: Path = BINARY
    port: int = field(default_factory=free_port)
    admin_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The S3 endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.folder / "data"

    @property
    def admin_token(self) -> str:
        """The token of the admin listener: the one it was told, else the one it made at its first start."""
        told = self.environment.get("DELTAWEIR_ADMIN_TOKEN") or self.tables.get("server", {}).get("admin_token")
        if told:
            return str(told)
        made = self.data / "admin-token"
        return made.read_text() if made.exists() else ""

    @property
    def blobs(self) -> Path:
        """Where the local backend keeps blobs."""
        return self.data / "blobs"

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.folder / "deltaweir.toml"

    @property
    def log(self) -> Path:
        """Standard output and error of every start, one after another."""
        return self.folder / "server.log"

    def variables(self) -> dict[str, str]:
        """The process's environment: the caller's without its own settings, plus ours."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DELTAWEIR_", "AWS_"))}
        pair = {"DELTAWEIR_ACCESS_KEY_ID": ACCESS_KEY_ID, "DELTAWEIR_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}
        return inherited | (pair if self.credentials else {}) | self.environment

    def write_config(self) -> None:
        """Writes the configuration file."""
        tables: dict[str, dict[str, Value]] = {
            "server": {
                "listen": f"127.0.0.1:{self.port}",
                "admin_listen": f"127.0.0.1:{self.admin_port}",
                "region": REGION,
                "domains": ["s3.example.com"],
                "storage_headers": True,
            },
            "storage": {"data": str(self.data), "catalog": "sqlite", "backend": "local"},
            "backends.local": {"type": "local", "path": str(self.blobs)},
            "defaults": {"compression": "delta", "encryption": "off", "effort": "balanced"},
            "limits": {"memory_bytes_max": "1GiB", "spool_bytes_max": "8GiB"},
        }
        for table, keys in self.tables.items():
            tables[table] = tables.get(table, {}) | keys
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(toml(tables) + self.more_config)

    def lose_catalog(self) -> None:
        """Of a process that has ended the catalog is no more; blobs and what lies beside them are."""
        files = list(self.data.glob("catalog.sqlite*"))
        assert files, f"there is no catalog in {self.data}"
        for file in files:
            file.unlink()

    def lose_journal_and_backups(self) -> None:
        """The backend keeps blobs alone: what they say of themselves is all there is."""
        for kind in ("journal", "lineage", "backup", "backup-part"):
            shutil.rmtree(self.blobs / kind, ignore_errors=True)

    def launch(self, *flags: str) -> subprocess.Popen[bytes]:
        """Starts the process, with flags of `serve`, and does not wait for it."""
        self.write_config()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.binary), "serve", "--config", str(self.config), *flags],
                env=self.variables(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self.process

    def start(self) -> Server:
        """Starts the process and waits until it is ready. `with server` starts it, too, and nobody ends a first one."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        self.launch()
        self.wait_ready()
        return self

    def wait_ready(self, timeout_s: float = 30) -> None:
        """Waits until `/readyz` says yes."""

        def ready() -> bool:
            assert self.process is not None
            if (code := self.process.poll()) is not None:
                raise AssertionError(f"the server ended with {code}:\n{self.tail()}")
            return self.admin_status("/readyz") == 200

        until(ready, timeout_s, "the server is ready")

    def stop(self, timeout_s: float = 30) -> int:
        """SIGTERM, and its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def final_log(self) -> str:
        """Everything that it said. Ends it first: a thread writes the lines, so before its end any may be missing."""
        assert self.stop() == 0, self.tail()
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL; nothing happens when it has ended already."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)

    def restart(self) -> None:
        """Drains and starts again on the same data."""
        assert self.stop() == 0, self.tail()
        self.start()

    def tail(self, lines: int = 40) -> str:
        """The end of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def admin_request(
        self,
        path: str,
        method: str = "GET",
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> urllib.request.Request:
        """A request to the admin listener with its token, or another one; `""` sends none."""
        token = self.admin_token if token is None else token
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        sent |= {"Content-Type": "application/json"} if data is not None else {}
        url = f"http://127.0.0.1:{self.admin_port}{path}"
        return urllib.request.Request(url, data, sent | dict(headers or {}), method=method)

    def admin_status(
        self,
        path: str,
        method: str = "GET",
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> int:
        """The status of a request to the admin listener; 0 when nobody answers."""
        try:
            request = self.admin_request(path, method, data, headers, token)
            with urllib.request.urlopen(request, timeout=20) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except (OSError, http.client.HTTPException):
            return 0

    def admin(self, path: str, method: str = "GET", timeout_s: float = 60, body: Any = None) -> Any:
        """JSON of the admin API."""
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(self.admin_request(path, method, data), timeout=timeout_s) as answer:
            told = answer.read()
        return json.loads(told) if told else None

    def metrics(self) -> Metrics:
        """A scrape of `/metrics`."""
        with urllib.request.urlopen(self.admin_request("/metrics"), timeout=10) as answer:
            return Metrics.parse(answer.read().decode())

    def settle(self, timeout_s: int = 60) -> None:
        """Waits until background work is done."""
        self.admin(f"/api/v1/settle?timeout_s={timeout_s}", "POST", timeout_s + 10)

    def drop_caches(self) -> None:
        """Forgets what is cached, so that the next read is a cold one."""
        self.admin("/api/v1/cache/drop", "POST")

    def run(self, *arguments: str, timeout_s: float = 120, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Another command of the binary with this server's configuration."""
        done = subprocess.run(
            [str(self.binary), *arguments, "--config", str(self.config)],
            env=self.variables(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert not check or done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *arguments: str) -> Any:
        """A command's `--json` output."""
        return json.loads(self.run(*arguments, "--json").stdout)

    def status_bytes(self, name: str) -> int:
        """A memory figure of `/proc/PID/status`, such as VmRSS or VmHWM."""
        assert self.process is not None
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
        assert found, f"{name} is not in /proc/PID/status"
        return int(found[1]) * 1024

    def open_files(self) -> int:
        """Descriptors the process holds, but for the catalog's, whose pool opens readers by chance and keeps them."""
        assert self.process is not None
        held = 0
        for descriptor in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed while we look
                held += "catalog.sqlite" not in str(descriptor.readlink())
        return held

    def blob_files(self) -> list[Path]:
        """Every file of the local backend that holds content or a bucket's keys, unfinished ones included.

        Not what is kept there for the catalog's sake.
        """
        ours = {"journal", "lineage", "backup", "backup-part", "owner"}
        files = (path for path in self.blobs.rglob("*") if path.is_file() and not path.name.startswith("store-"))
        return sorted(path for path in files if path.relative_to(self.blobs).parts[0] not in ours)

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.kill()
