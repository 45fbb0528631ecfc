//! What references are predicted from, learned from a segment and its base. A choice of the
//! encoder; nothing here is part of the format.

use crate::arm64::Pages;
use crate::instruction::SubRun;
use crate::predict::{BLOCK_LEN, BYTES_PER_KNOT_MIN, Knot, MovedReference, MovedReferences, SHIFT_MAX, kind};
use crate::recognise;

/// What a wrong prediction costs beside …
const MISS_COST: u32 = 10;
/// … a knot for relative references, and …
const NEAR_KNOT_COST: u32 = 16;
/// … one for addresses: of the numbers in tables many are none, and what they change by repeats, so
/// that a miss is cheap.
const FAR_KNOT_COST: u32 = 80;
/// Shifts that are kept in mind from one stretch of addresses to the next.
const STATES_MAX: usize = 12;
/// A block with fewer changed references than this has no kind.
const BLOCK_CHANGES_MIN: u32 = 4;
/// Predictions must make at least one of these many changed bytes equal, and …
const SAVED_SHARE: usize = 16;
/// … these many for each knot, and as many as this in all: the streams have heads.
const SAVED_PER_KNOT: usize = 6;
const SAVED_MIN: usize = 128;

/// "A reference to `address` says that it moved by `shift`."
#[derive(Clone, Copy, Debug)]
struct Vote {
    address: u32,
    shift: i32,
    /// The reference itself has changed.
    changed: bool,
}

