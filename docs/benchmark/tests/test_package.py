"""The package itself: commands answer, kept flags are kept, the schema is current, the client signs and paces right."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from conftest import HERE, FakeTarget

from taxbench.bundle import Bundle
from taxbench.cli import main, parser
from taxbench.client.operation import Operation, Sample
from taxbench.client.pool import WorkerPool, share
from taxbench.commands.doctor import Check
from taxbench.processes import process_usage
from taxbench.servers.deltaweir import BucketSettings, Deltaweir, configuration, mode_buckets
from taxbench.servers.fileserver import FileServer
from taxbench.servers.nginx import Nginx, find_nginx
from taxbench.servers.target import LocalProcess, Target, TargetError
from taxbench.studies.codec_table import ablations_of, codecs, has_delta_command, launch
from taxbench.summary import Summary

PACKAGE = HERE.parent
KEPT_FLAGS = [
    "--run-id",
    "--artifact-count",
    "--artifact-source",
    "--artifact-extension",
    "--alpine-branch",
    "--alpine-flavor",
    "--alpine-arch",
    "--concurrency",
    "--results",
    "--trials",
    "--clean-command",
    "--allow-clean-failure",
    "--restart-command",
    "--restart-between-modes-command",
    "--no-proxy-restart",
    "--no-restart-between-modes",
    "--skip-compression-verify",
    "--resource-sample-interval",
    "--resource-command",
    "--phase-gap-seconds",
    "--mode-bucket",
    "--modes",
    "--metrics-url",
    "--health-url",
    "--timeout",
]


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "artifacts",
        "html-report",
        "doctor",
        "up",
        "status",
        "down",
        "single-vm-smoke",
        "local",
        "compare",
        "verify",
        "pin",
    ],
)
def test_the_thin_script_answers_every_command(command: str) -> None:
    script = PACKAGE / "bench_production_tax.py"
    done = subprocess.run([sys.executable, str(script), command, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage:")


def test_run_keeps_the_flags_people_know() -> None:
    commands = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    known = {flag for action in commands.choices["run"]._actions for flag in action.option_strings}
    assert set(KEPT_FLAGS) <= known


def test_the_schema_in_the_repository_is_that_of_the_code() -> None:
    written = json.loads((PACKAGE / "schema" / "summary.schema.json").read_text())
    assert written == Summary.model_json_schema()


def test_every_finding_a_guard_can_make_is_explained_in_the_readme() -> None:
    source = (PACKAGE / "taxbench" / "guards.py").read_text()
    readme = (PACKAGE / "README.md").read_text()
    made = set(re.findall(r'code="([a-z-]+)"', source))
    assert len(made) > 15
    assert {code for code in made if f"`{code}`" not in readme} == set()


def test_constraints_pin_every_dependency() -> None:
    pinned = {
        line.split("==")[0].lower().replace("_", "-") for line in (PACKAGE / "constraints.txt").read_text().splitlines()
    }
    wanted = re.findall(r'^  "([a-z0-9-]+)[><]', (PACKAGE / "pyproject.toml").read_text(), re.MULTILINE)
    assert len(wanted) >= 10 and set(wanted) <= pinned


@pytest.fixture
def fake(tmp_path: Path) -> FakeTarget:
    return FakeTarget(tmp_path / "data", set())


def put(path: Path, key: str, pace: float = 0.0) -> Operation:
    data = path.read_bytes()
    return Operation(
        kind="put", phase="p", bucket="bench-passthrough", key=key, content_path=str(path), size=len(data),
        sha256=hashlib.sha256(data).hexdigest(), md5=hashlib.md5(data, usedforsecurity=False).hexdigest(),
        pace_bytes_per_s=pace,
    )  # fmt: skip


def test_awkward_keys_are_signed_as_the_specification_says(fake: FakeTarget, tmp_path: Path) -> None:
    content = tmp_path / "x"
    content.write_bytes(b"data")
    keys = [
        "plain",
        "with space",
        "plus+and=equals",
        "ünïcödé/日本",
        "percent%25",
        "quote'\"()*!~",
        "a//b/./c",
        "q?x=1&y#z",
    ]
    with fake, WorkerPool(1, 1 << 20) as pool:
        fake.ensure_bucket("bench-passthrough")
        samples = pool.run(fake.endpoint, [put(content, key) for key in keys]).samples
        assert [s.error for s in samples] == [""] * len(keys)
        assert fake.store is not None
        assert set(fake.store.buckets["bench-passthrough"].objects) == set(keys)


def test_a_wrong_secret_is_refused_by_the_store_and_reported(fake: FakeTarget, tmp_path: Path) -> None:
    content = tmp_path / "x"
    content.write_bytes(b"data")
    with fake, WorkerPool(1, 1 << 20) as pool:
        fake.ensure_bucket("bench-passthrough")
        wrong = type(fake.endpoint)(fake.endpoint.url, "FAKEKEY", "other")
        sample = pool.run(wrong, [put(content, "k")]).samples[0]
    assert sample.status == 403 and "SignatureDoesNotMatch" in sample.error


def test_unsigned_payloads_are_accepted_and_precomputed_hashes_are_checked(fake: FakeTarget, tmp_path: Path) -> None:
    content = tmp_path / "x"
    content.write_bytes(b"data" * 10_000)
    with fake, WorkerPool(1, 1 << 20) as pool:
        fake.ensure_bucket("bench-passthrough")
        unsigned = type(fake.endpoint)(fake.endpoint.url, "FAKEKEY", "fake-secret", payload_hash="unsigned")
        assert pool.run(unsigned, [put(content, "k")]).samples[0].error == ""
        operation = put(content, "k")
        content.write_bytes(b"DATA" * 10_000)
        assert "another SHA-256" in pool.run(fake.endpoint, [operation]).samples[0].error


def test_a_paced_upload_takes_as_long_as_its_rate_says(fake: FakeTarget, tmp_path: Path) -> None:
    content = tmp_path / "x"
    content.write_bytes(bytes(200_000))
    with fake, WorkerPool(1, 1 << 20) as pool:
        fake.ensure_bucket("bench-passthrough")
        sample = pool.run(fake.endpoint, [put(content, "k", pace=400_000)]).samples[0]
    assert sample.error == "" and 0.45 <= sample.total_s < 2.0


def test_a_connection_is_reused_and_a_closed_one_is_not_an_error(fake: FakeTarget, tmp_path: Path) -> None:
    content = tmp_path / "x"
    content.write_bytes(b"data")
    with fake, WorkerPool(1, 1 << 20) as pool:
        fake.ensure_bucket("bench-passthrough")
        first, second = pool.run(fake.endpoint, [put(content, "a"), put(content, "b")]).samples
        pool.disconnect()
        third = pool.run(fake.endpoint, [put(content, "c")]).samples[0]
    assert first.connect_s > 0 and second.connect_s == 0 and third.connect_s > 0


def test_operations_are_shared_by_bytes_and_keep_their_order() -> None:
    sizes = [100, 1, 1, 1, 100, 1]
    operations = [Operation(kind="put", phase="p", bucket="b", key=str(n), size=s << 20) for n, s in enumerate(sizes)]
    shares = share(operations, 2)
    assert sorted(op.key for part in shares for op in part) == [str(n) for n in range(6)]
    assert all([op.key for op in part] == sorted(op.key for op in part) for part in shares)
    assert {max(part, key=lambda op: op.size).size for part in shares} == {100 << 20}


def test_samples_survive_their_csv_file(tmp_path: Path) -> None:
    sample = Sample(
        mode="m", concurrency=1, phase="cold_get", key='a,"b"\nc', total_s=0.123456789, error="x;y", stored_bytes=-1
    )
    bundle = Bundle(tmp_path)
    bundle.append_samples([sample])
    assert bundle.samples("m", 1) == [sample]


def exercise(target: Target, tmp_path: Path) -> list[Sample]:
    """PUT, GET, range, HEAD, DELETE and a GET of what is gone."""
    content = tmp_path / "content"
    content.write_bytes(bytes(range(256)) * 2000)
    base = put(content, "dir/ä b.bin")
    kinds: list[dict[str, object]] = [
        {"kind": "put"}, {"kind": "get"}, {"kind": "range", "offset": 1000, "length": 300}, {"kind": "head"},
        {"kind": "delete"}, {"kind": "get"},
    ]  # fmt: skip
    fields = {name: getattr(base, name) for name in Operation.__slots__}
    with target, WorkerPool(1, 1 << 20) as pool:
        target.ensure_bucket("bench-passthrough")
        return pool.run(target.endpoint, [Operation(**{**fields, **kind}) for kind in kinds]).samples  # type: ignore[arg-type]


@pytest.mark.parametrize("sync", [False, True])
def test_the_tiny_file_server_stores_and_serves(tmp_path: Path, sync: bool) -> None:
    samples = exercise(FileServer(tmp_path / "server", sync=sync), tmp_path)
    assert [s.error for s in samples[:-1]] == [""] * 5
    assert [s.verdict for s in samples[1:4]] == ["ok"] * 3
    assert samples[-1].status == 404


def test_nginx_stores_and_serves(tmp_path: Path) -> None:
    assert find_nginx(), "install nginx: see docs/benchmark/tests/apt-packages.txt"
    samples = exercise(Nginx(find_nginx(), tmp_path / "server"), tmp_path)
    assert [s.error for s in samples[:-1]] == [""] * 5
    assert samples[-1].status == 404


def test_a_server_that_dies_at_once_says_why(tmp_path: Path) -> None:
    process = LocalProcess(["/bin/sh", "-c", "echo no such option >&2; exit 3"], tmp_path / "log")
    process.spawn()
    deadline = time.monotonic() + 5
    with pytest.raises(TargetError, match="no such option"):
        while time.monotonic() < deadline:
            process.check_alive()
            time.sleep(0.01)


def test_a_server_that_ignores_sigterm_is_killed_and_that_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taxbench.servers.target.STOP_TIMEOUT_S", 0.2)
    stubborn = LocalProcess(["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"], tmp_path / "log")
    stubborn.spawn()
    deadline = time.monotonic() + 5
    while "up" not in stubborn.log_tail() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert stubborn.terminate() is True and stubborn.pids() == []
    polite = LocalProcess(["/bin/sleep", "60"], tmp_path / "log")
    polite.spawn()
    assert polite.terminate() is False


def test_the_generated_configuration_is_the_contracts() -> None:
    text = configuration(
        "127.0.0.1:1", "127.0.0.1:2", "/data", {"b": BucketSettings("delta", "aes256", "fast")}, "[limits]\nx = 1"
    )
    parsed = tomllib.loads(text)
    assert parsed["buckets"]["b"] == {"compression": "delta", "encryption": "aes256", "effort": "fast"}
    assert parsed["server"]["storage_headers"] is True and parsed["limits"] == {"x": 1}
    assert set(parsed) == {"server", "storage", "backends", "buckets", "limits"}


def test_a_container_is_started_observed_restarted_and_removed(tmp_path: Path) -> None:
    """`docker` here is a script that runs the stand-in server and remembers its process under the container's id."""
    docker, log = tmp_path / "docker", tmp_path / "calls"
    docker.write_text(
        f"""#!/bin/bash
echo "$*" >> {log}
case "$1" in
  run) shift; while [ "$1" != image ]; do [ "$1" = --env ] && export "$2"; shift; done; shift
       if [ "$1" = --version ]; then echo "deltaweir 9.9"; exit; fi
       setsid {sys.executable} {HERE / "fake_store.py"} "$@" > /dev/null 2>&1 & echo $! > {tmp_path}/pid; echo c0ffee ;;
  inspect) echo "[{{\\"State\\": {{\\"Pid\\": $(cat {tmp_path}/pid)}}}}]" ;;
  stop) kill "$(cat {tmp_path}/pid)"; while kill -0 "$(cat {tmp_path}/pid)" 2> /dev/null; do sleep 0.02; done ;;
esac
"""
    )
    docker.chmod(0o755)
    server = Deltaweir(Path("image"), tmp_path / "data", mode_buckets(), image="image", docker=str(docker))
    assert not server.spawned
    with server, WorkerPool(1, 1 << 20) as pool:
        content = tmp_path / "x"
        content.write_bytes(b"data")
        server.ensure_bucket("bench-passthrough")
        assert pool.run(server.endpoint, [put(content, "k")]).samples[0].error == ""
        usage = process_usage(server.process_ids())
        assert usage is not None and usage.rss_bytes > 1 << 20
        pool.disconnect()
        server.restart()
        head = Operation(kind="head", phase="p", bucket="bench-passthrough", key="k", size=4)
        assert pool.run(server.endpoint, [head]).samples[0].error == ""
        assert server.facts()["server"] == "deltaweir 9.9"
    calls = log.read_text()
    assert "--network host" in calls and calls.count("rm --force c0ffee") == 2


