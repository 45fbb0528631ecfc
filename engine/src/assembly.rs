//! Putting the engine together: what everything stands on, the paths of requests over it, and who
//! does the jobs.

use crate::{
    adopt::{
        eject::{Ejector, outcome::ObjectReader},
        import::Importer,
    },
    background::{
        abandoned_uploads::UploadExpiry,
        collect::Collector,
        convert::OrderedConverter,
        converter::{
            Converter, ConverterMemory,
            merge::{Merger, memory::MergeMemory},
            round::Allowance,
        },
        copies::Copier,
        jobs::{Jobs, spec::JobSpec},
        leftovers::LeftoverUploads,
        lifecycle::LifecycleWorker,
        looks::Looks,
        notify::{Courier, Deliverer},
        packs::Packer,
        reencode::Reencoder,
        reencrypt::Reencryptor,
        remnants::Remnants,
        scrub::{Scrubber, affected::Quarantines},
        settling::Settling,
        soundness::Soundness,
        sweep::Sweeper,
    },
    bases::{base::Bases, hook_queue::HookQueue, window::Windows},
    blobs::{
        caches::CacheBytes,
        open::{Blobs, Reads},
        originals::Originals,
        pins::Pins,
        stores::Stores,
    },
    bucket::{Buckets, notify::Notifier},
    config::EngineConfig,
    deployment::{
        keyring::Keyring,
        ownership::{Deployment, Places, Strangers},
        writer::Writer,
    },
    error::EngineError,
    metrics::Metrics,
    read::{adoption::Adopter, base_rows::base_rows, counts::ReadCounts, heat::Heat, object::ReadPath},
    recovery::Safety,
    registry::Workers,
    report::{History, Reports},
    resources::{
        budget::MemoryBudget,
        buffers,
        disks::Disks,
        files::make_private_dir,
        md5_lanes::Md5Lanes,
        pool::{CODEC_THREAD_BYTES, CodecPool, PoolKind},
    },
    write::{
        change::Changes,
        effort,
        finish::Finisher,
        open_uploads::OpenUploads,
        parts::{PartsSeen, Uploads},
        publish::Publisher,
        spool::Spool,
        stage::{Stager, encoding::Encoder},
        views::BaseViews,
    },
};
use catalog::Catalog;
use object_format::SEGMENT_LEN;
use std::{collections::BTreeMap, sync::Arc};
use storage_backends::{Backend, UnfinishedUploads};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// What everything stands on: the stores, open and ours, keys, threads and memory.
pub(crate) struct Foundation {
    pub(crate) config: EngineConfig,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) alone: bool,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) unfinished: BTreeMap<String, Arc<dyn UnfinishedUploads>>,
    pub(crate) originals: Arc<Originals>,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) safety: Arc<Safety>,
    pub(crate) soundness: Arc<Soundness>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) pool: Arc<CodecPool>,
    pub(crate) hash_pool: Arc<CodecPool>,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) spool: Arc<Spool>,
    pub(crate) bases: Arc<Bases>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) hooks: Arc<HookQueue>,
    pub(crate) heat: Arc<Heat>,
    pub(crate) settling: Arc<Settling>,
    pub(crate) looks: Arc<Looks>,
    pub(crate) stopping: CancellationToken,
    pub(crate) metrics: Arc<Metrics>,
}

