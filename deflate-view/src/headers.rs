//! The code lengths of a block as differences to those that zlib would have made of its symbols.
//!
//! Part of the format (docs/format/deflate-view-v1.md §8).

use crate::Malformed;
use crate::alphabet::{CodeLengths, LENGTH_ORDER, LENGTH_SYMBOLS, LITLEN_SYMBOLS};
use crate::coder::{Coder, Model};
use crate::parse::{Header, LengthRun};
use crate::zlib_codes::{self, Counts};

/// The models of headers.
#[derive(Debug)]
pub(crate) struct HeaderModels {
    same_lengths: Model,
    litlen_count: [Model; 32],
    distance_count: [Model; 32],
    /// By the length that was expected, of literals and lengths and of distances.
    lengths: [[[Model; 16]; 16]; 2],
    same_runs: Model,
    run_as_expected: [Model; 20],
    run_kind: [Model; 4],
    same_length_lengths: Model,
    length_count: [Model; 16],
    length_lengths: [[Model; 8]; 8],
}

impl HeaderModels {
    pub(crate) const NEW: Self = Self {
        same_lengths: Model::NEW,
        litlen_count: [Model::NEW; 32],
        distance_count: [Model::NEW; 32],
        lengths: [[[Model::NEW; 16]; 16]; 2],
        same_runs: Model::NEW,
        run_as_expected: [Model::NEW; 20],
        run_kind: [Model::NEW; 4],
        same_length_lengths: Model::NEW,
        length_count: [Model::NEW; 16],
        length_lengths: [[Model::NEW; 8]; 8],
    };
}

/// Codes a header: `actual` is what an encoder has, `counts` how often each symbol stands in the
/// part of the block at hand.
///
/// # Errors
/// [`Malformed`] for a header that cannot be.
pub(crate) fn code<C: Coder>(
    coder: &mut C,
    models: &mut HeaderModels,
    counts: &Counts,
    actual: Option<&Header>,
) -> Result<Header, Malformed> {
    let expected = zlib_codes::lengths(counts);
    let lengths = if coder.bit(&mut models.same_lengths, actual.is_some_and(|header| header.lengths == expected)) {
        expected
    } else {
        code_lengths(coder, models, &expected, actual.map(|header| &header.lengths))
    };
    if lengths.litlen_count > LITLEN_SYMBOLS {
        return Err(Malformed("too many lengths"));
    }
    let runs = code_runs(coder, models, &lengths, actual.map(|header| header.runs.as_slice()))?;
    let expected = zlib_codes::length_lengths(&runs);
    let same = actual.is_some_and(|header| (header.length_lengths, header.length_count) == expected);
    let (length_lengths, length_count) = if coder.bit(&mut models.same_length_lengths, same) {
        expected
    } else {
        code_length_lengths(coder, models, &expected.0, actual)
    };
    if runs.iter().any(|run| length_lengths[usize::from(run.symbol)] == 0) {
        return Err(Malformed("a symbol without a code"));
    }
    Ok(Header { lengths, length_lengths, length_count, runs })
}

fn code_lengths<C: Coder>(
    coder: &mut C,
    models: &mut HeaderModels,
    expected: &CodeLengths,
    actual: Option<&CodeLengths>,
) -> CodeLengths {
    let told = actual.unwrap_or(expected);
    let mut lengths = CodeLengths { litlen: [0; 288], distance: [0; 32], litlen_count: 0, distance_count: 0 };
    lengths.litlen_count = 257 + coder.tree(&mut models.litlen_count, 5, (told.litlen_count - 257) as u32) as usize;
    lengths.distance_count = 1 + coder.tree(&mut models.distance_count, 5, (told.distance_count - 1) as u32) as usize;
    for at in 0..lengths.litlen_count {
        let models = &mut models.lengths[0][usize::from(expected.litlen[at])];
        lengths.litlen[at] = coder.tree(models, 4, told.litlen[at].into()) as u8;
    }
    for at in 0..lengths.distance_count {
        let models = &mut models.lengths[1][usize::from(expected.distance[at])];
        lengths.distance[at] = coder.tree(models, 4, told.distance[at].into()) as u8;
    }
    lengths
}

/// The runs that zlib would write.
fn expected_runs(lengths: &CodeLengths) -> Vec<LengthRun> {
    let mut runs = Vec::with_capacity(200);
    for alphabet in [&lengths.litlen[..lengths.litlen_count], &lengths.distance[..lengths.distance_count]] {
        let (mut at, mut last) = (0, None);
        while at < alphabet.len() {
            let run = zlib_codes::next_run(&alphabet[at..], last);
            last = Some(alphabet[at]);
            at += run.count();
            runs.push(run);
        }
    }
    runs
}

fn code_runs<C: Coder>(
    coder: &mut C,
    models: &mut HeaderModels,
    lengths: &CodeLengths,
    actual: Option<&[LengthRun]>,
) -> Result<Vec<LengthRun>, Malformed> {
    let expected = expected_runs(lengths);
    if coder.bit(&mut models.same_runs, actual.is_some_and(|runs| runs == expected)) {
        return Ok(expected);
    }
    let mut all = lengths.litlen[..lengths.litlen_count].to_vec();
    all.extend_from_slice(&lengths.distance[..lengths.distance_count]);
    let mut runs = Vec::new();
    let (mut at, mut last) = (0, None);
    while at < all.len() {
        let told = actual.and_then(|actual| actual.get(runs.len()).copied());
        let likely = zlib_codes::next_run(&all[at..], last);
        let model = &mut models.run_as_expected[usize::from(likely.symbol)];
        let run = if coder.bit(model, told == Some(likely)) {
            likely
        } else {
            code_run(coder, &mut models.run_kind, all[at], told)
        };
        let end = at + run.count();
        let value = match run.symbol {
            16 => last,
            17 | 18 => Some(0),
            len => Some(len),
        };
        if end > all.len() || all[at..end].iter().any(|&len| Some(len) != value) {
            return Err(Malformed("a run of lengths that are not equal"));
        }
        last = value;
        at = end;
        runs.push(run);
    }
    Ok(runs)
}

fn code_run<C: Coder>(coder: &mut C, models: &mut [Model; 4], len: u8, told: Option<LengthRun>) -> LengthRun {
    let told = told.unwrap_or(LengthRun { symbol: 0, extra: 0 });
    let kind = coder.tree(models, 2, u32::from(told.symbol.saturating_sub(15)));
    let mut run = LengthRun { symbol: if kind == 0 { len } else { 15 + kind as u8 }, extra: 0 };
    run.extra = coder.plain(run.extra_bits(), told.extra.into()) as u8;
    run
}

fn code_length_lengths<C: Coder>(
    coder: &mut C,
    models: &mut HeaderModels,
    expected: &[u8; LENGTH_SYMBOLS],
    actual: Option<&Header>,
) -> ([u8; LENGTH_SYMBOLS], usize) {
    let told = actual.map_or(4, |header| header.length_count);
    let count = 4 + coder.tree(&mut models.length_count, 4, (told - 4) as u32) as usize;
    let mut lengths = [0; LENGTH_SYMBOLS];
    for &symbol in &LENGTH_ORDER[..count.min(LENGTH_SYMBOLS)] {
        let told = actual.map_or(0, |header| header.length_lengths[symbol]);
        lengths[symbol] = coder.tree(&mut models.length_lengths[usize::from(expected[symbol])], 3, told.into()) as u8;
    }
    (lengths, count.min(LENGTH_SYMBOLS))
}
