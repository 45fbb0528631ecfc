//! Cross-origin resource sharing: a bucket's rules, which of them a browser's request meets, and
//! the headers that answer it.
//!
//! Source: "Configuring cross-origin resource sharing" (Amazon S3 User Guide), PutBucketCors (API
//! Reference), the Fetch standard's CORS protocol.

use crate::{
    error::{ErrorCode, Result, S3Error},
    headers::decimal,
    headers::single,
    xml::{
        Document, XmlWriter,
        reader::Elements,
        request::{malformed, set_once},
    },
};
use http::{HeaderMap, HeaderValue, header};

/// The most rules of a bucket.
const RULES_MAX: usize = 100;
const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "HEAD"];

/// The rules of one bucket, in order: the first that a request meets decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorsConfiguration {
    /// 1–100 rules.
    pub rules: Vec<CorsRule>,
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorsRule {
    /// Its name, for people.
    pub id: Option<String>,
    /// Origins, each with at most one `*`.
    pub allowed_origins: Vec<String>,
    /// `GET`, `PUT`, `POST`, `DELETE`, `HEAD`.
    pub allowed_methods: Vec<String>,
    /// Request headers, each with at most one `*`.
    pub allowed_headers: Vec<String>,
    /// Answer headers that scripts may read.
    pub expose_headers: Vec<String>,
    /// How long a browser may remember a preflight's answer, in seconds. S3 takes negative ones; to
    /// browsers they mean not at all.
    pub max_age_seconds: Option<i32>,
}

impl CorsConfiguration {
    /// Reads the document.
    ///
    /// # Errors
    /// `MalformedXML`; `InvalidRequest` for a method or a wildcard that S3 does not take.
    pub fn parse(document: &[u8]) -> Result<Self> {
        let configuration = parse_cors(document)?;
        configuration.rules.iter().try_for_each(CorsRule::check)?;
        Ok(configuration)
    }

    /// Reads a document that was checked when it came, perhaps by a release that took more.
    ///
    /// # Errors
    /// `MalformedXML`.
    pub fn kept(document: &[u8]) -> Result<Self> {
        parse_cors(document)
    }

    /// The headers of the answer to a preflight.
    ///
    /// # Errors
    /// `BadRequest` without an origin or a method; `AccessForbidden` when no rule allows the
    /// request.
    pub fn preflight(configuration: Option<&Self>, headers: &HeaderMap) -> Result<HeaderMap> {
        let bad = |message: String| S3Error::with_message(ErrorCode::BadRequest, message);
        let origin = single(headers, "origin")?.filter(|origin| !origin.is_empty());
        let origin = origin.ok_or_else(|| bad("Insufficient information. Origin request header needed.".to_owned()))?;
        let method = single(headers, "access-control-request-method")?.unwrap_or("null");
        if !METHODS.contains(&method) {
            return Err(bad(format!("Invalid Access-Control-Request-Method: {method}")));
        }
        let asked = single(headers, "access-control-request-headers")?.unwrap_or_default();
        if let Some(name) = asked.split(',').find(|name| !name.trim_matches([' ', '\t']).bytes().all(is_token)) {
            return Err(bad(format!("Access-Control-Request-Headers \"{name}\" contains invalid character.")));
        }
        let asked = names_in(asked);
        let forbidden = |message: &'static str| {
            S3Error::with_message(ErrorCode::AccessForbidden, message)
                .field("Method", method)
                .field("ResourceType", "OBJECT")
        };
        let configuration =
            configuration.ok_or_else(|| forbidden("CORSResponse: CORS is not enabled for this bucket."))?;
        let rule = configuration.rule_for(origin, method, &asked).ok_or_else(|| {
            forbidden(
                "CORSResponse: This CORS request is not allowed. This is usually because the evalution of Origin, request method / \
                 Access-Control-Request-Method or Access-Control-Request-Headers are not whitelisted by the resource's CORS spec.",
            )
        })?;
        Ok(rule.answer(origin, &asked))
    }

    /// The headers that let a script read the answer to a request; none when no rule allows it.
    /// A request that names a method of its own in `Access-Control-Request-Method` is held against
    /// that one, as S3 does, and one with `Access-Control-Request-Headers` against these; browsers
    /// send them in a preflight alone.
    pub fn answer(&self, origin: &str, method: &str, headers: &HeaderMap) -> HeaderMap {
        let named = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD).and_then(|named| named.to_str().ok());
        let method = named.unwrap_or(method);
        let asked = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).and_then(|asked| asked.to_str().ok());
        let asked = names_in(asked.unwrap_or_default());
        self.rule_for(origin, method, &asked).map(|rule| rule.answer(origin, &asked)).unwrap_or_default()
    }

    /// The first rule that allows all of a request.
    fn rule_for(&self, origin: &str, method: &str, asked: &[String]) -> Option<&CorsRule> {
        let allows =
            |rule: &&CorsRule| rule.allows(origin, method) && asked.iter().all(|name| rule.allows_header(name));
        self.rules.iter().find(allows)
    }
}

