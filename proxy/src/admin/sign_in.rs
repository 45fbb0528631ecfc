//! The console's sign-in by OpenID Connect: what begins one, what the issuer sends the browser
//! back to, and what a page makes a session of.

use super::{
    AdminService,
    access::Access,
    answer::{AdminError, Answer, failed, text},
    claims::{COOKIES, cookie},
    scope::Scope,
    session::{Opened, Sought},
};
use crate::{
    oidc::{Oidc, SignInError},
    peers::Ends,
};
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use s3_wire::Query;
use serde_json::{Value, json};
use std::{sync::Arc, time::SystemTime};

/// The page that the issuer sends browsers back to. It leads on by itself, so that what follows is
/// asked for by a page of this origin.
const PAGE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>deltaweir</title>\
    <meta http-equiv=\"refresh\" content=\"0;url=/#/login?code=CODE\"><a href=\"/#/login?code=CODE\">Go on</a></html>\n";
/// Nothing runs in that page, and nothing is loaded.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl AdminService {
    /// Lets people sign in by OpenID Connect from now on. The first issuer stays.
    pub fn sign_in_by(&self, oidc: Arc<Oidc>) {
        self.oidc.get_or_init(|| oidc);
    }

    /// Whether there is a sign-in besides the token, and what it is called.
    pub(super) fn sign_in_offer(&self) -> Value {
        let name = self.oidc.get().map(|oidc| oidc.name().to_owned());
        json!({ "enabled": name.is_some(), "name": name })
    }

    /// Sends a browser to the issuer.
    pub(super) async fn begin_sign_in(&self) -> Answer {
        let begun = async {
            let (access, oidc) = self.sign_in_parts()?;
            let (url, sealed) = oidc.begin(SystemTime::now()).await.map_err(refusal)?;
            let location = HeaderValue::from_str(url.as_str());
            let location = location.map_err(|error| AdminError::new(StatusCode::BAD_GATEWAY, error.to_string()))?;
            let mut answer = text(StatusCode::FOUND, "");
            answer.headers_mut().insert(header::LOCATION, location);
            answer.headers_mut().insert(header::SET_COOKIE, cookie(access, &sealed, 600));
            Ok(answer)
        };
        begun.await.unwrap_or_else(|error: AdminError| failed(&error))
    }

    /// Takes a browser back from the issuer.
    pub(super) async fn end_sign_in(&self, ends: Ends, parts: &Parts) -> Answer {
        match self.signed_in(parts).await {
            Ok(code) => {
                let mut answer = text(StatusCode::OK, PAGE.replace("CODE", &code));
                let headers = answer.headers_mut();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
                headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
                headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
                answer
            }
            Err(error) => failed(&self.held_back(ends, error).await),
        }
    }

    async fn signed_in(&self, parts: &Parts) -> Result<String, AdminError> {
        let (_, oidc) = self.sign_in_parts()?;
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let query = query.map_err(|error| AdminError::invalid(error.message().to_owned()))?;
        let flow = oidc.resume(&carried(&parts.headers), SystemTime::now()).map_err(refusal)?;
        if query.get("state") != Some(&flow.state) {
            return Err(refusal(SignInError::Refused("state is of another sign-in".into())));
        }
        if let Some(error) = query.get("error") {
            let word = error.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(64).collect::<String>();
            return Err(refusal(SignInError::Refused(format!("the issuer refused: {word}"))));
        }
        let code = query.get("code").filter(|code| !code.is_empty());
        let code = code.ok_or_else(|| refusal(SignInError::Refused("there is no code".into())))?;
        let who = oidc.finish(&flow, code, query.get("iss")).await.map_err(refusal)?;
        let left = self.claims.leave(flow.state.clone(), who);
        left.map_err(|error| AdminError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }

    /// A session for whoever signed in with this browser and shows the code that its page has.
    pub(super) async fn claim_sign_in(
        &self,
        ends: Ends,
        headers: &HeaderMap,
        code: &str,
    ) -> Result<Opened, AdminError> {
        let (access, oidc) = self.sign_in_parts()?;
        let flow = oidc.resume(&carried(headers), SystemTime::now()).ok();
        let Some(who) = flow.and_then(|flow| self.claims.claim(code, &flow.state)) else {
            let error = refusal(SignInError::Refused("this sign-in has ended, or began in another browser".into()));
            return Err(self.held_back(ends, error).await);
        };
        let scope = if who.may_write { Scope::Write } else { Scope::Read };
        access.open(Sought { scope, lifetime: oidc.session_lifetime(), who: Some(format!("oidc:{}", who.name)) })
    }

    /// An error for a caller who may be guessing: late when there are many of them.
    async fn held_back(&self, ends: Ends, error: AdminError) -> AdminError {
        match (&self.access, error.status) {
            (Some(access), StatusCode::UNAUTHORIZED) => access.refuse_as(&ends, error).await,
            _ => error,
        }
    }

    fn sign_in_parts(&self) -> Result<(&Access, &Oidc), AdminError> {
        match (&self.access, self.oidc.get()) {
            (Some(access), Some(oidc)) => Ok((access, oidc)),
            _ => Err(AdminError::invalid("nobody signs in by OpenID Connect here: there is no [oidc]")),
        }
    }
}

/// What a browser carries; empty when it carries nothing, or two.
fn carried(headers: &HeaderMap) -> String {
    let pairs = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut found = pairs.filter(|(name, _)| COOKIES.contains(name)).map(|(_, value)| value);
    match (found.next(), found.next()) {
        (Some(carried), None) => carried.to_owned(),
        _ => String::new(),
    }
}

fn refusal(error: SignInError) -> AdminError {
    match error {
        SignInError::Unavailable(why) => {
            tracing::warn!(why, "sign-in does not work");
            AdminError::new(StatusCode::BAD_GATEWAY, "the issuer cannot be asked: the server's log says why")
        }
        SignInError::Refused(why) => AdminError::new(StatusCode::UNAUTHORIZED, why),
        SignInError::NoRole(name) => AdminError::new(
            StatusCode::FORBIDDEN,
            format!("{name} has no role here: oidc.write and oidc.read name them"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cookie_counts_and_two_are_none() {
        let headers = |cookie: &'static str| HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static(cookie))]);
        assert_eq!(carried(&headers("a=b; deltaweir-sign-in=x; c=d")), "x");
        assert_eq!(carried(&headers("deltaweir-sign-in=x; __Host-deltaweir-sign-in=y")), "");
        assert_eq!(carried(&headers("a=b")), "");
    }
}
