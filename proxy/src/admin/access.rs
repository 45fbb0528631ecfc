//! Who may call the admin API. Whoever reaches the listener may ask for health; everything else
//! takes a token, a `Host` that is this server's, and no sign of a web page of another origin.
//! Callers of the socket own the store and need nothing.

use super::{
    answer::AdminError,
    console,
    scope::Scope,
    session::{LIFETIME, Opened, Sessions, Sought},
};
use crate::{
    config::ServerConfig,
    engine::check_eject,
    peers::{Ends, Failures, Held},
};
use crypto::{Digest as _, Sha256};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts, uri::Authority};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use std::{net::IpAddr, path::PathBuf, sync::Arc};
use subtle::ConstantTimeEq as _;

/// Where a call comes from.
#[derive(Clone, Copy, Debug)]
pub enum Caller {
    /// The command line over the socket, or in this process: whoever owns the data directory.
    Owner,
    /// The admin listener.
    Network(Ends),
}

/// Where an issuer sends browsers back to: the one request that another site may cause. It carries
/// what this server sealed for that browser.
const COMES_BACK: &str = "/api/v1/oidc/callback";
/// What a browser asks for before it has a session.
const SIGN_IN: [&str; 2] = ["/api/v1/oidc", "/api/v1/oidc/login"];

/// What a request may do, and who it is of, where that is known.
pub(super) type Admitted = (Scope, Option<Arc<str>>);

/// What the admin listener asks of its callers.
pub struct Access {
    tokens: Vec<(Scope, [u8; 32])>,
    metrics_open: bool,
    hosts: Vec<String>,
    eject_roots: Vec<PathBuf>,
    stores: Vec<String>,
    failures: Failures,
    sessions: Sessions,
    tls: bool,
    s3: Value,
}

impl Access {
    /// The rules of a server. `token` is the configured one, or the one in the data directory.
    pub fn new(config: &ServerConfig, token: &SecretString) -> Self {
        let digest = |token: &SecretString| Sha256::digest(token.expose_secret()).into();
        let read = config.admin_read_token.as_ref().map(|token| (Scope::Read, digest(token)));
        let configured = config.admin_token.is_some() || read.is_some();
        Self {
            tokens: [(Scope::Write, digest(token))].into_iter().chain(read).collect(),
            metrics_open: config.admin_listen.ip().is_loopback() && !configured,
            hosts: config.admin_hosts.clone(),
            eject_roots: config.eject_roots.clone(),
            stores: config.stores.clone(),
            failures: Failures::new(config.failures_per_second),
            sessions: Sessions::default(),
            tls: config.admin_tls,
            s3: json!({
                "scheme": if config.tls.is_some() { "https" } else { "http" },
                "port": config.listen.port(),
                "region": config.region,
            }),
        }
    }

    /// Where clients find S3, as the console tells them: scheme, port and region.
    pub(super) fn s3(&self) -> &Value {
        &self.s3
    }

    /// The stores of the configuration, by name: `import` reads from them, `eject` writes to them.
    pub(super) fn stores(&self) -> &[String] {
        &self.stores
    }

    /// Directories that callers of the admin listener may eject into.
    pub(super) fn eject_roots(&self) -> &[PathBuf] {
        &self.eject_roots
    }

    /// Opens a session for whoever shows a token.
    ///
    /// # Errors
    /// 401 for a wrong one, 429 when a peer has had too many of them.
    pub(super) async fn log_in(&self, ends: &Ends, token: &str) -> Result<Opened, AdminError> {
        let Some(scope) = self.scope_of_token(token.as_bytes()) else { return Err(self.refuse(ends).await) };
        self.open(Sought { scope, lifetime: LIFETIME, who: None })
    }

    /// Opens a session.
    ///
    /// # Errors
    /// 500 when there are no random bytes.
    pub(super) fn open(&self, sought: Sought) -> Result<Opened, AdminError> {
        let opened = self.sessions.open(sought, self.tls);
        opened.map_err(|error| AdminError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }

    /// Whether the listener speaks TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.tls
    }

    /// Ends the session of a request.
    pub(super) fn log_out(&self, headers: &HeaderMap) {
        self.sessions.end(headers);
    }

