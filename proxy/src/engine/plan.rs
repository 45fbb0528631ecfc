//! How content is stored, decided by pure functions from numbers (style: ifs up, fors down).

use super::{
    config::{Compression, EffortSetting},
    facts::Form,
};
use catalog::FormBytes;
use delta_codec::Effort;
use object_format::Coding;
use std::time::Duration;

/// Content up to this many bytes lives in the catalog row instead of the backend.
pub(super) const INLINE_LEN_MAX: u64 = 4 << 10;
/// Shorter content is not worth a base.
pub(super) const DELTA_LEN_MIN: u64 = 8 << 10;
/// Codec jobs that wait longer than this make `auto` choose the fast effort: one upload alone keeps a segment or two waiting.
pub(super) const AUTO_FAST_QUEUE: Duration = Duration::from_millis(200);
/// Deltas one base may carry (hazard E8).
pub(super) const FAN_IN_MAX: u64 = 1_000;
/// Useless trials after which a region stops looking at its base.
pub(super) const USELESS_TRIALS_MAX: u32 = 2;

/// Why content is stored as it is: label of `deltaweir_plan_total` and the reason header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// No bytes.
    Empty,
    /// The bucket's compression is off.
    CompressionOff,
    /// The bucket compresses without bases.
    ZstdOnly,
    /// Too short for a base.
    Small,
    /// Nothing like it was found.
    NoBase,
    /// A base was tried and did not help.
    BaseUseless,
    /// A base helped.
    SimilarBase,
    /// Random-looking content.
    Incompressible,
    /// The same bytes were there already.
    Duplicate,
    /// No memory for a base window just then.
    Busy,
    /// The series has drifted from its base: this version is to be the next base.
    Rebased,
}

impl Reason {
    /// Its name in headers and metric labels.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::CompressionOff => "compression-off",
            Self::ZstdOnly => "zstd-only",
            Self::Small => "small",
            Self::NoBase => "no-base",
            Self::BaseUseless => "base-useless",
            Self::SimilarBase => "similar-base",
            Self::Incompressible => "incompressible",
            Self::Duplicate => "duplicate",
            Self::Busy => "busy",
            Self::Rebased => "rebased",
        }
    }
}

/// How a base search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BaseOutcome {
    /// Not looked for: the bucket or the length forbids it.
    NotWanted,
    /// Looked for, none found.
    None,
    /// Found, but no memory for its window.
    Busy,
    /// Found, but the series has drifted from it.
    Drifted,
    /// Found and tried.
    Tried,
}

/// The coding of one segment: a delta when it takes at most five eighths of what the segment takes alone (a delta costs its base's bytes to read, and
/// cannot be a base itself), zstd when it saves a thirty-second, else raw.
pub(super) fn pick_coding(plain_len: usize, delta_len: Option<usize>, zstd_len: Option<usize>) -> Coding {
    let zstd_len = zstd_len.filter(|len| *len <= plain_len - plain_len / 32);
    let without_base = zstd_len.unwrap_or(plain_len);
    match delta_len {
        Some(len) if len <= without_base / 8 * 5 => Coding::Delta,
        _ if zstd_len.is_some() => Coding::Zstd,
        _ => Coding::Raw,
    }
}

/// True when a series has drifted from its base: its last delta took more than half of what the content would take whole, judged by how far the base
/// itself shrank. The next version is then stored whole and becomes the base of its successors.
pub(super) fn has_drifted(delta: StoredShare, base: StoredShare) -> bool {
    // delta.stored / delta.plain > base.stored / base.plain / 2, in integers that cannot overflow.
    u128::from(delta.stored) * u128::from(base.plain) > u128::from(base.stored) * u128::from(delta.plain) / 2
}

/// Plain bytes and what they take stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StoredShare {
    /// Plain bytes.
    pub(super) plain: u64,
    /// Stored bytes.
    pub(super) stored: u64,
}

/// True when a delta is so short that zstd need not be tried beside it. `zstd_permille` is what zstd alone has made of a segment of the same content,
/// in thousandths of its length; without it only a delta that hardly anything could beat settles the matter (text shrinks to a seventh alone).
pub(super) fn delta_settles_it(plain_len: usize, delta_len: usize, zstd_permille: Option<u32>) -> bool {
    // Half of what zstd gave elsewhere leaves room for segments that shrink better than that one did.
    let bar = zstd_permille.map_or(0, |permille| plain_len / 1000 * permille as usize / 2);
    delta_len <= bar.max(plain_len / 100)
}

