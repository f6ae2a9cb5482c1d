//! `ordo admin`: asks a node of a cluster how the cluster is, and tells it who is to join, to leave, to lead,
//! and to have which slots.
//!
//! Every subcommand begins with the status of the first of the given nodes that answers: it turns names into
//! numbers and finds mistakes before anything is changed. A change is sent once, to that node, or to a
//! partition's leader if only that one can make it: if its reply is lost, nobody here knows whether it
//! happened, and says so.

mod certified;
mod geo;
mod hierarchy;
mod leaders;
mod placement;
mod rebalance;
mod requests;
mod show;
mod survivor;

use crate::nodes::{Nodes, PASSWORD_VARIABLE};
use anyhow::{Context, Result, anyhow, bail};
use certified::IsCertified;
use clap::{Arg, Args, Command, Subcommand};
use placement::Place;
use rebalance::{Holding, Move};
use server::client::{Access, Answer, Client, ClientError};
use server::cluster::{ClusterStatus, NodeStatus, SlotKeys, Verdict, config, problems, verdict};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use txn::RequestName;

/// How long a change may take, which waits for its place in the order.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a node may take to tell its status that another one has named.
const ANSWER: Duration = Duration::from_secs(3);
/// And where others are asked as well.
const QUICK: Duration = Duration::from_secs(1);
/// How long to wait before a node that is behind is asked again.
const LOOK: Duration = Duration::from_millis(20);
/// How long replicas may take to move before they are left to themselves.
const PLACE_PATIENCE: Duration = Duration::from_secs(600);

/// `ordo admin`.
#[derive(Args)]
pub struct Admin {
    #[command(flatten)]
    nodes: Nodes,
    #[command(subcommand)]
    command: AdminCommand,
}

