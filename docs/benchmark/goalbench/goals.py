"""The goals: what is measured in each line, how good it is meant to be, and when that counts as reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from taxbench.records import MachineFacts, Noise, Strict
from taxbench.statistics import Interval

SCHEMA_VERSION = 1

Verdict = Literal["met", "not met", "unsure", "not measured"]


@dataclass(frozen=True, slots=True)
class Check:
    """One number of a goal, and its bound."""

    name: str
    unit: str
    limit: float
    at_least: bool = False

    @property
    def goal(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}{f' {self.unit}' if self.unit else ''}"


@dataclass(frozen=True, slots=True)
class Goal:
    """One line of the table."""

    number: int
    work: str
    checks: tuple[Check, ...]

    def check(self, name: str) -> Check:
        """# Errors
        `KeyError` when the goal has no number of this name.
        """
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"goal {self.number} has no {name!r}")


class Found(Strict):
    """What one run measured of one check, or why it did not."""

    line: int
    name: str
    interval: Interval | None = None
    why_not: str = ""


class Size(Strict):
    """The store at one number of objects."""

    objects: int
    figures: dict[str, Interval] = Field(description="by name and unit, such as `PUT ms`")


class Report(Strict):
    """`results/goals/results.json`."""

    schema_version: int = SCHEMA_VERSION
    commit: str
    machine: MachineFacts
    noise: Noise
    rounds: int
    found: list[Found]
    growth: list[Size]


GOALS: tuple[Goal, ...] = (
    Goal(
        1,
        "server CPU of a 4 KiB request, 8 clients",
        (
            Check("PUT", "ms", 0.25),
            Check("GET", "ms", 0.10),
            Check("HEAD", "ms", 0.09),
            Check("DELETE", "ms", 0.13),
            # The goals as shares of what versitygw took on the machine for which they were set.
            Check("PUT / versitygw", "×", 1.25),
            Check("GET / versitygw", "×", 0.91),
            Check("HEAD / versitygw", "×", 1.0),
            Check("DELETE / versitygw", "×", 1.0),
        ),
    ),
    Goal(
        2,
        "server CPU by the gigabyte, parts of 8 MiB, 8 clients",
        (
            Check("PUT", "s/GB", 2.0),
            Check("PUT delta", "s/GB", 4.5),
            Check("GET cold", "s/GB", 0.40),
            Check("GET delta", "s/GB", 1.0),
            Check("PUT / versitygw", "×", 0.82),
            Check("GET cold / versitygw", "×", 1.18),
        ),
    ),
    Goal(
        3,
        "GET of a delta against passthrough, one client",
        (Check("cold", "×", 0.8, at_least=True), Check("warm", "×", 0.9, at_least=True)),
    ),
    Goal(4, "first byte of a delta, 4 clients", (Check("cold", "ms", 30.0),)),
    Goal(
        5,
        "PUT of a delta against passthrough, one client",
        (
            Check("tar", "×", 0.75, at_least=True),
            Check("sql", "×", 0.75, at_least=True),
            Check("disk", "×", 0.75, at_least=True),
            Check("shifted", "×", 0.75, at_least=True),
            Check("random", "×", 0.97, at_least=True),
        ),
    ),
    Goal(
        6,
        "an idle server with many objects",
        (Check("CPU", "s in 10 s", 0.05), Check("RSS", "× its bound", 1.0)),
    ),
    Goal(7, "six versions uploaded side by side, stored against in turn", (Check("stored", "×", 1.03),)),
    Goal(8, "1,000 versions that drift by 40 small changes each", (Check("stored", "× logical", 0.025),)),
    Goal(
        9,
        "balanced codec against zstd -1 --patch-from, native code",
        (Check("speed", "×", 1.0, at_least=True), Check("ratio", "×", 5.1, at_least=True)),
    ),
    Goal(10, "ratio of max against bsdiff, native code, worst family", (Check("ratio", "×", 1.2, at_least=True),)),
    Goal(11, "stored, five releases of native packages as tars", (Check("stored", "× logical", 0.15),)),
    Goal(
        12,
        "small PUTs of eight replicas against 1, 5 ms to the database",
        (Check("speed", "×", 5.0, at_least=True), Check("round trips", "a group", 3.0)),
    ),
    Goal(13, "stored at effort fast against balanced", (Check("stored", "×", 1.5),)),
    Goal(
        14,
        "successive files of 2 GiB against 180 MB of the same family",
        (
            *(
                Check(f"{family}, {what}", "×", 0.9, at_least=True)
                for family in ("disk", "dump")
                for what in ("ratio", "PUT speed", "GET speed")
            ),
            Check("RSS", "× its bound", 1.0),
        ),
    ),
)


def line(number: int) -> Goal:
    """# Errors
    `KeyError` when there is no such line.
    """
    for goal in GOALS:
        if goal.number == number:
            return goal
    raise KeyError(f"there is no line {number}")


def verdict(check: Check, found: Found | None) -> Verdict:
    """Met or not when the whole interval is on one side of the bound; without an interval the one value decides."""
    if found is None or found.interval is None:
        return "not measured"
    interval = found.interval
    low = interval.median if interval.low is None else interval.low
    high = interval.median if interval.high is None else interval.high
    met = (low >= check.limit, high >= check.limit) if check.at_least else (low <= check.limit, high <= check.limit)
    if all(met):
        return "met"
    return "unsure" if any(met) else "not met"


def of_line(found: Sequence[Found], goal: Goal) -> list[tuple[Check, Found | None]]:
    """Every check of a goal with what was found of it."""
    by_name = {one.name: one for one in found if one.line == goal.number}
    return [(check, by_name.get(check.name)) for check in goal.checks]
