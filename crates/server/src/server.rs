//! A server: a node behind sockets.

use crate::acl::{self, FirstUsers};
use crate::auth_failures::AuthFailures;
use crate::client::Access;
use crate::cluster::identity::{Identity, IdentityError};
use crate::cluster::{ClusterConfig, Leaders, join};
use crate::config::{Config, ConfigError, PASSWORD_VARIABLE};
use crate::disk::RealDisk;
use crate::evict::Evictor;
#[cfg(feature = "http")]
use crate::http::{HttpError, HttpServer};
use crate::net::listen::{ListenError, Listener, listen};
use crate::net::starting::{Early, StartingServer};
use crate::net::{Incoming, IoThread, Mailbox, Parts, WAKER};
use crate::peers::PeerOptions;
use crate::restart::Program;
use crate::runtime::{
    CertifiedOptions, MemberOptions, Patience, RecoveryReport, Runtime, RuntimeOptions, SiteIdentity,
};
pub use crate::shared::LogLevelHook;
use crate::shared::{Origin, Shared, Stopping};
use crate::skips;
use crate::tls::{self, ClientTls, Tls, TlsError};
use agree::ELECTION_TICKS;
use execute::EngineKind;
use mio::{Poll, Waker};
use node::cluster::{ClusterOptions, ClusterRecoverError};
use order::PartitionMap;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};
use txn::hash::mix;
use txn::{NodeId, Registry};

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The description of the cluster makes no first map.
    #[error("the description of the cluster cannot be used: {0}")]
    Map(order::MapError),
    /// Which node this is cannot be read.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The directory is another node's.
    #[error(
        "{dir} is the data directory of node '{found}', and not of '{wanted}': give each node its own (--dir)"
    )]
    OtherNode {
        /// The directory.
        dir: String,
        /// Whose it is.
        found: String,
        /// Who was to start.
        wanted: String,
    },
    /// The cluster takes this node in no more.
    #[error("this node cannot join its cluster: {0}")]
    Join(String),
    /// The users that the settings ask for cannot be made.
    #[error("the users that the settings ask for cannot be made: {0}")]
    Users(String),
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The HTTP port cannot be served.
    #[cfg(feature = "http")]
    #[error(transparent)]
    Http(#[from] HttpError),
    /// There is no HTTP port in this build.
    #[cfg(not(feature = "http"))]
    #[error("http-port: this build serves no HTTP: build it with the feature http, or leave the setting out")]
    NoHttp,
    /// The node cannot run, or its data cannot be recovered.
    #[error(transparent)]
    Runtime(#[from] crate::runtime::StartError),
    /// Two commands have procedures of one name: a bug of this build.
    #[error(transparent)]
    Procedures(#[from] txn::procedure::NameTaken),
    /// The system refused a thread or a poll.
    #[error("an I/O thread could not be started: {0}: raise the process's limits on threads and open files")]
    Thread(io::Error),
}

impl StartError {
    /// What the process ends with: 78 if starting it again, as it is, is of no use.
    pub fn exit_code(&self) -> u8 {
        use crate::runtime::StartError as Runtime;
        match self {
            StartError::Runtime(Runtime::Cluster(ClusterRecoverError::Level { .. }))
            | StartError::Join(_) => EXIT_ENDED as u8,
            StartError::Runtime(Runtime::Ended(text)) if node::geo::is_out(text) => EXIT_ENDED as u8,
            _ => 1,
        }
    }
}

/// A running server.
pub struct Server {
    shared: Arc<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
    threads: Vec<JoinHandle<()>>,
    report: RecoveryReport,
    addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
    #[cfg(feature = "http")]
    http: Option<HttpServer>,
}

/// Stops a server from elsewhere.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Makes [`Server::wait`] finish what is in flight and return.
    pub fn stop(&self) {
        self.0.stop(Stopping::Plain);
    }
}

/// What signals do to this process. SIGTERM and SIGINT stop the server, or end the process while there is
/// none yet; SIGHUP has the files of TLS read anew. The others would kill it, and do nothing.
pub struct SignalWatch(Arc<OnceLock<Stopper>>);

impl SignalWatch {
    /// Watches from now on. To be called before [`Server::start`], which may take long.
    pub fn start() -> io::Result<SignalWatch> {
        // SIGXFSZ: a file that may not grow (ulimit -f) is an error of a write, as a full disk is.
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXFSZ])?;
        let server: Arc<OnceLock<Stopper>> = Arc::default();
        let stopper = server.clone();
        std::thread::Builder::new().name("ordo-signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                match signal {
                    SIGTERM => return stop("SIGTERM", stopper.get()),
                    SIGINT => return stop("SIGINT", stopper.get()),
                    SIGHUP => hang_up(stopper.get()),
                    SIGUSR1 => tracing::info!("SIGUSR1 does nothing"),
                    SIGUSR2 => tracing::info!("SIGUSR2 does nothing"),
                    _ => {}
                }
            }
        })?;
        Ok(SignalWatch(server))
    }

    /// From now on signals stop this server.
    pub fn stops(&self, server: &Server) {
        // The first server stays: a process has one.
        let _ = self.0.set(server.stopper());
    }
}

