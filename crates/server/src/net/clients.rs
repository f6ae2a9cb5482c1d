//! The connections of all I/O threads, as CLIENT LIST, CLIENT KILL and INFO see them.
//!
//! Each connection has a [`Client`] that its own thread updates with relaxed stores, a few per round, and
//! that others read. The list is locked only to connect, to disconnect, and to look at it.

use super::mailbox::Mailbox;
use crate::hub::{PushBudget, PushQueue};
use parking_lot::Mutex;
use redis_surface::acl::DEFAULT_USER;
use redis_surface::table::CommandNumber;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use txn::{Blob, SessionId};

/// Of [`Client::tracking`]: it is told.
pub const TRACKS: usize = 1;
/// Of [`Client::tracking`]: of all keys with certain prefixes.
pub const BROADCAST: usize = 2;
/// Of [`Client::tracking`]: who was told for it is gone.
pub const REDIRECTION_BROKEN: usize = 4;

/// What a client told of itself.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// CLIENT SETNAME.
    pub name: String,
    /// CLIENT SETINFO LIB-NAME.
    pub library: String,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: String,
}

/// What others may know of a connection.
pub struct Client {
    /// CLIENT ID.
    pub id: u64,
    /// Where it comes from.
    pub address: SocketAddr,
    /// Where it arrived.
    pub local_address: SocketAddr,
    /// When it connected, in milliseconds since 1970.
    pub connected_ms: u64,
    /// When it last sent something, in milliseconds since 1970.
    pub active_ms: AtomicU64,
    /// The number of its last command, plus one; 0 before the first.
    last_command: AtomicUsize,
    /// Commands in its open MULTI block, plus one; 0 without one.
    pub block: AtomicUsize,
    /// Bytes of those commands.
    pub block_bytes: AtomicUsize,
    /// Watched keys.
    pub watched: AtomicUsize,
    /// 2 or 3.
    pub protocol: AtomicUsize,
    /// Unread bytes of its commands.
    pub input_bytes: AtomicUsize,
    /// Unsent bytes of its replies.
    pub output_bytes: AtomicUsize,
    /// What its unsent replies take for themselves: long values are not copied.
    pub buffer_bytes: AtomicUsize,
    /// The long values of its unsent replies, which the store may have let go of.
    pub value_bytes: AtomicUsize,
    /// Its requests that are unfinished.
    pub unfinished: AtomicUsize,
    /// READONLY.
    pub readonly: AtomicBool,
    /// CLIENT NO-EVICT ON. Changed by [`Clients::set_no_evict`] only.
    no_evict: AtomicBool,
    /// Must be closed by its thread.
    pub killed: AtomicBool,
    /// The memory that it takes, as it counts for `maxmemory-clients`.
    memory_bytes: AtomicUsize,
    /// What others push to it.
    pub pushes: Arc<PushQueue>,
    /// Its user.
    pub user: Mutex<Blob>,
    /// What it told.
    pub labels: Mutex<Labels>,
    /// The order's name for it.
    pub session: SessionId,
    /// Where its thread looks.
    pub mailbox: Arc<Mailbox>,
    /// What it listens to: channels, patterns, shard channels.
    pub subscriptions: [AtomicUsize; 3],
    /// Whether it waits for a key.
    pub blocked: AtomicBool,
    /// Whether its command waits for the end of CLIENT PAUSE, or for room.
    pub paused: AtomicBool,
    /// How often it has waited for a key: the number of the present wait, or of the last one.
    pub waits: AtomicU64,
    /// MONITOR.
    pub monitors: AtomicBool,
    /// Whether it is told when keys that it has read are written, and in which way: letters of CLIENT LIST,
    /// or 0.
    pub tracking: AtomicUsize,
    /// The connection that is told so for it.
    pub redirect: AtomicU64,
}

/// What is known of a new connection.
pub struct Arrival {
    /// Where it comes from.
    pub address: SocketAddr,
    /// Where it arrived.
    pub local_address: SocketAddr,
    /// When, in milliseconds since 1970.
    pub now_ms: u64,
}