    /// Lets a request in, with what it may do and whose it is, where that is known.
    ///
    /// # Errors
    /// 401 without a token that is known, 403 for a page of another origin or a name that is not
    /// ours, 429 for a peer whose failures are too many, 503 on a connection of the reserve.
    pub(super) async fn admit(&self, caller: Caller, parts: &Parts) -> Result<Admitted, AdminError> {
        let nameless = |scope| Ok((scope, None));
        let Caller::Network(ends) = caller else { return nameless(Scope::Owner) };
        let path = parts.uri.path();
        if matches!(path, "/healthz" | "/readyz") {
            return nameless(Scope::Open);
        }
        if ends.reserve {
            return Err(AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "every connection of this listener is taken"));
        }
        let comes_back = parts.method == Method::GET && path == COMES_BACK;
        self.check_host(&ends, parts)?;
        if !comes_back {
            self.check_origin(parts)?;
        }
        let logs_in = match parts.method {
            Method::POST => path == "/api/v1/session",
            Method::GET => comes_back || SIGN_IN.contains(&path),
            _ => false,
        };
        if logs_in || console::is_file(path) || (path == "/metrics" && self.metrics_open) {
            return nameless(Scope::Open);
        }
        match self.scope_of(&parts.headers) {
            Some(scope) => nameless(scope),
            None => match self.sessions.of(&parts.headers) {
                Some(session) => Ok(session),
                None => Err(self.refuse(&ends).await),
            },
        }
    }

    async fn refuse(&self, ends: &Ends) -> AdminError {
        let error = AdminError::new(StatusCode::UNAUTHORIZED, "the admin token is missing or wrong");
        self.refuse_as(ends, error).await
    }

    /// The error for a caller who may be guessing: late when its peer has many of them, and another
    /// one when there are too many.
    pub(super) async fn refuse_as(&self, ends: &Ends, error: AdminError) -> AdminError {
        match self.failures.hold_back(ends.peer).await {
            Held::Due => error,
            Held::TooMany => AdminError::new(StatusCode::TOO_MANY_REQUESTS, "too many wrong tokens"),
        }
    }

    /// Refuses to eject into a directory that no configuration names, then and when it is opened.
    ///
    /// # Errors
    /// 403.
    pub(super) fn check_eject(&self, parameters: &mut serde_json::Value) -> Result<(), AdminError> {
        let checked = check_eject(&self.eject_roots, parameters);
        checked.map_err(|error| AdminError::new(StatusCode::FORBIDDEN, error.to_string()))
    }

    /// What the token of a request allows.
    fn scope_of(&self, headers: &HeaderMap) -> Option<Scope> {
        let mut shown = headers.get_all(header::AUTHORIZATION).into_iter();
        let (Some(shown), None) = (shown.next(), shown.next()) else { return None };
        self.scope_of_token(shown.as_bytes().strip_prefix(b"Bearer ")?)
    }

    /// What a token allows. Every one is compared, by digest: time tells neither its length nor
    /// which one is close.
    fn scope_of_token(&self, shown: &[u8]) -> Option<Scope> {
        let shown: [u8; 32] = Sha256::digest(shown).into();
        let same = self.tokens.iter().filter(|(_, token)| bool::from(token.ct_eq(&shown)));
        same.map(|(scope, _)| *scope).max()
    }

    /// Refuses requests to a name that somebody else made lead here (rebinding).
    fn check_host(&self, ends: &Ends, parts: &Parts) -> Result<(), AdminError> {
        match host_of(parts).filter(|host| self.is_own(host.host(), ends)) {
            Some(_) => Ok(()),
            None => {
                let why = "the Host of this request is not this server: server.admin_hosts names more";
                Err(AdminError::new(StatusCode::FORBIDDEN, why))
            }
        }
    }

    /// Refuses requests that a browser sends for a page of another origin.
    fn check_origin(&self, parts: &Parts) -> Result<(), AdminError> {
        let refused = |why| Err(AdminError::new(StatusCode::FORBIDDEN, why));
        let Some(host) = host_of(parts) else { return refused("this request names no host") };
        let headers = &parts.headers;
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        let origin = headers.get(header::ORIGIN).map(HeaderValue::as_bytes);
        let same_origin = origin.is_none_or(|origin| {
            let rest = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host.as_str().as_bytes()))
        });
        if !same_origin || !matches!(site, None | Some(b"none" | b"same-origin")) {
            return refused("this request comes from a page of another origin");
        }
        Ok(())
    }

    /// Whether a name or address is this server's: loopback, the address the connection came to, or
    /// configured.
    fn is_own(&self, host: &str, ends: &Ends) -> bool {
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match address.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || ends.local == Some(address.to_canonical()),
            Err(_) => {
                host.eq_ignore_ascii_case("localhost") || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
            }
        }
    }
}

