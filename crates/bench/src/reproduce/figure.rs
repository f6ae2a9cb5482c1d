//! What a reproduced figure is made of: what is measured and modelled, what the paper says of it, and how to
//! get it again.

use super::origin::Origin;
use crate::report::{self, Summary};
use serde::Serialize;
use serde_json::Value;
use std::ops::RangeInclusive;

/// A figure of a paper, reproduced.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its number in the paper.
    pub id: &'static str,
    /// What it shows.
    pub title: String,
    /// What gives it again.
    pub command: String,
    /// The command's options, each with its value and its default.
    pub options: Value,
    /// Where and when it was made.
    pub origin: Origin,
    /// What the model took for granted, and what was measured for it.
    pub parameters: Value,
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
    /// How they lie above each other.
    pub scale: Scale,
    /// One for each contender.
    pub series: Vec<Series>,
    /// Where the paper's text puts a contender.
    pub marks: Vec<Mark>,
}

/// How points lie beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Axis {
    /// As numbers, joined by lines.
    Numbers,
    /// As names, with a bar each.
    Names,
}

/// How points lie above each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Scale {
    /// Logarithmically where factors are large, else linearly.
    Fitting,
    /// Linearly: shares.
    Linear,
}

/// Where figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The scale model.
    Modelled,
    /// This machine's cores.
    Measured,
}

impl Source {
    /// As readers see it.
    pub fn name(self) -> &'static str {
        match self {
            Source::Modelled => "modelled",
            Source::Measured => "measured",
        }
    }
}

/// The points of a contender.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The contender.
    pub name: String,
    /// Where its points come from.
    pub source: Source,
    /// Its points, by their place.
    pub points: Vec<Point>,
}

/// What runs with several seeds found at a place.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Its number, or its place among names.
    pub x: f64,
    /// What the table calls it.
    pub name: String,
    /// The spread of the samples.
    pub y: Summary,
    /// One for each seed, in the order of the seeds.
    pub samples: Vec<Sample>,
}

/// What one run found.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// The seed of the run.
    pub seed: u64,
    /// The figure that is plotted.
    pub y: f64,
    /// All that is known of the run, if it has its own.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub run: Value,
}

impl Point {
    /// A point of these samples.
    pub fn of(x: f64, name: impl Into<String>, samples: Vec<Sample>) -> Point {
        let values: Vec<f64> = samples.iter().map(|sample| sample.y).collect();
        Point { x, name: name.into(), y: Summary::of(&values), samples }
    }
}

/// A place where the paper's text puts a contender, relative to another one here.
#[derive(Clone, Debug, Serialize)]
pub struct Mark {
    /// The series that it is about; another name for a contender that did not run here.
    pub of: String,
    /// Where it is.
    pub x: f64,
    /// The least that the text allows.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// What the text says.
    pub text: String,
}

/// What the paper says, and what came out.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// What it is about.
    pub about: String,
    /// What the paper says.
    pub paper: Option<String>,
    /// The values that agree with it.
    pub agreeing: Option<(f64, f64)>,
    /// What came out here.
    pub ours: Option<Summary>,
    /// Whether that agrees with the paper, if the paper says anything.
    pub agrees: Option<bool>,
    /// What this project asks for, if it does.
    pub bar: Option<Bar>,
    /// Whether that was met.
    pub met: Option<bool>,
    /// Why it came out so.
    pub because: Option<String>,
}

/// What this project asks for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Bar {
    /// The least that is good enough.
    pub at_least: f64,
    /// The most.
    pub at_most: Option<f64>,
}

impl Bar {
    /// As readers see it.
    pub fn shown(self) -> String {
        match self.at_most {
            Some(most) => format!("{} to {most}", self.at_least),
            None => format!("at least {}", self.at_least),
        }
    }
}

/// Values that agree with "about" a value: those within a third of it.
pub fn about(value: f64) -> RangeInclusive<f64> {
    value / 1.33..=value * 1.33
}

/// Factors that agree with "so much more": those of which the gain is within a third of it.
pub fn about_gain(factor: f64) -> RangeInclusive<f64> {
    let gain = about(factor - 1.0);
    1.0 + gain.start()..=1.0 + gain.end()
}

