"""Commands for whoever runs a server: its state on one screen, money, shells and man pages."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from outside.buckets import NewServer
from outside.clients import s3_client
from outside.content import MIB, release
from outside.server import BINARY, Server, until
from outside.store import Store

SHELLS = {"bash": "complete -F", "zsh": "#compdef deltaweir", "fish": "complete -c deltaweir"}


def fill(server: Server) -> None:
    """Two releases of five MiB in a delta bucket, and a third that is deleted again."""
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    for version in range(2):
        s3.put_object(Bucket="delta-00", Key=f"app {version}", Body=release(101, 5 * MIB, version))
    s3.put_object(Bucket="delta-00", Key="gone", Body=release(7, 3 * MIB, 0))
    s3.delete_object(Bucket="delta-00", Key="gone")


def test_the_version_names_the_commit(new_server: NewServer) -> None:
    server = new_server()
    server.write_config()
    assert re.fullmatch(r"deltaweir \d+\.\d+\.\d+ \((unknown|[0-9a-f]{7,40})\)\n", server.run("--version").stdout)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shells_completions_know_the_commands(shell: str) -> None:
    done = subprocess.run([BINARY, "completions", shell], capture_output=True, text=True, timeout=30, check=True)
    assert SHELLS[shell] in done.stdout
    for command in ("serve", "stats", "status", "completions"):
        assert command in done.stdout


def test_bash_completes_a_command(tmp_path: Path) -> None:
    script = tmp_path / "deltaweir.bash"
    script.write_bytes(subprocess.run([BINARY, "completions", "bash"], capture_output=True, check=True).stdout)
    asked = (
        f"source {script}; COMP_WORDS=(deltaweir stat); COMP_CWORD=1; _deltaweir deltaweir stat deltaweir; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=30, check=True)
    assert sorted(done.stdout.split()) == ["stats", "status"]


def test_man_pages_are_made_of_the_command_line(tmp_path: Path) -> None:
    page = subprocess.run([BINARY, "man"], capture_output=True, text=True, timeout=30, check=True).stdout
    assert ".TH deltaweir 1" in page
    folder = tmp_path / "man1"
    subprocess.run([BINARY, "man", folder], capture_output=True, timeout=30, check=True)
    names = {path.name for path in folder.iterdir()}
    assert {"deltaweir.1", "deltaweir-serve.1", "deltaweir-config-check.1"} <= names
    assert not [name for name in names if "reference" in name]
    assert "--recursive" in (folder / "deltaweir-ls.1").read_text().replace("\\-", "-")
    if man := shutil.which("man"):
        shown = subprocess.run([man, "-l", folder / "deltaweir-ls.1"], capture_output=True, text=True, check=True)
        assert "recursive" in shown.stdout


def test_asking_a_server_takes_none_of_its_secrets(new_server: NewServer) -> None:
    server = new_server()
    pair = 'access_key_id = "AKIACICICI"\nsecret_access_key = "env:CI_SECRET"'
    server.more_config = f'[[users]]\nname = "ci"\n{pair}\npolicy = "readonly"\n'
    server.environment = {"CI_SECRET": "a secret of the server alone"}
    server.start()
    server.environment = {}
    assert server.json("stats")["totals"]["objects"] == 0
    assert server.run("status").stdout.startswith("health     ready\n")
    assert server.stop() == 0
    refused = server.run("stats", check=False)
    assert refused.returncode == 1
    assert "CI_SECRET" in refused.stderr


def test_what_waits_for_its_deletion_is_counted_apart(new_server: NewServer) -> None:
    server = new_server().start()
    fill(server)
    told = server.json("stats")
    (bucket,) = told["buckets"]
    stored = bucket["stored"]
    assert 2 * MIB < stored["tombstoned"] < 4 * MIB
    kept = stored["total"] - stored["tombstoned"]
    assert bucket["saved_bytes"] == bucket["logical_bytes"] - kept
    assert "money" not in told
    heads, row, _total = server.run("stats").stdout.splitlines()
    assert heads.split()[:6] == ["bucket", "objects", "logical", "stored", "history", "deleting"]
    assert "3.0 MiB" in row
    server.run("gc", "--now")
    after = server.json("stats")["buckets"][0]
    assert after["stored"]["tombstoned"] == 0
    assert after["saved_bytes"] == bucket["saved_bytes"]


def test_saved_bytes_are_money_by_the_prices_of_the_configuration(new_server: NewServer, store: Store) -> None:
    server = new_server(**store.tables())
    server.more_config = '[prices]\ncurrency = "EUR"\ngb_month = 0.02\nwrites_1000 = 0.005\nreads_1000 = 0.0004\n'
    server.start()
    fill(server)
    told = server.json("stats")
    money, totals = told["money"], told["totals"]
    assert money["currency"] == "EUR"
    assert money["saved_month"] == pytest.approx(totals["saved_bytes"] / 1e9 * 0.02)
    assert told["buckets"][0]["saved_month"] == pytest.approx(money["saved_month"])
    kept = totals["stored"]["total"] - totals["stored"]["tombstoned"]
    assert money["stored_month"] == pytest.approx(kept / 1e9 * 0.02)
    requests = money["requests"]
    assert requests["writes"] >= 3
    assert requests["cost"] == pytest.approx(requests["writes"] * 0.005e-3 + requests["reads"] * 0.0004e-3)
    text = server.run("stats").stdout
    assert re.search(r"^saved +\d.* EUR a month$", text, re.MULTILINE)
    assert re.search(r"^requests +\d+ writes, \d+ reads since .* EUR$", text, re.MULTILINE)


def test_a_price_that_is_none_is_refused_with_its_key(new_server: NewServer) -> None:
    server = new_server()
    for price, key in (
        ("gb_month = -1", "prices.gb_month"),
        ('currency = "EUR"', "gb_month"),
        ("gb_months = 1", "prices"),
    ):
        server.more_config = f"[prices]\n{price}\n"
        server.write_config()
        refused = server.run("config", "check", check=False)
        assert refused.returncode == 1
        assert key in refused.stderr


def test_status_says_on_one_screen_how_a_store_is(new_server: NewServer) -> None:
    server = new_server().start()
    fill(server)
    # What a store holds is counted now and then.
    until(lambda: "2 objects in 1 buckets" in server.run("status").stdout, 60, "it is counted again")
    lines = server.run("status").stdout.splitlines()
    assert len(lines) < 24
    said = {line.split(maxsplit=1)[0]: line.split(maxsplit=1)[1] for line in lines}
    assert said["health"] == "ready"
    assert said["replicas"] == "1"
    assert said["store"].startswith("2 objects in 1 buckets, 10.0 MiB in ")
    assert said["deleting"].startswith("3.0 MiB")
    assert server.stop() == 0
    told = server.run("status").stdout
    assert "no server is running" in told


def test_status_fails_with_the_reason_when_a_store_is_not_ready(new_server: NewServer) -> None:
    server = new_server().start()
    moved = server.blobs.rename(server.folder / "elsewhere")
    until(lambda: server.admin_status("/readyz") == 503, 30, "the server notices")
    told = server.run("status", check=False)
    assert told.returncode == 1
    assert re.search(r"^health +not ready: .+", told.stdout)
    assert "not ready" in told.stderr
    moved.rename(server.blobs)
