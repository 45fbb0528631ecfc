//! Conditions: an operator, a key, and the values it is held against.
//!
//! Source: IAM User Guide, "IAM JSON policy elements: Condition operators" and "Multivalued context
//! keys".

use crate::{
    context::{Context, Key},
    error::PolicyError,
    network::Network,
    pattern::Pattern,
};
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// One key of one operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    operator: Operator,
    key: Key,
    values: Vec<Pattern>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operator {
    test: Test,
    negated: bool,
    if_exists: bool,
    set: Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    /// The key has one value. When it has several, one that fits is enough.
    One,
    ForAnyValue,
    ForAllValues,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    Equals { fold: bool },
    Like,
    Numeric(Order),
    Date(Order),
    Bool,
    Ip,
    Arn,
    Null,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Order {
    fn holds<T: PartialOrd>(self, value: &T, bound: &T) -> bool {
        match self {
            Self::Equal => value == bound,
            Self::Less => value < bound,
            Self::LessOrEqual => value <= bound,
            Self::Greater => value > bound,
            Self::GreaterOrEqual => value >= bound,
        }
    }
}

impl Operator {
    fn parse(text: &str) -> Option<Self> {
        let (set, name) = match text.split_once(':') {
            None => (Set::One, text),
            Some(("ForAnyValue", name)) => (Set::ForAnyValue, name),
            Some(("ForAllValues", name)) => (Set::ForAllValues, name),
            Some(_) => return None,
        };
        let (name, if_exists) = match name.strip_suffix("IfExists") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let equals = Test::Equals { fold: false };
        let folded = Test::Equals { fold: true };
        let (test, negated) = match name {
            "StringEquals" | "BinaryEquals" => (equals, false),
            "StringNotEquals" => (equals, true),
            "StringEqualsIgnoreCase" => (folded, false),
            "StringNotEqualsIgnoreCase" => (folded, true),
            "StringLike" => (Test::Like, false),
            "StringNotLike" => (Test::Like, true),
            "NumericEquals" => (Test::Numeric(Order::Equal), false),
            "NumericNotEquals" => (Test::Numeric(Order::Equal), true),
            "NumericLessThan" => (Test::Numeric(Order::Less), false),
            "NumericLessThanEquals" => (Test::Numeric(Order::LessOrEqual), false),
            "NumericGreaterThan" => (Test::Numeric(Order::Greater), false),
            "NumericGreaterThanEquals" => (Test::Numeric(Order::GreaterOrEqual), false),
            "DateEquals" => (Test::Date(Order::Equal), false),
            "DateNotEquals" => (Test::Date(Order::Equal), true),
            "DateLessThan" => (Test::Date(Order::Less), false),
            "DateLessThanEquals" => (Test::Date(Order::LessOrEqual), false),
            "DateGreaterThan" => (Test::Date(Order::Greater), false),
            "DateGreaterThanEquals" => (Test::Date(Order::GreaterOrEqual), false),
            "Bool" => (Test::Bool, false),
            "IpAddress" => (Test::Ip, false),
            "NotIpAddress" => (Test::Ip, true),
            "ArnEquals" | "ArnLike" => (Test::Arn, false),
            "ArnNotEquals" | "ArnNotLike" => (Test::Arn, true),
            "Null" if !if_exists => (Test::Null, false),
            _ => return None,
        };
        Some(Self { test, negated, if_exists, set })
    }

    /// Whether wildcards and variables in its values mean anything.
    fn takes_variables(self) -> bool {
        matches!(self.test, Test::Equals { .. } | Test::Like | Test::Arn)
    }
}

impl Condition {
    /// Reads a `Condition` block.
    ///
    /// # Errors
    /// An operator or key that there is not, or a value of another kind than the operator's.
    pub(crate) fn parse_all(block: &Value, variables: bool) -> Result<Vec<Self>, PolicyError> {
        let syntax = || PolicyError::new("Invalid policy syntax.");
        let mut conditions = Vec::new();
        for (name, keys) in block.as_object().ok_or_else(syntax)? {
            let operator = Operator::parse(name)
                .ok_or_else(|| PolicyError::with_detail(format!("Invalid Condition type : {name}"), name.as_str()))?;
            for (key, values) in keys.as_object().ok_or_else(syntax)? {
                let invalid_key = || PolicyError::with_detail("Policy has an invalid condition key", key.as_str());
                let parsed_key = Key::parse(key).ok_or_else(invalid_key)?;
                let values = match values {
                    Value::Array(values) => values.as_slice(),
                    one => std::slice::from_ref(one),
                };
                let values = values.iter().map(|value| operand(operator, value, variables));
                let values = values.collect::<Option<Vec<_>>>().ok_or_else(|| {
                    let message = match name.contains("IpAddress") {
                        true => "Invalid IP address in Conditions".to_owned(),
                        false => format!("Invalid Condition value for {name}"),
                    };
                    PolicyError::with_detail(message, key.as_str())
                })?;
                conditions.push(Self { operator, key: parsed_key, values });
            }
        }
        Ok(conditions)
    }

    /// The keys whose values it asks for.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.key).chain(self.values.iter().flat_map(Pattern::keys))
    }

    /// Whether it holds.
    pub(crate) fn holds(&self, context: &dyn Context) -> bool {
        let Operator { test, negated, if_exists, set } = self.operator;
        let values = context.values(&self.key).filter(|values| !values.is_empty());
        if test == Test::Null {
            let absent = if values.is_none() { "true" } else { "false" };
            return self.values.iter().any(|wanted| wanted.matches(absent, context, true));
        }
        let Some(values) = values else {
            return match set {
                Set::ForAllValues => true,
                Set::ForAnyValue => if_exists,
                Set::One => if_exists || negated,
            };
        };
        let fits = |value: &String| self.values.iter().any(|wanted| self.fits(value, wanted, context)) != negated;
        match set {
            Set::ForAllValues => values.iter().all(fits),
            Set::ForAnyValue => values.iter().any(fits),
            Set::One if negated => values.iter().all(fits),
            Set::One => values.iter().any(fits),
        }
    }

    fn fits(&self, value: &str, wanted: &Pattern, context: &dyn Context) -> bool {
        let text = || wanted.text(context);
        match self.operator.test {
            Test::Like => wanted.matches(value, context, false),
            Test::Equals { fold: false } => text().is_some_and(|wanted| wanted == value),
            Test::Equals { fold: true } => text().is_some_and(|wanted| wanted.to_lowercase() == value.to_lowercase()),
            Test::Bool => text().is_some_and(|wanted| wanted.eq_ignore_ascii_case(value)),
            Test::Numeric(order) => {
                number(value).zip(text().as_deref().and_then(number)).is_some_and(|(v, w)| order.holds(&v, &w))
            }
            Test::Date(order) => {
                date(value).zip(text().as_deref().and_then(date)).is_some_and(|(v, w)| order.holds(&v, &w))
            }
            Test::Ip => {
                let network = text().as_deref().and_then(Network::parse);
                value.parse().ok().zip(network).is_some_and(|(address, network)| network.contains(address))
            }
            Test::Arn => arn_fits(wanted, value, context),
            Test::Null => false,
        }
    }

    /// Whether it narrows a statement to what its writer knows, so that the statement is not
    /// public: one of S3's keys with fixed values.
    pub(crate) fn is_narrow(&self) -> bool {
        const NARROW: [&str; 13] = [
            "aws:principalaccount",
            "aws:principalarn",
            "aws:principalorgid",
            "aws:principalorgpaths",
            "aws:sourceaccount",
            "aws:sourcearn",
            "aws:sourceowner",
            "aws:sourcevpc",
            "aws:sourcevpce",
            "aws:userid",
            "s3:dataaccesspointaccount",
            "s3:dataaccesspointarn",
            "s3:x-amz-server-side-encryption-aws-kms-key-id",
        ];
        let Operator { test, negated, if_exists, set } = self.operator;
        if negated || if_exists || set == Set::ForAllValues || self.values.is_empty() {
            return false;
        }
        match test {
            Test::Ip => {
                let narrow = |value: &Pattern| {
                    value.fixed().as_deref().and_then(Network::parse).is_some_and(|network| network.is_narrow())
                };
                matches!(self.key.name(), "aws:sourceip" | "aws:vpcsourceip") && self.values.iter().all(narrow)
            }
            Test::Equals { .. } | Test::Like | Test::Arn => {
                NARROW.contains(&self.key.name()) && self.values.iter().all(Pattern::is_fixed)
            }
            _ => false,
        }
    }
}

