"""From what clients did to operations on single registers.

Linearizability is local (Herlihy and Wing, 1990): a history over many keys is linearizable if and only if it is for
each key alone. So each key gets the requests that name it, and each page of a LIST as one read of every key it speaks
of: the keys of the prefix behind where the page begins, up to where it ends, shown or not. A key that is shown held
that tag at some moment between the page's request and its answer, one that is not shown held nothing then.

That is sound: a strongly consistent LIST passes, whether a page is one snapshot or is read row by row. It does not ask
that all keys of a page be of one moment, which S3 does not promise.

The keys are those of the requests and of the pages. A key that a page shows and nobody wrote has no write that could
explain it, and fails.
"""

from __future__ import annotations

from collections.abc import Sequence

from campaigns.linearizability.history import Event, Kind
from campaigns.linearizability.register import ABSENT, ANYTHING, Needs, Operation, Value, holds, holds_none_of


class Values:
    """Numbers for the tags of one key."""

    def __init__(self) -> None:
        self._numbers: dict[str, Value] = {}

    def of(self, etag: str) -> Value:
        """A tag's number, 1 or more."""
        return self._numbers.setdefault(etag, len(self._numbers) + 1)


def registers(events: Sequence[Event]) -> dict[str, list[Operation]]:
    """Each key's operations. Events that say nothing about a register (refused for another reason than its state, a
    read without an answer) are left out."""
    keys = {event.key for event in events if event.kind != Kind.LIST}
    keys |= {key for event in events for key in event.listed}
    operations: dict[str, list[Operation]] = {key: [] for key in sorted(keys)}
    values: dict[str, Values] = {key: Values() for key in keys}
    for event in events:
        if event.kind == Kind.LIST:
            if event.status == 200:
                for key in operations:
                    if covers(event, key):
                        tag = event.listed.get(key)
                        needs = holds(ABSENT if tag is None else values[key].of(tag))
                        operations[key].append(_operation(event, needs, None))
        elif (found := _of_one_key(event, values[event.key])) is not None:
            operations[event.key].append(found)
    return operations


def covers(page: Event, key: str) -> bool:
    """Whether a page speaks of a key."""
    return key.startswith(page.key) and key > page.after and (page.until is None or key <= page.until)


def _operation(event: Event, needs: Needs, sets: Value | None) -> Operation:
    name = f"client {event.client}: {event.kind} {event.key} -> {event.status} {event.etag or ''}"
    return Operation(event.start_ns, event.end_ns, needs, sets, not event.unknown, name)


def _of_one_key(event: Event, values: Values) -> Operation | None:
    if event.is_write:
        return _write(event, values)
    if event.unknown:
        return None
    seen: Needs | None = None
    match event.status:
        case 200:
            assert event.etag is not None, event
            seen = holds(values.of(event.etag))
        case 304:
            assert event.if_none_match is not None, event
            seen = holds(values.of(event.if_none_match))
        case 404:
            seen = holds(ABSENT)
        case 412:
            assert event.if_match is not None, event
            seen = holds_none_of(ABSENT, values.of(event.if_match))
    return None if seen is None else _operation(event, seen, None)


def _write(event: Event, values: Values) -> Operation | None:
    """A write that was refused is a read: its refusal says what the key did not hold. 409 says nothing but that it did
    not happen, so what it would have written must never be seen."""
    sets = ABSENT
    if event.kind == Kind.PUT:
        assert event.etag is not None, event
        sets = values.of(event.etag)
    needs = ANYTHING
    if event.if_none_match is not None:
        needs = holds(ABSENT)
    elif event.if_match is not None:
        needs = holds(values.of(event.if_match))
    if event.unknown or 200 <= event.status < 300:
        return _operation(event, needs, sets)
    if event.status == 412 and event.if_none_match is not None:
        return _operation(event, holds_none_of(ABSENT), None)
    if event.status == 412 and event.if_match is not None:
        return _operation(event, holds_none_of(ABSENT, values.of(event.if_match)), None)
    if event.status == 404 and event.if_match is not None:
        return _operation(event, holds(ABSENT), None)
    return None
