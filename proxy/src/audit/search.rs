//! Looking for lines: from the oldest on, or the newest a page at a time. Neither verifies them.

use super::{files::list, verify::Lines, wanted::Wanted};
use serde_json::Value;
use std::{collections::VecDeque, io, path::Path};

/// A page of lines.
#[derive(Debug, Default)]
pub struct Newest {
    /// Lines that fit, the newest first.
    pub lines: Vec<Value>,
    /// How many lines were looked at.
    pub looked_at: u64,
    /// Older lines have smaller numbers than this; `None` when there are none.
    pub next: Option<u64>,
}

/// Gives every whole line that fits to `found`, oldest first, without its line feed. A line that is
/// no JSON fits nothing.
///
/// # Errors
/// They cannot be read, or `found` fails.
pub fn search(directory: &Path, wanted: &Wanted, mut found: impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
    for file in list(directory)? {
        for line in Lines::open(&file.path)? {
            let line = line?;
            let Some(whole) = line.strip_suffix('\n') else { break };
            if serde_json::from_str(whole).is_ok_and(|fields| wanted.fits(&fields)) {
                found(whole)?;
            }
        }
    }
    Ok(())
}

/// The newest `limit` lines that fit and have a smaller number than `before`. A whole file is read
/// at a time, and no further one once `look_max` lines were looked at.
///
/// # Errors
/// They cannot be read.
pub fn newest(
    directory: &Path,
    wanted: &Wanted,
    before: Option<u64>,
    limit: usize,
    look_max: u64,
) -> io::Result<Newest> {
    let mut page = Newest::default();
    let files = list(directory)?;
    for (at, file) in files.iter().enumerate().rev() {
        if before.is_some_and(|before| file.first >= before) {
            continue;
        }
        let (room, mut fitting, mut dropped) = (limit - page.lines.len(), VecDeque::new(), false);
        for line in Lines::open(&file.path)? {
            let Ok(fields) = serde_json::from_str::<Value>(&line?) else { continue };
            if before.is_some_and(|before| fields["seq"].as_u64().is_none_or(|seq| seq >= before)) {
                break;
            }
            page.looked_at += 1;
            if wanted.fits(&fields) {
                fitting.push_back(fields);
                if fitting.len() > room {
                    dropped = fitting.pop_front().is_some();
                }
            }
        }
        page.lines.extend(fitting.into_iter().rev());
        let oldest = page.lines.last().and_then(|line| line["seq"].as_u64());
        if page.lines.len() == limit {
            page.next = oldest.filter(|_| dropped || at > 0);
            break;
        }
        if page.looked_at >= look_max && at > 0 {
            page.next = Some(file.first);
            break;
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    fn seqs(page: &Newest) -> Vec<u64> {
        page.lines.iter().filter_map(|line| line["seq"].as_u64()).collect()
    }

    #[test]
    fn pages_of_the_newest_lines_have_each_line_once_and_end() {
        let directory = tempfile::tempdir().unwrap();
        // Three files of four lines; every other line is of `ci`, half a line stands at the end.
        for first in [1, 5, 9] {
            let lines = (first..first + 4)
                .map(|seq| json!({"seq": seq, "user": if seq % 2 == 0 { "ci" } else { "ann" }}).to_string() + "\n");
            let torn = if first == 9 { "{\"seq\": 13, \"us" } else { "" };
            let text = lines.collect::<String>() + torn;
            fs::write(directory.path().join(format!("audit-{first:016}.jsonl")), text).unwrap();
        }
        let wanted = Wanted { user: Some("ci".into()), ..Wanted::default() };
        let page = |before, limit, look_max| newest(directory.path(), &wanted, before, limit, look_max).unwrap();
        let all = page(None, 10, 100);
        assert_eq!((seqs(&all), all.looked_at, all.next), (vec![12, 10, 8, 6, 4, 2], 12, None));
        for limit in 1..=6 {
            let (mut seen, mut before, mut pages) = (Vec::new(), None, 0);
            loop {
                let found = page(before, limit, 100);
                assert!(found.lines.len() <= limit && found.looked_at <= 12);
                seen.extend(seqs(&found));
                (before, pages) = (found.next, pages + 1);
                if before.is_none() || pages > 12 {
                    break;
                }
            }
            assert_eq!(seen, [12, 10, 8, 6, 4, 2], "{limit} at a time");
        }
        let bounded = page(None, 10, 4);
        assert_eq!((seqs(&bounded), bounded.looked_at, bounded.next), (vec![12, 10], 4, Some(9)));
        let nobody = Wanted { user: Some("nobody".into()), ..Wanted::default() };
        let none = newest(directory.path(), &nobody, Some(9), 10, 100).unwrap();
        assert_eq!((none.lines.len(), none.looked_at, none.next), (0, 8, None));
    }
}
