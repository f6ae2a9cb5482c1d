//! `ordo serve` as a process: what it says when it can't start, and how it stops.

use crate::nodes::{PROGRAM, Server, ordo, word};
use rustix::process::Signal;
use server::client::{Answer, Client};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn ok() -> Answer {
    Answer::Text("OK".to_owned())
}

fn call(client: &mut Client, words: &[&str]) -> Answer {
    client.call(words).expect("a reply")
}

/// The number at a key; 0 if it is absent.
fn number(client: &mut Client, key: &str) -> u64 {
    match call(client, &["GET", key]) {
        Answer::Nil => 0,
        answer => answer.text("GET").expect("a text").parse().expect("a number"),
    }
}

fn refused(words: &[&str]) -> String {
    let Output { status, stderr, .. } = ordo(words);
    assert!(!status.success(), "{words:?} succeeded");
    String::from_utf8_lossy(&stderr).into_owned()
}

#[test]
fn what_cannot_be_served_is_refused_with_what_to_do() {
    let mut first = Server::new();
    let data = first.data();
    let path = word(&data);
    // No resolver is asked for a label of more than 63 letters.
    let nowhere = "nowhere".repeat(10);
    for (words, wants) in [
        (&["serve", "--prot", "1"][..], &["'prot'", "did you mean 'port'"][..]),
        (&["serve", "--port", "x"], &["command line: port", "from 0 to 65535"]),
        (&["serve", "--appendfsync", "never"], &["always, everysec, no"]),
        (&["serve", "--databases", "16"], &["databases: '16'", "one database", "leave the setting out"]),
        (&["serve", "/no/such/file.toml"], &["/no/such/file.toml", "cannot be read"]),
        (&["serve", "--bind", "0.0.0.0"], &["--requirepass", "--protected-mode no"]),
        (
            &["serve", "--bind", &nowhere, "--dir", path],
            &["bind", &nowhere, "does not resolve", "give an IPv4"],
        ),
        (&["serve", "--port", "0", "--dir", "/proc/nothing"], &["/proc/nothing"]),
    ] {
        let said = refused(words);
        for want in wants {
            assert!(said.contains(want), "{words:?} said {said}, without '{want}'");
        }
        assert!(said.matches("os error").count() <= 1, "{words:?} repeated a cause: {said}");
    }
    first.start(&[]);
    let port = first.port();
    let other = tempfile::tempdir().expect("a temporary directory");
    let said = refused(&["serve", "--port", port, "--dir", word(other.path())]);
    assert!(said.contains("the port is in use") && said.contains("--port"), "{said}");
    // Who starts the same again is told that, and not only that the port is in use.
    let said = refused(&["serve", "--port", port, "--dir", path]);
    assert!(said.contains("in use by another process, which holds its lock"), "{said}");
    let said = refused(&["serve", "--port", "0", "--dir", path]);
    assert!(said.contains(path), "{said}");
}

