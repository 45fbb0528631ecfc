//! Uploads that are under way at the same time. None of them finds the others in the catalog, so
//! similar ones would all be stored whole: whichever ends later is told, and encoded anew.
//!
//! Nobody waits for anybody. This is advice, of one process, kept in memory: without it content
//! takes more bytes than it has to.

use super::similar::RegionSketch;
use catalog::Domain;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// From this share of its samples on, content is worth encoding anew.
const SHARE_MIN: f64 = 0.3;
/// Uploads that have ended and are remembered, at most.
const ENDED_MAX: usize = 1024;
/// Sketches of one upload that are looked at: of its first 256 MiB.
const REGIONS_MAX: usize = 4;

/// The uploads under way, and those that ended while one of them was.
#[derive(Default)]
pub(crate) struct InFlight(Mutex<Uploads>);

#[derive(Default)]
struct Uploads {
    /// Beginnings and ends are numbered together.
    next: u64,
    /// Numbers of the beginnings of those under way.
    begun: Vec<u64>,
    ended: Vec<Ended>,
}

struct Ended {
    at: u64,
    domain: Domain,
    regions: Vec<RegionSketch>,
}

/// An upload under way, for as long as it lives.
pub(crate) struct Upload {
    uploads: Arc<InFlight>,
    began: u64,
}

impl InFlight {
    /// An upload begins.
    pub(crate) fn begin(self: &Arc<Self>) -> Upload {
        let mut uploads = self.uploads();
        let began = uploads.number();
        uploads.begun.push(began);
        Upload { uploads: self.clone(), began }
    }

    fn uploads(&self) -> MutexGuard<'_, Uploads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upload {
    /// It ends with content that resembles this; whether one that ended since it began resembles
    /// it, too. Of two, only the later one is told so.
    pub(crate) fn ends(self, domain: Domain, regions: &[RegionSketch]) -> bool {
        let mut uploads = self.uploads.uploads();
        let similar = uploads
            .ended
            .iter()
            .filter(|other| other.at > self.began && other.domain == domain)
            .any(|other| resembles(regions, &other.regions));
        if uploads.begun.len() > 1 && uploads.ended.len() < ENDED_MAX {
            let at = uploads.number();
            let regions = regions.iter().take(REGIONS_MAX).cloned().collect();
            uploads.ended.push(Ended { at, domain, regions });
        }
        similar
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let mut uploads = self.uploads.uploads();
        uploads.begun.retain(|began| *began != self.began);
        // What ended before all of them began, none of them will ask for.
        let oldest = uploads.begun.iter().copied().min().unwrap_or(u64::MAX);
        uploads.ended.retain(|ended| ended.at > oldest);
    }
}

impl Uploads {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

fn resembles(these: &[RegionSketch], others: &[RegionSketch]) -> bool {
    let share = |region: &RegionSketch| others.iter().filter_map(|other| other.share_of(&region.head)).reduce(f64::max);
    these.iter().take(REGIONS_MAX).filter_map(share).any(|share| share >= SHARE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::BucketId;
    use delta_codec::sketch::Sketcher;

    fn domain(bucket: i64) -> Domain {
        Domain { bucket: BucketId(bucket), key_epoch: 0, backend: "local".into(), compartment: None }
    }

    /// Of content that is the same for the same seed.
    fn regions(seed: u64) -> Vec<RegionSketch> {
        let mut sketcher = Sketcher::new(None);
        sketcher.update(&crate::tests::content(1 << 20, seed));
        vec![RegionSketch { head: sketcher.finish(), all: None }]
    }

    #[test]
    fn of_similar_uploads_all_but_the_one_that_ends_first_are_told() {
        let (uploads, content) = (Arc::new(InFlight::default()), regions(7));
        let [a, b, c, d] = [(); 4].map(|()| uploads.begin());
        assert!(!b.ends(domain(1), &content));
        assert!(a.ends(domain(1), &content));
        assert!(!c.ends(domain(2), &content), "another domain has bases of its own");
        assert!(!d.ends(domain(1), &regions(8)), "nothing like it");
    }

    #[test]
    fn what_ended_before_an_upload_began_is_in_the_catalog_and_forgotten_here() {
        let (uploads, content) = (Arc::new(InFlight::default()), regions(7));
        let (long, first) = (uploads.begin(), uploads.begin());
        assert!(!first.ends(domain(1), &content));
        let later = uploads.begin();
        assert!(!later.ends(domain(1), &content));
        assert_eq!(uploads.uploads().ended.len(), 2);
        drop(long);
        assert!(uploads.uploads().ended.is_empty());
        assert!(!uploads.begin().ends(domain(1), &content));
        assert!(uploads.uploads().ended.is_empty(), "nobody else is under way");
    }
}
