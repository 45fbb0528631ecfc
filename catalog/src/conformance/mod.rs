//! The suite that every [`Catalog`](crate::Catalog) passes. An implementation's own test is a
//! [`Factory`] and one line:
//!
//! ```text
//! catalog::conformance_tests!(MyFactory);
//! ```
//!
//! Tests are named by the sentence they prove. They fail by panicking, like tests do.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a suite fails by panicking")]

pub mod accounts;
pub mod adopting;
pub mod buckets;
pub mod conversion;
pub mod copies;
pub mod desk;
pub mod history;
pub mod hooks;
pub mod jobs;
pub mod journal;
pub mod listing;
pub mod locks;
pub mod model;
pub mod multipart;
pub mod notices;
pub mod packs;
pub mod quotas;
pub mod references;
pub mod snapshot;
pub mod stats;
pub mod trash;
pub mod verification;
pub mod versions;
pub mod writers;

use crate::Catalog;
use std::{future::Future, sync::Arc};

/// The statements behind listings, for tests of their plans: of keys (bucket, first key, end,
/// limit), of uploads (bucket, key, creation and id of the last one, end, limit), of keys past
/// common prefixes (bucket, first key, end, delimiter, where the rest begins, limit), of all
/// versions (bucket, first key, end, limit), of one key's (bucket, key, version, limit), of all
/// versions past common prefixes (as of keys, and the key and version it goes on after), and of
/// uploads past common prefixes (bucket, key, creation and id of the last one, end, delimiter,
/// where the rest begins, limit).
pub const LISTING_STATEMENTS: [&str; 7] = [
    crate::relational::list::VERSIONS_RUN,
    crate::relational::list::UPLOADS_RUN,
    crate::relational::list::VERSIONS_WALK,
    crate::relational::history::HISTORY_RUN,
    crate::relational::history::HISTORY_OF_KEY,
    crate::relational::history::HISTORY_WALK,
    crate::relational::list::UPLOADS_WALK,
];

/// How an implementation is made for a test.
pub trait Factory: Send + Sync {
    /// The implementation.
    type Catalog: Catalog;

    /// A new, empty catalog.
    fn fresh(&self) -> impl Future<Output = Arc<Self::Catalog>> + Send;

    /// The same store after its process died: nothing of `catalog` may be flushed or closed in good
    /// order, if that can be had.
    fn after_crash(&self, catalog: Arc<Self::Catalog>) -> impl Future<Output = Arc<Self::Catalog>> + Send;
}

