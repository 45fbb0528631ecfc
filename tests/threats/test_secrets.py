"""Keys, tokens and signatures show nowhere, and nothing of them outlives its owner (C28, C111, C115, C134)."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from e2e.test_reload import CAROL
from outside.buckets import NewServer
from outside.clients import blunt_client, s3_client
from outside.content import MIB, noise
from outside.failure import error_code
from outside.server import BINARY, SECRET_ACCESS_KEY, Server, until
from outside.sigv4 import Scope
from outside.wire import Answer, Connection, encode, signed

CUSTOMER_KEY = "the-key-of-a-customer-31-letters"
ADMIN_TOKEN = "token-of-the-admin-port-0123456789abcdef"
READ_TOKEN = "token-that-only-reads-0123456789abcdef"
WRONG_TOKEN = "token-that-somebody-guessed-0123456789"
KEK = base64.b64encode(noise(4711, 32)).decode()


def ask(server: Server, data: bytes, method: str = "GET") -> Answer:
    """The answer to one request."""
    with Connection(server.port) as connection:
        connection.send(data)
        answer = connection.answer(method)
    assert answer is not None
    return answer


def customer_headers() -> list[tuple[str, str]]:
    """The three headers of a customer's key."""
    digest = base64.b64encode(hashlib.md5(CUSTOMER_KEY.encode(), usedforsecurity=False).digest()).decode()
    prefix = "x-amz-server-side-encryption-customer-"
    key = base64.b64encode(CUSTOMER_KEY.encode()).decode()
    return [(f"{prefix}algorithm", "AES256"), (f"{prefix}key", key), (f"{prefix}key-MD5", digest)]


def test_no_secret_reaches_log_metrics_answers_or_a_core(new_server: NewServer) -> None:
    server = new_server(log={"filter": "trace"}, server={"admin_token": ADMIN_TOKEN, "admin_read_token": READ_TOKEN})
    server.environment["DELTAWEIR_KEK"] = KEK
    server.more_config = CAROL % "readwrite"
    server.start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    s3.create_bucket(Bucket="delta-aes256-00")
    customer: dict[str, Any] = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": CUSTOMER_KEY}
    s3.put_object(Bucket="delta-00", Key="k", Body=b"x", **customer)
    s3.put_object(Bucket="delta-aes256-00", Key="k", Body=b"x")
    error_code(s3.get_object, Bucket="delta-00", Key="k")
    carol = s3_client(server.endpoint, "AKIACAROL", "carols-secret-key")
    carol.list_objects_v2(Bucket="delta-00")
    url = s3_client(server.endpoint, signature_version="s3v4").generate_presigned_url(
        "get_object", {"Bucket": "delta-aes256-00", "Key": "k"}
    )
    signature = url.partition("X-Amz-Signature=")[2].partition("&")[0]
    host = f"127.0.0.1:{server.port}"
    target = url.removeprefix(server.endpoint)
    answers = [ask(server, encode("GET", sent, [("Host", host)])) for sent in (target, f"{target}x")]
    assert [answer.status for answer in answers] == [200, 403]
    # A request whose signature is wrong is told what was signed, and a key is no part of that (C134).
    wrong = Scope(secret="not-the-secret")
    told = ask(server, signed(host, "GET", "/delta-00/k", customer_headers(), scope=wrong))
    assert (told.status, told.code) == (403, "SignatureDoesNotMatch")
    right = signed(host, "GET", "/delta-00/k", customer_headers())
    found = re.search(rb"Signature=([0-9a-f]{64})", right)
    assert found
    assert ask(server, right).status == 200
    assert server.admin_status("/api/v1/stats", token=WRONG_TOKEN) == 401
    assert server.admin_status("/api/v1/stats", token=READ_TOKEN) == 200
    pages = [json.dumps(server.admin(f"/api/v1/{name}")) for name in ("stats", "buckets", "jobs")]
    pages.append(json.dumps(server.admin("/api/v1/explain?bucket=delta-aes256-00&key=k")))
    pages.append(server.run("config", "check", check=False).stdout)
    pages.append(str(server.metrics()))
    secrets = [SECRET_ACCESS_KEY, "carols-secret-key", CUSTOMER_KEY, KEK, ADMIN_TOKEN, READ_TOKEN, WRONG_TOKEN]
    secrets += [base64.b64encode(CUSTOMER_KEY.encode()).decode(), signature, found[1].decode()]
    shown = str(told)
    assert [secret for secret in secrets if secret in shown] == []
    assert server.process is not None
    limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE), limits
    log = server.final_log()
    for op, least in (("GetObject", 5), ("PutObject", 2), ("ListObjectsV2", 1)):
        told_of = len(re.findall(rf'deltaweir::access: .*op="{op}"', log))
        assert told_of >= least, f"the log was on: {told_of} of {op}"
    text = "\n".join([*pages, log, *(str(answer) for answer in answers[:1])])
    assert [secret for secret in secrets if secret in text] == []