/// The majority form by plain bytes, and why.
pub(super) fn form_of(
    forms: &FormBytes,
    compression: Compression,
    base: BaseOutcome,
    plain_len: u64,
) -> (Form, Reason) {
    let form = if forms.delta_plain >= forms.zstd_plain.max(forms.raw_plain) && forms.delta_plain > 0 {
        Form::Delta
    } else if forms.zstd_plain >= forms.raw_plain && forms.zstd_plain > 0 {
        Form::Zstd
    } else {
        Form::Raw
    };
    let reason = match (form, compression, base) {
        _ if plain_len == 0 => Reason::Empty,
        (_, Compression::Off, _) => Reason::CompressionOff,
        (Form::Delta, ..) => Reason::SimilarBase,
        (Form::Raw, _, BaseOutcome::NotWanted | BaseOutcome::None) => Reason::Incompressible,
        (_, Compression::Zstd, _) => Reason::ZstdOnly,
        (_, _, BaseOutcome::NotWanted) => Reason::Small,
        (_, _, BaseOutcome::None) => Reason::NoBase,
        (_, _, BaseOutcome::Busy) => Reason::Busy,
        (_, _, BaseOutcome::Drifted) => Reason::Rebased,
        (_, _, BaseOutcome::Tried) => Reason::BaseUseless,
    };
    (form, reason)
}

/// The effort of an upload that begins now. `auto` is balanced while codec jobs start at once and fast while they wait.
pub(super) fn effort_for(setting: EffortSetting, codec_queue: Duration) -> Effort {
    match setting {
        EffortSetting::Fast => Effort::Fast,
        EffortSetting::Balanced => Effort::Balanced,
        EffortSetting::High => Effort::High,
        EffortSetting::Max => Effort::Max,
        EffortSetting::Auto if codec_queue > AUTO_FAST_QUEUE => Effort::Fast,
        EffortSetting::Auto => Effort::Balanced,
    }
}

/// zstd level for segments without a base.
pub(super) fn zstd_level(effort: Effort) -> i32 {
    match effort {
        Effort::Fast | Effort::Balanced => 1,
        Effort::High => 3,
        Effort::Max => 19,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_must_take_at_most_five_eighths_of_what_the_segment_takes_alone() {
        assert_eq!(pick_coding(1000, Some(310), Some(500)), Coding::Delta);
        assert_eq!(pick_coding(1000, Some(320), Some(500)), Coding::Zstd);
        assert_eq!(pick_coding(1000, Some(625), None), Coding::Delta);
        assert_eq!(pick_coding(1000, Some(640), None), Coding::Raw);
        assert_eq!(pick_coding(1000, None, Some(990)), Coding::Raw);
        assert_eq!(pick_coding(1, None, None), Coding::Raw);
    }

    #[test]
    fn a_delta_settles_it_only_beside_what_zstd_has_shown() {
        assert!(!delta_settles_it(4_194_304, 569_888, None), "a seventh may be what zstd gives alone");
        assert!(!delta_settles_it(4_194_304, 569_888, Some(140)));
        assert!(delta_settles_it(4_194_304, 300_000, Some(350)));
        assert!(delta_settles_it(4_194_304, 40_000, None));
    }

    #[test]
    fn a_series_has_drifted_when_its_delta_takes_half_of_what_whole_content_takes() {
        let base = StoredShare { plain: 1000, stored: 400 };
        assert!(!has_drifted(StoredShare { plain: 2000, stored: 400 }, base));
        assert!(has_drifted(StoredShare { plain: 2000, stored: 401 }, base));
        let huge = StoredShare { plain: u64::MAX, stored: u64::MAX };
        assert!(has_drifted(huge, huge));
    }

    #[test]
    fn the_majority_of_bytes_names_the_form() {
        let forms = FormBytes { raw_plain: 10, zstd_plain: 20, zstd_stored: 5, delta_plain: 30, delta_stored: 1 };
        assert_eq!(form_of(&forms, Compression::Delta, BaseOutcome::Tried, 60), (Form::Delta, Reason::SimilarBase));
        let forms = FormBytes { raw_plain: 10, ..FormBytes::default() };
        assert_eq!(form_of(&forms, Compression::Delta, BaseOutcome::Tried, 10), (Form::Raw, Reason::BaseUseless));
        assert_eq!(
            form_of(&FormBytes::default(), Compression::Zstd, BaseOutcome::NotWanted, 0),
            (Form::Raw, Reason::Empty)
        );
    }
}
