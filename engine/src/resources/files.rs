//! Directories that are the owner's alone.

use crate::error::EngineError;
use std::path::Path;

/// Makes a directory that only its owner may enter, and those above it; one that is there stays as
/// it is.
///
/// # Errors
/// [`EngineError::Other`] when it cannot be made.
pub fn make_private_dir(path: &Path) -> Result<(), EngineError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| EngineError::Other(format!("cannot make {}: {error}", path.display())))
}
