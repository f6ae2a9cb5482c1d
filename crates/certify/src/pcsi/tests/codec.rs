//! Drawn records and letters read as what was encoded, and altered bytes never read as something else.

use crate::Conflict;
use crate::pcsi::codec::{Form, Input};
use crate::pcsi::replica::Replica;
use crate::pcsi::{
    Ballot, Candidate, CommitStamp, Decision, Fencing, Fit, Incarnation, Installed, Letter, Message, Record,
    RemoteAccess, RemoteRead, ReplicaState, SiteMap, TransactionName, Update, VectorClock,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use txn::codec::{Reader, put_varint};
use txn::hash::mix;
use txn::value::{HashValue, ListValue};
use txn::{Blob, BootId, Entry, Key, NodeId, PartitionId, RequestId, SessionId};

const SITES: u64 = 3;
const PARTITIONS: u64 = 3;
const SEEDS: u64 = 12;
/// The kinds of records and of letters.
const RECORDS: u64 = 15;
const LETTERS: u64 = 23;

/// All sites have all partitions.
fn sites() -> SiteMap {
    let all: Vec<NodeId> = (0..SITES as u16).map(NodeId).collect();
    SiteMap::new(vec![all; PARTITIONS as usize]).expect("each partition has sites")
}

/// Appends a part of something's bytes.
type Part<'a> = &'a dyn Fn(&mut Vec<u8>);

struct Draws(u64, SiteMap);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0) % bound
    }

    fn number(&mut self) -> u64 {
        let bits = self.below(40);
        self.below(1 << bits)
    }

    fn site(&mut self) -> NodeId {
        NodeId(self.below(SITES) as u16)
    }

    fn partition(&mut self) -> PartitionId {
        PartitionId(self.below(PARTITIONS) as u16)
    }

    fn key(&mut self) -> Key {
        Key::new(format!("k{}", self.below(50)).as_bytes())
    }

    fn entry(&mut self) -> Option<Entry> {
        let text = format!("v{}", self.below(1_000));
        match self.below(5) {
            0 => None,
            1 => Some(Entry { expires_at_ms: self.number(), ..Entry::new(text.as_str()) }),
            2 => Some(Entry::new(ListValue::from_iter([Blob::from(text), Blob::from("x")]))),
            3 => Some(Entry::new(HashValue::from_iter([(Blob::from(text), Blob::from("x"))]))),
            _ => Some(Entry::new(text.as_str())),
        }
    }

    fn some<T>(&mut self, mut item: impl FnMut(&mut Draws) -> T) -> Vec<T> {
        (0..self.below(4)).map(|_| item(self)).collect()
    }

    fn incarnation(&mut self) -> Incarnation {
        Incarnation(self.below(4) as u8)
    }

    fn name(&mut self) -> TransactionName {
        let (origin, incarnation) = (self.site(), self.incarnation());
        TransactionName { origin, incarnation, boot: BootId(self.number() as u32), number: self.number() }
    }

    fn id(&mut self) -> RequestId {
        let (session, sequence) = (SessionId(self.number()), self.number());
        RequestId { session, sequence, attempt: self.below(9) as u32 }
    }

    fn stamp(&mut self, name: TransactionName) -> CommitStamp {
        CommitStamp { site: name.origin, sequence: name.incarnation.base() + 1 + self.number() }
    }

    fn stamps(&mut self) -> BTreeMap<PartitionId, CommitStamp> {
        let name = self.name();
        self.some(|draws| (draws.partition(), draws.stamp(name))).into_iter().collect()
    }

    fn clock(&mut self) -> VectorClock {
        let mut clock = VectorClock::default();
        let stamps = self.some(|draws| {
            let name = draws.name();
            draws.stamp(name)
        });
        stamps.into_iter().for_each(|stamp| clock.count(stamp));
        for number in self.some(|draws| 1 + draws.below(6)) {
            let sequence = CommitStamp::granted_base(self.incarnation()) + number;
            clock.count(CommitStamp { site: self.site(), sequence });
        }
        clock
    }

    fn views(&mut self) -> BTreeMap<PartitionId, VectorClock> {
        self.some(|draws| (draws.partition(), draws.clock())).into_iter().collect()
    }

    fn update(&mut self) -> Arc<Update> {
        let name = self.name();
        let writes: BTreeMap<Key, Option<Entry>> =
            self.some(|draws| (draws.key(), draws.entry())).into_iter().collect();
        let partitions: BTreeSet<PartitionId> = writes.keys().map(|key| self.1.partition_of(key)).collect();
        let stamps = partitions.into_iter().map(|of| (of, self.stamp(name))).collect();
        let number = name.incarnation.base() + 1 + self.number();
        Arc::new(Update { name, number, stamps, depends: self.views(), writes })
    }

    fn updates(&mut self) -> Vec<Arc<Update>> {
        self.some(Draws::update)
    }

    fn candidate(&mut self) -> Candidate {
        Candidate { incarnation: self.incarnation(), start: self.number() }
    }

    fn targets(&mut self) -> BTreeMap<NodeId, Candidate> {
        self.some(|draws| (draws.site(), draws.candidate())).into_iter().collect()
    }

    fn decisions(&mut self) -> BTreeMap<NodeId, Decision> {
        let decision = |draws: &mut Draws| {
            let candidate = draws.candidate();
            let granted = draws.granted(candidate.incarnation);
            (draws.site(), Decision { candidate, updates: draws.updates(), granted })
        };
        self.some(decision).into_iter().collect()
    }

    /// Numbers that were granted before an incarnation.
    fn granted(&mut self, before: Incarnation) -> BTreeMap<PartitionId, BTreeMap<u64, TransactionName>> {
        let numbers = |draws: &mut Draws| {
            let numbers = draws.some(|draws| {
                let incarnation = Incarnation(draws.below(u64::from(before.0)) as u8);
                (CommitStamp::granted_base(incarnation) + 1 + draws.below(9), draws.name())
            });
            (draws.partition(), numbers.into_iter().collect())
        };
        match before {
            Incarnation(0) => BTreeMap::new(),
            _ => self.some(numbers).into_iter().collect(),
        }
    }

    fn ballot(&mut self) -> Ballot {
        Ballot(self.number(), self.site())
    }

    /// By its bytes, as only its own module can build one.
    fn built<T: Form>(&self, parts: &[Part<'_>]) -> T {
        let mut bytes = Vec::new();
        parts.iter().for_each(|part| part(&mut bytes));
        let mut input = Input { reader: Reader::new(&bytes), sites: &self.1 };
        let built = T::take(&mut input).expect("the parts are in order");
        assert!(input.reader.is_empty());
        built
    }

    fn replica(&mut self) -> Replica {
        let version = |draws: &mut Draws| {
            let name = draws.name();
            (draws.stamp(name), draws.entry())
        };
        let versions = |draws: &mut Draws| {
            let mut versions = draws.some(version);
            versions.push(version(draws));
            (draws.key(), versions)
        };
        let (view, depends, forgotten) = (self.clock(), self.views(), self.clock());
        let versions: BTreeMap<Key, Vec<(CommitStamp, Option<Entry>)>> =
            self.some(versions).into_iter().collect();
        self.built(&[&|out| view.put(out), &|out| depends.put(out), &|out| forgotten.put(out), &|out| {
            versions.put(out)
        }])
    }

    fn replica_state(&mut self) -> Arc<ReplicaState> {
        let replica = self.replica();
        let held: BTreeMap<NodeId, Vec<Arc<Update>>> =
            self.some(|draws| (draws.site(), draws.updates())).into_iter().collect();
        let tombstones = self.some(|draws| {
            let name = draws.name();
            (draws.key(), draws.stamp(name))
        });
        self.built(&[&|out| replica.put(out), &|out| held.put(out), &|out| tombstones.put(out)])
    }

    fn installed(&mut self) -> Arc<Installed> {
        let replicas: BTreeMap<PartitionId, Replica> =
            self.some(|draws| (draws.partition(), draws.replica())).into_iter().collect();
        let by_number = |draws: &mut Draws| {
            let updates = draws.updates().into_iter().map(|update| (update.number, update));
            (draws.site(), updates.collect::<BTreeMap<u64, Arc<Update>>>())
        };
        let held: BTreeMap<NodeId, BTreeMap<u64, Arc<Update>>> = self.some(by_number).into_iter().collect();
        let tombstones: BTreeSet<(PartitionId, Key, CommitStamp)> = self
            .some(|draws| {
                let name = draws.name();
                (draws.partition(), draws.key(), draws.stamp(name))
            })
            .into_iter()
            .collect();
        let (incarnation, decided, frozen) = (self.incarnation(), self.decisions(), self.targets());
        let (excluded, promised) = (self.sites(), self.ballot());
        let lasts = self.lasts();
        self.built(&[
            &|out| incarnation.put(out),
            &|out| replicas.put(out),
            &|out| held.put(out),
            &|out| tombstones.put(out),
            &|out| decided.put(out),
            &|out| excluded.put(out),
            &|out| frozen.put(out),
            &|out| promised.put(out),
            &|out| lasts.put(out),
        ])
    }

    fn sites(&mut self) -> BTreeSet<NodeId> {
        self.some(Draws::site).into_iter().collect()
    }

    fn lasts(&mut self) -> BTreeMap<NodeId, u64> {
        self.some(|draws| (draws.site(), draws.number())).into_iter().collect()
    }

    fn outcome(&mut self) -> Option<BTreeMap<PartitionId, CommitStamp>> {
        let commits = self.below(2) > 0;
        commits.then(|| self.stamps())
    }

    fn conflict(&mut self) -> Conflict {
        match self.below(6) {
            0 => Conflict::Key(self.key()),
            1 => Conflict::Locked { key: self.key(), holder: self.site() },
            2 => Conflict::Listing,
            3 => Conflict::Snapshot,
            4 => Conflict::Timestamp,
            _ => Conflict::Superseded,
        }
    }

    fn record(&mut self, kind: u64) -> Record {
        match kind {
            0 => Record::Founded,
            1 => Record::Installed(self.installed()),
            2 => Record::Opened,
            3 => Record::Promised { ballot: self.ballot(), targets: self.targets() },
            4 => Record::Decided { decisions: self.decisions() },
            5 => Record::Admitted(self.site()),
            6 => Record::Started(BootId(self.number() as u32)),
            7 => {
                let (name, keys) = (self.name(), self.some(Draws::key));
                Record::Locked { name, keys, numbers: self.numbers() }
            }
            8 => Record::Released { name: self.name(), stamps: self.outcome() },
            9 => {
                let update = self.update();
                Record::Committed { id: self.id(), name: update.name, resolvers: self.sites(), update }
            }
            10 => Record::Applied { update: self.update() },
            11 => Record::Settled(self.name()),
            12 => Record::Followed { clocks: self.views() },
            13 => Record::Nulled { update: self.update() },
            _ => {
                let stable = |draws: &mut Draws| (draws.site(), draws.some(Draws::number));
                let stable = self.some(stable).into_iter();
                let stable = stable.map(|(site, numbers)| (site, numbers.into_iter().collect()));
                Record::Progress { stable: stable.collect(), acknowledged: self.lasts() }
            }
        }
    }

    fn letter(&mut self, kind: u64) -> Letter {
        let message = match kind {
            0 => {
                let (name, keys, views) = (self.name(), self.some(Draws::key), self.views());
                let grant = self.some(Draws::partition).into_iter().collect();
                Message::Prepare { name, keys, views, grant }
            }
            1 => {
                let refused = (self.below(3) > 0).then(|| self.conflict());
                Message::Vote { name: self.name(), refused, numbers: self.numbers() }
            }
            2 => Message::Outcome { name: self.name(), stamps: self.outcome() },
            3 => Message::Acknowledged(self.name()),
            4 => Message::Ask(self.name()),
            5 => {
                let [after, sent, through, last] = [(); 4].map(|()| self.number());
                let (retained, updates) =
                    (self.some(|draws| (draws.number(), draws.number())), self.updates());
                Message::Updates { after, sent, through, last, retained, updates }
            }
            6 => Message::Applied { through: self.number() },
            7 => Message::Want { origin: self.site(), views: self.views() },
            8 => Message::Relayed { origin: self.site(), updates: self.updates() },
            9 => Message::Look { id: self.id(), key: self.key(), fit: self.fit() },
            10 => {
                let read = (self.below(3) > 0).then(|| self.remote_read());
                Message::Looked { id: self.id(), key: self.key(), read, is_behind: self.below(2) > 0 }
            }
            11 => Message::AskView(self.partition()),
            12 => Message::View { partition: self.partition(), view: self.clock() },
            kind => Message::Fencing(self.fencing(kind - 4)),
        };
        let to = (self.below(2) > 0).then(|| self.incarnation());
        Letter { from: self.incarnation(), to, message }
    }

    fn numbers(&mut self) -> BTreeMap<PartitionId, u64> {
        self.some(|draws| (draws.partition(), draws.number())).into_iter().collect()
    }

    fn fit(&mut self) -> Fit {
        let at = (self.below(2) > 0).then(|| self.clock());
        Fit { at, floor: self.clock(), ceilings: self.views() }
    }

    fn remote_read(&mut self) -> Arc<RemoteRead> {
        let name = self.name();
        let version = (self.below(3) > 0).then(|| self.stamp(name));
        let (entry, view, depends) = (self.entry(), self.clock(), self.views());
        self.built(&[&|out| version.put(out), &|out| entry.put(out), &|out| view.put(out), &|out| {
            depends.put(out)
        }])
    }

    fn fencing(&mut self, kind: u64) -> Fencing {
        let (candidate, inquiry) = (self.candidate(), self.number());
        match kind {
            9 => Fencing::Join { candidate, inquiry },
            10 => Fencing::Refused { candidate, used: self.incarnation() },
            11 => {
                let (last, decisions, excluded) = (self.number(), self.decisions(), self.sites());
                Fencing::Admitted { candidate, inquiry, last, decisions, excluded }
            }
            12 => Fencing::Fetch { candidate, inquiry, partition: self.partition() },
            13 => {
                let state = (self.below(3) > 0).then(|| self.replica_state());
                Fencing::Fetched { candidate, inquiry, partition: self.partition(), state }
            }
            14 => Fencing::Promise { ballot: self.ballot(), targets: self.targets() },
            15 => {
                let updates = self.some(|draws| (draws.site(), draws.updates())).into_iter().collect();
                let (frozen, decisions) = (self.targets(), self.decisions());
                let granted = self.some(|draws| {
                    let before = draws.incarnation();
                    (draws.site(), draws.granted(before))
                });
                Fencing::Report {
                    ballot: self.ballot(),
                    frozen,
                    decisions,
                    updates,
                    granted: granted.into_iter().collect(),
                    is_joining: self.below(2) > 0,
                }
            }
            16 => Fencing::Outdated { promised: self.ballot() },
            17 => Fencing::Decided { decisions: self.decisions() },
            _ => Fencing::Fenced { incarnation: self.incarnation() },
        }
    }
}

