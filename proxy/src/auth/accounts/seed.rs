//! The users of the configuration file: the catalog gets those that it lacks, and wins where it has
//! them.

use super::{
    directory::Directory,
    entries::{KeyEntry, PolicyEntry, UserEntry},
};
use crate::auth::{policy::Policy, users::UserConfig};
use std::collections::BTreeSet;

/// Adds to `directory` the file's users that it lacks. Gives a warning for each user that it has
/// otherwise, or that cannot be added.
pub(super) fn seed(directory: &mut Directory, file: &[UserConfig], now_ms: i64) -> Vec<String> {
    file.iter().filter_map(|user| one(directory, user, now_ms).err()).collect()
}

fn one(directory: &mut Directory, user: &UserConfig, now_ms: i64) -> Result<(), String> {
    let name = &user.name;
    let (policy, document) = policy_of(user);
    let key = directory.keys.get(&user.credentials.access_key_id);
    if let Some(known) = directory.users.get(name) {
        if known.removed {
            return Err(format!("user {name:?} was removed, and the configuration file still has it"));
        }
        let same_document = document
            .is_none_or(|document| directory.policies.get(&policy).is_some_and(|known| known.document == document));
        let differs: Vec<_> = [
            ("policy", known.policies != BTreeSet::from([policy]) || !same_document),
            ("canonical_id", known.canonical_id != user.canonical_id),
            ("email", known.email != user.email),
            ("access key", !key.is_some_and(|key| key.user == *name && key.has_secret(&user.credentials.secret))),
        ]
        .into_iter()
        .filter_map(|(what, differs)| differs.then_some(what))
        .collect();
        return match differs.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "user {name:?} has another {} in the configuration file than in the catalog, which counts",
                differs.join(", ")
            )),
        };
    }
    if key.is_some() {
        return Err(format!("user {name:?} of the configuration file is not added: another user has its access key"));
    }
    if let Some(document) = document {
        let entry = PolicyEntry { document: document.to_owned() };
        let known = directory.policies.entry(policy.clone()).or_insert_with(|| entry.clone());
        if *known != entry {
            return Err(format!("user {name:?} of the configuration file is not added: there is another {policy}"));
        }
    }
    let entry = UserEntry {
        canonical_id: user.canonical_id.clone(),
        email: user.email.clone(),
        enabled: true,
        groups: BTreeSet::new(),
        policies: BTreeSet::from([policy]),
        from_file: true,
        removed: false,
        created_ms: now_ms,
    };
    directory.users.insert(name.clone(), entry);
    let secret = user.credentials.secret.clone();
    let key = KeyEntry { user: name.clone(), secret, enabled: true, created_ms: now_ms };
    directory.keys.insert(user.credentials.access_key_id.clone(), key);
    Ok(())
}

/// The name that a user's policy has in the catalog, and its text unless it is a built-in one.
fn policy_of(user: &UserConfig) -> (String, Option<&str>) {
    match &user.policy {
        Policy::Admin => ("admin".to_owned(), None),
        Policy::ReadWrite => ("readwrite".to_owned(), None),
        Policy::ReadOnly => ("readonly".to_owned(), None),
        Policy::Document(written) => (format!("file:{}", user.name), Some(&written.text)),
    }
}
