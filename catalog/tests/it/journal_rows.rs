//! The journal's format is a promise: rows shipped by one version are replayed by all later ones.

use catalog::Mutation;

/// One row of each kind, as written by the first version.
const ROWS: &str = include_str!("journal_rows.jsonl");

/// The page that documents them.
const REFERENCE: &str = include_str!("../../../docs/reference/catalog.md");

fn rows() -> Vec<(String, serde_json::Value)> {
    let row = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let kind = value.as_object().unwrap().keys().next().unwrap().clone();
        (kind, value)
    };
    ROWS.lines().map(row).collect()
}

#[test]
fn rows_of_the_first_version_are_read_and_written_as_they_were() {
    for (kind, value) in rows() {
        let mutation: Mutation =
            serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(serde_json::to_value(&mutation).unwrap(), value);
    }
}

#[test]
fn every_kind_of_mutation_has_a_row_here_and_a_line_in_the_reference() {
    // A new kind does not compile until it is named here.
    let name = |mutation: &Mutation| match mutation {
        Mutation::OpenEpoch { .. } => "OpenEpoch",
        Mutation::CloseEpochs { .. } => "CloseEpochs",
        Mutation::PutSetting { .. } => "PutSetting",
        Mutation::ChangeAccounts { .. } => "ChangeAccounts",
        Mutation::CreateBucket { .. } => "CreateBucket",
        Mutation::SetBucketSettings { .. } => "SetBucketSettings",
        Mutation::SetVersioning { .. } => "SetVersioning",
        Mutation::EnableObjectLock { .. } => "EnableObjectLock",
        Mutation::SetLock { .. } => "SetLock",
        Mutation::DeleteBucket { .. } => "DeleteBucket",
        Mutation::PutKey { .. } => "PutKey",
        Mutation::RewrapKeys { .. } => "RewrapKeys",
        Mutation::RemoveKeys { .. } => "RemoveKeys",
        Mutation::Put { .. } => "Put",
        Mutation::Delete { .. } => "Delete",
        Mutation::DeleteVersion { .. } => "DeleteVersion",
        Mutation::Rewrite { .. } => "Rewrite",
        Mutation::CreateUpload { .. } => "CreateUpload",
        Mutation::PutPart { .. } => "PutPart",
        Mutation::Complete { .. } => "Complete",
        Mutation::Abort { .. } => "Abort",
        Mutation::ForgetCompletedUploads { .. } => "ForgetCompletedUploads",
        Mutation::Undefer { .. } => "Undefer",
        Mutation::Cool { .. } => "Cool",
        Mutation::Quarantine { .. } => "Quarantine",
        Mutation::EndQuarantine { .. } => "EndQuarantine",
        Mutation::Copy { .. } => "Copy",
        Mutation::Sweep { .. } => "Sweep",
        Mutation::Untrash { .. } => "Untrash",
        Mutation::NoticesDone { .. } => "NoticesDone",
        Mutation::Purge { .. } => "Purge",
    };
    let rows = rows();
    assert_eq!(rows.iter().map(|(kind, _)| kind).collect::<std::collections::BTreeSet<_>>().len(), 31);
    for (kind, value) in rows {
        assert_eq!(name(&serde_json::from_value(value).unwrap()), kind);
        assert!(REFERENCE.contains(&format!("| `{kind}` |")), "{kind} is not in the reference");
    }
}

#[test]
fn a_row_with_a_short_id_or_bad_base64_is_refused() {
    let (_, put) = rows().into_iter().find(|(kind, _)| kind == "Put").unwrap();
    for (place, wrong) in [
        ("/Put/commit/id", "00"),
        ("/Put/commit/id", "zz"),
        ("/Put/commit/facts", "a"),
        ("/Put/commit/extents_digest", "0000"),
    ] {
        let mut row = put.clone();
        *row.pointer_mut(place).unwrap() = wrong.into();
        assert!(serde_json::from_value::<Mutation>(row).is_err(), "{place} = {wrong:?}");
    }
}
