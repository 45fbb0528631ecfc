//! Quotas: shown, set, taken away.

use super::{AdminService, ApiResult, answer::AdminError, routes::Call};
use crate::auth::{Principal, Users, canonical_id_of};
use catalog::{Bucket, BucketId, QuotaLimits, QuotaOf, Usage};
use s3_wire::Query;
use serde_json::{Value, json};

/// The most that a quota may say: what a database counts to.
const LIMIT_MAX: u64 = i64::MAX.unsigned_abs();

/// What there is to show quotas from.
struct Held {
    buckets: Vec<Bucket>,
    usage: Vec<(BucketId, Usage)>,
    quotas: Vec<(QuotaOf, QuotaLimits)>,
}

impl AdminService {
    /// A call about quotas.
    pub(super) async fn quota(&self, call: Call, query: &Query, body: Value) -> ApiResult {
        let buckets = &self.engine.buckets;
        let users = self.accounts.users();
        let rows = buckets.buckets().await?;
        if call == Call::Quotas {
            let held = Held { buckets: rows, usage: buckets.usage().await?, quotas: buckets.quotas().await? };
            let told = held.quotas.iter().filter_map(|(of, _)| held.told(of, &users));
            return Ok(json!({ "quotas": told.collect::<Vec<_>>() }));
        }
        let of = quota_of(query, &rows, self.account_of(query, &users).await?)?;
        match call {
            Call::SetQuota => buckets.set_quota(&of, Some(limits(body)?)).await?,
            Call::ClearQuota => buckets.set_quota(&of, None).await?,
            _ => {}
        }
        let held = Held { buckets: rows, usage: buckets.usage().await?, quotas: buckets.quotas().await? };
        held.told(&of, &users).ok_or_else(|| AdminError::not_found("bucket"))
    }
}

impl AdminService {
    /// The canonical id of the user that a call names, who may have no key that works.
    pub(super) async fn account_of(&self, query: &Query, users: &Users) -> Result<Option<String>, AdminError> {
        let Some(name) = query.get("user") else { return Ok(None) };
        if let Some(principal) = Principal::named(users, name) {
            return Ok(Some(principal.canonical_id().to_owned()));
        }
        let known = self.accounts.directory().await?.user_json(name);
        let own = |user: Value| user["canonical_id"].as_str().map_or_else(|| canonical_id_of(name), str::to_owned);
        Ok(known.ok().map(own))
    }
}

impl Held {
    /// One quota as it is told; `None` for a bucket that is gone.
    fn told(&self, of: &QuotaOf, users: &Users) -> Option<Value> {
        let limits = self.quotas.iter().find(|(other, _)| other == of).map(|(_, limits)| limits);
        let counted = |row: &Bucket| {
            let found = self.usage.iter().find(|(id, _)| *id == row.id);
            found.map(|(_, usage)| *usage).unwrap_or_default()
        };
        let (name, held) = match of {
            QuotaOf::Bucket(id) => {
                let row = self.buckets.iter().find(|row| row.id == *id)?;
                (json!({ "bucket": row.name }), counted(row))
            }
            QuotaOf::Owner(owner) => {
                let own = self.buckets.iter().filter(|row| row.owner == *owner).map(counted);
                let sum = own.fold(Usage::default(), |sum, usage| Usage {
                    bytes: sum.bytes.saturating_add(usage.bytes),
                    objects: sum.objects.saturating_add(usage.objects),
                });
                (json!({ "user": users.owner(owner).display_name, "owner": owner }), sum)
            }
        };
        let mut told = name;
        told["limits"] = json!(limits);
        told["held"] = json!(held);
        Some(told)
    }
}

/// Whom a call names.
fn quota_of(query: &Query, buckets: &[Bucket], account: Option<String>) -> Result<QuotaOf, AdminError> {
    let named = |name| query.get(name).filter(|value| !value.is_empty());
    match (named("bucket"), named("user")) {
        (Some(bucket), None) => {
            let row = buckets.iter().find(|row| row.name == bucket);
            row.map(|row| QuotaOf::Bucket(row.id)).ok_or_else(|| AdminError::unknown("bucket", bucket))
        }
        (None, Some(user)) => {
            // Of a user who is gone, buckets may be left.
            let is_id = user.len() == 64 && user.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            account
                .or_else(|| is_id.then(|| user.to_owned()))
                .map(QuotaOf::Owner)
                .ok_or_else(|| AdminError::unknown("user", user))
        }
        _ => Err(AdminError::invalid("either bucket or user names whom the quota is for")),
    }
}

/// What may be held, as a body says it: at least one limit, each a whole number that can be counted
/// to.
fn limits(body: Value) -> Result<QuotaLimits, AdminError> {
    let limits: QuotaLimits = serde_json::from_value(body)
        .map_err(|error| AdminError::invalid(format!("a quota is {{\"bytes\", \"objects\"}}: {error}")))?;
    let said = [limits.bytes, limits.objects];
    if said.iter().all(Option::is_none) {
        return Err(AdminError::invalid("a quota limits bytes, objects or both"));
    }
    if said.into_iter().flatten().any(|limit| limit > LIMIT_MAX) {
        return Err(AdminError::invalid(format!("a limit is at most {LIMIT_MAX}")));
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_whole_numbers_that_can_be_counted_to() {
        let read = |body: &str| limits(serde_json::from_str(body).unwrap()).map_err(|error| error.status.as_u16());
        assert_eq!(read(r#"{"bytes": 0}"#), Ok(QuotaLimits { bytes: Some(0), objects: None }));
        let most = QuotaLimits { bytes: Some(LIMIT_MAX), objects: Some(7) };
        assert_eq!(read(r#"{"bytes": 9223372036854775807, "objects": 7}"#), Ok(most));
        for wrong in [
            "null",
            "{}",
            r#"{"bytes": null}"#,
            r#"{"bytes": -1}"#,
            r#"{"bytes": 1.5}"#,
            r#"{"bytes": "1"}"#,
            r#"{"bytes": 9223372036854775808}"#,
            r#"{"bytes": 18446744073709551615}"#,
            r#"{"bytes": 18446744073709551616}"#,
            r#"{"bytes": 1, "objects": -1}"#,
            r#"{"bytes": 1, "size": 1}"#,
        ] {
            assert_eq!(read(wrong), Err(400), "{wrong}");
        }
    }
}
