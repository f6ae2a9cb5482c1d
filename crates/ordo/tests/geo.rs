//! Processes of sites in two regions that commit alone and tell each other afterwards, as clients of Redis
//! use them.

use rustix::process::Signal;
use server::client::{Answer, Client, ClientError};
use server::launcher::{HOST, ServerProcess, free_address, poll};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(90);
/// No client waits longer for a reply: it is more than `request_timeout_ms`.
const REPLY_MAX: Duration = Duration::from_secs(30);
const SITES: usize = 6;

struct Site {
    address: String,
    process: Option<ServerProcess>,
}

/// Six sites: the first three in one region, the others in another one.
struct Cluster {
    dir: tempfile::TempDir,
    sites: Vec<Site>,
}

impl Cluster {
    /// All sites have all partitions.
    fn start(keys: &str) -> Cluster {
        Cluster::with_partitions(&format!("replicas = {SITES}\n{keys}"), |_| "")
    }

    /// `partitions` has a line for the table of each site.
    fn with_partitions(keys: &str, partitions: impl Fn(usize) -> &'static str) -> Cluster {
        let dir = tempfile::tempdir().expect("a directory");
        let mut text = format!(
            "name = \"geo\"\nsecret = \"sixteen letters!\"\nprotocol = \"pcsi\"\npartitions = 4\n\
             request_timeout_ms = 8000\npropagation_ms = 10\n{keys}\n"
        );
        let mut sites = Vec::new();
        for place in 0..SITES {
            let (peers, clients) = (free_address().expect("a port"), free_address().expect("a port"));
            let (number, region) = (place + 1, ["west", "east"][place / 3]);
            let _ = write!(
                text,
                "[[site]]\nname = \"s{number}\"\nregion = \"{region}\"\npeer_address = \"{peers}\"\n\
                 client_address = \"{clients}\"\n{}\n",
                partitions(place)
            );
            sites.push(Site { address: clients, process: None });
        }
        std::fs::write(dir.path().join("cluster.toml"), text).expect("written");
        let mut cluster = Cluster { dir, sites };
        (0..SITES).for_each(|place| cluster.launch(place));
        (0..SITES).for_each(|place| cluster.wait_until_up(place));
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn launch(&mut self, place: usize) {
        let name = format!("s{}", place + 1);
        let mut command = Command::new(env!("CARGO_BIN_EXE_ordo"));
        command.args(["serve", "--appendfsync", "always", "--bind", HOST, "--node", &name, "--cluster"]);
        command.arg(self.path("cluster.toml")).arg("--dir").arg(self.path(&name)).env_remove("RUST_LOG");
        let process = ServerProcess::start(&name, &mut command, &self.path(&format!("{name}.log")));
        self.sites[place].process = Some(process.unwrap_or_else(|error| panic!("{error}")));
    }

    fn wait_until_up(&mut self, place: usize) {
        let Site { address, process } = &mut self.sites[place];
        let process = process.as_mut().expect("it was started");
        process.wait_until_up(address, PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    }

    fn process(&mut self, place: usize) -> &mut ServerProcess {
        self.sites[place].process.as_mut().expect("it was started")
    }

    fn signal(&mut self, place: usize, signal: Signal) {
        self.process(place).signal(signal).expect("it runs");
    }

    fn client(&self, place: usize) -> Client {
        Client::open(&self.sites[place].address, REPLY_MAX).expect("a connection")
    }

    fn addresses(&self) -> Vec<String> {
        self.sites.iter().map(|site| site.address.clone()).collect()
    }

    fn said(&self) -> String {
        let said = self.sites.iter().filter_map(|site| Some(site.process.as_ref()?.last_said()));
        said.collect::<Vec<_>>().join("\n")
    }

    /// Waits until a command has the same answer at all sites.
    fn wait_until_same(&self, words: &[&str], is_it: impl Fn(&Answer) -> bool) -> Answer {
        let mut clients: Vec<Client> = (0..SITES).map(|place| self.client(place)).collect();
        let same = || {
            let answers: Vec<Answer> = clients.iter_mut().map(|client| call(client, words)).collect();
            let is_same = answers.iter().all(|answer| *answer == answers[0]) && is_it(&answers[0]);
            is_same.then(|| answers[0].clone())
        };
        poll(PATIENCE, same).unwrap_or_else(|| panic!("{words:?}: the sites differ\n{}", self.said()))
    }

    fn admin(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ordo"));
        command.args(["admin", "--address", &self.sites[0].address]).args(words);
        let output = command.output().expect("it runs");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.code(), said.concat())
    }
}

/// Whether nothing was changed, so that the command may be sent again.
fn may_try_again(text: &str) -> bool {
    text.starts_with("CONFLICT") || text.contains("nothing was changed")
}

/// The answer to a command, which is sent again while nothing comes of it.
fn call(client: &mut Client, words: &[&str]) -> Answer {
    let answered = || {
        let answer = client.call(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let is_late = matches!(&answer, Answer::Error(text) if may_try_again(text));
        (!is_late).then_some(answer)
    };
    poll(PATIENCE, answered).unwrap_or_else(|| panic!("{words:?}: nothing comes of it"))
}

fn text(text: &str) -> Answer {
    Answer::Text(text.to_owned())
}

fn list(texts: &[&str]) -> Answer {
    Answer::List(texts.iter().map(|one| text(one)).collect())
}

fn ok() -> Answer {
    text("OK")
}

fn error(client: &mut Client, words: &[&str]) -> String {
    match call(client, words) {
        Answer::Error(text) => text,
        other => panic!("{words:?}: {other:?}"),
    }
}

#[test]
fn commands_blocks_and_scripts_are_transactions_at_every_site() {
    let cluster = Cluster::start("");
    let (mut here, mut there) = (cluster.client(0), cluster.client(SITES - 1));
    for (words, answer) in [
        (&["MSET", "a", "1", "b", "2", "c", "3", "d", "4"][..], ok()),
        (&["MGET", "d", "c", "b", "a"], list(&["4", "3", "2", "1"])),
        (&["RPUSH", "list", "x", "y"], text("2")),
        (&["LRANGE", "list", "0", "-1"], list(&["x", "y"])),
        (&["HSET", "hash", "field", "value"], text("1")),
        (&["SET", "brief", "1", "PX", "3600000"], ok()),
        (&["PEXPIREAT", "brief", "1"], text("1")),
        (&["GET", "brief"], Answer::Nil),
        (
            &["EVAL", "redis.call('INCRBY', KEYS[1], 5) return redis.call('GET', KEYS[2])", "2", "a", "b"],
            text("2"),
        ),
        (&["DEL", "b", "none"], text("1")),
        (&["ACL", "SETUSER", "reader", "on", ">password", "~*", "+get"], ok()),
    ] {
        assert_eq!(call(&mut here, words), answer, "{words:?}");
        // A connection reads what it has written.
        if words[0] == "MSET" {
            assert_eq!(call(&mut here, &["GET", "a"]), text("1"));
        }
    }
    cluster.wait_until_same(&["MGET", "a", "c", "d"], |answer| *answer == list(&["6", "3", "4"]));
    let mut knows = || (call(&mut there, &["AUTH", "reader", "password"]) == ok()).then_some(());
    poll(PATIENCE, &mut knows).expect("the other site hears of the user");
    let mut there = cluster.client(SITES - 1);
    // A block, and a WATCH that another site's client breaks.
    for words in [&["MULTI"][..], &["INCR", "c"], &["INCR", "d"]] {
        call(&mut here, words);
    }
    assert_eq!(call(&mut here, &["EXEC"]), list(&["4", "5"]));
    cluster.wait_until_same(&["GET", "c"], |answer| *answer == text("4"));
    assert_eq!(call(&mut here, &["WATCH", "c"]), ok());
    assert_eq!(call(&mut there, &["INCR", "c"]), text("5"));
    cluster.wait_until_same(&["GET", "c"], |answer| *answer == text("5"));
    call(&mut here, &["MULTI"]);
    call(&mut here, &["SET", "c", "9"]);
    assert_eq!(call(&mut here, &["EXEC"]), Answer::Nil);
    // Of two transactions that their clients hold open at different sites, one writes the key.
    for client in [&mut here, &mut there] {
        assert_eq!(call(client, &["ORDO.BEGIN"]), ok());
        assert_eq!(call(client, &["GET", "c"]), text("5"));
        assert_eq!(call(client, &["INCR", "c"]), text("6"));
    }
    let commits = [&mut here, &mut there].map(|client| client.call(&["ORDO.COMMIT"]).expect("a reply"));
    let committed = commits.iter().filter(|answer| **answer == ok()).count();
    assert_eq!(committed, 1, "{commits:?}");
    let is_conflict = |answer: &Answer| matches!(answer, Answer::Error(text) if text.starts_with("CONFLICT"));
    assert!(commits.iter().any(is_conflict), "{commits:?}");
    cluster.wait_until_same(&["GET", "c"], |answer| *answer == text("6"));
    for words in [&["KEYS", "*"][..], &["FLUSHALL"], &["BLPOP", "none", "0"], &["PUBLISH", "channel", "text"]]
    {
        let error = error(&mut here, words);
        assert!(error.contains("is not served with protocol = \"pcsi\""), "{words:?}: {error}");
    }
    // Keys that have expired are removed, once, and the number of keys is the same everywhere.
    cluster.wait_until_same(&["DBSIZE"], |answer| *answer == text("5"));
    let Answer::Text(info) = call(&mut here, &["INFO", "geo"]) else { panic!("no INFO") };
    for line in ["sites:6", "sites_to_write_min:1", "incarnation:0", "site_s6:linked=1,fenced=0,"] {
        assert!(info.lines().any(|found| found.starts_with(line)), "{line}: {info}");
    }
    let all_is_well = || (cluster.admin(&["status"]).0 == Some(0)).then_some(());
    poll(PATIENCE, all_is_well).unwrap_or_else(|| panic!("{:?}", cluster.admin(&["status"])));
    let (_, said) = cluster.admin(&["status"]);
    assert!(said.starts_with("OK: 6 sites") && said.contains("lacked by"), "{said}");
}

/// Adds to a shared counter, and leaves a mark of its own.
const INCREMENT: &str = "redis.call('SET', KEYS[2], 1) return redis.call('INCR', KEYS[1])";

/// What has become of an increment.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Done,
    Nothing,
    Unknown,
}

/// The marks of a client's increments, with their ends.
type Known = Vec<(String, End)>;

/// Increments at one site, also after it was killed, until told to stop.
fn increment(address: &str, me: usize, stop: &AtomicBool, done: &AtomicU64) -> Known {
    let mut known = Known::new();
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut client) = Client::open(address, REPLY_MAX) else { continue };
        while !stop.load(Ordering::Relaxed) {
            let mark = format!("mark:{me}:{}", known.len());
            let end = match client.call(&["EVAL", INCREMENT, "2", "counter", &mark]) {
                Ok(Answer::Error(text)) if text.starts_with("LOADING") => break,
                Ok(Answer::Error(text)) if may_try_again(&text) => End::Nothing,
                Ok(Answer::Error(text)) if text.contains("nobody knows") => End::Unknown,
                Ok(Answer::Error(text)) => panic!("{text}"),
                Ok(_) => End::Done,
                Err(ClientError::Lost { .. }) => {
                    known.push((mark, End::Unknown));
                    break;
                }
                Err(error) => panic!("{error}"),
            };
            done.fetch_add(u64::from(end == End::Done), Ordering::Relaxed);
            known.push((mark, end));
        }
    }
    known
}

