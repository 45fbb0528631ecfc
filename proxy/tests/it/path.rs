//! Three requests visit the modules that docs/life-of-a-request.md lists, in that order, and no
//! others.
//!
//! Each module of the list says when a request enters it: an event at level `trace` with the target
//! `path`. At each event the stack is looked at, too: a module that stands between two of the list
//! is found although it says nothing. `resources/` is not counted; every module takes from it.

use crate::{content::content, running::Running, wire::Wire};
use std::{
    backtrace::Backtrace,
    collections::BTreeSet,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
};
use tracing::{Event, Subscriber};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    layer::{Context, SubscriberExt as _},
    util::SubscriberInitExt as _,
};

/// Set in the process that holds the traced server and nothing else.
const ALONE: &str = "DELTAWEIR_TEST_ALONE";
const CONTENT_LEN: usize = 1 << 20;

/// Modules, by their files.
#[derive(Default)]
struct Seen {
    /// Those that said that a request entered them, in order.
    entered: Vec<String>,
    /// Those that stood on the stack then.
    on_the_stack: BTreeSet<String>,
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Seen>>);

impl<S: Subscriber> Layer<S> for Recorder {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let entered = event.metadata().file().unwrap_or("?").to_owned();
        let stack = modules_of(&Backtrace::force_capture().to_string());
        assert!(stack.contains(&entered), "{entered} is not among {stack:?}: no stack can be read");
        let mut seen = self.0.lock().unwrap();
        // Where a request comes back to the module it is in, it enters none.
        if seen.entered.last() != Some(&entered) {
            seen.entered.push(entered);
        }
        seen.on_the_stack.extend(stack);
    }
}

/// The files of our modules on a stack, from the one that answers requests on.
fn modules_of(stack: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in stack.lines().filter_map(|line| line.trim().strip_prefix("at ")) {
        let file = ["engine/src/", "proxy/src/"].iter().find_map(|root| line.find(root).map(|start| &line[start..]));
        let Some(file) = file.and_then(|file| file.split_once(".rs:")).map(|(file, _)| format!("{file}.rs")) else {
            continue;
        };
        found.push(file);
    }
    // What stands around it is the listener.
    let last = found.iter().rposition(|file| file == "proxy/src/server/service.rs").map_or(found.len(), |at| at + 1);
    found.truncate(last);
    found.retain(|file| !file.starts_with("engine/src/resources/"));
    found
}

/// The modules of a request in the order in which the page first names them.
fn listed(request: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/life-of-a-request.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, told) = page.split_once(&format!("### {request}\n")).unwrap();
    let told = told.split("\n### ").next().unwrap();
    let mut modules: Vec<String> = Vec::new();
    for row in told.lines().filter_map(|line| line.strip_prefix("| `")) {
        let module = row.split('`').next().unwrap().to_owned();
        if !modules.contains(&module) {
            modules.push(module);
        }
    }
    modules
}

#[test]
fn requests_visit_the_modules_that_their_page_lists_and_no_others() {
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(trace_three_requests());
    }
    // Other tests of this process would be seen, too.
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", "path::requests_visit_the_modules_that_their_page_lists_and_no_others"]);
    // A stack names files below the working directory without it.
    let output = command.env(ALONE, "1").env("RUST_BACKTRACE", "0").current_dir("/").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("A Complete: "), "nothing was traced: {said}");
    print!("{said}");
}

async fn trace_three_requests() {
    let recorder = Recorder::default();
    let only_paths = Targets::new().with_target("path", LevelFilter::TRACE);
    tracing_subscriber::registry().with(recorder.clone().with_filter(only_paths)).init();
    let server = Running::start("").await;
    let mut wire = Wire::to(server.s3).await;
    let (first, mut second) = (content(1, CONTENT_LEN), content(1, CONTENT_LEN));
    second[CONTENT_LEN / 2] ^= 1;
    assert_eq!(wire.call("PUT", "/bucket", b"").await.status, 200);

    let begin = || *recorder.0.lock().unwrap() = Seen::default();
    begin();
    assert_eq!(wire.call("PUT", "/bucket/app-1.tar", &first).await.status, 200);
    let listed_for_a_put = listed("A PUT");
    hold(&recorder, "A PUT", &listed_for_a_put);

    begin();
    assert_eq!(wire.call("PUT", "/bucket/app-2.tar", &second).await.status, 200);
    let chosen = listed_for_a_put.iter().position(|module| module.ends_with("/choose.rs")).unwrap();
    let mut with_a_base = listed_for_a_put.clone();
    with_a_base.splice(chosen + 1..chosen + 1, listed("A PUT that finds a base").into_iter().skip(1));
    hold(&recorder, "A PUT that finds a base", &with_a_base);

    begin();
    let answer = wire.call("GET", "/bucket/app-2.tar", b"").await;
    assert!(answer.body == second, "{}", answer.head);
    hold(&recorder, "A GET of a delta", &listed("A GET of a delta"));

    let begun = wire.call("POST", "/bucket/parts?uploads", b"").await;
    let begun = String::from_utf8(begun.body).unwrap();
    let id = begun.split_once("<UploadId>").unwrap().1.split_once('<').unwrap().0;
    let part = wire.call("PUT", &format!("/bucket/parts?partNumber=1&uploadId={id}"), &first).await;
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part></CompleteMultipartUpload>",
        part.header("etag").unwrap()
    );
    begin();
    let completed = wire.call("POST", &format!("/bucket/parts?uploadId={id}"), list.as_bytes()).await;
    assert_eq!(completed.status, 200, "{}", String::from_utf8_lossy(&completed.body));
    hold(&recorder, "A Complete", &listed("A Complete"));
}

/// Compares the modules a request visited with those of the page.
fn hold(recorder: &Recorder, request: &str, listed: &[String]) {
    let seen = recorder.0.lock().unwrap();
    println!("{request}: {} modules, {}", seen.entered.len(), seen.entered.join(" "));
    let between: Vec<&String> = seen.on_the_stack.iter().filter(|module| !listed.contains(module)).collect();
    println!("on the stack between them: {between:?}");
    assert_eq!(seen.entered, listed, "{request}: entered, and listed by the page");
    assert!(between.is_empty(), "{request}: {between:?} stand between the modules that the page lists");
}