impl Client {
    /// Asks its thread to close it.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::SeqCst);
        self.mailbox.announce_kill();
    }

    /// Remembers its last command.
    #[inline]
    pub fn note_command(&self, number: CommandNumber) {
        self.last_command.store(number.index() + 1, Ordering::Relaxed);
    }

    fn last_command_name(&self) -> &'static str {
        let index = self.last_command.load(Ordering::Relaxed).checked_sub(1);
        let number = index.and_then(CommandNumber::of_index);
        number.map_or("NULL", |number| number.command().name)
    }

    /// Whether it listens to channels.
    pub fn listens(&self) -> bool {
        let mut counts = self.subscriptions.iter();
        counts.any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Whether its command waits, for whatever may last: Redis calls it blocked.
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed) || self.paused.load(Ordering::Relaxed)
    }

    /// Its line in CLIENT LIST, without the line's end.
    pub fn line(&self, now_ms: u64) -> String {
        let load = |number: &AtomicUsize| number.load(Ordering::Relaxed);
        let block = load(&self.block);
        let [channels, patterns, shards] = self.subscriptions.each_ref().map(load);
        let tracking = load(&self.tracking);
        let letters = [
            (self.monitors.load(Ordering::Relaxed), "O"),
            (channels + patterns + shards > 0, "P"),
            (block > 0, "x"),
            (self.is_blocked(), "b"),
            (tracking & TRACKS != 0, "t"),
            (tracking & REDIRECTION_BROKEN != 0, "R"),
            (tracking & BROADCAST != 0, "B"),
            (self.readonly.load(Ordering::Relaxed), "r"),
            (self.no_evict.load(Ordering::Relaxed), "e"),
        ];
        let flags: String = letters.iter().filter(|(is, _)| *is).map(|(_, letter)| *letter).collect();
        let flags = if flags.is_empty() { "N".to_owned() } else { flags };
        let redirect = match (tracking & TRACKS, self.redirect.load(Ordering::Relaxed)) {
            (0, _) => -1,
            (_, id) => id.cast_signed(),
        };
        let labels = self.labels.lock().clone();
        let user = String::from_utf8_lossy(&self.user.lock()).into_owned();
        let command = self.last_command_name();
        format!(
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={flags} db=0 sub={channels} \
             psub={patterns} ssub={shards} multi={} qbuf={} qbuf-free=0 argv-mem=0 multi-mem={} rbs={} \
             rbp={} obl=0 oll={} omem={} tot-mem={} events=r cmd={command} user={user} redir={redirect} \
             resp={} lib-name={} lib-ver={} watch={}",
            self.id,
            self.address,
            self.local_address,
            labels.name,
            now_ms.saturating_sub(self.connected_ms) / 1000,
            now_ms.saturating_sub(self.active_ms.load(Ordering::Relaxed)) / 1000,
            block as isize - 1,
            load(&self.input_bytes),
            load(&self.block_bytes),
            load(&self.buffer_bytes),
            load(&self.buffer_bytes),
            load(&self.unfinished),
            load(&self.output_bytes),
            [&self.input_bytes, &self.block_bytes, &self.buffer_bytes, &self.value_bytes]
                .into_iter()
                .map(load)
                .sum::<usize>(),
            load(&self.protocol),
            labels.library,
            labels.library_version,
            load(&self.watched),
        )
    }
}

/// All connections.
#[derive(Default)]
pub struct Clients {
    by_id: Mutex<BTreeMap<u64, Arc<Client>>>,
    last_id: AtomicU64,
    count: AtomicUsize,
    /// Connections with CLIENT NO-EVICT: `no_evict_count <= count`.
    no_evict_count: AtomicUsize,
    /// The memory of all of them.
    memory_bytes: AtomicUsize,
    evicted: AtomicU64,
    budget: Arc<PushBudget>,
}

