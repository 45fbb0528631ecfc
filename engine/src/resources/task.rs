//! Tasks of the runtime.

use crate::error::EngineError;
use tokio::task::JoinHandle;

/// What a spawned task gave; its panic is an error like any other.
pub(crate) async fn joined<T>(task: JoinHandle<Result<T, EngineError>>) -> Result<T, EngineError> {
    task.await.unwrap_or_else(|error| Err(EngineError::Other(format!("a task ended without an answer: {error}"))))
}
