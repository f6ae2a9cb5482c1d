//! Which protocol a cluster runs; for a hierarchy the tree of its validators: `[[validator]]`; and for sites
//! in several regions which of the partitions each has: `[[site]]`.

use super::check::Source;
use super::file::{File, SiteTable, ValidatorTable};
use super::replicas::deal;
use super::{ClusterConfigError, ClusterNode};
use certify::hierarchy::{Control, Tree};
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;
use txn::{NodeId, PartitionId};

/// The protocol of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Requests are ordered first and executed afterwards.
    Ordered,
    /// Transactions are executed first and certified afterwards, by a tree of validators.
    Hierarchy(Validators),
    /// Each site commits alone, and tells the others afterwards.
    Pcsi(Sites),
}

impl Protocol {
    /// The validators, if there are any.
    pub fn validators(&self) -> Option<&Validators> {
        match self {
            Protocol::Hierarchy(validators) => Some(validators),
            Protocol::Ordered | Protocol::Pcsi(_) => None,
        }
    }

    /// The sites, if each commits alone.
    pub fn sites(&self) -> Option<&Sites> {
        match self {
            Protocol::Pcsi(sites) => Some(sites),
            Protocol::Ordered | Protocol::Hierarchy(_) => None,
        }
    }

    /// What clients may hold open. Nobody asks for it where requests are ordered.
    pub fn held_open(&self) -> HeldOpen {
        match self {
            Protocol::Ordered => HeldOpen { timeout_ms: 0, keys_max: 0 },
            Protocol::Hierarchy(validators) => validators.held_open,
            Protocol::Pcsi(sites) => sites.held_open,
        }
    }

    /// How the protocol is called in a `cluster.toml`.
    pub fn name(&self) -> &'static str {
        match self {
            Protocol::Ordered => "ordered",
            Protocol::Hierarchy(_) => "hierarchy",
            Protocol::Pcsi(_) => "pcsi",
        }
    }
}

/// What a client may do that holds a transaction open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldOpen {
    /// The transaction may rest so long between two commands.
    pub timeout_ms: u64,
    /// So many keys it may write.
    pub keys_max: usize,
}

impl HeldOpen {
    fn checked(source: &Source<'_>, file: &File) -> Result<HeldOpen, ClusterConfigError> {
        let (timeout, keys) = (&file.transaction_timeout_ms, &file.transaction_keys_max);
        Ok(HeldOpen {
            timeout_ms: source.number("transaction_timeout_ms", timeout, 60_000, 100, 86_400_000)?,
            keys_max: source.number("transaction_keys_max", keys, 10_000, 1, 1_000_000)? as usize,
        })
    }
}

/// The sites of a cluster that commit alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sites {
    /// The sites of each partition.
    pub partitions: Vec<Vec<NodeId>>,
    /// The sites that resolve conflicts in each partition.
    pub resolvers: Vec<Vec<NodeId>>,
    /// A client is told of a write when so many sites of its partition have it.
    pub sites_to_write_min: usize,
    /// These sites are in this number of regions.
    pub regions_to_write_min: usize,
    /// How often a site tells the others what it has committed.
    pub propagation_ms: u64,
    /// So many updates a site keeps for others that do not take them.
    pub retained_updates_max: usize,
    /// What clients may hold open.
    pub held_open: HeldOpen,
}

/// The validators of a hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    /// Which validator is above which.
    pub tree: Tree,
    /// How leaves validate.
    pub control: Control,
    /// What clients may hold open.
    pub held_open: HeldOpen,
    /// All validators by their numbers in the tree.
    pub list: Vec<Validator>,
}

/// One validator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validator {
    /// Its name.
    pub name: String,
    /// The nodes that agree on what it decides. Every other node follows.
    pub nodes: Vec<NodeId>,
}

impl Validators {
    /// The nodes that agree on the entries of each validator's group.
    pub fn groups(&self) -> BTreeMap<PartitionId, Vec<NodeId>> {
        let numbered = (0..).map(PartitionId).zip(&self.list);
        numbered.map(|(group, validator)| (group, validator.nodes.clone())).collect()
    }
}

/// A node has a session at least for each partition, and all of them have different numbers of 16 bits.
const SESSION_NUMBERS: usize = 1 << 16;

