"""install.sh installs what the release's key signed and nothing else. The archives hold a stand-in for the binary."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import stat
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from outside.server import ROOT

VERSION = next(
    line.split('"')[1] for line in (ROOT / "Cargo.toml").read_text().splitlines() if line.startswith("version = ")
)
PLATFORM = f"linux-{os.uname().machine}"
NAME = f"deltaweir-{VERSION}-{PLATFORM}"
ARCHIVE = f"{NAME}.tar.gz"
STAND_IN = f"""#!/bin/sh
case $1 in
    man) echo 'a page' >"$2/deltaweir.1" ;;
    completions) echo "for $2" ;;
    *) echo deltaweir {VERSION} ;;
esac
"""
OLDER = "#!/bin/sh\necho an older one\n"


def new_key(path: Path) -> Path:
    """A private key as release/sign.sh takes it."""
    command = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    path.chmod(0o600)
    return path


@dataclass
class Release:
    """A signed folder of archives and a home without a binary."""

    out: Path
    home: Path

    @property
    def to(self) -> Path:
        """Where the binary is put."""
        return self.home / "bin"

    @property
    def binary(self) -> Path:
        """The installed binary."""
        return self.to / "deltaweir"

    def sign(self, key: Path) -> None:
        """release/sign.sh over the folder."""
        settings = os.environ | {"RELEASE_OUT": str(self.out), "RELEASE_KEY": str(key)}
        subprocess.run([ROOT / "release/sign.sh"], env=settings, check=True, capture_output=True, text=True)

    def install(
        self, source: str | None = None, path: str | None = None, installer: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`sh install.sh` as somebody with this home runs it."""
        command = ["sh", str(installer or self.out / "install.sh"), "--from", source or str(self.out)]
        return subprocess.run(
            [shutil.which("sh") or "sh", *command[1:], "--to", str(self.to)],
            env={"PATH": path or os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.home)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def refuses(self, said: str, **how: str | Path) -> None:
        """Asserts that an attempt fails with these words, and leaves the older binary and no other file."""
        self.to.mkdir(exist_ok=True)
        self.binary.write_text(OLDER)
        done = self.install(**how)  # type: ignore[arg-type]
        assert done.returncode == 1, done.stdout
        assert said in done.stderr, done.stderr
        assert "Nothing was installed" in done.stderr
        assert self.binary.read_text() == OLDER
        assert [path.name for path in self.home.rglob("*")] == ["bin", "deltaweir"]


def pack(out: Path, content: str) -> None:
    """The archive of this machine's platform with a binary of this content."""
    folder = out / NAME
    folder.mkdir(parents=True)
    (folder / "deltaweir").write_text(content)
    (folder / "deltaweir").chmod(0o755)
    with tarfile.open(out / ARCHIVE, "w:gz") as archive:
        archive.add(folder, arcname=NAME)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release's key."""
    return new_key(tmp_path_factory.mktemp("key") / "key.pem")


@pytest.fixture
def release(tmp_path: Path, key: Path) -> Release:
    """A release that is as it should be."""
    made = Release(tmp_path / "out", tmp_path / "home")
    made.home.mkdir()
    pack(made.out, STAND_IN)
    made.sign(key)
    return made


@pytest.fixture
def served(release: Release) -> Iterator[str]:
    """The release's address on loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(release.out)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def without(tmp_path: Path, *programs: str) -> str:
    """A search path with what the installer may use, but for these."""
    folder = tmp_path / "path"
    folder.mkdir()
    names = [
        "awk",
        "cp",
        "curl",
        "id",
        "mkdir",
        "mktemp",
        "mv",
        "chmod",
        "openssl",
        "rm",
        "sh",
        "sha256sum",
        "tar",
        "gzip",
        "uname",
        "wget",
    ]
    for name in [name for name in names if name not in programs]:
        found = shutil.which(name)
        assert found, name
        (folder / name).symlink_to(found)
    return str(folder)


@pytest.mark.parametrize("missing", ["wget", "curl"])
def test_a_signed_binary_is_installed_over_http_with_curl_or_wget(
    release: Release, served: str, tmp_path: Path, missing: str
) -> None:
    done = release.install(served, without(tmp_path, missing))
    assert done.returncode == 0, done.stderr
    assert f"deltaweir {VERSION} is at {release.binary}" in done.stdout
    assert release.binary.read_text() == STAND_IN
    assert stat.S_IMODE(release.binary.stat().st_mode) == 0o755
    assert [path.name for path in release.home.rglob("*")] == ["bin", "deltaweir"]


def test_a_binary_is_installed_from_a_folder_without_curl_and_wget(release: Release, tmp_path: Path) -> None:
    done = release.install(path=without(tmp_path, "curl", "wget"))
    assert done.returncode == 0, done.stderr
    assert release.binary.read_text() == STAND_IN


def test_another_binary_under_the_signed_name_is_refused(release: Release) -> None:
    (release.out / ARCHIVE).unlink()
    pack(release.out, "#!/bin/sh\necho deltaweir 6.6.6\n")
    release.refuses("is not the file that was signed")


def test_a_cut_archive_is_refused(release: Release) -> None:
    whole = (release.out / ARCHIVE).read_bytes()
    (release.out / ARCHIVE).write_bytes(whole[:-1])
    release.refuses("is not the file that was signed")


def test_a_list_that_was_changed_after_it_was_signed_is_refused(release: Release) -> None:
    with (release.out / "SHA256SUMS").open("a") as sums:
        sums.write(f"{'0' * 64}  another\n")
    release.refuses("is not signed by the key")


def test_a_list_that_another_key_signed_is_refused(release: Release, tmp_path: Path) -> None:
    installer = tmp_path / "install.sh"
    shutil.copy(release.out / "install.sh", installer)
    release.sign(new_key(tmp_path / "other.pem"))
    assert release.install().returncode == 0, "the other release is whole: only its key is another"
    release.refuses("is not signed by the key", installer=installer)


@pytest.mark.parametrize("signature", [None, "", "bm90IGEgc2lnbmF0dXJl\n", "?\n"])
def test_a_list_without_a_signature_is_refused(release: Release, signature: str | None) -> None:
    path = release.out / "SHA256SUMS.sig"
    path.unlink()
    if signature is None:
        release.refuses("SHA256SUMS.sig cannot be had")
    else:
        path.write_text(signature)
        release.refuses("is not signed by the key")


def test_an_archive_that_the_list_does_not_name_is_refused(release: Release, key: Path) -> None:
    kept = (release.out / ARCHIVE).read_bytes()
    (release.out / ARCHIVE).rename(release.out / f"deltaweir-{VERSION}-linux-other.tar.gz")
    release.sign(key)
    (release.out / ARCHIVE).write_bytes(kept)
    release.refuses(f"does not name {ARCHIVE} once")


def test_the_signed_list_of_another_version_does_not_pass_for_this_one(release: Release) -> None:
    installer = release.home.parent / "install.sh"
    text = (release.out / "install.sh").read_text()
    installer.write_text(text.replace(f"version='{VERSION}'", "version='9.9.9'"))
    assert installer.read_text() != text
    release.refuses("does not name deltaweir-9.9.9", installer=installer)


def test_a_missing_file_is_refused_over_http(release: Release, served: str) -> None:
    (release.out / ARCHIVE).unlink()
    release.refuses(f"{ARCHIVE} cannot be had", source=served)


@pytest.mark.parametrize("program", ["openssl", "sha256sum", "tar"])
def test_nothing_is_checked_by_halves_where_a_tool_is_missing(release: Release, tmp_path: Path, program: str) -> None:
    release.refuses(f"{program} is missing", path=without(tmp_path, program))


def test_a_processor_without_a_binary_is_named(release: Release, tmp_path: Path) -> None:
    path = without(tmp_path, "uname")
    uname = Path(path) / "uname"
    uname.write_text('#!/bin/sh\n[ "$1" = -m ] && echo riscv64 || echo Linux\n')
    uname.chmod(0o755)
    release.refuses("there is no binary for riscv64", path=path)


def test_a_binary_that_does_not_run_here_is_not_installed(release: Release, key: Path) -> None:
    (release.out / ARCHIVE).unlink()
    pack(release.out, "#!/bin/sh\nexit 1\n")
    release.sign(key)
    release.refuses("does not run on this machine")


def test_the_installer_of_the_repository_carries_no_key_and_installs_nothing(release: Release) -> None:
    release.refuses("carries no key", installer=ROOT / "release" / "install.sh")


def test_signing_refuses_a_key_in_the_repository_and_one_that_others_may_read(release: Release, tmp_path: Path) -> None:
    settings = os.environ | {"RELEASE_OUT": str(release.out)}

    def said(key: Path) -> str:
        done = subprocess.run(
            [ROOT / "release/sign.sh"],
            env=settings | {"RELEASE_KEY": str(key)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        return done.stderr

    assert "inside the repository" in said(ROOT / "release" / "key.pem")
    key = new_key(tmp_path / "open.pem")
    key.chmod(0o644)
    assert "others may read" in said(key)


def test_a_folder_without_archives_is_not_signed(release: Release, key: Path) -> None:
    (release.out / ARCHIVE).unlink()
    with pytest.raises(subprocess.CalledProcessError) as refused:
        release.sign(key)
    assert "nothing to sign" in refused.value.stderr
    assert not (release.out / "SHA256SUMS").exists()
