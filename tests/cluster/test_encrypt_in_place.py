"""Old objects that one of three replicas encrypts in place while the others read and write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.replicas import Cluster
from outside.beside import again_and_again
from outside.clients import s3_client
from outside.content import noise

BUCKET = "plain"


def test_replicas_read_and_write_on_while_one_of_them_encrypts_old_objects(tmp_path: Path) -> None:
    cluster = Cluster.start(tmp_path)
    try:
        replicas = list(cluster.replicas)
        clients = [s3_client(replica.endpoint) for replica in replicas]
        clients[0].create_bucket(Bucket=BUCKET)
        stored = {f"k-{n:03}": noise(n, 100 if n % 3 else 60_000) for n in range(60)}
        for number, (name, body) in enumerate(stored.items()):
            clients[number % 3].put_object(Bucket=BUCKET, Key=name, Body=body)
        rules: Any = [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
        clients[1].put_bucket_encryption(Bucket=BUCKET, ServerSideEncryptionConfiguration={"Rules": rules})

        def worker(index: int) -> Callable[[int], None]:
            s3 = s3_client(replicas[index].endpoint)

            def work(turn: int) -> None:
                # Each replica overwrites objects of its own.
                number = index + 3 * turn
                name = f"k-{number % 60:03}"
                body = noise(1000 + number, 30_000)
                s3.put_object(Bucket=BUCKET, Key=name, Body=body)
                stored[name] = body
                other = f"k-{(number * 7 + 3) % 60:03}"
                s3.get_object(Bucket=BUCKET, Key=other)["Body"].read()
                assert s3.get_object(Bucket=BUCKET, Key=name)["Body"].read() == body

            return work

        with again_and_again(*map(worker, range(3))):
            report = replicas[2].json("keys", "reencrypt", BUCKET)
        assert report["left"] == 0, report
        for number, (name, body) in enumerate(stored.items()):
            got = clients[number % 3].get_object(Bucket=BUCKET, Key=name)
            assert got["Body"].read() == body, name
            assert got["ServerSideEncryption"] == "AES256", name
    finally:
        cluster.stop()
