//! Backups of real servers and clusters, and what is restored of them.
#![allow(clippy::disallowed_methods, reason = "writers and a server of buckets are threads")]

use crate::nodes::{Build, Cluster, PATIENCE, PROGRAM, Server, ZONES, ordo, try_ordo, word};
use crate::transfers::{ACCOUNTS, TOTAL, Transfers, call, text};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::process::Signal;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use server::client::{Answer, Client};
use server::launcher::{ServerProcess, poll};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything that a database can hold, beside accounts.
fn fill(client: &mut Client) {
    for account in 0..ACCOUNTS {
        call(client, &format!("SET account:{account} {}", TOTAL / ACCOUNTS as i64));
    }
    let big = "x".repeat(100_000);
    for line in [
        "HSET hash one 1 two 2",
        "RPUSH list a b c",
        "SADD set a b c",
        "ZADD sorted 1.5 a 2 b",
        "XADD stream 5-1 field value",
        "XADD stream 6-1 field value",
        "XGROUP CREATE stream readers 0",
        "XREADGROUP GROUP readers one COUNT 1 STREAMS stream >",
        "SETBIT bits 100 1",
        "PFADD sketch a b c",
        "GEOADD places 13 38 palermo",
        "SET short-lived value EX 100000",
        "SCRIPT LOAD return(7)",
        "ACL SETUSER bob on >secret ~data:* +get",
        "ORDO.IDEMPOTENT once INCR counted",
        &format!("SET big {big}"),
    ] {
        call(client, line);
    }
    let library = "#!lua name=lib\nredis.register_function('seven', function() return 7 end)";
    text(client.call(&["FUNCTION", "LOAD", library]).expect("an answer"));
}

/// All that a database holds, in words.
fn picture(client: &mut Client) -> Vec<String> {
    let Ok(Answer::List(keys)) = client.call(&["KEYS", "*"]) else { panic!("no keys") };
    let mut keys: Vec<String> = keys.into_iter().map(text).collect();
    keys.sort();
    let mut all = Vec::new();
    for key in keys {
        let kind = call(client, &format!("TYPE {key}"));
        let line = match kind.as_str() {
            "string" => format!("GET {key}"),
            "hash" => format!("HGETALL {key}"),
            "list" => format!("LRANGE {key} 0 -1"),
            "set" => format!("SMEMBERS {key}"),
            "zset" => format!("ZRANGE {key} 0 -1 WITHSCORES"),
            "stream" => format!("XINFO STREAM {key} FULL"),
            other => panic!("{key} is of type {other}"),
        };
        let held = call(client, &line);
        let held = match kind.as_str() {
            // Two restarts may have it in two orders.
            "set" => held.split(' ').collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" "),
            // A consumer is seen at a time, idle for some more.
            "stream" => call(client, &format!("XRANGE {key} - +")) + &call(client, "XPENDING stream readers"),
            _ => held,
        };
        all.push(format!("{key} {kind} {held} {}", call(client, &format!("PEXPIRETIME {key}"))));
    }
    all.push(call(client, "ACL LIST"));
    all.push(call(client, "FUNCTION LIST"));
    all.push(call(client, "FCALL seven 0"));
    all.push(call(client, "EVALSHA bc70ae583496ef68242126e5f723b4224435af02 0"));
    // Its reply is kept: it does not count again.
    all.push(call(client, "ORDO.IDEMPOTENT once INCR counted"));
    all
}

/// Holds what accounts have against how many transfers there were. Gives that number.
fn check_accounts(client: &mut Client) -> u64 {
    let sum: i64 = (0..ACCOUNTS)
        .map(|account| call(client, &format!("GET account:{account}")).parse::<i64>().expect("a number"))
        .sum();
    assert_eq!(sum, TOTAL);
    let steps: u64 = call(client, "GET steps").parse().expect("a number");
    assert_eq!(call(client, "LLEN history"), steps.to_string());
    assert_eq!(call(client, "LINDEX history -1"), steps.to_string());
    steps
}

