//! The files below `deploy`, held against the settings that exist: the words with which units and manifests
//! start servers are understood, and describe one cluster.

use crate::nodes::{PROGRAM, Server, word};
use server::cluster::ClusterConfig;
use server::config::{Config, Invocation};
use std::path::Path;
use std::process::Command;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

fn read(name: &str) -> String {
    let path = Path::new(DEPLOY).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words behind `ordo serve` in a unit. `%i` stands for the instance.
fn words_of_unit(name: &str) -> Vec<String> {
    let unit = read(name);
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/ordo serve "));
    start.expect("a command").split(' ').map(str::to_owned).collect()
}

/// The list of texts below a key of the manifest of the stateful set, without comments.
fn list<'a>(manifest: &'a str, key: &str) -> Vec<&'a str> {
    let behind = manifest.split_once(&format!("{key}:\n")).unwrap_or_else(|| panic!("no {key}")).1;
    let lines = behind.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.map_while(|line| line.strip_prefix("- ")).collect()
}

/// The value of a key that a manifest has once.
fn value<'a>(manifest: &'a str, key: &str) -> &'a str {
    let mut values = manifest.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "));
    let value = values.next().unwrap_or_else(|| panic!("no {key}"));
    assert_eq!(values.next(), None, "{key} is there once");
    value
}

/// The settings that words mean, where files of the machine are in a directory of the test's.
fn settings(words: &[String], dir: &Path) -> Config {
    let here = |text: &String| {
        ["/etc/ordo", "/run/secrets/ordo", "/var/lib/ordo"]
            .iter()
            .fold(text.clone(), |text, of_machine| text.replace(of_machine, word(dir)))
    };
    match Config::from_args(words.iter().map(here)) {
        Ok(Invocation::Serve(config)) => *config,
        other => panic!("{words:?}: {other:?}"),
    }
}

/// A directory with the files that units and manifests expect.
fn machine() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let here = |text: String| {
        text.replace("/run/secrets/ordo", word(dir.path())).replace("/var/lib/ordo", word(dir.path()))
    };
    let secret = "a-secret-that-only-this-test-knows";
    for (name, text) in [
        ("ordo.conf", here(read("ordo.conf"))),
        ("cluster.toml", here(read("kubernetes/cluster.toml"))),
        ("cluster.key", secret.to_owned()),
        ("password", secret.to_owned()),
        ("http-token", secret.to_owned()),
    ] {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    dir
}

#[test]
fn the_units_start_servers() {
    let machine = machine();
    let alone = settings(&words_of_unit("systemd/ordo.service"), machine.path());
    assert_eq!(alone.cluster, None);
    assert_eq!(Path::new(&alone.dir), machine.path());
    let words = words_of_unit("systemd/ordo@.service");
    let words: Vec<String> = words.iter().map(|word| word.replace("%i", "ordo-1")).collect();
    let node = settings(&words, machine.path());
    assert_eq!(node.cluster.map(|(_, name)| name).as_deref(), Some("ordo-1"));
    assert_eq!(Path::new(&node.dir), machine.path().join("ordo-1"));

    let mut server = Server::new();
    let conf = machine.path().join("ordo.conf");
    let mut command = Command::new(PROGRAM);
    command.args(["serve", word(&conf), "--port", server.port()]);
    server.launch_by(&mut command);
    server.wait_until_up();
}

#[test]
fn each_setting_that_the_file_proposes_is_one() {
    let proposed = read("ordo.conf");
    let mut count = 0;
    for line in proposed.lines().filter_map(|line| line.strip_prefix("# ")) {
        // Prose has more words, or ends in a full stop.
        let words: Vec<&str> = line.split(' ').collect();
        let is_setting = words.len() <= 3 && !line.ends_with('.') && line.is_ascii();
        if is_setting && Config::setting(words[0]).is_some() {
            let conf = format!("{} {}", words[0], words[1..].join(" "));
            let dir = tempfile::tempdir().expect("a directory");
            std::fs::write(dir.path().join("ordo.conf"), &conf).expect("written");
            let mut config = Config::default();
            config.read_file(&dir.path().join("ordo.conf")).unwrap_or_else(|error| panic!("{conf}: {error}"));
            count += 1;
        }
    }
    assert_eq!(count, 5, "settings that are proposed");
}

#[test]
fn the_units_differ_in_what_they_start_only() {
    let lines = |name: &str| -> Vec<String> {
        let differs = |line: &&str| {
            let starts = ["#", "Description=", "ExecStart=", "StateDirectory=", "WorkingDirectory="];
            !starts.iter().any(|start| line.starts_with(start))
        };
        read(name).lines().filter(differs).map(str::to_owned).collect()
    };
    assert_eq!(lines("systemd/ordo.service"), lines("systemd/ordo@.service"));
}

#[test]
fn the_manifests_start_the_nodes_that_they_describe() {
    let machine = machine();
    let set = read("kubernetes/statefulset.yaml");
    let description = ClusterConfig::load(&machine.path().join("cluster.toml")).expect("a cluster");
    let replicas: usize = value(&set, "replicas").parse().expect("a number");
    assert_eq!(description.nodes.len(), replicas);
    let words = list(&set, "args");
    assert_eq!(words.first(), Some(&"serve"));
    let service = value(&set, "serviceName");
    let namespace = value(&read("kubernetes/kustomization.yaml"), "namespace").to_owned();
    for (place, node) in description.nodes.iter().enumerate() {
        let pod = format!("ordo-{place}");
        assert_eq!(node.name, pod);
        let words: Vec<String> = words[1..].iter().map(|word| word.replace("$(POD_NAME)", &pod)).collect();
        let config = settings(&words, machine.path());
        assert_eq!(config.cluster.map(|(_, name)| name), Some(pod.clone()));
        let host = format!("{pod}.{service}.{namespace}.svc.cluster.local");
        assert_eq!(node.client_address, format!("{host}:{}", config.port));
        assert_eq!(node.peer_address, format!("{host}:17001"));
        for port in [config.port, 17001, config.http_port] {
            assert!(set.contains(&format!("containerPort: {port}\n")), "{port}");
        }
        // Without a limit of its own a node takes as much as there is, and its container is killed.
        assert!(config.maxmemory > 0);
    }
    for path in ["/healthz", "/readyz"] {
        assert!(set.contains(&format!("path: {path}\n")), "{path}");
    }
}
