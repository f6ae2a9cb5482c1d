//! The directory of a local cluster.

use super::{Launch, LocalError};
use crate::cluster::config::host_and_port;
use crate::cluster::{ClusterConfig, ClusterNode, identity};
use crate::config::{Config, Flags, Invocation, Kind, Parameter, Password, Users};
use crate::launcher::{HOST, is_free};
use crate::replace::replace_file;
use crate::tls::ClientTls;
use crate::{hexadecimal, private};
use agree::Delivery;
use certify::hierarchy::Control;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The most nodes of a local cluster: one machine has no use for more.
pub const LOCAL_NODES_MAX: u16 = 7;
/// The same of a hierarchy, whose nodes need not be voters of each other's groups.
pub const LOCAL_SITES_MAX: u16 = 16;
/// The first node's port for clients, unless another is asked for.
pub const PORT_DEFAULT: u16 = 7001;
/// A node's port for its peers is its port for clients and this.
const PEER_PORT_OFFSET: u16 = 10_000;
const FILE: &str = "cluster.toml";
/// The file with the nodes' password, if `ordo cluster start` was told one.
const PASSWORD_FILE: &str = "requirepass";

/// What a local cluster should be. What is left open is what is there, or a default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// The number of nodes, at most [`LOCAL_NODES_MAX`]. A new cluster needs it.
    pub nodes: Option<u16>,
    /// The number of zones, to which the nodes are dealt in turn: as many as nodes, unless given.
    pub zones: Option<u16>,
    /// The number of partitions.
    pub partitions: Option<u16>,
    /// How the replicas of a partition agree: by Raft, unless given.
    pub delivery: Option<Delivery>,
    /// The first node's port for clients; the others have the next ones.
    pub port: Option<u16>,
    /// The protocol: the ordered one, unless given.
    pub protocol: Option<LocalProtocol>,
}

/// The protocol of a local cluster.
#[derive(Clone, Copy, Debug)]
pub enum LocalProtocol {
    /// Requests are ordered first.
    Ordered,
    /// A tree of validators certifies transactions.
    Hierarchy(LocalTree),
    /// Each node is a site that commits alone, and each zone a region.
    Pcsi,
}

impl Wishes {
    fn has_sites(&self) -> bool {
        matches!(self.protocol, Some(LocalProtocol::Pcsi))
    }

    /// The tree of validators, if the cluster is to be a hierarchy.
    fn tree(&self) -> Option<LocalTree> {
        match self.protocol? {
            LocalProtocol::Ordered | LocalProtocol::Pcsi => None,
            LocalProtocol::Hierarchy(tree) => Some(tree),
        }
    }
}

/// A tree of validators over the partitions of a local cluster.
#[derive(Clone, Copy, Debug)]
pub struct LocalTree {
    /// Children of an inner validator, at most: at least two.
    pub fan_out: u16,
    /// How leaves validate.
    pub control: Control,
}

/// A directory with a cluster's description.
#[derive(Debug)]
pub struct LocalCluster {
    /// The directory, absolute.
    pub dir: PathBuf,
    /// What its `cluster.toml` says.
    pub config: ClusterConfig,
    /// Whether it was made just now.
    pub fresh: bool,
}

impl LocalCluster {
    /// Finds the cluster of a directory, or makes one with a random secret. All its ports are free now.
    pub fn prepare(dir: &Path, wishes: &Wishes) -> Result<LocalCluster, LocalError> {
        let unusable = |cause| LocalError::File { path: dir.display().to_string(), what: "used", cause };
        let dir = std::path::absolute(dir).map_err(unusable)?;
        let path = dir.join(FILE);
        let fresh = !path.try_exists().map_err(unusable)?;
        if fresh {
            let text = description(&dir, wishes)?;
            // A file that is wrong would be in the way of the next try.
            ClusterConfig::parse(&text, &path)?;
            private::create_dir_all(&dir).map_err(unusable)?;
            replace_file(&path, text.as_bytes()).map_err(|cause| LocalError::File {
                path: path.display().to_string(),
                what: "written",
                cause,
            })?;
        }
        let config = ClusterConfig::load(&path)?;
        if !fresh {
            agree(&config, wishes, &path)?;
            for node in &config.nodes {
                for address in [&node.client_address, &node.peer_address] {
                    if let Some((host, port)) = host_and_port(address)
                        && !is_free(host, port)
                    {
                        return Err(LocalError::Wish(format!(
                            "{address} is in use, which is node {}'s: if the cluster of {} runs already, \
                             stop that first; if another program has the port, stop it, or start a new \
                             cluster with another --dir and --port",
                            node.name,
                            dir.display()
                        )));
                    }
                }
            }
        }
        Ok(LocalCluster { dir, config, fresh })
    }

