//! Numbers that stand in a delta: encoder and decoder agree on them (docs/format/delta-v1.md).

/// The form byte of a delta that is one copy. Part of the format (docs/format/delta-v1.md §3).
pub(crate) const FORM_COPY: u8 = 0;
/// The form byte of a delta made of streams. Part of the format.
pub(crate) const FORM_STREAMS: u8 = 1;
/// The form byte of a delta made of streams whose sub runs are distances and words. Part of the
/// format.
pub(crate) const FORM_WORDS: u8 = 2;
/// The form byte of a delta as before whose sub runs count from predicted references. Part of the
/// format.
pub(crate) const FORM_PREDICTED: u8 = 3;
/// The form byte of a delta as before in which some references are those of AArch64 code. Part of
/// the format.
pub(crate) const FORM_PREDICTED_ARM64: u8 = 4;

/// In the diagonals: the same diagonal as before, and the gap is a sub run. Part of the format
/// (docs/format/delta-v1.md §4).
pub(crate) const SAME_DIAGONAL_SUB: u32 = 0;
/// In the diagonals: the same diagonal as before, and the gap is literal. Part of the format.
pub(crate) const SAME_DIAGONAL_LITERAL: u32 = 1;

/// How far a relative reference reaches, both ways, to be predicted. Part of the format
/// (docs/format/delta-v1.md §5.1).
pub(crate) const REACH: i32 = 1 << 28;
