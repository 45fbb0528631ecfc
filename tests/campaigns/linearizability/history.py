"""What clients did: one event per request, written down as it ended, kept as lines of JSON.

Times are this machine's monotonic clock in nanoseconds. All clients run in one process, so an event that ended before
another began did happen before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path


class Kind(StrEnum):
    """The request."""

    PUT = "put"
    DELETE = "delete"
    GET = "get"
    HEAD = "head"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Event:
    """One request and what came of it."""

    client: int
    kind: Kind
    key: str
    """The key; of a LIST the prefix."""
    start_ns: int
    end_ns: int
    """When the answer was complete, or when the client stopped waiting for one."""
    status: int
    """HTTP status; 0 when no complete answer came. From 500 on, and at 0, nobody knows whether a write happened."""
    etag: str | None = None
    """What a PUT wrote, or what a GET or HEAD saw."""
    if_match: str | None = None
    if_none_match: str | None = None
    """A tag, or `*`."""
    listed: dict[str, str] = field(default_factory=dict)
    """What a page of a LIST showed: tags by key."""
    after: str = ""
    """The page shows keys behind this one …"""
    until: str | None = None
    """… up to and including this one; `None`: to the end of the prefix."""

    @property
    def unknown(self) -> bool:
        """Whether it may have happened or not, at any time since it began."""
        return self.status == 0 or self.status >= 500

    @property
    def is_write(self) -> bool:
        """Whether it may change what the key holds."""
        return self.kind in (Kind.PUT, Kind.DELETE)


def save(events: Iterable[Event], path: Path) -> None:
    """One event a line, in the order they ended."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for event in events:
            said = {name: value for name, value in asdict(event).items() if value not in (None, {}, "")}
            file.write(json.dumps(said) + "\n")


def load(path: Path) -> list[Event]:
    """A history that [`save`] wrote."""
    events: list[Event] = []
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        events.append(Event(**(fields | {"kind": Kind(fields["kind"])})))
    return events
