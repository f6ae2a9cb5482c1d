//! Small systems of sites, in which a test says which messages are lost and which site crashes.

use crate::pcsi::{
    Candidate, Decision, FenceAnswer, FenceLoss, FenceStatus, Fencing, Incarnation, Letter, Message, Pcsi,
    Record, SiteEffects, SiteMap, SiteOptions, TokenRefusal, Update,
};
use crate::{Answer, Conflict, WriteSet, session_opened};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::mutant::{Mutant, with};
use txn::{Entry, Key, NodeId, PartitionId, Position, RequestId};

mod drawn;
mod lost_grants;
mod regions;
mod remote;
mod tokens;

struct Group {
    options: SiteOptions,
    sites: Vec<Option<Pcsi>>,
    logs: Vec<Vec<Record>>,
    /// Sender and receiver of the messages that are lost.
    lost: BTreeSet<(u16, u16)>,
    /// Messages that are lost between any two sites.
    is_lost: fn(&Message) -> bool,
    /// Messages that arrive only when they are released.
    is_held: fn(&Message) -> bool,
    held: Vec<(u16, u16, Letter)>,
    /// The outcomes for clients that have brought tokens.
    followed: Vec<Result<(), TokenRefusal>>,
    /// The fences that sites have heard of, each with the site that has.
    fenced: Vec<(u16, FenceLoss)>,
    sessions: u16,
    starts: u64,
}

impl Group {
    fn new(sites: usize, replicas: &[&[u16]]) -> Group {
        let replicas = replicas.iter().map(|sites| sites.iter().copied().map(NodeId).collect()).collect();
        let options = SiteOptions {
            me: NodeId(0),
            sites: Arc::new(SiteMap::new(replicas).expect("each partition has sites")),
            propagation_ticks: 1,
            vote_ticks_max: 50,
            open_ticks_max: 1_000,
            open_max: 10,
            window: 2,
            retained_max: 20,
            retained_bytes_max: 1 << 20,
            silent_ticks_max: 8,
            session_horizon: 4,
            sites_to_write_min: 1,
            regions_to_write_min: 1,
            sites_ticks_max: 50,
        };
        let (sites, logs) = ((0..sites).map(|_| None).collect(), vec![vec![Record::Founded]; sites]);
        let mut group = Group {
            options,
            sites,
            logs,
            lost: BTreeSet::new(),
            is_lost: |_| false,
            is_held: |_| false,
            held: Vec::new(),
            followed: Vec::new(),
            fenced: Vec::new(),
            sessions: 0,
            starts: 0,
        };
        (0..group.sites.len()).for_each(|site| group.start(site));
        group
    }

    fn start(&mut self, site: usize) {
        let options = SiteOptions { me: NodeId(site as u16), ..self.options.clone() };
        let mut effects = SiteEffects::default();
        self.starts += 1;
        let started = Pcsi::start(options, &self.logs[site], self.starts, &mut effects);
        // Most tests are not about the wait for another site.
        self.sites[site] = Some(Pcsi { has_heard: true, ..started });
        self.logs[site].append(&mut effects.records);
    }

    /// A process goes on with its log, and has heard nothing of the other sites.
    fn restart(&mut self, site: u16) {
        self.start(usize::from(site));
        self.sites[usize::from(site)].as_mut().expect("it runs").has_heard = false;
    }

    /// The numbers of the updates that a site sends another one in its next tick. They are lost.
    fn sent(&mut self, from: u16, to: u16) -> Vec<u64> {
        let mut effects = SiteEffects::default();
        self.sites[usize::from(from)].as_mut().expect("it runs").tick(&mut effects);
        let to_it = effects.messages.into_iter().filter(|(receiver, _)| *receiver == NodeId(to));
        let updates = to_it.flat_map(|(_, letter)| match letter.message {
            Message::Updates { updates, .. } => updates,
            _ => Vec::new(),
        });
        updates.map(|update| update.number).collect()
    }

    /// A key of a partition with this resolver.
    fn key(&self, partition: u16, resolver: u16) -> Key {
        let sites = &self.options.sites;
        let mut keys = (0..10_000).map(|key| Key::new(format!("k{key}").as_bytes()));
        let is_wanted = |key: &Key| {
            sites.partition_of(key) == PartitionId(partition) && sites.resolver_of(key) == NodeId(resolver)
        };
        keys.find(is_wanted).expect("each partition and resolver has a key")
    }

    /// A site does something, and all messages that follow from it arrive. Returns the site's answers.
    fn run(&mut self, site: u16, work: impl FnOnce(&mut Pcsi, &mut SiteEffects)) -> Vec<Answer> {
        let mut effects = SiteEffects::default();
        work(self.sites[usize::from(site)].as_mut().expect("it runs"), &mut effects);
        let (mut answers, mut pending) = (Vec::new(), vec![(site, effects)]);
        while let Some((from, effects)) = pending.pop() {
            self.logs[usize::from(from)].extend(effects.records);
            self.followed.extend(effects.followed.into_iter().map(|(_, outcome)| outcome));
            self.fenced.extend(effects.fenced.into_iter().map(|fence| (from, fence)));
            if from == site {
                answers.extend(effects.answers.into_iter().map(|(_, answer)| answer));
            }
            for (to, message) in effects.messages {
                let Some(receiver) = self.sites[usize::from(to.0)].as_mut() else { continue };
                if (self.is_held)(&message.message) {
                    self.held.push((from, to.0, message));
                    continue;
                }
                if !self.lost.contains(&(from, to.0)) && !(self.is_lost)(&message.message) {
                    let mut effects = SiteEffects::default();
                    receiver.receive(NodeId(from), message, &mut effects);
                    receiver.check_invariants();
                    pending.push((to.0, effects));
                }
            }
        }
        answers
    }

    /// The messages that were held arrive. Returns the answers of the sites that get them.
    fn release(&mut self) -> Vec<Answer> {
        let held = std::mem::take(&mut self.held);
        let arrive = |(from, to, letter): (u16, u16, Letter)| {
            self.run(to, |site, effects| site.receive(NodeId(from), letter, effects))
        };
        held.into_iter().flat_map(arrive).collect()
    }

    fn tick(&mut self, ticks: u64) {
        for _ in 0..ticks {
            for site in 0..self.sites.len() as u16 {
                if self.sites[usize::from(site)].is_some() {
                    self.run(site, |site, effects| site.tick(effects));
                }
            }
        }
    }

    fn session(&mut self, site: u16) -> RequestId {
        self.sessions += 1;
        let opened = self.sites[usize::from(site)].as_ref().map_or(Position(0), Pcsi::last_commit);
        RequestId { session: session_opened(opened, self.sessions), sequence: 1, attempt: 0 }
    }

    fn begin(&mut self, site: u16, id: RequestId) {
        self.run(site, |site, effects| site.begin(id, effects));
    }

