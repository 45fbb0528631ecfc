"""A small S3 store with an admin API, which can be told to misbehave: every guard must be seen to fire against it.

It verifies signatures by its own reading of the SigV4 specification, keeps blobs as files, compresses with zlib (its
"delta"), deduplicates by digest, and "encrypts" with a keystream. As a program it takes the place of the real binary:

    fake_store.py serve --config FILE          (faults from the environment variable FAKE_FAULTS, comma-separated)
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import os
import re
import secrets
import signal
import sys
import threading
import time
import tomllib
import urllib.parse
import zlib
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.sax.saxutils import escape

HEADER_BYTES = 64
PAGE_KEYS = 20


@dataclass
class Stored:
    """One object."""

    key: str
    data: bytes
    etag: str
    form: str
    blob: str
    stored_bytes: int
    order: int


@dataclass
class Bucket:
    compression: str = "off"
    encryption: str = "off"
    objects: dict[str, Stored] = field(default_factory=dict)
    digests: dict[str, Stored] = field(default_factory=dict)


class Store:
    """The state, shared by the two listeners."""

    def __init__(
        self, data_dir: Path, settings: dict[str, dict[str, str]], credentials: tuple[str, str], faults: set[str]
    ) -> None:
        self.data_dir, self.credentials, self.faults = data_dir, credentials, faults
        self.settings = settings
        self.blobs = data_dir / "blobs"
        self.blobs.mkdir(parents=True, exist_ok=True)
        self.buckets: dict[str, Bucket] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.lock = threading.Lock()
        self.requests = 0
        self.scrapes = 0
        self.gets = 0
        self.puts = 0
        self.saved = {"dedup": 0, "zstd": 0, "delta": 0}
        self.plan = {"told": 0, "deferred": 0}
        self.waiting: list[tuple[Bucket, str, str]] = []
        self.started = time.time()
        self.state = data_dir / "state.json"

    def fault(self, name: str) -> bool:
        return name in self.faults

    def create(self, name: str) -> None:
        chosen = self.settings.get(name, {})
        compression = chosen.get("compression", "off")
        if self.fault("wrong-mode"):
            compression = "delta" if compression == "off" else "off"
        self.buckets.setdefault(name, Bucket(compression, chosen.get("encryption", "off")))

    def settle(self) -> None:
        """Encodes what was put off."""
        for bucket, name, key in self.waiting:
            if (found := bucket.objects.get(key)) is not None:
                self.put(bucket, name, key, found.data, again=True)
        self.waiting = []

    def put(self, bucket: Bucket, name: str, key: str, data: bytes, again: bool = False) -> Stored:
        """Reduces, seals and writes one object."""
        digest = hashlib.sha256(data).hexdigest()
        form, payload, blob = "raw", data, f"{secrets.token_hex(16)}.blob"
        twin = None if again else bucket.digests.get(digest)
        similar = any(k.rpartition("/")[0] == key.rpartition("/")[0] for k in bucket.objects)
        later = self.fault("defers") and similar and twin is None and bucket.compression != "off" and not again
        if later:
            self.waiting.append((bucket, name, key))
        if not again:
            self.plan["deferred" if later else "told"] += 1
        if bucket.compression != "off" and not self.fault("zero-saving") and not later:
            packed = zlib.compress(data, 1)
            if twin is not None or (self.fault("contaminated") and similar):
                form, payload = "dedup", b""
            elif len(packed) < len(data):
                form, payload = ("delta" if similar else "zstd"), packed
        if self.fault("grow") and form == "raw":
            payload = data + data[: len(data) // 5]
        if form != "raw":
            self.saved[form] += len(data) - len(payload)
        sealed = payload
        if bucket.encryption == "aes256" and not self.fault("plaintext"):
            sealed = keystream(blob, payload)
        if bucket.encryption == "off" and self.fault("hidden-plaintext"):
            sealed = keystream(blob, payload)
        named = key.encode() if self.fault("plaintext-name") else b""
        if form != "dedup":
            (self.blobs / blob).write_bytes((b"FAKE" + named).ljust(HEADER_BYTES, b"\0") + sealed)
        elif twin is not None:
            blob = twin.blob
        etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        stored = Stored(
            key, data, etag, form, blob, len(payload) + (HEADER_BYTES if form != "dedup" else 0), len(bucket.objects)
        )
        old = bucket.objects.get(key)
        bucket.objects[key] = stored
        if old is not None:
            self._unlink(bucket, old)
        bucket.digests[digest] = stored
        return stored

    def delete(self, bucket: Bucket, key: str) -> None:
        old = bucket.objects.pop(key, None)
        if old is not None:
            self._unlink(bucket, old)

    def _unlink(self, bucket: Bucket, old: Stored) -> None:
        bucket.digests = {d: s for d, s in bucket.digests.items() if s is not old}
        if not any(s.blob == old.blob for s in bucket.objects.values()):
            (self.blobs / old.blob).unlink(missing_ok=True)

    def stats(self) -> dict[str, object]:
        accounts = []
        totals = {"exclusive": 0, "overhead": 0, "total": 0}
        logical = objects = 0
        for name, bucket in self.buckets.items():
            kept = {s.blob for s in bucket.objects.values() if (self.blobs / s.blob).exists()}
            sizes = sum((self.blobs / blob).stat().st_size for blob in kept)
            parts = {
                "exclusive": sizes - HEADER_BYTES * len(kept),
                "overhead": HEADER_BYTES * len(kept),
                "total": sizes,
            }
            if self.fault("identity"):
                parts["total"] += 7
            account_logical = sum(len(s.data) for s in bucket.objects.values())
            stored = {"shared": 0, "base_only": 0, "tombstoned": 0, "inline": 0, **parts}
            accounts.append(
                {"name": name, "objects": len(bucket.objects), "logical_bytes": account_logical, "stored": stored}
            )
            totals = {k: totals[k] + parts[k] for k in totals}
            logical += account_logical
            objects += len(bucket.objects)
        stored = {"shared": 0, "base_only": 0, "tombstoned": 0, "inline": 0, **totals}
        said = totals["total"] - (7 * len(self.buckets) if self.fault("identity") else 0)
        said += 1_000_000 if self.fault("backend-lies") else 0
        return {
            "buckets": accounts,
            "totals": {"objects": objects, "logical_bytes": logical, "stored": stored},
            "backends": [{"name": "local", "stored_bytes": said, "blobs": len(list(self.blobs.iterdir()))}],
        }

    def metrics(self) -> str:
        self.scrapes += 1
        requests = self.requests
        started = self.started
        if self.fault("counter-reset") and self.scrapes > 1:
            requests = 0
        if self.fault("silent-restart") and self.scrapes > 1:
            started += 100
        lines = [
            "# TYPE deltaweir_http_requests_total counter",
            f'deltaweir_http_requests_total{{op="any",code="200"}} {requests}',
            "# TYPE process_start_time_seconds gauge",
            f"process_start_time_seconds {started}",
            "# TYPE process_cpu_seconds_total counter",
            f"process_cpu_seconds_total {time.process_time()}",
            "# TYPE process_resident_memory_bytes gauge",
            "process_resident_memory_bytes 50000000",
            "# TYPE deltaweir_effort_level gauge",
            "deltaweir_effort_level 2",
            "# TYPE deltaweir_saved_bytes_total counter",
            *(f'deltaweir_saved_bytes_total{{stage="{stage}"}} {saved}' for stage, saved in self.saved.items()),
            "# TYPE deltaweir_plan_total counter",
            *(f'deltaweir_plan_total{{form="any",reason="{reason}"}} {count}' for reason, count in self.plan.items()),
            "# TYPE deltaweir_bucket_stored_bytes gauge",
        ]
        for account in self.stats()["buckets"]:  # type: ignore[union-attr]
            parts = account["stored"]
            extra = 1_000_000 if self.fault("metrics-lie") else 0
            for kind, value in (("whole", parts["exclusive"] + extra), ("overhead", parts["overhead"])):
                lines.append(f'deltaweir_bucket_stored_bytes{{bucket="{account["name"]}",kind="{kind}"}} {value}')
        return "\n".join(lines) + "\n"


def keystream(seed: str, data: bytes) -> bytes:
    stream = hashlib.shake_256(seed.encode()).digest(len(data))
    return (int.from_bytes(stream, "little") ^ int.from_bytes(data, "little")).to_bytes(len(data), "little")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: tests read answers, not logs."""

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(6, 1, 1)

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        head = [
            f"HTTP/1.1 {status} X",
            f"Content-Length: {len(body)}",
            *(f"{k}: {v}" for k, v in (headers or {}).items()),
        ]
        head.append(f"Date: {self.date_time_string()}")
        self.wfile.write(("\r\n".join(head) + "\r\n\r\n").encode() + (b"" if self.command == "HEAD" else body))


