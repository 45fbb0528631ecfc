//! Users: name, account, key pairs, policies. A table made at start, and anew whenever accounts or
//! the file have changed ([`super::accounts`]), and looked up by access key.
//! Beside them the roles that users may take on ([`super::sessions`]).

use super::{
    freshness::Freshness,
    policy::{Policy, Rights},
};
use access::{Caller, ResourceOwner};
use crypto::{Digest as _, Sha256};
use s3_wire::{sigv4::SecretKey, xml::response::Owner};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

/// A key pair.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The access key.
    pub access_key_id: String,
    /// Its secret.
    pub secret: SecretKey,
}

/// A user of the configuration.
#[derive(Clone, Debug)]
pub struct UserConfig {
    /// Its name, unique.
    pub name: String,
    /// 64 hex digits: the canonical id of the account it belongs to. Without one it belongs to the
    /// account of root.
    pub canonical_id: Option<String>,
    /// The address by which grants may name its account.
    pub email: Option<String>,
    /// Its key pair.
    pub credentials: Credentials,
    /// What it may do.
    pub policy: Policy,
}

/// A user as the table takes it.
#[derive(Clone, Debug)]
pub(super) struct Account {
    /// Its name, unique.
    pub(super) name: String,
    /// As in [`UserConfig`].
    pub(super) canonical_id: Option<String>,
    /// As in [`UserConfig`].
    pub(super) email: Option<String>,
    /// The key pairs that it may sign with; none when it is disabled.
    pub(super) keys: Vec<Credentials>,
    /// What it may do.
    pub(super) rights: Rights,
}

impl From<UserConfig> for Account {
    fn from(config: UserConfig) -> Self {
        Self {
            name: config.name,
            canonical_id: config.canonical_id,
            email: config.email,
            keys: vec![config.credentials],
            rights: Rights::of([&config.policy]),
        }
    }
}

/// A role of the configuration.
#[derive(Clone, Debug)]
pub struct RoleConfig {
    /// Its name, unique among roles.
    pub name: String,
    /// The canonical id of the account it belongs to. Without one it belongs to the account of
    /// root.
    pub canonical_id: Option<String>,
    /// The names of the users who may take it on.
    pub users: BTreeSet<String>,
    /// The longest life of its sessions.
    pub duration_max: Duration,
    /// What it may do.
    pub policy: Policy,
}

/// A role.
#[derive(Debug)]
pub(super) struct Role {
    /// Whom its sessions act as.
    pub(super) acts_as: Arc<User>,
    /// Who may take it on.
    pub(super) users: BTreeSet<String>,
    /// The longest life of its sessions.
    pub(super) duration_max: Duration,
}

/// A user.
#[derive(Debug)]
pub struct User {
    /// Its name.
    pub name: String,
    /// 64 hex digits: what S3 calls the canonical user id. Buckets and uploads name their owner by
    /// it.
    pub canonical_id: String,
    pub(super) caller: Caller,
    pub(super) rights: Rights,
}

/// A key pair and whose it is.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) user: Arc<User>,
    pub(super) access_key_id: String,
    pub(super) secret: SecretKey,
}

/// The name of the user who may do everything.
pub(super) const ROOT: &str = "root";

/// Who owns what nobody signed for. Source: Amazon S3 User Guide, "Who owns an object".
pub const ANONYMOUS_ID: &str = "65a011a29cdf8ec533ec3d1ccaae921c";

/// Every user, by access key.
#[derive(Debug)]
pub struct Users {
    by_access_key: HashMap<String, Arc<Key>>,
    /// Those that have a key.
    by_name: HashMap<String, Arc<User>>,
    roles: HashMap<String, Role>,
    /// Of users that share an id, the first of the configuration.
    by_canonical_id: HashMap<String, Arc<User>>,
    by_email: HashMap<String, Arc<User>>,
    /// The number of root's account.
    account: String,
    freshness: Arc<Freshness>,
}

impl Users {
    /// Makes the table of a configuration; `root` may do everything.
    pub fn new(root: Option<Credentials>, users: Vec<UserConfig>) -> Self {
        Self::of(root, users.into_iter().map(Account::from), Arc::default())
    }

