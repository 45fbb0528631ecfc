//! Users, groups, policies and access keys.

use super::{Factory, desk::Desk};
use crate::*;
use std::sync::Arc;

pub(super) fn row(kind: AccountKind, name: &str, sealed: &str) -> AccountRow {
    AccountRow { name: AccountName { kind, name: name.into() }, sealed: sealed.into() }
}

/// Rows are given back as they were written, by kind and name, and a user and a group of one name
/// are two.
pub async fn accounts_are_read_back_and_replaced<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    assert_eq!(catalog.accounts().await.unwrap(), AccountRows::default());
    let (user, group) = (row(AccountKind::User, "ann", "1"), row(AccountKind::Group, "ann", "2"));
    let key = row(AccountKind::AccessKey, "AKANN", "\u{0}\u{1}");
    let creates = vec![key.clone(), group.clone(), user.clone()];
    let first = catalog.change_accounts(AccountsChange { creates, ..AccountsChange::default() }).await.unwrap();
    let found = catalog.accounts().await.unwrap();
    assert_eq!(found, AccountRows { version: first, rows: vec![user, group.clone(), key.clone()] });
    let changed = row(AccountKind::User, "ann", "3");
    let change = AccountsChange {
        replaces: vec![changed.clone()],
        removes: vec![key.name.clone()],
        expected: Some(first),
        ..AccountsChange::default()
    };
    let second = catalog.change_accounts(change).await.unwrap();
    assert_eq!(catalog.accounts().await.unwrap(), AccountRows { version: second, rows: vec![changed, group] });
    assert_eq!((second, catalog.accounts_version().await.unwrap()), (first + 1, second));
}

/// Whoever read the rows before somebody changed them is refused, and nothing is changed.
pub async fn a_change_of_accounts_over_another_is_a_conflict<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    let create = |name: &str, expected| AccountsChange {
        creates: vec![row(AccountKind::User, name, "1")],
        expected,
        ..AccountsChange::default()
    };
    let first = catalog.change_accounts(create("ann", Some(0))).await.unwrap();
    let stale = catalog.change_accounts(create("bob", Some(0))).await;
    assert!(matches!(stale, Err(CatalogError::Conflict)), "{stale:?}");
    assert_eq!(catalog.accounts_version().await.unwrap(), first);
    catalog.create_bucket("b", "o", serde_json::json!({}), 0).await.unwrap();
    assert_eq!(catalog.accounts_version().await.unwrap(), first, "other mutations do not change it");
    catalog.change_accounts(create("bob", Some(first))).await.unwrap();
}

/// An access key is one user's, whoever else makes it at the same time.
pub async fn of_16_who_make_one_access_key_at_once_one_does<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    let mut makers = tokio::task::JoinSet::new();
    for number in 0..16 {
        let catalog = Arc::clone(&catalog);
        makers.spawn(async move {
            let creates = vec![row(AccountKind::AccessKey, "AKSHARED", &number.to_string())];
            catalog.change_accounts(AccountsChange { creates, ..AccountsChange::default() }).await
        });
    }
    let outcomes = makers.join_all().await;
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Err(CatalogError::Exists))).count();
    assert_eq!((refused, outcomes.len()), (15, 16), "{outcomes:?}");
    assert_eq!(catalog.accounts().await.unwrap().rows.len(), 1);
}

/// What was acknowledged is there when the process died.
pub async fn accounts_survive_a_crash<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let ann = row(AccountKind::User, "ann", "1");
    let change = AccountsChange { creates: vec![ann.clone()], ..AccountsChange::default() };
    let version = desk.catalog.change_accounts(change).await.unwrap();
    let catalog = factory.after_crash(desk.catalog).await;
    assert_eq!(catalog.accounts().await.unwrap(), AccountRows { version, rows: vec![ann] });
}
