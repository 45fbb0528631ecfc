//! Answers of the admin API and output of commands, as snapshots: a change of wording or shape is a
//! diff that somebody reviews. Numbers, times, ids and secrets are masked.

use crate::{content::content, running::Running, wire::Wire};
use deltaweir::admin::{ROOT, ROUTES};
use serde_json::{Value, json};
use std::{fmt::Write as _, path::Path, process::Command};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const CONTENT_LEN: usize = 256 << 10;
/// A run of letters and digits this long is an id if it has a digit, or could be hexadecimal.
const ID_LEN_MIN: usize = 8;
/// Access key ids may happen to have no digit.
const KEY_ID_LEN_MIN: usize = 16;
/// Members whose text differs in every run.
const MASKED: [&str; 6] = ["access_key_id", "secret_access_key", "key_id", "hash", "commit", "version_id"];

/// The text with its numbers and ids masked, and without the padding that depends on their widths.
fn masked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(len.max(first.len_utf8()));
        rest = tail;
        match word {
            " " if out.ends_with("  ") => {}
            "\n" => {
                out.truncate(out.trim_end_matches(' ').len());
                out.push('\n');
            }
            word if is_id(word) => out.push('#'),
            word if first.is_ascii_digit() => out.push_str(&without_digits(word)),
            word => out.push_str(word),
        }
    }
    out
}

/// A long run of letters and digits that no word is.
fn is_id(word: &str) -> bool {
    let all = |test: fn(&char) -> bool| word.chars().all(|c| test(&c));
    let is_key_id = word.len() >= KEY_ID_LEN_MIN && all(char::is_ascii_uppercase);
    is_key_id
        || word.len() >= ID_LEN_MIN && (word.contains(|c: char| c.is_ascii_digit()) || all(char::is_ascii_hexdigit))
}

/// A mark for each run of digits.
fn without_digits(word: &str) -> String {
    let mut out = String::new();
    for c in word.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
    }
    out
}