    /// A transaction begins, and writes a text, or deletes where there is none.
    fn write(&mut self, site: u16, id: RequestId, keys: &[&Key], text: Option<&str>) -> Vec<Answer> {
        self.begin(site, id);
        self.commit(site, id, keys, text)
    }

    fn commit(&mut self, site: u16, id: RequestId, keys: &[&Key], text: Option<&str>) -> Vec<Answer> {
        let mut writes = WriteSet::default();
        writes.records.extend(keys.iter().map(|&key| (key.clone(), text.map(Entry::new))));
        self.run(site, |site, effects| site.commit(id, writes, effects))
    }

    /// A transaction of a session of its own commits.
    fn committed(&mut self, site: u16, keys: &[&Key]) {
        let id = self.session(site);
        assert_eq!(self.write(site, id, keys, Some("new")), [Answer::Committed]);
    }

    fn has(&self, site: u16, key: &Key) -> bool {
        self.sites[usize::from(site)].as_ref().is_some_and(|site| site.newest(key).entry.is_some())
    }

    /// All links are new, and lose nothing.
    fn reconnect(&mut self) {
        self.lost.clear();
        let all: Vec<NodeId> = (0..self.sites.len() as u16).map(NodeId).collect();
        for site in self.sites.iter_mut().flatten() {
            all.iter().for_each(|&peer| site.reconnected(peer));
        }
    }

    fn lose(&mut self, one: u16, other: u16) {
        self.lost.extend([(one, other), (other, one)]);
    }
}

/// Site 3 lacks an update of site 0, which is away. Only site 1 holds it, and has no partition of site 3.
#[test]
fn a_site_asks_all_that_may_hold_an_update() {
    let mut group = Group::new(4, &[&[0, 1], &[1, 2], &[2, 3], &[0, 3]]);
    let keys = [group.key(0, 0), group.key(1, 1), group.key(2, 2), group.key(3, 0)];
    group.lose(0, 3);
    group.committed(0, &[&keys[0], &keys[3]]);
    group.tick(2);
    group.committed(1, &[&keys[1]]);
    group.tick(2);
    group.committed(2, &[&keys[2]]);
    group.sites[0] = None;
    group.tick(40);
    assert!(group.has(3, &keys[3]), "site 3 has the update of site 0");
    assert!(group.has(3, &keys[2]), "site 3 has what follows the update of site 0");
}

/// A session is opened behind 8 commits, of which a crash takes three back. Site 0 then knows the session for
/// fewer commits than the session's number says.
#[test]
fn a_session_behind_commits_that_a_crash_took_back_has_no_effect() {
    let mut group = Group::new(1, &[&[0]]);
    let key = group.key(0, 0);
    (0..5).for_each(|_| group.committed(0, &[&key]));
    let durable = group.logs[0].clone();
    (0..3).for_each(|_| group.committed(0, &[&key]));
    let id = group.session(0);
    group.logs[0] = durable;
    group.start(0);
    assert_eq!(group.write(0, id, &[&key], Some("new")), [Answer::Unknown]);
    (0..3).for_each(|_| group.committed(0, &[&key]));
    let next = RequestId { attempt: 1, ..id };
    assert_eq!(group.write(0, next, &[&key], Some("new")), [Answer::Committed]);
    for _ in 0..12 {
        let next = RequestId { attempt: 2, ..id };
        let repeated = group.write(0, next, &[&key], Some("new"));
        assert!(matches!(repeated[..], [Answer::CommittedBefore | Answer::Unknown]), "{repeated:?}");
        group.committed(0, &[&key]);
    }
}

/// Site 2 lacks the first update of site 0, which no running site has. Three later ones must wait for it, and
/// site 1 holds them. They do not keep back another one, of a transaction that began before all of these.
#[test]
fn updates_that_must_wait_do_not_keep_others_back() {
    let mut group = Group::new(3, &[&[0, 2], &[0, 1, 2], &[0, 1, 2]]);
    let keys = [group.key(0, 0), group.key(1, 0), group.key(2, 0)];
    group.lose(0, 2);
    let id = group.session(0);
    group.begin(0, id);
    group.committed(0, &[&keys[0]]);
    (0..3).for_each(|_| group.committed(0, &[&keys[0], &keys[1]]));
    assert_eq!(group.commit(0, id, &[&keys[2]], Some("new")), [Answer::Committed]);
    group.tick(4);
    group.sites[0] = None;
    group.tick(40);
    assert!(group.has(2, &keys[2]) && group.has(1, &keys[1]), "what can be applied is");
    assert!(!group.has(2, &keys[1]), "what follows a missing update waits");
}

/// Site 0 hears nothing of site 2, and so sends it only the first two updates. Site 1 has all.
#[test]
fn a_site_that_its_origin_does_not_hear_asks_others() {
    let mut group = Group::new(3, &[&[0, 1, 2], &[0, 1, 2]]);
    let keys = [group.key(0, 0), group.key(1, 0)];
    group.lost.insert((2, 0));
    (0..6).for_each(|_| group.committed(0, &[&keys[0]]));
    group.committed(0, &[&keys[1]]);
    group.tick(80);
    assert!(group.has(2, &keys[1]), "site 2 has the last update");
}

/// Nothing arrives at site 1. Site 0 sends it each update once, then again after ever longer silences, and at
/// once when a link is new.
#[test]
fn updates_are_sent_again_only_after_silence_or_on_a_new_link() {
    let mut group = Group::new(2, &[&[0, 1]]);
    let key = group.key(0, 0);
    group.committed(0, &[&key]);
    assert_eq!(group.sent(0, 1), [1]);
    group.committed(0, &[&key]);
    assert_eq!(group.sent(0, 1), [2], "the first one is on its way");
    let sent: Vec<Vec<u64>> = (0..100).map(|_| group.sent(0, 1)).collect();
    let again: Vec<usize> = (0..100).filter(|&tick| !sent[tick].is_empty()).collect();
    assert!(again.iter().all(|&tick| sent[tick] == [1, 2]), "{sent:?}");
    assert_eq!(again, [2, 10, 26, 58, 90], "each wait is twice the one before, up to 32 ticks");
    group.sites[0].as_mut().expect("it runs").reconnected(NodeId(1));
    assert_eq!(group.sent(0, 1), [1, 2]);
    // Of three updates, the second one is lost, so the third one comes too early.
    group.tick(40);
    group.committed(0, &[&key]);
    assert_eq!(group.sent(0, 1), [3]);
    let last = group.key(0, 1);
    group.committed(0, &[&last]);
    group.tick(1);
    assert!(!group.has(1, &last), "site 1 lacks what comes before it");
    group.tick(8);
    assert!(group.has(1, &last) && group.site(0).outgoing.len() == 0);
}

