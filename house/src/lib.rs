//! The shape of the workspace, read from its sources with a parser: which module uses which, in
//! circles or one way, and how long files and functions are. Tests are left out; they may reach
//! whatever they test.
//!
//! A module is a file. `a` has an arrow to `b` when code in `a` names an item that `b` defines. A
//! path through a re-export counts for the file that defines the item, so the re-export itself is
//! no arrow, nor is `mod b;`.

pub mod graph;
pub mod measure;
pub mod resolve;
pub mod source;
