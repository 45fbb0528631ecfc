//! Every file under `tests/vectors/blob-v1/` opens, or is refused, as its header says.

use object_format::{
    BlobId, Coding, DomainKey, FormatError, Kek, KeyId, ObjectFacts, Root, SEGMENT_LEN, ViewRange, keyset::Keyset, row,
    segment_digest, whole,
};
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, fs, path::PathBuf};
use zstd::zstd_safe::{DCtx, DParameter};

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../tests/vectors/blob-v1"].iter().collect()
}

struct File {
    fields: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl File {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(2).position(|pair| pair == b"\n\n").unwrap();
        let header = std::str::from_utf8(&bytes[..end]).unwrap();
        let fields = header.lines().map(|line| line.split_once(": ").unwrap());
        let fields = fields.map(|(name, value)| (name.into(), value.into())).collect();
        Self { fields, body: bytes[end + 2..].to_vec() }
    }

    fn get(&self, name: &str) -> &str {
        &self.fields[name]
    }

    fn bytes<const N: usize>(&self, name: &str) -> [u8; N] {
        hex::decode(self.get(name)).unwrap().try_into().unwrap()
    }

    fn number<T: std::str::FromStr<Err = std::num::ParseIntError>>(&self, name: &str) -> T {
        self.get(name).parse().unwrap()
    }

    fn key(&self) -> Option<DomainKey> {
        let id = self.fields.contains_key("key-id").then(|| KeyId(self.bytes("key-id")))?;
        Some(DomainKey::new(id, self.number("key-epoch"), self.bytes("key-secret")))
    }

    /// Reads the body; gives what a good one must give.
    fn read(&self) -> Result<(), FormatError> {
        match self.get("type") {
            "blob" => self.read_blob(),
            "keyset" => self.read_keyset(),
            "row" => self.read_row(),
            other => panic!("unknown type {other}"),
        }
    }

    fn read_blob(&self) -> Result<(), FormatError> {
        let blob = whole::open(&self.body, BlobId(self.bytes("blob-id")), self.key().as_ref())?;
        let deltas = blob.segments.iter().any(|segment| segment.coding.has_base());
        let view = if deltas { self.view_bytes(&blob.root.view)? } else { Vec::new() };
        let mut plain = Vec::new();
        for segment in &blob.segments {
            let stored = &blob.payload[segment.stored_offset as usize..][..segment.stored_len as usize];
            let decoded = match segment.coding {
                Coding::Raw => stored.to_vec(),
                Coding::Zstd => unzstd(stored, segment.plain_len as usize)?,
                Coding::Delta => {
                    let ranges = segment.footprint.iter();
                    let base = ranges.map(|range| &view[range.offset as usize..][..range.len as usize]);
                    copy_delta(&base.collect::<Vec<_>>().concat(), stored, segment.plain_len as usize)?
                }
                Coding::View => view_content("segment_next_release", "pair_new", stored, segment.plain_len)?,
                Coding::GappedView => view_content("segment_gaps_dump", "dump_new", stored, segment.plain_len)?,
                Coding::Planes => from_planes(stored, segment.plain_len as usize)
                    .ok_or(FormatError::Malformed("planes that are not as they must be"))?,
            };
            if segment_digest(&decoded) != segment.digest {
                return Err(FormatError::Integrity("a segment's content"));
            }
            plain.extend(decoded);
        }
        assert_eq!(plain.len(), self.number::<usize>("plain-length"));
        assert_eq!(hex::encode(Sha256::digest(&plain)), self.get("plain-sha256"));
        Ok(())
    }

