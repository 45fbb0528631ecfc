//! What a decision costs: without a policy, and with one of a usual size.

use access::{Caller, Document, Identity, MapContext, OfBucket, PublicAccessBlock, Question, ResourceOwner, decide};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

fn decisions(criterion: &mut Criterion) {
    let read_write = br#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"s3:*","Resource":"*"}}"#;
    let identity = Document::identity(read_write).expect("a policy");
    let of_bucket = br#"{"Version":"2012-10-17","Statement":[
        {"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::bucket","arn:aws:s3:::bucket/*"],
         "Condition":{"Bool":{"aws:SecureTransport":"false"}}},
        {"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::111111111111:user/ann"},"Action":["s3:GetObject","s3:ListBucket"],
         "Resource":["arn:aws:s3:::bucket","arn:aws:s3:::bucket/home/${aws:username}/*"],
         "Condition":{"IpAddress":{"aws:SourceIp":["10.0.0.0/8","192.168.0.0/16"]}}}]}"#;
    let policy = Document::of_bucket(of_bucket, "bucket").expect("a policy");
    let caller = Caller {
        account: "1".repeat(12),
        canonical_id: "a".repeat(64),
        own_id: "a".repeat(64),
        user: Some("ann".into()),
        role: None,
    };
    let context =
        MapContext::from_iter([("aws:SecureTransport", "true"), ("aws:username", "ann"), ("aws:SourceIp", "10.1.2.3")]);
    for (name, policy) in [("unset", None), ("set", Some(&policy))] {
        let question = Question {
            caller: Some(&caller),
            identity: Identity { policy: Some(&identity), ..Identity::default() },
            action: "s3:GetObject",
            resource: "arn:aws:s3:::bucket/home/ann/a/key/of/some/length.tar.gz",
            context: &context,
            bucket: Some(OfBucket {
                owner: ResourceOwner { account: "111111111111", id: "o" },
                policy,
                acl: None,
                acls_count: true,
                block: PublicAccessBlock::default(),
            }),
            object: None,
        };
        criterion.bench_function(&format!("decide/policy {name}"), |bench| bench.iter(|| decide(black_box(&question))));
    }
}

criterion_group!(benches, decisions);
criterion_main!(benches);
