"""nginx as a plain file server with WebDAV PUT: the floor below which no store of whole files can be.

Unfair to everyone else: it neither syncs nor verifies nor signs, so its PUT ends when the page cache has the bytes.
"""

from __future__ import annotations

import getpass
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from taxbench.client.endpoint import Endpoint
from taxbench.servers.target import LocalTarget, free_port


def find_nginx() -> str:
    """The nginx command, or an empty string. Debian keeps it where ordinary users' PATH does not look."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin") or ""


@dataclass
class Nginx(LocalTarget):
    """nginx over a directory of its own, one worker per core."""

    command: str
    data_dir: Path
    timeout_s: float = 120.0
    name: str = "nginx"

    def __post_init__(self) -> None:
        self.data_dir = self.data_dir.resolve()
        self.features = frozenset({"restart"})
        self._port = free_port()
        self.endpoint = Endpoint(f"http://127.0.0.1:{self._port}", signing="none", timeout_s=self.timeout_s)

    def start(self) -> None:
        for part in ("files", "incoming"):
            (self.data_dir / part).mkdir(parents=True, exist_ok=True)
        config = self.data_dir / "nginx.conf"
        config.write_text(self._configuration())
        arguments = [self.command, "-p", str(self.data_dir), "-c", str(config), "-e", str(self.data_dir / "error.log")]
        self.launch(arguments)

    def facts(self) -> dict[str, str]:
        done = subprocess.run([self.command, "-v"], capture_output=True, text=True, timeout=20, check=False)
        return {"server": (done.stderr or done.stdout).strip(), "durable": "nothing yet (page cache)"}

    def ensure_bucket(self, bucket: str) -> None:
        (self.files / bucket).mkdir(exist_ok=True)

    def _configuration(self) -> str:
        # Workers drop root; a directory of root's own would refuse them.
        user = f"user {getpass.getuser()};" if getpass.getuser() == "root" else ""
        scratch = "\n".join(
            f"  {kind}_temp_path {self.data_dir}/incoming/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        return f"""
daemon off; worker_processes auto; pid {self.data_dir}/nginx.pid; {user}
error_log {self.data_dir}/error.log warn;
events {{ worker_connections 512; }}
http {{
  access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 1000000; keepalive_timeout 300s;
  default_type application/octet-stream; client_max_body_size 0; client_body_buffer_size 1m;
{scratch}
  server {{
    listen 127.0.0.1:{self._port}; root {self.data_dir}/files;
    location / {{ dav_methods PUT DELETE; create_full_put_path on; }}
  }}
}}
"""
