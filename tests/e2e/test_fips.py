"""A FIPS build (docs/guide/fips.md): clients use it, nothing of its cryptography is another library's, and it and the
default build open each other's stores."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from e2e.test_key_providers import NAMED, fill, kept_by
from outside.buckets import NewServer
from outside.clients import S3Client, s3_client, sts_client, upload_parts
from outside.content import MIB, noise, release
from outside.failure import error_code
from outside.key_providers import kms, transit
from outside.remote import authority_and_server, serve_over_tls
from outside.server import BINARY, ROOT, Server, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]

TARGET = ROOT / "target" / "fips"
SEALED, PLAIN = "delta-aes256-00", "off-00"
CUSTOMER = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "0123456789abcdef0123456789abcdef"}
OTHERS = {
    "aes": "_ZN3aes",
    "aws-lc without the module": "aws_lc_0_",
    "aws-sigv4": "9aws_sigv4",
    "hkdf": "_ZN4hkdf",
    "polyval": "7polyval",
    "sha2's SHA-512": "_ZN4sha26sha512",
}
"""Other libraries, by parts of the names of their functions. PostgreSQL's driver has SHA-256 and HMAC of its own."""


@pytest.fixture(name="binary", scope="module")
def fips_build() -> Path:
    """The server with the feature `fips`, beside the usual objects."""
    command = ["cargo", "build", "--locked", "-p", "proxy", "--features", "fips", "--target-dir", str(TARGET)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=5400)
    return TARGET / "debug" / "deltaweir"


def symbols(binary: Path) -> set[str]:
    """Which of the other libraries a binary has functions of."""
    listed = subprocess.run(["nm", "--defined-only", str(binary)], capture_output=True, check=True, text=True).stdout
    functions = [line.split()[-1] for line in listed.splitlines() if line.split()[1] in "tTwW"]
    assert len(functions) > 10_000
    return {library for library, part in OTHERS.items() if any(part in name for name in functions)}


def test_a_fips_build_says_so_and_holds_no_other_cryptography(new_server: NewServer, binary: Path) -> None:
    server = new_server()
    server.binary = binary
    server.start()
    assert server.run("--version").stdout.rstrip().endswith("FIPS build")
    assert re.search(r"ok +cryptography +AWS-LC FIPS \d", server.run("doctor", check=False).stdout)
    assert re.search(r"a FIPS build: cryptography is the module's.*AWS-LC FIPS \d", server.final_log())
    assert symbols(binary) == set()
    assert symbols(BINARY) == set(OTHERS), "the default build has them: the check would notice"
    assert "FIPS" not in subprocess.run([BINARY, "--version"], capture_output=True, check=True, text=True).stdout


