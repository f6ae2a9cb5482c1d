//! How a cluster begins, and how a node notices that its disk was lost.
//!
//! A replica whose journal is gone has forgotten its votes and what it had said to have: taking part, it
//! could let a group agree twice. An empty journal alone tells nothing, because that is how every node of a
//! new cluster begins. So a founder (a node of the first map) with an empty journal gives its disk a number,
//! its *nonce*, which it keeps in the journal before it tells it. It takes no part until it has heard the
//! nonces of all other founders; then it keeps these, too: the cluster is *formed*. Whoever has formed tells
//! the founders' nonces. A founder that hears a list without its own has another disk than the one with which
//! the cluster was formed, and ends. (Who joined later tells an empty list, which says nothing.)
//!
//! A node that joined later is known by the map: its directory says that it has run, its journal begins with
//! a record that says the same ([`joined_record`]), and who has run does not start without both. It becomes a
//! voter only once the map knows of its process ([`members`](super::members)), from where on a new directory
//! is not taken for its own.
//!
//! What this does not notice: a disk that was put back to an earlier state, as from a backup.
//!
//! Both the nonce and the list are the state in the base of a group that no map has ([`IDENTITY`]), in the
//! same journal as everything that they guard.

use super::base::{BaseState, CANDIDATES, IDENTITY, kept_aside};
use log::{Base, GroupImage, GroupImages, Kept};
use order::PartitionMap;
use std::collections::{BTreeMap, BTreeSet};
use txn::codec::{Reader, put_varint};
use txn::mutant::{Mutant, is_active};
use txn::{NodeId, PartitionId};

/// The numbers that founders gave their disks.
pub type Nonces = BTreeMap<NodeId, u64>;

/// How far a node is with the cluster's beginning: what it tells the others, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does not know yet whether this is a new cluster.
    Bootstrapping {
        /// Its disk's number.
        nonce: u64,
    },
    /// It is part of a cluster that was formed with these disks. Empty if it joined later.
    Formed(Nonces),
}

const BOOTSTRAPPING: u8 = 0;
const FORMED: u8 = 1;

impl Standing {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Standing::Bootstrapping { nonce } => {
                out.push(BOOTSTRAPPING);
                put_varint(out, *nonce);
            }
            Standing::Formed(nonces) => {
                out.push(FORMED);
                put_nonces(out, nonces);
            }
        }
    }

    /// Reads it.
    pub fn decode(reader: &mut Reader<'_>) -> Option<Standing> {
        Some(match reader.u8()? {
            BOOTSTRAPPING => Standing::Bootstrapping { nonce: reader.varint()? },
            FORMED => Standing::Formed(take_nonces(reader)?),
            _ => return None,
        })
    }
}

fn put_nonces(out: &mut Vec<u8>, nonces: &Nonces) {
    put_varint(out, nonces.len() as u64);
    for (node, nonce) in nonces {
        put_varint(out, u64::from(node.0));
        put_varint(out, *nonce);
    }
}

fn take_nonces(reader: &mut Reader<'_>) -> Option<Nonces> {
    let mut nonces = Nonces::new();
    for _ in 0..reader.varint()? {
        let node = NodeId(u16::try_from(reader.varint()?).ok()?);
        nonces.insert(node, reader.varint()?);
    }
    Some(nonces)
}

/// What the journal of a node that joins begins with: without it, that journal would be a lost one.
pub fn joined_record() -> Kept {
    kept(1, 0, &Nonces::new())
}

/// What the journal of a founder begins with that has its state before it starts. Like any other's, its disk
/// has a number that nobody knows before it starts: so another directory that is made later under its name is
/// known as another.
pub(super) fn founding_record(nonce: u64) -> Kept {
    // 0 is the number of a node that joined.
    kept(1, nonce.max(1), &Nonces::new())
}

/// Whether a journal is that of a node that stands alone, as far as it tells.
pub fn stands_alone(images: &GroupImages) -> bool {
    images.iter().all(|(&partition, image)| is_group_of_alone(partition, &image.base))
}

