//! Which base is chosen, and what choosing costs.

use super::*;
use serde_json::json;

impl Deployment {
    /// Puts, and waits until the next object can find this one by its content.
    pub(crate) async fn put_and_settle(&self, bucket: &BucketHandle, key: &str, content: &[u8]) -> PublishedVersion {
        let published = self.put(bucket, key, content).await;
        assert!(self.engine.jobs.settle(Duration::from_secs(60)).await.expect("settled"));
        published
    }

    fn chosen(&self, source: &str) -> u64 {
        self.metrics.base_choices_total.with_label_values(&[source]).get()
    }
}

/// Bytes that nothing shrinks.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(len)
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_object_in_another_prefix_finds_its_base_by_content() {
    let deployment = Deployment::start(512 << 20).await;
    for (round, name) in ["delta", "sealed"].into_iter().enumerate() {
        let bucket = deployment.bucket(name).await;
        let v1 = content(9 * MIB + 77, 41);
        let v2 = edited(&v1, 42);
        deployment.put_and_settle(&bucket, "builds/linux/app.tar", &v1).await;
        let published = deployment.put(&bucket, "archive/2026/nothing-alike.bin", &v2).await;
        assert_eq!(published.storage.form, Form::Delta, "{name}: {:?}", published.storage);
        assert_eq!(published.storage.bases, ["builds/linux/app.tar"]);
        assert!(published.storage.stored_bytes < v2.len() as u64 / 20, "{:?}", published.storage);
        assert!(deployment.get(&bucket, "archive/2026/nothing-alike.bin", 0..v2.len()).await == v2);
        assert_eq!(deployment.chosen("hooks"), round as u64 + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_segment_of_a_base_is_decoded_once_into_its_place_in_the_window() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let decoded = || deployment.metrics.decode_seconds.with_label_values(&["zstd"]).get_sample_count();
    let v1 = content(13 * MIB + 77, 71);
    deployment.put_and_settle(&bucket, "app-1.0", &v1).await;
    let before = decoded();
    for (successor, seed) in [("app-1.1", 72), ("app-1.2", 73)] {
        let next = edited(&v1, seed);
        let published = deployment.put(&bucket, successor, &next).await;
        assert_eq!(published.storage.form, Form::Delta, "{:?}", published.storage);
        assert_eq!(decoded() - before, 4, "{successor}: one window for both");
        assert_eq!(deployment.engine.foundation.bases.windows().places(), 1);
    }
    let last = edited(&v1, 73);
    assert!(deployment.get(&bucket, "app-1.2", 0..last.len()).await == last);
}

/// A dump that grows, or shrinks, in many places: by its end its content has moved by more than a
/// window reaches.
#[tokio::test(flavor = "multi_thread")]
async fn content_that_moves_further_with_each_change_is_followed_through_a_long_object() {
    let deployment = Deployment::start(128 << 20).await;
    let windows = deployment.engine.foundation.bases.windows();
    let (step, changes) = (MIB / 2, 12);
    assert!(windows.whole_len_max() < 48 << 20 && windows.len_max() / 4 < (changes * step) as u64 / 2);
    let v1 = noise(changes * 4 * MIB, 81);
    let grown = |seed: u64| -> Vec<u8> {
        let pieces = v1.chunks(4 * MIB).zip(seed..);
        pieces.flat_map(|(piece, seed)| [noise(step, seed), piece.to_vec()].concat()).collect()
    };
    let shrunk = v1.chunks(4 * MIB).flat_map(|piece| piece[..piece.len() - step].to_vec()).collect();
    for name in ["delta", "sealed"] {
        let bucket = deployment.bucket(name).await;
        deployment.put_and_settle(&bucket, "dump/1", &v1).await;
        // The second one is found through the first, which is a delta itself.
        for (key, next, new) in [("dump/2", grown(100), changes * step), ("dump/3", grown(200), changes * step)] {
            let stored = deployment.put(&bucket, key, &next).await.storage;
            assert!(stored.stored_bytes < (new + next.len() / 50) as u64, "{name} {key}: {stored:?}");
            assert!(deployment.get(&bucket, key, 0..next.len()).await == next, "{name} {key}");
        }
        let next: &Vec<u8> = &shrunk;
        let stored = deployment.put(&bucket, "dump/4", next).await.storage;
        assert!(stored.stored_bytes < next.len() as u64 / 50, "{name}: {stored:?}");
        assert!(deployment.get(&bucket, "dump/4", 0..next.len()).await == *next, "{name}");
    }
}

/// As in the image of a disk: nothing is known of a region that begins with zeros.
#[tokio::test(flavor = "multi_thread")]
async fn what_follows_zeros_is_found_in_the_base_of_what_stands_before_them() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let region_len = 64 * MIB;
    let v1 = [content(region_len - 2 * MIB, 91), vec![0; 8 * MIB], content(8 * MIB, 92)].concat();
    assert!(deployment.engine.foundation.bases.windows().whole_len_max() < v1.len() as u64);
    let mut v2 = v1.clone();
    v2[5 * MIB..5 * MIB + 4096].copy_from_slice(&noise(4096, 93));
    v2[region_len + 9 * MIB..][..4096].copy_from_slice(&noise(4096, 94));
    deployment.put_and_settle(&bucket, "disk/1", &v1).await;
    let stored = deployment.put(&bucket, "disk/2", &v2).await.storage;
    assert!(stored.stored_bytes < MIB as u64 / 2, "{stored:?}");
    assert!(deployment.get(&bucket, "disk/2", 0..v2.len()).await == v2);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_buckets_content_is_never_a_base() {
    let deployment = Deployment::start(512 << 20).await;
    let v1 = content(2 * MIB, 43);
    for name in ["delta", "other", "sealed"] {
        let bucket = deployment.bucket(name).await;
        let published = deployment.put_and_settle(&bucket, name, &edited(&v1, 44)).await;
        assert_eq!(published.storage.form, Form::Zstd, "{name}: {:?}", published.storage);
    }
    assert_eq!(deployment.chosen("hooks"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_base_is_never_chosen_and_its_hooks_die_with_it() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let v1 = content(3 * MIB, 45);
    deployment.put_and_settle(&bucket, "one/a", &v1).await;
    deployment.delete(&bucket, "one/a").await;
    let published = deployment.put_and_settle(&bucket, "two/b", &edited(&v1, 46)).await;
    assert_eq!(published.storage.form, Form::Zstd, "{:?}", published.storage);
    deployment.engine.collect(true).await.expect("collected");
    let published = deployment.put(&bucket, "three/c", &edited(&v1, 47)).await;
    assert_eq!((published.storage.form, published.storage.bases), (Form::Delta, vec!["two/b".to_owned()]));
    assert_eq!(deployment.engine.catalog().check().await.expect("checked"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn among_unrelated_content_nothing_is_fetched() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    for index in 0..4u64 {
        deployment.put_and_settle(&bucket, &format!("{index}/whole-{index}"), &content(2 * MIB, 51 + 2 * index)).await;
        deployment.put_and_settle(&bucket, &format!("{index}/noise-{index}"), &noise(2 * MIB, 60 + index)).await;
    }
    deployment.engine.drop_caches();
    let before = deployment.read_bytes();
    for (key, bytes) in [("5/x", content(5 * MIB, 70)), ("5/y", noise(5 * MIB, 71))] {
        let published = deployment.put_and_settle(&bucket, key, &bytes).await;
        assert_ne!(published.storage.form, Form::Delta);
    }
    assert_eq!(deployment.read_bytes(), before);
    // A name alone does not make random bytes fetch a base either: its manifest says that nothing
    // is alike.
    let published = deployment.put(&bucket, "5/y", &noise(5 * MIB, 72)).await;
    assert_eq!((published.storage.form, published.storage.reason.as_str()), (Form::Raw, "incompressible"));
    let read = deployment.read_bytes() - before;
    assert!(read > 0 && read < 17 << 10, "{read} bytes for a header, and a tail with tables and root");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_of_an_upload_chooses_by_its_own_content() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let (left, right) = (content(5 * MIB, 81), content(5 * MIB, 82));
    deployment.put_and_settle(&bucket, "a/left", &left).await;
    deployment.put_and_settle(&bucket, "b/right", &right).await;
    let key = "c/both";
    let upload =
        deployment.engine.uploads.create_upload(&bucket, key, "owner", VersionFacts::default()).await.expect("created");
    for (number, part) in [(1, edited(&right, 83)), (2, edited(&left, 84))] {
        let staged = deployment.stage(&bucket, Destination::Part { key: key.into(), upload, number }, &part).await;
        let facts = PartFacts { size: part.len() as u64, ..PartFacts::default() };
        deployment
            .engine
            .publisher
            .publish_part(&bucket, PartName { key, upload, number }, staged, facts)
            .await
            .expect("stored");
    }
    let parts = deployment.engine.uploads.parts(&bucket, key, upload, 0, 10).await.expect("parts");
    let bases: Vec<&str> = parts.iter().flat_map(|(_, facts)| &facts.storage.bases).map(String::as_str).collect();
    assert_eq!(bases, ["b/right", "a/left"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_is_made_from_two_objects_when_each_has_a_half() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let (left, right) = (content(MIB, 91), content(MIB, 92));
    deployment.put_and_settle(&bucket, "a/left", &left).await;
    deployment.put_and_settle(&bucket, "b/right", &right).await;
    let both = [edited(&left, 93), edited(&right, 94)].concat();
    let published = deployment.put(&bucket, "c/both", &both).await;
    let mut bases = published.storage.bases.clone();
    bases.sort();
    assert_eq!((published.storage.form, bases), (Form::Delta, vec!["a/left".to_owned(), "b/right".to_owned()]));
    assert!(published.storage.stored_bytes < both.len() as u64 / 20, "{:?}", published.storage);
    assert!(deployment.get(&bucket, "c/both", 0..both.len()).await == both);
}

#[tokio::test(flavor = "multi_thread")]
async fn regions_of_one_object_take_their_bases_from_different_objects() {
    let deployment = Deployment::start(1 << 30).await;
    let bucket = deployment.bucket("delta").await;
    let region = usize::try_from(crate::bases::similar::REGION_LEN).expect("fits");
    let (first, second) = (content(region, 101), content(6 * MIB, 102));
    deployment.put_and_settle(&bucket, "a/first", &first).await;
    deployment.put_and_settle(&bucket, "b/second", &second).await;
    // Both are needed from their beginnings on, and more than once: what is read of the one must
    // not be looked for in the other.
    let mut joined = first;
    for at in (1000..region).step_by(MIB) {
        joined[at] ^= 1;
    }
    joined.extend_from_slice(&second[..2 * MIB]);
    joined.extend_from_slice(&second[3 * MIB..]);
    let published = deployment.put(&bucket, "c/joined", &joined).await;
    assert_eq!(published.storage.form, Form::Delta);
    assert_eq!(published.storage.bases, ["a/first", "b/second"]);
    assert!(published.storage.stored_bytes < 100_000, "{:?}", published.storage);
    assert!(deployment.get(&bucket, "c/joined", 0..joined.len()).await == joined);
}

/// Such a base has a window for each region, and each window other parts of it.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_put_in_one_piece_differs_from_one_of_many_parts_that_no_window_holds() {
    // 128 MiB of budget make windows of 8 MiB and regions of 4 MiB.
    let deployment = Deployment::start(128 << 20).await;
    for name in ["delta", "sealed"] {
        let bucket = deployment.bucket(name).await;
        let v1 = content(43 * MIB, 121);
        deployment.put_in_parts(&bucket, "m/v1", &v1, 5 * MIB).await;
        let mut before = v1;
        for (key, seed) in [("m/v2", 122), ("m/v3", 123)] {
            let version = edited(&before, seed);
            let published = deployment.put(&bucket, key, &version).await;
            assert_eq!(published.storage.form, Form::Delta, "{:?}", published.storage);
            assert!(published.storage.stored_bytes < version.len() as u64 / 10, "{:?}", published.storage);
            assert!(deployment.get(&bucket, key, 0..version.len()).await == version, "{name}/{key}");
            let mid = version.len() / 2;
            assert!(deployment.get(&bucket, key, mid..mid + MIB).await == version[mid..mid + MIB], "{name}/{key}");
            before = version;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_tells_who_was_considered_and_why() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("sealed").await;
    let v1 = content(3 * MIB, 111);
    deployment.put_and_settle(&bucket, "x/app-1", &v1).await;
    deployment.put_and_settle(&bucket, "x/app-2", &content(3 * MIB, 112)).await;
    deployment.put_and_settle(&bucket, "x/app-3", &edited(&v1, 113)).await;
    let told = deployment.engine.reports.explain("sealed", "x/app-3", None).await.expect("explained").expect("exists");
    let choice = &told["blobs"][0]["choices"][0];
    assert_eq!((&choice["offset"], &choice["outcome"]), (&json!(0), &json!("tried")), "{told:#}");
    let candidates = choice["candidates"].as_array().expect("a list");
    assert_eq!(candidates[0]["key"], "x/app-1");
    assert_eq!((&candidates[0]["source"], &candidates[0]["chosen"]), (&json!("name"), &json!(true)));
    assert!(candidates[0]["overlap_permille"].as_u64().expect("sketched") > 800, "{told:#}");
    let other = candidates.iter().find(|candidate| candidate["key"] == "x/app-2").expect("considered");
    assert_eq!((&other["overlap_permille"], &other["chosen"]), (&json!(0), &json!(false)));
    let facts = deployment.engine.read.head(&bucket, "x/app-3").await.expect("head").expect("exists").facts;
    assert_eq!(facts.storage.bases, ["x/app-1"], "the row keeps the outcome, the manifest how it came about");
}

/// A veil that hides nothing: a base would be found if the facts did not say that it is none.
struct Clear;

impl Veil for Clear {
    fn apply(&self, _: u64, _: &mut [u8]) -> Result<(), EngineError> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_customers_key_encrypted_is_no_candidate_by_its_name_either() {
    let deployment = Deployment::start(512 << 20).await;
    for name in ["delta", "sealed"] {
        let bucket = deployment.bucket(name).await;
        let v1 = content(3 * MIB, 211);
        let opaque = bucket.veiled(Arc::new(Clear));
        let staged = deployment.stage(&opaque, Destination::Object { key: "x/app-1".into() }, &v1).await;
        let encryption = Some(ObjectEncryption { algorithm: "SSE-C".into(), ..ObjectEncryption::default() });
        let facts = VersionFacts { etag: "e".into(), encryption, ..VersionFacts::default() };
        deployment.engine.publisher.publish(&opaque, "x/app-1", staged, facts, Precondition::None).await.expect("put");
        for key in ["x/app-1", "x/app-2"] {
            let published = deployment.put(&bucket, key, &edited(&v1, 212)).await;
            assert_ne!(published.storage.form, Form::Delta, "{name}/{key}: {:?}", published.storage);
            deployment.delete(&bucket, key).await;
        }
    }
}

/// Code whose addresses moved: no 64 bytes on end are equal, so that its sketch tells nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_good_for_one_part_is_not_tried_again_for_the_next() {
    let deployment = Deployment::start(1 << 30).await;
    let bucket = deployment.bucket("delta").await;
    let v1 = content(25 * MIB, 131);
    deployment.put_in_parts(&bucket, "m/app-1", &v1, 5 * MIB).await;
    let trials = || deployment.metrics.base_trial_seconds.get_sample_count();
    let zstd = || deployment.metrics.encode_seconds.with_label_values(&["zstd"]).get_sample_count();
    let (trials_before, zstd_before) = (trials(), zstd());
    let mut v2 = v1;
    v2.iter_mut().step_by(48).for_each(|byte| *byte ^= 0x55);
    let published = deployment.put_in_parts(&bucket, "m/app-2", &v2, 5 * MIB).await;
    assert_eq!(published.storage.form, Form::Delta);
    assert!(published.storage.stored_bytes < v2.len() as u64 / 4, "{:?}", published.storage);
    assert_eq!(trials() - trials_before, 1, "by the part that came first");
    assert_eq!(zstd() - zstd_before, 0, "what zstd makes of such content its base has shown");
    assert!(deployment.get(&bucket, "m/app-2", 0..v2.len()).await == v2);
    // All at once, the others wait for the one that tries.
    let trials_before = trials();
    let upload = deployment
        .engine
        .uploads
        .create_upload(&bucket, "m/app-3", "owner", VersionFacts::default())
        .await
        .expect("created");
    let parts = (1..).zip(v2.chunks(5 * MIB)).map(|(number, part)| {
        let destination = Destination::Part { key: "m/app-3".to_owned(), upload, number };
        deployment.stage(&bucket, destination, part)
    });
    assert_eq!(futures::future::join_all(parts).await.len(), 5);
    assert_eq!(trials() - trials_before, 1);
}

/// Code whose addresses all moved. A run that is equal leads to its place in the base, and to what
/// stands around it; most pieces of the trial's sample have none.
#[tokio::test(flavor = "multi_thread")]
async fn where_a_samples_pieces_find_too_little_the_segment_is_tried() {
    let deployment = Deployment::start(1 << 30).await;
    let bucket = deployment.bucket("delta").await;
    let mut v1 = noise(4 * MIB, 161);
    for record in v1.as_chunks_mut::<8>().0 {
        // One of 64 instructions, and an address of three bytes.
        let instruction = u32::from(record[0] % 64).wrapping_mul(0x9e37_79b1);
        record[..4].copy_from_slice(&instruction.to_le_bytes());
        record[7] = 0;
    }
    let mut v2 = v1.clone();
    for (number, record) in v2.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let address = u32::from_le_bytes([record[4], record[5], record[6], 0]);
        let stays = number * 8 % (3 * MIB - MIB / 8 - MIB / 16) < 1 << 10;
        let moved = if stays { address } else { (address + 0x1_3572) & 0xff_ffff };
        record[4..].copy_from_slice(&moved.to_le_bytes());
    }
    deployment.put(&bucket, "m/code-1", &v1).await;
    let published = deployment.put(&bucket, "m/code-2", &v2).await;
    let told = deployment.engine.reports.explain("delta", "m/code-2", None).await.expect("explained").expect("exists");
    assert_eq!(published.storage.form, Form::Delta, "{told:#}");
    assert!(published.storage.stored_bytes < v2.len() as u64 / 8, "{:?}", published.storage);
    assert!(deployment.get(&bucket, "m/code-2", 0..v2.len()).await == v2);
}

/// The study in small (docs/benchmark/basestudy): objects of several families in one bucket, in an
/// order and under names that say nothing.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_families_in_one_bucket_every_object_finds_its_own() {
    const FAMILIES: u64 = 6;
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let mut versions: Vec<Vec<u8>> = (0..FAMILIES).map(|family| content(MIB, 201 + 2 * family)).collect();
    let (mut stored, mut whole) = (0, 0);
    for round in 0..4u64 {
        for step in 0..FAMILIES {
            let family = (step * 5 + round) % FAMILIES;
            let version = &mut versions[usize::try_from(family).expect("small")];
            *version = edited(version, 300 + round);
            let key = format!("{:08x}/data", (round * FAMILIES + step) * 0x9e37_79b1 % (1 << 32));
            let published = deployment.put_and_settle(&bucket, &key, version).await;
            stored += published.storage.stored_bytes;
            if round == 0 {
                whole += published.storage.stored_bytes;
            } else {
                assert_eq!(published.storage.form, Form::Delta, "{:?}", published.storage);
            }
        }
    }
    assert_eq!(deployment.chosen("hooks"), 3 * FAMILIES);
    assert!(stored < whole + whole / 10, "{stored} of {whole}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_part_finds_its_base_though_nobody_knows_yet_where_it_stands() {
    let deployment = Deployment::start(1 << 30).await;
    let bucket = deployment.bucket("delta").await;
    let v1 = content(26 * MIB, 91);
    // Of the third the parts have other numbers, so that only the content tells. The first of them
    // is new: a sixth of it all.
    let moved = [&content(5 * MIB, 94)[..], &edited(&v1, 93)].concat();
    for (version, (bytes, allowed_percent)) in [(v1.clone(), 100), (edited(&v1, 92), 2), (moved, 14)].iter().enumerate()
    {
        let key = &format!("m/x-{version}");
        let stored = deployment.put_in_parts(&bucket, key, bytes, 5 * MIB).await.storage.stored_bytes;
        assert!(stored < bytes.len() as u64 * allowed_percent / 100, "version {version}: {stored}");
        assert!(deployment.engine.jobs.settle(Duration::from_secs(60)).await.expect("settled"));
    }
}
