//! Figs 6a and 6b: one node with more and more workers.

use super::super::figure::{Axis, Claim, Panel, Point, Sample, Source, about, ratios};
use super::super::lab::{add_point, series};
use super::{CALVIN, Contender, Found, NOCC, Place, SPARKLE, Study, found, tpcc};
use crate::report::Record;
use anyhow::Result;
use sim::scale::Report;

/// The throughput of a real engine, in the time for which nothing kept its workers from their processors.
pub(super) fn undisturbed_per_s(record: &Record) -> f64 {
    record.undisturbed_spread.map_or(record.throughput_per_s, |spread| spread.median)
}

/// A point of what real runs found, which were made with seeds from `seed` on.
pub(super) fn measured_point(x: f64, name: &str, seed: u64, records: &[Record]) -> Result<Point> {
    let samples = (seed..).zip(records).map(|(seed, record)| {
        Ok(Sample { seed, y: undisturbed_per_s(record), run: serde_json::to_value(record)? })
    });
    Ok(Point::of(x, name, samples.collect::<Result<_>>()?))
}

/// Real engines run with so many workers, as far as there are processors.
pub(super) fn real_workers() -> Vec<usize> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    [1, 2].into_iter().filter(|&workers| workers <= processors).collect()
}

impl Study {
    /// Makes Fig. 6a or 6b.
    pub(super) fn one_node(&mut self, high_conflict: bool) -> Result<Found> {
        let mut settings = tpcc(if high_conflict { 1 } else { 100 }, 90);
        if !high_conflict {
            settings.set("remote", "off");
        }
        let contenders: &[Contender] =
            if high_conflict { &[SPARKLE, CALVIN] } else { &[NOCC, SPARKLE, CALVIN] };
        let pairs: Vec<(Contender, usize)> = contenders
            .iter()
            .flat_map(|&contender| real_workers().into_iter().map(move |workers| (contender, workers)))
            .collect();
        let settings = self.measure(contenders, settings)?;
        let records = self.lab.real(&settings, &pairs)?;
        let counts: &[usize] = if self.quick { &[1, 2, 5, 20, 50] } else { &[1, 2, 5, 10, 20, 30, 40, 50] };
        let mut jobs = Vec::new();
        for &contender in contenders {
            for &workers in counts {
                let place = Place {
                    panel: 0,
                    series: contender.to_string(),
                    x: workers as f64,
                    name: workers.to_string(),
                };
                let mut job = self.job(place, contender, (&settings, &settings), (1, workers))?;
                // Real workers make their own calls, and so do these.
                job.options.costs.call_ns = self.lab.call_ns(contender, &settings, workers);
                jobs.push(job);
            }
        }
        let id = if high_conflict { "6b" } else { "6a" };
        let reports = self.lab.run(&format!("figure {id}"), &jobs)?;
        let mut all = series(0, &jobs, &reports, Report::throughput_per_s);
        for ((contender, workers), records) in pairs.iter().zip(&records) {
            let point = measured_point(*workers as f64, &workers.to_string(), self.lab.seed, records)?;
            add_point(&mut all, &contender.to_string(), Source::Measured, point);
        }
        let title = format!("Figure {id}: throughput by workers");
        let mut panel = Panel::new(title, ("workers", "transactions/s"), Axis::Numbers, all);
        let mut claims = Vec::new();
        if high_conflict {
            claims.push(
                Claim::new("sparkle / calvin, 50 workers", &panel.ratios("sparkle", "calvin", 50.0))
                    .paper("up to about 6", about(6.0))
                    .because(
                        "Ours follows the specification, where NewOrder and Payment of one warehouse meet \
                         at its hot rows; the paper's prototype splits the rows so that they never meet. \
                         And Calvin's scheduler has to lock and release all keys of StockLevel and \
                         OrderStatus, which Sparkle reads at snapshots.",
                    ),
            );
            panel.mark(
                "calvin",
                50.0,
                ("sparkle", 50.0),
                1.0 / 6.0..=1.0 / 6.0,
                "Sparkle is up to about 6 times as fast",
            );
        } else {
            claims.push(
                Claim::new(
                    "sparkle / nocc, 20 workers, no conflicts",
                    &panel.ratios("sparkle", "nocc", 20.0),
                )
                .paper("almost identical up to 30 threads", 0.9..=1.1),
            );
            claims.push(
                Claim::new(
                    "sparkle / nocc, 50 workers, no conflicts",
                    &panel.ratios("sparkle", "nocc", 50.0),
                )
                .paper("less than 20 % overhead", 0.8..=1.05),
            );
            panel.mark("sparkle", 50.0, ("nocc", 50.0), 0.8..=1.0, "less than 20 % below NoCC");
            panel.mark(
                "S-SMR",
                50.0,
                ("sparkle", 50.0),
                1.0 / 2.6..=1.0 / 2.6,
                "2.6 times lower than Sparkle",
            );
        }
        let scales = ratios(&panel.samples("calvin", 50.0), &panel.samples("calvin", 5.0));
        claims.push(
            Claim::new("calvin, 50 workers / 5 workers", &scales)
                .paper("scales only up to five threads: about 1", about(1.0)),
        );
        panel.mark("calvin", 50.0, ("calvin", 5.0), 1.0..=1.0, "scales only up to five threads");
        let title = match high_conflict {
            true => "one node, TPC-C with 90 % updates, one warehouse",
            false => "one node, TPC-C with 90 % updates, 100 warehouses that nobody shares",
        };
        let mut differences = vec![
            "Small tables: 1,000 items (the specification: 100,000), 120 customers of a district \
             (3,000)."
                .to_owned(),
            "TPC-C as specified: NewOrder and Payment meet, customers are named by last name, 1 % of the \
             NewOrders roll back; the paper's does not."
                .to_owned(),
            "Sparkle and nocc run read-only transactions at snapshots, Calvin through its scheduler. \
             Calvin's workers include the scheduler."
                .to_owned(),
            "Workers make their own calls, modelled ones too; the paper has six more threads for that."
                .to_owned(),
            "Measured engines have 128 calls on their way, modelled ones as many clients as keep all workers \
             busy between epochs of several milliseconds. The figure \"check\" has the same for both."
                .to_owned(),
            "S-SMR has one thread for each partition, so it would need a partition for each worker: it is \
             in figures 7 and 8 only."
                .to_owned(),
        ];
        if !high_conflict {
            differences.push("100 warehouses instead of 200: twice as many as workers.".to_owned());
        }
        Ok(found(title, vec![panel], claims, differences))
    }
}
