//! References in AArch64 code (docs/format/delta-v1.md §5.2): branches, and the two instructions
//! that make an address together.
//!
//! ```text
//! adrp x0, page        how many pages of 4 KiB from the page of this instruction
//! add  x0, x0, low     the lower 12 bits; a load or a store has them, too: ldr x1, [x0, low]
//! ```

use crate::format::REACH;

/// Bytes of an instruction. Part of the format.
pub(crate) const INSTRUCTION_LEN: usize = 4;
/// Bits of an address that count within a page. Part of the format.
const PAGE_BITS: u32 = 12;
/// Bytes of a page. Part of the format.
pub(crate) const PAGE_LEN: usize = 1 << PAGE_BITS;
/// How far behind an ADRP the last instruction begins that counts from its page. Part of the
/// format.
const HELD_FOR: usize = 64;
/// Registers that hold pages. Part of the format: the last number means none, or the stack.
const REGISTERS: usize = 31;

const BRANCH_MASK: u32 = 0x03ff_ffff;
const LOW_MASK: u32 = 0xfff << 10;
/// What an ADRP is but for its page.
const ADRP_MASK: u32 = 0x9f00_001f;

/// How far into a page of memory the first byte of base and target lie, both below [`PAGE_LEN`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) base: u32,
    pub(crate) target: u32,
}

/// Where a run lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunPlace {
    /// Its first byte in the base.
    pub(crate) origin: usize,
    /// Its first byte in the target.
    pub(crate) at: usize,
    pub(crate) pages: Pages,
}

/// What instructions say of an address.
#[derive(Clone, Copy, Debug)]
enum Operand {
    /// How far it is from a B or BL.
    Distance,
    /// Its lower bits, in units of `1 << scale` bytes; its page is in the ADRP at `adrp`.
    Low { adrp: usize, scale: u32, page_is_settled: bool },
}

/// A reference as the base has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeReference {
    /// Where its only or second instruction stands in the run.
    pub(crate) at: usize,
    operand: Operand,
    /// What it means: a position in the base.
    address: i64,
}

/// An ADRP whose page a register holds.
#[derive(Clone, Copy)]
struct Adrp {
    at: usize,
    /// As a position in the base.
    page: i64,
    is_settled: bool,
}

/// Visits the references in `run` from `next` on, as far as `end`, and says where it has come to.
/// `visit` returns true when it has changed the reference.
///
/// Not inlined: within the walk of other kinds it would cost those a third of their speed.
#[inline(never)]
pub(crate) fn walk(
    run: &mut [u8],
    mut next: usize,
    end: usize,
    place: RunPlace,
    mut visit: impl FnMut(&mut [u8], CodeReference) -> bool,
) -> usize {
    let mut held: [Option<Adrp>; REGISTERS] = [None; _];
    let skipped = place.origin + place.pages.base as usize + next;
    next = (next + skipped.next_multiple_of(INSTRUCTION_LEN) - skipped).min(end);
    while next < end {
        let at = next;
        next += INSTRUCTION_LEN;
        let Some(word) = word_at(run, at) else { return run.len() };
        if is_branch(word) {
            let address = (place.origin + at) as i64 + distance(word);
            visit(run, CodeReference { at, operand: Operand::Distance, address });
        } else if is_adrp(word) {
            if let Some(register) = held.get_mut(destination(word)) {
                let page = page_of(place.origin + at, place.pages.base) + page_distance(word);
                *register = Some(Adrp { at, page, is_settled: false });
            }
        } else if let Some(scale) = scale_of_low(word)
            && let Some(register) = held.get_mut(counted_from(word))
            && let Some(adrp) = register
        {
            if at - adrp.at > HELD_FOR {
                *register = None;
                continue;
            }
            let low = i64::from(low(word)) << scale;
            let address = adrp.page + low;
            let reach = i64::from(REACH);
            // What lies on another page than that of the ADRP counts from something else.
            if low < PAGE_LEN as i64 && (-reach..reach).contains(&(address - (place.origin + at) as i64)) {
                let operand = Operand::Low { adrp: adrp.at, scale, page_is_settled: adrp.is_settled };
                adrp.is_settled |= visit(run, CodeReference { at, operand, address });
            }
            if destination(word) == counted_from(word) {
                *register = None;
            }
        }
    }
    next
}

