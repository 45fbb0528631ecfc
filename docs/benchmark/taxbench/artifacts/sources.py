"""From the flags to a manifest: which source, with which parameters."""

from __future__ import annotations

import argparse
from pathlib import Path

from taxbench.artifacts import directory, index, iso, packages, synthetic
from taxbench.artifacts.index import SourceError
from taxbench.artifacts.manifest import MANIFEST_NAME, Manifest
from taxbench.profiles import PROFILES
from taxbench.progress import Reporter

ALPINE_MIRROR = "https://dl-cdn.alpinelinux.org/alpine"
KERNEL_MIRROR = "https://cdn.kernel.org/pub/linux/kernel"


def prepare(options: argparse.Namespace, place: Path, reporter: Reporter) -> tuple[Manifest, Path]:
    """Makes or fetches the artifacts and writes their manifest; gives it and the directory its paths start from.

    With `--reuse-artifacts` a manifest that is there and whole is used as it is, unless versions were asked for
    that are not in it.

    # Errors
    `SourceError` when the source cannot give what was asked for.
    """
    if options.artifact_source == "local":
        root = options.local_dir or options.data_dir
        if root is None or not root.is_dir():
            raise SourceError("--artifact-source local needs --local-dir with a directory")
        with reporter.steps_bar("hashing files", 1) as bar:
            manifest = directory.build(root, options.artifact_extension, options.artifact_count)
            bar.advance(1)
        return manifest, root
    place.mkdir(parents=True, exist_ok=True)
    if options.reuse_artifacts and (place / MANIFEST_NAME).is_file():
        manifest = Manifest.read(place)
        wrong = manifest.verify(place)
        asked = {version.strip() for version in options.versions.split(",") if version.strip()}
        if asked - {artifact.version for artifact in manifest.artifacts}:
            wrong.append("other versions were asked for")
        if manifest.source == options.artifact_source and not wrong:
            reporter.say(f"reusing {len(manifest.artifacts)} artifacts in {place}")
            return manifest, place
        reporter.say(f"artifacts in {place} do not fit ({'; '.join(wrong[:3]) or manifest.source}); fetching again")
    manifest = _build(options, place, reporter)
    manifest.write(place)
    return manifest, place


def _build(options: argparse.Namespace, place: Path, reporter: Reporter) -> Manifest:
    source = options.artifact_source
    scale = options.synthetic_scale or PROFILES[getattr(options, "profile", "quick")].synthetic_scale
    seed = getattr(options, "seed", synthetic.DEFAULT_SEED)
    if source == "synthetic":
        names = [n.strip() for n in options.synthetic_families.split(",") if n.strip()] or None
        expected = sum(
            int(f.version_bytes * scale) * f.versions for f in synthetic.FAMILIES if f.expectation != "small"
        )
        with reporter.bytes_bar("generating artifacts", expected) as bar:
            return synthetic.build(place, seed, scale, names, on_file=lambda _, size: bar.advance(size))
    if source == iso.FAMILY:
        count = options.artifact_count
        with reporter.steps_bar("making images", count) as bar:
            return iso.build(place, seed, scale, count, lambda name, _: bar.advance(1, name))
    if source in packages.ECOSYSTEMS:
        if not options.package:
            raise SourceError(f"--artifact-source {source} needs --package")
        return _packages(options, place, reporter)
    query = _query(options)
    with reporter.steps_bar(f"fetching {query.count} files", query.count) as bar:

        def on_bytes(name: str, got: int, total: int) -> None:
            bar.advance(1 if total and got == total else 0, name)

        return index.build(query, place, source, options.reuse_artifacts, on_bytes)


def _packages(options: argparse.Namespace, place: Path, reporter: Reporter) -> Manifest:
    """One family per package; `--package` may name several, since a Debian suite carries one version of each."""
    names = [name.strip() for name in options.package.split(",") if name.strip()]
    wanted = [v.strip() for v in options.versions.split(",") if v.strip()] or None
    if wanted and len(names) > 1:
        raise SourceError("--versions goes with one --package")
    steps = len(names) * (len(wanted or []) or options.artifact_count)
    with reporter.steps_bar(f"fetching {options.package}", steps) as bar:
        parts = [
            packages.build(
                packages.ECOSYSTEMS[options.artifact_source],
                name,
                place,
                options.artifact_count,
                wanted,
                not options.as_shipped,
                options.reuse_artifacts,
                lambda file, _: bar.advance(1, file),
            )
            for name in names
        ]
    return Manifest(
        source=options.artifact_source,
        parameters={f"{key} {n}": value for n, part in enumerate(parts) for key, value in part.parameters.items()},
        artifacts=[artifact for part in parts for artifact in part.artifacts],
    )


def _query(options: argparse.Namespace) -> index.IndexQuery:
    if options.artifact_source == "alpine-iso":
        mirror = options.mirror_url or ALPINE_MIRROR
        return index.alpine_iso(
            mirror, options.alpine_branch, options.alpine_flavor, options.alpine_arch, options.artifact_count
        )
    if options.artifact_source == "kernel":
        extension = options.artifact_extension or ".tar.xz"
        return index.kernel(
            options.mirror_url or KERNEL_MIRROR, options.kernel_branch, extension, options.artifact_count
        )
    if not options.mirror_url or not (options.artifact_extension or options.index_pattern):
        raise SourceError("--artifact-source http-index needs --mirror-url and --artifact-extension or --index-pattern")
    return index.any_index(
        options.mirror_url, options.artifact_extension, options.artifact_count, options.index_pattern
    )
