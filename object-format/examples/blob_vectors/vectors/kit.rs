//! Writes blobs as `docs/format/blob-v1.md` says, with other libraries than the crate (RustCrypto),
//! stage by stage, so that every stage can be made wrong while all that comes after it is right.
//!
//! ```text
//! Draft --tables()--> Tables --manifest()--> Manifest --ending()--> Ending --blob()--> bytes
//! content             units, pages           root fields            trailer
//! ```

use aes_gcm::{Aes256Gcm, KeyInit, aead::AeadInOut};
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256, Sha512};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

pub(crate) const BLOB_ID: [u8; 16] = *b"\0\0\0\x01vector blob1";
pub(crate) const OTHER_ID: [u8; 16] = *b"\0\0\0\x01vector blob2";
pub(crate) const KEY_ID: [u8; 16] = *b"vector key id 01";
pub(crate) const KEY_EPOCH: u32 = 9;
pub(crate) const SECRET: [u8; 32] = *b"a domain key of 32 bytes, public";
pub(crate) const SALT: [u8; 32] = *b"a salt that is used only for it.";
pub(crate) const CHUNK: usize = 65_536;
pub(crate) const SEGMENT: usize = 4_194_304;

/// Kinds of blobs by number.
pub(crate) const WHOLE: u8 = 0;
pub(crate) const DELTA: u8 = 1;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that are easy to recognise and differ everywhere nearby.
pub(crate) fn text(len: usize) -> Vec<u8> {
    (0..).flat_map(|line: u32| format!("line {line} of the content\n").into_bytes()).take(len).collect()
}

/// One row of the segment table, as written.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) plain_len: u32,
    pub(crate) stored_len: u32,
    pub(crate) coding: u8,
    pub(crate) reserved: u16,
    pub(crate) digest: [u8; 16],
    pub(crate) footprint: Vec<(u64, u32)>,
}

impl Row {
    pub(crate) fn new(plain: &[u8], stored_len: usize, coding: u8) -> Self {
        let (plain_len, stored_len) = (plain.len() as u32, stored_len as u32);
        Self { plain_len, stored_len, coding, reserved: 0, digest: digest(plain), footprint: Vec::new() }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.plain_len.to_le_bytes());
        out.extend(self.stored_len.to_le_bytes());
        out.extend([self.coding, self.footprint.len() as u8]);
        out.extend(self.reserved.to_le_bytes());
        out.extend(self.digest);
        for (offset, len) in &self.footprint {
            out.extend(offset.to_le_bytes());
            out.extend(len.to_le_bytes());
        }
        out
    }
}

pub(crate) fn digest(plain: &[u8]) -> [u8; 16] {
    xxh3_128(plain).to_le_bytes()
}

/// One range of a base view, as written.
pub(crate) fn view_range(blob: [u8; 16], offset: u64, len: u64, tag: [u8; 16]) -> Vec<u8> {
    [&blob[..], &offset.to_le_bytes(), &len.to_le_bytes(), &tag].concat()
}

/// The header of a suite-0 blob.
pub(crate) fn header(kind: u8) -> Vec<u8> {
    let mut out = b"DWB1\x01\x00\x10\x16".to_vec();
    out.push(kind);
    out.resize(48, 0);
    out.extend(BLOB_ID);
    out.resize(160, 0);
    out
}

/// What a blob is to hold.
pub(crate) struct Draft {
    pub(crate) header: Vec<u8>,
    pub(crate) secret: Option<[u8; 32]>,
    pub(crate) rows: Vec<Row>,
    pub(crate) payload: Vec<u8>,
    pub(crate) view: Vec<u8>,
    /// Rows in every segment page, and checks in every check page.
    pub(crate) rows_per_page: usize,
    /// Optional root fields.
    pub(crate) facts: Vec<(u16, Vec<u8>)>,
}

impl Draft {
    /// Raw content without protection.
    pub(crate) fn raw(plain: &[u8]) -> Self {
        let rows = plain.chunks(SEGMENT).map(|plain| Row::new(plain, plain.len(), 0)).collect();
        Self {
            header: header(WHOLE),
            secret: None,
            rows,
            payload: plain.to_vec(),
            view: Vec::new(),
            rows_per_page: 200,
            facts: Vec::new(),
        }
    }

    /// A delta blob of one raw segment over a view of two ranges, 1000 and 24 bytes long, so that
    /// footprints can be tried.
    pub(crate) fn with_view() -> Self {
        let mut draft = Self::raw(&text(100));
        draft.header[8] = DELTA;
        draft.view = [view_range(OTHER_ID, 5, 1000, [7; 16]), view_range(OTHER_ID, 0, 24, [7; 16])].concat();
        draft
    }

    /// The same content under AES-256-GCM.
    pub(crate) fn sealed(mut self) -> Self {
        self.header[5] = 1;
        self.header[16..32].copy_from_slice(&KEY_ID);
        self.header[32..36].copy_from_slice(&KEY_EPOCH.to_le_bytes());
        self.header[64..96].copy_from_slice(&SALT);
        self.secret = Some(SECRET);
        self.commit();
        self
    }