    /// The base view laid end to end, from the bases the header lists as
    /// `id:base tag:whole or delta:content`.
    fn view_bytes(&self, view: &[ViewRange]) -> Result<Vec<u8>, FormatError> {
        let listed = self.get("bases").split(' ').map(|base| base.split(':').collect::<Vec<_>>()).collect::<Vec<_>>();
        let mut bytes = Vec::new();
        for range in view {
            let base = listed.iter().find(|base| base[0] == range.blob.to_string());
            let base = base.ok_or(FormatError::Malformed("a base that is not at hand"))?;
            let content = hex::decode(base[3]).unwrap();
            let root = Root {
                plain_len: content.len() as u64,
                payload_len: 1,
                segments: 1,
                segment_pages: Vec::new(),
                check_pages: Vec::new(),
                view: if base[2] == "whole" { Vec::new() } else { vec![*range] },
                base_tag: hex::decode(base[1]).unwrap().try_into().unwrap(),
                facts: ObjectFacts::default(),
            };
            root.check_as_base(range)?;
            bytes.extend_from_slice(&content[range.offset as usize..][..range.len as usize]);
        }
        Ok(bytes)
    }

    fn read_keyset(&self) -> Result<(), FormatError> {
        let keyset = Keyset::read_blob(&self.body, BlobId(self.bytes("blob-id")))?;
        let kek = Kek::new(self.bytes("kek"));
        let mut listed = Vec::new();
        for entry in keyset.entries() {
            let (key, bucket) = entry.open(&kek)?;
            listed.push(format!("{}:{}:{}:{}", key.id(), key.epoch(), bucket.id, bucket.name));
        }
        assert_eq!(listed.join(" "), self.get("keys"));
        Ok(())
    }

    fn read_row(&self) -> Result<(), FormatError> {
        let extents = self.get("extents").split(' ').map(extent);
        let context = row::RowContext {
            bucket: self.number("bucket"),
            key: self.get("key"),
            version_id: self.bytes("version-id"),
            part: self.fields.contains_key("part").then(|| self.number("part")),
            extents_digest: row::extents_digest(extents),
        };
        let facts = row::open(&self.key().unwrap(), &context, &self.body)?;
        assert_eq!(hex::encode(facts), self.get("facts"));
        Ok(())
    }
}

fn extent(text: &str) -> (BlobId, u64, u64) {
    let parts: Vec<_> = text.split(':').collect();
    (BlobId(hex::decode(parts[0]).unwrap().try_into().unwrap()), parts[1].parse().unwrap(), parts[2].parse().unwrap())
}

/// Form 0 of docs/format/delta-v1.md, a copy from a source below 128: all that the vectors use, so
/// that this crate needs no codec.
fn copy_delta(footprint: &[u8], delta: &[u8], plain_len: usize) -> Result<Vec<u8>, FormatError> {
    match delta {
        [0, source @ 0..128] => footprint.get(usize::from(*source)..).and_then(|from| from.get(..plain_len)),
        _ => None,
    }
    .map(<[u8]>::to_vec)
    .ok_or(FormatError::Malformed("a delta that is not one copy"))
}

/// What the vectors of docs/format/deflate-view-v1.md say of these stored bytes, so that this crate
/// needs no codec.
fn view_content(segment: &str, content: &str, stored: &[u8], plain_len: u32) -> Result<Vec<u8>, FormatError> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../tests/vectors/deflate-view"].iter().collect();
    let body = |name: &str| {
        let text = fs::read_to_string(folder.join(format!("{name}.vec"))).unwrap();
        let digits: String = text.split_once("\n\n").unwrap().1.split_whitespace().collect();
        hex::decode(digits).unwrap()
    };
    let content = body(content);
    let is_it = stored == body(segment) && plain_len as usize == content.len();
    is_it.then_some(content).ok_or(FormatError::Malformed("a deflate view that is no vector"))
}

