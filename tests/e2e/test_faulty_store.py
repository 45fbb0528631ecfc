"""The server over a store, and a client over a network, that break exchanges in every way the fault proxy knows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import botocore.exceptions
import pytest

from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.content import noise, release
from outside.failure import error_code
from outside.faults import Fault, FaultProxy, Kind
from outside.server import Server
from outside.store import Store

CONTENT = noise(7, 300_000)
ONCE = {"total_max_attempts": 1}
ATTEMPTS_MAX = 5
"""Of one repeatable call, the first included (RetryPolicy)."""

RETRIED_READS = [
    Fault(Kind.STATUS, 500),
    Fault(Kind.STATUS, 502),
    Fault(Kind.STATUS, 503),
    Fault(Kind.STATUS, 429, retry_after_s=1),
    Fault(Kind.RESET_ANSWER),
    Fault(Kind.SHORT_BODY),
    Fault(Kind.COMMIT_THEN_RESET),
]
PASSING_READS = [Fault(Kind.DUPLICATED), Fault(Kind.SLOW, pause_s=0.01), Fault(Kind.STALL, pause_s=0.5)]
FAILED_WRITES = [
    Fault(Kind.STATUS, 500),
    Fault(Kind.STATUS, 503, retry_after_s=1),
    Fault(Kind.STATUS, 429),
    Fault(Kind.RESET_REQUEST),
    Fault(Kind.COMMIT_THEN_RESET),
]
PASSING_WRITES = [Fault(Kind.DUPLICATED), Fault(Kind.STALL, pause_s=0.5)]


def name(fault: Fault) -> str:
    """A fault in a test's name."""
    return f"{fault.kind.name.lower()}-{fault.status}" if fault.kind is Kind.STATUS else fault.kind.name.lower()


@dataclass
class Behind:
    """A server whose store lies behind a fault proxy."""

    server: Server
    proxy: FaultProxy
    s3: S3Client

    def retries(self) -> float:
        """Calls to the store that were repeated."""
        return self.server.metrics().total("deltaweir_backend_retries_total", backend="cloud")

    def integrity_errors(self) -> float:
        """Requests that took trouble for damage: none here is."""
        return self.server.metrics().total("deltaweir_integrity_errors_total")


@pytest.fixture
def behind(new_server: NewServer, store: Store) -> Iterator[Behind]:
    """A bucket `off-00` with the object `k`, nothing cached, nothing passed yet."""
    with FaultProxy(store.port) as proxy:
        tables = store.tables()
        tables["backends.cloud"]["endpoint"] = proxy.endpoint
        server = new_server(**tables).start()
        s3 = s3_client(server.endpoint, retries=ONCE, read_timeout=120)
        s3.create_bucket(Bucket="off-00")
        s3.put_object(Bucket="off-00", Key="k", Body=CONTENT)
        server.drop_caches()
        proxy.forget()
        yield Behind(server, proxy, s3)
        server.kill()


def read(s3: S3Client, key: str = "k") -> bytes:
    """All of an object."""
    return bytes(s3.get_object(Bucket="off-00", Key=key)["Body"].read())


@pytest.mark.parametrize("fault", RETRIED_READS, ids=name)
def test_a_read_that_fails_is_repeated_and_the_client_notices_nothing(behind: Behind, fault: Fault) -> None:
    before = behind.retries()
    behind.proxy.inject(fault, "GET", times=2)
    assert read(behind.s3) == CONTENT
    assert behind.proxy.fired() == 2
    assert behind.retries() - before == 2
    assert behind.integrity_errors() == 0


@pytest.mark.parametrize("fault", PASSING_READS, ids=name)
def test_a_read_that_is_only_odd_is_not_repeated(behind: Behind, fault: Fault) -> None:
    before = behind.retries()
    behind.proxy.inject(fault, "GET")
    assert read(behind.s3) == CONTENT
    assert behind.proxy.fired() == 1
    assert behind.retries() == before


def test_a_store_that_asks_for_time_gets_it(behind: Behind) -> None:
    behind.proxy.inject(Fault(Kind.STATUS, 503, retry_after_s=2), "GET")
    assert read(behind.s3) == CONTENT
    asked = next(exchange for exchange in behind.proxy.seen("GET") if exchange.fault)
    later = [exchange.at_s - asked.at_s for exchange in behind.proxy.seen("GET") if exchange.at_s > asked.at_s]
    # The header and the root are asked for side by side: one of the two may follow at once.
    assert len([after_s for after_s in later if after_s < 2]) <= 1 and len(later) >= 2


