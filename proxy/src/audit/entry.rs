//! What one line says. Nothing in it comes from a header or a body: names, numbers and words of our
//! own, so no secret can be in it.

use super::chain::AuditKey;
use serde::Serialize;
use serde_json::{Map, Value};
use std::net::IpAddr;

/// Where a call came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An S3 request.
    S3,
    /// A call of the admin API, over the network or the socket.
    Admin,
    /// A background job that ended.
    Job,
    /// Stored bytes that are not what they should be.
    Corruption,
    /// The log itself: where it began, was cut by a crash, or had old files removed.
    Log,
}

/// An object that a request names in its body, and what became of it.
#[derive(Clone, Debug)]
pub struct NamedObject {
    /// Its key.
    pub key: String,
    /// The version that is named.
    pub version: Option<String>,
    /// Why nothing was done to it.
    pub code: Option<&'static str>,
}

/// What only the body of a request tells: who signed a form, and which objects it is about.
#[derive(Clone, Debug, Default)]
pub struct OfBody {
    /// The user whose key signed the form; empty for nobody's.
    pub user: String,
    /// The objects, in the order of the body.
    pub objects: Vec<NamedObject>,
}

/// A line before it has its number, time and hash.
#[derive(Clone, Debug)]
pub struct Entry {
    fields: Map<String, Value>,
    hidden_key: Option<String>,
    objects: Vec<NamedObject>,
    shows_objects: bool,
}

impl Entry {
    /// A line about an operation.
    pub fn new(kind: Kind, op: &str) -> Self {
        let mut fields = Map::new();
        fields.insert("kind".into(), serde_json::to_value(kind).unwrap_or_default());
        fields.insert("op".into(), op.into());
        Self { fields, hidden_key: None, objects: Vec::new(), shows_objects: false }
    }

    /// Adds a field; one that is empty is left out.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !value.is_null() && value.as_str() != Some("") {
            self.fields.insert(name.into(), value);
        }
        self
    }

    /// Where it came from.
    #[must_use]
    pub fn from_peer(self, peer: Option<IpAddr>) -> Self {
        self.with("peer", peer.map(|peer| peer.to_string()))
    }

    /// The object's key. The name of one in a sealed bucket is not written, but its keyed digest:
    /// who knows a name and holds the log's key can look for it.
    #[must_use]
    pub fn about(mut self, key: &str, is_shown: bool) -> Self {
        if is_shown {
            return self.with("key", key);
        }
        self.hidden_key = (!key.is_empty()).then(|| key.to_owned());
        self
    }

    /// Objects that the body of the request names, in its order; their names as in
    /// [`about`](Self::about).
    #[must_use]
    pub fn naming(mut self, objects: &[NamedObject], is_shown: bool) -> Self {
        (self.objects, self.shows_objects) = (objects.to_vec(), is_shown);
        self
    }

    /// The fields as they are written.
    pub(super) fn into_fields(self, key: &AuditKey) -> Map<String, Value> {
        let mut fields = self.fields;
        if let Some(name) = self.hidden_key {
            fields.insert("key_digest".into(), key.digest_of_name(&name).into());
        }
        if !self.objects.is_empty() {
            let shows = self.shows_objects;
            let written = self.objects.into_iter().map(|object| written(object, (!shows).then_some(key)));
            fields.insert("objects".into(), written.collect());
        }
        fields
    }
}

/// An object as it is written; its name hidden by `hiding`.
fn written(object: NamedObject, hiding: Option<&AuditKey>) -> Value {
    let mut fields = Map::new();
    match hiding {
        Some(hiding) => fields.insert("key_digest".into(), hiding.digest_of_name(&object.key).into()),
        None => fields.insert("key".into(), object.key.into()),
    };
    fields.extend(object.version.map(|version| ("version".into(), version.into())));
    fields.extend(object.code.map(|code| ("code".into(), code.into())));
    fields.into()
}
