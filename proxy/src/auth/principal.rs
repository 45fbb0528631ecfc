//! Who sent a request: a user, a session, or nobody; and how that is found out.

use super::{
    sessions::{self, IssueError, Issued, Session, Wanted},
    users::{ANONYMOUS_ID, Key, ROOT, User, Users},
};
use access::{Caller, Identity};
use s3_wire::sigv4::{CredentialStore, NoSecret, SecretKey};
use std::{cell::OnceCell, sync::Arc, time::SystemTime};

/// A look for the secret of one request, that remembers whose it was.
pub struct Look<'u> {
    users: &'u Users,
    now: SystemTime,
    found: OnceCell<Principal>,
}

impl<'u> Look<'u> {
    /// A look among users.
    pub fn new(users: &'u Users, now: SystemTime) -> Self {
        Self { users, now, found: OnceCell::new() }
    }

    /// Whose secret was found; nobody when none was asked for. Good once the signature has been
    /// verified with it.
    pub fn principal(self) -> Principal {
        self.found.into_inner().unwrap_or_else(Principal::nobody)
    }
}

impl CredentialStore for Look<'_> {
    fn secret(&self, access_key_id: &str, session_token: Option<&str>) -> Result<SecretKey, NoSecret> {
        let (secret, principal) = match session_token {
            None => {
                let key = self.users.by_access_key(access_key_id).ok_or(NoSecret::Unknown);
                let key = self.known(key, |key| &key.user)?;
                (key.secret.clone(), Principal::of(key))
            }
            Some(token) => {
                let session = Session::open(self.users, access_key_id, token, self.now);
                let session = self.known(session, |session| &session.asked_by)?;
                let user = session.acts_as.clone();
                (session.secret.clone(), Principal { user: Some(user), key: None, session: Some(Arc::new(session)) })
            }
        };
        // A request has one signature, so this is asked once.
        let _ = self.found.set(principal);
        Ok(secret)
    }
}

impl Look<'_> {
    /// What was found; nothing of others than root's while it is not known what changed elsewhere.
    fn known<T>(&self, found: Result<T, NoSecret>, whose: impl Fn(&T) -> &User) -> Result<T, NoSecret> {
        let is_root = found.as_ref().is_ok_and(|found| whose(found).name == ROOT);
        if is_root || self.users.are_fresh() { found } else { Err(NoSecret::NotNow) }
    }
}

/// Who sent a request: a user or a session of one, or nobody.
#[derive(Clone, Debug)]
pub struct Principal {
    user: Option<Arc<User>>,
    /// What a user signed with.
    key: Option<Arc<Key>>,
    session: Option<Arc<Session>>,
}

impl Principal {
    /// Who does not sign.
    pub fn nobody() -> Self {
        Self { user: None, key: None, session: None }
    }

    fn of(key: &Arc<Key>) -> Self {
        Self { user: Some(key.user.clone()), key: Some(key.clone()), session: None }
    }

    /// The user of a name.
    pub fn named(users: &Users, name: &str) -> Option<Self> {
        Some(Self { user: Some(users.named(name)?.clone()), key: None, session: None })
    }

    /// Makes temporary credentials for this caller. A session gets none: it could outlive its end
    /// by asking for the next one. AWS lets a session of GetSessionToken take on roles; here its
    /// user asks.
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn issue(&self, users: &Users, wanted: Wanted, now: SystemTime) -> Result<Issued, IssueError> {
        match (&self.key, self.session()) {
            (Some(key), None) => sessions::issue(users, key, wanted, now),
            _ => Err(IssueError::Denied),
        }
    }

    /// The user, when the request was signed; for a session of a role, whom the role acts as.
    pub fn user(&self) -> Option<&User> {
        self.user.as_deref()
    }

    /// The session, when the request came with temporary credentials.
    fn session(&self) -> Option<&Session> {
        self.session.as_deref()
    }

    /// When the session began, when there is one.
    pub fn session_began(&self) -> Option<SystemTime> {
        self.session().map(|session| session.began)
    }

    /// The user's canonical id; [`ANONYMOUS_ID`] for nobody.
    pub fn canonical_id(&self) -> &str {
        self.user.as_deref().map_or(ANONYMOUS_ID, |user| user.canonical_id.as_str())
    }

    /// What tells this writer from every other, also from others of the same account: sessions that
    /// are narrower than their user, and those of roles, are writers of their own. `None` for
    /// nobody.
    pub fn writer_id(&self) -> Option<String> {
        match self.session() {
            Some(session) if session.policy.is_some() || session.caller.is_some() => {
                Some(format!("session {}", session.access_key_id))
            }
            _ => self.party(),
        }
    }

    /// Whose share of the server's means it takes: the user's or role's, whatever session; `None`
    /// for nobody.
    pub fn party(&self) -> Option<String> {
        self.user().map(|user| format!("user {} {}", user.caller.account, user.name))
    }

