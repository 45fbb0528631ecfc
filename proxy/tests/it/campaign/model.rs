//! What a client may be told about one key, given what it was told before.

/// Some content, small enough to keep: its bytes are made again when they are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// Objects of one family are similar.
    pub(crate) family: u64,
    /// Which member.
    pub(crate) member: u64,
    pub(crate) len: usize,
}

impl Content {
    /// Its bytes: noise of the family that zstd shrinks a little, with the member's edits, which
    /// differ from another member's in every part.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut state = self.family.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut bytes: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as u8 & 0x3f
        })
        .take(self.len)
        .collect();
        for (index, byte) in bytes.iter_mut().step_by(2003).enumerate() {
            *byte = (self.member >> (8 * (index % 8))) as u8
                ^ (self.member.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        }
        bytes
    }
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A write that was acknowledged is not there any more.
    Lost,
    /// Pieces of two versions.
    Torn,
    /// A deletion that was acknowledged is undone.
    Resurrected,
    /// Bytes that nobody stored.
    Bytes,
    /// "There is no such key" for one that is there.
    Absent,
}

/// One key as its only writer knows it.
#[derive(Clone, Debug)]
pub(crate) struct KeyModel {
    /// What it may hold; more than one after a write whose outcome is unknown.
    possible: Vec<Option<Content>>,
    /// Everything that was ever written to it.
    history: Vec<Content>,
}

impl Default for KeyModel {
    fn default() -> Self {
        Self { possible: vec![None], history: Vec::new() }
    }
}

impl KeyModel {
    /// What it certainly holds; `None` while that is not known.
    pub(crate) fn certain(&self) -> Option<&Option<Content>> {
        match self.possible.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// A write (`None`: a deletion) was acknowledged.
    pub(crate) fn acknowledged(&mut self, content: Option<Content>) {
        self.history.extend(content.clone());
        self.possible = vec![content];
    }

    /// A write failed in a way that leaves open whether it was done.
    pub(crate) fn attempted(&mut self, content: Option<Content>) {
        self.history.extend(content.clone());
        if !self.possible.contains(&content) {
            self.possible.push(content);
        }
    }

    /// Whether `len` is the length of something it may hold.
    pub(crate) fn may_have_len(&self, len: usize) -> bool {
        self.possible.iter().flatten().any(|content| content.len == len)
    }

    /// Whether it may be absent, or present.
    pub(crate) fn may_be(&self, present: bool) -> bool {
        self.possible.iter().any(|content| content.is_some() == present)
    }

    /// The whole object was read: this settles what it holds.
    pub(crate) fn read(&mut self, body: &[u8]) -> Result<(), Wrong> {
        if let Some(found) = self.possible.iter().flatten().find(|content| content.bytes() == body).cloned() {
            self.possible = vec![Some(found)];
            return Ok(());
        }
        if self.history.iter().any(|content| content.bytes() == body) {
            return Err(if self.may_be(true) { Wrong::Lost } else { Wrong::Resurrected });
        }
        let half = body.len() / 2;
        let part_of = |part: &[u8], range: fn(&[u8], usize) -> Option<&[u8]>| {
            self.history.iter().any(|content| range(&content.bytes(), half) == Some(part))
        };
        let is_torn = !body.is_empty()
            && part_of(&body[..half], |bytes, half| bytes.get(..half))
            && part_of(&body[half..], |bytes, half| bytes.get(half..));
        Err(if is_torn { Wrong::Torn } else { Wrong::Bytes })
    }

    /// The key was said not to be there.
    pub(crate) fn absent(&mut self) -> Result<(), Wrong> {
        if self.may_be(false) {
            self.possible = vec![None];
            return Ok(());
        }
        Err(Wrong::Absent)
    }
}

#[test]
fn the_model_tells_every_kind_of_wrong_answer_from_a_right_one() {
    let member = |member| Content { family: 1, member, len: 10_000 };
    let mut key = KeyModel::default();
    assert_eq!(key.absent(), Ok(()));
    key.acknowledged(Some(member(1)));
    key.acknowledged(Some(member(2)));
    assert_eq!(key.read(&member(2).bytes()), Ok(()));
    assert_eq!(key.read(&member(1).bytes()), Err(Wrong::Lost));
    assert_eq!(key.absent(), Err(Wrong::Absent));
    let torn = [&member(1).bytes()[..5000], &member(2).bytes()[5000..]].concat();
    assert_eq!(key.read(&torn), Err(Wrong::Torn));
    let mut flipped = member(2).bytes();
    flipped[77] ^= 1;
    assert_eq!(key.read(&flipped), Err(Wrong::Bytes));
    key.attempted(Some(member(3)));
    assert_eq!(key.certain(), None);
    assert_eq!(key.clone().read(&member(2).bytes()), Ok(()));
    assert_eq!(key.read(&member(3).bytes()), Ok(()));
    assert_eq!(key.read(&member(2).bytes()), Err(Wrong::Lost), "seen new, it must not be old again");
    key.acknowledged(None);
    assert_eq!(key.read(&member(3).bytes()), Err(Wrong::Resurrected));
}
