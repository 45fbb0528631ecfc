//! The configuration of sign-in by OpenID Connect.

use super::{error::ConfigError, modes::Holds, reader::Reader};
use crate::webhooks::is_nowhere;
use reqwest::{Certificate, Url};
use secrecy::SecretString;
use std::{collections::BTreeSet, net::IpAddr, time::Duration};

/// Who vouches for operators of the console, and which of them may do what.
#[derive(Clone)]
pub struct OidcConfig {
    /// The issuer, as its tokens name it.
    pub issuer: String,
    /// What this server is called there.
    pub client_id: String,
    /// The secret of that client, if it has one.
    pub client_secret: Option<SecretString>,
    /// Where the issuer sends browsers back to.
    pub redirect_uri: String,
    /// Scopes that are asked for besides `openid`.
    pub scopes: Vec<String>,
    /// The claim that says what somebody is; dots lead into objects.
    pub claim: String,
    /// Values of the claim whose holders may change things.
    pub write: BTreeSet<String>,
    /// Values of the claim whose holders may look.
    pub read: BTreeSet<String>,
    /// How long a session lasts.
    pub session_lifetime: Duration,
    /// What the console calls it.
    pub name: String,
    /// Who may sign the issuer's certificate; empty: whom this machine trusts.
    pub authorities: Vec<Certificate>,
}

/// Where the issuer sends browsers back to, behind the console's address.
const CALLBACK: &str = "/api/v1/oidc/callback";

impl Reader<'_> {
    /// Sign-in by OpenID Connect, where the file has it.
    pub(super) fn oidc(&self) -> Result<Option<OidcConfig>, ConfigError> {
        let Some(oidc) = &self.file.oidc else { return Ok(None) };
        let issuer = Url::parse(&oidc.issuer).ok();
        if !issuer.as_ref().is_some_and(|url| is_trustworthy(url) && url.query().is_none() && url.fragment().is_none())
        {
            return Err(ConfigError::at("oidc.issuer", "expected an https:// URL (http:// on loopback alone)"));
        }
        if oidc.client_id.is_empty() {
            return Err(ConfigError::at("oidc.client_id", "expected what the issuer calls this server"));
        }
        let console = Url::parse(&oidc.console_url).ok().filter(|url| is_trustworthy(url) && url.path() == "/");
        let console = console.filter(|url| url.query().is_none() && url.fragment().is_none());
        let console = console.ok_or_else(|| {
            let expected = "expected where browsers find the console, such as https://storage.example:9001";
            ConfigError::at("oidc.console_url", expected)
        })?;
        let host = console.host_str().unwrap_or_default();
        let is_known = host == "localhost" || literal(&console).is_some();
        if !is_known && !self.file.server.admin_hosts.iter().any(|own| own.eq_ignore_ascii_case(host)) {
            let message = format!("{host:?} is not in server.admin_hosts: its requests would be refused");
            return Err(ConfigError::at("oidc.console_url", message));
        }
        if oidc.write.is_empty() && oidc.read.is_empty() {
            return Err(ConfigError::at("oidc.write", "nobody may sign in: name values of the claim in write or read"));
        }
        let lifetime = oidc.session_lifetime.0;
        if !(Duration::from_secs(60)..=Duration::from_secs(24 * 3600)).contains(&lifetime) {
            return Err(ConfigError::at("oidc.session_lifetime", "expected \"1m\" to \"24h\""));
        }
        let secret = oidc.client_secret.as_ref();
        Ok(Some(OidcConfig {
            issuer: oidc.issuer.clone(),
            client_id: oidc.client_id.clone(),
            client_secret: secret.map(|text| self.secret("oidc.client_secret", text)).transpose()?,
            redirect_uri: format!("{}{CALLBACK}", console.as_str().trim_end_matches('/')),
            scopes: oidc.scopes.clone(),
            claim: oidc.claim.clone(),
            write: oidc.write.clone(),
            read: oidc.read.clone(),
            session_lifetime: lifetime,
            name: oidc.name.clone(),
            authorities: self.issuer_authorities()?,
        }))
    }

    fn issuer_authorities(&self) -> Result<Vec<Certificate>, ConfigError> {
        let Some(path) = self.file.oidc.as_ref().and_then(|oidc| oidc.ca_file.as_ref()) else { return Ok(Vec::new()) };
        let path = self.directory.join(path);
        self.modes.check("oidc.ca_file", &path, Holds::Settings)?;
        let wrong = |why: String| ConfigError::at("oidc.ca_file", format!("{}: {why}", path.display()));
        let pem = std::fs::read(&path).map_err(|error| wrong(error.to_string()))?;
        let found = Certificate::from_pem_bundle(&pem).map_err(|error| wrong(error.to_string()))?;
        if found.is_empty() {
            return Err(wrong("there is no certificate in it".into()));
        }
        Ok(found)
    }
}

/// Whether what is said there is between this server and its peer: `https`, or `http` on loopback.
/// An address of this machine's own link is nobody's, whatever the scheme.
pub(crate) fn is_trustworthy(url: &Url) -> bool {
    let address = literal(url);
    let is_loopback = url.host_str() == Some("localhost") || address.is_some_and(|address| address.is_loopback());
    let speaks_safely = url.scheme() == "https" || (url.scheme() == "http" && is_loopback);
    let is_bare = url.has_host() && url.username().is_empty() && url.password().is_none();
    speaks_safely && is_bare && !address.is_some_and(is_nowhere)
}

fn literal(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_matches(['[', ']']).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_spoken_to_in_secret_and_is_not_of_this_machines_own_link() {
        let trusted = |text: &str| is_trustworthy(&Url::parse(text).unwrap());
        for good in ["https://id.example/realms/a", "https://10.0.0.1", "http://127.0.0.1:8080/a", "http://[::1]:1"] {
            assert!(trusted(good), "{good}");
        }
        for bad in [
            "http://id.example",
            "http://10.0.0.1",
            "https://169.254.169.254/latest",
            "https://[fe80::1]/",
            "https://0.0.0.0",
            "ftp://127.0.0.1",
            "https://user@id.example",
        ] {
            assert!(!trusted(bad), "{bad}");
        }
    }
}
