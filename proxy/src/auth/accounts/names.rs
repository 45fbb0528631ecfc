//! What names and keys may look like.

use super::refusal::Refusal;

/// An access key stands in `Credential=KEY/date/…` and in logs.
///
/// # Errors
/// What was expected, in words.
pub fn check_access_key(id: &str) -> Result<(), &'static str> {
    if (3..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic() && !b"/,=\"\\".contains(&b)) {
        return Ok(());
    }
    Err("expected 3 to 128 visible ASCII characters without / , = \" \\")
}

/// A secret access key.
///
/// # Errors
/// What was expected, in words.
pub fn check_secret(secret: &str) -> Result<(), &'static str> {
    if (8..=256).contains(&secret.len()) { Ok(()) } else { Err("expected 8 to 256 bytes") }
}

/// Names of users, groups and policies that are made at run time: as IAM has them, and `:` for
/// policies.
pub(super) fn check_name(name: &str, more: &str) -> Result<(), Refusal> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c) || more.contains(c);
    if (1..=64).contains(&name.len()) && name.chars().all(fits) {
        return Ok(());
    }
    Err(Refusal::Invalid(format!("{name:?} is no name: expected 1 to 64 letters, digits and _ + = , . @ - {more}")))
}
