"""Traces: what a collector is sent of requests, and what it is not."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from outside.buckets import NewServer
from outside.clients import s3_client
from outside.collector import Collector, Span
from outside.server import Server, Value, until

SERVER_KIND = 2
STEPS = ["verify signature", "authorize", "operate", "send answer"]
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


@pytest.fixture
def collector() -> Iterator[Collector]:
    """What spans are sent to."""
    with Collector() as collector:
        yield collector


def tracing(new_server: NewServer, collector: Collector, **more: Value) -> Server:
    """A server that sends its traces."""
    server = new_server()
    server.tables["traces"] = {"endpoint": collector.endpoint, **more}
    return server.start()


def counted(server: Server, result: str) -> float:
    """Spans that came to this, as the server counts them."""
    return server.metrics().total("deltaweir_trace_spans_total", result=result)


def sent(collector: Collector, name: str) -> Span:
    """The first span of this name, once it is there."""
    found = until(lambda: [span for span in collector.spans if span.name == name], 20, f"a span of {name}")
    span: Span = found[0]
    return span


def get(url: str, **headers: str) -> None:
    """An unsigned request, whatever its answer is."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20).close()
    except urllib.error.HTTPError as error:
        error.close()


def test_a_put_arrives_with_its_request_id_and_its_steps(new_server: NewServer, collector: Collector) -> None:
    server = new_server()
    server.tables["traces"] = {"endpoint": collector.endpoint, "service": "store-7"}
    server.tables["traces.headers"] = {"api-key": "word"}
    server.start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="zstd-00")
    answer = s3.put_object(Bucket="zstd-00", Key="a/key", Body=b"abc" * 9999)
    span = sent(collector, "PutObject")
    assert span.attributes["deltaweir.request_id"] == answer["ResponseMetadata"]["HTTPHeaders"]["x-amz-request-id"]
    assert (span.kind, span.parent, span.failed) == (SERVER_KIND, "", False)
    said = {name: span.attributes[name] for name in ("aws.s3.bucket", "aws.s3.key", "deltaweir.form", "user.name")}
    assert said == {"aws.s3.bucket": "zstd-00", "aws.s3.key": "a/key", "deltaweir.form": "zstd", "user.name": "root"}
    assert (span.attributes["http.request.method"], span.attributes["http.response.status_code"]) == ("PUT", 200)
    assert span.attributes["http.request.body.size"] == 29997
    steps = collector.children(span)
    assert [step.name for step in steps] == STEPS
    assert {step.trace for step in steps} == {span.trace}
    assert [step.start_ns for step in steps] == [span.start_ns, *(step.end_ns for step in steps[:-1])]
    assert steps[-1].end_ns == span.end_ns
    assert collector.services == {"store-7"}
    assert collector.requests[0]["api-key"] == "word"
    assert collector.requests[0]["content-type"] == "application/x-protobuf"
    until(lambda: counted(server, "sent") >= 1 + len(STEPS), 20, "they are counted")


def test_keys_of_encrypted_buckets_are_not_told(new_server: NewServer, collector: Collector) -> None:
    server = tracing(new_server, collector)
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-aes256-00")
    s3.put_object(Bucket="delta-aes256-00", Key="hidden name", Body=b"x")
    span = sent(collector, "PutObject")
    assert span.attributes["aws.s3.bucket"] == "delta-aes256-00"
    assert "aws.s3.key" not in span.attributes


def test_a_request_joins_the_trace_that_it_names(new_server: NewServer, collector: Collector) -> None:
    server = tracing(new_server, collector)
    get(f"{server.endpoint}/nowhere/unsampled", traceparent=UNSAMPLED)
    get(f"{server.endpoint}/nowhere/k", traceparent=PARENT)
    span = sent(collector, "GetObject")
    assert (span.trace, span.parent) == (PARENT.split("-")[1], PARENT.split("-")[2])
    assert span.attributes["error.type"] == "NoSuchBucket"
    assert [step.name for step in collector.children(span)] == ["verify signature", "operate", "send answer"]
    server.stop()
    assert {one.trace for one in collector.spans} == {span.trace}, "a client's word that it does not sample counts"


def test_a_share_of_nothing_sends_nothing(new_server: NewServer, collector: Collector) -> None:
    server = tracing(new_server, collector, share=0)
    get(f"{server.endpoint}/nowhere/k", traceparent=PARENT)
    server.stop()
    assert collector.requests == []


def test_what_waits_is_sent_when_the_server_stops(new_server: NewServer, collector: Collector) -> None:
    server = tracing(new_server, collector)
    get(f"{server.endpoint}/nowhere/k")
    server.stop()
    assert "GetObject" in {span.name for span in collector.spans}


def test_a_collector_that_refuses_harms_no_request(new_server: NewServer, collector: Collector) -> None:
    collector.status = 400
    server = tracing(new_server, collector)
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="zstd-00")
    until(lambda: counted(server, "failed"), 20, "a failure is counted")
    s3.put_object(Bucket="zstd-00", Key="k", Body=b"abc")
    until(lambda: "traces could not be sent" in server.log.read_text(), 20, "the log says so")


def test_nothing_is_sent_unless_it_is_asked_for(new_server: NewServer, collector: Collector) -> None:
    server = new_server()
    server.environment["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = collector.endpoint
    server.start()
    get(f"{server.endpoint}/nowhere/k")
    server.stop()
    assert collector.requests == []


@pytest.mark.parametrize(
    ("traces", "told"),
    [
        ({"endpoint": "http://collector:4318"}, "traces.endpoint: expected a URL with its path"),
        ({"endpoint": "ftp://collector/v1/traces"}, "traces.endpoint: expected an http:// or https:// URL"),
        ({"endpoint": "http://169.254.169.254/v1/traces"}, "traces.endpoint: no collector is at such an address"),
        ({"endpoint": "http://a:b@collector/v1/traces"}, "use traces.headers"),
        ({"endpoint": "http://c/v1/traces", "share": 1.5}, "traces.share: expected 0 to 1"),
        ({"endpoint": "http://c/v1/traces", "timeout": "1h"}, "traces.timeout: expected"),
        ({"endpoint": "http://c/v1/traces", 'headers."a b"': "c"}, "traces.headers.a b: not a header of HTTP"),
    ],
)
def test_what_is_wrong_is_refused_with_its_key(new_server: NewServer, traces: dict[str, Value], told: str) -> None:
    server = new_server()
    server.tables["traces"] = traces
    server.write_config()
    checked = server.run("config", "check", check=False)
    assert checked.returncode == 1
    assert told in checked.stderr
