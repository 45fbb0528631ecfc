"""Programs that few tests need."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from outside.server import ROOT


def chromium() -> str:
    """Debian's browser, which `tests/setup.sh` installs."""
    found = shutil.which("chromium")
    assert found, "Debian's chromium is not installed: tests/setup.sh"
    return found


def built_by_setup(part: str, program: str) -> Path:
    """A program that `tests/setup.sh PART` builds where it is not there yet, which takes minutes."""
    done = subprocess.run([str(ROOT / "tests" / "setup.sh"), part], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / ".tools" / "bin" / program
