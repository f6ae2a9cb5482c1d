//! Whether a description makes sense.

use super::file::{File, NodeTable, line_of};
use super::protocol::{self, Protocol};
use super::{
    ClusterConfig, ClusterConfigError, ClusterNode, Leaders, SECRET_CHARACTERS_MIN, Secret, address_problem,
    name_problem, node_name_problem, secret_path,
};
use crate::private;
use agree::Delivery;
use execute::EngineKind;
use order::PARTITIONS_MAX;
use std::path::Path;
use toml::Spanned;
use txn::NODES_MAX;

/// What `leaders` means unless it names a zone.
const SPREAD: &str = "spread";

/// The text that is being checked.
pub(super) struct Source<'a> {
    text: &'a str,
    path: &'a Path,
    warnings: Vec<String>,
}

impl Source<'_> {
    /// An error at a value, or about the whole file.
    pub(super) fn wrong<T>(&self, at: Option<&Spanned<T>>, problem: String) -> ClusterConfigError {
        ClusterConfigError::Wrong {
            path: self.path.display().to_string(),
            line: at.map(|value| line_of(self.text, value.span().start)),
            problem,
        }
    }

    fn line<T>(&self, value: &Spanned<T>) -> usize {
        line_of(self.text, value.span().start)
    }

    fn warn(&mut self, problem: String) {
        let path = self.path.display();
        self.warnings.push(format!("{path}: {problem}"));
    }

    pub(super) fn number(
        &self,
        key: &str,
        value: &Option<Spanned<i64>>,
        default: u64,
        min: u64,
        max: u64,
    ) -> Result<u64, ClusterConfigError> {
        let Some(value) = value else {
            return Ok(default);
        };
        let number = *value.get_ref();
        let found = u64::try_from(number).ok();
        found.filter(|found| (min..=max).contains(found)).ok_or_else(|| {
            let problem = format!("{key} is {number}: it must be from {min} to {max}");
            self.wrong(Some(value), problem)
        })
    }

    pub(super) fn name(&self, what: &str, name: &Spanned<String>) -> Result<String, ClusterConfigError> {
        match name_problem(what, name.get_ref()) {
            Some(problem) => Err(self.wrong(Some(name), problem)),
            None => Ok(name.get_ref().clone()),
        }
    }

    fn address(&self, key: &str, address: &Spanned<String>) -> Result<String, ClusterConfigError> {
        match address_problem(key, address.get_ref()) {
            Some(problem) => Err(self.wrong(Some(address), problem)),
            None => Ok(address.get_ref().clone()),
        }
    }

    fn secret(&mut self, file: &File) -> Result<Secret, ClusterConfigError> {
        let advice = "`openssl rand -hex 32` makes a good one";
        let (value, text, holder) = match (&file.secret, &file.secret_file) {
            (Some(_), Some(value)) => {
                let problem = "there is both secret and secret_file: keep one of the two".to_owned();
                return Err(self.wrong(Some(value), problem));
            }
            (Some(value), None) => (value, value.get_ref().clone(), self.path.to_owned()),
            (None, Some(value)) => {
                let holder = secret_path(self.path, value.get_ref());
                let text =
                    std::fs::read_to_string(&holder).map_err(|cause| ClusterConfigError::Unreadable {
                        path: holder.display().to_string(),
                        what: "the cluster's secret",
                        cause,
                        advice: "secret_file names it, from the directory of the cluster's description on",
                    })?;
                (value, text.trim().to_owned(), holder)
            }
            (None, None) => {
                let problem = format!(
                    "there is no secret: add secret = \"...\" (or secret_file = \"path\") with at least \
                     {SECRET_CHARACTERS_MIN} characters, the same at every node; {advice}"
                );
                return Err(self.wrong::<String>(None, problem));
            }
        };
        let characters = text.chars().count();
        if characters < SECRET_CHARACTERS_MIN {
            let problem = format!(
                "the secret has {characters} characters, and needs at least {SECRET_CHARACTERS_MIN}; {advice}"
            );
            return Err(self.wrong(Some(value), problem));
        }
        // Without a file (a text of a test) there is nobody to keep it from.
        self.warnings.extend(private::complaint(&holder, "the cluster's secret"));
        Ok(Secret(text))
    }

    fn node(&self, table: &NodeTable) -> Result<ClusterNode, ClusterConfigError> {
        let name = table.name.get_ref().clone();
        if let Some(problem) = node_name_problem(&name) {
            return Err(self.wrong(Some(&table.name), problem));
        }
        let zone = self.name("the zone", &table.zone)?;
        if zone == SPREAD {
            let problem =
                "the zone 'spread': choose another name, or leaders = \"spread\" would mean two things"
                    .to_owned();
            return Err(self.wrong(Some(&table.zone), problem));
        }
        Ok(ClusterNode {
            name,
            zone,
            peer_address: self.address("peer_address", &table.peer_address)?,
            client_address: self.address("client_address", &table.client_address)?,
            joins: table.joins,
        })
    }

    fn nodes(&self, tables: &[Spanned<NodeTable>]) -> Result<Vec<ClusterNode>, ClusterConfigError> {
        let nodes: Vec<ClusterNode> =
            tables.iter().map(|table| self.node(table.get_ref())).collect::<Result<_, _>>()?;
        if nodes.is_empty() {
            let problem = "there is no node: add a [[node]] with name, zone, peer_address and client_address \
                           for each (a [[site]] with a region where protocol is \"pcsi\")";
            return Err(self.wrong::<String>(None, problem.to_owned()));
        }
        if nodes.len() > usize::from(NODES_MAX) {
            let problem = format!("there are {} nodes, and at most {NODES_MAX}", nodes.len());
            return Err(self.wrong::<String>(None, problem));
        }
        let mut names: Vec<(&str, usize)> = Vec::new();
        let mut addresses: Vec<(&str, usize)> = Vec::new();
        for table in tables {
            let table = table.get_ref();
            self.unique("the node's name", &table.name, &mut names)?;
            self.unique("peer_address", &table.peer_address, &mut addresses)?;
            self.unique("client_address", &table.client_address, &mut addresses)?;
        }
        Ok(nodes)
    }

    /// Refuses a value that was there before.
    pub(super) fn unique<'a>(
        &self,
        what: &str,
        value: &'a Spanned<String>,
        seen: &mut Vec<(&'a str, usize)>,
    ) -> Result<(), ClusterConfigError> {
        let text = value.get_ref().as_str();
        if let Some((_, line)) = seen.iter().find(|(other, _)| *other == text) {
            let problem = format!("{what} '{text}' is taken at line {line}: choose another");
            return Err(self.wrong(Some(value), problem));
        }
        seen.push((text, self.line(value)));
        Ok(())
    }

    /// Says what is allowed and probably not meant. `zones` are those of all nodes: a zone's founders may
    /// have been replaced, and their entries deleted.
    fn look_at_zones(&mut self, zones: &[&str]) {
        match zones.len() {
            1 => self.warn(
                "there is one zone, so nothing is replicated: what its nodes lose is lost. Three zones \
                 with a node each are the smallest cluster that bears a loss"
                    .to_owned(),
            ),
            count if count % 2 == 0 => self.warn(format!(
                "{count} zones bear the loss of {}, as {} would: an even number of zones adds cost and no \
                 safety",
                (count - 1) / 2,
                count - 1,
            )),
            _ => {}
        }
    }
}

