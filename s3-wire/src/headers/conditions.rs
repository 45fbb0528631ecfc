//! `If-*`, with the precedence of RFC 9110 §13.2.2.

use crate::{
    error::{ErrorCode, Result, S3Error},
    etag::ETag,
    headers::{decimal, given, is_given, single},
    timestamp::{parse_http_date, parse_iso8601},
};
use http::HeaderMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// The most tags of one header.
const TAGS_MAX: usize = 64;

/// A list of tags or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TagList {
    /// `*`
    Any,
    /// Tags, with whether they are weak.
    Tags(Vec<(bool, ETag)>),
}

impl TagList {
    fn from_headers(headers: &HeaderMap, name: &'static str) -> Result<Option<Self>> {
        let invalid = || S3Error::invalid_argument(name, "", "The list of entity tags is not valid.");
        let mut tags = Vec::new();
        let mut any = false;
        for value in given(headers, name) {
            let mut rest = std::str::from_utf8(value.as_bytes()).map_err(|_| invalid())?.trim();
            while !rest.is_empty() {
                let (tag, after) = next_tag(rest).ok_or_else(invalid)?;
                match tag {
                    None => any = true,
                    Some(tag) => tags.push(tag),
                }
                if tags.len() > TAGS_MAX {
                    return Err(invalid());
                }
                rest = after;
            }
        }
        match (any, tags.is_empty()) {
            (true, true) => Ok(Some(Self::Any)),
            (false, false) => Ok(Some(Self::Tags(tags))),
            (false, true) if !is_given(headers, name) => Ok(None),
            _ => Err(invalid()),
        }
    }

    /// Strong comparison: what `If-Match` asks for.
    fn has_strongly(&self, etag: &ETag) -> bool {
        match self {
            Self::Any => true,
            Self::Tags(tags) => tags.iter().any(|(weak, tag)| !weak && tag == etag),
        }
    }

    /// Weak comparison: what `If-None-Match` asks for.
    fn has(&self, etag: &ETag) -> bool {
        match self {
            Self::Any => true,
            Self::Tags(tags) => tags.iter().any(|(_, tag)| tag == etag),
        }
    }
}

/// A tag with whether it is weak; `None` is `*`.
type Tag = Option<(bool, ETag)>;

/// The first tag of a list and what follows its comma. Like S3, takes tags without quotes too.
fn next_tag(list: &str) -> Option<(Tag, &str)> {
    let (weak, text) = match list.strip_prefix("W/") {
        Some(text) => (true, text),
        None => (false, list),
    };
    let (tag, after) = match text.strip_prefix('"') {
        Some(quoted) => {
            let (tag, after) = quoted.split_once('"')?;
            (Some((weak, ETag::from_wire(tag))), after)
        }
        None => {
            let end = text.find(',').unwrap_or(text.len());
            let (tag, after) = text.split_at(end);
            match tag.trim() {
                "" => return None,
                tag if tag.contains('"') => return None,
                "*" if !weak => (None, after),
                tag => (Some((weak, ETag::from_wire(tag))), after),
            }
        }
    };
    match after.trim_start() {
        "" => Some((tag, "")),
        after => Some((tag, after.strip_prefix(',')?.trim_start())),
    }
}

/// What the conditions of a read come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Serve.
    Proceed,
    /// 304, without a body.
    NotModified,
}

/// Conditions of GET and HEAD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadConditions {
    if_match: Option<TagList>,
    if_none_match: Option<TagList>,
    if_modified_since: Option<SystemTime>,
    if_unmodified_since: Option<SystemTime>,
}

/// Conditions on the source of a copy (`x-amz-copy-source-if-*`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyConditions(ReadConditions);

/// What a key holds, as far as conditions of writes ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Current {
    /// Its tag.
    pub etag: ETag,
    /// When it was last modified.
    pub last_modified: SystemTime,
    /// Its size in bytes.
    pub size: u64,
}

/// Conditions of a write or a deletion: on what the key holds at the moment of the commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteConditions {
    /// `If-Match: "tag"`: the current object must have this tag.
    pub if_match: Option<ETag>,
    /// `If-Match: *`: there must be a current object.
    pub if_match_any: bool,
    /// `If-None-Match: *`: there must be no current object.
    pub if_none_match_any: bool,
    /// `If-None-Match: "tag"`: a current object must have another tag.
    pub if_none_match: Option<ETag>,
    /// Of deletions: what is there was last modified in this second.
    pub if_match_last_modified: Option<SystemTime>,
    /// Of deletions: what is there has this size in bytes.
    pub if_match_size: Option<u64>,
}

