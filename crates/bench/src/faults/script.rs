//! Which fault comes in which round, and how it is done.

use super::processes::{Processes, name};
use crate::redis::template::SplitMix;
use anyhow::{Context, Result, bail};
use std::time::Duration;

/// What is done to the nodes in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9` of the leader.
    KillLeader,
    /// `kill -9` of a node that does not lead.
    KillFollower,
    /// `kill -9` of all nodes at once. Their machines stay up: what they had written and not yet synced is not lost, as it
    /// would be if the power went; losing that takes the simulator.
    KillAll,
    /// What the leader sends to one follower is swallowed.
    CutFromLeader,
    /// What one follower sends to the leader is swallowed.
    CutToLeader,
    /// The link between the leader and one follower is cut.
    CutLink,
    /// The leader hears no other node and is heard by none; clients reach it.
    IsolateLeader,
    /// The same for a node that does not lead.
    IsolateFollower,
    /// The leader stands still for three seconds (`SIGSTOP`).
    FreezeLeader,
    /// A node that does not lead stands still for three seconds.
    FreezeFollower,
    /// The leader's disk is full for a while.
    FullLeader,
    /// The disk of a node that does not lead is full for a while.
    FullFollower,
    /// The disks of all nodes are full for a while.
    FullAll,
    /// A sync of the leader fails. It is restarted later.
    SyncLeader,
    /// A sync of a node that does not lead fails. It is restarted later.
    SyncFollower,
}

/// How long a frozen node stands still.
const FREEZE: Duration = Duration::from_secs(3);
/// How long a link is cut or a node is down, at least and at most.
const DOWN_MS: (u64, u64) = (500, 4_000);

impl Fault {
    /// All faults with their names.
    pub const ALL: [(&'static str, Fault); 15] = [
        ("kill-leader", Fault::KillLeader),
        ("kill-follower", Fault::KillFollower),
        ("kill-all", Fault::KillAll),
        ("cut-from-leader", Fault::CutFromLeader),
        ("cut-to-leader", Fault::CutToLeader),
        ("cut-link", Fault::CutLink),
        ("isolate-leader", Fault::IsolateLeader),
        ("isolate-follower", Fault::IsolateFollower),
        ("freeze-leader", Fault::FreezeLeader),
        ("freeze-follower", Fault::FreezeFollower),
        ("full-leader", Fault::FullLeader),
        ("full-follower", Fault::FullFollower),
        ("full-all", Fault::FullAll),
        ("sync-leader", Fault::SyncLeader),
        ("sync-follower", Fault::SyncFollower),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Fault::ALL
            .iter()
            .find(|(_, fault)| *fault == self)
            .map_or("", |(name, _)| name)
    }

    fn needs_followers(self) -> bool {
        !matches!(
            self,
            Fault::KillLeader
                | Fault::KillAll
                | Fault::FreezeLeader
                | Fault::FullLeader
                | Fault::FullAll
                | Fault::SyncLeader
        )
    }
    /// Whether a disk must refuse for it, which takes a C compiler.
    pub fn needs_disk(self) -> bool {
        matches!(
            self,
            Fault::FullLeader
                | Fault::FullFollower
                | Fault::FullAll
                | Fault::SyncLeader
                | Fault::SyncFollower
        )
    }
    /// Whether links must be cut for it, which takes a network of namespaces.
    pub fn needs_network(self) -> bool {
        matches!(
            self,
            Fault::CutFromLeader
                | Fault::CutToLeader
                | Fault::CutLink
                | Fault::IsolateLeader
                | Fault::IsolateFollower
        )
    }
    /// Whether it is possible with so many nodes, with or without a network.
    pub fn is_possible(self, nodes: usize, network: bool) -> bool {
        (nodes > 1 || !self.needs_followers()) && (network || !self.needs_network())
    }
}

impl std::str::FromStr for Fault {
    type Err = anyhow::Error;
    fn from_str(name: &str) -> Result<Fault> {
        let names: Vec<&str> = Fault::ALL.iter().map(|(name, _)| *name).collect();
        let found = Fault::ALL.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, fault)| *fault)
            .with_context(|| format!("unknown fault '{name}': choose one of {}", names.join(", ")))
    }
}

/// The faults of a run: every one once, in a random order, then again.
pub fn schedule(faults: &[Fault], rounds: usize, random: &mut SplitMix) -> Vec<Fault> {
    let mut schedule = Vec::new();
    while schedule.len() < rounds {
        let mut deck = faults.to_vec();
        while !deck.is_empty() && schedule.len() < rounds {
            schedule.push(deck.swap_remove(random.below(deck.len() as u64) as usize));
        }
        if faults.is_empty() {
            break;
        }
    }
    schedule
}

/// What was done, and until when.
pub struct Done {
    /// In words.
    pub what: String,
    /// The nodes through which writes need not get on.
    pub victims: Vec<usize>,
    /// How long it lasts, unless clients have to wait for its end.
    pub lasts: Duration,
}

