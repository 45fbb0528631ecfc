//! What an engine is opened over.

use super::originals::Originals;
use crate::resources::reserves::Reserves;
use catalog::Catalog;
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};
use storage_backends::{Backend, UnfinishedUploads};

/// Where a deployment keeps its rows and its bytes, open. The engine opens none of it: it knows no
/// cloud and no database by name.
pub struct Stores {
    /// The catalog.
    pub catalog: Arc<dyn Catalog>,
    /// Whether no other process can have the catalog open.
    pub alone: bool,
    /// The backends by their configured names.
    pub backends: BTreeMap<String, Arc<dyn Backend>>,
    /// Directories of those that are local, to see how full their file systems are.
    pub directories: BTreeMap<String, PathBuf>,
    /// What is kept free on the disks, for when they are full.
    pub reserves: Reserves,
    /// Those where uploads in parts can be left behind.
    pub unfinished: BTreeMap<String, Arc<dyn UnfinishedUploads>>,
    /// Stores of plain objects.
    pub originals: Originals,
    /// Where an anchor is kept that is no file.
    pub anchor: Option<Arc<dyn Backend>>,
}

impl Stores {
    /// A catalog that this process has alone and backends of which nothing more is known.
    pub fn new(catalog: Arc<dyn Catalog>, backends: BTreeMap<String, Arc<dyn Backend>>) -> Self {
        Self {
            catalog,
            alone: true,
            backends,
            directories: BTreeMap::new(),
            reserves: Reserves::default(),
            unfinished: BTreeMap::new(),
            originals: Originals::default(),
            anchor: None,
        }
    }
}
