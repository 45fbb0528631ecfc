//! The calls of the admin API, in one table: `docs/reference/openapi.json` has each of them and no
//! other, which a test compares.

use super::answer::AdminError;
use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// What every call's path begins with.
pub const ROOT: &str = "/api/v1/";

/// What a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "docs/reference/openapi.json says what each is")]
pub enum Call {
    AddBucket,
    AddUser,
    AttachPolicy,
    AuditLines,
    AuditVerdict,
    Backups,
    BeginSignIn,
    Buckets,
    ChangeBucket,
    ChangeKeys,
    ChangeMembers,
    ChangeUser,
    CheckKeys,
    ClearQuota,
    DropCaches,
    EndSignIn,
    EndSession,
    Explain,
    Gc,
    Groups,
    Inspect,
    Job,
    Jobs,
    Journal,
    Keys,
    Lifecycle,
    Log,
    Map,
    Object,
    Objects,
    OpenSession,
    Overview,
    Policies,
    Policy,
    Preview,
    PutGroup,
    PutPolicy,
    Quarantine,
    Quota,
    Quotas,
    Recovery,
    Request,
    Requests,
    RemoveGroup,
    RemoveKey,
    RemovePolicy,
    RemoveUser,
    RotateKeys,
    Shred,
    Shredding,
    Session,
    SetQuota,
    Settle,
    SignInOffer,
    StartJob,
    Stats,
    Streams,
    Traffic,
    User,
    UserPolicy,
    Users,
    Versions,
}

/// Every call: its method, its path behind [`ROOT`], and what it is. `{name}` is one element.
pub const ROUTES: &[(Method, &str, Call)] = &[
    (Method::GET, "audit", Call::AuditLines),
    (Method::GET, "audit/verify", Call::AuditVerdict),
    (Method::GET, "backups", Call::Backups),
    (Method::GET, "buckets", Call::Buckets),
    (Method::POST, "buckets/{name}", Call::ChangeBucket),
    (Method::PUT, "buckets/{name}", Call::AddBucket),
    (Method::POST, "cache/drop", Call::DropCaches),
    (Method::GET, "explain", Call::Explain),
    (Method::POST, "gc", Call::Gc),
    (Method::GET, "groups", Call::Groups),
    (Method::DELETE, "groups/{name}", Call::RemoveGroup),
    (Method::POST, "groups/{name}", Call::ChangeMembers),
    (Method::PUT, "groups/{name}", Call::PutGroup),
    (Method::GET, "inspect", Call::Inspect),
    (Method::GET, "jobs", Call::Jobs),
    (Method::GET, "jobs/{name}", Call::Job),
    (Method::POST, "jobs/{name}", Call::StartJob),
    (Method::POST, "journal", Call::Journal),
    (Method::GET, "keys", Call::Keys),
    (Method::GET, "keys/check", Call::CheckKeys),
    (Method::POST, "keys/rotate", Call::RotateKeys),
    (Method::GET, "keys/shred", Call::Shredding),
    (Method::POST, "keys/shred", Call::Shred),
    (Method::GET, "lifecycle", Call::Lifecycle),
    (Method::GET, "log", Call::Log),
    (Method::GET, "map", Call::Map),
    (Method::GET, "object", Call::Object),
    (Method::GET, "objects", Call::Objects),
    (Method::GET, "oidc", Call::SignInOffer),
    (Method::GET, "oidc/callback", Call::EndSignIn),
    (Method::GET, "oidc/login", Call::BeginSignIn),
    (Method::GET, "overview", Call::Overview),
    (Method::GET, "policies", Call::Policies),
    (Method::DELETE, "policies/{name}", Call::RemovePolicy),
    (Method::GET, "policies/{name}", Call::UserPolicy),
    (Method::POST, "policies/{name}", Call::AttachPolicy),
    (Method::PUT, "policies/{name}", Call::PutPolicy),
    (Method::GET, "policy", Call::Policy),
    (Method::POST, "preview", Call::Preview),
    (Method::GET, "quarantine", Call::Quarantine),
    (Method::DELETE, "quota", Call::ClearQuota),
    (Method::GET, "quota", Call::Quota),
    (Method::PUT, "quota", Call::SetQuota),
    (Method::GET, "quotas", Call::Quotas),
    (Method::GET, "recovery", Call::Recovery),
    (Method::GET, "requests", Call::Requests),
    (Method::GET, "requests/{name}", Call::Request),
    (Method::DELETE, "session", Call::EndSession),
    (Method::GET, "session", Call::Session),
    (Method::POST, "session", Call::OpenSession),
    (Method::POST, "settle", Call::Settle),
    (Method::GET, "stats", Call::Stats),
    (Method::POST, "streams", Call::Streams),
    (Method::GET, "traffic", Call::Traffic),
    (Method::DELETE, "user-keys/{name}", Call::RemoveKey),
    (Method::POST, "user-keys/{name}", Call::ChangeKeys),
    (Method::GET, "users", Call::Users),
    (Method::DELETE, "users/{name}", Call::RemoveUser),
    (Method::GET, "users/{name}", Call::User),
    (Method::POST, "users/{name}", Call::ChangeUser),
    (Method::PUT, "users/{name}", Call::AddUser),
    (Method::GET, "versions", Call::Versions),
];

/// The call of a request, and the element that stands for `{name}`, decoded, if its path has one.
///
/// # Errors
/// 404 for a path that is no call's, 405 for another method.
pub(super) fn route<'p>(method: &Method, path: &'p str) -> Result<(Call, Cow<'p, str>), AdminError> {
    let name = path.strip_prefix(ROOT).ok_or_else(|| AdminError::not_found("page"))?;
    let matching = ROUTES.iter().filter_map(|(method, pattern, call)| Some((method, *call, matches(pattern, name)?)));
    let mut methods = Vec::new();
    for (wanted, call, element) in matching {
        if wanted == method {
            let decoded = percent_decode_str(element).decode_utf8();
            return Ok((call, decoded.map_err(|_| AdminError::not_found("call"))?));
        }
        methods.push(wanted.as_str());
    }
    match methods.is_empty() {
        true => Err(AdminError::not_found("call")),
        false => {
            let message = format!("{name} is asked for with {}", methods.join(" or "));
            Err(AdminError::new(StatusCode::METHOD_NOT_ALLOWED, message))
        }
    }
}

/// What stands for `{name}`; empty where the pattern has none, `None` when the path is another.
fn matches<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    match pattern.strip_suffix("{name}") {
        None => (pattern == path).then_some(""),
        Some(before) => path.strip_prefix(before).filter(|name| !name.is_empty() && !name.contains('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_their_calls_and_nowhere_else() {
        let routed = |method, path| {
            let found = route(&method, path);
            found.map(|(call, name)| (call, name.into_owned())).map_err(|error| error.status.as_u16())
        };
        assert_eq!(routed(Method::GET, "/api/v1/jobs"), Ok((Call::Jobs, String::new())));
        assert_eq!(routed(Method::POST, "/api/v1/jobs/gc"), Ok((Call::StartJob, "gc".to_owned())));
        assert_eq!(routed(Method::GET, "/api/v1/users/a%2Fb%20c"), Ok((Call::User, "a/b c".to_owned())));
        assert_eq!(routed(Method::GET, "/api/v1/users/%ff"), Err(404));
        assert_eq!(routed(Method::POST, "/api/v1/stats"), Err(405));
        for path in ["/api/v1/", "/api/v1/jobs/", "/api/v1/jobs/a/b", "/api/v2/stats", "/stats", "/api/v1/stats/"] {
            assert_eq!(routed(Method::GET, path), Err(404), "{path}");
        }
    }
}
