//! Digests of a group, as a whole and extent by extent.

use crate::write::stage::BodyDigest;
use catalog::Extent;
use crypto::{Digest, Sha256};
use md5::Md5;
use std::collections::VecDeque;

/// The digests of a group's content.
pub(super) struct GroupDigests {
    /// SHA-256 of each extent.
    pub(super) extents: Vec<[u8; 32]>,
    /// MD5 of all of it: what an ETag is made of.
    pub(super) md5: [u8; 16],
}

/// Hashes a group's content as a whole and extent by extent.
pub(super) struct GroupDigest {
    whole: Sha256,
    md5: Md5,
    extent: Sha256,
    /// Bytes left of the extents that are not at their end.
    left: VecDeque<u64>,
    done: Vec<[u8; 32]>,
}

impl GroupDigest {
    pub(super) fn new(extents: &[Extent]) -> Self {
        let left = extents.iter().map(|extent| extent.len).collect();
        Self { whole: Sha256::new(), md5: Md5::new(), extent: Sha256::new(), left, done: Vec::new() }
    }
}

impl BodyDigest for GroupDigest {
    type Output = GroupDigests;

    fn update(&mut self, mut bytes: &[u8]) {
        self.whole.update(bytes);
        self.md5.update(bytes);
        while let Some(left) = self.left.front_mut() {
            let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
            let (here, rest) = bytes.split_at(taken);
            self.extent.update(here);
            *left -= taken as u64;
            if *left > 0 {
                break;
            }
            self.done.push(self.extent.finalize_reset().into());
            self.left.pop_front();
            bytes = rest;
        }
    }

    fn finish(self) -> (Self::Output, Option<[u8; 32]>) {
        (GroupDigests { extents: self.done, md5: self.md5.finalize().into() }, Some(self.whole.finalize().into()))
    }
}
