//! Content to differ from: what resembles what, which of it is chosen, and the windows of it that
//! encoders see.

pub(crate) mod account;
pub(crate) mod alone;
pub(crate) mod base;
pub(crate) mod choose;
pub(crate) mod drift;
pub(crate) mod hook_queue;
pub(crate) mod in_flight;
pub mod key_order;
pub(crate) mod moved;
pub(crate) mod plan;
pub(crate) mod proven;
pub(crate) mod region;
pub(crate) mod series;
pub(crate) mod similar;
pub(crate) mod text;
pub(crate) mod window;
