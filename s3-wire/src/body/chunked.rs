//! aws-chunked.
