"""One key as a register: it is absent or holds a value, and every operation needs something of it and may set it.

With that, all of PUT, GET, HEAD, DELETE, their conditions and a page of a LIST come to one shape: `needs`, then `sets`.
"""

from __future__ import annotations

from dataclasses import dataclass

ABSENT = 0
"""The value of a key that holds nothing. Values of content are 1, 2, …"""

Value = int


@dataclass(frozen=True, slots=True)
class Needs:
    """What must hold of the register at the moment of an operation."""

    exactly: Value | None = None
    """It holds this; `None`: that is not asked."""
    none_of: frozenset[Value] = frozenset()
    """It holds none of these."""

    def allows(self, value: Value) -> bool:
        """Whether it holds for a register with this value."""
        return (self.exactly is None or value == self.exactly) and value not in self.none_of

    @property
    def nothing(self) -> bool:
        """Whether every value will do."""
        return self.exactly is None and not self.none_of

    def mentioned(self) -> set[Value]:
        """Values it tells apart from others."""
        return set(self.none_of) | (set() if self.exactly is None else {self.exactly})


ANYTHING = Needs()


@dataclass(frozen=True, slots=True)
class Operation:
    """A call on one register, seen from its client."""

    start: int
    end: int
    """Not earlier than `start`. Without meaning when `certain` is false."""
    needs: Needs = ANYTHING
    sets: Value | None = None
    """What the register holds afterwards; `None`: what it held before."""
    certain: bool = True
    """False: it took effect at some time after `start`, however late, or never did; where it did, its needs held."""
    name: str = ""
    """For people: which request it was."""


def holds(value: Value) -> Needs:
    """Needs the register to hold a value."""
    return Needs(exactly=value)


def holds_none_of(*values: Value) -> Needs:
    """Needs the register to hold something else."""
    return Needs(none_of=frozenset(values))
