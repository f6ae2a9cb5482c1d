//! Sites whose disks and links a test moves by hand.

use super::*;
use certify::Conflict;
use certify::pcsi::SiteMap;
use std::sync::Arc;
use txn::SessionId;

const SITES: u16 = 3;

struct Host {
    site: GeoSite,
    effects: SiteEffects,
    log: Vec<log::Entry>,
    written: u64,
    answers: Vec<(RequestId, Answer)>,
    /// A sync that is under way.
    syncs_to: Option<u64>,
}

struct Rig {
    hosts: Vec<Option<Host>>,
    logs: Vec<Vec<log::Entry>>,
    fsync: FsyncPolicy,
    /// Syncs end at once.
    syncs: bool,
    /// Frames that the next records' frames are to lose: every one of this number.
    loses_every: Option<u64>,
    frames: u64,
    frame_bytes_max: usize,
    nonce: u64,
}

fn options(me: u16, fsync: FsyncPolicy, nonce: u64) -> GeoOptions {
    let all: Vec<NodeId> = (1..=SITES).map(NodeId).collect();
    let protocol = pcsi::SiteOptions {
        me: NodeId(me),
        sites: Arc::new(SiteMap::with_system(vec![all]).expect("a partition")),
        propagation_ticks: 1,
        vote_ticks_max: 20,
        open_ticks_max: 1_000,
        open_max: 10,
        window: 8,
        retained_max: 100,
        retained_bytes_max: 64 << 20,
        silent_ticks_max: 8,
        session_horizon: 1_000,
        sites_to_write_min: 1,
        regions_to_write_min: 1,
        sites_ticks_max: 50,
    };
    let names = (1..=SITES).map(|site| (NodeId(site), format!("s{site}"))).collect();
    GeoOptions { protocol, names, fsync, tick_ms: 10, nonce }
}

impl Rig {
    fn new(fsync: FsyncPolicy) -> Rig {
        let none = || (0..SITES).map(|_| None).collect();
        let logs = (0..SITES).map(|_| Vec::new()).collect();
        let (syncs, loses_every) = (true, None);
        Rig { hosts: none(), logs, fsync, syncs, loses_every, frames: 0, frame_bytes_max: 0, nonce: 70 }
    }

    fn place(site: u16) -> usize {
        usize::from(site) - 1
    }

    fn start(&mut self, site: u16) {
        self.nonce += 1;
        let log = self.logs[Rig::place(site)].clone();
        let image = log::GroupImage { entries: log.clone(), ..log::GroupImage::default() };
        let images = BTreeMap::from([(GROUP, image)]);
        let recovered = GeoSite::recover(options(site, self.fsync, self.nonce), images);
        let site_machine = recovered.unwrap_or_else(|text| panic!("{text}"));
        let host = Host {
            site: site_machine,
            effects: SiteEffects::default(),
            log,
            written: 0,
            answers: Vec::new(),
            syncs_to: None,
        };
        self.hosts[Rig::place(site)] = Some(host);
        for other in (1..=SITES).filter(|&other| other != site) {
            if self.hosts[Rig::place(other)].is_some() {
                self.react(site, HostEvent::Connected(NodeId(other)));
                self.react(other, HostEvent::Connected(NodeId(site)));
            }
        }
    }

    fn founded(fsync: FsyncPolicy) -> Rig {
        let mut rig = Rig::new(fsync);
        (1..=SITES).for_each(|site| rig.start(site));
        rig.tick(40);
        assert!((1..=SITES).all(|site| rig.site(site).is_open()), "they found the system");
        rig
    }

    fn kill(&mut self, site: u16) {
        self.hosts[Rig::place(site)] = None;
        for host in self.hosts.iter_mut().flatten() {
            host.site.react(HostEvent::Disconnected(NodeId(site)), 0, &mut host.effects);
        }
    }

    fn host(&mut self, site: u16) -> &mut Host {
        self.hosts[Rig::place(site)].as_mut().expect("it runs")
    }

    fn site(&mut self, site: u16) -> &mut GeoSite {
        &mut self.host(site).site
    }

    fn react(&mut self, site: u16, event: HostEvent) {
        let host = self.host(site);
        host.site.react(event, 0, &mut host.effects);
        self.perform(site);
    }

