//! `ordo admin status` where sites commit alone: each site is asked, because each one knows how far the
//! others have its updates.

use super::certified::{self, CertifiedStatus};
use super::show::table;
use anyhow::{Result, bail};
use server::client::{Access, Answer};
use server::cluster::geo::{GeoClusterStatus, SiteEntry};
use server::cluster::{Problem, Verdict, verdict};
use std::io::Write;

/// Completes a site's status by what the others answer.
pub fn completed(mut status: GeoClusterStatus, access: &Access) -> GeoClusterStatus {
    let others = status.sites.iter().filter(|site| site.id != status.me);
    let addresses: Vec<String> = others.map(|site| site.client_address.clone()).collect();
    for answer in certified::ask(&addresses, access) {
        if let CertifiedStatus::Geo(other) = answer
            && other.cluster == status.cluster
        {
            status.add(&other);
        }
    }
    status
}

/// Has the first of these sites that answers begin a fence.
pub fn fence(
    addresses: &[String],
    access: &Access,
    site: &str,
    (is_meant, is_forced): (bool, bool),
    out: &mut dyn Write,
) -> Result<()> {
    if !is_meant {
        bail!(
            "fencing {site} loses what it has not told the other sites, and it must begin anew with an empty \
             directory. Add --yes if that is meant"
        );
    }
    if is_forced && addresses.len() != 1 {
        bail!("--force wants the address of one site, always the same: forced fences at two sites lose data");
    }
    let mut problems = Vec::new();
    for address in addresses {
        let mut client = match access.open(address, super::ANSWER) {
            Ok(client) => client,
            Err(problem) => {
                problems.push(format!("{address}: {problem}"));
                continue;
            }
        };
        if let Some(Answer::Error(text)) = access.log_in(&mut client)? {
            bail!("{address}: {text}");
        }
        let words = ["ORDO.CLUSTER", "FENCE", site, "FORCE"];
        match client.call(&words[..if is_forced { 4 } else { 3 }])? {
            Answer::Error(text) => bail!("{address}: {text}"),
            _ => {
                writeln!(
                    out,
                    "The other sites agree on that now: `ordo admin status` shows when {site} is fenced"
                )?;
                return Ok(());
            }
        }
    }
    bail!("no site answers: {}", problems.join(", "))
}

/// Shows the status, and gives the verdict.
pub fn show(status: &GeoClusterStatus, json: bool, out: &mut dyn Write) -> Result<Verdict> {
    let problems = status.problems();
    let verdict = verdict(&problems);
    if json {
        let mut whole = serde_json::to_value(status)?;
        whole["transactions"] = serde_json::to_value(status.transactions())?;
        whole["verdict"] = serde_json::to_value(verdict)?;
        whole["problems"] = serde_json::to_value(&problems)?;
        writeln!(out, "{whole}")?;
    } else {
        write!(out, "{}", text(status, &problems))?;
    }
    Ok(verdict)
}

fn text(status: &GeoClusterStatus, problems: &[Problem]) -> String {
    let all = status.transactions();
    let headline = match verdict(problems) {
        Verdict::Ok => format!("OK: {} sites, all of them well", status.sites.len()),
        Verdict::Degraded => "DEGRADED: clients are served, with problems".to_owned(),
        Verdict::Unavailable => "UNAVAILABLE: clients wait at some sites".to_owned(),
    };
    let regions = match status.regions_to_write_min {
        0 | 1 => String::new(),
        regions => format!(", in {regions} regions"),
    };
    let mut text = format!(
        "{headline}\nSites of {}: {} transactions committed, {:.0} a second; without effect {} attempts at \
         keys, {} of old snapshots; {} requests given up; a write counts when {} of a partition's sites have \
         it{regions}\n",
        status.cluster,
        all.committed,
        all.committed_per_s,
        all.aborted_at_keys,
        all.aborted_of_old_snapshots,
        all.given_up,
        status.sites_to_write_min,
    );
    for problem in problems {
        text.push_str(&format!("\n{} {}", problem.cause, problem.next));
    }
    if !problems.is_empty() {
        text.push('\n');
    }
    text.push_str(&sites(status));
    text.push_str(&pairs(status));
    text
}

fn sites(status: &GeoClusterStatus) -> String {
    let row = |site: &SiteEntry| {
        let state = match (&site.report, site.reachable) {
            (Some(report), _) if report.trouble.is_some() => "SILENT",
            (Some(_), _) => "yes",
            (None, true) => "linked",
            (None, false) => "NO",
        };
        let listed = |partitions: &[u16]| {
            let partitions: Vec<String> = partitions.iter().map(u16::to_string).collect();
            partitions.join(" ")
        };
        let report = site.report.clone().unwrap_or_default();
        vec![
            site.name.clone(),
            site.region.clone(),
            site.client_address.clone(),
            listed(&site.partitions),
            listed(&site.resolves),
            state.to_owned(),
            report.commits.to_string(),
            report.retained.to_string(),
            format!("{:.0}", report.transactions.committed_per_s),
            report.transactions.committed.to_string(),
            report.transactions.aborted_at_keys.to_string(),
            report.transactions.given_up.to_string(),
            report.transactions.open.to_string(),
            report.remote_reads.to_string(),
            report.numbers_out.to_string(),
            report.nulls.to_string(),
        ]
    };
    let header = [
        "site",
        "region",
        "clients",
        "partitions",
        "resolves",
        "answers",
        "updates",
        "kept for others",
        "committed a second",
        "committed",
        "aborted at keys",
        "given up",
        "open",
        "read elsewhere",
        "numbers out",
        "nulls",
    ];
    let numbers: Vec<usize> = (6..header.len()).collect();
    format!("\n{}\n", table(&header, status.sites.iter().map(row), &numbers))
}

/// From each site to each other one: how many updates the other one lacks, and for how long.
fn pairs(status: &GeoClusterStatus) -> String {
    let names: Vec<&str> = status.sites.iter().map(|site| site.name.as_str()).collect();
    let row = |from: &SiteEntry| {
        let cell = |to: &&str| {
            let pairs = from.report.iter().flat_map(|report| &report.pairs);
            let pair = pairs.into_iter().find(|pair| pair.to == **to);
            match pair {
                _ if from.name == **to => String::new(),
                None => "?".to_owned(),
                Some(pair) if pair.is_fencing => "fencing".to_owned(),
                Some(pair) if pair.is_fenced => "fenced".to_owned(),
                Some(pair) if pair.queue == 0 && pair.is_linked => "-".to_owned(),
                Some(pair) => {
                    let link = if pair.is_linked { "" } else { ", NO LINK" };
                    format!("{} for {} ms{link}", pair.queue, pair.lag_ms)
                }
            }
        };
        [vec![from.name.clone()], names.iter().map(cell).collect()].concat()
    };
    let header: Vec<&str> = ["lacked by"].into_iter().chain(names.iter().copied()).collect();
    format!("\n{}\n", table(&header, status.sites.iter().map(row), &[]))
}
