//! Which parts of a long base a region of the target resembles.
//!
//! The base is sketched in tiles. A region's own sketches are looked up among them, and the tiles
//! that share most with it are its window; a base that fits a window as a whole needs none of this.

use delta_codec::{
    WINDOW_LEN_MAX,
    sketch::{RANKING_MAX, Sketcher},
};
use std::{collections::HashMap, ops::Range};

/// Bytes of one tile: half of it still shares about a third of its sketch with a tile that lies
/// across two.
pub(super) const TILE_LEN: usize = 4 << 20;
/// Tiles of one window.
const TILES_MAX: usize = WINDOW_LEN_MAX / TILE_LEN;
/// A value that more tiles have says nothing about where content came from.
const COMMON_TILES_MIN: usize = 64;

/// The sketches of a base, by value: a kilobyte or two for each tile.
#[derive(Default)]
pub(super) struct Tiles {
    base_len: u64,
    by_value: HashMap<u64, Vec<u32>>,
}

/// Values of one tile.
pub(super) fn sketch(bytes: &[u8]) -> Vec<u64> {
    let mut sketcher = Sketcher::new(None);
    sketcher.update(bytes);
    let sketch = sketcher.finish();
    debug_assert!(sketch.ranking().len() <= RANKING_MAX);
    sketch.ranking().to_vec()
}

impl Tiles {
    /// For a base of `base_len` bytes, nothing of it known yet.
    pub(super) fn new(base_len: u64) -> Self {
        Self { base_len, by_value: HashMap::new() }
    }

    /// Whether windows have to be chosen at all.
    pub(super) fn are_needed(&self) -> bool {
        self.base_len > WINDOW_LEN_MAX as u64
    }

    /// Notes the values of the tile that begins at `offset`.
    pub(super) fn add(&mut self, offset: u64, values: &[u64]) {
        let number = (offset / TILE_LEN as u64) as u32;
        for &value in values {
            let tiles = self.by_value.entry(value).or_default();
            if tiles.len() < COMMON_TILES_MIN {
                tiles.push(number);
            }
        }
    }

    /// The window for a target region at `offset` with these values: ascending, disjoint, at most
    /// [`WINDOW_LEN_MAX`] bytes together. Tiles that share most come first; what room is left goes
    /// to those around the region's own place.
    pub(super) fn window(&self, offset: u64, values: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
        if !self.are_needed() {
            return (self.base_len > 0).then_some(0..self.base_len).into_iter().collect();
        }
        let mut shared: HashMap<u32, u32> = HashMap::new();
        for tiles in values.filter_map(|value| self.by_value.get(&value)).filter(|tiles| tiles.len() < COMMON_TILES_MIN)
        {
            for &tile in tiles {
                *shared.entry(tile).or_default() += 1;
            }
        }
        let tiles = self.base_len.div_ceil(TILE_LEN as u64) as u32;
        let here = ((offset / TILE_LEN as u64) as u32).min(tiles - 1);
        let mut ranked: Vec<u32> = shared.keys().copied().collect();
        ranked.sort_unstable_by_key(|tile| (std::cmp::Reverse(shared[tile]), tile.abs_diff(here)));
        let mut nearest: Vec<u32> =
            (here.saturating_sub(TILES_MAX as u32)..tiles.min(here + TILES_MAX as u32)).collect();
        nearest.sort_by_key(|tile| tile.abs_diff(here));
        let mut chosen: Vec<u32> = Vec::with_capacity(TILES_MAX);
        for tile in ranked.into_iter().chain(nearest) {
            if chosen.len() == TILES_MAX {
                break;
            }
            if !chosen.contains(&tile) {
                chosen.push(tile);
            }
        }
        chosen.sort_unstable();
        self.ranges(&chosen)
    }

    fn ranges(&self, tiles: &[u32]) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for &tile in tiles {
            let start = u64::from(tile) * TILE_LEN as u64;
            let end = (start + TILE_LEN as u64).min(self.base_len);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TILE: u64 = TILE_LEN as u64;

    /// A base of 100 tiles; tile `n` has the values `10 n … 10 n + 9`.
    fn hundred() -> Tiles {
        let mut tiles = Tiles::new(100 * TILE - 5);
        for number in 0..100 {
            tiles.add(number * TILE, &(10 * number..10 * number + 10).collect::<Vec<_>>());
        }
        tiles
    }

    #[test]
    fn a_base_that_fits_a_window_is_the_window() {
        assert_eq!(Tiles::new(1000).window(0, [1, 2].into_iter()), std::iter::once(0..1000).collect::<Vec<_>>());
        assert_eq!(Tiles::new(0).window(0, [].into_iter()), []);
    }

    #[test]
    fn content_is_found_where_it_moved_to() {
        let window = hundred().window(0, 700..860);
        assert!(window.iter().any(|range| range.start <= 70 * TILE && 86 * TILE <= range.end), "{window:?}");
        assert_eq!(window.iter().map(|range| range.end - range.start).sum::<u64>(), WINDOW_LEN_MAX as u64);
        assert!(window.iter().any(|range| range.start == 0), "what room is left goes to the same place: {window:?}");
    }

    #[test]
    fn without_a_trace_the_window_lies_around_the_same_place() {
        let window = hundred().window(50 * TILE, [5000].into_iter());
        assert_eq!(window.len(), 1);
        assert!(window[0].start < 40 * TILE && window[0].end > 60 * TILE, "{window:?}");
        let last = hundred().window(500 * TILE, std::iter::empty());
        assert_eq!(last.last().map(|range| range.end), Some(100 * TILE - 5));
    }

    #[test]
    fn what_every_tile_has_decides_nothing() {
        let mut tiles = hundred();
        for number in 0..100 {
            tiles.add(number * TILE, &[77_777]);
        }
        assert_eq!(tiles.window(0, [77_777].into_iter()), hundred().window(0, [].into_iter()));
    }
}
