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
pub struct AccountRecord {
    /// Which one.
    pub name: AccountName,
    /// What it says.
    pub document: Zeroizing<Vec<u8>>,
}

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
    active: DomainKey,
    /// That of the KEK in the data directory, where an operator has given another one since.
    former: Option<DomainKey>,
    /// Whether every process of the deployment has the same KEK.
    is_shared_key: bool,
    alone: bool,
    may_pass_over: bool,
}

impl Accounts {
    /// Over a catalog; `alone` when no other process opens it.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the keyring's file cannot be read.
    pub(crate) fn new(catalog: Arc<dyn Catalog>, keyring: &Keyring, alone: bool) -> Result<Self, EngineError> {
        Ok(Self {
            catalog,
            active: keyring.kek().accounts_key(),
            former: keyring.former()?.map(|kek| kek.accounts_key()),
            is_shared_key: alone || keyring.is_configured(),
            alone,
            may_pass_over: alone && !keyring.is_configured(),
        })
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
        let mut found = AccountRecords { version: rows.version, ..AccountRecords::default() };
        for row in rows.rows {
            match self.open(&row)? {
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
        let seal = |records: &[AccountRecord]| records.iter().map(|record| self.seal(record)).collect::<Result<_, _>>();
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

    fn seal(&self, record: &AccountRecord) -> Result<AccountRow, EngineError> {
        let place = place_of(&record.name);
        let sealed = row::seal(&self.active, &RowContext::of_account(&place), random()?, &record.document);
        Ok(AccountRow { name: record.name.clone(), sealed })
    }

    /// What a row says, and whether it is sealed under the KEK of now; `None` when neither KEK is
    /// its.
    fn open(&self, row: &AccountRow) -> Result<Option<Opened>, EngineError> {
        let place = place_of(&row.name);
        for (key, is_active) in [(Some(&self.active), true), (self.former.as_ref(), false)] {
            let Some(key) = key else { continue };
            match row::open(key, &RowContext::of_account(&place), &row.sealed) {
                Ok(document) => return Ok(Some((Zeroizing::new(document), is_active))),
                Err(FormatError::Key(_)) => {}
                Err(error) => return Err(EngineError::Integrity(format!("{place} in the catalog: {error}"))),
            }
        }
        Ok(None)
    }
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
