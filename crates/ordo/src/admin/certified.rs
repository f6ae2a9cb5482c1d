//! `ordo admin` where transactions are certified: nodes and sites that never change.

use super::{geo, hierarchy};
use anyhow::{Result, anyhow};
use serde_json::Value;
use server::client::Access;
use server::cluster::Verdict;
use server::cluster::geo::{GeoClusterStatus, PCSI};
use server::cluster::hierarchy::{HIERARCHY, HierarchyStatus};
use std::fmt;
use std::io::Write;
use std::time::Duration;

/// How long a node may take that is asked beside the first one.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a node has told.
#[derive(Debug)]
pub enum CertifiedStatus {
    /// It is of a hierarchy.
    Hierarchy(HierarchyStatus),
    /// It is a site that commits alone.
    Geo(GeoClusterStatus),
}

/// A node that was asked for the status of an ordered cluster is of another one.
#[derive(Debug)]
pub struct IsCertified(pub CertifiedStatus);

impl fmt::Display for IsCertified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            CertifiedStatus::Hierarchy(_) => f.write_str(
                "the nodes and validators of a hierarchy never change: `ordo admin status` shows them",
            ),
            CertifiedStatus::Geo(_) => {
                f.write_str("the sites of a cluster never change: `ordo admin status` shows them")
            }
        }
    }
}

impl std::error::Error for IsCertified {}

/// The status that a reply has, if the node's transactions are certified.
pub fn parsed(json: &str) -> Option<Result<CertifiedStatus>> {
    let value: Value = serde_json::from_str(json).ok()?;
    let protocol = value.get("protocol")?.as_str()?.to_owned();
    let parsed = match protocol.as_str() {
        HIERARCHY => serde_json::from_value(value).map(CertifiedStatus::Hierarchy),
        PCSI => serde_json::from_value(value).map(CertifiedStatus::Geo),
        _ => return None,
    };
    Some(parsed.map_err(|problem| {
        anyhow!(
            "this `ordo` does not understand the node's status ({problem}): use one of the node's version"
        )
    }))
}

/// What these nodes answer, all asked at once: nodes that are away take as long as one of them.
pub fn ask(addresses: &[String], access: &Access) -> Vec<CertifiedStatus> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = addresses
            .iter()
            .map(|address| scope.spawn(move || super::Node::ask_within(address, access, PATIENCE)))
            .collect();
        let answers = asked.into_iter().filter_map(|asked| {
            let error = asked.join().ok()?.err()?;
            error.downcast::<IsCertified>().ok().map(|IsCertified(other)| other)
        });
        answers.collect()
    })
}

/// Shows a node's status, completed by what the others answer, and gives the verdict.
pub fn show(status: CertifiedStatus, access: &Access, json: bool, out: &mut dyn Write) -> Result<Verdict> {
    match status {
        CertifiedStatus::Hierarchy(status) => {
            hierarchy::show(&hierarchy::completed(status, access), json, out)
        }
        CertifiedStatus::Geo(status) => geo::show(&geo::completed(status, access), json, out),
    }
}
