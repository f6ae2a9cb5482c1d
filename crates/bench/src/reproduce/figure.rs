//! What a reproduced figure is made of: what is measured and modelled, what the paper says of it, and how to
//! get it again.

use serde::Serialize;
use std::collections::BTreeMap;

/// A figure of a paper, reproduced.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its number in the paper.
    pub id: &'static str,
    /// What it shows.
    pub title: String,
    /// What gives it again.
    pub command: String,
    /// With what it was made.
    pub parameters: BTreeMap<String, String>,
    /// What is smaller than in the paper, or otherwise different.
    pub differences: Vec<String>,
    /// The plots.
    pub panels: Vec<Panel>,
    /// What the paper says of it, and what came out here.
    pub claims: Vec<Claim>,
}

/// A plot with its table.
#[derive(Clone, Debug, Serialize)]
pub struct Panel {
    /// What tells it from the figure's other plots.
    pub title: String,
    /// What the points stand for.
    pub x_label: &'static str,
    /// What is plotted.
    pub y_label: &'static str,
    /// How the points lie beside each other.
    pub axis: Axis,
    /// One for each contender.
    pub series: Vec<Series>,
}

/// How points lie beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Axis {
    /// As numbers, joined by lines.
    Numbers,
    /// As names, with a bar each.
    Names,
}

/// The points of a contender.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Who it is.
    pub name: String,
    /// Its points, by their place.
    pub points: Vec<Point>,
}

/// A point.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Its number, or its place among names.
    pub x: f64,
    /// What the table calls it.
    pub name: String,
    /// What was found.
    pub y: f64,
    /// All that is known of the run, if it has its own.
    #[serde(skip_serializing_if = "serde_json::Value::is_null")]
    pub run: serde_json::Value,
}

/// What the paper says, and what came out.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// What it is about.
    pub about: String,
    /// What the paper says.
    pub paper: String,
    /// What came out here.
    pub ours: String,
    /// What this project asks for, if it does.
    pub bar: Option<String>,
    /// Whether that was met.
    pub met: Option<bool>,
}

impl Claim {
    /// A ratio that the paper reports, without a bar of ours.
    pub fn told(about: impl Into<String>, paper: impl Into<String>, ours: String) -> Claim {
        Claim { about: about.into(), paper: paper.into(), ours, bar: None, met: None }
    }
    /// A ratio that must be so large.
    pub fn at_least(about: impl Into<String>, paper: impl Into<String>, ours: f64, bar: f64) -> Claim {
        Claim {
            about: about.into(),
            paper: paper.into(),
            ours: format!("{ours:.2}"),
            bar: Some(format!("at least {bar}")),
            met: Some(ours >= bar),
        }
    }
}

impl Panel {
    /// A series by its name.
    pub fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }
    /// What a series has at a place.
    pub fn at(&self, series: &str, x: f64) -> Option<f64> {
        let points = &self.series(series)?.points;
        points.iter().find(|point| point.x == x).map(|point| point.y)
    }
    /// One series by another one at a place.
    pub fn ratio(&self, series: &str, base: &str, x: f64) -> Option<f64> {
        let base = self.at(base, x).filter(|&base| base > 0.0)?;
        Some(self.at(series, x)? / base)
    }
    /// The places of all series, with their names, in order.
    pub fn places(&self) -> Vec<(f64, &str)> {
        let mut places: Vec<(f64, &str)> = Vec::new();
        for point in self.series.iter().flat_map(|series| &series.points) {
            if !places.iter().any(|(x, _)| *x == point.x) {
                places.push((point.x, &point.name));
            }
        }
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
        places
    }
    /// The largest of all values.
    pub fn largest(&self) -> f64 {
        let points = self.series.iter().flat_map(|series| &series.points);
        points.map(|point| point.y).fold(0.0, f64::max)
    }
}

/// A figure as a reader likes it: 1,234,567, or 12.3, or 0.123.
pub fn shown(value: f64) -> String {
    match value {
        _ if value >= 1_000.0 => crate::report::rate(value),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