impl CodeReference {
    /// The address in the numbers of the table for relative references.
    pub(crate) fn near(&self) -> u32 {
        // At least -REACH, and far below 2^32.
        (self.address + i64::from(REACH)) as u32
    }

    /// Makes it mean what has moved by `shift`. False when its instructions cannot say that.
    #[inline(always)]
    pub(crate) fn redirect(&self, run: &mut [u8], place: RunPlace, shift: i32) -> bool {
        let Some(word) = word_at(run, self.at) else { return false };
        let address = self.address + i64::from(shift);
        match self.operand {
            Operand::Distance => {
                let distance = address - (place.at + self.at) as i64;
                if distance % INSTRUCTION_LEN as i64 != 0 {
                    return false;
                }
                put(run, self.at, word & !BRANCH_MASK | (distance >> 2) as u32 & BRANCH_MASK);
            }
            Operand::Low { adrp, scale, page_is_settled } => {
                let address = address + i64::from(place.pages.target);
                let low = address as u32 % PAGE_LEN as u32;
                if !low.is_multiple_of(1 << scale) {
                    return false;
                }
                put(run, self.at, word & !LOW_MASK | low >> scale << 10);
                if !page_is_settled && let Some(word) = word_at(run, adrp) {
                    let here = (place.at + adrp + place.pages.target as usize) as i64;
                    let pages = ((address >> PAGE_BITS) - (here >> PAGE_BITS)) as u32;
                    put(run, adrp, word & ADRP_MASK | (pages & 3) << 29 | (pages >> 2 & 0x7_ffff) << 5);
                }
            }
        }
        true
    }

    /// How far what it means has moved, and whether its instructions have changed; `None` where
    /// `target` has others than `base`.
    pub(crate) fn moved(&self, base: &[u8], target: &[u8], place: RunPlace) -> Option<(i64, bool)> {
        let (before, after) = (word_at(base, self.at)?, word_at(target, self.at)?);
        match self.operand {
            Operand::Distance => {
                let address = (place.at + self.at) as i64 + distance(after);
                is_branch(after).then_some((address - self.address, before != after))
            }
            Operand::Low { adrp, scale, .. } => {
                let (page_before, page_after) = (word_at(base, adrp)?, word_at(target, adrp)?);
                let is_alike = (before ^ after) & !LOW_MASK == 0 && (page_before ^ page_after) & ADRP_MASK == 0;
                let page = page_of(place.at + adrp, place.pages.target) + page_distance(page_after);
                let address = page + (i64::from(low(after)) << scale);
                let is_changed = before != after || page_before != page_after;
                is_alike.then_some((address - self.address, is_changed))
            }
        }
    }

    /// Of an address made by two instructions: where the ADRP stands in `run`, its distance in
    /// pages, and the lower bits.
    pub(crate) fn parts(&self, run: &[u8]) -> Option<(usize, i64, usize)> {
        let Operand::Low { adrp, scale, .. } = self.operand else { return None };
        let low = (low(word_at(run, self.at)?) << scale) as usize;
        Some((adrp, page_distance(word_at(run, adrp)?) >> PAGE_BITS, low))
    }
}

#[inline(always)]
fn word_at(run: &[u8], at: usize) -> Option<u32> {
    run.get(at..)?.first_chunk::<INSTRUCTION_LEN>().map(|bytes| u32::from_le_bytes(*bytes))
}

#[inline(always)]
fn put(run: &mut [u8], at: usize, word: u32) {
    run[at..at + INSTRUCTION_LEN].copy_from_slice(&word.to_le_bytes());
}

/// Where the page of `position` begins, when position 0 lies `into` a page.
fn page_of(position: usize, into: u32) -> i64 {
    let memory = position + into as usize;
    (memory - memory % PAGE_LEN) as i64 - i64::from(into)
}

fn is_branch(word: u32) -> bool {
    word & 0x7c00_0000 == 0x1400_0000
}

/// How many bytes from a branch its target lies.
fn distance(branch: u32) -> i64 {
    i64::from((branch << 6) as i32 >> 4)
}

fn is_adrp(word: u32) -> bool {
    word & 0x9f00_0000 == 0x9000_0000
}

