//! The servers under test: real processes, each with its directory and, if there is a network, its namespace.

use super::clocks::Clock;
use super::network::Network;
use crate::child::dying_with_us;
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use server::client::{Answer, Client};
use server::cluster::ClusterStatus;
use server::cluster::Delivery;
use server::launcher::{ServerProcess, free_address, poll};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A node that has not ended by then will not.
const STOP_MAX: Duration = Duration::from_secs(120);
/// A node that answers nothing for this long is not asked any more.
const ASK_PATIENCE: Duration = Duration::from_secs(2);
/// In namespaces every node has an address of its own, so all have the same ports.
const CLIENT_PORT: u16 = 6379;
const PEER_PORT: u16 = 16379;

/// The files beside a node's directory that make its disk refuse: see `disk.c`.
const FULL: &str = "full";
const SYNC: &str = "sync";

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Ordo's program.
    pub ordo: PathBuf,
    /// How many nodes. One is a server of its own, more are a cluster.
    pub nodes: usize,
    /// To how many zones they are dealt. With fewer than nodes, each keeps some of the partitions only.
    pub zones: usize,
    /// Partitions of the cluster.
    pub partitions: u16,
    /// How the replicas of a partition agree.
    pub delivery: Delivery,
    /// What `--appendfsync` says.
    pub appendfsync: String,
    /// Further arguments of each node.
    pub arguments: Vec<String>,
    /// Where each node has a directory for its data and its output.
    pub directory: PathBuf,
    /// What sets the nodes' clocks ([`super::clocks::library`]), if anything is to.
    pub faketime: Option<PathBuf>,
}

struct Node {
    directory: PathBuf,
    client: SocketAddr,
    peer: SocketAddr,
    clock: Option<Clock>,
    process: Option<ServerProcess>,
    frozen: bool,
    /// Its syncs have failed: only another process goes on.
    is_broken: bool,
}

/// The nodes. Dropping them kills them.
pub struct Processes {
    setting: Setting,
    network: Option<Network>,
    nodes: Vec<Node>,
    /// What is preloaded into the nodes, so that their disks can refuse.
    disk: Option<PathBuf>,
    /// How long a node took at most that was told to end.
    pub longest_stop: Duration,
}

impl Processes {
    /// Prepares the nodes; none runs yet. The kernel kills them when the thread that started them ends.
    pub fn new(setting: Setting, network: Option<Network>) -> Result<Processes> {
        let mut nodes = Vec::new();
        for node in 0..setting.nodes {
            let directory = setting.directory.join(name(node));
            std::fs::create_dir_all(&directory)
                .with_context(|| format!("could not make {}", directory.display()))?;
            let (client, peer) = match &network {
                Some(network) => {
                    let address = network.address(node);
                    ((address, CLIENT_PORT).into(), (address, PEER_PORT).into())
                }
                None => (free_address()?.parse()?, free_address()?.parse()?),
            };
            let clock = setting.faketime.as_ref();
            let clock = clock.map(|library| Clock::new(library, &directory));
            nodes.push(Node {
                clock: clock.transpose()?,
                directory,
                client,
                peer,
                process: None,
                frozen: false,
                is_broken: false,
            });
        }
        let processes = Processes { setting, network, nodes, disk: None, longest_stop: Duration::ZERO };
        if processes.is_cluster() {
            let path = processes.description();
            // It has the secret: only we read it.
            File::options()
                .create(true)
                .write(true)
                .truncate(true)
                .mode(0o600)
                .open(&path)
                .and_then(|mut file| file.write_all(processes.cluster_toml().as_bytes()))
                .with_context(|| format!("could not write {}", path.display()))?;
        }
        Ok(processes)
    }

    /// Prepares nodes without a network of their own, starts all of them, and waits until they are up.
    pub fn started(setting: Setting, patience: Duration) -> Result<Processes> {
        let mut processes = Processes::new(setting, None)?;
        for node in 0..processes.nodes.len() {
            processes.start(node)?;
        }
        processes.wait_until_up(patience)?;
        Ok(processes)
    }

    fn is_cluster(&self) -> bool {
        self.nodes.len() > 1
    }
    fn description(&self) -> PathBuf {
        self.setting.directory.join("cluster.toml")
    }

