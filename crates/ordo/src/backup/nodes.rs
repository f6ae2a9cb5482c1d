//! The nodes that a backup is made of, and the order as their journals tell it.
//!
//! Each node tells what it has of the groups whose logs it keeps. One node gives the batches of a group until
//! it is gone; then another one does. What a journal has may still be replaced by another leader's entries,
//! so batches wait here until they are agreed; they wait, too, until the batches of all groups are there for
//! their epoch. The node that is furthest behind is asked first, so that little waits.

use super::format::Tip;
use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use order::GroupBatch;
use server::backup::{BackupPlace, ChangesPlace, FilePart, GroupNews, LogPart};
use server::client::{Access, Answer, Client};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// And where it is only asked how far it is.
const LOOK_PATIENCE: Duration = Duration::from_secs(3);
/// How long a node may take to write a checkpoint.
const SAVE_PATIENCE: Duration = Duration::from_secs(600);

/// How long to wait before nodes are asked again that had nothing new, or that do not answer.
pub const PAUSE: Duration = Duration::from_millis(100);
/// After so long without anything new, nodes besides the tellers are asked how far they are.
const STILL_MAX: Duration = Duration::from_secs(10);
/// How long nodes may take to have what another one has told before.
const CHECK_PATIENCE: Duration = Duration::from_secs(10);

/// Why the order cannot be followed from where the backup is.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// A node, or the way to it. Another one may have what is wanted.
    #[error("{0:#}")]
    Node(anyhow::Error),
    /// The node's log does not have what follows. If no other node's has it, a new checkpoint is needed.
    #[error("{address} does not have what follows any more: {why}")]
    Order {
        /// Where the node answers.
        address: String,
        /// Why.
        why: &'static str,
    },
    /// The database has another past than the backup: a new checkpoint is needed.
    #[error(
        "the database has another past at epoch {0} than what was taken from it: it was restored, or has \
         lost its last writes"
    )]
    Past(u64),
    /// The node does not come as far as others do. It may still have what follows.
    #[error("{0} lags behind the others")]
    Lags(String),
}

impl From<anyhow::Error> for FollowError {
    fn from(error: anyhow::Error) -> FollowError {
        FollowError::Node(error)
    }
}

/// A node's refusal: asking it again changes nothing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

/// An error reply of a node.
fn error_reply(address: &str, text: &str) -> anyhow::Error {
    let refusals = ["NOPERM", "NOAUTH", "WRONGPASS", "DENIED"];
    let is_refusal = refusals.iter().any(|code| text.starts_with(code))
        || text.contains("unknown command")
        || text.contains("is not served with protocol");
    match is_refusal {
        true => anyhow!(Refused(format!("{address}: {text}"))),
        false => anyhow!("{address}: {text}"),
    }
}

/// A node that answers.
pub struct BackupNode {
    pub address: String,
    client: Client,
    pub place: BackupPlace,
}

impl BackupNode {
    fn open(address: &str, access: &Access, patience: Duration) -> Result<BackupNode> {
        let mut client = access.open(address, patience)?;
        if let Some(Answer::Error(text)) = access.log_in(&mut client)? {
            if text.starts_with("LOADING") {
                bail!("{address}: {text}");
            }
            let text =
                format!("{address} does not take the password ({text}): correct --user and --password");
            return Err(anyhow!(Refused(text)));
        }
        let place = place_of(&mut client, address)?;
        Ok(BackupNode { address: address.to_owned(), client, place })
    }

    /// Asks where it is now.
    pub fn look(&mut self) -> Result<()> {
        let place = place_of(&mut self.client, &self.address)?;
        if (&place.cluster, place.partitions) != (&self.place.cluster, self.place.partitions) {
            bail!("{} is a node of another cluster by now", self.address);
        }
        self.place = place;
        Ok(())
    }

