"""`up`, `status`, `down` and `single-vm-smoke`, against the API's own shape and stand-ins for ssh and scp."""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hcloud import TOKEN, FakeCloud

from taxbench.cli import main, parser
from taxbench.cloud import lifecycle, remote_run
from taxbench.cloud.lifecycle import APP_LABEL
from taxbench.commands import cloud as commands
from taxbench.commands import flags


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloud]:
    fake = FakeCloud()
    monkeypatch.setenv("HCLOUD_TOKEN", TOKEN)
    monkeypatch.setenv("HCLOUD_ENDPOINT", fake.endpoint)
    monkeypatch.setattr(lifecycle, "connect", functools.partial(lifecycle.connect, 0.01))
    yield fake
    fake.close()


UP = ["up", "--run-id", "r1", "--ssh-key-name", "bench", "--json"]


def said(capsys: pytest.CaptureFixture[str]) -> object:
    return json.loads(capsys.readouterr().out)


def test_a_dry_run_needs_no_token_and_asks_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HCLOUD_TOKEN", raising=False)
    assert main(["up", "--run-id", "r1", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "taxbench-r1-client: ccx33 (client)" in text and f"app={APP_LABEL},run=r1,role=proxy" in text


def test_a_run_without_a_name_is_called_after_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--dry-run"]) == 0
    assert "taxbench-tax-20" in capsys.readouterr().out


def test_a_dry_run_with_a_token_shows_prices_and_creates_nothing(
    cloud: FakeCloud, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--run-id", "r1", "--dry-run", "--single-vm", "--json"]) == 0
    plan = said(capsys)
    assert isinstance(plan, dict)
    assert plan["servers"][0]["eur_per_hour"] == pytest.approx(0.119)
    assert not cloud.servers and not [r for r in cloud.requests if r[0] != "GET"]


def test_up_creates_labelled_machines_and_waits_until_they_run(
    cloud: FakeCloud, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(UP) == 0
    machines = said(capsys)
    assert isinstance(machines, list)
    assert [(m["name"], m["role"], m["status"]) for m in machines] == [
        ("taxbench-r1-client", "client", "running"),
        ("taxbench-r1-proxy", "proxy", "running"),
    ]
    created = [body for method, path, body in cloud.requests if (method, path) == ("POST", "/v1/servers")]
    assert all(body["labels"]["app"] == APP_LABEL and body["labels"]["run"] == "r1" for body in created)
    assert all(body["ssh_keys"] == [1] and body["location"] == "hel1" for body in created)
    assert all(body["user_data"].startswith("#!/bin/sh") and len(body["user_data"]) < 32 << 10 for body in created)


def test_status_and_down_touch_only_their_own_run(cloud: FakeCloud, capsys: pytest.CaptureFixture[str]) -> None:
    main(UP)
    main(["up", "--run-id", "r2", "--ssh-key-name", "bench", "--single-vm"])
    foreign = dict(next(iter(cloud.servers.values())), id=999, name="database", labels={"app": "shop"})
    cloud.servers[999] = foreign
    capsys.readouterr()

    assert main(["status", "--all-benchmark-vms", "--json"]) == 0
    assert len(said(capsys)) == 3  # type: ignore[arg-type]
    assert main(["down", "--run-id", "r1", "--dry-run"]) == 0
    assert len(cloud.servers) == 4
    assert main(["down", "--run-id", "r1"]) == 0
    assert sorted(s["name"] for s in cloud.servers.values()) == ["database", "taxbench-r2"]
    assert main(["down", "--all-benchmark-vms"]) == 0
    assert [s["name"] for s in cloud.servers.values()] == ["database"]


def test_what_was_made_is_deleted_again_when_a_later_machine_fails(
    cloud: FakeCloud, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.refuse_create = 2
    assert main(UP) == 2
    assert "error during placement (resource_unavailable)" in capsys.readouterr().err
    deleted = [path for method, path, _ in cloud.requests if method == "DELETE"]
    assert len(deleted) == 1


def test_a_failed_action_is_an_error(cloud: FakeCloud, capsys: pytest.CaptureFixture[str]) -> None:
    cloud.fail_action = "start_server"
    assert main(UP) == 2
    assert "an action failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["up", "--run-id", "r1", "--ssh-key-name", "nobody"], "no SSH key named 'nobody'"),
        (["up", "--run-id", "r1"], "--ssh-key-name is needed"),
        (["up", "--run-id", "r1", "--dry-run", "--client-type", "zx81"], "no server type 'zx81'"),
        (["up", "--run-id", "r1", "--dry-run", "--location", "mars"], "not sold in mars; it is in fsn1, hel1"),
        (["single-vm-smoke", "--run-id", "r9", "--binary", "/bin/true"], "has 0 machines"),
    ],
)
def test_mistakes_are_explained(
    cloud: FakeCloud, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert main(arguments) == 2
    assert complaint in capsys.readouterr().err
    assert not cloud.servers


def test_a_run_is_not_created_twice(cloud: FakeCloud, capsys: pytest.CaptureFixture[str]) -> None:
    main(UP)
    capsys.readouterr()
    assert main(UP) == 2
    assert "already has servers" in capsys.readouterr().err
    assert len(cloud.servers) == 2


def test_a_wrong_token_is_refused_in_plain_words(
    cloud: FakeCloud, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCLOUD_TOKEN", "stolen")
    assert main(["status", "--run-id", "r1"]) == 2
    assert "unable to authenticate (unauthorized)" in capsys.readouterr().err
    monkeypatch.delenv("HCLOUD_TOKEN")
    assert main(["status", "--run-id", "r1"]) == 2
    assert "set HCLOUD_TOKEN" in capsys.readouterr().err


@pytest.fixture
def shells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`ssh` and `scp` that act on a directory in the place of the machine, and write down what they were asked."""
    place = tmp_path / "machine"
    (place / "opt/taxbench").mkdir(parents=True)
    log = tmp_path / "calls"
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    scripts = {
        "ssh": f"""for last; do :; done; echo "ssh $last" >> {log}
case "$last" in
  "test -f"*) test -f {place}/opt/taxbench/ready ;;
  *"taxbench local"*|*"taxbench run"*)
     mkdir -p {place}/opt/taxbench/results/s1; echo bundle > {place}/opt/taxbench/results/s1/s1.tgz
     echo exit=${{FAKE_EXIT:-0}} ;;
esac""",
        "scp": f"""for last; do :; done; while [ $# -gt 2 ]; do shift; done; echo "scp $1 $2" >> {log}
case "$2" in root@*:*) cp "$1" "{place}/${{2#*:}}" ;; *) cp "{place}/${{1#*:}}" "$2" ;; esac""",
    }
    for name, body in scripts.items():
        (bin_dir / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin_dir / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_dir}:{os.environ['PATH']}")
    (place / "opt/taxbench/ready").touch()
    return log


SMOKE = [
    "single-vm-smoke",
    "--run-id",
    "s1",
    "--binary",
    "/bin/true",
    "--ssh-key-name",
    "bench",
    "--create",
    "--destroy",
]


def test_a_smoke_run_ships_runs_fetches_and_cleans_up(
    cloud: FakeCloud, shells: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        "--results",
        str(tmp_path / "out"),
        "--artifact-source",
        "alpine-iso",
        "--artifact-count",
        "5",
        "--no-proxy-restart",
    ]
    assert main([*SMOKE, *flags, "--concurrency", "1", "--json"]) == 0
    home = tmp_path / "out/s1.tgz"
    assert said(capsys) == {"run_id": "s1", "bundle": str(home)} and home.read_text() == "bundle\n"
    calls = shells.read_text()
    assert "python -m taxbench local --binary ./deltaweir --run-id s1 --artifact-source alpine-iso" in calls
    assert "--concurrency 1" in calls and "--no-proxy-restart" in calls
    assert calls.index("taxbench.tgz root@") < calls.index("pip install") < calls.index("taxbench local")
    assert not cloud.servers, "the machine is gone"


def test_a_run_with_fatal_findings_brings_its_bundle_home_and_fails(
    cloud: FakeCloud, shells: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_EXIT", "1")
    assert main([*SMOKE, "--results", str(tmp_path / "out")]) == 2
    assert "ended with exit 1" in capsys.readouterr().err
    assert (tmp_path / "out/s1.tgz").is_file() and not cloud.servers


APART = ["two-vm-run", *SMOKE[1:]]


def test_a_run_on_two_machines_starts_the_proxy_on_one_and_the_client_on_the_other(
    cloud: FakeCloud, shells: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*APART, "--results", str(tmp_path / "out"), "--concurrency", "1,4", "--json"]) == 0
    home = tmp_path / "out/s1.tgz"
    assert said(capsys) == {"run_id": "s1", "bundle": str(home)} and home.read_text() == "bundle\n"
    calls = shells.read_text()
    addresses = re.findall(r"root@([\d.]+):/opt/taxbench/(deltaweir|taxbench\.tgz)", calls)
    by_file = {name: address for address, name in addresses}
    assert len(set(by_file.values())) == 2, "each machine has its part"
    endpoint = f"http://{by_file['deltaweir']}:9000"
    assert f"python -m taxbench run --endpoint {endpoint} --admin-url {endpoint[:-4]}9001 --run-id s1" in calls
    assert "--concurrency 1,4" in calls and calls.count("--no-proxy-restart") == 1
    assert calls.index("systemd-run") < calls.index("readyz") < calls.index("taxbench run")
    place = tmp_path / "machine/opt/taxbench"
    kept = dict(line.split("=", 1) for line in (place / "proxy.env").read_text().splitlines())
    shown = dict(line.split("=", 1) for line in (place / "client.env").read_text().splitlines())
    assert shown["TAXBENCH_SECRET_ACCESS_KEY"] == kept["DELTAWEIR_SECRET_ACCESS_KEY"]
    assert shown["TAXBENCH_ADMIN_TOKEN"] == kept["DELTAWEIR_ADMIN_TOKEN"]
    for secret in (*kept.values(), *shown.values()):
        assert len(secret) < 16 or secret not in calls, "no command line holds a secret"
    configured = tomllib.loads((place / "proxy.toml").read_text())
    assert configured["server"]["listen"] == "0.0.0.0:9000"
    assert len(configured["buckets"]) == 4
    assert not cloud.servers, "the machines are gone"


def test_a_run_on_two_machines_asks_for_both(
    cloud: FakeCloud, shells: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["two-vm-run", "--run-id", "s1", "--binary", "/bin/true", "--ssh-key-name", "bench"]) == 2
    assert "a client and a proxy were expected" in capsys.readouterr().err


def run_actions() -> list[argparse.Action]:
    """Every flag of a run, as the parser has it."""
    parser = argparse.ArgumentParser(add_help=False)
    flags.add_run_flags(parser)
    flags.add_artifact_flags(parser)
    return list(parser._actions)


def sample_value(action: argparse.Action) -> str:
    """Some value that the flag takes and has not by itself."""
    if action.choices:
        return next(str(choice) for choice in action.choices if choice not in (action.default, "local"))
    if action.dest == "mode_bucket":
        return "passthrough=other"
    return "7" if action.type is int else "7.5" if action.type is float else "a word"


@pytest.mark.parametrize("action", run_actions(), ids=lambda action: str(action.dest))
def test_a_flag_of_a_run_reaches_the_machine_or_is_refused(action: argparse.Action) -> None:
    (flag,) = action.option_strings
    given = [flag] if action.nargs == 0 else [flag, sample_value(action)]
    for command, refused in ((SMOKE, commands.REFUSED), (APART, commands.REFUSED_APART)):
        options = parser().parse_args([*command, *given])
        if action.dest in refused:
            with pytest.raises(lifecycle.CloudError, match=f"{flag} cannot be used with rented machines"):
                commands.forwarded(options, refused)
        else:
            passed = shlex.join(commands.forwarded(options, refused))
            assert action.dest in commands.KEPT_HERE or f" {shlex.join(given)} " in f" {passed} "


def test_files_of_this_machine_are_no_source_there(
    cloud: FakeCloud, shells: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (SMOKE, APART):
        assert main([*command, "--artifact-source", "local"]) == 2
        assert "--artifact-source local cannot be used" in capsys.readouterr().err
    assert not shells.exists()
    assert not any(method == "POST" for method, _, _ in cloud.requests)


def test_a_rented_machine_has_the_tools_of_each_source() -> None:
    installed = set(lifecycle.CLOUD_INIT.read_text().split())
    listed = set((Path(__file__).parent / "apt-packages.txt").read_text().split())
    assert listed - {"chromium", "fonts-dejavu-core"} <= installed, "chromium looks at pages, which is done here"


def test_a_machine_that_never_boots_is_given_up(tmp_path: Path, shells: Path) -> None:
    (tmp_path / "machine/opt/taxbench/ready").unlink()
    shell = remote_run.Shell("203.0.113.1", tmp_path / "hosts")
    with pytest.raises(lifecycle.CloudError, match="did not come up"):
        remote_run.await_boot(shell, timeout_s=0.2, pause_s=0.05)
