//! A footprint as the slices it lies in: what was read in several pieces is decoded without being
//! joined.

use std::ops::Range;

/// Slices that lie end to end in one address space.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    /// Each with the position of its first byte; none is empty.
    slices: Vec<(usize, &'a [u8])>,
    len: usize,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(slices: &[&'a [u8]]) -> Self {
        let mut len = 0;
        let placed = slices.iter().filter(|slice| !slice.is_empty()).map(|slice| {
            let start = len;
            len += slice.len();
            (start, *slice)
        });
        Self { slices: placed.collect(), len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes of a range that lies within, slice by slice.
    pub(crate) fn parts(&self, range: Range<usize>) -> impl Iterator<Item = &'a [u8]> + '_ {
        let first = self.slices.partition_point(|(start, slice)| start + slice.len() <= range.start);
        let within = self.slices[first..].iter().take_while(move |(start, _)| *start < range.end);
        within
            .map(move |(start, slice)| &slice[range.start.saturating_sub(*start)..(range.end - start).min(slice.len())])
    }

    /// A way to look up many runs.
    pub(crate) fn cursor(&self) -> Cursor<'_, 'a> {
        Cursor { pieces: self, current: self.slices.first().copied().unwrap_or((0, &[])) }
    }
}

/// Looks up runs. Most lie where the one before them lay.
#[derive(Debug)]
pub(crate) struct Cursor<'p, 'a> {
    pieces: &'p Pieces<'a>,
    current: (usize, &'a [u8]),
}

impl<'a> Cursor<'_, 'a> {
    /// The bytes from `at` to the end of their slice when that has `len` of them; `None` when the
    /// run crosses slices or leaves them.
    #[inline(always)]
    pub(crate) fn run(&mut self, at: usize, len: usize) -> Option<&'a [u8]> {
        self.here(at, len).or_else(|| self.seek(at, len))
    }

    #[inline(always)]
    fn here(&self, at: usize, len: usize) -> Option<&'a [u8]> {
        let (start, slice) = self.current;
        let skipped = at.wrapping_sub(start);
        (skipped <= slice.len() && len <= slice.len() - skipped).then(|| &slice[skipped..])
    }

    #[inline(never)]
    fn seek(&mut self, at: usize, len: usize) -> Option<&'a [u8]> {
        let next = self.pieces.slices.partition_point(|(start, _)| *start <= at);
        self.current = *self.pieces.slices.get(next.checked_sub(1)?)?;
        self.here(at, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slices_are_one_address_space(
            lengths in prop::collection::vec(0usize..20, 0..8),
            looks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..30),
        ) {
            let joined: Vec<u8> = (0..lengths.iter().sum::<usize>()).map(|at| at as u8).collect();
            let mut rest = joined.as_slice();
            let slices: Vec<&[u8]> = lengths.iter().map(|len| {
                let (slice, behind) = rest.split_at(*len);
                rest = behind;
                slice
            }).collect();
            let pieces = Pieces::new(&slices);
            prop_assert_eq!(pieces.len(), joined.len());
            let mut cursor = pieces.cursor();
            for (start, len) in looks {
                let start = start.index(joined.len() + 1);
                let end = start + len.index(joined.len() - start + 1);
                prop_assert_eq!(pieces.parts(start..end).flatten().copied().collect::<Vec<_>>(), &joined[start..end]);
                match cursor.run(start, end - start) {
                    Some(run) => prop_assert_eq!(&run[..end - start], &joined[start..end]),
                    None => prop_assert!(start == end || pieces.parts(start..end).count() > 1),
                }
            }
        }
    }
}
