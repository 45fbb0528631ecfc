//! The status page at `/`: three small files built into the program. It asks the API like anybody
//! else and is told nothing more.

use super::answer::{Answer, text};
use http::{HeaderValue, StatusCode, header};

const PAGE: &str = include_str!("console.html");
const SCRIPT: &str = include_str!("console.js");
const STYLE: &str = include_str!("console.css");

/// Nothing from elsewhere, nothing inline, nobody's frame (C82).
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// One of the page's files.
pub(super) fn file(path: &str) -> Answer {
    let (body, kind) = match path {
        "/console.js" => (SCRIPT, "text/javascript; charset=utf-8"),
        "/console.css" => (STYLE, "text/css; charset=utf-8"),
        _ => (PAGE, "text/html; charset=utf-8"),
    };
    let mut answer = text(StatusCode::OK, body);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    answer
}