    /// From which epochs on it can tell of changes.
    pub fn changes_place(&mut self) -> Result<ChangesPlace> {
        match self.client.call(&["ORDO.CHANGES"])? {
            Answer::Text(json) => serde_json::from_str(&json).with_context(|| self.is_strange()),
            Answer::Error(text) => Err(error_reply(&self.address, &text)),
            answer => bail!("{} replied {answer:?}", self.address),
        }
    }

    /// Part of a checkpoint's file; `None` if the node does not have it.
    pub fn file(&mut self, partition: u16, epoch: u64, offset: u64) -> Result<Option<FilePart>> {
        let numbers = [u64::from(partition), epoch, offset].map(|number| number.to_string());
        let words = ["ORDO.BACKUP", "FILE", &numbers[0], &numbers[1], &numbers[2]];
        match self.client.call_for_bytes(&words)? {
            Ok(bytes) => FilePart::decode(&bytes).map(Some).with_context(|| self.is_strange()),
            Err(text) if text.starts_with("GONE") => Ok(None),
            Err(text) => Err(error_reply(&self.address, &text)),
        }
    }

    /// What its journal has of the order; `None` if it no longer has that.
    fn log(&mut self, behind: u64, from: Option<&str>) -> Result<Option<LogPart>> {
        let numbers = [self.place.record, behind].map(|number| number.to_string());
        let mut words = vec!["ORDO.BACKUP", "LOG", &numbers[0], &numbers[1]];
        words.extend(from);
        match self.client.call_for_bytes(&words)? {
            Ok(bytes) => LogPart::decode(&bytes).map(Some).with_context(|| self.is_strange()),
            Err(text) if text.starts_with("GONE") => Ok(None),
            Err(text) => Err(error_reply(&self.address, &text)),
        }
    }

    fn is_strange(&self) -> String {
        format!("{} replied what this `ordo` does not understand: use one of its version", self.address)
    }
}

fn place_of(client: &mut Client, address: &str) -> Result<BackupPlace> {
    match client.call(&["ORDO.BACKUP", "WHERE"])? {
        Answer::Text(json) => Ok(serde_json::from_str(&json)
            .with_context(|| format!("{address} replied what this `ordo` does not understand"))?),
        Answer::Error(text) => Err(error_reply(address, &text)),
        answer => bail!("{address} replied {answer:?}"),
    }
}

/// Has a checkpoint of the whole cluster taken. Gives its epoch.
pub fn take_checkpoint(address: &str, access: &Access) -> Result<u64> {
    let mut node = BackupNode::open(address, access, SAVE_PATIENCE)?;
    match node.client.call(&["SAVE"])? {
        Answer::Text(_) => {}
        Answer::Error(text) => return Err(error_reply(address, &text)),
        answer => bail!("{address} takes no checkpoint: {answer:?}"),
    }
    node.look()?;
    match node.place.checkpoint {
        0 => bail!("{address} has no checkpoint, though it was asked for one"),
        epoch => Ok(epoch),
    }
}

/// Notices that the nodes which tell the order have another past, or are left behind by the others.
pub struct Watch {
    /// When the order went on last, and when nodes besides the tellers were asked last.
    moved_at: Instant,
    asked_at: Instant,
    /// What the nodes last said: the newest agreed epoch, and its time.
    pub newest: (u64, u64),
}

impl Watch {
    /// Begins at a place.
    pub fn at(tip: &Tip) -> Watch {
        let now = Instant::now();
        Watch { moved_at: now, asked_at: now, newest: (tip.epoch, tip.time_ms) }
    }

    /// The order has gone on.
    pub fn moved(&mut self) {
        self.moved_at = Instant::now();
    }

