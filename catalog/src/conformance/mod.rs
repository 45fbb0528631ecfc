//! The suite that every [`Catalog`](crate::Catalog) passes. An implementation's own test is a [`Factory`] and one line:
//!
//! ```text
//! catalog::conformance_tests!(MyFactory);
//! ```
//!
//! Tests are named by the sentence they prove. They fail by panicking, like tests do.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a suite fails by panicking")]

pub mod buckets;
pub mod desk;
pub mod journal;
pub mod listing;
pub mod model;
pub mod multipart;
pub mod references;
pub mod stats;
pub mod versions;
pub mod writers;

use crate::Catalog;
use std::{future::Future, sync::Arc};

/// The statements behind listings, for tests of their plans: of keys (bucket, first key, end, limit), of uploads (bucket, key, creation and id
/// of the last one, end, limit), of keys past common prefixes (bucket, first key, end, delimiter, where the rest begins, limit).
pub const LISTING_STATEMENTS: [&str; 3] = [
    crate::relational::list::VERSIONS_RUN,
    crate::relational::list::UPLOADS_RUN,
    crate::relational::list::VERSIONS_WALK,
];

/// How an implementation is made for a test.
pub trait Factory: Send + Sync {
    /// The implementation.
    type Catalog: Catalog;

    /// A new, empty catalog.
    fn fresh(&self) -> impl Future<Output = Arc<Self::Catalog>> + Send;

    /// The same store after its process died: nothing of `catalog` may be flushed or closed in good order, if that can be had.
    fn after_crash(&self, catalog: Arc<Self::Catalog>) -> impl Future<Output = Arc<Self::Catalog>> + Send;
}

/// Defines one test per sentence of the suite for the implementation that the factory expression makes.
#[macro_export]
macro_rules! conformance_tests {
    ($factory:expr) => {
        $crate::conformance_tests!(@define $factory;
            buckets::{
                a_bucket_is_found_by_name,
                buckets_are_listed_in_byte_order_of_names,
                a_taken_bucket_name_is_refused,
                bucket_settings_are_replaced,
                a_bucket_with_a_version_or_an_open_upload_cannot_be_deleted,
                a_deleted_bucket_keeps_its_keys_until_its_last_blob_is_purged,
                a_bucket_id_is_never_used_again,
                a_key_id_and_a_key_epoch_are_taken_once,
                a_setting_is_read_back_and_replaced,
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
                one_refused_change_does_not_harm_the_others_of_its_group,
                acknowledged_changes_survive_a_crash,
                a_read_of_several_statements_sees_one_state,
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
            journal::{
                sequence_numbers_are_consecutive_over_all_mutations,
                what_changes_nothing_takes_no_number,
                the_journal_alone_gives_the_catalog_back,
                a_shipped_journal_is_trimmed,
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
