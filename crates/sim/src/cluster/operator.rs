//! Who adds and replaces nodes, and moves slots and replicas: a person with `ordo admin`, as a simulated
//! client.
//!
//! The operator learns that a node was refused for its lost disk, or is told to replace a node that has
//! nothing ([`Fault::Replace`]). Then it looks at the map of some node, now and then, and does the next thing
//! that is to do: it adds a node in the same zone, on a spare host or the same one, orders the old one to
//! hand over, starts the new one once the map gives it something to keep, and ends what is left of the old
//! one once the map does not know it any more. Every step is a function of a map, so an answer that does not
//! come, or is old, costs time and nothing else. Any node may be asked, also one that is down, cut off or
//! about to leave.
//!
//! [`Fault::Replace`]: crate::world::Fault::Replace

use super::site::{Post, Site};
use super::{Cluster, Frame, Timer};
use crate::world::{Address, Core, Input};
use order::{Changed, Control, PartitionMap};
use std::fmt;
use std::sync::Arc;
use txn::{BootId, NodeId, PartitionId, SlotRange, ZoneId};

/// A node joins, and takes the place of another one, or some of what the others of its zone keep.
struct Task {
    /// Whose place it takes, and that one's host.
    old: Option<(NodeId, u16)>,
    zone: ZoneId,
    /// The new one's.
    name: String,
    host: u16,
    /// There was nothing for it: it is taken out again, unless it gets something before that.
    is_idle: bool,
    done: bool,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Operator {
    /// Its number among the clients, if there is an operator.
    pub me: Option<u16>,
    tasks: Vec<Task>,
    /// How often slots or a replica are still to move.
    moves: u16,
    /// A timer is set.
    waits: bool,
}

/// The operator takes its time, so many of the nodes' ticks at most.
const REACTION_TICKS: u64 = 60;
/// It looks at a map after so many ticks, at most, as long as there is something to do.
const LOOK_TICKS: u64 = 16;

impl Operator {
    /// An operator with this number, or none, who moves slots or a replica so often.
    pub fn new(me: Option<u16>, moves: u16) -> Operator {
        Operator { me, moves, ..Operator::default() }
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.moves == 0 && self.tasks.iter().all(|task| task.done)
    }

    /// Whether a node is to be replaced, or was.
    pub fn replaces(&self, node: NodeId) -> bool {
        let mut replaced = self.tasks.iter().filter_map(|task| task.old);
        replaced.any(|(old, _)| old == node)
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for task in self.tasks.iter().filter(|task| !task.done) {
            let Task { old, name, host, .. } = task;
            match old {
                Some((old, at)) => {
                    write!(f, "{old} at host {at} is to be replaced by {name} at host {host}; ")?
                }
                None => write!(f, "{name} is to join at host {host}; ")?,
            }
        }
        Ok(())
    }
}

impl Cluster {
    /// The operator is to replace the node at a host. Without its disk, the host may have the new node, too.
    pub(super) fn replace(&mut self, old_host: u16, core: &mut Core<Cluster>) {
        let Some(me) = self.operator.me else { return };
        let site = &self.sites[usize::from(old_host)];
        let Some(old) = site.node().filter(|&old| !self.operator.replaces(old)) else {
            return;
        };
        let host = match self.spare_host() {
            _ if site.lost_disk && core.draw.percent(50) => old_host,
            Some(spare) => spare,
            None => return,
        };
        let task = Task {
            old: Some((old, old_host)),
            // Hosts are dealt to zones in turn, and a new node is in its predecessor's.
            zone: self.zone_of(old),
            name: format!("n{old_host}-{}", self.operator.tasks.len()),
            host,
            is_idle: false,
            done: false,
        };
        core.note(Address::Client(me), || format!("replaces {old} by {} at host {host}", task.name));
        self.operator.tasks.push(task);
        let after_ns = core.draw.below(REACTION_TICKS) * self.plan.tick_ns;
        self.look_later(after_ns, core);
    }

    /// A host at which nothing runs, and nothing is to.
    fn spare_host(&self) -> Option<u16> {
        let is_spare = |host: &u16| {
            let is_vacant = matches!(self.sites[usize::from(*host)].post, Post::Vacant);
            is_vacant && !self.operator.tasks.iter().any(|task| task.host == *host)
        };
        (self.plan.hosts..self.sites.len() as u16).find(is_spare)
    }