def test_a_read_that_keeps_failing_ends_within_its_attempts_as_503_and_never_as_404(behind: Behind) -> None:
    behind.proxy.inject(Fault(Kind.STATUS, 500), "GET", times=1000)
    assert error_code(behind.s3.get_object, Bucket="off-00", Key="k") == (503, "ServiceUnavailable")
    # The header and the root are asked for side by side.
    assert ATTEMPTS_MAX <= len(behind.proxy.seen("GET")) <= 2 * ATTEMPTS_MAX
    assert behind.s3.head_object(Bucket="off-00", Key="k")["ContentLength"] == len(CONTENT)
    assert [found["Key"] for found in behind.s3.list_objects_v2(Bucket="off-00")["Contents"]] == ["k"]
    behind.proxy.heal()
    assert read(behind.s3) == CONTENT
    assert behind.integrity_errors() == 0


@pytest.mark.parametrize("fault", FAILED_WRITES, ids=name)
def test_a_write_that_fails_is_sent_again_and_the_client_notices_nothing(behind: Behind, fault: Fault) -> None:
    new = noise(8, 200_000)
    before = behind.retries()
    behind.proxy.inject(fault, "PUT", times=2)
    behind.s3.put_object(Bucket="off-00", Key="k", Body=new)
    assert behind.proxy.fired() == 2
    sent = [exchange.target for exchange in behind.proxy.seen("PUT")]
    assert len(sent) == 3 and len(set(sent)) == 1, "the same name each time"
    assert behind.retries() - before == 2
    behind.server.drop_caches()
    assert read(behind.s3) == new
    assert behind.integrity_errors() == 0


def test_a_write_that_keeps_failing_ends_within_its_attempts_and_changes_nothing(behind: Behind) -> None:
    new = noise(8, 200_000)
    behind.proxy.inject(Fault(Kind.STATUS, 503), "PUT", times=1000)
    assert error_code(behind.s3.put_object, Bucket="off-00", Key="k", Body=new) == (503, "ServiceUnavailable")
    assert len(behind.proxy.seen("PUT")) == ATTEMPTS_MAX
    behind.proxy.heal()
    assert read(behind.s3) == CONTENT
    behind.s3.put_object(Bucket="off-00", Key="k", Body=new)
    behind.server.drop_caches()
    assert read(behind.s3) == new


def test_a_long_upload_goes_through_a_store_that_fails_parts_of_it(behind: Behind) -> None:
    """Parts of 8 MiB; one in four fails, the upload's begin once, and the answer to its completion is lost."""
    new = noise(10, 97 << 20)
    behind.proxy.inject(Fault(Kind.STATUS, 503), "POST", contains="uploads")
    behind.proxy.inject(Fault(Kind.STATUS, 503), "PUT", contains="partNumber=2&")
    behind.proxy.inject(Fault(Kind.RESET_REQUEST), "PUT", contains="partNumber=5&")
    behind.proxy.inject(Fault(Kind.COMMIT_THEN_RESET), "PUT", contains="partNumber=9&")
    behind.proxy.inject(Fault(Kind.COMMIT_THEN_RESET), "POST", contains="uploadId")
    behind.s3.put_object(Bucket="off-00", Key="long", Body=new)
    assert behind.proxy.fired() == 5
    behind.server.drop_caches()
    assert read(behind.s3, "long") == new
    assert behind.integrity_errors() == 0


@pytest.mark.parametrize("fault", PASSING_WRITES, ids=name)
def test_a_write_that_is_only_odd_is_done_once(behind: Behind, fault: Fault) -> None:
    new = noise(8, 200_000)
    behind.proxy.inject(fault, "PUT")
    behind.s3.put_object(Bucket="off-00", Key="k", Body=new)
    assert behind.proxy.fired() == 1
    behind.server.drop_caches()
    assert read(behind.s3) == new


