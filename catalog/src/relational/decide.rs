//! What each mutation gives and writes.

use super::{
    accounts, blobs, buckets, change::Decision, conversion, copies, keys, locks, multipart, notices, session::Session,
    trash, verification, versions, writers,
};
use crate::{Result, mutation::Mutation, types::*};

/// What a mutation that takes number `seq` gives and writes, the notices of it too; values that the
/// catalog chooses are filled in.
pub(crate) async fn decide<S: Session>(session: &mut S, seq: Seq, mutation: &mut Mutation) -> Result<Decision> {
    let mut decision = decide_alone(session, seq, mutation).await?;
    notices::leave(session, seq, mutation, &mut decision).await?;
    Ok(decision)
}

async fn decide_alone<S: Session>(session: &mut S, seq: Seq, mutation: &mut Mutation) -> Result<Decision> {
    match mutation {
        Mutation::OpenEpoch { epoch, closes } => writers::open(session, epoch, closes).await,
        Mutation::CloseEpochs { epochs } => writers::close(session, epochs).await,
        Mutation::PutSetting { name, value, creates } => buckets::put_setting(session, name, value, *creates).await,
        Mutation::ChangeAccounts { change } => accounts::change(session, seq, change).await,
        Mutation::CreateBucket { bucket } => buckets::create(session, bucket).await,
        Mutation::SetBucketSettings { bucket, settings, expected, .. } => {
            buckets::set_settings(session, *bucket, settings, expected.as_ref()).await
        }
        Mutation::SetVersioning { bucket, versioning } => buckets::set_versioning(session, *bucket, *versioning).await,
        Mutation::EnableObjectLock { bucket } => buckets::enable_object_lock(session, *bucket).await,
        Mutation::SetLock { commit } => locks::set(session, commit).await,
        Mutation::DeleteBucket { bucket, now_ms } => buckets::delete(session, *bucket, *now_ms).await,
        Mutation::PutKey { key } => keys::put(session, key).await,
        Mutation::RewrapKeys { keys } => keys::rewrap(session, keys).await,
        Mutation::RemoveKeys { bucket, epochs, .. } => keys::remove(session, *bucket, epochs).await,
        Mutation::Put { commit, modified_ms, named } => versions::put(session, seq, commit, (modified_ms, named)).await,
        Mutation::Delete { commit, removed, modified_ms, named } => {
            let choices = versions::DeleteChoices { removed, modified_ms, named };
            versions::delete(session, seq, commit, choices).await
        }
        Mutation::DeleteVersion { commit, removed } => versions::delete_version(session, commit, removed).await,
        Mutation::Rewrite { commit } => versions::rewrite(session, commit).await,
        Mutation::CreateUpload { upload } => multipart::create(session, upload).await,
        Mutation::PutPart { commit } => multipart::put_part(session, commit).await,
        Mutation::Complete { commit, modified_ms, named } => {
            multipart::complete(session, seq, commit, (modified_ms, named)).await
        }
        Mutation::Abort { bucket, key, upload, now_ms, .. } => {
            multipart::abort(session, *bucket, key, *upload, *now_ms).await
        }
        Mutation::ForgetCompletedUploads { before_ms } => multipart::forget_completed(session, *before_ms).await,
        Mutation::Cool { blob } => conversion::cool(session, *blob).await,
        Mutation::Undefer { blob } => conversion::undefer(session, *blob).await,
        Mutation::Quarantine { blob, damage, now_ms } => {
            verification::quarantine(session, *blob, damage, *now_ms).await
        }
        Mutation::EndQuarantine { blob } => verification::end_quarantine(session, *blob).await,
        Mutation::Copy { commit } => copies::set(session, commit).await,
        Mutation::Sweep { epochs, found } => trash::sweep(epochs, found),
        Mutation::Untrash { files } => trash::forget(session, files).await,
        Mutation::NoticesDone { done } => notices::done(session, done).await,
        Mutation::Purge { blob, now_ms } => blobs::purge(session, *blob, *now_ms).await,
    }
}