impl Foundation {
    /// Opens keys and caches over stores that are open, and makes sure that these are ours.
    ///
    /// # Errors
    /// As [`crate::Engine::open`].
    pub(crate) async fn lay(
        mut config: EngineConfig,
        stores: Stores,
        metrics: Arc<Metrics>,
    ) -> Result<Self, EngineError> {
        make_private_dir(&config.data)?;
        let Stores { catalog, alone, backends, directories, reserves, unfinished, originals, anchor } = stores;
        let keyring = Arc::new(Keyring::open(&config.data.clone(), config.take_keys(), &metrics)?);
        keyring.meet_providers(&*catalog, alone).await?;
        keyring.check(&*catalog).await?;
        let threads =
            config.codec_threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from));
        let threads = threads_within(config.memory_bytes_max, threads);
        metrics.codec_threads.with_label_values(&["total"]).set(i64::try_from(threads).unwrap_or(0));
        let pool = Arc::new(CodecPool::new(threads, PoolKind::Codec, &metrics)?);
        let hash_pool = Arc::new(CodecPool::new(threads, PoolKind::Hash, &metrics)?);
        let spool = Arc::new(Spool::new(&config.data, config.spool_bytes_max, metrics.clone())?);
        let budget = Arc::new(MemoryBudget::new(config.memory_bytes_max, metrics.clone()));
        let cache_bytes = divide(&budget, &pool, threads);
        let keeper = backends.get(&config.safety.backend).cloned();
        let keeper = keeper
            .ok_or_else(|| EngineError::Other(format!("backend {:?} is not configured", config.safety.backend)))?;
        let (shipped, keys, memory) = (catalog.clone(), keyring.clone(), Some(budget.clone()));
        let safety = Safety::new(config.safety.clone(), shipped, keeper, keys, pool.clone(), memory, metrics.clone());
        let safety = Arc::new(safety.anchored(anchor)?);
        if let Some(reserve) = reserves.backends.get(&config.safety.backend) {
            safety.spare(reserve.clone());
        }
        claim(&config, &*catalog, &safety, &backends, |name| directories.contains_key(name)).await?;
        catalog.acknowledge_behind(safety.gate());
        let blobs =
            Arc::new(Blobs::new(backends, Reads::Either(catalog.clone()), cache_bytes, pool.clone(), metrics.clone()));
        let windows = Windows::new(budget.clone(), blobs.clone(), pool.clone());
        let pins = Arc::<Pins>::default();
        let bases =
            Arc::new(Bases::new(catalog.clone(), blobs.clone(), windows, pins.clone(), pool.clone(), metrics.clone()));
        let disks = Arc::new(Disks::new(config.data.clone(), directories, reserves, metrics.clone()));
        let writer = Arc::new(Writer::open(catalog.clone(), config.writer_lease, metrics.clone()).await?);
        Ok(Self {
            config,
            alone,
            blobs,
            disks,
            unfinished,
            originals: Arc::new(originals),
            keyring,
            safety,
            soundness: Arc::default(),
            writer,
            pool,
            hash_pool,
            budget,
            spool,
            bases,
            pins,
            hooks: Arc::new(HookQueue::start(catalog.clone())),
            catalog,
            heat: Arc::default(),
            settling: Arc::default(),
            looks: Arc::default(),
            stopping: CancellationToken::new(),
            metrics,
        })
    }
}

/// Divides the memory between caches, threads and requests; gives what the caches may take.
fn divide(budget: &MemoryBudget, pool: &CodecPool, threads: usize) -> CacheBytes {
    let cache_bytes = CacheBytes::of(budget.bytes_max());
    let buffers = buffers::buffers_of(budget.bytes_max(), threads);
    pool.shelf().keep(buffers);
    budget.divide(
        cache_bytes.charged()
            + BaseViews::scan_bytes_max(budget.bytes_max())
            + CODEC_THREAD_BYTES * threads as u64
            + (buffers * SEGMENT_LEN) as u64,
    );
    cache_bytes
}

/// Makes sure that the stores are this deployment's and no older than the catalog, and watches them
/// from now on.
async fn claim(
    config: &EngineConfig,
    catalog: &dyn Catalog,
    safety: &Safety,
    backends: &BTreeMap<String, Arc<dyn Backend>>,
    is_local: impl Fn(&str) -> bool,
) -> Result<(), EngineError> {
    safety.check_anchor(backends).await?;
    let strangers = if config.safety.accept_older_catalog { Strangers::Replace } else { Strangers::Refuse };
    let (deployment, is_new) = Deployment::of(catalog).await?;
    if strangers == Strangers::Refuse && !is_new {
        Deployment::refuse_empty(catalog, backends).await?;
    }
    deployment.own(backends, strangers).await?;
    let places = Places::new(deployment, backends, is_local);
    places.lost().await?.map_or(Ok(()), |lost| Err(lost.why))?;
    safety.watch(places);
    Ok(())
}

/// The paths of requests.
pub(crate) struct Paths {
    pub(crate) adopter: Arc<Adopter>,
    pub(crate) buckets: Arc<Buckets>,
    pub(crate) read: Arc<ReadPath>,
    pub(crate) views: Arc<BaseViews>,
    pub(crate) stager: Arc<Stager>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) uploads: Arc<Uploads>,
    pub(crate) changes: Arc<Changes>,
    pub(crate) notifier: Arc<Notifier>,
}

