"""Writes the containers among the vectors of deflate-view-v1.

Real encoders' files, and files that only look like containers:

    python docs/format/make_deflate_view_containers.py tests/vectors/deflate-view

Python's zlib is stock zlib; Go's encoder is asked through `go run`. What another release of them writes may differ:
the files are kept, not made anew by tests.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

GO = """package main
import ("compress/flate"; "io"; "os"; "strconv")
func main() {
	level, _ := strconv.Atoi(os.Args[1])
	w, _ := flate.NewWriter(os.Stdout, level)
	io.Copy(w, os.Stdin)
	w.Close()
}
"""


def text(seed: int, length: int) -> bytes:
    """Something like source code: words that recur, lines that resemble each other."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("etaoinshrdlu_", k=rng.randint(2, 11))) for _ in range(300)]
    out = io.StringIO()
    while out.tell() < length:
        line = " ".join(rng.choices(words, k=rng.randint(1, 9)))
        out.write(
            "    " * rng.randint(0, 3)
            + line
            + rng.choice([" = ", "(", ");", ":", "", "  # "])
            + str(rng.randint(0, 999))
            + "\n"
        )
    return out.getvalue()[:length].encode()


def deflated(plain: bytes, level: int, strategy: int = zlib.Z_DEFAULT_STRATEGY, mem_level: int = 8) -> bytes:
    encoder = zlib.compressobj(level, zlib.DEFLATED, -15, mem_level, strategy)
    return encoder.compress(plain) + encoder.flush()


def go_deflated(plain: bytes, level: int) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "main.go"
        program.write_text(GO)
        return subprocess.run(
            ["go", "run", str(program), str(level)], input=plain, check=True, capture_output=True
        ).stdout


def gzipped(stream: bytes, plain: bytes, name: bytes = b"") -> bytes:
    """A gzip member, with a name when there is one."""
    head = b"\x1f\x8b\x08" + (b"\x08" if name else b"\0") + bytes(4) + b"\0\xff" + (name + b"\0" if name else b"")
    return head + stream + struct.pack("<II", zlib.crc32(plain), len(plain) & 0xFFFF_FFFF)


def zip_member(stream: bytes, plain: bytes, flags: int = 0, method: int = 8, extra: bytes = b"") -> bytes:
    """A local header and its data; with flag 8 the lengths come behind."""
    late = flags & 8 != 0
    sums = (0, 0, 0) if late else (zlib.crc32(plain), len(stream), len(plain))
    head = struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, flags, method, 0, 0x21, *sums, 4, len(extra)) + b"name" + extra
    tail = struct.pack("<IIII", 0x08074B50, zlib.crc32(plain), len(stream), len(plain)) if late else b""
    return head + stream + tail


def png(plain: bytes) -> bytes:
    """A picture's chunks, whatever the picture."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(plain, 9)) + chunk(b"IEND", b"")


class Writer:
    """Writes vectors, and finds the streams in what it is given by where they were put."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(
        self, name: str, about: str, file: bytes, streams: list[tuple[str, bytes, bytes]], replay: str = "any"
    ) -> None:
        found, at = [], 0
        for kind, stream, plain in streams:
            at = file.index(stream, at)
            found.append(f"{kind}:{at}:{at + len(stream)}:{len(plain)}:{hashlib.sha256(plain).hexdigest()[:16]}")
            at += len(stream)
        lines = [f"about: {about}", "type: container", f"streams: {' '.join(found) or 'none'}", f"replay: {replay}"]
        digits = file.hex()
        body = "\n".join(digits[at : at + 96] for at in range(0, len(digits), 96))
        (self.directory / f"{name}.vec").write_text("\n".join(lines) + f"\n\n{body}\n", encoding="ascii")


def encoders(writer: Writer) -> None:
    short, long = text(1, 20_000), text(2, 150_000)
    for level in range(1, 10):
        plain = long if level in (1, 4, 6, 9) else short
        stream = deflated(plain, level)
        writer.write(
            f"zlib_{level}",
            f"stock zlib at level {level}",
            gzipped(stream, plain),
            [("gzip", stream, plain)],
            str(level),
        )
    for level in (4, 5, 6, 9):
        plain = long if level == 6 else short
        stream = go_deflated(plain, level)
        about = f"Go's compress/flate at level {level}"
        writer.write(f"go_{level}", about, gzipped(stream, plain), [("gzip", stream, plain)], str(level + 6))
    for name, strategy in {
        "fixed": zlib.Z_FIXED,
        "huffman": zlib.Z_HUFFMAN_ONLY,
        "rle": zlib.Z_RLE,
        "filtered": zlib.Z_FILTERED,
    }.items():
        stream = deflated(short, 6, strategy)
        writer.write(f"zlib_{name}", f"zlib's strategy {name}", gzipped(stream, short), [("gzip", stream, short)])
    noise = random.Random(3).randbytes(9000)
    stream = deflated(noise, 6)
    writer.write(
        "zlib_stored", "incompressible bytes: stored blocks", gzipped(stream, noise), [("gzip", stream, noise)]
    )
    stream = deflated(short, 6, mem_level=9)
    writer.write(
        "zlib_memory_9", "zlib with more memory: longer blocks", gzipped(stream, short), [("gzip", stream, short)]
    )


