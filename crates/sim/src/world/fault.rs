//! What goes wrong, and when.
//!
//! A run's faults are a list, drawn from the seed before the run begins or read from a scenario file. So a
//! failure can be shrunk by leaving faults out, and a person can write down the story that worries them.
//! Every fault ends by itself; after the last one the world heals, and from then on everything must finish.
//!
//! Which kinds a seed has at all, and how often, is drawn too (swarm testing: Groce et al., ISSTA 2012): a
//! run in which everything happens at once finds less than runs that each dwell on something. One seed in
//! eight has no faults.

use crate::draw::Draw;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A fault and its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedFault {
    /// When it happens, in virtual milliseconds since the start of the run.
    pub at_ms: u64,
    /// What happens.
    #[serde(flatten)]
    pub fault: Fault,
}

/// Something that goes wrong. Hosts and clients are counted from 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// A host's process ends and starts again after `down_ms`.
    Crash {
        /// Which.
        host: u16,
        /// The power goes, and with it what was not synced. If not, the process is killed, and what was
        /// written stays.
        #[serde(default)]
        power: bool,
        /// The process dies in the middle of its work: at this operation of its disk, counted from now. 0
        /// means at once.
        #[serde(default)]
        at_disk_operation: u64,
        /// A bit of a file flips while the host is down. The process must then refuse to start (the bit is
        /// put back), or not need it.
        #[serde(default)]
        flip_bit: bool,
        /// The disk is lost: the host comes back empty.
        #[serde(default)]
        lose_disk: bool,
        /// How long until it starts.
        down_ms: u64,
    },
    /// A host freezes and goes on later, without knowing.
    Pause {
        /// Which.
        host: u16,
        /// How long.
        for_ms: u64,
    },
    /// A host's clock jumps.
    ClockJump {
        /// Which.
        host: u16,
        /// How far, backwards if negative.
        by_ms: i64,
    },
    /// A host's clock runs at another rate from now on.
    ClockDrift {
        /// Which.
        host: u16,
        /// Parts in a million; negative is slower.
        ppm: i64,
    },
    /// A host's processors are slower for a while.
    SlowCpu {
        /// Which.
        host: u16,
        /// By what factor.
        factor: u64,
        /// How long.
        for_ms: u64,
    },
    /// A host's disk is slower for a while.
    SlowDisk {
        /// Which.
        host: u16,
        /// By what factor.
        factor: u64,
        /// How long.
        for_ms: u64,
    },
    /// A host's disk fills up.
    DiskFull {
        /// Which.
        host: u16,
        /// How much can still be written.
        after_bytes: u64,
        /// How long until there is space again.
        for_ms: u64,
    },
    /// A write of a host's disk fails, and the ones after it succeed. What was written of it may stay.
    WriteFails {
        /// Which.
        host: u16,
        /// How much is written all the same: all of it, perhaps.
        after_bytes: u64,
    },
    /// A sync of a host's disk fails, and the disk forgets what it should have written.
    SyncFails {
        /// Which.
        host: u16,
        /// How many syncs succeed before.
        after_syncs: u64,
    },
    /// A host reaches and hears nobody.
    Isolate {
        /// Which.
        host: u16,
        /// Only what it sends is stopped.
        #[serde(default)]
        outgoing_only: bool,
        /// How long.
        for_ms: u64,
    },
    /// Some hosts can't reach the other hosts (their clients go on).
    Partition {
        /// One side.
        hosts: Vec<u16>,
        /// Only what the named hosts send is stopped.
        #[serde(default)]
        one_way: bool,
        /// How long.
        for_ms: u64,
    },
    /// Two hosts can't reach each other; everybody else reaches both.
    CutLink {
        /// From.
        from: u16,
        /// To.
        to: u16,
        /// Only this direction is cut.
        #[serde(default)]
        one_way: bool,
        /// How long.
        for_ms: u64,
    },
    /// A link between two hosts is slower for a while.
    SlowLink {
        /// From.
        from: u16,
        /// To.
        to: u16,
        /// By what factor.
        factor: u64,
        /// How long.
        for_ms: u64,
    },
    /// The network loses and repeats frames for a while.
    Weather {
        /// Of 1000 frames, how many are lost (a stream's come late).
        loss_permille: u32,
        /// Of 1000 datagrams, how many arrive twice.
        duplicate_permille: u32,
        /// How long.
        for_ms: u64,
    },
    /// The operator of a cluster replaces a host's node by another one, whether or not anything is wrong with
    /// it.
    Replace {
        /// Which.
        host: u16,
    },
    /// A client's connection breaks, and it opens another.
    Disconnect {
        /// Which.
        client: u16,
    },
}

