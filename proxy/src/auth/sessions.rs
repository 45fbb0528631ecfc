//! Temporary credentials: issued by STS, good until they expire, held by nobody. The session token
//! itself carries all of it, sealed under a key that is derived from the secret of the user who
//! asked. Every process that can verify that user's signatures can open it, and removing the user,
//! or changing its secret, ends its sessions (docs/decisions/0027-session-tokens.md).

use super::{Users, users::User};
use crate::auth::Principal;
use access::{Caller, Document, RoleSession};
use aes_gcm::{AeadInOut as _, Aes256Gcm, KeyInit as _, Nonce};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use s3_wire::sigv4::{NoSecret, SecretKey};
use serde::{Deserialize, Serialize};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// The first byte of a token, so that a later form can be told apart.
const VERSION: u8 = 1;
/// Bytes that make the key of each token its own.
const SALT_LEN: usize = 16;
const TAG_LEN: usize = 16;
/// Longer tokens are nobody's: the longest policy and names are far shorter.
const TOKEN_BYTES_MAX: usize = 32 << 10;

/// A session: what its token said, held against the users and roles of now.
#[derive(Debug)]
pub(super) struct Session {
    /// Its own secret.
    pub(super) secret: SecretKey,
    /// Whom it acts as: the user who asked for it, or a role.
    pub(super) acts_as: Arc<User>,
    /// How policies name it, where that is not its user.
    pub(super) caller: Option<Caller>,
    /// It may do no more than this.
    pub(super) policy: Option<Document>,
    /// When it began.
    pub(super) began: SystemTime,
}

/// What a user wants temporary credentials for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The role to take on, and what its session is called; without one the user's own rights.
    pub role: Option<RoleSession>,
    /// The policy that the session may do no more than.
    pub policy: Option<String>,
    /// How long.
    pub duration: Duration,
}

/// Temporary credentials that were just made.
pub struct Issued {
    /// The access key.
    pub access_key_id: String,
    /// Its secret.
    pub secret_access_key: Zeroizing<String>,
    /// The session token.
    pub session_token: String,
    /// Until when they are good; whole seconds.
    pub expires: SystemTime,
    /// How policies name whoever uses them.
    pub caller: Caller,
}

/// Why no credentials are issued.
#[derive(Debug, PartialEq, Eq)]
pub enum IssueError {
    /// The caller may not take on the role, or a session may not ask for sessions, or nobody asks.
    Denied,
    /// Longer than the role's sessions may be.
    TooLong,
    /// The session's policy is not one; why.
    Policy(String),
    /// The operating system gave no random bytes, or the bytes could not be sealed.
    Failed,
}

/// What is sealed in a token. Part of a format that lives as long as the longest session.
#[derive(Serialize, Deserialize, ZeroizeOnDrop)]
struct Sealed {
    access_key_id: String,
    secret: String,
    began_s: u64,
    expires_s: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
}

impl Users {
    /// Makes temporary credentials for a caller.
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn issue(&self, asker: &Principal, wanted: Wanted, now: SystemTime) -> Result<Issued, IssueError> {
        let user = asker.user().ok_or(IssueError::Denied)?;
        // A session could outlive what it was given for by asking for the next one. AWS lets that
        // of GetSessionToken take on roles; here its user asks.
        if asker.session().is_some() {
            return Err(IssueError::Denied);
        }
        let mut caller = user.caller.clone();
        if let Some(session) = &wanted.role {
            let role = self.role(&session.role).filter(|role| role.users.contains(&user.name));
            let role = role.ok_or(IssueError::Denied)?;
            if wanted.duration > role.duration_max {
                return Err(IssueError::TooLong);
            }
            caller = Caller { role: Some(session.clone()), ..role.acts_as.caller.clone() };
        }
        if let Some(text) = &wanted.policy {
            Document::identity(text.as_bytes()).map_err(|error| IssueError::Policy(error.to_string()))?;
        }
        let began_s = now.duration_since(UNIX_EPOCH).map_err(|_| IssueError::Failed)?.as_secs();
        let expires_s = began_s + wanted.duration.as_secs();
        let (role, session) = wanted.role.map(|of| (of.role, of.session)).unzip();
        let sealed = Sealed {
            access_key_id: format!("ASIA{}", random_text::<16>()?),
            secret: random_text::<40>()?,
            began_s,
            expires_s,
            role,
            session,
            policy: wanted.policy,
        };
        Ok(Issued {
            session_token: seal(user, &sealed)?,
            access_key_id: sealed.access_key_id.clone(),
            secret_access_key: Zeroizing::new(sealed.secret.clone()),
            expires: UNIX_EPOCH + Duration::from_secs(expires_s),
            caller,
        })
    }
}