impl CorsRule {
    fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(S3Error::with_message(ErrorCode::InvalidRequest, message));
        if let Some(method) = self.allowed_methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
            return invalid(format!("Found unsupported HTTP method in CORS config. Unsupported method is {method}"));
        }
        for (name, patterns) in [("AllowedOrigin", &self.allowed_origins), ("AllowedHeader", &self.allowed_headers)] {
            if let Some(pattern) = patterns.iter().find(|pattern| pattern.matches('*').count() > 1) {
                return invalid(format!("{name} \"{pattern}\" can not have more than one wildcard."));
            }
        }
        for (kind, names) in [("AllowedHeader", &self.allowed_headers), ("ExposeHeader", &self.expose_headers)] {
            if let Some(name) = names.iter().find(|name| !name.bytes().all(is_token)) {
                return invalid(format!("{kind} \"{name}\" contains invalid character."));
            }
        }
        match self.expose_headers.iter().find(|name| name.contains('*')) {
            Some(name) => invalid(format!(
                "ExposeHeader \"{name}\" contains wildcard. We currently do not support wildcard for ExposeHeader."
            )),
            None => Ok(()),
        }
    }

    fn allows(&self, origin: &str, method: &str) -> bool {
        self.allowed_origins.iter().any(|pattern| matches(pattern, origin))
            && self.allowed_methods.iter().any(|allowed| allowed == method)
    }

    fn allows_header(&self, name: &str) -> bool {
        self.allowed_headers.iter().any(|pattern| matches(&pattern.to_ascii_lowercase(), name))
    }

    /// The headers of an answer to a request that names these headers.
    fn answer(&self, origin: &str, asked: &[String]) -> HeaderMap {
        let mut answer = self.headers(origin);
        if !asked.is_empty() {
            set(&mut answer, header::ACCESS_CONTROL_ALLOW_HEADERS, &asked.join(", "));
        }
        answer
    }

    fn headers(&self, origin: &str) -> HeaderMap {
        let mut answer = HeaderMap::new();
        if self.allowed_origins.iter().any(|allowed| allowed == "*") {
            set(&mut answer, header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        } else {
            set(&mut answer, header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            if self.allowed_origins.iter().any(|allowed| names_a_site(allowed) && matches(allowed, origin)) {
                set(&mut answer, header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
            }
        }
        set(&mut answer, header::ACCESS_CONTROL_ALLOW_METHODS, &self.allowed_methods.join(", "));
        if !self.expose_headers.is_empty() {
            set(&mut answer, header::ACCESS_CONTROL_EXPOSE_HEADERS, &self.expose_headers.join(", "));
        }
        if let Some(seconds) = self.max_age_seconds {
            answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from(seconds));
        }
        set(&mut answer, header::VARY, "Origin, Access-Control-Request-Headers, Access-Control-Request-Method");
        answer
    }
}

/// The names of `Access-Control-Request-Headers`.
fn names_in(asked: &str) -> Vec<String> {
    asked.split(',').map(|name| name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty()).collect()
}

/// Whether a header's name may have this character.
///
/// Source: RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a pattern of origins names somebody: what stands behind its `*` is a part of a host, so
/// that not just anybody fits it (C81).
fn names_a_site(pattern: &str) -> bool {
    pattern.split_once('*').is_none_or(|(_, behind)| behind.contains('.') && !behind.contains('*'))
}

/// Whether a text meets a pattern with at most one `*`.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end),
    }
}

/// What cannot be sent is left out: a browser then refuses, which is safe.
fn set(headers: &mut HeaderMap, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

impl Document for CorsConfiguration {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("CORSConfiguration");
        for rule in &self.rules {
            xml.open("CORSRule");
            xml.optional("ID", rule.id.as_deref());
            let lists = [
                ("AllowedOrigin", &rule.allowed_origins),
                ("AllowedMethod", &rule.allowed_methods),
                ("AllowedHeader", &rule.allowed_headers),
                ("ExposeHeader", &rule.expose_headers),
            ];
            for (name, values) in lists {
                values.iter().for_each(|value| xml.text(name, value));
            }
            if let Some(seconds) = rule.max_age_seconds {
                xml.value("MaxAgeSeconds", seconds);
            }
            xml.close();
        }
        xml.close();
    }
}

