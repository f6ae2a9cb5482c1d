//! Which fault comes in which round, and how it is done.

use super::clocks;
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
    /// `kill -9` of all nodes at once. Their machines stay up: what they had written and not yet synced is
    /// not lost, as it would be if the power went; losing that takes the simulator.
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
    /// The leader's clock is set, by up to an hour.
    ClockLeader,
    /// The clock of a node that does not lead is set.
    ClockFollower,
    /// The clocks of a majority are set, all to the same date.
    ClockMajority,
    /// A node that does not lead is killed, and the clock of another one is set.
    ClockOneDown,
    /// The leader is killed, and the clocks of the others, and its own before it starts again, are set.
    ClockKillLeader,
    /// All are killed, and one starts with a clock that was set.
    ClockKillAll,
}

/// How long a frozen node stands still.
const FREEZE: Duration = Duration::from_secs(3);
/// How long a clock that was set stays so, at least and at most: the date is corrected within that, or not.
const CLOCK_MS: (u64, u64) = (500, 16_000);
/// How long a link is cut or a node is down, at least and at most.
const DOWN_MS: (u64, u64) = (500, 4_000);

impl Fault {
    /// All faults with their names.
    pub const ALL: [(&'static str, Fault); 21] = [
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
        ("clock-leader", Fault::ClockLeader),
        ("clock-follower", Fault::ClockFollower),
        ("clock-majority", Fault::ClockMajority),
        ("clock-one-down", Fault::ClockOneDown),
        ("clock-kill-leader", Fault::ClockKillLeader),
        ("clock-kill-all", Fault::ClockKillAll),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Fault::ALL.iter().find(|(_, fault)| *fault == self).map_or("", |(name, _)| name)
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
                | Fault::ClockLeader
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
    /// Whether it sets clocks, which takes [`super::clocks::library`].
    pub fn sets_clocks(self) -> bool {
        matches!(
            self,
            Fault::ClockLeader
                | Fault::ClockFollower
                | Fault::ClockMajority
                | Fault::ClockOneDown
                | Fault::ClockKillLeader
                | Fault::ClockKillAll
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
    /// Whether it is possible with so many nodes, with or without a network, and with clocks that can be set
    /// or not.
    pub fn is_possible(self, nodes: usize, network: bool, clocks: bool) -> bool {
        let least = match self {
            // A minority must be left to go wrong, or to be down.
            Fault::ClockMajority | Fault::ClockOneDown | Fault::ClockKillLeader => 3,
            Fault::ClockKillAll => 3,
            other => 1 + usize::from(other.needs_followers()),
        };
        nodes >= least && (network || !self.needs_network()) && (clocks || !self.sets_clocks())
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
pub fn inject(fault: Fault, leader: usize, processes: &mut Processes, random: &mut SplitMix) -> Result<Done> {
    let nodes = processes.addresses().len();
    let others: Vec<usize> = (0..nodes).filter(|&node| node != leader).collect();
    let follower = match others.len() {
        0 => leader,
        count => others[random.below(count as u64) as usize],
    };
    let down = Duration::from_millis(DOWN_MS.0 + random.below(DOWN_MS.1 - DOWN_MS.0));
    let clock_ms = CLOCK_MS.0 + random.below(CLOCK_MS.1 - CLOCK_MS.0);
    let clock_lasts = Duration::from_millis(clock_ms);
    let (leads, follows) = (name(leader), name(follower));
    let done = |what: String, victims: &[usize], lasts| Done { what, victims: victims.to_vec(), lasts };
    Ok(match fault {
        Fault::KillLeader | Fault::KillFollower => {
            let victim = if fault == Fault::KillLeader { leader } else { follower };
            processes.kill(&[victim])?;
            done(format!("killed {}", name(victim)), &[victim], down)
        }
        Fault::KillAll => {
            let all: Vec<usize> = (0..nodes).collect();
            processes.kill(&all)?;
            done("killed all".to_owned(), &all, Duration::ZERO)
        }
        Fault::ClockLeader | Fault::ClockFollower => {
            let victim = if fault == Fault::ClockLeader { leader } else { follower };
            let step_s = clocks::step(random);
            processes.set_clock(victim, step_s)?;
            done(format!("set the clock of {} by {step_s} s", name(victim)), &[], clock_lasts)
        }
        Fault::ClockMajority => {
            let step_s = clocks::step(random);
            let set = nodes / 2 + 1;
            for turn in 0..set {
                processes.set_clock((follower + turn) % nodes, step_s)?;
            }
            done(format!("set {set} clocks by {step_s} s"), &[], clock_lasts)
        }
        Fault::ClockOneDown => {
            let step_s = clocks::step(random);
            processes.kill(&[follower])?;
            let up: Vec<usize> = (0..nodes).filter(|&node| node != follower).collect();
            let wrong = up[random.below(up.len() as u64) as usize];
            processes.set_clock(wrong, step_s)?;
            done(
                format!("killed {follows}, set the clock of {} by {step_s} s", name(wrong)),
                &[follower],
                clock_lasts,
            )
        }
        Fault::ClockKillLeader => {
            let step_s = clocks::step(random);
            processes.kill(&[leader])?;
            for node in 0..nodes {
                processes.set_clock(node, step_s)?;
            }
            // With the wrong clock: the others know the time.
            processes.start(leader)?;
            done(format!("killed {leads}, set all clocks by {step_s} s, started it"), &[leader], clock_lasts)
        }
        Fault::ClockKillAll => {
            let step_s = clocks::step(random);
            let all: Vec<usize> = (0..nodes).collect();
            processes.kill(&all)?;
            processes.set_clock(follower, step_s)?;
            for node in 0..nodes {
                processes.start(node)?;
            }
            done(
                format!("killed all, started {follows} with a clock that is off by {step_s} s"),
                &[],
                clock_lasts,
            )
        }
        Fault::FreezeLeader | Fault::FreezeFollower => {
            let victim = if fault == Fault::FreezeLeader { leader } else { follower };
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
            done(format!("filled the disk of {}", names.join(", ")), &victims, down)
        }
        Fault::SyncLeader | Fault::SyncFollower => {
            let victim = if fault == Fault::SyncLeader { leader } else { follower };
            processes.break_syncs(victim)?;
            done(format!("failed the syncs of {}", name(victim)), &[victim], down)
        }
        Fault::CutFromLeader => {
            cut(processes, &[(leader, follower)])?;
            done(format!("cut {leads} to {follows}"), &[leader, follower], down)
        }
        Fault::CutToLeader => {
            cut(processes, &[(follower, leader)])?;
            done(format!("cut {follows} to {leads}"), &[leader, follower], down)
        }
        Fault::CutLink => {
            cut(processes, &[(leader, follower), (follower, leader)])?;
            done(format!("cut {leads} and {follows}"), &[leader, follower], down)
        }
        Fault::IsolateLeader | Fault::IsolateFollower => {
            let victim = if fault == Fault::IsolateLeader { leader } else { follower };
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
    links.iter().try_for_each(|&(from, to)| network.cut(from, to))
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
            assert!((1..=2).contains(&count), "{name}: {count}");
            assert_eq!(name.parse::<Fault>().expect("known"), fault);
        }
        assert_eq!(drawn, schedule(&faults, 40, &mut SplitMix::new(3)));
        assert_ne!(drawn, schedule(&faults, 40, &mut SplitMix::new(4)));
        assert!(schedule(&[], 3, &mut SplitMix::new(3)).is_empty());
    }

    #[test]
    fn one_node_has_no_followers_and_no_links() {
        let possible = |nodes, network, clocks| {
            let possible = |(_, fault): &(_, Fault)| fault.is_possible(nodes, network, clocks);
            Fault::ALL.iter().filter(|fault| possible(fault)).count()
        };
        assert_eq!(possible(1, true, false), 6);
        assert_eq!(possible(3, false, false), 10);
        assert_eq!(possible(3, true, false), 15);
        assert_eq!((possible(1, true, true), possible(3, true, true)), (7, 21));
    }
}
