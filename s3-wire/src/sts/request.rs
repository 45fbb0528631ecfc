//! What a request to STS asks for: parameters of a form or of the query.

use super::{
    DURATION_S_MIN, ROLE_DURATION_S_MAX, SESSION_DURATION_S_MAX,
    response::{StsError, StsErrorCode},
};
use crate::address::{Query, Target};
use http::{Method, header, request::Parts};
use std::collections::BTreeMap;

/// The version of the API, which every request names.
pub const VERSION: &str = "2011-06-15";
/// Most characters of a session policy.
const POLICY_CHARS_MAX: usize = 2048;
/// Most characters of a role's ARN.
const ARN_CHARS_MAX: usize = 2048;

/// Whether a request is for STS and not for S3: a form that is posted to `/`, or a query that names
/// an action and the version of STS. S3 has no operation of either shape.
pub fn is_for(parts: &Parts, target: &Target) -> bool {
    if target.bucket.is_some() {
        return false;
    }
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_form = content_type.is_some_and(|kind| {
        kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/x-www-form-urlencoded")
    });
    let in_query = target.query.get("Version") == Some(VERSION) && target.query.has("Action");
    match parts.method {
        Method::POST => is_form || in_query,
        Method::GET => in_query,
        _ => false,
    }
}

/// An action of STS that this server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StsAction {
    /// Credentials of a role, or narrower ones of the caller.
    AssumeRole(AssumeRole),
    /// Temporary credentials of the caller.
    GetSessionToken(GetSessionToken),
    /// Who the caller is.
    GetCallerIdentity,
}

/// The parameters of AssumeRole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssumeRole {
    /// The role, as it was written.
    pub role_arn: Option<String>,
    /// The name of the session, of the characters that an ARN may have.
    pub session_name: Option<String>,
    /// A policy that the session may do no more than.
    pub policy: Option<String>,
    /// How long the credentials are good, in seconds.
    pub duration_s: Option<u64>,
}

/// The parameters of GetSessionToken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetSessionToken {
    /// How long the credentials are good, in seconds.
    pub duration_s: Option<u64>,
}

impl StsAction {
    /// The name of an action, for logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::AssumeRole(_) => "AssumeRole",
            Self::GetSessionToken(_) => "GetSessionToken",
            Self::GetCallerIdentity => "GetCallerIdentity",
        }
    }

    /// Reads the parameters of query and body together.
    ///
    /// # Errors
    /// `MissingAction`, `InvalidAction`, `NotImplemented` for the actions of STS that need an
    /// identity provider, `ValidationError` for what AWS refuses and for parameters whose meaning
    /// would be lost.
    pub fn parse(query: &Query, body: &[u8]) -> Result<Self, StsError> {
        let form = std::str::from_utf8(body).ok().and_then(|text| Query::parse(text).ok());
        let form = form.ok_or_else(|| StsError::new(StsErrorCode::ValidationError, "The form cannot be read."))?;
        let mut parameters = BTreeMap::new();
        for (name, value) in query.pairs().chain(form.pairs()) {
            if parameters.insert(name, value).is_some() {
                let message = format!("The parameter {name} is given more than once.");
                return Err(StsError::new(StsErrorCode::ValidationError, message));
            }
        }
        let parameters = Parameters(parameters);
        let action = parameters.get("Action").ok_or_else(|| {
            StsError::new(StsErrorCode::MissingAction, "The request is missing an action or a required parameter.")
        })?;
        if parameters.get("Version") != Some(VERSION) {
            let message = format!("Could not find operation {action} for version {:?}", parameters.get("Version"));
            return Err(StsError::new(StsErrorCode::InvalidAction, message));
        }
        match action {
            "AssumeRole" => parameters.assume_role().map(Self::AssumeRole),
            "GetSessionToken" => parameters.get_session_token().map(Self::GetSessionToken),
            "GetCallerIdentity" => Ok(Self::GetCallerIdentity),
            "AssumeRoleWithSAML"
            | "AssumeRoleWithWebIdentity"
            | "AssumeRoot"
            | "DecodeAuthorizationMessage"
            | "GetAccessKeyInfo"
            | "GetFederationToken" => {
                let message = format!("{action} is not implemented by this server.");
                Err(StsError::new(StsErrorCode::NotImplemented, message))
            }
            other => {
                let message = format!("Could not find operation {other} for version {VERSION}");
                Err(StsError::new(StsErrorCode::InvalidAction, message))
            }
        }
    }
}