/// What does a snapshot have of a key after all sites have applied a delete of it?
fn read_under_a_delete() -> Option<Entry> {
    let mut group = Group::new(2, &[&[0, 1]]);
    let key = group.key(0, 0);
    group.committed(0, &[&key]);
    let reader = group.session(0);
    group.begin(0, reader);
    let id = group.session(0);
    assert_eq!(group.write(0, id, &[&key], None), [Answer::Committed]);
    group.tick(10);
    assert!(!group.has(0, &key) && !group.has(1, &key), "both sites have applied the delete");
    group.sites[0].as_mut()?.look(reader, &key).expect("the snapshot is there").entry
}

#[test]
fn a_snapshot_keeps_a_key_that_is_deleted_everywhere() {
    assert_eq!(read_under_a_delete(), Some(Entry::new("new")));
    assert_eq!(with(Mutant::BuryUnderSnapshots, read_under_a_delete), None);
}

/// Site 0 has committed what site 1 resolves, and restarts. Site 1 asks for the outcome, lacks the update,
/// and has a transaction that has not seen it.
fn overwritten_after_a_restart() -> Vec<Answer> {
    let mut group = Group::new(2, &[&[0, 1]]);
    let key = group.key(0, 1);
    let later = group.session(1);
    group.begin(1, later);
    group.is_lost = |message| matches!(message, Message::Outcome { .. } | Message::Updates { .. });
    group.committed(0, &[&key]);
    group.start(0);
    group.is_lost = |message| matches!(message, Message::Updates { .. });
    group.tick(60);
    assert!(!group.has(1, &key), "site 1 lacks the update");
    group.commit(1, later, &[&key], Some("new"))
}

#[test]
fn a_site_that_restarts_answers_what_it_has_committed() {
    let key = Group::new(2, &[&[0, 1]]).key(0, 1);
    assert_eq!(overwritten_after_a_restart(), [Answer::Conflict(Conflict::Key(key))]);
    assert_eq!(with(Mutant::ForgetDecision, overwritten_after_a_restart), [Answer::Committed]);
}

/// Site 1 knows the outcome of a transaction of site 0 and says so, while site 2 neither has heard of the
/// outcome nor has the update. Site 2 asks, and has a transaction that has not seen the update.
fn overwritten_when_one_resolver_knows() -> Vec<Answer> {
    let mut group = Group::new(3, &[&[0, 1, 2]]);
    let keys = [group.key(0, 1), group.key(0, 2)];
    let later = group.session(2);
    group.begin(2, later);
    group.is_lost = |message| matches!(message, Message::Outcome { .. } | Message::Updates { .. });
    group.committed(0, &[&keys[0], &keys[1]]);
    group.is_lost = |message| matches!(message, Message::Updates { .. });
    group.lose(0, 2);
    group.tick(2);
    group.lost.clear();
    group.tick(60);
    assert!(!group.has(2, &keys[1]), "site 2 lacks the update");
    group.commit(2, later, &[&keys[1]], Some("new"))
}

#[test]
fn a_site_keeps_an_outcome_until_all_resolvers_have_it() {
    let key = Group::new(3, &[&[0, 1, 2]]).key(0, 2);
    assert_eq!(overwritten_when_one_resolver_knows(), [Answer::Conflict(Conflict::Key(key))]);
    assert_eq!(with(Mutant::SettleEarly, overwritten_when_one_resolver_knows), [Answer::Committed]);
}

impl Group {
    /// A site loses its disk, and a process begins without a log.
    fn lose_disk(&mut self, site: u16) {
        self.logs[usize::from(site)].clear();
        self.start(usize::from(site));
    }

    fn site(&self, site: u16) -> &Pcsi {
        self.sites[usize::from(site)].as_ref().expect("it runs")
    }

    fn is_open(&self, site: u16) -> bool {
        self.site(site).is_open()
    }

    fn fence(&mut self, leader: u16, site: u16) -> FenceAnswer {
        self.ask_to_fence(leader, site, false)
    }

    fn ask_to_fence(&mut self, leader: u16, site: u16, is_forced: bool) -> FenceAnswer {
        let mut answer = FenceAnswer::UnderWay;
        self.run(leader, |leader, effects| answer = leader.fence(NodeId(site), is_forced, effects));
        answer
    }

    /// Cuts the links between sites up to this one and the others.
    fn cut_behind(&mut self, last: u16) {
        let sites = self.sites.len() as u16;
        (0..=last).for_each(|one| (last + 1..sites).for_each(|other| self.lose(one, other)));
    }
}

/// Six sites are cut into two halves, and each half is told to fence the other one. Then the links are back.
/// Returns the answers to the second half's operator, the sites that this half has fenced before it hears of
/// the first one, and the sites that are open in the end.
fn two_halves_that_fence_each_other() -> (Vec<FenceAnswer>, usize, Vec<u16>) {
    let mut group = Group::new(6, &[&[0, 1, 2, 3, 4, 5]]);
    group.cut_behind(2);
    for site in 3..6 {
        assert_eq!(group.fence(1, site), FenceAnswer::Begun);
    }
    let answers = (0..3).map(|site| group.fence(4, site)).collect();
    group.tick(100);
    group.committed(0, &[&group.key(0, 1)]);
    let fenced = group.site(4).fences.excluded.len();
    group.reconnect();
    group.tick(40);
    (answers, fenced, (0..6).filter(|&site| group.is_open(site)).collect())
}

#[test]
fn of_two_halves_that_fence_each_other_the_one_with_the_lowest_site_goes_on() {
    let too_few = FenceAnswer::NoMajority { voters: 3, members: 6 };
    let (answers, fenced, open) = two_halves_that_fence_each_other();
    assert_eq!(answers, [FenceAnswer::Begun, FenceAnswer::Begun, too_few]);
    assert_eq!((fenced, open), (0, vec![0, 1, 2]));
    // Both halves go on until one of them hears of the other one.
    let (answers, fenced, open) = with(Mutant::FenceWithoutMajority, two_halves_that_fence_each_other);
    assert_eq!((answers, fenced, open.len()), (vec![FenceAnswer::Begun; 3], 3, 3));
}

