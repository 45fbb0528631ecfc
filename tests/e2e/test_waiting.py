"""What a command shows on a terminal while one answer takes longer than two seconds."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from outside.server import BINARY

LOOKS = 3
"""Looks at the jobs after which the slow answer comes."""


class Slow(BaseHTTPRequestHandler):
    """An admin listener that answers one call only after somebody has looked at the jobs."""

    looked = threading.Semaphore(0)
    jobs: ClassVar[list[object]] = []

    def do_GET(self) -> None:
        self.looked.release()
        self.answer(self.jobs)

    def do_POST(self) -> None:
        for _ in range(LOOKS):
            assert self.looked.acquire(timeout=60)
        self.answer({"settled": True})

    def answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def slow_server(jobs: list[object]) -> Iterator[str]:
    """Its address."""
    handler = type("Handler", (Slow,), {"jobs": jobs, "looked": threading.Semaphore(0)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def shown(address: str) -> tuple[str, str]:
    """What `settle` prints, and what it shows on the terminal of its stderr."""
    ours, theirs = pty.openpty()
    command = [str(BINARY), "--remote", address, "settle"]
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "DELTAWEIR_ADMIN_TOKEN": "x" * 32, "COLUMNS": "200"}
    seen: list[bytes] = []

    def read() -> None:
        # A terminal whose other end is closed is an error on Linux.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65536):
                seen.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
            os.close(theirs)
            printed, _ = process.communicate(timeout=90)
            assert process.returncode == 0, (printed, b"".join(seen))
    finally:
        reader.join(30)
        os.close(ours)
    return printed, b"".join(seen).decode()


def test_an_answer_that_takes_long_shows_the_job_that_works_on_it() -> None:
    progress = {"done": 40, "total": 100, "unit": "blobs", "note": "of releases"}
    idle = {"name": "scrub", "running": False, "progress": {"done": 7, "total": 9, "unit": "blobs", "note": ""}}
    with slow_server([idle, {"name": "gc", "running": True, "progress": progress}]) as address:
        printed, terminal = shown(address)
    assert printed == "settled: true\n"
    assert "40/100 blobs gc of releases" in terminal
    assert "7/9" not in terminal


def test_an_answer_that_no_job_works_on_shows_the_time() -> None:
    with slow_server([]) as address:
        printed, terminal = shown(address)
    assert printed == "settled: true\n"
    assert "waiting for the answer" in terminal
