//! The newest lines of the log, in memory, for whoever looks at this process now. Requests are kept
//! apart from them (`server::Recent`).

use serde::Serialize;
use std::{
    collections::VecDeque,
    fmt::{self, Write as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, layer::Context};

/// Lines that are kept.
const LINES_MAX: usize = 1000;
/// Bytes of a line's text that are kept: together at most 2 MiB.
const TEXT_BYTES_MAX: usize = 2048;
/// What lines of the access log are of.
const ACCESS: &str = "deltaweir::access";

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// Counted from one since the process began.
    pub number: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: &'static str,
    /// The part of the program.
    pub target: String,
    /// The sentence, and what it is about.
    pub text: String,
}

/// Which lines are asked for: those that every field allows.
#[derive(Clone, Debug, Default)]
pub struct LinesWanted {
    /// At least so severe.
    pub level: Option<Level>,
    /// That have this in target or text.
    pub text: String,
    /// Behind the one with this number.
    pub after: Option<u64>,
}

/// Lines that were asked for, oldest first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LinesFound {
    /// The lines.
    pub lines: Vec<LogLine>,
    /// Behind which number to ask for more.
    pub next: u64,
    /// Lines between the number asked for and the oldest that is kept.
    pub missed: u64,
}

/// The newest lines of one process.
#[derive(Default)]
pub struct LogTail(Mutex<VecDeque<LogLine>>);

impl LogTail {
    /// The newest `limit` lines that fit; behind a number, the oldest, so that whoever goes on
    /// asking sees each.
    pub fn find(&self, wanted: &LinesWanted, limit: usize) -> LinesFound {
        let kept = self.kept();
        let last = kept.back().map_or(0, |line| line.number);
        let oldest = kept.front().map_or(1, |line| line.number);
        let fits = |line: &&LogLine| {
            let severe = wanted.level.is_none_or(|most| level_of(line.level).is_some_and(|level| level <= most));
            severe && (line.text.contains(&wanted.text) || line.target.contains(&wanted.text))
        };
        let Some(after) = wanted.after else {
            let mut lines: Vec<LogLine> = kept.iter().rev().filter(fits).take(limit).cloned().collect();
            lines.reverse();
            return LinesFound { lines, next: last, missed: 0 };
        };
        // Whoever asked the process before this one begins anew.
        let after = if after > last { 0 } else { after };
        let behind = kept.iter().filter(|line| line.number > after);
        let lines: Vec<LogLine> = behind.filter(fits).take(limit).cloned().collect();
        let full = lines.len() == limit;
        let next = lines.last().filter(|_| full).map_or(last, |line| line.number);
        LinesFound { lines, next, missed: oldest.saturating_sub(after + 1) }
    }

    fn note(&self, level: Level, target: &str, mut text: String) {
        if text.len() > TEXT_BYTES_MAX {
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
            text.push('…');
        }
        let mut kept = self.kept();
        let number = kept.back().map_or(1, |line| line.number + 1);
        if kept.len() == LINES_MAX {
            kept.pop_front();
        }
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let at_ms = u64::try_from(at_ms).unwrap_or(u64::MAX);
        kept.push_back(LogLine { number, at_ms, level: name_of(level), target: target.to_owned(), text });
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<LogLine>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The level of a name; `None` for one that is none.
pub fn level_of(name: &str) -> Option<Level> {
    [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE].into_iter().find(|one| name_of(*one) == name)
}

fn name_of(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// Brings what is logged to a [`LogTail`].
pub(crate) struct KeepsTail(pub(crate) Arc<LogTail>);

impl<S: Subscriber> Layer<S> for KeepsTail {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target() == ACCESS {
            return;
        }
        let mut text = EventText::default();
        event.record(&mut text);
        self.0.note(*metadata.level(), metadata.target(), text.whole());
    }
}

/// The sentence of an event, and its fields behind it.
#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
}

impl EventText {
    fn whole(self) -> String {
        if self.message.is_empty() { self.fields.trim_start().to_owned() } else { self.message + &self.fields }
    }
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt as _;

    fn texts(tail: &LogTail, wanted: &LinesWanted, limit: usize) -> Vec<String> {
        tail.find(wanted, limit).lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn what_is_logged_is_kept_with_its_fields_and_requests_are_not() {
        let tail = Arc::new(LogTail::default());
        let subscriber = tracing_subscriber::registry().with(KeepsTail(tail.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(blobs = 3, place = %"here", word = "two words", "a sentence");
            tracing::info!(target: "deltaweir::access", "a request");
            tracing::warn!(target: "engine", only = "fields");
            tracing::error!("the {}", "end");
        });
        let all = tail.find(&LinesWanted::default(), 100);
        assert_eq!(all.lines.iter().map(|line| line.level).collect::<Vec<_>>(), ["info", "warn", "error"]);
        assert_eq!(all.lines[0].text, "a sentence blobs=3 place=here word=\"two words\"");
        assert_eq!((all.lines[1].target.as_str(), all.lines[1].text.as_str()), ("engine", "only=\"fields\""));
        let severe = LinesWanted { level: level_of("warn"), ..LinesWanted::default() };
        assert_eq!(texts(&tail, &severe, 100), ["only=\"fields\"", "the end"]);
        let about = LinesWanted { text: "engine".into(), ..LinesWanted::default() };
        assert_eq!(texts(&tail, &about, 100), ["only=\"fields\""]);
        assert_eq!(level_of("loud"), None);
    }

    #[test]
    fn lines_are_bounded_and_whoever_asks_for_the_next_ones_sees_each() {
        let tail = LogTail::default();
        for number in 1..=LINES_MAX + 10 {
            tail.note(Level::INFO, "t", number.to_string());
        }
        let newest = tail.find(&LinesWanted::default(), 2);
        assert_eq!(newest.lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), ["1009", "1010"]);
        let after = |number| LinesWanted { after: Some(number), ..LinesWanted::default() };
        let found = tail.find(&after(5), 3);
        assert_eq!((found.lines[0].number, found.next, found.missed), (11, 13, 5));
        assert_eq!(tail.find(&after(newest.next), 3).lines, []);
        assert_eq!(tail.find(&after(99_999), 1).lines[0].number, 11, "of the process before");
        tail.note(Level::INFO, "t", "é".repeat(TEXT_BYTES_MAX));
        let long = tail.find(&LinesWanted::default(), 1).lines.remove(0).text;
        assert!(long.len() <= TEXT_BYTES_MAX + 3 && long.ends_with('…'));
    }
}
