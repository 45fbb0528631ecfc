//! AWS Signature Version 4: who sent a request, proved over its raw target and every header that means something.

mod canonical;
mod presented;
mod secret;
mod signing;
mod verifier;

pub use presented::Presented;
pub use secret::{CredentialStore, SecretKey};
#[cfg(test)]
pub(crate) use signing::SigningKey;
pub use signing::{ChunkSigner, Scope};
pub use verifier::{Authenticated, Identity, PayloadMode, SignatureKind, Verifier, anonymous};

#[cfg(test)]
mod tests;
