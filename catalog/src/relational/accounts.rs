//! Rows of users, groups, policies and access keys, and the number that says when they changed
//! last.

use super::{
    change::{Decision, Outcome, only},
    session::{Lock, Row, Session, Statement, statement},
};
use crate::{CatalogError, Result, types::*};

/// Makes a change that takes number `seq`, which becomes the version of all rows.
pub(crate) async fn change<S: Session>(session: &mut S, seq: Seq, change: &AccountsChange) -> Result<Decision> {
    let found = Statement::locking("SELECT value FROM counters WHERE name = 'accounts'", vec![], Lock::Update);
    let version = session.first(found).await?.map_or(Ok(0), |row| row.int(0))?;
    if change.expected.is_some_and(|expected| expected != version) {
        return Err(CatalogError::Conflict);
    }
    let AccountsChange { creates, replaces, removes, .. } = change;
    if creates.is_empty() && replaces.is_empty() && removes.is_empty() {
        return Decision::unchanged();
    }
    for row in creates {
        let taken = statement!(
            "SELECT kind FROM accounts WHERE kind = $1 AND name = $2",
            column(row.name.kind),
            row.name.name.as_str()
        );
        if session.first(taken).await?.is_some() {
            return Err(CatalogError::Exists);
        }
    }
    let mut writes: Vec<_> = removes
        .iter()
        .map(|name| {
            statement!("DELETE FROM accounts WHERE kind = $1 AND name = $2", column(name.kind), name.name.as_str())
        })
        .collect();
    writes.extend(creates.iter().map(|row| put(row, "INSERT INTO accounts (kind, name, sealed) VALUES ($1, $2, $3)")));
    // A row that is behind a hole of the journal may be missing.
    writes.extend(replaces.iter().map(|row| {
        put(
            row,
            "INSERT INTO accounts (kind, name, sealed) VALUES ($1, $2, $3) \
             ON CONFLICT (kind, name) DO UPDATE SET sealed = excluded.sealed",
        )
    }));
    writes.push(statement!("UPDATE counters SET value = $1 WHERE name = 'accounts'", seq));
    Ok(Decision::of(Outcome::Seq(seq), writes))
}

fn put(row: &AccountRow, sql: &'static str) -> Statement {
    statement!(sql, column(row.name.kind), row.name.name.as_str(), row.sealed.as_slice())
}

/// The version of the rows. One row is read, by its key.
pub(crate) async fn version<S: Session>(session: &mut S) -> Result<Seq> {
    let row = session.first(statement!("SELECT value FROM counters WHERE name = 'accounts'")).await?;
    row.map_or(Ok(0), |row| row.int(0))
}

/// All of them.
pub(crate) async fn all<S: Session>(session: &mut S) -> Result<AccountRows> {
    let answers = session
        .run(vec![
            statement!("SELECT value FROM counters WHERE name = 'accounts'"),
            statement!("SELECT kind, name, sealed FROM accounts"),
        ])
        .await?;
    let mut rows = answers[1].iter().map(row).collect::<Result<Vec<_>>>()?;
    // Sorted here: the order of text is the database's choice, the order of bytes is ours.
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(AccountRows { version: only(&answers, 0)?.int(0)?, rows })
}

fn row(row: &Row) -> Result<AccountRow> {
    let name = AccountName { kind: kind(row.int(0)?)?, name: row.text(1)?.to_owned() };
    Ok(AccountRow { name, sealed: row.bytes(2)?.to_vec() })
}

fn column(kind: AccountKind) -> i64 {
    match kind {
        AccountKind::User => 1,
        AccountKind::Group => 2,
        AccountKind::Policy => 3,
        AccountKind::AccessKey => 4,
    }
}

fn kind(value: i64) -> Result<AccountKind> {
    match value {
        1 => Ok(AccountKind::User),
        2 => Ok(AccountKind::Group),
        3 => Ok(AccountKind::Policy),
        4 => Ok(AccountKind::AccessKey),
        other => Err(CatalogError::Damaged(format!("unknown kind of account {other}"))),
    }
}
