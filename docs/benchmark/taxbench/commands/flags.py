"""Flags that several commands share, and how they become plans. Names are kept from harnesses people already know."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from pathlib import Path

from taxbench.artifacts.manifest import Manifest
from taxbench.client.endpoint import PayloadHash
from taxbench.names import DEFAULT_BUCKETS, MODES, PHASES
from taxbench.profiles import PROFILES, Profile
from taxbench.report import markdown
from taxbench.report.bottom_line import bottom_line
from taxbench.runner import RunPlan, Study, UsageError
from taxbench.summary import Summary

PACKAGE_ROOT = Path(__file__).resolve().parents[2]
RESULTS = PACKAGE_ROOT / "results" if (PACKAGE_ROOT / "pyproject.toml").is_file() else Path("results")
"""`docs/benchmark/results` in the repository, which ignores it, and `results` for a package that was installed."""
MODE_BUCKET_HELP = "bucket of a mode, may be repeated (default: bench-MODE)"
PAYLOAD_HELP = "whether requests sign the hash of their bodies (default: precomputed)"


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document to stdout and no progress")


def add_artifact_flags(parser: argparse.ArgumentParser) -> None:
    """Where artifacts come from."""
    group = parser.add_argument_group("artifacts")
    sources = ("synthetic", "iso", "alpine-iso", "kernel", "http-index", "pypi", "npm", "debian", "local")
    group.add_argument(
        "--artifact-source", choices=sources, default="synthetic", help="where objects come from (default: synthetic)"
    )
    group.add_argument("--artifact-count", type=int, default=5, help="versions to take, the newest (default 5)")
    group.add_argument("--artifact-extension", default="", help="file name ending, for kernel, http-index and local")
    group.add_argument("--data-dir", type=Path, help="where artifacts are kept")
    group.add_argument("--reuse-artifacts", action="store_true", help="keep files that an earlier fetch left whole")
    group.add_argument("--mirror-url", default="", help="mirror of alpine-iso or kernel, or the page of http-index")
    group.add_argument("--index-pattern", default="", help="http-index: regular expression with a group `version`")
    group.add_argument("--alpine-branch", default="v3.19", help="alpine-iso: the release branch (default: v3.19)")
    group.add_argument("--alpine-flavor", default="virt", help="alpine-iso: the image's flavor (default: virt)")
    group.add_argument("--alpine-arch", default="x86_64", help="alpine-iso: the processor (default: x86_64)")
    group.add_argument("--kernel-branch", default="6.6", help="kernel: the stable branch (default: 6.6)")
    group.add_argument("--package", default="", help="pypi, npm, debian: the package, or several, comma-separated")
    group.add_argument(
        "--versions", default="", help="pypi, npm, debian: versions, comma-separated, instead of the newest"
    )
    group.add_argument("--as-shipped", action="store_true", help="pypi, npm, debian: do not unpack into a plain tar")
    group.add_argument("--local-dir", type=Path, help="local: the directory with the files")
    group.add_argument("--synthetic-scale", type=float, help="synthetic, iso: size factor (default: the profile's)")
    group.add_argument("--synthetic-families", default="", help="synthetic: families, comma-separated (default: all)")


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """What a run does, and how it is written down."""
    group = parser.add_argument_group("run")
    group.add_argument("--profile", choices=sorted(PROFILES), default="quick", help="how much is run (default: quick)")
    group.add_argument("--run-id", default="", help="default: tax-<UTC time>")
    group.add_argument(
        "--results", type=Path, default=RESULTS, help="directory of results (default: docs/benchmark/results)"
    )
    group.add_argument("--trials", type=int, help="repeats of every cell (default: the profile's)")
    group.add_argument("--modes", default="", help="comma-separated; default: the four modes and direct")
    group.add_argument("--concurrency", default="", help="comma-separated connection counts, e.g. 1,4,16")
    group.add_argument("--phases", default="", help="comma-separated; the core cannot be left out")
    group.add_argument("--seed", type=int, default=20_231_107, help="of artifacts, order and intervals")
    group.add_argument("--mode-bucket", action="append", default=[], metavar="MODE=BUCKET", help=MODE_BUCKET_HELP)
    group.add_argument("--payload-hash", choices=("precomputed", "unsigned"), default="precomputed", help=PAYLOAD_HELP)
    group.add_argument("--part-size", type=int, default=5 << 20, help="multipart part size in bytes")
    group.add_argument("--timeout", type=float, default=120.0, help="seconds without progress before a request failed")
    group.add_argument("--settle-timeout", type=float, default=180.0, help="seconds to wait for background work")
    group.add_argument("--phase-gap-seconds", type=float, default=0.0, help="pause between phases")
    group.add_argument("--resource-sample-interval", type=float, default=0.25, help="seconds; 0 takes no samples")
    group.add_argument("--resource-command", default="", help="prints one JSON object of numbers, sampled along")
    group.add_argument("--no-proxy-restart", action="store_true", help="do not restart the server before cold reads")
    group.add_argument("--restart-between-modes-command", default="", help="shell command run between modes")
    group.add_argument("--no-restart-between-modes", action="store_true", help="ignore --restart-between-modes-command")
    group.add_argument("--clean-command", default="", help="shell command run between trials")
    group.add_argument("--allow-clean-failure", action="store_true", help="go on when --clean-command fails")
    group.add_argument(
        "--allow-failures",
        action="store_true",
        help="exit with 0 although operations failed; the finding stays, and the report says what failed",
    )
    group.add_argument("--skip-compression-verify", action="store_true", help="do not demand that compression saves")
    add_json(parser)


def profile_of(options: argparse.Namespace) -> Profile:
    return PROFILES[options.profile]


def run_id_of(options: argparse.Namespace) -> str:
    return options.run_id or datetime.datetime.now(datetime.UTC).strftime("tax-%Y%m%d-%H%M%S")


def payload_hash_of(options: argparse.Namespace) -> PayloadHash:
    return "unsigned" if options.payload_hash == "unsigned" else "precomputed"


def plan_of(
    options: argparse.Namespace,
    manifest: Manifest,
    artifacts_dir: Path,
    scratch: Path,
    modes: list[str],
    server_host: str,
    studies: dict[str, Study],
) -> RunPlan:
    """The plan that the flags and the profile describe.

    # Errors
    `UsageError` for values that make no sense.
    """
    profile = profile_of(options)
    phases = tuple(_words(options.phases)) or profile.first_phases
    unknown = [phase for phase in phases if phase not in PHASES]
    if unknown:
        raise UsageError(f"unknown phases: {', '.join(unknown)}; there are {', '.join(PHASES)}")
    try:
        concurrency = tuple(int(n) for n in _words(options.concurrency)) or profile.concurrency
    except ValueError as error:
        raise UsageError(f"--concurrency {options.concurrency!r}: {error}") from error
    between = "" if options.no_restart_between_modes else options.restart_between_modes_command
    return RunPlan(
        run_id=run_id_of(options),
        profile=profile.name,
        seed=options.seed,
        trials=options.trials or profile.trials,
        modes=tuple(modes),
        concurrency=concurrency,
        phases=tuple(phase for phase in PHASES if phase in phases),
        other_phases=profile.other_phases,
        buckets={mode: bucket_of(options, mode) for mode in modes},
        manifest=manifest,
        artifacts_dir=artifacts_dir,
        results=options.results,
        scratch=scratch,
        command=command_line(),
        payload_hash=options.payload_hash,
        sample_interval_s=options.resource_sample_interval,
        resource_command=options.resource_command,
        phase_gap_s=options.phase_gap_seconds,
        part_size=options.part_size,
        mixed_operations=profile.mixed_operations,
        settle_timeout_s=options.settle_timeout,
        restart_before_cold=not options.no_proxy_restart,
        restart_between_modes_command=between,
        clean_command=options.clean_command,
        allow_clean_failure=options.allow_clean_failure,
        verify_compression=not options.skip_compression_verify,
        server_host=server_host,
        studies=studies,
    )


def modes_of(options: argparse.Namespace, default: list[str]) -> list[str]:
    """The modes to run, in the order they were named."""
    return list(dict.fromkeys(_words(options.modes) or default))


def bucket_of(options: argparse.Namespace, mode: str) -> str:
    """The bucket of a mode: `--mode-bucket`, else the default name.

    # Errors
    `UsageError` when a `--mode-bucket` is not `MODE=BUCKET`.
    """
    for entry in options.mode_bucket:
        name, equals, bucket = entry.partition("=")
        if not equals or not bucket:
            raise UsageError(f"--mode-bucket {entry!r}: MODE=BUCKET was expected")
        if name == mode:
            return str(bucket)
    return DEFAULT_BUCKETS.get(mode, f"bench-{mode.replace('_', '-')}")


def command_line() -> list[str]:
    """What was typed, for the record. Credentials come from the environment only, so none can be in it."""
    program = Path(sys.argv[0]).name
    return ["python", "-m", "taxbench", *sys.argv[1:]] if program == "__main__.py" else [program, *sys.argv[1:]]


def credentials(prefix: str = "TAXBENCH") -> tuple[str, str]:
    """Access key id and secret from `<PREFIX>_ACCESS_KEY_ID` and so on, else from the `AWS_` variables.

    # Errors
    `UsageError` when neither is set.
    """
    for name in (prefix, "TAXBENCH", "AWS"):
        key, secret = os.environ.get(f"{name}_ACCESS_KEY_ID"), os.environ.get(f"{name}_SECRET_ACCESS_KEY")
        if key and secret:
            return key, secret
    raise UsageError("set TAXBENCH_ACCESS_KEY_ID and TAXBENCH_SECRET_ACCESS_KEY (or the AWS_ variables)")


def finish(options: argparse.Namespace, summary: Summary, results: Path) -> int:
    """Prints what a run says and gives back its exit code: 1 when a finding is fatal."""
    if options.json:
        print(summary.model_dump_json())
    else:
        for row in summary.headline:
            if row.verdict:
                print(row.verdict)
        print()
        print("\n".join(markdown.headline_table(summary.headline)))
        print()
        for finding in summary.findings:
            if finding.severity != "note":
                print(f"{finding.severity.upper()} {finding.code} {finding.where}: {finding.message}")
        print(f"\n{bottom_line(summary)}")
        print(f"\nreport: {results / 'report.html'}")
    return exit_code(options, summary)


def exit_code(options: argparse.Namespace, summary: Summary) -> int:
    """1 when a finding is fatal; with `--allow-failures`, not for operations that failed."""
    allowed = {"failed-operations"} if options.allow_failures else set()
    fatal = {finding.code for finding in summary.findings if finding.severity == "fatal"}
    return 1 if fatal - allowed else 0


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def default_modes() -> list[str]:
    return ["direct", *MODES]