/// The ratios at the place where their median is best, of a panel's places.
pub fn best(panel: &Panel, series: &str, base: &str) -> Vec<f64> {
    let all = panel.places().into_iter().map(|(x, _)| panel.ratios(series, base, x));
    let median = |ratios: &Vec<f64>| Summary::of(ratios).median;
    let all = all.filter(|ratios| !ratios.is_empty());
    all.max_by(|a, b| median(a).total_cmp(&median(b))).unwrap_or_default()
}

impl Claim {
    /// A claim about what came out here. The spread is that of the seeds.
    pub fn new(about: impl Into<String>, ours: &[f64]) -> Claim {
        Claim {
            about: about.into(),
            paper: None,
            agreeing: None,
            ours: (!ours.is_empty()).then(|| Summary::of(ours)),
            agrees: None,
            bar: None,
            met: None,
            because: None,
        }
    }
    /// What the paper says, with the values that agree with it.
    pub fn paper(mut self, text: impl Into<String>, agreeing: RangeInclusive<f64>) -> Claim {
        self.agrees = self.ours.map(|ours| agreeing.contains(&ours.median));
        self.paper = Some(text.into());
        self.agreeing = Some((*agreeing.start(), *agreeing.end()));
        self
    }
    /// What this project asks for.
    pub fn bar(mut self, at_least: f64, at_most: Option<f64>) -> Claim {
        let is_within =
            |ours: Summary| ours.median >= at_least && at_most.is_none_or(|most| ours.median <= most);
        self.bar = Some(Bar { at_least, at_most });
        self.met = Some(self.ours.is_some_and(is_within));
        self
    }
    /// Why it came out so.
    pub fn because(mut self, reason: impl Into<String>) -> Claim {
        self.because = Some(reason.into());
        self
    }
    /// What came out here, as readers see it.
    pub fn shown(&self) -> String {
        self.ours
            .map_or_else(|| "no figure: its base is 0, or it did not run".to_owned(), |ours| spread(&ours))
    }
    /// What the paper's text makes of it.
    pub fn against_paper(&self) -> &'static str {
        match self.agrees {
            Some(true) => "agrees",
            Some(false) => "differs",
            None if self.paper.is_some() => "not judged",
            None => "",
        }
    }
    /// What the project's bar makes of it.
    pub fn against_bar(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        }
    }
}

impl Panel {
    /// A plot without marks.
    pub fn new(
        title: impl Into<String>,
        (x_label, y_label): (&'static str, &'static str),
        axis: Axis,
        series: Vec<Series>,
    ) -> Panel {
        Panel {
            title: title.into(),
            x_label,
            y_label,
            axis,
            scale: Scale::Fitting,
            series,
            marks: Vec::new(),
        }
    }
    fn point(&self, series: &str, source: Source, x: f64) -> Option<&Point> {
        let mut all = self.series.iter();
        let series = all.find(|one| one.name == series && one.source == source)?;
        series.points.iter().find(|point| point.x == x)
    }
    /// What the samples of a modelled series are at a place.
    pub fn samples(&self, series: &str, x: f64) -> Vec<f64> {
        self.samples_of(series, Source::Modelled, x)
    }
    /// What the samples of a series are at a place.
    pub fn samples_of(&self, series: &str, source: Source, x: f64) -> Vec<f64> {
        let point = self.point(series, source, x);
        point.map_or_else(Vec::new, |point| point.samples.iter().map(|sample| sample.y).collect())
    }
    /// The median of a modelled series at a place.
    pub fn median(&self, series: &str, x: f64) -> Option<f64> {
        self.point(series, Source::Modelled, x).map(|point| point.y.median)
    }
    /// One modelled series by another one at a place, seed by seed. Nothing if a base is 0.
    pub fn ratios(&self, series: &str, base: &str, x: f64) -> Vec<f64> {
        ratios(&self.samples(series, x), &self.samples(base, x))
    }
    /// Marks where the paper's text puts a modelled series, as multiples of what another one has here.
    pub fn mark(&mut self, of: &str, x: f64, base: (&str, f64), factors: RangeInclusive<f64>, text: &str) {
        if let Some(base) = self.median(base.0, base.1) {
            let (low, high) = (base * factors.start(), base * factors.end());
            self.marks.push(Mark { of: of.to_owned(), x, low, high, text: text.to_owned() });
        }
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
    /// The least and the largest value that is not 0, marks included.
    pub fn extent(&self) -> Option<(f64, f64)> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let points = points.flat_map(|point| [point.y.min, point.y.max]);
        let all = points.chain(self.marks.iter().flat_map(|mark| [mark.low, mark.high]));
        let positive = all.filter(|value| *value > 0.0);
        positive.fold(None, |found, value| match found {
            Some((least, most)) => Some((value.min(least), value.max(most))),
            None => Some((value, value)),
        })
    }
}

