//! SLOWLOG and LATENCY.

use super::ThreadContext;
use crate::observe::{CallCount, LatencyEvents, Samples, SlowEntry};
use redis_surface::commands::options;
use redis_surface::errors;
use redis_surface::table::{self, CommandNumber, LatencyCommand, SlowLogCommand};
use std::fmt::Write;
use txn::{Args, Blob, Reply};

/// How many entries SLOWLOG GET replies unless it is told.
const SLOW_SHOWN: usize = 10;
const SLOW_COUNT: Reply = Reply::error("ERR count should be greater than or equal to -1");
/// Columns of LATENCY GRAPH.
const GRAPH_COLUMNS: usize = 80;
/// Its rows, without the labels.
const GRAPH_ROWS: usize = 4;
/// Steps within a row, from the lowest.
const GRAPH_STEPS: [char; 3] = ['_', 'o', '#'];

/// SLOWLOG and its subcommands.
pub(super) fn slow_log(thread: &ThreadContext<'_>, command: SlowLogCommand, argv: &Args) -> Reply {
    let log = &thread.shared.slow_log;
    match (command, argv.get(2..).unwrap_or_default()) {
        (SlowLogCommand::Len, _) => Reply::Integer(log.len() as i64),
        (SlowLogCommand::Reset, _) => {
            log.clear();
            Reply::OK
        }
        (SlowLogCommand::Get, words) => {
            let count = match words {
                [] => SLOW_SHOWN,
                [all] if all.as_bytes() == b"-1" => usize::MAX,
                [count] => match options::count(count, 0, SLOW_COUNT) {
                    Ok(count) => count,
                    Err(error) => return error,
                },
                _ => return errors::subcommand_syntax("SLOWLOG", &argv[1]),
            };
            Reply::Array(log.newest(count).into_iter().map(slow_entry).collect())
        }
    }
}

fn slow_entry(entry: SlowEntry) -> Reply {
    Reply::Array(vec![
        Reply::Integer(entry.id.cast_signed()),
        Reply::Integer(entry.at_s.cast_signed()),
        Reply::Integer(entry.us.cast_signed()),
        Reply::Array(entry.words.into_iter().map(Reply::Bulk).collect()),
        Reply::bulk(entry.address),
        Reply::bulk(entry.client_name),
    ])
}

/// LATENCY and its subcommands.
pub(super) fn latency(thread: &ThreadContext<'_>, command: LatencyCommand, argv: &Args) -> Reply {
    let events = &thread.shared.latency;
    let now_s = thread.clocks.wall_ms() / 1000;
    let words = argv.get(2..).unwrap_or_default();
    match command {
        LatencyCommand::Doctor => text(doctor(events, thread.config.slowlog_log_slower_than, now_s)),
        LatencyCommand::Graph => match events.of(&words[0]) {
            Some((event, kept)) => text(graph(event, &kept, now_s)),
            None => Reply::error_owned(format!(
                "ERR No samples available for event '{}'",
                String::from_utf8_lossy(&words[0])
            )),
        },
        LatencyCommand::History => {
            let samples = events.of(&words[0]).map(|(_, kept)| kept.samples);
            let pair = |(at_s, ms): (u64, u64)| {
                Reply::Array(vec![Reply::Integer(at_s.cast_signed()), Reply::Integer(ms.cast_signed())])
            };
            Reply::Array(samples.unwrap_or_default().into_iter().map(pair).collect())
        }
        LatencyCommand::Latest => {
            let latest = events.all().into_iter().filter_map(|(event, kept)| {
                let (at_s, ms) = *kept.samples.back()?;
                let numbers = [at_s, ms, kept.max_ms];
                let numbers = numbers.map(|number| Reply::Integer(number.cast_signed()));
                let words = std::iter::once(Reply::bulk(event));
                Some(Reply::Array(words.chain(numbers).collect()))
            });
            Reply::Array(latest.collect())
        }
        LatencyCommand::Reset => {
            let is_meant = |event: &str| {
                let mut names = words.iter();
                words.is_empty() || names.any(|name| options::is(name, event))
            };
            Reply::Integer(events.forget(is_meant) as i64)
        }
        LatencyCommand::Histogram => histograms(thread, words),
    }
}

fn text(text: String) -> Reply {
    Reply::Verbatim("txt", Blob::from(text))
}

