//! Journal and backup documents: bytes and back (docs/format/journal-v1.md §3 to §6). Pure.

use super::names::{BackupName, Lineage};
use crate::error::EngineError;
use catalog::{JournalEntry, JournalLink, MutationText, Seq, TableRows, UnixMs, Value};

const VERSION: u8 = 1;
const HEAD_LEN: usize = 8;
/// Where the head of a journal document or an index says that a link follows.
const LINKED_AT: usize = 5;

/// Appends the head that every document has.
fn head(magic: &[u8; 4]) -> Vec<u8> {
    let mut out = magic.to_vec();
    out.extend_from_slice(&[VERSION, 0, 0, 0]);
    out
}

/// The same, and whether a link follows.
fn linked_head(magic: &[u8; 4], link: Option<JournalLink>) -> Vec<u8> {
    let mut out = head(magic);
    out[LINKED_AT] = u8::from(link.is_some());
    out
}

/// Takes a document apart from its front.
pub(super) struct DocumentReader<'a> {
    rest: &'a [u8],
}

fn malformed(why: &str) -> EngineError {
    EngineError::Integrity(format!("malformed: {why}"))
}

impl<'a> DocumentReader<'a> {
    fn open(document: &'a [u8], magic: &[u8; 4]) -> Result<Self, EngineError> {
        match Self::open_linked(document, magic)? {
            (reader, false) => Ok(reader),
            _ => Err(malformed("an unknown version")),
        }
    }

    /// Opens a document that may carry a link; whether it does.
    fn open_linked(document: &'a [u8], magic: &[u8; 4]) -> Result<(Self, bool), EngineError> {
        let mut reader = Self { rest: document };
        let found = reader.take(HEAD_LEN)?;
        if found[..4] != magic[..] {
            return Err(malformed("another kind of document"));
        }
        match found[4..] {
            [VERSION, linked @ (0 | 1), 0, 0] => Ok((reader, linked == 1)),
            _ => Err(malformed("an unknown version")),
        }
    }

    fn link(&mut self, is_there: bool) -> Result<Option<JournalLink>, EngineError> {
        is_there.then(|| self.array().map(JournalLink)).transpose()
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], EngineError> {
        let (taken, rest) =
            self.rest.split_at_checked(len).ok_or_else(|| malformed("it ends in the middle of something"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], EngineError> {
        self.take(N)?.try_into().map_err(|_| malformed("it ends in the middle of something"))
    }

    fn u8(&mut self) -> Result<u8, EngineError> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, EngineError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, EngineError> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64, EngineError> {
        self.array().map(i64::from_le_bytes)
    }

    fn seq(&mut self) -> Result<Seq, EngineError> {
        Seq::try_from(self.u64()?).map_err(|_| malformed("a sequence number out of range"))
    }

    fn sized(&mut self, len: usize) -> Result<&'a str, EngineError> {
        std::str::from_utf8(self.take(len)?).map_err(|_| malformed("text that is not UTF-8"))
    }

    fn long(&mut self) -> Result<&'a [u8], EngineError> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    fn end(&self) -> Result<(), EngineError> {
        if self.rest.is_empty() { Ok(()) } else { Err(malformed("bytes are left over")) }
    }
}

fn len32(len: usize) -> Result<[u8; 4], EngineError> {
    u32::try_from(len).map(u32::to_le_bytes).map_err(|_| EngineError::TooLarge)
}

/// Where a lineage comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineageDocument {
    /// The last sequence number before it.
    pub(super) start: Seq,
    /// The lineage it was made from.
    pub(super) parent: Option<Lineage>,
}

impl LineageDocument {
    pub(super) fn encode(&self) -> Vec<u8> {
        let parent = self.parent.map(|parent| parent.to_string()).unwrap_or_default();
        let mut out = head(b"DWLN");
        out.extend_from_slice(&self.start.to_le_bytes());
        out.extend_from_slice(&u16::try_from(parent.len()).unwrap_or(0).to_le_bytes());
        out.extend_from_slice(parent.as_bytes());
        out
    }

    pub(super) fn decode(document: &[u8]) -> Result<Self, EngineError> {
        let mut reader = DocumentReader::open(document, b"DWLN")?;
        let start = reader.seq()?;
        let len = u16::from_le_bytes(reader.array()?);
        let parent = match reader.sized(len.into())? {
            "" => None,
            parent => Some(parent.parse()?),
        };
        reader.end()?;
        Ok(Self { start, parent })
    }
}