    /// Puts the commitment into the header; needed again after an edit of the header.
    pub(crate) fn commit(&mut self) {
        if let Some(secret) = self.secret {
            let commitment = okm(&secret, &self.header)[32..64].to_vec();
            self.header[96..128].copy_from_slice(&commitment);
        }
    }

    pub(crate) fn tables(&self) -> Tables {
        let protection = Protection::new(&self.header, self.secret.as_ref());
        let last = self.payload.len().div_ceil(CHUNK).saturating_sub(1);
        let chunks = self.payload.chunks(CHUNK).enumerate().map(|(index, bytes)| Unit {
            kind: u8::from(index == last),
            index: index as u32,
            bytes: bytes.to_vec(),
        });
        let (mut first, mut at) = (0_u64, 0_u64);
        let mut segment_pages = Vec::new();
        for (index, rows) in self.rows.chunks(self.rows_per_page).enumerate() {
            let mut bytes = page_start(first, rows.len());
            bytes.extend(at.to_le_bytes());
            rows.iter().for_each(|row| bytes.extend(row.encode()));
            segment_pages.push(Page { unit: Unit { kind: 2, index: index as u32, bytes }, count: rows.len() as u32 });
            first += rows.len() as u64;
            at += rows.iter().map(|row| u64::from(row.stored_len)).sum::<u64>();
        }
        let plain_len = self.rows.iter().map(|row| u64::from(row.plain_len)).sum();
        let message = [
            &b"deltaweir base v1"[..],
            &self.header[48..64],
            &u64::to_le_bytes(plain_len),
            &self.rows.iter().flat_map(|row| row.digest).collect::<Vec<_>>(),
        ]
        .concat();
        let mut tables = Tables {
            header: self.header.clone(),
            chunks: chunks.collect(),
            segment_pages,
            check_pages: Vec::new(),
            checks_per_page: self.rows_per_page,
            sizes: [plain_len, self.payload.len() as u64, self.rows.len() as u64],
            view: self.view.clone(),
            base_tag: protection.base_tag(&message),
            facts: self.facts.clone(),
            protection,
        };
        tables.recheck();
        tables
    }

    pub(crate) fn blob(&self) -> Vec<u8> {
        self.tables().blob()
    }
}

/// Something that is sealed or checked as one.
#[derive(Clone)]
pub(crate) struct Unit {
    pub(crate) kind: u8,
    pub(crate) index: u32,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct Page {
    pub(crate) unit: Unit,
    pub(crate) count: u32,
}

pub(crate) fn page_start(first: u64, count: usize) -> Vec<u8> {
    [&first.to_le_bytes()[..], &(count as u32).to_le_bytes(), &[0; 4]].concat()
}

/// Everything but the root and the trailer, not sealed yet.
pub(crate) struct Tables {
    pub(crate) header: Vec<u8>,
    pub(crate) chunks: Vec<Unit>,
    pub(crate) segment_pages: Vec<Page>,
    pub(crate) check_pages: Vec<Page>,
    pub(crate) checks_per_page: usize,
    pub(crate) sizes: [u64; 3],
    pub(crate) view: Vec<u8>,
    pub(crate) base_tag: [u8; 16],
    pub(crate) facts: Vec<(u16, Vec<u8>)>,
    pub(crate) protection: Protection,
}

impl Tables {
    /// Makes the check pages of the chunks as they are now; none when sealed.
    pub(crate) fn recheck(&mut self) {
        self.check_pages.clear();
        if self.protection.cipher.is_some() {
            return;
        }
        let checks: Vec<_> = self.chunks.iter().map(|chunk| self.protection.check(chunk)).collect();
        for (index, checks) in checks.chunks(self.checks_per_page).enumerate() {
            let mut bytes = page_start((index * self.checks_per_page) as u64, checks.len());
            bytes.extend(checks.as_flattened());
            self.check_pages
                .push(Page { unit: Unit { kind: 3, index: index as u32, bytes }, count: checks.len() as u32 });
        }
    }

    pub(crate) fn manifest(self) -> Manifest {
        let mut front = self.header.clone();
        for chunk in &self.chunks {
            let stored = self.protection.close(chunk);
            let with_tag = self.protection.cipher.is_some();
            front.extend(&stored[..if with_tag { stored.len() } else { chunk.bytes.len() }]);
        }
        let mut directory = |pages: &[Page]| {
            let mut entries = Vec::new();
            for page in pages {
                let stored = self.protection.close(&page.unit);
                entries.extend((stored.len() as u32).to_le_bytes());
                entries.extend(page.count.to_le_bytes());
                entries.extend(&stored[stored.len() - 16..]);
                front.extend(stored);
            }
            entries
        };
        let (segment_pages, check_pages) = (directory(&self.segment_pages), directory(&self.check_pages));
        let mut fields = vec![
            (1, self.sizes.iter().flat_map(|size| size.to_le_bytes()).collect()),
            (2, segment_pages),
            (3, check_pages),
            (4, self.view),
            (5, self.base_tag.to_vec()),
        ];
        fields.extend(self.facts);
        fields.retain(|(_, value): &(u16, Vec<u8>)| !value.is_empty());
        Manifest { front, fields, root_unit: (4, 0), protection: self.protection }
    }

