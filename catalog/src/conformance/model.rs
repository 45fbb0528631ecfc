//! Random histories against a model of maps: after each, every row is what the model says and the
//! recount finds nothing.

use super::{
    Factory,
    desk::{Desk, NOW, all_of, unique},
    stats::sum,
};
use crate::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// One step of a history. Numbers choose among what there is, modulo how many there are.
#[derive(Clone, Debug)]
enum Step {
    Put { key: u8, content: Kind, absent: bool },
    Delete { key: u8 },
    Rewrite { key: u8, content: Kind },
    StartUpload { key: u8 },
    PutPart { upload: u8, number: u32, content: Kind },
    Complete { upload: u8, leave_out: u32 },
    Abort { upload: u8 },
    Purge { blob: u8 },
}

/// What is written.
#[derive(Clone, Debug)]
enum Kind {
    Empty,
    Whole,
    Inline,
    /// Against a blob that was chosen among all that ever were: it may be dying, gone, or a delta.
    Delta(u8),
    /// A whole and a delta against it.
    WithBase,
    /// The extents of another key.
    Copy(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let kind = || {
        prop_oneof![
            1 => Just(Kind::Empty),
            3 => Just(Kind::Whole),
            1 => Just(Kind::Inline),
            5 => any::<u8>().prop_map(Kind::Delta),
            1 => Just(Kind::WithBase),
            3 => (0u8..5).prop_map(Kind::Copy),
        ]
    };
    let key = 0u8..5;
    prop_oneof![
        6 => (key.clone(), kind(), any::<bool>()).prop_map(|(key, content, absent)| Step::Put { key, content, absent }),
        3 => key.clone().prop_map(|key| Step::Delete { key }),
        2 => (key.clone(), kind()).prop_map(|(key, content)| Step::Rewrite { key, content }),
        2 => key.prop_map(|key| Step::StartUpload { key }),
        4 => (any::<u8>(), 1u32..4, kind()).prop_map(|(upload, number, content)| Step::PutPart { upload, number, content }),
        2 => (any::<u8>(), 0u32..4).prop_map(|(upload, leave_out)| Step::Complete { upload, leave_out }),
        1 => any::<u8>().prop_map(|upload| Step::Abort { upload }),
        4 => any::<u8>().prop_map(|blob| Step::Purge { blob }),
    ]
}

/// What should be in the catalog.
#[derive(Default)]
struct Model {
    versions: BTreeMap<String, (VersionId, Vec<Extent>)>,
    uploads: BTreeMap<UploadId, (Upload, BTreeMap<u32, Part>)>,
    /// Every blob that is not purged, with its bases and stored length.
    blobs: BTreeMap<BlobKey, (BlobRow, Vec<BlobKey>)>,
    /// Every blob there ever was.
    ever: Vec<BlobKey>,
}

/// Blobs and extents of a commit.
type Written = (Vec<NewBlob>, Vec<Extent>);

impl Model {
    fn live(&self) -> BTreeSet<BlobKey> {
        let versions = self.versions.values().flat_map(|(_, extents)| extents);
        let parts = self.uploads.values().flat_map(|(_, parts)| parts.values()).flat_map(|part| &part.extents);
        let bases = self.blobs.values().flat_map(|(_, bases)| bases.iter().copied());
        versions.chain(parts).map(|extent| extent.blob).chain(bases).collect()
    }

    fn dying(&self) -> BTreeSet<BlobKey> {
        let live = self.live();
        self.blobs.keys().filter(|blob| !live.contains(blob)).copied().collect()
    }

    fn write<C: Catalog>(&self, desk: &Desk<C>, kind: &Kind) -> Written {
        let blobs = match kind {
            Kind::Empty => vec![],
            Kind::Whole => vec![desk.whole(100)],
            Kind::Inline => vec![desk.inline(&[5; 40])],
            Kind::Delta(base) if self.ever.is_empty() => vec![desk.whole(u64::from(*base) + 1)],
            Kind::Delta(base) => vec![desk.delta(90, &[self.ever[usize::from(*base) % self.ever.len()]])],
            Kind::WithBase => {
                let base = desk.whole(80);
                let delta = desk.delta(70, &[base.row.id]);
                let extents = vec![all_of(&delta.row)];
                return (vec![base, delta], extents);
            }
            Kind::Copy(key) => {
                let extents = self.versions.get(&name(*key)).map(|(_, extents)| extents.clone());
                return (vec![], extents.unwrap_or_default());
            }
        };
        let extents = blobs.iter().map(|blob| all_of(&blob.row)).collect();
        (blobs, extents)
    }