def test_peak_memory_of_a_command_is_its_own_and_not_ours(tmp_path: Path) -> None:
    ballast = bytearray(200 << 20)
    ballast[:: 1 << 12] = b"x" * len(ballast[:: 1 << 12])
    cpu_s, peak = launch(["/bin/true"])
    assert peak < 60 << 20 and cpu_s < 1
    _, large = launch([sys.executable, "-c", "x = b'x' * (150 << 20)"])
    assert large > 150 << 20


def test_a_build_without_the_delta_command_is_told_from_one_with_it(tmp_path: Path) -> None:
    with_it, without = tmp_path / "with", tmp_path / "without"
    with_it.write_text("#!/bin/sh\n[ \"$1 $2 $3\" = 'delta encode --help' ]\n")
    without.write_text("#!/bin/sh\nexit 2\n")
    with_it.chmod(0o755)
    without.chmod(0o755)
    assert has_delta_command(with_it) and not has_delta_command(without)


def test_every_codec_names_its_files_once_in_each_command(tmp_path: Path) -> None:
    for codec in codecs(tmp_path / "deltaweir"):
        encode, decode = " ".join(codec.encode), " ".join(codec.decode)
        assert encode.count("{target}") == 1 and encode.count("{delta}") == 1
        assert decode.count("{delta}") == 1 and decode.count("{out}") == 1
        assert encode.count("{base}") == decode.count("{base}")


