"""A worker process: one connection, a list of operations, a row per operation.

The parent says `prepare` (open files, hash parts, sign), then `go`; so the time between the two is on nobody's clock.
Checking what a GET returned happens after its last byte was stamped, against the artifact's own file.
"""

from __future__ import annotations

import hashlib
import mmap
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import numpy as np

from taxbench.client.connection import Body, Exchange, ExchangeError, TimedConnection
from taxbench.client.endpoint import Endpoint
from taxbench.client.operation import Operation, Sample
from taxbench.client.sigv4 import SignedHead, sign

PROGRESS_EVERY_S = 0.1
RETRY_STATUS = frozenset({500, 502, 503, 504})
RETRY_FIRST_DELAY_S = 0.1
OPEN_FILES_MAX = 64


@dataclass(frozen=True, slots=True)
class Prepare:
    """Get ready for these operations; answer with `Ready`."""

    operations: list[Operation]
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Go:
    """Run what was prepared."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection, because the server is about to be restarted."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Everything that can be done before the clock starts is done."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Operations and payload bytes since the last report."""

    operations: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The rows, in the order the operations ran, and the CPU time the worker spent on them."""

    samples: list[Sample]
    cpu_s: float


@dataclass
class Worker:
    """The state of one worker process."""

    number: int
    buffer: memoryview
    connection: TimedConnection
    _files: dict[str, BinaryIO] = field(default_factory=dict)

    @property
    def endpoint(self) -> Endpoint:
        return self.connection.endpoint

    def run_one(self, op: Operation, signed: SignedHead | None) -> Sample:
        """Runs one operation to its end and checks what came back. Never raises for what a server does."""
        sample = Sample(
            phase=op.phase,
            kind=op.kind,
            worker=self.number,
            key=op.key,
            artifact=op.artifact,
            family=op.family,
            role=op.role,
            version_order=op.version_order,
            logical_bytes=op.size,
            start_s=time.perf_counter(),
        )
        try:
            if op.kind == "multipart":
                self._multipart(op, sample)
            else:
                self._single(op, signed, sample)
        except ExchangeError as error:
            sample.total_s = time.perf_counter() - sample.start_s
            sample.error = str(error)
        except OSError as error:
            sample.total_s = time.perf_counter() - sample.start_s
            sample.error = f"client side: {error}"
        return sample

    def sign(self, op: Operation) -> SignedHead | None:
        """The signed head of a single-request operation; a multipart upload signs as it goes."""
        if op.kind == "multipart":
            return None
        path = self.endpoint.path(op.bucket, "" if op.kind == "list" else op.key)
        if op.kind == "put":
            return sign(self.endpoint, "PUT", path, body_len=op.size, body_sha256=op.sha256)
        if op.kind == "range":
            return sign(self.endpoint, "GET", path, headers={"Range": f"bytes={op.offset}-{op.offset + op.length - 1}"})
        if op.kind == "list":
            return sign(self.endpoint, "GET", path, query=list_query(op.key))
        return sign(self.endpoint, {"get": "GET", "head": "HEAD", "delete": "DELETE"}[op.kind], path)

    def _single(self, op: Operation, signed: SignedHead | None, sample: Sample) -> None:
        if signed is None or signed.stale:
            signed = self.sign(op)
            assert signed is not None
        body = Body(file=self._open(op.content_path), length=op.size) if op.kind == "put" else Body()
        sink = self.buffer if op.kind in ("get", "range") else None
        answer = self._with_retries(signed, body, sink, op.pace_bytes_per_s, sample)
        _note_headers(sample, answer)
        accepted = {"range": (206,), "delete": (200, 204), "put": (200, 201, 204)}.get(op.kind, (200,))
        if answer.status not in accepted:
            sample.error = f"HTTP {answer.status}: {answer.small_body[:200].decode('utf-8', 'replace')}"
            return
        if op.kind in ("get", "range"):
            sample.payload_bytes = answer.body_len
            self._check_body(op, answer, sample)
        elif op.kind == "put":
            sample.payload_bytes = op.size
            _check_etag(op, sample, self.endpoint)
        elif op.kind == "head":
            self._check_head(op, answer, sample)
        elif op.kind == "list":
            self._list_rest(op, answer, sample)

    def _with_retries(
        self, head: SignedHead, body: Body, sink: memoryview | None, pace: float, sample: Sample
    ) -> Exchange:
        """Repeats what may be repeated; the sample's clock keeps running through every attempt."""
        delay_s = RETRY_FIRST_DELAY_S
        while True:
            try:
                answer = self.connection.exchange(head, body, sink, pace)
            except ExchangeError as error:
                if not error.before_answer or sample.retries >= self.endpoint.retries:
                    raise
            else:
                if answer.status not in RETRY_STATUS or sample.retries >= self.endpoint.retries:
                    sample.connect_s += answer.connect_s
                    sample.ttfb_s = answer.ttfb_s
                    sample.max_gap_s = max(sample.max_gap_s, answer.max_gap_s)
                    sample.status = answer.status
                    # Without retries this is the exchange's own clock; with them it is everything since the start.
                    sample.total_s = (
                        time.perf_counter() - sample.start_s
                        if sample.retries or sample.kind == "multipart"
                        else answer.total_s
                    )
                    return answer
            sample.retries += 1
            time.sleep(delay_s)
            delay_s *= 2

    def _multipart(self, op: Operation, sample: Sample) -> None:
        """Create, every part in order, complete: timed as one operation, the way an SDK's caller waits for it."""
        path = self.endpoint.path(op.bucket, op.key)
        file = self._open(op.content_path)
        parts = list(_part_hashes(file, op.size, op.part_size))
        sample.start_s = time.perf_counter()
        created = self._ask(sample, sign(self.endpoint, "POST", path, query="uploads="))
        first_byte_s = sample.ttfb_s
        upload_id = _xml_text(created.small_body, "UploadId")
        etags = []
        for number, (offset, length, digest) in enumerate(parts, start=1):
            query = f"partNumber={number}&uploadId={quote(upload_id, safe='')}"
            head = sign(self.endpoint, "PUT", path, query=query, body_len=length, body_sha256=digest)
            etags.append(self._ask(sample, head, Body(file=file, offset=offset, length=length)).headers.get("etag", ""))
        listed = "".join(
            f"<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>" for n, etag in enumerate(etags, start=1)
        )
        xml = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        query = f"uploadId={quote(upload_id, safe='')}"
        head = sign(
            self.endpoint, "POST", path, query=query, body_len=len(xml), body_sha256=hashlib.sha256(xml).hexdigest()
        )
        done = self._ask(sample, head, Body(data=xml, length=len(xml)))
        sample.ttfb_s = first_byte_s
        if b"<Error>" in done.small_body:
            raise ExchangeError(f"complete failed: {done.small_body[:200]!r}", before_answer=False)
        sample.etag = _xml_text(done.small_body, "ETag")
        sample.payload_bytes = op.size

    def _ask(self, sample: Sample, head: SignedHead, body: Body | None = None) -> Exchange:
        answer = self._with_retries(head, body or Body(), None, 0.0, sample)
        if answer.status != 200:
            raise ExchangeError(
                f"HTTP {answer.status}: {answer.small_body[:200].decode('utf-8', 'replace')}", before_answer=False
            )
        return answer

    def _check_body(self, op: Operation, answer: Exchange, sample: Sample) -> None:
        offset, length = (op.offset, op.length) if op.kind == "range" else (0, op.size)
        if answer.body_len != length:
            sample.verdict, sample.error = "mismatch", f"{answer.body_len} bytes instead of {length}"
            return
        if length == 0:
            sample.verdict = "ok"
            return
        file = self._open(op.content_path)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            truth = np.frombuffer(content, dtype=np.uint8, count=length, offset=offset)
            same = bool(np.array_equal(truth, np.frombuffer(self.buffer, dtype=np.uint8, count=length)))
            del truth
        sample.verdict = "ok" if same else "mismatch"

    def _check_head(self, op: Operation, answer: Exchange, sample: Sample) -> None:
        said = int(answer.headers.get("content-length", "-1"))
        sample.verdict = "ok" if said == op.size else "mismatch"
        if said != op.size:
            sample.error = f"HEAD says {said} bytes, the object has {op.size}"
        else:
            _check_etag(op, sample, self.endpoint)

    def _list_rest(self, op: Operation, answer: Exchange, sample: Sample) -> None:
        """Reads the remaining pages (timed: a listing is done when its last page is), then compares every entry."""
        found: dict[str, tuple[int, str]] = {}
        path = self.endpoint.path(op.bucket)
        while True:
            page = ET.fromstring(answer.small_body)
            for entry in _children(page, "Contents"):
                found[_child_text(entry, "Key")] = (
                    int(_child_text(entry, "Size")),
                    _child_text(entry, "ETag").strip('"'),
                )
            sample.payload_bytes += answer.body_len
            if _child_text(page, "IsTruncated") != "true":
                break
            head = sign(
                self.endpoint, "GET", path, query=list_query(op.key, _child_text(page, "NextContinuationToken"))
            )
            answer = self._with_retries(head, Body(), None, 0.0, sample)
            sample.total_s = time.perf_counter() - sample.start_s
            if answer.status != 200:
                sample.error = f"HTTP {answer.status} on a later page"
                return
        if not op.expected_listing:
            return
        wrong = [
            f"{key}: {found.get(key)} instead of ({want.size}, {want.etag or 'any'})"
            for key, want in op.expected_listing.items()
            if key not in found or found[key][0] != want.size or (want.etag and found[key][1] != want.etag)
        ]
        wrong += [f"{key}: listed, never stored" for key in found.keys() - op.expected_listing.keys()]
        sample.verdict = "mismatch" if wrong else "ok"
        if wrong:
            sample.error = f"LIST disagrees for {len(wrong)} keys; first: {wrong[0]}"

    def close_files(self) -> None:
        """Forgets open files: between phases a path may have become another file."""
        while self._files:
            self._files.popitem()[1].close()

    def _open(self, path: str) -> BinaryIO:
        file = self._files.get(path)
        if file is None:
            while len(self._files) >= OPEN_FILES_MAX:
                self._files.pop(next(iter(self._files))).close()
            file = self._files[path] = Path(path).open("rb")  # noqa: SIM115 (stays open for the phase)
        return file