/// Whether a group of a journal, by its base, is one of a node that stands alone, as far as it tells: nobody
/// else has founded the cluster, and its map is [`PartitionMap::alone`].
pub fn is_group_of_alone(partition: PartitionId, base: &Base) -> bool {
    let alone = PartitionMap::alone();
    match partition {
        IDENTITY => {
            let mut reader = Reader::new(&base.state);
            let nonce = reader.varint();
            let nonces = take_nonces(&mut reader);
            // A node tells the others its nonce only once its journal holds it.
            nonces.is_some_and(|nonces| match nonces.is_empty() {
                true => nonce != Some(0),
                false => nonces.keys().eq(alone.nodes.keys()),
            })
        }
        CANDIDATES => true,
        partition => {
            let state = BaseState::decode(&base.state);
            usize::from(partition.0) < alone.partitions.len()
                && state.is_none_or(|state| state.map.cluster == alone.cluster)
        }
    }
}

fn kept(index: u64, nonce: u64, nonces: &Nonces) -> Kept {
    let mut state = Vec::new();
    put_varint(&mut state, nonce);
    put_nonces(&mut state, nonces);
    kept_aside(IDENTITY, index, state)
}

/// What came of hearing another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing.
    Nothing,
    /// The cluster is formed: from now on this node takes part.
    Formed,
    /// This node has lost its disk. The text says so.
    Lost(String),
}

/// A node's part in its cluster's beginning. See the module's head.
#[derive(Debug)]
pub(super) struct Bootstrap {
    me: NodeId,
    nonce: u64,
    others: BTreeSet<NodeId>,
    heard: Nonces,
    formed: Option<Nonces>,
    /// Counts what was kept.
    kept: u64,
    /// Something is to be kept.
    pending: bool,
    /// The journal's record with the nonce, once it was handed out; 0 if it was there at the start.
    record: Option<u64>,
}

impl Bootstrap {
    /// Where a node stands whose journal has this of its identity, and of other groups something or nothing.
    /// `None` if what is kept cannot be read.
    pub fn recover(
        me: NodeId,
        first: &PartitionMap,
        image: Option<GroupImage>,
        has_groups: bool,
        fresh_nonce: u64,
    ) -> Option<Bootstrap> {
        let founders: BTreeSet<NodeId> = first.nodes.keys().copied().collect();
        let others: BTreeSet<NodeId> = founders.iter().copied().filter(|&node| node != me).collect();
        let mut bootstrap = Bootstrap {
            me,
            nonce: fresh_nonce,
            others,
            heard: Nonces::new(),
            formed: None,
            kept: 0,
            pending: false,
            record: Some(0),
        };
        match image {
            Some(image) => {
                bootstrap.kept = image.base.index;
                let mut reader = Reader::new(&image.base.state);
                bootstrap.nonce = reader.varint()?;
                let nonces = take_nonces(&mut reader)?;
                if !reader.is_empty() {
                    return None;
                }
                let has_joined = !founders.contains(&me);
                bootstrap.formed = (has_joined || !nonces.is_empty()).then_some(nonces);
            }
            // Who joined was let in by the order, and a journal with groups is that of a member.
            None if has_groups || !founders.contains(&me) => {
                bootstrap.formed = Some(Nonces::new());
            }
            None => {
                bootstrap.pending = true;
                bootstrap.record = None;
            }
        }
        Some(bootstrap)
    }

    /// Whether this node may vote and say what it has.
    pub fn takes_part(&self) -> bool {
        self.formed.is_some()
    }

    /// Those who must be heard before it may.
    pub fn others(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.others.iter().copied()
    }

    /// What it tells the others, once everything up to this record is durable. Nothing as long as its nonce
    /// could be lost.
    pub fn standing(&self, synced: u64) -> Option<Standing> {
        match &self.formed {
            Some(nonces) => Some(Standing::Formed(nonces.clone())),
            None => {
                let told = self.record.is_some_and(|record| record <= synced);
                told.then_some(Standing::Bootstrapping { nonce: self.nonce })
            }
        }
    }

