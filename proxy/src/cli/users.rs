//! `deltaweir users`: users, their keys, groups and policies, as calls of the admin API.

use super::{ask::Call, outcome::Failure};
use crate::config::{Environment, secret_of};
use clap::{Args, Subcommand};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use std::{fmt::Write as _, fs, path::PathBuf};

/// What to do with users.
#[derive(Subcommand)]
pub(super) enum UsersAction {
    /// List users with their policies, groups and keys
    List,
    /// Show a user
    Show {
        /// The user's name
        user: String,
    },
    /// Add a user, with a key pair that is printed once
    Add {
        /// The user's name
        user: String,
        /// A policy for the user: admin, readwrite, readonly or one of yours; may be given several
        /// times
        #[arg(long = "policy", value_name = "POLICY")]
        policies: Vec<String>,
        /// A group it joins; may be given several times
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// The address by which grants may name its account
        #[arg(long)]
        email: Option<String>,
        /// The canonical id of its account, 64 hex digits; root's account if omitted
        #[arg(long, value_name = "ID")]
        canonical_id: Option<String>,
        /// Add it without a key
        #[arg(long, conflicts_with_all = ["access_key_id", "secret_access_key"])]
        no_key: bool,
        #[command(flatten)]
        pair: PairFlags,
    },
    /// Remove a user and its keys; its sessions end
    Remove {
        /// The user's name
        user: String,
    },
    /// Refuse a user's requests until it is enabled again
    Disable {
        /// The user's name
        user: String,
    },
    /// Accept a user's requests again
    Enable {
        /// The user's name
        user: String,
    },
    /// Add, remove, disable and enable access keys
    Keys {
        #[command(subcommand)]
        action: KeysAction,
    },
    /// Show and change groups, whose members have their policies
    Groups {
        #[command(subcommand)]
        action: GroupsAction,
    },
    /// Show and change policies of users and groups
    Policies {
        #[command(subcommand)]
        action: PoliciesAction,
    },
}

/// A key pair that the caller chose.
#[derive(Args)]
pub(super) struct PairFlags {
    /// The access key; generated if omitted
    #[arg(long, value_name = "ID")]
    access_key_id: Option<String>,
    /// The secret: env:NAME, file:PATH or literally; generated if omitted
    #[arg(long, value_name = "SECRET")]
    secret_access_key: Option<String>,
}

/// What to do with access keys.
#[derive(Subcommand)]
pub(super) enum KeysAction {
    /// Add a key pair, which is printed once
    Add {
        /// The user's name
        user: String,
        #[command(flatten)]
        pair: PairFlags,
    },
    /// Remove a key; its sessions end
    Remove {
        /// The user's name
        user: String,
        /// The access key
        key: String,
    },
    /// Refuse a key until it is enabled again
    Disable {
        /// The user's name
        user: String,
        /// The access key
        key: String,
    },
    /// Accept a key again
    Enable {
        /// The user's name
        user: String,
        /// The access key
        key: String,
    },
}

/// What to do with groups.
#[derive(Subcommand)]
pub(super) enum GroupsAction {
    /// List groups with their policies and members
    List,
    /// Add a group
    Add {
        /// The group's name
        group: String,
    },
    /// Remove a group without members
    Remove {
        /// The group's name
        group: String,
    },
    /// Put a user in a group
    Join {
        /// The group's name
        group: String,
        /// The user's name
        user: String,
    },
    /// Take a user out of a group
    Leave {
        /// The group's name
        group: String,
        /// The user's name
        user: String,
    },
}

/// What to do with policies.
#[derive(Subcommand)]
pub(super) enum PoliciesAction {
    /// List policies and who has them
    List,
    /// Show a policy's document
    Show {
        /// The policy's name
        policy: String,
    },
    /// Add a policy, or replace its document
    Put {
        /// The policy's name
        policy: String,
        /// A file with its document, JSON
        file: PathBuf,
    },
    /// Remove a policy that is attached to nobody
    Remove {
        /// The policy's name
        policy: String,
    },
    /// Give a policy to a user or group
    Attach(HolderFlags),
    /// Take a policy from a user or group
    Detach(HolderFlags),
}

