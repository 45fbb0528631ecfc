"""`python -m cluster [COMMAND …]`: starts the cluster; runs the command against it, or waits for Ctrl-C.

The command finds the endpoint in `DELTAWEIR_TEST_ENDPOINT`, which is what the tests ask for, and its exit code is ours.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from cluster.replicas import Cluster
from outside.buckets import mode_tables
from outside.server import ACCESS_KEY_ID, BINARY, REGION, SECRET_ACCESS_KEY

PROCESSES_MAX = 4
"""Processes of tests that may share the cluster."""
PASTE = """
S3 by way of nginx:  {endpoint}
the replicas:        {replicas}
their admin pages:   {admin} (each token in admin-token in its data directory)
PostgreSQL:          {postgres}
the store behind:    {store} (bucket blobs, the same key pair)
logs and data:       {folder}

export AWS_ACCESS_KEY_ID={key_id}
export AWS_SECRET_ACCESS_KEY='{secret}'
export AWS_DEFAULT_REGION={region}
export AWS_ENDPOINT_URL={endpoint}
aws s3 mb s3://releases
aws s3 cp ./app-1.0.tar s3://releases/
aws s3 ls s3://releases/

Ctrl-C ends all of it and removes its data.
"""


def paste(cluster: Cluster) -> str:
    """What to do with a cluster that runs."""
    return PASTE.format(
        endpoint=cluster.endpoint,
        replicas=" ".join(replica.endpoint for replica in cluster.replicas),
        admin=" ".join(f"http://127.0.0.1:{replica.admin_port}" for replica in cluster.replicas),
        postgres=cluster.postgres.url,
        store=cluster.store.endpoint,
        folder=cluster.folder,
        key_id=ACCESS_KEY_ID,
        secret=SECRET_ACCESS_KEY,
        region=REGION,
    )


def main(command: list[str]) -> int:
    """Starts it, runs the command or waits, ends it."""
    if not BINARY.is_file():
        print(f"{BINARY} is not built: cargo build -p proxy", file=sys.stderr)
        return 2
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="dw-cluster-") as folder:
        cluster = Cluster.start(Path(folder), mode_tables(PROCESSES_MAX) if command else {})
        try:
            if command:
                return subprocess.run(
                    command, env=os.environ | {"DELTAWEIR_TEST_ENDPOINT": cluster.endpoint}, check=False
                ).returncode
            print(paste(cluster), flush=True)
            ended.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
