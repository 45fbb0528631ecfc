//! The documents that say who may do what: lists of grants, ownership, and the public access block.

use super::{Elements, malformed, set_once};
use crate::error::{ErrorCode, Result, S3Error};

/// The most grants of one list.
pub const GRANTS_MAX: usize = 100;

/// Whom a grant names, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrittenGrantee {
    /// An account, by its canonical id.
    Id(String),
    /// A group.
    Uri(String),
    /// An account, by its address.
    Email(String),
}

/// A grant, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenGrant {
    /// To whom.
    pub grantee: WrittenGrantee,
    /// Such as `READ`.
    pub permission: String,
}

/// `AccessControlPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessControlRequest {
    /// The owner's canonical id, when named.
    pub owner: Option<String>,
    /// The grants in order.
    pub grants: Vec<WrittenGrant>,
}

impl AccessControlRequest {
    /// Parses a document.
    ///
    /// # Errors
    /// `MalformedACLError`, also past [`GRANTS_MAX`].
    pub fn parse(document: &[u8]) -> Result<Self> {
        let (mut request, mut list) = (Self::default(), None);
        let parsed = Elements::parse(document, "AccessControlPolicy", |xml| {
            xml.children(|xml, name| match name {
                "Owner" => xml.children(|xml, name| match name {
                    "ID" => set_once(&mut request.owner, xml.text()?),
                    "DisplayName" => xml.skip(),
                    _ => Err(malformed()),
                }),
                "AccessControlList" => {
                    set_once(&mut list, ())?;
                    xml.children(|xml, name| match name {
                        "Grant" if request.grants.len() < GRANTS_MAX => {
                            request.grants.push(grant(xml)?);
                            Ok(())
                        }
                        _ => Err(malformed()),
                    })
                }
                _ => Err(malformed()),
            })
        });
        match (parsed, list) {
            (Ok(()), Some(())) => Ok(request),
            _ => Err(ErrorCode::MalformedACLError.into()),
        }
    }
}

fn grant(xml: &mut Elements<'_>) -> Result<WrittenGrant> {
    let (mut id, mut uri, mut email, mut permission) = (None, None, None, None);
    xml.children(|xml, name| match name {
        // Its type stands in an attribute and follows from its elements.
        "Grantee" => xml.children(|xml, name| match name {
            "ID" => set_once(&mut id, xml.text()?),
            "URI" => set_once(&mut uri, xml.text()?),
            "EmailAddress" => set_once(&mut email, xml.text()?),
            "DisplayName" => xml.skip(),
            _ => Err(malformed()),
        }),
        "Permission" => set_once(&mut permission, xml.text()?),
        _ => Err(malformed()),
    })?;
    let grantee = match (id, uri, email) {
        (Some(id), None, None) => WrittenGrantee::Id(id),
        (None, Some(uri), None) => WrittenGrantee::Uri(uri),
        (None, None, Some(email)) => WrittenGrantee::Email(email),
        _ => return Err(malformed()),
    };
    Ok(WrittenGrant { grantee, permission: permission.ok_or_else(malformed)? })
}

/// Who owns the objects of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectOwnership {
    /// The bucket's owner, all of them; grants count for nothing.
    BucketOwnerEnforced,
    /// The bucket's owner those whose writers say `bucket-owner-full-control`.
    BucketOwnerPreferred,
    /// Whoever writes them.
    ObjectWriter,
}

impl ObjectOwnership {
    /// The name in documents and headers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BucketOwnerEnforced => "BucketOwnerEnforced",
            Self::BucketOwnerPreferred => "BucketOwnerPreferred",
            Self::ObjectWriter => "ObjectWriter",
        }
    }

    /// Reads a name; `None` for others.
    pub fn from_name(text: &str) -> Option<Self> {
        [Self::BucketOwnerEnforced, Self::BucketOwnerPreferred, Self::ObjectWriter]
            .into_iter()
            .find(|ownership| ownership.as_str() == text)
    }

    /// Parses `OwnershipControls`: one rule.
    ///
    /// # Errors
    /// `MalformedXML`.
    pub fn parse(document: &[u8]) -> Result<Self> {
        let mut found = None;
        Elements::parse(document, "OwnershipControls", |xml| {
            xml.children(|xml, name| match name {
                "Rule" => xml.children(|xml, name| match name {
                    "ObjectOwnership" => {
                        set_once(&mut found, Self::from_name(xml.text()?.trim()).ok_or_else(malformed)?)
                    }
                    _ => Err(malformed()),
                }),
                _ => Err(malformed()),
            })
        })?;
        found.ok_or_else(malformed)
    }
}

/// `PublicAccessBlockConfiguration`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublicAccessBlockConfiguration {
    /// `BlockPublicAcls`
    pub block_public_acls: bool,
    /// `IgnorePublicAcls`
    pub ignore_public_acls: bool,
    /// `BlockPublicPolicy`
    pub block_public_policy: bool,
    /// `RestrictPublicBuckets`
    pub restrict_public_buckets: bool,
}

