//! A region's window, and the trial of a sample against one.

use super::{plan, window::Window};
use crate::{blobs::pins::Pin, resources::pool::Scratch};
use delta_codec::{Effort, EncodeJob, FootprintLimits, whole};
use std::sync::Arc;

/// The window of one region.
pub(crate) struct Region {
    /// The base bytes.
    pub(crate) window: Arc<Window>,
    /// What keeps its blobs from being collected; outlives the window in the staged content.
    pub(crate) pins: Arc<Vec<Pin>>,
    /// What zstd alone made of the base, in thousandths; `None` where that is not known.
    pub(crate) zstd_permille: Option<u32>,
}

impl Region {
    /// A region's window, with what keeps its blobs from being collected.
    pub(crate) fn new(window: Arc<Window>, pins: Vec<Pin>, zstd_permille: Option<u32>) -> Self {
        Self { window, pins: Arc::new(pins), zstd_permille }
    }
}

/// Most bytes of a trial's sample, and into how many pieces of the segment it is spread.
pub(super) const TRIAL_SAMPLE_LEN: usize = 512 << 10;
const TRIAL_PIECES: usize = 8;

/// Encodes a sample of a segment with and without a base. Nothing of it is kept. Runs on the codec
/// pool.
pub(super) fn trial(scratch: &mut Scratch, segment: &[u8], window: &Window, effort: Effort) -> plan::Trial {
    let mut sample = Vec::new();
    let sample = if segment.len() <= TRIAL_SAMPLE_LEN {
        segment
    } else {
        let piece_len = TRIAL_SAMPLE_LEN / TRIAL_PIECES;
        for piece in 0..TRIAL_PIECES {
            let start = (segment.len() - piece_len) / (TRIAL_PIECES - 1) * piece;
            sample.extend_from_slice(&segment[start..start + piece_len]);
        }
        &sample
    };
    let mut bytes = Vec::new();
    let alone = whole::compress(sample, plan::zstd_level(effort), sample.len(), &mut bytes).unwrap_or(sample.len());
    bytes.clear();
    let job = EncodeJob {
        window: &window.plain,
        index: window.index(effort),
        layout: &window.layout,
        target: sample,
        effort,
        limits: FootprintLimits::default(),
        delta_len_max: sample.len() - sample.len() / 8,
    };
    let delta = scratch.encoder.encode(&job, &mut bytes).map(|_| bytes.len());
    plan::Trial { alone, delta }
}
