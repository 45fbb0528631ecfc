//! Temporary credentials: issued by STS, good until they expire, held by nobody. The session token
//! itself carries all of it, sealed under a key that is derived from the secret of the user who
//! asked. Every process that can verify that user's signatures can open it, and removing the user,
//! or changing its secret, ends its sessions (docs/decisions/0027-session-tokens.md).

use super::{
    root::random_text,
    users::{Key, User, Users},
};
use access::{Caller, Document, RoleSession};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use crypto::{
    aead::{Aead as _, NONCE_LEN, Short, TAG_LEN},
    fill_random,
};
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
/// A key is used once.
const NONCE: [u8; NONCE_LEN] = [0; NONCE_LEN];
/// Longer tokens are nobody's: the longest policy and names are far shorter.
const TOKEN_BYTES_MAX: usize = 32 << 10;

/// A session: what its token said, held against the users and roles of now.
#[derive(Debug)]
pub(super) struct Session {
    /// Its access key, which no other session has.
    pub(super) access_key_id: String,
    /// Its own secret.
    pub(super) secret: SecretKey,
    /// The user who asked for it.
    pub(super) asked_by: Arc<User>,
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

/// Makes temporary credentials for a user.
///
/// # Errors
/// [`IssueError`].
pub(super) fn issue(users: &Users, key: &Key, wanted: Wanted, now: SystemTime) -> Result<Issued, IssueError> {
    let failed = |_| IssueError::Failed;
    let user = &key.user;
    let mut caller = user.caller.clone();
    if let Some(session) = &wanted.role {
        let role = users.role(&session.role).filter(|role| role.users.contains(&user.name));
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
        access_key_id: format!("ASIA{}", random_text::<16>().map_err(failed)?),
        secret: random_text::<40>().map_err(failed)?,
        began_s,
        expires_s,
        role,
        session,
        policy: wanted.policy,
    };
    Ok(Issued {
        session_token: seal(key, &sealed)?,
        access_key_id: sealed.access_key_id.clone(),
        secret_access_key: Zeroizing::new(sealed.secret.clone()),
        expires: UNIX_EPOCH + Duration::from_secs(expires_s),
        caller,
    })
}

impl Session {
    /// Opens a token that came with an access key.
    ///
    /// # Errors
    /// `Unknown` for whatever was not sealed for a user of now, or names a role that its user may
    /// not take on any more; `Expired`.
    pub(super) fn open(users: &Users, access_key_id: &str, token: &str, now: SystemTime) -> Result<Self, NoSecret> {
        let (key, sealed) = open(users, token).ok_or(NoSecret::Unknown)?;
        let user = &key.user;
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
            access_key_id: sealed.access_key_id.clone(),
            secret: SecretKey::new(sealed.secret.as_str()),
            asked_by: user.clone(),
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
fn seal(key: &Key, sealed: &Sealed) -> Result<String, IssueError> {
    let parent = &key.access_key_id;
    let mut token = vec![VERSION, u8::try_from(parent.len()).map_err(|_| IssueError::Failed)?];
    token.extend_from_slice(parent.as_bytes());
    let mut salt = [0_u8; SALT_LEN];
    fill_random(&mut salt).map_err(|_| IssueError::Failed)?;
    token.extend_from_slice(&salt);
    let mut plain = Zeroizing::new(serde_json::to_vec(sealed).map_err(|_| IssueError::Failed)?);
    let tag = cipher(&key.secret, &salt).seal(NONCE, &token, &mut plain);
    token.extend_from_slice(&plain);
    token.extend_from_slice(&tag);
    Ok(STANDARD.encode(token))
}

fn open<'u>(users: &'u Users, token: &str) -> Option<(&'u Arc<Key>, Sealed)> {
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
    let key = users.by_access_key(std::str::from_utf8(parent).ok()?)?;
    let (salt, rest) = rest.split_first_chunk::<SALT_LEN>()?;
    let (sealed, tag) = rest.split_last_chunk::<TAG_LEN>()?;
    let mut plain = Zeroizing::new(sealed.to_vec());
    let associated = &token[..token.len() - rest.len()];
    cipher(&key.secret, salt).open(NONCE, associated, &mut plain, tag).ok()?;
    Some((key, serde_json::from_slice(&plain).ok()?))
}

/// The cipher of one token. Its key is used once, so its nonce may be zero.
fn cipher(secret: &SecretKey, salt: &[u8; SALT_LEN]) -> Short {
    let purpose = [b"deltaweir session token v1\0".as_slice(), salt].concat();
    Short::new(&secret.derived(&purpose))
}
