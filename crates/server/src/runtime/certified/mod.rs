//! A node of a cluster whose transactions are certified: a site for real, with its journal and its peers. The
//! site is a [`Site`] of a hierarchy or a [`GeoSite`] that commits alone; [`Served`] is the one place that
//! knows both, and [`status`] tells of them.
//!
//! [`Runtime`](super::Runtime) is the front for clients in both families of protocols: it has the ports, and
//! where it has a [`Certified`], requests go there instead of into the order. Each request becomes a
//! certified transaction ([`gateway`]). The thread that submits it runs it as far as it goes. What a message
//! of another node, a sync or the clock makes possible, a worker thread goes on with: a long script must not
//! hold up the threads on which the site's leaders depend.
//!
//! # What stays of the ordered node
//!
//! The process has an ordered node that stands alone beside the site. Its log gives each process its boot
//! id, which names the sessions of clients, and it holds no data. The site's own files are in the directory
//! `site` below.
//!
//! # Keys that have expired
//!
//! Whoever reads a key that has expired finds none. At each tick the node that leads a leaf has a transaction
//! of its own delete such keys ([`Expirer`]), and so does the site that resolves a key: so a key is gone from
//! the counts, too, soon after it has expired by that node's clock.
//!
//! # Locks
//!
//! One lock holds the site, its journal, and what clients have under way. Procedures run without it: a turn
//! ([`Core`]) grants what running requests wish for, and gives back the requests whose answers have come.
//!
//! | thread | does |
//! |---|---|
//! | site-sync | makes the journal durable |
//! | site-files | prepares the journal's next segment, removes old ones |
//! | site-tick | the site's clock; ends pauses, and gives up what takes too long |
//! | site-run-N | runs clients' procedures, as the threads of ports do |

mod gateway;
mod identity;
mod seal;
mod served;
mod sessions;
mod site_calls;
mod status;

use super::core::{FileWork, Hands};
use super::host::RealHost;
use super::options::{HaltHook, StartError};
use super::port::{Port, PortShared, Ports, Replies};
use super::start::log_boot_id;
use super::status::{MemberStatus, RuntimeStatus};
use crate::clock::SteadyClock;
use crate::cluster::{ClusterNode, Protocol, Sites, Validators};
use crate::disk::RealDisk;
use crate::peers::{FRAME_BYTES_MAX, PeerEvents, PeerOptions, Peers};
use bytes::Bytes;
use certify::hierarchy::{Hierarchy, HierarchyOptions, Tree};
use certify::pcsi::{self, Demand, RemoteAccess, SiteMap, Written};
use certify::{
    Answer as SiteAnswer, CertifiedCall, KeyCounts, LocalSnapshot, Look, SESSION_HORIZON, Threads, Wish,
};
use execute::ReadOutcome;
use execute::snapshot::panic_text;
pub use gateway::Patience;
use gateway::{Asked, Gateway, Manner, Ready, Words};
pub use identity::SiteIdentity;
use log::{GroupImages, Journal, Preparer, SyncTicket};
use node::FsyncPolicy;
use node::geo::{GeoOptions, GeoSite};
use node::host::{CountedJournal, HostEvent, Machine, drive};
use node::site::{BASE_BYTES_MAX, Site, SiteCounts, SiteEffects, SiteOptions};
use parking_lot::{Condvar, Mutex};
use seal::TokenSeal;
use served::{Place, Served};
use sessions::Sessions;
use site_calls::SiteCommands;
pub use status::{CertifiedStatus, Described, GeoPart, GroupStatus, Part, Told, TreePart};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use txn::{
    Args, BootId, Entry, Key, NodeId, PartitionId, PartitionRoute, Position, Procedure, Request, RequestId,
    SessionId, Slots, Space,
};

/// The protocol that sites of this build speak with each other. Those of ordered nodes count from 1.
pub const PROTOCOL: u16 = 0x101;
/// Where the site's files are, below the node's directory.
const DIRECTORY: &str = "site";
/// While the updates that a site keeps for others have more bytes, the site commits nothing.
const RETAINED_BYTES_MAX: usize = 512 << 20;
/// A site that catches up with the others tells so again after this time.
const CATCH_UP_TELL: Duration = Duration::from_secs(5);
/// A group's log begins anew when its decided entries have more bytes.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// Each piece takes a round trip, and holds up what else its link carries.
const BASE_PIECE_BYTES_MAX: usize = 1 << 20;
const _: () = assert!(2 * BASE_PIECE_BYTES_MAX <= FRAME_BYTES_MAX, "a frame carries a piece and its head");

/// Transactions that are open at a site at a time, at most: each has a copy of the site's views.
const OPEN_SITE_TRANSACTIONS_MAX: usize = 1 << 14;
/// So many updates a site sends to another one before it hears that they have come.
const WINDOW: u64 = 1_024;
/// A site of which others hear nothing for so long is silent: they ask each other for its updates.
const SILENT_MS: u64 = 2_000;

