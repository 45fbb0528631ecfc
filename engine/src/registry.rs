//! Every background job there is. Adding one is a line in [`all`].

use crate::{
    adopt::{
        eject::{EjectParameters, Ejector},
        import::{ImportParameters, Importer},
    },
    background::{
        abandoned_uploads::UploadExpiry,
        collect::{CollectParameters, Collector},
        convert::{ConvertOrder, OrderedConverter},
        converter::{Converter, ConverterParameters},
        copies::Copier,
        jobs::spec::{JobSpec, report},
        leftovers::LeftoverUploads,
        lifecycle::{self, LifecycleWorker},
        packs::Packer,
        reencrypt::{ReencryptOrder, Reencryptor},
        scrub::{ScrubParameters, Scrubber},
    },
    config::{EngineConfig, SecondCopies},
    recovery::Safety,
};
use std::{future::Future, sync::Arc, time::Duration};

/// How often uploads are looked through for those past their age.
const EXPIRY_EVERY: Duration = Duration::from_secs(3600);

/// How often backends are asked for uploads that were left behind: each asks for a listing.
const LEFTOVERS_EVERY: Duration = Duration::from_secs(86_400);

/// How often packs are looked through for those that are hardly in use; small objects do not wait
/// for it.
const PACKS_EVERY: Duration = Duration::from_secs(600);

/// How often bases are looked through for those that have come to need a second copy: each look
/// counts every edge.
const COPIES_EVERY: Duration = Duration::from_secs(600);

/// Who does the jobs.
pub(crate) struct Workers {
    pub(crate) collector: Arc<Collector>,
    pub(crate) upload_expiry: Arc<UploadExpiry>,
    pub(crate) leftovers: Arc<LeftoverUploads>,
    pub(crate) packer: Arc<Packer>,
    pub(crate) importer: Arc<Importer>,
    pub(crate) ejector: Arc<Ejector>,
    pub(crate) lifecycle: Arc<LifecycleWorker>,
    pub(crate) scrubber: Arc<Scrubber>,
    pub(crate) copier: Arc<Copier>,
    pub(crate) safety: Arc<Safety>,
    pub(crate) converter: Arc<Converter>,
    pub(crate) ordered: Arc<OrderedConverter>,
    pub(crate) reencryptor: Arc<Reencryptor>,
}

/// What waits for a worker, as its job's backlog.
fn backlog_of<W, R>(
    worker: &Arc<W>,
    ask: impl Fn(Arc<W>) -> R + Send + Sync + 'static,
) -> impl Fn() -> R + Send + Sync + 'static
where
    W: Send + Sync + 'static,
    R: Future,
{
    let worker = worker.clone();
    move || ask(worker.clone())
}