impl Session {
    /// Opens a token that came with an access key.
    ///
    /// # Errors
    /// `Unknown` for whatever was not sealed for a user of now, or names a role that its user may
    /// not take on any more; `Expired`.
    pub(super) fn open(users: &Users, access_key_id: &str, token: &str, now: SystemTime) -> Result<Self, NoSecret> {
        let (user, sealed) = open(users, token).ok_or(NoSecret::Unknown)?;
        if sealed.access_key_id != access_key_id {
            return Err(NoSecret::Unknown);
        }
        if now >= UNIX_EPOCH + Duration::from_secs(sealed.expires_s) {
            return Err(NoSecret::Expired);
        }
        let policy = sealed.policy.as_ref().map(|text| Document::identity(text.as_bytes())).transpose();
        let (acts_as, caller) = match (sealed.role.clone(), sealed.session.clone()) {
            (Some(role), Some(session)) => {
                let found = users.role(&role).filter(|role| role.users.contains(&user.name));
                let acts_as = found.ok_or(NoSecret::Unknown)?.acts_as.clone();
                let caller = Caller { role: Some(RoleSession { role, session }), ..acts_as.caller.clone() };
                (acts_as, Some(caller))
            }
            (None, None) => (user.clone(), None),
            _ => return Err(NoSecret::Unknown),
        };
        Ok(Self {
            secret: SecretKey::new(sealed.secret.as_str()),
            acts_as,
            caller,
            // A policy that was one when it was sealed is refused by a later build at worst: then
            // the session is nobody's, and never one without its policy.
            policy: policy.map_err(|_| NoSecret::Unknown)?,
            began: UNIX_EPOCH + Duration::from_secs(sealed.began_s),
        })
    }
}

/// `VERSION`, the length of the user's access key and the key itself, the salt, all of them
/// authenticated; then the ciphertext and its tag.
fn seal(user: &User, sealed: &Sealed) -> Result<String, IssueError> {
    let parent = &user.access_key_id;
    let mut token = vec![VERSION, u8::try_from(parent.len()).map_err(|_| IssueError::Failed)?];
    token.extend_from_slice(parent.as_bytes());
    let mut salt = [0_u8; SALT_LEN];
    getrandom::fill(&mut salt).map_err(|_| IssueError::Failed)?;
    token.extend_from_slice(&salt);
    let mut plain = Zeroizing::new(serde_json::to_vec(sealed).map_err(|_| IssueError::Failed)?);
    let tag =
        cipher(&user.secret, &salt).encrypt_inout_detached(&Nonce::default(), &token, plain.as_mut_slice().into());
    let tag = tag.map_err(|_| IssueError::Failed)?;
    token.extend_from_slice(&plain);
    token.extend_from_slice(&tag);
    Ok(STANDARD.encode(token))
}

fn open<'u>(users: &'u Users, token: &str) -> Option<(&'u Arc<User>, Sealed)> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let token = STANDARD.decode(token).ok()?;
    let (&version, rest) = token.split_first()?;
    let (&parent_len, rest) = rest.split_first()?;
    if version != VERSION {
        return None;
    }
    let (parent, rest) = rest.split_at_checked(usize::from(parent_len))?;
    let user = users.by_access_key(std::str::from_utf8(parent).ok()?)?;
    let (salt, rest) = rest.split_first_chunk::<SALT_LEN>()?;
    let (sealed, tag) = rest.split_last_chunk::<TAG_LEN>()?;
    let mut plain = Zeroizing::new(sealed.to_vec());
    let associated = &token[..token.len() - rest.len()];
    let opened = cipher(&user.secret, salt).decrypt_inout_detached(
        &Nonce::default(),
        associated,
        plain.as_mut_slice().into(),
        tag.into(),
    );
    opened.ok()?;
    Some((user, serde_json::from_slice(&plain).ok()?))
}

/// The cipher of one token. Its key is used once, so its nonce may be zero.
fn cipher(secret: &SecretKey, salt: &[u8; SALT_LEN]) -> Aes256Gcm {
    let purpose = [b"deltaweir session token v1\0".as_slice(), salt].concat();
    Aes256Gcm::new((&*secret.derived(&purpose)).into())
}

