//! What groups and those who follow them must not take from each other, and what must not stop them.

use crate::rig::Rig;
use agree::{Group, Input, MemberChange, RaftGroup};
use bytes::Bytes;
use log::{Base, HardState, Members};
use order::merge::{Content, EpochEnd, Held, Merge, Outdated, Start};
use order::{GroupBatch, PartitionMap, Streams};
use ordo_node::cluster::{ClusterEvent, TRANSFER_KEPT_MS};
use std::sync::Arc;
use txn::{Epoch, NodeId, PartitionId, Position};

const P0: PartitionId = PartitionId(0);

/// A follower of group 1 hears from X that (12, term 3) is agreed; group 0 is late; it then follows Y, a
/// stale replica.
#[test]
fn a_stale_replica_replaces_what_is_agreed() {
    let map = Arc::new(PartitionMap::alone());
    let mut merge = Merge::new(Start {
        local: vec![PartitionId(0)],
        end: EpochEnd {
            epoch: Epoch(0),
            time_ms: 0,
            digest: 0,
            next: vec![Position::FIRST],
            map,
            changes: Vec::new(),
        },
        groups: vec![(Streams::default(), (0, 0)); 2],
        skips: Arc::default(),
    });
    let held = |index, term, digest| Held {
        epoch: Epoch(1),
        index,
        term,
        digest,
        bytes: 1,
        batch: Content::Read(Arc::new(GroupBatch {
            epoch: Epoch(1),
            time_ms: 1,
            submissions: Vec::new(),
            controls: Vec::new(),
        })),
        noted: Default::default(),
    };
    let p1 = PartitionId(1);
    assert_eq!(merge.told(p1, held(12, 3, 777)), Ok(None));
    merge.agreed(p1, 12);
    // Another subscription, at a replica that was cut off: its own entry 11 of term 2 was never agreed, and
    // it says so.
    assert_eq!(merge.told(p1, held(11, 2, 666)), Err(Outdated));
    merge.agreed(p1, 10);
    merge.appended(P0, held(1, 1, 1));
    merge.agreed(P0, 1);
    merge.deliver(txn::BootId(0)).expect("both are held");
    merge.confirm().expect("confirmed");
    assert_eq!(merge.group(p1).1, (12, 3), "what was never agreed is confirmed");
}

#[test]
fn a_newcomer_hears_a_leader_that_is_no_founder() {
    let mut rig = Rig::running(&["x", "y", "z"], 1);
    let settled = |rig: &Rig, voters: &[u16]| rig.voters(P0).as_deref() == Some(voters);
    let d = rig.add_node(NodeId(2), "d", 0);
    rig.drain(NodeId(3), NodeId(1));
    rig.start(d);
    rig.until("4 for 1", |rig| settled(rig, &[2, 3, 4]));
    rig.until("1 is out of the map", |rig| !rig.map().is_some_and(|map| map.nodes.contains_key(&NodeId(1))));
    let leader = rig.leader(P0).expect("a leader");
    if leader != d {
        rig.handle(leader, ClusterEvent::TransferWanted { partition: P0, to: d });
    }
    rig.until("4 leads", |rig| rig.leader(P0) == Some(d));
    let e = rig.add_node(NodeId(3), "e", 1);
    rig.drain(NodeId(3), NodeId(2));
    rig.start(e);
    rig.until("5 for 2", |rig| settled(rig, &[3, 4, 5]));
}