/// What to do.
#[derive(Subcommand)]
enum AdminCommand {
    /// Shows whether all is well, the nodes and the partitions, the tree of validators of a hierarchy, or how
    /// far each site is behind each other one.
    /// Exits with 0 if all is well, 3 if somebody should look at something, 4 if a partition or a validator
    /// has no leader, and 1 if no node answers.
    Status {
        /// JSON instead of tables (docs/cluster.md).
        #[arg(long)]
        json: bool,
        /// All nodes and partitions, also where there are many.
        #[arg(long, conflicts_with = "json")]
        all: bool,
    },
    /// Has the other sites of a cluster whose sites commit alone go on without one (docs/geo.md). What that
    /// site has not told the others is lost, and it must begin anew with an empty directory. --address names
    /// another site.
    Fence {
        /// Its name.
        site: String,
        /// Without this nothing is done.
        #[arg(long)]
        yes: bool,
        /// The sites that the asked one does not hear are gone for good: it decides without a majority,
        /// fences also a site that it hears, and opens if it waits to hear another one. Never on two sites.
        #[arg(long)]
        force: bool,
    },
    /// Tells the cluster of a node that is about to join.
    AddNode {
        /// Its name, which no other node has.
        name: String,
        /// Its zone: one that the cluster has.
        #[arg(long)]
        zone: String,
        /// Where other nodes will reach it.
        #[arg(long, value_name = "HOST:PORT")]
        peer_address: String,
        /// Where clients will reach it.
        #[arg(long, value_name = "HOST:PORT")]
        client_address: String,
    },
    /// Moves replicas, so that the nodes of a zone keep about as many, and then slots, with their keys, so
    /// that all partitions have about as many keys. Clients go on meanwhile.
    Rebalance {
        /// Shows what would move, and moves nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Moves slots of one partition, with their keys, to another one. Clients go on meanwhile.
    MoveSlots {
        /// The first slot.
        first: u16,
        /// The last slot.
        last: u16,
        /// The number of the partition that gets them.
        partition: u16,
    },
    /// Takes a node out of the cluster, for good. Its replicas move to other nodes of its zone first.
    RemoveNode {
        /// Its name or its number.
        node: String,
    },
    /// Lists the last requests that the log of a stopped node has behind its newest checkpoint: those that
    /// every start executes.
    Requests {
        /// The node's data directory.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// How many, at most.
        #[arg(long, default_value_t = 20)]
        last: usize,
    },
    /// Has stopped nodes skip requests of the order, because they end every process that executes them. Of a
    /// cluster, all nodes.
    Skip {
        /// The requests, as the server's log and `ordo admin requests` call them.
        #[arg(required = true, value_name = "EPOCH:SESSION:SEQUENCE")]
        requests: Vec<RequestName>,
        /// The data directory of a stopped node. May be given several times.
        #[arg(long, required = true, value_name = "DIR")]
        dir: Vec<PathBuf>,
        /// Skips them. Without it, this only tells what that means.
        #[arg(long)]
        yes: bool,
    },
    /// Makes a new cluster of the one node that is left, where the others are gone for good. What only they
    /// had is lost.
    Recover {
        /// Says that the directory is that of the node that is left.
        #[arg(long, required = true)]
        from_survivor: bool,
        /// The data directory of that node, which is stopped.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Does it. Without it, this only tells what that means, and what there is.
        #[arg(long)]
        yes: bool,
    },
    /// Lets another replica lead a partition.
    TransferLeader {
        /// The partition's number.
        partition: u16,
        /// The name or the number of the node that is to lead it.
        node: String,
    },
}

/// A number that nobody can guess: of logs, the seed of checksums.
pub fn unguessable() -> u64 {
    // Each of these is keyed by what the operating system draws.
    RandomState::new().hash_one(0)
}

/// `ordo admin` as the program has it.
pub fn command() -> Command {
    // What is said of it here comes after its arguments, which bring a text of their own.
    let command = Admin::augment_args(Command::new("admin").arg_required_else_help(true))
        .about("Shows a cluster, and changes who is in it and who leads")
        .long_about(None);
    let global: Vec<Arg> = command.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    command.mut_subcommands(|subcommand| {
        // Those that work on directories ask no node.
        let asks = subcommand.get_arguments().all(|arg| arg.get_id() != "dir");
        let subcommand = subcommand.args(global.iter().map(|arg| arg.clone().hide(true)));
        match asks {
            true => subcommand
                .after_help("How nodes are reached (--address, --password, --tls, ...): ordo admin --help"),
            false => subcommand,
        }
    })
}

/// Runs `ordo admin`, and gives what the process exits with.
pub fn run(admin: &Admin) -> Result<ExitCode> {
    // These work on the directories of stopped nodes, and ask nobody.
    let out = &mut std::io::stdout();
    let done = |result: Result<()>| result.map(|()| ExitCode::SUCCESS);
    match &admin.command {
        AdminCommand::Requests { dir, last } => return done(requests::list(dir, *last, out)),
        AdminCommand::Skip { requests: names, dir, yes } => {
            return done(requests::skip(names, dir, *yes, out));
        }
        AdminCommand::Fence { site, yes, force } => {
            let access = admin.nodes.access(std::env::var(PASSWORD_VARIABLE).ok())?;
            return done(geo::fence(&admin.nodes.address, &access, site, (*yes, *force), out));
        }
        AdminCommand::Recover { dir, yes, .. } => return done(survivor::recover(dir, *yes, out)),
        _ => {}
    }
    let verdict = run_to(admin, &admin.nodes.access(std::env::var(PASSWORD_VARIABLE).ok())?, out)?;
    Ok(ExitCode::from(verdict.exit_code()))
}

/// Does what nodes are asked for. Gives how the cluster is, if that was asked.
fn run_to(admin: &Admin, access: &Access, out: &mut dyn Write) -> Result<Verdict> {
    let found = Node::find(&admin.nodes.address, access, admin.nodes.timeout());
    let mut node = match (found, &admin.command) {
        (Err(error), AdminCommand::Status { json, .. }) => {
            let IsCertified(status) = error.downcast::<IsCertified>()?;
            return certified::show(status, access, *json, out);
        }
        (found, _) => found?,
    };
    match &admin.command {
        AdminCommand::Status { json, all } => {
            let mut whole = leaders::completed(&node.json, &node.status, access)?;
            // What was added is of the same shape, so it reads as the whole did.
            let status = serde_json::from_value(whole.clone()).unwrap_or(node.status);
            let problems = problems(&status);
            let verdict = verdict(&problems);
            if *json {
                whole["verdict"] = serde_json::to_value(verdict)?;
                whole["problems"] = serde_json::to_value(problems)?;
                writeln!(out, "{whole}")?;
            } else {
                write!(out, "{}", show::status(&status, *all))?;
            }
            return Ok(verdict);
        }
        AdminCommand::AddNode { name, zone, peer_address, client_address } => {
            let zones = zones(&node.status);
            if !zones.contains(&zone.as_str()) {
                let zones = zones.join(", ");
                bail!(
                    "the cluster has no zone '{zone}': its zones are {zones}, and a node joins one of them"
                );
            }
            let problem = config::node_name_problem(name)
                .or_else(|| config::address_problem("--peer-address", peer_address))
                .or_else(|| config::address_problem("--client-address", client_address));
            if let Some(problem) = problem {
                bail!("{problem}");
            }
            let said = node.change(&["ADDNODE", name, zone, peer_address, client_address])?;
            writeln!(out, "{said}")?;
            let neighbours = node.status.nodes.iter().filter(|other| other.zone == *zone);
            let neighbours: Vec<&str> = neighbours.map(|other| other.name.as_str()).collect();
            writeln!(
                out,
                "\n1. Add this to {name}'s own cluster.toml; the files of the nodes that run need no \
                 change:\n\n\
                 [[node]]\nname = \"{name}\"\nzone = \"{zone}\"\npeer_address = \"{peer_address}\"\n\
                 client_address = \"{client_address}\"\njoins = true\n\n\
                 2. Start it on its machine, with an empty directory:\n   \
                 ordo serve --cluster cluster.toml --node {name} --dir DIR\n\
                 3. It waits, and serves nobody, until it gets something to keep: its share of what the \
                 nodes of zone '{zone}' keep ({}), with\n   \
                 ordo admin rebalance\n   \
                 or all that one of them keeps, once that one is taken out, for good:\n   \
                 ordo admin remove-node NODE",
                neighbours.join(", ")
            )?;
        }
        AdminCommand::RemoveNode { node: who } => {
            let id = find(&node.status, who)?.id.to_string();
            writeln!(out, "{}", node.change(&["REMOVENODE", &id])?)?;
        }
        AdminCommand::Rebalance { dry_run } => rebalance(node, *dry_run, access, out)?,
        AdminCommand::MoveSlots { first, last, partition } => {
            writeln!(out, "{}", node.move_slots(*first, *last, *partition)?)?;
        }
        // See `run`.
        AdminCommand::Requests { .. }
        | AdminCommand::Skip { .. }
        | AdminCommand::Recover { .. }
        | AdminCommand::Fence { .. } => {}
        AdminCommand::TransferLeader { partition, node: who } => {
            let to = may_lead(&node.status, *partition, who)?.to_string();
            let mut leader = leaders::leader_of(node, *partition, access)?;
            let said = leader.change(&["TRANSFER", &partition.to_string(), &to])?;
            writeln!(out, "{said}")?;
        }
    }
    Ok(Verdict::Ok)
}

/// Evens the nodes out, and then the partitions.
fn rebalance(node: Node, dry_run: bool, access: &Access, out: &mut dyn Write) -> Result<()> {
    let (node, placed) = rebalance_replicas(node, dry_run, access, out)?;
    let moved = rebalance_slots(node, dry_run, access, out)?;
    match (placed || moved, dry_run) {
        (false, _) => writeln!(
            out,
            "nothing to move: the nodes of each zone keep about as many replicas, and all partitions have \
             about as many keys"
        )?,
        (true, false) => writeln!(out, "done")?,
        (true, true) => {}
    }
    Ok(())
}

/// Evens out what the nodes of each zone keep, all at once, and waits until that is done. Whether there was
/// anything to do. Gives a node that answers, since the one that was asked may have started anew.
fn rebalance_replicas(
    mut node: Node,
    dry_run: bool,
    access: &Access,
    out: &mut dyn Write,
) -> Result<(Node, bool)> {
    let (places, busy) = placement::plan(&node.status);
    for zone in busy {
        writeln!(
            out,
            "replicas of zone '{zone}' move already, and are left to themselves: see `ordo admin status`"
        )?;
    }
    if places.is_empty() {
        return Ok((node, false));
    }
    for Place { partition, from, to } in &places {
        let [from, to] = [from, to].map(|&id| show::name(&node.status, id));
        writeln!(out, "the replica of partition {partition} at {from} moves to {to}; both start anew")?;
    }
    if dry_run {
        return Ok((node, true));
    }
    let numbers = places.iter().flat_map(|place| [place.partition, place.to]);
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    let mut words = vec!["PLACE"];
    words.extend(numbers.iter().map(String::as_str));
    node.change(&words)?;
    // Who gives a replica away, or gets one, starts anew, and is no help before that.
    let ids = places.iter().flat_map(|place| [place.from, place.to]);
    let boot = |status: &ClusterStatus, id: u16| {
        let mut nodes = status.nodes.iter();
        nodes.find(|node| node.id == id).map_or(0, |node| node.boot)
    };
    let boots: BTreeMap<u16, u32> = ids.map(|id| (id, boot(&node.status, id))).collect();
    let others = |node: &&NodeStatus| !boots.contains_key(&node.id);
    let asked: Vec<&NodeStatus> = match node.status.nodes.iter().filter(others).count() {
        0 => node.status.nodes.iter().collect(),
        _ => node.status.nodes.iter().filter(others).collect(),
    };
    let addresses = asked.iter().map(|node| node.client_address.clone());
    let addresses: Vec<String> = addresses.collect();
    let mut left = usize::MAX;
    let mut since = Instant::now();
    loop {
        // They are asked over the network: there is nothing to be woken by.
        std::thread::sleep(LOOK);
        let answers = addresses.iter();
        let mut answers = answers.filter_map(|address| Node::ask_within(address, access, QUICK).ok());
        let is_open = |status: &ClusterStatus| {
            let moving = places.iter();
            let moving = moving.filter(|place| !placement::is_done(status, place));
            let old = boots.iter();
            let old = old.filter(|&(&id, &before)| boot(status, id) == before);
            moving.count() + old.count()
        };
        // Any node may be behind: the one that has seen most counts.
        let best = answers.by_ref().min_by_key(|node| is_open(&node.status));
        if let Some(best) = best {
            let open = is_open(&best.status);
            if open < left {
                (left, since) = (open, Instant::now());
            }
            if open == 0 {
                return Ok((best, true));
            }
        }
        if since.elapsed() > PLACE_PATIENCE {
            bail!(
                "not all of the {} replicas are where they are to be. They go on moving by themselves: \
                 `ordo admin status` tells how far they are; the slots have not been looked at, so run \
                 this again afterwards",
                places.len()
            );
        }
    }
}

/// Evens the partitions out, one move after the other: each must be in force before the next one can be asked
/// for. Whether there was anything to do.
fn rebalance_slots(mut node: Node, dry_run: bool, access: &Access, out: &mut dyn Write) -> Result<bool> {
    let mut holdings: Vec<Holding> = node
        .status
        .partitions
        .iter()
        .map(|partition| Holding { slots: partition.slots.clone(), ..Holding::default() })
        .collect();
    for (partition, keys) in all_slot_keys(&mut node, access)? {
        if let Some(holding) = holdings.get_mut(usize::from(partition)) {
            holding.keys = keys;
        }
    }
    let moves = rebalance::plan(&holdings);
    for (number, moved) in moves.iter().enumerate() {
        let Move { first, last, from, to, keys } = *moved;
        writeln!(
            out,
            "{} of {}: the slots {first} to {last}, with {keys} keys, from partition {from} to partition \
             {to}",
            number + 1,
            moves.len()
        )?;
        if !dry_run {
            let moved = node.move_slots(first, last, to);
            moved.context(
                "stopped there; what has moved stays where it is, and the same command goes on with the rest",
            )?;
        }
    }
    Ok(!moves.is_empty())
}

/// How many keys each slot has, by partition: of those that this node does not keep, others are asked.
fn all_slot_keys(node: &mut Node, access: &Access) -> Result<BTreeMap<u16, BTreeMap<u16, u64>>> {
    let mut known = node.slot_keys()?.partitions;
    let status = node.status.clone();
    for partition in &status.partitions {
        if known.contains_key(&partition.id) {
            continue;
        }
        let mut keeper = another_keeper(&status, partition.id, access)?;
        known.extend(keeper.slot_keys()?.partitions);
    }
    Ok(known)
}

/// Another node, that keeps a partition.
fn another_keeper(status: &ClusterStatus, partition: u16, access: &Access) -> Result<Node> {
    let mut answers = keepers(status, partition)
        .filter(|keeper| keeper.reachable && keeper.id != status.me)
        .filter_map(|keeper| Node::ask(&keeper.client_address, access).ok());
    answers
        .next()
        .ok_or_else(|| anyhow!("no node that keeps partition {partition} answers: see `ordo admin status`"))
}

/// The nodes that keep a partition.
fn keepers(status: &ClusterStatus, partition: u16) -> impl Iterator<Item = &NodeStatus> {
    let mut partitions = status.partitions.iter();
    let found = partitions.find(move |found| found.id == partition);
    let replicas = found.into_iter().flat_map(|found| &found.replicas);
    let replicas = replicas.filter(|replica| ["leader", "follower"].contains(&&*replica.role));
    replicas.filter_map(|replica| status.nodes.iter().find(|node| node.id == replica.node))
}

/// A node that answers.
struct Node {
    address: String,
    client: Client,
    status: ClusterStatus,
    json: String,
}

impl Node {
    /// The first of the nodes that tells its status.
    fn find(addresses: &[String], access: &Access, patience: Duration) -> Result<Node> {
        let mut problems = Vec::new();
        for address in addresses {
            match Node::ask_within(address, access, patience) {
                Ok(node) => return Ok(node),
                Err(problem) if problem.is::<IsCertified>() => return Err(problem),
                Err(problem) => problems.push(format!("{address}: {problem}")),
            }
        }
        match problems.len() {
            0 => bail!("--address names no node"),
            1 => Err(anyhow!(problems.remove(0))),
            _ => bail!("no node of the cluster answers:\n  {}", problems.join("\n  ")),
        }
    }

