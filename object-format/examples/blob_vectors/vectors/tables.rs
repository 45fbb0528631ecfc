//! Table pages and rows that must be refused. Everything is sealed and checked right for what it
//! says.

use super::{
    Vector, bad, bad_sealed,
    good::{three_segments, zstd_run},
    kit::{Draft, Page, Row, SEGMENT, Tables, text},
};

fn with_row(edit: impl FnOnce(&mut Row)) -> Vec<u8> {
    let mut draft = Draft::raw(&text(100));
    edit(&mut draft.rows[0]);
    draft.blob()
}

/// A delta blob whose only segment is a "delta" with this footprint over a view of 1024 bytes.
fn with_footprint(footprint: Vec<(u64, u32)>) -> Vec<u8> {
    let mut draft = Draft::with_view();
    draft.rows[0].coding = 2;
    draft.rows[0].footprint = footprint;
    draft.blob()
}

fn with_tables(draft: Draft, edit: impl FnOnce(&mut Tables)) -> Vec<u8> {
    let mut tables = draft.tables();
    edit(&mut tables);
    tables.blob()
}

fn first_segment_page(edit: impl FnOnce(&mut Page)) -> Vec<u8> {
    with_tables(Draft::raw(&text(100)), |tables| edit(&mut tables.segment_pages[0]))
}

fn first_check_page(edit: impl FnOnce(&mut Page)) -> Vec<u8> {
    with_tables(Draft::raw(&text(100)), |tables| edit(&mut tables.check_pages[0]))
}

fn three(edit: impl FnOnce(&mut Draft)) -> Vec<u8> {
    let mut draft = three_segments().1;
    edit(&mut draft);
    draft.blob()
}