/// Sites die one after the other, and each is fenced before the next one dies.
#[test]
fn dead_sites_can_be_fenced_one_after_the_other() {
    for survivor in [0, 4] {
        let mut group = Group::new(5, &[&[0, 1, 2, 3, 4]]);
        let key = group.key(0, survivor);
        let mut dead: Vec<u16> = (0..5).filter(|&site| site != survivor).collect();
        let last = dead.pop().expect("four sites");
        for &site in &dead {
            group.sites[usize::from(site)] = None;
            assert_eq!(group.fence(survivor, site), FenceAnswer::Begun);
            group.tick(20);
            assert!(group.site(survivor).fences.excluded.contains(&NodeId(site)));
        }
        group.sites[usize::from(last)] = None;
        // Of two sites, the one with the lower number is a majority.
        let (plain, forced) = (group.fence(survivor, last), group.ask_to_fence(survivor, last, true));
        let too_few = FenceAnswer::NoMajority { voters: 1, members: 2 };
        let (expected, again) = match survivor {
            0 => (FenceAnswer::Begun, FenceAnswer::UnderWay),
            _ => (too_few, FenceAnswer::Begun),
        };
        assert_eq!((plain, forced), (expected, again), "survivor {survivor}");
        group.committed(survivor, &[&key]);
        assert_eq!(group.site(survivor).fences.excluded.len(), 4);
        // Their processes come back without their logs, and need no operator.
        dead.iter().chain([&last]).for_each(|&site| group.lose_disk(site));
        group.tick(200);
        assert!((0..5).all(|site| group.is_open(site) && group.has(site, &key)), "survivor {survivor}");
    }
}

/// A majority of the sites loses its disks. Nobody is on another side, so no operator is asked. With a site
/// that is away, the one with a state cannot know that.
#[test]
fn sites_that_ask_for_their_fence_need_no_majority() {
    for has_one_away in [false, true] {
        let mut group = Group::new(4, &[&[0, 1, 2, 3]]);
        let key = group.key(0, 3);
        group.committed(3, &[&key]);
        group.tick(4);
        (0..3).for_each(|site| group.sites[site] = None);
        (0..2).for_each(|site| group.lose_disk(site));
        if !has_one_away {
            group.lose_disk(2);
        }
        group.tick(200);
        let is_open = group.is_open(0) && group.is_open(1) && group.has(0, &key);
        assert_eq!(is_open, !has_one_away);
        let status = group.site(3).fence_status();
        assert_eq!(status.awaited.contains(&NodeId(2)), has_one_away, "{status:?}");
        if has_one_away {
            assert_eq!(group.fence(3, 2), FenceAnswer::NoMajority { voters: 1, members: 4 });
            assert_eq!(group.ask_to_fence(3, 2, true), FenceAnswer::Begun);
            assert_eq!(group.site(3).fence_status(), FenceStatus::default());
            group.lose_disk(2);
            group.tick(200);
            assert!((0..3).all(|site| group.is_open(site) && group.has(site, &key)));
        }
    }
}

/// Site 2 is fenced while it is down, and restarts with its log and without links.
fn is_open_although_fenced_while_it_was_down() -> bool {
    let mut group = Group::new(3, &[&[0, 1, 2]]);
    group.sites[2] = None;
    group.fence(0, 2);
    group.tick(10);
    group.cut_behind(1);
    group.restart(2);
    group.tick(200);
    let is_open = group.is_open(2);
    group.reconnect();
    group.tick(10);
    assert!(group.site(2).is_fenced());
    is_open
}

/// Site 0 is to fence site 2, and waits for site 1 to agree. Site 2 hears site 0 only.
#[test]
fn a_site_closes_while_a_fence_of_it_is_under_way() {
    for restarts in [false, true] {
        let mut group = Group::new(3, &[&[0, 1, 2]]);
        let key = group.key(0, 2);
        group.lose(0, 1);
        group.lose(1, 2);
        assert_eq!(group.ask_to_fence(0, 2, true), FenceAnswer::Begun);
        if restarts {
            group.restart(2);
        }
        group.tick(200);
        assert!(!group.is_open(2) && group.site(2).is_about_to_be_fenced());
        let id = group.session(2);
        group.begin(2, id);
        assert!(!group.write(2, id, &[&key], Some("lost")).contains(&Answer::Committed));
        group.reconnect();
        group.tick(200);
        assert!(group.site(2).is_fenced() && group.is_open(0) && group.is_open(1));
    }
}

/// Of two sites, one restarts alone, and the other has lost its disk.
#[test]
fn a_site_that_has_nobody_to_hear_stays_open_while_another_one_joins() {
    let mut group = Group::new(2, &[&[0, 1]]);
    group.restart(0);
    group.lose_disk(1);
    let mut has_opened = false;
    for _ in 0..200 {
        group.tick(1);
        assert!(group.is_open(0) || !has_opened);
        has_opened |= group.is_open(0);
    }
    assert!(group.is_open(0) && group.is_open(1));
}

#[test]
fn a_site_that_restarts_waits_to_hear_another_one() {
    assert!(!is_open_although_fenced_while_it_was_down());
    assert!(with(Mutant::OpenUnheard, is_open_although_fenced_while_it_was_down));
    // All sites restart at the same time, and hear each other.
    let mut group = Group::new(3, &[&[0, 1, 2]]);
    (0..3).for_each(|site| group.restart(site));
    assert!((0..3).all(|site| !group.is_open(site) && group.site(site).waits_to_hear()));
    group.reconnect();
    group.tick(2);
    assert!((0..3).all(|site| group.is_open(site)));
    // The last survivor has an operator's word.
    group.cut_behind(0);
    group.restart(0);
    group.tick(100);
    assert!(!group.is_open(0));
    assert_eq!(group.ask_to_fence(0, 1, true), FenceAnswer::Begun);
    assert!(group.is_open(0));
    // A site without peers has nobody to hear.
    let mut group = Group::new(1, &[&[0]]);
    group.restart(0);
    assert!(group.is_open(0));
}

/// Site 0 has told site 1 of one commit, and nobody of two. It loses its disk.
#[test]
fn a_site_without_its_disk_learns_what_others_have_and_uses_no_number_again() {
    let mut group = Group::new(3, &[&[0, 1, 2]]);
    let keys = [group.key(0, 0), group.key(0, 1), group.key(0, 2)];
    group.lose(0, 2);
    group.committed(0, &[&keys[0]]);
    group.tick(1);
    group.lose(0, 1);
    let first = group.site(0).last_commit();
    group.committed(0, &[&keys[0]]);
    group.committed(0, &[&keys[0]]);
    let last = group.site(0).last_commit();
    assert!(last > first && group.has(1, &keys[0]) && !group.has(2, &keys[0]));
    group.lost.clear();
    group.lose_disk(0);
    assert!(!group.is_open(0), "it has nothing");
    group.tick(20);
    assert!(group.is_open(0), "others have told it what they have");
    assert!(group.has(0, &keys[0]) && group.has(2, &keys[0]), "what site 1 has reaches all");
    assert!(group.site(0).last_commit() > last, "the numbers that nobody knows are not used again");
    group.committed(0, &[&keys[0]]);
    group.committed(0, &[&keys[1]]);
    group.committed(1, &[&keys[2]]);
    group.tick(40);
    let views: Vec<_> = (0..3).map(|site| group.site(site).view(PartitionId(0)).cloned()).collect();
    assert!(views[0] == views[1] && views[1] == views[2], "{views:?}");
    let counted = views[1].as_ref().map_or(0, |view| view.at(NodeId(0)));
    assert!(counted > last.0, "the numbers of the partition are not used again, either");
    assert!((0..3).all(|site| group.site(site).is_idle()));
}

