//! KEKs that a key provider keeps: each wrap of a domain key says whose its KEK is, and brings it
//! along as the provider has wrapped it (docs/format/blob-v1.md §5.2).
//!
//! Whoever has the blobs, a keyset and a provider that unwraps can open them: nothing else has to
//! survive.

use crate::{
    error::FormatError,
    fields::{Fields, PutFields},
};

const MAGIC: [u8; 4] = *b"DWPK";
const VERSION: u8 = 1;
/// Longest name of a provider.
const PROVIDER_LEN_MAX: usize = 32;
/// Longest name of a provider's key.
const NAME_LEN_MAX: usize = 2048;
/// Longest KEK that a provider wrapped.
const SEALED_LEN_MAX: usize = 16 << 10;
/// Bytes of a wrapped domain key. Part of the format (§5.2).
pub const WRAPPED_KEY_LEN: usize = 64;
/// Bytes of one that is bound to its bucket. Part of the format (§5.2).
pub const BOUND_KEY_LEN: usize = 72;
const WRAP_LENS: [usize; 2] = [WRAPPED_KEY_LEN, BOUND_KEY_LEN];

/// Where a KEK comes from that a provider keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KekOrigin {
    /// What kind of provider.
    pub provider: String,
    /// The provider's key that wraps it.
    pub key: String,
    /// The KEK, as the provider has wrapped it.
    pub sealed: Vec<u8>,
}

impl KekOrigin {
    /// One of these parts.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`] when a part is longer than the format has room for.
    pub fn new(provider: &str, key: &str, sealed: Vec<u8>) -> Result<Self, FormatError> {
        let fits = |len: usize, max: usize| (1..=max).contains(&len);
        if !fits(provider.len(), PROVIDER_LEN_MAX) || !fits(key.len(), NAME_LEN_MAX) {
            return Err(FormatError::TooLarge("a provider's name, or its key's"));
        }
        if !fits(sealed.len(), SEALED_LEN_MAX) {
            return Err(FormatError::TooLarge("a KEK that a provider wrapped"));
        }
        Ok(Self { provider: provider.to_owned(), key: key.to_owned(), sealed })
    }

    /// A wrap of a domain key behind what its KEK is.
    pub(crate) fn around(&self, wrap: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(14 + self.provider.len() + self.key.len() + self.sealed.len() + wrap.len());
        out.put(&MAGIC);
        out.put(&[VERSION, 0, 0, 0]);
        for part in [self.provider.as_bytes(), self.key.as_bytes(), &self.sealed] {
            out.put_u16(u16::try_from(part.len()).expect("checked when it was made"));
            out.put(part);
        }
        out.put(wrap);
        out
    }

    /// What a stored wrap says of its KEK, and the wrap itself. `None`: nobody keeps the KEK, or it
    /// is not said.
    ///
    /// # Errors
    /// [`FormatError::Malformed`] for everything that was not written so.
    pub fn of(stored: &[u8]) -> Result<(Option<Self>, &[u8]), FormatError> {
        if WRAP_LENS.contains(&stored.len()) {
            return Ok((None, stored));
        }
        let mut fields = Fields::new(stored);
        if fields.array()? != MAGIC || fields.u8()? != VERSION {
            return Err(FormatError::Malformed("no wrap of a key, or of an unknown version"));
        }
        fields.zero(3)?;
        let provider = text(&mut fields)?;
        let key = text(&mut fields)?;
        let len = fields.u16()?;
        let sealed = fields.take(usize::from(len))?.to_vec();
        let wrap = fields.take(fields.len())?;
        if !WRAP_LENS.contains(&wrap.len()) {
            return Err(FormatError::Malformed("the wrap of a key has another length"));
        }
        let origin = Self::new(&provider, &key, sealed);
        Ok((Some(origin.map_err(|_| FormatError::Malformed("what is said of a KEK has another length"))?), wrap))
    }
}

fn text(fields: &mut Fields<'_>) -> Result<String, FormatError> {
    let len = fields.u16()?;
    let bytes = fields.take(usize::from(len))?.to_vec();
    String::from_utf8(bytes).map_err(|_| FormatError::Malformed("a name of a key that is not UTF-8"))
}
