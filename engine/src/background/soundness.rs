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
        let broken = tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            broken = findings(|| catalog.verify_storage()) => broken,
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

/// What is wrong, once that is known. What is found once is looked for again: a page that the disk
/// did not give looks damaged as well.
async fn findings<F>(mut verify: impl FnMut() -> F) -> Vec<String>
where
    F: Future<Output = catalog::Result<Vec<String>>>,
{
    let mut is_second = false;
    loop {
        let broken = match verify().await {
            Ok(broken) => broken,
            Err(catalog::CatalogError::Unavailable(why)) => {
                tracing::warn!(why, "the catalog could not be verified yet; nothing is collected meanwhile");
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            }
            Err(error) => vec![error.to_string()],
        };
        match broken.first() {
            Some(sentence) if !is_second => {
                tracing::warn!(sentence, "the catalog looks damaged, and is verified again")
            }
            _ => return broken,
        }
        is_second = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::CatalogError;

    /// What comes of these answers, and how many of them were asked for.
    async fn found(answers: Vec<catalog::Result<Vec<String>>>) -> (usize, usize) {
        let (mut answers, mut asked) = (answers.into_iter(), 0);
        let broken = findings(|| {
            asked += 1;
            std::future::ready(answers.next().unwrap())
        })
        .await;
        (broken.len(), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn damage_is_believed_when_it_is_found_twice() {
        let page = || Ok(vec!["unable to get the page. error code=8458".to_owned()]);
        let damaged = || Err(CatalogError::Damaged("malformed".into()));
        let away = || Err(CatalogError::Unavailable("disk I/O error".into()));
        assert_eq!(found(vec![Ok(Vec::new())]).await, (0, 1));
        assert_eq!(found(vec![page(), Ok(Vec::new())]).await, (0, 2));
        assert_eq!(found(vec![away(), damaged(), away(), Ok(Vec::new())]).await, (0, 4));
        assert_eq!(found(vec![page(), damaged()]).await, (1, 2));
    }
}