/// One transaction removes so many keys that have expired, at most.
const EXPIRED_KEYS_MAX: usize = 256;

/// How a node takes part in a cluster whose transactions are certified.
pub struct CertifiedOptions {
    /// What its directory is to stay.
    pub identity: SiteIdentity,
    /// The node.
    pub me: NodeId,
    /// The validators, or the sites.
    pub protocol: Protocol,
    /// The nodes, this one included.
    pub nodes: BTreeMap<NodeId, ClusterNode>,
    /// How it reaches the others.
    pub peers: PeerOptions,
    /// How long a tick is.
    pub tick_ms: u64,
    /// How long clients wait.
    pub patience: Patience,
    /// Removes the keys that are its arguments if they have expired.
    pub expire: Arc<dyn Procedure>,
    /// Deletes records of the store's own that have expired, by their names.
    pub expire_system: Arc<dyn Procedure>,
    /// Called if the site has ended, with a text for the operator: end the process.
    pub on_end: HaltHook,
}

/// A running site. See the module's head.
pub(super) struct Certified {
    core: Mutex<Core>,
    described: Arc<Described>,
    family: Family,
    tick_ms: u64,
    ports: Arc<Ports>,
    peers: Arc<OnceLock<Peers>>,
    clock: SteadyClock,
    alarm: Mutex<Alarm>,
    /// Ticks of the site since the start.
    ticks: AtomicU64,
    alarm_changed: Condvar,
    on_end: HaltHook,
    /// For the worker threads, until the shutdown.
    jobs: Mutex<Option<Sender<Ready>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Whether the site is silent, for those who look often.
    is_silent: Arc<AtomicBool>,
}

/// What a node's protocol is, beside its site.
#[derive(Clone, Debug)]
enum Family {
    Hierarchy(Arc<Validators>),
    Geo,
}

impl Family {
    /// The tree of validators. A site that commits alone is its transactions' only validator.
    fn tree(&self) -> Tree {
        match self {
            Family::Hierarchy(validators) => validators.tree.clone(),
            Family::Geo => Tree::leaf(),
        }
    }
}

/// Has keys removed that have expired. The node that leads a leaf does that for the leaf, and a site that
/// commits alone for the keys that it resolves: the requests are the server's own, one at a time.
struct Expirer {
    /// Removes keys of users.
    procedure: Arc<dyn Procedure>,
    /// Removes records of the store's own.
    system_procedure: Arc<dyn Procedure>,
    /// The leaf that is looked at next.
    next_leaf: u16,
    /// The number of the last request.
    sequence: u64,
}

impl Expirer {
    /// The request that removes what has expired at one of the leaves.
    fn next(&mut self, site: &Served, me: NodeId, leaves: u16, now_ms: u64) -> Option<Arc<Request>> {
        for _ in 0..leaves {
            let leaf = PartitionId(self.next_leaf);
            self.next_leaf = (self.next_leaf + 1) % leaves;
            let keys = site.expired(leaf, me, now_ms, EXPIRED_KEYS_MAX);
            if keys.is_empty() {
                continue;
            }
            self.sequence += 1;
            let space = keys[0].space();
            let procedure = match space {
                Space::User => &self.procedure,
                Space::System => &self.system_procedure,
            };
            let args: Args = keys.iter().filter(|key| key.space() == space).map(Key::to_blob).collect();
            return Some(Arc::new(Request {
                id: RequestId { session: SessionId::INTERNAL, sequence: self.sequence, attempt: 0 },
                slots_version: 0,
                footprint: procedure.footprint(&args),
                procedure: procedure.clone(),
                args,
                route: PartitionRoute::one_of(leaf, &Slots::even(leaves)),
                elsewhere: false,
            }));
        }
        None
    }
}

/// When the tick thread looks next.
struct Alarm {
    due_ms: u64,
    is_stopping: bool,
}

/// What the lock holds.
struct Core {
    site: Served,
    effects: SiteEffects,
    records: CountedJournal<RealDisk>,
    hands: Option<Hands>,
    /// Frames by receiver, for their memory.
    outgoing: BTreeMap<NodeId, Vec<u8>>,
    gateway: Gateway,
    expirer: Expirer,
    /// Dropped when the site has caught up with the others: the process waits for that when it starts.
    catches_up: Option<Sender<()>>,
    /// See [`Certified`].
    is_silent: Arc<AtomicBool>,
}

/// The site, for what the gateway asks of it.
struct Asks<'a> {
    site: &'a mut Served,
    effects: &'a mut SiteEffects,
}

