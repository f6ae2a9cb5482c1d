//! Where and when figures were made.

use crate::engine::load_average;
use serde::Serialize;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where and when figures were made.
#[derive(Clone, Debug, Serialize)]
pub struct Origin {
    /// The version of the program.
    pub version: &'static str,
    /// The commit of the sources that the program was built from, as they are when it runs. Nothing if they
    /// are gone, or in no repository.
    pub commit: Option<String>,
    /// Whether these sources have changes that the commit has not.
    pub is_changed: Option<bool>,
    /// Whether the program was built for speed.
    pub is_optimized: bool,
    /// When the figures were begun, in UTC.
    pub date: String,
    /// The processor's name.
    pub processor: String,
    /// How many processors the program may use.
    pub processors: usize,
    /// The machine's load over the minute before.
    pub load_average: String,
    /// The operating system and its architecture.
    pub system: String,
}

impl Origin {
    /// This program, here and now.
    pub fn now() -> Origin {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Origin {
            version: env!("CARGO_PKG_VERSION"),
            commit: git(&["rev-parse", "HEAD"]),
            is_changed: git(&["status", "--porcelain", "--untracked-files=no"]).map(|text| !text.is_empty()),
            is_optimized: !cfg!(debug_assertions),
            date: date(now_s),
            processor: processor(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            load_average: load_average(),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        }
    }

    /// In one line.
    pub fn shown(&self) -> String {
        let commit = match (&self.commit, self.is_changed) {
            (Some(commit), Some(false)) => format!("commit {commit}"),
            (Some(commit), _) => format!("commit {commit}, changed"),
            (None, _) => "of no known commit".to_owned(),
        };
        let build = if self.is_optimized { "" } else { ", not optimized" };
        format!(
            "Made {} by ordo {} ({commit}{build}) on {} x {}, {}; load average {} before.",
            self.date, self.version, self.processors, self.processor, self.system, self.load_average
        )
    }
}

/// What Git says of the sources.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| "unknown processor".to_owned(), |(_, name)| name.trim().to_owned())
}

/// Seconds since 1970 as a date of the Gregorian calendar.
fn date(unix_s: u64) -> String {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut day, mut year) = (unix_s / 86_400, 1970);
    loop {
        let days = 365 + u64::from(is_leap(year));
        if day < days {
            break;
        }
        day -= days;
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (unix_s / 3_600 % 24, unix_s / 60 % 60, unix_s % 60);
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(date(1_735_689_599), "2024-12-31T23:59:59Z");
    }
}
