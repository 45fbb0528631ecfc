"""The image as people run it: read-only root, no capabilities, one volume; on the host's loopback, on free ports."""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from docker.engine import Engine
from outside.clients import S3Client, s3_client
from outside.metrics import Metrics
from outside.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, free_port, until

HARDENED = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--stop-timeout=40")
TOKEN = "token-of-the-container-test-0123456789"


def fetch(url: str, token: str | None = None) -> tuple[int, str]:
    """Status and text of a GET; 0 when nobody answers."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


@dataclass
class Container:
    """One container of the image under test and the volume its data is in."""

    engine: Engine
    image: str
    name: str
    port: int = field(default_factory=free_port)
    admin_port: int = field(default_factory=free_port)

    @property
    def volume(self) -> str:
        """The volume at /data; it outlives the container."""
        return f"{self.name}-data"

    def start(self) -> Container:
        """Runs it and waits until the engine calls it healthy."""
        settings = {
            "DELTAWEIR_LISTEN": f"127.0.0.1:{self.port}",
            "DELTAWEIR_ADMIN_LISTEN": f"127.0.0.1:{self.admin_port}",
            "DELTAWEIR_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "DELTAWEIR_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "DELTAWEIR_ADMIN_TOKEN": TOKEN,
        }
        variables = [part for name, value in settings.items() for part in ("--env", f"{name}={value}")]
        where = ("--detach", "--name", self.name, "--network=host", "--volume", f"{self.volume}:/data")
        # The image's check every second instead of every ten: the test waits less, the check is the same.
        self.engine.docker("run", *where, *HARDENED, "--health-interval=1s", *variables, self.image)
        until(lambda: self.health() == "healthy", 60, f"the container is healthy:\n{self.log()}", interval_s=0.2)
        return self

    def state(self) -> Any:
        """What the engine says of it: Running, ExitCode, Health."""
        return self.engine.inspect(self.name)["State"]

    def health(self) -> str:
        """`starting`, `healthy` or `unhealthy`; fails when it ended."""
        state = self.state()
        assert state["Running"], f"the container ended with {state['ExitCode']}:\n{self.log()}"
        return str(state["Health"]["Status"])

    def log(self) -> str:
        """What the server printed."""
        return self.engine.docker("logs", self.name)

    def execute(self, *command: str) -> tuple[int, str]:
        """Exit code and output of a command inside."""
        done = self.engine.run("docker", "exec", self.name, *command, check=False)
        return done.returncode, done.stdout.strip()

    def stop(self) -> int:
        """SIGTERM as `docker stop` sends it, and the exit code."""
        self.engine.docker("stop", self.name)
        return int(self.state()["ExitCode"])

    def remove(self) -> None:
        """Removes the container and keeps the volume."""
        self.engine.docker("rm", "--force", self.name)

    def remove_everything(self) -> None:
        """Removes the container and the volume, where there are any."""
        self.engine.docker("rm", "--force", self.name, check=False)
        self.engine.docker("volume", "rm", "--force", self.volume, check=False)

    def client(self) -> S3Client:
        """boto3 on it."""
        return s3_client(f"http://127.0.0.1:{self.port}")

    def admin(self, path: str, token: str | None = TOKEN) -> tuple[int, str]:
        """Status and text of a GET on the admin listener."""
        return fetch(f"http://127.0.0.1:{self.admin_port}{path}", token)

    def metrics(self) -> Metrics:
        """A scrape."""
        status, text = self.admin("/metrics")
        assert status == 200, text
        return Metrics.parse(text)
