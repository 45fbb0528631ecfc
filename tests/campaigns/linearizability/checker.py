"""Is there an order of the operations that one register could have carried out, and that their times allow?

The search is Wing and Gong's with Lowe's memory of configurations, as in Porcupine: take one of the operations that no
other one precedes, see whether the register allows it, go on with the rest, go back when stuck. A configuration (which
operations are done, what the register holds) is visited once. Five facts keep it small; `test_checker.py` holds the
whole against a search that uses none of them.

1. A read that the register allows now can be taken now: it changes nothing, and waiting can only make it impossible.
2. An operation whose outcome is unknown has no end, so it can always be put off until the moment it is needed: right
   before an operation that the register does not allow otherwise, or before another unknown one that needs its value.
3. Values that no operation asks about are all the same value.
4. Unknown operations with the same needs and the same value differ only in when they began: the earliest goes first.
5. A value that only one operation sets does not come back: it cannot be left while an operation that needs it waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from campaigns.linearizability.register import ABSENT, Needs, Operation, Value

CONFIGURATIONS_MAX = 2_000_000
"""More are not looked at: a history that takes more is one no honest run makes, and is reported as undecided."""
UNASKED: Value = -1
"""Stands for every value that no operation asks about."""


class UndecidedError(Exception):
    """The search was given up."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an order was found."""

    valid: bool
    configurations: int
    """How many were looked at."""
    explained: int = 0
    """When not valid: the most operations that could be put in order."""
    stuck_at: tuple[Operation, ...] = ()
    """When not valid: what could come next there, none of which the register allowed."""
    held: Value = ABSENT
    """When not valid: what the register held there."""


@dataclass(slots=True)
class _Class:
    """Unknown operations that differ only in when they began."""

    needs: Needs
    sets: Value
    starts: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Configuration:
    first: int
    """Every certain operation before this index is done."""
    done: int
    """Bit n: certain operation `first + n` is done. Bit 0 is never set."""
    used: tuple[int, ...]
    """How many of each class of unknown operations took effect."""
    value: Value


class _Search:
    def __init__(self, operations: Iterable[Operation]) -> None:
        operations = list(operations)
        asked = {ABSENT}.union(*(operation.needs.mentioned() for operation in operations))
        self.certain = sorted((one for one in operations if one.certain), key=lambda one: (one.start, one.end))
        self.sets = [self._canonical(one.sets, asked) for one in self.certain]
        classes: dict[tuple[Needs, Value], _Class] = {}
        for one in operations:
            sets = self._canonical(one.sets, asked)
            if not one.certain and sets is not None:  # a read that nobody got an answer to says nothing
                classes.setdefault((one.needs, sets), _Class(one.needs, sets)).starts.append(one.start)
        self.classes = list(classes.values())
        for one_class in self.classes:
            one_class.starts.sort()
        setters = Counter(value for value in self.sets if value is not None)
        setters.update(value for one in self.classes for value in [one.sets] * len(one.starts))
        set_once = (value for value, count in setters.items() if count == 1 and value != ABSENT)
        self.waiting: dict[Value, int] = dict.fromkeys(set_once, 0)
        """Bit n of a value's entry: certain operation n needs it. Only values that do not come back."""
        for index, one in enumerate(self.certain):
            if one.needs.exactly in self.waiting:
                self.waiting[one.needs.exactly] |= 1 << index

    @staticmethod
    def _canonical(value: Value | None, asked: set[Value]) -> Value | None:
        return value if value is None or value in asked else UNASKED

    def run(self) -> Verdict:
        """Depth first, without recursion: histories are longer than Python's stack."""
        begin = _Configuration(0, 0, (0,) * len(self.classes), ABSENT)
        seen = {begin}
        open_ones = [begin]
        furthest, most = begin, -1
        while open_ones:
            here = open_ones.pop()
            if here.first == len(self.certain):
                return Verdict(True, len(seen))
            explained = here.first + here.done.bit_count()
            if explained > most:
                furthest, most = here, explained
            for following in self._following(here):
                if following not in seen:
                    seen.add(following)
                    open_ones.append(following)
            if len(seen) > CONFIGURATIONS_MAX:
                raise UndecidedError(f"{len(self.certain)} operations: more than {CONFIGURATIONS_MAX} configurations")
        next_ones, _ = self._candidates(furthest)
        stuck = tuple(self.certain[index] for index in next_ones)
        return Verdict(False, len(seen), most, stuck, furthest.value)

    def _candidates(self, here: _Configuration) -> tuple[list[int], int]:
        """Certain operations that may come next, and the time before which an operation must have begun to do so."""
        before = self.certain[here.first].end
        found: list[int] = []
        index, done = here.first, here.done
        while index < len(self.certain) and self.certain[index].start <= before:
            if not done & 1:
                found.append(index)
                before = min(before, self.certain[index].end)
            index += 1
            done >>= 1
        return [index for index in found if self.certain[index].start <= before], before

    def _following(self, here: _Configuration) -> list[_Configuration]:
        """What may come next, the most promising last."""
        candidates, before = self._candidates(here)
        for index in candidates:
            if self.sets[index] is None and self.certain[index].needs.allows(here.value):
                return self._after(here, index, here.used, here.value)
        reachable: list[tuple[tuple[int, ...], Value]] | None = None
        following: list[_Configuration] = []
        for index in sorted(candidates, key=lambda index: -self.certain[index].end):
            needs = self.certain[index].needs
            if needs.allows(here.value):
                following += self._after(here, index, here.used, here.value)
                continue
            if reachable is None:
                reachable = self._reachable(here, before)
            for used, value in reachable:
                if needs.allows(value):
                    following += self._after(here, index, used, value)
        return following

    def _after(self, here: _Configuration, index: int, used: tuple[int, ...], value: Value) -> list[_Configuration]:
        """A certain operation carried out, if that leaves no other one behind."""
        sets = self.sets[index]
        done = here.done | 1 << (index - here.first)
        if sets is not None and self._is_needed(value, here.first, done):
            return []
        first = here.first
        while done & 1:
            first += 1
            done >>= 1
        return [_Configuration(first, done, used, value if sets is None else sets)]

    def _is_needed(self, value: Value, first: int, done: int) -> bool:
        """Whether an operation still waits for a value that does not come back."""
        return bool((self.waiting.get(value, 0) >> first) & ~done)

    def _reachable(self, here: _Configuration, before: int) -> list[tuple[tuple[int, ...], Value]]:
        """What the register can hold after one unknown operation or more, and which those were. Behind the first one
        only such as need something: what overwrites blindly makes the ones before it needless."""
        found: list[tuple[tuple[int, ...], Value]] = []
        seen: set[tuple[tuple[int, ...], Value]] = set()
        open_ones = [(here.used, here.value)]
        while open_ones:
            used, value = open_ones.pop()
            if self._is_needed(value, here.first, here.done):
                continue
            for number, one_class in enumerate(self.classes):
                count = used[number]
                if count == len(one_class.starts) or one_class.starts[count] > before:
                    continue
                if not one_class.needs.allows(value) or (used != here.used and one_class.needs.nothing):
                    continue
                after = ((*used[:number], count + 1, *used[number + 1 :]), one_class.sets)
                if after not in seen:
                    seen.add(after)
                    found.append(after)
                    open_ones.append(after)
        return found


def check(operations: Sequence[Operation]) -> Verdict:
    """Looks for an order of the operations on one register, which is absent at first.

    # Errors
    [`UndecidedError`] past [`CONFIGURATIONS_MAX`].
    """
    return _Search(operations).run()
