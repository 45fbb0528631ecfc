//! STS: temporary credentials of users and roles, and who the caller is.

use super::{
    access::user_id,
    request::{Answer, document},
};
use crate::auth::{IssueError, Issued, Principal, Users, Wanted};
use access::{Caller, RoleSession};
use s3_wire::sts::{
    AssumeRole, Assumed, CallerIdentity, GetSessionToken, IssuedCredentials, ROLE_DURATION_S, SESSION_DURATION_S,
    SessionTokenIssued, StsAction, StsError, StsErrorCode,
};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Most characters of a session policy; what it has of them is answered in percent.
const POLICY_CHARS_MAX: usize = 2048;

/// Who asks, and who there is.
pub struct Asker {
    /// Who signed.
    pub principal: Principal,
    /// Users as they were when the request came.
    pub users: Arc<Users>,
    /// The request's id.
    pub request_id: String,
}

/// Does what a request asks for.
///
/// # Errors
/// What STS answers.
pub fn act(asker: &Asker, action: StsAction, now: SystemTime) -> Result<Answer, StsError> {
    match action {
        StsAction::AssumeRole(wanted) => asker.assume_role(wanted, now),
        StsAction::GetSessionToken(wanted) => asker.get_session_token(&wanted, now),
        StsAction::GetCallerIdentity => asker.get_caller_identity(),
    }
}

impl Asker {
    fn caller(&self) -> Result<&Caller, StsError> {
        self.principal.caller().ok_or_else(|| StsError::new(StsErrorCode::AccessDenied, "Access denied"))
    }

    /// Credentials of a role, when the ARN names one. Without an ARN, or with one that is not of a
    /// role at all, such as the `arn:xxx:xxx:xxx:xxxx` that clients of MinIO send, those of the
    /// caller, narrowed by the policy.
    fn assume_role(&self, wanted: AssumeRole, now: SystemTime) -> Result<Answer, StsError> {
        let role = match wanted.role_arn.as_deref().and_then(role_of) {
            None => None,
            Some(arn) => {
                let session = wanted.session_name.clone().ok_or_else(|| {
                    let message = "1 validation error detected: Value null at 'roleSessionName' failed to satisfy \
                                   constraint: Member must not be null";
                    StsError::new(StsErrorCode::ValidationError, message)
                })?;
                if !self.users.has_role(arn.account, arn.name) {
                    return Err(self.may_not_assume(wanted.role_arn.as_deref())?);
                }
                Some(RoleSession { role: arn.name.to_owned(), session })
            }
        };
        let percent = wanted.policy.as_ref().map(|policy| percent_of(policy.chars().count()));
        let session_name = wanted.session_name.unwrap_or_else(|| "session".to_owned());
        let duration = Duration::from_secs(wanted.duration_s.unwrap_or(ROLE_DURATION_S));
        let issued = self.principal.issue(&self.users, Wanted { role, policy: wanted.policy, duration }, now);
        let issued = match issued {
            Ok(issued) => issued,
            Err(IssueError::Denied) => return Err(self.may_not_assume(wanted.role_arn.as_deref())?),
            Err(error) => return Err(refused(error)),
        };
        let id = match &issued.caller.role {
            Some(_) => user_id(&issued.caller),
            None => format!("{}:{session_name}", issued.caller.own_id),
        };
        Ok(document(&Assumed {
            arn: issued.caller.arn(),
            id,
            packed_policy_percent: percent,
            credentials: credentials(issued),
            request_id: self.request_id.clone(),
        }))
    }

    fn may_not_assume(&self, role_arn: Option<&str>) -> Result<StsError, StsError> {
        let (who, what) = (self.caller()?.arn(), role_arn.unwrap_or("*"));
        let message = format!("User: {who} is not authorized to perform: sts:AssumeRole on resource: {what}");
        Ok(StsError::new(StsErrorCode::AccessDenied, message))
    }

