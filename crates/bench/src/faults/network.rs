//! Machines that are network namespaces: each node has its own, joined by one that routes.
//!
//! ```text
//!  node 0: 10.91.1.2 ── 10.91.1.1 ┐
//!  node 1: 10.91.2.2 ── 10.91.2.1 ┤ the hub: routes between nodes; clients live here
//!  node 2: 10.91.3.2 ── 10.91.3.1 ┘
//! ```
//!
//! A cut is a rule of the hub that swallows what goes from one node to another, so that neither is told, and
//! each direction has its own. Clients in the hub still reach every node. Nothing of it is visible outside,
//! and the addresses of two networks do not meet; only the names do, so they have the process's number in
//! them.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// What the names of all our namespaces begin with.
const PREFIX: &str = "ordo-faults-";
/// Where `ip` keeps namespaces that have a name.
const NAMED: &str = "/run/netns";
/// Nodes of a network, at most: the third number of their addresses.
const NODES_MAX: usize = 200;

/// Numbers the networks of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A network of namespaces, which goes when it is dropped.
pub struct Network {
    prefix: String,
    nodes: usize,
    cuts: BTreeSet<(usize, usize)>,
}

impl Network {
    /// What this machine lacks for a network of namespaces; `None` if nothing.
    pub fn missing() -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("network namespaces need root".to_owned());
        }
        if let Err(error) = ip(&["-V"]) {
            return Some(format!(
                "network namespaces need the program ip (on Debian: apt install iproute2): {error:#}"
            ));
        }
        // Containers may give root without the right to do this.
        Network::new(1).err().map(|error| format!("network namespaces do not work here: {error:#}"))
    }

    /// Makes a network for `nodes` nodes. What processes left that are gone is removed first.
    pub fn new(nodes: usize) -> Result<Network> {
        if nodes > NODES_MAX {
            bail!("a network has at most {NODES_MAX} nodes");
        }
        remove_left_over();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let network = Network {
            prefix: format!("{PREFIX}{}-{number}-", std::process::id()),
            nodes,
            cuts: BTreeSet::new(),
        };
        network.build()?;
        Ok(network)
    }

    fn build(&self) -> Result<()> {
        let hub = self.hub();
        ip(&["netns", "add", &hub])?;
        ip(&["-n", &hub, "link", "set", "dev", "lo", "up"])?;
        for node in 0..self.nodes {
            let (name, device) = (self.node(node), format!("node{node}"));
            let third = node + 1;
            let (inner, outer) = (format!("10.91.{third}.2/24"), format!("10.91.{third}.1/24"));
            ip(&["netns", "add", &name])?;
            ip(&[
                "-n", &hub, "link", "add", "dev", &device, "type", "veth", "peer", "name", "uplink", "netns",
                &name,
            ])?;
            ip(&["-n", &hub, "addr", "add", &outer, "dev", &device])?;
            ip(&["-n", &hub, "link", "set", "dev", &device, "up"])?;
            ip(&["-n", &name, "addr", "add", &inner, "dev", "uplink"])?;
            ip(&["-n", &name, "link", "set", "dev", "lo", "up"])?;
            ip(&["-n", &name, "link", "set", "dev", "uplink", "up"])?;
            let router = format!("10.91.{third}.1");
            ip(&["-n", &name, "route", "add", "default", "via", &router])?;
        }
        // Each namespace has its own setting, which only a thread in it can reach.
        std::thread::scope(|scope| {
            let forward = scope.spawn(|| {
                self.enter_hub()?;
                File::options()
                    .write(true)
                    .open("/proc/sys/net/ipv4/ip_forward")
                    .and_then(|mut file| file.write_all(b"1"))
                    .context("could not let the hub forward")
            });
            forward.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn hub(&self) -> String {
        format!("{}hub", self.prefix)
    }
    fn node(&self, node: usize) -> String {
        format!("{}{node}", self.prefix)
    }

    /// A node's address.
    pub fn address(&self, node: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 91, node as u8 + 1, 2)
    }

    /// The words that run a program in a node's namespace, the program and its arguments excluded. The
    /// program takes the place of `ip`: the process is the program's.
    pub fn words(&self, node: usize) -> [String; 4] {
        ["ip".into(), "netns".into(), "exec".into(), self.node(node)]
    }

    /// Moves the calling thread to the hub, from where all nodes are reached whatever is cut. What it
    /// connects from now on begins there. There is no way back.
    pub fn enter_hub(&self) -> Result<()> {
        enter(&self.hub())
    }
    /// Moves the calling thread to a node.
    pub fn enter_node(&self, node: usize) -> Result<()> {
        enter(&self.node(node))
    }

    /// Swallows from now on what `from` sends to `to`.
    pub fn cut(&mut self, from: usize, to: usize) -> Result<()> {
        if self.cuts.insert((from, to)) {
            self.rule("add", from, to)?;
        }
        Ok(())
    }
    /// Heals all links.
    pub fn heal(&mut self) -> Result<()> {
        while let Some((from, to)) = self.cuts.pop_first() {
            self.rule("del", from, to)?;
        }
        Ok(())
    }

    fn rule(&self, what: &str, from: usize, to: usize) -> Result<()> {
        let (from, to) = (self.address(from).to_string(), self.address(to).to_string());
        ip(&["-n", &self.hub(), "rule", what, "from", &from, "to", &to, "blackhole"])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for node in 0..self.nodes {
            remove(&self.node(node));
        }
        remove(&self.hub());
    }
}

fn enter(name: &str) -> Result<()> {
    let path = Path::new(NAMED).join(name);
    let file = File::open(&path).with_context(|| format!("could not open {}", path.display()))?;
    let kind = rustix::thread::LinkNameSpaceType::Network;
    rustix::thread::move_into_link_name_space(file.as_fd(), Some(kind))
        .with_context(|| format!("could not enter the network namespace {name}"))
}

fn remove(name: &str) {
    if Path::new(NAMED).join(name).exists()
        && let Err(error) = ip(&["netns", "del", name])
    {
        eprintln!("a network namespace is left over: {error:#}");
    }
}

/// Removes the namespaces of processes that are gone. Another one may be doing the same.
fn remove_left_over() {
    let Ok(entries) = std::fs::read_dir(NAMED) else {
        return;
    };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            remove(&name);
        }
    }
}

