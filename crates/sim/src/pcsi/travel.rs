//! Sessions that go on at another site with a token, and sessions that wait for sites of other regions.

use super::client::{Step, Turn};
use super::ledger::ClientAttempt;
use super::{Ask, Tell};
use bytes::Bytes;
use certify::pcsi::Demand;
use std::collections::BTreeSet;
use txn::{NodeId, Position, RequestId};

/// A session on its way to another site.
#[derive(Clone, Debug)]
pub(super) struct Travel {
    pub to: u16,
    pub token: Bytes,
    /// The session's last acknowledged attempt, if that was at the site that has given the token, in the same
    /// incarnation.
    pub carried: Option<u64>,
    /// The logs that the new site had lost when it was asked.
    losses: usize,
}

/// Longest rest of a session that has a token and no site, in ticks.
const REST_TICKS: [u64; 4] = [0, 1, 20, 200];

impl Turn<'_> {
    /// The session asks its site for a token, to go on elsewhere.
    pub(super) fn leave_site(&mut self) {
        self.begin_aside();
        self.ask(Ask::Token);
        self.session().step = Step::Token;
    }

    /// What the session asks for next is no transaction.
    fn begin_aside(&mut self) {
        self.system.opened += 1;
        let opened = self.system.opened as u16;
        let session = self.session();
        let id = certify::session_opened(session.heard, opened);
        session.aside = Some(RequestId { session: id, sequence: 1, attempt: 0 });
    }

    /// The site has given a token, or has none to give.
    pub(super) fn given(&mut self, token: Option<Bytes>) {
        let (host, hosts) = (self.host(), self.system.plan.hosts);
        let ledger = &self.system.ledger;
        let is_site = |&other: &u16| {
            other != host && ledger.sites.partitions().any(|partition| ledger.has(other, partition))
        };
        let others: Vec<u16> = (0..hosts).filter(is_site).collect();
        let (Some(token), false) = (token, others.is_empty()) else { return self.think() };
        let to = self.core.draw.pick(&others);
        let previous = self.session().previous;
        let ledger = &self.system.ledger;
        let is_fresh =
            |attempt: &ClientAttempt| attempt.host == host && attempt.losses == ledger.losses(host);
        let carried = previous.filter(|number| is_fresh(&ledger.attempts[*number as usize - 1]));
        let travel = Travel { to, token, carried, losses: 0 };
        let rest_ticks = self.core.draw.pick(&REST_TICKS);
        let after_ns = 1 + self.core.draw.below(1 + rest_ticks * self.system.plan.tick_ns);
        self.after(after_ns, Step::Follow(travel));
    }

    /// The session brings its token to the other site.
    pub(super) fn follow(&mut self, mut travel: Travel) {
        self.begin_aside();
        travel.losses = self.system.ledger.losses(travel.to);
        let ask = Ask::Follow { token: travel.token.clone(), carried: travel.carried };
        self.session().step = Step::Follow(travel);
        self.ask(ask);
    }

    /// The other site has taken the token, or has refused it.
    pub(super) fn arrived(&mut self, travel: &Travel, tell: &Tell, last: Position) {
        let is_taken = matches!(tell, Tell::Followed(true));
        // A site that refuses a token may be used without it.
        if is_taken || matches!(tell, Tell::Followed(false)) && self.core.draw.percent(50) {
            let has_lost = self.system.ledger.losses(travel.to) > travel.losses;
            let session = self.session();
            (session.host, session.heard, session.last) = (travel.to, last, None);
            session.previous = session.previous.filter(|_| is_taken && !has_lost);
        }
        self.system.tokens += usize::from(is_taken);
        self.think();
    }

    /// The session's last commit has written, and the session waits for other sites, or does not.
    pub(super) fn wait_for_sites(&mut self, of: RequestId) {
        let Some(groups) = self.system.plan.regions.clone().filter(|_| self.core.draw.percent(20)) else {
            return self.think();
        };
        let groups: Vec<BTreeSet<NodeId>> = match self.core.draw.percent(50) {
            true => groups,
            false => vec![groups[self.core.draw.below(groups.len() as u64) as usize].clone()],
        };
        let demand = Demand { groups, sites_min: 1 + self.core.draw.below(2) as usize };
        let ticks = 1 + self.core.draw.below(200);
        self.begin_aside();
        self.ask(Ask::Wait { of, demand, ticks });
        self.session().step = Step::Wait;
    }
}
