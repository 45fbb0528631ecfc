"""The console over a store of very many objects: how soon its pages stand in a real browser, on loopback.

The objects are put by the example `fill_store`, through the engine and not over HTTP. Then each page is opened anew
several times. `paint` is the browser's first contentful paint; `shown` is when the page stands with its figures, which
is what a person waits for. `cpu` is the server's time for all opened pages of a kind.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from goalbench.size import FILL_S_MAX, filled
from speedbench.results import Measurement
from taxbench.progress import Reporter
from taxbench.records import Strict
from taxbench.servers.deltaweir import REPOSITORY, BucketSettings, Deltaweir, find_binary
from taxbench.statistics import bootstrap
from taxbench.studies.bench import StudyError, cpu_s, settle_s

OBJECTS = 1_000_000
ROUNDS = 7
BUCKET = "filled"
SCRIPT = Path(__file__).with_name("paint.mjs")
MODULES = REPOSITORY / "tests" / "console" / "package.json"
"""Where the browser's driver is installed (`tests/setup.sh`)."""
PAGES = {
    "overview": "/#/overview",
    "objects": f"/#/objects?bucket={BUCKET}",
    "deep": f"/#/objects?bucket={BUCKET}&prefix=fill%2F000000%2F",
    "buckets": f"/#/buckets?bucket={BUCKET}",
}
"""What is opened. `deep` shows a page of keys, `objects` one of prefixes."""
GOAL_MS = 500.0


class Opened(Strict):
    """One page, opened several times."""

    paint: list[float] = Field(description="first contentful paint, in milliseconds")
    shown: list[float] = Field(description="when the page stood with its figures, in milliseconds")
    rows: int = Field(description="rows of tables that it shows")
    entries: int = Field(description="entries that the server listed for it")


@dataclass(frozen=True, slots=True)
class Browser:
    """What opens pages."""

    chromium: str
    node: str


def find_browser() -> Browser:
    """Debian's Chromium, and Node.js to drive it.

    # Errors
    `StudyError` when something is not installed.
    """
    chromium, node = shutil.which("chromium"), shutil.which("node")
    if not chromium or not node or not (MODULES.parent / "node_modules").is_dir():
        raise StudyError("chromium, node or the console's tests are not installed: tests/setup.sh")
    return Browser(chromium, node)


def run(reporter: Reporter, binary: str, objects: int = OBJECTS, rounds: int = ROUNDS) -> list[Measurement]:
    """Fills a store, and opens pages over it.

    # Errors
    `TargetError` when the server does not start, `StudyError` when the store cannot be filled, a page does not
    stand, or the server lists more for it than it shows.
    """
    program = find_binary(binary)
    fill = program.parent / "examples" / "fill_store"
    if not fill.is_file():
        raise StudyError(f"{fill} is not built: cargo build --release -p proxy --example fill_store")
    browser = find_browser()
    place = Path(tempfile.mkdtemp(prefix="speedbench-console-"))
    try:
        server = Deltaweir(program, place / "server", {BUCKET: BucketSettings("delta", "off")})
        with server:
            server.ensure_bucket(BUCKET)
        reporter.step(f"putting {objects} objects")
        filled(server, fill, objects)
        with server:
            settle_s(server, FILL_S_MAX)
        measured: list[Measurement] = []
        with server, reporter.steps_bar("console", len(PAGES)) as bar:
            for name, address in PAGES.items():
                before_s = cpu_s(server)
                page = opened(browser, server, {name: address}, rounds)[name]
                measured += measurements(name, page, (cpu_s(server) - before_s) * 1000 / rounds)
                bar.advance(1, name)
        return measured
    finally:
        shutil.rmtree(place, ignore_errors=True)


def opened(browser: Browser, server: Deltaweir, pages: dict[str, str], rounds: int) -> dict[str, Opened]:
    """Opens pages in a browser of their own.

    # Errors
    As [`run`].
    """
    assert server.admin is not None
    told = {
        "base": server.admin.url,
        "token": server.environment()["DELTAWEIR_ADMIN_TOKEN"],
        "chromium": browser.chromium,
        "modules": str(MODULES),
        "pages": pages,
        "rounds": rounds,
    }
    command = [browser.node, str(SCRIPT)]
    done = subprocess.run(command, input=json.dumps(told), capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise StudyError(f"the console could not be opened: {done.stderr[-500:]}")
    found = {name: Opened.model_validate(page) for name, page in json.loads(done.stdout).items()}
    for name, page in found.items():
        if page.entries > page.rows:
            raise StudyError(f"the server listed {page.entries} entries for {name}, which shows {page.rows} rows")
    return found


def measurements(name: str, page: Opened, cpu_ms: float) -> Iterator[Measurement]:
    """The figures of one page."""
    for figure, values in (("paint", page.paint), ("shown", page.shown), ("cpu", [cpu_ms])):
        interval = bootstrap(values)
        assert interval is not None, "a page was opened at least once"
        yield Measurement(
            name=f"console/{name}/{figure}",
            unit="ms",
            kind="cpu" if figure == "cpu" else "wall",
            higher_is_better=False,
            interval=interval,
        )


def slow(measured: list[Measurement]) -> list[str]:
    """Pages whose first paint is later than the goal, in words."""
    paints = [one for one in measured if one.name.endswith("/paint") and one.interval.median > GOAL_MS]
    return [f"{one.name}: {one.interval.median:.0f} ms, the goal is {GOAL_MS:.0f} ms" for one in paints]
