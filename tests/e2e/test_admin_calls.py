"""Whatever the admin API can do, the console and the command line can: one walk through the OpenAPI file."""

from __future__ import annotations

import http.server
import json
import re
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outside.server import ROOT, Server

CONSOLE = ROOT / "proxy" / "src" / "admin" / "console"
VERBS = {"get": "GET", "post": "POST", "put": "PUT", "remove": "DELETE"}

OF_OBJECTS = {"GET /api/v1/map", "GET /api/v1/object", "GET /api/v1/versions"}
"""Of single objects: any S3 client shows them, and `explain` what is ours."""
OF_BROWSERS = {"DELETE /api/v1/session", "GET /api/v1/session", "POST /api/v1/session"}
"""A caller of the socket needs no session."""
OF_ISSUERS = {"GET /api/v1/oidc/callback"}
"""The issuer sends a browser there."""
OF_SIGN_INS = {"GET /api/v1/oidc", "GET /api/v1/oidc/login"}
"""The command line has a token or a socket."""
OF_FILES = {"GET /api/v1/audit", "GET /api/v1/audit/verify"}
"""`audit search|verify` read the files of the log, so that they work where no server runs; with `--remote` they ask
(test_remote.py)."""

POLICY = {"Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}}
COMMANDS = """
backup --list
buckets add b --encryption aes256 --owner ann
buckets list
buckets set b --isolation strict
drop-caches
explain s3://b/k
gc
inspect 00000000000000000000000000000001
inspect s3://b/k
jobs
jobs scrub
jobs scrub pause
journal
keys list
keys reencrypt b
keys rotate
keys shred b
keys shred b --yes
keys verify
lifecycle s3://b
logs --level warn
ls
ls s3://b
preview s3://b --compression zstd
policy test root s3:GetObject arn:aws:s3:::b/k
quota clear --bucket b
quota list
quota set --bucket b --objects 5
quota show --bucket b
recovery
requests -n 5
requests 0123456789ABCDEF
scrub --quarantined
settle
stats
status
top --once
users add ann
users disable ann
users groups add readers
users groups join readers ann
users groups list
users groups remove readers
users keys add ann
users keys disable ann K
users keys remove ann K
users list
users policies attach readers --user ann
users policies list
users policies put readers POLICY
users policies remove readers
users policies show readers
users remove ann
users show ann
"""


def documented() -> set[str]:
    """Every call of the OpenAPI file."""
    paths: dict[str, dict[str, Any]] = json.loads((ROOT / "docs" / "reference" / "openapi.json").read_text())["paths"]
    calls = {f"{method.upper()} {path}" for path, item in paths.items() for method in item if method != "parameters"}
    assert len(calls) >= 47
    return calls


def pattern_of(call: str) -> re.Pattern[str]:
    """What requests of a call look like; an element of the path stands for `{name}`."""
    return re.compile(re.escape(call).replace(r"\{name\}", "[^/]+"))


class Socket(socketserver.ThreadingUnixStreamServer):
    """A server's admin socket that writes down who asked for what, and answers nothing of use."""

    daemon_threads = True
    asked: list[str]


class Answers(http.server.BaseHTTPRequestHandler):
    """One connection."""

    server: Socket

    def address_string(self) -> str:
        """A socket of the file system has no address."""
        return "socket"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""

    def note(self) -> None:
        """Writes the request down, and answers."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(f"{self.command} {self.path.split('?')[0]}")
        body = b'{"error": "this is no store"}'
        self.send_response(418)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = note  # noqa: N815


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Socket]:
    """What answers in place of a server of this data directory."""
    (tmp_path / "data").mkdir()
    with Socket(str(tmp_path / "data" / "admin.sock"), Answers) as socket:
        socket.asked = []
        threading.Thread(target=socket.serve_forever, daemon=True).start()
        yield socket
        socket.shutdown()


def test_the_command_line_makes_every_call_of_the_openapi_file(socket: Socket, tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.write_config()
    (tmp_path / "policy.json").write_text(json.dumps(POLICY))
    for line in COMMANDS.strip().splitlines():
        before = len(socket.asked)
        words = [str(tmp_path / "policy.json") if word == "POLICY" else word for word in line.split()]
        done = server.run(*words, check=False)
        assert done.returncode != 2, f"{line}: {done.stderr}"
        assert len(socket.asked) > before, f"{line} asked for nothing: {done.stderr}"
    calls = documented()
    found = {call for call in calls if any(pattern_of(call).fullmatch(asked) for asked in socket.asked)}
    assert calls - found == OF_OBJECTS | OF_BROWSERS | OF_FILES | OF_SIGN_INS | OF_ISSUERS
    assert "--request-id" in server.run("audit", "search", "--help").stdout
    unknown = [asked for asked in socket.asked if not any(pattern_of(call).fullmatch(asked) for call in calls)]
    assert unknown == []


def calls_of_the_console() -> set[str]:
    """The calls that stand in the console's modules, with `{name}` for what is put in."""
    found = set()
    for path in CONSOLE.rglob("*.js"):
        text = path.read_text()
        for verb, target in re.findall(r"(?<![.\w])(get|post|put|remove)\(\s*[`\"]([a-z][^`\"]*)[`\"]", text):
            found.add(f"{VERBS[verb]} /api/v1/{re.sub(r'[$][{].*?[}](?![)}])', '{name}', target)}")
        for verb, target in re.findall(r"\basked\(\"(\w+)\", \"(\w+)\"", text):
            found.add(f"{verb} /api/v1/{target}")
        found |= {f"GET {target}" for target in re.findall(r"href: \"(/api/v1/[a-z/]+)\"", text)}
    return found


def test_the_console_makes_every_call_of_the_openapi_file_and_no_other() -> None:
    found, calls = calls_of_the_console(), documented()
    # `jobs/gc` is `jobs/{name}`.
    named = {call for call in calls if any(pattern_of(call).fullmatch(one) for one in found)}
    assert calls - named == OF_ISSUERS, "no page makes this call"
    assert [one for one in found if not any(pattern_of(call).fullmatch(one) for call in calls)] == []