/// A place for a backup, in files.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { dir: tempfile::tempdir().expect("a directory") }
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn url(&self) -> String {
        format!("file://{}", word(&self.store()))
    }

    /// The names of all objects.
    fn objects(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut dirs = vec![self.store()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten() {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => dirs.push(path),
                    false => found.push(path),
                }
            }
        }
        found.sort();
        found
    }

    fn logs(&self) -> Vec<PathBuf> {
        let is_log = |path: &PathBuf| word(path).contains("/log-");
        self.objects().into_iter().filter(is_log).collect()
    }

    /// Starts a backup that goes on until it is stopped.
    fn follow(&self, addresses: &[String]) -> ServerProcess {
        self.follow_with(&[], addresses)
    }

    fn follow_with(&self, words: &[&str], addresses: &[String]) -> ServerProcess {
        let mut command = Command::new(PROGRAM);
        command.args(["backup", "--max-loss", "0.05", "--tell-every", "1", "--to", &self.url()]);
        command.args(["--address", &addresses.join(",")]).args(words);
        let log = self.dir.path().join("log");
        ServerProcess::start("the backup", &mut command, &log).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits until so many more objects of the log are there.
    fn grows(&self, process: &ServerProcess, more: usize) {
        let before = self.logs().len();
        let grown = poll(PATIENCE, || (self.logs().len() >= before + more).then_some(()));
        grown.unwrap_or_else(|| panic!("it does not grow: {}", process.said()));
    }

    fn once(&self, addresses: &[String]) {
        done(&["backup", "--once", "--to", &self.url(), "--address", &addresses.join(",")]);
    }

    fn verify(&self) -> (bool, String) {
        try_ordo(&["backup", "verify", &self.url()])
    }

    /// The first and the last epoch of the last chain.
    fn epochs(&self) -> (u64, u64) {
        let said = done(&["backup", "list", &self.url()]);
        let line = said.lines().rfind(|line| line.contains(": epochs ")).expect("a chain");
        let words: Vec<&str> = line.split([' ', ',']).collect();
        (words[3].parse().expect("an epoch"), words[5].parse().expect("an epoch"))
    }
}

fn done(words: &[&str]) -> String {
    let (done, said) = try_ordo(words);
    assert!(done, "{words:?}: {said}");
    said
}

/// The content digest at the end of what `ordo` said.
fn digest(said: &str) -> &str {
    said.trim().rsplit(' ').next().expect("a digest")
}

/// A server by itself on what was restored.
fn restored(url: &str, at: &str) -> (Server, String) {
    let mut server = Server::new();
    let said = done(&["restore", "--from", url, "--at", at, "--dir", word(&server.data())]);
    server.start(&["--appendfsync", "no"]);
    (server, digest(&said).to_owned())
}

#[test]
fn a_server_is_restored_as_it_was_at_any_epoch_though_the_backup_and_the_server_were_killed() {
    let (mut server, place) = (Server::new(), Place::new());
    let words = ["--appendfsync", "no", "--checkpoint-log-size", "0"];
    server.start(&words);
    fill(&mut server.client());
    let addresses = vec![server.address.clone()];
    let transfers = Transfers::start(addresses.clone());
    transfers.go_on(20);
    for round in 0..4 {
        let mut backup = place.follow(&addresses);
        place.grows(&backup, 2 + round);
        if round == 2 {
            server.kill();
            server.start(&words);
            place.grows(&backup, 2);
        }
        backup.kill();
        transfers.go_on(20);
    }
    let mut backup = place.follow(&addresses);
    place.grows(&backup, 3);
    transfers.end();
    let steps = check_accounts(&mut server.client());
    backup.signal(Signal::TERM).expect("it runs");
    assert!(backup.wait(PATIENCE).expect("it ends").success(), "{}", backup.said());
    place.once(&addresses);

    let (sound, said) = place.verify();
    assert!(sound, "{said}");
    assert!(place.objects().iter().all(|path| word(path).contains("chain-000001/")), "{:?}", place.objects());
    let (first, last) = place.epochs();
    let (newest, found) = restored(&place.url(), "newest");
    assert_eq!(found, digest(&said));
    assert_eq!(check_accounts(&mut newest.client()), steps);
    assert_eq!(picture(&mut newest.client()), picture(&mut server.client()));
    // In the middle: a prefix, and all of it that is not newer.
    let middle = first + (last - first) / 2;
    let (then, _) = restored(&place.url(), &middle.to_string());
    let steps_then = check_accounts(&mut then.client());
    assert!(steps_then < steps, "{steps_then}");
    let (first_then, _) = restored(&place.url(), &first.to_string());
    assert!(check_accounts(&mut first_then.client()) < steps_then);
    // By time.
    let listed = done(&["backup", "list", &place.url()]);
    let time = listed.split(", ").nth(1).and_then(|times| times.split(' ').nth(2)).expect("a time");
    let (by_time, of_time) = restored(&place.url(), time);
    assert_eq!((check_accounts(&mut by_time.client()), of_time), (steps, found));
    // A restored server is one like any other: it can be started again, and backed up.
    let (mut again, second) = (by_time, Place::new());
    call(&mut again.client(), "INCR steps");
    again.kill();
    again.start(&words);
    assert_eq!(call(&mut again.client(), "GET steps"), (steps + 1).to_string());
    second.once(&[again.address.clone()]);
    assert!(second.verify().0);
}

