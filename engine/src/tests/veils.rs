//! Content under a veil: encrypted by somebody else's key on its way in and out.

use super::*;

/// Stands for encryption: what it makes of a byte depends on the place alone.
struct Mask;

impl Veil for Mask {
    fn apply(&self, at: u64, bytes: &mut [u8]) -> Result<(), EngineError> {
        for (place, byte) in (at..).zip(bytes) {
            *byte ^= (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        }
        Ok(())
    }
}

fn masked(content: &[u8]) -> Vec<u8> {
    let mut masked = content.to_vec();
    Mask.apply(0, &mut masked).expect("masked");
    masked
}

impl Deployment {
    async fn get_unveiled(&self, bucket: &BucketHandle, key: &str, range: Range<usize>) -> Vec<u8> {
        let object = self.engine.read.open_object(bucket, key).await.expect("opened").expect("exists");
        let range = range.start as u64..range.end as u64;
        let pieces = self.engine.read.read_unveiled(&object, range, Some(Arc::new(Mask)));
        pieces.try_collect::<Vec<Bytes>>().await.expect("read").concat()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_stored_under_its_veil_and_read_from_any_place_without_it() {
    let deployment = Deployment::start(512 << 20).await;
    for name in ["delta", "sealed", "off"] {
        let bucket = deployment.bucket(name).await;
        let veiled = bucket.veiled(Arc::new(Mask));
        for len in [0, 1, 700, 60_000, 3 * MIB + 5, 2 * SEGMENT_LEN + 33] {
            let body = content(len, 7);
            let key = &format!("k{len}");
            deployment.put(&veiled, key, &body).await;
            assert_eq!(deployment.get(&bucket, key, 0..len).await, masked(&body), "{name} stores {len}");
            let border = SEGMENT_LEN.min(len);
            for range in [0..len, len / 3..len, border.saturating_sub(9)..(border + 9).min(len), len / 2..len / 2] {
                assert_eq!(deployment.get_unveiled(&bucket, key, range.clone()).await, body[range], "{name} of {len}");
            }
        }
        deployment.put_in_parts(&veiled, "parts", &content(11 * MIB, 8), 5 * MIB).await;
        let masked: Vec<u8> = content(11 * MIB, 8).chunks(5 * MIB).flat_map(masked).collect();
        assert_eq!(deployment.get(&bucket, "parts", 0..11 * MIB).await, masked, "each part begins anew");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_tried_on_what_is_under_a_veil_and_no_digest_of_it_is_kept() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let veiled = bucket.veiled(Arc::new(Mask));
    let body = vec![7; 5 * MIB];
    let encoded = || deployment.metrics.encode_seconds.with_label_values(&["zstd"]).get_sample_count();
    let published = [deployment.put(&veiled, "a", &body).await, deployment.put(&veiled, "b", &body).await];
    assert_eq!(encoded(), 0, "it is not compressed");
    assert_eq!(deployment.metrics.base_choices_total.with_label_values(&["content"]).get(), 0);
    for (key, published) in ["a", "b"].into_iter().zip(published) {
        assert_eq!(published.storage.form, Form::Raw, "{key}: no duplicate, no delta");
        let object = deployment.engine.read.open_object(&bucket, key).await.expect("opened").expect("exists");
        assert!(object.content.blobs.iter().all(|blob| blob.digest.is_none()), "of the plain text least of all");
    }
    assert_eq!(deployment.engine.catalog().check().await.expect("checked"), Vec::<String>::new());
}
