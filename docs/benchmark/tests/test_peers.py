"""Servers of others: found by name, and waited for until they serve."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from taxbench.__main__ import main
from taxbench.servers.gateway import Gateway
from taxbench.servers.peers import PEERS

LATE = """
import http.server, sys
class Late(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Late.asked += 1
        print("asked", Late.asked, file=sys.stderr, flush=True)
        self.send_response(200 if Late.asked > 3 else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Late).serve_forever()
"""


@dataclass
class LateGateway(Gateway):
    """Listens at once, and serves from the fourth request on."""

    def arguments(self) -> list[str]:
        return [self.command, "-c", LATE, self.address.rpartition(":")[2]]


def test_a_server_that_listens_before_it_serves_is_waited_for(tmp_path: Path) -> None:
    with LateGateway(sys.executable, tmp_path):
        asked = (tmp_path / "server.log").read_text().splitlines()
    assert asked == ["asked 1", "asked 2", "asked 3", "asked 4"]


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_that_is_not_installed_is_named_with_its_flag(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PEERS, name, replace(PEERS[name], find=lambda _: ""))
    asked = ["local", "--comparators", name, "--artifact-source", "synthetic", "--results", str(tmp_path)]
    assert main([*asked, "--binary", sys.executable]) == 2
    assert f"{name} was asked for and is not installed: --{name} is its" in capsys.readouterr().err