    /// Looks at what the nodes say of where they are, from the end of what was taken of the order. Asks the
    /// other nodes how far they are, where these have told nothing new for a while: one that is cut off from
    /// a majority answers, too.
    ///
    /// # Errors
    /// The nodes have another past, or lag behind the others.
    pub fn look(&mut self, nodes: &BackupNodes, tip: &Tip, access: &Access) -> Result<(), FollowError> {
        for node in &nodes.nodes {
            let place = &node.place;
            self.newest = self.newest.max((place.epoch, place.time_ms));
            if place.epoch == tip.epoch && place.digest != tip.digest_text() {
                return Err(FollowError::Past(tip.epoch));
            }
        }
        if self.moved_at.elapsed() < STILL_MAX || self.asked_at.elapsed() < STILL_MAX {
            return Ok(());
        }
        self.asked_at = Instant::now();
        let Some(newest) = nodes.newest_elsewhere(access) else { return Ok(()) };
        if newest.0 <= self.newest.0 {
            return Ok(());
        }
        self.newest = newest;
        let last = nodes.nodes.iter().min_by_key(|node| node.place.epoch);
        let address = last.map(|node| node.address.clone()).unwrap_or_default();
        Err(FollowError::Lags(address))
    }
}

/// What is known of a group's log, at the node that tells of it.
struct GroupLog {
    /// Batches by their index that are not known to be agreed. Empty ones are none.
    waiting: BTreeMap<u64, Bytes>,
    /// The epoch of the next batch to be agreed; [`NEVER`] once it is known to be missing.
    next_epoch: u64,
}

/// No batch is of this epoch.
const NEVER: u64 = u64::MAX;

/// BackupNodes that have all groups together, and what they told behind a place.
pub struct BackupNodes {
    pub nodes: Vec<BackupNode>,
    /// Where all nodes are said to be.
    addresses: Vec<String>,
    /// Which node tells of each group.
    tellers: Vec<usize>,
    groups: Vec<GroupLog>,
    /// Where each node's journal is read next.
    places: Vec<Option<String>>,
    /// BackupNodes that have told all up to the record that was the last one.
    reached: BTreeSet<usize>,
    /// Agreed batches, by epoch and group.
    agreed: BTreeMap<u64, Vec<Option<Bytes>>>,
}

impl BackupNodes {
    /// Connects to nodes until all groups have one, the first of these addresses first; adds the addresses
    /// that nodes tell. `avoid` are nodes that have nothing to tell.
    ///
    /// # Errors
    /// [`FollowError::Order`] if the nodes that answer have all groups only together with one in `avoid`: a
    /// node that does not answer, or a stale address, must not hide that what follows is gone.
    pub fn connect(
        all: &mut Vec<String>,
        access: &Access,
        avoid: &BTreeSet<String>,
    ) -> Result<BackupNodes, FollowError> {
        let mut problems = Vec::new();
        let mut refused = None;
        let mut nodes: Vec<BackupNode> = Vec::new();
        let mut at = 0;
        let mut tellers: Vec<Option<usize>> = Vec::new();
        while at < all.len() && (tellers.is_empty() || tellers.contains(&None)) {
            let address = all[at].clone();
            at += 1;
            if avoid.contains(&address) {
                problems.push(format!("{address} no longer has what is wanted"));
                continue;
            }
            let node = match BackupNode::open(&address, access, PATIENCE) {
                Ok(node) => node,
                Err(error) if error.is::<Refused>() => {
                    problems.push(format!("{error:#}"));
                    refused.get_or_insert(error);
                    continue;
                }
                Err(error) => {
                    problems.push(format!("{address}: {error:#}"));
                    continue;
                }
            };
            if nodes.iter().any(|known| known.place.node == node.place.node) {
                continue;
            }
            if nodes.first().is_some_and(|first| first.place.cluster != node.place.cluster) {
                problems.push(format!("{address} is a node of another cluster"));
                continue;
            }
            tellers.resize(usize::from(node.place.partitions), None);
            let number = nodes.len();
            let mut is_of_use = false;
            for (partition, teller) in tellers.iter_mut().enumerate() {
                if teller.is_none() && node.place.agreed.contains_key(&(partition as u16)) {
                    *teller = Some(number);
                    is_of_use = true;
                }
            }
            let others = node.place.addresses.iter().filter(|address| !address.is_empty());
            let others: Vec<String> = others.filter(|address| !all.contains(address)).cloned().collect();
            all.extend(others);
            if is_of_use {
                nodes.push(node);
            }
        }
        let known: Option<Vec<usize>> = tellers.iter().copied().collect();
        match known.filter(|known| !known.is_empty()) {
            Some(tellers) => Ok(BackupNodes {
                places: vec![None; nodes.len()],
                addresses: all.clone(),
                groups: Vec::new(),
                reached: BTreeSet::new(),
                agreed: BTreeMap::new(),
                nodes,
                tellers,
            }),
            None if refused.is_some() => Err(FollowError::Node(anyhow!(Refused(problems.join("\n  "))))),
            None => Err(match all.iter().find(|&address| avoid.contains(address)) {
                Some(first) => FollowError::Order {
                    address: first.clone(),
                    why: "the other nodes that answer do not have it, either",
                },
                None => FollowError::Node(anyhow!(
                    "the nodes that answer do not have all partitions together:\n  {}",
                    problems.join("\n  ")
                )),
            }),
        }
    }

