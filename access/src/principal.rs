//! Who asks, and whom a statement names.

use crate::error::PolicyError;
use serde_json::Value;

/// Who signed a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The number of the account, 12 digits.
    pub account: String,
    /// The account's canonical id.
    pub canonical_id: String,
    /// The user's own canonical id, where users of one account own buckets by an id each.
    pub own_id: String,
    /// The user's name; the account itself has none.
    pub user: Option<String>,
    /// The role, for a session of one; it has no user's name then.
    pub role: Option<RoleSession>,
}

/// A session of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleSession {
    /// The role's name.
    pub role: String,
    /// The session's name.
    pub session: String,
}

impl Caller {
    /// The ARN: `arn:aws:iam::ACCOUNT:user/NAME`, or `…:root` of the account itself, or
    /// `arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION`.
    pub fn arn(&self) -> String {
        match (&self.role, &self.user) {
            (Some(RoleSession { role, session }), _) => {
                format!("arn:aws:sts::{}:assumed-role/{role}/{session}", self.account)
            }
            (None, Some(name)) => format!("arn:aws:iam::{}:user/{name}", self.account),
            (None, None) => format!("arn:aws:iam::{}:root", self.account),
        }
    }

    /// The ARN that conditions see: a role's own, not its session's.
    pub fn principal_arn(&self) -> String {
        match &self.role {
            Some(RoleSession { role, .. }) => format!("arn:aws:iam::{}:role/{role}", self.account),
            None => self.arn(),
        }
    }

    fn is_account(&self) -> bool {
        self.user.is_none() && self.role.is_none()
    }

    fn has_id(&self, id: &str) -> bool {
        id == self.account || id == self.canonical_id || id == self.own_id
    }
}

/// The principals of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principals {
    named: Vec<Named>,
    /// `NotPrincipal`.
    pub(crate) all_but: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    Everybody,
    /// An account, which passes on to its users what they may do.
    Account(String),
    User {
        /// Empty for an account that is left out.
        account: String,
        name: String,
    },
    /// A role, in whatever session.
    Role {
        /// Empty for an account that is left out.
        account: String,
        name: String,
    },
    /// One session of a role.
    Session {
        /// Empty for an account that is left out.
        account: String,
        role: String,
        session: String,
    },
    Canonical(String),
    /// Services and federated users: nobody signs as one here.
    Other,
}

/// How a statement names a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Match {
    /// Not at all.
    No,
    /// The caller's account.
    Account,
    /// The caller itself, or everybody.
    Caller,
}

impl Principals {
    /// Reads `Principal` or `NotPrincipal`.
    ///
    /// # Errors
    /// What is not a principal.
    pub(crate) fn parse(value: &Value, all_but: bool) -> Result<Self, PolicyError> {
        let invalid = |detail: &str| PolicyError::with_detail("Invalid principal in policy", detail);
        let mut named = Vec::new();
        match value {
            Value::String(all) if all == "*" => named.push(Named::Everybody),
            Value::Object(kinds) if !kinds.is_empty() => {
                for (kind, names) in kinds {
                    let names = match names {
                        Value::Array(names) => names.as_slice(),
                        one => std::slice::from_ref(one),
                    };
                    for name in names {
                        let name = name.as_str().ok_or_else(|| invalid(kind))?;
                        named.push(Named::parse(kind, name).ok_or_else(|| invalid(&format!("{kind:?} : {name:?}")))?);
                    }
                }
            }
            other => return Err(invalid(&other.to_string())),
        }
        if named.is_empty() {
            return Err(PolicyError::new("Missing required field Principal cannot be empty!"));
        }
        Ok(Self { named, all_but })
    }

    /// Whether it is `NotPrincipal`.
    pub(crate) fn names_who_is_left_out(&self) -> bool {
        self.all_but
    }

    /// How they name a caller; `None` is anonymous.
    pub(crate) fn matches(&self, caller: Option<&Caller>) -> Match {
        let found = self.named.iter().map(|named| named.matches(caller)).max().unwrap_or(Match::No);
        match (self.all_but, found) {
            (false, found) => found,
            (true, Match::No) => Match::Caller,
            (true, _) => Match::No,
        }
    }