struct Parameters<'a>(BTreeMap<&'a str, &'a str>);

impl Parameters<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).copied()
    }

    fn assume_role(&self) -> Result<AssumeRole, StsError> {
        self.refuse(&["PolicyArns.", "Tags.", "TransitiveTagKeys.", "ProvidedContexts.", "SourceIdentity"])?;
        self.refuse_mfa()?;
        let role_arn = self.get("RoleArn").filter(|arn| !arn.is_empty());
        if role_arn.is_some_and(|arn| arn.len() < 20 || arn.chars().count() > ARN_CHARS_MAX) {
            return Err(invalid("roleArn", "length between 20 and 2048"));
        }
        let session_name = self.get("RoleSessionName").filter(|name| !name.is_empty());
        if let Some(name) = session_name {
            let fits = |c: char| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c);
            if !(2..=64).contains(&name.len()) {
                return Err(invalid("roleSessionName", "length between 2 and 64"));
            }
            if !name.chars().all(fits) {
                return Err(invalid("roleSessionName", "the regular expression pattern: [\\w+=,.@-]*"));
            }
        }
        let policy = self.get("Policy").filter(|policy| !policy.is_empty());
        if policy.is_some_and(|policy| policy.chars().count() > POLICY_CHARS_MAX) {
            return Err(invalid("policy", "length less than or equal to 2048"));
        }
        Ok(AssumeRole {
            role_arn: role_arn.map(str::to_owned),
            session_name: session_name.map(str::to_owned),
            policy: policy.map(str::to_owned),
            duration_s: self.duration_s(ROLE_DURATION_S_MAX)?,
        })
    }

    fn get_session_token(&self) -> Result<GetSessionToken, StsError> {
        self.refuse_mfa()?;
        Ok(GetSessionToken { duration_s: self.duration_s(SESSION_DURATION_S_MAX)? })
    }

    fn duration_s(&self, most: u64) -> Result<Option<u64>, StsError> {
        let Some(text) = self.get("DurationSeconds") else { return Ok(None) };
        let seconds = crate::headers::decimal(text).ok_or_else(|| invalid("durationSeconds", "a number"))?;
        if seconds < DURATION_S_MIN {
            return Err(invalid("durationSeconds", "value greater than or equal to 900"));
        }
        if seconds > most {
            return Err(invalid("durationSeconds", &format!("value less than or equal to {most}")));
        }
        Ok(Some(seconds))
    }

    /// Parameters that would change what the credentials are good for, and that mean nothing here.
    fn refuse(&self, names: &[&str]) -> Result<(), StsError> {
        let found = self.0.keys().find(|key| names.iter().any(|name| key.starts_with(name)));
        match found {
            None => Ok(()),
            Some(name) => {
                let message = format!("The parameter {name} is not supported by this server.");
                Err(StsError::new(StsErrorCode::ValidationError, message))
            }
        }
    }

    /// Nobody has a device here.
    fn refuse_mfa(&self) -> Result<(), StsError> {
        if self.get("SerialNumber").is_none() && self.get("TokenCode").is_none() {
            return Ok(());
        }
        let message = "MultiFactorAuthentication failed, no device of that serial number is known.";
        Err(StsError::new(StsErrorCode::AccessDenied, message))
    }
}

