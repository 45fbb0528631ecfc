//! Writes the units among the vectors of docs/format/deflate-view-v1.md:
//! `cargo run -p deflate-view --example make_units -- tests/vectors/deflate-view`.
//!
//! Their objects and bases are the containers there. The delta of a text is written by a few lines
//! here (docs/format/delta-v1.md, form 1, streams stored), so that a reader of vectors needs no
//! codec.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use deflate_view::{
    AHEAD_LEN, Base, BasePart, CutLimits, Cutter, Index, Match, NestedParse, Opened, Opening, ReplayId, Run,
    ScanLimits, Scanner, SegmentForm, StoredSegment, StoredUnit, TEXT_LEN_MAX, Unit, decode_parse, encode_parse,
    encode_unit, open,
};
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_128;

/// Bytes that a copy has at least.
const COPY_LEN_MIN: usize = 24;

/// The base of a unit, whole.
#[derive(Default)]
struct Whole {
    parts: Vec<BasePart>,
    bytes: Vec<u8>,
    matches: Vec<Match>,
    opened: Vec<std::ops::Range<u32>>,
}

fn whole(object: &[u8], index: &Index) -> Whole {
    let mut whole = Whole::default();
    let mut at = 0;
    for stream in &index.streams {
        whole.parts.push(BasePart::Object { at, len: (stream.start - at) as u32 });
        whole.bytes.extend_from_slice(&object[at as usize..stream.start as usize]);
        let opened = open(stream, 0..stream.plain_len, &object[stream.start as usize..stream.end as usize]);
        let opened = opened.expect("a stream that was found");
        let mut plain_at = 0;
        for nested in &stream.nested {
            whole.add_plain(&opened, stream.start, plain_at..nested.start);
            let own = &opened.plain[nested.start as usize..nested.end as usize];
            let of_nested = open(nested, 0..nested.plain_len, own).expect("a nested stream that was found");
            whole.add(&of_nested, 0..nested.plain_len);
            whole.parts.push(BasePart::Nested {
                stream_at: stream.start,
                nested_at: nested.start,
                nested_len: (nested.end - nested.start) as u32,
                plain_at: 0,
                len: nested.plain_len as u32,
            });
            plain_at = nested.end;
        }
        whole.add_plain(&opened, stream.start, plain_at..stream.plain_len);
        at = stream.end;
    }
    whole
}

impl Whole {
    fn add(&mut self, opened: &Opened, plain: std::ops::Range<u64>) {
        let start = self.bytes.len() as u32;
        opened.append_to(plain.start as usize..plain.end as usize, &mut self.bytes, &mut self.matches);
        self.opened.push(start..self.bytes.len() as u32);
    }

    fn add_plain(&mut self, opened: &Opened, stream_at: u64, plain: std::ops::Range<u64>) {
        if !plain.is_empty() {
            let (plain_at, len) = (plain.start, (plain.end - plain.start) as u32);
            self.parts.push(BasePart::Plain { stream_at, plain_at, len });
            self.add(opened, plain);
        }
    }

    fn is_nested(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, BasePart::Nested { .. }))
    }
}

/// Copies of `base` in `text`: the first place with the same 16 bytes, as far as both are equal.
fn runs(base: &[u8], text: &[u8]) -> Vec<Run> {
    let mut places = HashMap::new();
    for (place, bytes) in base.windows(16).enumerate() {
        places.entry(bytes).or_insert(place);
    }
    let mut runs = Vec::new();
    let mut at = 0;
    while at + 16 <= text.len() {
        let place = places.get(&text[at..at + 16]).copied();
        let len = place.map_or(0, |place| text[at..].iter().zip(&base[place..]).take_while(|(a, b)| a == b).count());
        if len >= COPY_LEN_MIN {
            let base = place.unwrap_or_default() as u32;
            runs.push(Run { at: at as u32, len: len as u32, base, is_equal: true });
            at += len;
        } else {
            at += 1;
        }
    }
    runs
}

fn number(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn stored(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, (bytes.len() as u32) << 3);
    out.extend_from_slice(bytes);
}

