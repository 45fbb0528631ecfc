"""The conformance suite: which tests are its cases, in which mode they run, how many there are of each feature."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.postgres import Postgres
from outside.server import Mode, Value

CATALOGS = ("sqlite", "postgresql")

OF_E2E = {
    "test_acl": "acl",
    "test_addressing": "presigned",
    "test_bad_input": "bad requests",
    "test_buckets": "buckets",
    "test_bypasses": "object lock",
    "test_checksums": "checksums",
    "test_conditional_writes": "conditional writes",
    "test_conditions": "conditional reads",
    "test_copy": "copy",
    "test_cors": "cors",
    "test_delete_objects": "delete objects",
    "test_encoded_keys": "listing",
    "test_lifecycle": "lifecycle",
    "test_listing": "listing",
    "test_metadata": "metadata",
    "test_multipart": "multipart",
    "test_object_lock": "object lock",
    "test_objects": "objects",
    "test_policies": "policies",
    "test_post_object": "post object",
    "test_ranges": "ranges",
    "test_sse": "encryption",
    "test_tagging": "tagging",
    "test_unset": "configurations",
    "test_versions": "versions",
}
"""Files of tests/e2e whose tests are cases of the suite; of tests/conformance all are, by the name of their file."""

DATA_PATH = {"copy", "delete objects", "multipart"}
"""Features that move content in most ways: their cases run in every mode in `make test` too."""


@dataclass(frozen=True)
class SuiteMode:
    """How the shared server stores: compression, encryption, catalog."""

    storage: Mode
    catalog: str

    @property
    def name(self) -> str:
        """`delta-off-sqlite`."""
        return f"{self.storage.compression}-{self.storage.encryption}-{self.catalog}"

    def defaults(self) -> dict[str, dict[str, Value]]:
        """The settings of buckets that no other setting names."""
        return {"defaults": {"compression": self.storage.compression, "encryption": self.storage.encryption}}

    @contextlib.contextmanager
    def opened(self) -> Iterator[dict[str, dict[str, Value]]]:
        """The tables of a server in this mode, its database running."""
        if self.catalog == "sqlite":
            yield self.defaults()
            return
        postgres = Postgres()
        try:
            postgres.make().start()
            yield self.defaults() | {"storage": {"catalog": postgres.url}}
        finally:
            postgres.remove()


SUITE_MODES = tuple(
    SuiteMode(Mode(compression, encryption), catalog)
    for catalog in CATALOGS
    for compression in ("delta", "off")
    for encryption in ("off", "aes256")
)


def suite_mode() -> SuiteMode:
    """The mode of this run: `DELTAWEIR_TEST_MODE`, or the first."""
    wanted = os.environ.get("DELTAWEIR_TEST_MODE", SUITE_MODES[0].name)
    found = [mode for mode in SUITE_MODES if mode.name == wanted]
    assert found, f"{wanted} is none of {', '.join(mode.name for mode in SUITE_MODES)}"
    return found[0]


def feature(path: Path) -> str | None:
    """The feature whose cases a file holds."""
    if path.parent.name == "conformance":
        return path.stem.removeprefix("test_").replace("_", " ")
    return OF_E2E.get(path.stem) if path.parent.name == "e2e" else None


def mark(item: pytest.Item) -> None:
    """Marks a case, and remembers its feature for the count."""
    if (found := feature(item.path)) is None:
        return
    item.add_marker("conformance")
    if found in DATA_PATH:
        item.add_marker("data_path")
    item.user_properties.append(("conformance", found))


class Tally:
    """Counts cases that passed and failed, by feature; printed when the run ends."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes the outcome of a case; one whose fixture fails has failed."""
        found = dict(report.user_properties).get("conformance")
        if found is None or not (report.when == "call" or report.failed):
            return
        outcomes = self.failed if report.failed else self.passed
        if not report.skipped:
            outcomes[str(found)] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One line per feature, and one for all."""
        if not self.passed and not self.failed:
            return
        mode = suite_mode()
        kept = f"{mode.storage.compression} × {mode.storage.encryption} × {mode.catalog}"
        terminalreporter.section(f"conformance cases, {kept}")
        for name in sorted(self.passed | self.failed):
            failed = f", {self.failed[name]} failed" if self.failed[name] else ""
            terminalreporter.write_line(f"conformance {mode.name} {name}: {self.passed[name]} passed{failed}")
        total, failures = self.passed.total(), self.failed.total()
        terminalreporter.write_line(f"conformance {mode.name} in all: {total} passed, {failures} failed")
