//! Sites of a certified protocol, driven by hand: what the substrate does for a protocol, one promise each.

use bytes::Bytes;
use certify::register::{GROUP, Register};
use certify::{Answer, Certifier, Effects, Look, Malformed, ReadSet, WriteSet};
use log::{Base, Entry as LogEntry, EntryKind, GroupImage, GroupImages, HardState, Kept, Members};
use ordo_node::FsyncPolicy;
use ordo_node::cluster::checkpoint::Needed;
use ordo_node::cluster::{ClusterCheckpoint, Piece, Whole};
use ordo_node::host::{Host, HostEvent, Machine, Recorded, drive};
use ordo_node::site::{BASE_BYTES_MAX, Site, SiteEffects, SiteOptions, SiteStatus, describe};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use txn::tx::Read;
use txn::{Entry, Key, NodeId, PartitionId, Position, RequestId, SessionId};

thread_local! {
    /// A site whose build knows no entry.
    static KNOWS_NOTHING: Cell<Option<NodeId>> = const { Cell::new(None) };
}

/// A register whose sites also greet each other.
#[derive(Default)]
struct Greeter {
    me: Option<NodeId>,
    register: Register,
    greeted_by: Vec<NodeId>,
    forgotten: Vec<RequestId>,
    /// Leaders that it was told of.
    leaders: u32,
}

const GREETING: &[u8] = b"hello";

impl Certifier for Greeter {
    fn begin(&mut self, id: RequestId, is_read_only: bool, effects: &mut Effects) {
        self.register.begin(id, is_read_only, effects);
        effects.send(NodeId(2), GREETING);
    }
    fn look(&mut self, id: RequestId, look: &Look, effects: &mut Effects) {
        self.register.look(id, look, effects);
    }
    fn commit(&mut self, id: RequestId, reads: ReadSet, writes: WriteSet, effects: &mut Effects) {
        self.register.commit(id, reads, writes, effects);
    }
    fn has_new_leader(&mut self, group: PartitionId, leader: NodeId) {
        self.leaders += 1;
        self.register.has_new_leader(group, leader);
    }
    fn forget(&mut self, id: RequestId) {
        self.forgotten.push(id);
        self.register.forget(id);
    }
    fn receive(&mut self, from: NodeId, message: &[u8], _: &mut Effects) -> Result<(), Malformed> {
        self.greeted_by.push(from);
        if message == GREETING { Ok(()) } else { Err(Malformed) }
    }
    fn check(&self, group: PartitionId, entry: &[u8]) -> Result<(), Malformed> {
        if self.me.is_some() && KNOWS_NOTHING.get() == self.me {
            return Err(Malformed);
        }
        self.register.check(group, entry)
    }
    fn decided(&mut self, group: PartitionId, entry: &[u8], effects: &mut Effects) -> Result<(), Malformed> {
        self.register.decided(group, entry, effects)
    }
    fn reached(&mut self, id: RequestId, effects: &mut Effects) {
        self.register.reached(id, effects);
    }
    fn tick(&mut self, effects: &mut Effects) {
        self.register.tick(effects);
    }
    fn snapshot(&self, group: PartitionId) -> Vec<u8> {
        self.register.snapshot(group)
    }
    fn restore(&mut self, group: PartitionId, state: &[u8]) -> Result<(), Malformed> {
        self.register.restore(group, state)
    }
}

/// What a site's host did.
#[derive(Default)]
struct Hands {
    records: u64,
    /// The journal takes nothing.
    is_full: bool,
    room_wanted: u32,
    sent: Vec<(NodeId, Bytes)>,
    severed: Vec<(NodeId, String)>,
    bases: usize,
    /// The most bases that one record had.
    bases_in_record_max: usize,
    truncations: usize,
}

