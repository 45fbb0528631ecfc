//! The accounts of a deployment, live: those of the catalog, and with them what the configuration
//! file has and the catalog lacks. Whoever changes them here sees the change at once; other
//! processes ask the catalog for its version twice a second, and serve nobody but root when it does
//! not answer for [`LAPSES_AFTER`] (docs/decisions/0034-accounts-in-the-catalog.md).

mod directory;
mod entries;
mod names;
mod refusal;
mod seed;

pub use directory::{Directory, Holder, NewKey, NewUser};
pub use names::{check_access_key, check_secret};
pub use refusal::Refusal;

use super::{
    freshness::Freshness,
    users::{Credentials, RoleConfig, UserConfig, Users},
};
use arc_swap::ArcSwap;
use engine::{AccountName, Accounts as Store, EngineError};
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thiserror::Error;
use tokio::sync::Mutex;

/// How often the catalog is asked whether somebody changed accounts. Each time costs one row.
const ASKED_EVERY: Duration = Duration::from_millis(500);
/// How long one question may take.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long accounts count without an answer of the catalog.
const LAPSES_AFTER: Duration = Duration::from_secs(5);
/// How often a change is tried against changes by others.
const CHANGES_MAX: usize = 16;

/// What the configuration says about accounts.
#[derive(Default)]
pub struct FileAccounts {
    /// The key pair of root.
    pub root: Option<Credentials>,
    /// Users.
    pub users: Vec<UserConfig>,
    /// Roles.
    pub roles: Vec<RoleConfig>,
}

/// Why accounts were not changed.
#[derive(Debug, Error)]
pub enum ChangeError {
    /// It cannot be done.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The catalog did not do it.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Accounts as they are now.
pub struct Accounts {
    store: Arc<Store>,
    state: Mutex<State>,
    users: ArcSwap<Users>,
    freshness: Arc<Freshness>,
}

struct State {
    file: FileAccounts,
    catalog: Catalogued,
}

/// What the catalog has.
#[derive(Default)]
struct Catalogued {
    version: i64,
    directory: Directory,
    /// To be sealed anew.
    outdated: BTreeSet<AccountName>,
    /// Those of them that nobody can open any more.
    lost: BTreeSet<AccountName>,
}

impl Accounts {
    /// Reads them.
    ///
    /// # Errors
    /// What the catalog says; a row that is not what was sealed, or sealed under a KEK that was not
    /// given.
    pub async fn open(store: Arc<Store>, file: FileAccounts) -> Result<Arc<Self>, EngineError> {
        let freshness = Freshness::new(store.may_change_elsewhere().then_some(LAPSES_AFTER));
        let catalog = Catalogued::read(&store).await?;
        if !catalog.lost.is_empty() {
            let lost: Vec<_> = catalog.lost.iter().map(|lost| lost.name.as_str()).collect();
            tracing::error!(?lost, "accounts in the catalog are sealed under a lost KEK: create them again");
        }
        let state = State { file, catalog };
        let freshness = Arc::new(freshness);
        let users = ArcSwap::from_pointee(state.users(&freshness));
        Ok(Arc::new(Self { store, state: Mutex::new(state), users, freshness }))
    }

    /// Users as they are now.
    pub fn users(&self) -> Arc<Users> {
        self.users.load_full()
    }

    /// Users, groups, policies and keys as they are now.
    ///
    /// # Errors
    /// What the catalog says when it is asked for changes by others.
    pub async fn directory(&self) -> Result<Directory, EngineError> {
        let mut state = self.state.lock().await;
        self.follow(&mut state).await?;
        Ok(state.merged().0)
    }

    /// Puts other accounts of the configuration in the place of those of before. The catalog's
    /// count as before; what it lacks is added to it by [`Accounts::seed`].
    pub async fn replace_file(&self, file: FileAccounts) {
        let mut state = self.state.lock().await;
        state.file = file;
        self.show(&state);
    }

    /// The access key of root, which is nobody else's.
    pub async fn root_key(&self) -> Option<String> {
        self.state.lock().await.file.root.as_ref().map(|root| root.access_key_id.clone())
    }

    /// Adds to the catalog what the file has and the catalog lacks, and warns where they differ.
    /// Gives the names of the users that were added. When the catalog takes nothing, the file's
    /// users count all the same, and the next time tries again.
    pub async fn seed(&self) -> Vec<String> {
        let warnings = self.state.lock().await.merged().1;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        if !self.store.can_be_kept() {
            return Vec::new();
        }
        let known: BTreeSet<_> = self.state.lock().await.catalog.directory.user_names().map(str::to_owned).collect();
        let added = self.change(|directory| Ok(directory.user_names().map(str::to_owned).collect::<Vec<_>>())).await;
        match added {
            Ok(names) => names.into_iter().filter(|name| !known.contains(name)).collect(),
            Err(error) => {
                tracing::warn!(%error, "the users of the configuration file are not in the catalog yet");
                Vec::new()
            }
        }
    }

