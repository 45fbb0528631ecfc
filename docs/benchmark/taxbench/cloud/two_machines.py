"""The publishable topology: the proxy on one machine, the client on another, and the bundle back here.

Secrets are made for the run and travel by `scp` as files that only root reads: no command line holds one. The client
speaks to the proxy over plain HTTP, because TLS would be measured with it. So objects, and the admin token in the
header of each admin call, cross the provider's network in the clear, between public addresses. Objects are generated or
public, and the token opens a server that holds nothing else and ends with the run; delete the machines afterwards.
"""

from __future__ import annotations

import base64
import secrets
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path

from taxbench.cloud.remote_run import INSTALL, REMOTE_DIR, Shell, await_boot, bring_home, run_there, send_package
from taxbench.servers.deltaweir import configuration, mode_buckets

S3_PORT, ADMIN_PORT = 9000, 9001
UNIT = "taxbench-proxy"
READY_TIMEOUT_S = 60


def run_apart(
    client: Shell,
    proxy: Shell,
    binary: Path,
    run_id: str,
    arguments: list[str],
    results: Path,
    on_step: Callable[[str], None],
) -> Path:
    """Starts the proxy, runs the client against it, and brings the bundle home.

    # Errors
    `CloudError` when a step fails, or the run ended with a fatal finding.
    """
    results.mkdir(parents=True, exist_ok=True)
    on_step("waiting for the machines")
    await_boot(proxy)
    await_boot(client)
    given = _secrets()
    on_step("starting the proxy")
    proxy.send(binary, f"{REMOTE_DIR}/deltaweir")
    buckets = mode_buckets()
    listen = (f"0.0.0.0:{S3_PORT}", f"0.0.0.0:{ADMIN_PORT}")
    _send_text(proxy, configuration(*listen, f"{REMOTE_DIR}/data", buckets), "proxy.toml")
    _send_text(proxy, _environment({**given, "DELTAWEIR_ADMIN_OVER_HTTP": "true"}), "proxy.env")
    started = ["systemd-run", f"--unit={UNIT}", f"--property=EnvironmentFile={REMOTE_DIR}/proxy.env"]
    started += [f"--working-directory={REMOTE_DIR}", f"{REMOTE_DIR}/deltaweir", "serve", "--config", "proxy.toml"]
    proxy.run(f"cd {REMOTE_DIR} && chmod +x deltaweir && {shlex.join(started)}")
    ready = f"curl --fail --silent --retry {READY_TIMEOUT_S} --retry-delay 1 --retry-connrefused"
    proxy.run(f"{ready} http://127.0.0.1:{ADMIN_PORT}/readyz")
    on_step("installing the client")
    send_package(client)
    named = {
        "TAXBENCH_ACCESS_KEY_ID": given["DELTAWEIR_ACCESS_KEY_ID"],
        "TAXBENCH_SECRET_ACCESS_KEY": given["DELTAWEIR_SECRET_ACCESS_KEY"],
        "TAXBENCH_ADMIN_TOKEN": given["DELTAWEIR_ADMIN_TOKEN"],
    }
    _send_text(client, _environment(named), "client.env")
    client.run(f"cd {REMOTE_DIR} && {INSTALL}")
    on_step("running (this takes a while)")
    where = ["--endpoint", f"http://{proxy.address}:{S3_PORT}", "--admin-url", f"http://{proxy.address}:{ADMIN_PORT}"]
    command = ["venv/bin/python", "-m", "taxbench", "run", *where, "--run-id", run_id, *arguments]
    if "--no-proxy-restart" not in arguments:
        command.append("--no-proxy-restart")
    said = run_there(client, f"set -a && . ./client.env && set +a && {shlex.join(command)}")
    on_step("fetching the bundle")
    return bring_home(client, run_id, said, results)


def _secrets() -> dict[str, str]:
    """The proxy's variables, made for one run."""
    return {
        "DELTAWEIR_ACCESS_KEY_ID": f"BENCH{secrets.token_hex(7).upper()}",
        "DELTAWEIR_SECRET_ACCESS_KEY": secrets.token_hex(20),
        "DELTAWEIR_ADMIN_TOKEN": secrets.token_hex(32),
        "DELTAWEIR_KEK": base64.b64encode(secrets.token_bytes(32)).decode(),
        "DELTAWEIR_LOG": "warn",
    }


def _environment(variables: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def _send_text(shell: Shell, text: str, name: str) -> None:
    """Sends a file that only its owner reads, here and there."""
    with tempfile.TemporaryDirectory(prefix="taxbench-send-") as scratch:
        file = Path(scratch) / name
        file.touch(mode=0o600)
        file.write_text(text)
        shell.run(f"cd {REMOTE_DIR} && umask 077 && : > {name}")
        shell.send(file, f"{REMOTE_DIR}/{name}")