/// LATENCY HISTOGRAM [command ...]
fn histograms(thread: &ThreadContext<'_>, names: &[Blob]) -> Reply {
    let totals = thread.shared.call_totals();
    let wanted: Vec<CommandNumber> = names.iter().filter_map(|name| table::find_number(name)).collect();
    let is_wanted = |number: CommandNumber| {
        let name = number.command().name;
        let belongs_to = |wanted: &CommandNumber| {
            let rest = name.strip_prefix(wanted.command().name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        };
        names.is_empty() || wanted.iter().any(belongs_to)
    };
    let shown = totals.iter().filter(|(number, _)| is_wanted(*number));
    let shown =
        shown.filter_map(|(number, count)| Some((Reply::bulk(number.command().name), distribution(count)?)));
    Reply::Map(shown.collect())
}

/// How many calls took at most so many microseconds: powers of two, and only those at which the number grows.
fn distribution(count: &CallCount) -> Option<Reply> {
    /// The first bound, in nanoseconds, and the last: what took longer is told with it.
    const FIRST_NS: u64 = 1024;
    const LAST_NS: u64 = 1 << 30;
    let histogram = count.histogram.as_ref()?;
    let total = histogram.len();
    let (mut bound_ns, mut before) = (FIRST_NS, 0);
    let mut buckets = Vec::new();
    while before < total {
        let upto = match bound_ns {
            LAST_NS => total,
            bound_ns => histogram.count_between(0, bound_ns),
        };
        if upto > before {
            buckets.push((
                // What the histogram does not tell apart from the bound is within it.
                Reply::Integer((histogram.highest_equivalent(bound_ns) / 1000).cast_signed()),
                Reply::Integer(upto.cast_signed()),
            ));
            before = upto;
        }
        bound_ns *= 2;
    }
    Some(Reply::Map(vec![
        (Reply::bulk("calls"), Reply::Integer(total.cast_signed())),
        (Reply::bulk("histogram_usec"), Reply::Map(buckets)),
    ]))
}

/// A time as so many seconds, minutes, hours or days.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// LATENCY GRAPH: a column for each sample, with its age below it.
fn graph(event: &str, kept: &Samples, now_s: u64) -> String {
    let all = || kept.samples.iter().map(|&(_, ms)| ms);
    let (low, high) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
    let mut drawn = format!(
        "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        kept.max_ms,
        "-".repeat(GRAPH_COLUMNS)
    );
    let steps = GRAPH_ROWS * GRAPH_STEPS.len();
    let step_of = |ms: u64| match high - low {
        0 => 0,
        range => ((ms - low) as usize * steps / range as usize).min(steps - 1),
    };
    let samples: Vec<(u64, u64)> = kept.samples.iter().copied().collect();
    for (part, columns) in samples.chunks(GRAPH_COLUMNS).enumerate() {
        if part > 0 {
            drawn.push('\n');
        }
        for row in (0..GRAPH_ROWS).rev() {
            let floor = row * GRAPH_STEPS.len();
            drawn.extend(columns.iter().map(|&(_, ms)| match step_of(ms).checked_sub(floor) {
                None => ' ',
                Some(above) => GRAPH_STEPS.get(above).copied().unwrap_or('|'),
            }));
            drawn.push('\n');
        }
        drawn.push('\n');
        let labels: Vec<String> = columns.iter().map(|&(at_s, _)| age(now_s.saturating_sub(at_s))).collect();
        let longest = labels.iter().map(String::len).max().unwrap_or(0);
        for place in 0..longest {
            let letters = labels.iter();
            drawn.extend(letters.map(|label| label.chars().nth(place).unwrap_or(' ')));
            drawn.push('\n');
        }
    }
    drawn
}

/// What to do about a kind of event.
fn advice(event: &str) -> &'static str {
    match event {
        "command" => {
            "SLOWLOG GET tells which calls took long, and INFO commandstats which commands do. What takes \
             long by itself (KEYS, large ranges, long scripts) is best split, or sent as a read, which \
             delays nobody. A call's time includes that of the disk: see appendfsync."
        }
        "fast-command" => {
            "Commands that should be fast had to wait: for the disk (see appendfsync), for expensive \
             transactions ordered before them (SLOWLOG GET), or for a processor (lower the machine's load)."
        }
        "aof-fsync-always" => {
            "The disk took long to make the log durable, and every write waits for that under 'appendfsync \
             always'. Use a faster disk, one that others use less, or 'appendfsync everysec' if the last \
             second may be lost."
        }
        "checkpoint" => {
            "Checkpoints are written beside everything else. Where they take long and the disk is short of \
             time, let them come less often: a larger checkpoint-log-size."
        }
        _ => "",
    }
}

