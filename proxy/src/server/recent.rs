//! The newest requests and the sums of all of them, in memory, for whoever looks at this process
//! now. Both are bounded; what is older is in the access log.

use super::access_log::{Ended, ms_of};
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::IpAddr,
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

/// Buckets with sums of their own; requests about others are summed as [`OTHERS`].
const BUCKETS_MAX: usize = 256;
/// No bucket is called so: names have no underscore.
const OTHERS: &str = "_other";

/// Requests of one process.
pub struct Recent {
    kept: usize,
    since_ms: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of the newest request; the first has 1.
    last: u64,
    ring: VecDeque<Arc<Ended>>,
    sums: HashMap<String, BTreeMap<&'static str, Sums>>,
}

/// What requests of one operation in one bucket came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sums {
    /// All of them.
    pub requests: u64,
    /// Those answered with 4xx; 499 for clients that left before their answer.
    pub client_errors: u64,
    /// Those answered with 5xx.
    pub server_errors: u64,
    /// Those whose answer was cut off after its status had left.
    pub cut: u64,
    /// Bytes of their bodies.
    pub bytes_in: u64,
    /// Bytes of the answers' bodies.
    pub bytes_out: u64,
    /// Milliseconds from head to end, added up.
    pub ms: f64,
}

/// Sums with what they are of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Traffic {
    /// The operation.
    pub op: &'static str,
    /// The bucket; empty where a request has none.
    pub bucket: String,
    /// The sums.
    #[serde(flatten)]
    pub sums: Sums,
}

/// Which requests are asked for: all that every field allows.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Of this operation.
    pub op: Option<String>,
    /// About this bucket.
    pub bucket: Option<String>,
    /// Of this user.
    pub user: Option<String>,
    /// From this address.
    pub peer: Option<IpAddr>,
    /// With one of these statuses.
    pub status: Option<RangeInclusive<u16>>,
    /// With this id.
    pub id: Option<String>,
    /// That took at least so long.
    pub slower: Duration,
    /// Behind the one with this number.
    pub after: Option<u64>,
}

impl Wanted {
    fn fits(&self, ended: &Ended) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        is(&self.op, ended.op)
            && is(&self.bucket, &ended.bucket)
            && is(&self.user, &ended.user)
            && is(&self.id, &ended.request_id)
            && self.peer.is_none_or(|peer| ended.peer == Some(peer))
            && self.status.as_ref().is_none_or(|wanted| wanted.contains(&ended.status))
            && ended.whole >= self.slower
    }
}

/// Requests that were asked for, oldest first, each with its number.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The requests.
    pub requests: Vec<(u64, Arc<Ended>)>,
    /// Behind which number to ask for more.
    pub next: u64,
    /// Requests between the number asked for and the oldest that is kept.
    pub missed: u64,
}

impl Recent {
    /// Keeps so many requests.
    pub fn new(kept: usize) -> Self {
        Self { kept, since_ms: ms_of(SystemTime::now()), state: Mutex::default() }
    }

    /// When the sums began, in milliseconds since 1970.
    pub fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// Takes a request that has ended.
    pub(super) fn note(&self, ended: Ended) {
        let mut state = self.state();
        state.sums_of(&ended).add(&ended);
        state.last += 1;
        if self.kept == 0 {
            return;
        }
        if state.ring.len() == self.kept {
            state.ring.pop_front();
        }
        state.ring.push_back(Arc::new(ended));
    }

    /// The newest `limit` requests that fit; behind a number, the oldest, so that whoever goes on
    /// asking sees each.
    pub fn find(&self, wanted: &Wanted, limit: usize) -> Found {
        let state = self.state();
        let oldest = state.last + 1 - state.ring.len() as u64;
        let numbered = || state.ring.iter().enumerate().map(|(place, ended)| (oldest + place as u64, ended));
        let chosen = |(_, ended): &(u64, &Arc<Ended>)| wanted.fits(ended);
        let owned = |(number, ended): (u64, &Arc<Ended>)| (number, ended.clone());
        let Some(after) = wanted.after else {
            let mut requests: Vec<_> = numbered().rev().filter(chosen).take(limit).map(owned).collect();
            requests.reverse();
            return Found { requests, next: state.last, missed: 0 };
        };
        // Whoever asked the process before this one begins anew.
        let after = if after > state.last { 0 } else { after };
        let behind = numbered().filter(|(number, _)| *number > after);
        let requests: Vec<_> = behind.filter(chosen).take(limit).map(owned).collect();
        let full = requests.len() == limit;
        let next = requests.last().filter(|_| full).map_or(state.last, |(number, _)| *number);
        Found { requests, next, missed: oldest.saturating_sub(after + 1) }
    }

