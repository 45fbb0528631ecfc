//! Who else may read or write the files that a configuration is made of. What others may write,
//! they decide; what they may read is no secret.

use super::error::ConfigError;
use std::{cell::RefCell, os::unix::fs::MetadataExt as _, path::Path};

/// Files that were looked at, and what is odd about them.
#[derive(Default)]
pub(super) struct Modes {
    warnings: RefCell<Vec<String>>,
}

/// What a file is to the configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// A secret: nobody else should read it.
    Secret,
    /// Settings or rights: nobody else should change them.
    Settings,
}

impl Modes {
    /// Looks at a file that `key` names. Warns of what its group may do, and of a secret that
    /// everybody may read: secrets mounted into containers are often so.
    ///
    /// # Errors
    /// Everybody may write it.
    pub(super) fn check(&self, key: &str, path: &Path, holds: Holds) -> Result<(), ConfigError> {
        // One that cannot be looked at cannot be read either, and that is said by who reads it.
        let Ok(found) = std::fs::metadata(path) else { return Ok(()) };
        let (mode, shown) = (found.mode() & 0o777, path.display());
        if !found.is_file() {
            return Ok(());
        }
        if mode & 0o002 != 0 {
            let message = format!("{shown} has mode {mode:04o}: everybody may write it; chmod go-w it");
            return Err(ConfigError::at(key, message));
        }
        let open = match holds {
            Holds::Secret if mode & 0o004 != 0 => "everybody may read the secret in it; chmod 600 it",
            Holds::Secret if mode & 0o060 != 0 => "its group may read or write the secret in it; chmod 600 it",
            Holds::Settings if mode & 0o020 != 0 => "its group may write it; chmod g-w it",
            _ => return Ok(()),
        };
        self.warnings.borrow_mut().push(format!("{key}: {shown} has mode {mode:04o}: {open}"));
        Ok(())
    }

    /// What is odd, in the order in which files were read.
    pub(super) fn into_warnings(self) -> Vec<String> {
        self.warnings.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_everybody_may_write_is_refused_and_what_others_may_read_is_warned_of() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let check = |mode: u32, holds| {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let modes = Modes::default();
            modes
                .check("key", file.path(), holds)
                .map(|()| modes.into_warnings().len())
                .map_err(|error| error.key().map(str::to_owned))
        };
        for (mode, secret, settings) in
            [(0o600, 0, 0), (0o400, 0, 0), (0o440, 1, 0), (0o444, 1, 0), (0o644, 1, 0), (0o620, 1, 1)]
        {
            assert_eq!(check(mode, Holds::Secret), Ok(secret), "{mode:o}");
            assert_eq!(check(mode, Holds::Settings), Ok(settings), "{mode:o}");
        }
        for mode in [0o602, 0o666, 0o777] {
            assert_eq!(check(mode, Holds::Secret), Err(Some("key".into())), "{mode:o}");
            assert_eq!(check(mode, Holds::Settings), Err(Some("key".into())), "{mode:o}");
        }
    }
}
