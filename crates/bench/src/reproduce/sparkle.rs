//! `ordo reproduce sparkle`: section 5 of the Sparkle paper.
//!
//! Figs 6a and 6b (one node, more and more cores) run for real as far as this machine has cores, and in the
//! scale model ([`sim::scale`]) up to 50 workers. Figs 7 to 10 (clusters) are modelled. What a step of an
//! engine costs is measured here first, with one real worker and with all processors busy, on each workload.
//! Two figures are ours: [`check`] runs real engines beside their model, and [`processes`] three real
//! processes, to show what the model is worth.
//!
//! Every run is repeated with several seeds. A claim has two verdicts that do not depend on each other:
//! whether it agrees with the paper, and, where the project has a bar, whether that is met.

mod check;
mod one_node;
mod processes;
mod synthetic;
mod tpcc;

use super::lab::{Job, Lab, Place};
use super::study::{Found, Made, Options, Page, found};
use crate::engine::Settings;
use anyhow::Result;
use execute::EngineKind;
use sim::scale::{self, Contender};

/// The figures. The last two are not the paper's.
pub const FIGURES: [&str; 8] = ["6a", "6b", "7", "8", "9", "10", CHECK, PROCESSES];
/// Real engines beside their model.
pub const CHECK: &str = "check";
/// Three real processes beside their model.
pub const PROCESSES: &str = "3p";

const SPARKLE: Contender = Contender::SPARKLE;
const CALVIN: Contender = Contender::of(EngineKind::Calvin);
const SSMR: Contender = Contender::of(EngineKind::Ssmr);
const NOCC: Contender = Contender::of(EngineKind::NoCc);
/// Nodes and workers of Figs 7 to 9.
const NODES: u16 = 8;
const WORKERS: usize = 5;
/// The least clients of a node.
const CLIENTS_MIN: usize = 200;
/// Keys of a partition; the paper has a million.
const KEYS: u32 = 200_000;
/// Warehouses of a node of Figs 8 and 10.
const WAREHOUSES: u32 = 12;

/// What the figures share.
struct Study {
    lab: Lab,
    quick: bool,
}

/// Runs what is wanted, and writes it. Returns the page, and the claims.
pub fn run(options: &Options) -> Result<Made> {
    let mut study = Study { lab: options.lab(), quick: options.quick };
    let page = Page {
        title: "Sparkle's evaluation, reproduced",
        head: head(options),
        figures: &FIGURES,
        only: &options.only,
    };
    page.make(options, |id| study.figure(id))
}

/// What the page says first.
fn head(options: &Options) -> Vec<String> {
    vec![
        "Sparkle (VLDB 2019), section 5, reproduced with Ordo's engines. The paper's figures are images \
         that we do not have: what stands under \"the paper\" is what its text says, and diamonds in a plot \
         stand where the text puts a contender, relative to what came out here. \"About\" a value is within \
         a third of it."
            .to_owned(),
        "\"Measured\" figures come from this machine's cores, in the time for which workers did not wait for \
         a processor that other processes had. \"Modelled\" figures come from the scale model: real engines, \
         stepped one operation at a time (nocc: one transaction) by virtual workers in virtual time. Each \
         step takes what it takes a real worker on average; latches between cores cost nothing in the model, \
         and the network has no losses. Ratios between engines in one figure mean more than absolute figures."
            .to_owned(),
        format!(
            "Each run is repeated with {} seeds from {} on. Tables and plots show the median, the least and \
             the largest sample, and the standard deviation (sd). The same seeds and costs give the same \
             modelled runs; measured costs differ from machine to machine.{}",
            options.repeats,
            options.seed,
            if options.quick { " A quick run: few points, short, small." } else { "" }
        ),
    ]
}

/// Sparkle's synthetic workload; percentages of dependent and multi-partition transactions.
fn synthetic(contention: &str, dependent: u32, multi: u32) -> Settings {
    let mut settings = Settings::new("synthetic");
    settings.set("contention", contention);
    settings.set("dependent-percent", dependent);
    settings.set("multi-partition-percent", multi);
    settings.set("keys", KEYS);
    settings
}

fn tpcc(warehouses: u32, updates: u32) -> Settings {
    let mut settings = Settings::new("tpcc");
    settings.set("warehouses", warehouses);
    settings.set("update-percent", updates);
    settings.set("scale", "small");
    settings
}

impl Study {
    /// A modelled run. Its steps cost what was measured on `calibrated`.
    fn job(
        &self,
        place: Place,
        contender: Contender,
        (settings, calibrated): (&Settings, &Settings),
        (nodes, workers): (u16, usize),
    ) -> Result<Job> {
        let lab = &self.lab;
        Ok(Job {
            panel: place.panel,
            series: place.series,
            x: place.x,
            name: place.name,
            options: scale::Options {
                nodes,
                workers,
                contender,
                workload: settings.spread(nodes)?,
                clients: lab.clients(contender, calibrated, workers),
                times: lab.times,
                costs: lab.costs_of(contender, calibrated, workers),
                seed: lab.seed,
                judged: false,
                replication: None,
            },
        })
    }

    /// Makes a figure.
    fn figure(&mut self, id: &'static str) -> Result<Found> {
        let found = match id {
            "6a" => self.one_node(false),
            "6b" => self.one_node(true),
            "7" => self.synthetic(),
            "8" => self.tpcc(),
            "9" => self.variants(),
            "10" => self.nodes(),
            PROCESSES => self.processes(),
            _ => self.check(),
        };
        let mut found = found?;
        if found.parameters.is_null() {
            found.parameters = self.lab.parameters();
        }
        Ok(found)
    }

    /// Finds what the steps of these contenders cost on a workload, unless that was done.
    fn measure(&mut self, contenders: &[Contender], settings: Settings) -> Result<Settings> {
        self.lab.calibrate(contenders, &settings)?;
        Ok(settings)
    }
}

/// The contenders that execute transactions over several partitions.
const OVER_PARTITIONS: [Contender; 3] = [SPARKLE, CALVIN, SSMR];
