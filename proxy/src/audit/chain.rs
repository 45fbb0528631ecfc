//! The chain: HMAC-SHA-256 over a line and the hash of the line before it. Pure.

use crypto::{HmacSha256, KeyInit as _, Mac as _};
use serde::Serialize;
use serde_json::{Map, Value};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Bytes of the key.
pub(super) const KEY_LEN: usize = 32;
/// Bytes of most lines.
const LINE_LEN: usize = 512;
/// What stands before the first line.
pub(super) const BEGINNING: [u8; 32] = [0; 32];

/// The key of a log. Who lacks it cannot write a line that fits.
#[derive(Clone)]
pub struct AuditKey(Zeroizing<[u8; KEY_LEN]>);

impl std::fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuditKey(…)")
    }
}

impl AuditKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; KEY_LEN]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    fn mac(&self, purpose: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = HmacSha256::new_from_slice(&*self.0).expect("HMAC takes a key of any length");
        mac.update(purpose);
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }

    /// What is written in the place of a name.
    pub(super) fn digest_of_name(&self, name: &str) -> String {
        hex::encode(&self.mac(b"deltaweir audit name v1", &[name.as_bytes()])[..16])
    }

    /// The hash of a line without its own, behind the line with hash `before`.
    pub(super) fn link(&self, before: &[u8; 32], line: &str) -> [u8; 32] {
        self.mac(b"deltaweir audit line v1", &[before, line.as_bytes()])
    }

    /// What the head file says of the newest line.
    pub(super) fn head(&self, seq: u64, link: &[u8; 32]) -> String {
        let mac = self.mac(b"deltaweir audit head v1", &[&seq.to_le_bytes(), link]);
        format!("{seq} {} {}\n", hex::encode(link), hex::encode(mac))
    }

    /// The number and hash in a head file; `None` when it was not written with this key.
    pub(super) fn read_head(&self, text: &str) -> Option<(u64, [u8; 32])> {
        let mut words = text.split_whitespace();
        let seq = words.next()?.parse().ok()?;
        let link = hash(words.next()?)?;
        bool::from(self.head(seq, &link).as_bytes().ct_eq(text.as_bytes())).then_some((seq, link))
    }
}

/// Where a chain has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) seq: u64,
    pub(super) link: [u8; 32],
}

impl Position {
    pub(super) const START: Self = Self { seq: 0, link: BEGINNING };

    /// The next line, with its line feed, and where the chain is then.
    pub(super) fn next_line(&self, key: &AuditKey, at: &str, fields: &Map<String, Value>) -> (String, Self) {
        let seq = self.seq + 1;
        let mut line = format!("{{\"seq\":{seq},\"at\":\"{at}\"");
        line.reserve(LINE_LEN);
        for (name, value) in fields {
            line.push(',');
            push_json(&mut line, name);
            line.push(':');
            push_json(&mut line, value);
        }
        let link = key.link(&self.link, &line);
        line.push_str(",\"hash\":\"");
        line.push_str(&hex::encode(link));
        line.push_str("\"}\n");
        (line, Self { seq, link })
    }

    /// Takes one line, without its line feed.
    ///
    /// # Errors
    /// In words, why it is not the line that follows.
    pub(super) fn follow(&self, key: &AuditKey, line: &str) -> Result<(Self, Map<String, Value>), String> {
        let fields: Map<String, Value> = serde_json::from_str(line).map_err(|_| "it is no JSON object".to_owned())?;
        let seq = fields.get("seq").and_then(Value::as_u64).ok_or("it has no number")?;
        if seq != self.seq + 1 {
            return Err(format!("it has number {seq}, and {} is due", self.seq + 1));
        }
        let (text, rest) = line.rsplit_once(",\"hash\":\"").ok_or("it has no hash")?;
        let written = rest.strip_suffix("\"}").and_then(hash).ok_or("its hash is none")?;
        let link = key.link(&self.link, text);
        if !bool::from(link.ct_eq(&written)) {
            return Err("its hash does not fit it and the line before it".into());
        }
        Ok((Self { seq, link }, fields))
    }
}

fn push_json<T: Serialize + ?Sized>(line: &mut String, value: &T) {
    line.push_str(&serde_json::to_string(value).expect("text and JSON values can be said in JSON"));
}

fn hash(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok().map(|()| bytes)
}