impl PublicAccessBlockConfiguration {
    /// Parses a document; a switch that is left out is off.
    ///
    /// # Errors
    /// `MalformedXML`; `InvalidRequest` for a document without any switch.
    pub fn parse(document: &[u8]) -> Result<Self> {
        let mut found = [None; 4];
        Elements::parse(document, "PublicAccessBlockConfiguration", |xml| {
            xml.children(|xml, name| {
                let index = match name {
                    "BlockPublicAcls" => 0,
                    "IgnorePublicAcls" => 1,
                    "BlockPublicPolicy" => 2,
                    "RestrictPublicBuckets" => 3,
                    _ => return Err(malformed()),
                };
                let text = xml.text()?;
                let is = match text.trim() {
                    word if word.eq_ignore_ascii_case("true") => true,
                    word if word.eq_ignore_ascii_case("false") => false,
                    _ => return Err(malformed()),
                };
                set_once(&mut found[index], is)
            })
        })?;
        if found.iter().all(Option::is_none) {
            return Err(S3Error::with_message(ErrorCode::InvalidRequest, "Must specify at least one configuration."));
        }
        let [block_public_acls, ignore_public_acls, block_public_policy, restrict_public_buckets] =
            found.map(Option::unwrap_or_default);
        Ok(Self { block_public_acls, ignore_public_acls, block_public_policy, restrict_public_buckets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_grants_is_read_in_order() {
        let document = br#"<AccessControlPolicy xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Owner><ID>o</ID><DisplayName>d</DisplayName></Owner>
            <AccessControlList><Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser"><ID>a</ID></Grantee><Permission>WRITE</Permission></Grant>
            <Grant><Grantee><URI>u</URI></Grantee><Permission>READ</Permission></Grant></AccessControlList></AccessControlPolicy>"#;
        let read = AccessControlRequest::parse(document).unwrap();
        assert_eq!(read.owner.as_deref(), Some("o"));
        let grant = |grantee, permission: &str| WrittenGrant { grantee, permission: permission.into() };
        let expected = [grant(WrittenGrantee::Id("a".into()), "WRITE"), grant(WrittenGrantee::Uri("u".into()), "READ")];
        assert_eq!(read.grants, expected);
        let empty = b"<AccessControlPolicy><AccessControlList/></AccessControlPolicy>";
        assert_eq!(AccessControlRequest::parse(empty).unwrap(), AccessControlRequest::default());
    }

    #[test]
    fn what_is_no_list_of_grants_is_refused() {
        let of = |inside: &str| {
            format!("<AccessControlPolicy><AccessControlList>{inside}</AccessControlList></AccessControlPolicy>")
        };
        for document in [
            String::new(),
            "<AccessControlPolicy/>".into(),
            "<Other/>".into(),
            of("<Grant/>"),
            of("<Grant><Grantee><ID>a</ID></Grantee></Grant>"),
            of("<Grant><Grantee/><Permission>READ</Permission></Grant>"),
            of("<Grant><Grantee><ID>a</ID><URI>u</URI></Grantee><Permission>READ</Permission></Grant>"),
            of(&"<Grant><Grantee><ID>a</ID></Grantee><Permission>READ</Permission></Grant>".repeat(GRANTS_MAX + 1)),
        ] {
            let error = AccessControlRequest::parse(document.as_bytes()).unwrap_err();
            assert_eq!(error.code(), ErrorCode::MalformedACLError, "{document:.80}");
        }
    }

    #[test]
    fn ownership_is_one_of_three_words() {
        let parse = |inside: &str| {
            ObjectOwnership::parse(format!("<OwnershipControls>{inside}</OwnershipControls>").as_bytes())
        };
        for name in ["BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter"] {
            let document = format!("<Rule><ObjectOwnership>{name}</ObjectOwnership></Rule>");
            assert_eq!(parse(&document).unwrap().as_str(), name);
            assert_eq!(parse(&document.repeat(2)).unwrap_err().code(), ErrorCode::MalformedXML);
        }
        for inside in ["", "<Rule/>", "<Rule><ObjectOwnership>Mine</ObjectOwnership></Rule>", "<X/>"] {
            assert_eq!(parse(inside).unwrap_err().code(), ErrorCode::MalformedXML, "{inside}");
        }
    }

    #[test]
    fn switches_that_are_left_out_are_off() {
        let parse = |inside: &str| {
            let document = format!("<PublicAccessBlockConfiguration>{inside}</PublicAccessBlockConfiguration>");
            PublicAccessBlockConfiguration::parse(document.as_bytes())
        };
        let read = parse("<BlockPublicPolicy>TRUE</BlockPublicPolicy><IgnorePublicAcls>false</IgnorePublicAcls>");
        let expected = PublicAccessBlockConfiguration { block_public_policy: true, ..Default::default() };
        assert_eq!(read.unwrap(), expected);
        assert_eq!(parse("").unwrap_err().code(), ErrorCode::InvalidRequest);
        for inside in ["<BlockPublicAcls>1</BlockPublicAcls>", "<BlockAll>true</BlockAll>"] {
            assert_eq!(parse(inside).unwrap_err().code(), ErrorCode::MalformedXML, "{inside}");
        }
    }
}
