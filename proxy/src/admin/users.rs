//! Users, groups, policies and access keys: the calls that show and change them. A secret is in the
//! answer that made it, and in no other. Each answer to a change says in `change` what was done,
//! which the audit log keeps.

use super::{AdminService, ApiResult, answer::AdminError, calls::required, routes::Call};
use crate::auth::accounts::{ChangeError, Directory, Holder, NewKey, NewUser, Refusal, now_ms};
use http::StatusCode;
use s3_wire::{Query, sigv4::SecretKey};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What a new user is said to be.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct UserBody {
    canonical_id: Option<String>,
    email: Option<String>,
    groups: BTreeSet<String>,
    policies: BTreeSet<String>,
    /// Whether it gets a key; it does unless this says no.
    key: Option<bool>,
    access_key_id: Option<String>,
    secret_access_key: Option<String>,
}

/// The key pair that a caller chose.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct KeyBody {
    access_key_id: Option<String>,
    secret_access_key: Option<String>,
}

impl AdminService {
    /// A call about accounts; `name` is the one in its path.
    pub(super) async fn of_accounts(&self, call: Call, name: &str, query: &Query, body: Value) -> ApiResult {
        match call {
            Call::Users => Ok(json!({ "users": self.directory().await?.users_json() })),
            Call::User => Ok(self.directory().await?.user_json(name)?),
            Call::Groups => Ok(json!({ "groups": self.directory().await?.groups_json() })),
            Call::Policies => Ok(json!({ "policies": self.directory().await?.policies_json() })),
            Call::UserPolicy => Ok(self.directory().await?.policy_json(name)?),
            Call::AddUser => self.add_user(name, body).await,
            Call::ChangeUser => {
                let enabled = either(query, "enable", "disable")?;
                self.change(|directory| directory.enable_user(name, enabled)).await
            }
            Call::RemoveUser => self.change(|directory| directory.remove_user(name)).await,
            Call::ChangeKeys if query.get("action").is_none() => self.add_key(name, body).await,
            Call::ChangeKeys => {
                let (enabled, key) = (either(query, "enable", "disable")?, required(query, "key")?);
                self.change(|directory| directory.enable_key(name, key, enabled)).await
            }
            Call::RemoveKey => {
                let key = required(query, "key")?;
                self.change(|directory| directory.remove_key(name, key)).await
            }
            Call::PutGroup => self.change(|directory| directory.add_group(name)).await,
            Call::RemoveGroup => self.change(|directory| directory.remove_group(name)).await,
            Call::ChangeMembers => {
                let (joins, user) = (either(query, "add", "remove")?, required(query, "user")?);
                self.change(|directory| directory.set_member(name, user, joins)).await
            }
            Call::PutPolicy => {
                let document = body.to_string();
                self.change(|directory| directory.put_policy(name, &document)).await
            }
            Call::RemovePolicy => self.change(|directory| directory.remove_policy(name)).await,
            Call::AttachPolicy => {
                let attaches = either(query, "attach", "detach")?;
                let holder = match (query.get("user"), query.get("group")) {
                    (Some(user), None) => Holder::User(user),
                    (None, Some(group)) => Holder::Group(group),
                    _ => return Err(AdminError::invalid("a policy is attached to a user or to a group")),
                };
                self.change(|directory| directory.attach_policy(name, holder, attaches)).await
            }
            _ => Err(AdminError::not_found("call")),
        }
    }

    async fn directory(&self) -> Result<Directory, AdminError> {
        Ok(self.accounts.directory().await?)
    }

    async fn change(&self, edit: impl Fn(&mut Directory) -> Result<String, Refusal>) -> ApiResult {
        let change = self.accounts.change(edit).await?;
        Ok(json!({ "change": change }))
    }

    async fn add_user(&self, name: &str, body: Value) -> ApiResult {
        let body: UserBody = read(body)?;
        let chosen = KeyBody { access_key_id: body.access_key_id, secret_access_key: body.secret_access_key };
        let key = match body.key.unwrap_or(true) {
            true => Some(self.new_key(chosen).await?),
            false => None,
        };
        let UserBody { canonical_id, email, groups, policies, .. } = body;
        let new = NewUser { canonical_id, email, groups, policies };
        let edit = |directory: &mut Directory| directory.add_user(name, new.clone(), key.clone(), now_ms());
        let change = self.accounts.change(edit).await?;
        let mut told = json!({ "name": name, "change": change });
        if let Some(key) = &key {
            show(&mut told, key);
        }
        Ok(told)
    }

    async fn add_key(&self, user: &str, body: Value) -> ApiResult {
        let key = self.new_key(read(body)?).await?;
        let change = self.accounts.change(|directory| directory.add_key(user, key.clone(), now_ms())).await?;
        let mut told = json!({ "user": user, "change": change });
        show(&mut told, &key);
        Ok(told)
    }

    /// The key pair that was chosen, as far as it was; root's is root's.
    async fn new_key(&self, chosen: KeyBody) -> Result<NewKey, AdminError> {
        let failed = |error: std::io::Error| AdminError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
        let key = NewKey::make(chosen.access_key_id, chosen.secret_access_key.map(SecretKey::new)).map_err(failed)?;
        match self.accounts.root_key().await == Some(key.id.clone()) {
            true => Err(Refusal::Conflict("that access key is taken".into()).into()),
            false => Ok(key),
        }
    }
}

fn show(told: &mut Value, key: &NewKey) {
    told["access_key_id"] = key.id.as_str().into();
    told["secret_access_key"] = key.secret.expose().into();
}

fn read<T: Default + for<'de> Deserialize<'de>>(body: Value) -> Result<T, AdminError> {
    match body {
        Value::Null => Ok(T::default()),
        body => serde_json::from_value(body).map_err(|error| AdminError::invalid(format!("the body: {error}"))),
    }
}

/// Which of two actions is asked for; true for the first.
fn either(query: &Query, yes: &str, no: &str) -> Result<bool, AdminError> {
    match query.get("action") {
        Some(action) if action == yes => Ok(true),
        Some(action) if action == no => Ok(false),
        _ => Err(AdminError::invalid(format!("action is {yes} or {no}"))),
    }
}

impl From<Refusal> for AdminError {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal {
            Refusal::NotFound(_) => StatusCode::NOT_FOUND,
            Refusal::Conflict(_) | Refusal::NoKek => StatusCode::CONFLICT,
            Refusal::Invalid(_) => StatusCode::BAD_REQUEST,
        };
        Self::new(status, refusal.to_string())
    }
}

impl From<ChangeError> for AdminError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Refused(refusal) => refusal.into(),
            ChangeError::Engine(error) => error.into(),
        }
    }
}