    /// Changes accounts: durable, and in force in this process, when it returns. `edit` may be
    /// called several times: somebody else may be faster.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub async fn change<T>(&self, edit: impl Fn(&mut Directory) -> Result<T, Refusal>) -> Result<T, ChangeError> {
        if !self.store.can_be_kept() {
            return Err(Refusal::NoKek.into());
        }
        let mut state = self.state.lock().await;
        for _ in 0..CHANGES_MAX {
            self.follow(&mut state).await?;
            let (mut directory, _) = state.merged();
            let told = edit(&mut directory)?;
            let catalog = &state.catalog;
            let write = directory.difference(&catalog.directory, &catalog.outdated, &catalog.lost)?;
            if write.creates.is_empty() && write.replaces.is_empty() && write.removes.is_empty() {
                return Ok(told);
            }
            match self.store.change(catalog.version, &write).await {
                Ok(None) => {}
                Ok(Some(version)) => {
                    let Catalogued { outdated, mut lost, .. } = std::mem::take(&mut state.catalog);
                    lost.retain(|name| !write.replaces.iter().any(|record| record.name == *name));
                    let outdated = outdated.intersection(&lost).cloned().collect();
                    state.catalog = Catalogued { version, directory, outdated, lost };
                    self.show(&state);
                    return Ok(told);
                }
                Err(error) => {
                    // It may have been carried out all the same.
                    let _ = self.follow(&mut state).await;
                    return Err(error.into());
                }
            }
        }
        Err(EngineError::Busy("others keep changing accounts").into())
    }

    /// Follows changes by other processes until this one ends. Returns at once where there are
    /// none.
    pub async fn keep_fresh(self: Arc<Self>) {
        if !self.store.may_change_elsewhere() {
            return;
        }
        let mut ticks = tokio::time::interval(ASKED_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut is_known = true;
        loop {
            ticks.tick().await;
            let asked = tokio::time::timeout(ANSWER_MAX, async { self.follow(&mut *self.state.lock().await).await });
            let why = match asked.await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("no answer in time".to_owned()),
            };
            match &why {
                Some(why) if is_known => {
                    tracing::warn!(
                        why,
                        "the catalog does not answer whether accounts have changed: soon only root is served"
                    );
                }
                None if !is_known => tracing::info!("the catalog answers again whether accounts have changed"),
                _ => {}
            }
            is_known = why.is_none();
        }
    }

    /// Takes over what others have changed. What is known is never replaced by what was before it.
    async fn follow(&self, state: &mut State) -> Result<(), EngineError> {
        let asked = std::time::Instant::now();
        let version = self.store.version().await?;
        if version > state.catalog.version {
            let newer = Catalogued::read(&self.store).await?;
            if newer.version < version {
                return Err(went_back());
            }
            state.catalog = newer;
            self.show(state);
        } else if version < state.catalog.version {
            return Err(went_back());
        }
        self.freshness.confirm(asked);
        Ok(())
    }

    fn show(&self, state: &State) {
        self.users.store(Arc::new(state.users(&self.freshness)));
    }
}

fn went_back() -> EngineError {
    EngineError::Unavailable("the catalog's accounts are older than those that are in force".into())
}

impl State {
    /// The catalog's accounts with what the file has and the catalog lacks, and where they differ.
    fn merged(&self) -> (Directory, Vec<String>) {
        let mut directory = self.catalog.directory.clone();
        let warnings = seed::seed(&mut directory, &self.file.users, now_ms());
        (directory, warnings)
    }

    fn users(&self, freshness: &Arc<Freshness>) -> Users {
        let (directory, _) = self.merged();
        let users = Users::of(self.file.root.clone(), directory.accounts(), freshness.clone());
        users.with_roles(self.file.roles.clone())
    }
}

impl Catalogued {
    async fn read(store: &Store) -> Result<Self, EngineError> {
        let found = store.load().await?;
        Ok(Self {
            version: found.version,
            directory: Directory::read(found.records)?,
            outdated: found.outdated.into_iter().collect(),
            lost: found.lost.into_iter().collect(),
        })
    }
}

/// Now, for records.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
