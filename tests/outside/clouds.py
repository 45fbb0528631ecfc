"""The clouds on loopback: servers that answer like Google Cloud Storage and Azure Blob Storage as far as a store of
blobs asks them, and the services that hand out credentials. Every request is judged by its credentials.

What they answer is written after the documents of the clouds: https://cloud.google.com/storage/docs/xml-api/overview
and https://learn.microsoft.com/en-us/rest/api/storageservices/blob-service-rest-api.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import email.utils
import hashlib
import hmac
import http.client
import itertools
import json
import re
import threading
import urllib.parse
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from xml.sax.saxutils import escape

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from outside.sigv4 import Scope, authorize, canonical_request, string_to_sign

PAGE = 3
"""Entries of one page of a listing: a store may always give fewer than it is asked for."""
PART_BYTES_MIN = 5 << 20


@dataclass(frozen=True)
class Request:
    """One request as a server reads it."""

    method: str
    target: str
    """Path and query as they were sent."""
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes

    @property
    def path(self) -> str:
        """The path as it was sent."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> dict[str, str]:
        """The query, decoded; the last of a name counts."""
        return dict(urllib.parse.parse_qsl(self.target.partition("?")[2], keep_blank_values=True))

    @property
    def form(self) -> dict[str, str]:
        """The body as a form, decoded."""
        return dict(urllib.parse.parse_qsl(self.body.decode()))


@dataclass(frozen=True)
class Answer:
    """One answer."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True)
class Stored:
    """One object of a store."""

    content: bytes
    number: int
    """Different for every writing."""
    headers: dict[str, str]

    @property
    def etag(self) -> str:
        """What tells it from others under its name."""
        return f'"0x8DC{self.number:012X}"'


class Service:
    """A server on a free port of the loopback interface."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests: list[Request] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.command, self.path, headers, body)
                with service.lock:
                    service.requests.append(request)
                    answer = service.answer(request)
                self.send_response(answer.status, answer.reason)
                lengths = {} if "content-length" in answer.headers else {"content-length": str(len(answer.body))}
                for name, value in (answer.headers | lengths).items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing: `requests` knows."""

        for method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.handle_any)

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """A client that goes away is no news."""

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        """Ends it."""
        self.server.shutdown()
        self.server.server_close()

    def answer(self, request: Request) -> Answer:
        """What it makes of a request."""
        raise NotImplementedError


def xml(text: str) -> bytes:
    """A document."""
    return f'<?xml version="1.0" encoding="utf-8"?>{text}'.encode()


class Bucket(Service):
    """What the two clouds have in common: objects, uploads in parts, and counters of what was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, Stored] = {}
        self.parts: dict[str, dict[str, bytes]] = {}
        self.asked: Counter[str] = Counter()
        self.denied = 0
        self.numbers = itertools.count(1)

    def store(self, key: str, content: bytes, request: Request) -> Stored:
        """Takes an object."""
        kept = {
            name: value
            for name, value in request.headers.items()
            if name.startswith(("x-goog-meta-", "x-ms-meta-", "cache-control", "content-type", "content-language"))
        }
        for name, value in request.headers.items():
            if name.startswith("x-ms-blob-") and name != "x-ms-blob-type":
                kept[name.removeprefix("x-ms-blob-")] = value
        self.objects[key] = Stored(content, next(self.numbers), kept)
        return self.objects[key]

    def refusal(self, status: int, code: str, reason: str | None = None) -> Answer:
        """An error the way both write it."""
        document = xml(f"<Error><Code>{code}</Code><Message>{code}, says the test</Message></Error>")
        return Answer(status, document, {"content-type": "application/xml", "x-ms-error-code": code}, reason)

    def facts(self, stored: Stored) -> dict[str, str]:
        """What stands beside content."""
        return stored.headers | {
            "etag": stored.etag,
            "last-modified": email.utils.formatdate(1_700_000_000 + stored.number, usegmt=True),
            "accept-ranges": "bytes",
        }

    def read(self, request: Request, key: str, absent: str, changed: str) -> Answer:
        """GET and HEAD of an object."""
        if (stored := self.objects.get(key)) is None:
            return self.refusal(404, absent)
        if request.headers.get("if-match", stored.etag) != stored.etag:
            return self.refusal(412, changed)
        size = len(stored.content)
        if request.method == "HEAD":
            return Answer(200, b"", self.facts(stored) | {"content-length": str(size)})
        asked = request.headers.get("range") or request.headers.get("x-ms-range")
        if asked is None:
            return Answer(200, stored.content, self.facts(stored))
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
        assert found is not None, asked
        start, end = int(found[1]), min(size, int(found[2] or size - 1) + 1)
        if start >= size:
            return self.refusal(416, "InvalidRange")
        headers = self.facts(stored) | {"content-range": f"bytes {start}-{end - 1}/{size}"}
        return Answer(206, stored.content[start:end], headers)

    def page(self, prefix: str, after: str, most: int) -> tuple[list[tuple[str, Stored]], bool]:
        """A page of a listing, and whether there are more."""
        names = sorted(name for name in self.objects if name.startswith(prefix) and name > after)
        here = names[: min(most, PAGE)]
        return [(name, self.objects[name]) for name in here], len(names) > len(here)


