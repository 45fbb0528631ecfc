"""The words of a run: modes, phases, roles. Every file, table and chart uses these and no others."""

from __future__ import annotations

from typing import Final, Literal

Mode = str
"""One of `MODES`, or `direct`, or the name of a comparator such as `versitygw`."""

PASSTHROUGH: Final = "passthrough"
COMPRESSION: Final = "compression"
ENCRYPTION: Final = "encryption"
COMPRESSION_ENCRYPTION: Final = "compression_encryption"
DIRECT: Final = "direct"

MODES: Final[tuple[Mode, ...]] = (PASSTHROUGH, COMPRESSION, ENCRYPTION, COMPRESSION_ENCRYPTION)
COMPRESSING_MODES: Final = frozenset({COMPRESSION, COMPRESSION_ENCRYPTION})
ENCRYPTING_MODES: Final = frozenset({ENCRYPTION, COMPRESSION_ENCRYPTION})

DEFAULT_BUCKETS: Final[dict[Mode, str]] = {
    PASSTHROUGH: "bench-passthrough",
    COMPRESSION: "bench-compression",
    ENCRYPTION: "bench-encryption",
    COMPRESSION_ENCRYPTION: "bench-compression-encryption",
    DIRECT: "bench-direct",
}

MODE_TITLES: Final[dict[Mode, str]] = {
    DIRECT: "direct",
    PASSTHROUGH: "passthrough",
    COMPRESSION: "compression",
    ENCRYPTION: "encryption",
    COMPRESSION_ENCRYPTION: "compression + encryption",
}

Role = Literal["base", "delta"]
"""`base`: the first version of its family, with nothing similar stored before it. `delta`: every later one."""

PHASES: Final = (
    "put_base",
    "put_delta",
    "settle",
    "cold_get",
    "warm_get",
    "range_get",
    "head",
    "list",
    "multipart_put",
    "overwrite",
    "mixed",
    "delete",
)
CORE_PHASES: Final = ("put_base", "put_delta", "settle", "cold_get", "warm_get")
"""What every cell must have; a run without them is refused before it starts."""

PHASE_CSV: Final[dict[str, str]] = {"put_base": "put", "put_delta": "put"}
"""Phases that share a CSV file: both PUT phases are rows of `put.csv`, told apart by the column `phase`."""


def csv_name(phase: str) -> str:
    """The stem of the CSV file a phase's samples are written to."""
    return PHASE_CSV.get(phase, phase)


def mode_title(mode: Mode) -> str:
    """How a mode is written in tables and legends."""
    return MODE_TITLES.get(mode, mode)