    /// Makes the table. Its users are good for as long as `freshness` says; root always is, and a
    /// key of root's is nobody else's.
    pub(super) fn of(
        root: Option<Credentials>,
        users: impl IntoIterator<Item = Account>,
        freshness: Arc<Freshness>,
    ) -> Self {
        let root = root.map(|credentials| Account {
            name: ROOT.into(),
            canonical_id: None,
            email: None,
            keys: vec![credentials],
            rights: Rights::of([&Policy::Admin]),
        });
        let own_account = canonical_id_of(ROOT);
        let mut table = Self {
            by_access_key: HashMap::new(),
            by_name: HashMap::new(),
            roles: HashMap::new(),
            by_canonical_id: HashMap::new(),
            by_email: HashMap::new(),
            account: account_number(&own_account),
            freshness,
        };
        for config in root.into_iter().chain(users) {
            let account_id = config.canonical_id.clone().unwrap_or_else(|| own_account.clone());
            let canonical_id = config.canonical_id.unwrap_or_else(|| canonical_id_of(&config.name));
            let user = Arc::new(User {
                caller: Caller {
                    account: account_number(&account_id),
                    canonical_id: account_id,
                    own_id: canonical_id.clone(),
                    user: Some(config.name.clone()).filter(|name| name != ROOT),
                    role: None,
                },
                canonical_id: canonical_id.clone(),
                name: config.name,
                rights: config.rights,
            });
            table.by_canonical_id.entry(canonical_id).or_insert_with(|| user.clone());
            if let Some(email) = config.email {
                table.by_email.entry(email.to_lowercase()).or_insert_with(|| user.clone());
            }
            if !config.keys.is_empty() {
                table.by_name.insert(user.name.clone(), user.clone());
            }
            for Credentials { access_key_id, secret } in config.keys {
                let key = Arc::new(Key { user: user.clone(), access_key_id: access_key_id.clone(), secret });
                table.by_access_key.entry(access_key_id).or_insert(key);
            }
        }
        table
    }

    /// The same users with roles, which only they can take on.
    #[must_use]
    pub fn with_roles(mut self, roles: Vec<RoleConfig>) -> Self {
        for config in roles {
            let name = format!("role/{}", config.name);
            let account_id = config.canonical_id.clone().unwrap_or_else(|| canonical_id_of(ROOT));
            let canonical_id = config.canonical_id.unwrap_or_else(|| canonical_id_of(&name));
            let acts_as = Arc::new(User {
                caller: Caller {
                    account: account_number(&account_id),
                    canonical_id: account_id,
                    own_id: canonical_id.clone(),
                    user: None,
                    role: None,
                },
                canonical_id: canonical_id.clone(),
                name,
                rights: Rights::of([&config.policy]),
            });
            self.by_canonical_id.entry(canonical_id).or_insert_with(|| acts_as.clone());
            let role = Role { acts_as, users: config.users, duration_max: config.duration_max };
            self.roles.insert(config.name, role);
        }
        self
    }

    pub(super) fn by_access_key(&self, access_key_id: &str) -> Option<&Arc<Key>> {
        self.by_access_key.get(access_key_id)
    }

    /// Whether it is known which keys of others than root are good.
    pub(super) fn are_fresh(&self) -> bool {
        self.freshness.holds()
    }

    /// Whether there is a role of this name in this account; an empty one is any.
    pub fn has_role(&self, account: &str, name: &str) -> bool {
        let role = self.role(name);
        role.is_some_and(|role| account.is_empty() || role.acts_as.caller.account == account)
    }

    pub(super) fn role(&self, name: &str) -> Option<&Role> {
        self.roles.get(name)
    }

    /// The user of a name.
    pub(super) fn named(&self, name: &str) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// How documents name an owner: users that are gone are shown by their id alone.
    pub fn owner(&self, canonical_id: &str) -> Owner {
        let display_name = self.by_canonical_id.get(canonical_id).map(|user| user.name.clone()).unwrap_or_default();
        Owner { id: canonical_id.to_owned(), display_name }
    }

