//! What storing costs, as the operator looked it up.

use super::{error::ConfigError, file::backend::Backend, reader::Reader};
use std::collections::BTreeSet;

/// What this deployment's store costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    /// What the prices are in: an ISO 4217 code, say.
    pub currency: String,
    /// One GB (10^9 bytes) for a month.
    pub gb_month: f64,
    /// A thousand requests that write or list.
    pub writes_1000: f64,
    /// A thousand requests that read.
    pub reads_1000: f64,
    /// The backends whose requests cost something: those that are no directory.
    pub backends: BTreeSet<String>,
}

/// Most characters of a currency.
const CURRENCY_CHARS_MAX: usize = 8;

impl Reader<'_> {
    /// The prices of the file, if it has any.
    pub(super) fn prices(&self) -> Result<Option<Prices>, ConfigError> {
        let Some(prices) = &self.file.prices else { return Ok(None) };
        let named =
            [("gb_month", prices.gb_month), ("writes_1000", prices.writes_1000), ("reads_1000", prices.reads_1000)];
        for (name, price) in named {
            if !price.is_finite() || price < 0.0 {
                return Err(ConfigError::at(&format!("prices.{name}"), "expected a number that is not negative"));
            }
        }
        let currency = prices.currency.clone();
        if !(1..=CURRENCY_CHARS_MAX).contains(&currency.chars().count()) || currency.chars().any(char::is_control) {
            return Err(ConfigError::at("prices.currency", "expected 1 to 8 characters, such as \"EUR\""));
        }
        let backends = self.file.backends.iter().filter(|(_, backend)| !matches!(backend, Backend::Local(_)));
        Ok(Some(Prices {
            currency,
            gb_month: prices.gb_month,
            writes_1000: prices.writes_1000,
            reads_1000: prices.reads_1000,
            backends: backends.map(|(name, _)| name.clone()).collect(),
        }))
    }
}
