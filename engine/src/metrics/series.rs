//! Numbers that many threads change and one reads: counters, gauges and histograms, alone or by
//! labels.
//!
//! Handles are cheap to clone and share one number. No call waits for another but where a series
//! appears for the first time.

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricSpec {
    /// Full name, as Prometheus sees it.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Base unit.
    pub unit: &'static str,
    /// Label names, in order.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

/// A metric and its series.
#[derive(Clone, Debug)]
pub struct Family {
    /// Its row of the table.
    pub spec: &'static MetricSpec,
    /// By label values; one without any where the metric has no labels.
    pub series: Vec<Series>,
}

/// One series of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Values of the labels, in the order of the row.
    pub labels: Vec<String>,
    /// The number.
    pub value: Value,
}

/// What a series is at.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A sum that only grows.
    Counter(f64),
    /// A level.
    Gauge(f64),
    /// How often values were observed.
    Histogram {
        /// Upper bounds of the buckets; a last one without bound follows.
        bounds: &'static [f64],
        /// Observations per bucket, the last without bound: one more than there are bounds.
        counts: Vec<u64>,
        /// Sum of what was observed.
        sum: f64,
    },
}

/// A counter of whole things.
#[derive(Clone, Debug, Default)]
pub struct IntCounter(Arc<AtomicU64>);

impl IntCounter {
    /// One more.
    pub fn inc(&self) {
        self.inc_by(1);
    }

