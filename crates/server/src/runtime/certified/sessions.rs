//! The certified sessions of a node: what its transactions are named by.
//!
//! A session of a certified protocol has one transaction at a time, and one leaf of the tree is its home: a
//! participant of each of its transactions (`certify::hierarchy`). So a node has sessions at every home, and
//! gives a transaction one that is at home where the transaction reads or writes.
//!
//! # Names
//!
//! A session is named by the position of its home behind which it was opened, and by a number. No two nodes
//! use the same number: it is made of the home, of the node, and of a count. Two processes of a node may open
//! the same session, so a session counts its transactions from the boot id of its process on. A node whose
//! directory was lost begins with the first boot id again. Its sessions are opened behind what the node's
//! earlier processes have committed, because it lends none before it has caught up with the others, and
//! the time of its start keeps apart what those processes had still on its way.
//!
//! A session is opened anew, behind a later position, when half the horizon has passed, and when nobody knows
//! what has become of its last transaction.

use certify::hierarchy::Tree;
use certify::{SESSION_HORIZON, session_opened};
use std::collections::VecDeque;
use txn::{BootId, PartitionId, Position, RequestId, SessionId};

/// The numbers of all sessions that are opened behind one position.
const NUMBERS: u64 = 1 << 16;
/// Transactions of a process are counted in so many bits, behind the boot id.
const COUNT_BITS: u32 = 40;
/// The upper bits of the count begin with the second in which the process was started, modulo this.
const SECONDS: u64 = 1 << 20;

/// A certified session that a transaction has.
#[derive(Debug)]
pub struct Lent {
    home: PartitionId,
    number: u16,
    id: SessionId,
    opened_behind: Position,
    /// The number of its newest transaction.
    sequence: u64,
    /// Nobody knows what has become of its last transaction.
    is_doubtful: bool,
}

impl Lent {
    /// The name of the transaction, in its first attempt.
    pub fn id(&self) -> RequestId {
        RequestId { session: self.id, sequence: self.sequence, attempt: 0 }
    }

    /// The session's next transaction.
    pub fn next(&mut self) -> RequestId {
        self.sequence += 1;
        self.id()
    }

    /// Where it is at home.
    pub fn home(&self) -> PartitionId {
        self.home
    }

    /// Nobody knows what has become of its transaction: the next one is not to wait for that.
    pub fn doubt(&mut self) {
        self.is_doubtful = true;
    }
}

/// The sessions of one home.
#[derive(Debug, Default)]
struct Home {
    /// Those that no transaction has, the one that has rested longest first.
    idle: VecDeque<Lent>,
    /// How many there are.
    opened: u64,
    /// Connections that wait for one.
    waiting: VecDeque<SessionId>,
}

/// All sessions of a node.
#[derive(Debug)]
pub struct Sessions {
    homes: Vec<Home>,
    /// Sessions of a home, at most.
    per_home: u64,
    /// The node among all nodes, from 0.
    place: u64,
    /// Transactions are counted from here.
    first: u64,
}

impl Sessions {
    /// The sessions of a process of the node that is at `place` among `nodes`. The process was started at
    /// `started_ms`, in milliseconds since 1970.
    pub fn new(tree: &Tree, place: u64, nodes: u64, boot: BootId, started_ms: u64) -> Sessions {
        let second = started_ms / 1_000 % SECONDS;
        let homes = u64::from(tree.partitions());
        Sessions {
            homes: tree.leaves().map(|_| Home::default()).collect(),
            per_home: (NUMBERS / homes / nodes.max(1)).max(1),
            place,
            first: u64::from(boot.0) << COUNT_BITS | second << (COUNT_BITS - SECONDS.ilog2()),
        }
    }

    /// Lends a session of a home whose position is this one. Without one, the connection waits
    /// ([`Sessions::next_waiting`]).
    pub fn lend(&mut self, home: PartitionId, position: Position, connection: SessionId) -> Option<Lent> {
        let homes = self.homes.len() as u64;
        let of_home = self.homes.get_mut(usize::from(home.0))?;
        let mut lent = match of_home.idle.pop_front() {
            Some(lent) => lent,
            None if of_home.opened < self.per_home => {
                let count = self.place * self.per_home + of_home.opened;
                of_home.opened += 1;
                let number = (u64::from(home.0) + homes * count) as u16;
                Lent {
                    home,
                    number,
                    id: session_opened(position, number),
                    opened_behind: position,
                    sequence: self.first,
                    is_doubtful: false,
                }
            }
            None => {
                of_home.waiting.push_back(connection);
                return None;
            }
        };
        let is_old = position.0.saturating_sub(lent.opened_behind.0) >= SESSION_HORIZON / 2;
        if is_old || lent.is_doubtful && position > lent.opened_behind {
            lent.id = session_opened(position, lent.number);
            lent.opened_behind = position;
            lent.is_doubtful = false;
        }
        lent.next();
        Some(lent)
    }