    /// The sums of all requests since this process began, by bucket and operation.
    pub fn traffic(&self) -> Vec<Traffic> {
        let state = self.state();
        let of_bucket = |(bucket, sums): (&String, &BTreeMap<&'static str, Sums>)| {
            let traffic = |(&op, sums): (&&'static str, &Sums)| Traffic { op, bucket: bucket.clone(), sums: *sums };
            sums.iter().map(traffic).collect::<Vec<_>>()
        };
        let mut traffic: Vec<_> = state.sums.iter().flat_map(of_bucket).collect();
        traffic.sort_by(|a, b| (&a.bucket, a.op).cmp(&(&b.bucket, b.op)));
        traffic
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The sums that a request counts for. A bucket gets its own with the first request about it
    /// that succeeds: names that somebody made up take no room.
    fn sums_of(&mut self, ended: &Ended) -> &mut Sums {
        let known = self.sums.contains_key(&ended.bucket);
        let fits = known || ended.bucket.is_empty() || (ended.status < 400 && self.sums.len() < BUCKETS_MAX);
        let bucket = if fits { ended.bucket.as_str() } else { OTHERS };
        if !self.sums.contains_key(bucket) {
            self.sums.insert(bucket.to_owned(), BTreeMap::new());
        }
        let of_bucket = self.sums.get_mut(bucket).expect("it was put there");
        of_bucket.entry(ended.op).or_default()
    }
}

impl Sums {
    fn add(&mut self, ended: &Ended) {
        self.requests += 1;
        self.client_errors += u64::from((400..500).contains(&ended.status));
        self.server_errors += u64::from(ended.status >= 500);
        self.cut += u64::from(ended.end == "cut");
        self.bytes_in += ended.bytes_in;
        self.bytes_out += ended.bytes_out;
        self.ms += ended.whole.as_secs_f64() * 1e3;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(op: &'static str, bucket: &str, status: u16) -> Ended {
        let whole = Duration::from_millis(u64::from(status));
        Ended { op, bucket: bucket.into(), status, whole, end: "complete", bytes_out: 3, ..Ended::default() }
    }

    #[test]
    fn the_newest_requests_are_kept_and_told_oldest_first() {
        let recent = Recent::new(3);
        for status in [200, 201, 202, 203, 204] {
            recent.note(ended("GetObject", "b", status));
        }
        let numbers = |found: &Found| found.requests.iter().map(|(number, _)| *number).collect::<Vec<_>>();
        let all = recent.find(&Wanted::default(), 10);
        assert_eq!((numbers(&all), all.next, all.missed), (vec![3, 4, 5], 5, 0));
        assert_eq!(numbers(&recent.find(&Wanted::default(), 2)), [4, 5]);
        let behind = recent.find(&Wanted { after: Some(1), ..Wanted::default() }, 2);
        assert_eq!((numbers(&behind), behind.next, behind.missed), (vec![3, 4], 4, 1));
        let end = recent.find(&Wanted { after: Some(5), ..Wanted::default() }, 2);
        assert_eq!((numbers(&end), end.next, end.missed), (vec![], 5, 0));
        let none = Recent::new(0);
        none.note(ended("GetObject", "b", 200));
        assert!(none.find(&Wanted::default(), 10).requests.is_empty() && none.traffic().len() == 1);
    }

    #[test]
    fn every_field_of_a_filter_must_fit() {
        let recent = Recent::new(9);
        for (op, bucket, status) in [("GetObject", "a", 404), ("GetObject", "b", 200), ("PutObject", "a", 503)] {
            recent.note(Ended { request_id: format!("{status}"), user: bucket.into(), ..ended(op, bucket, status) });
        }
        let statuses =
            |wanted: Wanted| recent.find(&wanted, 9).requests.iter().map(|(_, ended)| ended.status).collect::<Vec<_>>();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(statuses(Wanted { op: some("GetObject"), ..Wanted::default() }), [404, 200]);
        assert_eq!(statuses(Wanted { bucket: some("a"), ..Wanted::default() }), [404, 503]);
        assert_eq!(statuses(Wanted { user: some("a"), status: Some(500..=599), ..Wanted::default() }), [503]);
        assert_eq!(statuses(Wanted { id: some("200"), ..Wanted::default() }), [200]);
        assert_eq!(statuses(Wanted { slower: Duration::from_millis(404), ..Wanted::default() }), [404, 503]);
        assert_eq!(statuses(Wanted { peer: Some([1, 2, 3, 4].into()), ..Wanted::default() }), [0_u16; 0]);
    }

    #[test]
    fn errors_of_clients_and_of_the_server_are_told_apart() {
        let recent = Recent::new(9);
        for status in [200, 304, 404, 403, 499, 500, 503] {
            recent.note(ended("GetObject", "b", status));
        }
        recent.note(Ended { end: "cut", ..ended("GetObject", "b", 200) });
        let traffic = recent.traffic();
        let sums = traffic[0].sums;
        assert_eq!((traffic.len(), sums.requests, sums.client_errors, sums.server_errors, sums.cut), (1, 8, 3, 2, 1));
        assert_eq!(sums.bytes_out, 24);
    }

    #[test]
    fn names_that_somebody_made_up_take_no_room() {
        let recent = Recent::new(1);
        for number in 0..2 * BUCKETS_MAX {
            recent.note(ended("GetObject", &format!("made-up-{number}"), 404));
        }
        for number in 0..2 * BUCKETS_MAX {
            recent.note(ended("GetObject", &format!("bucket-{number}"), 200));
        }
        recent.note(ended("GetObject", "bucket-0", 404));
        let traffic = recent.traffic();
        assert!(traffic.len() <= BUCKETS_MAX + 1);
        let of = |bucket: &str| traffic.iter().find(|sums| sums.bucket == bucket).map(|sums| sums.sums.client_errors);
        assert_eq!((of("bucket-0"), of("made-up-0")), (Some(1), None));
        assert!(of(OTHERS) >= Some(2 * BUCKETS_MAX as u64));
    }
}
