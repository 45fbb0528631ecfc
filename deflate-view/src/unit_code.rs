//! The parse of a unit as bytes, and a unit's object bytes from text and parse.
//!
//! Part of the format (docs/format/deflate-view-v1.md §5).

use std::ops::Range;

use crate::Malformed;
use crate::alphabet::{END_OF_BLOCK, WINDOW_LEN, fixed_lengths};
use crate::answers::{Answering, Answers};
use crate::coder::{Coder, Decoder, Encoder, Model, Numbers};
use crate::headers::{self, HeaderModels};
use crate::open::BYTES_PER_MATCH;
use crate::parse::{Header, Match};
use crate::predict::{Base, Extent, RawRun, Run};
use crate::replay::{Replay, SearchWork};
use crate::steps::{StepCounts, Steps, StepsEnd};
use crate::unit::{Item, PartBlock, PartKind, TEXT_LEN_MAX, UNIT_LEN_MAX, Unit};
use crate::write::{BitWriter, Codes, count, write_lengths};

/// Symbols of a block until one says otherwise: zlib's, at its usual memory level.
const BLOCK_SYMBOLS: u32 = 16_383;
/// Most bits of a header or a step that a part may begin with. Part of the format.
pub(crate) const LEAD_BITS_MAX: usize = 4096;
/// Most bytes of plain text behind a part. Part of the format.
pub(crate) const TAIL_LEN_MAX: usize = 1024;

const STORED: u32 = 0;
const FIXED: u32 = 1;

/// The models of everything but steps and headers.
#[derive(Debug)]
struct Models {
    is_part: [Model; 2],
    raw_len: Numbers,
    starts_inside: Model,
    ends_inside: Model,
    plain_len: Numbers,
    lens: [Numbers; 4],
    in_block: Model,
    is_last: [Model; 2],
    kind: [[Model; 4]; 4],
    is_padded: Model,
    stored_len: Numbers,
    end: [Model; 4],
    symbols: Numbers,
    headers: HeaderModels,
}

impl Models {
    fn new() -> Box<Self> {
        Box::new(Self {
            is_part: [Model::NEW; 2],
            raw_len: Numbers::NEW,
            starts_inside: Model::NEW,
            ends_inside: Model::NEW,
            plain_len: Numbers::NEW,
            lens: [Numbers::NEW; 4],
            in_block: Model::NEW,
            is_last: [Model::NEW; 2],
            kind: [[Model::NEW; 4]; 4],
            is_padded: Model::NEW,
            stored_len: Numbers::NEW,
            end: [Model::NEW; 4],
            symbols: Numbers::NEW,
            headers: HeaderModels::NEW,
        })
    }
}

/// What is written before the blocks of an item.
#[derive(Clone, Copy, Debug, Default)]
struct ItemHead {
    is_part: bool,
    /// Bytes of text: all of a raw item, the own ones of a part.
    len: usize,
    starts_inside: bool,
    context_len: usize,
    lead_bits: usize,
    in_block: bool,
    ends_inside: bool,
    tail_len: usize,
    object_len: usize,
}

fn code_item<C: Coder>(coder: &mut C, models: &mut Models, is_first: bool, told: ItemHead) -> ItemHead {
    let is_part = coder.bit(&mut models.is_part[usize::from(is_first)], told.is_part);
    let mut head = ItemHead { is_part, ..ItemHead::default() };
    if !head.is_part {
        head.len = coder.number(&mut models.raw_len, told.len as u32) as usize;
        return head;
    }
    head.len = coder.number(&mut models.plain_len, told.len as u32) as usize;
    head.starts_inside = is_first && coder.bit(&mut models.starts_inside, told.starts_inside);
    if head.starts_inside {
        head.context_len = coder.number(&mut models.lens[0], told.context_len as u32) as usize;
        head.lead_bits = coder.number(&mut models.lens[1], told.lead_bits as u32) as usize;
        head.in_block = coder.bit(&mut models.in_block, told.in_block);
    }
    head.ends_inside = coder.bit(&mut models.ends_inside, told.ends_inside);
    if head.ends_inside {
        head.tail_len = coder.number(&mut models.lens[2], told.tail_len as u32) as usize;
        head.object_len = coder.number(&mut models.lens[3], told.object_len as u32) as usize;
    }
    head
}

/// Where a block's steps end, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockEnd {
    /// After as many symbols as the block before had.
    Same,
    /// With the part's own text.
    Text,
    /// After so many symbols.
    Symbols(u32),
}