    /// A transaction has ended.
    pub fn give_back(&mut self, lent: Lent) {
        if let Some(of_home) = self.homes.get_mut(usize::from(lent.home.0)) {
            of_home.idle.push_back(lent);
        }
    }

    /// The connections that wait for a session.
    pub fn waiting(&self) -> impl Iterator<Item = SessionId> {
        self.homes.iter().flat_map(|of_home| of_home.waiting.iter().copied())
    }

    /// A connection waits no longer.
    pub fn leave(&mut self, connection: SessionId) {
        self.homes.iter_mut().for_each(|of_home| of_home.waiting.retain(|&waiting| waiting != connection));
    }

    /// The connection that has waited longest for a session of a home.
    pub fn next_waiting(&mut self, home: PartitionId) -> Option<SessionId> {
        self.homes.get_mut(usize::from(home.0))?.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use certify::hierarchy::home_of;
    use std::collections::BTreeSet;

    const ME: SessionId = SessionId(7);

    fn tree() -> Tree {
        Tree::new(3, &[3, 3, 3]).expect("a tree")
    }

    #[test]
    fn no_two_nodes_have_a_session_of_one_name_and_each_is_at_home_where_it_was_asked_for() {
        let mut all = BTreeSet::new();
        let nodes = 5;
        for place in 0..nodes {
            let mut sessions = Sessions::new(&tree(), place, nodes, BootId(1), 0);
            for home in [PartitionId(0), PartitionId(2)] {
                let lent: Vec<Lent> = std::iter::from_fn(|| sessions.lend(home, Position(9), ME)).collect();
                assert_eq!(lent.len(), (1 << 16) / 3 / 5);
                for lent in lent {
                    assert_eq!(home_of(lent.id, 3), home);
                    assert!(all.insert(lent.id), "{lent:?}");
                }
            }
        }
    }

    #[test]
    fn connections_wait_for_the_sessions_of_a_home() {
        let mut sessions = Sessions::new(&Tree::leaf(), 0, 1 << 16, BootId(1), 0);
        let first = sessions.lend(PartitionId(0), Position(1), ME).expect("the only one");
        assert!(sessions.lend(PartitionId(0), Position(1), SessionId(8)).is_none());
        sessions.give_back(first);
        assert_eq!(sessions.next_waiting(PartitionId(0)), Some(SessionId(8)));
        assert_eq!(sessions.next_waiting(PartitionId(0)), None);
    }

    #[test]
    fn transactions_of_a_later_process_have_higher_numbers() {
        let lend = |boot, started_ms| {
            let mut sessions = Sessions::new(&Tree::leaf(), 0, 1, BootId(boot), started_ms);
            sessions.lend(PartitionId(0), Position(3), ME).expect("one").id()
        };
        // The clock was set back between the first two, and the directory was lost between the last two.
        for (before, after) in [((4, 99_000_000), (5, 1_000)), ((1, 5_000), (1, 6_000))] {
            let (before, after) = (lend(before.0, before.1), lend(after.0, after.1));
            assert_eq!(before.session, after.session);
            assert!(before.sequence < after.sequence);
        }
    }

    #[test]
    fn a_session_is_opened_anew_when_it_is_old_or_doubtful() {
        let home = PartitionId(0);
        let mut sessions = Sessions::new(&Tree::leaf(), 0, 1, BootId(1), 0);
        let mut lent = sessions.lend(home, Position(5), ME).expect("one");
        let (first, sequence) = (lent.id().session, lent.id().sequence);
        lent.doubt();
        sessions.give_back(lent);
        let lent = sessions.lend(home, Position(5), ME).expect("one");
        assert_eq!(lent.id().session, first, "the same position makes the same session");
        assert!(lent.id().sequence > sequence);
        sessions.give_back(lent);
        let lent = sessions.lend(home, Position(6), ME).expect("one");
        assert_eq!(lent.id().session, session_opened(Position(6), 0));
        sessions.give_back(lent);
        for (position, opened_behind) in
            [(5 + SESSION_HORIZON / 2, 6), (6 + SESSION_HORIZON / 2, 6 + SESSION_HORIZON / 2)]
        {
            let lent = sessions.lend(home, Position(position), ME).expect("one");
            assert_eq!(lent.id().session, session_opened(Position(opened_behind), 0));
            sessions.give_back(lent);
        }
    }
}
