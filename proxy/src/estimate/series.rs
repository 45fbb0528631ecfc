//! The objects of a source as series of similar names, and the runs of them that a sample is made
//! of.

use crate::engine::key_order::{natural, prefix_of, shape_of};
use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    ops::Range,
};
use storage_backends::PlainEntry;

/// Where size classes begin, in bytes.
pub(super) const CLASSES: [u64; 6] = [0, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20];
/// Most objects of a run: long enough that a series drifts inside it and is re-based.
const RUN_OBJECTS_MAX: usize = 32;
/// Runs that a class is sampled by at least, where it has so many: an interval needs several.
const RUNS_MIN: usize = 8;
/// Objects that a run of a bounded sample keeps: a head and a follower.
const RUN_OBJECTS_MIN: usize = 2;
/// Objects that a bounded sample has room for, whatever their length.
const OBJECTS_MIN: u64 = 8;

/// One listed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) key: String,
    pub(super) len: u64,
    /// What equal content has equal, where the listing says it.
    content: Option<u64>,
}

impl Listed {
    pub(super) fn of(entry: PlainEntry) -> Self {
        let content = entry.etag.filter(|etag| tells_content(etag)).map(|etag| {
            let mut hasher = DefaultHasher::new();
            (etag, entry.len).hash(&mut hasher);
            hasher.finish()
        });
        Self { key: entry.key, len: entry.len, content }
    }
}

/// Whether equal ETags mean equal content: an MD5, or one of an upload in parts. A file's is made
/// of times.
fn tells_content(etag: &str) -> bool {
    let digest = etag.split_once('-').map_or(etag, |(digest, _)| digest);
    digest.len() == 32 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Everything there is.
pub(super) struct Population {
    /// Without copies, by series and in natural order inside each.
    objects: Vec<Listed>,
    /// Runs by size class, and what each class sums up to.
    pub(super) classes: Vec<Class>,
    pub(super) logical_bytes: u64,
    pub(super) duplicate_bytes: u64,
    duplicates: u64,
}

/// One size class.
#[derive(Clone, Debug, Default)]
pub(super) struct Class {
    pub(super) objects: u64,
    pub(super) series: u64,
    /// Bytes of the first object of each series.
    pub(super) head_bytes: u64,
    /// Bytes of the others.
    pub(super) follower_bytes: u64,
    runs: Vec<Run>,
}

impl Class {
    fn bytes(&self) -> u64 {
        self.head_bytes + self.follower_bytes
    }
}

/// Where a bounded choice is with a class.
struct Choosing<'a> {
    /// In the order of a draw, from the end.
    runs: Vec<&'a Run>,
    /// The class's bytes.
    weight: u128,
    /// After how many bytes a run is cut short.
    run_bytes: u128,
    taken: u128,
}

/// Neighbours of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Its size class.
    pub(super) class: usize,
    begins_series: bool,
    objects: Range<usize>,
    bytes: u64,
}

impl Run {
    /// What it took, before anything of it was stored.
    pub(super) fn unobserved(&self) -> Observed {
        Observed::nothing(self.class, self.begins_series)
    }
}

impl Population {
    pub(super) fn of(listed: Vec<Listed>) -> Self {
        let logical_bytes = listed.iter().map(|object| object.len).sum();
        let (mut seen, mut duplicates, mut duplicate_bytes) = (HashSet::new(), 0, 0);
        let mut series: BTreeMap<(String, Vec<u8>), Vec<Listed>> = BTreeMap::new();
        for object in listed {
            if object.content.is_some_and(|content| !seen.insert(content)) {
                duplicates += 1;
                duplicate_bytes += object.len;
                continue;
            }
            let name = (prefix_of(&object.key).to_owned(), shape_of(&object.key));
            series.entry(name).or_default().push(object);
        }
        let mut population = Self {
            objects: Vec::new(),
            classes: vec![Class::default(); CLASSES.len()],
            logical_bytes,
            duplicate_bytes,
            duplicates,
        };
        for (_, mut members) in series {
            members.sort_by(|a, b| natural(&a.key, &b.key).then_with(|| a.key.cmp(&b.key)));
            population.add_series(members);
        }
        population
    }

    /// A series is of the class of its median member.
    fn add_series(&mut self, members: Vec<Listed>) {
        let mut lens: Vec<u64> = members.iter().map(|object| object.len).collect();
        lens.sort_unstable();
        let class = CLASSES.partition_point(|from| *from <= lens[lens.len() / 2]) - 1;
        let sums = &mut self.classes[class];
        sums.series += 1;
        sums.objects += members.len() as u64;
        let head = members[0].len;
        sums.head_bytes += head;
        sums.follower_bytes += lens.iter().sum::<u64>() - head;
        for (n, run) in members.chunks(RUN_OBJECTS_MAX).enumerate() {
            let start = self.objects.len();
            self.objects.extend_from_slice(run);
            let bytes = run.iter().map(|object| object.len).sum();
            self.classes[class].runs.push(Run {
                class,
                begins_series: n == 0,
                objects: start..self.objects.len(),
                bytes,
            });
        }
    }

