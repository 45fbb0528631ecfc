//! The effort controller: how hard an upload is encoded while it arrives, from how long codec jobs
//! wait and how long the client takes (EACopy's self-regulation, with processor time in the
//! objective).
//!
//! A queue that is shorter than the client's own upload time costs nobody anything. When it is
//! longer the level goes down at once, at the bottom to "not now": the content is stored without a
//! base and the converter encodes it better later. It goes up by one step only after the queue has
//! been short for a while, so a load that stays the same never makes it go back and forth.

use crate::config::{Compression, EffortSetting};
use delta_codec::Effort;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// A client that sends a segment faster than this is taken to need this long: a short queue is
/// never worth storing content badly.
const UPLOAD_FLOOR: Duration = Duration::from_millis(100);
/// A load that no upload has met for so long says nothing about the next.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(5);
/// Segments in a row that must have found a short queue before the level goes up.
const CALM_SEGMENTS: u8 = 8;

/// How hard `auto` tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// No base: stored now, shrunk later.
    NotNow,
    /// A base, at the fast effort.
    Fast,
    /// A base, at the balanced effort.
    Balanced,
}

/// What one segment met.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// How long codec jobs have lately waited for a thread.
    pub(crate) queue: Duration,
    /// How long the client took to send the segment.
    pub(crate) upload: Duration,
}

/// The controller's state: a level, and for how many segments the queue has been short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Control {
    level: Level,
    calm: u8,
}

impl Default for Control {
    fn default() -> Self {
        Self { level: Level::Balanced, calm: 0 }
    }
}

impl Control {
    /// The level for the next segment.
    pub(crate) fn level(self) -> Level {
        self.level
    }

    /// The state after a segment. A queue of more than eight upload times means not now, of more
    /// than two fast at most; one of less than half, eight times in a row, one level more; anything
    /// between changes nothing.
    #[must_use]
    pub(crate) fn step(self, load: Load) -> Self {
        let (queue, upload) = (load.queue, load.upload.max(UPLOAD_FLOOR));
        if queue > upload.saturating_mul(8) {
            return Self { level: Level::NotNow, calm: 0 };
        }
        if queue > upload.saturating_mul(2) {
            return Self { level: self.level.min(Level::Fast), calm: 0 };
        }
        if queue >= upload / 2 || self.level == Level::Balanced {
            return Self { level: self.level, calm: 0 };
        }
        match self.calm + 1 {
            CALM_SEGMENTS.. => Self { level: self.level.up(), calm: 0 },
            calm => Self { level: self.level, calm },
        }
    }
}

impl Level {
    fn up(self) -> Self {
        match self {
            Self::NotNow => Self::Fast,
            Self::Fast | Self::Balanced => Self::Balanced,
        }
    }
}

/// The state that uploads begin with: what all of them met lately.
#[derive(Default)]
pub(crate) struct Shared(Mutex<Option<(Control, Instant)>>);

impl Shared {
    /// The state at `now`. What nobody has met for a while is forgotten.
    pub(crate) fn control(&self, now: Instant) -> Control {
        let noted = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = noted.filter(|(_, at)| now.saturating_duration_since(*at) < FORGOTTEN_AFTER);
        fresh.map_or_else(Control::default, |(control, _)| control)
    }

    /// Takes note of what a segment of some upload met.
    pub(crate) fn note(&self, load: Load, now: Instant) {
        let control = self.control(now).step(load);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((control, now));
    }
}

/// How one body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trying {
    /// As hard as this. `later`: the bucket wants more than a request should take, and gets it from
    /// the converter.
    Fixed {
        /// The effort.
        effort: Effort,
        /// Whether it goes into the converter's queue.
        later: bool,
    },
    /// By load.
    ByLoad {
        /// The state at its beginning.
        control: Control,
        /// Whether "not now" is allowed; otherwise fast is the least.
        defer: bool,
    },
}

