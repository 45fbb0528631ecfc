//! Blobs with byte planes (coding 4), and what a decoder must refuse inside of one.

use super::{
    Vector, bad,
    good::zstd_run,
    kit::{Draft, Row, text},
    plain_blob, sealed_blob,
};

/// The stored bytes of a segment, by the document: a header, the planes as they are to be stored,
/// and what is around them.
struct Planes {
    header: [u8; 4],
    lens: Vec<u32>,
    planes: Vec<Vec<u8>>,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Planes {
    /// Words of `width` bytes after `head` bytes, each plane as it is.
    fn raw(plain: &[u8], width: usize, head: usize, rotated: bool) -> Self {
        let words = (plain.len() - head) / width;
        let (middle, tail) = plain[head..].split_at(words * width);
        let mut planes = vec![Vec::new(); width];
        for word in middle.chunks(width) {
            let mut carry = if rotated { word[width - 1] >> 7 } else { 0 };
            for (plane, &byte) in planes.iter_mut().zip(word) {
                plane.push(if rotated { byte << 1 | carry } else { byte });
                carry = if rotated { byte >> 7 } else { 0 };
            }
        }
        Self {
            header: [width as u8, rotated.into(), head as u8, 0],
            lens: vec![words as u32; width],
            planes,
            head: plain[..head].to_vec(),
            tail: tail.to_vec(),
        }
    }

    /// With other stored bytes for plane `place`.
    fn stored(mut self, place: usize, bytes: Vec<u8>) -> Self {
        self.lens[place] = bytes.len() as u32;
        self.planes[place] = bytes;
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let lens: Vec<_> = self.lens.iter().flat_map(|len| len.to_le_bytes()).collect();
        [&self.header[..], &lens, &self.head, &self.planes.concat(), &self.tail].concat()
    }
}

fn stored_as(plain: &[u8], stored: Vec<u8>) -> Draft {
    let mut draft = Draft::raw(&[]);
    draft.rows.push(Row::new(plain, stored.len(), 4));
    draft.payload = stored;
    draft
}

/// Words of four bytes whose last byte is always 0x3d.
fn floats(words: usize) -> Vec<u8> {
    text(4 * words).into_iter().enumerate().map(|(at, byte)| if at % 4 == 3 { 0x3d } else { byte }).collect()
}

pub(crate) fn all() -> Vec<Vector> {
    let mut all = good();
    all.extend(bad_headers());
    all.extend(bad_planes());
    all
}

fn good() -> Vec<Vector> {
    let mut all = Vec::new();
    let mut both = |names: [&'static str; 2], comment: &'static str, plain: &[u8], stored: &Planes| {
        all.push(plain_blob(names[0], comment, plain, stored_as(plain, stored.bytes()).blob()));
        all.push(sealed_blob(names[1], comment, plain, stored_as(plain, stored.bytes()).sealed().blob()));
    };
    let raw = |len: usize, width, head, rotated| Planes::raw(&text(len), width, head, rotated);
    both(
        ["planes_2", "planes_2_sealed"],
        "words of two bytes, both planes as they are",
        &text(200),
        &raw(200, 2, 0, false),
    );
    both(["planes_8", "planes_8_sealed"], "words of eight bytes", &text(200), &raw(200, 8, 0, false));
    both(
        ["planes_2_rotated", "planes_2_rotated_sealed"],
        "words of two bytes, rotated: the sign is the lowest bit",
        &text(200),
        &raw(200, 2, 0, true),
    );
    both(
        ["planes_8_rotated", "planes_8_rotated_sealed"],
        "words of eight bytes, rotated, after seven others and before three",
        &text(210),
        &raw(210, 8, 7, true),
    );
    let plain = floats(300);
    both(
        ["planes_frame", "planes_frame_sealed"],
        "words of four bytes; the last plane, all of one byte, is a frame",
        &plain,
        &Planes::raw(&plain, 4, 0, false).stored(3, zstd_run(0x3d, 300)),
    );
    let plain = [&text(3)[..], &floats(300), &text(2)].concat();
    both(
        ["planes_frame_rotated", "planes_frame_rotated_sealed"],
        "words of four bytes, rotated, after three others and before two; the last plane is a frame",
        &plain,
        &Planes::raw(&plain, 4, 3, true).stored(3, zstd_run(0x7a, 300)),
    );
    both(["planes_one_word", "planes_one_word_sealed"], "one word with bytes around it", &text(9), &raw(9, 4, 3, true));
    let zeros = vec![0; 4_194_304];
    let stored = Planes::raw(&zeros, 2, 0, false);
    let frame = || zstd_run(0, 2_097_152);
    both(
        ["planes_segment", "planes_segment_sealed"],
        "a full segment, both planes frames",
        &zeros,
        &stored.stored(0, frame()).stored(1, frame()),
    );
    all
}

/// Text in words of four bytes, refused for what `edit` makes of it.
fn refused(name: &'static str, comment: &'static str, edit: &dyn Fn(&mut Planes)) -> Vector {
    let mut stored = Planes::raw(&text(202), 4, 1, false);
    edit(&mut stored);
    bad(name, "malformed", comment, stored_as(&text(202), stored.bytes()).blob())
}

fn bad_headers() -> Vec<Vector> {
    vec![
        refused("planes_width_0", "words of no bytes", &|stored| stored.header[0] = 0),
        refused("planes_width_1", "words of one byte", &|stored| stored.header[0] = 1),
        refused("planes_width_3", "words of three bytes", &|stored| stored.header[0] = 3),
        refused("planes_width_16", "words of sixteen bytes", &|stored| stored.header[0] = 16),
        refused("planes_rotated_2", "a rotation that does not exist", &|stored| stored.header[1] = 2),
        refused("planes_head_of_a_word", "a whole word before the first", &|stored| {
            stored.header[2] = 4;
            stored.head = text(202)[..4].to_vec();
            stored.planes.iter_mut().for_each(|plane| plane.truncate(49));
            stored.lens = vec![49; 4];
            stored.tail = text(202)[200..].to_vec();
        }),
        refused("planes_zero", "a byte that must be zero", &|stored| stored.header[3] = 1),
        bad("planes_cut_header", "malformed", "three bytes", stored_as(&text(202), vec![4, 0, 0]).blob()),
        bad("planes_cut_table", "malformed", "half a table", stored_as(&text(202), vec![4, 0, 0, 0, 50, 0, 0]).blob()),
        bad("planes_without_a_word", "malformed", "seven bytes, too few for a word of eight", {
            let stored = [&[8, 0, 0, 0][..], &[0; 32], &text(7)].concat();
            stored_as(&text(7), stored).blob()
        }),
        bad("planes_head_past_the_end", "malformed", "a segment of two bytes, three of them before the first word", {
            let stored = [&[4, 0, 3, 0][..], &[0; 16], &text(3)].concat();
            stored_as(&text(2), stored).blob()
        }),
        refused("planes_len_0", "a plane of no stored bytes", &|stored| {
            stored.lens[1] = 0;
            stored.planes[1].clear();
        }),
        refused("planes_len_longer", "a plane of one byte more than there are words", &|stored| {
            stored.lens[1] += 1;
            stored.planes[1].push(0);
        }),
        refused("planes_len_2_32", "a plane of 2^32 - 1 bytes", &|stored| stored.lens[3] = u32::MAX),
        refused("planes_left_over", "a byte after the tail", &|stored| stored.tail.push(0)),
        refused("planes_tail_cut", "no tail, where a byte is left", &|stored| stored.tail.clear()),
        refused("planes_last_cut", "a last plane without its last byte", &|stored| {
            stored.planes[3].pop();
            stored.tail.clear();
        }),
    ]
}

/// Floats whose last plane is a frame, refused for that frame.
fn refused_frame(name: &'static str, expect: &'static str, comment: &'static str, frame: Vec<u8>) -> Vector {
    let plain = floats(300);
    bad(name, expect, comment, stored_as(&plain, Planes::raw(&plain, 4, 0, false).stored(3, frame).bytes()).blob())
}

fn bad_planes() -> Vec<Vector> {
    let malformed = |name, comment, frame| refused_frame(name, "malformed", comment, frame);
    vec![
        malformed("planes_frame_longer", "a frame of one byte more than there are words", zstd_run(0x3d, 301)),
        malformed("planes_frame_shorter", "a frame of one byte less", zstd_run(0x3d, 299)),
        malformed("planes_frame_bomb", "a frame of 2 GiB", zstd_run(0x3d, 1 << 31)[..200].to_vec()),
        malformed("planes_frame_cut", "half a frame", zstd_run(0x3d, 300)[..9].to_vec()),
        malformed("planes_frame_left_over", "a byte after the frame", [zstd_run(0x3d, 300), vec![0]].concat()),
        malformed("planes_no_frame", "a short plane that is no frame", b"not zstd".to_vec()),
        refused_frame("planes_other_content", "integrity", "a frame of other bytes", zstd_run(0x3e, 300)),
        bad("planes_rotated_back", "integrity", "words rotated that are said not to be", {
            let mut stored = Planes::raw(&text(200), 2, 0, true);
            stored.header[1] = 0;
            stored_as(&text(200), stored.bytes()).blob()
        }),
        bad("planes_with_footprint", "malformed", "a footprint, which planes do not have", {
            let mut draft = Draft::with_view();
            let stored = Planes::raw(&text(100), 2, 0, false).bytes();
            draft.rows[0] = Row { footprint: vec![(0, 1)], ..Row::new(&text(100), stored.len(), 4) };
            draft.payload = stored;
            draft.blob()
        }),
    ]
}