/// What a journal blob holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JournalDocument {
    /// The link of the document before it; `None` where its writer did not know it.
    pub(super) before: Option<JournalLink>,
    pub(super) entries: Vec<JournalEntry>,
}

/// Journal rows as a blob holds them, behind the document `before`.
pub(super) fn encode_journal(entries: &[JournalEntry], before: Option<JournalLink>) -> Result<Vec<u8>, EngineError> {
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
        return Err(EngineError::Other("a journal blob holds at least one entry".into()));
    };
    let mut out = linked_head(b"DWJN", before);
    out.extend_from_slice(&first.seq.to_le_bytes());
    out.extend_from_slice(&last.seq.to_le_bytes());
    out.extend(before.iter().flat_map(|link| link.0));
    for entry in entries {
        let text = entry.mutation.as_str();
        out.extend_from_slice(&entry.at_ms.to_le_bytes());
        out.extend_from_slice(&len32(text.len())?);
        out.extend_from_slice(text.as_bytes());
    }
    Ok(out)
}

/// What a journal blob holds that is named by `first`.
pub(super) fn decode_journal(document: &[u8], first: Seq) -> Result<JournalDocument, EngineError> {
    let (mut reader, is_linked) = DocumentReader::open_linked(document, b"DWJN")?;
    let (from, to) = (reader.seq()?, reader.seq()?);
    let before = reader.link(is_linked)?;
    if from != first || to < from {
        return Err(malformed("its numbers contradict its name"));
    }
    let mut entries = Vec::new();
    for seq in from..=to {
        let at_ms = reader.i64()?;
        let len = reader.u32()? as usize;
        let parsed = MutationText::parse(reader.sized(len)?.to_owned());
        let mutation = parsed.map_err(|error| malformed(&format!("mutation {seq}: {error}")))?;
        entries.push(JournalEntry { seq, at_ms, mutation });
    }
    reader.end()?;
    Ok(JournalDocument { before, entries })
}

/// A part of a backup while it is written.
pub(super) struct PartWriter {
    out: Vec<u8>,
}

impl PartWriter {
    pub(super) fn new(name: &BackupName, number: u32) -> Self {
        let mut out = head(b"DWBP");
        out.extend_from_slice(&name.id.to_be_bytes());
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        Self { out }
    }

    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    pub(super) fn push(&mut self, piece: &TableRows) -> Result<(), EngineError> {
        let out = &mut self.out;
        let short = |len: usize| u8::try_from(len).map_err(|_| EngineError::TooLarge);
        out.push(short(piece.table.len())?);
        out.extend_from_slice(piece.table.as_bytes());
        out.push(short(piece.columns.len())?);
        for column in &piece.columns {
            out.push(short(column.len())?);
            out.extend_from_slice(column.as_bytes());
        }
        out.extend_from_slice(&len32(piece.rows.len())?);
        for value in piece.rows.iter().flatten() {
            match value {
                Value::Null => out.push(0),
                Value::Int(value) => {
                    out.push(1);
                    out.extend_from_slice(&value.to_le_bytes());
                }
                Value::Text(text) => {
                    out.push(2);
                    out.extend_from_slice(&len32(text.len())?);
                    out.extend_from_slice(text.as_bytes());
                }
                Value::Bytes(bytes) => {
                    out.push(3);
                    out.extend_from_slice(&len32(bytes.len())?);
                    out.extend_from_slice(bytes);
                }
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }
}

/// The rows of a backup's part.
pub(super) fn decode_part(document: &[u8], name: &BackupName, number: u32) -> Result<Vec<TableRows>, EngineError> {
    let mut reader = DocumentReader::open(document, b"DWBP")?;
    if reader.array::<8>()? != name.id.to_be_bytes() || reader.u32()? != number || reader.u32()? != 0 {
        return Err(malformed("a part of another backup"));
    }
    let mut pieces = Vec::new();
    while !reader.rest.is_empty() {
        let len = reader.u8()?;
        let table = reader.sized(len.into())?.to_owned();
        let mut columns = Vec::new();
        for _ in 0..reader.u8()? {
            let len = reader.u8()?;
            columns.push(reader.sized(len.into())?.to_owned());
        }
        if columns.is_empty() {
            return Err(malformed("a table without columns"));
        }
        let mut rows = Vec::new();
        for _ in 0..reader.u32()? {
            rows.push((0..columns.len()).map(|_| value(&mut reader)).collect::<Result<Vec<_>, _>>()?);
        }
        pieces.push(TableRows { table, columns, rows });
    }
    Ok(pieces)
}

fn value(reader: &mut DocumentReader<'_>) -> Result<Value, EngineError> {
    match reader.u8()? {
        0 => Ok(Value::Null),
        1 => reader.i64().map(Value::Int),
        2 => {
            let len = reader.u32()? as usize;
            reader.sized(len).map(|text| Value::Text(text.to_owned()))
        }
        3 => reader.long().map(|bytes| Value::Bytes(bytes.to_vec())),
        _ => Err(malformed("a value of an unknown type")),
    }
}

/// A part as its index knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartEntry {
    pub(super) stored_len: u64,
    /// SHA-256 of its document.
    pub(super) digest: [u8; 32],
}

/// A backup's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexDocument {
    /// The last mutation that is in the snapshot.
    pub(super) seq: Seq,
    /// Schema version of its tables.
    pub(super) schema: i64,
    /// When it was begun, by the writer's clock.
    pub(super) taken_ms: UnixMs,
    /// Rows of all parts.
    pub(super) rows: u64,
    /// The link of the document that ends at the backup's cut; `None` where its writer did not know
    /// it.
    pub(super) head: Option<JournalLink>,
    pub(super) parts: Vec<PartEntry>,
}