    fn ask(address: &str, access: &Access) -> Result<Node> {
        Node::ask_within(address, access, ANSWER)
    }

    fn ask_within(address: &str, access: &Access, patience: Duration) -> Result<Node> {
        let mut client = access.open(address, patience).map_err(explained)?;
        if let Some(Answer::Error(text)) = access.log_in(&mut client).map_err(explained)? {
            bail!(
                "the node does not take the password ({text}): correct --password or {PASSWORD_VARIABLE}, or \
                 --user"
            );
        }
        let (status, json) = status_of(&mut client)?;
        // What it is asked now may have to wait for its place in the order.
        client.set_patience(PATIENCE).with_context(|| address.to_owned())?;
        Ok(Node { address: address.to_owned(), client, status, json })
    }

    /// How many keys the slots of its partitions have.
    fn slot_keys(&mut self) -> Result<SlotKeys> {
        let said = self.change(&["SLOTKEYS"])?;
        serde_json::from_str(&said).map_err(|problem| {
            anyhow!(
                "this `ordo` does not understand the node's reply ({problem}): use one of the node's version"
            )
        })
    }

    fn move_slots(&mut self, first: u16, last: u16, to: u16) -> Result<String> {
        let numbers = [first, last, to].map(|number| number.to_string());
        self.change(&["MOVESLOTS", &numbers[0], &numbers[1], &numbers[2]])
    }