/// Reads which protocol the file asks for.
pub(super) fn checked(
    source: &Source<'_>,
    file: &File,
    nodes: &[ClusterNode],
    partitions: u16,
) -> Result<Protocol, ClusterConfigError> {
    let name = file.protocol.as_ref();
    let name_text = name.map_or("ordered", |name| name.get_ref());
    if name_text != "pcsi" {
        not_of_sites(source, file)?;
    }
    match name_text {
        "ordered" => ordered(source, file),
        "hierarchy" => hierarchy(source, file, nodes, partitions).map(Protocol::Hierarchy),
        "pcsi" => sites(source, file, partitions).map(Protocol::Pcsi),
        other => {
            let problem = format!("protocol is '{other}': it must be \"ordered\", \"hierarchy\" or \"pcsi\"");
            Err(source.wrong(name, problem))
        }
    }
}

/// Refuses the keys of another protocol.
fn not_of_sites(source: &Source<'_>, file: &File) -> Result<(), ClusterConfigError> {
    let advice = "add protocol = \"pcsi\", or leave it out";
    if let Some(site) = file.site.first() {
        let problem = format!("[[site]]: only with protocol = \"pcsi\" are there sites: {advice}");
        return Err(source.wrong(Some(site), problem));
    }
    for (key, value) in [
        ("replicas", &file.replicas),
        ("sites_to_write_min", &file.sites_to_write_min),
        ("regions_to_write_min", &file.regions_to_write_min),
        ("propagation_ms", &file.propagation_ms),
        ("retained_updates_max", &file.retained_updates_max),
    ] {
        if let Some(value) = value {
            let problem = format!("{key}: only with protocol = \"pcsi\" do sites commit alone: {advice}");
            return Err(source.wrong(Some(value), problem));
        }
    }
    Ok(())
}

/// Refuses the keys of clusters that order requests.
fn not_ordered(source: &Source<'_>, file: &File) -> Result<(), ClusterConfigError> {
    for (key, value) in [("engine", &file.engine), ("delivery", &file.delivery), ("leaders", &file.leaders)] {
        if let Some(value) = value {
            let problem = format!("{key}: the nodes of this protocol order no requests: leave the key out");
            return Err(source.wrong(Some(value), problem));
        }
    }
    for (key, value) in [
        ("heartbeat_ms", &file.heartbeat_ms),
        ("clock_ahead_ms_max", &file.clock_ahead_ms_max),
        ("staleness_ms_max", &file.staleness_ms_max),
    ] {
        if let Some(value) = value {
            let problem = format!("{key}: it has no effect with this protocol: leave the key out");
            return Err(source.wrong(Some(value), problem));
        }
    }
    Ok(())
}

fn sites(source: &Source<'_>, file: &File, partitions: u16) -> Result<Sites, ClusterConfigError> {
    not_ordered(source, file)?;
    if let Some(node) = file.node.first() {
        let problem =
            "[[node]]: with protocol = \"pcsi\" each node is a [[site]], which has a region".to_owned();
        return Err(source.wrong(Some(node), problem));
    }
    for (key, value) in [("control", &file.control)] {
        if let Some(value) = value {
            let problem = format!("{key}: only the validators of a hierarchy have one: leave the key out");
            return Err(source.wrong(Some(value), problem));
        }
    }
    if let Some(value) = &file.election_timeout_ms {
        let problem = "election_timeout_ms: sites elect nobody: leave the key out".to_owned();
        return Err(source.wrong(Some(value), problem));
    }
    if let Some(validator) = file.validator.first() {
        let problem = "[[validator]]: only a hierarchy has validators: leave it out".to_owned();
        return Err(source.wrong(Some(validator), problem));
    }
    let (having, mut resolvers) = placed(source, file, partitions)?;
    if file.site.iter().any(|table| table.get_ref().resolves.is_some()) {
        let none = Vec::new();
        resolvers =
            listed(source, file, partitions, "resolves", |table| table.resolves.as_ref().or(Some(&none)))?;
    }
    for (partition, (resolvers, sites)) in resolvers.iter_mut().zip(&having).enumerate() {
        if let Some(site) = resolvers.iter().find(|site| !sites.contains(site)) {
            let table = file.site.get(usize::from(site.0) - 1);
            let problem = format!(
                "resolves: the site does not have partition {partition}: take it out of the list, or list it \
                 among the site's partitions"
            );
            return Err(source.wrong(table, problem));
        }
        if resolvers.is_empty() {
            resolvers.clone_from(sites);
        }
    }
    let minimum = source.number("sites_to_write_min", &file.sites_to_write_min, 1, 1, 64)? as usize;
    for (partition, sites) in having.iter().enumerate() {
        if sites.is_empty() {
            let problem = format!("partition {partition} is at no site: add it to a [[site]]");
            return Err(source.wrong::<String>(None, problem));
        }
        if sites.len() < minimum {
            let problem = format!(
                "sites_to_write_min is {minimum}, and partition {partition} has {} sites: it could take no \
                 writes",
                sites.len()
            );
            return Err(source.wrong(file.sites_to_write_min.as_ref(), problem));
        }
    }
    let regions_min = regions_to_write_min(source, file, &having)?;
    let retained = &file.retained_updates_max;
    Ok(Sites {
        partitions: having,
        resolvers,
        sites_to_write_min: minimum,
        regions_to_write_min: regions_min,
        propagation_ms: source.number("propagation_ms", &file.propagation_ms, 50, 10, 10_000)?,
        retained_updates_max: source.number("retained_updates_max", retained, 1 << 18, 100, 1 << 24)?
            as usize,
        held_open: HeldOpen::checked(source, file)?,
    })
}

