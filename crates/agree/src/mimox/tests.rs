//! Groups by hand, on a network that loses, repeats and turns round, with replicas that crash.

use super::*;
use crate::RaftGroup;
use txn::hash::mix;

const GROUP: PartitionId = PartitionId(0);

/// Draws from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = mix(self.0);
        self.0 % end
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A batch of a test: its place in the order, which stands for an epoch, and a number of its own.
fn batch(epoch: usize, number: u64) -> Bytes {
    [&(epoch as u64).to_le_bytes()[..], &number.to_le_bytes()].concat().into()
}

fn epoch_of(data: &[u8]) -> usize {
    u64::from_le_bytes(*data.first_chunk().expect("a batch")) as usize
}

/// A process, and what its journal has.
struct Process {
    group: Option<MimoxGroup>,
    entries: Vec<Entry>,
    hard_state: HardState,
    /// Turns whose record is not kept: the turn, what leaves then, and how much of the journal it wrote.
    unkept: Vec<(u64, Vec<(NodeId, Bytes)>)>,
    /// What its user takes the order to be: where the log has a batch, if it does, and the batch.
    order: Vec<(Option<u64>, Bytes)>,
    /// Batches of the order up to here are agreed.
    agreed: usize,
    /// How often batches ahead became void.
    voids: usize,
    /// Batches that were ahead before the log had them.
    ahead: usize,
}

struct Net {
    processes: Vec<Process>,
    /// From, to, what.
    wire: Vec<(NodeId, NodeId, Bytes)>,
    draw: Draw,
    numbers: u64,
    /// What a leader has taken.
    proposed: Vec<Bytes>,
    agreed: Vec<Bytes>,
    trail_bytes_max: u64,
    largest_entry: usize,
    /// Who was told to fetch a checkpoint.
    behind: Vec<NodeId>,
}

fn base(nodes: u16) -> Base {
    let voters = (1..=nodes).map(NodeId).collect();
    Base { members: Members { voters, ..Members::default() }, ..Base::default() }
}

impl Net {
    fn new(nodes: u16, seed: u64) -> Net {
        let process = |_| Process {
            group: None,
            entries: Vec::new(),
            hard_state: HardState::default(),
            unkept: Vec::new(),
            order: Vec::new(),
            agreed: 0,
            voids: 0,
            ahead: 0,
        };
        let mut net = Net {
            processes: (0..nodes).map(process).collect(),
            wire: Vec::new(),
            draw: Draw(seed),
            numbers: 0,
            proposed: Vec::new(),
            agreed: Vec::new(),
            trail_bytes_max: 1 << 20,
            largest_entry: 0,
            behind: Vec::new(),
        };
        (0..usize::from(nodes)).for_each(|at| net.start(at));
        net
    }

    fn start(&mut self, at: usize) {
        let nodes = self.processes.len() as u16;
        let process = &mut self.processes[at];
        let me = NodeId(at as u16 + 1);
        let (entries, hard_state) = (process.entries.clone(), process.hard_state);
        let group = MimoxGroup::new(me, GROUP, base(nodes), entries, hard_state, 5, self.trail_bytes_max);
        process.group = Some(group.expect("a log"));
        let batches = process.entries.iter().filter(|entry| is_batch(entry));
        process.order = batches.map(|entry| (Some(entry.index), entry.data.clone())).collect();
        process.agreed = 0;
        process.unkept.clear();
    }

    fn crash(&mut self, at: usize) {
        self.processes[at].group = None;
    }