    /// What it hears, when everything up to a record is durable.
    pub fn hear(&mut self, from: NodeId, standing: Standing, synced: u64) -> Heard {
        if self.takes_part()
            || !self.others.contains(&from) && matches!(standing, Standing::Bootstrapping { .. })
        {
            return Heard::Nothing;
        }
        match standing {
            Standing::Bootstrapping { nonce } => {
                self.heard.insert(from, nonce);
                self.form(synced)
            }
            // Who joined later knows of no founder's disk: a founder has to say.
            Standing::Formed(nonces) if nonces.is_empty() => Heard::Nothing,
            Standing::Formed(nonces)
                if nonces.get(&self.me) == Some(&self.nonce) || is_active(Mutant::ForgetLostDisk) =>
            {
                self.formed = Some(nonces);
                self.pending = true;
                Heard::Formed
            }
            Standing::Formed(_) => Heard::Lost(format!(
                "this node's data directory is new (or a backup that was restored again), and {from} belongs \
                 to a cluster that knows {} with another one: its disk was lost, and with it what it had \
                 promised to the others. It must not come back as itself. Add a node with another name to \
                 its zone ('ordo admin add-node'), start that one here, and then take this one out ('ordo \
                 admin remove-node'). If its data directory still exists elsewhere, start it with that one \
                 (--dir)",
                self.me
            )),
        }
    }

    /// Forms the cluster, if all founders are known. This one's nonce must be durable: it is told with the
    /// list.
    pub fn form(&mut self, synced: u64) -> Heard {
        let is_durable = self.record.is_some_and(|record| record <= synced);
        let known = self.others.iter().all(|node| self.heard.contains_key(node));
        if self.takes_part() || !is_durable || !known {
            return Heard::Nothing;
        }
        let mut nonces = self.heard.clone();
        nonces.insert(self.me, self.nonce);
        self.formed = Some(nonces);
        self.pending = true;
        Heard::Formed
    }

    /// What is to be kept now, as part of this record.
    pub fn take_unkept(&mut self, record: u64) -> Option<Kept> {
        if !std::mem::take(&mut self.pending) {
            return None;
        }
        self.record.get_or_insert(record);
        Some(self.keep())
    }

    fn keep(&mut self) -> Kept {
        self.kept += 1;
        let nonces = self.formed.clone().unwrap_or_default();
        kept(self.kept, self.nonce, &nonces)
    }

