//! The trace as text: time, participants, and what happened.
//!
//! The participant that comes first is the one at which the row happens: `a --> b` leaves `a`, `b <-- a`
//! arrives at `b`, `a --x b` was lost. So a search for ` b` after the time finds what `b` did and saw.

use super::words::{columns, lines, milliseconds, visible};
use super::{Lane, Row, Trace, What};
use std::fmt::Write;

/// Who stands at all participants: a fault without a lane, a verdict.
const EVERYBODY: &str = "*";

impl Trace {
    /// All that is kept, one event a row in aligned columns; a text of several lines goes on in its column.
    /// Virtual time is in milliseconds.
    pub fn text(&self) -> String {
        let rows: Vec<_> =
            self.rows.iter().map(|row| (milliseconds(row.at_ns), self.who(row), self.what(row))).collect();
        let widest = |heading: &str, texts: &mut dyn Iterator<Item = &String>| {
            let texts = texts.map(|text| columns(text));
            texts.fold(columns(heading), usize::max)
        };
        let (time, who) = ("ms", "who");
        let time_columns = widest(time, &mut rows.iter().map(|row| &row.0));
        let who_columns = widest(who, &mut rows.iter().map(|row| &row.1));

        let mut out = String::new();
        if let Some(missing) = self.missing() {
            let _ = writeln!(out, "({missing})");
        }
        let mut line = |time: &str, who: &str, what: &str| {
            // Padding by hand: `{:>8}` counts characters, not columns.
            let before = time_columns - columns(time);
            let between = who_columns - columns(who);
            let row = format!("{:before$}{time}  {who}{:between$}  {what}", "", "");
            out.push_str(row.trim_end());
            out.push('\n');
        };
        line(time, who, "what");
        for (time, who, what) in rows {
            let mut what = what.into_iter();
            line(&time, &who, &what.next().unwrap_or_default());
            for more in what {
                line("", "", &more);
            }
        }
        out
    }

    /// A row in one line of text; only its own line breaks remain.
    pub(super) fn sentence(&self, row: &Row) -> String {
        format!("{} ms  {}  {}", milliseconds(row.at_ns), self.who(row), self.what(row).join("\n"))
    }

    fn who(&self, row: &Row) -> String {
        let name = |lane: Lane| visible(self.name(lane));
        match &row.what {
            What::Sent(message) => format!("{} --> {}", name(message.from), name(message.to)),
            What::Arrived { message, .. } => {
                format!("{} <-- {}", name(message.to), name(message.from))
            }
            What::Lost { message, .. } => {
                format!("{} --x {}", name(message.from), name(message.to))
            }
            What::Note { lane, .. } | What::Fault { lane: Some(lane), .. } => name(*lane),
            What::Stray { .. } => "?".to_owned(),
            What::Fault { lane: None, .. } | What::Verdict { .. } => EVERYBODY.to_owned(),
        }
    }

    fn what(&self, row: &Row) -> Vec<String> {
        let mut what = match &row.what {
            What::Note { text, .. } => lines(text),
            What::Fault { text, .. } => lines(&format!("FAULT {text}")),
            What::Verdict { text } => lines(&format!("VERDICT {text}")),
            What::Stray { id, fate } => {
                vec![format!("#{id} {}: no longer known what it was", visible(fate))]
            }
            What::Sent(message) | What::Arrived { message, .. } | What::Lost { message, .. } => {
                let mut what = lines(&message.label);
                what[0].insert_str(0, &format!("#{} ", message.id));
                what
            }
        };
        let end = match &row.what {
            What::Arrived { message, nth } => {
                let again = if *nth > 1 { "again " } else { "" };
                let flight = milliseconds(row.flight_ns(message));
                Some(format!("  [{again}after {flight} ms]"))
            }
            What::Lost { message, why } => {
                let flight = milliseconds(row.flight_ns(message));
                Some(format!("  [lost after {flight} ms: {}]", visible(why)))
            }
            _ => None,
        };
        if let (Some(end), Some(last)) = (end, what.last_mut()) {
            last.push_str(&end);
        }
        what
    }
}
