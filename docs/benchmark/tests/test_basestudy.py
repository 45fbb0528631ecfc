"""The study's verdict adds up what it says it does."""

from __future__ import annotations

from basestudy.data import pinned
from basestudy.study import Put, judge, worst


def put(key: str, stored: int, form: str, alone: int, against: dict[str, int]) -> Put:
    return Put(
        package=key[0],
        key=key,
        size=1000,
        stored_bytes=stored,
        form=form,
        reason="",
        bases=(),
        alone_bytes=alone,
        against_bytes=against,
        put_s=0.1,
    )


PUTS = [
    put("a1", 400, "zstd", 400, {}),
    put("a2", 110, "delta", 400, {"a1": 100}),
    # Against a1, which is held whole; a2 would be nearer, and is a delta.
    put("a3", 90, "delta", 400, {"a1": 80, "a2": 10}),
    put("b1", 300, "zstd", 300, {}),
    # Stored whole although b1 would have done.
    put("b2", 300, "zstd", 300, {"b1": 50}),
    put("b3", 30, "delta", 300, {"b1": 60, "b2": 20}),
]


def test_each_best_has_the_choices_it_says() -> None:
    verdict = judge(PUTS)
    assert (verdict.objects, verdict.packages, verdict.logical_bytes) == (6, 2, 6000)
    assert verdict.stored_bytes == 1230
    assert verdict.best_any_bytes == 400 + 100 + 10 + 300 + 50 + 20
    assert verdict.best_whole_bytes == 400 + 100 + 80 + 300 + 50 + 60
    assert verdict.best_held_bytes == 400 + 100 + 80 + 300 + 300 + 20
    assert verdict.over_best_held == 1230 / 1200


def test_a_delta_of_most_of_an_object_makes_it_a_base_instead() -> None:
    puts = [
        put("a1", 400, "zstd", 400, {}),
        put("a2", 400, "zstd", 400, {"a1": 251}),
        put("a3", 9, "delta", 400, {"a2": 9}),
    ]
    assert judge(puts).best_whole_bytes == 400 + 400 + 9
    assert judge(puts).best_any_bytes == 400 + 251 + 9


def test_the_worst_loss_is_named_first() -> None:
    assert [(loss, found.key) for loss, found in worst(PUTS, 2)] == [(250, "b2"), (80, "a3")]


def test_the_pinned_objects_are_as_many_as_the_study_promises() -> None:
    objects = pinned()
    assert len(objects) == len(set(objects)) >= 250
    assert len({package for _, package, _ in objects}) >= 35
