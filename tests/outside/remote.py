"""A server whose admin listener speaks TLS, and the command line of another machine that asks it."""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outside.certificates import Authority, Pair
from outside.server import BINARY, Server, until

TOKEN = "0123456789abcdef0123456789abcdef"
READ_TOKEN = "fedcba9876543210fedcba9876543210"


def serve_over_tls(server: Server, tls: Pair, trusts: Path, client: Pair | None = None) -> Server:
    """Starts a server whose listeners speak TLS, and waits until it is ready. `client` is what it asks for."""
    server.tables["server"] = {
        "admin_listen": f"0.0.0.0:{server.admin_port}",
        "admin_token": TOKEN,
        "admin_read_token": READ_TOKEN,
        "tls_cert": str(tls.cert),
        "tls_key": str(tls.key),
    } | server.tables.get("server", {})
    process = server.launch()
    context = ssl.create_default_context(cafile=trusts)
    if client is not None:
        context.load_cert_chain(client.cert, client.key)

    def ready() -> bool:
        assert process.poll() is None, server.tail()
        try:
            url = f"https://127.0.0.1:{server.admin_port}/readyz"
            with urllib.request.urlopen(url, timeout=10, context=context) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    until(ready, 30, "it is ready over TLS")
    return server


@dataclass
class Elsewhere:
    """The command line on another machine: a folder of its own, and no store."""

    folder: Path
    url: str
    ca_file: Path | None = None
    client: Pair | None = None
    token: str | None = TOKEN
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command with `--remote`."""
        self.folder.mkdir(exist_ok=True)
        flags = ["--remote", self.url]
        if self.ca_file is not None:
            flags += ["--ca-file", str(self.ca_file)]
        if self.client is not None:
            flags += ["--client-cert", str(self.client.cert), "--client-key", str(self.client.key)]
        if self.token is not None:
            file = self.folder / "token"
            file.write_text(self.token + "\n")
            file.chmod(0o600)
            flags += ["--token-file", str(file)]
        done = subprocess.run(
            [str(BINARY), *flags, *arguments],
            env={"PATH": "/usr/bin:/bin", **self.environment},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert not check or done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *arguments: str) -> Any:
        """A command's `--json` output."""
        return json.loads(self.run(*arguments, "--json").stdout)

    def refused(self, *arguments: str) -> str:
        """What a command says that fails."""
        done = self.run(*arguments, check=False)
        assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
        return done.stderr


def authority_and_server(folder: Path) -> tuple[Authority, Pair]:
    """An authority, and a certificate by it for a server on 127.0.0.1."""
    authority = Authority(folder, "authority")
    return authority, authority.issue("server", server=True)
