//! Lines of a log, written by a thread of their own: a reader that stalls, or a disk that does not
//! answer, stops nobody who has a line to write. What waits is bounded; lines beyond it are lost
//! and counted.

use prometheus::IntCounter;
use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

/// Most bytes that wait to be written.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// Where the lines go.
pub type Sink = Box<dyn Write + Send>;

/// Which log lines are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinesOf {
    /// The one that trouble with either is told in.
    MainLog,
    /// A line for each request.
    AccessLog,
}

impl LinesOf {
    fn name(self) -> &'static str {
        match self {
            LinesOf::MainLog => "log",
            LinesOf::AccessLog => "access log",
        }
    }
}

/// Standard error, line by line: both logs may go there, each from a thread of its own. Who else
/// writes to it waits for neither.
pub struct Stderr(File);

/// Held while a line goes to standard error: a pipe takes long lines in pieces.
static STDERR_LINE: Mutex<()> = Mutex::new(());

impl Stderr {
    /// With a descriptor of its own.
    ///
    /// # Errors
    /// There is none to be had.
    pub fn open() -> io::Result<Self> {
        Ok(Self(File::from(rustix::io::dup(io::stderr())?)))
    }
}

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _line = STDERR_LINE.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.write(bytes)
    }

    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        let _line = STDERR_LINE.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.write_all(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whatever has lines that may wait, for the end of the process.
static WRITERS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Waits until every line of every log is written, or not longer: for whoever ends the process.
pub fn settle_all(patience: Duration) {
    let until = Instant::now() + patience;
    let writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for shared in writers.iter().filter_map(Weak::upgrade) {
        shared.settle(until.saturating_duration_since(Instant::now()));
    }
}

/// The way of lines to a file or a pipe. Ends its thread when it is dropped.
pub struct LogLines(Arc<Shared>);

struct Shared {
    of: LinesOf,
    waiting: Mutex<Waiting>,
    /// Something waits, or nothing does any more.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    steps: VecDeque<Step>,
    bytes: usize,
    /// Whether the thread is at a step that it took off the queue.
    writing: bool,
    ended: bool,
    /// Lines there was no room for since it was last told.
    lost: u64,
    /// Lines that could not be written, those without room included.
    failures: u64,
    counter: Option<IntCounter>,
}

enum Step {
    Line(Vec<u8>),
    /// From here on the lines go there.
    GoOnIn(Sink),
}

impl LogLines {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(of: LinesOf, sink: Sink) -> io::Result<Self> {
        let shared = Arc::new(Shared { of, waiting: Mutex::default(), changed: Condvar::new() });
        let written = shared.clone();
        thread::Builder::new().name("log".into()).spawn(move || written.write_all(sink))?;
        let mut writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        writers.retain(|writer| writer.strong_count() > 0);
        writers.push(Arc::downgrade(&shared));
        Ok(Self(shared))
    }

    /// Has a line written, which ends with its own line feed. Waits for nobody. The main log says
    /// when another begins to lose lines; when it loses its own, nothing would be heard.
    pub fn push(&self, line: Vec<u8>) {
        let mut waiting = self.0.lock();
        if waiting.bytes + line.len() > WAITING_BYTES_MAX {
            waiting.lost += 1;
            waiting.fail(1);
            let first = waiting.lost == 1;
            drop(waiting);
            if first && self.0.of != LinesOf::MainLog {
                tracing::warn!(log = self.0.of.name(), "lines are lost from now on: what reads them is too slow");
            }
            return;
        }
        waiting.bytes += line.len();
        waiting.steps.push_back(Step::Line(line));
        self.0.changed.notify_all();
    }

    /// Has the lines after this go elsewhere. Where an earlier change still waits, the place takes
    /// the place of that one's.
    pub fn go_on_in(&self, sink: Sink) {
        let mut waiting = self.0.lock();
        let earlier = waiting.steps.iter_mut().find_map(|step| match step {
            Step::GoOnIn(earlier) => Some(earlier),
            Step::Line(_) => None,
        });
        let replaced = match earlier {
            Some(earlier) => Some(std::mem::replace(earlier, sink)),
            None => {
                waiting.steps.push_back(Step::GoOnIn(sink));
                None
            }
        };
        drop(waiting);
        // Closed when nobody waits for it.
        drop(replaced);
        self.0.changed.notify_all();
    }

    /// Counts lines that could not be written here from now on, those of before included.
    pub fn count_in(&self, counter: IntCounter) {
        let mut waiting = self.0.lock();
        counter.inc_by(waiting.failures);
        waiting.counter = Some(counter);
    }

    /// Waits until everything is written, or not longer.
    pub fn settle(&self, patience: Duration) {
        self.0.settle(patience);
    }
}

impl Drop for LogLines {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

/// Each write is a line.
impl Write for &LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Waiting {
    fn fail(&mut self, lines: u64) {
        self.failures += lines;
        if let Some(counter) = &self.counter {
            counter.inc_by(lines);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, patience: Duration) {
        let waiting = self.lock();
        let unsettled = |waiting: &mut Waiting| waiting.writing || !waiting.steps.is_empty();
        drop(self.changed.wait_timeout_while(waiting, patience, unsettled).unwrap_or_else(PoisonError::into_inner));
    }

    /// The next step, and how many lines were lost before it, told once; `None` at the end.
    fn next(&self) -> Option<(Step, u64)> {
        let mut waiting = self.lock();
        waiting.writing = false;
        loop {
            if let Some(step) = waiting.steps.pop_front() {
                waiting.writing = true;
                if let Step::Line(line) = &step {
                    waiting.bytes -= line.len();
                }
                // Told when there is room again: a line that says so is one of these lines itself.
                let told = if waiting.bytes < WAITING_BYTES_MAX / 2 { std::mem::take(&mut waiting.lost) } else { 0 };
                return Some((step, told));
            }
            if waiting.ended {
                return None;
            }
            self.changed.notify_all();
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Each line is one write: none is lost in a buffer, and none is torn by another process's.
    fn write_all(&self, mut sink: Sink) {
        let mut first = true;
        while let Some((step, lost)) = self.next() {
            if lost > 0 {
                let log = self.of.name();
                tracing::warn!(lines = lost, log, "lines are lost: what reads them was too slow");
            }
            let line = match step {
                Step::Line(line) => line,
                Step::GoOnIn(fresh) => {
                    sink = fresh;
                    continue;
                }
            };
            if let Err(error) = sink.write_all(&line) {
                self.lock().fail(1);
                if std::mem::take(&mut first) {
                    tracing::error!(%error, log = self.of.name(), "a line is lost");
                }
            }
        }
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A reader that takes a line whenever it is told to, and shows what it took.
    struct Stalling {
        go: Receiver<()>,
        taken: Sender<Vec<u8>>,
    }

    impl Write for Stalling {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.go.recv().map_err(io::Error::other)?;
            self.taken.send(line.to_vec()).map_err(io::Error::other)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Keeps what is said in the main log.
    #[derive(Clone, Default)]
    struct Overheard(Arc<Mutex<Vec<u8>>>);

    impl Write for Overheard {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn stalling() -> (LogLines, Sender<()>, Receiver<Vec<u8>>) {
        let ((told, go), (taken, shown)) = (channel(), channel());
        (LogLines::start(LinesOf::AccessLog, Box::new(Stalling { go, taken })).unwrap(), told, shown)
    }

    #[test]
    fn a_reader_that_stalls_stops_nobody_and_what_it_misses_is_counted() {
        let (lines, go, shown) = stalling();
        let counter = IntCounter::new("lost", "lost").unwrap();
        let line = vec![b'x'; 64 << 10];
        let (fit, all) = (WAITING_BYTES_MAX / line.len(), 200);
        for _ in 0..100 {
            lines.push(line.clone());
        }
        lines.count_in(counter.clone());
        for _ in 100..all {
            lines.push(line.clone());
        }
        let lost = usize::try_from(counter.get()).unwrap();
        // The thread may have taken one line off the queue by now.
        assert!((fit..=fit + 1).contains(&(all - lost)), "{lost}");
        for _ in lost..all {
            go.send(()).unwrap();
        }
        lines.settle(Duration::from_secs(60));
        assert_eq!(shown.try_iter().count(), all - lost);
    }

    #[test]
    fn lines_keep_their_order_also_where_they_go_on_elsewhere() {
        let ((lines, go, shown), (told, next)) = (stalling(), channel());
        lines.push(b"1\n".to_vec());
        lines.push(b"2\n".to_vec());
        let (fresh, elsewhere) = channel();
        lines.go_on_in(Box::new(Stalling { go: next, taken: fresh }));
        lines.push(b"3\n".to_vec());
        go.send(()).unwrap();
        go.send(()).unwrap();
        told.send(()).unwrap();
        lines.settle(Duration::from_secs(60));
        assert_eq!(shown.try_iter().collect::<Vec<_>>(), [b"1\n", b"2\n"]);
        assert_eq!(elsewhere.try_iter().collect::<Vec<_>>(), [b"3\n"]);
    }

    #[test]
    fn an_access_log_that_stalls_for_good_is_told_of_at_its_first_lost_line() {
        let told = Overheard::default();
        let writer = told.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let (lines, _go, _shown) = stalling();
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..200 {
                lines.push(vec![b'x'; 64 << 10]);
            }
        });
        let told = String::from_utf8(told.0.lock().unwrap().clone()).unwrap();
        assert_eq!(told.matches("lines are lost from now on").count(), 1, "{told}");
    }

    #[test]
    fn of_changes_of_place_that_wait_the_last_is_made() {
        let (lines, go, shown) = stalling();
        let (fresh, elsewhere) = channel();
        lines.push(b"1\n".to_vec());
        let mut places = Vec::new();
        for _ in 0..9 {
            let (told, next) = channel();
            lines.go_on_in(Box::new(Stalling { go: next, taken: fresh.clone() }));
            places.push(told);
        }
        lines.push(b"2\n".to_vec());
        assert!(lines.0.lock().steps.len() <= 3, "a line, a place and a line");
        let open = places.iter().filter(|place| place.send(()).is_ok()).count();
        assert_eq!(open, 1, "the others are closed");
        go.send(()).unwrap();
        lines.settle(Duration::from_secs(60));
        assert_eq!(shown.try_iter().collect::<Vec<_>>(), [b"1\n"]);
        assert_eq!(elsewhere.try_iter().collect::<Vec<_>>(), [b"2\n"]);
    }

    #[test]
    fn both_logs_write_whole_lines_into_one_pipe() {
        let (mut reader, writer) = io::pipe().unwrap();
        let file = || Stderr(File::from(std::os::fd::OwnedFd::from(writer.try_clone().unwrap())));
        let logs = [LinesOf::MainLog, LinesOf::AccessLog].map(|of| LogLines::start(of, Box::new(file())).unwrap());
        drop(writer);
        // Longer than a pipe holds.
        let long = |byte| [vec![byte; 200_000], b"\n".to_vec()].concat();
        for _ in 0..9 {
            logs[0].push(long(b'm'));
            logs[1].push(long(b'a'));
        }
        drop(logs);
        let mut read = String::new();
        io::Read::read_to_string(&mut reader, &mut read).unwrap();
        let mixed = read.lines().filter(|line| line.contains('m') && line.contains('a')).count();
        assert_eq!((read.lines().count(), mixed), (18, 0));
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let (lines, go, _) = stalling();
        drop(go);
        lines.push(b"1\n".to_vec());
        lines.push(b"2\n".to_vec());
        lines.settle(Duration::from_secs(60));
        let counter = IntCounter::new("lost", "lost").unwrap();
        lines.count_in(counter.clone());
        assert_eq!(counter.get(), 2);
    }
}
