//! AWS Signature Version 4: who sent a request, proved over its raw target and every header that
//! means something. Presigned URLs of version 2 where the operator accepts them.

mod canonical;
mod identity;
mod presented;
mod presign_v2;
mod secret;
mod signing;
mod verifier;

pub use identity::{Authenticated, Identity, PayloadMode, SignatureKind};
pub use presented::Presented;
pub use secret::{CredentialStore, NoSecret, SecretKey};
#[cfg(test)]
pub(crate) use signing::SigningKey;
pub use signing::{ChunkSigner, Scope, SigningService};
pub use verifier::{Verifier, anonymous};

#[cfg(test)]
mod tests;
