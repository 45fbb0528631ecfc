//! What content was before it was encoded anew: a blob's manifest keeps it, `explain` tells it.

use crate::{
    bases::plan,
    error::EngineError,
    facts::{Form, from_json, to_json},
    resources::clock::now_ms,
};
use catalog::{BlobRow, FormBytes, UnixMs};
use object_format::ObjectFacts;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

/// The member of a manifest's facts that tells it.
const PAST: &str = "past";
/// Conversions that a manifest keeps: the newest ones.
const KEPT: usize = 8;

/// A conversion as a manifest keeps it, without names: many manifests are a few hundred bytes.
type Entry = (UnixMs, String, Form, u64);

/// How content was stored until some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Conversion {
    /// When it was encoded anew.
    pub(crate) at_ms: UnixMs,
    /// Why.
    pub(crate) occasion: String,
    /// The form that most of its bytes had before.
    pub(crate) form: Form,
    /// What it took before.
    pub(crate) stored_bytes: u64,
}

impl Conversion {
    /// Of the content of these blobs, now.
    pub(crate) fn of<'r>(occasion: &str, rows: impl IntoIterator<Item = &'r BlobRow>) -> Self {
        let (mut forms, mut stored_bytes, mut foreign) = (FormBytes::default(), 0, false);
        for row in rows {
            forms += row.forms;
            // An original has the content as it is, in a store that is not ours.
            stored_bytes += if row.original.is_some() { row.plain_len } else { row.stored_len };
            foreign |= row.original.is_some();
        }
        let form = if foreign { Form::Foreign } else { plan::majority(&forms) };
        Self { at_ms: now_ms(), occasion: occasion.to_owned(), form, stored_bytes }
    }

    /// A manifest's facts with this conversion behind those that they tell of.
    pub(crate) fn noted_in(self, mut object: ObjectFacts) -> Result<ObjectFacts, EngineError> {
        let mut facts: Value = from_json(&object.facts)?;
        let mut known = entries_of(&facts);
        known.push((self.at_ms, self.occasion, self.form, self.stored_bytes));
        known.drain(..known.len().saturating_sub(KEPT));
        facts[PAST] = serde_json::to_value(known).map_err(|error| EngineError::Other(error.to_string()))?;
        object.facts = to_json(&facts)?;
        Ok(object)
    }
}

/// The conversions that a manifest's facts tell of, oldest first.
pub(crate) fn conversions_of(facts: &Value) -> Vec<Conversion> {
    let conversion = |(at_ms, occasion, form, stored_bytes): Entry| Conversion { at_ms, occasion, form, stored_bytes };
    entries_of(facts).into_iter().map(conversion).collect()
}

fn entries_of(facts: &Value) -> Vec<Entry> {
    facts.get(PAST).and_then(|told| Vec::deserialize(told).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_keeps_the_newest_conversions_beside_what_it_says_otherwise() {
        let mut object = ObjectFacts {
            bucket: "b".into(),
            key: "k".into(),
            version_id: None,
            part: None,
            sha256: None,
            facts: br#"{"etag":"x"}"#.to_vec(),
            sketch: Vec::new(),
        };
        for number in 0..KEPT as u64 + 3 {
            let conversion = Conversion { stored_bytes: number, ..Conversion::of("deferred", []) };
            object = conversion.noted_in(object).unwrap();
        }
        let facts: Value = serde_json::from_slice(&object.facts).unwrap();
        assert_eq!(facts["etag"], "x");
        let kept: Vec<u64> = conversions_of(&facts).iter().map(|conversion| conversion.stored_bytes).collect();
        assert_eq!(kept, (3..KEPT as u64 + 3).collect::<Vec<_>>());
        assert_eq!(conversions_of(&serde_json::json!({"past": "none of ours"})), []);
        assert!(facts["past"][0].to_string().len() < 48, "{facts}");
    }
}