/// What is written of a block before its steps.
#[derive(Clone, Copy, Debug)]
struct BlockHead {
    is_last: bool,
    kind: u32,
    padding: u8,
    len: u32,
    end: BlockEnd,
}

/// What the code of a block depends on besides.
#[derive(Clone, Copy, Debug)]
struct Before {
    kind: u32,
    symbols: u32,
}

impl Before {
    fn note(&mut self, head: &BlockHead) {
        self.kind = head.kind;
        if let (BlockEnd::Symbols(symbols), false) = (head.end, head.is_last) {
            self.symbols = symbols;
        }
    }
}

fn code_padding<C: Coder>(coder: &mut C, models: &mut Models, told: u8) -> u8 {
    if coder.bit(&mut models.is_padded, told != 0) { coder.plain(7, told.into()) as u8 } else { 0 }
}

fn code_block<C: Coder>(coder: &mut C, models: &mut Models, before: Before, told: BlockHead) -> BlockHead {
    let mut head = BlockHead { is_last: false, kind: 0, padding: 0, len: 0, end: BlockEnd::Text };
    head.kind = coder.tree(&mut models.kind[before.kind as usize], 2, told.kind);
    head.is_last = coder.bit(&mut models.is_last[usize::from(head.kind == STORED)], told.is_last);
    if head.kind == STORED {
        head.padding = code_padding(coder, models, told.padding);
        head.len = coder.number(&mut models.stored_len, told.len);
        return head;
    }
    let end = match told.end {
        BlockEnd::Same => 0,
        BlockEnd::Text => 1,
        BlockEnd::Symbols(_) => 2,
    };
    // The last block nearly always ends with the text, the others nearly never.
    let (first, second) = models.end.split_at_mut(2);
    let is_last = usize::from(head.is_last);
    head.end = if coder.bit(&mut first[is_last], end == 1) {
        BlockEnd::Text
    } else if coder.bit(&mut second[is_last], end == 0) {
        BlockEnd::Same
    } else {
        let symbols = if let BlockEnd::Symbols(symbols) = told.end { symbols } else { 0 };
        BlockEnd::Symbols(coder.number(&mut models.symbols, symbols))
    };
    head
}

/// What was written of a parse, and how well it was predicted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedParse {
    /// The parse.
    pub bytes: Vec<u8>,
    /// Its steps.
    pub counts: StepCounts,
    /// About how many of the bytes are headers of blocks.
    pub header_bytes: usize,
    /// What the replayed encoder said, for whoever decodes it at once.
    pub(crate) answers: Option<Answers>,
}

/// Which encoder is replayed where the base predicts wrongly: a number of the format
/// (docs/format/deflate-view-v1.md §7), 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplayId(u8);

impl ReplayId {
    /// Every encoder there is.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=Replay::ALL.len()).map(|id| Self(id as u8))
    }

    /// The one with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        (usize::from(number) <= Replay::ALL.len()).then_some(Self(number))
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// What people call it: `zlib 6`, `Go 9`, or `none`.
    pub fn name(self) -> String {
        match self.0 {
            0 => "none".to_owned(),
            level @ 1..=9 => format!("zlib {level}"),
            number => format!("Go {}", number - 6),
        }
    }

    /// About how many nanoseconds this work of its searches takes; 0 for none.
    pub fn searches_ns(self, work: SearchWork) -> u64 {
        self.replay().ok().flatten().map_or(0, |replay| replay.searches_ns(work))
    }

    pub(crate) fn replay(self) -> Result<Option<Replay>, Malformed> {
        match self.0 {
            0 => Ok(None),
            id => Replay::ALL.get(usize::from(id) - 1).copied().map(Some).ok_or(Malformed("an unknown encoder")),
        }
    }
}

/// The parse of a unit as bytes, predicted from `base` through `runs` (both those of the unit's
/// text) and by the replayed encoder.
pub fn encode_parse(unit: &Unit, base: Base<'_>, runs: &[Run], replay: ReplayId) -> EncodedParse {
    encode_parse_keeping(unit, base, runs, (replay, false))
}