def altered(binary: Path, copy: Path) -> Path:
    """A copy of a binary with one bit of its module's text turned."""
    listed = subprocess.run(["nm", "--defined-only", str(binary)], capture_output=True, check=True, text=True).stdout
    places = {line.split()[2]: int(line.split()[0], 16) for line in listed.splitlines()}
    start, end = places["BORINGSSL_bcm_text_start"], places["BORINGSSL_bcm_text_end"]
    lines = subprocess.run(["readelf", "-lW", str(binary)], capture_output=True, check=True, text=True).stdout
    loads = [
        [int(word, 16) for word in line.split()[1:5]] for line in lines.splitlines() if line.split()[:1] == ["LOAD"]
    ]
    (offset,) = [at + start - address for at, address, _, length in loads if address <= start < address + length]
    shutil.copy2(binary, copy)
    with copy.open("r+b") as file:
        file.seek(offset + (end - start) // 2)
        [byte] = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    return copy


def test_a_program_whose_module_was_altered_does_nothing(binary: Path, tmp_path: Path) -> None:
    good = subprocess.run([binary, "--version"], capture_output=True, check=False)
    assert good.returncode == 0
    bad = subprocess.run([altered(binary, tmp_path / "altered"), "--version"], capture_output=True, check=False)
    assert bad.returncode == -signal.SIGABRT, bad
    assert (bad.stdout, b"FIPS" in bad.stderr) == (b"", True), bad


def agreed(port: int, trusts: Path, cipher: str) -> bool:
    """Whether a listener agrees on a cipher of TLS 1.2."""
    context = ssl.create_default_context(cafile=trusts)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(cipher)
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            return connection.cipher() is not None
    except OSError:
        return False


def test_tls_takes_approved_ciphers_alone_and_clients_do_everything_over_it(
    new_server: NewServer, binary: Path, tmp_path: Path
) -> None:
    authority, tls = authority_and_server(tmp_path)
    seen = []
    for name, of in (("fips", binary), ("default", BINARY)):
        server = new_server(name, **NAMED)
        server.binary = of
        serve_over_tls(server, tls, authority.path)
        ciphers = ("ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305")
        seen.append([agreed(server.port, authority.path, cipher) for cipher in ciphers])
        use(s3_client(f"https://127.0.0.1:{server.port}", verify=authority.path))
    assert seen == [[True, False], [True, True]]


def use(s3: S3Client) -> None:
    """Sealed content, parts, each kind of key, URLs of both versions."""
    for bucket in (SEALED, PLAIN):
        s3.create_bucket(Bucket=bucket)
    for number in range(2):
        content = release(7, MIB, number)
        s3.put_object(Bucket=SEALED, Key=f"k{number}", Body=content, ChecksumAlgorithm="SHA256")
        assert s3.get_object(Bucket=SEALED, Key=f"k{number}", ChecksumMode="ENABLED")["Body"].read() == content
    parts = noise(3, 17 * MIB)
    upload_parts(s3, SEALED, "parts", parts)
    assert s3.get_object(Bucket=SEALED, Key="parts")["Body"].read() == parts
    assert (
        s3.get_object(Bucket=SEALED, Key="parts", Range="bytes=9000000-9000099")["Body"].read()
        == parts[9_000_000:][:100]
    )
    kinds: dict[str, dict[str, Any]] = {
        "customer": CUSTOMER,
        "server": {"ServerSideEncryption": "AES256"},
        "named": {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "payroll"},
    }
    for key, kind in kinds.items():
        s3.put_object(Bucket=PLAIN, Key=key, Body=parts, **kind)
        shown = kind if key == "customer" else {}
        assert s3.get_object(Bucket=PLAIN, Key=key, **shown)["Body"].read() == parts
    assert error_code(s3.get_object, Bucket=PLAIN, Key="customer")[0] == 400


def test_requests_are_signed_in_every_way(new_server: NewServer, binary: Path) -> None:
    server = new_server(**NAMED)
    server.binary = binary
    server.start()
    s3 = s3_client(server.endpoint)
    use(s3)
    for version in ("s3v4", "s3"):
        signer = s3_client(server.endpoint, signature_version=version)
        url = signer.generate_presigned_url("get_object", {"Bucket": SEALED, "Key": "k0"})
        assert ("AWSAccessKeyId" in url) == (version == "s3")
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.read() == release(7, MIB, 0)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(url[:-8] + "00000000", timeout=60)
    assert error_code(s3_client(server.endpoint, secret="another").list_buckets)[1] == "SignatureDoesNotMatch"
    session = sts_client(server.endpoint).get_session_token()["Credentials"]
    temporary = s3_client(server.endpoint, session["AccessKeyId"], session["SecretAccessKey"], session["SessionToken"])
    assert temporary.get_object(Bucket=SEALED, Key="k1")["Body"].read() == release(7, MIB, 1)


def test_stores_go_from_one_build_to_the_other_and_back(new_server: NewServer, binary: Path) -> None:
    server = new_server(**NAMED).start()
    check = fill(server)
    s3_client(server.endpoint).put_object(Bucket=PLAIN, Key="customer", Body=b"the customer's", **CUSTOMER)

    def serve(of: Path) -> S3Client:
        assert server.stop() == 0, server.tail()
        server.binary = of
        server.start()
        check()
        assert server.json("keys", "verify")["problems"] == []
        s3 = s3_client(server.endpoint)
        assert s3.get_object(Bucket=PLAIN, Key="customer", **CUSTOMER)["Body"].read() == b"the customer's"
        return s3

    written: dict[str, bytes] = {}
    for number, of in enumerate((binary, BINARY, binary, BINARY)):
        s3 = serve(of)
        for key, content in written.items():
            assert s3.get_object(Bucket=SEALED, Key=key)["Body"].read() == content
        # Against bases of the other build, and under a KEK of its own.
        written[f"by-{number}"] = release(3, 300_000, 10 + number)
        s3.put_object(Bucket=SEALED, Key=f"by-{number}", Body=written[f"by-{number}"])
        server.json("keys", "rotate")
    forms = {key: server.json("explain", f"s3://{SEALED}/{key}")["form"] for key in written}
    assert set(forms.values()) == {"delta"}, forms
    for of in (binary, BINARY):
        rebuild(server, of)
        s3 = s3_client(server.endpoint)
        for key, content in written.items():
            assert s3.get_object(Bucket=SEALED, Key=key)["Body"].read() == content
        assert server.json("scrub")["counts"]["damaged"] == 0


def rebuild(server: Server, of: Path) -> None:
    """Loses the catalog, and has one of the builds restore it from the store."""
    assert server.stop() == 0, server.tail()
    server.lose_catalog()
    server.binary = of
    server.run("rebuild")
    server.start()


@pytest.mark.parametrize("keeper", [transit, kms], ids=["vault", "kms"])
def test_a_provider_keeps_the_kek_of_both_builds(new_server: NewServer, binary: Path, keeper: Any) -> None:
    with keeper() as provider:
        server = new_server(**kept_by(provider))
        server.binary = binary
        check = fill(server.start())
        for of in (BINARY, binary):
            assert server.stop() == 0, server.tail()
            server.binary = of
            server.start()
            check()
        assert "unsigned" not in provider.calls
        until(lambda: server.metrics().total("deltaweir_sealing_refused") == 0, 20, "it seals")
