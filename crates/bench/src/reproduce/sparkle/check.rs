//! Real engines beside their model, fed alike: how far the model says of one and two workers what they do.
//!
//! What the model is told was measured without the driver of real engines: the processor time that a worker
//! takes for a step ([`super::super::worker`]). What comes out of it is compared with what that driver
//! measures with threads that share one engine.

use super::super::figure::{Axis, Claim, Panel, Source, ratios};
use super::super::lab::{RUN_AHEAD, add_point, series};
use super::one_node::{measured_point, real_workers};
use super::{CALVIN, Contender, Found, NOCC, Place, SPARKLE, Study, found, synthetic, tpcc};
use anyhow::Result;
use sim::scale::{Report, Times};

/// Modelled / measured may be so much.
pub(super) const BAR: (f64, f64) = (0.8, 1.25);
/// A real engine gets a batch when it is full; the model has epochs, and these are short.
const EPOCH_NS: u64 = 50_000;

impl Study {
    /// One and two workers, on three workloads.
    pub(super) fn check(&mut self) -> Result<Found> {
        let mut apart = tpcc(100, 90);
        apart.set("remote", "off");
        let workloads = [
            ("TPC-C, 100 warehouses apart", apart, &[NOCC, SPARKLE, CALVIN][..]),
            ("TPC-C, one warehouse", tpcc(1, 90), &[SPARKLE, CALVIN]),
            ("synthetic, low contention", synthetic("low", 0, 0), &[NOCC, SPARKLE, CALVIN]),
        ];
        let (mut panels, mut claims) = (Vec::new(), Vec::new());
        for (what, settings, contenders) in workloads {
            let settings = self.measure(contenders, settings)?;
            let panel = self.beside(what, &settings, contenders)?;
            for &contender in contenders {
                for workers in real_workers() {
                    let (name, x) = (contender.to_string(), workers as f64);
                    let modelled = panel.samples(&name, x);
                    let ratios = ratios(&modelled, &panel.samples_of(&name, Source::Measured, x));
                    let about = format!("modelled / measured, {name}, {workers} workers, {what}");
                    claims.push(Claim::new(about, &ratios).bar(BAR.0, Some(BAR.1)));
                }
            }
            panels.push(panel);
        }
        let differences = vec![
            "No figure of the paper: real engines on this machine beside their model, with 128 calls on \
             their way. Workers make their own calls."
                .to_owned(),
            "The model knows no latches, no lines of memory that travel between caches, and no thread that \
             is woken: what these take is what is missing at two workers. Where a worker waits for another \
             one that other processes keep from its processor, the measured figure is too low."
                .to_owned(),
        ];
        Ok(found("real engines with one and two workers, modelled and measured", panels, claims, differences))
    }

    fn beside(
        &self,
        what: &str,
        settings: &crate::engine::Settings,
        contenders: &[Contender],
    ) -> Result<Panel> {
        let mut jobs = Vec::new();
        let mut pairs = Vec::new();
        for &contender in contenders {
            for workers in real_workers() {
                let place = Place {
                    panel: 0,
                    series: contender.to_string(),
                    x: workers as f64,
                    name: workers.to_string(),
                };
                let mut job = self.job(place, contender, (settings, settings), (1, workers))?;
                job.options.costs.call_ns = self.lab.call_ns(contender, settings, workers);
                job.options.clients = RUN_AHEAD;
                job.options.times = Times {
                    epoch_ns: EPOCH_NS,
                    warm_up_ns: 10_000_000,
                    measured_ns: 40_000_000,
                    ..self.lab.times
                };
                jobs.push(job);
                pairs.push((contender, workers));
            }
        }
        let records = self.lab.real(settings, &pairs)?;
        let reports = self.lab.run(what, &jobs)?;
        let mut all = series(0, &jobs, &reports, Report::throughput_per_s);
        for ((contender, workers), records) in pairs.iter().zip(&records) {
            let point = measured_point(*workers as f64, &workers.to_string(), self.lab.seed, records)?;
            add_point(&mut all, &contender.to_string(), Source::Measured, point);
        }
        let title = format!("Modelled and measured: {what}");
        Ok(Panel::new(title, ("workers", "transactions/s"), Axis::Names, all))
    }
}
