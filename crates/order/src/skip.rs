//! Requests of the order that are not executed, because an operator says so.
//!
//! A request that ends every process that executes it is in every replica's log, and would end every process
//! that replays it. The operator names it (`ordo admin skip`, `ordo serve --skip`), and from then on it is
//! replaced at its place by one that does nothing ([`Skips::replace`]), in the merge. So engines know nothing
//! of it. A request over several partitions is replaced at all of them alike, since it stands in one group's
//! log.
//!
//! What is skipped is no part of the order: the order was agreed before anybody knew. So it is kept beside
//! the log, and must be the same at all replicas: nodes whose [`Skips::digest`] differ refuse each other.
//!
//! Invariants:
//! 1. A request that this replica has executed for good (a checkpoint covers it) is not skipped afterwards:
//!    see [`Skips::too_late`].
//! 2. What was skipped stays so: a name leaves the set only before the set was in force.

use std::collections::BTreeMap;
use std::sync::Arc;
use txn::hash::mix;
use txn::{Args, Call, Epoch, Footprint, Procedure, ProcedureFuture, Request, RequestName, Stop, Tx};

/// The requests that are not executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skips(BTreeMap<RequestName, Standing>);

/// Whether a process has gone by a name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// None has: the request must not be behind the checkpoint.
    New,
    /// One has: whatever checkpoints there are since, they were made without the request.
    InForce,
}

impl Skips {
    /// Adds a request. One that is in force already stays so.
    pub fn add(&mut self, name: RequestName) {
        self.0.entry(name).or_insert(Standing::New);
    }

    /// Adds one that is known with its standing.
    pub fn insert(&mut self, name: RequestName, standing: Standing) {
        self.0.insert(name, standing);
    }

    /// Takes back those that are not in force.
    pub fn forget_new(&mut self) {
        self.0.retain(|_, standing| *standing == Standing::InForce);
    }

    /// From now on all are in force.
    pub fn enforce(&mut self) {
        let standings = self.0.values_mut();
        standings.for_each(|standing| *standing = Standing::InForce);
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (RequestName, Standing)> + '_ {
        self.0.iter().map(|(&name, &standing)| (name, standing))
    }

    /// Whether nothing is skipped.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What tells sets apart; 0 for the empty one.
    pub fn digest(&self) -> u64 {
        self.0.keys().fold(0, |digest, name| {
            let of_name = mix(name.epoch.0 ^ mix(name.session.0 ^ mix(name.sequence)));
            mix(digest ^ of_name)
        })
    }

    /// Whether a request of an epoch is among them.
    #[inline]
    pub fn has(&self, epoch: Epoch, request: &Request) -> bool {
        !self.0.is_empty() && self.0.contains_key(&name_of(epoch, request))
    }

    /// A request of an epoch as the engines get it: what is skipped does nothing.
    #[inline]
    pub fn replace(&self, epoch: Epoch, request: &Arc<Request>) -> Arc<Request> {
        match self.has(epoch, request) {
            true => skipped(epoch, request),
            false => request.clone(),
        }
    }

    /// A request that was executed before anybody wanted it skipped, given that all up to the end of an epoch
    /// are.
    pub fn too_late(&self, executed: Epoch) -> Option<RequestName> {
        let mut all = self.iter();
        let found = all.find(|(name, standing)| *standing == Standing::New && name.epoch <= executed);
        found.map(|(name, _)| name)
    }
}

/// What people call a request of an epoch.
pub fn name_of(epoch: Epoch, request: &Request) -> RequestName {
    RequestName { epoch, session: request.id.session, sequence: request.id.sequence }
}

/// What stands in the order for a request that is skipped.
struct Skipped(RequestName);

impl Procedure for Skipped {
    fn name(&self) -> &str {
        "ordo.skipped"
    }
    fn footprint(&self, _: &Args) -> Footprint {
        Footprint::of_keys(Vec::new(), Vec::new())
    }
    fn run(&self, _: Tx, _: Call) -> ProcedureFuture {
        let text = format!(
            "ERR an operator had this request skipped ({}): nothing of it was executed, at no node",
            self.0
        );
        Box::pin(std::future::ready(Err(Stop::abort(text))))
    }
}

fn skipped(epoch: Epoch, request: &Request) -> Arc<Request> {
    let procedure = Skipped(name_of(epoch, request));
    Arc::new(Request {
        id: request.id,
        slots_version: request.slots_version,
        footprint: procedure.footprint(&Args::new()),
        procedure: Arc::new(procedure),
        args: Args::new(),
        route: request.route.clone(),
        elsewhere: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::{FnProcedure, Outcome, Reply, RequestId, SessionId};

    async fn nothing(_: Tx, _: Call) -> Outcome {
        Ok(Reply::OK)
    }

    #[test]
    fn a_request_is_replaced_where_it_stands_and_nowhere_else() {
        let procedure = Arc::new(FnProcedure::new("nothing", nothing));
        let request = |session, sequence| {
            let id = RequestId { session: SessionId(session), sequence, attempt: 0 };
            Arc::new(Request::new(id, procedure.clone(), Args::one("x")))
        };
        let mut skips = Skips::default();
        skips.add("7:2:3".parse().expect("a name"));
        for (epoch, session, sequence, is_skipped) in
            [(7, 2, 3, true), (7, 2, 4, false), (7, 3, 3, false), (8, 2, 3, false)]
        {
            let replaced = skips.replace(Epoch(epoch), &request(session, sequence));
            let (name, args) = match is_skipped {
                true => ("ordo.skipped", 0),
                false => ("nothing", 1),
            };
            assert_eq!((replaced.procedure.name(), replaced.args.len()), (name, args));
            assert_eq!(replaced.id.sequence, sequence);
        }
    }

    #[test]
    fn what_was_executed_is_not_skipped_afterwards_and_what_was_skipped_stays_so() {
        let name: RequestName = "7:2:3".parse().expect("a name");
        let mut skips = Skips::default();
        assert_eq!(skips.digest(), 0);
        skips.add(name);
        let digest = skips.digest();
        assert_ne!(digest, 0);
        assert_eq!(skips.too_late(Epoch(6)), None);
        assert_eq!(skips.too_late(Epoch(7)), Some(name));
        skips.enforce();
        skips.add(name);
        assert_eq!(skips.too_late(Epoch(7)), None);
        skips.forget_new();
        assert_eq!(skips.digest(), digest);
        let mut other = Skips::default();
        other.add("7:2:4".parse().expect("a name"));
        assert_ne!(other.digest(), digest);
        other.forget_new();
        assert!(other.is_empty());
    }
}