/// The same; where `keeps` is true, what the encoder said is kept.
pub(crate) fn encode_parse_keeping(
    unit: &Unit,
    base: Base<'_>,
    runs: &[Run],
    (replay, keeps): (ReplayId, bool),
) -> EncodedParse {
    let mut coder = Encoder::new();
    let mut models = Models::new();
    coder.plain(8, replay.0.into());
    let asked = match (replay.replay().unwrap_or_default(), keeps) {
        (replay, true) => Answering::kept(replay),
        (replay, false) => Answering::replay(replay),
    };
    let mut steps = Steps::new(&unit.text, base, runs, asked);
    let mut before = Before { kind: 2, symbols: BLOCK_SYMBOLS };
    let mut header_bytes = 0;
    for (at, item) in unit.items.iter().enumerate() {
        let part = match item {
            Item::Raw(len) => {
                code_item(&mut coder, &mut models, at == 0, ItemHead { len: *len, ..ItemHead::default() });
                continue;
            }
            Item::Part(part) => part,
        };
        let lead = part.lead.as_ref();
        let head = ItemHead {
            is_part: true,
            len: part.plain_len,
            starts_inside: lead.is_some(),
            context_len: lead.map_or(0, |lead| lead.context_len),
            lead_bits: lead.map_or(0, |lead| lead.bits.len()),
            in_block: lead.is_some_and(|lead| lead.in_block),
            ends_inside: part.cut.is_some(),
            tail_len: part.cut.as_ref().map_or(0, |cut| cut.tail_len),
            object_len: part.cut.as_ref().map_or(0, |cut| cut.object_len),
        };
        code_item(&mut coder, &mut models, at == 0, head);
        for &bit in lead.map_or(&[][..], |lead| &lead.bits) {
            coder.plain(1, bit.into());
        }
        steps.begin(Extent { start: part.text_at, end: part.text_end(), is_from_start: lead.is_none() });
        let first = part.blocks.first().map_or(0, |block| block.matches.start);
        let end = part.blocks.last().map_or(first, |block| block.matches.end);
        let all = &unit.matches[first..end];
        for block in &part.blocks {
            let told = told_of(
                block,
                &all[block.matches.start - first..block.matches.end - first],
                part.cut.is_some(),
                before,
            );
            code_block(&mut coder, &mut models, before, told);
            before.note(&told);
            if told.kind != STORED {
                header_bytes += encode_coded(&mut coder, &mut models, &mut steps, &unit.text, (all, first), block);
            }
        }
        if part.cut.is_none() {
            code_padding(&mut coder, &mut models, part.padding);
        }
    }
    EncodedParse { bytes: coder.finish(), counts: steps.counts, header_bytes, answers: steps.into_answers() }
}

/// A parse of a text without streams.
pub(crate) fn encode_raw(text_len: usize) -> EncodedParse {
    let unit = Unit {
        object: 0..text_len as u64,
        text: Vec::new(),
        items: vec![Item::Raw(text_len)],
        matches: Vec::new(),
        outer: None,
        gaps: Default::default(),
    };
    encode_parse(&unit, Base::default(), &[], ReplayId::default())
}

/// What is written of a block before its steps; `own` are its matches.
fn told_of(block: &PartBlock, own: &[Match], is_cut: bool, before: Before) -> BlockHead {
    let matched: usize = own.iter().map(|found| usize::from(found.len)).sum();
    let symbols = (block.plain.len() - matched + own.len()) as u32;
    let end = match block.is_closed {
        false => BlockEnd::Text,
        true if block.is_last && !is_cut => BlockEnd::Text,
        true if symbols == before.symbols => BlockEnd::Same,
        true => BlockEnd::Symbols(symbols),
    };
    let (kind, padding, len) = match &block.kind {
        PartKind::Stored { padding, len } => (STORED, *padding, u32::from(*len)),
        PartKind::Fixed => (FIXED, 0, 0),
        PartKind::Dynamic(_) => (2, 0, 0),
    };
    BlockHead { is_last: block.is_last, kind, padding, len, end }
}

/// Returns about how many bytes the header took.
fn encode_coded(
    coder: &mut Encoder,
    models: &mut Models,
    steps: &mut Steps<'_>,
    text: &[u8],
    (all, first): (&[Match], usize),
    block: &PartBlock,
) -> usize {
    let own = block.matches.start - first..block.matches.end - first;
    steps.encode(coder, block.plain.start, block.plain.end, &all[..own.end], own.start);
    let before = coder.written();
    if let PartKind::Dynamic(header) = &block.kind {
        let mut counts = count(text, block.plain.start, block.plain.end, &all[own]);
        counts.litlen[END_OF_BLOCK] = 1;
        let coded = headers::code(coder, &mut models.headers, &counts, Some(header));
        debug_assert_eq!(coded.as_ref(), Ok(&**header));
    }
    coder.written() - before
}