    /// Whether a commit with these blobs must go through, and else why not.
    fn verdict(&self, blobs: &[NewBlob]) -> std::result::Result<(), &'static str> {
        let live = self.live();
        for base in blobs.iter().flat_map(|blob| &blob.bases) {
            if blobs.iter().any(|blob| blob.row.id == *base) {
                continue;
            }
            match self.blobs.get(base) {
                Some((row, _)) if live.contains(base) && row.form == BlobForm::Whole => {}
                Some(_) if live.contains(base) => return Err("invalid"),
                _ => return Err("base gone"),
            }
        }
        Ok(())
    }

    fn take_in(&mut self, blobs: Vec<NewBlob>) {
        for NewBlob { row, bases, .. } in blobs {
            self.ever.push(row.id);
            self.blobs.insert(row.id, (row, bases));
        }
    }

    fn chosen_upload(&self, number: u8) -> Option<UploadId> {
        let count = self.uploads.len();
        self.uploads.keys().nth(usize::from(number) % count.max(1)).copied()
    }
}

fn name(key: u8) -> String {
    format!("key/{key}")
}

fn kind_of<T>(outcome: &Result<T>) -> std::result::Result<(), &'static str> {
    match outcome {
        Ok(_) => Ok(()),
        Err(CatalogError::Invalid(_)) => Err("invalid"),
        Err(CatalogError::BaseGone) => Err("base gone"),
        Err(CatalogError::PreconditionFailed) => Err("precondition"),
        Err(other) => panic!("{other}"),
    }
}

async fn take<C: Catalog>(desk: &Desk<C>, model: &mut Model, step: &Step) {
    let catalog = &desk.catalog;
    match step {
        Step::Put { key, content, absent } => {
            let (blobs, extents) = model.write(desk, content);
            let precondition = if *absent { Precondition::Absent } else { Precondition::None };
            let commit = PutCommit { precondition, ..desk.commit_extents(&name(*key), blobs.clone(), extents.clone()) };
            let id = commit.id;
            let mut expected = model.verdict(&blobs);
            if *absent && model.versions.contains_key(&name(*key)) {
                expected = Err("precondition");
            }
            assert_eq!(kind_of(&catalog.put(commit).await), expected);
            if expected.is_ok() {
                model.take_in(blobs);
                model.versions.insert(name(*key), (id, extents));
            }
        }
        Step::Delete { key } => {
            let removed = desk.delete(&name(*key)).await.map(|version| version.id);
            assert_eq!(removed, model.versions.remove(&name(*key)).map(|(id, _)| id));
        }
        Step::Rewrite { key, content } => {
            let Some((_, old)) = model.versions.get(&name(*key)).cloned() else { return };
            let (blobs, extents) = model.write(desk, content);
            let mut rewrite = desk.rewrite(&desk.content(&name(*key)).await, blobs.clone());
            rewrite.new_extents.clone_from(&extents);
            let len = |extents: &[Extent]| extents.iter().map(|extent| extent.len).sum::<u64>();
            let expected = if len(&old) == len(&extents) { model.verdict(&blobs) } else { Err("invalid") };
            assert_eq!(kind_of(&catalog.rewrite(rewrite).await), expected);
            if expected.is_ok() {
                model.take_in(blobs);
                model.versions.entry(name(*key)).and_modify(|version| version.1 = extents);
            }
        }
        Step::StartUpload { key } => {
            let upload = desk.start_upload(&name(*key), NOW).await;
            model.uploads.insert(upload.id, (upload, BTreeMap::new()));
        }
        Step::PutPart { upload, number, content } => {
            let Some(id) = model.chosen_upload(*upload) else { return };
            let (blobs, extents) = model.write(desk, content);
            let mut commit = desk.part(id, *number, 1);
            commit.part.size = extents.iter().map(|extent| extent.len).sum();
            commit.part.extents = extents;
            commit.new_blobs.clone_from(&blobs);
            let part = commit.part.clone();
            let expected = model.verdict(&blobs);
            assert_eq!(kind_of(&catalog.put_part(commit).await), expected);
            if expected.is_ok() {
                model.take_in(blobs);
                model.uploads.entry(id).and_modify(|upload| drop(upload.1.insert(*number, part)));
            }
        }
        Step::Complete { upload, leave_out } => complete(desk, model, *upload, *leave_out).await,
        Step::Abort { upload } => {
            let Some(id) = model.chosen_upload(*upload) else { return };
            let (row, _) = model.uploads.remove(&id).unwrap();
            assert!(catalog.abort(row.bucket, &row.key, id, desk.epoch).await.unwrap());
        }
        Step::Purge { blob } => purge(desk, model, usize::from(*blob)).await,
    }
}

