//! What a segment takes without a base: a zstd frame, or byte planes where it holds numbers
//! (docs/decisions/0030-planes.md).

use crate::{bases::plan, metrics::Metrics};
use delta_codec::{
    Effort,
    planes::{self, WordLayout},
    whole,
};
use object_format::Coding;
use tokio::time::Instant;

/// A segment that shrinks without a base.
pub(crate) struct Alone {
    /// [`Coding::Zstd`] or [`Coding::Planes`].
    pub(crate) coding: Coding,
    /// The stored bytes.
    pub(crate) bytes: Vec<u8>,
}

impl Alone {
    /// The shorter of a frame and of planes; `None` when the segment looks random or neither is
    /// shorter than it. Planes have been decoded and compared in `room` (I6). Runs on the codec
    /// pool; `metrics` count what is to be stored, not trials.
    ///
    /// Where samples leave no doubt that planes are shorter, no frame is made (decision 75).
    pub(crate) fn encode(plain: &[u8], effort: Effort, room: &mut Vec<u8>, metrics: Option<&Metrics>) -> Option<Self> {
        if whole::looks_incompressible(plain) {
            return None;
        }
        let level = plan::zstd_level(effort);
        let started = Instant::now();
        // What stronger levels find, samples at the first one do not show.
        if level == 1
            && let Some((words, len_max)) = planes::guess_surely(plain)
            && let planes @ Some(_) = Self::planes(plain, words, (level, len_max), started, room, metrics)
        {
            return planes;
        }
        let started = Instant::now();
        let mut bytes = Vec::new();
        let zstd_len = whole::compress(plain, level, plain.len(), &mut bytes);
        note(Coding::Zstd, started, metrics);
        let frame = zstd_len.map(|_| Self { coding: Coding::Zstd, bytes });
        let Some(len_max) = plan::planes_len_max(plain.len(), zstd_len) else { return frame };
        let started = Instant::now();
        let Some(words) = planes::guess(plain, len_max) else { return frame };
        Self::planes(plain, words, (level, len_max), started, room, metrics).or(frame)
    }

    /// Planes that are shorter than `len_max` and have been decoded and compared.
    fn planes(
        plain: &[u8],
        words: WordLayout,
        (level, len_max): (i32, usize),
        started: Instant,
        room: &mut Vec<u8>,
        metrics: Option<&Metrics>,
    ) -> Option<Self> {
        let mut bytes = Vec::new();
        let made = planes::compress_as(plain, words, level, len_max, &mut bytes);
        let is_right = made.is_none() || gives_back(&bytes, plain, room);
        note(Coding::Planes, started, metrics);
        if !is_right {
            // I6: never stored; a person should look.
            tracing::error!(plain_len = plain.len(), "planes did not decode to their original; stored without them");
            if let Some(metrics) = metrics {
                metrics.checksum_failures_total.with_label_values(&["encoder"]).inc();
            }
        }
        (made.is_some() && is_right).then_some(Self { coding: Coding::Planes, bytes })
    }
}

fn note(coding: Coding, started: Instant, metrics: Option<&Metrics>) {
    if let Some(metrics) = metrics {
        metrics.encode_seconds.with_label_values(&[coding.name()]).observe(started.elapsed().as_secs_f64());
    }
}