    fn zone_of(&self, node: NodeId) -> ZoneId {
        match self.map.nodes.get(&node) {
            Some(entry) => entry.zone,
            None => {
                let mut tasks = self.operator.tasks.iter();
                let before = tasks.find(|task| self.sites[usize::from(task.host)].node() == Some(node));
                before.map_or(ZoneId(0), |task| task.zone)
            }
        }
    }

    fn look_later(&mut self, after_ns: u64, core: &mut Core<Cluster>) {
        if let Some(me) = self.operator.me
            && !std::mem::replace(&mut self.operator.waits, true)
        {
            core.set_timer(Address::Client(me), after_ns, Timer::Operate);
        }
    }

    /// Something reaches the operator.
    pub(super) fn operate(&mut self, input: Input<Frame, Timer>, core: &mut Core<Cluster>) {
        let Some(me) = self.operator.me else { return };
        match input {
            Input::Timer(Timer::Go) if !self.operator.is_done() => {
                let after_ns = core.draw.below(REACTION_TICKS) * self.plan.tick_ns;
                self.look_later(after_ns, core);
            }
            Input::Timer(Timer::Operate) => {
                self.operator.waits = false;
                if self.operator.is_done() {
                    return;
                }
                let host = core.draw.below(self.sites.len() as u64) as u16;
                core.send(Address::Client(me), Address::Host(host), Frame::Ask);
                let after_ns = core.draw.between(1, LOOK_TICKS) * self.plan.tick_ns;
                self.look_later(after_ns, core);
            }
            Input::Frame { from: Address::Host(host), frame: Frame::Told { map } } => {
                for number in 0..self.operator.tasks.len() {
                    self.go_on_with(number, host, &map, core);
                }
                self.rebalance(host, &map, core);
            }
            Input::Frame { from: Address::Host(host), frame: Frame::Ordered { changed } } => {
                self.tally.changes += u64::from(changed == Changed::Map);
                core.send(Address::Client(me), Address::Host(host), Frame::Ask);
            }
            Input::Timer(_) | Input::Frame { .. } => {}
        }
    }

    /// Moves something, if there is something left to move: slots, or a replica within its zone. Somebody
    /// else may be faster, and change the map; then it stays.
    fn rebalance(&mut self, asked: u16, map: &PartitionMap, core: &mut Core<Cluster>) {
        let Some(me) = self.operator.me.filter(|_| self.operator.moves > 0) else {
            return;
        };
        self.operator.moves -= 1;
        // Only one joins beside those that replace others: the other spare hosts are theirs.
        let none_joins = self.operator.tasks.iter().all(|task| task.old.is_some());
        if core.draw.percent(30)
            && none_joins
            && let Some(host) = self.spare_host()
        {
            let zones = map.zones.len() as u64;
            let task = Task {
                old: None,
                zone: ZoneId(core.draw.below(zones) as u16),
                name: format!("m{host}-{}", self.operator.tasks.len()),
                host,
                is_idle: false,
                done: false,
            };
            core.note(Address::Client(me), || format!("adds {} to {} at host {host}", task.name, task.zone));
            return self.operator.tasks.push(task);
        }
        let control = match core.draw.percent(60) {
            true => some_place(map, None, core),
            false => None,
        };
        if let Some(control) = control.or_else(|| some_slots(map, core)) {
            core.send(Address::Client(me), Address::Host(asked), Frame::Order { control });
        }
    }