class S3Handler(_Handler):
    """The S3 listener."""

    def handle_any(self) -> None:
        store = self.store
        split = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with store.lock:
            store.requests += 1
        problem = self.signature_problem(split, body)
        if problem:
            return self.error(403, "SignatureDoesNotMatch", problem)
        _, name, *rest = split.path.split("/", 2)
        key = urllib.parse.unquote(rest[0]) if rest else ""
        name = urllib.parse.unquote(name)
        if not name:
            return self.answer(200, b"<ListAllMyBucketsResult></ListAllMyBucketsResult>")
        if not key:
            return self.bucket_request(name, query)
        if name not in store.buckets:
            return self.error(404, "NoSuchBucket", name)
        return self.object_request(store.buckets[name], name, key, query, body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_any

    def bucket_request(self, name: str, query: dict[str, str]) -> None:
        store = self.store
        if self.command == "PUT":
            with store.lock:
                store.create(name)
            return self.answer(200)
        if name not in store.buckets:
            return self.error(404, "NoSuchBucket", name)
        if self.command == "GET":
            return self.answer(200, self.listing(store.buckets[name], query))
        return self.answer(200)

    def listing(self, bucket: Bucket, query: dict[str, str]) -> bytes:
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        keys = sorted(k for k in bucket.objects if k.startswith(prefix) and k > after)
        page = keys[:PAGE_KEYS]
        entries = []
        for key in page:
            found = bucket.objects[key]
            size = found.stored_bytes if self.store.fault("list-stored-size") else len(found.data)
            entries.append(
                f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size><ETag>&quot;{found.etag}&quot;</ETag></Contents>"
            )
        more = len(keys) > len(page)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        head = '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        return (
            f"{head}<IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(entries)}</ListBucketResult>".encode()
        )

    def object_request(self, bucket: Bucket, name: str, key: str, query: dict[str, str], body: bytes) -> None:
        store = self.store
        if "uploads" in query:
            upload = secrets.token_hex(8)
            store.uploads[upload] = {}
            return self.answer(200, f"<R><UploadId>{upload}</UploadId></R>".encode())
        if "partNumber" in query:
            store.uploads[query["uploadId"]][int(query["partNumber"])] = body
            return self.answer(200, headers={"ETag": f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'})
        if "uploadId" in query:
            parts = store.uploads.pop(query["uploadId"])
            with store.lock:
                store.put(bucket, name, key, b"".join(parts[n] for n in sorted(parts)))
            return self.answer(200, b"<R><ETag>&quot;abc-2&quot;</ETag></R>")
        if self.command == "PUT":
            return self.put(bucket, name, key, body)
        if self.command == "DELETE":
            with store.lock:
                store.delete(bucket, key)
            return self.answer(204)
        found = bucket.objects.get(key)
        if found is None:
            return self.error(404, "NoSuchKey", key)
        headers = self.object_headers(found)
        if self.command == "HEAD":
            head = [f"{k}: {v}" for k, v in {**headers, "Content-Length": str(len(found.data))}.items()]
            self.wfile.write(("\r\n".join(["HTTP/1.1 200 OK", *head]) + "\r\n\r\n").encode())
            return None
        return self.get(found, headers)

    def put(self, bucket: Bucket, name: str, key: str, body: bytes) -> None:
        store = self.store
        store.puts += 1
        if store.fault("put-fails") and store.puts == 3:
            return self.error(400, "InvalidRequest", "told to fail")
        if store.fault("slow-down-once") and store.puts == 2:
            return self.error(503, "SlowDown", "told to")
        with store.lock:
            stored = store.put(bucket, name, key, body)
        return self.answer(200, headers=self.object_headers(stored))

    def object_headers(self, found: Stored) -> dict[str, str]:
        etag = "0" * 32 if self.store.fault("wrong-etag") else found.etag
        headers = {"ETag": f'"{etag}"'}
        if not self.store.fault("no-storage-headers"):
            headers |= {"x-deltaweir-form": found.form, "x-deltaweir-stored-bytes": str(found.stored_bytes)}
            headers["x-deltaweir-reason"] = "told"
        return headers

    def get(self, found: Stored, headers: dict[str, str]) -> None:
        store, data, status = self.store, found.data, 200
        store.gets += 1
        if match := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            data, status = data[int(match[1]) : int(match[2]) + 1], 206
        odd = store.gets % 5 == 3
        if store.fault("wrong-bytes") and odd:
            data = bytes([data[0] ^ 1]) + data[1:]
        if store.fault("delayed-ack") and store.gets % 3 == 0:
            time.sleep(0.0405)
        if store.fault("stall") and odd:
            time.sleep(3)
        if odd and (store.fault("cut") or store.fault("gap")):
            head = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
            self.wfile.write(f"HTTP/1.1 {status} OK\r\nContent-Length: {len(data)}\r\n{head}\r\n".encode())
            self.wfile.write(data[: len(data) // 2])
            if store.fault("cut"):
                self.close_connection = True
                return None
            time.sleep(1.15)
            self.wfile.write(data[len(data) // 2 :])
            return None
        return self.answer(status, data, headers)

    def error(self, status: int, code: str, message: str) -> None:
        self.answer(status, f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>".encode())

    def signature_problem(self, split: urllib.parse.SplitResult, body: bytes) -> str:
        """Signature Version 4 by the letter of its specification; an empty string when the request is genuine."""
        access, secret = self.store.credentials
        match = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?"
            r"SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})",
            self.headers.get("Authorization", ""),
        )
        if not match:
            return "no signature"
        key_id, day, region, names, signature = match.groups()
        payload = self.headers.get("x-amz-content-sha256", "")
        if key_id != access:
            return "unknown access key"
        if payload != "UNSIGNED-PAYLOAD" and payload != hashlib.sha256(body).hexdigest():
            return "the payload has another SHA-256"
        when = self.headers.get("x-amz-date", "")
        signed_at = datetime.datetime.strptime(when, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
        if abs((datetime.datetime.now(datetime.UTC) - signed_at).total_seconds()) > 900:
            return "RequestTimeTooSkewed"
        pairs = sorted(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
        query = "&".join(f"{urllib.parse.quote(k, safe='-_.~')}={urllib.parse.quote(v, safe='-_.~')}" for k, v in pairs)
        headers = "".join(f"{n}:{' '.join(self.headers.get(n, '').split())}\n" for n in names.split(";"))
        canonical = "\n".join([self.command, split.path, query, headers, names, payload])
        scope = f"{day}/{region}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", when, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        secret_bytes = f"AWS4{secret}".encode()
        for part in (day, region, "s3", "aws4_request"):
            secret_bytes = hmac.digest(secret_bytes, part.encode(), "sha256")
        right = hmac.digest(secret_bytes, text.encode(), "sha256").hex()
        return "" if hmac.compare_digest(right, signature) else f"the signature should be of {canonical!r}"


class AdminHandler(_Handler):
    """The admin listener."""

    def handle_any(self) -> None:
        store, path = self.store, urllib.parse.urlsplit(self.path).path
        with store.lock:
            if path == "/readyz":
                return self.answer(200, b"ok")
            if path == "/metrics":
                return self.answer(200, store.metrics().encode())
            if path == "/api/v1/stats":
                return self.answer(200, json.dumps(store.stats()).encode())
            if path == "/api/v1/buckets":
                listed = [
                    {"name": n, "compression": b.compression, "encryption": b.encryption}
                    for n, b in store.buckets.items()
                ]
                return self.answer(200, json.dumps({"buckets": listed}).encode())
            if path == "/api/v1/settle":
                store.settle()
                return self.answer(200, json.dumps({"settled": not store.fault("never-settles")}).encode())
            if path == "/api/v1/gc" and self.command == "POST":
                return self.answer(200, b"{}")
            if path == "/api/v1/cache/drop":
                return self.answer(204 if self.command == "POST" else 405)
        return self.answer(404)

    do_GET = do_POST = handle_any


class Listeners:
    """The two listeners of a store, in threads."""

    def __init__(self, store: Store, s3_port: int = 0, admin_port: int = 0) -> None:
        self.servers = []
        for port, kind in ((s3_port, S3Handler), (admin_port, AdminHandler)):
            handler = type(kind.__name__, (kind,), {"store": store})
            server = ThreadingHTTPServer(("127.0.0.1", port), handler)
            server.daemon_threads = True
            self.servers.append(server)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def s3_port(self) -> int:
        return self.servers[0].server_address[1]

    @property
    def admin_port(self) -> int:
        return self.servers[1].server_address[1]

    def close(self) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()


def _save(store: Store) -> None:
    """Keeps the catalog over a restart, sealed by the keystream so that no plaintext of objects is in it."""
    state = {}
    for name, b in store.buckets.items():
        objects = [
            [s.key, keystream(s.blob, s.data).hex(), s.etag, s.form, s.blob, s.stored_bytes] for s in b.objects.values()
        ]
        state[name] = {"compression": b.compression, "encryption": b.encryption, "objects": objects}
    store.state.write_text(json.dumps(state))


def _load(store: Store) -> None:
    for name, saved in json.loads(store.state.read_text()).items():
        bucket = Bucket(saved["compression"], saved["encryption"])
        for order, (key, data, etag, form, blob, stored_bytes) in enumerate(saved["objects"]):
            plain = keystream(blob, bytes.fromhex(data))
            bucket.objects[key] = Stored(key, plain, etag, form, blob, stored_bytes, order)
            bucket.digests[hashlib.sha256(plain).hexdigest()] = bucket.objects[key]
        store.buckets[name] = bucket


def _delta(arguments: list[str]) -> int:
    """`delta encode|decode|info`: zlib in the place of a delta codec."""
    command, *rest = arguments
    if "--help" in rest:
        return 0
    paths = [Path(a) for n, a in enumerate(rest) if not a.startswith("--") and (n == 0 or rest[n - 1] != "--effort")]
    if command == "encode":
        paths[2].write_bytes(zlib.compress(paths[1].read_bytes()))
    elif command == "decode":
        paths[2].write_bytes(zlib.decompress(paths[1].read_bytes()))
    else:
        stored = paths[0].stat().st_size
        print(
            json.dumps(
                {
                    "instruction_bytes_stored": 10,
                    "sub_bytes": 0,
                    "literal_bytes": stored * 3,
                    "literal_bytes_stored": stored,
                }
            )
        )
    return 0


def main() -> int:
    if sys.argv[1:2] == ["--version"]:
        print("deltaweir 0.0.0-fake")
        return 0
    if sys.argv[1:2] == ["delta"]:
        return _delta(sys.argv[2:])
    assert sys.argv[1:3] == ["serve", "--config"], sys.argv
    config = tomllib.loads(Path(sys.argv[3]).read_text())
    assert config["storage"]["backend"] == "local" and config["server"]["storage_headers"] is True
    assert len(os.environ["DELTAWEIR_KEK"]) == 44
    credentials = (os.environ["DELTAWEIR_ACCESS_KEY_ID"], os.environ["DELTAWEIR_SECRET_ACCESS_KEY"])
    faults = set(filter(None, os.environ.get("FAKE_FAULTS", "").split(",")))
    store = Store(Path(config["storage"]["data"]), config.get("buckets", {}), credentials, faults)
    if store.state.exists():
        _load(store)
    # Waited for in a call, not in a handler: a handler that sets an event may interrupt the wait for that very event.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    ports = [int(config["server"][name].rpartition(":")[2]) for name in ("listen", "admin_listen")]
    listeners = Listeners(store, *ports)
    signal.sigwait({signal.SIGTERM})
    listeners.close()
    _save(store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