def list_query(prefix: str, token: str = "") -> str:
    """A ListObjectsV2 query, sorted as the signature wants it."""
    parts = ([f"continuation-token={quote(token, safe='')}"] if token else []) + [
        "list-type=2",
        f"prefix={quote(prefix, safe='')}",
    ]
    return "&".join(parts)


def serve(number: int, buffer_bytes: int, channel: Connection) -> None:
    """The body of a worker process."""
    buffer = mmap.mmap(-1, max(buffer_bytes, mmap.PAGESIZE))
    view = memoryview(buffer)
    view[:: mmap.PAGESIZE] = bytes(len(view[:: mmap.PAGESIZE]))  # touch every page: no page fault belongs to a download
    worker = Worker(number, view, TimedConnection(Endpoint(url="http://127.0.0.1:9")))
    prepared: list[tuple[Operation, SignedHead | None]] = []
    while True:
        message = channel.recv()
        if isinstance(message, Prepare):
            if message.endpoint != worker.endpoint:
                worker.connection.close()
                worker.connection = TimedConnection(message.endpoint)
            worker.close_files()
            prepared = [(op, worker.sign(op)) for op in message.operations]
            channel.send(Ready())
        elif isinstance(message, Go):
            cpu = time.process_time()
            samples = list(_run(worker, prepared, channel))
            channel.send(Finished(samples, time.process_time() - cpu))
        elif isinstance(message, Disconnect):
            worker.connection.close()
            channel.send(Ready())
        else:
            return


