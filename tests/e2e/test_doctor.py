"""`deltaweir doctor` and `config check`: trouble is found before the server meets it, and nothing is left behind."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest

from outside.buckets import NewServer
from outside.disks import MIB, mounted
from outside.server import BINARY, Server, Value, until
from outside.store import Store


def examined(server: Server) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and each check by its name; the worst one where several have a name."""
    server.write_config()
    done = server.run("doctor", "--json", check=False)
    told = json.loads(done.stdout)
    assert told["ok"] == (done.returncode == 0), done.stderr
    worst = {"ok": 0, "warning": 1, "failed": 2}
    checks: dict[str, dict[str, Any]] = {}
    for check in sorted(told["checks"], key=lambda check: worst[check["state"]]):
        checks[check["check"]] = check
        assert (check["state"] == "ok") == ("remedy" not in check), check
    return done.returncode, checks


def files_below(folder: Path) -> set[Path]:
    """Every file and folder, but for what the store of the tests locks for itself."""
    return {path for path in folder.rglob("*") if ".vgwlocks" not in path.parts}


def certificate(folder: Path, days: int) -> tuple[str, str]:
    """A certificate that ends in so many days, and its key."""
    cert, key = folder / f"{days}.pem", folder / f"{days}.key"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command = [*made, *subject, "-days", str(days), "-out", str(cert), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    key.chmod(0o600)
    return str(cert), str(key)


def test_a_good_machine_is_said_to_be_good_and_nothing_is_left_behind(new_server: NewServer, store: Store) -> None:
    server = new_server(**store.tables()).start()
    assert server.stop() == 0
    before = files_below(server.data) | files_below(store.folder / "objects")
    code, checks = examined(server)
    assert code == 0, checks
    assert checks["store cloud"]["detail"] == "objects can be stored, read, listed and removed"
    assert checks["clock cloud"]["state"] == "ok"
    assert checks["listener"]["state"] == "ok"
    assert {"configuration", "memory", "open files", "data directory", "disk data"} <= set(checks)
    assert files_below(server.data) | files_below(store.folder / "objects") == before
    text = server.run("doctor").stdout
    assert "store cloud" in text


def test_before_the_first_start_nothing_is_made(new_server: NewServer) -> None:
    server = new_server()
    code, checks = examined(server)
    assert code == 0, checks
    assert "can be made" in checks["data directory"]["detail"]
    assert "can be made" in checks["store local"]["detail"]
    assert not server.data.exists()


def test_a_running_server_is_asked_and_not_disturbed(new_server: NewServer) -> None:
    server = new_server().start()
    code, checks = examined(server)
    assert code == 0, checks
    assert checks["server"]["detail"] == "runs and is ready"
    moved = server.blobs.rename(server.folder / "elsewhere")
    until(lambda: server.admin_status("/readyz") == 503, 30, "the server notices")
    code, checks = examined(server)
    assert code == 1
    assert checks["server"]["state"] == "failed"
    moved.rename(server.blobs)


def test_wrong_rights_on_the_store_are_found_with_a_remedy(new_server: NewServer, store: Store) -> None:
    server = new_server(**store.tables())
    server.tables["backends.cloud"]["secret_access_key"] = "not the secret of this store"
    code, checks = examined(server)
    assert code == 1
    assert checks["store cloud"]["state"] == "failed"
    assert "key pair" in checks["store cloud"]["remedy"] or "put, get, list" in checks["store cloud"]["remedy"]
    done = server.run("doctor", check=False)
    assert done.returncode == 1
    assert "-> " in done.stdout
    assert "1 check failed" in done.stderr


def test_a_store_that_cannot_be_reached_is_found(new_server: NewServer, store: Store) -> None:
    server = new_server(**store.tables())
    store.stop()
    code, checks = examined(server)
    assert code == 1
    assert checks["store cloud"]["state"] == "failed"
    assert "endpoint" in checks["store cloud"]["remedy"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_disk_that_is_mounted_read_only_is_told_from_missing_rights(new_server: NewServer) -> None:
    server = new_server()
    with mounted(server.data, 32 * MIB) as disk:
        server.start()
        assert server.stop() == 0
        subprocess.run(["mount", "-o", "remount,ro", disk.path], check=True)
        code, checks = examined(server)
    assert code == 1
    for name in ("data directory", "store local"):
        assert "remount" in checks[name]["remedy"], checks[name]
    assert "read-only" in checks["data directory"]["detail"]


def test_a_certificate_is_judged_by_its_end(new_server: NewServer, tmp_path: Path) -> None:
    server = new_server()
    for days, state in ((365, "ok"), (3, "warning")):
        cert, key = certificate(tmp_path, days)
        server.tables["server"] = {"tls_cert": cert, "tls_key": key}
        _, checks = examined(server)
        assert checks["certificate"]["state"] == state, checks["certificate"]
    server.tables["server"] = {"tls_cert": str(tmp_path / "none.pem"), "tls_key": str(tmp_path / "none.key")}
    code, checks = examined(server)
    assert code == 1
    assert "none.pem" in checks["certificate"]["detail"]


def test_memory_and_descriptors_that_do_not_suffice_are_found(new_server: NewServer) -> None:
    server = new_server(limits={"memory_bytes_max": "64TiB"})
    code, checks = examined(server)
    assert code == 1
    assert checks["memory"]["state"] == "failed"
    assert "memory_bytes_max" in checks["memory"]["remedy"]
    server.tables["limits"] = {}
    server.write_config()
    few = ["bash", "-c", f'ulimit -n 128; exec "{BINARY}" doctor --json --config "{server.config}"']
    done = subprocess.run(few, env=server.variables(), cwd=server.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "are enough for 32 of 4096 connections" in done.stdout
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 128, "only the command had fewer"


def test_a_port_that_is_taken_is_found_before_the_start(new_server: NewServer) -> None:
    server = new_server().start()
    other = new_server("other")
    other.port = server.port
    code, checks = examined(other)
    assert code == 1
    assert str(server.port) in checks["listener"]["detail"]


@pytest.mark.parametrize(
    ("tables", "key"),
    [
        ({"log": {"filter": "deltaweir=loud"}}, "log.filter"),
        ({"access_log": {"format": "clf", "path": "none/access.log"}}, "access_log.path"),
        ({"server": {"tls_cert": "none.pem", "tls_key": "none.key"}}, "none.pem"),
    ],
)
def test_config_check_finds_what_serve_would_refuse(
    new_server: NewServer, tables: dict[str, dict[str, Value]], key: str
) -> None:
    server = new_server(**tables)
    server.write_config()
    refused = server.run("config", "check", check=False)
    assert refused.returncode == 1
    assert key in refused.stderr
    assert server.launch().wait(30) == 1