/// How many increments have left their marks. Those whose end is known have, or have not.
fn count_marks(client: &mut Client, known: &Known) -> u64 {
    let mut count = 0;
    for (mark, end) in known {
        let is_there = call(client, &["GET", mark]) == text("1");
        count += u64::from(is_there);
        assert!(*end == End::Unknown || is_there == (*end == End::Done), "{mark}: {end:?}");
    }
    count
}

#[test]
fn increments_at_all_sites_add_up_when_sites_are_killed() {
    add_up_when_sites_are_killed(Cluster::start("sites_to_write_min = 2"));
}

/// Each partition is at three of the six sites, so each site increments and marks keys that it does not have.
#[test]
fn increments_of_keys_that_sites_lack_add_up_when_sites_are_killed() {
    let cluster = Cluster::with_partitions("sites_to_write_min = 2", |_| "");
    let cluster = add_up_when_sites_are_killed(cluster);
    let reads = (0..SITES).map(|place| info(&cluster, place, "remote_reads"));
    assert!(reads.sum::<u64>() > 0, "no site has read at another one");
    let no_number_is_out = || {
        let mut out = (0..SITES).map(|place| info(&cluster, place, "granted_numbers_out"));
        out.all(|count| count == 0).then_some(())
    };
    poll(PATIENCE, no_number_is_out).expect("each number that a site has granted is counted");
}