pub(crate) fn all() -> Vec<Vector> {
    let sealed = || Draft::raw(&text(100)).sealed();
    let row = |name, comment, edit: &dyn Fn(&mut Row)| bad(name, "malformed", comment, with_row(edit));
    let footprint =
        |name, comment, ranges: &[(u64, u32)]| bad(name, "malformed", comment, with_footprint(ranges.to_vec()));
    let mut all = vec![
        row("row_coding_5", "a view with gaps in a blob of kind whole", &|row| row.coding = 5),
        row("row_coding_6", "an unknown coding", &|row| row.coding = 6),
        row("row_reserved", "reserved bytes of a row", &|row| row.reserved = 1),
        row("row_plain_0", "a segment without content", &|row| row.plain_len = 0),
        row("row_raw_lengths_differ", "raw, and shorter than its content", &|row| row.plain_len = 101),
        row("row_delta_in_whole", "a delta in a blob of kind whole", &|row| row.coding = 2),
        row("row_footprint_on_raw", "a footprint without a delta", &|row| row.footprint = vec![(0, 1)]),
        bad(
            "row_stored_0",
            "too-large",
            "a segment without stored bytes",
            with_row(|row| {
                (row.coding, row.stored_len) = (1, 0);
            }),
        ),
        bad(
            "row_stored_over_4_mib",
            "too-large",
            "more stored bytes than a segment may have",
            with_row(|row| {
                (row.coding, row.stored_len) = (1, SEGMENT as u32 + 1);
            }),
        ),
        row("row_stored_past_payload", "a segment ends after the payload", &|row| {
            (row.coding, row.stored_len) = (1, 101)
        }),
        bad("row_stored_before_payload_end", "malformed", "a payload byte after the last segment, which decodes", {
            let frame = zstd_run(7, 100);
            let mut draft = Draft::raw(&[]);
            draft.rows.push(Row::new(&[7; 100], frame.len(), 1));
            draft.payload = [frame, vec![0]].concat();
            draft.blob()
        }),
        bad(
            "row_first_short",
            "malformed",
            "a short segment that is not the last",
            three(|draft| draft.rows[0].plain_len -= 1),
        ),
        bad(
            "row_last_long",
            "malformed",
            "a last segment of more than 4 MiB",
            three(|draft| {
                draft.rows[2].plain_len = SEGMENT as u32 + 1;
            }),
        ),
        bad("segments_overlap", "malformed", "the second page starts where the first segment starts", {
            with_tables(three_segments().1, |tables| tables.segment_pages[1].unit.bytes[16..24].fill(0))
        }),
        bad("segments_start_late", "malformed", "the first segment does not start at 0", {
            with_tables(three_segments().1, |tables| tables.segment_pages[0].unit.bytes[16] = 1)
        }),
        bad("segments_offset_overflows", "malformed", "a payload offset near 2^64", {
            with_tables(three_segments().1, |tables| tables.segment_pages[1].unit.bytes[16..24].fill(0xff))
        }),
        footprint("footprint_empty_range", "a footprint range of length 0", &[(3, 0)]),
        footprint("footprint_descending", "ranges out of order", &[(100, 5), (10, 5)]),
        footprint("footprint_overlapping", "ranges that share a byte", &[(0, 10), (9, 5)]),
        footprint("footprint_past_view", "a range that ends past the view", &[(1020, 5)]),
        footprint("footprint_overflows", "a range that ends past 2^64", &[(u64::MAX, 2)]),
        bad("footprint_17_ranges", "too-large", "one range too many", {
            with_footprint((0..17).map(|number| (number * 10, 1)).collect())
        }),
        bad("footprint_over_32_mib", "too-large", "more base bytes than a segment may need", {
            let mut draft = Draft::with_view();
            draft.view[24..32].copy_from_slice(&(1_u64 << 30).to_le_bytes());
            draft.rows[0].coding = 2;
            draft.rows[0].footprint = vec![(0, 20 << 20), (200 << 20, (12 << 20) + 1)];
            draft.blob()
        }),
        bad("page_bit", "integrity", "one bit of a segment page", {
            let mut blob = Draft::raw(&text(100)).blob();
            blob[160 + 100 + 30] ^= 1;
            blob
        }),
        bad_sealed("page_bit_sealed", "integrity", "one bit of a segment page", {
            let mut blob = sealed().blob();
            blob[160 + 116 + 30] ^= 1;
            blob
        }),
        bad_sealed(
            "page_type",
            "integrity",
            "a segment page sealed as a root",
            with_tables(sealed(), |tables| {
                tables.segment_pages[0].unit.kind = 4;
            }),
        ),
        bad_sealed(
            "page_index",
            "integrity",
            "the first page sealed as the second",
            with_tables(sealed(), |tables| {
                tables.segment_pages[0].unit.index = 1;
            }),
        ),
        bad(
            "page_first",
            "malformed",
            "a page about other segments",
            first_segment_page(|page| page.unit.bytes[0] = 1),
        ),
        bad(
            "page_count",
            "malformed",
            "page and directory differ in the count",
            first_segment_page(|page| page.unit.bytes[8] = 2),
        ),
        bad(
            "page_reserved",
            "malformed",
            "reserved bytes of a page",
            first_segment_page(|page| page.unit.bytes[12] = 1),
        ),
        bad(
            "page_cut",
            "malformed",
            "a page that ends within a row",
            first_segment_page(|page| {
                page.unit.bytes.pop();
            }),
        ),
        bad(
            "page_left_over",
            "malformed",
            "a page with a byte after its rows",
            first_segment_page(|page| page.unit.bytes.push(0)),
        ),
        bad(
            "page_over_64_kib",
            "too-large",
            "a page of 65,537 bytes",
            first_segment_page(|page| {
                page.unit.bytes.resize(65_537 - 16, 0);
            }),
        ),
        bad("page_without_rows", "malformed", "an empty page after the only one", {
            with_tables(Draft::raw(&text(100)), |tables| {
                let mut bytes = super::kit::page_start(1, 0);
                bytes.extend(100_u64.to_le_bytes());
                tables.segment_pages.push(Page { unit: super::kit::Unit { kind: 2, index: 1, bytes }, count: 0 });
            })
        }),
        bad("pages_missing", "malformed", "fewer rows than segments", {
            with_tables(three_segments().1, |tables| {
                tables.segment_pages.pop();
            })
        }),
        bad("pages_swapped", "integrity", "two pages in each other's place", {
            with_tables(three_segments().1, |tables| tables.segment_pages.swap(0, 1))
        }),
        bad("check_pages_missing", "malformed", "suite 0 without checks", {
            with_tables(Draft::raw(&text(100)), |tables| tables.check_pages.clear())
        }),
        bad_sealed(
            "check_pages_sealed",
            "malformed",
            "suite 1 with a page of checks",
            with_tables(sealed(), |tables| {
                let bytes = [super::kit::page_start(0, 1), vec![0; 16]].concat();
                tables.check_pages.push(Page { unit: super::kit::Unit { kind: 3, index: 0, bytes }, count: 1 });
            }),
        ),
        bad(
            "check_wrong",
            "integrity",
            "a check that is not its chunk's",
            first_check_page(|page| page.unit.bytes[20] ^= 1),
        ),
        bad(
            "checks_cut",
            "malformed",
            "a page of checks one byte short",
            first_check_page(|page| {
                page.unit.bytes.pop();
            }),
        ),
        bad(
            "checks_left_over",
            "malformed",
            "a check more than chunks",
            first_check_page(|page| page.unit.bytes.extend([0; 16])),
        ),
        bad("checks_first", "malformed", "checks of other chunks", first_check_page(|page| page.unit.bytes[0] = 1)),
    ];
    all.push(bad("footprint_without_view", "malformed", "a footprint where there is no view", {
        let mut draft = Draft::raw(&text(100));
        draft.header[8] = super::kit::DELTA;
        draft.rows[0].coding = 2;
        draft.rows[0].footprint = vec![(0, 1)];
        draft.blob()
    }));
    all
}
