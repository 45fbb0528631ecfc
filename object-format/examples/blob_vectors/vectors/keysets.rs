//! Keyset documents and blobs. The KEK and the domain keys in them are public.

use super::{
    Vector, bad,
    kit::{BLOB_ID, Draft, KEY_EPOCH, KEY_ID, SECRET, expand, hex},
};
use aes_gcm::aes::Aes256;
use aes_gcm::aes::cipher::{BlockCipherEncrypt, KeyInit};

const KEK: [u8; 32] = *b"a KEK of 32 bytes for vectors 01";

/// AES-256-KWP (RFC 5649).
fn key_wrap_padded(key: &[u8; 32], plain: &[u8]) -> Vec<u8> {
    let cipher = Aes256::new(key.into());
    let mut a: [u8; 8] =
        [&[0xa6, 0x59, 0x59, 0xa6][..], &(plain.len() as u32).to_be_bytes()].concat().try_into().unwrap();
    let mut padded = plain.to_vec();
    padded.resize(plain.len().next_multiple_of(8), 0);
    let n = padded.len() / 8;
    if n == 1 {
        let mut block: [u8; 16] = [&a[..], &padded].concat().try_into().unwrap();
        cipher.encrypt_block((&mut block).into());
        return block.to_vec();
    }
    for t in 1..=6 * n {
        let at = (t - 1) % n * 8;
        let mut block: [u8; 16] = [&a, &padded[at..at + 8]].concat().try_into().unwrap();
        cipher.encrypt_block((&mut block).into());
        a.copy_from_slice(&block[..8]);
        a.iter_mut().zip((t as u64).to_be_bytes()).for_each(|(a, t)| *a ^= t);
        padded[at..at + 8].copy_from_slice(&block[8..]);
    }
    [&a[..], &padded].concat()
}

struct Entry {
    id: [u8; 16],
    epoch: u32,
    fingerprint: [u8; 8],
    wrapped: Vec<u8>,
    label: Vec<u8>,
}

impl Entry {
    fn new(number: u8, epoch: u32, bucket: u64, name: &[u8]) -> Self {
        Self::of([number; 16], [number ^ 0xff; 32], epoch, bucket, name)
    }