#[test]
fn a_transfer_counts_more_than_the_spread_for_a_while() {
    let mut rig = Rig::running(&["x", "y", "z"], 3);
    let p1 = PartitionId(1);
    let preferred = rig.map().and_then(|map| map.preferred_leader(p1));
    let preferred = preferred.expect("somebody");
    rig.until("spread", |rig| rig.leader(p1) == Some(preferred));
    let [to, other] = [NodeId(1), NodeId(2), NodeId(3)]
        .into_iter()
        .filter(|&node| node != preferred)
        .collect::<Vec<_>>()[..]
    else {
        panic!("three nodes");
    };
    rig.handle(preferred, ClusterEvent::TransferWanted { partition: p1, to });
    rig.until("it was handed over", |rig| rig.leader(p1) == Some(to));
    // Several times as long as leaders take to look whether they are the preferred ones.
    for round in 0..400 {
        rig.round();
        assert_eq!(rig.leader(p1), Some(to), "in round {round}");
    }
    // While it is down, whoever leads, it is not forgotten; and it need not remember itself.
    rig.crash(to);
    rig.until("somebody else leads", |rig| rig.leader(p1).is_some_and(|leader| leader != to));
    rig.start(to);
    rig.until("it leads again", |rig| rig.leader(p1) == Some(to));
    for round in 0..400 {
        rig.round();
        assert_eq!(rig.leader(p1), Some(to), "in round {round} after its start");
    }
    // Another wish takes its place, and in the end there is none.
    rig.handle(to, ClusterEvent::TransferWanted { partition: p1, to: other });
    rig.until("the other leads", |rig| rig.leader(p1) == Some(other));
    let ticks = TRANSFER_KEPT_MS / 50;
    for _ in 0..ticks {
        rig.round();
    }
    rig.until("spread again", |rig| rig.leader(p1) == Some(preferred));
}

#[test]
fn leaders_are_in_the_zone_that_was_asked_for() {
    for partitions in [1, 3] {
        let mut rig = Rig::new(&["x", "y", "z"], partitions);
        rig.leaders_in = Some("z".to_owned());
        rig.start_all();
        let led = |rig: &Rig| {
            let mut all = (0..partitions).map(PartitionId);
            all.all(|partition| rig.leader(partition) == Some(NodeId(3)))
        };
        rig.until("all are led there", led);
        rig.crash(NodeId(3));
        rig.until("somebody else leads", |rig| rig.leader(P0).is_some_and(|leader| leader != NodeId(3)));
        rig.start(NodeId(3));
        rig.until("it leads again", led);
    }
}

/// Under `everysec` and `no` a power loss takes entries that a follower had answered for.
#[test]
fn a_follower_that_lost_its_tail_comes_back() {
    let voters = vec![NodeId(1), NodeId(2), NodeId(3)];
    let base = Base { members: Members { voters, ..Members::default() }, ..Base::default() };
    let new = |me: u16, entries, hard| {
        RaftGroup::new(NodeId(me), P0, base.clone(), entries, hard, 1, 1 << 20).expect("a group")
    };
    let mut groups: Vec<RaftGroup> = (1..=3).map(|me| new(me, vec![], HardState::default())).collect();
    let mut hard = HardState::default();
    type Wire = Vec<(u16, NodeId, Bytes)>;
    let mut wire = Wire::new();
    let pump = |groups: &mut Vec<RaftGroup>, wire: &mut Wire, hard: &mut HardState| loop {
        for (me, group) in groups.iter_mut().enumerate() {
            while let Some(turn) = group.turn() {
                let out = turn.messages.into_iter().chain(turn.promises);
                wire.extend(out.map(|(to, bytes)| (me as u16 + 1, to, bytes)));
                if let (2, Some(new)) = (me, turn.kept.hard_state) {
                    *hard = new;
                }
                group.kept(turn.number);
            }
        }
        if wire.is_empty() {
            break;
        }
        for (_, to, bytes) in std::mem::take(wire) {
            let _ = groups[usize::from(to.0) - 1].handle(Input::Message(bytes));
        }
    };
    let leader = loop {
        for group in &mut groups[..2] {
            let _ = group.handle(Input::Tick);
        }
        pump(&mut groups, &mut wire, &mut hard);
        if let Some(leader) = groups.iter().position(|group| group.leads().is_some()) {
            break leader;
        }
    };
    let kept_hard = hard;
    for _ in 0..5 {
        let _ = groups[leader].handle(Input::Propose(Bytes::from_static(b"entry")));
        pump(&mut groups, &mut wire, &mut hard);
    }
    // Power loss of node 3: what it had not synced is gone, its term and vote are not.
    groups[2] = new(3, vec![], HardState { commit: 0, ..kept_hard });
    let _ = groups[leader].handle(Input::Unreachable(NodeId(3)));
    for _ in 0..8 {
        let _ = groups[leader].handle(Input::Tick);
        pump(&mut groups, &mut wire, &mut hard);
    }
    assert_eq!(groups[2].status().last, groups[leader].status().last);
}

