"""Our server, started from the built binary or from a container image, with a configuration made for one cell."""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from taxbench.admin import AdminClient
from taxbench.client.endpoint import Endpoint, PayloadHash
from taxbench.names import COMPRESSION, COMPRESSION_ENCRYPTION, DEFAULT_BUCKETS, ENCRYPTION, PASSTHROUGH
from taxbench.servers.target import START_TIMEOUT_S, LocalProcess, Target, TargetError, free_port

REPOSITORY = Path(__file__).resolve().parents[4]
BINARY_PLACES = ("target/release/deltaweir", "target/debug/deltaweir", "target/dev/debug/deltaweir")
DOCKER_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """The settings a bucket is created with."""

    compression: str = "off"
    encryption: str = "off"
    effort: str = "auto"


MODE_SETTINGS: dict[str, BucketSettings] = {
    PASSTHROUGH: BucketSettings("off", "off"),
    COMPRESSION: BucketSettings("delta", "off"),
    ENCRYPTION: BucketSettings("off", "aes256"),
    COMPRESSION_ENCRYPTION: BucketSettings("delta", "aes256"),
}


def mode_buckets() -> dict[str, BucketSettings]:
    """The four mode buckets under their default names."""
    return {DEFAULT_BUCKETS[mode]: settings for mode, settings in MODE_SETTINGS.items()}


def find_binary(given: str = "") -> Path:
    """The binary to measure: the one given, else the release build, else the debug build.

    # Errors
    `TargetError` naming the places that were looked at.
    """
    places = [Path(given)] if given else [REPOSITORY / place for place in BINARY_PLACES]
    for place in places:
        if place.is_file():
            return place.resolve()
    raise TargetError(f"no deltaweir binary at {', '.join(map(str, places))}; build it with `cargo build --release`")


def configuration(
    listen: str, admin_listen: str, data: str, buckets: dict[str, BucketSettings], extra: str = "", defer: bool = True
) -> str:
    """The TOML of one run: loopback listeners, a fresh data directory, and the buckets that are measured."""
    lines = [
        "[server]",
        f'listen = "{listen}"',
        f'admin_listen = "{admin_listen}"',
        'region = "us-east-1"',
        "storage_headers = true",
        "[storage]",
        f'data = "{data}"',
        'catalog = "sqlite"',
        'backend = "local"',
        "sync = true",
        "[backends.local]",
        'type = "local"',
        f'path = "{data}/blobs"',
    ]
    for name, settings in buckets.items():
        lines += [
            f'[buckets."{name}"]',
            f'compression = "{settings.compression}"',
            f'encryption = "{settings.encryption}"',
            f'effort = "{settings.effort}"',
        ]
    if not defer:
        lines += ["[convert]", "defer = false"]
    return "\n".join(lines) + "\n" + (extra.rstrip() + "\n" if extra.strip() else "")