const IF_MATCH_LAST_MODIFIED: &str = "x-amz-if-match-last-modified-time";
const IF_MATCH_SIZE: &str = "x-amz-if-match-size";

impl ReadConditions {
    /// Reads the headers. Dates that are no dates are ignored, as RFC 9110 says.
    ///
    /// # Errors
    /// `InvalidArgument` for tag lists that are not well-formed or longer than 64 tags.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self> {
        Self::named(headers, ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"])
    }

    fn named(headers: &HeaderMap, names: [&'static str; 4]) -> Result<Self> {
        let [if_match, if_none_match, if_modified_since, if_unmodified_since] = names;
        let date = |name: &str| headers.get(name).and_then(|value| parse_http_date(value.to_str().ok()?));
        Ok(Self {
            if_match: TagList::from_headers(headers, if_match)?,
            if_none_match: TagList::from_headers(headers, if_none_match)?,
            if_modified_since: date(if_modified_since),
            if_unmodified_since: date(if_unmodified_since),
        })
    }

    /// Whether there is any condition.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Decides for an object that exists. Like S3, ignores an `If-Modified-Since` that is later
    /// than `now`: nothing can have been modified since.
    ///
    /// # Errors
    /// `PreconditionFailed` with its `Condition`.
    pub fn evaluate(&self, etag: &ETag, last_modified: SystemTime, now: SystemTime) -> Result<Outcome> {
        let modified = whole_seconds(last_modified);
        match (&self.if_match, self.if_unmodified_since) {
            (Some(tags), _) if !tags.has_strongly(etag) => return Err(failed("If-Match")),
            (None, Some(since)) if modified > whole_seconds(since) => return Err(failed("If-Unmodified-Since")),
            _ => {}
        }
        match (&self.if_none_match, self.if_modified_since) {
            (Some(tags), _) if tags.has(etag) => Ok(Outcome::NotModified),
            (None, Some(since)) if since <= now && modified <= whole_seconds(since) => Ok(Outcome::NotModified),
            _ => Ok(Outcome::Proceed),
        }
    }
}

impl CopyConditions {
    /// Reads the headers.
    ///
    /// # Errors
    /// As [`ReadConditions::from_headers`].
    pub fn from_headers(headers: &HeaderMap) -> Result<Self> {
        ReadConditions::named(
            headers,
            [
                "x-amz-copy-source-if-match",
                "x-amz-copy-source-if-none-match",
                "x-amz-copy-source-if-modified-since",
                "x-amz-copy-source-if-unmodified-since",
            ],
        )
        .map(Self)
    }

    /// Decides for the source. A copy has no 304: what would be one is `PreconditionFailed`.
    ///
    /// # Errors
    /// `PreconditionFailed` with its `Condition`.
    pub fn evaluate(&self, etag: &ETag, last_modified: SystemTime, now: SystemTime) -> Result<()> {
        match self.0.evaluate(etag, last_modified, now) {
            Ok(Outcome::Proceed) => Ok(()),
            Ok(Outcome::NotModified) if self.0.if_none_match.is_some() => {
                Err(failed("x-amz-copy-source-If-None-Match"))
            }
            Ok(Outcome::NotModified) => Err(failed("x-amz-copy-source-If-Modified-Since")),
            Err(_) if self.0.if_match.is_some() => Err(failed("x-amz-copy-source-If-Match")),
            Err(_) => Err(failed("x-amz-copy-source-If-Unmodified-Since")),
        }
    }
}

impl WriteConditions {
    /// Reads the headers of a deletion.
    ///
    /// # Errors
    /// As [`WriteConditions::from_headers`]; `NotImplemented` for `If-None-Match` with a tag;
    /// `InvalidArgument` for a date or size that is none.
    pub fn of_deletion(headers: &HeaderMap) -> Result<Self> {
        let invalid = |name, value: &str| S3Error::invalid_argument(name, value, "The condition is not valid.");
        let last_modified = single(headers, IF_MATCH_LAST_MODIFIED)?;
        let last_modified = last_modified
            .map(|text| parse_moment(text).ok_or_else(|| invalid(IF_MATCH_LAST_MODIFIED, text)))
            .transpose()?;
        let size = single(headers, IF_MATCH_SIZE)?;
        let size = size.map(|text| decimal(text).ok_or_else(|| invalid(IF_MATCH_SIZE, text))).transpose()?;
        let conditions = Self::read(headers)?;
        if conditions.if_none_match.is_some() {
            return not_implemented("If-None-Match");
        }
        Ok(Self { if_match_last_modified: last_modified, if_match_size: size, ..conditions })
    }

