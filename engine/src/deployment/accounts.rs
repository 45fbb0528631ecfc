//! Users, groups, policies and access keys in the catalog: sealed under the KEK, opened for whoever
//! decides with them. What a row says is not known here (docs/format/accounts-v1.md).

use super::keyring::{Keyring, random};
use crate::error::EngineError;
pub use catalog::{AccountKind, AccountName};
use catalog::{AccountRow, AccountsChange, Catalog, CatalogError, Seq};
use object_format::{
    DomainKey, FormatError,
    row::{self, RowContext},
};
use std::sync::Arc;
use zeroize::Zeroizing;

/// One account, open.
#[derive(Clone)]
pub struct AccountRecord {
    /// Which one.
    pub name: AccountName,
    /// What it says.
    pub document: Zeroizing<Vec<u8>>,
}

/// How often accounts are sealed anew against changes by others.
const RESEALS_MAX: usize = 16;

/// Every account, as of one moment.
#[derive(Default)]
pub struct AccountRecords {
    /// Grows with every change; 0 when there was none.
    pub version: Seq,
    /// Those that could be opened.
    pub records: Vec<AccountRecord>,
    /// Those that are to be sealed anew: under a KEK of before, or one that nobody has any more.
    pub outdated: Vec<AccountName>,
    /// Those of `outdated` that could not be opened. The KEK that this process made is not theirs,
    /// and no other was given.
    pub lost: Vec<AccountName>,
}

/// What is to be changed together.
#[derive(Default)]
pub struct AccountsWrite {
    /// New accounts.
    pub creates: Vec<AccountRecord>,
    /// Accounts that say something else from now on.
    pub replaces: Vec<AccountRecord>,
    /// Accounts that end.
    pub removes: Vec<AccountName>,
}

/// The accounts of a deployment.
pub struct Accounts {
    catalog: Arc<dyn Catalog>,
    keyring: Arc<Keyring>,
    /// Whether every process of the deployment has the same KEK.
    is_shared_key: bool,
    alone: bool,
    may_pass_over: bool,
}

impl Accounts {
    /// Over a catalog; `alone` when no other process opens it.
    pub(crate) fn new(catalog: Arc<dyn Catalog>, keyring: Arc<Keyring>, alone: bool) -> Self {
        let is_configured = keyring.is_configured();
        let (is_shared_key, may_pass_over) = (alone || is_configured, alone && !is_configured);
        Self { catalog, keyring, is_shared_key, alone, may_pass_over }
    }

    /// Whether accounts can be kept: replicas that made a KEK each could not read each other's.
    pub fn can_be_kept(&self) -> bool {
        self.is_shared_key
    }

    /// Whether others than this process may change them.
    pub fn may_change_elsewhere(&self) -> bool {
        !self.alone && self.is_shared_key
    }

    /// Grows with every change; 0 when there was none. Reads one row.
    ///
    /// # Errors
    /// What the catalog says.
    pub async fn version(&self) -> Result<Seq, EngineError> {
        Ok(self.catalog.accounts_version().await?)
    }

    /// All of them.
    ///
    /// # Errors
    /// [`EngineError::Integrity`] for a row that is not what was sealed; [`EngineError::Other`] for
    /// one that is sealed under a KEK which this process does not have.
    pub async fn load(&self) -> Result<AccountRecords, EngineError> {
        let rows = self.catalog.accounts().await?;
        let mut keys = self.keyring.accounts_keys();
        let is_closed = |row: &AccountRow, keys: &[DomainKey]| matches!(open(row, keys), Ok(None));
        if rows.rows.iter().any(|row| is_closed(row, &keys)) && self.keyring.reload()? {
            self.keyring.load_former_roots(&*self.catalog).await?;
            keys = self.keyring.accounts_keys();
        }
        let mut found = AccountRecords { version: rows.version, ..AccountRecords::default() };
        for row in rows.rows {
            match open(&row, &keys)? {
                Some((document, is_active)) => {
                    if !is_active {
                        found.outdated.push(row.name.clone());
                    }
                    found.records.push(AccountRecord { name: row.name, document });
                }
                None if self.may_pass_over => {
                    found.outdated.push(row.name.clone());
                    found.lost.push(row.name);
                }
                None => {
                    return Err(EngineError::Other(format!(
                        "{} in the catalog is sealed under another KEK: give it as storage.kek or DELTAWEIR_KEK",
                        place_of(&row.name)
                    )));
                }
            }
        }
        Ok(found)
    }

    /// Changes them while they have the version `expected`, and gives the new one; `None` when
    /// somebody was faster.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] and what else the catalog says.
    pub async fn change(&self, expected: Seq, write: &AccountsWrite) -> Result<Option<Seq>, EngineError> {
        let active = self.keyring.kek().roots().accounts_key();
        let seal =
            |records: &[AccountRecord]| records.iter().map(|record| seal(record, &active)).collect::<Result<_, _>>();
        let change = AccountsChange {
            creates: seal(&write.creates)?,
            replaces: seal(&write.replaces)?,
            removes: write.removes.clone(),
            expected: Some(expected),
        };
        match self.catalog.change_accounts(change).await {
            Ok(version) => Ok(Some(version)),
            Err(CatalogError::Conflict | CatalogError::Exists) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Seals every account anew that is not sealed under the KEK of now; how many were.
    ///
    /// # Errors
    /// As [`Accounts::load`] and [`Accounts::change`]; [`EngineError::Conflict`] when they never
    /// rest.
    pub(crate) async fn reseal(&self) -> Result<u64, EngineError> {
        for _ in 0..RESEALS_MAX {
            let found = self.load().await?;
            let lost = |name: &AccountName| found.lost.contains(name);
            let outdated = |record: &AccountRecord| found.outdated.contains(&record.name) && !lost(&record.name);
            let replaces: Vec<AccountRecord> =
                found.records.iter().filter(|record| outdated(record)).cloned().collect();
            let count = replaces.len() as u64;
            if count == 0 {
                return Ok(0);
            }
            let write = AccountsWrite { replaces, ..AccountsWrite::default() };
            if self.change(found.version, &write).await?.is_some() {
                return Ok(count);
            }
        }
        Err(EngineError::Conflict)
    }
}

fn seal(record: &AccountRecord, key: &DomainKey) -> Result<AccountRow, EngineError> {
    let place = place_of(&record.name);
    let sealed = row::seal(key, &RowContext::of_account(&place), random()?, &record.document);
    Ok(AccountRow { name: record.name.clone(), sealed })
}

/// What a row says, and whether it is sealed under the first of these keys; `None` when none of
/// them is its.
fn open(row: &AccountRow, keys: &[DomainKey]) -> Result<Option<Opened>, EngineError> {
    let place = place_of(&row.name);
    for (index, key) in keys.iter().enumerate() {
        match row::open(key, &RowContext::of_account(&place), &row.sealed) {
            Ok(document) => return Ok(Some((Zeroizing::new(document), index == 0))),
            Err(FormatError::Key(_)) => {}
            Err(error) => return Err(EngineError::Integrity(format!("{place} in the catalog: {error}"))),
        }
    }
    Ok(None)
}

/// A row's document, and whether it is sealed under the KEK of now.
type Opened = (Zeroizing<Vec<u8>>, bool);

/// What a row is bound to. Part of the format.
fn place_of(name: &AccountName) -> String {
    let kind = match name.kind {
        AccountKind::User => "user",
        AccountKind::Group => "group",
        AccountKind::Policy => "policy",
        AccountKind::AccessKey => "access-key",
    };
    format!("{kind}/{}", name.name)
}
