//! What would be decided about a request that nobody sent, and which statement or grant decides:
//! `deltaweir policy test`.

use super::{
    context,
    rules::{AccessCache, BucketAccess, Seen},
};
use crate::{
    auth::{Principal, Users},
    engine::{BucketHandle, Engine, EngineError},
};
use access::{Context, Key, MapContext, OfObject, Question, Reason, Scope, decide, scope_of};
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Mutex, PoisonError},
};

/// How a trial names the caller who signs nothing.
const ANONYMOUS: &str = "anonymous";
const ARN_PREFIX: &str = "arn:aws:s3:::";

/// What is asked.
pub struct Trial {
    principal: Principal,
    action: String,
    resource: String,
    given: MapContext,
}

/// Why nothing can be asked: a user, an action, a resource or a condition key that there is not.
#[derive(Debug)]
pub struct TrialError(String);

impl fmt::Display for TrialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What would be decided.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// Whether the request would be allowed.
    pub allowed: bool,
    /// Which statement or grant decides, in words.
    pub reason: String,
    /// The statement that decides, counted from 0 in its policy, when one does.
    pub statement: Option<usize>,
    /// Its Sid.
    pub sid: Option<String>,
    /// Whose it is: `user` or `bucket`.
    pub policy: Option<&'static str>,
    /// Condition keys that policies asked for and that have no value here.
    pub missing: BTreeSet<String>,
}

impl Trial {
    /// May `user` (`anonymous`: nobody signed) do `action` (`s3:GetObject`) to `resource` (an ARN)?
    /// `context`: the values of condition keys, an object of strings and lists of strings.
    ///
    /// # Errors
    /// What there is not, in words for whoever asks.
    pub fn new(users: &Users, user: &str, action: &str, resource: &str, context: &Value) -> Result<Self, TrialError> {
        let principal = match Principal::named(users, user) {
            Some(principal) => principal,
            None if user == ANONYMOUS => Principal::nobody(),
            None => {
                return Err(TrialError(format!(
                    "there is no user {user:?} with an enabled key; use {ANONYMOUS} for unsigned requests"
                )));
            }
        };
        let Some(scope) = scope_of(action) else {
            return Err(TrialError(format!("S3 has no action {action:?}; one is s3:GetObject")));
        };
        let place = resource.strip_prefix(ARN_PREFIX).unwrap_or_default();
        let fits = match scope {
            Scope::Service => resource == "*" || !place.is_empty(),
            Scope::Bucket => !place.is_empty() && !place.contains('/'),
            Scope::Object => place.split_once('/').is_some_and(|(bucket, key)| !bucket.is_empty() && !key.is_empty()),
        };
        if !fits {
            let wanted = match scope {
                Scope::Service => "*",
                Scope::Bucket => "arn:aws:s3:::BUCKET",
                Scope::Object => "arn:aws:s3:::BUCKET/KEY",
            };
            return Err(TrialError(format!("{action} needs the resource {wanted}, not {resource:?}")));
        }
        let given = given(context)?;
        Ok(Self { principal, action: action.to_owned(), resource: resource.to_owned(), given })
    }

    /// Decides as for a request: with the bucket's policy, grants and blocks as they stand, and
    /// with the object's where there is one. A bucket that is not there says nothing.
    ///
    /// # Errors
    /// What catalog and keys say when they do not answer.
    pub async fn decide(&self, engine: &Engine, users: &Users) -> Result<Verdict, EngineError> {
        let place = self.resource.strip_prefix(ARN_PREFIX).unwrap_or_default();
        let (name, key) = place.split_once('/').map_or((place, None), |(name, key)| (name, Some(key)));
        let bucket = if name.is_empty() { None } else { engine.buckets.bucket(name).await? };
        let Some(bucket) = bucket else {
            return Ok(self.verdict(users, None, None));
        };
        let access = AccessCache::default().of(&bucket)?;
        let object = match key {
            Some(key) => engine.read.head(&bucket, key).await?,
            None => None,
        };
        let seen = object.map(|info| Seen::of(&info.facts, &bucket)).transpose()?;
        Ok(self.verdict(users, Some((&bucket, &access)), seen.as_ref()))
    }

    fn verdict(&self, users: &Users, bucket: Option<(&BucketHandle, &BucketAccess)>, seen: Option<&Seen>) -> Verdict {
        let context = TrialContext {
            trial: self,
            account: bucket.map(|(bucket, _)| users.resource_owner(&bucket.row.owner).account),
            tags: seen.map(|seen| &seen.tags),
            missing: Mutex::default(),
        };
        let decision = decide(&Question {
            caller: self.principal.caller(),
            identity: self.principal.identity(),
            action: &self.action,
            resource: &self.resource,
            context: &context,
            bucket: bucket.map(|(bucket, access)| access.owned_by(users.resource_owner(&bucket.row.owner))),
            object: seen.map(|seen| OfObject { owner: users.resource_owner(&seen.owner), acl: seen.acl.as_ref() }),
        });
        let (policy, statement) = match decision.reason {
            Reason::IdentityPolicy(index, statement) => (Some("user"), Some((index, statement))),
            Reason::BucketPolicy(index, statement) => (Some("bucket"), Some((index, statement))),
            _ => (None, None),
        };
        Verdict {
            allowed: decision.allowed,
            reason: decision.reason.to_string(),
            statement: statement.map(|(index, _)| index),
            sid: statement.and_then(|(_, statement)| statement.sid()).map(str::to_owned),
            policy,
            missing: context.missing.into_inner().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

fn given(context: &Value) -> Result<MapContext, TrialError> {
    let mut given = MapContext::default();
    let pairs = match context {
        Value::Null => return Ok(given),
        Value::Object(pairs) => pairs,
        _ => return Err(TrialError("the context is an object of condition keys and their values".into())),
    };
    for (key, values) in pairs {
        let values = match values {
            Value::Array(values) => values.as_slice(),
            one => std::slice::from_ref(one),
        };
        for value in values {
            let Some(value) = value.as_str() else {
                return Err(TrialError(format!("the value of {key} is a string or a list of strings, not {value}")));
            };
            if !given.add(key, value) {
                return Err(TrialError(format!("neither IAM nor S3 has a condition key {key:?}")));
            }
        }
    }
    Ok(given)
}

/// The values of condition keys: what was given, else what follows from caller and object.
struct TrialContext<'a> {
    trial: &'a Trial,
    account: Option<&'a str>,
    tags: Option<&'a BTreeMap<String, String>>,
    missing: Mutex<BTreeSet<String>>,
}

impl Context for TrialContext<'_> {
    fn values(&self, key: &Key) -> Option<Vec<String>> {
        if let Some(given) = self.trial.given.values(key) {
            return Some(given);
        }
        let follows = match (key.name(), key.tag()) {
            ("s3:existingobjecttag", Some(tag)) => self.tags.and_then(|tags| tags.get(tag)).cloned(),
            ("aws:resourceaccount" | "s3:resourceaccount", _) => self.account.map(str::to_owned),
            (name, _) => context::of_caller(name, self.trial.principal.caller()),
        };
        if follows.is_none() {
            let name = key.tag().map_or_else(|| key.name().to_owned(), |tag| format!("{}/{tag}", key.name()));
            self.missing.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        }
        follows.map(|value| vec![value])
    }
}
