//! What stored bytes cost a month, by a table of prices that its owner can replace.

use super::predict::Prediction;
use crate::engine::EngineError;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The table that comes along.
const DEFAULT: &str = include_str!("../../../docs/reference/prices.toml");

/// A file of prices.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    /// When the prices were looked up.
    as_of: String,
    /// What they are in.
    currency: String,
    /// One core for an hour.
    cpu_hour: f64,
    /// Stores.
    store: Vec<Prices>,
}

/// The prices of one store.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Its name.
    name: String,
    /// One GiB for a month.
    gib_month: f64,
}

/// What the prices are.
#[derive(Clone, Debug, Serialize)]
pub struct PriceFacts {
    /// When they were looked up.
    pub as_of: String,
    /// What they are in.
    pub currency: String,
}

/// What one store costs.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// Its name.
    pub store: String,
    /// A month of the bytes as they are.
    pub month_now: f64,
    /// A month of what would be stored.
    pub month_predicted: f64,
    /// By the interval.
    pub month_low: f64,
    /// By the interval.
    pub month_high: f64,
    /// The CPU time of storing everything, once.
    pub cpu_once: f64,
}

impl PriceTable {
    /// The table in a file, or the one that comes along.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the file cannot be read or is no table.
    pub fn load(file: Option<&Path>) -> Result<Self, EngineError> {
        let Some(path) = file else { return Self::parse(DEFAULT) };
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| EngineError::Other(format!("cannot read {}: {error}", path.display())))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, EngineError> {
        let table: Self = toml::from_str(text).map_err(|error| EngineError::Other(format!("prices: {error}")))?;
        let prices = table.store.iter().map(|store| store.gib_month).chain([table.cpu_hour]);
        match prices.into_iter().all(|price| price.is_finite() && price >= 0.0) {
            true => Ok(table),
            false => Err(EngineError::Other("prices: a price is a number that is not negative".into())),
        }
    }

    pub(super) fn facts(&self) -> PriceFacts {
        PriceFacts { as_of: self.as_of.clone(), currency: self.currency.clone() }
    }

    pub(super) fn costs(&self, logical_bytes: u64, stored: &Prediction, cpu_seconds: f64) -> Vec<Cost> {
        #[expect(clippy::cast_precision_loss, reason = "money")]
        let month = |bytes: u64, store: &Prices| bytes as f64 / f64::from(1 << 30) * store.gib_month;
        let cost = |store: &Prices| Cost {
            store: store.name.clone(),
            month_now: month(logical_bytes, store),
            month_predicted: month(stored.predicted, store),
            month_low: month(stored.low, store),
            month_high: month(stored.high, store),
            cpu_once: cpu_seconds / 3600.0 * self.cpu_hour,
        };
        self.store.iter().map(cost).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_that_comes_along_is_good_and_dated() {
        let table = PriceTable::parse(DEFAULT).unwrap();
        assert!(table.as_of.starts_with("20") && !table.store.is_empty());
    }

    #[test]
    fn a_tebibyte_at_two_cents_is_twenty_and_a_half() {
        let text = "as_of = \"2025-01\"\ncurrency = \"EUR\"\ncpu_hour = 0.5\n[[store]]\nname = \"s\"\ngib_month = 0.02";
        let stored = Prediction { predicted: 1 << 38, low: 1 << 37, high: 1 << 39 };
        let cost = &PriceTable::parse(text).unwrap().costs(1 << 40, &stored, 7200.0)[0];
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(
            near(cost.month_now, 20.48) && near(cost.month_predicted, 5.12) && near(cost.cpu_once, 1.0),
            "{cost:?}"
        );
        assert!(near(cost.month_low, 2.56) && near(cost.month_high, 10.24));
    }

    #[test]
    fn a_price_that_is_none_is_refused() {
        for price in ["-1", "nan", "inf", "\"x\""] {
            let text =
                format!("as_of = \"\"\ncurrency = \"\"\ncpu_hour = 0\n[[store]]\nname = \"s\"\ngib_month = {price}");
            assert!(PriceTable::parse(&text).is_err(), "{price}");
        }
    }
}