#[test]
fn damage_and_gaps_are_noticed_wherever_they_are() {
    let (mut server, place) = (Server::new(), Place::new());
    server.start(&["--appendfsync", "no", "--checkpoint-log-size", "0"]);
    fill(&mut server.client());
    let addresses = vec![server.address.clone()];
    for round in 0..4 {
        call(&mut server.client(), &format!("SET round {round}"));
        place.once(&addresses);
    }
    assert!(place.verify().0);
    assert!(place.logs().len() >= 3, "{:?}", place.logs());
    let whole = place.objects();
    for path in &whole {
        let bytes = std::fs::read(path).expect("an object");
        for place_of_bit in [0, 9, bytes.len() / 2, bytes.len() - 1] {
            let mut damaged = bytes.clone();
            damaged[place_of_bit] ^= 4;
            std::fs::write(path, damaged).expect("written");
            let (sound, said) = place.verify();
            assert!(!sound && said.contains("damaged"), "{}: {said}", path.display());
        }
        std::fs::write(path, &bytes).expect("written");
    }
    for path in &whole {
        let is_progress = path.ends_with("progress.json");
        let is_manifest = !is_progress && word(path).ends_with(".json");
        let aside = place.dir.path().join("aside");
        std::fs::rename(path, &aside).expect("renamed");
        let (sound, said) = place.verify();
        assert!(!sound && said.contains("missing"), "{}: {said}", path.display());
        let name = word(path.strip_prefix(place.store()).expect("in the store"));
        if is_progress || is_manifest {
            assert!(said.contains(&format!("{name} is missing")), "{said}");
        }
        std::fs::rename(&aside, path).expect("renamed");
    }
    assert!(place.verify().0);
    // A backup goes on with a new checkpoint where the end of the last one cannot be read.
    let last = place.logs().pop().expect("a log");
    std::fs::write(&last, b"nothing").expect("written");
    place.once(&addresses);
    let (sound, said) = place.verify();
    assert!(!sound && said.contains("chain 2: whole and undamaged"), "{said}");
}

#[test]
fn a_directory_with_data_is_not_restored_into_and_a_moment_that_is_not_there_is_refused() {
    let (mut server, place) = (Server::new(), Place::new());
    server.start(&["--appendfsync", "no"]);
    call(&mut server.client(), "SET key value");
    place.once(&[server.address.clone()]);
    let restore = |at: &str, dir: &Path| {
        let (done, said) = try_ordo(&["restore", "--from", &place.url(), "--at", at, "--dir", word(dir)]);
        assert!(!done, "{said}");
        said
    };
    let said = restore("newest", &server.data());
    assert!(said.contains("is not empty"), "{said}");
    let new = place.dir.path().join("new");
    let said = restore("1000000", &new);
    assert!(said.contains("the backup ends with epoch"), "{said}");
    let slash = place.dir.path().join("new/");
    assert!(restore("1000000", &slash).contains("the backup ends with epoch"));
    let link = place.dir.path().join("link");
    std::os::unix::fs::symlink(place.dir.path(), &link).unwrap();
    assert!(restore("newest", &link).contains("is no directory"));
    assert!(restore("newest", Path::new("/proc")).contains("mount point"));
    let words = ["restore", "--from", &place.url(), "--chain", "7", "--dir", word(&new)];
    let (done, said) = try_ordo(&words);
    assert!(!done && said.contains("there is no chain 7"), "{said}");
    let said = restore("1970-01-01", &new);
    assert!(said.contains("is no moment") || said.contains("begins later"), "{said}");
    assert!(!new.exists());
}

