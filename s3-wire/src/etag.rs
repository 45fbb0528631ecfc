//! Entity tags: opaque text, compared byte by byte, quoted on the wire. Content under a client's or
//! KMS's key gets a tag that is no MD5 (`proxy/src/ops/encryption.rs`).

use std::fmt;

/// A strong entity tag without its quotes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ETag(String);

impl ETag {
    /// The tag of an object stored by one PUT.
    pub fn from_md5(md5: [u8; 16]) -> Self {
        Self(hex::encode(md5))
    }

    /// The tag of a multipart object: the MD5 of the parts' MD5s and the number of parts.
    pub fn from_parts_md5(md5: [u8; 16], parts: u32) -> Self {
        Self(format!("{}-{parts}", hex::encode(md5)))
    }

    /// The tag of a completed multipart upload, computed from the MD5 of each part in order.
    pub fn of_parts(part_md5s: impl IntoIterator<Item = [u8; 16]>) -> Self {
        use md5::Digest as _;
        let mut all = md5::Md5::new();
        let mut parts = 0;
        for md5 in part_md5s {
            all.update(md5);
            parts += 1;
        }
        Self::from_parts_md5(all.finalize().into(), parts)
    }

    /// Takes a tag with or without its quotes, as request documents and headers carry it.
    pub fn from_wire(text: &str) -> Self {
        let text = text.trim();
        Self(text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text).to_owned())
    }

    /// The tag without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tag in quotes, for headers and documents.
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }

    /// The MD5 this tag spells, when it is the tag of a single PUT.
    pub fn md5(&self) -> Option<[u8; 16]> {
        let mut md5 = [0; 16];
        hex::decode_to_slice(&self.0, &mut md5).ok()?;
        Some(md5)
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multipart_tag_is_the_md5_of_the_parts_md5s() {
        // Two parts of "a" and "b": md5(md5("a") ‖ md5("b")).
        let part = |hex_md5: &str| ETag::from_wire(hex_md5).md5().unwrap();
        let parts = [part("0cc175b9c0f1b6a831c399e269772661"), part("92eb5ffee6ae2fec3ad71c777531578f")];
        let tag = ETag::of_parts(parts);
        assert_eq!(tag.as_str(), "96e024ba2074fe77e8e965ba43a704be-2");
        assert_eq!(tag.md5(), None);
    }

    #[test]
    fn quotes_come_off_and_go_on() {
        assert_eq!(ETag::from_wire(" \"abc\" "), ETag::from_wire("abc"));
        assert_eq!(ETag::from_wire("abc").quoted(), "\"abc\"");
        assert_eq!(ETag::from_wire("\"").as_str(), "\"");
        assert_eq!(ETag::from_md5([0; 16]).md5(), Some([0; 16]));
    }
}
