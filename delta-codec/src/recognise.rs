//! Where a segment has AArch64 code, and how it lies in pages of memory. A choice of the encoder;
//! nothing here is part of the format.

use crate::arm64::{INSTRUCTION_LEN, PAGE_LEN, Pages};
use crate::instruction::SubRun;
use crate::predict::{BLOCK_LEN, MovedReference, MovedReferences, kind};

/// Every so many instructions of a block one is looked at …
const SAMPLED: usize = 8;
/// … and one of so many must begin (end, in memory) with one of these bytes: half of the
/// instructions of compiled code do, a twentieth of anything else.
const SHARE: usize = 4;
const FREQUENT: [u8; 12] = [0x17, 0x39, 0x52, 0x54, 0x91, 0x94, 0x97, 0xa9, 0xaa, 0xb9, 0xd6, 0xf9];

const IS_FREQUENT: [bool; 256] = {
    let mut table = [false; 256];
    let mut at = 0;
    while at < FREQUENT.len() {
        table[FREQUENT[at] as usize] = true;
        at += 1;
    }
    table
};

/// Code in a segment.
#[derive(Debug)]
pub(crate) struct Arm64Blocks {
    /// Which blocks are mostly code.
    pub(crate) is_code: Vec<bool>,
    /// Where the first instruction of a block begins in it, below [`INSTRUCTION_LEN`].
    start: usize,
}

/// Which blocks are AArch64 code; `None` when there is none.
pub(crate) fn arm64_blocks(target: &[u8]) -> Option<Arm64Blocks> {
    let candidates = (0..INSTRUCTION_LEN).map(|start| {
        let is_code: Vec<bool> = target.chunks(BLOCK_LEN).map(|block| is_code(block, start)).collect();
        (is_code.iter().filter(|&&is_code| is_code).count(), Arm64Blocks { is_code, start })
    });
    let (count, blocks) = candidates.max_by_key(|(count, blocks)| (*count, INSTRUCTION_LEN - blocks.start))?;
    (count > 0).then_some(blocks)
}

fn is_code(block: &[u8], start: usize) -> bool {
    let words = block[start.min(block.len())..].chunks_exact(INSTRUCTION_LEN).step_by(SAMPLED);
    let (mut count, mut frequent) = (0, 0);
    for word in words {
        count += 1;
        frequent += usize::from(IS_FREQUENT[usize::from(word[INSTRUCTION_LEN - 1])]);
    }
    frequent * SHARE > count
}

