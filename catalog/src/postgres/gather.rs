//! How long a group of changes waits for more of them before it asks for its turn.
//!
//! Where several replicas write, each waits for the turn of the others, and has one group in that
//! time. The clients of the last group are on their way with their next changes when the next
//! group could begin. If it begins at once it takes half of the clients each time, and all replicas
//! together get through half as many changes with the same number of turns (decision 0077).

use std::time::Duration;
use tokio::sync::mpsc;

/// The longest wait: after a stall of the database nobody has to be waited for.
const PATIENCE_MAX: Duration = Duration::from_millis(100);

/// What the last group of this process tells of the next one.
#[derive(Default)]
pub(super) struct Gathering {
    /// Changes that were under way or waited when it ended: as many may come again.
    expected: usize,
    turn: TurnTimes,
}

/// Where the time of a group went.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TurnTimes {
    /// Until it had its turn, a journey included.
    pub(super) came_after: Duration,
    /// From then to its end: a journey or two, and the flush.
    pub(super) held: Duration,
}

impl Gathering {
    /// The changes of the next group: `first`, those that wait, up to `most` in all, and where
    /// turns are scarce those that come within the time that the last turn took to come, or
    /// [`PATIENCE_MAX`].
    pub(super) async fn group<T>(&self, first: T, jobs: &mut mpsc::Receiver<T>, most: usize) -> Vec<T> {
        let mut group = vec![first];
        take_waiting(&mut group, jobs, most);
        let Some(patience) = self.patience() else { return group };
        let ends = tokio::time::Instant::now() + patience;
        while group.len() < most.min(self.expected)
            && let Ok(Some(job)) = tokio::time::timeout_at(ends, jobs.recv()).await
        {
            group.push(job);
            take_waiting(&mut group, jobs, most);
        }
        group
    }

    /// Learns from a group of `changes`, and `left` that wait behind it.
    pub(super) fn ended(&mut self, changes: usize, left: usize, turn: TurnTimes) {
        (self.expected, self.turn) = (changes + left, turn);
    }

    /// How long to wait for more; none where the turn came about as soon as it was asked for.
    fn patience(&self) -> Option<Duration> {
        let TurnTimes { came_after, held } = self.turn;
        (came_after > 2 * held).then_some(came_after.min(PATIENCE_MAX))
    }
}

fn take_waiting<T>(group: &mut Vec<T>, jobs: &mut mpsc::Receiver<T>, most: usize) {
    while group.len() < most
        && let Ok(job) = jobs.try_recv()
    {
        group.push(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    const JOURNEY: Duration = Duration::from_millis(10);
    /// The turn of a process among eight.
    const SCARCE: TurnTimes = TurnTimes { came_after: Duration::from_millis(80), held: JOURNEY };
    /// That of a process that writes alone.
    const FREE: TurnTimes = TurnTimes { came_after: JOURNEY, held: JOURNEY };

    /// What a process knows whose last group had `changes`, while `left` came.
    fn after(changes: usize, left: usize, turn: TurnTimes) -> Gathering {
        let mut gathering = Gathering::default();
        gathering.ended(changes, left, turn);
        gathering
    }

    /// Two of four clients waited while the group of the others was under way.
    #[tokio::test(start_paused = true)]
    async fn where_turns_are_scarce_a_group_waits_for_the_clients_of_the_last_one() {
        let gathering = after(2, 2, SCARCE);
        let (queue, mut jobs) = mpsc::channel(8);
        queue.send(1).await.unwrap();
        let began = Instant::now();
        let came_back = tokio::spawn(async move {
            for job in [2, 3] {
                tokio::time::sleep(JOURNEY).await;
                queue.send(job).await.unwrap();
            }
            queue
        });
        assert_eq!(gathering.group(0, &mut jobs, 128).await, [0, 1, 2, 3]);
        assert_eq!(began.elapsed(), 2 * JOURNEY, "nobody else is expected");
        drop(came_back.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_waits_for_clients_that_do_not_come_back_as_long_as_for_its_last_turn() {
        let gathering = after(4, 0, SCARCE);
        let (queue, mut jobs) = mpsc::channel(8);
        let began = Instant::now();
        assert_eq!(gathering.group(0, &mut jobs, 128).await, [0]);
        assert_eq!(began.elapsed(), SCARCE.came_after);
        drop(queue);
    }

    #[tokio::test(start_paused = true)]
    async fn where_turns_come_at_once_a_group_waits_for_nobody() {
        let (queue, mut jobs) = mpsc::channel(8);
        let began = Instant::now();
        for gathering in [Gathering::default(), after(4, 4, FREE), after(1, 0, SCARCE)] {
            assert_eq!(gathering.group(0, &mut jobs, 128).await, [0]);
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        drop(queue);
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_is_full_waits_for_nobody() {
        let gathering = after(200, 0, SCARCE);
        let (queue, mut jobs) = mpsc::channel(8);
        for job in 1..4 {
            queue.send(job).await.unwrap();
        }
        let began = Instant::now();
        assert_eq!(gathering.group(0, &mut jobs, 3).await, [0, 1, 2]);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
