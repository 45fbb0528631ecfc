//! `deltaweir keys`: what everything is sealed with, and how it changes.

use super::{
    ask::{Call, Store},
    follow,
    outcome::{Failure, Outcome},
    print,
};
use clap::Subcommand;
use serde_json::{Value, json};
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
    /// Give a bucket another domain key and seal all of it anew, or encrypt the old objects of one
    /// that is not encrypted
    Reencrypt {
        /// The bucket
        bucket: String,
    },
    /// Show what depends on the domain keys a bucket was sealed with before; with --yes, remove
    /// them
    Shred {
        /// The bucket
        bucket: String,
        /// Remove them for good, if nothing depends on them
        #[arg(long)]
        yes: bool,
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
        KeysAction::Shred { bucket, yes: false } => (Call::get("keys/shred", &[("bucket", bucket)]), shredding),
        KeysAction::Shred { bucket, yes: true } => (Call::post("keys/shred", &[("bucket", bucket)]), shredding),
        KeysAction::Reencrypt { bucket } => {
            (Call::post("jobs/reencrypt", &[]).with(json!({ "bucket": bucket })), print::outline)
        }
        KeysAction::Verify => (Call::get("keys/check", &[]), check),
    }
}

/// Seals a bucket anew, and gives the report when it ends.
///
/// # Errors
/// [`Failure`] with what it failed with.
pub(super) async fn reencrypt(store: Store, bucket: &str, quiet: bool) -> Result<Value, Failure> {
    Box::pin(follow::start(store, "reencrypt", json!({ "bucket": bucket }), quiet)).await
}

/// Fails when something does not open.
pub(super) fn verdict(action: &KeysAction, told: &Value) -> Outcome {
    match (action, told["problems"].as_array()) {
        (KeysAction::Verify, Some(problems)) if !problems.is_empty() => {
            Err(Failure(format!("{} wraps do not open", problems.len())))
        }
        (KeysAction::Shred { yes: true, .. }, _) if told["shredded"] == false => {
            Err(Failure("nothing was removed".into()))
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
        let kept = match word(&kek["provider_key"]) {
            "" => word(&kek["provider"]).to_owned(),
            key => format!("{} {key}", word(&kek["provider"])),
        };
        let _ = writeln!(text, "KEK {}  {state}  {} wraps  {kept}", word(&kek["kek"]), kek["wraps"]);
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

fn shredding(told: &Value) -> String {
    let keys: Vec<&Value> = told["keys"].as_array().into_iter().flatten().collect();
    let bucket = word(&told["bucket"]);
    let unfinished = told["unfinished"].as_u64().unwrap_or(0);
    if keys.is_empty() && told["shredded"] == true {
        return format!("{} keysets of {bucket} are written without the keys that were removed", told["keysets"]);
    }
    if keys.is_empty() && unfinished > 0 {
        return format!(
            "{unfinished} keysets of {bucket} may hold a key that was removed from the catalog: run `deltaweir keys shred {bucket} --yes` \
             again"
        );
    }
    if keys.is_empty() {
        return format!("{bucket} was never sealed with another key than that of epoch {}", told["sealing"]);
    }
    let mut text = String::new();
    for key in keys {
        let fate = if told["shredded"] == true { "is removed" } else { "can be removed" };
        let counts = ["blobs", "versions", "uploads", "dying"].map(|of| key[of].as_u64().unwrap_or(0));
        match counts.iter().sum::<u64>() {
            0 => drop(writeln!(text, "key {} of {bucket}: nothing depends on it", key["epoch"])),
            _ => drop(writeln!(
                text,
                "key {} of {bucket}: {} blobs of {} bytes, {} versions, {} uploads and parts, {} blobs that wait for their purge",
                key["epoch"], counts[0], key["plain_bytes"], counts[1], counts[2], counts[3]
            )),
        }
        if told["obstacles"].as_array().is_none_or(Vec::is_empty) {
            let _ = writeln!(text, "key {} {fate}", key["epoch"]);
        }
    }
    for obstacle in told["obstacles"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "{}", word(obstacle));
    }
    text.trim_end().to_owned()
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
        let kek = |kek: &str, active, here| {
            let (provider, key) = if active { ("vault-transit", "transit/deltaweir") } else { ("local", "") };
            json!({"kek": kek, "active": active, "here": here, "wraps": 2, "provider": provider, "provider_key": key})
        };
        let told = json!({
            "keks": [kek("aa", true, true), kek("bb", false, true), kek("cc", false, false)],
            "keys": [
                {"bucket": "b", "epoch": 0, "kek": "aa", "bound": true, "blobs": 0},
                {"bucket": null, "epoch": 3, "kek": "cc", "bound": false, "blobs": 7},
            ],
        });
        let text = list(&told);
        assert!(text.starts_with("KEK aa  wraps  2 wraps  vault-transit transit/deltaweir\nKEK bb  opens  2 wraps  local\nKEK cc  missing"), "{text}");
        assert!(
            text.ends_with("b: similarity, under aa\n(deleted): epoch 3, 7 blobs, under cc, not bound to its bucket")
        );
    }

    #[test]
    fn what_would_be_lost_is_told_and_a_removal_that_was_refused_fails() {
        let key =
            |blobs: u64| json!({"epoch": 1, "blobs": blobs, "plain_bytes": 9, "versions": 0, "uploads": 0, "dying": 0});
        let mut told =
            json!({"bucket": "b", "sealing": 2, "keys": [key(3)], "obstacles": ["reencrypt b"], "shredded": false});
        let yes = KeysAction::Shred { bucket: "b".into(), yes: true };
        assert!(verdict(&yes, &told).is_err());
        assert!(verdict(&KeysAction::Shred { bucket: "b".into(), yes: false }, &told).is_ok());
        let text = shredding(&told);
        assert!(text.starts_with("key 1 of b: 3 blobs of 9 bytes,") && text.ends_with("reencrypt b"), "{text}");
        (told["keys"], told["obstacles"], told["shredded"]) = (json!([key(0)]), json!([]), json!(true));
        assert!(verdict(&yes, &told).is_ok());
        assert_eq!(shredding(&told), "key 1 of b: nothing depends on it\nkey 1 is removed");
        (told["keys"], told["keysets"]) = (json!([]), json!(2));
        assert_eq!(shredding(&told), "2 keysets of b are written without the keys that were removed");
        (told["shredded"], told["unfinished"]) = (json!(false), json!(2));
        assert!(shredding(&told).starts_with("2 keysets of b may hold a key"));
        told["unfinished"] = json!(0);
        assert!(shredding(&told).contains("never sealed with another key"));
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
