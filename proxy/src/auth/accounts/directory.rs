//! Users, groups, policies and access keys, and what may be done to them. Nothing here waits or
//! asks: a change is made to a copy, which is then put in the catalog's place.

use super::{
    entries::{GroupEntry, KeyEntry, PolicyEntry, UserEntry},
    names::{check_access_key, check_name, check_secret},
    refusal::Refusal,
};
use crate::auth::{
    policy::{Policy, Rights, Written},
    root::random_text,
    users::{Account, Credentials, ROOT},
};
use engine::{AccountKind, AccountName, AccountRecord, AccountsWrite, EngineError};
use s3_wire::{sigv4::SecretKey, timestamp};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};
use zeroize::Zeroizing;

/// Most users.
const USERS_MAX: usize = 10_000;
/// Most access keys of a user.
const KEYS_PER_USER_MAX: usize = 16;
/// Most groups, and most policies.
const OTHERS_MAX: usize = 2_000;
/// Longest policy.
const POLICY_BYTES_MAX: usize = 20 << 10;

/// Who has a policy.
#[derive(Clone, Copy, Debug)]
pub enum Holder<'a> {
    /// A user, by name.
    User(&'a str),
    /// A group, by name.
    Group(&'a str),
}

/// A user to be made.
#[derive(Clone, Debug, Default)]
pub struct NewUser {
    /// 64 hex digits; without them it belongs to the account of root.
    pub canonical_id: Option<String>,
    /// The address by which grants may name it.
    pub email: Option<String>,
    /// Its groups.
    pub groups: BTreeSet<String>,
    /// Its policies.
    pub policies: BTreeSet<String>,
}

/// An access key to be made.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Its id.
    pub id: String,
    /// Its secret.
    pub secret: SecretKey,
}

impl NewKey {
    /// A key pair from the operating system's randomness; what the caller chose is taken.
    ///
    /// # Errors
    /// The operating system gives none.
    pub fn make(id: Option<String>, secret: Option<SecretKey>) -> std::io::Result<Self> {
        let id = id.map_or_else(|| Ok(format!("DW{}", random_text::<18>()?)), Ok::<_, std::io::Error>)?;
        let secret = secret.map_or_else(|| random_text::<40>().map(SecretKey::new), Ok)?;
        Ok(Self { id, secret })
    }
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    pub(super) users: BTreeMap<String, UserEntry>,
    pub(super) groups: BTreeMap<String, GroupEntry>,
    pub(super) policies: BTreeMap<String, PolicyEntry>,
    pub(super) keys: BTreeMap<String, KeyEntry>,
}

impl Directory {
    /// Reads what the catalog keeps.
    ///
    /// # Errors
    /// [`EngineError::Integrity`] for what this version of the program does not understand: a
    /// member that it does not know may forbid something.
    pub(super) fn read(records: Vec<AccountRecord>) -> Result<Self, EngineError> {
        let mut directory = Self::default();
        for AccountRecord { name: AccountName { kind, name }, document } in records {
            match kind {
                AccountKind::User => drop(directory.users.insert(name.clone(), parsed(&name, &document)?)),
                AccountKind::Group => drop(directory.groups.insert(name.clone(), parsed(&name, &document)?)),
                AccountKind::Policy => drop(directory.policies.insert(name.clone(), parsed(&name, &document)?)),
                AccountKind::AccessKey => drop(directory.keys.insert(name.clone(), parsed(&name, &document)?)),
            }
        }
        Ok(directory)
    }

    /// What makes `before` this. Rows that are `outdated` are written again, `lost` ones are there.
    pub(super) fn difference(
        &self,
        before: &Self,
        outdated: &BTreeSet<AccountName>,
        lost: &BTreeSet<AccountName>,
    ) -> Result<AccountsWrite, EngineError> {
        let mut changes = Difference { write: AccountsWrite::default(), outdated, lost };
        changes.of(AccountKind::User, &before.users, &self.users)?;
        changes.of(AccountKind::Group, &before.groups, &self.groups)?;
        changes.of(AccountKind::Policy, &before.policies, &self.policies)?;
        changes.of(AccountKind::AccessKey, &before.keys, &self.keys)?;
        Ok(changes.write)
    }