fn stop(signal: &str, stopper: Option<&Stopper>) {
    match stopper {
        Some(stopper) => {
            tracing::info!("{signal}: finishing what is in flight");
            stopper.stop();
        }
        None => {
            tracing::info!("{signal}: stopped before clients were served: nothing acknowledged is lost");
            std::process::exit(0);
        }
    }
}

/// SIGHUP: a terminal is gone, or somebody has replaced certificates.
fn hang_up(stopper: Option<&Stopper>) {
    let Some(Stopper(shared)) = stopper else {
        return tracing::info!("SIGHUP: ignored, there is nothing to be read anew yet");
    };
    let config = shared.settings.now();
    match shared.tls.reread(&config) {
        Ok(()) => tracing::info!(
            "SIGHUP: the files of TLS were read anew, if there are any. Settings are changed by CONFIG \
             SET, or with a restart"
        ),
        Err(error) => tracing::error!("SIGHUP: TLS stays as it was: {error}"),
    }
}

impl Server {
    /// Recovers the data in `config.dir` and serves it.
    pub fn start(mut config: Config) -> Result<Server, StartError> {
        config.validate()?;
        let program = Program::of_this_process();
        let cluster = config.cluster.take();
        config.maxclients = reserve_files(config.maxclients, own_files(&config));
        // CONFIG GET tells where it is to whoever does not know where the process was started.
        if let Some(dir) =
            std::path::absolute(&config.dir).ok().and_then(|dir| dir.into_os_string().into_string().ok())
        {
            config.dir = dir;
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let io_threads = config.io_threads_effective(processors);
        let workers = config.workers_effective(processors);
        for exposed in config.exposed_secrets() {
            tracing::warn!("{exposed}");
        }
        let tls = Arc::new(Tls::new(&config)?);
        // Who starts a server twice learns that, and not only that its port is in use.
        RealDisk::look_at(Path::new(&config.dir)).map_err(crate::runtime::StartError::Directory)?;
        // Before the recovery, which may take long: a port that is in use is known at once.
        let listeners = listen(&config).map_err(|error| match error {
            ListenError::InUse(_, address) if cluster.is_some() => ListenError::InUseAtNode(address),
            other => other,
        })?;
        let addresses = |of: fn(&Listener) -> bool| -> Vec<SocketAddr> {
            let sockets = listeners.iter().filter(|listener| of(listener));
            sockets.filter_map(|listener| listener.socket.local_addr().ok()).collect()
        };
        let tls_addresses = addresses(|listener| listener.is_tls);
        let addresses = addresses(|_| true);

        #[cfg(feature = "http")]
        let http = HttpServer::open(&config)?;
        #[cfg(not(feature = "http"))]
        if config.http_port > 0 {
            return Err(StartError::NoHttp);
        }

        let is_member = cluster.is_some();
        let first = first_users(&config, is_member)?;
        let auth_failures: Arc<AuthFailures> = Arc::default();
        // Clients that come meanwhile are told that the data is being loaded. Where there is none, they wait
        // a moment to be accepted.
        let (starting, listeners) = if !is_member && RealDisk::is_new(Path::new(&config.dir)) {
            (None, listeners)
        } else {
            let starting =
                StartingServer::open(listeners, &config, tls.clone(), auth_failures.clone(), is_member);
            (Some(starting.map_err(StartError::Thread)?), Vec::new())
        };

        crate::watch::start().map_err(StartError::Thread)?;
        let mut registry = Registry::new();
        redis_surface::register(&mut registry)?;
        let options = RuntimeOptions {
            fsync: config.appendfsync,
            workers,
            // The evictor has one.
            ports: io_threads + 1,
            checkpoint_bytes: config.checkpoint_log_size,
            expire: Some(Arc::new(redis_surface::ExpireProcedure)),
            expire_system: Some(Arc::new(redis_surface::ExpireSystemProcedure)),
            engine: config.engine,
            skip: config.skip.0.clone(),
            on_halt: Some(Box::new(|text: &str| {
                tracing::error!("{text}");
                std::process::exit(EXIT_HALTED);
            })),
            on_restart: Some(Box::new(move || restart(&program))),
            on_end: Some(Box::new(|_: &str| std::process::exit(EXIT_ENDED))),
            ..RuntimeOptions::new(&config.dir)
        };
        let (runtime, report) = start_node(options, cluster, &mut config, &tls, &registry)?;
        let started_ms = runtime.now_ms();
        let origin = Origin {
            started_ms,
            run_id: run_id(),
            address: addresses.first().copied().unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0))),
            io_threads,
            tls,
            auth_failures,
        };
        // From here on the hash will do.
        config.requirepass.take_plain();
        let requirepass = config.requirepass.clone();
        let shared = Arc::new(Shared::new(runtime, config, origin));
        if let Err(error) = acl::start(&shared.acl, &shared.runtime, first, &requirepass) {
            shared.runtime.shutdown(false);
            return Err(StartError::Users(error));
        }
        let mut server = Server {
            shared,
            mailboxes: Vec::new(),
            threads: Vec::new(),
            report,
            addresses,
            tls_addresses,
            #[cfg(feature = "http")]
            http,
        };
        let (listeners, early) = match starting {
            Some(starting) => starting.close(),
            None => (listeners, Vec::new()),
        };
        match server.start_threads(io_threads, listeners, early) {
            Ok(()) => {
                #[cfg(feature = "http")]
                if let Some(http) = &server.http {
                    http.serves(&server.shared);
                }
                Ok(server)
            }
            Err(error) => {
                server.shared.stop(Stopping::Plain);
                server.wait();
                Err(StartError::Thread(error))
            }
        }
    }

    fn start_threads(&mut self, count: usize, listeners: Vec<Listener>, early: Vec<Early>) -> io::Result<()> {
        let polls = (0..count).map(|_| Poll::new()).collect::<io::Result<Vec<Poll>>>()?;
        for poll in &polls {
            let waker = Waker::new(poll.registry(), WAKER)?;
            self.mailboxes.push(Arc::new(Mailbox::new(move || waker.wake())));
        }
        let mut listeners = Some(listeners);
        for (index, poll) in polls.into_iter().enumerate() {
            let mut mailboxes = self.mailboxes.clone();
            mailboxes.rotate_left(index);
            let own = mailboxes[0].clone();
            let port = self.shared.runtime.port(Box::new(move || own.notify()));
            let port = port.ok_or_else(|| io::Error::other("all ports of the node are taken"))?;
            let listeners = listeners.take().unwrap_or_default();
            let thread = IoThread::new(Parts {
                poll,
                port,
                index,
                listeners,
                mailboxes,
                shared: self.shared.clone(),
            })?;
            let name = format!("ordo-io-{index}");
            self.threads.push(spawn(name, || thread.run())?);
        }
        self.threads.push(self.start_evictor()?);
        for (early, mailbox) in early.into_iter().zip(self.mailboxes.iter().cycle()) {
            mailbox.hand_over(Incoming::Early(Box::new(early)));
        }
        Ok(())
    }

    fn start_evictor(&self) -> io::Result<JoinHandle<()>> {
        let shared = self.shared.clone();
        spawn("ordo-evict".to_owned(), move || {
            let thread = std::thread::current();
            match shared.runtime.port(Box::new(move || thread.unpark())) {
                Some(port) => Evictor::new(shared, port).run(),
                None => {
                    tracing::error!("all ports of the node are taken: nothing is evicted. Please report it")
                }
            }
        })
    }

    /// The addresses that are listened on, those without TLS first.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
    /// Those of them where clients speak TLS.
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.tls_addresses
    }
    /// The addresses of the HTTP port: none where the settings ask for none.
    #[cfg(feature = "http")]
    pub fn http_addresses(&self) -> &[SocketAddr] {
        self.http.as_ref().map_or(&[], HttpServer::addresses)
    }
    /// What was found in the directory.
    pub fn report(&self) -> &RecoveryReport {
        &self.report
    }
    /// Tells the hook of the log's level at once, and whenever CONFIG SET changes it.
    pub fn follow_log_level(&self, hook: LogLevelHook) {
        hook(self.shared.settings.now().loglevel);
        self.shared.follow_log_level(hook);
    }
    /// The state that the server's threads share.
    #[cfg(feature = "service-manager")]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
    /// A way to stop the server.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// Waits until the server is asked to stop, answers what is in flight, and brings the log to the disk.
    pub fn wait(mut self) {
        let how = self.shared.wait_for_stop();
        // Its clients are answered meanwhile.
        self.shared.runtime.begin_to_end();
        for mailbox in &self.mailboxes {
            mailbox.wake();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("an I/O thread panicked: please report it, with the message above");
            }
        }
        self.shared.runtime.shutdown(how == Stopping::Save);
    }
}