/// A policy, and who has it.
#[derive(Args)]
pub(super) struct HolderFlags {
    /// The policy's name
    policy: String,
    /// The user's name
    #[arg(long, required_unless_present = "group", conflicts_with = "group")]
    user: Option<String>,
    /// The group's name
    #[arg(long)]
    group: Option<String>,
}

/// How an answer is shown.
type Printed = fn(&Value) -> String;

/// The call that does it, and how its answer is shown.
pub(super) fn call(action: UsersAction) -> Result<(Call, Printed), Failure> {
    Ok(match action {
        UsersAction::List => (Call::get("users", &[]), print_users),
        UsersAction::Show { user } => (Call::get(&at("users", &user), &[]), print_user),
        UsersAction::Add { user, policies, groups, email, canonical_id, no_key, pair } => {
            let mut body = pair.body()?;
            for (name, value) in [
                ("policies", json!(policies)),
                ("groups", json!(groups)),
                ("email", json!(email)),
                ("canonical_id", json!(canonical_id)),
                ("key", json!(!no_key)),
            ] {
                body[name] = value;
            }
            (Call::new(Method::PUT, &at("users", &user), &[]).with(body), print_change)
        }
        UsersAction::Remove { user } => (Call::new(Method::DELETE, &at("users", &user), &[]), print_change),
        UsersAction::Disable { user } => (Call::post(&at("users", &user), &[("action", "disable")]), print_change),
        UsersAction::Enable { user } => (Call::post(&at("users", &user), &[("action", "enable")]), print_change),
        UsersAction::Keys { action } => (of_keys(action)?, print_change),
        UsersAction::Groups { action: GroupsAction::List } => (Call::get("groups", &[]), print_groups),
        UsersAction::Groups { action } => (of_groups(action), print_change),
        UsersAction::Policies { action: PoliciesAction::List } => (Call::get("policies", &[]), print_policies),
        UsersAction::Policies { action: PoliciesAction::Show { policy } } => {
            (Call::get(&at("policies", &policy), &[]), |told| format!("{:#}", told["document"]))
        }
        UsersAction::Policies { action } => (of_policies(action)?, print_change),
    })
}

fn of_keys(action: KeysAction) -> Result<Call, Failure> {
    let act = |user: &str, key: &str, action| Call::post(&at("user-keys", user), &[("action", action), ("key", key)]);
    Ok(match action {
        KeysAction::Add { user, pair } => Call::post(&at("user-keys", &user), &[]).with(pair.body()?),
        KeysAction::Remove { user, key } => Call::new(Method::DELETE, &at("user-keys", &user), &[("key", &key)]),
        KeysAction::Disable { user, key } => act(&user, &key, "disable"),
        KeysAction::Enable { user, key } => act(&user, &key, "enable"),
    })
}

fn of_groups(action: GroupsAction) -> Call {
    let act = |group: &str, user: &str, action| Call::post(&at("groups", group), &[("action", action), ("user", user)]);
    match action {
        GroupsAction::List => Call::get("groups", &[]),
        GroupsAction::Add { group } => Call::new(Method::PUT, &at("groups", &group), &[]),
        GroupsAction::Remove { group } => Call::new(Method::DELETE, &at("groups", &group), &[]),
        GroupsAction::Join { group, user } => act(&group, &user, "add"),
        GroupsAction::Leave { group, user } => act(&group, &user, "remove"),
    }
}

fn of_policies(action: PoliciesAction) -> Result<Call, Failure> {
    let act = |flags: &HolderFlags, action| {
        let of_user = flags.user.as_deref().map(|user| ("user", user));
        let holder = of_user.or(flags.group.as_deref().map(|group| ("group", group)));
        let parameters: Vec<_> = [("action", action)].into_iter().chain(holder).collect();
        Call::post(&at("policies", &flags.policy), &parameters)
    };
    Ok(match action {
        PoliciesAction::List => Call::get("policies", &[]),
        PoliciesAction::Show { policy } => Call::get(&at("policies", &policy), &[]),
        PoliciesAction::Put { policy, file } => {
            let unreadable = |error: &dyn std::fmt::Display| Failure(format!("{}: {error}", file.display()));
            let text = fs::read_to_string(&file).map_err(|error| unreadable(&error))?;
            let document: Value = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
            Call::new(Method::PUT, &at("policies", &policy), &[]).with(document)
        }
        PoliciesAction::Remove { policy } => Call::new(Method::DELETE, &at("policies", &policy), &[]),
        PoliciesAction::Attach(flags) => act(&flags, "attach"),
        PoliciesAction::Detach(flags) => act(&flags, "detach"),
    })
}