impl Paths {
    pub(crate) fn over(foundation: &Foundation) -> Self {
        let Foundation { config, catalog, blobs, disks, originals, keyring, safety, writer, .. } = foundation;
        let Foundation { pool, hash_pool, budget, spool, bases, pins, hooks, metrics, .. } = foundation;
        let adopter = Arc::new(Adopter::new(catalog.clone(), originals.clone(), writer.clone()));
        let notifier = Arc::new(Notifier::new(config.notify.clone()));
        let buckets = Arc::new(Buckets::new(
            config,
            catalog.clone(),
            blobs.clone(),
            keyring.clone(),
            writer.clone(),
            metrics.clone(),
        ));
        let read = read_path(foundation, &adopter);
        let parts_seen = Arc::<PartsSeen>::default();
        let encoder = Arc::new(Encoder {
            blobs: blobs.clone(),
            bases: bases.clone(),
            pool: pool.clone(),
            writer: writer.clone(),
            effort: effort::Shared::default(),
            metrics: metrics.clone(),
        });
        let stager = Arc::new(Stager {
            defer: config.convert.defer,
            effort_by_load: config.effort_by_load,
            encoder,
            hash_pool: hash_pool.clone(),
            md5_lanes: Arc::new(Md5Lanes::new(hash_pool.clone())),
            budget: budget.clone(),
            spool: spool.clone(),
            disks: disks.clone(),
            safety: safety.clone(),
            parts_seen: parts_seen.clone(),
        });
        let finisher = Arc::new(Finisher {
            stager: stager.clone(),
            read: read.clone(),
            catalog: catalog.clone(),
            blobs: blobs.clone(),
        });
        let publisher = Arc::new(Publisher {
            finisher,
            catalog: catalog.clone(),
            writer: writer.clone(),
            hooks: hooks.clone(),
            parts_seen: parts_seen.clone(),
            notifier: notifier.clone(),
            metrics: metrics.clone(),
        });
        let uploads = Arc::new(Uploads {
            catalog: catalog.clone(),
            open: OpenUploads::new(config.open_uploads_per_user_max),
            parts_seen,
            writer: writer.clone(),
        });
        let changes = Arc::new(Changes {
            catalog: catalog.clone(),
            read: read.clone(),
            writer: writer.clone(),
            notifier: notifier.clone(),
        });
        let views = Arc::new(BaseViews::new(
            read.clone(),
            bases.clone(),
            blobs.clone(),
            pins.clone(),
            (pool.clone(), hash_pool.clone()),
            budget.clone(),
        ));
        Self { adopter, buckets, read, views, stager, publisher, uploads, changes, notifier }
    }
}

fn read_path(foundation: &Foundation, adopter: &Arc<Adopter>) -> Arc<ReadPath> {
    let Foundation { catalog, blobs, pins, heat, budget, pool, originals, metrics, .. } = foundation;
    Arc::new(ReadPath {
        catalog: catalog.clone(),
        blobs: blobs.clone(),
        base_rows: base_rows(CacheBytes::of(budget.bytes_max()).tables, metrics),
        pins: pins.clone(),
        heat: heat.clone(),
        counts: ReadCounts::default(),
        budget: budget.clone(),
        pool: pool.clone(),
        originals: originals.clone(),
        adopter: adopter.clone(),
        metrics: metrics.clone(),
    })
}