/// The bytes of the object that `text` and `parse` stand for, exactly `object_len`; `base` and
/// `runs` are those it was encoded with.
///
/// # Errors
/// [`Malformed`] for whatever the format document tells a decoder to refuse. Another base or text
/// gives an error or wrong bytes; the digest tells (I4).
pub fn decode_parse(
    parse: &[u8],
    text: &[u8],
    base: Base<'_>,
    runs: &[Run],
    object_len: usize,
) -> Result<(Vec<u8>, StepCounts), Malformed> {
    decode_with_raws((parse, None), text, base, runs, object_len).map(|decoded| (decoded.object, decoded.counts))
}

/// What a parse gave.
pub(crate) struct DecodedParse {
    pub(crate) object: Vec<u8>,
    pub(crate) counts: StepCounts,
    /// Where raw bytes lie in text and object.
    pub(crate) raws: Vec<RawRun>,
}

/// As [`decode_parse`], telling where raw bytes lie. A parse that was just encoded may bring what
/// its encoder said, which then does not search again.
pub(crate) fn decode_with_raws(
    (parse, answers): (&[u8], Option<&Answers>),
    text: &[u8],
    base: Base<'_>,
    runs: &[Run],
    object_len: usize,
) -> Result<DecodedParse, Malformed> {
    if text.len() > TEXT_LEN_MAX || !(1..=UNIT_LEN_MAX).contains(&object_len) {
        return Err(Malformed("impossible lengths"));
    }
    let mut coder = Decoder::new(parse);
    let replay = ReplayId(coder.plain(8, 0) as u8).replay()?;
    let asked = answers.map_or_else(|| Answering::replay(replay), Answering::before);
    let mut decoding = Decoding {
        text,
        coder,
        models: Models::new(),
        steps: Steps::new(text, base, runs, asked),
        before: Before { kind: 2, symbols: BLOCK_SYMBOLS },
        // A part may write a little more than is its object's.
        out: BitWriter::with_room(object_len + (1 << 10)),
        object_len,
        matches: Vec::with_capacity(text.len() / BYTES_PER_MATCH),
        raws: Vec::new(),
    };
    let mut at = 0;
    let mut is_first = true;
    while decoding.out.bits() < object_len * 8 {
        at = decoding.item(at, is_first)?;
        is_first = false;
    }
    decoding.coder.finish()?;
    if !decoding.steps.is_as_before() {
        return Err(Malformed("an encoder that was asked something else before"));
    }
    let object = decoding.out.into_bytes();
    if at != text.len() || object.len() != object_len {
        return Err(Malformed("a text and its object do not fit"));
    }
    Ok(DecodedParse { object, counts: decoding.steps.counts, raws: decoding.raws })
}

/// The state of decoding one unit.
struct Decoding<'a> {
    text: &'a [u8],
    coder: Decoder<'a>,
    models: Box<Models>,
    steps: Steps<'a>,
    before: Before,
    out: BitWriter,
    object_len: usize,
    matches: Vec<Match>,
    raws: Vec<RawRun>,
}

