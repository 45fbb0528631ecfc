//! A log that was changed in any way is found out.

use super::*;
use crate::audit::{AuditLog, Entry, Kind, Settings};
use proptest::prelude::*;
use std::time::Duration;

const KEY: [u8; 32] = [7; 32];

fn settings(directory: &Path, files_max: usize) -> Settings {
    // Long enough that a test syncs by closing the log alone.
    let sync_interval = Duration::from_secs(3600);
    Settings { directory: directory.to_owned(), file_bytes_max: 600, files_max, sync_interval }
}

fn open(directory: &Path, key: [u8; 32], files_max: usize) -> std::sync::Arc<AuditLog> {
    let failures = prometheus::IntCounter::new("failures", "of a test").unwrap();
    AuditLog::open(settings(directory, files_max), AuditKey::new(key), failures).unwrap()
}

fn write(directory: &Path, key: [u8; 32], lines: usize) {
    let log = open(directory, key, 0);
    for number in 0..lines {
        log.write(
            Entry::new(Kind::S3, "PutObject").with("bucket", "b").about(&format!("key {number}"), number % 2 == 0),
        );
    }
}

fn check(directory: &Path) -> Result<Sound, Broken> {
    verify(directory, &AuditKey::new(KEY))
}

fn paths(directory: &Path) -> Vec<PathBuf> {
    list(directory).unwrap().into_iter().map(|file| file.path).collect()
}

/// What somebody who can write to the directory does to it; `false` when it changes nothing.
fn tamper(directory: &Path, how: u8, one: usize, other: usize) -> bool {
    let files = paths(directory);
    let path = &files[one % files.len()];
    let text = fs::read_to_string(path).unwrap();
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let (first, second) = (one % lines.len(), other % lines.len());
    match how {
        0 => {
            let mut bytes = text.clone().into_bytes();
            let at = other % bytes.len();
            bytes[at] ^= 1;
            fs::write(path, bytes).unwrap();
            return true;
        }
        1 => drop(lines.remove(first)),
        2 => lines.swap(first, second),
        3 => lines.insert(first, lines[second]),
        4 => {
            fs::write(path, &text[..other % text.len()]).unwrap();
            return true;
        }
        5 => {
            fs::remove_file(path).unwrap();
            return true;
        }
        6 => {
            let elsewhere = tempfile::tempdir().unwrap();
            write(elsewhere.path(), [8; 32], 12);
            fs::copy(&paths(elsewhere.path())[0], path).unwrap();
            return true;
        }
        7 => {
            fs::remove_file(directory.join(HEAD)).unwrap();
            return true;
        }
        _ => {
            // Everything from some line on, in every file: a log that was rolled back.
            lines.truncate(first);
            files.iter().skip(one % files.len() + 1).for_each(|file| fs::remove_file(file).unwrap());
        }
    }
    let changed = lines.concat();
    fs::write(path, &changed).unwrap();
    changed != text || how == 8 && one % files.len() + 1 < files.len()
}

#[test]
fn lines_are_written_and_files_go_while_others_wait_for_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path(), KEY, 3);
    std::thread::scope(|threads| {
        for writer in 0..4 {
            let log = &log;
            threads.spawn(move || {
                for number in 0..50 {
                    log.write(Entry::new(Kind::S3, "PutObject").about(&format!("{writer}/{number}"), true));
                    if number % 8 == writer {
                        log.sync().unwrap();
                    }
                }
            });
        }
    });
    drop(log);
    let sound = check(directory.path()).unwrap();
    assert!(sound.last >= 200, "{sound:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_log_that_was_edited_cut_reordered_or_lacks_a_line_is_found(
        lines in 4_usize..24, how in 0_u8..9, one: usize, other: usize,
    ) {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), KEY, lines);
        let sound = check(directory.path()).unwrap();
        prop_assert_eq!((sound.lines, sound.first, sound.last), (lines as u64, 1, lines as u64));
        prop_assert!(sound.files > 1 || lines < 8);
        let changed = tamper(directory.path(), how, one, other);
        prop_assert_eq!(check(directory.path()).is_err(), changed, "{:?}", check(directory.path()));
    }
}

#[test]
fn a_log_goes_on_after_a_restart_and_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), KEY, 3);
    write(directory.path(), KEY, 3);
    assert_eq!(check(directory.path()).unwrap().lines, 6);
    // Half a line that a crash left is said to be there, removed at the next start, and told.
    let newest = paths(directory.path()).pop().unwrap();
    let whole = fs::read_to_string(&newest).unwrap();
    fs::write(&newest, format!("{whole}{{\"seq\":7,\"at")).unwrap();
    assert!(check(directory.path()).unwrap().torn);
    write(directory.path(), KEY, 1);
    let sound = check(directory.path()).unwrap();
    assert_eq!((sound.lines, sound.torn), (8, false));
    let told = tail(directory.path(), 2).unwrap();
    assert!(told[0].contains("torn-line-removed") && told[1].contains("PutObject"), "{told:?}");
}

#[test]
fn a_server_that_starts_on_a_log_that_was_cut_does_not_hide_it() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), KEY, 12);
    let newest = paths(directory.path()).pop().unwrap();
    fs::remove_file(newest).unwrap();
    assert!(check(directory.path()).is_err());
    write(directory.path(), KEY, 2);
    assert!(check(directory.path()).is_err(), "the gap is still there");
    assert!(tail(directory.path(), 3).unwrap()[0].contains("lines-missing"));
}

#[test]
fn files_that_are_not_kept_are_told_of_in_the_log_itself() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path(), KEY, 2);
    for _ in 0..60 {
        log.write(Entry::new(Kind::Admin, "/api/v1/gc"));
    }
    drop(log);
    let sound = check(directory.path()).unwrap();
    assert!(sound.files <= 2 && sound.first > 1 && sound.last >= 60, "{sound:?}");
    // Somebody else who removes one more is found.
    fs::remove_file(&paths(directory.path())[0]).unwrap();
    assert!(check(directory.path()).is_err());
}

#[test]
fn names_in_sealed_buckets_are_not_written_but_can_be_looked_for() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path(), KEY, 0);
    for (key, is_shown) in [("shown", true), ("hidden", false), ("hidden", false), ("other", false)] {
        log.write(Entry::new(Kind::S3, "DeleteObject").about(key, is_shown));
    }
    drop(log);
    let lines: Vec<Value> =
        tail(directory.path(), 4).unwrap().iter().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines[0]["key"], "shown");
    assert!(lines[1].get("key").is_none() && lines[1]["key_digest"] == lines[2]["key_digest"]);
    assert_ne!(lines[2]["key_digest"], lines[3]["key_digest"]);
}

#[test]
fn a_second_writer_is_refused_and_another_key_verifies_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path(), KEY, 0);
    log.write(Entry::new(Kind::S3, "PutObject"));
    let failures = prometheus::IntCounter::new("failures", "of a test").unwrap();
    assert!(AuditLog::open(settings(directory.path(), 0), AuditKey::new(KEY), failures).is_err());
    drop(log);
    assert!(verify(directory.path(), &AuditKey::new([8; 32])).is_err());
    assert!(check(directory.path()).is_ok());
}