    /// Names of users that were not removed.
    pub fn user_names(&self) -> impl Iterator<Item = &str> {
        self.users.iter().filter(|(_, user)| !user.removed).map(|(name, _)| name.as_str())
    }

    /// The users as signatures are verified with. A user of a policy that is not there may sign
    /// nothing: what it would forbid is not known.
    pub(super) fn accounts(&self) -> Vec<Account> {
        let mut keys: BTreeMap<&str, Vec<Credentials>> = BTreeMap::new();
        for (id, key) in self.keys.iter().filter(|(_, key)| key.enabled) {
            let pair = Credentials { access_key_id: id.clone(), secret: key.secret.clone() };
            keys.entry(&key.user).or_default().push(pair);
        }
        let users = self.users.iter().filter(|(_, user)| !user.removed);
        let users = users.map(|(name, user)| {
            let policies = self.policies_of(user);
            let may_sign = user.enabled && policies.is_some();
            Account {
                name: name.clone(),
                canonical_id: user.canonical_id.clone(),
                email: user.email.clone(),
                keys: keys.remove(name.as_str()).filter(|_| may_sign).unwrap_or_default(),
                rights: Rights::of(policies.iter().flatten()),
            }
        });
        users.collect()
    }

    /// A user's policies and those of its groups; `None` when one of them cannot be had.
    fn policies_of(&self, user: &UserEntry) -> Option<Vec<Policy>> {
        let mut names: BTreeSet<&String> = user.policies.iter().collect();
        for group in &user.groups {
            names.extend(&self.groups.get(group)?.policies);
        }
        let policy = |name: &String| match Policy::built_in(name) {
            Some(policy) => Some(policy),
            None => Some(Policy::Document(Arc::new(Written::parse(&self.policies.get(name)?.document).ok()?))),
        };
        names.into_iter().map(policy).collect()
    }

    /// Makes a user, with a first key where one is given.
    ///
    /// # Errors
    /// [`Refusal`]; so for all that follow. What each gives is a sentence for the audit log.
    pub fn add_user(&mut self, name: &str, new: NewUser, key: Option<NewKey>, now_ms: i64) -> Result<String, Refusal> {
        check_name(name, "")?;
        if matches!(name, ROOT | "anonymous") || self.users.get(name).is_some_and(|user| !user.removed) {
            return Err(Refusal::Conflict(format!("there is a user {name} already")));
        }
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if new.canonical_id.as_ref().is_some_and(|id| id.len() != 64 || !id.bytes().all(is_digit)) {
            return Err(Refusal::Invalid("a canonical id is 64 lower-case hex digits".into()));
        }
        bounded(self.users.len(), USERS_MAX, "users")?;
        new.groups.iter().try_for_each(|group| self.group(group).map(drop))?;
        new.policies.iter().try_for_each(|policy| self.check_policy(policy))?;
        let NewUser { canonical_id, email, groups, policies } = new;
        let user = UserEntry {
            canonical_id,
            email,
            enabled: true,
            groups,
            policies,
            from_file: false,
            removed: false,
            created_ms: now_ms,
        };
        self.users.insert(name.to_owned(), user);
        match key {
            None => Ok(format!("user {name} added")),
            Some(key) => Ok(format!("user {name} added, {}", self.add_key(name, key, now_ms)?)),
        }
    }

