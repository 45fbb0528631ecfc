//! Users: name, canonical id, key pair, policy. A table made at start and looked up by access key.

use super::Policy;
use s3_wire::{
    S3Error,
    error::ErrorCode,
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
    /// 64 hex digits; made from the name when absent.
    pub canonical_id: Option<String>,
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
    /// 64 hex digits: what S3 calls the canonical user id. Buckets and uploads name their owner by it.
    pub canonical_id: String,
    policy: Policy,
    secret: SecretKey,
}

/// Every user, by access key.
#[derive(Debug, Default)]
pub struct Users {
    by_access_key: HashMap<String, Arc<User>>,
    by_canonical_id: HashMap<String, Arc<User>>,
}

impl Users {
    /// Makes the table; `root` may do everything.
    pub fn new(root: Option<Credentials>, users: Vec<UserConfig>) -> Self {
        let root = root.map(|credentials| UserConfig {
            name: "root".into(),
            canonical_id: None,
            credentials,
            policy: Policy::Admin,
        });
        let mut table = Self::default();
        for config in root.into_iter().chain(users) {
            let user = Arc::new(User {
                canonical_id: config.canonical_id.unwrap_or_else(|| canonical_id_of(&config.name)),
                name: config.name,
                policy: config.policy,
                secret: config.credentials.secret,
            });
            table.by_canonical_id.insert(user.canonical_id.clone(), user.clone());
            table.by_access_key.insert(config.credentials.access_key_id, user);
        }
        table
    }

    /// The user of an access key whose signature has been verified.
    pub fn principal(&self, access_key_id: Option<&str>) -> Principal {
        Principal { user: access_key_id.and_then(|id| self.by_access_key.get(id)).cloned() }
    }

    /// How documents name an owner: users that are gone are shown by their id alone.
    pub fn owner(&self, canonical_id: &str) -> Owner {
        let display_name = self.by_canonical_id.get(canonical_id).map(|user| user.name.clone()).unwrap_or_default();
        Owner { id: canonical_id.to_owned(), display_name }
    }
}

/// The canonical id of a user whose configuration names none: the same at every start.
fn canonical_id_of(name: &str) -> String {
    hex::encode(Sha256::new().chain_update(b"deltaweir canonical id\0").chain_update(name).finalize())
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

    /// The user's canonical id; empty for nobody, which owns nothing.
    pub fn canonical_id(&self) -> &str {
        self.user.as_deref().map(|user| user.canonical_id.as_str()).unwrap_or_default()
    }

    /// Whether the user may do everything, other users' uploads included.
    pub fn is_admin(&self) -> bool {
        self.user.as_deref().is_some_and(|user| user.policy == Policy::Admin)
    }

    /// Whether an action is allowed on the service (`None`), a bucket, or a key.
    pub fn may(&self, action: &str, bucket: Option<&str>, key: Option<&str>) -> bool {
        let resource = match (bucket, key) {
            (Some(bucket), Some(key)) => format!("arn:aws:s3:::{bucket}/{key}"),
            (Some(bucket), None) => format!("arn:aws:s3:::{bucket}"),
            (None, _) => "*".to_owned(),
        };
        self.user.as_deref().is_some_and(|user| user.policy.allows(action, &resource))
    }

    /// Whether an action is allowed on a key.
    pub fn may_key(&self, action: &str, bucket: &str, key: &str) -> bool {
        self.may(action, Some(bucket), Some(key))
    }

    /// Refuses what is not allowed.
    ///
    /// # Errors
    /// `AccessDenied`, the same for everything: existence is not revealed (C41).
    pub fn authorize(&self, action: &str, bucket: Option<&str>, key: Option<&str>) -> Result<(), S3Error> {
        if self.may(action, bucket, key) { Ok(()) } else { Err(S3Error::new(ErrorCode::AccessDenied)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::PolicyDocument;

    fn credentials(id: &str) -> Credentials {
        Credentials { access_key_id: id.into(), secret: SecretKey::new(format!("secret of {id}")) }
    }

    fn users() -> Users {
        let document = r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b/x/*"}}"#;
        let narrow = Policy::Document(PolicyDocument::parse(document.as_bytes()).unwrap());
        let user = |name: &str, policy| UserConfig {
            name: name.into(),
            canonical_id: None,
            credentials: credentials(&format!("AK-{name}")),
            policy,
        };
        Users::new(Some(credentials("AK-root")), vec![user("reader", Policy::ReadOnly), user("narrow", narrow)])
    }

    #[test]
    fn everybody_may_what_their_policy_says_and_nobody_may_nothing() {
        let users = users();
        let may = |id: &str, action, key| users.principal(Some(id)).may_key(action, "b", key);
        assert!(may("AK-root", "s3:DeleteObject", "k"));
        assert!(may("AK-reader", "s3:GetObject", "k") && !may("AK-reader", "s3:PutObject", "k"));
        assert!(may("AK-narrow", "s3:PutObject", "x/k") && !may("AK-narrow", "s3:PutObject", "y/k"));
        assert!(!may("AK-unknown", "s3:GetObject", "k"));
        let error = users.principal(None).authorize("s3:GetObject", Some("b"), Some("k")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::AccessDenied);
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
    }
}
