//! The trace as one page that opens without a network.
//!
//! Nothing of the trace gets into the script: it finds the rows by their attributes, and their full texts in
//! their titles. The page is well-formed XML, too, so that a test can check it.

use super::Trace;
use super::svg::{Drawing, HEADS, STYLE};
use super::words::{escape, visible};
use std::fmt::Write;

const PAGE_STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

impl Trace {
    /// A page around the diagram. `head` says what made the run: the seed, the options, the command that
    /// replays it.
    ///
    /// The lanes' names stay in view, a filter dims all rows whose full text does not contain what is typed
    /// (Enter goes from one to the next), and pointing at a message lights up all that belongs to it.
    pub fn html(&self, title: &str, head: &str) -> String {
        let drawing = Drawing::new(self);
        let (width, height) = (drawing.width, drawing.height);
        let mut out = String::new();
        out.push_str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>");
        escape(&mut out, &visible(title));
        let _ = write!(out, "</title>\n<style>\n{PAGE_STYLE}{STYLE}</style>\n</head>\n<body>\n<h1>");
        escape(&mut out, &visible(title));
        // A page drops a line break right behind <pre>.
        out.push_str("</h1>\n<pre>\n");
        for line in super::words::lines(head) {
            escape(&mut out, &line);
            out.push('\n');
        }
        let _ = write!(
            out,
            "</pre>\n<div class=\"top\">\n<div class=\"bar\">\
             <input id=\"filter\" type=\"search\" placeholder=\"dim rows without this text\" \
             aria-label=\"dim rows without this text\" autocomplete=\"off\"/>\
             <output id=\"count\"></output>\
             <span class=\"hint\">one event a row, not to scale; point at a row for its full text</span>\
             </div>\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{HEADS}\">\n"
        );
        drawing.heads(&mut out);
        let _ = write!(
            out,
            "</svg>\n</div>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\
             \">\n"
        );
        drawing.rows(&mut out);
        let _ = write!(out, "</svg>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
        out
    }
}
