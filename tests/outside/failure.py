"""What a client library says when a call fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError


def error_code(call: Callable[..., Any], **arguments: Any) -> tuple[int, str]:
    """HTTP status and S3 code of a boto3 call that must fail (HEAD has no document: the code is then the status)."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    response = caught.value.response
    return int(response["ResponseMetadata"]["HTTPStatusCode"]), str(response["Error"]["Code"])