/// A decoder reads encoded bytes, the beginnings of these bytes, and the bytes with some of them altered.
fn check<T: Debug + PartialEq>(
    draws: &mut Draws,
    value: &T,
    encode: fn(&T) -> Vec<u8>,
    decode: fn(&[u8], &SiteMap) -> Option<T>,
) {
    let sites = sites();
    let bytes = encode(value);
    assert_eq!(decode(&bytes, &sites).as_ref(), Some(value), "what is read is what was written");
    for len in 0..bytes.len() {
        assert_eq!(decode(&bytes[..len], &sites), None, "{len} bytes of {value:?}");
    }
    for _ in 0..2 * bytes.len() {
        let mut altered = bytes.clone();
        for _ in 0..1 + draws.below(2) {
            let place = draws.below(altered.len() as u64) as usize;
            match draws.below(4) {
                0 => altered[place] = draws.below(256) as u8,
                1 => altered[place] ^= 1 << draws.below(8),
                2 => altered.insert(place, draws.below(256) as u8),
                _ if altered.len() > 1 => drop(altered.remove(place)),
                _ => {}
            }
        }
        if let Some(read) = decode(&altered, &sites) {
            assert_eq!(encode(&read), altered, "{read:?} has two forms, the other one from {value:?}");
        }
    }
}

