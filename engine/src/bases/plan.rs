//! How content is stored, decided by pure functions from numbers (style: ifs up, fors down).

use crate::{
    config::{Compression, EffortSetting},
    facts::Form,
};
use catalog::{BlobRow, DeltasSum, FormBytes};
use delta_codec::Effort;
use object_format::Coding;
use serde::{Deserialize, Serialize};

/// Content up to this many bytes lives in the catalog row instead of the backend.
pub(crate) const INLINE_LEN_MAX: u64 = 4 << 10;
/// Shorter content is not worth a base.
pub(crate) const DELTA_LEN_MIN: u64 = 8 << 10;
/// Deltas one base may bear, and their plain bytes (hazard E8).
pub const FAN_IN_MAX: u64 = 1_000;
const FAN_IN_BYTES_MAX: u64 = 64 << 30;
/// From this share of its samples on a target surely has a base.
const OVERLAP_CLEAR: f64 = 0.5;
/// Below this share content that looks random cannot shrink to five eighths: only equal runs help
/// it.
const OVERLAP_RANDOM_MIN: f64 = 0.3;
/// A candidate this much better than the next one needs no trial.
const OVERLAP_LEAD: f64 = 0.1;
/// Where the sketches do not tell, a candidate ranks as if it had this much.
const OVERLAP_UNKNOWN: f64 = 0.25;
/// Base bytes that are fetched for one byte of the target although little speaks for it.
const FETCH_ON_TRUST_MAX: u64 = 64;
/// Base bytes that are worth fetching for one byte of the target, and how many are for any.
const FETCH_PER_BYTE_MAX: u64 = 4;
const FETCH_LEN_MIN: u64 = 1 << 20;
/// Hot content may add one part in so many of what deltas save.
const HEAT_SHARE: u64 = 20;
/// Up to this part of what a sample takes alone, in thousandths, a delta of it leaves hope for the
/// rest.
const DOUBTFUL_PERMILLE_MAX: u32 = 900;
/// Useless trials after which an upload or part stops looking at its bases.
pub(crate) const USELESS_TRIALS_MAX: u32 = 2;

/// Why content is stored as it is: label of `deltaweir_plan_total` and the reason header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
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
    /// Small, and packed with others of its bucket.
    Packed,
    /// The codec was saturated: stored now, encoded better later.
    Deferred,
    /// A delta that was read often, made whole for as long as it is.
    Hot,
}

impl Reason {
    /// Its name in headers and metric labels.
    pub(crate) fn as_str(self) -> &'static str {
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
            Self::Packed => "packed",
            Self::Deferred => "deferred",
            Self::Hot => "hot",
        }
    }
}

/// Stored bytes that hot content may add to those it adds now: all of it together at most a
/// twentieth of what deltas save. `saved` is what they save now, `spent` what hot content adds.
pub(crate) fn heat_left(saved: u64, spent: u64) -> u64 {
    (saved.saturating_add(spent) / HEAT_SHARE).saturating_sub(spent)
}

/// The most stored bytes that a delta adds when it is made whole: it may be raw, with its tables
/// and seals.
pub(crate) fn growth_max(delta: &BlobRow) -> u64 {
    let whole_max = delta.plain_len.saturating_add(delta.plain_len / 512).saturating_add(4096);
    whole_max.saturating_sub(delta.stored_len)
}

/// How a base search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BaseOutcome {
    /// Not looked for: the bucket or the length forbids it.
    NotWanted,
    /// Looked for, none found.
    None,
    /// Found, but no memory for its window.
    Busy,
    /// Found, but the series has drifted from it.
    Drifted,
    /// Found, but a trial said that it would not help.
    Useless,
    /// Not looked for, or not used throughout: the codec was saturated.
    Deferred,
    /// Found and tried.
    Tried,
}

/// What is known of a base before its bytes are fetched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prospect {
    /// The share of the target's samples that the base has; `None` where the sketches do not tell.
    pub(crate) overlap: Option<f64>,
    /// Its name speaks for it.
    pub(crate) by_name: bool,
    /// The target looks random.
    pub(crate) looks_random: bool,
    /// Base bytes that would be fetched.
    pub(crate) fetch_bytes: u64,
    /// Target bytes it would be fetched for, as far as they are known.
    pub(crate) target_bytes: u64,
}

