//! Users: name, account, key pair, policy. A table made at start and looked up by access key.

use super::Policy;
use access::{Caller, Identity, ResourceOwner};
use s3_wire::{
    sigv4::{CredentialStore, SecretKey},
    xml::response::Owner,
};
use sha2::{Digest as _, Sha256};
use std::{collections::HashMap, sync::Arc};

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

/// A user.
#[derive(Debug)]
pub struct User {
    /// Its name.
    pub name: String,
    /// 64 hex digits: what S3 calls the canonical user id. Buckets and uploads name their owner by
    /// it.
    pub canonical_id: String,
    caller: Caller,
    policy: Policy,
    secret: SecretKey,
}

/// Who owns what nobody signed for. Source: Amazon S3 User Guide, "Who owns an object".
pub const ANONYMOUS_ID: &str = "65a011a29cdf8ec533ec3d1ccaae921c";

/// Every user, by access key.
#[derive(Debug)]
pub struct Users {
    by_access_key: HashMap<String, Arc<User>>,
    /// Of users that share an id, the first of the configuration.
    by_canonical_id: HashMap<String, Arc<User>>,
    by_email: HashMap<String, Arc<User>>,
    /// The number of root's account.
    account: String,
}

impl Users {
    /// Makes the table; `root` may do everything.
    pub fn new(root: Option<Credentials>, users: Vec<UserConfig>) -> Self {
        let root = root.map(|credentials| UserConfig {
            name: "root".into(),
            canonical_id: None,
            email: None,
            credentials,
            policy: Policy::Admin,
        });
        let own_account = canonical_id_of("root");
        let mut table = Self {
            by_access_key: HashMap::new(),
            by_canonical_id: HashMap::new(),
            by_email: HashMap::new(),
            account: account_number(&own_account),
        };
        for config in root.into_iter().chain(users) {
            let account_id = config.canonical_id.clone().unwrap_or_else(|| own_account.clone());
            let canonical_id = config.canonical_id.unwrap_or_else(|| canonical_id_of(&config.name));
            let user = Arc::new(User {
                caller: Caller {
                    account: account_number(&account_id),
                    canonical_id: account_id,
                    own_id: canonical_id.clone(),
                    user: Some(config.name.clone()).filter(|name| name != "root"),
                },
                canonical_id: canonical_id.clone(),
                name: config.name,
                policy: config.policy,
                secret: config.credentials.secret,
            });
            table.by_canonical_id.entry(canonical_id).or_insert_with(|| user.clone());
            if let Some(email) = config.email {
                table.by_email.entry(email.to_lowercase()).or_insert_with(|| user.clone());
            }
            table.by_access_key.insert(config.credentials.access_key_id, user);
        }
        table
    }

    /// The user of an access key whose signature has been verified.
    pub fn principal(&self, access_key_id: Option<&str>) -> Principal {
        Principal { user: access_key_id.and_then(|id| self.by_access_key.get(id)).cloned() }
    }

    /// The user of a name.
    pub fn named(&self, name: &str) -> Option<Principal> {
        let user = self.by_access_key.values().find(|user| user.name == name)?;
        Some(Principal { user: Some(user.clone()) })
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
        self.by_canonical_id.contains_key(canonical_id) || canonical_id == canonical_id_of("root")
    }

    /// The canonical id of the user with an address.
    pub fn id_of_email(&self, email: &str) -> Option<&str> {
        self.by_email.get(&email.to_lowercase()).map(|user| user.canonical_id.as_str())
    }
}

/// The canonical id of a user whose configuration names none: the same at every start.
fn canonical_id_of(name: &str) -> String {
    hex::encode(Sha256::new().chain_update(b"deltaweir canonical id\0").chain_update(name).finalize())
}

/// The 12 digits that ARNs name an account by: the same at every start.
fn account_number(canonical_id: &str) -> String {
    let digest = Sha256::new().chain_update(b"deltaweir account\0").chain_update(canonical_id).finalize();
    let number = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{:012}", number % 1_000_000_000_000)
}

impl CredentialStore for Users {
    fn secret(&self, access_key_id: &str, session_token: Option<&str>) -> Option<SecretKey> {
        // There are no sessions, so a request that brings a token is not by anybody we know (C26).
        if session_token.is_some() {
            return None;
        }
        self.by_access_key.get(access_key_id).map(|user| user.secret.clone())
    }
}

/// Who sent a request: a user, or nobody.
#[derive(Clone, Debug)]
pub struct Principal {
    user: Option<Arc<User>>,
}

impl Principal {
    /// The user, when the request was signed.
    pub fn user(&self) -> Option<&User> {
        self.user.as_deref()
    }

    /// The user's canonical id; [`ANONYMOUS_ID`] for nobody.
    pub fn canonical_id(&self) -> &str {
        self.user.as_deref().map_or(ANONYMOUS_ID, |user| user.canonical_id.as_str())
    }

    /// Whether the user may do everything, other users' uploads included.
    pub fn is_admin(&self) -> bool {
        self.user.as_deref().is_some_and(|user| user.policy == Policy::Admin)
    }

    /// Who asks, as policies name it.
    pub fn caller(&self) -> Option<&Caller> {
        self.user.as_deref().map(|user| &user.caller)
    }

    /// What the user's own policy allows.
    pub fn identity(&self) -> Identity<'_> {
        self.user.as_deref().map(|user| user.policy.identity()).unwrap_or_default()
    }
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

    #[test]
    fn a_session_token_finds_no_secret() {
        // C26
        let users = users();
        assert!(users.secret("AK-root", None).is_some());
        assert!(users.secret("AK-root", Some("token")).is_none());
        assert!(users.secret("AK-nobody", None).is_none());
    }

    #[test]
    fn canonical_ids_are_stable_and_each_users_own() {
        let users = users();
        let root = users.principal(Some("AK-root")).canonical_id().to_owned();
        assert_eq!(root, canonical_id_of("root"));
        assert_eq!(root.len(), 64);
        assert_ne!(root, users.principal(Some("AK-reader")).canonical_id());
        assert_eq!(users.owner(&root).display_name, "root");
        assert!(users.principal(None).caller().is_none() && users.principal(Some("AK-unknown")).caller().is_none());
    }

    #[test]
    fn an_account_is_those_who_share_a_canonical_id_and_roots_are_those_who_name_none() {
        let users = users();
        let account = |id: &str| users.principal(Some(id)).caller().unwrap().account.clone();
        assert_eq!(account("AK-root"), account("AK-reader"));
        assert_eq!(account("AK-them"), account("AK-theirs"));
        assert_ne!(account("AK-root"), account("AK-them"));
        assert_eq!(account("AK-root").len(), 12);
        let owner = |id: &str| users.resource_owner(id).account.to_owned();
        assert_eq!(owner(users.principal(Some("AK-reader")).canonical_id()), account("AK-root"));
        assert_eq!(owner(&"a".repeat(64)), account("AK-them"));
        assert_eq!(owner(&"b".repeat(64)), account("AK-root"), "a user that is gone");
        assert_eq!(owner(ANONYMOUS_ID), "");
    }

    #[test]
    fn grants_find_accounts_by_id_and_by_address() {
        let users = users();
        assert!(users.knows(&"a".repeat(64)) && users.knows(&canonical_id_of("root")) && !users.knows("_foo"));
        assert_eq!(users.id_of_email("them@example.COM"), Some("a".repeat(64).as_str()));
        assert_eq!(users.id_of_email("nobody@example.com"), None);
    }
}
