//! One client of the campaign: the only writer of its keys, over its own connection, holding every
//! answer against its model.

use super::model::{Content, KeyModel, Wrong};
use crate::wire::{Reply, Wire};
use deltaweir::engine::Engine;
use std::{net::SocketAddr, sync::Arc};

/// Keys of one client.
const KEYS: u64 = 12;
/// Families of content of one client: objects of one family are bases for each other.
const FAMILIES: u64 = 4;
/// Shortest part but for the last.
const PART_LEN: usize = 5 << 20;

/// SplitMix64: what a client does next follows from its seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64, client: u64) -> Self {
        Self(seed ^ client.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// What one client counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Requests sent.
    pub(crate) ops: u64,
    /// Writes and deletions acknowledged.
    pub(crate) acked: u64,
    /// Requests answered 503, or cut.
    pub(crate) refused: u64,
    pub(crate) lost: u64,
    pub(crate) torn: u64,
    pub(crate) resurrected: u64,
    pub(crate) wrong: u64,
    pub(crate) absent: u64,
    /// Answers that no fault explains.
    pub(crate) unexpected: u64,
    /// The first of all those, in words.
    pub(crate) notes: Vec<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.acked += other.acked;
        self.refused += other.refused;
        self.lost += other.lost;
        self.torn += other.torn;
        self.resurrected += other.resurrected;
        self.wrong += other.wrong;
        self.absent += other.absent;
        self.unexpected += other.unexpected;
        self.notes.extend(other.notes.iter().take(10).cloned());
    }

    fn note(&mut self, wrong: Wrong, what: String) {
        *match wrong {
            Wrong::Lost => &mut self.lost,
            Wrong::Torn => &mut self.torn,
            Wrong::Resurrected => &mut self.resurrected,
            Wrong::Bytes => &mut self.wrong,
            Wrong::Absent => &mut self.absent,
        } += 1;
        self.remember(format!("{wrong:?}: {what}"));
    }

    fn remember(&mut self, note: String) {
        if self.notes.len() < 10 {
            self.notes.push(note);
        }
    }
}

/// A client with everything it knows.
pub(crate) struct Client {
    bucket: &'static str,
    number: u64,
    dice: Dice,
    keys: Vec<KeyModel>,
    /// Uploads that could not be aborted yet: key and id.
    uploads: Vec<(usize, String)>,
    wire: Option<Wire>,
    address: SocketAddr,
    pub(crate) tally: Tally,
}

impl Client {
    pub(crate) fn new(seed: u64, number: u64, bucket: &'static str, address: SocketAddr) -> Self {
        let keys = (0..KEYS).map(|_| KeyModel::default()).collect();
        let dice = Dice::new(seed, number);
        Self { bucket, number, dice, keys, uploads: Vec::new(), wire: None, address, tally: Tally::default() }
    }

