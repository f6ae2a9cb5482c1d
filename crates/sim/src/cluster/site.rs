//! What is to run at a host, and who it is: what outlives the host's processes.
//!
//! A real node keeps in its directory which node it is, the cluster's first map, and the map by which it
//! knows what it keeps (`cluster.json`). Here the host keeps it, and loses it with its disk. It is written at
//! a node's first start and at a restart to keep more, as `ordo serve` does, and is otherwise as old as that.

use super::Cluster;
use crate::world::Violation;
use order::PartitionMap;
use std::sync::Arc;
use txn::{BootId, NodeId};

/// What a node's directory says of it.
#[derive(Clone)]
pub(super) struct Identity {
    pub node: NodeId,
    /// The map that the cluster was founded with.
    pub first: Arc<PartitionMap>,
    /// The map by which it knows what it keeps, and where its peers are.
    pub map: Arc<PartitionMap>,
}

/// What is to run at a host.
pub(super) enum Post {
    /// Nothing.
    Vacant,
    /// A node of the first map.
    Founder(NodeId),
    /// A node that joins under this name, with the map that names it and gives it something to keep, once
    /// there is one.
    Joins { name: String, learnt: Option<Arc<PartitionMap>> },
}

/// See the module's head.
pub(super) struct Site {
    pub post: Post,
    pub identity: Option<Identity>,
    /// A process runs there.
    pub runs: bool,
    /// The process knows the epoch time.
    pub knows_time: bool,
    /// Its process was refused, and nobody starts it again.
    pub rests: bool,
    /// Its disk was lost since its first process started.
    pub lost_disk: bool,
    /// The order has given a process of its node a boot id.
    pub has_booted: bool,
    /// Its disk was lost after that: what it had promised is forgotten.
    pub has_forgotten: bool,
}

impl Site {
    /// A host at which this is to run for the first time.
    pub fn new(post: Post) -> Site {
        Site {
            post,
            identity: None,
            runs: false,
            knows_time: false,
            rests: false,
            lost_disk: false,
            has_booted: false,
            has_forgotten: false,
        }
    }

    /// Whether a process is to run there in the end.
    pub fn is_taken(&self) -> bool {
        match &self.post {
            Post::Vacant => false,
            Post::Founder(_) => !self.rests,
            Post::Joins { .. } => !self.rests && self.identity.is_some(),
        }
    }

    /// Which node is there, as far as that is known.
    pub fn node(&self) -> Option<NodeId> {
        match &self.post {
            Post::Founder(node) => Some(*node),
            _ => self.identity.as_ref().map(|identity| identity.node),
        }
    }

    /// Whether a node of this name is to run there.
    pub fn is_of(&self, wanted: &str) -> bool {
        matches!(&self.post, Post::Joins { name, .. } if name == wanted)
    }

    /// Its disk is gone.
    pub fn lose_disk(&mut self) {
        self.lost_disk |= self.identity.is_some();
        self.has_forgotten |= self.has_booted;
        self.identity = None;
        if let Post::Joins { learnt, .. } = &mut self.post {
            *learnt = None;
        }
    }

    /// A process of its node got a boot id.
    pub fn booted(&mut self, boot: BootId) -> Result<(), Violation> {
        if self.has_forgotten {
            let text = format!(
                "{:?}, whose disk was lost with what it had promised, takes part again, as {boot}",
                self.node()
            );
            return Err(Violation::new("lost disk", text));
        }
        self.has_booted = true;
        Ok(())
    }

    /// A process starts anew, to keep more: it remembers why.
    pub fn remember(&mut self, map: &Arc<PartitionMap>) {
        if let Some(identity) = &mut self.identity
            && identity.map.version < map.version
        {
            identity.map = map.clone();
        }
    }
}

/// The number of the host that has an address.
pub(super) fn host_at(address: &str) -> Option<u16> {
    let (host, _) = address.strip_prefix('n')?.split_once(':')?;
    host.parse().ok()
}

impl Cluster {
    /// Who a process is that starts at a host, and whether its directory says so already. `None` if nobody is
    /// to start there, or not yet.
    pub(super) fn identify(&self, host: u16) -> Option<(Identity, bool)> {
        let site = &self.sites[usize::from(host)];
        if site.rests {
            return None;
        }
        if let Some(identity) = &site.identity {
            return Some((identity.clone(), true));
        }
        let (node, map) = match &site.post {
            Post::Founder(node) => (*node, self.map.clone()),
            Post::Joins { name, learnt: Some(map) } => {
                let mut nodes = map.nodes.iter();
                let (&node, _) = nodes.find(|(_, entry)| entry.name == *name)?;
                (node, map.clone())
            }
            _ => return None,
        };
        let first = self.map.clone();
        Some((Identity { node, first, map }, false))
    }
}
