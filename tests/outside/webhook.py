"""A webhook on loopback: takes events, remembers them, and answers as it is told."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from outside.server import Value, until

Event = dict[str, Any]


def taken(_: Event) -> int:
    """Every event is taken."""
    return 200


@dataclass
class Webhook:
    """What came, in the order of its arrival, whether it was taken or not."""

    port: int
    answer: Callable[[Event], int] = taken
    """The status for an event; may take its time."""
    body: bytes = b""
    """What is sent back."""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers that are sent back."""
    events: list[Event] = field(default_factory=list)
    """Events that were taken."""
    refused: list[Event] = field(default_factory=list)
    """Events that were not."""
    seen: list[dict[str, str]] = field(default_factory=list)
    """Headers of every request, with lower-case names."""

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/events"

    def tables(self, name: str = "hook", **keys: Value) -> dict[str, dict[str, Value]]:
        """The configuration that knows it."""
        return {f"notifications.webhooks.{name}": {"url": self.url, **keys}}

    def records(self, key: str | None = None) -> list[Event]:
        """The records that were taken, of one key or all."""
        found = [record for event in list(self.events) for record in event.get("Records", [])]
        return [record for record in found if key in (None, record["s3"]["object"]["key"])]

    def names(self, key: str | None = None) -> list[str]:
        """Their event names."""
        return [record["eventName"] for record in self.records(key)]

    def wait_for(self, count: int, timeout_s: float = 30) -> list[Event]:
        """Waits for so many records and gives them; fails when more come than that."""
        until(lambda: len(self.records()) >= count, timeout_s, f"{count} records, not {self.names()}")
        records = self.records()
        assert len(records) == count, [record["eventName"] for record in records]
        return records


@contextlib.contextmanager
def webhook() -> Iterator[Webhook]:
    """A webhook that listens while the block lasts."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                hook.seen.append({name.lower(): value for name, value in self.headers.items()})
            status = hook.answer(event)
            with lock:
                (hook.events if 200 <= status < 300 else hook.refused).append(event)
            with contextlib.suppress(OSError):  # whoever asked is gone
                self.send_response(status)
                for name, value in hook.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(hook.body)))
                self.end_headers()
                self.wfile.write(hook.body)

        def do_GET(self) -> None:
            """A redirect that was followed would end here."""
            hook.events.append({"followed": self.path})
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hook = Webhook(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
