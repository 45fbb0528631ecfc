//! Parameters of multipart uploads. The operations bound sizes (`proxy/src/ops/complete.rs`).

use super::{
    conditions::parse_moment,
    decimal,
    list::{encoding_type_url, integer, page},
    single,
};
use crate::{
    address::Query,
    checksum::{Checksum, ChecksumAlgorithm, ChecksumType},
    error::{ErrorCode, Result, S3Error},
};
use http::HeaderMap;
use std::time::SystemTime;

/// A part number, 1–10,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartNumber(u32);

impl PartNumber {
    /// Takes a number; `None` out of range.
    pub fn new(number: u32) -> Option<Self> {
        (1..=10_000).contains(&number).then_some(Self(number))
    }

    /// Reads `partNumber`; `None` when absent (GET and HEAD may have it, UploadPart must).
    ///
    /// # Errors
    /// `InvalidArgument` when it is not a number in range (C84).
    pub fn from_query(query: &Query) -> Result<Option<Self>> {
        let Some(text) = query.single("partNumber")? else { return Ok(None) };
        let number = decimal(text).and_then(|n| u32::try_from(n).ok()).and_then(Self::new);
        number.map(Some).ok_or_else(|| {
            let message = "Part number must be an integer between 1 and 10000, inclusive.";
            S3Error::invalid_argument("partNumber", text, message)
        })
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// Reads `uploadId`. What it names is for the caller to say.
///
/// # Errors
/// `NoSuchUpload` when it is absent, empty, longer than 1 KiB or holds a NUL: there can be no such
/// upload.
pub fn upload_id(query: &Query) -> Result<&str> {
    let id = query.single("uploadId")?.unwrap_or_default();
    if id.is_empty() || id.len() > 1024 || id.contains('\0') {
        return Err(S3Error::new(ErrorCode::NoSuchUpload).field("UploadId", id));
    }
    Ok(id)
}

/// When the upload must have been initiated for AbortMultipartUpload to end it.
///
/// # Errors
/// `InvalidArgument` for what is no date.
pub fn if_match_initiated_time(headers: &HeaderMap) -> Result<Option<SystemTime>> {
    const NAME: &str = "x-amz-if-match-initiated-time";
    let invalid = |text: &str| S3Error::invalid_argument(NAME, text, "The condition is not valid.");
    single(headers, NAME)?.map(|text| parse_moment(text).ok_or_else(|| invalid(text))).transpose()
}

/// Parameters of ListParts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListPartsParams {
    /// 0–1000.
    pub max_parts: u32,
    /// Parts after this number.
    pub part_number_marker: u32,
    /// `encoding-type=url`.
    pub encoding_type_url: bool,
}

impl ListPartsParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// `InvalidArgument` for numbers out of range.
    pub fn from_query(query: &Query) -> Result<Self> {
        Ok(Self {
            max_parts: page(query, "max-parts")?,
            part_number_marker: integer(query, "part-number-marker")?.unwrap_or(0),
            encoding_type_url: encoding_type_url(query)?,
        })
    }
}

/// What CreateMultipartUpload asks for, and what CompleteMultipartUpload says about the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumRequest {
    /// On Create: `x-amz-checksum-algorithm` with its type (the default one unless given).
    pub algorithm: Option<(ChecksumAlgorithm, ChecksumType)>,
    /// On Complete: the type, which must be that of the upload.
    pub checksum_type: Option<ChecksumType>,
    /// On Complete: the claimed checksum of the object. A composite one may come without its `-N`:
    /// compare the bytes.
    pub object: Option<Checksum>,
    /// On Complete: `x-amz-mp-object-size`.
    pub object_size: Option<u64>,
}

impl ChecksumRequest {
    /// Reads the headers of CreateMultipartUpload (algorithm and type).
    ///
    /// # Errors
    /// `InvalidRequest` for unknown names and for pairs that do not exist (full-object SHA,
    /// composite CRC64NVME).
    pub fn of_create(headers: &HeaderMap) -> Result<Self> {
        let algorithm = single(headers, "x-amz-checksum-algorithm")?.map(ChecksumAlgorithm::parse).transpose()?;
        let checksum_type = single(headers, TYPE)?.map(ChecksumType::parse).transpose()?;
        let algorithm = match (algorithm, checksum_type) {
            (None, None) => None,
            (None, Some(_)) => {
                return Err(invalid(
                    "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.",
                ));
            }
            (Some(algorithm), given) => {
                let checksum_type = given.unwrap_or(algorithm.default_type());
                if !algorithm.allows(checksum_type) {
                    return Err(invalid(format!(
                        "The {} checksum type cannot be used with the {} checksum algorithm.",
                        checksum_type.as_str(),
                        algorithm.as_str().to_ascii_lowercase()
                    )));
                }
                Some((algorithm, checksum_type))
            }
        };
        Ok(Self { algorithm, ..Self::default() })
    }

    /// Reads the headers of CompleteMultipartUpload (value, type, size).
    ///
    /// # Errors
    /// `InvalidRequest`.
    pub fn of_complete(headers: &HeaderMap) -> Result<Self> {
        let mut object: Option<Checksum> = None;
        for algorithm in ChecksumAlgorithm::ALL {
            let Some(text) = single(headers, algorithm.header())? else { continue };
            if object.replace(Checksum::parse(algorithm, text)?).is_some() {
                return Err(invalid(
                    "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
                ));
            }
        }
        let checksum_type = single(headers, TYPE)?.map(ChecksumType::parse).transpose()?;
        let object_size = match single(headers, SIZE)? {
            None => None,
            Some(text) => {
                let wrong = || {
                    let below_zero = text.strip_prefix('-').is_some_and(|digits| decimal(digits).is_some());
                    let what = if below_zero { "less than zero" } else { "invalid" };
                    invalid(format!("Value for x-amz-mp-object-size header is {what}: '{text}'"))
                };
                Some(decimal(text).ok_or_else(wrong)?)
            }
        };
        Ok(Self { algorithm: None, checksum_type, object, object_size })
    }
}

