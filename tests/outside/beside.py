"""Clients that work on while something else happens."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def again_and_again(*steps: Callable[[int], None]) -> Iterator[None]:
    """Each step runs in a thread of its own, with a number that grows from 0, until what is inside has ended. A step
    that fails is not tried again, and then nothing may have failed."""
    failed: list[Exception] = []
    ended = threading.Event()

    def work(step: Callable[[int], None]) -> None:
        number = 0
        while not ended.is_set():
            try:
                step(number)
            except Exception as error:  # whatever a client sees is what counts
                failed.append(error)
                return
            number += 1

    threads = [threading.Thread(target=work, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert failed == []
