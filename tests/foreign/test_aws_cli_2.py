"""aws-cli 2: the commands of `s3`, most calls of `s3api`, `sts`.

The first test is a smoke; the others run in `make test-all`."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from outside.clients import AwsCli2
from outside.content import MIB, noise


@pytest.fixture
def aws2(endpoint: str, tmp_path: Path) -> AwsCli2:
    """aws-cli 2 on the shared endpoint."""
    return AwsCli2(endpoint, tmp_path / "aws2-home")


def test_objects_go_up_across_and_back(aws2: AwsCli2, bucket: str, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(noise(1, 12 * MIB))
    assert aws2.run("--version").stdout.startswith("aws-cli/2.")
    aws2.run("s3", "cp", "--only-show-errors", str(big), f"s3://{bucket}/in/big")
    aws2.run("s3", "mv", "--only-show-errors", f"s3://{bucket}/in/big", f"s3://{bucket}/over/big")
    assert aws2.run("s3", "ls", "--recursive", f"s3://{bucket}").stdout.split()[2:] == [str(12 * MIB), "over/big"]
    aws2.run("s3", "sync", "--only-show-errors", f"s3://{bucket}/over", str(tmp_path / "back"))
    assert (tmp_path / "back" / "big").read_bytes() == big.read_bytes()
    url = aws2.run("s3", "presign", f"s3://{bucket}/over/big").stdout.strip()
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.read() == big.read_bytes()
    told = aws2.json("sts", "assume-role", "--role-arn", "arn:xxx:xxx:xxx:xxxx", "--role-session-name", "smoke")
    assert told["Credentials"]["SessionToken"]


@pytest.mark.long
def test_every_command_of_s3_does_what_its_help_says(aws2: AwsCli2, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(5):
        (tree / f"{number}.txt").write_text(f"file {number}")
    aws2.run("s3", "mb", "s3://made-by-aws-two")
    aws2.run("s3", "cp", "--recursive", "--exclude", "4*", "--sse", "AES256", str(tree), "s3://made-by-aws-two/t/")
    listed = aws2.run("s3", "ls", "--summarize", "--human-readable", "s3://made-by-aws-two/t/").stdout
    assert "Total Objects: 4" in listed
    assert "upload" in aws2.run("s3", "sync", "--no-progress", str(tree), "s3://made-by-aws-two/t/").stdout
    assert aws2.run("s3", "sync", "--no-progress", str(tree), "s3://made-by-aws-two/t/").stdout == ""
    (tree / "0.txt").unlink()
    gone = aws2.run("s3", "sync", "--delete", "--no-progress", str(tree), "s3://made-by-aws-two/t/").stdout
    assert gone.startswith("delete: ")
    aws2.run("s3", "cp", "--recursive", "s3://made-by-aws-two/t/", "s3://made-by-aws-two/u/")
    assert aws2.run("s3", "cp", "s3://made-by-aws-two/u/1.txt", "-").stdout == "file 1"
    aws2.run("s3", "rm", "--recursive", "s3://made-by-aws-two/u/")
    aws2.json("s3api", "create-multipart-upload", "--bucket", "made-by-aws-two", "--key", "left-open")
    aws2.run("s3", "rb", "--force", "s3://made-by-aws-two")
    refused = aws2.run("s3", "ls", "s3://made-by-aws-two", check=False)
    assert refused.returncode != 0
    assert "NoSuchBucket" in refused.stderr


@pytest.mark.long
def test_objects_are_put_read_tagged_and_removed_by_s3api(aws2: AwsCli2, bucket: str, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(noise(3, 5000))
    here = ("--bucket", bucket, "--key", "k")
    put = aws2.json(
        "s3api", "put-object", *here, "--body", str(body), "--metadata", "a=b", "--checksum-algorithm", "CRC32C"
    )
    head = aws2.json("s3api", "head-object", *here, "--checksum-mode", "ENABLED")
    assert head["ETag"] == put["ETag"]
    assert head["Metadata"] == {"a": "b"}
    assert head["ChecksumCRC32C"] == put["ChecksumCRC32C"]
    aws2.run("s3api", "get-object", *here, "--range", "bytes=5-9", str(tmp_path / "part"))
    assert (tmp_path / "part").read_bytes() == body.read_bytes()[5:10]
    aws2.run("s3api", "put-object-tagging", *here, "--tagging", "TagSet=[{Key=t,Value=v}]")
    assert aws2.json("s3api", "get-object-tagging", *here)["TagSet"] == [{"Key": "t", "Value": "v"}]
    aws2.run("s3api", "delete-object-tagging", *here)
    attributes = aws2.json("s3api", "get-object-attributes", *here, "--object-attributes", "ObjectSize", "ETag")
    assert attributes["ObjectSize"] == 5000
    aws2.run("s3api", "copy-object", "--bucket", bucket, "--key", "copy", "--copy-source", f"{bucket}/k")
    assert aws2.json("s3api", "get-object-acl", *here)["Grants"][0]["Permission"] == "FULL_CONTROL"
    pages = aws2.json("s3api", "list-objects-v2", "--bucket", bucket, "--page-size", "1")
    assert [found["Key"] for found in pages["Contents"]] == ["copy", "k"]
    gone = json.dumps({"Objects": [{"Key": "copy"}, {"Key": "k"}]})
    assert len(aws2.json("s3api", "delete-objects", "--bucket", bucket, "--delete", gone)["Deleted"]) == 2


@pytest.mark.long
def test_an_upload_in_parts_is_made_by_hand(aws2: AwsCli2, bucket: str, tmp_path: Path) -> None:
    here = ("--bucket", bucket, "--key", "parts")
    upload = aws2.json("s3api", "create-multipart-upload", *here)["UploadId"]
    of_upload = (*here, "--upload-id", upload)
    parts = []
    for number in (1, 2):
        (tmp_path / str(number)).write_bytes(noise(number, 5 * MIB))
        of_part = (*of_upload, "--part-number", str(number), "--body", str(tmp_path / str(number)))
        parts.append({"PartNumber": number, "ETag": aws2.json("s3api", "upload-part", *of_part)["ETag"]})
    assert len(aws2.json("s3api", "list-parts", *of_upload)["Parts"]) == 2
    assert len(aws2.json("s3api", "list-multipart-uploads", "--bucket", bucket)["Uploads"]) == 1
    chosen = json.dumps({"Parts": parts})
    done = aws2.json("s3api", "complete-multipart-upload", *of_upload, "--multipart-upload", chosen)
    assert done["ETag"].endswith('-2"')
    aws2.run("s3api", "get-object", *here, "--part-number", "2", str(tmp_path / "second"))
    assert (tmp_path / "second").read_bytes() == noise(2, 5 * MIB)
    given_up = aws2.json("s3api", "create-multipart-upload", *here)["UploadId"]
    aws2.run("s3api", "abort-multipart-upload", *here, "--upload-id", given_up)


@pytest.mark.long
def test_buckets_are_configured_by_s3api(aws2: AwsCli2) -> None:
    name = "configured-by-aws-two"
    here = ("--bucket", name)
    aws2.run("s3api", "create-bucket", *here, "--object-lock-enabled-for-bucket")
    assert aws2.json("s3api", "get-bucket-versioning", *here)["Status"] == "Enabled"
    assert aws2.json("s3api", "get-object-lock-configuration", *here)["ObjectLockConfiguration"]
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteBucket", "Resource": f"arn:aws:s3:::{name}"}
        ],
    }
    rules = {"Rules": [{"ID": "r", "Status": "Enabled", "Filter": {"Prefix": "tmp/"}, "Expiration": {"Days": 1}}]}
    cors = {"CORSRules": [{"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}]}
    sse = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}
    for call, option, value, read, field in [
        ("policy", "--policy", json.dumps(policy), "policy", "Policy"),
        ("lifecycle-configuration", "--lifecycle-configuration", json.dumps(rules), "lifecycle-configuration", "Rules"),
        ("cors", "--cors-configuration", json.dumps(cors), "cors", "CORSRules"),
        ("tagging", "--tagging", "TagSet=[{Key=a,Value=b}]", "tagging", "TagSet"),
        (
            "encryption",
            "--server-side-encryption-configuration",
            json.dumps(sse),
            "encryption",
            "ServerSideEncryptionConfiguration",
        ),
        (
            "ownership-controls",
            "--ownership-controls",
            "Rules=[{ObjectOwnership=BucketOwnerEnforced}]",
            "ownership-controls",
            "OwnershipControls",
        ),
    ]:
        aws2.run("s3api", f"put-bucket-{call}", *here, option, value)
        assert aws2.json("s3api", f"get-bucket-{read}", *here)[field], call
    block = "BlockPublicAcls=true,IgnorePublicAcls=true,BlockPublicPolicy=true,RestrictPublicBuckets=true"
    aws2.run("s3api", "put-public-access-block", *here, "--public-access-block-configuration", block)
    assert aws2.json("s3api", "get-public-access-block", *here)["PublicAccessBlockConfiguration"]["BlockPublicAcls"]
    assert aws2.json("s3api", "get-bucket-policy-status", *here)["PolicyStatus"] == {"IsPublic": False}
    for call in ("policy", "lifecycle", "cors", "tagging", "encryption", "ownership-controls"):
        aws2.run("s3api", f"delete-bucket-{call}", *here)
    aws2.run("s3api", "delete-public-access-block", *here)
    unset = aws2.run("s3api", "get-bucket-policy", *here, check=False)
    assert "NoSuchBucketPolicy" in unset.stderr
    aws2.run("s3api", "delete-bucket", *here)


@pytest.mark.long
def test_versions_are_listed_read_and_removed_by_s3api(aws2: AwsCli2, bucket: str, tmp_path: Path) -> None:
    here = ("--bucket", bucket, "--key", "k")
    aws2.run("s3api", "put-bucket-versioning", "--bucket", bucket, "--versioning-configuration", "Status=Enabled")
    ids = []
    for number in range(2):
        (tmp_path / "body").write_bytes(noise(number, 100))
        ids.append(aws2.json("s3api", "put-object", *here, "--body", str(tmp_path / "body"))["VersionId"])
    marker = aws2.json("s3api", "delete-object", *here)
    assert marker["DeleteMarker"]
    listed = aws2.json("s3api", "list-object-versions", "--bucket", bucket)
    assert [found["VersionId"] for found in listed["Versions"]] == ids[::-1]
    aws2.run("s3api", "get-object", *here, "--version-id", ids[0], str(tmp_path / "first"))
    assert (tmp_path / "first").read_bytes() == noise(0, 100)
    aws2.run("s3api", "delete-object", *here, "--version-id", marker["VersionId"])
    assert aws2.json("s3api", "head-object", *here)["VersionId"] == ids[1]