    /// Ends a user and its keys. One that the configuration file brought stays known by its name,
    /// so that the file does not bring it back.
    pub fn remove_user(&mut self, name: &str) -> Result<String, Refusal> {
        let user = self.user_mut(name)?;
        let of_file = format!("file:{name}");
        let had_own_policy = user.policies.remove(&of_file);
        if user.from_file {
            let gone = UserEntry { removed: true, enabled: false, canonical_id: None, email: None, ..user.clone() };
            *user = UserEntry { groups: BTreeSet::new(), policies: BTreeSet::new(), ..gone };
        } else {
            self.users.remove(name);
        }
        self.keys.retain(|_, key| key.user != name);
        if had_own_policy && self.holders_of(&of_file).is_empty() {
            self.policies.remove(&of_file);
        }
        Ok(format!("user {name} removed"))
    }

    /// Lets a user sign, or not.
    pub fn enable_user(&mut self, name: &str, enabled: bool) -> Result<String, Refusal> {
        self.user_mut(name)?.enabled = enabled;
        Ok(format!("user {name} {}", able(enabled)))
    }

    /// Gives a user one more key.
    pub fn add_key(&mut self, user: &str, key: NewKey, now_ms: i64) -> Result<String, Refusal> {
        self.user_mut(user)?;
        check_access_key(&key.id).map_err(|why| Refusal::Invalid(format!("the access key: {why}")))?;
        check_secret(key.secret.expose()).map_err(|why| Refusal::Invalid(format!("the secret: {why}")))?;
        bounded(self.keys.values().filter(|key| key.user == user).count(), KEYS_PER_USER_MAX, "keys of a user")?;
        let entry = KeyEntry { user: user.to_owned(), secret: key.secret, enabled: true, created_ms: now_ms };
        match self.keys.entry(key.id) {
            std::collections::btree_map::Entry::Vacant(place) => {
                let told = format!("key {} of {user} added", place.key());
                place.insert(entry);
                Ok(told)
            }
            std::collections::btree_map::Entry::Occupied(_) => {
                Err(Refusal::Conflict("that access key is taken".into()))
            }
        }
    }

    /// Ends a key.
    pub fn remove_key(&mut self, user: &str, id: &str) -> Result<String, Refusal> {
        self.key_mut(user, id)?;
        self.keys.remove(id);
        Ok(format!("key {id} of {user} removed"))
    }

    /// Lets a key sign, or not.
    pub fn enable_key(&mut self, user: &str, id: &str, enabled: bool) -> Result<String, Refusal> {
        self.key_mut(user, id)?.enabled = enabled;
        Ok(format!("key {id} of {user} {}", able(enabled)))
    }

    /// Makes a group.
    pub fn add_group(&mut self, name: &str) -> Result<String, Refusal> {
        check_name(name, "")?;
        bounded(self.groups.len(), OTHERS_MAX, "groups")?;
        if self.groups.contains_key(name) {
            return Err(Refusal::Conflict(format!("there is a group {name} already")));
        }
        self.groups.insert(name.to_owned(), GroupEntry::default());
        Ok(format!("group {name} added"))
    }

    /// Ends a group that nobody is in.
    pub fn remove_group(&mut self, name: &str) -> Result<String, Refusal> {
        self.group(name)?;
        let members = self.members_of(name);
        if !members.is_empty() {
            return Err(Refusal::Conflict(format!("{} is in the group {name}", members.join(", "))));
        }
        self.groups.remove(name);
        Ok(format!("group {name} removed"))
    }

    /// Puts a user in a group, or takes it out.
    pub fn set_member(&mut self, group: &str, user: &str, is_member: bool) -> Result<String, Refusal> {
        self.group(group)?;
        let groups = &mut self.user_mut(user)?.groups;
        if is_member {
            groups.insert(group.to_owned());
        } else if !groups.remove(group) {
            return Err(Refusal::NotFound(format!("user {user} in the group {group}")));
        }
        Ok(format!("user {user} {} group {group}", if is_member { "joined" } else { "left" }))
    }