def _run(worker: Worker, prepared: list[tuple[Operation, SignedHead | None]], channel: Connection) -> Iterator[Sample]:
    done, moved, told_at = 0, 0, time.perf_counter()
    for op, signed in prepared:
        sample = worker.run_one(op, signed)
        done += 1
        moved += sample.payload_bytes
        if time.perf_counter() - told_at > PROGRESS_EVERY_S:
            channel.send(Progress(done, moved))
            done, moved, told_at = 0, 0, time.perf_counter()
        yield sample
    if done:
        channel.send(Progress(done, moved))


def _note_headers(sample: Sample, answer: Exchange) -> None:
    headers = answer.headers
    sample.etag = headers.get("etag", "").strip('"')
    sample.form = headers.get("x-deltaweir-form", "")
    sample.reason = headers.get("x-deltaweir-reason", "")
    stored = headers.get("x-deltaweir-stored-bytes", "")
    sample.stored_bytes = int(stored) if stored.isdigit() else -1


def _check_etag(op: Operation, sample: Sample, endpoint: Endpoint) -> None:
    """A whole PUT's ETag is the MD5 of what was sent, on every S3 server; plain file servers make their own."""
    if endpoint.signing == "none" or not op.md5 or "-" in sample.etag:
        return
    sample.verdict = "ok" if sample.etag == op.md5 else "mismatch"
    if sample.etag != op.md5:
        sample.error = f"ETag {sample.etag} instead of the logical {op.md5}"


def _part_hashes(file: BinaryIO, size: int, part_size: int) -> Iterator[tuple[int, int, str]]:
    for offset in range(0, size, part_size):
        file.seek(offset)
        data = file.read(min(part_size, size - offset))
        yield offset, len(data), hashlib.sha256(data).hexdigest()


def _children(node: ET.Element, name: str) -> list[ET.Element]:
    return [child for child in node if child.tag.rpartition("}")[2] == name]


def _child_text(node: ET.Element, name: str) -> str:
    found = _children(node, name)
    return (found[0].text or "") if found else ""


def _xml_text(body: bytes, name: str) -> str:
    try:
        return _child_text(ET.fromstring(body), name).strip('"')
    except ET.ParseError as error:
        raise ExchangeError(f"unreadable XML: {body[:100]!r}", before_answer=False) from error