/// Who does the jobs.
pub(crate) fn workers(foundation: &Foundation, paths: &Paths) -> Workers {
    let Foundation { config, catalog, blobs, disks, originals, safety, writer, .. } = foundation;
    let Foundation { hash_pool, budget, pins, soundness, alone, metrics, .. } = foundation;
    let Paths { adopter, buckets, read, uploads, changes, .. } = paths;
    let copier = copier(foundation, paths);
    let (converter, ordered) = converters(foundation, paths);
    let sweeper = Sweeper {
        catalog: catalog.clone(),
        blobs: blobs.clone(),
        pins: pins.clone(),
        disks: disks.clone(),
        safety: safety.clone(),
        metrics: metrics.clone(),
    };
    let remnants = Arc::new(Remnants { catalog: catalog.clone(), safety: safety.clone() });
    let reader = ObjectReader { read: read.clone(), budget: budget.clone(), hash_pool: hash_pool.clone() };
    Workers {
        collector: Arc::new(Collector {
            grace: config.gc_grace,
            trash_kept: config.gc_trash,
            alone: *alone,
            catalog: catalog.clone(),
            blobs: blobs.clone(),
            originals: originals.clone(),
            pins: pins.clone(),
            disks: disks.clone(),
            safety: safety.clone(),
            soundness: soundness.clone(),
            remnants: remnants.clone(),
            sweeper,
            writer: writer.clone(),
            metrics: metrics.clone(),
        }),
        upload_expiry: Arc::new(UploadExpiry {
            age_max: config.upload_age_max,
            catalog: catalog.clone(),
            writer: writer.clone(),
        }),
        leftovers: Arc::new(LeftoverUploads {
            age_min: config.unfinished_age,
            unfinished: foundation.unfinished.clone(),
            catalog: catalog.clone(),
            safety: safety.clone(),
            writer: writer.clone(),
            metrics: metrics.clone(),
        }),
        packer: packer(foundation, paths, &copier),
        importer: Arc::new(Importer {
            catalog: catalog.clone(),
            buckets: buckets.clone(),
            read: read.clone(),
            originals: originals.clone(),
            adopter: adopter.clone(),
            budget: budget.clone(),
        }),
        ejector: Arc::new(Ejector {
            roots: config.eject_roots.clone(),
            catalog: catalog.clone(),
            buckets: buckets.clone(),
            originals: originals.clone(),
            reader,
        }),
        lifecycle: Arc::new(LifecycleWorker {
            day: config.lifecycle_day,
            catalog: catalog.clone(),
            buckets: buckets.clone(),
            read: read.clone(),
            changes: changes.clone(),
            uploads: uploads.clone(),
        }),
        scrubber: scrubber(foundation, paths, &copier),
        copier,
        safety: safety.clone(),
        reencryptor: Arc::new(Reencryptor::new(&ordered, remnants, config.content_keys.clone(), *alone)),
        converter,
        ordered,
    }
}

fn copier(foundation: &Foundation, paths: &Paths) -> Arc<Copier> {
    let Foundation { config, catalog, blobs, disks, safety, writer, .. } = foundation;
    let Foundation { hash_pool, budget, pins, looks, metrics, .. } = foundation;
    let buckets = &paths.buckets;
    Arc::new(Copier {
        base_copies: config.base_copies,
        second_copies: config.second_copies,
        bytes_per_second: config.scrub.bytes_per_second,
        catalog: catalog.clone(),
        blobs: blobs.clone(),
        buckets: buckets.clone(),
        pins: pins.clone(),
        disks: disks.clone(),
        safety: safety.clone(),
        writer: writer.clone(),
        budget: budget.clone(),
        hash_pool: hash_pool.clone(),
        looks: looks.clone(),
        metrics: metrics.clone(),
    })
}

fn scrubber(foundation: &Foundation, paths: &Paths, copier: &Arc<Copier>) -> Arc<Scrubber> {
    let Foundation { config, catalog, blobs, keyring, safety, hash_pool, budget, pins, metrics, .. } = foundation;
    let buckets = &paths.buckets;
    Arc::new(Scrubber {
        defaults: config.scrub.clone(),
        catalog: catalog.clone(),
        blobs: blobs.clone(),
        buckets: buckets.clone(),
        pins: pins.clone(),
        keyring: keyring.clone(),
        safety: safety.clone(),
        copier: copier.clone(),
        quarantines: Arc::new(Quarantines { catalog: catalog.clone(), metrics: metrics.clone() }),
        budget: budget.clone(),
        hash_pool: hash_pool.clone(),
        metrics: metrics.clone(),
    })
}

fn packer(foundation: &Foundation, paths: &Paths, copier: &Arc<Copier>) -> Arc<Packer> {
    let Foundation { catalog, blobs, writer, pool, budget, looks, settling, stopping, metrics, .. } = foundation;
    let Paths { buckets, read, publisher, .. } = paths;
    Arc::new(Packer {
        catalog: catalog.clone(),
        blobs: blobs.clone(),
        buckets: buckets.clone(),
        read: read.clone(),
        publisher: publisher.clone(),
        copier: copier.clone(),
        writer: writer.clone(),
        pool: pool.clone(),
        budget: budget.clone(),
        looks: looks.clone(),
        settling: settling.clone(),
        stopping: stopping.clone(),
        metrics: metrics.clone(),
    })
}

