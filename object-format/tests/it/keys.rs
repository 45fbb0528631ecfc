//! Domain keys, the KEK, keysets and sealed rows.

use crate::samples::{ID, SALT, key};
use object_format::{
    BlobId, BlobKind, BlobSpec, BlobWriter, DomainKey, FormatError, Kek, KekOrigin, KeyId, ObjectFacts, Seal,
    keys::{BOUND_KEY_LEN, WRAPPED_KEY_LEN, is_bound},
    keyset::{BucketLabel, Keyset, KeysetEntry},
    row::{self, RowContext, SEALED_ROW_OVERHEAD, extents_digest},
};
use proptest::prelude::*;

fn kek() -> Kek {
    Kek::new([0x42; 32])
}

/// Tags tell two keys apart: the secret itself has no accessor.
fn same(a: &DomainKey, b: &DomainKey) -> bool {
    (a.id(), a.epoch()) == (b.id(), b.epoch()) && a.keyed_tag("test", b"message") == b.keyed_tag("test", b"message")
}

#[test]
fn secrets_do_not_show_in_debug_output() {
    let secret = [0xab; 32];
    let key = DomainKey::new(KeyId([1; 16]), 2, secret);
    let seal = Seal::Aes256Gcm { key: &key, salt: SALT };
    let spec = BlobSpec { id: ID, kind: BlobKind::Whole, seal };
    let mut shown = format!("{key:?} {key:#?} {:?} {spec:?}", Kek::new(secret));
    let mut out = Vec::new();
    let writer = BlobWriter::new(spec, &mut out);
    shown += &format!("{writer:?}");
    writer.finish(&[], &[], &ObjectFacts::default(), &mut out).unwrap();
    let header = object_format::Header::decode(&out[..160]).unwrap();
    shown += &format!("{:?}", object_format::BlobOpener::new(&header, ID, Some(&key)).unwrap());
    let shown = shown.to_lowercase();
    assert!(shown.contains("domainkey") && shown.contains("kek"));
    assert!(!shown.contains("171, 171") && !shown.contains("abab") && !shown.contains("0xab"), "{shown}");
}

#[test]
fn a_wrapped_key_opens_under_its_own_kek_id_and_epoch_only() {
    let wrapped = kek().wrap(&key());
    assert_eq!(wrapped.len(), WRAPPED_KEY_LEN);
    let (id, epoch) = (key().id(), key().epoch());
    assert!(same(&kek().unwrap(id, epoch, &wrapped).unwrap(), &key()));
    let refused =
        |kek: &Kek, id, epoch, wrapped: &[u8]| matches!(kek.unwrap(id, epoch, wrapped), Err(FormatError::Key(_)));
    assert!(refused(&Kek::new([0x43; 32]), id, epoch, &wrapped));
    assert!(refused(&kek(), KeyId([0; 16]), epoch, &wrapped));
    assert!(refused(&kek(), id, epoch + 1, &wrapped));
    for at in 0..wrapped.len() {
        let mut altered = wrapped.clone();
        altered[at] ^= 1;
        assert!(refused(&kek(), id, epoch, &altered), "byte {at}");
        assert!(refused(&kek(), id, epoch, &wrapped[..at]), "cut to {at}");
    }
    assert!(refused(&kek(), id, epoch, &[&wrapped[..], &[0; 8]].concat()));
}

#[test]
fn a_bound_key_opens_for_its_bucket_only_and_one_of_before_for_any() {
    let bound = kek().wrap_for(&key(), 7);
    assert_eq!(bound.len(), BOUND_KEY_LEN);
    let (id, epoch) = (key().id(), key().epoch());
    assert!(same(&kek().unwrap_for(id, epoch, 7, &bound).unwrap(), &key()));
    let refused = |outcome| matches!(outcome, Err::<DomainKey, _>(FormatError::Key(_)));
    assert!(refused(kek().unwrap_for(id, epoch, 8, &bound)));
    assert!(refused(kek().unwrap_for(KeyId([0; 16]), epoch, 7, &bound)));
    assert!(refused(kek().unwrap_for(id, epoch + 1, 7, &bound)));
    assert!(refused(kek().unwrap(id, epoch, &bound)), "whoever asks for no bucket takes none that is bound");
    for at in 0..bound.len() {
        let mut altered = bound.clone();
        altered[at] ^= 1;
        assert!(refused(kek().unwrap_for(id, epoch, 7, &altered)), "byte {at}");
        assert!(refused(kek().unwrap_for(id, epoch, 7, &bound[..at])), "cut to {at}");
    }
    let unbound = kek().wrap(&key());
    assert!(same(&kek().unwrap_for(id, epoch, 8, &unbound).unwrap(), &key()));
}

