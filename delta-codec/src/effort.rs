//! How hard the encoder tries, as numbers. Nothing here is part of the format.

use crate::zstd::Settings;

/// How many bits an entry of the index has for the number of its block.
pub(crate) const BLOCK_BITS: u32 = 22;
/// Most blocks an entry of the index can name.
pub(crate) const BLOCKS_MAX: usize = 1 << BLOCK_BITS;

/// How much work the encoder may spend. The decoder does not care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effort {
    /// Words of 32 bytes, every 64th position indexed, literals without context, zstd level 1.
    Fast,
    /// Words of 16 bytes, every 16th position indexed (in a window of 128 MiB every 64th), literals
    /// with context, zstd level 1.
    Balanced,
    /// As balanced with twice as large an index, zstd level 3, and 6 for differences.
    High,
    /// As high, then every position of the footprint for what resembles it, zstd level 19, and 17
    /// for differences; 3 to 45 MB/s on native code, so off the request path.
    Max,
}

/// The width of the words the index knows, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordLen {
    Sixteen,
    ThirtyTwo,
}

impl WordLen {
    pub(crate) const fn bytes(self) -> usize {
        match self {
            WordLen::Sixteen => 16,
            WordLen::ThirtyTwo => 32,
        }
    }
}

/// What an effort means for the stages of the encoder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    pub(crate) word_len: WordLen,
    /// Distance of indexed base positions; doubled while there are more than `blocks_max` of them.
    pub(crate) stride: usize,
    /// Most words the index knows: three quarters of the slots of a table, or as many as its
    /// entries can name.
    pub(crate) blocks_max: usize,
    /// Compression of the three instruction streams.
    pub(crate) instructions: Settings,
    /// Compression of sub bytes, or of the distances in their place.
    pub(crate) sub: Settings,
    /// Compression of words.
    pub(crate) words: Settings,
    /// Compression of the literals.
    pub(crate) literals: Settings,
    /// Whether literals are compressed over the base bytes around them.
    pub(crate) context: bool,
    /// Whether the target is matched once more, densely, within the footprint.
    pub(crate) fine: bool,
    /// Whether references are predicted where that pays.
    pub(crate) predict: bool,
}

impl Effort {
    pub(crate) const fn tuning(self) -> Tuning {
        match self {
            Effort::Fast => Tuning {
                word_len: WordLen::ThirtyTwo,
                stride: 64,
                blocks_max: 3 << 20,
                instructions: Settings::LEVEL_1,
                sub: Settings::DIFFERENCES,
                words: Settings::DIFFERENCES.with_matches_from(4),
                literals: Settings::LEVEL_1.with_matches_from(5),
                context: false,
                fine: false,
                predict: false,
            },
            Effort::Balanced => Tuning {
                word_len: WordLen::Sixteen,
                stride: 16,
                blocks_max: 3 << 20,
                instructions: Settings::LEVEL_3,
                sub: Settings::DIFFERENCES,
                words: Settings::DIFFERENCES.with_matches_from(4),
                literals: Settings::LEVEL_1.with_matches_from(6),
                context: true,
                fine: false,
                predict: false,
            },
            Effort::High => Tuning {
                word_len: WordLen::Sixteen,
                stride: 16,
                blocks_max: BLOCKS_MAX,
                instructions: Settings::LEVEL_3,
                sub: Settings::at_level(6),
                words: Settings::at_level(6),
                literals: Settings::LEVEL_3,
                context: true,
                fine: false,
                predict: false,
            },
            Effort::Max => Tuning {
                word_len: WordLen::Sixteen,
                stride: 16,
                blocks_max: BLOCKS_MAX,
                instructions: Settings::LEVEL_19,
                sub: Settings::at_level(17),
                words: Settings::at_level(17),
                literals: Settings::LEVEL_19,
                context: true,
                fine: true,
                predict: true,
            },
        }
    }
}
