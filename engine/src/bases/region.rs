//! A region's window, and the trial of a sample against one.

use super::{alone::Alone, plan, similar::REGION_LEN, window::Window};
use crate::{blobs::pins::Pin, resources::pool::Scratch};
use delta_codec::{Effort, EncodeJob, FootprintLimits};
use object_format::SEGMENT_LEN;
use std::sync::Arc;

/// The window of one region.
pub(crate) struct Region {
    /// The base bytes.
    pub(crate) window: Arc<Window>,
    /// What keeps its blobs from being collected; outlives the window in the staged content.
    pub(crate) pins: Arc<Vec<Pin>>,
    /// What the base took without a base itself, in thousandths; `None` where that is not known.
    pub(crate) alone_permille: Option<u32>,
    /// Some base goes on beyond the window.
    pub(crate) is_part: bool,
    /// It was opened where content before it was found (`moved.rs`).
    pub(crate) is_followed: bool,
}

impl Region {
    /// A region's window, with what keeps its blobs from being collected.
    pub(crate) fn new(window: Arc<Window>, pins: Vec<Pin>, alone_permille: Option<u32>, is_part: bool) -> Self {
        Self { window, pins: Arc::new(pins), alone_permille, is_part, is_followed: false }
    }
}

/// Whether a region of a base that begins at `place` may have the segment that is `expected` there:
/// it begins near it, or the window around it reaches into it.
pub(super) fn is_near(place: u64, expected: u64, margin: u64) -> bool {
    let is_reached =
        place < expected + SEGMENT_LEN as u64 + margin && place + REGION_LEN > expected.saturating_sub(margin);
    place.abs_diff(expected) < REGION_LEN || is_reached
}

/// Most bytes of a trial's sample, and into how many pieces of the segment it is spread.
pub(super) const TRIAL_SAMPLE_LEN: usize = 512 << 10;
const TRIAL_PIECES: usize = 8;

/// Encodes a sample of a segment with and without a base, and all of it where the sample leaves
/// doubt. Nothing of it is kept. Runs on the codec pool.
pub(super) fn trial(scratch: &mut Scratch, segment: &[u8], window: &Window, effort: Effort) -> plan::Trial {
    let mut sample = Vec::new();
    let sample = if segment.len() <= TRIAL_SAMPLE_LEN {
        segment
    } else {
        let piece_len = TRIAL_SAMPLE_LEN / TRIAL_PIECES;
        for piece in 0..TRIAL_PIECES {
            // Pieces begin where words do.
            let start = (segment.len() - piece_len) / (TRIAL_PIECES - 1) * piece / 8 * 8;
            sample.extend_from_slice(&segment[start..start + piece_len]);
        }
        &sample
    };
    let Some(delta) = delta_len(scratch, sample, window, effort) else {
        return plan::Trial { alone: sample.len(), delta: None };
    };
    let alone = Alone::encode(sample, effort, &mut scratch.plain, None);
    let trial = plan::Trial { alone: alone.map_or(sample.len(), |alone| alone.bytes.len()), delta: Some(delta) };
    if !trial.leaves_doubt() || sample.len() == segment.len() {
        return trial;
    }
    // A piece of the sample with nothing equal in it is lost. In the segment, the bytes before it
    // lead to its place in the base.
    let of_segment = delta_len(scratch, segment, window, effort).map(|len| len / (segment.len() / sample.len()));
    plan::Trial { delta: of_segment.into_iter().chain([delta]).min(), ..trial }
}

/// What bytes take as a delta; `None` when that is hardly less than they are.
fn delta_len(scratch: &mut Scratch, target: &[u8], window: &Window, effort: Effort) -> Option<usize> {
    let mut bytes = Vec::new();
    let job = EncodeJob {
        window: &window.plain,
        index: window.index(effort),
        layout: &window.layout,
        target,
        effort,
        limits: FootprintLimits::default(),
        delta_len_max: target.len() - target.len() / 8,
    };
    scratch.encoder.encode(&job, &mut bytes).map(|_| bytes.len())
}