    /// The cluster's description.
    fn cluster_toml(&self) -> String {
        let mut text = format!(
            "name = \"faults\"\nsecret = \"the processes of one test run\"\npartitions = {}\n\
             delivery = \"{}\"\n",
            self.setting.partitions, self.setting.delivery
        );
        for (index, node) in self.nodes.iter().enumerate() {
            let _ = write!(
                text,
                "\n[[node]]\nname = \"{}\"\nzone = \"zone{}\"\npeer_address = \"{}\"\nclient_address = \
                 \"{}\"\n",
                name(index),
                index % self.setting.zones,
                node.peer,
                node.client
            );
        }
        text
    }

    /// Makes disks that can refuse, for the nodes that start from now on: a library that stands between them
    /// and the system's.
    pub fn prepare_disks(&mut self) -> Result<()> {
        let source = self.setting.directory.join("disk.c");
        let library = self.setting.directory.join("disk.so");
        std::fs::write(&source, include_str!("disk.c"))?;
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let compiled = std::process::Command::new(&compiler)
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .output()
            .with_context(|| format!("could not run {compiler}, the C compiler: faults of disks need one"))?;
        if !compiled.status.success() {
            let said = String::from_utf8_lossy(&compiled.stderr).into_owned();
            bail!("{compiler} could not compile what makes disks refuse: {said}");
        }
        self.disk = Some(library);
        Ok(())
    }

    fn disk_flag(&self, node: usize, flag: &str) -> PathBuf {
        self.nodes[node].directory.join(flag)
    }
    fn refuse(&self, node: usize, flag: &str) -> Result<()> {
        if self.disk.is_none() {
            bail!("the disks were not prepared");
        }
        std::fs::write(self.disk_flag(node, flag), "")?;
        Ok(())
    }
    /// From now on a node's disk is full.
    pub fn fill_disk(&mut self, node: usize) -> Result<()> {
        self.refuse(node, FULL)
    }
    /// From now on a node's syncs fail.
    pub fn break_syncs(&mut self, node: usize) -> Result<()> {
        self.nodes[node].is_broken = true;
        self.refuse(node, SYNC)
    }

