//! A run of an object's bytes as text and items: raw bytes, and parts of deflate streams as plain
//! text and parse.

use std::ops::Range;
use std::sync::Arc;

use crate::answers;
use crate::gaps::Gaps;
use crate::parse::{Header, Match};

/// Most bytes of text in one unit: what delta-v1 encodes at once. Part of the format
/// (docs/format/deflate-view-v1.md §3).
pub const TEXT_LEN_MAX: usize = 4 << 20;
/// Most bytes of an object in one unit. Part of the format.
pub const UNIT_LEN_MAX: usize = 4 << 20;

/// Bytes of an object as text, and how the text becomes these bytes again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The object's bytes that it stands for.
    pub object: Range<u64>,
    /// Raw bytes and plain text, one after another.
    pub text: Vec<u8>,
    pub(crate) items: Vec<Item>,
    pub(crate) matches: Vec<Match>,
    /// Where streams in the plain text of streams are opened: the unit whose text `items` give.
    pub(crate) outer: Option<Box<Unit>>,
    /// Where in the object's bytes gaps lie; what stands in them is raw at the end of the text, of
    /// the outermost unit where there are several.
    pub(crate) gaps: Gaps,
}

impl Unit {
    /// Bytes of the object.
    pub fn len(&self) -> usize {
        (self.object.end - self.object.start) as usize
    }

    /// True for a unit of no bytes, which no cutter makes.
    pub fn is_empty(&self) -> bool {
        self.object.is_empty()
    }

    /// Most bytes of memory that [`crate::StoredPiece::of`] takes to keep what replayed encoders
    /// say of it: the best parses so far have theirs beside those that are tried.
    pub fn answers_bytes_max(&self) -> usize {
        let matched: usize = self.matches.iter().map(|found| usize::from(found.len)).sum();
        let steps = self.matches.len() + self.text.len().saturating_sub(matched);
        2 * answers::bytes_max(steps) + self.outer.as_ref().map_or(0, |outer| outer.answers_bytes_max())
    }

    /// How many parts of deflate streams are in it.
    pub fn parts(&self) -> usize {
        let own = self.items.iter().filter(|item| matches!(item, Item::Part(_))).count();
        own + self.outer.as_ref().map_or(0, |outer| outer.parts())
    }

    /// How many of these are in the plain text of others.
    pub fn nested_parts(&self) -> usize {
        self.outer.as_ref().map_or(0, |outer| self.parts() - outer.parts())
    }

    /// Where gaps lie in its bytes of the object.
    pub fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// The unit as it was before streams in the plain text of streams were opened: itself where
    /// none were.
    pub fn outermost(&self) -> &Self {
        self.outer.as_deref().unwrap_or(self)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// So many bytes of text are bytes of the object.
    Raw(usize),
    Part(Part),
}

/// A part of a deflate stream. In the text: context, own plain text, tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where its context begins in the text.
    pub(crate) text_at: usize,
    pub(crate) plain_len: usize,
    pub(crate) lead: Option<Lead>,
    pub(crate) cut: Option<Cut>,
    pub(crate) blocks: Vec<PartBlock>,
    /// The bits behind the last block, up to a full byte.
    pub(crate) padding: u8,
}

impl Part {
    pub(crate) fn own_start(&self) -> usize {
        self.text_at + self.lead.as_ref().map_or(0, |lead| lead.context_len)
    }

    pub(crate) fn own_end(&self) -> usize {
        self.own_start() + self.plain_len
    }

    pub(crate) fn text_end(&self) -> usize {
        self.own_end() + self.cut.as_ref().map_or(0, |cut| cut.tail_len)
    }
}

/// The beginning of a part that begins inside its stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lead {
    /// Plain text before the part.
    pub(crate) context_len: usize,
    /// Bits of the first bytes that belong to what began before, as they are.
    pub(crate) bits: Vec<bool>,
    /// The part begins inside a block.
    pub(crate) in_block: bool,
}

/// The end of a part that ends inside its stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Plain text behind the part.
    pub(crate) tail_len: usize,
    /// The object's bytes in it; what its last step writes behind them belongs to the next part.
    pub(crate) object_len: usize,
}

/// What a part holds of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartBlock {
    pub(crate) is_last: bool,
    pub(crate) kind: PartKind,
    /// Its bytes in the text.
    pub(crate) plain: Range<usize>,
    /// Its matches among those of the unit.
    pub(crate) matches: Range<usize>,
    /// The end of the block is in the part.
    pub(crate) is_closed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartKind {
    /// `len` is that of the header, or what is left of it in a part that begins inside.
    Stored {
        padding: u8,
        len: u16,
    },
    Fixed,
    Dynamic(Arc<Header>),
}
