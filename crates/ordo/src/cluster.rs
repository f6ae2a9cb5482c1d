//! `ordo cluster`: a cluster on this machine, to try out.

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use server::cluster::local::{
    Control, Event, LocalCluster, LocalProtocol, LocalTree, Processes, Wishes, supervise,
};
use server::tls::ClientTls;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::PathBuf;

/// What to do with a cluster of this machine.
#[derive(Subcommand)]
pub enum Cluster {
    /// Starts one process for each node, new or with the data of before, and keeps them until Ctrl-C.
    Start(StartArgs),
    /// There is no such thing: what is there instead is said.
    #[command(hide = true)]
    Stop,
    /// The same.
    #[command(hide = true)]
    Status,
}

/// `ordo cluster start`.
#[derive(Args)]
pub struct StartArgs {
    /// The number of nodes of a new cluster: 1 to 7, or to 16 with another protocol. One that exists has
    /// its own: leave this out, or say the same; another number is refused.
    #[arg(long, value_name = "NODES")]
    local: Option<u16>,
    /// The number of zones of a new cluster, to which the nodes are dealt in turn [default: each node is
    /// one]. Every zone has a replica of everything, spread over its nodes. For one that exists, as
    /// with --local.
    #[arg(long, alias = "regions")]
    zones: Option<u16>,
    /// The number of partitions of a new cluster [default: 1, or as many as a zone has nodes]. For one that
    /// exists, as with --local.
    #[arg(long)]
    partitions: Option<u16>,
    /// How the replicas of a partition agree in a new cluster: raft, or mimox, which sends requests ahead and
    /// agrees on their names [default: raft]. For one that exists, as with --local.
    #[arg(long)]
    delivery: Option<agree::Delivery>,
    /// The protocol of a new cluster: ordered; or hierarchy, where a tree of validators certifies
    /// transactions that clients may hold open (docs/hierarchy.md); or pcsi, where each node is a site that
    /// commits alone, and each zone a region (docs/geo.md; --regions is another name of --zones)
    /// [default: ordered].
    #[arg(long, value_parser = ["ordered", "hierarchy", "pcsi"])]
    protocol: Option<String>,
    /// How many children an inner validator of a new hierarchy has, at most.
    #[arg(long, default_value_t = 4, requires = "protocol")]
    fan_out: u16,
    /// How the leaves of a new hierarchy validate: locks or timestamps.
    #[arg(long, default_value = "locks", value_parser = ["locks", "timestamps"], requires = "protocol")]
    control: String,
    /// Where the description, the data and the output of the nodes are.
    #[arg(long, default_value = "ordo-cluster")]
    dir: PathBuf,
    /// The first node's port for clients in a new cluster; the others have the next ones [default: 7001]. For
    /// one that exists, as with --local.
    #[arg(long)]
    port: Option<u16>,
    /// Serves clients by TLS alone, and has the nodes talk to each other by TLS. Certificates come as
    /// settings: -- --tls-cert-file FILE --tls-key-file FILE --tls-ca-cert-file FILE.
    #[arg(long)]
    tls: bool,
    /// Settings for all nodes, as `ordo serve` takes them.
    #[arg(last = true, value_name = "SETTINGS")]
    settings: Vec<String>,
}

/// Runs a subcommand.
pub fn run(command: Cluster) -> Result<()> {
    match command {
        Cluster::Start(args) => start(&args),
        Cluster::Stop => bail!(
            "the cluster belongs to the terminal in which `ordo cluster start` runs: Ctrl-C there (or \
             SIGTERM to that process) stops all nodes in good order"
        ),
        Cluster::Status => bail!(
            "ask a node: `ordo admin status --address 127.0.0.1:7001` shows who is there, and who leads"
        ),
    }
}

fn start(args: &StartArgs) -> Result<()> {
    // Before the first process: none may end unheard.
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP, SIGCHLD]).context("the system refused to tell of signals")?;
    let wishes = Wishes {
        nodes: args.local,
        zones: args.zones,
        partitions: args.partitions,
        delivery: args.delivery,
        port: args.port,
        protocol: args.protocol.as_deref().map(|protocol| match protocol {
            "hierarchy" => LocalProtocol::Hierarchy(LocalTree {
                fan_out: args.fan_out,
                control: match args.control.as_str() {
                    "timestamps" => Control::Timestamps,
                    _ => Control::Locks,
                },
            }),
            "pcsi" => LocalProtocol::Pcsi,
            _ => LocalProtocol::Ordered,
        }),
    };
    let mut settings = args.settings.clone();
    if args.tls {
        settings.extend(["--tls-cluster", "yes"].map(str::to_owned));
    }
    // Before anything is made.
    let config = LocalCluster::settings(&settings)?;
    let tls = match args.tls {
        true => Some(ClientTls::of(&config)?),
        false => None,
    };
    let cluster = LocalCluster::prepare(&args.dir, &wishes)?;
    let program = std::env::current_exe().context("could not find out where this program is")?;
    println!(
        "Starting {} in {}: nodes {}, partitions {}",
        if cluster.fresh { "a new cluster" } else { "the cluster" },
        cluster.dir.display(),
        cluster.config.nodes.len(),
        cluster.config.partitions,
    );
    for warning in &cluster.config.warnings {
        println!("Note: {warning}");
    }
    let settings = cluster.hide_secrets(&settings)?;
    let launches = cluster.launches(&program, &settings, tls.as_ref());
    let interrupted = || signals.pending().any(|signal| signal != SIGCHLD);
    let mut processes = Processes::start(&launches, interrupted)?;
    let events = signals.forever().map(|signal| match signal {
        SIGCHLD => Event::ChildEnded,
        _ => Event::Stop,
    });
    supervise(&mut processes, events, &mut std::io::stdout())?;
    Ok(())
}