/// A process begins without a log again before it has its state, and then once more after that.
#[test]
fn each_process_without_a_log_is_another_incarnation() {
    let mut group = Group::new(2, &[&[0, 1]]);
    let key = group.key(0, 1);
    group.committed(0, &[&key]);
    group.tick(4);
    group.lose_disk(0);
    group.lost.insert((1, 0));
    group.tick(4);
    assert!(!group.is_open(0), "site 0 hears nothing of site 1, which has fenced it");
    group.lost.clear();
    group.lose_disk(0);
    group.tick(20);
    assert!(group.is_open(0) && group.has(0, &key));
    let incarnation = group.site(0).incarnation();
    group.lose_disk(0);
    group.tick(20);
    assert!(group.is_open(0) && group.has(0, &key));
    assert!(group.site(0).incarnation() > incarnation, "the earlier one may have been heard of");
}

/// Site 2 hears nothing of its fence, and then of a site only that has lost its disk since.
#[test]
fn a_fenced_site_that_is_not_heard_learns_of_its_fence() {
    let mut group = Group::new(3, &[&[0, 1, 2]]);
    (0..2).for_each(|site| group.lose(site, 2));
    group.fence(0, 2);
    group.tick(4);
    group.lose_disk(0);
    group.tick(30);
    assert!(group.is_open(0) && group.is_open(2), "site 2 goes on");
    group.lost.remove(&(0, 2));
    group.tick(10);
    assert!(group.site(2).is_fenced());
}

/// Sites 0 and 1 wait for votes of site 2, one of them with a lock there and the other one without its vote.
/// Site 3 has an update of site 2 that sites 0 and 1 lack. An operator fences site 2.
#[test]
fn a_fence_decides_what_the_fenced_site_left_open() {
    let mut group = Group::new(4, &[&[0, 1, 2, 3]]);
    let keys = [group.key(0, 0), group.key(0, 1), group.key(0, 2), group.key(0, 3)];
    (0..2).for_each(|site| group.lose(2, site));
    group.committed(2, &[&keys[3]]);
    group.tick(1);
    assert!(group.has(3, &keys[3]) && !group.has(0, &keys[3]));
    // The resolver of the first key hears no outcome.
    group.lost.remove(&(2, 0));
    let locking = group.session(2);
    assert_eq!(group.write(2, locking, &[&keys[0]], Some("new")), [], "site 0 locks, and is not heard");
    let waiting = group.session(1);
    assert_eq!(group.write(1, waiting, &[&keys[2]], Some("new")), [], "site 2 is silent");
    group.lose(2, 0);
    group.lose(2, 3);
    group.fence(0, 2);
    group.tick(2);
    assert!((0..2).all(|site| group.has(site, &keys[3])), "what site 3 has of site 2 reaches all");
    group.committed(0, &[&keys[0]]);
    let again = group.session(1);
    assert_eq!(group.write(1, again, &[&keys[2]], Some("new")), [Answer::Unavailable], "its resolver is out");
    group.lost.clear();
    group.tick(10);
    assert!(group.site(2).is_fenced(), "it hears of the fence");
    group.lose_disk(2);
    group.tick(30);
    assert!(group.is_open(2) && (0..4).all(|site| group.has(2, &keys[usize::from(site == 3) * 3])));
    group.committed(1, &[&keys[2]]);
    group.tick(20);
    assert!((0..4).all(|site| group.has(site, &keys[2]) && group.site(site).is_idle()));
}

/// Site 3 is away, and so no fence of site 0 can be decided. Then site 3 is fenced as well.
#[test]
fn a_fence_ends_when_a_site_that_it_waits_for_is_fenced_too() {
    let mut group = Group::new(4, &[&[0, 1, 2, 3]]);
    let key = group.key(0, 1);
    group.sites[3] = None;
    group.sites[0] = None;
    group.fence(1, 0);
    group.tick(100);
    let refused = group.session(2);
    assert_eq!(group.write(2, refused, &[&group.key(0, 0)], Some("new")), [Answer::Unavailable]);
    group.fence(2, 3);
    group.tick(100);
    group.committed(1, &[&key]);
    group.lose_disk(0);
    group.lose_disk(3);
    group.tick(200);
    assert!((0..4).all(|site| group.is_open(site) && group.has(site, &key)));
    group.tick(40);
    assert!((0..4).all(|site| group.site(site).is_idle()));
}

/// The leader of a fence fails after it has decided, and before another site hears of it.
#[test]
fn another_site_ends_a_fence_whose_leader_is_away() {
    let mut group = Group::new(4, &[&[0, 1, 2, 3]]);
    let key = group.key(0, 1);
    group.lose(0, 1);
    group.lose(0, 2);
    group.committed(0, &[&group.key(0, 0)]);
    group.tick(1);
    group.sites[0] = None;
    // Site 1 hears the reports, and is not heard after its request.
    group.fence(1, 0);
    let decided = group.logs[1].iter().any(|record| matches!(record, Record::Decided { .. }));
    assert!(decided, "all have reported");
    for site in [2, 3] {
        let place = group.logs[site].iter().position(|record| matches!(record, Record::Decided { .. }));
        group.logs[site].truncate(place.expect("it has heard"));
        group.start(site);
    }
    group.tick(100);
    group.lost.clear();
    group.lose_disk(0);
    group.tick(100);
    assert!((0..4).all(|site| group.is_open(site) && group.has(site, &group.key(0, 0))));
    group.committed(3, &[&key]);
}

/// No other site has the partition, so it is empty; the other partition is there.
#[test]
fn a_partition_that_no_other_site_has_is_lost_with_the_disk() {
    let mut group = Group::new(2, &[&[0], &[0, 1]]);
    let keys = [group.key(0, 0), group.key(1, 0)];
    group.committed(0, &[&keys[0]]);
    group.committed(0, &[&keys[1]]);
    group.tick(4);
    group.lose_disk(0);
    group.tick(20);
    assert!(group.is_open(0) && !group.has(0, &keys[0]) && group.has(0, &keys[1]));
    group.committed(0, &[&keys[0], &keys[1]]);
}

/// A site is alone: nobody can say which numbers it has used.
#[test]
fn a_site_that_nobody_answers_stays_shut() {
    let mut group = Group::new(1, &[&[0]]);
    group.lose_disk(0);
    group.tick(100);
    assert!(!group.is_open(0));
    let id = RequestId { session: session_opened(Position(0), 1), sequence: 1, attempt: 0 };
    let answers = group.run(0, |site, effects| site.begin(id, effects));
    assert_eq!(answers, [Answer::Unavailable]);
    assert_eq!(group.commit(0, id, &[&group.key(0, 0)], Some("new")), [Answer::Unknown]);
}