impl Host for Hands {
    fn append(&mut self, kept: &[Kept]) -> Recorded {
        if self.is_full {
            return Recorded::Unwritten("no space".to_owned());
        }
        self.records += 1;
        let bases = kept.iter().filter(|kept| kept.base.is_some()).count();
        self.bases += bases;
        self.bases_in_record_max = self.bases_in_record_max.max(bases);
        Recorded::Written { record: self.records, rotated: false }
    }
    fn sync(&mut self) -> Option<HostEvent> {
        Some(HostEvent::Synced(self.records))
    }
    fn send(&mut self, to: NodeId, frame: Vec<u8>) {
        self.sent.push((to, frame.into()));
    }
    fn sever(&mut self, peer: NodeId, why: &str) {
        self.severed.push((peer, why.to_owned()));
    }
    fn make_room(&mut self) -> Option<HostEvent> {
        self.room_wanted += 1;
        (!self.is_full).then_some(HostEvent::RoomMade)
    }
    fn prune(&mut self, _: Needed) {
        self.truncations += 1;
    }
    fn checkpoint(&mut self, _: ClusterCheckpoint) {}
    fn read_piece(&mut self, _: NodeId, _: Piece) -> Option<HostEvent> {
        None
    }
    fn write_piece(&mut self, _: Piece, _: Bytes, _: Option<Whole>) -> Option<HostEvent> {
        None
    }
}

struct Rig {
    sites: Vec<(Site<Greeter>, SiteEffects, Hands)>,
    on_way: VecDeque<(NodeId, NodeId, Bytes)>,
    /// Nothing reaches this site.
    cut_off: Option<NodeId>,
    /// The frames with pieces of bases that were sent, and the largest of them in bytes.
    pieces: (u32, usize),
    /// Of each so many of them one is lost.
    piece_lost_each: u32,
    /// One piece of this site arrives between two looks at what is waited for.
    piece_from: Option<NodeId>,
}

const LOG_BYTES_MAX: u64 = 100;
const PIECE_BYTES_MAX: usize = 16;

fn options(me: NodeId, groups: BTreeMap<PartitionId, Vec<NodeId>>) -> SiteOptions {
    SiteOptions {
        me,
        groups,
        followers: (1..=3).map(NodeId).collect(),
        seed: 7,
        fsync: FsyncPolicy::Always,
        tick_ms: 10,
        log_bytes_max: LOG_BYTES_MAX,
        base_piece_bytes_max: PIECE_BYTES_MAX,
        base_bytes_max: BASE_BYTES_MAX,
        nonce: u64::from(me.0),
    }
}

impl Rig {
    /// Three sites, of which one leads.
    fn new() -> Rig {
        Rig::of(1..=3)
    }

    /// The same, where these sites agree and the others follow.
    fn of(voters: RangeInclusive<u16>) -> Rig {
        Rig::with_bases_of(voters, BASE_BYTES_MAX)
    }

    /// The same, where no base has more bytes.
    fn with_bases_of(voters: RangeInclusive<u16>, base_bytes_max: usize) -> Rig {
        let site = |number: u16| {
            let groups = BTreeMap::from([(GROUP, voters.clone().map(NodeId).collect())]);
            let options = SiteOptions { base_bytes_max, ..options(NodeId(number), groups) };
            let greeter = Greeter { me: Some(NodeId(number)), ..Greeter::default() };
            let site = Site::recover(options, greeter, GroupImages::new()).expect("a site");
            (site, SiteEffects::default(), Hands::default())
        };
        let mut rig = Rig {
            sites: (1..=3).map(site).collect(),
            on_way: VecDeque::new(),
            cut_off: None,
            pieces: (0, 0),
            piece_lost_each: u32::MAX,
            piece_from: None,
        };
        rig.run_until("somebody leads", |rig| rig.leader().is_some());
        rig
    }

    fn leader(&self) -> Option<NodeId> {
        let leads = |site: &Site<Greeter>| site.group(GROUP).is_some_and(|group| group.leads().is_some());
        let number = self.sites.iter().position(|(site, ..)| leads(site))?;
        Some(NodeId(number as u16 + 1))
    }

