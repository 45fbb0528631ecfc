"""The independent decoder against the vectors, which the Rust crate reads too."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import blob_v1
import pytest

VECTORS = Path(__file__).parents[2] / "tests" / "vectors" / "blob-v1"
FILES = sorted(path for path in VECTORS.iterdir() if not path.name.startswith("."))


@dataclass(frozen=True)
class Vector:
    """A vector file: its header's fields and the bytes behind them."""

    fields: dict[str, str]
    body: bytes

    @classmethod
    def load(cls, path: Path) -> Vector:
        header, body = path.read_bytes().split(b"\n\n", 1)
        return cls(dict(line.split(": ", 1) for line in header.decode().split("\n")), body)

    def key(self) -> blob_v1.DomainKey | None:
        if "key-id" not in self.fields:
            return None
        secret, key_id = bytes.fromhex(self.fields["key-secret"]), bytes.fromhex(self.fields["key-id"])
        return blob_v1.DomainKey(key_id, int(self.fields["key-epoch"]), secret)

    def base(self, blob_id: bytes) -> blob_v1.Base:
        for listed in self.fields["bases"].split(" "):
            base_id, tag, kind, content = listed.split(":")
            if base_id == blob_id.hex():
                return ListedBase(bytes.fromhex(tag), kind == "whole", bytes.fromhex(content))
        return blob_v1.no_bases(blob_id)

    def read(self) -> None:
        """Decodes the body and compares it with what the header says it holds."""
        match self.fields["type"]:
            case "blob":
                blob = blob_v1.Blob(self.body, bytes.fromhex(self.fields["blob-id"]), self.key())
                content = blob.content(self.base)
                assert len(content) == int(self.fields["plain-length"])
                assert hashlib.sha256(content).hexdigest() == self.fields["plain-sha256"]
            case "keyset":
                entries = blob_v1.read_keyset(self.body, bytes.fromhex(self.fields["blob-id"]))
                opened = [entry.open(bytes.fromhex(self.fields["kek"])) for entry in entries]
                listed = [f"{key.id.hex()}:{key.epoch}:{bucket}:{name}" for key, bucket, name in opened]
                assert " ".join(listed) == self.fields["keys"]
            case "row":
                key = self.key()
                assert key is not None
                facts = blob_v1.open_row(key, self.row_context(), self.body)
                assert facts.hex() == self.fields["facts"]
            case other:
                raise AssertionError(f"unknown type {other}")

    def row_context(self) -> blob_v1.RowContext:
        split = [extent.split(":") for extent in self.fields["extents"].split(" ")]
        return blob_v1.RowContext(
            bucket=int(self.fields["bucket"]),
            key=self.fields["key"],
            version_id=bytes.fromhex(self.fields["version-id"]),
            part=int(self.fields["part"]) if "part" in self.fields else None,
            extents=[(bytes.fromhex(blob), int(offset), int(length)) for blob, offset, length in split],
        )


@dataclass(frozen=True)
class ListedBase:
    """A base whose content the vector's header gives."""

    base_tag: bytes
    is_whole: bool
    plain: bytes

    def content(self) -> bytes:
        return self.plain


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_vector_is_read_or_refused_as_its_header_says(path: Path) -> None:
    vector = Vector.load(path)
    try:
        vector.read()
        found = "success"
    except blob_v1.FormatError as error:
        found = error.kind
    assert found == vector.fields["expect"]


def test_there_are_vectors_and_most_of_them_must_fail() -> None:
    expected = [Vector.load(path).fields["expect"] for path in FILES]
    assert len(expected) > 200
    assert expected.count("success") < len(expected) / 3


@pytest.mark.parametrize("name", ["one_byte", "one_byte_sealed", "delta", "delta_sealed", "segment_pages_sealed"])
def test_every_flipped_byte_is_noticed(name: str) -> None:
    vector = Vector.load(VECTORS / name)
    for at in range(len(vector.body)):
        altered = bytearray(vector.body)
        altered[at] ^= 1 << (at % 8)
        with pytest.raises(blob_v1.FormatError):
            Vector(vector.fields, bytes(altered)).read()


@pytest.mark.parametrize("name", ["empty_sealed", "facts", "delta_sealed"])
def test_a_blob_cut_anywhere_is_refused(name: str) -> None:
    vector = Vector.load(VECTORS / name)
    for length in range(len(vector.body)):
        with pytest.raises(blob_v1.FormatError):
            Vector(vector.fields, vector.body[:length]).read()


def test_secrets_do_not_show_in_the_representation_of_a_key() -> None:
    assert "secret" not in repr(blob_v1.DomainKey(b"id", 1, b"secret"))


def command(*arguments: str | Path, kek: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(Path(blob_v1.__file__)), *map(str, arguments)],
        env=os.environ | {"DELTAWEIR_KEK": base64.b64encode(bytes.fromhex(kek)).decode()},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_command_describes_a_blob_and_writes_its_content(tmp_path: Path) -> None:
    vector = Vector.load(VECTORS / "zstd")
    (tmp_path / "blob").write_bytes(vector.body)
    result = command("--describe", tmp_path / "blob", "-o", tmp_path / "content")
    assert result.returncode == 0, result.stderr
    assert '"coding": "zstd"' in result.stdout
    assert (tmp_path / "content").read_bytes() == bytes(1000)


def test_the_command_reads_a_sealed_delta_with_a_keyset_the_kek_and_the_base_only(tmp_path: Path) -> None:
    vectors = {name: Vector.load(VECTORS / name) for name in ("keyset_of_vectors", "pair_base", "pair_delta")}
    base_id = vectors["pair_base"].fields["blob-id"]
    (tmp_path / "blobs" / base_id[:2]).mkdir(parents=True)
    base_file = tmp_path / "blobs" / base_id[:2] / base_id
    base_file.write_bytes(vectors["pair_base"].body)
    (tmp_path / "keyset").write_bytes(vectors["keyset_of_vectors"].body)
    (tmp_path / "delta").write_bytes(vectors["pair_delta"].body)
    arguments = ("--keyset", tmp_path / "keyset", "--blobs", tmp_path / "blobs", tmp_path / "delta")
    kek = vectors["keyset_of_vectors"].fields["kek"]
    result = command(*arguments, "-o", tmp_path / "content", kek=kek)
    assert result.returncode == 0, result.stderr
    content = (tmp_path / "content").read_bytes()
    assert hashlib.sha256(content).hexdigest() == vectors["pair_delta"].fields["plain-sha256"]
    assert "key:" in command(tmp_path / "delta", "-o", tmp_path / "no").stderr
    assert "key:" in command(*arguments, "-o", tmp_path / "no", kek="11" * 32).stderr
    base_file.unlink()
    assert "not at hand" in command(*arguments, "-o", tmp_path / "no", kek=kek).stderr
    assert not (tmp_path / "no").exists()


def test_the_command_refuses_a_damaged_blob_and_writes_nothing(tmp_path: Path) -> None:
    body = bytearray(Vector.load(VECTORS / "zstd").body)
    body[165] ^= 1
    (tmp_path / "blob").write_bytes(body)
    result = command(tmp_path / "blob", "-o", tmp_path / "content")
    assert result.returncode == 1
    assert "integrity" in result.stderr
    assert not (tmp_path / "content").exists()