/// Sites 0 and 1 lose their disks at the same time. Only they had the first partition; site 2 has the other.
#[test]
fn sites_that_join_together_begin_with_what_they_both_lost_empty() {
    let mut group = Group::new(3, &[&[0, 1], &[0, 1, 2]]);
    let keys = [group.key(0, 0), group.key(1, 1)];
    group.committed(0, &[&keys[0]]);
    group.committed(0, &[&keys[1]]);
    group.tick(4);
    group.sites[1] = None;
    group.lose_disk(0);
    group.lose_disk(1);
    group.tick(100);
    assert!((0..3).all(|site| group.is_open(site) && group.has(site, &keys[1])));
    assert!((0..2).all(|site| !group.has(site, &keys[0])));
    group.committed(1, &[&keys[0], &keys[1]]);
    group.tick(40);
    assert!((0..2).all(|site| group.has(site, &keys[0])));
    assert!((0..3).all(|site| group.site(site).is_idle()));
}

/// Site 2 has lost its disk, and nobody hears it. It hears of a round of site 0, which then fails. If site 2
/// promised, it would wait for the round's end, and go on to incarnation 2 before incarnation 1 is decided. A
/// request for incarnation 2 that comes late would fence the open site that another process of site 2 has
/// become.
#[test]
fn a_site_asks_for_an_incarnation_only_behind_a_decided_one() {
    let mut group = Group::new(3, &[&[0, 1, 2]]);
    (0..2).for_each(|site| {
        group.lost.insert((2, site));
    });
    group.lose_disk(2);
    group.fence(0, 1);
    group.tick(8);
    group.sites[0] = None;
    group.tick(400);
    assert_eq!(group.site(2).incarnation().0, 1, "no incarnation of site 2 is decided");
    group.start(0);
    group.lost.clear();
    group.tick(40);
    assert!(group.site(0).fence_status().lacks_majority, "site 1 is frozen, and site 2 has nothing");
    group.ask_to_fence(0, 1, true);
    group.tick(40);
    assert!(group.is_open(0) && group.is_open(2) && group.site(2).incarnation().0 == 1);
}

/// Site 1 overwrites what site 0 wrote. The resolver, site 2, knows of both versions, and lacks both updates
/// until the fence of site 0 brings it the earlier one. Site 3 has only the earlier one, too.
#[test]
fn a_resolver_knows_what_followed_an_update_that_a_fence_brings() {
    let mut group = Group::new(4, &[&[0, 1, 2, 3]]);
    let key = group.key(0, 2);
    group.committed(0, &[&key]);
    group.lose(0, 2);
    group.tick(1);
    group.is_lost = |message| matches!(message, Message::Updates { .. });
    group.committed(1, &[&key]);
    assert!(!group.has(2, &key), "site 2 lacks both updates");
    group.fence(3, 0);
    assert!(group.has(2, &key), "the fence brings site 2 the update of site 0");
    let late = group.session(3);
    let answer = group.write(3, late, &[&key], Some("new"));
    assert_eq!(answer, [Answer::Conflict(Conflict::Key(key))], "site 3 has not seen the newest version");
}

/// Site 0 decides that an update of site 3 remains, and tells only site 2, which joins. Then site 0 is
/// fenced, and the round decides on site 3 again, without the update.
#[test]
fn a_joining_site_drops_decisions_that_only_a_fenced_leader_knew() {
    let mut group = Group::new(4, &[&[0, 1, 2, 3]]);
    let key = group.key(0, 3);
    group.is_lost = |message| matches!(message, Message::Updates { .. });
    group.committed(3, &[&key]);
    let committed = |record: &Record| match record {
        Record::Committed { update, .. } => Some(Arc::clone(update)),
        _ => None,
    };
    let update = group.logs[3].iter().find_map(committed).expect("it has committed");
    group.lose_disk(2);
    let joining = Candidate { incarnation: Incarnation(1), start: group.starts };
    let fenced = |updates: &[Arc<Update>]| Decision {
        candidate: Candidate { incarnation: Incarnation(1), start: 0 },
        updates: updates.to_vec(),
        granted: BTreeMap::new(),
    };
    let own = Decision { candidate: joining, updates: Vec::new(), granted: BTreeMap::new() };
    let first = BTreeMap::from([(NodeId(2), own.clone()), (NodeId(3), fenced(&[update]))]);
    let later = BTreeMap::from([(NodeId(0), fenced(&[])), (NodeId(2), own), (NodeId(3), fenced(&[]))]);
    for (from, decisions) in [(0, first), (1, later.clone())] {
        let excluded = decisions.keys().copied().collect();
        let message = Fencing::Admitted { candidate: joining, inquiry: 0, last: 0, decisions, excluded };
        let letter = Letter { from: Incarnation(0), to: None, message: Message::Fencing(message) };
        group.run(2, |site, effects| site.receive(NodeId(from), letter, effects));
    }
    assert_eq!(group.site(2).fences.decided, later);
}

/// Site 0 overwrites what site 1 wrote, and is lost with that. Site 3 counts the lost update, and has not
/// seen what site 1 wrote. The resolver, site 2, has, and has not heard yet that the later update is lost.
#[test]
fn a_resolver_that_lags_behind_a_fence_refuses_who_has_not_seen_its_newest_version() {
    let mut group = Group::new(4, &[&[0, 1, 2, 3]]);
    let key = group.key(0, 2);
    group.lose(1, 3);
    group.committed(1, &[&key]);
    group.tick(1);
    group.lost.clear();
    group.is_lost =
        |message| matches!(message, Message::Updates { .. } | Message::Fencing(Fencing::Decided { .. }));
    group.committed(0, &[&key]);
    group.sites[0] = None;
    group.fence(3, 0);
    assert!(group.has(2, &key) && !group.has(3, &key), "site 3 lacks what site 1 wrote");
    let late = group.session(3);
    let answer = group.write(3, late, &[&key], Some("new"));
    assert_eq!(answer, [Answer::Conflict(Conflict::Key(key))], "site 3 has not seen the newest version");
}