    fn follower(&self) -> NodeId {
        let leader = self.leader();
        [NodeId(1), NodeId(2), NodeId(3)].into_iter().find(|&site| Some(site) != leader).expect("a follower")
    }

    fn with<R>(&mut self, site: NodeId, act: impl FnOnce(&mut Site<Greeter>, &mut SiteEffects) -> R) -> R {
        let (machine, effects, hands) = &mut self.sites[usize::from(site.0) - 1];
        let result = act(machine, effects);
        drive(machine, effects, 0, hands);
        self.on_way.extend(hands.sent.drain(..).map(|(to, frame)| (site, to, frame)));
        result
    }

    fn hands(&mut self, site: NodeId) -> &mut Hands {
        &mut self.sites[usize::from(site.0) - 1].2
    }

    fn react(&mut self, site: NodeId, event: HostEvent) {
        self.with(site, |machine, effects| machine.react(event, 0, effects));
    }

    /// Lets ticks go by and frames arrive until it is so.
    fn run_until(&mut self, what: &str, is_so: impl Fn(&Rig) -> bool) {
        for _ in 0..500 {
            while let Some((from, bytes, to)) =
                self.on_way.pop_front().map(|(from, to, bytes)| (from, bytes, to))
            {
                let is_piece = describe(&bytes).contains(" begins behind ");
                self.pieces.0 += u32::from(is_piece);
                if is_piece {
                    self.pieces.1 = self.pieces.1.max(bytes.len());
                    if self.pieces.0.is_multiple_of(self.piece_lost_each) {
                        continue;
                    }
                }
                if ![Some(from), Some(to)].contains(&self.cut_off) || self.cut_off.is_none() {
                    self.react(to, HostEvent::Frame { from, bytes });
                }
                if is_piece && self.piece_from == Some(from) && is_so(self) {
                    return;
                }
            }
            if is_so(self) {
                return;
            }
            for site in 1..=3 {
                self.react(NodeId(site), HostEvent::Tick { wall_ms: 0 });
            }
        }
        panic!("it never came so far that {what}");
    }

