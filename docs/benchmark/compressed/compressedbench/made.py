"""Two states of files that real tools make here, and what a real server makes of the second.

python -m compressedbench.made [--binary FILE] [--kinds pg_dump …]

`pg_dump` and PostgreSQL, `git` and `mksquashfs` are those of the machine; Pillow, reportlab and fpdf2 are asked through
`--python`, an interpreter that has them. A kind whose tool is missing is left out and named.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cluster.postgres import Postgres, binaries
from outside.clients import s3_client
from outside.storage import stored

from compressedbench.store import BINARY, EFFORTS, DefaultServer, bucket_of

SETTLE_S_MAX = 600
WORDS = [
    f"{a}{b}{c}"
    for a in ("re", "con", "dis", "pro")
    for b in ("ta", "mi", "lo", "ne", "su")
    for c in ("d", "ng", "ter")
]
"""Of what texts and names consist."""

DRAWING = """
image = Image.new("RGB", (1600, 1200))
draw = ImageDraw.Draw(image)
for _ in range(6000):
    x, y = rng.randrange(1600), rng.randrange(1200)
    draw.ellipse((x, y, x + rng.randrange(90), y + rng.randrange(90)), tuple(rng.randrange(256) for _ in range(3)))
"""
PHOTO = """
grain = Image.frombytes("L", (1600, 1200), rng.randbytes(1600 * 1200)).point(lambda value: value // 16)
image = ImageChops.add(Image.linear_gradient("L").resize((1600, 1200)), grain).convert("RGB")
draw = ImageDraw.Draw(image)
"""
PICTURE = """
import sys, random
from PIL import Image, ImageChops, ImageDraw
out, version = sys.argv[1], int(sys.argv[2])
rng = random.Random(5)
PAINTED
if version:
    draw.rectangle((500, 500, 780, 640), (250, 250, 250))
    draw.text((520, 560), "another label", (0, 0, 0))
image.save(out)
"""
REPORTLAB = """
import sys, random
from reportlab.pdfgen import canvas
from reportlab import rl_config
rl_config.invariant = 1
out, version = sys.argv[1], int(sys.argv[2])
rng = random.Random(6)
page = canvas.Canvas(out, pageCompression=1)
for number in range(150):
    text = page.beginText(40, 800)
    for line in range(55):
        total = rng.randrange(10_000_000)
        total += version * (line % 11 == 0)
        text.textLine(f"account {rng.randrange(10**6):06} month {number % 12 + 1:02} sum {total}")
    page.drawText(text)
    page.showPage()
page.save()
"""
FPDF = """
import sys, random, datetime
from fpdf import FPDF
out, version = sys.argv[1], int(sys.argv[2])
rng = random.Random(7)
pdf = FPDF()
pdf.set_creation_date(datetime.datetime(2026, 11, 1 + version, tzinfo=datetime.timezone.utc))
pdf.set_font("Helvetica", size=9)
for number in range(150):
    pdf.add_page()
    for line in range(50):
        total = rng.randrange(10_000_000)
        total += version * (line % 11 == 0)
        line = f"account {rng.randrange(10**6):06} month {number % 12 + 1:02} sum {total}"
        pdf.cell(0, 5, line, new_x="LMARGIN", new_y="NEXT")
pdf.output(out)
"""


Make = Callable[[Path, str], tuple[bytes, bytes]]


def run(*command: str, folder: Path | None = None) -> bytes:
    return subprocess.run(command, check=True, capture_output=True, cwd=folder).stdout


def sentence(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words))


def of_script(script: str) -> Make:
    """What a script writes for version 0 and 1."""

    def make(folder: Path, python: str) -> tuple[bytes, bytes]:
        outs = [folder / f"{version}.out" for version in range(2)]
        if "PIL" in script:
            outs = [out.with_suffix(".png") for out in outs]
        for version, out in enumerate(outs):
            run(python, "-c", script, str(out), str(version))
        return outs[0].read_bytes(), outs[1].read_bytes()

    return make


def pg_dump(one_in: int, folder: Path, _python: str) -> tuple[bytes, bytes]:
    """A database of two tables before and after a day: 1 row in so many changed, 1 in 100 is new."""
    rng = random.Random(8)
    lines = (
        f"{number}\t{sentence(rng, 6)}\t{number * 37 % 100_000}\t2026-{number % 12 + 1:02}-{number % 28 + 1:02}\n"
        for number in range(100_000)
    )
    rows = "COPY orders FROM stdin;\n" + "".join(lines) + "\\.\n"
    schema = "CREATE TABLE orders (id int, note text, cents int, day date); CREATE TABLE notes (id int, body text);\n"
    notes = "".join(f"INSERT INTO notes VALUES ({number}, '{sentence(rng, 60)}');\n" for number in range(4000))
    day = (
        f"UPDATE orders SET cents = cents + 1 WHERE id % {one_in} = 7;"
        "INSERT INTO orders SELECT 100000 + i, 'new ' || md5(i::text), i, '2026-11-26' FROM generate_series(1, 1000) i;"
        f"UPDATE notes SET body = body || ' done' WHERE id % {one_in} = 3;"
    )
    postgres, dumps = Postgres().make().start(), []
    try:
        for script in (schema + rows + notes, day):
            (folder / "script.sql").write_text(script)
            run(str(binaries() / "psql"), "-q", "-d", postgres.url, "-f", str(folder / "script.sql"))
            dumps.append(run(str(binaries() / "pg_dump"), "-Fc", "-d", postgres.url))
    finally:
        postgres.remove()
    return dumps[0], dumps[1]


def sources(folder: Path, version: int) -> None:
    """A tree of 400 files of 2 to 20 kB; one in nine differs in the next version."""
    for number in range(400):
        rng = random.Random(number)
        lines = [sentence(rng, rng.randrange(3, 12)) for _ in range(rng.randrange(40, 400))]
        if version and number % 9 == 0:
            lines.insert(len(lines) // 2, f"a line of version {version}")
        place = folder / f"part_{number % 20}" / f"module_{number}.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("\n".join(lines))


def git_pack(folder: Path, _python: str) -> tuple[bytes, bytes]:
    """All objects of a repository in one pack, before and after a commit."""
    tree = folder / "tree"
    tree.mkdir()
    run("git", "init", "-q", folder=tree)
    packs = []
    for version in range(2):
        sources(tree, version)
        run("git", "add", "-A", folder=tree)
        author = ("-c", "user.name=n", "-c", "user.email=e")
        run("git", *author, "commit", "-q", "-m", f"version {version}", folder=tree)
        objects = run("git", "rev-list", "--objects", "--all", folder=tree)
        pack = subprocess.run(
            ["git", "pack-objects", "-q", "--stdout"], input=objects, check=True, capture_output=True, cwd=tree
        )
        packs.append(pack.stdout)
    return packs[0], packs[1]


def squashfs(folder: Path, _python: str) -> tuple[bytes, bytes]:
    """Images of two trees, compressed by gzip."""
    images = []
    for version in range(2):
        sources(folder / "tree", version)
        image = folder / f"{version}.squashfs"
        run("mksquashfs", str(folder / "tree"), str(image), "-comp", "gzip", "-no-progress", "-all-time", "0")
        images.append(image.read_bytes())
    return images[0], images[1]


KINDS: dict[str, Make] = {
    "pg_dump, 1 row in 50 changed": partial(pg_dump, 50),
    "pg_dump, 1 row in 1,000 changed": partial(pg_dump, 1000),
    "png-drawing": of_script(PICTURE.replace("PAINTED", DRAWING)),
    "png-photo": of_script(PICTURE.replace("PAINTED", PHOTO)),
    "pdf-reportlab": of_script(REPORTLAB),
    "pdf-reportlab-binary": of_script(
        REPORTLAB.replace("rl_config.invariant = 1", "rl_config.invariant = 1; rl_config.useA85 = 0")
    ),
    "pdf-fpdf2": of_script(FPDF),
    "git-pack": git_pack,
    "squashfs": squashfs,
}


def measured(kind: str, contents: tuple[bytes, bytes], binary: Path, effort: str) -> str:
    """A row: sizes, and what is stored of the second after `settle`, over the first."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = stored_of(DefaultServer(Path(folder), binary=binary), bucket_of(effort), contents)
    shares = f"{first / len(contents[0]):.1%} | {second / len(contents[1]):.1%}"
    return f"| {kind} | {effort} | {len(contents[1]) / 1e6:.2f} MB | {shares} |"


def stored_of(server: DefaultServer, bucket: str, contents: tuple[bytes, bytes]) -> tuple[int, int]:
    """Stored bytes of both, which come back."""
    with server:
        s3 = s3_client(server.endpoint)
        s3.create_bucket(Bucket=bucket)
        for number, content in enumerate(contents):
            s3.put_object(Bucket=bucket, Key=f"file-{number}", Body=content)
            server.settle(SETTLE_S_MAX)
        server.drop_caches()
        for number, content in enumerate(contents):
            if s3.get_object(Bucket=bucket, Key=f"file-{number}")["Body"].read() != content:
                raise ValueError("what was read back is not what was put")
        first, second = (stored(s3, bucket, f"file-{number}").stored_bytes for number in range(2))
        return first, second


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, action="append")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--efforts", nargs="*", choices=EFFORTS, default=["auto", "high"])
    parser.add_argument("--python", default=sys.executable)
    asked = parser.parse_args()
    failed = 0
    for kind in asked.kinds:
        with tempfile.TemporaryDirectory() as folder:
            try:
                contents = KINDS[kind](Path(folder), asked.python)
            except (OSError, subprocess.SubprocessError) as error:
                print(f"{kind}: left out: {error}"[:300], flush=True)
                failed += 1
                continue
        for binary in asked.binary or [BINARY]:
            for effort in asked.efforts:
                print(binary.parent.name, measured(kind, contents, binary.resolve(), effort), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