fn random_text<const N: usize>() -> Result<String, IssueError> {
    super::root::random_text::<N>().map_err(|_| IssueError::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Credentials, Look, Policy, RoleConfig, UserConfig};
    use proptest::prelude::*;
    use s3_wire::sigv4::CredentialStore as _;
    use std::collections::BTreeSet;

    fn users_of(secret: &str, trusted: &[&str]) -> Users {
        let user = |name: &str| UserConfig {
            name: name.into(),
            canonical_id: None,
            email: None,
            credentials: Credentials { access_key_id: format!("AK-{name}"), secret: SecretKey::new(secret) },
            policy: Policy::ReadWrite,
        };
        let role = RoleConfig {
            name: "reader".into(),
            canonical_id: None,
            users: trusted.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>(),
            duration_max: Duration::from_secs(3600),
            policy: Policy::ReadOnly,
        };
        Users::new(None, vec![user("ann"), user("bob")]).with_roles(vec![role])
    }

    fn principal(users: &Users, access_key_id: &str, token: Option<&str>) -> Result<Principal, NoSecret> {
        principal_at(users, access_key_id, token, SystemTime::now())
    }

    fn principal_at(
        users: &Users,
        access_key_id: &str,
        token: Option<&str>,
        now: SystemTime,
    ) -> Result<Principal, NoSecret> {
        let look: Look<'_> = users.look(now);
        look.secret(access_key_id, token)?;
        Ok(look.principal())
    }

    fn as_reader() -> Wanted {
        let role = Some(RoleSession { role: "reader".into(), session: "run".into() });
        Wanted { role, policy: None, duration: Duration::from_secs(900) }
    }

    #[test]
    fn a_session_is_its_user_narrowed_until_it_expires() {
        let users = users_of("secret-of-both", &[]);
        let ann = principal(&users, "AK-ann", None).unwrap();
        let policy =
            r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}}"#;
        let wanted = Wanted { role: None, policy: Some(policy.into()), duration: Duration::from_secs(900) };
        let issued = users.issue(&ann, wanted, SystemTime::now()).ok().unwrap();
        let open = |key: &str| principal(&users, key, Some(&issued.session_token));
        let session = open(&issued.access_key_id).unwrap();
        assert_eq!(session.user().unwrap().name, "ann");
        assert_eq!(session.caller(), ann.caller());
        assert!(session.identity().session.is_some() && ann.identity().session.is_none());
        assert_eq!(open("ASIAOTHER").err(), Some(NoSecret::Unknown));
        assert_eq!(open("AK-ann").err(), Some(NoSecret::Unknown));
        let later = issued.expires;
        let expired = principal_at(&users, &issued.access_key_id, Some(&issued.session_token), later);
        assert_eq!(expired.err(), Some(NoSecret::Expired));
    }

    #[test]
    fn a_role_is_taken_on_by_those_it_trusts_and_only_while_it_does() {
        let users = users_of("secret-of-both", &["ann"]);
        let ann = principal(&users, "AK-ann", None).unwrap();
        let bob = principal(&users, "AK-bob", None).unwrap();
        let now = SystemTime::now();
        assert_eq!(users.issue(&bob, as_reader(), now).err(), Some(IssueError::Denied));
        let too_long = Wanted { duration: Duration::from_secs(3601), ..as_reader() };
        assert_eq!(users.issue(&ann, too_long, now).err(), Some(IssueError::TooLong));
        let issued = users.issue(&ann, as_reader(), now).ok().unwrap();
        assert!(issued.caller.arn().ends_with(":assumed-role/reader/run"));
        let open = |users: &Users| principal(users, &issued.access_key_id, Some(&issued.session_token));
        let session = open(&users).unwrap();
        assert_eq!(session.caller().unwrap(), &issued.caller);
        assert_eq!(users.issue(&session, Wanted::default(), now).err(), Some(IssueError::Denied), "no chains");
        let revoked = users_of("secret-of-both", &["bob"]);
        assert_eq!(open(&revoked).err(), Some(NoSecret::Unknown));
    }

    #[test]
    fn removing_a_user_or_its_secret_ends_its_sessions() {
        let users = users_of("secret-of-both", &[]);
        let ann = principal(&users, "AK-ann", None).unwrap();
        let wanted = Wanted { duration: Duration::from_secs(900), ..Wanted::default() };
        let issued = users.issue(&ann, wanted, SystemTime::now()).ok().unwrap();
        let open = |users: &Users| principal(users, &issued.access_key_id, Some(&issued.session_token)).err();
        assert_eq!(open(&users_of("secret-of-both", &[])), None, "another process with the same users");
        assert_eq!(open(&users_of("another-secret", &[])), Some(NoSecret::Unknown));
        assert_eq!(open(&Users::new(None, Vec::new())), Some(NoSecret::Unknown));
    }

    proptest! {
        #[test]
        fn a_token_that_was_changed_anywhere_is_nobodys(at in any::<prop::sample::Index>(), flip in 1..=255_u8, cut in any::<prop::sample::Index>()) {
            let users = users_of("secret-of-both", &[]);
            let ann = principal(&users, "AK-ann", None).unwrap();
            let wanted = Wanted { duration: Duration::from_secs(900), ..Wanted::default() };
            let issued = users.issue(&ann, wanted, SystemTime::now()).ok().unwrap();
            let token = STANDARD.decode(&issued.session_token).unwrap();
            let mut changed = token.clone();
            changed[at.index(token.len())] ^= flip;
            for wrong in [&changed[..], &token[..cut.index(token.len())]] {
                let opened = principal(&users, &issued.access_key_id, Some(&STANDARD.encode(wrong)));
                prop_assert_eq!(opened.err(), Some(NoSecret::Unknown));
            }
        }
    }
}