impl Fault {
    /// Makes it one that a replica's promises survive: a flipped bit looks like a torn end where nothing else
    /// tells, a lost disk takes the votes with it (so few are lost, and on purpose: see [`lost_disk`]), and
    /// where entries are not synced a loss of power takes what was promised.
    pub fn spare_promises(&mut self, fsync: node::FsyncPolicy) {
        if let Fault::Crash { power, flip_bit, lose_disk, .. } = self {
            *power &= fsync == node::FsyncPolicy::Always;
            (*flip_bit, *lose_disk) = (false, false);
        }
    }

    /// Whether a host comes back without its disk.
    pub fn loses_disk(&self) -> bool {
        matches!(self, Fault::Crash { lose_disk: true, .. })
    }

    /// Whether the operator of a cluster has to replace a node for it.
    pub fn replaces_node(&self) -> bool {
        self.loses_disk() || matches!(self, Fault::Replace { .. })
    }

    /// How long it lasts.
    pub fn lasts_ms(&self) -> u64 {
        match *self {
            Fault::Crash { down_ms, .. } => down_ms,
            Fault::Pause { for_ms, .. }
            | Fault::SlowCpu { for_ms, .. }
            | Fault::SlowDisk { for_ms, .. }
            | Fault::DiskFull { for_ms, .. }
            | Fault::Isolate { for_ms, .. }
            | Fault::Partition { for_ms, .. }
            | Fault::CutLink { for_ms, .. }
            | Fault::SlowLink { for_ms, .. }
            | Fault::Weather { for_ms, .. } => for_ms,
            Fault::ClockJump { .. }
            | Fault::ClockDrift { .. }
            | Fault::WriteFails { .. }
            | Fault::SyncFails { .. }
            | Fault::Replace { .. }
            | Fault::Disconnect { .. } => 0,
        }
    }

    /// Why a world of this size cannot have it, if it cannot.
    pub fn check(&self, hosts: u16, clients: u16) -> Result<(), String> {
        let mut named = Vec::new();
        match self {
            Fault::Crash { host, .. }
            | Fault::Pause { host, .. }
            | Fault::ClockJump { host, .. }
            | Fault::ClockDrift { host, .. }
            | Fault::SlowCpu { host, .. }
            | Fault::SlowDisk { host, .. }
            | Fault::DiskFull { host, .. }
            | Fault::WriteFails { host, .. }
            | Fault::SyncFails { host, .. }
            | Fault::Replace { host }
            | Fault::Isolate { host, .. } => named.push(*host),
            Fault::Partition { hosts, .. } => named.extend(hosts),
            Fault::SlowLink { from, to, .. } | Fault::CutLink { from, to, .. } => named.extend([*from, *to]),
            Fault::Weather { .. } => {}
            Fault::Disconnect { client } => {
                return if *client < clients {
                    Ok(())
                } else {
                    Err(format!("there is no client {client}: there are {clients}, counted from 0"))
                };
            }
        }
        match named.iter().find(|&&host| host >= hosts) {
            Some(host) => Err(format!("there is no host {host}: there are {hosts}, counted from 0")),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Crash { host, power, at_disk_operation, flip_bit, lose_disk, down_ms } => {
                let how = if *power { "loses power" } else { "is killed" };
                write!(f, "host {host} {how}")?;
                if *at_disk_operation > 0 {
                    write!(f, " at disk operation {at_disk_operation} from now")?;
                }
                if *flip_bit {
                    write!(f, ", a bit flips")?;
                }
                if *lose_disk {
                    write!(f, ", its disk is lost")?;
                }
                write!(f, ", down for {down_ms} ms")
            }
            Fault::Pause { host, for_ms } => write!(f, "host {host} freezes for {for_ms} ms"),
            Fault::ClockJump { host, by_ms } => {
                write!(f, "the clock of host {host} jumps by {by_ms} ms")
            }
            Fault::ClockDrift { host, ppm } => {
                write!(f, "the clock of host {host} is off by {ppm} ppm")
            }
            Fault::SlowCpu { host, factor, for_ms } => {
                write!(f, "host {host} computes {factor} times slower for {for_ms} ms")
            }
            Fault::SlowDisk { host, factor, for_ms } => {
                write!(f, "the disk of host {host} is {factor} times slower for {for_ms} ms")
            }
            Fault::DiskFull { host, after_bytes, for_ms } => {
                write!(f, "the disk of host {host} is full after {after_bytes} bytes, for {for_ms} ms")
            }
            Fault::WriteFails { host, after_bytes } => {
                write!(f, "a write of host {host} fails after {after_bytes} bytes")
            }
            Fault::SyncFails { host, after_syncs } => {
                write!(f, "a sync of host {host} fails after {after_syncs} more")
            }
            Fault::Isolate { host, outgoing_only, for_ms } => {
                let what = if *outgoing_only { "is mute" } else { "is cut off" };
                write!(f, "host {host} {what} for {for_ms} ms")
            }
            Fault::Partition { hosts, one_way, for_ms } => {
                let how = if *one_way { "don't reach" } else { "are cut off from" };
                write!(f, "hosts {hosts:?} {how} the others for {for_ms} ms")
            }
            Fault::CutLink { from, to, one_way, for_ms } => {
                let arrow = if *one_way { "to" } else { "and" };
                write!(f, "the link of host {from} {arrow} host {to} is cut for {for_ms} ms")
            }
            Fault::SlowLink { from, to, factor, for_ms } => {
                write!(f, "the link from host {from} to host {to} is {factor} times slower for {for_ms} ms")
            }
            Fault::Weather { loss_permille, duplicate_permille, for_ms } => write!(
                f,
                "the network loses {loss_permille} and repeats {duplicate_permille} of 1000 frames for \
                 {for_ms} ms"
            ),
            Fault::Replace { host } => write!(f, "the node of host {host} is replaced"),
            Fault::Disconnect { client } => write!(f, "the connection of client {client} breaks"),
        }
    }
}

