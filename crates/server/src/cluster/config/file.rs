//! What the text of a `cluster.toml` says, before anybody has judged it.

use super::ClusterConfigError;
use serde::Deserialize;
use std::path::Path;
use toml::Spanned;

/// The keys of the file. Values carry their place.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub name: Spanned<String>,
    pub secret: Option<Spanned<String>>,
    pub secret_file: Option<Spanned<String>>,
    pub partitions: Option<Spanned<i64>>,
    pub engine: Option<Spanned<String>>,
    pub delivery: Option<Spanned<String>>,
    pub heartbeat_ms: Option<Spanned<i64>>,
    pub election_timeout_ms: Option<Spanned<i64>>,
    pub clock_ahead_ms_max: Option<Spanned<i64>>,
    pub request_timeout_ms: Option<Spanned<i64>>,
    pub staleness_ms_max: Option<Spanned<i64>>,
    pub leaders: Option<Spanned<String>>,
    pub protocol: Option<Spanned<String>>,
    pub control: Option<Spanned<String>>,
    pub transaction_timeout_ms: Option<Spanned<i64>>,
    pub transaction_keys_max: Option<Spanned<i64>>,
    #[serde(default)]
    pub node: Vec<Spanned<NodeTable>>,
    #[serde(default)]
    pub validator: Vec<Spanned<ValidatorTable>>,
    pub replicas: Option<Spanned<i64>>,
    pub sites_to_write_min: Option<Spanned<i64>>,
    pub regions_to_write_min: Option<Spanned<i64>>,
    pub propagation_ms: Option<Spanned<i64>>,
    pub retained_updates_max: Option<Spanned<i64>>,
    #[serde(default)]
    pub site: Vec<Spanned<SiteTable>>,
}

/// The keys of a `[[site]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SiteTable {
    pub name: Spanned<String>,
    pub region: Spanned<String>,
    pub peer_address: Spanned<String>,
    pub client_address: Spanned<String>,
    pub partitions: Option<Vec<Spanned<i64>>>,
    pub resolves: Option<Vec<Spanned<i64>>>,
}

impl SiteTable {
    /// The site as a node of the cluster, whose zone is its region.
    fn node(&self) -> NodeTable {
        NodeTable {
            name: self.name.clone(),
            zone: self.region.clone(),
            peer_address: self.peer_address.clone(),
            client_address: self.client_address.clone(),
            joins: false,
        }
    }
}

/// The keys of a `[[validator]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValidatorTable {
    pub name: Spanned<String>,
    pub parent: Option<Spanned<String>>,
    pub partition: Option<Spanned<i64>>,
    pub nodes: Option<Vec<Spanned<String>>>,
    pub zone: Option<Spanned<String>>,
}

/// The keys of a `[[node]]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeTable {
    pub name: Spanned<String>,
    pub zone: Spanned<String>,
    pub peer_address: Spanned<String>,
    pub client_address: Spanned<String>,
    #[serde(default)]
    pub joins: bool,
}

impl File {
    /// The nodes, of which each site is one.
    pub fn nodes(&self) -> Vec<Spanned<NodeTable>> {
        let sites = self.site.iter().map(|site| Spanned::new(site.span(), site.get_ref().node()));
        self.node.iter().cloned().chain(sites).collect()
    }

    pub fn parse(text: &str, path: &Path) -> Result<File, ClusterConfigError> {
        toml::from_str(text).map_err(|error| {
            let start = error.span().map(|span| span.start);
            // A key that is missing at all has no place: the whole file lacks it.
            let start = start.filter(|&start| start > 0 || !error.message().contains("missing"));
            let line = start.map(|start| line_of(text, start));
            let key = start.and_then(|start| key_at(text, start));
            let message = error.message().replace('\n', ", ");
            let problem = match key {
                Some(key) if !message.contains(&format!("`{key}`")) => format!("{key}: {message}"),
                _ => message,
            };
            ClusterConfigError::Wrong {
                path: path.display().to_string(),
                line,
                problem: format!("{problem}. docs/cluster.md lists the keys"),
            }
        })
    }
}

/// The line of a place, counted from 1.
pub(super) fn line_of(text: &str, place: usize) -> usize {
    let before = text.as_bytes().iter().take(place);
    1 + before.filter(|&&byte| byte == b'\n').count()
}

/// The key on the line of a place. Only that: the value may be the secret.
fn key_at(text: &str, place: usize) -> Option<&str> {
    let line = text.lines().nth(line_of(text, place) - 1)?;
    let (key, _) = line.split_once('=')?;
    let key = key.trim();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    (!key.is_empty() && key.chars().all(plain)).then_some(key)
}