fn invalid(name: &str, constraint: &str) -> StsError {
    let message = format!(
        "1 validation error detected: Value at '{name}' failed to satisfy constraint: Member must satisfy {constraint}"
    );
    StsError::new(StsErrorCode::ValidationError, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Domains;
    use http::Request;
    use proptest::prelude::*;

    fn parse(body: &str) -> Result<StsAction, StsErrorCode> {
        StsAction::parse(&Query::default(), body.as_bytes()).map_err(|error| error.code)
    }

    #[test]
    fn parameters_of_a_form_are_those_that_boto3_sends() {
        let role = parse(
            "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A000000000000%3Arole%2Fr&RoleSessionName=a%40b&DurationSeconds=900",
        );
        let expected = AssumeRole {
            role_arn: Some("arn:aws:iam::000000000000:role/r".into()),
            session_name: Some("a@b".into()),
            policy: None,
            duration_s: Some(900),
        };
        assert_eq!(role, Ok(StsAction::AssumeRole(expected)));
        assert_eq!(parse("Version=2011-06-15&Action=GetCallerIdentity"), Ok(StsAction::GetCallerIdentity));
        let query = Query::parse("Version=2011-06-15&Action=GetSessionToken&DurationSeconds=129600").unwrap();
        let session = StsAction::parse(&query, b"").unwrap();
        assert_eq!(session, StsAction::GetSessionToken(GetSessionToken { duration_s: Some(129_600) }));
    }

    #[test]
    fn what_aws_refuses_and_what_would_lose_its_meaning_is_refused() {
        use StsErrorCode::*;
        let long = format!("AssumeRole&Policy={}", "x".repeat(2049));
        for (form, code) in [
            ("AssumeRole&DurationSeconds=899", ValidationError),
            ("AssumeRole&DurationSeconds=43201", ValidationError),
            ("AssumeRole&DurationSeconds=soon", ValidationError),
            ("GetSessionToken&DurationSeconds=129601", ValidationError),
            ("AssumeRole&RoleSessionName=a", ValidationError),
            ("AssumeRole&RoleSessionName=a%20b", ValidationError),
            ("AssumeRole&RoleArn=short", ValidationError),
            ("AssumeRole&PolicyArns.member.1.arn=a", ValidationError),
            ("AssumeRole&Tags.member.1.Key=a", ValidationError),
            (&long, ValidationError),
            ("AssumeRole&SerialNumber=a&TokenCode=1", AccessDenied),
            ("GetSessionToken&TokenCode=1", AccessDenied),
            ("AssumeRoleWithWebIdentity", NotImplemented),
            ("Nothing", InvalidAction),
            ("AssumeRole&Action=GetCallerIdentity", ValidationError),
        ] {
            assert_eq!(parse(&format!("Version=2011-06-15&Action={form}")), Err(code), "{form}");
        }
        assert_eq!(parse("Version=2011-06-15"), Err(MissingAction));
        assert_eq!(parse("Version=2010-05-08&Action=AssumeRole"), Err(InvalidAction));
        assert_eq!(parse("Action=%"), Err(ValidationError));
    }

    #[test]
    fn only_what_is_no_request_of_s3_is_for_sts() {
        let form = "application/x-www-form-urlencoded; charset=utf-8";
        for (method, uri, content_type, expected) in [
            ("POST", "/", form, true),
            ("POST", "/?Action=AssumeRole&Version=2011-06-15", "", true),
            ("GET", "/?Action=GetCallerIdentity&Version=2011-06-15", "", true),
            ("GET", "/?Action=GetCallerIdentity", "", false),
            ("GET", "/", "", false),
            ("POST", "/", "multipart/form-data", false),
            ("POST", "/bucket", form, false),
            ("PUT", "/", form, false),
        ] {
            let request = Request::builder().method(method).uri(uri).header("host", "localhost");
            let parts = request.header("content-type", content_type).body(()).unwrap().into_parts().0;
            let target = Target::parse(&parts, &Domains::default()).unwrap();
            assert_eq!(is_for(&parts, &target), expected, "{method} {uri} {content_type}");
        }
    }

    proptest! {
        #[test]
        fn any_form_is_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..200), text in "(Action|Version|Policy|[a-z.]{1,5})=[^&]{0,8}(&[A-Za-z]{0,6}=?[^&]{0,4}){0,6}") {
            let _read = StsAction::parse(&Query::default(), &body);
            let _read = StsAction::parse(&Query::default(), text.as_bytes());
        }
    }
}
