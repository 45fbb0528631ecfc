"""Puts predecessor and successor of every drawn pair into a real server and measures what the store makes of them.

python -m compressedbench.store [--efforts auto high …] [--families pypi …] [--packages protobuf …] [--all]

One server with the settings it has by itself but for a bucket's effort, one client. Other programs are measured beside
the first effort alone. Raw values go to results/compressed/store.json, tables to
store.md. Exit code 1 when a pair could not be measured; it is named in the report all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cluster.replicas import KEK
from codecbench.codecs import PEERS, Peer
from outside.clients import S3Client, s3_client
from outside.server import REGION, Server, toml
from outside.storage import stored

from compressedbench.__main__ import DATA, OUT, ROOT
from compressedbench.fetch import pair
from compressedbench.figures import PEER_NAMES, RANGE_LEN, Pair, render
from compressedbench.lists import SEED, Draw, draw

BINARY = ROOT / "target" / "release" / "deltaweir"
SEALED = "sealed"
"""At effort `auto`, too, in an encrypted bucket."""
EFFORTS = ("auto", "balanced", "high", SEALED)
SETTLE_S_MAX = 1800
PEER_S_MAX = 900
READS = 3
"""Reads of each kind; the fastest counts."""
TICKS = os.sysconf("SC_CLK_TCK")


def bucket_of(effort: str) -> str:
    return f"releases-{effort}"


class DefaultServer(Server):
    """A server that is told where to listen, where its data is and how hard each bucket tries, and nothing else."""

    def variables(self) -> dict[str, str]:
        return super().variables() | {"DELTAWEIR_KEK": KEK}

    def write_config(self) -> None:
        listen = {"listen": f"127.0.0.1:{self.port}", "admin_listen": f"127.0.0.1:{self.admin_port}"}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(
            toml(
                {
                    "server": listen | {"region": REGION, "storage_headers": True},
                    "storage": {"data": str(self.data)},
                    **{
                        f"buckets.{bucket_of(effort)}": {"encryption": "aes256"}
                        if effort == SEALED
                        else {"effort": effort}
                        for effort in EFFORTS
                    },
                }
            )
        )

    def __enter__(self) -> DefaultServer:
        self.start()
        return self

    def cpu_s(self) -> float:
        """User and system time since its start."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def reads(server: Server, read: Callable[[], object]) -> tuple[float, float]:
    """The fastest cold and the fastest warm time."""
    cold, warm = [], []
    for _ in range(READS):
        server.drop_caches()
        cold.append(seconds(read))
        warm.append(seconds(read))
    return min(cold), min(warm)


def measured(server: DefaultServer, s3: S3Client, effort: str, one: Draw, files: tuple[Path, Path]) -> Pair:
    """One pair at one effort: put, settled, put, settled, read back and compared."""
    bucket = bucket_of(effort)
    keys = [f"{one.family}/{one.package.replace('/', '_')}/{file.name}" for file in files]
    contents = [file.read_bytes() for file in files]

    def put(number: int) -> float:
        return seconds(lambda: s3.put_object(Bucket=bucket, Key=keys[number], Body=contents[number]))

    def body(number: int) -> bytes:
        content: bytes = s3.get_object(Bucket=bucket, Key=keys[number])["Body"].read()
        return content

    def tail() -> bytes:
        last: bytes = s3.get_object(Bucket=bucket, Key=keys[1], Range=f"bytes=-{RANGE_LEN}")["Body"].read()
        return last

    put(0)
    server.settle(SETTLE_S_MAX)
    put_s, before_s = put(1), server.cpu_s()
    server.settle(SETTLE_S_MAX)
    converter_cpu_s = server.cpu_s() - before_s
    if [body(0), body(1), tail()] != [*contents, contents[1][-RANGE_LEN:]]:
        raise ValueError("what was read back is not what was put")
    plain_cold_s, plain_warm_s = reads(server, lambda: body(0))
    get_cold_s, get_warm_s = reads(server, lambda: body(1))
    range_cold_s, range_warm_s = reads(server, tail)
    first, second = (stored(s3, bucket, key) for key in keys)
    return Pair(
        effort=effort,
        family=one.family,
        package=one.package,
        tuned=one.tuned,
        base_bytes=len(contents[0]),
        target_bytes=len(contents[1]),
        base_stored_bytes=first.stored_bytes,
        stored_bytes=second.stored_bytes,
        reason=second.reason,
        put_s=put_s,
        converter_cpu_s=converter_cpu_s,
        plain_cold_s=plain_cold_s,
        plain_warm_s=plain_warm_s,
        get_cold_s=get_cold_s,
        get_warm_s=get_warm_s,
        range_cold_s=range_cold_s,
        range_warm_s=range_warm_s,
    )


def beside(peer: Peer, files: tuple[Path, Path]) -> int | None:
    """How long another program's delta is; `None` when it fails, takes too long or does not give the file back.

    xdelta3 opens gzip files with `gzip` and closes them again, not always as they were.
    """
    with tempfile.TemporaryDirectory() as folder:
        delta, out = Path(folder) / "delta", Path(folder) / "out"
        try:
            for command in (peer.encode(*files, delta), peer.decode(files[0], delta, out)):
                subprocess.run(command, check=True, capture_output=True, timeout=PEER_S_MAX)
        except (OSError, subprocess.SubprocessError):
            return None
        return delta.stat().st_size if out.read_bytes() == files[1].read_bytes() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--efforts", nargs="+", choices=EFFORTS, default=["auto"])
    parser.add_argument("--families", nargs="*", default=[])
    parser.add_argument("--packages", nargs="*", default=[])
    parser.add_argument("--all", action="store_true", help="the part that was tuned on, too")
    parser.add_argument("--binary", type=Path, default=BINARY)
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    print(f"seed {asked.seed}, {asked.binary.parent.name} build")
    pairs, failed = [], []
    with tempfile.TemporaryDirectory() as folder, DefaultServer(Path(folder), binary=asked.binary.resolve()) as server:
        s3 = s3_client(server.endpoint)
        for effort in asked.efforts:
            s3.create_bucket(Bucket=bucket_of(effort))
        for one in draw(asked.seed):
            is_asked = (asked.all or not one.tuned) and (not asked.families or one.family in asked.families)
            if not is_asked or (asked.packages and one.package not in asked.packages):
                continue
            try:
                files = pair(one, DATA)
                found = [measured(server, s3, effort, one, files) for effort in asked.efforts]
                peers = {peer.name: beside(peer, files) for peer in PEERS if peer.name in PEER_NAMES and peer.available}
                pairs += [replace(found[0], peers=peers), *found[1:]]
                sizes = ", ".join(f"{of.effort} {of.stored_bytes}" for of in found)
                print(f"{one.family} {one.package}: {sizes} of {found[0].target_bytes}", flush=True)
            except (OSError, ValueError, AssertionError, subprocess.SubprocessError, StopIteration) as error:
                failed.append({"family": one.family, "package": one.package, "error": type(error).__name__})
                print(f"{one.family} {one.package}: {type(error).__name__}: {error}"[:300], flush=True)
        peak_bytes = server.status_bytes("VmHWM")
    results = {
        "seed": asked.seed,
        "build": asked.binary.parent.name,
        "cores": os.cpu_count(),
        "peak_bytes": peak_bytes,
        "pairs": [one.as_json() for one in pairs],
        "failed": failed,
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "store.json").write_text(json.dumps(results, indent=1) + "\n")
    (asked.out / "store.md").write_text(render(results))
    print((asked.out / "store.md").read_text())
    return int(bool(failed) or not pairs)


if __name__ == "__main__":
    sys.exit(main())
