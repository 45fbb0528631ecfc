"""The AWS CRT's S3 client through s3transfer: what `preferred_transfer_client = crt` means to boto3 and the AWS CLI."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError
from s3transfer.crt import (
    BotocoreCRTCredentialsWrapper,
    BotocoreCRTRequestSerializer,
    CRTTransferManager,
    create_s3_crt_client,
)

from outside.clients import S3Client
from outside.content import MIB, noise
from outside.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

pytestmark = pytest.mark.long


@pytest.fixture
def transfers(endpoint: str) -> Iterator[Any]:
    """A transfer manager with the CRT's own parts, retries and checksums."""
    session = botocore.session.Session()
    session.set_credentials(ACCESS_KEY_ID, SECRET_ACCESS_KEY)
    credentials = BotocoreCRTCredentialsWrapper(session.get_credentials())
    provider = credentials.to_crt_credentials_provider()
    client = create_s3_crt_client(REGION, crt_credentials_provider=provider, use_ssl=False)
    serializer = BotocoreCRTRequestSerializer(session, {"region_name": REGION, "endpoint_url": endpoint})
    with CRTTransferManager(client, serializer) as manager:
        yield manager


@pytest.mark.parametrize("size", [0, 1, MIB, 20 * MIB])
def test_a_stream_goes_up_and_comes_back(transfers: Any, bucket: str, s3: S3Client, size: int) -> None:
    content = noise(size, size)
    transfers.upload(io.BytesIO(content), bucket, "ü +%/stream").result()
    assert s3.get_object(Bucket=bucket, Key="ü +%/stream")["Body"].read() == content
    back = io.BytesIO()
    transfers.download(bucket, "ü +%/stream", back).result()
    assert back.getvalue() == content


def test_a_file_goes_up_in_parts_comes_back_and_is_removed(
    transfers: Any, bucket: str, s3: S3Client, tmp_path: Path
) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(noise(1, 40 * MIB))
    transfers.upload(str(there), bucket, "file", extra_args={"ContentType": "a/b", "Metadata": {"k": "v"}}).result()
    head = s3.head_object(Bucket=bucket, Key="file", ChecksumMode="ENABLED")
    assert (head["ContentType"], head["Metadata"], head["ContentLength"]) == ("a/b", {"k": "v"}, 40 * MIB)
    assert head["ETag"].strip('"').endswith("-5")
    assert head["ChecksumType"] == "COMPOSITE"
    transfers.download(bucket, "file", str(back)).result()
    assert back.read_bytes() == there.read_bytes()
    transfers.delete(bucket, "file").result()
    with pytest.raises(ClientError, match="404"):
        s3.head_object(Bucket=bucket, Key="file")