#[test]
fn help_is_on_standard_output() {
    let output = ordo(&["serve", "--help"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("--appendfsync") && text.contains("--maxclients"));
}

#[test]
fn the_version_is_the_same_everywhere() {
    let print = |words: &[&str]| {
        let output = ordo(words);
        assert!(output.status.success(), "{words:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let version = print(&["--version"]);
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    for word in ["--version", "-V", "-v"] {
        assert_eq!(print(&["serve", word]), version, "{word}");
    }
}

#[test]
fn the_help_says_what_each_command_is_and_guesses_only_what_is_near() {
    let output = ordo(&["--help"]);
    let said = String::from_utf8_lossy(&output.stdout);
    for want in
        ["Shows a cluster, and changes who is in it", "Runs whole nodes, clients, a network and faults"]
    {
        assert!(said.contains(want), "no '{want}' in {said}");
    }
    assert!(!said.contains("`ordo "), "{said}");
    let said = refused(&["nosuch"]);
    assert!(said.contains("'nosuch'") && !said.contains("bench"), "{said}");
    assert!(refused(&["srve"]).contains("'serve'"));
    let said = refused(&["bench", "engine"]);
    assert!(said.contains("serial|nocc|calvin|qstore|parspec|ssmr|sparkle"), "{said}");
    let said = refused(&["bench", "faults", "--rounds", "0"]);
    assert!(said.contains("give at least 1"), "{said}");
    let said = refused(&["bench", "faults", "--faults", "cut-link", "--network", "loopback"]);
    assert!(said.contains("--network namespaces"), "{said}");
    assert!(!said.contains("the nodes' data"), "{said}");
}

#[test]
fn a_file_of_settings_is_read() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("ordo.toml");
    std::fs::write(&file, "maxclients = 77\nrequirepass = 'from the file'\n").expect("written");
    let mut server = Server::new();
    server.start(&["--config", word(&file)]);
    let mut client = server.client();
    assert!(matches!(call(&mut client, &["PING"]), Answer::Error(_)));
    assert_eq!(call(&mut client, &["AUTH", "from the file"]), ok());
    let want = ["maxclients", "77"].map(|text| Answer::Text(text.to_owned()));
    assert_eq!(call(&mut client, &["CONFIG", "GET", "maxclients"]), Answer::List(want.into()));
}

#[test]
fn a_file_of_redis_is_taken_and_what_is_done_otherwise_is_told() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("redis.conf");
    let text = "maxclients 77\ndaemonize yes\nlogfile /var/log/redis.log\ndatabases 16\n\
                appendfsync everysec\nsave 900 1\nrequirepass \"from the file\"\nmaxmemory 100mb\n";
    std::fs::write(&file, text).expect("written");
    let mut server = Server::new();
    server.start(&["--config", word(&file)]);
    let mut client = server.client();
    assert_eq!(call(&mut client, &["AUTH", "from the file"]), ok());
    let want = ["maxmemory", "104857600"].map(|text| Answer::Text(text.to_owned()));
    assert_eq!(call(&mut client, &["CONFIG", "GET", "maxmemory"]), Answer::List(want.into()));
    let said = server.said();
    for want in [
        "redis.conf:2: daemonize yes: the server stays in the foreground",
        "redis.conf:3: logfile /var/log/redis.log: the log goes to standard error",
        "redis.conf:4: databases 16: Ordo has one database",
        "redis.conf:6: save 900 1:",
    ] {
        assert!(said.contains(want), "no '{want}' in {said}");
    }
    assert_eq!(call(&mut client, &["CONFIG", "SET", "timeout", "9"]), ok());
    assert_eq!(call(&mut client, &["CONFIG", "REWRITE"]), ok());
    let rewritten = std::fs::read_to_string(&file).expect("there");
    assert!(rewritten.starts_with("maxclients 77\ndaemonize yes\n"), "{rewritten}");
    assert!(rewritten.ends_with("\ntimeout 9\n"), "{rewritten}");
    std::fs::write(&file, "port 0\nreplicaof 10.0.0.1 6379\n").expect("written");
    let said = refused(&["serve", word(&file)]);
    assert!(said.contains("redis.conf:2: replicaof") && said.contains("docs/cluster.md"), "{said}");
}

#[test]
fn the_log_is_what_its_settings_say() {
    let mut server = Server::new();
    server.start(&[
        "--log-format",
        "json",
        "--loglevel",
        "warning",
        "--user",
        "eve on >pass ~* +@all -config",
    ]);
    let mut client = server.client();
    assert_eq!(call(&mut client, &["CONFIG", "SET", "requirepass", "quiet"]), ok());
    assert_eq!(call(&mut client, &["CONFIG", "SET", "audit-log", "yes"]), ok());
    assert_eq!(call(&mut client, &["CONFIG", "SET", "requirepass", "hidden"]), ok());
    assert_eq!(call(&mut client, &["MULTI"]), ok());
    assert_eq!(call(&mut client, &["FLUSHALL"]), Answer::Text("QUEUED".to_owned()));
    assert!(matches!(call(&mut client, &["EXEC"]), Answer::List(_)));
    assert_eq!(call(&mut client, &["SET", "k", "v"]), ok());
    assert!(matches!(call(&mut client, &["AUTH", "eve\n{}", "wrong"]), Answer::Error(_)));
    assert_eq!(call(&mut client, &["AUTH", "eve", "pass"]), ok());
    assert!(matches!(call(&mut client, &["CONFIG", "GET", "port"]), Answer::Error(_)));
    // Below its level, and in each line an object. (What else is said here is a warning.)
    let entries: Vec<serde_json::Value> = server.until("audited", || {
        let said = server.said();
        let entries = said.lines().map(|line| serde_json::from_str(line).expect("an object in each line"));
        let entries: Vec<serde_json::Value> =
            entries.filter(|entry: &serde_json::Value| entry["level"] != "WARN").collect();
        (entries.len() >= 4).then_some(entries)
    });
    let shown: Vec<[&str; 3]> = entries
        .iter()
        .map(|entry| ["audit", "user", "words"].map(|field| entry[field].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(
        shown,
        [
            ["command", "default", "CONFIG SET requirepass (redacted)"],
            ["command", "default", "FLUSHALL"],
            ["refused", "\"eve\\n{}\"", "auth AUTH"],
            ["refused", "eve", "command config|get"],
        ]
    );
    // And now everything does.
    let mut admin = server.client();
    assert_eq!(call(&mut admin, &["AUTH", "hidden"]), ok());
    assert_eq!(call(&mut admin, &["CONFIG", "SET", "loglevel", "debug", "audit-log", "no"]), ok());
    assert_eq!(call(&mut admin, &["SAVE"]), ok());
    server.until("it says more", || server.said().contains("\"INFO\",\"message\"").then_some(()));
}

#[test]
fn a_port_that_the_system_chooses_is_said() {
    let mut server = Server::new();
    let words = ["serve", "--port", "0", "--bind", "127.0.0.1", "--dir"];
    server.launch_by(Command::new(PROGRAM).args(words).arg(server.data()));
    server.address = server.until("serving", || {
        let said = server.said();
        let (address, _) = said.split_once("serving ")?.1.split_once(',')?;
        Some(address.to_owned())
    });
    assert_eq!(server.call(&["SET", "k", "v"]), ok());
}

#[test]
fn a_server_whose_output_nobody_reads_goes_on() {
    let mut server = Server::new();
    let pipe = server.data().with_file_name("pipe");
    // The reader of the pipe ends at once.
    let script = "mkfifo \"$0\" && { head -c 0 \"$0\" & exec \"$@\" 2>\"$0\"; }";
    let mut command = Command::new("sh");
    command.args(["-c", script, word(&pipe), PROGRAM, "serve", "--bind", "127.0.0.1"]);
    command.args(["--port", server.port(), "--dir"]).arg(server.data());
    server.launch_by(&mut command);
    server.wait_until_up();
    assert_eq!(server.call(&["SAVE"]), ok());
    server.process().signal(Signal::TERM).expect("it runs");
    assert_eq!(server.ended().code(), Some(0));
    assert_eq!(server.said(), "");
}

/// The files and directories below a directory, itself included, that others than their owner may use in any
/// way.
fn open_to_others(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let inner = entries.map(|entry| entry.expect("an entry").path());
    let mut open: Vec<PathBuf> = inner
        .flat_map(|path| match path.is_dir() {
            true => open_to_others(&path),
            false => vec![path],
        })
        .chain([dir.to_owned()])
        .collect();
    open.retain(|path| {
        let mode = path.metadata().map_or(0, |found| found.permissions().mode());
        mode & 0o077 != 0
    });
    open
}

#[test]
fn what_a_server_creates_is_for_its_user_alone_whatever_the_umask_is() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("all/of/it");
    let settings = dir.path().join("ordo.toml");
    std::fs::write(&settings, "requirepass = 'from the file'\n").expect("written");
    std::fs::set_permissions(&settings, Permissions::from_mode(0o600)).expect("ours");
    let mut command = Command::new("sh");
    let mut server = Server::new();
    command.args(["-c", "umask 0 && exec \"$0\" \"$@\"", PROGRAM, "serve"]);
    command.arg(&settings).args(["--port", server.port(), "--bind", "127.0.0.1", "--dir"]).arg(&data);
    server.launch_by(&mut command);
    server.wait_until_up();
    let mut client = server.client();
    assert_eq!(call(&mut client, &["AUTH", "from the file"]), ok());
    for words in [
        &["SET", "k", "v"][..],
        &["SAVE"],
        &["CONFIG", "SET", "requirepass", "another", "timeout", "9"],
        &["CONFIG", "REWRITE"],
        &["SAVE"],
    ] {
        assert_eq!(call(&mut client, words), ok(), "{words:?}");
    }
    assert_eq!(open_to_others(&dir.path().join("all")), Vec::<PathBuf>::new());
    let mode = settings.metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let rewritten = std::fs::read_to_string(&settings).expect("there");
    assert!(rewritten.contains("requirepass = \"#") && !rewritten.contains("another"), "{rewritten}");
}

#[test]
fn signals_stop_the_server_in_good_order() {
    let mut server = Server::new();
    for (round, signal) in [Signal::TERM, Signal::INT].into_iter().enumerate() {
        // Even without any fsync on the way, a stop brings the log to the disk.
        server.start(&["--appendfsync", "no"]);
        let mut client = server.client();
        assert_eq!(number(&mut client, "n"), round as u64 * 100);
        for _ in 0..100 {
            call(&mut client, &["INCR", "n"]);
        }
        server.process().signal(signal).expect("it runs");
        assert_eq!(server.ended().code(), Some(0), "{signal:?}");
    }
    server.start(&[]);
    assert_eq!(number(&mut server.client(), "n"), 200);
}

#[test]
fn a_small_key_costs_less_than_110_bytes_when_nobody_is_at_work_on_it() {
    const KEYS: u64 = 100_000;
    let mut server = Server::new();
    server.start(&["--appendfsync", "no"]);
    let used = || {
        let info = server.call(&["INFO", "memory"]).text("INFO").expect("a text");
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        line.and_then(|number| number.parse::<u64>().ok()).expect("a number")
    };
    let before = used();
    // The second time there is something to overwrite.
    for first in (0..2 * KEYS).step_by(1_000).map(|first| first % KEYS) {
        let words: Vec<String> = (first..first + 1_000).map(|number| format!("{number:016}")).collect();
        let pairs = words.iter().flat_map(|word| [word.as_str(), word.as_str()]);
        let command: Vec<&str> = std::iter::once("MSET").chain(pairs).collect();
        assert_eq!(server.call(&command), ok());
    }
    // Versions go once no reader can ask for them.
    server.until("packed", || (used().saturating_sub(before) < 110 * KEYS).then_some(()));
    assert_eq!(server.call(&["GET", "0000000000000007"]), Answer::Text("0000000000000007".to_owned()));
}