/// With two sites to write, a commit is told when site 1 has acknowledged it. A client that has waited for
/// too long hears that the outcome is unknown, and the truth when it asks once more. Without a second site
/// that counts, nothing is committed.
fn answers_with_two_sites_to_write() -> Vec<Vec<Answer>> {
    let mut group = Group::new(3, &[&[0, 1], &[0]]);
    group.options.sites_to_write_min = 2;
    (0..3).for_each(|site| group.start(site));
    let keys = [group.key(0, 0), group.key(1, 0)];
    let alone = group.session(0);
    let mut answers = vec![group.write(0, alone, &[&keys[1]], Some("new"))];
    group.lose(0, 1);
    let id = group.session(0);
    answers.push(group.write(0, id, &[&keys[0]], Some("new")));
    let mut told = Vec::new();
    for tick in 0..60 {
        told.extend(group.run(0, |site, effects| site.tick(effects)));
        if tick % 20 == 0 {
            told.extend(group.commit(0, id, &[&keys[0]], Some("new")));
        }
    }
    answers.push(told);
    // A crash forgets who waits, and not that too few sites have the update.
    group.start(0);
    answers.push(group.commit(0, id, &[&keys[0]], Some("new")));
    group.lost.clear();
    let mut told = Vec::new();
    for _ in 0..3 {
        told.extend(group.run(0, |site, effects| site.tick(effects)));
    }
    answers.push(told);
    answers.push(group.commit(0, id, &[&keys[0]], Some("new")));
    group.fence(0, 1);
    group.tick(4);
    let fenced = group.session(0);
    answers.push(group.write(0, fenced, &[&keys[0]], Some("new")));
    answers
}

#[test]
fn a_client_is_told_of_a_write_when_enough_sites_have_it() {
    let expected = [
        vec![Answer::Unavailable],
        vec![],
        vec![Answer::Unknown],
        vec![],
        vec![Answer::Committed],
        vec![Answer::Committed],
        vec![Answer::Unavailable],
    ];
    assert_eq!(answers_with_two_sites_to_write(), expected);
    let early = with(Mutant::TellUnwitnessed, answers_with_two_sites_to_write);
    assert_eq!(early[1], [Answer::Committed]);
    let after_restart = with(Mutant::ForgetUnwitnessed, answers_with_two_sites_to_write);
    assert_eq!(after_restart[3], [Answer::Committed]);
}

/// Site 0 commits five updates. Site 1 gets two of them, which are a window, and hears that there are five;
/// the acknowledgement is lost. Site 2 hears nothing. Then site 0 is fenced.
#[test]
fn sites_tell_how_many_updates_of_a_fenced_one_remain_and_are_lost() {
    let mut group = Group::new(3, &[&[0, 1, 2]]);
    let key = group.key(0, 0);
    group.lose(0, 2);
    group.committed(0, &[&key]);
    group.tick(2);
    assert_eq!(group.site(0).unacknowledged(), None, "site 1 has it");
    group.lost.insert((1, 0));
    (0..5).for_each(|_| group.committed(0, &[&key]));
    group.tick(1);
    assert_eq!(group.site(0).unacknowledged(), Some((5, 2, 6)));
    group.sites[0] = None;
    group.fence(1, 0);
    let loss = |lost| FenceLoss { site: NodeId(0), incarnation: Incarnation(1), remaining: 3, lost };
    assert_eq!(group.fenced, [(1, loss(3)), (2, loss(0))]);
    assert_eq!(group.site(1).peers()[0].lost, 3);
    group.lost.clear();
    group.lose_disk(0);
    group.tick(60);
    assert!(group.site(0).is_open() && group.site(0).unacknowledged().is_none());
    // A site that joins without a log is fenced once more, and has lost nothing more.
    assert_eq!(group.fenced.len(), 4);
    assert!(group.fenced[2..].iter().all(|(_, loss)| loss.incarnation == Incarnation(2) && loss.lost == 0));
}

/// The partitions that site 1 asks for are lost on their way.
#[test]
fn a_joining_site_asks_for_one_partition_at_a_time() {
    let mut group = Group::new(3, &[&[0, 1, 2], &[0, 1, 2], &[0, 1, 2]]);
    let key = group.key(2, 0);
    group.committed(0, &[&key]);
    group.tick(4);
    group.is_lost = |message| matches!(message, Message::Fencing(Fencing::Fetched { .. }));
    group.lose_disk(1);
    group.tick(20);
    let mut asked = Vec::new();
    for _ in 0..100 {
        let mut effects = SiteEffects::default();
        group.sites[1].as_mut().expect("it runs").tick(&mut effects);
        asked.extend(effects.messages.into_iter().filter_map(|(holder, letter)| match letter.message {
            Message::Fencing(Fencing::Fetch { partition, .. }) => Some((holder, partition)),
            _ => None,
        }));
    }
    assert!(matches!(asked.len(), 1..=3), "{asked:?}");
    assert!(asked.iter().all(|(_, partition)| *partition == PartitionId(0)), "{asked:?}");
    // A new link to the site that was asked has it asked again at once.
    group.is_lost = |_| false;
    group.reconnect();
    group.tick(20);
    assert!(group.site(1).is_open() && group.has(1, &key));
}

/// Expired keys of which this site resolves none come before the one that it resolves.
#[test]
fn a_site_keeps_the_deadlines_of_the_keys_that_it_resolves_also_when_it_joins() {
    let mut group = Group::new(2, &[&[0, 1]]);
    let keys = [group.key(0, 0), group.key(0, 1)];
    for (key, expires_at_ms) in [(&keys[0], 1), (&keys[1], 2)] {
        let id = group.session(0);
        group.begin(0, id);
        let mut writes = WriteSet::default();
        writes.records.insert(key.clone(), Some(Entry { expires_at_ms, ..Entry::new("new") }));
        assert_eq!(group.run(0, |site, effects| site.commit(id, writes, effects)), [Answer::Committed]);
    }
    group.tick(4);
    let deadlines = |group: &Group, site: u16| -> Vec<Key> {
        let replicas = group.site(site).replicas.values();
        replicas.flat_map(|replica| replica.expired(10)).cloned().collect()
    };
    for _ in 0..2 {
        for site in [0, 1] {
            assert_eq!(deadlines(&group, site), [keys[usize::from(site)].clone()]);
            assert_eq!(group.site(site).expired(10, 9), [keys[usize::from(site)].clone()]);
        }
        group.lose_disk(1);
        group.tick(100);
        assert!(group.site(1).is_open());
    }
}

/// Two sites to write. Site 1 has the first partition of site 0, and not the second one.
fn answers_for_a_partition_that_only_one_site_has() -> Vec<Answer> {
    let mut group = Group::new(2, &[&[0, 1], &[0]]);
    group.options.sites_to_write_min = 2;
    (0..2).for_each(|site| group.start(site));
    let keys = [group.key(0, 0), group.key(1, 0)];
    let id = group.session(0);
    group.write(0, id, &[&keys[0], &keys[1]], Some("new"))
}

#[test]
fn each_partition_of_a_write_needs_sites_of_its_own() {
    assert_eq!(answers_for_a_partition_that_only_one_site_has(), [Answer::Unavailable]);
    // The transaction commits, and waits for site 1.
    assert_eq!(with(Mutant::CountOtherPartitions, answers_for_a_partition_that_only_one_site_has), []);
}