/// Starts a thread without which the server cannot go on.
fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let called = name.clone();
    let run = move || {
        // Connections would wait for ever, and nobody knows what else is wrong.
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            tracing::error!(
                "the thread {called} panicked, and the server ends. Nothing acknowledged is lost. Please \
                 report it, with the message above"
            );
            std::process::exit(EXIT_HALTED);
        }
    };
    std::thread::Builder::new().name(name).spawn(run)
}

/// Starts the node: by itself, or as its cluster's description says.
fn start_node(
    options: RuntimeOptions,
    cluster: Option<(ClusterConfig, String)>,
    config: &mut Config,
    tls: &Arc<Tls>,
    registry: &Registry,
) -> Result<(Arc<Runtime>, RecoveryReport), StartError> {
    let Some((cluster, name)) = cluster else {
        return Ok(Runtime::start(options, registry)?);
    };
    if cluster.is_certified() {
        let site = certified_options(&cluster, &name, config, tls, options.engine);
        return Ok(Runtime::start_certified(options, site, registry)?);
    }
    let access = access(config)?;
    let (identity, has_run) = identity(&cluster, &name, config, &access)?;
    let mut member = member_options(cluster, &name, identity, has_run, access, &options);
    member.peers.tls = (config.tls_cluster != tls::CLUSTER_PLAIN).then(|| tls.clone());
    member.peers.plain_on_loopback = config.tls_cluster == tls::CLUSTER_AUTO;
    if config.behaviour_level > 0 {
        member.node.level = config.behaviour_level as u32;
    }
    Ok(Runtime::start_member(options, member, registry)?)
}

