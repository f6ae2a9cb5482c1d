//! ORDO.SESSION and ORDO.WAIT: requests that ask the site for no transaction.
//!
//! They have their place among the requests of their connection, and a certified session names them, as it
//! names transactions ([`super::gateway`]).

use super::gateway::Asked;
use super::seal::{TokenSeal, Unsealed};
use certify::pcsi::{Demand, Written};
use certify::{Answer as SiteAnswer, CallEnd};
use redis_surface::commands::sites;
use std::collections::{BTreeMap, BTreeSet};
use txn::{Blob, NodeId, Outcome, Reply, Request, RequestId, Stop};

const OTHER_CLUSTER: Reply = Reply::error(
    "ERR the token is of another cluster: nothing was changed; ask a site of this cluster for a token with \
     ORDO.SESSION",
);

const BROKEN: Reply = Reply::error(
    "ERR the token is damaged, or the cluster's secret has changed since: nothing was changed; ask a site \
     for another token with ORDO.SESSION",
);

const WHILE_OPEN: Reply = Reply::error(
    "ERR ORDO.SESSION and ORDO.WAIT have no effect within a transaction that is open: nothing was changed; \
     send them before ORDO.BEGIN, or behind ORDO.COMMIT",
);

/// The connection's writes have been acknowledged before it waits.
const CANNOT_TELL: &str = "ORDOUNKNOWN this site cannot tell now which sites have what this connection has \
                           written: it has taken effect, and may be lost with the sites that have it";

/// The things that a node needs for these commands.
pub struct SiteCommands {
    seal: TokenSeal,
    /// The sites of each region.
    regions: BTreeMap<String, BTreeSet<NodeId>>,
}

/// A request that runs.
pub enum SiteCall {
    /// ORDO.SESSION without a token: the reply, once the site has told it.
    Give(Option<String>),
    /// ORDO.SESSION with a token.
    Follow(Vec<u8>),
    /// ORDO.WAIT.
    Wait {
        demand: Demand,
        timeout_ms: u64,
        /// For the error.
        region: Option<String>,
    },
}

impl SiteCommands {
    /// The commands of a cluster with this seal, and these sites in these regions.
    pub fn new<'a>(seal: TokenSeal, sites: impl Iterator<Item = (NodeId, &'a str)>) -> SiteCommands {
        let mut regions: BTreeMap<String, BTreeSet<NodeId>> = BTreeMap::new();
        for (site, region) in sites {
            regions.entry(region.to_owned()).or_default().insert(site);
        }
        SiteCommands { seal, regions }
    }

    /// The call of a request, if it is one of these commands; the reply if its words make no sense. No such
    /// call runs while its connection holds a transaction open.
    pub fn call(&self, request: &Request, holds_open: bool) -> Option<Result<SiteCall, Reply>> {
        let call = match request.procedure.name() {
            sites::SESSION => sites::session(&request.args).and_then(|token| self.session(token)),
            sites::WAIT => sites::wait(&request.args).and_then(|wait| self.wait(wait)),
            _ => return None,
        };
        Some(call.and_then(|call| if holds_open { Err(WHILE_OPEN) } else { Ok(call) }))
    }

    fn session(&self, token: Option<&Blob>) -> Result<SiteCall, Reply> {
        let Some(text) = token else { return Ok(SiteCall::Give(None)) };
        let opened = self.seal.open(text).map_err(|why| match why {
            Unsealed::OtherCluster => OTHER_CLUSTER,
            Unsealed::Broken => BROKEN,
        });
        opened.map(SiteCall::Follow)
    }

    fn wait(&self, wait: sites::Wait) -> Result<SiteCall, Reply> {
        let sites::Wait { region, sites_min, timeout_ms } = wait;
        let groups = match &region {
            None => self.regions.values().cloned().collect(),
            Some(name) => match self.regions.get(name) {
                Some(sites) => vec![sites.clone()],
                None => {
                    let names: Vec<&str> = self.regions.keys().map(String::as_str).collect();
                    return Err(Reply::error_owned(format!(
                        "ERR there is no region '{name}': the regions are {}",
                        names.join(", ")
                    )));
                }
            },
        };
        Ok(SiteCall::Wait { demand: Demand { groups, sites_min }, timeout_ms, region })
    }

    /// Asks the site. `written`: by the connection, which has written something else if it has none.
    pub fn ask(&self, call: &mut SiteCall, id: RequestId, written: Option<&Written>, site: &mut impl Asked) {
        match call {
            SiteCall::Give(reply) => *reply = site.give_token(id).map(|token| self.seal.close(&token)),
            SiteCall::Follow(token) => site.follow_token(id, token),
            SiteCall::Wait { demand, timeout_ms, .. } => {
                let written = written.cloned().unwrap_or_default();
                site.wait_for_sites(id, (written, demand.clone()), *timeout_ms);
            }
        }
    }
}

impl SiteCall {
    /// The end, when the site has answered.
    pub fn answered(&mut self, answer: SiteAnswer) -> CallEnd {
        let outcome: Outcome = match (answer, &mut *self) {
            (SiteAnswer::Committed, SiteCall::Give(Some(token))) => {
                Ok(Reply::Bulk(Blob::from(std::mem::take(token))))
            }
            (SiteAnswer::Committed, SiteCall::Follow(_) | SiteCall::Wait { .. }) => Ok(Reply::OK),
            (SiteAnswer::Refused(text), _) => Err(Stop::abort(text)),
            (SiteAnswer::Unknown, SiteCall::Wait { demand, region, .. }) => Err(Stop::abort(format!(
                "ORDOUNKNOWN fewer than {} sites of {} have told in time that they have what this connection \
                 has written: it has taken effect, and may be lost with the sites that have it",
                demand.sites_min,
                region.as_ref().map_or("each region".to_owned(), |region| format!("region '{region}'"))
            ))),
            (_, SiteCall::Wait { .. }) => Err(Stop::abort(CANNOT_TELL)),
            _ => return CallEnd::Unavailable,
        };
        CallEnd::Done { outcome, is_ordered: false }
    }

    /// The text for a client whose site has not answered in time, where it is not the one of transactions.
    pub fn text_if_late(&self) -> Option<&'static str> {
        matches!(self, SiteCall::Wait { .. }).then_some(CANNOT_TELL)
    }
}
