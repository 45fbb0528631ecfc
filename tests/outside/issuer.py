"""An OpenID Connect issuer of a test's own: authorization code flow, PKCE, and every kind of token that it should not
have given out."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import secrets
import threading
import time
import urllib.parse
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT_ID = "deltaweir"
CLIENT_SECRET = "a secret of the client's: 100% + more"


def coded(data: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    """A number of a JSON web key."""
    return coded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Issuer:
    """Answers on a loopback port until it is closed."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(65537, 2048)
        self.key_id = "first"
        self.claims: dict[str, Any] = {"sub": "ann", "preferred_username": "ann", "groups": ["ops"]}
        """What tokens say, besides what the protocol asks for; these win."""
        self.fault = ""
        """What is wrong with the next tokens."""
        self.codes: dict[str, dict[str, str]] = {}
        self.redeemed: list[dict[str, str]] = []
        self.asked: list[str] = []
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                self.told(*issuer.get(self.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = dict(urllib.parse.parse_qsl(body))
                self.told(*issuer.redeem(form, self.headers.get("Authorization", "")))

            def told(self, status: int, document: Any) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", document)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Answers no longer."""
        self.server.shutdown()
        self.server.server_close()

    def rotate(self) -> None:
        """Signs with another key from now on, and shows that one."""
        self.key, self.key_id = rsa.generate_private_key(65537, 2048), "second"

    def get(self, path: str) -> tuple[int, Any]:
        """Its document and keys."""
        if path == "/.well-known/openid-configuration":
            named = {"issuer": self.url + ("/other" if self.fault == "document of another issuer" else "")}
            named |= {"authorization_endpoint": f"{self.url}/authorize", "jwks_uri": f"{self.url}/keys"}
            token = "http://id.example/token" if self.fault == "plain token endpoint" else f"{self.url}/token"
            return 200, named | {"token_endpoint": token}
        if path == "/keys":
            public = self.key.public_key().public_numbers()
            key = {"kty": "RSA", "kid": self.key_id, "alg": "RS256", "use": "sig"}
            strange = {"kty": "XYZ", "kid": "strange"}
            return 200, {"keys": [strange, key | {"n": number(public.n), "e": number(public.e)}]}
        return 404, {}

    def authorize(self, url: str, **changes: str) -> str:
        """Somebody signs in: where their browser is sent back to."""
        assert url.startswith(f"{self.url}/authorize?"), url
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT_ID)
        assert asked["code_challenge_method"] == "S256"
        assert asked["scope"].split()[0] == "openid"
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        back = {"code": code, "state": asked["state"], "iss": self.url} | changes
        return f"{asked['redirect_uri']}?{urllib.parse.urlencode(back)}"

    def redeem(self, form: dict[str, str], authorization: str) -> tuple[int, Any]:
        """A token for a code, once, for who began and knows the client's secret."""
        self.redeemed.append(form)
        if self.fault == "token endpoint fails":
            return 500, {}
        pair = f"{CLIENT_ID}:{urllib.parse.quote_plus(CLIENT_SECRET)}".encode()
        if authorization != f"Basic {base64.b64encode(pair).decode()}":
            return 401, {"error": "invalid_client"}
        asked = self.codes.pop(form.get("code", ""), None)
        challenge = coded(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if asked is None or asked["code_challenge"] != challenge or asked["redirect_uri"] != form.get("redirect_uri"):
            return 400, {"error": "invalid_grant"}
        return 200, {"access_token": "x", "token_type": "Bearer", "id_token": self.token(asked["nonce"])}

    def token(self, nonce: str) -> str:
        """An ID token with the fault that is wished."""
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.url,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            "nonce": nonce,
        } | self.claims
        faults: dict[str, dict[str, Any]] = {
            "wrong audience": {"aud": "another-client"},
            "shared with another party": {"aud": [CLIENT_ID, "another"], "azp": "another"},
            "wrong nonce": {"nonce": "of-another-sign-in"},
            "expired": {"exp": now - 120},
            "not yet": {"nbf": now + 300},
            "wrong issuer": {"iss": "https://id.example"},
        }
        claims |= faults.get(self.fault, {})
        if self.fault in ("no nonce", "no audience", "no end"):
            del claims[{"no nonce": "nonce", "no audience": "aud", "no end": "exp"}[self.fault]]
        algorithm = {"alg none": "none", "shared secret": "HS256"}.get(self.fault, "RS256")
        header = {"alg": algorithm, "kid": "unknown" if self.fault == "unknown key" else self.key_id}
        message = f"{coded(json.dumps(header).encode())}.{coded(json.dumps(claims).encode())}"
        return f"{message}.{coded(self.signed(message.encode()))}"

    def signed(self, message: bytes) -> bytes:
        """A signature, or the fault's."""
        if self.fault == "alg none":
            return b""
        if self.fault == "shared secret":
            public = self.key.public_key().public_numbers()
            return hmac.digest(number(public.n).encode(), message, "sha256")
        if self.fault == "changed after signing":
            message += b" "
        key = rsa.generate_private_key(65537, 2048) if self.fault == "wrong key" else self.key
        return key.sign(message, padding.PKCS1v15(), hashes.SHA256())
