"""The checker accepts what a register can have done and rejects the rest; a slower search agrees with it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from campaigns.linearizability import checker
from campaigns.linearizability.checker import UndecidedError, check
from campaigns.linearizability.history import Event, Kind, load, save
from campaigns.linearizability.projection import registers
from campaigns.linearizability.register import ABSENT, ANYTHING, Needs, Operation, holds, holds_none_of


def put(start: int, end: int, value: int, needs: Needs = ANYTHING, certain: bool = True) -> Operation:
    """A PUT."""
    return Operation(start, end, needs, value, certain)


def delete(start: int, end: int, certain: bool = True) -> Operation:
    """A DELETE."""
    return Operation(start, end, ANYTHING, ABSENT, certain)


def get(start: int, end: int, value: int) -> Operation:
    """A GET and what it saw."""
    return Operation(start, end, holds(value))


GOOD: dict[str, list[Operation]] = {
    "nothing": [],
    "one after another": [get(0, 1, ABSENT), put(2, 3, 1), get(4, 5, 1), delete(6, 7), get(8, 9, ABSENT)],
    "a read beside a write sees old": [put(0, 10, 1), get(2, 3, ABSENT)],
    "a read beside a write sees new": [put(0, 10, 1), get(2, 3, 1)],
    "two writes, either last": [put(0, 10, 1), put(0, 10, 2), get(11, 12, 1), get(13, 14, 1)],
    "ends touch": [put(0, 5, 1), get(5, 6, ABSENT)],
    "a cut write shows late": [put(0, 1, 1, certain=False), get(50, 51, ABSENT), get(60, 61, 1)],
    "a cut write never shows": [put(0, 1, 1), put(2, 3, 2, certain=False), get(4, 5, 1), get(100, 101, 1)],
    "a cut write comes between two others": [
        put(0, 1, 1),
        put(2, 3, 2, certain=False),
        put(4, 5, 3),
        get(6, 7, 3),
        get(8, 9, 2),
    ],
    "a cut delete explains absence": [put(0, 1, 1), delete(2, 3, certain=False), get(4, 5, 1), get(6, 7, ABSENT)],
    "one winner of two": [put(0, 5, 1, holds(ABSENT)), Operation(0, 5, holds_none_of(ABSENT)), get(6, 7, 1)],
    "the refusal is explained by a cut write": [
        put(0, 1, 1, certain=False),
        Operation(2, 3, holds_none_of(ABSENT)),
        get(4, 5, 1),
    ],
    "a cut delete, then a cut creation": [
        put(0, 1, 1),
        delete(2, 3, certain=False),
        put(4, 5, 2, holds(ABSENT), certain=False),
        get(6, 7, 2),
    ],
    "compare and swap in turn": [put(0, 1, 1), put(2, 3, 2, holds(1)), put(4, 5, 3, holds(2)), get(6, 7, 3)],
}

BAD: dict[str, list[Operation]] = {
    "lost update": [put(0, 1, 1), put(2, 3, 2), get(4, 5, 1)],
    "lost write": [put(0, 1, 1), get(2, 3, ABSENT)],
    "stale read": [put(0, 1, 1), put(2, 3, 2), get(4, 5, 2), get(6, 7, 1)],
    "a read goes back behind another read": [put(0, 1, 1), put(2, 20, 2), get(3, 4, 2), get(5, 6, 1)],
    "resurrected delete": [put(0, 1, 1), delete(2, 3), get(4, 5, ABSENT), get(6, 7, 1)],
    "two winners": [put(0, 5, 1, holds(ABSENT)), put(0, 5, 2, holds(ABSENT))],
    "two swaps of one value": [put(0, 1, 1), put(2, 9, 2, holds(1)), put(2, 9, 3, holds(1))],
    "no winner": [Operation(0, 5, holds_none_of(ABSENT)), Operation(0, 5, holds_none_of(ABSENT))],
    "a value from nowhere": [put(0, 1, 1), get(2, 3, 7)],
    "a cut write shows before it began": [get(0, 1, 1), put(2, 3, 1, certain=False)],
    "a cut write shows twice": [
        put(0, 1, 1),
        put(2, 3, 2, certain=False),
        get(4, 5, 2),
        put(6, 7, 3),
        get(8, 9, 2),
    ],
    "a refused write shows": [put(0, 1, 1), Operation(2, 3, holds_none_of(ABSENT, 9)), get(4, 5, 2)],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_history_a_register_can_have_made_is_accepted(name: str) -> None:
    assert check(GOOD[name]).valid


@pytest.mark.parametrize("name", BAD)
def test_a_history_no_register_makes_is_rejected(name: str) -> None:
    verdict = check(BAD[name])
    assert not verdict.valid
    assert verdict.explained < len(BAD[name])
    assert verdict.stuck_at


def by_trying_everything(operations: Sequence[Operation], value: int = ABSENT) -> bool:
    """The definition, without a thought for time: any operation that no other one precedes may be next, unknown ones
    whenever they have begun, or never."""
    certain = [one for one in operations if one.certain]
    if not certain:
        return True
    for index, one in enumerate(operations):
        precedes = any(other.end < one.start for other in certain if other is not one)
        if precedes or not one.needs.allows(value):
            continue
        rest = [*operations[:index], *operations[index + 1 :]]
        if by_trying_everything(rest, value if one.sets is None else one.sets):
            return True
    return False


def random_history(rng: random.Random) -> list[Operation]:
    """A few operations that crowd together, so that about half of the histories can be explained."""
    operations: list[Operation] = []
    for number in range(rng.randint(2, 6)):
        start = rng.randint(0, 9)
        end = start + rng.randint(0, 4)
        seen = rng.randint(0, 3)
        needs = rng.choice(
            [ANYTHING, holds(seen), holds(ABSENT), holds_none_of(ABSENT), holds_none_of(ABSENT, seen), holds(seen)]
        )
        sets = rng.choice([None, None, ABSENT, number % 4 + 1])
        certain = sets is None or rng.random() < 0.6
        operations.append(Operation(start, end, needs, sets, certain))
    return operations


@pytest.mark.parametrize("seed", range(8))
def test_a_search_that_tries_everything_agrees(seed: int) -> None:
    rng = random.Random(seed)
    valid = 0
    for _ in range(500):
        operations = random_history(rng)
        expected = by_trying_everything(operations)
        assert check(operations).valid == expected, operations
        valid += expected
    assert 50 < valid < 450, f"{valid} of 500 are valid: the histories prove little"


def simulated(rng: random.Random, count: int, clients: int = 20) -> list[Operation]:
    """A history that a real register made: each operation takes effect at a moment within its interval, and one in
    twenty writes is not answered and may take effect much later, or never."""
    moments: list[tuple[int, int, int, str]] = []
    free_at = [rng.randint(0, 50) for _ in range(clients)]
    for _ in range(count):
        client = min(range(clients), key=lambda one: free_at[one])
        start = free_at[client] + rng.randint(1, 20)
        end = start + rng.randint(1, 60)
        free_at[client] = end
        kind = rng.choices(["put", "first", "swap", "delete", "get"], [3, 2, 2, 1, 8])[0]
        moments.append((rng.randint(start, end), start, end, kind))
    held, operations = ABSENT, list[Operation]()
    late: list[tuple[int, int]] = []
    for number, (moment, start, end, kind) in enumerate(sorted(moments), 1):
        for at, value in [one for one in late if one[0] <= moment]:
            held = value
            late.remove((at, value))
        cut = kind in ("put", "delete") and rng.random() < 0.05
        if cut:
            value = number if kind == "put" else ABSENT
            operations.append(Operation(start, end, ANYTHING, value, certain=False))
            if rng.random() < 0.7:
                late.append((moment + rng.choice([0, 30, 500]), value))
        elif kind == "put":
            held = number
            operations.append(put(start, end, number))
        elif kind == "delete":
            held = ABSENT
            operations.append(delete(start, end))
        elif kind == "first" and held != ABSENT:
            operations.append(Operation(start, end, holds_none_of(ABSENT)))
        elif kind == "first":
            held = number
            operations.append(put(start, end, number, holds(ABSENT)))
        elif kind == "swap" and held != ABSENT:
            operations.append(put(start, end, number, holds(held)))
            held = number
        else:
            operations.append(get(start, end, held))
    return operations


@pytest.mark.parametrize("seed", range(6))
def test_what_a_register_did_for_twenty_clients_is_accepted_and_one_changed_answer_is_not(seed: int) -> None:
    rng = random.Random(seed)
    operations = simulated(rng, 3000)
    verdict = check(operations)
    assert verdict.valid
    assert verdict.configurations < 60_000, "the search wanders"
    last = max(one.end for one in operations)
    early = next(one for one in operations if one.certain and one.sets not in (None, ABSENT))
    assert early.sets is not None
    assert not check([*operations, get(last + 1, last + 2, early.sets)]).valid


def test_a_search_without_an_end_is_given_up_and_not_called_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "CONFIGURATIONS_MAX", 3)
    crowd = [put(0, 100, number + 1) for number in range(12)]
    reads = [get(101 + number, 101 + number, number % 12 + 1) for number in range(12)]
    with pytest.raises(UndecidedError):
        check([*crowd, *reads])


PAGE = Event(1, Kind.LIST, "p/", 20, 30, 200, listed={"p/b": "B"}, after="p/a", until="p/c")


def test_a_page_of_a_list_reads_every_key_it_speaks_of_and_no_other() -> None:
    events = [Event(0, Kind.PUT, key, 0, 1, 200, etag=key[-1].upper()) for key in ("p/a", "p/b", "p/c", "p/d", "q/b")]
    operations = registers([*events, PAGE])
    reads = {key: [one.needs for one in found if one.sets is None] for key, found in operations.items()}
    assert reads == {"p/a": [], "p/b": [holds(1)], "p/c": [holds(ABSENT)], "p/d": [], "q/b": []}
    verdicts = {key: check(found).valid for key, found in operations.items()}
    assert verdicts == {"p/a": True, "p/b": True, "p/c": False, "p/d": True, "q/b": True}


def test_a_list_that_shows_a_key_nobody_wrote_is_rejected() -> None:
    operations = registers([PAGE])
    assert list(operations) == ["p/b"]
    assert not check(operations["p/b"]).valid


@pytest.mark.parametrize(
    ("event", "valid"),
    [
        (Event(0, Kind.GET, "k", 2, 3, 200, etag="A"), True),
        (Event(0, Kind.HEAD, "k", 2, 3, 404), False),
        (Event(0, Kind.GET, "k", 2, 3, 304, if_none_match="A"), True),
        (Event(0, Kind.GET, "k", 2, 3, 304, if_none_match="B"), False),
        (Event(0, Kind.GET, "k", 2, 3, 412, if_match="A"), False),
        (Event(0, Kind.GET, "k", 2, 3, 412, if_match="B"), True),
        (Event(0, Kind.GET, "k", 2, 3, 503), True),
        (Event(0, Kind.PUT, "k", 2, 3, 412, etag="C", if_none_match="*"), True),
        (Event(0, Kind.PUT, "k", 2, 3, 200, etag="C", if_none_match="*"), False),
        (Event(0, Kind.PUT, "k", 2, 3, 200, etag="C", if_match="A"), True),
        (Event(0, Kind.PUT, "k", 2, 3, 200, etag="C", if_match="B"), False),
        (Event(0, Kind.PUT, "k", 2, 3, 412, etag="C", if_match="A"), False),
        (Event(0, Kind.PUT, "k", 2, 3, 404, etag="C", if_match="A"), False),
        (Event(0, Kind.PUT, "k", 2, 3, 409, etag="C", if_match="A"), True),
        (Event(0, Kind.DELETE, "k", 2, 3, 204, if_match="B"), False),
    ],
)
def test_each_answer_says_what_the_key_held(event: Event, valid: bool) -> None:
    before = Event(0, Kind.PUT, "k", 0, 1, 200, etag="A")
    assert check(registers([before, event])["k"]).valid == valid


def test_a_refused_write_is_never_seen() -> None:
    refused = Event(0, Kind.PUT, "k", 0, 1, 409, etag="A", if_none_match="*")
    seen = Event(1, Kind.GET, "k", 2, 3, 200, etag="A")
    assert not check(registers([refused, seen])["k"]).valid


def test_a_history_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    events = [PAGE, Event(3, Kind.PUT, "k", 1, 2, 0, etag="E", if_none_match="*"), Event(0, Kind.GET, "k", 5, 9, 404)]
    save(events, tmp_path / "history.jsonl")
    assert load(tmp_path / "history.jsonl") == events