    /// Whether everybody is named.
    pub(crate) fn are_everybody(&self) -> bool {
        self.all_but || self.named.contains(&Named::Everybody)
    }
}

impl Named {
    fn parse(kind: &str, name: &str) -> Option<Self> {
        match kind {
            "AWS" => Self::of_aws(name),
            "CanonicalUser" if is_canonical_id(name) => Some(Self::Canonical(name.to_owned())),
            "Service" if name.contains('.') => Some(Self::Other),
            "Federated" if !name.is_empty() => Some(Self::Other),
            _ => None,
        }
    }

    fn of_aws(name: &str) -> Option<Self> {
        if name == "*" {
            return Some(Self::Everybody);
        }
        if is_account(name) {
            return Some(Self::Account(name.to_owned()));
        }
        let mut parts = name.splitn(6, ':');
        let (arn, partition, service) = (parts.next()?, parts.next()?, parts.next()?);
        let (region, account, resource) = (parts.next()?, parts.next()?, parts.next()?);
        if arn != "arn" || !partition.starts_with("aws") || !region.is_empty() || account.contains(['*', '?']) {
            return None;
        }
        let account = account.to_owned();
        match (service, resource.split_once('/')) {
            ("iam", None) if resource == "root" && !account.is_empty() => Some(Self::Account(account)),
            ("iam", Some(("user", path))) => {
                let name = path.rsplit('/').next().filter(|name| !name.is_empty() && !name.contains(['*', '?']))?;
                Some(Self::User { account, name: name.to_owned() })
            }
            ("iam", Some(("role", path))) => {
                let name = path.rsplit('/').next().filter(|name| !name.is_empty())?;
                Some(Self::Role { account, name: name.to_owned() })
            }
            ("sts", Some(("assumed-role", name))) if !name.is_empty() => Some(match name.split_once('/') {
                Some((role, session)) => Self::Session { account, role: role.to_owned(), session: session.to_owned() },
                None => Self::Other,
            }),
            ("sts", Some(("federated-user", name))) if !name.is_empty() => Some(Self::Other),
            _ => None,
        }
    }

    fn matches(&self, caller: Option<&Caller>) -> Match {
        let is = |fits: bool, how: Match| if fits { how } else { Match::No };
        match (self, caller) {
            (Self::Everybody, _) => Match::Caller,
            (Self::Other, _) | (_, None) => Match::No,
            (Self::Account(id), Some(caller)) => {
                is(caller.has_id(id), if caller.is_account() { Match::Caller } else { Match::Account })
            }
            (Self::Canonical(id), Some(caller)) => is(caller.has_id(id), Match::Caller),
            (Self::User { account, name }, Some(caller)) => is(
                caller.user.as_deref() == Some(name) && (account.is_empty() || caller.has_id(account)),
                Match::Caller,
            ),
            (Self::Role { account, name }, Some(caller)) => is(
                caller.role.as_ref().is_some_and(|role| role.role == *name)
                    && (account.is_empty() || caller.has_id(account)),
                Match::Caller,
            ),
            (Self::Session { account, role, session }, Some(caller)) => is(
                caller.role.as_ref().is_some_and(|of| of.role == *role && of.session == *session)
                    && (account.is_empty() || caller.has_id(account)),
                Match::Caller,
            ),
        }
    }
}

/// 12 digits, or the canonical id.
fn is_account(text: &str) -> bool {
    (text.len() == 12 && text.bytes().all(|b| b.is_ascii_digit())) || is_canonical_id(text)
}

