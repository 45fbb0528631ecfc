"""Profiles: how much of everything a run does. A profile is a starting point; every number has a flag."""

from __future__ import annotations

from dataclasses import dataclass

from taxbench.names import CORE_PHASES, PHASES


@dataclass(frozen=True, slots=True)
class Profile:
    """Sizes of a run. `first_phases` run at the first concurrency of the list, `core` at the others."""

    name: str
    trials: int
    concurrency: tuple[int, ...]
    synthetic_scale: float
    first_phases: tuple[str, ...]
    mixed_operations: int
    small_objects: int
    study_bytes: int
    codec_bytes: int
    codec_repeats: int
    codec_budget_s: float
    shaped_mbit_s: tuple[int, ...]
    shaped_seconds: float
    shaped_bytes_max: int
    level_budget_s: float
    rss_sizes: tuple[int, ...]

    @property
    def other_phases(self) -> tuple[str, ...]:
        """Every cell deletes what it stored, also where only the core is measured."""
        return (*CORE_PHASES, "delete")


MIB = 1 << 20
SHAPED_MBIT_S = (10, 100, 1000, 10000)

PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            name="smoke", trials=1, concurrency=(1,), synthetic_scale=0.1, first_phases=PHASES, mixed_operations=20,
            small_objects=100, study_bytes=1 * MIB, codec_bytes=MIB // 2, codec_repeats=1, codec_budget_s=1.0,
            shaped_mbit_s=(100, 1000), shaped_seconds=0.1,
            shaped_bytes_max=4 * MIB, level_budget_s=5.0, rss_sizes=(1 * MIB, 4 * MIB),
        ),
        Profile(
            name="quick", trials=3, concurrency=(1, 4), synthetic_scale=1.0, first_phases=PHASES, mixed_operations=80,
            small_objects=3400, study_bytes=8 * MIB, codec_bytes=6 * MIB, codec_repeats=5, codec_budget_s=6.0,
            shaped_mbit_s=SHAPED_MBIT_S, shaped_seconds=1.0,
            shaped_bytes_max=12 * MIB, level_budget_s=15.0, rss_sizes=(1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB),
        ),
        Profile(
            name="standard", trials=5, concurrency=(1, 4, 16), synthetic_scale=4.0, first_phases=PHASES,
            mixed_operations=400, small_objects=3400, study_bytes=64 * MIB, codec_bytes=32 * MIB, codec_repeats=5,
            codec_budget_s=120.0, shaped_mbit_s=SHAPED_MBIT_S, shaped_seconds=5.0,
            shaped_bytes_max=256 * MIB, level_budget_s=120.0,
            rss_sizes=(1 * MIB, 8 * MIB, 64 * MIB, 512 * MIB),
        ),
        Profile(
            name="publish", trials=7, concurrency=(1, 4, 16, 64), synthetic_scale=16.0, first_phases=PHASES,
            mixed_operations=2000, small_objects=3400, study_bytes=256 * MIB, codec_bytes=64 * MIB, codec_repeats=5,
            codec_budget_s=600.0, shaped_mbit_s=SHAPED_MBIT_S, shaped_seconds=20.0,
            shaped_bytes_max=1024 * MIB, level_budget_s=600.0,
            rss_sizes=(1 * MIB, 16 * MIB, 256 * MIB, 2048 * MIB),
        ),
    )
}  # fmt: skip