async fn complete<C: Catalog>(desk: &Desk<C>, model: &mut Model, upload: u8, leave_out: u32) {
    let Some(id) = model.chosen_upload(upload) else { return };
    let (row, parts) = model.uploads.remove(&id).unwrap();
    let chosen: Vec<_> = parts.values().filter(|part| part.number != leave_out).collect();
    if chosen.is_empty() {
        model.uploads.insert(id, (row, parts));
        return;
    }
    let commit = desk.completion(&row, &chosen);
    let extents = chosen.iter().flat_map(|part| part.extents.clone()).collect();
    desk.catalog.complete(commit.clone()).await.unwrap();
    model.versions.insert(row.key, (commit.id, extents));
}

async fn purge<C: Catalog>(desk: &Desk<C>, model: &mut Model, number: usize) {
    if model.ever.is_empty() {
        return;
    }
    let blob = model.ever[number % model.ever.len()];
    let outcome = desk.catalog.purge(blob, NOW).await;
    if model.dying().contains(&blob) {
        outcome.unwrap();
        model.blobs.remove(&blob);
    } else {
        assert!(matches!(outcome, Err(CatalogError::Conflict)), "{outcome:?}");
    }
}

async fn compare<C: Catalog>(desk: &Desk<C>, model: &Model) {
    desk.assert_sound().await;
    let query = ListQuery {
        bucket: desk.bucket.id,
        prefix: "key/".into(),
        delimiter: Some("/".into()),
        after: None,
        limit: 1000,
    };
    let page = desk.catalog.list(&query).await.unwrap();
    assert_eq!(page.entries.len(), model.versions.len());
    for (key, (id, extents)) in &model.versions {
        let content = desk.content(key).await;
        assert_eq!((content.version.id, &content.extents), (*id, extents));
    }
    for (id, (upload, parts)) in &model.uploads {
        assert_eq!(desk.catalog.upload(upload.bucket, &upload.key, *id).await.unwrap().as_ref(), Some(upload));
        let found = desk.catalog.parts(*id, 0, 10_000, true).await.unwrap();
        assert!(found.iter().eq(parts.values()));
    }
    let ids: Vec<_> = model.ever.clone();
    let rows: BTreeMap<_, _> = desk.catalog.blobs(&ids).await.unwrap().into_iter().map(|row| (row.id, row)).collect();
    assert!(rows.keys().eq(model.blobs.keys()));
    let dying = model.dying();
    for (id, (row, bases)) in &model.blobs {
        let state = if dying.contains(id) { BlobState::Dying } else { BlobState::Live };
        assert_eq!(rows[id], BlobRow { state, ..row.clone() });
        assert_eq!(desk.catalog.bases_of(*id).await.unwrap(), *bases);
    }
    let stats = desk.catalog.stats().await.unwrap();
    let bucket = stats.iter().find(|bucket| bucket.name == desk.bucket.name).unwrap();
    let stored: u64 = model.blobs.values().map(|(row, _)| row.stored_len).sum();
    assert_eq!(sum(&bucket.stored), stored);
    let journal = desk.catalog.journal(0, 1_000_000).await.unwrap();
    assert!(journal.iter().map(|entry| entry.seq).eq(1..=journal.len() as Seq));
}

/// Puts, copies, deltas, deletions, rewrites, uploads and purges in any order.
pub async fn random_histories_agree_with_the_model<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let config = ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let outcome = runner.run(&proptest::collection::vec(step(), 1..60), |steps| {
            runtime.block_on(async {
                let desk = desk.with_bucket(&format!("{:?}", unique(0))).await;
                let mut model = Model::default();
                for step in &steps {
                    take(&desk, &mut model, step).await;
                }
                compare(&desk, &model).await;
            });
            Ok(())
        });
        outcome.unwrap();
    })
    .await
    .unwrap();
}
