"""`up`, `status` and `down` on Hetzner Cloud.

Everything made carries the labels `app` and `run`; nothing without them is ever touched. What a plan costs per hour is
shown before anything is made, when the API is there to ask.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from hcloud import APIException, Client
from hcloud.actions.domain import ActionException
from hcloud.images.domain import Image
from hcloud.locations.domain import Location
from hcloud.server_types.domain import ServerType
from hcloud.servers.client import BoundServer
from hcloud.ssh_keys.client import BoundSSHKey

from taxbench.records import Strict

APP_LABEL = "deltaweir-tax-bench"
ENDPOINT_ENVIRONMENT = "HCLOUD_ENDPOINT"
TOKEN_ENVIRONMENT = "HCLOUD_TOKEN"
PUBLIC_ENDPOINT = "https://api.hetzner.cloud/v1"
CLOUD_INIT = Path(__file__).parent / "cloud_init.sh"
T = TypeVar("T")


class CloudError(RuntimeError):
    """The cloud refused, or is not set up for this."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to make for one run."""

    run_id: str
    single_vm: bool
    location: str
    client_type: str
    proxy_type: str
    image: str
    ssh_key_name: str

    @property
    def servers(self) -> list[PlannedServer]:
        """One machine that is both, or a client and a proxy."""
        base = f"taxbench-{self.run_id}".replace("_", "-").replace(".", "-")
        if self.single_vm:
            return [PlannedServer(name=base, role="single", server_type=self.client_type)]
        return [
            PlannedServer(name=f"{base}-client", role="client", server_type=self.client_type),
            PlannedServer(name=f"{base}-proxy", role="proxy", server_type=self.proxy_type),
        ]


class PlannedServer(Strict):
    """A server that would be made."""

    name: str
    role: str
    server_type: str
    eur_per_hour: float | None = None


class RunningServer(Strict):
    """A server that is there."""

    id: int
    name: str
    role: str
    run_id: str
    status: str
    server_type: str
    location: str
    ipv4: str
    created: str


def labels(run_id: str, role: str) -> dict[str, str]:
    return {"app": APP_LABEL, "run": run_id, "role": role}


def selector(run_id: str | None) -> str:
    """The label selector of one run, or of every run of this benchmark."""
    return f"app={APP_LABEL}" + (f",run={run_id}" if run_id else "")


def connect(poll_interval_s: float = 1.0) -> Client:
    """A client with the token from the environment.

    # Errors
    `CloudError` when there is no token.
    """
    token = os.environ.get(TOKEN_ENVIRONMENT, "")
    if not token:
        raise CloudError(f"set {TOKEN_ENVIRONMENT} to an API token of the project")
    endpoint = os.environ.get(ENDPOINT_ENVIRONMENT, PUBLIC_ENDPOINT)
    return Client(token, endpoint, application_name="taxbench", poll_interval=poll_interval_s)


def has_token() -> bool:
    return bool(os.environ.get(TOKEN_ENVIRONMENT))


def priced(client: Client, request: Request) -> list[PlannedServer]:
    """The plan with hourly prices at its location.

    # Errors
    `CloudError` when a server type does not exist, or is not sold there.
    """
    found = []
    for server in request.servers:
        kind = _call(partial(client.server_types.get_by_name, server.server_type))
        if kind is None:
            raise CloudError(f"there is no server type {server.server_type!r}")
        prices = [p for p in kind.prices or [] if p["location"] == request.location]
        if not prices:
            sold = ", ".join(sorted(p["location"] for p in kind.prices or []))
            raise CloudError(
                f"{server.server_type} is not sold in {request.location}; it is in {sold or 'no location'}"
            )
        hourly = float(prices[0]["price_hourly"]["gross"])
        found.append(server.model_copy(update={"eur_per_hour": hourly}))
    return found


def ssh_key(client: Client, name: str) -> BoundSSHKey:
    """The key that machines are made with.

    # Errors
    `CloudError` when none is named, or the project has none of that name.
    """
    if not name:
        raise CloudError("--ssh-key-name is needed: without a key nobody could log in")
    key = _call(lambda: client.ssh_keys.get_by_name(name))
    if key is None:
        raise CloudError(f"the project has no SSH key named {name!r}")
    return key


def up(client: Client, request: Request, on_step: Callable[[str], None]) -> list[RunningServer]:
    """Makes the servers and waits until each of them runs. What was made is deleted again when a later one fails.

    # Errors
    `CloudError` when the run already has servers, the SSH key is unknown, or the API refuses.
    """
    if status(client, request.run_id):
        raise CloudError(f"run {request.run_id} already has servers; take them down first")
    key = ssh_key(client, request.ssh_key_name)
    made: list[BoundServer] = []
    try:
        for server in request.servers:
            on_step(f"creating {server.name}")
            answer = _call(
                partial(
                    client.servers.create,
                    name=server.name,
                    server_type=ServerType(name=server.server_type),
                    image=Image(name=request.image),
                    location=Location(name=request.location),
                    ssh_keys=[key],
                    labels=labels(request.run_id, server.role),
                    user_data=CLOUD_INIT.read_text(),
                )
            )
            made.append(answer.server)
            _call(answer.action.wait_until_finished)
            for action in answer.next_actions:
                _call(action.wait_until_finished)
    except CloudError:
        for started in made:
            on_step(f"deleting {started.name} again")
            _call(started.delete)
        raise
    return status(client, request.run_id)


def status(client: Client, run_id: str | None) -> list[RunningServer]:
    """The servers of one run, or of all runs of this benchmark."""
    found = _call(lambda: client.servers.get_all(label_selector=selector(run_id)))
    return [_running(server) for server in sorted(found, key=lambda s: str(s.name))]


def down(client: Client, run_id: str | None, on_step: Callable[[str], None]) -> list[RunningServer]:
    """Deletes the servers of one run, or of all runs, and waits until they are gone."""
    found = _call(lambda: client.servers.get_all(label_selector=selector(run_id)))
    gone = []
    for server in found:
        if (server.labels or {}).get("app") != APP_LABEL:
            raise CloudError(f"{server.name} does not carry our label; it is left alone, and so is everything else")
    for server in found:
        on_step(f"deleting {server.name}")
        gone.append(_running(server))
        _call(_call(server.delete).wait_until_finished)
    return gone


def _running(server: BoundServer) -> RunningServer:
    tags = server.labels or {}
    ipv4 = server.public_net.ipv4.ip if server.public_net and server.public_net.ipv4 else ""
    location = getattr(server, "location", None) or getattr(getattr(server, "datacenter", None), "location", None)
    return RunningServer(
        id=int(server.id or 0),
        name=str(server.name),
        role=tags.get("role", ""),
        run_id=tags.get("run", ""),
        status=str(server.status),
        server_type=str(server.server_type.name) if server.server_type else "",
        location=str(location.name) if location else "",
        ipv4=str(ipv4),
        created=str(server.created or ""),
    )


def _call(work: Callable[[], T]) -> T:
    try:
        return work()
    except APIException as error:
        raise CloudError(f"the API refused: {error.message} ({error.code})") from error
    except ActionException as error:
        raise CloudError(f"an action failed: {error}") from error
    except OSError as error:
        raise CloudError(f"the API cannot be reached: {error}") from error