fn delta(text: &[u8], runs: &[Run]) -> Vec<u8> {
    let (mut gaps, mut lens, mut diagonals, mut literals) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut at, mut diagonal) = (0, 0i32);
    for run in runs {
        literals.extend_from_slice(&text[at as usize..run.at as usize]);
        number(&mut gaps, run.at - at);
        number(&mut lens, run.len);
        let next = run.base as i32 - run.at as i32;
        let change = next - diagonal;
        let zigzag = ((change << 1) ^ (change >> 31)) as u32;
        number(&mut diagonals, if change == 0 { 1 } else { zigzag + 1 });
        diagonal = next;
        at = run.at + run.len;
    }
    literals.extend_from_slice(&text[at as usize..]);
    let mut out = vec![1];
    number(&mut out, runs.len() as u32);
    for stream in [&gaps, &lens, &diagonals, &Vec::new(), &literals] {
        stored(&mut out, stream);
    }
    out
}

/// What a vector is made from.
struct Made {
    base: String,
    object: Vec<u8>,
    unit: Unit,
    whole: Whole,
    runs: Vec<Run>,
    delta: Vec<u8>,
    parse: Vec<u8>,
    nested: Option<Vec<u8>>,
}

impl Made {
    fn stored(&self) -> StoredUnit<'_> {
        StoredUnit {
            object_len: self.unit.len(),
            text_len: self.unit.text.len(),
            parts: self.whole.parts.clone(),
            delta: &self.delta,
            parse: &self.parse,
            gaps: self.unit.outermost().gaps().clone(),
            nested: self
                .nested
                .as_ref()
                .map(|parse| NestedParse { outer_len: self.unit.outermost().text.len(), parse }),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.stored().write(&mut bytes);
        bytes
    }

    fn own(&self) -> &[u8] {
        &self.object[self.unit.object.start as usize..self.unit.object.end as usize]
    }
}

struct Vectors {
    directory: PathBuf,
}

impl Vectors {
    fn container(&self, name: &str) -> io::Result<Vec<u8>> {
        let text = fs::read_to_string(self.directory.join(format!("{name}.vec")))?;
        let (_, body) = text.split_once("\n\n").ok_or_else(|| io::Error::other("a vector without a body"))?;
        hex::decode(body.split_whitespace().collect::<String>()).map_err(io::Error::other)
    }

    /// The units of `target` over `base`, its streams whole.
    fn made(&self, base: &str, target: &str, replay: u8, limits: CutLimits) -> io::Result<Vec<Made>> {
        let (base_object, object) = (self.container(base)?, self.container(target)?);
        let base_index = Scanner::index(&base_object, ScanLimits::default());
        let index = Scanner::index(&object, ScanLimits::default());
        let mut cutter = Cutter::new(index.streams.iter().collect(), object.len() as u64, limits);
        let mut all = Vec::new();
        loop {
            let at = cutter.position() as usize;
            let ahead = &object[at..object.len().min(at + AHEAD_LEN)];
            let Some(unit) = cutter.next(ahead).map_err(io::Error::other)? else { return Ok(all) };
            let whole = whole(&base_object, &base_index);
            let runs = runs(&whole.bytes, &unit.text);
            let base_of = Base { matches: &whole.matches, opened: &whole.opened };
            let replay = ReplayId::from_number(replay).unwrap_or_default();
            let parses = encode_unit(&unit, base_of, &runs, (replay, replay), whole.is_nested());
            let parses = parses.ok_or_else(|| io::Error::other("a unit that does not come back"))?;
            let (parse, nested) = (parses.parse.bytes, parses.nested.map(|nested| nested.bytes));
            let delta = delta(&unit.text, &runs);
            all.push(Made { base: base.to_owned(), object: object.clone(), unit, whole, runs, delta, parse, nested });
        }
    }

    fn write(&self, name: &str, about: &str, expect: &str, made: &Made, bytes: &[u8]) -> io::Result<()> {
        let header = format!("about: {about}\ntype: unit\nexpect: {expect}\nbase: {}", made.base);
        self.write_file(&format!("unit_{name}"), &header, bytes)
    }