    fn get_session_token(&self, wanted: &GetSessionToken, now: SystemTime) -> Result<Answer, StsError> {
        let caller = self.caller()?;
        let is_account = caller.user.is_none();
        // As AWS: an account's own sessions are an hour at most, whatever is asked for.
        let seconds = match (wanted.duration_s, is_account) {
            (None, false) => SESSION_DURATION_S,
            (None, true) => ROLE_DURATION_S,
            (Some(asked), true) => asked.min(ROLE_DURATION_S),
            (Some(asked), false) => asked,
        };
        let wanted = Wanted { duration: Duration::from_secs(seconds), ..Wanted::default() };
        let issued = self.principal.issue(&self.users, wanted, now).map_err(|error| match error {
            IssueError::Denied => {
                StsError::new(StsErrorCode::AccessDenied, "Cannot call GetSessionToken with session credentials")
            }
            error => refused(error),
        })?;
        Ok(document(&SessionTokenIssued { credentials: credentials(issued), request_id: self.request_id.clone() }))
    }

    fn get_caller_identity(&self) -> Result<Answer, StsError> {
        let caller = self.caller()?;
        Ok(document(&CallerIdentity {
            arn: caller.arn(),
            user_id: user_id(caller),
            account: caller.account.clone(),
            request_id: self.request_id.clone(),
        }))
    }
}

/// A role as an ARN names it.
struct RoleArn<'a> {
    account: &'a str,
    name: &'a str,
}

/// The role of `arn:aws:iam::ACCOUNT:role/NAME`; `None` for what is no ARN of a role.
fn role_of(arn: &str) -> Option<RoleArn<'_>> {
    let mut parts = arn.splitn(6, ':');
    let (arn, partition, service) = (parts.next()?, parts.next()?, parts.next()?);
    let (_region, account, resource) = (parts.next()?, parts.next()?, parts.next()?);
    let name = resource.strip_prefix("role/")?.rsplit('/').next()?;
    (arn == "arn" && partition.starts_with("aws") && service == "iam").then_some(RoleArn { account, name })
}

fn percent_of(chars: usize) -> u64 {
    u64::try_from((chars * 100).div_ceil(POLICY_CHARS_MAX)).unwrap_or(100)
}

fn credentials(issued: Issued) -> IssuedCredentials {
    IssuedCredentials {
        access_key_id: issued.access_key_id,
        secret_access_key: issued.secret_access_key.to_string(),
        session_token: issued.session_token,
        expiration: issued.expires,
    }
}

fn refused(error: IssueError) -> StsError {
    match error {
        IssueError::Denied => StsError::new(StsErrorCode::AccessDenied, "Access denied"),
        IssueError::TooLong => StsError::new(
            StsErrorCode::ValidationError,
            "The requested DurationSeconds exceeds the MaxSessionDuration set for this role.",
        ),
        IssueError::Policy(why) => StsError::new(StsErrorCode::MalformedPolicyDocument, why),
        IssueError::Failed => {
            tracing::error!("temporary credentials could not be made");
            StsError::new(StsErrorCode::InternalFailure, "We encountered an internal error. Please try again.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_arns_of_roles_name_one() {
        let name = |arn: &str| role_of(arn).map(|role| (role.account.to_owned(), role.name.to_owned()));
        let ci = |account: &str| Some((account.to_owned(), "ci".to_owned()));
        assert_eq!(name("arn:aws:iam::123456789012:role/ci"), ci("123456789012"));
        assert_eq!(name("arn:aws:iam::123456789012:role/team/ci"), ci("123456789012"));
        assert_eq!(name("arn:aws:iam:::role/ci"), ci(""));
        assert_eq!(name("arn:xxx:xxx:xxx:xxxx"), None);
        assert_eq!(name("arn:minio:iam:::role/ci"), None);
        assert_eq!(name("arn:aws:iam::123456789012:user/ci"), None);
    }
}
