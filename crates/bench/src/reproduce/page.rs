//! One page with everything: it opens without a network.

use super::figure::{Claim, Figure, Panel, shown};
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;\
padding:0 1rem;color:#222}\
h1{font-size:1.6rem}h2{margin-top:3rem;border-bottom:2px solid #1b6ca8}h3{font-size:1rem;\
margin-bottom:.3rem}\
table{border-collapse:collapse;margin:.6rem 0;font-variant-numeric:tabular-nums}\
th,td{border:1px solid #ccc;padding:.2rem .6rem;text-align:right}\
th:first-child,td:first-child{text-align:left}\
table.claims td{text-align:left}code,pre{background:#f3f3f3;padding:.1rem .3rem;white-space:pre-wrap}\
.met{color:#1a7f37;font-weight:600}.missed{color:#b31b1b;font-weight:600}svg{max-width:100%;height:auto}\
details{margin:.5rem 0}";

/// Text in a page.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

/// The page of a reproduction. `svgs` are the plots of all panels, in order.
pub fn page(title: &str, head: &[String], figures: &[Figure], svgs: &[Vec<String>]) -> String {
    let mut out = String::new();
    let title = escaped(title);
    // Writing into a string does not fail.
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}\
         </style><h1>{title}</h1>"
    );
    for text in head {
        let _ = write!(out, "<p>{}</p>", escaped(text));
    }
    let bars: Vec<&Claim> =
        figures.iter().flat_map(|figure| &figure.claims).filter(|claim| claim.bar.is_some()).collect();
    if !bars.is_empty() {
        out.push_str("<h2>Bars</h2>");
        claims(&mut out, bars.into_iter());
    }
    for (figure, svgs) in figures.iter().zip(svgs) {
        section(&mut out, figure, svgs);
    }
    out.push_str("</html>\n");
    out
}

fn claims<'a>(out: &mut String, claims: impl Iterator<Item = &'a Claim>) {
    out.push_str("<table class=\"claims\"><tr><th>what</th><th>the paper</th><th>here</th><th>bar</th></tr>");
    for claim in claims {
        let bar = claim.bar.as_deref().map(escaped).unwrap_or_default();
        let verdict = match claim.met {
            Some(true) => " <span class=\"met\">met</span>",
            Some(false) => " <span class=\"missed\">missed</span>",
            None => "",
        };
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{bar}{verdict}</td></tr>",
            escaped(&claim.about),
            escaped(&claim.paper),
            escaped(&claim.ours),
        );
    }
    out.push_str("</table>");
}

fn section(out: &mut String, figure: &Figure, svgs: &[String]) {
    let _ = write!(
        out,
        "<h2 id=\"figure-{}\">Figure {}: {}</h2><p><code>{}</code></p>",
        figure.id,
        figure.id,
        escaped(&figure.title),
        escaped(&figure.command)
    );
    if !figure.claims.is_empty() {
        claims(out, figure.claims.iter());
    }
    for (panel, svg) in figure.panels.iter().zip(svgs) {
        let _ = write!(out, "<h3>{}</h3>{svg}", escaped(&panel.title));
        table(out, panel);
    }
    if !figure.differences.is_empty() {
        out.push_str("<p>What is different from the paper:</p><ul>");
        for difference in &figure.differences {
            let _ = write!(out, "<li>{}</li>", escaped(difference));
        }
        out.push_str("</ul>");
    }
    out.push_str("<details><summary>Parameters</summary><table>");
    for (name, value) in &figure.parameters {
        let (name, value) = (escaped(name), escaped(value));
        let _ = write!(out, "<tr><td>{name}</td><td>{value}</td></tr>");
    }
    out.push_str("</table></details>");
}

fn table(out: &mut String, panel: &Panel) {
    let places = panel.places();
    let _ = write!(out, "<table><tr><th>{}</th>", escaped(panel.x_label));
    for (_, name) in &places {
        let _ = write!(out, "<th>{}</th>", escaped(name));
    }
    out.push_str("</tr>");
    for series in &panel.series {
        let _ = write!(out, "<tr><td>{}</td>", escaped(&series.name));
        for (x, _) in &places {
            let value = panel.at(&series.name, *x).map(shown);
            let _ = write!(out, "<td>{}</td>", value.unwrap_or_default());
        }
        out.push_str("</tr>");
    }
    out.push_str("</table>");
}