    fn write_file(&self, name: &str, header: &str, bytes: &[u8]) -> io::Result<()> {
        let digits = hex::encode(bytes);
        let lines: Vec<&str> = (0..digits.len()).step_by(96).map(|at| &digits[at..digits.len().min(at + 96)]).collect();
        fs::write(self.directory.join(format!("{name}.vec")), format!("{header}\n\n{}\n", lines.join("\n")))
    }

    fn good(&self, name: &str, about: &str, made: &Made) -> io::Result<()> {
        self.write(name, about, &hex::encode(Sha256::digest(made.own())), made, &made.bytes())
    }

    fn bad(&self, name: &str, about: &str, made: &Made, bytes: &[u8]) -> io::Result<()> {
        self.write(name, about, "malformed", made, bytes)
    }
}

fn good(vectors: &Vectors) -> io::Result<()> {
    let whole = CutLimits::default();
    let small = CutLimits { text_len_max: 64 << 10, unit_len_max: 4 << 10 };
    for (name, base, target, replay, about) in [
        ("next_release", "pair_old", "pair_new", 6, "a release from the one before, its encoder replayed"),
        ("next_release_written_out", "pair_old", "pair_new", 0, "the same, wrong predictions written out"),
        ("next_release_other_encoder", "pair_old", "pair_new", 9, "the same, another encoder replayed"),
        ("other_level", "zlib_5", "zlib_8", 8, "the same text by another level"),
        ("greedy", "zlib_7", "zlib_3", 3, "an encoder that does not wait"),
        ("go", "go_4", "go_9", 15, "Go's encoder"),
        ("fixed", "zlib_5", "zlib_fixed", 5, "fixed codes"),
        ("huffman", "zlib_5", "zlib_huffman", 0, "no matches at all"),
        ("stored", "pair_old", "zlib_stored", 6, "stored blocks"),
        ("picture", "pair_old", "png", 9, "a PNG's stream"),
        ("members", "pair_old", "gzip_members", 6, "two members"),
        ("from_itself", "pair_new", "pair_new", 6, "the same object"),
        ("without_base", "empty", "zip_plain", 6, "nothing to copy from"),
        ("memory_9", "zlib_5", "zlib_memory_9", 6, "blocks of other lengths"),
    ] {
        let made = vectors.made(base, target, replay, whole)?;
        vectors.good(name, about, &made[0])?;
    }
    for (target, replay) in [("zlib_5", 5), ("zlib_1", 1), ("zlib_stored", 6), ("go_5", 11), ("zlib_fixed", 6)] {
        let base = if target == "zlib_1" { "zlib_4" } else { "zlib_7" };
        for (number, made) in vectors.made(base, target, replay, small)?.iter().enumerate().take(3) {
            vectors.good(&format!("part_{target}_{number}"), "a stream cut into units", made)?;
        }
    }
    Ok(())
}

