//! zstd contexts that are kept between frames, for frames that may have a prefix.

use std::fmt;

use ::zstd::zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat, ParamSwitch, ResetDirective, Strategy};

use crate::error::DecodeError;
use crate::frame;
use crate::room;

/// How hard zstd tries. Not part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    level: i32,
    /// The shortest match looked for, where that is not the level's own.
    min_match: Option<u32>,
    /// Entries (as a power of two) of the hash and the chain table without a prefix, where they are
    /// not the level's own.
    table_logs: Option<(u32, u32)>,
    /// With a prefix, the match tables have at least 2^(window log - this) entries. At zstd's own
    /// size, meant for an input without prefix, most of a long prefix is forgotten before the first
    /// byte is compressed.
    table_shift: u32,
    /// … and at most 2^this: level 1 spends more time on cache misses in a larger table than its
    /// matches are worth.
    table_log_max: u32,
    /// No matches are looked for: the entropy coder alone.
    literals_only: bool,
}

impl Settings {
    pub(crate) const LEVEL_1: Self = Self::at_level(1).with_tables(3, 16);
    pub(crate) const LEVEL_3: Self = Self::at_level(3).with_tables(2, 22);
    pub(crate) const LEVEL_19: Self = Self::at_level(19).with_tables(1, 24);
    /// For differences, at level 1's speed: mostly zeros, what repeats is short and near, so that
    /// small tables find it.
    pub(crate) const DIFFERENCES: Self = Self { table_logs: Some((15, 14)), ..Self::at_level(3).with_matches_from(5) };

    /// For a plane of exponents: no two of them have to do with each other.
    pub(crate) const LITERALS: Self = Self { literals_only: true, ..Self::at_level(1) };

    /// A level as it is.
    pub(crate) const fn at_level(level: i32) -> Self {
        Self { level, min_match: None, table_logs: None, table_shift: 3, table_log_max: 24, literals_only: false }
    }

    /// With matches as short as `min_match`: what is left of a target is short.
    pub(crate) const fn with_matches_from(self, min_match: u32) -> Self {
        Self { min_match: Some(min_match), ..self }
    }

    const fn with_tables(self, table_shift: u32, table_log_max: u32) -> Self {
        Self { table_shift, table_log_max, ..self }
    }
}

/// Smallest and largest window (docs/format/delta-v1.md §4 bounds the latter).
const WINDOW_LOG: std::ops::RangeInclusive<u32> = 10..=27;
/// About the largest table (hash, chain) that the levels below 10 have by themselves: a prefix
/// raises them, unless the settings have a smaller bound.
const TABLE_LOG_MIN: u32 = 17;
/// Most bytes of a block, and the largest step there is.
const BLOCK_LEN_MAX: u32 = 128 << 10;

/// Which of two shapes a frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Without magic, header saying nothing but the window (docs/format/delta-v1.md §4).
    Bare,
    /// As `zstd` writes it.
    Ordinary,
}

/// A compression context that lives as long as its thread's encoder.
#[derive(Default)]
pub(crate) struct Compressor {
    context: Option<CCtx<'static>>,
    scratch: Vec<u8>,
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").finish_non_exhaustive()
    }
}

impl Compressor {
    /// Bytes that it keeps between two frames.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.context.as_ref().map_or(0, CCtx::sizeof) + self.scratch.capacity()
    }

    /// The frame of `plain` after `prefix`, or `None` when it would be longer than `len_max` (or
    /// the library fails).
    pub(crate) fn compress(
        &mut self,
        kind: FrameKind,
        plain: &[u8],
        prefix: &[u8],
        settings: Settings,
        len_max: usize,
    ) -> Option<&[u8]> {
        let room = ::zstd::zstd_safe::compress_bound(plain.len()).min(len_max);
        let mut context: CCtx<'_> = self.context.take().or_else(CCtx::try_create)?;
        let written = compress_once(&mut context, kind, plain, prefix, settings, room::of(&mut self.scratch, room));
        if context.reset(ResetDirective::SessionAndParameters).is_ok() {
            // SAFETY: only the lifetime changes. It stands for the prefix, which zstd refers to for
            // the one frame after `ref_prefix`; the reset that has just succeeded dropped every
            // reference to it.
            #[allow(unsafe_code)]
            let context = unsafe { std::mem::transmute::<CCtx<'_>, CCtx<'static>>(context) };
            self.context = Some(context);
        }
        written.map(|len| &self.scratch[..len])
    }
}