    /// Does what a site wants, and what follows from it everywhere.
    fn perform(&mut self, first: u16) {
        let mut pending = vec![first];
        while let Some(site) = pending.pop() {
            let syncs = self.syncs;
            let Some(host) = &mut self.hosts[Rig::place(site)] else { continue };
            let mut frames = Vec::new();
            loop {
                let Host { site, effects, log, written, syncs_to, .. } = host;
                if !effects.host.kept.is_empty() {
                    log.extend(effects.host.kept.drain(..).flat_map(|kept| kept.entries));
                    *written += 1;
                    site.react(HostEvent::Written(*written), 0, effects);
                    continue;
                }
                frames.append(&mut effects.host.frames);
                if mem::take(&mut effects.host.sync) {
                    *syncs_to = Some(*written);
                }
                match syncs_to.take_if(|_| syncs) {
                    Some(record) => site.react(HostEvent::Synced(record), 0, effects),
                    None => break,
                }
            }
            host.answers.append(&mut host.effects.answers);
            self.logs[Rig::place(site)].clone_from(&host.log);
            for (to, frame) in frames {
                self.frames += 1;
                self.frame_bytes_max = self.frame_bytes_max.max(frame.len());
                if self.loses_every.is_some_and(|every| self.frames.is_multiple_of(every)) {
                    continue;
                }
                if let Some(other) = &mut self.hosts[Rig::place(to.0)] {
                    let event = HostEvent::Frame { from: NodeId(site), bytes: frame.into() };
                    other.site.react(event, 0, &mut other.effects);
                    assert!(other.effects.host.severed.is_empty(), "{:?}", other.effects.host.severed);
                    pending.push(to.0);
                }
            }
        }
    }

    fn tick(&mut self, ticks: u64) {
        for _ in 0..ticks {
            for site in 1..=SITES {
                if self.hosts[Rig::place(site)].is_some() {
                    self.react(site, HostEvent::Tick { wall_ms: 0 });
                }
            }
        }
    }

    fn key(&self, resolver: u16) -> Key {
        let sites = options(1, self.fsync, 0).protocol.sites;
        let mut keys = (0..1_000).map(|key| Key::new(format!("k{key}").as_bytes()));
        keys.find(|key| sites.resolver_of(key) == NodeId(resolver)).expect("each site resolves keys")
    }

    /// A client's transaction writes a key. Nobody waits for the end.
    fn write(&mut self, site: u16, number: u64, key: &Key, value: &[u8]) -> RequestId {
        let last = self.site(site).last_commit();
        let session = certify::session_opened(last, number as u16);
        let id = RequestId { session, sequence: 1, attempt: 0 };
        let host = self.host(site);
        host.site.begin(id, false, &mut host.effects);
        let records = BTreeMap::from([(key.clone(), Some(Entry::new(value.to_vec())))]);
        let writes = WriteSet { clears: false, records };
        host.site.commit(id, ReadSet::default(), writes, &mut host.effects);
        self.perform(site);
        id
    }

    fn answer(&mut self, site: u16, id: RequestId) -> Option<Answer> {
        let answers = &self.host(site).answers;
        answers.iter().rev().find(|(to, _)| *to == id).map(|(_, answer)| answer.clone())
    }

    fn fence(&mut self, site: u16, target: u16, is_forced: bool) -> Result<(), String> {
        let host = self.host(site);
        let answer = host.site.fence(NodeId(target), is_forced, &mut host.effects);
        self.perform(site);
        answer
    }

    fn bytes_at(&mut self, site: u16, key: &Key) -> usize {
        let entry = self.site(site).newest(key).entry;
        entry.and_then(|entry| entry.value.as_string()).map_or(0, |text| text.as_ref().len())
    }
}

#[test]
fn sites_found_the_system_once_all_are_there() {
    let mut rig = Rig::new(FsyncPolicy::Always);
    rig.start(1);
    rig.start(2);
    rig.tick(100);
    assert!(!rig.site(1).is_open() && rig.site(1).status().trouble.is_some());
    rig.start(3);
    rig.tick(40);
    for site in 1..=SITES {
        assert!(rig.site(site).is_open());
        assert_eq!(rig.site(site).status().incarnation, Some(Incarnation(0)));
    }
    // A process that goes on with its log asks nobody.
    (1..=SITES).for_each(|site| rig.kill(site));
    rig.start(2);
    rig.tick(100);
    // It may have been fenced while it was down.
    assert!(!rig.site(2).is_open() && rig.site(2).waits_to_hear());
    assert_eq!(rig.site(2).status().trouble, Some(WAITS_TO_HEAR));
    assert_eq!(rig.fence(2, 1, false), Err(WAITS_TO_HEAR.to_owned()));
    rig.start(3);
    rig.tick(2);
    assert!(rig.site(2).is_open() && rig.site(3).is_open());
    // The last survivor has an operator's word.
    rig.kill(2);
    rig.kill(3);
    rig.start(2);
    assert_eq!(rig.fence(2, 1, true), Ok(()));
    assert!(rig.site(2).is_open());
}

