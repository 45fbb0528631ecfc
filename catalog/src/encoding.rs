//! How bytes look in the journal's JSON: ids and digests as lowercase hex, longer runs of bytes as
//! base64.
//!
//! Part of the journal's format (docs/reference/catalog.md): rows already shipped cannot be
//! replayed with another encoding.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error, ser};

/// Bytes as hex digits, which take no memory of their own.
struct Digits<'b, const N: usize>(&'b [u8; N]);

impl<const N: usize> Serialize for Digits<'_, N> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut digits = [[0; 2]; N];
        hex::encode_to_slice(self.0, digits.as_flattened_mut()).map_err(ser::Error::custom)?;
        out.serialize_str(std::str::from_utf8(digits.as_flattened()).map_err(ser::Error::custom)?)
    }
}

/// `[u8; N]` as 2N hex digits.
pub(crate) mod hex_array {
    use super::*;

    pub(crate) fn serialize<S: Serializer, const N: usize>(bytes: &[u8; N], out: S) -> Result<S::Ok, S::Error> {
        Digits(bytes).serialize(out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(input: D) -> Result<[u8; N], D::Error> {
        parse(&String::deserialize(input)?)
    }

    pub(super) fn parse<E: Error, const N: usize>(text: &str) -> Result<[u8; N], E> {
        let mut bytes = [0; N];
        hex::decode_to_slice(text, &mut bytes).map_err(E::custom)?;
        Ok(bytes)
    }
}

/// `Option<[u8; N]>` as hex digits or null.
pub(crate) mod hex_array_option {
    use super::*;

    pub(crate) fn serialize<S: Serializer, const N: usize>(bytes: &Option<[u8; N]>, out: S) -> Result<S::Ok, S::Error> {
        bytes.as_ref().map(Digits).serialize(out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
        input: D,
    ) -> Result<Option<[u8; N]>, D::Error> {
        Option::<String>::deserialize(input)?.map(|text| hex_array::parse(&text)).transpose()
    }
}

/// `Vec<u8>` as padded base64.
pub(crate) mod base64_bytes {
    use super::*;
    use base64::{Engine, engine::general_purpose::STANDARD};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(input)?).map_err(D::Error::custom)
    }
}

/// `Option<Vec<u8>>` as padded base64 or null.
pub(crate) mod base64_option {
    use super::*;
    use base64::{Engine, engine::general_purpose::STANDARD};

    pub(crate) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, out: S) -> Result<S::Ok, S::Error> {
        bytes.as_ref().map(|bytes| STANDARD.encode(bytes)).serialize(out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Vec<u8>>, D::Error> {
        Option::<String>::deserialize(input)?.map(|text| STANDARD.decode(text).map_err(D::Error::custom)).transpose()
    }
}

/// Chosen parts as `[[number, "hex id"], …]`.
pub(crate) mod chosen_parts {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(parts: &[(u32, [u8; 16])], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(parts.iter().map(|(number, id)| (number, Digits(id))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<(u32, [u8; 16])>, D::Error> {
        let parts = Vec::<(u32, String)>::deserialize(input)?;
        parts.into_iter().map(|(number, id)| Ok((number, hex_array::parse(&id)?))).collect()
    }
}