/// The jobs of a deployment.
pub(crate) fn all(config: &EngineConfig, workers: &Workers) -> Vec<JobSpec> {
    vec![
        JobSpec::of(
            &workers.collector,
            ("gc", "Deletes blobs that nothing needs.", "blobs"),
            |worker, run| async move {
                let parameters = run.parameters()?;
                report(worker.collect_once(&run, parameters).await)
            },
        )
        .takes::<CollectParameters>()
        .every(config.gc_interval)
        .at_start(),
        JobSpec::of(
            &workers.upload_expiry,
            ("uploads", "Aborts uploads past their age, forgets completed ones.", "uploads"),
            |worker, run| async move { report(worker.expire_uploads_once(&run).await) },
        )
        .every(EXPIRY_EVERY.min(config.upload_age_max))
        .at_start(),
        JobSpec::of(
            &workers.leftovers,
            ("leftovers", "Aborts multipart uploads that a process left behind in backends.", "uploads"),
            |worker, run| async move { report(worker.abort_leftovers_once(&run).await) },
        )
        .every(LEFTOVERS_EVERY)
        .at_start(),
        JobSpec::of(&workers.packer, ("pack", "Packs small objects together.", "objects"), |worker, run| async move {
            report(worker.pack_once(&run).await)
        })
        .every(PACKS_EVERY)
        .backlog(backlog_of(&workers.packer, |packer| async move { packer.backlog().await })),
        JobSpec::of(
            &workers.importer,
            ("import", "Registers the objects of a store as versions of a bucket.", "objects"),
            |worker, run| async move { report(worker.import_once(&run).await) },
        )
        .admits(&workers.importer, |importer, wanted: ImportParameters| async move { importer.admit(&wanted).await })
        .resumes(),
        JobSpec::of(
            &workers.ejector,
            ("eject", "Writes the objects of a bucket as plain files or objects.", "objects"),
            |worker, run| async move { report(worker.eject_once(&run).await) },
        )
        .admits(&workers.ejector, |ejector, wanted: EjectParameters| async move { ejector.admit(&wanted).await })
        .resumes(),
        JobSpec::of(
            &workers.lifecycle,
            ("lifecycle", "Removes objects that are due under the buckets' lifecycle rules.", "versions"),
            |worker, run| async move { report(worker.follow_lifecycles_once(&run).await) },
        )
        .every(lifecycle::interval(config.lifecycle_day)),
        scrub(config, workers),
        copies(config, workers),
        backup(config, workers),
        JobSpec::of(
            &workers.converter,
            ("converter", "Encodes stored content better while cores are idle.", "blobs"),
            |worker, run| async move { report(worker.convert_once(&run).await) },
        )
        .takes::<ConverterParameters>()
        .every(config.convert.interval)
        .backlog(backlog_of(&workers.converter, |converter| async move { converter.backlog().await })),
        JobSpec::of(
            &workers.ordered,
            ("convert", "Re-encodes a bucket or a prefix on demand.", "objects"),
            |worker, run| async move { report(worker.convert_as_ordered(&run).await) },
        )
        .admits(&workers.ordered, |worker, order: ConvertOrder| async move { worker.admit(&order).await })
        .resumes(),
        reencrypt(&workers.reencryptor),
    ]
}

pub(crate) fn reencrypt(reencryptor: &Arc<Reencryptor>) -> JobSpec {
    let about = "Seals a bucket anew, or encrypts the objects of one that does not seal.";
    JobSpec::of(reencryptor, ("reencrypt", about, "objects"), |worker, run| async move { worker.reencrypt(&run).await })
        .admits(reencryptor, |worker, order: ReencryptOrder| async move { worker.admit(&order).await })
        .resumes()
}

fn scrub(config: &EngineConfig, workers: &Workers) -> JobSpec {
    let about = "Verifies stored data and quarantines damaged blobs.";
    let spec = JobSpec::of(&workers.scrubber, ("scrub", about, "bytes"), |worker, run| async move {
        let parameters = run.parameters()?;
        worker.scrub_once(&run, parameters).await
    })
    .takes::<ScrubParameters>()
    .resumes();
    match config.scrub.interval {
        Some(interval) => spec.every(interval),
        None => spec,
    }
}

fn copies(config: &EngineConfig, workers: &Workers) -> JobSpec {
    let about = "Makes second copies of blobs that many objects or deltas need.";
    let job = JobSpec::of(&workers.copier, ("copies", about, "blobs"), |worker, run| async move {
        report(worker.copy_bases_once(&run).await)
    });
    match (config.base_copies, config.second_copies) {
        (0, SecondCopies::None) => job,
        _ => job.every(COPIES_EVERY),
    }
}

fn backup(config: &EngineConfig, workers: &Workers) -> JobSpec {
    let about = "Makes a backup of the catalog and removes those past their retention.";
    let job =
        JobSpec::of(
            &workers.safety,
            ("backup", about, "backups"),
            |safety, _| async move { report(safety.backup().await) },
        );
    match config.safety.backup_interval {
        Some(interval) => job.every(interval),
        None => job,
    }
}