#[test]
fn an_operator_fences_no_site_that_is_heard_and_no_majority() {
    let mut rig = Rig::founded(FsyncPolicy::Always);
    let linked = rig.fence(3, 1, false);
    assert!(matches!(&linked, Err(text) if text.contains("has a link to 's1'")), "{linked:?}");
    rig.kill(1);
    rig.kill(2);
    assert_eq!(rig.fence(3, 1, false), Ok(()));
    let again = rig.fence(3, 1, false);
    assert!(matches!(&again, Err(text) if text.contains("under way")), "{again:?}");
    let too_few = rig.fence(3, 2, false);
    assert!(matches!(&too_few, Err(text) if text.contains("1 of 3 sites remain")), "{too_few:?}");
    let status = rig.site(3).status();
    assert_eq!(status.fence.awaited.into_iter().collect::<Vec<_>>(), [NodeId(2)]);
    assert!(status.peers.iter().all(|peer| !peer.is_fenced && peer.is_fencing == (peer.site == NodeId(1))));
    assert_eq!(rig.fence(3, 2, true), Ok(()));
    assert!(rig.site(3).status().peers.iter().all(|peer| peer.is_fenced && !peer.is_fencing));
}

/// Clients are told what is written. The disk does not end a sync.
#[test]
fn a_site_whose_sync_hangs_begins_nothing_under_everysec() {
    let mut rig = Rig::founded(FsyncPolicy::Everysec);
    let key = rig.key(1);
    rig.syncs = false;
    rig.write(1, 1, &key, b"1");
    let hangs_ticks = SYNC_HANGS_MS / 10;
    rig.tick(hangs_ticks / 2);
    let id = rig.write(1, 2, &key, b"2");
    assert_eq!(rig.answer(1, id), Some(Answer::Committed));
    rig.tick(hangs_ticks);
    let id = RequestId { session: SessionId(9), sequence: 1, attempt: 0 };
    let host = rig.host(1);
    host.site.begin(id, false, &mut host.effects);
    rig.perform(1);
    assert_eq!(rig.answer(1, id), Some(Answer::Unavailable));
    rig.syncs = true;
    rig.perform(1);
    let host = rig.host(1);
    host.site.begin(id, false, &mut host.effects);
    rig.perform(1);
    assert_eq!(rig.answer(1, id), Some(Answer::Begun));
}

/// Two of the sites were founded in different clusters.
#[test]
fn a_new_site_that_hears_of_two_foundings_ends() {
    let mut site = GeoSite::recover(options(1, FsyncPolicy::Always, 9), BTreeMap::new()).expect("no log");
    let mut effects = SiteEffects::default();
    for (from, directory) in [(2, 5), (3, 6)] {
        assert!(effects.ended.is_none());
        let founders = BTreeMap::from([(NodeId(from), directory)]);
        let hello = Frame::Hello(Hello { directory, has_log: true, founders });
        let frame = HostEvent::Frame { from: NodeId(from), bytes: hello.encode().into() };
        site.stage = match site.stage {
            Stage::Running(_) => Stage::Arriving(BTreeMap::new()),
            arriving => arriving,
        };
        if from == 3
            && let Stage::Arriving(heard) = &mut site.stage
        {
            let founders = BTreeMap::from([(NodeId(2), 5)]);
            heard.insert(NodeId(2), Hello { directory: 5, has_log: true, founders });
        }
        site.react(frame, 0, &mut effects);
    }
    assert_eq!(effects.ended.as_deref(), Some(TWO_FOUNDINGS));
}

#[test]
fn a_site_whose_founding_was_cut_short_is_founded_and_one_that_lost_its_directory_joins() {
    let mut rig = Rig::founded(FsyncPolicy::Always);
    let key = rig.key(1);
    let id = rig.write(1, 1, &key, b"1");
    rig.tick(10);
    assert_eq!(rig.answer(1, id), Some(Answer::Committed));
    // The log has the directory alone: the process died before it heard enough.
    rig.kill(3);
    rig.logs[2].truncate(1);
    rig.start(3);
    rig.tick(40);
    assert_eq!(rig.site(3).status().incarnation, Some(Incarnation(0)));
    assert!(rig.site(3).is_open());
    // The directory is lost: another one is drawn, and nobody was founded with that.
    rig.kill(2);
    rig.logs[1].clear();
    rig.start(2);
    rig.tick(400);
    assert_eq!(rig.site(2).status().incarnation, Some(Incarnation(1)));
    assert!(rig.site(2).is_open(), "{:?}", rig.site(2).status());
    assert_eq!(rig.bytes_at(2, &key), 1);
}