/// Does it. `leader` leads now.
pub fn inject(
    fault: Fault,
    leader: usize,
    processes: &mut Processes,
    random: &mut SplitMix,
) -> Result<Done> {
    let nodes = processes.addresses().len();
    let others: Vec<usize> = (0..nodes).filter(|&node| node != leader).collect();
    let follower = match others.len() {
        0 => leader,
        count => others[random.below(count as u64) as usize],
    };
    let down = Duration::from_millis(DOWN_MS.0 + random.below(DOWN_MS.1 - DOWN_MS.0));
    let (leads, follows) = (name(leader), name(follower));
    let done = |what: String, victims: &[usize], lasts| Done {
        what,
        victims: victims.to_vec(),
        lasts,
    };
    Ok(match fault {
        Fault::KillLeader | Fault::KillFollower => {
            let victim = if fault == Fault::KillLeader {
                leader
            } else {
                follower
            };
            processes.kill(&[victim])?;
            done(format!("killed {}", name(victim)), &[victim], down)
        }
        Fault::KillAll => {
            let all: Vec<usize> = (0..nodes).collect();
            processes.kill(&all)?;
            done("killed all".to_owned(), &all, Duration::ZERO)
        }
        Fault::FreezeLeader | Fault::FreezeFollower => {
            let victim = if fault == Fault::FreezeLeader {
                leader
            } else {
                follower
            };
            processes.freeze(victim)?;
            done(format!("froze {}", name(victim)), &[victim], FREEZE)
        }
        Fault::FullLeader | Fault::FullFollower | Fault::FullAll => {
            let victims = match fault {
                Fault::FullLeader => vec![leader],
                Fault::FullFollower => vec![follower],
                _ => (0..nodes).collect(),
            };
            for &victim in &victims {
                processes.fill_disk(victim)?;
            }
            let names: Vec<String> = victims.iter().copied().map(name).collect();
            done(
                format!("filled the disk of {}", names.join(", ")),
                &victims,
                down,
            )
        }
        Fault::SyncLeader | Fault::SyncFollower => {
            let victim = if fault == Fault::SyncLeader {
                leader
            } else {
                follower
            };
            processes.break_syncs(victim)?;
            done(
                format!("failed the syncs of {}", name(victim)),
                &[victim],
                down,
            )
        }
        Fault::CutFromLeader => {
            cut(processes, &[(leader, follower)])?;
            done(
                format!("cut {leads} to {follows}"),
                &[leader, follower],
                down,
            )
        }
        Fault::CutToLeader => {
            cut(processes, &[(follower, leader)])?;
            done(
                format!("cut {follows} to {leads}"),
                &[leader, follower],
                down,
            )
        }
        Fault::CutLink => {
            cut(processes, &[(leader, follower), (follower, leader)])?;
            done(
                format!("cut {leads} and {follows}"),
                &[leader, follower],
                down,
            )
        }
        Fault::IsolateLeader | Fault::IsolateFollower => {
            let victim = if fault == Fault::IsolateLeader {
                leader
            } else {
                follower
            };
            let links: Vec<(usize, usize)> = (0..nodes)
                .filter(|&other| other != victim)
                .flat_map(|other| [(victim, other), (other, victim)])
                .collect();
            cut(processes, &links)?;
            done(format!("isolated {}", name(victim)), &[victim], down)
        }
    })
}

fn cut(processes: &mut Processes, links: &[(usize, usize)]) -> Result<()> {
    let Some(network) = processes.network() else {
        bail!("links can be cut in a network of namespaces only");
    };
    links
        .iter()
        .try_for_each(|&(from, to)| network.cut(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_turn() {
        let faults: Vec<Fault> = Fault::ALL.iter().map(|(_, fault)| *fault).collect();
        let drawn = schedule(&faults, 40, &mut SplitMix::new(3));
        assert_eq!(drawn.len(), 40);
        for (name, fault) in Fault::ALL {
            let count = drawn.iter().filter(|&&other| other == fault).count();
            assert!((2..=3).contains(&count), "{name}: {count}");
            assert_eq!(name.parse::<Fault>().expect("known"), fault);
        }
        assert_eq!(drawn, schedule(&faults, 40, &mut SplitMix::new(3)));
        assert_ne!(drawn, schedule(&faults, 40, &mut SplitMix::new(4)));
        assert!(schedule(&[], 3, &mut SplitMix::new(3)).is_empty());
    }

    #[test]
    fn one_node_has_no_followers_and_no_links() {
        let possible = |nodes, network| {
            let possible = |(_, fault): &(_, Fault)| fault.is_possible(nodes, network);
            Fault::ALL.iter().filter(|fault| possible(fault)).count()
        };
        assert_eq!(
            (possible(1, true), possible(3, false), possible(3, true)),
            (6, 10, 15)
        );
    }
}