/// LATENCY DOCTOR.
fn doctor(events: &LatencyEvents, slower_than_us: i64, now_s: u64) -> String {
    let all = events.all();
    let threshold_ms = events.threshold_ms();
    if all.is_empty() {
        return match threshold_ms {
            0 => "Latency monitoring is off: CONFIG SET latency-monitor-threshold <milliseconds> turns it \
                  on.\n"
                .to_owned(),
            ms => format!(
                "Nothing took {ms} ms or more (latency-monitor-threshold) since the start, or \
                           since LATENCY RESET.\n"
            ),
        };
    }
    let mut report = "These kinds of events took long:\n\n".to_owned();
    for (place, (event, kept)) in all.iter().enumerate() {
        let count = kept.samples.len() as u64;
        let each = || kept.samples.iter().map(|&(_, ms)| ms);
        let average_ms = each().sum::<u64>() / count.max(1);
        let deviation_ms = each().map(|ms| ms.abs_diff(average_ms)).sum::<u64>() / count.max(1);
        let first_s = kept.samples.front().map_or(now_s, |&(at_s, _)| at_s);
        let period_s = now_s.saturating_sub(first_s).max(1) as f64 / count.max(1) as f64;
        let _ = writeln!(
            report,
            "{}. {event}: {count} latency spikes (average {average_ms}ms, mean deviation {deviation_ms}ms, \
             period {period_s:.2} sec). Worst all time event {}ms.",
            place + 1,
            kept.max_ms
        );
    }
    report.push_str("\nWhat to do:\n\n");
    for event in all.keys() {
        let _ = writeln!(report, "- {event}: {}", advice(event));
    }
    let threshold_us = threshold_ms.saturating_mul(1000);
    if u64::try_from(slower_than_us).map_or(true, |us| us > threshold_us) {
        let _ = writeln!(
            report,
            "- The slow log misses calls that are shown here: CONFIG SET slowlog-log-slower-than \
             {threshold_us}."
        );
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn samples(all: &[(u64, u64)]) -> Samples {
        Samples { samples: all.iter().copied().collect(), max_ms: 99 }
    }

    #[test]
    fn the_graph_is_one_of_redis() {
        // What Redis 7.0's sparklines draw of the same samples.
        let kept = samples(&[(100, 10), (150, 50), (3700, 90), (3760, 30)]);
        let drawn = graph("command", &kept, 3761);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines[0], "command - high 90 ms, low 10 ms (all time high 99 ms)");
        assert_eq!(lines[2..6], ["  # ", " _| ", " ||_", "_|||"], "{drawn}");
        assert_eq!(lines[6..], ["", "1111", "hhms"]);
    }

    #[test]
    fn the_distribution_has_the_bounds_at_which_it_grows() {
        let mut count = CallCount::default();
        for us in [0, 1, 1, 3, 100, 5_000_000] {
            count.record(us * 1000);
        }
        let Some(Reply::Map(shown)) = distribution(&count) else {
            panic!("a histogram");
        };
        let Reply::Map(buckets) = &shown[1].1 else {
            panic!("buckets");
        };
        let buckets: Vec<(i64, i64)> = buckets
            .iter()
            .map(|pair| match pair {
                (Reply::Integer(us), Reply::Integer(count)) => (*us, *count),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(buckets, [(1, 3), (4, 4), (132, 5), (1_082_130, 6)]);
    }

    #[test]
    fn the_doctor_tells_what_happened_and_what_to_do() {
        let events = LatencyEvents::default();
        assert!(doctor(&events, 0, 9).contains("is off"));
        events.set_threshold_ms(5);
        assert!(doctor(&events, 0, 9).contains("Nothing took 5 ms"));
        for ms in [10, 30] {
            events.note("command", Duration::from_millis(ms), ms);
        }
        let report = doctor(&events, 10_000, 50);
        for part in [
            "1. command: 2 latency spikes (average 20ms, mean deviation 10ms, period 20.00 sec). Worst all \
             time event 30ms.",
            "- command: SLOWLOG GET",
            "slowlog-log-slower-than 5000",
        ] {
            assert!(report.contains(part), "{part}: {report}");
        }
        assert!(!doctor(&events, 5000, 50).contains("slowlog-log-slower-than"));
    }
}