/// Whether `x-amz-checksum-mode: ENABLED` asks GET and HEAD to return checksums.
///
/// # Errors
/// `InvalidArgument` for another word.
pub fn checksum_mode(headers: &HeaderMap) -> Result<bool> {
    const MODE: &str = "x-amz-checksum-mode";
    match single(headers, MODE)? {
        None => Ok(false),
        Some(mode) if mode.eq_ignore_ascii_case("ENABLED") => Ok(true),
        Some(other) => Err(S3Error::invalid_argument(MODE, other, "x-amz-checksum-mode can only be ENABLED.")),
    }
}

const TYPE: &str = "x-amz-checksum-type";
const SIZE: &str = "x-amz-mp-object-size";

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> S3Error {
    S3Error::with_message(ErrorCode::InvalidRequest, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn part_numbers_are_1_to_10000() {
        // C84
        let number = |raw: &str| PartNumber::from_query(&Query::parse(raw).unwrap());
        assert_eq!(number("partNumber=1").unwrap().map(PartNumber::get), Some(1));
        assert_eq!(number("partNumber=10000").unwrap().map(PartNumber::get), Some(10_000));
        assert_eq!(number("").unwrap(), None);
        for raw in ["0", "-1", "10001", "4294967296", "4294967297", "", "1.0", "%2B1", "a", "99999999999999999999999"] {
            let error = number(&format!("partNumber={raw}")).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{raw}");
        }
        assert!(number("partNumber=1&partNumber=2").is_err());
    }

    #[test]
    fn an_upload_id_that_cannot_exist_is_no_such_upload() {
        let id = |raw: &str| upload_id(&Query::parse(raw).unwrap()).map(str::to_owned);
        assert_eq!(id("uploadId=abc").unwrap(), "abc");
        for raw in [String::new(), "uploadId=".into(), "uploadId=%00".into(), format!("uploadId={}", "a".repeat(1025))]
        {
            assert_eq!(id(&raw).unwrap_err().code(), ErrorCode::NoSuchUpload, "{raw}");
        }
    }

    #[test]
    fn create_takes_the_pairs_s3_has() {
        let create = |pairs: &[(&'static str, &'static str)]| {
            ChecksumRequest::of_create(&headers(pairs)).map(|request| request.algorithm).map_err(|e| e.code())
        };
        let (algorithm, kind) = ("x-amz-checksum-algorithm", "x-amz-checksum-type");
        assert_eq!(create(&[]), Ok(None));
        assert_eq!(create(&[(algorithm, "CRC32")]), Ok(Some((ChecksumAlgorithm::Crc32, ChecksumType::Composite))));
        assert_eq!(
            create(&[(algorithm, "CRC64NVME")]),
            Ok(Some((ChecksumAlgorithm::Crc64Nvme, ChecksumType::FullObject)))
        );
        let full = create(&[(algorithm, "CRC32C"), (kind, "FULL_OBJECT")]);
        assert_eq!(full, Ok(Some((ChecksumAlgorithm::Crc32c, ChecksumType::FullObject))));
        for pairs in [
            &[(algorithm, "SHA256"), (kind, "FULL_OBJECT")][..],
            &[(algorithm, "CRC64NVME"), (kind, "COMPOSITE")],
            &[(algorithm, "MD4")],
            &[(kind, "FULL_OBJECT")],
            &[(algorithm, "CRC32"), (kind, "PARTIAL")],
        ] {
            assert_eq!(create(pairs), Err(ErrorCode::InvalidRequest), "{pairs:?}");
        }
    }

    #[test]
    fn complete_takes_one_checksum_of_the_object_and_its_size() {
        let complete = |pairs: &[(&'static str, &'static str)]| ChecksumRequest::of_complete(&headers(pairs));
        let request = complete(&[
            ("x-amz-checksum-crc32", "AAAAAA==-3"),
            ("x-amz-mp-object-size", "5"),
            ("x-amz-checksum-type", "COMPOSITE"),
        ])
        .unwrap();
        assert_eq!(request.object.and_then(|object| object.parts()), Some(3));
        assert_eq!((request.object_size, request.checksum_type), (Some(5), Some(ChecksumType::Composite)));
        for pairs in [
            &[("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-checksum-crc32c", "AAAAAA==")][..],
            &[("x-amz-mp-object-size", "-1")],
            &[("x-amz-mp-object-size", "18446744073709551616")],
            &[("x-amz-checksum-crc32", "?")],
        ] {
            assert_eq!(complete(pairs).unwrap_err().code(), ErrorCode::InvalidRequest, "{pairs:?}");
        }
    }

    #[test]
    fn parts_are_listed_from_a_marker() {
        let params = ListPartsParams::from_query(&Query::parse("max-parts=2&part-number-marker=7").unwrap()).unwrap();
        assert_eq!((params.max_parts, params.part_number_marker), (2, 7));
        assert!(ListPartsParams::from_query(&Query::parse("part-number-marker=x").unwrap()).is_err());
    }

    #[test]
    fn the_checksum_mode_is_enabled_or_absent() {
        assert!(checksum_mode(&headers(&[("x-amz-checksum-mode", "ENABLED")])).unwrap());
        assert!(!checksum_mode(&HeaderMap::new()).unwrap());
        assert!(checksum_mode(&headers(&[("x-amz-checksum-mode", "yes")])).is_err());
    }
}