fn bad(vectors: &Vectors) -> io::Result<()> {
    let all = vectors.made("pair_old", "pair_new", 0, CutLimits::default())?;
    let made = &all[0];
    let bytes = made.bytes();
    let written = |unit: StoredUnit<'_>| {
        let mut bytes = Vec::new();
        unit.write(&mut bytes);
        bytes
    };
    let object_len = made.unit.len();
    let head = |numbers: &[u8]| [&[1], numbers].concat();
    let other_form = [&[5], &bytes[1..]].concat();
    let longer = [made.parse.as_slice(), &[0]].concat();
    let unknown = [&[0xff - 16], &made.parse[1..]].concat();
    for (name, about, bytes) in [
        ("no_bytes", "nothing at all", vec![]),
        ("form_unknown", "form 5", other_form),
        ("cut_in_head", "the head ends early", bytes[..3].to_vec()),
        ("cut_in_table", "the table ends early", bytes[..9].to_vec()),
        ("cut_in_delta", "the delta ends early", bytes[..40].to_vec()),
        ("cut_in_parse", "the parse ends early", bytes[..bytes.len() - 3].to_vec()),
        ("no_parse", "no parse", bytes[..bytes.len() - made.parse.len()].to_vec()),
        ("parse_with_tail", "a byte behind the parse", written(StoredUnit { parse: &longer, ..made.stored() })),
        ("encoder_unknown", "an encoder that nobody knows", written(StoredUnit { parse: &unknown, ..made.stored() })),
        (
            "object_longer",
            "an object that is one byte longer",
            written(StoredUnit { object_len: object_len + 1, ..made.stored() }),
        ),
        (
            "object_shorter",
            "an object that is one byte shorter",
            written(StoredUnit { object_len: object_len - 1, ..made.stored() }),
        ),
        ("object_empty", "an object of no bytes", head(&[0, 1, 0, 0])),
        ("object_too_long", "an object above 4 MiB", head(&[0x81, 0x80, 0x80, 0x02, 1, 0, 0])),
        ("text_empty", "a text of no bytes", head(&[1, 0, 0, 0])),
        ("text_too_long", "a text above 4 MiB", head(&[1, 0x81, 0x80, 0x80, 0x02, 0, 0])),
        ("number_not_minimal", "a length that could be shorter", head(&[0x81, 0x00, 1, 0, 0])),
        ("number_too_long", "a number of ten bytes", head(&[0x80; 12])),
        ("part_kind_unknown", "a part of kind 3", head(&[1, 1, 1, 3, 1, 0])),
        ("part_empty", "a part of no bytes", head(&[1, 1, 1, 0, 0, 0])),
        ("part_too_long", "a part above 32 MiB", head(&[1, 1, 1, 0, 0x81, 0x80, 0x80, 0x10, 0])),
        ("part_offset_zero", "an offset of 0 that is written", head(&[1, 1, 1, 2, 0, 1, 0])),
        ("parts_too_many", "65,537 parts", head(&[1, 1, 0x81, 0x80, 0x04])),
        (
            "parts_together_too_long",
            "two parts of 32 MiB",
            head(&[1, 1, 2, 0, 0x80, 0x80, 0x80, 0x10, 0, 0x80, 0x80, 0x80, 0x10, 0]),
        ),
        ("delta_longer_than_unit", "a delta that is longer than the unit", head(&[1, 1, 0, 0x7f])),
    ] {
        vectors.bad(name, about, made, &bytes)?;
    }
    refusals(vectors, &all)
}

/// A segment of the units that an object is cut into.
struct Segment {
    base: String,
    object: Vec<u8>,
    units: Vec<(u32, [u8; 16], Vec<u8>)>,
    openings: Vec<Opening>,
    windows: Vec<u8>,
    form: SegmentForm,
}

impl Segment {
    fn of(vectors: &Vectors, made: &[Made]) -> io::Result<Self> {
        let index = Scanner::index(&vectors.container(&made[0].base)?, ScanLimits::default());
        let openings = || index.streams.iter().flat_map(Opening::all);
        let windows: Vec<u8> = openings().flat_map(|(_, window)| window.to_vec()).collect();
        let unit = |made: &Made| (made.unit.len() as u32, xxh3_128(made.own()).to_le_bytes(), made.bytes());
        Ok(Self {
            base: made[0].base.clone(),
            object: made[0].object.clone(),
            units: made.iter().map(unit).collect(),
            openings: openings().map(|(opening, _)| opening).collect(),
            windows: if windows.is_empty() { windows } else { frame(&windows)? },
            form: SegmentForm::Whole,
        })
    }

    fn bytes(&self) -> Vec<u8> {
        StoredSegment::write(&self.units, &self.openings, &self.windows, self.form)
    }
}

fn frame(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = vec![0; zstd::zstd_safe::compress_bound(plain.len())];
    let len = zstd::zstd_safe::compress(&mut out[..], plain, 3).map_err(|_| io::Error::other("zstd"))?;
    out.truncate(len);
    Ok(out)
}