impl Asked for Asks<'_> {
    fn position(&self, home: PartitionId) -> Position {
        self.site.position(home)
    }
    fn begin(&mut self, id: RequestId, how: Manner) {
        self.site.begin(id, how, self.effects);
    }
    fn ask(&mut self, id: RequestId, wish: Wish) {
        self.site.ask(id, wish, self.effects);
    }
    fn forget(&mut self, id: RequestId) {
        self.site.forget(id);
    }
    fn give_token(&mut self, id: RequestId) -> Option<Vec<u8>> {
        self.site.geo().and_then(|geo| geo.give_token(id, self.effects))
    }
    fn follow_token(&mut self, id: RequestId, token: &[u8]) {
        if let Some(geo) = self.site.geo() {
            geo.follow_token(id, token, self.effects);
        }
    }
    fn take_first_read(&mut self, session: SessionId) -> Option<Key> {
        self.site.geo().and_then(|geo| geo.take_first_read(session))
    }
    fn read_first(&mut self, session: SessionId, key: Key) {
        if let Some(geo) = self.site.geo() {
            geo.read_first(session, key);
        }
    }
    fn wait_for_sites(&mut self, id: RequestId, wanted: (Written, Demand), timeout_ms: u64) {
        if let Some(geo) = self.site.geo() {
            geo.wait_for_sites(id, wanted, timeout_ms, self.effects);
        }
    }
    fn written(&self, id: RequestId) -> Option<Written> {
        match &*self.site {
            Served::Hierarchy(..) => None,
            Served::Geo(geo, _) => geo.written(id),
        }
    }
}

/// What a turn has made possible.
#[derive(Default)]
struct Turned {
    replies: Replies,
    ready: Vec<Ready>,
    next_pause_ms: Option<u64>,
    notices: Vec<String>,
    ended: Option<String>,
}