    /// Takes all turns of a process, as its user does.
    fn turns(&mut self, at: usize) {
        let me = NodeId(at as u16 + 1);
        let mut again = Vec::new();
        while let Some(turn) = self.processes[at].group.as_mut().and_then(Group::turn) {
            let process = &mut self.processes[at];
            if let Some(ahead) = turn.ahead {
                process.void(ahead.stays);
                for data in ahead.batches {
                    process.ahead += 1;
                    process.push(None, data);
                }
            }
            if let Some(first) = turn.kept.entries.first() {
                process.entries.retain(|entry| entry.index < first.index);
                process.entries.extend(turn.kept.entries.iter().cloned());
                let is_replaced =
                    |(index, _): &(Option<u64>, Bytes)| index.is_some_and(|at| at >= first.index);
                process.order.retain(|place| !is_replaced(place));
            }
            let mut batches = turn.kept.entries.iter().filter(|entry| is_batch(entry));
            for entry in batches.by_ref().take(turn.known) {
                let next = process.order.iter_mut().find(|(index, _)| index.is_none());
                let (index, data) = next.expect("a batch is ahead");
                assert_eq!(*data, entry.data);
                *index = Some(entry.index);
            }
            if turn.voids_ahead {
                process.void(0);
            }
            for entry in batches {
                process.push(Some(entry.index), entry.data.clone());
            }
            if let Some(hard_state) = turn.kept.hard_state {
                process.hard_state = hard_state;
            }
            let agreed = process
                .order
                .iter()
                .take_while(|(index, _)| index.is_some_and(|index| index <= turn.committed));
            process.agreed = process.agreed.max(agreed.count());
            for place in 0..process.agreed {
                let data = &process.order[place].1;
                match self.agreed.get(place) {
                    Some(other) => assert_eq!(data, other, "replicas agree"),
                    None => self.agreed.push(data.clone()),
                }
            }
            for (to, message) in &turn.messages {
                if let Some(message) = library::decode(message) {
                    let bytes = message.entries.iter().map(|entry| entry.data.len());
                    self.largest_entry = self.largest_entry.max(bytes.max().unwrap_or(0));
                }
                self.wire.push((me, *to, message.clone()));
            }
            let process = &mut self.processes[at];
            process.unkept.push((turn.number, turn.promises));
            self.behind.extend(turn.behind);
            again.extend(turn.again);
        }
        for (from, message) in again {
            self.hear(from, at, &message);
        }
    }

    /// A process gets a message.
    fn hear(&mut self, from: NodeId, at: usize, message: &Bytes) {
        let Some(group) = &mut self.processes[at].group else { return };
        let examined = group.examine(from, message).expect("what a replica says");
        let _ = group.handle(Input::Message(message.clone()));
        assert!(examined.ahead.is_none() || examined.ahead == group.told, "what is examined happens");
        self.turns(at);
        let process = &self.processes[at];
        let ahead = process.order.iter().filter(|(index, _)| index.is_none()).count();
        assert_eq!(process.group.as_ref().map(Group::ahead), Some(ahead), "the user knows what is ahead");
    }

    fn keep(&mut self, at: usize) {
        for (number, promises) in std::mem::take(&mut self.processes[at].unkept) {
            let Some(group) = &mut self.processes[at].group else { return };
            group.kept(number);
            let me = NodeId(at as u16 + 1);
            self.wire.extend(promises.into_iter().map(|(to, message)| (me, to, message)));
        }
        self.turns(at);
    }

    fn handle(&mut self, at: usize, input: Input) {
        if let Some(group) = &mut self.processes[at].group {
            let _ = group.handle(input);
            self.turns(at);
        }
    }

    fn propose(&mut self, at: usize) {
        self.numbers += 1;
        let process = &mut self.processes[at];
        let data = batch(process.order.len() + 1, self.numbers);
        let Some(group) = &mut process.group else { return };
        if group.leads().is_some() && group.handle(Input::Propose(data.clone())).is_ok() {
            self.proposed.push(data);
            self.turns(at);
        }
    }

    fn leader(&self) -> Option<usize> {
        let leads = |process: &Process| process.group.as_ref().and_then(Group::leads);
        (0..self.processes.len())
            .max_by_key(|&at| leads(&self.processes[at]))
            .filter(|&at| leads(&self.processes[at]).is_some())
    }

    /// Everything arrives and is kept, until nothing is on its way.
    fn settle(&mut self) {
        loop {
            for at in 0..self.processes.len() {
                self.turns(at);
                self.keep(at);
            }
            if self.wire.is_empty() {
                return;
            }
            for (from, to, message) in std::mem::take(&mut self.wire) {
                self.hear(from, usize::from(to.0) - 1, &message);
            }
        }
    }

    fn elect(&mut self) -> usize {
        for _ in 0..200 {
            if let Some(leader) = self.leader() {
                return leader;
            }
            for at in 0..self.processes.len() {
                self.handle(at, Input::Tick);
            }
            self.settle();
        }
        panic!("nobody is elected");
    }