/// Defines one test per sentence of the suite for the implementation that the factory expression
/// makes.
#[macro_export]
macro_rules! conformance_tests {
    ($factory:expr) => {
        $crate::conformance_tests!(@define $factory;
            accounts::{
                accounts_are_read_back_and_replaced,
                a_change_of_accounts_over_another_is_a_conflict,
                of_16_who_make_one_access_key_at_once_one_does,
                accounts_survive_a_crash,
            }
            adopting::{
                content_in_an_original_is_read_back_and_stores_nothing,
                content_in_an_original_is_nobodys_base,
                a_rewrite_frees_the_original_and_its_tombstone_names_it,
                a_hidden_key_is_not_adopted_again,
                a_hidden_key_may_be_written_and_hides_again_once_deleted,
            }
            buckets::{
                a_bucket_is_found_by_name,
                buckets_are_listed_in_byte_order_of_names,
                a_taken_bucket_name_is_refused,
                bucket_settings_are_replaced,
                a_bucket_with_a_version_cannot_be_deleted_and_open_uploads_end_with_an_empty_one,
                a_deleted_bucket_keeps_its_keys_until_its_last_blob_is_purged,
                a_bucket_id_is_never_used_again,
                a_key_id_and_a_key_epoch_are_taken_once,
                wraps_are_replaced_together_and_never_over_others,
                of_two_who_rewrap_a_key_at_once_one_does,
                a_key_is_removed_when_nothing_is_sealed_with_it,
                what_is_sealed_with_a_removed_key_is_not_committed,
                blobs_are_counted_by_the_key_that_seals_them,
                a_setting_is_read_back_and_replaced,
                a_setting_is_created_once,
            }
            versions::{
                absence_is_none_and_not_an_error,
                a_version_is_read_back_with_its_extents_and_blobs,
                an_empty_version_has_no_extents,
                a_second_put_replaces_the_first_and_frees_its_blob,
                one_of_64_concurrent_absent_puts_wins,
                a_precondition_that_does_not_hold_changes_nothing,
                last_modified_never_goes_back,
                a_delete_gives_what_it_removed,
                a_key_may_be_any_utf8,
                a_put_to_a_missing_bucket_is_refused,
                a_version_id_is_taken_once_and_tells_an_unknown_outcome,
                a_rewrite_swaps_extents_and_keeps_the_version,
                a_rewrite_of_what_has_changed_is_a_conflict,
                facts_are_replaced_alone_and_never_over_another_change,
                one_refused_change_does_not_harm_the_others_of_its_group,
                acknowledged_changes_survive_a_crash,
                a_read_of_several_statements_sees_one_state,
            }
            quotas::{
                nothing_goes_beyond_a_quota,
                who_asks_for_room_is_told_as_who_commits,
                parts_count_while_they_are_stored_and_no_longer,
                a_quota_of_an_owner_is_for_all_of_its_buckets,
                what_is_held_follows_versions_and_markers,
                of_64_writers_as_many_go_through_as_the_quota_allows,
                a_quota_ends_with_its_bucket_or_when_it_is_taken_away,
            }
            history::{
                a_bucket_keeps_versions_or_suspends_it_and_never_goes_back,
                a_put_keeps_the_version_it_follows,
                a_deletion_adds_a_marker_and_frees_nothing,
                when_the_newest_version_is_removed_the_next_one_is_the_newest,
                what_was_there_before_versions_were_kept_is_the_null_version,
                while_suspended_the_null_version_alone_is_replaced,
                a_bucket_with_a_version_or_a_marker_is_not_deleted,
                a_version_is_not_older_than_the_one_it_follows,
                conditions_are_held_against_the_current_version,
                what_was_deleted_is_not_adopted,
                of_64_writers_of_one_key_each_has_its_version,
                a_completed_upload_is_one_more_version,
                a_version_that_is_not_current_is_rewritten_like_any,
                small_versions_are_found_whether_they_are_current_or_not,
                stats_tell_history_apart,
                versions_are_listed_by_key_and_newest_first,
                random_histories_of_versions_agree_with_the_model,
            }
            locks::{
                a_bucket_with_object_lock_keeps_versions_for_good,
                a_version_whose_lock_holds_is_not_removed,
                a_lock_is_changed_as_far_as_its_retention_allows,
                a_bucket_without_object_lock_has_no_locks,
            }
            references::{
                a_base_outlives_its_version_while_a_delta_needs_it,
                a_dying_blob_cannot_be_referenced,
                a_blob_of_another_bucket_cannot_be_referenced,
                a_base_may_come_with_the_delta_that_needs_it,
                a_commit_that_contradicts_itself_is_refused,
                a_shared_blob_dies_with_its_last_version,
                only_a_dying_blob_is_purged,
                a_duplicate_is_found_only_alive_and_in_its_domain,
                tombstones_are_given_oldest_first,
                a_delta_and_the_end_of_its_base_do_not_pass_each_other,
            }
            conversion::{
                what_was_stored_in_a_hurry_waits_until_it_is_done,
                a_deferred_part_waits_on_after_completion,
                what_heat_costs_is_known_while_its_blob_lives,
                every_version_that_references_a_blob_is_found,
                a_base_that_only_deltas_need_is_found,
                versions_of_many_extents_are_found_and_others_are_not,
                blobs_that_would_outlive_a_version_are_told_apart,
            }
            verification::{
                blobs_are_verified_bases_first_and_each_once,
                when_a_blob_was_found_well_is_remembered,
                a_blob_in_quarantine_is_no_base_and_no_duplicate,
                every_part_that_references_a_blob_is_found,
            }
            copies::{
                a_base_of_many_deltas_wants_a_second_copy_until_it_has_one,
                a_blob_that_many_objects_need_wants_a_second_copy,
                what_is_no_blob_in_a_backend_or_is_damaged_wants_no_copy,
                a_copy_takes_the_place_of_the_one_its_writer_saw_or_none,
                a_copy_dies_with_its_blob,
                a_closed_epoch_names_no_copy,
            }
            packs::{
                small_versions_are_given_in_the_order_they_came,
                a_pack_tells_how_much_of_it_is_in_use,
                a_part_keeps_its_range_of_a_pack_in_use,
            }
            multipart::{
                parts_become_a_version_in_the_order_of_their_numbers,
                a_part_that_is_uploaded_again_replaces_the_first,
                a_part_that_was_not_chosen_is_dropped,
                a_part_that_was_replaced_makes_completion_a_conflict,
                an_upload_is_completed_once_and_remembered,
                an_aborted_upload_frees_its_parts,
                an_upload_takes_no_part_once_it_has_ended,
                parts_are_paged_by_number,
                uploads_are_listed_by_key_creation_and_id,
                uploads_are_rolled_up_at_a_delimiter,
                stale_uploads_are_found_and_completed_ones_forgotten,
            }
            notices::{
                a_notice_is_left_by_the_change_it_tells_of,
                a_change_that_is_refused_leaves_no_notice,
                a_deletion_tells_what_came_of_it,
                notices_are_given_in_the_order_of_the_changes,
                a_full_lane_takes_no_more_notices,
                a_notice_waits_until_it_is_taken_away_once,
            }
            hooks::{
                what_shares_most_hooks_is_found_first,
                hooks_do_not_leave_their_domain,
                hooks_are_found_in_the_compartment_of_their_blob_alone,
                a_dead_blob_is_not_found_and_its_hooks_go_with_it,
                a_blob_in_quarantine_is_not_found,
                only_live_whole_blobs_have_hooks,
                a_blob_gets_further_regions_and_keeps_those_it_has,
                a_blob_of_many_regions_is_remembered_and_forgotten_whole,
                a_hook_of_very_many_blobs_leads_to_the_newest,
            }
            listing::{
                keys_are_listed_in_byte_order_and_paged,
                a_delimiter_rolls_keys_up,
                a_listing_goes_on_behind_a_common_prefix,
                any_listing_is_what_the_model_says,
                a_page_of_no_entries_or_an_empty_delimiter_is_refused,
                neighbours_are_the_nearest_keys_of_the_prefix,
            }
            writers::{
                epochs_grow,
                a_closed_epoch_commits_nothing,
                an_epoch_that_was_never_opened_commits_nothing,
                a_heartbeat_of_a_closed_epoch_is_fenced,
            }
            jobs::{
                a_job_is_held_by_one_at_a_time,
                a_lease_that_is_over_is_taken_by_another_under_a_greater_fence,
                a_lease_dies_with_its_holders_epoch,
                a_job_rests_as_long_as_it_is_told,
                a_wish_reaches_whoever_holds_the_job,
                a_jobs_state_outlives_a_crash_and_takes_no_sequence_number,
            }
            journal::{
                sequence_numbers_are_consecutive_over_all_mutations,
                what_changes_nothing_takes_no_number,
                the_journal_alone_gives_the_catalog_back,
                changes_that_come_at_once_give_what_they_give_in_the_order_of_the_journal,
                a_record_that_does_not_fit_is_not_replayed,
                behind_a_hole_what_fits_is_made_and_the_rest_only_takes_its_number,
                where_a_journal_blob_ends_is_decided_once,
                what_a_client_waits_for_passes_the_gate,
                a_shipped_journal_is_trimmed,
                rows_that_are_not_those_that_were_shipped_stay,
            }
            snapshot::{
                a_snapshot_gives_the_catalog_back,
                a_snapshot_is_of_one_moment,
                an_import_that_was_interrupted_begins_again,
                only_an_empty_catalog_is_filled,
                rows_that_no_snapshot_has_are_refused,
                epochs_after_an_import_are_greater_than_all_before,
            }
            trash::{
                a_closed_epoch_is_looked_through_once,
                a_file_on_the_list_keeps_its_date_until_it_is_taken_off,
            }
            stats::{
                stored_bytes_add_up,
                dying_bytes_of_deleted_buckets_are_under_an_empty_name,
            }
            model::{
                random_histories_agree_with_the_model,
            }
        );
    };
    (@define $factory:expr; $($module:ident::{ $($name:ident,)* })*) => {
        $(
            mod $module {
                use super::*;
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $name() {
                        $crate::conformance::$module::$name(&$factory).await;
                    }
                )*
            }
        )*
    };
}