/// The cluster that a file describes.
pub(super) fn checked(file: File, text: &str, path: &Path) -> Result<ClusterConfig, ClusterConfigError> {
    let mut source = Source { text, path, warnings: Vec::new() };
    let name = source.name("the cluster's name", &file.name)?;
    let secret = source.secret(&file)?;
    let number = |key, value, default, min, max| source.number(key, value, default, min, max);
    let partitions_max = u64::from(PARTITIONS_MAX);
    let partitions = number("partitions", &file.partitions, 1, 1, partitions_max)? as u16;
    let engine = file.engine.as_ref().map(|value| {
        let kind = EngineKind::correct_of(value.get_ref());
        let checked = kind.and_then(|kind| kind.check(partitions).map(|()| kind));
        checked.map_err(|error| source.wrong(Some(value), format!("engine: {error}")))
    });
    let engine = engine.transpose()?;
    let delivery = file.delivery.as_ref().map(|value| {
        let parsed = value.get_ref().parse::<Delivery>();
        parsed.map_err(|error| source.wrong(Some(value), format!("delivery: {error}")))
    });
    let delivery = delivery.transpose()?.unwrap_or_default();
    let heartbeat_ms = number("heartbeat_ms", &file.heartbeat_ms, 50, 5, 10_000)?;
    let election = &file.election_timeout_ms;
    let election_timeout_ms = number("election_timeout_ms", election, 500, 50, 60_000)?;
    let clock = &file.clock_ahead_ms_max;
    let clock_ahead_ms_max = number("clock_ahead_ms_max", clock, 500, 10, 60_000)?;
    let request = &file.request_timeout_ms;
    let request_timeout_ms = number("request_timeout_ms", request, 10_000, 100, 600_000)?;
    let staleness = &file.staleness_ms_max;
    let staleness_ms_max = number("staleness_ms_max", staleness, 10_000, 100, 3_600_000)?;
    if election_timeout_ms < 4 * heartbeat_ms {
        let problem = format!(
            "election_timeout_ms is {election_timeout_ms}, and must be at least four times heartbeat_ms \
             ({heartbeat_ms}): a leader would be replaced whenever a message is late"
        );
        let at = election.as_ref().or(file.heartbeat_ms.as_ref());
        return Err(source.wrong(at, problem));
    }

    let nodes = source.nodes(&file.nodes())?;
    // Not only the founders': those of a zone may have been replaced by nodes that joined, and their entries
    // deleted. Whether the cluster has the zone of a node that joins, its map tells: `ordo admin add-node`
    // asks it.
    let mut zones: Vec<&str> = Vec::new();
    for node in &nodes {
        if !zones.contains(&node.zone.as_str()) {
            zones.push(&node.zone);
        }
    }
    let leaders = match &file.leaders {
        None => Leaders::Spread,
        Some(value) if value.get_ref() == SPREAD => Leaders::Spread,
        Some(value) if zones.contains(&value.get_ref().as_str()) => Leaders::Zone(value.get_ref().clone()),
        Some(value) => {
            let problem = format!(
                "leaders is '{}': it must be \"{SPREAD}\" or a zone: {}",
                value.get_ref(),
                zones.join(", ")
            );
            return Err(source.wrong(Some(value), problem));
        }
    };
    let protocol = protocol::checked(&source, &file, &nodes, partitions)?;
    let validators = protocol.validators().map_or(&[][..], |validators| &validators.list);
    for validator in validators.iter().filter(|validator| validator.nodes.len() % 2 == 0) {
        source.warn(format!(
            "validator '{}' has {} nodes, and bears the loss of no more of them than with one node less",
            validator.name,
            validator.nodes.len()
        ));
    }
    let is_ordered = protocol == Protocol::Ordered;
    for zone in zones.iter().filter(|_| is_ordered) {
        let founders = nodes.iter().filter(|node| !node.joins && node.zone == **zone);
        let count = founders.count();
        if count > usize::from(partitions) {
            let problem = format!(
                "zone '{zone}' begins with {count} nodes, and there are {partitions} partitions: some node \
                 would keep nothing. Give the cluster more partitions, or let nodes join later (joins = \
                 true)"
            );
            return Err(source.wrong(file.partitions.as_ref(), problem));
        }
    }
    if is_ordered {
        source.look_at_zones(&zones);
    }
    Ok(ClusterConfig {
        name,
        secret,
        partitions,
        protocol,
        engine,
        delivery,
        heartbeat_ms,
        election_timeout_ms,
        clock_ahead_ms_max,
        request_timeout_ms,
        staleness_ms_max,
        leaders,
        warnings: source.warnings,
        nodes,
    })
}
