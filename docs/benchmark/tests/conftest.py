"""Fixtures: small artifacts, a misbehaving store as a target, and runs against it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "codec"), str(HERE.parent / "compressed")]
# What starts PostgreSQL, stores and replicas is among the product's own tests.
sys.path.append(str(HERE.parents[2] / "tests"))

from fake_store import Listeners, Store  # noqa: E402

from taxbench import guards, runner  # noqa: E402
from taxbench.admin import AdminClient  # noqa: E402
from taxbench.artifacts import synthetic  # noqa: E402
from taxbench.artifacts.manifest import Manifest  # noqa: E402
from taxbench.bundle import Bundle  # noqa: E402
from taxbench.client.endpoint import Endpoint  # noqa: E402
from taxbench.names import DEFAULT_BUCKETS, MODES, PHASES  # noqa: E402
from taxbench.profiles import PROFILES  # noqa: E402
from taxbench.progress import Reporter  # noqa: E402
from taxbench.records import Ceiling  # noqa: E402
from taxbench.runner import RunPlan  # noqa: E402
from taxbench.servers.deltaweir import mode_buckets  # noqa: E402
from taxbench.servers.target import Target  # noqa: E402
from taxbench.summary import Summary  # noqa: E402

ARTEFACTS = HERE.parents[2] / "tests" / "artefacts" / "benchmark"
"""Git-ignored: what a person may want to look at after the tests."""


class FakeTarget(Target):
    """The fake store in threads of this process."""

    name = "fake"

    def __init__(self, data_dir: Path, faults: set[str], timeout_s: float = 2.0) -> None:
        self.data_dir, self.faults, self.timeout_s = data_dir, faults, timeout_s
        self.features = frozenset({"list", "multipart"})
        self._listeners: Listeners | None = None
        self.store: Store | None = None

    def start(self) -> None:
        settings = {n: {"compression": s.compression, "encryption": s.encryption} for n, s in mode_buckets().items()}
        self.store = Store(self.data_dir, settings, ("FAKEKEY", "fake-secret"), self.faults)
        self._listeners = Listeners(self.store)
        url = f"http://127.0.0.1:{self._listeners.s3_port}"
        self.endpoint = Endpoint(url, "FAKEKEY", "fake-secret", timeout_s=self.timeout_s)
        self.admin = AdminClient(f"http://127.0.0.1:{self._listeners.admin_port}")
        self.metrics_url = f"{self.admin.url}/metrics"

    def stop(self) -> None:
        if self._listeners is not None:
            self._listeners.close()
            self._listeners = None

    def blob_roots(self) -> list[Path]:
        return [self.data_dir / "blobs"]

    def facts(self) -> dict[str, str]:
        return {"server": "fake store", "durable": "no"}


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, Path]:
    """A few hundred kilobytes of every kind that guards ask about."""
    place = tmp_path_factory.mktemp("artifacts")
    names = ["tar", "shifted", "random", "duplicate", "small"]
    manifest = synthetic.build(place, seed=7, scale=0.02, names=names, versions_max=3)
    return manifest, place


Run = Callable[..., tuple[Bundle, Summary]]


@pytest.fixture
def run(tmp_path: Path, artifacts: tuple[Manifest, Path], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs modes against the fake store with faults; every guard sees a quiet machine unless told otherwise."""
    manifest, place = artifacts
    monkeypatch.setattr(runner, "_ceilings", lambda plan, _: [
        Ceiling(concurrency=n, put_mb_s=1e6, get_mb_s=1e6, requests_s=1e6) for n in plan.concurrency
    ])  # fmt: skip
    for name in ("FOREIGN_FRACTION_MAX", "STEAL_FRACTION_MAX", "LOAD_PER_CPU_MAX"):
        monkeypatch.setattr(guards, name, 1e9)

    def execute(
        *faults: str,
        modes: tuple[str, ...] = MODES,
        trials: int = 1,
        concurrency: tuple[int, ...] = (1,),
        phases: tuple[str, ...] = PHASES,
        timeout_s: float = 2.0,
        run_id: str = "unit",
        **changes: object,
    ) -> tuple[Bundle, Summary]:
        plan = RunPlan(
            run_id=run_id, profile="smoke", seed=3, trials=trials, modes=modes, concurrency=concurrency,
            phases=phases, other_phases=PROFILES["smoke"].other_phases, manifest=manifest,
            buckets={m: DEFAULT_BUCKETS[m] for m in modes}, artifacts_dir=place, results=tmp_path / "results",
            scratch=tmp_path / "scratch", command=["taxbench", "test"],
            sample_interval_s=0.05, part_size=48 << 10, mixed_operations=12, **changes,  # type: ignore[arg-type]
        )  # fmt: skip
        made = lambda mode, data_dir: FakeTarget(data_dir, set(faults), timeout_s)  # noqa: E731
        return runner.execute(plan, made, Reporter(quiet=True))

    return execute


def codes(summary: Summary, severity: str) -> set[str]:
    """The codes of a summary's findings of one severity."""
    return {finding.code for finding in summary.findings if finding.severity == severity}