class Google(Bucket):
    """Google Cloud Storage: one bucket, `blobs`, and one service account that may do everything in it."""

    def __init__(self, anonymous: bool = False) -> None:
        super().__init__()
        self.anonymous = anonymous
        self.begun: dict[str, Request] = {}
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def service_account(self) -> str:
        """The key file of the service account."""
        return service_account(self.key)

    def answer(self, request: Request) -> Answer:
        """See the documents of the XML API."""
        if not (self.anonymous or self.is_authorized(request)):
            self.denied += 1
            return self.refusal(401, "AuthenticationRequired")
        bucket, _, key = urllib.parse.unquote(request.path).removeprefix("/").partition("/")
        if bucket != "blobs":
            return self.refusal(404, "NoSuchBucket")
        query = request.query
        if not key:
            return self.listing(query)
        match request.method:
            case "PUT" if "partNumber" in query:
                return self.put_part(request, query["uploadId"], query["partNumber"])
            case "PUT":
                self.asked["put"] += 1
                if request.headers.get("x-goog-if-generation-match") == "0" and key in self.objects:
                    return self.refusal(412, "PreconditionFailed")
                stored = self.store(key, request.body, request)
                return Answer(200, b"", {"etag": stored.etag, "x-goog-generation": str(stored.number)})
            case "POST" if "uploads" in query:
                upload = f"upload-{next(self.numbers)}"
                self.parts[upload], self.begun[upload] = {}, request
                text = f"<Bucket>blobs</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
                return Answer(200, xml(f"<InitiateMultipartUploadResult>{text}</InitiateMultipartUploadResult>"))
            case "POST":
                return self.complete(request, key, query["uploadId"])
            case "DELETE" if "uploadId" in query:
                self.parts.pop(query["uploadId"], None)
                return Answer(204)
            case "DELETE":
                self.asked["delete"] += 1
                gone = self.objects.pop(key, None)
                return Answer(204) if gone else self.refusal(404, "NoSuchKey")
            case _:
                self.asked["get" if request.method == "GET" else "head"] += 1
                return self.read(request, key, "NoSuchKey", "PreconditionFailed")

    def facts(self, stored: Stored) -> dict[str, str]:
        """With the generation."""
        return super().facts(stored) | {"x-goog-generation": str(stored.number)}

    def put_part(self, request: Request, upload: str, number: str) -> Answer:
        """One part of an upload."""
        self.asked["part"] += 1
        if upload not in self.parts:
            return self.refusal(404, "NoSuchUpload")
        self.parts[upload][number] = request.body
        return Answer(200, b"", {"etag": f'"{hashlib.md5(request.body).hexdigest()}"'})

    def complete(self, request: Request, key: str, upload: str) -> Answer:
        """The end of an upload: the parts that are listed, each with the ETag it was given."""
        self.asked["complete"] += 1
        if (parts := self.parts.get(upload)) is None:
            return self.refusal(404, "NoSuchUpload")
        content: list[bytes] = []
        for part in re.findall(r"<Part>(.*?)</Part>", request.body.decode(), re.DOTALL):
            number, etag = (re.search(f"<{name}>(.*?)</{name}>", part) for name in ("PartNumber", "ETag"))
            found = parts.get(number[1]) if number is not None else None
            if etag is None or found is None or hashlib.md5(found).hexdigest() not in etag[1]:
                return self.refusal(400, "InvalidPart")
            content.append(found)
        if not content:
            return self.refusal(400, "MalformedCompleteMultipartUploadRequest")
        if any(len(part) < PART_BYTES_MIN for part in content[:-1]):
            return self.refusal(400, "EntityTooSmall")
        del self.parts[upload]
        stored = self.store(key, b"".join(content), self.begun.pop(upload))
        text = f"<Bucket>blobs</Bucket><Key>{escape(key)}</Key><ETag>{escape(stored.etag)}</ETag>"
        return Answer(200, xml(f"<CompleteMultipartUploadResult>{text}</CompleteMultipartUploadResult>"))

    def listing(self, query: dict[str, str]) -> Answer:
        """Version 2 of the listing."""
        self.asked["list"] += 1
        after = query.get("continuation-token") or query.get("start-after") or ""
        entries, more = self.page(query.get("prefix", ""), after, int(query.get("max-keys", "1000")))
        found = "".join(
            f"<Contents><Key>{escape(name)}</Key><Generation>{stored.number}</Generation>"
            f"<LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>{escape(stored.etag)}</ETag>"
            f"<Size>{len(stored.content)}</Size></Contents>"
            for name, stored in entries
        )
        token = f"<NextContinuationToken>{escape(entries[-1][0])}</NextContinuationToken>" if more else ""
        truncated = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        return Answer(200, xml(f"<ListBucketResult><Name>blobs</Name>{truncated}{token}{found}</ListBucketResult>"))

    def is_authorized(self, request: Request) -> bool:
        """A token that the service account signed for this purpose (https://google.aip.dev/auth/4111)."""
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token.count(".") != 2:
            return False
        head, claims, signature = token.split(".")
        unpadded = [base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in (claims, signature)]
        with contextlib.suppress(Exception):
            message = f"{head}.{claims}".encode()
            self.key.public_key().verify(unpadded[1], message, padding.PKCS1v15(), hashes.SHA256())
            said = json.loads(unpadded[0])
            return bool(said["iss"] == ACCOUNT_EMAIL and said["scope"] == SCOPE)
        return False


