//! A cluster of real processes whose nodes and clients speak TLS.
#![allow(clippy::disallowed_methods, reason = "what watches processes has threads, a clock and pauses")]

use crate::authority::{Authority, text};
use crate::nodes::{
    Build, CLIENTS, Cluster, PATIENCE, PROGRAM, REPLY_PATIENCE, Writer, try_ordo, wait_for_steps,
};
use server::client::{Answer, Client};
use server::cluster::local::{LocalCluster, Processes, Wishes};
use server::launcher::free_port;
use server::tls::ClientTls;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The settings of a node, as words.
fn settings(dir: &Path, authority: &Authority) -> Vec<String> {
    let node = authority.sign(dir, "node");
    let words = [
        "--tls-cluster",
        "yes",
        "--tls-cert-file",
        text(&node.cert),
        "--tls-key-file",
        text(&node.key),
        "--tls-ca-cert-file",
        text(&authority.file),
    ];
    words.map(str::to_owned).to_vec()
}

#[test]
fn nodes_that_speak_tls_survive_the_kill_of_one_and_refuse_one_that_does_not() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let authority = Authority::new(dir.path(), "ca");
    let secured = Build { program: PROGRAM.into(), words: settings(dir.path(), &authority) };
    let mut cluster = Cluster::start(secured);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<Writer> =
        (0..CLIENTS).map(|number| Writer::start(number, cluster.addresses(), stop.clone())).collect();
    wait_for_steps(&cluster, &writers);
    cluster.kill(0);
    wait_for_steps(&cluster, &writers);

    // It comes back without TLS: both sides say so, and the others go on.
    cluster.run_as(0, &Build::own(&[]));
    let says = |place: usize, want: &str| {
        cluster
            .until(place, &format!("it says '{want}'"), || cluster.said(place).contains(want).then_some(()));
    };
    says(0, "speaks TLS");
    says(1, "set tls-cluster to the same at all nodes");
    says(2, "set tls-cluster to the same at all nodes");
    wait_for_steps(&cluster, &writers);
    cluster.kill(0);
    cluster.run(0);
    cluster.call(0, &["PING"]);
    wait_for_steps(&cluster, &writers);
    stop.store(true, Ordering::Relaxed);
    let done: Vec<u64> = writers
        .into_iter()
        .map(|writer| {
            writer.thread.join().expect("no wrong reply");
            writer.done.load(Ordering::Relaxed)
        })
        .collect();
    for place in 0..cluster.nodes.len() {
        let mut client = cluster.open(place);
        for (number, done) in done.iter().enumerate() {
            let sum = client.call(&["GET", &format!("counter:{number}")]);
            assert_eq!(sum.expect("a reply"), Answer::Text(done.to_string()));
        }
    }
    for place in 0..cluster.nodes.len() {
        cluster.stop(place);
    }
}

#[test]
fn a_local_cluster_serves_clients_and_admins_by_tls() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let authority = Authority::new(dir.path(), "ca");
    let own = authority.sign(dir.path(), "client");
    let settings = settings(dir.path(), &authority);
    let config = LocalCluster::settings(&settings).expect("settings");
    let tls = ClientTls::of(&config).expect("files");
    let program = Path::new(PROGRAM);
    let start = Instant::now();
    let (launches, mut processes) = loop {
        // Another test may take a port between the look and the use.
        let wishes = Wishes {
            nodes: Some(3),
            port: Some(free_port().expect("a port") % 40_000 + 10_000),
            ..Wishes::default()
        };
        let place = tempfile::tempdir_in(dir.path()).expect("a directory").keep();
        let started = LocalCluster::prepare(&place, &wishes).and_then(|made| {
            let launches = made.launches(program, &settings, Some(&tls));
            Processes::start(&launches, || false).map(|processes| (launches, processes))
        });
        match started {
            Ok(started) => break started,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
    };
    let open = |place: usize| {
        let address = &launches[place].client_address;
        Client::open_with(address, REPLY_PATIENCE, Some(&tls)).expect("a connection")
    };
    let set = open(0).call(&["SET", "k", "v"]).expect("a reply");
    assert_eq!(set, Answer::Text("OK".to_owned()));
    assert_eq!(open(1).call(&["GET", "k"]).expect("a reply"), Answer::Text("v".to_owned()));
    // There is no other door.
    let plain = Client::open(&launches[0].client_address, REPLY_PATIENCE);
    assert!(plain.and_then(|mut client| client.call(&["PING"])).is_err());

    let address = launches[2].client_address.as_str();
    let secured = ["--tls", "--cacert", text(&authority.file)];
    let shows = ["--cert", text(&own.cert), "--key", text(&own.key)];
    let ask = ["admin", "status", "--address", address];
    let (good, said) = try_ordo(&[&ask[..], &secured, &shows].concat());
    assert!(good && said.contains("n1") && said.contains("n3"), "{said}");
    for (words, want) in [(&["--tls"][..], "--cacert"), (&secured[..], "wants one"), (&[], "say --tls")] {
        let (good, said) = try_ordo(&[&ask[..], words].concat());
        assert!(!good && said.contains(want), "{words:?}: {said}");
    }
    assert!(processes.stop().is_empty(), "one had to be killed");
}
