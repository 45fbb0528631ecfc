"""Tenants of one bucket: users of root's account, each with a policy of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from outside.server import Server
from outside.users import key_id, secret

BUCKET = "shared"


def allow(actions: str | list[str], *below: str) -> dict[str, Any]:
    """A statement about what lies below these prefixes of the shared bucket."""
    return {"Effect": "Allow", "Action": actions, "Resource": [f"arn:aws:s3:::{BUCKET}/{prefix}*" for prefix in below]}


OWN_PREFIX = {name: [allow("s3:*", f"{name}/")] for name in ("ann", "bob")}
"""Two who read and write below a prefix of their own."""


def add_tenants(server: Server, tenants: Mapping[str, list[dict[str, Any]]]) -> None:
    """Puts users with these statements into a server's configuration, before it starts."""
    folder = server.folder / "policies"
    folder.mkdir(parents=True, exist_ok=True)
    for name, statements in tenants.items():
        (folder / f"{name}.json").write_text(json.dumps({"Version": "2012-10-17", "Statement": statements}))
        server.more_config += (
            f'[[users]]\nname = "{name}"\naccess_key_id = "{key_id(name)}"\nsecret_access_key = "{secret(name)}"\n'
            f'policy = "file:{folder / name}.json"\n'
        )
