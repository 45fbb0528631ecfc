//! object-format