    pub(super) fn objects(&self) -> u64 {
        self.objects.len() as u64 + self.duplicates
    }

    pub(super) fn objects_of(&self, run: &Run) -> &[Listed] {
        &self.objects[run.objects.clone()]
    }

    /// A sample of about `sample_bytes`: of every class in proportion to its bytes, at least a few
    /// runs, each run as likely as any other of its class. In the order of keys, as an upload of
    /// everything would be.
    pub(super) fn choose(&self, sample_bytes: u64, seed: u64) -> Vec<Run> {
        let all = self.distinct_bytes();
        let mut dice = Dice(seed);
        let mut chosen = Vec::new();
        for class in &self.classes {
            let share = share_of(sample_bytes, class.bytes(), all);
            let mut runs: Vec<&Run> = class.runs.iter().collect();
            dice.shuffle(&mut runs);
            let mut taken = 0u128;
            for (n, run) in runs.into_iter().enumerate() {
                if taken >= share && (n >= RUNS_MIN || sample_bytes == 0) {
                    break;
                }
                taken += u128::from(run.bytes);
                chosen.push(run.clone());
            }
        }
        chosen.sort_by_key(|run| run.objects.start);
        chosen
    }

    /// Bytes of everything but copies.
    fn distinct_bytes(&self) -> u64 {
        self.classes.iter().map(Class::bytes).sum()
    }

    /// How much of an object a bounded sample reads at most: all of it where all objects fit.
    pub(super) fn object_bytes(&self, sample_bytes: u64) -> u64 {
        if self.distinct_bytes() <= sample_bytes { sample_bytes } else { (sample_bytes / OBJECTS_MIN).max(1) }
    }

    /// A sample of at most `sample_bytes` and one object, of whose objects at most `object_bytes`
    /// are read. The class that has least of its share takes the next run; runs are cut short, so
    /// that a class has several.
    pub(super) fn choose_within(&self, sample_bytes: u64, object_bytes: u64, seed: u64) -> Vec<Run> {
        let all = self.distinct_bytes();
        if all <= sample_bytes {
            return self.choose(u64::MAX, seed);
        }
        let mut dice = Dice(seed);
        let mut turns = Vec::new();
        for class in self.classes.iter().filter(|class| class.objects > 0) {
            let mut runs: Vec<&Run> = class.runs.iter().collect();
            dice.shuffle(&mut runs);
            let run_bytes = share_of(sample_bytes, class.bytes(), all) / RUNS_MIN.min(runs.len()).max(1) as u128;
            turns.push(Choosing { runs, weight: u128::from(class.bytes().max(1)), run_bytes, taken: 0 });
        }
        let (mut left, mut chosen) = (sample_bytes, Vec::new());
        while left > 0 {
            let unfinished = turns.iter_mut().filter(|turn| !turn.runs.is_empty());
            let next = unfinished.min_by(|a, b| (a.taken * b.weight).cmp(&(b.taken * a.weight)));
            let Some((turn, run)) = next.and_then(|turn| turn.runs.pop().map(|run| (turn, run))) else { break };
            let (mut bytes, mut count) = (0u64, 0usize);
            for object in self.objects_of(run) {
                let is_long = count >= RUN_OBJECTS_MIN && u128::from(bytes) >= turn.run_bytes;
                if is_long || bytes >= left {
                    break;
                }
                bytes += object.len.min(object_bytes);
                count += 1;
            }
            left = left.saturating_sub(bytes);
            turn.taken += u128::from(bytes);
            let objects = run.objects.start..run.objects.start + count;
            chosen.push(Run { objects, bytes, ..run.clone() });
        }
        chosen.sort_by_key(|run| run.objects.start);
        chosen
    }
}

/// A class's part of a sample, by its bytes.
fn share_of(sample_bytes: u64, bytes: u64, all: u64) -> u128 {
    u128::from(sample_bytes) * u128::from(bytes) / u128::from(all.max(1))
}

/// Numbers from a seed (SplitMix64, <https://prng.di.unimi.it/splitmix64.c>).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let drawn = (u128::from(self.next()) * end as u128) >> 64;
        usize::try_from(drawn).unwrap_or(0)
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// What one sampled run took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observed {
    pub(super) class: usize,
    /// Whether the run's first object is its series' first.
    pub(super) begins_series: bool,
    pub(super) head: Share,
    pub(super) followers: Share,
    begun: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    pub(super) plain: u64,
    pub(super) stored: u64,
}

