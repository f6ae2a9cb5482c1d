//! The options of all reproductions, and the page that their figures become.

use super::figure::{Claim, Figure, Panel};
use super::lab::Lab;
use super::origin::Origin;
use anyhow::{Result, bail};
use sim::scale::{Costs, Times};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The options of a reproduction.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the report goes.
    pub dir: PathBuf,
    /// Fewer points and shorter runs.
    pub quick: bool,
    /// The figures wanted, of the page's; none means all.
    pub only: Vec<String>,
    /// The first seed.
    pub seed: u64,
    /// How many seeds each run is repeated with.
    pub repeats: usize,
    /// Seconds of each real measurement.
    pub seconds: f64,
    /// The command without `--only`, as it would be typed.
    pub command: String,
    /// Its options by name, each with its value and its default.
    pub told: serde_json::Value,
    /// Times of the model.
    pub times: Times,
    /// Prices of the model.
    pub costs: Costs,
    /// Whether steps and reads are measured on this machine first.
    pub calibrated: bool,
}

impl Options {
    /// The laboratory that runs models and engines.
    pub(super) fn lab(&self) -> Lab {
        Lab {
            seed: self.seed,
            repeats: self.repeats,
            times: self.times,
            costs: self.costs,
            calibrated: self.calibrated,
            seconds: self.seconds,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            measured: BTreeMap::new(),
        }
    }
}

/// The page, and its claims.
pub type Made = (PathBuf, Vec<Claim>);

/// A figure without its origin.
pub(super) struct Found {
    pub(super) title: String,
    pub(super) panels: Vec<Panel>,
    pub(super) claims: Vec<Claim>,
    pub(super) differences: Vec<String>,
    pub(super) parameters: serde_json::Value,
}

/// A figure whose parameters are the laboratory's.
pub(super) fn found(title: &str, panels: Vec<Panel>, claims: Vec<Claim>, differences: Vec<String>) -> Found {
    Found { title: title.to_owned(), panels, claims, differences, parameters: serde_json::Value::Null }
}

/// A page of figures.
pub(super) struct Page<'a> {
    pub(super) title: &'static str,
    /// What the page says first.
    pub(super) head: Vec<String>,
    /// All figures, in their order.
    pub(super) figures: &'a [&'static str],
    /// Those that are wanted; none means all.
    pub(super) only: &'a [String],
}

impl Page<'_> {
    /// Makes each figure, and writes what there is after each. Returns the page, and the claims.
    pub(super) fn make(
        mut self,
        options: &Options,
        mut figure: impl FnMut(&'static str) -> Result<Found>,
    ) -> Result<Made> {
        if options.repeats == 0 {
            bail!("--repeats must be at least 1");
        }
        let is_wanted = |id: &str| self.only.is_empty() || self.only.iter().any(|only| only == id);
        let origin = Origin::now();
        self.head.push(origin.shown());
        let mut figures: Vec<Figure> = Vec::new();
        for &id in self.figures.iter().filter(|id| is_wanted(id)) {
            let Found { title, panels, claims, differences, parameters } = figure(id)?;
            figures.push(Figure {
                id,
                title,
                command: format!("{} --only {id}", options.command),
                options: options.told.clone(),
                origin: origin.clone(),
                parameters,
                differences,
                panels,
                claims,
            });
            // A reader need not wait for the rest, and an interrupted run leaves what was done.
            let page = super::write(&options.dir, self.title, &self.head, &figures)?;
            eprintln!("figure {id} is in {}", page.display());
        }
        let claims = figures.into_iter().flat_map(|figure| figure.claims);
        Ok((options.dir.join("index.html"), claims.collect()))
    }
}