/// One value of a condition, when it is of the operator's kind.
fn operand(operator: Operator, value: &Value, variables: bool) -> Option<Pattern> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let valid = match operator.test {
        Test::Numeric(_) => number(&text).is_some(),
        Test::Date(_) => date(&text).is_some(),
        Test::Ip => Network::parse(&text).is_some(),
        Test::Bool | Test::Null => matches!(text.to_ascii_lowercase().as_str(), "true" | "false"),
        Test::Arn => text == "*" || text.split(':').count() >= 6 || text.contains("${"),
        Test::Equals { .. } | Test::Like => true,
    };
    if !valid {
        return None;
    }
    if operator.takes_variables() { Pattern::parse(&text, variables).ok() } else { Some(Pattern::literal(&text)) }
}

fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// Seconds since 1970, of an ISO 8601 date or of seconds since 1970.
fn date(text: &str) -> Option<f64> {
    if let Some(seconds) = number(text) {
        return Some(seconds);
    }
    let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let at = OffsetDateTime::parse(&whole, &Rfc3339).ok()?;
    #[expect(clippy::cast_precision_loss, reason = "seconds of any date that is written fit an f64 exactly")]
    Some(at.unix_timestamp() as f64 + f64::from(at.nanosecond()) / 1e9)
}

/// Whether the six parts of an ARN fit, each for itself: a star does not reach over a colon.
fn arn_fits(wanted: &Pattern, value: &str, context: &dyn Context) -> bool {
    let Some(wanted) = wanted.text(context) else { return false };
    if wanted == "*" {
        return true;
    }
    let mut parts = wanted.splitn(6, ':').zip(value.splitn(6, ':'));
    wanted.splitn(6, ':').count() == value.splitn(6, ':').count()
        && parts.all(|(wanted, value)| {
            Pattern::parse(wanted, false).is_ok_and(|wanted| wanted.matches(value, context, false))
        })
}

#[cfg(test)]
#[path = "condition_tests.rs"]
mod tests;
