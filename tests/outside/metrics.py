"""Prometheus text, read."""

from __future__ import annotations

import re
from dataclasses import dataclass

SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    """One line."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Metrics:
    """One scrape."""

    samples: tuple[Sample, ...]

    @classmethod
    def parse(cls, text: str) -> Metrics:
        """Reads the text format; comments carry nothing a test asks for."""
        found = (SAMPLE.match(line) for line in text.splitlines() if line and not line.startswith("#"))
        return cls(
            tuple(Sample(m["name"], dict(LABEL.findall(m["labels"] or "")), float(m["value"])) for m in found if m)
        )

    def names(self) -> set[str]:
        """The names that have a sample."""
        return {sample.name for sample in self.samples}

    def total(self, name: str, **labels: str) -> float:
        """The sum over every sample of a metric with these labels; 0 when there is none."""
        wanted = labels.items()
        return sum(sample.value for sample in self.samples if sample.name == name and wanted <= sample.labels.items())