/// The users that the settings ask for.
pub(crate) fn first_users(config: &Config, is_member: bool) -> Result<FirstUsers, StartError> {
    let Some(path) = config.acl_path() else {
        let mut users = config.users().map_err(StartError::Users)?;
        acl::close_default(&mut users, config);
        return Ok(match users.is_empty() {
            true => FirstUsers::Nobody,
            false => FirstUsers::Introduced(users),
        });
    };
    let users = acl::read_file(&path, config).map_err(StartError::Users)?;
    Ok(match is_member {
        true => FirstUsers::Introduced(users),
        false => FirstUsers::OfFile(users),
    })
}

/// Starts this process anew, with the same words: its connections break, its clients connect again.
fn restart(program: &Program) {
    tracing::info!("this process starts anew");
    tracing::error!("{}", program.start());
    std::process::exit(EXIT_HALTED);
}

/// How a node asks the others at their clients' addresses: as its own clients ask it.
fn access(config: &mut Config) -> Result<Access, StartError> {
    let tls = config.serves_tls_only().then(|| ClientTls::of(config));
    Ok(Access { user: None, password: config.requirepass.take_plain(), tls: tls.transpose()? })
}

/// Who a node is, and whether it was that before.
fn identity(
    cluster: &ClusterConfig,
    name: &str,
    config: &Config,
    access: &Access,
) -> Result<(Identity, bool), StartError> {
    let dir = Path::new(&config.dir);
    if let Some(identity) = Identity::load(dir)? {
        let entry = identity.map.nodes.get(&identity.node);
        let other = entry.filter(|entry| entry.name != name);
        return match other {
            Some(entry) => Err(StartError::OtherNode {
                dir: config.dir.clone(),
                found: entry.name.clone(),
                wanted: name.to_owned(),
            }),
            None => Ok((identity, true)),
        };
    }
    if cluster.node(name).is_some_and(|node| node.joins) {
        if access.password.is_none() && !config.requirepass.is_none() {
            tracing::warn!(
                "requirepass is the hash of a password, which this node cannot show to the others when it \
                 asks them who it is: give it the password itself, with requirepass-file or in the \
                 variable {PASSWORD_VARIABLE}"
            );
        }
        let (identity, skips) = join::learn(cluster, name, access).map_err(StartError::Join)?;
        skips::adopt(dir, &skips).map_err(crate::runtime::StartError::Skips)?;
        return Ok((identity, false));
    }
    let map = cluster.map().map_err(StartError::Map)?;
    let found = map.nodes.iter().find(|(_, entry)| entry.name == name);
    let node = found.map(|(&node, _)| node).unwrap_or_default();
    let first = map.clone();
    Ok((Identity { node, first, map }, false))
}