/// Two sites to write, and three sites. Site 1 has one partition of an update and site 2 the other one; an
/// acknowledgement of one of them tells nothing of the other partition.
fn answers_when_one_site_has_acknowledged() -> Vec<Answer> {
    let mut group = Group::new(3, &[&[0, 1], &[0, 2]]);
    group.options.sites_to_write_min = 2;
    (0..3).for_each(|site| group.start(site));
    let keys = [group.key(0, 0), group.key(1, 0)];
    group.lose(0, 2);
    let id = group.session(0);
    let mut answers = group.write(0, id, &[&keys[0], &keys[1]], Some("new"));
    (0..4).for_each(|_| answers.extend(group.run(0, |site, effects| site.tick(effects))));
    answers
}

#[test]
fn a_witness_of_one_partition_does_not_count_for_another_one() {
    assert_eq!(answers_when_one_site_has_acknowledged(), []);
    assert_eq!(
        with(Mutant::CountOtherPartitions, answers_when_one_site_has_acknowledged),
        [Answer::Committed]
    );
}

/// Site 1 is away with as many updates as site 0 keeps, and an operator fences it. The clients hear at once
/// that the outcome is unknown, and hear it again when they ask; writes of the other partition go on. Site 1
/// comes back, has what site 0 has, and acknowledges it.
#[test]
fn updates_that_nobody_can_witness_keep_no_others_back() {
    let mut group = Group::new(3, &[&[0, 1], &[0, 2]]);
    group.options.sites_to_write_min = 2;
    group.options.session_horizon = 100;
    (0..3).for_each(|site| group.start(site));
    let keys = [group.key(0, 0), group.key(1, 0)];
    group.lose(0, 1);
    let mut waiting = Vec::new();
    for _ in 0..group.options.retained_max {
        let id = group.session(0);
        assert_eq!(group.write(0, id, &[&keys[0]], Some("new")), []);
        waiting.push(id);
    }
    let late = group.session(0);
    assert_eq!(group.write(0, late, &[&keys[1]], Some("new")), [Answer::Unavailable], "its bound is reached");
    let told = group.run(0, |site, effects| {
        site.fence(NodeId(1), false, effects);
    });
    assert_eq!(told, vec![Answer::Unknown; waiting.len()]);
    assert_eq!(group.commit(0, waiting[0], &[&keys[0]], Some("new")), [Answer::Unknown]);
    for _ in 0..3 {
        let id = group.session(0);
        let mut answers = group.write(0, id, &[&keys[1]], Some("new"));
        (0..15).for_each(|_| answers.extend(group.run(0, |site, effects| site.tick(effects))));
        assert_eq!(answers, [Answer::Committed]);
    }
    // A restart does not forget which updates are stranded.
    group.start(0);
    assert_eq!(group.commit(0, waiting[0], &[&keys[0]], Some("new")), [Answer::Unknown]);
    group.lost.clear();
    group.lose_disk(1);
    group.tick(60);
    assert_eq!(group.commit(0, waiting[0], &[&keys[0]], Some("new")), [Answer::Committed]);
    assert!((0..3).all(|site| group.site(site).is_idle()));
}

/// A stranded update is dropped when the site has forgotten the update's session.
#[test]
fn stranded_updates_are_bounded_by_the_horizon_of_sessions() {
    let mut group = Group::new(3, &[&[0, 1], &[0, 2]]);
    group.options.sites_to_write_min = 2;
    (0..3).for_each(|site| group.start(site));
    let keys = [group.key(0, 0), group.key(1, 0)];
    group.lose(0, 1);
    let waiting = group.session(0);
    assert_eq!(group.write(0, waiting, &[&keys[0]], Some("new")), []);
    group.fence(0, 1);
    assert!(!group.site(0).witnesses.is_empty());
    for _ in 0..=group.options.session_horizon {
        let id = group.session(0);
        group.write(0, id, &[&keys[1]], Some("new"));
        group.tick(3);
    }
    assert!(group.site(0).witnesses.is_empty());
    assert_eq!(group.commit(0, waiting, &[&keys[0]], Some("new")), [Answer::Unknown]);
}

/// The client of an update makes one attempt after the other. All of them wait for site 1.
#[test]
fn a_client_that_makes_new_attempts_waits_no_longer() {
    let mut group = Group::new(2, &[&[0, 1]]);
    group.options.sites_to_write_min = 2;
    (0..2).for_each(|site| group.start(site));
    let key = group.key(0, 0);
    group.lose(0, 1);
    let mut id = group.session(0);
    assert_eq!(group.write(0, id, &[&key], Some("new")), []);
    let mut told = Vec::new();
    for tick in 1..=group.options.sites_ticks_max {
        told.extend(group.run(0, |site, effects| site.tick(effects)));
        if tick % 20 == 0 {
            id.attempt += 1;
            told.extend(group.write(0, id, &[&key], Some("new")));
        }
    }
    assert_eq!(told, [Answer::Unknown]);
    // An earlier attempt that arrives late does not take the place of a later one.
    assert_eq!(group.commit(0, id, &[&key], Some("new")), []);
    let earlier = RequestId { attempt: 0, ..id };
    assert_eq!(group.commit(0, earlier, &[&key], Some("new")), []);
    group.reconnect();
    let mut told = Vec::new();
    (0..3).for_each(|_| told.extend(group.run(0, |site, effects| site.tick(effects))));
    assert_eq!(told, [Answer::CommittedBefore]);
}

/// Three sites to write. Site 1 acknowledges an update and is fenced, and then site 2 acknowledges it.
fn answers_when_a_witness_is_fenced() -> Vec<Vec<Answer>> {
    let mut group = Group::new(4, &[&[0, 1, 2, 3]]);
    group.options.sites_to_write_min = 3;
    (0..4).for_each(|site| group.start(site));
    let key = group.key(0, 0);
    (2..4).for_each(|site| group.lose(0, site));
    let id = group.session(0);
    let mut answers = vec![group.write(0, id, &[&key], Some("new"))];
    let ticks = |group: &mut Group| -> Vec<Answer> {
        (0..3).flat_map(|_| group.run(0, |site, effects| site.tick(effects))).collect()
    };
    answers.push(ticks(&mut group));
    group.lost.clear();
    group.is_lost = |message| matches!(message, Message::Updates { .. });
    group.fence(0, 1);
    group.is_lost = |_| false;
    group.reconnect();
    group.lose(0, 3);
    answers.push(ticks(&mut group));
    group.reconnect();
    answers.push(ticks(&mut group));
    answers
}

#[test]
fn a_fenced_site_is_no_witness() {
    let told = vec![Answer::Committed];
    assert_eq!(answers_when_a_witness_is_fenced(), [vec![], vec![], vec![], told.clone()]);
    let early = with(Mutant::CountFencedWitnesses, answers_when_a_witness_is_fenced);
    assert_eq!(early, [vec![], vec![], told, vec![]]);
}
