"""The command line: `python -m taxbench COMMAND`.

Exit codes: 0 done; 1 a fatal finding, a regression, or a failed check; 2 asked for something that cannot be done.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from taxbench import __version__
from taxbench.admin import AdminError
from taxbench.artifacts.index import SourceError
from taxbench.bundle import BundleError
from taxbench.client.pool import WorkerDiedError
from taxbench.cloud.lifecycle import CloudError
from taxbench.commands import artifacts, cloud, compare, doctor, html_report, local, pin, run, verify
from taxbench.runner import UsageError
from taxbench.servers.target import TargetError
from taxbench.studies.bench import StudyError

COMMANDS = (doctor, artifacts, local, run, cloud, html_report, compare, verify, pin)
EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    """The whole command line, for help and for tests."""
    top = argparse.ArgumentParser(
        prog="taxbench", description="What compression and encryption cost on an S3 proxy, measured honestly."
    )
    top.add_argument("--version", action="version", version=f"taxbench {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives back the exit code."""
    options = parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except (UsageError, SourceError, BundleError, CloudError) as error:
        print(f"taxbench: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (TargetError, StudyError, AdminError, WorkerDiedError) as error:
        print(f"taxbench: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("taxbench: interrupted; what was measured so far is in the results directory", file=sys.stderr)
        return 130
    return code