/// What a prospect is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// Surely a base.
    Good,
    /// A trial will tell.
    Doubtful,
    /// Not worth fetching a byte of it.
    Poor,
}

/// Decides from sketches, entropy and cost whether a base is worth fetching.
pub(crate) fn outlook(prospect: &Prospect) -> Outlook {
    match prospect.overlap {
        Some(overlap) if overlap >= OVERLAP_CLEAR => Outlook::Good,
        Some(overlap) if prospect.looks_random && overlap < OVERLAP_RANDOM_MIN => Outlook::Poor,
        // Little in common as far as is known, and a fetch out of proportion.
        overlap
            if overlap.is_none_or(|overlap| overlap < OVERLAP_UNKNOWN)
                && prospect.fetch_bytes / FETCH_ON_TRUST_MAX > prospect.target_bytes =>
        {
            Outlook::Poor
        }
        // Where nothing is equal for 64 bytes on end only a name lets hope for shorter runs.
        Some(overlap) if overlap <= 0.0 && !prospect.by_name => Outlook::Poor,
        _ => Outlook::Doubtful,
    }
}

/// Where a candidate stands among others.
pub(crate) fn rank_of(overlap: Option<f64>) -> f64 {
    overlap.unwrap_or(OVERLAP_UNKNOWN)
}

/// True when the best candidate needs no trial; `lead` is its rank minus the next one's.
pub(crate) fn is_clear(outlook: Outlook, lead: Option<f64>) -> bool {
    outlook == Outlook::Good && leads(lead)
}

/// Whether a candidate is well ahead of the next one; `None`: there is no other.
pub(crate) fn leads(lead: Option<f64>) -> bool {
    lead.is_none_or(|lead| lead >= OVERLAP_LEAD)
}

/// True when bases that together have this share of a target's samples are surely worth it.
pub(crate) fn covers(coverage: f64) -> bool {
    coverage >= OVERLAP_CLEAR
}

/// Base bytes that are worth having for a target of so many bytes: a power of two, so that targets
/// of similar length share windows.
pub(crate) fn reach_of(target_bytes: Option<u64>) -> u64 {
    target_bytes.map_or(u64::MAX, |bytes| {
        bytes.saturating_mul(FETCH_PER_BYTE_MAX).checked_next_power_of_two().unwrap_or(u64::MAX).max(FETCH_LEN_MIN)
    })
}

/// Whether content that takes so many bytes alone says something about a base: zeros are found in
/// any, and need none.
pub(crate) fn tells_of_a_base(plain_len: usize, alone: usize) -> bool {
    alone > plain_len / 8
}

/// A sample of the target, encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trial {
    /// What it takes without a base.
    pub(crate) alone: usize,
    /// What it takes as a delta; `None` when there is none worth the name.
    pub(crate) delta: Option<usize>,
}

impl Trial {
    /// True when the delta is short enough. `is_watched`: the series is re-based when its deltas
    /// grow (`drift.rs`); where nothing watches, a delta of more than half is not taken, so
    /// that the next object finds a better base.
    pub(crate) fn helps(self, is_watched: bool) -> bool {
        let (part, of) = if is_watched { (5, 8) } else { (1, 2) };
        self.delta.is_some_and(|delta| delta <= self.alone / of * part)
    }

    /// True when the sample gains something, and all of it may gain enough. Content that has
    /// nothing to do with its base takes about as much as a delta as alone, or is no delta at all.
    pub(crate) fn leaves_doubt(self) -> bool {
        !self.helps(false) && self.permille().is_some_and(|permille| permille <= DOUBTFUL_PERMILLE_MAX)
    }

    /// The delta in thousandths of what the sample takes alone.
    pub(crate) fn permille(self) -> Option<u32> {
        let permille = self.delta?.saturating_mul(1000) / self.alone.max(1);
        Some(u32::try_from(permille).unwrap_or(u32::MAX))
    }
}