#[test]
fn roots_outlive_their_kek_under_another_one_and_open_no_wrap() {
    let (old, new) = (kek(), Kek::new([0x43; 32]));
    let roots = old.roots();
    let wrapped = new.wrap_roots(&roots);
    let opened = new.unwrap_roots(&wrapped).unwrap();
    assert_eq!((opened.of(), opened.named("k")), (old.fingerprint(), roots.named("k")));
    assert_ne!(opened.named("k"), opened.named("l"));
    assert_ne!(opened.named("k"), new.roots().named("k"));
    assert!(same(&opened.accounts_key(), &roots.accounts_key()));
    assert!(matches!(old.unwrap_roots(&wrapped), Err(FormatError::Key(_))));
    assert!(matches!(new.unwrap_roots(&new.wrap(&key())), Err(FormatError::Malformed(_) | FormatError::Key(_))));
    assert!(!format!("{roots:?}").contains("secret:"));
}

// Computed by another program (Python's hmac) from RFC 5869.
const NAMED_EMPTY: &str = "f32035592b272af3cbbe3d8ed29a7455432ea9039e9ee2fc9b7c59fba60a0756";
const NAMED_PAYROLL: &str = "ad4bd385b7240f4ec09d45a02622a92d5bf8d2bb627a1e773b6c2daf6172cfdc";
const ACCOUNTS_ID: &str = "20339de6bab18935cc4c18f1d1a265b5";

/// Objects that were encrypted and accounts that were sealed before roots had a name of their own.
#[test]
fn what_is_derived_from_a_kek_is_what_it_always_was() {
    let roots = kek().roots();
    assert_eq!(hex::encode(*roots.named("")), NAMED_EMPTY);
    assert_eq!(hex::encode(*roots.named("payroll")), NAMED_PAYROLL);
    assert_eq!(roots.accounts_key().id().to_string(), ACCOUNTS_ID);
}

#[test]
fn fingerprints_tell_keks_apart() {
    assert_eq!(kek().fingerprint(), kek().fingerprint());
    assert_ne!(kek().fingerprint(), Kek::new([0x43; 32]).fingerprint());
}

#[test]
fn tags_differ_by_key_purpose_and_message() {
    let tags = [
        key().keyed_tag("hooks", b"message"),
        key().keyed_tag("digest", b"message"),
        key().keyed_tag("hooks", b"messagf"),
        DomainKey::new(key().id(), key().epoch(), [0x12; 32]).keyed_tag("hooks", b"message"),
    ];
    for (at, tag) in tags.iter().enumerate() {
        assert!(!tags[..at].contains(tag));
    }
    assert_eq!(tags[0], key().keyed_tag("hooks", b"message"));
}

