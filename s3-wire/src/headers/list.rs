//! Parameters of listings.

use super::decimal;
use crate::{
    address::Query,
    error::{Result, S3Error},
};

/// The most entries of a page.
pub const PAGE_MAX: u32 = 1000;

/// Parameters of ListObjects and ListObjectsV2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListObjectsParams {
    /// Only keys that start so.
    pub prefix: String,
    /// Groups keys; not empty when given.
    pub delimiter: Option<String>,
    /// 0–1000.
    pub max_keys: u32,
    /// Version 1: keys after this one.
    pub marker: String,
    /// Version 2: keys after this one, unless a token is given.
    pub start_after: Option<String>,
    /// Version 2: the opaque token of the previous page; the caller checks it.
    pub continuation_token: Option<String>,
    /// Version 2: whether owners are listed. Version 1 always lists them.
    pub fetch_owner: bool,
    /// `encoding-type=url`.
    pub encoding_type_url: bool,
}

/// Parameters of ListMultipartUploads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListUploadsParams {
    /// Only keys that start so.
    pub prefix: String,
    /// Groups keys.
    pub delimiter: Option<String>,
    /// 0–1000.
    pub max_uploads: u32,
    /// Uploads after this key (and upload).
    pub key_marker: String,
    /// Only with a key marker.
    pub upload_id_marker: String,
    /// `encoding-type=url`.
    pub encoding_type_url: bool,
}

/// Parameters of ListObjectVersions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListVersionsParams {
    /// Only keys that start so.
    pub prefix: String,
    /// Groups keys; not empty when given.
    pub delimiter: Option<String>,
    /// 0–1000.
    pub max_keys: u32,
    /// Versions of keys after this one, or after a version of it.
    pub key_marker: String,
    /// Only with a key marker; never empty.
    pub version_id_marker: Option<String>,
    /// `encoding-type=url`.
    pub encoding_type_url: bool,
}

impl ListVersionsParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// As for objects; `InvalidArgument` for a version marker that is empty or has no key marker.
    pub fn from_query(query: &Query) -> Result<Self> {
        const MARKER: &str = "version-id-marker";
        let key_marker = text(query, "key-marker")?.unwrap_or_default();
        let version_id_marker = text(query, MARKER)?;
        match version_id_marker.as_deref() {
            Some("") => {
                return Err(S3Error::invalid_argument(MARKER, "", "A version-id marker cannot be empty."));
            }
            Some(version) if key_marker.is_empty() => {
                let message = "A version-id marker cannot be specified without a key marker.";
                return Err(S3Error::invalid_argument(MARKER, version, message));
            }
            _ => {}
        }
        Ok(Self {
            prefix: text(query, "prefix")?.unwrap_or_default(),
            delimiter: text(query, "delimiter")?.filter(|delimiter| !delimiter.is_empty()),
            max_keys: page(query, "max-keys")?,
            key_marker,
            version_id_marker,
            encoding_type_url: encoding_type_url(query)?,
        })
    }
}

impl ListObjectsParams {
    /// Reads the parameters of version 1 (`list-type` absent) or 2.
    ///
    /// # Errors
    /// `InvalidArgument` for numbers out of range, an unknown encoding.
    pub fn from_query(query: &Query) -> Result<Self> {
        let continuation_token = query.single("continuation-token")?.map(str::to_owned);
        let fetch_owner = match query.single("fetch-owner")? {
            None | Some("" | "false") => false,
            Some("true") => true,
            Some(other) => {
                return Err(S3Error::invalid_argument("fetch-owner", other, "fetch-owner is true or false."));
            }
        };
        Ok(Self {
            prefix: text(query, "prefix")?.unwrap_or_default(),
            delimiter: text(query, "delimiter")?.filter(|delimiter| !delimiter.is_empty()),
            max_keys: page(query, "max-keys")?,
            marker: text(query, "marker")?.unwrap_or_default(),
            start_after: text(query, "start-after")?,
            continuation_token,
            fetch_owner,
            encoding_type_url: encoding_type_url(query)?,
        })
    }
}

impl ListUploadsParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// As for objects.
    pub fn from_query(query: &Query) -> Result<Self> {
        Ok(Self {
            prefix: text(query, "prefix")?.unwrap_or_default(),
            delimiter: text(query, "delimiter")?.filter(|delimiter| !delimiter.is_empty()),
            max_uploads: page(query, "max-uploads")?,
            key_marker: text(query, "key-marker")?.unwrap_or_default(),
            upload_id_marker: text(query, "upload-id-marker")?.unwrap_or_default(),
            encoding_type_url: encoding_type_url(query)?,
        })
    }
}

