//! A base as its plain text, and its openings as a reader keeps them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use deflate_view::{
    BaseBytes, BasePart, Index, Malformed, Match, Opened, Opening, Openings, TextMap, UnitBase, WindowText,
};
use delta_codec::WINDOW_LEN_MAX;

/// Opened text and matches that are kept: a server with 512 MiB of memory keeps as much.
const KEPT_BYTES: usize = 32 << 20;
/// Text that is opened at a time.
const LOAD_LEN: u64 = 4 << 20;

/// A base with its streams found and opened.
pub(crate) struct Base<'a> {
    pub(crate) index: &'a Index,
    pub(crate) openings: Openings,
    pub(crate) map: TextMap,
    pub(crate) bytes: BaseBytes,
}

impl<'a> Base<'a> {
    pub(crate) fn new(object: &[u8], index: &'a Index, kept: &HashSet<(u64, u64)>) -> Self {
        let bytes = BaseBytes(vec![(0, object.to_vec())]);
        Self { index, openings: Openings::of(index), map: TextMap::new(index, kept), bytes }
    }

    /// Moves a window over its text to where it has to begin.
    pub(crate) fn load(&self, texts: &mut Texts, window: &mut WindowText, start: u64) {
        let end = self.map.len().min(start + WINDOW_LEN_MAX as u64);
        window.move_to((start, end - start), &self.map, (&self.openings, self.index));
        while window.end() < end {
            let mut parts = Vec::new();
            self.map.parts(window.end()..end.min(window.end() + LOAD_LEN), self.index, &mut parts);
            let opened = |number| self.open(number, texts);
            window.load(&parts, &self.openings, &self.bytes, opened).expect("parts of this base");
        }
    }

    /// The footprint that a unit is encoded over.
    pub(crate) fn footprint(&self, parts: &[BasePart], texts: &mut Texts) -> UnitBase {
        let opened = |number| self.open(number, texts);
        UnitBase::of(parts, self.openings.segment(), &self.bytes, opened).expect("parts of this base")
    }

    fn open(&self, number: usize, texts: &mut Texts) -> Result<Arc<Opened>, Malformed> {
        let opening = self.openings.get(number);
        texts.open(opening, self.openings.window(number, self.index), self.bytes.get(opening.bytes())?)
    }
}

/// Text that was opened last.
#[derive(Default)]
pub(crate) struct Texts {
    opened: HashMap<(u64, u64), Arc<Opened>>,
    order: VecDeque<(u64, u64)>,
    bytes: usize,
    /// Plain bytes that were opened in all.
    pub(crate) opened_bytes: u64,
}

fn weight(opened: &Opened) -> usize {
    opened.plain.capacity() + opened.matches.capacity() * size_of::<Match>()
}

impl Texts {
    pub(crate) fn open(&mut self, opening: &Opening, window: &[u8], bytes: &[u8]) -> Result<Arc<Opened>, Malformed> {
        let name = (opening.stream_at, opening.plain_at);
        self.order.retain(|other| *other != name);
        self.order.push_back(name);
        if let Some(opened) = self.opened.get(&name) {
            return Ok(opened.clone());
        }
        let opened = Arc::new(opening.open(window, bytes)?);
        self.opened_bytes += opened.plain.len() as u64;
        self.bytes += weight(&opened);
        self.opened.insert(name, opened.clone());
        while self.bytes > KEPT_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.opened.remove(&oldest).map_or(0, |opened| weight(&opened));
        }
        Ok(opened)
    }
}
