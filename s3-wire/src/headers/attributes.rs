//! Parameters of GetObjectAttributes.

use super::{decimal, single};
use crate::error::{ErrorCode, Result, S3Error};
use http::HeaderMap;

/// What is asked for, and which page of the parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributesParams {
    /// `ETag`
    pub etag: bool,
    /// `Checksum`
    pub checksum: bool,
    /// `ObjectParts`
    pub parts: bool,
    /// `StorageClass`
    pub storage_class: bool,
    /// `ObjectSize`
    pub size: bool,
    /// 0–1000.
    pub max_parts: u32,
    /// Parts after this number.
    pub part_number_marker: u32,
}

impl AttributesParams {
    /// Reads `x-amz-object-attributes`, `x-amz-max-parts` and `x-amz-part-number-marker`.
    ///
    /// # Errors
    /// `InvalidRequest` when no attribute is named; `InvalidArgument` for one that S3 does not
    /// have, and for numbers that are none.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self> {
        const NAMES: &str = "x-amz-object-attributes";
        let mut params = Self::default();
        let mut any = false;
        for value in headers.get_all(NAMES) {
            for name in value.to_str().unwrap_or_default().split(',').map(str::trim) {
                match name {
                    "ETag" => params.etag = true,
                    "Checksum" => params.checksum = true,
                    "ObjectParts" => params.parts = true,
                    "StorageClass" => params.storage_class = true,
                    "ObjectSize" => params.size = true,
                    other => {
                        return Err(S3Error::invalid_argument(NAMES, other, "Invalid attribute name specified."));
                    }
                }
                any = true;
            }
        }
        if !any {
            return Err(S3Error::with_message(
                ErrorCode::InvalidRequest,
                "The x-amz-object-attributes header specifying the attributes to be retrieved is either missing or empty",
            ));
        }
        let number = |name: &'static str| -> Result<Option<u32>> {
            let Some(text) = single(headers, name)? else { return Ok(None) };
            let number = decimal(text).and_then(|n| u32::try_from(n).ok()).filter(|n| *n <= i32::MAX.unsigned_abs());
            number.map(Some).ok_or_else(|| {
                S3Error::invalid_argument(name, text, format!("Provided {name} not an integer or within integer range"))
            })
        };
        params.max_parts = number("x-amz-max-parts")?.unwrap_or(1000).min(1000);
        params.part_number_marker = number("x-amz-part-number-marker")?.unwrap_or(0);
        Ok(params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn read(pairs: &[(&'static str, &'static str)]) -> Result<AttributesParams> {
        let pairs = pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v)));
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        AttributesParams::from_headers(&headers)
    }

    #[test]
    fn attributes_are_named_in_one_header_or_several() {
        let params =
            read(&[("x-amz-object-attributes", "ETag, ObjectParts"), ("x-amz-object-attributes", "ObjectSize")]);
        let params = params.unwrap();
        assert!(params.etag && params.parts && params.size && !params.checksum && !params.storage_class);
        assert_eq!((params.max_parts, params.part_number_marker), (1000, 0));
        let all = ("x-amz-object-attributes", "ETag,Checksum,ObjectParts,StorageClass,ObjectSize");
        let params = read(&[all, ("x-amz-max-parts", "5000"), ("x-amz-part-number-marker", "7")]).unwrap();
        assert_eq!((params.max_parts, params.part_number_marker), (1000, 7));
        for pairs in [
            &[][..],
            &[("x-amz-object-attributes", "")],
            &[("x-amz-object-attributes", "ETag,Colour")],
            &[all, ("x-amz-max-parts", "-1")],
        ] {
            assert!(read(pairs).is_err(), "{pairs:?}");
        }
    }
}
