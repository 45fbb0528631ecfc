"""The other commands of the binary, beside a running server and without one."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import pytest

from outside.buckets import NewServer
from outside.clients import s3_client
from outside.content import MIB, release
from outside.server import BINARY, SECRET_ACCESS_KEY, Server


@pytest.fixture
def filled(new_server: NewServer) -> Server:
    """A running server with two releases in a delta bucket."""
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    for version in range(2):
        s3.put_object(Bucket="delta-00", Key=f"app {version}", Body=release(101, 5 * MIB, version))
    return server


def test_stats_are_those_of_the_admin_api_and_stay_when_the_server_has_ended(filled: Server) -> None:
    running = filled.json("stats")
    assert running["buckets"] == filled.admin("/api/v1/stats")["buckets"]
    (bucket,) = running["buckets"]
    assert (bucket["name"], bucket["objects"], bucket["logical_bytes"]) == ("delta-00", 2, 10 * MIB)
    assert "delta-00" in filled.run("stats").stdout
    assert filled.stop() == 0
    assert filled.json("stats")["buckets"] == running["buckets"]


def test_explain_tells_how_an_object_is_stored_and_why(filled: Server) -> None:
    told = filled.json("explain", "s3://delta-00/app 1")
    assert (told["form"], told["bases"], told["size"]) == ("delta", ["app 0"], 5 * MIB)
    assert told["stored_bytes"] < MIB
    assert told["reason"]
    assert told == filled.admin("/api/v1/explain?bucket=delta-00&key=app%201")
    text = filled.run("explain", "s3://delta-00/app 1").stdout
    assert "delta" in text
    assert "app 0" in text
    missing = filled.run("explain", "s3://delta-00/none", check=False)
    assert missing.returncode != 0
    assert "there is no object s3://delta-00/none" in missing.stderr


def test_a_directory_without_a_store_is_left_as_it_is(tmp_path: Path) -> None:
    for command in (["stats"], ["gc"], ["users", "list"], ["ls"]):
        refused = subprocess.run(
            [BINARY, *command, "--data", tmp_path], capture_output=True, text=True, timeout=60, check=False
        )
        assert refused.returncode != 0
        assert f"there is no store at {tmp_path}" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_read_is_named(filled: Server) -> None:
    assert "--parameters" in filled.run("jobs", "scrub", "start", "--parameters", "{now", check=False).stderr
    assert "/no/such/file" in filled.run("inspect", "/no/such/file", check=False).stderr


def test_inspect_shows_a_blobs_segments(filled: Server) -> None:
    told = filled.json("explain", "s3://delta-00/app 1")
    (blob,) = told["blobs"]
    inspected = filled.json("inspect", blob["id"])
    assert [segment["coding"] for segment in inspected["segments"]] == ["delta", "delta"]
    assert sum(segment["plain_len"] for segment in inspected["segments"]) == 5 * MIB
    assert filled.run("inspect", "00" * 16, check=False).returncode != 0
    assert filled.run("inspect", "no hex", check=False).returncode != 0


def test_gc_reports_what_it_did(filled: Server) -> None:
    s3 = s3_client(filled.endpoint)
    s3.delete_object(Bucket="delta-00", Key="app 1")
    report = filled.json("gc", "--now")
    assert (report["deleted_blobs"], report["errors"]) == (1, 0)
    assert filled.json("gc", "--now")["deleted_blobs"] == 0
    assert s3.get_object(Bucket="delta-00", Key="app 0")["Body"].read() == release(101, 5 * MIB, 0)


def test_config_check_and_show(filled: Server) -> None:
    filled.run("config", "check")
    shown = filled.run("config", "show").stdout
    assert tomllib.loads(shown)["server"]["listen"] == f"127.0.0.1:{filled.port}"
    assert SECRET_ACCESS_KEY not in shown
    filled.config.write_text(filled.config.read_text() + "[server.unknown]\nkey = 1\n")
    wrong = filled.run("config", "check", check=False)
    assert wrong.returncode != 0
    assert "server.unknown" in wrong.stderr + wrong.stdout


def test_json_is_one_document_on_standard_output(filled: Server) -> None:
    for command in (("stats",), ("explain", "s3://delta-00/app 0"), ("gc",)):
        json.loads(filled.run(*command, "--json").stdout)


def test_help_and_version_answer(new_server: NewServer) -> None:
    server = new_server()
    server.write_config()
    for command in ("serve", "stats", "explain", "inspect", "gc", "config"):
        assert command in server.run("--help").stdout
        assert "--config" in server.run(command, "--help").stdout
    assert server.run("--version").stdout.startswith("deltaweir ")