fn is_canonical_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn caller(account: &str, user: Option<&str>) -> Caller {
        let id = account.repeat(64)[..64].to_owned();
        Caller { account: account.into(), canonical_id: id.clone(), own_id: id, user: user.map(Into::into), role: None }
    }

    fn matches(principal: Value, caller: Option<&Caller>) -> Match {
        Principals::parse(&principal, false).unwrap().matches(caller)
    }

    #[test]
    fn a_caller_is_named_by_itself_or_by_its_account() {
        let ann = caller("111111111111", Some("ann"));
        let root = caller("111111111111", None);
        for (principal, of_ann, of_root, of_nobody) in [
            (json!("*"), Match::Caller, Match::Caller, Match::Caller),
            (json!({"AWS": "*"}), Match::Caller, Match::Caller, Match::Caller),
            (json!({"AWS": ["*"]}), Match::Caller, Match::Caller, Match::Caller),
            (json!({"AWS": "111111111111"}), Match::Account, Match::Caller, Match::No),
            (json!({"AWS": "arn:aws:iam::111111111111:root"}), Match::Account, Match::Caller, Match::No),
            (json!({"AWS": "arn:aws:iam::222222222222:root"}), Match::No, Match::No, Match::No),
            (json!({"AWS": "arn:aws:iam::111111111111:user/ann"}), Match::Caller, Match::No, Match::No),
            (json!({"AWS": "arn:aws:iam:::user/ann"}), Match::Caller, Match::No, Match::No),
            (json!({"AWS": "arn:aws:iam::111111111111:user/team/ann"}), Match::Caller, Match::No, Match::No),
            (json!({"AWS": "arn:aws:iam::222222222222:user/ann"}), Match::No, Match::No, Match::No),
            (json!({"CanonicalUser": "1".repeat(64)}), Match::Caller, Match::Caller, Match::No),
            (json!({"Service": "logging.s3.amazonaws.com"}), Match::No, Match::No, Match::No),
        ] {
            let found = [Some(&ann), Some(&root), None].map(|caller| matches(principal.clone(), caller));
            assert_eq!(found, [of_ann, of_root, of_nobody], "{principal}");
        }
    }

    #[test]
    fn a_session_of_a_role_is_named_by_the_role_by_itself_or_by_its_account() {
        let mut session = caller("111111111111", None);
        session.role = Some(RoleSession { role: "ci".into(), session: "run-7".into() });
        assert_eq!(session.arn(), "arn:aws:sts::111111111111:assumed-role/ci/run-7");
        assert_eq!(session.principal_arn(), "arn:aws:iam::111111111111:role/ci");
        for (principal, expected) in [
            (json!("*"), Match::Caller),
            (json!({"AWS": "arn:aws:iam::111111111111:role/ci"}), Match::Caller),
            (json!({"AWS": "arn:aws:iam::111111111111:role/team/ci"}), Match::Caller),
            (json!({"AWS": "arn:aws:iam::222222222222:role/ci"}), Match::No),
            (json!({"AWS": "arn:aws:iam::111111111111:role/other"}), Match::No),
            (json!({"AWS": "arn:aws:sts::111111111111:assumed-role/ci/run-7"}), Match::Caller),
            (json!({"AWS": "arn:aws:sts::111111111111:assumed-role/ci/run-8"}), Match::No),
            (json!({"AWS": "arn:aws:iam::111111111111:user/ci"}), Match::No),
            (json!({"AWS": "111111111111"}), Match::Account),
        ] {
            assert_eq!(matches(principal.clone(), Some(&session)), expected, "{principal}");
        }
        let ann = caller("111111111111", Some("ci"));
        assert_eq!(matches(json!({"AWS": "arn:aws:iam::111111111111:role/ci"}), Some(&ann)), Match::No);
    }

    #[test]
    fn all_but_those_named() {
        let all_but = Principals::parse(&json!({"AWS": "arn:aws:iam::111111111111:user/ann"}), true).unwrap();
        assert_eq!(all_but.matches(Some(&caller("111111111111", Some("ann")))), Match::No);
        assert_eq!(all_but.matches(Some(&caller("111111111111", Some("bob")))), Match::Caller);
        assert_eq!(all_but.matches(None), Match::Caller);
        assert!(all_but.are_everybody());
    }

    #[test]
    fn what_is_no_principal_is_refused() {
        for principal in [
            json!("ann"),
            json!({}),
            json!({"AWS": []}),
            json!({"AWS": "ann"}),
            json!({"AWS": "arn:aws:iam::111111111111:user/*"}),
            json!({"AWS": "arn:aws:iam::*:root"}),
            json!({"AWS": "arn:aws:s3:::bucket"}),
            json!({"AWS": 1}),
            json!({"CanonicalUser": "short"}),
            json!({"User": "ann"}),
            json!(["*"]),
        ] {
            assert!(Principals::parse(&principal, false).is_err(), "{principal}");
        }
    }
}
