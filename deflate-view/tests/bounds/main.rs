//! What nobody should send: damaged, overlapping, nested and absurd containers, and bombs. No
//! panic, no wrong byte; work and memory are counted, and bounded beyond what honest containers
//! cost.

mod damage;
#[allow(dead_code, reason = "shared with the other tests, which use the rest")]
#[path = "../it/kit.rs"]
mod kit;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use deflate_view::{AHEAD_LEN, CutLimits, Cutter, Index, ReplayId, ScanLimits, Scanner, encode_unit, recognise};
use peak_alloc::PeakAlloc;

use crate::damage::{Damaged, Mutator};
use crate::kit::{OwnedBase, decoded};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Counted bytes that a hundred milliseconds are worth: a release build inflates about as many.
const WORK_BEYOND_MAX: u64 = 10_000_000;
const MEMORY_BEYOND_MAX: u64 = 32 << 20;

/// A bug on purpose, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// A text that is not that of the unit.
    WrongText,
    /// A scan that reads bombs to their end.
    NoBoundOnBombs,
}

/// What taking an object through units and back took, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Plain text that was inflated by the scan.
    inflated: u64,
    /// Text of the units, and searches of replayed encoders as what they cost.
    units: u64,
    /// Most memory at a time.
    memory: u64,
    elapsed: Duration,
    parts: usize,
    /// Of these, in the plain text of others.
    nested: usize,
    /// Units that gave other bytes, or none.
    wrong: u64,
}

impl Cost {
    fn work(&self) -> u64 {
        self.inflated + self.units
    }
}

fn cost(object: &[u8], cut: CutLimits, bug: Bug) -> Cost {
    let held = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let started = Instant::now();
    let mut cost = Cost::default();
    let index;
    (index, cost.inflated) = scanned(object, bug);
    let mut cutter = Cutter::new(index.streams.iter().collect(), object.len() as u64, cut);
    loop {
        let at = cutter.position() as usize;
        let ahead = &object[at..object.len().min(at + AHEAD_LEN)];
        let Some(mut unit) = cutter.next(ahead).expect("streams that were found") else { break };
        let replay: ReplayId = recognise(&unit);
        let base = OwnedBase::default();
        let parses = encode_unit(&unit, base.borrow(), &[], (replay, replay), false).expect("its own text");
        let nested = parses.nested.as_ref().map(|nested| replay.searches_ns(nested.counts.work));
        let searches_ns = replay.searches_ns(parses.parse.counts.work) + nested.unwrap_or(0);
        let outer_len = nested.map_or(0, |_| unit.outermost().text.len());
        cost.units += (unit.text.len() + outer_len) as u64 + searches_ns / 10;
        cost.parts += unit.parts();
        cost.nested += unit.nested_parts();
        if bug == Bug::WrongText {
            unit.text[0] ^= 1;
        }
        let decoded = decoded(&unit, &parses, base.borrow(), &[]);
        let own = &object[unit.object.start as usize..unit.object.end as usize];
        cost.wrong += u64::from(decoded.is_err() || decoded.is_ok_and(|bytes| bytes != own));
    }
    assert_eq!(cutter.position(), object.len() as u64, "all of the object");
    cost.elapsed = started.elapsed();
    cost.memory = MEMORY.peak_usage().saturating_sub(held) as u64;
    cost
}

/// The index, and how many plain bytes were inflated for it.
fn scanned(object: &[u8], bug: Bug) -> (Index, u64) {
    let mut limits = ScanLimits::default();
    if bug == Bug::NoBoundOnBombs {
        limits.rich_plain_len_max = u64::MAX;
    }
    let inflated = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&inflated);
    let sink = move |plain: &[u8]| _ = count.fetch_add(plain.len() as u64, Ordering::Relaxed);
    let mut scanner = Scanner::with_sink(limits, Box::new(sink));
    object.chunks(1 << 20).for_each(|piece| scanner.feed(piece));
    (scanner.finish(), inflated.load(Ordering::Relaxed))
}

