//! The users as this node knows them, and what it did not allow them.
//!
//! Users are part of the replicated state (`redis_surface::acl`). Sessions look at an immutable
//! [`Directory`], which is replaced when the record has another version at a final snapshot: by the session
//! whose transaction changed users, before it answers, and ten times a second, for what came through other
//! nodes. Its generation is all that a session compares for each command.

use crate::config::{Config, Parameter, Password};
use crate::replace::replace_file;
use crate::runtime::{Port, ReadOutcome, Runtime};
use parking_lot::Mutex;
use redis_surface::Memory;
use redis_surface::acl::{
    Acting, ActingProcedure, DEFAULT_USER, Deed, Denial, Directory, Done, ReadUsersProcedure, User,
};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use txn::{
    Args, Blob, PartitionId, PartitionRoute, Position, Procedure, Reply, Request, RequestId, Slots, Stop,
};

/// Among so many entries of the log a new one looks for its like.
const LOG_LOOKS_MAX: usize = 10;
/// Entries of the log this far apart are different events.
const LOG_SAME_MS: u64 = 60_000;

/// Why something is not allowed, in the order of INFO.
const DENIAL_REASONS: [&str; 4] = ["auth", "command", "key", "channel"];

/// What sessions know of users.
pub struct Acl {
    generation: AtomicU64,
    /// New connections may do what `default` may, without a password.
    default_is_open: AtomicBool,
    /// `default` takes any password.
    default_needs_no_password: AtomicBool,
    users: Mutex<Users>,
    /// Held while a snapshot is read and published, so that nothing older is published later.
    refreshing: Mutex<()>,
    log: Mutex<VecDeque<Entry>>,
    /// How many entries the log has had.
    log_entries: AtomicU64,
    /// How often users were not allowed something, by [`DENIAL_REASONS`].
    denied: [AtomicU64; DENIAL_REASONS.len()],
}

struct Users {
    directory: Arc<Directory>,
    /// `default` as the settings make it.
    default: Arc<User>,
    /// The version of the record that `directory` shows.
    version: Option<Position>,
}

fn default_of(requirepass: &Password) -> Arc<User> {
    Arc::new(User::default_user(requirepass.hash()))
}

impl Acl {
    /// What is known before the first look: `default`.
    pub fn new(requirepass: &Password) -> Acl {
        let default = default_of(requirepass);
        let users = Users { directory: Arc::new(Directory::of(None, &default)), default, version: None };
        let acl = Acl {
            generation: AtomicU64::new(0),
            default_is_open: AtomicBool::new(false),
            default_needs_no_password: AtomicBool::new(false),
            users: Mutex::new(users),
            refreshing: Mutex::new(()),
            log: Mutex::default(),
            log_entries: AtomicU64::new(0),
            denied: Default::default(),
        };
        acl.publish(&acl.users.lock());
        acl
    }