#[test]
fn letters_wait_for_the_disk_under_every_policy_and_answers_as_the_policy_says() {
    for fsync in [FsyncPolicy::Always, FsyncPolicy::Everysec, FsyncPolicy::No] {
        let mut rig = Rig::founded(fsync);
        rig.tick(20);
        let key = rig.key(1);
        rig.syncs = false;
        let frames = rig.frames;
        let id = rig.write(1, 1, &key, b"1");
        rig.react(1, HostEvent::Tick { wall_ms: 0 });
        assert_eq!(rig.frames, frames, "{fsync:?}: others hear of what may be lost");
        let told = (fsync != FsyncPolicy::Always).then_some(Answer::Committed);
        assert_eq!(rig.answer(1, id).filter(|answer| *answer != Answer::Begun), told, "{fsync:?}");
        rig.syncs = true;
        rig.perform(1);
        rig.tick(3);
        assert_eq!(rig.answer(1, id), Some(Answer::Committed));
        assert_eq!([1, 2, 3].map(|site| rig.bytes_at(site, &key)), [1, 1, 1], "{fsync:?}");
    }
}

/// The runtime has the site take several calls before it writes what they have recorded.
#[test]
fn calls_that_share_a_record_of_the_journal_are_answered_when_it_is_durable() {
    let mut rig = Rig::founded(FsyncPolicy::Always);
    rig.tick(20);
    let key = rig.key(1);
    let mut ids = Vec::new();
    for number in 1..=3 {
        let session = certify::session_opened(rig.site(1).last_commit(), number);
        let id = RequestId { session, sequence: 1, attempt: 0 };
        let records = BTreeMap::from([(key.clone(), Some(Entry::new("1")))]);
        let Host { site, effects, .. } = rig.host(1);
        site.begin(id, false, effects);
        site.commit(id, ReadSet::default(), WriteSet { clears: false, records }, effects);
        assert_eq!(effects.host.kept.len(), 1);
        ids.push(id);
    }
    let Host { site, effects, .. } = rig.host(1);
    assert!(site.give_token(request(900), effects).is_some());
    rig.perform(1);
    for id in ids.into_iter().chain([request(900)]) {
        assert_eq!(rig.answer(1, id), Some(Answer::Committed), "no tick was needed");
    }
}

impl Rig {
    fn token(&mut self, site: u16, id: RequestId) -> Vec<u8> {
        let host = self.host(site);
        let token = host.site.give_token(id, &mut host.effects).expect("the site is open");
        self.perform(site);
        token
    }

    /// A client brings a token. Returns what it hears by then.
    fn follow(&mut self, site: u16, id: RequestId, token: &[u8]) -> Option<Answer> {
        let host = self.host(site);
        host.site.follow_token(id, token, &mut host.effects);
        self.perform(site);
        self.answer(site, id)
    }
}

fn request(number: u64) -> RequestId {
    RequestId { session: SessionId(number), sequence: 1, attempt: 0 }
}

fn refused_with(answer: Option<Answer>, text: &str) {
    let is_it = matches!(&answer, Some(Answer::Refused(why)) if why.contains(text));
    assert!(is_it, "{text}: {answer:?}");
}

#[test]
fn a_token_leaves_when_it_is_durable_under_every_policy_and_other_sites_wait_for_what_it_counts() {
    for fsync in [FsyncPolicy::Always, FsyncPolicy::Everysec, FsyncPolicy::No] {
        let mut rig = Rig::founded(fsync);
        rig.tick(20);
        let key = rig.key(1);
        rig.syncs = false;
        rig.write(1, 1, &key, b"1");
        let token = rig.token(1, request(900));
        assert_eq!(rig.answer(1, request(900)), None, "{fsync:?}: a loss of power could take it back");
        assert_eq!(rig.follow(2, request(901), &token), None);
        rig.syncs = true;
        rig.perform(1);
        rig.perform(2);
        assert_eq!(rig.answer(1, request(900)), Some(Answer::Committed), "{fsync:?}");
        rig.tick(3);
        assert_eq!(rig.answer(2, request(901)), Some(Answer::Committed), "{fsync:?}");
        assert_eq!(rig.bytes_at(2, &key), 1);
    }
}

