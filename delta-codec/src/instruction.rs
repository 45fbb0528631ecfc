//! One copy and what comes before it: the language between the matcher, the footprint and the streams.

/// Shortest copy. Part of the format (docs/format/delta-v1.md §4): copy lengths are stored less this.
pub(crate) const COPY_LEN_MIN: usize = 8;
/// Longest sub run. Part of the format (docs/format/delta-v1.md §5): longer gaps are literals.
pub(crate) const SUB_LEN_MAX: usize = 64;

/// "Then `literal_len` bytes of your own, then `copy_len` bytes of base from `source`."
///
/// A list of them describes a target front to back; what follows the last copy is literal. `source` is a position in the window until
/// [`crate::footprint`] has projected it, and a position in the footprint from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) literal_len: u32,
    pub(crate) copy_len: u32,
    pub(crate) source: u32,
}

/// What one gap before a copy is, once its neighbours are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    None,
    /// Differences to the base bytes of the gap.
    Sub,
    Literal,
}

/// An [`Instruction`] placed in its target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) gap: Gap,
    /// Where the gap begins in the target.
    pub(crate) gap_start: usize,
    pub(crate) gap_len: usize,
    /// Where the copy begins in the target.
    pub(crate) copy_start: usize,
    pub(crate) copy_len: usize,
    pub(crate) source: usize,
    /// Source less target position, and how it changed since the previous copy (or since 0).
    pub(crate) diagonal_change: i32,
}

/// Walks a list of instructions and says where each stands. The one place that knows the sub rule (docs/format/delta-v1.md §5).
///
/// Positions and lengths are below 2^28 (target ≤ 4 MiB, window ≤ 128 MiB), so that no sum or difference here overflows an `i32`.
pub(crate) fn place(instructions: &[Instruction]) -> impl Iterator<Item = Placed> + '_ {
    let mut at = 0usize;
    let mut diagonal = 0i32;
    let mut first = true;
    instructions.iter().map(move |instruction| {
        let gap_len = instruction.literal_len as usize;
        let copy_start = at + gap_len;
        let diagonal_change = (instruction.source as i32 - copy_start as i32) - diagonal;
        let gap = gap_kind(gap_len, first, diagonal_change);
        let placed = Placed {
            gap,
            gap_start: at,
            gap_len,
            copy_start,
            copy_len: instruction.copy_len as usize,
            source: instruction.source as usize,
            diagonal_change,
        };
        at = copy_start + placed.copy_len;
        diagonal += diagonal_change;
        first = false;
        placed
    })
}

/// The sub rule itself.
#[inline(always)]
pub(crate) fn gap_kind(gap_len: usize, first: bool, diagonal_change: i32) -> Gap {
    if gap_len == 0 {
        Gap::None
    } else if !first && diagonal_change == 0 && gap_len <= SUB_LEN_MAX {
        Gap::Sub
    } else {
        Gap::Literal
    }
}
