"""kill -9 at any moment: acknowledged is there, cut off is wholly there or wholly absent, nothing else is left."""

from __future__ import annotations

import random
import threading
import time

import pytest

from outside.buckets import NewServer
from outside.clients import blunt_client
from outside.killing import BUCKETS, Writers
from outside.server import until
from outside.storage import assert_accounts_balance


@pytest.mark.parametrize(
    ("rounds", "seed"), [(8, 1), pytest.param(200, 2, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
)
def test_an_acknowledged_write_survives_kill_9(new_server: NewServer, rounds: int, seed: int) -> None:
    """Each round: eight writers, SIGKILL a random while after ten acknowledgements, restart, every key looked at."""
    server = new_server().start()
    s3 = blunt_client(server.endpoint)
    for bucket in BUCKETS:
        s3.create_bucket(Bucket=bucket)
    writers = Writers(seed)
    rng = random.Random(seed)
    for number in range(rounds):
        stop = threading.Event()
        threads = writers.run(server, number, stop, count_max=1000)
        until(lambda: writers.acknowledged >= 10 * (number + 1), 60, "the writers get on")  # noqa: B023
        time.sleep(rng.uniform(0.0, 1.2))  # the moment of death, not a wait for a condition
        server.kill()
        stop.set()
        for thread in threads:
            thread.join()
        server.start()
        s3 = blunt_client(server.endpoint)
        writers.check(s3)
    assert writers.cut_off >= rounds, "no write was cut off: the kill came too late"
    server.run("gc", "--now", "--empty-trash")
    assert_accounts_balance(server)
    writers.check(s3)


def test_200_uploads_and_a_kill_leave_no_orphan(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = blunt_client(server.endpoint)
    for bucket in BUCKETS:
        s3.create_bucket(Bucket=bucket)
    writers = Writers(seed=3)
    threads = writers.run(server, 0, threading.Event(), count_max=1000)
    while writers.acknowledged < 200 and any(thread.is_alive() for thread in threads):
        time.sleep(0.01)
    server.kill()
    for thread in threads:
        thread.join()
    assert writers.acknowledged >= 200
    assert writers.cut_off > 0
    server.start()
    writers.check(blunt_client(server.endpoint))
    server.run("gc", "--now", "--empty-trash")
    assert_accounts_balance(server)
    writers.check(blunt_client(server.endpoint))
    server.restart()
    writers.check(blunt_client(server.endpoint))


def test_uploads_that_were_open_can_be_continued(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    ids = {"Bucket": "delta-00", "Key": "k"}
    ids["UploadId"] = s3.create_multipart_upload(**ids)["UploadId"]
    bodies = [b"a" * 5_242_880, b"the end"]
    first = s3.upload_part(**ids, PartNumber=1, Body=bodies[0])["ETag"]
    server.kill()
    server.start()
    s3 = blunt_client(server.endpoint)
    assert [part["PartNumber"] for part in s3.list_parts(**ids)["Parts"]] == [1]
    second = s3.upload_part(**ids, PartNumber=2, Body=bodies[1])["ETag"]
    parts = [{"PartNumber": 1, "ETag": first}, {"PartNumber": 2, "ETag": second}]
    s3.complete_multipart_upload(**ids, MultipartUpload={"Parts": parts})
    assert s3.get_object(Bucket="delta-00", Key="k")["Body"].read() == b"".join(bodies)
