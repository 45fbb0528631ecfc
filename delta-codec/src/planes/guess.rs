//! Whether a segment's bytes are words, and which: judged by a sample.

use super::coding::compress_as;
use super::words::{WIDTH_MAX, Width, WordLayout};
use crate::whole;

/// Below this length a zstd frame is as good.
const LEN_MIN: usize = 4096;
/// Bytes of one sampled piece, and how many of them there are.
const PIECE_LEN: usize = 1024;
const PIECES: usize = 16;
/// A wider word must promise this share of the plain bytes more: narrow ones are read faster.
const WIDER_GAIN: f64 = 1.0 / 256.0;
/// What the places of a word must promise over bytes whose place is not looked at, likewise.
const PLACES_GAIN: f64 = 1.0 / 128.0;
/// How far above what they must be planes may look in an entropy coder: matches, and tensors that
/// begin in other places of a word, make them shorter.
const DOUBT: f64 = 1.0 / 128.0;
/// Bytes of one run that is compressed for a trial, and how many of them there are.
const RUN_LEN: usize = 32 << 10;
const RUNS: usize = 4;
/// A rotation must save this part of the runs: it has to be undone when the segment is read.
const ROTATION_GAIN: usize = 512;
/// Planes must save this part of the runs.
const PLANES_GAIN: usize = 128;

/// How often each byte comes in each place of a word.
type Counts = [[u32; 256]; WIDTH_MAX];

/// The words that promise less than `len_max` bytes; `None` when no words do.
pub fn guess(plain: &[u8], len_max: usize) -> Option<WordLayout> {
    if plain.len() < LEN_MIN {
        return None;
    }
    let sample = pieces_of(plain, PIECE_LEN, PIECES);
    let mut counts = [[0; 256]; WIDTH_MAX];
    for word in sample.as_chunks::<WIDTH_MAX>().0 {
        for (counts, &byte) in counts.iter_mut().zip(word) {
            counts[usize::from(byte)] += 1;
        }
    }
    let of_width = |width| (width, share_of_words(&folded(&counts, width as usize)));
    let mut best = of_width(Width::Two);
    for wider in [Width::Four, Width::Eight].map(of_width) {
        if wider.1 + WIDER_GAIN < best.1 {
            best = wider;
        }
    }
    let (width, share) = best;
    // Bytes that are alike in all places have nothing to be taken apart.
    let differ = share + PLACES_GAIN < share_of_words(&folded(&counts, 1));
    let is_hopeful = differ && (share - DOUBT) * (plain.len() as f64) < len_max as f64;
    is_hopeful.then(|| tried(&pieces_of(plain, RUN_LEN, RUNS), &sample, width)).flatten()
}

/// Pieces of `plain`, all of which begin at a multiple of the widest word; or all of it.
fn pieces_of(plain: &[u8], len: usize, count: usize) -> Vec<u8> {
    if plain.len() <= len * count {
        return plain.to_vec();
    }
    let start = |piece| (plain.len() - len) / (count - 1) * piece / WIDTH_MAX * WIDTH_MAX;
    (0..count).flat_map(|piece| &plain[start(piece)..][..len]).copied().collect()
}

/// The counts of a narrower word's bytes from those of the widest.
fn folded(counts: &Counts, width: usize) -> Vec<[u32; 256]> {
    let mut folded = counts[..width].to_vec();
    for more in counts[width..].chunks(width) {
        for (sum, more) in folded.iter_mut().zip(more) {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
    }
    folded
}

/// What planes of such bytes take in an entropy coder, as a share of the plain bytes.
fn share_of_words(planes: &[[u32; 256]]) -> f64 {
    planes.iter().map(share_of_plane).sum::<f64>() / planes.len() as f64
}

fn share_of_plane(counts: &[u32; 256]) -> f64 {
    let len = f64::from(counts.iter().sum::<u32>());
    let seen = counts.iter().filter(|&&count| count > 0).map(|&count| f64::from(count));
    let bits: f64 = seen.clone().map(|count| count * (len / count).log2()).sum::<f64>() / len.max(1.0);
    // A sample shows less than there is (Miller and Madow, 1955).
    let unseen = (seen.count() as f64 - 1.0) / (2.0 * len.max(1.0) * std::f64::consts::LN_2);
    ((bits + unseen) / 8.0).min(1.0)
}

/// Words as they are, or rotated from wherever the sample is best then: whichever is shorter on the
/// runs. `None` when a frame of them is as short.
fn tried(runs: &[u8], sample: &[u8], width: Width) -> Option<WordLayout> {
    let straight = WordLayout { width, head: 0, rotated: false };
    let head = (0..width as usize)
        .map(|head| (head, share_of_words(&rotated_counts(sample, width as usize, head))))
        .min_by(|one, other| one.1.total_cmp(&other.1))
        .map_or(0, |(head, _)| head);
    let rotated = WordLayout { width, head, rotated: true };
    let mut bytes = Vec::new();
    let mut len_of = |words| {
        bytes.clear();
        compress_as(runs, words, 1, runs.len(), &mut bytes).unwrap_or(runs.len())
    };
    let (straight_len, rotated_len) = (len_of(straight), len_of(rotated));
    let is_rotated = rotated_len + runs.len() / ROTATION_GAIN < straight_len;
    let len = if is_rotated { rotated_len } else { straight_len };
    bytes.clear();
    let frame_len = whole::compress(runs, 1, runs.len(), &mut bytes).unwrap_or(runs.len());
    (len + runs.len() / PLANES_GAIN < frame_len).then_some(if is_rotated { rotated } else { straight })
}

/// The counts of the bytes of rotated words of which the first begins at `head`, in each piece of
/// the sample.
fn rotated_counts(sample: &[u8], width: usize, head: usize) -> Vec<[u32; 256]> {
    let mut counts = vec![[0; 256]; width];
    for word in sample.chunks(PIECE_LEN).flat_map(|piece| piece[head.min(piece.len())..].chunks_exact(width)) {
        let mut carry = word[width - 1] >> 7;
        for (counts, &byte) in counts.iter_mut().zip(word) {
            counts[usize::from(byte << 1 | carry)] += 1;
            carry = byte >> 7;
        }
    }
    counts
}