    /// Makes a policy, or puts another document in its place.
    pub fn put_policy(&mut self, name: &str, document: &str) -> Result<String, Refusal> {
        check_name(name, ":")?;
        if Policy::built_in(name).is_some() {
            return Err(Refusal::Conflict(format!("{name} is a built-in policy")));
        }
        if document.len() > POLICY_BYTES_MAX {
            return Err(Refusal::Invalid(format!("a policy has {POLICY_BYTES_MAX} bytes at most")));
        }
        Written::parse(document).map_err(|why| Refusal::Invalid(format!("the policy: {why}")))?;
        bounded(self.policies.len(), OTHERS_MAX, "policies")?;
        self.policies.insert(name.to_owned(), PolicyEntry { document: document.to_owned() });
        Ok(format!("policy {name} put"))
    }

    /// Ends a policy that nobody has.
    pub fn remove_policy(&mut self, name: &str) -> Result<String, Refusal> {
        if !self.policies.contains_key(name) {
            return Err(Refusal::NotFound(format!("policy {name}")));
        }
        let holders = self.holders_of(name);
        if !holders.is_empty() {
            return Err(Refusal::Conflict(format!("the policy {name} is attached to {}", holders.join(", "))));
        }
        self.policies.remove(name);
        Ok(format!("policy {name} removed"))
    }

    /// Gives a user or group a policy, or takes it away.
    pub fn attach_policy(&mut self, policy: &str, holder: Holder<'_>, is_attached: bool) -> Result<String, Refusal> {
        if is_attached {
            self.check_policy(policy)?;
        }
        let (policies, whose) = match holder {
            Holder::User(name) => (&mut self.user_mut(name)?.policies, format!("user {name}")),
            Holder::Group(name) => {
                let group = self.groups.get_mut(name);
                (
                    &mut group.ok_or_else(|| Refusal::NotFound(format!("group {name}")))?.policies,
                    format!("group {name}"),
                )
            }
        };
        if is_attached {
            policies.insert(policy.to_owned());
            return Ok(format!("policy {policy} attached to {whose}"));
        }
        if !policies.remove(policy) {
            return Err(Refusal::NotFound(format!("policy {policy} of {whose}")));
        }
        Ok(format!("policy {policy} detached from {whose}"))
    }

    /// Every user, as the admin API shows it; no secrets.
    pub fn users_json(&self) -> Vec<Value> {
        self.user_names().filter_map(|name| self.user_json(name).ok()).collect()
    }

    /// One of them.
    pub fn user_json(&self, name: &str) -> Result<Value, Refusal> {
        let user = self.user(name)?;
        let keys = self.keys.iter().filter(|(_, key)| key.user == name);
        let keys = keys.map(|(id, key)| json!({ "id": id, "enabled": key.enabled, "created": iso(key.created_ms) }));
        Ok(json!({
            "name": name,
            "enabled": user.enabled,
            "canonical_id": user.canonical_id,
            "email": user.email,
            "groups": user.groups,
            "policies": user.policies,
            "keys": keys.collect::<Vec<_>>(),
            "from_file": user.from_file,
            "created": iso(user.created_ms),
        }))
    }

    /// Every group with its policies and members.
    pub fn groups_json(&self) -> Vec<Value> {
        let group = |(name, group): (&String, &GroupEntry)| json!({ "name": name, "policies": group.policies, "members": self.members_of(name) });
        self.groups.iter().map(group).collect()
    }

    /// Every policy and who has it; the built-in ones, too.
    pub fn policies_json(&self) -> Vec<Value> {
        let built_in = ["admin", "readonly", "readwrite"].map(|name| (name, true));
        let made = self.policies.keys().map(|name| (name.as_str(), false));
        let policy = |(name, built_in): (&str, bool)| json!({ "name": name, "built_in": built_in, "attached_to": self.holders_of(name) });
        built_in.into_iter().chain(made).map(policy).collect()
    }

    /// One policy with its document.
    pub fn policy_json(&self, name: &str) -> Result<Value, Refusal> {
        let policy = self.policies.get(name).ok_or_else(|| Refusal::NotFound(format!("policy {name}")))?;
        let document: Value = serde_json::from_str(&policy.document).unwrap_or_default();
        Ok(json!({ "name": name, "attached_to": self.holders_of(name), "document": document }))
    }

