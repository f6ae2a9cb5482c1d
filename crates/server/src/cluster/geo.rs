//! What ORDO.CLUSTER STATUS replies where sites commit alone, as JSON, and what an operator must know of it.
//!
//! A site knows its links, how far each other site has its updates, and what has become of the transactions
//! of its own clients. [`GeoClusterStatus::add`] makes one status of those that several sites have given.

use super::hierarchy::TransactionCounts;
use super::{Problem, Severity};
use serde::{Deserialize, Serialize};

/// The name of the protocol.
pub const PCSI: &str = "pcsi";
/// A site was asked, and has not answered.
const NO_ANSWER: &str = "no-answer";
/// Another site that lacks updates for so long is behind.
const BEHIND_MS: u64 = 10_000;

/// The sites, as one of them or several see them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GeoClusterStatus {
    /// [`PCSI`].
    pub protocol: String,
    /// The cluster's name.
    pub cluster: String,
    /// The site that has answered first.
    pub me: u16,
    /// A client is told of a write when so many sites have it.
    pub sites_to_write_min: u64,
    /// These sites are in this number of regions.
    #[serde(default)]
    pub regions_to_write_min: u64,
    /// So many updates a site keeps for others.
    pub retained_updates_max: u64,
    /// The sites.
    pub sites: Vec<SiteEntry>,
}

/// A site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteEntry {
    /// Its number.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Its region's name.
    pub region: String,
    /// Where other sites reach it.
    pub peer_address: String,
    /// Where clients reach it.
    pub client_address: String,
    /// The partitions that it has.
    pub partitions: Vec<u16>,
    /// Those of them in which it resolves conflicts, perhaps together with others.
    pub resolves: Vec<u16>,
    /// Whether a site that has answered has a link to it.
    pub reachable: bool,
    /// What the site says of itself, if it was asked and has answered.
    pub report: Option<GeoReport>,
}

/// What a site says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeoReport {
    /// Why it takes no transactions, if it takes none.
    pub trouble: Option<String>,
    /// How often it has begun without its data.
    pub incarnation: Option<u8>,
    /// The number of its last commit.
    pub commits: u64,
    /// Its updates that it keeps for others.
    pub retained: u64,
    /// Answers of other sites to reads of its transactions, in partitions that it does not have.
    #[serde(default)]
    pub remote_reads: u64,
    /// Numbers that it has granted to transactions of other sites, and that its replicas do not count yet.
    #[serde(default)]
    pub numbers_out: u64,
    /// Null updates that it has made for numbers whose transactions did not commit.
    #[serde(default)]
    pub nulls: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// What has become of its clients' transactions since it started.
    pub transactions: TransactionCounts,
    /// The sites whose reports it waits for, if it leads the decision on a fence.
    #[serde(default)]
    pub fence_awaits: Vec<String>,
    /// It cannot decide on a fence, because too few sites would remain.
    #[serde(default)]
    pub fence_lacks_majority: bool,
    /// The other sites, as it sees them.
    pub pairs: Vec<PairStatus>,
}

/// Another site, as one sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PairStatus {
    /// The other site's name.
    pub to: String,
    /// Whether there is a link.
    pub is_linked: bool,
    /// Whether the other site is fenced.
    pub is_fenced: bool,
    /// Whether a fence of the other site is under way.
    #[serde(default)]
    pub is_fencing: bool,
    /// Updates that the other site lacks, as far as this one knows.
    pub queue: u64,
    /// For how long the other site has lacked the oldest of them.
    pub lag_ms: u64,
    /// Updates of the other site that wait here for what they depend on.
    pub waiting: u64,
    /// Updates that the other site had told this one of when it was fenced, and that are lost.
    #[serde(default)]
    pub lost: u64,
    /// For how long nothing has come from the other site.
    pub silent_ms: u64,
}

impl GeoClusterStatus {
    /// Puts in what another site has answered. It counts once, however often it is put in.
    pub fn add(&mut self, other: &GeoClusterStatus) {
        for (site, seen) in self.sites.iter_mut().zip(&other.sites) {
            site.reachable |= seen.reachable;
            if seen.id == other.me && site.id == seen.id {
                site.report.clone_from(&seen.report);
            }
        }
    }

    /// What has become of the transactions of all sites that have answered.
    pub fn transactions(&self) -> TransactionCounts {
        let mut all = TransactionCounts::default();
        let reports = self.sites.iter().filter_map(|site| site.report.as_ref());
        reports.for_each(|report| all.add(&report.transactions));
        all
    }

