"""The part of the Hetzner Cloud API that a run uses, in the shape its reference documents: pages, actions, errors."""

from __future__ import annotations

import json
import re
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "unit-test-token"


class FakeCloud:
    """State and listener. `refuse_create` is the number of the create call to refuse; `fail_action` fails an action."""

    def __init__(self) -> None:
        self.servers: dict[int, dict[str, Any]] = {}
        self.actions: dict[int, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        self.refuse_create = 0
        self.fail_action = ""
        self.creates = 0
        self._next = 100
        handler = type("Handler", (_Handler,), {"cloud": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def id(self) -> int:
        self._next += 1
        return self._next

    def action(self, command: str, server: int) -> dict[str, Any]:
        """A running action; every time it is asked for it comes closer to its end."""
        number = self.id()
        self.actions[number] = {
            "id": number, "command": command, "status": "running", "progress": 0,
            "started": "2026-01-01T00:00:00+00:00",
            "finished": None, "resources": [{"id": server, "type": "server"}], "error": None,
        }  # fmt: skip
        return dict(self.actions[number])

    def poll(self, number: int) -> dict[str, Any]:
        action = self.actions[number]
        action["progress"] += 50
        if action["progress"] >= 100:
            action["finished"] = "2026-01-01T00:00:09+00:00"
            action["status"] = "success"
            if self.fail_action == action["command"]:
                action["status"] = "error"
                action["error"] = {"code": "action_failed", "message": "Action failed"}
            elif action["command"] == "create_server":
                self.servers[action["resources"][0]["id"]]["status"] = "running"
            elif action["command"] == "delete_server":
                self.servers.pop(action["resources"][0]["id"], None)
        return dict(action)


def location(name: str) -> dict[str, Any]:
    return {"id": 3, "name": name, "description": "Helsinki DC Park 1", "country": "FI", "city": "Helsinki",
            "latitude": 60.169855, "longitude": 24.938379, "network_zone": "eu-central"}  # fmt: skip


def server_type(name: str) -> dict[str, Any]:
    price = {"net": "0.1000000000", "gross": "0.1190000000000000"}
    return {
        "id": 104, "name": name, "description": name.upper(), "category": "dedicated", "cores": 8, "memory": 32.0,
        "disk": 240, "deprecated": False, "deprecation": None, "storage_type": "local", "cpu_type": "dedicated",
        "architecture": "x86", "included_traffic": 654321, "locations": [],
        "prices": [{"location": place, "price_hourly": price, "price_monthly": price, "included_traffic": 654321,
                    "price_per_tb_traffic": price} for place in ("fsn1", "hel1")],
    }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cloud: FakeCloud

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        split = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(split.query))
        self.cloud.requests.append((self.command, self.path, body))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.error(401, "unauthorized", "unable to authenticate")
        return self.route(self.command, split.path.removeprefix("/v1"), query, body)

    do_GET = do_POST = do_DELETE = handle_any

    def route(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> None:
        cloud = self.cloud
        if (method, path) == ("GET", "/ssh_keys"):
            known = {"id": 1, "name": "bench", "fingerprint": "b7:2f", "public_key": "ssh-ed25519 AAAA", "labels": {},
                     "created": "2026-01-01T00:00:00+00:00"}  # fmt: skip
            return self.page("ssh_keys", [known] if query.get("name") in (None, "bench") else [])
        if (method, path) == ("GET", "/server_types"):
            wanted = query.get("name", "ccx33")
            return self.page("server_types", [server_type(wanted)] if wanted.startswith(("cc", "cp")) else [])
        if (method, path) == ("GET", "/servers"):
            return self.page(
                "servers", [s for s in cloud.servers.values() if self.selected(s, query.get("label_selector", ""))]
            )
        if (method, path) == ("POST", "/servers"):
            return self.create(body)
        if match := re.fullmatch(r"/servers/(\d+)", path):
            number = int(match[1])
            if number not in cloud.servers:
                return self.error(404, "not_found", f"server with ID '{number}' not found")
            if method == "DELETE":
                return self.send(200, {"action": cloud.action("delete_server", number)})
            return self.send(200, {"server": cloud.servers[number]})
        if match := re.fullmatch(r"/actions/(\d+)", path):
            return self.send(200, {"action": cloud.poll(int(match[1]))})
        return self.error(404, "not_found", path)

    @staticmethod
    def selected(server: dict[str, Any], selector: str) -> bool:
        pairs = [part.partition("=") for part in selector.split(",") if part]
        return all(server["labels"].get(name) == value for name, _, value in pairs)

    def create(self, body: dict[str, Any]) -> None:
        cloud = self.cloud
        cloud.creates += 1
        if cloud.creates == cloud.refuse_create:
            return self.error(412, "resource_unavailable", "error during placement")
        if any(s["name"] == body["name"] for s in cloud.servers.values()):
            return self.error(409, "uniqueness_error", "server name is already used")
        number = cloud.id()
        ipv4 = {"id": 9, "ip": f"203.0.113.{number % 250}", "blocked": False, "dns_ptr": "x.example"}
        cloud.servers[number] = {
            "id": number, "name": body["name"], "status": "initializing", "created": "2026-01-01T00:00:00+00:00",
            "public_net": {"ipv4": ipv4, "ipv6": None, "floating_ips": [], "firewalls": []}, "private_net": [],
            "server_type": server_type(body["server_type"]), "location": location(body["location"]),
            "image": {"id": 114690387, "type": "system", "status": "available", "name": body["image"]}, "iso": None,
            "rescue_enabled": False, "locked": False, "backup_window": None, "outgoing_traffic": 0,
            "ingoing_traffic": 0, "included_traffic": 654321, "protection": {"delete": False, "rebuild": False},
            "labels": body.get("labels", {}), "volumes": [], "load_balancers": [], "primary_disk_size": 240,
            "placement_group": None,
        }  # fmt: skip
        answer = {"server": cloud.servers[number], "action": cloud.action("create_server", number),
                  "next_actions": [cloud.action("start_server", number)], "root_password": None}  # fmt: skip
        return self.send(201, answer)

    def page(self, name: str, found: list[dict[str, Any]]) -> None:
        pagination = {
            "page": 1,
            "per_page": 50,
            "previous_page": None,
            "next_page": None,
            "last_page": 1,
            "total_entries": len(found),
        }
        self.send(200, {name: found, "meta": {"pagination": pagination}})

    def error(self, status: int, code: str, message: str) -> None:
        self.send(status, {"error": {"code": code, "message": message, "details": {}}})

    def send(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
