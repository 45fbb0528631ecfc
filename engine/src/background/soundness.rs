//! Is the catalog's own file whole? A flipped bit in a blob's id makes a live blob look dead, so
//! nothing is collected before the database has verified its pages, its indexes against its tables,
//! and its references. It does so once after every start, in the background, while requests are
//! served.

use crate::{error::EngineError, recovery::Safety};
use catalog::Catalog;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Between two attempts to verify a catalog that cannot be asked.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Findings that are logged one by one.
const SHOWN_MAX: usize = 5;

/// What the verification came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Finding {
    /// It has not ended yet.
    #[default]
    Open,
    Sound,
    /// What is wrong, in words.
    Damaged(String),
}

/// The verification of this start.
#[derive(Default)]
pub(crate) struct Soundness(watch::Sender<Finding>);

impl Soundness {
    /// Waits until the catalog is verified.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] when it is damaged; [`EngineError::Stopped`] when `token` fires
    /// before it is known.
    pub(crate) async fn proven(&self, token: &CancellationToken) -> Result<(), EngineError> {
        let mut finding = self.0.subscribe();
        let known = tokio::select! {
            biased;
            () = token.cancelled() => return Err(EngineError::Stopped("the catalog is not verified yet")),
            known = finding.wait_for(|finding| *finding != Finding::Open) => known.map(|known| known.clone()),
        };
        match known {
            Ok(Finding::Damaged(why)) => Err(EngineError::Damaged(why)),
            Ok(_) => Ok(()),
            Err(_) => Err(EngineError::Stopped("the catalog is not verified any more")),
        }
    }
}

impl Soundness {
    /// Verifies the catalog once.
    pub(crate) async fn verify(&self, catalog: &dyn Catalog, safety: &Safety, stopping: &CancellationToken) {
        let began = tokio::time::Instant::now();
        let broken = loop {
            let verified = tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                verified = catalog.verify_storage() => verified,
            };
            match verified {
                Ok(broken) => break broken,
                Err(catalog::CatalogError::Unavailable(why)) => {
                    tracing::warn!(why, "the catalog could not be verified yet; nothing is collected meanwhile");
                    tokio::select! {
                        biased;
                        () = stopping.cancelled() => return,
                        () = tokio::time::sleep(RETRY_PAUSE) => {}
                    }
                }
                Err(error) => break vec![error.to_string()],
            }
        };
        let Some(first) = broken.first() else {
            tracing::info!(elapsed_ms = began.elapsed().as_millis() as u64, "the catalog is verified");
            self.0.send_replace(Finding::Sound);
            return;
        };
        for sentence in broken.iter().take(SHOWN_MAX) {
            tracing::error!(sentence, "the catalog is damaged");
        }
        let why = format!("{first}; {} findings in all", broken.len());
        safety.note_damage(&why);
        self.0.send_replace(Finding::Damaged(why));
    }
}