impl Core {
    /// Lets clients' requests go on, and then does what the site wants.
    fn turn(
        &mut self,
        peers: &OnceLock<Peers>,
        now_ms: u64,
        act: impl FnOnce(&mut Gateway, &mut Asks<'_>),
    ) -> Turned {
        let Core { site, effects, gateway, .. } = self;
        act(gateway, &mut Asks { site, effects });
        self.settle(peers, now_ms)
    }

    /// Something happens to the site.
    fn react(
        &mut self,
        peers: &OnceLock<Peers>,
        now_ms: u64,
        events: impl Iterator<Item = HostEvent>,
    ) -> Turned {
        for event in events {
            self.site.react(event, now_ms, &mut self.effects);
            self.drive(peers, now_ms);
        }
        self.settle(peers, now_ms)
    }

    fn drive(&mut self, peers: &OnceLock<Peers>, now_ms: u64) {
        let Core { site, effects, records, hands, outgoing, .. } = self;
        let mut no_checkpoints = false;
        let checkpoint_in_progress = &mut no_checkpoints;
        let mut host = RealHost { records, hands: hands.as_ref(), outgoing, peers, checkpoint_in_progress };
        drive(site, effects, now_ms, &mut host);
    }

    /// Does what the site wants, and hands its answers to the clients' requests.
    fn settle(&mut self, peers: &OnceLock<Peers>, now_ms: u64) -> Turned {
        self.drive(peers, now_ms);
        self.catches_up.take_if(|_| self.site.has_caught_up());
        self.is_silent.store(self.site.silence().is_some(), Ordering::Relaxed);
        for (id, answer) in self.effects.answers.drain(..) {
            self.gateway.answered(id, answer);
        }
        match peers.get() {
            Some(peers) => {
                for (&to, out) in self.outgoing.iter_mut().filter(|(_, out)| !out.is_empty()) {
                    peers.send(to, PROTOCOL, out);
                    out.clear();
                }
            }
            None => self.outgoing.clear(),
        }
        let mut replies = Replies::default();
        for (id, outcome) in self.gateway.answers.drain(..) {
            replies.push(id, outcome);
        }
        Turned {
            replies,
            ready: std::mem::take(&mut self.gateway.ready),
            next_pause_ms: self.gateway.next_pause_ms(),
            notices: std::mem::take(&mut self.effects.notices),
            ended: self.effects.ended.take(),
        }
    }
}

/// What is newest at this site, key by key: for the node itself, which looks at the users there.
struct Newest(Arc<Certified>);

impl LocalSnapshot for Newest {
    fn look(&self, look: &Look) -> SiteAnswer {
        match look {
            Look::Key(key) => SiteAnswer::Value(self.0.core.lock().site.newest(key)),
            Look::Scan(_) | Look::Count => {
                SiteAnswer::Refused("ERR a node looks at single records only".into())
            }
        }
    }
}

impl Certified {
    /// Recovers the site of a disk, and starts its threads and its connections to the others. Returns when
    /// the site has all that the validators had agreed on at the start: until then its replicas may be old.
    pub fn start(
        disk: Arc<RealDisk>,
        segment_bytes: u64,
        fsync: FsyncPolicy,
        boot: BootId,
        ports: Arc<Ports>,
        workers: usize,
        options: CertifiedOptions,
    ) -> Result<Arc<Certified>, StartError> {
        let CertifiedOptions {
            identity,
            me,
            protocol,
            nodes,
            peers,
            tick_ms,
            patience,
            expire,
            expire_system,
            on_end,
        } = options;
        identity.claim(disk.path())?;
        let nonce = log_boot_id();
        let (journal, images, found) = Journal::open_if(disk, segment_bytes, nonce, &|_, _| true)?;
        if found.cut.is_some() {
            tracing::warn!("{found}");
        }
        let described = Arc::new(Described { cluster: identity.cluster.clone(), me, nodes });
        let nodes = &described.nodes;
        let beginning = Beginning { me, nodes, fsync, tick_ms, nonce, workers, patience };
        let (site, family) = match protocol {
            Protocol::Hierarchy(validators) => beginning.hierarchy(validators, images)?,
            Protocol::Pcsi(sites) => beginning.geo(sites, images)?,
            Protocol::Ordered => return Err(StartError::Ended("an ordered cluster has no site".into())),
        };
        let tree = family.tree();
        let words = match family {
            Family::Hierarchy(_) => Words {
                asked: "the validators",
                unavailable: "this node takes no transactions now: nothing was changed; use another node",
                spares_system_writes: false,
            },
            Family::Geo => Words {
                asked: "other sites",
                unavailable: "a site that resolves a key does not answer or is fenced, or other sites lack \
                              too much of this one, or it takes no transactions now: nothing was changed; try \
                              again, or use another site",
                spares_system_writes: true,
            },
        };
        let site_commands = matches!(family, Family::Geo).then(|| {
            let seal = TokenSeal::new(peers.cluster, peers.secret.clone());
            SiteCommands::new(seal, nodes.iter().map(|(&site, node)| (site, node.zone.as_str())))
        });
        let (catches_up, has_caught_up) = mpsc::channel();
        let clock = SteadyClock::start();
        let (_, wall_ms) = clock.with_wall_ms();
        // The sessions of a site that commits alone are known to nobody else.
        let (place, among) = match family {
            Family::Hierarchy(_) => {
                (nodes.keys().position(|&node| node == me).unwrap_or_default(), nodes.len())
            }
            Family::Geo => (0, 1),
        };
        let sessions = Sessions::new(&tree, place as u64, among as u64, boot, wall_ms);
        let (sync, tickets) = mpsc::channel();
        let (files, file_work) = mpsc::channel();
        let (jobs, work) = mpsc::channel();
        // Nobody asks for these here.
        let ((sync_aside, _), (checkpoint, _)) = (mpsc::channel(), mpsc::channel());
        let preparer = journal.preparer();
        let is_silent = Arc::new(AtomicBool::new(false));
        let certified = Arc::new(Certified {
            core: Mutex::new(Core {
                site,
                effects: SiteEffects::default(),
                records: CountedJournal::new(journal),
                hands: Some(Hands { sync, sync_aside, files, checkpoint }),
                outgoing: BTreeMap::new(),
                gateway: Gateway::new(sessions, tree, patience, words, site_commands),
                expirer: Expirer {
                    procedure: expire,
                    system_procedure: expire_system,
                    next_leaf: 0,
                    sequence: 0,
                },
                catches_up: Some(catches_up),
                is_silent: is_silent.clone(),
            }),
            described: described.clone(),
            family,
            tick_ms,
            ports,
            peers: Arc::default(),
            clock,
            ticks: AtomicU64::new(0),
            alarm: Mutex::new(Alarm { due_ms: u64::MAX, is_stopping: false }),
            alarm_changed: Condvar::new(),
            on_end,
            jobs: Mutex::new(Some(jobs)),
            threads: Mutex::default(),
            is_silent,
        });
        let work = Arc::new(Mutex::new(work));
        for number in 0..workers {
            let work = work.clone();
            certified.spawn(&format!("site-run-{number}"), move |certified| certified.run(&work))?;
        }
        let addresses = nodes.iter().map(|(&id, node)| (id, node.peer_address.clone())).collect();
        let names = nodes.iter().map(|(&id, node)| (id, node.name.clone())).collect();
        let transport = Peers::start(
            PeerOptions { protocols: PROTOCOL..=PROTOCOL, ..peers },
            Arc::new(FromPeers(certified.clone())),
        )?;
        transport.set_names(names);
        transport.set_peers(&addresses)?;
        let _ = certified.peers.set(transport);
        let tick = certified.tick_pause();
        certified.spawn("site-sync", move |certified| certified.sync(&tickets))?;
        certified.spawn("site-files", move |certified| certified.files(&file_work, &preparer))?;
        certified.spawn("site-tick", move |certified| certified.tick(tick))?;
        while has_caught_up.recv_timeout(CATCH_UP_TELL) == Err(RecvTimeoutError::Timeout) {
            certified.tell_of_waiting();
            // Clients are told the same, and an operator may have to say that the other sites are gone.
            if certified.core.lock().site.waits_to_hear() {
                break;
            }
        }
        Ok(certified)
    }