/// What leaves, and to whom.
type Outgoing = Vec<(NodeId, Bytes)>;

/// The replicas of a group of three, by hand: records are kept only where a test says so.
struct Three {
    groups: Vec<RaftGroup>,
    /// The records that are being kept: of whom, the turn, and what leaves then.
    unkept: Vec<(usize, u64, Outgoing)>,
    wire: Outgoing,
    /// Nothing reaches this one.
    cut: Option<usize>,
}

impl Three {
    fn new() -> Three {
        let base = Base {
            members: Members { voters: vec![NodeId(1), NodeId(2), NodeId(3)], ..Members::default() },
            ..Base::default()
        };
        let new = |me| {
            let hard = HardState::default();
            RaftGroup::new(NodeId(me), P0, base.clone(), vec![], hard, 1, 1 << 20).expect("a group")
        };
        Three { groups: (1..=3).map(new).collect(), unkept: Vec::new(), wire: Vec::new(), cut: None }
    }

    /// Delivers what leaves at once, until nothing does. Returns the answers to questions.
    fn deliver(&mut self) -> Vec<(usize, u64)> {
        let mut answers = Vec::new();
        loop {
            for (me, group) in self.groups.iter_mut().enumerate() {
                while let Some(turn) = group.turn() {
                    self.wire.extend(turn.messages);
                    self.unkept.push((me, turn.number, turn.promises));
                    answers.extend(turn.indices.into_iter().map(|(question, _)| (me, question)));
                }
            }
            if self.wire.is_empty() {
                return answers;
            }
            let cut = self.cut.map(|cut| cut + 1);
            self.wire.retain(|(to, _)| Some(usize::from(to.0)) != cut);
            for (to, bytes) in std::mem::take(&mut self.wire) {
                let _ = self.groups[usize::from(to.0) - 1].handle(Input::Message(bytes));
            }
        }
    }

    /// Keeps all records, and those that follow from them.
    fn keep(&mut self) {
        while !self.unkept.is_empty() {
            for (me, number, promises) in std::mem::take(&mut self.unkept) {
                self.groups[me].kept(number);
                self.wire.extend(promises);
            }
            self.deliver();
        }
    }

    fn leader(&mut self) -> usize {
        loop {
            if let Some(leader) = self.groups.iter().position(|group| group.leads().is_some()) {
                return leader;
            }
            for (me, group) in self.groups.iter_mut().enumerate() {
                if self.cut != Some(me) {
                    let _ = group.handle(Input::Tick);
                }
            }
            self.deliver();
            self.keep();
        }
    }
}

/// What a strict read asks of the others promises nothing, so it waits for no disk.
#[test]
fn a_read_index_waits_for_no_record() {
    let mut three = Three::new();
    let leader = three.leader();
    let follower = (leader + 1) % 3;
    let _ = three.groups[leader].handle(Input::Propose(Bytes::from_static(b"entry")));
    three.deliver();
    assert!(!three.unkept.is_empty(), "the entry is on its way to the disks");
    let _ = three.groups[follower].handle(Input::AskIndex { question: 7 });
    assert_eq!(three.deliver(), [(follower, 7)]);
    three.keep();
    let committed = three.groups.iter().map(|group| group.status().committed);
    assert!(committed.min() > Some(1), "the entry is agreed");
}