@dataclass
class Deltaweir(Target):
    """The real server on loopback. Blobs, spool and catalog live below `data_dir`, which the caller removes."""

    binary: Path
    data_dir: Path
    buckets: dict[str, BucketSettings]
    payload_hash: PayloadHash = "precomputed"
    timeout_s: float = 120.0
    extra_configuration: str = ""
    defer: bool = True
    """Whether an upload may be answered before it is encoded. The server's own default, and so ours."""
    image: str = ""
    docker: str = "docker"
    name: str = "deltaweir"
    _process: LocalProcess | None = field(default=None, init=False)
    _container: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.spawned = not self.image
        self.data_dir = self.data_dir.resolve()
        self.features = frozenset({"list", "multipart", "restart"})
        self._port, self._admin_port = free_port(), free_port()
        self._access_key_id, self._secret = f"BENCH{secrets.token_hex(7).upper()}", secrets.token_hex(20)
        self._kek = base64.b64encode(secrets.token_bytes(32)).decode()
        self.endpoint = Endpoint(
            f"http://127.0.0.1:{self._port}",
            self._access_key_id,
            self._secret,
            "us-east-1",
            "sigv4",
            self.payload_hash,
            self.timeout_s,
        )
        self._token = secrets.token_hex(32)
        self.admin = AdminClient(f"http://127.0.0.1:{self._admin_port}", self._token)
        self.metrics_url = f"{self.admin.url}/metrics"

    @property
    def config_path(self) -> Path:
        """The file that `start` writes."""
        return self.data_dir / "bench.toml"

    def environment(self) -> dict[str, str]:
        """The variables it runs with, for whoever opens its store while it is stopped."""
        return {
            "DELTAWEIR_ACCESS_KEY_ID": self._access_key_id,
            "DELTAWEIR_SECRET_ACCESS_KEY": self._secret,
            "DELTAWEIR_ADMIN_TOKEN": self._token,
            "DELTAWEIR_KEK": self._kek,
            "DELTAWEIR_LOG": "warn",
        }

    def start(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self.config_path
        text = configuration(
            f"127.0.0.1:{self._port}",
            f"127.0.0.1:{self._admin_port}",
            str(self.data_dir),
            self.buckets,
            self.extra_configuration,
            self.defer,
        )
        config.write_text(text)
        environment = self.environment()
        if self.image:
            self._start_container(config, environment)
        else:
            self._process = LocalProcess(
                [str(self.binary), "serve", "--config", str(config)], self.data_dir / "server.log", environment
            )
            self._process.spawn()
        assert self.admin is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.admin.ready():
            if self._process is not None:
                self._process.check_alive()
            if time.monotonic() > deadline:
                raise TargetError(f"deltaweir was not ready after {START_TIMEOUT_S:.0f} s. Log: {self._log_tail()}")
            time.sleep(0.03)

    def stop(self) -> None:
        if self._process is not None:
            self.kills += self._process.terminate()
            self._process = None
        if self._container:
            self._docker("stop", "--time", "20", self._container, check=False)
            self._docker("rm", "--force", self._container, check=False)
            self._container = ""

    def process_ids(self) -> list[int]:
        if self._container:
            found = json.loads(self._docker("inspect", self._container))
            pid = int(found[0]["State"]["Pid"])
            return [pid] if pid else []
        return self._process.pids() if self._process else []

    def blob_roots(self) -> list[Path]:
        return [self.data_dir / "blobs"]

    def private_roots(self) -> list[Path]:
        return [self.data_dir]

    def facts(self) -> dict[str, str]:
        if self.image:
            version = self._docker("run", "--rm", self.image, "--version", check=False).strip()
            return {
                "server": version or "deltaweir",
                "image": self.image,
                "durable": "fsync of file, directory and catalog",
                "deferral": self._deferral(),
            }
        done = subprocess.run([str(self.binary), "--version"], capture_output=True, text=True, timeout=20, check=False)
        # Cargo's directories are the only sign of a build's profile; a binary from elsewhere does not say.
        build = next((kind for kind in ("debug", "release") if kind in self.binary.parts), "unknown")
        return {
            "server": done.stdout.strip() or "deltaweir",
            "build": build,
            "durable": "fsync of file, directory and catalog",
            "deferral": self._deferral(),
        }

    def _deferral(self) -> str:
        text = configuration("", "", "", {}, self.extra_configuration, self.defer)
        return "allowed" if tomllib.loads(text).get("convert", {}).get("defer", True) else "off"

    def _start_container(self, config: Path, environment: dict[str, str]) -> None:
        variables = [argument for name, value in environment.items() for argument in ("--env", f"{name}={value}")]
        stat = self.data_dir.stat()
        self._container = self._docker(
            "run",
            "--detach",
            "--network",
            "host",
            "--user",
            f"{stat.st_uid}:{stat.st_gid}",
            "--volume",
            f"{self.data_dir}:{self.data_dir}",
            *variables,
            self.image,
            "serve",
            "--config",
            str(config),
        ).strip()

    def _log_tail(self) -> str:
        if self._container:
            return self._docker("logs", "--tail", "20", self._container, check=False)
        return self._process.log_tail() if self._process else ""

    def _docker(self, *arguments: str, check: bool = True) -> str:
        try:
            done = subprocess.run(
                [self.docker, *arguments], capture_output=True, text=True, timeout=DOCKER_TIMEOUT_S, check=False
            )
        except OSError as error:
            raise TargetError(f"cannot run {self.docker}: {error}") from error
        if check and done.returncode != 0:
            raise TargetError(f"docker {arguments[0]} failed: {done.stderr.strip()[-500:]}")
        return done.stdout + ("" if check else done.stderr)
