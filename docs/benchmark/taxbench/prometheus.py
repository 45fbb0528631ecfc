"""Reading Prometheus text: enough to take counters before and after, and to see that they only went up."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LINE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
START_TIME = "process_start_time_seconds"

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Scrape:
    """One scrape: every series by name and sorted labels, and the declared type of every family."""

    series: dict[tuple[str, Labels], float] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)

    def total(self, name: str, **labels: str) -> float:
        """The sum over all series of a name whose labels include the given ones; 0.0 when there are none."""
        wanted = set(labels.items())
        return sum(v for (n, ls), v in self.series.items() if n == name and wanted <= set(ls))

    def has(self, name: str) -> bool:
        return any(n == name for n, _ in self.series)

    def by_label(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Sums of a name's series by the value of one label."""
        wanted = set(labels.items())
        found: dict[str, float] = {}
        for (n, ls), value in self.series.items():
            if n == name and wanted <= set(ls):
                key = dict(ls).get(label, "")
                found[key] = found.get(key, 0.0) + value
        return found

    def is_counter(self, name: str) -> bool:
        """By declared type; histogram and summary parts count as counters, as they only grow."""
        if self.types.get(name) == "counter":
            return True
        for suffix in ("_bucket", "_count", "_sum", "_total"):
            family = name.removesuffix(suffix)
            if family != name and self.types.get(family) in ("counter", "histogram", "summary"):
                return True
        return False


def parse(text: str) -> Scrape:
    """Reads the text format. Lines that are not samples are left out: a scrape is evidence, not input to trust."""
    scrape = Scrape()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            parts = line.split()
            if len(parts) == 4:
                scrape.types[parts[2]] = parts[3]
            continue
        match = LINE.match(line)
        if not match or line.startswith("#"):
            continue
        try:
            value = float(match.group(3))
        except ValueError:
            continue
        labels = tuple(sorted((k, v) for k, v in LABEL.findall(match.group(2) or "")))
        scrape.series[(match.group(1), labels)] = value
    return scrape


def went_backwards(before: Scrape, after: Scrape) -> list[str]:
    """Counters that are lower, or gone, in the later scrape: `name{labels}: before -> after`."""
    wrong = []
    for (name, labels), value in before.series.items():
        if not before.is_counter(name):
            continue
        later = after.series.get((name, labels))
        if later is None and value > 0:
            wrong.append(f"{name}{dict(labels) or ''}: {value:g} -> gone")
        elif later is not None and later < value:
            wrong.append(f"{name}{dict(labels) or ''}: {value:g} -> {later:g}")
    return wrong


def restarted(before: Scrape, after: Scrape) -> bool:
    """Whether the process that answered is another one than before."""
    first, second = before.total(START_TIME), after.total(START_TIME)
    return bool(first and second and first != second)