    /// So many more.
    pub fn inc_by(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// How many so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A level in whole things.
#[derive(Clone, Debug, Default)]
pub struct IntGauge(Arc<AtomicI64>);

impl IntGauge {
    /// One more.
    pub fn inc(&self) {
        self.add(1);
    }

    /// One less.
    pub fn dec(&self) {
        self.sub(1);
    }

    /// So many more.
    pub fn add(&self, count: i64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// So many less.
    pub fn sub(&self, count: i64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    /// Exactly so many.
    pub fn set(&self, count: i64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// The level.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number with a fraction, as its bits.
#[derive(Debug, Default)]
struct Real(AtomicU64);

impl Real {
    fn add(&self, value: f64) {
        let sum = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // Always `Some`: the update is repeated until no other came between.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// A counter with a fraction.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<Real>);

impl Counter {
    /// So much more.
    pub fn inc_by(&self, value: f64) {
        self.0.add(value);
    }

    /// How much so far.
    pub fn get(&self) -> f64 {
        self.0.get()
    }
}

/// A level with a fraction.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<Real>);

impl Gauge {
    /// Exactly so much.
    pub fn set(&self, value: f64) {
        self.0.set(value);
    }

    /// The level.
    pub fn get(&self) -> f64 {
        self.0.get()
    }
}

/// How often values of which size were observed.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Buckets>);

#[derive(Debug)]
struct Buckets {
    bounds: &'static [f64],
    counts: Box<[AtomicU64]>,
    sum: Real,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Buckets { bounds, counts, sum: Real::default() }))
    }

    /// One value more.
    pub fn observe(&self, value: f64) {
        let bucket = self.0.bounds.partition_point(|bound| *bound < value);
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum.add(value);
    }

    /// How many values so far.
    pub fn get_sample_count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// A number that begins at nothing and can be read.
pub(super) trait Measure: Clone {
    const KIND: &'static str;
    fn start(bounds: &'static [f64]) -> Self;
    fn value(&self) -> Value;
}

macro_rules! measure {
    ($type:ty, $kind:literal, |$this:ident| $value:expr) => {
        impl Measure for $type {
            const KIND: &'static str = $kind;

            fn start(_: &'static [f64]) -> Self {
                Self::default()
            }

            fn value(&self) -> Value {
                let $this = self;
                $value
            }
        }
    };
}
#[expect(clippy::cast_precision_loss, reason = "a float is what is shown, here as in the client libraries")]
fn shown(count: u64) -> f64 {
    count as f64
}
#[expect(clippy::cast_precision_loss, reason = "a float is what is shown, here as in the client libraries")]
fn shown_level(count: i64) -> f64 {
    count as f64
}
measure!(IntCounter, "counter", |this| Value::Counter(shown(this.get())));
measure!(Counter, "counter", |this| Value::Counter(this.get()));
measure!(IntGauge, "gauge", |this| Value::Gauge(shown_level(this.get())));
measure!(Gauge, "gauge", |this| Value::Gauge(this.get()));

impl Measure for Histogram {
    const KIND: &'static str = "histogram";

    fn start(bounds: &'static [f64]) -> Self {
        Self::new(bounds)
    }

    fn value(&self) -> Value {
        let counts = self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Value::Histogram { bounds: self.0.bounds, counts, sum: self.0.sum.get() }
    }
}

type ByLabels<M> = Vec<(Box<[Box<str>]>, M)>;

/// Numbers of one kind by label values.
#[derive(Clone, Debug)]
pub struct Labelled<M> {
    labels: &'static [&'static str],
    bounds: &'static [f64],
    /// Sorted by labels.
    series: Arc<RwLock<ByLabels<M>>>,
}

/// Counters of whole things by labels.
pub type IntCounterVec = Labelled<IntCounter>;
/// Levels in whole things by labels.
pub type IntGaugeVec = Labelled<IntGauge>;
/// Histograms by labels.
pub type HistogramVec = Labelled<Histogram>;

#[expect(private_bounds, reason = "the kinds of numbers there are stand in this file")]
impl<M: Measure> Labelled<M> {
    /// The series of these label values, in the order of the table's row; it begins at nothing.
    ///
    /// # Panics
    /// With more or fewer values than the metric has labels: a mistake at the caller's place in the
    /// code.
    pub fn with_label_values(&self, values: &[&str]) -> M {
        assert_eq!(values.len(), self.labels.len(), "one value for each of {:?}", self.labels);
        let place = |series: &ByLabels<M>| {
            series.binary_search_by(|(labels, _)| labels.iter().map(|label| &**label).cmp(values.iter().copied()))
        };
        {
            let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
            if let Ok(index) = place(&series) {
                return series[index].1.clone();
            }
        }
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        match place(&series) {
            Ok(index) => series[index].1.clone(),
            Err(index) => {
                let labels = values.iter().map(|value| Box::from(*value)).collect();
                series.insert(index, (labels, M::start(self.bounds)));
                series[index].1.clone()
            }
        }
    }

    /// Forgets every series whose first label's value is not kept. A handle that somebody holds
    /// counts on, unseen.
    pub fn retain(&self, keeps: impl Fn(&str) -> bool) {
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        series.retain(|(labels, _)| labels.first().is_none_or(|first| keeps(first)));
    }
}

/// A field of the table.
pub(super) trait FromRow {
    const KIND: &'static str;
    fn from_row(labels: &'static [&'static str], bounds: &'static [f64]) -> Self;
    fn series(&self) -> Vec<Series>;
}

impl<M: Measure> FromRow for M {
    const KIND: &'static str = M::KIND;

    fn from_row(_: &'static [&'static str], bounds: &'static [f64]) -> Self {
        M::start(bounds)
    }

    fn series(&self) -> Vec<Series> {
        vec![Series { labels: Vec::new(), value: self.value() }]
    }
}

impl<M: Measure> FromRow for Labelled<M> {
    const KIND: &'static str = M::KIND;

    fn from_row(labels: &'static [&'static str], bounds: &'static [f64]) -> Self {
        Self { labels, bounds, series: Arc::default() }
    }

    fn series(&self) -> Vec<Series> {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        let shown = |(labels, measure): &(Box<[Box<str>]>, M)| Series {
            labels: labels.iter().map(|label| label.to_string()).collect(),
            value: measure.value(),
        };
        series.iter().map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_the_first_bucket_that_reaches_it() {
        let histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 2.5] {
            histogram.observe(value);
        }
        assert_eq!(histogram.get_sample_count(), 4);
        assert_eq!(histogram.value(), Value::Histogram { bounds: &[1.0, 2.0], counts: vec![2, 1, 1], sum: 5.5 });
    }

    #[test]
    fn the_same_labels_are_the_same_number_and_series_are_sorted() {
        let counters = IntCounterVec::from_row(&["a", "b"], &[]);
        counters.with_label_values(&["y", "1"]).inc();
        counters.with_label_values(&["x", "2"]).inc_by(5);
        counters.with_label_values(&["y", "1"]).inc();
        let shown: Vec<_> =
            counters.series().into_iter().map(|series| (series.labels.join(" "), series.value)).collect();
        assert_eq!(shown, [("x 2".to_owned(), Value::Counter(5.0)), ("y 1".to_owned(), Value::Counter(2.0))]);
    }

    #[test]
    fn a_series_that_is_not_kept_is_no_longer_shown() {
        let levels = IntGaugeVec::from_row(&["bucket", "kind"], &[]);
        for labels in [["old", "whole"], ["old", "delta"], ["new", "whole"]] {
            levels.with_label_values(&labels).set(3);
        }
        levels.retain(|bucket| bucket != "old");
        let shown: Vec<_> = levels.series().into_iter().map(|series| series.labels.join(" ")).collect();
        assert_eq!(shown, ["new whole"]);
    }

    #[test]
    fn no_addition_is_lost_among_threads() {
        let sum = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| sum.inc_by(0.5)));
            }
        });
        assert_eq!(sum.get(), 2000.0);
    }
}
