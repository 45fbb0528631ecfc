//! Fixed-width fields read from bytes that nobody vouches for.

use crate::error::FormatError;

/// What is left to read. Every method either takes exactly what it says or refuses.
pub(crate) struct Fields<'a> {
    left: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let (taken, left) = self.left.split_at_checked(len).ok_or(FormatError::Malformed("cut short"))?;
        self.left = left;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (taken, left) = self.left.split_first_chunk().ok_or(FormatError::Malformed("cut short"))?;
        self.left = left;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Takes `len` bytes that must be zero.
    pub(crate) fn zero(&mut self, len: usize) -> Result<(), FormatError> {
        match self.take(len)?.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => Err(FormatError::Malformed("a reserved byte is not zero")),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Bytes left to read: an upper bound for counts, so that a forged count cannot make anything
    /// allocate.
    pub(crate) fn len(&self) -> usize {
        self.left.len()
    }

    /// Everything was read.
    pub(crate) fn end(&self) -> Result<(), FormatError> {
        match self.is_empty() {
            true => Ok(()),
            false => Err(FormatError::Malformed("bytes left over")),
        }
    }
}

/// The other direction: fields appended to a buffer.
pub(crate) trait PutFields {
    fn put(&mut self, bytes: &[u8]);

    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
}

impl PutFields for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
