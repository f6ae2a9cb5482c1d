//! The metrics of a site that commits alone. Other servers list them without values, but `ordo_geo_enabled`.

use super::Writer;
use crate::cluster::geo::{GeoReport, PairStatus};
use crate::runtime::{CertifiedStatus, Told};
use std::fmt;

type OfSite = (&'static str, &'static str, fn(&GeoReport) -> u64);
type OfPair = (&'static str, &'static str, fn(&PairStatus) -> u64);

const GAUGES: [OfSite; 4] = [
    ("ordo_geo_updates_retained", "Updates of this site that it keeps for others.", |report| report.retained),
    ("ordo_geo_open_transactions", "Transactions that clients hold open.", |report| report.transactions.open),
    ("ordo_geo_granted_numbers_out", "Numbers granted to other sites that are not counted yet.", |report| {
        report.numbers_out
    }),
    ("ordo_geo_incarnation", "How often the site has begun without its data.", |report| {
        u64::from(report.incarnation.unwrap_or(0))
    }),
];

const COUNTERS: [OfSite; 5] = [
    ("ordo_geo_committed", "Transactions of this site's clients that took effect or only read.", |report| {
        report.transactions.committed
    }),
    ("ordo_geo_given_up", "Requests that other sites did not answer in time.", |report| {
        report.transactions.given_up
    }),
    ("ordo_geo_remote_reads", "Answers of other sites to reads of this site's transactions.", |report| {
        report.remote_reads
    }),
    ("ordo_geo_null_updates", "Granted numbers whose transactions did not commit.", |report| report.nulls),
    ("ordo_geo_forgotten", "Open transactions that their clients had forgotten.", |report| {
        report.transactions.forgotten
    }),
];

const PAIRS: [OfPair; 8] = [
    ("ordo_geo_linked", "1 if there is a link to the other site, else 0.", |pair| u64::from(pair.is_linked)),
    ("ordo_geo_fenced", "1 if the other site is fenced, else 0.", |pair| u64::from(pair.is_fenced)),
    ("ordo_geo_fencing", "1 if a fence of the other site is under way, else 0.", |pair| {
        u64::from(pair.is_fencing)
    }),
    ("ordo_geo_queue", "Updates of this site that the other one lacks.", |pair| pair.queue),
    ("ordo_geo_lag_milliseconds", "For how long the other site has lacked the oldest of them.", |pair| {
        pair.lag_ms
    }),
    ("ordo_geo_waiting", "Updates of the other site that wait here for earlier ones.", |pair| pair.waiting),
    (
        "ordo_geo_lost",
        "Updates of the other site that are lost, as far as this one was told of them.",
        |pair| pair.lost,
    ),
    ("ordo_geo_silent_milliseconds", "For how long nothing has come from the other site.", |pair| {
        pair.silent_ms
    }),
];

pub fn encode(status: Option<&CertifiedStatus>, out: &mut Writer<'_>) -> fmt::Result {
    let told = status.and_then(|status| match status.told() {
        Told::Geo(told) => Some(told),
        Told::Hierarchy(_) => None,
    });
    let report = || told.iter().flat_map(|told| &told.sites).filter_map(|site| site.report.as_ref());
    out.gauge(
        "ordo_geo_enabled",
        "1 if this is a site that commits alone, else 0.",
        u32::from(told.is_some()),
    )?;
    for (name, help, value) in GAUGES {
        out.gauges(name, None, help, report().map(|report| ([("", ""); 0], value(report))))?;
    }
    for (name, help, value) in COUNTERS {
        out.counters(name, None, help, report().map(|report| ([("", ""); 0], value(report))))?;
    }
    let conflicts = report().flat_map(|GeoReport { transactions, .. }| {
        [("key", transactions.aborted_at_keys), ("old_snapshot", transactions.aborted_of_old_snapshots)]
    });
    out.counters(
        "ordo_geo_conflicts",
        None,
        "Attempts of transactions that had no effect, by cause.",
        conflicts.map(|(cause, count)| ([("cause", cause)], count)),
    )?;
    for (name, help, value) in PAIRS {
        let pairs = report().flat_map(|report| &report.pairs);
        out.gauges(name, None, help, pairs.map(|pair| ([("site", pair.to.clone())], value(pair))))?;
    }
    Ok(())
}
