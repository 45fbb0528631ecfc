"""Compressed files as real tools make them, and their next releases."""

from __future__ import annotations

import gzip
import io
import random
import struct
import tarfile
import zipfile
import zlib
from functools import cache

from outside.content import noise, text

DAY = (2026, 11, 23, 12, 0, 0)
"""When everything in an archive was made: an archive depends on its files alone."""


@cache
def tree(seed: int, files: int, file_len: int, version: int) -> tuple[tuple[str, bytes], ...]:
    """A source tree, `version` releases after the first. Each changes one file in seven and adds a short one."""
    found: list[tuple[str, bytes]] = []
    for number in range(files + version):
        length = file_len if number < files else file_len // 10
        content = text(seed * 1000 + number, length + number * 37)
        for step in range(1, version + 1):
            if (number + step) % 7 == 0:
                at = (seed * 7919 + number * 104_729 + step * 1_299_709) % len(content)
                content = content[:at] + f"release {step} of file {number}\n".encode() + content[at + 9 :]
        found.append((f"package/module_{number:03}.log", content))
    return tuple(found)


def wheel(seed: int, files: int, file_len: int, version: int, level: int = 6, data_len: int = 0) -> bytes:
    """A zip as `pip` and `jar` write it: each file a stream of its own, one in ten stored. `data_len`: bytes of a first
    file that nothing can shrink."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        if data_len:
            archive.writestr(zipfile.ZipInfo("package/data.bin", DAY), noise(seed, data_len))
        for number, (name, content) in enumerate(tree(seed, files, file_len, version)):
            method = zipfile.ZIP_STORED if number % 10 == 9 else zipfile.ZIP_DEFLATED
            archive.writestr(zipfile.ZipInfo(name, DAY), content, method, level)
    return out.getvalue()


def plain_tar(seed: int, files: int, file_len: int, version: int, data_len: int = 0) -> bytes:
    """The tree as one tar. `data_len`: bytes of files between the others that hardly shrink."""
    members = list(tree(seed, files, file_len, version))
    half = data_len // 2
    members.insert(1, ("package/data_0.bin", hexadecimal(seed, half)))
    members.insert(len(members) // 2, ("package/data_1.bin", hexadecimal(seed + 1, half)))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def hexadecimal(seed: int, size: int) -> bytes:
    """Digits that take half of their bytes in a deflate stream."""
    return noise(seed, size // 2).hex().encode()


def tar_gz(seed: int, files: int, file_len: int, version: int, level: int = 6, data_len: int = 0) -> bytes:
    """The tree as one stream of a `.tar.gz`."""
    return gzip.compress(plain_tar(seed, files, file_len, version, data_len), level, mtime=0)


def layer(seed: int, packages: int, version: int) -> bytes:
    """Wheels in one `.tar.gz`, as layers of images have them: their streams lie in its plain text."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(packages):
            content = wheel(seed + number, 12, 30_000, version)
            info = tarfile.TarInfo(f"wheels/package_{number}.whl")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(out.getvalue(), 6, mtime=0)


def _cut(content: bytes, piece_len: int) -> list[bytes]:
    return [content[at : at + piece_len] for at in range(0, len(content), piece_len)]


def picture(seed: int, height: int, version: int) -> bytes:
    """A PNG file of 1,024 grey dots in a row, as libpng writes it: one zlib stream in chunks of 8 KiB."""
    dots = noise(seed, 1024)
    lines: list[bytes] = []
    for row in range(height):
        dots = bytes(dots[1:] + dots[:1]) if row % 3 else noise(seed * 1000 + row, 256) * 4
        lines.append(b"\0" + dots)
    for step in range(1, version + 1):
        for row in range(step * 37 % height, height, height // 6):
            lines[row] = b"\0" + noise(seed * 7 + step, 1024)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 1024, height, 8, 0, 0, 0, 0)
    data = b"".join(chunk(b"IDAT", piece) for piece in _cut(zlib.compress(b"".join(lines), 6), 8192))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


def dump(seed: int, tables: int, table_len: int, version: int) -> bytes:
    """The data of a custom archive of `pg_dump`: a zlib stream for each table, in blocks of 4 KiB."""
    return _dumped(seed, [content for _, content in tree(seed, tables, table_len, version)])


def dump_of_rows(seed: int, rows: int, version: int) -> bytes:
    """The dump of a table of which one row in fifty has moved to its end with each version, as an update leaves it."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghij", k=rng.randrange(4, 8))) for _ in range(60)]
    lines = [f"{row}\t{' '.join(rng.choices(words, k=6))}\t{row * 37 % 100_000}\n" for row in range(rows)]
    for step in range(version):
        moved = {row for row in range(rows) if row % 50 == 7 + step}
        lines = [line for row, line in enumerate(lines) if row not in moved] + [lines[row] for row in sorted(moved)]
    return _dumped(seed, ["".join(lines).encode()])


def _dumped(seed: int, tables: list[bytes]) -> bytes:
    def number(value: int) -> bytes:
        return b"\0" + struct.pack("<I", value)

    out = b"PGDMP\x01\x0e\0\x04\x08\x01" + text(seed, 2000)
    for table, content in enumerate(tables):
        blocks = b"".join(number(len(piece)) + piece for piece in _cut(zlib.compress(content, 6), 4096))
        out += b"\x01" + number(3000 + table) + blocks + number(0)
    return out


def report(seed: int, pages: int, version: int) -> bytes:
    """A PDF file: a zlib stream for each page, and nothing else says that there is one."""
    out = b"%PDF-1.7\n"
    for page, (_, content) in enumerate(tree(seed, pages, 30_000, version)):
        stream = zlib.compress(content, 6)
        head = f"{page + 1} 0 obj\n<< /Length {len(stream)} /Filter /FlateDecode >>\nstream\n"
        out += head.encode() + stream + b"\nendstream\nendobj\n"
    return out + b"%%EOF\n"


def damaged(content: bytes, seed: int) -> bytes:
    """The same with a few bytes of another kind in it: some of its streams are streams no more."""
    changed = bytearray(content)
    for number, byte in enumerate(noise(seed, 8)):
        changed[(seed * 31 + number * 104_729) % len(changed)] ^= byte | 1
    return bytes(changed)
