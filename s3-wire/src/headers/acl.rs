//! The headers that say who may do what with a new bucket or object: `x-amz-acl` and
//! `x-amz-grant-*`.

use super::single;
use crate::{
    error::{ErrorCode, Result, S3Error},
    xml::request::{WrittenGrant, WrittenGrantee},
};
use http::HeaderMap;

/// The grants a request asks for in its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AclHeaders {
    /// `x-amz-acl`: the name of a list, as sent.
    Canned(String),
    /// `x-amz-grant-*`, in the order of S3's reference.
    Grants(Vec<WrittenGrant>),
}

/// The headers of explicit grants and what they grant.
const GRANTS: [(&str, &str); 5] = [
    ("x-amz-grant-read", "READ"),
    ("x-amz-grant-write", "WRITE"),
    ("x-amz-grant-read-acp", "READ_ACP"),
    ("x-amz-grant-write-acp", "WRITE_ACP"),
    ("x-amz-grant-full-control", "FULL_CONTROL"),
];

impl AclHeaders {
    /// Reads the headers; `None` without any.
    ///
    /// # Errors
    /// `InvalidRequest` for both kinds at once; `InvalidArgument` for a header that is not a list
    /// of `id="…"`, `uri="…"` or `emailAddress="…"`.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>> {
        let canned = single(headers, "x-amz-acl")?;
        let mut grants = Vec::new();
        let mut explicit = false;
        for (header, permission) in GRANTS {
            let Some(text) = single(headers, header)? else { continue };
            explicit = true;
            for grantee in text.split(',') {
                let grantee = grantee_of(grantee.trim())
                    .ok_or_else(|| S3Error::invalid_argument(header, text, "Argument format not recognized"))?;
                grants.push(WrittenGrant { grantee, permission: permission.to_owned() });
            }
        }
        match (canned, explicit) {
            (None, false) => Ok(None),
            (Some(name), false) => Ok(Some(Self::Canned(name.to_owned()))),
            (None, true) => Ok(Some(Self::Grants(grants))),
            (Some(_), true) => Err(S3Error::with_message(
                ErrorCode::InvalidRequest,
                "Specifying both Canned ACLs and Header Grants is not allowed",
            )),
        }
    }
}

fn grantee_of(text: &str) -> Option<WrittenGrantee> {
    let (kind, value) = text.split_once('=')?;
    let value = value.trim();
    let value = value.strip_prefix('"').map_or(Some(value), |value| value.strip_suffix('"'))?;
    if value.is_empty() || value.contains('"') {
        return None;
    }
    let value = value.to_owned();
    match kind.trim() {
        kind if kind.eq_ignore_ascii_case("id") => Some(WrittenGrantee::Id(value)),
        kind if kind.eq_ignore_ascii_case("uri") => Some(WrittenGrantee::Uri(value)),
        kind if kind.eq_ignore_ascii_case("emailaddress") => Some(WrittenGrantee::Email(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn read(pairs: &[(&'static str, &'static str)]) -> Result<Option<AclHeaders>> {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        AclHeaders::from_headers(&pairs.iter().map(pair).collect())
    }

    #[test]
    fn explicit_grants_name_accounts_groups_and_addresses() {
        let grants = read(&[
            ("x-amz-grant-full-control", "emailAddress=a@example.com"),
            ("x-amz-grant-read", r#"id="one", uri="http://acs.amazonaws.com/groups/global/AllUsers""#),
        ]);
        let grant = |grantee, permission: &str| WrittenGrant { grantee, permission: permission.into() };
        assert_eq!(
            grants.unwrap().unwrap(),
            AclHeaders::Grants(vec![
                grant(WrittenGrantee::Id("one".into()), "READ"),
                grant(WrittenGrantee::Uri("http://acs.amazonaws.com/groups/global/AllUsers".into()), "READ"),
                grant(WrittenGrantee::Email("a@example.com".into()), "FULL_CONTROL"),
            ])
        );
        assert_eq!(read(&[("x-amz-acl", "private")]).unwrap(), Some(AclHeaders::Canned("private".into())));
        assert_eq!(read(&[]).unwrap(), None);
    }

    #[test]
    fn what_is_no_list_of_grantees_is_refused() {
        for text in ["", "one", "id=", "id=\"one", "name=\"one\"", "id=one,", "id=\"a\"\"b\""] {
            let error = read(&[("x-amz-grant-write", text)]).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{text}");
        }
        let both = read(&[("x-amz-acl", "private"), ("x-amz-grant-read", "id=one")]);
        assert_eq!(both.unwrap_err().code(), ErrorCode::InvalidRequest);
    }
}