    /// The settings that all nodes are given, checked as far as they can be without one.
    ///
    /// # Errors
    /// A setting is none, or is each node's own.
    pub fn settings(words: &[String]) -> Result<Config, LocalError> {
        let parsed = Config::from_args(words.iter().cloned());
        let parsed = parsed.map_err(|error| LocalError::Wish(error.to_string()))?;
        let Invocation::Serve(config) = parsed else {
            return Err(LocalError::Wish("behind '--' there may be settings only".to_owned()));
        };
        for own in ["cluster", "node", "dir", "port", "bind", "tls-port"] {
            if config.has(own) {
                return Err(LocalError::Wish(format!(
                    "--{own}: each node has its own, which `ordo cluster start` chooses"
                )));
            }
        }
        Ok(*config)
    }

    /// The settings without secrets among the words, which the list of processes and our output show: the
    /// password goes into a file beside the description, and hashes stand for the passwords of users.
    pub fn hide_secrets(&self, words: &[String]) -> Result<Vec<String>, LocalError> {
        let wish = |error: &dyn std::fmt::Display| LocalError::Wish(error.to_string());
        let Ok(mut parsed) = Flags::parse(words.iter().cloned()).map_err(|error| wish(&error))? else {
            return Ok(words.to_vec());
        };
        for (name, values) in &mut parsed.flags {
            let text = values.join(" ");
            if name.eq_ignore_ascii_case("user") {
                let users = Users::from_text(&text, &Kind::Users, &Users::default());
                *values = vec![users.map_err(|error| wish(&error))?.to_text()];
            }
            if name.eq_ignore_ascii_case("requirepass") && !text.is_empty() {
                let password = Password::from_text(&text, &Kind::Password, &Password::default());
                let password = password.map_err(|error| wish(&error))?;
                let path = self.dir.join(PASSWORD_FILE);
                replace_file(&path, password.for_file().as_bytes()).map_err(|cause| LocalError::File {
                    path: path.display().to_string(),
                    what: "written",
                    cause,
                })?;
                "requirepass-file".clone_into(name);
                *values = vec![path.to_string_lossy().into_owned()];
            }
        }
        Ok(parsed.into_words())
    }

    /// How to start each node with `program`, which is an `ordo`, and with settings for all: see
    /// [`LocalCluster::settings`]. With `tls`, clients are served by TLS alone, at the same ports.
    /// An `http-port` among the settings is that of the first node, and the others have the next ones.
    pub fn launches(&self, program: &Path, settings: &[String], tls: Option<&ClientTls>) -> Vec<Launch> {
        let more = |node: &ClusterNode, place: usize| {
            let port = host_and_port(&node.client_address).map(|(_, port)| port.to_string());
            let port = port.filter(|_| tls.is_some());
            let secured = port.into_iter().flat_map(|port| ["--tls-port".to_owned(), port]);
            let words = secured.chain(settings_of(settings, place));
            words.map(OsString::from).collect::<Vec<OsString>>()
        };
        let launch = |(place, node): (usize, &ClusterNode)| Launch {
            tls: tls.cloned(),
            name: node.name.clone(),
            zone: node.zone.clone(),
            client_address: node.client_address.clone(),
            // Once it knows who it is, it comes up like the others.
            is_certified: self.config.is_certified(),
            may_wait: node.joins && !self.dir.join(&node.name).join(identity::FILE).exists(),
            log: self.dir.join(format!("{}.log", node.name)),
            program: program.to_owned(),
            words: [
                "serve".into(),
                "--cluster".into(),
                self.dir.join(FILE).into(),
                "--node".into(),
                node.name.clone().into(),
                "--dir".into(),
                self.dir.join(&node.name).into(),
            ]
            .into_iter()
            .chain(more(node, place))
            .collect(),
        };
        self.config.nodes.iter().enumerate().map(launch).collect()
    }
}

