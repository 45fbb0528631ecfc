//! Writing lines. A line is with the operating system before the call is answered, so it outlives
//! the process; when it is on the disk is a setting. The head is written behind the lines it speaks
//! of, so it never names one that a crash can take away.

use super::{
    chain::{AuditKey, Position},
    entry::{Entry, Kind},
    files::{HEAD, LinesFile, list, path_of},
    unsigned::UnsignedCalls,
    verify::{Broken, Sound, last_position, verify},
};
use prometheus::IntCounter;
use rustix::fs::{FlockOperation, flock};
use s3_wire::timestamp;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    time::{Duration, SystemTime},
};

/// How a log is kept.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its directory.
    pub directory: PathBuf,
    /// A file that has so many bytes is followed by another one.
    pub file_bytes_max: u64,
    /// Files that are kept; 0: all.
    pub files_max: usize,
    /// How long a line may wait for the disk; zero: not at all.
    pub sync_interval: Duration,
}

/// A log that is written to.
pub struct AuditLog {
    settings: Settings,
    key: AuditKey,
    state: Mutex<State>,
    /// Whoever waits for the disk: one at a time, and lines are written meanwhile.
    syncing: Mutex<()>,
    failures: IntCounter,
    unsigned: UnsignedCalls,
    /// Dropped with the log, which ends its thread.
    _ends: mpsc::Sender<()>,
}

struct State {
    position: Position,
    file: File,
    file_bytes: u64,
    is_synced: bool,
}

impl AuditLog {
    /// Opens the log of a directory, which is made with mode 0700 when it is not there, and goes on
    /// behind its newest line. `failures` counts lines that could not be written.
    ///
    /// # Errors
    /// The directory cannot be written to, or another process writes to it.
    pub fn open(settings: Settings, key: AuditKey, failures: IntCounter) -> io::Result<Arc<Self>> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&settings.directory)?;
        let (ends, ended) = mpsc::channel();
        let (state, notes) = State::open(&settings, &key)?;
        let log = Arc::new(Self {
            settings,
            key,
            state: Mutex::new(state),
            syncing: Mutex::default(),
            failures,
            unsigned: UnsignedCalls::new(),
            _ends: ends,
        });
        for note in notes {
            log.write(note);
        }
        log.sync()?;
        let interval = log.settings.sync_interval;
        if !interval.is_zero() {
            let weak = Arc::downgrade(&log);
            std::thread::Builder::new().name("audit".into()).spawn(move || {
                while ended.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout) {
                    let Some(log) = weak.upgrade() else { return };
                    log.sync_or_count();
                }
            })?;
        }
        Ok(log)
    }

    /// Writes a line. It waits for the disk where the settings say so, and only then leaves the
    /// thread it is on.
    pub async fn record(self: &Arc<Self>, entry: Entry) {
        if !self.settings.sync_interval.is_zero() {
            return self.write(entry);
        }
        let log = self.clone();
        // A task that is cut off by the end of the program has written its line already.
        let _ = tokio::task::spawn_blocking(move || {
            log.write(entry);
            log.sync_or_count();
        })
        .await;
    }

    /// Writes a line about a denied call that nobody signed, unless its peer has had too many. The
    /// next line of the peer tells how many calls had none.
    pub async fn record_unsigned(self: &Arc<Self>, peer: Option<IpAddr>, entry: Entry) {
        if let Some(left_out) = self.unsigned.admit(peer) {
            self.record(entry.with("left_out", (left_out > 0).then_some(left_out))).await;
        }
    }

    /// Writes a line; trouble is logged and counted, and the call it is about goes on.
    pub fn write(&self, entry: Entry) {
        let mut state = self.state();
        if let Err(error) = state.append(&self.settings, &self.key, entry) {
            self.failures.inc();
            tracing::error!(%error, directory = %self.settings.directory.display(), "a line of the audit log is lost");
        }
    }

    /// Everything that was written is on the disk afterwards, and the head says so.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn sync(&self) -> io::Result<()> {
        let _alone = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((file, seq, link)) = self.state().not_synced()? else { return Ok(()) };
        file.sync_all()?;
        self.write_head(seq, &link)?;
        let mut state = self.state();
        state.is_synced = state.position.seq == seq;
        Ok(())
    }

    /// Where its files are.
    pub fn directory(&self) -> &Path {
        &self.settings.directory
    }

    /// Follows the chain, as [`verify`] does.
    ///
    /// # Errors
    /// [`Broken`] at the first line that does not follow.
    pub fn verify(&self) -> Result<Sound, Broken> {
        verify(&self.settings.directory, &self.key)
    }

    /// Says durably how far the log goes.
    fn write_head(&self, seq: u64, link: &[u8; 32]) -> io::Result<()> {
        let directory = &self.settings.directory;
        let (new, head) = (directory.join("head.new"), directory.join(HEAD));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(self.key.head(seq, link).as_bytes())?;
        file.sync_all()?;
        fs::rename(new, head)?;
        File::open(directory)?.sync_all()
    }

    fn sync_or_count(&self) {
        if let Err(error) = self.sync() {
            self.failures.inc();
            tracing::error!(%error, "the audit log is not on the disk");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.sync_or_count();
    }
}

