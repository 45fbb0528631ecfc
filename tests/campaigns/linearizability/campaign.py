"""One run: clients at work, faults meanwhile, everything read once more at the end, and the verdict.

Whatever the faults were, a run has to come out with an order for every key, no wrong bytes with a clean end, and no
panic. The reads at the end are part of the history, so the order includes that nothing acknowledged is lost, nothing
deleted comes back, LIST, HEAD and GET agree, and a condition has one winner.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from campaigns.linearizability.checker import UndecidedError, Verdict, check
from campaigns.linearizability.history import Event, Kind, load, save
from campaigns.linearizability.projection import registers
from campaigns.linearizability.workload import Client, Plan, Recording, work
from outside.server import ROOT, Server, until

HISTORIES = ROOT / "tests" / "artefacts" / "histories"
"""Where the history of a run that failed is kept."""
READER = 1_000_000
"""The client that reads everything at the end."""


class Target(Protocol):
    """What clients talk to."""

    @property
    def port(self) -> int:
        """Where the clients connect."""

    @property
    def replicas(self) -> Sequence[Server]:
        """The processes behind it."""


class Nemesis(Protocol):
    """Does harm while clients work."""

    faults: list[str]
    """What it did, in words."""

    def run(self, stop: threading.Event) -> None:
        """Works until told to stop; whatever it broke runs again when it returns."""


@dataclass
class Report:
    """What came of a run."""

    seed: int
    ops: int = 0
    acked: int = 0
    unknown: int = 0
    faults: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Keys whose history has an order until the reads at the end are added."""
    disorder: list[str] = field(default_factory=list)
    """Other keys whose history has no order: stale reads, lost updates, two winners, returns from the dead."""
    wrong: list[str] = field(default_factory=list)
    panics: int = 0
    keys: int = 0
    history: str = ""
    explanation: str = ""

    @property
    def valid(self) -> bool:
        """Whether everything is as it must be."""
        return not (self.lost or self.disorder or self.wrong or self.panics)

    def line(self) -> str:
        """One line of JSON."""
        numbers = {"seed": self.seed, "ops": self.ops, "acked": self.acked, "unknown": self.unknown, "keys": self.keys}
        found = {"lost": len(self.lost), "disorder": len(self.disorder), "wrong": len(self.wrong)}
        rest = {"panics": self.panics, "faults": self.faults, "valid": self.valid}
        return json.dumps(numbers | found | rest | ({"history": self.history} if self.history else {}))


def run(target: Target, plan: Plan, nemesis: Nemesis | None = None) -> Report:
    """Runs the plan, and the nemesis beside it, and judges. The history of a run that is not valid is kept."""
    stop = threading.Event()
    harm = threading.Thread(target=nemesis.run, args=(stop,), name="nemesis") if nemesis else None
    if harm:
        harm.start()
    try:
        recording = work(plan, target.port)
    finally:
        stop.set()
        if harm:
            harm.join()
    during = list(recording.events)
    read_everything(target, plan, recording)
    report = judge(plan.seed, during, recording.events)
    report.wrong = recording.wrong
    report.faults = nemesis.faults if nemesis else []
    logs = [replica.log.read_text(errors="replace") for replica in target.replicas]
    report.panics = sum(len(re.findall(r"panicked at", log)) for log in logs)
    if not report.valid:
        path = HISTORIES / f"{plan.seed}-{time.time_ns()}.jsonl"
        save(recording.events, path)
        report.history = str(path.relative_to(ROOT))
    return report


def read_everything(target: Target, plan: Plan, recording: Recording) -> None:
    """Waits until nothing is under way, then reads every key by GET and HEAD and every prefix by LIST, and once more by
    each replica itself."""
    for replica in target.replicas:
        replica.wait_ready(60)
        until(partial(idle, replica), 60, "no request is left")
        replica.settle()
    keys = sorted({event.key for event in recording.events if event.kind != Kind.LIST})
    prefixes = sorted({key.rpartition("/")[0] + "/" for key in keys})
    for number, port in enumerate([target.port, *(replica.port for replica in target.replicas)]):
        reader = Client(plan, READER + number, port, recording)
        for prefix in prefixes:
            insist(partial(reader.list, prefix, 3), f"LIST {prefix}")
        for key in keys:
            kind = Kind.HEAD if number else Kind.GET
            insist(partial(reader.read, kind, key), f"{kind.upper()} {key}")
        reader.caller.close()


def idle(replica: Server) -> bool:
    """Whether a replica works on no request, not even one whose client has gone."""
    return replica.metrics().total("deltaweir_http_inflight") == 0


def insist(call: Callable[[], bool], what: str, attempts: int = 5) -> None:
    """Repeats a read that was not answered; at the end of a run every one must be."""
    for _ in range(attempts):
        if call():
            return
        time.sleep(0.5)
    raise AssertionError(f"{what} is not answered although everything runs again")


def judge(seed: int, during: Sequence[Event], events: Sequence[Event]) -> Report:
    """Looks for an order for each key: of all events, and where there is none, of those before the reads at the end."""
    report = Report(
        seed,
        ops=len(during),
        acked=sum(event.is_write and 200 <= event.status < 300 for event in during),
        unknown=sum(event.is_write and event.unknown for event in during),
    )
    operations = registers(events)
    before = registers(during)
    report.keys = len(operations)
    for key, found in operations.items():
        try:
            verdict = check(found)
            if verdict.valid:
                continue
            lost = check(before.get(key, [])).valid
        except UndecidedError as error:
            report.disorder.append(key)
            report.explanation += f"{key}: {error}\n"
            continue
        (report.lost if lost else report.disorder).append(key)
        report.explanation += explain(key, verdict)
    return report


def explain(key: str, verdict: Verdict) -> str:
    """Where the search for an order ended, for people."""
    stuck = "\n".join(f"    {one.start}..{one.end} {one.name}" for one in verdict.stuck_at)
    return f"{key}: {verdict.explained} operations in order, then value {verdict.held} and none of\n{stuck}\n"


def judge_file(path: Path) -> Report:
    """The verdict on a history that was kept."""
    events = load(path)
    return judge(0, [event for event in events if event.client < READER], events)
