//! Asking a store: the server that has it open, through its socket, or the engine itself when there is none.

use super::Failure;
use crate::{
    admin::AdminService,
    engine::{Engine, EngineConfig},
    metrics::Metrics,
    server::socket_path,
};
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use s3_wire::Query;
use serde_json::Value;
use std::io::ErrorKind;
use tokio::{net::UnixStream, sync::watch};

/// The longest answer that is taken.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// One call of the admin API.
pub(super) struct Call {
    method: Method,
    path: String,
    query: String,
}

impl Call {
    pub(super) fn get(name: &str, parameters: &[(&str, &str)]) -> Self {
        Self::new(Method::GET, name, parameters)
    }

    pub(super) fn post(name: &str, parameters: &[(&str, &str)]) -> Self {
        Self::new(Method::POST, name, parameters)
    }

    fn new(method: Method, name: &str, parameters: &[(&str, &str)]) -> Self {
        let pair = |(name, value): &(&str, &str)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
        let query = parameters.iter().map(pair).collect::<Vec<_>>().join("&");
        Self { method, path: format!("/api/v1/{name}"), query }
    }
}

/// A store by its configuration.
pub(super) struct Store {
    config: EngineConfig,
}

impl Store {
    pub(super) fn of(config: EngineConfig) -> Self {
        Self { config }
    }

    /// Makes one call.
    pub(super) async fn ask(self, call: Call) -> Result<Value, Failure> {
        if !self.config.data.is_dir() {
            return Err(Failure(format!("there is no store at {}", self.config.data.display())));
        }
        let (_directory, path) = socket_path(&self.config.data)?;
        match UnixStream::connect(&path).await {
            Ok(stream) => ask_server(stream, &call).await,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                self.ask_engine(&call).await
            }
            Err(error) => Err(Failure(format!("the server's admin socket: {error}"))),
        }
    }

    async fn ask_engine(self, call: &Call) -> Result<Value, Failure> {
        let metrics = Metrics::new()?;
        let engine = Engine::open(self.config, metrics.clone()).await?;
        let (_running, stopping) = watch::channel(false);
        let api = AdminService::new(engine.clone(), metrics, None, stopping);
        let query = Query::parse(&call.query).map_err(|error| Failure(error.to_string()))?;
        let answer = api.call(&call.method, &call.path, &query).await;
        engine.shutdown().await;
        answer.map_err(|error| Failure(error.message))
    }
}

async fn ask_server(stream: UnixStream, call: &Call) -> Result<Value, Failure> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = Request::builder()
        .method(call.method.clone())
        .uri(format!("{}?{}", call.path, call.query))
        .header(header::HOST, "localhost")
        .body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await?.to_bytes();
    driver.abort();
    let value: Value = serde_json::from_slice(&body)?;
    if status.is_success() {
        return Ok(value);
    }
    Err(Failure(value["error"].as_str().map_or_else(|| format!("the server answered {status}"), str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_arrive_as_they_were_typed() {
        let call = Call::get("explain", &[("bucket", "b"), ("key", "a b&c=d/é%2F+")]);
        let query = Query::parse(&call.query).unwrap();
        assert_eq!((query.get("bucket"), query.get("key")), (Some("b"), Some("a b&c=d/é%2F+")));
    }
}