fn compress_once<'p>(
    context: &mut CCtx<'p>,
    kind: FrameKind,
    plain: &[u8],
    prefix: &'p [u8],
    settings: Settings,
    room: &mut [u8],
) -> Option<usize> {
    let mut set = |parameter| context.set_parameter(parameter).ok();
    set(CParameter::CompressionLevel(settings.level))?;
    if kind == FrameKind::Bare {
        set(CParameter::Format(FrameFormat::Magicless))?;
        set(CParameter::ContentSizeFlag(false))?;
    }
    if let Some(min_match) = settings.min_match {
        set(CParameter::MinMatch(min_match))?;
    }
    if settings.literals_only {
        // The fastest strategy's step: from one block into the next.
        set(CParameter::Strategy(Strategy::ZSTD_fast))?;
        set(CParameter::TargetLength(BLOCK_LEN_MAX))?;
        set(CParameter::LiteralCompressionMode(ParamSwitch::Enable))?;
    }
    if prefix.is_empty() {
        if let Some((hash_log, chain_log)) = settings.table_logs {
            set(CParameter::HashLog(hash_log))?;
            set(CParameter::ChainLog(chain_log))?;
        }
    } else {
        let reach = plain.len() + prefix.len();
        let window_log = (reach + 1).next_power_of_two().trailing_zeros().clamp(*WINDOW_LOG.start(), *WINDOW_LOG.end());
        let table_log = window_log
            .saturating_sub(settings.table_shift)
            .clamp(TABLE_LOG_MIN.min(settings.table_log_max), settings.table_log_max)
            .min(window_log);
        set(CParameter::WindowLog(window_log))?;
        if settings.level < 10 {
            set(CParameter::HashLog(table_log))?;
            set(CParameter::ChainLog(table_log))?;
        }
        context.ref_prefix(prefix).ok()?;
    }
    context.compress2(room, plain).ok()
}

/// A decompression context that lives as long as its thread's decoder.
#[derive(Default)]
pub(crate) struct Decompressor {
    context: Option<DCtx<'static>>,
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").finish_non_exhaustive()
    }
}

impl Decompressor {
    /// Bytes that it keeps between two frames.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.context.as_ref().map_or(0, DCtx::sizeof)
    }

    /// Fills `plain` from exactly one frame after `prefix`.
    pub(crate) fn decompress(
        &mut self,
        kind: FrameKind,
        frame: &[u8],
        prefix: &[u8],
        plain: &mut [u8],
    ) -> Result<(), DecodeError> {
        match kind {
            FrameKind::Bare => frame::check_bare(frame)?,
            FrameKind::Ordinary => frame::check_ordinary(frame, plain.len())?,
        }
        let no_memory = DecodeError("no memory for a zstd context");
        let mut context: DCtx<'_> = self.context.take().or_else(DCtx::try_create).ok_or(no_memory)?;
        let written = decompress_once(&mut context, kind, frame, prefix, plain);
        if context.reset(ResetDirective::SessionAndParameters).is_ok() {
            // SAFETY: only the lifetime changes. It stands for the prefix, which zstd refers to for
            // the one frame after `ref_prefix`; the reset that has just succeeded dropped every
            // reference to it.
            #[allow(unsafe_code)]
            let context = unsafe { std::mem::transmute::<DCtx<'_>, DCtx<'static>>(context) };
            self.context = Some(context);
        }
        if written? == plain.len() { Ok(()) } else { Err(DecodeError("a zstd frame holds too little")) }
    }
}

fn decompress_once<'p>(
    context: &mut DCtx<'p>,
    kind: FrameKind,
    frame: &[u8],
    prefix: &'p [u8],
    plain: &mut [u8],
) -> Result<usize, DecodeError> {
    let refused = |_| DecodeError("zstd refuses a frame");
    if kind == FrameKind::Bare {
        context.set_parameter(DParameter::Format(FrameFormat::Magicless)).map_err(refused)?;
    }
    if !prefix.is_empty() {
        context.ref_prefix(prefix).map_err(refused)?;
    }
    context.decompress(plain, frame).map_err(refused)
}
