"""Progress on the terminal, so that nothing longer than two seconds runs in silence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class Reporter:
    """Writes to stderr; stdout belongs to results. `quiet` (with `--json`) shows nothing but errors."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False, quiet=quiet)
        self._quiet = quiet

    def say(self, text: str) -> None:
        self.console.print(text)

    def step(self, text: str) -> None:
        """A line for those who read a log instead of watching a bar."""
        if not self.console.is_terminal:
            self.console.print(text)

    @contextmanager
    def bytes_bar(self, title: str, total: int) -> Iterator[Bar]:
        """A bar that counts bytes."""
        with self._progress(DownloadColumn(), TransferSpeedColumn()) as progress:
            yield Bar(progress, progress.add_task(title, total=max(total, 1)))

    @contextmanager
    def steps_bar(self, title: str, total: int) -> Iterator[Bar]:
        """A bar that counts steps."""
        with self._progress(MofNCompleteColumn()) as progress:
            yield Bar(progress, progress.add_task(title, total=max(total, 1)))

    def _progress(self, *columns: MofNCompleteColumn | DownloadColumn | TransferSpeedColumn) -> Progress:
        return Progress(
            TextColumn("{task.description}", table_column=None),
            BarColumn(bar_width=30),
            *columns,
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=not self.console.is_terminal,
            disable=self._quiet,
        )


class Bar:
    """One running bar."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task

    def advance(self, amount: int = 1, title: str | None = None) -> None:
        if title is None:
            self._progress.update(self._task, advance=amount)
        else:
            self._progress.update(self._task, advance=amount, description=title)
