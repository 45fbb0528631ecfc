//! One call to a provider: as long and as much as is allowed, and no further.

use crate::webhooks::{beginning_of, in_words, outward};
use engine::ProviderError;
use reqwest::{Certificate, Client, RequestBuilder, StatusCode};
use serde_json::Value;
use std::time::Duration;
use zeroize::Zeroizing;

/// How much of what a provider says is told to the operator.
const TOLD_MAX: usize = 200;

/// How a provider is reached.
#[derive(Clone, Debug)]
pub struct ProviderReach {
    /// How long an answer may take, all of it.
    pub timeout: Duration,
    /// Who may sign the provider's certificate; empty: whom this machine trusts.
    pub authorities: Vec<Certificate>,
}

/// Sends requests to one provider.
pub(super) struct ProviderClient {
    client: Client,
}

/// What it answered.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    body: Zeroizing<Vec<u8>>,
}

impl ProviderClient {
    pub(super) fn new(reach: &ProviderReach) -> Result<Self, String> {
        let mut builder = outward().timeout(reach.timeout);
        if !reach.authorities.is_empty() {
            builder = builder.tls_certs_only(reach.authorities.clone());
        }
        Ok(Self { client: builder.build().map_err(|error| in_words(&error))? })
    }

    pub(super) fn post(&self, url: &str) -> RequestBuilder {
        self.client.post(url)
    }

    /// Sends it and takes the answer, which is a few hundred bytes: one of many more is cut and so
    /// not understood.
    pub(super) async fn call(&self, request: RequestBuilder) -> Result<Reply, ProviderError> {
        let unavailable = |error: reqwest::Error| ProviderError::Unavailable(in_words(&error.without_url()));
        let mut answer = request.send().await.map_err(unavailable)?;
        let status = answer.status();
        if status.is_redirection() {
            return Err(ProviderError::Refused(format!("it answered {status}: redirects are not followed")));
        }
        Ok(Reply { status, body: Zeroizing::new(beginning_of(&mut answer).await) })
    }
}

impl Reply {
    /// The JSON of an answer that says yes.
    pub(super) fn json(&self) -> Result<Value, ProviderError> {
        serde_json::from_slice(&self.body).map_err(|_| ProviderError::Refused("its answer is not understood".into()))
    }

    /// What it says besides its status, quoted and cut.
    pub(super) fn said(&self, of: impl Fn(&Value) -> Option<String>) -> String {
        let told = serde_json::from_slice(&self.body).ok().and_then(|value| of(&value)).unwrap_or_default();
        let told: String = told.chars().take(TOLD_MAX).collect();
        if told.is_empty() { self.status.to_string() } else { format!("{} {told:?}", self.status) }
    }
}