/// The settings of the node at a place, out of those for all: see [`LocalCluster::launches`].
fn settings_of(settings: &[String], place: usize) -> Vec<String> {
    // They were checked before.
    let first = LocalCluster::settings(settings).map_or(0, |config| config.http_port);
    match Flags::parse(settings.iter().cloned()) {
        Ok(Ok(mut parsed)) if first > 0 => {
            parsed.flags.retain(|(name, _)| !name.eq_ignore_ascii_case("http-port"));
            parsed.flags.push(("http-port".to_owned(), vec![(first + place as u64).to_string()]));
            parsed.into_words()
        }
        _ => settings.to_vec(),
    }
}

/// Refuses wishes that an existing cluster does not meet: its data depends on what it is.
fn agree(config: &ClusterConfig, wishes: &Wishes, path: &Path) -> Result<(), LocalError> {
    let zones: BTreeSet<&str> = config.nodes.iter().map(|node| node.zone.as_str()).collect();
    let first = config.nodes.first();
    let port = first.and_then(|node| host_and_port(&node.client_address));
    let found = [
        ("--local", wishes.nodes, config.nodes.len() as u16),
        ("--zones", wishes.zones, zones.len() as u16),
        ("--partitions", wishes.partitions, config.partitions),
        ("--port", wishes.port, port.map_or(0, |(_, port)| port)),
    ];
    for (flag, wish, is) in found {
        if let Some(wish) = wish.filter(|&wish| wish != is) {
            return Err(LocalError::Wish(format!(
                "{flag} {wish}: the cluster that {} describes has {is}. Leave {flag} out to start that \
                 one, or choose another --dir for a new one",
                path.display()
            )));
        }
    }
    let wish = wishes.protocol.map(|protocol| match protocol {
        LocalProtocol::Ordered => "ordered",
        LocalProtocol::Hierarchy(_) => "hierarchy",
        LocalProtocol::Pcsi => "pcsi",
    });
    let is = config.protocol.name();
    if let Some(wish) = wish.filter(|&wish| wish != is) {
        return Err(LocalError::Wish(format!(
            "--protocol {wish}: the cluster that {} describes has {is}. Leave --protocol out to start that \
             one, or choose another --dir for a new one",
            path.display()
        )));
    }
    if let Some(delivery) = wishes.delivery.filter(|&delivery| delivery != config.delivery) {
        return Err(LocalError::Wish(format!(
            "--delivery {delivery}: the cluster that {} describes has {}. Leave --delivery out to start that \
             one, change the key delivery there while no node runs, or choose another --dir for a new one",
            path.display(),
            config.delivery
        )));
    }
    Ok(())
}

