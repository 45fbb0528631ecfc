//! The query string: decoded pairs in order, and their canonical form for signing.

use crate::error::Result;

/// The parameters of a request, decoded once. Names are case-sensitive. `+` stands for a space, as S3 reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Parses the raw text after `?`.
    ///
    /// # Errors
    /// `InvalidURI` when an escape is broken or the decoded text is not UTF-8, `InvalidArgument` past 256 parameters.
    pub fn parse(_raw: &str) -> Result<Self> {
        unimplemented!()
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
    pub fn single(&self, _name: &'static str) -> Result<Option<&str>> {
        unimplemented!()
    }

    /// All pairs in the order given.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }
}