/// In how many regions a write must be; no partition may have its sites in fewer.
fn regions_to_write_min(
    source: &Source<'_>,
    file: &File,
    having: &[Vec<NodeId>],
) -> Result<usize, ClusterConfigError> {
    let key = &file.regions_to_write_min;
    let minimum = source.number("regions_to_write_min", key, 1, 1, 64)? as usize;
    let region = |site: &NodeId| {
        file.site.get(usize::from(site.0) - 1).map(|table| table.get_ref().region.get_ref().as_str())
    };
    for (partition, sites) in having.iter().enumerate() {
        let regions = sites.iter().map(region).collect::<BTreeSet<_>>().len();
        if regions < minimum {
            let problem = format!(
                "regions_to_write_min is {minimum}, and partition {partition} has sites in {regions} \
                 regions: it could take no writes"
            );
            return Err(source.wrong(key.as_ref(), problem));
        }
    }
    Ok(minimum)
}

/// The sites of a partition, unless the description says otherwise.
const REPLICAS_DEFAULT: usize = 3;

/// Sites of each partition.
type SitesByPartition = Vec<Vec<NodeId>>;

/// The sites of each partition, and those that resolve its conflicts where no site says which ones it
/// resolves.
fn placed(
    source: &Source<'_>,
    file: &File,
    partitions: u16,
) -> Result<(SitesByPartition, SitesByPartition), ClusterConfigError> {
    if file.site.iter().any(|table| table.get_ref().partitions.is_some()) {
        if let Some(value) = &file.replicas {
            let problem = "replicas: a [[site]] lists its partitions, so the sites of each one follow from \
                           these lists: leave the key out"
                .to_owned();
            return Err(source.wrong(Some(value), problem));
        }
        let having = listed(source, file, partitions, "partitions", |table| table.partitions.as_ref())?;
        return Ok((having.clone(), having));
    }
    let sites = file.site.len();
    let default = REPLICAS_DEFAULT.min(sites);
    let replicas = source.number("replicas", &file.replicas, default as u64, 1, sites as u64)? as usize;
    let mut regions: Vec<(&str, Vec<NodeId>)> = Vec::new();
    for (site, table) in (1..).map(NodeId).zip(&file.site) {
        let region = table.get_ref().region.get_ref().as_str();
        match regions.iter_mut().find(|(name, _)| *name == region) {
            Some((_, sites)) => sites.push(site),
            None => regions.push((region, vec![site])),
        }
    }
    let regions: Vec<Vec<NodeId>> = regions.into_iter().map(|(_, sites)| sites).collect();
    let dealt = deal(&regions, partitions, replicas);
    let has_one = |site: &NodeId| dealt.iter().any(|dealt| dealt.sites.contains(site));
    if let Some(site) = regions.iter().flatten().find(|site| !has_one(site)) {
        let table = file.site.get(usize::from(site.0) - 1);
        let problem = format!(
            "partitions: {partitions} partitions with {replicas} sites each leave this site without any: use \
             more partitions, a larger number of replicas, or list the partitions of each site"
        );
        return Err(source.wrong(table, problem));
    }
    Ok(dealt.into_iter().map(|dealt| (dealt.sites, dealt.resolvers)).unzip())
}

