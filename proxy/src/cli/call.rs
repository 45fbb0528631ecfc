//! A call of the admin API, and how its answer is read: the same for a server here and elsewhere.

use super::outcome::Failure;
use http::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// The longest answer that is taken.
pub(super) const ANSWER_BYTES_MAX: usize = 256 << 20;

/// One call of the admin API.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) body: Value,
}

impl Call {
    pub(super) fn get(name: &str, parameters: &[(&str, &str)]) -> Self {
        Self::new(Method::GET, name, parameters)
    }

    pub(super) fn post(name: &str, parameters: &[(&str, &str)]) -> Self {
        Self::new(Method::POST, name, parameters)
    }

    pub(super) fn put(name: &str, parameters: &[(&str, &str)]) -> Self {
        Self::new(Method::PUT, name, parameters)
    }

    pub(super) fn delete(name: &str, parameters: &[(&str, &str)]) -> Self {
        Self::new(Method::DELETE, name, parameters)
    }

    pub(super) fn new(method: Method, name: &str, parameters: &[(&str, &str)]) -> Self {
        let pair = |(name, value): &(&str, &str)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
        let query = parameters.iter().map(pair).collect::<Vec<_>>().join("&");
        Self { method, path: format!("/api/v1/{name}"), query, body: Value::Null }
    }

    /// The same with a JSON body.
    pub(super) fn with(self, body: Value) -> Self {
        Self { body, ..self }
    }
}

/// What an answer of a server says.
///
/// # Errors
/// [`Failure`] in the server's words, or with the status of who is no admin listener.
pub(super) fn answer_of(status: StatusCode, body: &[u8]) -> Result<Value, Failure> {
    match serde_json::from_slice::<Value>(body) {
        Ok(value) if status.is_success() => Ok(value),
        Ok(value) if value["error"].is_string() => Err(Failure(value["error"].as_str().unwrap_or_default().to_owned())),
        _ => Err(Failure(format!("the server answered {status}, and not as an admin listener does"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3_wire::Query;

    #[test]
    fn parameters_arrive_as_they_were_typed() {
        let call = Call::get("explain", &[("bucket", "b"), ("key", "a b&c=d/é%2F+")]);
        let query = Query::parse(&call.query).unwrap();
        assert_eq!((query.get("bucket"), query.get("key")), (Some("b"), Some("a b&c=d/é%2F+")));
    }
}