SCOPE = "https://www.googleapis.com/auth/cloud-platform"
ACCOUNT_EMAIL = "deltaweir@project.iam.gserviceaccount.com"


def service_account(key: rsa.RSAPrivateKey) -> str:
    """A service account's key file."""
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    facts = {"type": "service_account", "private_key_id": "key-1", "client_email": ACCOUNT_EMAIL}
    return json.dumps(facts | {"private_key": pem.decode()})


class Azure(Bucket):
    """Azure Blob Storage: the container `blobs` of the account `deltaweir`, and Entra ID for its directory."""

    account = "deltaweir"
    key = base64.b64encode(b"the account's key, as good as any").decode()
    sas = "sv=2023-11-03&sr=c&sp=racwdl&sig=c2lnbmF0dXJl"
    tenant, client, secret, federated = "tenant-1", "client-1", "application-secret", "federated-token"
    token = "token-of-entra"

    @property
    def endpoint(self) -> str:
        """The account's address."""
        return f"{self.address}/{self.account}"

    def answer(self, request: Request) -> Answer:
        """See the documents of the Blob service."""
        if request.path == f"/{self.tenant}/oauth2/v2.0/token":
            return self.exchange(request)
        if not self.is_authorized(request):
            self.denied += 1
            return self.refusal(403, "AuthenticationFailed")
        account, _, rest = urllib.parse.unquote(request.path).removeprefix("/").partition("/")
        container, _, key = rest.partition("/")
        if account != self.account or container != "blobs":
            return self.refusal(404, "ContainerNotFound")
        query = request.query
        comp = query.get("comp")
        match request.method:
            case "POST" if comp == "batch":
                return self.batch(request)
            case "GET" if comp == "list":
                return self.listing(query)
            case "PUT" if comp == "block":
                self.asked["part"] += 1
                self.parts.setdefault(key, {})[query["blockid"]] = request.body
                return Answer(201)
            case "PUT" if comp == "blocklist":
                self.asked["complete"] += 1
                blocks = self.parts.get(key, {})
                named = re.findall(r"<Uncommitted>(.*?)</Uncommitted>", request.body.decode())
                if any(name not in blocks for name in named):
                    return self.refusal(400, "InvalidBlockList")
                self.parts.pop(key, None)
                return self.created(self.store(key, b"".join(blocks[name] for name in named), request))
            case "PUT":
                self.asked["put"] += 1
                assert request.headers["x-ms-blob-type"] == "BlockBlob"
                if request.headers.get("if-none-match") == "*" and key in self.objects:
                    return self.refusal(409, "BlobAlreadyExists")
                return self.created(self.store(key, request.body, request))
            case _:
                self.asked["get" if request.method == "GET" else "head"] += 1
                return self.read(request, key, "BlobNotFound", "ConditionNotMet")

    def created(self, stored: Stored) -> Answer:
        """A blob was written."""
        return Answer(201, b"", self.facts(stored))

    def batch(self, request: Request) -> Answer:
        """Several removals, each with credentials of its own."""
        boundary = request.headers["content-type"].partition("boundary=")[2]
        answers = []
        for part in request.body.decode().split(f"--{boundary}\r\n")[1:]:
            number = re.search(r"content-id: *(\d+)", part, re.IGNORECASE)
            inner = re.search(r"DELETE (\S+) HTTP/1\.1\r\n(.*?)\r\n\r\n", part, re.DOTALL)
            assert number is not None and inner is not None, part
            lines = (line.partition(":") for line in inner[2].split("\r\n"))
            headers = {name.strip().lower(): value.strip() for name, _, value in lines}
            target = inner[1] if inner[1].startswith(f"/{self.account}/") else f"/{self.account}{inner[1]}"
            removal = Request("DELETE", target, headers, b"")
            status = self.remove(removal)
            answers.append(
                f"--batchresponse_1\r\nContent-Type: application/http\r\nContent-ID: {number[1]}\r\n\r\n"
                f"HTTP/1.1 {status}\r\nx-ms-version: 2023-11-03\r\n\r\n"
            )
        body = "".join([*answers, "--batchresponse_1--\r\n"]).encode()
        return Answer(202, body, {"content-type": "multipart/mixed; boundary=batchresponse_1"})

    def remove(self, request: Request) -> str:
        """One removal of a batch: the status line it is answered with."""
        self.asked["delete"] += 1
        if not self.is_authorized(request):
            self.denied += 1
            return "403 Server failed to authenticate the request."
        key = urllib.parse.unquote(request.path).removeprefix(f"/{self.account}/blobs/")
        gone = self.objects.pop(key, None)
        return "202 Accepted" if gone else "404 The specified blob does not exist."

    def listing(self, query: dict[str, str]) -> Answer:
        """List Blobs."""
        self.asked["list"] += 1
        entries, more = self.page(query.get("prefix", ""), query.get("marker", ""), int(query.get("maxresults", 5000)))
        found = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties>"
            f"<Last-Modified>{self.facts(stored)['last-modified']}</Last-Modified>"
            f"<Etag>{escape(stored.etag)}</Etag><Content-Length>{len(stored.content)}</Content-Length>"
            f"<Content-Type>application/octet-stream</Content-Type><BlobType>BlockBlob</BlobType>"
            "</Properties></Blob>"
            for name, stored in entries
        )
        marker = f"<NextMarker>{escape(entries[-1][0])}</NextMarker>" if more else "<NextMarker />"
        return Answer(200, xml(f"<EnumerationResults><Blobs>{found}</Blobs>{marker}</EnumerationResults>"))

    def exchange(self, request: Request) -> Answer:
        """Entra ID: a secret or the token of another provider for a token of its own."""
        form = request.form
        is_application = form.get("client_id") == self.client and form.get("grant_type") == "client_credentials"
        proves = form.get("client_secret") == self.secret or form.get("client_assertion") == self.federated
        if not (is_application and proves):
            return Answer(401, b'{"error": "invalid_client"}', {"content-type": "application/json"})
        self.asked["exchange"] += 1
        told = {"access_token": self.token, "token_type": "Bearer", "expires_in": 3600}
        return Answer(200, json.dumps(told).encode(), {"content-type": "application/json"})

    def is_authorized(self, request: Request) -> bool:
        """By a token, by the shared access signature, or by a signature with the account's key."""
        said = request.headers.get("authorization", "")
        if said == f"Bearer {self.token}":
            return True
        if said.startswith("SharedKey "):
            return hmac.compare_digest(said, f"SharedKey {self.account}:{self.signature(request)}")
        expected = dict(urllib.parse.parse_qsl(self.sas))
        return expected.items() <= request.query.items()

    def signature(self, request: Request) -> str:
        """https://learn.microsoft.com/en-us/rest/api/storageservices/authorize-with-shared-key"""
        names = (
            "content-encoding content-language content-length content-md5 content-type date if-modified-since "
            "if-match if-none-match if-unmodified-since range"
        )
        standard = [request.headers.get(name, "") for name in names.split()]
        standard[2] = "" if standard[2] == "0" else standard[2]
        own = sorted((name, value) for name, value in request.headers.items() if name.startswith("x-ms-"))
        resource = f"/{self.account}{request.path}" + "".join(
            f"\n{name.lower()}:{value}" for name, value in sorted(request.query.items())
        )
        text = "\n".join([request.method, *standard, *(f"{name}:{value}" for name, value in own), resource])
        digest = hmac.new(base64.b64decode(self.key), text.encode(), hashlib.sha256).digest()
        return base64.b64encode(digest).decode()