def test_no_other_program_of_the_same_user_reads_the_memory_of_a_server_or_command() -> None:
    """A process that is not dumpable leaves no dump, not even one that goes to a program, and only root traces it."""
    user = 65534 if os.geteuid() == 0 else os.geteuid()
    as_user = ["setpriv", f"--reuid={user}", "--clear-groups"] if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="deltaweir-dumpable-"))
    try:
        os.chown(folder, user, -1)
        folder.chmod(0o755)
        script = folder / "deltaweir"
        script.write_text(f'#!/bin/sh\nexec {" ".join(as_user)} {BINARY} "$@"\n')
        script.chmod(0o755)
        server = Server(folder, environment={"DELTAWEIR_KEK": KEK}, binary=script)
        server.write_config()
        os.chown(server.config, user, -1)
        other = subprocess.Popen([*as_user, "sleep", "600"], env={"SECRET": KEK})
        try:
            server.start()
            assert server.process is not None

            def reads(pid: int, name: str) -> bool:
                command = [*as_user, "head", "-c1", f"/proc/{pid}/{name}"]
                return subprocess.run(command, capture_output=True, check=False).returncode == 0

            until(lambda: reads(other.pid, "environ"), 20, "what is dumpable can be read")
            assert reads(other.pid, "maps")
            assert not any(reads(server.process.pid, name) for name in ("environ", "maps", "mem", "auxv"))
            # The server reads of itself what it needs.
            s3 = s3_client(server.endpoint)
            s3.create_bucket(Bucket="delta-00")
            s3.put_object(Bucket="delta-00", Key="k", Body=b"x")
            assert server.metrics().total("process_open_fds") > 0
            assert server.json("stats")
            # So does a command: it may open the store itself, and knows the same secrets.
            follow = ["audit", "tail", "--follow", "--config", str(server.config)]
            command = subprocess.Popen([script, *follow], env=server.variables(), stdout=subprocess.PIPE)
            try:
                assert command.stdout is not None and command.stdout.readline()
                assert not any(reads(command.pid, name) for name in ("environ", "maps", "mem", "auxv"))
            finally:
                command.kill()
                command.wait()
        finally:
            other.kill()
            other.wait()
            server.kill()
    finally:
        shutil.rmtree(folder)


def test_locked_memory_never_goes_to_swap_and_who_may_not_lock_all_of_it_does_not_start(
    new_server: NewServer, tmp_path: Path
) -> None:
    server = new_server(server={"lock_memory": True})
    as_root = ["setpriv", "--bounding-set", "-ipc_lock,-sys_resource"] if os.geteuid() == 0 else []
    script = tmp_path / "bounded"
    script.write_text(f'#!/bin/sh\nexec prlimit --memlock=65536:65536 {" ".join(as_root)} {BINARY} "$@"\n')
    script.chmod(0o755)
    server.binary = script
    assert server.launch().wait(30) == 1
    assert "this process may lock 64.0 KiB of memory. Let it lock all: LimitMEMLOCK=infinity" in server.tail()
    checks = json.loads(server.run("doctor", "--json", check=False).stdout)["checks"]
    assert [check["state"] for check in checks if check["check"] == "locked memory"] == ["failed"]
    server.binary = BINARY
    server.start()
    assert server.process is not None
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-aes256-00")
    content = noise(1, 32 * MIB)
    s3.put_object(Bucket="delta-aes256-00", Key="k", Body=content)
    assert s3.get_object(Bucket="delta-aes256-00", Key="k")["Body"].read() == content
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = {name: int(kilobytes) for name, kilobytes in re.findall(r"(?m)^Vm(\w+):\s+(\d+) kB", status)}
    assert found["Lck"] > found["RSS"] and found["Swap"] == 0, found


