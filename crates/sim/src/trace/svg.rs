//! The trace as a sequence diagram.
//!
//! Each event has a row of its own, so nothing that stands in a row overlaps another; only arrows cross rows.
//! They are drawn below what the rows contain, each as part of the row in which it ends:
//!
//! - an arrow starts in the row of its departure, where its label stands, and ends in the row of its arrival,
//!   where its flight time stands on the far side of the lifeline;
//! - a second arrival of the same copy is a second, dashed arrow;
//! - a lost copy ends in a cross beside the lifeline that it did not reach;
//! - a copy of which nothing came yet, and one that left before the first row, is a dotted stub.
//!
//! The diagram is in two parts, the lanes' heads and the rows, because a page keeps the heads in view. Both
//! are as wide. All measures are pixels.

use super::words::{columns, cut, escape, milliseconds, visible, wrap};
use super::{Lane, Message, Row, Trace, What};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The colours, light and dark.
pub(super) const STYLE: &str = include_str!("style.css");

/// The height of the lanes' heads.
pub(super) const HEADS: i64 = 34;

const ROW: i64 = 22;
/// What a line of a verdict adds to its row.
const LINE: i64 = 16;
/// Where a row's text stands, an arrow leaves, and one arrives, counted from the row's top.
const BASE: i64 = 15;
const DEPARTURE: i64 = 17;
const ARRIVAL: i64 = 11;
/// A character of 11 pixels takes this many hundredths of a pixel at most, one of 12 this many.
const SMALL: i64 = 670;
const LARGE: i64 = 730;
/// Between a lifeline and a text beside it.
const GAP: i64 = 8;
/// An arrival this many rows after its departure repeats the label.
const FAR: usize = 3;
/// Where not even so much of the label fits, it is not repeated.
const LABEL_COLUMNS_MIN: usize = 8;
/// How many lines of a verdict are shown.
const VERDICT_LINES: usize = 12;

/// A trace with places for all that is drawn.
pub(super) struct Drawing<'a> {
    trace: &'a Trace,
    /// The left edge of the lanes; the times stand before it.
    left: i64,
    lane: i64,
    pub(super) width: i64,
    /// The height of the rows, without the heads.
    pub(super) height: i64,
    places: Vec<Place>,
    /// In which row each copy left.
    departures: BTreeMap<u64, usize>,
    /// The copies that arrived, or were lost.
    ended: BTreeSet<u64>,
}

/// Where a row is.
struct Place {
    top: i64,
    height: i64,
    /// A verdict's lines.
    found: Vec<String>,
}

impl Trace {
    /// A sequence diagram as a whole SVG document: a lifeline for each participant, time running down.
    ///
    /// Colours follow the reader's preference for light or dark. Each row has its full text as its title.
    pub fn svg(&self) -> String {
        let drawing = Drawing::new(self);
        let (width, height) = (drawing.width, drawing.height + HEADS);
        let mut out = String::new();
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\">\n<style>\n{STYLE}</style>\n\
             <rect class=\"back\" width=\"{width}\" height=\"{height}\"/>\n"
        );
        drawing.heads(&mut out);
        let _ = writeln!(out, "<g transform=\"translate(0 {HEADS})\">");
        drawing.rows(&mut out);
        out.push_str("</g>\n</svg>\n");
        out
    }
}

