//! Tags of objects and buckets: the header and the document they come in, and the limits S3 gives
//! them.
//!
//! Source: "Categorizing your objects using tags" (Amazon S3 User Guide), PutObjectTagging and
//! PutBucketTagging (API Reference).

use crate::{
    address::Query,
    error::{ErrorCode, Result, S3Error},
    headers::single,
    xml::{Document, XmlWriter},
};
use http::HeaderMap;
use std::collections::BTreeMap;

/// Tags of one object may be this many.
pub const OBJECT_TAGS_MAX: usize = 10;
/// Tags of one bucket may be this many.
pub const BUCKET_TAGS_MAX: usize = 50;
/// The longest key, in UTF-16 code units.
const KEY_UNITS_MAX: usize = 128;
/// The longest value, in UTF-16 code units.
const VALUE_UNITS_MAX: usize = 256;

/// The tags of one object or bucket, every key once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagSet(BTreeMap<String, String>);

impl TagSet {
    /// Takes pairs that come from a client.
    ///
    /// # Errors
    /// `InvalidTag` past `tags_max`, for a key that stands twice, is empty, too long or reserved
    /// (`aws:`), and for characters that S3 refuses.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>, tags_max: usize) -> Result<Self> {
        let mut tags = BTreeMap::new();
        for (key, value) in pairs {
            check(&key, &value)?;
            if tags.insert(key.clone(), value).is_some() {
                return Err(invalid("Cannot provide multiple Tags with the same key").field("TagKey", key));
            }
            if tags.len() > tags_max {
                let what = if tags_max == OBJECT_TAGS_MAX { "Object" } else { "Bucket" };
                return Err(invalid(format!("{what} tags cannot be greater than {tags_max}")));
            }
        }
        Ok(Self(tags))
    }

    /// Tags as they were kept, which were checked when they came.
    pub fn kept(tags: BTreeMap<String, String>) -> Self {
        Self(tags)
    }

    /// Reads `x-amz-tagging`: `key=value` pairs joined by `&`, encoded like a query; `+` is a
    /// space. `None` without the header.
    ///
    /// # Errors
    /// `InvalidArgument` when it is not well-formed or has a key twice; as [`TagSet::new`].
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>> {
        const HEADER: &str = "x-amz-tagging";
        let Some(text) = single(headers, HEADER)? else { return Ok(None) };
        let malformed = || {
            S3Error::invalid_argument(
                HEADER,
                text,
                "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates.",
            )
        };
        let query = Query::parse(text).map_err(|_| malformed())?;
        let pairs: Vec<_> = query.pairs().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        if pairs.iter().enumerate().any(|(place, (key, _))| pairs[..place].iter().any(|(before, _)| before == key)) {
            return Err(malformed());
        }
        Self::new(pairs, OBJECT_TAGS_MAX).map(Some)
    }

    /// The tags by key.
    pub fn into_map(self) -> BTreeMap<String, String> {
        self.0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Document for TagSet {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("Tagging");
        xml.open("TagSet");
        for (key, value) in &self.0 {
            xml.open("Tag");
            xml.text("Key", key);
            xml.text("Value", value);
            xml.close();
        }
        xml.close();
        xml.close();
    }
}

fn check(key: &str, value: &str) -> Result<()> {
    let units = |text: &str| text.encode_utf16().count();
    if key.is_empty() || units(key) > KEY_UNITS_MAX {
        return Err(invalid("The TagKey you have provided is invalid").field("TagKey", key));
    }
    if units(value) > VALUE_UNITS_MAX {
        return Err(invalid("The TagValue you have provided is invalid").field("TagValue", value));
    }
    if key.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("aws:")) {
        return Err(invalid("System tags cannot be added/updated by requester").field("TagKey", key));
    }
    // Letters, digits and white space of any script, and these.
    let allowed =
        |c: char| c.is_alphanumeric() || c == ' ' || "+-=._:/@".contains(c) || (!c.is_ascii() && !c.is_control());
    if !key.chars().all(allowed) {
        return Err(invalid("The TagKey you have provided is invalid").field("TagKey", key));
    }
    if !value.chars().all(allowed) {
        return Err(invalid("The TagValue you have provided is invalid").field("TagValue", value));
    }
    Ok(())
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> S3Error {
    S3Error::with_message(ErrorCode::InvalidTag, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::vectors;
    use http::HeaderValue;

    fn of_header(text: &str) -> Result<Vec<(String, String)>> {
        let headers = [("x-amz-tagging", text)];
        let headers = headers.map(|(name, value)| {
            (http::HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        });
        Ok(TagSet::from_headers(&headers.into_iter().collect())?.unwrap().into_map().into_iter().collect())
    }

    #[test]
    fn the_header_is_read_like_a_query() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(of_header("a=1&b+c=d%2Be").unwrap(), [pair("a", "1"), pair("b c", "d+e")]);
        assert_eq!(of_header("a&b=").unwrap(), [pair("a", ""), pair("b", "")]);
        assert_eq!(of_header("").unwrap(), []);
        assert!(TagSet::from_headers(&HeaderMap::new()).unwrap().is_none());
        for (raw, text) in vectors::encoded_keys().filter(|(_, text)| check("k", text).is_ok() && !text.contains('=')) {
            assert_eq!(of_header(&format!("k={raw}")).unwrap(), [pair("k", text)], "{raw}");
        }
    }

    #[test]
    fn what_s3_does_not_take_as_a_tag_is_refused() {
        let long = |units: usize| "k".repeat(units);
        for header in [
            "=v".to_owned(),
            format!("{}=v", long(129)),
            format!("k={}", long(257)),
            "aws:k=v".to_owned(),
            "k%22=v".to_owned(),
            "k=%3Cv".to_owned(),
            (0..11).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join("&"),
        ] {
            assert_eq!(of_header(&header).unwrap_err().code(), ErrorCode::InvalidTag, "{header}");
        }
        for header in ["k=%zz", "k=v&k=w"] {
            assert_eq!(of_header(header).unwrap_err().code(), ErrorCode::InvalidArgument, "{header}");
        }
        assert!(of_header(&format!("{}={}", long(128), long(256))).is_ok());
        assert!(of_header(&(0..10).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join("&")).is_ok());
    }
}