#[test]
fn a_cluster_is_restored_into_other_numbers_of_nodes_and_partitions() {
    let mut cluster = Cluster::start(Build::own(&["--appendfsync", "no"]));
    let place = Place::new();
    fill(&mut cluster.open(0));
    let addresses = cluster.addresses();
    let transfers = Transfers::start(addresses.clone());
    transfers.go_on(20);
    let mut backup = place.follow(&addresses);
    place.grows(&backup, 3);
    // The backup goes on with the others.
    cluster.kill(0);
    transfers.go_on(10);
    place.grows(&backup, 3);
    cluster.run(0);
    cluster.status(0);
    transfers.go_on(10);
    transfers.end();
    let steps = check_accounts(&mut cluster.open(1));
    backup.kill();
    place.once(&addresses);
    let (sound, said) = place.verify();
    assert!(sound, "{said}");
    let (alone, found) = restored(&place.url(), "newest");
    assert_eq!(found, digest(&said));
    assert_eq!(check_accounts(&mut alone.client()), steps);
    assert_eq!(picture(&mut alone.client()), picture(&mut cluster.open(1)));
    // Two nodes of one zone and one of another one, and five partitions.
    for (zones, partitions) in [([ZONES[0], ZONES[0], ZONES[1]], 5), ([ZONES[0], ZONES[1], ZONES[2]], 1)] {
        let mut other = Cluster::prepare(&zones, partitions, Build::own(&["--appendfsync", "no"]));
        let restore = |cluster: &Cluster, number: usize| {
            let (data, description) = (cluster.data(number), cluster.file("cluster.toml"));
            let from = place.url();
            let words = ["restore", "--from", &from, "--dir", word(&data), "--cluster", word(&description)];
            let at = place.epochs().1.to_string();
            let node = ["--node", &cluster.nodes[number].name];
            let (is_done, said) = try_ordo(&[&words[..], &node].concat());
            assert!(!is_done && said.contains("one epoch's number"), "{said}");
            done(&[&words[..], &node, &["--at", &at]].concat())
        };
        for number in 0..other.nodes.len() {
            assert_eq!(digest(&restore(&other, number)), found);
        }
        other.run_all();
        // They serve once they have heard of each other.
        for number in 0..other.nodes.len() {
            other.call(number, &["GET", "account:0"]);
        }
        assert_eq!(check_accounts(&mut other.open(2)), steps);
        assert_eq!(picture(&mut other.open(2)), picture(&mut cluster.open(1)));
        // It goes on as any cluster does.
        let more = Transfers::start(other.addresses());
        more.go_on(3);
        more.end();
        // A node that is restored again has forgotten what it has promised since.
        other.kill(2);
        std::fs::remove_dir_all(other.data(2)).unwrap();
        restore(&other, 2);
        other.run(2);
        assert_eq!(other.ended(2).code(), Some(78), "{}", other.said(2));
        assert!(other.said(2).contains("its disk was lost"), "{}", other.said(2));
    }
}

/// A server of buckets, which are the directories in `root`, until the process ends. Gives its address.
fn serve_buckets(root: &Path) -> String {
    let mut builder = S3ServiceBuilder::new(FileSystem::new(root).expect("a directory"));
    builder.set_auth(SimpleAuth::from_single("key", "secret"));
    let service = builder.build();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let serve = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone());
            tokio::spawn(async move { _ = connection.await });
        }
    };
    std::thread::spawn(move || runtime.block_on(serve));
    address
}

#[test]
fn a_bucket_holds_a_backup() {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(root.path().join("bucket")).expect("a bucket");
    let endpoint = format!("http://{}", serve_buckets(root.path()));
    let run = |words: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(words).env("AWS_ENDPOINT", &endpoint).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_REGION", "us-east-1").env("AWS_ACCESS_KEY_ID", "key");
        command.env("AWS_SECRET_ACCESS_KEY", "secret").env_remove("RUST_LOG");
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{words:?}: {said}");
        said
    };
    let mut server = Server::new();
    server.start(&["--appendfsync", "no", "--checkpoint-log-size", "0"]);
    fill(&mut server.client());
    let url = "s3://bucket/some/where";
    for round in 0..3 {
        call(&mut server.client(), &format!("SET round {round}"));
        run(&["backup", "--once", "--to", url, "--address", &server.address]);
    }
    let said = run(&["backup", "verify", url]);
    assert!(said.contains("chain 1: whole and undamaged"), "{said}");
    let mut restored = Server::new();
    run(&["restore", "--from", url, "--dir", word(&restored.data())]);
    restored.start(&["--appendfsync", "no"]);
    assert_eq!(picture(&mut restored.client()), picture(&mut server.client()));
}

#[test]
fn a_backup_is_throttled_and_goes_on_in_the_middle_of_a_checkpoint() {
    let help = ordo(&["backup", "--help"]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for flag in ["--to", "--once", "--max-loss", "--max-bytes-per-second", "verify", "list"] {
        assert!(help.contains(flag), "{help}");
    }
    let (mut server, place) = (Server::new(), Place::new());
    server.start(&["--appendfsync", "no", "--checkpoint-log-size", "0"]);
    let big = "x".repeat(500_000);
    for number in 0..4 {
        call(&mut server.client(), &format!("SET big:{number} {big}"));
    }
    let addresses = vec![server.address.clone()];
    let began = std::time::Instant::now();
    let mut backup = place.follow_with(&["--max-bytes-per-second", "400000"], &addresses);
    let parts = || place.objects().into_iter().filter(|path| word(path).contains("/p00000-")).count();
    poll(PATIENCE, || (parts() >= 5).then_some(())).unwrap_or_else(|| panic!("{}", backup.said()));
    // Four parts of 200,000 bytes are paid for.
    assert!(began.elapsed().as_secs_f64() > 1.5, "{:?}", began.elapsed());
    backup.kill();
    assert!(!place.verify().0, "its checkpoint is not complete");
    // The parts that are there are not copied again.
    place.once(&addresses);
    assert!(place.objects().iter().all(|path| word(path).contains("chain-000001/")), "{:?}", place.objects());
    assert!(place.verify().0);
}