/// Words put together byte by byte, so that this crate needs no codec.
fn from_planes(stored: &[u8], plain_len: usize) -> Option<Vec<u8>> {
    let (&[width, rotated, head_len, 0], rest) = stored.split_first_chunk()? else { return None };
    let (width, head_len) = (usize::from(width), usize::from(head_len));
    if ![2, 4, 8].contains(&width) || rotated > 1 || head_len >= width {
        return None;
    }
    let words = plain_len.checked_sub(head_len)? / width;
    let (table, rest) = rest.split_at_checked(4 * width)?;
    let (head, mut rest) = rest.split_at_checked(head_len)?;
    let mut planes = Vec::new();
    for len in table.as_chunks().0.iter().map(|len| u32::from_le_bytes(*len) as usize) {
        let (plane, after) = rest.split_at_checked(len)?;
        rest = after;
        planes.push(match len {
            0 => return None,
            _ if len == words => plane.to_vec(),
            _ if len < words => unzstd(plane, words).ok()?,
            _ => return None,
        });
    }
    let mut plain = head.to_vec();
    for word in 0..words {
        let word = planes.iter().rev().fold(0_u64, |value, plane| value << 8 | u64::from(plane[word]));
        let bits = 8 * width as u32;
        let value = if rotated == 1 { word >> 1 | (word & 1) << (bits - 1) } else { word };
        plain.extend_from_slice(&value.to_le_bytes()[..width]);
    }
    plain.extend_from_slice(rest);
    (words > 0 && plain.len() == plain_len).then_some(plain)
}

/// One frame without dictionary, window at most 2^27, content exactly `plain_len`.
fn unzstd(frame: &[u8], plain_len: usize) -> Result<Vec<u8>, FormatError> {
    let refused = FormatError::Malformed("a zstd frame that is not as it must be");
    assert!(plain_len <= SEGMENT_LEN);
    if !frame.starts_with(&0xfd2f_b528_u32.to_le_bytes())
        || zstd::zstd_safe::find_frame_compressed_size(frame) != Ok(frame.len())
    {
        return Err(refused);
    }
    let mut context = DCtx::create();
    context.set_parameter(DParameter::WindowLogMax(27)).unwrap();
    let mut plain = Vec::with_capacity(plain_len);
    // The streaming decoder: only it looks at the window limit.
    let mut input = zstd::zstd_safe::InBuffer::around(frame);
    let mut room = vec![0; plain_len + 1];
    let mut output = zstd::zstd_safe::OutBuffer::around(&mut room[..]);
    loop {
        let left = context.decompress_stream(&mut output, &mut input).map_err(|_| refused.clone())?;
        if left == 0 {
            break;
        }
        if input.pos() == frame.len() || output.pos() > plain_len {
            return Err(refused);
        }
    }
    plain.extend_from_slice(output.as_slice());
    if plain.len() == plain_len { Ok(plain) } else { Err(refused) }
}

fn kind(result: &Result<(), FormatError>) -> &'static str {
    match result {
        Ok(()) => "success",
        Err(FormatError::Malformed(_)) => "malformed",
        Err(FormatError::Integrity(_)) => "integrity",
        Err(FormatError::WrongBlob) => "wrong-blob",
        Err(FormatError::Key(_)) => "key",
        Err(FormatError::TooLarge(_)) => "too-large",
    }
}

#[test]
fn every_vector_is_read_or_refused_as_its_header_says() {
    let (mut good, mut bad, mut wrong) = (0, 0, Vec::new());
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with('.') {
            continue;
        }
        let file = File::parse(&fs::read(&path).unwrap());
        let result = file.read();
        if kind(&result) != file.get("expect") {
            wrong.push(format!("{}: expected {}, got {result:?}", path.display(), file.get("expect")));
        }
        if file.get("expect") == "success" { good += 1 } else { bad += 1 }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(good >= 25 && bad >= 150, "{good} good and {bad} bad vectors were found");
}

#[test]
fn the_vectors_are_those_the_programs_write() {
    let all = crate::vectors::all();
    for vector in &all {
        let file = fs::read(folder().join(vector.name)).unwrap_or_default();
        assert!(file == vector.file_bytes(), "{} differs from what its program writes", vector.name);
    }
    let files = fs::read_dir(folder()).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        !name.to_string_lossy().starts_with('.')
    });
    assert_eq!(files.count(), all.len(), "a file without a program");
    assert!(all.iter().filter(|vector| vector.expect != "success").count() > all.len() / 2);
}