    /// Whether the user may do everything, other users' uploads included.
    pub fn is_admin(&self) -> bool {
        let narrowed = self.session().is_some_and(|session| session.policy.is_some());
        !narrowed && self.user.as_deref().is_some_and(|user| user.rights.admin)
    }

    /// Who asks, as policies name it.
    pub fn caller(&self) -> Option<&Caller> {
        let of_session = self.session().and_then(|session| session.caller.as_ref());
        of_session.or_else(|| self.user.as_deref().map(|user| &user.caller))
    }

    /// What the user's own policy allows, and the session's.
    pub fn identity(&self) -> Identity<'_> {
        let identity = self.user.as_deref().map(|user| user.rights.identity()).unwrap_or_default();
        Identity { session: self.session().and_then(|session| session.policy.as_ref()), ..identity }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{
        Credentials, Policy, RoleConfig, UserConfig, freshness::Freshness, policy::Rights, users::Account,
    };
    use access::RoleSession;
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use proptest::prelude::*;
    use std::{collections::BTreeSet, time::Duration};

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
        let look = Look::new(users, now);
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
        let issued = ann.issue(&users, wanted, SystemTime::now()).ok().unwrap();
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
        assert_eq!(bob.issue(&users, as_reader(), now).err(), Some(IssueError::Denied));
        let too_long = Wanted { duration: Duration::from_secs(3601), ..as_reader() };
        assert_eq!(ann.issue(&users, too_long, now).err(), Some(IssueError::TooLong));
        let issued = ann.issue(&users, as_reader(), now).ok().unwrap();
        assert!(issued.caller.arn().ends_with(":assumed-role/reader/run"));
        let open = |users: &Users| principal(users, &issued.access_key_id, Some(&issued.session_token));
        let session = open(&users).unwrap();
        assert_eq!(session.caller().unwrap(), &issued.caller);
        assert_eq!(session.issue(&users, Wanted::default(), now).err(), Some(IssueError::Denied), "no chains");
        let revoked = users_of("secret-of-both", &["bob"]);
        assert_eq!(open(&revoked).err(), Some(NoSecret::Unknown));
    }

    #[test]
    fn removing_a_user_or_its_secret_ends_its_sessions() {
        let users = users_of("secret-of-both", &[]);
        let ann = principal(&users, "AK-ann", None).unwrap();
        let wanted = Wanted { duration: Duration::from_secs(900), ..Wanted::default() };
        let issued = ann.issue(&users, wanted, SystemTime::now()).ok().unwrap();
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
            let issued = ann.issue(&users, wanted, SystemTime::now()).ok().unwrap();
            let token = STANDARD.decode(&issued.session_token).unwrap();
            let mut changed = token.clone();
            changed[at.index(token.len())] ^= flip;
            for wrong in [&changed[..], &token[..cut.index(token.len())]] {
                let opened = principal(&users, &issued.access_key_id, Some(&STANDARD.encode(wrong)));
                prop_assert_eq!(opened.err(), Some(NoSecret::Unknown));
            }
        }
    }

    #[test]
    fn root_alone_signs_while_it_is_not_known_what_changed_elsewhere() {
        let pair =
            |name: &str| Credentials { access_key_id: format!("AK-{name}"), secret: SecretKey::new("secret-of-both") };
        let users = |freshness: Freshness| {
            let ann = Account {
                name: "ann".into(),
                canonical_id: None,
                email: None,
                keys: vec![pair("ann")],
                rights: Rights::default(),
            };
            Users::of(Some(pair("root")), [ann], Arc::new(freshness))
        };
        let fresh = users(Freshness::default());
        let ann = principal(&fresh, "AK-ann", None).unwrap();
        let wanted = Wanted { duration: Duration::from_secs(900), ..Wanted::default() };
        let issued = ann.issue(&fresh, wanted, SystemTime::now()).ok().unwrap();
        let lapsed = users(Freshness::lapsed());
        assert!(principal(&lapsed, "AK-root", None).is_ok());
        for (key, token) in [
            ("AK-ann", None),
            ("AK-nobody", None),
            (issued.access_key_id.as_str(), Some(issued.session_token.as_str())),
        ] {
            assert_eq!(principal(&lapsed, key, token).err(), Some(NoSecret::NotNow), "{key}");
        }
    }

    #[test]
    fn a_session_token_that_is_not_ours_finds_no_secret() {
        // C26
        let users = users_of("secret-of-both", &[]);
        let secret = |id: &str, token| Look::new(&users, SystemTime::now()).secret(id, token).map(|_| ());
        assert_eq!(secret("AK-ann", None), Ok(()));
        assert_eq!(secret("AK-ann", Some("token")), Err(NoSecret::Unknown));
        assert_eq!(secret("AK-nobody", None), Err(NoSecret::Unknown));
    }
}