    /// Reads the headers of a write.
    ///
    /// # Errors
    /// `NotImplemented` for what S3 does not have on writes: lists, weak tags, dates, sizes, both
    /// headers at once (C77); `InvalidArgument` for tags that are not well-formed.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self> {
        for name in [IF_MATCH_LAST_MODIFIED, IF_MATCH_SIZE] {
            if is_given(headers, name) {
                return Err(S3Error::new(ErrorCode::NotImplemented).field("Header", name));
            }
        }
        Self::read(headers)
    }

    fn read(headers: &HeaderMap) -> Result<Self> {
        for date in ["if-modified-since", "if-unmodified-since"] {
            if is_given(headers, date) {
                return not_implemented(date);
            }
        }
        let mut conditions = Self::default();
        match TagList::from_headers(headers, "if-none-match")? {
            None => {}
            Some(TagList::Any) => conditions.if_none_match_any = true,
            Some(TagList::Tags(tags)) => match only_strong(tags) {
                Some(tag) => conditions.if_none_match = Some(tag),
                None => return not_implemented("If-None-Match"),
            },
        }
        let if_none_match = conditions.if_none_match_any || conditions.if_none_match.is_some();
        match TagList::from_headers(headers, "if-match")? {
            None => {}
            Some(_) if if_none_match => return not_implemented("If-Match"),
            Some(TagList::Any) => conditions.if_match_any = true,
            Some(TagList::Tags(tags)) => match only_strong(tags) {
                Some(tag) => conditions.if_match = Some(tag),
                None => return not_implemented("If-Match"),
            },
        }
        Ok(conditions)
    }

    /// Whether there is any condition.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The header that a conflict is told with: whether nothing or something was to be there.
    pub fn header(&self) -> &'static str {
        if self.if_none_match_any || self.if_none_match.is_some() { "If-None-Match" } else { "If-Match" }
    }

    /// Whether a condition is about what an object is: its tag, its time, its size.
    pub fn needs_object(&self) -> bool {
        self.if_match_any
            || self.if_match.is_some()
            || self.if_match_last_modified.is_some()
            || self.if_match_size.is_some()
    }

    /// Decides for what the key holds now.
    ///
    /// # Errors
    /// `PreconditionFailed` with its `Condition`; `NoSuchKey` for `If-Match` on a key that holds
    /// nothing. A deletion by time or size alone finds nothing to do there.
    pub fn evaluate(&self, current: Option<&Current>) -> Result<()> {
        let Some(current) = current else {
            let absent = self.if_match_any || self.if_match.is_some();
            return if absent { Err(S3Error::new(ErrorCode::NoSuchKey)) } else { Ok(()) };
        };
        if self.if_none_match_any || self.if_none_match.as_ref() == Some(&current.etag) {
            return Err(failed("If-None-Match"));
        }
        if self.if_match.as_ref().is_some_and(|tag| *tag != current.etag) {
            return Err(failed("If-Match"));
        }
        let modified = whole_seconds(current.last_modified);
        if self.if_match_last_modified.is_some_and(|at| whole_seconds(at) != modified) {
            return Err(failed(IF_MATCH_LAST_MODIFIED));
        }
        match self.if_match_size {
            Some(size) if size != current.size => Err(failed(IF_MATCH_SIZE)),
            _ => Ok(()),
        }
    }
}

/// The tag of a list of one that is strong: what writes take.
fn only_strong(mut tags: Vec<(bool, ETag)>) -> Option<ETag> {
    match (tags.pop(), tags.is_empty()) {
        (Some((false, tag)), true) => Some(tag),
        _ => None,
    }
}

fn not_implemented<T>(header: &'static str) -> Result<T> {
    Err(S3Error::new(ErrorCode::NotImplemented).field("Header", header))
}

fn failed(condition: &'static str) -> S3Error {
    S3Error::new(ErrorCode::PreconditionFailed).field("Condition", condition)
}

/// A moment in the form of headers or of documents: SDKs write either.
pub(crate) fn parse_moment(text: &str) -> Option<SystemTime> {
    parse_http_date(text).or_else(|| parse_iso8601(text))
}

