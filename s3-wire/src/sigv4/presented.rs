//! The signature a request presents, parsed and checked as far as it can be without the secret.

/// What a signed request claims, before anything of it is believed.
#[derive(Clone, Debug)]
pub struct Presented {
    /// The access key named.
    pub access_key_id: String,
    /// The session token sent, if any.
    pub session_token: Option<String>,
}