    /// The same as was kept, for a record that lets the journal's older ones go. `None` if there is nothing.
    pub fn keep_again(&mut self) -> Option<Kept> {
        (self.kept > 0).then(|| self.keep())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use order::Described;

    fn map() -> PartitionMap {
        let described = |(name, zone): (&str, &str)| Described {
            name: name.to_owned(),
            zone: zone.to_owned(),
            peer_address: format!("{name}:7001"),
            client_address: format!("{name}:6379"),
        };
        let nodes = [("a", "x"), ("b", "y"), ("c", "z")].map(described);
        PartitionMap::new("test", &nodes, 1).expect("a map")
    }

    fn fresh(node: u16, nonce: u64) -> Bootstrap {
        Bootstrap::recover(NodeId(node), &map(), None, false, nonce).expect("new")
    }

    /// After its process ended behind this record.
    fn again(kept: &Kept, node: u16) -> Bootstrap {
        let image = GroupImage { base: kept.base.clone().expect("a base"), ..GroupImage::default() };
        Bootstrap::recover(NodeId(node), &map(), Some(image), true, 99).expect("kept")
    }

    fn founding(nonce: u64) -> Standing {
        Standing::Bootstrapping { nonce }
    }

    #[test]
    fn a_nonce_is_told_only_once_it_is_durable_and_stays_the_same() {
        let mut a = fresh(1, 10);
        assert_eq!(a.standing(0), None);
        let kept = a.take_unkept(1).expect("its nonce");
        assert_eq!(a.take_unkept(1), None);
        assert_eq!(a.standing(0), None);
        assert_eq!(a.standing(1), Some(founding(10)));
        let a = again(&kept, 1);
        assert!(!a.takes_part());
        assert_eq!(a.standing(0), Some(founding(10)));
    }

    #[test]
    fn who_joined_later_says_nothing_of_a_founders_disk() {
        let mut a = fresh(1, 10);
        a.take_unkept(1);
        let joined = Standing::Formed(Nonces::new());
        assert_eq!(a.hear(NodeId(9), joined, 1), Heard::Nothing);
        assert!(!a.takes_part());
        let nonces = Nonces::from([(NodeId(1), 10), (NodeId(2), 20), (NodeId(3), 30)]);
        assert_eq!(a.hear(NodeId(2), Standing::Formed(nonces), 1), Heard::Formed);
    }

    #[test]
    fn a_cluster_is_formed_when_all_founders_were_heard_and_stays_formed() {
        let mut a = fresh(1, 10);
        a.take_unkept(1);
        assert_eq!(a.hear(NodeId(2), founding(20), 1), Heard::Nothing);
        assert_eq!(a.hear(NodeId(2), founding(21), 1), Heard::Nothing);
        assert_eq!(a.hear(NodeId(9), founding(90), 1), Heard::Nothing, "no founder");
        assert!(!a.takes_part());
        assert_eq!(a.hear(NodeId(3), founding(30), 1), Heard::Formed);
        assert!(a.takes_part());
        let nonces = Nonces::from([(NodeId(1), 10), (NodeId(2), 21), (NodeId(3), 30)]);
        assert_eq!(a.standing(0), Some(Standing::Formed(nonces.clone())));
        let kept = a.take_unkept(5).expect("the list");
        let a = again(&kept, 1);
        assert_eq!(a.standing(0), Some(Standing::Formed(nonces.clone())));
        // Who was late hears from those who formed it, whoever else is there.
        let mut c = fresh(3, 30);
        c.take_unkept(1);
        assert_eq!(c.hear(NodeId(1), Standing::Formed(nonces), 1), Heard::Formed);
    }

    #[test]
    fn a_founder_with_another_disk_ends() {
        let nonces = Nonces::from([(NodeId(1), 10), (NodeId(2), 20), (NodeId(3), 30)]);
        let mut c = fresh(3, 31);
        c.take_unkept(1);
        let Heard::Lost(text) = c.hear(NodeId(2), Standing::Formed(nonces), 1) else {
            panic!("it takes part");
        };
        assert!(text.contains("disk was lost") && text.contains("remove-node"), "{text}");
        assert!(!c.takes_part());
    }

    #[test]
    fn who_joined_or_has_data_takes_part_and_one_founder_alone_needs_nobody() {
        let joined = Bootstrap::recover(NodeId(4), &map(), None, false, 1).expect("joined");
        assert!(joined.takes_part());
        let image = GroupImage { base: joined_record().base.expect("a base"), ..GroupImage::default() };
        let joined = Bootstrap::recover(NodeId(4), &map(), Some(image), true, 1).expect("joined");
        assert!(joined.takes_part());
        let old = Bootstrap::recover(NodeId(2), &map(), None, true, 1).expect("old");
        assert_eq!(old.standing(0), Some(Standing::Formed(Nonces::new())));
        let alone = PartitionMap::alone();
        let mut one = Bootstrap::recover(NodeId(1), &alone, None, false, 1).expect("alone");
        assert_eq!(one.form(0), Heard::Nothing, "its nonce is not kept");
        one.take_unkept(1);
        assert_eq!(one.form(0), Heard::Nothing, "it could be lost");
        assert_eq!(one.form(1), Heard::Formed);
    }
}
