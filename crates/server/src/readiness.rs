//! Whether a server can be sent clients, and how far behind it is: what `/readyz` answers,
//! and what a service manager is told.
//!
//! A server is ready once its data is loaded, while it takes requests, and in a cluster while it takes part:
//! it knows the leader of every partition, to which it forwards what its clients send, and it has executed
//! what was agreed `staleness_ms_max` ago, as READONLY connections are promised. A node of a hierarchy is
//! ready while it reaches the leader of every validator, and knows of nothing decided that it lacks.

use crate::cluster::ClusterView;
use crate::runtime::{self, CertifiedStatus};
use crate::shared::Shared;
use std::fmt;
use txn::PartitionId;

/// Whether clients may be sent here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They may.
    Ready,
    /// They may not, for this reason, which has one line.
    NotReady(String),
}

/// What `/readyz` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Whether clients may be sent here.
    pub verdict: Verdict,
    /// How far the server is, once it has loaded its data.
    place: Option<Place>,
}

/// How far a server is.
///
/// `final_committed_position <= delivered_position` and `epoch <= epoch_delivered`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// The last positions of all partitions that the server keeps, added up: those that its engines were
    /// given, and those that are final-committed.
    delivered_position: u64,
    final_committed_position: u64,
    /// `None` where the server stands alone.
    part: Option<Part>,
}

/// What a node has a part in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Member(MemberPlace),
    Site(SitePlace),
    Geo(GeoPlace),
}

/// Where a site stands that commits alone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GeoPlace {
    sites: usize,
    linked: usize,
    /// Its updates that it keeps for others.
    retained: u64,
}

/// What a node of a hierarchy has to do with the validators.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SitePlace {
    validators: usize,
    hosted: usize,
    led: usize,
}

/// How far a node of a cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MemberPlace {
    partitions: usize,
    kept: usize,
    led: usize,
    /// The last confirmed epoch, and the last that the engines were given.
    epoch: u64,
    epoch_delivered: u64,
    /// Milliseconds since this node last knew to have executed everything that was agreed.
    staleness_ms: u64,
}

impl Readiness {
    /// Looks at a server; `None` is one that has not loaded its data.
    pub fn of(shared: Option<&Shared>) -> Readiness {
        let Some(shared) = shared else {
            let reason = "loading: the data is not there yet, or the other nodes of the cluster are not";
            return Readiness { verdict: Verdict::NotReady(reason.to_owned()), place: None };
        };
        let runtime = &shared.runtime;
        let node = runtime.status().node;
        let view = runtime.cluster_view();
        let site = runtime.certified_status();
        let reason = shared
            .stopping()
            .then(|| "stopping: the server was asked to end".to_owned())
            .or_else(|| runtime.halted().map(|text| text.to_string()))
            .or_else(|| node.refused.as_ref().map(|text| text.to_string()))
            .or_else(|| trouble(view.as_deref()?, runtime.staleness_ms_max()))
            .or_else(|| site.as_ref()?.trouble());
        let verdict = match reason {
            // A reason is one line, whatever an error's text holds.
            Some(reason) => Verdict::NotReady(reason.replace(['\r', '\n'], " ")),
            None => Verdict::Ready,
        };
        let place = Place {
            delivered_position: node.delivered.0,
            final_committed_position: node.final_committed.0,
            part: (view.as_deref().map(|view| Part::Member(MemberPlace::of(view))))
                .or_else(|| Some(Part::of(site.as_ref()?))),
        };
        Readiness { verdict, place: Some(place) }
    }

    /// The verdict in a word or two.
    pub fn word(&self) -> &'static str {
        match self.verdict {
            Verdict::Ready => "ready",
            Verdict::NotReady(_) => "not ready",
        }
    }
}

/// Why a node of a cluster cannot serve clients, if it cannot.
fn trouble(view: &ClusterView, staleness_ms_max: u64) -> Option<String> {
    let has_leader = |partition: &PartitionId| view.leaders.contains_key(partition);
    let without: Vec<String> = view
        .map
        .partition_ids()
        .filter(|partition| !has_leader(partition))
        .map(|partition| partition.0.to_string())
        .collect();
    if !without.is_empty() {
        return Some(format!(
            "no leader is known of partition {}: a majority of its replicas may be missing",
            without.join(", ")
        ));
    }
    (view.staleness_ms > staleness_ms_max).then(|| {
        format!(
            "behind: this node has not known for {} ms to have executed everything that was agreed, and \
             staleness_ms_max is {staleness_ms_max}",
            view.staleness_ms
        )
    })
}

impl MemberPlace {
    fn of(view: &ClusterView) -> MemberPlace {
        MemberPlace {
            partitions: view.map.partitions.len(),
            kept: view.map.kept_by(view.me).count(),
            led: view.leaders.values().filter(|&&leader| leader == view.me).count(),
            epoch: view.epoch,
            epoch_delivered: view.epoch_delivered,
            staleness_ms: view.staleness_ms,
        }
    }
}

impl Part {
    fn of(status: &CertifiedStatus) -> Part {
        match &status.part {
            runtime::Part::Hierarchy(part) => {
                let (hosted, led) = part.hosted_and_led(status.described.me);
                Part::Site(SitePlace { validators: part.groups.len(), hosted, led })
            }
            runtime::Part::Geo(part) => {
                let sites = status.described.nodes.len();
                let linked = sites - part.site.unlinked.len();
                Part::Geo(GeoPlace { sites, linked, retained: part.site.retained })
            }
        }
    }
}

impl fmt::Display for Readiness {
    /// The verdict with its reason, then `name: value` lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::Ready => writeln!(f, "ready")?,
            Verdict::NotReady(reason) => writeln!(f, "not ready: {reason}")?,
        }
        let Some(place) = &self.place else { return Ok(()) };
        let role = match &place.part {
            None => "alone",
            Some(Part::Geo(_)) => "site",
            Some(Part::Member(MemberPlace { led: 0, .. }) | Part::Site(SitePlace { led: 0, .. })) => {
                "follower"
            }
            Some(_) => "leader",
        };
        writeln!(f, "role: {role}")?;
        if let Some(Part::Geo(GeoPlace { sites, linked, retained })) = &place.part {
            writeln!(f, "sites: {sites}")?;
            writeln!(f, "sites_linked: {linked}")?;
            writeln!(f, "updates_retained: {retained}")?;
        }
        if let Some(Part::Site(SitePlace { validators, hosted, led })) = &place.part {
            writeln!(f, "validators: {validators}")?;
            writeln!(f, "validators_hosted: {hosted}")?;
            writeln!(f, "validators_led: {led}")?;
        }
        if let Some(Part::Member(member)) = &place.part {
            let MemberPlace { partitions, kept, led, epoch, epoch_delivered, staleness_ms } = *member;
            writeln!(f, "partitions: {partitions}")?;
            writeln!(f, "partitions_kept: {kept}")?;
            writeln!(f, "partitions_led: {led}")?;
            writeln!(f, "epoch: {epoch}")?;
            writeln!(f, "epochs_unconfirmed: {}", epoch_delivered.saturating_sub(epoch))?;
            writeln!(f, "staleness_ms: {staleness_ms}")?;
        }
        let (delivered, committed) = (place.delivered_position, place.final_committed_position);
        writeln!(f, "final_committed_position: {committed}")?;
        writeln!(f, "positions_behind: {}", delivered.saturating_sub(committed))
    }
}