/// The same of a document: numbers are 0, and of equal neighbours in a list one is left.
fn masked_value(name: &str, value: &Value) -> Value {
    match value {
        Value::Number(_) => json!(0),
        Value::String(_) if MASKED.contains(&name) => json!("#"),
        Value::String(text) => json!(masked(text)),
        Value::Array(list) => {
            let mut list: Vec<Value> = list.iter().map(|value| masked_value("", value)).collect();
            list.dedup();
            Value::Array(list)
        }
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| (name.clone(), masked_value(name, value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        value => value.clone(),
    }
}

/// A document as people would read it, masked; text that is no document, masked.
fn shown(text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(value) if !value.is_number() => serde_json::to_string_pretty(&masked_value("", &value)).unwrap(),
        _ => masked(text),
    }
}

/// A server with a bucket, two objects of which the second is a delta, and a user with everything
/// that a user can have. Also the id of the second object's blob, and of its upload's request.
struct Store {
    server: Running,
    blob: String,
    request: String,
}

impl Store {
    async fn made() -> Self {
        let server = Running::start(&format!("[server]\nadmin_token = \"{TOKEN}\"")).await;
        let mut wire = Wire::to(server.s3).await;
        let (first, mut second) = (content(1, CONTENT_LEN), content(1, CONTENT_LEN));
        second[CONTENT_LEN / 2] ^= 1;
        wire.call("PUT", "/releases", b"").await;
        wire.call("PUT", "/releases/app-1.tar", &first).await;
        let put = wire.call("PUT", "/releases/app-2.tar", &second).await;
        let request = put.header("x-amz-request-id").unwrap().to_owned();
        let policy = r#"{"Statement":{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::releases/*"}}"#;
        let mut store = Self { server, blob: String::new(), request };
        for (method, call, body) in [
            ("PUT", "policies/reader", policy),
            ("PUT", "groups/team", ""),
            ("PUT", "users/ann", ""),
            ("POST", "groups/team?action=add&user=ann", ""),
            ("POST", "policies/reader?action=attach&group=team", ""),
            ("PUT", "quota?bucket=releases", r#"{"objects": 100}"#),
            ("POST", "settle", ""),
        ] {
            let (status, answer) = store.call(method, call, body).await;
            assert_eq!(status, 200, "{method} {call}: {answer}");
        }
        let (_, explained) = store.call("GET", "explain?bucket=releases&key=app-2.tar", "").await;
        let explained: Value = serde_json::from_str(&explained).unwrap();
        assert_eq!(explained["form"], "delta", "the second object has a base");
        store.blob = explained["blobs"][0]["id"].as_str().unwrap().to_owned();
        store
    }

    /// Calls the admin API.
    async fn call(&self, method: &str, call: &str, body: &str) -> (u16, String) {
        let mut wire = Wire::to(self.server.admin).await;
        let length = body.len();
        let mut headers = format!("Authorization: Bearer {TOKEN}\r\nContent-Length: {length}\r\n");
        if !body.is_empty() {
            headers += "Content-Type: application/json\r\n";
        }
        wire.send(wire.unsigned(method, &format!("{ROOT}{call}"), &headers) + body).await;
        let reply = wire.reply(false).await.unwrap();
        (reply.status, String::from_utf8(reply.body).unwrap())
    }

    /// The parameters with which the call of a route gives an answer.
    fn call_of(&self, path: &str) -> String {
        let object = "bucket=releases&key=app-2.tar";
        let named = match path.split('/').next().unwrap() {
            "jobs" => "gc",
            "policies" => "reader",
            "requests" => self.request.as_str(),
            _ => "ann",
        };
        let query = match path {
            "explain" | "object" | "versions" => object.to_owned(),
            "inspect" => format!("blob={}", self.blob),
            "lifecycle" | "objects" | "quota" => "bucket=releases".to_owned(),
            "map" => format!("{object}&cells=2"),
            "policy" => "user=ann&action=s3:GetObject&resource=arn:aws:s3:::releases/app-2.tar".to_owned(),
            "requests" => "op=PutObject".to_owned(),
            _ => return path.replace("{name}", named),
        };
        format!("{path}?{query}")
    }
}

#[tokio::test]
async fn the_answers_of_the_admin_api_are_as_recorded() {
    let store = Store::made().await;
    let reads =
        ROUTES.iter().filter(|(method, ..)| method == "GET").map(|(_, path, _)| ("GET", store.call_of(path), ""));
    let writes = [
        ("PUT", "users/bob", r#"{"policies": ["readonly"]}"#),
        ("POST", "users/bob?action=disable", ""),
        ("POST", "users/bob?action=enable", ""),
        ("POST", "user-keys/ann", ""),
        ("DELETE", "users/bob", ""),
        ("POST", "groups/team?action=remove&user=ann", ""),
        ("POST", "policies/reader?action=detach&group=team", ""),
        ("DELETE", "policies/reader", ""),
        ("DELETE", "groups/team", ""),
        ("DELETE", "quota?bucket=releases", ""),
        ("POST", "journal", ""),
        ("POST", "jobs/scrub", ""),
        ("POST", "settle?timeout_s=60", ""),
        ("POST", "gc?now=true", ""),
        ("POST", "cache/drop", ""),
        ("POST", "session", r#"{"token": "0123456789abcdef0123456789abcdef"}"#),
        ("PUT", "users/ann", ""),
        ("DELETE", "users/nobody", ""),
        ("POST", "jobs/none", ""),
        ("POST", "stats", ""),
    ];
    let writes = writes.map(|(method, call, body)| (method, call.to_owned(), body));
    let mut told = String::new();
    for (method, call, body) in reads.chain(writes) {
        let (status, answer) = store.call(method, &call, body).await;
        writeln!(told, "{method} {}\n{status}\n{}\n", masked(&call), shown(&answer)).unwrap();
    }
    insta::assert_snapshot!(told);
}

/// Lines of `status` that tell of the machine and of the moment.
const OF_THE_MOMENT: [&str; 7] = ["version", "store", "backend", "disk", "deleting", "journal", "job"];

/// Runs a command against the store of a data directory.
fn run(data: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deltaweir"));
    command.args(arguments).env_clear().env("DELTAWEIR_DATA", data).env("COLUMNS", "100");
    let output = command.output().unwrap();
    let [out, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let folder = data.parent().unwrap().to_str().unwrap();
    let [out, error] = [out, error].map(|text| text.replace(folder, "FOLDER"));
    let status = output.status.code().unwrap();
    let is_kept = |line: &&str| arguments != ["status"] || !OF_THE_MOMENT.iter().any(|word| line.starts_with(word));
    let lines = out.lines().filter(is_kept).map(|line| shown(line) + "\n").collect::<String>();
    let out = if serde_json::from_str::<Value>(&out).is_ok() { shown(&out) } else { lines };
    format!(
        "exit {status}\n{}{}{}",
        out.trim_end(),
        if error.is_empty() { "" } else { "\nstderr: " },
        masked(error.trim_end())
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_commands_is_as_recorded() {
    let store = Store::made().await;
    let data = store.server.data();
    let files = data.parent().unwrap().join("files");
    std::fs::create_dir(&files).unwrap();
    let (base, target) = (files.join("base"), files.join("target"));
    std::fs::write(&base, content(1, CONTENT_LEN)).unwrap();
    std::fs::write(&target, content(1, CONTENT_LEN)).unwrap();
    let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    let [base, target] = [base, target].map(text);
    let [delta, out, ejected, again] = ["delta", "out", "ejected", "again"].map(|name| text(files.join(name)));
    let folder = text(files.clone());
    let object = "s3://releases/app-2.tar";
    let arn = "arn:aws:s3:::releases/app-2.tar";
    let in_both_forms: [&[&str]; 25] = [
        &["status"],
        &["stats"],
        &["ls"],
        &["ls", "s3://releases"],
        &["explain", object],
        &["inspect", &store.blob],
        &["jobs"],
        &["jobs", "gc"],
        &["requests", "--op", "PutObject"],
        &["requests", &store.request],
        &["quota", "list"],
        &["quota", "show", "--bucket", "releases"],
        &["users", "list"],
        &["users", "show", "ann"],
        &["users", "groups", "list"],
        &["users", "policies", "list"],
        &["users", "policies", "show", "reader"],
        &["policy", "test", "ann", "s3:GetObject", arn],
        &["policy", "test", "ann", "s3:PutObject", arn],
        &["backup"],
        &["backup", "--list"],
        &["scrub"],
        &["gc"],
        &["config", "check"],
        &["audit", "verify"],
    ];
    let once: [&[&str]; 31] = [
        &["explain", "--all", object],
        &["users", "add", "bob", "--policy", "readonly"],
        &["users", "disable", "bob"],
        &["users", "keys", "add", "bob"],
        &["users", "remove", "bob"],
        &["quota", "set", "--bucket", "releases", "--bytes", "1GiB"],
        &["quota", "clear", "--bucket", "releases"],
        &["delta", "encode", &base, &target, &delta],
        &["delta", "info", &delta],
        &["delta", "decode", &base, &delta, &out],
        &["inspect", &base],
        &["eject", "s3://releases", &ejected],
        &["eject", "s3://releases", &again, "--json"],
        &["delta", "info", &delta, "--json"],
        &["inspect", &base, "--json"],
        &["top", "--once", "--interval", "0.1"],
        &["top", "--once", "--interval", "0.1", "--json"],
        &["convert"],
        &["convert", "--json"],
        &["convert", "s3://releases", "--effort", "fast"],
        &["estimate", &folder],
        &["estimate", &folder, "--json"],
        &["restore", "--list"],
        &["restore"],
        &["rebuild"],
        &["import", "elsewhere", "s3://releases"],
        &["explain", "s3://releases/none"],
        &["jobs", "none"],
        &["users", "show", "nobody"],
        &["policy", "test", "ann", "s3:Fly", arn],
        &["ls", "s3://nowhere"],
    ];
    let told = tokio::task::block_in_place(|| {
        let mut told = String::new();
        let mut tell = |arguments: &[&str]| {
            let command = arguments.join(" ").replace(data.parent().unwrap().to_str().unwrap(), "FOLDER");
            writeln!(told, "$ deltaweir {}\n{}\n", masked(&command), run(&data, arguments)).unwrap();
        };
        for arguments in in_both_forms {
            tell(arguments);
            tell(&[arguments, &["--json"]].concat());
        }
        once.iter().for_each(|arguments| tell(arguments));
        told
    });
    insta::assert_snapshot!(told);
}

#[test]
fn masks_hide_numbers_and_ids_and_leave_words() {
    let text = "2 blobs in  4.2 MiB    of 0123456789abcdef0123; aes256 app-1.tar at 2026-11-24T13:00:00Z";
    assert_eq!(masked(text), "# blobs in  #.# MiB  of #; aes256 app-#.tar at #-#-#T#:#:#Z");
    assert_eq!(masked("key DWVVFQODNOIVBGFPGWSX, COMPLIANCE"), "key #, COMPLIANCE");
}
