//! How long a group of changes waits for more of them.
//!
//! While a group is committed, other changes queue. When it has ended, its own clients send their
//! next ones within some hundred microseconds. A group that begins at once takes those that queued
//! and no more, so half of the clients ride in each commit (decision 0087).

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The longest wait, however long a commit takes.
const PATIENCE_MAX: Duration = Duration::from_millis(1);

/// How many more changes the writer waits for; 0 while it does not wait.
#[derive(Default)]
pub(super) struct Awaited(AtomicUsize);

impl Awaited {
    /// Counts what was put into the queue. True when the writer has what it waits for, and should
    /// be woken.
    pub(super) fn comes(&self) -> bool {
        let one_less = |awaited: usize| awaited.checked_sub(1);
        self.0.load(Ordering::SeqCst) > 0 && self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) == Ok(1)
    }
}

/// What the last group tells of the next one.
#[derive(Default)]
pub(super) struct NextGroup {
    /// Changes that it had or that queued behind it: as many may come again.
    expected: usize,
    patience: Duration,
}

impl NextGroup {
    /// Adds what waits to a group that has begun, and what comes within the time that the last
    /// commit took, or [`PATIENCE_MAX`], until there are as many as are expected. `take` adds what
    /// waits, and says whether there may be more. Runs on the thread that `awaited` has woken.
    pub(super) fn gather<T>(&self, group: &mut Vec<T>, awaited: &Awaited, mut take: impl FnMut(&mut Vec<T>) -> bool) {
        if !take(group) || group.len() >= self.expected {
            return;
        }
        let ends = Instant::now() + self.patience;
        loop {
            awaited.0.store(self.expected - group.len(), Ordering::SeqCst);
            // What came before that was stored wakes nobody.
            if !take(group) || group.len() >= self.expected {
                break;
            }
            let left = ends.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::park_timeout(left);
        }
        awaited.0.store(0, Ordering::SeqCst);
    }

    /// Learns from a group of `changes` that took so long, and `left` that wait behind it.
    pub(super) fn ended(&mut self, changes: usize, left: usize, took: Duration) {
        (self.expected, self.patience) = (changes + left, took.min(PATIENCE_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    const COMMIT: Duration = Duration::from_micros(300);
    /// Longer than any test: who waits for so long is woken or fails.
    const LONG: Duration = Duration::from_secs(600);

    fn after(changes: usize, left: usize) -> NextGroup {
        let mut next_group = NextGroup::default();
        next_group.ended(changes, left, COMMIT);
        next_group
    }

    /// What a group has that one change began, and how often it looked at a queue that gave so many
    /// at each look.
    fn gathered(next_group: &NextGroup, looks: &[usize]) -> (usize, usize) {
        let (mut group, mut looked) = (vec![()], 0);
        let awaited = Awaited::default();
        next_group.gather(&mut group, &awaited, |group| {
            group.extend(std::iter::repeat_n((), looks.get(looked).copied().unwrap_or(0)));
            looked += 1;
            true
        });
        assert_eq!(awaited.0.load(Ordering::SeqCst), 0, "nobody is waited for any more");
        (group.len(), looked)
    }

    #[test]
    fn who_comes_alone_waits_for_nobody() {
        assert_eq!(gathered(&NextGroup::default(), &[]), (1, 1));
        assert_eq!(gathered(&after(1, 0), &[]), (1, 1));
    }

    #[test]
    fn a_group_that_is_as_large_as_expected_waits_for_nobody() {
        assert_eq!(gathered(&after(2, 1), &[2]), (3, 1));
        assert_eq!(gathered(&after(2, 1), &[7]), (8, 1));
    }

    #[test]
    fn a_group_waits_for_the_clients_of_the_last_one_and_those_behind_it() {
        let next_group = NextGroup { patience: LONG, ..after(4, 4) };
        // Some come before the writer says that it waits, and some after.
        let (queue, jobs) = mpsc::channel();
        let awaited = Arc::new(Awaited::default());
        let (writer, wakes) = (thread::current(), Arc::clone(&awaited));
        let clients = thread::spawn(move || {
            for _ in 0..7 {
                queue.send(()).unwrap();
                if wakes.comes() {
                    writer.unpark();
                }
            }
        });
        let mut group = vec![()];
        next_group.gather(&mut group, &awaited, |group| {
            group.extend(jobs.try_iter());
            true
        });
        assert_eq!(group.len(), 8);
        clients.join().unwrap();
    }

    #[test]
    fn clients_that_do_not_come_back_are_waited_for_once_and_no_longer_than_the_last_commit() {
        let began = Instant::now();
        let (changes, _) = gathered(&after(4, 4), &[]);
        assert_eq!(changes, 1);
        assert!(began.elapsed() >= COMMIT);
        assert_eq!(gathered(&after(changes, 0), &[]), (1, 1));
    }

    #[test]
    fn a_slow_disk_makes_nobody_wait_longer_than_the_bound() {
        let mut next_group = after(4, 4);
        next_group.ended(4, 4, Duration::from_secs(2));
        assert_eq!(next_group.patience, PATIENCE_MAX);
    }

    #[test]
    fn a_group_that_may_have_no_more_does_not_wait() {
        let next_group = NextGroup { patience: LONG, ..after(4, 4) };
        let mut group = vec![()];
        next_group.gather(&mut group, &Awaited::default(), |_| false);
        assert_eq!(group.len(), 1);
    }

    #[test]
    fn the_last_one_that_is_awaited_wakes_the_writer_and_the_others_do_not() {
        let awaited = Awaited::default();
        assert!(!awaited.comes());
        awaited.0.store(2, Ordering::SeqCst);
        assert_eq!([awaited.comes(), awaited.comes(), awaited.comes()], [false, true, false]);
    }
}