def test_ablations_are_computed_from_the_streams() -> None:
    info: dict[str, object] = {
        "instruction_bytes_stored": 10, "sub_bytes": 200, "sub_bytes_stored": 20, "literal_bytes": 790,
        "literal_bytes_stored": 70 }  # fmt: skip
    steps = {row.step: row.bytes for row in ablations_of(info, "tar", 10_000, 110)}
    assert steps == {"matches only": 1000, "and entropy coding": 110}


def test_doctor_finds_a_healthy_endpoint_healthy(
    fake: FakeTarget, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = examined(fake, monkeypatch, capsys, 0)
    assert {c.name for c in checks if c.level == "failed"} == set()
    assert next(c for c in checks if c.name == "credentials").level == "ok"
    assert "stored it as zstd" in next(c for c in checks if c.name == "probe of compression").detail


def test_doctor_says_what_a_bucket_really_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = examined(FakeTarget(tmp_path / "data", {"wrong-mode"}), monkeypatch, capsys, 1)
    failed = {c.name for c in checks if c.level == "failed"}
    assert {"bucket of passthrough", "probe of passthrough", "probe of compression"} <= failed


def examined(
    fake: FakeTarget, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> list[Check]:
    monkeypatch.setenv("TAXBENCH_ACCESS_KEY_ID", "FAKEKEY")
    monkeypatch.setenv("TAXBENCH_SECRET_ACCESS_KEY", "fake-secret")
    with fake:
        assert fake.admin is not None
        for mode in ("passthrough", "compression", "encryption", "compression-encryption"):
            fake.ensure_bucket(f"bench-{mode}")
        flags = ["--endpoint", fake.endpoint.url, "--admin-url", fake.admin.url, "--json", "--concurrency", "1"]
        assert main(["doctor", *flags]) == code
    return [Check.model_validate(entry) for entry in json.loads(capsys.readouterr().out)]


def test_run_measures_an_endpoint_by_url(
    fake: FakeTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "FAKEKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "fake-secret")
    direct = FileServer(tmp_path / "direct")
    restarts = tmp_path / "restarts"
    with fake, direct:
        assert fake.admin is not None
        direct.ensure_bucket("bench-direct")
        arguments = [
            "run", "--endpoint", fake.endpoint.url, "--admin-url", fake.admin.url, "--profile", "smoke", "--run-id",
            "remote",
            "--results", str(tmp_path / "results"), "--data-dir", str(tmp_path / "artifacts"), "--synthetic-scale",
            "0.02", "--synthetic-families", "tar,random", "--modes", "direct,compression", "--direct-endpoint",
            direct.endpoint.url,
            "--direct-plain", "--backend-dir", str(fake.data_dir / "blobs"), "--json", "--trials", "2",
            "--resource-command", "echo '{\"fans\": 3}'", "--resource-sample-interval", "0.1",
            "--health-url", f"{fake.admin.url}/readyz",
            "--restart-command", f"echo restart >> {restarts}", "--clean-command", f"echo clean >> {restarts}",
        ]  # fmt: skip
        assert main(arguments) == 0
    summary = Summary.model_validate_json(capsys.readouterr().out)
    assert {c.mode for c in summary.cells} == {"direct", "compression"}
    assert not summary.fatal
    put_phase = next(c for c in summary.cells if c.mode == "compression").phases["put"]
    assert put_phase.to_direct is not None and put_phase.cpu_s_per_gb is not None
    assert restarts.read_text().split().count("clean") == 1 and "restart" in restarts.read_text()
    series = json.loads((tmp_path / "results/remote/resource_timeseries.json").read_text())
    assert any(sample["external"] == {"fans": 3.0} for sample in series["samples"])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "--endpoint", "http://127.0.0.1:1"], "TAXBENCH_ACCESS_KEY_ID"),
        (["local", "--binary", "/nonexistent"], "no deltaweir binary"),
        (["html-report", "--bundle", "/nonexistent"], "neither a results directory"),
        (["verify", "/etc/passwd"], "neither a results directory"),
        (["artifacts", "--artifact-source", "npm"], "needs --package"),
        (["artifacts", "--artifact-source", "http-index"], "needs --mirror-url"),
    ],
)
def test_mistakes_are_explained_and_not_traced(
    arguments: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    for name in ("TAXBENCH_ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(arguments) in (1, 2)
    assert complaint in capsys.readouterr().err
