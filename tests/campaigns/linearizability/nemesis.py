"""What happens to a cluster while clients work: replicas killed and started again, or stopped for a while and woken;
the database restarted, politely or not; the store killed. One fault after another, in an order the seed decides.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from cluster.replicas import Cluster


@dataclass
class Chaos:
    """A schedule of faults. Whatever it broke runs again when [`run`](Chaos.run) returns."""

    cluster: Cluster
    seed: int
    pause_s_max: float = 12
    """Longest SIGSTOP."""
    away_s_max: float = 5
    """Longest time the database is away."""
    only: str | None = None
    """Only this fault, by name."""
    faults: list[str] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        """A fault, a moment of peace, the next one."""
        rng = random.Random(f"chaos {self.seed}")
        kinds: dict[str, Callable[[random.Random, threading.Event], str]] = {
            "kill": self.kill,
            "pause": self.pause,
            "database": self.database,
            "store": self.store,
        }
        turn: list[str] = []
        while not stop.wait(rng.uniform(0.5, 2)):
            if not turn:  # each kind once before any comes again
                turn = rng.sample(sorted(kinds), len(kinds))
            kind = turn.pop()
            if self.only in (None, kind):
                self.faults.append(kinds[kind](rng, stop))

    def kill(self, rng: random.Random, stop: threading.Event) -> str:
        """SIGKILL, and a start after a while."""
        number = rng.randrange(len(self.cluster.replicas))
        replica = self.cluster.replicas[number]
        away_s = rng.uniform(0, 2)
        replica.kill()
        stop.wait(away_s)
        replica.start()
        return f"replica {number} killed, {away_s:.1f} s"

    def pause(self, rng: random.Random, stop: threading.Event) -> str:
        """SIGSTOP, and SIGCONT after a while: the replica goes on in the middle of what it did."""
        number = rng.randrange(len(self.cluster.replicas))
        process = self.cluster.replicas[number].process
        assert process is not None
        pause_s = rng.uniform(1, self.pause_s_max)
        process.send_signal(signal.SIGSTOP)
        stop.wait(pause_s)
        process.send_signal(signal.SIGCONT)
        return f"replica {number} stopped for {pause_s:.1f} s"

    def database(self, rng: random.Random, stop: threading.Event) -> str:
        """PostgreSQL ends, at once or as if it had crashed, and is back after a while."""
        how = rng.choice([signal.SIGINT, signal.SIGQUIT])
        away_s = rng.uniform(0, self.away_s_max)
        self.cluster.postgres.stop(how)
        stop.wait(away_s)
        self.cluster.postgres.start()
        return f"database {how.name}, {away_s:.1f} s"

    def store(self, rng: random.Random, stop: threading.Event) -> str:
        """The S3 store dies and is back after a while."""
        away_s = rng.uniform(0, 2)
        self.cluster.store.stop()
        stop.wait(away_s)
        self.cluster.store.start()
        return f"store killed, {away_s:.1f} s"