/// How many bytes from the page of an ADRP its target's page lies.
fn page_distance(adrp: u32) -> i64 {
    let pages = (adrp >> 5 & 0x7_ffff) << 2 | adrp >> 29 & 3;
    i64::from((pages << 11) as i32 >> 11) << PAGE_BITS
}

fn destination(word: u32) -> usize {
    (word & 31) as usize
}

fn counted_from(word: u32) -> usize {
    (word >> 5 & 31) as usize
}

fn low(word: u32) -> u32 {
    (word & LOW_MASK) >> 10
}

/// The scale of the lower bits in an ADD of 64 bits, a load or a store; none in others.
#[inline(always)]
fn scale_of_low(word: u32) -> Option<u32> {
    if word & 0xffc0_0000 == 0x9100_0000 {
        Some(0)
    } else if word & 0x3b00_0000 == 0x3900_0000 {
        // Registers of 128 bits have a size of their own.
        Some(if word & 0xff80_0000 == 0x3d80_0000 { 4 } else { word >> 30 })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Words of which many are references.
    fn words() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            any::<u32>(),
            any::<u32>().prop_map(|word| word & BRANCH_MASK | 0x9400_0000),
            any::<u32>().prop_map(|word| word & 0x600f_ff03 | 0x9000_0000),
            any::<u32>().prop_map(|word| word & 0x003f_fc63 | 0x9100_0000),
            any::<u32>().prop_map(|word| word & 0xc4ff_fc63 | 0x3900_0000),
        ];
        prop::collection::vec(word, 0..60).prop_map(|words| words.into_iter().flat_map(u32::to_le_bytes).collect())
    }

    fn place() -> impl Strategy<Value = RunPlace> {
        (0usize..1 << 27, 0usize..1 << 22, 0..PAGE_LEN as u32, 0..PAGE_LEN as u32)
            .prop_map(|(origin, at, base, target)| RunPlace { origin, at, pages: Pages { base, target } })
    }

    /// Redirects all references by `shift`, as decoders do, and returns what they were.
    fn redirected(run: &mut [u8], place: RunPlace, shift: i32) -> Vec<CodeReference> {
        let mut changed = Vec::new();
        let end = run.len();
        walk(run, 0, end, place, |run, reference| {
            let is_changed = reference.redirect(run, place, shift);
            changed.extend(is_changed.then_some(reference));
            is_changed
        });
        changed
    }

    proptest! {
        #[test]
        fn a_redirected_reference_has_moved_by_the_shift(
            base in words(),
            place in place(),
            shift in prop_oneof![-(1i32 << 20)..1 << 20, any::<i32>()],
            phase in 0usize..4,
        ) {
            let place = RunPlace { origin: place.origin & !3 | phase, ..place };
            let mut target = base.clone();
            let changed = redirected(&mut target, place, shift);
            // A second ADD that counts from one ADRP, for an address on another page, has no say.
            for reference in changed.iter().filter(|reference| {
                matches!(reference.operand, Operand::Distance | Operand::Low { page_is_settled: false, .. })
            }) {
                let (moved, _) = reference.moved(&base, &target, place).expect("the instructions are the same");
                // Branches count modulo 2^28, pages modulo 2^33.
                let modulo = if let Operand::Distance = reference.operand { 1 << 28 } else { 1i64 << 33 };
                prop_assert_eq!((moved - i64::from(shift)).rem_euclid(modulo), 0);
            }
        }

        #[test]
        fn what_does_not_move_stays(base in words(), place in place()) {
            let place = RunPlace { at: place.origin, pages: Pages { target: place.pages.base, ..place.pages }, ..place };
            let mut target = base.clone();
            redirected(&mut target, place, 0);
            prop_assert_eq!(target, base);
        }

        #[test]
        fn any_bytes_are_walked_to_their_end(
            mut bytes in prop::collection::vec(any::<u8>(), 1..300),
            place in place(),
            start in 0usize..300,
            shift in any::<i32>(),
        ) {
            let end = bytes.len();
            let start = start.min(end);
            let mut visited = 0;
            let came_to = walk(&mut bytes, start, end, place, |run, reference| {
                visited += 1;
                reference.redirect(run, place, shift)
            });
            prop_assert!(came_to >= end && came_to < end + INSTRUCTION_LEN);
            prop_assert!(visited * INSTRUCTION_LEN <= end - start);
        }
    }
}