def test_a_signed_request_can_be_sent_again_until_its_key_is_gone(new_server: NewServer) -> None:
    """A signature says nothing of how often: within its fifteen minutes a PUT is the same PUT again."""
    server = new_server()
    server.more_config = CAROL % "readwrite"
    server.start()
    s3_client(server.endpoint).create_bucket(Bucket="delta-00")
    scope = Scope(key_id="AKIACAROL", secret="carols-secret-key")
    request = signed(f"127.0.0.1:{server.port}", "PUT", "/delta-00/k", body=b"first", scope=scope)
    assert [ask(server, request, "PUT").status for _ in range(2)] == [200, 200]
    s3_client(server.endpoint).put_object(Bucket="delta-00", Key="k", Body=b"second")
    server.run("users", "keys", "remove", "carol", "AKIACAROL")
    answer = ask(server, request, "PUT")
    assert (answer.status, answer.code) == (403, "InvalidAccessKeyId")
    kept = s3_client(server.endpoint).get_object(Bucket="delta-00", Key="k")["Body"].read()
    assert kept == b"second", "nothing was stored"


def salts(server: Server) -> set[bytes]:
    """Salts of the sealed blobs (docs/format/blob-v1.md §3)."""
    heads = [path.read_bytes()[:160] for path in server.blobs.rglob("*") if path.is_file()]
    return {head[64:96] for head in heads if head[:4] == b"DWB1" and head[5] == 1}


def test_two_machines_of_one_snapshot_use_no_key_twice(new_server: NewServer) -> None:
    """Both go on from the same state with the same objects in the same order, as two clones of a machine do."""
    first, second = new_server("first").start(), new_server("second")
    blunt_client(first.endpoint).create_bucket(Bucket="delta-aes256-00")
    blunt_client(first.endpoint).put_object(Bucket="delta-aes256-00", Key="before", Body=noise(1, 300_000))
    assert first.stop() == 0
    before = salts(first)
    shutil.copytree(first.data, second.data)
    made = []
    for server in (first, second):
        server.start()
        s3 = blunt_client(server.endpoint)
        for number in range(4):
            s3.put_object(Bucket="delta-aes256-00", Key=f"k{number}", Body=noise(number + 10, 300_000))
        assert server.stop() == 0
        made.append(salts(server) - before)
    assert all(len(of_one) >= 4 for of_one in made), made
    assert made[0] & made[1] == set(), "a salt makes the keys of one blob, and no two blobs have the same"


def test_a_store_that_is_given_no_key_makes_one_that_no_other_has(new_server: NewServer) -> None:
    kept = []
    for name in ("one", "other"):
        server = new_server(name).start()
        s3_client(server.endpoint).create_bucket(Bucket="delta-aes256-00")
        assert server.stop() == 0
        keyring = server.data / "keyring.json"
        assert keyring.stat().st_mode & 0o777 == 0o600
        kept.append(base64.b64decode(json.loads(keyring.read_text())["kek"]))
    assert all(len(set(kek)) > 8 for kek in kept) and kept[0] != kept[1]
    server = new_server("zero")
    server.environment["DELTAWEIR_KEK"] = base64.b64encode(bytes(32)).decode()
    refused = server.launch()
    assert refused.wait(20) != 0
    assert "storage.kek" in server.log.read_text()
