"""Artifacts behind a directory index: Alpine ISOs, kernel tarballs, or any page that links files.

The page is read as browsers read it (every `href`), which fits the listings of Apache, nginx, lighttpd and the mirrors'
own. Files arrive as `.part`, are checked against the SHA-256 the mirror publishes, if any, and renamed when whole.
"""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from taxbench import __version__
from taxbench.artifacts.manifest import Artifact, Expectation, Manifest, describe, natural_order, write_whole

READ_BYTES = 1 << 20
TIMEOUT_S = 60.0
ATTEMPTS = 3
INDEX_BYTES_MAX = 64 << 20

OnBytes = Callable[[str, int, int], None]
"""Called with (file name, bytes so far, bytes in total or 0)."""


class SourceError(RuntimeError):
    """The source cannot give what was asked for. The message says what was found instead."""


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """What to take from an index page: the newest-last run of `count` versions whose file names match `pattern`.

    `pattern` must have a group named `version`. Contiguous: the *last* `count` in version order, none left out between.
    """

    url: str
    pattern: str
    count: int
    family: str
    expectation: Expectation = "open"
    first_version: str = ""


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def links(page: str) -> list[str]:
    """Every link target of a page, in order, duplicates dropped, query and fragment cut."""
    parser = _Links()
    parser.feed(page)
    return list(dict.fromkeys(re.split(r"[?#]", target)[0] for target in parser.found))


def select(page: str, query: IndexQuery) -> list[tuple[str, str]]:
    """(link, version) of the artifacts to fetch, oldest first.

    # Errors
    `SourceError` when fewer than `count` names match: a shorter run would be a different study.
    """
    wanted = re.compile(query.pattern)
    found: dict[str, str] = {}
    for link in links(page):
        match = wanted.fullmatch(unquote(link.rstrip("/").rsplit("/", 1)[-1]))
        if match:
            found[match.group("version")] = link
    ordered = sorted(found, key=natural_order)
    if query.first_version:
        ordered = [v for v in ordered if natural_order(v) >= natural_order(query.first_version)][: query.count]
    chosen = ordered[-query.count :]
    if len(chosen) < query.count:
        raise SourceError(
            f"{query.url} has {len(chosen)} files matching {query.pattern!r}, {query.count} were asked for"
        )
    return [(found[version], version) for version in chosen]


def fetch(query: IndexQuery, directory: Path, reuse: bool = False, on_bytes: OnBytes | None = None) -> list[Artifact]:
    """Downloads what the query selects and describes it. With `reuse`, whole files of an earlier fetch are kept."""
    base = query.url if query.url.endswith("/") else query.url + "/"
    page = b"".join(_read(base, INDEX_BYTES_MAX)).decode("utf-8", "replace")
    present = set(links(page))
    artifacts = []
    for order, (link, version) in enumerate(select(page, query)):
        url = urljoin(base, link)
        path = directory / query.family / unquote(urlsplit(url).path.rsplit("/", 1)[-1])
        if not (reuse and path.is_file()):
            write_whole(path, _download(url, path.name, on_bytes))
        artifact = describe(directory, path, query.family, version, order, query.expectation)
        published = _published_sha256(base, link, path.name, present)
        if published and published != artifact.sha256:
            path.unlink()
            raise SourceError(f"{url} has SHA-256 {artifact.sha256}, the mirror publishes {published}")
        artifacts.append(artifact)
    return artifacts


def alpine_iso(mirror: str, branch: str, flavor: str, arch: str, count: int) -> IndexQuery:
    """Contiguous patch releases of one Alpine ISO flavor: the published study's data."""
    pattern = rf"alpine-{re.escape(flavor)}-(?P<version>\d+\.\d+\.\d+)-{re.escape(arch)}\.iso"
    url = f"{mirror.rstrip('/')}/{branch}/releases/{arch}/"
    return IndexQuery(url, pattern, count, f"alpine-{flavor}-{branch}-{arch}", "open")