fn ordered(source: &Source<'_>, file: &File) -> Result<Protocol, ClusterConfigError> {
    let advice = "add protocol = \"hierarchy\", or leave it out";
    if let Some(validator) = file.validator.first() {
        let problem = format!("[[validator]]: only a hierarchy has validators: {advice}");
        return Err(source.wrong(Some(validator), problem));
    }
    for (key, value) in [
        ("transaction_timeout_ms", &file.transaction_timeout_ms),
        ("transaction_keys_max", &file.transaction_keys_max),
    ] {
        if let Some(value) = value {
            let problem = format!("{key}: only in a hierarchy do clients hold transactions open: {advice}");
            return Err(source.wrong(Some(value), problem));
        }
    }
    if let Some(control) = &file.control {
        let problem = format!("control: only the validators of a hierarchy have one: {advice}");
        return Err(source.wrong(Some(control), problem));
    }
    Ok(Protocol::Ordered)
}

fn hierarchy(
    source: &Source<'_>,
    file: &File,
    nodes: &[ClusterNode],
    partitions: u16,
) -> Result<Validators, ClusterConfigError> {
    not_ordered(source, file)?;
    if nodes.len() * usize::from(partitions) > SESSION_NUMBERS {
        let problem = format!(
            "partitions: {partitions} partitions and {} nodes make more than {SESSION_NUMBERS} pairs, and \
             each needs a session of its own: use fewer partitions",
            nodes.len()
        );
        return Err(source.wrong(file.partitions.as_ref(), problem));
    }
    for (node, table) in nodes.iter().zip(&file.node) {
        if node.joins {
            let problem = format!("joins: no node joins a hierarchy, and '{}' does", node.name);
            return Err(source.wrong(Some(table), problem));
        }
    }
    let control = match file.control.as_ref().map(|control| control.get_ref().as_str()) {
        None | Some("locks") => Control::Locks,
        Some("timestamps") => Control::Timestamps,
        Some(other) => {
            let problem = format!("control is '{other}': it must be \"locks\" or \"timestamps\"");
            return Err(source.wrong(file.control.as_ref(), problem));
        }
    };
    let tables = named(source, file)?;
    let order = numbered(source, file, &tables, partitions)?;
    let place = |name: &str| order.iter().position(|&other| other == name).unwrap_or_default() as u16;
    let parents: Vec<u16> = order
        .iter()
        .filter_map(|name| tables[name].get_ref().parent.as_ref())
        .map(|p| place(p.get_ref()))
        .collect();
    let tree = Tree::new(partitions, &parents);
    let tree = tree.map_err(|error| source.wrong::<String>(None, format!("[[validator]]: {error}")))?;
    let list = order.iter().map(|name| {
        let table = tables[name];
        Ok(Validator { name: (*name).to_owned(), nodes: hosts(source, table, nodes)? })
    });
    Ok(Validators {
        tree,
        control,
        held_open: HeldOpen::checked(source, file)?,
        list: list.collect::<Result<_, _>>()?,
    })
}

/// The sites that list each partition under a key. A site without the key lists all.
fn listed<'a>(
    source: &Source<'_>,
    file: &'a File,
    partitions: u16,
    key: &str,
    list: impl Fn(&'a SiteTable) -> Option<&'a Vec<Spanned<i64>>>,
) -> Result<Vec<Vec<NodeId>>, ClusterConfigError> {
    let mut sites: Vec<Vec<NodeId>> = vec![Vec::new(); usize::from(partitions)];
    for (site, table) in (1..).map(NodeId).zip(&file.site) {
        let Some(numbers) = list(table.get_ref()) else {
            sites.iter_mut().for_each(|sites| sites.push(site));
            continue;
        };
        for number in numbers {
            let of = usize::try_from(*number.get_ref()).ok().and_then(|number| sites.get_mut(number));
            let Some(of) = of else {
                let problem =
                    format!("{key}: {} is none: they go from 0 to {}", number.get_ref(), partitions - 1);
                return Err(source.wrong(Some(number), problem));
            };
            if of.last() == Some(&site) {
                let problem = format!("{key}: {} is there twice", number.get_ref());
                return Err(source.wrong(Some(number), problem));
            }
            of.push(site);
        }
        if key == "partitions" && numbers.is_empty() {
            let problem = format!("site '{}' has no partition", table.get_ref().name.get_ref());
            return Err(source.wrong(Some(table), problem));
        }
    }
    Ok(sites)
}