    /// Says why clients are not served yet.
    fn tell_of_waiting(&self) {
        match self.status().trouble() {
            Some(why) if matches!(self.family, Family::Geo) => tracing::info!("not yet: {why}"),
            _ => tracing::info!("waiting for the other nodes, to catch up with what they have committed"),
        }
    }

    fn spawn(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Certified) + Send + 'static,
    ) -> Result<(), StartError> {
        let certified = self.clone();
        let run = move || {
            let ran = catch_unwind(AssertUnwindSafe(|| body(&certified)));
            ran.unwrap_or_else(|panic| certified.end(&panicked(&*panic)));
        };
        let thread = std::thread::Builder::new().name(format!("ordo-{name}")).spawn(run);
        self.threads.lock().push(thread.map_err(StartError::Thread)?);
        Ok(())
    }

    /// Where a site's files are in a node's directory.
    pub fn directory(dir: &Path) -> PathBuf {
        dir.join(DIRECTORY)
    }

    /// Whether a directory has a site's files.
    pub fn was_in(dir: &Path) -> bool {
        Certified::directory(dir).exists()
    }

    /// How the protocol is called.
    pub fn protocol(&self) -> &'static str {
        match self.family {
            Family::Hierarchy(_) => "hierarchy",
            Family::Geo => "pcsi",
        }
    }

    /// Over how many leaf validators the keys are dealt.
    pub fn partitions(&self) -> u16 {
        match &self.family {
            Family::Hierarchy(validators) => validators.tree.partitions(),
            Family::Geo => 1,
        }
    }

    /// Takes requests of a port, whose owner looks at it next.
    pub fn submit(&self, port: &Port, requests: &mut Vec<Arc<Request>>) {
        port.shared.add_outstanding(requests.len());
        let now_ms = self.clock.now_ms();
        let turned = self.core.lock().turn(&self.peers, now_ms, |gateway, asks| {
            for request in requests.drain(..) {
                gateway.take(request, now_ms, asks);
            }
        });
        self.work(turned, Some(&port.shared));
    }

    /// A client has gone, or has reset its connection.
    pub fn forget(&self, session: SessionId, goes_on: bool) {
        let now_ms = self.clock.now_ms();
        let turned = self.core.lock().turn(&self.peers, now_ms, |gateway, asks| match goes_on {
            true => gateway.reset(session, now_ms, asks),
            false => gateway.forget(session, now_ms, asks),
        });
        self.pass_on(turned);
    }

    /// Reads what is newest at this site, whatever was committed elsewhere: for the node itself.
    pub fn read(self: &Arc<Self>, request: &Arc<Request>) -> ReadOutcome {
        let mut call = CertifiedCall::new(request.clone(), self.clock.now_ms());
        call.begun(Some(Arc::new(Newest(self.clone()))));
        match call.answered(SiteAnswer::Committed) {
            Wish::End(certify::CallEnd::Done { outcome, .. }) => ReadOutcome::Done(outcome),
            _ => ReadOutcome::MustOrder,
        }
    }

    /// The time between two ticks.
    pub fn tick_pause(&self) -> Duration {
        Duration::from_millis(self.tick_ms.max(1))
    }

    /// The ticks that the site has made.
    pub fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Counters and places.
    pub fn status(&self) -> CertifiedStatus {
        let core = self.core.lock();
        let part = match &core.site {
            Served::Hierarchy(site, validators) => {
                let group = |group| {
                    let leader = site.group(group).and_then(|replica| replica.leader());
                    GroupStatus {
                        leader: leader.map(|(node, _)| node),
                        decided: site.decided(group),
                        batches: site.protocol().batches(group),
                    }
                };
                let groups = (0..validators.tree.groups()).map(|number| group(PartitionId(number)));
                let (groups, validators) = (groups.collect(), validators.clone());
                Part::Hierarchy(TreePart { validators, groups, site: site.status() })
            }
            Served::Geo(site, sites) => {
                Part::Geo(GeoPart { sites: sites.clone(), site: site.status(), tick_ms: self.tick_ms })
            }
        };
        CertifiedStatus {
            described: self.described.clone(),
            counts: core.gateway.counts.clone(),
            rates: core.gateway.rates(self.clock.now_ms()),
            open_transactions: core.gateway.open_transactions(),
            keys: core.site.key_counts(),
            part,
        }
    }

    /// The keys of users that the node has.
    pub fn key_counts(&self) -> KeyCounts {
        self.core.lock().site.key_counts()
    }

    /// Whether the node knows that it lacks what others have.
    pub fn is_behind(&self) -> bool {
        self.core.lock().site.is_behind()
    }

    /// Puts what is to be told of the site into the place of what the ordered node beside it tells.
    pub fn tell_instead(&self, status: &mut RuntimeStatus) {
        let core = self.core.lock();
        let Place { counts, position, log_bytes } = core.site.place();
        let silence = core.site.silence();
        let SiteCounts { bases, syncs, write_failures, sync_failures, .. } = counts;
        status.log = core.records.journal.status();
        drop(core);
        status.engine_name = self.protocol();
        status.node = MemberStatus {
            delivered: Position(position),
            confirmed: Position(position),
            final_committed: Position(position),
            syncs,
            write_failures,
            sync_failures,
            log_bytes_since_checkpoint: log_bytes,
            checkpoints: bases,
            refused: silence.map(Into::into),
            ..MemberStatus::default()
        };
    }

    /// An operator has the other sites fence one. Returns what is wrong, if they are not to.
    pub fn fence(&self, name: &str, is_forced: bool) -> Result<(), String> {
        let mut named = self.described.nodes.iter().filter(|(_, node)| node.name == name);
        let Some((&site, _)) = named.next() else {
            return Err(format!("there is no site '{name}'"));
        };
        if site == self.described.me {
            return Err("a site cannot fence itself: ask another one".to_owned());
        }
        let (answer, turned) = {
            let mut core = self.core.lock();
            let Core { site: served, effects, .. } = &mut *core;
            let answer = match served {
                Served::Geo(geo, _) => geo.fence(site, is_forced, effects),
                Served::Hierarchy(..) => return Err("a hierarchy has no sites to fence".to_owned()),
            };
            (answer, core.settle(&self.peers, self.clock.now_ms()))
        };
        self.pass_on(turned);
        answer
    }

    /// Looks at what the store itself keeps, such as scripts, at most at so many records.
    pub fn for_each_system_record(&self, records_max: usize, visit: impl FnMut((&Key, &Entry))) {
        self.core.lock().site.for_each_system_record(records_max, visit);
    }

    /// Why the site is silent, if it is.
    pub fn silence(&self) -> Option<&'static str> {
        let is_silent = self.is_silent.load(Ordering::Relaxed);
        is_silent.then(|| self.core.lock().site.silence()).flatten()
    }

    /// Tells what a turn has come to, beside the requests that can go on.
    fn tell(&self, turned: &mut Turned, own: Option<&PortShared>) {
        self.ports.put(&mut turned.replies, own);
        turned.notices.drain(..).for_each(|text| tracing::warn!("{text}"));
        if let Some(text) = turned.ended.take() {
            self.end(&text);
        }
        if let Some(due_ms) = turned.next_pause_ms {
            self.wake_by(due_ms);
        }
    }

    /// Leaves requests that can go on to the worker threads.
    fn pass_on(&self, mut turned: Turned) {
        self.tell(&mut turned, None);
        if turned.ready.is_empty() {
            return;
        }
        if let Some(jobs) = &*self.jobs.lock() {
            // The receiver is there as long as a worker thread is.
            turned.ready.drain(..).for_each(|ready| drop(jobs.send(ready)));
        }
    }

    /// Runs requests that can go on, on this thread, until none can. `own` is the port of the caller, which
    /// looks at it next.
    fn work(&self, mut turned: Turned, own: Option<&PortShared>) {
        loop {
            self.tell(&mut turned, own);
            if turned.ready.is_empty() {
                return;
            }
            let went = turned.ready.drain(..).map(|(mut running, next)| {
                let progress = running.go_on(next);
                (running, progress)
            });
            let went: Vec<_> = went.collect();
            let now_ms = self.clock.now_ms();
            turned = self.core.lock().turn(&self.peers, now_ms, |gateway, asks| {
                for (running, progress) in went {
                    gateway.grant(running, progress, now_ms, asks);
                }
            });
        }
    }

    /// A worker thread.
    fn run(&self, jobs: &Mutex<Receiver<Ready>>) {
        loop {
            let job = jobs.lock().recv();
            let Ok(ready) = job else { return };
            self.work(Turned { ready: vec![ready], ..Turned::default() }, None);
        }
    }

    /// Something happens to the site.
    fn react(&self, events: impl Iterator<Item = HostEvent>) {
        let turned = self.core.lock().react(&self.peers, self.clock.now_ms(), events);
        self.pass_on(turned);
    }

    fn end(&self, text: &str) {
        tracing::error!("{text}");
        (self.on_end)(text);
    }

    /// Has the tick thread look at this time, if it would look later.
    fn wake_by(&self, due_ms: u64) {
        let mut alarm = self.alarm.lock();
        if due_ms < alarm.due_ms {
            alarm.due_ms = due_ms;
            self.alarm_changed.notify_all();
        }
    }

    fn sync(&self, tickets: &Receiver<SyncTicket<RealDisk>>) {
        while let Ok(ticket) = tickets.recv() {
            let synced = ticket.sync();
            let turned = {
                let mut core = self.core.lock();
                let event = core.records.end_sync(synced);
                core.react(&self.peers, self.clock.now_ms(), std::iter::once(event))
            };
            self.pass_on(turned);
        }
    }

    fn files(&self, work: &Receiver<FileWork>, preparer: &Preparer<RealDisk>) {
        while let Ok(work) = work.recv() {
            match work {
                FileWork::Prepare => {
                    if let Err(error) = preparer.prepare_next() {
                        tracing::warn!("{error}; the site tries again when it needs the segment");
                    }
                }
                // The site asks again.
                FileWork::MakeRoom => {
                    if preparer.prepare_next().is_ok() {
                        self.react(std::iter::once(HostEvent::RoomMade));
                    }
                }
                FileWork::Prune(_) => {
                    let truncation = self.core.lock().records.journal.truncation();
                    match truncation.map(|truncation| truncation.run()) {
                        Some(Ok(truncated)) => self.core.lock().records.journal.truncated(truncated),
                        Some(Err(error)) => tracing::warn!("{error}; it is tried again later"),
                        None => {}
                    }
                }
                // A site has no checkpoints beside its groups' bases.
                FileWork::Read(..) | FileWork::Write(..) => {}
            }
        }
    }

    fn tick(&self, every: Duration) {
        let mut next = Instant::now() + every;
        let mut warned = BTreeSet::new();
        loop {
            {
                let mut alarm = self.alarm.lock();
                let pause_ms = alarm.due_ms.saturating_sub(self.clock.now_ms());
                let until = next.min(Instant::now() + Duration::from_millis(pause_ms).min(every));
                if !alarm.is_stopping {
                    self.alarm_changed.wait_until(&mut alarm, until);
                }
                if alarm.is_stopping {
                    return;
                }
                alarm.due_ms = u64::MAX;
            }
            let is_tick = Instant::now() >= next;
            let (now_ms, wall_ms) = self.clock.with_wall_ms();
            let mut core = self.core.lock();
            if is_tick {
                self.ticks.fetch_add(1, Ordering::Relaxed);
                next = Instant::now() + every;
                let Core { site, effects, .. } = &mut *core;
                site.react(HostEvent::Tick { wall_ms }, now_ms, effects);
                if let Served::Hierarchy(site, _) = site {
                    self.warn_of_too_large(&site.status().too_large, &mut warned);
                }
            }
            // Sessions are lent from when the site has caught up on.
            let may_expire = core.catches_up.is_none() && core.gateway.is_at_rest(SessionId::INTERNAL);
            let expired = (is_tick && may_expire).then(|| {
                let Core { expirer, site, .. } = &mut *core;
                expirer.next(site, self.described.me, self.partitions(), now_ms)
            });
            let turned = core.turn(&self.peers, now_ms, |gateway, asks| {
                gateway.end_pauses(now_ms);
                if is_tick {
                    gateway.sample(now_ms);
                    gateway.give_up(now_ms, asks);
                }
                if let Some(request) = expired.flatten() {
                    gateway.take(request, now_ms, asks);
                }
            });
            drop(core);
            self.pass_on(turned);
        }
    }

    /// Tells once of each partition whose data has become too large for a base, and when it is so no longer.
    fn warn_of_too_large(&self, too_large: &BTreeMap<PartitionId, u64>, warned: &mut BTreeSet<PartitionId>) {
        let Family::Hierarchy(validators) = &self.family else { return };
        let name = |group: &PartitionId| {
            validators.list.get(usize::from(group.0)).map_or("", |validator| validator.name.as_str())
        };
        for (group, bytes) in too_large.iter().filter(|(group, _)| !warned.contains(*group)) {
            tracing::warn!(
                "the data of validator {} has {} MiB, and the journal can begin anew behind {} MiB at most: \
                 the journals and the memory of all nodes go on growing. Delete what is not needed, or use a \
                 cluster with more partitions (docs/hierarchy.md, Limits)",
                name(group),
                bytes >> 20,
                BASE_BYTES_MAX >> 20
            );
        }
        for group in warned.iter().filter(|group| !too_large.contains_key(group)) {
            tracing::info!("the journal has begun anew behind the data of validator {}", name(group));
        }
        *warned = too_large.keys().copied().collect();
    }

    /// Ends the threads and brings the journal to the disk.
    pub fn shutdown(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        if threads.is_empty() {
            return;
        }
        self.alarm.lock().is_stopping = true;
        self.alarm_changed.notify_all();
        self.core.lock().hands = None;
        *self.jobs.lock() = None;
        for thread in threads {
            // Their panics were caught and reported.
            let _ = thread.join();
        }
        if let Some(peers) = self.peers.get() {
            peers.stop();
        }
        let mut core = self.core.lock();
        if !core.records.journal.is_closed()
            && let Err(error) = core.records.journal.sync()
        {
            tracing::warn!("the site's journal could not be synced at the shutdown: {error}");
        }
    }
}

