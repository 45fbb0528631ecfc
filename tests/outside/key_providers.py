"""Key providers on loopback: the transit engine of Vault and OpenBao, and AWS KMS, as their documentation says.

They wrap with AES-256-GCM, refuse what the real ones refuse (tokens, signatures, contexts), and can be told to fail in
every way that a network has.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from outside.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, Value, free_port
from outside.sigv4 import Scope, canonical_request

TOKEN = "hvs.token-of-the-tests-0123456789"
KMS_KEY = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
Answer = tuple[int, dict[str, Any]]
HUGE = 10 << 20
AnyProvider = TypeVar("AnyProvider", bound="Provider")


@dataclass
class Provider:
    """What both have in common: keys, and how it fails."""

    port: int = field(default_factory=free_port)
    manner: str = "well"
    """`well`, `garbage`, `hang`, `redirect`, `huge` or `error`; whoever stops it makes it `down`."""
    calls: list[str] = field(default_factory=list)
    """What it was asked, in order."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """With which bodies."""
    keys: dict[str, bytes] = field(default_factory=dict)
    released: threading.Event = field(default_factory=threading.Event)
    """Ends what hangs."""
    _server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        """Listens, again on the same port."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if provider._server is not self.server:
                    self.close_connection = True  # it was kept alive beyond `stop`
                    return
                headers = [(name, value) for name, value in self.headers.items()]
                with contextlib.suppress(OSError):  # whoever asked is gone
                    self.reply(*provider.respond(self.path, headers, body))

            def do_GET(self) -> None:
                """A redirect that was followed ends here."""
                provider.calls.append(f"followed {self.path}")
                self.send_error(404)

            def reply(self, status: int, body: bytes) -> None:
                self.send_response(status)
                if status == 307:
                    self.send_header("Location", f"http://127.0.0.1:{provider.port}/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Nobody listens any more, and what comes on connections that are open gets no answer."""
        if server := self._server:
            self._server = None
            server.shutdown()
            server.server_close()

    def respond(self, path: str, headers: list[tuple[str, str]], body: bytes) -> tuple[int, bytes]:
        """The answer, in the manner of now."""
        match self.manner:
            case "garbage":
                return 200, b'{"data": {"ciphertext": 7, "plaintext": "!!"}, "Plaintext": "!!", "CiphertextBlob": []}'
            case "hang":
                self.released.wait(60)
                return 500, b""
            case "redirect":
                return 307, b""
            case "huge":
                return 200, b'{"data": {"plaintext": "' + b"A" * HUGE + b'"}}'
            case "error":
                return 503, b'{"errors": ["Vault is sealed"]}'
        if path == "/elsewhere":
            self.calls.append(f"followed {path}")
        status, answer = self.answer(path, headers, body)
        return status, json.dumps(answer).encode()

    def answer(self, path: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
        """As the protocol has it."""
        raise NotImplementedError

    def seal(self, key: str, plain: bytes, bound: bytes) -> bytes:
        """Wraps under one of its keys."""
        nonce = os.urandom(12)
        return nonce + AESGCM(self.keys[key]).encrypt(nonce, plain, bound)

    def open(self, key: str, sealed: bytes, bound: bytes) -> bytes | None:
        """Unwraps, if it is what was wrapped and bound so."""
        try:
            return AESGCM(self.keys[key]).decrypt(sealed[:12], sealed[12:], bound)
        except (InvalidTag, ValueError):
            return None


@dataclass
class Transit(Provider):
    """`POST /v1/MOUNT/encrypt|decrypt/KEY` and AppRole's login."""

    tokens: set[str] = field(default_factory=lambda: {TOKEN})
    namespace: str | None = None
    roles: dict[str, str] = field(default_factory=dict)

    def tables(self, name: str = "vault", **more: Value) -> dict[str, dict[str, Value]]:
        """The configuration that knows it, with the token unless another way in is named."""
        keys: dict[str, Value] = {"type": "vault", "address": f"http://127.0.0.1:{self.port}", "key": "deltaweir"}
        keys |= {} if {"token", "token_file", "role_id"} & more.keys() else {"token": TOKEN}
        return {f"key_providers.{name}": keys | {"timeout": "500ms"} | more}

    def answer(self, path: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
        asked = json.loads(body)
        told = {name.lower(): value for name, value in headers}
        self.calls.append(path)
        self.bodies.append(asked)
        if told.get("x-vault-request") != "true" or told.get("x-vault-namespace") != self.namespace:
            return 404, {"errors": ["no handler for route"]}
        if path == "/v1/auth/approle/login":
            if self.roles.get(asked["role_id"]) != asked["secret_id"]:
                return 400, {"errors": ["invalid role or secret ID"]}
            token = f"hvs.{len(self.tokens)}"
            self.tokens.add(token)
            return 200, {"auth": {"client_token": token, "lease_duration": 3600}}
        if told.get("x-vault-token") not in self.tokens:
            return 403, {"errors": ["permission denied"]}
        _, _, mount, call, key = path.split("/")
        if mount != "transit" or call not in ("encrypt", "decrypt"):
            return 404, {"errors": ["no handler for route"]}
        bound = base64.b64decode(asked.get("associated_data", ""))
        if call == "encrypt":
            self.keys.setdefault(key, os.urandom(32))  # Vault makes a key that is not there
            sealed = self.seal(key, base64.b64decode(asked["plaintext"]), bound)
            return 200, {"data": {"ciphertext": "vault:v1:" + base64.b64encode(sealed).decode(), "key_version": 1}}
        if key not in self.keys:
            return 400, {"errors": ["encryption key not found"]}
        plain = self.open(key, base64.b64decode(asked["ciphertext"].removeprefix("vault:v1:")), bound)
        if plain is None:
            return 400, {"errors": ["cipher: message authentication failed"]}
        return 200, {"data": {"plaintext": base64.b64encode(plain).decode()}}


@dataclass
class Kms(Provider):
    """`TrentService.Encrypt` and `Decrypt`; every signature is verified."""

    keys: dict[str, bytes] = field(default_factory=lambda: {KMS_KEY: os.urandom(32)})

    def tables(self, name: str = "kms", **more: Value) -> dict[str, dict[str, Value]]:
        """The configuration that knows it."""
        keys: dict[str, Value] = {
            "type": "aws-kms",
            "endpoint": f"http://127.0.0.1:{self.port}",
            "key": KMS_KEY,
            "region": REGION,
            "timeout": "500ms",
        }
        pair: dict[str, Value] = {"access_key_id": ACCESS_KEY_ID, "secret_access_key": SECRET_ACCESS_KEY}
        return {f"key_providers.{name}": keys | ({} if "credentials_file" in more else pair) | more}

    def is_signed(self, headers: list[tuple[str, str]], body: bytes) -> bool:
        """Whether the request is signed as Signature Version 4 has it, its body and its target included."""
        told = {name.lower(): value for name, value in headers}
        scheme, _, fields = told.get("authorization", "").partition(" ")
        parts = dict(part.strip().split("=", 1) for part in fields.split(",") if "=" in part)
        signed = parts.get("SignedHeaders", "").split(";")
        if scheme != "AWS4-HMAC-SHA256" or not {"host", "x-amz-date", "x-amz-target", "content-type"} <= set(signed):
            return False
        date = told["x-amz-date"]
        scope = Scope(service="kms", date=date[:8])
        canonical = canonical_request("POST", "/", headers, signed, hashlib.sha256(body).hexdigest())
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = "\n".join(("AWS4-HMAC-SHA256", date, scope.path, digest))
        credential = f"{ACCESS_KEY_ID}/{scope.path}"
        return (parts.get("Credential"), parts.get("Signature")) == (credential, scope.sign(text))

    def answer(self, path: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
        told = {name.lower(): value for name, value in headers}
        action = told.get("x-amz-target", "").removeprefix("TrentService.")
        if path != "/" or told.get("content-type") != "application/x-amz-json-1.1":
            return 404, {"__type": "UnknownOperationException"}
        if not self.is_signed(headers, body):
            self.calls.append("unsigned")
            return 400, {"__type": "com.amazon.coral.service#InvalidSignatureException"}
        asked = json.loads(body)
        self.calls.append(action)
        self.bodies.append(asked)
        key = asked.get("KeyId", KMS_KEY)
        if key not in self.keys:
            return 400, {"__type": "NotFoundException", "message": "no such key"}
        bound = json.dumps(asked.get("EncryptionContext", {}), sort_keys=True).encode()
        if action == "Encrypt":
            sealed = self.seal(key, base64.b64decode(asked["Plaintext"]), bound)
            return 200, {"KeyId": key, "CiphertextBlob": base64.b64encode(sealed).decode()}
        if action == "Decrypt":
            plain = self.open(key, base64.b64decode(asked["CiphertextBlob"]), bound)
            if plain is None:
                return 400, {"__type": "InvalidCiphertextException"}
            return 200, {"KeyId": key, "Plaintext": base64.b64encode(plain).decode()}
        return 404, {"__type": "UnknownOperationException"}


@contextlib.contextmanager
def transit() -> Iterator[Transit]:
    """A Vault that listens while the block lasts."""
    with running(Transit()) as provider:
        yield provider


@contextlib.contextmanager
def kms() -> Iterator[Kms]:
    """A KMS that listens while the block lasts."""
    with running(Kms()) as provider:
        yield provider


@contextlib.contextmanager
def running(provider: AnyProvider) -> Iterator[AnyProvider]:
    """Listens while the block lasts."""
    provider.start()
    try:
        yield provider
    finally:
        provider.released.set()
        provider.stop()