/// Headers carry whole seconds, so that is how moments are compared.
fn whole_seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;
    use std::time::Duration;

    const BEFORE: &str = "Fri, 24 May 2013 00:00:00 GMT";
    const AT: &str = "Sat, 25 May 2013 00:00:00 GMT";
    const AFTER: &str = "Sun, 26 May 2013 00:00:00 GMT";
    const FUTURE: &str = "Tue, 28 May 2013 00:00:00 GMT";

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    fn last_modified() -> SystemTime {
        parse_http_date(AT).unwrap() + Duration::from_millis(700)
    }

    /// Between `AFTER` and `FUTURE`.
    fn now() -> SystemTime {
        parse_http_date(FUTURE).unwrap() - Duration::from_secs(1)
    }

    #[test]
    fn precedence_is_that_of_rfc_9110() {
        // C77
        type Pairs = [(&'static str, &'static str)];
        let cases: &[(&Pairs, Option<Outcome>)] = &[
            (&[], Some(Outcome::Proceed)),
            (&[("if-match", "\"tag\"")], Some(Outcome::Proceed)),
            (&[("if-match", "tag")], Some(Outcome::Proceed)),
            (&[("if-match", "\"a\", \"tag\"")], Some(Outcome::Proceed)),
            (&[("if-match", "*")], Some(Outcome::Proceed)),
            (&[("if-match", "\"other\"")], None),
            (&[("if-match", "W/\"tag\"")], None),
            (&[("if-none-match", "\"tag\"")], Some(Outcome::NotModified)),
            (&[("if-none-match", "W/\"tag\"")], Some(Outcome::NotModified)),
            (&[("if-none-match", "*")], Some(Outcome::NotModified)),
            (&[("if-none-match", "\"x,y\",\"z\"")], Some(Outcome::Proceed)),
            (&[("if-modified-since", BEFORE)], Some(Outcome::Proceed)),
            (&[("if-modified-since", AT)], Some(Outcome::NotModified)),
            (&[("if-modified-since", AFTER)], Some(Outcome::NotModified)),
            (&[("if-modified-since", FUTURE)], Some(Outcome::Proceed)),
            (&[("if-modified-since", "yesterday")], Some(Outcome::Proceed)),
            (&[("if-unmodified-since", BEFORE)], None),
            (&[("if-unmodified-since", AT)], Some(Outcome::Proceed)),
            (&[("if-unmodified-since", FUTURE)], Some(Outcome::Proceed)),
            // A tag outranks a date.
            (&[("if-match", "\"tag\""), ("if-unmodified-since", BEFORE)], Some(Outcome::Proceed)),
            (&[("if-none-match", "\"other\""), ("if-modified-since", AFTER)], Some(Outcome::Proceed)),
            (&[("if-none-match", "\"tag\""), ("if-modified-since", BEFORE)], Some(Outcome::NotModified)),
            // A failed If-Match outranks everything.
            (&[("if-match", "\"other\""), ("if-none-match", "\"tag\"")], None),
            (&[("if-unmodified-since", BEFORE), ("if-none-match", "\"tag\"")], None),
        ];
        for (pairs, expected) in cases {
            let conditions = ReadConditions::from_headers(&headers(pairs)).unwrap();
            let outcome = conditions.evaluate(&ETag::from_wire("tag"), last_modified(), now());
            assert_eq!(outcome.ok(), *expected, "{pairs:?}");
        }
    }

    #[test]
    fn a_copy_fails_where_a_read_would_be_not_modified() {
        for (pairs, condition) in [
            (&[("x-amz-copy-source-if-none-match", "\"tag\"")][..], Some("x-amz-copy-source-If-None-Match")),
            (&[("x-amz-copy-source-if-modified-since", AFTER)], Some("x-amz-copy-source-If-Modified-Since")),
            (&[("x-amz-copy-source-if-modified-since", FUTURE)], None),
            (&[("x-amz-copy-source-if-match", "\"other\"")], Some("x-amz-copy-source-If-Match")),
            (&[("x-amz-copy-source-if-unmodified-since", BEFORE)], Some("x-amz-copy-source-If-Unmodified-Since")),
            (&[("x-amz-copy-source-if-match", "\"tag\"")], None),
            (&[("if-match", "\"other\"")], None),
        ] {
            let conditions = CopyConditions::from_headers(&headers(pairs)).unwrap();
            let error = conditions.evaluate(&ETag::from_wire("tag"), last_modified(), now()).err();
            assert_eq!(error.as_ref().and_then(|e| e.get_field("Condition")), condition, "{pairs:?}");
        }
    }

    #[test]
    fn writes_know_only_the_conditions_of_s3() {
        // C77
        for pairs in [
            &[("if-match", "\"a\", \"b\"")][..],
            &[("if-none-match", "\"a\", \"b\"")],
            &[("if-none-match", "W/\"a\"")],
            &[("if-match", "W/\"a\"")],
            &[("if-match", "\"a\""), ("if-none-match", "*")],
            &[("if-match", "\"a\""), ("if-none-match", "\"b\"")],
            &[("if-modified-since", AT)],
            &[("if-unmodified-since", AT)],
        ] {
            let error = WriteConditions::from_headers(&headers(pairs)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::NotImplemented, "{pairs:?}");
        }
        let tag = Current { etag: ETag::from_wire("tag"), last_modified: last_modified(), size: 9 };
        let evaluate = |pair, current| {
            WriteConditions::from_headers(&headers(&[pair])).unwrap().evaluate(current).map_err(|error| error.code())
        };
        assert_eq!(evaluate(("if-none-match", "*"), None), Ok(()));
        assert_eq!(evaluate(("if-none-match", "*"), Some(&tag)), Err(ErrorCode::PreconditionFailed));
        assert_eq!(evaluate(("if-none-match", "\"tag\""), None), Ok(()));
        assert_eq!(evaluate(("if-none-match", "\"tag\""), Some(&tag)), Err(ErrorCode::PreconditionFailed));
        assert_eq!(evaluate(("if-none-match", "other"), Some(&tag)), Ok(()));
        assert_eq!(evaluate(("if-match", "\"tag\""), Some(&tag)), Ok(()));
        assert_eq!(evaluate(("if-match", "\"other\""), Some(&tag)), Err(ErrorCode::PreconditionFailed));
        assert_eq!(evaluate(("if-match", "\"tag\""), None), Err(ErrorCode::NoSuchKey));
        assert_eq!(evaluate(("if-match", "*"), Some(&tag)), Ok(()));
        assert_eq!(evaluate(("if-match", "*"), None), Err(ErrorCode::NoSuchKey));
        assert!(WriteConditions::from_headers(&HeaderMap::new()).unwrap().is_empty());
        let (time, size) = (IF_MATCH_LAST_MODIFIED, IF_MATCH_SIZE);
        for (pair, held) in [
            ((time, AT), true),
            ((time, "2013-05-25T00:00:00.500Z"), true),
            ((time, BEFORE), false),
            ((time, AFTER), false),
            ((size, "9"), true),
            ((size, "8"), false),
        ] {
            let conditions = WriteConditions::of_deletion(&headers(&[pair])).unwrap();
            assert_eq!(conditions.evaluate(Some(&tag)).is_ok(), held, "{pair:?}");
            assert!(conditions.evaluate(None).is_ok(), "there is nothing to delete");
            let error = WriteConditions::from_headers(&headers(&[pair])).unwrap_err();
            assert_eq!(error.code(), ErrorCode::NotImplemented, "a write has no such condition");
        }
        let error = WriteConditions::of_deletion(&headers(&[("if-none-match", "tag")])).unwrap_err();
        assert_eq!(error.code(), ErrorCode::NotImplemented, "a deletion has no such condition");
        for pair in [(time, "yesterday"), (size, "-1"), (size, "")] {
            let error = WriteConditions::of_deletion(&headers(&[pair])).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{pair:?}");
        }
    }

    #[test]
    fn lists_that_are_not_well_formed_are_refused() {
        for list in ["", ",", "\"a", "a\"b", "\"a\" \"b\"", "*, \"a\"", "\"a\"b"] {
            let error = ReadConditions::from_headers(&headers(&[("if-match", list)])).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{list}");
        }
        let mut long = HeaderMap::new();
        long.insert("if-match", HeaderValue::from_str(&"a,".repeat(65)).unwrap());
        assert!(ReadConditions::from_headers(&long).is_err());
    }

    proptest! {
        #[test]
        fn reading_never_panics(list in "[ -~]{0,60}", date in "[ -~]{0,40}") {
            // C79
            let mut headers = HeaderMap::new();
            for (name, value) in [("if-match", &list), ("if-none-match", &list), ("if-modified-since", &date)] {
                headers.insert(name, HeaderValue::from_str(value).unwrap());
            }
            let _ = ReadConditions::from_headers(&headers);
            let _ = WriteConditions::from_headers(&headers);
        }
    }
}