    fn user(&self, name: &str) -> Result<&UserEntry, Refusal> {
        let user = self.users.get(name).filter(|user| !user.removed);
        user.ok_or_else(|| Refusal::NotFound(format!("user {name}")))
    }

    fn user_mut(&mut self, name: &str) -> Result<&mut UserEntry, Refusal> {
        let user = self.users.get_mut(name).filter(|user| !user.removed);
        user.ok_or_else(|| Refusal::NotFound(format!("user {name}")))
    }

    fn key_mut(&mut self, user: &str, id: &str) -> Result<&mut KeyEntry, Refusal> {
        let key = self.keys.get_mut(id).filter(|key| key.user == user);
        key.ok_or_else(|| Refusal::NotFound(format!("key {id} of {user}")))
    }

    fn group(&self, name: &str) -> Result<&GroupEntry, Refusal> {
        self.groups.get(name).ok_or_else(|| Refusal::NotFound(format!("group {name}")))
    }

    fn check_policy(&self, name: &str) -> Result<(), Refusal> {
        let is_there = Policy::built_in(name).is_some() || self.policies.contains_key(name);
        is_there.then_some(()).ok_or_else(|| Refusal::NotFound(format!("policy {name}")))
    }

    fn members_of(&self, group: &str) -> Vec<&str> {
        let members = self.users.iter().filter(|(_, user)| user.groups.contains(group));
        members.map(|(name, _)| name.as_str()).collect()
    }

    fn holders_of(&self, policy: &str) -> Vec<String> {
        let users = self.users.iter().filter(|(_, user)| user.policies.contains(policy));
        let groups = self.groups.iter().filter(|(_, group)| group.policies.contains(policy));
        let users = users.map(|(name, _)| format!("user {name}"));
        users.chain(groups.map(|(name, _)| format!("group {name}"))).collect()
    }
}

/// Rows that differ.
struct Difference<'a> {
    write: AccountsWrite,
    outdated: &'a BTreeSet<AccountName>,
    lost: &'a BTreeSet<AccountName>,
}

impl Difference<'_> {
    fn of<E: Serialize + PartialEq>(
        &mut self,
        kind: AccountKind,
        before: &BTreeMap<String, E>,
        after: &BTreeMap<String, E>,
    ) -> Result<(), EngineError> {
        for (name, entry) in after {
            let name = AccountName { kind, name: name.clone() };
            let known = before.get(&name.name);
            if known == Some(entry) && !self.outdated.contains(&name) {
                continue;
            }
            let document = serde_json::to_vec(entry).map_err(|error| EngineError::Other(error.to_string()))?;
            let is_there = known.is_some() || self.lost.contains(&name);
            let record = AccountRecord { name, document: Zeroizing::new(document) };
            if is_there { &mut self.write.replaces } else { &mut self.write.creates }.push(record);
        }
        let gone = before.keys().filter(|name| !after.contains_key(*name));
        self.write.removes.extend(gone.map(|name| AccountName { kind, name: name.clone() }));
        Ok(())
    }
}

fn parsed<E: DeserializeOwned>(name: &str, document: &[u8]) -> Result<E, EngineError> {
    let parsed = serde_json::from_slice(document);
    parsed.map_err(|error| EngineError::Integrity(format!("the account {name:?} in the catalog: {error}")))
}

fn bounded(len: usize, most: usize, what: &str) -> Result<(), Refusal> {
    if len < most { Ok(()) } else { Err(Refusal::Conflict(format!("there are {most} {what} at most"))) }
}

fn able(enabled: bool) -> &'static str {
    if enabled { "enabled" } else { "disabled" }
}

fn iso(ms: i64) -> String {
    timestamp::iso8601(UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}

#[cfg(test)]
mod tests;