    /// What an operator should know, the worst first.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems: Vec<Problem> = self.sites.iter().filter_map(|site| self.problem_of(site)).collect();
        for site in &self.sites {
            let pairs = site.report.iter().flat_map(|report| &report.pairs);
            let is_in = |pair: &&PairStatus| !pair.is_fenced && !pair.is_fencing;
            let behind = pairs.filter(is_in).filter(|pair| pair.lag_ms >= BEHIND_MS);
            problems.extend(behind.map(|pair| {
                of(
                    &pair.to,
                    "behind",
                    format!(
                        "Site {} lacks {} updates of {} for {} s.",
                        pair.to,
                        pair.queue,
                        site.name,
                        pair.lag_ms / 1_000
                    ),
                    "It gets them when the link is there again. A site that is away for good keeps the \
                     others from writing once retained_updates_max updates wait for it: have it fenced \
                     (`ordo admin fence`, docs/geo.md).",
                )
            }));
        }
        problems.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
        problems
    }

    /// The same as one site sees it, which has not asked the others.
    pub fn own_problems(&self) -> Vec<Problem> {
        let mut problems = self.problems();
        problems.retain(|problem| problem.kind != NO_ANSWER);
        problems
    }

    fn is_fenced(&self, name: &str) -> bool {
        let mut pairs =
            self.sites.iter().filter_map(|site| site.report.as_ref()).flat_map(|report| &report.pairs);
        pairs.any(|pair| pair.to == name && pair.is_fenced)
    }

    fn is_fencing(&self, name: &str) -> bool {
        let mut pairs =
            self.sites.iter().filter_map(|site| site.report.as_ref()).flat_map(|report| &report.pairs);
        pairs.any(|pair| pair.to == name && pair.is_fencing)
    }

    /// Why a fence is not decided yet.
    fn fence_waits(&self) -> String {
        let reports = || self.sites.iter().filter_map(|site| site.report.as_ref());
        let awaited: Vec<&str> =
            reports().flat_map(|report| &report.fence_awaits).map(String::as_str).collect();
        if !awaited.is_empty() {
            return format!(", and waits for {}: start them, or have them fenced, too", awaited.join(", "));
        }
        match reports().any(|report| report.fence_lacks_majority) {
            true => ", and too few sites would remain to decide it: start others, or force it".to_owned(),
            false => String::new(),
        }
    }

    fn problem_of(&self, site: &SiteEntry) -> Option<Problem> {
        let name = &site.name;
        if self.is_fencing(name) {
            return Some(of(
                name,
                "fencing",
                format!("A fence of site {name} is under way{}.", self.fence_waits()),
                "The other sites take nothing of it until then, and it cannot be taken back.",
            ));
        }
        if self.is_fenced(name) {
            return Some(of(
                name,
                "fenced",
                format!("Site {name} is fenced: the others go on without it."),
                "Start it with an empty directory, and it fetches what they have.",
            ));
        }
        match &site.report {
            Some(GeoReport { trouble: Some(why), .. }) => Some(of(
                name,
                "silent",
                format!("Site {name} takes no transactions: {why}."),
                "Its clients are refused, and no other site commits what it resolves.",
            )),
            Some(_) => None,
            None if site.reachable => Some(of(
                name,
                NO_ANSWER,
                format!(
                    "Site {name} does not answer at {}, where its clients reach it.",
                    site.client_address
                ),
                "Other sites have a link to it: it may be starting, or the address may be out of reach from \
                 here.",
            )),
            None => Some(of(
                name,
                "unreachable",
                format!("Site {name} is not heard of: nobody commits writes of keys that it resolves."),
                "Start it if it does not run, and read its log if it does.",
            )),
        }
    }
}

fn of(site: &str, kind: &'static str, cause: String, next: &str) -> Problem {
    Problem {
        severity: Severity::Warning,
        kind,
        nodes: vec![site.to_owned()],
        partitions: Vec::new(),
        cause,
        next: next.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Verdict, verdict};
    use super::*;

    /// Two sites; each lacks so many updates of the other one for so long.
    fn status(me: u16, queue: u64, lag_ms: u64) -> GeoClusterStatus {
        let name = |id: u16| format!("s{id}");
        let site = |id: u16| SiteEntry {
            id,
            name: name(id),
            region: "r".to_owned(),
            peer_address: String::new(),
            client_address: format!("s{id}.example:7001"),
            partitions: vec![0],
            resolves: vec![0],
            reachable: true,
            report: (id == me).then(|| GeoReport {
                transactions: TransactionCounts { committed: 5, ..TransactionCounts::default() },
                pairs: vec![PairStatus {
                    to: name(3 - me),
                    is_linked: true,
                    queue,
                    lag_ms,
                    ..PairStatus::default()
                }],
                ..GeoReport::default()
            }),
        };
        GeoClusterStatus {
            protocol: PCSI.to_owned(),
            cluster: "shop".to_owned(),
            me,
            sites_to_write_min: 1,
            regions_to_write_min: 1,
            retained_updates_max: 100,
            sites: vec![site(1), site(2)],
        }
    }

    fn kinds(status: &GeoClusterStatus) -> Vec<&'static str> {
        status.problems().iter().map(|problem| problem.kind).collect()
    }

    #[test]
    fn what_several_sites_tell_is_one_status() {
        let mut whole = status(1, 0, 0);
        assert_eq!((kinds(&whole), whole.own_problems().len()), (vec![NO_ANSWER], 0));
        whole.add(&status(2, 7, BEHIND_MS - 1));
        whole.add(&status(2, 7, BEHIND_MS - 1));
        assert_eq!((kinds(&whole), whole.transactions().committed), (vec![], 10));
        assert_eq!(verdict(&whole.problems()), Verdict::Ok);
        whole.add(&status(2, 7, BEHIND_MS));
        let problems = whole.problems();
        assert_eq!((kinds(&whole), &problems[0].nodes), (vec!["behind"], &vec!["s1".to_owned()]));
        assert_ne!(verdict(&problems), Verdict::Ok);
    }

    #[test]
    fn a_fenced_site_is_told_once_and_is_not_behind() {
        let mut seen = status(1, 7, BEHIND_MS);
        for report in seen.sites.iter_mut().filter_map(|site| site.report.as_mut()) {
            report.pairs.iter_mut().for_each(|pair| pair.is_fenced = true);
        }
        assert_eq!(kinds(&seen), ["fenced"]);
        seen.sites[1].reachable = false;
        assert_eq!(kinds(&seen), ["fenced"]);
        let mut away = status(1, 0, 0);
        away.sites[1].reachable = false;
        assert_eq!((kinds(&away), away.own_problems().len()), (vec!["unreachable"], 1));
    }
}
