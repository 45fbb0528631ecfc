#!/usr/bin/env python3
"""Thin entry point with the command and flag names people already know; everything lives in `taxbench`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from taxbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