class Amazon(Service):
    """The services of AWS that hand out credentials: STS for others' tokens, the metadata service for machines."""

    web_identity_token = "token-of-the-cluster"
    role = "arn:aws:iam::123456789012:role/deltaweir"
    pair: ClassVar = {"AccessKeyId": "ASIATEMPORARY", "SecretAccessKey": "a-temporary-secret"}
    session = "session-of-these-keys"

    def __init__(self) -> None:
        self.handed_out: Counter[str] = Counter()
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """AssumeRoleWithWebIdentity, and version 2 of the metadata service."""
        if (token := request.headers.get("x-aws-ec2-metadata-token")) is not None:
            return self.metadata(request.path, token)
        if request.method == "PUT" and request.path == "/latest/api/token":
            return Answer(200, b"session-of-the-machine")
        asked = request.query | request.form
        if asked.get("Action") != "AssumeRoleWithWebIdentity":
            return Answer(400, xml("<ErrorResponse><Error><Code>InvalidAction</Code></Error></ErrorResponse>"))
        if (asked.get("WebIdentityToken"), asked.get("RoleArn")) != (self.web_identity_token, self.role):
            return Answer(403, xml("<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"))
        self.handed_out["web identity"] += 1
        told = self.pair | {"SessionToken": self.session, "Expiration": "2099-01-01T00:00:00Z"}
        credentials = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in told.items())
        document = f"<Credentials>{credentials}</Credentials>"
        for element in ("AssumeRoleWithWebIdentityResult", "AssumeRoleWithWebIdentityResponse"):
            document = f"<{element}>{document}</{element}>"
        return Answer(200, xml(document))

    def metadata(self, path: str, token: str) -> Answer:
        """The role of the machine, for who has a session."""
        if token != "session-of-the-machine":
            return Answer(401)
        if path == "/latest/meta-data/iam/security-credentials/":
            return Answer(200, b"role-of-the-machine")
        if path != "/latest/meta-data/iam/security-credentials/role-of-the-machine":
            return Answer(404)
        self.handed_out["instance"] += 1
        told = {"Code": "Success", "Type": "AWS-HMAC", "Expiration": "2099-01-01T00:00:00Z", "Token": self.session}
        return Answer(200, json.dumps(told | self.pair | {"LastUpdated": "2026-01-01T00:00:00Z"}).encode())