/// Reads a `CORSConfiguration`.
///
/// # Errors
/// `MalformedXML`, also for none or more than 100 rules, a rule without an origin or a method, and
/// elements S3 does not have.
fn parse_cors(document: &[u8]) -> Result<CorsConfiguration> {
    let mut rules: Vec<CorsRule> = Vec::new();
    Elements::parse(document, "CORSConfiguration", |xml| {
        xml.children(|xml, name| match name {
            "CORSRule" if rules.len() < RULES_MAX => {
                rules.push(cors_rule(xml)?);
                Ok(())
            }
            _ => Err(malformed()),
        })
    })?;
    if rules.is_empty() { Err(malformed()) } else { Ok(CorsConfiguration { rules }) }
}

/// A decimal number, with a sign or without.
fn whole_number(text: &str) -> Option<i32> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let value = decimal(digits).and_then(|value| i64::try_from(value).ok())?;
    i32::try_from(if digits.len() < text.len() { -value } else { value }).ok()
}

fn cors_rule(xml: &mut Elements<'_>) -> Result<CorsRule> {
    let mut rule = CorsRule::default();
    xml.children(|xml, name| {
        match name {
            "AllowedOrigin" => rule.allowed_origins.push(xml.text()?),
            "AllowedMethod" => rule.allowed_methods.push(xml.text()?),
            "AllowedHeader" => rule.allowed_headers.push(xml.text()?),
            "ExposeHeader" => rule.expose_headers.push(xml.text()?),
            "ID" => set_once(&mut rule.id, xml.text()?)?,
            "MaxAgeSeconds" => {
                let seconds = whole_number(xml.text()?.trim());
                set_once(&mut rule.max_age_seconds, seconds.ok_or_else(malformed)?)?;
            }
            _ => return Err(malformed()),
        }
        Ok(())
    })?;
    if rule.allowed_origins.is_empty() || rule.allowed_methods.is_empty() { Err(malformed()) } else { Ok(rule) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    const RULES: &str = "<CORSConfiguration>\
        <CORSRule><AllowedOrigin>https://*.example.com</AllowedOrigin><AllowedMethod>PUT</AllowedMethod><AllowedMethod>GET</AllowedMethod>\
        <AllowedHeader>x-amz-*</AllowedHeader><AllowedHeader>Content-Type</AllowedHeader><ExposeHeader>ETag</ExposeHeader>\
        <MaxAgeSeconds>3000</MaxAgeSeconds><ID>one</ID></CORSRule>\
        <CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>HEAD</AllowedMethod></CORSRule></CORSConfiguration>";

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn a_document_is_read_and_written() {
        let configuration = CorsConfiguration::parse(RULES.as_bytes()).unwrap();
        assert_eq!(configuration.rules.len(), 2);
        assert_eq!(CorsConfiguration::parse(&configuration.to_bytes()).unwrap(), configuration);
        let rule = |inside: &str| format!("<CORSConfiguration><CORSRule>{inside}</CORSRule></CORSConfiguration>");
        let origin = "<AllowedOrigin>*</AllowedOrigin>";
        let method = "<AllowedMethod>GET</AllowedMethod>";
        for (document, code) in [
            ("<CORSConfiguration/>".to_owned(), ErrorCode::MalformedXML),
            (rule(origin), ErrorCode::MalformedXML),
            (rule(method), ErrorCode::MalformedXML),
            (rule(&format!("{origin}{method}<MaxAgeSeconds>--1</MaxAgeSeconds>")), ErrorCode::MalformedXML),
            (rule(&format!("{origin}{method}<MaxAgeSeconds>2147483648</MaxAgeSeconds>")), ErrorCode::MalformedXML),
            (rule(&format!("{origin}{method}<Colour>red</Colour>")), ErrorCode::MalformedXML),
            (rule(&format!("{origin}<AllowedMethod>PATCH</AllowedMethod>")), ErrorCode::InvalidRequest),
            (rule(&format!("<AllowedOrigin>*.*</AllowedOrigin>{method}")), ErrorCode::InvalidRequest),
            (rule(&format!("{origin}{method}<AllowedHeader>*-*</AllowedHeader>")), ErrorCode::InvalidRequest),
            (rule(&format!("{origin}{method}<ExposeHeader>x-*</ExposeHeader>")), ErrorCode::InvalidRequest),
        ] {
            assert_eq!(CorsConfiguration::parse(document.as_bytes()).unwrap_err().code(), code, "{document}");
        }
        for age in [-1, i32::MIN, 0] {
            let document = rule(&format!("{origin}{method}<MaxAgeSeconds>{age}</MaxAgeSeconds>"));
            let read = CorsConfiguration::parse(document.as_bytes()).unwrap();
            assert_eq!(read.rules[0].max_age_seconds, Some(age));
            let answer = read.answer("https://a.test", "GET", &HeaderMap::new());
            assert_eq!(answer[header::ACCESS_CONTROL_MAX_AGE], age.to_string());
        }
        let many = format!(
            "<CORSConfiguration>{}</CORSConfiguration>",
            format!("<CORSRule>{origin}{method}</CORSRule>").repeat(101)
        );
        assert_eq!(CorsConfiguration::parse(many.as_bytes()).unwrap_err().code(), ErrorCode::MalformedXML);
    }

    #[test]
    fn a_preflight_is_answered_by_the_first_rule_that_allows_all_of_it() {
        let configuration = CorsConfiguration::parse(RULES.as_bytes()).unwrap();
        let ask = |pairs: &[(&'static str, &'static str)]| {
            CorsConfiguration::preflight(Some(&configuration), &headers(pairs)).map_err(|error| error.code())
        };
        let put = [
            ("origin", "https://www.example.com"),
            ("access-control-request-method", "PUT"),
            ("access-control-request-headers", "X-Amz-Date, content-type"),
        ];
        let answer = ask(&put).unwrap();
        assert_eq!(answer[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://www.example.com");
        assert_eq!(answer[header::ACCESS_CONTROL_ALLOW_METHODS], "PUT, GET");
        assert_eq!(answer[header::ACCESS_CONTROL_ALLOW_HEADERS], "x-amz-date, content-type");
        assert_eq!(answer[header::ACCESS_CONTROL_MAX_AGE], "3000");
        assert_eq!(answer[header::ACCESS_CONTROL_EXPOSE_HEADERS], "ETag");
        let head = ask(&[("origin", "https://elsewhere.test"), ("access-control-request-method", "HEAD")]).unwrap();
        assert_eq!(head[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
        assert!(!head.contains_key(header::ACCESS_CONTROL_ALLOW_CREDENTIALS));
        for refused in [
            &[("origin", "https://www.example.org"), put[1]][..],
            &[("origin", "https://example.com"), put[1]],
            &[put[0], ("access-control-request-method", "DELETE")],
            &[put[0], put[1], ("access-control-request-headers", "x-other")],
        ] {
            assert_eq!(ask(refused).unwrap_err(), ErrorCode::AccessForbidden, "{refused:?}");
        }
        for bad in [&[put[1]][..], &[put[0]], &[put[0], ("access-control-request-method", "BREW")]] {
            assert_eq!(ask(bad).unwrap_err(), ErrorCode::BadRequest, "{bad:?}");
        }
        assert_eq!(CorsConfiguration::preflight(None, &headers(&put)).unwrap_err().code(), ErrorCode::AccessForbidden);
    }

    #[test]
    fn an_origin_that_is_only_reflected_gets_no_credentials() {
        for pattern in ["https://*", "http*", "*s://*", "https://www.*", "https://*:8443"] {
            let document = format!(
                "<CORSConfiguration><CORSRule><AllowedOrigin>{pattern}</AllowedOrigin>\
                 <AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>"
            );
            let Ok(configuration) = CorsConfiguration::parse(document.as_bytes()) else { continue };
            let answer = configuration.answer("https://www.evil.test:8443", "GET", &HeaderMap::new());
            assert!(!answer.contains_key(header::ACCESS_CONTROL_ALLOW_CREDENTIALS), "{pattern}");
        }
    }

    #[test]
    fn an_answer_says_nothing_to_an_origin_that_no_rule_allows() {
        let configuration = CorsConfiguration::parse(RULES.as_bytes()).unwrap();
        assert!(configuration.answer("https://evil.test", "GET", &HeaderMap::new()).is_empty());
        assert_eq!(
            configuration.answer("https://a.example.com", "GET", &HeaderMap::new())
                [header::ACCESS_CONTROL_ALLOW_CREDENTIALS],
            "true"
        );
    }
}