/// How a node takes part in the cluster that its settings describe.
fn member_options(
    cluster: ClusterConfig,
    name: &str,
    identity: Identity,
    has_run: bool,
    access: Access,
    options: &RuntimeOptions,
) -> MemberOptions {
    let me = identity.node;
    let node = cluster.node(name);
    let description = cluster.clone();
    let is_gone = move |map: &PartitionMap| join::is_gone(&description, map, me, &access);
    MemberOptions {
        name: cluster.name.clone(),
        peers: PeerOptions {
            me,
            cluster: identity.first.cluster,
            secret: cluster.secret.as_bytes().into(),
            listen: node.map_or(String::new(), |node| node.peer_address.clone()),
            protocols: 1..=1,
            skips: 0,
            engine: options.engine,
            delivery: cluster.delivery,
            queue_bytes_max: PEER_QUEUE_BYTES_MAX,
            tls: None,
            plain_on_loopback: false,
        },
        node: ClusterOptions {
            seed: mix(u64::from(std::process::id())),
            fsync: options.fsync,
            limits: options.limits,
            checkpoint_bytes: options.checkpoint_bytes,
            tick_ms: (cluster.election_timeout_ms / ELECTION_TICKS).max(1),
            clock_bound_ms: cluster.clock_ahead_ms_max,
            request_timeout_ms: cluster.request_timeout_ms,
            leaders_in: match &cluster.leaders {
                Leaders::Spread => None,
                Leaders::Zone(zone) => Some(zone.clone()),
            },
            expire: options.expire.clone(),
            expire_system: options.expire_system.clone(),
            ..ClusterOptions::new(me).delivering_by(cluster.delivery)
        },
        identity,
        has_run,
        staleness_ms_max: cluster.staleness_ms_max,
        is_gone: Box::new(is_gone),
    }
}

