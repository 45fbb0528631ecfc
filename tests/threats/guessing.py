"""One tenant guesses another's document, and a classifier tries to tell right guesses from wrong ones by all that the
guesser sees: status, headers, what a listing says, and how long it took."""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from outside.clients import S3Client
from outside.content import text
from outside.tenants import BUCKET

DOCUMENT_BYTES = 40_000
DIGITS = 3

OF_THE_REQUEST = ("date", "x-amz-request-id", "x-amz-id-2", "etag", "last-modified", "x-amz-checksum-")
"""Beginnings of headers that differ between any two requests, or that say what the guesser sent."""


@dataclass(frozen=True)
class Trial:
    """What a guesser saw of one guess, and whether it was right."""

    seen: str
    took_s: float
    right: bool


def document(number: int, pin: int) -> bytes:
    """A document that everybody could write but for the digits in it."""
    body = text(number, DOCUMENT_BYTES)
    return body[: DOCUMENT_BYTES // 2] + f"PIN {pin:0{DIGITS}}\n".encode() + body[DOCUMENT_BYTES // 2 :]


def seen(*answers: Any) -> str:
    """Statuses and headers of answers, without what names the request."""
    told = []
    for answer in answers:
        metadata = answer["ResponseMetadata"]
        headers = sorted(pair for pair in metadata["HTTPHeaders"].items() if not pair[0].startswith(OF_THE_REQUEST))
        told.append((metadata["HTTPStatusCode"], headers))
    return repr(told)


def guess(victim: S3Client, guesser: S3Client, number: int, rng: random.Random) -> Trial:
    """The victim stores a document; the guesser stores one that is the same or differs in the digits."""
    pin = rng.randrange(10**DIGITS)
    right = rng.random() < 0.5
    guessed = pin if right else (pin + rng.randrange(1, 10**DIGITS)) % 10**DIGITS
    victim.put_object(Bucket=BUCKET, Key=f"ann/{number}", Body=document(number, pin))
    own = {"Bucket": BUCKET, "Key": f"bob/{number}"}
    began = time.perf_counter()
    put = guesser.put_object(**own, Body=document(number, guessed))
    took_s = time.perf_counter() - began
    return Trial(seen(put, guesser.head_object(**own)), took_s, right)


def share_told_right(trials: list[Trial]) -> float:
    """How often a classifier is right about the second half, after it has learned from the first: by what was seen
    where that tells the two apart, else by time."""
    learned, asked = trials[: len(trials) // 2], trials[len(trials) // 2 :]
    by_sight: defaultdict[str, Counter[bool]] = defaultdict(Counter)
    for trial in learned:
        by_sight[trial.seen][trial.right] += 1
    medians = {
        right: statistics.median(trial.took_s for trial in learned if trial.right == right) for right in (False, True)
    }

    def verdict(trial: Trial) -> bool:
        counts = by_sight[trial.seen]
        if counts.total() and max(counts.values()) > 0.9 * counts.total() and counts.total() > 5:
            return counts.most_common(1)[0][0]
        return abs(trial.took_s - medians[True]) < abs(trial.took_s - medians[False])

    return statistics.mean(verdict(trial) == trial.right for trial in asked)