    /// Does the next thing of a task, as the map of the node at a host has it.
    fn go_on_with(&mut self, number: usize, asked: u16, map: &Arc<PartitionMap>, core: &mut Core<Cluster>) {
        let Some(me) = self.operator.me.map(Address::Client) else {
            return;
        };
        let task = &mut self.operator.tasks[number];
        if task.done || task.old.is_some_and(|(old, _)| map.last_node < old) {
            return;
        }
        let order = |control, core: &mut Core<Cluster>| {
            core.send(me, Address::Host(asked), Frame::Order { control });
        };
        let mut nodes = map.nodes.iter();
        let Some((&new, entry)) = nodes.find(|(_, entry)| entry.name == task.name) else {
            if task.is_idle {
                task.done = true;
                self.tally.replaced += u64::from(task.old.is_some());
                return;
            }
            let control = Control::AddNode {
                version: map.version,
                name: task.name.clone(),
                zone: task.zone,
                // Another one than the old node has, also at the same host.
                peer_address: format!("n{}:{}", task.host, 10 + number),
                client_address: format!("n{}:2", task.host),
            };
            return order(control, core);
        };
        let site = &mut self.sites[usize::from(task.host)];
        if !site.is_of(&task.name) {
            if site.runs {
                site.rests = true;
                core.exit(task.host);
            } else {
                // An empty directory.
                core.wipe(task.host);
                let name = task.name.clone();
                *site = Site::new(Post::Joins { name, learnt: None });
            }
        }
        let may_start = entry.boot == BootId(0) && map.kept_by(new).next().is_some();
        if let Post::Joins { name, learnt } = &mut site.post
            && *name == task.name
            && site.identity.is_none()
            && may_start
        {
            *learnt = Some(map.clone());
            core.start(task.host);
        }
        let Some((old, old_host)) = task.old else {
            task.done = entry.boot != BootId(0);
            if let Some(control) = task.give_something(new, map, core) {
                order(control, core);
            }
            return;
        };
        if let Some(entry) = map.nodes.get(&old) {
            if !entry.leaving {
                let control = Control::Drain { version: map.version, node: old };
                order(control, core);
            }
            return;
        }
        // The old node is out of the map. Its process may not know: it may have been down all the time.
        let site = &mut self.sites[usize::from(old_host)];
        if site.node() == Some(old) {
            site.post = Post::Vacant;
            site.identity = None;
        }
        if matches!(site.post, Post::Vacant) && site.runs {
            core.exit(old_host);
        } else if entry.boot != BootId(0) {
            task.done = true;
            self.tally.replaced += 1;
            core.note(me, || format!("{old} has been replaced by {new}"));
        } else if let Some(control) = task.give_something(new, map, core) {
            // Others of its zone took over all that the old one kept.
            order(control, core);
        }
    }
}

impl Task {
    /// What to order for a new node that has nothing to keep, and so is not started: a replica, or its end.
    fn give_something(
        &mut self,
        new: NodeId,
        map: &PartitionMap,
        core: &mut Core<Cluster>,
    ) -> Option<Control> {
        if map.kept_by(new).next().is_some() {
            return None;
        }
        let place = some_place(map, Some(new), core);
        self.is_idle |= place.is_none();
        Some(place.unwrap_or(Control::RemoveNode { version: map.version, node: new }))
    }
}

/// A replica moves to another node of its zone, or to this one, if some node can give one away.
fn some_place(map: &PartitionMap, taker: Option<NodeId>, core: &mut Core<Cluster>) -> Option<Control> {
    let mut places = Vec::new();
    for partition in map.partition_ids() {
        let takers = map.nodes.keys();
        // Nobody else starts a node that has never been started.
        let may_take = |to: &NodeId| match taker {
            Some(taker) => taker == *to,
            None => map.nodes[to].boot != BootId(0),
        };
        for &to in takers.filter(|&to| may_take(to)) {
            let place = (partition, to);
            if map.cannot_place(&[place]).is_none() {
                places.push(place);
            }
        }
    }
    let place = *places.get(core.draw.below(places.len().max(1) as u64) as usize)?;
    Some(Control::PlaceReplicas { version: map.version, places: vec![place] })
}

/// Some slots of one partition become another's.
fn some_slots(map: &PartitionMap, core: &mut Core<Cluster>) -> Option<Control> {
    let partitions = map.partitions.len() as u64;
    let from = core.draw.below(partitions);
    let to = (from + 1 + core.draw.below(partitions - 1)) % partitions;
    let ranges = &map.partitions[from as usize].slots;
    let range = core.draw.below(ranges.len().max(1) as u64);
    let &(first, last) = ranges.get(range as usize)?;
    let count = u64::from(last - first) + 1;
    let (first, count) = match core.draw.percent(50) {
        true => (first, count),
        false => {
            let skipped = core.draw.below(count);
            let left = 1 + core.draw.below(count - skipped);
            (first + skipped as u16, left)
        }
    };
    Some(Control::MoveSlots {
        version: map.version,
        slots: SlotRange { first, last: first + (count - 1) as u16 },
        to: PartitionId(to as u16),
    })
}
