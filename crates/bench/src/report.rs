//! What a run reports: one record per contender, as JSON lines or as a table.

use comfy_table::{CellAlignment, Table, presets};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest latency that a histogram tells apart, in nanoseconds: 100 seconds.
const LATENCY_NS_MAX: u64 = 100_000_000_000;

/// A histogram of latencies in nanoseconds with an error of at most 1 %.
#[derive(Clone)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("constant bounds are valid"))
    }
}

impl Latencies {
    /// Records one latency `count` times.
    #[inline]
    pub fn record(&mut self, latency: Duration, count: u64) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_NS_MAX);
        self.0.saturating_record_n(nanoseconds.clamp(1, LATENCY_NS_MAX), count);
    }
    /// Adds what another histogram recorded.
    pub fn merge(&mut self, other: &Latencies) {
        self.0 += &other.0;
    }
    /// Forgets everything.
    pub fn reset(&mut self) {
        self.0.reset();
    }
    /// The quantiles that reports show.
    pub fn summary(&self) -> LatencySummary {
        let at = |quantile: f64| self.0.value_at_quantile(quantile) as f64 / 1_000.0;
        if self.0.is_empty() {
            return LatencySummary::default();
        }
        LatencySummary {
            p50: at(0.50),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: self.0.max() as f64 / 1_000.0,
        }
    }
}

/// Quantiles of latency in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LatencySummary {
    /// The median.
    pub p50: f64,
    /// 95 of 100 are at most this.
    pub p95: f64,
    /// 99 of 100 are at most this.
    pub p99: f64,
    /// 999 of 1,000 are at most this.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// A median with the smallest and the largest value, over the slices or rounds of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// The spread of values (zeros if there are none).
    pub fn of(values: &[f64]) -> Spread {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
            return Spread::default();
        };
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Spread { median, min, max }
    }
    /// The spread of the ratios of neighbours: `values[i] / base[i]`, pairs with a zero base left out.
    pub fn of_ratios(values: &[f64], base: &[f64]) -> Spread {
        let ratios: Vec<f64> = values
            .iter()
            .zip(base)
            .filter(|&(_, &base)| base > 0.0)
            .map(|(value, base)| value / base)
            .collect();
        Spread::of(&ratios)
    }
}

/// What several runs with different seeds found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The middle value.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// The average.
    pub mean: f64,
    /// The standard deviation of the values as a sample; 0 of one value.
    pub deviation: f64,
    /// How many values there are.
    pub count: usize,
}

impl Summary {
    /// A summary of values (zeros if there are none).
    pub fn of(values: &[f64]) -> Summary {
        let Spread { median, min, max } = Spread::of(values);
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count.max(1) as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / count.saturating_sub(1).max(1) as f64).sqrt();
        Summary { median, min, max, mean, deviation, count }
    }
}

/// How many times as large as its base a figure is; nothing if the base is none to divide by.
pub fn ratio(value: f64, base: f64) -> Option<f64> {
    let ratio = value / base;
    (base > 0.0 && ratio.is_finite()).then_some(ratio)
}

/// A ratio in a table.
pub fn shown_ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "base is 0".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// What one contender did in a run.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The engine, or the server.
    pub engine: String,
    /// The workload.
    pub workload: String,
    /// Worker threads (clients, for a server).
    pub workers: usize,
    /// The measured time.
    pub seconds: f64,
    /// Transactions that took effect in that time.
    pub committed: u64,
    /// Transactions that rolled back by their own decision.
    pub aborted_by_logic: u64,
    /// Incarnations that were thrown away.
    pub restarts: u64,
    /// Committed transactions per second.
    pub throughput_per_s: f64,
    /// From delivery (or sending) to final commit (or reply).
    pub latency_us: LatencySummary,
    /// Processor time of the server for a request; null where it is not known.
    pub processor_us: Option<f64>,
    /// Resident memory that the contender's data takes, as far as it is known; 0 otherwise.
    pub memory_bytes: u64,
    /// The seed of everything random.
    pub seed: u64,
    /// The median over slices of this throughput by the first contender's.
    pub ratio_to_first: f64,
    /// The spread of that ratio.
    pub ratio_spread: Spread,
    /// The spread of the throughput over slices.
    pub throughput_spread: Spread,
    /// The same in the time for which workers did not wait for a processor that other processes had. Null
    /// where nobody can tell.
    pub undisturbed_spread: Option<Spread>,
    /// The workload's options, and what else tells this run from others.
    pub options: BTreeMap<String, String>,
}

/// Prints a record as one line of JSON.
pub fn print_json(record: &impl Serialize) {
    match serde_json::to_string(record) {
        Ok(line) => println!("{line}"),
        Err(error) => eprintln!("a record could not be written as JSON: {error}"),
    }
}

/// A table in the style of all reports: plain, figures to the right.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A table of records, which `driven_by` drove: workers of engines, or clients of servers.
pub fn records_table(records: &[Record], driven_by: &str) -> Table {
    let rows = records
        .iter()
        .map(|record| {
            vec![
                record.engine.clone(),
                record.workload.clone(),
                record.workers.to_string(),
                rate(record.throughput_per_s),
                format!("{} - {}", rate(record.throughput_spread.min), rate(record.throughput_spread.max)),
                format!("{:.3}", record.ratio_to_first),
                format!("{:.3} - {:.3}", record.ratio_spread.min, record.ratio_spread.max),
                rate(record.committed as f64),
                rate(record.aborted_by_logic as f64),
                rate(record.restarts as f64),
                format!("{:.0}", record.latency_us.p50),
                format!("{:.0}", record.latency_us.p99),
                format!("{}", record.memory_bytes >> 20),
            ]
        })
        .collect();
    let header = [
        "engine",
        "workload",
        driven_by,
        "committed/s",
        "over slices",
        "ratio",
        "over slices",
        "committed",
        "aborted",
        "restarts",
        "p50 us",
        "p99 us",
        "MiB",
    ];
    table(&header, rows)
}

/// A figure with its thousands set apart.
pub fn rate(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of(&[4.0, 1.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of(&[]), Spread::default());
        assert_eq!(Spread::of_ratios(&[2.0, 9.0, 4.0], &[1.0, 0.0, 1.0]).median, 3.0);
    }

    #[test]
    fn summaries() {
        let summary = Summary::of(&[2.0, 4.0, 9.0]);
        assert_eq!((summary.median, summary.min, summary.max, summary.mean), (4.0, 2.0, 9.0, 5.0));
        assert!((summary.deviation - 13_f64.sqrt()).abs() < 1e-9, "{summary:?}");
        assert_eq!(Summary::of(&[3.0]).deviation, 0.0);
        assert_eq!(Summary::of(&[]), Summary::default());
    }

    #[test]
    fn a_ratio_needs_a_base() {
        assert_eq!(shown_ratio(ratio(3.0, 2.0)), "1.50");
        for (value, base) in [(0.0, 0.0), (1.0, 0.0), (f64::NAN, 1.0), (1.0, f64::INFINITY * 0.0)] {
            assert_eq!(shown_ratio(ratio(value, base)), "base is 0");
        }
    }

    #[test]
    fn thousands() {
        assert_eq!(rate(1_234_567.4), "1,234,567");
        assert_eq!(rate(999.0), "999");
    }

    #[test]
    fn quantiles_are_in_microseconds() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_micros(100), 99);
        latencies.record(Duration::from_millis(5), 1);
        let summary = latencies.summary();
        assert!((99.0..102.0).contains(&summary.p50), "{summary:?}");
        assert!((4_900.0..5_100.0).contains(&summary.max), "{summary:?}");
    }
}
