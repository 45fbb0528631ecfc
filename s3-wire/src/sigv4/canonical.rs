//! The canonical request.