/// What a run's faults are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Hosts.
    pub hosts: u16,
    /// Clients.
    pub clients: u16,
    /// Faults happen in this time, from the run's start on.
    pub until_ms: u64,
    /// Whether a host may lose its disk: only where others have its data.
    pub disks_may_go: bool,
}

/// How often each kind of fault happens in a run: a weight each, 0 for never.
const KINDS: usize = 14;

/// Draws the faults of a run.
pub fn draw_faults(draw: &mut Draw, stage: Stage) -> Vec<TimedFault> {
    if draw.below(8) == 0 {
        return Vec::new();
    }
    let weights: Vec<u32> = (0..KINDS).map(|_| draw.pick(&[0, 0, 1, 1, 4])).collect();
    if weights.iter().all(|&weight| weight == 0) {
        return Vec::new();
    }
    let count = draw.pick(&[1, 3, 6, 12]);
    let mut faults: Vec<TimedFault> = (0..count)
        .map(|_| TimedFault { at_ms: draw.below(stage.until_ms), fault: draw_fault(draw, stage, &weights) })
        .collect();
    let blows: Vec<TimedFault> = faults.iter().filter_map(|timed| second_blow(draw, timed)).collect();
    faults.extend(blows);
    faults.sort_by_key(|timed| timed.at_ms);
    faults
}

/// All hosts lose their power at about the same time.
pub fn outage(draw: &mut Draw, hosts: u16, at_ms: u64) -> Vec<TimedFault> {
    let spread_ms = draw.pick(&[1, 1, 5, 30]);
    (0..hosts)
        .map(|host| TimedFault {
            at_ms: at_ms + draw.below(spread_ms),
            fault: Fault::Crash {
                host,
                power: true,
                at_disk_operation: draw.pick(&[0, 0, 0, 1, 3]),
                flip_bit: false,
                lose_disk: false,
                down_ms: 5 + draw.below(50),
            },
        })
        .collect()
}

/// The disks of all hosts are full at about the same time, and get room again.
pub fn full_disks(draw: &mut Draw, hosts: u16, at_ms: u64) -> Vec<TimedFault> {
    (0..hosts)
        .map(|host| TimedFault {
            at_ms: at_ms + draw.below(30),
            fault: Fault::DiskFull {
                host,
                after_bytes: draw.below(4_000),
                for_ms: draw.pick(&[50, 300, 3_000]) + draw.below(500),
            },
        })
        .collect()
}

/// A host loses its disk for good.
pub fn lost_disk(draw: &mut Draw, hosts: u16, at_ms: u64) -> TimedFault {
    TimedFault {
        at_ms,
        fault: Fault::Crash {
            host: draw.below(u64::from(hosts)) as u16,
            power: true,
            at_disk_operation: draw.pick(&[0, 0, 0, 20]),
            flip_bit: false,
            lose_disk: true,
            down_ms: draw.pick(&[5, 50, 500]) + draw.below(50),
        },
    }
}