    pub(crate) fn blob(self) -> Vec<u8> {
        self.manifest().blob()
    }
}

/// Everything up to the root, stored, and the root's fields.
pub(crate) struct Manifest {
    pub(crate) front: Vec<u8>,
    pub(crate) fields: Vec<(u16, Vec<u8>)>,
    /// Unit type and index the root is sealed as.
    pub(crate) root_unit: (u8, u32),
    protection: Protection,
}

impl Manifest {
    pub(crate) fn field(&mut self, tag: u16) -> &mut Vec<u8> {
        &mut self.fields.iter_mut().find(|field| field.0 == tag).unwrap().1
    }

    pub(crate) fn root_bytes(&self) -> Vec<u8> {
        let field = |(tag, value): &(u16, Vec<u8>)| {
            [&tag.to_le_bytes()[..], &(value.len() as u32).to_le_bytes(), value].concat()
        };
        self.fields.iter().flat_map(field).collect()
    }

    pub(crate) fn ending(self) -> Ending {
        let bytes = self.root_bytes();
        self.ending_with(bytes)
    }

    /// With these bytes for the root, whatever the fields are.
    pub(crate) fn ending_with(self, bytes: Vec<u8>) -> Ending {
        let (kind, index) = self.root_unit;
        let root = self.protection.close(&Unit { kind, index, bytes });
        let mut front = self.front;
        let offset = front.len() as u64;
        front.extend(&root);
        let mut checked = [&offset.to_le_bytes()[..], &(root.len() as u32).to_le_bytes(), &[0; 4]].concat();
        checked.extend(&root[root.len() - 16..]);
        checked.extend((front.len() as u64 + 64).to_le_bytes());
        checked.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        Ending { front, checked }
    }

    pub(crate) fn blob(self) -> Vec<u8> {
        self.ending().blob()
    }
}

/// Everything but the trailer, and the trailer's checked bytes.
pub(crate) struct Ending {
    pub(crate) front: Vec<u8>,
    pub(crate) checked: Vec<u8>,
}

impl Ending {
    pub(crate) fn blob(self) -> Vec<u8> {
        let check = xxh3_64(&self.checked).to_le_bytes();
        [&self.front[..], &self.checked, &check, b"DWB1END\n"].concat()
    }
}

/// Seals and checks by the document.
pub(crate) struct Protection {
    header_hash: [u8; 32],
    cipher: Option<(Aes256Gcm, [u8; 7], [u8; 32])>,
}

impl Protection {
    pub(crate) fn new(header: &[u8], secret: Option<&[u8; 32]>) -> Self {
        let cipher = secret.map(|secret| {
            let okm = okm(secret, header);
            let cipher = Aes256Gcm::new_from_slice(&okm[..32]).unwrap();
            (cipher, okm[64..].try_into().unwrap(), expand(secret, None, &[b"deltaweir tag v1\0base"]))
        });
        Self { header_hash: Sha256::digest(header).into(), cipher }
    }

    pub(crate) fn check(&self, unit: &Unit) -> [u8; 16] {
        digest(&[&self.header_hash[..], &[unit.kind], &unit.index.to_be_bytes(), &unit.bytes].concat())
    }

    /// The unit as stored, tag or check behind it.
    pub(crate) fn close(&self, unit: &Unit) -> Vec<u8> {
        let Some((cipher, prefix, _)) = &self.cipher else {
            return [&unit.bytes[..], &self.check(unit)].concat();
        };
        let nonce: [u8; 12] = [&prefix[..], &unit.index.to_be_bytes(), &[unit.kind]].concat().try_into().unwrap();
        let aad = [&self.header_hash[..], &[unit.kind]].concat();
        let mut stored = unit.bytes.clone();
        cipher.encrypt_in_place(&nonce.into(), &aad, &mut stored).unwrap();
        stored
    }

    fn base_tag(&self, message: &[u8]) -> [u8; 16] {
        let whole: [u8; 32] = match &self.cipher {
            Some((_, _, key)) => {
                let mut mac = <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(key).unwrap();
                mac.update(message);
                mac.finalize().into_bytes().into()
            }
            None => Sha256::digest(message).into(),
        };
        whole[..16].try_into().unwrap()
    }
}

fn okm(secret: &[u8; 32], header: &[u8]) -> [u8; 71] {
    expand(secret, Some(&header[64..96]), &[b"deltaweir blob v1", &header[..96], &header[128..]])
}

pub(crate) fn expand<const N: usize>(secret: &[u8], salt: Option<&[u8]>, info: &[&[u8]]) -> [u8; N] {
    let mut okm = [0; N];
    Hkdf::<Sha512>::new(salt, secret).expand(&info.concat(), &mut okm).unwrap();
    okm
}
