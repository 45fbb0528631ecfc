//! The access log: one line for each request that has ended, among the log's own lines, or as JSON
//! or CLF on its own.

use crate::lines::{LinesOf, LogLines, Sink, Stderr};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use prometheus::IntCounter;
use s3_wire::timestamp;
use serde::{Serialize, Serializer};
use std::{
    fs::{self, File, OpenOptions},
    io,
    net::IpAddr,
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use time::{OffsetDateTime, macros::format_description};

/// What would end a field or a line of CLF, or hide that it was encoded.
const NOT_IN_CLF: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'\\').add(b'%');
/// Most characters of a program's name.
const PROGRAM_CHARS_MAX: usize = 64;

/// A request that has ended: what may be said of it. Nothing in it is a query, a body or a header,
/// but for the first word of `User-Agent`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ended {
    /// When it began, in milliseconds since 1970.
    pub at_ms: u64,
    /// Its id, as the client was told.
    pub request_id: String,
    /// Where it comes from, behind proxies that are trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpAddr>,
    /// The last proxy, when it came through one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The user who signed it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// HTTP's method.
    pub method: String,
    /// HTTP's version, such as `HTTP/1.1`.
    #[serde(skip)]
    pub version: String,
    /// The operation.
    pub op: &'static str,
    /// The bucket.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bucket: String,
    /// The key, unless it has none or logs may not see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether it has a key that is not told.
    #[serde(skip)]
    pub hides_key: bool,
    /// The status; 499 when the client left before it was known.
    pub status: u16,
    /// The error's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// How the object is stored, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<&'static str>,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the answer's body.
    pub bytes_out: u64,
    /// To the end of the signature's check; `None` when it failed.
    #[serde(skip)]
    pub verified: Option<Duration>,
    /// To the decision that it may be done; `None` when it may not.
    #[serde(skip)]
    pub admitted: Option<Duration>,
    /// To the answer's head; `None` when there was none.
    #[serde(rename = "ttfb_ms", serialize_with = "optional_ms", skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<Duration>,
    /// To the end.
    #[serde(rename = "ms", serialize_with = "ms")]
    pub whole: Duration,
    /// The client program: the first product of `User-Agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// `complete`, `cut` or `client gone`.
    pub end: &'static str,
}

fn in_ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

fn ms<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(in_ms(*duration))
}

fn optional_ms<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(in_ms).serialize(serializer)
}

impl Ended {
    /// One line of the log.
    pub(super) fn trace(&self) {
        tracing::info!(
            target: "deltaweir::access",
            request_id = %self.request_id,
            peer = self.peer.map(tracing::field::display),
            via = self.via.map(tracing::field::display),
            user = self.user,
            method = self.method,
            op = self.op,
            bucket = self.bucket,
            key = self.key,
            status = self.status,
            code = self.code,
            form = self.form,
            bytes_in = self.bytes_in,
            bytes_out = self.bytes_out,
            ttfb_ms = self.first_byte.map(in_ms),
            ms = in_ms(self.whole),
            program = self.program,
            end = self.end,
        );
    }

    fn json(&self) -> String {
        let began = timestamp::iso8601(UNIX_EPOCH + Duration::from_millis(self.at_ms));
        let fields = serde_json::to_value(self).unwrap_or_default();
        let mut line = serde_json::Map::from_iter([("at".to_owned(), began.into())]);
        line.extend(fields.as_object().cloned().unwrap_or_default());
        line.remove("at_ms");
        serde_json::Value::Object(line).to_string()
    }

    /// The combined log format of Apache and nginx, and behind it what S3 has more. A referer is
    /// never told.
    fn clf(&self) -> String {
        let or_dash = |text: &str| match text {
            "" => "-".to_owned(),
            text => utf8_percent_encode(text, NOT_IN_CLF).to_string(),
        };
        let peer = self.peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string());
        let mut path = format!("/{}", utf8_percent_encode(&self.bucket, NOT_IN_CLF));
        if let Some(key) = self.key.as_deref().or(self.hides_key.then_some("-")) {
            path.push('/');
            path.extend(utf8_percent_encode(key, NOT_IN_CLF));
        }
        let first_byte = self.first_byte.map_or_else(|| "-".to_owned(), |first| in_ms(first).to_string());
        format!(
            "{peer} - {} [{}] \"{} {path} {}\" {} {} \"-\" \"{}\" {} {} {} {} {} {first_byte} {} {}",
            or_dash(&self.user),
            clf_time(self.at_ms),
            or_dash(&self.method),
            self.version,
            self.status,
            self.bytes_out,
            or_dash(self.program.as_deref().unwrap_or_default()),
            self.request_id,
            self.op,
            self.code.unwrap_or("-"),
            self.form.unwrap_or("-"),
            self.bytes_in,
            in_ms(self.whole),
            self.end.replace(' ', "-"),
        )
    }
}

/// `24/Nov/2026:13:23:28 +0000`.
fn clf_time(at_ms: u64) -> String {
    let format = format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000");
    let at = OffsetDateTime::from(UNIX_EPOCH + Duration::from_millis(at_ms));
    at.format(format).unwrap_or_default()
}