/// True while a base that bears these deltas may get another one.
pub(crate) fn may_bear_another(sum: DeltasSum) -> bool {
    sum.deltas < FAN_IN_MAX && sum.plain_bytes < FAN_IN_BYTES_MAX
}

/// The coding of one segment: a delta when it takes at most five eighths of what the segment takes
/// alone (a delta costs its base's bytes to read, and cannot be a base itself), what it is alone
/// (zstd or planes) when that saves a thirty-second, else raw.
pub(crate) fn pick_coding(plain_len: usize, delta_len: Option<usize>, alone: Option<(Coding, usize)>) -> Coding {
    let alone = alone.filter(|(_, len)| *len <= plain_len - plain_len / 32);
    let without_base = alone.map_or(plain_len, |(_, len)| len);
    match delta_len {
        Some(len) if len <= without_base / 8 * 5 => Coding::Delta,
        _ => alone.map_or(Coding::Raw, |(coding, _)| coding),
    }
}

/// What planes must be shorter than to be stored, given what zstd made of a segment; `None` when it
/// needs no second look: numbers do not shrink to half in zstd unless their planes shrink no
/// further. A sixty-fourth of the segment is what reading the planes must save.
pub(crate) fn planes_len_max(plain_len: usize, zstd_len: Option<usize>) -> Option<usize> {
    let zstd_len = zstd_len.unwrap_or(plain_len);
    (zstd_len > plain_len / 2).then(|| zstd_len - plain_len / 64)
}

/// The coding of one segment over a base whose streams are opened: a view when it takes at most
/// nine tenths of what the segment takes alone (it costs its base's text to read), else as
/// [`pick_coding`] without a base.
pub(crate) fn pick_view(plain_len: usize, view_len: Option<usize>, alone: Option<(Coding, usize)>) -> Coding {
    let without_base = pick_coding(plain_len, None, alone);
    let len = alone.filter(|_| without_base != Coding::Raw).map_or(plain_len, |(_, len)| len);
    if view_len.is_some_and(|view_len| view_len <= len / 10 * 9) { Coding::View } else { without_base }
}

/// True when content is worth having in a view of `after` payload bytes: a tenth less than it takes
/// now, and no more than five eighths of what it takes whole, as for deltas. `whole` is its length
/// where it has no whole form.
pub(crate) fn view_gains(before: u64, whole: u64, after: u64) -> bool {
    after <= before / 10 * 9 && after <= whole / 8 * 5
}

/// True when plain content over the text of an archive takes so much less than otherwise that its
/// reads may open the archive: a fifth.
pub(crate) fn text_is_better(otherwise: u64, in_text: u64) -> bool {
    in_text <= otherwise / 5 * 4
}

/// Nanoseconds of decoding that a byte saved by a view may cost, by the bucket's effort; `None` for
/// any time (docs/decisions/0088-a-price-for-each-effort.md). A segment is decoded at one byte in
/// so many nanoseconds at least.
pub(crate) fn view_ns_per_byte_max(effort: EffortSetting) -> Option<u64> {
    match effort {
        EffortSetting::Fast | EffortSetting::Balanced => Some(11),
        EffortSetting::Auto => Some(200),
        EffortSetting::High | EffortSetting::Max => None,
    }
}

/// True when a view of `stored` bytes saves enough of what its segment takes `alone` for the time
/// that decoding it takes.
pub(crate) fn view_is_worth_reading(alone: u64, stored: u64, reading_ns: u64, ns_per_byte_max: Option<u64>) -> bool {
    ns_per_byte_max.is_none_or(|most| reading_ns <= alone.saturating_sub(stored).saturating_mul(most))
}

/// True when `after` bytes are not noticeably more than `before`: a thirty-second, by which stored
/// content is said to shrink as well.
pub(crate) fn is_as_short(before: u64, after: u64) -> bool {
    after <= before.saturating_add(before / 32)
}