    /// Tells sessions that there is something new.
    fn publish(&self, users: &Users) {
        let default = users.directory.get(DEFAULT_USER);
        let is_open = default.is_some_and(|default| default.user.is_open());
        let no_password = default.is_some_and(|default| default.user.needs_no_password());
        self.default_is_open.store(is_open, Ordering::Relaxed);
        self.default_needs_no_password.store(no_password, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Changes whenever users do.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
    /// The users.
    pub fn users(&self) -> Arc<Directory> {
        self.users.lock().directory.clone()
    }
    /// `default`, as long as nobody has changed it by ACL.
    pub fn settings_default(&self) -> Arc<User> {
        self.users.lock().default.clone()
    }
    /// Whether new connections need not authenticate.
    pub fn default_is_open(&self) -> bool {
        self.default_is_open.load(Ordering::Relaxed)
    }
    /// Whether anybody may come although the settings ask for a password.
    pub fn is_open_against_settings(&self) -> bool {
        self.default_is_open() && !self.settings_default().needs_no_password()
    }
    /// Whether anybody may be `default`, as protected mode asks.
    pub fn default_needs_no_password(&self) -> bool {
        self.default_needs_no_password.load(Ordering::Relaxed)
    }

    /// `requirepass` has changed.
    pub fn set_password(&self, requirepass: &Password) {
        let mut users = self.users.lock();
        users.default = default_of(requirepass);
        users.directory = Arc::new(users.directory.with_default(&users.default));
        self.publish(&users);
    }

    /// Looks at the newest final snapshot. Returns whether there was something new.
    pub fn refresh(&self, runtime: &Runtime, port: &Port) -> bool {
        let _alone = self.refreshing.lock();
        let known = self.users.lock().version;
        let Some(reply) = read_users(runtime, port, known) else {
            return false;
        };
        let mut users = self.users.lock();
        match Directory::of_reply(&reply, &users.default) {
            Some((version, Some(directory))) => {
                users.version = Some(version);
                users.directory = Arc::new(directory);
                self.publish(&users);
                true
            }
            _ => false,
        }
    }

    /// Notes that a user was not allowed something; `client` is its connection's line in CLIENT LIST.
    pub fn note(&self, user: &Blob, denial: Denial, client: String, now_ms: u64, len_max: usize) {
        let reasons = DENIAL_REASONS.iter();
        let place =
            reasons.zip(&self.denied).find(|(reason, _)| denial.reason.as_bytes() == reason.as_bytes());
        if let Some((_, count)) = place {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let mut log = self.log.lock();
        let is_same = |entry: &Entry| {
            entry.denial == denial && entry.user == *user && now_ms.abs_diff(entry.at_ms) <= LOG_SAME_MS
        };
        let same = log.iter().take(LOG_LOOKS_MAX).position(is_same);
        let entry = match same.and_then(|place| log.remove(place)) {
            Some(entry) => Entry { count: entry.count + 1, at_ms: now_ms, client, ..entry },
            None => Entry {
                id: self.log_entries.fetch_add(1, Ordering::Relaxed),
                count: 1,
                denial,
                user: user.clone(),
                since_ms: now_ms,
                at_ms: now_ms,
                client,
            },
        };
        log.push_front(entry);
        log.truncate(len_max);
    }

    /// How often users were not allowed something, with the reasons.
    pub fn denied(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.denied.iter().map(|count| count.load(Ordering::Relaxed));
        DENIAL_REASONS.iter().copied().zip(counts)
    }
    /// CONFIG RESETSTAT.
    pub fn forget_denied(&self) {
        self.denied.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// ACL LOG RESET.
    pub fn forget(&self) {
        self.log.lock().clear();
    }

    /// ACL LOG: the newest entries.
    pub fn log(&self, count: usize, now_ms: u64) -> Reply {
        let log = self.log.lock();
        Reply::Array(log.iter().take(count).map(|entry| entry.to_reply(now_ms)).collect())
    }
}

fn read_users(runtime: &Runtime, port: &Port, known: Option<Position>) -> Option<Reply> {
    // Every partition has the record; the first that this node keeps will do.
    (0..runtime.partitions_count()).find_map(|partition| {
        let procedure: Arc<dyn Procedure> = Arc::new(ReadUsersProcedure);
        let mut request = Request::new(RequestId::default(), procedure, ReadUsersProcedure::args(known));
        request.route = PartitionRoute::single(PartitionId(partition as u16));
        match runtime.read(port, &Arc::new(request)) {
            ReadOutcome::Done(Ok(reply)) => Some(reply),
            _ => None,
        }
    })
}

/// An entry of ACL LOG.
struct Entry {
    id: u64,
    count: i64,
    denial: Denial,
    user: Blob,
    /// When it happened first.
    since_ms: u64,
    /// When it happened last.
    at_ms: u64,
    client: String,
}

impl Entry {
    fn to_reply(&self, now_ms: u64) -> Reply {
        let age_s = now_ms.saturating_sub(self.at_ms) as f64 / 1000.0;
        let fields = [
            ("count", Reply::Integer(self.count)),
            ("reason", Reply::Bulk(self.denial.reason.clone())),
            ("context", Reply::bulk(self.denial.context.name())),
            ("object", Reply::Bulk(self.denial.object.clone())),
            ("username", Reply::Bulk(self.user.clone())),
            ("age-seconds", Reply::Double(age_s)),
            ("client-info", Reply::bulk(self.client.as_str())),
            ("entry-id", Reply::Integer(self.id.cast_signed())),
            ("timestamp-created", Reply::Integer(self.since_ms.cast_signed())),
            ("timestamp-last-updated", Reply::Integer(self.at_ms.cast_signed())),
        ];
        let fields = fields.into_iter().map(|(name, value)| (Reply::bulk(name), value));
        Reply::Map(fields.collect())
    }
}

/// The users that settings ask for at the start.
pub enum FirstUsers {
    /// None.
    Nobody,
    /// Those of the ACL file, whatever users there are.
    OfFile(Vec<(Blob, User)>),
    /// These, if no users were ever made.
    Introduced(Vec<(Blob, User)>),
}

/// Looks at the users for the first time, and makes those that the settings ask for. It returns when they are
/// final here.
pub fn start(acl: &Acl, runtime: &Runtime, first: FirstUsers, requirepass: &Password) -> Result<(), String> {
    let thread = std::thread::current();
    let port = runtime.port(Box::new(move || thread.unpark()));
    let port = port.ok_or("all ports of the node are taken")?;
    acl.refresh(runtime, &port);
    let deed = match first {
        FirstUsers::Nobody => None,
        FirstUsers::OfFile(users) if are_there(&acl.users(), &users) => None,
        FirstUsers::OfFile(users) => Some(Deed::Replace(users)),
        FirstUsers::Introduced(users) => Some(Deed::Introduce(users)),
    };
    if let Some(deed) = deed {
        act(acl, runtime, &port, 1, deed)?;
    }
    if acl.is_open_against_settings() {
        tracing::warn!(
            "the user 'default' took any password (ACL SETUSER default ... nopass), and requirepass is \
             set: from now on it has that password"
        );
        let deed = Deed::Command(password_rules(requirepass), Memory::Ample);
        act(acl, runtime, &port, 2, deed)?;
    }
    Ok(())
}

/// Runs a transaction on users that the settings ask for.
fn act(acl: &Acl, runtime: &Runtime, port: &Port, sequence: u64, deed: Deed) -> Result<(), String> {
    let acting = Acting { user: None, default: acl.settings_default(), all_channels: false, deed };
    let request = Arc::new(Request {
        id: RequestId { session: port.session(), sequence, attempt: 0 },
        slots_version: Request::ANY_SLOTS,
        footprint: acting.footprint(true),
        procedure: Arc::new(ActingProcedure),
        args: acting.to_args(),
        route: PartitionRoute::everywhere(&Slots::even(runtime.partitions_count() as u16)),
        elsewhere: false,
    });
    let outcome = loop {
        let answers = runtime.ask(port, vec![request.clone()], || false);
        let mut answers = answers.map_err(|refused| refused.to_string())?;
        match answers.pop().ok_or("nothing answers")? {
            // The other nodes come up meanwhile.
            (_, Err(Stop::Abort(text))) if runtime.is_certified() && text.starts_with("CLUSTERDOWN ") => {
                tracing::info!("waiting for the other nodes, to make the users that the settings ask for");
            }
            (_, outcome) => break outcome,
        }
    };
    match outcome.map(|reply| Done::from_reply(reply).reply) {
        Ok(Reply::Error(text)) => return Err(text.into_owned()),
        Ok(_) => {}
        Err(stop) => return Err(stop.to_string()),
    }
    acl.refresh(runtime, port);
    Ok(())
}

/// The command that makes `requirepass` the password of `default`, or has that take any.
pub fn password_rules(requirepass: &Password) -> Args {
    let rule = match requirepass.is_none() {
        true => "nopass".to_owned(),
        false => requirepass.to_text(),
    };
    let words = ["ACL", "SETUSER", "default", "resetpass", &rule];
    words.iter().map(|word| Blob::from(*word)).collect()
}

fn are_there(directory: &Directory, users: &[(Blob, User)]) -> bool {
    let is_there =
        |(name, user): &(Blob, User)| directory.get(name).is_some_and(|known| *known.user == *user);
    directory.has_default() && directory.iter().len() == users.len() && users.iter().all(is_there)
}

/// Reads the ACL file. The error is Redis's.
pub fn read_file(path: &str, config: &Config) -> Result<Vec<(Blob, User)>, String> {
    let text =
        std::fs::read(path).map_err(|error| format!("Error loading ACLs, opening file '{path}': {error}"))?;
    let all_channels = config.all_channels_by_default();
    let mut users = redis_surface::acl::file::parse(path, &text, all_channels)?;
    if !users.iter().any(|(name, _)| name.as_bytes() == DEFAULT_USER) {
        let default = User::clone(&default_of(&config.requirepass));
        users.push((Blob::new(DEFAULT_USER), default));
    }
    close_default(&mut users, config);
    Ok(users)
}

/// Gives `default` the password that the settings ask for where it would take any: whoever sets one must not
/// find the server open.
pub fn close_default(users: &mut [(Blob, User)], config: &Config) {
    let Some(password) = config.requirepass.hash() else {
        return;
    };
    let mut open = users.iter_mut().filter(|(name, user)| name.as_bytes() == DEFAULT_USER && user.is_open());
    if let Some((_, default)) = open.next() {
        tracing::warn!(
            "aclfile or user lets the user 'default' take any password (nopass), and requirepass is set: \
             it has that password"
        );
        default.set_password(password);
    }
}

/// Writes the ACL file: a whole one takes the place of the one before.
pub fn write_file(path: &str, directory: &Directory) -> std::io::Result<()> {
    let mut text = Vec::new();
    for line in directory.lines() {
        text.extend_from_slice(&line);
        text.push(b'\n');
    }
    replace_file(Path::new(path), &text)
}

/// A password of so many bits that nobody guesses, in hexadecimal digits.
pub fn random_password(bits: usize) -> std::io::Result<String> {
    use std::io::Read;
    let mut bytes = vec![0; bits.div_ceil(8)];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(bits.div_ceil(4));
    Ok(text)
}
