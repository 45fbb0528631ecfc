"""The users that shared servers know beside root: another of root's account, and two other accounts."""

from __future__ import annotations

from typing import Any

from botocore import UNSIGNED
from botocore.config import Config

from outside.clients import S3Client, new_client, s3_client
from outside.server import REGION

ALT_ID = "a17" + "0" * 61
"""The canonical id of the account `alt`."""
TENANT_ID = "7e4a" + "0" * 60
"""The canonical id of the account `tenant`."""

_USERS = [
    (
        "colleague",
        None,
        '{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"s3:ListAllMyBuckets","Resource":"*"}}',
    ),
    ("alt", ALT_ID, "readwrite"),
    ("tenant", TENANT_ID, "readwrite"),
]


def users(folder: Any) -> str:
    """The TOML of the users; documents are written into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    written = ""
    for name, canonical_id, policy in _USERS:
        if policy.startswith("{"):
            (folder / f"{name}.json").write_text(policy)
            policy = f"file:{folder / name}.json"
        account = f'canonical_id = "{canonical_id}"\n' if canonical_id else ""
        written += (
            f'[[users]]\nname = "{name}"\n{account}email = "{name}@example.com"\naccess_key_id = "{key_id(name)}"\n'
            f'secret_access_key = "{secret(name)}"\npolicy = "{policy}"\n'
        )
    return written


def key_id(name: str) -> str:
    """A user's access key."""
    return f"AK{name.upper():0<18}"


def secret(name: str) -> str:
    """A user's secret."""
    return f"secret-of-{name}"


def client_of(endpoint: str, name: str) -> S3Client:
    """boto3 of a user."""
    return s3_client(endpoint, key_id(name), secret(name))


def anonymous(endpoint: str) -> Any:
    """boto3 that signs nothing."""
    config = Config(signature_version=UNSIGNED)
    return new_client(endpoint_url=endpoint, region_name=REGION, config=config)