/// The ratios of neighbours. Nothing if one of them has no base to divide by.
pub fn ratios(values: &[f64], bases: &[f64]) -> Vec<f64> {
    let ratios: Option<Vec<f64>> =
        values.iter().zip(bases).map(|(&value, &base)| report::ratio(value, base)).collect();
    ratios.unwrap_or_default()
}

/// A figure as a reader likes it: 1,234,567, or 12.3, or 0.123.
pub fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 1_000.0 => report::rate(value),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A median with its spread.
pub fn spread(summary: &Summary) -> String {
    let Summary { median, min, max, deviation, count, .. } = *summary;
    if count < 2 {
        return shown(median);
    }
    format!("{} ({} to {}, sd {})", shown(median), shown(min), shown(max), shown(deviation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, points: &[&[f64]]) -> Series {
        let points = points.iter().enumerate().map(|(x, values)| {
            let samples = (1..).zip(*values).map(|(seed, &y)| Sample { seed, y, run: Value::Null });
            Point::of(x as f64, x.to_string(), samples.collect())
        });
        Series { name: name.to_owned(), source: Source::Modelled, points: points.collect() }
    }

    fn panel() -> Panel {
        let all = vec![series("a", &[&[2.0, 4.0], &[8.0, 8.0]]), series("b", &[&[1.0, 4.0], &[0.0, 2.0]])];
        Panel::new("title", ("x", "y"), Axis::Names, all)
    }

    #[test]
    fn ratios_are_seed_by_seed_and_need_a_base() {
        assert_eq!(panel().ratios("a", "b", 0.0), [2.0, 1.0]);
        assert!(panel().ratios("a", "b", 1.0).is_empty());
        assert!(panel().ratios("a", "c", 0.0).is_empty());
    }

    #[test]
    fn the_paper_and_the_bar_are_two_verdicts() {
        let verdicts = |ours: &[f64]| {
            let claim = Claim::new("a / b", ours).paper("about 3", about(3.0)).bar(2.5, None);
            (claim.against_paper(), claim.against_bar())
        };
        assert_eq!(verdicts(&[3.0]), ("agrees", "met"));
        assert_eq!(verdicts(&[102.0]), ("differs", "met"));
        assert_eq!(verdicts(&[2.4]), ("agrees", "missed"));
        assert_eq!(verdicts(&[1.0, 1.2, 9.0]), ("differs", "missed"));
        assert_eq!(verdicts(&[]), ("not judged", "missed"));
        let told = Claim::new("a", &[]);
        assert_eq!((told.against_paper(), told.against_bar()), ("", ""));
        assert!(told.shown().starts_with("no figure"));
    }

    #[test]
    fn marks_are_relative_to_what_came_out_here() {
        let mut panel = panel();
        panel.mark("b", 0.0, ("a", 0.0), 0.5..=2.0, "half to twice");
        panel.mark("b", 0.0, ("c", 0.0), 0.5..=2.0, "of nothing");
        let marks: Vec<_> = panel.marks.iter().map(|mark| (mark.low, mark.high)).collect();
        assert_eq!(marks, [(1.5, 6.0)]);
        assert_eq!(panel.extent(), Some((1.0, 8.0)));
    }
}
