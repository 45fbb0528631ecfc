//! Small reads on the thread that asks for them: the way to a blocking thread and back costs more
//! than such a read, as long as its pages are in memory.
//!
//! Whether they are, nobody says beforehand. Reads that turn out to wait for the disk, several in a
//! row, send later ones to blocking threads for a while.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Rows of such a read, at most; one with more is asked again on a blocking thread.
pub(super) const ROWS_MAX: usize = 64;

/// So many slow ones in a row are no accident: what is slow waited for the disk, or for a
/// processor.
const SLOW_MAX: u32 = 2;

/// After that, reads are tried on the asking thread for this part of the time.
const PAUSE_SHARE: u32 = 50;

/// How reads on the asking thread have gone.
pub(super) struct AtOnce {
    /// What takes longer is slow.
    duration_max: Duration,
    gone: Mutex<Gone>,
}

#[derive(Clone, Copy, Default)]
struct Gone {
    slow_in_a_row: u32,
    /// Nothing is tried before.
    resumes: Option<Instant>,
}

impl AtOnce {
    pub(super) fn new(duration_max: Duration) -> Self {
        Self { duration_max, gone: Mutex::default() }
    }

    /// Whether a read may be tried on the asking thread now.
    pub(super) fn may(&self, now: Instant) -> bool {
        self.gone().resumes.is_none_or(|resumes| resumes <= now)
    }

    /// Takes note of one that has ended `now`.
    pub(super) fn took(&self, duration: Duration, now: Instant) {
        let mut gone = self.gone();
        *gone = if duration < self.duration_max { Gone::default() } else { gone.after_slow(duration, now) };
    }

    fn gone(&self) -> MutexGuard<'_, Gone> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gone {
    fn after_slow(self, duration: Duration, now: Instant) -> Self {
        let slow_in_a_row = self.slow_in_a_row.saturating_add(1);
        let pause = (slow_in_a_row >= SLOW_MAX).then(|| duration.saturating_mul(PAUSE_SHARE));
        Self { slow_in_a_row, resumes: pause.and_then(|pause| now.checked_add(pause)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_micros(20);
    const DISK: Duration = Duration::from_millis(8);

    fn reads() -> AtOnce {
        AtOnce::new(Duration::from_millis(1))
    }

    #[test]
    fn one_slow_read_is_an_accident_and_two_in_a_row_are_a_disk() {
        let (reads, now) = (reads(), Instant::now());
        for duration in [DISK, FAST, DISK, FAST] {
            reads.took(duration, now);
            assert!(reads.may(now));
        }
        reads.took(DISK, now);
        assert!(reads.may(now));
        reads.took(DISK, now);
        assert!(!reads.may(now));
    }

    #[test]
    fn a_cold_catalog_holds_the_asking_threads_up_for_a_fiftieth_of_the_time() {
        let (reads, began) = (reads(), Instant::now());
        let (mut now, mut waited) = (began, Duration::ZERO);
        while now < began + Duration::from_secs(60) {
            let step = if reads.may(now) { DISK } else { FAST };
            now += step;
            if step == DISK {
                waited += step;
                reads.took(step, now);
            }
        }
        assert!(waited <= Duration::from_secs(60) / PAUSE_SHARE + 2 * DISK, "{waited:?}");
        // Once its pages are in memory, the first try shows it.
        let warm = now + DISK * PAUSE_SHARE;
        assert!(reads.may(warm));
        reads.took(FAST, warm);
        reads.took(DISK, warm);
        assert!(reads.may(warm));
    }
}
