//! Key providers: programs that keep KEKs for the server. The engine says when, these say how
//! (docs/decisions/0046-key-providers.md).

mod call;
mod kms;
mod vault;

pub use call::ProviderReach;
pub use kms::{KmsConfig, KmsCredentials};
pub use vault::{VaultConfig, VaultLogin};

use call::ProviderClient;
use engine::{KekContext, KeyProvider, ProviderError};
use kms::AwsKmsKey;
use std::sync::Arc;
use vault::TransitKey;

/// Where KEKs are kept.
#[derive(Clone, Debug)]
pub enum ProviderConfig {
    /// The transit engine of HashiCorp Vault or OpenBao.
    Vault(VaultConfig),
    /// AWS KMS.
    Kms(KmsConfig),
}

impl ProviderConfig {
    /// Sends nothing yet.
    ///
    /// # Errors
    /// In words, when TLS cannot be set up.
    pub fn open(&self, reach: &ProviderReach) -> Result<Arc<dyn KeyProvider>, String> {
        let caller = ProviderClient::new(reach)?;
        Ok(match self.clone() {
            Self::Vault(config) => Arc::new(TransitKey::new(config, caller)),
            Self::Kms(config) => Arc::new(AwsKmsKey::new(config, caller)),
        })
    }
}

/// Has a provider wrap and unwrap something, which is all that it is for.
///
/// # Errors
/// What it says; [`ProviderError::Refused`] when it gives something else back.
pub(crate) async fn try_out(provider: &dyn KeyProvider) -> Result<(), ProviderError> {
    let mut secret = zeroize::Zeroizing::new([0; 32]);
    crypto::fill_random(&mut *secret).map_err(|error| ProviderError::Unavailable(error.to_string()))?;
    let context = KekContext { fingerprint: [0; 8] };
    let sealed = provider.wrap(&secret, context).await?;
    match *provider.unwrap(&sealed, context).await? == *secret {
        true => Ok(()),
        false => Err(ProviderError::Refused("what it unwrapped is not what it wrapped".into())),
    }
}