    /// The account an owner belongs to. Owners whose users are gone belong to root's.
    pub fn resource_owner<'a>(&'a self, canonical_id: &'a str) -> ResourceOwner<'a> {
        let account = match self.by_canonical_id.get(canonical_id) {
            Some(user) => user.caller.account.as_str(),
            None if canonical_id == ANONYMOUS_ID => "",
            None => &self.account,
        };
        ResourceOwner { account, id: canonical_id }
    }

    /// Whether a grant may name this canonical id.
    pub fn knows(&self, canonical_id: &str) -> bool {
        self.by_canonical_id.contains_key(canonical_id) || canonical_id == canonical_id_of(ROOT)
    }

    /// The canonical id of the user with an address.
    pub fn id_of_email(&self, email: &str) -> Option<&str> {
        self.by_email.get(&email.to_lowercase()).map(|user| user.canonical_id.as_str())
    }
}

/// The canonical id of a user whose configuration names none: the same at every start.
pub fn canonical_id_of(name: &str) -> String {
    hex::encode(Sha256::new().chain_update(b"deltaweir canonical id\0").chain_update(name).finalize())
}

/// The 12 digits that ARNs name an account by: the same at every start.
fn account_number(canonical_id: &str) -> String {
    let digest = Sha256::new().chain_update(b"deltaweir account\0").chain_update(canonical_id).finalize();
    let number = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{:012}", number % 1_000_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(id: &str) -> Credentials {
        Credentials { access_key_id: id.into(), secret: SecretKey::new(format!("secret of {id}")) }
    }

    fn users() -> Users {
        let user = |name: &str, canonical_id: Option<&str>| UserConfig {
            name: name.into(),
            canonical_id: canonical_id.map(|digit| digit.repeat(64)),
            email: Some(format!("{name}@Example.com")),
            credentials: credentials(&format!("AK-{name}")),
            policy: Policy::ReadOnly,
        };
        Users::new(
            Some(credentials("AK-root")),
            vec![user("reader", None), user("them", Some("a")), user("theirs", Some("a"))],
        )
    }

    fn user<'u>(users: &'u Users, access_key_id: &str) -> &'u User {
        &users.by_access_key(access_key_id).unwrap().user
    }

    #[test]
    fn canonical_ids_are_stable_and_each_users_own() {
        let users = users();
        let root = user(&users, "AK-root").canonical_id.clone();
        assert_eq!(root, canonical_id_of(ROOT));
        assert_eq!(root.len(), 64);
        assert_ne!(root, user(&users, "AK-reader").canonical_id);
        assert_eq!(users.owner(&root).display_name, "root");
        assert!(users.by_access_key("AK-unknown").is_none());
    }

    #[test]
    fn an_account_is_those_who_share_a_canonical_id_and_roots_are_those_who_name_none() {
        let users = users();
        let account = |id: &str| user(&users, id).caller.account.clone();
        assert_eq!(account("AK-root"), account("AK-reader"));
        assert_eq!(account("AK-them"), account("AK-theirs"));
        assert_ne!(account("AK-root"), account("AK-them"));
        assert_eq!(account("AK-root").len(), 12);
        let owner = |id: &str| users.resource_owner(id).account.to_owned();
        assert_eq!(owner(&user(&users, "AK-reader").canonical_id), account("AK-root"));
        assert_eq!(owner(&"a".repeat(64)), account("AK-them"));
        assert_eq!(owner(&"b".repeat(64)), account("AK-root"), "a user that is gone");
        assert_eq!(owner(ANONYMOUS_ID), "");
    }

    #[test]
    fn grants_find_accounts_by_id_and_by_address() {
        let users = users();
        assert!(users.knows(&"a".repeat(64)) && users.knows(&canonical_id_of(ROOT)) && !users.knows("_foo"));
        assert_eq!(users.id_of_email("them@example.COM"), Some("a".repeat(64).as_str()));
        assert_eq!(users.id_of_email("nobody@example.com"), None);
    }
}
