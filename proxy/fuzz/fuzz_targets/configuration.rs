//! Any text as a configuration: it is refused, or what is shown of it says the same again.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| deltaweir::fuzzing::configuration(text));