/// True when a base that is kept only for deltas costs more than a quarter of what they save,
/// judged by how far the base itself shrank. This bounds what is kept for nothing else, and a
/// re-base to a few deltas: where many profit from a base it stays.
pub(crate) fn is_a_burden(base: StoredShare, deltas: impl Iterator<Item = StoredShare>) -> bool {
    let whole = |plain: u64| u128::from(plain) * u128::from(base.stored) / u128::from(base.plain.max(1));
    let saved: u128 = deltas.map(|delta| whole(delta.plain).saturating_sub(delta.stored.into())).sum();
    u128::from(base.stored) * 4 > saved
}

/// Plain bytes and what they take stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredShare {
    /// Plain bytes.
    pub(crate) plain: u64,
    /// Stored bytes.
    pub(crate) stored: u64,
}

/// What zstd or planes made of whole content, in thousandths of its length. `None` where little of
/// it is either: what was stored raw may have been stored in a hurry.
pub(crate) fn alone_permille_of(whole: &FormBytes) -> Option<u32> {
    let enough = whole.zstd_plain > 0 && whole.zstd_plain >= whole.raw_plain;
    let permille = || u128::from(whole.zstd_stored) * 1000 / u128::from(whole.zstd_plain);
    enough.then(|| u32::try_from(permille()).unwrap_or(u32::MAX))
}

/// True when a delta is so short that nothing else need be tried beside it. `alone_permille` is
/// what the base or a segment of the same content takes without a base, in thousandths of its
/// length; without it only a delta that hardly anything could beat settles the matter (text shrinks
/// to a seventh alone).
pub(crate) fn delta_settles_it(plain_len: usize, delta_len: usize, alone_permille: Option<u32>) -> bool {
    // Half of what zstd gave elsewhere leaves room for segments that shrink better than that one
    // did.
    let bar = alone_permille.map_or(0, |permille| plain_len / 1000 * permille as usize / 2);
    delta_len <= bar.max(plain_len / 100)
}

/// The form that most plain bytes have; a delta wins a draw, and zstd one with raw.
pub(crate) fn majority(forms: &FormBytes) -> Form {
    if forms.delta_plain >= forms.zstd_plain.max(forms.raw_plain) && forms.delta_plain > 0 {
        Form::Delta
    } else if forms.zstd_plain >= forms.raw_plain && forms.zstd_plain > 0 {
        Form::Zstd
    } else {
        Form::Raw
    }
}

/// The majority form by plain bytes, and why.
pub(crate) fn form_of(
    forms: &FormBytes,
    compression: Compression,
    base: BaseOutcome,
    plain_len: u64,
) -> (Form, Reason) {
    let form = majority(forms);
    let reason = match (form, compression, base) {
        _ if plain_len == 0 => Reason::Empty,
        (_, Compression::Off, _) => Reason::CompressionOff,
        (Form::Delta, ..) => Reason::SimilarBase,
        (Form::Raw, _, BaseOutcome::NotWanted | BaseOutcome::None) => Reason::Incompressible,
        (_, Compression::Zstd, _) => Reason::ZstdOnly,
        (_, _, BaseOutcome::Deferred) => Reason::Deferred,
        (_, _, BaseOutcome::NotWanted) => Reason::Small,
        (_, _, BaseOutcome::None) => Reason::NoBase,
        (_, _, BaseOutcome::Busy) => Reason::Busy,
        (_, _, BaseOutcome::Drifted) => Reason::Rebased,
        (_, _, BaseOutcome::Tried | BaseOutcome::Useless) => Reason::BaseUseless,
    };
    (form, reason)
}