/// What a site begins with.
struct Beginning<'a> {
    me: NodeId,
    nodes: &'a BTreeMap<NodeId, ClusterNode>,
    fsync: FsyncPolicy,
    tick_ms: u64,
    nonce: u64,
    workers: usize,
    patience: Patience,
}

impl Beginning<'_> {
    fn hierarchy(self, validators: Validators, images: GroupImages) -> Result<(Served, Family), StartError> {
        let Beginning { me, nodes, fsync, tick_ms, nonce, workers, .. } = self;
        let protocol = HierarchyOptions {
            me,
            tree: validators.tree.clone(),
            control: validators.control,
            ..HierarchyOptions::default()
        };
        let site = SiteOptions {
            me,
            groups: validators.groups(),
            followers: nodes.keys().copied().collect(),
            seed: nonce,
            fsync,
            tick_ms,
            log_bytes_max: LOG_BYTES_MAX,
            base_piece_bytes_max: BASE_PIECE_BYTES_MAX,
            base_bytes_max: BASE_BYTES_MAX,
            nonce,
        };
        let site = Site::recover(site, Hierarchy::new(protocol), images);
        let mut site = site.map_err(|text| StartError::Ended(text.into()))?;
        // More threads than processors would only wait for each other.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        site.share_work(Arc::new(Threads { count: workers.min(processors) }));
        site.catch_up();
        let validators = Arc::new(validators);
        Ok((Served::Hierarchy(site, validators.clone()), Family::Hierarchy(validators)))
    }

    fn geo(self, sites: Sites, images: GroupImages) -> Result<(Served, Family), StartError> {
        let Beginning { me, nodes, fsync, tick_ms, nonce, patience, .. } = self;
        let numbered = (0..).map(PartitionId).zip(&sites.resolvers);
        let map = numbered.fold(SiteMap::with_system(sites.partitions.clone()), |map, (of, resolvers)| {
            map?.resolved_by(of, resolvers.clone())
        });
        let map = map.ok_or_else(|| StartError::Ended("a partition has no site or no resolver".into()))?;
        let zones: BTreeSet<&str> = nodes.values().map(|node| node.zone.as_str()).collect();
        let numbers: BTreeMap<&str, u16> = zones.into_iter().zip(0..).collect();
        let map = map.in_regions(nodes.iter().map(|(&site, node)| (site, numbers[&*node.zone])).collect());
        // Where each site has all partitions, nobody needs another site's.
        let map = match sites.partitions.iter().all(|having| having.len() == nodes.len()) {
            true => map,
            false => map.with_remote_access(RemoteAccess::Grants),
        };
        let ticks = |ms: u64| (ms / tick_ms.max(1)).max(1);
        let propagation_ticks = ticks(sites.propagation_ms);
        let protocol = pcsi::SiteOptions {
            me,
            sites: Arc::new(map),
            propagation_ticks,
            vote_ticks_max: ticks(patience.request_ms / 4),
            open_ticks_max: ticks(patience.held_open.timeout_ms.max(patience.request_ms)),
            open_max: OPEN_SITE_TRANSACTIONS_MAX,
            window: WINDOW,
            retained_max: sites.retained_updates_max,
            retained_bytes_max: RETAINED_BYTES_MAX,
            silent_ticks_max: ticks(SILENT_MS).max(4 * propagation_ticks),
            session_horizon: SESSION_HORIZON,
            sites_to_write_min: sites.sites_to_write_min,
            regions_to_write_min: sites.regions_to_write_min,
            sites_ticks_max: ticks(patience.request_ms / 2),
        };
        let names = nodes.iter().map(|(&id, node)| (id, node.name.clone())).collect();
        let site = GeoSite::recover(GeoOptions { protocol, names, fsync, tick_ms, nonce }, images);
        let site = site.map_err(|text| StartError::Ended(text.into()))?;
        Ok((Served::Geo(site, Arc::new(sites)), Family::Geo))
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    format!(
        "the site stopped because of a bug ({}): restart the node, and please report it",
        panic_text(panic)
    )
}

/// What the transport tells.
struct FromPeers(Arc<Certified>);

impl FromPeers {
    fn pass(&self, events: impl Iterator<Item = HostEvent>) {
        let passed = catch_unwind(AssertUnwindSafe(|| self.0.react(events)));
        passed.unwrap_or_else(|panic| self.0.end(&panicked(&*panic)));
    }
}

impl PeerEvents for FromPeers {
    fn frames(&self, from: NodeId, _: u16, frames: &mut Vec<Bytes>) {
        self.pass(frames.drain(..).map(|bytes| HostEvent::Frame { from, bytes }));
    }
    fn connected(&self, peer: NodeId, _: u16) {
        self.pass(std::iter::once(HostEvent::Connected(peer)));
    }
    fn disconnected(&self, peer: NodeId) {
        self.pass(std::iter::once(HostEvent::Disconnected(peer)));
    }
}