def kernel(mirror: str, branch: str, extension: str, count: int) -> IndexQuery:
    """Contiguous kernel patch releases, say branch `6.6` with `.tar.xz`: compressed, hence a negative control."""
    major = branch.lstrip("v").split(".")[0]
    series = branch.lstrip("v")
    extension = extension if extension.startswith(".") else f".{extension}"
    pattern = rf"linux-(?P<version>{re.escape(series)}(?:\.\d+)+){re.escape(extension)}"
    expectation: Expectation = "incompressible" if extension.endswith(("xz", "gz", "zst")) else "similar"
    return IndexQuery(f"{mirror.rstrip('/')}/v{major}.x/", pattern, count, f"linux-{series}", expectation)


def any_index(url: str, extension: str, count: int, pattern: str = "") -> IndexQuery:
    """Any index page: `pattern`, or every file with the extension, ordered by the numbers in its name."""
    extension = extension if extension.startswith(".") else f".{extension}"
    family = re.sub(r"[^A-Za-z0-9]+", "-", urlsplit(url).path).strip("-") or "index"
    return IndexQuery(url, pattern or rf"(?P<version>.+){re.escape(extension)}", count, family, "open")


def build(
    query: IndexQuery, directory: Path, source: str, reuse: bool = False, on_bytes: OnBytes | None = None
) -> Manifest:
    """Fetches and describes one query's artifacts."""
    parameters = {"url": query.url, "pattern": query.pattern, "count": str(query.count)}
    return Manifest(source=source, parameters=parameters, artifacts=fetch(query, directory, reuse, on_bytes))


def _published_sha256(base: str, link: str, name: str, present: set[str]) -> str:
    """The digest a mirror publishes: `<name>.sha256` beside the file, or a line of `sha256sums.asc`."""
    if f"{link}.sha256" in present:
        text = b"".join(_read(urljoin(base, f"{link}.sha256"), 1 << 20)).decode("utf-8", "replace")
    elif "sha256sums.asc" in present:
        text = b"".join(_read(urljoin(base, "sha256sums.asc"), INDEX_BYTES_MAX)).decode("utf-8", "replace")
    else:
        return ""
    for line in text.splitlines():
        match = re.fullmatch(r"([0-9a-f]{64})\s+\*?(\S+)", line.strip())
        if match and match.group(2) == name:
            return match.group(1)
    return ""


def _open(url: str) -> urllib.request.Request:
    if urlsplit(url).scheme not in ("http", "https"):
        raise SourceError(f"{url}: only http and https are fetched")
    return urllib.request.Request(url, headers={"User-Agent": f"taxbench/{__version__}"})


def _read(url: str, bytes_max: int) -> Iterator[bytes]:
    got = 0
    for chunk in _download(url, url, None):
        got += len(chunk)
        if got > bytes_max:
            raise SourceError(f"{url} is longer than {bytes_max} bytes")
        yield chunk


def _download(url: str, name: str, on_bytes: OnBytes | None) -> Iterator[bytes]:
    """The bytes of a URL. Repeats only before the first byte; a cut download is an error."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            answer = urllib.request.urlopen(_open(url), timeout=TIMEOUT_S)
            break
        except urllib.error.HTTPError as error:
            if error.code < 500 or attempt == ATTEMPTS:
                raise SourceError(f"{url}: HTTP {error.code}") from error
        except OSError as error:
            if attempt == ATTEMPTS:
                raise SourceError(f"{url}: {error}") from error
        time.sleep(0.2 * 2**attempt)
    with answer:
        total = int(answer.headers.get("Content-Length") or 0)
        got = 0
        while chunk := answer.read(READ_BYTES):
            got += len(chunk)
            if on_bytes is not None:
                on_bytes(name, got, total)
            yield chunk
        if total and got != total:
            raise SourceError(f"{url} ended after {got} of {total} bytes")
