"""A tiny file server: the `direct` mode where there is no nginx, and the wall against which the client's own ceiling
is found.

    python -m taxbench.servers.fileserver --root DIR [--sync] [--null]

`--sync` makes a PUT durable (file and directory) before it is answered, which is what a store owes its users and what
nginx does not do. `--null` stores nothing: a PUT is thrown away in the kernel, a GET is answered from one anonymous
file.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from taxbench.client.endpoint import Endpoint
from taxbench.servers.target import LocalTarget, free_port

HEAD_BYTES_MAX = 64 << 10
COPY_BYTES = 1 << 20
NULL_BYTES = 1 << 30


class _Server:
    """One thread per connection: enough for the few connections of a measurement, and short enough to trust."""

    def __init__(self, root: Path, sync: bool, null: bool) -> None:
        self.root, self.sync, self.null = root, sync, null
        self.null_file = os.memfd_create("null")
        os.ftruncate(self.null_file, NULL_BYTES)

    def serve(self, listener: socket.socket) -> None:
        while True:
            peer, _ = listener.accept()
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._connection, args=(peer,), daemon=True).start()

    def _connection(self, peer: socket.socket) -> None:
        with peer:
            pending = b""
            while True:
                while b"\r\n\r\n" not in pending:
                    more = peer.recv(HEAD_BYTES_MAX)
                    if not more or len(pending) > HEAD_BYTES_MAX:
                        return
                    pending += more
                head, _, rest = pending.partition(b"\r\n\r\n")
                pending = self._request(peer, head.decode("latin-1"), rest)

    def _request(self, peer: socket.socket, head: str, rest: bytes) -> bytes:
        """Answers one request and gives back what was read beyond it."""
        lines = head.split("\r\n")
        method, target, _ = lines[0].split(" ", 2)
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        path = self.root / unquote(urlsplit(target).path).lstrip("/")
        if ".." in path.parts:
            _answer(peer, "400 Bad Request")
            return b""
        length = int(headers.get("content-length", 0))
        if method == "PUT":
            self._put(peer, path, rest[:length], length)
            _answer(peer, "201 Created")
            return rest[length:]
        if method in ("GET", "HEAD"):
            self._get(peer, method, path, headers)
        elif method == "DELETE":
            path.unlink(missing_ok=True)
            _answer(peer, "204 No Content")
        else:
            _answer(peer, "405 Method Not Allowed")
        return rest

    def _put(self, peer: socket.socket, path: Path, first: bytes, length: int) -> None:
        left = length - len(first)
        if self.null:
            while left:
                got = peer.recv_into(_discard(), min(left, COPY_BYTES), socket.MSG_TRUNC)
                if not got:
                    return
                left -= got
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{threading.get_ident()}.part")
        buffer = memoryview(_discard())
        with partial.open("wb", buffering=0) as file:
            file.write(first)
            while left:
                got = peer.recv_into(buffer, min(left, COPY_BYTES))
                if not got:
                    partial.unlink()
                    return
                file.write(buffer[:got])
                left -= got
            if self.sync:
                os.fsync(file.fileno())
        partial.rename(path)
        if self.sync:
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def _get(self, peer: socket.socket, method: str, path: Path, headers: dict[str, str]) -> None:
        if self.null:
            size = int(path.name) if path.name.isdigit() else 0
            _answer(peer, "200 OK", size)
            if method == "GET":
                _send_file(peer, self.null_file, 0, size)
            return
        try:
            file = os.open(path, os.O_RDONLY)
        except OSError:
            _answer(peer, "404 Not Found")
            return
        try:
            size = os.fstat(file).st_size
            wanted = headers.get("range", "")
            if wanted.startswith("bytes=") and method == "GET":
                first, _, last = wanted[6:].partition("-")
                begin, end = int(first), min(int(last or size - 1), size - 1)
                _answer(peer, "206 Partial Content", end - begin + 1)
                _send_file(peer, file, begin, end - begin + 1)
                return
            _answer(peer, "200 OK", size)
            if method == "GET":
                _send_file(peer, file, 0, size)
        finally:
            os.close(file)


_scratch = threading.local()


def _discard() -> bytearray:
    """A buffer of this thread's own, made once."""
    buffer: bytearray | None = getattr(_scratch, "buffer", None)
    if buffer is None:
        buffer = _scratch.buffer = bytearray(COPY_BYTES)
    return buffer


def _answer(peer: socket.socket, status: str, length: int = 0) -> None:
    peer.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n".encode())


def _send_file(peer: socket.socket, file: int, offset: int, length: int) -> None:
    while length:
        sent = os.sendfile(peer.fileno(), file, offset, length)
        if not sent:
            return
        offset, length = offset + sent, length - sent


@dataclass
class FileServer(LocalTarget):
    """The tiny file server as a measured process."""

    data_dir: Path
    sync: bool = False
    null: bool = False
    timeout_s: float = 120.0
    name: str = "file server"

    def __post_init__(self) -> None:
        self.data_dir = self.data_dir.resolve()
        self.features = frozenset({"restart"})
        self._port = free_port()
        self.endpoint = Endpoint(f"http://127.0.0.1:{self._port}", signing="none", timeout_s=self.timeout_s)

    def start(self) -> None:
        self.files.mkdir(parents=True, exist_ok=True)
        arguments = [sys.executable, "-m", "taxbench.servers.fileserver", "--root", str(self.files)]
        arguments += ["--port", str(self._port)] + ["--sync"] * self.sync + ["--null"] * self.null
        package_root = str(Path(__file__).resolve().parents[2])
        search = os.pathsep.join(filter(None, (package_root, os.environ.get("PYTHONPATH", ""))))
        self.launch(arguments, {"PYTHONPATH": search})

    def facts(self) -> dict[str, str]:
        durable = "fsync of file and directory" if self.sync else "nothing yet (page cache)"
        return {"server": "taxbench file server", "durable": "stores nothing" if self.null else durable}

    def ensure_bucket(self, bucket: str) -> None:
        (self.files / bucket).mkdir(parents=True, exist_ok=True)


def main() -> None:
    """The server process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--null", action="store_true")
    options = parser.parse_args()
    with socket.create_server(("127.0.0.1", options.port), backlog=128) as listener:
        _Server(options.root, options.sync, options.null).serve(listener)


if __name__ == "__main__":
    main()