    /// The network, if the nodes have one of their own.
    pub fn network(&mut self) -> Option<&mut Network> {
        self.network.as_mut()
    }
    /// Moves the calling thread to where clients are.
    pub fn enter(&self) -> Result<()> {
        self.network.as_ref().map_or(Ok(()), Network::enter_hub)
    }
    /// Where what a node prints goes.
    pub fn output(&self, node: usize) -> PathBuf {
        self.nodes[node].directory.join("output")
    }
    /// Where clients reach the nodes.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.client).collect()
    }

    /// The processes of the nodes that run.
    pub fn ids(&self) -> Vec<u32> {
        let running = self.nodes.iter().filter_map(|node| node.process.as_ref());
        running.map(ServerProcess::id).collect()
    }

    /// Starts a node with the data that it has. It is up when it answers: [`Processes::wait_until_up`].
    pub fn start(&mut self, node: usize) -> Result<()> {
        let description = self.description();
        let is_cluster = self.is_cluster();
        let mut command = match &self.network {
            Some(network) => {
                let [ip, words @ ..] = network.words(node);
                let mut command = dying_with_us(Path::new(&ip));
                command.args(words).arg(&self.setting.ordo);
                command
            }
            None => dying_with_us(&self.setting.ordo),
        };
        let started = &mut self.nodes[node];
        if let Some(disk) = &self.disk {
            command.env("LD_PRELOAD", disk).env("ORDO_FAULTS_DISK", &started.directory);
        }
        command.args(["serve", "--appendfsync", &self.setting.appendfsync, "--protected-mode", "no"]);
        command.args(&self.setting.arguments);
        if is_cluster {
            command.arg("--cluster").arg(description).args(["--node", &name(node)]);
        } else {
            let (address, port) = (started.client.ip().to_string(), started.client.port().to_string());
            command.args(["--bind", &address, "--port", &port]);
        }
        command.arg("--dir").arg(started.directory.join("data"));
        if let Some(clock) = &started.clock {
            clock.show_to(&mut command);
        }
        let log = started.directory.join("output");
        started.process = Some(ServerProcess::start(&name(node), &mut command, &log)?);
        started.frozen = false;
        Ok(())
    }

    /// `kill -9` of some nodes, all of them before any is waited for.
    pub fn kill(&mut self, nodes: &[usize]) -> Result<()> {
        for &node in nodes {
            self.signal(node, Signal::KILL)?;
        }
        for &node in nodes {
            // Dropping a process waits for its end.
            self.nodes[node].process = None;
        }
        Ok(())
    }
    /// SIGTERM to some nodes, all of them before any is waited for. Returns how long it took until all had
    /// ended.
    pub fn stop(&mut self, nodes: &[usize]) -> Result<Duration> {
        let began = Instant::now();
        for &node in nodes {
            self.signal(node, Signal::TERM)?;
        }
        for &node in nodes {
            if let Some(mut process) = self.nodes[node].process.take() {
                let status = process.wait(STOP_MAX)?;
                if !status.success() {
                    bail!(process.error(&format!("ended with {status}")));
                }
            }
        }
        Ok(began.elapsed())
    }
    /// Takes the processor from a node, and waits until none of its threads runs any more.
    pub fn freeze(&mut self, node: usize) -> Result<()> {
        self.signal(node, Signal::STOP)?;
        self.nodes[node].frozen = true;
        let process = self.nodes[node].process.as_ref().map_or(0, ServerProcess::id);
        while !stands_still(process) {
            self.hold_alive()?;
            std::thread::yield_now();
        }
        Ok(())
    }
    /// Gives the processor back.
    pub fn thaw(&mut self, node: usize) -> Result<()> {
        self.signal(node, Signal::CONT)?;
        self.nodes[node].frozen = false;
        Ok(())
    }

    /// Sets a node's clock so far ahead of the true time.
    pub fn set_clock(&self, node: usize, ahead_s: i64) -> Result<()> {
        match &self.nodes[node].clock {
            Some(clock) => clock.set(ahead_s),
            None => bail!("clocks are set with --clock-steps only"),
        }
    }

    fn signal(&mut self, node: usize, signal: Signal) -> Result<()> {
        match &mut self.nodes[node].process {
            Some(process) => Ok(process.signal(signal)?),
            None => bail!("{} does not run", name(node)),
        }
    }

    /// Undoes whatever was done to the nodes and their links.
    pub fn heal(&mut self) -> Result<()> {
        if let Some(network) = &mut self.network {
            network.heal()?;
        }
        for node in 0..self.nodes.len() {
            if let Some(clock) = &self.nodes[node].clock {
                clock.set(0)?;
            }
            for flag in [FULL, SYNC] {
                // Most have none.
                let _ = std::fs::remove_file(self.disk_flag(node, flag));
            }
            if std::mem::take(&mut self.nodes[node].is_broken) {
                let took = self.stop(&[node])?;
                self.longest_stop = self.longest_stop.max(took);
            }
            if self.nodes[node].process.is_none() {
                self.start(node)?;
            } else if self.nodes[node].frozen {
                self.thaw(node)?;
            }
        }
        Ok(())
    }

    /// An error if a node has ended that nobody has killed.
    pub fn hold_alive(&mut self) -> Result<()> {
        for process in self.nodes.iter_mut().filter_map(|node| node.process.as_mut()) {
            if let Some(status) = process.look()? {
                bail!(process.error(&format!("ended by itself, {status}")));
            }
        }
        Ok(())
    }

    /// Waits until every node answers, hears from every other, and knows a leader of every partition.
    pub fn wait_until_up(&mut self, patience: Duration) -> Result<()> {
        let (mut node, mut missing) = (0, None);
        let up = poll(patience, || {
            while node < self.nodes.len() {
                if let Err(ended) = self.hold_alive() {
                    return Some(Err(ended));
                }
                if let Err(error) = self.is_up(node) {
                    missing = Some(error);
                    return None;
                }
                node += 1;
            }
            Some(Ok(()))
        });
        up.unwrap_or_else(|| {
            let missing = missing.map_or_else(String::new, |error| format!(": {error:#}"));
            let problem = format!("was not up after {} s{missing}", patience.as_secs());
            match &self.nodes[node].process {
                Some(process) => Err(process.error(&problem).into()),
                None => bail!("{} {problem}", name(node)),
            }
        })
    }

    fn is_up(&self, node: usize) -> Result<()> {
        if self.is_cluster() {
            let status = self.status(node)?;
            if let Some(lost) = status.nodes.iter().find(|other| !other.reachable && other.id != status.me) {
                bail!("it does not hear from {}", lost.name);
            }
            if let Some((name, cause)) =
                (status.nodes.iter()).find_map(|node| Some((&node.name, node.out.as_ref()?)))
            {
                bail!("{name} is out: {cause}");
            }
            if let Some(partition) = status.partitions.iter().find(|partition| partition.leader.is_none()) {
                bail!("it knows no leader of partition {}", partition.id);
            }
            return Ok(());
        }
        match self.ask(node, &["PING"])? {
            Answer::Error(error) => bail!("{error}"),
            _ => Ok(()),
        }
    }

    fn ask(&self, node: usize, words: &[&str]) -> Result<Answer> {
        let mut client = Client::open(&self.nodes[node].client.to_string(), ASK_PATIENCE)?;
        Ok(client.call(words)?)
    }
    fn status(&self, node: usize) -> Result<ClusterStatus> {
        let text = self.ask(node, &["ORDO.CLUSTER", "STATUS"])?.text("ORDO.CLUSTER STATUS")?;
        serde_json::from_str(&text).context("ORDO.CLUSTER STATUS is not what was expected")
    }

    /// The node that leads a partition: what the one in the highest term says.
    pub fn leader(&self, partition: u16) -> Result<usize> {
        if !self.is_cluster() {
            return Ok(0);
        }
        let mut newest = None;
        for node in 0..self.nodes.len() {
            let Ok(status) = self.status(node) else {
                continue;
            };
            let leader = status.partitions.iter().find(|found| found.id == partition).and_then(|found| {
                let leader = status.nodes.iter().find(|other| Some(other.id) == found.leader)?;
                let index = (0..self.nodes.len()).find(|&index| name(index) == leader.name)?;
                Some((found.term, index))
            });
            newest = newest.max(leader);
        }
        newest
            .map(|(_, leader)| leader)
            .with_context(|| format!("nobody knows who leads partition {partition}"))
    }
}