impl<'a> Drawing<'a> {
    pub(super) fn new(trace: &'a Trace) -> Drawing<'a> {
        let times = trace.rows.iter().map(|row| milliseconds(row.at_ns).len());
        let left = 24 + times.fold(2, usize::max) as i64 * SMALL / 100 + 26;
        let lanes = trace.lanes.len().max(1) as i64;
        let lane = (1_150 / lanes).clamp(180, 280);
        // A verdict needs some width even where there is one lane.
        let width = left + (lane * lanes).max(560) + 50;

        let mut drawing = Drawing {
            trace,
            left,
            lane,
            width,
            height: if trace.dropped > 0 { ROW } else { 0 } + 6,
            places: Vec::new(),
            departures: BTreeMap::new(),
            ended: BTreeSet::new(),
        };
        for (index, row) in trace.rows.iter().enumerate() {
            let mut found = Vec::new();
            match &row.what {
                What::Sent(message) => {
                    drawing.departures.insert(message.number, index);
                }
                What::Arrived { message, .. } | What::Lost { message, .. } => {
                    drawing.ended.insert(message.number);
                }
                What::Verdict { text } => {
                    let fitting = (width - left - 24) * 100 / LARGE;
                    found = wrap(text, fitting.max(20) as usize, VERDICT_LINES);
                }
                _ => {}
            }
            let height = ROW + LINE * (found.len().max(1) as i64 - 1);
            drawing.places.push(Place { top: drawing.height, height, found });
            drawing.height += height;
        }
        drawing.height += 10;
        drawing
    }

    /// The lanes' names.
    pub(super) fn heads(&self, out: &mut String) {
        text(out, "time", self.left - 26, 21, "end", "ms");
        for index in 0..self.trace.lanes.len() {
            let name = visible(&self.trace.lanes[index]);
            let x = self.x(index as i64);
            let shown = cut(&name, ((self.lane - 24) * 100 / LARGE) as usize);
            let wide = self.lane - 16;
            out.push_str("<g><title>");
            escape(out, &name);
            let _ = writeln!(
                out,
                "</title><rect class=\"head\" x=\"{}\" y=\"4\" width=\"{wide}\" height=\"26\" rx=\"4\"/>",
                x - wide / 2
            );
            text(out, "name", x, 21, "middle", &shown);
            out.push_str("</g>\n");
        }
    }

    /// The lifelines, the arrows and the rows.
    pub(super) fn rows(&self, out: &mut String) {
        for index in 0..self.trace.lanes.len() {
            let x = self.x(index as i64);
            let _ = writeln!(out, "<path class=\"life\" d=\"M{x} -4V{}\"/>", self.height - 4);
        }
        if let Some(missing) = self.trace.missing() {
            text(out, "missing", self.left, BASE + 3, "start", &missing);
        }
        for (index, row) in self.trace.rows.iter().enumerate() {
            self.line(out, index, row);
        }
        let mut before = None;
        for (index, row) in self.trace.rows.iter().enumerate() {
            let Place { top, height, .. } = self.places[index];
            self.open(out, "row", index, row);
            out.push_str("<title>");
            escape(out, &self.trace.sentence(row));
            let _ = writeln!(
                out,
                "</title>\n<rect class=\"band\" y=\"{top}\" width=\"{}\" height=\"{height}\"/>",
                self.width
            );
            let time = milliseconds(row.at_ns);
            let class = if before.as_ref() == Some(&time) { "time same" } else { "time" };
            text(out, class, self.left - 26, top + BASE, "end", &time);
            before = Some(time);
            self.marks(out, index, row);
            out.push_str("</g>\n");
        }
    }

    /// Opens a group that belongs to a row; `data-row` and `data-message` say to which, and to which copy.
    fn open(&self, out: &mut String, class: &str, index: usize, row: &Row) {
        let _ = write!(out, "<g class=\"{class}\" data-row=\"{index}\"");
        if let Some(message) = row.message() {
            let _ = write!(out, " data-message=\"{}\"", message.number);
        }
        out.push('>');
    }

    /// The middle of a lane.
    fn x(&self, lane: i64) -> i64 {
        self.left + self.lane * lane + self.lane / 2
    }

    fn place(&self, lane: Lane) -> i64 {
        self.x(i64::from(lane.0))
    }

    /// What ends in a row: an arrow, a cross, or a stub.
    fn line(&self, out: &mut String, index: usize, row: &Row) {
        let top = self.places[index].top;
        let departure = |message: &Message| {
            let row = self.departures.get(&message.number)?;
            Some(self.places[*row].top + DEPARTURE)
        };
        let stub = self.lane / 3;
        match &row.what {
            What::Sent(message) if !self.ended.contains(&message.number) => {
                self.open(out, "line", index, row);
                let (x, way) = (self.place(message.from), self.way(message));
                let (end, y) = (x + way * stub, top + ROW + ARRIVAL);
                let _ = write!(out, "<path class=\"open\" d=\"M{x} {}L{end} {y}\"/>", top + DEPARTURE);
            }
            What::Arrived { message, nth } => {
                self.open(out, "line", index, row);
                let (from, to) = (self.place(message.from), self.place(message.to));
                let y = top + ARRIVAL;
                let class = if *nth > 1 { " class=\"again\"" } else { "" };
                match departure(message) {
                    // A message to oneself goes round.
                    Some(start) if from == to => {
                        let out_x = to + 30;
                        let _ = write!(out, "<path{class} d=\"M{from} {start}H{out_x}V{y}H{to}\"/>");
                        head(out, (out_x, y), (to, y));
                    }
                    Some(start) => {
                        let _ = write!(out, "<path{class} d=\"M{from} {start}L{to} {y}\"/>");
                        head(out, (from, start), (to, y));
                    }
                    None => {
                        let start = (to - self.way(message) * stub, y - ROW);
                        let _ = write!(out, "<path class=\"open\" d=\"M{} {}L{to} {y}\"/>", start.0, start.1);
                        head(out, start, (to, y));
                    }
                }
            }
            What::Lost { message, .. } => {
                self.open(out, "line", index, row);
                let (x, y) = (self.cross(message), top + ARRIVAL);
                let (start, class) = match departure(message) {
                    Some(start) => ((self.place(message.from), start), "lost"),
                    None => ((x - self.way(message) * stub, y - ROW), "lost open"),
                };
                let _ = write!(
                    out,
                    "<path class=\"{class}\" d=\"M{} {}L{x} {y}\"/>\
                     <path class=\"lost cross\" d=\"M{} {}l10 10m0 -10l-10 10\"/>",
                    start.0,
                    start.1,
                    x - 5,
                    y - 5
                );
            }
            _ => return,
        }
        out.push_str("</g>\n");
    }

    /// 1 if a message goes to the right, or round; -1 if it goes to the left.
    fn way(&self, message: &Message) -> i64 {
        if message.to < message.from { -1 } else { 1 }
    }

    /// Where a lost message ends: half a lane before its receiver.
    fn cross(&self, message: &Message) -> i64 {
        let to = self.place(message.to);
        if message.from == message.to {
            return to + self.lane / 4;
        }
        to - self.way(message) * self.lane / 2
    }

    /// What stands in a row.
    fn marks(&self, out: &mut String, index: usize, row: &Row) {
        let Place { top, ref found, .. } = self.places[index];
        let base = top + BASE;
        match &row.what {
            What::Sent(message) => {
                let x = self.place(message.from);
                let _ =
                    write!(out, "<circle class=\"dot\" cx=\"{x}\" cy=\"{}\" r=\"2.5\"/>", top + DEPARTURE);
                // Half a lane beyond the receiver is free in this row, too.
                let apart = (self.place(message.to) - x).abs();
                let reach = apart.max(self.lane / 2) + self.lane / 2;
                let label = visible(&message.label);
                self.beside(out, "label", x, base - 2, self.way(message), reach, &label);
            }
            What::Arrived { message, nth } => {
                let (x, way) = (self.place(message.to), self.way(message));
                let mut said = format!("{} ms", milliseconds(row.flight_ns(message)));
                if *nth > 1 {
                    said.insert_str(0, "again ");
                }
                let near =
                    self.departures.get(&message.number).is_some_and(|departure| index - departure < FAR);
                let round = if message.from == message.to { 30 } else { 0 };
                if !near {
                    let room = self.room(x + round, way, self.lane);
                    let room = room.saturating_sub(columns(&said) + 3);
                    let label = visible(&message.label);
                    // Two letters and an ellipsis would tell nobody what arrived.
                    if !label.is_empty() && room >= columns(&label).min(LABEL_COLUMNS_MIN) {
                        said = format!("{} · {said}", cut(&label, room));
                    }
                }
                self.beside(out, "flight", x + round, base, way, self.lane, &said);
            }
            What::Lost { message, why } => {
                let said = format!("{} · {} ms", visible(why), milliseconds(row.flight_ns(message)));
                let x = self.cross(message);
                self.beside(out, "why", x, base, self.way(message), self.lane, &said);
            }
            What::Stray { id, fate } => {
                let said = format!("#{id} {}: no longer known what it was", visible(fate));
                text(out, "missing", self.left, base, "start", &said);
            }
            What::Note { lane, text } => self.boxed(out, "note", "noted", *lane, top, text),
            What::Fault { lane: Some(lane), text } => self.boxed(out, "fault", "faulty", *lane, top, text),
            What::Fault { lane: None, text: fault } => {
                self.across(out, "fault", top, ROW);
                let fitting = (self.width - self.left - 24) * 100 / SMALL;
                let shown = cut(&visible(fault), fitting.max(20) as usize);
                let middle = (self.left + self.width) / 2;
                text(out, "faulty", middle, base, "middle", &shown);
            }
            What::Verdict { .. } => {
                self.across(out, "verdict", top, self.places[index].height);
                for (line, shown) in found.iter().enumerate() {
                    let y = base + LINE * line as i64;
                    text(out, "found", self.left + 2, y, "start", shown);
                }
            }
        }
    }

    /// How many columns fit beside `x`, on the side of `way`, in at most `reach` pixels.
    fn room(&self, x: i64, way: i64, reach: i64) -> usize {
        let edge = if way > 0 { self.width - x } else { x - self.left + 20 };
        ((edge.min(reach) - GAP).max(0) * 100 / SMALL) as usize
    }

    /// A text beside a lifeline, cut to what fits.
    #[expect(clippy::too_many_arguments, reason = "a place, a side and a limit have no name together")]
    fn beside(&self, out: &mut String, class: &str, x: i64, y: i64, way: i64, reach: i64, said: &str) {
        let shown = cut(said, self.room(x, way, reach));
        let anchor = if way > 0 { "start" } else { "end" };
        text(out, class, x + way * GAP, y, anchor, &shown);
    }

    /// A small box at a lane.
    fn boxed(&self, out: &mut String, class: &str, ink: &str, lane: Lane, top: i64, said: &str) {
        let middle = self.place(lane);
        // A box may stand out of its lane: no other box is in its row. Its middle is the lane's, so that it
        // is clear whose it is.
        let half = (middle - self.left + 8).min(self.width - 4 - middle);
        let fitting = ((2 * half).min(self.lane * 3 / 2) - 12) * 100 / SMALL;
        let shown = cut(&visible(said), fitting as usize);
        let wide = (columns(&shown) as i64 * SMALL / 100 + 12).max(16);
        let x = middle - wide / 2;
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"{wide}\" height=\"{}\" rx=\"3\"/>",
            top + 2,
            ROW - 4
        );
        text(out, ink, x + wide / 2, top + BASE, "middle", &shown);
    }

