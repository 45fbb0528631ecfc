"""Buckets that one of three replicas makes and changes: the others keep to it from their next request on."""

from __future__ import annotations

from pathlib import Path

from botocore.exceptions import ClientError

from cluster.replicas import Cluster
from outside.clients import s3_client
from outside.server import Server, until

BUCKET = "ruled"
AT = {"Bucket": BUCKET, "Key": "k"}


def is_told(replica: Server, pair: tuple[str, str]) -> bool:
    """Whether a user who is no administrator gets storage headers of an object that it reads."""
    answer = s3_client(replica.endpoint, *pair).head_object(**AT)
    return "x-deltaweir-form" in answer["ResponseMetadata"]["HTTPHeaders"]


def knows(replica: Server, pair: tuple[str, str]) -> bool:
    """Whether a user may ask already: replicas learn of new ones within a second."""
    try:
        s3_client(replica.endpoint, *pair).head_bucket(Bucket=BUCKET)
    except ClientError:
        return False
    return True


def test_a_rule_that_one_replica_sets_is_in_force_on_all_from_their_next_request_on(tmp_path: Path) -> None:
    cluster = Cluster.start(tmp_path)
    try:
        replicas = list(cluster.replicas)
        replicas[0].admin(f"/api/v1/buckets/{BUCKET}", "PUT", body={"encryption": "aes256"})
        made = replicas[0].admin("/api/v1/users/ann", "PUT", body={"policies": ["readwrite"]})
        pair = (made["access_key_id"], made["secret_access_key"])
        for replica in replicas:
            until(lambda replica=replica: knows(replica, pair), 5, "a replica learns of a user")
        content = b"sealed by one replica, opened by another " * 400
        s3_client(replicas[1].endpoint).put_object(**AT, Body=content)
        assert s3_client(replicas[2].endpoint).get_object(**AT)["Body"].read() == content
        for replica, who in ((replicas[0], "readers"), (replicas[1], "administrators"), (replicas[2], "readers")):
            replica.admin(f"/api/v1/buckets/{BUCKET}", "POST", body={"storage_headers": who})
            assert [is_told(other, pair) for other in replicas] == [who == "readers"] * 3
    finally:
        cluster.stop()