fn gives_back(stored: &[u8], plain: &[u8], room: &mut Vec<u8>) -> bool {
    room.resize(plain.len(), 0);
    planes::decompress(stored, room).is_ok() && room == plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_format::{BlobId, DomainKey, KeyId, SEGMENT_LEN, blob::segment_digest, whole as blob};
    use std::{collections::HashMap, fs, path::Path};

    /// The fields of a vector's header, and its body.
    fn vector(path: &Path) -> (HashMap<String, String>, Vec<u8>) {
        let bytes = fs::read(path).expect("a vector");
        let end = bytes.windows(2).position(|pair| pair == b"\n\n").expect("a header");
        let header = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let fields = header.lines().filter_map(|line| line.split_once(": "));
        (fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(), bytes[end + 2..].to_vec())
    }

    fn array<const N: usize>(digits: &str) -> [u8; N] {
        let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("hex digits");
        std::array::from_fn(byte)
    }

    /// Whether the store's own decoder gives back content with the digests of its segments.
    fn is_read(fields: &HashMap<String, String>, body: &[u8]) -> bool {
        let key = fields.get("key-id").map(|id| {
            let epoch = fields["key-epoch"].parse().expect("a number");
            DomainKey::new(KeyId(array(id)), epoch, array(&fields["key-secret"]))
        });
        let Ok(opened) = blob::open(body, BlobId(array(&fields["blob-id"])), key.as_ref()) else { return false };
        opened.segments.iter().all(|segment| {
            let stored = &opened.payload[segment.stored_offset as usize..][..segment.stored_len as usize];
            let mut plain = vec![0; segment.plain_len as usize];
            assert_eq!(segment.coding, Coding::Planes);
            planes::decompress(stored, &mut plain).is_ok() && segment_digest(&plain) == segment.digest
        })
    }

    #[test]
    fn every_vector_of_planes_is_read_or_refused_as_its_header_says() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/blob-v1");
        let (mut good, mut bad) = (0, 0);
        for entry in fs::read_dir(folder).expect("vectors") {
            let path = entry.expect("an entry").path();
            if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("planes_")) {
                continue;
            }
            let (fields, body) = vector(&path);
            assert_eq!(is_read(&fields, &body), fields["expect"] == "success", "{}", path.display());
            if fields["expect"] == "success" { good += 1 } else { bad += 1 }
        }
        assert!(good >= 16 && bad >= 25, "{good} good and {bad} bad vectors");
    }

    /// Numbers whose upper two bytes come from a few and whose lower two are random.
    fn numbers(count: usize, seed: u64) -> Vec<u8> {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> 32
        };
        let number = |draw: u64| [draw as u8, (draw >> 8) as u8, (draw >> 16) as u8, 0x3c + (draw >> 24 & 3) as u8];
        std::iter::repeat_with(|| number(next())).take(count).flatten().collect()
    }

    fn alone(plain: &[u8], effort: Effort) -> Option<Alone> {
        Alone::encode(plain, effort, &mut Vec::new(), None)
    }

    #[test]
    fn numbers_are_planes_at_every_effort_and_other_bytes_are_not() {
        let plain = numbers(100_000, 1);
        for effort in [Effort::Fast, Effort::Balanced, Effort::High, Effort::Max] {
            let found = alone(&plain, effort).expect("it shrinks");
            assert_eq!(found.coding, Coding::Planes, "{effort:?}");
            assert!(found.bytes.len() < plain.len() / 100 * 83, "{effort:?}: {}", found.bytes.len());
        }
        let text = b"so it goes, and so it went, ".repeat(4000);
        assert_eq!(alone(&text, Effort::Balanced).map(|found| found.coding), Some(Coding::Zstd));
        assert_eq!(alone(&numbers(500, 2), Effort::Balanced).map(|found| found.coding), Some(Coding::Zstd));
        assert!(alone(&[], Effort::Balanced).is_none());
    }

    /// What it becomes, and how often frames and planes were made of the whole of it.
    fn made_of(plain: &[u8], effort: Effort) -> (Option<Coding>, u64, u64) {
        let metrics = Metrics::new();
        let found = Alone::encode(plain, effort, &mut Vec::new(), Some(&metrics));
        let count = |codec: Coding| metrics.encode_seconds.with_label_values(&[codec.name()]).get_sample_count();
        (found.map(|found| found.coding), count(Coding::Zstd), count(Coding::Planes))
    }

    #[test]
    fn no_frame_is_made_of_what_samples_show_to_be_numbers() {
        let plain = numbers(SEGMENT_LEN / 4, 4);
        for effort in [Effort::Fast, Effort::Balanced] {
            assert_eq!(made_of(&plain, effort), (Some(Coding::Planes), 0, 1), "{effort:?}");
        }
        assert_eq!(made_of(&plain, Effort::High), (Some(Coding::Planes), 1, 1), "what it finds samples do not show");
        let short = &plain[..1 << 20];
        assert_eq!(made_of(short, Effort::Balanced), (Some(Coding::Planes), 1, 1), "samples would be half of it");
        let text = b"so it goes, and so it went, ".repeat(100_000);
        assert_eq!(made_of(&text, Effort::Balanced), (Some(Coding::Zstd), 1, 0));
    }

    /// What the shorter of a frame and of planes takes when both are made.
    fn shorter_of_both(plain: &[u8]) -> usize {
        let frame = whole::compress(plain, 1, plain.len(), &mut Vec::new()).expect("it shrinks");
        planes::compress(plain, 1, frame.saturating_sub(plain.len() / 64), &mut Vec::new()).unwrap_or(frame).min(frame)
    }

    #[test]
    fn numbers_that_come_again_far_away_take_what_they_took_with_both_made() {
        // Further than a run is long; a frame looks back 512 KiB.
        for period in [50_000, 200_000, 400_000, 500_000, 520_000] {
            let plain: Vec<u8> = numbers(period / 4, 5).into_iter().cycle().take(SEGMENT_LEN).collect();
            let taken = alone(&plain, Effort::Balanced).expect("it shrinks").bytes.len();
            assert!(taken <= shorter_of_both(&plain), "{period}: {taken}, not {}", shorter_of_both(&plain));
        }
    }

    #[test]
    fn numbers_beside_text_take_about_what_they_took_with_both_made() {
        let text: Vec<u8> =
            (0u32..).flat_map(|n| format!("line {n} of {}, ", n * 7).into_bytes()).take(SEGMENT_LEN).collect();
        for part in [8, 4, 2] {
            let mut plain = numbers(SEGMENT_LEN / 4, 6);
            let from = SEGMENT_LEN / 3;
            plain[from..from + SEGMENT_LEN / part].copy_from_slice(&text[..SEGMENT_LEN / part]);
            let taken = alone(&plain, Effort::Balanced).expect("it shrinks").bytes.len();
            let least = shorter_of_both(&plain);
            assert!(taken <= least + least / 200, "a part in {part}: {taken}, not {least}");
        }
    }

    #[test]
    fn what_zstd_halves_stays_zstd() {
        let plain = numbers(25_000, 3).repeat(4);
        assert_eq!(alone(&plain, Effort::Balanced).map(|found| found.coding), Some(Coding::Zstd));
    }
}
