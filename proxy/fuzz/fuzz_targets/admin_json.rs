//! Any bytes as the body of a call of the admin API, over a store that lives as long as the
//! process: an answer or a refusal, and never an error of the server's own.

#![no_main]

use deltaweir::fuzzing::Admin;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static ADMIN: OnceLock<Admin> = OnceLock::new();

fuzz_target!(|input: (u8, &str, &str, &[u8])| {
    let (call, name, query, body) = input;
    ADMIN.get_or_init(|| Admin::new().expect("a store in a temporary directory")).call(call, name, query, body);
});
