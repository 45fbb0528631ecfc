"""Certificates of clients: optional or required on each TLS listener, reloaded on SIGHUP with the server's own, and
checked by `config check`."""

from __future__ import annotations

import dataclasses
import datetime
import shutil
import socket
import ssl
from pathlib import Path

import pytest

from e2e.test_reload import hang_up
from outside.buckets import NewServer
from outside.certificates import Authority, Pair
from outside.clients import s3_client
from outside.content import MIB, noise
from outside.remote import Elsewhere, authority_and_server, serve_over_tls
from outside.server import Server, Value
from outside.wire import signed


def greeted(port: int, trusts: Path, client: Pair | None) -> bool:
    """Whether a listener answers whoever shows this certificate, or none."""
    context = ssl.create_default_context(cafile=trusts)
    if client is not None:
        context.load_cert_chain(client.cert, client.key)
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            # With TLS 1.3 a client learns of its refusal when it reads.
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return connection.recv(8) == b"HTTP/1.1"
    except OSError:
        return False


@dataclasses.dataclass
class People:
    """Who may show what."""

    trusts: Path
    good: Pair
    expired: Pair
    stranger: Pair


def people(folder: Path, authority: Authority, clients: Authority) -> People:
    """A good client, one whose certificate has ended, one of another authority with the same name."""
    (folder / "forged").mkdir()
    forged = Authority(folder / "forged", clients.name)
    return People(
        authority.path,
        clients.issue("good"),
        clients.issue("expired", age=datetime.timedelta(days=9)),
        forged.issue("stranger"),
    )


@pytest.mark.parametrize("asked", ["optional", "required"])
def test_a_listener_serves_only_whose_certificate_is_good(new_server: NewServer, tmp_path: Path, asked: str) -> None:
    authority, tls = authority_and_server(tmp_path)
    clients = Authority(tmp_path, "clients")
    who = people(tmp_path, authority, clients)
    server = new_server(
        server={"tls_client_ca": str(clients.path), "tls_client_certs": asked, "admin_client_certs": asked}
    )
    serve_over_tls(server, tls, authority.path, who.good)
    for port in (server.port, server.admin_port):
        assert greeted(port, who.trusts, who.good)
        assert greeted(port, who.trusts, None) == (asked == "optional")
        assert not greeted(port, who.trusts, who.expired)
        assert not greeted(port, who.trusts, who.stranger)
    elsewhere = Elsewhere(tmp_path / "elsewhere", f"https://127.0.0.1:{server.admin_port}", who.trusts, who.good)
    assert elsewhere.json("stats")["totals"]["objects"] == 0
    nobody = dataclasses.replace(elsewhere, client=None)
    if asked == "required":
        assert nobody.refused("stats")
    else:
        assert nobody.json("stats")["totals"]["objects"] == 0


def test_each_listener_asks_for_itself(new_server: NewServer, tmp_path: Path) -> None:
    authority, tls = authority_and_server(tmp_path)
    clients = Authority(tmp_path, "clients")
    server = new_server(server={"tls_client_ca": str(clients.path), "tls_client_certs": "required"})
    serve_over_tls(server, tls, authority.path)
    assert greeted(server.admin_port, authority.path, None)
    assert not greeted(server.port, authority.path, None)
    assert greeted(server.port, authority.path, clients.issue("good"))