/// Learns from the sub runs that `each` visits. True when it pays.
pub(crate) fn learn(
    predictor: &mut MovedReferences,
    seams: Vec<(usize, usize)>,
    target: &[u8],
    mut each: impl FnMut(&mut dyn FnMut(SubRun<'_>)),
) -> bool {
    predictor.clear();
    predictor.seams = seams;
    if let Some(blocks) = recognise::arm64_blocks(target) {
        predictor.pages = blocks.find_pages(predictor, &mut each);
        if learn_with(predictor, &blocks.is_code, target.len(), &mut each) && predictor.kinds.contains(&kind::ARM64) {
            return true;
        }
        predictor.pages = Pages::default();
    }
    learn_with(predictor, &[], target.len(), &mut each)
}

/// Learns with AArch64 code in the blocks that `is_arm64` says.
fn learn_with(
    predictor: &mut MovedReferences,
    is_arm64: &[bool],
    target_len: usize,
    each: &mut impl FnMut(&mut dyn FnMut(SubRun<'_>)),
) -> bool {
    choose_kinds(predictor, is_arm64, target_len, each);
    if predictor.kinds.iter().all(|&kind| kind == kind::PLAIN) {
        return false;
    }
    let (mut near, mut far) = (Vec::new(), Vec::new());
    let mut scratch = Vec::new();
    each(&mut |run| {
        walk(predictor, &run, &mut scratch, |_, is_near, vote| {
            if vote.shift.unsigned_abs() < SHIFT_MAX {
                if is_near { near.push(vote) } else { far.push(vote) }
            }
        });
    });
    let knots_max = target_len / BYTES_PER_KNOT_MIN;
    predictor.near = knots(&mut near, NEAR_KNOT_COST, knots_max);
    predictor.far = knots(&mut far, FAR_KNOT_COST, knots_max);
    keep_what_helps(predictor, each)
}

/// Visits the references of a run: where each stands in it, whether it is a relative one, and what
/// the target says about it.
fn walk(
    predictor: &MovedReferences,
    run: &SubRun<'_>,
    scratch: &mut Vec<u8>,
    mut visit: impl FnMut(usize, bool, Vote),
) {
    scratch.clear();
    scratch.extend_from_slice(run.base);
    let place = predictor.place(run.source, run.at);
    let moved = (place.origin as i32).wrapping_sub(run.at as i32);
    predictor.walk(scratch, run.source, run.at, |base, reference| {
        let (field, is_near, moved) = match reference {
            MovedReference::Near(field) => (field, true, moved),
            MovedReference::Far(field) => (field, false, 0),
            MovedReference::Code(code) => {
                if let Some((shift, changed)) = code.moved(base, run.target, place)
                    && let Ok(shift) = i32::try_from(shift)
                {
                    visit(code.at, true, Vote { address: code.near(), shift, changed });
                }
                return false;
            }
        };
        if let Some(bytes) = run.target.get(field.at..).and_then(<[u8]>::first_chunk::<4>) {
            let change = u32::from_le_bytes(*bytes).wrapping_sub(field.value) as i32;
            let shift = change.wrapping_sub(moved);
            visit(field.at, is_near, Vote { address: field.address, shift, changed: change != 0 });
        }
        false
    });
}

/// Gives each block the kind whose references change most as one.
fn choose_kinds(
    predictor: &mut MovedReferences,
    is_arm64: &[bool],
    target_len: usize,
    each: &mut impl FnMut(&mut dyn FnMut(SubRun<'_>)),
) {
    let blocks = target_len.div_ceil(BLOCK_LEN);
    let mut changes = [(); 3].map(|()| vec![0u32; blocks]);
    let mut scratch = Vec::new();
    for (kind, changes) in (kind::CODE..).zip(&mut changes) {
        predictor.kinds.clear();
        predictor.kinds.resize(blocks, kind);
        each(&mut |run| {
            walk(predictor, &run, &mut scratch, |at, _, vote| {
                changes[(run.at + at) / BLOCK_LEN] += u32::from(vote.changed);
            });
        });
    }
    let [code, pointers, offsets] = changes;
    for (block, kind) in predictor.kinds.iter_mut().enumerate() {
        let (code, pointers, offsets) = (code[block], pointers[block], offsets[block]);
        *kind = match () {
            () if is_arm64.get(block) == Some(&true) => kind::ARM64,
            () if code.max(offsets) < BLOCK_CHANGES_MIN => kind::PLAIN,
            () if 2 * code >= offsets => kind::CODE,
            () if 4 * pointers >= 3 * offsets => kind::POINTERS,
            () => kind::OFFSETS,
        };
    }
}

/// A stretch's shift while the cheapest list of knots is looked for.
#[derive(Clone, Copy, Debug)]
struct State {
    shift: Option<i32>,
    cost: u32,
    /// Place of its last knot among all considered, from 1; 0 when there is none.
    last: u32,
}

/// The knots with which few votes are wrong: the cheapest way through the votes in the order of
/// addresses, with a few shifts in mind.
fn knots(votes: &mut [Vote], knot_cost: u32, knots_max: usize) -> Vec<Knot> {
    votes.sort_unstable_by_key(|vote| (vote.address, vote.shift));
    let mut considered: Vec<(Knot, u32)> = Vec::new();
    let mut states = vec![State { shift: None, cost: 0, last: 0 }];
    for alike in votes.chunk_by(|left, right| left.shift == right.shift) {
        let (start, shift) = (alike[0].address, Some(alike[0].shift));
        let missed = MISS_COST * alike.len() as u32;
        let missed_unpredicted = MISS_COST * alike.iter().filter(|vote| vote.changed).count() as u32;
        let cost_of = |state: Option<i32>| match state {
            _ if state == shift => 0,
            None => missed_unpredicted,
            Some(_) => missed,
        };
        let cheapest = states.iter().min_by_key(|state| state.cost).copied().unwrap_or(states[0]);
        for state in &mut states {
            state.cost += cost_of(state.shift);
        }
        for shift in [shift, None] {
            let cost = cheapest.cost + knot_cost + cost_of(shift);
            let known = states.iter_mut().find(|state| state.shift == shift);
            if known.as_ref().is_some_and(|known| known.cost <= cost) {
                continue;
            }
            considered.push((Knot { start, shift }, cheapest.last));
            let state = State { shift, cost, last: considered.len() as u32 };
            match known {
                Some(known) => *known = state,
                None => states.push(state),
            }
        }
        forget(&mut states);
    }
    let mut last = states.iter().min_by_key(|state| state.cost).map_or(0, |state| state.last);
    let mut knots = Vec::new();
    while let Some(index) = last.checked_sub(1) {
        let (knot, before) = considered[index as usize];
        // Of two knots at one address the later one counts, and it comes first here.
        if knots.last().is_none_or(|later: &Knot| later.start != knot.start) {
            knots.push(knot);
        }
        last = before;
    }
    knots.reverse();
    knots.truncate(knots_max);
    knots
}

/// Drops the most expensive states, and takes the smallest cost off all of them: only differences
/// count.
fn forget(states: &mut Vec<State>) {
    if states.len() > STATES_MAX + 2 {
        states.sort_unstable_by_key(|state| (state.cost, state.last));
        states.truncate(STATES_MAX);
    }
    let least = states.iter().map(|state| state.cost).min().unwrap_or(0);
    states.iter_mut().for_each(|state| state.cost -= least);
}

/// Makes blocks plain in which predictions do not help. True when enough is left.
fn keep_what_helps(predictor: &mut MovedReferences, each: &mut impl FnMut(&mut dyn FnMut(SubRun<'_>))) -> bool {
    let mut counts = vec![(0u32, 0u32); predictor.kinds.len()];
    let mut scratch = Vec::new();
    each(&mut |run| {
        scratch.clear();
        scratch.extend_from_slice(run.base);
        predictor.apply(&mut scratch, run.source, run.at);
        let mut at = 0;
        while at < run.base.len() {
            let block = (run.at + at) / BLOCK_LEN;
            let part = at..((block + 1) * BLOCK_LEN - run.at).min(run.base.len());
            at = part.end;
            counts[block].0 += different(&run.base[part.clone()], &run.target[part.clone()]);
            counts[block].1 += different(&scratch[part.clone()], &run.target[part]);
        }
    });
    let (mut changed, mut saved) = (0, 0);
    for (kind, (before, after)) in predictor.kinds.iter_mut().zip(counts) {
        changed += before as usize;
        if after < before {
            saved += (before - after) as usize;
        } else {
            *kind = kind::PLAIN;
        }
    }
    let knots = predictor.near.len() + predictor.far.len();
    saved >= SAVED_MIN + SAVED_PER_KNOT * knots && saved >= changed / SAVED_SHARE
}

fn different(left: &[u8], right: &[u8]) -> u32 {
    left.iter().zip(right).map(|(left, right)| u32::from(left != right)).sum()
}
