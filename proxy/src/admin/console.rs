//! The console: static files built into the program, one for each page. They ask the API like
//! anybody else and are told nothing more.

use super::answer::{Answer, text};
use http::{HeaderValue, StatusCode, header};

/// Nothing from elsewhere, nothing inline, no text that becomes markup, nobody's frame (C82).
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

macro_rules! files {
    ($($name:literal)*) => {
        &[$((concat!("/console/", $name), include_str!(concat!("console/", $name)))),*]
    };
}

/// Every file of the console, by its path. `/` is the first.
const FILES: &[(&str, &str)] = files! {
    "index.html"
    "icon.svg"
    "style.css"
    "app.js"
    "api.js"
    "chart.js"
    "dom.js"
    "estimate.js"
    "quota.js"
    "s3.js"
    "tester.js"
    "wizard.js"
    "words.js"
    "pages/adopt.js"
    "pages/audit.js"
    "pages/blob.js"
    "pages/buckets.js"
    "pages/explain.js"
    "pages/jobs.js"
    "pages/login.js"
    "pages/logs.js"
    "pages/object.js"
    "pages/objects.js"
    "pages/overview.js"
    "pages/recovery.js"
    "pages/requests.js"
    "pages/users.js"
};

/// Whether a path is one of the console's.
pub(super) fn is_file(path: &str) -> bool {
    content(path).is_some()
}

/// One of the console's files.
pub(super) fn file(path: &str) -> Option<Answer> {
    let mut answer = text(StatusCode::OK, content(path)?);
    let kind = match path.rsplit('.').next() {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/html; charset=utf-8",
    };
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Some(answer)
}

fn content(path: &str) -> Option<&'static str> {
    let path = if path == "/" { "/console/index.html" } else { path };
    FILES.iter().find(|(name, _)| *name == path).map(|(_, content)| *content)
}