impl Vectors {
    fn segment(&self, name: &str, about: &str, is_good: bool, of: &Segment, bytes: &[u8]) -> io::Result<()> {
        let expect = if is_good { hex::encode(Sha256::digest(&of.object)) } else { "malformed".to_owned() };
        let (base, len) = (&of.base, of.object.len());
        let coding = if of.form == SegmentForm::Gapped { "\ncoding: 5" } else { "" };
        let header =
            format!("about: {about}\ntype: segment\nexpect: {expect}\nbase: {base}\nplain-length: {len}{coding}");
        self.write_file(&format!("segment_{name}"), &header, bytes)
    }
}

/// A unit over the first bytes of a base whose stream has an access point behind them.
fn over_the_beginning_of_a_stream(vectors: &Vectors, base: &str) -> io::Result<Made> {
    const PLAIN_LEN: u32 = 2000;
    let mut made = vectors.made(base, "zlib_5", 5, CutLimits::default())?.swap_remove(0);
    let stream_at = Scanner::index(&vectors.container(base)?, ScanLimits::default()).streams[0].start;
    let Whole { parts, bytes, matches, opened } = &mut made.whole;
    parts.truncate(1);
    parts.push(BasePart::Plain { stream_at, plain_at: 0, len: PLAIN_LEN });
    bytes.truncate(stream_at as usize + PLAIN_LEN as usize);
    let end = bytes.len() as u32;
    matches.retain_mut(|found| {
        found.len = u32::from(found.len).min(end.saturating_sub(found.at)) as u16;
        found.len > 0
    });
    opened.clear();
    opened.push(stream_at as u32..end);
    made.runs = runs(&made.whole.bytes, &made.unit.text);
    let base = Base { matches: &made.whole.matches, opened: &made.whole.opened };
    made.parse = encode_parse(&made.unit, base, &made.runs, ReplayId::from_number(5).unwrap_or_default()).bytes;
    made.delta = delta(&made.unit.text, &made.runs);
    Ok(made)
}

fn segments(vectors: &Vectors) -> io::Result<()> {
    let small = CutLimits { text_len_max: 64 << 10, unit_len_max: 4 << 10 };
    let made = vectors.made("pair_old", "pair_new", 6, small)?;
    let good = || Segment::of(vectors, &made);
    vectors.segment("next_release", "several units over the release before", true, &good()?, &good()?.bytes())?;
    let pointed = [over_the_beginning_of_a_stream(vectors, "zlib_points")?];
    let with_point = || Segment::of(vectors, &pointed);
    vectors.segment("access_point", "an opening from an access point", true, &with_point()?, &with_point()?.bytes())?;
    let in_layer = vectors.made("nested_old", "nested_new", 6, small)?;
    let of_layer = || Segment::of(vectors, &in_layer);
    vectors.segment("nested", "streams in the plain text of a stream", true, &of_layer()?, &of_layer()?.bytes())?;
    let windows = with_point()?.windows;
    let refused = |name: &str, about: &str, from: Segment, edit: &dyn Fn(&mut Segment)| {
        let mut segment = from;
        edit(&mut segment);
        let bytes = segment.bytes();
        vectors.segment(name, about, false, &segment, &bytes)
    };
    let whole = good()?.bytes();
    vectors.segment("empty", "no bytes", false, &good()?, &[])?;
    vectors.segment("cut", "a segment cut short", false, &good()?, &whole[..whole.len() - 1])?;
    vectors.segment("tail", "a byte behind the units", false, &good()?, &[&whole[..], &[0]].concat())?;
    refused("no_units", "no units", good()?, &|segment| segment.units.clear())?;
    refused("unit_missing", "units that end early", good()?, &|segment| {
        segment.units.truncate(segment.units.len() - 1)
    })?;
    refused("unit_longer", "units past their segment", good()?, &|segment| segment.units[0].0 += 1)?;
    refused("unit_empty", "a unit of no bytes", good()?, &|segment| segment.units[0].0 = 0)?;
    refused("digest_wrong", "another digest than the unit's", good()?, &|segment| segment.units[1].1[3] ^= 1)?;
    refused("unopened", "plain text that nothing opens", good()?, &|segment| {
        segment.openings.truncate(segment.openings.len() - 1)
    })?;
    refused("nested_unopened", "a nested stream that nothing opens", of_layer()?, &|segment| {
        segment.openings[0].plain_len = 2000;
    })?;
    refused("opening_short", "a part longer than its opening", good()?, &|segment| segment.openings[0].plain_len -= 1)?;
    refused("opening_outside", "an opening past the base", good()?, &|segment| segment.openings[0].len += 1 << 20)?;
    refused("opening_empty", "an opening of no bytes", good()?, &|segment| segment.openings[0].plain_len = 0)?;
    refused("opening_huge", "an opening above 8 MiB", good()?, &|segment| {
        segment.openings[0].plain_len = (8 << 20) + 1
    })?;
    refused("opening_twice", "openings that overlap", good()?, &|segment| {
        segment.openings.insert(0, segment.openings[0].clone());
    })?;
    refused("windows_unneeded", "windows that nobody needs", good()?, &|segment| segment.windows = windows.clone())?;
    refused("windows_missing", "no windows", with_point()?, &|segment| segment.windows.clear())?;
    refused("windows_cut", "a frame cut short", with_point()?, &|segment| segment.windows.truncate(60))?;
    let longer = frame(&vec![7; 32_769])?;
    refused("windows_longer", "a byte too many", with_point()?, &|segment| segment.windows = longer.clone())
}