def test_sighup_changes_certificate_and_authorities_and_drops_no_request(new_server: NewServer, tmp_path: Path) -> None:
    authority, tls = authority_and_server(tmp_path)
    clients = Authority(tmp_path, "clients")
    ca = tmp_path / "ca.pem"
    shutil.copy(clients.path, ca)
    server = new_server(server={"tls_client_ca": str(ca), "tls_client_certs": "optional"})
    serve_over_tls(server, tls, authority.path)
    s3 = s3_client(f"https://127.0.0.1:{server.port}", verify=authority.path)
    s3.create_bucket(Bucket="delta-00")
    good = clients.issue("good")
    assert greeted(server.port, authority.path, good)
    body = noise(17, MIB)
    request = signed(f"127.0.0.1:{server.port}", "PUT", "/delta-00/slow", body=body)
    context = ssl.create_default_context(cafile=authority.path)
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(request[: len(request) // 2])
        (tmp_path / "later").mkdir()
        later = Authority(tmp_path / "later", "clients")
        shutil.copy(later.path, ca)
        renewed = authority.issue("renewed", server=True)
        shutil.copy(renewed.cert, tls.cert)
        shutil.copy(renewed.key, tls.key)
        hang_up(server)
        assert not greeted(server.port, authority.path, good), "its authority is no longer trusted"
        assert greeted(server.port, authority.path, later.issue("newcomer"))
        shown = ssl.get_server_certificate(("127.0.0.1", server.port))
        assert shown == renewed.cert.read_text()
        ca.write_text("no certificate")
        hang_up(server, "nothing was reloaded")
        assert greeted(server.port, authority.path, later.issue("newcomer-2"))
        connection.sendall(request[len(request) // 2 :])
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert s3.get_object(Bucket="delta-00", Key="slow")["Body"].read() == body


@pytest.mark.parametrize("asked", ["optional", "required"])
def test_a_revoked_certificate_is_refused_and_sighup_brings_the_next_list(
    new_server: NewServer, tmp_path: Path, asked: str
) -> None:
    authority, tls = authority_and_server(tmp_path)
    clients = Authority(tmp_path, "clients")
    lost, kept = clients.issue("lost"), clients.issue("kept")
    crl = clients.revoke(tmp_path / "revoked.pem", clients.issue("somebody"))
    server = new_server(
        server={
            "tls_client_ca": str(clients.path),
            "tls_client_crl": str(crl),
            "tls_client_certs": asked,
            "admin_client_certs": asked,
        }
    )
    serve_over_tls(server, tls, authority.path, kept)
    assert greeted(server.port, authority.path, lost)
    clients.revoke(crl, lost)
    hang_up(server)
    for port in (server.port, server.admin_port):
        assert not greeted(port, authority.path, lost)
        assert greeted(port, authority.path, kept)
        assert greeted(port, authority.path, None) == (asked == "optional")
    crl.write_text("no list")
    hang_up(server, "nothing was reloaded")
    assert greeted(server.port, authority.path, kept) and not greeted(server.port, authority.path, lost)
    clients.revoke(crl, age=datetime.timedelta(days=9))
    hang_up(server)
    assert not greeted(server.port, authority.path, kept), "the list is past its next update"
    (tmp_path / "elsewhere").mkdir(exist_ok=True)
    Authority(tmp_path / "elsewhere", "others").revoke(crl)
    hang_up(server)
    assert not greeted(server.port, authority.path, kept), "no list tells of its authority"


def checked(server: Server) -> str:
    """What `config check` says that fails."""
    server.write_config()
    done = server.run("config", "check", check=False)
    assert done.returncode == 1, done.stdout
    return done.stderr


def test_config_check_finds_files_that_cannot_be_read_or_do_not_belong_together(
    new_server: NewServer, tmp_path: Path
) -> None:
    _, tls = authority_and_server(tmp_path)
    clients = Authority(tmp_path, "clients")
    other = clients.issue("other", server=True)
    good: dict[str, Value] = {
        "tls_cert": str(tls.cert),
        "tls_key": str(tls.key),
        "tls_client_ca": str(clients.path),
        "tls_client_crl": str(clients.revoke(tmp_path / "crl.pem")),
        "tls_client_certs": "required",
    }
    server = new_server(server=dict(good))
    server.write_config()
    server.run("config", "check")
    (tmp_path / "text").write_text("no PEM")
    for key in ("tls_cert", "tls_key", "tls_client_ca", "tls_client_crl"):
        for path in (tmp_path / "nothing", tmp_path / "text", tmp_path):
            server.tables["server"] = good | {key: str(path)}
            said = checked(server)
            assert str(path) in said, (key, said)
    server.tables["server"] = good | {"tls_key": str(other.key)}
    assert str(tls.cert) in checked(server), "the key of another certificate"
    for change, key in (
        ({"tls_client_ca": None, "tls_client_crl": None}, "server.tls_client_ca"),
        ({"tls_client_ca": None}, "server.tls_client_crl"),
        ({"tls_client_certs": "off"}, "server.tls_client_ca"),
        ({"tls_client_certs": "sometimes"}, "server.tls_client_certs"),
        ({"admin_client_certs": "required"}, "server.admin_client_certs"),
        ({"tls_cert": None, "tls_key": None}, "server.tls_client_certs"),
    ):
        server.tables["server"] = {name: value for name, value in (good | change).items() if value is not None}
        assert key in checked(server), change
