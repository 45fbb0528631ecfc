//! One copy and what comes before it: the language between the matcher, the footprint and the
//! streams.

/// A target of `len` bytes has at most `len /` this many copies. Part of the format
/// (docs/format/delta-v1.md §3).
pub(crate) const BYTES_PER_COPY_MIN: usize = 8;

/// "Then `gap_len` bytes that are yours or differences, then `copy_len` bytes of base from
/// `source`."
///
/// A list of them describes a target front to back; what follows the last copy is literal. `source`
/// is a position in the window until [`crate::footprint`] has projected it, and a position in the
/// footprint from then on. A copy may be empty: it then only says where a sub run ends, or from
/// where the next one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) gap_len: u32,
    /// The gap is a sub run: differences to the base bytes before `source`. Only on the diagonal of
    /// the copy before (of 0 for the first).
    pub(crate) gap_is_sub: bool,
    pub(crate) copy_len: u32,
    pub(crate) source: u32,
}

impl Instruction {
    /// Of lengths and a place within a target and a window, which are below 4 GiB.
    #[inline(always)]
    pub(crate) fn new(gap_len: usize, gap_is_sub: bool, copy_len: usize, source: usize) -> Self {
        Self { gap_len: gap_len as u32, gap_is_sub, copy_len: copy_len as u32, source: source as u32 }
    }
}

/// What one gap before a copy is.
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
}

impl Placed {
    pub(crate) fn copy_end(&self) -> usize {
        self.copy_start + self.copy_len
    }

    /// The first base byte that the copy or the sub run before it refers to.
    pub(crate) fn base_start(&self) -> usize {
        if self.gap == Gap::Sub { self.source - self.gap_len } else { self.source }
    }

    pub(crate) fn base_end(&self) -> usize {
        self.source + self.copy_len
    }
}

/// A sub run: its places, and both sides of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubRun<'a> {
    pub(crate) source: usize,
    pub(crate) at: usize,
    pub(crate) base: &'a [u8],
    pub(crate) target: &'a [u8],
}

/// Walks a list of instructions and says where each stands.
pub(crate) fn place(instructions: &[Instruction]) -> impl Iterator<Item = Placed> + '_ {
    let mut at = 0usize;
    instructions.iter().map(move |instruction| {
        let gap_len = instruction.gap_len as usize;
        let gap = match instruction.gap_is_sub {
            _ if gap_len == 0 => Gap::None,
            true => Gap::Sub,
            false => Gap::Literal,
        };
        let placed = Placed {
            gap,
            gap_start: at,
            gap_len,
            copy_start: at + gap_len,
            copy_len: instruction.copy_len as usize,
            source: instruction.source as usize,
        };
        at = placed.copy_end();
        placed
    })
}

/// Makes one sub run of two on the same diagonal and the copy between them: that costs less as a
/// part of the run (docs/format/delta-v1.md §5).
pub(crate) fn join_sub_runs(instructions: &mut Vec<Instruction>) {
    let is_sub = |instruction: &Instruction| instruction.gap_is_sub && instruction.gap_len > 0;
    instructions.dedup_by(|next, last| {
        let joined = is_sub(last) && is_sub(next);
        if joined {
            *last = Instruction { gap_len: last.gap_len + last.copy_len + next.gap_len, ..*next };
        }
        joined
    });
}

/// The target that instructions describe, for tests: copies and what sub runs count from are taken
/// from `base`, every other byte from `target`.
#[cfg(test)]
pub(crate) fn rebuild(base: &[u8], target: &[u8], instructions: &[Instruction]) -> Vec<u8> {
    let mut rebuilt = Vec::new();
    let mut previous_end = 0;
    for (instruction, placed) in instructions.iter().zip(place(instructions)) {
        assert_eq!(rebuilt.len(), placed.gap_start);
        if instruction.gap_is_sub {
            assert_eq!(placed.source - placed.gap_len, previous_end, "a sub run off the diagonal");
        }
        previous_end = placed.base_end();
        rebuilt.extend_from_slice(&target[placed.gap_start..placed.copy_start]);
        rebuilt.extend_from_slice(&base[placed.source..placed.base_end()]);
    }
    rebuilt.extend_from_slice(&target[rebuilt.len()..]);
    rebuilt
}
