//! `deltaweir keys`: what everything is sealed with, and how it changes.

use super::{
    ask::Call,
    outcome::{Failure, Outcome},
};
use clap::Subcommand;
use serde_json::Value;
use std::fmt::Write as _;

/// What to do with keys.
#[derive(Subcommand)]
pub(super) enum KeysAction {
    /// List the KEKs, and the domain keys with the blobs that each seals
    List,
    /// Wrap every key under a new KEK; content is neither read nor written
    Rotate {
        /// Remove KEKs from the keyring that no key needs any more
        #[arg(long)]
        remove_needless: bool,
    },
    /// Open every wrapped key: in the catalog, in each keyset, of each account
    Verify,
}

/// What prints an answer.
pub(super) type Print = fn(&Value) -> String;

/// The call that does it, and what prints the answer.
pub(super) fn call(action: &KeysAction) -> (Call, Print) {
    match action {
        KeysAction::List => (Call::get("keys", &[]), list),
        KeysAction::Rotate { remove_needless } => {
            let removes = if *remove_needless { "true" } else { "false" };
            (Call::post("keys/rotate", &[("remove_needless", removes)]), rotation)
        }
        KeysAction::Verify => (Call::get("keys/check", &[]), check),
    }
}

/// Fails when something does not open.
pub(super) fn verdict(action: &KeysAction, told: &Value) -> Outcome {
    match (action, told["problems"].as_array()) {
        (KeysAction::Verify, Some(problems)) if !problems.is_empty() => {
            Err(Failure(format!("{} wraps do not open", problems.len())))
        }
        _ => Ok(()),
    }
}

fn list(told: &Value) -> String {
    let mut text = String::new();
    for kek in told["keks"].as_array().into_iter().flatten() {
        let state = match (kek["active"] == true, kek["here"] == true) {
            (true, _) => "wraps",
            (false, true) => "opens",
            (false, false) => "missing",
        };
        let _ = writeln!(text, "KEK {}  {state}  {} wraps", word(&kek["kek"]), kek["wraps"]);
    }
    for key in told["keys"].as_array().into_iter().flatten() {
        let bucket = key["bucket"].as_str().unwrap_or("(deleted)");
        let what = match key["epoch"].as_u64() {
            Some(0) => "similarity".to_owned(),
            _ => format!("epoch {}, {} blobs", key["epoch"], key["blobs"]),
        };
        let bound = if key["bound"] == true { "" } else { ", not bound to its bucket" };
        let _ = writeln!(text, "{bucket}: {what}, under {}{bound}", word(&key["kek"]));
    }
    text.trim_end().to_owned()
}

fn rotation(told: &Value) -> String {
    let made = if told["made"] == true { "a new KEK" } else { "the KEK" };
    let mut text = format!(
        "{made} {} wraps now: {} keys, {} keysets, {} accounts and {} former KEKs were wrapped anew",
        word(&told["kek"]),
        told["wraps"],
        told["keysets"],
        told["accounts"],
        told["roots"]
    );
    let needless: Vec<&str> = told["needless"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !needless.is_empty() {
        let what = if told["removed"] == true { "removed" } else { "not needed any more" };
        let _ = write!(text, "\n{what}: {}", needless.join(", "));
    }
    text
}

fn check(told: &Value) -> String {
    let mut text = format!(
        "{} keys, {} keysets, {} accounts and {} former KEKs open; {} are not under the active KEK, {} are not bound to a bucket",
        told["wraps"], told["keysets"], told["accounts"], told["roots"], told["outdated"], told["unbound"]
    );
    for problem in told["problems"].as_array().into_iter().flatten() {
        let _ = write!(text, "\n{}", word(problem));
    }
    text
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_check_with_a_problem_names_it_and_fails() {
        let mut told = json!({"wraps": 4, "keysets": 6, "accounts": 1, "roots": 0, "outdated": 2, "unbound": 1});
        told["problems"] = json!([]);
        assert!(verdict(&KeysAction::Verify, &told).is_ok());
        told["problems"] = json!(["key 1 of bucket b: altered"]);
        assert!(verdict(&KeysAction::Verify, &told).is_err());
        assert!(verdict(&KeysAction::List, &told).is_ok());
        assert!(check(&told).ends_with("\nkey 1 of bucket b: altered"), "{}", check(&told));
    }

    #[test]
    fn a_list_tells_which_kek_wraps_and_which_is_missing() {
        let kek = |kek: &str, active, here| json!({"kek": kek, "active": active, "here": here, "wraps": 2});
        let told = json!({
            "keks": [kek("aa", true, true), kek("bb", false, true), kek("cc", false, false)],
            "keys": [
                {"bucket": "b", "epoch": 0, "kek": "aa", "bound": true, "blobs": 0},
                {"bucket": null, "epoch": 3, "kek": "cc", "bound": false, "blobs": 7},
            ],
        });
        let text = list(&told);
        assert!(text.starts_with("KEK aa  wraps  2 wraps\nKEK bb  opens  2 wraps\nKEK cc  missing"), "{text}");
        assert!(
            text.ends_with("b: similarity, under aa\n(deleted): epoch 3, 7 blobs, under cc, not bound to its bucket")
        );
    }

    #[test]
    fn a_rotation_tells_which_keks_are_not_needed_any_more() {
        let mut told = json!({"kek": "aa", "made": true, "wraps": 4, "keysets": 6, "accounts": 1, "roots": 1});
        told["needless"] = json!(["bb"]);
        assert!(rotation(&told).ends_with("\nnot needed any more: bb"));
        told["removed"] = json!(true);
        assert!(rotation(&told).ends_with("\nremoved: bb"));
    }
}