/// Units of form 2.
fn nested(vectors: &Vectors) -> io::Result<()> {
    let one = |base: &str, target: &str| {
        let made = vectors.made(base, target, 6, CutLimits::default())?;
        made.into_iter().next().ok_or_else(|| io::Error::other("no unit"))
    };
    vectors.good("nested", "a jar in a layer from the release before", &one("nested_old", "nested_new")?)?;
    vectors.good("nested_base", "nested streams in the base alone", &one("nested_old", "zip_plain")?)?;
    vectors.good("nested_target", "nested streams in the object alone", &one("pair_old", "nested_new")?)?;
    vectors.good("nested_twice", "a third level stays closed", &one("nested_new", "nested_twice")?)?;
    let made = one("nested_old", "nested_new")?;
    let good = made.nested.clone().unwrap_or_default();
    let outer_len = made.unit.outermost().text.len();
    let with = |outer_len: usize, parse: &[u8]| {
        let mut bytes = Vec::new();
        StoredUnit { nested: Some(NestedParse { outer_len, parse }), ..made.stored() }.write(&mut bytes);
        bytes
    };
    let mut of_form_1 = Vec::new();
    StoredUnit { nested: None, ..made.stored() }.write(&mut of_form_1);
    let with_part = |change: &dyn Fn(&mut u64, &mut u32, &mut u64, &mut u32)| {
        let mut stored = made.stored();
        for part in &mut stored.parts {
            if let BasePart::Nested { nested_at, nested_len, plain_at, len, .. } = part {
                change(nested_at, nested_len, plain_at, len);
            }
        }
        let mut bytes = Vec::new();
        stored.write(&mut bytes);
        bytes
    };
    for (name, about, bytes) in [
        ("nested_part_in_form_1", "a part of kind 3 in a unit of form 1", of_form_1),
        ("nested_outer_empty", "a text of no bytes between", with(0, &good)),
        ("nested_outer_longer", "a byte of text too many between", with(outer_len + 1, &good)),
        ("nested_outer_shorter", "a byte of text too few between", with(outer_len - 1, &good)),
        ("nested_outer_too_long", "a text between that is too long", with(TEXT_LEN_MAX + 1, &good)),
        ("nested_parse_missing", "no nested parse", with(outer_len, &[])),
        ("nested_parse_with_tail", "a byte behind the nested parse", with(outer_len, &[&good[..], &[0]].concat())),
        ("nested_stream_empty", "a nested stream of no bytes", with_part(&|_, len, _, _| *len = 0)),
        ("nested_stream_too_long", "more than 8 MiB", with_part(&|_, len, _, _| *len = (8 << 20) + 1)),
        ("nested_stream_cut", "a nested stream that ends early", with_part(&|_, len, _, _| *len /= 2)),
        ("nested_stream_elsewhere", "a nested stream past its outer one", with_part(&|at, _, _, _| *at += 1 << 20)),
        ("nested_part_past_its_stream", "more plain bytes than there are", with_part(&|_, _, at, _| *at += 1 << 20)),
        ("nested_part_empty", "a part of no bytes", with_part(&|_, _, _, len| *len = 0)),
    ] {
        vectors.bad(name, about, &made, &bytes)?;
    }
    Ok(())
}

