//! Between headers and [`VersionFacts`]: what a request says about an object, and what an answer
//! tells of it.

use super::request::set;
use crate::engine::{self, Form, ListedFacts, VersionFacts};
use http::{HeaderMap, HeaderValue, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3_wire::{
    ETag, ErrorCode, S3Error, TagSet,
    checksum::{Checksum, ChecksumAlgorithm, ChecksumType},
    headers::{ContentHeaders, StorageClass, UserMetadata, single},
    timestamp,
};
use std::{collections::BTreeMap, time::SystemTime};

const REDIRECT_LOCATION: &str = "x-amz-website-redirect-location";
const REDIRECT_BYTES_MAX: usize = 2048;

/// The parts of a new object's facts that its headers give: content headers, user metadata, storage
/// class, redirect location, tags.
pub(super) fn from_headers(headers: &HeaderMap) -> Result<VersionFacts, S3Error> {
    let content = ContentHeaders::from_headers(headers)?;
    let pairs = [
        ("content-type", content.content_type),
        ("content-encoding", content.content_encoding),
        ("content-disposition", content.content_disposition),
        ("content-language", content.content_language),
        ("cache-control", content.cache_control),
        ("expires", content.expires),
    ];
    Ok(VersionFacts {
        headers: pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect(),
        user_metadata: UserMetadata::from_headers(headers)?.pairs().iter().cloned().collect(),
        storage_class: storage_class(headers)?,
        redirect_location: redirect_location(headers)?,
        tags: tags(headers)?,
        ..VersionFacts::default()
    })
}

/// The tags of `x-amz-tagging`.
pub(super) fn tags(headers: &HeaderMap) -> Result<BTreeMap<String, String>, S3Error> {
    Ok(TagSet::from_headers(headers)?.unwrap_or_default().into_map())
}

/// Where a website would send those who ask for the object: kept and told, since no website is
/// served.
pub(super) fn redirect_location(headers: &HeaderMap) -> Result<Option<String>, S3Error> {
    let Some(location) = single(headers, REDIRECT_LOCATION)? else { return Ok(None) };
    if !["/", "http://", "https://"].iter().any(|start| location.starts_with(start)) {
        return Err(ErrorCode::InvalidRedirectLocation.into());
    }
    if location.len() > REDIRECT_BYTES_MAX {
        return Err(S3Error::with_message(
            ErrorCode::InvalidRedirectLocation,
            "The length of website redirect location cannot exceed 2,048 characters.",
        ));
    }
    Ok(Some(location.to_owned()))
}

/// The storage class asked for; `None` is STANDARD.
pub(super) fn storage_class(headers: &HeaderMap) -> Result<Option<String>, S3Error> {
    Ok(StorageClass::from_headers(headers)?.response_value().map(str::to_owned))
}

/// The content headers of an object.
pub(super) fn content_headers(facts: &VersionFacts) -> ContentHeaders {
    let get = |name: &str| facts.headers.get(name).cloned();
    ContentHeaders {
        content_type: get("content-type"),
        content_encoding: get("content-encoding"),
        content_disposition: get("content-disposition"),
        content_language: get("content-language"),
        cache_control: get("cache-control"),
        expires: get("expires"),
    }
}

/// The name documents give a storage class.
pub(super) fn storage_class_name(kept: Option<&str>) -> String {
    kept.unwrap_or(StorageClass::Standard.as_str()).to_owned()
}

/// A checksum as facts keep it.
pub(super) fn kept(checksum: &Checksum) -> engine::Checksum {
    engine::Checksum { algorithm: checksum.algorithm().as_str().to_owned(), value: checksum.to_wire() }
}

/// A kept checksum; `None` when it is of a kind this version does not know.
pub(super) fn parse_kept(checksum: &engine::Checksum) -> Option<Checksum> {
    Checksum::parse(ChecksumAlgorithm::parse(&checksum.algorithm).ok()?, &checksum.value).ok()
}

/// The first checksum of a list.
pub(super) fn first_checksum(checksums: &[engine::Checksum]) -> Option<Checksum> {
    checksums.iter().find_map(parse_kept)
}

/// The checksum of one algorithm.
pub(super) fn checksum_of(checksums: &[engine::Checksum], algorithm: ChecksumAlgorithm) -> Option<Checksum> {
    checksums.iter().filter_map(parse_kept).find(|checksum| checksum.algorithm() == algorithm)
}

/// The algorithm and type of an object's or upload's checksum, for documents.
pub(super) fn checksum_kind(facts: &VersionFacts) -> Option<(ChecksumAlgorithm, ChecksumType)> {
    let first = facts.checksums.first().map(|checksum| checksum.algorithm.as_str());
    kind_of(facts.checksum_algorithm.as_deref().or(first)?, facts.checksum_type.as_deref())
}

/// As [`checksum_kind`], of what a listing reads.
pub(super) fn listed_checksum(facts: &ListedFacts) -> Option<(ChecksumAlgorithm, ChecksumType)> {
    let first = facts.checksums.first().map(|checksum| checksum.algorithm.as_str());
    kind_of(facts.checksum_algorithm.as_deref().or(first)?, facts.checksum_type.as_deref())
}

fn kind_of(algorithm: &str, kind: Option<&str>) -> Option<(ChecksumAlgorithm, ChecksumType)> {
    let kind = kind.and_then(|kind| ChecksumType::parse(kind).ok());
    Some((ChecksumAlgorithm::parse(algorithm).ok()?, kind.unwrap_or(ChecksumType::FullObject)))
}

/// `ETag` and `Last-Modified`.
pub(super) fn write_validators(headers: &mut HeaderMap, etag: &ETag, modified: SystemTime) {
    set(headers, "etag", &etag.quoted());
    set(headers, "last-modified", &timestamp::http_date(modified));
}

/// `x-amz-checksum-*` and its type.
pub(super) fn write_checksum(headers: &mut HeaderMap, checksum: &Checksum) {
    set(headers, checksum.algorithm().header(), &checksum.to_wire());
    set(headers, "x-amz-checksum-type", checksum.checksum_type().as_str());
}

/// What describes an object whatever part of it is answered with.
pub(super) fn write_description(headers: &mut HeaderMap, content: ContentHeaders, facts: &VersionFacts) {
    content.write(headers);
    UserMetadata::from_pairs(facts.user_metadata.clone().into_iter().collect()).write(headers);
    if let Some(class) = &facts.storage_class {
        set(headers, "x-amz-storage-class", class);
    }
    if let Some(location) = &facts.redirect_location {
        set(headers, REDIRECT_LOCATION, location);
    }
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
}

/// `x-amz-tagging-count`, for those who may see the tags.
pub(super) fn write_tag_count(headers: &mut HeaderMap, facts: &VersionFacts, may_see: impl FnOnce() -> bool) {
    if !facts.tags.is_empty() && may_see() {
        headers.insert("x-amz-tagging-count", HeaderValue::from(facts.tags.len()));
    }
}

/// How exactly stored sizes are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    /// As they are.
    Exact,
    /// Rounded up.
    Padded,
}

