//! The targets of `proxy/fuzz/`, `engine/fuzz/` and `access/fuzz/` for a moment each: good inputs,
//! and what becomes of them when bytes are changed, cut and put together anew.

use access::{Document, MapContext};
use deltaweir::{admin::ROUTES, engine::fuzzing::document, fuzzing};

const CONFIGURATION: &str = include_str!("../../../docs/reference/prices.toml");
const BODIES: [&str; 8] = [
    r#"{"bytes": 10737418240, "objects": 100000}"#,
    r#"{"policies": ["readwrite", "one"], "groups": ["a"], "email": "a@example.com"}"#,
    r#"{"access_key_id": "AKABCDEFGHIJKLMNOPQR", "secret_access_key": "0123456789abcdef0123456789abcdef"}"#,
    r#"{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}"#,
    r#"{"canonical_id": "5f0c1e2d3b4a59687786950413223140ffeeddccbbaa99887766554433221100"}"#,
    r#"{"token": "0123456789abcdef0123456789abcdef"}"#,
    "{}",
    "null",
];
const QUERIES: [&str; 8] = [
    "",
    "bucket=b",
    "user=ann",
    "action=attach&user=ann",
    "action=add&user=ann&key=AK",
    "bucket=b&key=k&version=null&limit=3",
    "after=1&limit=2&since=2026-11-24T12:00:00Z",
    "user=ann&action=s3:GetObject&resource=arn:aws:s3:::b/k&context={}",
];
const FORM: &str = "--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nuploads/${filename}\r\n--b\r\n\
    Content-Disposition: form-data; name=\"policy\"\r\n\r\neyJ9\r\n--b\r\n\
    Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\ncontent\r\n--b--\r\n";

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides.max(1)
    }

    /// A seed with a few changes.
    fn changed(&mut self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..self.roll(4) {
            let (at, byte) = (self.roll(bytes.len() + 1), u8::try_from(self.roll(256)).unwrap());
            match self.roll(4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, byte),
                2 if at < bytes.len() => bytes[at] ^= byte | 1,
                _ => {
                    let piece = bytes[self.roll(at + 1)..at].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        bytes
    }
}

#[test]
fn configurations_and_forms_are_read_or_refused() {
    let mut dice = Dice(1);
    let defaults = "[server]\nlisten = \"127.0.0.1:9000\"\n[[users]]\nname = \"a\"\naccess_key_id = \"AK\"\n\
        secret_access_key = \"env:S\"\npolicy = \"admin\"\n[backends.x]\ntype = \"local\"\npath = \"p\"\n\
        [limits]\nmemory_bytes_max = \"1GiB\"\n[gc]\ngrace = \"15m\"\n";
    for round in 0..3_000 {
        let seed = if round % 2 == 0 { defaults } else { CONFIGURATION };
        fuzzing::configuration(&String::from_utf8_lossy(&dice.changed(seed.as_bytes())));
        let body = dice.changed(FORM.as_bytes());
        let (first, second) = body.split_at(dice.roll(body.len() + 1));
        fuzzing::post_body(&[first, second]);
    }
}

#[test]
fn documents_of_recovery_are_read_or_refused() {
    let mut dice = Dice(2);
    let number = |value: i64| value.to_le_bytes().to_vec();
    let journal = [
        number(7),
        number(8),
        number(1),
        vec![2, 0, 0, 0],
        b"{}".to_vec(),
        number(2),
        vec![2, 0, 0, 0],
        b"{}".to_vec(),
    ];
    let part = [
        vec![0; 16],
        vec![1],
        b"t".to_vec(),
        vec![2, 1],
        b"a".to_vec(),
        vec![1],
        b"b".to_vec(),
        vec![1, 0, 0, 0, 0, 1],
        number(9),
    ];
    let index =
        [vec![0; 8], number(3), number(5), number(19), number(1), number(1), number(1), number(64), vec![7; 32]];
    let lineage = [number(4), vec![0, 0]];
    let seeds = [lineage.concat(), journal.concat(), part.concat(), index.concat()];
    for round in 0..20_000_u32 {
        let kind = u8::try_from(round % 4).unwrap();
        document(kind, &dice.changed(&seeds[usize::from(kind)]));
    }
}

#[test]
fn policies_are_read_or_refused_and_decide_the_same_twice() {
    let mut dice = Dice(3);
    let context = MapContext::from_iter([("aws:username", "ann"), ("aws:SourceIp", "10.0.0.1")]);
    let mut read = 0;
    for _ in 0..5_000 {
        let Ok(policy) = Document::of_bucket(&dice.changed(POLICY.as_bytes()), "b") else { continue };
        read += 1;
        let decide = || policy.evaluate(None, "s3:GetObject", "arn:aws:s3:::b/k", &context);
        assert_eq!(decide(), decide());
    }
    assert!(read > 100, "{read}");
}

const POLICY: &str = r#"{"Version":"2012-10-17","Statement":[{"Sid":"a","Effect":"Allow","Principal":"*",
    "Action":["s3:GetObject","s3:Put*"],"Resource":"arn:aws:s3:::b/*",
    "Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"},"StringLike":{"aws:username":"a*"}}}]}"#;

#[test]
fn bodies_of_admin_calls_are_answered_or_refused() {
    let mut dice = Dice(4);
    let admin = fuzzing::Admin::new().unwrap();
    let mut good = 0;
    for round in 0..2_000 {
        let call = u8::try_from(round % ROUTES.len()).unwrap();
        let (body, query) = (BODIES[dice.roll(BODIES.len())], QUERIES[dice.roll(QUERIES.len())]);
        let (body, query) = (dice.changed(body.as_bytes()), dice.changed(query.as_bytes()));
        let query = String::from_utf8_lossy(&query).into_owned();
        good += usize::from(admin.call(call, "ann", &query, &body) == Some(200));
    }
    assert!(good > 50, "{good}");
}