/// A heartbeat of a term that is not durable yet is not answered: after a crash the follower would not know
/// of the term.
#[test]
fn nothing_is_said_in_a_term_that_is_not_durable() {
    let mut three = Three::new();
    let late = 2;
    three.cut = Some(late);
    let leader = three.leader();
    three.cut = None;
    let heartbeat = |three: &mut Three| {
        for _ in 0..2 {
            let _ = three.groups[leader].handle(Input::Tick);
        }
        let turn = three.groups[leader].turn().expect("heartbeats");
        for (to, bytes) in turn.messages {
            if usize::from(to.0) == late + 1 {
                let _ = three.groups[late].handle(Input::Message(bytes));
            }
        }
        three.groups[leader].kept(turn.number);
        three.groups[late].turn().expect("an answer")
    };
    let first = heartbeat(&mut three);
    assert!(first.is_promise && first.messages.is_empty() && !first.promises.is_empty());
    let second = heartbeat(&mut three);
    assert!(!second.is_promise && second.messages.is_empty(), "the term is still being kept");
    three.groups[late].kept(second.number);
    let third = heartbeat(&mut three);
    assert!(!third.messages.is_empty(), "the term is durable");
}

/// A leader takes those for late only that have told it so: who has said nothing since the election may have
/// everything.
#[test]
fn a_new_leader_knows_no_lag_of_those_it_has_not_heard() {
    let base = Base {
        members: Members { voters: vec![NodeId(1), NodeId(2), NodeId(3)], ..Members::default() },
        ..Base::default()
    };
    let new = |me| {
        let hard = HardState::default();
        RaftGroup::new(NodeId(me), P0, base.clone(), vec![], hard, 1, 1 << 20).expect("a group")
    };
    let mut groups: Vec<RaftGroup> = (1..=3).map(new).collect();
    // Only the first `reached` of the nodes hear anything.
    let pump = |groups: &mut Vec<RaftGroup>, reached: usize| loop {
        let mut wire: Vec<(NodeId, Bytes)> = Vec::new();
        for group in groups.iter_mut() {
            while let Some(turn) = group.turn() {
                wire.extend(turn.messages.into_iter().chain(turn.promises));
                group.kept(turn.number);
            }
        }
        wire.retain(|(to, _)| usize::from(to.0) <= reached);
        if wire.is_empty() {
            break;
        }
        for (to, bytes) in wire {
            let _ = groups[usize::from(to.0) - 1].handle(Input::Message(bytes));
        }
    };
    while groups[0].leads().is_none() {
        let _ = groups[0].handle(Input::Tick);
        pump(&mut groups, 2);
    }
    let lags = |group: &RaftGroup| {
        let status = group.status();
        [1, 2, 3].map(|node| status.lag(NodeId(node)))
    };
    assert_eq!(lags(&groups[0]), [Some(0), Some(0), None]);
    assert_eq!(lags(&groups[1]), [None; 3], "it does not lead");
    for _ in 0..10 {
        let _ = groups[0].handle(Input::Tick);
        pump(&mut groups, 3);
    }
    assert_eq!(lags(&groups[0]), [Some(0); 3]);
    for _ in 0..3 {
        let _ = groups[0].handle(Input::Propose(Bytes::from_static(b"entry")));
        pump(&mut groups, 2);
    }
    assert_eq!(lags(&groups[0]), [Some(0), Some(0), Some(3)]);
}

