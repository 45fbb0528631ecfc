"""Notifications of three replicas: each event is told at least once, those of a key in order, whoever lives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cluster.replicas import Cluster
from outside.clients import s3_client
from outside.server import REGION, until
from outside.webhook import Webhook, webhook

KEYS, WRITES = 6, 8


def firsts(hook: Webhook, key: str) -> list[str]:
    """The sequencers of a key's events, each where it came first."""
    return list(dict.fromkeys(record["s3"]["object"]["sequencer"] for record in hook.records(key)))


def test_each_event_of_three_replicas_is_told_and_those_of_a_key_in_order(tmp_path: Path) -> None:
    with webhook() as hook:
        cluster = Cluster.start(tmp_path, hook.tables())
        try:
            clients = [s3_client(replica.endpoint) for replica in cluster.replicas]
            clients[0].create_bucket(Bucket="told")
            rules: Any = [{"QueueArn": f"arn:aws:sqs:{REGION}:123456789012:hook", "Events": ["s3:ObjectCreated:*"]}]
            clients[0].put_bucket_notification_configuration(
                Bucket="told", NotificationConfiguration={"QueueConfigurations": rules}
            )

            def write(number: int) -> None:
                for turn in range(WRITES):
                    s3 = clients[(number + turn) % len(clients)]
                    s3.put_object(Bucket="told", Key=f"k{number}", Body=b"%d" % turn)

            with ThreadPoolExecutor(KEYS) as threads:
                list(threads.map(write, range(KEYS)))
            until(lambda: all(len(firsts(hook, f"k{n}")) == WRITES for n in range(KEYS)), 60, "every event has come")
            for number in range(KEYS):
                assert firsts(hook, f"k{number}") == sorted(firsts(hook, f"k{number}"))
            assert len(hook.events) == KEYS * WRITES + 1, "nobody died, so none came twice"

            # What a replica has committed and not told is told by another.
            hook.answer = lambda _: 503
            clients[2].put_object(Bucket="told", Key="left behind", Body=b"x")
            until(lambda: hook.refused, 60, "it was tried")
            for replica in cluster.replicas[1:]:
                replica.kill()
            hook.answer = lambda _: 200
            clients[0].put_object(Bucket="told", Key="bell", Body=b"x")
            until(lambda: hook.records("left+behind") and hook.records("bell"), 120, "the survivor told both")
        finally:
            cluster.stop()
