//! How a command ends: what it prints, and why it failed.

use serde_json::Value;
use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
};

/// Why a command failed, in words for whoever typed it.
pub(super) struct Failure(pub(super) String);

impl<E: Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

pub(super) type Outcome = Result<(), Failure>;

pub(super) fn show(json: bool, value: &Value, print: impl Fn(&Value) -> String) -> Outcome {
    if !json {
        return out(print(value).trim_end());
    }
    let text = if io::stdout().is_terminal() { serde_json::to_string_pretty(value)? } else { value.to_string() };
    out(&text)
}

/// Prints; a reader that has seen enough (`| head`) is no error.
pub(super) fn out(text: &str) -> Outcome {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Says something beside what a command prints. Nothing depends on whether anybody takes it.
pub(super) fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

pub(super) fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}
