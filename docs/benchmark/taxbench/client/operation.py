"""What a worker is asked to do (`Operation`) and what it saw (`Sample`)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal

from taxbench.names import Role

Kind = Literal["put", "get", "range", "head", "list", "multipart", "delete"]

Verdict = Literal["ok", "mismatch", "unchecked"]


@dataclass(frozen=True, slots=True)
class Expected:
    """What LIST must say about one key: the logical size, and the ETag when it can be known beforehand."""

    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One request, or one multipart upload, with everything that can be computed before the clock starts.

    `content_path` is the local file that holds the object's bytes: the body of a PUT, the truth for a GET.
    `offset` and `length` select the range of a `range` operation and are ignored otherwise.
    `pace_bytes_per_s` limits how fast an upload is sent; 0 sends as fast as the socket takes it.
    """

    kind: Kind
    phase: str
    bucket: str
    key: str
    artifact: str = ""
    family: str = ""
    role: Role = "base"
    version_order: int = 0
    content_path: str = ""
    size: int = 0
    offset: int = 0
    length: int = 0
    sha256: str = ""
    md5: str = ""
    part_size: int = 0
    pace_bytes_per_s: float = 0.0
    expected_listing: dict[str, Expected] = field(default_factory=dict)

    @property
    def moved_bytes(self) -> int:
        """Payload bytes this operation moves when it succeeds."""
        if self.kind == "range":
            return self.length
        return self.size if self.kind in ("put", "get", "multipart") else 0


@dataclass(slots=True)
class Sample:
    """One row of a phase's CSV: a finished operation as the client saw it.

    Times are seconds. `start_s` is on the monotonic clock of the machine, so samples of different workers share an
    axis. `total_s` runs from before the connection (when one had to be made) to the last byte, and includes retries.
    `max_gap_s` is the longest silence between two reads of one body. `payload_bytes` counts body bytes only.
    """

    trial: int = 0
    mode: str = ""
    concurrency: int = 0
    phase: str = ""
    kind: str = ""
    worker: int = 0
    key: str = ""
    artifact: str = ""
    family: str = ""
    role: str = ""
    version_order: int = 0
    logical_bytes: int = 0
    payload_bytes: int = 0
    start_s: float = 0.0
    connect_s: float = 0.0
    ttfb_s: float = 0.0
    total_s: float = 0.0
    max_gap_s: float = 0.0
    status: int = 0
    retries: int = 0
    verdict: str = "unchecked"
    error: str = ""
    etag: str = ""
    form: str = ""
    stored_bytes: int = -1
    reason: str = ""

    @property
    def failed(self) -> bool:
        """Whether the operation did not do what was asked: no answer, a wrong status, or a short body."""
        return bool(self.error)

    @classmethod
    def columns(cls) -> list[str]:
        """The CSV header, in order."""
        return [f.name for f in fields(cls)]

    def to_row(self) -> list[str]:
        """The sample as CSV cells, floats with nanosecond precision."""
        row = []
        for name in self.columns():
            value = getattr(self, name)
            row.append(f"{value:.9f}" if isinstance(value, float) else str(value))
        return row

    @classmethod
    def from_row(cls, row: dict[str, str]) -> Sample:
        """The sample a CSV row stands for.

        # Errors
        `ValueError` or `KeyError` when a cell is missing or of the wrong type.
        """
        values: dict[str, object] = {}
        for f in fields(cls):
            text = row[f.name]
            values[f.name] = int(text) if f.type == "int" else float(text) if f.type == "float" else text
        return cls(**values)  # type: ignore[arg-type]