/// A number of INFO's section on sites.
fn info(cluster: &Cluster, place: usize, name: &str) -> u64 {
    let Answer::Text(info) = call(&mut cluster.client(place), &["INFO", "geo"]) else { panic!("no INFO") };
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = value.unwrap_or_else(|| panic!("no {name}: {info}"));
    value.trim().parse().unwrap_or_else(|_| panic!("{name} is {value}"))
}

fn add_up_when_sites_are_killed(mut cluster: Cluster) -> Cluster {
    let addresses = cluster.addresses();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let known = std::thread::scope(|scope| {
        let (stop, done) = (&stop, &done);
        let clients = addresses.iter().enumerate();
        let clients: Vec<_> =
            clients.map(|(me, address)| scope.spawn(move || increment(address, me, stop, done))).collect();
        let wait_for_more = |what: &str, cluster: &Cluster| {
            let before = done.load(Ordering::Relaxed);
            let more = || (done.load(Ordering::Relaxed) >= before + 20).then_some(());
            if poll(PATIENCE, more).is_none() {
                stop.store(true, Ordering::Relaxed);
                panic!("no increments {what}\n{}", cluster.said());
            }
        };
        wait_for_more("at first", &cluster);
        for place in [1, 4] {
            cluster.process(place).kill();
            cluster.launch(place);
            cluster.wait_until_up(place);
            wait_for_more(&format!("since s{} is back", place + 1), &cluster);
        }
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("it ends")).collect::<Vec<Known>>()
    });
    // All that was acknowledged arrives everywhere, and nothing else but what nobody knows of.
    let last: Vec<&str> = known
        .iter()
        .filter_map(|known| known.iter().rfind(|(_, end)| *end == End::Done))
        .map(|(mark, _)| mark.as_str())
        .collect();
    let words: Vec<&str> = ["MGET", "counter"].into_iter().chain(last.iter().copied()).collect();
    cluster.wait_until_same(
        &words,
        |answer| matches!(answer, Answer::List(values) if !values.contains(&Answer::Nil)),
    );
    for place in [0, SITES - 1] {
        let mut client = cluster.client(place);
        let counts: Vec<u64> = known.iter().map(|known| count_marks(&mut client, known)).collect();
        let sum = counts.iter().sum::<u64>().to_string();
        assert_eq!(call(&mut client, &["GET", "counter"]), text(&sum), "at s{}", place + 1);
    }
    let value = cluster.wait_until_same(&["GET", "counter"], |_| true);
    assert!(value != Answer::Nil);
    cluster
}

