//! The codes and the header that zlib would write for given counts of symbols.
//!
//! Part of the format (docs/format/deflate-view-v1.md §8): parses already stored cannot be read
//! with another construction.

use crate::alphabet::{
    CODE_LEN_MAX, CodeLengths, DISTANCE_SYMBOLS, LENGTH_CODE_LEN_MAX, LENGTH_ORDER, LENGTH_SYMBOLS, LITLEN_SYMBOLS,
};
use crate::parse::LengthRun;

/// How often each symbol stands in a block.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    pub(crate) litlen: [u32; 288],
    pub(crate) distance: [u32; 32],
}

impl Counts {
    pub(crate) fn new() -> Self {
        Self { litlen: [0; 288], distance: [0; 32] }
    }
}

/// The lengths of both codes, and how many of each zlib would write.
pub(crate) fn lengths(counts: &Counts) -> CodeLengths {
    let mut lengths = CodeLengths { litlen: [0; 288], distance: [0; 32], litlen_count: 0, distance_count: 0 };
    let last = tree(&counts.litlen[..LITLEN_SYMBOLS], CODE_LEN_MAX, &mut lengths.litlen);
    lengths.litlen_count = (last + 1).max(257);
    lengths.distance_count = tree(&counts.distance[..DISTANCE_SYMBOLS], CODE_LEN_MAX, &mut lengths.distance) + 1;
    lengths
}

/// The lengths of the codes of code lengths, and how many zlib would write.
pub(crate) fn length_lengths(runs: &[LengthRun]) -> ([u8; LENGTH_SYMBOLS], usize) {
    let mut counts = [0; LENGTH_SYMBOLS];
    for run in runs {
        counts[usize::from(run.symbol)] += 1;
    }
    let mut lengths = [0; LENGTH_SYMBOLS];
    tree(&counts, LENGTH_CODE_LEN_MAX, &mut lengths);
    let written = LENGTH_ORDER.iter().rposition(|&symbol| lengths[symbol] != 0).unwrap_or(0) + 1;
    (lengths, written.max(4))
}

/// The next run that zlib would write for `rest`, the lengths of one alphabet that are not yet
/// written, after a run that stood for `last` (`None` at the start of the alphabet).
pub(crate) fn next_run(rest: &[u8], last: Option<u8>) -> LengthRun {
    let len = rest[0];
    let equal = |most: usize| rest.iter().take(most).take_while(|&&other| other == len).count();
    if len == 0 {
        return match equal(138) {
            count @ 11.. => LengthRun { symbol: 18, extra: (count - 11) as u8 },
            count @ 3.. => LengthRun { symbol: 17, extra: (count - 3) as u8 },
            _ => LengthRun { symbol: 0, extra: 0 },
        };
    }
    match equal(6) {
        count @ 3.. if last == Some(len) => LengthRun { symbol: 16, extra: (count - 3) as u8 },
        _ => LengthRun { symbol: len, extra: 0 },
    }
}

/// A node of the tree while it is built: lighter ones first, then shallower ones.
#[derive(Clone, Copy)]
struct Node {
    count: u32,
    depth: u8,
    id: u16,
}

impl Node {
    fn goes_before(self, other: Self) -> bool {
        self.count < other.count || (self.count == other.count && self.depth <= other.depth)
    }
}

/// The binary heap of the construction: its ties decide which symbol gets the longer code, so its
/// moves are part of the format.
struct Heap {
    /// The root is at 1.
    nodes: Vec<Node>,
}

impl Heap {
    fn sink(&mut self, mut at: usize) {
        let node = self.nodes[at];
        let last = self.nodes.len() - 1;
        while at * 2 <= last {
            let mut child = at * 2;
            if child < last && self.nodes[child + 1].goes_before(self.nodes[child]) {
                child += 1;
            }
            if node.goes_before(self.nodes[child]) {
                break;
            }
            self.nodes[at] = self.nodes[child];
            at = child;
        }
        self.nodes[at] = node;
    }
}

/// Fills in the lengths of a code of at most `len_max` bits, and returns the last symbol that has
/// one. At least two symbols get one.
fn tree(counts: &[u32], len_max: usize, lengths: &mut [u8]) -> usize {
    let symbols = counts.len();
    let mut heap = Heap { nodes: Vec::with_capacity(symbols + 1) };
    heap.nodes.push(Node { count: 0, depth: 0, id: 0 });
    let mut last = None;
    for (symbol, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        heap.nodes.push(Node { count, depth: 0, id: symbol as u16 });
        last = Some(symbol);
    }
    // A code needs two symbols: the first ones are made up.
    while heap.nodes.len() < 3 {
        let id = match last {
            None => 0,
            Some(symbol) if symbol < 2 => symbol + 1,
            Some(_) => 0,
        };
        if last.is_none_or(|symbol| symbol < 2) {
            last = Some(id);
        }
        heap.nodes.push(Node { count: 1, depth: 0, id: id as u16 });
    }
    for at in (1..heap.nodes.len().div_ceil(2)).rev() {
        heap.sink(at);
    }
    let mut parents = vec![0u16; symbols * 2];
    // Nodes in the order in which they were joined, two by two.
    let mut joined = Vec::with_capacity(symbols * 2);
    let mut next = symbols as u16;
    loop {
        let least = heap.nodes[1];
        let end = heap.nodes.len() - 1;
        heap.nodes[1] = heap.nodes[end];
        heap.nodes.truncate(end);
        heap.sink(1);
        let second = heap.nodes[1];
        joined.extend([least.id, second.id]);
        parents[usize::from(least.id)] = next;
        parents[usize::from(second.id)] = next;
        let depth = least.depth.max(second.depth) + 1;
        heap.nodes[1] = Node { count: least.count.saturating_add(second.count), depth, id: next };
        next += 1;
        heap.sink(1);
        if heap.nodes.len() <= 2 {
            break;
        }
    }
    bound_lengths(&joined, &parents, symbols, len_max, lengths);
    last.unwrap_or(0)
}

/// Gives every symbol its depth, none beyond `len_max`. `joined` has the nodes from the deepest up,
/// the root not among them.
fn bound_lengths(joined: &[u16], parents: &[u16], symbols: usize, len_max: usize, lengths: &mut [u8]) {
    let mut depths = vec![0usize; symbols * 2];
    let mut counts = [0usize; CODE_LEN_MAX + 2];
    let mut over = 0usize;
    for &id in joined.iter().rev() {
        let id = usize::from(id);
        let depth = depths[usize::from(parents[id])] + 1;
        if depth > len_max {
            over += 1;
        }
        depths[id] = depth.min(len_max);
        if id < symbols {
            counts[depths[id]] += 1;
            lengths[id] = depths[id] as u8;
        }
    }
    if over == 0 {
        return;
    }
    // Moves leaves down until the code has room for all of them again.
    let mut left = over as isize;
    while left > 0 {
        let Some(len) = (1..len_max).rev().find(|&len| counts[len] > 0) else { break };
        counts[len] -= 1;
        counts[len + 1] += 2;
        counts[len_max] -= 1;
        left -= 2;
    }
    // The rarest symbols get the longest codes.
    let mut leaves = joined.iter().map(|&id| usize::from(id)).filter(|&id| id < symbols);
    for len in (1..=len_max).rev() {
        for symbol in leaves.by_ref().take(counts[len]) {
            lengths[symbol] = len as u8;
        }
    }
}