/// Two of three nodes, each of which leads a group, do not reach each other; the third reaches both.
#[test]
fn one_cut_link_between_two_leaders_does_not_stop_the_cluster() {
    let mut rig = Rig::running(&["x", "y", "z"], 2);
    let p1 = PartitionId(1);
    rig.until("spread", |rig| rig.leader(P0) == Some(NodeId(1)) && rig.leader(p1) == Some(NodeId(2)));
    for _ in 0..20 {
        rig.add(NodeId(3), P0);
        rig.round();
    }
    rig.cut.push((NodeId(1), NodeId(2)));
    for _ in 0..100 {
        rig.add(NodeId(3), P0);
        rig.round();
    }
    let before = rig.node(NodeId(3)).status().confirmed;
    for _ in 0..400 {
        rig.add(NodeId(3), P0);
        rig.round();
    }
    let after = rig.node(NodeId(3)).status().confirmed;
    assert!(after > before, "nothing confirmed in 20 s: {before:?}\n{}", rig.describe());
}

/// A node follows a group through its neighbour, which is cut off from the other zones.
#[test]
fn a_neighbour_that_lags_is_not_followed() {
    let mut rig = Rig::running(&["x", "x", "y", "z"], 2);
    let p1 = PartitionId(1);
    for _ in 0..60 {
        rig.add(NodeId(3), p1);
        rig.round();
    }
    rig.crash(NodeId(2));
    for _ in 0..100 {
        rig.add(NodeId(3), p1);
        rig.round();
    }
    rig.until("1 leads 0", |rig| rig.leader(P0) == Some(NodeId(1)));
    // Back, but the other zones do not reach it; its neighbour does.
    rig.cut.push((NodeId(2), NodeId(3)));
    rig.cut.push((NodeId(2), NodeId(4)));
    rig.start(NodeId(2));
    for _ in 0..100 {
        rig.add(NodeId(3), p1);
        rig.round();
    }
    let before = [1, 3].map(|node| rig.node(NodeId(node)).status().confirmed);
    for _ in 0..400 {
        rig.add(NodeId(3), p1);
        rig.round();
    }
    let after = [1, 3].map(|node| rig.node(NodeId(node)).status().confirmed);
    assert!(after[0] > before[0] && after[1] > before[1], "{before:?} {after:?}\n{}", rig.describe());
}

/// A group of three, the first of which leads.
fn led_group() -> Vec<RaftGroup> {
    let base = Base {
        members: Members { voters: vec![NodeId(1), NodeId(2), NodeId(3)], ..Members::default() },
        ..Base::default()
    };
    let new = |me: u16| {
        RaftGroup::new(NodeId(me), P0, base.clone(), vec![], HardState::default(), 1, 1 << 20)
            .expect("a group")
    };
    let mut groups: Vec<RaftGroup> = (1..=3).map(new).collect();
    while groups[0].leads().is_none() {
        let _ = groups[0].handle(Input::Tick);
        settle(&mut groups);
    }
    groups
}

/// What a replica says, and its answers to questions.
type Said = (Vec<(NodeId, Bytes)>, Vec<(u64, u64)>);

/// Takes a replica's turns, all of which are kept at once.
fn turns(group: &mut RaftGroup) -> Said {
    let (mut out, mut indices) = (Vec::new(), Vec::new());
    while let Some(turn) = group.turn() {
        out.extend(turn.messages.into_iter().chain(turn.promises));
        indices.extend(turn.indices);
        group.kept(turn.number);
    }
    (out, indices)
}

/// Lets them talk until nobody has anything to say. How many questions were answered.
fn settle(groups: &mut [RaftGroup]) -> usize {
    let mut answers = 0;
    loop {
        let mut wire = Vec::new();
        for group in groups.iter_mut() {
            let (out, indices) = turns(group);
            wire.extend(out);
            answers += indices.len();
        }
        if wire.is_empty() {
            return answers;
        }
        for (to, bytes) in wire {
            let _ = groups[usize::from(to.0) - 1].handle(Input::Message(bytes));
        }
    }
}

