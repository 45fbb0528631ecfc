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

/// Bytes of a stretch that shows what a frame finds far away: more than the 512 KiB that it looks
/// back at the first level.
const STRETCH_LEN: usize = 640 << 10;
/// Bytes, at least, for which a frame is worth sparing.
const SURE_LEN_MIN: usize = 2 * STRETCH_LEN;
/// What the places of a word must promise where planes are made before a frame.
const SURE_PLACES_GAIN: f64 = 1.0 / 16.0;
/// And what part of a frame's length they must save on the runs and in the segment. It covers what
/// a frame finds between runs, and what runs miss.
const SURE_GAIN: usize = 16;

/// How often each byte comes in each place of a word.
type Counts = [[u32; 256]; WIDTH_MAX];

/// The words that promise less than `len_max` bytes; `None` when no words do.
pub fn guess(plain: &[u8], len_max: usize) -> Option<WordLayout> {
    if plain.len() < LEN_MIN {
        return None;
    }
    let sample = pieces_of(plain, PIECE_LEN, PIECES);
    let (width, share, places_gain) = best_width(&sample);
    // Bytes that are alike in all places have nothing to be taken apart.
    let is_hopeful = places_gain > PLACES_GAIN && (share - DOUBT) * (plain.len() as f64) < len_max as f64;
    let runs = is_hopeful.then(|| pieces_of(plain, RUN_LEN, RUNS))?;
    let (words, len) = tried(&runs, &sample, width);
    (len + runs.len() / PLANES_GAIN < frame_len(&runs)).then_some(words)
}

/// The words whose planes are so much shorter than a frame of level 1, as far as samples tell, that
/// the frame need not be made; and the length that planes must keep below for that. `None` where
/// only the frame can tell.
///
/// Where places in a word tell nothing this takes some hundredths of a millisecond, elsewhere up to
/// a quarter of what the frame of a segment takes.
pub fn guess_surely(plain: &[u8]) -> Option<(WordLayout, usize)> {
    if plain.len() < SURE_LEN_MIN {
        return None;
    }
    let sample = pieces_of(plain, PIECE_LEN, PIECES);
    let (width, _, places_gain) = best_width(&sample);
    let runs = (places_gain > SURE_PLACES_GAIN).then(|| pieces_of(plain, RUN_LEN, RUNS))?;
    let of_runs = frame_len(&runs);
    if of_runs <= runs.len() / 8 * 5 {
        return None;
    }
    let (words, len) = tried(&runs, &sample, width);
    let below = |frame: usize| frame - frame / SURE_GAIN;
    if len >= below(of_runs) {
        return None;
    }
    let of_stretch = frame_len(&plain[(plain.len() - STRETCH_LEN) / 2..][..STRETCH_LEN]);
    let of_plain = |part: usize, frame: usize| plain.len() / 1024 * (frame * 1024 / part);
    let (by_runs, by_stretch) = (of_plain(runs.len(), of_runs), of_plain(STRETCH_LEN, of_stretch));
    // What repeats within the stretch may go on repeating.
    (by_stretch >= below(by_runs)).then(|| (words, below(by_runs.min(by_stretch))))
}

/// What a frame of level 1 takes.
fn frame_len(plain: &[u8]) -> usize {
    whole::compress(plain, 1, plain.len(), &mut Vec::new()).unwrap_or(plain.len())
}

/// The width of words that promises most, the share of the plain bytes that it promises, and by how
/// much that is less than where places are not looked at.
fn best_width(sample: &[u8]) -> (Width, f64, f64) {
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
    (width, share, share_of_words(&folded(&counts, 1)) - share)
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
/// runs; with its length there.
fn tried(runs: &[u8], sample: &[u8], width: Width) -> (WordLayout, usize) {
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
    if is_rotated { (rotated, rotated_len) } else { (straight, straight_len) }
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
