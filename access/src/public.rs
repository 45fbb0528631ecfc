//! Whether a policy makes a bucket public.
//!
//! Source: Amazon S3 User Guide, "Blocking public access to your Amazon S3 storage", section "The
//! meaning of public".

use crate::{
    condition::Condition,
    document::{Document, Statement},
    principal::Principals,
};

impl Document {
    /// Whether somebody unknown to its writer is allowed anything: a statement allows everybody,
    /// and no condition with fixed values narrows it to networks, accounts or the like.
    pub fn is_public(&self) -> bool {
        self.statements().iter().any(Statement::is_public)
    }
}

impl Statement {
    fn is_public(&self) -> bool {
        self.allow
            && self.principals.as_ref().is_some_and(Principals::are_everybody)
            && !self.conditions.iter().any(Condition::is_narrow)
    }
}

#[cfg(test)]
mod tests {
    use crate::Document;

    fn is_public(principal: &str, condition: &str) -> bool {
        let document = format!(
            r#"{{"Version":"2012-10-17","Statement":{{"Effect":"Allow","Principal":{principal},"Action":"s3:GetObject",
                "Resource":"arn:aws:s3:::b/*","Condition":{condition}}}}}"#
        );
        Document::of_bucket(document.as_bytes(), "b").unwrap().is_public()
    }

    #[test]
    fn a_policy_is_public_when_it_allows_what_its_writer_cannot_name() {
        for principal in [r#""*""#, r#"{"AWS":"*"}"#, r#"{"AWS":["111111111111","*"]}"#] {
            assert!(is_public(principal, "{}"), "{principal}");
        }
        assert!(!is_public(r#"{"AWS":"111111111111"}"#, "{}"));
        for (condition, public) in [
            (r#"{"IpAddress":{"aws:SourceIp":"10.0.0.0/32"}}"#, false),
            (r#"{"IpAddress":{"aws:SourceIp":["10.0.0.0/8","192.0.2.0/24"]}}"#, false),
            (r#"{"IpAddress":{"aws:SourceIp":"0.0.0.0/0"}}"#, true),
            (r#"{"IpAddress":{"aws:SourceIp":["10.0.0.0/8","::/0"]}}"#, true),
            (r#"{"NotIpAddress":{"aws:SourceIp":"10.0.0.0/32"}}"#, true),
            (r#"{"StringEquals":{"aws:SourceVpc":"vpc-91237329"}}"#, false),
            (r#"{"StringLike":{"aws:SourceVpc":"vpc-*"}}"#, true),
            (r#"{"StringNotEquals":{"aws:SourceVpc":"vpc-1"}}"#, true),
            (r#"{"StringLike":{"aws:Referer":"https://example.com/*"}}"#, true),
            (r#"{"StringEquals":{"aws:PrincipalOrgID":"o-1"}}"#, false),
            (r#"{"StringEqualsIfExists":{"aws:PrincipalOrgID":"o-1"}}"#, true),
            (r#"{"StringEquals":{"aws:userid":"${aws:username}"}}"#, true),
        ] {
            assert_eq!(is_public(r#""*""#, condition), public, "{condition}");
        }
    }

    #[test]
    fn a_deny_is_not_public() {
        let deny = br#"{"Version":"2012-10-17","Statement":{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::b/*"}}"#;
        assert!(!Document::of_bucket(deny, "b").unwrap().is_public());
    }
}
