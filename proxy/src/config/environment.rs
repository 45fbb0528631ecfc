//! The environment variables that configuration is read from.

use std::collections::BTreeMap;

/// Environment variables; a map in tests.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The process's own; names and values that are not UTF-8 are left out.
    pub fn of_process() -> Self {
        Self(std::env::vars_os().filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?))).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(pairs: [(&str, &str); N]) -> Self {
        Self(pairs.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect())
    }
}

/// Every variable the program reads, but those that `env:` names.
pub(super) const VARIABLES: &[&str] = &[
    "DELTAWEIR_CONFIG",
    "DELTAWEIR_DATA",
    "DELTAWEIR_LISTEN",
    "DELTAWEIR_ADMIN_LISTEN",
    "DELTAWEIR_ADMIN_OVER_HTTP",
    "DELTAWEIR_ACCESS_KEY_ID",
    "DELTAWEIR_SECRET_ACCESS_KEY",
    "DELTAWEIR_KEK",
    "DELTAWEIR_CATALOG",
    "DELTAWEIR_ADMIN_TOKEN",
    "DELTAWEIR_LOG",
];