    /// One thing that may happen.
    fn step(&mut self) {
        let nodes = self.processes.len() as u64;
        let at = self.draw.below(nodes) as usize;
        match self.draw.below(100) {
            0..40 if !self.wire.is_empty() => {
                // Mostly in order, as links are.
                let late = self.draw.percent(20);
                let end = if late { self.wire.len() as u64 } else { 1 };
                let place = self.draw.below(end) as usize;
                let (from, to, message) = self.wire[place].clone();
                if !self.draw.percent(3) {
                    self.wire.remove(place);
                }
                if !self.draw.percent(8) {
                    self.hear(from, usize::from(to.0) - 1, &message);
                }
            }
            40..60 => self.keep(at),
            60..80 => {
                if let Some(leader) = self.leader() {
                    self.propose(leader);
                }
            }
            80..97 => self.handle(at, Input::Tick),
            97 => self.crash(at),
            98 if self.processes[at].group.is_none() => self.start(at),
            _ => {}
        }
    }
}

impl Process {
    /// Only so many of the batches ahead stay.
    fn void(&mut self, stays: usize) {
        let had = self.order.len();
        let logged = self.order.iter().filter(|(index, _)| index.is_some()).count();
        self.order.truncate(logged + stays);
        self.voids += usize::from(self.order.len() < had);
    }

