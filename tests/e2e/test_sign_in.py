"""Signing in to the console by OpenID Connect, against an issuer of the test's own (C54)."""

from __future__ import annotations

import http.client
import json
import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from outside.buckets import NewServer
from outside.issuer import CLIENT_ID, CLIENT_SECRET, Issuer
from outside.server import Server, Value, until

LOGIN, CALLBACK = "/api/v1/oidc/login", "/api/v1/oidc/callback"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """An issuer."""
    issuer = Issuer()
    yield issuer
    issuer.close()


def settings(server: Server, by: Issuer, **more: Value) -> Server:
    """Has a server believe an issuer."""
    told: dict[str, Value] = {
        "issuer": by.url,
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "console_url": f"http://127.0.0.1:{server.admin_port}",
        "write": ["ops"],
        "read": ["dev", "support"],
        "name": "Example ID",
    }
    server.tables["oidc"] = told | more
    return server


@dataclass
class Browser:
    """A browser as far as a sign-in needs one: it keeps cookies and says where a request comes from."""

    server: Server
    cookies: dict[str, str] = field(default_factory=dict)
    key: str = ""

    def ask(
        self, path: str, method: str = "GET", body: Any = None, site: str = "same-origin"
    ) -> tuple[int, http.client.HTTPMessage, str]:
        """Status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.admin_port, timeout=20)
        headers = {"Sec-Fetch-Site": site, "Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())}
        headers |= {"X-Deltaweir-Session": self.key} if self.key else {}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            told = answer.read().decode()
        finally:
            connection.close()
        for cookie in answer.headers.get_all("Set-Cookie") or []:
            name, _, value = cookie.split(";")[0].partition("=")
            self.cookies[name] = value
        return answer.status, answer.headers, told

    def begin(self) -> str:
        """To the issuer: where that is."""
        status, headers, told = self.ask(LOGIN)
        assert status == 302, told
        assert headers["Location"]
        return str(headers["Location"])

    def back(self, url: str) -> tuple[int, str]:
        """Back from the issuer, as another site's navigation: the status, and the page's code or the refusal."""
        parts = urllib.parse.urlsplit(url)
        assert parts.path == CALLBACK
        status, headers, told = self.ask(f"{parts.path}?{parts.query}", site="cross-site")
        if status != 200:
            return status, json.loads(told)["error"]
        assert "script" not in headers["Content-Security-Policy"]
        [code] = set(re.findall(r"/#/login\?code=([0-9a-f]{64})", told))
        return status, code

    def claim(self, code: str) -> tuple[int, dict[str, str]]:
        """A session for the code of the page."""
        status, _, told = self.ask("/api/v1/session", "POST", {"code": code})
        if status == 200:
            self.key = json.loads(told)["key"]
        return status, json.loads(told)

    def sign_in(self, issuer: Issuer) -> tuple[int, str]:
        """All of it: the status, and the scope or the refusal."""
        status, told = self.back(issuer.authorize(self.begin()))
        if status != 200:
            return status, told
        status, session = self.claim(told)
        return status, session["scope"] if status == 200 else session["error"]


def test_the_claim_decides_what_a_session_may_do(new_server: NewServer, issuer: Issuer) -> None:
    server = settings(new_server(), issuer).start()
    offer = json.loads(Browser(server).ask("/api/v1/oidc")[2])
    assert offer == {"enabled": True, "name": "Example ID"}
    ops = Browser(server)
    assert ops.sign_in(issuer) == (200, "write")
    assert json.loads(ops.ask("/api/v1/session")[2]) == {"scope": "write"}
    assert ops.ask("/api/v1/gc", "POST")[0] == 200
    [verifier] = {form["code_verifier"] for form in issuer.redeemed}
    assert len(verifier) >= 43
    issuer.claims = {"sub": "17", "email": "bea@example.com", "groups": "support"}
    support = Browser(server)
    assert support.sign_in(issuer) == (200, "read")
    assert support.ask("/api/v1/stats")[0] == 200
    assert support.ask("/api/v1/gc", "POST")[0] == 403
    issuer.claims = {"sub": "18", "groups": ["visitors"]}
    assert Browser(server).sign_in(issuer) == (403, "18 has no role here: oidc.write and oidc.read name them")
    told = server.run("audit", "search", "--action", "/api/v1/session").stdout.splitlines()
    assert [json.loads(line)["user"] for line in told] == ["oidc:ann", "oidc:bea@example.com"]
    collected = server.run("audit", "search", "--user", "oidc:ann", "--action", "/api/v1/gc").stdout
    assert len(collected.splitlines()) == 1
    log = server.final_log()
    assert not any(secret in log for secret in (CLIENT_SECRET, verifier, ops.key))


@pytest.mark.parametrize(
    "fault",
    [
        "wrong audience",
        "shared with another party",
        "wrong nonce",
        "expired",
        "not yet",
        "wrong issuer",
        "no nonce",
        "no audience",
        "no end",
        "wrong key",
        "unknown key",
        "changed after signing",
        "alg none",
        "shared secret",
    ],
)
def test_a_token_that_is_not_the_issuers_for_this_sign_in_opens_nothing(
    new_server: NewServer, issuer: Issuer, fault: str
) -> None:
    # C54
    server = settings(new_server(), issuer).start()
    issuer.fault = fault
    browser = Browser(server)
    status, told = browser.sign_in(issuer)
    assert (status, told.startswith("the ID token: ")) == (401, True), told
    assert issuer.redeemed, "it came as far as the token"
    issuer.fault = ""
    assert Browser(server).sign_in(issuer) == (200, "write")


def test_a_sign_in_belongs_to_the_browser_that_began_it(new_server: NewServer, issuer: Issuer) -> None:
    server = settings(new_server(), issuer).start()
    mine, other = Browser(server), Browser(server)
    back = issuer.authorize(mine.begin())
    assert Browser(server).back(back)[0] == 401, "a browser without the cookie"
    other.begin()
    assert other.back(back) == (401, "state is of another sign-in")
    forged = Browser(server, {"deltaweir-sign-in": "A" * 200})
    assert forged.back(back)[0] == 401
    assert not issuer.redeemed, "nobody asked the issuer"
    status, code = mine.back(back)
    assert status == 200
    assert mine.back(back)[0] == 401, "a code is redeemed once"
    assert other.claim(code)[0] == 401
    assert mine.claim(code)[0] == 401, "who guessed has spoiled it"
    assert mine.sign_in(issuer) == (200, "write")
    assert mine.cookies["deltaweir-sign-in"] == "", "what carried the sign-in is gone"
    refused = mine.begin()
    assert mine.back(issuer.authorize(refused, error="access_denied")) == (401, "the issuer refused: access_denied")
    back = issuer.authorize(mine.begin(), iss="https://id.example")
    assert mine.back(back) == (401, "another issuer sent this browser back")
    for path, site in ((LOGIN, "cross-site"), ("/", "cross-site"), ("/api/v1/oidc", "same-site")):
        assert mine.ask(path, site=site)[0] == 403, path


def test_keys_are_asked_for_again_when_the_issuer_has_a_new_one(new_server: NewServer, issuer: Issuer) -> None:
    server = settings(new_server(), issuer).start()
    assert Browser(server).sign_in(issuer) == (200, "write")
    issuer.rotate()
    until(lambda: Browser(server).sign_in(issuer) == (200, "write"), 30, "the new key is known", interval_s=1)
    assert issuer.asked.count("/keys") == 2
    assert issuer.asked.count("/.well-known/openid-configuration") == 1


def test_sessions_end_with_their_lifetime_and_at_will(new_server: NewServer, issuer: Issuer) -> None:
    server = settings(new_server(), issuer, session_lifetime="1m").start()
    browser = Browser(server)
    back = issuer.authorize(browser.begin())
    status, code = browser.back(back)
    assert status == 200
    _, headers, told = browser.ask("/api/v1/session", "POST", {"code": code})
    browser.key = json.loads(told)["key"]
    [session] = [cookie for cookie in headers.get_all("Set-Cookie") or [] if "sign-in" not in cookie]
    assert "Max-Age=60;" in session + ";"
    assert "HttpOnly" in session
    assert browser.ask("/api/v1/session")[0] == 200
    assert browser.ask("/api/v1/session", "DELETE")[0] == 200
    assert browser.ask("/api/v1/session")[0] == 401


@pytest.mark.parametrize(
    "fault", ["document of another issuer", "plain token endpoint", "token endpoint fails", "away"]
)
def test_an_issuer_that_does_not_work_opens_nothing_and_the_token_still_does(
    new_server: NewServer, issuer: Issuer, fault: str
) -> None:
    server = settings(new_server(), issuer).start()
    issuer.fault = fault
    if fault == "away":
        issuer.close()
    browser = Browser(server)
    status, _, _ = browser.ask(LOGIN)
    if fault == "token endpoint fails":
        status, _ = browser.sign_in(issuer)
    assert status == 502
    assert server.admin_status("/api/v1/stats") == 200


def test_without_an_issuer_there_is_no_sign_in(new_server: NewServer) -> None:
    server = new_server().start()
    browser = Browser(server)
    assert json.loads(browser.ask("/api/v1/oidc")[2]) == {"enabled": False, "name": None}
    assert {browser.ask(path)[0] for path in (LOGIN, CALLBACK)} == {400}
    assert browser.claim("0" * 64)[0] == 400


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"issuer": "http://id.example"}, "oidc.issuer"),
        ({"issuer": "https://169.254.169.254/latest"}, "oidc.issuer"),
        ({"issuer": "https://id.example?a=b"}, "oidc.issuer"),
        ({"client_id": ""}, "oidc.client_id"),
        ({"console_url": "https://storage.example:9001"}, "oidc.console_url"),
        ({"console_url": "http://10.0.0.1:9001"}, "oidc.console_url"),
        ({"write": [], "read": []}, "oidc.write"),
        ({"session_lifetime": "10s"}, "oidc.session_lifetime"),
        ({"ca_file": "nothing.pem"}, "oidc.ca_file"),
        ({"roles": ["a"]}, "oidc"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(
    new_server: NewServer, issuer: Issuer, change: dict[str, Value], key: str
) -> None:
    server = settings(new_server(), issuer)
    server.write_config()
    server.run("config", "check")
    assert CLIENT_SECRET not in server.run("config", "show").stdout
    settings(server, issuer, **change)
    server.write_config()
    done = server.run("config", "check", check=False)
    assert done.returncode == 1
    assert key in done.stderr


def test_the_issuers_certificate_is_trusted_by_its_file(new_server: NewServer, issuer: Issuer, tmp_path: Path) -> None:
    server = settings(new_server(), issuer, ca_file=str(tmp_path / "text"))
    (tmp_path / "text").write_text("no certificate")
    server.write_config()
    assert "oidc.ca_file" in server.run("config", "check", check=False).stderr