/// A loss of power soon after a fault, sometimes: only that shows what the disk never had.
fn second_blow(draw: &mut Draw, timed: &TimedFault) -> Option<TimedFault> {
    let (host, after_ms) = match timed.fault {
        Fault::SyncFails { host, .. } => (host, draw.pick(&[5, 50, 300])),
        Fault::WriteFails { host, .. } => (host, draw.pick(&[1, 5, 50])),
        Fault::Crash { host, down_ms, .. } => (host, down_ms + draw.below(5)),
        _ => return None,
    };
    draw.percent(40).then(|| TimedFault {
        at_ms: timed.at_ms + after_ms,
        fault: Fault::Crash {
            host,
            power: draw.percent(80),
            at_disk_operation: draw.pick(&[0, 0, 5, 50]),
            flip_bit: false,
            lose_disk: false,
            down_ms: 5,
        },
    })
}

fn draw_fault(draw: &mut Draw, stage: Stage, weights: &[u32]) -> Fault {
    let host = draw.below(u64::from(stage.hosts)) as u16;
    let other = draw.below(u64::from(stage.hosts)) as u16;
    // Short and long ones: what times out, and what does not.
    let for_ms = draw.pick(&[5, 50, 300, 1_500]) + draw.below(50);
    match draw.weighted(weights.iter().copied()) {
        0 => Fault::Crash {
            host,
            power: true,
            at_disk_operation: 0,
            flip_bit: false,
            lose_disk: stage.disks_may_go && draw.percent(20),
            down_ms: for_ms,
        },
        1 => Fault::Crash {
            host,
            power: false,
            at_disk_operation: 0,
            flip_bit: false,
            lose_disk: false,
            down_ms: for_ms,
        },
        2 => Fault::Crash {
            host,
            power: draw.percent(60),
            at_disk_operation: 1 + draw.below(200),
            flip_bit: false,
            lose_disk: false,
            down_ms: for_ms,
        },
        3 => Fault::Crash {
            host,
            power: draw.percent(50),
            at_disk_operation: 0,
            flip_bit: true,
            lose_disk: false,
            down_ms: for_ms,
        },
        4 => Fault::Pause { host, for_ms },
        5 => Fault::ClockJump {
            host,
            by_ms: draw.pick(&[-3_600_000, -100_000, -1_000, -20, 20, 1_000, 100_000, 3_600_000]),
        },
        6 => Fault::ClockDrift { host, ppm: draw.pick(&[-200_000, -500, 500, 200_000]) },
        7 => Fault::SlowCpu { host, factor: draw.pick(&[3, 30]), for_ms },
        8 => Fault::SlowDisk { host, factor: draw.pick(&[10, 100]), for_ms },
        9 if draw.percent(60) => Fault::DiskFull { host, after_bytes: draw.below(8_000), for_ms },
        9 => Fault::WriteFails { host, after_bytes: draw.pick(&[0, 100, 600, 1 << 20]) },
        10 => Fault::SyncFails { host, after_syncs: draw.below(4) },
        11 => Fault::Disconnect { client: draw.below(u64::from(stage.clients)) as u16 },
        12 => Fault::Weather {
            loss_permille: draw.pick(&[10, 100, 300]),
            duplicate_permille: draw.pick(&[0, 100]),
            for_ms,
        },
        _ => match draw.below(4) {
            0 if stage.hosts > 1 => Fault::Partition {
                hosts: (0..stage.hosts).filter(|_| draw.percent(40)).collect(),
                one_way: draw.percent(30),
                for_ms,
            },
            1 if host != other => {
                Fault::SlowLink { from: host, to: other, factor: draw.pick(&[10, 1_000]), for_ms }
            }
            2 if host != other => Fault::CutLink { from: host, to: other, one_way: draw.percent(50), for_ms },
            _ => Fault::Isolate { host, outgoing_only: draw.percent(30), for_ms },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_drawn_for_somebody_who_exists_and_reads_back() {
        let stage = Stage { hosts: 3, clients: 4, until_ms: 1_000, disks_may_go: true };
        let mut kinds = Vec::new();
        let mut quiet = 0;
        for seed in 0..400 {
            let faults = draw_faults(&mut Draw::new(seed), stage);
            quiet += u64::from(faults.is_empty());
            for timed in faults {
                assert!(timed.at_ms < 1_000 + 1_600);
                timed.fault.check(3, 4).unwrap();
                let text = toml::to_string(&timed).unwrap();
                let read: TimedFault = toml::from_str(&text).unwrap();
                assert_eq!(read, timed, "{text}");
                let kind = std::mem::discriminant(&timed.fault);
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
                assert!(Fault::SlowLink { from: 0, to: 3, factor: 1, for_ms: 1 }.check(3, 4).is_err());
            }
        }
        assert!((40..120).contains(&quiet), "{quiet} of 400 seeds have no faults");
        assert_eq!(kinds.len(), 15);
    }
}