impl Observed {
    /// Before the run's first object was stored.
    pub(super) fn nothing(class: usize, begins_series: bool) -> Self {
        Self { class, begins_series, ..Self::default() }
    }

    /// Takes the run's next object.
    pub(super) fn add(&mut self, plain: u64, stored: u64) {
        let share = if self.begun { &mut self.followers } else { &mut self.head };
        share.plain += plain;
        share.stored += stored;
        self.begun = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(key: &str, len: u64, etag: Option<&str>) -> Listed {
        Listed::of(PlainEntry { key: key.into(), len, etag: etag.map(str::to_owned) })
    }

    #[test]
    fn versions_form_a_series_in_natural_order() {
        let population = Population::of(vec![
            entry("r/app-10.tar", 30_000, None),
            entry("r/app-9.tar", 20_000, None),
            entry("r/other.txt", 10, None),
        ]);
        let runs = population.choose(u64::MAX, 1);
        let keys: Vec<Vec<&str>> = runs
            .iter()
            .map(|run| population.objects_of(run).iter().map(|object| object.key.as_str()).collect())
            .collect();
        assert_eq!(keys, [vec!["r/app-9.tar", "r/app-10.tar"], vec!["r/other.txt"]]);
        let class = &population.classes[1];
        assert_eq!((class.series, class.head_bytes, class.follower_bytes), (1, 20_000, 30_000));
    }

    #[test]
    fn copies_count_once_where_the_listing_tells_content() {
        let md5 = "0123456789abcdef0123456789abcdef";
        let parts = format!("{md5}-3");
        let of =
            |etag: &str| Population::of(vec![entry("a", 7, Some(etag)), entry("b", 7, Some(etag))]).duplicate_bytes;
        assert_eq!((of(md5), of(&parts)), (7, 7));
        assert_eq!(of("18c0ffee-7"), 0, "a file's ETag is made of times");
    }

    proptest! {
        #[test]
        fn a_sample_has_no_run_twice_and_a_seed_always_takes_the_same(
            lens in prop::collection::vec(0u64..40_000_000, 1..200), sample in 0u64..400_000_000, seed: u64
        ) {
            let listed = |n: usize, len: &u64| entry(&format!("s{}/v{n}", n % 7), *len, None);
            let listed: Vec<Listed> = lens.iter().enumerate().map(|(n, len)| listed(n, len)).collect();
            let population = Population::of(listed);
            prop_assert_eq!(population.classes.iter().map(|c| c.head_bytes + c.follower_bytes).sum::<u64>(), lens.iter().sum::<u64>());
            let runs = population.choose(sample, seed);
            prop_assert_eq!(&runs, &population.choose(sample, seed));
            for pair in runs.windows(2) {
                prop_assert!(pair[0].objects.end <= pair[1].objects.start);
            }
            let all = population.choose(u64::MAX, seed);
            prop_assert_eq!(all.iter().map(|run| run.objects.len()).sum::<usize>(), lens.len());
        }

        #[test]
        fn a_bounded_sample_is_never_longer_than_it_may_be_by_more_than_one_object(
            lens in prop::collection::vec(0u64..400_000_000, 1..200),
            names in 1usize..40, sample in 1u64..600_000_000, seed: u64
        ) {
            let listed = |n: usize, len: &u64| entry(&format!("s{}x/v{n}", n % names), *len, None);
            let population = Population::of(lens.iter().enumerate().map(|(n, len)| listed(n, len)).collect());
            let object_bytes = population.object_bytes(sample);
            let runs = population.choose_within(sample, object_bytes, seed);
            prop_assert_eq!(&runs, &population.choose_within(sample, object_bytes, seed));
            let read = |run: &Run| population.objects_of(run).iter().map(|object| object.len.min(object_bytes)).sum::<u64>();
            let bytes: u64 = runs.iter().map(read).sum();
            let everything: u64 = lens.iter().sum();
            if everything <= sample {
                prop_assert_eq!(bytes, everything);
            } else {
                prop_assert!(object_bytes <= (sample / 8).max(1));
                prop_assert!(bytes < sample + object_bytes, "{} of {}", bytes, sample);
                for pair in runs.windows(2) {
                    prop_assert!(pair[0].objects.end <= pair[1].objects.start);
                }
            }
        }
    }

    #[test]
    fn a_bounded_sample_of_large_objects_has_several_runs() {
        let listed = (0..320).map(|n| entry(&format!("s{}x/v{n}", n / 32), 200 << 20, None)).collect();
        let population = Population::of(listed);
        let runs = population.choose_within(64 << 20, population.object_bytes(64 << 20), 1);
        assert_eq!(runs.iter().map(|run| run.objects.len()).collect::<Vec<_>>(), [2; 4]);
        let unbounded = population.choose(64 << 20, 1);
        assert!(unbounded.iter().map(|run| run.bytes).sum::<u64>() > 50_000_000_000);
    }
}