/// The converter, and the one that works by order.
fn converters(foundation: &Foundation, paths: &Paths) -> (Arc<Converter>, Arc<OrderedConverter>) {
    let Foundation { config, catalog, blobs, bases, keyring, writer, pool, .. } = foundation;
    let Foundation { hash_pool, hooks, heat, disks, settling, metrics, .. } = foundation;
    let Paths { buckets, read, views, stager, publisher, .. } = paths;
    let reencoder = Arc::new(Reencoder {
        catalog: catalog.clone(),
        blobs: blobs.clone(),
        bases: bases.clone(),
        read: read.clone(),
        stager: stager.clone(),
        publisher: publisher.clone(),
        views: views.clone(),
        writer: writer.clone(),
        hooks: hooks.clone(),
        hash_pool: hash_pool.clone(),
        opened: Default::default(),
    });
    let allowance = Arc::new(Allowance {
        config: config.convert.clone(),
        disks: disks.clone(),
        pool: pool.clone(),
        settling: settling.clone(),
    });
    let merger = Arc::new(Merger {
        catalog: catalog.clone(),
        blobs: blobs.clone(),
        bases: bases.clone(),
        buckets: buckets.clone(),
        read: read.clone(),
        stager: stager.clone(),
        publisher: publisher.clone(),
        reencoder: reencoder.clone(),
        writer: writer.clone(),
        hooks: hooks.clone(),
        heat: heat.clone(),
        allowance: allowance.clone(),
        memory: MergeMemory::default(),
        metrics: metrics.clone(),
    });
    let converter = Arc::new(Converter {
        catalog: catalog.clone(),
        buckets: buckets.clone(),
        reencoder,
        merger,
        allowance,
        heat: heat.clone(),
        memory: ConverterMemory::default(),
        looks: foundation.looks.clone(),
        metrics: metrics.clone(),
    });
    let ordered = Arc::new(OrderedConverter {
        bytes_per_second_max: config.convert.bytes_per_second_max,
        catalog: catalog.clone(),
        blobs: blobs.clone(),
        buckets: buckets.clone(),
        keyring: keyring.clone(),
        writer: writer.clone(),
        converter: converter.clone(),
        uploads: paths.uploads.clone(),
    });
    (converter, ordered)
}

/// Who delivers events.
pub(crate) fn deliverer(
    foundation: &Foundation,
    buckets: &Arc<Buckets>,
    notifier: &Arc<Notifier>,
    courier: Arc<dyn Courier>,
) -> Arc<Deliverer> {
    let Foundation { catalog, alone, writer, stopping, metrics, .. } = foundation;
    Arc::new(Deliverer {
        alone: *alone,
        catalog: catalog.clone(),
        buckets: buckets.clone(),
        notifier: notifier.clone(),
        writer: writer.clone(),
        stopping: stopping.clone(),
        metrics: metrics.clone(),
        courier,
    })
}

/// The jobs of this process.
pub(crate) fn jobs(foundation: &Foundation, specs: Vec<JobSpec>, tasks: TaskTracker) -> Jobs {
    let Foundation { catalog, writer, hooks, settling, stopping, metrics, .. } = foundation;
    Jobs::new(
        specs,
        catalog.clone(),
        writer.clone(),
        hooks.clone(),
        settling.clone(),
        tasks,
        stopping.clone(),
        metrics.clone(),
    )
}

/// What operators ask for.
pub(crate) fn reports(foundation: &Foundation, paths: &Paths) -> Reports {
    let Foundation { config, catalog, blobs, metrics, .. } = foundation;
    Reports {
        configured: config.buckets.keys().cloned().collect(),
        catalog: catalog.clone(),
        blobs: blobs.clone(),
        buckets: paths.buckets.clone(),
        read: paths.read.clone(),
        views: paths.views.clone(),
        looking_inside: tokio::sync::Mutex::default(),
        looks: foundation.looks.clone(),
        budget: foundation.budget.clone(),
        history: History::default(),
        counting: tokio::sync::Mutex::default(),
        day: config.lifecycle_day,
        metrics: metrics.clone(),
    }
}

/// As many codec threads as a budget has room for, at least one: besides their work memory and the
/// caches, five eighths are for requests.
fn threads_within(memory_bytes_max: u64, wanted: usize) -> usize {
    let room = memory_bytes_max / 4 / CODEC_THREAD_BYTES;
    let threads = wanted.min(usize::try_from(room).unwrap_or(usize::MAX)).max(1);
    if threads < wanted {
        tracing::warn!(
            wanted,
            threads,
            memory_bytes_max,
            "the memory budget has no room for so many codec threads: fewer are used"
        );
    }
    threads
}
