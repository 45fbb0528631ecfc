//! AWS Signature Version 4: who sent a request, proved over its raw target and every header that
//! means something. Version 2, in presigned URLs and in the header, where the operator accepts it.

mod canonical;
mod header_v2;
mod identity;
mod outgoing;
mod presented;
mod presign_v2;
mod secret;
mod signing;
mod verifier;

pub use identity::{Authenticated, Identity, PayloadMode, SignatureKind};
pub use outgoing::Sender;
pub use presented::Presented;
pub use secret::{CredentialStore, NoSecret, SecretKey};
#[cfg(test)]
pub(crate) use signing::SigningKey;
pub use signing::{ChunkSigner, Scope, SigningService};
pub use verifier::{Verifier, anonymous};

#[cfg(test)]
mod tests;
