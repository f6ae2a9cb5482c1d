//! One page with everything: it opens without a network.

use super::figure::{Claim, Figure, Panel, Point, shown, spread};
use serde_json::Value;
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:66rem;margin:2rem auto;\
padding:0 1rem;color:#222}\
h1{font-size:1.6rem}h2{margin-top:3rem;border-bottom:2px solid #1b6ca8}\
table{border-collapse:collapse;margin:.6rem 0;font-variant-numeric:tabular-nums}\
th,td{border:1px solid #ccc;padding:.2rem .6rem;text-align:right;vertical-align:top}\
th:first-child,td:first-child{text-align:left}td small{color:#666;white-space:nowrap}\
table.claims td{text-align:left}code,pre{background:#f3f3f3;padding:.1rem .3rem;white-space:pre-wrap}\
.agrees,.met{color:#1a7f37;font-weight:600}.differs,.missed{color:#b31b1b;font-weight:600}\
svg{max-width:100%;height:auto}details{margin:.5rem 0}.scroll{overflow-x:auto}";

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
    let all: Vec<(&Figure, &Claim)> =
        figures.iter().flat_map(|figure| figure.claims.iter().map(move |claim| (figure, claim))).collect();
    verdicts(&mut out, &all);
    for (figure, svgs) in figures.iter().zip(svgs) {
        section(&mut out, figure, svgs);
    }
    out.push_str("</html>\n");
    out
}

/// All claims in one table, those that differ from the paper first.
fn verdicts(out: &mut String, all: &[(&Figure, &Claim)]) {
    let paper = |wanted| all.iter().filter(|(_, claim)| claim.agrees == Some(wanted)).count();
    let bar = |wanted| all.iter().filter(|(_, claim)| claim.met == Some(wanted)).count();
    let _ = write!(
        out,
        "<h2>Verdicts</h2><p>{} claims <span class=\"agrees\">agree</span> with the paper, {} <span \
         class=\"differs\">differ</span>. {} bars of this project are <span class=\"met\">met</span>, {} are \
         <span class=\"missed\">missed</span>. A bar may be met where the paper says otherwise: the two are \
         judged apart.</p>",
        paper(true),
        paper(false),
        bar(true),
        bar(false)
    );
    let mut sorted: Vec<&(&Figure, &Claim)> = all.iter().collect();
    sorted.sort_by_key(|(_, claim)| (claim.agrees != Some(false), claim.met != Some(false)));
    claims(out, sorted.into_iter().map(|(figure, claim)| (Some(figure.id), *claim)));
}

fn claims<'a>(out: &mut String, claims: impl Iterator<Item = (Option<&'a str>, &'a Claim)>) {
    out.push_str(
        "<table class=\"claims\"><tr><th>what</th><th>the paper</th><th>here</th><th>against the paper</th>\
         <th>our bar</th></tr>",
    );
    for (figure, claim) in claims {
        let link = figure.map(|id| format!("<a href=\"#figure-{id}\">{id}</a>: ")).unwrap_or_default();
        let because = claim.because.as_deref().filter(|_| figure.is_none()).map(escaped);
        let because = because.map(|text| format!("<br><small>{text}</small>")).unwrap_or_default();
        let bar = claim.bar.map(|bar| bar.shown() + " ").unwrap_or_default();
        let verdict = |text: &str| match text {
            "" => String::new(),
            text => format!("<span class=\"{text}\">{text}</span>"),
        };
        let _ = write!(
            out,
            "<tr><td>{link}{}{because}</td><td>{}</td><td>{}</td><td>{}</td><td>{bar}{}</td></tr>",
            escaped(&claim.about),
            escaped(claim.paper.as_deref().unwrap_or("says nothing")),
            escaped(&claim.shown()),
            verdict(claim.against_paper()),
            verdict(claim.against_bar()),
        );
    }
    out.push_str("</table>");
}

fn section(out: &mut String, figure: &Figure, svgs: &[String]) {
    let _ = write!(
        out,
        "<h2 id=\"figure-{}\">Figure {}: {}</h2><p><code>{}</code></p><p>{}</p>",
        figure.id,
        figure.id,
        escaped(&figure.title),
        escaped(&figure.command),
        escaped(&figure.origin.shown())
    );
    if !figure.claims.is_empty() {
        claims(out, figure.claims.iter().map(|claim| (None, claim)));
    }
    for (panel, svg) in figure.panels.iter().zip(svgs) {
        out.push_str(svg);
        if !panel.marks.is_empty() {
            let texts = panel.marks.iter().map(|mark| format!("{}: {}", mark.of, mark.text));
            let mut texts: Vec<String> = texts.collect();
            texts.dedup();
            let _ = write!(out, "<p><small>Marks: {}.</small></p>", escaped(&texts.join("; ")));
        }
        table(out, panel);
    }
    if !figure.differences.is_empty() {
        out.push_str("<p>What is different from the paper:</p><ul>");
        for difference in &figure.differences {
            let _ = write!(out, "<li>{}</li>", escaped(difference));
        }
        out.push_str("</ul>");
    }
    for (title, value) in [("Options", &figure.options), ("Parameters", &figure.parameters)] {
        let _ = write!(out, "<details><summary>{title}</summary><div class=\"scroll\"><table>");
        rows(out, "", value);
        out.push_str("</table></div></details>");
    }
}

/// Rows for all that a value has, each under its path.
fn rows(out: &mut String, path: &str, value: &Value) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        // Samples are in the JSON file.
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| *name != "rounds") {
                rows(out, &below(name), value);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (place, item) in items.iter().enumerate() {
                rows(out, &below(&place.to_string()), item);
            }
        }
        other => {
            let _ =
                write!(out, "<tr><td>{}</td><td>{}</td></tr>", escaped(path), escaped(&other.to_string()));
        }
    }
}

