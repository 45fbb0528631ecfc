//! The query string: decoded pairs in order, and their canonical form for signing.

use super::percent;
use crate::error::{Result, S3Error};

/// The most parameters of a request.
const PARAMETERS_MAX: usize = 256;

/// The parameters of a request, decoded once. Names are case-sensitive. `+` stands for a space, as
/// S3 reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Parses the raw text after `?`.
    ///
    /// # Errors
    /// `InvalidURI` when an escape is broken or the decoded text is not UTF-8, `InvalidArgument`
    /// past 256 parameters.
    pub fn parse(raw: &str) -> Result<Self> {
        let mut pairs = Vec::new();
        for piece in raw.split('&').filter(|piece| !piece.is_empty()) {
            if pairs.len() == PARAMETERS_MAX {
                return Err(S3Error::invalid_argument("query", "", "The request has too many parameters."));
            }
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            pairs.push((percent::decode(name)?, percent::decode(value)?));
        }
        Ok(Self { pairs })
    }

    /// Whether the parameter is there, with or without a value.
    pub fn has(&self, name: &str) -> bool {
        self.pairs.iter().any(|(n, _)| n == name)
    }

    /// The first value of a parameter (empty when it has none).
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The one value of a parameter that may be given once only.
    ///
    /// # Errors
    /// `InvalidArgument` when it is given twice: two parsers might pick different ones (C18).
    pub fn single(&self, name: &'static str) -> Result<Option<&str>> {
        let mut values = self.pairs.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let value = values.next();
        match values.next() {
            None => Ok(value),
            Some(second) => Err(S3Error::invalid_argument(name, second, "The parameter is given more than once.")),
        }
    }

    /// All pairs in the order given.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// The canonical query string of SigV4, without the parameter `except`.
    pub(crate) fn canonical(&self, except: Option<&str>) -> String {
        let mut pairs: Vec<_> = self
            .pairs
            .iter()
            .filter(|(n, _)| Some(n.as_str()) != except)
            .map(|(n, v)| (percent::encode(n), percent::encode(v)))
            .collect();
        pairs.sort();
        let mut out = String::new();
        for (name, value) in pairs {
            if !out.is_empty() {
                out.push('&');
            }
            out.push_str(&name);
            out.push('=');
            out.push_str(&value);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::{super::vectors, *};
    use crate::error::ErrorCode;
    use proptest::prelude::*;

    #[test]
    fn parameters_are_decoded_once_and_keep_their_order() {
        let query = Query::parse("prefix=a%2Fb+c&acl&x=%2541&=v&&prefix=2").unwrap();
        let pairs: Vec<_> = query.pairs().collect();
        assert_eq!(pairs, [("prefix", "a/b c"), ("acl", ""), ("x", "%41"), ("", "v"), ("prefix", "2")]);
        assert!(query.has("acl") && !query.has("ACL"));
        assert_eq!(query.get("prefix"), Some("a/b c"));
        assert_eq!(query.single("acl").unwrap(), Some(""));
        assert_eq!(query.single("none").unwrap(), None);
        assert_eq!(query.single("prefix").unwrap_err().code(), ErrorCode::InvalidArgument); // C18
    }

    #[test]
    fn every_encoded_key_is_read_as_a_value() {
        for (raw, key) in vectors::encoded_keys() {
            let query = Query::parse(&format!("prefix={raw}&marker={raw}")).unwrap();
            assert_eq!((query.get("prefix"), query.get("marker")), (Some(key), Some(key)), "{raw}");
        }
    }

    #[test]
    fn the_canonical_form_is_sorted_and_encoded() {
        let query = Query::parse("b=2&a=x+y&a=*&X-Amz-Signature=s&A=%7e&uploads").unwrap();
        assert_eq!(query.canonical(Some("X-Amz-Signature")), "A=~&a=%2A&a=x%20y&b=2&uploads=");
    }

    #[test]
    fn too_many_parameters_are_refused() {
        assert!(Query::parse(&"a&".repeat(256)).is_ok());
        assert_eq!(Query::parse(&"a&".repeat(257)).unwrap_err().code(), ErrorCode::InvalidArgument);
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_its_canonical_form_is_stable(raw in "[a-z%0-9+&=~/]{0,80}") {
            if let Ok(query) = Query::parse(&raw) {
                let canonical = query.canonical(None);
                prop_assert_eq!(Query::parse(&canonical).unwrap().canonical(None), canonical);
            }
        }
    }
}