/// How a node takes part in the cluster that its settings describe.
fn certified_options(
    cluster: &ClusterConfig,
    name: &str,
    config: &Config,
    tls: &Arc<Tls>,
    engine: EngineKind,
) -> CertifiedOptions {
    let numbered = || (1..).map(NodeId).zip(&cluster.nodes);
    let me = numbered().find(|(_, node)| node.name == name).map(|(me, _)| me).unwrap_or_default();
    let digest = cluster.certified_digest();
    let tick_ms = match cluster.sites() {
        Some(_) => SITE_TICK_MS,
        None => (cluster.election_timeout_ms / ELECTION_TICKS).max(1),
    };
    CertifiedOptions {
        identity: SiteIdentity { node: name.to_owned(), cluster: cluster.name.clone(), digest },
        me,
        nodes: numbered().map(|(id, node)| (id, node.clone())).collect(),
        peers: PeerOptions {
            me,
            // Nodes with other descriptions do not talk to each other.
            cluster: digest,
            secret: cluster.secret.as_bytes().into(),
            listen: cluster.node(name).map_or(String::new(), |node| node.peer_address.clone()),
            protocols: 1..=1,
            skips: 0,
            engine,
            delivery: cluster.delivery,
            queue_bytes_max: PEER_QUEUE_BYTES_MAX,
            tls: (config.tls_cluster != tls::CLUSTER_PLAIN).then(|| tls.clone()),
            plain_on_loopback: config.tls_cluster == tls::CLUSTER_AUTO,
        },
        tick_ms,
        patience: Patience {
            request_ms: cluster.request_timeout_ms,
            held_open: cluster.protocol.held_open(),
        },
        protocol: cluster.protocol.clone(),
        expire: Arc::new(redis_surface::ExpireProcedure),
        expire_system: Arc::new(redis_surface::ExpireSystemProcedure),
        on_end: Box::new(|text: &str| {
            std::process::exit(if node::geo::is_out(text) { EXIT_ENDED } else { EXIT_HALTED })
        }),
    }
}

/// The tick of a site that commits alone: no period between sites is shorter.
const SITE_TICK_MS: u64 = 10;

/// Bytes that may wait for a peer that is slower than its senders.
const PEER_QUEUE_BYTES_MAX: usize = 64 << 20;

/// Files that the server needs beside the sockets of its clients and of the HTTP port.
const OWN_FILES: u64 = 64;

/// Files that a server with these settings needs beside the sockets of its clients.
fn own_files(config: &Config) -> u64 {
    OWN_FILES + config.http_files_max()
}

/// How many files a server with these settings wants to have open at most.
pub fn open_files_wanted(config: &Config) -> u64 {
    config.maxclients + own_files(config)
}

/// Raises the process's limit on open files for so many clients, beside `own` files. Returns how many clients
/// there may be.
fn reserve_files(clients: u64, own: u64) -> u64 {
    match rlimit::increase_nofile_limit(clients + own) {
        Ok(files) if files < clients + own => {
            let possible = files.saturating_sub(own).max(1);
            tracing::warn!(
                "maxclients is {possible} instead of {clients}: the system allows this process {files} \
                 open files (ulimit -Hn)"
            );
            possible
        }
        Ok(_) => clients,
        Err(error) => {
            tracing::warn!("the limit on open files could not be raised for {clients} clients: {error}");
            clients
        }
    }
}

/// The exit code when a node is no part of its cluster any more: starting it again is of no use.
pub const EXIT_ENDED: i32 = 78;
/// The exit code when a bug stopped the node.
const EXIT_HALTED: i32 = 70;

/// Forty hexadecimal digits that differ from run to run.
fn run_id() -> String {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let mut seed = mix(nanos ^ (u64::from(std::process::id()) << 40));
    let mut id = String::new();
    while id.len() < 40 {
        seed = mix(seed);
        id.push_str(&format!("{:08x}", seed as u32));
    }
    id
}
