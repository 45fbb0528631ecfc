"""Writes the dashboards; with `--check` only says whether they are as the modules here say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from boards import backend, benchmark, compression, integrity, overview, runtime

FOLDER = Path(__file__).resolve().parent.parent / "dashboards"
BOARDS = (overview.BOARD, compression.BOARD, integrity.BOARD, backend.BOARD, runtime.BOARD, benchmark.BOARD)


def files() -> dict[str, str]:
    """File names and what belongs in them."""
    return {f"{board.uid}.json": json.dumps(board.json(), indent=2) + "\n" for board in BOARDS}


def stale() -> list[str]:
    """Files that are not there, not as they should be, or of no dashboard."""
    wanted = files()
    there = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    return sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))


def main() -> int:
    if "--check" in sys.argv[1:]:
        for name in stale():
            print(f"{name} is not what PYTHONPATH=grafana python -m boards writes")
        return 1 if stale() else 0
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
