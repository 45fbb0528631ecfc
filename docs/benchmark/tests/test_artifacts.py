"""Artifact sources: seeded synthetic families, index pages of real mirrors' shape, package clients, directories."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
import threading
import zlib
from argparse import Namespace
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from taxbench.artifacts import directory, index, iso, packages, sources, synthetic
from taxbench.artifacts.index import IndexQuery, SourceError
from taxbench.artifacts.manifest import Manifest, describe, natural_order, write_whole
from taxbench.cli import parser
from taxbench.progress import Reporter

ALPINE_PATH = "/alpine/v3.19/releases/x86_64/"
KERNEL_PATH = "/pub/linux/kernel/v6.x/"


def content_of(name: str) -> bytes:
    return np.random.default_rng(zlib.crc32(name.encode())).bytes(5000)


def alpine_page() -> str:
    """The shape of a mirror's listing: nginx's fancy index, with everything that lies beside the ISOs."""
    names = ["../", "netboot/", "latest-releases.yaml"]
    for version in ("3.19.0_rc1", "3.19.0", "3.19.1", "3.19.2", "3.19.9", "3.19.10"):
        for flavor in ("standard", "virt", "minirootfs"):
            kind = ".tar.gz" if flavor == "minirootfs" else ".iso"
            stem = f"alpine-{flavor}-{version}-x86_64{kind}"
            names += [stem, f"{stem}.asc", f"{stem}.sha256", f"{stem}.sha512"]
    rows = "".join(f'<a href="{n}">{n}</a>{" " * 20}07-Dec-2023 12:54{" " * 12}63963136\n' for n in names)
    title = f"<title>Index of {ALPINE_PATH}</title>"
    return f"<html><head>{title}</head><body><h1>Index</h1><hr><pre>{rows}</pre><hr></body></html>"


def kernel_page() -> str:
    """The shape of the kernel archive: change logs, patches, signatures, four compressions, and one sums file."""
    names = ["../", "incr/", "sha256sums.asc"]
    for version in ("6.5.9", "6.6", "6.6.1", "6.6.2", "6.6.9", "6.6.10", "6.6.11", "6.60.1"):
        names += [
            f"ChangeLog-{version}",
            f"linux-{version}.tar.gz",
            f"linux-{version}.tar.sign",
            f"linux-{version}.tar.xz",
        ]
        names += [f"patch-{version}.xz"]
    rows = "".join(f'<a href="{n}">{n}</a>  20-Nov-2023 11:25  135M\n' for n in names)
    return f"<html><body><h1>Index of /pub/linux/kernel/v6.x/</h1><pre>{rows}</pre></body></html>"


class Mirror(BaseHTTPRequestHandler):
    """Both mirrors, with faults by class attribute."""

    fault = ""
    served: list[str] = []

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        name = self.path.rsplit("/", 1)[-1]
        type(self).served.append(name)
        if self.path == ALPINE_PATH:
            return self.send(alpine_page().encode())
        if self.path == KERNEL_PATH:
            return self.send(kernel_page().encode())
        if name == "sha256sums.asc":
            lines = [
                f"{hashlib.sha256(content_of(n)).hexdigest()}  {n}"
                for n in ("linux-6.6.10.tar.xz", "linux-6.6.11.tar.xz")
            ]
            text = "\n".join(
                ["-----BEGIN PGP SIGNED MESSAGE-----", "Hash: SHA256", "", *lines, "-----BEGIN PGP SIGNATURE-----"]
            )
            return self.send(text.encode())
        if name.endswith(".sha256"):
            digest = "0" * 64 if self.fault == "bad-digest" else hashlib.sha256(content_of(name[:-7])).hexdigest()
            return self.send(f"{digest}  {name[:-7]}\n".encode())
        if self.fault == "missing":
            return self.send_error(404)
        return self.send(content_of(name), cut=self.fault == "cut")

    def send(self, body: bytes, cut: bool = False) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)


@pytest.fixture
def mirror() -> Iterator[str]:
    Mirror.fault, Mirror.served = "", []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_contiguous_alpine_isos_are_taken_in_version_order_without_candidates(mirror: str, tmp_path: Path) -> None:
    query = index.alpine_iso(f"{mirror}/alpine", "v3.19", "virt", "x86_64", 5)
    manifest = index.build(query, tmp_path, "alpine-iso")
    assert [a.version for a in manifest.artifacts] == ["3.19.0", "3.19.1", "3.19.2", "3.19.9", "3.19.10"]
    assert [a.role for a in manifest.artifacts] == ["base", "delta", "delta", "delta", "delta"]
    assert all((tmp_path / a.path).read_bytes() == content_of(a.name) for a in manifest.artifacts)
    assert not list(tmp_path.rglob("*.part"))


def test_kernel_patch_releases_stay_within_their_series(mirror: str, tmp_path: Path) -> None:
    manifest = index.build(index.kernel(f"{mirror}/pub/linux/kernel", "6.6", ".tar.xz", 4), tmp_path, "kernel")
    assert [a.version for a in manifest.artifacts] == ["6.6.2", "6.6.9", "6.6.10", "6.6.11"]
    assert {a.expectation for a in manifest.artifacts} == {"incompressible"}


def test_any_index_page_will_do_with_a_pattern(mirror: str, tmp_path: Path) -> None:
    query = index.any_index(f"{mirror}{KERNEL_PATH}", "", 2, r"patch-(?P<version>6\.6\.\d+)\.xz")
    assert [a.name for a in index.build(query, tmp_path, "http-index").artifacts] == [
        "patch-6.6.10.xz",
        "patch-6.6.11.xz",
    ]


def test_a_published_digest_that_does_not_match_is_refused_and_the_file_removed(mirror: str, tmp_path: Path) -> None:
    Mirror.fault = "bad-digest"
    with pytest.raises(SourceError, match="the mirror publishes"):
        index.build(index.alpine_iso(f"{mirror}/alpine", "v3.19", "virt", "x86_64", 1), tmp_path, "alpine-iso")
    assert not list(tmp_path.rglob("*.iso"))


@pytest.mark.parametrize("fault", ["cut", "missing"])
def test_a_download_that_does_not_end_leaves_no_whole_file(mirror: str, tmp_path: Path, fault: str) -> None:
    Mirror.fault = fault
    with pytest.raises((SourceError, OSError)):
        index.build(index.alpine_iso(f"{mirror}/alpine", "v3.19", "virt", "x86_64", 1), tmp_path, "alpine-iso")
    assert not list(tmp_path.rglob("*.iso"))


def test_too_few_versions_are_an_error_not_a_smaller_study(mirror: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="5 files matching"):
        index.build(index.alpine_iso(f"{mirror}/alpine", "v3.19", "virt", "x86_64", 9), tmp_path, "alpine-iso")


def test_reuse_fetches_nothing_that_is_whole(mirror: str, tmp_path: Path) -> None:
    query = index.alpine_iso(f"{mirror}/alpine", "v3.19", "virt", "x86_64", 2)
    index.build(query, tmp_path, "alpine-iso")
    Mirror.served = []
    index.build(query, tmp_path, "alpine-iso", reuse=True)
    assert not [name for name in Mirror.served if name.endswith(".iso")]


def test_the_artifacts_command_reuses_a_whole_manifest_and_replaces_a_broken_one(mirror: str, tmp_path: Path) -> None:
    arguments = ["artifacts", "--artifact-source", "alpine-iso", "--artifact-count", "2", "--reuse-artifacts"]
    arguments += ["--mirror-url", f"{mirror}/alpine", "--data-dir", str(tmp_path)]
    options: Namespace = parser().parse_args(arguments)
    first, _ = sources.prepare(options, tmp_path, Reporter(quiet=True))
    Mirror.served = []
    again, _ = sources.prepare(options, tmp_path, Reporter(quiet=True))
    assert again == first and Mirror.served == []
    (tmp_path / first.artifacts[0].path).unlink()
    sources.prepare(options, tmp_path, Reporter(quiet=True))
    assert first.artifacts[0].name in Mirror.served


def test_artifacts_of_other_versions_than_were_asked_for_are_not_reused(mirror: str, tmp_path: Path) -> None:
    arguments = ["artifacts", "--artifact-source", "alpine-iso", "--artifact-count", "2", "--reuse-artifacts"]
    arguments += ["--mirror-url", f"{mirror}/alpine", "--data-dir", str(tmp_path)]
    first, _ = sources.prepare(parser().parse_args(arguments), tmp_path, Reporter(quiet=True))
    version = first.artifacts[0].version
    for versions, fetched in ((version, False), (f"{version},0.0.1", True)):
        Mirror.served = []
        sources.prepare(parser().parse_args([*arguments, "--versions", versions]), tmp_path, Reporter(quiet=True))
        assert bool(Mirror.served) == fetched


def test_links_are_read_as_browsers_read_them() -> None:
    page = "<A HREF='a.iso?x=1'>a</A><a class=z href=b.iso#top>b</a><a name=c>c</a><a href=\"a.iso\">again</a>"
    assert index.links(page) == ["a.iso", "b.iso"]


def test_a_first_version_starts_the_run_there() -> None:
    page = "".join(f'<a href="f-{v}.x">' for v in ("1.0", "1.1", "1.2", "1.3"))
    query = IndexQuery("http://h/", r"f-(?P<version>[\d.]+)\.x", 2, "f", first_version="1.1")
    assert [version for _, version in index.select(page, query)] == ["1.1", "1.2"]


def test_versions_sort_as_people_count() -> None:
    versions = ["1.10", "1.9", "1.9-rc1", "1.9.1", "2.0", "1.9-rc10", "1.9-rc2"]
    assert sorted(versions, key=natural_order) == ["1.9-rc1", "1.9-rc2", "1.9-rc10", "1.9", "1.9.1", "1.10", "2.0"]


def test_synthetic_families_are_the_same_for_the_same_seed_and_different_for_another(tmp_path: Path) -> None:
    one, two, other = (synthetic.build(tmp_path / str(n), seed, 0.02) for n, seed in ((1, 5), (2, 5), (3, 6)))
    assert one.digest() == two.digest() != other.digest()
    assert {a.family for a in one.artifacts} == {f.name for f in synthetic.FAMILIES}
    assert one.verify(tmp_path / "1") == []


@pytest.mark.parametrize("name", ["tar", "sql", "disk", "shifted"])
def test_similar_families_really_are_similar(name: str) -> None:
    versions = list(synthetic.family_named(name).generate(np.random.default_rng(1), 300_000, 2))
    assert versions[0] != versions[1]
    blocks = {versions[0][at : at + 64] for at in range(len(versions[0]) - 64)}
    later = [versions[1][at : at + 64] for at in range(0, len(versions[1]) - 64, 64)]
    if name == "shifted":  # addresses change everywhere: only the opcodes stay
        assert len(versions[1]) > len(versions[0])
    else:
        assert sum(block in blocks for block in later) > 0.7 * len(later)


def test_control_families_cannot_be_compressed_and_logs_can(tmp_path: Path) -> None:
    manifest = synthetic.build(tmp_path, 1, 0.05, ["random", "logs", "targz", "duplicate"])
    for artifact in manifest.artifacts:
        data = (tmp_path / artifact.path).read_bytes()
        ratio = len(zlib.compress(data, 6)) / len(data)
        assert ratio < 0.6 if artifact.family == "logs" else ratio > 0.98
    duplicates = manifest.families["duplicate"]
    assert duplicates[0].sha256 == duplicates[1].sha256


def test_a_manifest_notices_what_changed_on_disk(tmp_path: Path) -> None:
    manifest = synthetic.build(tmp_path, 1, 0.02, ["random"])
    manifest.write(tmp_path)
    assert Manifest.read(tmp_path) == manifest
    path = tmp_path / manifest.artifacts[0].path
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    (tmp_path / manifest.artifacts[1].path).unlink()
    assert [line.rpartition(": ")[2] for line in manifest.verify(tmp_path)] == ["content changed", "missing"]


def test_a_local_directory_is_grouped_into_families_by_name(tmp_path: Path) -> None:
    for name in ("app-1.10.tar", "app-1.9.tar", "app-1.9-rc1.tar", "db/dump-2024.sql", "notes.txt"):
        write_whole(tmp_path / name, [name.encode()])
    manifest = directory.build(tmp_path)
    assert [a.name for a in manifest.families["app.tar"]] == ["app-1.9-rc1.tar", "app-1.9.tar", "app-1.10.tar"]
    assert set(manifest.families) == {"app.tar", "db-dump.sql", "notes.txt"}
    with pytest.raises(SourceError):
        directory.build(tmp_path, ".iso")


def test_a_failed_write_leaves_nothing_with_the_final_name(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("link down")

    with pytest.raises(RuntimeError):
        write_whole(tmp_path / "file", broken())
    assert not (tmp_path / "file").exists()


def fake_client(place: Path, name: str, script: str) -> None:
    path = place / name
    path.write_text(f"#!/bin/sh\nset -e\n{script}\n")
    path.chmod(0o755)


def test_npm_packages_become_plain_tars_in_version_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("package/index.js")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"code"))
    (tmp_path / "pkg.tgz").write_bytes(gzip.compress(out.getvalue()))
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    versions = '["1.2.0-rc.1","1.2.0","1.10.0","1.9.0"]'
    fake_client(bin_dir, "npm", f"""[ "$1" = view ] && echo '{versions}' || cp {tmp_path}/pkg.tgz ./pkg.tgz""")
    monkeypatch.setenv("PATH", f"{bin_dir}:{os.environ['PATH']}")
    manifest = packages.build(packages.ECOSYSTEMS["npm"], "@scope/pkg", tmp_path / "data", 2)
    assert [a.version for a in manifest.artifacts] == ["1.9.0", "1.10.0"]
    assert (tmp_path / "data" / manifest.artifacts[0].path).read_bytes() == out.getvalue()
    shipped = packages.build(packages.ECOSYSTEMS["npm"], "pkg", tmp_path / "raw", 1, ["1.2.0"], unpacked=False)
    assert shipped.artifacts[0].sha256 == hashlib.sha256((tmp_path / "pkg.tgz").read_bytes()).hexdigest()


def test_several_packages_are_several_families(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """if [ "$1" = view ]; then echo '["1.0.0"]'; else echo "$3" | gzip -n > ./"${3%%@*}.tgz"; fi"""
    fake_client(tmp_path, "npm", script)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    arguments = ["artifacts", "--artifact-source", "npm", "--package", "left,right", "--data-dir", str(tmp_path / "d")]
    manifest, place = sources.prepare(parser().parse_args(arguments), tmp_path / "d", Reporter(quiet=True))
    assert set(manifest.families) == {"npm-left", "npm-right"}
    assert (place / manifest.families["npm-right"][0].path).read_text() == "right@1.0.0\n"


def test_a_client_that_fails_or_is_missing_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_client(tmp_path, "npm", "echo no such package >&2; exit 3")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(SourceError, match="no such package"):
        packages.build(packages.ECOSYSTEMS["npm"], "nothing", tmp_path, 2)
    (tmp_path / "npm").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="not installed"):
        packages.build(packages.ECOSYSTEMS["npm"], "nothing", tmp_path, 2)


def test_versions_asked_for_must_exist() -> None:
    assert packages.choose_versions(["2.0", "1.0", "2.1rc1"], [], 5) == ["1.0", "2.0"]
    assert packages.choose_versions(["2.0", "1.0"], ["1.0"], 5) == ["1.0"]
    with pytest.raises(SourceError, match="3\\.0"):
        packages.choose_versions(["2.0"], ["3.0"], 5)


def test_descriptions_carry_the_etag_a_put_must_answer_with(tmp_path: Path) -> None:
    path = write_whole(tmp_path / "x", [b"hello"])
    assert describe(tmp_path, path, "f", "1", 0).md5 == hashlib.md5(b"hello", usedforsecurity=False).hexdigest()


def test_successive_images_are_real_ones_and_the_same_for_the_same_seed(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("one", "again", "other")]
    made = []
    for place, seed in zip(places, (1, 1, 2), strict=True):
        place.mkdir()
        made.append(iso.build(place, seed, 0.05, 3, lambda name, size: None))
    first, again, other = made
    assert [artifact.sha256 for artifact in first.artifacts] == [artifact.sha256 for artifact in again.artifacts]
    assert {artifact.sha256 for artifact in first.artifacts}.isdisjoint(artifact.sha256 for artifact in other.artifacts)
    assert [artifact.version for artifact in first.artifacts] == ["1.0.0", "1.1.0", "1.2.0"]
    image = places[0] / first.artifacts[2].path
    assert image.read_bytes()[0x8001:0x8006] == b"CD001", "a volume descriptor of ISO 9660"
    told = subprocess.run(
        ["xorriso", "-indev", str(image), "-find", "/", "-exec", "echo"], capture_output=True, text=True, check=True
    )
    assert {"'/root.squashfs'", "'/boot/vmlinuz'", "'/apks/package-0.apk'"} <= set(told.stdout.split())