#[test]
fn regions_go_on_after_one_of_them_was_frozen() {
    let mut cluster = Cluster::start("");
    let mut client = cluster.client(0);
    let keys: Vec<String> = (0..24).map(|number| format!("key:{number}")).collect();
    for key in &keys {
        assert_eq!(call(&mut client, &["SET", key, "0"]), ok());
    }
    cluster.wait_until_same(&["GET", &keys[23]], |answer| *answer == text("0"));
    (3..SITES).for_each(|place| cluster.signal(place, Signal::STOP));
    // Keys that the frozen sites resolve cannot be written, and nobody waits for ever; the others can.
    let (mut written, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    for key in &keys {
        match client.call(&["INCR", key]).expect("a reply in time") {
            Answer::Text(_) => drop(written.insert(key.clone())),
            // The sites of the region that run may be too busy to answer in time.
            Answer::Error(text) if text.starts_with("ORDOUNKNOWN") => drop(unknown.insert(key.clone())),
            Answer::Error(text) => assert!(text.starts_with("CLUSTERDOWN"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(!written.is_empty() && written.len() < keys.len(), "{written:?}");
    let mut neighbour = cluster.client(2);
    let sees_all = || {
        let mut all = written.iter().map(|key| call(&mut neighbour, &["GET", key]) == text("1"));
        all.all(|sees| sees).then_some(())
    };
    poll(PATIENCE, sees_all).expect("the rest of the region hears of it");
    (3..SITES).for_each(|place| cluster.signal(place, Signal::CONT));
    for key in &keys {
        let value = if written.contains(key) { "1" } else { "0" };
        let is_right =
            |answer: &Answer| *answer == text(value) || unknown.contains(key) && *answer == text("1");
        cluster.wait_until_same(&["GET", key], is_right);
    }
    for (place, key) in keys.iter().enumerate() {
        assert_eq!(call(&mut cluster.client(place % SITES), &["SET", key, "done"]), ok());
    }
    for key in &keys {
        cluster.wait_until_same(&["GET", key], |answer| *answer == text("done"));
    }
}

#[test]
fn what_follows_a_write_is_seen_nowhere_without_it() {
    let cluster = Cluster::start("");
    const ROUNDS: u64 = 60;
    let (addresses, stop) = (cluster.addresses(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let stop = &stop;
        // Two sites of the other region look all the time.
        let watchers = [&addresses[2], &addresses[5]].map(|address| {
            scope.spawn(move || {
                let mut client = Client::open(address, REPLY_MAX).expect("a connection");
                let (mut looks, mut highest) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    let Answer::List(values) = call(&mut client, &["MGET", "effect", "cause"]) else {
                        panic!("no list")
                    };
                    let number = |value: &Answer| match value {
                        Answer::Text(text) => text.parse::<u64>().expect("a number"),
                        _ => 0,
                    };
                    let (effect, cause) = (number(&values[0]), number(&values[1]));
                    assert!(cause >= effect, "the effect {effect} is seen with the cause {cause}");
                    assert!(effect >= highest, "a connection goes back from {highest} to {effect}");
                    (looks, highest) = (looks + 1, effect);
                }
                (looks, highest)
            })
        });
        let (mut first, mut second) = (cluster.client(0), cluster.client(3));
        for round in 1..=ROUNDS {
            let value = round.to_string();
            assert_eq!(call(&mut first, &["SET", "cause", &value]), ok());
            let sees = || (call(&mut second, &["GET", "cause"]) == text(&value)).then_some(());
            poll(PATIENCE, sees).expect("the other site hears of it");
            assert_eq!(call(&mut second, &["SET", "effect", &value]), ok());
        }
        cluster.wait_until_same(&["GET", "effect"], |answer| *answer == text(&ROUNDS.to_string()));
        stop.store(true, Ordering::Relaxed);
        for watcher in watchers {
            let (looks, highest) = watcher.join().expect("nothing is seen too early");
            assert!(looks > ROUNDS && highest > 0, "{looks} looks, up to {highest}");
        }
    });
}

#[test]
fn a_site_reads_and_updates_keys_of_a_partition_that_it_does_not_have() {
    // The first site of each region lacks a partition, and the keys of a partition are resolved in a region.
    let tables = |place: usize| match place {
        0 => "partitions = [0, 1, 2]\nresolves = [0, 1]",
        3 => "partitions = [1, 2, 3]\nresolves = [2, 3]",
        1 | 2 => "resolves = [0, 1]",
        _ => "resolves = [2, 3]",
    };
    let mut cluster = Cluster::with_partitions("", tables);
    let mut clients: Vec<Client> = (0..SITES).map(|place| cluster.client(place)).collect();
    let mut keys: Vec<Option<String>> = vec![None; 4];
    for number in 0.. {
        let key = format!("key:{number}");
        let Answer::Text(slot) = call(&mut clients[0], &["CLUSTER", "KEYSLOT", &key]) else {
            panic!("no slot")
        };
        keys[slot.parse::<usize>().expect("a slot") / 4096].get_or_insert(key);
        if keys.iter().all(Option::is_some) {
            break;
        }
    }
    let keys: Vec<String> = keys.into_iter().flatten().collect();
    for (partition, key) in keys.iter().enumerate() {
        for (place, client) in clients.iter_mut().enumerate() {
            let words = ["EVAL", "return redis.call('INCR', KEYS[1])", "1", key];
            let value = text(&(place + 1).to_string());
            assert_eq!(call(client, &words), value, "s{} increments {partition}", place + 1);
            // A connection reads what it has written, also where that is elsewhere.
            assert_eq!(call(client, &["GET", key]), value, "s{} reads {partition}", place + 1);
        }
    }
    // A transaction over a partition that the site has and one that it lacks, which its client holds open. It
    // ends, and is run again, if its snapshot is older than what the other site can still tell.
    let held_open = || {
        let both = &["MGET", &keys[0], &keys[3]][..];
        let steps = [
            (&["ORDO.BEGIN"][..], ok()),
            (&["SET", &keys[0], "6"], ok()),
            (&["SET", &keys[3], "6"], ok()),
            (both, list(&["6", "6"])),
            (&["ORDO.COMMIT"], ok()),
        ];
        steps
            .into_iter()
            .all(|(words, answer)| clients[0].call(words).expect("a reply") == answer)
            .then_some(())
    };
    poll(PATIENCE, held_open).expect("the transaction commits");
    assert!([0, 3].into_iter().all(|place| info(&cluster, place, "remote_reads") > 0));
    let (_, said) = cluster.admin(&["status"]);
    assert!(said.contains("read elsewhere") && said.contains("numbers out"), "{said}");
    // A region that is frozen keeps nobody from writing what the other one resolves.
    (3..SITES).for_each(|place| cluster.signal(place, Signal::STOP));
    for client in &mut clients[..3] {
        for key in &keys[..2] {
            // A script that nobody has sent before needs no site of the other region, either.
            let words = ["EVAL", "return redis.call('INCR', KEYS[1]) -- new", "1", key];
            let answer = client.call(&words).expect("a reply");
            let is_retried = matches!(&answer, Answer::Error(text) if may_try_again(text));
            assert!(is_retried || matches!(answer, Answer::Text(_)), "{answer:?}");
            if is_retried {
                call(client, &words);
            }
        }
    }
    (3..SITES).for_each(|place| cluster.signal(place, Signal::CONT));
    for (partition, key) in keys.iter().enumerate() {
        for (place, client) in clients.iter_mut().enumerate() {
            let wanted = text(if partition < 2 { "9" } else { "6" });
            let has_all = || (call(client, &["GET", key]) == wanted).then_some(());
            poll(PATIENCE, has_all).unwrap_or_else(|| panic!("{key} at s{}", place + 1));
        }
    }
}

#[test]
fn a_site_that_is_fenced_or_has_lost_its_disk_comes_back_with_what_the_others_have() {
    let mut cluster = Cluster::start("sites_to_write_min = 2");
    let mut client = cluster.client(0);
    for number in 0..20 {
        assert_eq!(call(&mut client, &["SET", &format!("key:{number}"), "1"]), ok());
    }
    // A site loses its disk, and starts again.
    cluster.process(4).kill();
    std::fs::remove_dir_all(cluster.path("s5")).expect("removed");
    cluster.launch(4);
    cluster.wait_until_up(4);
    let has_all = |cluster: &Cluster, place: usize, value: &str| {
        let mut client = cluster.client(place);
        for number in 0..20 {
            assert_eq!(call(&mut client, &["GET", &format!("key:{number}")]), text(value), "{number}");
        }
    };
    has_all(&cluster, 4, "1");
    let Answer::Text(info) = call(&mut cluster.client(4), &["INFO", "geo"]) else { panic!("no INFO") };
    assert!(info.contains("incarnation:1\r\n"), "{info}");
    // Another one is away, and the operator fences it: the others write again, but for what it resolves.
    cluster.process(5).kill();
    let (code, said) = cluster.admin(&["fence", "s6"]);
    assert!(code == Some(1) && said.contains("--yes"), "{said}");
    let (code, said) = cluster.admin(&["fence", "s5", "--yes"]);
    assert!(code == Some(1) && said.contains("has a link to 's5'"), "{said}");
    let is_begun = || (cluster.admin(&["fence", "s6", "--yes"]).0 == Some(0)).then_some(());
    poll(PATIENCE, is_begun).unwrap_or_else(|| panic!("{:?}", cluster.admin(&["fence", "s6", "--yes"])));
    let is_fenced = || cluster.admin(&["status"]).1.contains("Site s6 is fenced").then_some(());
    poll(PATIENCE, is_fenced).unwrap_or_else(|| panic!("{:?}", cluster.admin(&["status"])));
    // Its process hears of the fence, and ends.
    cluster.launch(5);
    let status = cluster.process(5).wait(PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(status.code(), Some(78), "{}", cluster.process(5).last_said());
    let said = cluster.process(5).last_said();
    assert!(said.contains("have fenced this one"), "{said}");
    assert!(said.contains("Other sites have acknowledged all of its updates"), "{said}");
    let log = std::fs::read_to_string(cluster.path("s1.log")).expect("its log");
    let told = "'s6' is fenced, and its next incarnation is 1. Of its updates, 0 remain";
    assert!(log.contains(told), "{log}");
    cluster.launch(5);
    let again = cluster.process(5).wait(PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.code(), Some(78), "its log says so: {}", cluster.process(5).last_said());
    std::fs::remove_dir_all(cluster.path("s6")).expect("removed");
    cluster.launch(5);
    cluster.wait_until_up(5);
    has_all(&cluster, 5, "1");
    for number in 0..20 {
        let key = format!("key:{number}");
        assert_eq!(call(&mut cluster.client(number % SITES), &["SET", &key, "2"]), ok());
        cluster.wait_until_same(&["GET", &key], |answer| *answer == text("2"));
    }
    // All others are gone for good. The last site waits to hear one of them until the operator says so.
    (0..SITES).for_each(|place| cluster.process(place).kill());
    cluster.launch(0);
    cluster.wait_until_up(0);
    let mut client = cluster.client(0);
    let Answer::Text(info) = call(&mut client, &["INFO", "geo"]) else { panic!("no INFO") };
    assert!(info.contains("trouble:the site has restarted, and waits"), "{info}");
    let refused = client.call(&["GET", "key:1"]).expect("a reply");
    assert!(matches!(&refused, Answer::Error(text) if text.starts_with("CLUSTERDOWN")), "{refused:?}");
    let (code, said) = cluster.admin(&["fence", "s2", "--yes"]);
    assert!(code == Some(1) && said.contains("waits to hear another site"), "{said}");
    let (code, said) = cluster.admin(&["fence", "s2", "--yes", "--force"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(call(&mut client, &["GET", "key:1"]), text("2"));
}

/// A token of what a site has.
fn token(client: &mut Client) -> String {
    match call(client, &["ORDO.SESSION"]) {
        Answer::Text(token) => token,
        other => panic!("no token: {other:?}"),
    }
}

/// The error of a command, which is sent once.
fn refusal(client: &mut Client, words: &[&str]) -> String {
    match client.call(words).expect("a reply") {
        Answer::Error(text) => text,
        other => panic!("{words:?}: {other:?}"),
    }
}

/// Each partition is at three of the six sites, so most sites read the key at other ones.
#[test]
fn a_client_that_goes_on_at_another_site_with_a_token_sees_what_it_has_seen() {
    let mut cluster = Cluster::with_partitions("", |_| "");
    let mut clients: Vec<Client> = (0..SITES).map(|place| cluster.client(place)).collect();
    let keys: Vec<String> = (0..4).map(|number| format!("key:{number}")).collect();
    for round in 0..60 {
        let (from, to) = (round % SITES, (round * 5 + 3) % SITES);
        let (key, value) = (&keys[round % 4], round.to_string());
        assert_eq!(call(&mut clients[from], &["SET", key, &value]), ok());
        let token = token(&mut clients[from]);
        assert_eq!(call(&mut clients[to], &["ORDO.SESSION", &token]), ok());
        let seen = call(&mut clients[to], &["GET", key]);
        assert_eq!(seen, text(&value), "s{} behind a token of s{}", to + 1, from + 1);
        // The token counts the client's reads, too.
        let third = (to + 1) % SITES;
        let token = self::token(&mut clients[to]);
        assert_eq!(call(&mut clients[third], &["ORDO.SESSION", &token]), ok());
        assert_eq!(call(&mut clients[third], &["GET", key]), text(&value), "s{}", third + 1);
    }
    let given = token(&mut clients[5]);
    let (first, rest) = given.split_at(1);
    let turned = if first == "0" { "1" } else { "0" };
    let changed = format!("{}{}", &given[..given.len() - 1], if given.ends_with('0') { '1' } else { '0' });
    for (words, why) in [
        (&["ORDO.SESSION", &format!("{turned}{rest}")][..], "is of another cluster"),
        (&["ORDO.SESSION", &changed], "the token is damaged"),
        (&["ORDO.SESSION", "token"], "the token is damaged"),
        (&["ORDO.SESSION", &given, &given], "syntax error"),
    ] {
        let error = refusal(&mut clients[0], words);
        assert!(error.contains(why) && (error.contains("nothing was changed") || words.len() > 2), "{error}");
    }
    assert_eq!(call(&mut clients[0], &["ORDO.BEGIN"]), ok());
    assert!(refusal(&mut clients[0], &["ORDO.SESSION", &given]).contains("within a transaction"));
    assert_eq!(call(&mut clients[0], &["ORDO.ROLLBACK"]), ok());
    assert_eq!(call(&mut clients[0], &["MULTI"]), ok());
    assert!(refusal(&mut clients[0], &["ORDO.SESSION"]).contains("not allowed"));
    assert_eq!(call(&mut clients[0], &["DISCARD"]), ok());
    // The site is fenced: nobody knows whether what the client has seen remains.
    cluster.process(5).kill();
    let is_begun = || (cluster.admin(&["fence", "s6", "--yes"]).0 == Some(0)).then_some(());
    poll(PATIENCE, is_begun).unwrap_or_else(|| panic!("{:?}", cluster.admin(&["fence", "s6", "--yes"])));
    // Until the fence is decided, the token is taken.
    let why = "'s6' was fenced after the token was given";
    let is_refused = || match clients[0].call(&["ORDO.SESSION", &given]).expect("a reply") {
        Answer::Error(text) => text.contains(why).then_some(()),
        _ => None,
    };
    poll(PATIENCE, is_refused).expect("a token of a fenced site is refused");
    let fresh = token(&mut clients[0]);
    assert_eq!(call(&mut clients[1], &["ORDO.SESSION", &fresh]), ok());
}

#[test]
fn a_client_is_told_when_its_writes_are_in_other_regions() {
    // The sites of the first region resolve all keys.
    let tables = |place: usize| if place < 3 { "resolves = [0, 1, 2, 3]" } else { "" };
    let mut cluster = Cluster::with_partitions("replicas = 6\nregions_to_write_min = 2", tables);
    let mut client = cluster.client(0);
    let is_at = |cluster: &Cluster, place: usize, key: &str| {
        call(&mut cluster.client(place), &["GET", key]) == text("1")
    };
    assert_eq!(call(&mut client, &["ORDO.WAIT", "REGIONS", "3", "100"]), ok(), "it has written nothing");
    for round in 0..20 {
        let key = format!("key:{round}");
        assert_eq!(call(&mut client, &["SET", &key, "1"]), ok());
        assert!((3..SITES).any(|place| is_at(&cluster, place, &key)), "the other region has {key}");
        assert_eq!(call(&mut client, &["ORDO.WAIT", "REGION", "east", "3", "0"]), ok());
        assert!((3..SITES).all(|place| is_at(&cluster, place, &key)), "all of the other region have {key}");
    }
    for (words, why) in [
        (&["ORDO.WAIT", "REGION", "north", "1", "0"][..], "there is no region 'north'"),
        (&["ORDO.WAIT", "REGION", "east", "4", "0"], "has fewer sites there"),
        (&["ORDO.WAIT", "REGIONS", "0", "0"], "must be from 1 to 64"),
        (&["ORDO.WAIT", "REGION", "east", "1"], "syntax error"),
    ] {
        let error = refusal(&mut client, words);
        assert!(error.contains(why), "{words:?}: {error}");
    }
    (3..SITES).for_each(|place| cluster.signal(place, Signal::STOP));
    let unknown = refusal(&mut client, &["SET", "late", "1"]);
    assert!(unknown.starts_with("ORDOUNKNOWN"), "{unknown}");
    assert_eq!(call(&mut client, &["GET", "late"]), text("1"), "it has taken effect here");
    assert_eq!(call(&mut client, &["ORDO.WAIT", "REGION", "west", "3", "0"]), ok());
    let unknown = refusal(&mut client, &["ORDO.WAIT", "REGION", "east", "1", "200"]);
    assert!(unknown.starts_with("ORDOUNKNOWN fewer than 1 sites of region 'east'"), "{unknown}");
    (3..SITES).for_each(|place| cluster.signal(place, Signal::CONT));
    let has_come =
        || (client.call(&["ORDO.WAIT", "REGIONS", "3", "0"]).expect("a reply") == ok()).then_some(());
    poll(PATIENCE, has_come).expect("the other region gets it");
    assert!((0..SITES).all(|place| is_at(&cluster, place, "late")));
    assert_eq!(info(&cluster, 0, "regions_to_write_min"), 2);
}
