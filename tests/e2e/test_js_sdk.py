"""The AWS SDK for JavaScript v3 as a client: objects, presigned URLs, Upload, forms by s3-presigned-post."""

from __future__ import annotations

from pathlib import Path

import pytest

from outside.buckets import MakeBucket
from outside.clients import Command
from outside.server import DELTA, DELTA_SEALED, REGION, ROOT, Mode

PROGRAM = ROOT / "tests" / "js-sdk" / "check.mjs"


class Node(Command):
    """Node with the packages of tests/js-sdk, which `tests/setup.sh` installed from its lock file."""

    def environment(self) -> dict[str, str]:
        return super().environment() | {"AWS_REGION": REGION}

    def run(self, *arguments: str) -> None:
        """`node check.mjs ARGUMENTS`; fails when it does."""
        self._run("node", str(PROGRAM), *arguments, timeout_s=120)


@pytest.mark.parametrize("mode", [DELTA, DELTA_SEALED], ids=lambda mode: mode.name)
@pytest.mark.parametrize("check", ["objects", "presigned", "upload", "form"])
def test_the_sdk_gets_what_it_expects(
    endpoint: str, make_bucket: MakeBucket, tmp_path: Path, check: str, mode: Mode
) -> None:
    Node(endpoint, tmp_path / "node-home").run(check, make_bucket(mode))