impl PairFlags {
    fn body(&self) -> Result<Value, Failure> {
        let environment = Environment::of_process();
        let secret = self.secret_access_key.as_ref();
        let secret = secret.map(|text| secret_of("--secret-access-key", text, &environment)).transpose()?;
        let secret = secret.as_ref().map(|secret| secret.expose_secret());
        Ok(json!({ "access_key_id": self.access_key_id, "secret_access_key": secret }))
    }
}

/// The path of one of several.
fn at(of: &str, name: &str) -> String {
    format!("{of}/{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

/// What was done, and the key pair that was made.
fn print_change(told: &Value) -> String {
    let mut text = told["change"].as_str().unwrap_or_default().to_owned();
    if let (Some(id), Some(secret)) = (told["access_key_id"].as_str(), told["secret_access_key"].as_str()) {
        let _ = write!(text, "\n\nexport AWS_ACCESS_KEY_ID={id}\nexport AWS_SECRET_ACCESS_KEY={secret}\n\n");
        text.push_str("The secret is shown this once.");
    }
    text
}

fn print_users(told: &Value) -> String {
    let users = told["users"].as_array().map(Vec::as_slice).unwrap_or_default();
    if users.is_empty() {
        return "no users: root alone".to_owned();
    }
    users.iter().map(print_user).collect::<Vec<_>>().join("\n")
}

/// A line for the user, and one for each of its keys.
fn print_user(user: &Value) -> String {
    let off = |of: &Value| if of["enabled"] == true { "" } else { "  disabled" };
    let mut text = user["name"].as_str().unwrap_or_default().to_owned() + off(user);
    for (label, of) in [("policies", "policies"), ("groups", "groups")] {
        let names = names_of(&user[of]);
        if !names.is_empty() {
            let _ = write!(text, "  {label}: {names}");
        }
    }
    for key in user["keys"].as_array().into_iter().flatten() {
        let (id, created) = (key["id"].as_str().unwrap_or_default(), key["created"].as_str().unwrap_or_default());
        let _ = write!(text, "\n  {id}  since {created}{}", off(key));
    }
    text
}

fn print_groups(told: &Value) -> String {
    lines(&told["groups"], |group| {
        let (policies, members) = (names_of(&group["policies"]), names_of(&group["members"]));
        format!("policies: {}  members: {}", or_none(&policies), or_none(&members))
    })
}

fn print_policies(told: &Value) -> String {
    lines(&told["policies"], |policy| {
        let attached = names_of(&policy["attached_to"]);
        let built_in = if policy["built_in"] == true { "built in  " } else { "" };
        format!("{built_in}attached to: {}", or_none(&attached))
    })
}

fn lines(list: &Value, about: impl Fn(&Value) -> String) -> String {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |entry: &Value| format!("{}  {}", entry["name"].as_str().unwrap_or_default(), about(entry));
    if list.is_empty() { "none".to_owned() } else { list.iter().map(line).collect::<Vec<_>>().join("\n") }
}

fn or_none(names: &str) -> &str {
    if names.is_empty() { "none" } else { names }
}

fn names_of(list: &Value) -> String {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_shown_with_their_keys() {
        let user = json!({
            "name": "ann", "enabled": false, "policies": ["readonly"], "groups": ["a", "b"],
            "keys": [{ "id": "AKANN", "enabled": true, "created": "2026-01-02T03:04:05.000Z" }],
        });
        let shown = "ann  disabled  policies: readonly  groups: a, b\n  AKANN  since 2026-01-02T03:04:05.000Z";
        assert_eq!(print_user(&user), shown);
        assert_eq!(print_users(&json!({ "users": [] })), "no users: root alone");
    }

    #[test]
    fn names_may_hold_anything_in_a_path() {
        assert_eq!(at("users", "a/b é"), "users/a%2Fb%20%C3%A9");
    }
}