impl Trying {
    /// How a body of a bucket with these settings is encoded while it arrives. More than balanced
    /// is work for the converter, where there is deferral.
    pub(crate) fn on_arrival(setting: EffortSetting, compression: Compression, control: Control, defer: bool) -> Self {
        let defer = defer && compression != Compression::Off;
        let fixed = |effort| Self::Fixed { effort, later: false };
        match setting {
            EffortSetting::Auto => Self::ByLoad { control, defer: defer && compression == Compression::Delta },
            EffortSetting::Fast => fixed(Effort::Fast),
            EffortSetting::Balanced => fixed(Effort::Balanced),
            EffortSetting::High | EffortSetting::Max if defer => Self::Fixed { effort: Effort::Balanced, later: true },
            // Never at max while a client waits.
            EffortSetting::High | EffortSetting::Max => fixed(Effort::High),
        }
    }

    /// The effort of the next segment; `None`: not now.
    pub(crate) fn effort(self) -> Option<Effort> {
        match self {
            Self::Fixed { effort, .. } => Some(effort),
            Self::ByLoad { control, defer } => match control.level() {
                Level::NotNow if defer => None,
                Level::NotNow | Level::Fast => Some(Effort::Fast),
                Level::Balanced => Some(Effort::Balanced),
            },
        }
    }

    /// The same, but high in place of max where max would leave a budget of `budget_bytes` too
    /// little for windows and requests.
    pub(crate) fn within_budget(self, budget_bytes: u64) -> Self {
        match self {
            Self::Fixed { effort: Effort::Max, later } if budget_bytes < 3 * MAX_WORK_BYTES => {
                Self::Fixed { effort: Effort::High, later }
            }
            trying => trying,
        }
    }

    /// Takes note of what a segment met.
    pub(crate) fn note(&mut self, load: Load) {
        if let Self::ByLoad { control, .. } = self {
            *control = control.step(load);
        }
    }
}

/// Work memory of a segment at effort max, beyond what each codec thread has for good. The
/// converter encodes one at a time.
pub(crate) const MAX_WORK_BYTES: u64 = 256 << 20;