impl State {
    fn open(settings: &Settings, key: &AuditKey) -> io::Result<(Self, Vec<Entry>)> {
        let directory = &settings.directory;
        let head = match fs::read_to_string(directory.join(HEAD)) {
            Ok(text) => key.read_head(&text).map(|(seq, link)| Position { seq, link }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let (mut notes, mut position, mut newest) = (Vec::new(), head.unwrap_or(Position::START), None);
        if let Some(file) = list(directory)?.pop() {
            let (last, whole_bytes) = last_position(&file)?;
            let opened = open_lines(&file)?;
            if whole_bytes < opened.metadata()?.len() {
                opened.set_len(whole_bytes)?;
                notes.push(Entry::new(Kind::Log, "torn-line-removed"));
            }
            match last {
                Some(last) if last.seq >= position.seq => position = last,
                // Lines that the head knows of are gone. The chain goes on behind the head, so that
                // the gap stays to be seen.
                _ => notes.push(Entry::new(Kind::Log, "lines-missing").with("known", position.seq)),
            }
            newest = Some((opened, whole_bytes));
        }
        let (file, file_bytes) = match newest {
            Some(newest) => newest,
            None => (open_lines(&LinesFile { first: 1, path: path_of(directory, position.seq + 1) })?, 0),
        };
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| io::Error::other(format!("another process writes to {}", directory.display())))?;
        Ok((Self { position, file, file_bytes, is_synced: false }, notes))
    }

    fn append(&mut self, settings: &Settings, key: &AuditKey, entry: Entry) -> io::Result<()> {
        if self.file_bytes >= settings.file_bytes_max {
            self.begin_file(settings, key)?;
        }
        self.append_here(key, entry)
    }

    fn append_here(&mut self, key: &AuditKey, entry: Entry) -> io::Result<()> {
        let at = timestamp::iso8601(SystemTime::now());
        let (line, next) = self.position.next_line(key, &at, &entry.into_fields(key));
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            // Half a line would break the chain where nobody changed it.
            self.file.set_len(self.file_bytes)?;
            return Err(error);
        }
        self.file_bytes += line.len() as u64;
        (self.position, self.is_synced) = (next, false);
        Ok(())
    }

    /// Goes on in a new file, and removes old ones where that is wished, which is said first.
    fn begin_file(&mut self, settings: &Settings, key: &AuditKey) -> io::Result<()> {
        self.file.sync_all()?;
        let path = path_of(&settings.directory, self.position.seq + 1);
        self.file = open_lines(&LinesFile { first: self.position.seq + 1, path })?;
        flock(&self.file, FlockOperation::NonBlockingLockExclusive)?;
        self.file_bytes = 0;
        File::open(&settings.directory)?.sync_all()?;
        let files = list(&settings.directory)?;
        let surplus = if settings.files_max == 0 { 0 } else { files.len().saturating_sub(settings.files_max) };
        if surplus == 0 {
            return Ok(());
        }
        let (old, kept) = files.split_at(surplus);
        let (Some(newest_old), Some(oldest_kept)) = (old.last(), kept.first()) else { return Ok(()) };
        let link = last_position(newest_old)?.0.map(|last| hex::encode(last.link));
        let note = Entry::new(Kind::Log, "files-removed").with("before", oldest_kept.first).with("link", link);
        self.append_here(key, note)?;
        // Said durably before it is done; the head follows with the next sync.
        self.file.sync_all()?;
        old.iter().try_for_each(|file| fs::remove_file(&file.path))
    }

    /// The file, and where it ends, when some of its lines may not be on the disk.
    fn not_synced(&self) -> io::Result<Option<(File, u64, [u8; 32])>> {
        if self.is_synced {
            return Ok(None);
        }
        Ok(Some((self.file.try_clone()?, self.position.seq, self.position.link)))
    }
}

fn open_lines(file: &LinesFile) -> io::Result<File> {
    if fs::metadata(&file.path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other(format!("{} is no regular file", file.path.display())));
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(&file.path)
}
