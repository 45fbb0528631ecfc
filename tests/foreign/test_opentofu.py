"""OpenTofu's S3 backend: a state and its versions, workspaces, and a lock file that one of two clients gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outside.clients import Command, S3Client
from outside.server import REGION, ROOT
from outside.tools import built_by_setup

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

TOFU = ROOT / ".tools" / "bin" / "tofu"
CONFIGURATION = """
terraform {
  backend "s3" {
    bucket                      = "BUCKET"
    key                         = "states/of the tests"
    region                      = "REGION"
    endpoints                   = { s3 = "ENDPOINT" }
    encrypt                     = true
    use_lockfile                = true
    use_path_style              = true
    skip_credentials_validation = true
    skip_requesting_account_id  = true
  }
}
variable "number" { type = number }
resource "terraform_data" "kept" { input = var.number }
output "kept" { value = terraform_data.kept.output }
"""
LOCK = "states/of the tests.tflock"


class Tofu(Command):
    """OpenTofu in a directory of its own, with the state in a bucket."""

    def run(self, *arguments: str, check: bool = True) -> str:
        """`tofu ARGUMENTS`, all that it prints."""
        done = self._run(str(TOFU), f"-chdir={self.home}", *arguments, check=check)
        return done.stdout + done.stderr

    def environment(self) -> dict[str, str]:
        settings = self.home / "tofurc"
        settings.touch()
        return super().environment() | {"TF_CLI_CONFIG_FILE": str(settings), "CHECKPOINT_DISABLE": "1"}

    def begin(self, bucket: str) -> Tofu:
        """Writes the configuration and connects to the state."""
        self.home.mkdir(parents=True)
        text = CONFIGURATION.replace("BUCKET", bucket).replace("REGION", REGION).replace("ENDPOINT", self.endpoint)
        (self.home / "main.tf").write_text(text)
        self.run("init", "-no-color", "-input=false")
        return self

    def apply(self, number: int, check: bool = True) -> str:
        """Makes the number what is kept."""
        return self.run("apply", "-no-color", "-auto-approve", "-input=false", f"-var=number={number}", check=check)

    def kept(self) -> object:
        """What the state says is kept."""
        return json.loads(self.run("output", "-json", "kept"))


@pytest.fixture
def tofu(endpoint: str, tmp_path: Path) -> Tofu:
    """OpenTofu on the shared endpoint."""
    built_by_setup("opentofu", TOFU.name)
    return Tofu(endpoint, tmp_path / "one")


def test_a_state_is_shared_by_two_clients_and_keeps_its_versions(
    tofu: Tofu, s3: S3Client, tmp_path: Path, bucket: str
) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    tofu.begin(bucket).apply(1)
    other = Tofu(tofu.endpoint, tmp_path / "other").begin(bucket)
    assert other.kept() == 1
    other.apply(2)
    assert tofu.kept() == 2
    versions = s3.list_object_versions(Bucket=bucket, Prefix="states/of the tests")["Versions"]
    assert sum(version["Key"] == "states/of the tests" for version in versions) >= 2
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1, "the lock is gone"


def test_workspaces_have_states_of_their_own(tofu: Tofu, bucket: str) -> None:
    tofu.begin(bucket).apply(1)
    tofu.run("workspace", "new", "second")
    tofu.apply(2)
    assert tofu.kept() == 2
    tofu.run("workspace", "select", "default")
    assert tofu.kept() == 1
    assert "second" in tofu.run("workspace", "list")
    tofu.run("workspace", "delete", "-force", "second")
    assert "second" not in tofu.run("workspace", "list")


def test_a_lock_that_somebody_holds_is_not_taken(tofu: Tofu, s3: S3Client, bucket: str) -> None:
    tofu.begin(bucket).apply(1)
    holder = {"ID": "00000000-0000-0000-0000-000000000001", "Operation": "OperationTypeApply", "Who": "another"}
    s3.put_object(Bucket=bucket, Key=LOCK, Body=json.dumps(holder).encode())
    refused = tofu.apply(2, check=False)
    assert "Error acquiring the state lock" in refused
    assert "another" in refused
    assert tofu.kept() == 1
    tofu.run("force-unlock", "-force", str(holder["ID"]))
    tofu.apply(2)
    assert tofu.kept() == 2