class TemporaryKeys(Service):
    """An S3 store that knows nobody but the holders of the temporary keys that [`Amazon`] hands out: it judges their
    signatures, and has another store do the work."""

    def __init__(self, behind: str) -> None:
        self.behind = urllib.parse.urlsplit(behind).netloc
        self.denied = 0
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """What the other store says, to who may ask it."""
        if not self.is_authorized(request):
            self.denied += 1
            return Answer(403, xml("<Error><Code>InvalidAccessKeyId</Code><Message>unknown</Message></Error>"))
        kept = [
            (name, value)
            for name, value in request.headers.items()
            if name.startswith(("x-amz-", "if-", "range", "content-type"))
            and name not in ("x-amz-date", "x-amz-content-sha256", "x-amz-security-token")
        ]
        payload = request.headers["x-amz-content-sha256"]
        headers, _ = authorize(Scope(), request.method, request.target, [("host", self.behind), *kept], payload)
        connection = http.client.HTTPConnection(self.behind, timeout=60)
        with contextlib.closing(connection):
            connection.request(request.method, request.target, request.body, dict(headers))
            told = connection.getresponse()
            dropped = ("transfer-encoding", "connection", "date", "server")
            answered = {name: value for name, value in told.getheaders() if name.lower() not in dropped}
            body = told.read()
        lengths = {name.lower(): value for name, value in answered.items() if name.lower() == "content-length"}
        rest = {name: value for name, value in answered.items() if name.lower() != "content-length"}
        return Answer(told.status, body, rest | (lengths if request.method == "HEAD" else {}))

    def is_authorized(self, request: Request) -> bool:
        """Signed with the temporary keys, their session among what was signed."""
        said = request.headers.get("authorization", "")
        fields = dict(re.findall(r"(Credential|SignedHeaders|Signature)=([^, ]+)", said))
        names = fields.get("SignedHeaders", "").split(";")
        if "x-amz-security-token" not in names or request.headers["x-amz-security-token"] != Amazon.session:
            return False
        time = datetime.datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
        scope = Scope(Amazon.pair["AccessKeyId"], Amazon.pair["SecretAccessKey"], time=time)
        payload = request.headers["x-amz-content-sha256"]
        headers = list(request.headers.items())
        canonical = canonical_request(request.method, request.target, headers, names, payload)
        expected = f"{scope.key_id}/{scope.path}", scope.sign(string_to_sign(scope, canonical))
        return (fields["Credential"], fields["Signature"]) == expected