def containers(writer: Writer) -> None:
    one, two = text(4, 3000), text(5, 4000)
    first, second = deflated(one, 6), deflated(two, 9)
    members = [("gzip", first, one), ("gzip", second, two)]
    writer.write(
        "gzip_members", "two members, one with a name", gzipped(first, one, b"a") + gzipped(second, two), members
    )
    zips = [("zip", first, one), ("zip", second, two)]
    writer.write("zip_plain", "two members", zip_member(first, one) + zip_member(second, two), zips)
    late = zip_member(first, one, 8) + zip_member(second, two, 8)
    writer.write("zip_descriptors", "lengths behind the data", late, zips)
    extra = struct.pack("<HHQQ", 1, 16, len(one), len(first))
    writer.write("zip_64", "lengths in an extra field", zip_member(first, one, extra=extra), zips[:1])
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", zipfile.ZIP_STORED) as outer:
        outer.writestr(zipfile.ZipInfo("inner.zip"), zip_member(first, one))
    writer.write("zip_in_stored_zip", "a member of a member that is stored", stored.getvalue(), zips[:1])
    picture = png(two)
    writer.write("png", "one IDAT chunk", picture, [("png", zlib.compress(two, 9)[2:-4], two)])
    with io.BytesIO() as office:
        with zipfile.ZipFile(office, "w", zipfile.ZIP_DEFLATED) as document:
            document.writestr(zipfile.ZipInfo("word/document.xml"), one, zipfile.ZIP_DEFLATED, 6)
        file = office.getvalue()
    writer.write("zip_by_python", "a whole zip file with its directory", file, zips[:1])


def pairs(writer: Writer) -> None:
    """Two releases each, for the units that are encoded against one another."""
    old, same = text(8, 12_000), text(9, 2_000)
    new = old[:2000] + text(10, 400) + old[2000:7000] + old[7300:9000].replace(b"e", b"o", 3) + old[9000:]
    for name, plain in {"pair_old": old, "pair_new": new}.items():
        members = [("zip", deflated(plain, 6), plain), ("zip", deflated(same, 6), same)]
        file = b"".join(zip_member(stream, own) for _, stream, own in members)
        writer.write(name, "one of two releases", file, members)
    long = text(11, 20_000) * 75
    stream = deflated(long, 6)
    writer.write("zlib_points", "long enough for an access point", gzipped(stream, long), [("gzip", stream, long)])


def nested(writer: Writer) -> None:
    """Files in files: two releases of a jar in a layer, a gzip file in a zip file, a bomb in a bomb."""
    old, same = text(12, 9_000), text(13, 2_500)
    new = old[:3000] + text(14, 300) + old[3000:6000] + old[6200:]
    layers = {}
    for name, plain, note in [("nested_old", old, text(15, 4_000)), ("nested_new", new, text(15, 4_000)[100:])]:
        member, unchanged = (zip_member(deflated(own, 6), own) for own in (plain, same))
        layers[name] = note[:1500] + member + note[1500:2000] + unchanged + note[2000:]
        stream = deflated(layers[name], 6)
        about = "one of two releases of a gzip file with a zip file in it"
        writer.write(name, about, gzipped(stream, layers[name]), [("gzip", stream, layers[name])])
    stream = deflated(layers["nested_new"], 6)
    inside = gzipped(stream, layers["nested_new"], b"layer")
    outer = deflated(inside, 9)
    about = "three levels: the innermost stays closed"
    writer.write("nested_twice", about, zip_member(outer, inside), [("zip", outer, inside)])
    with io.BytesIO() as bomb:
        with gzip.GzipFile(fileobj=bomb, mode="wb", mtime=0) as file:
            file.write(bytes(40 << 20))
        inside = bomb.getvalue()
    outer = deflated(inside, 9)
    writer.write("nested_bomb", "40 MiB of zeros, compressed twice", gzipped(outer, inside), [("gzip", outer, inside)])


def left_raw(writer: Writer) -> None:
    plain = text(6, 5000)
    stream = deflated(plain, 6)
    writer.write("zip_encrypted", "flag 1: the data is no stream", zip_member(stream, plain, 1), [])
    writer.write("zip_deflate64", "method 9", zip_member(stream, plain, 0, 9), [])
    writer.write("gzip_truncated", "a stream that ends early", gzipped(stream[:-20], b""), [])
    damaged = bytearray(stream)
    damaged[40:48] = b"\xff" * 8
    writer.write("gzip_damaged", "a stream with other bits", gzipped(bytes(damaged), plain), [])
    writer.write("gzip_reserved_flags", "flags that mean nothing", b"\x1f\x8b\x08\xe0" + bytes(6) + stream, [])
    writer.write("gzip_header_alone", "nothing behind a header", b"\x1f\x8b\x08\0" + bytes(6), [])
    writer.write("signatures", "signatures and nothing else", b"PK\x03\x04\x1f\x8b\x08IDAT" * 200, [])
    writer.write("reserved_block", "a block of the reserved kind", gzipped(b"\x07" + stream, plain), [])
    writer.write("tiny", "a stream too short to gain anything", gzipped(deflated(b"tiny", 6), b"tiny"), [])
    inside = zip_member(zip_member(stream, plain)[:60], b"")
    about = "a member that is none, and inside of what it claims one that is"
    writer.write("overlapping", about, inside + stream[26:], [("zip", stream, plain)])
    writer.write("empty", "no bytes", b"", [])
    with io.BytesIO() as bomb:
        with gzip.GzipFile(fileobj=bomb, mode="wb", mtime=0) as file:
            file.write(bytes(40 << 20))
        writer.write("bomb", "40 MiB of zeros in 40 kB", bomb.getvalue(), [])


def main() -> int:
    writer = Writer(Path(sys.argv[1]))
    encoders(writer)
    containers(writer)
    pairs(writer)
    nested(writer)
    left_raw(writer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