    /// Sends a change, and gives the reply.
    fn change(&mut self, words: &[&str]) -> Result<String> {
        let words = [&["ORDO.CLUSTER"], words].concat();
        match self.client.call(&words) {
            Ok(Answer::Text(text)) => Ok(text),
            Ok(Answer::Error(text)) => Err(refused(&text)),
            Ok(other) => bail!("{} answered {other:?}", words.join(" ")),
            Err(error) => bail!(
                "{}: {error}. Whether the change was made is not known: see `ordo admin status` before \
                 another try",
                self.address
            ),
        }
    }
}

/// A node's status, as it sent it, too.
fn status_of(client: &mut Client) -> Result<(ClusterStatus, String)> {
    let answer = client.call(&["ORDO.CLUSTER", "STATUS"]).map_err(explained)?;
    let json = match answer {
        Answer::Text(json) => json,
        Answer::Error(text) => return Err(refused(&text)),
        other => bail!("ORDO.CLUSTER STATUS answered {other:?}, which is no status"),
    };
    if let Some(status) = certified::parsed(&json) {
        return Err(IsCertified(status?).into());
    }
    let status = serde_json::from_str(&json).map_err(|problem| {
        anyhow!(
            "this `ordo` does not understand the node's status ({problem}): use one of the node's version"
        )
    })?;
    Ok((status, json))
}

/// What a failed conversation means, and what to do.
fn explained(error: ClientError) -> anyhow::Error {
    match &error {
        ClientError::Unreachable { cause, .. } if cause.kind() == ErrorKind::ConnectionRefused => {
            anyhow!("nobody listens there: start the node, or name one that runs with --address")
        }
        ClientError::Unreachable { cause, .. } => {
            anyhow!("it cannot be reached ({cause}): correct --address, or name another node")
        }
        ClientError::Tls { cause, .. } => {
            anyhow!(
                "TLS with it failed ({cause}): is --address a port that speaks TLS, and is its certificate \
                 signed by the CA of --cacert?"
            )
        }
        ClientError::Lost { cause, .. } if cause.kind() == ErrorKind::InvalidData => {
            anyhow!("{error}: it does not take the certificate of --cert, or wants one")
        }
        ClientError::Lost { .. } => {
            anyhow!(
                "{error}: the node may be stopping or frozen; look at its log, or name another one with \
                 --address"
            )
        }
        ClientError::NotResp(_) => {
            anyhow!(
                "{error} The --address of a node is where it answers clients, and not its peers; where it \
                 speaks TLS, say --tls"
            )
        }
        ClientError::Unexpected { .. } => error.into(),
    }
}

/// What an error reply means, and what to do.
fn refused(text: &str) -> anyhow::Error {
    let lower = text.to_ascii_lowercase();
    if lower.starts_with("noauth") {
        anyhow!(
            "the node asks for a password: give it with --password, or in the variable {PASSWORD_VARIABLE}"
        )
    } else if lower.contains("unknown command") || lower.contains("cluster support disabled") {
        anyhow!(
            "a server answers that is no node of a cluster: name one that was started with \
             `ordo serve --cluster`"
        )
    } else {
        // The code before an error is for programs.
        anyhow!("the node refuses: {}", text.strip_prefix("ERR ").unwrap_or(text))
    }
}

/// The zones that have a node.
fn zones(status: &ClusterStatus) -> Vec<&str> {
    let mut zones: Vec<&str> = status.nodes.iter().map(|node| node.zone.as_str()).collect();
    zones.sort_unstable();
    zones.dedup();
    zones
}

/// The node of a name or a number.
fn find<'a>(status: &'a ClusterStatus, who: &str) -> Result<&'a NodeStatus> {
    let number: Option<u16> = who.parse().ok();
    let mut nodes = status.nodes.iter();
    nodes.find(|node| node.name == who || Some(node.id) == number).ok_or_else(|| {
        let all: Vec<String> =
            status.nodes.iter().map(|node| format!("{} ({})", node.name, node.id)).collect();
        anyhow!("the cluster has no node '{who}': its nodes are {}", all.join(", "))
    })
}

/// The number of a node that keeps a replica of a partition with a vote.
fn may_lead(status: &ClusterStatus, partition: u16, who: &str) -> Result<u16> {
    let to = find(status, who)?.id;
    let Some(found) = status.partitions.iter().find(|found| found.id == partition) else {
        let last = status.partitions.iter().map(|found| found.id).max();
        let last = last.unwrap_or(0);
        bail!("the cluster has no partition {partition}: they are numbered from 0 to {last}");
    };
    let voters = found.replicas.iter().filter(|replica| replica.role != "learner");
    let voters: Vec<u16> = voters.map(|replica| replica.node).collect();
    if !voters.contains(&to) {
        let names: Vec<String> = voters.iter().map(|&id| show::name(status, id)).collect();
        bail!("node '{who}' cannot lead partition {partition}: choose one of {}", names.join(", "));
    }
    Ok(to)
}

#[cfg(test)]
mod tests;