impl Arm64Blocks {
    /// How base and target lie in pages of memory. Uses the kinds of `predictor`, and its pages.
    pub(crate) fn find_pages(
        &self,
        predictor: &mut MovedReferences,
        each: &mut impl FnMut(&mut dyn FnMut(SubRun<'_>)),
    ) -> Pages {
        // Instructions of the target lie on whole multiples of their length in memory, and those of
        // the base beside them do.
        let target = (INSTRUCTION_LEN - self.start) % INSTRUCTION_LEN;
        let mut beside = [0usize; INSTRUCTION_LEN];
        each(&mut |run| {
            let base = (run.at + target).wrapping_sub(predictor.origin(run.source)) % INSTRUCTION_LEN;
            beside[base] += if self.is_code[run.at / BLOCK_LEN] { run.base.len() } else { 0 };
        });
        let base = (0..INSTRUCTION_LEN).max_by_key(|&base| (beside[base], INSTRUCTION_LEN - base)).unwrap_or(0);
        predictor.pages = Pages { base: base as u32, target: target as u32 };
        predictor.kinds.clear();
        predictor.kinds.extend(self.is_code.iter().map(|&code| if code { kind::ARM64 } else { kind::PLAIN }));
        let (mut in_base, mut in_target) = (Boundaries::new(), Boundaries::new());
        let mut scratch = Vec::new();
        each(&mut |run| {
            let origin = predictor.origin(run.source);
            for (bytes, at, boundaries) in
                [(run.base, origin + base, &mut in_base), (run.target, run.at + target, &mut in_target)]
            {
                scratch.clear();
                scratch.extend_from_slice(bytes);
                predictor.walk(&mut scratch, run.source, run.at, |run, reference| {
                    if let MovedReference::Code(code) = reference
                        && let Some((adrp, pages, low)) = code.parts(run)
                    {
                        boundaries.add(at + adrp, pages, low);
                    }
                    false
                });
            }
        });
        Pages { base: base as u32 + in_base.found(), target: target as u32 + in_target.found() }
    }
}

/// Finds where pages begin, from ADRPs that mean one page. Where a page begins between two of them,
/// the second one counts a page less; otherwise both count alike.
struct Boundaries {
    /// The last ADRP for addresses with these lower bits: its position, and its distance in pages.
    last: Vec<Option<(usize, i64)>>,
    /// How much speaks for each place in a page, as the difference to the place before.
    votes: Vec<i32>,
}

impl Boundaries {
    fn new() -> Self {
        Self { last: vec![None; PAGE_LEN], votes: vec![0; PAGE_LEN / INSTRUCTION_LEN] }
    }

    fn add(&mut self, at: usize, pages: i64, low: usize) {
        let Some((before, pages_before)) = self.last[low].replace((at, pages)) else { return };
        let vote = match pages_before - pages {
            0 => -1,
            1 => 1,
            _ => return,
        };
        if !(1..PAGE_LEN).contains(&at.wrapping_sub(before)) {
            return;
        }
        // A page that begins between the two begins behind the first one, or with the second.
        let places = self.votes.len();
        let (first, behind) = ((before / INSTRUCTION_LEN + 1) % places, (at / INSTRUCTION_LEN + 1) % places);
        self.votes[first] += vote;
        self.votes[behind] -= vote;
        self.votes[0] += if behind < first { vote } else { 0 };
    }

    /// How far into a page position 0 lies: the likeliest, or of several the roundest.
    fn found(&self) -> u32 {
        let mut votes = 0;
        let places = self.votes.iter().enumerate().map(|(place, change)| {
            votes += change;
            let into = (PAGE_LEN - place * INSTRUCTION_LEN) % PAGE_LEN;
            // 0 has more zeros at its end than any other number.
            (votes, into.trailing_zeros(), into as u32)
        });
        places.max().map_or(0, |(_, _, into)| into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::noise;

    #[test]
    fn neither_noise_nor_text_nor_zeros_are_code() {
        let text = b"Nothing here is an instruction. 5,194 GRAPES; 9.9 TONS: THE REST.\n".repeat(1000);
        for content in [noise(100_000, 3), text, vec![0; 50_000], vec![], vec![0x97; 3]] {
            assert!(arm64_blocks(&content).is_none());
        }
    }

    #[test]
    fn code_is_recognised_at_any_place() {
        for before in 0..9 {
            let mut content = noise(before, 1);
            for word in noise(60_000, 2).chunks_exact(4) {
                content.extend_from_slice(&word[..3]);
                content.push(if word[3] < 128 { 0xf9 } else { word[3] });
            }
            let blocks = arm64_blocks(&content).expect("half of it begins as code does");
            assert_eq!(blocks.start, before % 4);
            assert!(blocks.is_code.iter().all(|&is_code| is_code));
        }
    }

    #[test]
    fn a_page_begins_where_references_to_one_place_count_a_page_less() {
        for into in [0, 4, 512, 2048, 4092] {
            let mut boundaries = Boundaries::new();
            for (number, at) in (8000..200_000usize).step_by(52).enumerate() {
                let page = (at + into) / PAGE_LEN;
                // Each fourth means a place of its own, as far as its lower bits tell.
                let (page_meant, low) = if number % 4 == 0 { (at % 61, 24) } else { (300, number % 3) };
                boundaries.add(at, page_meant as i64 - page as i64, low);
            }
            let found = boundaries.found() as usize;
            // No reference lies between the two places.
            assert!(found.abs_diff(into).min(PAGE_LEN - found.abs_diff(into)) <= 52, "{found}, not {into}");
        }
    }
}