/// The one host that a request names, in its target (HTTP/2) or its header.
fn host_of(parts: &Parts) -> Option<Authority> {
    let mut hosts = parts.headers.get_all(header::HOST).into_iter();
    match (parts.uri.authority(), hosts.next(), hosts.next()) {
        (None, Some(host), None) if !host.as_bytes().contains(&b'@') => Authority::try_from(host.as_bytes()).ok(),
        (Some(target), None, None) => Some(target.clone()),
        (Some(target), Some(host), None) if host.as_bytes() == target.as_str().as_bytes() => Some(target.clone()),
        _ => None,
    }
}

/// Refuses a change whose body is not declared as JSON: forms of web pages cannot declare it.
///
/// # Errors
/// 415.
pub(super) fn check_content_type(parts: &Parts, empty: bool) -> Result<(), AdminError> {
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let declared = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let json = match declared {
        None => empty,
        Some(declared) => {
            let kind = declared.split(|byte| *byte == b';').next().unwrap_or_default();
            kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
        }
    };
    if json {
        return Ok(());
    }
    Err(AdminError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be Content-Type: application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Overrides, ServeConfig};
    use http::Request;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    const READ_TOKEN: &str = "fedcba9876543210fedcba9876543210";

    fn access(config: &str) -> Access {
        let config =
            ServeConfig::from_text(config, "".as_ref(), &Overrides::default(), &Environment::default()).unwrap();
        Access::new(&config.server, &SecretString::from(TOKEN.to_owned()))
    }

    fn parts(method: &str, path: &str, headers: &[(&str, &str)]) -> Parts {
        let request = Request::builder().method(method).uri(path);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    async fn status(access: &Access, path: &str, headers: &[(&str, &str)]) -> Result<Scope, u16> {
        let ends = Ends { peer: Some([127, 0, 0, 1].into()), local: Some([10, 0, 0, 7].into()), reserve: false };
        let admitted = access.admit(Caller::Network(ends), &parts("GET", path, headers)).await;
        admitted.map(|(scope, _)| scope).map_err(|error| error.status.as_u16())
    }

    #[tokio::test]
    async fn a_token_is_asked_for_and_says_what_its_holder_may() {
        let access = access(&format!("[server]\nadmin_read_token = \"{READ_TOKEN}\""));
        let with = |token: &str| [("host", "localhost:9001".to_owned()), ("authorization", format!("Bearer {token}"))];
        for (token, expected) in [
            (TOKEN.to_owned(), Ok(Scope::Write)),
            (READ_TOKEN.to_owned(), Ok(Scope::Read)),
            (TOKEN[1..].to_owned(), Err(401)),
            (format!("{TOKEN}0"), Err(401)),
            (String::new(), Err(401)),
        ] {
            let headers = with(&token);
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!(status(&access, "/api/v1/stats", &headers).await, expected, "{token}");
        }
        let twice = [("host", "localhost"), ("authorization", &format!("Bearer {TOKEN}")), ("authorization", "x")];
        assert_eq!(status(&access, "/api/v1/stats", &twice).await, Err(401));
        assert_eq!(status(&access, "/metrics", &[("host", "localhost")]).await, Err(401));
        assert!(Scope::Read.check(&Method::POST).is_err() && Scope::Read.check(&Method::GET).is_ok());
        assert!(Scope::Write.check(&Method::POST).is_ok());
    }

    #[tokio::test]
    async fn metrics_are_open_on_loopback_while_no_token_is_configured() {
        let host = [("host", "localhost")];
        assert_eq!(status(&access(""), "/metrics", &host).await, Ok(Scope::Open));
        assert_eq!(status(&access(""), "/api/v1/stats", &host).await, Err(401));
        let configured = access(&format!("[server]\nadmin_token = \"{TOKEN}\""));
        assert_eq!(status(&configured, "/metrics", &host).await, Err(401));
        assert_eq!(status(&configured, "/readyz", &[]).await, Ok(Scope::Open), "a probe names any host");
    }

    #[tokio::test]
    async fn pages_of_other_origins_and_foreign_names_are_refused() {
        let access = access("[server]\nadmin_hosts = [\"storage.example\"]");
        for host in ["localhost:9001", "127.0.0.1", "127.8.0.1:9001", "[::1]:9001", "LOCALHOST", "10.0.0.7:9001"] {
            assert_eq!(status(&access, "/", &[("host", host)]).await, Ok(Scope::Open), "{host}");
        }
        assert_eq!(status(&access, "/", &[("host", "Storage.example:9001")]).await, Ok(Scope::Open));
        for host in [
            "0.0.0.0:9001",
            "[::]:9001",
            "10.0.0.8",
            "localhost.evil.example",
            "127.0.0.1.nip.io:9001",
            "a@localhost",
            "",
        ] {
            assert_eq!(status(&access, "/", &[("host", host)]).await, Err(403), "{host}");
        }
        assert_eq!(status(&access, "/", &[]).await, Err(403));
        assert_eq!(status(&access, "/", &[("host", "localhost"), ("host", "localhost")]).await, Err(403));
        for (header, value, expected) in [
            ("origin", "http://localhost:9001", Ok(Scope::Open)),
            ("origin", "http://localhost:9002", Err(403)),
            ("origin", "http://evil.example", Err(403)),
            ("origin", "null", Err(403)),
            ("sec-fetch-site", "same-origin", Ok(Scope::Open)),
            ("sec-fetch-site", "none", Ok(Scope::Open)),
            ("sec-fetch-site", "same-site", Err(403)),
            ("sec-fetch-site", "cross-site", Err(403)),
        ] {
            let headers = [("host", "localhost:9001"), (header, value)];
            assert_eq!(status(&access, "/", &headers).await, expected, "{header}: {value}");
        }
    }

    #[tokio::test]
    async fn another_site_causes_the_end_of_a_sign_in_and_nothing_else() {
        let access = access("");
        let foreign = [("host", "localhost:9001"), ("sec-fetch-site", "cross-site")];
        assert_eq!(status(&access, "/api/v1/oidc/callback?code=a", &foreign).await, Ok(Scope::Open));
        for path in ["/api/v1/oidc/login", "/api/v1/oidc", "/", "/api/v1/oidc/callback/"] {
            assert_eq!(status(&access, path, &foreign).await, Err(403), "{path}");
        }
        let rebound = [("host", "rebound.example"), ("sec-fetch-site", "cross-site")];
        assert_eq!(status(&access, "/api/v1/oidc/callback", &rebound).await, Err(403));
        assert_eq!(status(&access, "/api/v1/oidc/login", &[("host", "localhost")]).await, Ok(Scope::Open));
        let posted = parts("POST", "/api/v1/oidc/callback", &foreign);
        let ends = Ends { peer: Some([127, 0, 0, 1].into()), ..Ends::default() };
        assert_eq!(access.admit(Caller::Network(ends), &posted).await.unwrap_err().status, 403);
    }

    #[tokio::test]
    async fn the_reserve_answers_health_alone_and_the_owner_needs_nothing() {
        let access = access("");
        let reserve = Caller::Network(Ends { reserve: true, ..Ends::default() });
        let request = |path| parts("GET", path, &[("host", "localhost")]);
        assert!(access.admit(reserve, &request("/healthz")).await.is_ok());
        assert_eq!(access.admit(reserve, &request("/metrics")).await.unwrap_err().status, 503);
        assert_eq!(access.admit(Caller::Owner, &request("/api/v1/stats")).await.unwrap(), (Scope::Owner, None));
    }

    #[test]
    fn a_body_that_is_not_declared_as_json_is_refused() {
        let check = |declared: Option<&str>, empty| {
            let headers: Vec<_> = declared.map(|kind| ("content-type", kind)).into_iter().collect();
            check_content_type(&parts("POST", "/api/v1/gc", &headers), empty).is_ok()
        };
        assert!(check(None, true) && check(Some("application/json; charset=utf-8"), false));
        assert!(!check(None, false) && !check(Some("text/plain"), false) && !check(Some("text/plain"), true));
        assert!(!check(Some("application/x-www-form-urlencoded"), false));
    }
}