    /// The newest agreed epoch, and its time, of the nodes of this cluster that tell nothing here.
    pub fn newest_elsewhere(&self, access: &Access) -> Option<(u64, u64)> {
        let others =
            self.addresses.iter().filter(|&address| self.nodes.iter().all(|node| node.address != *address));
        let places =
            others.filter_map(|address| Some(BackupNode::open(address, access, LOOK_PATIENCE).ok()?.place));
        let of_this = places.filter(|place| place.cluster == self.nodes[0].place.cluster);
        of_this.map(|place| (place.epoch, place.time_ms)).max()
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> usize {
        self.tellers.len()
    }

    /// The node that tells of a partition.
    pub fn teller(&mut self, partition: u16) -> &mut BackupNode {
        let teller = self.tellers[usize::from(partition)];
        &mut self.nodes[teller]
    }

    /// Follows the order from behind an epoch, which the backup has.
    pub fn begin_behind(&mut self, epoch: u64) {
        let group = || GroupLog { waiting: BTreeMap::new(), next_epoch: epoch + 1 };
        self.groups = self.tellers.iter().map(|_| group()).collect();
        self.places = vec![None; self.nodes.len()];
        self.agreed.clear();
        self.reached = (0..self.nodes.len()).collect();
    }

    /// Follows the order from behind the epoch at whose end `tip` is, if the nodes had the same batches in
    /// that epoch as whoever was at `before`, its beginning, and came from there to `tip`.
    ///
    /// # Errors
    /// [`FollowError::Past`] if they had others. A [`FollowError::Node`] if they do not have the epoch in
    /// time: they may lag, or a majority may be away, so that proves nothing.
    pub fn begin_behind_known(&mut self, before: &Tip, tip: &Tip) -> Result<(), FollowError> {
        self.begin_behind(before.epoch);
        let began = Instant::now();
        while began.elapsed() < CHECK_PATIENCE {
            self.look()?;
            // No further than to that epoch: there may be much behind it.
            loop {
                if let Some(batches) = self.next(before) {
                    return match before.after(&batches)?.digest == tip.digest {
                        true => Ok(()),
                        false => Err(FollowError::Past(tip.epoch)),
                    };
                }
                if self.is_read() {
                    break;
                }
                self.read(before)?;
            }
            std::thread::sleep(PAUSE);
        }
        Err(self.not_yet(tip.epoch))
    }

    /// The nodes do not have an epoch that another one has told before.
    pub fn not_yet(&self, epoch: u64) -> FollowError {
        let newest = self.nodes.iter().map(|node| node.place.epoch).max().unwrap_or(0);
        let addresses: Vec<&str> = self.nodes.iter().map(|node| node.address.as_str()).collect();
        FollowError::Node(anyhow!(
            "{} do not have epoch {epoch} yet, only {newest}: they lag, or no majority answers, or the \
             database was restored to an earlier moment, which shows once it comes to that epoch",
            addresses.join(", ")
        ))
    }

    /// Asks all nodes where they are: what they have by now is to be read.
    pub fn look(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            node.look()?;
        }
        self.reached.clear();
        Ok(())
    }

