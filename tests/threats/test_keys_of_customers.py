"""Encryption that a request asks for: never in the clear, never in part, never left behind (C90, C103, C104)."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import pytest

from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.content import MIB, noise
from outside.failure import error_code

KEY, OTHER_KEY = "k" * 31 + "1", "k" * 31 + "2"
Keyed = dict[str, Any]


def customer(key: str = KEY) -> Keyed:
    return {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": key}


def test_a_customers_key_is_not_taken_without_tls_where_the_operator_says_so(new_server: NewServer) -> None:
    server = new_server(server={"sse_c_over_http": False}).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="off-00")
    assert error_code(s3.put_object, Bucket="off-00", Key="k", Body=b"x", **customer())[0] == 400
    assert error_code(s3.create_multipart_upload, Bucket="off-00", Key="k", **customer())[0] == 400
    s3.put_object(Bucket="off-00", Key="plain", Body=b"x")
    assert error_code(s3.get_object, Bucket="off-00", Key="plain", **customer())[0] == 400
    assert s3.list_objects_v2(Bucket="off-00")["KeyCount"] == 1, "nothing was stored"
    server.tables["server"] = {"sse_c_over_http": True}
    server.restart()
    put = s3.put_object(Bucket="off-00", Key="k", Body=b"x", **customer())
    assert put["ETag"] != f'"{hashlib.md5(b"x", usedforsecurity=False).hexdigest()}"'
    assert error_code(s3.get_object, Bucket="off-00", Key="k", **customer(OTHER_KEY))[0] == 400


def test_parts_keep_to_what_their_upload_was_opened_with(s3: S3Client, bucket: str) -> None:
    at: Keyed = {"Bucket": bucket, "Key": "k"}
    keyed = {**at, "UploadId": s3.create_multipart_upload(**at, **customer())["UploadId"], "PartNumber": 1}
    assert error_code(s3.upload_part, **keyed, Body=b"x")[0] == 400
    assert error_code(s3.upload_part, **keyed, Body=b"x", **customer(OTHER_KEY))[0] == 400
    plain = {**at, "UploadId": s3.create_multipart_upload(**at)["UploadId"], "PartNumber": 1}
    assert error_code(s3.upload_part, **plain, Body=b"x", **customer())[0] == 400
    opened = s3.create_multipart_upload(**at, ChecksumAlgorithm="SHA256")
    summed = {**at, "UploadId": opened["UploadId"], "PartNumber": 1}
    assert error_code(s3.upload_part, **summed, Body=b"x", ChecksumAlgorithm="CRC32")[0] == 400
    for upload in (keyed, plain, summed):
        listed = s3.list_parts(**at, UploadId=upload["UploadId"])
        assert listed.get("Parts", []) == [], "nothing was stored"


def test_copies_go_between_every_two_kinds_of_encryption_and_leave_no_mark(new_server: NewServer) -> None:
    tables: Any = {"kms.keys": {"invoices": "keyring"}}
    server = new_server(**tables).start()
    s3 = s3_client(server.endpoint)
    kinds: dict[str, tuple[str, Keyed]] = {
        "plain": ("off-00", {}),
        "sealed": ("delta-aes256-00", {}),
        "customer": ("off-00", customer()),
        "customer, sealed": ("delta-aes256-00", customer(OTHER_KEY)),
        "server": ("off-00", {"ServerSideEncryption": "AES256"}),
        "kms": ("off-00", {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "invoices"}),
    }
    for name in ("off-00", "delta-aes256-00"):
        s3.create_bucket(Bucket=name)
    content = noise(5, MIB // 2)
    for kind, (bucket, keyed) in kinds.items():
        s3.put_object(Bucket=bucket, Key=kind, Body=content, Metadata={"m": "1"}, **keyed)
    for (one, (source, from_keys)), (other, (target, to_keys)) in itertools.permutations(kinds.items(), 2):
        opens = {f"CopySource{name}": value for name, value in from_keys.items() if name.startswith("SSECustomer")}
        at: Keyed = {"Bucket": target, "Key": f"{one} to {other}"}
        s3.copy_object(**at, CopySource={"Bucket": source, "Key": one}, **opens, **to_keys)
        reads = to_keys if "SSECustomerKey" in to_keys else {}
        got = s3.get_object(**at, **reads)
        assert got["Body"].read() == content and got["Metadata"] == {"m": "1"}, at
        told = {name: got.get(name) for name in ("SSECustomerAlgorithm", "SSEKMSKeyId")}
        direct = s3.get_object(Bucket=target, Key=other, **reads)
        assert told == {name: direct.get(name) for name in told}, at
        assert got.get("ServerSideEncryption") == direct.get("ServerSideEncryption"), at


@pytest.mark.parametrize("name", ["off-00", "delta-aes256-00"])
def test_an_object_that_is_replaced_keeps_nothing_of_the_encryption_before(new_server: NewServer, name: str) -> None:
    s3 = s3_client(new_server().start().endpoint)
    s3.create_bucket(Bucket=name)
    for keyed in (customer(), {}, {"ServerSideEncryption": "AES256"}, {}, customer(OTHER_KEY), {}):
        s3.put_object(Bucket=name, Key="k", Body=b"content", **keyed)
        reads = keyed if "SSECustomerKey" in keyed else {}
        got = s3.get_object(Bucket=name, Key="k", **reads)
        assert got["Body"].read() == b"content"
        assert ("SSECustomerAlgorithm" in got) == ("SSECustomerKey" in keyed)
