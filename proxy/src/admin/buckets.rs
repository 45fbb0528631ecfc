//! Buckets, as operators see, make and change them while the server runs.

use super::{AdminService, ApiResult, answer::AdminError};
use crate::{
    auth::canonical_id_of,
    engine::{Compression, EffortSetting, Encryption, ISOLATION, Isolation, STORAGE_HEADERS, StorageHeaders},
    sealing::default_in_words,
};
use catalog::Bucket;
use http::StatusCode;
use s3_wire::{BucketName, Query, timestamp};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};

/// Whose a bucket is when nobody is named.
const OWNER: &str = "root";

/// The settings of a new bucket; the configuration has the others.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NewBucketBody {
    compression: Option<Compression>,
    encryption: Option<Encryption>,
    effort: Option<EffortSetting>,
    isolation: Option<Isolation>,
    storage_headers: Option<StorageHeaders>,
}

impl AdminService {
    /// Buckets with their settings, and figures as they were last counted.
    pub(super) async fn buckets(&self) -> ApiResult {
        let (counted_ms, stats, _) = self.engine.reports.counted().await?;
        let stats = stats["buckets"].as_array().cloned().unwrap_or_default();
        let rows = self.engine.buckets.buckets().await?;
        let buckets = rows.into_iter().map(|row| {
            let numbers = stats.iter().find(|entry| entry["name"] == row.name);
            let number = |pointer: &str| numbers.and_then(|entry| entry.pointer(pointer)).cloned().unwrap_or(json!(0));
            let mut told = self.told_of(&row)?;
            told["objects"] = number("/objects");
            told["logical_bytes"] = number("/logical_bytes");
            told["stored_bytes"] = number("/stored/total");
            Ok(told)
        });
        let buckets = buckets.collect::<Result<Vec<_>, AdminError>>()?;
        Ok(json!({ "buckets": buckets, "counted_ms": counted_ms }))
    }

    /// A bucket as its row has it, with the rules that are in force.
    fn told_of(&self, row: &Bucket) -> ApiResult {
        let created = UNIX_EPOCH + Duration::from_millis(u64::try_from(row.created_ms).unwrap_or(0));
        let in_force = self.engine.buckets.settings_of(row)?;
        let mut told = json!({
            "name": row.name,
            "owner": row.owner,
            "created": timestamp::iso8601(created),
            "settings": row.settings,
            "isolation": in_force.isolation.unwrap_or(Isolation::Policy),
            "storage_headers": in_force.storage_headers,
        });
        if let Some(default) = default_in_words(&in_force) {
            told["default_encryption"] = json!(default);
        }
        Ok(told)
    }

    /// Makes a bucket. Its ACLs are off.
    pub(super) async fn add_bucket(&self, name: &str, query: &Query, body: Value) -> ApiResult {
        BucketName::new(name).map_err(|_| AdminError::invalid(format!("{name:?} is not a valid bucket name")))?;
        let wanted: NewBucketBody = if body.is_null() { NewBucketBody::default() } else { read("bucket", body)? };
        let users = self.accounts.users();
        let owner = match query.get("user").filter(|user| !user.is_empty()) {
            None => canonical_id_of(OWNER),
            Some(user) => self.account_of(query, &users).await?.ok_or_else(|| AdminError::unknown("user", user))?,
        };
        let buckets = &self.engine.buckets;
        let mut settings = buckets.settings_of_new(name);
        settings.compression = wanted.compression.unwrap_or(settings.compression);
        settings.encryption = wanted.encryption.unwrap_or(settings.encryption);
        settings.effort = wanted.effort.unwrap_or(settings.effort);
        let rules = [(ISOLATION, json!(wanted.isolation)), (STORAGE_HEADERS, json!(wanted.storage_headers))];
        let rules = rules.into_iter().filter(|(_, rule)| !rule.is_null());
        settings.configurations = rules.map(|(name, rule)| (name.to_owned(), rule)).collect();
        if settings.encryption == Encryption::Aes256 && !self.engine.accounts.can_be_kept() {
            let why = "the replicas of this store have a KEK each and could not read each other's content: \
                       configure storage.kek, storage.keyring or storage.key_provider first";
            return Err(AdminError::new(StatusCode::CONFLICT, why));
        }
        let made = buckets.make_bucket(name, &owner, settings, false).await?;
        let made = made.ok_or_else(|| AdminError::new(StatusCode::CONFLICT, format!("there is a bucket {name}")))?;
        let mut told = self.told_of(&made.row)?;
        told["change"] = json!(format!("made the bucket {name}, encryption {}", word(&made.settings.encryption)));
        Ok(told)
    }

    /// Sets the rules of a bucket that apply to new requests. One that is null is left to the
    /// configuration again.
    pub(super) async fn change_bucket(&self, name: &str, body: Value) -> ApiResult {
        let rules = body.as_object().filter(|rules| !rules.is_empty());
        let rules = rules.ok_or_else(|| AdminError::invalid("name a rule: isolation or storage_headers"))?;
        let mut words = Vec::new();
        for (rule, value) in rules {
            let set = !value.is_null();
            match rule.as_str() {
                "isolation" if set => drop(read::<Isolation>(rule, value.clone())?),
                "storage_headers" if set => drop(read::<StorageHeaders>(rule, value.clone())?),
                "isolation" | "storage_headers" => {}
                _ => return Err(AdminError::invalid(format!("{rule}: no rule that can be set while the server runs"))),
            }
            words.push(format!("{rule} {}", value.as_str().unwrap_or("as configured")));
        }
        let buckets = &self.engine.buckets;
        let bucket = buckets.bucket(name).await?.ok_or_else(|| AdminError::unknown("bucket", name))?;
        for (rule, value) in rules {
            let kept = if rule == "isolation" { ISOLATION } else { STORAGE_HEADERS };
            buckets.configure_bucket(&bucket, kept, Some(value.clone()).filter(|value| !value.is_null())).await?;
        }
        let bucket = buckets.bucket(name).await?.ok_or_else(|| AdminError::unknown("bucket", name))?;
        let mut told = self.told_of(&bucket.row)?;
        told["change"] = json!(format!("bucket {name}: {}", words.join(", ")));
        Ok(told)
    }
}

fn read<T: DeserializeOwned>(what: &str, value: Value) -> Result<T, AdminError> {
    serde_json::from_value(value).map_err(|error| AdminError::invalid(format!("{what}: {error}")))
}

/// A setting by its name in the configuration.
fn word(setting: &impl serde::Serialize) -> String {
    json!(setting).as_str().unwrap_or_default().to_owned()
}