fn table(out: &mut String, panel: &Panel) {
    let places = panel.places();
    let _ = write!(out, "<div class=\"scroll\"><table><tr><th>{}</th>", escaped(panel.x_label));
    for (_, name) in &places {
        let _ = write!(out, "<th>{}</th>", escaped(name));
    }
    out.push_str("</tr>");
    for series in &panel.series {
        let _ = write!(out, "<tr><td>{}, {}</td>", escaped(&series.name), series.source.name());
        for (x, _) in &places {
            let point = series.points.iter().find(|point| point.x == *x);
            let _ = write!(out, "<td>{}</td>", point.map(cell).unwrap_or_default());
        }
        out.push_str("</tr>");
    }
    out.push_str("</table></div>");
}

/// The median, and under it the spread.
fn cell(point: &Point) -> String {
    let summary = &point.y;
    if summary.count < 2 {
        return shown(summary.median);
    }
    let title = escaped(&spread(summary));
    format!(
        "<span title=\"{title}\">{}<br><small>{} - {}<br>sd {}</small></span>",
        shown(summary.median),
        shown(summary.min),
        shown(summary.max),
        shown(summary.deviation)
    )
}

#[cfg(test)]
mod tests {
    use super::super::figure::{Axis, Sample, Series, Source, about};
    use super::super::origin::Origin;
    use super::*;

    fn figure() -> Figure {
        let samples = [(1, 100.0), (2, 104.0)];
        let samples = samples.map(|(seed, y)| Sample { seed, y, run: serde_json::json!({ "found": y }) });
        let point = Point::of(0.0, "50 %", samples.to_vec());
        let series = Series { name: "a<b".to_owned(), source: Source::Modelled, points: vec![point] };
        let mut panel = Panel::new("Throughput", ("x", "y"), Axis::Names, vec![series]);
        panel.mark("a<b", 0.0, ("a<b", 0.0), 0.5..=0.5, "half of it");
        Figure {
            id: "9",
            title: "variants".to_owned(),
            command: "ordo reproduce sparkle --only 9".to_owned(),
            options: serde_json::json!({ "repeats": { "value": 2, "default": 3 } }),
            origin: Origin::now(),
            parameters: serde_json::json!({ "costs": { "step_ns": 140 }, "rounds": [{ "engine_ns": 1.0 }] }),
            differences: vec!["small tables".to_owned()],
            panels: vec![panel],
            claims: vec![
                Claim::new("one / other", &[102.0])
                    .paper("about 3", about(3.0))
                    .bar(2.5, None)
                    .because("dear"),
                Claim::new("other / nothing", &[]).paper("about 1", about(1.0)),
            ],
        }
    }

    #[test]
    fn a_bar_that_is_met_hides_no_difference_from_the_paper() {
        let page = page("A title", &[], &[figure()], &[vec!["<svg/>".to_owned()]]);
        let wanted = [
            "0 claims <span class=\"agrees\">agree</span> with the paper, 1 <span class=\"differs\">differ",
            "<td><span class=\"differs\">differs</span></td>",
            "<td>at least 2.5 <span class=\"met\">met</span></td>",
            "<td>no figure: its base is 0, or it did not run</td>",
            "not judged",
            "<small>dear</small>",
            "102.0<br><small>100.0 - 104.0<br>sd 2.83</small>",
            "Marks: a&lt;b: half of it.",
            "<td>costs.step_ns</td><td>140</td>",
        ];
        for wanted in wanted {
            assert!(page.contains(wanted), "{wanted}\n{page}");
        }
        assert!(!page.contains("engine_ns"), "rounds are in the JSON file");
    }

    #[test]
    fn json_has_types_defaults_origin_and_samples() {
        let json = serde_json::to_value(figure()).unwrap();
        assert_eq!(json["options"]["repeats"], serde_json::json!({ "value": 2, "default": 3 }));
        assert!(json["origin"]["processors"].as_u64().is_some_and(|count| count > 0), "{json}");
        assert!(json["origin"]["date"].as_str().is_some_and(|date| date.ends_with('Z')), "{json}");
        let point = &json["panels"][0]["series"][0]["points"][0];
        assert_eq!(point["samples"][1]["y"], 104.0);
        assert_eq!((&point["y"]["median"], &point["y"]["count"]), (&102.0.into(), &2.into()));
        assert_eq!(json["claims"][0]["agrees"], false);
        assert_eq!(json["claims"][0]["met"], true);
        assert!(json["claims"][1]["agrees"].is_null() && json["claims"][1]["ours"].is_null());
    }
}