/// The first product of a `User-Agent` (RFC 9110, 10.1.5), such as `aws-cli/2.17.0`; `None` when it
/// begins with something else, or with more than any program is called.
pub(super) fn program(user_agent: &[u8]) -> Option<String> {
    let product = user_agent.split(|byte| *byte == b' ').next()?;
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(byte);
    let fits = (1..=PROGRAM_CHARS_MAX).contains(&product.len()) && product.iter().all(is_token);
    fits.then(|| String::from_utf8_lossy(product).into_owned())
}

/// How lines are written that stand on their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// One JSON object.
    Json,
    /// The combined log format.
    Clf,
}

/// Lines of their own, in a file or on stderr. Requests wait for neither.
pub struct AccessLog {
    format: LineFormat,
    path: Option<PathBuf>,
    lines: LogLines,
}

impl AccessLog {
    /// Opens the file, which is made with mode 0600 when it is not there; stderr without one.
    /// `failures` counts lines that could not be written.
    ///
    /// # Errors
    /// The file cannot be written to.
    pub fn open(format: LineFormat, path: Option<PathBuf>, failures: IntCounter) -> io::Result<Self> {
        let lines = LogLines::start(LinesOf::AccessLog, sink(path.as_ref())?)?;
        lines.count_in(failures);
        Ok(Self { format, path, lines })
    }

    /// Opens the file anew, since the old one may have been moved away; lines go on into the old
    /// one.
    ///
    /// # Errors
    /// It cannot be written to.
    pub fn open_anew(&self) -> io::Result<Sink> {
        sink(self.path.as_ref())
    }

    /// Lines go there from now on.
    pub fn go_on_in(&self, fresh: Sink) {
        self.lines.go_on_in(fresh);
    }

    /// Waits until every line is written, or not longer.
    pub fn settle(&self, patience: Duration) {
        self.lines.settle(patience);
    }

    /// Has a line written. Lines that are lost are counted; the log says when the first is, and how
    /// many were once there is room again.
    pub(super) fn write(&self, ended: &Ended) {
        let line = match self.format {
            LineFormat::Json => ended.json(),
            LineFormat::Clf => ended.clf(),
        } + "\n";
        self.lines.push(line.into_bytes());
    }
}

fn sink(path: Option<&PathBuf>) -> io::Result<Sink> {
    let Some(path) = path else { return Ok(Box::new(Stderr::open()?)) };
    let opened = opened(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    Ok(Box::new(opened))
}

/// Waits for nobody: a pipe that nobody reads yet takes lines, as one does whose reader stalls.
fn opened(path: &Path) -> io::Result<File> {
    let is_pipe = fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    if is_pipe {
        // With a reader of its own the open returns at once, and no write fails for want of one.
        return OpenOptions::new().read(true).write(true).open(path);
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Milliseconds since 1970.
pub(super) fn ms_of(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended() -> Ended {
        Ended {
            at_ms: 1_795_526_608_123,
            request_id: "4D05EAEF5F682042".into(),
            peer: Some([203, 0, 113, 7].into()),
            via: Some([10, 0, 0, 1].into()),
            user: "ci".into(),
            method: "GET".into(),
            version: "HTTP/1.1".into(),
            op: "GetObject",
            bucket: "releases".into(),
            key: Some("a \"b\"\n%c/é".into()),
            status: 200,
            form: Some("delta"),
            bytes_out: 17,
            first_byte: Some(Duration::from_micros(1500)),
            whole: Duration::from_micros(2250),
            program: Some("aws-cli/2.17.0".into()),
            end: "complete",
            ..Ended::default()
        }
    }

    #[test]
    fn a_line_of_clf_is_the_combined_format_whatever_the_key_is() {
        let expected = "203.0.113.7 - ci [24/Nov/2026:13:23:28 +0000] \
                        \"GET /releases/a%20%22b%22%0A%25c/%C3%A9 HTTP/1.1\" 200 17 \"-\" \"aws-cli/2.17.0\" \
                        4D05EAEF5F682042 GetObject - delta 0 1.5 2.25 complete";
        assert_eq!(ended().clf(), expected);
        let gone = Ended { key: None, hides_key: true, first_byte: None, end: "client gone", ..ended() };
        assert!(gone.clf().contains("\"GET /releases/- HTTP/1.1\"") && gone.clf().ends_with(" - 2.25 client-gone"));
        let nobody = Ended { user: String::new(), peer: None, program: None, ..ended() };
        assert!(nobody.clf().starts_with("- - - [") && nobody.clf().contains("\"-\" \"-\""));
    }

    #[test]
    fn a_line_of_json_has_no_empty_fields() {
        let line = ended().json();
        assert!(line.starts_with("{\"at\":\"2026-11-24T13:23:28.123Z\""), "{line}");
        let fields: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&fields["ttfb_ms"], &fields["ms"]), (&1.5.into(), &2.25.into()));
        assert_eq!((&fields["via"], &fields["key"]), (&"10.0.0.1".into(), &"a \"b\"\n%c/é".into()));
        for absent in ["code", "at_ms", "hides_key", "version"] {
            assert!(fields.get(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn a_program_is_the_first_product_and_nothing_that_is_none() {
        let of = |text: &str| program(text.as_bytes());
        assert_eq!(of("aws-cli/2.17.0 md/awscrt#0.20 ua/2.0"), Some("aws-cli/2.17.0".into()));
        assert_eq!(of("Boto3"), Some("Boto3".into()));
        for none in ["", " curl/8", "a\"b/1", "a\tb", "\u{e9}/1", &"x".repeat(65)] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
