//! The embedded catalog.

use catalog::{SqliteCatalog, SqliteOptions, conformance::Factory};
use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex},
};
use tempfile::TempDir;

/// Catalogs in directories of their own, by address, which live as long as the test.
#[derive(Default)]
struct Directories(Mutex<HashMap<usize, TempDir>>);

impl Directories {
    async fn open(&self, directory: TempDir) -> Arc<SqliteCatalog> {
        let catalog = Arc::new(open(directory.path()).await);
        self.0.lock().unwrap().insert(Arc::as_ptr(&catalog) as usize, directory);
        catalog
    }
}

async fn open(directory: &Path) -> SqliteCatalog {
    // Flushing is left out: no test here can tell, and it takes most of the time.
    let options = SqliteOptions { sync: false, ..SqliteOptions::default() };
    SqliteCatalog::open(directory.join("catalog.db"), options).await.unwrap()
}

impl Factory for Directories {
    type Catalog = SqliteCatalog;

    async fn fresh(&self) -> Arc<SqliteCatalog> {
        self.open(tempfile::tempdir().unwrap()).await
    }

    async fn after_crash(&self, catalog: Arc<SqliteCatalog>) -> Arc<SqliteCatalog> {
        // What a killed process leaves: the files as they are, the log not folded into the
        // database.
        let image = tempfile::tempdir().unwrap();
        let directory = self.0.lock().unwrap().remove(&(Arc::as_ptr(&catalog) as usize)).unwrap();
        for name in ["catalog.db", "catalog.db-wal"] {
            std::fs::copy(directory.path().join(name), image.path().join(name)).unwrap();
        }
        assert!(std::fs::metadata(image.path().join("catalog.db-wal")).unwrap().len() > 0);
        drop(catalog);
        self.open(image).await
    }
}

catalog::conformance_tests!(Directories::default());