#[test]
fn a_keyset_blob_gives_back_every_key_and_bucket_and_hides_the_names() {
    let label = |number: u64| BucketLabel { id: number, name: format!("secret-bucket-{number}") };
    let keys: Vec<_> = (0..300_u16)
        .map(|number| {
            let mut id = [0; 16];
            id[..2].copy_from_slice(&number.to_be_bytes());
            DomainKey::new(KeyId(id), u32::from(number % 3), [number as u8; 32])
        })
        .collect();
    let entries = keys.iter().enumerate().map(|(at, key)| KeysetEntry::new(&kek(), key, &label(at as u64))).rev();
    let keyset = Keyset::new(entries);
    let mut bytes = Vec::new();
    let finished = keyset.write_blob(ID, &mut bytes).unwrap();
    assert_eq!(finished.stored_len, bytes.len() as u64);
    assert!(!bytes.windows(13).any(|window| window == b"secret-bucket"));
    let read = Keyset::read_blob(&bytes, ID).unwrap();
    assert_eq!(read, keyset);
    for (at, entry) in read.entries().iter().enumerate() {
        let (opened, bucket) = entry.open(&kek()).unwrap();
        assert!(same(&opened, &keys[at]));
        assert_eq!(bucket, label(at as u64));
        assert!(matches!(entry.open(&Kek::new([1; 32])), Err(FormatError::Key(_))));
    }
    assert!(Keyset::read_blob(&bytes, BlobId([0; 16])).is_err());
}

#[test]
fn a_keyset_of_more_than_a_segment_is_stored_whole() {
    let entry = KeysetEntry::new(&kek(), &key(), &BucketLabel { id: 1, name: "b".repeat(60_000) });
    let entries = (0..80_u8).map(|epoch| {
        let key = DomainKey::new(key().id(), u32::from(epoch), [epoch; 32]);
        KeysetEntry::new(&kek(), &key, &entry.open(&kek()).unwrap().1)
    });
    let keyset = Keyset::new(entries);
    let mut bytes = Vec::new();
    keyset.write_blob(ID, &mut bytes).unwrap();
    assert!(bytes.len() > object_format::SEGMENT_LEN);
    assert_eq!(Keyset::read_blob(&bytes, ID).unwrap(), keyset);
}

fn context(extents: &[(BlobId, u64, u64)]) -> RowContext<'static> {
    let extents_digest = extents_digest(extents.iter().copied());
    RowContext { bucket: 7, key: "some/key", version_id: [3; 16], part: None, extents_digest }
}

const EXTENTS: [(BlobId, u64, u64); 2] = [(BlobId([1; 16]), 0, 10), (BlobId([2; 16]), 5, 6)];

#[test]
fn a_row_opens_in_its_own_context_only() {
    let right = context(&EXTENTS);
    let sealed = row::seal(&key(), &right, [9; 24], b"facts");
    assert_eq!(sealed.len(), 5 + SEALED_ROW_OVERHEAD);
    assert_eq!(row::open(&key(), &right, &sealed).unwrap(), b"facts");
    let refused = |context: &RowContext<'_>| {
        let result = row::open(&key(), context, &sealed);
        assert_eq!(result, Err(FormatError::Integrity("a sealed row")), "{context:?}");
    };
    refused(&RowContext { bucket: 8, ..right });
    refused(&RowContext { key: "some/kez", ..right });
    refused(&RowContext { key: "some/key\0", ..right });
    refused(&RowContext { key: "", ..right });
    refused(&RowContext { version_id: [4; 16], ..right });
    refused(&RowContext { part: Some(0), ..right });
    refused(&RowContext { part: Some(1), ..right });
    refused(&context(&EXTENTS[..1]));
    refused(&context(&[]));
    refused(&context(&[EXTENTS[1], EXTENTS[0]]));
    refused(&context(&[EXTENTS[0], (EXTENTS[1].0, 5, 7)]));
    let other = DomainKey::new(KeyId([0; 16]), key().epoch(), [0x11; 32]);
    assert!(matches!(row::open(&other, &right, &sealed), Err(FormatError::Key(_))));
    let other = DomainKey::new(key().id(), key().epoch(), [0x12; 32]);
    assert!(matches!(row::open(&other, &right, &sealed), Err(FormatError::Integrity(_))));
}