    /// Whether all is read that the nodes had when they were last asked where they are.
    pub fn is_read(&self) -> bool {
        self.reached.len() == self.nodes.len()
    }

    /// Reads a part of a journal: of the node that is furthest behind.
    pub fn read(&mut self, tip: &Tip) -> Result<(), FollowError> {
        let next_of = |node: usize| {
            let groups = self.groups.iter().zip(&self.tellers);
            groups.filter(|(_, teller)| **teller == node).map(|(group, _)| group.next_epoch).min()
        };
        let unread = (0..self.nodes.len()).filter(|node| !self.reached.contains(node));
        let Some(number) = unread.min_by_key(|&node| next_of(node)) else {
            return Ok(());
        };
        let from = self.places[number].clone();
        let part = self.nodes[number].log(tip.epoch, from.as_deref())?;
        let Some(part) = part else {
            return Err(self.gone(number, "its log was cut there"));
        };
        self.places[number] = Some(part.next.to_string());
        for news in part.news {
            self.take(number, news);
        }
        let place = self.nodes[number].place.clone();
        // What a server by itself has written is never replaced.
        if part.reached || place.alone {
            for (&partition, &index) in &place.agreed {
                self.agree(number, usize::from(partition), index);
            }
        }
        if part.reached {
            self.reached.insert(number);
        }
        let mut ahead = self.groups.iter().zip(&self.tellers).filter(|(_, teller)| **teller == number);
        let has_gap = ahead.any(|(group, _)| group.next_epoch == NEVER);
        match has_gap {
            true => Err(self.gone(number, "its log begins later")),
            false => Ok(()),
        }
    }

    fn gone(&self, number: usize, why: &'static str) -> FollowError {
        FollowError::Order { address: self.nodes[number].address.clone(), why }
    }

    fn take(&mut self, number: usize, news: GroupNews) {
        let place = usize::from(news.partition.0);
        if self.tellers.get(place) != Some(&number) {
            return;
        }
        let group = &mut self.groups[place];
        if news.resets {
            group.waiting.clear();
        }
        for (index, data) in news.entries {
            group.waiting.split_off(&index);
            group.waiting.insert(index, data);
        }
        if let Some(agreed) = news.agreed {
            self.agree(number, place, agreed);
        }
    }

    /// A group has agreed on its log up to an index, as the node says that tells of it.
    fn agree(&mut self, number: usize, place: usize, index: u64) {
        if self.tellers.get(place) != Some(&number) {
            return;
        }
        let groups = self.tellers.len();
        let group = &mut self.groups[place];
        while let Some(entry) = group.waiting.first_entry().filter(|entry| *entry.key() <= index) {
            let data = entry.remove();
            let Some(epoch) = GroupBatch::epoch_of(&data) else { continue };
            if epoch.0 == group.next_epoch {
                group.next_epoch += 1;
                let batches = self.agreed.entry(epoch.0).or_insert_with(|| vec![None; groups]);
                batches[place] = Some(data);
            } else if epoch.0 > group.next_epoch {
                group.next_epoch = NEVER;
                return;
            }
        }
    }

    /// Takes out the next epoch, if the batches of all groups are there.
    pub fn next(&mut self, tip: &Tip) -> Option<Vec<Bytes>> {
        let first = self.agreed.first_entry().filter(|first| *first.key() == tip.epoch + 1)?;
        let whole: Option<Vec<Bytes>> = first.get().iter().cloned().collect();
        let whole = whole?;
        first.remove();
        Some(whole)
    }
}