    /// Sends at least `ops` requests, each followed by the next when it is answered.
    pub(crate) async fn run(mut self, address: SocketAddr, engine: Arc<Engine>, ops: u64) -> Self {
        self.address = address;
        let until = self.tally.ops + ops;
        while self.tally.ops < until {
            match self.dice.below(100) {
                0..28 => self.put().await,
                28..36 => self.put_under_condition().await,
                36..58 => self.get().await,
                58..68 => self.get_range().await,
                68..76 => self.head().await,
                76..84 => self.delete().await,
                84..89 => self.list().await,
                89..95 => self.copy().await,
                _ => self.upload().await,
            }
            if self.dice.below(4) == 0 {
                // Otherwise most reads would be answered from memory.
                engine.drop_caches();
            }
            if self.dice.below(300) == 0
                && let Err(error) = engine.collect(true).await
            {
                // A collection may fail under faults; whatever it deletes wrongly will be missed.
                self.tally.refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
        self.wire = None;
        self
    }

    /// Reads every key, removes every key and upload. To be called when the store is well again.
    pub(crate) async fn settle(mut self, address: SocketAddr) -> Self {
        self.address = address;
        for key in 0..self.keys.len() {
            let Some(reply) = self.send("GET", &self.target(key), &[], &[]).await else {
                self.tally.lost += 1;
                self.tally.remember(format!("{} is not answered when the store is well", self.target(key)));
                continue;
            };
            match (reply.status, self.keys[key].may_be(true)) {
                (404, true) if !self.keys[key].may_be(false) => {
                    self.tally.note(Wrong::Lost, format!("{} at the end", self.target(key)));
                }
                (200 | 404, _) => self.judge_read(key, &reply),
                (status, _) => {
                    self.tally.note(Wrong::Lost, format!("{} at the end: {status}", self.target(key)));
                }
            }
            self.expect("DELETE", &self.target(key), 204).await;
        }
        for (key, upload) in std::mem::take(&mut self.uploads) {
            self.expect("DELETE", &format!("{}?uploadId={upload}", self.target(key)), 204).await;
        }
        self.wire = None;
        self
    }

    fn target(&self, key: usize) -> String {
        format!("/{}/c{}/k{key}", self.bucket, self.number)
    }

    fn any_key(&mut self) -> usize {
        self.dice.below(KEYS) as usize
    }

    /// Content of a length that occurs: most of it small, some with several segments.
    fn any_content(&mut self) -> Content {
        let len = match self.dice.below(200) {
            0..50 => self.dice.below(4096),
            50..170 => 8192 + self.dice.below(40_000),
            170..199 => 64_000 + self.dice.below(200_000),
            _ => (4 << 20) + self.dice.below(300_000),
        };
        let family = self.number * FAMILIES + self.dice.below(FAMILIES);
        Content { family, member: self.dice.next(), len: len as usize }
    }

    /// One request; `None` when it was refused for now or cut, so that its outcome is open.
    async fn send(&mut self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<Reply> {
        self.tally.ops += 1;
        let wire = match &mut self.wire {
            Some(wire) => wire,
            none => none.insert(Wire::to(self.address).await),
        };
        let reply = wire.attempt(method, target, headers, body).await;
        if reply.as_ref().is_none_or(Reply::closes) {
            self.wire = None;
        }
        match reply {
            None => {
                self.tally.refused += 1;
                None
            }
            // S3's late errors, and the plain one.
            Some(reply)
                if reply.status == 503
                    || matches!(reply.code().as_deref(), Some("ServiceUnavailable" | "SlowDown")) =>
            {
                self.tally.refused += 1;
                None
            }
            Some(reply) if reply.status >= 500 || (reply.status == 200 && reply.code().is_some()) => {
                self.tally.unexpected += 1;
                self.tally.remember(format!("{method} {target}: {} {:?}", reply.status, reply.code()));
                None
            }
            reply => reply,
        }
    }

    fn unexpected(&mut self, what: &str, reply: &Reply) {
        self.tally.unexpected += 1;
        self.tally.remember(format!("{what}: {} {:?}", reply.status, reply.code()));
    }

    async fn expect(&mut self, method: &str, target: &str, status: u16) {
        match self.send(method, target, &[], &[]).await {
            Some(reply) if reply.status == status => {}
            Some(reply) => self.unexpected(&format!("{method} {target}"), &reply),
            None => {}
        }
    }

    /// Takes note of how a write ended.
    fn written(&mut self, key: usize, content: Option<Content>, reply: Option<Reply>) {
        match reply {
            Some(reply) if (200..300).contains(&reply.status) => {
                self.tally.acked += 1;
                self.keys[key].acknowledged(content);
            }
            Some(reply) => self.unexpected(&format!("a write of {}", self.target(key)), &reply),
            None => self.keys[key].attempted(content),
        }
    }

    async fn put(&mut self) {
        let (key, content) = (self.any_key(), self.any_content());
        let reply = self.send("PUT", &self.target(key), &[], &content.bytes()).await;
        self.written(key, Some(content), reply);
    }

    /// `If-None-Match: *`: goes through exactly when there is nothing.
    async fn put_under_condition(&mut self) {
        let (key, content) = (self.any_key(), self.any_content());
        let reply = self.send("PUT", &self.target(key), &[("if-none-match", "*")], &content.bytes()).await;
        match &reply {
            Some(reply) if reply.status == 412 => {
                if !self.keys[key].may_be(true) {
                    self.tally.note(Wrong::Resurrected, format!("412 for {}, which is not there", self.target(key)));
                }
            }
            Some(reply) if reply.status == 200 && !self.keys[key].may_be(false) => {
                self.tally.note(Wrong::Absent, format!("If-None-Match held for {}, which is there", self.target(key)));
            }
            _ => self.written(key, Some(content), reply),
        }
    }

    async fn get(&mut self) {
        let key = self.any_key();
        if let Some(reply) = self.send("GET", &self.target(key), &[], &[]).await {
            self.judge_read(key, &reply);
        }
    }

    fn judge_read(&mut self, key: usize, reply: &Reply) {
        let verdict = match reply.status {
            200 => self.keys[key].read(&reply.body),
            404 if reply.code().as_deref() == Some("NoSuchKey") => self.keys[key].absent(),
            _ => return self.unexpected(&format!("GET {}", self.target(key)), reply),
        };
        if let Err(wrong) = verdict {
            self.tally.note(wrong, format!("GET {}", self.target(key)));
        }
    }

    async fn get_range(&mut self) {
        let key = self.any_key();
        let Some(Some(content)) = self.keys[key].certain().cloned() else { return self.get().await };
        if content.len == 0 {
            return;
        }
        let (one, other) = (self.dice.below(content.len as u64) as usize, self.dice.below(content.len as u64) as usize);
        let (first, last) = (one.min(other), one.max(other));
        let range = format!("bytes={first}-{last}");
        match self.send("GET", &self.target(key), &[("range", &range)], &[]).await {
            Some(reply) if reply.status == 206 && reply.body == content.bytes()[first..=last] => {}
            Some(reply) if reply.status == 206 => {
                self.tally.note(Wrong::Bytes, format!("{range} of {}", self.target(key)))
            }
            Some(reply) if reply.status == 404 => {
                self.tally.note(Wrong::Absent, format!("{range} of {}", self.target(key)))
            }
            Some(reply) => self.unexpected(&format!("{range} of {}", self.target(key)), &reply),
            None => {}
        }
    }

    async fn head(&mut self) {
        let key = self.any_key();
        match self.send("HEAD", &self.target(key), &[], &[]).await {
            Some(reply) if reply.status == 200 => {
                let len = reply.header("content-length").and_then(|length| length.parse().ok());
                if !len.is_some_and(|len| self.keys[key].may_have_len(len)) {
                    let wrong = if self.keys[key].may_be(true) { Wrong::Lost } else { Wrong::Resurrected };
                    self.tally.note(wrong, format!("HEAD {} has {len:?} bytes", self.target(key)));
                }
            }
            Some(reply) if reply.status == 404 => {
                if let Err(wrong) = self.keys[key].absent() {
                    self.tally.note(wrong, format!("HEAD {}", self.target(key)));
                }
            }
            Some(reply) => self.unexpected(&format!("HEAD {}", self.target(key)), &reply),
            None => {}
        }
    }

    async fn delete(&mut self) {
        let key = self.any_key();
        let reply = self.send("DELETE", &self.target(key), &[], &[]).await;
        self.written(key, None, reply);
    }

    async fn list(&mut self) {
        let target = format!("/{}?list-type=2&prefix=c{}%2F", self.bucket, self.number);
        let Some(reply) = self.send("GET", &target, &[], &[]).await else { return };
        if reply.status != 200 {
            return self.unexpected("a listing", &reply);
        }
        let text = String::from_utf8(reply.body).unwrap();
        let listed: Vec<(&str, usize)> = text
            .split("<Contents>")
            .skip(1)
            .map(|entry| (element(entry, "Key"), element(entry, "Size").parse().unwrap()))
            .collect();
        for key in 0..self.keys.len() {
            let name = format!("c{}/k{key}", self.number);
            let found = listed.iter().find(|(listed, _)| *listed == name);
            let model = &self.keys[key];
            match found {
                None if !model.may_be(false) => self.tally.note(Wrong::Absent, format!("{name} is not listed")),
                Some(_) if !model.may_be(true) => self.tally.note(Wrong::Resurrected, format!("{name} is listed")),
                Some((_, len)) if !model.may_have_len(*len) => {
                    self.tally.note(Wrong::Lost, format!("{name} is listed with {len} bytes"));
                }
                _ => {}
            }
        }
    }

    async fn copy(&mut self) {
        let (from, to) = (self.any_key(), self.any_key());
        let Some(Some(content)) = self.keys[from].certain().cloned() else { return self.get().await };
        if from == to {
            return;
        }
        let source = self.target(from);
        let reply = self.send("PUT", &self.target(to), &[("x-amz-copy-source", &source)], &[]).await;
        if reply.as_ref().is_some_and(|reply| reply.status == 404) {
            return self.tally.note(Wrong::Absent, format!("the source of a copy, {source}"));
        }
        self.written(to, Some(content), reply);
    }

    /// A multipart upload: usually one part, now and then two.
    async fn upload(&mut self) {
        let (key, mut content) = (self.any_key(), self.any_content());
        content.len = content.len.max(1);
        if self.dice.below(20) == 0 {
            content.len += PART_LEN;
        }
        let bytes = content.bytes();
        let Some(created) = self.send("POST", &format!("{}?uploads", self.target(key)), &[], &[]).await else { return };
        let text = String::from_utf8(created.body).unwrap();
        let upload = element(&text, "UploadId").to_owned();
        let mut document = "<CompleteMultipartUpload>".to_owned();
        for (number, part) in (1..).zip(bytes.chunks(PART_LEN)) {
            let target = format!("{}?partNumber={number}&uploadId={upload}", self.target(key));
            let mut etag = None;
            for _ in 0..4 {
                let reply = self.send("PUT", &target, &[], part).await;
                etag = reply.and_then(|reply| reply.header("etag").map(str::to_owned));
                if etag.is_some() {
                    break;
                }
            }
            let Some(etag) = etag else { return self.abort(key, upload).await };
            document += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
        }
        document += "</CompleteMultipartUpload>";
        let target = format!("{}?uploadId={upload}", self.target(key));
        let reply = self.send("POST", &target, &[], document.as_bytes()).await;
        if reply.is_none() {
            self.uploads.push((key, upload));
        }
        self.written(key, Some(content), reply);
    }

    async fn abort(&mut self, key: usize, upload: String) {
        let target = format!("{}?uploadId={upload}", self.target(key));
        match self.send("DELETE", &target, &[], &[]).await {
            Some(reply) if reply.status == 204 => {}
            Some(reply) => self.unexpected(&format!("DELETE {target}"), &reply),
            None => self.uploads.push((key, upload)),
        }
    }
}

/// The text of the first `<name>` element.
fn element<'a>(xml: &'a str, name: &str) -> &'a str {
    let (_, rest) = xml.split_once(&format!("<{name}>")).unwrap();
    rest.split_once(&format!("</{name}>")).unwrap().0
}