impl IndexDocument {
    pub(super) fn encode(&self, name: &BackupName) -> Vec<u8> {
        let mut out = linked_head(b"DWBX", self.head);
        out.extend_from_slice(&name.id.to_be_bytes());
        out.extend_from_slice(&name.cut.to_le_bytes());
        out.extend_from_slice(&self.seq.to_le_bytes());
        out.extend_from_slice(&self.schema.to_le_bytes());
        out.extend_from_slice(&self.taken_ms.to_le_bytes());
        out.extend_from_slice(&self.rows.to_le_bytes());
        out.extend_from_slice(&(self.parts.len() as u64).to_le_bytes());
        out.extend(self.head.iter().flat_map(|link| link.0));
        for part in &self.parts {
            out.extend_from_slice(&part.stored_len.to_le_bytes());
            out.extend_from_slice(&part.digest);
        }
        out
    }

    pub(super) fn decode(document: &[u8], name: &BackupName) -> Result<Self, EngineError> {
        let (mut reader, is_linked) = DocumentReader::open_linked(document, b"DWBX")?;
        if reader.array::<8>()? != name.id.to_be_bytes() || reader.seq()? != name.cut {
            return Err(malformed("the index of another backup"));
        }
        let (seq, schema, taken_ms, rows) = (reader.seq()?, reader.i64()?, reader.i64()?, reader.u64()?);
        let count = reader.u64()?;
        let head = reader.link(is_linked)?;
        let mut parts = Vec::new();
        for _ in 0..count {
            parts.push(PartEntry { stored_len: reader.u64()?, digest: reader.array()? });
        }
        reader.end()?;
        if seq < name.cut {
            return Err(malformed("a snapshot older than its journal"));
        }
        Ok(Self { seq, schema, taken_ms, rows, head, parts })
    }
}

