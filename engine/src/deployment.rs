//! Whose store this is: owner records, this process's writer epoch, and the keys.

pub(crate) mod accounts;
pub(crate) mod documents;
pub(crate) mod keyring;
pub(crate) mod ownership;
pub(crate) mod veil;
pub(crate) mod writer;