    /// Has a transaction at a site append to what a key has.
    fn append(&mut self, site: NodeId, sequence: u64, text: &str) -> Vec<Answer> {
        let id = RequestId { session: SessionId(u64::from(site.0)), sequence, attempt: 0 };
        let key = Key::new(b"k");
        let is_answered = move |rig: &Rig| !rig.sites[usize::from(site.0) - 1].1.answers.is_empty();
        let mut answers = Vec::new();
        self.with(site, |machine, effects| machine.begin(id, false, effects));
        self.run_until("a transaction has begun", is_answered);
        answers.extend(self.with(site, |_, effects| effects.answers.drain(..).next()));
        self.with(site, |machine, effects| machine.look(id, &Look::Key(key.clone()), effects));
        answers.extend(self.with(site, |_, effects| effects.answers.drain(..).next()));
        let mut reads = ReadSet::default();
        if let Some((_, Answer::Value(read))) = answers.last() {
            reads.keys.insert(key.clone(), read.version);
        }
        let records = BTreeMap::from([(key, Some(Entry::new(text)))]);
        let writes = WriteSet { records, ..WriteSet::default() };
        self.with(site, |machine, effects| machine.commit(id, reads, writes, effects));
        self.run_until("a transaction is certified", is_answered);
        answers.extend(self.with(site, |_, effects| effects.answers.drain(..).next()));
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    fn status(&self, site: NodeId) -> SiteStatus {
        self.sites[usize::from(site.0) - 1].0.status()
    }

    fn value(&self, site: NodeId) -> Option<Entry> {
        self.sites[usize::from(site.0) - 1].0.protocol().register.value(&Key::new(b"k"))
    }
}

#[test]
fn a_transaction_at_a_follower_is_decided_at_all_sites() {
    let mut rig = Rig::new();
    let follower = rig.follower();
    let answers = rig.append(follower, 1, "one");
    assert_eq!(answers, [Answer::Begun, Answer::Value(Read::default()), Answer::Committed]);
    let one = Some(Entry::new("one"));
    rig.run_until("all have it", |rig| (1..=3).all(|site| rig.value(NodeId(site)) == one));
    let answers = rig.append(follower, 2, "two");
    let read = Read { entry: one, version: Position::FIRST };
    assert_eq!(answers, [Answer::Begun, Answer::Value(read), Answer::Committed]);
}

#[test]
fn sites_that_only_follow_have_transactions_and_everything_that_is_decided() {
    let mut rig = Rig::of(1..=1);
    assert_eq!(rig.leader(), Some(NodeId(1)));
    // So much that the log begins anew behind it: who lags is sent a base.
    rig.cut_off = Some(NodeId(3));
    for sequence in 1..=LOG_BYTES_MAX / 4 {
        assert_eq!(rig.append(NodeId(2), sequence, "text").last(), Some(&Answer::Committed));
    }
    assert_eq!(rig.value(NodeId(3)), None);
    rig.cut_off = None;
    let text = Some(Entry::new("text"));
    rig.run_until("all have it", |rig| (1..=3).all(|site| rig.value(NodeId(site)) == text));
    assert_eq!(rig.append(NodeId(3), 1, "last").last(), Some(&Answer::Committed));
    rig.run_until("the leader has it", |rig| rig.value(NodeId(1)) == Some(Entry::new("last")));
    assert_eq!(rig.leader(), Some(NodeId(1)));
}

#[test]
fn a_base_that_no_frame_carries_comes_in_pieces_whatever_is_lost() {
    let mut rig = Rig::new();
    let (leader, behind) = (rig.leader().expect("one leads"), rig.follower());
    rig.cut_off = Some(behind);
    let texts = ["first", "second"].map(|word| word.repeat(100));
    let write = |rig: &mut Rig, sequence, text: &str| {
        assert_eq!(rig.append(leader, sequence, text).last(), Some(&Answer::Committed));
    };
    // Of the second one the log has nothing either: its base is newer.
    for (sequence, text) in (1..).zip(&texts) {
        write(&mut rig, sequence, text);
    }
    assert_eq!(rig.pieces.0, 0, "the site that is behind has heard of nothing");
    (rig.cut_off, rig.piece_lost_each) = (None, 5);
    let place = usize::from(behind.0) - 1;
    rig.run_until("it is told of a base", |rig| !rig.sites[place].0.status().lagging.is_empty());
    assert_eq!(rig.value(behind), None);
    let second = Some(Entry::new(texts[1].as_str()));
    rig.run_until("it has everything", |rig| rig.value(behind) == second);
    let (count, bytes_max) = rig.pieces;
    let least = texts[1].len() / PIECE_BYTES_MAX;
    assert!(count as usize > least * 6 / 5, "{count} pieces, of which some were lost");
    assert!(bytes_max < PIECE_BYTES_MAX + 64, "a frame of {bytes_max} bytes");
    assert!(rig.sites[place].0.status().lagging.is_empty());
    write(&mut rig, 3, "third");
    rig.run_until("it follows", |rig| rig.value(behind) == Some(Entry::new("third")));
}

#[test]
fn a_base_that_has_come_in_part_when_its_leader_changes_is_fetched_from_the_new_one() {
    let mut rig = Rig::new();
    let (leader, behind) = (rig.leader().expect("one leads"), rig.follower());
    rig.cut_off = Some(behind);
    let text = "text".repeat(60);
    assert_eq!(rig.append(leader, 1, &text).last(), Some(&Answer::Committed));
    // Both sites that have the text have a base: nobody has the entry any more.
    let have_bases = |rig: &Rig| {
        [1, 2, 3].into_iter().filter(|&site| rig.status(NodeId(site)).counts.bases > 0).count() == 2
    };
    rig.run_until("the logs begin anew", have_bases);
    rig.cut_off = None;
    rig.piece_from = Some(leader);
    rig.run_until("a part of the base has come", |rig| rig.pieces.0 > 3);
    assert_eq!(rig.value(behind), None);
    assert!(!rig.status(behind).lagging.is_empty());
    // The leader goes. The site that is behind cannot be elected, because it lacks what was agreed.
    rig.cut_off = Some(leader);
    for site in [1, 2, 3].map(NodeId).into_iter().filter(|&site| site != leader) {
        rig.react(site, HostEvent::Disconnected(leader));
    }
    let whole = Some(Entry::new(text.as_str()));
    rig.run_until("the base has come from the new leader", |rig| rig.value(behind) == whole);
    assert!(rig.status(behind).lagging.is_empty());
    assert_eq!(rig.append(behind, 1, "after").last(), Some(&Answer::Committed));
}

#[test]
fn a_state_that_is_too_large_for_a_base_is_told_until_it_has_shrunk() {
    const BASE_BYTES: usize = 400;
    let mut rig = Rig::with_bases_of(1..=1, BASE_BYTES);
    let leader = NodeId(1);
    let mut sequence = 0;
    let mut write = |rig: &mut Rig, text: &str| {
        sequence += 1;
        assert_eq!(rig.append(leader, sequence, text).last(), Some(&Answer::Committed));
        rig.status(leader)
    };
    let large = "l".repeat(BASE_BYTES);
    let status = write(&mut rig, &large);
    assert!(status.too_large[&GROUP] > BASE_BYTES as u64, "{status:?}");
    assert_eq!((status.counts.bases, status.counts.bases_too_large), (0, 1), "{status:?}");
    assert!(status.log_bytes > BASE_BYTES as u64, "{status:?}");
    // The state is not encoded for each entry, and the log is told as it grows.
    let next = write(&mut rig, "small");
    assert_eq!((next.counts.bases_too_large, next.too_large), (1, status.too_large), "the mark stays");
    assert!(next.log_bytes > status.log_bytes);
    // The state has shrunk: the log begins anew.
    let log_bytes_max = 2 * status.log_bytes + LOG_BYTES_MAX;
    let last = loop {
        let status = write(&mut rig, "small");
        assert!(status.log_bytes < log_bytes_max, "{status:?}");
        if status.counts.bases > 0 {
            break status;
        }
    };
    assert!(last.too_large.is_empty() && last.log_bytes < LOG_BYTES_MAX, "{last:?}");
    assert_eq!(last.counts.bases_too_large, 1);
}

#[test]
fn a_site_has_caught_up_once_it_has_all_that_was_agreed_on_when_it_asked() {
    let mut rig = Rig::new();
    let behind = rig.follower();
    rig.cut_off = Some(behind);
    assert_eq!(rig.append(rig.leader().expect("one leads"), 1, "1").len(), 3);
    assert!(rig.with(behind, |site, _| site.has_caught_up()), "it was not asked");
    rig.with(behind, |site, _| site.catch_up());
    for _ in 0..30 {
        rig.react(behind, HostEvent::Tick { wall_ms: 0 });
    }
    assert!(!rig.with(behind, |site, _| site.has_caught_up()), "nobody answers it");
    rig.cut_off = None;
    let place = usize::from(behind.0) - 1;
    rig.run_until("it has caught up", |rig| rig.sites[place].0.has_caught_up());
    assert_eq!(rig.value(behind), Some(Entry::new("1")));
}

#[test]
fn a_late_request_does_not_stop_what_its_session_waits_for() {
    let mut rig = Rig::new();
    let id = |attempt| RequestId { session: SessionId(9), sequence: 1, attempt };
    rig.with(rig.follower(), |machine, effects| {
        machine.begin(id(8), false, effects);
        machine.begin(id(0), false, effects);
    });
    let follower = usize::from(rig.follower().0) - 1;
    let begun = (id(8), Answer::Begun);
    rig.run_until("the attempt begins", |rig| rig.sites[follower].1.answers.contains(&begun));
}

#[test]
fn messages_reach_the_protocol_and_bad_ones_cost_the_link() {
    let mut rig = Rig::new();
    rig.append(NodeId(1), 1, "one");
    assert!(rig.sites[1].0.protocol().greeted_by.contains(&NodeId(1)));
    let bad: [&[u8]; 7] = [
        b"",
        b"\x09",
        b"\x03\x05helloX",
        b"\x03\x04hell",
        b"\x02\x00\x00",
        b"\x02\x00\x03bad",
        b"\x01\x07\x00",
    ];
    let bad = bad.map(Bytes::from_static).into_iter().chain(bad_bases());
    for (count, bytes) in bad.enumerate() {
        rig.react(NodeId(2), HostEvent::Frame { from: NodeId(3), bytes: bytes.clone() });
        let severed = rig.hands(NodeId(2)).severed.len();
        assert_eq!(severed, count + 1, "{bytes:?}");
    }
    assert_eq!(rig.append(NodeId(3), 1, "two").last(), Some(&Answer::Committed), "all goes on");
}

/// Frames with a base of a group that lacks the sender or the site, and with a state that means nothing.
fn bad_bases() -> Vec<Bytes> {
    let frame = |voters: &[u16], state: Vec<u8>| {
        let members = Members { voters: voters.iter().copied().map(NodeId).collect(), ..Members::default() };
        let base = Base { index: 1_000, term: 1_000, members, state: state.into() };
        let mut bytes = vec![4, 0];
        base.encode(&mut bytes);
        Bytes::from(bytes)
    };
    let state = Register::default().snapshot(GROUP);
    vec![frame(&[1, 2], state.clone()), frame(&[1, 3], state), frame(&[1, 2, 3], b"bad".to_vec())]
}

#[test]
fn a_site_promises_no_entry_that_it_does_not_know() {
    let mut rig = Rig::new();
    let follower = rig.follower();
    let last = |rig: &Rig| {
        let (site, ..) = &rig.sites[usize::from(follower.0) - 1];
        site.group(GROUP).map(|group| group.status().last)
    };
    let other = [NodeId(1), NodeId(2), NodeId(3)].into_iter().find(|&site| site != follower).expect("one");
    assert_eq!(rig.append(other, 1, "one").last(), Some(&Answer::Committed));
    let one = Some(Entry::new("one"));
    rig.run_until("all have it", |rig| (1..=3).all(|site| rig.value(NodeId(site)) == one));
    let before = last(&rig);
    KNOWS_NOTHING.set(Some(follower));
    assert_eq!(rig.append(other, 2, "two").last(), Some(&Answer::Committed), "two of three go on");
    assert_eq!((last(&rig), rig.value(follower)), (before, one));
    assert!(rig.hands(follower).severed[0].1.contains("means nothing"));
    KNOWS_NOTHING.set(None);
    let two = Some(Entry::new("two"));
    rig.run_until("it has all", |rig| rig.value(follower) == two);
}

#[test]
fn a_site_that_cannot_write_is_silent_until_there_is_room() {
    let mut rig = Rig::new();
    let follower = rig.follower();
    rig.hands(follower).is_full = true;
    let other = [NodeId(1), NodeId(2), NodeId(3)].into_iter().find(|&site| site != follower).expect("one");
    assert_eq!(rig.append(other, 1, "one").last(), Some(&Answer::Committed), "two of three go on");
    let is_idle = |rig: &Rig| rig.sites[usize::from(follower.0) - 1].0.is_idle();
    assert!(!is_idle(&rig));
    assert_eq!(rig.value(follower), None);
    let asked = rig.hands(follower).room_wanted;
    rig.run_until("it asks for room", |rig| rig.sites[usize::from(follower.0) - 1].2.room_wanted > asked);
    rig.hands(follower).is_full = false;
    rig.run_until("it has all", is_idle);
    assert_eq!(rig.value(follower), Some(Entry::new("one")));
}

#[test]
fn a_site_that_lacks_what_others_have_forgotten_begins_behind_their_base() {
    let mut rig = Rig::new();
    let follower = rig.follower();
    rig.cut_off = Some(follower);
    let other = [NodeId(1), NodeId(2), NodeId(3)].into_iter().find(|&site| site != follower).expect("one");
    let last = 40;
    for sequence in 1..=last {
        let text = format!("{sequence}");
        assert_eq!(rig.append(other, sequence, &text).last(), Some(&Answer::Committed));
    }
    let leader = rig.leader().expect("a leader");
    assert!(rig.hands(leader).bases > 1 && rig.hands(leader).truncations > 1);
    assert_eq!((rig.value(follower), rig.hands(follower).bases), (None, 0));
    rig.cut_off = None;
    let newest = Some(Entry::new(format!("{last}").as_str()));
    rig.run_until("it has all", |rig| rig.value(follower) == newest);
    assert!(rig.hands(follower).bases > 0, "it was given a base");
}

#[test]
fn a_record_of_the_journal_has_one_base() {
    let id = RequestId { session: SessionId(1), sequence: 1, attempt: 0 };
    let (mut register, wishes) = (Register::default(), &mut Effects::default());
    register.begin(id, false, wishes);
    register.reached(id, wishes);
    let text = "t".repeat(2 * LOG_BYTES_MAX as usize);
    let records = BTreeMap::from([(Key::new(b"k"), Some(Entry::new(text.as_str())))]);
    register.commit(id, ReadSet::default(), WriteSet { records, ..WriteSet::default() }, wishes);
    let data = wishes.proposals.pop().expect("a proposal").1;
    // Both groups' logs are long at the start.
    let image = GroupImage {
        hard_state: HardState { term: 1, vote: 1, commit: 1 },
        entries: vec![LogEntry { index: 1, term: 1, kind: EntryKind::Data, data }],
        ..GroupImage::default()
    };
    let (me, groups) = (NodeId(1), [GROUP, PartitionId(1)]);
    let options = options(me, groups.map(|group| (group, vec![me])).into());
    let images = groups.map(|group| (group, image.clone())).into();
    let mut site = Site::recover(options, Greeter::default(), images).expect("a site");
    let (mut effects, mut hands) = (SiteEffects::default(), Hands::default());
    for _ in 0..50 {
        site.react(HostEvent::Tick { wall_ms: 0 }, 0, &mut effects);
        drive(&mut site, &mut effects, 0, &mut hands);
    }
    assert_eq!((hands.bases, hands.bases_in_record_max), (2, 1));
}

#[test]
fn a_site_whose_sync_failed_says_nothing_more() {
    let mut rig = Rig::new();
    let follower = rig.follower();
    rig.react(follower, HostEvent::JournalFailed("gone".to_owned()));
    let (site, effects, _) = &rig.sites[usize::from(follower.0) - 1];
    assert!(site.has_ended() && effects.ended.as_deref().is_some_and(|text| text.contains("gone")));
    let id = RequestId { session: SessionId(9), sequence: 1, attempt: 0 };
    let answers = rig.with(follower, |machine, effects| {
        machine.begin(id, false, effects);
        std::mem::take(&mut effects.answers)
    });
    assert_eq!(answers, [(id, Answer::Unavailable)]);
    let protocol = rig.sites[usize::from(follower.0) - 1].0.protocol();
    assert_eq!(protocol.forgotten, [id], "nothing of it stays");
    assert!(protocol.leaders > 0, "it had a leader");
    rig.on_way.clear();
    for _ in 0..100 {
        rig.react(follower, HostEvent::Tick { wall_ms: 0 });
    }
    assert!(rig.on_way.is_empty(), "it says nothing");
}