    fn push(&mut self, index: Option<u64>, data: Bytes) {
        assert_eq!(epoch_of(&data), self.order.len() + 1, "no batch is missing before it");
        self.order.push((index, data));
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("ORDO_SEED") {
        Ok(seed) => vec![seed.parse().expect("ORDO_SEED is a number")],
        Err(_) => (1..=300).collect(),
    }
}

#[test]
fn replicas_agree_on_batches_that_they_hold_whatever_happens() {
    let (mut voids, mut ahead, mut agreed) = (0, 0, 0);
    for seed in seeds() {
        println!("ORDO_SEED={seed}");
        let mut net = Net::new(if seed % 3 == 0 { 5 } else { 3 }, seed);
        for _ in 0..1_500 {
            net.step();
        }
        for at in 0..net.processes.len() {
            if net.processes[at].group.is_none() {
                net.start(at);
            }
        }
        net.settle();
        for _ in 0..60 {
            (0..net.processes.len()).for_each(|at| net.handle(at, Input::Tick));
            net.settle();
        }
        let leader = net.elect();
        net.propose(leader);
        for _ in 0..60 {
            (0..net.processes.len()).for_each(|at| net.handle(at, Input::Tick));
            net.settle();
        }
        let last = net.proposed.last().expect("one was proposed").clone();
        assert!(net.agreed.contains(&last), "what a leader takes in the end is agreed");
        for process in &net.processes {
            assert_eq!(process.agreed, net.agreed.len(), "all replicas have all");
            let group = process.group.as_ref().expect("it runs");
            group.check_invariants();
            assert!(group.waiting.is_empty() && group.asked.is_empty());
            voids += process.voids;
            ahead += process.ahead;
        }
        for (place, data) in net.agreed.iter().enumerate() {
            assert!(net.proposed.contains(data) && !net.agreed[..place].contains(data), "once each");
        }
        agreed += net.agreed.len();
        assert!(net.largest_entry <= 21, "an entry is a name");
    }
    assert!(ahead > agreed && voids > 0, "{ahead} ahead, {voids} void, {agreed} agreed");
}

#[test]
fn the_optimistic_order_is_the_final_one_while_the_leader_stays() {
    let mut net = Net::new(5, 7);
    let leader = net.elect();
    for round in 0..50 {
        for _ in 0..=round % 9 {
            net.propose(leader);
        }
        net.settle();
    }
    let batches = net.agreed.len();
    assert_eq!(batches, net.proposed.len());
    for process in &net.processes {
        assert_eq!((process.voids, process.ahead), (0, batches));
    }
}

#[test]
fn a_final_batch_waits_for_the_one_before_it_or_for_a_tick_or_for_five() {
    let mut net = Net::new(3, 7);
    let leader = net.elect();
    let undecided = |net: &Net| net.processes[leader].group.as_ref().expect("it runs").unproposed;
    net.propose(leader);
    assert_eq!(undecided(&net), 0, "an idle leader adds no delay");
    net.propose(leader);
    net.propose(leader);
    assert_eq!(undecided(&net), 2);
    net.handle(leader, Input::Tick);
    assert_eq!(undecided(&net), 0, "a tick has passed");
    for _ in 0..4 {
        net.propose(leader);
    }
    assert_eq!(undecided(&net), 4);
    net.propose(leader);
    assert_eq!(undecided(&net), 0, "five are enough");
    net.propose(leader);
    net.settle();
    assert_eq!(undecided(&net), 0, "the one before is decided");
    assert_eq!(net.agreed.len(), 9);
}

#[test]
fn a_dead_leaders_batches_are_proposed_by_the_next_one_that_has_them() {
    let mut net = Net::new(3, 7);
    let leader = net.elect();
    net.propose(leader);
    net.settle();
    // The next two reach all, and no final-batch of them does.
    net.propose(leader);
    net.propose(leader);
    let is_ahead = |bytes: &Bytes| matches!(Own::decode(bytes), Ok(Some(_)));
    net.wire.retain(|(.., message)| is_ahead(message));
    net.crash(leader);
    for (from, to, message) in std::mem::take(&mut net.wire) {
        net.hear(from, usize::from(to.0) - 1, &message);
    }
    let next = net.elect();
    assert_ne!(next, leader);
    net.settle();
    assert_eq!(net.agreed, net.proposed);
    assert!(net.processes.iter().all(|process| process.voids == 0));
}

#[test]
fn a_replica_asks_for_what_it_lacks_and_gets_it_from_any_other() {
    let mut net = Net::new(3, 7);
    let leader = net.elect();
    let late = (leader + 1) % 3;
    let other = 3 - leader - late;
    net.propose(leader);
    // The opt-batch reaches one follower, the final-batch both.
    let to = |at: usize| NodeId(at as u16 + 1);
    let is_ahead = |bytes: &Bytes| matches!(Own::decode(bytes), Ok(Some(_)));
    net.wire.retain(|(_, node, message)| !(is_ahead(message) && *node == to(late)));
    for (from, node, message) in std::mem::take(&mut net.wire) {
        net.hear(from, usize::from(node.0) - 1, &message);
    }
    // The leader does not answer the question, and the other follower does.
    net.wire.retain(|(from, node, message)| !(*from == to(late) && *node == to(leader) && is_ahead(message)));
    let entries = |net: &Net, at: usize| net.processes[at].order.len();
    assert_eq!((entries(&net, other), entries(&net, late)), (1, 0));
    for _ in 0..4 * ASK_AGAIN_TICKS {
        net.handle(late, Input::Tick);
        net.wire
            .retain(|(from, node, message)| !(*from == to(late) && *node == to(leader) && is_ahead(message)));
        net.settle();
    }
    assert_eq!(entries(&net, late), 1);
    assert_eq!(net.agreed.len(), 1);
}

#[test]
fn the_journal_is_that_of_a_raft_group() {
    let mut net = Net::new(3, 7);
    let leader = net.elect();
    for _ in 0..5 {
        net.propose(leader);
        net.settle();
    }
    let process = &net.processes[leader];
    let (entries, hard_state) = (process.entries.clone(), process.hard_state);
    let raft = RaftGroup::new(NodeId(1), GROUP, base(3), entries.clone(), hard_state, 5, 0).expect("a log");
    for entry in &entries {
        assert_eq!(raft.entry(entry.index).as_ref(), Some(entry));
    }
    let group = process.group.as_ref().expect("it runs");
    assert!(entries.iter().all(|entry| group.entry(entry.index).as_ref() == Some(entry)));
}

#[test]
fn what_a_checkpoint_covers_is_forgotten_with_the_log() {
    let mut net = Net::new(3, 7);
    net.trail_bytes_max = 0;
    (0..3).for_each(|at| net.start(at));
    let leader = net.elect();
    for _ in 0..5 {
        net.propose(leader);
        net.settle();
    }
    let group = net.processes[leader].group.as_mut().expect("it runs");
    let last = group.entry(group.status().committed).expect("an entry");
    assert_eq!(group.held.pins(), 5);
    group.rebase(Base { index: last.index, term: last.term, ..base(3) });
    assert_eq!(group.held.pins(), 0);
    group.check_invariants();
}

#[test]
fn entries_whose_batches_nobody_has_any_more_are_given_up() {
    let mut net = Net::new(3, 7);
    net.trail_bytes_max = 0;
    (0..3).for_each(|at| net.start(at));
    let leader = net.elect();
    let late = (leader + 1) % 3;
    let to_late = NodeId(late as u16 + 1);
    // The late one gets the names only.
    net.propose(leader);
    let is_ahead = |bytes: &Bytes| matches!(Own::decode(bytes), Ok(Some(_)));
    net.wire.retain(|(_, to, message)| !(*to == to_late && is_ahead(message)));
    for (from, to, message) in std::mem::take(&mut net.wire) {
        net.hear(from, usize::from(to.0) - 1, &message);
    }
    net.wire.retain(|(from, to, message)| !(*from == to_late || *to == to_late) || !is_ahead(message));
    net.settle();
    assert_eq!(net.processes[late].order.len(), 0);
    // The others forget the batch: a checkpoint covers it.
    for at in (0..3).filter(|at| *at != late) {
        let group = net.processes[at].group.as_mut().expect("it runs");
        let last = group.entry(group.status().committed).expect("an entry");
        group.rebase(Base { index: last.index, term: last.term, ..base(3) });
        assert_eq!(group.held.pins(), 0);
    }
    for _ in 0..4 * GIVE_UP_TICKS {
        (0..3).for_each(|at| net.handle(at, Input::Tick));
        net.settle();
        if net.behind.contains(&to_late) {
            return;
        }
    }
    panic!("the leader does not say that the replica must fetch a checkpoint");
}

/// A message of the library by hand.
fn append_of(term: u64, behind: (u64, u64), entries: Vec<(u64, Bytes)>) -> Message {
    let mut message = Message { to: 1, from: u64::from(term as u16), term, ..Message::default() };
    message.set_msg_type(MessageType::MsgAppend);
    (message.index, message.log_term) = behind;
    for (place, (term, data)) in (1..).zip(entries) {
        let mut entry = raft::eraftpb::Entry { term, data, ..Default::default() };
        entry.index = behind.0 + place;
        message.entries.push(entry);
    }
    message
}

/// Also a replaced entry without a batch ends the optimistic order behind it.
#[test]
fn a_replaced_entry_without_a_batch_voids_what_is_ahead() {
    let mut net = Net::new(3, 7);
    let (two, three) = (NodeId(2), NodeId(3));
    let empty = |term| (term, Bytes::new());
    net.hear(two, 0, &library::encode(&append_of(2, (0, 0), vec![empty(2)])));
    let says = Says::OptBatch { term: 2, before: BatchName::NONE, data: batch(1, 1) };
    net.hear(two, 0, &Own { from: two, says }.encode());
    assert_eq!(net.processes[0].order, [(None, batch(1, 1))]);
    net.hear(three, 0, &library::encode(&append_of(3, (0, 0), vec![empty(3)])));
    assert_eq!(net.processes[0].order, []);
    assert_eq!(net.processes[0].voids, 1);
    // Only the leader of the term may send ahead.
    let says = Says::OptBatch { term: 3, before: BatchName::NONE, data: batch(1, 2) };
    net.hear(two, 0, &Own { from: two, says: says.clone() }.encode());
    assert_eq!(net.processes[0].order, []);
    net.hear(three, 0, &Own { from: three, says }.encode());
    assert_eq!(net.processes[0].order, [(None, batch(1, 2))]);
    // No final-batch names it.
    for _ in 0..=GIVE_UP_TICKS {
        net.handle(0, Input::Tick);
    }
    assert_eq!((&net.processes[0].order[..], net.processes[0].voids), (&[][..], 2));
}

#[test]
fn a_replica_that_lacks_many_batches_gets_many_at_a_time() {
    const BATCHES: usize = 3_000;
    let mut net = Net::new(3, 7);
    let leader = net.elect();
    let late = (leader + 1) % 3;
    net.crash(late);
    while net.proposed.len() < BATCHES {
        net.propose(leader);
        if net.proposed.len().is_multiple_of(4) {
            net.settle();
        }
    }
    net.settle();
    net.start(late);
    let mut asks = 0;
    for _ in 0..4 {
        (0..3).for_each(|at| net.handle(at, Input::Tick));
        while !net.wire.is_empty() {
            for (from, to, message) in std::mem::take(&mut net.wire) {
                let own = Own::decode(&message).expect("a message");
                asks += usize::from(own.is_some_and(|own| matches!(own.says, Says::Ask(_))));
                net.hear(from, usize::from(to.0) - 1, &message);
            }
            (0..3).for_each(|at| net.keep(at));
        }
    }
    assert_eq!(net.processes[late].agreed, BATCHES);
    assert!(asks < BATCHES / 100, "{asks} questions");
}
