"""`estimate` over data whose answer is known, because all of it is stored afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from outside import originals
from outside.archives import wheel
from outside.buckets import NewServer
from outside.clients import s3_client
from outside.content import KIB, noise, release, text
from outside.server import Server
from outside.storage import kept_bytes
from outside.store import Store

SERIES = 24
VERSIONS = 12


def objects() -> dict[str, bytes]:
    """Series that differ in kind and size, and single objects."""
    made: dict[str, bytes] = {}
    for series in range(SERIES):
        size = (16 + 7 * (series % 9)) * KIB
        for version in range(VERSIONS):
            key = f"builds/app-{chr(97 + series)}/v-{version}.bin"
            made[key] = release(series, size, version) if series % 3 else text(1000 * series + version, size)
    return made | {f"single/{chr(97 + n)}{'xyz'[n % 3]}.dat": noise(n, (5 + n) * KIB) for n in range(20)}


def store_all(server: Server, bucket: str, made: dict[str, bytes]) -> int:
    """What everything takes when it is uploaded in the order of names."""
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket=bucket)
    for key in sorted(made, key=lambda key: (len(key), key)):
        s3.put_object(Bucket=bucket, Key=key, Body=made[key])
    server.settle()
    return kept_bytes(server, bucket)


def test_the_interval_holds_what_everything_takes(new_server: NewServer, tmp_path: Path) -> None:
    made = objects()
    folder = tmp_path / "source"
    for key, content in made.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(content)
    server = new_server().start()
    logical = sum(map(len, made.values()))
    found = [
        server.json("estimate", str(folder), "--sample", str(logical // 3), "--seed", str(seed)) for seed in range(4)
    ]
    truth = store_all(server, "delta-00", made)
    assert truth < logical * 0.8, "there is something to be saved"
    for told in found:
        assert (told["objects"], told["logical_bytes"]) == (len(made), logical)
        assert told["sample"]["bytes"] < logical * 0.75
        stored: dict[str, int] = told["stored_bytes"]
        assert stored["low"] <= truth <= stored["high"], (truth, stored)
        assert stored["high"] - stored["low"] < truth, "it says something"
        assert told["cpu_seconds"] > 0
    everything = server.json("estimate", str(folder), "--sample", "1GiB")
    stored = everything["stored_bytes"]
    assert stored["low"] == stored["predicted"] == stored["high"], "nothing is left to be guessed"
    assert abs(stored["predicted"] - truth) < truth * 0.05, (stored, truth)


def test_wheels_count_as_what_the_converter_makes_of_them(new_server: NewServer, tmp_path: Path) -> None:
    made = {f"package-1.{version}.whl": wheel(1, 16, 60_000, version) for version in range(4)}
    folder = tmp_path / "source"
    folder.mkdir()
    for key, content in made.items():
        (folder / key).write_bytes(content)
    server = new_server(defaults={"effort": "auto"}).start()
    predicted = server.json("estimate", str(folder), "--sample", "1GiB")["stored_bytes"]["predicted"]
    truth = store_all(server, "delta-00", made)
    assert truth < sum(map(len, made.values())) * 0.5, "the successors are small"
    assert abs(predicted - truth) < truth * 0.05, (predicted, truth)


def test_a_bucket_is_only_read_and_its_copies_are_seen(store: Store, new_server: NewServer, tmp_path: Path) -> None:
    made = originals.fill(store, 60)
    theirs = store.client()
    some = next(iter(made))
    theirs.put_object(Bucket=originals.BUCKET, Key="copy/of-it", Body=made[some].content)
    before = originals.listed(theirs, originals.BUCKET)
    prices = tmp_path / "prices.toml"
    prices.write_text('as_of = "2026-11"\ncurrency = "EUR"\ncpu_hour = 1\n[[store]]\nname = "ours"\ngib_month = 1024\n')
    server = new_server()
    server.environment |= {"KEY": "AKIATESTSOUTSIDE0001", "SECRET": "outside/tests+secret0123456789ABCDEFabcd"}
    server.write_config()
    flags = (
        *("estimate", f"s3://{originals.BUCKET}", "--endpoint", store.endpoint, "--prices", str(prices)),
        *("--access-key-id", "env:KEY", "--secret-access-key", "env:SECRET"),
    )
    told: dict[str, Any] = json.loads(server.run(*flags, "--json").stdout)
    assert told["objects"] == 61
    assert told["duplicate_bytes"] == len(made[some].content)
    (cost,) = told["money"]
    assert cost["month_now"] == told["logical_bytes"] / 2**20
    assert told["prices"] == {"as_of": "2026-11", "currency": "EUR"}
    assert originals.listed(theirs, originals.BUCKET) == before
    assert not server.data.exists(), "it needs no store"
    text_told = server.run(*flags).stdout
    assert "95 % interval" in text_told
    assert "ours" in text_told
