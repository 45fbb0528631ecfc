//! Values of the configuration that are more than text: sizes, durations, secrets.

use super::{environment::Environment, error::ConfigError};
use secrecy::SecretString;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};
use zeroize::Zeroizing;

/// A number of bytes: an integer, or text such as `"64KiB"`, `"1GiB"`, `"10MB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteSize(pub(super) u64);

impl ByteSize {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let scale = match unit.trim() {
            "" | "B" => 1,
            "kB" | "KB" => 1000,
            "MB" => 1000 * 1000,
            "GB" => 1000 * 1000 * 1000,
            "TB" => 1000_u64.pow(4),
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1 << 40,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(scale).map(Self)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (scale, unit) in [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
            if self.0 >= scale && self.0.is_multiple_of(scale) {
                return write!(f, "{}{unit}", self.0 / scale);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// A span of time: text such as `"250ms"`, `"30s"`, `"15m"`, `"24h"`, `"7d"`. At most
/// [`INTERVAL_MAX`], which any clock can be moved by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval(pub(super) Duration);

impl Interval {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = text.split_at(digits);
        let number = number.parse::<u64>().ok()?;
        let seconds = |scale: u64| number.checked_mul(scale).map(Duration::from_secs);
        match unit.trim() {
            "ms" => Some(Duration::from_millis(number)),
            "s" => seconds(1),
            "m" => seconds(60),
            "h" => seconds(3600),
            "d" => seconds(86_400),
            _ => None,
        }
        .filter(|interval| *interval <= INTERVAL_MAX)
        .map(Self)
    }
}

/// 100 years.
const INTERVAL_MAX: Duration = Duration::from_secs(36_500 * 86_400);

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.subsec_millis() != 0 {
            return write!(f, "{}ms", self.0.as_millis());
        }
        let seconds = self.0.as_secs();
        for (scale, unit) in [(86_400, "d"), (3600, "h"), (60, "m")] {
            if seconds >= scale && seconds.is_multiple_of(scale) {
                return write!(f, "{}{unit}", seconds / scale);
            }
        }
        write!(f, "{seconds}s")
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer).map_err(|_| D::Error::custom(SIZE_EXPECTED))? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => Self::parse(&text).ok_or_else(|| D::Error::custom(SIZE_EXPECTED)),
        }
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer).map_err(|_| D::Error::custom(INTERVAL_EXPECTED))?;
        Self::parse(&text).ok_or_else(|| D::Error::custom(INTERVAL_EXPECTED))
    }
}

const SIZE_EXPECTED: &str = "expected a size such as 1048576, \"64MiB\" or \"1GiB\"";
const INTERVAL_EXPECTED: &str =
    "expected a duration such as \"250ms\", \"30s\", \"15m\", \"24h\" or \"7d\", at most \"36500d\"";

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A secret as it is written: `env:NAME`, `file:PATH`, or the secret itself. Shows itself only when
/// it is a reference.
#[derive(Clone, Deserialize)]
#[serde(from = "String")]
pub(super) struct SecretText(Zeroizing<String>);

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl SecretText {
    /// The file that holds it, when one does.
    pub(super) fn file(&self, directory: &Path) -> Option<PathBuf> {
        self.0.strip_prefix("file:").map(|path| directory.join(path))
    }

    /// The secret itself; what a reference names is read. A trailing line break of a file is not
    /// part of it.
    pub(super) fn resolve(
        &self,
        key: &str,
        environment: &Environment,
        directory: &Path,
    ) -> Result<SecretString, ConfigError> {
        let secret = if let Some(name) = self.0.strip_prefix("env:") {
            let value = environment.get(name);
            value.ok_or_else(|| ConfigError::at(key, format!("the environment has no {name}")))?.to_owned()
        } else if let Some(path) = self.file(directory) {
            let text = std::fs::read_to_string(&path)
                .map_err(|error| ConfigError::at(key, format!("cannot read {}: {error}", path.display())))?;
            text.trim_end_matches(['\r', '\n']).to_owned()
        } else {
            self.0.to_string()
        };
        if secret.is_empty() {
            return Err(ConfigError::at(key, "the secret is empty"));
        }
        Ok(SecretString::from(secret))
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())
    }
}

impl SecretText {
    fn shown(&self) -> &str {
        if self.0.starts_with("env:") || self.0.starts_with("file:") { &self.0 } else { "[redacted]" }
    }
}

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.shown())
    }
}

/// Whether a catalog is one that several processes can share.
pub(super) fn is_shared(catalog: &str) -> bool {
    catalog.starts_with("postgres://") || catalog.starts_with("postgresql://")
}

/// A URL `scheme://user:password@host/…` without its password.
pub(super) fn without_password(url: &str) -> String {
    let parts = url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?)));
    match parts {
        Some((scheme, (who, place))) => {
            let user = who.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:[redacted]@{place}")
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_in_both_families_of_units() {
        for (text, bytes) in
            [("0", 0), ("17", 17), ("1KiB", 1024), ("1 GiB", 1 << 30), ("10MB", 10_000_000), ("5TiB", 5 << 40)]
        {
            assert_eq!(ByteSize::parse(text), Some(ByteSize(bytes)), "{text}");
        }
        for text in ["", "GiB", "-1", "1.5GiB", "1gib", "99999999999999999999", "20000000TiB", "1 G"] {
            assert_eq!(ByteSize::parse(text), None, "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(Interval::parse("250ms"), Some(Interval(Duration::from_millis(250))));
        assert_eq!(Interval::parse("7d"), Some(Interval(Duration::from_secs(7 * 86_400))));
        assert_eq!(Interval::parse("36500d"), Some(Interval(INTERVAL_MAX)));
        for text in ["", "5", "s", "1.5h", "-3s", "99999999999999999999s", "18446744073709551615d", "36501d"] {
            assert_eq!(Interval::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_literal_secret_never_shows_itself_and_a_reference_does() {
        assert_eq!(format!("{:?}", SecretText::from("hunter22".to_owned())), "[redacted]");
        assert_eq!(format!("{:?}", SecretText::from("env:CI_SECRET".to_owned())), "env:CI_SECRET");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(bytes in any::<u64>(), millis in any::<u32>()) {
            prop_assert_eq!(ByteSize::parse(&ByteSize(bytes).to_string()), Some(ByteSize(bytes)));
            let interval = Interval(Duration::from_millis(millis.into()));
            prop_assert_eq!(Interval::parse(&interval.to_string()), Some(interval));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in any::<String>()) {
            let _ = (ByteSize::parse(&text), Interval::parse(&text));
        }
    }
}
