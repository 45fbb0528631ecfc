"""`html-report`: draw the page again from a bundle."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from taxbench import summarize
from taxbench.bundle import opened
from taxbench.progress import Reporter
from taxbench.report import page


def add(commands: Any) -> None:
    parser = commands.add_parser("html-report", help="draw report.html from a results directory or a .tgz")
    parser.add_argument("--bundle", type=Path, required=True, help="results directory or archive")
    parser.add_argument("--out", type=Path, help="default: report.html in the bundle, or beside the archive")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    out = options.out or (
        options.bundle / "report.html" if options.bundle.is_dir() else options.bundle.with_suffix(".html")
    )
    with Reporter().steps_bar("drawing", 2) as bar, opened(options.bundle) as bundle:
        summary = summarize.summarize(bundle)
        bar.advance(1)
        text = page.render(bundle, summary)
        bar.advance(1)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text)
    print(out)
    return 0