/// Units of forms 3 and 4.
fn gapped(vectors: &Vectors) -> io::Result<()> {
    let whole = CutLimits::default();
    let small = CutLimits { text_len_max: 64 << 10, unit_len_max: 4 << 10 };
    let made = vectors.made("pair_old", "png_pieces_new", 9, whole)?;
    vectors.good("gaps", "a picture in several chunks", &made[0])?;
    vectors.good("gaps_nested", "a zip file in a dump", &vectors.made("pair_old", "dump_new", 6, whole)?[0])?;
    for (number, made) in vectors.made("pair_old", "png_pieces_new", 9, small)?.iter().enumerate().take(3) {
        vectors.good(&format!("gaps_part_{number}"), "a stream in pieces, cut into units", made)?;
    }
    // The head of the good one, and what follows its table.
    let made = &made[0];
    let stored = made.stored();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    stored.write(&mut with);
    StoredUnit { gaps: Default::default(), ..made.stored() }.write(&mut without);
    let numbers = |numbers: &[u32]| {
        let mut out = Vec::new();
        numbers.iter().for_each(|value| number(&mut out, *value));
        out
    };
    let head = [&[3], &numbers(&[made.unit.len() as u32, made.unit.text.len() as u32])[..]].concat();
    let rest = &without[head.len()..];
    let with_table = |table: &[u32]| [&head, &numbers(table)[..], rest].concat();
    let object_len = made.unit.len() as u32;
    for (name, about, table) in [
        ("empty", "a table of no gaps", vec![0]),
        ("of_nothing", "a gap of no bytes", vec![1, 9, 0, 1]),
        ("never", "a gap that is there no time", vec![1, 9, 9, 0]),
        ("at_once_twice", "two gaps with nothing between", vec![1, 0, 9, 2]),
        ("without_piece", "no piece before the second run", vec![2, 9, 9, 1, 0, 9, 1]),
        ("past_object", "gaps past the unit's bytes", vec![1, object_len, 1, 1]),
        ("too_many_times", "as often as they have no room", vec![1, 1, 1, object_len]),
        ("piece_too_long", "a piece of 2 GiB", vec![1, 1 << 31, 1, 1]),
        ("runs_too_many", "65,537 runs", vec![(1 << 16) + 1]),
    ] {
        vectors.bad(&format!("gaps_{name}"), about, made, &with_table(&table))?;
    }
    vectors.bad("gaps_cut", "a table that ends early", made, &with[..head.len() + 2])
}