    /// A box across all lanes.
    fn across(&self, out: &mut String, class: &str, top: i64, height: i64) {
        let x = self.left - 8;
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\"/>",
            top + 2,
            self.width - 4 - x,
            height - 4
        );
    }
}

/// A line of text; `anchor` is SVG's text-anchor.
fn text(out: &mut String, class: &str, x: i64, y: i64, anchor: &str, said: &str) {
    let _ = write!(out, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\"");
    if anchor != "start" {
        let _ = write!(out, " text-anchor=\"{anchor}\"");
    }
    out.push('>');
    escape(out, said);
    out.push_str("</text>\n");
}

/// The head of an arrow from `from` to `to`, which are not the same.
fn head(out: &mut String, from: (i64, i64), to: (i64, i64)) {
    const LONG: f64 = 9.0;
    const HALF: f64 = 3.5;
    let (x, y) = (to.0 as f64, to.1 as f64);
    let (along_x, along_y) = (x - from.0 as f64, y - from.1 as f64);
    // Only operations that IEEE 754 rounds exactly, so that every machine draws the same bytes.
    let length = (along_x * along_x + along_y * along_y).sqrt();
    let (along_x, along_y) = (along_x / length, along_y / length);
    let (back_x, back_y) = (x - LONG * along_x, y - LONG * along_y);
    let (side_x, side_y) = (-HALF * along_y, HALF * along_x);
    let _ = write!(
        out,
        "<polygon points=\"{x},{y} {:.1},{:.1} {:.1},{:.1}\"/>",
        back_x + side_x,
        back_y + side_y,
        back_x - side_x,
        back_y - side_y
    );
}