fn ip(words: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(words).output().context("could not run ip")?;
    if !output.status.success() {
        bail!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

    /// Where the network is possible at all.
    fn network(nodes: usize) -> Option<Network> {
        if let Some(missing) = Network::missing() {
            println!("skipped: {missing}");
            return None;
        }
        Some(Network::new(nodes).unwrap_or_else(|error| panic!("{error:#}")))
    }

    /// A socket that was made in a node's namespace stays there.
    fn socket(network: &Network, node: usize) -> UdpSocket {
        std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                network.enter_node(node).expect("a namespace");
                UdpSocket::bind((network.address(node), 7_000)).expect("an address")
            });
            made.join().expect("a socket")
        })
    }

    fn arrives(network: &Network, from: &UdpSocket, to: (usize, &UdpSocket), message: u8) -> bool {
        let (node, to) = to;
        to.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
        from.send_to(&[message], (network.address(node), 7_000)).expect("sent");
        let mut bytes = [0; 8];
        matches!(to.recv(&mut bytes), Ok(1)) && bytes[0] == message
    }

    #[test]
    fn a_cut_swallows_one_direction_until_it_heals() {
        let Some(mut network) = network(3) else {
            return;
        };
        let sockets: Vec<UdpSocket> = (0..3).map(|node| socket(&network, node)).collect();
        let mut message = 0;
        let mut arrives = |network: &Network, from: usize, to: usize| {
            message += 1;
            arrives(network, &sockets[from], (to, &sockets[to]), message)
        };
        assert!(arrives(&network, 0, 1) && arrives(&network, 1, 0));
        network.cut(0, 1).expect("cut");
        network.cut(0, 1).expect("cut once");
        assert!(!arrives(&network, 0, 1));
        assert!(arrives(&network, 1, 0) && arrives(&network, 0, 2) && arrives(&network, 2, 1));
        network.heal().expect("healed");
        assert!(arrives(&network, 0, 1));
    }

    #[test]
    fn a_network_leaves_nothing_and_removes_what_others_left() {
        let Some(network) = network(2) else { return };
        // No process has this number: it is above what the kernel gives.
        let left = format!("{PREFIX}4194305-0-hub");
        ip(&["netns", "add", &left]).expect("made");
        let names = [network.hub(), network.node(0), network.node(1)];
        let there = |name: &String| Path::new(NAMED).join(name).exists();
        assert!(names.iter().all(there));
        let other = Network::new(1).unwrap_or_else(|error| panic!("{error:#}"));
        assert!(!there(&left), "nobody owns it");
        assert!(names.iter().all(there), "somebody owns them");
        drop((network, other));
        assert!(!names.iter().any(there));
    }
}