/// zstd level for segments without a base.
pub(crate) fn zstd_level(effort: Effort) -> i32 {
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
    fn heat_spends_a_twentieth_of_what_deltas_save_however_often_it_is_asked() {
        for (saved, spent, left) in [(0, 0, 0), (2000, 0, 100), (1940, 60, 40), (1900, 100, 0), (500, 100, 0)] {
            assert_eq!(heat_left(saved, spent), left, "{saved} saved, {spent} spent");
        }
    }

    #[test]
    fn a_delta_must_take_at_most_five_eighths_of_what_the_segment_takes_alone() {
        let zstd = |len| Some((Coding::Zstd, len));
        assert_eq!(pick_coding(1000, Some(310), zstd(500)), Coding::Delta);
        assert_eq!(pick_coding(1000, Some(320), zstd(500)), Coding::Zstd);
        assert_eq!(pick_coding(1000, Some(320), Some((Coding::Planes, 500))), Coding::Planes);
        assert_eq!(pick_coding(1000, Some(310), Some((Coding::Planes, 500))), Coding::Delta);
        assert_eq!(pick_coding(1000, Some(625), None), Coding::Delta);
        assert_eq!(pick_coding(1000, Some(640), None), Coding::Raw);
        assert_eq!(pick_coding(1000, None, zstd(990)), Coding::Raw);
        assert_eq!(pick_coding(1, None, None), Coding::Raw);
    }

    #[test]
    fn planes_are_tried_where_zstd_does_poorly_and_must_save_a_sixty_fourth_more() {
        assert_eq!(planes_len_max(6400, None), Some(6300));
        assert_eq!(planes_len_max(6400, Some(5000)), Some(4900));
        assert_eq!(planes_len_max(6400, Some(3200)), None, "half is not poor");
        assert_eq!(planes_len_max(0, None), None);
    }

    #[test]
    fn a_delta_settles_it_only_beside_what_zstd_has_shown() {
        assert!(!delta_settles_it(4_194_304, 569_888, None), "a seventh may be what zstd gives alone");
        assert!(!delta_settles_it(4_194_304, 569_888, Some(140)));
        assert!(delta_settles_it(4_194_304, 300_000, Some(350)));
        assert!(delta_settles_it(4_194_304, 40_000, None));
    }

    #[test]
    fn what_zstd_made_of_a_base_counts_where_most_of_it_is_zstd() {
        let of = |raw_plain, zstd_plain, zstd_stored| {
            alone_permille_of(&FormBytes { raw_plain, zstd_plain, zstd_stored, ..FormBytes::default() })
        };
        assert_eq!(of(0, 0, 0), None);
        assert_eq!(of(1000, 999, 100), None);
        assert_eq!(of(500, 2000, 400), Some(200));
        assert_eq!(of(0, u64::MAX, u64::MAX), Some(1000));
    }

    fn prospect(overlap: Option<f64>, by_name: bool, looks_random: bool) -> Prospect {
        Prospect { overlap, by_name, looks_random, fetch_bytes: 4 << 20, target_bytes: 4 << 20 }
    }

    #[test]
    fn a_base_is_fetched_only_when_something_speaks_for_it() {
        assert_eq!(outlook(&prospect(Some(0.6), false, true)), Outlook::Good);
        assert_eq!(outlook(&prospect(Some(0.2), true, true)), Outlook::Poor, "random bytes need equal runs");
        assert_eq!(outlook(&prospect(Some(0.0), false, false)), Outlook::Poor);
        assert_eq!(outlook(&prospect(Some(0.0), true, false)), Outlook::Doubtful, "short runs may be equal");
        assert_eq!(outlook(&prospect(Some(0.1), false, false)), Outlook::Doubtful);
        assert_eq!(outlook(&prospect(None, true, true)), Outlook::Doubtful, "no sketch, no verdict");
        let dear = Prospect { fetch_bytes: 128 << 20, target_bytes: 100_000, ..prospect(Some(0.1), true, false) };
        assert_eq!(outlook(&dear), Outlook::Poor);
        assert_eq!(outlook(&Prospect { overlap: Some(0.7), ..dear }), Outlook::Good);
    }

    #[test]
    fn a_clear_leader_needs_no_trial() {
        assert!(is_clear(Outlook::Good, None));
        assert!(is_clear(Outlook::Good, Some(0.2)));
        assert!(!is_clear(Outlook::Good, Some(0.05)));
        assert!(!is_clear(Outlook::Doubtful, None));
    }

    #[test]
    fn a_trial_helps_from_five_eighths_or_half_on() {
        let trial = |delta| Trial { alone: 800, delta };
        assert!(trial(Some(500)).helps(true) && !trial(Some(501)).helps(true));
        assert!(trial(Some(400)).helps(false) && !trial(Some(401)).helps(false));
        assert!(!trial(None).helps(true));
        assert_eq!(trial(Some(400)).permille(), Some(500));
        let leaves_doubt = |delta| trial(delta).leaves_doubt();
        assert!(!leaves_doubt(Some(400)) && leaves_doubt(Some(401)) && leaves_doubt(Some(720)));
        assert!(!leaves_doubt(Some(721)) && !leaves_doubt(None), "other content is not looked at twice");
    }

    #[test]
    fn a_view_is_taken_when_it_is_smaller_by_a_tenth() {
        assert_eq!(pick_view(1000, Some(900), None), Coding::View);
        assert_eq!(pick_view(1000, Some(901), None), Coding::Raw);
        assert_eq!(pick_view(1000, Some(450), Some((Coding::Zstd, 500))), Coding::View);
        assert_eq!(pick_view(1000, Some(451), Some((Coding::Zstd, 500))), Coding::Zstd);
        assert_eq!(pick_view(1000, Some(451), Some((Coding::Planes, 500))), Coding::Planes);
        assert_eq!(pick_view(1000, None, Some((Coding::Zstd, 990))), Coding::Raw);
        assert!(view_is_worth_reading(1000, 400, 48_000, Some(80)), "600 bytes at 80 ns");
        assert!(!view_is_worth_reading(1000, 400, 48_001, Some(80)));
        assert!(view_is_worth_reading(1000, 400, u64::MAX, None) && !view_is_worth_reading(400, 400, 1, Some(80)));
        assert!(text_is_better(1000, 800) && !text_is_better(1000, 801));
        assert!(view_gains(1000, 1000, 620) && !view_gains(1000, 1000, 626) && !view_gains(600, 1000, 550));
    }

    #[test]
    fn a_base_bears_a_thousand_deltas_or_64_gib() {
        let bears = |deltas, plain_bytes| may_bear_another(DeltasSum { deltas, plain_bytes, ..DeltasSum::default() });
        assert!(bears(999, (64 << 30) - 1));
        assert!(!bears(1000, 0) && !bears(0, 64 << 30));
    }

    proptest::proptest! {
        #[test]
        fn more_in_common_is_never_a_worse_outlook(
            a in 0.0f64..1.0, b in 0.0f64..1.0, by_name: bool, looks_random: bool, fetch in 0u64..1 << 40, target in 1u64..1 << 40
        ) {
            let of = |overlap| Prospect {
                overlap: Some(overlap), by_name, looks_random, fetch_bytes: fetch, target_bytes: target
            };
            let worth = |outlook| match outlook { Outlook::Poor => 0, Outlook::Doubtful => 1, Outlook::Good => 2 };
            proptest::prop_assert!(worth(outlook(&of(a.max(b)))) >= worth(outlook(&of(a.min(b)))));
        }

        #[test]
        fn the_reach_covers_the_target_four_times_and_little_more(bytes in 0u64..1 << 60) {
            let reach = reach_of(Some(bytes));
            proptest::prop_assert!(reach >= bytes * 4 && (reach == 1 << 20 || reach < bytes * 8 + 8));
        }
    }

    #[test]
    fn a_base_that_nobody_names_is_a_burden_unless_it_saves_four_times_its_bytes() {
        let base = StoredShare { plain: 1000, stored: 500 };
        let deltas = |count| std::iter::repeat_n(StoredShare { plain: 1000, stored: 50 }, count);
        assert!(is_a_burden(base, deltas(1)));
        assert!(is_a_burden(base, deltas(4)), "4 × 450 < 4 × 500");
        assert!(!is_a_burden(base, deltas(5)));
        assert!(is_a_burden(base, std::iter::empty()));
        let huge = StoredShare { plain: u64::MAX, stored: u64::MAX };
        assert!(is_a_burden(huge, std::iter::repeat_n(huge, 100)), "deltas as long as their content save nothing");
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
