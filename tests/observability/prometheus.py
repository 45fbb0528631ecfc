"""A real Prometheus that scrapes one server every second, and what it answers."""

from __future__ import annotations

import json
import math
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outside.server import free_port, until

CONFIG = """\
global:
  scrape_interval: 1s
  scrape_timeout: 1s
  evaluation_interval: 1s
rule_files:
  - {rules}
scrape_configs:
  - job_name: deltaweir
    static_configs:
      - targets: ["127.0.0.1:{target}"]
"""


@dataclass
class Prometheus:
    """One Prometheus process with its data in a folder."""

    folder: Path
    target_port: int
    rules: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> Prometheus:
        """Starts it and waits until it is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "prometheus.yml"
        config.write_text(CONFIG.format(rules=self.rules, target=self.target_port))
        with (self.folder / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={config}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    "--log.level=warn",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self._ready, 60, "Prometheus is ready")
        return self

    def stop(self) -> None:
        """Ends it."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def api(self, path: str, **parameters: str | float) -> Any:
        """The `data` of a call; what Prometheus says against it is an assertion's message."""
        body = urllib.parse.urlencode(parameters).encode() if parameters else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/api/v1/{path}", data=body)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def has_data(self, expr: str, begin: float, end: float) -> bool:
        """Whether an expression has a number, NaN not counted, anywhere between two moments."""
        series = self.api("query_range", query=expr, start=begin, end=end, step=1)["result"]
        return any(math.isfinite(float(value)) for one in series for _, value in one["values"])

    def evaluates(self, expr: str) -> None:
        """Fails where Prometheus does not understand an expression."""
        self.api("query", query=expr, time=time.time())

    def firing(self) -> set[str]:
        """Names of the alerts that fire now."""
        return {alert["labels"]["alertname"] for alert in self.api("alerts")["alerts"] if alert["state"] == "firing"}
