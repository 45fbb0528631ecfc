"""Instructions a server spends, counted by valgrind's callgrind, and where."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

NAME = re.compile(r"\((?P<id>\d+)\)(?: (?P<name>.*))?$")


@dataclass
class Profile:
    """Instructions by function, and by call from one function into another (what that calls in turn included)."""

    own: Counter[str] = field(default_factory=Counter)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    inclusive: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """Every instruction that was counted."""
        return self.own.total()

    @classmethod
    def read(cls, path: Path) -> Profile:
        """Reads callgrind's output: lines of costs under `fn=`, and under `calls=` what a call into `cfn=` took."""
        profile = cls()
        names: dict[str, str] = {}
        caller = callee = ""
        of_call = 0

        def name(text: str) -> str:
            found = NAME.match(text)
            assert found, text
            if found["name"]:
                names[found["id"]] = found["name"]
            return names[found["id"]]

        for line in path.read_text().splitlines():
            if line.startswith("fn="):
                caller = name(line[3:])
            elif line.startswith("cfn="):
                callee = name(line[4:])
            elif line.startswith("calls="):
                of_call = int(line[6:].split()[0])
            elif line and line[0] in "0123456789+-*":
                cost = int(line.split()[1])
                if of_call:
                    profile.calls[caller, callee] += of_call
                    profile.inclusive[caller, callee] += cost
                    of_call = 0
                else:
                    profile.own[caller] += cost
        return profile


def wrapper(folder: Path, binary: Path) -> Path:
    """A program that runs the binary under callgrind, counting nothing until it is told to."""
    script = folder / "counted"
    output = folder / "callgrind.out"
    script.write_text(
        "#!/bin/sh\n"
        f'exec valgrind --tool=callgrind --instr-atstart=no --callgrind-out-file="{output}" "{binary}" "$@"\n'
    )
    script.chmod(0o755)
    return script


def count(folder: Path, pid: int, work: Callable[[], None]) -> Profile:
    """What the process spends while `work` goes on."""
    control("-i", "on", pid)
    work()
    control("-i", "off", pid)
    control("-d", "", pid)
    (output,) = folder.glob("callgrind.out.*")
    return Profile.read(output)


def control(flag: str, value: str, pid: int) -> None:
    """Tells callgrind something."""
    arguments = [argument for argument in ("callgrind_control", flag, value, str(pid)) if argument]
    subprocess.run(arguments, check=True, capture_output=True, timeout=60)
