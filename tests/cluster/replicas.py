"""The whole: started in order, taken down in reverse."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.balancer import Balancer
from cluster.postgres import Postgres
from outside.buckets import mode_tables
from outside.server import BINARY, Server, Value
from outside.store import Store
from outside.users import users

REPLICAS = 3
KEK = base64.b64encode(bytes(range(32))).decode()
"""Every replica must have the same key, so it is given and not made. This one is for tests."""


@dataclass
class Cluster:
    """Replicas of one binary over one catalog and one store, and a port in front of them."""

    folder: Path
    tables: dict[str, dict[str, Value]]
    """TOML tables of every replica, beyond what makes it a replica."""
    postgres: Postgres
    store: Store
    replicas: Sequence[Server]
    balancer: Balancer

    @property
    def port(self) -> int:
        """Where clients connect."""
        return self.balancer.port

    @property
    def endpoint(self) -> str:
        """The S3 endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @classmethod
    def start(
        cls,
        folder: Path,
        tables: dict[str, dict[str, Value]] | None = None,
        timeout_s: float = 60,
        binary: Path = BINARY,
    ) -> Cluster:
        """Starts all of it and waits until every part is ready; what was started ends when a part cannot be.
        `timeout_s`: how long the balancer waits for a silent replica."""
        tables = mode_tables() if tables is None else tables
        with contextlib.ExitStack() as undo:
            postgres = Postgres()
            undo.callback(postgres.remove)
            postgres.make().start()
            store = Store(folder / "store")
            undo.callback(store.stop)
            store.start().client().create_bucket(Bucket="blobs")
            replicas = [cls._replica(folder / f"replica-{n}", tables, postgres, store, binary) for n in range(REPLICAS)]
            for replica in replicas:
                undo.callback(replica.kill)
                replica.launch()
            for replica in replicas:
                replica.wait_ready(60)
            balancer = Balancer(folder / "nginx", [replica.port for replica in replicas], timeout_s)
            undo.callback(balancer.stop)
            balancer.start()
            undo.pop_all()
            return cls(folder, tables, postgres, store, replicas, balancer)

    @staticmethod
    def _replica(
        folder: Path, tables: dict[str, dict[str, Value]], postgres: Postgres, store: Store, binary: Path
    ) -> Server:
        shared = store.tables()
        storage: dict[str, Value] = {**shared["storage"], "catalog": postgres.url, **tables.get("storage", {})}
        # Where a provider keeps the KEK no replica is given one.
        given = {} if "key_provider" in storage else {"DELTAWEIR_KEK": KEK}
        return Server(folder, {**tables, **shared, "storage": storage}, users(folder), given, binary=binary)

    def stop(self) -> None:
        """Ends all of it."""
        self.balancer.stop()
        for replica in self.replicas:
            replica.kill()
        self.store.stop()
        self.postgres.remove()