/// Segments of coding 5.
fn gapped_segments(vectors: &Vectors) -> io::Result<()> {
    let segment = |base: &str, target: &str, replay: u8, limits: CutLimits| {
        let mut segment = Segment::of(vectors, &vectors.made(base, target, replay, limits)?)?;
        segment.form = SegmentForm::Gapped;
        Ok::<_, io::Error>(segment)
    };
    let whole = CutLimits::default();
    let small = CutLimits { text_len_max: 64 << 10, unit_len_max: 4 << 10 };
    let picture = || segment("png_pieces_old", "png_pieces_new", 9, whole);
    for (name, about, good) in [
        ("gaps_picture", "a picture over the one before", picture()?),
        ("gaps_units", "the same in several units", segment("png_pieces_old", "png_pieces_new", 9, small)?),
        ("gaps_dump", "a dump over the one before", segment("dump_old", "dump_new", 6, whole)?),
        ("gaps_base", "gaps in the base alone", segment("dump_old", "pair_new", 6, whole)?),
        ("gaps_point", "an access point in a stream with gaps", {
            let mut pointed = Segment::of(vectors, &[over_the_beginning_of_a_stream(vectors, "dump_points")?])?;
            pointed.form = SegmentForm::Gapped;
            pointed
        }),
    ] {
        vectors.segment(name, about, true, &good, &good.bytes())?;
    }
    let refused = |name: &str, about: &str, edit: &dyn Fn(&mut Segment)| {
        let mut segment = picture()?;
        edit(&mut segment);
        let bytes = segment.bytes();
        vectors.segment(&format!("gaps_{name}"), about, false, &segment, &bytes)
    };
    refused("untold", "a base whose gaps are not told", &|segment| segment.openings[0].gaps = None)?;
    let others = Segment::of(vectors, &vectors.made("dump_old", "pair_new", 6, whole)?)?.openings[0].gaps.clone();
    refused("of_another", "gaps at other places", &|segment| segment.openings[0].gaps = others.clone())?;
    // The same bytes read as coding 3, and the table's numbers changed.
    let mut as_whole = picture()?;
    let good = as_whole.bytes();
    let tables = |from: &Segment| StoredSegment::write(&from.units, &from.openings, &from.windows, SegmentForm::Whole);
    let table_at = good.iter().zip(&tables(&as_whole)).take_while(|(one, other)| one == other).count();
    let at = |place: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[table_at + place] = value;
        bytes
    };
    let gapped = picture()?;
    vectors.segment("gaps_streams_too_many", "more tables than there are", false, &gapped, &at(0, 2))?;
    vectors.segment("gaps_streams_none", "no table", false, &gapped, &at(0, 0))?;
    vectors.segment("gaps_elsewhere", "a table of no stream", false, &gapped, &at(1, good[table_at + 1] ^ 1))?;
    vectors.segment("gaps_runs_none", "a table of no gaps", false, &gapped, &at(2, 0))?;
    as_whole.form = SegmentForm::Whole;
    vectors.segment("gaps_in_coding_3", "gaps in a segment of coding 3", false, &as_whole, &tables(&as_whole))
}

/// One parse for every refusal that changed bytes of good parses lead to.
fn refusals(vectors: &Vectors, all: &[Made]) -> io::Result<()> {
    let mut found = BTreeMap::new();
    let more = ["zlib_stored", "zlib_5", "zlib_fixed"]
        .map(|target| vectors.made("zlib_7", target, 6, CutLimits { text_len_max: 64 << 10, unit_len_max: 4 << 10 }));
    let mut seeds: Vec<&Made> = all.iter().collect();
    let more: Vec<Vec<Made>> = more.into_iter().collect::<io::Result<_>>()?;
    seeds.extend(more.iter().flat_map(|units| units.iter().take(2)));
    let mut state = 1u64;
    let mut random = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    };
    for _ in 0..30_000 {
        let made = seeds[random(seeds.len())];
        let mut parse = made.parse.clone();
        let at = random(parse.len().min(60));
        parse[at] ^= 1 << random(8);
        let base = Base { matches: &made.whole.matches, opened: &made.whole.opened };
        if let Err(error) = decode_parse(&parse, &made.unit.text, base, &made.runs, made.unit.len()) {
            found.entry(error.0).or_insert((made, parse));
        }
    }
    for (message, (made, parse)) in found {
        let mut bytes = Vec::new();
        StoredUnit { parse: &parse, ..made.stored() }.write(&mut bytes);
        vectors.bad(&format!("refused_{}", message.replace(' ', "_")), message, made, &bytes)?;
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let Some(directory) = env::args_os().nth(1) else {
        return Err(io::Error::other("usage: make_units DIRECTORY"));
    };
    let vectors = Vectors { directory: Path::new(&directory).to_owned() };
    good(&vectors)?;
    bad(&vectors)?;
    nested(&vectors)?;
    segments(&vectors)?;
    gapped(&vectors)?;
    gapped_segments(&vectors)
}