/// What a connection takes with all its buffers empty, about.
const CLIENT_BYTES: usize = 4 << 10;
/// A change of a connection's memory is told to the others when it comes to so many bytes.
const TOLD_BYTES: usize = 16 << 10;
/// So many bytes of replies a client may leave unread before its next commands wait, where memory is ample.
const UNREAD_MAX: usize = 64 << 20;
/// And so many where it is not.
const UNREAD_MIN: usize = 1 << 20;
/// Memory is ample while all connections together take less.
const AMPLE: usize = 256 << 20;

impl Clients {
    /// Nobody yet. What is pushed to clients counts against a budget.
    pub fn new(budget: Arc<PushBudget>) -> Clients {
        Clients { budget, ..Clients::default() }
    }

    /// Bytes of replies that a client may leave unread before its next commands wait.
    pub fn unread_max(&self) -> usize {
        match self.memory_bytes() < AMPLE {
            true => UNREAD_MAX,
            false => UNREAD_MIN,
        }
    }

    /// The memory of all connections.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// How many connections were closed for their memory since the start.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// A connection takes so much memory beside what it takes anyway. Called by its thread.
    pub fn note_memory(&self, client: &Client, bytes: usize) {
        let bytes = bytes + CLIENT_BYTES;
        let before = client.memory_bytes.load(Ordering::Relaxed);
        if before.abs_diff(bytes) >= TOLD_BYTES && !client.killed.load(Ordering::Relaxed) {
            client.memory_bytes.store(bytes, Ordering::Relaxed);
            // Wraps where it is less than before.
            self.memory_bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// CLIENT NO-EVICT. Called by the connection's thread.
    pub fn set_no_evict(&self, client: &Client, on: bool) {
        match (client.no_evict.swap(on, Ordering::Relaxed), on) {
            (false, true) => self.no_evict_count.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.no_evict_count.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
    }

    /// Closes the connections that take the most memory until all of them take no more than `limit` (0: no
    /// limit).
    ///
    /// A connection with CLIENT NO-EVICT counts, as in Redis, and stays: where such connections alone take
    /// more than `limit`, all others are closed. From then on a call looks at three counters only, until
    /// another connection comes.
    pub fn evict(&self, limit: u64) {
        let is_above = limit > 0 && self.memory_bytes() as u64 > limit;
        if !is_above || self.no_evict_count.load(Ordering::Relaxed) >= self.count() {
            return;
        }
        let by_id = self.by_id.lock();
        let memory_of = |client: &Client| client.memory_bytes.load(Ordering::Relaxed);
        let (leaving, staying): (Vec<_>, Vec<_>) =
            by_id.values().partition(|client| client.killed.load(Ordering::Relaxed));
        // A killed connection counts in the sum until its thread has closed it.
        let leaving_bytes = leaving.iter().map(|client| memory_of(client)).sum::<usize>();
        let total_bytes = self.memory_bytes().saturating_sub(leaving_bytes);
        let mut excess = (total_bytes as u64).saturating_sub(limit);
        if excess == 0 {
            return;
        }
        let may_go = |client: &&Arc<Client>| !client.no_evict.load(Ordering::Relaxed);
        let mut victims: Vec<_> = staying.into_iter().filter(may_go).collect();
        victims.sort_by_key(|client| std::cmp::Reverse(memory_of(client)));
        for victim in victims {
            if excess == 0 {
                break;
            }
            let bytes = memory_of(victim);
            excess = excess.saturating_sub(bytes as u64);
            tracing::warn!(
                "closing client {}: it takes {bytes} bytes, and all clients together take more than \
                 maxmemory-clients allows",
                victim.address
            );
            self.evicted.fetch_add(1, Ordering::Relaxed);
            victim.kill();
        }
    }

    /// Takes a new connection, unless `count_max` are open.
    pub fn connect(
        &self,
        arrival: Arrival,
        session: SessionId,
        mailbox: Arc<Mailbox>,
        count_max: usize,
    ) -> Option<Arc<Client>> {
        if self.count.fetch_add(1, Ordering::SeqCst) >= count_max {
            self.count.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        let client = Arc::new(Client {
            id: self.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            address: arrival.address,
            local_address: arrival.local_address,
            connected_ms: arrival.now_ms,
            active_ms: AtomicU64::new(arrival.now_ms),
            last_command: AtomicUsize::new(0),
            block: AtomicUsize::new(0),
            block_bytes: AtomicUsize::new(0),
            watched: AtomicUsize::new(0),
            protocol: AtomicUsize::new(2),
            input_bytes: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            buffer_bytes: AtomicUsize::new(0),
            value_bytes: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
            readonly: AtomicBool::new(false),
            no_evict: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            memory_bytes: AtomicUsize::new(0),
            pushes: Arc::new(PushQueue::new(&self.budget)),
            user: Mutex::new(Blob::new(DEFAULT_USER)),
            labels: Mutex::default(),
            session,
            mailbox,
            subscriptions: Default::default(),
            blocked: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            waits: AtomicU64::new(0),
            monitors: AtomicBool::new(false),
            tracking: AtomicUsize::new(0),
            redirect: AtomicU64::new(0),
        });
        self.by_id.lock().insert(client.id, client.clone());
        Some(client)
    }

    /// Forgets a connection.
    pub fn disconnect(&self, client: &Client) {
        if self.by_id.lock().remove(&client.id).is_some() {
            self.set_no_evict(client, false);
            self.count.fetch_sub(1, Ordering::SeqCst);
            let bytes = client.memory_bytes.swap(0, Ordering::Relaxed);
            self.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// How many connections are open.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// A connection by its number.
    pub fn by_id(&self, id: u64) -> Option<Arc<Client>> {
        self.by_id.lock().get(&id).cloned()
    }

    /// All connections, oldest first.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.by_id.lock().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::sync::mpsc;
    use std::time::Duration;

    const MIB: usize = 1 << 20;

    /// Connections that take so many mebibytes each.
    fn connected(mebibytes: &[usize]) -> (Clients, Vec<Arc<Client>>) {
        let mailbox = Arc::new(Mailbox::new(|| Ok(())));
        let clients = Clients::default();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 6379));
        let connect = |&mebibytes: &usize| {
            let arrival = Arrival { address, local_address: address, now_ms: 0 };
            let client = clients.connect(arrival, SessionId(1), mailbox.clone(), usize::MAX).expect("room");
            clients.note_memory(&client, mebibytes * MIB);
            client
        };
        let all = mebibytes.iter().map(connect).collect();
        (clients, all)
    }

    fn closed(all: &[Arc<Client>]) -> Vec<bool> {
        all.iter().map(|client| client.killed.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn a_connection_with_no_evict_counts_and_others_are_closed() {
        let (clients, all) = connected(&[30, 1, 0, 2]);
        clients.set_no_evict(&all[0], true);
        clients.evict(32 * MIB as u64);
        assert_eq!(closed(&all), [false, false, false, true], "the largest of the others");
        clients.evict(32 * MIB as u64);
        assert_eq!(clients.evicted(), 1, "what is about to be closed is enough");
        clients.evict(20 * MIB as u64);
        assert_eq!(closed(&all), [false, true, true, true], "nothing else may be closed");
        clients.set_no_evict(&all[0], false);
        clients.evict(20 * MIB as u64);
        assert_eq!(closed(&all), [true; 4]);
        assert_eq!(clients.evicted(), 4);
        all.iter().for_each(|client| clients.disconnect(client));
        assert_eq!(clients.memory_bytes(), 0);
    }

    #[test]
    fn connections_are_not_searched_where_none_may_be_closed() {
        let (clients, all) = connected(&[30, 1, 0]);
        for client in &all[..2] {
            clients.set_no_evict(client, true);
            clients.set_no_evict(client, true);
        }
        clients.disconnect(&all[2]);
        let list = clients.by_id.lock();
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let clients = &clients;
            scope.spawn(move || {
                clients.evict(1);
                sender.send(()).expect("the test waits");
            });
            let ended = receiver.recv_timeout(Duration::from_secs(5));
            drop(list);
            assert_eq!(ended, Ok(()), "it waits for the list");
        });
        clients.set_no_evict(&all[1], false);
        clients.disconnect(&all[0]);
        clients.evict(1);
        assert_eq!(closed(&all), [false, true, false]);
    }
}