def test_a_delta_whose_base_is_hard_to_read_is_read_all_the_same(behind: Behind) -> None:
    behind.s3.create_bucket(Bucket="delta-00")
    for version in range(2):
        behind.s3.put_object(Bucket="delta-00", Key=f"app-{version}", Body=release(5, 600_000, version))
    behind.server.drop_caches()
    behind.proxy.forget()
    for fault in RETRIED_READS[:1] + RETRIED_READS[4:]:
        behind.proxy.inject(fault, "GET")
    got = behind.s3.get_object(Bucket="delta-00", Key="app-1")["Body"].read()
    assert got == release(5, 600_000, 1)
    assert behind.proxy.fired() == 4


def test_what_the_collector_removes_is_removed_however_the_store_answers(behind: Behind, store: Store) -> None:
    behind.s3.delete_object(Bucket="off-00", Key="k")
    behind.proxy.inject(Fault(Kind.STATUS, 503), "DELETE")
    behind.proxy.inject(Fault(Kind.COMMIT_THEN_RESET), "DELETE")
    report = behind.server.json("gc", "--now")
    assert behind.proxy.fired() == 2 and report["errors"] == 0 and report["deleted_blobs"] == 1
    left = store.client().list_objects_v2(Bucket="blobs").get("Contents", [])
    assert [found["Key"] for found in left if found["Key"].startswith("blobs/blobs/")] == []


@pytest.fixture
def far(new_server: NewServer) -> Iterator[Behind]:
    """A server, and a client that reaches it through a fault proxy."""
    server = new_server().start()
    with FaultProxy(server.port) as proxy:
        s3 = s3_client(proxy.endpoint, retries=ONCE)
        s3.create_bucket(Bucket="off-00")
        s3.put_object(Bucket="off-00", Key="k", Body=CONTENT)
        proxy.forget()
        yield Behind(server, proxy, s3)


@pytest.mark.parametrize("kind", [Kind.RESET_REQUEST, Kind.COMMIT_THEN_RESET], ids=lambda kind: kind.name.lower())
def test_an_upload_whose_connection_breaks_is_old_or_new_and_never_between(far: Behind, kind: Kind) -> None:
    new = noise(9, 250_000)
    far.proxy.inject(Fault(kind), "PUT")
    with pytest.raises(botocore.exceptions.BotoCoreError):
        far.s3.put_object(Bucket="off-00", Key="k", Body=new)
    assert far.proxy.fired() == 1
    assert read(far.s3) == (new if kind is Kind.COMMIT_THEN_RESET else CONTENT)


def test_a_conditional_upload_that_arrives_twice_wins_once_and_stays(far: Behind) -> None:
    new = noise(9, 250_000)
    far.proxy.inject(Fault(Kind.DUPLICATED), "PUT")
    far.s3.put_object(Bucket="off-00", Key="fresh", Body=new, IfNoneMatch="*")
    assert far.proxy.fired() == 1 and read(far.s3, "fresh") == new


def test_a_completion_whose_answer_is_lost_is_answered_the_same_when_repeated(far: Behind) -> None:
    ids = {"Bucket": "off-00", "Key": "parts"}
    ids["UploadId"] = far.s3.create_multipart_upload(**ids)["UploadId"]
    etag = far.s3.upload_part(**ids, PartNumber=1, Body=CONTENT)["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    far.proxy.inject(Fault(Kind.COMMIT_THEN_RESET), "POST")
    with pytest.raises(botocore.exceptions.BotoCoreError):
        far.s3.complete_multipart_upload(**ids, MultipartUpload=parts)
    again = far.s3.complete_multipart_upload(**ids, MultipartUpload=parts)
    assert again["ETag"] == far.s3.head_object(Bucket="off-00", Key="parts")["ETag"]
    assert read(far.s3, "parts") == CONTENT


def test_answers_that_break_on_the_way_are_noticed_by_the_client_and_leave_nothing_behind(far: Behind) -> None:
    for kind in (Kind.RESET_ANSWER, Kind.SHORT_BODY):
        far.proxy.inject(Fault(kind), "GET", contains="/k")
        with contextlib.suppress(botocore.exceptions.BotoCoreError):
            assert len(read(far.s3)) < len(CONTENT), "boto3 sees an end before the length"
    assert far.proxy.fired() == 2
    assert read(far.s3) == CONTENT