/// The most that was found beyond the honest cost.
#[derive(Debug, Default)]
struct Found {
    wrong: u64,
    work_beyond: u64,
    memory_beyond: u64,
    ms_beyond: u128,
    with_parts: usize,
    with_nested: usize,
    bombs: usize,
}

impl Found {
    fn is_bounded(&self) -> bool {
        self.work_beyond <= WORK_BEYOND_MAX && self.memory_beyond <= MEMORY_BEYOND_MAX
    }
}

fn campaign(count: usize, bug: Bug) -> Found {
    let mut mutator = Mutator::new(20_261_123);
    let small = CutLimits { text_len_max: 64 << 10, unit_len_max: 4 << 10 };
    let cuts = [small, CutLimits::default(), CutLimits::default()];
    let honest: Vec<_> =
        mutator.seeds.iter().map(|seed| [small, CutLimits::default()].map(|cut| cost(seed, cut, Bug::None))).collect();
    let mut found = Found::default();
    for number in 0..count {
        let Damaged { object, of, bombs } = mutator.next(number);
        // In short units every second byte of text is context.
        let cut = if bombs > 0 { CutLimits::default() } else { cuts[number % 3] };
        let cost = cost(&object, cut, bug);
        let sum = |get: fn(&Cost) -> u64| of.iter().map(|seed| get(&honest[*seed][usize::from(cut != small)])).sum();
        // Of bombs it is honest to open as much as the format document lets an encoder.
        let allowed = if bombs > 0 { 2 * ((32 << 20) + 16 * object.len() as u64) } else { 0 };
        let work: u64 = sum(Cost::work) + allowed;
        let memory: u64 = sum(|cost| cost.memory) + object.len() as u64;
        let ms: u64 = sum(|cost| cost.elapsed.as_millis() as u64);
        found.wrong += cost.wrong;
        found.work_beyond = found.work_beyond.max(cost.work().saturating_sub(work));
        found.memory_beyond = found.memory_beyond.max(cost.memory.saturating_sub(memory));
        if bombs == 0 {
            found.ms_beyond = found.ms_beyond.max(cost.elapsed.as_millis().saturating_sub(ms.into()));
        }
        found.with_parts += usize::from(cost.parts > 0);
        found.with_nested += usize::from(cost.nested > 0);
        found.bombs += bombs;
    }
    found
}

/// As many as `DELTAWEIR_MUTATED_CONTAINERS` says (tests/campaigns/test_mutated_containers.py).
/// Memory is that of the process: nothing else may run in it meanwhile.
#[test]
fn mutated_containers_come_back_at_a_bounded_cost_and_bugs_are_noticed() {
    let asked = std::env::var("DELTAWEIR_MUTATED_CONTAINERS").ok();
    let count = asked.map_or(1_000, |count| count.parse().expect("a number"));
    let found = campaign(count, Bug::None);
    let is_noticed = campaign(100, Bug::WrongText).wrong > 0 && !campaign(460, Bug::NoBoundOnBombs).is_bounded();
    let Found { wrong, work_beyond, memory_beyond, ms_beyond, with_parts, with_nested, bombs } = found;
    println!(
        r#"{{"campaign": "containers", "ops": {count}, "bombs": {bombs}, "with_streams": {with_parts}, "with_nested": {with_nested}, "wrong": {wrong}, "panics": 0, "work_bytes_beyond_max": {work_beyond}, "memory_bytes_beyond_max": {memory_beyond}, "ms_beyond_max": {ms_beyond}, "mutant_detected": {is_noticed}}}"#
    );
    assert_eq!(found.wrong, 0);
    assert!(found.is_bounded(), "{found:?}");
    assert!(with_parts > count / 10 && with_nested > count / 100 && bombs > 0, "{found:?}");
    assert!(is_noticed);
}