/// A size rounded up, by 12 % at most, and less the larger it is: what it tells grows with the
/// logarithm of the logarithm of the size. Source: Nikitin et al., "Reducing Metadata Leakage from
/// Encrypted Files and Communication with PURBs" (2019), Algorithm 1 (Padmé).
fn padded(bytes: u64) -> u64 {
    if bytes < 2 {
        return bytes;
    }
    let exponent = bytes.ilog2();
    let low_bits = exponent - (exponent.ilog2() + 1);
    let mask = (1 << low_bits) - 1;
    bytes.saturating_add(mask) & !mask
}

/// `x-deltaweir-*`. Base keys are percent-encoded, because they may hold commas and anything else;
/// those the caller may not read are left out.
pub(super) fn write_storage(
    headers: &mut HeaderMap,
    facts: &VersionFacts,
    sizes: Sizes,
    may_read: impl Fn(&str) -> bool,
) {
    let storage = &facts.storage;
    let stored_bytes = if sizes == Sizes::Exact { storage.stored_bytes } else { padded(storage.stored_bytes) };
    set(headers, "x-deltaweir-form", storage.form.as_str());
    set(headers, "x-deltaweir-stored-bytes", &stored_bytes.to_string());
    set(headers, "x-deltaweir-reason", &utf8_percent_encode(&storage.reason, PLAIN_TEXT).to_string());
    let visible = |key: &&String| may_read(key);
    let bases: Vec<String> = storage.bases.iter().filter(visible).map(|key| encoded_path(key)).collect();
    if !bases.is_empty() {
        set(headers, "x-deltaweir-base", &bases.join(","));
    }
}

/// A key or path as URLs and headers can carry it.
pub(super) fn encoded_path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// Unreserved characters and the slash stay as they are.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// Reasons are words of ours; whatever else they may come to hold stays sendable.
const PLAIN_TEXT: &AsciiSet = &percent_encoding::CONTROLS.add(b'%');

/// The form of an answer's object, for the metrics of its request.
pub(super) fn note_form(answer: &mut http::Extensions, form: Form) {
    answer.insert(form);
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn what_a_put_says_is_what_a_get_tells() {
        let sent = headers(&[
            ("content-type", "text/plain"),
            ("content-disposition", "attachment; filename=\"a\""),
            ("cache-control", "no-cache"),
            ("x-amz-meta-colour", "blue"),
            ("x-amz-storage-class", "STANDARD_IA"),
            ("x-amz-website-redirect-location", "/elsewhere"),
        ]);
        let facts = from_headers(&sent).unwrap();
        let mut told = HeaderMap::new();
        write_description(&mut told, content_headers(&facts), &facts);
        for (name, value) in &sent {
            assert_eq!(told.get(name), Some(value), "{name}");
        }
        assert_eq!(told[header::ACCEPT_RANGES], "bytes");
    }

    #[test]
    fn padded_sizes_are_few_and_hardly_longer() {
        for (bytes, told) in [(0, 0), (1, 1), (9, 10), (1000, 1024), (1025, 1088), (1_000_000, 1_015_808)] {
            assert_eq!(padded(bytes), told, "{bytes}");
        }
        let sizes: std::collections::BTreeSet<u64> = (1..=1 << 20).map(padded).collect();
        assert!(sizes.len() < 400, "{}", sizes.len());
        assert!((1..1 << 20).all(|bytes| padded(bytes) >= bytes && padded(bytes) * 100 <= bytes * 113));
        assert!(padded(u64::MAX) > u64::MAX / 2);
    }

    #[test]
    fn checksums_are_kept_in_their_wire_form() {
        let full = Checksum::full(ChecksumAlgorithm::Crc32c, &[1, 2, 3, 4]).unwrap();
        let composite = Checksum::composite(ChecksumAlgorithm::Sha256, &[7; 32], 3).unwrap();
        for checksum in [full, composite] {
            assert_eq!(parse_kept(&kept(&checksum)), Some(checksum));
        }
        assert_eq!(parse_kept(&engine::Checksum { algorithm: "CRC128".into(), value: "AAAA".into() }), None);
    }
}
