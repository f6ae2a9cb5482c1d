//! INFO's section about sites that commit alone: how far each other site is.

use super::ThreadContext;
use super::hierarchy::transactions;
use super::info::field;
use crate::runtime::Told;
use std::fmt::Write;

/// Writes the section, if this is such a site.
pub(super) fn section(thread: &ThreadContext<'_>, out: &mut String) {
    let Some(status) = thread.shared.runtime.certified_status() else { return };
    let Told::Geo(told) = status.told() else { return };
    field(out, "sites", told.sites.len());
    field(out, "sites_to_write_min", told.sites_to_write_min);
    field(out, "regions_to_write_min", told.regions_to_write_min);
    let own = told.sites.iter().find_map(|site| site.report.as_ref());
    if let Some(report) = own {
        field(out, "incarnation", report.incarnation.map_or(-1, i64::from));
        field(out, "commits", report.commits);
        field(out, "updates_retained", report.retained);
        field(out, "remote_reads", report.remote_reads);
        field(out, "granted_numbers_out", report.numbers_out);
        field(out, "null_updates", report.nulls);
        field(out, "trouble", report.trouble.as_deref().unwrap_or(""));
        field(out, "fence_awaits", report.fence_awaits.join(" "));
        field(out, "fence_lacks_majority", u8::from(report.fence_lacks_majority));
        for pair in &report.pairs {
            // Writing to a string cannot fail.
            let _ = write!(
                out,
                "site_{}:linked={},fenced={},fencing={},queue={},lag_ms={},waiting={},lost={},\
                 silent_ms={}\r\n",
                pair.to,
                u8::from(pair.is_linked),
                u8::from(pair.is_fenced),
                u8::from(pair.is_fencing),
                pair.queue,
                pair.lag_ms,
                pair.waiting,
                pair.lost,
                pair.silent_ms
            );
        }
    }
    transactions(&status, out);
}