#[test]
fn a_site_takes_only_tokens_of_its_own_system_also_when_it_has_lost_its_disk() {
    let mut rig = Rig::founded(FsyncPolicy::Always);
    let key = rig.key(1);
    rig.write(1, 1, &key, b"1");
    rig.tick(10);
    let token = rig.token(1, request(900));
    let mut later = Rig::new(FsyncPolicy::Always);
    later.nonce = 170;
    (1..=SITES).for_each(|site| later.start(site));
    later.tick(40);
    refused_with(later.follow(2, request(901), &token), "another cluster");
    for (bytes, text) in [(&token[..token.len() - 1], "means nothing"), (&[], "means nothing")] {
        refused_with(rig.follow(2, request(902), bytes), text);
    }
    rig.kill(2);
    rig.logs[1].clear();
    rig.start(2);
    rig.tick(400);
    assert!(rig.site(2).is_open());
    let token = rig.token(1, request(903));
    for _ in 0..2 {
        assert_eq!(rig.follow(2, request(904), &token), Some(Answer::Committed));
        // Its log has the founders, too.
        rig.kill(2);
        rig.start(2);
        rig.tick(40);
    }
    let own = rig.token(2, request(905));
    assert_eq!(rig.follow(3, request(906), &own), Some(Answer::Committed));
}

#[test]
fn a_client_is_told_which_sites_keep_its_token_waiting() {
    let mut rig = Rig::founded(FsyncPolicy::Always);
    let key = rig.key(1);
    rig.tick(20);
    rig.kill(2);
    rig.write(1, 1, &key, b"1");
    let token = rig.token(1, request(900));
    rig.kill(1);
    rig.start(2);
    rig.tick(20);
    assert_eq!(rig.follow(2, request(901), &token), None);
    rig.tick(60);
    refused_with(rig.answer(2, request(901)), "counts of s1: nothing was changed");
    assert!(rig.fence(3, 1, false).is_ok());
    rig.tick(20);
    refused_with(rig.follow(3, request(902), &token), "'s1' was fenced after the token was given");
}

#[test]
fn a_transaction_that_is_held_open_begins_when_what_it_sees_is_durable() {
    let mut rig = Rig::founded(FsyncPolicy::Always);
    let key = rig.key(1);
    rig.syncs = false;
    rig.write(1, 1, &key, b"1");
    for (number, is_held_open) in [(2, false), (3, true)] {
        let id = RequestId { session: SessionId(number), sequence: 1, attempt: 0 };
        let host = rig.host(1);
        host.site.begin(id, is_held_open, &mut host.effects);
        rig.perform(1);
        assert_eq!(rig.answer(1, id).is_some(), !is_held_open);
        if !is_held_open {
            // The end of a transaction that only reads tells what it has read.
            let host = rig.host(1);
            host.site.commit(id, ReadSet::default(), WriteSet::default(), &mut host.effects);
            rig.perform(1);
            assert_eq!(rig.answer(1, id), Some(Answer::Begun));
        }
    }
    rig.syncs = true;
    rig.perform(1);
    let answers: Vec<Option<Answer>> = [2, 3]
        .map(|number| rig.answer(1, RequestId { session: SessionId(number), sequence: 1, attempt: 0 }))
        .into();
    assert_eq!(answers, [Some(Answer::Committed), Some(Answer::Begun)]);
}

#[test]
fn a_long_letter_goes_in_parts_and_a_lost_part_costs_only_time() {
    let mut rig = Rig::founded(FsyncPolicy::Always);
    let key = rig.key(1);
    rig.loses_every = Some(7);
    let large = vec![b'x'; 5 << 20];
    let id = rig.write(1, 1, &key, &large);
    rig.tick(60);
    assert_eq!(rig.answer(1, id), Some(Answer::Committed));
    rig.loses_every = None;
    rig.tick(30);
    for site in 1..=SITES {
        assert_eq!(rig.bytes_at(site, &key), large.len(), "at {site}");
    }
    assert!(rig.frame_bytes_max <= PART_BYTES_MAX + 64, "{}", rig.frame_bytes_max);
    let refused = rig.write(1, 2, &key, &vec![b'x'; WRITES_BYTES_MAX + 1]);
    let answer = rig.answer(1, refused);
    assert!(matches!(&answer, Some(Answer::Refused(text)) if text.contains("16 MiB")), "{answer:?}");
}

