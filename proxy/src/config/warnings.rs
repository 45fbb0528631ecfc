//! What is odd about a configuration but not wrong.

use super::{environment::VARIABLES, file::backend::Backend, reader::Reader, values::is_shared};

impl Reader<'_> {
    /// What is odd but not wrong.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (name, _) in self.environment.all() {
            if name.starts_with("DELTAWEIR_") && !VARIABLES.contains(&name) && !self.names(name) {
                warnings.push(format!("{name} is set but has no meaning"));
            }
        }
        if !self.file.storage.sync {
            warnings.push("storage.sync is off: acknowledged objects may be lost with the power".into());
        }
        if is_shared(&self.file.storage.catalog) {
            for (name, backend) in &self.file.backends {
                if matches!(backend, Backend::Local(_)) {
                    warnings.push(format!(
                        "backends.{name} is a directory, and the catalog can be shared: every process must see the same file system there"
                    ));
                }
            }
            if self.file.storage.kek.is_none()
                && self.file.storage.keyring.is_none()
                && self.file.storage.key_provider.is_none()
            {
                warnings.push(
                    "storage.kek is not set, and the catalog can be shared: encrypted buckets need the same key in every process".into(),
                );
            }
        }
        warnings
    }

    /// Whether some secret of the file is `env:` this variable.
    fn names(&self, variable: &str) -> bool {
        let reference = format!("\"env:{variable}\"");
        toml::to_string(self.file).is_ok_and(|text| text.contains(&reference))
    }
}
