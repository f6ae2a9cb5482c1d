//! `cluster.toml`: the description of a cluster, the same file at every node.
//!
//! It says who the nodes are and how they wait for each other. The nodes without `joins` are the cluster's
//! *founders*: the first partition map is made from them, in the order of the file, so it must be the same at
//! all of them. From then on the map is replicated state, and a node that has data goes by that. A node with
//! `joins = true` was not there in the beginning: it makes no map of its own and learns the cluster's from
//! its peers, once `ordo admin add-node` has named it.
//!
//! Reading goes in two steps: `file` says what the text holds, key by key and with the place of each value,
//! and `check` whether that makes sense, alone and together. Every error names the file, the line and the
//! key, and none shows the line itself: it may hold the secret.

mod check;
mod file;
mod protocol;
mod replicas;
#[cfg(test)]
mod tests;

use agree::Delivery;
use certify::hierarchy::Control;
use execute::EngineKind;
use order::{Described, MapError, PartitionMap};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use txn::NodeId;
use txn::hash::hash_bytes;

pub use protocol::{HeldOpen, Protocol, Sites, Validator, Validators};

/// A shared secret's least length, in characters.
pub const SECRET_CHARACTERS_MIN: usize = 16;

/// What the nodes of a cluster prove to each other that they know. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret itself.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Where the leaders of the partitions should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaders {
    /// Spread over the zones: see [`PartitionMap::preferred_leader`].
    Spread,
    /// In the zone of this name, as long as it can.
    Zone(String),
}

/// One `[[node]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its name, which no other node has.
    pub name: String,
    /// Its zone's name.
    pub zone: String,
    /// Where other nodes reach it: host and port.
    pub peer_address: String,
    /// Where clients reach it: host and port.
    pub client_address: String,
    /// Whether it joins a cluster that was founded without it.
    pub joins: bool,
}

/// A cluster's description. One that exists has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Names the cluster.
    pub name: String,
    /// What its nodes prove to each other that they know: at least [`SECRET_CHARACTERS_MIN`] characters.
    pub secret: Secret,
    /// The number of partitions of the first map.
    pub partitions: u16,
    /// Which protocol the nodes run.
    pub protocol: Protocol,
    /// How all nodes execute transactions, if the file says it.
    pub engine: Option<EngineKind>,
    /// How the replicas of a partition agree.
    pub delivery: Delivery,
    /// How often a leader makes itself heard.
    pub heartbeat_ms: u64,
    /// How long a leader may be silent before it is replaced: at least four heartbeats.
    pub election_timeout_ms: u64,
    /// How far a leader's clock may be ahead of a majority's before it steps down.
    pub clock_ahead_ms_max: u64,
    /// How long a request may take before its client gets an error, and does not know whether it took effect.
    pub request_timeout_ms: u64,
    /// How old the data may be that a READONLY connection gets.
    pub staleness_ms_max: u64,
    /// Where the leaders of the partitions should be.
    pub leaders: Leaders,
    /// The nodes, in the order of the file. There may be no founder left: the first map is then known to
    /// those who have it.
    pub nodes: Vec<ClusterNode>,
    /// What is allowed, and probably not meant: for the log, at start.
    pub warnings: Vec<String>,
}

/// Why a file describes no cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterConfigError {
    /// It, or the file with the secret, could not be read.
    #[error("{path}: the file with {what} cannot be read: {cause}. {advice}")]
    Unreadable {
        /// The file.
        path: String,
        /// What should be in it.
        what: &'static str,
        /// Why.
        cause: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// What it says is wrong.
    #[error("{path}{}: {problem}", .line.map_or(String::new(), |line| format!(", line {line}")))]
    Wrong {
        /// The file.
        path: String,
        /// The line, counted from 1, if the problem has one.
        line: Option<usize>,
        /// The key, what is wrong with it, and what to do.
        problem: String,
    },
}

impl ClusterConfig {
    /// Reads and checks a file. A relative `secret_file` is looked for beside it.
    pub fn load(path: &Path) -> Result<ClusterConfig, ClusterConfigError> {
        let text = std::fs::read_to_string(path).map_err(|cause| ClusterConfigError::Unreadable {
            path: path.display().to_string(),
            what: "the cluster's description",
            cause,
            advice: "--cluster names it; every node needs a copy",
        })?;
        ClusterConfig::parse(&text, path)
    }

    /// Reads and checks the text of the file at `path`.
    pub fn parse(text: &str, path: &Path) -> Result<ClusterConfig, ClusterConfigError> {
        check::checked(file::File::parse(text, path)?, text, path)
    }

    /// The nodes out of which the first map is made, in its order.
    pub fn founders(&self) -> impl Iterator<Item = &ClusterNode> {
        self.nodes.iter().filter(|node| !node.joins)
    }

