"""Notifications: which configurations are refused; what webhooks are told, in which order, after which failures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.failure import error_code
from outside.server import REGION, Server, Value, until
from outside.webhook import Event, Webhook, webhook

ARN = f"arn:aws:sqs:{REGION}:123456789012:hook"
EVERYTHING = [
    "s3:ObjectCreated:*",
    "s3:ObjectRemoved:*",
    "s3:ObjectTagging:*",
    "s3:ObjectAcl:Put",
    "s3:LifecycleExpiration:*",
]


@pytest.fixture(name="hook")
def a_webhook() -> Iterator[Webhook]:
    with webhook() as hook:
        yield hook


def rule(*events: str, arn: str = ARN, **keys: Any) -> dict[str, Any]:
    return {"QueueArn": arn, "Events": list(events)} | keys


def key_filter(**rules: str) -> dict[str, Any]:
    return {"Key": {"FilterRules": [{"Name": name, "Value": value} for name, value in rules.items()]}}


def configure(s3: S3Client, bucket: str, *rules: dict[str, Any], **keys: Any) -> None:
    s3.put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"QueueConfigurations": list(rules)}, **keys
    )


def told(s3: S3Client, hook: Webhook, bucket: str = "off-00") -> str:
    """A bucket that tells the webhook everything."""
    s3.create_bucket(Bucket=bucket)
    configure(s3, bucket, rule(*EVERYTHING, Id="all"))
    until(lambda: hook.events, 20, "the test event has come")
    return bucket


def waiting(server: Server) -> float:
    return server.metrics().total("deltaweir_notifications_waiting", webhook="hook")


def test_a_configuration_is_told_as_it_was_set_and_its_webhooks_are_told_of_it(
    new_server: NewServer, hook: Webhook
) -> None:
    token = "a-token-of-the-webhook"
    server = new_server(**hook.tables(token=token)).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="off-00")
    unset = s3.get_bucket_notification_configuration(Bucket="off-00")
    assert set(unset) == {"ResponseMetadata"}
    wanted: Any = {
        "TopicConfigurations": [
            {"Id": "t", "TopicArn": f"arn:aws:sns:{REGION}:123456789012:hook", "Events": ["s3:ObjectRestore:*"]}
        ],
        "QueueConfigurations": [
            {
                "Id": "q",
                "QueueArn": ARN,
                "Events": ["s3:ObjectCreated:Put", "s3:ObjectRemoved:*"],
                "Filter": key_filter(Prefix="in/", Suffix=".jpg"),
            }
        ],
        "LambdaFunctionConfigurations": [
            {
                "Id": "f",
                "LambdaFunctionArn": f"arn:aws:lambda:{REGION}:123456789012:function:hook",
                "Events": ["s3:Replication:*", "s3:IntelligentTiering"],
            }
        ],
    }
    s3.put_bucket_notification_configuration(Bucket="off-00", NotificationConfiguration=wanted)
    kept: Any = s3.get_bucket_notification_configuration(Bucket="off-00")
    assert {name: kept[name] for name in wanted} == wanted
    until(lambda: hook.events, 20, "the test event has come")
    test = hook.events[0]
    assert (test["Event"], test["Service"], test["Bucket"]) == ("s3:TestEvent", "Amazon S3", "off-00")
    assert test["RequestId"]
    assert hook.seen[0]["authorization"] == f"Bearer {token}"
    assert hook.seen[0]["content-type"] == "application/json"
    s3.put_bucket_notification_configuration(Bucket="off-00", NotificationConfiguration={})
    assert set(s3.get_bucket_notification_configuration(Bucket="off-00")) == {"ResponseMetadata"}
    s3.put_object(Bucket="off-00", Key="in/a.jpg", Body=b"x")
    configure(s3, "off-00", rule("s3:ObjectRemoved:*"), SkipDestinationValidation=True)
    s3.delete_object(Bucket="off-00", Key="in/a.jpg")
    assert [record["eventName"] for record in hook.wait_for(1)] == ["ObjectRemoved:Delete"]
    assert len(hook.events) == 2, "no other test event"
    assert token not in server.run("config", "show").stdout + server.final_log()


BAD = [
    ([rule("s3:ObjectCreated:Put", arn=ARN.replace("hook", "other"))], "InvalidArgument"),
    ([rule("s3:ObjectCreated:Put", arn=ARN.replace("sqs", "sns"))], "InvalidArgument"),
    ([rule("s3:ObjectCreated:Put", arn=ARN.replace(REGION, "mars-north-1"))], "InvalidArgument"),
    ([rule("s3:ObjectCreated:Put", arn="hook")], "InvalidArgument"),
    ([rule("s3:ObjectCreated:Brew")], "InvalidArgument"),
    ([rule("ObjectCreated:Put")], "InvalidArgument"),
    ([rule()], "MalformedXML"),
    ([rule("s3:ObjectCreated:Put", Filter=key_filter(infix="x"))], "InvalidArgument"),
    ([rule("s3:ObjectCreated:Put"), rule("s3:ObjectCreated:*")], "InvalidArgument"),
    (
        [
            rule("s3:ObjectCreated:Put", Filter=key_filter(prefix="a", suffix=".j")),
            rule("s3:ObjectCreated:Put", Filter=key_filter(prefix="ab", suffix=".j")),
        ],
        "InvalidArgument",
    ),
    ([rule("s3:ObjectCreated:Put", Id="a"), rule("s3:ObjectRemoved:*", Id="a")], "InvalidArgument"),
]


def test_a_configuration_that_s3_would_not_take_is_refused_and_changes_nothing(
    new_server: NewServer, hook: Webhook
) -> None:
    s3 = s3_client(new_server(**hook.tables()).start().endpoint)
    s3.create_bucket(Bucket="off-00")
    for rules, code in BAD:
        assert error_code(lambda rules=rules, **_: configure(s3, "off-00", *rules)) == (400, code), rules
    bridge: Any = {"EventBridgeConfiguration": {}}
    put = s3.put_bucket_notification_configuration
    assert error_code(put, Bucket="off-00", NotificationConfiguration=bridge) == (501, "NotImplemented")
    assert set(s3.get_bucket_notification_configuration(Bucket="off-00")) == {"ResponseMetadata"}
    apart = [
        rule("s3:ObjectCreated:Put", Filter=key_filter(prefix="a")),
        rule("s3:ObjectCreated:Put", Filter=key_filter(prefix="b")),
        rule("s3:ObjectRemoved:*"),
    ]
    configure(s3, "off-00", *apart)
    assert len(s3.get_bucket_notification_configuration(Bucket="off-00")["QueueConfigurations"]) == 3
    assert hook.records() == []


@pytest.mark.parametrize("bucket", ["off-00", "delta-aes256-00"])
def test_every_change_is_told_in_s3s_words(new_server: NewServer, hook: Webhook, bucket: str) -> None:
    server = new_server(**hook.tables()).start()
    s3 = s3_client(server.endpoint)
    told(s3, hook, bucket)
    key = "red flower/ü+.jpg"
    put = s3.put_object(Bucket=bucket, Key=key, Body=b"petal")
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": key})
    upload = s3.create_multipart_upload(Bucket=bucket, Key="parts")["UploadId"]
    at: Any = {"Bucket": bucket, "Key": "parts", "UploadId": upload}
    part = {"PartNumber": 1, "ETag": s3.upload_part(**at, PartNumber=1, Body=b"part")["ETag"]}
    s3.complete_multipart_upload(**at, MultipartUpload={"Parts": [part]})
    s3.complete_multipart_upload(**at, MultipartUpload={"Parts": [part]})
    s3.put_object_tagging(Bucket=bucket, Key="copy", Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
    s3.delete_object_tagging(Bucket=bucket, Key="copy")
    s3.put_object_acl(Bucket=bucket, Key="copy", ACL="public-read")
    deletions = {"Objects": [{"Key": "copy"}, {"Key": "parts"}, {"Key": "never was"}]}
    s3.delete_objects(Bucket=bucket, Delete=deletions)
    s3.delete_object(Bucket=bucket, Key=key)
    s3.delete_object(Bucket=bucket, Key=key)
    hook.wait_for(9)
    of_copy = ["ObjectCreated:Copy", "ObjectTagging:Put", "ObjectTagging:Delete", "ObjectAcl:Put"]
    assert hook.names("copy") == [*of_copy, "ObjectRemoved:Delete"]
    assert hook.names("parts") == ["ObjectCreated:CompleteMultipartUpload", "ObjectRemoved:Delete"]
    created, removed = hook.records("red+flower/%C3%BC%2B.jpg")
    answer = put["ResponseMetadata"]["HTTPHeaders"]
    assert created["responseElements"]["x-amz-request-id"] == answer["x-amz-request-id"]
    assert created["responseElements"]["x-amz-id-2"] == answer["x-amz-id-2"]
    assert (created["eventSource"], created["awsRegion"], created["eventVersion"]) == ("aws:s3", REGION, "2.1")
    assert created["requestParameters"]["sourceIPAddress"] == "127.0.0.1"
    assert created["userIdentity"]["principalId"]
    assert created["s3"]["configurationId"] == "all"
    assert created["s3"]["bucket"]["name"] == bucket
    assert created["s3"]["bucket"]["arn"] == f"arn:aws:s3:::{bucket}"
    shown = created["s3"]["object"]
    assert (shown["size"], shown["eTag"]) == (5, put["ETag"].strip('"'))
    assert created["eventTime"].endswith("Z")
    assert "versionId" not in shown
    assert removed["eventName"] == "ObjectRemoved:Delete"
    assert shown["sequencer"] < removed["s3"]["object"]["sequencer"]
    assert "size" not in removed["s3"]["object"]


def test_a_form_is_told_as_a_post(new_server: NewServer, hook: Webhook) -> None:
    server = new_server(**hook.tables()).start()
    s3 = s3_client(server.endpoint)
    told(s3, hook)
    form = s3.generate_presigned_post("off-00", "posted")
    fields = dict(form["fields"]) | {"file": ("f", b"content")}
    answer = urllib3.PoolManager().request("POST", form["url"], fields=fields)
    assert answer.status == 204, answer.data
    assert [record["eventName"] for record in hook.wait_for(1)] == ["ObjectCreated:Post"]


def test_where_versions_are_kept_each_event_names_its_version(new_server: NewServer, hook: Webhook) -> None:
    s3 = s3_client(new_server(**hook.tables()).start().endpoint)
    bucket = told(s3, hook)
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    first = s3.put_object(Bucket=bucket, Key="k", Body=b"1")["VersionId"]
    s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})
    marker = s3.delete_object(Bucket=bucket, Key="k")["VersionId"]
    s3.delete_object(Bucket=bucket, Key="k", VersionId=marker)
    s3.delete_object(Bucket=bucket, Key="k", VersionId=first)
    hook.wait_for(5)
    seen = [(record["eventName"], record["s3"]["object"].get("versionId")) for record in hook.records("k")]
    assert seen == [
        ("ObjectCreated:Put", first),
        ("ObjectTagging:Put", first),
        ("ObjectRemoved:DeleteMarkerCreated", marker),
        ("ObjectRemoved:Delete", marker),
        ("ObjectRemoved:Delete", first),
    ]
    sequencers = [record["s3"]["object"]["sequencer"] for record in hook.records("k")]
    assert sequencers == sorted(set(sequencers))


def test_filters_decide_by_event_and_key(new_server: NewServer, hook: Webhook) -> None:
    s3 = s3_client(new_server(**hook.tables()).start().endpoint)
    s3.create_bucket(Bucket="off-00")
    created = rule("s3:ObjectCreated:Put", Id="jpg", Filter=key_filter(prefix="in/", suffix=".jpg"))
    configure(s3, "off-00", created, rule("s3:ObjectRemoved:Delete", Id="gone", Filter=key_filter(prefix="in/")))
    for key in ("in/a.jpg", "in/a.png", "out/a.jpg"):
        s3.put_object(Bucket="off-00", Key=key, Body=b"x")
    s3.copy_object(Bucket="off-00", Key="in/copy.jpg", CopySource="off-00/in/a.jpg")
    for key in ("in/a.png", "out/a.jpg"):
        s3.delete_object(Bucket="off-00", Key=key)
    records = hook.wait_for(2)
    told_of = {(r["eventName"], r["s3"]["object"]["key"], r["s3"]["configurationId"]) for r in records}
    assert told_of == {("ObjectCreated:Put", "in/a.jpg", "jpg"), ("ObjectRemoved:Delete", "in/a.png", "gone")}


def test_what_a_lifecycle_rule_removes_is_told(new_server: NewServer, hook: Webhook) -> None:
    s3 = s3_client(new_server(**hook.tables(), lifecycle={"day": "200ms"}).start().endpoint)
    bucket = told(s3, hook)
    s3.put_object(Bucket=bucket, Key="old", Body=b"x")
    rules: Any = [{"ID": "r", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}}]
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})
    hook.wait_for(2)
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket=bucket, Key="marked", Body=b"x")
    hook.wait_for(4)
    assert hook.names("old") == ["ObjectCreated:Put", "LifecycleExpiration:Delete"]
    assert hook.names("marked") == ["ObjectCreated:Put", "LifecycleExpiration:DeleteMarkerCreated"]
    assert hook.records("old")[1]["userIdentity"]["principalId"] == "s3.amazonaws.com"


def test_an_event_that_is_not_taken_comes_again_and_before_later_ones_of_its_key(
    new_server: NewServer, hook: Webhook
) -> None:
    server = new_server(**hook.tables()).start()
    s3 = s3_client(server.endpoint)
    bucket = told(s3, hook)
    failures = iter([503, 500])
    hook.answer = lambda _: next(failures, 204)
    for number in range(5):
        s3.put_object(Bucket=bucket, Key="k", Body=b"%d" % number)
    s3.put_object(Bucket=bucket, Key="other", Body=b"x")
    hook.wait_for(6)
    assert len(hook.refused) == 2
    sequencers = [record["s3"]["object"]["sequencer"] for record in hook.records("k")]
    assert sequencers == sorted(set(sequencers))
    metrics = server.metrics()
    assert metrics.total("deltaweir_notifications_failed_total", webhook="hook") == 2
    assert metrics.total("deltaweir_notifications_delivered_total", webhook="hook") == 7
    until(lambda: waiting(server) == 0, 20, "nothing waits")


def test_an_event_that_is_refused_holds_up_its_own_key_alone(new_server: NewServer, hook: Webhook) -> None:
    s3 = s3_client(new_server(**hook.tables()).start().endpoint)
    bucket = told(s3, hook)
    takes_it = threading.Event()

    def answer(event: Event) -> int:
        key = event["Records"][0]["s3"]["object"]["key"]
        return 400 if key == "bad" and not takes_it.is_set() else 200

    hook.answer = answer
    s3.put_object(Bucket=bucket, Key="bad", Body=b"1")
    until(lambda: hook.refused, 20, "it was refused")
    s3.delete_object(Bucket=bucket, Key="bad")
    for number in range(100):
        s3.put_object(Bucket=bucket, Key=f"good/{number}", Body=b"x")
    hook.wait_for(100)
    assert hook.records("bad") == []
    takes_it.set()
    hook.wait_for(102)
    assert hook.names("bad") == ["ObjectCreated:Put", "ObjectRemoved:Delete"]


def test_what_was_committed_before_the_server_was_killed_is_told_after_it_started_again(
    new_server: NewServer, hook: Webhook
) -> None:
    server = new_server(**hook.tables()).start()
    s3 = s3_client(server.endpoint)
    bucket = told(s3, hook)
    hook.answer = lambda _: 503
    for number in range(3):
        s3.put_object(Bucket=bucket, Key=f"k{number}", Body=b"x")
    s3.delete_object(Bucket=bucket, Key="k0")
    until(lambda: hook.refused, 20, "one was tried")
    server.kill()
    hook.answer = lambda _: 200
    server.start()
    hook.wait_for(4)
    assert hook.names("k0") == ["ObjectCreated:Put", "ObjectRemoved:Delete"]
    assert hook.names("k1") == hook.names("k2") == ["ObjectCreated:Put"]


def test_an_event_whose_answer_was_lost_comes_twice_with_one_sequencer(new_server: NewServer, hook: Webhook) -> None:
    server = new_server(**hook.tables()).start()
    s3 = s3_client(server.endpoint)
    bucket = told(s3, hook)
    arrived, go_on = threading.Event(), threading.Event()

    def answer(_: Event) -> int:
        arrived.set()
        assert go_on.wait(60)
        return 200

    hook.answer = answer
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert arrived.wait(20)
    server.kill()
    go_on.set()
    server.start()
    records = hook.wait_for(2)
    assert len({record["s3"]["object"]["sequencer"] for record in records}) == 1


def test_a_webhook_that_is_slow_or_sends_elsewhere_is_as_good_as_away(new_server: NewServer, hook: Webhook) -> None:
    server = new_server(**hook.tables(timeout="200ms")).start()
    s3 = s3_client(server.endpoint)
    bucket = told(s3, hook)
    with webhook() as elsewhere:
        hook.headers, hook.answer = {"Location": elsewhere.url}, lambda _: 307
        s3.put_object(Bucket=bucket, Key="k", Body=b"x")
        until(lambda: hook.refused, 20, "it answered a redirect")
        hook.headers = {}
        assert (elsewhere.events, elsewhere.refused) == ([], [])
    go_on = threading.Event()
    hook.answer = lambda _: 200 if go_on.wait(60) else 500
    failed = "deltaweir_notifications_failed_total"
    until(lambda: server.metrics().total(failed, webhook="hook") >= 2, 20, "it was too slow")
    hook.answer, hook.body = lambda _: 200, b"x" * (4 << 20)
    go_on.set()
    until(lambda: waiting(server) == 0 and hook.records("k"), 30, "it took the event")
    assert "Location" not in server.final_log()


def test_a_full_or_old_queue_loses_events_and_says_so(new_server: NewServer, hook: Webhook) -> None:
    limits: Any = {"notifications": {"waiting_max": 3, "keep": "1s"}}
    server = new_server(**(limits | hook.tables())).start()
    s3 = s3_client(server.endpoint)
    bucket = told(s3, hook)
    hook.answer = lambda _: 503
    for number in range(5):
        s3.put_object(Bucket=bucket, Key=f"k{number}", Body=b"x")

    def lost() -> float:
        return server.metrics().total("deltaweir_notifications_lost", webhook="hook")

    # Whichever found no room and whichever waited too long.
    until(lambda: lost() == 5 and waiting(server) == 0, 60, "all are lost")
    hook.answer = lambda _: 200
    s3.put_object(Bucket=bucket, Key="later", Body=b"x")
    until(lambda: hook.records("later"), 30, "the lane works again")
    assert [record["s3"]["object"]["key"] for record in hook.records()] == ["later"]
    assert s3.get_object(Bucket=bucket, Key="k4")["Body"].read() == b"x", "no write was refused"


def test_a_webhook_that_makes_no_sense_is_refused_at_the_start(new_server: NewServer) -> None:
    wrong: list[tuple[dict[str, Value], str]] = [
        ({"url": "ftp://127.0.0.1/x"}, "url: expected an http"),
        ({"url": "nonsense"}, "url: not a URL"),
        ({"url": "http://user:secret@127.0.0.1/"}, "url: a URL with a user"),
        ({"url": "http://169.254.169.254/latest/meta-data/"}, "url: no webhook is at such an address"),
        ({"url": "http://2852039166/"}, "url: no webhook is at such an address"),
        ({"url": "http://[::ffff:169.254.169.254]/"}, "url: no webhook is at such an address"),
        ({"url": "http://127.0.0.1/", "timeout": "1h"}, "timeout: expected"),
    ]
    for keys, complaint in wrong:
        server = new_server(complaint.split(":")[0], **{"notifications.webhooks.hook": keys})
        server.write_config()
        checked = server.run("config", "check", check=False)
        assert checked.returncode != 0
        assert f"notifications.webhooks.hook.{complaint}" in checked.stderr + checked.stdout
