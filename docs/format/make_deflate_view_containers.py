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
from collections.abc import Sequence
from pathlib import Path

Runs = list[tuple[int, int, int]]
Found = tuple[str, bytes, bytes] | tuple[str, bytes, bytes, Runs]

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
    return png_in_pieces(zlib.compress(plain, 9), 1 << 20)


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def cut(data: bytes, piece: int) -> list[bytes]:
    return [data[at : at + piece] for at in range(0, len(data), piece)]


def png_in_pieces(stream: bytes, piece: int) -> bytes:
    """A picture whose zlib stream lies in several IDAT chunks."""
    header = struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)
    chunks = b"".join(chunk(b"IDAT", part) for part in cut(stream, piece))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunks + chunk(b"IEND", b"")


def signed(number: int) -> bytes:
    """A number as pg_dump writes it: a sign, then four bytes."""
    return b"\0" + struct.pack("<I", number)


def dump(tables: list[bytes], piece: int = 4096) -> bytes:
    """Something like a custom archive of pg_dump: for each table its number and its zlib stream in blocks."""
    out = b"PGDMP\x01\x0e\0\x04\x08\x01" + signed(6) + text(20, 600)
    for number, stream in enumerate(tables):
        blocks = b"".join(signed(len(part)) + part for part in cut(stream, piece))
        out += b"\x01" + signed(3000 + number) + blocks + signed(0)
    return out


def runs(length: int, piece: int, gap: int) -> Runs:
    """The gaps in a stream of so many bytes: its first piece has two bytes less, which are zlib's header."""
    first = [(piece - 2, gap, 1)] if length > piece - 2 else []
    others = (length - piece + 1) // piece
    return first + ([(piece, gap, others)] if others > 0 else [])


class Writer:
    """Writes vectors, and finds the streams in what it is given by where they were put."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, name: str, about: str, file: bytes, streams: Sequence[Found], replay: str = "any") -> None:
        found, at = [], 0
        for kind, stream, plain, *more in streams:
            gaps: Runs = more[0] if more else []
            at = file.index(stream[: gaps[0][0] if gaps else len(stream)], at)
            end = at + len(stream) + sum(gap * times for _, gap, times in gaps)
            told = f"{kind}:{at}:{end}:{len(plain)}:{hashlib.sha256(plain).hexdigest()[:16]}"
            told += "".join(f"{'+' if number else ':'}{'/'.join(map(str, run))}" for number, run in enumerate(gaps))
            found.append(told)
            at = end
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


def in_pieces(writer: Writer) -> None:
    """Streams that their container cuts, two releases of each kind."""
    old = text(21, 90_000)
    new = old[:20_000] + text(22, 700) + old[20_000:60_000] + old[60_900:]
    for name, plain in {"png_pieces_old": old, "png_pieces_new": new}.items():
        stream = zlib.compress(plain, 9)
        own = stream[2:-4]
        picture = [("png", own, plain, runs(len(own), 1500, 12))]
        writer.write(name, "IDAT chunks of 1,500 bytes", png_in_pieces(stream, 1500), picture)
    member = zip_member(deflated(text(23, 9_000), 6), text(23, 9_000))
    changed = zip_member(deflated(text(23, 9_000)[700:], 6), text(23, 9_000)[700:])
    for name, first, inside in [("dump_old", old, member), ("dump_new", new, changed)]:
        second = text(24, 12_000) + inside + text(25, 6_000)
        tables = [zlib.compress(first, 6), zlib.compress(second, 6), zlib.compress(text(26, 900), 6)]
        plains = [first, second, text(26, 900)]
        found = [
            ("pg_dump", stream[2:-4], plain, runs(len(stream) - 6, 4096, 5))
            for stream, plain in zip(tables, plains, strict=True)
        ]
        writer.write(name, "blocks of 4 KiB, and a zip file in a table", dump(tables), found)
    long = text(11, 20_000) * 75
    stream = zlib.compress(long, 6)
    pointed = [("pg_dump", stream[2:-4], long, runs(len(stream) - 6, 4096, 5))]
    writer.write("dump_points", "long enough for an access point", dump([stream]), pointed)
    short = zlib.compress(text(27, 9_000), 6)
    # The length before the stream is that of its plain text's first half, and no block follows.
    counted = signed(1000) + short + b"\xff" * 40
    writer.write("zlib_counted", "a number before it that is no block's length", counted, [
        ("pg_dump", short[2:-4], text(27, 9_000)),
    ])  # fmt: skip
    split = zlib.compress(text(27, 9_000), 6)
    at = len(split) - 2
    chunks = chunk(b"IDAT", split[:at]) + chunk(b"IDAT", split[at:])
    writer.write("png_check_cut", "a gap in the check", chunks, [("png", split[2:-4], text(27, 9_000))])
    other = chunk(b"IDAT", split[:1000]) + chunk(b"tEXt", b"between") + chunk(b"IDAT", split[1000:])
    writer.write("png_pieces_apart", "another chunk between two of the stream", other, [])
    writer.write("png_pieces_short", "chunks of eight bytes", png_in_pieces(split, 8), [])
    writer.write("png_pieces_missing", "the last chunk is missing", png_in_pieces(split[:-900], 1000), [])
    small = [("png", split[2:-4], text(27, 9_000), runs(len(split) - 6, 500, 12))]
    writer.write("png_pieces_small", "short chunks", png_in_pieces(split, 500), small)
    wrong = split[:-1] + bytes([split[-1] ^ 1])
    writer.write("png_check_wrong", "a stream with another check", png_in_pieces(wrong, 1000), [])


def by_content(writer: Writer) -> None:
    """zlib streams that nothing announces."""
    plains = [text(30 + number, 4_000 + 500 * number) for number in range(5)]
    streams = [zlib.compress(plain, level) for plain, level in zip(plains, (1, 5, 6, 9, 6), strict=True)]
    # As Adobe's library writes it.
    streams[4] = b"\x48\x89" + streams[4][2:]
    file = b"".join(text(40 + number, 200) + stream for number, stream in enumerate(streams)) + b"the end"
    writer.write("zlib_headers", "headers of each level, and one of another window", file, [
        ("zlib", stream[2:-4], plain) for stream, plain in zip(streams, plains, strict=True)
    ])  # fmt: skip
    stream = streams[2]
    writer.write("zlib_check_wrong", "another check", b"begin" + stream[:-1] + b"?" + b"the end", [])
    writer.write("zlib_truncated", "a stream that ends early", b"begin" + stream[:-60], [])
    writer.write("zlib_headers_alone", "headers and nothing else", b"\x78\x9c\x78\xda\x78\x01\x48\x89" * 300, [])
    short = zlib.compress(b"tiny", 6)
    writer.write("zlib_tiny", "a stream too short to gain anything", b"begin" + short + b"the end", [])


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
    in_pieces(writer)
    by_content(writer)
    left_raw(writer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