#[test]
fn a_site_is_silent_while_its_journal_takes_no_record() {
    let mut rig = Rig::founded(FsyncPolicy::Always);
    let key = rig.key(1);
    let id = RequestId { session: certify::session_opened(Position::NONE, 1), sequence: 1, attempt: 0 };
    let host = rig.host(1);
    host.site.begin(id, false, &mut host.effects);
    let writes = WriteSet { clears: false, records: BTreeMap::from([(key.clone(), Some(Entry::new("1")))]) };
    host.site.commit(id, ReadSet::default(), writes, &mut host.effects);
    let kept = mem::take(&mut host.effects.host.kept);
    host.effects.host.kept.clone_from(&kept);
    host.site.react(HostEvent::JournalUnwritten("full".to_owned()), 0, &mut host.effects);
    assert!(host.effects.host.kept.is_empty() && host.site.silence().is_some());
    let other = RequestId { session: SessionId(2), sequence: 1, attempt: 0 };
    host.site.begin(other, false, &mut host.effects);
    assert_eq!(host.effects.answers.last(), Some(&(other, Answer::Unavailable)));
    (0..RETRY_TICKS).for_each(|_| {
        host.site.react(HostEvent::Tick { wall_ms: 0 }, 0, &mut host.effects);
    });
    assert!(mem::take(&mut host.effects.host.make_room));
    host.site.react(HostEvent::RoomMade, 0, &mut host.effects);
    assert_eq!(host.effects.host.kept, kept, "the same is written");
    rig.perform(1);
    rig.tick(5);
    assert_eq!(rig.answer(1, id), Some(Answer::Committed));
    assert_eq!([1, 2, 3].map(|site| rig.bytes_at(site, &key)), [1, 1, 1]);
}

/// The fenced site's process is started again with its directory.
#[test]
fn a_site_that_knows_of_its_fence_does_not_begin_again() {
    let mut rig = Rig::founded(FsyncPolicy::Everysec);
    let host = rig.hosts[2].take();
    rig.kill(3);
    assert_eq!(rig.fence(1, 3, false), Ok(()));
    rig.tick(40);
    rig.hosts[2] = host;
    rig.react(1, HostEvent::Connected(NodeId(3)));
    rig.tick(40);
    assert!(rig.site(3).has_ended(), "{:?}", rig.site(3).status());
    let image = log::GroupImage { entries: rig.logs[2].clone(), ..log::GroupImage::default() };
    let again = GeoSite::recover(options(3, rig.fsync, 1), BTreeMap::from([(GROUP, image)]));
    assert_eq!(again.map(|_| ()), Err(FENCED.to_owned()));
}

#[test]
fn a_key_that_is_held_conflicts_with_its_writers() {
    let mut rig = Rig::founded(FsyncPolicy::Always);
    let (held, own) = (rig.key(2), rig.key(1));
    let id = RequestId { session: certify::session_opened(Position::NONE, 1), sequence: 1, attempt: 0 };
    let host = rig.host(1);
    host.site.begin(id, false, &mut host.effects);
    rig.write(3, 1, &held, b"1");
    rig.tick(5);
    let reads = ReadSet { held: BTreeMap::from([(held.clone(), None)]), ..ReadSet::default() };
    let writes = WriteSet { clears: false, records: BTreeMap::from([(own, Some(Entry::new("1")))]) };
    let host = rig.host(1);
    host.site.commit(id, reads, writes, &mut host.effects);
    rig.perform(1);
    rig.tick(5);
    assert_eq!(rig.answer(1, id), Some(Answer::Conflict(Conflict::Key(held))));
}

#[test]
fn frames_read_back_and_nothing_else_does() {
    let founders = BTreeMap::from([(NodeId(1), 7), (NodeId(2), 1 << 50)]);
    for frame in [
        Frame::Hello(Hello { directory: u64::MAX, has_log: true, founders }),
        Frame::Letter(Bytes::from_static(b"letter")),
        Frame::Part { number: 3, offset: 1 << 30, bytes: Bytes::from_static(b"part") },
    ] {
        let bytes = frame.encode();
        assert_eq!(Frame::decode(&bytes), Some(frame));
        (0..bytes.len()).for_each(|end| assert_eq!(Frame::decode(&bytes[..end]), None));
        assert_eq!(Frame::decode(&[&bytes[..], &[0]].concat()), None);
    }
}
