//! A node's settings, and its cluster's description.

use super::sources::closest_of;
use super::{Config, ConfigError};
use crate::cluster::ClusterConfig;
use crate::cluster::config::host_and_port;
use std::path::Path;

impl Config {
    /// Reads the cluster's description, if there is one, and takes from it where clients reach this node.
    /// Once only: the file may change behind our back.
    pub(super) fn join_cluster(&mut self) -> Result<(), ConfigError> {
        if self.cluster.is_some() {
            return Ok(());
        }
        match (self.cluster_file.as_str(), self.node.as_str()) {
            ("", "") => return Ok(()),
            ("", node) => {
                return Err(ConfigError::Together(format!(
                    "node: '{node}' is a node of no cluster. Name the file that describes the cluster with \
                     --cluster, or leave --node out to serve alone"
                )));
            }
            _ => {}
        }
        let cluster = ClusterConfig::load(Path::new(&self.cluster_file))?;
        let names = || cluster.nodes.iter().map(|node| node.name.as_str());
        let all = names().collect::<Vec<_>>().join(", ");
        if self.node.is_empty() {
            return Err(ConfigError::Together(format!(
                "cluster: say which of the nodes of {} this one is, with --node: {all}",
                self.cluster_file
            )));
        }
        let Some(node) = cluster.node(&self.node) else {
            let hint = match closest_of(&self.node, names()) {
                Some(similar) => format!(" (did you mean '{similar}'?)"),
                None => String::new(),
            };
            return Err(ConfigError::Together(format!(
                "node: {} has no node '{}'{hint}. It has {all}. A node that is to join the cluster needs a \
                 [[node]] with joins = true there",
                self.cluster_file, self.node
            )));
        };
        if let Some((host, port)) = host_and_port(&node.client_address) {
            if !self.given.contains("port") {
                // There can be one listener only: whose tls-port it is, serves clients by TLS alone.
                self.port = match u64::from(port) {
                    port if port == self.tls_port => 0,
                    port => port,
                };
            }
            if !self.given.contains("bind") {
                self.bind = vec![host.to_owned()];
            }
        }
        if let Some(engine) = cluster.engine {
            if self.given.contains("engine") && self.engine != engine {
                return Err(ConfigError::Together(format!(
                    "engine: this node is to run {}, and {} says {engine}: all nodes of a cluster run one \
                     engine. Leave the node's own setting out",
                    self.engine, self.cluster_file
                )));
            }
            self.engine = engine;
        }
        self.cluster = Some((cluster, self.node.clone()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Invocation;
    use execute::EngineKind;
    use tempfile::TempDir;

    /// A directory with a `cluster.toml` of three nodes, of which one joins.
    fn described(client_host: &str) -> (TempDir, String) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("cluster.toml");
        let mut text = "name = 'shop'\nsecret = 'sixteen letters!'\npartitions = 2\n".to_owned();
        for (number, name) in [(1, "alpha"), (2, "beta"), (3, "gamma")] {
            text += &format!(
                "[[node]]\nname = '{name}'\nzone = 'z'\npeer_address = '10.0.0.{number}:7101'\n\
                 client_address = '{client_host}:700{number}'\njoins = {}\n",
                number == 3
            );
        }
        std::fs::write(&path, text).expect("written");
        let path = path.to_str().expect("UTF-8").to_owned();
        (dir, path)
    }

    fn serve(words: &[&str]) -> Result<Config, String> {
        match Config::from_args(words.iter().map(|word| (*word).to_owned())) {
            Ok(Invocation::Serve(config)) => Ok(*config),
            Ok(other) => panic!("{words:?} gave {other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_node_listens_where_the_cluster_says_unless_it_is_told_otherwise() {
        let (_dir, path) = described("127.0.0.1");
        let cluster = ["--cluster", &path, "--node", "beta"];
        let config = serve(&cluster).expect("valid");
        assert_eq!((config.port, config.bind.join(" ")), (7002, "127.0.0.1".to_owned()));
        let (description, me) = config.cluster.as_ref().expect("a cluster");
        assert_eq!((description.name.as_str(), me.as_str()), ("shop", "beta"));

        // Also where what is said is the default of a server that stands alone.
        let told = [&cluster[..], &["--port", "6379", "--bind", "localhost"]].concat();
        let config = serve(&told).expect("valid");
        assert_eq!((config.port, config.bind.join(" ")), (6379, "localhost".to_owned()));

        // There is one listener at most for it.
        let secured = serve(&[&cluster[..], &["--tls-port", "7002"]].concat()).expect("valid");
        assert!(secured.serves_tls_only() && secured.tls_port == 7002);
        let both = serve(&[&cluster[..], &["--tls-port", "7102"]].concat()).expect("valid");
        assert_eq!((both.port, both.serves_tls_only()), (7002, false));

        let joining = serve(&["--cluster", &path, "--node", "gamma"]).expect("valid");
        assert_eq!(joining.port, 7003);
        assert_eq!(serve(&[]).expect("valid").cluster, None);
    }

    #[test]
    fn the_engine_is_the_clusters_and_nobody_contradicts() {
        let (_dir, path) = described("127.0.0.1");
        let cluster = ["--cluster", &path, "--node", "beta"];
        assert_eq!(serve(&cluster).expect("valid").engine, EngineKind::Sparkle);
        let told = [&cluster[..], &["--engine", "ssmr"]].concat();
        assert_eq!(serve(&told).expect("the file says nothing").engine, EngineKind::Ssmr);
        let text = std::fs::read_to_string(&path).expect("there");
        std::fs::write(&path, format!("engine = 'calvin'\n{text}")).expect("written");
        assert_eq!(serve(&cluster).expect("valid").engine, EngineKind::Calvin);
        let agreed = [&cluster[..], &["--engine", "calvin"]].concat();
        assert_eq!(serve(&agreed).expect("they agree").engine, EngineKind::Calvin);
        let error = serve(&told).expect_err("they do not");
        for want in ["ssmr", "says calvin", &path, "Leave the node's own setting out"] {
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn the_description_is_read_once() {
        let (dir, path) = described("127.0.0.1");
        let mut config = serve(&["--cluster", &path, "--node", "beta"]).expect("valid");
        let before = config.clone();
        drop(dir);
        config.validate().expect("still valid");
        assert_eq!(config, before);
    }

    #[test]
    fn an_address_of_the_cluster_does_not_open_a_server_without_a_password() {
        let (_dir, path) = described("10.0.0.1");
        let cluster = ["--cluster", &path, "--node", "alpha"];
        let error = serve(&cluster).expect_err("anyone could write");
        assert!(error.contains("bind 10.0.0.1") && error.contains("--requirepass"), "{error}");
        serve(&[&cluster[..], &["--requirepass", "x"]].concat()).expect("a password");
    }

    #[test]
    fn a_cluster_and_a_node_go_together() {
        let (_dir, path) = described("127.0.0.1");
        for (words, wants) in [
            (&["--node", "beta"][..], &["'beta'", "no cluster", "--cluster"][..]),
            (&["--cluster", &path], &[&path, "--node", "alpha, beta, gamma"]),
            (
                &["--cluster", &path, "--node", "bela"],
                &["no node 'bela'", "did you mean 'beta'", "joins = true"],
            ),
            (&["--cluster", "no/such", "--node", "beta"], &["no/such", "cannot be read"]),
        ] {
            let error = serve(words).expect_err("refused");
            for want in wants {
                assert!(error.contains(want), "{words:?} said '{error}', without '{want}'");
            }
        }
    }
}
