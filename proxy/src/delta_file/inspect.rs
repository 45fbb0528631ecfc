//! The containers and deflate streams in a file: what `deltaweir inspect FILE` shows.

use super::{
    coder::Coder,
    error::{DeltaFileError, Result},
    source::Source,
    views::{OpenedBase, scan},
};
use deflate_view::{
    AHEAD_LEN, Base, CutLimits, Cutter, Index, ReplayId, StepCounts, Stream, Unit, encode_parse, identity, recognise,
};
use delta_codec::Effort;
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};

/// What a file consists of. Lengths and places in bytes.
#[derive(Debug, Default, Serialize)]
pub struct Inspected {
    /// The file.
    pub bytes: u64,
    /// Its streams …
    pub streams: Vec<StreamFound>,
    /// … and their sums by container.
    pub containers: BTreeMap<&'static str, Sums>,
    /// Bytes of the file that lie in no stream.
    pub outside_bytes: u64,
}

/// Sums over the streams of one kind of container.
#[derive(Debug, Default, Serialize)]
pub struct Sums {
    /// How many there are.
    pub streams: u64,
    /// Their bytes in the file.
    pub compressed_bytes: u64,
    /// Their plain text.
    pub plain_bytes: u64,
}

impl Sums {
    fn add(&mut self, stream: &Stream) {
        self.streams += 1;
        self.compressed_bytes += stream.end - stream.start;
        self.plain_bytes += stream.plain_len;
    }
}

/// One deflate stream.
#[derive(Debug, Serialize)]
pub struct StreamFound {
    /// What says that there is a stream.
    pub container: &'static str,
    /// Where it begins in the file.
    pub offset: u64,
    /// Its bytes there.
    pub compressed_bytes: u64,
    /// Its plain text.
    pub plain_bytes: u64,
    /// How many gaps its container puts between its pieces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gaps: Option<u64>,
    /// The streams in its plain text, by container.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nested: BTreeMap<&'static str, Sums>,
    /// The encoder whose choices are nearest to its own, as far as its first megabytes tell.
    pub encoder: Option<String>,
    /// How many of the choices this encoder makes as well, in percent.
    pub replayed_percent: Option<f64>,
    /// How many of them the base's choices foretell, in percent; 100 where the base has the same
    /// stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_percent: Option<f64>,
}

/// Finds the streams of a file, and compares them with those of a base.
///
/// # Errors
/// [`DeltaFileError`] when a file cannot be read, or changes meanwhile.
pub fn inspect(path: &Path, base: Option<&Path>) -> Result<Inspected> {
    let file = Source::open(path, "the file")?;
    let index = scan(&file, false, |_| {})?;
    let base = base.map(|path| Source::open(path, "the base")).transpose()?;
    let mut compared = base.as_ref().map(|base| Compared::new(base, &index)).transpose()?;
    // Of nested streams those are opened that the base has otherwise; without a base, none.
    let mut walked = index.streams.clone();
    for stream in &mut walked {
        stream.nested.retain(|nested| compared.as_ref().is_some_and(|base| !base.kept.contains(&identity(nested))));
    }
    let mut walk = Walk { file: &file, cutter: Cutter::new(walked.iter().collect(), index.len, CutLimits::default()) };
    let mut found = Inspected { bytes: index.len, outside_bytes: index.len, ..Inspected::default() };
    for stream in &index.streams {
        let told = walk.tell(stream, compared.as_mut())?;
        found.containers.entry(told.container).or_default().add(stream);
        found.outside_bytes -= told.compressed_bytes;
        found.streams.push(told);
    }
    file.check_unchanged()?;
    if let Some(base) = &base {
        base.check_unchanged()?;
    }
    Ok(found)
}

/// A base, and what of the file it has as it is.
struct Compared<'a> {
    base: OpenedBase<'a>,
    kept: HashSet<(u64, u64)>,
    coder: Coder,
}

impl<'a> Compared<'a> {
    fn new(base: &'a Source, of_file: &Index) -> Result<Self> {
        let of_base = scan(base, true, |_| {})?;
        let (_, kept) = of_file.divided(&of_base.identities());
        let base = OpenedBase::new(base, of_base, &kept, Effort::Balanced);
        Ok(Self { base, kept, coder: Coder::default() })
    }
}

/// Walks a file stream by stream.
struct Walk<'a> {
    file: &'a Source,
    cutter: Cutter<&'a Stream>,
}

impl Walk<'_> {
    fn tell(&mut self, stream: &Stream, compared: Option<&mut Compared<'_>>) -> Result<StreamFound> {
        while self.cutter.position() < stream.start {
            self.unit(stream.start)?;
        }
        let mut first: Option<(ReplayId, StepCounts)> = None;
        let mut predicted = StepCounts::default();
        let is_kept = compared.as_ref().is_some_and(|compared| compared.kept.contains(&identity(stream)));
        let mut compared = compared.filter(|_| !is_kept);
        while self.cutter.position() < stream.end {
            let at = self.cutter.position();
            let Some((unit, own)) = self.unit(stream.end)? else { break };
            let (replay, _) = *first.get_or_insert_with(|| {
                let replay = recognise(&unit);
                (replay, encode_parse(unit.outermost(), Base::default(), &[], replay).counts)
            });
            if let Some(Compared { base, coder, .. }) = &mut compared {
                base.move_window(at, self.file.len())?;
                if let Some(piece) = base.unit(coder, &unit, replay, &own)? {
                    predicted.steps += piece.counts.steps;
                    predicted.missed += piece.counts.missed;
                }
            }
        }
        let nearest = first.filter(|(replay, _)| *replay != ReplayId::default());
        let replayed = nearest.map(|(_, counts)| percent(counts.steps - counts.missed + counts.replayed, counts.steps));
        let predicted = compared.map(|_| percent(predicted.steps - predicted.missed, predicted.steps));
        let mut nested: BTreeMap<_, Sums> = BTreeMap::new();
        for one in &stream.nested {
            nested.entry(one.container.name()).or_default().add(one);
        }
        Ok(StreamFound {
            nested,
            container: stream.container.name(),
            offset: stream.start,
            compressed_bytes: stream.end - stream.start,
            plain_bytes: stream.plain_len,
            gaps: stream.gaps.as_ref().map(|gaps| gaps.count()),
            encoder: nearest.map(|(replay, _)| replay.name()),
            replayed_percent: replayed,
            predicted_percent: if is_kept { Some(100.0) } else { predicted },
        })
    }

    /// The next unit up to `until`, and its own bytes.
    fn unit(&mut self, until: u64) -> Result<Option<(Unit, Vec<u8>)>> {
        let at = self.cutter.position();
        let mut bytes = vec![0; (until - at).min(AHEAD_LEN as u64) as usize];
        self.file.read_at(&mut bytes, at)?;
        let unit = self.cutter.next_until(&bytes, until).map_err(|_| DeltaFileError::Changed("the file"))?;
        Ok(unit.map(|unit| {
            bytes.truncate(unit.len());
            (unit, bytes)
        }))
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 100.0 } else { (part as f64 / whole as f64 * 1000.0).round() / 10.0 }
}
