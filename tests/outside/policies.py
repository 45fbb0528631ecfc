"""Statements of bucket policies."""

from __future__ import annotations

import json
from typing import Any

from outside.clients import S3Client


def allow(bucket: str, actions: str | list[str], principal: Any = "*", **more: Any) -> dict[str, Any]:
    """A statement about a bucket and all in it."""
    resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
    return {"Effect": "Allow", "Principal": principal, "Action": actions, "Resource": resources} | more


def deny(bucket: str, actions: str | list[str], principal: Any = "*", **more: Any) -> dict[str, Any]:
    """The opposite of [`allow`]."""
    return allow(bucket, actions, principal, **more) | {"Effect": "Deny"}


def put_policy(s3: S3Client, bucket: str, *statements: dict[str, Any]) -> None:
    """Sets a policy of these statements."""
    document = {"Version": "2012-10-17", "Statement": list(statements)}
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(document))