impl Decoding<'_> {
    /// One item, whose text begins at `at`; returns where it ends.
    fn item(&mut self, at: usize, is_first: bool) -> Result<usize, Malformed> {
        let head = code_item(&mut self.coder, &mut self.models, is_first, ItemHead::default());
        if self.coder.is_past_end() {
            return Err(Malformed("a parse ends early"));
        }
        let end = at + head.context_len + head.len + head.tail_len;
        let fits = head.context_len <= WINDOW_LEN && head.lead_bits <= LEAD_BITS_MAX && head.tail_len <= TAIL_LEN_MAX;
        if !fits || end > self.text.len() {
            return Err(Malformed("an item past its text"));
        }
        if !head.is_part {
            if head.len == 0 || head.len * 8 + self.out.bits() > self.object_len * 8 {
                return Err(Malformed("an item past its object"));
            }
            let outer_at = (self.out.bits() / 8) as u32;
            RawRun { text_at: at as u32, outer_at, len: head.len as u32 }.add_to(&mut self.raws);
            self.out.put_bytes(&self.text[at..end]);
            return Ok(end);
        }
        self.part(&head, at, end)?;
        Ok(end)
    }

    fn part(&mut self, head: &ItemHead, at: usize, end: usize) -> Result<(), Malformed> {
        let object_at = self.out.bits() / 8;
        let object_end = object_at + head.object_len;
        for _ in 0..head.lead_bits {
            let bit = self.coder.plain(1, 0);
            self.out.put(bit.into(), 1);
        }
        self.steps.begin(Extent { start: at, end, is_from_start: !head.starts_inside });
        self.matches.clear();
        let mut place = at + head.context_len;
        let own_end = place + head.len;
        let mut is_written = !head.in_block;
        loop {
            if head.ends_inside && self.out.bits() >= object_end * 8 {
                break;
            }
            let (next, is_last) = self.block(place, own_end, is_written, head.ends_inside)?;
            place = next;
            is_written = true;
            if self.out.bits() / 8 > self.object_len + LEAD_BITS_MAX {
                return Err(Malformed("a part past its object"));
            }
            if is_last {
                break;
            }
        }
        if place != own_end {
            return Err(Malformed("a part that ends before its text"));
        }
        if head.ends_inside {
            if object_end > self.object_len || !self.out.cut(object_end) {
                return Err(Malformed("a part and its object do not fit"));
            }
        } else {
            let padding = code_padding(&mut self.coder, &mut self.models, 0);
            let count = self.out.padding();
            self.out.put(u64::from(padding) & ((1 << count) - 1), count);
        }
        Ok(())
    }

    /// One block from `at` on; returns where it ends, and whether it is the stream's last.
    fn block(
        &mut self,
        at: usize,
        own_end: usize,
        is_written: bool,
        may_end: bool,
    ) -> Result<(usize, bool), Malformed> {
        let told = BlockHead { is_last: false, kind: 0, padding: 0, len: 0, end: BlockEnd::Text };
        let head = code_block(&mut self.coder, &mut self.models, self.before, told);
        if self.coder.is_past_end() {
            return Err(Malformed("a parse ends early"));
        }
        let before = self.before;
        self.before.note(&head);
        if is_written {
            self.out.put(u64::from(head.is_last) | u64::from(head.kind) << 1, 3);
        }
        match head.kind {
            STORED => Ok((self.stored(&head, at, own_end, is_written, may_end)?, head.is_last)),
            3 => Err(Malformed("a block of the reserved kind")),
            _ => Ok((self.coded(&head, before.symbols, at..own_end, is_written, may_end)?, head.is_last)),
        }
    }

    fn stored(
        &mut self,
        head: &BlockHead,
        at: usize,
        own_end: usize,
        is_written: bool,
        may_end: bool,
    ) -> Result<usize, Malformed> {
        if head.len > 0xffff {
            return Err(Malformed("a stored block of impossible length"));
        }
        if is_written {
            let count = self.out.padding();
            self.out.put(u64::from(head.padding) & ((1 << count) - 1), count);
            self.out.put(u64::from(head.len), 16);
            self.out.put(u64::from(head.len ^ 0xffff), 16);
        }
        if self.out.padding() != 0 {
            return Err(Malformed("stored bytes inside a byte"));
        }
        let here = (head.len as usize).min(own_end - at);
        if here < head.len as usize && !may_end {
            return Err(Malformed("a stored block past its text"));
        }
        self.out.put_bytes(&self.text[at..at + here]);
        Ok(at + here)
    }

    fn coded(
        &mut self,
        head: &BlockHead,
        symbols_before: u32,
        room: Range<usize>,
        is_written: bool,
        may_end: bool,
    ) -> Result<usize, Malformed> {
        let at = room.start;
        let end = match head.end {
            BlockEnd::Same => StepsEnd::Count(symbols_before),
            BlockEnd::Text => StepsEnd::Position(room.end),
            BlockEnd::Symbols(symbols) => StepsEnd::Count(symbols),
        };
        let is_closed = head.end != BlockEnd::Text || !may_end;
        let first = self.matches.len();
        let next = self.steps.decode(&mut self.coder, at, room.end, end, &mut self.matches)?;
        let own = &self.matches[first..];
        let mut counts = count(self.text, at, next, own);
        counts.litlen[END_OF_BLOCK] = 1;
        let lengths = if head.kind == FIXED {
            fixed_lengths()
        } else {
            let header: Header = headers::code(&mut self.coder, &mut self.models.headers, &counts, None)?;
            if is_written {
                write_lengths(&header, &mut self.out)?;
            }
            header.lengths
        };
        let lacks = |counts: &[u32], lens: &[u8]| counts.iter().zip(lens).any(|(&count, &len)| count > 0 && len == 0);
        if lacks(&counts.litlen, &lengths.litlen) || lacks(&counts.distance, &lengths.distance) {
            return Err(Malformed("a symbol without a code"));
        }
        let codes = Codes::new(&lengths)?;
        codes.write(self.text, at, next, own, &mut self.out);
        if is_closed {
            codes.write_end(&mut self.out);
        }
        Ok(next)
    }
}
