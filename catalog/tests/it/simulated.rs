//! The catalog of a simulation.

use async_trait::async_trait;
use catalog::{Call, Result, SimulatedCatalog, SimulatedDatabase, UnixMs, Weather, conformance::Factory};
use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};
use tempfile::TempDir;

/// No wind, and the clock of this machine.
struct Calm;

#[async_trait]
impl Weather for Calm {
    async fn before(&self, _: Call) -> Result<()> {
        Ok(())
    }

    async fn after(&self, _: Call, _: bool) -> Result<()> {
        Ok(())
    }

    fn now_ms(&self) -> UnixMs {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as UnixMs
    }

    fn database_ms(&self) -> UnixMs {
        self.now_ms()
    }
}

/// Databases in directories of their own, by the address of their catalog, which live as long as
/// the test.
#[derive(Default)]
struct Databases(Mutex<HashMap<usize, (TempDir, Arc<SimulatedDatabase>)>>);

impl Databases {
    fn open(&self, directory: TempDir, name: &str) -> Arc<SimulatedCatalog> {
        let database = open(&directory.path().join(name));
        let catalog = Arc::new(database.connect(Arc::new(Calm)));
        self.0.lock().unwrap().insert(Arc::as_ptr(&catalog) as usize, (directory, database));
        catalog
    }
}

fn open(path: &Path) -> Arc<SimulatedDatabase> {
    SimulatedDatabase::open(path).unwrap()
}

impl Factory for Databases {
    type Catalog = SimulatedCatalog;

    async fn fresh(&self) -> Arc<SimulatedCatalog> {
        self.open(tempfile::tempdir().unwrap(), "first")
    }

    async fn after_crash(&self, catalog: Arc<SimulatedCatalog>) -> Arc<SimulatedCatalog> {
        let (directory, database) = self.0.lock().unwrap().remove(&(Arc::as_ptr(&catalog) as usize)).unwrap();
        database.copy_to(directory.path().join("second")).unwrap();
        drop(catalog);
        self.open(directory, "second")
    }
}

catalog::conformance_tests!(Databases::default());

#[tokio::test]
async fn a_database_that_is_set_back_is_what_its_copy_was_to_all_who_share_it() {
    use catalog::Catalog;
    let directory = tempfile::tempdir().unwrap();
    let database = open(&directory.path().join("primary"));
    let [first, second] = [(); 2].map(|()| database.connect(Arc::new(Calm)));
    first.put_setting("a", 1.into()).await.unwrap();
    database.copy_to(directory.path().join("standby")).unwrap();
    first.put_setting("a", 2.into()).await.unwrap();
    assert_eq!(second.setting("a").await.unwrap(), Some(2.into()));
    database.go_on_from(directory.path().join("standby")).unwrap();
    assert_eq!(second.setting("a").await.unwrap(), Some(1.into()));
    assert_eq!(first.last_seq().await.unwrap(), 1);
}