#[test]
fn records_and_letters_have_one_form_each() {
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let draws = &mut Draws(mix(seed), sites());
        for kind in 0..RECORDS {
            let record = draws.record(kind);
            check(draws, &record, Record::encode, Record::decode);
        }
        for kind in 0..LETTERS {
            let letter = draws.letter(kind);
            check(draws, &letter, Letter::encode, Letter::decode);
        }
    }
}

/// Each case breaks one guarantee of [`Update`], or one bound.
#[test]
fn what_would_break_a_site_is_refused() {
    let key = Key::new(b"k");
    let partition = sites().partition_of(&key);
    let name = TransactionName { origin: NodeId(0), incarnation: Incarnation(1), boot: BootId(1), number: 1 };
    let base = name.incarnation.base();
    let stamp = CommitStamp { site: NodeId(0), sequence: base + 1 };
    let good = Update {
        name,
        number: base + 1,
        stamps: BTreeMap::from([(partition, stamp)]),
        depends: BTreeMap::new(),
        writes: BTreeMap::from([(key, None)]),
    };
    let is_read_with = |access, update: Update| {
        let record = Record::Applied { update: Arc::new(update) };
        Record::decode(&record.encode(), &sites().with_remote_access(access)).is_some()
    };
    let is_read = |update| is_read_with(RemoteAccess::Refused, update);
    assert!(is_read(good.clone()));
    let stamped = |of, stamp| Update { stamps: BTreeMap::from([(of, stamp)]), ..good.clone() };
    assert!(!is_read(stamped(partition, CommitStamp { site: NodeId(1), ..stamp })), "another site's stamp");
    assert!(!is_read(stamped(partition, CommitStamp { sequence: base, ..stamp })), "another incarnation's");
    assert!(!is_read(stamped(PartitionId(PARTITIONS as u16), stamp)), "no such partition");
    assert!(!is_read(Update { stamps: BTreeMap::new(), ..good.clone() }), "a write without a stamp");
    assert!(!is_read(Update { number: 0, ..good.clone() }), "the number of no incarnation");
    let first = CommitStamp::granted_base(Incarnation(0)) + 1;
    let last = Incarnation(u8::MAX).last();
    for (sequence, is_granted) in [(first, true), (last, true), (first - 1, false), (u64::MAX, false)] {
        let granted = stamped(partition, CommitStamp { site: NodeId(1), sequence });
        assert!(!is_read(granted.clone()), "nobody grants numbers");
        assert_eq!(is_read_with(RemoteAccess::Grants, granted), is_granted, "{sequence}");
    }
    let mut clock = VectorClock::default();
    clock.count(CommitStamp { site: NodeId(0), sequence: u64::MAX });
    assert!(!is_read(Update { depends: BTreeMap::from([(partition, clock)]), ..good }), "no such count");
    let mut clock = Vec::new();
    BTreeMap::from([(NodeId(0), CommitStamp::own_last(Incarnation(0)) + 1)]).put(&mut clock);
    BTreeMap::<NodeId, BTreeMap<u64, u64>>::new().put(&mut clock);
    let map = sites();
    let mut input = Input { reader: Reader::new(&clock), sites: &map };
    assert!(VectorClock::take(&mut input).is_none(), "a granted number among a site's own");
    let ballot = Ballot(u64::MAX, NodeId(0));
    let last = Record::Promised { ballot, targets: BTreeMap::new() };
    assert!(Record::decode(&last.encode(), &sites()).is_none(), "no ballot would be higher");
    // A length without what it counts: nothing is allocated for it.
    let mut endless = vec![8];
    name.put(&mut endless);
    put_varint(&mut endless, u64::MAX);
    assert!(Record::decode(&endless, &sites()).is_none());
}