proptest! {
    #[test]
    fn any_facts_come_back_and_any_change_is_noticed(
        facts in prop::collection::vec(any::<u8>(), 0..300),
        nonce: [u8; 24],
        at in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let sealed = row::seal(&key(), &context(&EXTENTS), nonce, &facts);
        prop_assert_eq!(row::open(&key(), &context(&EXTENTS), &sealed).unwrap(), facts);
        let mut altered = sealed.clone();
        altered[at.index(sealed.len())] ^= 1 << bit;
        prop_assert!(row::open(&key(), &context(&EXTENTS), &altered).is_err());
        prop_assert!(row::open(&key(), &context(&EXTENTS), &sealed[..at.index(sealed.len())]).is_err());
    }

    #[test]
    fn keyset_documents_are_read_as_written_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let framed = [b"DWKS\x01\0\0\0", &bytes[..]].concat();
        for bytes in [bytes, framed] {
            if let Ok(keyset) = Keyset::decode(&bytes) {
                prop_assert_eq!(keyset.encode().unwrap(), bytes);
            }
        }
    }
}

fn origin() -> KekOrigin {
    KekOrigin::new("vault-transit", "transit/deltaweir", b"vault:v1:c2VhbGVk".to_vec()).unwrap()
}

#[test]
fn a_wrap_under_a_kek_that_a_provider_keeps_brings_it_along_and_opens_under_it_alone() {
    let kept = Kek::kept_by([0x42; 32], origin());
    assert_eq!(kept.fingerprint(), kek().fingerprint(), "who keeps it changes nothing of it");
    let (id, epoch) = (key().id(), key().epoch());
    let wrapped = kept.wrap_for(&key(), 7);
    let (found, bare) = KekOrigin::of(&wrapped).unwrap();
    assert_eq!((found, bare.len()), (Some(origin()), BOUND_KEY_LEN));
    assert!(is_bound(&wrapped) && !is_bound(&kept.wrap(&key())));
    // Whoever has had it unwrapped opens it, with or without a word of who keeps it.
    for opens in [&kept, &kek()] {
        assert!(same(&opens.unwrap_for(id, epoch, 7, &wrapped).unwrap(), &key()));
        assert!(matches!(opens.unwrap_for(id, epoch, 8, &wrapped), Err(FormatError::Key(_))));
    }
    assert!(matches!(Kek::new([1; 32]).unwrap_for(id, epoch, 7, &wrapped), Err(FormatError::Key(_))));
    let label = BucketLabel { id: 7, name: "b".into() };
    let entry = KeysetEntry::new(&kept, &key(), &label);
    let keyset = Keyset::decode(&Keyset::new([entry]).encode().unwrap()).unwrap();
    assert_eq!(KekOrigin::of(keyset.entries()[0].wrapped()).unwrap().0, Some(origin()));
    assert_eq!(keyset.entries()[0].open(&kek()).unwrap().1, label);
}

#[test]
fn what_a_wrap_says_of_its_kek_is_refused_when_it_is_cut_or_longer_than_the_format_has_room_for() {
    let wrapped = Kek::kept_by([0x42; 32], origin()).wrap_for(&key(), 7);
    for at in 0..wrapped.len() {
        // Some lengths are those of a wrap, bare or not: it does not open.
        let is_one = [WRAPPED_KEY_LEN, BOUND_KEY_LEN, wrapped.len() + WRAPPED_KEY_LEN - BOUND_KEY_LEN].contains(&at);
        assert_eq!(KekOrigin::of(&wrapped[..at]).is_ok(), is_one, "cut to {at}");
        let opened = kek().unwrap_for(key().id(), key().epoch(), 7, &wrapped[..at]);
        assert!(matches!(opened, Err(FormatError::Key(_))), "cut to {at}");
    }
    assert!(KekOrigin::of(&[&wrapped[..], &[0; 8]].concat()).is_err());
    for (provider, key, sealed) in [("", "k", 1), ("p", "", 1), ("p", "k", 0), ("p", "k", (16 << 10) + 1)] {
        assert!(KekOrigin::new(provider, key, vec![0; sealed]).is_err());
    }
    assert!(KekOrigin::new(&"p".repeat(33), "k", vec![0]).is_err());
    assert!(KekOrigin::new("p", &"k".repeat(2049), vec![0]).is_err());
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_of_wraps_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = KekOrigin::of(&[b"DWPK\x01\0\0\0", &bytes[..]].concat());
        let _ = (KekOrigin::of(&bytes), is_bound(&bytes));
    }
}
