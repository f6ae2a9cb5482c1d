use super::*;
use agree::Delivery;
use std::os::unix::fs::PermissionsExt;
use txn::NODES_MAX;
use txn::NodeId;

const HEAD: &str = "name = 'shop'\nsecret = 'sixteen letters!'\n";

fn node(name: &str, zone: &str, number: u16) -> String {
    format!(
        "[[node]]\nname = '{name}'\nzone = '{zone}'\npeer_address = '10.0.0.{number}:7101'\n\
         client_address = '10.0.0.{number}:7001'\n"
    )
}

fn three() -> String {
    node("a", "x", 1) + &node("b", "y", 2) + &node("c", "z", 3)
}

fn parse(text: &str) -> ClusterConfig {
    match ClusterConfig::parse(text, Path::new("no/such/shop.toml")) {
        Ok(config) => config,
        Err(error) => panic!("{error}\n{text}"),
    }
}

fn error(text: &str) -> String {
    match ClusterConfig::parse(text, Path::new("no/such/shop.toml")) {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_file_of_the_least_keys_has_the_defaults() {
    let config = parse(&(HEAD.to_owned() + &three()));
    let expected = ClusterConfig {
        name: "shop".to_owned(),
        secret: Secret("sixteen letters!".to_owned()),
        partitions: 1,
        protocol: Protocol::Ordered,
        engine: None,
        delivery: Delivery::Raft,
        heartbeat_ms: 50,
        election_timeout_ms: 500,
        clock_ahead_ms_max: 500,
        request_timeout_ms: 10_000,
        staleness_ms_max: 10_000,
        leaders: Leaders::Spread,
        nodes: config.nodes.clone(),
        warnings: Vec::new(),
    };
    assert_eq!(config, expected);
    assert_eq!(
        config.node("b"),
        Some(&ClusterNode {
            name: "b".to_owned(),
            zone: "y".to_owned(),
            peer_address: "10.0.0.2:7101".to_owned(),
            client_address: "10.0.0.2:7001".to_owned(),
            joins: false,
        })
    );
    assert_eq!(config.node("d"), None);
}

#[test]
fn every_key_is_taken() {
    let keys = "partitions = 4\nheartbeat_ms = 20\nelection_timeout_ms = 300\nclock_ahead_ms_max = 100\n\
                request_timeout_ms = 2000\nstaleness_ms_max = 5000\nleaders = 'y'\nengine = 'calvin'\ndelivery = 'mimox'\n";
    let config = parse(&(HEAD.to_owned() + keys + &three()));
    assert_eq!(
        (
            config.partitions,
            config.heartbeat_ms,
            config.election_timeout_ms,
            config.clock_ahead_ms_max,
            config.request_timeout_ms,
            config.staleness_ms_max,
        ),
        (4, 20, 300, 100, 2000, 5000)
    );
    assert_eq!(config.leaders, Leaders::Zone("y".to_owned()));
    assert_eq!(config.engine, Some(EngineKind::Calvin));
    assert_eq!(config.delivery, Delivery::Mimox);
}

#[test]
fn the_first_map_is_the_founders() {
    let joining = node("d", "x", 4) + "joins = true\n";
    let founded = parse(&format!("{HEAD}partitions = 3\n{}", three()));
    // In the middle: who joins must not shift the others' numbers.
    let text = format!("{HEAD}partitions = 3\n{}{joining}", node("a", "x", 1))
        + &node("b", "y", 2)
        + &node("c", "z", 3);
    let later = parse(&text);
    assert_eq!(later.nodes.len(), 4);
    assert_eq!(later.described(), founded.described());
    let map = later.map().expect("a map");
    assert_eq!(Ok(&map), founded.map().as_ref());
    assert_eq!((map.nodes.len(), map.partitions.len()), (3, 3));
    let names: Vec<&str> = map.nodes.values().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(map.nodes[&NodeId(3)].client_address, "10.0.0.3:7001");
}

#[test]
fn each_error_names_the_line_and_the_key_and_says_what_to_do() {
    let three = three();
    let with = |line: &str| format!("{HEAD}{line}\n{three}");
    let second = |from: &str, to: &str| HEAD.to_owned() + &three.replace(from, to);
    let cases: Vec<(String, &[&str])> = vec![
        ("name = ".to_owned(), &["shop.toml, line 1", "name: "]),
        (with("partition = 2"), &["line 3: ", "`partition`", "`partitions`", "docs/cluster.md"]),
        (with("partitions = 'two'"), &["line 3: partitions: ", "string"]),
        (with("partitions = 0"), &["line 3: partitions is 0", "from 1 to 256"]),
        (with("partitions = -1"), &["line 3: partitions is -1"]),
        (with("partitions = 257"), &["line 3: partitions is 257"]),
        (with("heartbeat_ms = 1"), &["line 3: heartbeat_ms is 1", "from 5"]),
        (with("election_timeout_ms = 1"), &["election_timeout_ms is 1", "from 50"]),
        (with("clock_ahead_ms_max = 1"), &["clock_ahead_ms_max is 1", "from 10"]),
        (with("request_timeout_ms = 1"), &["request_timeout_ms is 1", "from 100"]),
        (with("staleness_ms_max = 1"), &["staleness_ms_max is 1", "from 100"]),
        (with("heartbeat_ms = 126"), &["line 3: election_timeout_ms is 500", "four times", "(126)"]),
        (with("delivery = 'paxos'"), &["line 3: delivery: 'paxos' is no way to deliver: use raft or mimox"]),
        (with("engine = 'sparkl'"), &["line 3: engine: 'sparkl' is no engine", "sparkle"]),
        (
            with("engine = 'nocc'"),
            &["line 3: engine: 'nocc' has no concurrency control", "Choose from serial"],
        ),
        (
            with("partitions = 3\nengine = 'serial'"),
            &["line 4: engine: 'serial' executes one partition, and there are 3", "Choose from calvin"],
        ),
        (with("leaders = 'w'"), &["line 3: leaders is 'w'", "\"spread\"", "x, y, z"]),
        (with("secret_file = 'key'"), &["line 3", "both secret and secret_file"]),
        (format!("name = 's'\n{three}"), &["shop.toml: there is no secret", "openssl"]),
        (
            format!("name = 's'\nsecret = 'fifteen letters'\n{three}"),
            &["line 2: the secret has 15 characters", "at least 16", "openssl"],
        ),
        (
            format!("name = 's'\nsecret_file = 'absent'\n{three}"),
            &["no/such/absent: ", "secret", "cannot be read", "secret_file"],
        ),
        (format!("secret = 'sixteen letters!'\n{three}"), &["shop.toml: ", "missing field `name`"]),
        (format!("name = 'a b'\n{three}"), &["line 1: the cluster's name 'a b'", "letters"]),
        (HEAD.to_owned(), &["shop.toml: there is no node", "[[node]]"]),
        (second("'b'", "'a'"), &["line 9: the node's name 'a' is taken at line 4"]),
        (second("'b'", "'7'"), &["line 9: the node's name '7'", "add a letter"]),
        (second("'b'", "''"), &["line 9: the node's name ''", "1 to 64"]),
        (second("zone = 'y'\n", ""), &["line 8: ", "missing field `zone`"]),
        (second("'y'", "'spread'"), &["line 10: the zone 'spread'", "another name"]),
        (second("2:7101", "1:7101"), &["line 11: peer_address '10.0.0.1:7101' is taken at line 6"]),
        (second("2:7101", "2:7001"), &["line 12: client_address '10.0.0.2:7001' is taken at line 11"]),
        (second("2:7001", "2"), &["line 12: client_address '10.0.0.2'", "host:port"]),
        (second("10.0.0.2:7001", "0.0.0.0:7001"), &["line 12: client_address", "others connect", "--bind"]),
        (second("10.0.0.2:7101", "[::]:7101"), &["line 11: peer_address", "others connect"]),
        (HEAD.to_owned() + &three + "color = 1\n", &["line 18: ", "`color`"]),
    ];
    for (text, wants) in cases {
        let error = error(&text);
        for want in wants {
            assert!(error.contains(want), "'{error}' lacks '{want}' for\n{text}");
        }
        assert!(!error.contains('\n'), "one line: {error}");
    }
    let error = ClusterConfig::load(Path::new("no/such/shop.toml")).expect_err("no file");
    let error = error.to_string();
    assert!(error.contains("no/such/shop.toml") && error.contains("--cluster"), "{error}");
}

#[test]
fn nothing_shows_the_secret() {
    let config = parse(&(HEAD.to_owned() + &three()));
    assert!(!format!("{config:?}").contains("sixteen"));
    for line in ["secret = hunter2hunter2hunter2", "secret = 'hunter2hunter2", "secret = ['hunter2hunter2']"]
    {
        let error = error(&format!("name = 'shop'\n{line}\n{}", three()));
        assert!(error.contains("line 2") && error.contains("secret"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn what_is_probably_not_meant_is_said() {
    let warnings = |text: &str| parse(&(HEAD.to_owned() + text)).warnings;
    assert_eq!(warnings(&three()), Vec::<String>::new());
    let one = warnings(&node("a", "x", 1));
    assert!(one.len() == 1 && one[0].contains("nothing is replicated"), "{one:?}");
    let two = warnings(&(node("a", "x", 1) + &node("b", "y", 2)));
    assert!(two.len() == 1 && two[0].contains("2 zones bear the loss of 0, as 1"), "{two:?}");
    let four = warnings(&(three() + &node("d", "w", 4)));
    assert!(four.len() == 1 && four[0].contains("4 zones bear the loss of 1, as 3"), "{four:?}");
    let idle = error(&(HEAD.to_owned() + &three() + &node("d", "x", 4)));
    assert!(idle.contains("zone 'x' begins with 2 nodes, and there are 1 partitions"), "{idle}");
    // One that will replace another is idle only for a while.
    assert_eq!(warnings(&(three() + &node("d", "x", 4) + "joins = true\n")), Vec::<String>::new());
}

#[test]
fn founders_that_were_replaced_may_leave_the_file() {
    let joined = |name: &str, zone: &str, number: u16| node(name, zone, number) + "joins = true\n";
    let without_a = node("b", "y", 2) + &node("c", "z", 3) + &joined("d", "x", 4);
    let config = parse(&(HEAD.to_owned() + "leaders = 'x'\n" + &without_a));
    assert_eq!(config.leaders, Leaders::Zone("x".to_owned()));
    assert_eq!(config.warnings, Vec::<String>::new());
    // In the end, all of them.
    let none_left = joined("d", "x", 4) + &joined("e", "y", 5) + &joined("f", "z", 6);
    let config = parse(&(HEAD.to_owned() + &none_left));
    assert_eq!((config.founders().count(), config.nodes.len()), (0, 3));
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[test]
fn the_secret_may_be_in_a_file_of_its_own_that_others_cannot_read() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("cluster.toml");
    let key = dir.path().join("key");
    std::fs::write(&path, format!("name = 's'\nsecret_file = 'key'\n{}", three())).expect("written");
    std::fs::write(&key, "sixteen letters!\n").expect("written");
    let set = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&key, permissions).expect("set");
    };
    set(0o600);
    let config = ClusterConfig::load(&path).expect("valid");
    assert_eq!(config.secret.as_bytes(), b"sixteen letters!");
    assert_eq!(config.warnings, Vec::<String>::new());
    set(0o644);
    let warnings = ClusterConfig::load(&path).expect("valid").warnings;
    assert!(
        warnings.len() == 1 && warnings[0].contains("chmod 600") && warnings[0].contains("key"),
        "{warnings:?}"
    );
}

#[test]
fn there_are_not_more_nodes_than_numbers() {
    let mut text = HEAD.to_owned();
    for number in 0..=NODES_MAX {
        let [high, low] = number.to_be_bytes();
        text += &node(&format!("n{number}"), "x", 1).replace("10.0.0.1", &format!("10.0.{high}.{low}"));
    }
    let error = error(&text);
    assert!(error.contains("1025 nodes, and at most 1024"), "{error}");
}

#[test]
fn addresses_are_a_host_and_a_port() {
    for (address, expected) in [
        ("127.0.0.1:7001", Some(("127.0.0.1", 7001))),
        ("node-1.example:65535", Some(("node-1.example", 65535))),
        ("[::1]:1", Some(("::1", 1))),
        ("::1:7001", None),
        ("[::1]", None),
        ("[host]:1", None),
        (":7001", None),
        ("host", None),
        ("host:", None),
        ("host:0", None),
        ("host:+1", None),
        ("host:65536", None),
        ("a b:1", None),
        ("redis://host:1", None),
    ] {
        assert_eq!(host_and_port(address), expected, "{address}");
    }
}