/// Decodes bytes behind the head of one kind of document: refused, or what they say comes back when
/// it is written and decoded again. For fuzz targets.
pub(crate) fn decode_anything(kind: u8, bytes: &[u8]) {
    const KINDS: [&[u8; 4]; 4] = [b"DWLN", b"DWJN", b"DWBP", b"DWBX"];
    let is_linked = kind >= 0x80;
    let kind = KINDS[usize::from(kind) % KINDS.len()];
    let mut document = head(kind);
    document[LINKED_AT] = u8::from(is_linked);
    document.extend_from_slice(bytes);
    // The name that would fit, so that what is behind it is reached.
    let number = |at: usize| bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; 8]);
    let lineage = Lineage::after(None, 7).expect("there is room for a generation after none");
    let name = BackupName { lineage, id: u64::from_be_bytes(number(0)), cut: i64::from_le_bytes(number(8)) };
    let part = u32::from_le_bytes(number(8)[..4].try_into().unwrap_or([0; 4]));
    match kind {
        b"DWLN" => {
            let Ok(read) = LineageDocument::decode(&document) else { return };
            assert_eq!(LineageDocument::decode(&read.encode()).ok(), Some(read));
        }
        b"DWJN" => {
            let Ok(read) = decode_journal(&document, i64::from_le_bytes(number(0))) else { return };
            let written = encode_journal(&read.entries, read.before);
            let again = written.and_then(|written| decode_journal(&written, read.entries[0].seq));
            assert_eq!(again.ok(), Some(read));
        }
        b"DWBP" => {
            let Ok(read) = decode_part(&document, &name, part) else { return };
            let mut writer = PartWriter::new(&name, part);
            let written = read.iter().all(|piece| writer.push(piece).is_ok());
            assert!(written && decode_part(&writer.finish(), &name, part).ok() == Some(read));
        }
        _ => {
            let Ok(read) = IndexDocument::decode(&document, &name) else { return };
            assert_eq!(IndexDocument::decode(&read.encode(&name), &name).ok(), Some(read));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(cut: Seq, id: u64) -> BackupName {
        BackupName { lineage: Lineage::after(None, 7).expect("it follows"), cut, id }
    }

    fn values() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::Int),
            ".{0,20}".prop_map(Value::Text),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Bytes),
        ]
    }

    fn links() -> impl Strategy<Value = Option<JournalLink>> {
        prop::option::of(any::<[u8; 32]>().prop_map(JournalLink))
    }

    fn pieces() -> impl Strategy<Value = TableRows> {
        ("[a-z_]{1,20}", prop::collection::vec("[a-z_]{1,10}", 1..5)).prop_flat_map(|(table, columns)| {
            let row = prop::collection::vec(values(), columns.len());
            prop::collection::vec(row, 0..8).prop_map(move |rows| TableRows {
                table: table.clone(),
                columns: columns.clone(),
                rows,
            })
        })
    }

    proptest! {
        #[test]
        fn a_journal_is_read_back(first in 1i64..1 << 60, texts in prop::collection::vec(".{0,30}", 1..20), at_ms: i64, before in links()) {
            let entries: Vec<JournalEntry> = (first..).zip(texts)
                .map(|(seq, text)| (seq, MutationText::of(&serde_json::json!({"PutSetting": text})).expect("is JSON")))
                .map(|(seq, mutation)| JournalEntry { seq, at_ms, mutation })
                .collect();
            let document = encode_journal(&entries, before).expect("encoded");
            prop_assert_eq!(decode_journal(&document, first).expect("decoded"), JournalDocument { before, entries });
            prop_assert!(decode_journal(&document, first + 1).is_err());
            for len in 0..document.len() {
                prop_assert!(decode_journal(&document[..len], first).is_err());
            }
        }

        #[test]
        fn a_part_is_read_back(tables in prop::collection::vec(pieces(), 0..5), id: u64, number: u32) {
            let mut part = PartWriter::new(&name(3, id), number);
            for piece in &tables {
                part.push(piece).expect("fits");
            }
            let document = part.finish();
            prop_assert_eq!(decode_part(&document, &name(3, id), number).expect("decoded"), tables);
            prop_assert!(decode_part(&document, &name(3, id ^ 1), number).is_err());
            prop_assert!(decode_part(&document, &name(3, id), number ^ 1).is_err());
        }

        #[test]
        fn an_index_and_a_lineage_are_read_back(cut in 0i64..1 << 60, more in 0i64..100, head in links(), lens in prop::collection::vec(any::<u64>(), 0..9)) {
            let parts = lens.into_iter().map(|stored_len| PartEntry { stored_len, digest: [9; 32] }).collect();
            let index = IndexDocument { seq: cut + more, schema: 2, taken_ms: 5, rows: 6, head, parts };
            let document = index.encode(&name(cut, 1));
            prop_assert_eq!(IndexDocument::decode(&document, &name(cut, 1)).expect("decoded"), index);
            for len in 0..document.len() {
                prop_assert!(IndexDocument::decode(&document[..len], &name(cut, 1)).is_err());
            }
            for parent in [None, Some(Lineage::after(None, 3).expect("it follows"))] {
                let lineage = LineageDocument { start: cut, parent };
                prop_assert_eq!(LineageDocument::decode(&lineage.encode()).expect("decoded"), lineage);
            }
        }

        #[test]
        fn no_bytes_make_a_decoder_panic_or_take_more_than_they_are(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..4, is_linked: bool) {
            let mut document = head([b"DWLN", b"DWJN", b"DWBP", b"DWBX"][kind]);
            document[LINKED_AT] = u8::from(is_linked);
            document.extend_from_slice(&bytes);
            let _ = LineageDocument::decode(&document);
            let _ = decode_journal(&document, 1);
            let _ = decode_part(&document, &name(0, 0), 0);
            let _ = IndexDocument::decode(&document, &name(0, 0));
        }
    }
}