/// The text of a new cluster's description.
fn description(dir: &Path, wishes: &Wishes) -> Result<String, LocalError> {
    let Some(nodes) = wishes.nodes else {
        return Err(LocalError::Wish(format!(
            "there is no cluster in {} yet: say how many nodes a new one should have, for example --local 3",
            dir.display()
        )));
    };
    let is_certified = wishes.tree().is_some() || wishes.has_sites();
    let nodes_max = if is_certified { LOCAL_SITES_MAX } else { LOCAL_NODES_MAX };
    if !(1..=nodes_max).contains(&nodes) {
        return Err(LocalError::Wish(format!(
            "--local {nodes}: a cluster on one machine has from 1 to {nodes_max} nodes; 3 are the fewest \
             that bear the loss of one"
        )));
    }
    let zones = wishes.zones.unwrap_or(nodes);
    if !(1..=nodes).contains(&zones) {
        return Err(LocalError::Wish(format!(
            "--zones {zones}: {nodes} nodes can be in 1 to {nodes} zones; 3 are the fewest that bear the \
             loss of one"
        )));
    }
    let port = wishes.port.unwrap_or(PORT_DEFAULT);
    let port_max = u16::MAX - PEER_PORT_OFFSET - (nodes - 1);
    if !(1..=port_max).contains(&port) {
        return Err(LocalError::Wish(format!(
            "--port {port}: it must be from 1 to {port_max}, because the nodes talk to each other on the \
             ports {PEER_PORT_OFFSET} above"
        )));
    }
    if let Some(taken) = taken(port, nodes) {
        let free = (port..=port_max).step_by(100).skip(1).find(|&port| self::taken(port, nodes).is_none());
        let advice = match free {
            Some(free) => format!("choose others, for example --port {free}"),
            None => "choose others with --port".to_owned(),
        };
        return Err(LocalError::Wish(format!(
            "port {taken} is in use, and {nodes} nodes need {port} to {} and {} to {}: {advice}",
            port + nodes - 1,
            port + PEER_PORT_OFFSET,
            port + PEER_PORT_OFFSET + nodes - 1,
        )));
    }
    let secret = random_hexadecimal().map_err(|cause| LocalError::File {
        path: RANDOM.to_owned(),
        what: "read",
        cause,
    })?;
    // Each node of a zone has something to keep.
    let default = if is_certified { nodes } else { nodes.div_ceil(zones) };
    let partitions = wishes.partitions.unwrap_or(default);
    let mut text = format!(
        "# Made by `ordo cluster start`; docs/cluster.md tells what the keys mean.\n\
         name = \"local\"\nsecret = \"{secret}\"\npartitions = {partitions}\n"
    );
    if let Some(delivery) = wishes.delivery {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "delivery = \"{delivery}\"");
    }
    if let Some(LocalTree { fan_out, control }) = wishes.tree() {
        if fan_out < 2 {
            return Err(LocalError::Wish(format!("--fan-out {fan_out}: it must be at least 2")));
        }
        let control = match control {
            Control::Locks => "locks",
            Control::Timestamps => "timestamps",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "protocol = \"hierarchy\"\ncontrol = \"{control}\"");
    }
    let (table, zone_key, zone_name) = match wishes.has_sites() {
        true => {
            text.push_str("protocol = \"pcsi\"\n");
            ("site", "region", "region")
        }
        false => ("node", "zone", "zone"),
    };
    for number in 1..=nodes {
        let client = port + number - 1;
        let peer = client + PEER_PORT_OFFSET;
        let zone = (number - 1) % zones + 1;
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n[[{table}]]\nname = \"n{number}\"\n{zone_key} = \"{zone_name}-{zone}\"\n\
             peer_address = \"{HOST}:{peer}\"\n\
             client_address = \"{HOST}:{client}\"\n"
        );
    }
    if let Some(tree) = wishes.tree() {
        text += &validators(nodes, partitions, tree.fan_out);
    }
    Ok(text)
}

/// The validators of a tree over so many partitions. The leaves are dealt to the nodes from the first one on,
/// and the inner validators from the last one back.
fn validators(nodes: u16, partitions: u16, fan_out: u16) -> String {
    let mut text = String::new();
    let mut add = |name: &str, partition: Option<u16>, parent: Option<&str>, node: u16| {
        let partition = partition.map_or(String::new(), |partition| format!("partition = {partition}\n"));
        let parent = parent.map_or(String::new(), |parent| format!("parent = \"{parent}\"\n"));
        text += &format!("\n[[validator]]\nname = \"{name}\"\n{partition}{parent}nodes = [\"n{node}\"]\n");
    };
    // Those without a parent so far: their names, partitions and nodes.
    let leaf = |partition| (format!("leaf-{partition}"), Some(partition), partition % nodes + 1);
    let mut level: Vec<(String, Option<u16>, u16)> = (0..partitions).map(leaf).collect();
    let mut inners = 0;
    while level.len() > 1 {
        let mut above = Vec::new();
        for children in level.chunks(usize::from(fan_out)) {
            if let [only] = children {
                above.push(only.clone());
                continue;
            }
            inners += 1;
            let parent = format!("inner-{inners}");
            for (name, partition, node) in children {
                add(name, *partition, Some(&parent), *node);
            }
            above.push((parent, None, nodes - (inners - 1) % nodes));
        }
        level = above;
    }
    for (name, partition, node) in level {
        add(&name, partition, None, node);
    }
    text
}

/// The first port that such a cluster needs and cannot have.
fn taken(port: u16, nodes: u16) -> Option<u16> {
    let clients = port..port + nodes;
    let peers = clients.clone().map(|port| port + PEER_PORT_OFFSET);
    clients.chain(peers).find(|&port| !is_free(HOST, port))
}