type Tables<'a> = BTreeMap<&'a str, &'a Spanned<ValidatorTable>>;

/// The validators by their names.
fn named<'a>(source: &Source<'_>, file: &'a File) -> Result<Tables<'a>, ClusterConfigError> {
    let mut seen = Vec::new();
    for table in &file.validator {
        let table = table.get_ref();
        source.name("the validator's name", &table.name)?;
        source.unique("the validator's name", &table.name, &mut seen)?;
    }
    Ok(file.validator.iter().map(|table| (table.get_ref().name.get_ref().as_str(), table)).collect())
}

/// The names of the validators in the order of their numbers: the leaves in that of their partitions, then
/// each inner validator behind its children.
fn numbered<'a>(
    source: &Source<'_>,
    file: &'a File,
    tables: &Tables<'a>,
    partitions: u16,
) -> Result<Vec<&'a str>, ClusterConfigError> {
    let mut leaves: Vec<Option<&str>> = vec![None; usize::from(partitions)];
    let mut children: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut root = None;
    for spanned in &file.validator {
        let table = spanned.get_ref();
        let name = table.name.get_ref().as_str();
        if let Some(partition) = &table.partition {
            let number = *partition.get_ref();
            let place = usize::try_from(number).ok().and_then(|number| leaves.get_mut(number));
            match place {
                None => {
                    let problem = format!("partition is {number}: it must be from 0 to {}", partitions - 1);
                    return Err(source.wrong(Some(partition), problem));
                }
                Some(Some(other)) => {
                    let problem = format!("'{other}' is the leaf validator of partition {number} already");
                    return Err(source.wrong(Some(partition), problem));
                }
                Some(free) => *free = Some(name),
            }
        }
        match &table.parent {
            None => {
                if let Some(other) = root.replace(name) {
                    let problem =
                        format!("neither '{other}' nor '{name}' has a parent: one validator is the root");
                    return Err(source.wrong(Some(spanned), problem));
                }
            }
            Some(parent) => {
                let Some(above) = tables.get(parent.get_ref().as_str()) else {
                    let problem = format!("parent: there is no validator '{}'", parent.get_ref());
                    return Err(source.wrong(Some(parent), problem));
                };
                if above.get_ref().partition.is_some() {
                    let problem = format!("parent: '{}' is a leaf, as it has a partition", parent.get_ref());
                    return Err(source.wrong(Some(parent), problem));
                }
                children.entry(above.get_ref().name.get_ref()).or_default().push(name);
            }
        }
    }
    if let Some(without) = leaves.iter().position(Option::is_none) {
        let problem = format!(
            "partition {without} has no leaf validator: add a [[validator]] with name, \
             partition = {without}, parent and nodes (`ordo cluster start --protocol hierarchy` makes an \
             example)"
        );
        return Err(source.wrong::<String>(None, problem));
    }
    let mut order: Vec<&str> = leaves.into_iter().flatten().collect();
    while order.len() < tables.len() {
        let is_next = |name: &&&str| {
            let below = children.get(**name).map_or(&[][..], Vec::as_slice);
            !order.contains(*name) && below.iter().all(|child| order.contains(child))
        };
        let Some(&next) = tables.keys().find(is_next) else {
            let rest: Vec<&str> = tables.keys().filter(|name| !order.contains(name)).copied().collect();
            let problem = format!("[[validator]]: there is a circle of parents among {}", rest.join(", "));
            return Err(source.wrong::<String>(None, problem));
        };
        order.push(next);
    }
    Ok(order)
}

