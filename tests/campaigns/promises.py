"""Ways in which a store could lose data or get stuck, and the tests that show each of them mended."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

ENGINE = "engine/src/tests"
E2E = "tests/e2e"

MENDED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "A",
        "the collector believes a catalog that went back or rotted",
        (
            f"{ENGINE}/collecting.rs::a_catalog_that_was_put_back_from_a_copy_collects_nothing_the_journal_names",
            f"{ENGINE}/rot.rs::a_flipped_bit_in_the_catalog_deletes_no_live_blob_and_gives_no_wrong_byte",
            f"{ENGINE}/collecting.rs::what_a_sweep_found_stays_a_day_can_be_kept_and_is_looked_up_again_before_it_goes",
            f"{E2E}/test_damaged_catalog.py::"
            "test_a_rotten_row_is_found_and_the_catalog_made_again_with_what_was_not_shipped",
        ),
    ),
    (
        "B",
        "a forked catalog runs on",
        (
            f"{ENGINE}/forks.rs::a_catalog_that_lacks_what_the_journal_has_takes_no_write_and_deletes_nothing",
            f"{ENGINE}/merging.rs::a_merge_keeps_what_either_side_wrote_and_the_later_write_of_a_key_is_current",
            "tests/campaigns/test_standbys.py::test_no_read_is_stale_though_a_standby_that_lags_is_in_the_address",
        ),
    ),
    (
        "C",
        "a key is decoded in another way than S3 does",
        (
            f"{E2E}/test_encoded_keys.py::test_a_copy_source_names_the_key",
            f"{E2E}/test_encoded_keys.py::test_a_move_as_s5cmd_sends_it_moves_what_it_names_and_nothing_else",
        ),
    ),
    (
        "D",
        "an empty or a strange store is served",
        (
            f"{ENGINE}/forks.rs::a_catalog_that_knows_blobs_does_not_start_over_an_empty_place",
            f"{ENGINE}/forks.rs::a_directory_that_was_replaced_takes_no_write_until_the_right_one_is_back",
        ),
    ),
    (
        "E",
        "a hole in the journal reads as its end",
        (f"{ENGINE}/collecting.rs::a_hole_in_the_journal_stops_a_recovery_and_is_passed_only_when_told",),
    ),
    (
        "F",
        "one lost file costs many objects",
        (f"{E2E}/test_lost_files.py::test_one_lost_file_costs_at_most_16_objects_and_scrub_writes_it_anew",),
    ),
    (
        "G",
        "nobody reads what a recovery needs until it is needed",
        (f"{E2E}/test_scrub.py::test_a_scrub_writes_again_what_a_rebuild_will_need",),
    ),
    (
        "H",
        "reads make whole what was saved",
        (f"{E2E}/test_convert.py::test_a_delta_that_is_read_often_becomes_whole_as_far_as_the_others_pay_for_it",),
    ),
    (
        "I",
        "a base goes before the upload that stands on it is committed",
        (
            f"{ENGINE}/holding.rs::a_base_that_dies_during_an_upload_is_there_until_the_content_is_stored_without_it",
            f"{ENGINE}/holding.rs::a_reader_that_comes_late_for_a_purge_looks_again",
            f"{ENGINE}/holding.rs::a_part_that_is_committed_and_not_shipped_is_not_acknowledged",
        ),
    ),
    (
        "J",
        "a full disk takes no deletion and no start",
        (
            f"{E2E}/test_full_disk.py::test_a_full_disk_refuses_uploads_and_heals_when_content_is_deleted",
            f"{E2E}/test_full_disk.py::test_a_server_starts_on_a_full_disk",
        ),
    ),
    (
        "K",
        "uploads hold memory for bytes that have not come",
        (
            f"{E2E}/test_memory.py::test_uploads_that_stand_still_keep_no_memory_from_others",
            f"{E2E}/test_memory.py::test_a_reader_that_is_slow_is_read_to_its_end",
            f"{E2E}/test_memory.py::test_a_budget_that_is_too_small_for_its_threads_has_fewer_of_them",
        ),
    ),
    (
        "L",
        "one refusal of the store fails a whole upload",
        (
            f"{E2E}/test_faulty_store.py::test_a_write_that_fails_is_sent_again_and_the_client_notices_nothing",
            f"{E2E}/test_faulty_store.py::test_a_long_upload_goes_through_a_store_that_fails_parts_of_it",
        ),
    ),
    (
        "M",
        "a signal ends requests; descriptors run out; a disk error ends the scrub",
        (
            f"{E2E}/test_reload.py::test_new_users_are_added_the_catalog_wins_and_requests_go_on",
            f"{E2E}/test_reload.py::test_descriptors_bound_connections",
            f"{ENGINE}/scrubbing.rs::a_scrub_that_met_eio_goes_on_where_it_was_when_the_disk_is_well",
        ),
    ),
    (
        "N",
        "the collector lists the whole store in every run",
        (
            f"{ENGINE}/collecting.rs::an_epoch_is_listed_once_and_an_idle_collection_touches_no_blob",
            f"{ENGINE}/collecting.rs::many_dead_blobs_are_deleted_together",
        ),
    ),
)
"""A letter to speak of it by, what went wrong once, and where it is tested."""


def is_there(test: str) -> bool:
    """Whether the file holds a test of this name."""
    path, name = test.split("::")
    words = ("def", "fn")
    text = (ROOT / path).read_text()
    return any(f"{word} {name}(" in text for word in words)


def table() -> list[str]:
    """The lines of the page that tell it."""
    rows = [f"| {letter} | {what} | {'<br>'.join(f'`{test}`' for test in tests)} |" for letter, what, tests in MENDED]
    return [
        "## What went wrong once",
        "",
        "Each of these lost data or stopped a server on the release binary. The tests keep it from coming back.",
        "",
        "| | what went wrong | tests |",
        "| --- | --- | --- |",
        *rows,
        "",
    ]