/// A parameter that is compared with keys. NUL is in no key and in no catalog's text.
fn text(query: &Query, name: &'static str) -> Result<Option<String>> {
    match query.single(name)? {
        Some(value) if value.contains('\0') => {
            Err(S3Error::invalid_argument(name, value, "A key cannot contain the character U+0000."))
        }
        value => Ok(value.map(str::to_owned)),
    }
}

/// The size of a page: 1000 unless given; more is asked for in vain.
pub(super) fn page(query: &Query, name: &'static str) -> Result<u32> {
    integer(query, name).map(|size| size.map_or(PAGE_MAX, |size| size.min(PAGE_MAX)))
}

/// A number from 0 to 2^31 − 1; absent when it has no value.
pub(super) fn integer(query: &Query, name: &'static str) -> Result<Option<u32>> {
    let Some(text) = query.single(name)?.filter(|text| !text.is_empty()) else { return Ok(None) };
    let number = decimal(text).and_then(|n| u32::try_from(n).ok()).filter(|n| *n <= i32::MAX.unsigned_abs());
    number.map(Some).ok_or_else(|| {
        S3Error::invalid_argument(name, text, format!("Provided {name} not an integer or within integer range"))
    })
}

pub(super) fn encoding_type_url(query: &Query) -> Result<bool> {
    match query.single("encoding-type")? {
        None | Some("") => Ok(false),
        Some("url") => Ok(true),
        Some(other) => {
            Err(S3Error::invalid_argument("encoding-type", other, "Invalid Encoding Method specified in Request"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;
    use proptest::prelude::*;

    fn parse(raw: &str) -> Result<ListObjectsParams> {
        ListObjectsParams::from_query(&Query::parse(raw).unwrap())
    }

    #[test]
    fn absent_parameters_have_s3s_defaults() {
        let params = parse("list-type=2&delimiter=&max-keys=&encoding-type=").unwrap();
        assert_eq!((params.max_keys, params.delimiter, params.fetch_owner), (1000, None, false));
        assert_eq!((params.prefix.as_str(), params.marker.as_str(), params.start_after), ("", "", None));
    }

    #[test]
    fn given_parameters_are_taken() {
        let params = parse("prefix=a%2F&delimiter=%2F&max-keys=5000&start-after=x&continuation-token=t&fetch-owner=true&encoding-type=url").unwrap();
        assert_eq!((params.max_keys, params.delimiter.as_deref(), params.prefix.as_str()), (1000, Some("/"), "a/"));
        assert!(params.fetch_owner && params.encoding_type_url);
        assert_eq!(params.continuation_token.as_deref(), Some("t"));
        assert_eq!(parse("max-keys=0").unwrap().max_keys, 0);
        let uploads = Query::parse("key-marker=k&upload-id-marker=u&max-uploads=3").unwrap();
        let uploads = ListUploadsParams::from_query(&uploads).unwrap();
        assert_eq!(
            (uploads.key_marker.as_str(), uploads.upload_id_marker.as_str(), uploads.max_uploads),
            ("k", "u", 3)
        );
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for raw in [
            "max-keys=-1",
            "max-keys=1.5",
            "max-keys=2147483648",
            "max-keys=99999999999999999999",
            "max-keys=%2B1",
            "max-keys=a",
            "encoding-type=xml",
            "fetch-owner=maybe",
            "prefix=%00",
            "marker=a%00",
            "prefix=a&prefix=b",
        ] {
            assert_eq!(parse(raw).unwrap_err().code(), ErrorCode::InvalidArgument, "{raw}");
        }
    }

    #[test]
    fn a_version_marker_goes_with_a_key_marker() {
        let parse = |raw: &str| ListVersionsParams::from_query(&Query::parse(raw).unwrap());
        let params = parse("key-marker=k&version-id-marker=v&max-keys=7&prefix=p&delimiter=/").unwrap();
        assert_eq!((params.key_marker.as_str(), params.version_id_marker.as_deref()), ("k", Some("v")));
        assert_eq!((params.max_keys, params.prefix.as_str(), params.delimiter.as_deref()), (7, "p", Some("/")));
        assert_eq!(parse("versions").unwrap().version_id_marker, None);
        for raw in ["version-id-marker=v", "key-marker=&version-id-marker=v", "key-marker=k&version-id-marker="] {
            assert_eq!(parse(raw).unwrap_err().code(), ErrorCode::InvalidArgument, "{raw}");
        }
    }

    proptest! {
        #[test]
        fn a_page_is_never_larger_than_its_bound(size in "[0-9]{1,12}") {
            if let Ok(params) = parse(&format!("max-keys={size}")) {
                prop_assert!(params.max_keys <= PAGE_MAX);
            }
        }
    }
}
