//! Stored units: every vector through the reader.

use deflate_view::{Base, BasePart, Malformed, Opening, Run, ScanLimits, Scanner, StoredUnit, decode_unit, open};

use crate::kit::{OwnedBase, Vector, held_against_vectors};

/// A number of delta-v1.
fn number(rest: &mut &[u8]) -> u32 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, behind) = rest.split_first().expect("a number");
        *rest = behind;
        value |= u32::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            break;
        }
    }
    value
}

/// The content of a stream that is stored.
fn stored<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let head = number(rest);
    assert_eq!(head & 7, 0, "a stored stream");
    let (content, behind) = rest.split_at((head >> 3) as usize);
    *rest = behind;
    content
}

/// The text and its runs, of a delta as the vectors have them: form 1, nothing compressed, no sub
/// runs.
pub(crate) fn apply(delta: &[u8], footprint: &[u8], text_len: usize) -> (Vec<u8>, Vec<Run>) {
    let (form, mut rest) = delta.split_first().expect("a form");
    assert_eq!(*form, 1);
    let copies = number(&mut rest);
    let [mut gaps, mut lens, mut diagonals, sub, mut literals] = [(); 5].map(|()| stored(&mut rest));
    assert!(sub.is_empty() && rest.is_empty());
    let (mut text, mut runs, mut diagonal) = (Vec::new(), Vec::new(), 0i64);
    for _ in 0..copies {
        let (gap, len, code) = (number(&mut gaps), number(&mut lens), number(&mut diagonals));
        let zigzag = i64::from(code) - 1;
        diagonal += if zigzag % 2 == 0 { zigzag / 2 } else { -(zigzag + 1) / 2 };
        text.extend_from_slice(&literals[..gap as usize]);
        literals = &literals[gap as usize..];
        let base = (text.len() as i64 + diagonal) as u32;
        runs.push(Run { at: text.len() as u32, len, base, is_equal: true });
        text.extend_from_slice(&footprint[base as usize..(base + len) as usize]);
    }
    text.extend_from_slice(literals);
    assert_eq!(text.len(), text_len);
    (text, runs)
}

/// The parts of a base, put together.
fn open_parts(object: &[u8], parts: &[BasePart]) -> Result<(Vec<u8>, OwnedBase), Malformed> {
    let index = Scanner::index(object, ScanLimits::default());
    let (mut bytes, mut base) = (Vec::new(), OwnedBase::default());
    for part in parts {
        match *part {
            BasePart::Object { at, len } => bytes.extend_from_slice(&object[at as usize..at as usize + len as usize]),
            BasePart::Plain { stream_at, plain_at, len } => {
                let stream = index.streams.iter().find(|stream| stream.start == stream_at).expect("a stream");
                let whole = &object[stream.start as usize..stream.end as usize];
                let opened = open(stream, plain_at..plain_at + u64::from(len), whole).expect("a stream");
                let start = bytes.len() as u32;
                opened.append_to(0..len as usize, &mut bytes, &mut base.matches);
                base.opened.push(start..bytes.len() as u32);
            }
            BasePart::Nested { stream_at, nested_at, nested_len, plain_at, len } => {
                let outer = index.streams.iter().find(|stream| stream.start == stream_at).expect("a stream");
                let whole = &object[outer.start as usize..outer.end as usize];
                let own = open(outer, nested_at..nested_at + u64::from(nested_len), whole)?.plain;
                let plain_len = plain_at as u32 + len;
                let from_start = Opening {
                    stream_at: 0,
                    plain_at: 0,
                    plain_len,
                    block_bit: 0,
                    step_bits: 0,
                    len: nested_len,
                    gaps: None,
                };
                let opened = from_start.open(&[], &own)?;
                let start = bytes.len() as u32;
                opened.append_to(plain_at as usize..plain_len as usize, &mut bytes, &mut base.matches);
                base.opened.push(start..bytes.len() as u32);
            }
        }
    }
    Ok((bytes, base))
}

fn decode(vector: &Vector, object: &[u8]) -> Result<Vec<u8>, Malformed> {
    let unit = StoredUnit::read(&vector.bytes)?;
    let (footprint, base) = open_parts(object, &unit.parts)?;
    let (text, runs) = apply(unit.delta, &footprint, unit.text_len);
    let base = Base { matches: &base.matches, opened: &base.opened };
    decode_unit(&unit, &text, &runs, base)
}

#[test]
fn every_unit_gives_its_object_or_the_refusal_that_is_expected() {
    let (good, bad) = held_against_vectors("unit", decode);
    assert!(good >= 20 && bad > good, "{good} good, {bad} bad");
}