/// How hard the converter encodes what waits in its queue: as the bucket says, and where that is
/// "by load" harder when nobody reads it.
pub(crate) fn in_background(setting: EffortSetting, cold: bool) -> Effort {
    match setting {
        EffortSetting::Fast => Effort::Fast,
        EffortSetting::Auto if cold => Effort::High,
        EffortSetting::Auto | EffortSetting::Balanced => Effort::Balanced,
        EffortSetting::High => Effort::High,
        EffortSetting::Max => Effort::Max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load() -> impl Strategy<Value = Load> {
        (0u64..3_000, 0u64..3_000).prop_map(|(queue, upload)| Load {
            queue: Duration::from_millis(queue),
            upload: Duration::from_millis(upload),
        })
    }

    fn control() -> impl Strategy<Value = Control> {
        let level = prop_oneof![Just(Level::NotNow), Just(Level::Fast), Just(Level::Balanced)];
        // At the top there is nothing to be calm for.
        (level, 0..CALM_SEGMENTS).prop_map(|(level, calm)| match level {
            Level::Balanced => Control { level, calm: 0 },
            _ => Control { level, calm },
        })
    }

    proptest! {
        #[test]
        fn a_load_that_stays_the_same_moves_the_level_one_way_and_then_not_at_all(start in control(), load in load()) {
            let mut states = vec![start];
            for _ in 0..4 * usize::from(CALM_SEGMENTS) {
                states.push(states[states.len() - 1].step(load));
            }
            let levels: Vec<Level> = states.iter().map(|state| state.level).collect();
            prop_assert!(levels.is_sorted() || levels.iter().rev().is_sorted(), "{:?}", levels);
            let last = levels[levels.len() - 1];
            prop_assert!(levels[2 * usize::from(CALM_SEGMENTS)..].iter().all(|level| *level == last));
        }

        #[test]
        fn more_load_never_means_more_effort(
            a in control(), b in control(), loads in prop::collection::vec((load(), 0u64..2_000, 0u64..2_000), 1..60)
        ) {
            let (mut low, mut high) = (a.min(b), a.max(b));
            for (load, longer_queue_ms, faster_client_ms) in loads {
                let worse = Load {
                    queue: load.queue + Duration::from_millis(longer_queue_ms),
                    upload: load.upload.saturating_sub(Duration::from_millis(faster_client_ms)),
                };
                (low, high) = (low.step(worse), high.step(load));
                prop_assert!(low <= high, "{:?} {:?}", low, high);
            }
        }

        #[test]
        fn a_queue_shorter_than_the_clients_own_time_never_lowers_the_level(start in control(), load in load()) {
            prop_assume!(load.queue <= load.upload);
            prop_assert!(start.step(load).level >= start.level);
        }
    }

    #[test]
    fn a_saturated_pool_defers_at_once_and_recovers_step_by_step() {
        let load = |queue_ms| Load { queue: Duration::from_millis(queue_ms), upload: Duration::from_millis(40) };
        let mut control = Control::default().step(load(900));
        assert_eq!(control.level(), Level::NotNow);
        let mut levels = Vec::new();
        for _ in 0..16 {
            control = control.step(load(10));
            levels.push(control.level());
        }
        assert_eq!(levels.iter().filter(|level| **level == Level::NotNow).count(), 7);
        assert_eq!(levels.iter().filter(|level| **level == Level::Fast).count(), 8);
        assert_eq!(levels[15], Level::Balanced);
    }

    #[test]
    fn an_upload_begins_where_the_others_are_unless_that_was_long_ago() {
        let (shared, now) = (Shared::default(), Instant::now());
        shared.note(Load { queue: Duration::from_secs(5), upload: Duration::ZERO }, now);
        assert_eq!(shared.control(now + FORGOTTEN_AFTER / 2).level(), Level::NotNow);
        assert_eq!(shared.control(now + FORGOTTEN_AFTER).level(), Level::Balanced);
    }

    #[test]
    fn max_is_never_tried_while_a_client_waits_and_off_never_waits_for_later() {
        let on_arrival = |setting, compression, defer| {
            Trying::on_arrival(setting, compression, Control { level: Level::NotNow, calm: 0 }, defer)
        };
        for defer in [true, false] {
            let trying = on_arrival(EffortSetting::Max, Compression::Delta, defer);
            assert_eq!(trying.effort(), Some(if defer { Effort::Balanced } else { Effort::High }));
            assert_eq!(trying == Trying::Fixed { effort: Effort::Balanced, later: true }, defer);
        }
        let off = on_arrival(EffortSetting::Max, Compression::Off, true);
        assert_eq!(off, Trying::Fixed { effort: Effort::High, later: false });
        assert_eq!(on_arrival(EffortSetting::Auto, Compression::Delta, true).effort(), None);
        assert_eq!(on_arrival(EffortSetting::Auto, Compression::Delta, false).effort(), Some(Effort::Fast));
        assert_eq!(on_arrival(EffortSetting::Auto, Compression::Zstd, true).effort(), Some(Effort::Fast));
        assert_eq!(in_background(EffortSetting::Max, false), Effort::Max);
        assert_eq!(in_background(EffortSetting::Auto, true), Effort::High);
    }

    #[test]
    fn max_is_for_budgets_that_have_room_for_it() {
        let within = |effort, budget| Trying::Fixed { effort, later: false }.within_budget(budget).effort();
        assert_eq!(within(Effort::Max, 1 << 30), Some(Effort::Max));
        assert_eq!(within(Effort::Max, 512 << 20), Some(Effort::High));
        assert_eq!(within(Effort::Balanced, 64 << 20), Some(Effort::Balanced));
    }
}