/// The others agree that the leader leaves, before its own disk has what it had begun with them.
#[test]
fn a_leader_that_has_left_before_its_log_was_kept_follows() {
    let mut groups = led_group();
    let leaves = MemberChange::Replace { voters: vec![], leavers: vec![NodeId(1)] };
    let taken = groups[0].handle(Input::ChangeMembers(leaves));
    assert!(taken.is_ok());
    // That is kept, and what it proposes next is on its way to the disk.
    let (mut wire, _) = turns(&mut groups[0]);
    let taken = groups[0].handle(Input::Propose(Bytes::from_static(b"next")));
    assert!(taken.is_ok());
    let next = groups[0].turn().expect("a turn");
    wire.extend(next.messages);
    for (to, bytes) in wire {
        let _ = groups[usize::from(to.0) - 1].handle(Input::Message(bytes));
    }
    for other in 1..3 {
        for (_, bytes) in turns(&mut groups[other]).0 {
            let _ = groups[0].handle(Input::Message(bytes));
        }
    }
    let mut unkept = vec![next.number];
    while let Some(turn) = groups[0].turn() {
        unkept.push(turn.number);
    }
    assert_eq!(groups[0].members().voters, [NodeId(2), NodeId(3)]);
    for number in unkept {
        groups[0].kept(number);
    }
    assert_eq!(groups[0].leads(), None);
    for _ in 0..100 {
        let _ = groups[1].handle(Input::Tick);
        settle(&mut groups[..]);
    }
    assert!(groups[1].leads().is_some(), "the others go on");
}

/// The library knows a question by its name alone.
#[test]
fn an_answer_to_another_nodes_question_confirms_no_read() {
    let mut groups = led_group();
    // Two followers ask under the same name at once.
    let _ = groups[1].handle(Input::AskIndex { question: 5 });
    let _ = groups[2].handle(Input::AskIndex { question: 5 });
    let answers = settle(&mut groups);
    println!("two nodes asked question 5 at once: {answers} answers");
    // Node 2 asks question 7; node 3's answer to the leader's heartbeat for it is held up on its way.
    let _ = groups[1].handle(Input::AskIndex { question: 7 });
    let (asked, _) = turns(&mut groups[1]);
    for (_, bytes) in asked {
        let _ = groups[0].handle(Input::Message(bytes));
    }
    let (beats, _) = turns(&mut groups[0]);
    let mut held = Vec::new();
    for (to, bytes) in beats {
        let _ = groups[usize::from(to.0) - 1].handle(Input::Message(bytes));
    }
    let (acks, _) = turns(&mut groups[1]);
    held.extend(turns(&mut groups[2]).0);
    for (_, bytes) in acks {
        let _ = groups[0].handle(Input::Message(bytes));
    }
    turns(&mut groups[0]);
    // Now the leader is cut off; the others may have elected another one. It asks its own question 7.
    let _ = groups[0].handle(Input::AskIndex { question: 7 });
    let (_, before) = turns(&mut groups[0]);
    assert!(before.is_empty());
    for (_, bytes) in held {
        let _ = groups[0].handle(Input::Message(bytes));
    }
    let (_, after) = turns(&mut groups[0]);
    assert!(
        answers == 2 && after.is_empty(),
        "{answers} answers of 2; confirmed by what was sent before it was asked: {after:?}"
    );
}

/// A node that is to leave still executes what it keeps, and needs the requests for it that are in other
/// groups' logs.
#[test]
fn a_leaving_node_executes_what_the_others_do() {
    let mut rig = Rig::running(&["x", "x", "y", "z"], 2);
    let p1 = PartitionId(1);
    for _ in 0..10 {
        rig.add_by(NodeId(3), P0, p1);
        rig.round();
    }
    rig.check();
    let heir = rig.add_node(NodeId(3), "e", 0);
    rig.drain(NodeId(3), NodeId(1));
    assert!(!rig.is_running(heir), "nobody has taken over yet");
    for _ in 0..20 {
        rig.add_by(NodeId(3), P0, p1);
        rig.round();
    }
    for _ in 0..40 {
        rig.round();
    }
    rig.check();
}