/// Whether all threads of a process are stopped. One that ends meanwhile does not run either.
fn stands_still(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    let stopped = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state is behind the name, which is in parentheses and may contain anything.
        let state = stat.rsplit_once(") ").map(|(_, behind)| behind);
        state.is_none_or(|state| state.starts_with('T'))
    };
    threads.is_ok_and(|mut threads| threads.all(|thread| thread.is_ok_and(stopped)))
}

/// What a node is called.
pub fn name(node: usize) -> String {
    format!("node{node}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::cluster::ClusterConfig;

    fn setting(nodes: usize, directory: &Path) -> Setting {
        Setting {
            ordo: "ordo".into(),
            nodes,
            zones: nodes,
            partitions: 2,
            delivery: Delivery::Raft,
            appendfsync: "always".to_owned(),
            arguments: Vec::new(),
            directory: directory.to_owned(),
            faketime: None,
        }
    }

    #[test]
    fn the_description_of_the_cluster_is_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let processes = Processes::new(setting(3, directory.path()), None).expect("prepared");
        let described = ClusterConfig::load(&processes.description()).expect("valid");
        assert_eq!(described.warnings, Vec::<String>::new());
        assert_eq!((described.partitions, described.nodes.len()), (2, 3));
        let clients: Vec<String> = processes.addresses().iter().map(ToString::to_string).collect();
        let addresses = described.nodes.iter().map(|node| &node.client_address);
        assert!(addresses.eq(&clients), "{described:?}");
    }

    #[test]
    fn a_frozen_process_stands_still() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut processes = Processes::new(setting(1, directory.path()), None).expect("prepared");
        let mut busy = std::process::Command::new("sh");
        busy.args(["-c", "while :; do :; done"]);
        let busy = ServerProcess::start("node0", &mut busy, &directory.path().join("output"));
        let busy = busy.expect("a shell");
        let process = busy.id();
        processes.nodes[0].process = Some(busy);
        assert!(!stands_still(process));
        processes.freeze(0).expect("frozen");
        assert!(stands_still(process));
        processes.heal().expect("thawed");
        processes.hold_alive().expect("it runs");
        processes.kill(&[0]).expect("killed");
        let error = processes.freeze(0).expect_err("gone").to_string();
        assert!(error.contains("node0 does not run"), "{error}");
    }
}