    /// The validators, if the cluster is a hierarchy.
    pub fn validators(&self) -> Option<&Validators> {
        self.protocol.validators()
    }

    /// The sites, if each commits alone.
    pub fn sites(&self) -> Option<&Sites> {
        self.protocol.sites()
    }

    /// Whether transactions are executed first and certified afterwards.
    pub fn is_certified(&self) -> bool {
        self.protocol != Protocol::Ordered
    }

    /// What tells apart hierarchies of other nodes, validators, hosts or control, and sites with other
    /// partitions. Where the nodes are may change.
    pub fn certified_digest(&self) -> u64 {
        let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        let mut text = format!("{} {}", self.name, names.join(" "));
        if let Some(validators) = self.validators() {
            text.push_str(match validators.control {
                Control::Locks => " locks",
                Control::Timestamps => " timestamps",
            });
            for (group, hosts) in validators.groups() {
                let parent = validators.tree.parent(group).map(|parent| parent.0);
                let hosts: Vec<u16> = hosts.iter().map(|host| host.0).collect();
                text.push_str(&format!("\n{} below {parent:?} at {hosts:?}", group.0));
            }
        }
        if let Some(sites) = self.sites() {
            text.push_str(" pcsi");
            let numbers = |sites: &[NodeId]| sites.iter().map(|site| site.0).collect::<Vec<u16>>();
            for (partition, (having, resolvers)) in sites.partitions.iter().zip(&sites.resolvers).enumerate()
            {
                let (having, resolvers) = (numbers(having), numbers(resolvers));
                text.push_str(&format!("\n{partition} at {having:?} resolved by {resolvers:?}"));
            }
        }
        hash_bytes(text.as_bytes())
    }

    /// The node of a name.
    pub fn node(&self, name: &str) -> Option<&ClusterNode> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The founders, as [`PartitionMap::new`] takes them.
    pub fn described(&self) -> Vec<Described> {
        let described = |node: &ClusterNode| Described {
            name: node.name.clone(),
            zone: node.zone.clone(),
            peer_address: node.peer_address.clone(),
            client_address: node.client_address.clone(),
        };
        self.founders().map(described).collect()
    }

    /// The cluster's first map.
    pub fn map(&self) -> Result<PartitionMap, MapError> {
        PartitionMap::new(&self.name, &self.described(), self.partitions)
    }
}

/// The longest name of a cluster, a zone or a node.
const NAME_CHARACTERS_MAX: usize = 64;

/// Why a text is no name, if it is none.
fn name_problem(what: &str, text: &str) -> Option<String> {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let is_name = (1..=NAME_CHARACTERS_MAX).contains(&text.len()) && text.chars().all(letter);
    (!is_name).then(|| {
        format!("{what} '{text}': a name is 1 to {NAME_CHARACTERS_MAX} letters, digits, '-', '_' and '.'")
    })
}

/// Why a text cannot be a node's name, and what to do; `None` if it can.
pub fn node_name_problem(name: &str) -> Option<String> {
    name_problem("the node's name", name).or_else(|| {
        name.bytes().all(|byte| byte.is_ascii_digit()).then(|| {
            format!(
                "the node's name '{name}': add a letter, or `ordo admin` would take it for a number that \
                 the cluster gave"
            )
        })
    })
}

/// Why nobody can connect to an address of this text, and what to do; `None` if somebody may. `key` says what
/// the address is for, as it is called where it was given.
pub fn address_problem(key: &str, text: &str) -> Option<String> {
    let Some((host, _)) = host_and_port(text) else {
        // Peers have ports of their own, so that the two are not mixed up.
        let port = if key.contains("peer") { 17001 } else { 7001 };
        return Some(format!(
            "{key} '{text}': it must be host:port, for example 10.0.0.1:{port}, node1.example:{port} or \
             [::1]:{port}"
        ));
    };
    let is_everywhere = |ip: std::net::IpAddr| ip.is_unspecified();
    (host == "*" || host.parse().is_ok_and(is_everywhere)).then(|| {
        format!(
            "{key} '{text}': others connect to this address, so it must be one of the node's own (what it \
             listens on can be set apart, with --bind)"
        )
    })
}

/// The host and the port of an address: `host:port`, `1.2.3.4:port` or `[::1]:port`. The host comes without
/// brackets.
pub fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|&port| digits && port > 0)?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').filter(|inner| inner.contains(':'))?,
        None if host.contains(':') => return None,
        None => host,
    };
    let plain = !host.is_empty()
        && !host.chars().any(|letter| letter.is_whitespace() || letter.is_control() || letter == '/');
    plain.then_some((host, port))
}

/// Where a `secret_file` is.
fn secret_path(path: &Path, name: &str) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).join(name)
}