/// The nodes that host a validator.
fn hosts(
    source: &Source<'_>,
    spanned: &Spanned<ValidatorTable>,
    nodes: &[ClusterNode],
) -> Result<Vec<NodeId>, ClusterConfigError> {
    let table = spanned.get_ref();
    let all = (1..).map(NodeId).zip(nodes);
    let found = match (&table.nodes, &table.zone) {
        (Some(names), None) => {
            let mut found = BTreeSet::new();
            for name in names {
                let node = all.clone().find(|(_, node)| node.name == *name.get_ref());
                let Some((node, _)) = node else {
                    let problem = format!("nodes: there is no node '{}'", name.get_ref());
                    return Err(source.wrong(Some(name), problem));
                };
                if !found.insert(node) {
                    let problem = format!("nodes: '{}' is there twice", name.get_ref());
                    return Err(source.wrong(Some(name), problem));
                }
            }
            found
        }
        (None, Some(zone)) => {
            all.filter(|(_, node)| node.zone == *zone.get_ref()).map(|(node, _)| node).collect()
        }
        _ => {
            let problem = format!(
                "validator '{}': say which nodes host it, with either nodes = [\"...\"] or zone = \"...\"",
                table.name.get_ref()
            );
            return Err(source.wrong(Some(spanned), problem));
        }
    };
    match found.is_empty() {
        true => {
            let problem = format!("validator '{}' is hosted by no node", table.name.get_ref());
            Err(source.wrong(Some(spanned), problem))
        }
        false => Ok(found.into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ClusterConfig;
    use std::path::Path;

    const NODES: &str = "name = 'shop'\nsecret = 'sixteen letters!'\nprotocol = 'hierarchy'\npartitions = 3\n\
        [[node]]\nname = 'a'\nzone = 'x'\npeer_address = 'h:11'\nclient_address = 'h:1'\n\
        [[node]]\nname = 'b'\nzone = 'x'\npeer_address = 'h:12'\nclient_address = 'h:2'\n\
        [[node]]\nname = 'c'\nzone = 'y'\npeer_address = 'h:13'\nclient_address = 'h:3'\n";

    fn leaf(partition: u16, parent: &str, hosts: &str) -> String {
        format!(
            "[[validator]]\nname = 'leaf-{partition}'\npartition = {partition}\nparent = '{parent}'\n\
             {hosts}\n"
        )
    }

    fn parse(text: &str) -> Result<ClusterConfig, String> {
        ClusterConfig::parse(text, Path::new("no/such/shop.toml")).map_err(|error| error.to_string())
    }

    /// Leaves 0 and 1 below `left`; `left` and leaf 2 below `root`.
    fn tree() -> String {
        NODES.to_owned()
            + "[[validator]]\nname = 'root'\nnodes = ['c', 'a']\n"
            + "[[validator]]\nname = 'left'\nparent = 'root'\nzone = 'x'\n"
            + &leaf(2, "root", "nodes = ['c']")
            + &leaf(1, "left", "nodes = ['b']")
            + &leaf(0, "left", "nodes = ['a']")
    }

    #[test]
    fn validators_are_numbered_leaves_first_and_parents_behind_their_children() {
        let config = parse(&tree()).expect("a cluster");
        let Protocol::Hierarchy(validators) = config.protocol else { panic!("{:?}", config.protocol) };
        assert_eq!(validators.control, Control::Locks);
        assert_eq!(Tree::new(3, &[3, 3, 4, 4]), Ok(validators.tree.clone()));
        let nodes = |numbers: &[u16]| numbers.iter().copied().map(NodeId).collect::<Vec<_>>();
        let hosted: Vec<_> =
            validators.list.iter().map(|one| (one.name.as_str(), one.nodes.clone())).collect();
        let expected = [
            ("leaf-0", nodes(&[1])),
            ("leaf-1", nodes(&[2])),
            ("leaf-2", nodes(&[3])),
            ("left", nodes(&[1, 2])),
            ("root", nodes(&[1, 3])),
        ];
        assert_eq!(hosted, expected);
        assert_eq!(config.warnings.len(), 2, "two validators have two nodes: {:?}", config.warnings);
        assert_eq!(validators.groups().len(), 5);
    }

    #[test]
    fn hierarchies_of_other_nodes_validators_or_control_are_told_apart() {
        let digest = |text: &str| parse(text).expect("a cluster").certified_digest();
        let tree = tree();
        let first = digest(&tree);
        assert_eq!(first, digest(&tree.replace("h:12", "elsewhere:12")), "a node may move");
        let swapped = |text: &str| {
            let text = text.replace("partition = 1", "partition = 9");
            text.replace("partition = 2", "partition = 1").replace("partition = 9", "partition = 2")
        };
        for other in [
            tree.replace("'shop'", "'mall'"),
            tree.replace("'c'", "'d'"),
            tree.replace("'hierarchy'", "'hierarchy'\ncontrol = 'timestamps'"),
            tree.replace("nodes = ['b']", "nodes = ['c']"),
            swapped(&tree),
        ] {
            assert_ne!(first, digest(&other), "{other}");
        }
    }

    #[test]
    fn what_makes_no_tree_is_told_with_its_line() {
        let tree = tree();
        let changed = |from: &str, to: &str| {
            assert!(tree.contains(from), "{from}");
            parse(&tree.replacen(from, to, 1)).expect_err("it is wrong")
        };
        for (from, to, problem) in [
            ("'hierarchy'", "'tree'", "it must be \"ordered\", \"hierarchy\" or \"pcsi\""),
            ("'hierarchy'", "'ordered'", "only a hierarchy has validators"),
            ("'hierarchy'", "'hierarchy'\nengine = 'calvin'", "engine: the nodes of this protocol"),
            ("'hierarchy'", "'hierarchy'\nheartbeat_ms = 50", "heartbeat_ms: it has no effect"),
            ("'hierarchy'", "'hierarchy'\nstaleness_ms_max = 5000", "staleness_ms_max: it has no effect"),
            ("'hierarchy'", "'hierarchy'\ncontrol = 'none'", "\"locks\" or \"timestamps\""),
            ("zone = 'y'\n", "zone = 'y'\njoins = true\n", "no node joins a hierarchy"),
            ("parent = 'root'", "parent = 'nobody'", "there is no validator 'nobody'"),
            ("parent = 'root'", "parent = 'leaf-0'", "'leaf-0' is a leaf"),
            ("parent = 'root'\n", "", "neither 'root' nor 'left' has a parent"),
            ("partition = 2", "partition = 1", "'leaf-2' is the leaf validator"),
            ("partition = 2", "partition = 3", "from 0 to 2"),
            ("partition = 2\n", "", "partition 2 has no leaf validator"),
            ("name = 'root'\n", "name = 'root'\nparent = 'left'\n", "a circle of parents among left, root"),
            ("'left'\nnodes = ['b']", "'root'\nnodes = ['b']", "fewer than two children"),
            ("['c', 'a']", "['c', 'd']", "there is no node 'd'"),
            ("['c', 'a']", "['c', 'c']", "'c' is there twice"),
            ("['c', 'a']", "[]", "hosted by no node"),
            ("zone = 'x'\n[[validator]]", "zone = 'q'\n[[validator]]", "hosted by no node"),
            ("nodes = ['c']", "", "say which nodes host it"),
            ("name = 'left'", "name = 'root'", "the validator's name 'root' is taken at line"),
        ] {
            let error = changed(from, to);
            assert!(error.contains(problem), "{from} -> {to}: {error}");
        }
    }

    const SITES: &str = "name = 'shop'\nsecret = 'sixteen letters!'\nprotocol = 'pcsi'\npartitions = 2\n\
        [[site]]\nname = 'a'\nregion = 'x'\npeer_address = 'h:11'\nclient_address = 'h:1'\n\
        [[site]]\nname = 'b'\nregion = 'x'\npeer_address = 'h:12'\nclient_address = 'h:2'\npartitions = [1]\n\
        [[site]]\nname = 'c'\nregion = 'y'\npeer_address = 'h:13'\nclient_address = 'h:3'\nresolves = [0]\n";

    #[test]
    fn each_site_has_partitions_and_some_of_their_sites_resolve_them() {
        let config = parse(SITES).expect("a cluster");
        let nodes = |numbers: &[u16]| numbers.iter().copied().map(NodeId).collect::<Vec<_>>();
        let sites = config.sites().expect("sites");
        assert_eq!(sites.partitions, [nodes(&[1, 3]), nodes(&[1, 2, 3])]);
        assert_eq!(sites.resolvers, [nodes(&[3]), nodes(&[1, 2, 3])], "who resolves 1 is left open");
        assert_eq!((config.nodes[2].zone.as_str(), config.is_certified()), ("y", true));
        let digest = |text: &str| parse(text).expect("a cluster").certified_digest();
        assert_eq!(digest(SITES), digest(&SITES.replace("h:12", "elsewhere:12")));
        for (from, to) in [("'c'", "'d'"), ("partitions = [1]", ""), ("resolves = [0]", "resolves = [1]")] {
            assert_ne!(digest(SITES), digest(&SITES.replacen(from, to, 1)), "{from} -> {to}");
        }
    }

    #[test]
    fn where_no_site_lists_its_partitions_each_partition_has_three_sites() {
        let text = |keys: &str| {
            let sites = (1..=6).map(|site| {
                let region = if site > 3 { "y" } else { "x" };
                format!(
                    "[[site]]\nname = 's{site}'\nregion = '{region}'\npeer_address = 'h:1{site}'\n\
                     client_address = 'h:{site}'\n"
                )
            });
            let sites: String = sites.collect();
            format!("name = 'shop'\nsecret = 'sixteen letters!'\nprotocol = 'pcsi'\n{keys}\n{sites}")
        };
        let sites = |keys: &str| parse(&text(keys)).expect("a cluster").sites().expect("sites").clone();
        let dealt = sites("partitions = 4");
        assert!(dealt.partitions.iter().all(|sites| sites.len() == 3), "{dealt:?}");
        let are_west = |sites: &[NodeId]| sites.iter().all(|site| site.0 <= 3);
        assert!(are_west(&dealt.resolvers[0]) && !are_west(&dealt.resolvers[1]), "{dealt:?}");
        assert!(sites("partitions = 4\nreplicas = 6").partitions.iter().all(|sites| sites.len() == 6));
        for (keys, problem) in [
            ("partitions = 1", "leave this site without any"),
            ("partitions = 4\nreplicas = 7", "from 1 to 6"),
            ("partitions = 4\nreplicas = 2\nsites_to_write_min = 3", "partition 0 has 2 sites"),
            ("partitions = 4\nregions_to_write_min = 3", "partition 0 has sites in 2 regions"),
        ] {
            let error = parse(&text(keys)).expect_err("it is wrong");
            assert!(error.contains(problem), "{keys}: {error}");
        }
    }

    #[test]
    fn sites_that_could_not_work_are_told_with_their_lines() {
        for (from, to, problem) in [
            ("'pcsi'", "'ordered'", "[[site]]: only with protocol = \"pcsi\""),
            ("'pcsi'", "'pcsi'\nelection_timeout_ms = 900", "sites elect nobody"),
            ("'pcsi'", "'pcsi'\nheartbeat_ms = 50", "heartbeat_ms: it has no effect"),
            ("'pcsi'", "'pcsi'\nengine = 'calvin'", "engine: the nodes of this protocol"),
            ("'pcsi'", "'pcsi'\ncontrol = 'locks'", "only the validators of a hierarchy"),
            ("'pcsi'", "'pcsi'\npropagation_ms = 1", "from 10 to 10000"),
            ("'pcsi'", "'pcsi'\nsites_to_write_min = 3", "partition 0 has 2 sites"),
            ("'pcsi'", "'pcsi'\nregions_to_write_min = 3", "partition 0 has sites in 2 regions"),
            ("partitions = [1]", "partitions = [2]", "partitions: 2 is none: they go from 0 to 1"),
            ("partitions = [1]", "partitions = [1, 1]", "partitions: 1 is there twice"),
            ("partitions = [1]", "partitions = []", "site 'b' has no partition"),
            ("partitions = [1]", "partitions = [1]\nresolves = [0]", "the site does not have partition 0"),
            ("'pcsi'", "'pcsi'\nreplicas = 3", "replicas: a [[site]] lists its partitions"),
            ("resolves = [0]", "zone = 'y'", "unknown field"),
            ("name = 'b'", "name = 'a'", "is taken at line"),
        ] {
            assert!(SITES.contains(from), "{from}");
            let error = parse(&SITES.replacen(from, to, 1)).expect_err("it is wrong");
            assert!(error.contains(problem), "{from} -> {to}: {error}");
        }
    }
}