const RANDOM: &str = "/dev/urandom";

/// 256 bits that nobody can guess.
fn random_hexadecimal() -> io::Result<String> {
    let mut bytes = [0; 32];
    File::open(RANDOM)?.read_exact(&mut bytes)?;
    Ok(hexadecimal::encode(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt;

    fn wishes(nodes: u16, port: u16) -> Wishes {
        Wishes { nodes: Some(nodes), port: Some(port), ..Wishes::default() }
    }

    /// A port from which on some ports are free for clients and peers, and nobody else's.
    fn free_port(nodes: u16) -> u16 {
        let next = || crate::launcher::free_port().expect("a port");
        loop {
            // Tests run side by side: of ports that follow each other none was given to another one
            // meanwhile.
            let first = next();
            let is_ours = (1..nodes).all(|more| next() == first + more);
            if is_ours && taken(first, nodes).is_none() {
                return first;
            }
        }
    }

    fn refusal(dir: &Path, wishes: &Wishes) -> String {
        let error = LocalCluster::prepare(dir, wishes).expect_err("refused");
        error.to_string()
    }

    #[test]
    fn nodes_are_dealt_to_zones_and_each_has_something_to_keep() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let inner = dir.path().join("zones");
        let wishes = Wishes { zones: Some(2), ..wishes(5, free_port(5)) };
        let made = LocalCluster::prepare(&inner, &wishes).expect("made");
        let map = made.config.map().expect("a map");
        assert_eq!((map.zones.len(), map.partitions.len()), (2, 3));
        let keeps = |node: &txn::NodeId| map.kept_by(*node).count() > 0;
        assert!(map.nodes.keys().all(keeps));
        let other = Wishes { zones: Some(3), ..Wishes::default() };
        assert!(refusal(&inner, &other).contains("--zones 3"));
        let tree = LocalTree { fan_out: 2, control: Control::Locks };
        let tree = Wishes { protocol: Some(LocalProtocol::Hierarchy(tree)), ..Wishes::default() };
        assert!(refusal(&inner, &tree).contains("--protocol hierarchy: the cluster"));
        let ordered = Wishes { protocol: Some(LocalProtocol::Ordered), ..Wishes::default() };
        LocalCluster::prepare(&inner, &ordered).expect("it is one");
        let sites = dir.path().join("sites");
        LocalCluster::prepare(&sites, &Wishes { protocol: tree.protocol, ..wishes }).expect("made");
        assert!(refusal(&sites, &ordered).contains("--protocol ordered: the cluster"));
        let few = Wishes { partitions: Some(2), ..wishes };
        let text = refusal(&dir.path().join("few"), &few);
        assert!(text.contains("some node would keep nothing"), "{text}");
    }

    #[test]
    fn a_new_cluster_has_a_zone_for_each_node_and_a_secret_that_others_cannot_read() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let inner = dir.path().join("not/yet/there");
        let port = free_port(3);
        let wishes = Wishes { partitions: Some(4), ..wishes(3, port) };
        let made = LocalCluster::prepare(&inner, &wishes).expect("made");
        assert!(made.fresh);
        assert_eq!(made.config.warnings, Vec::<String>::new());
        let map = made.config.map().expect("a map");
        assert_eq!((map.zones.len(), map.nodes.len(), map.partitions.len()), (3, 3, 4));
        let second = made.config.node("n2").expect("the second node");
        assert_eq!(second.zone, "zone-2");
        assert_eq!(second.client_address, format!("127.0.0.1:{}", port + 1));
        assert_eq!(second.peer_address, format!("127.0.0.1:{}", port + 10_001));
        let file = inner.join("cluster.toml");
        let mode = std::fs::metadata(&file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let launches = made.launches(Path::new("/bin/ordo"), &[], None);
        let names: Vec<&str> = launches.iter().map(|launch| launch.name.as_str()).collect();
        assert_eq!(names, ["n1", "n2", "n3"]);
        let expected = format!(
            "/bin/ordo serve --cluster {} --node n2 --dir {}",
            file.display(),
            inner.join("n2").display()
        );
        assert_eq!(launches[1].command_line(), expected);
        let http = ["--http-port", "9121", "--timeout", "10"].map(str::to_owned);
        let launches = made.launches(Path::new("/bin/ordo"), &http, None);
        let ends = [
            "--timeout 10 --http-port 9121",
            "--timeout 10 --http-port 9122",
            "--timeout 10 --http-port 9123",
        ];
        for (launch, end) in launches.iter().zip(ends) {
            let line = launch.command_line();
            assert!(line.ends_with(end) && line.matches("http-port").count() == 1, "{line}");
        }

        let words = ["--requirepass", "open sesame", "--user", "bob on >sesame", "--maxmemory=1gb"];
        let hidden = made.hide_secrets(&words.map(str::to_owned)).expect("a directory");
        let launches = made.launches(Path::new("/bin/ordo"), &hidden, None);
        let line = launches[0].command_line();
        assert!(!line.contains("sesame") && line.contains("--maxmemory 1gb"), "{line}");
        let password = inner.join("requirepass");
        assert!(line.contains(&format!("--requirepass-file {}", password.display())), "{line}");
        assert_eq!(std::fs::read_to_string(&password).expect("there"), "open sesame");
        let Invocation::Serve(config) = Config::from_args(hidden).expect("settings") else {
            panic!("settings");
        };
        let users = config.users().expect("a user");
        assert!(users[0].1.accepts(&redis_surface::acl::PasswordHash::of(b"sesame")));

        // The same again: nothing is asked for, or the same.
        for again in [Wishes::default(), wishes] {
            let found = LocalCluster::prepare(&inner, &again).expect("found");
            assert!(!found.fresh);
            assert_eq!(found.config, made.config);
        }
        // Another one in its place: no.
        for (other, flag) in [
            (Wishes { nodes: Some(5), ..Wishes::default() }, "--local 5"),
            (Wishes { partitions: Some(1), ..Wishes::default() }, "--partitions 1"),
            (Wishes { port: Some(7), ..Wishes::default() }, "--port 7"),
            (Wishes { delivery: Some(Delivery::Mimox), ..Wishes::default() }, "--delivery mimox"),
        ] {
            let refusal = refusal(&inner, &other);
            assert!(refusal.contains(flag) && refusal.contains("another --dir"), "{refusal}");
        }
        // While it runs: no.
        let address = second.peer_address.clone();
        let _peer = TcpListener::bind(&address).expect("free");
        let refusal = refusal(&inner, &Wishes::default());
        assert!(refusal.contains(&address) && refusal.contains("runs already"), "{refusal}");
    }

    #[test]
    fn two_clusters_have_two_secrets() {
        let secrets = [1, 2].map(|_| {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let made = LocalCluster::prepare(dir.path(), &wishes(1, free_port(1)));
            made.expect("made").config.secret
        });
        assert!(secrets[0].as_bytes().len() == 64 && secrets[0] != secrets[1]);
    }

    #[test]
    fn what_cannot_be_is_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let inner = dir.path().join("inner");
        let held = TcpListener::bind((HOST, 0)).expect("a port");
        let taken = held.local_addr().expect("bound").port();
        // As a client port of the last of two, or as a peer port, whichever there is room for.
        let from = if taken > 12_000 { taken - 10_001 } else { taken - 1 };
        for (wishes, wants) in [
            (Wishes::default(), &["no cluster", "--local 3"][..]),
            (wishes(0, 7001), &["--local 0", "from 1 to 7"]),
            (wishes(8, 7001), &["--local 8", "from 1 to 7"]),
            (wishes(3, 0), &["--port 0", "from 1 to 55533"]),
            (wishes(3, 55_534), &["--port 55534", "from 1 to 55533"]),
            // Another process may have taken one of the others.
            (wishes(2, from), &[&format!("is in use, and 2 nodes need {from} to"), "for example --port"]),
        ] {
            let refusal = refusal(&inner, &wishes);
            for want in wants {
                assert!(refusal.contains(want), "{wishes:?}: '{refusal}' lacks '{want}'");
            }
            assert!(!inner.exists());
        }
        drop(held);
        // A wish that the description's own check refuses.
        let many = Wishes { partitions: Some(999), ..wishes(1, free_port(1)) };
        let refusal = refusal(&inner, &many);
        assert!(refusal.contains("partitions is 999"), "{refusal}");
        assert!(!inner.exists());
    }
}