    fn of(id: [u8; 16], secret: [u8; 32], epoch: u32, bucket: u64, name: &[u8]) -> Self {
        let label_key: [u8; 32] = expand(&secret, None, &[b"deltaweir keyset label v1", &id]);
        Self {
            id,
            epoch,
            fingerprint: expand(&KEK, None, &[b"deltaweir kek fingerprint v1"]),
            wrapped: key_wrap_padded(&KEK, &[&secret[..], &id, &epoch.to_le_bytes()].concat()),
            label: key_wrap_padded(&label_key, &[&bucket.to_le_bytes()[..], name].concat()),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let sized = |bytes: &[u8]| [&(bytes.len() as u16).to_le_bytes(), bytes].concat();
        [&self.id[..], &self.epoch.to_le_bytes(), &self.fingerprint, &sized(&self.wrapped), &sized(&self.label)]
            .concat()
    }
}

fn entries() -> Vec<Entry> {
    vec![
        Entry::new(1, 1, 7, b"first-bucket"),
        Entry::new(1, 2, 7, b"first-bucket"),
        Entry::new(2, 1, 8, "b\u{fc}cket".as_bytes()),
    ]
}

fn document(entries: &[Entry]) -> Vec<u8> {
    let mut out = b"DWKS\x01\0\0\0".to_vec();
    out.extend((entries.len() as u32).to_le_bytes());
    entries.iter().for_each(|entry| out.extend(entry.encode()));
    out
}

fn blob(document: &[u8]) -> Vec<u8> {
    let mut draft = Draft::raw(document);
    draft.header[8] = 4;
    draft.blob()
}

fn edited(edit: impl FnOnce(&mut Vec<Entry>)) -> Vec<u8> {
    let mut entries = entries();
    edit(&mut entries);
    blob(&document(&entries))
}

fn edited_bytes(edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = document(&entries());
    edit(&mut bytes);
    blob(&bytes)
}

pub(crate) fn all() -> Vec<Vector> {
    let listed = "01010101010101010101010101010101:1:7:first-bucket 01010101010101010101010101010101:2:7:first-bucket \
                  02020202020202020202020202020202:1:8:b\u{fc}cket";
    let keyset = |name, expect, comment, body| {
        bad(name, expect, comment, body).with("type", "keyset").with("kek", hex(&KEK)).with("blob-id", hex(&BLOB_ID))
    };
    vec![
        keyset("keyset", "success", "three keys of two buckets", blob(&document(&entries()))).with("keys", listed),
        keyset("keyset_empty", "success", "no keys", blob(&document(&[]))).with("keys", ""),
        keyset("keyset_of_vectors", "success", "the key of the sealed vectors", {
            blob(&document(&[Entry::of(KEY_ID, SECRET, KEY_EPOCH, 1, b"vectors")]))
        })
        .with("keys", format!("{}:{KEY_EPOCH}:1:vectors", hex(&KEY_ID))),
        keyset("keyset_other_kek", "key", "wrapped under another KEK", blob(&document(&entries())))
            .with("kek", hex(&[1; 32])),
        keyset(
            "keyset_fingerprint_altered",
            "key",
            "an entry names another KEK",
            edited(|entries| entries[0].fingerprint[0] ^= 1),
        ),
        keyset("keyset_wrap_altered", "key", "one bit of a wrapped key", edited(|entries| entries[1].wrapped[20] ^= 1)),
        keyset(
            "keyset_wraps_swapped",
            "key",
            "two wrapped keys exchanged",
            edited(|entries| {
                let first = std::mem::take(&mut entries[0].wrapped);
                entries[0].wrapped = std::mem::replace(&mut entries[2].wrapped, first);
            }),
        ),
        keyset(
            "keyset_epoch_altered",
            "key",
            "an entry with another epoch than was wrapped",
            edited(|entries| entries[2].epoch = 3),
        ),
        keyset("keyset_label_altered", "key", "one bit of a label", edited(|entries| entries[0].label[3] ^= 1)),
        keyset(
            "keyset_labels_swapped",
            "key",
            "two labels exchanged",
            edited(|entries| {
                let first = std::mem::take(&mut entries[0].label);
                entries[0].label = std::mem::replace(&mut entries[2].label, first);
            }),
        ),
        keyset(
            "keyset_label_not_utf8",
            "malformed",
            "a bucket name that is not UTF-8",
            edited(|entries| {
                entries[2] = Entry::new(2, 1, 8, &[0xff, 0xfe]);
            }),
        ),
        keyset(
            "keyset_label_short",
            "malformed",
            "a label without a whole bucket id",
            edited(|entries| {
                let label_key: [u8; 32] = expand(&[2 ^ 0xff; 32], None, &[b"deltaweir keyset label v1", &[2; 16]]);
                entries[2].label = key_wrap_padded(&label_key, b"7 bytes");
            }),
        ),
        keyset("keyset_descending", "malformed", "entries out of order", edited(|entries| entries.swap(0, 2))),
        keyset(
            "keyset_entry_twice",
            "malformed",
            "an entry twice",
            edited(|entries| entries.push(Entry::new(2, 1, 8, b"x"))),
        ),
        keyset("keyset_magic", "malformed", "another document", edited_bytes(|bytes| bytes[0] = b'X')),
        keyset("keyset_version", "malformed", "version 2", edited_bytes(|bytes| bytes[4] = 2)),
        keyset("keyset_reserved", "malformed", "reserved bytes", edited_bytes(|bytes| bytes[7] = 1)),
        keyset(
            "keyset_count",
            "malformed",
            "more entries announced than there are",
            edited_bytes(|bytes| bytes[8] = 4),
        ),
        keyset(
            "keyset_count_2_32",
            "malformed",
            "as many entries as can be announced",
            edited_bytes(|bytes| bytes[8..12].fill(255)),
        ),
        keyset("keyset_left_over", "malformed", "a byte after the last entry", edited_bytes(|bytes| bytes.push(0))),
        keyset(
            "keyset_cut",
            "malformed",
            "the last entry cut",
            edited_bytes(|bytes| {
                bytes.pop();
            }),
        ),
        keyset(
            "keyset_in_whole_blob",
            "malformed",
            "a keyset in a blob of kind whole",
            Draft::raw(&document(&entries())).blob(),
        ),
    ]
}
