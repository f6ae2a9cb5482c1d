//! Requests of the order that are not executed because an operator says so: real processes.

use crate::nodes::{Build, Cluster, NAMES, REPLY_PATIENCE, Server, ordo, word};
use server::client::{Answer, Client, put_command};
use server::launcher::answers_ping;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Without checkpoints: every start executes its whole log.
const SETTINGS: [&str; 4] = ["--checkpoint-log-size", "0", "--appendfsync", "no"];

fn text(text: &str) -> Answer {
    Answer::Text(text.to_owned())
}

fn admin(words: &[&str], dirs: &[&Path]) -> Output {
    let dirs = dirs.iter().flat_map(|dir| ["--dir", word(dir)]);
    let words: Vec<&str> = ["admin"].into_iter().chain(words.iter().copied()).chain(dirs).collect();
    ordo(&words)
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What `ordo admin requests` calls a request in which all of these texts occur.
fn named(dir: &Path, texts: &[&str]) -> Vec<String> {
    let listed = admin(&["requests", "--last", "1000"], &[dir]);
    assert!(listed.status.success(), "{listed:?}");
    let all = out(&listed);
    let lines = all.lines().filter(|line| texts.iter().all(|text| line.contains(text)));
    lines.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

#[test]
fn a_request_that_is_skipped_is_not_executed_by_any_start() {
    let mut server = Server::new();
    server.start(&SETTINGS);
    let mut client = server.client();
    for sum in 1..=3 {
        let answer = client.call(&["ORDO.IDEMPOTENT", &format!("id{sum}"), "INCR", "a"]);
        assert_eq!(answer.expect("an answer"), text(&sum.to_string()));
    }
    let script = ["EVAL", "return redis.call('SET',KEYS[1],1)", "1", "scripted", "argument"];
    client.call(&script).expect("an answer");
    client.call(&["ACL", "SETUSER", "somebody", "on", ">password"]).expect("an answer");
    server.kill();
    let dir = server.data();
    // A script is recognised by its text and its keys. Its arguments and rules of users may be secrets.
    let listed = out(&admin(&["requests"], &[&dir]));
    assert!(listed.contains("\"1\" \"scripted\" \"(8 bytes)\""), "{listed}");
    assert!(listed.contains("redis.acting \"ACL\" \"SETUSER\" \"(redacted)\""), "{listed}");
    assert!(!listed.contains("argument") && !listed.contains("somebody"), "{listed}");
    let names = named(&dir, &["idempotent", "INCR", "id2"]);
    let [name] = &names[..] else {
        panic!("{names:?}");
    };

    // It says what it means, and wants to be told twice.
    let asked = admin(&["skip", name], &[&dir]);
    assert!(!asked.status.success());
    let said = out(&asked);
    assert!(said.contains("\"id2\"") && said.contains("ORDO.IDEMPOTENT"), "{said}");
    assert!(String::from_utf8_lossy(&asked.stderr).contains("--yes"), "{asked:?}");
    server.start(&SETTINGS);
    assert_eq!(server.call(&["GET", "a"]), text("3"));
    // Nor while a process has the directory.
    let refused = admin(&["skip", name, "--yes"], &[&dir]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("in use"), "{refused:?}");
    server.kill();

    let done = admin(&["skip", name, "--yes"], &[&dir]);
    assert!(done.status.success(), "{done:?}");
    for _ in 0..2 {
        server.start(&SETTINGS);
        assert_eq!(server.call(&["GET", "a"]), text("2"));
        server.kill();
    }
    let said = server.said();
    let warning = format!("an operator had request {name} of the order skipped");
    assert!(said.contains(&warning), "{said}");

    // What was skipped left no record of its id: a retry is a new request.
    server.start(&SETTINGS);
    let retry = server.call(&["ORDO.IDEMPOTENT", "id2", "INCR", "a"]);
    assert_eq!(retry, text("3"));
    // A checkpoint that was made without it is one to start from, and what it covers can't be skipped any
    // more.
    assert_eq!(server.call(&["SAVE"]), text("OK"));
    server.kill();
    server.start(&SETTINGS);
    assert_eq!(server.call(&["GET", "a"]), text("3"));
    server.kill();
    let epoch: u64 = name.split(':').next().expect("an epoch").parse().expect("a number");
    let rest = name.split_once(':').expect("more").1;
    let other = format!("{}:{rest}", epoch - 1);
    server.launch(&[&SETTINGS[..], &["--skip", &other]].concat());
    assert!(!server.ended().success());
    let refusal = format!("request {other} cannot be skipped");
    assert!(server.said().contains(&refusal), "{}", server.said());
    server.start(&SETTINGS);
    assert_eq!(server.call(&["GET", "a"]), text("3"));
}

/// A script without an end stands for a request that ends the process: the process is killed whenever it
/// executes it.
#[test]
fn the_request_at_which_each_start_ends_is_named_and_skipped() {
    let mut server = Server::new();
    server.start(&SETTINGS);
    let mut client = server.client();
    assert_eq!(client.call(&["SET", "a", "1"]).expect("an answer"), text("OK"));
    let poison = "-- poison\nlocal n = 0 while true do n = n + 1 end";
    let mut bytes = Vec::new();
    put_command(&mut bytes, &["EVAL", poison, "0"]);
    client.send(&bytes).expect("sent");
    let answer = server.until("the script runs", || match server.call(&["SCRIPT", "KILL"]) {
        Answer::Error(text) if text.starts_with("UNKILLABLE") => Some(text),
        Answer::Error(text) if text.starts_with("NOTBUSY") => None,
        other => panic!("{other:?}"),
    });
    let (_, name) = answer.split_once("which is request ").expect("its name");
    let name = name.split_whitespace().next().expect("its name").to_owned();
    assert!(answer.contains("(\"-- poison\")"), "{answer}");
    assert!(answer.contains(" by client id="), "{answer}");
    server.kill();
    assert_eq!(named(&server.data(), &["redis.eval", "poison"]), std::slice::from_ref(&name));

    let file = server.data().join("replaying.txt");
    let found = |mark: &str| std::fs::read_to_string(&file).is_ok_and(|all| all.starts_with(mark));
    // The first start that dies leaves the file, and the second one names the request in it.
    for mark in [".".to_owned(), format!("!{name} ")] {
        loop {
            server.launch(&SETTINGS);
            let dies = server.until("executing its log", || {
                let serves = || answers_ping(&server.address, None).then_some(false);
                found(&mark).then_some(true).or_else(serves)
            });
            server.kill();
            if dies {
                break;
            }
            // It got through before this test could kill it: again.
            std::fs::write(&file, ".").expect("written");
        }
    }
    // The third one says so, and what to do.
    server.start(&[&SETTINGS[..], &["--skip", &name]].concat());
    assert_eq!(server.call(&["GET", "a"]), text("1"));
    let said = server.said();
    let naming = format!("ended while it executed request {name} (redis.eval");
    assert!(said.contains(&naming), "{said}");
    assert!(said.contains(&format!("--skip {name}")), "{said}");
    assert!(!file.exists(), "the log has been executed");
    // It is remembered.
    server.kill();
    server.start(&SETTINGS);
    assert_eq!(server.call(&["GET", "a"]), text("1"));
}

#[test]
fn the_nodes_of_a_cluster_skip_the_same_or_refuse_each_other() {
    let mut cluster = Cluster::start(Build::own(&["--appendfsync", "no"]));
    // Over several partitions: it is skipped at all of them.
    for step in 1..=3 {
        let value = step.to_string();
        assert_eq!(cluster.call(0, &["MSET", "a", &value, "b", &value, "c", &value]), "OK");
        cluster.call(0, &["INCR", &format!("n{step}")]);
    }
    cluster.call(0, &["DECR", "a"]);
    for place in 0..NAMES.len() {
        // So that each has all of it.
        assert_eq!(cluster.call(place, &["GET", "a"]), "2");
    }
    (0..NAMES.len()).for_each(|place| cluster.kill(place));
    let dirs: Vec<PathBuf> = NAMES.iter().map(|name| cluster.file(name)).collect();
    let last = named(&dirs[0], &["redis.mset", "\"3\""]);
    let n3 = named(&dirs[0], &["redis.incr", "\"n3\""]);
    let ([last], [n3]) = (&last[..], &n3[..]) else {
        panic!("{last:?} {n3:?}");
    };
    let done = admin(&["skip", last, n3, "--yes"], &[&dirs[0], &dirs[1]]);
    assert!(done.status.success(), "{done:?}");

    cluster.run_all();
    assert_eq!(cluster.call(0, &["GET", "a"]), "1", "what was written before, less one");
    cluster.until(2, "it is refused", || {
        let said = cluster.said(0) + &cluster.said(1) + &cluster.said(2);
        said.contains("do not skip the same requests").then_some(())
    });
    cluster.kill(2);
    let done = admin(&["skip", last, n3, "--yes"], &[&dirs[2]]);
    assert!(done.status.success(), "{done:?}");
    cluster.run(2);
    assert_eq!(cluster.call(2, &["INCR", "n1"]), "2");
    // Each node tells what it has itself.
    for place in 0..NAMES.len() {
        for (key, value) in [
            ("a", Some("1")),
            ("b", Some("2")),
            ("c", Some("2")),
            ("n1", Some("2")),
            ("n2", Some("1")),
            ("n3", None),
        ] {
            cluster.until(place, &format!("{key} is {value:?}"), || {
                let mut client = Client::open(&cluster.nodes[place].client, REPLY_PATIENCE).ok()?;
                client.call(&["READONLY"]).ok()?;
                let expected = value.map_or(Answer::Nil, |value| Answer::Text(value.to_owned()));
                (client.call(&["GET", key]).ok()? == expected).then_some(())
            });
        }
    }
}
